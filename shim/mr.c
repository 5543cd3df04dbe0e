/* SPDX-License-Identifier: MIT */
/*
 * Memory regions and device memory: by symbol and through the slots of a context. Each is held against the
 * budgets mrs and mr_bytes and summed up in the header of the state file (struct state_mrs), with no record of its
 * own there. What it was registered with is kept here until ibv_dereg_mr: the length that an MR tells
 * may change (ibv_rereg_mr) or mean nothing (a null MR), and of device memory there is none to read.
 */
#include <errno.h>

#include "guard.h"
#include "inject.h"
#include "real.h"

/* One MR, or one piece of device memory, that lives. */
struct hot_region {
	const void *object; /* key: struct ibv_mr * or struct ibv_dm * */
	uint64_t bytes;
	bool library;
	uint8_t zero[47];
};
static_assert(sizeof(struct hot_region) == 64, "one cache line, as hot_take gives");

struct lookup regions = LOOKUP(struct hot_region, object);

/* What one registration carries from its beginning to its end. */
struct registration {
	struct guard *guard;
	struct ibv_context *context;
	void *address; /* of the caller */
	uint64_t bytes;
	uint8_t entry; /* enum entry_point */
	bool library;
	int before; /* errno of the application */
	int error;  /* what a refusal of ours fails with */
};

static struct hot_region *region_of(const void *object)
{
	return object ? lookup_find(&regions, offsetof(struct hot_region, object),
				    (uintptr_t)object)
		      : NULL;
}

static void hold(struct guard *g, uint64_t bytes, int sign)
{
	reserve(g, BUDGET_MRS, sign);
	reserve(g, BUDGET_MR_BYTES, sign * (int64_t)bytes);
}

/* An MR of the whole address space, which the device pages in as it goes (IBV_ACCESS_ON_DEMAND), pins nothing. */
static uint64_t pinned_bytes(uint64_t length)
{
	return length > INT64_MAX ? 0 : length;
}

/* Judges one registration; `use` is what it comes on top of. False: refused, counted and told. Under
 * lock. */
static bool judge(struct registration *r, enum guarded_call call, struct policy_usage *use)
{
	struct guard *g = r->guard;
	struct device *d = device_of(g, r->context);
	uint16_t caller = caller_index(g, r->address);
	struct policy_subject subject;
	struct policy_verdict verdict;
	struct policy_values values;

	r->library = made_by_library(g, caller);
	subject_of(g, d, 0, caller, &subject);
	policy_resolve(g->policy, &subject, &values);
	r->error = call == CALL_REG_MR ? inject_failure(g, &values, INJECT_REG_MR) : 0;
	if (r->error) {
		note_injected(g, d, call, r->error, caller, 0, NULL);
		return false;
	}
	r->error = ENOMEM;
	policy_judge_mr(&values, use, r->bytes, &verdict);
	note_verdict(g, d, call, caller, 0, NULL, &verdict);
	return !verdict.refused;
}

static bool registration_begin(struct registration *r)
{
	struct policy_usage use;
	bool granted;

	r->bytes = pinned_bytes(r->bytes);
	context_known(r->guard, r->context);
	guard_lock(r->guard);
	usage_of(r->guard, NULL, &use);
	granted = judge(r, CALL_REG_MR, &use);
	if (granted)
		hold(r->guard, r->bytes, 1);
	guard_unlock(r->guard);
	errno = granted ? 0 : r->error;
	if (granted)
		guard_nest(1);
	return granted;
}

static void raise_peaks(struct state_mrs *m)
{
	raise_to(&m->peak, m->live);
	raise_to(&m->peak_bytes, m->bytes);
}

/* Into the sums, or out of them (sign -1), and what is held of the budgets. Under lock. */
static void count(struct guard *g, const struct hot_region *h, int sign)
{
	struct state_mrs *m = &g->header->mrs;
	uint64_t bytes = sign < 0 ? 0 - h->bytes : h->bytes;
	uint64_t one = sign < 0 ? UINT64_MAX : 1;

	charge(g, BUDGET_MRS, sign);
	charge(g, BUDGET_MR_BYTES, (int64_t)bytes);
	atomic_fetch_add_explicit(&m->live, one, memory_order_relaxed);
	atomic_fetch_add_explicit(&m->bytes, bytes, memory_order_relaxed);
	if (h->library) {
		atomic_fetch_add_explicit(&m->library_live, one, memory_order_relaxed);
		atomic_fetch_add_explicit(&m->library_bytes, bytes, memory_order_relaxed);
	}
	raise_peaks(m);
}

static unsigned int class_of(uint64_t bytes)
{
	unsigned int n = bytes ? 64 - (unsigned int)__builtin_clzll(bytes) : 0;

	return n < STATE_MR_CLASSES ? n : STATE_MR_CLASSES - 1;
}

/* NULL without memory: the object then is not counted. Under lock. */
static struct hot_region *region_add(struct guard *g, const void *object, uint64_t bytes,
				     bool library)
{
	struct hot_region *h = hot_take(g);

	if (!h)
		return NULL;
	h->bytes = bytes;
	h->library = library;
	__atomic_store_n(&h->object, object, __ATOMIC_RELEASE);
	return lookup_insert(&regions, h) ? h : NULL;
}

static void registered(struct registration *r, const struct ibv_mr *mr)
{
	struct guard *g = r->guard;
	struct state_mrs *m = &g->header->mrs;
	struct hot_region *h = region_add(g, mr, r->bytes, r->library);

	if (!h)
		return;
	atomic_fetch_add_explicit(&m->registered, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&m->sizes[class_of(r->bytes)], 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&g->header->entry_points[r->entry], 1, memory_order_relaxed);
	count(g, h, 1);
}

/* After the real call, whose errno is still in place. */
static struct ibv_mr *registration_end(struct registration *r, struct ibv_mr *mr)
{
	const struct qp_caps asked = { .max_send_wr = (uint32_t)(r->bytes >> 32),
				       .max_recv_wr = (uint32_t)r->bytes };
	int after = errno;

	guard_nest(-1);
	guard_lock(r->guard);
	hold(r->guard, r->bytes, -1);
	if (mr) {
		registered(r, mr);
		failures_settle(r->guard, CALL_REG_MR, device_of(r->guard, r->context), &asked,
				&asked);
	}
	guard_unlock(r->guard);
	if (!mr)
		note_failure_of(r->guard, r->context, CALL_REG_MR, r->address, r->bytes, STATE_NONE,
				after);
	errno = mr || !after ? r->before : after;
	return mr;
}

static void *none(int error)
{
	errno = error;
	return NULL;
}

/* --- registration, by symbol --- */

#undef ibv_reg_mr
#undef ibv_reg_mr_iova

static struct real real_reg_mr SOUGHT_EARLY = { "ibv_reg_mr", "IBVERBS_1.1",
						.wrapper = (void *)ibv_reg_mr };
static struct real real_reg_mr_iova SOUGHT_EARLY = { "ibv_reg_mr_iova", "IBVERBS_1.7",
						     .wrapper = (void *)ibv_reg_mr_iova };
static struct real real_reg_mr_iova2 SOUGHT_EARLY = { "ibv_reg_mr_iova2", "IBVERBS_1.8",
						      .wrapper = (void *)ibv_reg_mr_iova2 };
/* man ibv_reg_mr_ex, rdma-core 57: struct ibv_mr_init_attr begins with the length; the rest is
 * not ours to know. The headers we build with may be older. */
INTERPOSED struct ibv_mr *ibv_reg_mr_ex(struct ibv_pd *pd, void *attr);

static struct real real_reg_mr_ex SOUGHT_EARLY = { "ibv_reg_mr_ex", "IBVERBS_1.15",
						   .wrapper = (void *)ibv_reg_mr_ex };
static struct real real_reg_dmabuf_mr SOUGHT_EARLY = { "ibv_reg_dmabuf_mr", "IBVERBS_1.12",
						       .wrapper = (void *)ibv_reg_dmabuf_mr };
static struct real real_import_mr SOUGHT_EARLY = { "ibv_import_mr", "IBVERBS_1.10",
						   .wrapper = (void *)ibv_import_mr };
static struct real real_unimport_mr SOUGHT_EARLY = { "ibv_unimport_mr", "IBVERBS_1.10",
						     .wrapper = (void *)ibv_unimport_mr };
static struct real real_rereg_mr SOUGHT_EARLY = { "ibv_rereg_mr", "IBVERBS_1.1",
						  .wrapper = (void *)ibv_rereg_mr };
static struct real real_dereg_mr SOUGHT_EARLY = { "ibv_dereg_mr", "IBVERBS_1.1",
						  .wrapper = (void *)ibv_dereg_mr };

/* man ibv_reg_mr; the symbol behind the macro of the same name. */
INTERPOSED struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	struct ibv_mr *(*reg)(struct ibv_pd *, void *, size_t, int) =
		(struct ibv_mr * (*)(struct ibv_pd *, void *, size_t, int)) real_find(&real_reg_mr);
	struct registration r = { .guard = guard_enter(),
				  .address = CALLER(),
				  .bytes = length,
				  .entry = ENTRY_REG_MR,
				  .before = errno };

	if (!reg)
		return none(ENOSYS);
	if (!r.guard || guard_nested())
		return reg(pd, addr, length, access);
	r.context = pd->context;
	if (!registration_begin(&r))
		return NULL;
	return registration_end(&r, reg(pd, addr, length, access));
}

/* man ibv_reg_mr. */
INTERPOSED struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length,
					  uint64_t iova, int access)
{
	struct ibv_mr *(*reg)(struct ibv_pd *, void *, size_t, uint64_t, int) =
		(struct ibv_mr * (*)(struct ibv_pd *, void *, size_t, uint64_t, int))
			real_find(&real_reg_mr_iova);
	struct registration r = { .guard = guard_enter(),
				  .address = CALLER(),
				  .bytes = length,
				  .entry = ENTRY_REG_MR_IOVA,
				  .before = errno };

	if (!reg)
		return none(ENOSYS);
	if (!r.guard || guard_nested())
		return reg(pd, addr, length, iova, access);
	r.context = pd->context;
	if (!registration_begin(&r))
		return NULL;
	return registration_end(&r, reg(pd, addr, length, iova, access));
}

/* libibverbs/verbs.h: what ibv_reg_mr() becomes when its access flags are not constant. */
INTERPOSED struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length,
					   uint64_t iova, unsigned int access)
{
	struct ibv_mr *(*reg)(struct ibv_pd *, void *, size_t, uint64_t, unsigned int) =
		(struct ibv_mr * (*)(struct ibv_pd *, void *, size_t, uint64_t, unsigned int))
			real_find(&real_reg_mr_iova2);
	struct registration r = { .guard = guard_enter(),
				  .address = CALLER(),
				  .bytes = length,
				  .entry = ENTRY_REG_MR_IOVA2,
				  .before = errno };

	if (!reg)
		return none(ENOSYS);
	if (!r.guard || guard_nested())
		return reg(pd, addr, length, iova, access);
	r.context = pd->context;
	if (!registration_begin(&r))
		return NULL;
	return registration_end(&r, reg(pd, addr, length, iova, access));
}

INTERPOSED struct ibv_mr *ibv_reg_mr_ex(struct ibv_pd *pd, void *attr)
{
	struct ibv_mr *(*reg)(struct ibv_pd *, void *) =
		(struct ibv_mr * (*)(struct ibv_pd *, void *)) real_find(&real_reg_mr_ex);
	struct registration r = { .guard = guard_enter(),
				  .address = CALLER(),
				  .entry = ENTRY_REG_MR_EX,
				  .before = errno };

	if (!reg)
		return none(EOPNOTSUPP);
	if (!r.guard || guard_nested())
		return reg(pd, attr);
	r.context = pd->context;
	r.bytes = *(const size_t *)attr;
	if (!registration_begin(&r))
		return NULL;
	return registration_end(&r, reg(pd, attr));
}

/* man ibv_reg_dmabuf_mr: ibv_reg_mr.3. The headers of rdma-core 33 do not have it. */
INTERPOSED struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length,
					    uint64_t iova, int fd, int access);
struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova,
				 int fd, int access)
{
	struct ibv_mr *(*reg)(struct ibv_pd *, uint64_t, size_t, uint64_t, int, int) =
		(struct ibv_mr * (*)(struct ibv_pd *, uint64_t, size_t, uint64_t, int, int))
			real_find(&real_reg_dmabuf_mr);
	struct registration r = { .guard = guard_enter(),
				  .address = CALLER(),
				  .bytes = length,
				  .entry = ENTRY_REG_DMABUF_MR,
				  .before = errno };

	if (!reg)
		return none(EOPNOTSUPP);
	if (!r.guard || guard_nested())
		return reg(pd, offset, length, iova, fd, access);
	r.context = pd->context;
	if (!registration_begin(&r))
		return NULL;
	return registration_end(&r, reg(pd, offset, length, iova, fd, access));
}

/* man ibv_import_mr. Its memory is another process's: it counts as one MR of no bytes. */
INTERPOSED struct ibv_mr *ibv_import_mr(struct ibv_pd *pd, uint32_t mr_handle)
{
	struct ibv_mr *(*import)(struct ibv_pd *, uint32_t) =
		(struct ibv_mr * (*)(struct ibv_pd *, uint32_t)) real_find(&real_import_mr);
	struct registration r = { .guard = guard_enter(),
				  .address = CALLER(),
				  .entry = ENTRY_IMPORT_MR,
				  .before = errno };

	if (!import)
		return none(EOPNOTSUPP);
	if (!r.guard || guard_nested())
		return import(pd, mr_handle);
	r.context = pd->context;
	if (!registration_begin(&r))
		return NULL;
	return registration_end(&r, import(pd, mr_handle));
}

/* --- registration, through the slots --- */

/* Takes the place of verbs_context.alloc_null_mr: man ibv_alloc_null_mr. */
struct ibv_mr *guarded_alloc_null_mr(struct ibv_pd *pd)
{
	const struct context_hooks *hooks = hooks_of(pd->context);
	struct registration r = { .guard = guard_enter(),
				  .context = pd->context,
				  .address = CALLER(),
				  .entry = ENTRY_ALLOC_NULL_MR,
				  .before = errno };

	if (!hooks || !hooks->slots.alloc_null_mr)
		return none(EOPNOTSUPP);
	if (!r.guard || guard_nested())
		return hooks->slots.alloc_null_mr(pd);
	if (!registration_begin(&r))
		return NULL;
	return registration_end(&r, hooks->slots.alloc_null_mr(pd));
}

/* Takes the place of verbs_context.reg_dm_mr: man ibv_reg_dm_mr. */
struct ibv_mr *guarded_reg_dm_mr(struct ibv_pd *pd, struct ibv_dm *dm, uint64_t offset,
				 size_t length, unsigned int access)
{
	const struct context_hooks *hooks = hooks_of(pd->context);
	struct registration r = { .guard = guard_enter(),
				  .context = pd->context,
				  .address = CALLER(),
				  .bytes = length,
				  .entry = ENTRY_REG_DM_MR,
				  .before = errno };

	if (!hooks || !hooks->slots.reg_dm_mr)
		return none(EOPNOTSUPP);
	if (!r.guard || guard_nested())
		return hooks->slots.reg_dm_mr(pd, dm, offset, length, access);
	if (!registration_begin(&r))
		return NULL;
	return registration_end(&r, hooks->slots.reg_dm_mr(pd, dm, offset, length, access));
}

/* --- the rest of an MR's life --- */

/* Out of the table before the call: its address may serve another object as soon as the provider lets go of it. */
static struct hot_region *region_take(struct guard *g, const void *object)
{
	struct hot_region *h;

	guard_lock(g);
	h = region_of(object);
	if (h)
		lookup_remove(&regions, h);
	guard_unlock(g);
	return h;
}

/* man ibv_dereg_mr. */
INTERPOSED int ibv_dereg_mr(struct ibv_mr *mr)
{
	int (*dereg)(struct ibv_mr *) = (int (*)(struct ibv_mr *))real_find(&real_dereg_mr);
	struct guard *g = guard_enter();
	struct hot_region *h;
	int rc;

	if (!dereg)
		return ENOSYS;
	if (!g || guard_nested() || !(h = region_take(g, mr)))
		return dereg(mr);
	rc = dereg(mr);
	guard_lock(g);
	if (rc) {
		lookup_insert(&regions, h);
	} else {
		count(g, h, -1);
		hot_give(g, h, 1);
	}
	guard_unlock(g);
	if (rc)
		note_call_failure(g, mr->context, CALL_DEREG_MR, CALLER(), rc);
	return rc;
}

/* man ibv_unimport_mr. */
INTERPOSED void ibv_unimport_mr(struct ibv_mr *mr)
{
	void (*unimport)(struct ibv_mr *) = (void (*)(struct ibv_mr *))real_find(&real_unimport_mr);
	struct guard *g = guard_enter();
	struct hot_region *h = g && !guard_nested() ? region_take(g, mr) : NULL;

	if (unimport)
		unimport(mr);
	if (!h)
		return;
	guard_lock(g);
	count(g, h, -1);
	hot_give(g, h, 1);
	guard_unlock(g);
}

/* As if the old one were gone: no MR more, and the bytes of the new one in place of the old one's. */
static bool rereg_begin(struct registration *r, const struct hot_region *h)
{
	struct policy_usage use;
	bool granted;

	r->bytes = pinned_bytes(r->bytes);
	usage_of(r->guard, NULL, &use);
	use.used[BUDGET_MRS] -= use.used[BUDGET_MRS] != 0;
	use.used[BUDGET_MR_BYTES] -=
		h->bytes < use.used[BUDGET_MR_BYTES] ? h->bytes : use.used[BUDGET_MR_BYTES];
	granted = judge(r, CALL_REREG_MR, &use);
	if (granted)
		hold(r->guard, r->bytes, 1);
	return granted;
}

static void rereg_end(struct registration *r, struct hot_region *h, uint64_t bytes)
{
	hold(r->guard, r->bytes, -1);
	count(r->guard, h, -1);
	h->bytes = bytes;
	count(r->guard, h, 1);
}

/* man ibv_rereg_mr. A refusal is one that leaves the old MR as it was. What came of a failure can be read from the
 * MR alone: some leave the new memory in place. */
INTERPOSED int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr,
			    size_t length, int access)
{
	int (*rereg)(struct ibv_mr *, int, struct ibv_pd *, void *, size_t, int) =
		(int (*)(struct ibv_mr *, int, struct ibv_pd *, void *, size_t, int))real_find(
			&real_rereg_mr);
	struct registration r = {
		.guard = guard_enter(), .address = CALLER(), .bytes = length, .before = errno
	};
	struct hot_region *h;
	bool granted;
	int rc, after;

	if (!rereg) {
		errno = ENOSYS;
		return IBV_REREG_MR_ERR_INPUT;
	}
	if (!r.guard || guard_nested() || !(flags & IBV_REREG_MR_CHANGE_TRANSLATION))
		return rereg(mr, flags, pd, addr, length, access);
	r.context = mr->context;
	guard_lock(r.guard);
	h = region_of(mr);
	granted = !h || rereg_begin(&r, h);
	guard_unlock(r.guard);
	if (!granted) {
		errno = ENOMEM;
		return IBV_REREG_MR_ERR_INPUT;
	}
	rc = rereg(mr, flags, pd, addr, length, access);
	after = errno;
	if (h) {
		guard_lock(r.guard);
		rereg_end(&r, h, pinned_bytes(mr->length));
		guard_unlock(r.guard);
	}
	if (rc)
		note_call_failure(r.guard, r.context, CALL_REREG_MR, r.address, after);
	errno = rc ? after : r.before;
	return rc;
}

/* --- device memory: counted, under no budget, since it is no memory of the host --- */

static void count_dm(struct guard *g, uint64_t bytes, uint64_t one)
{
	struct state_mrs *m = &g->header->mrs;

	atomic_fetch_add_explicit(&m->dms, one, memory_order_relaxed);
	atomic_fetch_add_explicit(&m->dm_bytes, bytes, memory_order_relaxed);
	raise_to(&m->peak_dms, m->dms);
	raise_to(&m->peak_dm_bytes, m->dm_bytes);
}

/* Takes the place of verbs_context.alloc_dm: man ibv_alloc_dm. */
struct ibv_dm *guarded_alloc_dm(struct ibv_context *context, struct ibv_alloc_dm_attr *attr)
{
	const struct context_hooks *hooks = hooks_of(context);
	struct guard *g = guard_enter();
	uint64_t bytes = attr->length;
	int before = errno, after;
	struct ibv_dm *dm;

	if (!hooks || !hooks->slots.alloc_dm)
		return none(EOPNOTSUPP);
	if (!g || guard_nested())
		return hooks->slots.alloc_dm(context, attr);
	errno = 0;
	dm = hooks->slots.alloc_dm(context, attr);
	after = errno;
	if (!dm) {
		note_call_failure(g, context, CALL_ALLOC_DM, CALLER(), after);
		errno = after ? after : before;
		return NULL;
	}
	guard_lock(g);
	if (region_add(g, dm, bytes, false)) {
		count_dm(g, bytes, 1);
		atomic_fetch_add_explicit(&g->header->entry_points[ENTRY_ALLOC_DM], 1,
					  memory_order_relaxed);
	}
	guard_unlock(g);
	errno = before;
	return dm;
}

/* Takes the place of verbs_context.free_dm: man ibv_free_dm. */
int guarded_free_dm(struct ibv_dm *dm)
{
	const struct context_hooks *hooks = hooks_of(dm->context);
	struct guard *g = guard_enter();
	struct ibv_context *context = dm->context;
	struct hot_region *h;
	int rc;

	if (!hooks || !hooks->slots.free_dm)
		return EOPNOTSUPP;
	if (!g || guard_nested() || !(h = region_take(g, dm)))
		return hooks->slots.free_dm(dm);
	rc = hooks->slots.free_dm(dm);
	guard_lock(g);
	if (rc) {
		lookup_insert(&regions, h);
	} else {
		count_dm(g, 0 - h->bytes, UINT64_MAX);
		hot_give(g, h, 1);
	}
	guard_unlock(g);
	if (rc)
		note_call_failure(g, context, CALL_FREE_DM, CALLER(), rc);
	return rc;
}
