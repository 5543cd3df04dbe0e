/* SPDX-License-Identifier: MIT */
/*
 * AMD Pensando. Each ring is an anonymous mapping. A depth becomes the power of two above it, also
 * if it is one, and one slot of it stays empty: 128 takes 256 and gives 255. Source of facts:
 * rdma-core providers/ionic, ionic_verbs.c: ionic_create_qp_ex, ionic_create_cq_ex; ionic_queue.c:
 * ionic_queue_init.
 *
 * Where the device allows, the rings are mirrored in its own memory, which takes no RAM and which
 * nothing here tells; CQs are reckoned with one ring, though a PD may ask for several.
 */
#include <errno.h>

#include "geometry_math.h"

enum {
	LEAST_SLOT_BYTES = 64,
	HEADER_BYTES = 32,
	SGE_BYTES = 16,
	SEND_TRACK_BYTES = 32 + 2,
	RECV_TRACK_BYTES = 16 + 2,
	CQE_BYTES = 32,
	CQ_RESERVE = 100,
	MOST_DEPTH = 0xffff,
	MOST_SLOT_BYTES = 65536,
	QP_STRUCT_BYTES = 784,
	CQ_STRUCT_BYTES = 728,
};

static uint64_t slot_bytes(uint32_t sge, uint32_t inline_data)
{
	uint64_t data = most((uint64_t)SGE_BYTES * sge, inline_data);

	return power_of_two(most(HEADER_BYTES + data, LEAST_SLOT_BYTES));
}

/* Above n, and a page at least. */
static uint64_t depth_of(uint64_t n, uint64_t slot)
{
	return most(power_of_two(n + 1), power_of_two((page_bytes() + slot - 1) / slot));
}

struct layout {
	uint64_t send_slot, send_depth, recv_slot, recv_depth;
};

static void lay_out(const struct qp_request *req, struct layout *out)
{
	const struct qp_caps *c = &req->caps;

	out->send_slot = slot_bytes(c->max_send_sge, c->max_inline_data);
	out->send_depth = depth_of(c->max_send_wr, out->send_slot);
	out->recv_slot = slot_bytes(c->max_recv_sge, 0);
	out->recv_depth = depth_of(c->max_recv_wr, out->recv_slot);
}

static bool ionic_qp(const struct qp_request *req, const struct qp_caps *effective,
		     const struct device_facts *dev, struct queue_bytes *out)
{
	struct layout l;

	(void)effective;
	(void)dev;
	if (req->type != QP_TYPE_RC && req->type != QP_TYPE_UD)
		return false;
	lay_out(req, &l);
	*out = (struct queue_bytes){
		.sq = ring_bytes(l.send_depth, l.send_slot),
		.rq = ring_bytes(l.recv_depth, l.recv_slot),
		.bookkeeping = QP_STRUCT_BYTES + l.send_depth * SEND_TRACK_BYTES +
			       l.recv_depth * RECV_TRACK_BYTES,
		.basis = BASIS_MODEL,
		.place = PLACE_PROCESS,
	};
	return true;
}

static bool ionic_cq(uint32_t requested_cqe, uint32_t effective_cqe, const struct device_facts *dev,
		     struct queue_bytes *out)
{
	uint64_t depth = depth_of((uint64_t)requested_cqe + CQ_RESERVE, CQE_BYTES);

	(void)effective_cqe;
	(void)dev;
	*out = (struct queue_bytes){
		.rq = depth * CQE_BYTES,
		.bookkeeping = CQ_STRUCT_BYTES,
		.basis = BASIS_MODEL,
		.place = PLACE_PROCESS,
	};
	return true;
}

static bool ionic_predict_qp(const struct qp_request *req, const struct device_facts *dev,
			     struct prediction *out)
{
	struct layout l;

	if (!ionic_qp(req, NULL, dev, &out->bytes))
		return foretell_refusal(out, ENOTSUP);
	lay_out(req, &l);
	out->caps = (struct qp_caps){
		.max_send_wr = within_32_bits(l.send_depth - 1),
		.max_recv_wr = within_32_bits(l.recv_depth - 1),
		.max_send_sge = within_32_bits((l.send_slot - HEADER_BYTES) / SGE_BYTES),
		.max_recv_sge = within_32_bits((l.recv_slot - HEADER_BYTES) / SGE_BYTES),
		.max_inline_data = within_32_bits(l.send_slot - HEADER_BYTES),
	};
	if (req->caps.max_send_wr > MOST_DEPTH || req->caps.max_recv_wr > MOST_DEPTH ||
	    l.send_slot > MOST_SLOT_BYTES || l.recv_slot > MOST_SLOT_BYTES)
		return foretell_refusal(out, EINVAL);
	out->fate = FATE_ACCEPTED;
	out->guessed = true;
	return true;
}

static bool ionic_predict_cq(uint32_t cqe, const struct device_facts *dev, struct prediction *out)
{
	ionic_cq(cqe, 0, dev, &out->bytes);
	out->cqe = cqe;
	if (!cqe || cqe > MOST_DEPTH - CQ_RESERVE)
		return foretell_refusal(out, EINVAL);
	out->fate = FATE_ACCEPTED;
	return true;
}

const struct geometry geometry_ionic = {
	.driver = "ionic",
	.qp = ionic_qp,
	.cq = ionic_cq,
	.predict_qp = ionic_predict_qp,
	.predict_cq = ionic_predict_cq,
};
