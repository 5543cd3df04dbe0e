/* SPDX-License-Identifier: MIT */
/*
 * A program of 2006: bound to the IBVERBS_1.0 symbols, with the structs of that time. Makes a CQ
 * and two QPs that are connected with each other, sends 10 messages and gives all back.
 *
 * Environment: $QPG_DEVICE (by default the first), $QPG_GID, the index of its GID.
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* As much of the old structs as a program needs: libibverbs/compat-1_0.c has them whole. */
struct old_cq;
struct old_qp;
struct old_context {
	void *device;
	void *earlier_ops[7];
	int (*poll_cq)(struct old_cq *, int, struct ibv_wc *);
	void *ops_between[13];
	int (*post_send)(struct old_qp *, void *, void *);
	int (*post_recv)(struct old_qp *, void *, void *);
};
struct old_mr {
	struct old_context *context;
	void *pd;
	uint32_t handle, lkey, rkey;
};
struct old_cq {
	struct old_context *context;
};
struct old_qp {
	struct old_context *context;
	void *qp_context, *pd, *send_cq, *recv_cq, *srq;
	uint32_t handle, qp_num;
};
struct old_qp_init_attr {
	void *qp_context;
	struct old_cq *send_cq, *recv_cq;
	void *srq;
	struct ibv_qp_cap cap;
	enum ibv_qp_type qp_type;
	int sq_sig_all;
};
struct old_recv_wr {
	struct old_recv_wr *next;
	uint64_t wr_id;
	struct ibv_sge *sg_list;
	int num_sge;
};
struct old_send_wr {
	struct old_send_wr *next;
	uint64_t wr_id;
	struct ibv_sge *sg_list;
	int num_sge;
	enum ibv_wr_opcode opcode;
	int send_flags;
	__be32 imm_data;
	uint64_t wr[4];
};

void **old_get_device_list(int *);
void old_free_device_list(void **);
const char *old_get_device_name(void *);
struct old_context *old_open_device(void *);
int old_close_device(struct old_context *);
int old_query_gid(struct old_context *, uint8_t, int, union ibv_gid *);
void *old_alloc_pd(struct old_context *);
int old_dealloc_pd(void *);
struct old_mr *old_reg_mr(void *, void *, size_t, int);
int old_dereg_mr(struct old_mr *);
struct old_cq *old_create_cq(struct old_context *, int, void *, void *, int);
int old_destroy_cq(struct old_cq *);
struct old_qp *old_create_qp(void *, struct old_qp_init_attr *);
int old_modify_qp(struct old_qp *, struct ibv_qp_attr *, int);
int old_destroy_qp(struct old_qp *);
__asm__(".symver old_get_device_list, ibv_get_device_list@IBVERBS_1.0");
__asm__(".symver old_free_device_list, ibv_free_device_list@IBVERBS_1.0");
__asm__(".symver old_get_device_name, ibv_get_device_name@IBVERBS_1.0");
__asm__(".symver old_open_device, ibv_open_device@IBVERBS_1.0");
__asm__(".symver old_close_device, ibv_close_device@IBVERBS_1.0");
__asm__(".symver old_query_gid, ibv_query_gid@IBVERBS_1.0");
__asm__(".symver old_alloc_pd, ibv_alloc_pd@IBVERBS_1.0");
__asm__(".symver old_dealloc_pd, ibv_dealloc_pd@IBVERBS_1.0");
__asm__(".symver old_reg_mr, ibv_reg_mr@IBVERBS_1.0");
__asm__(".symver old_dereg_mr, ibv_dereg_mr@IBVERBS_1.0");
__asm__(".symver old_create_cq, ibv_create_cq@IBVERBS_1.0");
__asm__(".symver old_destroy_cq, ibv_destroy_cq@IBVERBS_1.0");
__asm__(".symver old_create_qp, ibv_create_qp@IBVERBS_1.0");
__asm__(".symver old_modify_qp, ibv_modify_qp@IBVERBS_1.0");
__asm__(".symver old_destroy_qp, ibv_destroy_qp@IBVERBS_1.0");

static void need(int good, const char *what)
{
	if (good)
		return;
	printf("Bail out! %s (errno %d)\n", what, errno);
	exit(1);
}

static struct old_context *open_one(void)
{
	void **list = old_get_device_list(NULL);
	const char *name = getenv("QPG_DEVICE");
	struct old_context *opened = NULL;
	void **d = list;

	/* the context points to the device of the list, which therefore stays */
	while (d && *d && name && *name && strcmp(name, old_get_device_name(*d)))
		d++;
	if (d && *d)
		opened = old_open_device(*d);
	need(opened != NULL, "no RDMA device");
	return opened;
}

static void connect_to(struct old_qp *qp, uint32_t peer, const union ibv_gid *gid, int gid_index)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1 };

	need(!old_modify_qp(qp, &a,
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
	need(!old_modify_qp(qp, &a,
			    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				    IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				    IBV_QP_MIN_RNR_TIMER),
	     "RTR");
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS,
				  .timeout = 14,
				  .retry_cnt = 7,
				  .rnr_retry = 7,
				  .max_rd_atomic = 1 };
	need(!old_modify_qp(qp, &a,
			    IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				    IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC),
	     "RTS");
}

static void send_one(struct old_qp *from, struct old_qp *to, struct ibv_sge *sge)
{
	struct old_recv_wr recv = { .sg_list = sge, .num_sge = 1 };
	struct old_send_wr send = {
		.sg_list = sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED
	};
	void *bad;

	need(!to->context->post_recv(to, &recv, &bad), "post_recv");
	need(!from->context->post_send(from, &send, &bad), "post_send");
}

static void take(struct old_cq *cq, int wanted)
{
	struct ibv_wc wc;

	while (wanted > 0) {
		int n = cq->context->poll_cq(cq, 1, &wc);

		need(n >= 0 && (!n || wc.status == IBV_WC_SUCCESS), "completion");
		wanted -= n;
	}
}

int main(void)
{
	static char memory[4096];
	const char *index = getenv("QPG_GID");
	int gid_index = index ? atoi(index) : 0;
	struct old_context *context = open_one();
	struct old_qp_init_attr init = { .qp_type = IBV_QPT_RC,
					 .cap = { .max_send_wr = 16,
						  .max_recv_wr = 16,
						  .max_send_sge = 1,
						  .max_recv_sge = 1 } };
	void *pd = old_alloc_pd(context);
	struct old_mr *mr;
	struct old_qp *qp[2];
	union ibv_gid gid;
	struct ibv_sge sge;

	need(pd && !old_query_gid(context, 1, gid_index, &gid), "PD and GID");
	mr = old_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
	init.send_cq = init.recv_cq = old_create_cq(context, 64, NULL, NULL, 0);
	need(mr && init.send_cq, "MR and CQ");
	for (int i = 0; i < 2; i++) {
		qp[i] = old_create_qp(pd, &init);
		need(qp[i] != NULL, "QP");
	}
	for (int i = 0; i < 2; i++)
		connect_to(qp[i], qp[!i]->qp_num, &gid, gid_index);
	sge = (struct ibv_sge){ .addr = (uintptr_t)memory, .length = 64, .lkey = mr->lkey };
	for (int i = 0; i < 10; i++) {
		send_one(qp[0], qp[1], &sge);
		take(init.send_cq, 2);
	}
	printf("result 10 messages\n");
	need(!old_destroy_qp(qp[0]) && !old_destroy_qp(qp[1]), "destroy_qp");
	need(!old_destroy_cq(init.send_cq) && !old_dereg_mr(mr), "destroy_cq, dereg_mr");
	need(!old_dealloc_pd(pd) && !old_close_device(context), "dealloc_pd, close_device");
	printf("result all given back\n");
	return 0;
}
