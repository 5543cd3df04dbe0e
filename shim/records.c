/* SPDX-License-Identifier: MIT */
/*
 * Records taken and given back: see guard.h. An ended record stays readable until it is needed, so that
 * a report shows the last objects of a program one by one; KEEP_ENDED of them for sure.
 */
#include <string.h>

#include "file.h"
#include "guard.h"

#define KEEP_ENDED 64u
#define KEEP_HOT   1024u

/* What every record begins with. */
struct record_head {
	_Atomic uint32_t seq;
	_Atomic uint8_t state;
};

static const size_t bytes_of[KINDS] = {
	[KIND_QP] = sizeof(struct qp_record),
	[KIND_CQ] = sizeof(struct cq_record),
	[KIND_SRQ] = sizeof(struct srq_record),
	[KIND_WQ] = sizeof(struct wq_record),
};

static void *oldest_of(struct ended *e)
{
	void *oldest;

	if (!e->count)
		return NULL;
	oldest = e->ring[e->first];
	e->first = (e->first + 1) % e->room;
	e->count--;
	return oldest;
}

static bool make_room(struct ended *e)
{
	uint32_t room = e->room ? e->room * 2 : 256;
	void **ring = memory_map(room * sizeof(*ring));

	if (!ring)
		return false;
	for (uint32_t i = 0; i < e->count; i++)
		ring[i] = e->ring[(e->first + i) % e->room];
	e->ring = ring;
	e->room = room;
	e->first = 0;
	return true;
}

/* Without memory it is lost to later objects, nothing else. */
static void keep_ended(struct ended *e, void *object)
{
	if (e->count < e->room || make_room(e))
		e->ring[(e->first + e->count++) % e->room] = object;
}

void *record_begin(struct guard *g, enum state_kind kind)
{
	struct ended *e = &g->ended_records[kind];
	struct record_head *r = e->count > KEEP_ENDED ? oldest_of(e) : NULL;
	uint32_t index;

	if (!r)
		r = file_add(g, kind, UINT32_MAX - 1, &index);
	if (!r)
		r = oldest_of(e);
	if (!r) {
		atomic_fetch_add_explicit(&g->header->totals.unrecorded, 1, memory_order_relaxed);
		return NULL;
	}
	atomic_fetch_add_explicit(&r->seq, 1, memory_order_acq_rel);
	memset((char *)r + sizeof(r->seq), 0, bytes_of[kind] - sizeof(r->seq));
	return r;
}

void record_ready(void *record)
{
	struct record_head *r = record;

	atomic_store_explicit(&r->state, RECORD_LIVE, memory_order_relaxed);
	atomic_fetch_add_explicit(&r->seq, 1, memory_order_release);
}

void record_end(struct guard *g, enum state_kind kind, void *record)
{
	struct record_head *r = record;

	atomic_store_explicit(&r->state, RECORD_ENDED, memory_order_release);
	keep_ended(&g->ended_records[kind], record);
}

/* Word by word: readers may be comparing its key. */
static void zero_words(uint64_t *word, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++)
		__atomic_store_n(&word[i], 0, __ATOMIC_RELAXED);
}

void *hot_take(struct guard *g)
{
	void *hot = g->ended_hot.count > KEEP_HOT ? oldest_of(&g->ended_hot) : NULL;

	if (hot)
		zero_words(hot, 8);
	else
		hot = pool_take(&g->hot_objects, 64);
	return hot;
}

void hot_give(struct guard *g, void *hot, unsigned int keys)
{
	zero_words(hot, keys);
	keep_ended(&g->ended_hot, hot);
}
