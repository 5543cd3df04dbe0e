/* SPDX-License-Identifier: MIT */
/*
 * Microsoft's MANA. An RC QP has four queues, each an anonymous mapping of a power of two and at
 * least 4096 bytes: those of the application's sends and receives, and two that the adapter answers
 * with; and beside them two shadow queues. Source of facts: rdma-core providers/mana, qp.c:
 * mana_create_qp_rc, get_wqe_size, gdma.h; cq.c: mana_create_cq; manadv.h.
 *
 * RAW_PACKET QPs take their memory from the application's allocator.
 */
#include <errno.h>

#include "geometry_math.h"

enum {
	WQE_STEP = 32,
	SGE_BYTES = 16,
	SEND_HEADER_BYTES = 8 + 24,
	RECV_HEADER_BYTES = 16,
	LEAST_QUEUE_BYTES = 4096,
	ROLLBACK_BYTES = 16,
	SHADOW_BYTES = 24,
	CQE_BYTES = 64,
	QP_STRUCT_BYTES = 648,
};

static uint64_t hardware_size(uint64_t bytes)
{
	return least(most(power_of_two(bytes), LEAST_QUEUE_BYTES), QUEUE_BYTES_MOST / 2 + 1);
}

static bool mana_qp(const struct qp_request *req, const struct qp_caps *effective,
		    const struct device_facts *dev, struct queue_bytes *out)
{
	const struct qp_caps *c = &req->caps;
	uint64_t send_wqe =
		round_up(SGE_BYTES * (most(1, c->max_send_sge) + 1) + SEND_HEADER_BYTES, WQE_STEP);
	uint64_t recv_wqe =
		round_up(SGE_BYTES * (uint64_t)c->max_recv_sge + RECV_HEADER_BYTES, WQE_STEP);

	(void)effective;
	(void)dev;
	if (req->type != QP_TYPE_RC)
		return false;
	*out = (struct queue_bytes){
		.sq = hardware_size(saturating_mul(c->max_send_wr, send_wqe)),
		.rq = hardware_size(saturating_mul(c->max_recv_wr, recv_wqe)),
		.bookkeeping = ROLLBACK_BYTES + 2 * LEAST_QUEUE_BYTES + QP_STRUCT_BYTES +
			       SHADOW_BYTES * (power_of_two(c->max_send_wr) +
					       power_of_two(c->max_recv_wr)),
		.basis = BASIS_MODEL,
		.place = PLACE_PROCESS,
	};
	return true;
}

static bool mana_cq(uint32_t requested_cqe, uint32_t effective_cqe, const struct device_facts *dev,
		    struct queue_bytes *out)
{
	uint64_t cqe = effective_cqe ? effective_cqe : requested_cqe;

	(void)dev;
	*out = (struct queue_bytes){
		.rq = hardware_size(cqe * CQE_BYTES),
		.basis = BASIS_MODEL,
		.place = PLACE_PROCESS,
	};
	return true;
}

static bool mana_predict_qp(const struct qp_request *req, const struct device_facts *dev,
			    struct prediction *out)
{
	if (req->type != QP_TYPE_RC && req->type != QP_TYPE_RAW_PACKET)
		return foretell_refusal(out, EOPNOTSUPP);
	if (!mana_qp(req, NULL, dev, &out->bytes))
		return false;
	out->caps = req->caps;
	return true;
}

const struct geometry geometry_mana = {
	.driver = "mana",
	.qp = mana_qp,
	.cq = mana_cq,
	.predict_qp = mana_predict_qp,
};
