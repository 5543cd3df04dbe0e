/* SPDX-License-Identifier: MIT */
/*
 * What a request becomes in memory, provider by provider. Pure functions of the request, of what
 * came back and of the device's limits. One table of providers (geometry.c); adding one is one
 * file geometry_<driver>.c and one row.
 */
#ifndef QPG_GEOMETRY_H
#define QPG_GEOMETRY_H

#include "caps.h"

/*
 * One provider. Each function fills *out and returns true, or returns false when this model cannot
 * tell (the caller then takes the estimate). `effective` is what the provider wrote back, or NULL
 * before creation, when the model has to predict from the request.
 */
struct geometry {
	const char *driver; /* the name of the provider: "rxe", "mlx5", ... */
	bool (*qp)(const struct qp_request *req, const struct qp_caps *effective,
		   const struct device_limits *dev, struct queue_bytes *out);
	bool (*cq)(uint32_t requested_cqe, uint32_t effective_cqe, const struct device_limits *dev,
		   struct queue_bytes *out);
	bool (*srq)(uint32_t max_wr, uint32_t max_sge, const struct device_limits *dev,
		    struct queue_bytes *out);
};

/* The rows. */
extern const struct geometry geometry_rxe, geometry_estimate;

/* The row of `driver`, or the row of the estimate (64 bytes and 16 per SGE). Never NULL. */
const struct geometry *geometry_of(const char *driver);

/* The functions of the row, falling back to the estimate. Saturate instead of wrapping. */
void geometry_qp_bytes(const struct geometry *g, const struct qp_request *req,
		       const struct qp_caps *effective, const struct device_limits *dev,
		       struct queue_bytes *out);
void geometry_cq_bytes(const struct geometry *g, uint32_t requested_cqe, uint32_t effective_cqe,
		       const struct device_limits *dev, struct queue_bytes *out);
void geometry_srq_bytes(const struct geometry *g, uint32_t max_wr, uint32_t max_sge,
			const struct device_limits *dev, struct queue_bytes *out);

#endif
