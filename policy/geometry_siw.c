/* SPDX-License-Identifier: MIT */
/*
 * Soft-iWARP. Kernel memory that the provider maps: send slots of 120 bytes, receive slots of 112,
 * CQEs of 32 and 8 bytes of control, in whole pages. The kernel rounds depths up to powers of two.
 * Source of facts: rdma-core providers/siw, siw.c: siw_create_qp, siw_create_cq, siw_create_srq,
 * siw_abi.h; Linux drivers/infiniband/sw/siw, siw_verbs.c.
 */
#include <errno.h>

#include "geometry_math.h"

enum {
	SQE_BYTES = 120,
	RQE_BYTES = 112,
	CQE_BYTES = 32,
	CONTROL_BYTES = 8,
	QP_STRUCT_BYTES = 264,
	CQ_STRUCT_BYTES = 176,
	SRQ_STRUCT_BYTES = 152,
	MOST_SGE = 6,
	MOST_INLINE_BYTES = 80,
};

/* A depth of 0 is no queue. */
static uint64_t slots_bytes(uint32_t depth, uint64_t slot)
{
	return depth ? ring_bytes(power_of_two(depth), slot) : 0;
}

static uint64_t page_rest(uint64_t ring)
{
	return round_to_pages(ring) - ring;
}

static bool siw_qp(const struct qp_request *req, const struct qp_caps *effective,
		   const struct device_facts *dev, struct queue_bytes *out)
{
	const struct qp_caps *c = effective ? effective : &req->caps;

	(void)dev;
	if (req->type != QP_TYPE_RC)
		return false;
	*out = (struct queue_bytes){
		.sq = slots_bytes(c->max_send_wr, SQE_BYTES),
		.rq = req->has_srq ? 0 : slots_bytes(c->max_recv_wr, RQE_BYTES),
		.basis = BASIS_MODEL,
		.place = PLACE_KERNEL,
	};
	out->bookkeeping = QP_STRUCT_BYTES + page_rest(out->sq) + page_rest(out->rq);
	return true;
}

static bool siw_cq(uint32_t requested_cqe, uint32_t effective_cqe, const struct device_facts *dev,
		   struct queue_bytes *out)
{
	uint64_t ring = CONTROL_BYTES +
			slots_bytes(effective_cqe ? effective_cqe : requested_cqe, CQE_BYTES);

	(void)dev;
	*out = (struct queue_bytes){
		.rq = ring,
		.bookkeeping = CQ_STRUCT_BYTES + page_rest(ring),
		.basis = BASIS_MODEL,
		.place = PLACE_KERNEL,
	};
	return true;
}

static bool siw_srq(uint32_t max_wr, uint32_t max_sge, const struct device_facts *dev,
		    struct queue_bytes *out)
{
	uint64_t ring = slots_bytes(max_wr, RQE_BYTES);

	(void)dev;
	(void)max_sge; /* a slot has room for 6, whatever was asked */
	*out = (struct queue_bytes){
		.rq = ring,
		.bookkeeping = SRQ_STRUCT_BYTES + page_rest(ring),
		.basis = BASIS_MODEL,
		.place = PLACE_KERNEL,
	};
	return true;
}

static bool siw_predict_qp(const struct qp_request *req, const struct device_facts *dev,
			   struct prediction *out)
{
	if (!siw_qp(req, NULL, dev, &out->bytes))
		return false;
	out->caps = req->caps;
	if (is_over_limits(req, &facts_or_none(dev)->limits) || req->caps.max_send_sge > MOST_SGE ||
	    req->caps.max_inline_data > MOST_INLINE_BYTES ||
	    (!req->has_srq && req->caps.max_recv_sge > MOST_SGE))
		return foretell_refusal(out, EINVAL);
	out->fate = FATE_UNKNOWN; /* the kernel decides */
	return true;
}

const struct geometry geometry_siw = {
	.driver = "siw",
	.qp = siw_qp,
	.cq = siw_cq,
	.srq = siw_srq,
	.predict_qp = siw_predict_qp,
};
