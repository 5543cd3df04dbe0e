/* SPDX-License-Identifier: MIT */
/*
 * The table of providers. A row is one file geometry_<driver>.c and one line here; a model that
 * cannot tell, or that a provider lacks, falls back to the estimate. Touches nothing.
 */
#include <string.h>

#include "geometry.h"

static const struct geometry *const providers[] = {
	&geometry_rxe,
};

const struct geometry *geometry_of(const char *driver)
{
	for (size_t i = 0; driver && i < sizeof(providers) / sizeof(providers[0]); i++)
		if (strcmp(driver, providers[i]->driver) == 0)
			return providers[i];
	return &geometry_estimate;
}

void geometry_qp_bytes(const struct geometry *g, const struct qp_request *req,
		       const struct qp_caps *effective, const struct device_limits *dev,
		       struct queue_bytes *out)
{
	if (!g->qp || !g->qp(req, effective, dev, out))
		geometry_estimate.qp(req, effective, dev, out);
}

void geometry_cq_bytes(const struct geometry *g, uint32_t requested_cqe, uint32_t effective_cqe,
		       const struct device_limits *dev, struct queue_bytes *out)
{
	if (!g->cq || !g->cq(requested_cqe, effective_cqe, dev, out))
		geometry_estimate.cq(requested_cqe, effective_cqe, dev, out);
}

void geometry_srq_bytes(const struct geometry *g, uint32_t max_wr, uint32_t max_sge,
			const struct device_limits *dev, struct queue_bytes *out)
{
	if (!g->srq || !g->srq(max_wr, max_sge, dev, out))
		geometry_estimate.srq(max_wr, max_sge, dev, out);
}
