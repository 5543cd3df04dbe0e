/* SPDX-License-Identifier: MIT */
/*
 * Chelsio. The kernel sizes the rings and the provider maps what it is told, so that the rings here
 * are an estimate, by the slots that a request may take: 5 of 64 bytes in a send queue, 2 in a
 * receive queue. What the provider keeps beside them it sizes itself. Source of facts: rdma-core
 * providers/cxgb4, t4.h: T4_SQ_NUM_SLOTS, T4_RQ_NUM_SLOTS; verbs.c: create_qp_v0, c4iw_create_cq,
 * c4iw_create_srq.
 */
#include <errno.h>

#include "geometry_math.h"

enum {
	SEND_WQE_BYTES = 5 * 64,
	RECV_WQE_BYTES = 2 * 64,
	SEND_TRACK_BYTES = 96,
	RECV_TRACK_BYTES = 16,
	CQE_BYTES = 64,
	MOST_CQES = 65518,
};

static bool cxgb4_qp(const struct qp_request *req, const struct qp_caps *effective,
		     const struct device_facts *dev, struct queue_bytes *out)
{
	const struct qp_caps *c = effective ? effective : &req->caps;
	uint64_t recvs = req->has_srq ? 0 : c->max_recv_wr;

	(void)dev;
	*out = (struct queue_bytes){
		.sq = (uint64_t)c->max_send_wr * SEND_WQE_BYTES,
		.rq = recvs * RECV_WQE_BYTES,
		.basis = BASIS_ESTIMATE,
		.place = PLACE_KERNEL,
	};
	out->bookkeeping = round_to_pages(out->sq) - out->sq + round_to_pages(out->rq) - out->rq +
			   (uint64_t)c->max_send_wr * SEND_TRACK_BYTES + recvs * RECV_TRACK_BYTES;
	return true;
}

/* The ring of the kernel and a queue of the same size that the provider keeps. */
static bool cxgb4_cq(uint32_t requested_cqe, uint32_t effective_cqe, const struct device_facts *dev,
		     struct queue_bytes *out)
{
	uint64_t ring = (uint64_t)(effective_cqe ? effective_cqe : requested_cqe) * CQE_BYTES;

	(void)dev;
	*out = (struct queue_bytes){
		.rq = ring,
		.bookkeeping = round_to_pages(ring) - ring + ring,
		.basis = BASIS_ESTIMATE,
		.place = PLACE_KERNEL,
	};
	return true;
}

static bool cxgb4_srq(uint32_t max_wr, uint32_t max_sge, const struct device_facts *dev,
		      struct queue_bytes *out)
{
	uint64_t ring = (uint64_t)max_wr * RECV_WQE_BYTES;

	(void)max_sge; /* a request has room for 4 */
	(void)dev;
	*out = (struct queue_bytes){
		.rq = ring,
		.bookkeeping = round_to_pages(ring) - ring + (uint64_t)max_wr * RECV_TRACK_BYTES,
		.basis = BASIS_ESTIMATE,
		.place = PLACE_KERNEL,
	};
	return true;
}

static bool cxgb4_predict_cq(uint32_t cqe, const struct device_facts *dev, struct prediction *out)
{
	cxgb4_cq(cqe, 0, dev, &out->bytes);
	out->cqe = cqe;
	if (!cqe || cqe > MOST_CQES)
		return foretell_refusal(out, EINVAL);
	return true;
}

const struct geometry geometry_cxgb4 = {
	.driver = "cxgb4",
	.qp = cxgb4_qp,
	.cq = cxgb4_cq,
	.srq = cxgb4_srq,
	.predict_cq = cxgb4_predict_cq,
};
