/* SPDX-License-Identifier: MIT */
/*
 * Failures: counted by kind in a bounded number of records, each told once as a sentence. Under guard->lock.
 *
 * A creation that fails may be a probe for what the device can do. So its line is held back: until the same thread
 * makes something of the kind that asks for no more (a probe: one line at level info for the whole run), until it
 * fails at something else, for a second (then at the next creation, or whatever else we see of it), or until the
 * process ends. A search for the limit of inline data that was granted some is told at level info alone. At once told is what fails although it was granted before. At the end nothing is told of
 * a device that the program closed before it ended well: it went on without it. The records are written at once.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "file.h"
#include "guard.h"
#include "log.h"
#include "outstanding.h"
#include "surroundings.h"
#include "../policy/explain.h"
#include "../policy/text.h"

#define HOLD_NS	   UINT64_C(1000000000)
#define LINE_BYTES 352

/* The line in the making, not on the stack, of which a hook has little. Under guard->lock. */
static char line[LINE_BYTES];

bool failure_is(const struct failure_record *f, const struct failure_reason *r, uint16_t device,
		uint16_t caller, const struct qp_caps *requested)
{
	return f->reason.call == r->call && f->reason.reason == r->reason &&
	       f->reason.field == r->field && f->reason.error == r->error &&
	       f->reason.limit == r->limit && f->device == device && f->caller == caller &&
	       !memcmp(&f->requested, requested, sizeof(*requested));
}

static struct failure_record *failure_add(struct guard *g, const struct failure_reason *r,
					  uint16_t device, uint16_t caller, unsigned int qp_type,
					  const struct qp_caps *requested)
{
	uint32_t index;
	struct failure_record *f = file_add(g, KIND_FAILURE, STATE_MAX_FAILURES, &index);

	if (!f)
		return NULL;
	if (index == STATE_MAX_FAILURES - 1) {
		f->device = f->caller = UINT16_MAX; /* "other" */
	} else {
		f->reason = *r;
		f->device = device;
		f->caller = caller;
		f->qp_type = (uint8_t)qp_type;
		f->requested = *requested;
	}
	atomic_store_explicit(&f->first_at, now_ns(), memory_order_relaxed);
	atomic_store_explicit(&f->state, RECORD_LIVE, memory_order_release);
	return f;
}

/* The record of this kind of failure, made when it is new; NULL without memory. */
struct failure_record *failure_of(struct guard *g, const struct failure_reason *reason,
				  uint16_t device, uint16_t caller, unsigned int qp_type,
				  const struct qp_caps *requested)
{
	uint32_t used = atomic_load_explicit(&g->header->used[KIND_FAILURE], memory_order_relaxed);
	struct failure_record *f;

	for (uint32_t i = 0; i < used; i++) {
		f = file_record(g->file, KIND_FAILURE, i);
		if (failure_is(f, reason, device, caller, requested))
			return f;
	}
	f = failure_add(g, reason, device, caller, qp_type, requested);
	return f || !used ? f : file_record(g->file, KIND_FAILURE, used - 1);
}

/* --- what is held back --- */

/* A place among guard->held, or HELD_CALLS. */
static unsigned int held_index(unsigned int call)
{
	switch (call) {
	case CALL_CREATE_QP:
		return 0;
	case CALL_CREATE_CQ:
		return 1;
	case CALL_CREATE_SRQ:
		return 2;
	case CALL_REG_MR:
		return 3;
	default:
		return HELD_CALLS;
	}
}

static const char *device_name(const struct guard *g, uint16_t device)
{
	return device < g->device_count ? g->devices[device].record->name : NULL;
}

static void begin_line(struct text *t, const struct guard *g, const struct held *h)
{
	size_t len = reason_sentence(&h->why, device_name(g, h->device), line, LINE_BYTES);

	*t = (struct text){ line, LINE_BYTES, len };
}

static bool lies_between(uint32_t n, uint32_t a, uint32_t b)
{
	return a < b ? n >= a && n <= b : n >= b && n <= a;
}

/*
 * Attempts that differ in nothing but inline data, also from what this thread was granted before them, are a search
 * for its limit, of which the last may well fail (libfabric's does). Who asks again with the caps that were written
 * back asks for the same.
 */
static bool asks_other_inline_alone(const struct granted *last, const struct qp_caps *c)
{
	const struct qp_caps *a = &last->requested, *b = &last->effective;

	return last->thread == thread_pointer() && c->max_inline_data != a->max_inline_data &&
	       lies_between(c->max_send_wr, a->max_send_wr, b->max_send_wr) &&
	       lies_between(c->max_recv_wr, a->max_recv_wr, b->max_recv_wr) &&
	       lies_between(c->max_send_sge, a->max_send_sge, b->max_send_sge) &&
	       lies_between(c->max_recv_sge, a->max_recv_sge, b->max_recv_sge);
}

static void tell(struct guard *g, struct held *h)
{
	bool search = h->inline_alone && (h->attempts > 1 || h->searched);
	struct text t;

	begin_line(&t, g, h);
	if (h->attempts > 1) {
		text_put(&t, ", the last of ");
		text_number(&t, h->attempts);
		text_put(&t, " attempts");
	}
	h->attempts = 0;
	h->record->told = 1;
	log_failure(g, search ? LOG_INFO : LOG_WARN, line);
}

/* What the run of attempts began with and what was granted, as far as they differ. */
static void put_run(struct text *t, const struct qp_caps *first, const struct qp_caps *granted)
{
	static const char *const names[] = { "max_send_wr", "max_recv_wr", "max_send_sge",
					     "max_recv_sge", "max_inline_data" };
	const uint32_t from[] = { first->max_send_wr, first->max_recv_wr, first->max_send_sge,
				  first->max_recv_sge, first->max_inline_data };
	const uint32_t to[] = { granted->max_send_wr, granted->max_recv_wr, granted->max_send_sge,
				granted->max_recv_sge, granted->max_inline_data };

	for (unsigned int i = 0; i < 5; i++) {
		if (from[i] == to[i])
			continue;
		text_put(t, ", ");
		text_put(t, names[i]);
		text_char(t, ' ');
		text_number(t, from[i]);
		text_put(t, " to ");
		text_number(t, to[i]);
	}
}

/* Whether b asks for no more than a, in any field. */
static bool is_no_more(const struct qp_caps *a, const struct qp_caps *b)
{
	return b->max_send_wr <= a->max_send_wr && b->max_recv_wr <= a->max_recv_wr &&
	       b->max_send_sge <= a->max_send_sge && b->max_recv_sge <= a->max_recv_sge &&
	       b->max_inline_data <= a->max_inline_data;
}

/* Whether the same was asked for before and granted. */
static bool was_granted(struct guard *g, unsigned int call, uint16_t device, unsigned int qp_type,
			const struct qp_caps *requested)
{
	static const uint8_t kinds[HELD_CALLS] = { KIND_QP, KIND_CQ, KIND_SRQ, 0 };
	uint32_t used = atomic_load_explicit(&g->header->used[KIND_GROUP], memory_order_relaxed);

	for (uint32_t i = 0; i < used; i++) {
		const struct group_record *r = file_record(g->file, KIND_GROUP, i);

		if (r->kind == kinds[held_index(call)] && r->device == device &&
		    r->type == qp_type && !memcmp(&r->requested, requested, sizeof(*requested)))
			return true;
	}
	return false;
}

static int exit_status = -1;

static void remember_status(int status, void *arg)
{
	(void)arg;
	exit_status = status;
}

static void hold(struct guard *g, struct failure_record *f, uint16_t device, unsigned int qp_type,
		 const struct qp_caps *requested)
{
	struct held *h = &g->held[held_index(f->reason.call)];
	void *thread = thread_pointer();
	static bool watched;

	if (h->attempts &&
	    (h->device != device || h->thread != thread || !is_no_more(&h->last, requested)))
		tell(g, h);
	if (h->attempts && h->record != f)
		h->record->told = 0;
	if (f->told)
		return;
	if (!h->attempts) {
		h->first = *requested;
		h->since = now_ns();
		h->inline_alone = true;
		h->searched = h->granted.device == device && h->granted.searched;
	}
	h->inline_alone = h->inline_alone && h->granted.device == device &&
			  asks_other_inline_alone(&h->granted, requested);
	h->attempts++;
	h->record = f;
	h->why = f->reason;
	h->device = device;
	h->thread = thread;
	h->last = *requested;
	if (was_granted(g, f->reason.call, device, qp_type, requested)) {
		tell(g, h);
		return;
	}
	if (!watched)
		watched = !on_exit(remember_status, NULL);
}

void failures_overdue(struct guard *g)
{
	uint64_t now = 0;

	for (unsigned int i = 0; i < HELD_CALLS; i++) {
		struct held *h = &g->held[i];

		if (!h->attempts)
			continue;
		now = now ? now : now_ns();
		if (now - h->since >= HOLD_NS)
			tell(g, h);
	}
}

void failures_settle(struct guard *g, enum guarded_call call, const struct device *d,
		     const struct qp_caps *requested, const struct qp_caps *effective)
{
	struct held *h = &g->held[held_index(call)];
	struct granted *last = &h->granted;
	uint16_t device = d ? d->index : UINT16_MAX;
	const void *self = thread_pointer();
	struct text t;

	failures_overdue(g);
	*last = (struct granted){
		.requested = *requested,
		.effective = *effective,
		.thread = self,
		.device = device,
		.searched = last->device == device && (last->searched || h->attempts) &&
			    asks_other_inline_alone(last, requested),
	};
	if (!h->attempts || h->thread != self || h->device != device ||
	    !is_no_more(&h->first, requested))
		return;
	t = text_begin(line, sizeof(line));
	text_put(&t, guarded_call_name(call));
	text_put(&t, " on ");
	text_name(&t, d ? d->record->name : "?");
	text_put(&t, ": ");
	text_number(&t, h->attempts);
	text_put(&t, h->attempts == 1 ? " attempt" : " attempts");
	text_put(&t, " failed before one succeeded");
	put_run(&t, &h->first, requested);
	h->attempts = 0;
	log_failure(g, LOG_INFO, line);
}

/* Exit handlers may run in a signal handler that interrupted us: then nothing is told. */
void failures_end(struct guard *g)
{
	struct text t;

	if (!guard_trylock(g))
		return;
	for (unsigned int i = 0; i < HELD_CALLS; i++) {
		struct held *h = &g->held[i];
		bool closed =
			h->device < g->device_count && !g->devices[h->device].record->contexts;

		if (!h->attempts)
			continue;
		if (!closed || exit_status != 0) {
			tell(g, h);
			continue;
		}
		begin_line(&t, g, h);
		text_put(&t, "; the program closed the device and went on without it");
		h->attempts = 0;
		log_failure(g, LOG_INFO, line);
	}
	guard_unlock(g);
}

/* --- counting --- */

static bool is_creation(unsigned int call)
{
	return call == CALL_CREATE_QP || call == CALL_CREATE_CQ || call == CALL_CREATE_SRQ ||
	       call == CALL_CREATE_WQ || call == CALL_OPEN_QP || call == CALL_OPEN_DEVICE;
}

/* A registration of nothing asks what is supported; a failure on purpose was told at the start. */
static bool asks_only(const struct failure_reason *r, const struct qp_caps *requested)
{
	return r->reason == REASON_INJECTED ||
	       (r->call == CALL_REG_MR && !requested->max_send_wr && !requested->max_recv_wr);
}

/* Of what the program changes or gives back it knows itself that it failed. */
static bool is_its_own_affair(const struct failure_reason *r)
{
	return (r->reason == REASON_UNKNOWN || r->reason == REASON_NO_ERRNO) &&
	       r->call != CALL_OPEN_DEVICE && r->call != CALL_RESIZE_CQ;
}

void note_failure(struct guard *g, const struct device *d, const struct failure_reason *reason,
		  uint16_t caller, unsigned int qp_type, const struct qp_caps *requested)
{
	static const struct qp_caps nothing;
	uint16_t device = d ? d->index : UINT16_MAX;
	struct failure_record *f;
	bool quiet;

	if (!requested)
		requested = &nothing;
	if (reason->reason != REASON_BUDGET && is_creation(reason->call))
		atomic_fetch_add_explicit(&g->header->totals.create_failures, 1,
					  memory_order_relaxed);
	f = failure_of(g, reason, device, caller, qp_type, requested);
	if (f) {
		atomic_fetch_add_explicit(&f->count, 1, memory_order_relaxed);
		atomic_store_explicit(&f->last_at, now_ns(), memory_order_relaxed);
	}
	failures_overdue(g);
	if (f && f->reason.reason && reason->reason != REASON_BUDGET &&
	    !asks_only(reason, requested) && held_index(reason->call) < HELD_CALLS) {
		hold(g, f, device, qp_type, requested);
		return;
	}
	if (reason->reason != REASON_BUDGET && f && f->told)
		return;
	if (f)
		f->told = 1;
	reason_sentence(reason, d ? d->record->name : NULL, line, sizeof(line));
	quiet = asks_only(reason, requested) || is_its_own_affair(reason);
	log_failure(g, quiet ? LOG_INFO : LOG_WARN, line);
}

/* --- why --- */

static void only_errno(struct failure_reason *out, enum guarded_call call, int error)
{
	*out = (struct failure_reason){ .call = (uint8_t)call,
					.error = error,
					.reason = error ? REASON_UNKNOWN : REASON_NO_ERRNO };
}

/* The CQs of a QP are large enough, or *out says which is not. */
static bool explain_cqs(const struct failed_creation *f, struct failure_reason *out)
{
	const struct hot_cq *cqs_of[] = { hot_cq_of(f->send_cq), hot_cq_of(f->recv_cq) };
	const struct qp_caps *c = &f->req->caps;
	uint32_t recvs = f->req->has_srq ? 0 : c->max_recv_wr;

	for (unsigned int i = 0; i < 2; i++) {
		const struct cq_record *r = cqs_of[i] ? cqs_of[i]->record : NULL;
		uint64_t wrs;

		if (!r)
			continue;
		wrs = r->asked_wrs + (i ? recvs : c->max_send_wr);
		if (f->send_cq == f->recv_cq)
			wrs = r->asked_wrs + c->max_send_wr + recvs;
		if (wrs <= r->effective_cqe)
			continue;
		out->reason = REASON_CQ_SIZE;
		out->asked = wrs;
		out->limit = r->effective_cqe;
		out->number[0] = r->id;
		return true;
	}
	return false;
}

static enum fit_kind kind_of(enum guarded_call call)
{
	return call == CALL_CREATE_QP ? FIT_QP : call == CALL_CREATE_SRQ ? FIT_SRQ : FIT_CQ;
}

/* Pages are pinned, and only those in the memory of the process. */
static uint64_t pinned_of(const struct queue_bytes *b)
{
	return b->place == PLACE_KERNEL ? 0 : (b->sq + b->rq + 4095) / 4096 * 4096;
}

static void note_half(const struct device *d, const struct failed_creation *f,
		      struct failure_reason *out)
{
	uint64_t bytes, half_bytes;
	uint32_t half;

	if (out->reason != REASON_MEMLOCK || f->call == CALL_CREATE_QP ||
	    f->call == CALL_CREATE_SRQ)
		return;
	half = explain_cq_cost(geometry_for(d), facts_of(d), f->req->caps.max_send_wr, &bytes,
			       &half_bytes);
	if (!half)
		return;
	out->number[MEMLOCK_HALF_CQE] = half;
	out->number[MEMLOCK_HALF_BYTES] = half_bytes;
}

/* The request's own part. A program that tries the same again and again is not to pay for it each time. */
static bool explain_again(const struct device *d, const struct failed_creation *f,
			  struct failure_reason *out)
{
	static struct {
		const struct device *device;
		enum guarded_call call;
		int error;
		bool explained;
		struct qp_request req;
		struct device_facts facts;
		struct failure_reason why;
	} last; /* under guard->lock */

	if (d && last.device == d && last.call == f->call && last.error == f->error &&
	    !memcmp(&last.req, f->req, sizeof(last.req)) &&
	    !memcmp(&last.facts, &d->facts, sizeof(last.facts))) {
		*out = last.why;
		return last.explained;
	}
	last.explained = explain_request(geometry_for(d), facts_of(d), kind_of(f->call), f->req,
					 f->error, out);
	last.device = d;
	last.call = f->call;
	last.error = f->error;
	memcpy(&last.req, f->req, sizeof(last.req));
	if (d)
		memcpy(&last.facts, &d->facts, sizeof(last.facts));
	last.why = *out;
	return last.explained;
}

void explain_creation(struct guard *g, const struct device *d, const struct failed_creation *f,
		      struct failure_reason *out)
{
	only_errno(out, f->call, f->error);
	if (explain_again(d, f, out))
		return;
	if (f->call == CALL_CREATE_QP && f->error == EINVAL && explain_cqs(f, out))
		return;
	explain_resources(g, d, f->call, pinned_of(f->bytes), f->error, out);
	note_half(d, f, out);
	if (out->reason == REASON_UNKNOWN && f->error == EINVAL)
		out->number[0] = 1;
}

void note_call_failure(struct guard *g, struct ibv_context *context, enum guarded_call call,
		       void *address, int error)
{
	note_failure_of(g, context, call, address, 0, STATE_NONE, error);
}

void note_failure_of(struct guard *g, struct ibv_context *context, enum guarded_call call,
		     void *address, uint64_t bytes, uint32_t id, int error)
{
	struct qp_caps requested = { .max_send_wr = (uint32_t)(bytes >> 32),
				     .max_recv_wr = (uint32_t)bytes };
	struct failure_reason why;
	struct device *d;
	int saved = errno;

	only_errno(&why, call, error < 0 ? -error : error);
	guard_lock(g);
	d = device_of(g, context);
	if (why.error == EOPNOTSUPP || why.error == ENOSYS || why.error == EPROTONOSUPPORT)
		why.reason = REASON_UNSUPPORTED;
	if (why.error == EBUSY && id != STATE_NONE)
		explain_holders(g, call, id, &why);
	if (bytes)
		explain_resources(g, d, call, (bytes + 4095) / 4096 * 4096, why.error, &why);
	note_failure(g, d, &why, caller_index(g, address), 0, bytes ? &requested : NULL);
	guard_unlock(g);
	errno = saved;
}
