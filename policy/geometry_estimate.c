/* SPDX-License-Identifier: MIT */
/*
 * The row for providers without a model: 64 bytes a request and 16 per SGE, 64 bytes a completion.
 * Inline data, powers of two and page rounding differ too much between providers to be guessed.
 */
#include "geometry.h"
#include "saturate.h"

enum { REQUEST_BYTES = 64, SGE_BYTES = 16, COMPLETION_BYTES = 64 };

static uint64_t ring_bytes(uint32_t max_wr, uint32_t max_sge)
{
	uint64_t request = REQUEST_BYTES + (uint64_t)SGE_BYTES * max_sge;

	return least(saturating_mul(max_wr, request), QUEUE_BYTES_MOST);
}

static bool estimate_qp(const struct qp_request *req, const struct qp_caps *effective,
			const struct device_facts *dev, struct queue_bytes *out)
{
	const struct qp_caps *caps = effective ? effective : &req->caps;
	bool sends = req->type != QP_TYPE_XRC_RECV;
	bool receives = sends && req->type != QP_TYPE_XRC_SEND && !req->has_srq;

	(void)dev;
	*out = (struct queue_bytes){ .basis = BASIS_ESTIMATE };
	if (sends)
		out->sq = ring_bytes(caps->max_send_wr, caps->max_send_sge);
	if (receives)
		out->rq = ring_bytes(caps->max_recv_wr, caps->max_recv_sge);
	return true;
}

static bool estimate_cq(uint32_t requested_cqe, uint32_t effective_cqe,
			const struct device_facts *dev, struct queue_bytes *out)
{
	uint64_t entries = effective_cqe ? effective_cqe : requested_cqe;

	(void)dev;
	*out = (struct queue_bytes){ .rq = entries * COMPLETION_BYTES, .basis = BASIS_ESTIMATE };
	return true;
}

static bool estimate_srq(uint32_t max_wr, uint32_t max_sge, const struct device_facts *dev,
			 struct queue_bytes *out)
{
	(void)dev;
	*out = (struct queue_bytes){ .rq = ring_bytes(max_wr, max_sge), .basis = BASIS_ESTIMATE };
	return true;
}

const struct geometry geometry_estimate = {
	.driver = "",
	.qp = estimate_qp,
	.cq = estimate_cq,
	.srq = estimate_srq,
};
