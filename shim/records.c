/* SPDX-License-Identifier: MIT */
/*
 * Records taken and given back: see guard.h. An ended record stays readable until it is needed, so that
 * a report shows the last objects of a program one by one; KEEP_ENDED of them for sure.
 */
#include <string.h>

#include "file.h"
#include "guard.h"

#define KEEP_ENDED 64u

/* What every record begins with. */
struct record_head {
	_Atomic uint32_t seq;
	_Atomic uint8_t state;
};

static const size_t bytes_of[KINDS] = {
	[KIND_QP] = sizeof(struct qp_record),
	[KIND_CQ] = sizeof(struct cq_record),
	[KIND_SRQ] = sizeof(struct srq_record),
};

static void *oldest_ended(struct free_records *f)
{
	void *record;

	if (!f->count)
		return NULL;
	record = f->ring[f->first];
	f->first = (f->first + 1) % f->room;
	f->count--;
	return record;
}

void *record_begin(struct guard *g, enum state_kind kind)
{
	struct free_records *f = &g->free_records[kind];
	struct record_head *r = f->count > KEEP_ENDED ? oldest_ended(f) : NULL;
	uint32_t index;

	if (!r)
		r = file_add(g, kind, UINT32_MAX - 1, &index);
	if (!r)
		r = oldest_ended(f);
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

static bool make_room(struct free_records *f)
{
	uint32_t room = f->room ? f->room * 2 : 256;
	void **ring = memory_map(room * sizeof(*ring));

	if (!ring)
		return false;
	for (uint32_t i = 0; i < f->count; i++)
		ring[i] = f->ring[(f->first + i) % f->room];
	f->ring = ring;
	f->room = room;
	f->first = 0;
	return true;
}

void record_end(struct guard *g, enum state_kind kind, void *record)
{
	struct free_records *f = &g->free_records[kind];
	struct record_head *r = record;

	atomic_store_explicit(&r->state, RECORD_ENDED, memory_order_release);
	if (f->count == f->room && !make_room(f))
		return; /* the record is lost to later objects, nothing else */
	f->ring[(f->first + f->count++) % f->room] = record;
}

void *hot_take(struct guard *g)
{
	return pool_take(&g->hot_objects, 64);
}

/* Zeroed word by word: readers may be comparing its key. */
void hot_give(struct guard *g, void *hot)
{
	uint64_t *word = hot;

	for (unsigned int i = 0; i < 8; i++)
		__atomic_store_n(&word[i], 0, __ATOMIC_RELAXED);
	pool_give(&g->hot_objects, 64, hot);
}
