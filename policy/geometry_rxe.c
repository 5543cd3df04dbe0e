/* SPDX-License-Identifier: MIT */
/*
 * Soft-RoCE. Every queue is kernel memory that the provider maps: a header of 384 bytes, then a
 * power of two of slots, one more than can be used at least, each padded to a power of two and at
 * least to a cache line; the whole rounded to pages. sq and rq are those mappings as
 * /proc/self/maps shows them, bookkeeping is what the provider (rdma-core 44) allocates beside.
 *
 * The kernel raises SGEs and inline data to whichever takes more room in the slot and writes both
 * back, and may or may not write back the raised depth, so that request and effective caps give the
 * same. Element sizes are those of 64-bit kernels since 5.13, which keep a 72 byte completion
 * (ib_wc) in the slot of a user's 48 byte one; older ones fit it into half the room.
 *
 * Source of facts: rdma-core providers/rxe, rxe.c: check_qp_init_attr, rxe_create_qp; Linux
 * drivers/infiniband/sw/rxe, rxe_queue.c: rxe_queue_init, rxe_qp.c: rxe_qp_chk_cap,
 * rxe_qp_init_req, rxe_cq.c: rxe_cq_chk_attr, rxe_srq.c: rxe_srq_chk_init, rxe_param.h.
 */
#include <errno.h>

#include "geometry_math.h"

enum {
	QUEUE_HEADER_BYTES = 384,
	CACHE_LINE_BYTES = 64,
	SEND_WQE_BYTES = 208,
	RECV_WQE_BYTES = 40,
	SGE_BYTES = 16,
	CQE_BYTES = 72,
	QP_STRUCT_BYTES = 464,
	CQ_STRUCT_BYTES = 344,
	SRQ_STRUCT_BYTES = 208,
	MOST_INLINE_BYTES = 512,
};

/* enum ibv_qp_create_send_ops_flags (infiniband/verbs.h). */
enum {
	OPS_UD = 1 << 2 | 1 << 3,			     /* send, with immediate */
	OPS_UC = OPS_UD | 1 << 0 | 1 << 1 | 1 << 8 | 1 << 9, /* write, bind, with invalidate */
	OPS_RC = (1 << 10) - 1,
};

static uint64_t mapping_bytes(uint32_t entries, uint64_t entry_bytes)
{
	uint64_t slots = power_of_two((uint64_t)entries + 1);
	uint64_t slot_bytes = power_of_two(most(entry_bytes, CACHE_LINE_BYTES));
	uint64_t ring = saturating_mul(slots, slot_bytes);

	return least(round_to_pages(saturating_add(QUEUE_HEADER_BYTES, ring)), QUEUE_BYTES_MOST);
}

static uint64_t recv_wqe_bytes(uint32_t max_sge)
{
	return RECV_WQE_BYTES + (uint64_t)SGE_BYTES * max_sge;
}

static bool rxe_qp(const struct qp_request *req, const struct qp_caps *effective,
		   const struct device_facts *dev, struct queue_bytes *out)
{
	const struct qp_caps *caps = effective ? effective : &req->caps;
	uint64_t payload = most((uint64_t)SGE_BYTES * caps->max_send_sge, caps->max_inline_data);

	(void)dev;
	if (req->type != QP_TYPE_RC && req->type != QP_TYPE_UC && req->type != QP_TYPE_UD)
		return false; /* the driver makes no others */
	*out = (struct queue_bytes){
		.sq = mapping_bytes(caps->max_send_wr, SEND_WQE_BYTES + payload),
		.bookkeeping = QP_STRUCT_BYTES,
		.basis = BASIS_MODEL,
		.place = PLACE_KERNEL,
	};
	if (!req->has_srq)
		out->rq = mapping_bytes(caps->max_recv_wr, recv_wqe_bytes(caps->max_recv_sge));
	return true;
}

static bool rxe_cq(uint32_t requested_cqe, uint32_t effective_cqe, const struct device_facts *dev,
		   struct queue_bytes *out)
{
	(void)dev;
	*out = (struct queue_bytes){
		.rq = mapping_bytes(effective_cqe ? effective_cqe : requested_cqe, CQE_BYTES),
		.bookkeeping = CQ_STRUCT_BYTES,
		.basis = BASIS_MODEL,
		.place = PLACE_KERNEL,
	};
	return true;
}

static bool rxe_srq(uint32_t max_wr, uint32_t max_sge, const struct device_facts *dev,
		    struct queue_bytes *out)
{
	(void)dev;
	*out = (struct queue_bytes){
		/* the kernel raises 0 SGEs to 1; 0 requests it refuses */
		.rq = mapping_bytes(max_wr, recv_wqe_bytes(max_sge ? max_sge : 1)),
		.bookkeeping = SRQ_STRUCT_BYTES,
		.basis = BASIS_MODEL,
		.place = PLACE_KERNEL,
	};
	return true;
}

static uint64_t ops_known(uint32_t type)
{
	return type == QP_TYPE_RC ? OPS_RC : type == QP_TYPE_UC ? OPS_UC : OPS_UD;
}

static bool rxe_predict_qp(const struct qp_request *req, const struct device_facts *dev,
			   struct prediction *out)
{
	const struct device_limits *l = &facts_or_none(dev)->limits;
	const struct qp_caps *c = &req->caps;
	uint64_t payload = most((uint64_t)SGE_BYTES * c->max_send_sge, c->max_inline_data);

	out->caps = *c;
	if (!rxe_qp(req, NULL, dev, &out->bytes))
		return foretell_refusal(out, EOPNOTSUPP);
	if (req->create_flags || req->max_tso_header || req->is_rss ||
	    (req->has_send_ops && req->send_ops & ~ops_known(req->type)))
		return foretell_refusal(out, EOPNOTSUPP);
	if (is_over_limits(req, l) || c->max_inline_data > MOST_INLINE_BYTES)
		return foretell_refusal(out, EINVAL);
	out->caps.max_send_sge = (uint32_t)(payload / SGE_BYTES);
	out->caps.max_inline_data = (uint32_t)payload;
	out->fate = FATE_ACCEPTED;
	return true;
}

static bool rxe_predict_cq(uint32_t cqe, const struct device_facts *dev, struct prediction *out)
{
	rxe_cq(cqe, 0, dev, &out->bytes);
	out->cqe = (uint32_t)(power_of_two((uint64_t)cqe + 1) - 1);
	if (!cqe || is_over(cqe, facts_or_none(dev)->limits.max_cqe))
		return foretell_refusal(out, EINVAL);
	out->fate = FATE_ACCEPTED;
	return true;
}

static bool rxe_predict_srq(uint32_t max_wr, uint32_t max_sge, const struct device_facts *dev,
			    struct prediction *out)
{
	const struct device_limits *l = &facts_or_none(dev)->limits;

	rxe_srq(max_wr, max_sge, dev, &out->bytes);
	out->caps.max_recv_wr = max_wr;
	out->caps.max_recv_sge = max_sge ? max_sge : 1;
	if (!max_wr || is_over(max_wr, l->max_srq_wr) || is_over(max_sge, l->max_srq_sge))
		return foretell_refusal(out, EINVAL);
	out->fate = FATE_ACCEPTED;
	return true;
}

const struct geometry geometry_rxe = {
	.driver = "rxe",
	.qp = rxe_qp,
	.cq = rxe_cq,
	.srq = rxe_srq,
	.predict_qp = rxe_predict_qp,
	.predict_cq = rxe_predict_cq,
	.predict_srq = rxe_predict_srq,
};
