/* SPDX-License-Identifier: MIT */
/*
 * Alibaba's Elastic RDMA. One buffer on the heap: units of 32 bytes, four for each send request and
 * one for each receive request, both rings in steps of 4096 bytes. Nothing is checked before the
 * kernel. Source of facts: rdma-core providers/erdma, erdma_verbs.c: erdma_create_qp,
 * alloc_qp_buf_and_db, erdma_create_cq.
 */
#include "geometry_math.h"

enum {
	UNIT_BYTES = 32,
	UNITS_PER_SEND = 4,
	RING_STEP = 4096,
	TRACK_BYTES = 8,
	DOORBELL_BYTES = 16,
	LEAST_CQES = 64,
	CQE_BYTES = 32,
	QP_STRUCT_BYTES = 304,
	CQ_STRUCT_BYTES = 208,
};

static bool erdma_qp(const struct qp_request *req, const struct qp_caps *effective,
		     const struct device_facts *dev, struct queue_bytes *out)
{
	uint64_t sends = power_of_two(UNITS_PER_SEND * (uint64_t)req->caps.max_send_wr);
	uint64_t recvs = power_of_two(req->caps.max_recv_wr);

	(void)effective;
	(void)dev;
	*out = (struct queue_bytes){
		.sq = sends * UNIT_BYTES,
		.rq = recvs * UNIT_BYTES,
		.basis = BASIS_MODEL,
		.place = PLACE_PROCESS,
	};
	out->bookkeeping = round_up(out->sq, RING_STEP) - out->sq + round_up(out->rq, RING_STEP) -
			   out->rq + TRACK_BYTES * (sends + recvs) + DOORBELL_BYTES +
			   QP_STRUCT_BYTES;
	return true;
}

static bool erdma_cq(uint32_t requested_cqe, uint32_t effective_cqe, const struct device_facts *dev,
		     struct queue_bytes *out)
{
	uint64_t cqe = effective_cqe ? effective_cqe : requested_cqe;
	uint64_t ring = power_of_two(most(cqe, LEAST_CQES)) * CQE_BYTES;

	(void)dev;
	*out = (struct queue_bytes){
		.rq = ring,
		.bookkeeping = round_to_pages(ring) - ring + CQ_STRUCT_BYTES + DOORBELL_BYTES,
		.basis = BASIS_MODEL,
		.place = PLACE_PROCESS,
	};
	return true;
}

const struct geometry geometry_erdma = {
	.driver = "erdma",
	.qp = erdma_qp,
	.cq = erdma_cq,
};
