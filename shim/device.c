/* SPDX-License-Identifier: MIT */
/*
 * Opening and closing devices. Every normal open ends in verbs_open_device, which libibverbs and
 * libmlx5 call through the PLT; there the new context gets our functions in its ops and in the creation
 * slots of its verbs_context. The provider's own are kept in a table that is never freed.
 */
#include <errno.h>
#include <string.h>

#include "ask.h"
#include "file.h"
#include "guard.h"
#include "inject.h"
#include "log.h"
#include "real.h"
#include "surroundings.h"
#include "../policy/text.h"

#define HOOKS_IN_CHUNK 64

/* Chunks are linked, so that a pointer to an entry stays good. The first is static. */
struct hooks_chunk {
	struct context_hooks entry[HOOKS_IN_CHUNK];
	_Atomic(struct hooks_chunk *) next;
};
static struct hooks_chunk first_chunk;
static _Atomic uint32_t contexts_opened;

const struct context_hooks *hooks_of(const struct ibv_context *context)
{
	for (struct hooks_chunk *c = &first_chunk; c;
	     c = atomic_load_explicit(&c->next, memory_order_acquire))
		for (unsigned int i = 0; i < HOOKS_IN_CHUNK; i++)
			if (atomic_load_explicit(&c->entry[i].context, memory_order_acquire) ==
			    context)
				return &c->entry[i];
	return NULL;
}

uint32_t last_serial(void)
{
	return atomic_load_explicit(&contexts_opened, memory_order_relaxed);
}

/* Takes a free entry for `context`; the serial is new each time, so keys made with it never repeat. */
static struct context_hooks *hooks_take(struct ibv_context *context)
{
	struct hooks_chunk *c, *more;

	for (c = &first_chunk;; c = c->next) {
		for (unsigned int i = 0; i < HOOKS_IN_CHUNK; i++) {
			struct context_hooks *h = &c->entry[i];

			if (!h->context) {
				h->serial = ++contexts_opened;
				h->real = context->ops;
				return h;
			}
		}
		if (!c->next) {
			more = memory_map_kept(sizeof(*more));
			if (!more)
				return NULL;
			atomic_store_explicit(&c->next, more, memory_order_release);
		}
	}
}

/* "librxe-rdmav34.so" and "libmlx5.so.1" are rxe and mlx5: the name of the object that holds the provider's
 * functions. sysfs names a driver for most devices only. */
static void driver_name(const struct context_hooks *h, char *out, size_t size)
{
	char path[512];
	const char *base = path;
	struct text t = text_begin(out, size);

	if (!module_name_of((const void *)h->real.poll_cq, path, sizeof(path)))
		return;
	for (const char *p = path; *p; p++)
		if (*p == '/')
			base = p + 1;
	if (!strncmp(base, "lib", 3))
		base += 3;
	for (; *base && *base != '.' && strncmp(base, "-rdmav", 6); base++)
		text_char(&t, *base);
}

static struct device *device_add(struct guard *g, const char *name)
{
	struct device *d = &g->devices[g->device_count];
	struct device_record *r;
	uint32_t index;
	struct text t;

	if (g->device_count == STATE_MAX_DEVICES)
		return NULL;
	r = file_add(g, KIND_DEVICE, STATE_MAX_DEVICES, &index);
	if (!r)
		return NULL;
	t = text_begin(r->name, sizeof(r->name));
	text_put(&t, name);
	atomic_store_explicit(&r->state, RECORD_LIVE, memory_order_release);
	d->record = r;
	d->index = (uint16_t)index;
	d->geometry = geometry_of("");
	g->device_count++;
	return d;
}

/* The driver is known from the first context on. */
static void device_opened(struct device *d, const struct context_hooks *h)
{
	struct text t;

	if (d->record->driver[0])
		return;
	t = text_begin(d->record->driver, sizeof(d->record->driver));
	text_put(&t, h->driver);
	d->geometry = geometry_of(h->driver);
	ask_settings(h->driver, &d->facts.settings);
}

static struct device *device_named(struct guard *g, const char *name)
{
	for (unsigned int i = 0; i < g->device_count; i++)
		if (!strncmp(g->devices[i].record->name, name, sizeof(g->devices[i].record->name)))
			return &g->devices[i];
	return device_add(g, name);
}

struct device *device_of(struct guard *g, struct ibv_context *context)
{
	const struct context_hooks *h = hooks_of(context);
	struct device *d = h ? device_named(g, context->device->name) : NULL;

	if (d)
		device_opened(d, h);
	return d;
}

/* Which device, and what this process has there. Under lock. */
static void open_failed(struct guard *g, const struct ibv_device *device, void *address, int error)
{
	struct device *d = device_named(g, device->name);
	struct failure_reason why = { .call = CALL_OPEN_DEVICE,
				      .error = error,
				      .reason = error ? REASON_UNKNOWN : REASON_NO_ERRNO };

	explain_resources(g, d, CALL_OPEN_DEVICE, 0, error, &why);
	note_failure(g, d, &why, caller_index(g, address), 0, NULL);
}

const struct device_limits *limits_of(const struct device *d)
{
	static const struct device_limits unknown;

	return d ? &d->record->limits : &unknown;
}

const struct device_facts *facts_of(const struct device *d)
{
	return d ? &d->facts : NULL;
}

const struct geometry *geometry_for(const struct device *d)
{
	return d ? d->geometry : geometry_of("");
}

static struct real real_query_device SOUGHT_EARLY = { .name = "ibv_query_device",
						      .version = "IBVERBS_1.1" };

/* Not before the application makes an object: a device that is merely opened is asked nothing. */
void device_learn(struct guard *g, struct ibv_context *context)
{
	int (*query)(struct ibv_context *, struct ibv_device_attr *);
	struct ibv_device_attr a;
	struct device *d;
	struct device_record *r;
	struct text t;

	guard_lock(g);
	d = device_of(g, context);
	guard_unlock(g);
	if (!d || atomic_load_explicit(&d->record->known, memory_order_acquire))
		return;
	query = (int (*)(struct ibv_context *, struct ibv_device_attr *))real_find(
		&real_query_device);
	if (!query || query(context, &a))
		return;
	guard_lock(g);
	r = d->record;
	if (!r->known) {
		r->limits = (struct device_limits){
			.max_qp = (uint32_t)a.max_qp,
			.max_qp_wr = (uint32_t)a.max_qp_wr,
			.max_sge = (uint32_t)a.max_sge,
			.max_cq = (uint32_t)a.max_cq,
			.max_cqe = (uint32_t)a.max_cqe,
			.max_srq = (uint32_t)a.max_srq,
			.max_srq_wr = (uint32_t)a.max_srq_wr,
			.max_srq_sge = (uint32_t)a.max_srq_sge,
		};
		d->facts.limits = r->limits;
		a.fw_ver[sizeof(a.fw_ver) - 1] = '\0';
		t = text_begin(r->firmware, sizeof(r->firmware));
		text_put(&t, a.fw_ver);
		atomic_store_explicit(&r->known, 1, memory_order_release);
	}
	guard_unlock(g);
}

static void hook_memory_slots(struct context_slots *s, struct ibv_context *context)
{
	struct verbs_context *v;

	v = verbs_get_ctx_op(context, alloc_null_mr);
	if (v) {
		s->alloc_null_mr = v->alloc_null_mr;
		v->alloc_null_mr = guarded_alloc_null_mr;
	}
	v = verbs_get_ctx_op(context, reg_dm_mr);
	if (v) {
		s->reg_dm_mr = v->reg_dm_mr;
		v->reg_dm_mr = guarded_reg_dm_mr;
	}
	v = verbs_get_ctx_op(context, alloc_dm);
	if (v) {
		s->alloc_dm = v->alloc_dm;
		v->alloc_dm = guarded_alloc_dm;
	}
	v = verbs_get_ctx_op(context, free_dm);
	if (v) {
		s->free_dm = v->free_dm;
		v->free_dm = guarded_free_dm;
	}
}

static void hook_wq_slots(struct context_slots *s, struct ibv_context *context)
{
	struct verbs_context *v;

	v = verbs_get_ctx_op(context, create_wq);
	if (v) {
		s->create_wq = v->create_wq;
		v->create_wq = guarded_create_wq;
	}
	v = verbs_get_ctx_op(context, modify_wq);
	if (v) {
		s->modify_wq = v->modify_wq;
		v->modify_wq = guarded_modify_wq;
	}
	v = verbs_get_ctx_op(context, destroy_wq);
	if (v) {
		s->destroy_wq = v->destroy_wq;
		v->destroy_wq = guarded_destroy_wq;
	}
	v = verbs_get_ctx_op(context, create_rwq_ind_table);
	if (v) {
		s->create_rwq_ind_table = v->create_rwq_ind_table;
		v->create_rwq_ind_table = guarded_create_rwq_ind_table;
	}
}

/* Only slots that exist in this release of libibverbs and that its provider fills: verbs_get_ctx_op(). */
static void hook_slots(struct context_hooks *h, struct ibv_context *context)
{
	struct verbs_context *v;

	h->create_qp_ex = NULL;
	h->create_cq_ex = NULL;
	h->create_srq_ex = NULL;
	h->slots = (struct context_slots){ 0 };
	v = verbs_get_ctx_op(context, create_qp_ex);
	if (v) {
		h->create_qp_ex = v->create_qp_ex;
		v->create_qp_ex = guarded_create_qp_ex;
	}
	v = verbs_get_ctx_op(context, create_cq_ex);
	if (v) {
		h->create_cq_ex = v->create_cq_ex;
		v->create_cq_ex = guarded_create_cq_ex;
	}
	v = verbs_get_ctx_op(context, create_srq_ex);
	if (v) {
		h->create_srq_ex = v->create_srq_ex;
		v->create_srq_ex = guarded_create_srq_ex;
	}
	hook_memory_slots(&h->slots, context);
	hook_wq_slots(&h->slots, context);
	v = verbs_get_ctx_op(context, open_qp);
	if (v) {
		h->slots.open_qp = v->open_qp;
		v->open_qp = guarded_open_qp;
	}
}

static void hook_ops(struct ibv_context *context)
{
	context->ops.post_send = guarded_post_send;
	context->ops.post_recv = guarded_post_recv;
	context->ops.post_srq_recv = guarded_post_srq_recv;
	context->ops.poll_cq = guarded_poll_cq;
	context->ops.bind_mw = guarded_bind_mw;
}

/* Under lock. The entry is whole before the context leads anyone to it. */
static void hook_context(struct guard *g, struct ibv_context *context)
{
	struct context_hooks *h = hooks_take(context);
	struct device *d;

	if (!h)
		return;
	h->driver[0] = '\0';
	driver_name(h, h->driver, sizeof(h->driver));
	hook_slots(h, context);
	atomic_store_explicit(&h->context, context, memory_order_release);
	hook_ops(context);
	d = device_of(g, context);
	if (inject_posts(g, d))
		context->ops.post_send = injected_post_send;
	if (d)
		atomic_fetch_add_explicit(&d->record->contexts, 1, memory_order_relaxed);
}

/* ops that are ours without an entry of ours would lead back to us: such a context is left alone. */
bool context_known(struct guard *g, struct ibv_context *context)
{
	bool known = hooks_of(context) != NULL;

	if (known || context->ops.poll_cq == guarded_poll_cq)
		return known;
	guard_lock(g);
	if (!hooks_of(context))
		hook_context(g, context);
	known = hooks_of(context) != NULL;
	guard_unlock(g);
	return known;
}

/* libibverbs private: libibverbs/device.c. The common end of ibv_open_device and mlx5dv_open_device. */
INTERPOSED struct ibv_context *verbs_open_device(struct ibv_device *device, void *private_data);

static struct real real_open SOUGHT_EARLY = { "verbs_open_device", NULL,
					      .wrapper = (void *)verbs_open_device };
static struct real real_close SOUGHT_EARLY = { "ibv_close_device", "IBVERBS_1.1",
					       .wrapper = (void *)ibv_close_device };

INTERPOSED struct ibv_context *verbs_open_device(struct ibv_device *device, void *private_data)
{
	struct ibv_context *(*open)(struct ibv_device *, void *) =
		(struct ibv_context * (*)(struct ibv_device *, void *)) real_find(&real_open);
	struct guard *g = guard_enter();
	struct ibv_context *context;
	int before = errno, after;
	bool stacks;

	if (!open) {
		errno = ENOSYS;
		return NULL;
	}
	if (!g)
		return open(device, private_data);
	stacks = stack_prepare();
	errno = 0;
	context = open(device, private_data);
	after = errno;
	real_find_early();
	guard_lock(g);
	if (!stacks)
		log_line(
			g, LOG_INFO,
			"libunwind is not there: what made an object is told without a call stack");
	if (context)
		hook_context(g, context);
	else
		open_failed(g, device, CALLER(), after);
	guard_unlock(g);
	errno = context || !after ? before : after;
	return context;
}

/* man ibv_open_device. The address may serve a new context at once, so the entry is freed first. */
INTERPOSED int ibv_close_device(struct ibv_context *context)
{
	int (*close)(struct ibv_context *) = (int (*)(struct ibv_context *))real_find(&real_close);
	struct guard *g = guard_enter();
	struct context_hooks *h;
	struct device *d;

	if (!close)
		return ENOSYS;
	if (g) {
		guard_lock(g);
		h = (struct context_hooks *)hooks_of(context);
		if (h) {
			d = device_of(g, context);
			if (d && d->record->contexts)
				atomic_fetch_sub_explicit(&d->record->contexts, 1,
							  memory_order_relaxed);
			atomic_store_explicit(&h->context, NULL, memory_order_release);
		}
		guard_unlock(g);
	}
	return close(context);
}
