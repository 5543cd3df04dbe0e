/* SPDX-License-Identifier: MIT */
/*
 * The uverbs device's ioctl: takes the envelope apart (rdma_user_ioctl_cmds.h)
 * and carries out the commands of the device, of protection domains, memory
 * regions, doorbell pages and channels. Those of queues are in queues.c.
 *
 * Only what libmlx5 cannot do without is a native method; all other commands
 * come by INVOKE_WRITE, because a refusal with EPROTONOSUPPORT makes libibverbs
 * fall back to that, command by command. A command returns 0 or an errno value.
 */
#include "mlx5dev.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <endian.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/mlx5-abi.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/rdma_user_ioctl_cmds.h>

/* ---- the envelope ---- */

static struct ib_uverbs_attr *attr_of(struct ib_uverbs_ioctl_hdr *h, unsigned id)
{
	for (unsigned i = 0; i < h->num_attrs; i++)
		if (h->attrs[i].attr_id == id)
			return &h->attrs[i];
	return NULL;
}

/* An input of up to eight bytes lies in the attribute itself. */
static const void *attr_in(struct ib_uverbs_ioctl_hdr *h, unsigned id, uint32_t *len)
{
	struct ib_uverbs_attr *a = attr_of(h, id);

	*len = a ? a->len : 0;
	if (!a)
		return NULL;
	return a->len <= sizeof(a->data) ? (void *)&a->data : (void *)(uintptr_t)a->data;
}

static void *attr_out(struct ib_uverbs_ioctl_hdr *h, unsigned id, uint32_t *len)
{
	struct ib_uverbs_attr *a = attr_of(h, id);

	*len = a ? a->len : 0;
	return a ? (void *)(uintptr_t)a->data : NULL;
}

bool args_in(const struct args *a, void *to, size_t len)
{
	if (a->in_len < len)
		return false;
	memcpy(to, a->in, len);
	return true;
}

static void put(void *to, uint32_t room, const void *from, size_t len)
{
	memcpy(to, from, len < room ? len : room);
}

void args_out(const struct args *a, const void *from, size_t len)
{
	if (a->out)
		put(a->out, a->out_len, from, len);
}

void args_drv_out(const struct args *a, const void *from, size_t len)
{
	if (a->drv_out)
		put(a->drv_out, a->drv_out_len, from, len);
}

/* ---- device ---- */

/* Makes the pipe behind the asynchronous event descriptor; nothing is written to it yet. */
static int async_fd(struct context *ctx)
{
	int fds[2];

	if (ctx->async_peer >= 0 || pipe2(fds, O_CLOEXEC))
		return -1;
	ctx->async_peer = fds[1];
	return fds[0];
}

/* The key of a null MR, of which there is one: the library asks nothing when it makes one. */
#define NULL_KEY 0xfffffe00u

static int get_context(struct context *ctx, struct args *a)
{
	struct ib_uverbs_get_context_resp core = { .num_comp_vectors = 8 };
	struct mlx5_ib_alloc_ucontext_resp drv = {
		.qp_tab_size = HANDLE_MASK + 1,
		.bf_reg_size = 512,
		.tot_bfregs = 0, /* doorbell pages are allocated one by one */
		.cache_line_size = 64,
		.max_sq_desc_sz = (uint16_t)limits.max_sq_desc_sz,
		.max_rq_desc_sz = (uint16_t)limits.max_rq_desc_sz,
		.max_send_wqebb = (uint32_t)limits.max_send_wqebb,
		.max_recv_wr = (uint32_t)limits.max_recv_wr,
		.max_srq_recv_wr = (uint32_t)limits.max_srq_recv_wr,
		.num_ports = 1,
		.response_length = sizeof(drv),
		.cqe_version = 1,
		.cmds_supp_uhw =
			MLX5_USER_CMDS_SUPP_UHW_QUERY_DEVICE | MLX5_USER_CMDS_SUPP_UHW_CREATE_AH,
		.eth_min_inline = MLX5_USER_INLINE_MODE_NONE,
		.comp_mask = MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_DUMP_FILL_MKEY,
		.log_uar_size = 12,
		.num_uars_per_page = 1,
		.dump_fill_mkey = NULL_KEY,
	};
	const struct mlx5_ib_alloc_ucontext_req_v2 *req = a->drv_in;
	int err;

	/* The library asks again without DEVX, as it does on kernels that lack it. */
	if (!limits.devx && a->drv_in_len >= sizeof(*req) && req->flags & MLX5_IB_ALLOC_UCTX_DEVX)
		return EOPNOTSUPP;
	err = nic_start();
	if (err)
		return err;
	core.async_fd = (uint32_t)async_fd(ctx);
	args_out(a, &core, sizeof(core));
	args_drv_out(a, &drv, sizeof(drv));
	return 0;
}

static struct ib_uverbs_query_device_resp device_attr(void)
{
	return (struct ib_uverbs_query_device_resp){
		.fw_ver = 16ull << 32 | 35ull << 16 | 2000,
		.node_guid = htobe64(NODE_GUID),
		.sys_image_guid = htobe64(NODE_GUID),
		.max_mr_size = ~0ull,
		.page_size_cap = 0xfffffffffffff000ull,
		.vendor_id = 0x15b3,
		.vendor_part_id = 0x1017,
		.max_qp = (uint32_t)limits.max[QP],
		.max_qp_wr = (uint32_t)limits.max_qp_wr,
		.device_cap_flags = IB_UVERBS_DEVICE_RC_RNR_NAK_GEN | IB_UVERBS_DEVICE_XRC,
		.max_sge = (uint32_t)limits.max_sge,
		.max_sge_rd = (uint32_t)limits.max_sge,
		.max_cq = (uint32_t)limits.max[CQ],
		.max_cqe = (uint32_t)limits.max_cqe,
		.max_mr = (uint32_t)limits.max[MR],
		.max_pd = (uint32_t)limits.max[PD],
		.max_qp_rd_atom = 16,
		.max_res_rd_atom = 16 * HANDLE_MASK,
		.max_qp_init_rd_atom = 16,
		.atomic_cap = 1, /* IB_ATOMIC_HCA */
		.max_raw_ethy_qp = 1024,
		.max_ah = 0x7fffffff,
		.max_srq = (uint32_t)limits.max[SRQ],
		.max_srq_wr = (uint32_t)limits.max_srq_recv_wr - 1,
		.max_srq_sge = (uint32_t)limits.max_rq_desc_sz / 16 - 1,
		.max_pkeys = 1,
		.local_ca_ack_delay = 16,
		.phys_port_cnt = 1,
	};
}

static int query_device(struct args *a)
{
	struct ib_uverbs_query_device_resp r = device_attr();

	args_out(a, &r, sizeof(r));
	return 0;
}

static int query_device_ex(struct args *a)
{
	struct ib_uverbs_ex_query_device_resp r = {
		.base = device_attr(),
		.response_length = sizeof(r) < a->out_len ? sizeof(r) : a->out_len,
		.timestamp_mask = (1ull << 48) - 1,
		.hca_core_clock = 1000000, /* kHz: CQEs are stamped in nanoseconds */
	};
	struct mlx5_ib_query_device_resp drv = {
		.response_length = sizeof(drv) < a->drv_out_len ? sizeof(drv) : a->drv_out_len,
	};

	args_out(a, &r, sizeof(r));
	args_drv_out(a, &drv, sizeof(drv));
	return 0;
}

static int query_port(struct args *a)
{
	struct ib_uverbs_query_port_resp r = {
		.port_cap_flags = IB_UVERBS_PCF_CM_SUP,
		.max_msg_sz = 1 << 30,
		.gid_tbl_len = 1,
		.pkey_tbl_len = 1,
		.lid = 1,
		.sm_lid = 1,
		.state = 4,   /* active */
		.max_mtu = 5, /* 4096 */
		.active_mtu = 5,
		.max_vl_num = 4,
		.active_width = 2,  /* 4X */
		.active_speed = 32, /* EDR */
		.phys_state = 5,    /* link up */
		.link_layer = 1,    /* InfiniBand */
	};
	struct ib_uverbs_query_port req;

	if (!ARGS_IN(a, req) || req.port_num != 1)
		return EINVAL;
	args_out(a, &r, sizeof(r));
	return 0;
}

/* ---- doorbell pages: driver methods of rdma/mlx5_user_ioctl_cmds.h ---- */

static void set_out(struct ib_uverbs_ioctl_hdr *h, unsigned id, uint64_t value)
{
	struct ib_uverbs_attr *a = attr_of(h, id);

	if (a)
		memcpy((void *)(uintptr_t)a->data, &value, a->len < 8 ? a->len : 8);
}

static int alloc_uar(struct context *ctx, struct ib_uverbs_ioctl_hdr *h)
{
	struct ib_uverbs_attr *handle = attr_of(h, MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE);
	struct uar *uar;
	int err;

	if (!handle)
		return EINVAL;
	uar = fresh(sizeof(*uar));
	err = object_add(&uar->o, UAR, ctx);
	if (!err && uar->o.handle >= MAX_UARS) {
		object_remove(&uar->o);
		err = ENOMEM;
	}
	if (err) {
		free(uar);
		return err;
	}
	list_init(&uar->qps);
	list_add(&ctx->uars, &uar->of_uars);
	memset(nic.uar_pages + uar->o.handle * (size_t)PAGE_BYTES, 0, PAGE_BYTES);
	handle->data = uar->o.handle;
	set_out(h, MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, uar->o.handle * (uint64_t)PAGE_BYTES);
	set_out(h, MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, PAGE_BYTES);
	set_out(h, MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, uar->o.handle);
	return 0;
}

static int free_uar(struct ib_uverbs_ioctl_hdr *h)
{
	struct ib_uverbs_attr *handle = attr_of(h, MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE);
	struct uar *uar = handle ? object_get(UAR, (uint32_t)handle->data) : NULL;

	if (!uar)
		return EINVAL;
	if (uar->o.users)
		return EBUSY;
	object_destroy(&uar->o);
	return 0;
}

/* ---- protection domains, memory regions, XRC domains, channels ---- */

static int alloc_pd(struct context *ctx, struct args *a)
{
	struct ib_uverbs_alloc_pd_resp r = { 0 };
	struct mlx5_ib_alloc_pd_resp drv = { 0 };
	struct pd *pd = fresh(sizeof(*pd));
	int err = object_add(&pd->o, PD, ctx);

	if (err) {
		free(pd);
		return err;
	}
	r.pd_handle = drv.pdn = pd->o.handle;
	args_out(a, &r, sizeof(r));
	args_drv_out(a, &drv, sizeof(drv));
	return 0;
}

static int destroy_by_handle(enum kind kind, struct args *a)
{
	uint32_t handle;
	struct object *o;

	if (!ARGS_IN(a, handle))
		return EINVAL;
	o = object_get(kind, handle);
	if (!o)
		return EINVAL;
	if (o->users)
		return EBUSY;
	object_destroy(o);
	return 0;
}

static int reg_mr(struct context *ctx, struct args *a)
{
	static uint8_t variant; /* so that a key is not valid again soon */
	struct ib_uverbs_reg_mr_resp r = { 0 };
	struct ib_uverbs_reg_mr req;
	struct pd *pd;
	struct mr *mr;
	int err;

	if (!ARGS_IN(a, req))
		return EINVAL;
	pd = object_get(PD, req.pd_handle);
	if (!pd || (req.start ^ req.hca_va) % PAGE_BYTES)
		return EINVAL;
	mr = fresh(sizeof(*mr));
	err = object_add(&mr->o, MR, ctx);
	if (err) {
		free(mr);
		return err;
	}
	err = pin(&mr->o, req.start, req.length);
	if (err) {
		object_remove(&mr->o);
		free(mr);
		return err;
	}
	mr->pd = pd;
	pd->o.users++;
	mr->start = req.start;
	mr->length = req.length;
	mr->iova = req.hca_va;
	mr->access = req.access_flags;
	mr->key = mr->o.handle << 8 | variant++;
	r.mr_handle = mr->o.handle;
	r.lkey = r.rkey = mr->key;
	args_out(a, &r, sizeof(r));
	return 0;
}

static int rereg_mr(struct args *a)
{
	struct ib_uverbs_rereg_mr_resp r;
	struct ib_uverbs_rereg_mr req;
	struct mr *mr;
	int err;

	if (!ARGS_IN(a, req))
		return EINVAL;
	mr = object_get(MR, req.mr_handle);
	if (!mr || !req.flags || req.flags & IBV_REREG_MR_CHANGE_PD)
		return EINVAL;
	if (req.flags & IBV_REREG_MR_CHANGE_TRANSLATION) {
		if ((req.start ^ req.hca_va) % PAGE_BYTES)
			return EINVAL;
		unpin(&mr->o);
		err = pin(&mr->o, req.start, req.length);
		if (err)
			return err;
		mr->start = req.start;
		mr->length = req.length;
		mr->iova = req.hca_va;
	}
	if (req.flags & IBV_REREG_MR_CHANGE_ACCESS)
		mr->access = req.access_flags;
	r.lkey = r.rkey = mr->key;
	args_out(a, &r, sizeof(r));
	return 0;
}

static int open_xrcd(struct context *ctx, struct args *a)
{
	struct ib_uverbs_open_xrcd_resp r = { 0 };
	struct object *o = fresh(sizeof(*o));
	int err = object_add(o, XRCD, ctx);

	if (err) {
		free(o);
		return err;
	}
	r.xrcd_handle = o->handle;
	args_out(a, &r, sizeof(r));
	return 0;
}

static int create_channel(struct args *a)
{
	struct ib_uverbs_create_comp_channel_resp r = { 0 };
	struct channel *ch = channel_new();

	if (!ch)
		return errno;
	r.fd = (uint32_t)ch->fd;
	args_out(a, &r, sizeof(r));
	return 0;
}

/* ---- dispatch ---- */

static int write_command(struct context *ctx, uint32_t command, struct args *a)
{
	enum { EX = (int)IB_USER_VERBS_CMD_FLAG_EXTENDED };

	switch ((int)command) {
	case IB_USER_VERBS_CMD_GET_CONTEXT:
		return get_context(ctx, a);
	case IB_USER_VERBS_CMD_QUERY_DEVICE:
		/* libibverbs probes INVOKE_WRITE by asking without room for the answer. */
		return a->out ? query_device(a) : ENOSPC;
	case EX | IB_USER_VERBS_EX_CMD_QUERY_DEVICE:
		return query_device_ex(a);
	case IB_USER_VERBS_CMD_QUERY_PORT:
		return query_port(a);
	case IB_USER_VERBS_CMD_ALLOC_PD:
		return alloc_pd(ctx, a);
	case IB_USER_VERBS_CMD_DEALLOC_PD:
		return destroy_by_handle(PD, a);
	case IB_USER_VERBS_CMD_REG_MR:
		return reg_mr(ctx, a);
	case IB_USER_VERBS_CMD_REREG_MR:
		return rereg_mr(a);
	case IB_USER_VERBS_CMD_DEREG_MR:
		return destroy_by_handle(MR, a);
	case IB_USER_VERBS_CMD_OPEN_XRCD:
		return open_xrcd(ctx, a);
	case IB_USER_VERBS_CMD_CLOSE_XRCD:
		return destroy_by_handle(XRCD, a);
	case IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL:
		return create_channel(a);
	case IB_USER_VERBS_CMD_CREATE_CQ:
		return create_cq(ctx, a, false);
	case EX | IB_USER_VERBS_EX_CMD_CREATE_CQ:
		return create_cq(ctx, a, true);
	case EX | IB_USER_VERBS_EX_CMD_MODIFY_CQ:
		return 0; /* moderation: events come at once, which it allows */
	case IB_USER_VERBS_CMD_DESTROY_CQ:
		return destroy_cq(ctx, a);
	case IB_USER_VERBS_CMD_CREATE_SRQ:
		return create_srq(ctx, a, false);
	case IB_USER_VERBS_CMD_CREATE_XSRQ:
		return create_srq(ctx, a, true);
	case IB_USER_VERBS_CMD_QUERY_SRQ:
		return query_srq(ctx, a);
	case IB_USER_VERBS_CMD_MODIFY_SRQ:
		return modify_srq(ctx, a);
	case IB_USER_VERBS_CMD_DESTROY_SRQ:
		return destroy_srq(ctx, a);
	case IB_USER_VERBS_CMD_CREATE_QP:
		return create_qp(ctx, a, false);
	case EX | IB_USER_VERBS_EX_CMD_CREATE_QP:
		return create_qp(ctx, a, true);
	case IB_USER_VERBS_CMD_MODIFY_QP:
	case EX | IB_USER_VERBS_EX_CMD_MODIFY_QP:
		return modify_qp(ctx, a);
	case IB_USER_VERBS_CMD_QUERY_QP:
		return query_qp(ctx, a);
	case IB_USER_VERBS_CMD_OPEN_QP:
		return open_qp(ctx, a);
	case EX | IB_USER_VERBS_EX_CMD_CREATE_WQ:
		return create_wq(ctx, a);
	case EX | IB_USER_VERBS_EX_CMD_MODIFY_WQ:
		return modify_wq(ctx, a);
	case EX | IB_USER_VERBS_EX_CMD_DESTROY_WQ:
		return destroy_wq(ctx, a);
	case EX | IB_USER_VERBS_EX_CMD_CREATE_RWQ_IND_TBL:
		return create_rwq_table(ctx, a);
	case EX | IB_USER_VERBS_EX_CMD_DESTROY_RWQ_IND_TBL:
		return destroy_rwq_table(ctx, a);
	case IB_USER_VERBS_CMD_DESTROY_QP:
		return destroy_qp(ctx, a);
	default:
		return EOPNOTSUPP;
	}
}

/* A region of a dmabuf, which nobody can reach: requests that name it end in an error of protection. */
static int reg_dmabuf_mr(struct context *ctx, struct ib_uverbs_ioctl_hdr *h)
{
	struct ib_uverbs_attr *handle = attr_of(h, UVERBS_ATTR_REG_DMABUF_MR_HANDLE);
	struct ib_uverbs_attr *of = attr_of(h, UVERBS_ATTR_REG_DMABUF_MR_PD_HANDLE);
	struct pd *pd = of ? object_get(PD, (uint32_t)of->data) : NULL;
	struct mr *mr;
	int err;

	if (!handle || !pd)
		return EINVAL;
	mr = fresh(sizeof(*mr));
	err = object_add(&mr->o, MR, ctx);
	if (err) {
		free(mr);
		return err;
	}
	mr->pd = pd;
	pd->o.users++;
	mr->key = mr->o.handle << 8;
	handle->data = mr->o.handle;
	set_out(h, UVERBS_ATTR_REG_DMABUF_MR_RESP_LKEY, mr->key);
	set_out(h, UVERBS_ATTR_REG_DMABUF_MR_RESP_RKEY, mr->key);
	return 0;
}

/* ---- DEVX: handles, and the pages of registered memory; the commands are not carried out ---- */

static int devx_obj_create(struct context *ctx, struct ib_uverbs_ioctl_hdr *h)
{
	struct ib_uverbs_attr *handle = attr_of(h, MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE);
	uint32_t in_len, out_len;
	const void *in = attr_in(h, MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN, &in_len);
	uint8_t *out = attr_out(h, MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT, &out_len);
	struct object *o;
	uint32_t id;
	int err;

	/* opcode, and status, syndrome and number of the new object */
	if (!limits.devx || !handle || !in || in_len < 16 || !out || out_len < 16)
		return EINVAL;
	o = fresh(sizeof(*o));
	err = object_add(o, DEVX_OBJ, ctx);
	if (err) {
		free(o);
		return err;
	}
	handle->data = o->handle;
	id = htobe32(o->handle);
	memset(out, 0, out_len);
	memcpy(out + 8, &id, sizeof(id));
	return 0;
}

static int devx_umem_reg(struct context *ctx, struct ib_uverbs_ioctl_hdr *h)
{
	struct ib_uverbs_attr *handle = attr_of(h, MLX5_IB_ATTR_DEVX_UMEM_REG_HANDLE);
	struct ib_uverbs_attr *addr = attr_of(h, MLX5_IB_ATTR_DEVX_UMEM_REG_ADDR);
	struct ib_uverbs_attr *len = attr_of(h, MLX5_IB_ATTR_DEVX_UMEM_REG_LEN);
	struct object *o;
	int err;

	if (!limits.devx || !handle || !addr || !len || !len->data)
		return EINVAL;
	o = fresh(sizeof(*o));
	err = object_add(o, DEVX_UMEM, ctx);
	if (err) {
		free(o);
		return err;
	}
	err = pin(o, addr->data, len->data);
	if (err) {
		object_remove(o);
		free(o);
		return err;
	}
	handle->data = o->handle;
	set_out(h, MLX5_IB_ATTR_DEVX_UMEM_REG_OUT_ID, o->handle);
	return 0;
}

static int devx_destroy(struct ib_uverbs_ioctl_hdr *h, enum kind kind, unsigned id)
{
	struct ib_uverbs_attr *handle = attr_of(h, id);
	struct object *o = handle ? object_get(kind, (uint32_t)handle->data) : NULL;

	if (!o)
		return EINVAL;
	object_destroy(o);
	return 0;
}

static int devx(struct context *ctx, struct ib_uverbs_ioctl_hdr *h)
{
	bool of_object = h->object_id == MLX5_IB_OBJECT_DEVX_OBJ;

	if (of_object && h->method_id == MLX5_IB_METHOD_DEVX_OBJ_CREATE)
		return devx_obj_create(ctx, h);
	if (of_object && h->method_id == MLX5_IB_METHOD_DEVX_OBJ_DESTROY)
		return devx_destroy(h, DEVX_OBJ, MLX5_IB_ATTR_DEVX_OBJ_DESTROY_HANDLE);
	if (h->object_id != MLX5_IB_OBJECT_DEVX_UMEM)
		return EPROTONOSUPPORT;
	if (h->method_id == MLX5_IB_METHOD_DEVX_UMEM_REG)
		return devx_umem_reg(ctx, h);
	if (h->method_id == MLX5_IB_METHOD_DEVX_UMEM_DEREG)
		return devx_destroy(h, DEVX_UMEM, MLX5_IB_ATTR_DEVX_UMEM_DEREG_HANDLE);
	return EPROTONOSUPPORT;
}

static int invoke_write(struct context *ctx, struct ib_uverbs_ioctl_hdr *h, uint32_t *command)
{
	struct ib_uverbs_attr *cmd = attr_of(h, UVERBS_ATTR_WRITE_CMD);
	struct args a;

	if (!cmd)
		return EINVAL;
	*command = (uint32_t)cmd->data;
	a.in = attr_in(h, UVERBS_ATTR_CORE_IN, &a.in_len);
	a.out = attr_out(h, UVERBS_ATTR_CORE_OUT, &a.out_len);
	a.drv_in = attr_in(h, UVERBS_ATTR_UHW_IN, &a.drv_in_len);
	a.drv_out = attr_out(h, UVERBS_ATTR_UHW_OUT, &a.drv_out_len);
	/* The kernel does so, and the libraries rely on it. */
	if (a.out)
		memset(a.out, 0, a.out_len);
	if (a.drv_out)
		memset(a.drv_out, 0, a.drv_out_len);
	return write_command(ctx, *command, &a);
}

static int native(struct context *ctx, struct ib_uverbs_ioctl_hdr *h)
{
	struct ib_uverbs_attr *fd;

	if (h->object_id == UVERBS_OBJECT_ASYNC_EVENT &&
	    h->method_id == UVERBS_METHOD_ASYNC_EVENT_ALLOC) {
		fd = attr_of(h, UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE);
		if (!fd)
			return EINVAL;
		fd->data_s64 = async_fd(ctx);
		return fd->data_s64 < 0 ? EMFILE : 0;
	}
	if (h->object_id == UVERBS_OBJECT_MR && h->method_id == UVERBS_METHOD_REG_DMABUF_MR)
		return reg_dmabuf_mr(ctx, h);
	if (h->object_id == MLX5_IB_OBJECT_UAR && h->method_id == MLX5_IB_METHOD_UAR_OBJ_ALLOC)
		return alloc_uar(ctx, h);
	if (h->object_id == MLX5_IB_OBJECT_UAR && h->method_id == MLX5_IB_METHOD_UAR_OBJ_DESTROY)
		return free_uar(h);
	return devx(ctx, h);
}

static void trace(const struct ib_uverbs_ioctl_hdr *h, uint32_t command, int err)
{
	char line[160];
	int n, fd = openat(AT_FDCWD, limits.trace, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);

	n = snprintf(line, sizeof(line), "%d object %#x method %#x command %#x: %s\n", (int)nic.pid,
		     h->object_id, h->method_id, command, strerrorname_np(err));
	if (fd >= 0 && write(fd, line, (size_t)n) < 0)
		dprintf(STDERR_FILENO, "mlx5dev: %s: cannot write\n", limits.trace);
	if (fd >= 0)
		syscall(SYS_close, fd);
}

int command_ioctl(struct context *ctx, void *hdr)
{
	struct ib_uverbs_ioctl_hdr *h = hdr;
	uint32_t command = 0;
	int err;

	if (h->object_id == UVERBS_OBJECT_DEVICE && h->method_id == UVERBS_METHOD_INVOKE_WRITE)
		err = invoke_write(ctx, h, &command);
	else
		err = native(ctx, h);
	if (err && limits.trace)
		trace(h, command, err);
	return err;
}
