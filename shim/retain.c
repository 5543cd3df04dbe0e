/* SPDX-License-Identifier: MIT */
/*
 * Which state files of dead processes are kept: see retain.h. Sorts in place with a heap of its
 * own, since qsort may allocate.
 */
#include "retain.h"

#include <string.h>

#define NS_PER_SECOND 1000000000u

struct retain_limits retain_limits_of(const struct policy_values *v)
{
	return (struct retain_limits){
		.keep_seconds = v->num[STATE_KEEP],
		.max_files = v->num[STATE_MAX_FILES],
		.max_bytes = v->num[STATE_MAX_BYTES],
	};
}

/* Whether a stands after b: older, or of the same age and later by name. */
static bool after(const struct retain_item *a, const struct retain_item *b)
{
	if (a->ended_ns != b->ended_ns)
		return a->ended_ns < b->ended_ns;
	return strcmp(a->name, b->name) > 0;
}

static void swap(struct retain_item *a, struct retain_item *b)
{
	struct retain_item t = *a;

	*a = *b;
	*b = t;
}

/* Lets item i sink in the heap, on top of which stands what comes last. */
static void sink(struct retain_item *items, size_t count, size_t i)
{
	for (;;) {
		size_t last = i;

		for (size_t child = 2 * i + 1; child <= 2 * i + 2 && child < count; child++)
			if (after(&items[child], &items[last]))
				last = child;
		if (last == i)
			return;
		swap(&items[i], &items[last]);
		i = last;
	}
}

static void sort_newest_first(struct retain_item *items, size_t count)
{
	for (size_t i = count / 2; i-- > 0;)
		sink(items, count, i);
	for (size_t n = count; n-- > 1;) {
		swap(&items[0], &items[n]);
		sink(items, n, 0);
	}
}

static bool too_old(const struct retain_item *item, uint64_t keep_seconds, uint64_t now_ns)
{
	uint64_t age = now_ns > item->ended_ns ? now_ns - item->ended_ns : 0;

	return keep_seconds == 0 || age / NS_PER_SECOND > keep_seconds;
}

size_t retain_choose(struct retain_item *items, size_t count, const struct retain_limits *limits,
		     uint64_t now_ns)
{
	uint64_t files = 0, bytes = 0;
	bool full = false;
	size_t removed = 0;

	sort_newest_first(items, count);
	for (size_t i = 0; i < count; i++) {
		struct retain_item *item = &items[i];

		item->remove = false;
		if (item->live)
			continue;
		/* once one does not fit, no older one is kept in its place */
		full = full || files >= limits->max_files || bytes > limits->max_bytes ||
		       item->bytes > limits->max_bytes - bytes;
		item->remove = full || too_old(item, limits->keep_seconds, now_ns);
		removed += item->remove;
		if (item->remove)
			continue;
		files++;
		bytes += item->bytes;
	}
	return removed;
}
