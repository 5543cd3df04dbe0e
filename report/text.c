/* SPDX-License-Identifier: MIT */
/*
 * A model as text for whoever is on call: who, in what state, how much in all, then a line for each
 * group of like QPs, the CQs, the SRQs, what failed and why, and the budgets that are set. Fits 80
 * columns and uses 120. Names of the process are data and are shown escaped.
 */
#include "output.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "names.h"
#include "show.h"
#include "table.h"
#include "tool.h"

/* Single CQs and SRQs that are listed without --verbose. */
#define LISTED 24
/* Log lines that are shown without --verbose. */
#define EVENTS 6

void text_output_begin(struct text_output *w, FILE *out, bool verbose)
{
	const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM");

	memset(w, 0, sizeof(*w));
	w->out = out;
	w->width = terminal_width(out);
	w->verbose = verbose;
	w->color = isatty(fileno(out)) && !(no_color && *no_color) &&
		   !(term && strcmp(term, "dumb") == 0);
}

/* Small parts. */

static const char *plural(uint64_t n)
{
	return n == 1 ? "" : "s";
}

static char *safe(char *out, size_t size, const char *text)
{
	return show_text(out, size, text, strlen(text), ESCAPE_FOR_TERMINAL);
}

static void heading(const struct text_output *w, const char *title, const char *legend)
{
	fprintf(w->out, "\n%s%s%s%s%s\n", color_on(w->color, BOLD), title, color_off(w->color),
		*legend ? "   " : "", legend);
}

static void device_cell(struct table *t, const struct model *m, uint16_t device)
{
	const struct device_record *d = model_device(m, device);
	char name[TABLE_CELL];

	table_cell(t, PLAIN, "%s", d ? safe(name, 32, d->name) : "?");
}

/* `flags` are those of a record or a group: LIBRARY_OWNED is all that matters here. */
static void caller_cell(struct table *t, const struct model *m, uint16_t caller, unsigned int flags)
{
	char name[1024];
	const char *text = caller_text(m, caller, ESCAPE_FOR_TERMINAL, name, sizeof(name));
	size_t len = text ? strlen(text) : 0, most = 48;

	/* the end tells more than the start; a cut character would be no UTF-8 */
	if (len > most)
		for (text += len - most; ((unsigned char)*text & 0xc0) == 0x80;)
			text++;
	table_cell(t, PLAIN, "%s%s", text ? text : "?", flags & LIBRARY_OWNED ? " for itself" : "");
}

/* A single device stands in the lines above and is the first column to go; else nearly the last. */
static unsigned char device_drop(const struct model *m)
{
	unsigned int devices = 0;

	for (unsigned int i = 0; i < STATE_MAX_DEVICES; i++)
		devices += model_device(m, (uint16_t)i) != NULL;
	return devices < 2 ? 9 : 3;
}

/* "128x4/512x1+64": WRs x SGEs of the send and of the receive queue, inline bytes. */
static void caps_cell(struct table *t, const struct qp_caps *c, bool srq)
{
	char inline_data[16] = "", recv[32] = "srq";

	if (c->max_inline_data)
		snprintf(inline_data, sizeof(inline_data), "+%" PRIu32, c->max_inline_data);
	if (!srq)
		snprintf(recv, sizeof(recv), "%" PRIu32 "x%" PRIu32, c->max_recv_wr,
			 c->max_recv_sge);
	table_cell(t, PLAIN, "%" PRIu32 "x%" PRIu32 "/%s%s", c->max_send_wr, c->max_send_sge, recv,
		   inline_data);
}

static void side_peak(char *out, size_t size, const struct side_total *t)
{
	if (t->hidden && !t->visible)
		snprintf(out, size, "?");
	else
		snprintf(out, size, "%" PRIu32, t->counts.peak_outstanding);
}

static bool reached(const struct side_total *t, uint32_t depth)
{
	return depth && t->counts.peak_outstanding >= depth;
}

/* Peak use of the send and the receive queues: "97/512"; "not seen" when neither could be. */
static void peak_cell(struct table *t, const struct side_total *send, const struct side_total *recv,
		      const struct qp_caps *effective, bool no_recv)
{
	char s[16], r[16];
	bool send_hidden = send->hidden && !send->visible;
	bool recv_hidden = no_recv || (recv->hidden && !recv->visible);

	if (send_hidden && recv_hidden) {
		table_cell(t, YELLOW, "not seen");
		return;
	}
	side_peak(s, sizeof(s), send);
	side_peak(r, sizeof(r), recv);
	/* a full receive queue is one that was filled on purpose */
	table_cell(t, reached(send, effective->max_send_wr) ? YELLOW : PLAIN, "%s/%s", s,
		   no_recv ? "srq" : r);
}

static void size_cell(struct table *t, uint64_t bytes)
{
	char buf[SHOW_BYTES];

	table_cell(t, PLAIN, "%s", show_size(buf, bytes));
}

static void refused_cell(struct table *t, uint64_t refused)
{
	char buf[SHOW_BYTES];

	table_cell(t, refused ? RED : PLAIN, "%s", show_count(buf, refused));
}

/* "send: queue_full 3, too_many_sge 1, 12 requests not posted" for a side that was refused. */
static size_t refusals_text(char *out, size_t size, const char *side, const struct side_counts *c)
{
	static const char *const reasons[REFUSALS] = {
		"queue full",
		"queue full (provider says so early)",
		"too many SGEs",
		"inline too big",
		"bad state",
		"other",
		"on purpose ([inject])",
	};
	size_t used = 0;
	char buf[SHOW_BYTES];

	if (!refusals_of(c))
		return 0;
	used += (size_t)snprintf(out, size, "%s refused:", side);
	for (unsigned int i = 0; i < REFUSALS; i++)
		if (c->refused[i] && used < size)
			used += (size_t)snprintf(out + used, size - used, " %s %s,", reasons[i],
						 show_count(buf, c->refused[i]));
	if (used < size)
		used += (size_t)snprintf(out + used, size - used, " %s request%s not posted",
					 show_count(buf, c->not_posted), plural(c->not_posted));
	return used < size ? used : size - 1;
}

static void refusals_note(struct table *t, const struct side_counts *send,
			  const struct side_counts *recv)
{
	char text[TABLE_NOTE];
	size_t used = refusals_text(text, sizeof(text), "sends", send);

	if (used && refusals_of(recv) && used + 2 < sizeof(text))
		used += (size_t)snprintf(text + used, sizeof(text) - used, "; ");
	if (refusals_of(recv))
		used += refusals_text(text + used, sizeof(text) - used, "receives", recv);
	if (used)
		table_note(t, "%s", text);
}

/* The process. */

static enum color state_color(enum process_state s)
{
	static const enum color colors[] = { GREEN, PLAIN, RED, YELLOW };

	return colors[s];
}

static void print_state(const struct text_output *w, const struct model *m)
{
	const struct state_header *h = m->header;
	const struct ended *e = &m->file->ended;
	uint64_t ended_at = LOADED(h->ended_at) ? LOADED(h->ended_at) : e->at;
	uint64_t now = clock_now();
	char since[SHOW_BYTES], span[SHOW_BYTES];

	fprintf(w->out, "%s%s%s", color_on(w->color, state_color(m->file->state)),
		process_state_names[m->file->state], color_off(w->color));
	if (m->file->state == PROCESS_UNKNOWN)
		fprintf(w->out, " (its pid now runs another program)");
	if (e->known && e->signal)
		fprintf(w->out, " of signal %d", e->signal);
	else if (e->known)
		fprintf(w->out, " with status %d", e->exit_code);
	fprintf(w->out, ", from %s", show_time(since, h->started_at));
	if (m->file->state == PROCESS_RUNNING && now > h->started_at)
		fprintf(w->out, " (%s)", show_span(span, now - h->started_at));
	else if (ended_at > h->started_at)
		fprintf(w->out, " (for %s)", show_span(span, ended_at - h->started_at));
	fputc('\n', w->out);
}

static void print_line(const struct text_output *w, const char *name, const char *text)
{
	fprintf(w->out, "  %-9s ", name);
	print_wrapped(w->out, w->width, 12, 12, text);
}

static void print_labels(const struct text_output *w, const char *labels)
{
	char raw[1024 + 256], text[4 * 1024];
	size_t used = 0;

	for (; *labels && used + 2 < sizeof(raw); labels++) {
		raw[used++] = *labels;
		if (*labels == ',')
			raw[used++] = ' ';
	}
	raw[used] = '\0';
	print_line(w, "labels", safe(text, sizeof(text), raw));
}

static void print_devices(const struct text_output *w, const struct model *m)
{
	char text[2048], name[160], driver[160], firmware[160];
	size_t used = 0;

	for (unsigned int i = 0; i < STATE_MAX_DEVICES && used + 600 < sizeof(text); i++) {
		const struct device_record *d = model_device(m, (uint16_t)i);

		if (!d)
			continue;
		used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s (%s%s%s)",
					 used ? ", " : "", safe(name, sizeof(name), d->name),
					 d->driver[0] ? safe(driver, sizeof(driver), d->driver)
						      : "driver not known",
					 d->firmware[0] ? ", firmware " : "",
					 safe(firmware, sizeof(firmware), d->firmware));
	}
	if (used)
		print_line(w, "devices", text);
}

/* A forked child: what it has of its parent, and what it did with that. */
static void print_parent(const struct text_output *w, const struct state_header *h)
{
	uint64_t posts = LOADED(h->inherited_uses[INHERITED_POSTS]);
	uint64_t completions = LOADED(h->inherited_uses[INHERITED_COMPLETIONS]);
	uint64_t modified = LOADED(h->inherited_uses[INHERITED_MODIFIED]);
	uint64_t destroyed = LOADED(h->inherited_uses[INHERITED_DESTROYED]);
	char text[320], b[4][SHOW_BYTES];

	snprintf(text, sizeof(text),
		 "forked by the guarded process %" PRIu32 ", which then had %" PRIu32
		 " QP%s, %" PRIu32 " CQ%s, %" PRIu32 " SRQ%s",
		 h->parent_pid, h->inherited_qps, plural(h->inherited_qps), h->inherited_cqs,
		 plural(h->inherited_cqs), h->inherited_srqs, plural(h->inherited_srqs));
	print_line(w, "parent", text);
	if (!posts && !completions && !modified && !destroyed)
		return;
	snprintf(text, sizeof(text),
		 "and used them: %s post%s, %s completion%s taken, %s QP%s modified, %s destroyed; "
		 "in nobody's counts",
		 show_count(b[0], posts), plural(posts), show_count(b[1], completions),
		 plural(completions), show_count(b[2], modified), plural(modified),
		 show_count(b[3], destroyed));
	print_line(w, "", text);
}

static void print_who(const struct text_output *w, const struct model *m)
{
	const struct state_header *h = m->header;
	char comm[80], host[300], text[4400], file[2100];

	safe(comm, sizeof(comm), h->comm[0] ? h->comm : "(no name)");
	safe(host, sizeof(host), h->host[0] ? h->host : "unknown host");
	fprintf(w->out, "%s%s%s, pid %" PRIu32 " on %s, uid %" PRIu32 ": ",
		color_on(w->color, BOLD), comm, color_off(w->color), h->pid, host, h->uid);
	print_state(w, m);
	if (h->exe[0])
		print_line(w, "program", safe(text, sizeof(text), h->exe));
	if (h->parent_pid)
		print_parent(w, h);
	if (h->labels[0])
		print_labels(w, h->labels);
	snprintf(text, sizeof(text), "%s, action %s, %s%s",
		 h->guard_version[0] ? safe(file, sizeof(file), h->guard_version)
				     : "unknown version",
		 model_action(m), h->policy_file[0] ? "policy " : "no policy file",
		 safe(file + 200, sizeof(file) - 200, h->policy_file));
	print_line(w, "guard", text);
	if (LOADED(h->policy_complaints)) {
		snprintf(text, sizeof(text),
			 "%" PRIu32 " fault%s in the policy: see `qpguard policy`",
			 LOADED(h->policy_complaints), plural(LOADED(h->policy_complaints)));
		print_line(w, "", text);
	}
	print_devices(w, m);
	print_line(w, "file", safe(text, sizeof(text), m->path));
}

/* "3 QPs (5 made, peak 4), 2 CQs, 1 SRQ" and what they take. */
static void print_totals(const struct text_output *w, const struct model *m)
{
	const struct state_totals *t = &m->header->totals;
	uint64_t qps = LOADED(t->live_qps), cqs = LOADED(t->live_cqs), srqs = LOADED(t->live_srqs);
	char text[512], now[SHOW_BYTES], peak[SHOW_BYTES], b[4][SHOW_BYTES], wqs[40] = "";

	if (LOADED(m->header->wqs.created))
		snprintf(wqs, sizeof(wqs), ", %" PRIu64 " WQ%s", LOADED(m->header->wqs.live),
			 plural(LOADED(m->header->wqs.live)));
	snprintf(text, sizeof(text),
		 "%s QP%s (%s made, peak %s), %s CQ%s, %" PRIu64
		 " SRQ%s%s; %s of queue memory (peak %s)",
		 show_count(b[0], qps), plural(qps), show_count(b[1], LOADED(t->created_qps)),
		 show_count(b[2], LOADED(t->peak_qps)), show_count(b[3], cqs), plural(cqs), srqs,
		 plural(srqs), wqs, show_size(now, LOADED(t->bytes)),
		 show_size(peak, LOADED(t->peak_bytes)));
	print_line(w, "totals", text);
	snprintf(text, sizeof(text),
		 "%s post%s refused, %s creation%s failed, %s refused by budget, %s clamped",
		 show_count(b[0], m->post_refusals), plural(m->post_refusals),
		 show_count(b[1], LOADED(t->create_failures)), plural(LOADED(t->create_failures)),
		 show_count(b[2], LOADED(t->budget_refusals)),
		 show_count(b[3], LOADED(t->clamped)));
	print_line(w, "", text);
}

/* "3 MRs (12 registered, peak 5) of 8 MiB (peak 16 MiB), most of 4 KiB to 8 KiB (9)". */
static void print_mrs(const struct text_output *w, const struct model *m)
{
	const struct state_mrs *r = &m->header->mrs;
	unsigned int order[STATE_MR_CLASSES], n = model_mr_classes(r, order);
	uint64_t live = LOADED(r->live), dms = LOADED(r->peak_dms);
	char text[512], b[8][SHOW_BYTES];
	size_t used;

	if (!n && !dms)
		return;
	used = (size_t)snprintf(
		text, sizeof(text), "%s MR%s (%s registered, peak %s) of %s (peak %s)",
		show_count(b[0], live), plural(live), show_count(b[1], LOADED(r->registered)),
		show_count(b[2], LOADED(r->peak)), show_size(b[3], LOADED(r->bytes)),
		show_size(b[4], LOADED(r->peak_bytes)));
	if (n && order[0])
		used += (size_t)snprintf(text + used, sizeof(text) - used,
					 "; most of %s to %s (%s)",
					 show_size(b[5], mr_class_from(order[0])),
					 show_size(b[6], mr_class_to(order[0])),
					 show_count(b[7], LOADED(r->sizes[order[0]])));
	if (LOADED(r->library_live))
		used += (size_t)snprintf(text + used, sizeof(text) - used,
					 "; %s of them made by libraries for themselves",
					 show_count(b[5], LOADED(r->library_live)));
	if (dms)
		snprintf(text + used, sizeof(text) - used, "; %s of device memory (peak %s)",
			 show_size(b[5], LOADED(r->dm_bytes)),
			 show_size(b[6], LOADED(r->peak_dm_bytes)));
	print_line(w, "memory", text);
}

/* "3 DEVX objects (2 cq, 1 qp), 64 KiB registered for them (peak 64 KiB): ...". */
static void print_devx(const struct text_output *w, const struct model *m)
{
	const struct state_devx *s = &m->header->devx;
	uint64_t objects = model_devx_objects(s);
	char text[700], b[3][SHOW_BYTES];
	const char *before = " (";
	size_t used;

	if (!LOADED(m->header->entry_points[ENTRY_DEVX_OBJ_CREATE]) &&
	    !LOADED(s->created[DEVX_UMEM]))
		return;
	used = (size_t)snprintf(text, sizeof(text), "%s DEVX object%s", show_count(b[0], objects),
				plural(objects));
	for (unsigned int i = 0; i < DEVX_OBJECTS; i++) {
		if (!LOADED(s->live[i]))
			continue;
		used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s %s", before,
					 show_count(b[0], LOADED(s->live[i])), devx_kind_name(i));
		before = ", ";
	}
	snprintf(text + used, sizeof(text) - used,
		 "%s, %s registered for them (peak %s): not guarded, their posts are not visible",
		 before[0] == ',' ? ")" : "", show_size(b[1], LOADED(s->umem_bytes)),
		 show_size(b[2], LOADED(s->peak_umem_bytes)));
	print_line(w, "unguarded", text);
}

/* "2 connect_request, 1 rejected (status 28)". */
static void print_cm_events(const struct text_output *w, const struct model *m)
{
	char text[1200] = "", b[SHOW_BYTES];
	size_t used = 0;

	for (unsigned int i = 0; i < STATE_CM_EVENTS && used + 80 < sizeof(text); i++) {
		const struct state_cm_event *e = &m->header->cm_events[i];

		if (!LOADED(e->count))
			continue;
		used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s %s",
					 used ? ", " : "", show_count(b, LOADED(e->count)),
					 cm_event_name(i));
		if (LOADED(e->with_status))
			used += (size_t)snprintf(text + used, sizeof(text) - used,
						 " (status %" PRId64 ")", LOADED(e->last_status));
	}
	if (used)
		print_line(w, "cm events", text);
}

/* What the numbers below do not hold. */
static void print_reservations(const struct text_output *w, const struct model *m)
{
	const struct state_header *h = m->header;
	char text[512];

	if (m->trouble[0]) {
		snprintf(text, sizeof(text), "the file %s", m->trouble);
		print_line(w, "beware", text);
	}
	if (LOADED(h->incomplete) || LOADED(h->totals.unrecorded)) {
		snprintf(text, sizeof(text),
			 "the state file could not grow: %" PRIu64
			 " living objects are in the totals only",
			 LOADED(h->totals.unrecorded));
		print_line(w, "beware", text);
	}
	if (m->torn || m->damaged || m->strays) {
		snprintf(text, sizeof(text), "%u record%s left out: %u %s, %u damaged",
			 m->torn + m->damaged + m->strays, plural(m->torn + m->damaged + m->strays),
			 m->torn, "being written", m->damaged + m->strays);
		print_line(w, "beware", text);
	}
	if (m->hidden_qps) {
		snprintf(text, sizeof(text),
			 "posts to %" PRIu64 " QP%s go by a way that is not seen", m->hidden_qps,
			 plural(m->hidden_qps));
		print_line(w, "beware", text);
	}
}

/* Groups of QPs. */

static const struct model *sort_model; /* for the comparison below: qsort passes no argument */

static int by_bytes(const void *a, const void *b)
{
	const struct group_record *x = &sort_model->groups[*(const uint16_t *)a].record;
	const struct group_record *y = &sort_model->groups[*(const uint16_t *)b].record;
	uint64_t p = LOADED(x->bytes), q = LOADED(y->bytes);

	if (p == q) {
		p = LOADED(x->peak_bytes);
		q = LOADED(y->peak_bytes);
	}
	return p < q ? 1 : p > q ? -1 : *(const uint16_t *)a - *(const uint16_t *)b;
}

/* Indices of the groups of a kind, those that take most first. */
static unsigned int groups_of(const struct model *m, enum state_kind kind,
			      uint16_t order[STATE_MAX_GROUPS])
{
	unsigned int n = 0;

	for (unsigned int i = 0; i < STATE_MAX_GROUPS; i++)
		if (m->groups[i].used && m->groups[i].record.kind == kind)
			order[n++] = (uint16_t)i;
	sort_model = m;
	qsort(order, n, sizeof(order[0]), by_bytes);
	return n;
}

static void group_row(struct table *t, const struct model *m, const struct group_view *g)
{
	const struct group_record *r = &g->record;
	bool srq = recv_side_absent(r->qp_flags, &g->recv.counts);
	char live[SHOW_BYTES], made[SHOW_BYTES];

	table_row(t);
	table_cell(t, PLAIN, "%s/%s", show_count(live, LOADED(r->live)),
		   show_count(made, LOADED(r->created)));
	table_cell(t, PLAIN, "%s", r->flags & GROUP_OTHER ? "other" : qp_type_name(r->type));
	device_cell(t, m, r->device);
	if (r->flags & GROUP_OTHER) {
		table_cell(t, PLAIN, "various");
		table_cell(t, PLAIN, "various");
	} else {
		caps_cell(t, &r->requested, srq);
		caps_cell(t, &r->effective, srq);
	}
	peak_cell(t, &g->send, &g->recv, &r->effective, srq);
	size_cell(t, LOADED(r->bytes));
	size_cell(t, LOADED(r->peak_bytes));
	refused_cell(t, refusals_of(&g->send.counts) + refusals_of(&g->recv.counts));
	caller_cell(t, m, r->caller, r->qp_flags);
	refusals_note(t, &g->send.counts, &g->recv.counts);
}

static void print_groups(const struct text_output *w, const struct model *m)
{
	uint16_t order[STATE_MAX_GROUPS];
	unsigned int n = groups_of(m, KIND_QP, order);
	struct table *t;

	if (n == 0)
		return;
	heading(w, "QPs", "send WRs x SGEs / receive WRs x SGEs + inline bytes");
	t = table_new(w->out, w->width, w->color);
	table_column(t, "LIVE/MADE", true, 0);
	table_column(t, "TYPE", false, 0);
	table_column(t, "DEVICE", false, device_drop(m));
	table_column(t, "REQUESTED", false, 0);
	table_column(t, "EFFECTIVE", false, 0);
	table_column(t, "PEAK USED", false, 0);
	table_column(t, "BYTES", true, 0);
	table_column(t, "PEAK", true, 4);
	table_column(t, "REFUSED", true, 0);
	table_column(t, "MADE BY", false, 5);
	for (unsigned int i = 0; i < n; i++)
		group_row(t, m, &m->groups[order[i]]);
	table_end(t);
}

/* Each QP, with --verbose. */

struct listing {
	struct table *t;
	const struct model *m;
	const struct text_output *w;
	unsigned int listed, left_out;
};

static void counts_cell(struct table *t, const struct side_counts *c, bool hidden, bool absent)
{
	char posted[SHOW_BYTES], out[SHOW_BYTES];

	if (absent)
		table_cell(t, PLAIN, "-");
	else if (hidden)
		table_cell(t, YELLOW, "not seen");
	else
		table_cell(t, PLAIN, "%s/%s/%" PRIu32, show_count(posted, c->posted),
			   show_count(out, c->outstanding), c->peak_outstanding);
}

static struct table *qp_table(const struct text_output *w, const struct model *m)
{
	struct table *t;

	heading(w, "Each QP", "sends and receives: posted / outstanding / peak");
	t = table_new(w->out, w->width, w->color);
	table_column(t, "ID", true, 0);
	table_column(t, "QP", false, 0);
	table_column(t, "TYPE", false, 0);
	table_column(t, "STATE", false, 0);
	table_column(t, "DEVICE", false, device_drop(m));
	table_column(t, "REQUESTED", false, 4);
	table_column(t, "EFFECTIVE", false, 1);
	table_column(t, "SENDS", false, 0);
	table_column(t, "RECEIVES", false, 0);
	table_column(t, "BYTES", true, 0);
	table_column(t, "REFUSED", true, 0);
	table_column(t, "MADE BY", false, 5);
	return t;
}

static bool qp_row(void *arg, uint32_t index, const void *record)
{
	struct listing *l = arg;
	const struct qp_record *r = record;
	const char *state = show_qp_state(LOADED(r->qp_state));
	struct side_counts send, recv;
	bool absent;

	(void)index;
	record_send_counts(r, &send);
	record_recv_counts(r, &recv);
	absent = recv_side_absent(r->flags, &recv);
	if (!l->t)
		l->t = qp_table(l->w, l->m);
	table_row(l->t);
	table_cell(l->t, PLAIN, "%" PRIu32, r->id);
	table_cell(l->t, PLAIN, "0x%06" PRIx32, r->qp_num);
	table_cell(l->t, PLAIN, "%s", qp_type_name(r->type));
	table_cell(l->t, PLAIN, "%s", !model_qp_is_live(l->m, r) ? "ended" : state ? state : "?");
	device_cell(l->t, l->m, r->device);
	caps_cell(l->t, &r->requested, absent);
	caps_cell(l->t, &r->effective, absent);
	counts_cell(l->t, &send, r->flags & QP_SENDS_HIDDEN, false);
	counts_cell(l->t, &recv, r->flags & QP_RECVS_HIDDEN, absent);
	size_cell(l->t, qp_record_bytes(r));
	refused_cell(l->t, refusals_of(&send) + refusals_of(&recv));
	caller_cell(l->t, l->m, r->caller, r->flags);
	refusals_note(l->t, &send, &recv);
	return !ferror(l->w->out);
}

static void print_qps(const struct text_output *w, const struct model *m)
{
	struct listing l = { .m = m, .w = w };

	if (w->verbose)
		statefile_each(m->file, KIND_QP, qp_row, &l);
	table_end(l.t);
}

/* CQs. */

static void seen_cell(struct table *t, uint64_t count, bool hidden)
{
	char buf[SHOW_BYTES];

	if (hidden)
		table_cell(t, YELLOW, "not seen");
	else
		table_cell(t, PLAIN, "%s", show_count(buf, count));
}

static void cq_sizes(struct table *t, uint32_t requested, uint32_t effective, uint64_t bound)
{
	table_cell(t, PLAIN, "%" PRIu32, requested);
	table_cell(t, PLAIN, "%" PRIu32, effective);
	table_cell(t, bound > effective ? RED : PLAIN, "%" PRIu64, bound);
}

static bool cq_row(void *arg, uint32_t index, const void *record)
{
	struct listing *l = arg;
	const struct cq_record *r = record;
	bool hidden = r->flags & CQ_POLLS_HIDDEN;
	uint32_t backlog = LOADED(r->peak_backlog), other = LOADED(r->other_peak_backlog);

	(void)index;
	if (!model_cq_is_live(l->m, r))
		return true;
	if (!l->w->verbose && l->listed >= LISTED) {
		l->left_out++;
		return true;
	}
	l->listed++;
	table_row(l->t);
	table_cell(l->t, PLAIN, "%" PRIu32, r->id);
	device_cell(l->t, l->m, r->device);
	cq_sizes(l->t, r->requested_cqe, LOADED(r->effective_cqe),
		 LOADED(r->bound_send_wrs) + LOADED(r->bound_recv_wrs));
	seen_cell(l->t, backlog > other ? backlog : other, hidden);
	seen_cell(l->t, LOADED(r->poll_completions) + LOADED(r->other_completions), hidden);
	size_cell(l->t, LOADED(r->ring_bytes) + LOADED(r->bookkeeping_bytes));
	caller_cell(l->t, l->m, r->caller, r->flags);
	return !ferror(l->w->out);
}

/* The destroyed members of a group are one row, with their greatest and their sums. */
/* A row for each group of which members are gone. */
static void ended_rows(struct table *t, const struct model *m, enum state_kind kind,
		       void (*row)(struct table *, const struct model *, const struct group_view *))
{
	for (unsigned int i = 0; i < STATE_MAX_GROUPS; i++)
		if (m->groups[i].used && m->groups[i].record.kind == kind && m->groups[i].destroyed)
			row(t, m, &m->groups[i]);
}

static void ended_cqs_row(struct table *t, const struct model *m, const struct group_view *g)
{
	const struct group_record *r = &g->record;
	const struct group_sums *s = &r->sums[LOADED(r->folded) & 1];
	bool hidden = s->hidden && s->hidden >= s->destroyed;

	table_row(t);
	table_cell(t, DIM, "%" PRIu64 " ended", s->destroyed);
	device_cell(t, m, r->device);
	if (r->flags & GROUP_OTHER) {
		table_cell(t, PLAIN, "various");
		table_cell(t, PLAIN, "various");
		table_cell(t, PLAIN, "%" PRIu64, s->peak_bound_wrs);
	} else {
		cq_sizes(t, r->requested.max_send_wr, r->effective.max_send_wr, s->peak_bound_wrs);
	}
	seen_cell(t, s->peak_backlog, hidden);
	seen_cell(t, s->completions, hidden);
	table_cell(t, PLAIN, "-");
	caller_cell(t, m, r->caller, r->qp_flags);
}

static void print_left_out(const struct text_output *w, const struct listing *l)
{
	if (l->left_out)
		fprintf(w->out, "  and %u more: --verbose lists each\n", l->left_out);
}

static bool any_of(const struct model *m, enum state_kind kind)
{
	for (unsigned int i = 0; i < STATE_MAX_GROUPS; i++)
		if (m->groups[i].used && m->groups[i].record.kind == kind)
			return true;
	return false;
}

static void print_cqs(const struct text_output *w, const struct model *m)
{
	struct listing l = { .m = m, .w = w };
	uint16_t order[STATE_MAX_GROUPS];
	unsigned int n = groups_of(m, KIND_CQ, order);

	if (n == 0 && m->live_cqs == 0)
		return;
	heading(w, "CQs", "bound: WRs of the QPs on it; backlog: most taken at a stretch");
	l.t = table_new(w->out, w->width, w->color);
	table_column(l.t, "ID", true, 0);
	table_column(l.t, "DEVICE", false, device_drop(m));
	table_column(l.t, "REQUESTED", true, 0);
	table_column(l.t, "EFFECTIVE", true, 0);
	table_column(l.t, "BOUND", true, 0);
	table_column(l.t, "BACKLOG", true, 0);
	table_column(l.t, "COMPLETIONS", true, 0);
	table_column(l.t, "BYTES", true, 0);
	table_column(l.t, "MADE BY", false, 5);
	statefile_each(m->file, KIND_CQ, cq_row, &l);
	for (unsigned int i = 0; i < n; i++)
		if (m->groups[order[i]].destroyed)
			ended_cqs_row(l.t, m, &m->groups[order[i]]);
	table_end(l.t);
	print_left_out(w, &l);
}

/* SRQs. */

static bool srq_row(void *arg, uint32_t index, const void *record)
{
	struct listing *l = arg;
	const struct srq_record *r = record;
	struct side_counts c;
	static const struct side_counts none;

	(void)index;
	if (!model_srq_is_live(l->m, r))
		return true;
	if (!l->w->verbose && l->listed >= LISTED) {
		l->left_out++;
		return true;
	}
	l->listed++;
	record_srq_counts(r, &c);
	table_row(l->t);
	table_cell(l->t, PLAIN, "%" PRIu32, r->id);
	device_cell(l->t, l->m, r->device);
	table_cell(l->t, PLAIN, "%" PRIu32 "x%" PRIu32, r->requested_wr, r->requested_sge);
	table_cell(l->t, PLAIN, "%" PRIu32 "x%" PRIu32, LOADED(r->effective_wr), r->effective_sge);
	seen_cell(l->t, c.peak_outstanding, r->flags & SRQ_HIDDEN);
	seen_cell(l->t, c.posted, r->flags & SRQ_HIDDEN);
	size_cell(l->t, LOADED(r->ring_bytes) + LOADED(r->bookkeeping_bytes));
	refused_cell(l->t, refusals_of(&c));
	caller_cell(l->t, l->m, r->caller, r->flags);
	refusals_note(l->t, &none, &c);
	return !ferror(l->w->out);
}

static void ended_srqs_row(struct table *t, const struct model *m, const struct group_view *g)
{
	const struct group_record *r = &g->record;
	const struct group_sums *s = &r->sums[LOADED(r->folded) & 1];
	bool hidden = s->hidden && s->hidden >= s->destroyed;
	uint64_t refused = 0;

	for (unsigned int i = 0; i < REFUSALS; i++)
		refused += s->recv.refused[i];
	table_row(t);
	table_cell(t, DIM, "%" PRIu64 " ended", s->destroyed);
	device_cell(t, m, r->device);
	if (r->flags & GROUP_OTHER) {
		table_cell(t, PLAIN, "various");
		table_cell(t, PLAIN, "various");
	} else {
		table_cell(t, PLAIN, "%" PRIu32 "x%" PRIu32, r->requested.max_recv_wr,
			   r->requested.max_recv_sge);
		table_cell(t, PLAIN, "%" PRIu32 "x%" PRIu32, r->effective.max_recv_wr,
			   r->effective.max_recv_sge);
	}
	seen_cell(t, s->recv.peak_outstanding, hidden);
	seen_cell(t, s->recv.posted, hidden);
	table_cell(t, PLAIN, "-");
	refused_cell(t, refused);
	caller_cell(t, m, r->caller, r->qp_flags);
}

static void print_srqs(const struct text_output *w, const struct model *m)
{
	struct listing l = { .m = m, .w = w };

	if (!any_of(m, KIND_SRQ) && m->live_srqs == 0)
		return;
	heading(w, "SRQs", "WRs x SGEs");
	l.t = table_new(w->out, w->width, w->color);
	table_column(l.t, "ID", true, 0);
	table_column(l.t, "DEVICE", false, device_drop(m));
	table_column(l.t, "REQUESTED", false, 0);
	table_column(l.t, "EFFECTIVE", false, 0);
	table_column(l.t, "PEAK USED", true, 0);
	table_column(l.t, "POSTED", true, 0);
	table_column(l.t, "BYTES", true, 0);
	table_column(l.t, "REFUSED", true, 0);
	table_column(l.t, "MADE BY", false, 5);
	statefile_each(m->file, KIND_SRQ, srq_row, &l);
	ended_rows(l.t, m, KIND_SRQ, ended_srqs_row);
	table_end(l.t);
	print_left_out(w, &l);
}

/* WQs. */

static bool wq_row(void *arg, uint32_t index, const void *record)
{
	struct listing *l = arg;
	const struct wq_record *r = record;
	const char *state = show_wq_state(LOADED(r->wq_state));
	struct side_counts c;
	static const struct side_counts none;

	(void)index;
	if (!model_wq_is_live(l->m, r))
		return true;
	if (!l->w->verbose && l->listed >= LISTED) {
		l->left_out++;
		return true;
	}
	l->listed++;
	record_wq_counts(r, &c);
	table_row(l->t);
	table_cell(l->t, PLAIN, "%" PRIu32, r->id);
	table_cell(l->t, PLAIN, "%s", state ? state : "?");
	device_cell(l->t, l->m, r->device);
	table_cell(l->t, PLAIN, "%" PRIu32 "x%" PRIu32, r->requested_wr, r->requested_sge);
	table_cell(l->t, PLAIN, "%" PRIu32 "x%" PRIu32, r->effective_wr, r->effective_sge);
	seen_cell(l->t, c.posted, r->flags & WQ_HIDDEN);
	size_cell(l->t, r->ring_bytes + r->bookkeeping_bytes);
	refused_cell(l->t, refusals_of(&c));
	caller_cell(l->t, l->m, r->caller, r->flags);
	refusals_note(l->t, &none, &c);
	return !ferror(l->w->out);
}

static void ended_wqs_row(struct table *t, const struct model *m, const struct group_view *g)
{
	const struct group_record *r = &g->record;
	const struct group_sums *s = &r->sums[LOADED(r->folded) & 1];
	uint64_t refused = 0;

	for (unsigned int i = 0; i < REFUSALS; i++)
		refused += s->recv.refused[i];
	table_row(t);
	table_cell(t, DIM, "%" PRIu64 " ended", s->destroyed);
	table_cell(t, PLAIN, "-");
	device_cell(t, m, r->device);
	if (r->flags & GROUP_OTHER) {
		table_cell(t, PLAIN, "various");
		table_cell(t, PLAIN, "various");
	} else {
		table_cell(t, PLAIN, "%" PRIu32 "x%" PRIu32, r->requested.max_recv_wr,
			   r->requested.max_recv_sge);
		table_cell(t, PLAIN, "%" PRIu32 "x%" PRIu32, r->effective.max_recv_wr,
			   r->effective.max_recv_sge);
	}
	seen_cell(t, s->recv.posted, s->hidden && s->hidden >= s->destroyed);
	table_cell(t, PLAIN, "-");
	refused_cell(t, refused);
	caller_cell(t, m, r->caller, r->qp_flags);
}

static void print_wqs(const struct text_output *w, const struct model *m)
{
	struct listing l = { .m = m, .w = w };

	if (!any_of(m, KIND_WQ) && m->live_wqs == 0)
		return;
	heading(w, "WQs", "WRs x SGEs; of receive side scaling");
	l.t = table_new(w->out, w->width, w->color);
	table_column(l.t, "ID", true, 0);
	table_column(l.t, "STATE", false, 6);
	table_column(l.t, "DEVICE", false, device_drop(m));
	table_column(l.t, "REQUESTED", false, 0);
	table_column(l.t, "EFFECTIVE", false, 0);
	table_column(l.t, "POSTED", true, 0);
	table_column(l.t, "BYTES", true, 0);
	table_column(l.t, "REFUSED", true, 0);
	table_column(l.t, "MADE BY", false, 5);
	statefile_each(m->file, KIND_WQ, wq_row, &l);
	ended_rows(l.t, m, KIND_WQ, ended_wqs_row);
	table_end(l.t);
	print_left_out(w, &l);
}

/* Failures, budgets, the log. */

/* The time alone on the day that the process began. */
static const char *short_time(char *out, uint64_t at, uint64_t started)
{
	char start[SHOW_BYTES];

	show_time(start, started);
	show_time(out, at);
	return strncmp(start, out, 10) == 0 ? out + 11 : out;
}

static void print_failures(const struct text_output *w, const struct model *m)
{
	bool any = false;

	for (unsigned int i = 0; i < STATE_MAX_FAILURES; i++) {
		const struct failure_record *f = &m->failures[i];
		const struct device_record *d = model_device(m, f->device);
		char name[300], sentence[1024], count[SHOW_BYTES], last[SHOW_BYTES], line[1200];

		if (LOADED(f->state) == RECORD_FREE)
			continue;
		if (!any)
			heading(w, "Failures", "");
		any = true;
		if (f->reason.reason == 0)
			snprintf(sentence, sizeof(sentence), "failures of further kinds");
		else
			reason_sentence(&f->reason, d ? safe(name, sizeof(name), d->name) : "",
					sentence, sizeof(sentence));
		snprintf(line, sizeof(line), "%s (%s %s)", sentence,
			 LOADED(f->count) == 1 ? "at" : "last",
			 short_time(last, LOADED(f->last_at), m->header->started_at));
		fprintf(w->out, "  %s%7s x%s  ", color_on(w->color, RED),
			show_count(count, LOADED(f->count)), color_off(w->color));
		print_wrapped(w->out, w->width, 13, 13, line);
	}
}

static void budget_cell(struct table *t, unsigned int limit, uint64_t value)
{
	char buf[SHOW_BYTES];

	if (policy_keys[limit].kind == VALUE_SIZE)
		table_cell(t, PLAIN, "%s", show_size(buf, value));
	else
		table_cell(t, PLAIN, "%s", show_count(buf, value));
}

static void budget_row(struct table *t, const struct state_budget *b, unsigned int limit)
{
	uint64_t refusals = LOADED(b->refusals);
	char buf[SHOW_BYTES];
	bool uncounted = limit == BUDGET_NODE_BYTES;
	bool limited = LOADED(b->limit) != UINT64_MAX; /* else by sections with conditions alone */

	table_row(t);
	table_cell(t, PLAIN, "%s", policy_keys[limit].name);
	if (limited)
		budget_cell(t, limit, LOADED(b->limit));
	else
		table_cell(t, PLAIN, "by condition");
	if (uncounted || limit == BUDGET_BYTES_PER_QP)
		table_cell(t, PLAIN, "%s", uncounted ? "not seen" : "-");
	else
		budget_cell(t, limit, LOADED(b->used));
	if (uncounted)
		table_cell(t, PLAIN, "not seen");
	else
		budget_cell(t, limit, LOADED(b->peak));
	table_cell(t, PLAIN, "%s", limited ? action_name(LOADED(b->action)) : "-");
	table_cell(t, refusals ? RED : PLAIN, "%s%s", show_count(buf, refusals),
		   limited && refusals && LOADED(b->action) == ACTION_OBSERVE ? " let pass" : "");
}

/* One frame a line, for each call stack that made objects: --verbose. */

static void print_stack(const struct text_output *w, const struct model *m,
			const struct caller_record *c)
{
	for (unsigned int i = 0; i < c->frames; i++) {
		const struct frame_record *f = model_frame(m, c->frame[i]);
		const struct module_record *module = model_module(m, f);
		char text[1024], path[1024] = "";

		if (!f)
			continue;
		if (module)
			safe(path, sizeof(path), module->path);
		frame_text(m, f, ESCAPE_FOR_TERMINAL, text, sizeof(text));
		fprintf(w->out, "    #%-2u %s", i, text);
		if (module)
			fprintf(w->out, "  (%s+0x%" PRIx64 ")", path, f->offset);
		fputc('\n', w->out);
	}
	if (c->flags & CALLER_CUT)
		fputs("    ... and more\n", w->out);
}

static void print_stacks(const struct text_output *w, const struct model *m)
{
	bool any = false;

	for (uint16_t i = 0; w->verbose && i < STATE_MAX_CALLERS; i++) {
		const struct caller_record *c = model_stack(m, i);
		char name[1024];
		const char *text = caller_text(m, i, ESCAPE_FOR_TERMINAL, name, sizeof(name));

		if (!c || !c->frames || !text)
			continue;
		if (!any)
			heading(w, "Call stacks", "who made objects, or failed to");
		any = true;
		fprintf(w->out, "  %s\n", text);
		print_stack(w, m, c);
	}
}

/* Who holds how much: by the object that the caller lies in. */

struct held {
	const char *module;
	uint64_t qps, cqs, srqs, bytes, peak;
};

static int most_first(const void *a, const void *b)
{
	const struct held *x = a, *y = b;

	if (x->bytes != y->bytes)
		return x->bytes < y->bytes ? 1 : -1;
	return x->peak < y->peak ? 1 : x->peak > y->peak ? -1 : strcmp(x->module, y->module);
}

static void add_held(struct held *h, const struct group_record *r)
{
	uint64_t live = LOADED(r->live);

	h->qps += r->kind == KIND_QP ? live : 0;
	h->cqs += r->kind == KIND_CQ ? live : 0;
	h->srqs += r->kind == KIND_SRQ ? live : 0;
	h->bytes += LOADED(r->bytes);
	h->peak += LOADED(r->peak_bytes);
}

static unsigned int held_by_module(const struct model *m, struct held *held)
{
	unsigned int n = 0, k;

	for (unsigned int i = 0; i < STATE_MAX_GROUPS; i++) {
		const struct group_record *r = &m->groups[i].record;
		const char *module;

		if (!m->groups[i].used)
			continue;
		module = model_holder(m, r->caller);
		for (k = 0; k < n && strcmp(held[k].module, module); k++)
			;
		if (k == n)
			held[n++] = (struct held){ .module = module };
		add_held(&held[k], r);
	}
	qsort(held, n, sizeof(held[0]), most_first);
	return n;
}

static void print_holders(const struct text_output *w, const struct model *m)
{
	struct held held[STATE_MAX_MODULES + 1];
	unsigned int n = held_by_module(m, held);
	struct table *t;

	if (n == 0)
		return;
	heading(w, "By library", "what each holds; peak: at most");
	t = table_new(w->out, w->width, w->color);
	table_column(t, "LIBRARY", false, 0);
	table_column(t, "QPs", true, 0);
	table_column(t, "CQs", true, 0);
	table_column(t, "SRQs", true, 0);
	table_column(t, "BYTES", true, 0);
	table_column(t, "PEAK", true, 0);
	for (unsigned int i = 0; i < n; i++) {
		char name[300];

		table_row(t);
		table_cell(t, PLAIN, "%s", safe(name, sizeof(name), base_name(held[i].module)));
		table_cell(t, PLAIN, "%" PRIu64, held[i].qps);
		table_cell(t, PLAIN, "%" PRIu64, held[i].cqs);
		table_cell(t, PLAIN, "%" PRIu64, held[i].srqs);
		size_cell(t, held[i].bytes);
		size_cell(t, held[i].peak);
	}
	table_end(t);
}

static void print_budget(const struct text_output *w, const struct model *m)
{
	struct table *t = NULL;

	for (unsigned int i = 0; i < BUDGET_LIMITS; i++) {
		if (LOADED(m->header->budget[i].limit) == UINT64_MAX &&
		    !m->header->budget[i].conditional)
			continue;
		if (!t) {
			heading(w, "Budgets", "");
			t = table_new(w->out, w->width, w->color);
			table_column(t, "LIMIT ON", false, 0);
			table_column(t, "LIMIT", true, 0);
			table_column(t, "USED", true, 0);
			table_column(t, "PEAK", true, 0);
			table_column(t, "ACTION", false, 0);
			table_column(t, "REFUSED", true, 0);
		}
		budget_row(t, &m->header->budget[i], i);
	}
	table_end(t);
}

static int newest_first(const void *a, const void *b)
{
	const struct event_record *x = *(const struct event_record *const *)a;
	const struct event_record *y = *(const struct event_record *const *)b;
	uint64_t p = LOADED(x->last_at), q = LOADED(y->last_at);

	return p < q ? 1 : p > q ? -1 : 0;
}

static void print_events(const struct text_output *w, const struct model *m)
{
	const struct event_record *events[STATE_MAX_EVENTS];
	unsigned int n = 0, most;

	for (unsigned int i = 0; i < STATE_MAX_EVENTS; i++) {
		const struct event_record *e = &m->events[i];

		if (LOADED(e->state) != RECORD_FREE && (w->verbose || e->level <= LOG_WARN))
			events[n++] = e;
	}
	if (n == 0)
		return;
	qsort(events, n, sizeof(events[0]), newest_first);
	most = w->verbose || n < EVENTS ? n : EVENTS;
	heading(w, "Log", "the newest first");
	for (unsigned int i = 0; i < most; i++) {
		char when[SHOW_BYTES], count[SHOW_BYTES], text[1000], times[80] = "", line[1200];

		if (LOADED(events[i]->count) > 1)
			snprintf(times, sizeof(times), " (%s times)",
				 show_count(count, LOADED(events[i]->count)));
		snprintf(line, sizeof(line), "%s %s%s",
			 short_time(when, LOADED(events[i]->last_at), m->header->started_at),
			 safe(text, sizeof(text), events[i]->text), times);
		fputs("  ", w->out);
		print_wrapped(w->out, w->width, 2, 11, line);
	}
	if (most < n)
		fprintf(w->out, "  and %u more: --verbose lists each\n", n - most);
}

void text_output_process(struct text_output *w, const struct model *m)
{
	if (w->processes++)
		fputc('\n', w->out);
	w->states[m->file->state]++;
	w->qps += LOADED(m->header->totals.live_qps);
	w->bytes += LOADED(m->header->totals.bytes);
	w->refusals += m->post_refusals;
	print_who(w, m);
	print_totals(w, m);
	print_mrs(w, m);
	print_devx(w, m);
	print_cm_events(w, m);
	print_reservations(w, m);
	print_groups(w, m);
	print_qps(w, m);
	print_cqs(w, m);
	print_srqs(w, m);
	print_wqs(w, m);
	print_failures(w, m);
	print_budget(w, m);
	print_stacks(w, m);
	print_events(w, m);
	print_holders(w, m);
}

void text_output_end(struct text_output *w)
{
	char size[SHOW_BYTES], b[2][SHOW_BYTES];

	if (w->processes < 2)
		return;
	fprintf(w->out, "\n%s%u processes%s:", color_on(w->color, BOLD), w->processes,
		color_off(w->color));
	for (unsigned int i = 0; i < 4; i++)
		if (w->states[i])
			fprintf(w->out, " %u %s,", w->states[i], process_state_names[i]);
	fprintf(w->out, " %s QPs, %s, %s posts refused\n", show_count(b[0], w->qps),
		show_size(size, w->bytes), show_count(b[1], w->refusals));
}
