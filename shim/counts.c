/* SPDX-License-Identifier: MIT */
/*
 * The formulas of state.h. Every word of a record may change while it is read, so each is loaded
 * once, with no order, and nothing is ever subtracted below zero. Touches nothing but the record.
 */
#include <string.h>

#include "counts.h"

#define LOAD(word) atomic_load_explicit(&(word), memory_order_relaxed)

/*
 * A mark of a request number, which only counts up, may have been stored after the total that it is
 * compared with was loaded. Then it lies slightly ahead: by fewer than this.
 */
#define MARK_MAY_BE_AHEAD (1u << 20)

static uint64_t less(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

static uint64_t most(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* Requests from `mark` up to `posted`, modulo 2^32, at least 0. */
static uint32_t after_mark(uint64_t posted, uint32_t mark)
{
	uint32_t after = (uint32_t)posted - mark;

	return after > UINT32_MAX - MARK_MAY_BE_AHEAD ? 0 : after;
}

/* Requests after the last signaled one on one half of the posters. The later of two marks is the
 * one that fewer requests follow, which stays true when the numbers wrap. */
static uint32_t trailing_of(uint64_t posted, uint32_t mark, uint32_t other_mark)
{
	uint32_t a = after_mark(posted, mark);
	uint32_t b = after_mark(posted, other_mark);

	return a < b ? a : b;
}

uint64_t record_send_retired(const struct qp_record *r)
{
	if (LOAD(r->mixed))
		return most(LOAD(r->poll_send_retired), LOAD(r->other_send_retired));
	return LOAD(r->poll_send_completions) + LOAD(r->other_send_completions);
}

static bool every_signaled_completed(const struct qp_record *r)
{
	uint32_t polled =
		(uint32_t)(LOAD(r->poll_send_completions) + LOAD(r->other_send_completions));
	uint32_t posted = (uint32_t)(LOAD(r->post_send_posted) + LOAD(r->other_send_posted)) -
			  LOAD(r->post_unsignaled) - LOAD(r->other_unsignaled);

	return posted == polled;
}

uint64_t record_send_outstanding(const struct qp_record *r)
{
	/* what is retired was posted before: loaded first, it can only be too small */
	uint64_t retired = record_send_retired(r);
	bool drained = LOAD(r->mixed) && every_signaled_completed(r);
	uint64_t post = LOAD(r->post_send_posted);
	uint64_t other = LOAD(r->other_send_posted);
	uint64_t outstanding = less(post + other, retired);
	uint64_t trailing;

	if (!drained)
		return outstanding;
	trailing =
		(uint64_t)trailing_of(post, LOAD(r->post_last_signaled), LOAD(r->other_seen_post)) +
		trailing_of(other, LOAD(r->other_last_signaled), LOAD(r->post_seen_other));
	return outstanding < trailing ? outstanding : trailing;
}

uint64_t record_recv_outstanding(const struct qp_record *r)
{
	uint64_t retired = LOAD(r->poll_recv_retired) + LOAD(r->other_recv_retired);

	return less(LOAD(r->post_recv_posted) + LOAD(r->other_recv_posted), retired);
}

uint64_t record_srq_outstanding(const struct srq_record *r)
{
	uint64_t retired = LOAD(r->poll_retired) + LOAD(r->retired);

	return less(LOAD(r->post_posted) + LOAD(r->other_posted), retired);
}

static void refusals(const struct refusal_counts *r, struct side_counts *out)
{
	out->refused[REFUSED_QUEUE_FULL] = LOAD(r->queue_full);
	out->refused[REFUSED_QUEUE_FULL_EARLY] = LOAD(r->queue_full_early);
	out->refused[REFUSED_TOO_MANY_SGE] = LOAD(r->too_many_sge);
	out->refused[REFUSED_INLINE_TOO_BIG] = LOAD(r->inline_too_big);
	out->refused[REFUSED_BAD_STATE] = LOAD(r->bad_state);
	out->refused[REFUSED_OTHER] = LOAD(r->other);
	out->refused[REFUSED_INJECTED] = LOAD(r->injected);
	out->not_posted = LOAD(r->not_posted);
}

/* completed is what remains, so that the sum holds whenever the words are read at rest. */
static void complete(struct side_counts *out)
{
	out->completed = less(less(out->posted, out->outstanding), out->discarded);
}

void record_send_counts(const struct qp_record *r, struct side_counts *out)
{
	out->discarded = LOAD(r->send_discarded);
	out->outstanding = record_send_outstanding(r);
	out->posted = LOAD(r->post_send_posted) + LOAD(r->other_send_posted);
	complete(out);
	refusals(&r->send_refused, out);
	out->peak_outstanding = (uint32_t)most(LOAD(r->post_send_peak), LOAD(r->other_send_peak));
	out->peak_sge = (uint32_t)most(LOAD(r->post_send_peak_sge), LOAD(r->other_send_peak_sge));
	out->peak_inline =
		(uint32_t)most(LOAD(r->post_send_peak_inline), LOAD(r->other_send_peak_inline));
}

void record_recv_counts(const struct qp_record *r, struct side_counts *out)
{
	out->discarded = LOAD(r->recv_discarded);
	out->outstanding = record_recv_outstanding(r);
	out->posted = LOAD(r->post_recv_posted) + LOAD(r->other_recv_posted);
	complete(out);
	refusals(&r->recv_refused, out);
	out->peak_outstanding = (uint32_t)most(LOAD(r->post_recv_peak), LOAD(r->other_recv_peak));
	out->peak_sge = (uint32_t)most(LOAD(r->post_recv_peak_sge), LOAD(r->other_recv_peak_sge));
	out->peak_inline = 0;
}

void record_srq_counts(const struct srq_record *r, struct side_counts *out)
{
	out->discarded = LOAD(r->discarded);
	out->outstanding = record_srq_outstanding(r);
	out->posted = LOAD(r->post_posted) + LOAD(r->other_posted);
	complete(out);
	refusals(&r->refused, out);
	out->peak_outstanding = (uint32_t)most(LOAD(r->post_peak), LOAD(r->other_peak));
	out->peak_sge = (uint32_t)most(LOAD(r->post_peak_sge), LOAD(r->other_peak_sge));
	out->peak_inline = 0;
}

void record_wq_counts(const struct wq_record *r, struct side_counts *out)
{
	memset(out, 0, sizeof(*out));
	out->posted = LOAD(r->posted);
	refusals(&r->refused, out);
	out->peak_sge = LOAD(r->peak_sge);
}
