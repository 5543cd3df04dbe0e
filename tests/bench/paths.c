/* SPDX-License-Identifier: MIT */
/*
 * The paths that the bench measures, in one process, bare or guarded as it was started: posting and
 * polling over many QPs in shuffled order. Prints one line a path, "path instructions guard forbidden
 * nanoseconds", each the median over the repetitions, forbidden the sum.
 *
 *   paths [QPS [REPETITIONS]]
 *
 * Uses plain verbs on the first device; each RC QP is connected to itself.
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "step.h"

#define CQS   16
#define DEPTH 128
#define LIST  32

struct bench {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_cq *cq[CQS];
	struct ibv_cq_ex *ex;
	struct ibv_qp **qp;
	struct ibv_qp_ex *wr;
	unsigned int qps, repetitions;
	char *buf;
};

static _Noreturn void die(const char *what)
{
	fprintf(stderr, "paths: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void to_rts(const struct bench *b, struct ibv_qp *qp)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT,
				 .port_num = 1,
				 .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };
	struct ibv_port_attr port;
	union ibv_gid gid;

	if (ibv_query_port(b->context, 1, &port) || ibv_query_gid(b->context, 1, 0, &gid))
		die("port");
	if (ibv_modify_qp(qp, &a,
			  IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		die("INIT");
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR,
				  .path_mtu = IBV_MTU_1024,
				  .dest_qp_num = qp->qp_num,
				  .max_dest_rd_atomic = 1,
				  .min_rnr_timer = 12,
				  .ah_attr = { .is_global = 1,
					       .port_num = 1,
					       .dlid = port.lid,
					       .grh = { .dgid = gid, .hop_limit = 1 } } };
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

static void open_all(struct bench *b)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_cq_init_attr_ex ex = { .cqe = 4096, .wc_flags = IBV_WC_EX_WITH_QP_NUM };

	if (!list || !list[0] || !(b->context = ibv_open_device(list[0])))
		die("device");
	b->pd = ibv_alloc_pd(b->context);
	b->buf = aligned_alloc(4096, 1 << 20);
	b->mr = ibv_reg_mr(b->pd, b->buf, 1 << 20,
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	for (unsigned int i = 0; i < CQS; i++)
		if (!(b->cq[i] = ibv_create_cq(b->context, 8192, NULL, NULL, 0)))
			die("CQ");
	if (!(b->ex = ibv_create_cq_ex(b->context, &ex)))
		die("extended CQ");
	b->qp = calloc(b->qps, sizeof(*b->qp));
	for (unsigned int i = 0; i < b->qps; i++) {
		struct ibv_qp_init_attr a = { .send_cq = b->cq[i % CQS],
					      .recv_cq = b->cq[i % CQS],
					      .qp_type = IBV_QPT_RC,
					      .cap = { DEPTH, DEPTH, 4, 4, 64 } };

		if (!(b->qp[i] = ibv_create_qp(b->pd, &a)))
			die("QP");
		to_rts(b, b->qp[i]);
	}
}

static void open_wr(struct bench *b)
{
	struct ibv_qp_init_attr_ex a = {
		.send_cq = ibv_cq_ex_to_cq(b->ex),
		.recv_cq = ibv_cq_ex_to_cq(b->ex),
		.qp_type = IBV_QPT_RC,
		.cap = { DEPTH, DEPTH, 4, 4, 64 },
		.pd = b->pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_SEND,
	};
	struct ibv_qp *qp = ibv_create_qp_ex(b->context, &a);

	if (!qp)
		die("QP with ibv_wr_*");
	to_rts(b, qp);
	b->wr = ibv_qp_to_qp_ex(qp);
}

/* One call to be measured. */
struct call {
	struct bench *b;
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	struct ibv_send_wr send[LIST];
	struct ibv_recv_wr recv[LIST];
	struct ibv_sge sge[4];
	struct ibv_wc wc[LIST];
	int entries, got;
};

static void write_list(struct call *c, unsigned int requests, unsigned int sges, unsigned int flags)
{
	const struct bench *b = c->b;

	memset(c->send, 0, sizeof(c->send));
	for (unsigned int i = 0; i < 4; i++)
		c->sge[i] = (struct ibv_sge){ (uintptr_t)b->buf, 8, b->mr->lkey };
	for (unsigned int i = 0; i < requests; i++) {
		c->send[i].opcode = IBV_WR_RDMA_WRITE;
		c->send[i].sg_list = c->sge;
		c->send[i].num_sge = (int)sges;
		c->send[i].send_flags = flags;
		c->send[i].wr.rdma.remote_addr = (uintptr_t)b->buf + 4096;
		c->send[i].wr.rdma.rkey = b->mr->rkey;
		c->send[i].next = i + 1 < requests ? &c->send[i + 1] : NULL;
	}
}

static void recv_list(struct call *c, unsigned int requests)
{
	memset(c->recv, 0, sizeof(c->recv));
	c->sge[0] = (struct ibv_sge){ (uintptr_t)c->b->buf, 8, c->b->mr->lkey };
	for (unsigned int i = 0; i < requests; i++) {
		c->recv[i].sg_list = c->sge;
		c->recv[i].num_sge = 1;
		c->recv[i].next = i + 1 < requests ? &c->recv[i + 1] : NULL;
	}
}

static void do_post_send(void *arg)
{
	struct call *c = arg;
	struct ibv_send_wr *bad;

	c->got = ibv_post_send(c->qp, c->send, &bad);
}

static void do_post_recv(void *arg)
{
	struct call *c = arg;
	struct ibv_recv_wr *bad;

	c->got = ibv_post_recv(c->qp, c->recv, &bad);
}

static void do_poll(void *arg)
{
	struct call *c = arg;

	c->got = ibv_poll_cq(c->cq, c->entries, c->wc);
}

static void do_wr(void *arg)
{
	struct call *c = arg;
	struct ibv_qp_ex *qp = c->b->wr;

	ibv_wr_start(qp);
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write(qp, c->b->mr->rkey, (uintptr_t)c->b->buf + 4096);
	ibv_wr_set_sge(qp, c->b->mr->lkey, (uintptr_t)c->b->buf, 8);
	c->got = ibv_wr_complete(qp);
}

static void do_poll_ex(void *arg)
{
	struct call *c = arg;
	struct ibv_poll_cq_attr attr = { 0 };

	c->got = ibv_start_poll(c->b->ex, &attr);
	if (!c->got)
		ibv_end_poll(c->b->ex);
}

/* --- what goes before and after a measured call --- */

static void drain(struct bench *b, struct ibv_cq *cq, int expected)
{
	struct ibv_wc wc[LIST];
	time_t deadline = time(NULL) + 20;

	(void)b;
	while (expected > 0 && time(NULL) < deadline) {
		int n = ibv_poll_cq(cq, LIST, wc);

		for (int i = 0; i < n; i++)
			if (wc[i].status != IBV_WC_SUCCESS)
				die(ibv_wc_status_str(wc[i].status));
		expected -= n > 0 ? n : 0;
	}
	if (expected > 0)
		die("completions are missing");
}

static void wait_for_nic(void)
{
	usleep(3000);
}

struct path {
	const char *name;
	void (*before)(struct call *);
	void (*call)(void *);
	void (*after)(struct call *);
	bool ok_is_number; /* c->got must be c->entries, else 0 */
};

static void before_one(struct call *c)
{
	write_list(c, 1, 1, IBV_SEND_SIGNALED);
}

static void before_four_sges(struct call *c)
{
	write_list(c, 1, 4, IBV_SEND_SIGNALED);
}

static void before_inline(struct call *c)
{
	write_list(c, 1, 1, IBV_SEND_SIGNALED | IBV_SEND_INLINE);
}

static void before_inline4(struct call *c)
{
	write_list(c, 1, 4, IBV_SEND_SIGNALED | IBV_SEND_INLINE);
}

static void before_unsignaled(struct call *c)
{
	write_list(c, 1, 1, 0);
}

static void before_list2(struct call *c)
{
	write_list(c, 2, 1, IBV_SEND_SIGNALED);
}

static void before_list32(struct call *c)
{
	write_list(c, LIST, 1, IBV_SEND_SIGNALED);
}

static void before_mixed32(struct call *c)
{
	write_list(c, LIST, 1, 0);
	for (unsigned int i = 0; i < LIST; i += 2)
		c->send[i + 1].send_flags = IBV_SEND_SIGNALED;
}

static void after_one(struct call *c)
{
	drain(c->b, c->qp->send_cq, 1);
}

static void after_list2(struct call *c)
{
	drain(c->b, c->qp->send_cq, 2);
}

static void after_list32(struct call *c)
{
	drain(c->b, c->qp->send_cq, LIST);
}

static void after_mixed32(struct call *c)
{
	drain(c->b, c->qp->send_cq, LIST / 2);
}

/* A signaled one retires it. */
static void after_unsignaled(struct call *c)
{
	write_list(c, 1, 1, IBV_SEND_SIGNALED);
	do_post_send(c);
	drain(c->b, c->qp->send_cq, 1);
}

static void before_recv(struct call *c)
{
	recv_list(c, 1);
}

static void before_recv32(struct call *c)
{
	recv_list(c, LIST);
}

/* Emptied by sends to itself. */
static void consume(struct call *c, unsigned int requests)
{
	write_list(c, requests, 1, IBV_SEND_SIGNALED);
	for (unsigned int i = 0; i < requests; i++)
		c->send[i].opcode = IBV_WR_SEND;
	do_post_send(c);
	if (c->got)
		die("post_send");
	drain(c->b, c->qp->send_cq, (int)(2 * requests));
}

static void after_recv(struct call *c)
{
	consume(c, 1);
}

static void after_recv32(struct call *c)
{
	consume(c, LIST);
}

static void before_poll(struct call *c, unsigned int requests)
{
	write_list(c, requests, 1, IBV_SEND_SIGNALED);
	do_post_send(c);
	if (c->got)
		die("post_send");
	c->cq = c->qp->send_cq;
	c->entries = (int)requests;
	wait_for_nic();
}

static void before_poll1(struct call *c)
{
	before_poll(c, 1);
}

static void before_poll32(struct call *c)
{
	before_poll(c, LIST);
}

static void before_poll_empty(struct call *c)
{
	c->cq = c->qp->send_cq;
	c->entries = 0;
}

static void do_poll_empty(void *arg)
{
	struct call *c = arg;

	c->got = ibv_poll_cq(c->cq, LIST, c->wc);
}

static void none(struct call *c)
{
	(void)c;
}

static void after_wr(struct call *c)
{
	struct call poll = { .b = c->b, .got = ENOENT };

	while (poll.got == ENOENT)
		do_poll_ex(&poll);
	if (poll.got)
		die("start_poll");
}

static void before_poll_ex(struct call *c)
{
	do_wr(c);
	if (c->got)
		die("wr_complete");
	wait_for_nic();
}

/* An unsignaled request on each queue. */
static void mix_all(void *arg)
{
	struct call *c = arg;

	for (unsigned int i = 0; i < c->b->qps; i++) {
		c->qp = c->b->qp[i];
		before_unsignaled(c);
		do_post_send(c);
		after_unsignaled(c);
	}
	for (unsigned int i = 0; i < 2; i++) {
		ibv_wr_start(c->b->wr);
		c->b->wr->wr_flags = i ? IBV_SEND_SIGNALED : 0;
		ibv_wr_rdma_write(c->b->wr, c->b->mr->rkey, (uintptr_t)c->b->buf + 4096);
		ibv_wr_set_sge(c->b->wr, c->b->mr->lkey, (uintptr_t)c->b->buf, 8);
		if (ibv_wr_complete(c->b->wr))
			die("wr_complete");
	}
	after_wr(c);
}

static const struct path paths[] = {
	{ "post_send 1", before_one, do_post_send, after_one, false },
	{ "post_send 1, 4 SGE", before_four_sges, do_post_send, after_one, false },
	{ "post_send 1, inline", before_inline, do_post_send, after_one, false },
	{ "post_send 1, inline 4 SGE", before_inline4, do_post_send, after_one, false },
	{ "post_send list of 2", before_list2, do_post_send, after_list2, false },
	{ "post_send list of 32", before_list32, do_post_send, after_list32, false },
	{ "post_recv 1", before_recv, do_post_recv, after_recv, false },
	{ "post_recv list of 32", before_recv32, do_post_recv, after_recv32, false },
	{ "poll_cq 1", before_poll1, do_poll, none, true },
	{ "poll_cq 32", before_poll32, do_poll, none, true },
	{ "poll_cq empty", before_poll_empty, do_poll_empty, none, true },
	{ "ibv_wr_* 1", none, do_wr, after_wr, false },
	{ "extended poll 1", before_poll_ex, do_poll_ex, none, false },
	/* from here on the queues are mixed */
	{ NULL, NULL, mix_all, NULL, false },
	{ "post_send 1, unsignaled", before_unsignaled, do_post_send, after_unsignaled, false },
	{ "post_send mixed 32", before_mixed32, do_post_send, after_mixed32, false },
	{ "post_send 1 after unsignaled", before_one, do_post_send, after_one, false },
	{ "poll_cq 1 after unsignaled", before_poll1, do_poll, none, true },
	{ "post_send 1, inline, after unsignaled", before_inline, do_post_send, after_one, false },
	{ "poll_cq 32 after unsignaled", before_poll32, do_poll, none, true },
	{ "ibv_wr_* 1 after unsignaled", none, do_wr, after_wr, false },
	{ "extended poll 1 after unsignaled", before_poll_ex, do_poll_ex, none, false },
};

static int by_value(const void *a, const void *b)
{
	unsigned long x = *(const unsigned long *)a, y = *(const unsigned long *)b;

	return (x > y) - (x < y);
}

static unsigned long median(unsigned long *values, unsigned int n)
{
	qsort(values, n, sizeof(*values), by_value);
	return values[n / 2];
}

static unsigned long time_call(const struct path *p, struct call *c)
{
	struct timespec a, b;

	clock_gettime(CLOCK_MONOTONIC, &a);
	p->call(c);
	clock_gettime(CLOCK_MONOTONIC, &b);
	return (unsigned long)((b.tv_sec - a.tv_sec) * 1000000000 + b.tv_nsec - a.tv_nsec);
}

/* The NIC may be late: then there is nothing yet to measure, and the call is made again. */
static bool came_early(const struct path *p, const struct call *c)
{
	return (p->call == do_poll && c->got < c->entries) ||
	       (p->call == do_poll_ex && c->got == ENOENT);
}

static void check_call(const struct path *p, const struct call *c)
{
	if (c->got != (p->ok_is_number ? c->entries : 0)) {
		fprintf(stderr, "paths: %s returned %d\n", p->name, c->got);
		exit(1);
	}
}

static void finish_early(const struct path *p, struct call *c)
{
	if (p->call == do_poll)
		drain(c->b, c->cq, c->entries - c->got);
	else
		after_wr(c);
}

static void measure(struct bench *b, const struct path *p, uint32_t *seed)
{
	static struct call c;
	unsigned long *all = calloc(b->repetitions, sizeof(*all));
	unsigned long *guard = calloc(b->repetitions, sizeof(*guard));
	unsigned long *ns = calloc(b->repetitions, sizeof(*ns)), forbidden = 0;

	c.b = b;
	if (!p->name) {
		p->call(&c);
		return;
	}
	for (unsigned int i = 0; i < 2 * b->repetitions; i++) {
		struct steps s;

		*seed = *seed * 1664525 + 1013904223;
		c.qp = b->qp[(*seed >> 8) % b->qps];
		p->before(&c);
		if (i & 1) {
			ns[i / 2] = time_call(p, &c);
		} else {
			s = step_call(p->call, &c);
			all[i / 2] = s.all;
			guard[i / 2] = s.guard;
			forbidden += i >= 2 * b->repetitions / 4 ? s.forbidden : 0;
		}
		if (came_early(p, &c)) {
			finish_early(p, &c);
			i--;
			continue;
		}
		check_call(p, &c);
		p->after(&c);
	}
	printf("%s\t%lu\t%lu\t%lu\t%lu\n", p->name, median(all, b->repetitions),
	       median(guard, b->repetitions), forbidden, median(ns, b->repetitions));
	free(all);
	free(guard);
	free(ns);
}

/* Everything once on each QP, so that owners are found and peaks reached before it counts. */
static void warm_up(struct bench *b)
{
	static struct call c;

	c.b = b;
	for (unsigned int i = 0; i < b->qps; i++) {
		c.qp = b->qp[i];
		recv_list(&c, LIST);
		do_post_recv(&c);
		consume(&c, LIST);
		write_list(&c, 1, 4, IBV_SEND_SIGNALED | IBV_SEND_INLINE);
		do_post_send(&c);
		drain(b, c.qp->send_cq, 1);
	}
}

int main(int argc, char **argv)
{
	struct bench b = { .qps = argc > 1 ? (unsigned int)atoi(argv[1]) : 1000,
			   .repetitions = argc > 2 ? (unsigned int)atoi(argv[2]) : 41 };
	uint32_t seed = 20240229;

	step_setup();
	if (!step_works())
		die("single stepping does not count right here");
	open_all(&b);
	open_wr(&b);
	warm_up(&b);
	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
		measure(&b, &paths[i], &seed);
	return 0;
}
