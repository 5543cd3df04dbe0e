/* SPDX-License-Identifier: MIT */
/*
 * Emulex. The kernel sizes the rings, tells how many requests it made room for, and the provider
 * maps them: the rings here are an estimate, 64 bytes and 16 per SGE in whole pages. What the
 * provider keeps beside them it sizes itself. Source of facts: rdma-core providers/ocrdma,
 * ocrdma_verbs.c: ocrdma_create_qp, ocrdma_create_srq, ocrdma_create_cq_common.
 */
#include "geometry_math.h"

enum {
	WQE_BYTES = 64,
	SGE_BYTES = 16,
	CQE_BYTES = 64,
	SEND_TRACK_BYTES = 16,
	RECV_TRACK_BYTES = 8,
	QP_STRUCT_BYTES = 480,
	CQ_STRUCT_BYTES = 224,
};

static uint64_t estimated_ring(uint32_t wr, uint32_t sge)
{
	return ring_bytes(wr, WQE_BYTES + (uint64_t)SGE_BYTES * sge);
}

static uint64_t page_rest(uint64_t ring)
{
	return round_to_pages(ring) - ring;
}

static bool ocrdma_qp(const struct qp_request *req, const struct qp_caps *effective,
		      const struct device_facts *dev, struct queue_bytes *out)
{
	const struct qp_caps *c = effective ? effective : &req->caps;
	uint32_t recvs = req->has_srq ? 0 : c->max_recv_wr;

	(void)dev;
	*out = (struct queue_bytes){
		.sq = estimated_ring(c->max_send_wr, c->max_send_sge),
		.rq = estimated_ring(recvs, c->max_recv_sge),
		.basis = BASIS_ESTIMATE,
		.place = PLACE_KERNEL,
	};
	out->bookkeeping = QP_STRUCT_BYTES + page_rest(out->sq) + page_rest(out->rq) +
			   (uint64_t)c->max_send_wr * SEND_TRACK_BYTES +
			   (uint64_t)recvs * RECV_TRACK_BYTES;
	return true;
}

static bool ocrdma_cq(uint32_t requested_cqe, uint32_t effective_cqe,
		      const struct device_facts *dev, struct queue_bytes *out)
{
	uint64_t ring = (uint64_t)(effective_cqe ? effective_cqe : requested_cqe) * CQE_BYTES;

	(void)dev;
	*out = (struct queue_bytes){
		.rq = ring,
		.bookkeeping = CQ_STRUCT_BYTES + page_rest(ring),
		.basis = BASIS_ESTIMATE,
		.place = PLACE_KERNEL,
	};
	return true;
}

static bool ocrdma_srq(uint32_t max_wr, uint32_t max_sge, const struct device_facts *dev,
		       struct queue_bytes *out)
{
	uint64_t ring = estimated_ring(max_wr, max_sge);

	(void)dev;
	*out = (struct queue_bytes){
		.rq = ring,
		.bookkeeping = page_rest(ring) + (uint64_t)max_wr * RECV_TRACK_BYTES +
			       round_up(max_wr, 32) / 8,
		.basis = BASIS_ESTIMATE,
		.place = PLACE_KERNEL,
	};
	return true;
}

const struct geometry geometry_ocrdma = {
	.driver = "ocrdma",
	.qp = ocrdma_qp,
	.cq = ocrdma_cq,
	.srq = ocrdma_srq,
};
