/* SPDX-License-Identifier: MIT */
/*
 * The nearest that a device can do: of a request over its limits the largest one below that it takes,
 * all fields together. Decided by the geometry where that foretells the fate, else in a handful of
 * attempts that the caller makes. Pure: facts in, numbers out.
 */
#ifndef QPG_FIT_H
#define QPG_FIT_H

#include "geometry.h"

/* [clamp] keep: what is lowered last. The values are those of the key's words. */
enum fit_keep { KEEP_SGE, KEEP_DEPTH };

/* What is asked for. A CQ has its entries in caps.max_send_wr, an SRQ has caps.max_recv_*. */
enum fit_kind { FIT_QP, FIT_CQ, FIT_SRQ };

#define FIT_ATTEMPTS 6 /* at most, the request as it was asked included */

/* One request on its way to what the device takes. */
struct fit {
	const struct geometry *geometry;
	enum fit_kind kind;
	enum fit_keep keep;
	uint32_t least_inline; /* never below it, nor below what was asked if that is less */
	struct qp_request asked;
	struct qp_caps tried;	/* by the last attempt */
	unsigned int attempts;	/* made so far */
	unsigned int next_step; /* of fit.c */
};

/*
 * The largest request that is within `asked` in every field, and that the geometry, or where it
 * cannot tell the device's own limits, accept. Inline data is lowered last of all and only when no
 * depth and no SGE count would do with it; with KEEP_SGE depths are lowered before SGEs, with
 * KEEP_DEPTH after. Never below 1 of a depth or of SGEs that were asked. No field of *out can be
 * raised alone. False: nothing of the kind is accepted, *out is as it was.
 */
bool fit_largest(const struct geometry *g, const struct device_facts *dev, enum fit_kind kind,
		 enum fit_keep keep, uint32_t least_inline, const struct qp_request *asked,
		 struct qp_caps *out);

/* Whether the device takes such a request, as far as the geometry or its limits tell. */
bool fit_accepts(const struct geometry *g, const struct device_facts *dev, enum fit_kind kind,
		 const struct qp_request *req);

/* Begins at `asked`: fit_next() then tells what to submit, first and after each refusal. */
void fit_begin(struct fit *f, const struct geometry *g, enum fit_kind kind, enum fit_keep keep,
	       uint32_t least_inline, const struct qp_request *asked);

/*
 * What to submit next, by what is known of the device now, that is with all that earlier attempts
 * taught (geometry_learn_qp, geometry_learn_srq). Attempts go down from the request as it was
 * asked, or, where that is foretold to be refused, from the largest that is foretold to be
 * accepted; the last is the least that the request may become. False: there is nothing left to
 * try; at most FIT_ATTEMPTS times true.
 */
bool fit_next(struct fit *f, const struct device_facts *dev, struct qp_caps *out);

/* Whether a refusal with `error` (0: errno was left as it was) may be one of size, so that a smaller
 * request is worth an attempt. */
bool fit_may_help(int error);

#endif
