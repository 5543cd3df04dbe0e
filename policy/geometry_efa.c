/* SPDX-License-Identifier: MIT */
/*
 * Elastic Fabric Adapter. The send ring lies in the adapter's own memory; the provider writes
 * requests into a copy of the same size on the heap first. Receive descriptors, one of 16 bytes an
 * SGE, and completions are kernel memory that it maps. Source of facts: rdma-core providers/efa,
 * verbs.c: efa_setup_qp, efa_sq_initialize, efa_rq_initialize, efa_wq_initialize, create_cq.
 *
 * The least depth of a send queue is the device's affair and not told. CQs are reckoned with the
 * two rings and completions of 16 bytes that plain CQs have.
 */
#include <errno.h>

#include "geometry_math.h"

enum {
	SHORT_WQE_BYTES = 64,
	LONG_WQE_BYTES = 128,
	SHORT_INLINE_BYTES = 32,
	DESCRIPTOR_BYTES = 16,
	TRACK_BYTES = 8 + 4, /* wrid, wrid_idx_pool */
	CQE_BYTES = 16,
	SUB_CQS = 2,
};

struct layout {
	uint64_t send_count, send_wqe, recv_descriptors, recv_count;
};

static void lay_out(const struct qp_request *req, struct layout *out)
{
	const struct qp_caps *c = &req->caps;

	*out = (struct layout){
		.send_wqe =
			c->max_inline_data > SHORT_INLINE_BYTES ? LONG_WQE_BYTES : SHORT_WQE_BYTES,
	};
	if (c->max_send_wr)
		out->send_count = power_of_two(c->max_send_wr);
	if (c->max_recv_wr && c->max_recv_sge) {
		out->recv_descriptors = power_of_two((uint64_t)c->max_recv_sge * c->max_recv_wr);
		out->recv_count = out->recv_descriptors / c->max_recv_sge;
	}
}

static bool efa_qp(const struct qp_request *req, const struct qp_caps *effective,
		   const struct device_facts *dev, struct queue_bytes *out)
{
	struct layout l;
	uint64_t ring;

	(void)dev;
	if (req->type != QP_TYPE_UD && req->type != QP_TYPE_DRIVER)
		return false;
	lay_out(req, &l);
	if (effective && effective->max_send_wr > l.send_count)
		l.send_count = effective->max_send_wr; /* the device's least */
	ring = ring_bytes(l.send_count, l.send_wqe);
	*out = (struct queue_bytes){
		.sq = ring,
		.rq = ring_bytes(l.recv_descriptors, DESCRIPTOR_BYTES),
		.device = round_to_pages(ring),
		.basis = BASIS_MODEL,
		.place = PLACE_DEVICE,
	};
	out->bookkeeping =
		round_to_pages(out->rq) - out->rq +
		TRACK_BYTES * saturating_add(l.send_count, least(l.recv_count, UINT32_MAX));
	return true;
}

static bool efa_cq(uint32_t requested_cqe, uint32_t effective_cqe, const struct device_facts *dev,
		   struct queue_bytes *out)
{
	uint64_t entries = power_of_two(effective_cqe ? effective_cqe : requested_cqe);
	uint64_t ring = entries * CQE_BYTES * SUB_CQS;

	(void)dev;
	*out = (struct queue_bytes){
		.rq = ring,
		.bookkeeping = round_to_pages(ring) - ring,
		.basis = BASIS_MODEL,
		.place = PLACE_KERNEL,
	};
	return true;
}

static bool efa_predict_qp(const struct qp_request *req, const struct device_facts *dev,
			   struct prediction *out)
{
	struct layout l;

	if (!efa_qp(req, NULL, dev, &out->bytes))
		return foretell_refusal(out, EOPNOTSUPP);
	lay_out(req, &l);
	out->caps = req->caps;
	out->caps.max_send_wr = within_32_bits(l.send_count);
	out->caps.max_recv_wr = within_32_bits(l.recv_count);
	if (is_over_limits(req, &facts_or_none(dev)->limits))
		return foretell_refusal(out, EINVAL);
	out->fate = FATE_ACCEPTED;
	out->guessed = true;
	return true;
}

static bool efa_predict_cq(uint32_t cqe, const struct device_facts *dev, struct prediction *out)
{
	efa_cq(cqe, 0, dev, &out->bytes);
	out->cqe = within_32_bits(power_of_two(cqe));
	return true;
}

const struct geometry geometry_efa = {
	.driver = "efa",
	.qp = efa_qp,
	.cq = efa_cq,
	.predict_qp = efa_predict_qp,
	.predict_cq = efa_predict_cq,
};
