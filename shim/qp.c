/* SPDX-License-Identifier: MIT */
/*
 * Queue pairs: creation by symbol and through the slot of the _ex form, modification, destruction. Each
 * wrapper reads the same way: find the record, ask policy, call the real one, write the record.
 */
#include <errno.h>
#include <string.h>

#include "ask.h"
#include "builder.h"
#include "counts.h"
#include "direct.h"
#include "file.h"
#include "guard.h"
#include "inject.h"
#include "log.h"
#include "real.h"
#include "../policy/text.h"

/* What one creation carries from its beginning to its end. */
struct creation {
	struct guard *guard;
	struct ibv_context *context;
	struct device *device;
	void *address; /* of the caller */
	uint16_t caller;
	uint8_t entry;	   /* enum entry_point */
	uint8_t call;	   /* enum guarded_call */
	bool sends_hidden; /* by functions that we do not see */
	bool fitted;	   /* [clamp] to_device lowered what is submitted */
	struct qp_request request;
	struct policy_verdict verdict;
	struct fit fit; /* geometry NULL: the request is not to be fitted */
	struct ibv_cq *send_cq, *recv_cq;
	struct ibv_srq *srq;
	int error;	     /* what a refusal of ours fails with */
	uint32_t grow_to[2]; /* [cq] check = grow: the CQs' sizes; 0: as it is */
	/* the real call, once; errno is its own */
	struct ibv_qp *(*create)(struct creation *);
	struct ibv_pd *pd;
	union {
		struct ibv_qp_init_attr *attr;
		struct ibv_qp_init_attr_ex *attr_ex;
		struct ibv_qp_open_attr *open_attr;
		const struct qp_call *direct;
	};
};

struct hot_qp *hot_qp_of(const struct ibv_qp *qp)
{
	return qp ? lookup_find(&qps_by_address, offsetof(struct hot_qp, qp), (uintptr_t)qp) : NULL;
}

static struct qp_caps caps_of(const struct ibv_qp_cap *c)
{
	return (struct qp_caps){
		.max_send_wr = c->max_send_wr,
		.max_recv_wr = c->max_recv_wr,
		.max_send_sge = c->max_send_sge,
		.max_recv_sge = c->max_recv_sge,
		.max_inline_data = c->max_inline_data,
	};
}

static void set_caps(struct ibv_qp_cap *to, const struct qp_caps *c)
{
	to->max_send_wr = c->max_send_wr;
	to->max_recv_wr = c->max_recv_wr;
	to->max_send_sge = c->max_send_sge;
	to->max_recv_sge = c->max_recv_sge;
	to->max_inline_data = c->max_inline_data;
}

/* Room for a QP of these caps and bytes until its creation is decided; sign -1 gives it back. */
static void reserve_qp(struct creation *c, int sign)
{
	struct guard *g = c->guard;
	const struct qp_caps *caps = &c->verdict.submitted;

	reserve(g, BUDGET_QPS, sign);
	reserve(g, BUDGET_SEND_WRS, (int64_t)sign * caps->max_send_wr);
	if (!c->request.has_srq)
		reserve(g, BUDGET_RECV_WRS, (int64_t)sign * caps->max_recv_wr);
	reserve_bytes(g, c->device, sign * (int64_t)queue_bytes_total(&c->verdict.bytes));
}

/* The inline data that the program was given before with a QP of this type on this device: what it may
 * count on. mlx5 leaves what was asked where there is no send queue, and writes nonsense where there is no SGE. */
static uint32_t *promise_of(struct device *d, uint32_t type)
{
	return type < sizeof(d->inline_promised) / sizeof(d->inline_promised[0])
		       ? &d->inline_promised[type]
		       : &d->inline_promised[0];
}

static uint32_t inline_promised(struct device *d, uint32_t type)
{
	return d ? *promise_of(d, type) : 0;
}

static void promise_inline(struct device *d, uint32_t type, const struct qp_caps *given)
{
	uint32_t bytes = given->max_inline_data;

	if (d && given->max_send_wr && bytes > *promise_of(d, type) && bytes <= UINT16_MAX)
		*promise_of(d, type) = bytes;
}

static void look_up(struct creation *c, struct policy_values *values, struct policy_usage *usage)
{
	struct policy_subject subject;

	subject_of(c->guard, c->device, c->request.type, c->caller, &subject);
	policy_resolve(c->guard->policy, &subject, values);
	usage_of(c->guard, c->device, usage);
}

/* Budgets alone, for caps that [clamp] has settled, and the room for them. False: refused. */
static bool hold(struct creation *c, const struct policy_values *values,
		 const struct policy_usage *usage, const struct qp_caps *caps)
{
	struct qp_request req = c->request;

	req.caps = *caps;
	policy_judge_qp(values, usage, geometry_for(c->device), facts_of(c->device), &req,
			&c->verdict);
	if (c->verdict.refused)
		return false;
	reserve_qp(c, 1);
	c->fitted = c->fit.geometry &&
		    memcmp(&c->verdict.submitted, &c->request.caps, sizeof(c->request.caps)) != 0;
	return true;
}

/* The first of what [clamp] to_device submits; the bounds of [clamp] come before it. */
static struct qp_caps first_caps(struct creation *c, const struct policy_values *values)
{
	struct qp_request bounded = c->request;
	struct qp_caps caps;

	if (!values->num[CLAMP_TO_DEVICE])
		return c->request.caps;
	policy_bound(values, FIT_QP, bounded.has_srq, &bounded.caps);
	fit_begin(&c->fit, geometry_for(c->device), FIT_QP, (enum fit_keep)values->num[CLAMP_KEEP],
		  inline_promised(c->device, bounded.type), &bounded);
	caps = bounded.caps;
	fit_next(&c->fit, facts_of(c->device), &caps);
	return caps;
}

APART static void say_cq_is_small(struct creation *c, const struct cq_record *r, uint64_t bound)
{
	char line[220];
	struct text t = text_begin(line, sizeof(line));

	text_put(&t, "ibv_create_qp on ");
	text_name(&t, c->device ? c->device->record->name : "?");
	text_put(&t, ": CQ ");
	text_number(&t, r->id);
	text_put(&t, " of ");
	text_number(&t, r->effective_cqe);
	text_put(&t, " entries may have to hold the completions of ");
	text_number(&t, bound);
	text_put(&t, " requests");
	log_line(c->guard, LOG_WARN, line);
}

/* [cq] check: all that is bound to the QP's CQs, with this QP, against their sizes. */
static void check_cqs(struct creation *c, enum cq_check check)
{
	const struct hot_cq *cqs_of[] = { hot_cq_of(c->send_cq), hot_cq_of(c->recv_cq) };
	const struct hot_srq *srq = c->srq ? hot_srq_of(c->srq) : NULL;
	const struct qp_caps *caps = &c->verdict.submitted;
	uint64_t recvs = c->request.has_srq ? 0 : caps->max_recv_wr, bound;

	for (unsigned int i = 0; i < 2; i++) {
		const struct cq_record *r = cqs_of[i] ? cqs_of[i]->record : NULL;

		if (!r || (i && c->send_cq == c->recv_cq))
			continue;
		bound = r->asked_wrs;
		if (!i)
			bound += caps->max_send_wr;
		if (i || c->send_cq == c->recv_cq)
			bound += srq ? srq_would_bind(srq, r) : recvs;
		if (bound <= r->effective_cqe)
			continue;
		if (check == CQ_CHECK_GROW && bound <= INT32_MAX)
			c->grow_to[i] = (uint32_t)bound;
		else
			say_cq_is_small(c, r, bound);
	}
}

/* Asks policy and holds the room. False: refused, counted and told. Under lock. */
APART static bool decide(struct creation *c)
{
	struct guard *g = c->guard;
	struct policy_values values;
	struct policy_usage usage;
	struct qp_caps caps;
	bool held;

	look_up(c, &values, &usage);
	c->error = inject_failure(g, &values, INJECT_CREATE_QP);
	if (c->error) {
		note_injected(g, c->device, c->call, c->error, c->caller, c->request.type,
			      &c->request.caps);
		return false;
	}
	c->error = ENOMEM;
	caps = first_caps(c, &values);
	held = hold(c, &values, &usage, &caps);
	note_verdict(g, c->device, c->call, c->caller, c->request.type, &c->request.caps,
		     &c->verdict);
	if (held && values.num[CQ_CHECK] != CQ_CHECK_OFF)
		check_cqs(c, (enum cq_check)values.num[CQ_CHECK]);
	return held;
}

static bool creation_begin(struct creation *c)
{
	struct guard *g = c->guard;
	bool held;

	asked_by_librdmacm(&c->address, &c->entry);
	device_learn(g, c->context);
	guard_lock(g);
	c->device = device_of(g, c->context);
	c->caller = caller_index(g, c->address);
	held = decide(c);
	guard_unlock(g);
	for (unsigned int i = 0; i < 2; i++)
		if (c->grow_to[i])
			cq_grow(g, i ? c->recv_cq : c->send_cq, c->grow_to[i]);
	return held;
}

/* What was submitted, as a request. */
static struct qp_request submitted(const struct creation *c)
{
	struct qp_request r = c->request;

	r.caps = c->verdict.submitted;
	return r;
}

/* An attempt failed: its room is given back, the device's limits are known better. Under lock. */
static void attempt_failed(struct creation *c, int error)
{
	struct qp_request r = submitted(c);

	reserve_qp(c, -1);
	if (c->device)
		geometry_learn_qp(c->device->geometry, &r, error ? error : EIO, &c->device->facts);
}

/* After a refusal: the next request that [clamp] to_device has, if there is one. */
static bool creation_again(struct creation *c, int error)
{
	struct policy_values values;
	struct policy_usage usage;
	struct qp_caps caps;
	bool held = false;

	guard_lock(c->guard);
	attempt_failed(c, error);
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
	struct failed_creation f = { .call = CALL_CREATE_QP,
				     .req = &c->request,
				     .bytes = &c->verdict.bytes,
				     .send_cq = c->send_cq,
				     .recv_cq = c->recv_cq,
				     .error = error };
	struct failure_reason why;

	guard_lock(c->guard);
	explain_creation(c->guard, c->device, &f, &why);
	why.call = c->call;
	note_failure(c->guard, c->device, &why, c->caller, c->request.type, &c->request.caps);
	guard_unlock(c->guard);
}

static uint32_t saturate32(uint64_t n)
{
	return n > UINT32_MAX ? UINT32_MAX : (uint32_t)n;
}

static void fill_record(struct creation *c, struct qp_record *r, const struct ibv_qp *qp,
			const struct qp_caps *effective, const struct queue_bytes *bytes)
{
	const struct hot_cq *send_cq = hot_cq_of(qp->send_cq), *recv_cq = hot_cq_of(qp->recv_cq);
	const struct hot_srq *srq = qp->srq ? hot_srq_of(qp->srq) : NULL;
	bool sends_hidden, recvs_hidden;

	r->id = ++c->guard->next_id[KIND_QP];
	r->type = (uint8_t)c->request.type;
	r->qp_state = IBV_QPS_RESET;
	r->qp_num = qp->qp_num;
	r->device = c->device ? c->device->index : UINT16_MAX;
	r->caller = c->caller;
	r->entry = c->entry;
	r->basis = (uint8_t)bytes->basis;
	r->send_cq = send_cq ? send_cq->record->id : STATE_NONE;
	r->recv_cq = recv_cq ? recv_cq->record->id : STATE_NONE;
	r->srq = srq ? srq->record->id : STATE_NONE;
	r->requested = c->request.caps;
	r->submitted = c->verdict.submitted;
	r->effective = *effective;
	r->clamped = c->verdict.clamped || c->fitted;
	r->created_at = now_ns();
	r->sq_bytes = saturate32(bytes->sq);
	r->rq_bytes = saturate32(bytes->rq);
	r->bookkeeping_bytes = saturate32(bytes->bookkeeping);
	/* a CQ that was made out of our sight is polled out of it too */
	sends_hidden = c->sends_hidden ||
		       (qp->send_cq && (!send_cq || (send_cq->record->flags & CQ_POLLS_HIDDEN)));
	recvs_hidden = qp->recv_cq && (!recv_cq || (recv_cq->record->flags & CQ_POLLS_HIDDEN));
	r->flags = (uint8_t)((c->request.has_srq ? QP_HAS_SRQ : 0) |
			     (c->request.sq_sig_all ? QP_SIG_ALL : 0) |
			     (made_by_library(c->guard, c->caller) ? LIBRARY_OWNED : 0) |
			     (sends_hidden ? QP_SENDS_HIDDEN : 0) |
			     (recvs_hidden ? QP_RECVS_HIDDEN : 0));
}

/* The ring that remembers which completion retires how many: one slot for each request that can be
 * outstanding, and one more, since rxe takes as many as a power of two less one. */
static unsigned int ring_order(uint32_t max_send_wr)
{
	unsigned int order = 2;

	while (order < 31 && (UINT64_C(1) << order) < (uint64_t)max_send_wr + 1)
		order++;
	return order;
}

/* A share of another QP has no number of its own to be found by. */
static bool put_in(struct hot_qp *h)
{
	if (!lookup_insert(&qps_by_address, h))
		return false;
	if (h->number)
		lookup_insert(&qps_by_number, h);
	return true;
}

static void take_out(struct hot_qp *h)
{
	lookup_remove(&qps_by_address, h);
	if (h->number)
		lookup_remove(&qps_by_number, h);
}

static struct hot_qp *make_hot(struct creation *c, struct qp_record *r, const struct ibv_qp *qp)
{
	struct guard *g = c->guard;
	struct hot_qp *h = hot_take(g);

	if (!h)
		return NULL;
	h->record = r;
	h->hooks = hooks_of(c->context);
	h->flags = r->flags;
	h->mode = r->flags & QP_SIG_ALL ? MODE_SIG_ALL : 0;
	if (!(r->flags & (QP_SIG_ALL | QP_SENDS_HIDDEN)) && r->effective.max_send_wr) {
		h->order = (uint8_t)ring_order(r->effective.max_send_wr);
		h->ring = ring_take(&g->rings, h->order);
		h->ring_mask = (UINT32_C(1) << h->order) - 1;
	}
	if (r->flags & QP_HAS_SRQ)
		h->srq = hot_srq_of(qp->srq);
	if (c->entry != ENTRY_OPEN_QP)
		__atomic_store_n(&h->number, qp_number_key(h->hooks, qp->qp_num), __ATOMIC_RELEASE);
	__atomic_store_n(&h->qp, qp, __ATOMIC_RELEASE);
	return put_in(h) ? h
			 : NULL; /* no memory at all: the record stays, its counts do not move */
}

static uint32_t least32(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static void add_asked(struct cq_record *r, uint32_t requests, int sign)
{
	atomic_fetch_add_explicit(&r->asked_wrs, (uint64_t)((int64_t)sign * requests),
				  memory_order_relaxed);
}

/* What the QP's CQs may have to hold: sign -1 when it is gone. */
static void bind_to_cqs(struct guard *g, const struct ibv_qp *qp, const struct qp_record *r,
			int sign)
{
	struct hot_cq *send_cq = hot_cq_of(qp->send_cq), *recv_cq = hot_cq_of(qp->recv_cq);
	struct hot_srq *srq = qp->srq ? hot_srq_of(qp->srq) : NULL;
	struct cq_record *cq;
	uint64_t bound;

	if (send_cq)
		add_asked(send_cq->record,
			  least32(r->requested.max_send_wr, r->effective.max_send_wr), sign);
	if (recv_cq && srq)
		add_asked(recv_cq->record, srq_bind(g, srq, recv_cq->record, sign), sign);
	else if (recv_cq && !(r->flags & QP_HAS_SRQ))
		add_asked(recv_cq->record,
			  least32(r->requested.max_recv_wr, r->effective.max_recv_wr), sign);
	if (send_cq)
		atomic_fetch_add_explicit(&send_cq->record->bound_send_wrs,
					  (uint64_t)((int64_t)sign * r->effective.max_send_wr),
					  memory_order_relaxed);
	if (recv_cq && !(r->flags & QP_HAS_SRQ))
		atomic_fetch_add_explicit(&recv_cq->record->bound_recv_wrs,
					  (uint64_t)((int64_t)sign * r->effective.max_recv_wr),
					  memory_order_relaxed);
	for (unsigned int i = 0; sign > 0 && i < 2; i++) {
		if (!(i ? recv_cq : send_cq))
			continue;
		cq = (i ? recv_cq : send_cq)->record;
		bound = cq->bound_send_wrs + cq->bound_recv_wrs;
		if (bound > cq->peak_bound_wrs)
			atomic_store_explicit(&cq->peak_bound_wrs, bound, memory_order_relaxed);
	}
}

/* What a QP holds of the budgets; sign -1 when it is gone. */
static void charge_qp(struct guard *g, struct device *d, const struct qp_record *r, int sign)
{
	charge(g, BUDGET_QPS, sign);
	charge(g, BUDGET_SEND_WRS, (int64_t)sign * r->effective.max_send_wr);
	if (!(r->flags & QP_HAS_SRQ))
		charge(g, BUDGET_RECV_WRS, (int64_t)sign * r->effective.max_recv_wr);
	charge_bytes(g, d, sign * ((int64_t)r->sq_bytes + r->rq_bytes + r->bookkeeping_bytes));
}

/* The bytes of what was made, and what it teaches. Under lock. */
static void measure(struct creation *c, const struct qp_caps *effective,
		    const struct queue_rings *asked, struct queue_bytes *out)
{
	struct qp_request r = submitted(c);

	geometry_qp_bytes(geometry_for(c->device), &r, effective, facts_of(c->device), out);
	if (!c->device)
		return;
	geometry_learn_qp(c->device->geometry, &r, 0, &c->device->facts);
	if (asked)
		ask_compare(c->guard, c->device, &r, asked, out);
}

static void creation_done(struct creation *c, const struct ibv_qp *qp,
			  const struct qp_caps *effective)
{
	struct guard *g = c->guard;
	struct state_totals *t = &g->header->totals;
	struct queue_rings rings;
	struct queue_bytes bytes;
	struct group_key key;
	struct qp_record *r;
	struct hot_qp *h;
	bool asked = ask_rings(hooks_of(c->context), qp, &c->request, &rings);

	guard_lock(g);
	reserve_qp(c, -1);
	if (c->fitted)
		note_fitted(g, c->device, CALL_CREATE_QP, &c->verdict);
	failures_settle(g, CALL_CREATE_QP, c->device, &c->request.caps, effective);
	promise_inline(c->device, c->request.type, effective);
	measure(c, effective, asked ? &rings : NULL, &bytes);
	count_created(&t->created_qps, &t->live_qps);
	if (t->live_qps > t->peak_qps)
		t->peak_qps = t->live_qps;
	atomic_fetch_add_explicit(&g->header->entry_points[c->entry], 1, memory_order_relaxed);
	r = record_begin(g, KIND_QP);
	if (r) {
		fill_record(c, r, qp, effective, &bytes);
		memset(&key, 0, sizeof(key));
		key = (struct group_key){ .kind = KIND_QP,
					  .type = r->type,
					  .basis = r->basis,
					  .qp_flags = r->flags &
						      (QP_HAS_SRQ | QP_SIG_ALL | LIBRARY_OWNED),
					  .device = r->device,
					  .caller = r->caller,
					  .requested = r->requested,
					  .effective = r->effective };
		r->group = group_join(g, &key, queue_bytes_total(&bytes));
		record_ready(r);
		h = make_hot(c, r, qp);
		if (c->request.has_send_ops &&
		    (!h || !wr_hook(h, (struct ibv_qp_ex *)(uintptr_t)qp)))
			r->flags |= QP_SENDS_HIDDEN;
		charge_qp(g, c->device, r, 1);
		bind_to_cqs(g, qp, r, 1);
	}
	guard_unlock(g);
}

/* --- creation --- */

/*
 * The real call, again with less as long as [clamp] to_device has something to try. What goes to the provider
 * stands in the application's own struct, `cap` in it, where what comes back is expected too; `before` is the
 * application's errno. An attempt that failed has left nothing behind: the provider saw to that.
 */
static struct ibv_qp *creation_run(struct creation *c, struct ibv_qp_cap *cap, int before)
{
	int error, first_error = -1;
	struct qp_caps effective;
	struct ibv_qp *qp;

	do {
		if (c->verdict.clamped || c->fit.geometry)
			set_caps(cap, &c->verdict.submitted);
		errno = 0;
		guard_nest(1);
		qp = c->create(c);
		error = errno;
		guard_nest(-1);
		if (first_error < 0)
			first_error = error;
	} while (!qp && creation_again(c, error));
	if (qp) {
		effective = caps_of(cap);
		creation_done(c, qp, &effective);
	} else {
		if (c->verdict.clamped || c->fit.geometry)
			set_caps(cap, &c->request.caps);
		creation_failed(c, first_error);
	}
	errno = qp || !first_error ? before : first_error;
	return qp;
}

static struct real real_create SOUGHT_EARLY = { "ibv_create_qp", "IBVERBS_1.1",
						.wrapper = (void *)ibv_create_qp };

typedef struct ibv_qp *create_qp_function(struct ibv_pd *, struct ibv_qp_init_attr *);

static struct ibv_qp *create_by_symbol(struct creation *c)
{
	return ((create_qp_function *)real_find(&real_create))(c->pd, c->attr);
}

/* man ibv_create_qp. */
INTERPOSED struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	create_qp_function *create = (create_qp_function *)real_find(&real_create);
	struct creation c = { .guard = guard_enter(),
			      .address = CALLER(),
			      .entry = ENTRY_CREATE_QP,
			      .call = CALL_CREATE_QP,
			      .create = create_by_symbol,
			      .pd = pd,
			      .attr = attr,
			      .send_cq = attr->send_cq,
			      .recv_cq = attr->recv_cq,
			      .srq = attr->srq };
	int before = errno;

	if (!create) {
		errno = ENOSYS;
		return NULL;
	}
	if (!c.guard || guard_nested() || !context_known(c.guard, pd->context))
		return create(pd, attr);
	c.context = pd->context;
	c.request = (struct qp_request){ .caps = caps_of(&attr->cap),
					 .type = attr->qp_type,
					 .has_srq = attr->srq != NULL,
					 .sq_sig_all = attr->sq_sig_all != 0 };
	if (!creation_begin(&c)) {
		errno = c.error;
		return NULL;
	}
	return creation_run(&c, &attr->cap, before);
}

static struct qp_request request_of_ex(const struct ibv_qp_init_attr_ex *a)
{
	struct qp_request r = { .caps = caps_of(&a->cap),
				.type = a->qp_type,
				.has_srq = a->srq != NULL,
				.sq_sig_all = a->sq_sig_all != 0 };

	if (a->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS)
		r.create_flags = a->create_flags;
	if (a->comp_mask & IBV_QP_INIT_ATTR_MAX_TSO_HEADER)
		r.max_tso_header = a->max_tso_header;
	r.is_rss = (a->comp_mask & (IBV_QP_INIT_ATTR_RX_HASH | IBV_QP_INIT_ATTR_IND_TABLE)) != 0;
	if (a->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) {
		r.has_send_ops = true;
		r.send_ops = a->send_ops_flags;
	}
	return r;
}

static struct ibv_qp *create_by_slot(struct creation *c)
{
	return hooks_of(c->context)->create_qp_ex(c->context, c->attr_ex);
}

/* Takes the place of verbs_context.create_qp_ex: man ibv_create_qp_ex. */
struct ibv_qp *guarded_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
	const struct context_hooks *hooks = hooks_of(context);
	struct creation c = { .guard = guard_enter(),
			      .address = CALLER(),
			      .entry = ENTRY_CREATE_QP_EX,
			      .call = CALL_CREATE_QP,
			      .context = context,
			      .create = create_by_slot,
			      .attr_ex = attr,
			      .send_cq = attr->send_cq,
			      .recv_cq = attr->recv_cq,
			      .srq = attr->srq };
	int before = errno;

	if (!hooks || !hooks->create_qp_ex) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	if (!c.guard || guard_nested())
		return hooks->create_qp_ex(context, attr);
	c.request = request_of_ex(attr);
	if (!creation_begin(&c)) {
		errno = c.error;
		return NULL;
	}
	return creation_run(&c, &attr->cap, before);
}

static struct ibv_qp *create_direct(struct creation *c)
{
	return c->direct->create(c->direct);
}

/* Direct verbs: direct.h. */
struct ibv_qp *qp_creation(struct guard *g, const struct qp_call *call)
{
	struct ibv_qp_cap *cap = call->attr_ex ? &call->attr_ex->cap : &call->attr->cap;
	struct creation c = { .guard = g,
			      .address = call->address,
			      .entry = call->entry,
			      .call = CALL_CREATE_QP,
			      .sends_hidden = call->sends_hidden,
			      .context = call->context,
			      .create = create_direct,
			      .direct = call };
	int before = errno;

	c.send_cq = call->attr_ex ? call->attr_ex->send_cq : call->attr->send_cq;
	c.recv_cq = call->attr_ex ? call->attr_ex->recv_cq : call->attr->recv_cq;
	c.srq = call->attr_ex ? call->attr_ex->srq : call->attr->srq;
	if (call->attr_ex)
		c.request = request_of_ex(call->attr_ex);
	else
		c.request = (struct qp_request){ .caps = caps_of(cap),
						 .type = call->attr->qp_type,
						 .has_srq = call->attr->srq != NULL,
						 .sq_sig_all = call->attr->sq_sig_all != 0 };
	c.request.is_rss |= call->no_queues;
	if (!creation_begin(&c)) {
		errno = c.error;
		return NULL;
	}
	return creation_run(&c, cap, before);
}

static struct ibv_qp *open_by_slot(struct creation *c)
{
	return hooks_of(c->context)->slots.open_qp(c->context, c->open_attr);
}

/*
 * Takes the place of verbs_context.open_qp: man ibv_open_qp. A share of an XRC QP that takes receives for several
 * processes: a QP without queues. It is left out of the table by number, where the QP itself may stand.
 */
struct ibv_qp *guarded_open_qp(struct ibv_context *context, struct ibv_qp_open_attr *attr)
{
	const struct context_hooks *hooks = hooks_of(context);
	struct creation c = { .guard = guard_enter(),
			      .address = CALLER(),
			      .entry = ENTRY_OPEN_QP,
			      .call = CALL_OPEN_QP,
			      .context = context,
			      .create = open_by_slot,
			      .open_attr = attr };
	struct ibv_qp_cap no_queues = { 0 };
	int before = errno;

	if (!hooks || !hooks->slots.open_qp) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	if (!c.guard || guard_nested())
		return hooks->slots.open_qp(context, attr);
	c.request.type = attr->comp_mask & IBV_QP_OPEN_ATTR_TYPE ? attr->qp_type : IBV_QPT_XRC_RECV;
	if (!creation_begin(&c)) {
		errno = c.error;
		return NULL;
	}
	return creation_run(&c, &no_queues, before);
}

/* --- the rest of its life --- */

/* RESET and destroy drop requests without a completion. The send side's positions move to the end. */
static void discard_outstanding(struct qp_record *r)
{
	uint64_t sends = record_send_outstanding(r), recvs = record_recv_outstanding(r);
	uint64_t posted = r->post_send_posted + r->other_send_posted;
	uint64_t completions = r->poll_send_completions + r->other_send_completions;
	uint64_t signaled = posted - (uint32_t)(r->post_unsignaled + r->other_unsignaled);

	if (r->mixed) {
		atomic_store_explicit(&r->other_send_retired, posted, memory_order_relaxed);
		atomic_fetch_add_explicit(&r->other_send_completions,
					  (uint32_t)(signaled - completions), memory_order_relaxed);
	} else {
		atomic_fetch_add_explicit(&r->other_send_completions, sends, memory_order_relaxed);
	}
	atomic_fetch_add_explicit(&r->send_discarded, sends, memory_order_relaxed);
	atomic_fetch_add_explicit(&r->other_recv_retired, recvs, memory_order_relaxed);
	atomic_fetch_add_explicit(&r->recv_discarded, recvs, memory_order_relaxed);
	atomic_store_explicit(&r->flushed_unattributed, 0, memory_order_relaxed);
}

static void lower_to(_Atomic uint64_t *word, uint64_t most)
{
	if (atomic_load_explicit(word, memory_order_relaxed) > most)
		atomic_store_explicit(word, most, memory_order_relaxed);
}

/* Where RESET leaves completions in the CQ (rxe; mlx5 takes them out), they may be polled after they were
 * counted as discarded: more are then retired than posted. Put right before the queue is posted to again. */
static void forget_stale_sends(struct qp_record *r)
{
	uint64_t posted = r->post_send_posted + r->other_send_posted;
	uint64_t completions = r->poll_send_completions + r->other_send_completions;
	uint64_t signaled = posted - (uint32_t)(r->post_unsignaled + r->other_unsignaled);
	int32_t stale = (int32_t)(uint32_t)(completions - signaled);

	if (stale > 0)
		atomic_fetch_sub_explicit(&r->other_send_completions, (uint64_t)stale,
					  memory_order_relaxed);
	lower_to(&r->poll_send_retired, posted);
	lower_to(&r->other_send_retired, posted);
}

static void forget_stale_recvs(struct qp_record *r)
{
	uint64_t retired = r->poll_recv_retired + r->other_recv_retired;
	int64_t stale = (int64_t)(retired - r->post_recv_posted - r->other_recv_posted);

	if (stale > 0)
		atomic_fetch_sub_explicit(&r->other_recv_retired, (uint64_t)stale,
					  memory_order_relaxed);
}

/* Receives may be posted from INIT on, sends from RTS. */
static void state_changed(struct qp_record *r, enum ibv_qp_state to)
{
	uint8_t from = atomic_load_explicit(&r->qp_state, memory_order_relaxed);
	bool working = from == IBV_QPS_RTS || from == IBV_QPS_SQD || from == IBV_QPS_SQE;

	if (to == IBV_QPS_RESET)
		discard_outstanding(r);
	else if (to == IBV_QPS_INIT)
		forget_stale_recvs(r);
	else if (to == IBV_QPS_RTS && !working)
		forget_stale_sends(r);
	atomic_store_explicit(&r->qp_state, (uint8_t)to, memory_order_relaxed);
}

static struct real real_modify SOUGHT_EARLY = { "ibv_modify_qp", "IBVERBS_1.1",
						.wrapper = (void *)ibv_modify_qp };

/* man ibv_modify_qp. */
INTERPOSED int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int attr_mask)
{
	int (*modify)(struct ibv_qp *, struct ibv_qp_attr *, int) =
		(int (*)(struct ibv_qp *, struct ibv_qp_attr *, int))real_find(&real_modify);
	struct guard *g = guard_enter();
	struct hot_qp *h;
	int rc;

	if (!modify)
		return ENOSYS;
	rc = modify(qp, attr, attr_mask);
	if (!g || guard_nested())
		return rc;
	if (rc) {
		note_call_failure(g, qp->context, CALL_MODIFY_QP, CALLER(), rc);
	} else if (attr_mask & IBV_QP_STATE) {
		guard_lock(g);
		h = hot_qp_of(qp);
		if (!h) {
			inherited_used(hooks_of(qp->context), INHERITED_MODIFIED, 1);
		} else {
			state_changed(h->record, attr->qp_state);
			if (attr->qp_state == IBV_QPS_RESET)
				retired_apart(h);
			wr_hook_again(qp);
		}
		guard_unlock(g);
	}
	return rc;
}

static void destroyed(struct guard *g, const struct ibv_qp *shadow, struct hot_qp *h)
{
	struct state_totals *t = &g->header->totals;
	struct qp_record *r = h->record;
	struct device *d = device_of(g, shadow->context);

	bind_to_cqs(g, shadow, r, -1);
	discard_outstanding(r);
	atomic_store_explicit(&r->ended_at, now_ns(), memory_order_relaxed);
	group_leave_qp(g, r);
	charge_qp(g, d, r, -1);
	count_destroyed(&t->destroyed_qps, &t->live_qps);
	record_end(g, KIND_QP, r);
	if (h->ring)
		ring_give(&g->rings, h->order, h->ring);
	hot_give(g, h, 2);
}

static struct real real_destroy SOUGHT_EARLY = { "ibv_destroy_qp", "IBVERBS_1.1",
						 .wrapper = (void *)ibv_destroy_qp };

/* man ibv_destroy_qp. Out of the tables before the call: its address and number may serve another QP as
 * soon as the provider lets go of them. */
INTERPOSED int ibv_destroy_qp(struct ibv_qp *qp)
{
	int (*destroy)(struct ibv_qp *) = (int (*)(struct ibv_qp *))real_find(&real_destroy);
	struct guard *g = guard_enter();
	struct ibv_qp shadow;
	struct hot_wr *w = NULL;
	struct hot_qp *h;
	int rc;

	if (!destroy)
		return ENOSYS;
	if (!g || guard_nested())
		return destroy(qp);
	shadow = *qp;
	guard_lock(g);
	h = hot_qp_of(qp);
	if (h) {
		take_out(h);
		w = wr_hooked(qp);
	}
	guard_unlock(g);
	rc = destroy(qp);
	if (!h) {
		if (!rc)
			inherited_used(hooks_of(shadow.context), INHERITED_DESTROYED, 1);
		return rc;
	}
	guard_lock(g);
	if (rc) {
		put_in(h);
	} else {
		wr_forget(w);
		destroyed(g, &shadow, h);
	}
	guard_unlock(g);
	if (rc)
		note_call_failure(g, qp->context, CALL_DESTROY_QP, CALLER(), rc);
	return rc;
}
