/* SPDX-License-Identifier: MIT */
/*
 * Direct verbs: creations that lead from a library of a provider's own straight to the provider, past the symbols
 * and the slots of libibverbs. Each wrapper lays its arguments down and hands them to the creation of the
 * object's kind (qp.c, cq.c, wq.c), which asks policy and writes the record; the rest of the object's life goes the
 * usual ways. Also contexts and protection domains that are imported.
 */
#include "direct.h"

#include <errno.h>
#include <infiniband/efadv.h>
#include <infiniband/mlx4dv.h>
#include <infiniband/mlx5dv.h>

#include "guard.h"
#include "real.h"

static struct real real_mlx5_qp SOUGHT_EARLY = { "mlx5dv_create_qp", "MLX5_1.3",
						 .wrapper = (void *)mlx5dv_create_qp,
						 .library = MLX5 };
static struct real real_mlx5_cq SOUGHT_EARLY = { "mlx5dv_create_cq", "MLX5_1.1",
						 .wrapper = (void *)mlx5dv_create_cq,
						 .library = MLX5 };
static struct real real_mlx5_wq SOUGHT_EARLY = { "mlx5dv_create_wq", "MLX5_1.3",
						 .wrapper = (void *)mlx5dv_create_wq,
						 .library = MLX5 };
static struct real real_mlx4_qp SOUGHT_EARLY = { "mlx4dv_create_qp", "MLX4_1.0",
						 .wrapper = (void *)mlx4dv_create_qp,
						 .library = MLX4 };
static struct real real_efa_driver_qp SOUGHT_EARLY = { "efadv_create_driver_qp", "EFA_1.0",
						       .wrapper = (void *)efadv_create_driver_qp,
						       .library = EFA };
static struct real real_efa_qp SOUGHT_EARLY = { "efadv_create_qp_ex", "EFA_1.1",
						.wrapper = (void *)efadv_create_qp_ex,
						.library = EFA };
static struct real real_efa_cq SOUGHT_EARLY = { "efadv_create_cq", "EFA_1.2",
						.wrapper = (void *)efadv_create_cq,
						.library = EFA };
static struct real real_import_device SOUGHT_EARLY = { "ibv_import_device", "IBVERBS_1.10",
						       .wrapper = (void *)ibv_import_device };
static struct real real_import_pd SOUGHT_EARLY = { "ibv_import_pd", "IBVERBS_1.10",
						   .wrapper = (void *)ibv_import_pd };

static void *not_there(void)
{
	errno = ENOSYS;
	return NULL;
}

/* The guard, when this call is the application's and its context is known; else NULL. */
static struct guard *concerned(struct ibv_context *context)
{
	struct guard *g = guard_enter();

	return g && !guard_nested() && context_known(g, context) ? g : NULL;
}

/* --- mlx5 --- */

typedef struct ibv_qp *mlx5_qp_function(struct ibv_context *, struct ibv_qp_init_attr_ex *,
					struct mlx5dv_qp_init_attr *);

static struct ibv_qp *mlx5_qp(const struct qp_call *c)
{
	return ((mlx5_qp_function *)real_find(&real_mlx5_qp))(c->context, c->attr_ex, c->more);
}

/* man mlx5dv_create_qp. A DC target has no queues, it takes the receives of an SRQ. Operations that the application
 * posts by struct mlx5dv_qp_ex are not seen. */
INTERPOSED struct ibv_qp *mlx5dv_create_qp(struct ibv_context *context,
					   struct ibv_qp_init_attr_ex *attr,
					   struct mlx5dv_qp_init_attr *more)
{
	mlx5_qp_function *create = (mlx5_qp_function *)real_find(&real_mlx5_qp);
	struct guard *g = create ? concerned(context) : NULL;
	struct qp_call c = { .address = CALLER(),
			     .entry = ENTRY_MLX5DV_CREATE_QP,
			     .create = mlx5_qp,
			     .context = context,
			     .attr_ex = attr,
			     .more = more };

	if (!create)
		return not_there();
	if (!g)
		return create(context, attr, more);
	c.sends_hidden = more && more->comp_mask & MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS;
	c.no_queues = more && more->comp_mask & MLX5DV_QP_INIT_ATTR_MASK_DC &&
		      more->dc_init_attr.dc_type == MLX5DV_DCTYPE_DCT;
	return qp_creation(g, &c);
}

typedef struct ibv_cq_ex *mlx5_cq_function(struct ibv_context *, struct ibv_cq_init_attr_ex *,
					   struct mlx5dv_cq_init_attr *);

static struct ibv_cq_ex *mlx5_cq(const struct cq_call *c)
{
	return ((mlx5_cq_function *)real_find(&real_mlx5_cq))(c->context, c->attr, c->more);
}

/* man mlx5dv_create_cq. */
INTERPOSED struct ibv_cq_ex *mlx5dv_create_cq(struct ibv_context *context,
					      struct ibv_cq_init_attr_ex *attr,
					      struct mlx5dv_cq_init_attr *more)
{
	mlx5_cq_function *create = (mlx5_cq_function *)real_find(&real_mlx5_cq);
	struct guard *g = create ? concerned(context) : NULL;
	struct cq_call c = { .address = CALLER(),
			     .entry = ENTRY_MLX5DV_CREATE_CQ,
			     .create = mlx5_cq,
			     .context = context,
			     .attr = attr,
			     .more = more };

	if (!create)
		return not_there();
	if (!g)
		return create(context, attr, more);
	if (more && more->comp_mask & MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE)
		c.cqe_bytes = more->cqe_size;
	return cq_creation(g, &c);
}

typedef struct ibv_wq *mlx5_wq_function(struct ibv_context *, struct ibv_wq_init_attr *,
					struct mlx5dv_wq_init_attr *);

static struct ibv_wq *mlx5_wq(struct ibv_context *context, struct ibv_wq_init_attr *attr,
			      void *more)
{
	return ((mlx5_wq_function *)real_find(&real_mlx5_wq))(context, attr, more);
}

/* man mlx5dv_create_wq: rdma-core providers/mlx5/man/mlx5dv_create_qp.3.md has no page of its own for it. */
INTERPOSED struct ibv_wq *mlx5dv_create_wq(struct ibv_context *context,
					   struct ibv_wq_init_attr *attr,
					   struct mlx5dv_wq_init_attr *more)
{
	mlx5_wq_function *create = (mlx5_wq_function *)real_find(&real_mlx5_wq);
	struct guard *g = create ? concerned(context) : NULL;
	const struct wq_call c = { .address = CALLER(),
				   .entry = ENTRY_MLX5DV_CREATE_WQ,
				   .create = mlx5_wq,
				   .more = more };

	if (!create)
		return not_there();
	if (!g)
		return create(context, attr, more);
	return wq_creation(g, context, attr, &c);
}

/* --- mlx4 --- */

typedef struct ibv_qp *mlx4_qp_function(struct ibv_context *, struct ibv_qp_init_attr_ex *,
					struct mlx4dv_qp_init_attr *);

static struct ibv_qp *mlx4_qp(const struct qp_call *c)
{
	return ((mlx4_qp_function *)real_find(&real_mlx4_qp))(c->context, c->attr_ex, c->more);
}

/* man mlx4dv_create_qp: infiniband/mlx4dv.h. */
INTERPOSED struct ibv_qp *mlx4dv_create_qp(struct ibv_context *context,
					   struct ibv_qp_init_attr_ex *attr,
					   struct mlx4dv_qp_init_attr *more)
{
	mlx4_qp_function *create = (mlx4_qp_function *)real_find(&real_mlx4_qp);
	struct guard *g = create ? concerned(context) : NULL;
	const struct qp_call c = { .address = CALLER(),
				   .entry = ENTRY_MLX4DV_CREATE_QP,
				   .create = mlx4_qp,
				   .context = context,
				   .attr_ex = attr,
				   .more = more };

	if (!create)
		return not_there();
	if (!g)
		return create(context, attr, more);
	return qp_creation(g, &c);
}

/* --- efa --- */

typedef struct ibv_qp *efa_driver_qp_function(struct ibv_pd *, struct ibv_qp_init_attr *, uint32_t);

static struct ibv_qp *efa_driver_qp(const struct qp_call *c)
{
	return ((efa_driver_qp_function *)real_find(&real_efa_driver_qp))(c->pd, c->attr,
									  c->number);
}

/* man efadv_create_driver_qp. */
INTERPOSED struct ibv_qp *efadv_create_driver_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr,
						 uint32_t driver_qp_type)
{
	efa_driver_qp_function *create = (efa_driver_qp_function *)real_find(&real_efa_driver_qp);
	struct guard *g = create ? concerned(pd->context) : NULL;
	const struct qp_call c = { .address = CALLER(),
				   .entry = ENTRY_EFADV_CREATE_DRIVER_QP,
				   .create = efa_driver_qp,
				   .context = pd->context,
				   .pd = pd,
				   .attr = attr,
				   .number = driver_qp_type };

	if (!create)
		return not_there();
	if (!g)
		return create(pd, attr, driver_qp_type);
	return qp_creation(g, &c);
}

typedef struct ibv_qp *efa_qp_function(struct ibv_context *, struct ibv_qp_init_attr_ex *,
				       struct efadv_qp_init_attr *, uint32_t);

static struct ibv_qp *efa_qp(const struct qp_call *c)
{
	return ((efa_qp_function *)real_find(&real_efa_qp))(c->context, c->attr_ex, c->more,
							    c->number);
}

/* man efadv_create_qp_ex. */
INTERPOSED struct ibv_qp *efadv_create_qp_ex(struct ibv_context *context,
					     struct ibv_qp_init_attr_ex *attr,
					     struct efadv_qp_init_attr *more, uint32_t inlen)
{
	efa_qp_function *create = (efa_qp_function *)real_find(&real_efa_qp);
	struct guard *g = create ? concerned(context) : NULL;
	const struct qp_call c = { .address = CALLER(),
				   .entry = ENTRY_EFADV_CREATE_QP_EX,
				   .create = efa_qp,
				   .context = context,
				   .attr_ex = attr,
				   .more = more,
				   .number = inlen };

	if (!create)
		return not_there();
	if (!g)
		return create(context, attr, more, inlen);
	return qp_creation(g, &c);
}

typedef struct ibv_cq_ex *efa_cq_function(struct ibv_context *, struct ibv_cq_init_attr_ex *,
					  struct efadv_cq_init_attr *, uint32_t);

static struct ibv_cq_ex *efa_cq(const struct cq_call *c)
{
	return ((efa_cq_function *)real_find(&real_efa_cq))(c->context, c->attr, c->more,
							    c->number);
}

/* man efadv_create_cq. */
INTERPOSED struct ibv_cq_ex *efadv_create_cq(struct ibv_context *context,
					     struct ibv_cq_init_attr_ex *attr,
					     struct efadv_cq_init_attr *more, uint32_t inlen)
{
	efa_cq_function *create = (efa_cq_function *)real_find(&real_efa_cq);
	struct guard *g = create ? concerned(context) : NULL;
	const struct cq_call c = { .address = CALLER(),
				   .entry = ENTRY_EFADV_CREATE_CQ,
				   .create = efa_cq,
				   .context = context,
				   .attr = attr,
				   .more = more,
				   .number = inlen };

	if (!create)
		return not_there();
	if (!g)
		return create(context, attr, more, inlen);
	return cq_creation(g, &c);
}

/* --- hns --- */

struct hnsdv_qp_init_attr; /* infiniband/hnsdv.h, which older headers lack */
INTERPOSED struct ibv_qp *hnsdv_create_qp(struct ibv_context *, struct ibv_qp_init_attr_ex *,
					  struct hnsdv_qp_init_attr *);
static struct real real_hns_qp SOUGHT_EARLY = { "hnsdv_create_qp", "HNS_1.0",
						.wrapper = (void *)hnsdv_create_qp,
						.library = HNS };
typedef struct ibv_qp *hns_qp_function(struct ibv_context *, struct ibv_qp_init_attr_ex *,
				       struct hnsdv_qp_init_attr *);

static struct ibv_qp *hns_qp(const struct qp_call *c)
{
	return ((hns_qp_function *)real_find(&real_hns_qp))(c->context, c->attr_ex, c->more);
}

/* man hnsdv_create_qp. */
struct ibv_qp *hnsdv_create_qp(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr,
			       struct hnsdv_qp_init_attr *more)
{
	hns_qp_function *create = (hns_qp_function *)real_find(&real_hns_qp);
	struct guard *g = create ? concerned(context) : NULL;
	const struct qp_call c = { .address = CALLER(),
				   .entry = ENTRY_HNSDV_CREATE_QP,
				   .create = hns_qp,
				   .context = context,
				   .attr_ex = attr,
				   .more = more };

	if (!create)
		return not_there();
	if (!g)
		return create(context, attr, more);
	return qp_creation(g, &c);
}

/* --- imported --- */

static void count_entry(struct guard *g, enum entry_point entry)
{
	atomic_fetch_add_explicit(&g->header->entry_points[entry], 1, memory_order_relaxed);
}

/* man ibv_import_device: a context that another process shares. What is made in it is guarded. */
INTERPOSED struct ibv_context *ibv_import_device(int cmd_fd)
{
	struct ibv_context *(*import)(int) =
		(struct ibv_context * (*)(int)) real_find(&real_import_device);
	struct ibv_context *context;
	struct guard *g = guard_enter();

	if (!import)
		return not_there();
	context = import(cmd_fd);
	if (context && g && context_known(g, context))
		count_entry(g, ENTRY_IMPORT_DEVICE);
	return context;
}

/* man ibv_import_pd. */
INTERPOSED struct ibv_pd *ibv_import_pd(struct ibv_context *context, uint32_t pd_handle)
{
	struct ibv_pd *(*import)(struct ibv_context *, uint32_t) =
		(struct ibv_pd * (*)(struct ibv_context *, uint32_t)) real_find(&real_import_pd);
	struct guard *g = guard_enter();
	struct ibv_pd *pd;

	if (!import)
		return not_there();
	pd = import(context, pd_handle);
	if (pd && g)
		count_entry(g, ENTRY_IMPORT_PD);
	return pd;
}
