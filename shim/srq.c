/* SPDX-License-Identifier: MIT */
/*
 * Shared receive queues: creation by symbol and through the slot of the _ex form, resizing, destruction.
 * The steps are those of qp.c.
 */
#include <errno.h>
#include <string.h>

#include "counts.h"
#include "file.h"
#include "guard.h"
#include "real.h"

struct creation {
	struct guard *guard;
	struct ibv_context *context;
	struct device *device;
	void *address;
	uint16_t caller;
	uint8_t entry;
	bool hidden; /* completions do not tell of it */
	uint32_t requested_wr, requested_sge;
	bool fitted; /* [clamp] to_device lowered what is submitted */
	struct policy_verdict verdict;
	struct fit fit; /* geometry NULL: the request is not to be fitted */
	/* the real call, once */
	struct ibv_srq *(*create)(struct creation *);
	struct ibv_pd *pd;
	union {
		struct ibv_srq_init_attr *attr;
		struct ibv_srq_init_attr_ex *attr_ex;
	};
};

struct hot_srq *hot_srq_of(const struct ibv_srq *srq)
{
	return srq ? lookup_find(&srqs, offsetof(struct hot_srq, srq), (uintptr_t)srq) : NULL;
}

/* The CQs that an SRQ's requests complete on, and how many QPs take them there. 64 bytes, as hot_take gives. */
struct srq_binding {
	struct srq_binding *next;
	struct {
		struct cq_record *cq; /* NULL: free */
		uint64_t qps;
	} of[3];
};

static uint32_t requests_of(const struct hot_srq *s)
{
	const struct srq_record *r = s->record;

	return r->requested_wr < r->effective_wr ? r->requested_wr : r->effective_wr;
}

static bool is_bound(const struct hot_srq *s, const struct cq_record *cq)
{
	for (const struct srq_binding *b = s->bindings; b; b = b->next)
		for (unsigned int i = 0; i < 3; i++)
			if (b->of[i].cq == cq)
				return true;
	return false;
}

uint32_t srq_would_bind(const struct hot_srq *s, const struct cq_record *cq)
{
	return is_bound(s, cq) ? 0 : requests_of(s);
}

/* A free place, made when there is none; without memory the CQ seems to hold nothing of the SRQ. */
static struct srq_binding *binding_with_room(struct guard *g, struct hot_srq *s, unsigned int *at)
{
	struct srq_binding *b;

	for (b = s->bindings; b; b = b->next)
		for (*at = 0; *at < 3; ++*at)
			if (!b->of[*at].cq)
				return b;
	b = hot_take(g);
	if (!b)
		return NULL;
	memset(b, 0, sizeof(*b));
	b->next = s->bindings;
	s->bindings = b;
	*at = 0;
	return b;
}

uint32_t srq_bind(struct guard *g, struct hot_srq *s, struct cq_record *cq, int sign)
{
	unsigned int at;
	struct srq_binding *free_one;

	for (struct srq_binding *b = s->bindings; b; b = b->next)
		for (unsigned int i = 0; i < 3; i++) {
			if (b->of[i].cq != cq)
				continue;
			b->of[i].qps += (uint64_t)(int64_t)sign;
			if (b->of[i].qps)
				return 0;
			b->of[i].cq = NULL;
			return requests_of(s);
		}
	free_one = sign > 0 ? binding_with_room(g, s, &at) : NULL;
	if (!free_one)
		return 0;
	free_one->of[at].cq = cq;
	free_one->of[at].qps = 1;
	return requests_of(s);
}

static void forget_bindings(struct guard *g, struct hot_srq *s)
{
	struct srq_binding *next;

	for (struct srq_binding *b = s->bindings; b; b = next) {
		next = b->next;
		hot_give(g, b, 0);
	}
	s->bindings = NULL;
}

static struct qp_caps caps_of(uint32_t wr, uint32_t sge)
{
	return (struct qp_caps){ .max_recv_wr = wr, .max_recv_sge = sge };
}

static void reserve_srq(struct creation *c, int sign)
{
	reserve(c->guard, BUDGET_SRQS, sign);
	reserve(c->guard, BUDGET_RECV_WRS, (int64_t)sign * c->verdict.submitted.max_recv_wr);
	reserve_bytes(c->guard, c->device, sign * (int64_t)queue_bytes_total(&c->verdict.bytes));
}

static void look_up(struct creation *c, struct policy_values *values, struct policy_usage *usage)
{
	struct policy_subject subject;

	subject_of(c->guard, c->device, 0, c->caller, &subject);
	policy_resolve(c->guard->policy, &subject, values);
	usage_of(c->guard, c->device, usage);
}

/* Budgets for caps that [clamp] has settled, and the room for them. False: refused. */
static bool hold(struct creation *c, const struct policy_values *values,
		 const struct policy_usage *usage, const struct qp_caps *caps)
{
	policy_judge_srq(values, usage, geometry_for(c->device), facts_of(c->device),
			 caps->max_recv_wr, caps->max_recv_sge, &c->verdict);
	if (c->verdict.refused)
		return false;
	reserve_srq(c, 1);
	c->fitted = c->fit.geometry && (c->verdict.submitted.max_recv_wr != c->requested_wr ||
					c->verdict.submitted.max_recv_sge != c->requested_sge);
	return true;
}

/* The first of what [clamp] to_device submits. */
static struct qp_caps first_caps(struct creation *c, const struct policy_values *values)
{
	struct qp_request asked = { .caps = caps_of(c->requested_wr, c->requested_sge) };
	struct qp_caps caps;

	if (!values->num[CLAMP_TO_DEVICE])
		return asked.caps;
	policy_bound(values, FIT_SRQ, false, &asked.caps);
	fit_begin(&c->fit, geometry_for(c->device), FIT_SRQ, (enum fit_keep)values->num[CLAMP_KEEP],
		  0, &asked);
	caps = asked.caps;
	fit_next(&c->fit, facts_of(c->device), &caps);
	return caps;
}

/* Asks policy and holds the room. False: refused, counted and told. Under lock. */
APART static bool decide(struct creation *c)
{
	struct qp_caps requested = caps_of(c->requested_wr, c->requested_sge), caps;
	struct policy_values values;
	struct policy_usage usage;
	bool held;

	look_up(c, &values, &usage);
	caps = first_caps(c, &values);
	held = hold(c, &values, &usage, &caps);
	note_verdict(c->guard, c->device, CALL_CREATE_SRQ, c->caller, 0, &requested, &c->verdict);
	return held;
}

static bool creation_begin(struct creation *c, const struct ibv_srq_attr *attr)
{
	struct guard *g = c->guard;
	bool held;

	c->requested_wr = attr->max_wr;
	c->requested_sge = attr->max_sge;
	asked_by_librdmacm(&c->address, &c->entry);
	device_learn(g, c->context);
	guard_lock(g);
	c->device = device_of(g, c->context);
	c->caller = caller_index(g, c->address);
	held = decide(c);
	guard_unlock(g);
	return held;
}

/* What the creation teaches; error 0: it succeeded. */
static void learn(struct creation *c, int error)
{
	geometry_learn_srq(c->device->geometry, c->verdict.submitted.max_recv_wr,
			   c->verdict.submitted.max_recv_sge, error, &c->device->facts);
}

/* After a refusal, whose room is given back: the next request that [clamp] to_device has, if any. */
static bool creation_again(struct creation *c, int error)
{
	struct policy_values values;
	struct policy_usage usage;
	struct qp_caps caps;
	bool held = false;

	guard_lock(c->guard);
	reserve_srq(c, -1);
	if (c->device)
		learn(c, error ? error : EIO);
	if (c->fit.geometry && fit_may_help(error)) {
		look_up(c, &values, &usage);
		while (!held && fit_next(&c->fit, facts_of(c->device), &caps))
			held = hold(c, &values, &usage, &caps);
	}
	guard_unlock(c->guard);
	return held;
}

static void creation_failed(struct creation *c, int error)
{
	struct qp_caps requested = caps_of(c->requested_wr, c->requested_sge);
	struct qp_request request = { .caps = requested };
	struct failed_creation f = {
		.call = CALL_CREATE_SRQ, .req = &request, .bytes = &c->verdict.bytes, .error = error
	};
	struct failure_reason why;

	guard_lock(c->guard);
	explain_creation(c->guard, c->device, &f, &why);
	note_failure(c->guard, c->device, &why, c->caller, 0, &requested);
	guard_unlock(c->guard);
}

static void make_hot(struct creation *c, struct srq_record *r, const struct ibv_srq *srq)
{
	struct hot_srq *h = hot_take(c->guard);

	if (!h)
		return;
	h->record = r;
	h->hooks = hooks_of(c->context);
	h->max_wr = r->effective_wr;
	h->max_sge = r->effective_sge;
	__atomic_store_n(&h->srq, srq, __ATOMIC_RELEASE);
	lookup_insert(&srqs, h);
}

static void charge_srq(struct guard *g, struct device *d, const struct srq_record *r, int sign)
{
	charge(g, BUDGET_SRQS, sign);
	charge(g, BUDGET_RECV_WRS, (int64_t)sign * r->effective_wr);
	charge_bytes(g, d, sign * (int64_t)(r->ring_bytes + r->bookkeeping_bytes));
}

static void fill_record(struct creation *c, struct srq_record *r, const struct ibv_srq_attr *attr,
			const struct queue_bytes *bytes)
{
	struct group_key key;

	r->id = ++c->guard->next_id[KIND_SRQ];
	r->entry = c->entry;
	r->basis = (uint8_t)bytes->basis;
	r->device = c->device ? c->device->index : UINT16_MAX;
	r->caller = c->caller;
	r->flags = (uint8_t)((c->hidden ? SRQ_HIDDEN : 0) |
			     (made_by_library(c->guard, c->caller) ? LIBRARY_OWNED : 0));
	r->requested_wr = c->requested_wr;
	r->requested_sge = c->requested_sge;
	r->submitted_wr = c->verdict.submitted.max_recv_wr;
	r->submitted_sge = c->verdict.submitted.max_recv_sge;
	r->effective_wr = attr->max_wr;
	r->effective_sge = attr->max_sge;
	r->created_at = now_ns();
	r->ring_bytes = bytes->rq;
	r->bookkeeping_bytes = bytes->bookkeeping;
	memset(&key, 0, sizeof(key));
	key.kind = KIND_SRQ;
	key.qp_flags = r->flags & LIBRARY_OWNED;
	key.basis = r->basis;
	key.device = r->device;
	key.caller = r->caller;
	key.requested = caps_of(r->requested_wr, r->requested_sge);
	key.effective = caps_of(attr->max_wr, attr->max_sge);
	r->group = group_join(c->guard, &key, queue_bytes_total(bytes));
}

static void creation_done(struct creation *c, const struct ibv_srq *srq,
			  const struct ibv_srq_attr *attr)
{
	struct guard *g = c->guard;
	struct state_totals *t = &g->header->totals;
	const struct qp_caps asked = caps_of(c->requested_wr, c->requested_sge);
	struct queue_bytes bytes;
	struct srq_record *r;

	guard_lock(g);
	reserve_srq(c, -1);
	if (c->fitted)
		note_fitted(g, c->device, CALL_CREATE_SRQ, &c->verdict);
	failures_settle(g, CALL_CREATE_SRQ, c->device, &asked, &asked);
	geometry_srq_bytes(geometry_for(c->device), c->verdict.submitted.max_recv_wr,
			   c->verdict.submitted.max_recv_sge, facts_of(c->device), &bytes);
	if (c->device)
		learn(c, 0);
	count_created(&t->created_srqs, &t->live_srqs);
	atomic_fetch_add_explicit(&g->header->entry_points[c->entry], 1, memory_order_relaxed);
	r = record_begin(g, KIND_SRQ);
	if (r) {
		fill_record(c, r, attr, &bytes);
		record_ready(r);
		make_hot(c, r, srq);
		charge_srq(g, c->device, r, 1);
	}
	guard_unlock(g);
}

/* The real call, again with less as long as [clamp] to_device has something to try. `before` is the application's
 * errno. On failure the provider may have edited the request (mlx5 does): it is left as the provider left it, unless
 * we changed it. */
static struct ibv_srq *creation_run(struct creation *c, struct ibv_srq_attr *attr, int before)
{
	bool changed = c->verdict.clamped || c->fit.geometry;
	int error, first_error = -1;
	struct ibv_srq *srq;

	do {
		if (changed) {
			attr->max_wr = c->verdict.submitted.max_recv_wr;
			attr->max_sge = c->verdict.submitted.max_recv_sge;
		}
		errno = 0;
		guard_nest(1);
		srq = c->create(c);
		error = errno;
		guard_nest(-1);
		if (first_error < 0)
			first_error = error;
	} while (!srq && creation_again(c, error));
	if (srq) {
		creation_done(c, srq, attr);
	} else {
		if (changed) {
			attr->max_wr = c->requested_wr;
			attr->max_sge = c->requested_sge;
		}
		creation_failed(c, first_error);
	}
	errno = srq || !first_error ? before : first_error;
	return srq;
}

static struct real real_create SOUGHT_EARLY = { "ibv_create_srq", "IBVERBS_1.1",
						.wrapper = (void *)ibv_create_srq };

typedef struct ibv_srq *create_srq_function(struct ibv_pd *, struct ibv_srq_init_attr *);

static struct ibv_srq *create_by_symbol(struct creation *c)
{
	return ((create_srq_function *)real_find(&real_create))(c->pd, c->attr);
}

/* man ibv_create_srq. */
INTERPOSED struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	create_srq_function *create = (create_srq_function *)real_find(&real_create);
	struct creation c = { .guard = guard_enter(),
			      .address = CALLER(),
			      .entry = ENTRY_CREATE_SRQ,
			      .create = create_by_symbol,
			      .pd = pd,
			      .attr = attr };
	int before = errno;

	if (!create) {
		errno = ENOSYS;
		return NULL;
	}
	if (!c.guard || guard_nested() || !context_known(c.guard, pd->context))
		return create(pd, attr);
	c.context = pd->context;
	if (!creation_begin(&c, &attr->attr)) {
		errno = ENOMEM;
		return NULL;
	}
	return creation_run(&c, &attr->attr, before);
}

static struct ibv_srq *create_by_slot(struct creation *c)
{
	return hooks_of(c->context)->create_srq_ex(c->context, c->attr_ex);
}

/* Takes the place of verbs_context.create_srq_ex: man ibv_create_srq_ex. */
struct ibv_srq *guarded_create_srq_ex(struct ibv_context *context,
				      struct ibv_srq_init_attr_ex *attr)
{
	const struct context_hooks *hooks = hooks_of(context);
	struct creation c = { .guard = guard_enter(),
			      .address = CALLER(),
			      .entry = ENTRY_CREATE_SRQ_EX,
			      .context = context,
			      .create = create_by_slot,
			      .attr_ex = attr };
	int before = errno;

	if (!hooks || !hooks->create_srq_ex) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	if (!c.guard || guard_nested())
		return hooks->create_srq_ex(context, attr);
	c.hidden = attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE && attr->srq_type != IBV_SRQT_BASIC;
	if (!creation_begin(&c, &attr->attr)) {
		errno = ENOMEM;
		return NULL;
	}
	return creation_run(&c, &attr->attr, before);
}

/* The old ring and the new one were both there for a while, as in cq.c. */
static void resized(struct guard *g, const struct ibv_srq *srq, uint32_t max_wr)
{
	struct device *d = device_of(g, srq->context);
	struct hot_srq *h = hot_srq_of(srq);
	struct srq_record *r = h ? h->record : NULL;
	struct queue_bytes bytes;
	int64_t more, fewer;

	if (!r)
		return;
	geometry_srq_bytes(geometry_for(d), max_wr, r->effective_sge, facts_of(d), &bytes);
	more = (int64_t)queue_bytes_total(&bytes);
	fewer = -(int64_t)(r->ring_bytes + r->bookkeeping_bytes);
	charge(g, BUDGET_RECV_WRS, (int64_t)max_wr - r->effective_wr);
	charge_bytes(g, d, more);
	charge_bytes(g, d, fewer);
	group_resize(g, r->group, more);
	group_resize(g, r->group, fewer);
	h->max_wr = max_wr;
	atomic_store_explicit(&r->effective_wr, max_wr, memory_order_relaxed);
	atomic_store_explicit(&r->ring_bytes, bytes.rq, memory_order_relaxed);
	atomic_store_explicit(&r->bookkeeping_bytes, bytes.bookkeeping, memory_order_relaxed);
}

static struct real real_modify SOUGHT_EARLY = { "ibv_modify_srq", "IBVERBS_1.1",
						.wrapper = (void *)ibv_modify_srq };

/* man ibv_modify_srq. */
INTERPOSED int ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int attr_mask)
{
	int (*modify)(struct ibv_srq *, struct ibv_srq_attr *, int) =
		(int (*)(struct ibv_srq *, struct ibv_srq_attr *, int))real_find(&real_modify);
	struct guard *g = guard_enter();
	int rc;

	if (!modify)
		return ENOSYS;
	rc = modify(srq, attr, attr_mask);
	if (!g || guard_nested())
		return rc;
	if (rc) {
		note_call_failure(g, srq->context, CALL_MODIFY_SRQ, CALLER(), rc);
	} else if (attr_mask & IBV_SRQ_MAX_WR) {
		guard_lock(g);
		resized(g, srq, attr->max_wr);
		guard_unlock(g);
	}
	return rc;
}

/* Requests that are still in the queue go with it. */
static void discard_outstanding(struct srq_record *r)
{
	uint64_t outstanding = record_srq_outstanding(r);

	atomic_fetch_add_explicit(&r->retired, outstanding, memory_order_relaxed);
	atomic_fetch_add_explicit(&r->discarded, outstanding, memory_order_relaxed);
}

static struct real real_destroy SOUGHT_EARLY = { "ibv_destroy_srq", "IBVERBS_1.1",
						 .wrapper = (void *)ibv_destroy_srq };

/* man ibv_destroy_srq. Out of the table before the call, as in ibv_destroy_qp. */
INTERPOSED int ibv_destroy_srq(struct ibv_srq *srq)
{
	int (*destroy)(struct ibv_srq *) = (int (*)(struct ibv_srq *))real_find(&real_destroy);
	struct guard *g = guard_enter();
	struct ibv_context *context;
	struct hot_srq *h;
	int rc;

	if (!destroy)
		return ENOSYS;
	if (!g || guard_nested())
		return destroy(srq);
	context = srq->context;
	guard_lock(g);
	h = hot_srq_of(srq);
	if (h)
		lookup_remove(&srqs, h);
	guard_unlock(g);
	rc = destroy(srq);
	if (!h)
		return rc;
	guard_lock(g);
	if (rc) {
		lookup_insert(&srqs, h);
	} else {
		discard_outstanding(h->record);
		atomic_store_explicit(&h->record->ended_at, now_ns(), memory_order_relaxed);
		group_leave_srq(g, h->record);
		charge_srq(g, device_of(g, context), h->record, -1);
		count_destroyed(&g->header->totals.destroyed_srqs, &g->header->totals.live_srqs);
		record_end(g, KIND_SRQ, h->record);
		forget_bindings(g, h);
		hot_give(g, h, 1);
	}
	guard_unlock(g);
	if (rc)
		note_failure_of(g, context, CALL_DESTROY_SRQ, CALLER(), 0, h->record->id, rc);
	return rc;
}
