/* SPDX-License-Identifier: MIT */
/*
 * What a request becomes in memory, provider by provider. Pure functions of the request, of what
 * came back and of the device's limits. One table of providers (geometry.c); adding one is one
 * file geometry_<driver>.c and one row.
 */
#ifndef QPG_GEOMETRY_H
#define QPG_GEOMETRY_H

#include "caps.h"

/* What is foretold of a creation. */
enum geometry_fate {
	FATE_UNKNOWN,  /* the kernel or the device decides, and by what is not known */
	FATE_ACCEPTED, /* the provider's own checks pass */
	FATE_REFUSED,
};
struct prediction {
	enum geometry_fate fate;
	int error;    /* of FATE_REFUSED: errno; 0: the provider leaves errno as it was */
	bool guessed; /* the fate rests on a limit that nobody told: struct learned */
	/* if accepted: */
	struct qp_caps caps; /* effective; of an SRQ max_recv_* */
	uint32_t cqe;
	struct queue_bytes bytes;
};

/*
 * One provider. Each function fills *out and returns true, or returns false when this model cannot
 * tell (the caller then takes the estimate). `effective` is what the provider wrote back, or NULL
 * before creation, when the model has to predict from the request. `dev` may be NULL: nothing is
 * known of the device.
 */
struct geometry {
	const char *driver; /* the name of the provider: "rxe", "mlx5", ... */
	bool (*qp)(const struct qp_request *req, const struct qp_caps *effective,
		   const struct device_facts *dev, struct queue_bytes *out);
	bool (*cq)(uint32_t requested_cqe, uint32_t effective_cqe, const struct device_facts *dev,
		   struct queue_bytes *out);
	bool (*srq)(uint32_t max_wr, uint32_t max_sge, const struct device_facts *dev,
		    struct queue_bytes *out);
	bool (*wq)(uint32_t max_wr, uint32_t max_sge, const struct device_facts *dev,
		   struct queue_bytes *out);
	/* Fate and effective values; NULL: not foretold. */
	bool (*predict_qp)(const struct qp_request *req, const struct device_facts *dev,
			   struct prediction *out);
	bool (*predict_cq)(uint32_t cqe, const struct device_facts *dev, struct prediction *out);
	bool (*predict_srq)(uint32_t max_wr, uint32_t max_sge, const struct device_facts *dev,
			    struct prediction *out);
	/* The bytes that go with rings which the provider told; NULL: it cannot be asked. */
	void (*rings)(const struct qp_request *req, const struct queue_rings *rings,
		      const struct device_facts *dev, struct queue_bytes *out);
	/* How much of each hidden limit a request needs: out[LEARNED_LIMITS], 0: nothing. */
	void (*needs_qp)(const struct qp_request *req, const struct device_facts *dev,
			 uint32_t *out);
	void (*needs_srq)(uint32_t max_wr, uint32_t max_sge, const struct device_facts *dev,
			  uint32_t *out);
};

/* The rows. */
extern const struct geometry geometry_bnxt_re, geometry_cxgb4, geometry_efa, geometry_erdma,
	geometry_hfi1, geometry_hns, geometry_ionic, geometry_ipath, geometry_irdma, geometry_mana,
	geometry_mlx4, geometry_mlx5, geometry_mthca, geometry_ocrdma, geometry_qedr, geometry_rxe,
	geometry_siw, geometry_vmw_pvrdma, geometry_estimate;

/* The row of `driver`, or the row of the estimate (64 bytes and 16 per SGE). Never NULL. */
const struct geometry *geometry_of(const char *driver);

/* Each row in turn, in the order of names, without that of the estimate; NULL after the last. */
const struct geometry *geometry_at(unsigned int i);

/* The functions of the row, falling back to the estimate. Saturate instead of wrapping. */
void geometry_qp_bytes(const struct geometry *g, const struct qp_request *req,
		       const struct qp_caps *effective, const struct device_facts *dev,
		       struct queue_bytes *out);
void geometry_cq_bytes(const struct geometry *g, uint32_t requested_cqe, uint32_t effective_cqe,
		       const struct device_facts *dev, struct queue_bytes *out);
void geometry_srq_bytes(const struct geometry *g, uint32_t max_wr, uint32_t max_sge,
			const struct device_facts *dev, struct queue_bytes *out);
void geometry_wq_bytes(const struct geometry *g, uint32_t max_wr, uint32_t max_sge,
		       const struct device_facts *dev, struct queue_bytes *out);

/* The same by the provider's own figures, with basis BASIS_PROVIDER; false: *out is as it was. */
bool geometry_rings_bytes(const struct geometry *g, const struct qp_request *req,
			  const struct queue_rings *rings, const struct device_facts *dev,
			  struct queue_bytes *out);

/* What will come of a request; FATE_UNKNOWN where the row cannot tell. */
void geometry_predict_qp(const struct geometry *g, const struct qp_request *req,
			 const struct device_facts *dev, struct prediction *out);
void geometry_predict_cq(const struct geometry *g, uint32_t cqe, const struct device_facts *dev,
			 struct prediction *out);
void geometry_predict_srq(const struct geometry *g, uint32_t max_wr, uint32_t max_sge,
			  const struct device_facts *dev, struct prediction *out);

/*
 * What a creation teaches of limits that cannot be read; `error` is its errno, 0: it was accepted.
 * A refusal teaches only if it is of the kind that limits give (EINVAL) and if exactly one need is
 * above all that was ever taken; an acceptance takes back what it disproves.
 */
void geometry_learn_qp(const struct geometry *g, const struct qp_request *req, int error,
		       struct device_facts *dev);
void geometry_learn_srq(const struct geometry *g, uint32_t max_wr, uint32_t max_sge, int error,
			struct device_facts *dev);

/*
 * A limit to reckon with: `guess`, within what is learned. *guessed: creations did not pin it down.
 */
uint32_t geometry_limit(const struct device_facts *dev, enum learned_limit limit, uint32_t guess);

#endif
