/* SPDX-License-Identifier: MIT */
/*
 * Fitting a request to a device: see fit.h. Acceptance is monotone in each field (what is accepted
 * stays so when any field is lowered), so one field after the other is raised from its floor to
 * the most that is accepted; what comes first is lowered last. Touches nothing but its arguments.
 */
#include "fit.h"

#include <errno.h>
#include <string.h>

#include "geometry_math.h"

/* The attempts in their order; which of them are made depends on what is foretold. */
enum step {
	AS_ASKED, /* where it may be accepted */
	BOLD,	  /* by limits that are as large as the reported ones can mean */
	PLAIN,	  /* by the limits as they are known or guessed */
	HALVED,	  /* what was refused needs no more than half of anything */
	HALVED_AGAIN,
	LEAST, /* floors alone */
	STEPS
};

enum { CAPS = 5 };

static uint32_t *cap(struct qp_caps *c, unsigned int field)
{
	uint32_t *const of[CAPS] = { &c->max_inline_data, &c->max_send_sge, &c->max_recv_sge,
				     &c->max_send_wr, &c->max_recv_wr };

	return of[field];
}

/* Which cap is raised nth: indices of cap(). */
static const unsigned char order[][CAPS] = {
	[KEEP_SGE] = { 0, 1, 2, 3, 4 },
	[KEEP_DEPTH] = { 0, 3, 4, 1, 2 },
};

bool fit_may_help(int error)
{
	return error == EINVAL || error == 0 || error == E2BIG;
}

static bool is_within_limits(const struct device_facts *dev, enum fit_kind kind,
			     const struct qp_request *req)
{
	const struct device_limits *l = &facts_or_none(dev)->limits;

	switch (kind) {
	case FIT_QP:
		return !is_over_limits(req, l);
	case FIT_CQ:
		return !is_over(req->caps.max_send_wr, l->max_cqe);
	case FIT_SRQ:
		return !is_over(req->caps.max_recv_wr, l->max_srq_wr) &&
		       !is_over(req->caps.max_recv_sge, l->max_srq_sge);
	}
	return true;
}

static void predict(const struct geometry *g, const struct device_facts *dev, enum fit_kind kind,
		    const struct qp_request *req, struct prediction *out)
{
	switch (kind) {
	case FIT_QP:
		geometry_predict_qp(g, req, dev, out);
		break;
	case FIT_CQ:
		geometry_predict_cq(g, req->caps.max_send_wr, dev, out);
		break;
	case FIT_SRQ:
		geometry_predict_srq(g, req->caps.max_recv_wr, req->caps.max_recv_sge, dev, out);
		break;
	}
}

bool fit_accepts(const struct geometry *g, const struct device_facts *dev, enum fit_kind kind,
		 const struct qp_request *req)
{
	struct prediction p;

	predict(g, dev, kind, req, &p);
	if (p.fate == FATE_UNKNOWN)
		return is_within_limits(dev, kind, req);
	return p.fate == FATE_ACCEPTED;
}

/* The least that each field may become. */
static struct qp_caps floors(const struct qp_request *asked, uint32_t least_inline)
{
	const struct qp_caps *c = &asked->caps;

	return (struct qp_caps){
		.max_send_wr = (uint32_t)least(c->max_send_wr, 1),
		.max_recv_wr = asked->has_srq ? 0 : (uint32_t)least(c->max_recv_wr, 1),
		.max_send_sge = (uint32_t)least(c->max_send_sge, 1),
		.max_recv_sge = asked->has_srq ? 0 : (uint32_t)least(c->max_recv_sge, 1),
		.max_inline_data = (uint32_t)least(c->max_inline_data, least_inline),
	};
}

/* The largest value of one field, from what it is up to `most_of`, with the others as they are. */
static void raise(const struct geometry *g, const struct device_facts *dev, enum fit_kind kind,
		  struct qp_request *req, uint32_t *field, uint32_t most_of)
{
	uint32_t low = *field, high = most_of;

	for (uint32_t value = high; low < high; value = low + (high - low + 1) / 2) {
		*field = value;
		if (fit_accepts(g, dev, kind, req))
			low = value;
		else
			high = value - 1;
	}
	*field = low;
}

bool fit_largest(const struct geometry *g, const struct device_facts *dev, enum fit_kind kind,
		 enum fit_keep keep, uint32_t least_inline, const struct qp_request *asked,
		 struct qp_caps *out)
{
	struct qp_request req = *asked;
	struct qp_caps wanted = asked->caps;

	req.caps = floors(asked, least_inline);
	if (!fit_accepts(g, dev, kind, &req))
		return false;
	for (unsigned int i = 0; i < CAPS; i++)
		raise(g, dev, kind, &req, cap(&req.caps, order[keep][i]),
		      *cap(&wanted, order[keep][i]));
	*out = req.caps;
	return true;
}

void fit_begin(struct fit *f, const struct geometry *g, enum fit_kind kind, enum fit_keep keep,
	       uint32_t least_inline, const struct qp_request *asked)
{
	*f = (struct fit){
		.geometry = g,
		.kind = kind,
		.keep = keep,
		.least_inline = least_inline,
		.asked = *asked,
	};
}

/* max_qp_wr may be a quarter of what the device takes (geometry_mlx5.c: usual_queue). */
static void be_bold(struct device_facts *facts)
{
	facts->limits.max_qp_wr = within_32_bits(saturating_mul(facts->limits.max_qp_wr, 4));
}

static uint32_t halved(uint32_t limit)
{
	return limit > 1 ? limit / 2 : limit;
}

/* As if half of what the last attempt needed were the most there is. */
static void halve(struct device_facts *facts, const struct fit *f)
{
	uint32_t needs[LEARNED_LIMITS] = { 0 };
	struct qp_request tried = f->asked;
	struct device_limits *l = &facts->limits;

	tried.caps = f->tried;
	if (f->kind == FIT_QP && f->geometry->needs_qp)
		f->geometry->needs_qp(&tried, facts, needs);
	if (f->kind == FIT_SRQ && f->geometry->needs_srq)
		f->geometry->needs_srq(f->tried.max_recv_wr, f->tried.max_recv_sge, facts, needs);
	for (unsigned int i = 0; i < LEARNED_LIMITS; i++)
		if (needs[i] > facts->learned[i].accepted)
			facts->learned[i].refused =
				(uint32_t)most(needs[i] / 2, facts->learned[i].accepted) + 1;
	l->max_qp_wr = halved(
		(uint32_t)least(l->max_qp_wr, most(f->tried.max_send_wr, f->tried.max_recv_wr)));
	l->max_sge = halved(l->max_sge);
	l->max_cqe = halved((uint32_t)least(l->max_cqe, f->tried.max_send_wr));
	l->max_srq_wr = halved((uint32_t)least(l->max_srq_wr, f->tried.max_recv_wr));
	l->max_srq_sge = halved(l->max_srq_sge);
}

/* What the request becomes by one step; false: the step does not apply. */
static bool take_step(const struct fit *f, enum step step, const struct device_facts *dev,
		      struct qp_caps *out)
{
	struct device_facts facts = *facts_or_none(dev);
	struct prediction p;

	predict(f->geometry, dev, f->kind, &f->asked, &p);
	switch (step) {
	case AS_ASKED:
		*out = f->asked.caps;
		return p.fate == FATE_ACCEPTED ||
		       (p.fate == FATE_UNKNOWN && is_within_limits(dev, f->kind, &f->asked)) ||
		       !fit_largest(f->geometry, dev, f->kind, f->keep, f->least_inline, &f->asked,
				    &(struct qp_caps){ 0 });
	case BOLD:
		if (p.fate != FATE_REFUSED || !p.guessed)
			return false;
		be_bold(&facts);
		break;
	case PLAIN:
		break;
	case HALVED:
	case HALVED_AGAIN:
		halve(&facts, f);
		break;
	default:
		*out = floors(&f->asked, f->least_inline);
		return true;
	}
	return fit_largest(f->geometry, &facts, f->kind, f->keep, f->least_inline, &f->asked, out);
}

bool fit_next(struct fit *f, const struct device_facts *dev, struct qp_caps *out)
{
	while (f->next_step < STEPS && f->attempts < FIT_ATTEMPTS) {
		if (!take_step(f, (enum step)f->next_step++, dev, out))
			continue;
		if (f->attempts && memcmp(out, &f->tried, sizeof(*out)) == 0)
			continue; /* it was refused */
		f->tried = *out;
		f->attempts++;
		return true;
	}
	return false;
}
