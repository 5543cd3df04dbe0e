/* SPDX-License-Identifier: MIT */
/*
 * From an object's address or number to its hot record, in one step and without a lock.
 *
 * Open addressing over words that point to hot records; the key lies in the record. Readers may run
 * at any time beside one writer (guard->lock): a slot is one word, records are never unmapped, and a
 * table that is outgrown or rebuilt stays readable. A reader that misses looks again
 * if a writer moved things meanwhile.
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

#pragma GCC visibility push(hidden)

struct lookup_table {
	uint64_t mask;		    /* slots - 1 */
	struct lookup_table *spare; /* a retired table of the same size, for the next rebuild */
	const uint64_t *slot[];	    /* written by atomic stores */
};

#define LOOKUP_FRONT_BITS 12

struct lookup {
	struct lookup_table *table;  /* what readers use; written by atomic stores */
	const uint64_t **front;	     /* see lookup_front; NULL: none */
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

/* Plain reads: whoever asks for an object got it from the thread that made it, and with it all that thread had
 * written. An atomic load would not be made an operand of the compare. ThreadSanitizer does not see how the object came
 * (a completion comes by way of the device), so it is told here. */
#ifdef __SANITIZE_THREAD__
#define LOOKUP_READ(word) __atomic_load_n(&(word), __ATOMIC_ACQUIRE)
#else
#define LOOKUP_READ(word) (word)
#endif

static inline bool lookup_has_key(const uint64_t *record, size_t key_offset, uint64_t key)
{
	return LOOKUP_READ(*(const uint64_t *)((const char *)record + key_offset)) == key;
}

/* All but the first look, out of line; NULL: there is none, also after looking again where a writer worked
 * meanwhile. */
void *lookup_further(const struct lookup *l, size_t key_offset, uint64_t key);

/* The first look alone, which nearly always hits: the record, or NULL, which means nothing. The caller then goes
 * where it need not keep its arguments. */
static inline __attribute__((always_inline)) void *lookup_first(const struct lookup *l,
								size_t key_offset, uint64_t key)
{
	const struct lookup_table *t = LOOKUP_READ(l->table);
	const uint64_t *record = LOOKUP_READ(t->slot[lookup_hash(key) & t->mask]);

	if (__builtin_expect(!lookup_has_key(record, key_offset, key), 0))
		return NULL;
	if (!record)
		__builtin_unreachable();
	return (void *)(uintptr_t)record;
}

/*
 * The same by the front, for objects that are few: 2^LOOKUP_FRONT_BITS slots beside the table, each with the first of
 * those records that hash there. Their number is no variable, which saves an instruction.
 */
static inline uint32_t lookup_front_hash(uint64_t key)
{
	return (uint32_t)key * 0x9E3779B1u >> (32 - LOOKUP_FRONT_BITS);
}

static inline __attribute__((always_inline)) void *lookup_front(const struct lookup *l,
								size_t key_offset, uint64_t key)
{
	const uint64_t *const *front = LOOKUP_READ(l->front);
	const uint64_t *record = LOOKUP_READ(front[lookup_front_hash(key)]);

	if (__builtin_expect(!lookup_has_key(record, key_offset, key), 0))
		return NULL;
	if (!record)
		__builtin_unreachable();
	return (void *)(uintptr_t)record;
}

/* The record whose key word at `key_offset` is `key`, or NULL. Any thread. */
static inline void *lookup_find(const struct lookup *l, size_t key_offset, uint64_t key)
{
	void *record = lookup_first(l, key_offset, key);

	return record ? record : lookup_further(l, key_offset, key);
}

/* What a lookup starts as: nothing is found. */
extern struct lookup_table lookup_no_table;
#define LOOKUP(type, key)                                                    \
	{                                                                    \
		.table = &lookup_no_table, .key_offset = offsetof(type, key) \
	}

/* Empties *l into a table of its own; false without memory. Under guard->lock. */
bool lookup_init(struct lookup *l);
/* Gives it a front, before anything is inserted and anyone looks. */
bool lookup_init_front(struct lookup *l);
/* Zeroes the records, 64 bytes each, and finds nothing from now on. */
void lookup_wipe(struct lookup *l);
/* Under guard->lock. Insert: false without memory. Remove: the record's key is still in place. */
bool lookup_insert(struct lookup *l, const void *record);
void lookup_remove(struct lookup *l, const void *record);

#pragma GCC visibility pop

#endif
