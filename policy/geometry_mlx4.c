/* SPDX-License-Identifier: MIT */
/*
 * ConnectX-3. One anonymous mapping holds both rings of a QP. A send request lies in a slot of a
 * power of two, and some slots are kept free, since the adapter reads ahead: 2 KiB of them and one.
 * Source of facts: rdma-core providers/mlx4, verbs.c: create_qp_ex, mlx4_create_srq, create_cq;
 * qp.c: mlx4_calc_sq_wqe_size, mlx4_alloc_qp_buf, mlx4_set_sq_sizes; srq.c: mlx4_alloc_srq_buf.
 *
 * CQEs are taken to be of 32 bytes; kernels that ask for 64 do not tell applications.
 */
#include <errno.h>

#include "geometry_math.h"

enum {
	SEGMENT_BYTES = 16,
	BLOCK_BYTES = 64,
	DATAGRAM_BYTES = 48,
	LEAST_SLOT_BYTES = 64,
	READ_AHEAD_BYTES = 2048,
	CHUNK_BYTES = 60, /* of inline data, each with a header of 4 */
	CQE_BYTES = 32,
	WRID_BYTES = 8,
	QP_STRUCT_BYTES = 520,
	CQ_STRUCT_BYTES = 384,
	SRQ_STRUCT_BYTES = 232,
	MOST_INLINE_BYTES = 1024,
	MOST_CQES = 0x3fffff,
	MOST_SRQ_WR = 65536,
	MOST_SRQ_SGE = 64,
};

struct layout {
	uint64_t send_slot, send_count, spare; /* bytes, slots, slots kept free */
	uint64_t recv_slot, recv_count;
};

static bool has_rq(const struct qp_request *req)
{
	return !req->has_srq && req->type != QP_TYPE_XRC_SEND && req->type != QP_TYPE_XRC_RECV;
}

/* Segments between control and data. */
static uint64_t transport_bytes(uint32_t type)
{
	switch (type) {
	case QP_TYPE_UD:
		return DATAGRAM_BYTES;
	case QP_TYPE_RC:
	case QP_TYPE_UC:
	case QP_TYPE_XRC_SEND:
		return SEGMENT_BYTES;
	default:
		return 0;
	}
}

static uint64_t send_slot_bytes(const struct qp_request *req)
{
	/* inline data must not cross 64 bytes, and all but UD may begin anywhere in them */
	uint64_t data = (uint64_t)req->caps.max_inline_data + (req->type == QP_TYPE_UD ? 0 : 32);
	uint64_t room = req->caps.max_inline_data + 4 * ((data + CHUNK_BYTES - 1) / CHUNK_BYTES);
	uint64_t size = most((uint64_t)SEGMENT_BYTES * req->caps.max_send_sge,
			     round_up(room, SEGMENT_BYTES));

	size += transport_bytes(req->type);
	if (req->type == QP_TYPE_RC || req->type == QP_TYPE_XRC_SEND)
		size = most(size, 3 * SEGMENT_BYTES);	      /* an atomic operation */
	size = most(size, 2 * SEGMENT_BYTES) + SEGMENT_BYTES; /* binding a window; control */
	if (req->max_tso_header)
		size += round_up(4 + (uint64_t)req->max_tso_header, SEGMENT_BYTES);
	return power_of_two(most(size, LEAST_SLOT_BYTES));
}

static void lay_out(const struct qp_request *req, struct layout *out)
{
	*out = (struct layout){ .send_slot = send_slot_bytes(req) };
	out->spare = READ_AHEAD_BYTES / out->send_slot + 1;
	out->send_count = power_of_two(req->caps.max_send_wr + out->spare);
	if (!has_rq(req))
		return;
	out->recv_slot =
		power_of_two(most((uint64_t)SEGMENT_BYTES * req->caps.max_recv_sge, SEGMENT_BYTES));
	out->recv_count = power_of_two(req->caps.max_recv_wr);
}

static bool mlx4_qp(const struct qp_request *req, const struct qp_caps *effective,
		    const struct device_facts *dev, struct queue_bytes *out)
{
	struct layout l;
	uint64_t rings;

	(void)effective;
	(void)dev;
	if (req->is_rss)
		return false;
	lay_out(req, &l);
	*out = (struct queue_bytes){
		.sq = ring_bytes(l.send_count, l.send_slot),
		.rq = ring_bytes(l.recv_count, l.recv_slot),
		.basis = BASIS_MODEL,
		.place = PLACE_PROCESS,
	};
	rings = out->sq + out->rq;
	out->bookkeeping = round_to_pages(rings) - rings + QP_STRUCT_BYTES +
			   WRID_BYTES * (l.send_count + l.recv_count) + (l.recv_count ? 4 : 0);
	return true;
}

static bool mlx4_cq(uint32_t requested_cqe, uint32_t effective_cqe, const struct device_facts *dev,
		    struct queue_bytes *out)
{
	uint64_t entries =
		power_of_two((uint64_t)(effective_cqe ? effective_cqe : requested_cqe) + 1);
	uint64_t ring = entries * CQE_BYTES;

	(void)dev;
	*out = (struct queue_bytes){
		.rq = ring,
		.bookkeeping = round_to_pages(ring) - ring + CQ_STRUCT_BYTES + 8,
		.basis = BASIS_MODEL,
		.place = PLACE_PROCESS,
	};
	return true;
}

static bool mlx4_srq(uint32_t max_wr, uint32_t max_sge, const struct device_facts *dev,
		     struct queue_bytes *out)
{
	uint64_t entries = power_of_two((uint64_t)max_wr + 1);
	uint64_t slot = power_of_two(most(SEGMENT_BYTES + (uint64_t)SEGMENT_BYTES * max_sge, 32));
	uint64_t ring = ring_bytes(entries, slot);

	(void)dev;
	*out = (struct queue_bytes){
		.rq = ring,
		.bookkeeping =
			round_to_pages(ring) - ring + SRQ_STRUCT_BYTES + WRID_BYTES * entries + 4,
		.basis = BASIS_MODEL,
		.place = PLACE_PROCESS,
	};
	return true;
}

/* verbs.c: mlx4_create_wq: a QP of which one block of a send queue is never used. */
static bool mlx4_wq(uint32_t max_wr, uint32_t max_sge, const struct device_facts *dev,
		    struct queue_bytes *out)
{
	uint64_t entries = power_of_two(max_wr);
	uint64_t ring = saturating_add(
		ring_bytes(entries, power_of_two(SEGMENT_BYTES * most(max_sge, 1))), BLOCK_BYTES);

	(void)dev;
	*out = (struct queue_bytes){
		.rq = ring,
		.bookkeeping =
			round_to_pages(ring) - ring + QP_STRUCT_BYTES + WRID_BYTES * (entries + 1),
		.basis = BASIS_MODEL,
		.place = PLACE_PROCESS,
	};
	return true;
}

static bool mlx4_predict_qp(const struct qp_request *req, const struct device_facts *dev,
			    struct prediction *out)
{
	const struct device_limits *l = &facts_or_none(dev)->limits;
	uint64_t before, room;
	struct layout lay;

	if (!mlx4_qp(req, NULL, dev, &out->bytes))
		return false;
	lay_out(req, &lay);
	before = SEGMENT_BYTES + transport_bytes(req->type);
	room = lay.send_slot - before;
	out->caps = (struct qp_caps){
		.max_send_wr = within_32_bits(lay.send_count - lay.spare),
		.max_recv_wr = within_32_bits(lay.recv_count),
		.max_send_sge = within_32_bits(room / SEGMENT_BYTES),
		.max_recv_sge = req->caps.max_recv_sge,
		.max_inline_data = within_32_bits(room - 4 * (round_up(room, 64) / 64)),
	};
	if (is_over_limits(req, l) || req->caps.max_inline_data > MOST_INLINE_BYTES)
		return foretell_refusal(out, EINVAL);
	out->fate = FATE_ACCEPTED;
	return true;
}

static bool mlx4_predict_cq(uint32_t cqe, const struct device_facts *dev, struct prediction *out)
{
	mlx4_cq(cqe, 0, dev, &out->bytes);
	out->cqe = within_32_bits(power_of_two((uint64_t)cqe + 1) - 1);
	if (cqe > MOST_CQES)
		return foretell_refusal(out, EINVAL);
	out->fate = FATE_ACCEPTED;
	return true;
}

static bool mlx4_predict_srq(uint32_t max_wr, uint32_t max_sge, const struct device_facts *dev,
			     struct prediction *out)
{
	mlx4_srq(max_wr, max_sge, dev, &out->bytes);
	out->caps.max_recv_wr = within_32_bits(power_of_two((uint64_t)max_wr + 1) - 1);
	out->caps.max_recv_sge = max_sge;
	if (max_wr > MOST_SRQ_WR || max_sge > MOST_SRQ_SGE)
		return foretell_refusal(out, EINVAL);
	out->fate = FATE_ACCEPTED;
	return true;
}

const struct geometry geometry_mlx4 = {
	.driver = "mlx4",
	.qp = mlx4_qp,
	.cq = mlx4_cq,
	.srq = mlx4_srq,
	.wq = mlx4_wq,
	.predict_qp = mlx4_predict_qp,
	.predict_cq = mlx4_predict_cq,
	.predict_srq = mlx4_predict_srq,
};
