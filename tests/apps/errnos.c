/* SPDX-License-Identifier: MIT */
/*
 * What each call returns and what becomes of errno. A call that succeeds must leave errno to its
 * caller; one that fails must fail as it does without the guard.
 *
 *     errno NAME kept|changed	   a call that succeeded, errno having been 12345
 *     result NAME: RETURN, errno  one that failed
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "verbs_pair.h"

#define BEFORE 12345

static void tell(const char *name, bool succeeded, long value, int after)
{
	if (succeeded)
		printf("errno %s %s\n", name, after == BEFORE ? "kept" : "changed");
	else
		result("%s: %ld, errno %d", name, value, after);
}

/* A call that returns 0 or an error, and one that returns an object. */
#define CALL(name, call)                            \
	do {                                        \
		long value_;                        \
		errno = BEFORE;                     \
		value_ = (call);                    \
		tell(name, !value_, value_, errno); \
	} while (0)
#define MAKE(name, pointer, call)                        \
	do {                                             \
		errno = BEFORE;                          \
		(pointer) = (call);                      \
		tell(name, (pointer) != NULL, 0, errno); \
	} while (0)

static struct ibv_qp_init_attr request(struct ibv_cq *cq, uint32_t depth)
{
	return (struct ibv_qp_init_attr){
		.qp_type = IBV_QPT_RC, .send_cq = cq, .recv_cq = cq, .cap = { depth, 16, 1, 1, 0 }
	};
}

static void creation(void)
{
	struct ibv_srq_init_attr many = { .attr = { .max_wr = 1u << 30, .max_sge = 1 } };
	struct ibv_srq_init_attr some = { .attr = { .max_wr = 16, .max_sge = 1 } };
	struct ibv_srq_attr limit = { .srq_limit = 4 }, more = { .max_wr = 1u << 30 };
	struct ibv_qp_init_attr good, deep, wide, wrong;
	struct ibv_qp_attr leap = { .qp_state = IBV_QPS_RTS };
	struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	struct ibv_qp_attr port = { .qp_state = IBV_QPS_INIT, .port_num = 77 };
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
	struct ibv_cq *cq, *none;
	struct ibv_qp *qp, *no_qp;
	struct ibv_srq *srq, *no_srq;
	struct ibv_mr *m;

	MAKE("create_cq", cq, ibv_create_cq(context, 100, NULL, NULL, 0));
	need(cq, "a CQ");
	MAKE("create_cq of 0", none, ibv_create_cq(context, 0, NULL, NULL, 0));
	if (none)
		CALL("destroy_cq of 0", ibv_destroy_cq(none));
	MAKE("create_cq of -1", none, ibv_create_cq(context, -1, NULL, NULL, 0));
	MAKE("create_cq of 2^30", none, ibv_create_cq(context, 1 << 30, NULL, NULL, 0));
	MAKE("create_cq of a wrong vector", none, ibv_create_cq(context, 10, NULL, NULL, 10000));
	if (none)
		CALL("destroy_cq of a wrong vector", ibv_destroy_cq(none));
	CALL("resize_cq to 2^30", ibv_resize_cq(cq, 1 << 30));
	CALL("resize_cq", ibv_resize_cq(cq, 200));

	good = request(cq, 16);
	MAKE("create_qp", qp, ibv_create_qp(pd, &good));
	need(qp, "a QP");
	deep = request(cq, 1u << 24);
	MAKE("create_qp too deep", no_qp, ibv_create_qp(pd, &deep));
	result("its request is left as %u %u %u %u %u", deep.cap.max_send_wr, deep.cap.max_recv_wr,
	       deep.cap.max_send_sge, deep.cap.max_recv_sge, deep.cap.max_inline_data);
	wide = request(cq, 16);
	wide.cap.max_recv_sge = 10000;
	MAKE("create_qp too wide", no_qp, ibv_create_qp(pd, &wide));
	wrong = request(cq, 16);
	wrong.qp_type = (enum ibv_qp_type)99;
	MAKE("create_qp of no type", no_qp, ibv_create_qp(pd, &wrong));

	CALL("modify_qp from RESET to RTS", ibv_modify_qp(qp, &leap, IBV_QP_STATE));
	CALL("modify_qp to a wrong port", ibv_modify_qp(qp, &port, mask));
	CALL("modify_qp to INIT", ibv_modify_qp(qp, &init, mask));
	CALL("destroy_cq in use", ibv_destroy_cq(cq));

	MAKE("create_srq", srq, ibv_create_srq(pd, &some));
	MAKE("create_srq too deep", no_srq, ibv_create_srq(pd, &many));
	need(srq, "an SRQ");
	CALL("modify_srq limit", ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT));
	CALL("modify_srq too deep", ibv_modify_srq(srq, &more, IBV_SRQ_MAX_WR));
	CALL("destroy_srq", ibv_destroy_srq(srq));
	MAKE("reg_mr", m, ibv_reg_mr(pd, memory, 4096, IBV_ACCESS_LOCAL_WRITE));
	CALL("dereg_mr", ibv_dereg_mr(m));
	MAKE("reg_mr without local write", m,
	     ibv_reg_mr(pd, memory, 4096, IBV_ACCESS_REMOTE_WRITE));
	if (m)
		CALL("dereg_mr without local write", ibv_dereg_mr(m));
	CALL("destroy_qp", ibv_destroy_qp(qp));
	CALL("destroy_cq", ibv_destroy_cq(cq));
}

/* NULL where a pointer belongs is left to the provider to judge, which may crash: not tried. */
static void data_path(void)
{
	struct ibv_sge sge = { (uintptr_t)memory, 8, mr->lkey }, sges[8];
	struct ibv_send_wr wr = { .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_RDMA_WRITE,
				  .send_flags = IBV_SEND_SIGNALED },
			   *bad;
	struct ibv_recv_wr recv = { .sg_list = sges, .num_sge = 1 }, *bad_recv;
	struct end *e[2];
	struct ibv_wc wc;
	int got = 0;

	for (unsigned int i = 0; i < 8; i++)
		sges[i] = sge;
	wr.wr.rdma.remote_addr = (uintptr_t)memory + 8192;
	wr.wr.rdma.rkey = mr->rkey;
	pair_make(e, &(struct plan){ 0 });
	CALL("post_send", ibv_post_send(e[0]->qp, &wr, &bad));
	for (unsigned int i = 0; !got; i++) {
		errno = BEFORE;
		got = ibv_poll_cq(e[0]->send_cq, 1, &wc);
		if (!i || got)
			tell(got ? "poll_cq of one" : "poll_cq of none", got >= 0, got, errno);
	}
	CALL("post_recv", ibv_post_recv(e[0]->qp, &recv, &bad_recv));
	CALL("poll_cq of 0", ibv_poll_cq(e[0]->send_cq, 0, &wc));
	wr.sg_list = sges;
	wr.num_sge = 8;
	CALL("post_send too wide", ibv_post_send(e[0]->qp, &wr, &bad));
	result("and bad_wr %s", bad == &wr ? "is it" : "is another");
	recv.num_sge = 8;
	CALL("post_recv too wide", ibv_post_recv(e[0]->qp, &recv, &bad_recv));
	result("and bad_wr %s", bad_recv == &recv ? "is it" : "is another");
	wr.num_sge = 1;
	wr.opcode = IBV_WR_SEND;
	got = 0;
	while (got < 100) {
		errno = BEFORE;
		if (ibv_post_send(e[0]->qp, &wr, &bad))
			break;
		got++;
	}
	CALL("post_send full", ibv_post_send(e[0]->qp, &wr, &bad));
	CALL("post_send no request", ibv_post_send(e[0]->qp, NULL, &bad));
	end_state(e[0], IBV_QPS_RESET);
	CALL("post_recv in RESET", ibv_post_recv(e[0]->qp, &recv, &bad_recv));
}

int main(void)
{
	device_begin();
	creation();
	data_path();
	return 0;
}
