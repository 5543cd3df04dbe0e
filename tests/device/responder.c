/* SPDX-License-Identifier: MIT */
/*
 * The receiving side of a QP: checks a request as an adapter would, takes a
 * receive WQE if it needs one, moves the payload, writes the completion and
 * answers. Touches the receive rings, the program's registered memory and, for
 * reads and atomics, that of the requester.
 */
#include "mlx5dev.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

/* ---- receive WQEs ---- */

struct receive {
	uint16_t index;
	unsigned segs;
	struct range seg[MAX_SEGS + 1];
	uint64_t room;
	int bad;	      /* syndrome of a segment that may not be written */
	uint16_t former_head; /* of the SRQ, for put_back() */
};

static void read_segments(const struct pd *pd, const uint8_t *at, unsigned max, struct receive *r)
{
	const struct mlx5_wqe_data_seg *d = (const void *)at;

	r->segs = 0;
	r->room = 0;
	r->bad = 0;
	for (unsigned i = 0; i < max && i < MAX_SEGS; i++, d++) {
		uint32_t key = be32toh(d->lkey);
		uint32_t len = be32toh(d->byte_count);

		if (key == MLX5_INVALID_LKEY)
			break;
		if (!len)
			continue;
		r->bad = local_range(pd, key, be64toh(d->addr), len, IBV_ACCESS_LOCAL_WRITE,
				     &r->seg[r->segs]);
		if (r->bad)
			return;
		r->segs++;
		r->room += len;
	}
}

static bool take_from_srq(struct srq *srq, struct receive *r)
{
	const struct mlx5_wqe_srq_next_seg *next;

	if ((uint16_t)be32toh(__atomic_load_n(srq->dbrec, __ATOMIC_ACQUIRE)) == srq->taken)
		return false;
	r->index = r->former_head = srq->head;
	next = (const void *)(srq->buf + srq->head * (size_t)srq->stride);
	read_segments(srq->pd, (const uint8_t *)(next + 1), srq->stride / 16 - 1, r);
	/* The link of a posted WQE is final. */
	srq->head = be16toh(next->next_wqe_index);
	srq->taken++;
	return true;
}

static bool take_from_ring(struct qp *qp, struct receive *r)
{
	const uint8_t *wqe;

	if (!qp->rq_wqes ||
	    (uint16_t)be32toh(__atomic_load_n(&qp->dbrec[0], __ATOMIC_ACQUIRE)) == qp->rq_taken)
		return false;
	r->index = qp->rq_taken++;
	wqe = qp->rq + ((size_t)(r->index & (qp->rq_wqes - 1)) << qp->rq_shift);
	read_segments(qp->pd, wqe + qp->signature * 16, (1u << qp->rq_shift) / 16 - qp->signature,
		      r);
	return true;
}

static bool take_receive(struct qp *qp, struct receive *r)
{
	return qp->srq ? take_from_srq(qp->srq, r) : take_from_ring(qp, r);
}

/* The sender died with its data: as if the packet had never come. */
static uint8_t put_back(struct qp *qp, const struct receive *r)
{
	if (qp->srq) {
		qp->srq->head = r->former_head;
		qp->srq->taken--;
	} else {
		qp->rq_taken--;
	}
	return NOT_READY;
}

static void push_error(struct qp *qp, uint16_t index, uint8_t syndrome)
{
	struct completion c = {
		.opcode = MLX5_CQE_RESP_ERR,
		.syndrome = syndrome,
		.wqe_index = index,
	};

	cq_push(qp->recv_cq, qp, &c);
}

/* Receives that are still posted to a QP in error; those of an SRQ stay there. */
unsigned responder_flush(struct qp *qp)
{
	struct receive r;
	unsigned n = 0;

	if (qp->srq || !qp->dbrec)
		return 0;
	while (n <= qp->rq_wqes && take_from_ring(qp, &r)) {
		push_error(qp, r.index, MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
		n++;
	}
	return n;
}

/* ---- one request ---- */

static bool connected(const struct qp *qp)
{
	return qp->type == IB_UVERBS_QPT_RC || qp->type == IB_UVERBS_QPT_UC;
}

/* Would an adapter hand this packet to the QP at all? */
static bool accepts(const struct qp *qp, const struct message *m)
{
	if (!qp || qp->type != m->qp_type || !qp->dbrec)
		return false;
	if (qp->state < IBV_QPS_RTR || qp->state > IBV_QPS_SQE)
		return false;
	if (connected(qp) && qp->attr.dest_qp_num != m->src_qp)
		return false;
	if (qp->type == IB_UVERBS_QPT_RC)
		return qp->expected_psn == m->psn;
	return qp->type != IB_UVERBS_QPT_UD || qp->attr.qkey == m->qkey;
}

/* A UD receive starts with 40 bytes for the GRH, filled if the packet had one. */
static void write_grh(const struct message *m, const struct receive *r)
{
	struct {
		uint32_t version;
		uint16_t length;
		uint8_t next, hops;
		uint64_t source[2], destination[2];
	} grh = {
		.version = htobe32(6u << 28),
		.length = htobe16((uint16_t)(m->length + 24)),
		.next = 0x1b,
		.hops = 1,
		.source = { htobe64(0xfe80ull << 48), htobe64(NODE_GUID) },
		.destination = { htobe64(0xfe80ull << 48), htobe64(NODE_GUID) },
	};
	struct range from = { (uintptr_t)&grh, sizeof(grh) };

	_Static_assert(sizeof(grh) == 40, "as on the wire");
	payload_copy(nic.pid, r->seg, r->segs, &from, 1, sizeof(grh), true);
}

/* The rest of the receive after the first bytes. */
static void skip(struct receive *r, uint64_t bytes)
{
	for (unsigned i = 0; i < r->segs && bytes; i++) {
		uint64_t n = r->seg[i].len < bytes ? r->seg[i].len : bytes;

		r->seg[i].addr += n;
		r->seg[i].len -= n;
		bytes -= n;
	}
}

/* A receive cannot hold the message: it completes with the reason and the QP is lost. */
static uint8_t refuse(struct qp *qp, const struct receive *r, uint8_t syndrome, uint8_t answer)
{
	push_error(qp, r->index, syndrome);
	qp_set_state(qp, IBV_QPS_ERR);
	return answer;
}

static void push_receive(struct qp *qp, const struct message *m, const struct receive *r,
			 uint8_t opcode, uint64_t length)
{
	struct completion c = {
		.opcode = opcode,
		.wqe_index = r->index,
		.length = (uint32_t)length,
		.src_qp = qp->type == IB_UVERBS_QPT_UD ? m->src_qp : 0,
		.imm = m->imm,
		.solicited = m->solicited,
		.grh = m->grh,
	};

	cq_push(qp->recv_cq, qp, &c);
}

static uint8_t do_send(struct qp *qp, const struct message *m)
{
	static const uint8_t opcode[] = {
		[MLX5_OPCODE_SEND] = MLX5_CQE_RESP_SEND,
		[MLX5_OPCODE_SEND_IMM] = MLX5_CQE_RESP_SEND_IMM,
		[MLX5_OPCODE_SEND_INVAL] = MLX5_CQE_RESP_SEND_INV,
	};
	uint64_t grh = qp->type == IB_UVERBS_QPT_UD ? 40 : 0;
	struct receive r;
	int err;

	if (!take_receive(qp, &r))
		return RNR;
	if (r.bad)
		return refuse(qp, &r, (uint8_t)r.bad, NAK_OP);
	if (r.room < m->length + grh)
		return refuse(qp, &r, MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR, NAK_INVALID);
	if (grh && m->grh)
		write_grh(m, &r);
	skip(&r, grh);
	err = payload_copy(m->pid, m->seg, m->segs, r.seg, r.segs, m->length, false);
	if (err == ESRCH)
		return put_back(qp, &r);
	if (err)
		return refuse(qp, &r, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR, NAK_OP);
	push_receive(qp, m, &r, opcode[m->opcode], m->length + grh);
	return ACK;
}

/* Finds the memory that a remote key names; NAK_* if it may not be used so. */
static uint8_t remote_range(struct qp *qp, const struct message *m, uint64_t len, uint32_t access,
			    struct range *r)
{
	if (!(qp->attr.qp_access_flags & access))
		return NAK_INVALID;
	/* Without data the key is not looked at. */
	*r = (struct range){ 0, 0 };
	if (len && local_range(qp->pd, m->rkey, m->remote, len, access, r))
		return NAK_ACCESS;
	return ACK;
}

static uint8_t do_write(struct qp *qp, const struct message *m)
{
	struct receive r;
	struct range to;
	uint8_t bad = remote_range(qp, m, m->length, IBV_ACCESS_REMOTE_WRITE, &to);
	int err;

	if (bad)
		return bad;
	if (m->opcode == MLX5_OPCODE_RDMA_WRITE_IMM && !take_receive(qp, &r))
		return RNR;
	err = payload_copy(m->pid, m->seg, m->segs, &to, 1, m->length, false);
	if (err == ESRCH)
		return m->opcode == MLX5_OPCODE_RDMA_WRITE_IMM ? put_back(qp, &r) : NOT_READY;
	if (err)
		return NAK_ACCESS;
	if (m->opcode == MLX5_OPCODE_RDMA_WRITE_IMM)
		push_receive(qp, m, &r, MLX5_CQE_RESP_WR_IMM, m->length);
	return ACK;
}

/* The answer to a read or an atomic: straight into the requester's memory. */
static uint8_t give_back(const struct message *m, const struct range *from, uint64_t len)
{
	int err = payload_copy(m->pid, m->seg, m->segs, from, 1, len, true);

	if (err == ESRCH)
		return NOT_READY;
	return err ? BAD_LOCAL : ACK;
}

static uint8_t do_read(struct qp *qp, const struct message *m)
{
	struct range from;
	uint8_t bad = remote_range(qp, m, m->length, IBV_ACCESS_REMOTE_READ, &from);

	if (bad)
		return bad;
	return give_back(m, &from, m->length);
}

static uint8_t do_atomic(struct qp *qp, const struct message *m)
{
	uint64_t old = 0, *word;
	struct range at, result = { (uintptr_t)&old, 8 };
	uint8_t bad = remote_range(qp, m, 8, IBV_ACCESS_REMOTE_ATOMIC, &at);

	if (bad)
		return bad;
	if (at.addr % 8 || m->length != 8)
		return NAK_INVALID;
	/* Read once by way of the kernel: memory that is gone must not raise a signal. */
	if (payload_copy(nic.pid, &at, 1, &result, 1, 8, false))
		return NAK_ACCESS;
	word = (uint64_t *)(uintptr_t)at.addr;
	if (m->opcode == MLX5_OPCODE_ATOMIC_FA) {
		old = __atomic_fetch_add(word, m->swap, __ATOMIC_SEQ_CST);
	} else {
		old = m->compare;
		__atomic_compare_exchange_n(word, &old, m->swap, false, __ATOMIC_SEQ_CST,
					    __ATOMIC_SEQ_CST);
	}
	return give_back(m, &result, 8);
}

static uint8_t perform(struct qp *qp, const struct message *m)
{
	switch (m->opcode) {
	case MLX5_OPCODE_SEND:
	case MLX5_OPCODE_SEND_IMM:
	case MLX5_OPCODE_SEND_INVAL:
		return do_send(qp, m);
	case MLX5_OPCODE_RDMA_WRITE:
	case MLX5_OPCODE_RDMA_WRITE_IMM:
		return do_write(qp, m);
	case MLX5_OPCODE_RDMA_READ:
		return do_read(qp, m);
	case MLX5_OPCODE_ATOMIC_CS:
	case MLX5_OPCODE_ATOMIC_FA:
		return do_atomic(qp, m);
	default:
		return NAK_INVALID;
	}
}

static void answer(const struct message *m, uint8_t status, uint32_t rnr_timer)
{
	struct message r;

	memset(&r, 0, offsetof(struct message, seg));
	r.kind = RESPONSE;
	r.status = status;
	r.src_qp = m->dst_qp;
	r.dst_qp = m->src_qp;
	r.generation = m->generation;
	r.psn = m->psn;
	r.length = m->length;
	r.rnr_timer = rnr_timer;
	wire_send(&r);
}

void responder_request(const struct message *m)
{
	struct qp *qp = qp_of_number(m->dst_qp);
	uint8_t status = NOT_READY;

	if (accepts(qp, m)) {
		status = perform(qp, m);
		if (status == ACK)
			qp->expected_psn = (qp->expected_psn + 1) & 0xffffff;
		/* A reliable QP that refused a request is in error, as its peer will be. */
		else if (status != RNR && status != NOT_READY && qp->type == IB_UVERBS_QPT_RC &&
			 qp->state != IBV_QPS_ERR)
			qp_set_state(qp, IBV_QPS_ERR);
	}
	answer(m, status, qp ? qp->attr.min_rnr_timer : 0);
}
