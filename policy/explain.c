/* SPDX-License-Identifier: MIT */
/*
 * A request against its device: see explain.h. A field is over when it is refused with all others at
 * their least; what is left then is the sum of them. Touches nothing but its arguments.
 */
#include "explain.h"

#include <errno.h>

#include "geometry_math.h"

enum { CAPS = 5 };

/* The caps of a request by number, with the names that its kind gives them. */
static const struct {
	enum reason_field name[FIT_SRQ + 1];
	uint32_t garbage; /* from here on a value looks like memory that was never set */
} caps[CAPS] = {
	{ { FIELD_MAX_SEND_WR, FIELD_CQE, FIELD_NONE }, 1u << 28 },
	{ { FIELD_MAX_RECV_WR, FIELD_NONE, FIELD_SRQ_WR }, 1u << 28 },
	{ { FIELD_MAX_SEND_SGE, FIELD_NONE, FIELD_NONE }, 1u << 20 },
	{ { FIELD_MAX_RECV_SGE, FIELD_NONE, FIELD_SRQ_SGE }, 1u << 20 },
	{ { FIELD_MAX_INLINE_DATA, FIELD_NONE, FIELD_NONE }, 1u << 24 },
};

static uint32_t *cap(struct qp_caps *c, unsigned int n)
{
	uint32_t *const of[CAPS] = { &c->max_send_wr, &c->max_recv_wr, &c->max_send_sge,
				     &c->max_recv_sge, &c->max_inline_data };

	return of[n];
}

/* A request and what it is held against. */
struct question {
	const struct geometry *geometry;
	const struct device_facts *dev;
	enum fit_kind kind;
	struct qp_request req;
};

static struct qp_request least_of(const struct qp_request *req)
{
	struct qp_request r = *req;

	for (unsigned int i = 0; i < CAPS; i++)
		*cap(&r.caps, i) = (uint32_t)least(*cap(&r.caps, i), 1);
	r.caps.max_inline_data = 0;
	if (r.has_srq)
		r.caps.max_recv_wr = r.caps.max_recv_sge = 0;
	return r;
}

static bool accepts(const struct question *q, const struct qp_request *req)
{
	return fit_accepts(q->geometry, q->dev, q->kind, req);
}

/* The most that cap n may be in `req`, up to what was asked; 0: nothing. */
static uint32_t most_of(const struct question *q, struct qp_request req, unsigned int n)
{
	uint32_t low = 0, high = *cap((struct qp_caps *)&q->req.caps, n);

	for (uint32_t value = high; low < high; value = low + (high - low + 1) / 2) {
		*cap(&req.caps, n) = value;
		if (accepts(q, &req))
			low = value;
		else
			high = value - 1;
	}
	return low;
}

/* Whether cap n is refused with all others at their least. *limit: the most that is not. */
static bool is_over_alone(const struct question *q, unsigned int n, uint32_t *limit)
{
	struct qp_request r = least_of(&q->req);
	uint32_t asked = *cap((struct qp_caps *)&q->req.caps, n);

	if (caps[n].name[q->kind] == FIELD_NONE)
		return false;
	*limit = most_of(q, r, n);
	return *limit < asked;
}

static void note_over(struct failure_reason *out, unsigned int found, enum reason_field field,
		      uint32_t asked, uint32_t limit)
{
	if (!found) {
		out->reason = REASON_DEVICE_LIMIT;
		out->field = (uint16_t)field;
		out->asked = asked;
		out->limit = limit;
	} else {
		out->number[found - 1] = (uint64_t)asked << 32 | limit;
		out->number[OVER_FIELDS] |= (uint64_t)field << 8 * (found - 1);
	}
}

/* Bytes alone limit the depth of a send queue: there the width belongs to the answer. */
static bool is_bytes(const struct question *q, unsigned int n)
{
	return n == 0 && q->kind == FIT_QP && q->geometry->needs_qp;
}

static bool explain_fields(const struct question *q, struct failure_reason *out)
{
	struct qp_caps asked = q->req.caps;
	unsigned int found = 0;
	bool bytes = false;
	uint32_t limit;

	for (unsigned int n = 0; n < CAPS; n++) {
		if (!is_over_alone(q, n, &limit))
			continue;
		if (*cap(&asked, n) >= caps[n].garbage) {
			*out = (struct failure_reason){ .call = out->call,
							.error = out->error,
							.reason = REASON_UNINITIALIZED,
							.field = (uint16_t)caps[n].name[q->kind],
							.asked = *cap(&asked, n),
							.limit = limit };
			return true;
		}
		bytes = bytes || is_bytes(q, n);
		note_over(out, found++, caps[n].name[q->kind], *cap(&asked, n), limit);
	}
	return found && !(found == 1 && bytes);
}

/* No field alone is too much, or the depth of a queue of which the bytes are the limit. */
static bool explain_sum(const struct question *q, struct failure_reason *out)
{
	struct qp_request receives = q->req, most = q->req;
	bool sends = false;
	struct queue_bytes asked, possible;
	unsigned int wr, sge;

	receives.caps.max_send_wr = receives.caps.max_send_sge = receives.caps.max_inline_data = 0;
	sends = q->kind == FIT_QP && accepts(q, &receives);
	wr = sends ? 0 : 1;
	sge = sends ? 2 : 3;
	*out = (struct failure_reason){ .call = out->call, .error = out->error };
	out->reason = REASON_JOINT_LIMIT;
	out->field = (uint16_t)caps[wr].name[q->kind];
	out->asked = *cap((struct qp_caps *)&q->req.caps, wr);
	out->limit = most_of(q, q->req, wr);
	if (!out->limit)
		return false;
	out->number[JOINT_SGE] = *cap((struct qp_caps *)&q->req.caps, sge);
	out->number[JOINT_INLINE] = sends ? q->req.caps.max_inline_data : 0;
	out->number[JOINT_WIDEST] = most_of(q, q->req, sge);
	*cap(&most.caps, wr) = (uint32_t)out->limit;
	if (q->kind != FIT_QP)
		return true;
	geometry_qp_bytes(q->geometry, &q->req, NULL, q->dev, &asked);
	geometry_qp_bytes(q->geometry, &most, NULL, q->dev, &possible);
	out->number[JOINT_BYTES] = sends ? asked.sq : asked.rq;
	out->number[JOINT_MOST_BYTES] = sends ? possible.sq : possible.rq;
	return true;
}

static bool is_unsupported(int error)
{
	return error == EPROTONOSUPPORT || error == EOPNOTSUPP || error == ENOSYS;
}

/* Of the type, the flags and the SRQ of a QP. */
static bool explain_type(const struct question *q, int error, struct failure_reason *out)
{
	if (is_unsupported(error)) {
		out->reason = REASON_UNSUPPORTED;
		out->asked = q->kind == FIT_QP ? q->req.type : 0;
		return true;
	}
	if (q->kind == FIT_QP && error == EINVAL && q->req.has_srq && q->req.caps.max_recv_wr) {
		out->reason = REASON_SRQ_AND_RECVS;
		out->asked = q->req.caps.max_recv_wr;
		return true;
	}
	return false;
}

/* Whether the provider refuses such a request for its size with this errno. */
static bool may_be_size(const struct question *q, int error)
{
	struct prediction p;

	if (!fit_may_help(error) && error != ENOMEM)
		return false;
	if (q->kind == FIT_QP)
		geometry_predict_qp(q->geometry, &q->req, q->dev, &p);
	else if (q->kind == FIT_CQ)
		geometry_predict_cq(q->geometry, q->req.caps.max_send_wr, q->dev, &p);
	else
		geometry_predict_srq(q->geometry, q->req.caps.max_recv_wr, q->req.caps.max_recv_sge,
				     q->dev, &p);
	if (p.fate == FATE_REFUSED)
		return p.error == error;
	return p.fate == FATE_UNKNOWN && !accepts(q, &q->req);
}

bool explain_request(const struct geometry *g, const struct device_facts *dev, enum fit_kind kind,
		     const struct qp_request *req, int error, struct failure_reason *out)
{
	struct question q = { .geometry = g, .dev = dev, .kind = kind, .req = *req };
	struct failure_reason before = *out;

	if (may_be_size(&q, error) && (explain_fields(&q, out) || explain_sum(&q, out)))
		return true;
	*out = before;
	return explain_type(&q, error, out);
}

uint32_t explain_cq_cost(const struct geometry *g, const struct device_facts *dev, uint32_t cqe,
			 uint64_t *bytes, uint64_t *half_bytes)
{
	struct queue_bytes all, half;

	if (cqe < 64 || (cqe & (cqe - 1)))
		return 0;
	geometry_cq_bytes(g, cqe, 0, dev, &all);
	geometry_cq_bytes(g, cqe - 1, 0, dev, &half);
	*bytes = all.rq;
	*half_bytes = half.rq;
	return all.rq / 2 >= half.rq && half.rq ? cqe - 1 : 0;
}
