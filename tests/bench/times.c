/* SPDX-License-Identifier: MIT */
/*
 * How long the paths of paths.c take, in a process that is bare or guarded as it was started: each call is made
 * once on every QP of many, in shuffled order, and 48 at a time are timed, so that the clock takes no part. Driven by lines on standard input, so that a bare and a guarded process can take turns; each is
 * answered by a line on standard output:
 *
 *     run N      path N, from 0        run PICOSECONDS NAME, for one call; run 0 end where there is none
 *
 * Paths are run in their order, each as often as one likes: those behind "mixed" after an unsignaled request on
 * every queue.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../apps/verbs_pair.h"

#define CQS  16
#define QPS  1000
#define LIST 32
/* Lists of 32 go to so many of them, for the NIC's sake. */
#define LISTED 200

static struct ibv_cq *cq[CQS];
static struct ibv_cq_ex *cq_ex[CQS];
static struct ibv_qp *qp[QPS];
static struct ibv_qp_ex *qp_ex[QPS];
static struct ibv_send_wr send[LIST];
static struct ibv_recv_wr recv[LIST];
static struct ibv_sge sge[4];

static void shuffle(uint32_t seed)
{
	for (unsigned int i = QPS - 1; i; i--) {
		struct ibv_qp *q = qp[i];
		struct ibv_qp_ex *x = qp_ex[i];
		unsigned int j;

		seed = seed * 1664525 + 1013904223;
		j = (seed >> 8) % (i + 1);
		qp[i] = qp[j];
		qp[j] = q;
		qp_ex[i] = qp_ex[j];
		qp_ex[j] = x;
	}
}

static struct ibv_qp *make(struct ibv_cq *on)
{
	struct plan plan = { .cap = { 128, 128, 4, 4, 64 }, .send_cq = on, .recv_cq = on };
	struct end *e = end_make(&plan);

	end_to(e, IBV_QPS_RTS, e);
	return e->qp;
}

static void begin(void)
{
	struct ibv_cq_init_attr_ex ex = { .cqe = 8192, .wc_flags = IBV_WC_EX_WITH_QP_NUM };

	device_begin();
	for (unsigned int i = 0; i < CQS; i++) {
		cq[i] = ibv_create_cq(context, 8192, NULL, NULL, 0);
		cq_ex[i] = ibv_create_cq_ex(context, &ex);
		need(cq[i] && cq_ex[i], "create_cq");
	}
	for (unsigned int i = 0; i < QPS; i++)
		qp[i] = make(cq[i % CQS]);
	setenv("QPG_API", "extended", 1);
	for (unsigned int i = 0; i < QPS; i++)
		qp_ex[i] = ibv_qp_to_qp_ex(make(ibv_cq_ex_to_cq(cq_ex[i % CQS])));
	for (unsigned int i = 0; i < 4; i++)
		sge[i] = (struct ibv_sge){ (uintptr_t)memory, 8, mr->lkey };
	shuffle(20240229);
}

static void fill(unsigned int n, int sges, enum ibv_wr_opcode opcode, unsigned int flags)
{
	for (unsigned int i = 0; i < n; i++) {
		send[i] = (struct ibv_send_wr){ .opcode = opcode, .sg_list = sge, .num_sge = sges };
		send[i].send_flags = flags;
		send[i].wr.rdma.remote_addr = (uintptr_t)memory + 4096;
		send[i].wr.rdma.rkey = mr->rkey;
		send[i].next = i + 1 < n ? &send[i + 1] : NULL;
		recv[i] = (struct ibv_recv_wr){ .sg_list = sge, .num_sge = 1 };
		recv[i].next = i + 1 < n ? &recv[i + 1] : NULL;
	}
}

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* Calls are timed by laps of so many: what another thread or process took of the processor is in few of them. */
#define LAP	  48
#define MOST_LAPS 4096
static uint64_t lap_ps[MOST_LAPS], lap_began;
static unsigned int laps;

static void laps_begin(void)
{
	laps = 0;
	lap_began = now();
}

/* After call i, from 0. */
static void lap(unsigned int i)
{
	uint64_t t;

	if ((i + 1) % LAP || laps == MOST_LAPS)
		return;
	t = now();
	lap_ps[laps++] = (t - lap_began) * 1000 / LAP;
	lap_began = t;
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static uint64_t median_lap(void)
{
	qsort(lap_ps, laps, sizeof(lap_ps[0]), by_value);
	return laps ? lap_ps[laps / 2] : 0;
}

static void post_to(unsigned int qps)
{
	struct ibv_send_wr *bad;

	for (unsigned int i = 0; i < qps; i++) {
		if (ibv_post_send(qp[i], send, &bad))
			need(false, "post_send");
		lap(i);
	}
}

static void post_recv_to(unsigned int qps)
{
	struct ibv_recv_wr *bad;

	for (unsigned int i = 0; i < qps; i++) {
		if (ibv_post_recv(qp[i], recv, &bad))
			need(false, "post_recv");
		lap(i);
	}
}

static void write_by_builder(unsigned int flags)
{
	for (unsigned int i = 0; i < QPS; i++) {
		ibv_wr_start(qp_ex[i]);
		qp_ex[i]->wr_flags = flags;
		ibv_wr_rdma_write(qp_ex[i], mr->rkey, (uintptr_t)memory + 4096);
		ibv_wr_set_sge(qp_ex[i], mr->lkey, (uintptr_t)memory, 8);
		if (ibv_wr_complete(qp_ex[i]))
			need(false, "wr_complete");
		lap(i);
	}
}

/* Polls `n` completions, `entries` at a time, from all CQs in turn. */
static void poll_all(unsigned int n, int entries)
{
	static struct ibv_wc wc[LIST];
	time_t deadline = time(NULL) + 20;

	for (unsigned int calls = 0; n; calls++) {
		int got = ibv_poll_cq(cq[calls % CQS], entries, wc);

		need(got >= 0, "poll_cq");
		for (int i = 0; i < got; i++)
			need(wc[i].status == IBV_WC_SUCCESS, "status %d", wc[i].status);
		n -= (unsigned int)got;
		need(got || calls % 4096 || time(NULL) < deadline, "completions are missing");
		lap(calls);
	}
}

static void poll_empty(void)
{
	static struct ibv_wc wc[LIST];

	for (unsigned int i = 0; i < QPS; i++) {
		need(!ibv_poll_cq(cq[i % CQS], LIST, wc), "not empty");
		lap(i);
	}
}

static void poll_all_ex(unsigned int n)
{
	struct ibv_poll_cq_attr attr = { 0 };
	time_t deadline = time(NULL) + 20;

	for (unsigned int calls = 0; n; calls++) {
		struct ibv_cq_ex *on = cq_ex[calls % CQS];

		if (!ibv_start_poll(on, &attr)) {
			need(on->status == IBV_WC_SUCCESS, "status %d", on->status);
			ibv_end_poll(on);
			n--;
		}
		need(calls % 4096 || time(NULL) < deadline, "completions are missing");
		lap(calls);
	}
}

/* So that the completions are there before the first is polled. */
static void wait_for_nic(void)
{
	usleep(30000);
}

enum how { POST, RECV, POLL, POLL_EMPTY, BUILD, POLL_EX, MIX };

static const struct path {
	const char *name;
	enum how how;
	unsigned int requests;
	int sges;
	unsigned int flags;
} paths[] = {
	{ "post_send 1", POST, 1, 1, IBV_SEND_SIGNALED },
	{ "post_send 1, 4 SGE", POST, 1, 4, IBV_SEND_SIGNALED },
	{ "post_send 1, inline", POST, 1, 1, IBV_SEND_SIGNALED | IBV_SEND_INLINE },
	{ "post_send list of 2", POST, 2, 1, IBV_SEND_SIGNALED },
	{ "post_send list of 32", POST, LIST, 1, IBV_SEND_SIGNALED },
	{ "post_recv 1", RECV, 1, 1, 0 },
	{ "post_recv list of 32", RECV, LIST, 1, 0 },
	{ "poll_cq 1", POLL, 1, 1, IBV_SEND_SIGNALED },
	{ "poll_cq 32", POLL, LIST, 1, IBV_SEND_SIGNALED },
	{ "poll_cq empty", POLL_EMPTY, 0, 0, 0 },
	{ "ibv_wr_* 1", BUILD, 1, 1, IBV_SEND_SIGNALED },
	{ "extended poll 1", POLL_EX, 1, 1, IBV_SEND_SIGNALED },
	{ "mixed", MIX, 0, 0, 0 },
	{ "post_send 1, unsignaled", POST, 1, 1, 0 },
	{ "post_send 1 after unsignaled", POST, 1, 1, IBV_SEND_SIGNALED },
	{ "post_send 1, inline, after unsignaled", POST, 1, 1,
	  IBV_SEND_SIGNALED | IBV_SEND_INLINE },
	{ "poll_cq 1 after unsignaled", POLL, 1, 1, IBV_SEND_SIGNALED },
	{ "poll_cq 32 after unsignaled", POLL, LIST, 1, IBV_SEND_SIGNALED },
	{ "ibv_wr_* 1 after unsignaled", BUILD, 1, 1, IBV_SEND_SIGNALED },
	{ "extended poll 1 after unsignaled", POLL_EX, 1, 1, IBV_SEND_SIGNALED },
};

/* An unsignaled request on each queue, retired by a signaled one. */
static void mix(void)
{
	fill(1, 1, IBV_WR_RDMA_WRITE, 0);
	post_to(QPS);
	fill(1, 1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED);
	post_to(QPS);
	poll_all(QPS, LIST);
	write_by_builder(0);
	write_by_builder(IBV_SEND_SIGNALED);
	poll_all_ex(QPS);
}

/* Sends to itself take the receives that were posted. */
static void consume(const struct path *p, unsigned int qps)
{
	fill(p->requests, 1, IBV_WR_SEND, IBV_SEND_SIGNALED);
	post_to(qps);
	poll_all(2 * qps * p->requests, LIST);
}

/* Picoseconds of one call. */
static uint64_t run_once(const struct path *p)
{
	unsigned int qps = p->requests < LIST ? QPS : LISTED;
	uint64_t ps;

	if (p->requests)
		fill(p->requests, p->sges, IBV_WR_RDMA_WRITE, p->flags);
	if (p->how == POLL) {
		post_to(qps);
		wait_for_nic();
	} else if (p->how == POLL_EX) {
		write_by_builder(p->flags);
		wait_for_nic();
	}
	laps_begin();
	if (p->how == POST)
		post_to(qps);
	else if (p->how == RECV)
		post_recv_to(qps);
	else if (p->how == POLL)
		poll_all(qps * p->requests, (int)p->requests);
	else if (p->how == BUILD)
		write_by_builder(p->flags);
	else if (p->how == POLL_EX)
		poll_all_ex(qps);
	else
		poll_empty();
	ps = median_lap();
	if (p->how == RECV)
		consume(p, qps);
	else if (p->how == BUILD)
		poll_all_ex(qps);
	else if (p->how == POST && p->flags)
		poll_all(qps * p->requests, LIST);
	else if (p->how == POST) {
		fill(1, 1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED);
		post_to(qps);
		poll_all(qps, LIST);
	}
	return ps;
}

int main(void)
{
	char line[64];
	unsigned int n;

	setvbuf(stdout, NULL, _IOLBF, 0);
	begin();
	while (fgets(line, sizeof(line), stdin)) {
		if (sscanf(line, "run %u", &n) != 1)
			return 2;
		if (n >= sizeof(paths) / sizeof(paths[0])) {
			printf("run 0 end\n");
		} else if (paths[n].how == MIX) {
			mix();
			printf("run 0 mixed\n");
		} else {
			run_once(&paths[n]); /* what the other process put out of the caches */
			printf("run %llu %s\n", (unsigned long long)run_once(&paths[n]),
			       paths[n].name);
		}
	}
	return 0;
}
