/* SPDX-License-Identifier: MIT */
/*
 * The data path of polling: the real call first, then each completion is taken to the QP that it is
 * of. The same rules and the same owner scheme as post.c, by CQ: the first thread that polls a CQ counts
 * plainly.
 */
#include "builder.h"
#include "outstanding.h"

/* --- completions of sends --- */

/* `position` after the request that completed, mod 2^16: moves "retired" up to it, never back, never past
 * what was posted. A stale slot of the ring, left by posts that overlapped, is ignored. */
static ALWAYS_INLINE void retire_up_to(struct qp_record *r, uint16_t position, bool owner)
{
	uint64_t retired = sends_retired(r, true);
	uint64_t posted = LOAD(r->post_send_posted) + LOAD(r->other_send_posted);
	uint16_t more = (uint16_t)(position - (uint16_t)retired);

	if (more > posted - retired)
		return;
	if (owner)
		STORE(r->poll_send_retired, retired + more);
	else
		raise64(&r->other_send_retired, retired + more);
}

/* The number of send completions before this one, counted. */
static ALWAYS_INLINE uint64_t take_turn(struct qp_record *r, bool owner)
{
	if (!owner)
		return ADD(r->other_send_completions, 1) + LOAD(r->poll_send_completions);
	STORE(r->poll_send_completions, LOAD(r->poll_send_completions) + 1);
	return LOAD(r->poll_send_completions) - 1 + LOAD(r->other_send_completions);
}

static ALWAYS_INLINE void send_completed(struct hot_qp *h, bool owner)
{
	uint64_t turn = take_turn(h->record, owner);

	if (unlikely(atomic_load_explicit(&h->mixed, memory_order_acquire)))
		retire_up_to(h->record,
			     __atomic_load_n(&h->ring[turn & h->ring_mask], __ATOMIC_RELAXED),
			     owner);
}

/* A request that ended in error has a completion whether or not it was signaled: it retires itself, and is the
 * turn of a signaled one only if that is where the ring says the next one is. */
static void send_failed(struct hot_qp *h)
{
	struct qp_record *r = h->record;
	uint64_t turn = LOAD(r->poll_send_completions) + LOAD(r->other_send_completions);
	uint64_t next;

	if (!LOAD(h->mixed)) {
		ADD(r->other_send_completions, 1);
		return;
	}
	next = sends_retired(r, true) + 1;
	if (ring_get(h, (uint32_t)turn) == (uint16_t)next)
		ADD(r->other_send_completions, 1);
	raise64(&r->other_send_retired, next);
}

/* --- completions of receives --- */

static ALWAYS_INLINE void recv_completed(struct hot_qp *h, bool owner)
{
	struct qp_record *r = h->record;

	if (unlikely(h->flags & QP_HAS_SRQ)) {
		if (h->srq)
			ADD(h->srq->record->retired, 1);
		return;
	}
	if (owner)
		STORE(r->poll_recv_retired, LOAD(r->poll_recv_retired) + 1);
	else
		ADD(r->other_recv_retired, 1);
}

/* --- errors --- */

/*
 * A completion in error does not tell its direction: wc.opcode is undefined. It is known when the QP's CQs
 * differ, or when one side has nothing outstanding. What cannot be told is counted apart, and when as many were
 * counted as both sides have outstanding, both are done.
 */
static void direction_unknown(struct hot_qp *h, struct hot_cq *q)
{
	struct qp_record *r = h->record;
	uint64_t sends = record_send_outstanding(r), recvs = record_recv_outstanding(r);
	uint32_t unattributed = ADD(r->flushed_unattributed, 1) + 1;
	uint64_t posted, signaled, done;

	ADD(q->record->flushed_unattributed, 1);
	if (unattributed < sends + recvs)
		return;
	posted = LOAD(r->post_send_posted) + LOAD(r->other_send_posted);
	signaled = posted - (uint32_t)(LOAD(r->post_unsignaled) + LOAD(r->other_unsignaled));
	done = LOAD(r->poll_send_completions) + LOAD(r->other_send_completions);
	ADD(r->other_send_completions, (uint32_t)(signaled - done));
	if (LOAD(h->mixed))
		raise64(&r->other_send_retired, posted);
	ADD(r->other_recv_retired, recvs);
	STORE(r->flushed_unattributed, 0);
}

static OUT_OF_LINE void completed_in_error(struct hot_cq *q, struct hot_qp *h)
{
	struct qp_record *r = h->record;
	bool same_cq = r->send_cq == r->recv_cq;

	STORE(r->qp_state, IBV_QPS_ERR);
	if (h->flags & QP_HAS_SRQ) {
		/* receives of an SRQ are flushed too, when one was taken from it */
		if (!same_cq && r->recv_cq == q->record->id)
			recv_completed(h, false);
		else if (same_cq && !record_send_outstanding(r))
			recv_completed(h, false);
		else
			send_failed(h);
	} else if (!same_cq) {
		if (r->send_cq == q->record->id)
			send_failed(h);
		else
			recv_completed(h, false);
	} else if (!record_recv_outstanding(r)) {
		if (record_send_outstanding(r))
			send_failed(h);
	} else if (!record_send_outstanding(r)) {
		recv_completed(h, false);
	} else {
		direction_unknown(h, q);
	}
}

/* --- polling --- */

static ALWAYS_INLINE void take_completions(struct hot_cq *q, const struct ibv_wc *wc, int n,
					   const bool owner)
{
	for (const struct ibv_wc *w = wc; w < wc + n; w++) {
		struct hot_qp *h = lookup_find(&qps_by_number, offsetof(struct hot_qp, number),
					       q->number_key | w->qp_num);

		if (unlikely(!h))
			continue; /* its QP was destroyed, or made out of our sight */
		if (unlikely(w->status != IBV_WC_SUCCESS))
			completed_in_error(q, h);
		else if (w->opcode & IBV_WC_RECV)
			recv_completed(h, owner);
		else
			send_completed(h, owner);
	}
}

/* What was taken since a poll last came back short is a lower bound of what the CQ held. */
static ALWAYS_INLINE void note_backlog(struct hot_cq *q, int asked, int got, bool owner)
{
	struct cq_record *r = q->record;
	uint32_t backlog;

	if (owner) {
		backlog = LOAD(q->backlog) + (uint32_t)got;
		if (backlog > LOAD(r->peak_backlog))
			STORE(r->peak_backlog, backlog);
		STORE(q->backlog, got < asked ? 0 : backlog);
	} else {
		backlog = ADD(q->backlog, (uint32_t)got) + (uint32_t)got;
		raise32(&r->other_peak_backlog, backlog);
		if (got < asked)
			STORE(q->backlog, 0);
	}
}

static OUT_OF_LINE void polled_by_other(struct hot_cq *q, struct ibv_wc *wc, int asked, int got)
{
	ADD(q->record->other_completions, (uint64_t)got);
	take_completions(q, wc, got, false);
	note_backlog(q, asked, got, false);
}

/* Some got completions. A libibverbs without a poll function returns EOPNOTSUPP, 95: more than was asked. */
static __attribute__((noinline)) int polled(struct hot_cq *q, int asked, struct ibv_wc *wc, int got)
{
	struct cq_record *r = q->record;

	if (unlikely(got > asked))
		return got;
	if (unlikely(LOAD(q->poll_owner) != __builtin_thread_pointer()) &&
	    !become_owner(&q->poll_owner)) {
		polled_by_other(q, wc, asked, got);
		return got;
	}
	STORE(r->poll_completions, LOAD(r->poll_completions) + (uint64_t)got);
	take_completions(q, wc, got, true);
	note_backlog(q, asked, got, true);
	return got;
}

void completion_taken(struct hot_cq *q, uint32_t qp_num, enum ibv_wc_status status,
		      enum ibv_wc_opcode opcode)
{
	struct ibv_wc wc = { .qp_num = qp_num, .status = status, .opcode = opcode };

	polled(q, 1, &wc, 1);
}

static OUT_OF_LINE int poll_unknown(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	const struct context_hooks *hooks = hooks_of(cq->context);

	return hooks ? hooks->real.poll_cq(cq, n, wc) : -1;
}

/* Takes the place of ibv_context_ops.poll_cq: man ibv_poll_cq. */
int guarded_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	struct hot_cq *q = lookup_find(&cqs, offsetof(struct hot_cq, cq), (uintptr_t)cq);
	int got;

	if (unlikely(!q))
		return poll_unknown(cq, n, wc);
	got = q->poll(cq, n, wc);
	if (likely(got <= 0)) {
		STORE(q->backlog, 0);
		return got;
	}
	return polled(q, n, wc, got);
}
