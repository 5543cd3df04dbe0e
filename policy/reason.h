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
	CALL_POST_SEND, /* these three in a row */
	CALL_POST_RECV,
	CALL_POST_SRQ_RECV,
	CALL_CREATE_WQ,
	CALL_MODIFY_WQ,
	CALL_DESTROY_WQ,
	CALL_CREATE_RWQ_IND_TABLE,
	CALL_OPEN_QP,
	CALL_DEVX_OBJ_CREATE,
	CALL_DEVX_OBJ_DESTROY,
	CALL_DEVX_UMEM_REG,
	CALL_DEVX_UMEM_DEREG,
	CALL_DEVX_ALLOC_UAR,
	GUARDED_CALLS
};

/* Short codes; order is part of the state file's layout: add at the end. */
enum reason {
	REASON_UNKNOWN = 1, /* the provider's errno says all that is known */
	REASON_NO_ERRNO,    /* the provider left errno untouched */
	REASON_BUDGET,	    /* field: enum policy_key of the limit; asked, limit */
	/* field, asked, limit of the first field that is over; number[0 to 3]: asked << 32 | limit of
	 * further ones, whose fields are the bytes of number[OVER_FIELDS] */
	REASON_DEVICE_LIMIT,
	REASON_JOINT_LIMIT,   /* field: the depth; asked, limit: the deepest; number[JOINT_*] */
	REASON_UNINITIALIZED, /* field, asked, limit: a value that nobody meant */
	REASON_UNSUPPORTED,   /* asked: enum qp_type of a QP, else 0 */
	REASON_SRQ_AND_RECVS, /* asked: max_recv_wr of a QP with an SRQ */
	REASON_CQ_SIZE, /* asked: requests bound to the CQ with the QP; limit: its cqe; number[0]:
				 its id */
	REASON_MEMLOCK, /* asked, limit: bytes; number[MEMLOCK_*] */
	REASON_CGROUP_MEMORY, /* asked, limit: bytes; number[0]: in use */
	REASON_CGROUP_RDMA,   /* asked: in use, limit: of hca_object */
	REASON_COUNT,	      /* asked: QPs of the process on the device; limit: what it reports */
	REASON_BUSY,	  /* asked: QPs that still use the object; number[0]: the first's qp_num */
	REASON_EXHAUSTED, /* nothing that can be seen is; number[STATE_*] */
	REASON_INJECTED,  /* failed on purpose: [inject] */
	/* of posts */
	REASON_QUEUE_FULL, /* asked: outstanding; limit: depth; number[0]: unsignaled of those */
	REASON_QUEUE_FULL_EARLY, /* the same */
	REASON_TOO_MANY_SGE,	 /* asked, limit */
	REASON_INLINE_TOO_BIG,	 /* asked, limit */
	REASON_BAD_STATE,	 /* asked: enum ibv_qp_state */
	REASON_OTHER_POST,
	REASON_CLAMPED, /* as QUEUE_FULL; number[1]: the depth that the program asked for */
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

/* Indices of failure_reason.number. */
enum {
	OVER_FIELDS = 4,
	/* REASON_JOINT_LIMIT: SGEs and inline data asked; most SGEs at the depth asked, 0: none
	 * would do; bytes of the queue as asked and at the deepest, 0: not known */
	JOINT_SGE = 0,
	JOINT_INLINE,
	JOINT_WIDEST,
	JOINT_BYTES,
	JOINT_MOST_BYTES,
	/* REASON_MEMLOCK: pinned already; of a CQ the entries that would take half, and those bytes;
	 * the process has CAP_IPC_LOCK */
	MEMLOCK_PINNED = 0,
	MEMLOCK_HALF_CQE,
	MEMLOCK_HALF_BYTES,
	MEMLOCK_CAPABLE,
	/* REASON_EXHAUSTED: what the process has on the device, and max_qp of that */
	STATE_CONTEXTS = 0,
	STATE_QPS,
	STATE_QUEUE_BYTES,
	STATE_MAX_QP,
	REASON_NUMBERS = 5
};

/* One failure reduced to numbers. */
struct failure_reason {
	uint8_t call;	/* enum guarded_call */
	uint8_t reason; /* enum reason */
	uint16_t field; /* see enum reason */
	int32_t error;	/* errno as the application saw it */
	uint64_t asked;
	uint64_t limit;
	uint64_t number[REASON_NUMBERS];
};

/* "ibv_create_qp", ...; "unknown call" for a value out of range. */
const char *guarded_call_name(unsigned int call);
/* "budget", "device_limit", "no_errno", "unknown" and so on; never NULL. */
const char *reason_code(unsigned int reason);
/* "max_send_wr", ... */
const char *reason_field_name(unsigned int field);
/* ENOMEM -> "ENOMEM"; one without a name as "errno N", in buf (at least 24 bytes). Async-safe. */
const char *errno_name(int error, char *buf, size_t size);

/* The number of "ENOMEM"; 0 when there is none by that name. */
int errno_of_name(const char *name, size_t len);

/*
 * The sentence, without a final newline, e.g. "ibv_create_qp on rxe0 refused by budget qps: would
 * be 4, limit 3 (ENOMEM)". Sizes are in KiB and MiB. Uses no locale and no allocation; like
 * snprintf.
 */
size_t reason_sentence(const struct failure_reason *f, const char *device, char *out, size_t size);

#endif
