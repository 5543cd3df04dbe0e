/* SPDX-License-Identifier: MIT */
/*
 * Why something failed, as a short code with numbers and as a sentence. The shim keeps the code
 * and the numbers; the log and the reader make the same sentence of them here.
 */
#ifndef QPG_REASON_H
#define QPG_REASON_H

#include <stddef.h>
#include <stdint.h>

/* Calls that can fail. The order is part of the state file's layout: add at the end. */
enum guarded_call {
	CALL_OPEN_DEVICE = 1,
	CALL_CREATE_QP,
	CALL_CREATE_CQ,
	CALL_CREATE_SRQ,
	CALL_MODIFY_QP,
	CALL_RESIZE_CQ,
	CALL_MODIFY_SRQ,
	CALL_DESTROY_QP,
	CALL_DESTROY_CQ,
	CALL_DESTROY_SRQ,
	CALL_REG_MR,
	CALL_REREG_MR,
	CALL_DEREG_MR,
	CALL_ALLOC_DM,
	CALL_FREE_DM,
	GUARDED_CALLS
};

/* Short codes; order is part of the state file's layout: add at the end. */
enum reason {
	REASON_UNKNOWN = 1,  /* the provider's errno says all that is known */
	REASON_NO_ERRNO,     /* the provider left errno untouched */
	REASON_BUDGET,	     /* field: enum policy_key of the limit; asked, limit */
	REASON_DEVICE_LIMIT, /* field: enum reason_field; asked, limit */
	REASONS
};

/* Which field of a request a reason speaks of. */
enum reason_field {
	FIELD_NONE,
	FIELD_MAX_SEND_WR,
	FIELD_MAX_RECV_WR,
	FIELD_MAX_SEND_SGE,
	FIELD_MAX_RECV_SGE,
	FIELD_MAX_INLINE_DATA,
	FIELD_CQE,
	FIELD_SRQ_WR,
	FIELD_SRQ_SGE,
	REASON_FIELDS
};

/* One failure reduced to numbers. */
struct failure_reason {
	uint8_t call;	/* enum guarded_call */
	uint8_t reason; /* enum reason */
	uint16_t field; /* see enum reason */
	int32_t error;	/* errno as the application saw it */
	uint64_t asked;
	uint64_t limit;
};

/* "ibv_create_qp", ...; "unknown call" for a value out of range. */
const char *guarded_call_name(unsigned int call);
/* "budget", "device_limit", "no_errno", "unknown". */
const char *reason_code(unsigned int reason);
/* "max_send_wr", ... */
const char *reason_field_name(unsigned int field);
/* ENOMEM -> "ENOMEM"; one without a name as "errno N", in buf (at least 24 bytes). Async-safe. */
const char *errno_name(int error, char *buf, size_t size);

/*
 * The sentence, without a final newline, e.g. "ibv_create_qp on rxe0 refused by budget qps: would
 * be 4, limit 3 (ENOMEM)". Sizes are in KiB and MiB. Uses no locale and no allocation; like
 * snprintf.
 */
size_t reason_sentence(const struct failure_reason *f, const char *device, char *out, size_t size);

#endif
