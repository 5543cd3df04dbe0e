/* SPDX-License-Identifier: MIT */
/* The writer's side of lookup.h. Touches tables alone; called under guard->lock. */
#include "lookup.h"

#include <string.h>

#include "memory.h"

#define FIRST_SLOTS   256u
#define PAGE_BYTES    4096u
#define NOTHING_BYTES (16u << 10)

_Alignas(64) const uint64_t lookup_empty[8];
_Alignas(64) const uint64_t lookup_removed[8];

struct lookup_table lookup_no_table = { .slot = { lookup_empty } };

static size_t table_bytes(uint64_t slots)
{
	size_t bytes = sizeof(struct lookup_table) + slots * sizeof(uint64_t *);

	return (bytes + PAGE_BYTES - 1) & ~(size_t)(PAGE_BYTES - 1);
}

/* Not wiped in a child: its slots still lead to records, whose keys are. */
static struct lookup_table *table_new(uint64_t slots)
{
	struct lookup_table *t = memory_map_kept(table_bytes(slots));

	if (!t)
		return NULL;
	t->mask = slots - 1;
	for (uint64_t i = 0; i < slots; i++)
		t->slot[i] = lookup_empty;
	return t;
}

static void *look(const struct lookup *l, size_t key_offset, uint64_t key)
{
	const struct lookup_table *t = __atomic_load_n(&l->table, __ATOMIC_ACQUIRE);

	for (uint64_t i = lookup_hash(key);; i++) {
		const uint64_t *record = __atomic_load_n(&t->slot[i & t->mask], __ATOMIC_ACQUIRE);

		if (lookup_has_key(record, key_offset, key))
			return (void *)(uintptr_t)record;
		if (record == lookup_empty)
			return NULL;
	}
}

void *lookup_further(const struct lookup *l, size_t key_offset, uint64_t key)
{
	uint32_t before, after = atomic_load_explicit(&l->generation, memory_order_acquire);
	void *record;

	do {
		before = after;
		record = look(l, key_offset, key);
		after = atomic_load_explicit(&l->generation, memory_order_acquire);
	} while (!record && before != after);
	return record;
}

static uint64_t key_of(const struct lookup *l, const uint64_t *record)
{
	return *(const uint64_t *)((const char *)record + l->key_offset);
}

bool lookup_init(struct lookup *l)
{
	struct lookup_table *t = table_new(FIRST_SLOTS);

	if (!t)
		return false;
	l->live = l->dead = 0;
	__atomic_store_n(&l->table, t, __ATOMIC_RELEASE);
	return true;
}

bool lookup_init_front(struct lookup *l)
{
	size_t slots = (size_t)1 << LOOKUP_FRONT_BITS;
	const uint64_t **front = l->front;

	if (!front)
		front = memory_map_kept(slots * sizeof(*front));
	if (!front)
		return false;
	for (size_t i = 0; i < slots; i++)
		__atomic_store_n(&front[i], lookup_empty, __ATOMIC_RELAXED);
	__atomic_store_n(&l->front, front, __ATOMIC_RELEASE);
	return true;
}

void lookup_wipe(struct lookup *l)
{
	struct lookup_table *t = __atomic_load_n(&l->table, __ATOMIC_RELAXED);

	for (uint64_t i = 0; i <= t->mask; i++) {
		const uint64_t *record = __atomic_load_n(&t->slot[i], __ATOMIC_RELAXED);

		if (record != lookup_empty && record != lookup_removed)
			memset((void *)(uintptr_t)record, 0, 64);
	}
	l->live = l->dead = 0;
	__atomic_store_n(&l->table, &lookup_no_table, __ATOMIC_RELEASE);
}

static void place(struct lookup *l, struct lookup_table *t, const uint64_t *record)
{
	uint64_t i = lookup_hash(key_of(l, record));

	for (;; i++) {
		const uint64_t *there = __atomic_load_n(&t->slot[i & t->mask], __ATOMIC_RELAXED);

		if (there != lookup_empty && there != lookup_removed)
			continue;
		if (there == lookup_removed)
			l->dead--;
		__atomic_store_n(&t->slot[i & t->mask], record, __ATOMIC_RELEASE);
		return;
	}
}

/* So many empty slots as NOTHING_BYTES hold, made when first needed; or NULL. */
static const uint64_t **empty_slots(void)
{
	static const uint64_t **slots;

	if (slots)
		return slots;
	slots = memory_shared(NOTHING_BYTES);
	for (size_t i = 0; slots && i < NOTHING_BYTES / sizeof(*slots); i++)
		slots[i] = lookup_empty;
	return slots;
}

static bool is_large(uint64_t slots)
{
	return table_bytes(slots) > PAGE_BYTES + NOTHING_BYTES;
}

/* A large table that is out of use holds memory no more: a reader that lingers there finds empty slots. Its first page,
 * where the mask is, stays. */
static void empty_out(struct lookup_table *t)
{
	const uint64_t **nothing = is_large(t->mask + 1) ? empty_slots() : NULL;

	if (nothing)
		memory_repeat((char *)t + PAGE_BYTES, table_bytes(t->mask + 1) - PAGE_BYTES,
			      (void *)nothing, NOTHING_BYTES);
}

/* Moves a new table into the place of an emptied one of the same size. */
static struct lookup_table *settle(struct lookup_table *place, struct lookup_table *t)
{
	const uint64_t first = (PAGE_BYTES - sizeof(*t)) / sizeof(t->slot[0]);

	if (!memory_move((char *)place + PAGE_BYTES, (char *)t + PAGE_BYTES,
			 table_bytes(t->mask + 1) - PAGE_BYTES))
		return t;
	for (uint64_t i = 0; i < first; i++)
		__atomic_store_n(&place->slot[i], t->slot[i], __ATOMIC_RELAXED);
	memory_unmap(t, PAGE_BYTES);
	return place;
}

/*
 * Copies the live records into a table of `slots` and publishes it. The old table stays readable; one
 * of the same size is kept as a spare and used by the next rebuild. A reader that lingers in a table while
 * it is emptied or refilled can miss, and then sees the generation changed.
 */
static bool rebuild(struct lookup *l, uint64_t slots)
{
	struct lookup_table *old = __atomic_load_n(&l->table, __ATOMIC_RELAXED);
	struct lookup_table *spare = slots == old->mask + 1 ? old->spare : NULL;
	struct lookup_table *t = spare;

	if (!spare || is_large(slots))
		t = table_new(slots);
	for (uint64_t i = 0; t && t == spare && i < slots; i++)
		__atomic_store_n(&t->slot[i], lookup_empty, __ATOMIC_RELAXED);
	if (!t)
		return false;
	l->dead = 0;
	for (uint64_t i = 0; i <= old->mask; i++) {
		const uint64_t *record = __atomic_load_n(&old->slot[i], __ATOMIC_RELAXED);

		if (record != lookup_empty && record != lookup_removed)
			place(l, t, record);
	}
	if (spare && t != spare)
		t = settle(spare, t);
	t->spare = slots == old->mask + 1 ? old : NULL;
	__atomic_store_n(&l->table, t, __ATOMIC_RELEASE);
	atomic_fetch_add_explicit(&l->generation, 1, memory_order_release);
	empty_out(old);
	return true;
}

bool lookup_insert(struct lookup *l, const void *record)
{
	struct lookup_table *t = __atomic_load_n(&l->table, __ATOMIC_RELAXED);
	uint64_t slots = t->mask + 1;

	if ((l->live + 1) * 8 > slots * 5) {
		if (!rebuild(l, slots * 2) && l->live + 2 > slots)
			return false;
	} else if ((l->live + l->dead + 1) * 4 > slots * 3) {
		/* without memory the dead slots only make misses slower, until one slot is left */
		if (!rebuild(l, slots) && l->live + l->dead + 2 > slots)
			return false;
	}
	t = __atomic_load_n(&l->table, __ATOMIC_RELAXED);
	place(l, t, record);
	if (l->front && l->front[lookup_front_hash(key_of(l, record))] == lookup_empty)
		__atomic_store_n(&l->front[lookup_front_hash(key_of(l, record))], record,
				 __ATOMIC_RELEASE);
	l->live++;
	atomic_fetch_add_explicit(&l->generation, 1, memory_order_release);
	return true;
}

void lookup_remove(struct lookup *l, const void *record)
{
	struct lookup_table *t = __atomic_load_n(&l->table, __ATOMIC_RELAXED);
	uint64_t i = lookup_hash(key_of(l, record));

	for (;; i++) {
		const uint64_t *there = __atomic_load_n(&t->slot[i & t->mask], __ATOMIC_RELAXED);

		if (there == lookup_empty)
			return;
		if (there == record)
			break;
	}
	__atomic_store_n(&t->slot[i & t->mask], lookup_removed, __ATOMIC_RELEASE);
	if (l->front && l->front[lookup_front_hash(key_of(l, record))] == record)
		__atomic_store_n(&l->front[lookup_front_hash(key_of(l, record))], lookup_empty,
				 __ATOMIC_RELEASE);
	l->live--;
	l->dead++;
}
