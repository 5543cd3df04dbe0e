/* SPDX-License-Identifier: MIT */
/*
 * From an object's address or number to its hot record, in one step and without a lock.
 *
 * Open addressing over words that point to hot records; the key lies in the record. Readers may run
 * at any time beside one writer (guard->lock): a slot is one word, records are never unmapped, and a
 * table that is outgrown or rebuilt stays readable. A reader that misses must ask
 * lookup_find_again(), which knows whether a writer moved things meanwhile.
 *
 * An empty slot points to a record of zeroes, not to nothing: a hit costs one compare, and in a forked
 * child, where all records are wiped to zero, every lookup misses.
 */
#ifndef QPG_LOOKUP_H
#define QPG_LOOKUP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct lookup_table {
	uint64_t mask;		    /* slots - 1 */
	struct lookup_table *spare; /* a retired table of the same size, for the next rebuild */
	_Atomic(const uint64_t *) slot[];
};

struct lookup {
	_Atomic(struct lookup_table *) table; /* what readers use */
	_Atomic uint32_t generation; /* raised by every change that can make a reader miss */
	uint16_t key_offset;	     /* where the key lies in a record, bytes */
	uint64_t live, dead;	     /* records; slots of removed ones */
};

/* What an empty slot and a removed one point to: key 0, which no object has. */
extern const uint64_t lookup_empty[8], lookup_removed[8];

/* Keys are addresses (aligned) or numbers; a 32 bit multiplier spreads both over bits 24 and up. */
static inline uint64_t lookup_hash(uint64_t key)
{
	return (key * (uint64_t)(int64_t)(int32_t)0x9E3779B1) >> 24;
}

/* The record whose key word at `key_offset` is `key`, or NULL. Any thread. */
static inline void *lookup_find(const struct lookup *l, size_t key_offset, uint64_t key)
{
	const struct lookup_table *t = atomic_load_explicit(&l->table, memory_order_acquire);
	uint64_t i = lookup_hash(key);

	for (;; i++) {
		const uint64_t *record =
			atomic_load_explicit(&t->slot[i & t->mask], memory_order_acquire);

		if (__atomic_load_n((const uint64_t *)((const char *)record + key_offset),
				    __ATOMIC_ACQUIRE) == key)
			return (void *)record;
		if (record == lookup_empty)
			return NULL;
	}
}

/* After a miss: looks again until no writer worked meanwhile. NULL is then the truth. */
void *lookup_find_again(const struct lookup *l, size_t key_offset, uint64_t key);

/* What a lookup starts as: nothing is found. */
extern struct lookup_table lookup_no_table;
#define LOOKUP(type, key)                                                    \
	{                                                                    \
		.table = &lookup_no_table, .key_offset = offsetof(type, key) \
	}

/* Empties *l into a table of its own; false without memory. Under guard->lock. */
bool lookup_init(struct lookup *l);
/* Under guard->lock. Insert: false without memory. Remove: the record's key is still in place. */
bool lookup_insert(struct lookup *l, const void *record);
void lookup_remove(struct lookup *l, const void *record);

#endif
