/* SPDX-License-Identifier: MIT */
/* Memory straight from the kernel: see memory.h. Touches no state but what it is handed. */
#include "memory.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/mman.h>

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

#define POOL_CHUNK (64u << 10)
#define RING_CHUNK (1u << 20)

static _Atomic bool not_wiped;

bool memory_is_wiped_on_fork(void)
{
	return !not_wiped;
}

void *memory_map_kept(size_t bytes)
{
	int saved = errno;
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	errno = saved;
	return p == MAP_FAILED ? NULL : p;
}

void *memory_map(size_t bytes)
{
	int saved = errno;
	void *p = memory_map_kept(bytes);

	if (p && madvise(p, bytes, MADV_WIPEONFORK))
		not_wiped = true;
	errno = saved;
	return p;
}

void memory_unmap(void *p, size_t bytes)
{
	int saved = errno;

	if (p)
		munmap(p, bytes);
	errno = saved;
}

void *memory_shared(size_t bytes)
{
	int saved = errno;
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	errno = saved;
	return p == MAP_FAILED ? NULL : p;
}

/* An old size of 0 leaves shared memory where it is and shows it at a second place too. That and the removal
 * of what was there are one step for whoever reads there. */
void memory_repeat(void *to, size_t bytes, void *shared, size_t shared_bytes)
{
	int saved = errno;
	size_t n;

	for (char *at = to; bytes; at += n, bytes -= n) {
		n = bytes < shared_bytes ? bytes : shared_bytes;
		if (mremap(shared, 0, n, MREMAP_MAYMOVE | MREMAP_FIXED, at) == MAP_FAILED)
			break;
	}
	errno = saved;
}

bool memory_move(void *to, void *from, size_t bytes)
{
	int saved = errno;
	bool moved = mremap(from, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to) != MAP_FAILED;

	errno = saved;
	return moved;
}

static void *carve(char **next, char **end, size_t bytes, size_t chunk, void *(*map)(size_t))
{
	char *p;

	if ((size_t)(*end - *next) < bytes) {
		size_t want = bytes > chunk ? bytes : chunk;

		p = map(want);
		if (!p)
			return NULL;
		*next = p;
		*end = p + want;
	}
	p = *next;
	*next += bytes;
	return p;
}

static void **link_of(void *object, size_t bytes)
{
	return (void **)((char *)object + bytes - sizeof(void *));
}

static void *take(struct pool *p, size_t bytes, void *(*map)(size_t))
{
	void *object = p->free;

	if (!object)
		return carve(&p->next, &p->end, bytes, POOL_CHUNK, map);
	p->free = *link_of(object, bytes);
	*link_of(object, bytes) = NULL;
	return object;
}

void *pool_take(struct pool *p, size_t bytes)
{
	return take(p, bytes, memory_map);
}

void *pool_take_kept(struct pool *p, size_t bytes)
{
	return take(p, bytes, memory_map_kept);
}

void pool_give(struct pool *p, size_t bytes, void *object)
{
	*link_of(object, bytes) = p->free;
	p->free = object;
}

uint16_t *ring_take(struct rings *r, unsigned int order)
{
	void **ring = r->free[order];

	if (!ring)
		return carve((char **)&r->next, (char **)&r->end,
			     (order < RING_WIDE ? sizeof(uint16_t) : sizeof(uint32_t)) << order,
			     RING_CHUNK, memory_map);
	r->free[order] = *ring;
	return (uint16_t *)ring;
}

void ring_give(struct rings *r, unsigned int order, uint16_t *ring)
{
	*(void **)ring = r->free[order];
	r->free[order] = ring;
}
