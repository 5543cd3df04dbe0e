/* SPDX-License-Identifier: MIT */
/*
 * A model as JSON, with the names that other programs rely on. The outer structure is written by
 * hand and each item through jansson, one at a time, so that memory does not grow with the number
 * of QPs. What was not observed is null, never 0.
 */
#include "output.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "memory.h"
#include "names.h"
#include "show.h"

#define SCHEMA	   1
#define TEXT_BYTES 4352 /* four for each byte of the longest text of a state file, and some */

/* Values. */

static json_t *number(uint64_t n)
{
	return json_integer(n > INT64_MAX ? INT64_MAX : (json_int_t)n);
}

/* For counts where all ones mean "none" or "not known". */
static json_t *number_or_null(uint64_t n)
{
	return n == UINT64_MAX ? json_null() : number(n);
}

static json_t *text_of(const char *text, size_t len)
{
	char valid[TEXT_BYTES];

	return json_string(show_text(valid, sizeof(valid), text, len, ESCAPE_FOR_JSON));
}

static json_t *text(const char *s)
{
	return text_of(s, strlen(s));
}

static json_t *text_or_null(const char *s)
{
	return s && *s ? text(s) : json_null();
}

static json_t *when(uint64_t ns)
{
	char buf[SHOW_BYTES];

	return ns ? json_string(show_rfc3339(buf, ns)) : json_null();
}

static void set(json_t *object, const char *key, json_t *value)
{
	if (json_object_set_new(object, key, value) != 0) {
		fprintf(stderr, "qpguard report: no memory left for the JSON\n");
		exit(3);
	}
}

/* The outer structure. */

static const char *line_break(const struct json_output *w, const char *indented)
{
	return w->lines ? "" : indented;
}

static void put_value(struct json_output *w, json_t *value)
{
	if (!value ||
	    json_dumpf(value, w->out, JSON_ENCODE_ANY | (w->lines ? JSON_COMPACT : 0)) != 0)
		if (!ferror(w->out))
			fputs("null", w->out);
	json_decref(value);
}

static void put_key(struct json_output *w, const char *key)
{
	fprintf(w->out, "%s%s\"%s\":%s", w->fields++ ? "," : "", line_break(w, "\n      "), key,
		line_break(w, " "));
}

static void put_field(struct json_output *w, const char *key, json_t *value)
{
	put_key(w, key);
	put_value(w, value);
}

static void begin_list(struct json_output *w, const char *key)
{
	put_key(w, key);
	fputc('[', w->out);
	w->items = 0;
}

static void put_item(struct json_output *w, json_t *value)
{
	fprintf(w->out, "%s%s", w->items++ ? "," : "", line_break(w, "\n        "));
	put_value(w, value);
}

static void end_list(struct json_output *w)
{
	fprintf(w->out, "%s]", w->items ? line_break(w, "\n      ") : "");
}

/* Parts of items. */

static json_t *caps(const struct qp_caps *c)
{
	json_t *o = json_object();

	set(o, "max_send_wr", number(c->max_send_wr));
	set(o, "max_recv_wr", number(c->max_recv_wr));
	set(o, "max_send_sge", number(c->max_send_sge));
	set(o, "max_recv_sge", number(c->max_recv_sge));
	set(o, "max_inline_data", number(c->max_inline_data));
	return o;
}

static json_t *srq_caps(uint32_t max_wr, uint32_t max_sge)
{
	json_t *o = json_object();

	set(o, "max_wr", number(max_wr));
	set(o, "max_sge", number(max_sge));
	return o;
}

static json_t *side(const struct side_counts *c)
{
	static const char *const reasons[REFUSALS] = {
		"queue_full", "queue_full_early", "too_many_sge", "inline_too_big", "bad_state",
		"other",      "injected",
	};
	json_t *o = json_object(), *rejected = json_object();

	for (unsigned int i = 0; i < REFUSALS; i++)
		set(rejected, reasons[i], number(c->refused[i]));
	set(o, "posted", number(c->posted));
	set(o, "completed", number(c->completed));
	set(o, "discarded", number(c->discarded));
	set(o, "outstanding", number(c->outstanding));
	set(o, "peak_outstanding", number(c->peak_outstanding));
	set(o, "peak_sge", number(c->peak_sge));
	set(o, "peak_inline", number(c->peak_inline));
	set(o, "rejected", rejected);
	set(o, "not_posted", number(c->not_posted));
	return o;
}

/* Those that what was asked for would have taken: the effective caps are less. */
static json_t *with_clamp(json_t *o, const struct side_counts *c, uint32_t asked_wr, uint32_t wr,
			  uint32_t asked_sge, uint32_t sge, uint32_t asked_inline, uint32_t inlined)
{
	uint64_t by_clamp = wr < asked_wr ? c->refused[REFUSED_QUEUE_FULL] : 0;

	if (sge < asked_sge)
		by_clamp += c->refused[REFUSED_TOO_MANY_SGE];
	if (inlined < asked_inline)
		by_clamp += c->refused[REFUSED_INLINE_TOO_BIG];
	set(o, "rejected_by_clamp", number(by_clamp));
	return o;
}

/* A group's side: null when no member's counts could be seen. */
static json_t *side_total(const struct side_total *t)
{
	json_t *o;

	if (t->hidden && !t->visible)
		return json_null();
	o = side(&t->counts);
	if (t->hidden)
		set(o, "hidden", number(t->hidden));
	return o;
}

static json_t *device_name(const struct model *m, uint16_t device)
{
	const struct device_record *d = model_device(m, device);

	return d ? text(d->name) : json_null();
}

static json_t *build_id(const struct module_record *module)
{
	char hex[2 * STATE_BUILD_ID_BYTES + 1];

	if (!module || !module->build_id_bytes || module->build_id_bytes > STATE_BUILD_ID_BYTES)
		return json_null();
	for (unsigned int i = 0; i < module->build_id_bytes; i++)
		snprintf(hex + 2 * i, 3, "%02x", module->build_id[i]);
	return json_string(hex);
}

/* Adds what is known of a frame, all null for NULL. */
static void set_frame(json_t *o, const struct model *m, const struct frame_record *f)
{
	struct frame_name n = { 0 };

	if (f)
		name_frame(m, f, &n);
	set(o, "module", n.module ? text(n.module->path) : json_null());
	set(o, "build_id", build_id(n.module));
	set(o, "offset", f ? number(n.offset) : json_null());
	set(o, "function", text_or_null(n.symbol.function));
	set(o, "file", text_or_null(n.symbol.file));
	set(o, "line", n.symbol.file ? number((uint64_t)n.symbol.line) : json_null());
}

/* Who made an object; null when it is not known. */
static json_t *caller(const struct model *m, uint16_t index)
{
	char buf[TEXT_BYTES];
	const char *name = caller_text(m, index, ESCAPE_FOR_JSON, buf, sizeof(buf));
	json_t *o;

	if (!name)
		return json_null();
	o = json_object();
	set(o, "text", json_string(name));
	set_frame(o, m, model_who(m, index));
	return o;
}

/* The caller's whole stack, the innermost frame first. */
static json_t *stack(const struct model *m, uint16_t index)
{
	const struct caller_record *c = model_stack(m, index);
	json_t *list = json_array();

	for (unsigned int i = 0; c && i < c->frames; i++) {
		const struct frame_record *f = model_frame(m, c->frame[i]);
		json_t *o = json_object();

		set_frame(o, m, f);
		if (json_array_append_new(list, o) != 0)
			break;
	}
	return list;
}

static json_t *caller_other(void)
{
	json_t *o = json_object();

	set(o, "text", json_string("other"));
	set_frame(o, NULL, NULL);
	return o;
}

static json_t *ring_bytes(uint64_t ring, uint64_t bookkeeping, unsigned int basis)
{
	json_t *o = json_object();

	set(o, "ring", number(ring));
	set(o, "bookkeeping", number(bookkeeping));
	set(o, "total", number(ring + bookkeeping));
	set(o, "basis", text_or_null(basis_name(basis)));
	return o;
}

static const char *entry_name(unsigned int entry)
{
	static const char *const names[] = {
		[ENTRY_CREATE_QP] = "create_qp",
		[ENTRY_CREATE_QP_EX] = "create_qp_ex",
		[ENTRY_CREATE_CQ] = "create_cq",
		[ENTRY_CREATE_CQ_EX] = "create_cq_ex",
		[ENTRY_CREATE_SRQ] = "create_srq",
		[ENTRY_CREATE_SRQ_EX] = "create_srq_ex",
		[ENTRY_REG_MR] = "reg_mr",
		[ENTRY_REG_MR_IOVA] = "reg_mr_iova",
		[ENTRY_REG_MR_IOVA2] = "reg_mr_iova2",
		[ENTRY_REG_MR_EX] = "reg_mr_ex",
		[ENTRY_REG_DMABUF_MR] = "reg_dmabuf_mr",
		[ENTRY_REG_DM_MR] = "reg_dm_mr",
		[ENTRY_ALLOC_NULL_MR] = "alloc_null_mr",
		[ENTRY_IMPORT_MR] = "import_mr",
		[ENTRY_ALLOC_DM] = "alloc_dm",
		[ENTRY_CREATE_WQ] = "create_wq",
		[ENTRY_CREATE_RWQ_IND_TABLE] = "create_rwq_ind_table",
		[ENTRY_OPEN_QP] = "open_qp",
		[ENTRY_MLX5DV_CREATE_QP] = "mlx5dv_create_qp",
		[ENTRY_MLX5DV_CREATE_CQ] = "mlx5dv_create_cq",
		[ENTRY_MLX5DV_CREATE_WQ] = "mlx5dv_create_wq",
		[ENTRY_MLX4DV_CREATE_QP] = "mlx4dv_create_qp",
		[ENTRY_EFADV_CREATE_DRIVER_QP] = "efadv_create_driver_qp",
		[ENTRY_EFADV_CREATE_QP_EX] = "efadv_create_qp_ex",
		[ENTRY_EFADV_CREATE_CQ] = "efadv_create_cq",
		[ENTRY_HNSDV_CREATE_QP] = "hnsdv_create_qp",
		[ENTRY_IMPORT_DEVICE] = "import_device",
		[ENTRY_IMPORT_PD] = "import_pd",
		[ENTRY_DEVX_OBJ_CREATE] = "mlx5dv_devx_obj_create",
		[ENTRY_DEVX_UMEM_REG] = "mlx5dv_devx_umem_reg",
		[ENTRY_DEVX_UMEM_REG_EX] = "mlx5dv_devx_umem_reg_ex",
		[ENTRY_DEVX_ALLOC_UAR] = "mlx5dv_devx_alloc_uar",
		[ENTRY_RDMA_CREATE_QP] = "rdma_create_qp",
		[ENTRY_RDMA_CREATE_QP_EX] = "rdma_create_qp_ex",
		[ENTRY_RDMA_CREATE_SRQ] = "rdma_create_srq",
		[ENTRY_RDMA_CREATE_SRQ_EX] = "rdma_create_srq_ex",
		[ENTRY_RDMA_CREATE_EP] = "rdma_create_ep",
		[ENTRY_RDMA_GET_REQUEST] = "rdma_get_request",
	};

	return entry < sizeof(names) / sizeof(names[0]) ? names[entry] : NULL;
}

/* Objects of the process, one record each. */

struct object_list {
	struct json_output *w;
	const struct model *m;
};

static json_t *id_or_null(uint32_t id)
{
	return id == STATE_NONE ? json_null() : number(id);
}

static json_t *qp_bytes(const struct qp_record *r)
{
	json_t *o = json_object();

	set(o, "sq", number(r->sq_bytes));
	set(o, "rq", number(r->rq_bytes));
	set(o, "bookkeeping", number(r->bookkeeping_bytes));
	set(o, "total", number(qp_record_bytes(r)));
	set(o, "basis", text_or_null(basis_name(r->basis)));
	return o;
}

static json_t *qp(const struct model *m, const struct qp_record *r)
{
	struct side_counts send, recv;
	json_t *o = json_object();

	record_send_counts(r, &send);
	record_recv_counts(r, &recv);
	set(o, "id", number(r->id));
	set(o, "device", device_name(m, r->device));
	set(o, "qp_num", number(r->qp_num));
	set(o, "type", text(qp_type_name(r->type)));
	set(o, "qp_state", text_or_null(show_qp_state(LOADED(r->qp_state))));
	set(o, "created_at", when(r->created_at));
	set(o, "destroyed_at", when(LOADED(r->ended_at)));
	set(o, "caller", caller(m, r->caller));
	set(o, "created_by", text_or_null(entry_name(r->entry)));
	set(o, "library_owned", json_boolean(r->flags & LIBRARY_OWNED));
	set(o, "send_cq", id_or_null(r->send_cq));
	set(o, "recv_cq", id_or_null(r->recv_cq));
	set(o, "srq", id_or_null(r->srq));
	set(o, "requested", caps(&r->requested));
	set(o, "submitted", caps(&r->submitted));
	set(o, "effective", caps(&r->effective));
	set(o, "clamped", json_boolean(r->clamped));
	set(o, "bytes", qp_bytes(r));
	set(o, "posts_visible", json_boolean(!(r->flags & (QP_SENDS_HIDDEN | QP_RECVS_HIDDEN))));
	set(o, "send",
	    r->flags & QP_SENDS_HIDDEN
		    ? json_null()
		    : with_clamp(side(&send), &send, r->requested.max_send_wr,
				 r->effective.max_send_wr, r->requested.max_send_sge,
				 r->effective.max_send_sge, r->requested.max_inline_data,
				 r->effective.max_inline_data));
	set(o, "recv",
	    r->flags & QP_RECVS_HIDDEN || recv_side_absent(r->flags, &recv) ? json_null()
									    : side(&recv));
	set(o, "flushed_unattributed", number(LOADED(r->flushed_unattributed)));
	return o;
}

static bool put_qp(void *arg, uint32_t index, const void *record)
{
	const struct object_list *l = arg;
	const struct qp_record *r = record;

	(void)index;
	if (l->w->verbose || model_qp_is_live(l->m, r))
		put_item(l->w, qp(l->m, r));
	return !ferror(l->w->out);
}

static bool put_cq(void *arg, uint32_t index, const void *record)
{
	const struct object_list *l = arg;
	const struct cq_record *r = record;
	bool hidden = r->flags & CQ_POLLS_HIDDEN;
	uint32_t backlog = LOADED(r->peak_backlog), other = LOADED(r->other_peak_backlog);
	json_t *o;

	(void)index;
	if (!l->w->verbose && !model_cq_is_live(l->m, r))
		return true;
	o = json_object();
	set(o, "id", number(r->id));
	set(o, "device", device_name(l->m, r->device));
	set(o, "created_at", when(r->created_at));
	set(o, "destroyed_at", when(LOADED(r->ended_at)));
	set(o, "caller", caller(l->m, r->caller));
	set(o, "created_by", text_or_null(entry_name(r->entry)));
	set(o, "library_owned", json_boolean(r->flags & LIBRARY_OWNED));
	set(o, "requested_cqe", number(r->requested_cqe));
	set(o, "submitted_cqe", number(r->submitted_cqe));
	set(o, "effective_cqe", number(LOADED(r->effective_cqe)));
	set(o, "bytes", ring_bytes(LOADED(r->ring_bytes), LOADED(r->bookkeeping_bytes), r->basis));
	set(o, "bound_send_wrs", number(LOADED(r->bound_send_wrs)));
	set(o, "bound_recv_wrs", number(LOADED(r->bound_recv_wrs)));
	set(o, "bound_requested_wrs", number(LOADED(r->asked_wrs)));
	set(o, "peak_bound_wrs", number(LOADED(r->peak_bound_wrs)));
	set(o, "completions",
	    hidden ? json_null()
		   : number(LOADED(r->poll_completions) + LOADED(r->other_completions)));
	set(o, "flushed_unattributed",
	    hidden ? json_null() : number(LOADED(r->flushed_unattributed)));
	set(o, "peak_backlog", hidden ? json_null() : number(backlog > other ? backlog : other));
	put_item(l->w, o);
	return !ferror(l->w->out);
}

static bool put_srq(void *arg, uint32_t index, const void *record)
{
	const struct object_list *l = arg;
	const struct srq_record *r = record;
	struct side_counts counts;
	json_t *o;

	(void)index;
	if (!l->w->verbose && !model_srq_is_live(l->m, r))
		return true;
	record_srq_counts(r, &counts);
	o = json_object();
	set(o, "id", number(r->id));
	set(o, "device", device_name(l->m, r->device));
	set(o, "created_at", when(r->created_at));
	set(o, "destroyed_at", when(LOADED(r->ended_at)));
	set(o, "caller", caller(l->m, r->caller));
	set(o, "created_by", text_or_null(entry_name(r->entry)));
	set(o, "library_owned", json_boolean(r->flags & LIBRARY_OWNED));
	set(o, "requested", srq_caps(r->requested_wr, r->requested_sge));
	set(o, "submitted", srq_caps(r->submitted_wr, r->submitted_sge));
	set(o, "effective", srq_caps(LOADED(r->effective_wr), r->effective_sge));
	set(o, "bytes", ring_bytes(LOADED(r->ring_bytes), LOADED(r->bookkeeping_bytes), r->basis));
	set(o, "posts_visible", json_boolean(!(r->flags & SRQ_HIDDEN)));
	set(o, "recv", r->flags & SRQ_HIDDEN ? json_null() : side(&counts));
	put_item(l->w, o);
	return !ferror(l->w->out);
}

/* Completions do not tell which WQ they are of. */
static json_t *wq_side(json_t *side)
{
	static const char *const unknown[] = { "completed", "discarded", "outstanding",
					       "peak_outstanding" };

	for (size_t i = 0; json_is_object(side) && i < sizeof(unknown) / sizeof(unknown[0]); i++)
		set(side, unknown[i], json_null());
	return side;
}

static bool put_wq(void *arg, uint32_t index, const void *record)
{
	const struct object_list *l = arg;
	const struct wq_record *r = record;
	struct side_counts counts;
	json_t *o;

	(void)index;
	if (!l->w->verbose && !model_wq_is_live(l->m, r))
		return true;
	record_wq_counts(r, &counts);
	o = json_object();
	set(o, "id", number(r->id));
	set(o, "device", device_name(l->m, r->device));
	set(o, "wq_num", number(r->wq_num));
	set(o, "wq_state", text_or_null(show_wq_state(LOADED(r->wq_state))));
	set(o, "created_at", when(r->created_at));
	set(o, "destroyed_at", when(LOADED(r->ended_at)));
	set(o, "caller", caller(l->m, r->caller));
	set(o, "created_by", text_or_null(entry_name(r->entry)));
	set(o, "library_owned", json_boolean(r->flags & LIBRARY_OWNED));
	set(o, "cq", id_or_null(r->cq));
	set(o, "requested", srq_caps(r->requested_wr, r->requested_sge));
	set(o, "submitted", srq_caps(r->submitted_wr, r->submitted_sge));
	set(o, "effective", srq_caps(r->effective_wr, r->effective_sge));
	set(o, "bytes", ring_bytes(r->ring_bytes, r->bookkeeping_bytes, r->basis));
	set(o, "posts_visible", json_boolean(!(r->flags & WQ_HIDDEN)));
	set(o, "recv", r->flags & WQ_HIDDEN ? json_null() : wq_side(side(&counts)));
	put_item(l->w, o);
	return !ferror(l->w->out);
}

/* Groups. */

static void set_group_counts(json_t *o, const struct model *m, const struct group_view *g)
{
	const struct group_record *r = &g->record;

	set(o, "device", device_name(m, r->device));
	set(o, "library_owned", json_boolean(r->qp_flags & LIBRARY_OWNED));
	set(o, "live", number(LOADED(r->live)));
	set(o, "created", number(LOADED(r->created)));
	set(o, "destroyed", number(g->destroyed));
	set(o, "peak_live", number(LOADED(r->peak_live)));
	set(o, "bytes", number(LOADED(r->bytes)));
	set(o, "peak_bytes", number(LOADED(r->peak_bytes)));
	set(o, "basis", text_or_null(basis_name(r->basis)));
}

static json_t *qp_group(const struct model *m, const struct group_view *g)
{
	const struct group_record *r = &g->record;
	json_t *o = json_object();

	set(o, "caller", r->flags & GROUP_OTHER ? caller_other() : caller(m, r->caller));
	set(o, "stack", stack(m, r->caller));
	set(o, "type", r->flags & GROUP_OTHER ? json_null() : text(qp_type_name(r->type)));
	set_group_counts(o, m, g);
	set(o, "srq", json_boolean(r->qp_flags & QP_HAS_SRQ));
	set(o, "requested", r->flags & GROUP_OTHER ? json_null() : caps(&r->requested));
	set(o, "effective", r->flags & GROUP_OTHER ? json_null() : caps(&r->effective));
	set(o, "send", side_total(&g->send));
	set(o, "recv",
	    recv_side_absent(r->qp_flags, &g->recv.counts) ? json_null() : side_total(&g->recv));
	return o;
}

static json_t *cq_group(const struct model *m, const struct group_view *g)
{
	const struct group_record *r = &g->record;
	bool other = r->flags & GROUP_OTHER, hidden = g->polls.hidden && !g->polls.visible;
	json_t *o = json_object();

	set(o, "caller", other ? caller_other() : caller(m, r->caller));
	set(o, "stack", stack(m, r->caller));
	set_group_counts(o, m, g);
	set(o, "requested_cqe", other ? json_null() : number(r->requested.max_send_wr));
	set(o, "effective_cqe", other ? json_null() : number(r->effective.max_send_wr));
	set(o, "peak_bound_wrs", number(g->peak_bound_wrs));
	set(o, "completions", hidden ? json_null() : number(g->completions));
	set(o, "flushed_unattributed", hidden ? json_null() : number(g->flushed_unattributed));
	set(o, "peak_backlog", hidden ? json_null() : number(g->peak_backlog));
	return o;
}

static json_t *srq_group(const struct model *m, const struct group_view *g)
{
	const struct group_record *r = &g->record;
	bool other = r->flags & GROUP_OTHER;
	json_t *o = json_object();

	set(o, "caller", other ? caller_other() : caller(m, r->caller));
	set(o, "stack", stack(m, r->caller));
	set_group_counts(o, m, g);
	set(o, "requested",
	    other ? json_null() : srq_caps(r->requested.max_recv_wr, r->requested.max_recv_sge));
	set(o, "effective",
	    other ? json_null() : srq_caps(r->effective.max_recv_wr, r->effective.max_recv_sge));
	set(o, "recv", side_total(&g->recv));
	return o;
}

static json_t *wq_group(const struct model *m, const struct group_view *g)
{
	json_t *o = srq_group(m, g);

	wq_side(json_object_get(o, "recv"));
	return o;
}

static void put_groups(struct json_output *w, const struct model *m, const char *key,
		       enum state_kind kind,
		       json_t *(*item)(const struct model *, const struct group_view *))
{
	begin_list(w, key);
	for (unsigned int i = 0; i < STATE_MAX_GROUPS; i++)
		if (m->groups[i].used && m->groups[i].record.kind == kind)
			put_item(w, item(m, &m->groups[i]));
	end_list(w);
}

/* The process as a whole. */

static void set_devx(json_t *o, const struct state_devx *s)
{
	json_t *objects = json_object(), *kind;

	for (unsigned int i = 0; i < DEVX_KINDS && devx_kind_name(i); i++) {
		if (!LOADED(s->created[i]))
			continue;
		kind = json_object();
		set(kind, "live", number(LOADED(s->live[i])));
		set(kind, "peak", number(LOADED(s->peak[i])));
		set(kind, "created", number(LOADED(s->created[i])));
		set(objects, devx_kind_name(i), kind);
	}
	set(o, "devx_objects", number(model_devx_objects(s)));
	set(o, "devx_bytes", number(LOADED(s->umem_bytes)));
	set(o, "devx_peak_bytes", number(LOADED(s->peak_umem_bytes)));
	set(o, "devx", objects);
}

/* Kinds of which there were any; null of librdmacm that was not used. */
static json_t *cm_events(const struct state_header *h)
{
	json_t *o = json_object(), *one;

	for (unsigned int i = 0; i < STATE_CM_EVENTS; i++) {
		const struct state_cm_event *e = &h->cm_events[i];

		if (!LOADED(e->count))
			continue;
		one = json_object();
		set(one, "count", number(LOADED(e->count)));
		set(one, "with_status", number(LOADED(e->with_status)));
		set(one, "last_status",
		    LOADED(e->with_status) ? json_integer(LOADED(e->last_status)) : json_null());
		set(o, cm_event_name(i), one);
	}
	return o;
}

static json_t *guard(const struct model *m)
{
	const struct state_header *h = m->header;
	json_t *o = json_object(), *entries = json_object(), *unguarded = json_object();

	for (unsigned int i = 0; i < ENTRY_POINTS && entry_name(i); i++)
		set(entries, entry_name(i), number(LOADED(h->entry_points[i])));
	set_devx(unguarded, &h->devx);
	set(o, "version", text_or_null(h->guard_version));
	set(o, "action", text(model_action(m)));
	set(o, "policy_file", text_or_null(h->policy_file));
	set(o, "injects", json_boolean(h->injects != 0));
	set(o, "policy_complaints", number(LOADED(h->policy_complaints)));
	set(o, "entry_points", entries);
	set(o, "looked_up", number(LOADED(h->looked_up)));
	set(o, "unguarded", unguarded);
	return o;
}

static json_t *totals(const struct model *m)
{
	const struct state_totals *t = &m->header->totals;
	json_t *o = json_object();

	set(o, "live_qps", number(LOADED(t->live_qps)));
	set(o, "live_cqs", number(LOADED(t->live_cqs)));
	set(o, "live_srqs", number(LOADED(t->live_srqs)));
	set(o, "bytes", number(LOADED(t->bytes)));
	set(o, "peak_bytes", number(LOADED(t->peak_bytes)));
	set(o, "peak_qps", number(LOADED(t->peak_qps)));
	set(o, "created_qps", number(LOADED(t->created_qps)));
	set(o, "destroyed_qps", number(LOADED(t->destroyed_qps)));
	set(o, "created_cqs", number(LOADED(t->created_cqs)));
	set(o, "destroyed_cqs", number(LOADED(t->destroyed_cqs)));
	set(o, "created_srqs", number(LOADED(t->created_srqs)));
	set(o, "destroyed_srqs", number(LOADED(t->destroyed_srqs)));
	set(o, "create_failures", number(LOADED(t->create_failures)));
	set(o, "budget_refusals", number(LOADED(t->budget_refusals)));
	set(o, "clamped", number(LOADED(t->clamped)));
	set(o, "live_wqs", number(LOADED(m->header->wqs.live)));
	set(o, "created_wqs", number(LOADED(m->header->wqs.created)));
	set(o, "destroyed_wqs", number(LOADED(m->header->wqs.destroyed)));
	set(o, "unrecorded", number(LOADED(t->unrecorded)));
	return o;
}

/* The sizes most used first. */
static json_t *mr_sizes(const struct state_mrs *r)
{
	unsigned int order[STATE_MR_CLASSES], n = model_mr_classes(r, order);
	json_t *list = json_array(), *o;

	for (unsigned int i = 0; i < n; i++) {
		o = json_object();
		set(o, "from", number(mr_class_from(order[i])));
		set(o, "to", number_or_null(mr_class_to(order[i])));
		set(o, "registered", number(LOADED(r->sizes[order[i]])));
		json_array_append_new(list, o);
	}
	return list;
}

static json_t *mrs(const struct state_mrs *r)
{
	json_t *o = json_object(), *library = json_object(), *dm = json_object();

	set(library, "count", number(LOADED(r->library_live)));
	set(library, "bytes", number(LOADED(r->library_bytes)));
	set(dm, "count", number(LOADED(r->dms)));
	set(dm, "peak", number(LOADED(r->peak_dms)));
	set(dm, "bytes", number(LOADED(r->dm_bytes)));
	set(dm, "peak_bytes", number(LOADED(r->peak_dm_bytes)));
	set(o, "count", number(LOADED(r->live)));
	set(o, "peak", number(LOADED(r->peak)));
	set(o, "bytes", number(LOADED(r->bytes)));
	set(o, "peak_bytes", number(LOADED(r->peak_bytes)));
	set(o, "registered", number(LOADED(r->registered)));
	set(o, "made_by_libraries", library);
	set(o, "device_memory", dm);
	set(o, "sizes", mr_sizes(r));
	return o;
}

/* Limits whose use this version of the guard does not count. */
static bool use_is_counted(unsigned int limit)
{
	return limit != BUDGET_NODE_BYTES;
}

static json_t *budget(const struct model *m)
{
	json_t *o = json_object();

	for (unsigned int i = 0; i < BUDGET_LIMITS; i++) {
		const struct state_budget *b = &m->header->budget[i];
		bool counted = use_is_counted(i);
		json_t *one = json_object();

		set(one, "limit", number_or_null(LOADED(b->limit)));
		set(one, "conditional", json_boolean(b->conditional));
		set(one, "action", text(action_name(LOADED(b->action))));
		set(one, "used",
		    counted && i != BUDGET_BYTES_PER_QP ? number(LOADED(b->used)) : json_null());
		set(one, "peak", counted ? number(LOADED(b->peak)) : json_null());
		set(one, "refusals", counted ? number(LOADED(b->refusals)) : json_null());
		set(o, policy_keys[i].name, one);
	}
	return o;
}

static json_t *limits(const struct model *m)
{
	struct process_memory memory;
	json_t *o = json_object();

	process_memory_read(m->file, &memory);
	set(o, "memlock_bytes", number_or_null(m->header->memlock_bytes));
	set(o, "memlock_unlimited", json_boolean(m->header->memlock_bytes == UINT64_MAX));
	set(o, "memlock_used_bytes", number_or_null(memory.pinned));
	set(o, "cgroup_memory_max", number_or_null(m->header->cgroup_memory_max));
	set(o, "cgroup_memory_current", number_or_null(memory.cgroup_current));
	return o;
}

static json_t *labels(const char *s)
{
	json_t *o = json_object();

	while (*s) {
		size_t len = strcspn(s, ",");
		const char *equals = memchr(s, '=', len);
		size_t name = equals ? (size_t)(equals - s) : len;
		char key[TEXT_BYTES];

		show_text(key, sizeof(key), s, name, ESCAPE_FOR_JSON);
		if (name)
			set(o, key, equals ? text_of(equals + 1, len - name - 1) : text(""));
		s += len + (s[len] == ',');
	}
	return o;
}

/* All recorded arguments; null unless the policy asked for them. */
static json_t *args(const struct state_header *h)
{
	size_t end = sizeof(h->argv0);
	json_t *list;

	if (!h->args_recorded)
		return json_null();
	while (end > 0 && !h->argv0[end - 1])
		end--;
	list = json_array();
	for (size_t at = 0; at < end; at += strnlen(h->argv0 + at, end - at) + 1)
		json_array_append_new(list,
				      text_of(h->argv0 + at, strnlen(h->argv0 + at, end - at)));
	return list;
}

static json_t *device(const struct device_record *d)
{
	bool known = LOADED(d->known);
	json_t *o = json_object();

#define LIMIT(name) set(o, #name, known ? number(d->limits.name) : json_null())
	set(o, "name", text(d->name));
	set(o, "driver", text_or_null(d->driver));
	set(o, "firmware", text_or_null(d->firmware));
	LIMIT(max_qp);
	LIMIT(max_qp_wr);
	LIMIT(max_sge);
	LIMIT(max_cq);
	LIMIT(max_cqe);
	LIMIT(max_srq);
	LIMIT(max_srq_wr);
	LIMIT(max_srq_sge);
#undef LIMIT
	set(o, "contexts", number(LOADED(d->contexts)));
	set(o, "bytes", number(LOADED(d->bytes)));
	set(o, "peak_bytes", number(LOADED(d->peak_bytes)));
	return o;
}

static json_t *failure_request(const struct failure_record *f)
{
	json_t *o;

	switch (f->reason.call) {
	case CALL_CREATE_QP:
		return caps(&f->requested);
	case CALL_CREATE_CQ:
	case CALL_RESIZE_CQ:
		o = json_object();
		set(o, "cqe", number(f->requested.max_send_wr));
		return o;
	case CALL_REG_MR:
		o = json_object();
		set(o, "bytes",
		    number((uint64_t)f->requested.max_send_wr << 32 | f->requested.max_recv_wr));
		return o;
	case CALL_POST_SEND:
	case CALL_POST_RECV:
		return caps(&f->requested);
	case CALL_POST_SRQ_RECV:
	case CALL_CREATE_SRQ:
	case CALL_MODIFY_SRQ:
	case CALL_CREATE_WQ:
		return srq_caps(f->requested.max_recv_wr, f->requested.max_recv_sge);
	default:
		return json_null();
	}
}

static json_t *failure(const struct model *m, const struct failure_record *f)
{
	const struct device_record *d = model_device(m, f->device);
	char sentence[512], name[32];
	bool other = f->reason.reason == 0;
	json_t *o = json_object();

	reason_sentence(&f->reason, d ? d->name : "", sentence, sizeof(sentence));
	set(o, "call", other ? json_null() : text(guarded_call_name(f->reason.call)));
	set(o, "device", device_name(m, f->device));
	set(o, "caller", caller(m, f->caller));
	set(o, "stack", stack(m, f->caller));
	set(o, "errno",
	    other ? json_null() : text(errno_name(f->reason.error, name, sizeof(name))));
	set(o, "errno_number", other ? json_null() : json_integer(f->reason.error));
	set(o, "type",
	    f->reason.call == CALL_CREATE_QP ? text(qp_type_name(f->qp_type)) : json_null());
	set(o, "requested", other ? json_null() : failure_request(f));
	set(o, "reason", other ? json_string("other") : text(reason_code(f->reason.reason)));
	set(o, "text", other ? json_string("failures of further kinds") : text(sentence));
	set(o, "count", number(LOADED(f->count)));
	set(o, "first_at", when(LOADED(f->first_at)));
	set(o, "last_at", when(LOADED(f->last_at)));
	return o;
}

static json_t *event(const struct event_record *e)
{
	static const char *const levels[] = { "off", "warn", "info", "debug" };
	json_t *o = json_object();

	set(o, "level", e->level < 4 ? json_string(levels[e->level]) : json_null());
	set(o, "text", text(e->text));
	set(o, "count", number(LOADED(e->count)));
	set(o, "first_at", when(LOADED(e->first_at)));
	set(o, "last_at", when(LOADED(e->last_at)));
	return o;
}

/* Of a forked child; else null. */
static json_t *inherited(const struct state_header *h)
{
	json_t *o;

	if (!h->parent_pid)
		return json_null();
	o = json_object();
	set(o, "qps", number(h->inherited_qps));
	set(o, "cqs", number(h->inherited_cqs));
	set(o, "srqs", number(h->inherited_srqs));
	set(o, "posts", number(LOADED(h->inherited_uses[INHERITED_POSTS])));
	set(o, "completions", number(LOADED(h->inherited_uses[INHERITED_COMPLETIONS])));
	set(o, "modified_qps", number(LOADED(h->inherited_uses[INHERITED_MODIFIED])));
	set(o, "destroyed_qps", number(LOADED(h->inherited_uses[INHERITED_DESTROYED])));
	return o;
}

static void put_identity(struct json_output *w, const struct model *m)
{
	const struct state_header *h = m->header;
	const struct ended *e = &m->file->ended;
	uint64_t ended_at = LOADED(h->ended_at);

	if (w->lines)
		put_field(w, "schema", json_integer(SCHEMA));
	put_field(w, "pid", number(h->pid));
	put_field(w, "parent_pid", h->parent_pid ? number(h->parent_pid) : json_null());
	put_field(w, "inherited", inherited(h));
	put_field(w, "exe", text_or_null(h->exe));
	put_field(w, "comm", text_or_null(h->comm));
	put_field(w, "argv0", text_or_null(h->argv0));
	put_field(w, "args", args(h));
	put_field(w, "labels", labels(h->labels));
	put_field(w, "host", text_or_null(h->host));
	put_field(w, "uid", number(h->uid));
	put_field(w, "started_at", when(h->started_at));
	put_field(w, "ended_at", when(ended_at ? ended_at : e->at));
	put_field(w, "state", text(process_state_names[m->file->state]));
	put_field(w, "signal", e->known && e->signal ? json_integer(e->signal) : json_null());
	put_field(w, "exit_code",
		  e->known && !e->signal ? json_integer(e->exit_code) : json_null());
	put_field(w, "state_file", text_or_null(m->path));
}

static void put_reading(struct json_output *w, const struct model *m)
{
	json_t *o = json_object();

	set(o, "torn_records", number(m->torn));
	set(o, "damaged_records", number(m->damaged + m->strays));
	set(o, "of_one_moment", json_boolean(m->settled));
	set(o, "trouble", text_or_null(m->trouble));
	set(o, "incomplete", json_boolean(LOADED(m->header->incomplete)));
	put_field(w, "reading", o);
}

static void put_lists(struct json_output *w, const struct model *m)
{
	struct object_list list = { w, m };

	begin_list(w, "qps");
	statefile_each(m->file, KIND_QP, put_qp, &list);
	end_list(w);
	begin_list(w, "cqs");
	statefile_each(m->file, KIND_CQ, put_cq, &list);
	end_list(w);
	put_groups(w, m, "cq_groups", KIND_CQ, cq_group);
	begin_list(w, "srqs");
	statefile_each(m->file, KIND_SRQ, put_srq, &list);
	end_list(w);
	put_groups(w, m, "srq_groups", KIND_SRQ, srq_group);
	begin_list(w, "wqs");
	statefile_each(m->file, KIND_WQ, put_wq, &list);
	end_list(w);
	put_groups(w, m, "wq_groups", KIND_WQ, wq_group);
}

static void put_records(struct json_output *w, const struct model *m)
{
	begin_list(w, "failures");
	for (unsigned int i = 0; i < STATE_MAX_FAILURES; i++)
		if (LOADED(m->failures[i].state) != RECORD_FREE)
			put_item(w, failure(m, &m->failures[i]));
	end_list(w);
	begin_list(w, "events");
	for (unsigned int i = 0; i < STATE_MAX_EVENTS; i++)
		if (LOADED(m->events[i].state) != RECORD_FREE)
			put_item(w, event(&m->events[i]));
	end_list(w);
}

void json_output_begin(struct json_output *w)
{
	w->processes = 0;
	if (!w->lines)
		fprintf(w->out, "{\n  \"schema\": %d,\n  \"processes\": [", SCHEMA);
}

void json_output_process(struct json_output *w, const struct model *m)
{
	if (!w->lines)
		fprintf(w->out, "%s\n    ", w->processes ? "," : "");
	w->processes++;
	w->fields = 0;
	fputc('{', w->out);
	put_identity(w, m);
	put_field(w, "guard", guard(m));
	put_field(w, "totals", totals(m));
	put_field(w, "budget", budget(m));
	put_field(w, "limits", limits(m));
	begin_list(w, "devices");
	for (unsigned int i = 0; i < STATE_MAX_DEVICES; i++)
		if (model_device(m, (uint16_t)i))
			put_item(w, device(&m->devices[i]));
	end_list(w);
	put_groups(w, m, "groups", KIND_QP, qp_group);
	put_lists(w, m);
	put_field(w, "mrs", mrs(&m->header->mrs));
	put_field(w, "cm_events", cm_events(m->header));
	put_records(w, m);
	put_reading(w, m);
	fprintf(w->out, "%s}%s", line_break(w, "\n    "), w->lines ? "\n" : "");
}

void json_output_end(struct json_output *w)
{
	if (!w->lines)
		fprintf(w->out, "%s]\n}\n", w->processes ? "\n  " : "");
}
