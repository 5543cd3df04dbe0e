/* SPDX-License-Identifier: MIT */
/*
 * The arithmetic that providers have in common: powers of two, multiples, pages. Saturates, so that
 * absurd requests look enormous. For policy/geometry_*.c alone.
 */
#ifndef QPG_GEOMETRY_MATH_H
#define QPG_GEOMETRY_MATH_H

#include <unistd.h>

#include "geometry.h"
#include "saturate.h"

/* The smallest power of two that is at least n; 1 for 0. 2^63 for all that is more. */
static inline uint64_t power_of_two(uint64_t n)
{
	if (n <= 1)
		return 1;
	return n > UINT64_C(1) << 63 ? UINT64_C(1) << 63 : 1ULL << (64 - __builtin_clzll(n - 1));
}

/* n, rounded up to a multiple of `step`. */
static inline uint64_t round_up(uint64_t n, uint64_t step)
{
	return saturating_add(n, step - 1) / step * step;
}

static inline uint64_t page_bytes(void)
{
	return (uint64_t)sysconf(_SC_PAGESIZE); /* libc knows it: no system call */
}

static inline uint64_t round_to_pages(uint64_t bytes)
{
	return round_up(bytes, page_bytes());
}

/* count * bytes, within what struct queue_bytes holds. */
static inline uint64_t ring_bytes(uint64_t count, uint64_t bytes)
{
	return least(saturating_mul(count, bytes), QUEUE_BYTES_MOST);
}

/* More than the device says it has; 0: it says nothing. */
static inline bool is_over(uint32_t asked, uint32_t limit)
{
	return limit && asked > limit;
}

/* A request that goes beyond what the device says of itself. */
static inline bool is_over_limits(const struct qp_request *req, const struct device_limits *l)
{
	const struct qp_caps *c = &req->caps;

	return is_over(c->max_send_wr, l->max_qp_wr) || is_over(c->max_send_sge, l->max_sge) ||
	       (!req->has_srq &&
		(is_over(c->max_recv_wr, l->max_qp_wr) || is_over(c->max_recv_sge, l->max_sge)));
}

static inline bool foretell_refusal(struct prediction *out, int error)
{
	out->fate = FATE_REFUSED;
	out->error = error;
	return true;
}

static inline uint32_t within_32_bits(uint64_t n)
{
	return (uint32_t)least(n, UINT32_MAX);
}

/* Never NULL: what is known of a device of which nothing is. */
static inline const struct device_facts *facts_or_none(const struct device_facts *dev)
{
	static const struct device_facts none;

	return dev ? dev : &none;
}

#endif
