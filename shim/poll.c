/* SPDX-License-Identifier: MIT */
/*
 * The data path of polling: the real call first, then each completion is taken to the QP that it is
 * of. The same rules and the same owner scheme as in send.c, by CQ: the first thread that polls a CQ counts
 * plainly.
 */
#include "builder.h"
#include "outstanding.h"

/* --- completions of sends --- */

/* Of a mixed queue, after completions were counted: moves "retired" up to the position that the ring has for the
 * last of them, never back, never past what was posted. A stale slot, left by posts that overlapped, is
 * ignored. */
static ALWAYS_INLINE void settle(const struct hot_qp *h, bool owner)
{
	struct qp_record *r = h->record;
	uint64_t turn = READ64(r->poll_send_completions) + READ64(r->other_send_completions);
	uint64_t retired = sends_retired(r, true);
	uint64_t outstanding = READ64(r->post_send_posted) + READ64(r->other_send_posted) - retired;
	uint16_t more;

	(void)atomic_load_explicit(&h->mixed,
				   memory_order_acquire); /* the ring was filled before */
	more = (uint16_t)(ring_get(h, (uint32_t)turn - 1) - (uint16_t)retired);
	if (unlikely(more > outstanding))
		return;
	if (owner)
		WRITE64(r->poll_send_retired, retired + more);
	else
		raise64(&r->other_send_retired, retired + more);
}

static void send_completed_for_other(struct hot_qp *h)
{
	ADD(h->record->other_send_completions, 1);
	if (LOAD(h->mixed))
		settle(h, false);
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

static SHORT_PATH void srq_recv_completed(const struct hot_cq *q, struct hot_srq *srq, bool owner)
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
		else if (w->opcode & IBV_WC_RECV)
			recv_completed_for_other(q, h);
		else
			send_completed_for_other(h);
	}
}

/* Of a mixed queue only the last of its completions in a row needs to be settled. */
static ALWAYS_INLINE void take_owned(struct hot_cq *q, const struct ibv_wc *wc, int n)
{
	struct hot_qp *h, *unsettled = NULL;
	const struct ibv_wc *end = wc + n;
	uint64_t key;

	for (; wc < end; wc++) {
		key = q->number_key | wc->qp_num;
		h = lookup_first(&qps_by_number, offsetof(struct hot_qp, number), key);
		if (unlikely(!h)) {
			h = lookup_further(&qps_by_number, offsetof(struct hot_qp, number), key);
			if (!h)
				continue;
		}
		if (unlikely(wc->status != IBV_WC_SUCCESS)) {
			completed_in_error(q, h);
			continue;
		}
		if (wc->opcode & IBV_WC_RECV) {
			if (unlikely(h->flags & QP_HAS_SRQ))
				srq_recv_completed(q, h->srq, true);
			else
				WRITE64(h->record->poll_recv_retired,
					READ64(h->record->poll_recv_retired) + 1);
			continue;
		}
		WRITE64(h->record->poll_send_completions,
			READ64(h->record->poll_send_completions) + 1);
		if (unlikely(READ8(h->mode) & MODE_MIXED) && h != unsettled) {
			if (unsettled)
				settle(unsettled, true);
			unsettled = h;
		}
	}
	if (unsettled)
		settle(unsettled, true);
}

static OUT_OF_LINE int polled_by_other(struct hot_cq *q, const struct ibv_wc *wc, int got,
				       uint32_t backlog)
{
	ADD(q->record->other_completions, (uint64_t)got);
	raise32(&q->record->other_peak_backlog, backlog);
	take_for_other(q, wc, got);
	return got;
}

/*
 * Some came. What was taken since a poll last came back short is a lower bound of what the CQ held: the polls that got
 * all they asked for and follow each other are added up. A libibverbs without a poll function returns
 * EOPNOTSUPP, 95: more than was asked.
 */
static SHORT_PATH int polled(int got, int asked, const struct ibv_wc *wc, struct hot_cq *q)
{
	struct cq_record *r = q->record;
	uint32_t now = READ32(q->polls), backlog = (uint32_t)got;

	if (unlikely(got > asked))
		return got;
	if (now - READ32(q->full_at) == 1)
		backlog += READ32(q->backlog);
	if (got == asked) {
		WRITE32(q->full_at, now);
		WRITE32(q->backlog, backlog);
	}
	if (unlikely(!owns(&q->poll_owner)) && !become_owner(&q->poll_owner))
		return polled_by_other(q, wc, got, backlog);
	if (unlikely(backlog > READ32(r->peak_backlog)))
		WRITE32(r->peak_backlog, backlog);
	WRITE64(r->poll_completions, READ64(r->poll_completions) + (uint64_t)got);
	take_owned(q, wc, got);
	return got;
}

/* One completion of an extended CQ, and that there is none left for now. */
void completion_taken(struct hot_cq *q, const struct ibv_wc *wc)
{
	uint32_t backlog = READ32(q->backlog) + 1;

	WRITE32(q->backlog, backlog);
	if (unlikely(!owns(&q->poll_owner)) && !become_owner(&q->poll_owner)) {
		polled_by_other(q, wc, 1, backlog);
		return;
	}
	if (unlikely(backlog > READ32(q->record->peak_backlog)))
		WRITE32(q->record->peak_backlog, backlog);
	WRITE64(q->record->poll_completions, READ64(q->record->poll_completions) + 1);
	take_owned(q, wc, 1);
}

void completions_ran_out(struct hot_cq *q)
{
	WRITE32(q->backlog, 0);
}

static OUT_OF_LINE int poll_somehow(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	struct hot_cq *q = lookup_find(&cqs, offsetof(struct hot_cq, cq), (uintptr_t)cq);
	const struct context_hooks *hooks;
	int got;

	if (!q) {
		hooks = hooks_of(cq->context);
		return hooks ? hooks->real.poll_cq(cq, n, wc) : -1;
	}
	STORE(q->polls, LOAD(q->polls) + 1);
	got = q->poll(cq, n, wc);
	return got > 0 ? polled(got, n, wc, q) : got;
}

/* Takes the place of ibv_context_ops.poll_cq: man ibv_poll_cq. What only a hit needs is kept as in send.c. */
int guarded_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	struct hot_cq *q = lookup_first(&cqs, offsetof(struct hot_cq, cq), (uintptr_t)cq);
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
	return polled(got, kept_n, kept_wc, kept_q);
}
