/* SPDX-License-Identifier: MIT */
/*
 * What the shim adds to the pure models of policy/geometry*: the provider's environment, and for
 * mlx5 the provider's own figures, by mlx5dv_init_obj (rdma-core providers/mlx5/mlx5.c:
 * mlx5dv_get_qp). It is asked for QPs that have rings of their own, and never for CQs, of which it
 * would change the behaviour. libmlx5 is only ever used where libibverbs has loaded it.
 */
#include "ask.h"

#include <infiniband/mlx5dv.h>
#include <stdlib.h>
#include <string.h>

#include "guard.h"
#include "log.h"
#include "real.h"
#include "../policy/text.h"

static bool is_set_to(const char *variable, const char *value)
{
	const char *v = getenv(variable);

	return v && !strcmp(v, value);
}

/* providers/mlx5/buf.c: mlx5_get_alloc_type; verbs.c: mlx5_alloc_qp_buf, create_cq. */
static uint16_t huge_queues(void)
{
	static const struct {
		const char *variable;
		uint16_t queues;
	} switches[] = {
		{ "HUGE_RC", HUGE_RC },		      { "HUGE_UC", HUGE_UC },
		{ "HUGE_UD", HUGE_UD },		      { "HUGE_RAW_ETH", HUGE_RAW_PACKET },
		{ "HUGE_NA", HUGE_OTHER_QP },	      { "HUGE_CQ", HUGE_CQ },
	}, types[] = {
		{ "MLX_QP_ALLOC_TYPE",
		  HUGE_RC | HUGE_UC | HUGE_UD | HUGE_RAW_PACKET | HUGE_OTHER_QP },
		{ "MLX_CQ_ALLOC_TYPE", HUGE_CQ },
		{ "MLX_SRQ_ALLOC_TYPE", HUGE_SRQ },
		{ "MLX_RWQ_ALLOC_TYPE", HUGE_WQ },
	};
	uint16_t huge = 0;

	for (size_t i = 0; i < sizeof(switches) / sizeof(switches[0]); i++)
		if (is_set_to(switches[i].variable, "y"))
			huge |= switches[i].queues;
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		if (!getenv(types[i].variable))
			continue;
		huge = (uint16_t)(huge & ~types[i].queues);
		if (is_set_to(types[i].variable, "HUGE"))
			huge |= types[i].queues;
	}
	return huge;
}

void ask_settings(const char *driver, struct provider_settings *out)
{
	const char *cqe = getenv("MLX5_CQE_SIZE");

	*out = (struct provider_settings){ 0 };
	if (strcmp(driver, "mlx5") != 0)
		return;
	out->qp_signature = getenv("MLX5_QP_SIGNATURE") != NULL;
	out->wq_signature = getenv("MLX5_RWQ_SIGNATURE") != NULL;
	out->cqe_bytes = cqe ? (uint16_t)atoi(cqe) : 0;
	out->huge_queues = huge_queues();
}

static struct real real_init_obj SOUGHT_EARLY = { .name = "mlx5dv_init_obj",
						  .version = "MLX5_1.2",
						  .library = MLX5 };

/* Opened, DCT and RSS QPs have none, and asking for them would crash. */
static bool has_rings(const struct qp_request *r)
{
	switch (r->type) {
	case QP_TYPE_RC:
	case QP_TYPE_UC:
	case QP_TYPE_UD:
	case QP_TYPE_RAW_PACKET:
	case QP_TYPE_XRC_SEND:
	case QP_TYPE_DRIVER: /* the initiator of DC */
		return !r->is_rss;
	default:
		return false;
	}
}

bool ask_rings(const struct context_hooks *hooks, const struct ibv_qp *qp,
	       const struct qp_request *req, struct queue_rings *out)
{
	int (*init_obj)(struct mlx5dv_obj *, uint64_t) =
		(int (*)(struct mlx5dv_obj *, uint64_t))atomic_load_explicit(&real_init_obj.address,
									     memory_order_relaxed);
	/* a later library may know of more members */
	union {
		struct mlx5dv_qp qp;
		char room[512];
	} dv;
	struct mlx5dv_obj obj = { .qp = { .in = (struct ibv_qp *)(uintptr_t)qp, .out = &dv.qp } };

	if (!init_obj || !hooks || strcmp(hooks->driver, "mlx5") != 0 || !has_rings(req))
		return false;
	memset(&dv, 0, sizeof(dv));
	if (init_obj(&obj, MLX5DV_OBJ_QP))
		return false;
	*out = (struct queue_rings){ .send_count = dv.qp.sq.wqe_cnt,
				     .send_stride = dv.qp.sq.stride,
				     .recv_count = dv.qp.rq.wqe_cnt,
				     .recv_stride = dv.qp.rq.stride };
	return true;
}

static void tell_once(struct guard *g, struct device *d, const struct qp_request *req,
		      const struct queue_bytes *model, const struct queue_bytes *provider)
{
	char line[320];
	struct text t = text_begin(line, sizeof(line));

	if (d->difference_told)
		return;
	d->difference_told = true;
	text_name(&t, d->record->name);
	text_put(&t, ": model and provider differ on the bytes of a QP (");
	text_put(&t, qp_type_name(req->type));
	text_put(&t, ", max_send_wr ");
	text_number(&t, req->caps.max_send_wr);
	text_put(&t, ", max_recv_wr ");
	text_number(&t, req->caps.max_recv_wr);
	text_put(&t, "): send queue ");
	text_number(&t, model->sq);
	text_put(&t, " and ");
	text_number(&t, provider->sq);
	text_put(&t, ", receive queue ");
	text_number(&t, model->rq);
	text_put(&t, " and ");
	text_number(&t, provider->rq);
	text_put(&t, "; the provider's are reported. Budgets are judged by the model");
	log_line(g, LOG_WARN, line);
}

void ask_compare(struct guard *g, struct device *d, const struct qp_request *req,
		 const struct queue_rings *rings, struct queue_bytes *bytes)
{
	struct queue_bytes model = *bytes;

	if (!geometry_rings_bytes(d->geometry, req, rings, &d->facts, bytes))
		return;
	if (model.sq != bytes->sq || model.rq != bytes->rq)
		tell_once(g, d, req, &model, bytes);
}
