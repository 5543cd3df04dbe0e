/* SPDX-License-Identifier: MIT */
/*
 * Polling an extended CQ: each completion that start_poll or next_poll makes current is counted like one of
 * ibv_poll_cq. The functions lie in each CQ and are the provider's choice for it.
 */
#include <string.h>

#include "builder.h"
#include "outstanding.h"

struct lookup polls = LOOKUP(struct hot_poll, cq);

/* A CQ that has our functions has a record. */
static ALWAYS_INLINE struct hot_poll *poll_of(const struct ibv_cq_ex *cq)
{
	struct hot_poll *p = lookup_find(&polls, offsetof(struct hot_poll, cq), (uintptr_t)cq);

	return p;
}

/* Without IBV_WC_EX_WITH_QP_NUM there is no read_qp_num; the flag was added at creation unless that failed. */
static ALWAYS_INLINE void current_taken(struct hot_cq *q, struct ibv_cq_ex *cq)
{
	struct ibv_wc wc;

	if (unlikely(q->cq != (const struct ibv_cq *)cq || !cq->read_qp_num))
		return; /* a child of fork, or a CQ that does not tell */
	wc.status = cq->status;
	wc.qp_num = cq->read_qp_num(cq);
	wc.opcode = wc.status == IBV_WC_SUCCESS ? cq->read_opcode(cq) : 0;
	completion_taken(q, &wc);
}

static ALWAYS_INLINE int polled(struct hot_cq *q, struct ibv_cq_ex *cq, int rc)
{
	if (!rc)
		current_taken(q, cq);
	else
		completions_ran_out(q);
	return rc;
}

static int guarded_start_poll(struct ibv_cq_ex *cq, struct ibv_poll_cq_attr *attr)
{
	const struct hot_poll *p = poll_of(cq);

	return polled(p->hot, cq, p->real->start(cq, attr));
}

static int guarded_next_poll(struct ibv_cq_ex *cq)
{
	const struct hot_poll *p = poll_of(cq);

	return polled(p->hot, cq, p->real->next(cq));
}

static void guarded_end_poll(struct ibv_cq_ex *cq)
{
	poll_of(cq)->real->end(cq);
}

#define MOST_SETS 64
static struct poll_functions sets[MOST_SETS];
static unsigned int set_count;
static struct pool kept_polls;

static const struct poll_functions *shared_set(const struct poll_functions *f)
{
	for (unsigned int i = 0; i < set_count; i++)
		if (!memcmp(&sets[i], f, sizeof(*f)))
			return &sets[i];
	if (set_count == MOST_SETS)
		return NULL;
	sets[set_count] = *f;
	return &sets[set_count++];
}

bool poll_hook(struct hot_cq *q, struct ibv_cq_ex *cq)
{
	struct poll_functions f = { cq->start_poll, cq->next_poll, cq->end_poll };
	const struct poll_functions *real;
	struct hot_poll *p;

	if (!f.start || !f.next || !f.end || !cq->read_opcode || !(real = shared_set(&f)))
		return false;
	if (polls.table == &lookup_no_table && !lookup_init(&polls))
		return false;
	/* a CQ of this address whose destruction has not returned yet */
	p = lookup_find(&polls, offsetof(struct hot_poll, cq), (uintptr_t)cq);
	if (p)
		lookup_remove(&polls, p);
	p = pool_take_kept(&kept_polls, sizeof(*p));
	if (!p)
		return false;
	p->real = real;
	p->hot = q;
	__atomic_store_n(&p->cq, cq, __ATOMIC_RELEASE);
	if (!lookup_insert(&polls, p))
		return false;
	cq->start_poll = guarded_start_poll;
	cq->next_poll = guarded_next_poll;
	cq->end_poll = guarded_end_poll;
	return true;
}

struct hot_poll *poll_hooked(const struct ibv_cq *cq)
{
	return poll_of((const struct ibv_cq_ex *)cq);
}

void poll_forget(struct hot_poll *p)
{
	if (!p)
		return;
	lookup_remove(&polls, p);
	__atomic_store_n(&p->cq, NULL, __ATOMIC_RELAXED);
	memset(&p->real, 0, sizeof(*p) - sizeof(p->cq));
	pool_give(&kept_polls, sizeof(*p), p);
}
