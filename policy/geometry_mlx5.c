/* SPDX-License-Identifier: MIT */
/*
 * ConnectX and its kin. The provider sizes all queues itself and tells the kernel, so that every
 * size and nearly every refusal can be foretold. Source of facts: rdma-core providers/mlx5,
 * verbs.c: _sq_overhead, mlx5_calc_send_wqe, mlx5_calc_sq_size, mlx5_calc_rcv_wqe,
 * mlx5_calc_rq_size, mlx5_alloc_qp_buf, create_qp, create_cq, mlx5_create_srq; qp.c:
 * mlx5_qp_fill_wr_pfns; srq.c: mlx5_alloc_srq_buf; buf.c: mlx5_alloc_prefered_buf; dbrec.c.
 *
 * A QP has one buffer, receive ring first, rounded to pages; a RAW_PACKET QP and an "underlay" UD
 * QP have one for each ring. A send request takes blocks of 64 bytes for all that it might have to
 * hold: plain ibv_create_qp must reckon with binding memory windows, 192 bytes.
 *
 * Sizes of the structs beside them are those of release 44.
 */
#include <errno.h>

#include "geometry_math.h"

enum {
	BLOCK_BYTES = 64,
	SEGMENT_BYTES = 16, /* control, data, raddr, atomic, xrc, Ethernet padding, signature */
	DATAGRAM_BYTES = 48,
	ETHERNET_BYTES = 32,
	INLINE_HEADER_BYTES = 4,
	WINDOW_BYTES = SEGMENT_BYTES + 48 + 64 + 64, /* control, UMR control, context, KLM */
	BLOCK_ARRAY_BYTES = 8 + 4 + 4,		     /* wrid, wr_data, wqe_head */
	WRID_BYTES = 8,
	DOORBELL_BYTES = 64, /* a slot of its page, a cache line */
	CQE_BYTES = 64,
	MOST_CQES = 1 << 24,
	HUGE_CHUNK_BYTES = 32768,
	QP_STRUCT_BYTES = 960,
	CQ_STRUCT_BYTES = 592,
	SRQ_STRUCT_BYTES = 360,
	WQ_STRUCT_BYTES = 336,
	/* First guesses of what the device tells the provider alone. */
	USUAL_SEND_WQE_BYTES = 1024,
	USUAL_RECV_WQE_BYTES = 512,
	USUAL_QUEUE = 32768,
};

/* enum ibv_qp_create_send_ops_flags, enum ibv_qp_create_flags (infiniband/verbs.h). */
enum {
	OP_WRITE = 1 << 0,
	OP_WRITE_IMM = 1 << 1,
	OP_SEND = 1 << 2,
	OP_SEND_IMM = 1 << 3,
	OP_READ = 1 << 4,
	OP_CMP_SWP = 1 << 5,
	OP_FETCH_ADD = 1 << 6,
	OP_LOCAL_INV = 1 << 7,
	OP_BIND_MW = 1 << 8,
	OP_SEND_INV = 1 << 9,
	OP_TSO = 1 << 10,
	OPS_RDMA = OP_WRITE | OP_WRITE_IMM | OP_READ,
	OPS_ATOMIC = OP_CMP_SWP | OP_FETCH_ADD,
	OPS_WINDOW = OP_LOCAL_INV | OP_BIND_MW,
	OPS_UC = OP_SEND | OP_SEND_INV | OP_SEND_IMM | OP_WRITE | OP_WRITE_IMM | OPS_WINDOW,
	OPS_RC = OPS_UC | OPS_RDMA | OPS_ATOMIC,
	CREATE_SOURCE_QPN = 1 << 10,
};

/* The rings of a QP, and what the provider would write back. */
struct layout {
	uint32_t send_wqe, recv_wqe; /* bytes; 0: no such ring */
	uint64_t sq, rq;	     /* bytes */
	struct qp_caps caps;
};

static uint32_t most_send_wqe(const struct device_facts *dev)
{
	return geometry_limit(dev, LEARNED_SEND_WQE_BYTES, USUAL_SEND_WQE_BYTES);
}

static uint32_t most_recv_wqe(const struct device_facts *dev)
{
	return geometry_limit(dev, LEARNED_RECV_WQE_BYTES, USUAL_RECV_WQE_BYTES);
}

/*
 * Kernels before 2025 report the blocks of a send queue as max_qp_wr, newer ones a quarter of them;
 * of both, max_srq_wr is one less than the deepest queue. Until creations teach more.
 */
static uint32_t usual_queue(const struct device_facts *dev)
{
	const struct device_limits *l = &facts_or_none(dev)->limits;

	if (!l->max_qp_wr && !l->max_srq_wr)
		return USUAL_QUEUE;
	return (uint32_t)most(l->max_qp_wr, saturating_add(l->max_srq_wr, 1));
}

static uint32_t most_send_blocks(const struct device_facts *dev)
{
	return geometry_limit(dev, LEARNED_SEND_BLOCKS, usual_queue(dev));
}

static uint32_t most_recv_wr(const struct device_facts *dev)
{
	return geometry_limit(dev, LEARNED_RECV_WR, usual_queue(dev));
}

/* --- queue pairs --- */

static uint64_t ops_of(const struct qp_request *req)
{
	if (req->has_send_ops)
		return req->send_ops;
	return req->type == QP_TYPE_UD || req->type == QP_TYPE_RAW_PACKET ? OP_SEND : OPS_RC;
}

static uint64_t ops_known(uint32_t type)
{
	switch (type) {
	case QP_TYPE_RC:
	case QP_TYPE_XRC_SEND:
		return OPS_RC;
	case QP_TYPE_UC:
		return OPS_UC;
	case QP_TYPE_UD:
		return OP_SEND | OP_SEND_IMM;
	case QP_TYPE_RAW_PACKET:
		return OP_SEND | OP_TSO;
	default:
		return 0;
	}
}

/* UD that sends with another's QP number, as IPoIB does. */
static bool is_underlay(const struct qp_request *req)
{
	return req->type == QP_TYPE_UD && req->create_flags & CREATE_SOURCE_QPN;
}

/* The segments before the data of one request. */
static uint32_t overhead(const struct qp_request *req)
{
	uint64_t ops = ops_of(req);
	uint32_t bytes = SEGMENT_BYTES;

	if (ops & OPS_RDMA)
		bytes = 2 * SEGMENT_BYTES;
	if (ops & OPS_ATOMIC)
		bytes = 3 * SEGMENT_BYTES;
	if (ops & OPS_WINDOW)
		bytes = WINDOW_BYTES;
	switch (req->type) {
	case QP_TYPE_UD:
		bytes += DATAGRAM_BYTES + (is_underlay(req) ? ETHERNET_BYTES + SEGMENT_BYTES : 0);
		break;
	case QP_TYPE_XRC_SEND:
	case QP_TYPE_XRC_RECV:
		bytes += SEGMENT_BYTES;
		break;
	case QP_TYPE_RAW_PACKET:
		bytes += ETHERNET_BYTES;
		break;
	default:
		break;
	}
	return bytes;
}

/* The provider adds inline data up in 32 bits with a sign: 4 GiB less a little wraps to nothing. */
static uint64_t inline_bytes(const struct qp_request *req)
{
	uint64_t data = INLINE_HEADER_BYTES + (uint64_t)req->caps.max_inline_data;
	uint32_t wrapped;

	if (!req->caps.max_inline_data)
		return 0;
	wrapped = (uint32_t)(overhead(req) + round_up(data, SEGMENT_BYTES));
	return wrapped > INT32_MAX ? 0 : wrapped;
}

/* Before it is rounded to blocks. */
static uint64_t send_wqe_bytes(const struct qp_request *req)
{
	uint64_t gathered = overhead(req) + (uint64_t)SEGMENT_BYTES * req->caps.max_send_sge +
			    round_up(req->max_tso_header, SEGMENT_BYTES);

	return most(gathered, inline_bytes(req));
}

/* Before it is rounded to a power of two. */
static uint64_t recv_wqe_bytes(const struct qp_request *req, const struct device_facts *dev)
{
	uint64_t data = (uint64_t)SEGMENT_BYTES * most(req->caps.max_recv_sge, 1);

	return data + (facts_or_none(dev)->settings.qp_signature ? SEGMENT_BYTES : 0);
}

static bool has_sq(const struct qp_request *req)
{
	return req->caps.max_send_wr != 0;
}

static bool has_rq(const struct qp_request *req)
{
	return !req->has_srq && req->caps.max_recv_wr != 0;
}

static void lay_out(const struct qp_request *req, const struct device_facts *dev,
		    struct layout *out)
{
	bool signature = facts_or_none(dev)->settings.qp_signature;
	uint64_t wqe;

	*out = (struct layout){ .caps = req->caps };
	if (has_sq(req)) {
		wqe = round_up(send_wqe_bytes(req), BLOCK_BYTES);
		out->send_wqe = (uint32_t)least(wqe, UINT32_MAX);
		out->sq = power_of_two(saturating_mul(req->caps.max_send_wr, wqe));
		out->caps.max_send_wr = (uint32_t)(out->sq / out->send_wqe);
		out->caps.max_inline_data =
			out->send_wqe - overhead(req) - (uint32_t)INLINE_HEADER_BYTES;
	}
	out->caps.max_recv_wr = out->caps.max_recv_sge = 0;
	if (has_rq(req)) {
		wqe = power_of_two(recv_wqe_bytes(req, dev));
		out->recv_wqe = (uint32_t)least(wqe, UINT32_MAX);
		out->rq =
			most(saturating_mul(power_of_two(req->caps.max_recv_wr), wqe), BLOCK_BYTES);
		out->caps.max_recv_wr = (uint32_t)(out->rq / out->recv_wqe);
		out->caps.max_recv_sge = out->recv_wqe / SEGMENT_BYTES - (signature ? 1 : 0);
	}
}

static bool is_wanted_huge(const struct qp_request *req, const struct device_facts *dev)
{
	unsigned int huge = facts_or_none(dev)->settings.huge_queues;

	switch (req->type) {
	case QP_TYPE_RC:
		return huge & HUGE_RC;
	case QP_TYPE_UC:
		return huge & HUGE_UC;
	case QP_TYPE_UD:
		return huge & HUGE_UD;
	case QP_TYPE_RAW_PACKET:
		return huge & HUGE_RAW_PACKET;
	default:
		return huge & HUGE_OTHER_QP;
	}
}

/* What one buffer takes beyond the rings in it. */
static uint64_t rounding(uint64_t rings, bool huge)
{
	uint64_t taken = round_to_pages(rings);

	return (huge ? round_up(taken, HUGE_CHUNK_BYTES) : taken) - rings;
}

static void qp_bytes_of(const struct qp_request *req, const struct device_facts *dev,
			const struct layout *l, struct queue_bytes *out)
{
	bool two_buffers = req->type == QP_TYPE_RAW_PACKET || is_underlay(req);
	bool huge = is_wanted_huge(req, dev);
	uint64_t sq = least(l->sq, QUEUE_BYTES_MOST / 2), rq = least(l->rq, QUEUE_BYTES_MOST / 2);

	*out = (struct queue_bytes){
		.sq = sq,
		.rq = rq,
		.bookkeeping = QP_STRUCT_BYTES + DOORBELL_BYTES +
			       sq / BLOCK_BYTES * BLOCK_ARRAY_BYTES +
			       (l->recv_wqe ? rq / l->recv_wqe * WRID_BYTES : 0),
		.basis = BASIS_MODEL,
		.place = PLACE_PROCESS,
	};
	out->bookkeeping +=
		two_buffers ? rounding(sq, huge) + rounding(rq, huge) : rounding(sq + rq, huge);
}

/* The types of which the provider knows the layout; DRIVER and RSS QPs come by other ways. */
static bool is_laid_out(uint32_t type)
{
	return type == QP_TYPE_RC || type == QP_TYPE_UC || type == QP_TYPE_UD ||
	       type == QP_TYPE_RAW_PACKET || type == QP_TYPE_XRC_SEND || type == QP_TYPE_XRC_RECV;
}

static bool mlx5_qp(const struct qp_request *req, const struct qp_caps *effective,
		    const struct device_facts *dev, struct queue_bytes *out)
{
	struct layout l;

	(void)effective; /* rounded up from the request, which tells more */
	if (req->is_rss) {
		*out = (struct queue_bytes){ .bookkeeping = QP_STRUCT_BYTES,
					     .basis = BASIS_MODEL,
					     .place = PLACE_PROCESS };
		return true;
	}
	if (!is_laid_out(req->type))
		return false;
	lay_out(req, dev, &l);
	qp_bytes_of(req, dev, &l, out);
	return true;
}

static void mlx5_rings(const struct qp_request *req, const struct queue_rings *rings,
		       const struct device_facts *dev, struct queue_bytes *out)
{
	struct layout l = {
		.recv_wqe = rings->recv_stride,
		.sq = ring_bytes(rings->send_count, rings->send_stride),
		.rq = ring_bytes(rings->recv_count, rings->recv_stride),
	};

	qp_bytes_of(req, dev, &l, out);
}

static bool refuse(struct prediction *out, int error, bool guessed)
{
	out->fate = FATE_REFUSED;
	out->error = error;
	out->guessed = guessed;
	return true;
}

/* Checks of the provider, in its order. True: refused. */
static bool is_refused(const struct qp_request *req, const struct device_facts *dev,
		       struct prediction *out)
{
	uint32_t desc = most_send_wqe(dev);
	struct layout l;

	if (req->max_tso_header && req->type != QP_TYPE_RAW_PACKET)
		return refuse(out, 0, false);
	if (req->create_flags & CREATE_SOURCE_QPN && req->type != QP_TYPE_UD)
		return refuse(out, EINVAL, false);
	if (req->has_send_ops && (req->send_ops & ~ops_known(req->type) || is_underlay(req)))
		return refuse(out, EOPNOTSUPP, false);
	lay_out(req, dev, &l);
	if (has_sq(req)) {
		if (send_wqe_bytes(req) > desc || l.send_wqe > desc)
			return refuse(out, EINVAL, true);
		if (req->caps.max_send_wr > INT32_MAX / desc)
			return refuse(out, EINVAL, true);
		if (l.sq / BLOCK_BYTES > most_send_blocks(dev))
			return refuse(out, EINVAL, true);
	}
	if (req->caps.max_recv_wr && req->caps.max_recv_wr > most_recv_wr(dev))
		return refuse(out, EINVAL, true); /* also where an SRQ makes it mean nothing */
	if (has_rq(req) && l.recv_wqe > most_recv_wqe(dev))
		return refuse(out, EINVAL, true);
	return false;
}

static bool mlx5_predict_qp(const struct qp_request *req, const struct device_facts *dev,
			    struct prediction *out)
{
	struct layout l;

	if (!is_laid_out(req->type) || req->is_rss)
		return false;
	lay_out(req, dev, &l);
	qp_bytes_of(req, dev, &l, &out->bytes);
	out->caps = l.caps;
	if (is_refused(req, dev, out))
		return true;
	out->fate = FATE_ACCEPTED;
	out->guessed = true;
	return true;
}

static void mlx5_needs_qp(const struct qp_request *req, const struct device_facts *dev,
			  uint32_t *out)
{
	struct layout l;

	if (!is_laid_out(req->type) || req->is_rss)
		return;
	lay_out(req, dev, &l);
	out[LEARNED_SEND_WQE_BYTES] = l.send_wqe;
	out[LEARNED_SEND_BLOCKS] = (uint32_t)least(l.sq / BLOCK_BYTES, UINT32_MAX);
	out[LEARNED_RECV_WQE_BYTES] = l.recv_wqe;
	out[LEARNED_RECV_WR] = req->caps.max_recv_wr;
}

/* --- completion queues --- */

static uint64_t cq_entries(uint32_t cqe)
{
	return power_of_two((uint64_t)cqe + 1);
}

static bool mlx5_cq(uint32_t requested_cqe, uint32_t effective_cqe, const struct device_facts *dev,
		    struct queue_bytes *out)
{
	const struct provider_settings *s = &facts_or_none(dev)->settings;
	uint64_t ring = cq_entries(effective_cqe ? effective_cqe : requested_cqe) *
			(s->cqe_bytes ? s->cqe_bytes : CQE_BYTES);

	*out = (struct queue_bytes){
		.rq = ring,
		.bookkeeping =
			CQ_STRUCT_BYTES + DOORBELL_BYTES + rounding(ring, s->huge_queues & HUGE_CQ),
		.basis = BASIS_MODEL,
		.place = PLACE_PROCESS,
	};
	return true;
}

static bool mlx5_predict_cq(uint32_t cqe, const struct device_facts *dev, struct prediction *out)
{
	const struct provider_settings *s = &facts_or_none(dev)->settings;
	uint64_t entries = cq_entries(cqe), most_cqe = facts_or_none(dev)->limits.max_cqe;

	mlx5_cq(cqe, 0, dev, &out->bytes);
	out->cqe = (uint32_t)least(entries - 1, UINT32_MAX);
	if (!cqe || entries > MOST_CQES)
		return refuse(out, EINVAL, false);
	if (s->cqe_bytes && s->cqe_bytes != CQE_BYTES && s->cqe_bytes != 2 * CQE_BYTES)
		return refuse(out, EINVAL, false);
	if (most_cqe && entries - 1 > most_cqe)
		return refuse(out, EINVAL, false); /* by the kernel */
	out->fate = FATE_ACCEPTED;
	return true;
}

/* --- shared receive queues --- */

static uint64_t srq_wqe_bytes(uint32_t max_sge)
{
	return power_of_two(most(SEGMENT_BYTES + (uint64_t)SEGMENT_BYTES * max_sge, 32));
}

static uint64_t most_srq_wr(const struct device_facts *dev)
{
	const struct device_limits *l = &facts_or_none(dev)->limits;

	return geometry_limit(dev, LEARNED_SRQ_WR,
			      (uint32_t)least(l->max_srq_wr ? saturating_add(l->max_srq_wr, 1)
							    : (uint64_t)USUAL_QUEUE,
					      UINT32_MAX));
}

/* Twice what is usable, so that a request may cool down before its slot is used again, unless the
 * device has not so many. */
static uint64_t srq_entries(uint32_t max_wr, const struct device_facts *dev)
{
	uint64_t twice = power_of_two(2 * (uint64_t)max_wr + 1);

	return twice > most_srq_wr(dev) ? power_of_two((uint64_t)max_wr + 1) : twice;
}

static bool mlx5_srq(uint32_t max_wr, uint32_t max_sge, const struct device_facts *dev,
		     struct queue_bytes *out)
{
	uint64_t entries = srq_entries(max_wr, dev);
	uint64_t ring = ring_bytes(entries, srq_wqe_bytes(max_sge));
	bool huge = facts_or_none(dev)->settings.huge_queues & HUGE_SRQ;

	*out = (struct queue_bytes){
		.rq = ring,
		.bookkeeping = SRQ_STRUCT_BYTES + DOORBELL_BYTES + entries * WRID_BYTES +
			       rounding(ring, huge),
		.basis = BASIS_MODEL,
		.place = PLACE_PROCESS,
	};
	return true;
}

/* --- work queues: verbs.c: mlx5_calc_rwq_size, mlx5_alloc_rwq_buf --- */

static bool mlx5_wq(uint32_t max_wr, uint32_t max_sge, const struct device_facts *dev,
		    struct queue_bytes *out)
{
	const struct provider_settings *s = &facts_or_none(dev)->settings;
	uint64_t entries = power_of_two(max_wr);
	uint64_t wqe = power_of_two(SEGMENT_BYTES * most(max_sge, 1) +
				    (s->wq_signature ? SEGMENT_BYTES : 0));
	uint64_t ring = most(ring_bytes(entries, wqe), BLOCK_BYTES);

	*out = (struct queue_bytes){
		.rq = ring,
		.bookkeeping = WQ_STRUCT_BYTES + DOORBELL_BYTES + entries * WRID_BYTES +
			       rounding(ring, s->huge_queues & HUGE_WQ),
		.basis = BASIS_MODEL,
		.place = PLACE_PROCESS,
	};
	return true;
}

static bool mlx5_predict_srq(uint32_t max_wr, uint32_t max_sge, const struct device_facts *dev,
			     struct prediction *out)
{
	mlx5_srq(max_wr, max_sge, dev, &out->bytes);
	out->caps.max_recv_wr = (uint32_t)least(power_of_two((uint64_t)max_wr + 1) - 1, UINT32_MAX);
	out->caps.max_recv_sge = (uint32_t)(srq_wqe_bytes(max_sge) / SEGMENT_BYTES - 1);
	if (srq_entries(max_wr, dev) > most_srq_wr(dev) || /* by the kernel */
	    max_sge > most_recv_wqe(dev) / SEGMENT_BYTES)
		return refuse(out, EINVAL, true);
	out->fate = FATE_ACCEPTED;
	out->guessed = true;
	return true;
}

static void mlx5_needs_srq(uint32_t max_wr, uint32_t max_sge, const struct device_facts *dev,
			   uint32_t *out)
{
	(void)dev;
	out[LEARNED_SRQ_WR] = (uint32_t)least(power_of_two((uint64_t)max_wr + 1), UINT32_MAX);
	out[LEARNED_RECV_WQE_BYTES] =
		(uint32_t)least((uint64_t)max_sge * SEGMENT_BYTES, UINT32_MAX);
}

const struct geometry geometry_mlx5 = {
	.driver = "mlx5",
	.qp = mlx5_qp,
	.cq = mlx5_cq,
	.srq = mlx5_srq,
	.wq = mlx5_wq,
	.predict_qp = mlx5_predict_qp,
	.predict_cq = mlx5_predict_cq,
	.predict_srq = mlx5_predict_srq,
	.rings = mlx5_rings,
	.needs_qp = mlx5_needs_qp,
	.needs_srq = mlx5_needs_srq,
};
