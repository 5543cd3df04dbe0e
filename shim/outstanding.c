/* SPDX-License-Identifier: MIT */
/* The rare parts of the data path, out of line: see outstanding.h. */
#include "outstanding.h"

#include <errno.h>

OUT_OF_LINE bool become_owner(_Atomic(void *) *owner)
{
	void *self = thread_pointer(), *nobody = NULL;

	return atomic_compare_exchange_strong(owner, &nobody, self) || nobody == self;
}

void raise16(_Atomic uint16_t *to, uint32_t value)
{
	uint16_t now = LOAD(*to);

	while (cut16(value) > now && !atomic_compare_exchange_weak(to, &now, cut16(value)))
		;
}

void raise32(_Atomic uint32_t *to, uint32_t value)
{
	uint32_t now = LOAD(*to);

	while (value > now && !atomic_compare_exchange_weak(to, &now, value))
		;
}

void raise64(_Atomic uint64_t *to, uint64_t value)
{
	uint64_t now = LOAD(*to);

	while (value > now && !atomic_compare_exchange_weak(to, &now, value))
		;
}

void raise_mark(_Atomic uint32_t *to, uint32_t value)
{
	uint32_t now = LOAD(*to);

	while ((int32_t)(value - now) > 0 && !atomic_compare_exchange_weak(to, &now, value))
		;
}

OUT_OF_LINE void become_mixed(struct hot_qp *h)
{
	struct qp_record *r = h->record;
	uint64_t completed = LOAD(r->poll_send_completions) + LOAD(r->other_send_completions);
	uint64_t posted = LOAD(r->post_send_posted) + LOAD(r->other_send_posted);
	uint64_t retired = LOAD(r->other_send_retired);
	uint8_t bits;

	if (posted - completed > h->ring_mask)
		completed = posted - h->ring_mask;
	for (uint64_t n = completed; n != posted; n++)
		ring_place(h, (uint32_t)n, n + 1);
	while (retired < completed &&
	       !atomic_compare_exchange_weak(&r->other_send_retired, &retired, completed))
		;
	STORE(r->post_last_signaled, (uint32_t)LOAD(r->post_send_posted));
	STORE(r->other_last_signaled, (uint32_t)LOAD(r->other_send_posted));
	atomic_store_explicit(&r->mixed, 1, memory_order_release);
	bits = QUEUE_MIXED | QUEUE_APART;
	/* the short paths tell positions that are 2^16 apart by nothing */
	if (ring_is_wide(h))
		bits |= QUEUE_SHARED;
	bits |= atomic_fetch_or_explicit(&h->mixed, bits, memory_order_release);
	atomic_fetch_or(&h->mode, bits & QUEUE_SHARED ? MODE_MIXED | MODE_SHARED : MODE_MIXED);
}

/* Of the two, whoever comes second tells the posters. */
OUT_OF_LINE void become_shared(struct hot_qp *h)
{
	if (atomic_fetch_or(&h->mixed, QUEUE_SHARED) & QUEUE_MIXED)
		atomic_fetch_or(&h->mode, MODE_SHARED);
}

OUT_OF_LINE void retired_apart(struct hot_qp *h)
{
	atomic_fetch_or(&h->mixed, QUEUE_APART);
}

static bool may_post_sends(uint8_t state)
{
	return state == IBV_QPS_RTS || state == IBV_QPS_SQD || state == IBV_QPS_SQE ||
	       state == IBV_QPS_ERR || state > IBV_QPS_UNKNOWN;
}

bool means_full(int rc)
{
	return rc == ENOMEM || rc == -ENOMEM || rc == ENOSPC || rc == -1 || rc == 0;
}

void count_refusal(struct refusal_counts *c, enum refusal why, uint64_t not_posted)
{
	ADD(c->not_posted, not_posted);
	switch (why) {
	case REFUSED_QUEUE_FULL:
		ADD(c->queue_full, 1);
		break;
	case REFUSED_QUEUE_FULL_EARLY:
		ADD(c->queue_full_early, 1);
		break;
	case REFUSED_TOO_MANY_SGE:
		ADD(c->too_many_sge, 1);
		break;
	case REFUSED_INLINE_TOO_BIG:
		ADD(c->inline_too_big, 1);
		break;
	case REFUSED_BAD_STATE:
		ADD(c->bad_state, 1);
		break;
	case REFUSED_INJECTED:
		ADD(c->injected, 1);
		break;
	default:
		ADD(c->other, 1);
	}
}

enum refusal why_send_refused(const struct qp_record *r, uint32_t sges, uint32_t inlined,
			      uint64_t outstanding, int rc)
{
	if (sges > r->effective.max_send_sge)
		return REFUSED_TOO_MANY_SGE;
	if (inlined > r->effective.max_inline_data)
		return REFUSED_INLINE_TOO_BIG;
	if (!may_post_sends(LOAD(r->qp_state)))
		return REFUSED_BAD_STATE;
	if (outstanding >= r->effective.max_send_wr)
		return REFUSED_QUEUE_FULL;
	if (means_full(rc))
		return REFUSED_QUEUE_FULL_EARLY;
	return LOAD(r->qp_state) == IBV_QPS_ERR ? REFUSED_BAD_STATE : REFUSED_OTHER;
}
