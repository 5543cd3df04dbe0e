/* SPDX-License-Identifier: MIT */
/*
 * DEVX: objects that a program makes by commands of the device itself, and the memory it registers for them.
 * What is posted to such queues passes no function at all: they are counted by kind and their memory is held to the
 * budgets process_bytes and device_bytes, and the report says that they are not guarded. Sums alone, no record each.
 */
#include "direct.h"

#include <endian.h>
#include <errno.h>
#include <infiniband/mlx5dv.h>

#include "real.h"

/* One object, registered memory or doorbell page that lives. */
struct hot_devx {
	const void *object; /* key */
	struct ibv_context *context;
	uint64_t bytes;
	uint8_t kind; /* enum devx_kind */
	bool charged; /* its bytes are memory of this process */
	uint8_t zero[38];
};
static_assert(sizeof(struct hot_devx) == 64, "one cache line, as hot_take gives");

struct lookup devxs = LOOKUP(struct hot_devx, object);

typedef struct mlx5dv_devx_obj *obj_create_function(struct ibv_context *, const void *, size_t,
						    void *, size_t);
typedef int obj_destroy_function(struct mlx5dv_devx_obj *);
typedef struct mlx5dv_devx_umem *umem_reg_function(struct ibv_context *, void *, size_t, uint32_t);
typedef struct mlx5dv_devx_umem *umem_reg_ex_function(struct ibv_context *,
						      struct mlx5dv_devx_umem_in *);
typedef int umem_dereg_function(struct mlx5dv_devx_umem *);
typedef struct mlx5dv_devx_uar *alloc_uar_function(struct ibv_context *, uint32_t);
typedef void free_uar_function(struct mlx5dv_devx_uar *);

static struct real real_obj_create SOUGHT_EARLY = { "mlx5dv_devx_obj_create", "MLX5_1.7",
						    .wrapper = (void *)mlx5dv_devx_obj_create,
						    .library = MLX5 };
static struct real real_obj_destroy SOUGHT_EARLY = { "mlx5dv_devx_obj_destroy", "MLX5_1.7",
						     .wrapper = (void *)mlx5dv_devx_obj_destroy,
						     .library = MLX5 };
static struct real real_umem_reg SOUGHT_EARLY = { "mlx5dv_devx_umem_reg", "MLX5_1.7",
						  .wrapper = (void *)mlx5dv_devx_umem_reg,
						  .library = MLX5 };
static struct real real_umem_reg_ex SOUGHT_EARLY = { "mlx5dv_devx_umem_reg_ex", "MLX5_1.19",
						     .wrapper = (void *)mlx5dv_devx_umem_reg_ex,
						     .library = MLX5 };
static struct real real_umem_dereg SOUGHT_EARLY = { "mlx5dv_devx_umem_dereg", "MLX5_1.7",
						    .wrapper = (void *)mlx5dv_devx_umem_dereg,
						    .library = MLX5 };
static struct real real_alloc_uar SOUGHT_EARLY = { "mlx5dv_devx_alloc_uar", "MLX5_1.7",
						   .wrapper = (void *)mlx5dv_devx_alloc_uar,
						   .library = MLX5 };
static struct real real_free_uar SOUGHT_EARLY = { "mlx5dv_devx_free_uar", "MLX5_1.7",
						  .wrapper = (void *)mlx5dv_devx_free_uar,
						  .library = MLX5 };

/* The opcode is the first 16 bits of a command, in the byte order of the device: mlx5_ifc.h. */
static enum devx_kind kind_of(const void *in, size_t inlen)
{
	static const struct {
		uint16_t opcode;
		uint8_t kind;
	} kinds[] = {
		{ 0x200, DEVX_MKEY }, { 0x301, DEVX_EQ },  { 0x400, DEVX_CQ }, { 0x500, DEVX_QP },
		{ 0x700, DEVX_SRQ },  { 0x705, DEVX_SRQ }, { 0x710, DEVX_QP }, { 0x717, DEVX_SRQ },
		{ 0x900, DEVX_TIR },  { 0x904, DEVX_SQ },  { 0x908, DEVX_RQ }, { 0x90c, DEVX_RMP },
		{ 0x912, DEVX_TIS },  { 0x916, DEVX_RQT },
	};
	uint16_t opcode;

	if (inlen < sizeof(opcode))
		return DEVX_OTHER;
	opcode = be16toh(*(const uint16_t *)in);
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (kinds[i].opcode == opcode)
			return (enum devx_kind)kinds[i].kind;
	return DEVX_OTHER;
}

/* The guard, when this call is the application's, or a library's for itself; else NULL. */
static struct guard *concerned(struct ibv_context *context)
{
	struct guard *g = guard_enter();

	if (!g || guard_nested())
		return NULL;
	context_known(g, context);
	return g;
}

/* Into the sums, or out of them (sign -1). Under lock. */
static void count(struct guard *g, const struct hot_devx *h, int sign)
{
	struct state_devx *s = &g->header->devx;
	uint64_t one = sign < 0 ? UINT64_MAX : 1;

	atomic_fetch_add_explicit(&s->live[h->kind], one, memory_order_relaxed);
	raise_to(&s->peak[h->kind], s->live[h->kind]);
	if (h->kind != DEVX_UMEM)
		return;
	atomic_fetch_add_explicit(&s->umem_bytes, sign < 0 ? 0 - h->bytes : h->bytes,
				  memory_order_relaxed);
	raise_to(&s->peak_umem_bytes, s->umem_bytes);
	if (h->charged)
		charge_bytes(g, device_of(g, h->context), sign * (int64_t)h->bytes);
}

/* Without memory the object is not counted. */
static void made(struct guard *g, struct hot_devx object, enum entry_point entry)
{
	struct hot_devx *h;

	guard_lock(g);
	h = hot_take(g);
	if (h) {
		h->context = object.context;
		h->bytes = object.bytes;
		h->kind = object.kind;
		h->charged = object.charged;
		__atomic_store_n(&h->object, object.object, __ATOMIC_RELEASE);
		lookup_insert(&devxs, h);
		count(g, h, 1);
		atomic_fetch_add_explicit(&g->header->devx.created[h->kind], 1,
					  memory_order_relaxed);
		atomic_fetch_add_explicit(&g->header->entry_points[entry], 1, memory_order_relaxed);
	}
	guard_unlock(g);
}

/* Out of the table before the call: the address may serve another object as soon as it is freed. */
static struct hot_devx *take(struct guard *g, const void *object)
{
	struct hot_devx *h;

	if (!g || guard_nested())
		return NULL;
	guard_lock(g);
	h = lookup_find(&devxs, offsetof(struct hot_devx, object), (uintptr_t)object);
	if (h)
		lookup_remove(&devxs, h);
	guard_unlock(g);
	return h;
}

static void gone(struct guard *g, struct hot_devx *h, enum guarded_call call, void *address, int rc)
{
	struct ibv_context *context = h->context;

	guard_lock(g);
	if (rc) {
		lookup_insert(&devxs, h);
	} else {
		count(g, h, -1);
		hot_give(g, h, 1);
	}
	guard_unlock(g);
	if (rc)
		note_call_failure(g, context, call, address, rc);
}

/* After the real call: errno as it left it where it failed, else the application's. */
static void *ended(struct guard *g, void *object, struct ibv_context *context,
		   enum guarded_call call, void *address, int before)
{
	int after = errno;

	if (!object)
		note_call_failure(g, context, call, address, after);
	errno = object || !after ? before : after;
	return object;
}

/* --- objects --- */

/* man mlx5dv_devx_obj_create. */
INTERPOSED struct mlx5dv_devx_obj *mlx5dv_devx_obj_create(struct ibv_context *context,
							  const void *in, size_t inlen, void *out,
							  size_t outlen)
{
	obj_create_function *create = (obj_create_function *)real_find(&real_obj_create);
	struct guard *g = create ? concerned(context) : NULL;
	struct mlx5dv_devx_obj *object;
	int before = errno;

	if (!create) {
		errno = ENOSYS;
		return NULL;
	}
	if (!g)
		return create(context, in, inlen, out, outlen);
	errno = 0;
	object = create(context, in, inlen, out, outlen);
	object = ended(g, object, context, CALL_DEVX_OBJ_CREATE, CALLER(), before);
	if (object)
		made(g,
		     (struct hot_devx){ .object = object,
					.context = context,
					.kind = (uint8_t)kind_of(in, inlen) },
		     ENTRY_DEVX_OBJ_CREATE);
	return object;
}

/* man mlx5dv_devx_obj_create. */
INTERPOSED int mlx5dv_devx_obj_destroy(struct mlx5dv_devx_obj *object)
{
	obj_destroy_function *destroy = (obj_destroy_function *)real_find(&real_obj_destroy);
	struct guard *g = guard_enter();
	struct hot_devx *h = take(g, object);
	int rc = destroy ? destroy(object) : ENOSYS;

	if (h)
		gone(g, h, CALL_DEVX_OBJ_DESTROY, CALLER(), rc);
	return rc;
}

/* --- memory --- */

/* Judges and holds `bytes` of memory; false: refused, counted and told. */
static bool memory_begin(struct guard *g, struct ibv_context *context, uint64_t bytes,
			 void *address)
{
	struct policy_subject subject;
	struct policy_verdict verdict;
	struct policy_values values;
	struct policy_usage usage;
	struct device *d;
	uint16_t caller;

	guard_lock(g);
	d = device_of(g, context);
	caller = caller_index(g, address);
	subject_of(g, d, 0, caller, &subject);
	policy_resolve(g->policy, &subject, &values);
	usage_of(g, d, &usage);
	policy_judge_memory(&values, &usage, bytes, &verdict);
	note_verdict(g, d, CALL_DEVX_UMEM_REG, caller, 0, NULL, &verdict);
	if (!verdict.refused)
		reserve_bytes(g, d, (int64_t)bytes);
	guard_unlock(g);
	return !verdict.refused;
}

static void memory_decided(struct guard *g, struct ibv_context *context, uint64_t bytes)
{
	guard_lock(g);
	reserve_bytes(g, device_of(g, context), -(int64_t)bytes);
	guard_unlock(g);
}

/* man mlx5dv_devx_umem_reg. */
INTERPOSED struct mlx5dv_devx_umem *mlx5dv_devx_umem_reg(struct ibv_context *context, void *addr,
							 size_t size, uint32_t access)
{
	umem_reg_function *reg = (umem_reg_function *)real_find(&real_umem_reg);
	struct guard *g = reg ? concerned(context) : NULL;
	struct mlx5dv_devx_umem *umem;
	int before = errno;

	if (!reg || (g && !memory_begin(g, context, size, CALLER()))) {
		errno = reg ? ENOMEM : ENOSYS;
		return NULL;
	}
	if (!g)
		return reg(context, addr, size, access);
	errno = 0;
	umem = reg(context, addr, size, access);
	umem = ended(g, umem, context, CALL_DEVX_UMEM_REG, CALLER(), before);
	memory_decided(g, context, size);
	if (umem)
		made(g,
		     (struct hot_devx){ .object = umem,
					.context = context,
					.bytes = size,
					.kind = DEVX_UMEM,
					.charged = true },
		     ENTRY_DEVX_UMEM_REG);
	return umem;
}

/* man mlx5dv_devx_umem_reg. A dmabuf's memory is none of the process: it is counted, and charged to no budget. */
INTERPOSED struct mlx5dv_devx_umem *mlx5dv_devx_umem_reg_ex(struct ibv_context *context,
							    struct mlx5dv_devx_umem_in *in)
{
	umem_reg_ex_function *reg = (umem_reg_ex_function *)real_find(&real_umem_reg_ex);
	struct guard *g = reg ? concerned(context) : NULL;
	bool charged = !(in->comp_mask & MLX5DV_UMEM_MASK_DMABUF);
	uint64_t size = in->size;
	struct mlx5dv_devx_umem *umem;
	int before = errno;

	if (!reg || (g && charged && !memory_begin(g, context, size, CALLER()))) {
		errno = reg ? ENOMEM : ENOSYS;
		return NULL;
	}
	if (!g)
		return reg(context, in);
	errno = 0;
	umem = reg(context, in);
	umem = ended(g, umem, context, CALL_DEVX_UMEM_REG, CALLER(), before);
	if (charged)
		memory_decided(g, context, size);
	if (umem)
		made(g,
		     (struct hot_devx){ .object = umem,
					.context = context,
					.bytes = size,
					.kind = DEVX_UMEM,
					.charged = charged },
		     ENTRY_DEVX_UMEM_REG_EX);
	return umem;
}

/* man mlx5dv_devx_umem_reg. */
INTERPOSED int mlx5dv_devx_umem_dereg(struct mlx5dv_devx_umem *umem)
{
	umem_dereg_function *dereg = (umem_dereg_function *)real_find(&real_umem_dereg);
	struct guard *g = guard_enter();
	struct hot_devx *h = take(g, umem);
	int rc = dereg ? dereg(umem) : ENOSYS;

	if (h)
		gone(g, h, CALL_DEVX_UMEM_DEREG, CALLER(), rc);
	return rc;
}

/* --- doorbell pages --- */

/* man mlx5dv_devx_alloc_uar. */
INTERPOSED struct mlx5dv_devx_uar *mlx5dv_devx_alloc_uar(struct ibv_context *context,
							 uint32_t flags)
{
	alloc_uar_function *alloc = (alloc_uar_function *)real_find(&real_alloc_uar);
	struct guard *g = alloc ? concerned(context) : NULL;
	struct mlx5dv_devx_uar *uar;
	int before = errno;

	if (!alloc) {
		errno = ENOSYS;
		return NULL;
	}
	if (!g)
		return alloc(context, flags);
	errno = 0;
	uar = alloc(context, flags);
	uar = ended(g, uar, context, CALL_DEVX_ALLOC_UAR, CALLER(), before);
	if (uar)
		made(g, (struct hot_devx){ .object = uar, .context = context, .kind = DEVX_UAR },
		     ENTRY_DEVX_ALLOC_UAR);
	return uar;
}

/* man mlx5dv_devx_alloc_uar. */
INTERPOSED void mlx5dv_devx_free_uar(struct mlx5dv_devx_uar *uar)
{
	free_uar_function *give_back = (free_uar_function *)real_find(&real_free_uar);
	struct guard *g = guard_enter();
	struct hot_devx *h = take(g, uar);

	if (give_back)
		give_back(uar);
	if (h)
		gone(g, h, CALL_DEVX_ALLOC_UAR, CALLER(), 0);
}
