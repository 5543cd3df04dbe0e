/* SPDX-License-Identifier: MIT */
/*
 * The commands of work queues, of the tables that receive side scaling spreads packets by, of QPs that
 * receive through such a table, and of shares of an XRC QP. Handles and pinned memory alone: no packet ever
 * arrives there, so what is posted stays.
 */
#include "mlx5dev.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <rdma/mlx5-abi.h>

static int drop(struct object *o, int err)
{
	object_remove(o);
	free(o);
	return err;
}

static void answer_wq(struct args *a, const struct wq *wq, const struct ib_uverbs_ex_create_wq *q)
{
	struct ib_uverbs_ex_create_wq_resp r = {
		.response_length = a->out_len,
		.wq_handle = wq->o.handle,
		.max_wr = q->max_wr,
		.max_sge = q->max_sge,
		.wqn = wq->o.handle,
	};
	uint64_t drv = 0; /* of which the library reads nothing */

	args_out(a, &r, sizeof(r));
	args_drv_out(a, &drv, sizeof(drv));
}

int create_wq(struct context *ctx, struct args *a)
{
	struct ib_uverbs_ex_create_wq q;
	struct mlx5_ib_create_wq drv;
	uint64_t bytes;
	struct wq *wq;
	int err;

	if (!ARGS_IN(a, q) || a->drv_in_len < sizeof(drv))
		return EINVAL;
	memcpy(&drv, a->drv_in, sizeof(drv));
	if (q.wq_type != IB_UVERBS_WQT_RQ || drv.rq_wqe_shift > 16 ||
	    drv.rq_wqe_count > limits.max_recv_wr)
		return EINVAL;
	wq = fresh(sizeof(*wq));
	wq->pd = object_get(PD, q.pd_handle);
	wq->cq = object_get(CQ, q.cq_handle);
	err = wq->pd && wq->cq ? object_add(&wq->o, WQ, ctx) : EINVAL;
	if (err) {
		free(wq);
		return err;
	}
	bytes = (uint64_t)drv.rq_wqe_count << drv.rq_wqe_shift;
	err = pin(&wq->o, drv.buf_addr, bytes);
	if (!err)
		err = pin_doorbell(&wq->o, drv.db_addr);
	if (err)
		return drop(&wq->o, err);
	wq->pd->o.users++;
	wq->cq->o.users++;
	answer_wq(a, wq, &q);
	return 0;
}

int modify_wq(struct context *ctx, struct args *a)
{
	struct ib_uverbs_ex_modify_wq req;
	struct wq *wq;

	(void)ctx;
	if (!ARGS_IN(a, req))
		return EINVAL;
	wq = object_get(WQ, req.wq_handle);
	if (!wq || (req.attr_mask & IBV_WQ_ATTR_CURR_STATE && req.curr_wq_state != wq->state))
		return EINVAL;
	if (req.attr_mask & IBV_WQ_ATTR_STATE) {
		if (req.wq_state > IBV_WQS_ERR)
			return EINVAL;
		wq->state = req.wq_state;
	}
	return 0;
}

int destroy_wq(struct context *ctx, struct args *a)
{
	struct ib_uverbs_ex_destroy_wq_resp r = { .response_length = a->out_len };
	struct ib_uverbs_ex_destroy_wq req;
	struct wq *wq;

	(void)ctx;
	if (!ARGS_IN(a, req))
		return EINVAL;
	wq = object_get(WQ, req.wq_handle);
	if (!wq)
		return EINVAL;
	if (wq->o.users)
		return EBUSY;
	object_destroy(&wq->o);
	args_out(a, &r, sizeof(r));
	return 0;
}

/* The WQs stand behind the fixed part of the request. */
int create_rwq_table(struct context *ctx, struct args *a)
{
	struct ib_uverbs_ex_create_rwq_ind_table_resp r = { .response_length = a->out_len };
	struct ib_uverbs_ex_create_rwq_ind_table req;
	const uint32_t *handles = (const uint32_t *)a->in + sizeof(req) / sizeof(*handles);
	struct rwq_table *t;
	int err;

	if (!ARGS_IN(a, req) || req.log_ind_tbl_size > MOST_LOG_TABLE ||
	    a->in_len < sizeof(req) + (sizeof(*handles) << req.log_ind_tbl_size))
		return EINVAL;
	t = fresh(sizeof(*t));
	for (t->count = 0; t->count < 1u << req.log_ind_tbl_size; t->count++) {
		t->wq[t->count] = object_get(WQ, handles[t->count]);
		if (!t->wq[t->count]) {
			free(t);
			return EINVAL;
		}
	}
	err = object_add(&t->o, RWQ_TABLE, ctx);
	if (err) {
		free(t);
		return err;
	}
	for (unsigned i = 0; i < t->count; i++)
		t->wq[i]->o.users++;
	r.ind_tbl_handle = r.ind_tbl_num = t->o.handle;
	args_out(a, &r, sizeof(r));
	return 0;
}

int destroy_rwq_table(struct context *ctx, struct args *a)
{
	struct ib_uverbs_ex_destroy_rwq_ind_table req;
	struct rwq_table *t;

	(void)ctx;
	if (!ARGS_IN(a, req))
		return EINVAL;
	t = object_get(RWQ_TABLE, req.ind_tbl_handle);
	if (!t)
		return EINVAL;
	if (t->o.users)
		return EBUSY;
	object_destroy(&t->o);
	return 0;
}
