/* SPDX-License-Identifier: MIT */
/*
 * Arithmetic that stays at the top instead of wrapping: requests are whatever an application
 * passes, and 0xffffffff requests of 0xffffffff SGEs must look enormous, not small.
 */
#ifndef QPG_SATURATE_H
#define QPG_SATURATE_H

#include <stdbool.h>
#include <stdint.h>

/* The most that one member of struct queue_bytes holds, so that queue_bytes_total() cannot wrap. */
#define QUEUE_BYTES_MOST (UINT64_MAX / 4)

static inline uint64_t saturating_add(uint64_t a, uint64_t b)
{
	uint64_t sum;

	return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

static inline uint64_t saturating_mul(uint64_t a, uint64_t b)
{
	uint64_t product;

	return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

static inline uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static inline uint64_t most(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

#endif
