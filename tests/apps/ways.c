/* SPDX-License-Identifier: MIT */
/* A little traffic by a table of calls: see ways.h. References no symbol of libibverbs. */
#include "ways.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void need(int good, const char *what)
{
	if (good)
		return;
	printf("Bail out! %s (errno %d)\n", what, errno);
	exit(1);
}

static struct ibv_context *open_one(const struct calls *call)
{
	struct ibv_device **list = call->get_device_list(NULL);
	const char *name = getenv("QPG_DEVICE");
	struct ibv_context *opened = NULL;

	for (struct ibv_device **d = list; d && *d && !opened; d++)
		if (!name || !*name || !strcmp(name, call->get_device_name(*d)))
			opened = call->open_device(*d);
	need(opened != NULL, "no RDMA device");
	call->free_device_list(list);
	return opened;
}

static void connect_to(const struct calls *call, struct ibv_qp *qp, uint32_t peer,
		       const union ibv_gid *gid, int gid_index)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1 };

	need(!call->modify_qp(qp, &a,
			      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
	     "INIT");
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR,
				  .path_mtu = IBV_MTU_1024,
				  .dest_qp_num = peer,
				  .max_dest_rd_atomic = 1,
				  .min_rnr_timer = 14,
				  .ah_attr = { .is_global = 1, .port_num = 1 } };
	a.ah_attr.grh.dgid = *gid;
	a.ah_attr.grh.sgid_index = (uint8_t)gid_index;
	a.ah_attr.grh.hop_limit = 1;
	need(!call->modify_qp(qp, &a,
			      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				      IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				      IBV_QP_MIN_RNR_TIMER),
	     "RTR");
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS,
				  .timeout = 14,
				  .retry_cnt = 7,
				  .rnr_retry = 7,
				  .max_rd_atomic = 1 };
	need(!call->modify_qp(qp, &a,
			      IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				      IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC),
	     "RTS");
}

static void take(struct ibv_cq *cq, int wanted)
{
	struct ibv_wc wc;

	while (wanted > 0) {
		int n = ibv_poll_cq(cq, 1, &wc);

		need(n >= 0 && (!n || wc.status == IBV_WC_SUCCESS), "completion");
		wanted -= n;
	}
}

static void send_one(struct ibv_qp *from, struct ibv_qp *to, struct ibv_sge *sge)
{
	struct ibv_recv_wr recv = { .sg_list = sge, .num_sge = 1 }, *bad_recv;
	struct ibv_send_wr send = { .sg_list = sge,
				    .num_sge = 1,
				    .opcode = IBV_WR_SEND,
				    .send_flags = IBV_SEND_SIGNALED },
			   *bad_send;

	need(!ibv_post_recv(to, &recv, &bad_recv), "post_recv");
	need(!ibv_post_send(from, &send, &bad_send), "post_send");
}

void ways_traffic(const struct calls *call, unsigned int messages)
{
	static char memory[4096];
	const char *index = getenv("QPG_GID");
	int gid_index = index ? atoi(index) : 0;
	struct ibv_context *context = open_one(call);
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC,
					 .cap = { .max_send_wr = 16,
						  .max_recv_wr = 16,
						  .max_send_sge = 1,
						  .max_recv_sge = 1 } };
	struct ibv_srq_init_attr srq_init = { .attr = { .max_wr = 8, .max_sge = 1 } };
	struct ibv_pd *pd = call->alloc_pd(context);
	struct ibv_mr *mr, *mr2;
	struct ibv_srq *srq;
	struct ibv_qp *qp[2];
	union ibv_gid gid;
	struct ibv_sge sge;
	struct ibv_cq *cq;

	need(pd && !call->query_gid(context, 1, gid_index, &gid), "PD and GID");
	mr = call->reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
	mr2 = call->reg_mr_iova2(pd, memory, sizeof(memory), (uintptr_t)memory,
				 IBV_ACCESS_LOCAL_WRITE);
	need(mr && mr2, "MRs");
	cq = call->create_cq(context, 64, NULL, NULL, 0);
	srq = call->create_srq(pd, &srq_init);
	need(cq && srq, "CQ and SRQ");
	init.send_cq = init.recv_cq = cq;
	for (int i = 0; i < 2; i++) {
		qp[i] = call->create_qp(pd, &init);
		need(qp[i] != NULL, "QP");
	}
	printf("result caps %u %u %u %u %u, cqe %d\n", init.cap.max_send_wr, init.cap.max_recv_wr,
	       init.cap.max_send_sge, init.cap.max_recv_sge, init.cap.max_inline_data, cq->cqe);
	for (int i = 0; i < 2; i++)
		connect_to(call, qp[i], qp[!i]->qp_num, &gid, gid_index);
	sge = (struct ibv_sge){ .addr = (uintptr_t)memory, .length = 64, .lkey = mr->lkey };
	for (unsigned int i = 0; i < messages; i++) {
		send_one(qp[0], qp[1], &sge);
		take(cq, 2);
	}
	printf("result %u messages\n", messages);
	need(!call->destroy_qp(qp[0]) && !call->destroy_qp(qp[1]), "destroy_qp");
	need(!call->destroy_srq(srq) && !call->destroy_cq(cq), "destroy_srq, destroy_cq");
	need(!call->dereg_mr(mr) && !call->dereg_mr(mr2), "dereg_mr");
	need(!call->dealloc_pd(pd) && !call->close_device(context), "dealloc_pd, close_device");
	printf("result all given back\n");
}
