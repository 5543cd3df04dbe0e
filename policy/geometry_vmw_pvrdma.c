/* SPDX-License-Identifier: MIT */
/*
 * VMware's paravirtual device. Each ring is an anonymous mapping of slots of a power of two; a page
 * before those of the send queue, the CQ and the SRQ holds the state of the rings. Source of facts:
 * rdma-core providers/vmw_pvrdma, qp.c: pvrdma_create_qp, pvrdma_alloc_qp_buf, pvrdma_create_srq;
 * cq.c: pvrdma_create_cq, pvrdma_alloc_cq_buf.
 */
#include <errno.h>

#include "geometry_math.h"

enum {
	SEND_HEADER_BYTES = 80,
	RECV_HEADER_BYTES = 16,
	SGE_BYTES = 16,
	CQE_BYTES = 64,
	WRID_BYTES = 8,
};

static uint64_t slot_bytes(uint64_t header, uint32_t sge)
{
	return power_of_two(header + (uint64_t)SGE_BYTES * sge);
}

static uint64_t page_rest(uint64_t ring)
{
	return round_to_pages(ring) - ring;
}

static bool vmw_pvrdma_qp(const struct qp_request *req, const struct qp_caps *effective,
			  const struct device_facts *dev, struct queue_bytes *out)
{
	const struct qp_caps *c = &req->caps;
	uint64_t sends = power_of_two(c->max_send_wr);
	uint64_t recvs = req->has_srq ? 0 : power_of_two(c->max_recv_wr);

	(void)effective;
	(void)dev;
	*out = (struct queue_bytes){
		.sq = ring_bytes(sends, slot_bytes(SEND_HEADER_BYTES, c->max_send_sge)),
		.rq = ring_bytes(recvs, slot_bytes(RECV_HEADER_BYTES, c->max_recv_sge)),
		.basis = BASIS_MODEL,
		.place = PLACE_PROCESS,
	};
	out->bookkeeping = page_bytes() + page_rest(out->sq) + page_rest(out->rq) +
			   WRID_BYTES * (sends + recvs);
	return true;
}

static bool vmw_pvrdma_cq(uint32_t requested_cqe, uint32_t effective_cqe,
			  const struct device_facts *dev, struct queue_bytes *out)
{
	uint64_t ring = power_of_two(effective_cqe ? effective_cqe : requested_cqe) * CQE_BYTES;

	(void)dev;
	*out = (struct queue_bytes){
		.rq = ring,
		.bookkeeping = page_bytes() + page_rest(ring),
		.basis = BASIS_MODEL,
		.place = PLACE_PROCESS,
	};
	return true;
}

/* Twice the ring: one half is the queue of free requests. */
static bool vmw_pvrdma_srq(uint32_t max_wr, uint32_t max_sge, const struct device_facts *dev,
			   struct queue_bytes *out)
{
	uint64_t entries = power_of_two(max_wr);
	uint64_t ring = ring_bytes(entries, slot_bytes(RECV_HEADER_BYTES, max_sge)) / 2;

	(void)dev;
	ring = least(ring * 2, QUEUE_BYTES_MOST / 2);
	*out = (struct queue_bytes){
		.rq = 2 * ring,
		.bookkeeping = page_bytes() + 2 * page_rest(ring) + WRID_BYTES * entries,
		.basis = BASIS_MODEL,
		.place = PLACE_PROCESS,
	};
	return true;
}

static bool vmw_pvrdma_predict_qp(const struct qp_request *req, const struct device_facts *dev,
				  struct prediction *out)
{
	const struct qp_caps *c = &req->caps;

	vmw_pvrdma_qp(req, NULL, dev, &out->bytes);
	out->caps = *c;
	out->caps.max_send_wr = within_32_bits(power_of_two(c->max_send_wr));
	if (!req->has_srq)
		out->caps.max_recv_wr = within_32_bits(power_of_two(c->max_recv_wr));
	if (is_over_limits(req, &facts_or_none(dev)->limits))
		return foretell_refusal(out, EINVAL);
	return true;
}

static bool vmw_pvrdma_predict_cq(uint32_t cqe, const struct device_facts *dev,
				  struct prediction *out)
{
	vmw_pvrdma_cq(cqe, 0, dev, &out->bytes);
	out->cqe = within_32_bits(power_of_two(cqe));
	return cqe ? true : foretell_refusal(out, 0);
}

const struct geometry geometry_vmw_pvrdma = {
	.driver = "vmw_pvrdma",
	.qp = vmw_pvrdma_qp,
	.cq = vmw_pvrdma_cq,
	.srq = vmw_pvrdma_srq,
	.predict_qp = vmw_pvrdma_predict_qp,
	.predict_cq = vmw_pvrdma_predict_cq,
};
