/* SPDX-License-Identifier: MIT */
/*
 * What the files of the data path share: loads and stores of the words of a record, who owns a queue, the
 * ring of unsignaled requests, and the reasons of refusals. The rules are state.h's.
 */
#ifndef QPG_OUTSTANDING_H
#define QPG_OUTSTANDING_H

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
#else
#define READ64(word)	     (*(const uint64_t *)&(word))
#define READ32(word)	     (*(const uint32_t *)&(word))
#define READ16(word)	     (*(const uint16_t *)&(word))
#define READ8(word)	     (*(const uint8_t *)&(word))
#define READ_POINTER(word)   (*(void *const *)&(word))
#define WRITE64(word, value) (*(uint64_t *)&(word) = (value))
#define WRITE32(word, value) (*(uint32_t *)&(word) = (value))
#endif

/* What *bad_wr is before the real call, to tell whether the provider wrote it: no address of a request. */
#define NOT_WRITTEN   ((void *)1)

#define ALWAYS_INLINE inline __attribute__((always_inline))
#define OUT_OF_LINE   __attribute__((noinline, cold))
#define SHORT_PATH    __attribute__((noinline)) /* a frame of its own, reached by a jump */

/* Whether this thread owns the queue. */
static ALWAYS_INLINE bool owns(_Atomic(void *) *owner)
{
	return likely(READ_POINTER(*owner) == __builtin_thread_pointer());
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

/* The position after a signaled request, at its turn in the ring. */
static ALWAYS_INLINE void ring_put(const struct hot_qp *h, uint32_t turn, uint64_t position)
{
	__atomic_store_n(&h->ring[turn & h->ring_mask], (uint16_t)position, __ATOMIC_RELAXED);
}

static ALWAYS_INLINE uint16_t ring_get(const struct hot_qp *h, uint32_t turn)
{
	return __atomic_load_n(&h->ring[turn & h->ring_mask], __ATOMIC_RELAXED);
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

/* One refused call and the requests of it that were not accepted. */
void count_refusal(struct refusal_counts *c, enum refusal why, uint64_t not_posted);
/* The providers' codes for a full queue differ in sign; some know no code but -1; siw stops at a request
 * and returns 0. */
bool means_full(int rc);
/*
 * Why a send was refused, from our own records: the request at which the provider stopped had `sges` and
 * `inlined` bytes, both 0 when that is not known; `outstanding` were before it.
 */
enum refusal why_send_refused(const struct qp_record *r, uint32_t sges, uint32_t inlined,
			      uint64_t outstanding, int rc);

#endif
