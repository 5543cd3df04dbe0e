/* SPDX-License-Identifier: MIT */
/*
 * The table of providers. A row is one file geometry_<driver>.c and one line here; a model that
 * cannot tell, or that a provider lacks, falls back to the estimate. Touches nothing.
 */
#include <errno.h>
#include <string.h>

#include "geometry.h"
#include "geometry_math.h"

static const struct geometry *const providers[] = {
	&geometry_bnxt_re, &geometry_cxgb4, &geometry_efa,	  &geometry_erdma,  &geometry_hfi1,
	&geometry_hns,	   &geometry_ionic, &geometry_ipath,	  &geometry_irdma,  &geometry_mana,
	&geometry_mlx4,	   &geometry_mlx5,  &geometry_mthca,	  &geometry_ocrdma, &geometry_qedr,
	&geometry_rxe,	   &geometry_siw,   &geometry_vmw_pvrdma,
};

const struct geometry *geometry_of(const char *driver)
{
	for (size_t i = 0; driver && i < sizeof(providers) / sizeof(providers[0]); i++)
		if (strcmp(driver, providers[i]->driver) == 0)
			return providers[i];
	return &geometry_estimate;
}

const struct geometry *geometry_at(unsigned int i)
{
	return i < sizeof(providers) / sizeof(providers[0]) ? providers[i] : NULL;
}

void geometry_qp_bytes(const struct geometry *g, const struct qp_request *req,
		       const struct qp_caps *effective, const struct device_facts *dev,
		       struct queue_bytes *out)
{
	if (!g->qp || !g->qp(req, effective, dev, out))
		geometry_estimate.qp(req, effective, dev, out);
}

void geometry_cq_bytes(const struct geometry *g, uint32_t requested_cqe, uint32_t effective_cqe,
		       const struct device_facts *dev, struct queue_bytes *out)
{
	if (!g->cq || !g->cq(requested_cqe, effective_cqe, dev, out))
		geometry_estimate.cq(requested_cqe, effective_cqe, dev, out);
}

void geometry_srq_bytes(const struct geometry *g, uint32_t max_wr, uint32_t max_sge,
			const struct device_facts *dev, struct queue_bytes *out)
{
	if (!g->srq || !g->srq(max_wr, max_sge, dev, out))
		geometry_estimate.srq(max_wr, max_sge, dev, out);
}

/* Without a model of its own a WQ is taken for an SRQ of the estimate. */
void geometry_wq_bytes(const struct geometry *g, uint32_t max_wr, uint32_t max_sge,
		       const struct device_facts *dev, struct queue_bytes *out)
{
	if (!g->wq || !g->wq(max_wr, max_sge, dev, out))
		geometry_estimate.srq(max_wr, max_sge, dev, out);
}

bool geometry_rings_bytes(const struct geometry *g, const struct qp_request *req,
			  const struct queue_rings *rings, const struct device_facts *dev,
			  struct queue_bytes *out)
{
	if (!g->rings)
		return false;
	g->rings(req, rings, dev, out);
	out->basis = BASIS_PROVIDER;
	return true;
}

void geometry_predict_qp(const struct geometry *g, const struct qp_request *req,
			 const struct device_facts *dev, struct prediction *out)
{
	*out = (struct prediction){ .fate = FATE_UNKNOWN };
	if (!g->predict_qp || !g->predict_qp(req, dev, out))
		geometry_qp_bytes(g, req, NULL, dev, &out->bytes);
}

void geometry_predict_cq(const struct geometry *g, uint32_t cqe, const struct device_facts *dev,
			 struct prediction *out)
{
	*out = (struct prediction){ .fate = FATE_UNKNOWN };
	if (!g->predict_cq || !g->predict_cq(cqe, dev, out))
		geometry_cq_bytes(g, cqe, 0, dev, &out->bytes);
}

void geometry_predict_srq(const struct geometry *g, uint32_t max_wr, uint32_t max_sge,
			  const struct device_facts *dev, struct prediction *out)
{
	*out = (struct prediction){ .fate = FATE_UNKNOWN };
	if (!g->predict_srq || !g->predict_srq(max_wr, max_sge, dev, out))
		geometry_srq_bytes(g, max_wr, max_sge, dev, &out->bytes);
}

uint32_t geometry_limit(const struct device_facts *dev, enum learned_limit limit, uint32_t guess)
{
	const struct learned *l = &facts_or_none(dev)->learned[limit];
	uint32_t value = guess;

	if (l->refused && value >= l->refused)
		value = l->refused - 1;
	return (uint32_t)most(value, l->accepted);
}

static void learn(const uint32_t *needs, int error, struct learned *learned)
{
	unsigned int suspects = 0, suspect = 0;

	for (unsigned int i = 0; i < LEARNED_LIMITS; i++) {
		struct learned *l = &learned[i];

		if (needs[i] <= l->accepted)
			continue;
		suspects++;
		suspect = i;
		if (error)
			continue;
		l->accepted = needs[i];
		if (l->refused && l->refused <= l->accepted)
			l->refused = 0; /* it was refused for another reason */
	}
	if (error == EINVAL && suspects == 1 &&
	    (!learned[suspect].refused || needs[suspect] < learned[suspect].refused))
		learned[suspect].refused = needs[suspect];
}

void geometry_learn_qp(const struct geometry *g, const struct qp_request *req, int error,
		       struct device_facts *dev)
{
	uint32_t needs[LEARNED_LIMITS] = { 0 };

	if (!g->needs_qp)
		return;
	g->needs_qp(req, dev, needs);
	learn(needs, error, dev->learned);
}

void geometry_learn_srq(const struct geometry *g, uint32_t max_wr, uint32_t max_sge, int error,
			struct device_facts *dev)
{
	uint32_t needs[LEARNED_LIMITS] = { 0 };

	if (!g->needs_srq)
		return;
	g->needs_srq(max_wr, max_sge, dev, needs);
	learn(needs, error, dev->learned);
}
