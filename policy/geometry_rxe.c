/* SPDX-License-Identifier: MIT */
/*
 * Soft-RoCE. Every queue is kernel memory that the provider maps: a header of 384 bytes, then a
 * power of two of slots, one more than can be used at least, each padded to a power of two and at
 * least to a cache line; the whole rounded to pages. sq and rq are those mappings as
 * /proc/self/maps shows them, bookkeeping is what the provider (rdma-core 44) allocates beside.
 *
 * The kernel raises SGEs and inline data to whichever takes more room in the slot and writes both
 * back, and may or may not write back the raised depth, so that request and effective caps give
 * the same. Element sizes are those of 64-bit kernels since 5.13, which keep a 72 byte completion
 * (ib_wc) in the slot of a user's 48 byte one; older ones fit it into half the room.
 */
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

const struct geometry geometry_rxe = {
	.driver = "rxe",
	.qp = rxe_qp,
	.cq = rxe_cq,
	.srq = rxe_srq,
};
