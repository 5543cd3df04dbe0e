/* SPDX-License-Identifier: MIT */
/*
 * Adds up a state file: see model.h. A running process may destroy objects meanwhile; so the groups
 * are read before and after the records, and all of it again if a group's sums moved. Touches only
 * the reader and its own memory.
 */
#include "model.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define ATTEMPTS 5

uint64_t refusals_of(const struct side_counts *c)
{
	uint64_t sum = 0;

	for (unsigned int i = 0; i < REFUSALS; i++)
		sum += c->refused[i];
	return sum;
}

uint64_t qp_record_bytes(const struct qp_record *r)
{
	return (uint64_t)r->sq_bytes + r->rq_bytes + r->bookkeeping_bytes;
}

const char *basis_name(unsigned int basis)
{
	static const char *const names[] = { NULL, "estimate", "model", "provider" };

	return basis < sizeof(names) / sizeof(names[0]) ? names[basis] : NULL;
}

const char *action_name(unsigned int action)
{
	static const char *const names[] = { "observe", "refuse", "clamp" };

	return action < sizeof(names) / sizeof(names[0]) ? names[action] : "unknown";
}

bool recv_side_absent(unsigned int flags, const struct side_counts *recv)
{
	return flags & QP_HAS_SRQ && !recv->posted && !recv->not_posted && !refusals_of(recv);
}

/* The action of the limits that are set; of all when none is. */
const char *model_action(const struct model *m)
{
	const struct state_budget *b = m->header->budget;
	bool any = false;
	uint32_t first = LOADED(b[0].action);

	for (unsigned int pass = 0; pass < 2 && !any; pass++) {
		for (unsigned int i = 0; i < BUDGET_LIMITS; i++) {
			if (pass == 0 && LOADED(b[i].limit) == UINT64_MAX)
				continue;
			if (!any)
				first = LOADED(b[i].action);
			else if (LOADED(b[i].action) != first)
				return "mixed";
			any = true;
		}
	}
	return action_name(first);
}

/* Sums. */

static uint32_t max32(uint32_t a, uint32_t b)
{
	return a > b ? a : b;
}

static void add_counts(struct side_counts *to, const struct side_counts *c)
{
	to->posted += c->posted;
	to->completed += c->completed;
	to->outstanding += c->outstanding;
	to->discarded += c->discarded;
	to->not_posted += c->not_posted;
	for (unsigned int i = 0; i < REFUSALS; i++)
		to->refused[i] += c->refused[i];
	to->peak_outstanding = max32(to->peak_outstanding, c->peak_outstanding);
	to->peak_sge = max32(to->peak_sge, c->peak_sge);
	to->peak_inline = max32(to->peak_inline, c->peak_inline);
}

static void sums_to_counts(const struct side_sums *s, struct side_counts *out)
{
	*out = (struct side_counts){
		.posted = s->posted,
		.completed = s->completed,
		.discarded = s->discarded,
		.not_posted = s->not_posted,
		.peak_outstanding = s->peak_outstanding,
		.peak_sge = s->peak_sge,
		.peak_inline = s->peak_inline,
	};
	memcpy(out->refused, s->refused, sizeof(out->refused));
}

/* A side of the destroyed members. Which side of a hidden one was hidden is not recorded: where no
 * count is left, it was this one. */
static void add_destroyed(struct side_total *t, const struct group_sums *g,
			  const struct side_sums *s)
{
	struct side_counts c;

	sums_to_counts(s, &c);
	add_counts(&t->counts, &c);
	t->hidden += g->hidden < g->destroyed ? g->hidden : g->destroyed;
	t->visible += g->hidden < g->destroyed ? g->destroyed - g->hidden : 0;
	if (t->visible == 0 && c.posted)
		t->visible = 1;
}

static const struct group_sums *selected_sums(const struct group_record *r)
{
	return &r->sums[LOADED(r->folded) & 1];
}

static bool take_group(void *arg, uint32_t index, const void *record)
{
	struct model *m = arg;
	struct group_view *g;
	const struct group_sums *s;

	if (index >= STATE_MAX_GROUPS)
		return true;
	g = &m->groups[index];
	memset(g, 0, sizeof(*g));
	memcpy(&g->record, record, sizeof(g->record));
	g->used = true;
	s = selected_sums(&g->record);
	g->destroyed = s->destroyed;
	g->completions = s->completions;
	g->flushed_unattributed = s->flushed_unattributed;
	g->peak_bound_wrs = s->peak_bound_wrs;
	g->peak_backlog = s->peak_backlog;
	add_destroyed(&g->send, s, &s->send);
	add_destroyed(&g->recv, s, &s->recv);
	g->polls.hidden = s->hidden;
	g->polls.visible = s->hidden < s->destroyed ? s->destroyed - s->hidden : 0;
	return true;
}

static struct group_view *group_at(struct model *m, uint16_t group, enum state_kind kind)
{
	struct group_view *g = group < STATE_MAX_GROUPS ? &m->groups[group] : NULL;

	return g && g->used && g->record.kind == kind ? g : NULL;
}

/* Destroyed and folded, but killed or read before the record said so. */
static bool folded_already(const struct model *m, uint16_t group, uint32_t id, enum state_kind kind)
{
	const struct group_view *g = group_at((struct model *)m, group, kind);

	return g && LOADED(g->record.folded) >> 1 == id;
}

bool model_qp_is_live(const struct model *m, const struct qp_record *r)
{
	return LOADED(r->state) == RECORD_LIVE && !folded_already(m, r->group, r->id, KIND_QP);
}

bool model_cq_is_live(const struct model *m, const struct cq_record *r)
{
	return LOADED(r->state) == RECORD_LIVE && !folded_already(m, r->group, r->id, KIND_CQ);
}

bool model_srq_is_live(const struct model *m, const struct srq_record *r)
{
	return LOADED(r->state) == RECORD_LIVE && !folded_already(m, r->group, r->id, KIND_SRQ);
}

bool model_wq_is_live(const struct model *m, const struct wq_record *r)
{
	return LOADED(r->state) == RECORD_LIVE && !folded_already(m, r->group, r->id, KIND_WQ);
}

static void add_side(struct side_total *t, const struct side_counts *c, bool hidden)
{
	if (hidden) {
		t->hidden++;
		return;
	}
	t->visible++;
	add_counts(&t->counts, c);
}

static bool take_qp(void *arg, uint32_t index, const void *record)
{
	struct model *m = arg;
	const struct qp_record *r = record;
	struct group_view *g = group_at(m, r->group, KIND_QP);
	struct side_counts send, recv;

	(void)index;
	if (!model_qp_is_live(m, r))
		return true;
	m->live_qps++;
	m->live_bytes += qp_record_bytes(r);
	m->hidden_qps += (r->flags & (QP_SENDS_HIDDEN | QP_RECVS_HIDDEN)) != 0;
	if (!g) {
		m->strays++;
		return true;
	}
	record_send_counts(r, &send);
	record_recv_counts(r, &recv);
	g->seen++;
	add_side(&g->send, &send, r->flags & QP_SENDS_HIDDEN);
	add_side(&g->recv, &recv, r->flags & QP_RECVS_HIDDEN);
	return true;
}

static bool take_cq(void *arg, uint32_t index, const void *record)
{
	struct model *m = arg;
	const struct cq_record *r = record;
	struct group_view *g = group_at(m, r->group, KIND_CQ);
	uint64_t bound = LOADED(r->peak_bound_wrs);

	(void)index;
	if (!model_cq_is_live(m, r))
		return true;
	m->live_cqs++;
	m->live_bytes += LOADED(r->ring_bytes) + LOADED(r->bookkeeping_bytes);
	if (!g) {
		m->strays++;
		return true;
	}
	g->seen++;
	if (r->flags & CQ_POLLS_HIDDEN)
		g->polls.hidden++;
	else
		g->polls.visible++;
	g->completions += LOADED(r->poll_completions) + LOADED(r->other_completions);
	g->flushed_unattributed += LOADED(r->flushed_unattributed);
	g->peak_backlog = max32(g->peak_backlog,
				max32(LOADED(r->peak_backlog), LOADED(r->other_peak_backlog)));
	if (bound > g->peak_bound_wrs)
		g->peak_bound_wrs = bound;
	return true;
}

static bool take_srq(void *arg, uint32_t index, const void *record)
{
	struct model *m = arg;
	const struct srq_record *r = record;
	struct group_view *g = group_at(m, r->group, KIND_SRQ);
	struct side_counts counts;

	(void)index;
	if (!model_srq_is_live(m, r))
		return true;
	m->live_srqs++;
	m->live_bytes += LOADED(r->ring_bytes) + LOADED(r->bookkeeping_bytes);
	if (!g) {
		m->strays++;
		return true;
	}
	record_srq_counts(r, &counts);
	g->seen++;
	add_side(&g->recv, &counts, r->flags & SRQ_HIDDEN);
	return true;
}

static bool take_wq(void *arg, uint32_t index, const void *record)
{
	struct model *m = arg;
	const struct wq_record *r = record;
	struct group_view *g = group_at(m, r->group, KIND_WQ);
	struct side_counts counts;

	(void)index;
	if (!model_wq_is_live(m, r))
		return true;
	m->live_wqs++;
	m->live_bytes += r->ring_bytes + r->bookkeeping_bytes;
	if (!g) {
		m->strays++;
		return true;
	}
	record_wq_counts(r, &counts);
	g->seen++;
	add_side(&g->recv, &counts, r->flags & WQ_HIDDEN);
	return true;
}

/* Records that are kept as they are. */

#define TAKE(function, member, limit)                                                \
	static bool function(void *arg, uint32_t index, const void *record)          \
	{                                                                            \
		struct model *m = arg;                                               \
                                                                                     \
		if (index < (limit))                                                 \
			memcpy(&m->member[index], record, sizeof(m->member[index])); \
		return true;                                                         \
	}
TAKE(take_failure, failures, STATE_MAX_FAILURES)
TAKE(take_device, devices, STATE_MAX_DEVICES)
TAKE(take_module, modules, STATE_MAX_MODULES)
TAKE(take_caller, callers, STATE_MAX_CALLERS)
TAKE(take_event, events, STATE_MAX_EVENTS)
TAKE(take_frame, frames, STATE_MAX_FRAMES)

struct folded_check {
	const struct model *m;
	bool moved;
};

static bool compare_folded(void *arg, uint32_t index, const void *record)
{
	struct folded_check *check = arg;
	const struct group_record *now = record;
	const struct group_view *then = &check->m->groups[index];

	if (index < STATE_MAX_GROUPS && then->used &&
	    LOADED(now->folded) != LOADED(then->record.folded))
		check->moved = true;
	return !check->moved;
}

/* The groups, then the objects, then whether the groups still are what they were. */
static void read_objects(struct model *m)
{
	struct statefile *f = m->file;
	struct folded_check check = { .m = m };
	unsigned int torn, damaged;

	statefile_each(f, KIND_GROUP, take_group, m);
	statefile_each(f, KIND_QP, take_qp, m);
	statefile_each(f, KIND_CQ, take_cq, m);
	statefile_each(f, KIND_SRQ, take_srq, m);
	statefile_each(f, KIND_WQ, take_wq, m);
	torn = f->torn;
	damaged = f->damaged;
	if (f->state == PROCESS_RUNNING)
		statefile_each(f, KIND_GROUP, compare_folded, &check);
	f->torn = torn;
	f->damaged = damaged;
	m->settled = !check.moved;
}

static void read_names(struct model *m)
{
	statefile_each(m->file, KIND_FAILURE, take_failure, m);
	statefile_each(m->file, KIND_DEVICE, take_device, m);
	statefile_each(m->file, KIND_MODULE, take_module, m);
	statefile_each(m->file, KIND_CALLER, take_caller, m);
	statefile_each(m->file, KIND_EVENT, take_event, m);
	statefile_each(m->file, KIND_FRAME, take_frame, m);
}

static void add_refusals(struct model *m)
{
	for (unsigned int i = 0; i < STATE_MAX_GROUPS; i++) {
		const struct group_view *g = &m->groups[i];

		if (!g->used)
			continue;
		m->post_refusals += refusals_of(&g->send.counts) + refusals_of(&g->recv.counts);
		m->not_posted += g->send.counts.not_posted + g->recv.counts.not_posted;
	}
}

bool model_read(struct model *m, struct statefile *f, const char *path)
{
	for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
		const struct timespec pause = { .tv_nsec = 2000000 };

		if (attempt)
			nanosleep(&pause, NULL);
		memset(m, 0, sizeof(*m));
		m->file = f;
		m->header = &f->header;
		m->path = path;
		if (!statefile_refresh(f)) {
			snprintf(m->trouble, sizeof(m->trouble), "%s", f->trouble);
			return false;
		}
		read_objects(m);
		if (m->settled)
			break;
	}
	read_names(m);
	add_refusals(m);
	m->torn = f->torn;
	m->damaged = f->damaged;
	snprintf(m->trouble, sizeof(m->trouble), "%s", f->trouble);
	return true;
}

/* Memory regions. */

unsigned int model_mr_classes(const struct state_mrs *r, unsigned int order[STATE_MR_CLASSES])
{
	unsigned int n = 0;

	for (unsigned int i = 0; i < STATE_MR_CLASSES; i++) {
		unsigned int at = n;

		if (!LOADED(r->sizes[i]))
			continue;
		for (; at && LOADED(r->sizes[order[at - 1]]) < LOADED(r->sizes[i]); at--)
			order[at] = order[at - 1];
		order[at] = i;
		n++;
	}
	return n;
}

uint64_t mr_class_from(unsigned int n)
{
	return n ? UINT64_C(1) << (n - 1) : 0;
}

uint64_t mr_class_to(unsigned int n)
{
	return n == STATE_MR_CLASSES - 1 ? UINT64_MAX : n ? (UINT64_C(1) << n) - 1 : 0;
}

/* DEVX and the connection manager. */

uint64_t model_devx_objects(const struct state_devx *s)
{
	uint64_t sum = 0;

	for (unsigned int i = 0; i < DEVX_OBJECTS; i++)
		sum += LOADED(s->live[i]);
	return sum;
}

const char *devx_kind_name(unsigned int kind)
{
	static const char *const names[] = { "other", "qp",  "cq",  "srq",  "rq", "sq",	  "rmp",
					     "rqt",   "tir", "tis", "mkey", "eq", "umem", "uar" };

	return kind < sizeof(names) / sizeof(names[0]) ? names[kind] : NULL;
}

const char *cm_event_name(unsigned int event)
{
	static const char *const names[STATE_CM_EVENTS] = {
		"addr_resolved",   "addr_error",       "route_resolved", "route_error",
		"connect_request", "connect_response", "connect_error",	 "unreachable",
		"rejected",	   "established",      "disconnected",	 "device_removal",
		"multicast_join",  "multicast_error",  "addr_change",	 "timewait_exit",
		"other",
	};

	return event < STATE_CM_EVENTS ? names[event] : "other";
}

/* Names. */

const struct device_record *model_device(const struct model *m, uint16_t device)
{
	const struct device_record *d = device < STATE_MAX_DEVICES ? &m->devices[device] : NULL;

	return d && LOADED(d->state) != RECORD_FREE && d->name[0] ? d : NULL;
}

const struct caller_record *model_stack(const struct model *m, uint16_t caller)
{
	const struct caller_record *c = caller < STATE_MAX_CALLERS ? &m->callers[caller] : NULL;

	return c && LOADED(c->state) != RECORD_FREE && c->frames <= STATE_STACK_FRAMES ? c : NULL;
}

const struct frame_record *model_frame(const struct model *m, uint16_t frame)
{
	const struct frame_record *f = frame < STATE_MAX_FRAMES ? &m->frames[frame] : NULL;

	return f && LOADED(f->state) != RECORD_FREE ? f : NULL;
}

const struct module_record *model_module(const struct model *m, const struct frame_record *f)
{
	const struct module_record *module =
		f && f->module < STATE_MAX_MODULES ? &m->modules[f->module] : NULL;

	return module && LOADED(module->state) != RECORD_FREE && module->path[0] ? module : NULL;
}

/* libibverbs.so.1, librdmacm.so.1, the direct verbs' libmlx5.so.1, the plugin librxe-rdmav34.so. */
bool module_is_verbs(const struct module_record *module)
{
	static const char *const own[] = { "libqpguard.so", "libibverbs.so", "librdmacm.so",
					   "libmlx5.so",    "libmlx4.so",    "libefa.so",
					   "libhns.so",	    "libmana.so" };
	const char *slash = strrchr(module->path, '/');
	const char *base = slash ? slash + 1 : module->path;

	for (unsigned int i = 0; i < sizeof(own) / sizeof(own[0]); i++)
		if (strncmp(base, own[i], strlen(own[i])) == 0)
			return true;
	return strncmp(base, "lib", 3) == 0 && strstr(base, "-rdmav") != NULL;
}

const struct frame_record *model_who(const struct model *m, uint16_t caller)
{
	const struct caller_record *c = model_stack(m, caller);
	const struct frame_record *first = NULL;

	for (unsigned int i = 0; c && i < c->frames; i++) {
		const struct frame_record *f = model_frame(m, c->frame[i]);
		const struct module_record *module = model_module(m, f);

		if (f && !(module && module_is_verbs(module)))
			return f;
		first = first ? first : f;
	}
	return first;
}

const char *model_holder(const struct model *m, uint16_t caller)
{
	const struct frame_record *f = model_who(m, caller);
	const struct module_record *module = model_module(m, f);

	return module ? module->path : "?";
}
