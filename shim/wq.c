/* SPDX-License-Identifier: MIT */
/*
 * Work queues, the receive queues that a QP of receive side scaling spreads its packets over, and the tables
 * that say how: creation, modification and destruction through the slots of the context, since libibverbs has no
 * symbols for them, and posting by the pointer in each WQ. The steps are those of srq.c.
 *
 * A completion of a WQ does not tell which WQ it is of: what is posted and refused is counted, what is outstanding
 * is not known.
 */
#include <errno.h>
#include <string.h>

#include "builder.h"
#include "file.h"
#include "guard.h"
#include "outstanding.h"

struct creation {
	struct guard *guard;
	struct ibv_context *context;
	struct device *device;
	void *address;
	uint16_t caller;
	uint8_t entry;
	bool library;
	uint32_t requested_wr, requested_sge;
	struct policy_verdict verdict;
};

/* One WQ that lives. */
struct hot_wq {
	const struct ibv_wq *wq; /* key */
	struct wq_record *record;
	struct hot_cq *cq;
	uint64_t zero[5];
};
static_assert(sizeof(struct hot_wq) == 64, "one cache line");

struct lookup wqs = LOOKUP(struct hot_wq, wq);

static struct hot_wq *hot_wq_of(const struct ibv_wq *wq)
{
	return lookup_find(&wqs, offsetof(struct hot_wq, wq), (uintptr_t)wq);
}

static struct qp_caps caps_of(uint32_t wr, uint32_t sge)
{
	return (struct qp_caps){ .max_recv_wr = wr, .max_recv_sge = sge };
}

/* --- posting --- */

static OUT_OF_LINE int post_refused(struct wq_record *r, uint64_t requests, int rc,
				    struct ibv_recv_wr *bad, struct ibv_recv_wr **bad_wr)
{
	uint64_t refused = 0;
	enum refusal why = means_full(rc) ? REFUSED_QUEUE_FULL : REFUSED_OTHER;

	if (bad != NOT_WRITTEN) {
		*bad_wr = bad;
		for (const struct ibv_recv_wr *w = bad; w && refused < requests; w = w->next)
			refused++;
		if (bad && (uint32_t)bad->num_sge > r->effective_sge)
			why = REFUSED_TOO_MANY_SGE;
	} else {
		refused = requests;
	}
	ADD(r->posted, -refused);
	count_refusal(&r->refused, why, refused);
	return rc;
}

/* Takes the place of ibv_wq.post_recv: man ibv_post_wq_recv. All threads count alike: WQs take packets in bulk. */
static int guarded_post_wq_recv(struct ibv_wq *wq, struct ibv_recv_wr *wr,
				struct ibv_recv_wr **bad_wr)
{
	const struct context_hooks *hooks = hooks_of(wq->context);
	struct hot_wq *h = hot_wq_of(wq);
	struct ibv_recv_wr *bad = NOT_WRITTEN;
	uint32_t widest = 0;
	uint64_t requests = 0;
	int rc;

	if (unlikely(!hooks || !hooks->slots.post_wq_recv))
		return EINVAL;
	if (unlikely(!h || !wr || !bad_wr))
		return hooks->slots.post_wq_recv(wq, wr, bad_wr);
	for (const struct ibv_recv_wr *w = wr; w; w = w->next) {
		requests++;
		if ((uint32_t)w->num_sge > widest)
			widest = (uint32_t)w->num_sge;
	}
	ADD(h->record->posted, requests);
	rc = hooks->slots.post_wq_recv(wq, wr, &bad);
	if (unlikely(rc || bad != NOT_WRITTEN))
		return post_refused(h->record, requests, rc, bad, bad_wr);
	raise32(&h->record->peak_sge, widest);
	return rc;
}

/* The provider's function is kept by context, where a forked child finds it; a WQ with another one is left as it is.
 * Under lock. */
static bool hook(const struct context_hooks *hooks, struct ibv_wq *wq)
{
	struct context_slots *s = (struct context_slots *)(uintptr_t)&hooks->slots;

	if (!s->post_wq_recv)
		s->post_wq_recv = wq->post_recv;
	if (s->post_wq_recv != wq->post_recv)
		return false;
	wq->post_recv = guarded_post_wq_recv;
	return true;
}

/* --- creation --- */

static void reserve_wq(struct creation *c, int sign)
{
	reserve(c->guard, BUDGET_RECV_WRS, (int64_t)sign * c->verdict.submitted.max_recv_wr);
	reserve_bytes(c->guard, c->device, sign * (int64_t)queue_bytes_total(&c->verdict.bytes));
}

static bool creation_begin(struct creation *c, const struct ibv_wq_init_attr *attr)
{
	struct guard *g = c->guard;
	struct qp_caps requested = caps_of(attr->max_wr, attr->max_sge);
	struct policy_subject subject;
	struct policy_values values;
	struct policy_usage usage;

	c->requested_wr = attr->max_wr;
	c->requested_sge = attr->max_sge;
	device_learn(g, c->context);
	guard_lock(g);
	c->device = device_of(g, c->context);
	c->caller = caller_index(g, c->address);
	c->library = made_by_library(g, c->caller);
	subject_of(g, c->device, 0, c->caller, &subject);
	policy_resolve(g->policy, &subject, &values);
	usage_of(g, c->device, &usage);
	policy_judge_wq(&values, &usage, geometry_for(c->device), facts_of(c->device), attr->max_wr,
			attr->max_sge, &c->verdict);
	note_verdict(g, c->device, CALL_CREATE_WQ, c->caller, 0, &requested, &c->verdict);
	if (!c->verdict.refused)
		reserve_wq(c, 1);
	guard_unlock(g);
	return !c->verdict.refused;
}

static void creation_failed(struct creation *c, int error)
{
	struct qp_caps requested = caps_of(c->requested_wr, c->requested_sge);
	struct failure_reason why = { .call = CALL_CREATE_WQ,
				      .reason = error ? REASON_UNKNOWN : REASON_NO_ERRNO,
				      .error = error };

	guard_lock(c->guard);
	reserve_wq(c, -1);
	note_failure(c->guard, c->device, &why, c->caller, 0, &requested);
	guard_unlock(c->guard);
}

static void charge_wq(struct guard *g, struct device *d, const struct wq_record *r, int sign)
{
	charge(g, BUDGET_RECV_WRS, (int64_t)sign * r->effective_wr);
	charge_bytes(g, d, sign * (int64_t)(r->ring_bytes + r->bookkeeping_bytes));
}

static void bind_to_cq(const struct hot_wq *h, int sign)
{
	struct cq_record *cq = h->cq ? h->cq->record : NULL;
	uint64_t bound;

	if (!cq)
		return;
	ADD(cq->bound_recv_wrs, (uint64_t)((int64_t)sign * h->record->effective_wr));
	bound = LOAD(cq->bound_send_wrs) + LOAD(cq->bound_recv_wrs);
	raise_to(&cq->peak_bound_wrs, bound);
}

static void fill_record(struct creation *c, struct wq_record *r, const struct ibv_wq *wq,
			const struct ibv_wq_init_attr *attr, const struct queue_bytes *bytes)
{
	const struct hot_cq *cq = hot_cq_of(attr->cq);
	struct group_key key;

	r->id = ++c->guard->next_id[KIND_WQ];
	r->entry = c->entry;
	r->basis = (uint8_t)bytes->basis;
	r->flags = c->library ? LIBRARY_OWNED : 0;
	r->wq_num = wq->wq_num;
	r->wq_state = IBV_WQS_RESET;
	r->device = c->device ? c->device->index : UINT16_MAX;
	r->caller = c->caller;
	r->cq = cq ? cq->record->id : STATE_NONE;
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
	key.kind = KIND_WQ;
	key.basis = r->basis;
	key.qp_flags = r->flags;
	key.device = r->device;
	key.caller = r->caller;
	key.requested = caps_of(r->requested_wr, r->requested_sge);
	key.effective = caps_of(attr->max_wr, attr->max_sge);
	r->group = group_join(c->guard, &key, queue_bytes_total(bytes));
}

static void creation_done(struct creation *c, struct ibv_wq *wq,
			  const struct ibv_wq_init_attr *attr)
{
	struct guard *g = c->guard;
	struct state_wqs *t = &g->header->wqs;
	struct queue_bytes bytes;
	struct wq_record *r;
	struct hot_wq *h;

	guard_lock(g);
	reserve_wq(c, -1);
	geometry_wq_bytes(geometry_for(c->device), c->verdict.submitted.max_recv_wr,
			  c->verdict.submitted.max_recv_sge, facts_of(c->device), &bytes);
	count_created(&t->created, &t->live);
	raise_to(&t->peak, t->live);
	ADD(g->header->entry_points[c->entry], 1);
	r = record_begin(g, KIND_WQ);
	if (r) {
		fill_record(c, r, wq, attr, &bytes);
		record_ready(r);
		charge_wq(g, c->device, r, 1);
		h = hot_take(g);
		if (h) {
			h->record = r;
			h->cq = hot_cq_of(attr->cq);
			__atomic_store_n(&h->wq, wq, __ATOMIC_RELEASE);
			lookup_insert(&wqs, h);
			bind_to_cq(h, 1);
		}
		if (!h || !hook(hooks_of(c->context), wq))
			r->flags |= WQ_HIDDEN;
	}
	guard_unlock(g);
}

struct ibv_wq *wq_creation(struct guard *g, struct ibv_context *context,
			   struct ibv_wq_init_attr *attr, const struct wq_call *call)
{
	struct creation c = {
		.guard = g, .context = context, .address = call->address, .entry = call->entry
	};
	int before = errno, after;
	struct ibv_wq *wq;

	if (!creation_begin(&c, attr)) {
		errno = ENOMEM;
		return NULL;
	}
	if (c.verdict.clamped) {
		attr->max_wr = c.verdict.submitted.max_recv_wr;
		attr->max_sge = c.verdict.submitted.max_recv_sge;
	}
	errno = 0;
	guard_nest(1);
	wq = call->create(context, attr, call->more);
	after = errno;
	guard_nest(-1);
	if (wq) {
		creation_done(&c, wq, attr);
	} else {
		if (c.verdict.clamped) {
			attr->max_wr = c.requested_wr;
			attr->max_sge = c.requested_sge;
		}
		creation_failed(&c, after);
	}
	errno = wq || !after ? before : after;
	return wq;
}

static struct ibv_wq *by_slot(struct ibv_context *context, struct ibv_wq_init_attr *attr,
			      void *more)
{
	(void)more;
	return hooks_of(context)->slots.create_wq(context, attr);
}

/* Takes the place of verbs_context.create_wq: man ibv_create_wq. */
struct ibv_wq *guarded_create_wq(struct ibv_context *context, struct ibv_wq_init_attr *attr)
{
	const struct context_hooks *hooks = hooks_of(context);
	const struct wq_call call = { .address = CALLER(),
				      .entry = ENTRY_CREATE_WQ,
				      .create = by_slot };
	struct guard *g = guard_enter();

	if (!hooks || !hooks->slots.create_wq) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	if (!g || guard_nested())
		return hooks->slots.create_wq(context, attr);
	return wq_creation(g, context, attr, &call);
}

/* --- the rest of its life --- */

/* Takes the place of verbs_context.modify_wq: man ibv_modify_wq. */
int guarded_modify_wq(struct ibv_wq *wq, struct ibv_wq_attr *attr)
{
	const struct context_hooks *hooks = hooks_of(wq->context);
	struct guard *g = guard_enter();
	struct hot_wq *h;
	int rc;

	if (!hooks || !hooks->slots.modify_wq)
		return EOPNOTSUPP;
	rc = hooks->slots.modify_wq(wq, attr);
	if (!g || guard_nested())
		return rc;
	if (rc) {
		note_call_failure(g, wq->context, CALL_MODIFY_WQ, CALLER(), rc);
	} else if (attr->attr_mask & IBV_WQ_ATTR_STATE) {
		guard_lock(g);
		h = hot_wq_of(wq);
		if (h)
			STORE(h->record->wq_state, (uint8_t)attr->wq_state);
		guard_unlock(g);
	}
	return rc;
}

static void destroyed(struct guard *g, struct ibv_context *context, struct hot_wq *h)
{
	bind_to_cq(h, -1);
	STORE(h->record->ended_at, now_ns());
	group_leave_wq(g, h->record);
	charge_wq(g, device_of(g, context), h->record, -1);
	count_destroyed(&g->header->wqs.destroyed, &g->header->wqs.live);
	record_end(g, KIND_WQ, h->record);
	hot_give(g, h, 1);
}

/* Takes the place of verbs_context.destroy_wq: man ibv_destroy_wq. Out of the table before the call, as in
 * ibv_destroy_qp. */
int guarded_destroy_wq(struct ibv_wq *wq)
{
	const struct context_hooks *hooks = hooks_of(wq->context);
	struct ibv_context *context = wq->context;
	struct guard *g = guard_enter();
	struct hot_wq *h;
	int rc;

	if (!hooks || !hooks->slots.destroy_wq)
		return EOPNOTSUPP;
	if (!g || guard_nested())
		return hooks->slots.destroy_wq(wq);
	guard_lock(g);
	h = hot_wq_of(wq);
	if (h)
		lookup_remove(&wqs, h);
	guard_unlock(g);
	rc = hooks->slots.destroy_wq(wq);
	if (!h)
		return rc;
	guard_lock(g);
	if (rc)
		lookup_insert(&wqs, h);
	else
		destroyed(g, context, h);
	guard_unlock(g);
	if (rc)
		note_call_failure(g, context, CALL_DESTROY_WQ, CALLER(), rc);
	return rc;
}

/* --- tables of receive side scaling: no memory of the process to speak of, so that they are only counted --- */

/* Takes the place of verbs_context.create_rwq_ind_table: man ibv_create_rwq_ind_table. */
struct ibv_rwq_ind_table *guarded_create_rwq_ind_table(struct ibv_context *context,
						       struct ibv_rwq_ind_table_init_attr *attr)
{
	const struct context_hooks *hooks = hooks_of(context);
	struct guard *g = guard_enter();
	struct ibv_rwq_ind_table *table;
	int before = errno, after;

	if (!hooks || !hooks->slots.create_rwq_ind_table) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	if (!g || guard_nested())
		return hooks->slots.create_rwq_ind_table(context, attr);
	errno = 0;
	table = hooks->slots.create_rwq_ind_table(context, attr);
	after = errno;
	if (table)
		ADD(g->header->entry_points[ENTRY_CREATE_RWQ_IND_TABLE], 1);
	else
		note_call_failure(g, context, CALL_CREATE_RWQ_IND_TABLE, CALLER(), after);
	errno = table || !after ? before : after;
	return table;
}
