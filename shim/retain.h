/* SPDX-License-Identifier: MIT */
/*
 * Which state files of dead processes are kept: the [state] limits as one pure function, for the
 * shim that keeps its folder bounded and for `qpguard clean`. No file, no clock, no allocation.
 */
#ifndef QPG_RETAIN_H
#define QPG_RETAIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../policy/policy.h"

/*
 * The atime of a killed process's file, once somebody found it dead and set its mtime to that time:
 * so far ahead (2100) that reading the file does not change it where relatime rules.
 */
#define FOUND_DEAD_ATIME 4102444800

/* One state file. The caller fills all but `remove`. */
struct retain_item {
	const char *name;  /* tells items of one age apart; else the caller's own */
	uint64_t ended_ns; /* ns since 1970: ended_at() of sweep.c tells how that is known */
	uint64_t bytes;	   /* that it takes */
	bool live;	   /* its lock is held: stays, and counts for nothing */
	bool remove;	   /* the answer */
};

/* UINT64_MAX: no limit; 0: nothing is kept. */
struct retain_limits {
	uint64_t keep_seconds, max_files, max_bytes;
};

struct retain_limits retain_limits_of(const struct policy_values *v);

/*
 * Sets remove of every item; returns how many are to go. Those older than keep_seconds go first,
 * then the oldest of the others until max_files and max_bytes hold. Sorts the items, the newest
 * first.
 */
size_t retain_choose(struct retain_item *items, size_t count, const struct retain_limits *limits,
		     uint64_t now_ns);

#endif
