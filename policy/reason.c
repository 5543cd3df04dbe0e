/* SPDX-License-Identifier: MIT */
/*
 * Why something failed, in words: the log and the reader both take their sentence here. The
 * numbers may come from a damaged file, so each is checked. Touches nothing; safe in a signal
 * handler.
 */
#include <errno.h>
#include <string.h>
#include <strings.h>

#include "caps.h"
#include "keys.h"
#include "reason.h"

static const char *const calls[GUARDED_CALLS] = {
	[CALL_OPEN_DEVICE] = "ibv_open_device",
	[CALL_CREATE_QP] = "ibv_create_qp",
	[CALL_CREATE_CQ] = "ibv_create_cq",
	[CALL_CREATE_SRQ] = "ibv_create_srq",
	[CALL_MODIFY_QP] = "ibv_modify_qp",
	[CALL_RESIZE_CQ] = "ibv_resize_cq",
	[CALL_MODIFY_SRQ] = "ibv_modify_srq",
	[CALL_DESTROY_QP] = "ibv_destroy_qp",
	[CALL_DESTROY_CQ] = "ibv_destroy_cq",
	[CALL_DESTROY_SRQ] = "ibv_destroy_srq",
	[CALL_REG_MR] = "ibv_reg_mr",
	[CALL_REREG_MR] = "ibv_rereg_mr",
	[CALL_DEREG_MR] = "ibv_dereg_mr",
	[CALL_ALLOC_DM] = "ibv_alloc_dm",
	[CALL_FREE_DM] = "ibv_free_dm",
	[CALL_POST_SEND] = "ibv_post_send",
	[CALL_POST_RECV] = "ibv_post_recv",
	[CALL_POST_SRQ_RECV] = "ibv_post_srq_recv",
	[CALL_CREATE_WQ] = "ibv_create_wq",
	[CALL_MODIFY_WQ] = "ibv_modify_wq",
	[CALL_DESTROY_WQ] = "ibv_destroy_wq",
	[CALL_CREATE_RWQ_IND_TABLE] = "ibv_create_rwq_ind_table",
	[CALL_OPEN_QP] = "ibv_open_qp",
	[CALL_DEVX_OBJ_CREATE] = "mlx5dv_devx_obj_create",
	[CALL_DEVX_OBJ_DESTROY] = "mlx5dv_devx_obj_destroy",
	[CALL_DEVX_UMEM_REG] = "mlx5dv_devx_umem_reg",
	[CALL_DEVX_UMEM_DEREG] = "mlx5dv_devx_umem_dereg",
	[CALL_DEVX_ALLOC_UAR] = "mlx5dv_devx_alloc_uar",
};

static const char *const codes[REASONS] = {
	[REASON_UNKNOWN] = "unknown",
	[REASON_NO_ERRNO] = "no_errno",
	[REASON_BUDGET] = "budget",
	[REASON_DEVICE_LIMIT] = "device_limit",
	[REASON_JOINT_LIMIT] = "joint_limit",
	[REASON_UNINITIALIZED] = "uninitialized",
	[REASON_UNSUPPORTED] = "unsupported",
	[REASON_SRQ_AND_RECVS] = "srq_and_max_recv_wr",
	[REASON_CQ_SIZE] = "cq_size",
	[REASON_MEMLOCK] = "memlock",
	[REASON_CGROUP_MEMORY] = "cgroup_memory",
	[REASON_CGROUP_RDMA] = "cgroup_rdma",
	[REASON_COUNT] = "count",
	[REASON_BUSY] = "busy",
	[REASON_EXHAUSTED] = "exhausted",
	[REASON_INJECTED] = "injected",
	[REASON_QUEUE_FULL] = "queue_full",
	[REASON_QUEUE_FULL_EARLY] = "queue_full_early",
	[REASON_TOO_MANY_SGE] = "too_many_sge",
	[REASON_INLINE_TOO_BIG] = "inline_too_big",
	[REASON_BAD_STATE] = "bad_state",
	[REASON_OTHER_POST] = "other",
	[REASON_CLAMPED] = "clamped",
};

static const char *const fields[REASON_FIELDS] = {
	[FIELD_NONE] = "none",
	[FIELD_MAX_SEND_WR] = "max_send_wr",
	[FIELD_MAX_RECV_WR] = "max_recv_wr",
	[FIELD_MAX_SEND_SGE] = "max_send_sge",
	[FIELD_MAX_RECV_SGE] = "max_recv_sge",
	[FIELD_MAX_INLINE_DATA] = "max_inline_data",
	[FIELD_CQE] = "cqe",
	[FIELD_SRQ_WR] = "max_wr",
	[FIELD_SRQ_SGE] = "max_sge",
};

#define NAME(error)           \
	{                     \
		error, #error \
	}
/* What verbs and the calls below them return. */
static const struct {
	int error;
	const char *name;
} errors[] = {
	NAME(EPERM),	       NAME(ENOENT),	  NAME(EINTR),	      NAME(EIO),
	NAME(ENXIO),	       NAME(E2BIG),	  NAME(EBADF),	      NAME(EAGAIN),
	NAME(ENOMEM),	       NAME(EACCES),	  NAME(EFAULT),	      NAME(EBUSY),
	NAME(EEXIST),	       NAME(EXDEV),	  NAME(ENODEV),	      NAME(ENOTDIR),
	NAME(EISDIR),	       NAME(EINVAL),	  NAME(ENFILE),	      NAME(EMFILE),
	NAME(ENOTTY),	       NAME(EFBIG),	  NAME(ENOSPC),	      NAME(EROFS),
	NAME(EPIPE),	       NAME(EDOM),	  NAME(ERANGE),	      NAME(EDEADLK),
	NAME(ENOSYS),	       NAME(ENODATA),	  NAME(ETIME),	      NAME(EPROTO),
	NAME(EBADMSG),	       NAME(EOVERFLOW),	  NAME(EMSGSIZE),     NAME(EOPNOTSUPP),
	NAME(ENETDOWN),	       NAME(ENOBUFS),	  NAME(EISCONN),      NAME(ENOTCONN),
	NAME(ETIMEDOUT),       NAME(EHOSTDOWN),	  NAME(EALREADY),     NAME(EINPROGRESS),
	NAME(ESTALE),	       NAME(EREMOTEIO),	  NAME(EDQUOT),	      NAME(ECANCELED),
	NAME(EPROTONOSUPPORT), NAME(ENETUNREACH), NAME(EADDRINUSE),   NAME(EADDRNOTAVAIL),
	NAME(ECONNREFUSED),    NAME(ECONNRESET),  NAME(EHOSTUNREACH),
};
#undef NAME

const char *guarded_call_name(unsigned int call)
{
	return call < GUARDED_CALLS && calls[call] ? calls[call] : "unknown call";
}

const char *reason_code(unsigned int reason)
{
	return reason < REASONS && codes[reason] ? codes[reason] : "unknown";
}

const char *reason_field_name(unsigned int field)
{
	return field < REASON_FIELDS ? fields[field] : "unknown field";
}

const char *errno_name(int error, char *buf, size_t size)
{
	struct text t = text_begin(buf, size);

	for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++)
		if (errors[i].error == error)
			return errors[i].name;
	text_put(&t, "errno ");
	if (error < 0)
		text_char(&t, '-');
	text_number(&t, error < 0 ? 0u - (unsigned int)error : (unsigned int)error);
	text_end(&t);
	return buf;
}

int errno_of_name(const char *name, size_t len)
{
	for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++)
		if (strlen(errors[i].name) == len && !strncasecmp(errors[i].name, name, len))
			return errors[i].error;
	return 0;
}

/* "640 KiB", "1.5 MiB"; a tenth is enough to know a size by. */
static void put_size(struct text *t, uint64_t bytes)
{
	uint64_t unit = bytes < 1 << 20 ? 1 << 10 : 1 << 20, tenths;

	if (bytes < 1 << 10) {
		text_number(t, bytes);
		text_put(t, bytes == 1 ? " byte" : " bytes");
		return;
	}
	tenths = bytes % unit * 10 / unit;
	text_number(t, bytes / unit);
	if (tenths) {
		text_char(t, '.');
		text_number(t, tenths);
	}
	text_put(t, unit == 1 << 10 ? " KiB" : " MiB");
}

static void put_amount(struct text *t, uint64_t n, bool is_size, bool exactly)
{
	if (is_size && !exactly) {
		put_size(t, n);
		return;
	}
	text_number(t, n);
	if (is_size)
		text_put(t, " bytes");
}

/* Whether two sizes would look the same in print. */
static bool look_alike(uint64_t a, uint64_t b)
{
	char in_words[2][32];
	struct text t;

	t = text_begin(in_words[0], sizeof(in_words[0]));
	put_size(&t, a);
	text_end(&t);
	t = text_begin(in_words[1], sizeof(in_words[1]));
	put_size(&t, b);
	text_end(&t);
	return strcmp(in_words[0], in_words[1]) == 0;
}

static void put_budget(struct text *t, const struct failure_reason *f)
{
	bool known = f->field < BUDGET_LIMITS;
	bool is_size = known && policy_keys[f->field].kind == VALUE_SIZE;
	bool exactly = is_size && look_alike(f->asked, f->limit);

	text_put(t, " refused by budget ");
	text_put(t, known ? policy_keys[f->field].name : "(unknown limit)");
	text_put(t, ": would be ");
	put_amount(t, f->asked, is_size, exactly);
	text_put(t, ", limit ");
	put_amount(t, f->limit, is_size, exactly);
}

static void put_over(struct text *t, unsigned int field, uint64_t asked, uint64_t limit, bool first)
{
	text_put(t, first ? " failed: asked " : "; ");
	text_put(t, reason_field_name(field));
	text_char(t, ' ');
	text_number(t, asked);
	text_put(t, first ? ", the device takes at most " : ", at most ");
	text_number(t, limit);
}

static void put_device_limit(struct text *t, const struct failure_reason *f)
{
	put_over(t, f->field, f->asked, f->limit, true);
	for (unsigned int i = 0; i < OVER_FIELDS; i++) {
		unsigned int field = f->number[OVER_FIELDS] >> 8 * i & 0xff;

		if (field)
			put_over(t, field, f->number[i] >> 32, f->number[i] & UINT32_MAX, false);
	}
}

/* "max_send_wr 65536 with max_send_sge 16" */
static void put_wide(struct text *t, const struct failure_reason *f)
{
	bool sends = f->field == FIELD_MAX_SEND_WR;

	text_put(t, reason_field_name(f->field));
	text_char(t, ' ');
	text_number(t, f->asked);
	text_put(t, " with ");
	text_put(t, reason_field_name(sends ? FIELD_MAX_SEND_SGE : FIELD_MAX_RECV_SGE));
	text_char(t, ' ');
	text_number(t, f->number[JOINT_SGE]);
	if (f->number[JOINT_INLINE]) {
		text_put(t, " and max_inline_data ");
		text_number(t, f->number[JOINT_INLINE]);
	}
}

static void put_joint_limit(struct text *t, const struct failure_reason *f)
{
	text_put(t, " failed: ");
	put_wide(t, f);
	if (f->number[JOINT_BYTES] && f->number[JOINT_MOST_BYTES]) {
		text_put(t, " make a queue of ");
		put_size(t, f->number[JOINT_BYTES]);
		text_put(t, ", the device takes ");
		put_size(t, f->number[JOINT_MOST_BYTES]);
		text_put(t, " (");
		text_number(t, f->number[JOINT_MOST_BYTES] / (f->limit ? f->limit : 1));
		text_put(t, " bytes a request)");
	} else {
		text_put(t, " are too much together");
	}
	text_put(t, ": with as many SGEs at most ");
	text_number(t, f->limit);
	if (f->number[JOINT_WIDEST]) {
		text_put(t, " requests, with that depth at most ");
		text_number(t, f->number[JOINT_WIDEST]);
		text_put(t, f->number[JOINT_WIDEST] == 1 ? " SGE" : " SGEs");
	} else {
		text_put(t, " requests, with that depth no number of SGEs will do");
	}
}

static void put_uninitialized(struct text *t, const struct failure_reason *f)
{
	static const char digits[] = "0123456789abcdef";

	text_put(t, " failed: ");
	text_put(t, reason_field_name(f->field));
	text_char(t, ' ');
	text_number(t, f->asked);
	text_put(t, " (0x");
	for (int shift = 28; shift >= 0; shift -= 4)
		text_char(t, digits[f->asked >> shift & 15]);
	text_put(t, ") looks like memory that was never set; the device takes at most ");
	text_number(t, f->limit);
}

static void put_memlock(struct text *t, const struct failure_reason *f)
{
	text_put(t, " failed: ");
	text_number(t, f->asked);
	text_put(t, " bytes to pin, ");
	text_number(t, f->number[MEMLOCK_PINNED]);
	text_put(t, " pinned already by this process, and RLIMIT_MEMLOCK is ");
	text_number(t, f->limit);
	if (f->number[MEMLOCK_HALF_CQE]) {
		text_put(t, "; a CQ of ");
		text_number(t, f->number[MEMLOCK_HALF_CQE]);
		text_put(t, " would need ");
		text_number(t, f->number[MEMLOCK_HALF_BYTES]);
	}
	if (f->number[MEMLOCK_CAPABLE])
		text_put(t, "; though with CAP_IPC_LOCK the kernel should not hold it to that");
}

static void put_cgroup(struct text *t, const struct failure_reason *f)
{
	if (f->reason == REASON_CGROUP_RDMA) {
		text_put(t, " failed: the cgroup's rdma.max allows ");
		text_number(t, f->limit);
		text_put(t, " objects of the device, ");
		text_number(t, f->asked);
		text_put(t, " are in use");
		return;
	}
	text_put(t, " failed: ");
	put_size(t, f->asked);
	text_put(t, " more, the cgroup has ");
	put_size(t, f->number[0]);
	text_put(t, " in use and a limit of ");
	put_size(t, f->limit);
}

static void put_exhausted(struct text *t, const struct failure_reason *f)
{
	bool opening = f->call == CALL_OPEN_DEVICE;

	text_put(t, " failed, and no limit that can be seen is near: this process has ");
	text_number(t, f->number[STATE_CONTEXTS]);
	text_put(t, f->number[STATE_CONTEXTS] == 1 ? " context, " : " contexts, ");
	text_number(t, f->number[STATE_QPS]);
	text_put(t, " QPs");
	if (f->number[STATE_MAX_QP]) {
		text_put(t, " of ");
		text_number(t, f->number[STATE_MAX_QP]);
	}
	text_put(t, " and ");
	put_size(t, f->number[STATE_QUEUE_BYTES]);
	text_put(t, " of queues on the device; memlock and cgroup allow more");
	text_put(t, opening ? "; doorbell pages (UAR) may be used up by all processes of the node"
			    : "; a resource of the device itself may be used up");
	text_put(t, ": see the kernel's log (dmesg)");
}

static void put_full(struct text *t, const struct failure_reason *f)
{
	text_put(t, f->reason == REASON_QUEUE_FULL_EARLY
			    ? " refused as full by the provider while there is room: "
			    : " refused, the queue is full: ");
	text_number(t, f->asked);
	text_put(t, " outstanding (");
	text_number(t, f->number[0]);
	text_put(t, " of them unsignaled), depth ");
	text_number(t, f->limit);
	if (f->reason == REASON_CLAMPED) {
		text_put(t, ", lowered by [clamp] or a budget from the ");
		text_number(t, f->number[1]);
		text_put(t, " asked for");
	}
}

static void put_post(struct text *t, const struct failure_reason *f)
{
	static const char *const states[] = { "RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR" };

	switch (f->reason) {
	case REASON_TOO_MANY_SGE:
	case REASON_INLINE_TOO_BIG:
		text_put(t, f->reason == REASON_TOO_MANY_SGE ? " refused: num_sge "
							     : " refused: inline data of ");
		text_number(t, f->asked);
		text_put(t, ", the QP takes at most ");
		text_number(t, f->limit);
		break;
	case REASON_BAD_STATE:
		text_put(t, " refused: the QP is in state ");
		text_put(t, f->asked < sizeof(states) / sizeof(states[0]) ? states[f->asked] : "?");
		break;
	default:
		text_put(t, " refused, and not because the queue is full, the request too wide "
			    "or the state wrong");
		break;
	}
}

/* What stands between the call and its errno. */
static void put_reason(struct text *t, const struct failure_reason *f)
{
	switch (f->reason) {
	case REASON_BUDGET:
		put_budget(t, f);
		break;
	case REASON_DEVICE_LIMIT:
		put_device_limit(t, f);
		break;
	case REASON_JOINT_LIMIT:
		put_joint_limit(t, f);
		break;
	case REASON_UNINITIALIZED:
		put_uninitialized(t, f);
		break;
	case REASON_UNSUPPORTED:
		text_put(t, " failed: not supported by device or provider");
		if (f->asked) {
			text_put(t, " (QP type ");
			text_put(t, qp_type_name((unsigned int)f->asked));
			text_put(t, ", or one of its flags)");
		}
		break;
	case REASON_SRQ_AND_RECVS:
		text_put(t, " failed: a QP with an SRQ has no receive queue, but max_recv_wr is ");
		text_number(t, f->asked);
		break;
	case REASON_CQ_SIZE:
		text_put(t, " failed: CQ ");
		text_number(t, f->number[0]);
		text_put(t, " of ");
		text_number(t, f->limit);
		text_put(t, " entries would have to hold the completions of ");
		text_number(t, f->asked);
		text_put(t, " requests");
		break;
	case REASON_MEMLOCK:
		put_memlock(t, f);
		break;
	case REASON_CGROUP_MEMORY:
	case REASON_CGROUP_RDMA:
		put_cgroup(t, f);
		break;
	case REASON_COUNT:
		text_put(t, " failed: this process has ");
		text_number(t, f->asked);
		text_put(t, " QPs there, and the device reports a limit of ");
		text_number(t, f->limit);
		break;
	case REASON_BUSY:
		text_put(t, " failed: still in use by ");
		text_number(t, f->asked);
		text_put(t, f->asked == 1 ? " QP (number " : " QPs (one is number ");
		text_number(t, f->number[0]);
		text_char(t, ')');
		break;
	case REASON_EXHAUSTED:
		put_exhausted(t, f);
		break;
	case REASON_INJECTED:
		text_put(t, " failed on purpose: [inject]");
		break;
	case REASON_QUEUE_FULL:
	case REASON_QUEUE_FULL_EARLY:
	case REASON_CLAMPED:
		put_full(t, f);
		break;
	case REASON_TOO_MANY_SGE:
	case REASON_INLINE_TOO_BIG:
	case REASON_BAD_STATE:
	case REASON_OTHER_POST:
		put_post(t, f);
		break;
	default:
		text_put(t, " failed");
		if (f->number[0])
			text_put(t, "; the request is within what is known of the device, its type "
				    "is supported, its CQs are large enough");
		break;
	}
}

size_t reason_sentence(const struct failure_reason *f, const char *device, char *out, size_t size)
{
	struct text t = text_begin(out, size);
	char number[24];

	text_put(&t, guarded_call_name(f->call));
	if (device && device[0]) {
		text_put(&t, " on ");
		text_name(&t, device);
	}
	if (f->reason == REASON_NO_ERRNO) {
		text_put(&t, " failed and the provider did not say why: it left errno untouched");
		return text_end(&t);
	}
	put_reason(&t, f);
	if (f->error) {
		text_put(&t, " (");
		text_put(&t, errno_name(f->error, number, sizeof(number)));
		text_char(&t, ')');
	} else if (f->reason >= REASON_JOINT_LIMIT || f->reason == REASON_DEVICE_LIMIT) {
		text_put(&t, " (errno untouched)");
	}
	return text_end(&t);
}
