/* SPDX-License-Identifier: MIT */
/*
 * Failures: counted by kind in a bounded number of records, told once as a sentence. What a failed
 * creation is put down to is decided from the request and the device's limits. Under guard->lock.
 */
#include <errno.h>
#include <string.h>

#include "file.h"
#include "guard.h"
#include "log.h"

static bool same_failure(const struct failure_record *f, const struct failure_reason *r,
			 uint16_t device, uint16_t caller, const struct qp_caps *requested)
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

static bool is_creation(unsigned int call)
{
	return call == CALL_CREATE_QP || call == CALL_CREATE_CQ || call == CALL_CREATE_SRQ ||
	       call == CALL_OPEN_DEVICE;
}

void note_failure(struct guard *g, const struct device *d, const struct failure_reason *reason,
		  uint16_t caller, unsigned int qp_type, const struct qp_caps *requested)
{
	static const struct qp_caps nothing;
	uint32_t used = atomic_load_explicit(&g->header->used[KIND_FAILURE], memory_order_relaxed);
	uint16_t device = d ? d->index : UINT16_MAX;
	struct failure_record *f = NULL;
	char line[224];

	if (!requested)
		requested = &nothing;
	if (reason->reason != REASON_BUDGET && is_creation(reason->call))
		atomic_fetch_add_explicit(&g->header->totals.create_failures, 1,
					  memory_order_relaxed);
	for (uint32_t i = 0; i < used && !f; i++) {
		f = file_record(g->file, KIND_FAILURE, i);
		if (!same_failure(f, reason, device, caller, requested))
			f = NULL;
	}
	if (!f)
		f = failure_add(g, reason, device, caller, qp_type, requested);
	if (!f && used)
		f = file_record(g->file, KIND_FAILURE, used - 1);
	if (f) {
		atomic_fetch_add_explicit(&f->count, 1, memory_order_relaxed);
		atomic_store_explicit(&f->last_at, now_ns(), memory_order_relaxed);
	}
	reason_sentence(reason, d ? d->record->name : NULL, line, sizeof(line));
	/* A failed creation is often a probe for what the device can do: the program knows, the report tells. */
	log_line(g, reason->reason == REASON_BUDGET ? LOG_WARN : LOG_INFO, line);
}

/* The first field that is over its limit; a limit of 0 is not known. */
static bool over(struct failure_reason *out, enum reason_field field, uint64_t asked,
		 uint64_t limit)
{
	if (!limit || asked <= limit)
		return false;
	out->reason = REASON_DEVICE_LIMIT;
	out->field = (uint16_t)field;
	out->asked = asked;
	out->limit = limit;
	return true;
}

static void only_errno(struct failure_reason *out, enum guarded_call call, int error)
{
	*out = (struct failure_reason){ .call = (uint8_t)call,
					.error = error,
					.reason = error ? REASON_UNKNOWN : REASON_NO_ERRNO };
}

/* mlx5 takes more requests and SGEs than max_qp_wr and max_sge say, or fewer: there they explain nothing. */
void explain_qp(const struct device *d, const struct qp_request *req, int error,
		struct failure_reason *out)
{
	const struct device_limits *l;
	bool limits_hold;

	only_errno(out, CALL_CREATE_QP, error);
	if (!d)
		return;
	l = &d->record->limits;
	limits_hold = strcmp(d->record->driver, "mlx5") != 0;
	if (limits_hold && over(out, FIELD_MAX_SEND_WR, req->caps.max_send_wr, l->max_qp_wr))
		return;
	if (limits_hold && !req->has_srq &&
	    over(out, FIELD_MAX_RECV_WR, req->caps.max_recv_wr, l->max_qp_wr))
		return;
	if (limits_hold && over(out, FIELD_MAX_SEND_SGE, req->caps.max_send_sge, l->max_sge))
		return;
	if (limits_hold && !req->has_srq)
		over(out, FIELD_MAX_RECV_SGE, req->caps.max_recv_sge, l->max_sge);
}

void explain_cq(const struct device *d, uint32_t cqe, int error, struct failure_reason *out)
{
	only_errno(out, CALL_CREATE_CQ, error);
	if (d)
		over(out, FIELD_CQE, cqe, d->record->limits.max_cqe);
}

void explain_srq(const struct device *d, uint32_t wr, uint32_t sge, int error,
		 struct failure_reason *out)
{
	only_errno(out, CALL_CREATE_SRQ, error);
	if (d && !over(out, FIELD_SRQ_WR, wr, d->record->limits.max_srq_wr))
		over(out, FIELD_SRQ_SGE, sge, d->record->limits.max_srq_sge);
}

void note_call_failure(struct guard *g, struct ibv_context *context, enum guarded_call call,
		       void *address, int error)
{
	struct failure_reason why = { .call = (uint8_t)call,
				      .reason = REASON_UNKNOWN,
				      .error = error < 0 ? -error : error };
	int saved = errno;

	guard_lock(g);
	note_failure(g, device_of(g, context), &why, caller_index(g, address), 0, NULL);
	guard_unlock(g);
	errno = saved;
}
