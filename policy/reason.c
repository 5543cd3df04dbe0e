/* SPDX-License-Identifier: MIT */
/*
 * Why something failed, in words: the log and the reader both take their sentence here. The
 * numbers may come from a damaged file, so each is checked. Touches nothing; safe in a signal
 * handler.
 */
#include <errno.h>
#include <string.h>

#include "keys.h"
#include "reason.h"

static const char *const calls[GUARDED_CALLS] = {
	[CALL_OPEN_DEVICE] = "ibv_open_device", [CALL_CREATE_QP] = "ibv_create_qp",
	[CALL_CREATE_CQ] = "ibv_create_cq",	[CALL_CREATE_SRQ] = "ibv_create_srq",
	[CALL_MODIFY_QP] = "ibv_modify_qp",	[CALL_RESIZE_CQ] = "ibv_resize_cq",
	[CALL_MODIFY_SRQ] = "ibv_modify_srq",	[CALL_DESTROY_QP] = "ibv_destroy_qp",
	[CALL_DESTROY_CQ] = "ibv_destroy_cq",	[CALL_DESTROY_SRQ] = "ibv_destroy_srq",
	[CALL_REG_MR] = "ibv_reg_mr",		[CALL_REREG_MR] = "ibv_rereg_mr",
	[CALL_DEREG_MR] = "ibv_dereg_mr",	[CALL_ALLOC_DM] = "ibv_alloc_dm",
	[CALL_FREE_DM] = "ibv_free_dm",
};

static const char *const codes[REASONS] = {
	[REASON_UNKNOWN] = "unknown",
	[REASON_NO_ERRNO] = "no_errno",
	[REASON_BUDGET] = "budget",
	[REASON_DEVICE_LIMIT] = "device_limit",
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

static void put_device_limit(struct text *t, const struct failure_reason *f)
{
	text_put(t, " failed: asked ");
	text_put(t, reason_field_name(f->field));
	text_char(t, ' ');
	text_number(t, f->asked);
	text_put(t, ", the device takes at most ");
	text_number(t, f->limit);
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
	switch (f->reason) {
	case REASON_BUDGET:
		put_budget(&t, f);
		break;
	case REASON_DEVICE_LIMIT:
		put_device_limit(&t, f);
		break;
	case REASON_NO_ERRNO:
		text_put(&t, " failed and the provider did not say why: it left errno untouched");
		return text_end(&t);
	default:
		text_put(&t, " failed");
		break;
	}
	if (f->error) {
		text_put(&t, " (");
		text_put(&t, errno_name(f->error, number, sizeof(number)));
		text_char(&t, ')');
	}
	return text_end(&t);
}
