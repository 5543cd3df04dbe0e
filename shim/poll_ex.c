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
	struct hot_poll *p = lookup_first(&polls, offsetof(struct hot_poll, cq), (uintptr_t)cq);

	if (unlikely(!p))
		p = lookup_further(&polls, offsetof(struct hot_poll, cq), (uintptr_t)cq);
	return p;
}

/* What is current, as ibv_poll_cq would have given it. */
static SHORT_PATH int taken_somehow(struct hot_cq *q, struct ibv_cq_ex *cq)
{
	struct ibv_wc wc;

	if (unlikely(q->cq != (const struct ibv_cq *)cq)) {
		/* a child of fork */
		inherited_used(hooks_of(cq->context), INHERITED_COMPLETIONS, 1);
		return 0;
	}
	wc.status = cq->status;
	wc.qp_num = cq->read_qp_num(cq);
	wc.opcode = wc.status == IBV_WC_SUCCESS ? cq->read_opcode(cq) : 0;
	completion_taken(q, &wc);
	return 0;
}

/* One completion is current. A send's or a receive's that nothing is rare about is counted here. */
static ALWAYS_INLINE int current_taken(struct hot_cq *q, struct ibv_cq_ex *cq)
{
	enum ibv_wc_opcode opcode;
	uint64_t completions;
	uint32_t number;
	struct hot_qp *h;

	if (unlikely(cq->status != IBV_WC_SUCCESS || !owns(&q->poll_owner)))
		return taken_somehow(q, cq);
	number = cq->read_qp_num(cq);
	opcode = cq->read_opcode(cq);
	h = lookup_first(&qps_by_number, offsetof(struct hot_qp, number), q->number_key | number);
	if (unlikely(!h))
		return taken_somehow(q, cq);
	if (unlikely(opcode & IBV_WC_RECV)) {
		if (unlikely(h->flags & QP_HAS_SRQ || opcode >= IBV_WC_DRIVER1))
			return taken_somehow(q, cq);
		recv_completed(h);
	} else if (unlikely(READ8(h->mixed))) {
		READ_AGAIN();
		if (READ8(h->mixed) != QUEUE_MIXED)
			return taken_somehow(q, cq);
		send_completed(h);
		settle_owned(h);
	} else {
		send_completed(h);
	}
	completions = READ64(q->record->poll_completions) + 1;
	WRITE64(q->record->poll_completions, completions);
	backlog_goes_on(q, completions);
	return 0;
}

/* No more came: what comes next is not known to have been there. Nobody's owner is known in a child. */
static SHORT_PATH int ran_out(struct hot_cq *q, const struct ibv_cq_ex *cq, int rc)
{
	if (owns(&q->poll_owner))
		backlog_begins(q, READ64(q->record->poll_completions));
	else if (!q->cq)
		inherited_used(hooks_of(cq->context), INHERITED_COMPLETIONS, 0);
	return rc;
}

static int guarded_start_poll(struct ibv_cq_ex *cq, struct ibv_poll_cq_attr *attr)
{
	const struct hot_poll *p = poll_of(cq);
	struct hot_cq *q = p->hot;
	int rc = p->real->start(cq, attr);

	return likely(!rc) ? current_taken(q, cq) : ran_out(q, cq, rc);
}

static int guarded_next_poll(struct ibv_cq_ex *cq)
{
	const struct hot_poll *p = poll_of(cq);
	struct hot_cq *q = p->hot;
	int rc = p->real->next(cq);

	return likely(!rc) ? current_taken(q, cq) : ran_out(q, cq, rc);
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
	struct poll_functions f = { cq->start_poll, cq->next_poll };
	const struct poll_functions *real;
	struct hot_poll *p;

	/* without IBV_WC_EX_WITH_QP_NUM, which is added at creation unless that failed, there is no read_qp_num */
	if (!f.start || !f.next || !cq->read_opcode || !cq->read_qp_num || !(real = shared_set(&f)))
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
