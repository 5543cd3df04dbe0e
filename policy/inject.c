/* SPDX-License-Identifier: MIT */
/* Which calls fail on purpose: see inject.h. Touches nothing. */
#include "inject.h"

/* Every input bit moves about half of the output's: the finalizer of MurmurHash3 (public domain), with a step of the
 * golden ratio. */
static uint64_t scatter(uint64_t x)
{
	x += UINT64_C(0x9e3779b97f4a7c15);
	x = (x ^ x >> 33) * UINT64_C(0xff51afd7ed558ccd);
	x = (x ^ x >> 33) * UINT64_C(0xc4ceb9fe1a85ec53);
	return x ^ x >> 33;
}

bool inject_hits(uint64_t turn, uint64_t seed, unsigned int kind, uint64_t n)
{
	uint64_t of = turn >> 32, hit = turn & UINT32_MAX;

	if (!of)
		return hit && n == hit;
	return scatter(scatter(seed ^ (uint64_t)kind << 56) ^ n) % of < hit;
}
