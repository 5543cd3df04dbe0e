/* SPDX-License-Identifier: MIT */
/*
 * Posts that were refused, as failures with their numbers: the first of each kind is told, all are counted. Called
 * on the way out of a refused call alone. Takes the lock only for the first, and only if nobody holds it, since
 * posts may come from signal handlers and must not wait; one that finds it held leaves that to the next.
 */
#include <errno.h>

#include "log.h"
#include "outstanding.h"

static enum reason reason_of(const struct refused_post *p)
{
	static const uint8_t reasons[REFUSALS] = {
		[REFUSED_QUEUE_FULL] = REASON_QUEUE_FULL,
		[REFUSED_QUEUE_FULL_EARLY] = REASON_QUEUE_FULL_EARLY,
		[REFUSED_TOO_MANY_SGE] = REASON_TOO_MANY_SGE,
		[REFUSED_INLINE_TOO_BIG] = REASON_INLINE_TOO_BIG,
		[REFUSED_BAD_STATE] = REASON_BAD_STATE,
		[REFUSED_OTHER] = REASON_OTHER_POST,
		[REFUSED_INJECTED] = REASON_INJECTED,
	};

	if (p->why == REFUSED_QUEUE_FULL && p->depth < p->depth_asked)
		return REASON_CLAMPED;
	return (enum reason)reasons[p->why];
}

static void fill(const struct refused_post *p, struct failure_reason *out)
{
	*out = (struct failure_reason){ .call = (uint8_t)p->call,
					.reason = (uint8_t)reason_of(p),
					.error = p->error < 0 ? -p->error : p->error };
	switch (p->why) {
	case REFUSED_TOO_MANY_SGE:
		out->asked = p->sges;
		out->limit = p->most_sges;
		break;
	case REFUSED_INLINE_TOO_BIG:
		out->asked = p->inlined;
		out->limit = p->most_inline;
		break;
	case REFUSED_BAD_STATE:
		out->asked = p->qp_state;
		break;
	default:
		out->asked = p->outstanding;
		out->limit = p->depth;
		out->number[0] = p->unsignaled;
		out->number[1] = p->depth_asked;
	}
}

/* Many programs post until the queue is full, and then poll; several threads at once meet it a little early. */
static bool is_ordinary(const struct failure_reason *why)
{
	return why->reason == REASON_QUEUE_FULL || why->reason == REASON_QUEUE_FULL_EARLY ||
	       why->reason == REASON_INJECTED;
}

/* Where the record of its kind was put; another kind may have taken the place. */
static _Atomic(struct failure_record *) *place_of(struct guard *g, const struct refused_post *p,
						  const struct failure_reason *why)
{
	uint64_t key = (uint64_t)p->device << 48 | (uint64_t)p->caller << 32 |
		       (uint64_t)why->call << 24 | (uint64_t)why->reason << 16 | p->qp_type << 8;

	return &g->refused_posts[lookup_hash(key ^ p->requested.max_send_wr) % REFUSED_POSTS];
}

static void tell_first(struct guard *g, const struct refused_post *p,
		       const struct failure_reason *why)
{
	static char line[352]; /* under guard->lock */
	const char *device =
		p->device < g->device_count ? g->devices[p->device].record->name : NULL;

	reason_sentence(why, device, line, sizeof(line));
	log_failure(g, is_ordinary(why) ? LOG_INFO : LOG_WARN, line);
}

void note_refused_post(const struct refused_post *p)
{
	_Atomic(struct failure_record *) *place;
	struct guard *g = guard_enter();
	struct failure_record *f;
	struct failure_reason why;
	int saved = errno;

	if (!g)
		return;
	fill(p, &why);
	place = place_of(g, p, &why);
	f = atomic_load_explicit(place, memory_order_acquire);
	if (f && f->reason.reason && !failure_is(f, &why, p->device, p->caller, &p->requested))
		f = NULL;
	if (!f && guard_trylock(g)) {
		f = failure_of(g, &why, p->device, p->caller, p->qp_type, &p->requested);
		if (f && !atomic_load_explicit(&f->count, memory_order_relaxed))
			tell_first(g, p, &why);
		atomic_store_explicit(place, f, memory_order_release);
		guard_unlock(g);
	}
	if (f) {
		atomic_fetch_add_explicit(&f->count, 1, memory_order_relaxed);
		atomic_store_explicit(&f->last_at, now_ns(), memory_order_relaxed);
	}
	errno = saved;
}

/* The numbers of a QP's record that both sides share. */
static struct refused_post of_qp(const struct qp_record *r, enum guarded_call call)
{
	return (struct refused_post){
		.call = call,
		.device = r->device,
		.caller = r->caller,
		.qp_type = r->type,
		.qp_state = LOAD(r->qp_state),
		.requested = r->requested,
	};
}

OUT_OF_LINE void refused_send(struct qp_record *r, uint32_t sges, uint32_t inlined,
			      uint64_t outstanding, uint64_t not_posted, int rc)
{
	enum refusal why = why_send_refused(r, sges, inlined, outstanding, rc);
	struct refused_post p = of_qp(r, CALL_POST_SEND);
	uint64_t posted = LOAD(r->post_send_posted) + LOAD(r->other_send_posted);
	uint64_t completed = LOAD(r->poll_send_completions) + LOAD(r->other_send_completions);
	uint32_t signaled = (uint32_t)(posted - completed) - LOAD(r->post_unsignaled) -
			    LOAD(r->other_unsignaled);

	count_refusal(&r->send_refused, why, not_posted);
	p.why = why;
	p.sges = sges;
	p.most_sges = r->effective.max_send_sge;
	p.inlined = inlined;
	p.most_inline = r->effective.max_inline_data;
	p.outstanding = outstanding;
	p.unsignaled = LOAD(r->mixed) && outstanding > signaled ? outstanding - signaled : 0;
	p.depth = r->effective.max_send_wr;
	p.depth_asked = r->requested.max_send_wr;
	p.error = rc;
	note_refused_post(&p);
}

OUT_OF_LINE void injected_refusal(struct qp_record *r, uint64_t not_posted, int rc)
{
	struct refused_post p = of_qp(r, CALL_POST_SEND);

	count_refusal(&r->send_refused, REFUSED_INJECTED, not_posted);
	p.why = REFUSED_INJECTED;
	p.error = rc;
	note_refused_post(&p);
}

OUT_OF_LINE void refused_recv(struct qp_record *r, enum refusal why, uint32_t sges,
			      uint64_t outstanding, uint64_t not_posted, int rc)
{
	struct refused_post p = of_qp(r, CALL_POST_RECV);

	count_refusal(&r->recv_refused, why, not_posted);
	p.why = why;
	p.sges = sges;
	p.most_sges = r->effective.max_recv_sge;
	p.outstanding = outstanding;
	p.depth = r->effective.max_recv_wr;
	p.depth_asked = r->requested.max_recv_wr;
	p.error = rc;
	note_refused_post(&p);
}

OUT_OF_LINE void refused_srq_recv(struct srq_record *r, enum refusal why, uint32_t sges,
				  uint64_t outstanding, uint64_t not_posted, int rc)
{
	struct refused_post p = {
		.call = CALL_POST_SRQ_RECV,
		.why = why,
		.device = r->device,
		.caller = r->caller,
		.sges = sges,
		.most_sges = r->effective_sge,
		.outstanding = outstanding,
		.depth = LOAD(r->effective_wr),
		.depth_asked = r->requested_wr,
		.requested = { .max_recv_wr = r->requested_wr, .max_recv_sge = r->requested_sge },
		.error = rc,
	};

	count_refusal(&r->refused, why, not_posted);
	note_refused_post(&p);
}
