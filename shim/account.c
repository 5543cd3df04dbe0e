/* SPDX-License-Identifier: MIT */
/*
 * What the process holds against its budgets, and what a verdict of policy/ means for the counts and the
 * log. All under guard->lock; no verbs call.
 */
#include <errno.h>

#include "file.h"
#include "guard.h"
#include "log.h"
#include "../policy/text.h"

void subject_of(struct guard *g, const struct device *d, unsigned int qp_type, uint16_t caller,
		struct policy_subject *out)
{
	*out = (struct policy_subject){
		.device = d ? d->record->name : "",
		.driver = d ? d->record->driver : "",
		.type = qp_type ? qp_type_name(qp_type) : "",
		.program = g->header->exe,
		.comm = g->header->comm,
		.library = caller_module(g, caller),
		.qps = g->used[BUDGET_QPS],
	};
}

void usage_of(struct guard *g, const struct device *d, struct policy_usage *out)
{
	for (unsigned int k = 0; k < BUDGET_LIMITS; k++)
		out->used[k] = g->used[k] + g->reserved[k];
	out->used[BUDGET_DEVICE_BYTES] = d ? d->record->bytes + d->reserved_bytes : 0;
}

void raise_to(_Atomic uint64_t *peak, uint64_t value)
{
	if (value > atomic_load_explicit(peak, memory_order_relaxed))
		atomic_store_explicit(peak, value, memory_order_relaxed);
}

/* Objects made out of our sight may be destroyed in it: a use never goes below zero. */
static uint64_t add(uint64_t use, int64_t amount)
{
	if (amount < 0 && use < (uint64_t)-amount)
		return 0;
	return use + (uint64_t)amount;
}

void reserve(struct guard *g, enum policy_key limit, int64_t amount)
{
	g->reserved[limit] = add(g->reserved[limit], amount);
}

void reserve_bytes(struct guard *g, struct device *d, int64_t bytes)
{
	reserve(g, BUDGET_PROCESS_BYTES, bytes);
	if (d)
		d->reserved_bytes = add(d->reserved_bytes, bytes);
}

void charge(struct guard *g, enum policy_key limit, int64_t amount)
{
	struct state_budget *b = &g->header->budget[limit];

	g->used[limit] = add(g->used[limit], amount);
	atomic_store_explicit(&b->used, g->used[limit], memory_order_relaxed);
	raise_to(&b->peak, g->used[limit]);
}

void charge_bytes(struct guard *g, struct device *d, int64_t bytes)
{
	struct state_totals *t = &g->header->totals;
	struct state_budget *b = &g->header->budget[BUDGET_DEVICE_BYTES];

	charge(g, BUDGET_PROCESS_BYTES, bytes);
	atomic_store_explicit(&t->bytes, g->used[BUDGET_PROCESS_BYTES], memory_order_relaxed);
	raise_to(&t->peak_bytes, t->bytes);
	if (!d)
		return;
	atomic_store_explicit(&d->record->bytes, add(d->record->bytes, bytes),
			      memory_order_relaxed);
	raise_to(&d->record->peak_bytes, d->record->bytes);
	/* of several devices, the one that holds most */
	raise_to(&b->peak, d->record->bytes);
	atomic_store_explicit(&b->used, d->record->bytes, memory_order_relaxed);
}

void count_created(_Atomic uint64_t *created, _Atomic uint64_t *live)
{
	atomic_fetch_add_explicit(created, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(live, 1, memory_order_relaxed);
}

void count_destroyed(_Atomic uint64_t *destroyed, _Atomic uint64_t *live)
{
	atomic_fetch_add_explicit(destroyed, 1, memory_order_relaxed);
	atomic_fetch_sub_explicit(live, 1, memory_order_relaxed);
}

static void say_clamped(struct guard *g, const struct device *d, enum guarded_call call,
			const struct policy_verdict *v)
{
	char line[220];
	struct text t = text_begin(line, sizeof(line));

	text_put(&t, guarded_call_name(call));
	text_put(&t, " on ");
	text_name(&t, d ? d->record->name : "?");
	text_put(&t, ": request lowered by [");
	text_put(&t, policy_keys[v->clamped_by].section);
	text_put(&t, "] ");
	text_put(&t, policy_keys[v->clamped_by].name);
	if (call == CALL_CREATE_CQ) {
		text_put(&t, " to cqe ");
		text_number(&t, v->submitted_cqe);
	} else {
		text_put(&t, " to max_send_wr ");
		text_number(&t, v->submitted.max_send_wr);
		text_put(&t, " max_recv_wr ");
		text_number(&t, v->submitted.max_recv_wr);
		text_put(&t, " max_send_sge ");
		text_number(&t, v->submitted.max_send_sge);
		text_put(&t, " max_recv_sge ");
		text_number(&t, v->submitted.max_recv_sge);
		text_put(&t, " max_inline_data ");
		text_number(&t, v->submitted.max_inline_data);
	}
	log_line(g, LOG_WARN, line);
}

static void say_observed(struct guard *g, const struct device *d, enum guarded_call call,
			 enum policy_key limit, const struct policy_verdict *v)
{
	char line[200];
	struct text t = text_begin(line, sizeof(line));

	text_put(&t, guarded_call_name(call));
	text_put(&t, " on ");
	text_name(&t, d ? d->record->name : "?");
	text_put(&t, " is over budget ");
	text_put(&t, policy_keys[limit].name);
	if (limit == v->refused_by) {
		text_put(&t, " (would be ");
		text_number(&t, v->asked);
		text_put(&t, ", limit ");
		text_number(&t, v->limit);
		text_put(&t, ")");
	}
	text_put(&t, ": observed, not refused");
	log_line(g, LOG_WARN, line);
}

void note_fitted(struct guard *g, const struct device *d, enum guarded_call call,
		 const struct policy_verdict *submitted)
{
	struct policy_verdict v = *submitted;

	v.clamped_by = CLAMP_TO_DEVICE;
	atomic_fetch_add_explicit(&g->header->totals.clamped, 1, memory_order_relaxed);
	say_clamped(g, d, call, &v);
}

void note_verdict(struct guard *g, const struct device *d, enum guarded_call call, uint16_t caller,
		  unsigned int qp_type, const struct qp_caps *requested,
		  const struct policy_verdict *v)
{
	struct failure_reason why = { .call = (uint8_t)call,
				      .reason = REASON_BUDGET,
				      .error = ENOMEM };

	for (unsigned int k = 0; k < BUDGET_LIMITS; k++) {
		if (!(v->observed >> k & 1))
			continue;
		atomic_fetch_add_explicit(&g->header->budget[k].refusals, 1, memory_order_relaxed);
		say_observed(g, d, call, k, v);
	}
	if (v->refused) {
		atomic_fetch_add_explicit(&g->header->budget[v->refused_by].refusals, 1,
					  memory_order_relaxed);
		atomic_fetch_add_explicit(&g->header->totals.budget_refusals, 1,
					  memory_order_relaxed);
		why.field = (uint16_t)v->refused_by;
		why.asked = v->asked;
		why.limit = v->limit;
		note_failure(g, d, &why, caller, qp_type, requested);
	} else if (v->clamped) {
		atomic_fetch_add_explicit(&g->header->totals.clamped, 1, memory_order_relaxed);
		say_clamped(g, d, call, v);
	}
}
