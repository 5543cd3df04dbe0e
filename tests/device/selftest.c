/* SPDX-License-Identifier: MIT */
/*
 * Does the played device behave like an adapter? Plain verbs in one process,
 * one function for each behaviour, a TAP line for each. Run by selftest.sh,
 * which also runs it under other settings of libmlx5:
 *	selftest		everything that needs no limits
 *	selftest limits		what selftest.sh set in MLX5DEV_*: see limits()
 *	selftest many N		N QPs made, connected and destroyed
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_mr *mr;
static char memory[1 << 16] __attribute__((aligned(4096)));
static unsigned tests, failures;

static void ok(int good, const char *format, ...)
{
	va_list ap;

	printf("%sok %u - ", good ? "" : "not ", ++tests);
	va_start(ap, format);
	vprintf(format, ap);
	va_end(ap);
	printf("\n");
	fflush(stdout);
	failures += !good;
}

static void need(const void *p, const char *what)
{
	if (p)
		return;
	printf("Bail out! %s: %s\n", what, strerror(errno));
	exit(1);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* ---- a connected pair on CQs of its own ---- */

struct end {
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
};

struct options {
	enum ibv_qp_type type;
	int depth, sge, inline_data, sig_all, no_remote, timeout, retry, rnr_retry, no_connect;
	struct ibv_comp_channel *channel;
	struct ibv_srq *srq;
};

static void to_init(struct ibv_qp *qp, int access)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;

	if (qp->qp_type == IBV_QPT_UD) {
		a.qkey = 0x1234;
		mask |= IBV_QP_QKEY;
	} else {
		a.qp_access_flags = (unsigned)access;
		mask |= IBV_QP_ACCESS_FLAGS;
	}
	errno = ibv_modify_qp(qp, &a, mask);
	need(errno ? NULL : qp, "INIT");
}

static void connect_to(struct ibv_qp *qp, uint32_t peer, const struct options *o)
{
	struct ibv_qp_attr r = { .qp_state = IBV_QPS_RTR,
				 .path_mtu = IBV_MTU_1024,
				 .dest_qp_num = peer,
				 .rq_psn = 7,
				 .min_rnr_timer = 10,
				 .max_dest_rd_atomic = 1,
				 .ah_attr = { .dlid = 1, .port_num = 1 } };
	struct ibv_qp_attr s = { .qp_state = IBV_QPS_RTS,
				 .sq_psn = 7,
				 .max_rd_atomic = 1,
				 .timeout = (uint8_t)o->timeout,
				 .retry_cnt = (uint8_t)o->retry,
				 .rnr_retry = (uint8_t)o->rnr_retry };
	int rm = IBV_QP_STATE, sm = IBV_QP_STATE | IBV_QP_SQ_PSN;

	if (qp->qp_type != IBV_QPT_UD)
		rm |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	if (qp->qp_type == IBV_QPT_RC) {
		rm |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
		sm |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
		      IBV_QP_MAX_QP_RD_ATOMIC;
	}
	errno = ibv_modify_qp(qp, &r, rm);
	if (!errno)
		errno = ibv_modify_qp(qp, &s, sm);
	need(errno ? NULL : qp, "RTR, RTS");
}

static struct end make_end(const struct options *o)
{
	struct ibv_qp_init_attr a = { .qp_type = o->type, .sq_sig_all = o->sig_all, .srq = o->srq };
	struct end e = { .srq = o->srq };

	e.cq = ibv_create_cq(ctx, 4 * o->depth, NULL, o->channel, 0);
	need(e.cq, "CQ");
	a.send_cq = a.recv_cq = e.cq;
	a.cap = (struct ibv_qp_cap){ (uint32_t)o->depth, o->srq ? 0 : (uint32_t)o->depth,
				     (uint32_t)o->sge, o->srq ? 0 : (uint32_t)o->sge,
				     (uint32_t)o->inline_data };
	e.qp = ibv_create_qp(pd, &a);
	need(e.qp, "QP");
	to_init(e.qp, o->no_remote ? 0
				   : IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
					     IBV_ACCESS_REMOTE_ATOMIC);
	return e;
}

static void make_pair(struct end e[2], struct options o)
{
	o.depth = o.depth ? o.depth : 16;
	o.sge = o.sge ? o.sge : 2;
	e[0] = make_end(&o);
	e[1] = make_end(&o);
	if (o.no_connect)
		return;
	connect_to(e[0].qp, e[1].qp->qp_num, &o);
	connect_to(e[1].qp, e[0].qp->qp_num, &o);
}

static int drop_end(struct end *e)
{
	int bad = 0;

	if (e->qp)
		bad |= ibv_destroy_qp(e->qp);
	if (e->cq)
		bad |= ibv_destroy_cq(e->cq);
	e->qp = NULL;
	e->cq = NULL;
	return bad;
}

static int drop_pair(struct end e[2])
{
	return drop_end(&e[0]) | drop_end(&e[1]);
}

static const struct options RC = { .type = IBV_QPT_RC, .rnr_retry = 7, .retry = 7, .timeout = 8 };

/* ---- posting and polling ---- */

static struct ibv_send_wr send_wr(uint64_t id, enum ibv_wr_opcode op, int flags,
				  struct ibv_sge *sge)
{
	return (struct ibv_send_wr){ .wr_id = id,
				     .opcode = op,
				     .send_flags = (unsigned)flags,
				     .sg_list = sge,
				     .num_sge = 1 };
}

static struct ibv_sge at(size_t offset, uint32_t len)
{
	return (struct ibv_sge){ (uintptr_t)memory + offset, len, mr->lkey };
}

static int post_send(struct end *e, struct ibv_send_wr wr)
{
	struct ibv_send_wr *bad;

	return ibv_post_send(e->qp, &wr, &bad);
}

static int post_recv(struct end *e, uint64_t id, size_t offset, uint32_t len)
{
	struct ibv_sge s = at(offset, len);
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &s, .num_sge = 1 }, *bad;

	return e->srq ? ibv_post_srq_recv(e->srq, &wr, &bad) : ibv_post_recv(e->qp, &wr, &bad);
}

/* The next completion, or a status of -1 after two seconds. */
static struct ibv_wc next_wc(struct end *e)
{
	struct ibv_wc wc = { .status = (enum ibv_wc_status) - 1 };
	double until = now() + 2;

	while (ibv_poll_cq(e->cq, 1, &wc) == 0 && now() < until)
		usleep(20);
	return wc;
}

static int silent(struct end *e)
{
	struct ibv_wc wc;

	usleep(20000);
	return ibv_poll_cq(e->cq, 1, &wc) == 0;
}

static int is(struct ibv_wc wc, uint64_t id, enum ibv_wc_status status)
{
	return wc.wr_id == id && wc.status == status;
}

/* ---- behaviours ---- */

static void geometry(void)
{
	static const struct {
		enum ibv_qp_type type;
		struct ibv_qp_cap ask, get;
	} rows[] = {
		{ IBV_QPT_RC, { 128, 128, 1, 1, 0 }, { 128, 128, 1, 1, 60 } },
		{ IBV_QPT_RC, { 1, 1, 1, 1, 0 }, { 1, 4, 1, 1, 60 } },
		{ IBV_QPT_RC, { 128, 128, 5, 5, 0 }, { 204, 128, 5, 8, 124 } },
		{ IBV_QPT_RC, { 8192, 1, 1, 1, 0 }, { 8192, 4, 1, 1, 60 } },
		{ IBV_QPT_UC, { 128, 128, 1, 1, 0 }, { 128, 128, 1, 1, 60 } },
		{ IBV_QPT_UD, { 128, 128, 1, 1, 64 }, { 170, 128, 1, 1, 124 } },
		{ IBV_QPT_RAW_PACKET, { 128, 128, 1, 1, 0 }, { 128, 128, 1, 1, 12 } },
	};
	struct ibv_cq *cq = ibv_create_cq(ctx, 16, NULL, NULL, 0);
	struct ibv_qp_init_attr a = { .send_cq = cq, .recv_cq = cq };
	struct ibv_qp *qp;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		a.qp_type = rows[i].type;
		a.cap = rows[i].ask;
		qp = ibv_create_qp(pd, &a);
		ok(qp && !memcmp(&a.cap, &rows[i].get, sizeof(a.cap)),
		   "QP type %d: %u x %u sends are given as %u", rows[i].type,
		   rows[i].ask.max_send_wr, rows[i].ask.max_send_sge, rows[i].get.max_send_wr);
		if (qp)
			ibv_destroy_qp(qp);
	}
	a.qp_type = IBV_QPT_RC;
	a.cap = (struct ibv_qp_cap){ 8193, 1, 1, 1, 0 };
	errno = 0;
	ok(!ibv_create_qp(pd, &a) && errno == EINVAL, "RC with 8193 sends is EINVAL");
	ok(ibv_destroy_cq(cq) == 0, "the CQ is free again");
}

static void xrc(void)
{
	struct ibv_cq *cq = ibv_create_cq(ctx, 16, NULL, NULL, 0);
	struct ibv_qp_init_attr_ex a = { .qp_type = IBV_QPT_XRC_SEND,
					 .send_cq = cq,
					 .pd = pd,
					 .comp_mask = IBV_QP_INIT_ATTR_PD,
					 .cap = { .max_send_wr = 128, .max_send_sge = 1 } };
	struct ibv_xrcd_init_attr d = { .comp_mask =
						IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
					.fd = -1 };
	struct ibv_srq_init_attr_ex s = { .comp_mask = IBV_SRQ_INIT_ATTR_TYPE |
						       IBV_SRQ_INIT_ATTR_XRCD |
						       IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_PD,
					  .srq_type = IBV_SRQT_XRC,
					  .pd = pd,
					  .cq = cq,
					  .attr = { .max_wr = 10, .max_sge = 1 } };
	struct ibv_qp *qp = ibv_create_qp_ex(ctx, &a);
	struct ibv_srq *srq = NULL;

	ok(qp && a.cap.max_send_wr == 128, "an XRC_SEND QP is made");
	if (qp)
		ibv_destroy_qp(qp);
	s.xrcd = ibv_open_xrcd(ctx, &d);
	if (s.xrcd)
		srq = ibv_create_srq_ex(ctx, &s);
	ok(srq && !ibv_destroy_srq(srq) && !ibv_close_xrcd(s.xrcd), "an XRC SRQ is made and gone");
	ok(ibv_destroy_cq(cq) == 0, "and nothing holds its CQ");
}

static void sends(void)
{
	struct ibv_sge s = at(0, 100);
	struct ibv_send_wr wr = send_wr(1, IBV_WR_SEND_WITH_IMM, IBV_SEND_SIGNALED, &s);
	struct end e[2];
	struct ibv_wc wc;

	make_pair(e, RC);
	memset(memory, 'a', 100);
	memset(memory + 4096, 0, 200);
	wr.imm_data = htobe32(0xabcd);
	post_recv(&e[1], 2, 4096, 200);
	post_send(&e[0], wr);
	wc = next_wc(&e[1]);
	ok(is(wc, 2, IBV_WC_SUCCESS) && wc.byte_len == 100 && wc.wc_flags & IBV_WC_WITH_IMM &&
		   wc.imm_data == htobe32(0xabcd) && wc.qp_num == e[1].qp->qp_num,
	   "a send with immediate data is received");
	ok(memory[4096] == 'a' && memory[4195] == 'a' && !memory[4196],
	   "with its bytes and no more");
	wc = next_wc(&e[0]);
	ok(is(wc, 1, IBV_WC_SUCCESS) && wc.opcode == IBV_WC_SEND, "and completes at the sender");
	ok(drop_pair(e) == 0, "the pair is destroyed");
}

static void one_sided(void)
{
	uint64_t *word = (uint64_t *)(void *)(memory + 8192), *old = word + 8;
	struct ibv_sge s = at(0, 64);
	struct ibv_send_wr wr = send_wr(1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &s);
	struct end e[2];
	struct ibv_wc wc;

	make_pair(e, RC);
	memset(memory, 'w', 64);
	wr.wr.rdma.remote_addr = (uintptr_t)memory + 4096;
	wr.wr.rdma.rkey = mr->rkey;
	post_send(&e[0], wr);
	ok(is(next_wc(&e[0]), 1, IBV_WC_SUCCESS) && memory[4159] == 'w', "RDMA WRITE");

	memset(memory + 4096, 'r', 64);
	wr.opcode = IBV_WR_RDMA_READ;
	post_send(&e[0], wr);
	wc = next_wc(&e[0]);
	ok(is(wc, 1, IBV_WC_SUCCESS) && wc.byte_len == 64 && memory[63] == 'r', "RDMA READ");

	wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
	post_recv(&e[1], 5, 0, 0);
	post_send(&e[0], wr);
	wc = next_wc(&e[1]);
	ok(is(wc, 5, IBV_WC_SUCCESS) && wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && wc.byte_len == 64,
	   "RDMA WRITE with immediate data consumes a receive");
	next_wc(&e[0]);

	*word = 40;
	s = at((size_t)((char *)old - memory), 8);
	wr = send_wr(6, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_SEND_SIGNALED, &s);
	wr.wr.atomic.remote_addr = (uintptr_t)word;
	wr.wr.atomic.rkey = mr->rkey;
	wr.wr.atomic.compare_add = 2;
	post_send(&e[0], wr);
	ok(is(next_wc(&e[0]), 6, IBV_WC_SUCCESS) && *word == 42 && *old == 40, "fetch and add");
	wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
	wr.wr.atomic.compare_add = 42;
	wr.wr.atomic.swap = 7;
	post_send(&e[0], wr);
	ok(is(next_wc(&e[0]), 6, IBV_WC_SUCCESS) && *word == 7 && *old == 42, "compare and swap");
	drop_pair(e);
}

/* Ring after ring, so that WQEs and inline data cross the end, and indices 16 bits. */
static void many_posts(void)
{
	struct options o = RC;
	struct end e[2];
	unsigned wrong = 0, posts = 0;
	char text[124];

	o.depth = 10;
	o.sge = 5;
	o.inline_data = 100;
	make_pair(e, o);
	for (unsigned i = 0; i < 20000; i++) {
		struct ibv_sge s = { (uintptr_t)text, 100, 0 };
		struct ibv_send_wr wr = send_wr(i, IBV_WR_SEND, IBV_SEND_INLINE, &s);

		memset(text, 'A' + (int)(i % 26), sizeof(text));
		wr.send_flags |= i % 5 == 4 ? IBV_SEND_SIGNALED : 0;
		wrong += post_recv(&e[1], i, 4096, 100) != 0;
		posts += post_send(&e[0], wr) == 0;
		wrong += !is(next_wc(&e[1]), i, IBV_WC_SUCCESS);
		wrong += memory[4096] != text[0] || memory[4195] != text[0];
		if (i % 5 == 4)
			wrong += !is(next_wc(&e[0]), i, IBV_WC_SUCCESS);
	}
	ok(posts == 20000 && !wrong, "20,000 inline sends of 5 blocks, one in five signaled");
	ok(silent(&e[0]), "and no completion for an unsignaled one");
	drop_pair(e);
}

static void wrong_key(void)
{
	struct ibv_sge s = at(0, 8);
	struct ibv_send_wr wr = send_wr(1, IBV_WR_RDMA_WRITE, 0, &s);
	struct ibv_qp_init_attr ia;
	struct ibv_qp_attr a;
	struct end e[2];

	make_pair(e, RC);
	post_recv(&e[1], 50, 0, 8);
	wr.wr.rdma.remote_addr = (uintptr_t)memory;
	wr.wr.rdma.rkey = mr->rkey ^ 0xff;
	post_send(&e[0], wr);
	ok(is(next_wc(&e[0]), 1, IBV_WC_REM_ACCESS_ERR), "a wrong remote key is REM_ACCESS_ERR");
	post_send(&e[0], send_wr(2, IBV_WR_SEND, 0, &s));
	ok(is(next_wc(&e[0]), 2, IBV_WC_WR_FLUSH_ERR), "what is posted afterwards is flushed");
	ok(is(next_wc(&e[1]), 50, IBV_WC_WR_FLUSH_ERR), "and so are the peer's receives");
	ibv_query_qp(e[0].qp, &a, IBV_QP_STATE, &ia);
	ok(a.qp_state == IBV_QPS_ERR, "the QP says that it is in error");
	drop_pair(e);
}

static void local_errors(void)
{
	struct options o = RC;
	struct ibv_sge s = at(0, 8);
	struct ibv_send_wr wr = send_wr(1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &s);
	struct end e[2];

	make_pair(e, RC);
	s.lkey ^= 0xff;
	post_send(&e[0], wr);
	ok(is(next_wc(&e[0]), 1, IBV_WC_LOC_PROT_ERR), "a wrong local key is LOC_PROT_ERR");
	drop_pair(e);

	s = at(sizeof(memory) - 4, 8);
	make_pair(e, RC);
	post_send(&e[0], wr);
	ok(is(next_wc(&e[0]), 1, IBV_WC_LOC_PROT_ERR), "so is memory past the region");
	drop_pair(e);

	s = at(0, 8);
	o.no_remote = 1;
	make_pair(e, o);
	wr.wr.rdma.remote_addr = (uintptr_t)memory;
	wr.wr.rdma.rkey = mr->rkey;
	post_send(&e[0], wr);
	ok(is(next_wc(&e[0]), 1, IBV_WC_REM_INV_REQ_ERR),
	   "a QP that allows no writes refuses them");
	drop_pair(e);

	make_pair(e, RC);
	post_recv(&e[1], 9, 0, 4);
	post_send(&e[0], send_wr(1, IBV_WR_SEND, 0, &s));
	ok(is(next_wc(&e[1]), 9, IBV_WC_LOC_LEN_ERR), "a receive that is too short is LOC_LEN_ERR");
	ok(is(next_wc(&e[0]), 1, IBV_WC_REM_INV_REQ_ERR), "and REM_INV_REQ_ERR at the sender");
	drop_pair(e);
}

static void receiver_not_ready(void)
{
	struct options o = RC;
	struct ibv_sge s = at(0, 8);
	struct end e[2];

	o.rnr_retry = 1;
	make_pair(e, o);
	post_send(&e[0], send_wr(1, IBV_WR_SEND, IBV_SEND_SIGNALED, &s));
	ok(is(next_wc(&e[0]), 1, IBV_WC_RNR_RETRY_EXC_ERR), "no receive is RNR_RETRY_EXC_ERR");
	drop_pair(e);

	make_pair(e, RC);
	for (uint64_t i = 0; i < 5; i++)
		post_send(&e[0], send_wr(i, IBV_WR_SEND, IBV_SEND_SIGNALED, &s));
	ok(silent(&e[0]), "with rnr_retry 7 the sender waits");
	for (uint64_t i = 0; i < 5; i++)
		post_recv(&e[1], 10 + i, 4096, 8);
	for (uint64_t i = 0; i < 5; i++)
		if (!is(next_wc(&e[1]), 10 + i, IBV_WC_SUCCESS) ||
		    !is(next_wc(&e[0]), i, IBV_WC_SUCCESS))
			break;
		else if (i == 4)
			ok(1, "and goes on, in order, when receives come");
	drop_pair(e);

	o = RC;
	o.retry = 1;
	make_pair(e, o);
	ibv_destroy_qp(e[1].qp);
	e[1].qp = NULL;
	post_send(&e[0], send_wr(1, IBV_WR_SEND, IBV_SEND_SIGNALED, &s));
	ok(is(next_wc(&e[0]), 1, IBV_WC_RETRY_EXC_ERR), "a peer that is gone is RETRY_EXC_ERR");
	drop_pair(e);
}

static void flush_and_reset(void)
{
	struct ibv_qp_attr error = { .qp_state = IBV_QPS_ERR },
			   reset = { .qp_state = IBV_QPS_RESET };
	struct ibv_sge s = at(0, 8);
	struct end e[2];
	unsigned good = 0;

	make_pair(e, RC);
	/* The peer has no receive: these stay outstanding. */
	for (uint64_t i = 0; i < 6; i++)
		post_send(&e[0], send_wr(i, IBV_WR_SEND, i == 5 ? IBV_SEND_SIGNALED : 0, &s));
	for (uint64_t i = 0; i < 3; i++)
		post_recv(&e[0], 100 + i, 0, 8);
	ibv_modify_qp(e[0].qp, &error, IBV_QP_STATE);
	for (uint64_t i = 0; i < 6; i++)
		good += is(next_wc(&e[0]), i, IBV_WC_WR_FLUSH_ERR);
	ok(good == 6, "ERR flushes each send, signaled or not");
	for (uint64_t i = 0; i < 3; i++)
		good += is(next_wc(&e[0]), 100 + i, IBV_WC_WR_FLUSH_ERR);
	ok(good == 9, "and each receive");
	post_recv(&e[0], 200, 0, 8);
	ok(is(next_wc(&e[0]), 200, IBV_WC_WR_FLUSH_ERR), "also one that is posted later");

	post_recv(&e[1], 300, 0, 8);
	ibv_modify_qp(e[0].qp, &reset, IBV_QP_STATE);
	ibv_modify_qp(e[1].qp, &reset, IBV_QP_STATE);
	ok(silent(&e[1]), "RESET drops a receive without a completion");
	for (int i = 0; i < 2; i++) {
		to_init(e[i].qp, 0);
		connect_to(e[i].qp, e[!i].qp->qp_num, &RC);
	}
	post_recv(&e[1], 301, 4096, 8);
	post_send(&e[0], send_wr(7, IBV_WR_SEND, IBV_SEND_SIGNALED, &s));
	ok(is(next_wc(&e[1]), 301, IBV_WC_SUCCESS) && is(next_wc(&e[0]), 7, IBV_WC_SUCCESS),
	   "and the QPs can be connected again");
	ok(drop_pair(e) == 0, "and destroyed");
}

static void busy_objects(void)
{
	struct end e[2];

	make_pair(e, RC);
	ok(ibv_destroy_cq(e[0].cq) == EBUSY, "a CQ in use is EBUSY");
	ok(ibv_dealloc_pd(pd) == EBUSY, "so is a PD in use");
	drop_pair(e);
}

/* Reads one event if there is one within the time. */
static struct ibv_cq *next_event(struct ibv_comp_channel *ch, int ms)
{
	struct ibv_cq *cq = NULL;
	fd_set set;
	struct timeval t = { .tv_usec = ms * 1000 };
	void *c;

	FD_ZERO(&set);
	FD_SET(ch->fd, &set);
	if (select(ch->fd + 1, &set, NULL, NULL, &t) == 1 && !ibv_get_cq_event(ch, &cq, &c))
		return cq;
	return NULL;
}

static void events(void)
{
	struct options o = RC;
	struct ibv_sge s = at(0, 8);
	struct ibv_send_wr wr = send_wr(1, IBV_WR_SEND, IBV_SEND_SIGNALED, &s);
	struct end e[2];

	o.channel = ibv_create_comp_channel(ctx);
	need(o.channel, "channel");
	make_pair(e, o);
	for (int i = 0; i < 4; i++)
		post_recv(&e[1], 1, 4096, 8);
	post_send(&e[0], wr);
	next_wc(&e[0]);
	ok(!next_event(o.channel, 20), "no event without a request");
	ibv_req_notify_cq(e[1].cq, 0);
	ok(next_event(o.channel, 500) == e[1].cq, "a request for what has already come");
	ok(!next_event(o.channel, 20), "gives one event");
	ibv_ack_cq_events(e[1].cq, 1);
	next_wc(&e[1]);

	ibv_req_notify_cq(e[1].cq, 1);
	post_send(&e[0], wr);
	next_wc(&e[1]);
	ok(!next_event(o.channel, 20), "an unsolicited message is not announced on request");
	wr.send_flags |= IBV_SEND_SOLICITED;
	post_send(&e[0], wr);
	ok(next_event(o.channel, 500) == e[1].cq, "a solicited one is");
	ibv_ack_cq_events(e[1].cq, 1);

	ibv_req_notify_cq(e[1].cq, 0);
	ibv_req_notify_cq(e[0].cq, 0);
	post_send(&e[0], wr);
	usleep(50000);
	ok(drop_end(&e[1]) == 0, "a CQ with an unread event can be destroyed");
	ok(next_event(o.channel, 500) == e[0].cq, "and the events of others are kept");
	ibv_ack_cq_events(e[0].cq, 1);
	ok(drop_end(&e[0]) == 0 && !ibv_destroy_comp_channel(o.channel), "and all is gone");
}

static void shared_receives(void)
{
	struct ibv_srq_init_attr sa = { .attr = { .max_wr = 20, .max_sge = 1 } };
	struct options o = RC;
	struct ibv_sge s = at(0, 8);
	struct end e[2], f[2];
	unsigned good = 0;

	o.srq = ibv_create_srq(pd, &sa);
	ok(o.srq && sa.attr.max_wr == 31, "an SRQ of 20 holds 31");
	make_pair(e, o);
	make_pair(f, o);
	for (uint64_t i = 0; i < 500; i++) {
		struct end *from = i & 1 ? &e[0] : &f[0], *to = i & 1 ? &e[1] : &f[1];

		post_recv(&e[0], i, 4096, 8);
		post_send(from, send_wr(i, IBV_WR_SEND, IBV_SEND_SIGNALED, &s));
		good += is(next_wc(to), i, IBV_WC_SUCCESS) && is(next_wc(from), i, IBV_WC_SUCCESS);
	}
	ok(good == 500, "two QPs take 500 receives from it in order");
	ok(ibv_destroy_srq(o.srq) == EBUSY, "in use it is EBUSY");
	drop_pair(e);
	drop_pair(f);
	ok(ibv_destroy_srq(o.srq) == 0, "and then it is destroyed");
}

static void extended(void)
{
	struct ibv_cq_init_attr_ex ca = { .cqe = 16,
					  .wc_flags = IBV_WC_EX_WITH_QP_NUM |
						      IBV_WC_EX_WITH_BYTE_LEN |
						      IBV_WC_EX_WITH_COMPLETION_TIMESTAMP };
	struct ibv_poll_cq_attr none = { 0 };
	struct ibv_cq_ex *cq = ibv_create_cq_ex(ctx, &ca);
	struct ibv_qp_init_attr_ex qa = {
		.qp_type = IBV_QPT_RC,
		.pd = pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_SEND,
		.cap = { 128, 128, 1, 1, 0 }
	};
	struct ibv_qp_ex *qx;
	struct end e;
	double until;

	need(cq, "extended CQ");
	qa.send_cq = qa.recv_cq = ibv_cq_ex_to_cq(cq);
	e.qp = ibv_create_qp_ex(ctx, &qa);
	need(e.qp, "extended QP");
	ok(qa.cap.max_inline_data == 28, "a QP that only sends and writes has WQEs of 64 bytes");
	to_init(e.qp, IBV_ACCESS_REMOTE_WRITE);
	connect_to(e.qp, e.qp->qp_num, &RC);
	qx = ibv_qp_to_qp_ex(e.qp);
	ibv_wr_start(qx);
	for (uint64_t i = 0; i < 3; i++) {
		qx->wr_id = 70 + i;
		qx->wr_flags = i == 2 ? IBV_SEND_SIGNALED : 0;
		ibv_wr_rdma_write(qx, mr->rkey, (uintptr_t)memory + 4096);
		ibv_wr_set_sge(qx, mr->lkey, (uintptr_t)memory, 16);
	}
	ok(ibv_wr_complete(qx) == 0, "ibv_wr_* posts a batch to a QP connected to itself");
	for (until = now() + 2; ibv_start_poll(cq, &none) && now() < until;)
		usleep(100);
	ok(cq->wr_id == 72 && cq->status == IBV_WC_SUCCESS &&
		   ibv_wc_read_qp_num(cq) == e.qp->qp_num && ibv_wc_read_completion_ts(cq),
	   "and an extended CQ tells of it");
	ibv_end_poll(cq);
	ok(!ibv_destroy_qp(e.qp) && !ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), "both are destroyed");
}

static void datagrams(void)
{
	struct options o = { .type = IBV_QPT_UD };
	struct ibv_ah_attr aa = {
		.dlid = 1, .port_num = 1, .is_global = 1, .grh = { .hop_limit = 1 }
	};
	struct ibv_sge s = at(0, 32);
	struct ibv_send_wr wr = send_wr(1, IBV_WR_SEND, IBV_SEND_SIGNALED, &s);
	struct end e[2];
	struct ibv_wc wc;

	make_pair(e, o);
	memset(memory, 'u', 32);
	wr.wr.ud.ah = ibv_create_ah(pd, &aa);
	need(wr.wr.ud.ah, "AH");
	wr.wr.ud.remote_qpn = e[1].qp->qp_num;
	wr.wr.ud.remote_qkey = 0x1234;
	post_recv(&e[1], 2, 4096, 100);
	post_send(&e[0], wr);
	wc = next_wc(&e[1]);
	ok(is(wc, 2, IBV_WC_SUCCESS) && wc.byte_len == 72 && wc.src_qp == e[0].qp->qp_num &&
		   wc.wc_flags & IBV_WC_GRH && memory[4096 + 40] == 'u',
	   "a datagram comes after 40 bytes of GRH, with the sender's number");
	ok(is(next_wc(&e[0]), 1, IBV_WC_SUCCESS), "and completes");
	wr.wr.ud.remote_qkey = 0x9999;
	post_recv(&e[1], 3, 4096, 100);
	post_send(&e[0], wr);
	ok(is(next_wc(&e[0]), 1, IBV_WC_SUCCESS) && silent(&e[1]),
	   "one with a wrong Q_Key completes and does not arrive");
	wr.wr.ud.remote_qpn = 0x020005;
	post_send(&e[0], wr);
	ok(is(next_wc(&e[0]), 1, IBV_WC_SUCCESS), "so does one to nobody");
	ibv_destroy_ah(wr.wr.ud.ah);
	drop_pair(e);

	o.type = IBV_QPT_UC;
	make_pair(e, o);
	post_send(&e[0], send_wr(4, IBV_WR_SEND, IBV_SEND_SIGNALED, &s));
	ok(is(next_wc(&e[0]), 4, IBV_WC_SUCCESS), "UC does not mind a missing receive");
	drop_pair(e);
}

/* Exit code of a child that uses what it inherited and then the device anew. */
static int in_child(void)
{
	struct ibv_device **list;
	struct ibv_context *inherited = ctx;
	struct end e[2];

	errno = 0;
	if (ibv_create_cq(inherited, 10, NULL, NULL, 0) || errno != EIO)
		return 1;
	list = ibv_get_device_list(NULL);
	ctx = ibv_open_device(list[0]);
	if (!ctx)
		return 2;
	pd = ibv_alloc_pd(ctx);
	mr = ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
	if (!pd || !mr)
		return 3;
	make_pair(e, RC);
	struct ibv_sge s = at(0, 8);

	post_recv(&e[1], 2, 4096, 8);
	post_send(&e[0], send_wr(1, IBV_WR_SEND, IBV_SEND_SIGNALED, &s));
	return is(next_wc(&e[1]), 2, IBV_WC_SUCCESS) && !drop_pair(e) ? 0 : 4;
}

static void forks(void)
{
	struct ibv_sge s = at(0, 8);
	struct end e[2];
	int status;
	pid_t pid;

	make_pair(e, RC);
	pid = fork();
	if (!pid)
		_exit(in_child());
	waitpid(pid, &status, 0);
	ok(status == 0, "a forked child is told EIO and can open the device anew (%#x)", status);
	post_recv(&e[1], 2, 4096, 8);
	post_send(&e[0], send_wr(1, IBV_WR_SEND, IBV_SEND_SIGNALED, &s));
	ok(is(next_wc(&e[1]), 2, IBV_WC_SUCCESS), "the parent's device is none the worse");
	drop_pair(e);
}

/* Two more contexts, one closed with everything still in it. */
static void contexts(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *mine = ctx, *other = ibv_open_device(list[0]);
	struct ibv_pd *my_pd = pd;
	struct end e[2];

	need(other, "second context");
	ctx = other;
	pd = ibv_alloc_pd(ctx);
	make_pair(e, RC);
	ok(ibv_close_device(other) == 0, "a context is closed with its objects");
	ctx = mine;
	pd = my_pd;
	make_pair(e, RC);
	ok(drop_pair(e) == 0, "and the first one works on");
	ibv_free_device_list(list);
}

/* ---- limits: selftest.sh sets MLX5DEV_nth_qp=3 and MLX5DEV_memlock=40960 ---- */

static struct ibv_qp *small_qp(struct ibv_cq *cq)
{
	struct ibv_qp_init_attr a = {
		.qp_type = IBV_QPT_RC, .send_cq = cq, .recv_cq = cq, .cap = { 1, 1, 1, 1, 0 }
	};

	errno = 0;
	return ibv_create_qp(pd, &a);
}

static void limits(void)
{
	/* ten pages: CQ 1 and doorbells 1, leaving eight */
	struct ibv_cq *cq = ibv_create_cq(ctx, 10, NULL, NULL, 0);
	struct ibv_qp *a = small_qp(cq), *b = small_qp(cq);
	struct ibv_device_attr d;

	ok(a && b, "two QPs of one page each");
	ok(!small_qp(cq) && errno == ENOMEM, "the third is refused (nth_qp)");
	mr = ibv_reg_mr(pd, memory, 7 * 4096, 0);
	ok(!mr && errno == ENOMEM, "seven pages more are refused (memlock)");
	mr = ibv_reg_mr(pd, memory, 6 * 4096, 0);
	ok(mr != NULL, "six are pinned");
	ok(!ibv_dereg_mr(mr) && !ibv_destroy_qp(a), "and released");
	mr = ibv_reg_mr(pd, memory + 100, 6 * 4096, 0);
	ok(mr != NULL, "so that seven can be, as the region is not aligned");
	ok(!small_qp(cq) && errno == ENOMEM, "and leave none for a QP");
	ok(!ibv_dereg_mr(mr) && (a = small_qp(cq)), "which then has its page again");
	ibv_query_device(ctx, &d);
	ok(d.max_qp_wr == 8192, "max_qp_wr has its new meaning");
	ok(!ibv_destroy_qp(a) && !ibv_destroy_qp(b) && !ibv_destroy_cq(cq), "all is released");
}

static void many(unsigned n)
{
	struct ibv_cq *cq = ibv_create_cq(ctx, 100, NULL, NULL, 0);
	struct ibv_qp **qp = calloc(n, sizeof(*qp));
	double start = now(), half = 0, made;
	unsigned i;

	for (i = 0; i < n && (qp[i] = small_qp(cq)); i++) {
		to_init(qp[i], 0);
		connect_to(qp[i], qp[i]->qp_num, &RC);
		if (i == n / 2)
			half = now() - start;
	}
	made = now() - start;
	ok(i == n, "%u QPs are made and connected (%.1f s)", n, made);
	ok(made - half < 2 * half + 1, "the second half as fast as the first");
	start = now();
	for (n = i, i = 0; i < n; i++)
		ibv_destroy_qp(qp[i]);
	ok(ibv_destroy_cq(cq) == 0, "and destroyed (%.1f s)", now() - start);
	free(qp);
}

static void open_first(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	need(list && list[0] ? list : NULL, "device list");
	ctx = ibv_open_device(list[0]);
	need(ctx, "open");
	ibv_free_device_list(list);
	pd = ibv_alloc_pd(ctx);
	need(pd, "PD");
}

int main(int argc, char **argv)
{
	open_first();
	if (argc > 1 && !strcmp(argv[1], "limits")) {
		limits();
	} else if (argc > 2 && !strcmp(argv[1], "many")) {
		many((unsigned)atoi(argv[2]));
	} else {
		mr = ibv_reg_mr(pd, memory, sizeof(memory),
				IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
					IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
		need(mr, "MR");
		if (argc == 1)
			geometry();
		xrc();
		sends();
		one_sided();
		many_posts();
		wrong_key();
		local_errors();
		receiver_not_ready();
		flush_and_reset();
		busy_objects();
		events();
		shared_receives();
		extended();
		datagrams();
		forks();
		contexts();
		ok(!ibv_dereg_mr(mr), "the region is released");
	}
	ok(!ibv_dealloc_pd(pd) && !ibv_close_device(ctx), "the device is closed");
	printf("1..%u\n", tests);
	return failures != 0;
}
