/* SPDX-License-Identifier: MIT */
/*
 * Objects by direct verbs of libmlx5: a CQ, two QPs on it that send to each other, a work queue, the two ends of
 * DC; or, with "devx", objects and memory of DEVX. Tells what lives after each step, by the names of the report.
 */
#include <endian.h>
#include <errno.h>
#include <infiniband/mlx5dv.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "verbs_pair.h"

/* --- direct verbs --- */

static struct ibv_cq *make_cq(uint16_t cqe_bytes)
{
	struct ibv_cq_init_attr_ex a = { .cqe = 100 };
	struct mlx5dv_cq_init_attr more = { .comp_mask = MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE,
					    .cqe_size = cqe_bytes };
	struct ibv_cq_ex *cq = mlx5dv_create_cq(context, &a, &more);

	need(cq, "mlx5dv_create_cq: %s", strerror(errno));
	return ibv_cq_ex_to_cq(cq);
}

static struct ibv_qp *make_qp(struct ibv_cq *cq, struct mlx5dv_qp_init_attr *more,
			      enum ibv_qp_type type, struct ibv_srq *srq)
{
	struct ibv_qp_init_attr_ex a = {
		.qp_type = type,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = pd,
		.send_cq = cq,
		.recv_cq = cq,
		.srq = srq,
		.cap = { .max_send_wr = 16, .max_send_sge = 1 },
		.sq_sig_all = 1,
	};
	struct ibv_qp *qp;

	if (type == IBV_QPT_RC)
		a.cap.max_recv_wr = a.cap.max_recv_sge = 1;
	if (srq)
		a.cap = (struct ibv_qp_cap){ 0 };
	qp = mlx5dv_create_qp(context, &a, more);
	result("mlx5dv_create_qp: %s", qp ? "made" : strerror(errno));
	return qp;
}

static void sends(struct ibv_qp *qp[2], struct ibv_cq *cq)
{
	struct end e[2] = { { .qp = qp[0] }, { .qp = qp[1] } };
	struct ibv_sge sge = { (uintptr_t)memory, 8, mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE },
			   *bad;
	struct ibv_wc wc;

	end_to(&e[0], IBV_QPS_RTS, &e[1]);
	end_to(&e[1], IBV_QPS_RTS, &e[0]);
	wr.wr.rdma.remote_addr = (uintptr_t)memory + 4096;
	wr.wr.rdma.rkey = mr->rkey;
	for (unsigned int i = 0; i < 30; i++) {
		need(!ibv_post_send(qp[i % 3 == 0], &wr, &bad), "post_send");
		while (!ibv_poll_cq(cq, 1, &wc))
			;
		need(wc.status == IBV_WC_SUCCESS, "a send");
	}
	for (unsigned int i = 0; i < 2; i++)
		printf("queue qp=%u side=send posted=%u completed=%u outstanding=0\n",
		       qp[i]->qp_num, i ? 10 : 20, i ? 10 : 20);
}

static void work_queue(struct ibv_cq *cq)
{
	struct ibv_wq_init_attr a = {
		.wq_type = IBV_WQT_RQ, .max_wr = 8, .max_sge = 1, .pd = pd, .cq = cq
	};
	struct mlx5dv_wq_init_attr more = { 0 };
	struct ibv_wq *wq = mlx5dv_create_wq(context, &a, &more);

	need(wq, "mlx5dv_create_wq: %s", strerror(errno));
	printf("totals live_wqs=1 created_wqs=1\n");
	step_alone("a work queue by direct verbs");
	need(!ibv_destroy_wq(wq), "destroy_wq");
}

/* Both ends of DC: the initiator sends, the target takes receives from an SRQ. */
static void dc(struct ibv_cq *cq)
{
	struct mlx5dv_qp_init_attr more = { .comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC,
					    .dc_init_attr = { .dc_type = MLX5DV_DCTYPE_DCI } };
	struct ibv_srq_init_attr s = { .attr = { .max_wr = 16, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(pd, &s);
	struct ibv_qp *initiator, *target;

	need(srq, "create_srq");
	initiator = make_qp(cq, &more, IBV_QPT_DRIVER, NULL);
	more.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCT;
	more.dc_init_attr.dct_access_key = 7;
	target = make_qp(cq, &more, IBV_QPT_DRIVER, srq);
	need(initiator && target, "both ends of DC");
	printf("totals live_qps=4 created_qps=4\n");
	step_alone("both ends of DC");
	need(!ibv_destroy_qp(initiator) && !ibv_destroy_qp(target) && !ibv_destroy_srq(srq),
	     "destroy");
}

static void direct(void)
{
	struct ibv_cq *cq = make_cq(128), *usual = make_cq(64);
	struct ibv_qp *qp[2];

	printf("totals live_cqs=2 created_cqs=2\n");
	step_alone("CQs by direct verbs");
	for (unsigned int i = 0; i < 2; i++) {
		qp[i] = make_qp(usual, NULL, IBV_QPT_RC, NULL);
		need(qp[i], "a QP");
	}
	printf("totals live_qps=2 created_qps=2\n");
	step_alone("QPs by direct verbs");
	sends(qp, usual);
	step_alone("they sent to each other");
	work_queue(usual);
	dc(usual);
	printf("entry_points mlx5dv_create_qp=4 mlx5dv_create_cq=2 mlx5dv_create_wq=1 create_qp=0 "
	       "create_qp_ex=0 create_cq=0\n");
	for (unsigned int i = 0; i < 2; i++)
		need(!ibv_destroy_qp(qp[i]), "destroy_qp");
	need(!ibv_destroy_cq(cq) && !ibv_destroy_cq(usual), "destroy_cq");
	printf("totals live_qps=0 live_cqs=0 live_wqs=0 live_srqs=0\n");
	step_alone("all is given back");
}

/* --- DEVX --- */

#define OBJECTS 4

static struct mlx5dv_devx_obj *make_object(uint16_t opcode)
{
	uint8_t in[64] = { 0 }, out[64] = { 0 };
	struct mlx5dv_devx_obj *object;

	opcode = htobe16(opcode);
	memcpy(in, &opcode, sizeof(opcode));
	object = mlx5dv_devx_obj_create(context, in, sizeof(in), out, sizeof(out));
	need(object, "devx_obj_create: %s", strerror(errno));
	return object;
}

static void devx(void)
{
	static const uint16_t opcodes[OBJECTS] = { 0x400, 0x500, 0x904, 0xa00 };
	struct mlx5dv_devx_obj *object[OBJECTS];
	struct mlx5dv_devx_umem *umem[2];
	struct mlx5dv_devx_uar *uar;

	umem[0] = mlx5dv_devx_umem_reg(context, memory, 65536, IBV_ACCESS_LOCAL_WRITE);
	need(umem[0], "devx_umem_reg: %s", strerror(errno));
	umem[1] = mlx5dv_devx_umem_reg(context, memory + 65536, 4096, IBV_ACCESS_LOCAL_WRITE);
	result("a second piece of memory: %s", umem[1] ? "made" : strerror(errno));
	printf("unguarded devx_bytes=%u\n", umem[1] ? 69632 : 65536);
	step_alone("memory for queues");
	uar = mlx5dv_devx_alloc_uar(context, 0);
	need(uar, "devx_alloc_uar: %s", strerror(errno));
	for (unsigned int i = 0; i < OBJECTS; i++)
		object[i] = make_object(opcodes[i]);
	printf("unguarded devx_objects=%u\n", OBJECTS);
	printf("entry_points mlx5dv_devx_obj_create=%u mlx5dv_devx_alloc_uar=1\n", OBJECTS);
	step_alone("objects");
	need(!mlx5dv_devx_obj_destroy(object[0]), "devx_obj_destroy");
	printf("unguarded devx_objects=%u\n", OBJECTS - 1);
	step_alone("one less");
	for (unsigned int i = 1; i < OBJECTS; i++)
		need(!mlx5dv_devx_obj_destroy(object[i]), "devx_obj_destroy");
	mlx5dv_devx_free_uar(uar);
	for (unsigned int i = 0; i < 2; i++)
		need(!umem[i] || !mlx5dv_devx_umem_dereg(umem[i]), "devx_umem_dereg");
	printf("unguarded devx_objects=0 devx_bytes=0\n");
	printf("totals bytes=0\n");
	step_alone("all is given back");
}

int main(int argc, char **argv)
{
	device_begin();
	if (argc > 1 && !strcmp(argv[1], "devx"))
		devx();
	else
		direct();
	device_end();
	return 0;
}
