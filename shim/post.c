/* SPDX-License-Identifier: MIT */
/*
 * The data path of posting: reads the list before the real call and never after it, records before the call
 * and takes back what was refused. No allocation, lock, division, clock or system call.
 *
 * Who counts where (state.h, struct qp_record): the first thread that posts on a queue owns its
 * post_ words and counts plainly; all others use the other_ words, atomically. Both run the same code: each
 * function below takes `owner`, a constant where it is inlined.
 */
#include <errno.h>

#include "outstanding.h"

/* What *bad_wr is before the real call, to tell whether the provider wrote it. */
static char not_written;

/* A list of requests, read once. */
struct summary {
	uint64_t requests;
	uint32_t widest;   /* num_sge */
	uint32_t inlined;  /* bytes, of the largest inline request */
	uint32_t all, any; /* send_flags */
};

/* What the words were that a refusal must bring back. */
struct before {
	uint32_t peak, peak_sge, peak_inline, unsignaled, last_signaled, seen;
};

static OUT_OF_LINE uint32_t inline_bytes(const struct ibv_send_wr *wr)
{
	uint64_t bytes = 0;

	for (int i = 0; i < wr->num_sge; i++)
		bytes += wr->sg_list[i].length;
	return bytes > UINT32_MAX ? UINT32_MAX : (uint32_t)bytes;
}

static OUT_OF_LINE uint32_t widest_inline(const struct ibv_send_wr *wr)
{
	uint32_t most = 0;

	for (; wr; wr = wr->next) {
		uint32_t bytes = wr->send_flags & IBV_SEND_INLINE ? inline_bytes(wr) : 0;

		if (bytes > most)
			most = bytes;
	}
	return most;
}

static ALWAYS_INLINE struct summary summarize_sends(const struct ibv_send_wr *wr)
{
	struct summary s = { .all = UINT32_MAX };

	for (const struct ibv_send_wr *w = wr; w; w = w->next) {
		s.requests++;
		if ((uint32_t)w->num_sge > s.widest)
			s.widest = (uint32_t)w->num_sge;
		s.all &= w->send_flags;
		s.any |= w->send_flags;
	}
	if (unlikely(s.any & IBV_SEND_INLINE))
		s.inlined = widest_inline(wr);
	return s;
}

/* --- unsignaled requests --- */

/* Writes the position after each signaled request of the list at its turn in the ring. `posted` and
 * `unsignaled` are those before the list. Returns how many unsignaled ones the list has, and in *last how
 * many requests of it go up to its last signaled one. */
static ALWAYS_INLINE uint32_t place_signaled(const struct hot_qp *h, const struct ibv_send_wr *wr,
					     uint64_t posted, uint32_t unsignaled, uint64_t *last)
{
	uint32_t skipped = 0;
	uint64_t n = 0;

	*last = 0;
	for (; wr; wr = wr->next) {
		n++;
		if (wr->send_flags & IBV_SEND_SIGNALED) {
			uint32_t turn = (uint32_t)(posted + n - 1) - unsignaled - skipped;

			ring_put(h, turn, posted + n);
			*last = n;
		} else {
			skipped++;
		}
	}
	return skipped;
}

static ALWAYS_INLINE void record_signals(struct hot_qp *h, const struct ibv_send_wr *wr, bool owner,
					 uint64_t mine, uint64_t theirs)
{
	struct qp_record *r = h->record;
	uint32_t unsignaled = LOAD(r->post_unsignaled) + LOAD(r->other_unsignaled);
	uint64_t last;
	uint32_t skipped = place_signaled(h, wr, mine + theirs, unsignaled, &last);

	if (owner) {
		STORE(r->post_unsignaled, LOAD(r->post_unsignaled) + skipped);
		if (last) {
			STORE(r->post_last_signaled, (uint32_t)(mine + last));
			STORE(r->post_seen_other, (uint32_t)theirs);
		}
	} else {
		ADD(r->other_unsignaled, skipped);
		if (last) {
			raise_mark(&r->other_last_signaled, (uint32_t)(mine + last));
			raise_mark(&r->other_seen_post, (uint32_t)theirs);
		}
	}
}

/* --- refusals --- */

/* The widest request among those that were accepted, as well as it can be known: they may be freed by now. */
static uint32_t widest_accepted(uint32_t widest, uint32_t allowed, uint64_t accepted,
				uint32_t before)
{
	uint32_t most = widest < allowed ? widest : allowed;

	return !accepted || most < before ? before : most;
}

/*
 * After a partly accepted list of a mixed queue: where its last signaled request now is, by the ring, since
 * the accepted requests may be freed by now. `mine` and `theirs` are the counts before the list.
 */
static void last_signaled_again(struct hot_qp *h, uint64_t accepted, const struct before *b)
{
	struct qp_record *r = h->record;
	uint32_t theirs = LOAD(r->post_seen_other);
	uint32_t mine = (uint32_t)(LOAD(r->post_send_posted) - accepted);
	uint32_t skipped = LOAD(r->post_unsignaled) - b->unsignaled;
	uint32_t first_turn = mine + theirs - b->unsignaled - LOAD(r->other_unsignaled);
	uint32_t signaled = (uint32_t)accepted - skipped;

	if (signaled) {
		uint16_t position = ring_get(h, first_turn + signaled - 1);

		STORE(r->post_last_signaled, mine + (uint16_t)(position - (mine + theirs)));
	} else {
		STORE(r->post_last_signaled, b->last_signaled);
		STORE(r->post_seen_other, b->seen);
	}
}

/* Takes the refused part of the list out of the words that counted it. */
static void take_back_sends(struct hot_qp *h, uint64_t accepted, uint64_t refused,
			    uint32_t unsignaled, bool owner, const struct before *b)
{
	struct qp_record *r = h->record;

	if (!owner) {
		ADD(r->other_send_posted, -refused);
		ADD(r->other_unsignaled, -unsignaled);
		return;
	}
	STORE(r->post_send_posted, LOAD(r->post_send_posted) - refused);
	if (LOAD(h->mixed)) {
		STORE(r->post_unsignaled, LOAD(r->post_unsignaled) - unsignaled);
		last_signaled_again(h, accepted, b);
	}
}

static OUT_OF_LINE int send_refused(struct hot_qp *h, const struct summary *s, int rc,
				    struct ibv_send_wr *bad, struct ibv_send_wr **bad_wr,
				    bool owner, const struct before *b)
{
	struct qp_record *r = h->record;
	uint64_t refused = 0, outstanding;
	uint32_t unsignaled = 0, peak;

	if (bad == (void *)&not_written) {
		/* not told where it stopped: nothing was taken */
		refused = s->requests;
		bad = NULL;
	} else {
		*bad_wr = bad;
		if (!rc && !bad)
			return rc; /* ionic clears it on success */
		for (struct ibv_send_wr *w = bad; w && refused < s->requests; w = w->next) {
			refused++;
			unsignaled += h->mixed && !(w->send_flags & IBV_SEND_SIGNALED);
		}
	}
	take_back_sends(h, s->requests - refused, refused, unsignaled, owner, b);
	outstanding = record_send_outstanding(r);
	count_refusal(
		&r->send_refused,
		why_send_refused(r, bad ? (uint32_t)bad->num_sge : 0,
				 bad && (bad->send_flags & IBV_SEND_INLINE) ? inline_bytes(bad) : 0,
				 outstanding, rc),
		refused);
	if (owner) {
		peak = outstanding > b->peak ? (uint32_t)outstanding : b->peak;
		STORE(r->post_send_peak, refused == s->requests ? b->peak : peak);
		STORE(r->post_send_peak_sge,
		      (uint16_t)widest_accepted(s->widest, r->effective.max_send_sge,
						s->requests - refused, b->peak_sge));
		STORE(r->post_send_peak_inline,
		      (uint16_t)widest_accepted(s->inlined, r->effective.max_inline_data,
						s->requests - refused, b->peak_inline));
	} else if (refused < s->requests) {
		raise32(&r->other_send_peak, (uint32_t)outstanding);
	}
	return rc;
}

/* --- sending --- */

static ALWAYS_INLINE int post_sends(struct hot_qp *h, struct ibv_qp *qp, struct ibv_send_wr *wr,
				    struct ibv_send_wr **bad_wr, const bool owner)
{
	struct ibv_send_wr *bad = (void *)&not_written;
	struct qp_record *r = h->record;
	struct summary s = summarize_sends(wr);
	struct before b = { 0 };
	uint64_t mine, theirs, outstanding;
	bool mixed = atomic_load_explicit(&h->mixed, memory_order_relaxed);
	int rc;

	if (unlikely(!mixed && h->ring && !(s.all & IBV_SEND_SIGNALED))) {
		become_mixed(h);
		mixed = true;
	}
	if (owner) {
		mine = LOAD(r->post_send_posted);
		theirs = LOAD(r->other_send_posted);
		STORE(r->post_send_posted, mine + s.requests);
	} else {
		mine = ADD(r->other_send_posted, s.requests);
		theirs = LOAD(r->post_send_posted);
	}
	if (mixed) {
		b.unsignaled = LOAD(r->post_unsignaled);
		b.last_signaled = LOAD(r->post_last_signaled);
		b.seen = LOAD(r->post_seen_other);
		record_signals(h, wr, owner, mine, theirs);
	}
	outstanding = mine + theirs + s.requests - sends_retired(r, mixed);
	if ((int64_t)outstanding < 0)
		outstanding = 0;
	if (owner) {
		b.peak = LOAD(r->post_send_peak);
		if (outstanding > b.peak)
			STORE(r->post_send_peak, (uint32_t)outstanding);
		b.peak_sge = LOAD(r->post_send_peak_sge);
		if (s.widest > b.peak_sge)
			STORE(r->post_send_peak_sge, cut16(s.widest));
		b.peak_inline = LOAD(r->post_send_peak_inline);
		if (unlikely(s.inlined > b.peak_inline))
			STORE(r->post_send_peak_inline, cut16(s.inlined));
	}
	rc = h->hooks->real.post_send(qp, wr, &bad);
	if (unlikely(rc || bad != (void *)&not_written))
		return send_refused(h, &s, rc, bad, bad_wr, owner, &b);
	if (!owner) {
		raise32(&r->other_send_peak, (uint32_t)outstanding);
		raise16(&r->other_send_peak_sge, s.widest);
		raise16(&r->other_send_peak_inline, s.inlined);
	}
	return rc;
}

/* A miss: an object made out of our sight, or in a parent process, or moved by a writer meanwhile. */
static OUT_OF_LINE int send_on_unknown(struct ibv_qp *qp, struct ibv_send_wr *wr,
				       struct ibv_send_wr **bad_wr)
{
	const struct context_hooks *hooks;

	if (lookup_find_again(&qps_by_address, offsetof(struct hot_qp, qp), (uintptr_t)qp))
		return guarded_post_send(qp, wr, bad_wr);
	hooks = hooks_of(qp->context);
	return hooks ? hooks->real.post_send(qp, wr, bad_wr) : EINVAL;
}

static OUT_OF_LINE int send_as_other(struct hot_qp *h, struct ibv_qp *qp, struct ibv_send_wr *wr,
				     struct ibv_send_wr **bad_wr)
{
	if (!bad_wr || !wr)
		return h->hooks->real.post_send(qp, wr, bad_wr);
	if (become_owner(&h->send_owner))
		return guarded_post_send(qp, wr, bad_wr);
	return post_sends(h, qp, wr, bad_wr, false);
}

/* Takes the place of ibv_context_ops.post_send: man ibv_post_send. */
int guarded_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
	struct hot_qp *h = lookup_find(&qps_by_address, offsetof(struct hot_qp, qp), (uintptr_t)qp);

	if (unlikely(!h))
		return send_on_unknown(qp, wr, bad_wr);
	if (unlikely(!owns(&h->send_owner) || !bad_wr || !wr))
		return send_as_other(h, qp, wr, bad_wr);
	return post_sends(h, qp, wr, bad_wr, true);
}

/* Takes the place of ibv_context_ops.bind_mw: man ibv_bind_mw. One request of the send queue. */
int guarded_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind)
{
	struct hot_qp *h = lookup_find(&qps_by_address, offsetof(struct hot_qp, qp), (uintptr_t)qp);
	struct ibv_send_wr request = { .send_flags = bind->send_flags };
	const struct context_hooks *hooks = h ? h->hooks : hooks_of(qp->context);
	struct qp_record *r;
	bool signaled;
	int rc;

	if (!h)
		return hooks ? hooks->real.bind_mw(qp, mw, bind) : EINVAL;
	r = h->record;
	signaled = bind->send_flags & IBV_SEND_SIGNALED;
	if (!signaled && h->ring && !LOAD(h->mixed))
		become_mixed(h);
	if (LOAD(h->mixed))
		record_signals(h, &request, false, LOAD(r->other_send_posted),
			       LOAD(r->post_send_posted));
	ADD(r->other_send_posted, 1);
	rc = hooks->real.bind_mw(qp, mw, bind);
	if (rc) {
		ADD(r->other_send_posted, -1);
		ADD(r->other_unsignaled, LOAD(h->mixed) && !signaled ? -1u : 0);
		count_refusal(&r->send_refused,
			      why_send_refused(r, 0, 0, record_send_outstanding(r), rc), 1);
	} else {
		raise32(&r->other_send_peak, (uint32_t)record_send_outstanding(r));
	}
	return rc;
}

/* --- receiving --- */

static ALWAYS_INLINE struct summary summarize_recvs(const struct ibv_recv_wr *wr)
{
	struct summary s = { 0 };

	for (; wr; wr = wr->next) {
		s.requests++;
		if ((uint32_t)wr->num_sge > s.widest)
			s.widest = (uint32_t)wr->num_sge;
	}
	return s;
}

/* How many of the list were not taken, and the first of them; false: all were. */
static bool recvs_refused(const struct summary *s, int rc, struct ibv_recv_wr **bad,
			  struct ibv_recv_wr **bad_wr, uint64_t *refused)
{
	*refused = 0;
	if (*bad == (void *)&not_written) {
		*refused = s->requests;
		*bad = NULL;
		return true;
	}
	*bad_wr = *bad;
	if (!rc && !*bad)
		return false;
	for (struct ibv_recv_wr *w = *bad; w && *refused < s->requests; w = w->next)
		(*refused)++;
	return true;
}

static enum refusal why_recv_refused(const struct ibv_recv_wr *bad, uint32_t max_sge,
				     uint32_t max_wr, uint64_t outstanding, bool bad_state, int rc)
{
	if (bad && (uint32_t)bad->num_sge > max_sge)
		return REFUSED_TOO_MANY_SGE;
	if (bad_state)
		return REFUSED_BAD_STATE;
	if (outstanding >= max_wr)
		return REFUSED_QUEUE_FULL;
	return means_full(rc) ? REFUSED_QUEUE_FULL_EARLY : REFUSED_OTHER;
}

static OUT_OF_LINE int recv_refused(struct hot_qp *h, const struct summary *s, int rc,
				    struct ibv_recv_wr *bad, struct ibv_recv_wr **bad_wr,
				    bool owner, const struct before *b)
{
	struct qp_record *r = h->record;
	uint8_t state = LOAD(r->qp_state);
	uint64_t refused, outstanding;
	uint32_t peak;

	if (!recvs_refused(s, rc, &bad, bad_wr, &refused))
		return rc;
	if (owner)
		STORE(r->post_recv_posted, LOAD(r->post_recv_posted) - refused);
	else
		ADD(r->other_recv_posted, -refused);
	outstanding = record_recv_outstanding(r);
	count_refusal(&r->recv_refused,
		      why_recv_refused(bad, r->effective.max_recv_sge, r->effective.max_recv_wr,
				       outstanding, state == IBV_QPS_RESET, rc),
		      refused);
	if (owner) {
		peak = outstanding > b->peak ? (uint32_t)outstanding : b->peak;
		STORE(r->post_recv_peak, refused == s->requests ? b->peak : peak);
		STORE(r->post_recv_peak_sge,
		      (uint16_t)widest_accepted(s->widest, r->effective.max_recv_sge,
						s->requests - refused, b->peak_sge));
	}
	return rc;
}

static ALWAYS_INLINE int post_recvs(struct hot_qp *h, struct ibv_qp *qp, struct ibv_recv_wr *wr,
				    struct ibv_recv_wr **bad_wr, const bool owner)
{
	struct ibv_recv_wr *bad = (void *)&not_written;
	struct qp_record *r = h->record;
	struct summary s = summarize_recvs(wr);
	struct before b = { 0 };
	uint64_t posted, outstanding;
	int rc;

	if (owner) {
		posted = LOAD(r->post_recv_posted) + s.requests;
		STORE(r->post_recv_posted, posted);
		posted += LOAD(r->other_recv_posted);
	} else {
		posted = ADD(r->other_recv_posted, s.requests) + s.requests;
		posted += LOAD(r->post_recv_posted);
	}
	outstanding = posted - LOAD(r->poll_recv_retired) - LOAD(r->other_recv_retired);
	if ((int64_t)outstanding < 0)
		outstanding = 0;
	if (owner) {
		b.peak = LOAD(r->post_recv_peak);
		if (outstanding > b.peak)
			STORE(r->post_recv_peak, (uint32_t)outstanding);
		b.peak_sge = LOAD(r->post_recv_peak_sge);
		if (s.widest > b.peak_sge)
			STORE(r->post_recv_peak_sge, cut16(s.widest));
	}
	rc = h->hooks->real.post_recv(qp, wr, &bad);
	if (unlikely(rc || bad != (void *)&not_written))
		return recv_refused(h, &s, rc, bad, bad_wr, owner, &b);
	if (!owner) {
		raise32(&r->other_recv_peak, (uint32_t)outstanding);
		raise16(&r->other_recv_peak_sge, s.widest);
	}
	return rc;
}

static OUT_OF_LINE int recv_on_unknown(struct ibv_qp *qp, struct ibv_recv_wr *wr,
				       struct ibv_recv_wr **bad_wr)
{
	const struct context_hooks *hooks;

	if (lookup_find_again(&qps_by_address, offsetof(struct hot_qp, qp), (uintptr_t)qp))
		return guarded_post_recv(qp, wr, bad_wr);
	hooks = hooks_of(qp->context);
	return hooks ? hooks->real.post_recv(qp, wr, bad_wr) : EINVAL;
}

static OUT_OF_LINE int recv_as_other(struct hot_qp *h, struct ibv_qp *qp, struct ibv_recv_wr *wr,
				     struct ibv_recv_wr **bad_wr)
{
	/* a QP with an SRQ has no receive queue, and no owner of one: the provider says so */
	if (!bad_wr || !wr)
		return h->hooks->real.post_recv(qp, wr, bad_wr);
	if (!(h->flags & QP_HAS_SRQ) && become_owner(&h->recv_owner))
		return guarded_post_recv(qp, wr, bad_wr);
	return post_recvs(h, qp, wr, bad_wr, false);
}

/* Takes the place of ibv_context_ops.post_recv: man ibv_post_recv. */
int guarded_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	struct hot_qp *h = lookup_find(&qps_by_address, offsetof(struct hot_qp, qp), (uintptr_t)qp);

	if (unlikely(!h))
		return recv_on_unknown(qp, wr, bad_wr);
	if (unlikely(!owns(&h->recv_owner) || !bad_wr || !wr))
		return recv_as_other(h, qp, wr, bad_wr);
	return post_recvs(h, qp, wr, bad_wr, true);
}

/* --- receiving on an SRQ --- */

static OUT_OF_LINE int srq_recv_refused(struct hot_srq *h, const struct summary *s, int rc,
					struct ibv_recv_wr *bad, struct ibv_recv_wr **bad_wr,
					bool owner, const struct before *b)
{
	struct srq_record *r = h->record;
	uint64_t refused, outstanding;
	uint32_t peak;

	if (!recvs_refused(s, rc, &bad, bad_wr, &refused))
		return rc;
	if (owner)
		STORE(r->post_posted, LOAD(r->post_posted) - refused);
	else
		ADD(r->other_posted, -refused);
	outstanding = record_srq_outstanding(r);
	count_refusal(&r->refused,
		      why_recv_refused(bad, h->max_sge, h->max_wr, outstanding, false, rc),
		      refused);
	if (owner) {
		peak = outstanding > b->peak ? (uint32_t)outstanding : b->peak;
		STORE(r->post_peak, refused == s->requests ? b->peak : peak);
		STORE(r->post_peak_sge,
		      widest_accepted(s->widest, h->max_sge, s->requests - refused, b->peak_sge));
	}
	return rc;
}

static ALWAYS_INLINE int post_srq_recvs(struct hot_srq *h, struct ibv_srq *srq,
					struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr,
					const bool owner)
{
	struct ibv_recv_wr *bad = (void *)&not_written;
	struct srq_record *r = h->record;
	struct summary s = summarize_recvs(wr);
	struct before b = { 0 };
	uint64_t posted, outstanding;
	int rc;

	if (owner) {
		posted = LOAD(r->post_posted) + s.requests;
		STORE(r->post_posted, posted);
		posted += LOAD(r->other_posted);
	} else {
		posted = ADD(r->other_posted, s.requests) + s.requests + LOAD(r->post_posted);
	}
	outstanding = posted - LOAD(r->retired);
	if ((int64_t)outstanding < 0)
		outstanding = 0;
	if (owner) {
		b.peak = LOAD(r->post_peak);
		if (outstanding > b.peak)
			STORE(r->post_peak, (uint32_t)outstanding);
		b.peak_sge = LOAD(r->post_peak_sge);
		if (s.widest > b.peak_sge)
			STORE(r->post_peak_sge, s.widest);
	}
	rc = h->hooks->real.post_srq_recv(srq, wr, &bad);
	if (unlikely(rc || bad != (void *)&not_written))
		return srq_recv_refused(h, &s, rc, bad, bad_wr, owner, &b);
	if (!owner) {
		raise32(&r->other_peak, (uint32_t)outstanding);
		raise32(&r->other_peak_sge, s.widest);
	}
	return rc;
}

static OUT_OF_LINE int srq_recv_on_unknown(struct ibv_srq *srq, struct ibv_recv_wr *wr,
					   struct ibv_recv_wr **bad_wr)
{
	const struct context_hooks *hooks;

	if (lookup_find_again(&srqs, offsetof(struct hot_srq, srq), (uintptr_t)srq))
		return guarded_post_srq_recv(srq, wr, bad_wr);
	hooks = hooks_of(srq->context);
	return hooks ? hooks->real.post_srq_recv(srq, wr, bad_wr) : EINVAL;
}

static OUT_OF_LINE int srq_recv_as_other(struct hot_srq *h, struct ibv_srq *srq,
					 struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	if (!bad_wr || !wr)
		return h->hooks->real.post_srq_recv(srq, wr, bad_wr);
	if (become_owner(&h->post_owner))
		return guarded_post_srq_recv(srq, wr, bad_wr);
	return post_srq_recvs(h, srq, wr, bad_wr, false);
}

/* Takes the place of ibv_context_ops.post_srq_recv: man ibv_post_srq_recv. */
int guarded_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	struct hot_srq *h = lookup_find(&srqs, offsetof(struct hot_srq, srq), (uintptr_t)srq);

	if (unlikely(!h))
		return srq_recv_on_unknown(srq, wr, bad_wr);
	if (unlikely(!owns(&h->post_owner) || !bad_wr || !wr))
		return srq_recv_as_other(h, srq, wr, bad_wr);
	return post_srq_recvs(h, srq, wr, bad_wr, true);
}
