/* SPDX-License-Identifier: MIT */
/*
 * Groups of like objects: joined at creation, and at destruction what the object did is added to its group,
 * whole at any instruction (state.h, struct group_record). Under guard->lock.
 */
#include <string.h>

#include "counts.h"
#include "file.h"
#include "guard.h"

static uint32_t hash_of(const struct group_key *key)
{
	const unsigned char *p = (const unsigned char *)key;
	uint32_t h = 2166136261u;

	for (size_t i = 0; i < sizeof(*key); i++)
		h = (h ^ p[i]) * 16777619u;
	return h;
}

static bool has_key(const struct group_record *r, const struct group_key *key)
{
	return r->kind == key->kind && r->type == key->type && r->qp_flags == key->qp_flags &&
	       r->basis == key->basis && r->device == key->device && r->caller == key->caller &&
	       !memcmp(&r->requested, &key->requested, sizeof(key->requested)) &&
	       !memcmp(&r->effective, &key->effective, sizeof(key->effective));
}

/* Four groups "other" at the end of the table, one a kind, made when first needed. */
#define PLAIN_GROUPS (STATE_MAX_GROUPS - 4)

static struct group_record *group_other(struct guard *g, uint8_t kind, uint32_t *index)
{
	uint32_t used = atomic_load_explicit(&g->header->used[KIND_GROUP], memory_order_relaxed);
	struct group_record *r;

	for (uint32_t i = PLAIN_GROUPS; i < used; i++) {
		r = file_record(g->file, KIND_GROUP, i);
		if (r->kind == kind) {
			*index = i;
			return r;
		}
	}
	r = file_add(g, KIND_GROUP, STATE_MAX_GROUPS, index);
	if (!r)
		return NULL;
	r->kind = kind;
	r->flags = GROUP_OTHER;
	r->device = r->caller = UINT16_MAX;
	atomic_store_explicit(&r->state, RECORD_LIVE, memory_order_release);
	return r;
}

static struct group_record *group_find(struct guard *g, const struct group_key *key,
				       uint32_t *index)
{
	const uint32_t slots = sizeof(g->group_slot) / sizeof(g->group_slot[0]);
	uint32_t slot = hash_of(key) % slots;
	struct group_record *r;

	for (; g->group_slot[slot]; slot = (slot + 1) % slots) {
		*index = g->group_slot[slot] - 1u;
		r = file_record(g->file, KIND_GROUP, *index);
		if (has_key(r, key))
			return r;
	}
	r = file_add(g, KIND_GROUP, PLAIN_GROUPS, index);
	if (!r)
		return group_other(g, key->kind, index);
	r->kind = key->kind;
	r->type = key->type;
	r->qp_flags = key->qp_flags;
	r->basis = key->basis;
	r->device = key->device;
	r->caller = key->caller;
	r->requested = key->requested;
	r->effective = key->effective;
	atomic_store_explicit(&r->state, RECORD_LIVE, memory_order_release);
	g->group_slot[slot] = (uint16_t)(*index + 1);
	return r;
}

uint16_t group_join(struct guard *g, const struct group_key *key, uint64_t bytes)
{
	uint32_t index = 0;
	struct group_record *r = group_find(g, key, &index);

	if (!r)
		return UINT16_MAX;
	atomic_fetch_add_explicit(&r->created, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&r->live, 1, memory_order_relaxed);
	raise_to(&r->peak_live, r->live);
	group_resize(g, (uint16_t)index, (int64_t)bytes);
	return (uint16_t)index;
}

void group_resize(struct guard *g, uint16_t group, int64_t bytes)
{
	struct group_record *r;

	if (group == UINT16_MAX)
		return;
	r = file_record(g->file, KIND_GROUP, group);
	atomic_fetch_add_explicit(&r->bytes, (uint64_t)bytes, memory_order_relaxed);
	raise_to(&r->peak_bytes, r->bytes);
}

/* The copy that is not selected, filled with what the selected one holds: to be added to. */
static struct group_sums *sums_begin(struct group_record *r)
{
	uint64_t folded = atomic_load_explicit(&r->folded, memory_order_relaxed);

	r->sums[~folded & 1] = r->sums[folded & 1];
	return &r->sums[~folded & 1];
}

static void sums_end(struct group_record *r, uint32_t id, uint64_t bytes)
{
	uint64_t folded = atomic_load_explicit(&r->folded, memory_order_relaxed);

	atomic_store_explicit(&r->folded, (uint64_t)id << 1 | (~folded & 1), memory_order_release);
	atomic_fetch_sub_explicit(&r->live, 1, memory_order_relaxed);
	atomic_fetch_sub_explicit(&r->bytes, bytes, memory_order_relaxed);
}

static void max32(uint32_t *to, uint32_t value)
{
	if (value > *to)
		*to = value;
}

static void add_side(struct side_sums *to, const struct side_counts *c)
{
	to->posted += c->posted;
	to->completed += c->completed;
	to->discarded += c->discarded + c->outstanding;
	to->not_posted += c->not_posted;
	for (unsigned int i = 0; i < REFUSALS; i++)
		to->refused[i] += c->refused[i];
	max32(&to->peak_outstanding, c->peak_outstanding);
	max32(&to->peak_sge, c->peak_sge);
	max32(&to->peak_inline, c->peak_inline);
}

void group_leave_qp(struct guard *g, const struct qp_record *r)
{
	struct group_record *group;
	struct group_sums *sums;
	struct side_counts c;

	if (r->group == UINT16_MAX)
		return;
	group = file_record(g->file, KIND_GROUP, r->group);
	sums = sums_begin(group);
	sums->destroyed++;
	sums->hidden += (r->flags & (QP_SENDS_HIDDEN | QP_RECVS_HIDDEN)) != 0;
	record_send_counts(r, &c);
	add_side(&sums->send, &c);
	record_recv_counts(r, &c);
	add_side(&sums->recv, &c);
	sums_end(group, r->id, (uint64_t)r->sq_bytes + r->rq_bytes + r->bookkeeping_bytes);
}

void group_leave_cq(struct guard *g, const struct cq_record *r)
{
	struct group_record *group;
	struct group_sums *sums;

	if (r->group == UINT16_MAX)
		return;
	group = file_record(g->file, KIND_GROUP, r->group);
	sums = sums_begin(group);
	sums->destroyed++;
	sums->hidden += (r->flags & CQ_POLLS_HIDDEN) != 0;
	sums->completions += r->poll_completions + r->other_completions;
	sums->flushed_unattributed += r->flushed_unattributed;
	max32(&sums->peak_backlog, r->peak_backlog);
	max32(&sums->peak_backlog, r->other_peak_backlog);
	if (r->peak_bound_wrs > sums->peak_bound_wrs)
		sums->peak_bound_wrs = r->peak_bound_wrs;
	sums_end(group, r->id, r->ring_bytes + r->bookkeeping_bytes);
}

/* One that receives alone. */
static void leave_receiving(struct guard *g, uint16_t index, uint32_t id, bool hidden,
			    const struct side_counts *counts, uint64_t bytes)
{
	struct group_record *group;
	struct group_sums *sums;

	if (index == UINT16_MAX)
		return;
	group = file_record(g->file, KIND_GROUP, index);
	sums = sums_begin(group);
	sums->destroyed++;
	sums->hidden += hidden;
	add_side(&sums->recv, counts);
	sums_end(group, id, bytes);
}

void group_leave_srq(struct guard *g, const struct srq_record *r)
{
	struct side_counts c;

	record_srq_counts(r, &c);
	leave_receiving(g, r->group, r->id, r->flags & SRQ_HIDDEN, &c,
			r->ring_bytes + r->bookkeeping_bytes);
}

void group_leave_wq(struct guard *g, const struct wq_record *r)
{
	struct side_counts c;

	record_wq_counts(r, &c);
	leave_receiving(g, r->group, r->id, r->flags & WQ_HIDDEN, &c,
			r->ring_bytes + r->bookkeeping_bytes);
}
