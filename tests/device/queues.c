/* SPDX-License-Identifier: MIT */
/*
 * The commands of CQs, SRQs and QPs: what the kernel's mlx5 driver checks, pins
 * and answers. libmlx5 has laid out the rings; here they are only taken over.
 */
#include "mlx5dev.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <rdma/mlx5-abi.h>

static bool power_of_two(uint32_t n)
{
	return n && !(n & (n - 1));
}

static int pin_queue(struct object *o, uint64_t buf, uint64_t len, uint64_t db)
{
	int err = pin(o, buf, len);

	return err ? err : pin_doorbell(o, db);
}

/* Undoes a creation whose object is already in its table. */
static int drop(struct object *o, int err)
{
	object_remove(o);
	free(o);
	return err;
}

/* ---- CQ ---- */

struct cq_request {
	uint64_t user_handle;
	uint32_t cqe, flags;
	int32_t channel;
};

static bool read_cq_request(struct args *a, bool extended, struct cq_request *q)
{
	struct ib_uverbs_ex_create_cq ex;
	struct ib_uverbs_create_cq plain;

	if (extended) {
		if (!ARGS_IN(a, ex))
			return false;
		*q = (struct cq_request){ ex.user_handle, ex.cqe, ex.flags, ex.comp_channel };
		return true;
	}
	if (!ARGS_IN(a, plain))
		return false;
	*q = (struct cq_request){ plain.user_handle, plain.cqe, 0, plain.comp_channel };
	return true;
}

static void answer_cq(struct args *a, const struct cq *cq)
{
	struct ib_uverbs_ex_create_cq_resp r = {
		.base = { .cq_handle = cq->o.handle, .cqe = cq->count - 1 },
		.response_length = a->out_len,
	};
	struct mlx5_ib_create_cq_resp drv = { .cqn = cq->o.handle };

	args_out(a, &r, sizeof(r)); /* the plain response is its beginning */
	args_drv_out(a, &drv, sizeof(drv));
}

int create_cq(struct context *ctx, struct args *a, bool extended)
{
	struct mlx5_ib_create_cq drv = { 0 };
	struct channel *ch = NULL;
	struct cq_request q;
	struct cq *cq;
	int err;

	if (!read_cq_request(a, extended, &q) || a->drv_in_len < 24)
		return EINVAL;
	memcpy(&drv, a->drv_in, a->drv_in_len < sizeof(drv) ? a->drv_in_len : sizeof(drv));
	if (q.cqe > limits.max_cqe || !power_of_two(q.cqe + 1) ||
	    (drv.cqe_size != 64 && drv.cqe_size != 128))
		return EINVAL;
	if (q.channel >= 0) {
		ch = channel_of_fd(q.channel);
		if (!ch)
			return EINVAL;
	}
	cq = fresh(sizeof(*cq));
	err = object_add(&cq->o, CQ, ctx);
	if (err) {
		free(cq);
		return err;
	}
	cq->count = q.cqe + 1;
	cq->stride = drv.cqe_size;
	err = pin_queue(&cq->o, drv.buf_addr, cq->count * (uint64_t)cq->stride, drv.db_addr);
	if (err)
		return drop(&cq->o, err);
	cq->user_handle = q.user_handle;
	cq->buf = (uint8_t *)(uintptr_t)drv.buf_addr;
	cq->dbrec = (volatile __be32 *)(uintptr_t)drv.db_addr;
	cq->ignore_overrun = q.flags & IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN;
	/*
	 * The first arm writes 0 over 0. An impossible value instead makes it
	 * visible; the library never reads the record back.
	 */
	cq->arm_seen = 0xffffffff;
	cq->dbrec[1] = 0xffffffff;
	list_init(&cq->of_channel);
	cq->channel = ch;
	if (ch) {
		ch->users++;
		list_add(&ch->cqs, &cq->of_channel);
	}
	answer_cq(a, cq);
	return 0;
}

int destroy_cq(struct context *ctx, struct args *a)
{
	struct ib_uverbs_destroy_cq_resp r = { 0 };
	struct ib_uverbs_destroy_cq req;
	struct cq *cq;

	(void)ctx;
	if (!ARGS_IN(a, req))
		return EINVAL;
	cq = object_get(CQ, req.cq_handle);
	if (!cq)
		return EINVAL;
	if (cq->o.users)
		return EBUSY;
	/* The library waits until the program has acknowledged exactly this many. */
	r.comp_events_reported = cq_withdraw_events(cq);
	object_destroy(&cq->o);
	args_out(a, &r, sizeof(r));
	return 0;
}

/* ---- SRQ ---- */

struct srq_request {
	uint32_t type, pd, max_wr, max_sge, limit, cq;
};

static bool read_srq_request(struct args *a, bool extended, struct srq_request *q)
{
	struct ib_uverbs_create_xsrq ex;
	struct ib_uverbs_create_srq plain;

	if (extended) {
		if (!ARGS_IN(a, ex))
			return false;
		*q = (struct srq_request){ ex.srq_type, ex.pd_handle, ex.max_wr,
					   ex.max_sge,	ex.srq_limit, ex.cq_handle };
		return true;
	}
	if (!ARGS_IN(a, plain))
		return false;
	*q = (struct srq_request){ IB_UVERBS_SRQT_BASIC, plain.pd_handle, plain.max_wr,
				   plain.max_sge,	 plain.srq_limit, 0 };
	return true;
}

/* As the kernel computes it: next segment and data segments, rounded up. */
static uint32_t srq_stride(uint32_t max_sge)
{
	uint32_t stride = 32;

	while (stride < 16 + max_sge * 16)
		stride *= 2;
	return stride;
}

static void answer_srq(struct args *a, const struct srq *srq)
{
	struct ib_uverbs_create_srq_resp r = {
		.srq_handle = srq->o.handle,
		.max_wr = srq->max_wr,
		.max_sge = srq->max_sge,
		.srqn = srq->o.handle,
	};
	struct mlx5_ib_create_srq_resp drv = { .srqn = srq->o.handle };

	args_out(a, &r, sizeof(r));
	args_drv_out(a, &drv, sizeof(drv));
}

int create_srq(struct context *ctx, struct args *a, bool extended)
{
	struct mlx5_ib_create_srq drv;
	struct srq_request q;
	struct srq *srq;
	struct pd *pd;
	int err;

	if (!read_srq_request(a, extended, &q) || a->drv_in_len < 16)
		return EINVAL;
	memcpy(&drv, a->drv_in, 16); /* older libraries send no more */
	pd = object_get(PD, q.pd);
	if (!pd || q.max_wr >= limits.max_srq_recv_wr || 16 + q.max_sge * 16ull > 65536)
		return EINVAL;
	if (q.type == IB_UVERBS_SRQT_TM)
		return EOPNOTSUPP;
	if (q.type == IB_UVERBS_SRQT_XRC && !object_get(CQ, q.cq))
		return EINVAL;
	srq = fresh(sizeof(*srq));
	err = object_add(&srq->o, SRQ, ctx);
	if (err) {
		free(srq);
		return err;
	}
	srq->stride = srq_stride(q.max_sge);
	err = pin_queue(&srq->o, drv.buf_addr, (q.max_wr + 1ull) * srq->stride, drv.db_addr);
	if (err)
		return drop(&srq->o, err);
	srq->pd = pd;
	pd->o.users++;
	if (q.type == IB_UVERBS_SRQT_XRC) {
		srq->cq = object_get(CQ, q.cq);
		srq->cq->o.users++;
	}
	srq->buf = (uint8_t *)(uintptr_t)drv.buf_addr;
	srq->dbrec = (volatile __be32 *)(uintptr_t)drv.db_addr;
	srq->max_wr = q.max_wr;
	srq->max_sge = q.max_sge;
	srq->limit = q.limit;
	answer_srq(a, srq);
	return 0;
}

int query_srq(struct context *ctx, struct args *a)
{
	struct ib_uverbs_query_srq req;
	struct ib_uverbs_query_srq_resp r = { 0 };
	struct srq *srq;

	(void)ctx;
	if (!ARGS_IN(a, req))
		return EINVAL;
	srq = object_get(SRQ, req.srq_handle);
	if (!srq)
		return EINVAL;
	r.max_wr = srq->max_wr;
	r.max_sge = srq->max_sge;
	r.srq_limit = srq->limit;
	args_out(a, &r, sizeof(r));
	return 0;
}

int modify_srq(struct context *ctx, struct args *a)
{
	struct ib_uverbs_modify_srq req;
	struct srq *srq;

	(void)ctx;
	if (!ARGS_IN(a, req))
		return EINVAL;
	srq = object_get(SRQ, req.srq_handle);
	/* mlx5 does not resize an SRQ; the limit is kept, its event is not played. */
	if (!srq || req.attr_mask & IBV_SRQ_MAX_WR)
		return EINVAL;
	if (req.attr_mask & IBV_SRQ_LIMIT) {
		if (req.srq_limit >= srq->max_wr)
			return EINVAL;
		srq->limit = req.srq_limit;
	}
	return 0;
}

int destroy_srq(struct context *ctx, struct args *a)
{
	struct ib_uverbs_destroy_srq_resp r = { 0 };
	struct ib_uverbs_destroy_srq req;
	struct srq *srq;

	(void)ctx;
	if (!ARGS_IN(a, req))
		return EINVAL;
	srq = object_get(SRQ, req.srq_handle);
	if (!srq)
		return EINVAL;
	if (srq->o.users)
		return EBUSY;
	object_destroy(&srq->o);
	args_out(a, &r, sizeof(r));
	return 0;
}

/* ---- QP ---- */

/* The two forms of the command differ only in where their fields lie. */
static bool read_qp_request(struct args *a, bool extended, struct ib_uverbs_ex_create_qp *q)
{
	struct ib_uverbs_create_qp plain;

	if (extended)
		return args_in(a, q, sizeof(*q));
	if (!ARGS_IN(a, plain))
		return false;
	*q = (struct ib_uverbs_ex_create_qp){
		.user_handle = plain.user_handle,
		.pd_handle = plain.pd_handle,
		.send_cq_handle = plain.send_cq_handle,
		.recv_cq_handle = plain.recv_cq_handle,
		.srq_handle = plain.srq_handle,
		.max_send_wr = plain.max_send_wr,
		.max_recv_wr = plain.max_recv_wr,
		.max_send_sge = plain.max_send_sge,
		.max_recv_sge = plain.max_recv_sge,
		.max_inline_data = plain.max_inline_data,
		.sq_sig_all = plain.sq_sig_all,
		.qp_type = plain.qp_type,
		.is_srq = plain.is_srq,
	};
	return true;
}

static int check_rings(const struct mlx5_ib_create_qp *drv)
{
	if (drv->sq_wqe_count && !power_of_two(drv->sq_wqe_count))
		return EINVAL;
	if (drv->sq_wqe_count > limits.max_send_wqebb)
		return EINVAL;
	if (drv->rq_wqe_count && (!power_of_two(drv->rq_wqe_count) || drv->rq_wqe_shift > 16))
		return EINVAL;
	return 0;
}

static int check_type(uint32_t type)
{
	switch (type) {
	case IB_UVERBS_QPT_RC:
	case IB_UVERBS_QPT_UC:
	case IB_UVERBS_QPT_UD:
	case IB_UVERBS_QPT_RAW_PACKET:
	case IB_UVERBS_QPT_XRC_INI:
	case IB_UVERBS_QPT_XRC_TGT:
	case IB_UVERBS_QPT_DRIVER: /* DC */
		return 0;
	default:
		return EOPNOTSUPP;
	}
}

/* Finds what the QP is to use; EINVAL for a handle that does not exist. */
static int find_parts(struct qp *qp, const struct ib_uverbs_ex_create_qp *q,
		      const struct mlx5_ib_create_qp *drv)
{
	if (q->qp_type == IB_UVERBS_QPT_XRC_TGT)
		return object_get(XRCD, q->pd_handle) ? 0 : EINVAL;
	qp->pd = object_get(PD, q->pd_handle);
	qp->send_cq = object_get(CQ, q->send_cq_handle);
	if (!qp->pd || !qp->send_cq)
		return EINVAL;
	if (q->qp_type != IB_UVERBS_QPT_XRC_INI) {
		qp->recv_cq = object_get(CQ, q->recv_cq_handle);
		if (!qp->recv_cq)
			return EINVAL;
	}
	if (q->is_srq) {
		qp->srq = object_get(SRQ, q->srq_handle);
		if (!qp->srq)
			return EINVAL;
	}
	if (drv->flags & MLX5_QP_FLAG_TYPE_DCT)
		return qp->srq ? 0 : EINVAL; /* sends nothing */
	/* The library was told (tot_bfregs 0) to name the doorbell page itself. */
	if (drv->flags & MLX5_QP_FLAG_UAR_PAGE_INDEX)
		qp->uar = object_get(UAR, drv->bfreg_index);
	return qp->uar ? 0 : EINVAL;
}

static void count_parts(struct qp *qp, int by)
{
	struct object *parts[] = {
		qp->pd ? &qp->pd->o : NULL,	      qp->send_cq ? &qp->send_cq->o : NULL,
		qp->recv_cq ? &qp->recv_cq->o : NULL, qp->srq ? &qp->srq->o : NULL,
		qp->uar ? &qp->uar->o : NULL,	      qp->table ? &qp->table->o : NULL,
	};

	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		if (parts[i])
			parts[i]->users += (uint32_t)by;
}

static int take_rings(struct qp *qp, const struct mlx5_ib_create_qp *drv)
{
	uint64_t rq = (uint64_t)drv->rq_wqe_count << drv->rq_wqe_shift;
	uint64_t sq = drv->sq_wqe_count * 64ull;
	int err;

	if (qp->type == IB_UVERBS_QPT_XRC_TGT || drv->flags & MLX5_QP_FLAG_TYPE_DCT)
		return 0; /* has neither ring nor record */
	qp->rq = (uint8_t *)(uintptr_t)drv->buf_addr;
	/* Two rings: raw packets, and UD over another QP's number. */
	if (qp->type == IB_UVERBS_QPT_RAW_PACKET || drv->sq_buf_addr) {
		qp->sq = (uint8_t *)(uintptr_t)drv->sq_buf_addr;
		err = pin(&qp->o, drv->sq_buf_addr, sq);
		if (err)
			return err;
		err = pin_queue(&qp->o, drv->buf_addr, rq, drv->db_addr);
	} else {
		qp->sq = qp->rq + rq;
		err = pin_queue(&qp->o, drv->buf_addr, rq + sq, drv->db_addr);
	}
	qp->dbrec = (volatile __be32 *)(uintptr_t)drv->db_addr;
	qp->sq_blocks = drv->sq_wqe_count;
	qp->rq_wqes = drv->rq_wqe_count;
	qp->rq_shift = drv->rq_wqe_shift;
	qp->signature = drv->flags & MLX5_QP_FLAG_SIGNATURE;
	qp->user_index = drv->uidx;
	return err;
}

static void answer_qp(struct args *a, const struct qp *qp)
{
	struct ib_uverbs_ex_create_qp_resp r = {
		.base = {
			.qp_handle = qp->o.handle,
			.qpn = qp->number,
			/* As asked: the library overwrites what it knows better. */
			.max_send_wr = qp->cap.max_send_wr,
			.max_recv_wr = qp->cap.max_recv_wr,
			.max_send_sge = qp->cap.max_send_sge,
			.max_recv_sge = qp->cap.max_recv_sge,
			.max_inline_data = qp->cap.max_inline_data,
		},
		.response_length = a->out_len,
	};
	struct mlx5_ib_create_qp_resp drv = { 0 };

	args_out(a, &r, sizeof(r)); /* the plain response is its beginning */
	args_drv_out(a, &drv, sizeof(drv));
}

static struct qp *qp_new(const struct ib_uverbs_ex_create_qp *q)
{
	static uint32_t generations;
	struct qp *qp = fresh(sizeof(*qp));

	qp->type = q->qp_type;
	qp->sig_all = q->sq_sig_all;
	qp->generation = ++generations;
	qp->cap = (struct ib_uverbs_qp_cap){ q->max_send_wr, q->max_recv_wr, q->max_send_sge,
					     q->max_recv_sge, q->max_inline_data };
	list_init(&qp->of_uar);
	list_init(&qp->waiting);
	list_init(&qp->in_error);
	return qp;
}

/* Receives through a table of work queues; has neither ring nor record of its own. */
static int create_rss_qp(struct context *ctx, struct args *a,
			 const struct ib_uverbs_ex_create_qp *q)
{
	struct rwq_table *table = object_get(RWQ_TABLE, q->rwq_ind_tbl_handle);
	struct qp *qp;
	int err;

	if (!table || q->qp_type != IB_UVERBS_QPT_RAW_PACKET)
		return EINVAL;
	qp = qp_new(q);
	err = object_add(&qp->o, QP, ctx);
	if (err) {
		free(qp);
		return err;
	}
	qp->table = table;
	qp->number = (uint32_t)nic.id << HANDLE_BITS | qp->o.handle;
	count_parts(qp, 1);
	answer_qp(a, qp);
	return 0;
}

/* A share of an XRC QP: an object of its own that bears its number. */
int open_qp(struct context *ctx, struct args *a)
{
	struct ib_uverbs_ex_create_qp none = { .qp_type = IB_UVERBS_QPT_XRC_TGT };
	struct ib_uverbs_open_qp req;
	struct qp *qp, *shared;
	int err;

	if (!ARGS_IN(a, req))
		return EINVAL;
	shared = object_get(QP, req.qpn & HANDLE_MASK);
	if (!shared || shared->number != req.qpn || shared->type != IB_UVERBS_QPT_XRC_TGT ||
	    req.qp_type != IB_UVERBS_QPT_XRC_TGT)
		return EINVAL;
	qp = qp_new(&none);
	err = object_add(&qp->o, QP, ctx);
	if (err) {
		free(qp);
		return err;
	}
	qp->number = shared->number;
	answer_qp(a, qp);
	return 0;
}

int create_qp(struct context *ctx, struct args *a, bool extended)
{
	struct mlx5_ib_create_qp drv = { 0 };
	struct ib_uverbs_ex_create_qp q;
	struct qp *qp;
	int err;

	/* Up to bfreg_index; older and newer libraries send less and more after it. */
	if (!read_qp_request(a, extended, &q) || a->drv_in_len < 40)
		return EINVAL;
	memcpy(&drv, a->drv_in, a->drv_in_len < sizeof(drv) ? a->drv_in_len : sizeof(drv));
	if (extended && q.comp_mask & IB_UVERBS_CREATE_QP_MASK_IND_TABLE)
		return create_rss_qp(ctx, a, &q);
	if (extended && q.comp_mask)
		return EOPNOTSUPP;
	err = check_type(q.qp_type);
	if (!err)
		err = check_rings(&drv);
	if (err)
		return err;
	qp = qp_new(&q);
	err = find_parts(qp, &q, &drv);
	if (!err)
		err = object_add(&qp->o, QP, ctx);
	if (err) {
		free(qp);
		return err;
	}
	err = take_rings(qp, &drv);
	if (err)
		return drop(&qp->o, err);
	qp->number = (uint32_t)nic.id << HANDLE_BITS | qp->o.handle;
	count_parts(qp, 1);
	answer_qp(a, qp);
	return 0;
}

static bool may_go(uint32_t from, uint32_t to)
{
	static const uint8_t allowed[] = {
		[IBV_QPS_RESET] = 1 << IBV_QPS_RESET | 1 << IBV_QPS_INIT | 1 << IBV_QPS_ERR,
		[IBV_QPS_INIT] = 1 << IBV_QPS_RESET | 1 << IBV_QPS_INIT | 1 << IBV_QPS_RTR |
				 1 << IBV_QPS_ERR,
		[IBV_QPS_RTR] = 1 << IBV_QPS_RESET | 1 << IBV_QPS_RTS | 1 << IBV_QPS_ERR,
		[IBV_QPS_RTS] =
			1 << IBV_QPS_RESET | 1 << IBV_QPS_RTS | 1 << IBV_QPS_SQD | 1 << IBV_QPS_ERR,
		[IBV_QPS_SQD] =
			1 << IBV_QPS_RESET | 1 << IBV_QPS_RTS | 1 << IBV_QPS_SQD | 1 << IBV_QPS_ERR,
		[IBV_QPS_SQE] = 1 << IBV_QPS_RESET | 1 << IBV_QPS_RTS | 1 << IBV_QPS_ERR,
		[IBV_QPS_ERR] = 1 << IBV_QPS_RESET | 1 << IBV_QPS_ERR,
	};

	return from <= IBV_QPS_ERR && to <= IBV_QPS_ERR && allowed[from] >> to & 1;
}

/* Copies the attributes that the mask names. */
static void take_attr(struct ib_uverbs_modify_qp *to, const struct ib_uverbs_modify_qp *from)
{
#define TAKE(bit, field)                         \
	do {                                     \
		if (from->attr_mask & (bit))     \
			to->field = from->field; \
	} while (0)
	TAKE(IBV_QP_ACCESS_FLAGS, qp_access_flags);
	TAKE(IBV_QP_PKEY_INDEX, pkey_index);
	TAKE(IBV_QP_PORT, port_num);
	TAKE(IBV_QP_QKEY, qkey);
	TAKE(IBV_QP_AV, dest);
	TAKE(IBV_QP_PATH_MTU, path_mtu);
	TAKE(IBV_QP_TIMEOUT, timeout);
	TAKE(IBV_QP_RETRY_CNT, retry_cnt);
	TAKE(IBV_QP_RNR_RETRY, rnr_retry);
	TAKE(IBV_QP_RQ_PSN, rq_psn);
	TAKE(IBV_QP_SQ_PSN, sq_psn);
	TAKE(IBV_QP_MAX_QP_RD_ATOMIC, max_rd_atomic);
	TAKE(IBV_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic);
	TAKE(IBV_QP_MIN_RNR_TIMER, min_rnr_timer);
	TAKE(IBV_QP_DEST_QPN, dest_qp_num);
	TAKE(IBV_QP_PATH_MIG_STATE, path_mig_state);
#undef TAKE
}

int modify_qp(struct context *ctx, struct args *a)
{
	struct ib_uverbs_modify_qp req;
	struct qp *qp;

	(void)ctx;
	if (!ARGS_IN(a, req))
		return EINVAL;
	qp = object_get(QP, req.qp_handle);
	if (!qp)
		return EINVAL;
	if (req.attr_mask & IBV_QP_CUR_STATE && req.cur_qp_state != qp->state)
		return EINVAL;
	if (req.attr_mask & IBV_QP_STATE && !may_go(qp->state, req.qp_state))
		return EINVAL;
	if (req.attr_mask & IBV_QP_PORT && req.port_num != 1)
		return EINVAL;
	take_attr(&qp->attr, &req);
	if (req.attr_mask & IBV_QP_STATE)
		qp_set_state(qp, req.qp_state);
	return 0;
}

int query_qp(struct context *ctx, struct args *a)
{
	struct ib_uverbs_query_qp_resp r = { 0 };
	struct ib_uverbs_query_qp req;
	struct qp *qp;

	(void)ctx;
	if (!ARGS_IN(a, req))
		return EINVAL;
	qp = object_get(QP, req.qp_handle);
	if (!qp)
		return EINVAL;
	r.dest = qp->attr.dest;
	r.max_recv_wr = qp->rq_wqes;
	r.max_recv_sge = qp->rq_wqes ? (1u << qp->rq_shift) / 16 - qp->signature : 0;
	r.max_inline_data = qp->cap.max_inline_data;
	r.qkey = qp->attr.qkey;
	r.rq_psn = qp->attr.rq_psn;
	r.sq_psn = qp->attr.sq_psn;
	r.dest_qp_num = qp->attr.dest_qp_num;
	r.qp_access_flags = qp->attr.qp_access_flags;
	r.pkey_index = qp->attr.pkey_index;
	r.qp_state = r.cur_qp_state = (uint8_t)qp->state;
	r.path_mtu = qp->attr.path_mtu;
	r.path_mig_state = qp->attr.path_mig_state;
	r.max_rd_atomic = qp->attr.max_rd_atomic;
	r.max_dest_rd_atomic = qp->attr.max_dest_rd_atomic;
	r.min_rnr_timer = qp->attr.min_rnr_timer;
	r.port_num = qp->attr.port_num;
	r.timeout = qp->attr.timeout;
	r.retry_cnt = qp->attr.retry_cnt;
	r.rnr_retry = qp->attr.rnr_retry;
	r.sq_sig_all = qp->sig_all;
	args_out(a, &r, sizeof(r));
	return 0;
}

int destroy_qp(struct context *ctx, struct args *a)
{
	struct ib_uverbs_destroy_qp_resp r = { 0 };
	struct ib_uverbs_destroy_qp req;
	struct qp *qp;

	(void)ctx;
	if (!ARGS_IN(a, req))
		return EINVAL;
	qp = object_get(QP, req.qp_handle);
	if (!qp)
		return EINVAL;
	object_destroy(&qp->o);
	args_out(a, &r, sizeof(r));
	return 0;
}

/* ---- the end of any object ---- */

void object_destroy(struct object *o)
{
	struct qp *qp = (struct qp *)o;
	struct srq *srq = (struct srq *)o;
	struct cq *cq = (struct cq *)o;

	switch (o->kind) {
	case QP:
		qp_set_state(qp, IBV_QPS_RESET);
		count_parts(qp, -1);
		break;
	case SRQ:
		srq->pd->o.users--;
		if (srq->cq)
			srq->cq->o.users--;
		break;
	case CQ:
		if (cq->channel) {
			list_del(&cq->of_channel);
			channel_put(cq->channel);
		}
		break;
	case WQ:
		((struct wq *)o)->pd->o.users--;
		((struct wq *)o)->cq->o.users--;
		break;
	case RWQ_TABLE:
		for (unsigned i = 0; i < ((struct rwq_table *)o)->count; i++)
			((struct rwq_table *)o)->wq[i]->o.users--;
		break;
	case UAR:
		list_del(&((struct uar *)o)->of_uars);
		break;
	case MR:
		((struct mr *)o)->pd->o.users--;
		break;
	default:
		break;
	}
	object_remove(o);
	free(o);
}
