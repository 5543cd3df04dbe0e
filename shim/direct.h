/* SPDX-License-Identifier: MIT */
/* Creations by direct verbs, as the files of each kind of object take them: qp.c, cq.c; wq.c has its own in guard.h. */
#ifndef QPG_DIRECT_H
#define QPG_DIRECT_H

#include "guard.h"

/* One creation of a QP; `create` calls the provider with what it finds here. */
struct qp_call {
	void *address;	   /* of the caller */
	uint8_t entry;	   /* enum entry_point */
	bool no_queues;	   /* receives go elsewhere, and nothing is sent */
	bool sends_hidden; /* by functions that we do not see */
	struct ibv_qp *(*create)(const struct qp_call *);
	struct ibv_context *context;
	struct ibv_qp_init_attr_ex *attr_ex; /* or */
	struct ibv_pd *pd;
	struct ibv_qp_init_attr *attr;
	void *more; /* the provider's own */
	uint32_t number;
};
struct ibv_qp *qp_creation(struct guard *g, const struct qp_call *call);

/* The same of an extended CQ. */
struct cq_call {
	void *address;
	uint8_t entry;
	uint16_t cqe_bytes; /* 0: the provider's usual */
	struct ibv_cq_ex *(*create)(const struct cq_call *);
	struct ibv_context *context;
	struct ibv_cq_init_attr_ex *attr;
	void *more;
	uint32_t number;
};
struct ibv_cq_ex *cq_creation(struct guard *g, const struct cq_call *call);

#endif
