/* SPDX-License-Identifier: MIT */
/*
 * `qpguard report --check`: the list one goes through before a program goes live, one line a point
 * with its numbers. ok: holds. FAIL: does not. note: cannot be told from what was recorded, or
 * worth a look. Reads the model and single records; looks twice at a running process whose queues
 * are nearly full.
 */
#include "output.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "memory.h"
#include "show.h"
#include "table.h"

#define DETAILS		   4 /* of one point that are told */
#define DETAIL_BYTES	   240
#define TIGHT		   64 /* CQs looked at closely */
#define NEARLY(used, room) ((room) && (used) >= (room) - (room) / 10)
#define SECOND_LOOK_NS	   200000000

enum verdict { OK, NOTE, FAIL };

/* One point of the list while it is gone through. */
struct point {
	const struct model *m;
	enum verdict verdict;
	unsigned int details, more;
	char detail[DETAILS][DETAIL_BYTES];
	/* sums that some points need */
	uint64_t looked_at, number;
	uint32_t stuck[64]; /* QPs that were nearly full at the first look */
	uint64_t stuck_retired[64];
	unsigned int stuck_count;
	bool second_look;
	/* CQs that are too small for the effective depths; what their QPs asked for, or used */
	uint32_t tight[TIGHT];
	uint64_t tight_needed[TIGHT], tight_bound[TIGHT];
	unsigned int tight_count;
};

static void point_begin(struct point *p, const struct model *m)
{
	memset(p, 0, sizeof(*p));
	p->m = m;
}

__attribute__((format(printf, 3, 4))) static void detail(struct point *p, enum verdict verdict,
							 const char *format, ...)
{
	va_list ap;

	if (verdict > p->verdict)
		p->verdict = verdict;
	if (p->details == DETAILS) {
		p->more++;
		return;
	}
	va_start(ap, format);
	vsnprintf(p->detail[p->details++], DETAIL_BYTES, format, ap);
	va_end(ap);
}

__attribute__((format(printf, 3, 4))) static bool point_end(struct text_output *w, struct point *p,
							    const char *format, ...)
{
	static const char *const words[] = { "ok  ", "note", "FAIL" };
	static const enum color colors[] = { GREEN, YELLOW, RED };
	char line[512];
	va_list ap;

	va_start(ap, format);
	vsnprintf(line, sizeof(line), format, ap);
	va_end(ap);
	fprintf(w->out, "  %s%s%s  ", color_on(w->color, colors[p->verdict]), words[p->verdict],
		color_off(w->color));
	print_wrapped(w->out, w->width, 8, 8, line);
	for (unsigned int i = 0; i < p->details; i++) {
		fputs("          ", w->out);
		print_wrapped(w->out, w->width, 10, 12, p->detail[i]);
	}
	if (p->more)
		fprintf(w->out, "          and %u more\n", p->more);
	return p->verdict == FAIL;
}

static const char *device_text(const struct model *m, uint16_t device, char *out, size_t size)
{
	const struct device_record *d = model_device(m, device);

	if (!d)
		return "?";
	return show_text(out, size, d->name, strlen(d->name), ESCAPE_FOR_TERMINAL);
}

/* 1. Caps within the device's limits. */

static void over_limit(struct point *p, uint16_t device, const char *field, uint64_t asked,
		       uint64_t limit, enum verdict verdict, const char *remark)
{
	char name[128];

	p->looked_at++;
	if (limit && asked > limit)
		detail(p, verdict, "%s %" PRIu64 " on %s, whose limit is %" PRIu64 "%s", field,
		       asked, device_text(p->m, device, name, sizeof(name)), limit, remark);
}

static void qp_within(struct point *p, const struct group_record *r, const struct device_record *d)
{
	/* mlx5 takes more requests than the kernel reports, if they are small: its limit is in
	 * blocks */
	bool blocks = strcmp(d->driver, "mlx5") == 0;
	enum verdict verdict = blocks ? NOTE : FAIL;
	const char *remark = blocks ? " (mlx5 counts blocks: no refusal follows)" : "";
	const struct device_limits *l = &d->limits;

	over_limit(p, r->device, "max_send_wr", r->effective.max_send_wr, l->max_qp_wr, verdict,
		   remark);
	if (!(r->qp_flags & QP_HAS_SRQ)) {
		over_limit(p, r->device, "max_recv_wr", r->effective.max_recv_wr, l->max_qp_wr,
			   verdict, remark);
		over_limit(p, r->device, "max_recv_sge", r->requested.max_recv_sge, l->max_sge,
			   FAIL, "");
	}
	over_limit(p, r->device, "max_send_sge", r->requested.max_send_sge, l->max_sge, FAIL, "");
}

static void group_within(struct point *p, const struct group_record *r)
{
	const struct device_record *d = model_device(p->m, r->device);
	char name[128];

	if (!d || !LOADED(d->known)) {
		detail(p, NOTE, "the limits of %s are not known",
		       device_text(p->m, r->device, name, sizeof(name)));
		return;
	}
	if (r->kind == KIND_QP)
		qp_within(p, r, d);
	else if (r->kind == KIND_CQ)
		over_limit(p, r->device, "cqe", r->requested.max_send_wr, d->limits.max_cqe, FAIL,
			   "");
	else if (r->kind == KIND_SRQ)
		over_limit(p, r->device, "SRQ max_wr", r->requested.max_recv_wr,
			   d->limits.max_srq_wr, FAIL, "");
}

static bool check_device_limits(struct text_output *w, struct model *m, struct point *p)
{
	point_begin(p, m);
	for (unsigned int i = 0; i < STATE_MAX_GROUPS; i++)
		if (m->groups[i].used && !(m->groups[i].record.flags & GROUP_OTHER))
			group_within(p, &m->groups[i].record);
	return point_end(w, p, "caps are within the device's limits (%" PRIu64 " compared)",
			 p->looked_at);
}

/* 2. Effective caps were read back, and the sum of bytes is made of them. */

static bool less_than_asked(const struct qp_caps *effective, const struct qp_caps *submitted,
			    bool srq)
{
	return effective->max_send_wr < submitted->max_send_wr ||
	       effective->max_send_sge < submitted->max_send_sge ||
	       (!srq && (effective->max_recv_wr < submitted->max_recv_wr ||
			 effective->max_recv_sge < submitted->max_recv_sge));
}

static bool effective_of_qp(void *arg, uint32_t index, const void *record)
{
	struct point *p = arg;
	const struct qp_record *r = record;

	(void)index;
	if (!model_qp_is_live(p->m, r))
		return true;
	p->looked_at++;
	p->number += r->basis == BASIS_ESTIMATE;
	if (less_than_asked(&r->effective, &r->submitted, r->flags & QP_HAS_SRQ))
		detail(p, FAIL,
		       "QP %" PRIu32 ": got %" PRIu32 "/%" PRIu32 " WRs and %" PRIu32 "/%" PRIu32
		       " SGEs, submitted %" PRIu32 "/%" PRIu32 " and %" PRIu32 "/%" PRIu32,
		       r->id, r->effective.max_send_wr, r->effective.max_recv_wr,
		       r->effective.max_send_sge, r->effective.max_recv_sge,
		       r->submitted.max_send_wr, r->submitted.max_recv_wr,
		       r->submitted.max_send_sge, r->submitted.max_recv_sge);
	return true;
}

static bool check_effective(struct text_output *w, struct model *m, struct point *p)
{
	uint64_t total = LOADED(m->header->totals.bytes);
	char sum[SHOW_BYTES], said[SHOW_BYTES];

	point_begin(p, m);
	statefile_each(m->file, KIND_QP, effective_of_qp, p);
	if (p->number)
		detail(p, NOTE,
		       "bytes of %" PRIu64 " QPs are an estimate: no model of their driver",
		       p->number);
	if (LOADED(m->header->totals.unrecorded))
		detail(p, NOTE, "%" PRIu64 " objects have no record: no room in the state file",
		       LOADED(m->header->totals.unrecorded));
	else if (m->live_bytes != total)
		detail(p, m->file->state == PROCESS_EXITED && !m->torn ? FAIL : NOTE,
		       "the records add up to %s, the totals say %s%s",
		       show_size(sum, m->live_bytes), show_size(said, total),
		       m->file->state == PROCESS_RUNNING ? ": it may have moved meanwhile" : "");
	return point_end(w, p,
			 "effective caps were read back and make the sum (%" PRIu64
			 " living QPs, %s with CQs and SRQs)",
			 p->looked_at, show_size(sum, m->live_bytes));
}

/* 3. Each CQ holds what can be outstanding on it. */

/* The QPs of a CQ that is too small for their effective depths: what they asked for, or used. */
static void needed_on(struct point *p, uint32_t cq, uint32_t asked, uint32_t effective,
		      uint32_t peak)
{
	for (unsigned int i = 0; i < p->tight_count; i++)
		if (p->tight[i] == cq) {
			p->tight_needed[i] += asked > peak ? asked : peak;
			p->tight_bound[i] += effective;
		}
}

static bool needed_by_qp(void *arg, uint32_t index, const void *record)
{
	struct point *p = arg;
	const struct qp_record *r = record;
	struct side_counts send, recv;

	(void)index;
	if (!model_qp_is_live(p->m, r))
		return true;
	record_send_counts(r, &send);
	record_recv_counts(r, &recv);
	needed_on(p, r->send_cq, r->requested.max_send_wr, r->effective.max_send_wr,
		  send.peak_outstanding);
	if (!(r->flags & QP_HAS_SRQ))
		needed_on(p, r->recv_cq, r->requested.max_recv_wr, r->effective.max_recv_wr,
			  recv.peak_outstanding);
	return true;
}

static bool tight_cq(void *arg, uint32_t index, const void *record)
{
	struct point *p = arg;
	const struct cq_record *r = record;

	(void)index;
	if (model_cq_is_live(p->m, r) && p->tight_count < TIGHT &&
	    LOADED(r->bound_send_wrs) + LOADED(r->bound_recv_wrs) > LOADED(r->effective_cqe))
		p->tight[p->tight_count++] = r->id;
	return true;
}

/* Whether it holds what was asked and used so far, so that only a provider's rounding is too much:
 * if all QPs that are bound to it were found. */
static bool rounding_alone(const struct point *p, const struct cq_record *r)
{
	for (unsigned int i = 0; i < p->tight_count; i++)
		if (p->tight[i] == r->id)
			return p->tight_needed[i] <= LOADED(r->effective_cqe) &&
			       p->tight_bound[i] ==
				       LOADED(r->bound_send_wrs) + LOADED(r->bound_recv_wrs);
	return false;
}

/* Whether a QP of this device got more than it asked for. */
static bool rounds_up(const struct model *m, uint16_t device)
{
	for (unsigned int i = 0; i < STATE_MAX_GROUPS; i++) {
		const struct group_record *r = &m->groups[i].record;

		if (m->groups[i].used && r->kind == KIND_QP && r->device == device &&
		    (r->effective.max_send_wr > r->requested.max_send_wr ||
		     (!(r->qp_flags & QP_HAS_SRQ) &&
		      r->effective.max_recv_wr > r->requested.max_recv_wr)))
			return true;
	}
	return false;
}

#define ROUNDING                                                                                 \
	": the depths asked fit, the provider rounded them up. A program that posts as deep as " \
	"it got overruns it"
#define ROUNDING_GONE ": as the provider rounds depths up, what was asked may have fit"

static bool room_of_cq(void *arg, uint32_t index, const void *record)
{
	struct point *p = arg;
	const struct cq_record *r = record;
	uint64_t send = LOADED(r->bound_send_wrs), recv = LOADED(r->bound_recv_wrs);
	uint64_t peak = LOADED(r->peak_bound_wrs);
	uint32_t cqe = LOADED(r->effective_cqe);
	bool only_rounded;

	(void)index;
	if (!model_cq_is_live(p->m, r))
		return true;
	p->looked_at++;
	if (send + recv > cqe) {
		only_rounded = rounding_alone(p, r);
		detail(p, only_rounded ? NOTE : FAIL,
		       "CQ %" PRIu32 ": %" PRIu64 " send + %" PRIu64
		       " receive WRs are bound, it holds %" PRIu32 "%s",
		       r->id, send, recv, cqe, only_rounded ? ROUNDING : "");
	} else if (peak > cqe) {
		only_rounded = rounds_up(p->m, r->device);
		detail(p, only_rounded ? NOTE : FAIL,
		       "CQ %" PRIu32 ": %" PRIu64 " WRs were bound, it holds %" PRIu32 "%s", r->id,
		       peak, cqe, only_rounded ? ROUNDING_GONE : "");
	}
	return true;
}

static void room_of_ended(struct point *p, const struct group_view *g)
{
	const struct group_sums *s = &g->record.sums[LOADED(g->record.folded) & 1];
	bool only_rounded;

	if (!g->used || g->record.kind != KIND_CQ || g->record.flags & GROUP_OTHER || !s->destroyed)
		return;
	p->looked_at += s->destroyed;
	if (s->peak_bound_wrs <= g->record.effective.max_send_wr)
		return;
	only_rounded = rounds_up(p->m, g->record.device);
	detail(p, only_rounded ? NOTE : FAIL,
	       "%" PRIu64 " destroyed CQs of %" PRIu32 ": up to %" PRIu64
	       " WRs were bound to one%s",
	       s->destroyed, g->record.effective.max_send_wr, s->peak_bound_wrs,
	       only_rounded ? ROUNDING_GONE : "");
}

static bool check_cq_room(struct text_output *w, struct model *m, struct point *p)
{
	point_begin(p, m);
	statefile_each(m->file, KIND_CQ, tight_cq, p);
	if (p->tight_count)
		statefile_each(m->file, KIND_QP, needed_by_qp, p);
	statefile_each(m->file, KIND_CQ, room_of_cq, p);
	for (unsigned int i = 0; i < STATE_MAX_GROUPS; i++)
		room_of_ended(p, &m->groups[i]);
	return point_end(w, p,
			 "each CQ holds the send and receive WRs bound to it (%" PRIu64 " CQs)",
			 p->looked_at);
}

/* 4. The memory there is. */

static void against(struct point *p, const char *what, uint64_t bytes, uint64_t limit,
		    enum verdict verdict)
{
	char used[SHOW_BYTES], room[SHOW_BYTES];

	if (limit == UINT64_MAX)
		return;
	p->looked_at++;
	show_size(used, bytes);
	show_size(room, limit);
	if (bytes > limit)
		detail(p, verdict, "%s is %s, the queues took %s", what, room, used);
	else if (NEARLY(bytes, limit))
		detail(p, NOTE, "%s is %s, the queues took %s: less than a tenth is left", what,
		       room, used);
	else
		detail(p, OK, "%s is %s", what, room);
}

/* The queues of rxe are the kernel's own memory, which no process pins. */
static bool pins_memory(const struct model *m)
{
	for (unsigned int i = 0; i < STATE_MAX_DEVICES; i++) {
		const struct device_record *d = model_device(m, (uint16_t)i);

		if (d && strcmp(d->driver, "rxe") != 0)
			return true;
	}
	return false;
}

static bool of_this_host(const struct state_header *h)
{
	char host[sizeof(h->host)] = "";

	return gethostname(host, sizeof(host) - 1) == 0 && strcmp(host, h->host) == 0;
}

static bool check_memory(struct text_output *w, struct model *m, struct point *p)
{
	const struct state_header *h = m->header;
	uint64_t peak = LOADED(h->totals.peak_bytes), qps = LOADED(h->totals.peak_qps);
	char bytes[SHOW_BYTES], each[SHOW_BYTES];

	point_begin(p, m);
	if (h->uid != 0 && pins_memory(m)) /* root's CAP_IPC_LOCK lifts the limit */
		against(p, "RLIMIT_MEMLOCK", peak, h->memlock_bytes, FAIL);
	against(p, "the cgroup's memory.max", peak, h->cgroup_memory_max, FAIL);
	if (of_this_host(h))
		against(p, "the memory of this host", peak, host_memory(), FAIL);
	if (qps == 0)
		return point_end(w, p, "the queues fit the memory there is: no QP was made");
	return point_end(w, p,
			 "the queues fit the memory there is: at most %" PRIu64
			 " QP%s with CQs took %s, %s a QP",
			 qps, qps == 1 ? "" : "s", show_size(bytes, peak),
			 show_size(each, peak / qps));
}

/* 5. Refusals 0. */

static void refused_side(struct point *p, const struct group_view *g, const char *queue,
			 const struct side_total *t)
{
	uint64_t calls = refusals_of(&t->counts);
	char name[128];

	if (calls)
		detail(p, FAIL,
		       "%s queues of %s %s: %" PRIu64 " calls refused, %" PRIu64
		       " requests not posted",
		       queue, device_text(p->m, g->record.device, name, sizeof(name)),
		       g->record.kind == KIND_SRQ  ? "SRQs"
		       : g->record.kind == KIND_WQ ? "WQs"
						   : qp_type_name(g->record.type),
		       calls, t->counts.not_posted);
	if (t->hidden)
		p->number += t->hidden;
}

static bool check_refusals(struct text_output *w, struct model *m, struct point *p)
{
	const struct state_totals *t = &m->header->totals;
	uint64_t observed = 0;

	point_begin(p, m);
	for (unsigned int i = 0; i < STATE_MAX_GROUPS; i++) {
		if (!m->groups[i].used || m->groups[i].record.kind == KIND_CQ)
			continue;
		refused_side(p, &m->groups[i], "send", &m->groups[i].send);
		refused_side(p, &m->groups[i], "receive", &m->groups[i].recv);
	}
	for (unsigned int i = 0; i < BUDGET_LIMITS; i++)
		observed += LOADED(m->header->budget[i].refusals);
	if (LOADED(t->create_failures))
		detail(p, FAIL, "creations that failed: %" PRIu64, LOADED(t->create_failures));
	if (LOADED(t->budget_refusals))
		detail(p, FAIL, "creations refused by budget: %" PRIu64,
		       LOADED(t->budget_refusals));
	else if (observed)
		detail(p, NOTE, "creations beyond a budget that only observes: %" PRIu64, observed);
	if (p->number)
		detail(p, NOTE, "of %" PRIu64 " queues the posts are not seen", p->number);
	return point_end(w, p,
			 "no refusals (%" PRIu64 " posts, %" PRIu64 " creations, %" PRIu64
			 " by budget)",
			 m->post_refusals, LOADED(t->create_failures), LOADED(t->budget_refusals));
}

/* 6. Completions do not pile up. */

/* A send queue nearly full is one in good use, unless nothing has left it at the second look. */
static void look_at_sends(struct point *p, const struct qp_record *r)
{
	uint64_t retired = record_send_retired(r), outstanding = record_send_outstanding(r);

	if (!NEARLY(outstanding, r->effective.max_send_wr))
		return;
	if (!p->second_look) {
		if (p->stuck_count < 64) {
			p->stuck[p->stuck_count] = r->id;
			p->stuck_retired[p->stuck_count++] = retired;
		}
		return;
	}
	for (unsigned int i = 0; i < p->stuck_count; i++)
		if (p->stuck[i] == r->id && p->stuck_retired[i] == retired)
			detail(p, p->m->file->state == PROCESS_RUNNING ? FAIL : NOTE,
			       "QP %" PRIu32 ": %" PRIu64 " of %" PRIu32 " sends outstanding%s",
			       r->id, outstanding, r->effective.max_send_wr,
			       p->m->file->state == PROCESS_RUNNING ? " and none completes"
								    : " at the end");
}

static bool sends_of_qp(void *arg, uint32_t index, const void *record)
{
	struct point *p = arg;
	const struct qp_record *r = record;

	(void)index;
	if (model_qp_is_live(p->m, r) && !(r->flags & QP_SENDS_HIDDEN)) {
		p->looked_at += !p->second_look;
		look_at_sends(p, r);
	}
	return true;
}

/* A long stretch is a poller that is behind, or one that takes few at a time while more arrive: the
 * fill of a CQ cannot be seen, so this alone fails nobody. */
static bool backlog_of_cq(void *arg, uint32_t index, const void *record)
{
	struct point *p = arg;
	const struct cq_record *r = record;
	uint32_t backlog = LOADED(r->peak_backlog), other = LOADED(r->other_peak_backlog);
	uint32_t cqe = LOADED(r->effective_cqe);

	(void)index;
	if (other > backlog)
		backlog = other;
	if (!model_cq_is_live(p->m, r) || r->flags & CQ_POLLS_HIDDEN)
		return true;
	if (NEARLY(backlog, cqe))
		detail(p, NOTE,
		       "CQ %" PRIu32 ": %" PRIu32
		       " completions were taken at a stretch, it holds %" PRIu32,
		       r->id, backlog, cqe);
	return true;
}

static void backlog_of_ended(struct point *p)
{
	for (unsigned int i = 0; i < STATE_MAX_GROUPS; i++) {
		const struct group_view *g = &p->m->groups[i];
		const struct group_sums *s = &g->record.sums[LOADED(g->record.folded) & 1];

		if (!g->used || g->record.kind != KIND_CQ || g->record.flags & GROUP_OTHER ||
		    !s->destroyed)
			continue;
		if (NEARLY(s->peak_backlog, g->record.effective.max_send_wr))
			detail(p, NOTE,
			       "destroyed CQs of %" PRIu32 ": %" PRIu32
			       " completions were taken at a stretch",
			       g->record.effective.max_send_wr, s->peak_backlog);
	}
}

static bool check_completions(struct text_output *w, struct model *m, struct point *p)
{
	const struct timespec pause = { .tv_nsec = SECOND_LOOK_NS };

	point_begin(p, m);
	statefile_each(m->file, KIND_QP, sends_of_qp, p);
	if (p->stuck_count && m->file->state == PROCESS_RUNNING)
		nanosleep(&pause, NULL);
	p->second_look = true;
	if (p->stuck_count)
		statefile_each(m->file, KIND_QP, sends_of_qp, p);
	statefile_each(m->file, KIND_CQ, backlog_of_cq, p);
	backlog_of_ended(p);
	return point_end(w, p, "completions do not pile up (%" PRIu64 " living QPs)", p->looked_at);
}

/* 7. Whether the numbers are whole. */

static bool check_record(struct text_output *w, struct model *m, struct point *p)
{
	const struct state_header *h = m->header;

	point_begin(p, m);
	if (m->trouble[0])
		detail(p, FAIL, "the file %s", m->trouble);
	if (LOADED(h->incomplete))
		detail(p, NOTE, "the state file could not grow: later objects are not in it");
	if (m->torn || m->damaged || m->strays)
		detail(p, NOTE, "%u records left out: %u being written, %u damaged",
		       m->torn + m->damaged + m->strays, m->torn, m->damaged + m->strays);
	if (LOADED(h->inherited_uses[INHERITED_DESTROYED]))
		detail(p, FAIL,
		       "%" PRIu64 " QPs of process %" PRIu32 " were destroyed by this forked child",
		       LOADED(h->inherited_uses[INHERITED_DESTROYED]), h->parent_pid);
	if (LOADED(h->inherited_uses[INHERITED_POSTS]) ||
	    LOADED(h->inherited_uses[INHERITED_COMPLETIONS]))
		detail(p, NOTE,
		       "queues of process %" PRIu32 ", which forked this one, are used here: "
		       "those posts and completions are in nobody's counts",
		       h->parent_pid);
	if (LOADED(h->policy_complaints))
		detail(p, FAIL, "%" PRIu32 " faults in the policy: see `qpguard policy`",
		       LOADED(h->policy_complaints));
	return point_end(w, p, "the policy is free of faults and the record is whole");
}

unsigned int check_process(struct text_output *w, struct model *m)
{
	static bool (*const points[])(struct text_output *, struct model *, struct point *) = {
		check_device_limits, check_effective,	check_cq_room, check_memory,
		check_refusals,	     check_completions, check_record,
	};
	char comm[80], host[300];
	unsigned int failed = 0;
	struct point p;

	show_text(comm, sizeof(comm), m->header->comm, strlen(m->header->comm),
		  ESCAPE_FOR_TERMINAL);
	show_text(host, sizeof(host), m->header->host, strlen(m->header->host),
		  ESCAPE_FOR_TERMINAL);
	fprintf(w->out, "%s%s%s%s, pid %" PRIu32 " on %s: %s\n", w->processes++ ? "\n" : "",
		color_on(w->color, BOLD), comm, color_off(w->color), m->header->pid, host,
		process_state_names[m->file->state]);
	for (size_t i = 0; i < sizeof(points) / sizeof(points[0]); i++)
		failed += points[i](w, m, &p);
	return failed;
}
