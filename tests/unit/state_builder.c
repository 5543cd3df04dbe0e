/* SPDX-License-Identifier: MIT */
/*
 * Builds state files for tests: see state_builder.h. Allocation failures end the test.
 */
#include "state_builder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define START	    1772366400000000000ull /* 2026-03-01 12:00:00 UTC */
#define BLOCK_BYTES 4096u

static const uint32_t sizes[KINDS] = {
	[KIND_QP] = sizeof(struct qp_record),
	[KIND_CQ] = sizeof(struct cq_record),
	[KIND_SRQ] = sizeof(struct srq_record),
	[KIND_GROUP] = sizeof(struct group_record),
	[KIND_FAILURE] = sizeof(struct failure_record),
	[KIND_DEVICE] = sizeof(struct device_record),
	[KIND_MODULE] = sizeof(struct module_record),
	[KIND_CALLER] = sizeof(struct caller_record),
	[KIND_EVENT] = sizeof(struct event_record),
	[KIND_FRAME] = sizeof(struct frame_record),
	[KIND_WQ] = sizeof(struct wq_record),
};

static void grow(struct builder *b, size_t bytes)
{
	size_t room = b->size + bytes;

	if (room > b->room) {
		unsigned char *fresh = aligned_alloc(4096, (2 * room + 4095) / 4096 * 4096);

		if (!fresh)
			abort();
		memset(fresh, 0, 2 * room);
		if (b->size)
			memcpy(fresh, b->bytes, b->size);
		free(b->bytes);
		b->bytes = fresh;
		b->room = 2 * room;
	}
	memset(b->bytes + b->size, 0, bytes);
	b->size += bytes;
	((struct state_header *)b->bytes)->file_bytes = b->size;
}

struct state_header *builder_header(struct builder *b)
{
	return (struct state_header *)b->bytes;
}

void builder_begin(struct builder *b)
{
	struct state_header *h;

	memset(b, 0, sizeof(*b));
	grow(b, STATE_HEADER_BYTES);
	h = builder_header(b);
	memcpy(h->magic, STATE_MAGIC, sizeof(h->magic));
	h->version = STATE_VERSION;
	h->byte_order = STATE_BYTE_ORDER;
	h->header_bytes = STATE_HEADER_BYTES;
	h->block_header_bytes = STATE_BLOCK_HEADER_BYTES;
	memcpy(h->record_bytes, sizes, sizeof(sizes));
	h->pid = 4711;
	h->uid = 1000;
	h->start_ticks = 1;
	h->started_at = START;
	h->memlock_bytes = 8u << 20;
	h->cgroup_memory_max = UINT64_MAX;
	for (unsigned int i = 0; i < 16; i++)
		h->budget[i].limit = UINT64_MAX;
	strcpy(h->guard_version, "0.1.0");
	strcpy(h->comm, "sender");
	strcpy(h->host, "node7");
	strcpy(h->exe, "/usr/bin/sender");
	strcpy(h->argv0, "sender");
	builder_block(b, KIND_GROUP, 16);
}

void builder_free(struct builder *b)
{
	free(b->bytes);
	memset(b, 0, sizeof(*b));
}

uint32_t builder_block(struct builder *b, enum state_kind kind, uint32_t records)
{
	size_t at = b->size, bytes = STATE_BLOCK_HEADER_BYTES + (size_t)records * sizes[kind];
	struct state_block *block;
	uint32_t first = b->records[kind];

	bytes = (bytes + BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES;
	grow(b, bytes);
	block = (struct state_block *)(b->bytes + at);
	block->kind = kind;
	block->record_bytes = sizes[kind];
	block->records = records;
	block->bytes = (uint32_t)bytes;
	block->first = first;
	b->records[kind] += records;
	return first;
}

void *builder_record(struct builder *b, enum state_kind kind, uint32_t index)
{
	size_t at = STATE_HEADER_BYTES;

	while (at < b->size) {
		struct state_block *block = (struct state_block *)(b->bytes + at);

		if (block->kind == kind && index >= block->first &&
		    index < block->first + block->records)
			return b->bytes + at + STATE_BLOCK_HEADER_BYTES +
			       (size_t)(index - block->first) * sizes[kind];
		at += block->bytes;
	}
	abort();
}

/* The next unused record: all records of a kind begin with seq and then state. */
static void *fresh(struct builder *b, enum state_kind kind, uint32_t *index)
{
	struct state_header *h = builder_header(b);

	*index = h->used[kind];
	if (*index == b->records[kind])
		builder_block(b, kind, 16);
	builder_header(b)->used[kind]++;
	((struct device_record *)builder_record(b, kind, *index))->state = RECORD_LIVE;
	return builder_record(b, kind, *index);
}

uint32_t builder_device(struct builder *b, const char *name, const char *driver)
{
	uint32_t index;
	struct device_record *d = fresh(b, KIND_DEVICE, &index);

	d->limits = (struct device_limits){ 65536, 16384, 32, 65536, 32768, 65536, 16384, 30 };
	d->known = d->contexts = 1;
	snprintf(d->name, sizeof(d->name), "%s", name);
	snprintf(d->driver, sizeof(d->driver), "%s", driver);
	return index;
}

uint16_t builder_frame(struct builder *b, const char *module, uint64_t offset)
{
	uint32_t index, m;
	struct module_record *r = fresh(b, KIND_MODULE, &m);
	struct frame_record *f;

	r->base = 0x7f0000000000;
	snprintf(r->path, sizeof(r->path), "%s", module);
	f = fresh(b, KIND_FRAME, &index);
	f->module = (uint16_t)m;
	f->offset = offset;
	f->address = 0x7f0000000000 + offset;
	return (uint16_t)index;
}

uint32_t builder_stack(struct builder *b, const uint16_t *frame, unsigned int frames)
{
	uint32_t index;
	struct caller_record *c = fresh(b, KIND_CALLER, &index);

	c->frames = (uint8_t)frames;
	memcpy(c->frame, frame, frames * sizeof(*frame));
	return index;
}

uint32_t builder_caller(struct builder *b, const char *module, uint64_t offset)
{
	uint16_t frame = builder_frame(b, module, offset);

	return builder_stack(b, &frame, 1);
}

uint32_t builder_failure(struct builder *b, const struct failure_reason *reason, uint16_t device,
			 uint64_t count)
{
	uint32_t index;
	struct failure_record *f = fresh(b, KIND_FAILURE, &index);

	f->reason = *reason;
	f->device = device;
	f->caller = 0xffff;
	f->qp_type = QP_TYPE_RC;
	f->count = count;
	f->first_at = START + 1000000000u;
	f->last_at = START + 9000000000u;
	return index;
}

uint32_t builder_event(struct builder *b, enum log_level level, const char *text, uint64_t count)
{
	uint32_t index;
	struct event_record *e = fresh(b, KIND_EVENT, &index);

	e->level = (uint8_t)level;
	e->count = count;
	e->first_at = e->last_at = START + 5000000000u + index * 1000000000ull;
	snprintf(e->text, sizeof(e->text), "%s", text);
	return index;
}

uint32_t builder_group(struct builder *b, const struct group_shape *shape)
{
	uint32_t index;
	struct group_record *g = fresh(b, KIND_GROUP, &index);

	g->kind = (uint8_t)shape->kind;
	g->type = (uint8_t)shape->type;
	g->device = shape->device;
	g->caller = shape->caller;
	g->requested = shape->requested;
	g->effective = shape->effective;
	g->qp_flags = shape->qp_flags;
	g->basis = BASIS_MODEL;
	return index;
}

static void count_member(struct builder *b, struct group_record *g, uint64_t bytes)
{
	struct state_totals *t = &builder_header(b)->totals;

	g->created++;
	g->live++;
	if (g->live > g->peak_live)
		g->peak_live = g->live;
	g->bytes += bytes;
	if (g->bytes > g->peak_bytes)
		g->peak_bytes = g->bytes;
	t->bytes += bytes;
	if (t->bytes > t->peak_bytes)
		t->peak_bytes = t->bytes;
}

struct qp_record *builder_qp(struct builder *b, uint32_t group, uint32_t bytes)
{
	uint32_t index;
	struct qp_record *r = fresh(b, KIND_QP, &index);
	struct group_record *g = builder_record(b, KIND_GROUP, group);
	struct state_totals *t = &builder_header(b)->totals;

	count_member(b, g, bytes);
	t->live_qps++;
	t->created_qps++;
	if (t->live_qps > t->peak_qps)
		t->peak_qps = t->live_qps;
	r->type = g->type;
	r->qp_state = 3; /* RTS */
	r->flags = g->qp_flags;
	r->id = ++b->qp_id;
	r->qp_num = 0x10 + r->id;
	r->device = g->device;
	r->group = (uint16_t)group;
	r->caller = g->caller;
	r->basis = BASIS_MODEL;
	r->send_cq = r->recv_cq = 1;
	r->srq = STATE_NONE;
	r->requested = r->submitted = g->requested;
	r->effective = g->effective;
	r->created_at = START + 500000000u;
	r->sq_bytes = bytes / 2;
	r->rq_bytes = bytes - bytes / 2;
	return r;
}

struct cq_record *builder_cq(struct builder *b, uint32_t group, uint64_t bytes)
{
	uint32_t index;
	struct cq_record *r = fresh(b, KIND_CQ, &index);
	struct group_record *g = builder_record(b, KIND_GROUP, group);

	count_member(b, g, bytes);
	builder_header(b)->totals.live_cqs++;
	builder_header(b)->totals.created_cqs++;
	r->id = ++b->cq_id;
	r->device = g->device;
	r->group = (uint16_t)group;
	r->caller = g->caller;
	r->basis = BASIS_MODEL;
	r->requested_cqe = r->submitted_cqe = g->requested.max_send_wr;
	r->effective_cqe = g->effective.max_send_wr;
	r->created_at = START + 400000000u;
	r->ring_bytes = bytes;
	return r;
}

struct srq_record *builder_srq(struct builder *b, uint32_t group, uint64_t bytes)
{
	uint32_t index;
	struct srq_record *r = fresh(b, KIND_SRQ, &index);
	struct group_record *g = builder_record(b, KIND_GROUP, group);

	count_member(b, g, bytes);
	builder_header(b)->totals.live_srqs++;
	builder_header(b)->totals.created_srqs++;
	r->id = ++b->srq_id;
	r->device = g->device;
	r->group = (uint16_t)group;
	r->caller = g->caller;
	r->basis = BASIS_MODEL;
	r->requested_wr = r->submitted_wr = g->requested.max_recv_wr;
	r->requested_sge = r->submitted_sge = g->requested.max_recv_sge;
	r->effective_wr = g->effective.max_recv_wr;
	r->effective_sge = g->effective.max_recv_sge;
	r->created_at = START + 450000000u;
	r->ring_bytes = bytes;
	return r;
}

void builder_destroyed(struct builder *b, uint32_t group, uint64_t members, uint64_t sends)
{
	struct group_record *g = builder_record(b, KIND_GROUP, group);
	struct group_sums *s = &g->sums[g->folded & 1];
	struct state_totals *t = &builder_header(b)->totals;

	g->created += members;
	s->destroyed += members;
	if (g->kind == KIND_QP) {
		s->send.posted += members * sends;
		s->send.completed += members * sends;
		t->created_qps += members;
		t->destroyed_qps += members;
	} else if (g->kind == KIND_CQ) {
		s->completions += members * sends;
		t->created_cqs += members;
		t->destroyed_cqs += members;
	}
}

bool builder_save(const struct builder *b, const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	bool done = fd >= 0 && write(fd, b->bytes, b->size) == (ssize_t)b->size;

	return fd >= 0 && close(fd) == 0 && done;
}

/* The sample. */

static void sample_qps(struct builder *b, uint16_t device, uint16_t caller)
{
	struct group_shape shape = {
		KIND_QP, QP_TYPE_RC, device, caller, { 128, 512, 4, 1, 0 }, { 128, 512, 4, 1, 64 },
		0
	};
	uint32_t busy = builder_group(b, &shape), lone, shared, deep;

	for (int i = 0; i < 3; i++) {
		struct qp_record *r = builder_qp(b, busy, 98304);

		r->post_send_posted = 100000 + (uint64_t)i;
		r->poll_send_completions = 99990;
		r->post_send_peak = 128;
		r->post_recv_posted = 5000;
		r->poll_recv_retired = 4488;
		r->post_recv_peak = 512;
		r->post_send_peak_sge = 3;
		r->send_refused.queue_full = i ? 0 : 7;
		r->send_refused.too_many_sge = i ? 0 : 1;
		r->send_refused.not_posted = i ? 0 : 31;
	}
	builder_destroyed(b, busy, 2, 1234567);
	shape.type = QP_TYPE_UD;
	shape.requested = shape.effective = (struct qp_caps){ 16, 256, 1, 1, 0 };
	lone = builder_group(b, &shape);
	builder_qp(b, lone, 24576)->flags |= QP_SENDS_HIDDEN | QP_RECVS_HIDDEN;
	shape.type = QP_TYPE_RC;
	shape.qp_flags = QP_HAS_SRQ;
	shape.requested = shape.effective = (struct qp_caps){ 1024, 0, 16, 0, 220 };
	shared = builder_group(b, &shape);
	for (int i = 0; i < 8; i++)
		builder_qp(b, shared, 1u << 20)->srq = 1;
	shape.qp_flags = 0;
	shape.requested = (struct qp_caps){ 4000, 4000, 16, 16, 0 };
	shape.effective = (struct qp_caps){ 4096, 4096, 16, 16, 64 };
	deep = builder_group(b, &shape);
	builder_destroyed(b, deep, 12, 777);
}

static void sample_others(struct builder *b, uint16_t device, uint16_t caller)
{
	struct group_shape shape = {
		KIND_CQ, 0, device, caller, { 1024, 0, 0, 0, 0 }, { 1023, 0, 0, 0, 0 }, 0
	};
	uint32_t g = builder_group(b, &shape);
	struct cq_record *c = builder_cq(b, g, 65536);
	struct srq_record *s;

	c->bound_send_wrs = 400;
	c->bound_recv_wrs = 1024;
	c->peak_bound_wrs = 1424;
	c->poll_completions = 299970;
	c->peak_backlog = 96;
	builder_cq(b, g, 65536)->flags = CQ_POLLS_HIDDEN;
	builder_destroyed(b, g, 2, 4242);
	shape.kind = KIND_SRQ;
	shape.requested = shape.effective = (struct qp_caps){ 0, 4096, 0, 2, 0 };
	s = builder_srq(b, builder_group(b, &shape), 524288);
	s->post_posted = 70000;
	s->retired = 66000;
	s->post_peak = 4096;
}

void builder_sample(struct builder *b)
{
	static const struct failure_reason failures[] = {
		{ CALL_CREATE_QP, REASON_BUDGET, BUDGET_QPS, ENOMEM, 4, 3, { 0 } },
		{ CALL_CREATE_QP, REASON_DEVICE_LIMIT, FIELD_MAX_SEND_SGE, EINVAL, 33, 32, { 0 } },
		{ CALL_CREATE_CQ, REASON_UNKNOWN, 0, ENOMEM, 0, 0, { 0 } },
	};
	struct state_header *h;
	uint16_t device, caller;

	builder_begin(b);
	device = (uint16_t)builder_device(b, "rxe0", "rxe");
	caller = (uint16_t)builder_caller(b, "/usr/lib/x86_64-linux-gnu/libstorage.so.1", 0x12f40);
	sample_qps(b, device, caller);
	sample_others(b, device, caller);
	for (unsigned int i = 0; i < 3; i++)
		builder_failure(b, &failures[i], device, i == 1 ? 12 : 1);
	builder_event(b, LOG_WARN, "rxe0: create_qp refused by budget qps: would be 4, limit 3", 1);
	builder_event(b, LOG_INFO, "state file in /run/qpguard", 1);
	h = builder_header(b);
	strcpy(h->labels, "job=train7,rank=3");
	strcpy(h->policy_file, "/etc/qpguard.conf");
	h->totals.create_failures = 13;
	h->totals.budget_refusals = 1;
	h->budget[BUDGET_QPS].limit = 32;
	h->budget[BUDGET_QPS].used = h->budget[BUDGET_QPS].peak = 12;
	h->budget[BUDGET_QPS].action = ACTION_REFUSE;
	h->budget[BUDGET_QPS].refusals = 1;
	h->budget[BUDGET_PROCESS_BYTES].limit = 64u << 20;
	h->budget[BUDGET_PROCESS_BYTES].used = h->totals.bytes;
	h->budget[BUDGET_PROCESS_BYTES].peak = h->totals.peak_bytes;
	h->entry_points[ENTRY_CREATE_QP] = 26;
	h->entry_points[ENTRY_CREATE_CQ] = 4;
	h->entry_points[ENTRY_CREATE_SRQ] = 1;
}
