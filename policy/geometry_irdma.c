/* SPDX-License-Identifier: MIT */
/*
 * Intel E800. One buffer: the send ring, the receive ring and 64 bytes of shadow area. Rings count
 * quanta of 32 bytes, a request takes 1, 2, 4 or 8 of them, and 258 of the send ring are kept in
 * reserve. Source of facts: rdma-core providers/irdma, uverbs.c: irdma_ucreate_qp, ucreate_cq,
 * irdma_ucreate_srq; uk.c: irdma_get_wqe_shift, irdma_get_sqdepth, irdma_get_rqdepth.
 *
 * Reckoned as for the second generation (E800); the first (X722) takes a little less.
 */
#include <errno.h>

#include "geometry_math.h"

enum {
	QUANTUM_BYTES = 32,
	SEND_RESERVE = 258,
	RECV_RESERVE = 1,
	LEAST_REQUESTS = 8,
	RING_STEP = 4096,
	SHADOW_BYTES = 64,
	QP_STRUCT_BYTES = 1024, /* 496, at a multiple of 1024 */
	SEND_TRACK_BYTES = 16,
	RECV_TRACK_BYTES = 8,
};

/* log2 of the quanta that a request takes. */
static unsigned int shift_of(uint64_t sge, uint32_t inline_data)
{
	if (sge <= 1 && inline_data <= 8)
		return 0;
	if (sge < 4 && inline_data <= 39)
		return 1;
	if (sge < 8 && inline_data <= 101)
		return 2;
	return 3;
}

static uint64_t depth_of(uint32_t wr, unsigned int shift, unsigned int reserve)
{
	return most(power_of_two(((uint64_t)wr << shift) + reserve),
		    (uint64_t)LEAST_REQUESTS << shift);
}

struct layout {
	unsigned int send_shift, recv_shift;
	uint64_t send_depth, recv_depth; /* quanta */
};

static void lay_out(const struct qp_request *req, struct layout *out)
{
	const struct qp_caps *c = &req->caps;

	/* one fragment more than asked; of an SRQ QP a receive ring of one request stays */
	out->send_shift = shift_of((uint64_t)c->max_send_sge + 1, c->max_inline_data);
	out->recv_shift = shift_of(req->has_srq ? 1 : c->max_recv_sge, 0);
	out->send_depth = depth_of(c->max_send_wr, out->send_shift, SEND_RESERVE);
	out->recv_depth =
		depth_of(req->has_srq ? 1 : c->max_recv_wr, out->recv_shift, RECV_RESERVE);
}

static bool irdma_qp(const struct qp_request *req, const struct qp_caps *effective,
		     const struct device_facts *dev, struct queue_bytes *out)
{
	struct layout l;

	(void)effective;
	(void)dev;
	if (req->type != QP_TYPE_RC && req->type != QP_TYPE_UD)
		return false;
	lay_out(req, &l);
	*out = (struct queue_bytes){
		.sq = l.send_depth * QUANTUM_BYTES,
		.rq = l.recv_depth * QUANTUM_BYTES,
		.basis = BASIS_MODEL,
		.place = PLACE_PROCESS,
	};
	out->bookkeeping = round_up(out->sq, RING_STEP) - out->sq + round_up(out->rq, RING_STEP) -
			   out->rq + SHADOW_BYTES + QP_STRUCT_BYTES +
			   SEND_TRACK_BYTES * l.send_depth + RECV_TRACK_BYTES * l.recv_depth;
	return true;
}

/* Doubled, since completions of 32 bytes may come with an extension; the shadow area has its own
 * page where CQs can be resized. */
static bool irdma_cq(uint32_t requested_cqe, uint32_t effective_cqe, const struct device_facts *dev,
		     struct queue_bytes *out)
{
	uint64_t entries = 2 * ((uint64_t)(effective_cqe ? effective_cqe : requested_cqe) + 1);
	uint64_t ring = most(entries, 4) * QUANTUM_BYTES;

	(void)dev;
	*out = (struct queue_bytes){
		.rq = ring,
		.bookkeeping = round_up(ring, RING_STEP) - ring + RING_STEP,
		.basis = BASIS_MODEL,
		.place = PLACE_PROCESS,
	};
	return true;
}

static bool irdma_srq(uint32_t max_wr, uint32_t max_sge, const struct device_facts *dev,
		      struct queue_bytes *out)
{
	uint64_t depth = depth_of(max_wr, shift_of(max_sge, 0), RECV_RESERVE);
	uint64_t ring = depth * QUANTUM_BYTES;

	(void)dev;
	*out = (struct queue_bytes){
		.rq = ring,
		.bookkeeping =
			round_up(ring, RING_STEP) - ring + SHADOW_BYTES + RECV_TRACK_BYTES * depth,
		.basis = BASIS_MODEL,
		.place = PLACE_PROCESS,
	};
	return true;
}

static bool irdma_predict_qp(const struct qp_request *req, const struct device_facts *dev,
			     struct prediction *out)
{
	struct layout l;

	if (!irdma_qp(req, NULL, dev, &out->bytes))
		return foretell_refusal(out, EOPNOTSUPP);
	lay_out(req, &l);
	out->caps = req->caps;
	out->caps.max_send_wr = within_32_bits((l.send_depth - SEND_RESERVE) >> l.send_shift);
	out->caps.max_recv_wr = within_32_bits((l.recv_depth - RECV_RESERVE) >> l.recv_shift);
	if (is_over_limits(req, &facts_or_none(dev)->limits))
		return foretell_refusal(out, EINVAL);
	out->fate = FATE_ACCEPTED;
	return true;
}

static bool irdma_predict_cq(uint32_t cqe, const struct device_facts *dev, struct prediction *out)
{
	uint32_t most_cqe = facts_or_none(dev)->limits.max_cqe;

	irdma_cq(cqe, 0, dev, &out->bytes);
	out->cqe = cqe;
	if (!cqe || (most_cqe && cqe > most_cqe - 1))
		return foretell_refusal(out, EINVAL);
	out->fate = FATE_ACCEPTED;
	return true;
}

const struct geometry geometry_irdma = {
	.driver = "irdma",
	.qp = irdma_qp,
	.cq = irdma_cq,
	.srq = irdma_srq,
	.predict_qp = irdma_predict_qp,
	.predict_cq = irdma_predict_cq,
};
