/* SPDX-License-Identifier: MIT */
/*
 * Failure on purpose: which calls are hit. A turn, as keys of [inject] hold it, is the number of the one call that
 * is hit, from 1, or a share: numerator in the lower half, denominator in the upper. 0: none. Pure.
 */
#ifndef QPG_INJECT_H
#define QPG_INJECT_H

#include <stdbool.h>
#include <stdint.h>

/* Whether the nth call (from 1) of its kind is hit. The same for the same turn, seed, kind and n; of a share the
 * calls that are hit look drawn by lot. */
bool inject_hits(uint64_t turn, uint64_t seed, unsigned int kind, uint64_t n);

#endif
