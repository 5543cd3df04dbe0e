/* SPDX-License-Identifier: MIT */
/*
 * What becomes of a request. In this order: the upper bounds of [clamp]; then, as far as limits
 * with action clamp demand it, shallower queues; then every limit against what is left. Touches
 * nothing but its arguments, so that any number of threads may ask at once; the caller does what
 * it says.
 */
#include "policy.h"
#include "saturate.h"

enum queue_kind { QUEUE_QP, QUEUE_CQ, QUEUE_SRQ, QUEUE_WQ, NO_QUEUE_BUT_MR, NO_QUEUE_BUT_MEMORY };

/* One request on its way through, with all it is measured against. */
struct judgement {
	const struct policy_values *values;
	const struct policy_usage *use;
	const struct geometry *geometry;
	const struct device_facts *dev;
	enum queue_kind kind;
	struct qp_request req; /* its caps are those to be submitted; of an SRQ max_recv_* */
	uint32_t cqe;
	uint64_t mr_bytes; /* of what is no queue */
	struct policy_verdict *verdict;
};

/* What a request adds to each limit; 0: it is not concerned, as with node_bytes ever. */
struct demand {
	uint64_t of[BUDGET_LIMITS];
};

static bool is_set(const struct policy_values *v, unsigned int key)
{
	return v->set >> key & 1;
}

static enum budget_action action_of(const struct policy_values *v, unsigned int limit)
{
	unsigned int key = BUDGET_ACTION_OF + limit;

	return (enum budget_action)v->num[is_set(v, key) ? key : BUDGET_ACTION];
}

static void predict_bytes(const struct judgement *j, struct queue_bytes *out)
{
	switch (j->kind) {
	case QUEUE_QP:
		geometry_qp_bytes(j->geometry, &j->req, NULL, j->dev, out);
		break;
	case QUEUE_CQ:
		geometry_cq_bytes(j->geometry, j->cqe, 0, j->dev, out);
		break;
	case QUEUE_SRQ:
		geometry_srq_bytes(j->geometry, j->req.caps.max_recv_wr, j->req.caps.max_recv_sge,
				   j->dev, out);
		break;
	case QUEUE_WQ:
		geometry_wq_bytes(j->geometry, j->req.caps.max_recv_wr, j->req.caps.max_recv_sge,
				  j->dev, out);
		break;
	case NO_QUEUE_BUT_MEMORY:
		*out = (struct queue_bytes){ .rq = j->mr_bytes };
		break;
	case NO_QUEUE_BUT_MR:
		*out = (struct queue_bytes){ 0 };
		break;
	}
}

static void measure(const struct judgement *j, struct demand *d)
{
	struct queue_bytes bytes;

	*d = (struct demand){ 0 };
	predict_bytes(j, &bytes);
	d->of[BUDGET_PROCESS_BYTES] = d->of[BUDGET_DEVICE_BYTES] = queue_bytes_total(&bytes);
	switch (j->kind) {
	case QUEUE_QP:
		d->of[BUDGET_BYTES_PER_QP] = queue_bytes_total(&bytes);
		d->of[BUDGET_QPS] = 1;
		d->of[BUDGET_SEND_WRS] = j->req.caps.max_send_wr;
		d->of[BUDGET_RECV_WRS] = j->req.has_srq ? 0 : j->req.caps.max_recv_wr;
		break;
	case QUEUE_CQ:
		d->of[BUDGET_CQS] = 1;
		d->of[BUDGET_CQES] = j->cqe;
		break;
	case QUEUE_SRQ:
		d->of[BUDGET_SRQS] = 1;
		d->of[BUDGET_RECV_WRS] = j->req.caps.max_recv_wr;
		break;
	case QUEUE_WQ:
		d->of[BUDGET_RECV_WRS] = j->req.caps.max_recv_wr;
		break;
	case NO_QUEUE_BUT_MEMORY:
		break;
	case NO_QUEUE_BUT_MR:
		d->of[BUDGET_MRS] = 1;
		d->of[BUDGET_MR_BYTES] = j->mr_bytes;
		break;
	}
}

/* What the use of a limit would become. */
static uint64_t would_be(const struct judgement *j, const struct demand *d, unsigned int limit)
{
	uint64_t used = limit == BUDGET_BYTES_PER_QP ? 0 : j->use->used[limit];

	return saturating_add(used, d->of[limit]);
}

/* A request that adds nothing to a limit is not held up by it, even if it is exceeded already. */
static bool exceeds(const struct judgement *j, const struct demand *d, unsigned int limit)
{
	return is_set(j->values, limit) && d->of[limit] &&
	       would_be(j, d, limit) > j->values->num[limit];
}

/* The first limit with action clamp that is exceeded; BUDGET_LIMITS: none is. */
static unsigned int first_to_shrink_for(const struct judgement *j)
{
	unsigned int limit = 0;
	struct demand d;

	measure(j, &d);
	while (limit < BUDGET_LIMITS &&
	       !(exceeds(j, &d, limit) && action_of(j->values, limit) == ACTION_CLAMP))
		limit++;
	return limit;
}

static void note_clamp(struct policy_verdict *out, unsigned int key)
{
	if (!out->clamped)
		out->clamped_by = (enum policy_key)key;
	out->clamped = true;
}

/* A bound below 1 would make a queue that takes nothing: worse than a refusal. */
static void bound(struct judgement *j, enum policy_key key, uint32_t *cap, uint32_t floor)
{
	uint64_t bound = most(j->values->num[key], floor);

	if (!is_set(j->values, key) || *cap <= bound)
		return;
	*cap = (uint32_t)bound;
	note_clamp(j->verdict, key);
}

static void bound_caps(struct judgement *j)
{
	struct qp_caps *caps = &j->req.caps;

	if (j->kind == QUEUE_CQ)
		bound(j, CLAMP_MAX_CQE, &j->cqe, 1);
	if (j->kind == QUEUE_QP)
		bound(j, CLAMP_MAX_SEND_WR, &caps->max_send_wr, 1);
	if (!j->req.has_srq) /* else those of the QP mean nothing; an SRQ itself has no SRQ */
		bound(j, CLAMP_MAX_RECV_WR, &caps->max_recv_wr, 1);
	if (j->kind == QUEUE_QP)
		bound(j, CLAMP_MAX_SEND_SGE, &caps->max_send_sge, 1);
	if (!j->req.has_srq)
		bound(j, CLAMP_MAX_RECV_SGE, &caps->max_recv_sge, 1);
	if (j->kind == QUEUE_QP)
		bound(j, CLAMP_MAX_INLINE_DATA, &caps->max_inline_data, 0);
}

/* depth * part / whole, but never below 1 of a depth that was asked. */
static uint32_t scaled(uint32_t depth, uint64_t part, uint64_t whole)
{
	if (!depth || !whole)
		return depth;
	return (uint32_t)most((uint64_t)depth * part / whole, 1);
}

/* What is left of a limit on depths with action clamp; the depth itself if none demands less. */
static uint32_t depth_left(const struct judgement *j, unsigned int limit, uint32_t depth)
{
	uint64_t all = j->values->num[limit], used = j->use->used[limit];

	if (!is_set(j->values, limit) || action_of(j->values, limit) != ACTION_CLAMP || !depth)
		return depth;
	return (uint32_t)least(depth, used < all ? most(all - used, 1) : 1);
}

/* Limits on one side's depth shrink that side alone; both depths share what bytes are left. */
static void shrink(struct judgement *j)
{
	struct qp_caps *caps = &j->req.caps;
	uint32_t send, recv, cqe = depth_left(j, BUDGET_CQES, j->cqe);
	uint64_t low = 0, whole;

	send = depth_left(j, BUDGET_SEND_WRS, caps->max_send_wr);
	recv = caps->max_recv_wr;
	if (!j->req.has_srq)
		recv = depth_left(j, BUDGET_RECV_WRS, recv);
	whole = most(most(send, j->req.has_srq ? 0 : recv), cqe);
	/* the largest of `whole` parts that fits; 0 parts is a depth of 1 everywhere */
	for (uint64_t high = whole, part = whole;; part = low + (high - low + 1) / 2) {
		caps->max_send_wr = scaled(send, part, whole);
		if (!j->req.has_srq)
			caps->max_recv_wr = scaled(recv, part, whole);
		j->cqe = scaled(cqe, part, whole);
		if (low == high)
			break;
		if (first_to_shrink_for(j) == BUDGET_LIMITS)
			low = part;
		else
			high = part - 1;
	}
}

static void refuse(struct policy_verdict *out, unsigned int limit, uint64_t asked, uint64_t most_of)
{
	out->refused = true;
	out->refused_by = (enum policy_key)limit;
	out->asked = asked;
	out->limit = most_of;
}

/* Shrinks for the limits with action clamp, or refuses when not even depths of 1 would do. */
static void apply_clamping_limits(struct judgement *j)
{
	const struct judgement before = *j;
	unsigned int first = first_to_shrink_for(j), failed;
	struct demand asked;

	if (first == BUDGET_LIMITS)
		return;
	shrink(j);
	failed = first_to_shrink_for(j);
	if (failed == BUDGET_LIMITS) {
		note_clamp(j->verdict, first);
		return;
	}
	*j = before;
	measure(j, &asked);
	refuse(j->verdict, failed, would_be(j, &asked, failed), j->values->num[failed]);
}

/* The limits with the other two actions. */
static void apply_limits(const struct judgement *j)
{
	struct policy_verdict *out = j->verdict;
	struct demand d;

	measure(j, &d);
	for (unsigned int limit = 0; limit < BUDGET_LIMITS; limit++) {
		if (!exceeds(j, &d, limit))
			continue;
		if (action_of(j->values, limit) != ACTION_OBSERVE) {
			out->observed = 0;
			refuse(out, limit, would_be(j, &d, limit), j->values->num[limit]);
			return;
		}
		if (!out->observed) {
			out->refused_by = (enum policy_key)limit;
			out->asked = would_be(j, &d, limit);
			out->limit = j->values->num[limit];
		}
		out->observed |= 1u << limit;
	}
}

static void judge(struct judgement *j)
{
	*j->verdict = (struct policy_verdict){ 0 };
	bound_caps(j);
	apply_clamping_limits(j);
	if (!j->verdict->refused)
		apply_limits(j);
	predict_bytes(j, &j->verdict->bytes);
	j->verdict->submitted = j->req.caps;
	j->verdict->submitted_cqe = j->cqe;
}

void policy_judge_qp(const struct policy_values *v, const struct policy_usage *use,
		     const struct geometry *g, const struct device_facts *dev,
		     const struct qp_request *req, struct policy_verdict *out)
{
	struct judgement j = {
		.values = v,
		.use = use,
		.geometry = g,
		.dev = dev,
		.kind = QUEUE_QP,
		.req = *req,
		.verdict = out,
	};

	judge(&j);
}

void policy_judge_cq(const struct policy_values *v, const struct policy_usage *use,
		     const struct geometry *g, const struct device_facts *dev, uint32_t cqe,
		     struct policy_verdict *out)
{
	struct judgement j = {
		.values = v,
		.use = use,
		.geometry = g,
		.dev = dev,
		.kind = QUEUE_CQ,
		.cqe = cqe,
		.verdict = out,
	};

	judge(&j);
}

static void judge_receiving(const struct policy_values *v, const struct policy_usage *use,
			    const struct geometry *g, const struct device_facts *dev,
			    enum queue_kind kind, uint32_t max_wr, uint32_t max_sge,
			    struct policy_verdict *out)
{
	struct judgement j = {
		.values = v,
		.use = use,
		.geometry = g,
		.dev = dev,
		.kind = kind,
		.req.caps = { .max_recv_wr = max_wr, .max_recv_sge = max_sge },
		.verdict = out,
	};

	judge(&j);
}

void policy_judge_srq(const struct policy_values *v, const struct policy_usage *use,
		      const struct geometry *g, const struct device_facts *dev, uint32_t max_wr,
		      uint32_t max_sge, struct policy_verdict *out)
{
	judge_receiving(v, use, g, dev, QUEUE_SRQ, max_wr, max_sge, out);
}

void policy_judge_wq(const struct policy_values *v, const struct policy_usage *use,
		     const struct geometry *g, const struct device_facts *dev, uint32_t max_wr,
		     uint32_t max_sge, struct policy_verdict *out)
{
	judge_receiving(v, use, g, dev, QUEUE_WQ, max_wr, max_sge, out);
}

enum policy_key policy_bound(const struct policy_values *v, enum fit_kind kind, bool has_srq,
			     struct qp_caps *caps)
{
	struct policy_verdict verdict = { 0 };
	struct judgement j = {
		.values = v,
		.kind = kind == FIT_QP	 ? QUEUE_QP
			: kind == FIT_CQ ? QUEUE_CQ
					 : QUEUE_SRQ,
		.req = { .caps = *caps, .has_srq = has_srq },
		.cqe = caps->max_send_wr,
		.verdict = &verdict,
	};

	bound_caps(&j);
	*caps = j.req.caps;
	if (kind == FIT_CQ)
		caps->max_send_wr = j.cqe;
	return verdict.clamped ? verdict.clamped_by : POLICY_KEYS;
}

void policy_judge_mr(const struct policy_values *v, const struct policy_usage *use, uint64_t bytes,
		     struct policy_verdict *out)
{
	static const struct device_facts none;
	struct judgement j = {
		.values = v,
		.use = use,
		.geometry = geometry_of(""),
		.dev = &none,
		.kind = NO_QUEUE_BUT_MR,
		.mr_bytes = bytes,
		.verdict = out,
	};

	judge(&j);
}

void policy_judge_memory(const struct policy_values *v, const struct policy_usage *use,
			 uint64_t bytes, struct policy_verdict *out)
{
	static const struct device_facts none;
	struct judgement j = {
		.values = v,
		.use = use,
		.geometry = geometry_of(""),
		.dev = &none,
		.kind = NO_QUEUE_BUT_MEMORY,
		.mr_bytes = bytes,
		.verdict = out,
	};

	judge(&j);
}
