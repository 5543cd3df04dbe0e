/* SPDX-License-Identifier: MIT */
/*
 * The data path of receiving, on QPs and on SRQs: the same rules and owners as in send.c, but every request
 * makes a completion and none is inline.
 */
#include <errno.h>

#include "outstanding.h"

/* One call on its way through. */
struct received {
	uint64_t requests;
	uint64_t outstanding; /* with the whole list */
	uint32_t widest;      /* num_sge */
	struct steps *sges;   /* of a list with requests wider than before, or NULL */
};

static ALWAYS_INLINE void summarize(const struct ibv_recv_wr *wr, struct received *s)
{
	uint32_t widest = 0;
	uint64_t requests = 0;

	for (; wr; wr = wr->next) {
		requests++;
		if ((uint32_t)wr->num_sge > widest)
			widest = (uint32_t)wr->num_sge;
	}
	s->requests = requests;
	s->widest = widest;
}

/* How many of the list were not taken, *bad the first of them. */
static uint64_t count_refused(const struct received *s, struct ibv_recv_wr **bad,
			      struct ibv_recv_wr **bad_wr)
{
	uint64_t refused = 0;

	if (*bad == NOT_WRITTEN) {
		*bad = NULL;
		return s->requests;
	}
	*bad_wr = *bad;
	for (const struct ibv_recv_wr *w = *bad; w && refused < s->requests; w = w->next)
		refused++;
	return refused;
}

static enum refusal why_refused(const struct ibv_recv_wr *bad, uint32_t max_sge, uint32_t max_wr,
				uint64_t outstanding, bool bad_state, int rc)
{
	if (bad && (uint32_t)bad->num_sge > max_sge)
		return REFUSED_TOO_MANY_SGE;
	if (bad_state)
		return REFUSED_BAD_STATE;
	if (outstanding >= max_wr)
		return REFUSED_QUEUE_FULL;
	return means_full(rc) ? REFUSED_QUEUE_FULL_EARLY : REFUSED_OTHER;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
	return (int64_t)a > (int64_t)b ? a : b;
}

/* Makes s speak of the accepted requests alone. */
static void leave_accepted(struct received *s, uint64_t refused)
{
	s->requests -= refused;
	s->outstanding -= refused;
	if (refused)
		s->widest = s->sges ? steps_widest(s->sges, s->requests) : 0;
}

static OUT_OF_LINE void note_steps(const struct ibv_recv_wr *wr, struct received *s,
				   struct steps *sges)
{
	sges->count = 0;
	for (uint64_t position = 0; wr; wr = wr->next, position++)
		steps_note(sges, position, (uint32_t)wr->num_sge);
	s->sges = sges;
}

/* --- on a QP --- */

static ALWAYS_INLINE void note_owned(struct qp_record *r, const struct received *s)
{
	if ((int64_t)s->outstanding > (int64_t)LOAD(r->post_recv_peak))
		STORE(r->post_recv_peak, (uint32_t)s->outstanding);
	if (s->widest > LOAD(r->post_recv_peak_sge))
		STORE(r->post_recv_peak_sge, cut16(s->widest));
}

static void note_as_other(struct qp_record *r, const struct received *s)
{
	if ((int64_t)s->outstanding > 0)
		raise32(&r->other_recv_peak, (uint32_t)s->outstanding);
	raise16(&r->other_recv_peak_sge, s->widest);
}

static OUT_OF_LINE int recv_ended(struct hot_qp *h, struct received *s, int rc,
				  struct ibv_recv_wr *bad, struct ibv_recv_wr **bad_wr, bool owner)
{
	struct qp_record *r = h->record;
	uint64_t refused = count_refused(s, &bad, bad_wr), now;

	if (owner)
		STORE(r->post_recv_posted, LOAD(r->post_recv_posted) - refused);
	else
		ADD(r->other_recv_posted, -refused);
	leave_accepted(s, refused);
	now = larger(s->outstanding, record_recv_outstanding(r));
	if (rc || bad)
		refused_recv(r,
			     why_refused(bad, r->effective.max_recv_sge, r->effective.max_recv_wr,
					 now, LOAD(r->qp_state) == IBV_QPS_RESET, rc),
			     bad ? (uint32_t)bad->num_sge : 0, now, refused, rc);
	if (!s->requests)
		return rc;
	if (owner)
		note_owned(r, s);
	else
		note_as_other(r, s);
	return rc;
}

static ALWAYS_INLINE int post(struct hot_qp *h, struct ibv_qp *qp, struct ibv_recv_wr *wr,
			      struct ibv_recv_wr **bad_wr, const bool owner)
{
	struct ibv_recv_wr *bad = NOT_WRITTEN;
	struct qp_record *r = h->record;
	struct steps sges;
	struct received s;
	uint64_t posted;
	int rc;

	summarize(wr, &s);
	s.sges = NULL;
	if (unlikely(s.requests > 1 && s.widest > (owner ? LOAD(r->post_recv_peak_sge)
							 : LOAD(r->other_recv_peak_sge))))
		note_steps(wr, &s, &sges);
	if (owner) {
		posted = LOAD(r->post_recv_posted) + s.requests;
		STORE(r->post_recv_posted, posted);
		posted += LOAD(r->other_recv_posted);
	} else {
		posted = ADD(r->other_recv_posted, s.requests) + s.requests;
		posted += LOAD(r->post_recv_posted);
	}
	s.outstanding = posted - LOAD(r->poll_recv_retired) - LOAD(r->other_recv_retired);
	rc = h->hooks->real.post_recv(qp, wr, &bad);
	if (unlikely(rc || bad != NOT_WRITTEN))
		return recv_ended(h, &s, rc, bad, bad_wr, owner);
	if (owner)
		note_owned(r, &s);
	else
		note_as_other(r, &s);
	return rc;
}

/* What the short path below does not take. All three arguments may be whatever a program passes. */
static SHORT_PATH int recv_somehow(struct ibv_qp *qp, struct ibv_recv_wr *wr,
				   struct ibv_recv_wr **bad_wr)
{
	struct hot_qp *h = lookup_find(&qps_by_address, offsetof(struct hot_qp, qp), (uintptr_t)qp);
	const struct context_hooks *hooks;

	if (unlikely(!h)) {
		hooks = hooks_of(qp->context);
		inherited_used(hooks, INHERITED_POSTS, 1);
		return hooks ? hooks->real.post_recv(qp, wr, bad_wr) : EINVAL;
	}
	if (unlikely(!bad_wr || !wr))
		return h->hooks->real.post_recv(qp, wr, bad_wr);
	/* a QP with an SRQ has no receive queue, and no owner of one: the provider says so */
	if (!(h->flags & QP_HAS_SRQ) && (owns(&h->recv_owner) || become_owner(&h->recv_owner)))
		return post(h, qp, wr, bad_wr, true);
	return post(h, qp, wr, bad_wr, false);
}

static OUT_OF_LINE int short_ended(struct hot_qp *h, int rc, struct ibv_recv_wr *bad,
				   struct ibv_recv_wr **bad_wr, uint64_t requests,
				   uint64_t outstanding)
{
	struct received s = { .requests = requests, .outstanding = outstanding };

	return recv_ended(h, &s, rc, bad, bad_wr, true);
}

/* Takes the place of ibv_context_ops.post_recv: man ibv_post_recv. The owner's requests no wider than one before
 * are all done here; see the short paths of send.c. */
int guarded_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	struct hot_qp *h =
		lookup_first(&qps_by_address, offsetof(struct hot_qp, qp), (uintptr_t)qp);
	struct ibv_recv_wr *bad = NOT_WRITTEN, **volatile kept_bad_wr = bad_wr;
	volatile uint64_t kept_requests;
	uint64_t posted, outstanding;
	struct qp_record *r;
	struct received s;
	int rc;

	if (unlikely(!h || !owns(&h->recv_owner) || !wr))
		return recv_somehow(qp, wr, bad_wr);
	summarize(wr, &s);
	r = h->record;
	if (unlikely(s.widest > READ16(r->post_recv_peak_sge)))
		return recv_somehow(qp, wr, bad_wr);
	posted = READ64(r->post_recv_posted) + s.requests;
	outstanding = posted + READ64(r->other_recv_posted) - READ64(r->poll_recv_retired) -
		      READ64(r->other_recv_retired);
	WRITE64(r->post_recv_posted, posted);
	kept_requests = s.requests;
	rc = h->hooks->real.post_recv(qp, wr, &bad);
	if (unlikely(rc || bad != NOT_WRITTEN))
		return short_ended(h, rc, bad, kept_bad_wr, kept_requests, outstanding);
	if (unlikely((int64_t)outstanding > (int64_t)READ32(h->record->post_recv_peak)))
		WRITE32(h->record->post_recv_peak, (uint32_t)outstanding);
	return rc;
}

/* --- on an SRQ --- */

static ALWAYS_INLINE void note_srq_owned(struct srq_record *r, const struct received *s)
{
	if ((int64_t)s->outstanding > (int64_t)LOAD(r->post_peak))
		STORE(r->post_peak, (uint32_t)s->outstanding);
	if (s->widest > LOAD(r->post_peak_sge))
		STORE(r->post_peak_sge, s->widest);
}

static void note_srq_as_other(struct srq_record *r, const struct received *s)
{
	if ((int64_t)s->outstanding > 0)
		raise32(&r->other_peak, (uint32_t)s->outstanding);
	raise32(&r->other_peak_sge, s->widest);
}

static OUT_OF_LINE int srq_recv_ended(struct hot_srq *h, struct received *s, int rc,
				      struct ibv_recv_wr *bad, struct ibv_recv_wr **bad_wr,
				      bool owner)
{
	struct srq_record *r = h->record;
	uint64_t refused = count_refused(s, &bad, bad_wr), now;

	if (owner)
		STORE(r->post_posted, LOAD(r->post_posted) - refused);
	else
		ADD(r->other_posted, -refused);
	leave_accepted(s, refused);
	now = larger(s->outstanding, record_srq_outstanding(r));
	if (rc || bad)
		refused_srq_recv(r, why_refused(bad, h->max_sge, h->max_wr, now, false, rc),
				 bad ? (uint32_t)bad->num_sge : 0, now, refused, rc);
	if (!s->requests)
		return rc;
	if (owner)
		note_srq_owned(r, s);
	else
		note_srq_as_other(r, s);
	return rc;
}

static ALWAYS_INLINE int post_srq(struct hot_srq *h, struct ibv_srq *srq, struct ibv_recv_wr *wr,
				  struct ibv_recv_wr **bad_wr, const bool owner)
{
	struct ibv_recv_wr *bad = NOT_WRITTEN;
	struct srq_record *r = h->record;
	struct steps sges;
	struct received s;
	uint64_t posted;
	int rc;

	summarize(wr, &s);
	s.sges = NULL;
	if (unlikely(s.requests > 1 &&
		     s.widest > (owner ? LOAD(r->post_peak_sge) : LOAD(r->other_peak_sge))))
		note_steps(wr, &s, &sges);
	if (owner) {
		posted = LOAD(r->post_posted) + s.requests;
		STORE(r->post_posted, posted);
		posted += LOAD(r->other_posted);
	} else {
		posted = ADD(r->other_posted, s.requests) + s.requests + LOAD(r->post_posted);
	}
	s.outstanding = posted - LOAD(r->poll_retired) - LOAD(r->retired);
	rc = h->hooks->real.post_srq_recv(srq, wr, &bad);
	if (unlikely(rc || bad != NOT_WRITTEN))
		return srq_recv_ended(h, &s, rc, bad, bad_wr, owner);
	if (owner)
		note_srq_owned(r, &s);
	else
		note_srq_as_other(r, &s);
	return rc;
}

static SHORT_PATH int srq_recv_somehow(struct ibv_srq *srq, struct ibv_recv_wr *wr,
				       struct ibv_recv_wr **bad_wr)
{
	struct hot_srq *h = lookup_find(&srqs, offsetof(struct hot_srq, srq), (uintptr_t)srq);
	const struct context_hooks *hooks;

	if (unlikely(!h)) {
		hooks = hooks_of(srq->context);
		inherited_used(hooks, INHERITED_POSTS, 1);
		return hooks ? hooks->real.post_srq_recv(srq, wr, bad_wr) : EINVAL;
	}
	if (unlikely(!bad_wr || !wr))
		return h->hooks->real.post_srq_recv(srq, wr, bad_wr);
	if (owns(&h->post_owner) || become_owner(&h->post_owner))
		return post_srq(h, srq, wr, bad_wr, true);
	return post_srq(h, srq, wr, bad_wr, false);
}

/* Takes the place of ibv_context_ops.post_srq_recv: man ibv_post_srq_recv. */
int guarded_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	struct hot_srq *h = lookup_first(&srqs, offsetof(struct hot_srq, srq), (uintptr_t)srq);

	if (unlikely(!h || !owns(&h->post_owner) || !wr))
		return srq_recv_somehow(srq, wr, bad_wr);
	return post_srq(h, srq, wr, bad_wr, true);
}
