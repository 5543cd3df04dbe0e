/* SPDX-License-Identifier: MIT */
/*
 * HiSilicon. One anonymous mapping, populated at once, with three regions in steps of 4096 bytes:
 * send requests of 64 bytes with room for 2 SGEs, the SGEs beyond those, and receive requests.
 * Source of facts: rdma-core providers/hns, hns_roce_u_hw_v2.c, hns_roce_u_verbs.c:
 * qp_alloc_recv..., qp_alloc_wqe, set_extend_sge_param, hns_roce_set_qp_params,
 * verify_qp_create_cap, hns_roce_u_create_cq, hns_roce_alloc_srq_buf.
 *
 * The first generation keeps one SGE of each receive request for itself, later ones do not: told
 * apart by the power of two in what comes back.
 */
#include <errno.h>

#include "geometry_math.h"

enum {
	SEND_WQE_BYTES = 64,
	SGE_BYTES = 16,
	SGES_IN_WQE = 2,
	LEAST_DEPTH = 64,
	REGION_STEP = 4096,
	WRID_BYTES = 8,
	DOORBELL_BYTES = 4,
	CQE_BYTES = 32,
	INDEX_BYTES = 4, /* of an SRQ */
};

static uint64_t region(uint64_t bytes)
{
	return round_up(bytes, REGION_STEP);
}

static uint64_t send_count(const struct qp_request *req)
{
	return power_of_two(most(req->caps.max_send_wr, LEAST_DEPTH));
}

/* SGEs that do not fit into their request: UD has no room for any. */
static uint64_t extended_bytes(const struct qp_request *req)
{
	uint64_t inside = req->type == QP_TYPE_UD ? 0 : SGES_IN_WQE;
	uint64_t beyond = req->caps.max_send_sge > inside ? req->caps.max_send_sge - inside : 0;
	uint64_t entries = power_of_two(saturating_mul(send_count(req), beyond));

	return beyond ? most(ring_bytes(entries, SGE_BYTES), REGION_STEP) : 0;
}

static uint64_t recv_wqe_bytes(uint32_t sge, unsigned int reserved)
{
	return SGE_BYTES * power_of_two((uint64_t)sge + reserved);
}

/* One SGE is kept where the effective number and that one are a power of two. */
static unsigned int reserved_sges(const struct qp_caps *effective)
{
	uint32_t sge = effective ? effective->max_recv_sge : 0;

	return sge > 1 && (sge & (sge - 1)) == 0 ? 0 : 1;
}

static bool hns_qp(const struct qp_request *req, const struct qp_caps *effective,
		   const struct device_facts *dev, struct queue_bytes *out)
{
	uint64_t sends = send_count(req), extended = extended_bytes(req), recvs = 0, all;

	(void)dev;
	*out = (struct queue_bytes){ .basis = BASIS_MODEL, .place = PLACE_PROCESS };
	if (!req->has_srq && req->caps.max_recv_wr) {
		recvs = power_of_two(req->caps.max_recv_wr);
		out->rq = ring_bytes(
			recvs, recv_wqe_bytes(req->caps.max_recv_sge, reserved_sges(effective)));
	}
	out->sq = least(saturating_add(sends * SEND_WQE_BYTES, extended), QUEUE_BYTES_MOST);
	all = region(sends * SEND_WQE_BYTES) + region(extended) + region(out->rq);
	out->bookkeeping = all - sends * SEND_WQE_BYTES - extended - out->rq +
			   WRID_BYTES * (sends + recvs) + DOORBELL_BYTES * (recvs ? 2 : 1);
	return true;
}

static uint64_t cq_entries(uint32_t cqe)
{
	return most(LEAST_DEPTH, power_of_two(cqe));
}

static bool hns_cq(uint32_t requested_cqe, uint32_t effective_cqe, const struct device_facts *dev,
		   struct queue_bytes *out)
{
	uint64_t ring = cq_entries(effective_cqe ? effective_cqe : requested_cqe) * CQE_BYTES;

	(void)dev;
	*out = (struct queue_bytes){
		.rq = ring,
		.bookkeeping = round_to_pages(ring) - ring + DOORBELL_BYTES,
		.basis = BASIS_MODEL,
		.place = PLACE_PROCESS,
	};
	return true;
}

/* Requests, and beside them a queue of their indices. */
static bool hns_srq(uint32_t max_wr, uint32_t max_sge, const struct device_facts *dev,
		    struct queue_bytes *out)
{
	uint64_t entries = power_of_two((uint64_t)max_wr + 1);
	uint64_t ring = ring_bytes(entries, recv_wqe_bytes(max_sge, 1));
	uint64_t indices = entries * INDEX_BYTES;

	(void)dev;
	*out = (struct queue_bytes){
		.rq = ring,
		.bookkeeping = region(ring) - ring + region(indices) + WRID_BYTES * entries +
			       round_up(entries, 64) / 8,
		.basis = BASIS_MODEL,
		.place = PLACE_PROCESS,
	};
	return true;
}

static bool hns_predict_qp(const struct qp_request *req, const struct device_facts *dev,
			   struct prediction *out)
{
	const struct qp_caps *c = &req->caps;
	const struct device_limits *l = &facts_or_none(dev)->limits;

	hns_qp(req, NULL, dev, &out->bytes);
	out->caps = *c;
	out->caps.max_send_wr =
		within_32_bits(least(send_count(req), l->max_qp_wr ? l->max_qp_wr : UINT32_MAX));
	out->caps.max_recv_wr =
		req->has_srq || !c->max_recv_wr ? 0 : within_32_bits(power_of_two(c->max_recv_wr));
	out->caps.max_recv_sge = within_32_bits(power_of_two((uint64_t)c->max_recv_sge + 1) - 1);
	out->caps.max_inline_data =
		c->max_inline_data ? within_32_bits(power_of_two(c->max_inline_data)) : 0;
	if ((!c->max_send_wr && req->type != QP_TYPE_XRC_RECV) || is_over_limits(req, l) ||
	    (!req->has_srq && c->max_recv_wr && !c->max_recv_sge))
		return foretell_refusal(out, EINVAL);
	out->fate = FATE_ACCEPTED;
	out->guessed = true;
	return true;
}

static bool hns_predict_cq(uint32_t cqe, const struct device_facts *dev, struct prediction *out)
{
	hns_cq(cqe, 0, dev, &out->bytes);
	out->cqe = within_32_bits(cq_entries(cqe));
	if (!cqe || is_over(cqe, facts_or_none(dev)->limits.max_cqe))
		return foretell_refusal(out, EINVAL);
	out->fate = FATE_ACCEPTED;
	return true;
}

const struct geometry geometry_hns = {
	.driver = "hns",
	.qp = hns_qp,
	.cq = hns_cq,
	.srq = hns_srq,
	.predict_qp = hns_predict_qp,
	.predict_cq = hns_predict_cq,
};
