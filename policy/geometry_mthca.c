/* SPDX-License-Identifier: MIT */
/*
 * InfiniHost. One anonymous mapping holds both rings, the receive ring first. Slots are powers of
 * two of 64 bytes at least. Source of facts: rdma-core providers/mthca, qp.c: mthca_alloc_qp_buf;
 * verbs.c: mthca_create_qp, mthca_create_cq, mthca_create_srq, align_queue_size; srq.c.
 *
 * Reckoned as for the models without memory of their own, whose depths are powers of two, 0 staying
 * 0; others take exact depths.
 */
#include "geometry_math.h"

enum {
	SEGMENT_BYTES = 16,
	DATAGRAM_BYTES = 48,
	LEAST_SLOT_BYTES = 64,
	INLINE_HEADER_BYTES = 4,
	CQE_BYTES = 32,
	WRID_BYTES = 8,
	MOST_WR = 65536,
	MOST_SGE = 64,
	MOST_INLINE_BYTES = 1024,
	MOST_CQES = 131072,
};

static uint64_t depth_of(uint64_t wr)
{
	return wr ? power_of_two(wr) : 0;
}

/* Laid out as in mlx4. */
static uint64_t send_slot_bytes(const struct qp_request *req)
{
	const struct qp_caps *c = &req->caps;
	uint64_t size = (uint64_t)SEGMENT_BYTES * c->max_send_sge;

	if (c->max_inline_data)
		size = most(size, round_up(INLINE_HEADER_BYTES + (uint64_t)c->max_inline_data,
					   SEGMENT_BYTES));
	if (req->type == QP_TYPE_UD)
		size += DATAGRAM_BYTES;
	else if (req->type == QP_TYPE_UC)
		size += SEGMENT_BYTES;
	else if (req->type == QP_TYPE_RC)
		size = most(size + SEGMENT_BYTES, 3 * SEGMENT_BYTES); /* an atomic operation */
	size = most(size, 2 * SEGMENT_BYTES) + SEGMENT_BYTES; /* binding a window; next segment */
	return power_of_two(most(size, LEAST_SLOT_BYTES));
}

static uint64_t recv_slot_bytes(uint32_t sge)
{
	return power_of_two(most(SEGMENT_BYTES + (uint64_t)SEGMENT_BYTES * sge, LEAST_SLOT_BYTES));
}

static bool mthca_qp(const struct qp_request *req, const struct qp_caps *effective,
		     const struct device_facts *dev, struct queue_bytes *out)
{
	const struct qp_caps *c = &req->caps;
	uint64_t sends = depth_of(c->max_send_wr),
		 recvs = req->has_srq ? 0 : depth_of(c->max_recv_wr);
	uint64_t slot = send_slot_bytes(req), all;

	(void)effective;
	(void)dev;
	*out = (struct queue_bytes){
		.sq = ring_bytes(sends, slot),
		.rq = ring_bytes(recvs, recv_slot_bytes(c->max_recv_sge)),
		.basis = BASIS_MODEL,
		.place = PLACE_PROCESS,
	};
	all = round_to_pages(saturating_add(round_up(out->rq, slot), out->sq));
	out->bookkeeping = all - out->sq - out->rq + WRID_BYTES * (sends + recvs);
	return true;
}

static bool mthca_cq(uint32_t requested_cqe, uint32_t effective_cqe, const struct device_facts *dev,
		     struct queue_bytes *out)
{
	uint64_t cqe = effective_cqe ? effective_cqe : requested_cqe;
	uint64_t ring = power_of_two(cqe + 1) * CQE_BYTES;

	(void)dev;
	*out = (struct queue_bytes){
		.rq = ring,
		.bookkeeping = round_to_pages(ring) - ring,
		.basis = BASIS_MODEL,
		.place = PLACE_PROCESS,
	};
	return true;
}

static bool mthca_srq(uint32_t max_wr, uint32_t max_sge, const struct device_facts *dev,
		      struct queue_bytes *out)
{
	uint64_t entries = power_of_two((uint64_t)max_wr + 1);
	uint64_t ring = ring_bytes(entries, recv_slot_bytes(max_sge));

	(void)dev;
	*out = (struct queue_bytes){
		.rq = ring,
		.bookkeeping = round_to_pages(ring) - ring + WRID_BYTES * entries,
		.basis = BASIS_MODEL,
		.place = PLACE_PROCESS,
	};
	return true;
}

static bool mthca_predict_qp(const struct qp_request *req, const struct device_facts *dev,
			     struct prediction *out)
{
	const struct qp_caps *c = &req->caps;

	mthca_qp(req, NULL, dev, &out->bytes);
	out->caps = *c;
	if (c->max_send_wr > MOST_WR || c->max_recv_wr > MOST_WR || c->max_send_sge > MOST_SGE ||
	    c->max_recv_sge > MOST_SGE || c->max_inline_data > MOST_INLINE_BYTES)
		return foretell_refusal(out, 0);
	return true;
}

static bool mthca_predict_cq(uint32_t cqe, const struct device_facts *dev, struct prediction *out)
{
	mthca_cq(cqe, 0, dev, &out->bytes);
	out->cqe = within_32_bits(power_of_two((uint64_t)cqe + 1) - 1);
	return cqe > MOST_CQES ? foretell_refusal(out, 0) : true;
}

const struct geometry geometry_mthca = {
	.driver = "mthca",
	.qp = mthca_qp,
	.cq = mthca_cq,
	.srq = mthca_srq,
	.predict_qp = mthca_predict_qp,
	.predict_cq = mthca_predict_cq,
};
