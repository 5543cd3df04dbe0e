/* SPDX-License-Identifier: MIT */
/* What may be the cause of a failure besides the request. All under guard->lock. */
#ifndef QPG_SURROUNDINGS_H
#define QPG_SURROUNDINGS_H

#include "guard.h"

/* Reads the limits of this process: once, when the guard begins. */
void surroundings_begin(void);
/*
 * Memory and counts, where `error` is of the kind that they give: sets reason and numbers of *out, or leaves it.
 * `bytes` are those to be pinned; `d` may be NULL.
 */
void explain_resources(struct guard *g, const struct device *d, enum guarded_call call,
		       uint64_t bytes, int error, struct failure_reason *out);
/* Which QPs that were seen still use a CQ or an SRQ that could not be destroyed (EBUSY). */
void explain_holders(struct guard *g, enum guarded_call call, uint32_t id,
		     struct failure_reason *out);

#endif
