/* SPDX-License-Identifier: MIT */
/*
 * QPs that come and go for long, on the first device.
 *
 *     soak churn CREATES LIVE FIRST     by one thread, LIVE at a time, of 16 shapes; after FIRST and at the end
 *                                       it prints its memory and waits for a line
 *     soak threads SECONDS              by 8 threads, while 8 others post and poll
 *
 * Of `threads` each of 4 posting threads posts to all of 8 shared QPs and each of 4 polling ones polls all of
 * their 4 CQs. A creator makes a QP, posts a few requests and
 *     of max_send_wr 16   polls its own CQ until they are done, then destroys the QP;
 *     of max_send_wr 32   destroys it at once or soon. These are on the CQs of the others, which may poll
 *                         what completed meanwhile, or nobody does.
 * In the end all is drained, and it prints what it did of each kind; the shared QPs have max_send_wr 64.
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MEMORY_BYTES 8192
#define SHARED_QPS   8
#define SHARED_CQS   4
#define POSTERS	     4
#define POLLERS	     4
#define CREATORS     8
#define LIST	     4
#define PATIENCE     120 /* seconds, for what is to complete in the end */

/* By max_send_wr, which tells them apart in the report. */
enum kind { DRAINED = 16, DROPPED = 32, SHARED = 64 };

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_mr *mr;
static char *memory;
static union ibv_gid gid;
static struct ibv_port_attr port;

static struct ibv_cq *shared_cq[SHARED_CQS];
static struct ibv_qp *shared_qp[SHARED_QPS];
static atomic_bool stopping, drained;
static _Atomic uint64_t posted[SHARED + 1], refused[SHARED + 1], received[SHARED + 1];
static _Atomic uint64_t made[SHARED + 1], completed[SHARED + 1];
static _Atomic uint64_t signaled_on[SHARED_QPS], completed_on[SHARED_QPS];

static _Noreturn void die(const char *what)
{
	fprintf(stderr, "soak: %s: %s\n", what, strerror(errno));
	_exit(1);
}

static void begin(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	if (!list || !list[0] || !(context = ibv_open_device(list[0])))
		die("device");
	ibv_free_device_list(list);
	pd = ibv_alloc_pd(context);
	memory = aligned_alloc(4096, MEMORY_BYTES);
	if (!pd || !memory)
		die("memory");
	mr = ibv_reg_mr(pd, memory, MEMORY_BYTES, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (!mr || ibv_query_port(context, 1, &port) || ibv_query_gid(context, 1, 0, &gid))
		die("port");
}

static struct ibv_cq *make_cq(int cqe)
{
	struct ibv_cq *cq = ibv_create_cq(context, cqe, NULL, NULL, 0);

	if (!cq)
		die("create_cq");
	return cq;
}

static struct ibv_qp *make_qp(struct ibv_cq *cq, uint32_t max_send_wr, uint32_t max_recv_wr)
{
	struct ibv_qp_init_attr a = { .send_cq = cq,
				      .recv_cq = cq,
				      .qp_type = IBV_QPT_RC,
				      .cap = { max_send_wr, max_recv_wr, 1, 1, 0 } };
	struct ibv_qp *qp = ibv_create_qp(pd, &a);

	if (!qp)
		die("create_qp");
	return qp;
}

/* Connected to itself. */
static void to_rts(struct ibv_qp *qp)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT,
				 .port_num = 1,
				 .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };

	if (ibv_modify_qp(qp, &a,
			  IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		die("INIT");
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR,
				  .path_mtu = IBV_MTU_1024,
				  .dest_qp_num = qp->qp_num,
				  .max_dest_rd_atomic = 1,
				  .min_rnr_timer = 12 };
	a.ah_attr = (struct ibv_ah_attr){ .is_global = 1, .port_num = 1, .dlid = port.lid };
	a.ah_attr.grh.dgid = gid;
	a.ah_attr.grh.hop_limit = 1;
	if (ibv_modify_qp(qp, &a,
			  IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				  IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
		die("RTR");
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS,
				  .timeout = 14,
				  .retry_cnt = 7,
				  .rnr_retry = 7,
				  .max_rd_atomic = 1 };
	if (ibv_modify_qp(qp, &a,
			  IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				  IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC))
		die("RTS");
}

static uint32_t dice(uint32_t *seed)
{
	*seed = *seed * 1664525 + 1013904223;
	return *seed >> 8;
}

/* --- churn --- */

static void tell_memory(const char *when)
{
	char line[256];
	FILE *f = fopen("/proc/self/status", "re");

	while (f && fgets(line, sizeof(line), f))
		if (!strncmp(line, "RssAnon:", 8))
			printf("%s %lu KiB\n", when, strtoul(line + 8, NULL, 10));
	if (f)
		fclose(f);
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		die("nobody told to go on");
}

static void churn(unsigned int creates, unsigned int live, unsigned int first)
{
	struct ibv_qp **qps = calloc(live, sizeof(*qps));
	struct ibv_cq *cq = make_cq(64);
	uint32_t seed = 1;

	for (unsigned int i = 0; i < creates; i++) {
		struct ibv_qp **place = &qps[i < live ? i : dice(&seed) % live];
		uint32_t shape = dice(&seed) % 16;

		if (*place && ibv_destroy_qp(*place))
			die("destroy_qp");
		*place = make_qp(cq, 8u << (shape & 3), 8u << (shape >> 2));
		if (i + 1 == first)
			tell_memory("first");
	}
	tell_memory("last");
	for (unsigned int i = 0; i < live; i++)
		if (qps[i] && ibv_destroy_qp(qps[i]))
			die("destroy_qp");
	if (ibv_destroy_cq(cq))
		die("destroy_cq");
	free(qps);
}

/* --- threads --- */

static void fill(struct ibv_send_wr *wr, struct ibv_sge *sge, unsigned int n)
{
	*sge = (struct ibv_sge){ (uintptr_t)memory, 8, mr->lkey };
	memset(wr, 0, n * sizeof(*wr));
	for (unsigned int i = 0; i < n; i++) {
		wr[i].next = i + 1 < n ? &wr[i + 1] : NULL;
		wr[i].sg_list = sge;
		wr[i].num_sge = 1;
		wr[i].opcode = IBV_WR_RDMA_WRITE;
		wr[i].send_flags = IBV_SEND_SIGNALED;
		wr[i].wr.rdma.remote_addr = (uintptr_t)memory + MEMORY_BYTES / 2;
		wr[i].wr.rdma.rkey = mr->rkey;
	}
}

/* Returns how many were accepted. */
static unsigned int post(struct ibv_qp *qp, enum kind kind, struct ibv_send_wr *wr, unsigned int n)
{
	struct ibv_send_wr *bad = NULL;
	unsigned int taken = n;

	if (ibv_post_send(qp, wr, &bad)) {
		taken = (unsigned int)(bad - wr);
		refused[kind]++;
	}
	posted[kind] += taken;
	return taken;
}

static void *poster(void *arg)
{
	uint32_t seed = (uint32_t)(uintptr_t)arg * 7919;
	struct ibv_send_wr wr[LIST];
	struct ibv_sge sge;

	while (!stopping) {
		unsigned int q = dice(&seed) % SHARED_QPS, n = 1 + dice(&seed) % LIST, taken;

		fill(wr, &sge, n);
		for (unsigned int i = 0; i < n; i++)
			if (dice(&seed) % 3)
				wr[i].send_flags = 0;
		taken = post(shared_qp[q], SHARED, wr, n);
		for (unsigned int i = 0; i < taken; i++)
			signaled_on[q] += wr[i].send_flags != 0;
		/* a full queue of unsignaled requests would wait for a signaled one for ever */
		if (taken < n) {
			fill(wr, &sge, 1);
			signaled_on[q] += post(shared_qp[q], SHARED, wr, 1);
			sched_yield();
		}
	}
	return NULL;
}

static void took(const struct ibv_wc *wc)
{
	if (wc->status != IBV_WC_SUCCESS) {
		fprintf(stderr, "soak: %s\n", ibv_wc_status_str(wc->status));
		_exit(1);
	}
	for (unsigned int q = 0; q < SHARED_QPS; q++)
		if (shared_qp[q]->qp_num == wc->qp_num) {
			completed_on[q]++;
			return;
		}
	completed[DROPPED]++;
}

static void *poller(void *arg)
{
	unsigned int turn = (unsigned int)(uintptr_t)arg;
	struct ibv_wc wc[8];

	while (!drained) {
		int got = ibv_poll_cq(shared_cq[turn % SHARED_CQS], 1 + (int)(turn % 8), wc);

		if (got < 0)
			die("poll_cq");
		for (int i = 0; i < got; i++)
			took(&wc[i]);
		turn++;
		if (!got)
			sched_yield();
	}
	return NULL;
}

static void post_receives(struct ibv_qp *qp, enum kind kind, unsigned int n)
{
	struct ibv_sge sge = { (uintptr_t)memory, 8, mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

	for (unsigned int i = 0; i < n; i++)
		if (ibv_post_recv(qp, &wr, &bad))
			die("post_recv");
	received[kind] += n;
}

static void *creator(void *arg)
{
	uint32_t seed = (uint32_t)(uintptr_t)arg * 104729;
	struct ibv_cq *own = make_cq(64);
	struct ibv_send_wr wr[LIST];
	struct ibv_wc wc[LIST];
	struct ibv_sge sge;

	while (!stopping) {
		enum kind kind = dice(&seed) % 2 ? DRAINED : DROPPED;
		struct ibv_cq *cq = kind == DRAINED ? own : shared_cq[dice(&seed) % SHARED_CQS];
		struct ibv_qp *qp = make_qp(cq, kind, kind);
		unsigned int n = dice(&seed) % (LIST + 1);

		made[kind]++;
		to_rts(qp);
		post_receives(qp, kind, dice(&seed) % 3);
		fill(wr, &sge, n);
		if (n && post(qp, kind, wr, n) != n)
			die("post_send");
		for (unsigned int left = kind == DRAINED ? n : 0; left;) {
			int got = ibv_poll_cq(own, (int)left, wc);

			left -= got > 0 ? (unsigned int)got : 0;
			completed[DRAINED] += got > 0 ? (unsigned int)got : 0;
			if (got <= 0)
				sched_yield();
		}
		if (kind == DROPPED && dice(&seed) % 2)
			usleep(200);
		if (ibv_destroy_qp(qp))
			die("destroy_qp");
	}
	if (ibv_destroy_cq(own))
		die("destroy_cq");
	return NULL;
}

/* A signaled request ends each shared queue; then all completions are waited for. */
static void drain(void)
{
	time_t deadline = time(NULL) + PATIENCE;
	struct ibv_send_wr wr;
	struct ibv_sge sge;

	fill(&wr, &sge, 1);
	for (unsigned int q = 0; q < SHARED_QPS; q++) {
		while (!post(shared_qp[q], SHARED, &wr, 1))
			if (time(NULL) > deadline)
				die("a queue stays full");
		signaled_on[q]++;
		while (completed_on[q] < signaled_on[q])
			if (usleep(100), time(NULL) > deadline)
				die("a completion is missing");
	}
	drained = true;
}

static void start(pthread_t *thread, void *(*run)(void *), unsigned int n)
{
	for (unsigned int i = 0; i < n; i++)
		if (pthread_create(&thread[i], NULL, run, (void *)(uintptr_t)(i + 1)))
			die("pthread_create");
}

static void join(const pthread_t *thread, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++)
		pthread_join(thread[i], NULL);
}

static void tell(enum kind kind)
{
	printf("max_send_wr %d made %llu sends %llu completed %llu refused %llu receives %llu\n",
	       kind, (unsigned long long)made[kind], (unsigned long long)posted[kind],
	       (unsigned long long)completed[kind], (unsigned long long)refused[kind],
	       (unsigned long long)received[kind]);
}

static void threads(unsigned int seconds)
{
	pthread_t posting[POSTERS], polling[POLLERS], creating[CREATORS];

	for (unsigned int i = 0; i < SHARED_CQS; i++)
		shared_cq[i] = make_cq(65536);
	for (unsigned int i = 0; i < SHARED_QPS; i++) {
		shared_qp[i] = make_qp(shared_cq[i % SHARED_CQS], SHARED, SHARED);
		made[SHARED]++;
		to_rts(shared_qp[i]);
	}
	start(polling, poller, POLLERS);
	start(posting, poster, POSTERS);
	start(creating, creator, CREATORS);
	sleep(seconds);
	stopping = true;
	join(creating, CREATORS);
	join(posting, POSTERS);
	drain();
	join(polling, POLLERS);
	/* a completion of a shared QP retires the unsignaled requests before it */
	completed[SHARED] = posted[SHARED];
	tell(DRAINED);
	tell(DROPPED);
	tell(SHARED);
}

int main(int argc, char **argv)
{
	begin();
	if (argc == 5 && !strcmp(argv[1], "churn"))
		churn((unsigned int)atoi(argv[2]), (unsigned int)atoi(argv[3]),
		      (unsigned int)atoi(argv[4]));
	else if (argc == 3 && !strcmp(argv[1], "threads"))
		threads((unsigned int)atoi(argv[2]));
	else
		return 2;
	return 0;
}
