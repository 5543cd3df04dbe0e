/* SPDX-License-Identifier: MIT */
/*
 * Broadcom NetXtreme-E. One anonymous mapping holds a QP altogether: the structs, both rings in
 * whole pages and the shadow arrays. Slots are of 16 bytes, a request takes 8 of them whatever was
 * asked, and 128 requests of the send ring are kept in reserve; behind the send ring stand 16 bytes
 * of PSNs a request. Source of facts: rdma-core providers/bnxt_re, verbs.c: bnxt_re_create_qp,
 * bnxt_re_alloc_queues, bnxt_re_get_psn_size, bnxt_re_create_cq, bnxt_re_create_srq; memory.c.
 *
 * Reckoned as for the chips of the fifth generation in their static mode, with depths of powers of
 * two.
 */
#include "geometry_math.h"

enum {
	REQUEST_BYTES = 8 * 16,
	RESERVE = 128,
	PSN_BYTES = 16,
	SHADOW_BYTES = 40,
	QP_STRUCT_BYTES = 624,
	QUEUE_STRUCT_BYTES = 32 + 96,
	CQE_BYTES = 32,
};

static uint64_t send_slots(const struct qp_caps *c)
{
	return power_of_two((uint64_t)c->max_send_wr + 1 + RESERVE);
}

static uint64_t recv_slots(uint32_t wr)
{
	return power_of_two((uint64_t)wr + 1);
}

static bool bnxt_re_qp(const struct qp_request *req, const struct qp_caps *effective,
		       const struct device_facts *dev, struct queue_bytes *out)
{
	uint64_t sends = send_slots(&req->caps);
	uint64_t recvs = req->has_srq ? 0 : recv_slots(req->caps.max_recv_wr);
	uint64_t slab;

	(void)effective; /* the kernel's; the provider goes by the request */
	(void)dev;
	if (req->type != QP_TYPE_RC && req->type != QP_TYPE_UD && req->type != QP_TYPE_RAW_PACKET)
		return false;
	*out = (struct queue_bytes){
		.sq = sends * REQUEST_BYTES,
		.rq = recvs * REQUEST_BYTES,
		.basis = BASIS_MODEL,
		.place = PLACE_PROCESS,
	};
	slab = QP_STRUCT_BYTES + (req->has_srq ? 1 : 2) * QUEUE_STRUCT_BYTES +
	       round_to_pages(out->sq + sends * PSN_BYTES) + round_to_pages(out->rq) +
	       (sends + recvs) * SHADOW_BYTES;
	out->bookkeeping = round_to_pages(slab) - out->sq - out->rq;
	return true;
}

/* Asked doubled, where the device has so many: for doorbells that are put off. */
static bool bnxt_re_cq(uint32_t requested_cqe, uint32_t effective_cqe,
		       const struct device_facts *dev, struct queue_bytes *out)
{
	uint64_t cqe = requested_cqe, most_cqe = facts_or_none(dev)->limits.max_cqe;
	uint64_t entries, ring;

	(void)effective_cqe;
	if (most_cqe && 2 * cqe < most_cqe)
		cqe *= 2;
	entries = power_of_two(cqe + 1);
	if (most_cqe)
		entries = least(entries, most_cqe + 1);
	ring = entries * CQE_BYTES;
	*out = (struct queue_bytes){
		.rq = ring,
		.bookkeeping = round_to_pages(ring) - ring,
		.basis = BASIS_MODEL,
		.place = PLACE_PROCESS,
	};
	return true;
}

static bool bnxt_re_srq(uint32_t max_wr, uint32_t max_sge, const struct device_facts *dev,
			struct queue_bytes *out)
{
	uint64_t slots = recv_slots(max_wr), ring = slots * REQUEST_BYTES;

	(void)max_sge; /* a request has room for 6 */
	(void)dev;
	*out = (struct queue_bytes){
		.rq = ring,
		.bookkeeping = round_to_pages(ring) - ring + slots * SHADOW_BYTES,
		.basis = BASIS_MODEL,
		.place = PLACE_PROCESS,
	};
	return true;
}

static bool bnxt_re_predict_qp(const struct qp_request *req, const struct device_facts *dev,
			       struct prediction *out)
{
	if (!bnxt_re_qp(req, NULL, dev, &out->bytes))
		return foretell_refusal(out, 0);
	out->caps = req->caps;
	if (is_over_limits(req, &facts_or_none(dev)->limits))
		return foretell_refusal(out, 0);
	out->fate = FATE_UNKNOWN; /* the kernel decides, and writes back what it likes */
	return true;
}

const struct geometry geometry_bnxt_re = {
	.driver = "bnxt_re",
	.qp = bnxt_re_qp,
	.cq = bnxt_re_cq,
	.srq = bnxt_re_srq,
	.predict_qp = bnxt_re_predict_qp,
};
