/* SPDX-License-Identifier: MIT */
/*
 * Omni-Path and its forerunner InfiniPath, which share their layout. The kernel keeps the send
 * queue for itself: sending is a system call. Receive queues and CQs are kernel memory that the
 * provider maps. Source of facts: rdma-core providers/hfi1verbs, hfiverbs.c, verbs.c:
 * hfi1_create_qp, hfi1_create_cq, hfi1_create_srq, hfiverbs.h: struct hfi1_rwq, hfi1_rwqe,
 * hfi1_cq_wc; providers/ipathverbs likewise.
 */
#include "geometry_math.h"

enum {
	RING_HEADER_BYTES = 8,
	WQE_BYTES = 16,
	SGE_BYTES = 16,
	CQ_HEADER_BYTES = 56,
	CQE_BYTES = 48,
};

/* Of nothing nothing is mapped. */
static uint64_t recv_bytes(uint32_t wr, uint32_t sge)
{
	uint64_t slots = (uint64_t)wr + 1;

	return wr ? ring_bytes(slots, WQE_BYTES + (uint64_t)SGE_BYTES * sge) + RING_HEADER_BYTES
		  : 0;
}

static struct queue_bytes mapping(uint64_t bytes)
{
	return (struct queue_bytes){
		.rq = bytes,
		.bookkeeping = round_to_pages(bytes) - bytes,
		.basis = BASIS_MODEL,
		.place = PLACE_KERNEL,
	};
}

static bool hfi1_qp(const struct qp_request *req, const struct qp_caps *effective,
		    const struct device_facts *dev, struct queue_bytes *out)
{
	const struct qp_caps *c = effective ? effective : &req->caps;

	(void)dev;
	*out = mapping(req->has_srq ? 0 : recv_bytes(c->max_recv_wr, c->max_recv_sge));
	return true;
}

static bool hfi1_cq(uint32_t requested_cqe, uint32_t effective_cqe, const struct device_facts *dev,
		    struct queue_bytes *out)
{
	uint64_t cqe = effective_cqe ? effective_cqe : requested_cqe;

	(void)dev;
	*out = mapping(CQ_HEADER_BYTES + CQE_BYTES * cqe);
	return true;
}

static bool hfi1_srq(uint32_t max_wr, uint32_t max_sge, const struct device_facts *dev,
		     struct queue_bytes *out)
{
	(void)dev;
	*out = mapping(recv_bytes(max_wr, max_sge));
	return true;
}

const struct geometry geometry_hfi1 = {
	.driver = "hfi1verbs",
	.qp = hfi1_qp,
	.cq = hfi1_cq,
	.srq = hfi1_srq,
};

const struct geometry geometry_ipath = {
	.driver = "ipathverbs",
	.qp = hfi1_qp,
	.cq = hfi1_cq,
	.srq = hfi1_srq,
};
