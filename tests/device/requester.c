/* SPDX-License-Identifier: MIT */
/*
 * The sending side of a QP: reads WQEs from the send ring (infiniband/mlx5dv.h),
 * turns them into requests, keeps up to WINDOW of them in flight, and completes
 * them in order as the answers come. An answer counts only for the oldest
 * request; "receiver not ready" and "not ready" make the QP go back to it.
 *
 * UC and UD requests are answered too, because the receiver fetches the data:
 * the buffer is the program's again only then. What the answer says is ignored.
 */
#include "mlx5dev.h"

#include <endian.h>
#include <string.h>

#define MS 1000000ull

static bool reliable(const struct qp *qp)
{
	return qp->type == IB_UVERBS_QPT_RC || qp->type == IB_UVERBS_QPT_XRC_INI;
}

static bool can_send(const struct qp *qp)
{
	return qp->sq_blocks && qp->state == IBV_QPS_RTS;
}

static uint16_t posted(const struct qp *qp)
{
	/* What the record counts is read after it. */
	return (uint16_t)be32toh(__atomic_load_n(&qp->dbrec[1], __ATOMIC_ACQUIRE));
}

/* ---- reading a WQE ---- */

struct wqe {
	uint8_t byte[MAX_WQE];
	uint32_t start, ring; /* where it lies in the send ring, and the ring's size */
	unsigned size, at;    /* bytes, and how far it is read */
	uint8_t opcode, flags;
};

/* Copies the WQE out of the ring, whose end it may cross. */
static void wqe_load(const struct qp *qp, uint16_t index, struct wqe *w)
{
	const struct mlx5_wqe_ctrl_seg *ctrl;
	uint32_t room;

	w->ring = qp->sq_blocks * 64;
	w->start = index % qp->sq_blocks * 64;
	ctrl = (const void *)(qp->sq + w->start);
	w->size = (be32toh(ctrl->qpn_ds) & 0x3f) * 16;
	w->opcode = be32toh(ctrl->opmod_idx_opcode) & 0xff;
	w->flags = ctrl->fm_ce_se;
	room = w->ring - w->start;
	if (w->size <= room) {
		memcpy(w->byte, qp->sq + w->start, w->size);
	} else {
		memcpy(w->byte, qp->sq + w->start, room);
		memcpy(w->byte + room, qp->sq, w->size - room);
	}
	w->at = sizeof(*ctrl);
}

static unsigned wqe_blocks(const struct wqe *w)
{
	return w->size <= 64 ? 1 : (w->size + 63) / 64;
}

static const void *wqe_seg(struct wqe *w, unsigned size)
{
	const void *seg = w->byte + w->at;

	w->at += size;
	return w->at <= w->size ? seg : NULL;
}

/* Finds the memory behind a key and checks that it may be used so. */
int local_range(const struct pd *pd, uint32_t key, uint64_t addr, uint64_t len, uint32_t access,
		struct range *r)
{
	struct mr *mr = object_get(MR, key >> 8);

	if (!mr || mr->key != key || mr->pd != pd)
		return MLX5_CQE_SYNDROME_LOCAL_PROT_ERR;
	if ((mr->access & access) != access || addr < mr->iova || len > mr->length ||
	    addr - mr->iova > mr->length - len)
		return MLX5_CQE_SYNDROME_LOCAL_PROT_ERR;
	*r = (struct range){ mr->start + (addr - mr->iova), len };
	return 0;
}

/* Inline data is fetched from where it lies: in the ring, on both sides of its end perhaps. */
static void add_inline(const struct qp *qp, struct wqe *w, uint32_t len, struct message *m)
{
	uint32_t at = (w->start + w->at) % w->ring;
	uint32_t first = len < w->ring - at ? len : w->ring - at;

	m->seg[m->segs++] = (struct range){ (uintptr_t)qp->sq + at, first };
	if (first < len)
		m->seg[m->segs++] = (struct range){ (uintptr_t)qp->sq, len - first };
	m->length += len;
	w->at += (len + 4 + 15) / 16 * 16 - 4;
}

static int read_data(const struct qp *qp, struct wqe *w, uint32_t access, struct message *m)
{
	while (w->at + 16 <= w->size && m->segs < MAX_SEGS) {
		const struct mlx5_wqe_data_seg *d = (const void *)(w->byte + w->at);
		uint32_t len = be32toh(d->byte_count);
		int bad;

		if (len & MLX5_INLINE_SEG) {
			w->at += 4;
			len &= ~(uint32_t)MLX5_INLINE_SEG;
			if (len > w->size - w->at)
				return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
			add_inline(qp, w, len, m);
			continue;
		}
		w->at += 16;
		bad = local_range(qp->pd, be32toh(d->lkey), be64toh(d->addr), len, access,
				  &m->seg[m->segs]);
		if (bad)
			return bad;
		m->length += m->seg[m->segs++].len;
	}
	return 0;
}

static int read_remote(struct wqe *w, struct message *m)
{
	const struct mlx5_wqe_raddr_seg *r = wqe_seg(w, sizeof(*r));

	if (!r)
		return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
	m->remote = be64toh(r->raddr);
	m->rkey = be32toh(r->rkey);
	return 0;
}

static int read_datagram(const struct qp *qp, struct wqe *w, struct message *m)
{
	const struct mlx5_wqe_datagram_seg *d = wqe_seg(w, sizeof(*d));

	if (!d)
		return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
	m->dst_qp = be32toh(d->av.dqp_dct) & 0xffffff;
	m->qkey = be32toh(d->av.key.qkey.qkey);
	/* The high bit asks for the QP's own key. */
	if (m->qkey & 0x80000000)
		m->qkey = qp->attr.qkey;
	m->grh = be32toh(d->av.grh_gid_fl) >> 30 & 1;
	return 0;
}

static int read_atomic(struct wqe *w, struct message *m)
{
	const struct mlx5_wqe_atomic_seg *a = wqe_seg(w, sizeof(*a));

	if (!a)
		return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
	m->swap = be64toh(a->swap_add);
	m->compare = be64toh(a->compare);
	return 0;
}

/* What an opcode needs after the control segment; local ones need nothing. */
static int read_request(const struct qp *qp, struct wqe *w, struct message *m)
{
	uint32_t access = 0;
	int bad = 0;

	if (qp->type == IB_UVERBS_QPT_XRC_INI && !wqe_seg(w, 16))
		return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
	switch (w->opcode) {
	case MLX5_OPCODE_SEND:
	case MLX5_OPCODE_SEND_IMM:
	case MLX5_OPCODE_SEND_INVAL:
		if (qp->type == IB_UVERBS_QPT_UD)
			bad = read_datagram(qp, w, m);
		break;
	case MLX5_OPCODE_ATOMIC_CS:
	case MLX5_OPCODE_ATOMIC_FA:
		access = IBV_ACCESS_LOCAL_WRITE;
		bad = read_remote(w, m);
		if (!bad)
			bad = read_atomic(w, m);
		break;
	case MLX5_OPCODE_RDMA_READ:
		access = IBV_ACCESS_LOCAL_WRITE;
		bad = read_remote(w, m);
		break;
	case MLX5_OPCODE_RDMA_WRITE:
	case MLX5_OPCODE_RDMA_WRITE_IMM:
		bad = read_remote(w, m);
		break;
	default:
		return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
	}
	return bad ? bad : read_data(qp, w, access, m);
}

/* Done by the adapter alone: a packet that leaves for nowhere, and bookkeeping. */
static bool is_local(const struct qp *qp, uint8_t opcode)
{
	return qp->type == IB_UVERBS_QPT_RAW_PACKET || opcode == MLX5_OPCODE_NOP ||
	       opcode == MLX5_OPCODE_UMR || opcode == MLX5_OPCODE_LOCAL_INVAL;
}

/* ---- starting and completing ---- */

static struct inflight *oldest(struct qp *qp)
{
	return &qp->window[qp->first];
}

static void start_one(struct qp *qp)
{
	struct inflight *f = &qp->window[(qp->first + qp->flying) % WINDOW];
	struct message m;
	struct wqe w;

	memset(&m, 0, offsetof(struct message, seg));
	wqe_load(qp, qp->next, &w);
	*f = (struct inflight){ qp->next, (uint8_t)wqe_blocks(&w), DONE_HERE, 0 };
	if (!is_local(qp, w.opcode)) {
		m.kind = REQUEST;
		m.opcode = w.opcode;
		m.qp_type = (uint8_t)qp->type;
		m.solicited = w.flags & MLX5_WQE_CTRL_SOLICITED;
		m.src_qp = qp->number;
		m.dst_qp = qp->attr.dest_qp_num;
		m.generation = qp->generation;
		m.psn = (qp->una_psn + qp->flying) & 0xffffff;
		m.imm = ((const struct mlx5_wqe_ctrl_seg *)(const void *)w.byte)->imm;
		f->syndrome = (uint8_t)read_request(qp, &w, &m);
		if (f->syndrome)
			f->state = FAILED_HERE;
		else if (wire_send(&m))
			f->state = ON_WIRE;
		else if (reliable(qp))
			f->state = ON_WIRE; /* the timer will find that nobody is there */
	}
	qp->next = (uint16_t)(qp->next + f->blocks);
	qp->flying++;
}

static void push(struct qp *qp, uint16_t index, uint8_t wqe_opcode, uint8_t syndrome)
{
	struct completion c = {
		.opcode = syndrome ? MLX5_CQE_REQ_ERR : MLX5_CQE_REQ,
		.wqe_opcode = wqe_opcode,
		.syndrome = syndrome,
		.wqe_index = index,
	};

	cq_push(qp->send_cq, qp, &c);
}

static void complete_one(struct qp *qp, uint64_t length)
{
	struct inflight *f = oldest(qp);
	const struct mlx5_wqe_ctrl_seg *ctrl =
		(const void *)(qp->sq + f->index % qp->sq_blocks * 64);

	if (ctrl->fm_ce_se & MLX5_WQE_CTRL_CQ_UPDATE) {
		struct completion c = {
			.opcode = MLX5_CQE_REQ,
			.wqe_opcode = be32toh(ctrl->opmod_idx_opcode) & 0xff,
			.wqe_index = f->index,
			.length = (uint32_t)length,
		};

		cq_push(qp->send_cq, qp, &c);
	}
	qp->first = (qp->first + 1) % WINDOW;
	qp->flying--;
	qp->una_psn = (qp->una_psn + 1) & 0xffffff;
	qp->rnr_left = qp->attr.rnr_retry;
	qp->retry_left = qp->attr.retry_cnt;
	qp->wake_at = 0;
}

/* The oldest request has failed: it completes with the reason, all later ones are flushed. */
static void fail(struct qp *qp, uint8_t syndrome)
{
	struct inflight *f = oldest(qp);
	const struct mlx5_wqe_ctrl_seg *ctrl =
		(const void *)(qp->sq + f->index % qp->sq_blocks * 64);

	push(qp, f->index, be32toh(ctrl->opmod_idx_opcode) & 0xff, syndrome);
	qp->next = (uint16_t)(f->index + f->blocks);
	qp->flying = 0;
	qp_set_state(qp, reliable(qp) ? IBV_QPS_ERR : IBV_QPS_SQE);
}

/* Every WQE that is posted and not completed, signaled or not. */
unsigned requester_flush(struct qp *qp)
{
	uint16_t end;
	unsigned n = 0;
	struct wqe w;

	if (!qp->sq_blocks)
		return 0;
	if (qp->flying)
		qp->next = oldest(qp)->index;
	qp->flying = 0;
	end = posted(qp);
	while (qp->next != end && n <= qp->sq_blocks) {
		wqe_load(qp, qp->next, &w);
		push(qp, qp->next, w.opcode, MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
		qp->next = (uint16_t)(qp->next + wqe_blocks(&w));
		n++;
	}
	return n;
}

/* Starts again from the oldest request when the time has come. */
static void go_back(struct qp *qp, uint64_t wait_ns)
{
	qp->next = oldest(qp)->index;
	qp->flying = 0;
	qp->wake_at = now_ns() + wait_ns;
}

static uint64_t timeout_ns(const struct qp *qp)
{
	uint64_t ns = qp->attr.timeout ? 4096ull << (qp->attr.timeout & 31) : 10 * MS;

	return ns < MS ? MS : ns;
}

/* Nobody answered properly: try again, as often as the program asked for. */
static void not_ready(struct qp *qp)
{
	if (qp->attr.timeout && !qp->retry_left) {
		fail(qp, MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR);
		return;
	}
	qp->retry_left -= !!qp->attr.timeout;
	go_back(qp, timeout_ns(qp));
}

static void receiver_not_ready(struct qp *qp, uint32_t timer)
{
	/* rdma: "min RNR NAK timer", in units of 10 us; 0 is the longest */
	static const uint32_t wait[32] = { 65536, 1,	2,    3,     4,	    6,	   8,	  12,
					   16,	  24,	32,   48,    64,    96,	   128,	  192,
					   256,	  384,	512,  768,   1024,  1536,  2048,  3072,
					   4096,  6144, 8192, 12288, 16384, 24576, 32768, 49152 };

	if (qp->attr.rnr_retry != 7 && !qp->rnr_left) {
		fail(qp, MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR);
		return;
	}
	qp->rnr_left -= qp->attr.rnr_retry != 7;
	go_back(qp, wait[timer & 31] * 10000ull);
}

static void settle_local(struct qp *qp)
{
	while (qp->flying && oldest(qp)->state == DONE_HERE)
		complete_one(qp, 0);
	if (qp->flying && oldest(qp)->state == FAILED_HERE)
		fail(qp, oldest(qp)->syndrome);
}

/* Is the process that should answer still there? Asked only after a timeout of silence. */
static void check_silence(struct qp *qp)
{
	uint64_t now = now_ns();

	if (!qp->wake_at)
		qp->wake_at = now + timeout_ns(qp);
	if (now < qp->wake_at)
		return;
	qp->wake_at = now + timeout_ns(qp);
	if (!wire_alive(qp->attr.dest_qp_num)) {
		if (reliable(qp))
			not_ready(qp);
		else
			complete_one(qp, 0);
	}
}

static void watch(struct qp *qp, bool on)
{
	if (on && qp->waiting.next == &qp->waiting)
		list_add(&nic.waiting, &qp->waiting);
	else if (!on && qp->waiting.next != &qp->waiting)
		list_del(&qp->waiting);
}

/* Does what can be done now; returns how many WQEs were started. */
unsigned requester_run(struct qp *qp)
{
	unsigned started = 0;

	if (qp->state == IBV_QPS_ERR || qp->state == IBV_QPS_SQE)
		return requester_flush(qp);
	if (!can_send(qp)) {
		watch(qp, false);
		return 0;
	}
	/* Nothing flying and a time to wake: held back by the peer. */
	if (!qp->flying && qp->wake_at) {
		if (now_ns() < qp->wake_at)
			return 0;
		qp->wake_at = 0;
	}
	while (can_send(qp) && qp->flying < WINDOW && qp->next != posted(qp)) {
		if (qp->flying &&
		    qp->window[(qp->first + qp->flying - 1) % WINDOW].state == FAILED_HERE)
			break;
		start_one(qp);
		settle_local(qp);
		started++;
	}
	if (can_send(qp) && qp->flying)
		check_silence(qp);
	watch(qp, can_send(qp) && (qp->flying || qp->wake_at || qp->next != posted(qp)));
	return started;
}

void requester_response(const struct message *m)
{
	static const uint8_t syndrome[] = {
		[NAK_INVALID] = MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR,
		[NAK_ACCESS] = MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR,
		[NAK_OP] = MLX5_CQE_SYNDROME_REMOTE_OP_ERR,
		[BAD_LOCAL] = MLX5_CQE_SYNDROME_LOCAL_PROT_ERR,
	};
	struct qp *qp = qp_of_number(m->dst_qp);

	if (!qp || qp->generation != m->generation || !qp->flying || m->psn != qp->una_psn ||
	    oldest(qp)->state != ON_WIRE)
		return;
	if (!reliable(qp) || m->status == ACK) {
		complete_one(qp, m->length);
		settle_local(qp);
	} else if (m->status == RNR) {
		receiver_not_ready(qp, m->rnr_timer);
	} else if (m->status == NOT_READY) {
		not_ready(qp);
	} else {
		fail(qp, syndrome[m->status]);
	}
	requester_run(qp);
}

/* ---- states ---- */

static void leave_lists(struct qp *qp)
{
	list_del(&qp->of_uar);
	list_del(&qp->waiting);
	list_del(&qp->in_error);
}

static void forget_all(struct qp *qp)
{
	qp->next = qp->rq_taken = 0;
	qp->first = qp->flying = 0;
	qp->wake_at = 0;
	/* Answers on their way belong to the former life. */
	qp->generation += 1u << 24;
	memset(&qp->attr, 0, sizeof(qp->attr));
}

/* Such QPs keep the NIC from a deep sleep: their records may change at any time. */
static void count_active(uint32_t before, uint32_t state)
{
	bool was = before >= IBV_QPS_RTR, is = state >= IBV_QPS_RTR;

	nic.active_qps += (unsigned)is - (unsigned)was;
	if (is && !was && nic.active_qps == 1)
		wire_wake();
}

void qp_set_state(struct qp *qp, uint32_t state)
{
	uint32_t before = qp->state;

	count_active(before, state);
	if (state != IBV_QPS_RTS || before != IBV_QPS_RTS)
		leave_lists(qp);
	qp->state = state;
	switch (state) {
	case IBV_QPS_RESET:
		forget_all(qp);
		break;
	case IBV_QPS_RTR:
		qp->expected_psn = qp->attr.rq_psn & 0xffffff;
		break;
	case IBV_QPS_RTS:
		if (before == IBV_QPS_RTS)
			break;
		if (before == IBV_QPS_RTR)
			qp->una_psn = qp->attr.sq_psn & 0xffffff;
		qp->rnr_left = qp->attr.rnr_retry;
		qp->retry_left = qp->attr.retry_cnt;
		if (!qp->sq_blocks)
			break;
		list_add(&qp->uar->qps, &qp->of_uar);
		requester_run(qp);
		break;
	case IBV_QPS_SQE:
		requester_flush(qp);
		break;
	case IBV_QPS_ERR:
		list_add(&nic.in_error, &qp->in_error);
		if (qp->dbrec && before != IBV_QPS_RESET) {
			requester_flush(qp);
			responder_flush(qp);
		}
		break;
	default:
		break;
	}
}
