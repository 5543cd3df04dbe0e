/* SPDX-License-Identifier: MIT */
/*
 * The data path of sending: reads the list before the real call and never after it, records before the call and
 * takes back what was refused. No allocation, lock, division, clock or system call.
 *
 * Who counts where (state.h, struct qp_record): the first thread that posts on a queue owns its post_
 * words and counts plainly; all others use the other_ words, atomically. The general code takes `owner`, a
 * constant where it is inlined. One request on a queue that one thread posts to has paths of its own.
 */
#include <errno.h>

#include "outstanding.h"

/* One call on its way through. */
struct sent {
	uint64_t requests;
	uint64_t mine, theirs; /* posted before, by this thread's words and by the others' */
	uint64_t outstanding;  /* with the whole list */
	uint32_t widest;       /* num_sge */
	uint32_t inlined;      /* bytes of the largest inline request */
	uint32_t all, any;     /* send_flags */
	uint32_t unsignaled;
	uint64_t last_signaled;	      /* how many requests go up to it; 0: none is signaled */
	struct steps *sges, *inlines; /* of a list with requests wider than before, or NULL */
};

static uint32_t inline_bytes(const struct ibv_send_wr *wr)
{
	const struct ibv_sge *sge = wr->sg_list;
	uint32_t bytes = 0;

	for (int n = wr->num_sge; n > 0; n--, sge++)
		bytes += sge->length;
	return bytes;
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

static ALWAYS_INLINE void summarize(const struct ibv_send_wr *wr, struct sent *s)
{
	uint32_t widest = 0, all = UINT32_MAX, any = 0;
	uint64_t requests = 0;

	for (const struct ibv_send_wr *w = wr; w; w = w->next) {
		requests++;
		if ((uint32_t)w->num_sge > widest)
			widest = (uint32_t)w->num_sge;
		all &= w->send_flags;
		any |= w->send_flags;
	}
	s->requests = requests;
	s->widest = widest;
	s->all = all;
	s->any = any;
	s->inlined = unlikely(any & IBV_SEND_INLINE) ? widest_inline(wr) : 0;
}

/* Writes the position after each signaled request of the list at its turn in the ring. */
static ALWAYS_INLINE void place_signaled(const struct hot_qp *h, const struct ibv_send_wr *wr,
					 struct sent *s)
{
	const struct qp_record *r = h->record;
	uint64_t first = s->mine + s->theirs, position = first, last = first;
	uint32_t turn = (uint32_t)first - LOAD(r->post_unsignaled) - LOAD(r->other_unsignaled);
	uint32_t first_turn = turn, room = ring_room(h, turn);

	for (; wr; wr = wr->next) {
		position++;
		if (wr->send_flags & IBV_SEND_SIGNALED) {
			if (likely(turn - first_turn < room))
				ring_place(h, turn, position);
			turn++;
			last = position;
		}
	}
	s->unsignaled = (uint32_t)(position - first) - (turn - first_turn);
	s->last_signaled = last - first;
}

/* --- after the real call --- */

/* What is now known of the accepted requests: of them s tells. */
static ALWAYS_INLINE void note_owned(struct qp_record *r, const struct sent *s, bool mixed)
{
	if (mixed) {
		STORE(r->post_unsignaled, LOAD(r->post_unsignaled) + s->unsignaled);
		if (s->last_signaled) {
			STORE(r->post_last_signaled, (uint32_t)(s->mine + s->last_signaled));
			STORE(r->post_seen_other, (uint32_t)s->theirs);
		}
	}
	if ((int64_t)s->outstanding > (int64_t)LOAD(r->post_send_peak))
		STORE(r->post_send_peak, (uint32_t)s->outstanding);
	if (s->widest > LOAD(r->post_send_peak_sge))
		STORE(r->post_send_peak_sge, cut16(s->widest));
	if (s->inlined > LOAD(r->post_send_peak_inline))
		STORE(r->post_send_peak_inline, cut16(s->inlined));
}

static void note_as_other(struct qp_record *r, const struct sent *s, bool mixed)
{
	if (mixed) {
		ADD(r->other_unsignaled, s->unsignaled);
		if (s->last_signaled) {
			raise_mark(&r->other_last_signaled, (uint32_t)(s->mine + s->last_signaled));
			raise_mark(&r->other_seen_post, (uint32_t)s->theirs);
		}
	}
	if ((int64_t)s->outstanding > 0)
		raise32(&r->other_send_peak, (uint32_t)s->outstanding);
	raise16(&r->other_send_peak_sge, s->widest);
	raise16(&r->other_send_peak_inline, s->inlined);
}

/* Makes s speak of the accepted requests alone. They may be freed by now: how many of them were signaled tells
 * the ring, how wide they were the steps that were noted where a peak was about to rise. */
static void leave_accepted(const struct hot_qp *h, struct sent *s, uint64_t refused,
			   uint32_t refused_unsignaled)
{
	const struct qp_record *r = h->record;
	uint64_t first = s->mine + s->theirs, accepted = s->requests - refused;
	uint32_t signaled, turn;

	if (is_mixed(h) && h->ring) {
		s->unsignaled -= refused_unsignaled;
		signaled = (uint32_t)accepted - s->unsignaled;
		turn = (uint32_t)first - LOAD(r->post_unsignaled) - LOAD(r->other_unsignaled) +
		       signaled - 1;
		s->last_signaled = signaled ? ring_distance(h, turn, first) : 0;
	}
	s->requests = accepted;
	s->outstanding -= refused;
	if (refused) {
		s->widest = s->sges ? steps_widest(s->sges, accepted) : 0;
		s->inlined = s->inlines ? steps_widest(s->inlines, accepted) : 0;
	}
}

/* The requests from `bad` on, which the provider left to the application. */
static uint64_t count_refused(const struct ibv_send_wr *bad, uint64_t most, uint32_t *unsignaled)
{
	uint64_t refused = 0;

	*unsignaled = 0;
	for (; bad && refused < most; bad = bad->next) {
		refused++;
		*unsignaled += !(bad->send_flags & IBV_SEND_SIGNALED);
	}
	return refused;
}

/* The call failed, or the provider wrote *bad_wr all the same: ionic clears it on success, siw stops at a
 * request and returns 0, rxe queues a whole list and fails with NULL. */
static OUT_OF_LINE int send_ended(struct hot_qp *h, struct sent *s, int rc, struct ibv_send_wr *bad,
				  struct ibv_send_wr **bad_wr, bool owner)
{
	struct qp_record *r = h->record;
	bool mixed = is_mixed(h), told = bad != NOT_WRITTEN;
	uint32_t unsignaled, sges = 0, inlined = 0;
	uint64_t refused, now;

	if (told)
		*bad_wr = bad;
	else
		bad = NULL;
	refused = told ? count_refused(bad, s->requests, &unsignaled) : s->requests;
	if (!told)
		unsignaled = s->unsignaled;
	if (bad) {
		sges = (uint32_t)bad->num_sge;
		inlined = bad->send_flags & IBV_SEND_INLINE ? inline_bytes(bad) : 0;
	}
	if (owner)
		STORE(r->post_send_posted, LOAD(r->post_send_posted) - refused);
	else
		ADD(r->other_send_posted, -refused);
	leave_accepted(h, s, refused, unsignaled);
	now = record_send_outstanding(r);
	if ((int64_t)now < (int64_t)s->outstanding)
		now = s->outstanding;
	if (rc || bad)
		refused_send(r, sges, inlined, now, refused, rc);
	if (!s->requests)
		return rc;
	if (owner)
		note_owned(r, s, mixed);
	else
		note_as_other(r, s, mixed);
	return rc;
}

/* --- any list, any thread --- */

static ALWAYS_INLINE bool would_rise(const struct qp_record *r, const struct sent *s, bool owner)
{
	return owner ? s->widest > LOAD(r->post_send_peak_sge) ||
			       s->inlined > LOAD(r->post_send_peak_inline)
		     : s->widest > LOAD(r->other_send_peak_sge) ||
			       s->inlined > LOAD(r->other_send_peak_inline);
}

static OUT_OF_LINE void note_steps(const struct ibv_send_wr *wr, struct steps *sges,
				   struct steps *inlines)
{
	sges->count = inlines->count = 0;
	for (uint64_t position = 0; wr; wr = wr->next, position++) {
		steps_note(sges, position, (uint32_t)wr->num_sge);
		if (wr->send_flags & IBV_SEND_INLINE)
			steps_note(inlines, position, inline_bytes(wr));
	}
}

static ALWAYS_INLINE int send_list(struct hot_qp *h, struct ibv_qp *qp, struct ibv_send_wr *wr,
				   struct ibv_send_wr **bad_wr, const bool owner)
{
	struct ibv_send_wr *bad = NOT_WRITTEN;
	struct qp_record *r = h->record;
	struct steps sges, inlines;
	struct sent s;
	bool mixed;
	int rc;

	summarize(wr, &s);
	s.sges = s.inlines = NULL;
	if (unlikely(s.requests > 1 && would_rise(r, &s, owner))) {
		note_steps(wr, &sges, &inlines);
		s.sges = &sges;
		s.inlines = &inlines;
	}
	mixed = is_mixed(h);
	if (unlikely(!mixed && h->ring && !(s.all & IBV_SEND_SIGNALED))) {
		become_mixed(h);
		mixed = true;
	}
	if (owner) {
		s.mine = LOAD(r->post_send_posted);
		s.theirs = LOAD(r->other_send_posted);
		STORE(r->post_send_posted, s.mine + s.requests);
	} else {
		used_by_other(h);
		s.mine = ADD(r->other_send_posted, s.requests);
		s.theirs = LOAD(r->post_send_posted);
	}
	s.unsignaled = 0;
	s.last_signaled = 0;
	if (mixed && h->ring)
		place_signaled(h, wr, &s);
	s.outstanding = s.mine + s.theirs + s.requests - sends_retired(r, mixed);
	rc = h->hooks->real.post_send(qp, wr, &bad);
	if (unlikely(rc || bad != NOT_WRITTEN))
		return send_ended(h, &s, rc, bad, bad_wr, owner);
	if (owner)
		note_owned(r, &s, mixed);
	else
		note_as_other(r, &s, mixed);
	return rc;
}

/* What the short paths below do not take. All three arguments may be whatever a program passes. */
static SHORT_PATH int send_somehow(struct ibv_qp *qp, struct ibv_send_wr *wr,
				   struct ibv_send_wr **bad_wr)
{
	struct hot_qp *h = lookup_find(&qps_by_address, offsetof(struct hot_qp, qp), (uintptr_t)qp);
	const struct context_hooks *hooks;

	if (unlikely(!h)) {
		/* an object made out of our sight, or in a parent process */
		hooks = hooks_of(qp->context);
		inherited_used(hooks, INHERITED_POSTS, 1);
		return hooks ? hooks->real.post_send(qp, wr, bad_wr) : EINVAL;
	}
	if (unlikely(!bad_wr || !wr))
		return h->hooks->real.post_send(qp, wr, bad_wr);
	if (owns(&h->send_owner) || become_owner(&h->send_owner))
		return send_list(h, qp, wr, bad_wr, true);
	return send_list(h, qp, wr, bad_wr, false);
}

/*
 * --- the short paths: the queue's owner, requests no wider than one before ---
 *
 * What is needed after the real call only when that fails lies in volatile variables: one store each, where a
 * register that survives the call would cost three instructions. Where a peak would rise the general code is
 * taken, but for the one path that nearly all posts take. The arguments are in the order of the wrapper's,
 * so that they stay in place.
 */

/* What such a path had posted: the marks as they were before it. */
static OUT_OF_LINE int short_ended(struct hot_qp *h, int rc, struct ibv_send_wr *bad,
				   struct ibv_send_wr **bad_wr, uint32_t requests,
				   uint32_t unsignaled, uint32_t last_signaled)
{
	struct qp_record *r = h->record;
	struct sent s = { .requests = requests,
			  .unsignaled = unsignaled,
			  .last_signaled = last_signaled,
			  .mine = LOAD(r->post_send_posted) - requests,
			  .theirs = LOAD(r->other_send_posted) };

	STORE(r->post_unsignaled, LOAD(r->post_unsignaled) - unsignaled);
	s.outstanding = record_send_outstanding(r);
	return send_ended(h, &s, rc, bad, bad_wr, true);
}

/* One signaled request on a queue that has met no unsignaled one. */
static SHORT_PATH int send_one(struct ibv_qp *qp, struct ibv_send_wr *wr,
			       struct ibv_send_wr **bad_wr, struct hot_qp *h)
{
	struct ibv_send_wr *bad = NOT_WRITTEN, **volatile kept_bad_wr = bad_wr;
	struct hot_qp *volatile kept_h = h;
	struct qp_record *r = h->record;
	uint64_t posted = READ64(r->post_send_posted) + 1;
	int rc;

	if (unlikely((int64_t)(posted + READ64(r->other_send_posted) -
			       READ64(r->poll_send_completions) -
			       READ64(r->other_send_completions)) >
		     (int64_t)READ32(r->post_send_peak)))
		return send_somehow(qp, wr, bad_wr);
	WRITE64(r->post_send_posted, posted);
	rc = h->hooks->real.post_send(qp, wr, &bad);
	if (unlikely(rc || bad != NOT_WRITTEN))
		return short_ended(kept_h, rc, bad, kept_bad_wr, 1, 0, 1);
	return rc;
}

/* One request on a mixed queue that nobody else posts to: the marks of state.h for that case are not needed. What is
 * retired is at least what the owner of polling has seen. */
static SHORT_PATH int send_one_signaled(struct ibv_qp *qp, struct ibv_send_wr *wr,
					struct ibv_send_wr **bad_wr, struct hot_qp *h)
{
	struct ibv_send_wr *bad = NOT_WRITTEN, **volatile kept_bad_wr = bad_wr;
	struct hot_qp *volatile kept_h = h;
	struct qp_record *r = h->record;
	uint64_t posted = READ64(r->post_send_posted) + 1;
	int rc;

	if (unlikely((int64_t)(posted - READ64(r->poll_send_retired)) >
		     (int64_t)READ32(r->post_send_peak)))
		return send_somehow(qp, wr, bad_wr);
	WRITE64(r->post_send_posted, posted);
	ring_put(h, (uint32_t)posted - 1 - READ32(r->post_unsignaled), posted);
	rc = h->hooks->real.post_send(qp, wr, &bad);
	if (unlikely(rc || bad != NOT_WRITTEN))
		return short_ended(kept_h, rc, bad, kept_bad_wr, 1, 0, 1);
	return rc;
}

static SHORT_PATH int send_one_unsignaled(struct ibv_qp *qp, struct ibv_send_wr *wr,
					  struct ibv_send_wr **bad_wr, struct hot_qp *h)
{
	struct ibv_send_wr *bad = NOT_WRITTEN, **volatile kept_bad_wr = bad_wr;
	struct hot_qp *volatile kept_h = h;
	struct qp_record *r = h->record;
	uint64_t posted = READ64(r->post_send_posted) + 1;
	int rc;

	if (unlikely((int64_t)(posted - READ64(r->poll_send_retired)) >
		     (int64_t)READ32(r->post_send_peak)))
		return send_somehow(qp, wr, bad_wr);
	WRITE64(r->post_send_posted, posted);
	WRITE32(r->post_unsignaled, READ32(r->post_unsignaled) + 1);
	rc = h->hooks->real.post_send(qp, wr, &bad);
	if (unlikely(rc || bad != NOT_WRITTEN))
		return short_ended(kept_h, rc, bad, kept_bad_wr, 1, 1, 0);
	return rc;
}

/* Signaled requests on a queue that is not mixed. */
static SHORT_PATH int send_plain(struct ibv_qp *qp, struct ibv_send_wr *wr,
				 struct ibv_send_wr **bad_wr, struct hot_qp *h, uint64_t requests)
{
	struct ibv_send_wr *bad = NOT_WRITTEN, **volatile kept_bad_wr = bad_wr;
	struct hot_qp *volatile kept_h = h;
	volatile uint64_t kept_requests = requests;
	struct qp_record *r = h->record;
	uint64_t posted = READ64(r->post_send_posted) + requests;
	int rc;

	if (unlikely((int64_t)(posted + READ64(r->other_send_posted) -
			       READ64(r->poll_send_completions) -
			       READ64(r->other_send_completions)) >
		     (int64_t)READ32(r->post_send_peak)))
		return send_somehow(qp, wr, bad_wr);
	WRITE64(r->post_send_posted, posted);
	rc = h->hooks->real.post_send(qp, wr, &bad);
	if (unlikely(rc || bad != NOT_WRITTEN))
		return short_ended(kept_h, rc, bad, kept_bad_wr, (uint32_t)kept_requests, 0,
				   (uint32_t)kept_requests);
	return rc;
}

/* A list, and whether it is one of those. */
static SHORT_PATH int send_plain_list(struct ibv_qp *qp, struct ibv_send_wr *wr,
				      struct ibv_send_wr **bad_wr, struct hot_qp *h)
{
	const struct ibv_send_wr *w = wr->next;
	uint32_t widest = READ16(h->record->post_send_peak_sge);
	uint64_t requests = 1;
	uint32_t all = wr->send_flags, any = all;

	if (unlikely((uint32_t)wr->num_sge > widest))
		return send_somehow(qp, wr, bad_wr);
	do {
		if (unlikely((uint32_t)w->num_sge > widest))
			return send_somehow(qp, wr, bad_wr);
		all &= w->send_flags;
		any |= w->send_flags;
		requests++;
		w = w->next;
	} while (w);
	if (unlikely(any & IBV_SEND_INLINE))
		return send_somehow(qp, wr, bad_wr);
	if (unlikely(!(all & IBV_SEND_SIGNALED)) && !(READ8(h->mode) & MODE_SIG_ALL))
		return send_somehow(qp, wr, bad_wr);
	return send_plain(qp, wr, bad_wr, h, requests);
}

/* A list none of which is inline, on a mixed queue that nobody else posts to. What it leaves in the ring when the
 * general path is taken after all is written there again. */
static SHORT_PATH int send_mixed_list(struct ibv_qp *qp, struct ibv_send_wr *wr,
				      struct ibv_send_wr **bad_wr, struct hot_qp *h)
{
	struct ibv_send_wr *bad = NOT_WRITTEN, **volatile kept_bad_wr = bad_wr;
	struct hot_qp *volatile kept_h = h;
	volatile uint32_t kept_requests, kept_unsignaled, kept_last;
	const struct ibv_send_wr *w = wr;
	struct qp_record *r = h->record;
	uint32_t first = (uint32_t)READ64(r->post_send_posted), position = first, last = first;
	uint32_t turn = first - READ32(r->post_unsignaled), widest = READ16(r->post_send_peak_sge);
	/* as many as there were before: the ring has room for them */
	uint32_t end = (uint32_t)READ64(r->poll_send_retired) + READ32(r->post_send_peak);
	int rc;

	if (unlikely(READ8(h->mode) != MODE_MIXED || (int32_t)(end - first) < 0))
		return send_somehow(qp, wr, bad_wr);
	kept_unsignaled = turn;
	do {
		if (unlikely((uint32_t)w->num_sge > widest || w->send_flags & IBV_SEND_INLINE ||
			     position == end))
			return send_somehow(qp, wr, bad_wr);
		position++;
		if (w->send_flags & IBV_SEND_SIGNALED) {
			ring_put(h, turn++, position);
			last = position;
		}
		w = w->next;
	} while (w);
	turn -= kept_unsignaled; /* signaled ones */
	kept_last = last - first;
	position -= first;
	kept_requests = position;
	kept_unsignaled = position - turn;
	WRITE64(r->post_send_posted, READ64(r->post_send_posted) + position);
	WRITE32(r->post_unsignaled, READ32(r->post_unsignaled) + position - turn);
	rc = h->hooks->real.post_send(qp, wr, &bad);
	if (unlikely(rc || bad != NOT_WRITTEN))
		return short_ended(kept_h, rc, bad, kept_bad_wr, kept_requests, kept_unsignaled,
				   kept_last);
	return rc;
}

/* --- the wrapper --- */

/* Takes the place of ibv_context_ops.post_send: man ibv_post_send. The real one is given a bad_wr of ours, so that the
 * application's is not touched unless a request is refused. */
int guarded_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
	struct hot_qp *h =
		lookup_first(&qps_by_address, offsetof(struct hot_qp, qp), (uintptr_t)qp);
	uint32_t kind;

	if (unlikely(!h || !owns(&h->send_owner) || !wr))
		return send_somehow(qp, wr, bad_wr);
	if (wr->next)
		return READ8(h->mode) & MODE_MIXED ? send_mixed_list(qp, wr, bad_wr, h)
						   : send_plain_list(qp, wr, bad_wr, h);
	if (unlikely((uint32_t)wr->num_sge > READ16(h->record->post_send_peak_sge)))
		return send_somehow(qp, wr, bad_wr);
	kind = (wr->send_flags & (IBV_SEND_SIGNALED | IBV_SEND_INLINE)) | READ8(h->mode);
again:
	if (likely(kind == IBV_SEND_SIGNALED))
		return send_one(qp, wr, bad_wr, h);
	if (kind & IBV_SEND_INLINE) {
		if (unlikely(inline_bytes(wr) > READ16(h->record->post_send_peak_inline)))
			return send_somehow(qp, wr, bad_wr);
		kind &= ~(uint32_t)IBV_SEND_INLINE;
		goto again;
	}
	if (kind == (MODE_MIXED | IBV_SEND_SIGNALED))
		return send_one_signaled(qp, wr, bad_wr, h);
	if (kind == MODE_MIXED)
		return send_one_unsignaled(qp, wr, bad_wr, h);
	return send_somehow(qp, wr, bad_wr);
}

/* Takes the place of ibv_context_ops.bind_mw: man ibv_bind_mw. One request of the send queue, counted as that of
 * another thread, since it is rare. */
int guarded_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind)
{
	struct hot_qp *h = lookup_find(&qps_by_address, offsetof(struct hot_qp, qp), (uintptr_t)qp);
	struct ibv_send_wr request = { .send_flags = bind->send_flags };
	const struct context_hooks *hooks = h ? h->hooks : hooks_of(qp->context);
	struct sent s = { .requests = 1 };
	struct qp_record *r;
	int rc;

	if (!h) {
		inherited_used(hooks, INHERITED_POSTS, 1);
		return hooks ? hooks->real.bind_mw(qp, mw, bind) : EINVAL;
	}
	r = h->record;
	if (!(bind->send_flags & IBV_SEND_SIGNALED) && h->ring && !is_mixed(h))
		become_mixed(h);
	used_by_other(h);
	s.mine = ADD(r->other_send_posted, 1);
	s.theirs = LOAD(r->post_send_posted);
	if (is_mixed(h))
		place_signaled(h, &request, &s);
	s.outstanding = s.mine + s.theirs + 1 - sends_retired(r, is_mixed(h));
	rc = hooks->real.bind_mw(qp, mw, bind);
	if (rc) {
		ADD(r->other_send_posted, -1);
		refused_send(r, 0, 0, s.outstanding - 1, 1, rc);
	} else {
		note_as_other(r, &s, is_mixed(h));
	}
	return rc;
}
