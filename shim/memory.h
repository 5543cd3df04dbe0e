/* SPDX-License-Identifier: MIT */
/*
 * Memory of the guard's own, straight from the kernel: the application's malloc is never
 * entered, so that jemalloc, tcmalloc, sanitizers and constructors do not notice. Everything
 * here is wiped to zero in a forked child (MADV_WIPEONFORK, kernel 4.14). What readers without
 * a lock may still look at is never unmapped.
 */
#ifndef QPG_MEMORY_H
#define QPG_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A mapping of its own, zeroed, page aligned; NULL without memory. errno is kept. Any thread. */
void *memory_map(size_t bytes);
/* The same, but a child finds it as it was. */
void *memory_map_kept(size_t bytes);
void memory_unmap(void *p, size_t bytes); /* what no other thread was shown; takes NULL */
/*
 * For what is no longer needed but may still be read: takes the pages from the kernel in a way that a reader notices
 * nothing but other contents, at any moment. memory_shared: a mapping that memory_repeat can show at many
 * places; NULL without memory; a child has it too. memory_repeat: all of `bytes` at `to` shows the contents of `shared`,
 * over and over; both multiples of a page, and what cannot be had stays as it is. memory_move: the pages of a mapping
 * take the place of those at `to`; false when they stay where they are. errno is kept. Any thread.
 */
void *memory_shared(size_t bytes);
void memory_repeat(void *to, size_t bytes, void *shared, size_t shared_bytes);
bool memory_move(void *to, void *from, size_t bytes);
/* True when children find memory_map()'s memory zeroed. */
bool memory_is_wiped_on_fork(void);

/* Objects of one size, 64 bytes or a multiple; taken and given back under guard->lock. */
struct pool {
	void *free;
	char *next, *end;
};
void *pool_take(struct pool *p, size_t bytes);
void *pool_take_kept(struct pool *p, size_t bytes); /* of memory that a child finds as it was */
/* The object's bytes must be zeroed by the caller as far as a reader could take them for a key. The
 * link lies in its last word. */
void pool_give(struct pool *p, size_t bytes, void *object);

/* Rings of uint16_t, 2^order of them, from RING_WIDE on of uint32_t; untouched (not resident) until
 * written. Under guard->lock. */
#define RING_ORDERS 32
#define RING_WIDE   16
struct rings {
	void *free[RING_ORDERS];
	char *next, *end;
};
uint16_t *ring_take(struct rings *r, unsigned int order);
void ring_give(struct rings *r, unsigned int order, uint16_t *ring);

#endif
