/* SPDX-License-Identifier: MIT */
/*
 * [inject]: creations, registrations and posts that fail on purpose, without the real call. Which, is decided by
 * policy/inject.c from the count of the calls that the keys concern. Posts: a context whose posts may be hit gets
 * another function into its ops, in front of the guarded one; without [inject] there is none.
 */
#include "inject.h"

#include <errno.h>

#include "log.h"
#include "outstanding.h"
#include "../policy/inject.h"
#include "../policy/text.h"

static uint64_t errno_for(const struct policy_values *v, enum policy_key key)
{
	return v->num[INJECT_CREATE_QP_ERRNO + (key - INJECT_CREATE_QP)];
}

int inject_failure(struct guard *g, const struct policy_values *v, enum policy_key key)
{
	unsigned int kind = key - INJECT_CREATE_QP;

	if (!v->num[key] ||
	    !inject_hits(v->num[key], v->num[INJECT_SEED], kind, ++g->inject_calls[kind]))
		return 0;
	return (int)errno_for(v, key);
}

void note_injected(struct guard *g, const struct device *d, enum guarded_call call, int error,
		   uint16_t caller, unsigned int qp_type, const struct qp_caps *requested)
{
	struct failure_reason why = { .call = (uint8_t)call,
				      .reason = REASON_INJECTED,
				      .error = error };

	note_failure(g, d, &why, caller, qp_type, requested);
}

void inject_say(struct guard *g)
{
	const struct policy *p = g->policy;
	char line[320];
	struct text t = text_begin(line, sizeof(line));
	bool any = false;

	text_put(&t, "failures on purpose, by [inject]:");
	for (uint32_t i = 0; i < p->settings; i++) {
		const struct policy_setting *s = &p->setting[i];

		if (s->key < INJECT_CREATE_QP || s->key > INJECT_POST_SEND || !s->num)
			continue;
		text_put(&t, any ? ", " : " ");
		text_put(&t, policy_keys[s->key].name);
		text_char(&t, ' ');
		text_number(&t, s->num & UINT32_MAX);
		if (s->num >> 32) {
			text_char(&t, '/');
			text_number(&t, s->num >> 32);
		}
		any = true;
	}
	if (!any)
		return;
	g->header->injects = 1;
	log_line(g, LOG_WARN, line);
}

/* --- posts --- */

static _Atomic uint64_t post_turn, post_seed, posts;

bool inject_posts(struct guard *g, const struct device *d)
{
	struct policy_subject subject = { .device = d ? d->record->name : "",
					  .driver = d ? d->record->driver : "",
					  .type = "",
					  .program = g->header->exe,
					  .comm = g->header->comm,
					  .library = "" };
	struct policy_values values;

	policy_resolve(g->policy, &subject, &values);
	if (!values.num[INJECT_POST_SEND])
		return false;
	atomic_store(&post_turn, values.num[INJECT_POST_SEND]);
	atomic_store(&post_seed, values.num[INJECT_SEED]);
	return true;
}

static int refuse(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
	struct hot_qp *h = lookup_find(&qps_by_address, offsetof(struct hot_qp, qp), (uintptr_t)qp);
	uint64_t requests = 0;

	for (const struct ibv_send_wr *w = wr; w; w = w->next)
		requests++;
	if (h)
		injected_refusal(h->record, requests, ENOMEM);
	*bad_wr = wr;
	return ENOMEM;
}

int injected_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
	uint64_t n = atomic_fetch_add_explicit(&posts, 1, memory_order_relaxed) + 1;

	if (wr && bad_wr &&
	    inject_hits(atomic_load_explicit(&post_turn, memory_order_relaxed),
			atomic_load_explicit(&post_seed, memory_order_relaxed),
			INJECT_POST_SEND - INJECT_CREATE_QP, n))
		return refuse(qp, wr, bad_wr);
	return guarded_post_send(qp, wr, bad_wr);
}
