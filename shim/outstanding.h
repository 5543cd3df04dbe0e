/* SPDX-License-Identifier: MIT */
/*
 * What the files of the data path share: loads and stores of the words of a record, who owns a queue, the
 * ring of unsignaled requests, and the reasons of refusals. The rules are state.h's.
 */
#ifndef QPG_OUTSTANDING_H
#define QPG_OUTSTANDING_H

#include <string.h>

#include "counts.h"
#include "guard.h"

#define LOAD(word)	   atomic_load_explicit(&(word), memory_order_relaxed)
#define STORE(word, value) atomic_store_explicit(&(word), (value), memory_order_relaxed)
#define ADD(word, value)   atomic_fetch_add_explicit(&(word), (value), memory_order_relaxed)

/*
 * Relaxed loads and stores that the compiler may make operands of other instructions, which it does with no
 * atomic access: two thirds of the cost of a post. Aligned words of up to 8 bytes are read and written
 * whole on every processor we know; each is used once, so a second read would do no harm. Where ThreadSanitizer
 * looks, they are what they say.
 */
#ifdef __SANITIZE_THREAD__
#define READ64(word)	     LOAD(word)
#define READ32(word)	     LOAD(word)
#define READ16(word)	     LOAD(word)
#define READ8(word)	     LOAD(word)
#define READ_POINTER(word)   LOAD(word)
#define WRITE64(word, value) STORE(word, value)
#define WRITE32(word, value) STORE(word, value)
#define WRITE16(word, value) __atomic_store_n(&(word), (value), __ATOMIC_RELAXED)
#else
#define READ64(word)	     (*(const uint64_t *)&(word))
#define READ32(word)	     (*(const uint32_t *)&(word))
#define READ16(word)	     (*(const uint16_t *)&(word))
#define READ8(word)	     (*(const uint8_t *)&(word))
#define READ_POINTER(word)   (*(void *const *)&(word))
#define WRITE64(word, value) (*(uint64_t *)&(word) = (value))
#define WRITE32(word, value) (*(uint32_t *)&(word) = (value))
#define WRITE16(word, value) (*(uint16_t *)&(word) = (value))
#endif

/* The compiler is to read again what it has written: an addition in memory and a load are less than what it makes of
 * them in registers. */
#define READ_AGAIN() atomic_signal_fence(memory_order_seq_cst)

/* What *bad_wr is before the real call, to tell whether the provider wrote it: no address of a request. */
#define NOT_WRITTEN   ((void *)1)

#define ALWAYS_INLINE inline __attribute__((always_inline))
#define OUT_OF_LINE   __attribute__((noinline, cold))
#define SHORT_PATH    __attribute__((noinline)) /* a frame of its own, reached by a jump */

/* What tells threads apart, in one instruction. gcc has the builtin for x86 from version 11 on. */
static ALWAYS_INLINE void *thread_pointer(void)
{
#if defined(__x86_64__) && !defined(__clang__) && __GNUC__ < 11
	void *self;

	__asm__("mov %%fs:0, %0" : "=r"(self));
	return self;
#else
	return __builtin_thread_pointer();
#endif
}

/* Whether this thread owns the queue. */
static ALWAYS_INLINE bool owns(_Atomic(void *) *owner)
{
	return likely(READ_POINTER(*owner) == thread_pointer());
}

/* The first to ask becomes the owner. */
bool become_owner(_Atomic(void *) *owner);

/* Raises a peak that several threads write. raise_mark: of request numbers, modulo 2^32. */
void raise16(_Atomic uint16_t *to, uint32_t value);
void raise32(_Atomic uint32_t *to, uint32_t value);
void raise64(_Atomic uint64_t *to, uint64_t value);
void raise_mark(_Atomic uint32_t *to, uint32_t value);

static inline uint16_t cut16(uint32_t n)
{
	return n > UINT16_MAX ? UINT16_MAX : (uint16_t)n;
}

/*
 * Where in a list its requests become wider than all before: what is needed when only the first of them are
 * accepted, which may then be freed. More than fit are forgotten, the widest of them first.
 */
struct steps {
	unsigned int count;
	struct {
		uint64_t position; /* requests before it */
		uint32_t value;
	} at[8];
};

static inline void steps_note(struct steps *s, uint64_t position, uint32_t value)
{
	if (s->count == 8 || (s->count && value <= s->at[s->count - 1].value))
		return;
	s->at[s->count].position = position;
	s->at[s->count++].value = value;
}

/* The widest of the first `accepted` requests. */
static inline uint32_t steps_widest(const struct steps *s, uint64_t accepted)
{
	unsigned int i = s->count;

	while (i && s->at[i - 1].position >= accepted)
		i--;
	return i ? s->at[i - 1].value : 0;
}

static ALWAYS_INLINE bool is_mixed(const struct hot_qp *h)
{
	return READ8(h->mixed) & QUEUE_MIXED;
}

/* The position after a signaled request, at its turn in the ring. Turns count from 0; that of the last completion is
 * found by the number of completions as it is, hence the 1. */
static ALWAYS_INLINE void ring_put(const struct hot_qp *h, uint32_t turn, uint64_t position)
{
	WRITE16(h->ring[(turn + 1) & h->ring_mask], (uint16_t)position);
}

static ALWAYS_INLINE uint16_t ring_get(const struct hot_qp *h, uint32_t turn)
{
	return __atomic_load_n(&h->ring[(turn + 1) & h->ring_mask], __ATOMIC_RELAXED);
}

/* Of a queue so deep that positions 2^16 apart may be outstanding the slots are wide. The short paths
 * leave such a queue, once it is mixed, to the general ones, which use these two. */
static ALWAYS_INLINE bool ring_is_wide(const struct hot_qp *h)
{
	return unlikely(h->ring_mask >= (1u << RING_WIDE) - 1);
}

static ALWAYS_INLINE void ring_place(const struct hot_qp *h, uint32_t turn, uint64_t position)
{
	uint32_t *wide = (uint32_t *)(void *)h->ring;

	if (ring_is_wide(h))
		__atomic_store_n(&wide[(turn + 1) & h->ring_mask], (uint32_t)position,
				 __ATOMIC_RELAXED);
	else
		ring_put(h, turn, position);
}

/* How many requests lie between the first `from` and the position at a turn. */
static ALWAYS_INLINE uint32_t ring_distance(const struct hot_qp *h, uint32_t turn, uint64_t from)
{
	const uint32_t *wide = (const uint32_t *)(const void *)h->ring;

	if (ring_is_wide(h))
		return __atomic_load_n(&wide[(turn + 1) & h->ring_mask], __ATOMIC_RELAXED) -
		       (uint32_t)from;
	return (uint16_t)(ring_get(h, turn) - (uint16_t)from);
}

/* How many more signaled requests the ring has room for: what is posted beyond cannot be accepted, and must not
 * take the places of what is outstanding. */
static ALWAYS_INLINE uint32_t ring_room(const struct hot_qp *h, uint32_t turn)
{
	const struct qp_record *r = h->record;
	uint32_t outstanding = turn - (uint32_t)(READ64(r->poll_send_completions) +
						 READ64(r->other_send_completions));

	return outstanding > h->ring_mask ? 0 : h->ring_mask + 1 - outstanding;
}

/* The send requests that are outstanding no more. */
static ALWAYS_INLINE uint64_t sends_retired(const struct qp_record *r, bool mixed)
{
	uint64_t a, b;

	if (!mixed)
		return READ64(r->poll_send_completions) + READ64(r->other_send_completions);
	a = READ64(r->poll_send_retired);
	b = READ64(r->other_send_retired);
	return a > b ? a : b;
}

/*
 * The first unsignaled request of a queue: from now on the ring tells which completion retires how many. What
 * is outstanding now was all signaled, so each of it retires one. The ring is filled before `mixed` is seen.
 */
void become_mixed(struct hot_qp *h);

/* A thread that is not the owner posts or polls: the short paths of a mixed queue then leave it to the general ones. */
void become_shared(struct hot_qp *h);

static ALWAYS_INLINE void used_by_other(struct hot_qp *h)
{
	if (unlikely(!(READ8(h->mixed) & QUEUE_SHARED)))
		become_shared(h);
}

/* --- what the owner of a CQ does with a completion --- */

/*
 * What was taken since a poll last came back short is a lower bound of what the CQ held. It is counted without a
 * count: rise_at is where poll_completions, which goes up anyway, passes the peak.
 */
static ALWAYS_INLINE void backlog_begins(struct hot_cq *q, uint64_t completions)
{
	WRITE64(q->rise_at, completions + READ32(q->record->peak_backlog));
}

static ALWAYS_INLINE void backlog_goes_on(struct hot_cq *q, uint64_t completions)
{
	if (unlikely(completions > READ64(q->rise_at))) {
		READ_AGAIN();
		WRITE32(q->record->peak_backlog,
			READ32(q->record->peak_backlog) +
				(uint32_t)(completions - READ64(q->rise_at)));
		WRITE64(q->rise_at, completions);
	}
}

/* Whether a completion is one of the rarer kinds; its two words are asked at once. */
static_assert(offsetof(struct ibv_wc, opcode) == offsetof(struct ibv_wc, status) + 4 &&
		      sizeof(enum ibv_wc_status) == 4,
	      "two words beside each other");
static ALWAYS_INLINE bool failed_or_received(const struct ibv_wc *wc)
{
	static const uint32_t rare[2] = { UINT32_MAX, IBV_WC_RECV };
	uint64_t mask, words;

	memcpy(&mask, rare, sizeof(mask));
	memcpy(&words, &wc->status, sizeof(words));
	return words & mask;
}

/*
 * Whether a completion that succeeded is a receive's. The opcodes that drivers give a meaning (mlx5dv.h:
 * UMR, raw WQE, memcpy) have the bit of a receive, but are sends.
 */
static ALWAYS_INLINE bool is_receive(enum ibv_wc_opcode opcode)
{
	return opcode & IBV_WC_RECV && opcode < IBV_WC_DRIVER1;
}

static ALWAYS_INLINE void send_completed(const struct hot_qp *h)
{
	struct qp_record *r = h->record;

	WRITE64(r->poll_send_completions, READ64(r->poll_send_completions) + 1);
}

static ALWAYS_INLINE void recv_completed(const struct hot_qp *h)
{
	struct qp_record *r = h->record;

	WRITE64(r->poll_recv_retired, READ64(r->poll_recv_retired) + 1);
}

/*
 * Of a mixed queue with nothing but QUEUE_MIXED, after its completions were counted: moves "retired" up to the position
 * that the ring has for the last of them. The owner's side is behind by less than 2^16.
 */
static ALWAYS_INLINE void settle_owned(const struct hot_qp *h)
{
	struct qp_record *r = h->record;
	uint32_t turns, position;

	READ_AGAIN();
	/* the ring was filled before */
	atomic_thread_fence(memory_order_acquire);
	turns = (uint32_t)(READ64(r->poll_send_completions) + READ64(r->other_send_completions));
	position = ring_get(h, turns - 1) - (uint32_t)READ64(r->poll_send_retired);
	READ_AGAIN();
	WRITE64(r->poll_send_retired, READ64(r->poll_send_retired) + (uint16_t)position);
}

/* One refused call and the requests of it that were not accepted. */
void count_refusal(struct refusal_counts *c, enum refusal why, uint64_t not_posted);
/* The providers' codes for a full queue differ in sign; some know no code but -1; siw stops at a request
 * and returns 0. */
bool means_full(int rc);
/* refused.c: a refused call with its numbers, as a failure. */
struct refused_post {
	enum guarded_call call;
	enum refusal why;
	uint16_t device, caller;
	uint8_t qp_type, qp_state;
	uint32_t sges, most_sges, inlined, most_inline;
	uint64_t outstanding, unsignaled;
	uint32_t depth, depth_asked;
	struct qp_caps requested;
	int error;
};
void note_refused_post(const struct refused_post *p);
/* Counts a refused call by its reason and notes it; `sges` and `inlined` of the request that it stopped at,
 * `outstanding` before that, `not_posted` requests in all. */
void refused_send(struct qp_record *r, uint32_t sges, uint32_t inlined, uint64_t outstanding,
		  uint64_t not_posted, int rc);
/* The same of one that failed on purpose. */
void injected_refusal(struct qp_record *r, uint64_t not_posted, int rc);
void refused_recv(struct qp_record *r, enum refusal why, uint32_t sges, uint64_t outstanding,
		  uint64_t not_posted, int rc);
void refused_srq_recv(struct srq_record *r, enum refusal why, uint32_t sges, uint64_t outstanding,
		      uint64_t not_posted, int rc);
/*
 * Why a send was refused, from our own records: the request at which the provider stopped had `sges` and
 * `inlined` bytes, both 0 when that is not known; `outstanding` were before it.
 */
enum refusal why_send_refused(const struct qp_record *r, uint32_t sges, uint32_t inlined,
			      uint64_t outstanding, int rc);

#endif
