/* SPDX-License-Identifier: MIT */
/*
 * Completion queues: creation by symbol and through the slot of the _ex form, resizing, destruction.
 * The steps are those of qp.c.
 */
#include <errno.h>
#include <string.h>

#include "builder.h"
#include "direct.h"
#include "file.h"
#include "guard.h"
#include "inject.h"
#include "log.h"
#include "real.h"
#include "../policy/explain.h"
#include "../policy/text.h"

struct creation {
	struct guard *guard;
	struct ibv_context *context;
	struct device *device;
	void *address;
	uint16_t caller;
	uint8_t entry;
	uint16_t cqe_bytes; /* 0: the provider's usual */
	bool extended;	    /* polled by ibv_start_poll */
	bool tells_qp_num;  /* without it completions cannot be told apart */
	uint32_t requested_cqe;
	int error;   /* what a refusal of ours fails with */
	bool fitted; /* [clamp] to_device lowered what is submitted */
	struct policy_verdict verdict;
	struct fit fit; /* geometry NULL: the request is not to be fitted */
};

struct hot_cq *hot_cq_of(const struct ibv_cq *cq)
{
	return cq ? lookup_find(&cqs, offsetof(struct hot_cq, cq), (uintptr_t)cq) : NULL;
}

static void reserve_cq(struct creation *c, int sign)
{
	reserve(c->guard, BUDGET_CQS, sign);
	reserve(c->guard, BUDGET_CQES, (int64_t)sign * c->verdict.submitted_cqe);
	reserve_bytes(c->guard, c->device, sign * (int64_t)queue_bytes_total(&c->verdict.bytes));
}

/* What the ring depends on; *own is filled where this CQ has entries of another size than usual. */
static const struct device_facts *facts(const struct creation *c, struct device_facts *own)
{
	if (!c->device || !c->cqe_bytes)
		return facts_of(c->device);
	*own = *facts_of(c->device);
	own->settings.cqe_bytes = c->cqe_bytes;
	return own;
}

static void look_up(struct creation *c, struct policy_values *values, struct policy_usage *usage)
{
	struct policy_subject subject;

	subject_of(c->guard, c->device, 0, c->caller, &subject);
	policy_resolve(c->guard->policy, &subject, values);
	usage_of(c->guard, c->device, usage);
}

/* Budgets for a size that [clamp] has settled, and the room for it. False: refused. */
static bool hold(struct creation *c, const struct policy_values *values,
		 const struct policy_usage *usage, uint32_t cqe)
{
	struct device_facts own;
	policy_judge_cq(values, usage, geometry_for(c->device), facts(c, &own), cqe, &c->verdict);
	if (c->verdict.refused)
		return false;
	reserve_cq(c, 1);
	c->fitted = c->fit.geometry && c->verdict.submitted_cqe != c->requested_cqe;
	return true;
}

/* The first of what [clamp] to_device submits. */
static uint32_t first_cqe(struct creation *c, const struct policy_values *values)
{
	struct qp_request asked = { .caps = { .max_send_wr = c->requested_cqe } };
	struct qp_caps caps;

	if (!values->num[CLAMP_TO_DEVICE])
		return c->requested_cqe;
	policy_bound(values, FIT_CQ, false, &asked.caps);
	fit_begin(&c->fit, geometry_for(c->device), FIT_CQ, KEEP_SGE, 0, &asked);
	caps = asked.caps;
	fit_next(&c->fit, facts_of(c->device), &caps);
	return caps.max_send_wr;
}

/* [cq] check: a power of two may cost twice as much as one entry less. */
APART static void say_cost(struct creation *c)
{
	uint64_t bytes, half_bytes;
	uint32_t half = explain_cq_cost(geometry_for(c->device), facts_of(c->device),
					c->verdict.submitted_cqe, &bytes, &half_bytes);
	char line[220];
	struct text t = text_begin(line, sizeof(line));

	if (!half)
		return;
	text_put(&t, "ibv_create_cq on ");
	text_name(&t, c->device ? c->device->record->name : "?");
	text_put(&t, ": a CQ of ");
	text_number(&t, c->verdict.submitted_cqe);
	text_put(&t, " takes ");
	text_number(&t, bytes);
	text_put(&t, " bytes, one of ");
	text_number(&t, half);
	text_put(&t, " would take ");
	text_number(&t, half_bytes);
	log_line(c->guard, LOG_WARN, line);
}

/* Asks policy and holds the room. False: refused, counted and told. Under lock. */
APART static bool decide(struct creation *c)
{
	struct guard *g = c->guard;
	struct qp_caps requested = { .max_send_wr = c->requested_cqe };
	struct policy_values values;
	struct policy_usage usage;
	bool held;

	look_up(c, &values, &usage);
	c->error = inject_failure(g, &values, INJECT_CREATE_CQ);
	if (c->error) {
		note_injected(g, c->device, CALL_CREATE_CQ, c->error, c->caller, 0, &requested);
		return false;
	}
	c->error = ENOMEM;
	held = hold(c, &values, &usage, first_cqe(c, &values));
	if (held && values.num[CQ_CHECK] != CQ_CHECK_OFF)
		say_cost(c);
	note_verdict(g, c->device, CALL_CREATE_CQ, c->caller, 0, &requested, &c->verdict);
	return held;
}

static bool creation_begin(struct creation *c)
{
	struct guard *g = c->guard;
	bool held;

	device_learn(g, c->context);
	guard_lock(g);
	c->device = device_of(g, c->context);
	c->caller = caller_index(g, c->address);
	held = decide(c);
	guard_unlock(g);
	return held;
}

/* After a refusal, whose room is given back: the next size that [clamp] to_device has, if any. */
static bool creation_again(struct creation *c, int error)
{
	struct policy_values values;
	struct policy_usage usage;
	struct qp_caps caps;
	bool held = false;

	guard_lock(c->guard);
	reserve_cq(c, -1);
	if (c->fit.geometry && fit_may_help(error)) {
		look_up(c, &values, &usage);
		while (!held && fit_next(&c->fit, facts_of(c->device), &caps))
			held = hold(c, &values, &usage, caps.max_send_wr);
	}
	guard_unlock(c->guard);
	return held;
}

static void creation_failed(struct creation *c, int error)
{
	struct qp_caps requested = { .max_send_wr = c->requested_cqe };
	struct qp_request request = { .caps = requested };
	struct failed_creation f = {
		.call = CALL_CREATE_CQ, .req = &request, .bytes = &c->verdict.bytes, .error = error
	};
	struct failure_reason why;

	guard_lock(c->guard);
	explain_creation(c->guard, c->device, &f, &why);
	note_failure(c->guard, c->device, &why, c->caller, 0, &requested);
	guard_unlock(c->guard);
}

static struct hot_cq *make_hot(struct creation *c, struct cq_record *r, const struct ibv_cq *cq)
{
	struct hot_cq *h = hot_take(c->guard);

	if (!h)
		return NULL;
	h->record = r;
	h->hooks = hooks_of(c->context);
	h->poll = h->hooks->real.poll_cq;
	h->number_key = qp_number_key(h->hooks, 0);
	__atomic_store_n(&h->cq, cq, __ATOMIC_RELEASE);
	lookup_insert(&cqs, h);
	return h;
}

static void charge_cq(struct guard *g, struct device *d, const struct cq_record *r, int sign)
{
	charge(g, BUDGET_CQS, sign);
	charge(g, BUDGET_CQES, (int64_t)sign * r->effective_cqe);
	charge_bytes(g, d, sign * (int64_t)(r->ring_bytes + r->bookkeeping_bytes));
}

static void fill_record(struct creation *c, struct cq_record *r, uint32_t effective_cqe,
			const struct queue_bytes *bytes)
{
	struct group_key key;

	r->id = ++c->guard->next_id[KIND_CQ];
	r->entry = c->entry;
	r->basis = (uint8_t)bytes->basis;
	r->flags = (uint8_t)((c->extended && !c->tells_qp_num ? CQ_POLLS_HIDDEN : 0) |
			     (made_by_library(c->guard, c->caller) ? LIBRARY_OWNED : 0));
	r->device = c->device ? c->device->index : UINT16_MAX;
	r->caller = c->caller;
	r->requested_cqe = c->requested_cqe;
	r->submitted_cqe = c->verdict.submitted_cqe;
	r->effective_cqe = effective_cqe;
	r->created_at = now_ns();
	r->ring_bytes = bytes->rq;
	r->bookkeeping_bytes = bytes->bookkeeping;
	memset(&key, 0, sizeof(key));
	key.kind = KIND_CQ;
	key.qp_flags = r->flags & LIBRARY_OWNED;
	key.basis = r->basis;
	key.device = r->device;
	key.caller = r->caller;
	key.requested.max_send_wr = r->requested_cqe;
	key.effective.max_send_wr = effective_cqe;
	r->group = group_join(c->guard, &key, queue_bytes_total(bytes));
}

static void creation_done(struct creation *c, const struct ibv_cq *cq)
{
	struct device_facts own;
	struct guard *g = c->guard;
	struct state_totals *t = &g->header->totals;
	uint32_t effective = (uint32_t)cq->cqe;
	const struct qp_caps asked = { .max_send_wr = c->requested_cqe };
	struct queue_bytes bytes;
	struct cq_record *r;
	struct hot_cq *h;

	guard_lock(g);
	reserve_cq(c, -1);
	if (c->fitted)
		note_fitted(g, c->device, CALL_CREATE_CQ, &c->verdict);
	failures_settle(g, CALL_CREATE_CQ, c->device, &asked, &asked);
	geometry_cq_bytes(geometry_for(c->device), c->verdict.submitted_cqe, effective,
			  facts(c, &own), &bytes);
	count_created(&t->created_cqs, &t->live_cqs);
	atomic_fetch_add_explicit(&g->header->entry_points[c->entry], 1, memory_order_relaxed);
	r = record_begin(g, KIND_CQ);
	if (r) {
		fill_record(c, r, effective, &bytes);
		record_ready(r);
		h = make_hot(c, r, cq);
		if (c->extended && (!h || !poll_hook(h, (struct ibv_cq_ex *)(uintptr_t)cq)))
			r->flags |= CQ_POLLS_HIDDEN;
		charge_cq(g, c->device, r, 1);
	}
	guard_unlock(g);
}

/* The arguments of one form of creation. */
struct arguments {
	struct ibv_cq *(*create)(struct creation *, struct arguments *); /* the real call, once */
	void *cq_context;
	struct ibv_comp_channel *channel;
	int comp_vector, cqe;
	struct ibv_cq_init_attr_ex *attr;
	const struct cq_call *direct; /* or NULL: by the slot */
};

/* The real call, again with less as long as [clamp] to_device has something to try. `before` is the application's
 * errno. */
static struct ibv_cq *creation_run(struct creation *c, struct arguments *a, int before)
{
	int error, first_error = -1;
	struct ibv_cq *cq;

	do {
		errno = 0;
		guard_nest(1);
		cq = a->create(c, a);
		error = errno;
		guard_nest(-1);
		if (first_error < 0)
			first_error = error;
	} while (!cq && creation_again(c, error));
	if (cq)
		creation_done(c, cq);
	else
		creation_failed(c, first_error);
	errno = cq || !first_error ? before : first_error;
	return cq;
}

/* What the provider is to make: the application's own number where nothing lowers it. */
static bool is_lowered(const struct creation *c)
{
	return c->verdict.submitted_cqe != c->requested_cqe;
}

static struct real real_create SOUGHT_EARLY = { "ibv_create_cq", "IBVERBS_1.1",
						.wrapper = (void *)ibv_create_cq };

typedef struct ibv_cq *create_cq_function(struct ibv_context *, int, void *,
					  struct ibv_comp_channel *, int);

static struct ibv_cq *create_by_symbol(struct creation *c, struct arguments *a)
{
	int cqe = is_lowered(c) ? (int)c->verdict.submitted_cqe : a->cqe;

	return ((create_cq_function *)real_find(&real_create))(c->context, cqe, a->cq_context,
							       a->channel, a->comp_vector);
}

/* man ibv_create_cq. */
INTERPOSED struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
					struct ibv_comp_channel *channel, int comp_vector)
{
	create_cq_function *create = (create_cq_function *)real_find(&real_create);
	struct arguments a = { .create = create_by_symbol,
			       .cq_context = cq_context,
			       .channel = channel,
			       .comp_vector = comp_vector,
			       .cqe = cqe };
	struct creation c = { .guard = guard_enter(),
			      .address = CALLER(),
			      .entry = ENTRY_CREATE_CQ,
			      .context = context };
	int before = errno;

	if (!create) {
		errno = ENOSYS;
		return NULL;
	}
	if (!c.guard || guard_nested() || !context_known(c.guard, context))
		return create(context, cqe, cq_context, channel, comp_vector);
	c.requested_cqe = cqe > 0 ? (uint32_t)cqe : 0;
	if (!creation_begin(&c)) {
		errno = c.error;
		return NULL;
	}
	return creation_run(&c, &a, before);
}

static struct ibv_cq_ex *real_extended(const struct creation *c, const struct arguments *a)
{
	if (a->direct)
		return a->direct->create(a->direct);
	return hooks_of(c->context)->create_cq_ex(c->context, a->attr);
}

/*
 * The real call with IBV_WC_EX_WITH_QP_NUM added, since without it read_qp_num is a NULL pointer; a provider that
 * refuses is asked again as the application asked. The application's struct is as it was afterwards.
 */
static struct ibv_cq *create_extended(struct creation *c, struct arguments *a)
{
	struct ibv_cq_init_attr_ex *attr = a->attr;
	uint64_t wc_flags = attr->wc_flags;
	struct ibv_cq_ex *cq;

	if (is_lowered(c))
		attr->cqe = c->verdict.submitted_cqe;
	c->tells_qp_num = true;
	attr->wc_flags |= IBV_WC_EX_WITH_QP_NUM;
	cq = real_extended(c, a);
	attr->wc_flags = wc_flags;
	if (!cq && !(wc_flags & IBV_WC_EX_WITH_QP_NUM)) {
		c->tells_qp_num = false;
		errno = 0;
		cq = real_extended(c, a);
	}
	attr->cqe = c->requested_cqe;
	return cq ? ibv_cq_ex_to_cq(cq) : NULL;
}

/* Direct verbs: direct.h. */
struct ibv_cq_ex *cq_creation(struct guard *g, const struct cq_call *call)
{
	struct creation c = { .guard = g,
			      .address = call->address,
			      .context = call->context,
			      .entry = call->entry,
			      .cqe_bytes = call->cqe_bytes,
			      .extended = true,
			      .requested_cqe = call->attr->cqe };
	struct arguments a = { .create = create_extended, .attr = call->attr, .direct = call };
	int before = errno;

	if (!creation_begin(&c)) {
		errno = c.error;
		return NULL;
	}
	return (struct ibv_cq_ex *)creation_run(&c, &a, before);
}

/* Takes the place of verbs_context.create_cq_ex: man ibv_create_cq_ex. */
struct ibv_cq_ex *guarded_create_cq_ex(struct ibv_context *context,
				       struct ibv_cq_init_attr_ex *attr)
{
	const struct context_hooks *hooks = hooks_of(context);
	struct creation c = { .guard = guard_enter(),
			      .address = CALLER(),
			      .context = context,
			      .entry = ENTRY_CREATE_CQ_EX,
			      .extended = true };
	struct arguments a = { .create = create_extended, .attr = attr };
	struct ibv_cq *cq;
	int before = errno;

	if (!hooks || !hooks->create_cq_ex) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	if (!c.guard || guard_nested())
		return hooks->create_cq_ex(context, attr);
	c.requested_cqe = attr->cqe;
	if (!creation_begin(&c)) {
		errno = c.error;
		return NULL;
	}
	cq = creation_run(&c, &a, before);
	return (struct ibv_cq_ex *)cq;
}

/* While it was resized the old ring and the new one were both there: the peaks know of that. */
static void resized(struct guard *g, const struct ibv_cq *cq, uint32_t requested)
{
	struct device *d = device_of(g, cq->context);
	struct hot_cq *h = hot_cq_of(cq);
	struct cq_record *r = h ? h->record : NULL;
	struct queue_bytes bytes;
	int64_t more, fewer;

	if (!r)
		return;
	geometry_cq_bytes(geometry_for(d), requested, (uint32_t)cq->cqe, facts_of(d), &bytes);
	more = (int64_t)queue_bytes_total(&bytes);
	fewer = -(int64_t)(r->ring_bytes + r->bookkeeping_bytes);
	if (-fewer == more && (uint32_t)cq->cqe == r->effective_cqe)
		return;
	charge(g, BUDGET_CQES, (int64_t)cq->cqe - r->effective_cqe);
	charge_bytes(g, d, more);
	charge_bytes(g, d, fewer);
	group_resize(g, r->group, more);
	group_resize(g, r->group, fewer);
	atomic_store_explicit(&r->effective_cqe, (uint32_t)cq->cqe, memory_order_relaxed);
	atomic_store_explicit(&r->ring_bytes, bytes.rq, memory_order_relaxed);
	atomic_store_explicit(&r->bookkeeping_bytes, bytes.bookkeeping, memory_order_relaxed);
}

static struct real real_resize SOUGHT_EARLY = { "ibv_resize_cq", "IBVERBS_1.1",
						.wrapper = (void *)ibv_resize_cq };

/* man ibv_resize_cq. */
INTERPOSED int ibv_resize_cq(struct ibv_cq *cq, int cqe)
{
	int (*resize)(struct ibv_cq *, int) =
		(int (*)(struct ibv_cq *, int))real_find(&real_resize);
	struct guard *g = guard_enter();
	int rc;

	if (!resize)
		return ENOSYS;
	rc = resize(cq, cqe);
	if (!g || guard_nested())
		return rc;
	if (rc) {
		note_call_failure(g, cq->context, CALL_RESIZE_CQ, CALLER(), rc);
	} else {
		guard_lock(g);
		resized(g, cq, cqe > 0 ? (uint32_t)cqe : 0);
		guard_unlock(g);
	}
	return rc;
}

static void say_grown(struct guard *g, const struct ibv_cq *cq, uint32_t asked, int error)
{
	const struct hot_cq *h = hot_cq_of(cq);
	char line[220], number[24];
	struct text t = text_begin(line, sizeof(line));

	text_put(&t, "CQ ");
	text_number(&t, h ? h->record->id : 0);
	if (error) {
		text_put(&t, " of ");
		text_number(&t, (uint64_t)cq->cqe);
		text_put(&t, " entries may have to hold the completions of ");
		text_number(&t, asked);
		text_put(&t, " requests, and could not be grown (");
		text_put(&t, errno_name(error, number, sizeof(number)));
		text_put(&t, "): it is left as it is");
	} else {
		text_put(&t, " was grown to ");
		text_number(&t, (uint64_t)cq->cqe);
		text_put(&t, " entries for the ");
		text_number(&t, asked);
		text_put(&t, " requests bound to it");
	}
	log_line(g, error ? LOG_WARN : LOG_INFO, line);
}

void cq_grow(struct guard *g, struct ibv_cq *cq, uint32_t cqe)
{
	int (*resize)(struct ibv_cq *, int) =
		(int (*)(struct ibv_cq *, int))real_find(&real_resize);
	int saved = errno, rc = ENOSYS;

	errno = 0;
	if (resize) {
		guard_nest(1);
		rc = resize(cq, (int)cqe);
		guard_nest(-1);
	}
	if (rc == -1)
		rc = errno ? errno : EIO;
	guard_lock(g);
	if (!rc)
		resized(g, cq, cqe);
	say_grown(g, cq, cqe, rc < 0 ? -rc : rc);
	guard_unlock(g);
	errno = saved;
}

static struct real real_destroy SOUGHT_EARLY = { "ibv_destroy_cq", "IBVERBS_1.1",
						 .wrapper = (void *)ibv_destroy_cq };

/* man ibv_destroy_cq. Out of the table before the call, as in ibv_destroy_qp. */
INTERPOSED int ibv_destroy_cq(struct ibv_cq *cq)
{
	int (*destroy)(struct ibv_cq *) = (int (*)(struct ibv_cq *))real_find(&real_destroy);
	struct guard *g = guard_enter();
	struct ibv_context *context;
	struct hot_poll *p = NULL;
	struct hot_cq *h;
	int rc;

	if (!destroy)
		return ENOSYS;
	if (!g || guard_nested())
		return destroy(cq);
	context = cq->context;
	guard_lock(g);
	h = hot_cq_of(cq);
	if (h) {
		lookup_remove(&cqs, h);
		p = poll_hooked(cq);
	}
	guard_unlock(g);
	rc = destroy(cq);
	if (!h)
		return rc;
	guard_lock(g);
	if (rc) {
		lookup_insert(&cqs, h);
	} else {
		poll_forget(p);
		atomic_store_explicit(&h->record->ended_at, now_ns(), memory_order_relaxed);
		group_leave_cq(g, h->record);
		charge_cq(g, device_of(g, context), h->record, -1);
		count_destroyed(&g->header->totals.destroyed_cqs, &g->header->totals.live_cqs);
		record_end(g, KIND_CQ, h->record);
		hot_give(g, h, 1);
	}
	guard_unlock(g);
	if (rc)
		note_failure_of(g, context, CALL_DESTROY_CQ, CALLER(), 0, h->record->id, rc);
	return rc;
}
