/* SPDX-License-Identifier: MIT */
/*
 * What a refused request itself tells: the fields that are over a limit of the device, a queue whose
 * bytes are too many though each field would do, a cap that was never set, a type that does not go
 * with the rest. Pure: what else may be the cause (memory, counts) is for the caller to see.
 */
#ifndef QPG_EXPLAIN_H
#define QPG_EXPLAIN_H

#include "fit.h"
#include "reason.h"

/*
 * Why a request was refused with `error` (0: errno was left as it was), as far as request and device
 * tell: fills reason, field and numbers of *out and returns true. False: *out is as it was, nothing
 * in the request explains it.
 */
bool explain_request(const struct geometry *g, const struct device_facts *dev, enum fit_kind kind,
		     const struct qp_request *req, int error, struct failure_reason *out);

/*
 * How many CQ entries less would halve a CQ of `cqe`: providers round up, and a power of two may be
 * one too many. 0: it does not cost double. *bytes, *half_bytes: of both.
 */
uint32_t explain_cq_cost(const struct geometry *g, const struct device_facts *dev, uint32_t cqe,
			 uint64_t *bytes, uint64_t *half_bytes);

#endif
