/* SPDX-License-Identifier: MIT */
/*
 * QLogic FastLinQ. Each ring is an anonymous mapping in whole pages, of elements of 16 bytes: for
 * each request as many as the device has SGEs, whatever was asked. Depths out of range are silently
 * brought into it. A page of the kernel beside each ring helps to recover doorbells. Source of
 * facts: rdma-core providers/qedr, qelr_verbs.c: qelr_create_qp_buffers_sq, ..._rq, qelr_create_cq,
 * qelr_create_srq; qelr_chain.c.
 */
#include <errno.h>

#include "geometry_math.h"

enum {
	ELEMENT_BYTES = 16,
	USUAL_SGES = 4,
	WR_ID_BYTES = 8,
	CQE_BYTES = 32,
	QP_STRUCT_BYTES = 704,
	CQ_STRUCT_BYTES = 248,
	SRQ_STRUCT_BYTES = 272,
};

/* In [1, the most]. */
static uint32_t depth_of(uint32_t wr, const struct device_facts *dev)
{
	uint32_t limit = facts_or_none(dev)->limits.max_qp_wr;

	return within_32_bits(most(1, limit ? least(wr, limit) : wr));
}

static uint64_t request_bytes(const struct device_facts *dev)
{
	uint64_t sges = facts_or_none(dev)->limits.max_sge;

	return ELEMENT_BYTES * (sges ? sges : USUAL_SGES);
}

static uint64_t page_rest(uint64_t ring)
{
	return round_to_pages(ring) - ring + page_bytes();
}

static bool qedr_qp(const struct qp_request *req, const struct qp_caps *effective,
		    const struct device_facts *dev, struct queue_bytes *out)
{
	uint64_t sends = depth_of(req->caps.max_send_wr, dev);
	uint64_t recvs = req->has_srq ? 0 : depth_of(req->caps.max_recv_wr, dev);

	(void)effective;
	*out = (struct queue_bytes){
		.sq = ring_bytes(sends, request_bytes(dev)),
		.rq = ring_bytes(recvs, request_bytes(dev)),
		.basis = BASIS_MODEL,
		.place = PLACE_PROCESS,
	};
	out->bookkeeping = page_rest(out->sq) + (recvs ? page_rest(out->rq) : 0) +
			   WR_ID_BYTES * (sends + recvs) + QP_STRUCT_BYTES;
	return true;
}

static bool qedr_cq(uint32_t requested_cqe, uint32_t effective_cqe, const struct device_facts *dev,
		    struct queue_bytes *out)
{
	uint64_t ring = ((uint64_t)requested_cqe + 1) * CQE_BYTES;

	(void)effective_cqe;
	(void)dev;
	*out = (struct queue_bytes){
		.rq = ring,
		.bookkeeping = page_rest(ring) + CQ_STRUCT_BYTES,
		.basis = BASIS_MODEL,
		.place = PLACE_PROCESS,
	};
	return true;
}

/* A header element for each request; the producer has a page of its own. */
static bool qedr_srq(uint32_t max_wr, uint32_t max_sge, const struct device_facts *dev,
		     struct queue_bytes *out)
{
	uint64_t ring = ring_bytes(max_wr, ELEMENT_BYTES * ((uint64_t)max_sge + 1));

	(void)dev;
	*out = (struct queue_bytes){
		.rq = ring,
		.bookkeeping = page_rest(ring) + SRQ_STRUCT_BYTES,
		.basis = BASIS_MODEL,
		.place = PLACE_PROCESS,
	};
	return true;
}

static bool qedr_predict_cq(uint32_t cqe, const struct device_facts *dev, struct prediction *out)
{
	qedr_cq(cqe, 0, dev, &out->bytes);
	out->cqe = cqe;
	if (!cqe || is_over(cqe, facts_or_none(dev)->limits.max_cqe))
		return foretell_refusal(out, EINVAL);
	out->fate = FATE_ACCEPTED;
	return true;
}

const struct geometry geometry_qedr = {
	.driver = "qedr",
	.qp = qedr_qp,
	.cq = qedr_cq,
	.srq = qedr_srq,
	.predict_cq = qedr_predict_cq,
};
