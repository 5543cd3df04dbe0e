/* SPDX-License-Identifier: MIT */
/*
 * The data path of polling: the real call first, then each completion is taken to the QP that it is
 * of. The same rules and the same owner scheme as in send.c, by CQ: the first thread that polls a CQ counts
 * plainly.
 */
#include "builder.h"
#include "outstanding.h"

/* --- completions of sends --- */

/*
 * Of a mixed queue, after completions were counted: moves "retired" up to the position that the ring has for the
 * last of them, never back, never past what was posted. A stale slot, left by posts that overlapped, is
 * ignored. The owner's side has caught up then, unless others go on.
 */
static void settle(struct hot_qp *h, bool owner)
{
	struct qp_record *r = h->record;
	uint64_t turn, retired, outstanding;
	uint32_t more;

	if (owner && (LOAD(h->mixed) & QUEUE_APART))
		atomic_fetch_and(&h->mixed, (uint8_t)~QUEUE_APART);
	atomic_thread_fence(memory_order_acquire); /* the ring was filled before */
	turn = LOAD(r->poll_send_completions) + LOAD(r->other_send_completions);
	retired = sends_retired(r, true);
	outstanding = LOAD(r->post_send_posted) + LOAD(r->other_send_posted) - retired;
	more = ring_distance(h, (uint32_t)turn - 1, retired);
	if (unlikely(more > outstanding))
		more = 0;
	if (owner)
		STORE(r->poll_send_retired, retired + more);
	else
		raise64(&r->other_send_retired, retired + more);
}

static void send_completed_for_other(struct hot_qp *h)
{
	ADD(h->record->other_send_completions, 1);
	if (is_mixed(h)) {
		if (!(LOAD(h->mixed) & QUEUE_SHARED))
			atomic_fetch_or(&h->mixed, QUEUE_SHARED);
		settle(h, false);
	}
}

/* A request that ended in error has a completion whether or not it was signaled: it retires itself, and is the
 * turn of a signaled one only if that is where the ring says the next one is. */
static void send_failed(struct hot_qp *h)
{
	struct qp_record *r = h->record;
	uint64_t turn = LOAD(r->poll_send_completions) + LOAD(r->other_send_completions);
	uint64_t next;

	if (!is_mixed(h)) {
		ADD(r->other_send_completions, 1);
		return;
	}
	retired_apart(h);
	next = sends_retired(r, true) + 1;
	if (!ring_distance(h, (uint32_t)turn, next))
		ADD(r->other_send_completions, 1);
	raise64(&r->other_send_retired, next);
}

/* --- completions of receives --- */

static void srq_recv_completed(const struct hot_cq *q, struct hot_srq *srq, bool owner)
{
	void *nobody = NULL;

	if (!srq)
		return;
	if (unlikely(LOAD(srq->poll_cq) == NULL))
		atomic_compare_exchange_strong(&srq->poll_cq, &nobody, (void *)(uintptr_t)q);
	if (owner && LOAD(srq->poll_cq) == (const void *)q)
		STORE(srq->record->poll_retired, LOAD(srq->record->poll_retired) + 1);
	else
		ADD(srq->record->retired, 1);
}

static void recv_completed_for_other(const struct hot_cq *q, struct hot_qp *h)
{
	if (h->flags & QP_HAS_SRQ)
		srq_recv_completed(q, h->srq, false);
	else
		ADD(h->record->other_recv_retired, 1);
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
	if (is_mixed(h)) {
		retired_apart(h);
		raise64(&r->other_send_retired, posted);
	}
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
			recv_completed_for_other(q, h);
		else if (same_cq && !record_send_outstanding(r))
			recv_completed_for_other(q, h);
		else
			send_failed(h);
	} else if (!same_cq) {
		if (r->send_cq == q->record->id)
			send_failed(h);
		else
			recv_completed_for_other(q, h);
	} else if (!record_recv_outstanding(r)) {
		if (record_send_outstanding(r))
			send_failed(h);
	} else if (!record_send_outstanding(r)) {
		recv_completed_for_other(q, h);
	} else {
		direction_unknown(h, q);
	}
}

/* --- polling --- */

static OUT_OF_LINE void take_for_other(struct hot_cq *q, const struct ibv_wc *wc, int n)
{
	for (const struct ibv_wc *w = wc; w < wc + n; w++) {
		struct hot_qp *h = lookup_find(&qps_by_number, offsetof(struct hot_qp, number),
					       q->number_key | w->qp_num);

		if (!h)
			continue; /* its QP was destroyed, or made out of our sight */
		if (w->status != IBV_WC_SUCCESS)
			completed_in_error(q, h);
		else if (is_receive(w->opcode))
			recv_completed_for_other(q, h);
		else
			send_completed_for_other(h);
	}
}

/* The same for the owner, whatever comes. */
static SHORT_PATH int take_rest(int got, const struct ibv_wc *wc, const struct ibv_wc *end,
				struct hot_cq *q)
{
	for (; wc < end; wc++) {
		struct hot_qp *h = lookup_find(&qps_by_number, offsetof(struct hot_qp, number),
					       q->number_key | wc->qp_num);

		if (unlikely(!h))
			continue;
		if (unlikely(wc->status != IBV_WC_SUCCESS)) {
			completed_in_error(q, h);
		} else if (is_receive(wc->opcode)) {
			if (h->flags & QP_HAS_SRQ)
				srq_recv_completed(q, h->srq, true);
			else
				recv_completed(h);
		} else {
			send_completed(h);
			if (unlikely(is_mixed(h)))
				settle(h, true);
		}
	}
	return got;
}

/*
 * The owner's, as long as nothing rare comes, which is left with all that follows to take_rest: so there is no
 * call in here, and nothing to save for one. Of a mixed queue only the last of its completions in a row needs to
 * be settled.
 */
static ALWAYS_INLINE int take_owned(int got, const struct ibv_wc *wc, struct hot_cq *q)
{
	const struct ibv_wc *end = wc + got;
	struct hot_qp *h, *unsettled = NULL;

	do {
		h = lookup_first(&qps_by_number, offsetof(struct hot_qp, number),
				 q->number_key | wc->qp_num);
		if (unlikely(!h))
			break;
		if (unlikely(failed_or_received(wc))) {
			if (unlikely(wc->status != IBV_WC_SUCCESS || h->flags & QP_HAS_SRQ ||
				     wc->opcode >= IBV_WC_DRIVER1))
				break;
			recv_completed(h);
			continue;
		}
		if (likely(h != unsettled) && unlikely(READ8(h->mixed))) {
			READ_AGAIN();
			if (READ8(h->mixed) != QUEUE_MIXED)
				break;
			if (unsettled)
				settle_owned(unsettled);
			unsettled = h;
		}
		send_completed(h);
	} while (++wc < end);
	if (unsettled)
		settle_owned(unsettled);
	return likely(wc == end) ? got : take_rest(got, wc, end, q);
}

/* The backlog goes by the owner's polls alone: another's ends it, and has no more than it took. */
static OUT_OF_LINE int polled_by_other(struct hot_cq *q, const struct ibv_wc *wc, int got)
{
	ADD(q->record->other_completions, (uint64_t)got);
	raise32(&q->record->other_peak_backlog, (uint32_t)got);
	take_for_other(q, wc, got);
	return got;
}

/* The polls that got all they asked for and follow each other are added up. */
static ALWAYS_INLINE void count_completions(struct hot_cq *q, int got, int asked)
{
	struct cq_record *r = q->record;
	uint64_t completions = READ64(r->poll_completions);

	if (READ32(q->polls) != 1)
		backlog_begins(q, completions);
	completions += (uint64_t)got;
	WRITE64(r->poll_completions, completions);
	backlog_goes_on(q, completions);
	if (got == asked)
		WRITE32(q->polls, 0);
}

/* Some came. A libibverbs without a poll function returns EOPNOTSUPP, 95: more than was asked. */
static SHORT_PATH int polled_somehow(int got, int asked, const struct ibv_wc *wc, struct hot_cq *q)
{
	if (got > asked)
		return got;
	if (!owns(&q->poll_owner) && !become_owner(&q->poll_owner))
		return polled_by_other(q, wc, got);
	count_completions(q, got, asked);
	return take_rest(got, wc, wc + got, q);
}

static SHORT_PATH int polled(int got, int asked, const struct ibv_wc *wc, struct hot_cq *q)
{
	if (unlikely(got > asked || !owns(&q->poll_owner)))
		return polled_somehow(got, asked, wc, q);
	count_completions(q, got, asked);
	return take_owned(got, wc, q);
}

/* The same for one. The owner took one before, so that one alone is no peak. */
static ALWAYS_INLINE void count_one(struct hot_cq *q, int asked)
{
	struct cq_record *r = q->record;

	WRITE64(r->poll_completions, READ64(r->poll_completions) + 1);
	READ_AGAIN();
	if (likely(READ32(q->polls) == 1))
		backlog_goes_on(q, READ64(r->poll_completions));
	else if (asked == 1)
		backlog_begins(q, READ64(r->poll_completions) - 1);
	if (likely(asked == 1))
		WRITE32(q->polls, 0);
}

/* One came, which is most polls of most programs. Whatever is rare is left to polled_somehow before anything is
 * counted. */
static ALWAYS_INLINE int polled_one(int asked, const struct ibv_wc *wc, struct hot_cq *q)
{
	struct hot_qp *h = lookup_first(&qps_by_number, offsetof(struct hot_qp, number),
					q->number_key | wc->qp_num);

	if (unlikely(!h || !owns(&q->poll_owner)))
		return polled_somehow(1, asked, wc, q);
	if (unlikely(failed_or_received(wc))) {
		if (unlikely(wc->status != IBV_WC_SUCCESS || h->flags & QP_HAS_SRQ ||
			     wc->opcode >= IBV_WC_DRIVER1))
			return polled_somehow(1, asked, wc, q);
		recv_completed(h);
	} else if (likely(READ8(h->mixed) ==
			  QUEUE_MIXED)) { /* the longer way is laid out straight */
		count_one(q, asked);
		send_completed(h);
		settle_owned(h);
		return 1;
	} else {
		READ_AGAIN();
		if (unlikely(READ8(h->mixed)))
			return polled_somehow(1, asked, wc, q);
		send_completed(h);
	}
	count_one(q, asked);
	return 1;
}

static OUT_OF_LINE int poll_somehow(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	struct hot_cq *q = lookup_find(&cqs, offsetof(struct hot_cq, cq), (uintptr_t)cq);
	const struct context_hooks *hooks;
	int got;

	if (!q) {
		hooks = hooks_of(cq->context);
		got = hooks ? hooks->real.poll_cq(cq, n, wc) : -1;
		inherited_used(hooks, INHERITED_COMPLETIONS, got > 0 ? (uint64_t)got : 0);
		return got;
	}
	WRITE32(q->polls, READ32(q->polls) + 1);
	got = q->poll(cq, n, wc);
	return got > 0 ? polled(got, n, wc, q) : got;
}

/* Takes the place of ibv_context_ops.poll_cq: man ibv_poll_cq. What only a hit needs is kept as in send.c. */
int guarded_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	struct hot_cq *q = lookup_front(&cqs, offsetof(struct hot_cq, cq), (uintptr_t)cq);
	const struct ibv_wc *volatile kept_wc = wc;
	struct hot_cq *volatile kept_q = q;
	volatile int kept_n = n;
	int got;

	if (unlikely(!q))
		return poll_somehow(cq, n, wc);
	WRITE32(q->polls, READ32(q->polls) + 1);
	got = q->poll(cq, n, wc);
	if (likely(got <= 0))
		return got;
	if (unlikely(got != 1))
		return polled(got, kept_n, kept_wc, kept_q);
	return polled_one(kept_n, kept_wc, kept_q);
}

/* One completion of an extended CQ that is not taken in the short way of poll_ex.c. */
void completion_taken(struct hot_cq *q, const struct ibv_wc *wc)
{
	uint64_t completions;

	if (!owns(&q->poll_owner) && !become_owner(&q->poll_owner)) {
		polled_by_other(q, wc, 1);
		return;
	}
	completions = LOAD(q->record->poll_completions) + 1;
	STORE(q->record->poll_completions, completions);
	backlog_goes_on(q, completions);
	take_rest(1, wc, wc + 1, q);
}
