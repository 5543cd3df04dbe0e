/* SPDX-License-Identifier: MIT */
/*
 * The layout of the state file: one per guarded process, mapped, written in place by shim/ and read by
 * report/, by nobody else. It is the report; nothing is formatted or saved at exit.
 *
 *     header (STATE_HEADER_BYTES)  block  block  block ...   up to header.file_bytes
 *
 * Each block starts with a struct state_block that names the kind and size of its records. Blocks are
 * only ever added, and file_bytes is raised (release) after a block is whole. All numbers are in the
 * byte order of the writer, which header.byte_order tells.
 *
 * Torn records: a record's `seq` is odd while its cold part is being written; the counters after it
 * are single words and may be read at any time. A reader copies the record and skips it if seq was
 * odd or changed meanwhile.
 *
 * Whether the process lives is told by an OFD lock on the file, which its mapping keeps and the
 * kernel frees with the process, never by a pid.
 */
#ifndef QPG_STATE_H
#define QPG_STATE_H

#include <assert.h>
#include <stdatomic.h>
#include <stdint.h>

#include "../policy/policy.h"
#include "../policy/reason.h"

#define STATE_MAGIC		 "QPGSTATE"
#define STATE_VERSION		 1u
#define STATE_BYTE_ORDER	 0x01020304u
#define STATE_HEADER_BYTES	 8192u
#define STATE_BLOCK_HEADER_BYTES 64u
#define STATE_FILE_PREFIX	 "qpguard-"
#define STATE_FILE_SUFFIX	 ".state"
#define STATE_NONE		 UINT32_MAX /* "no such record", for every index and id below */

/* Kinds of record. Values are part of the layout. */
enum state_kind {
	KIND_QP = 1,
	KIND_CQ,
	KIND_SRQ,
	KIND_GROUP,
	KIND_FAILURE,
	KIND_DEVICE,
	KIND_MODULE,
	KIND_CALLER,
	KIND_EVENT,
	KIND_FRAME,
	KIND_WQ,
	KINDS
};

/* Most records of each kind that is bounded; what comes after goes into the last one, "other". */
#define STATE_MAX_GROUPS     1024u
#define STATE_MAX_FAILURES   256u
#define STATE_MAX_DEVICES    64u
#define STATE_MAX_MODULES    256u
#define STATE_MAX_CALLERS    2048u
#define STATE_MAX_EVENTS     128u
#define STATE_MAX_FRAMES     4096u

#define STATE_STACK_FRAMES   24u /* of a call stack; the outer ones are left out */
#define STATE_BUILD_ID_BYTES 20u

struct state_block {
	uint32_t kind;	       /* enum state_kind */
	uint32_t record_bytes; /* of one record: a multiple of 64 */
	uint32_t records;      /* room for so many; unused ones are all zero */
	uint32_t bytes;	       /* of the block, this header included: a multiple of 4096 */
	uint32_t first;	       /* index of its first record among those of its kind */
	uint32_t zero[11];
};
static_assert(sizeof(struct state_block) == STATE_BLOCK_HEADER_BYTES, "block header");

/* How a process ended, in header.ending. */
enum state_ending { ENDING_NONE = 0, ENDING_EXIT = 1 };

/* How an object came to be: index of header.entry_points[]. */
enum entry_point {
	ENTRY_CREATE_QP,
	ENTRY_CREATE_QP_EX,
	ENTRY_CREATE_CQ,
	ENTRY_CREATE_CQ_EX,
	ENTRY_CREATE_SRQ,
	ENTRY_CREATE_SRQ_EX,
	ENTRY_REG_MR,
	ENTRY_REG_MR_IOVA,
	ENTRY_REG_MR_IOVA2,
	ENTRY_REG_MR_EX,
	ENTRY_REG_DMABUF_MR,
	ENTRY_REG_DM_MR,
	ENTRY_ALLOC_NULL_MR,
	ENTRY_IMPORT_MR,
	ENTRY_ALLOC_DM,
	ENTRY_CREATE_WQ,
	ENTRY_CREATE_RWQ_IND_TABLE,
	ENTRY_OPEN_QP,
	ENTRY_MLX5DV_CREATE_QP,
	ENTRY_MLX5DV_CREATE_CQ,
	ENTRY_MLX5DV_CREATE_WQ,
	ENTRY_MLX4DV_CREATE_QP,
	ENTRY_EFADV_CREATE_DRIVER_QP,
	ENTRY_EFADV_CREATE_QP_EX,
	ENTRY_EFADV_CREATE_CQ,
	ENTRY_HNSDV_CREATE_QP,
	ENTRY_IMPORT_DEVICE,
	ENTRY_IMPORT_PD,
	ENTRY_DEVX_OBJ_CREATE,
	ENTRY_DEVX_UMEM_REG,
	ENTRY_DEVX_UMEM_REG_EX,
	ENTRY_DEVX_ALLOC_UAR,
	ENTRY_RDMA_CREATE_QP,
	ENTRY_RDMA_CREATE_QP_EX,
	ENTRY_RDMA_CREATE_SRQ,
	ENTRY_RDMA_CREATE_SRQ_EX,
	ENTRY_RDMA_CREATE_EP,
	ENTRY_RDMA_GET_REQUEST, /* of an endpoint that listens */
	ENTRY_POINTS = 64	/* room */
};

/* Counts of the process. All words are atomic and may be read at any time. */
struct state_totals {
	_Atomic uint64_t live_qps, live_cqs, live_srqs;
	_Atomic uint64_t peak_qps;
	_Atomic uint64_t bytes, peak_bytes;
	_Atomic uint64_t created_qps, destroyed_qps;
	_Atomic uint64_t created_cqs, destroyed_cqs;
	_Atomic uint64_t created_srqs, destroyed_srqs;
	_Atomic uint64_t create_failures;
	_Atomic uint64_t
		budget_refusals; /* refused; what observe let pass is in budget[].refusals */
	_Atomic uint64_t clamped;
	_Atomic uint64_t unrecorded; /* objects that live without a record: no room in the file */
};

/* One limit of [budget], in the order of enum policy_key. */
struct state_budget {
	_Atomic uint64_t limit; /* as an unconditional subject sees it; UINT64_MAX: none */
	_Atomic uint64_t used, peak;
	_Atomic uint64_t refusals; /* would-be refusals under observe included */
	_Atomic uint32_t action;   /* enum budget_action */
	uint32_t conditional;	   /* 1: sections with conditions limit it, too */
};

/* MRs by size: class n counts those of 2^(n-1) bytes up to 2^n - 1, class 0 those of no bytes, the last
 * one all that are larger. */
#define STATE_MR_CLASSES 64

/* Memory regions: sums alone, no record each. A null MR has no bytes. */
struct state_mrs {
	_Atomic uint64_t live, peak;
	_Atomic uint64_t bytes, peak_bytes;
	_Atomic uint64_t registered; /* ever */
	/* of those above, what a library registered for itself */
	_Atomic uint64_t library_live, library_bytes;
	/* device memory (ibv_alloc_dm), which is none of the process's */
	_Atomic uint64_t dms, peak_dms, dm_bytes, peak_dm_bytes;
	_Atomic uint64_t sizes[STATE_MR_CLASSES]; /* registered, by size */
};

/* What a child may do with its parent's objects: index of header.inherited_uses[]. */
enum inherited_use {
	INHERITED_POSTS,       /* calls that post: whole batches of ibv_wr_* */
	INHERITED_COMPLETIONS, /* taken from the parent's CQs */
	INHERITED_MODIFIED,    /* QPs: calls of ibv_modify_qp that succeeded */
	INHERITED_DESTROYED,   /* QPs: they are the parent's no more either */
	INHERITED_USES = 8     /* room */
};

/* Objects of DEVX. What is posted to them is not seen. Values are part of the layout. */
enum devx_kind {
	DEVX_OTHER,
	DEVX_QP, /* DC targets too */
	DEVX_CQ,
	DEVX_SRQ, /* of every sort */
	DEVX_RQ,
	DEVX_SQ,
	DEVX_RMP,
	DEVX_RQT,
	DEVX_TIR,
	DEVX_TIS,
	DEVX_MKEY,
	DEVX_EQ,
	DEVX_OBJECTS, /* those above are made by mlx5dv_devx_obj_create */
	DEVX_UMEM = DEVX_OBJECTS,
	DEVX_UAR,
	DEVX_KINDS = 16 /* room */
};
struct state_devx {
	_Atomic uint64_t live[DEVX_KINDS], peak[DEVX_KINDS], created[DEVX_KINDS];
	_Atomic uint64_t umem_bytes, peak_umem_bytes;
};

/* Events of the connection manager, by enum rdma_cm_event_type; the last is any that is new. */
#define STATE_CM_EVENTS 17
struct state_cm_event {
	_Atomic uint64_t count;
	_Atomic uint64_t with_status; /* those whose status was not 0 */
	_Atomic int64_t last_status;
};

struct state_wqs {
	_Atomic uint64_t live, peak, created, destroyed;
};

struct state_header {
	char magic[8];
	uint32_t version;
	uint32_t byte_order;
	uint32_t header_bytes;
	uint32_t block_header_bytes;
	uint32_t record_bytes[16]; /* by enum state_kind; 0: kind unknown to the writer */
	_Atomic uint64_t file_bytes;

	/* Who. Written before file_bytes is first raised above header_bytes - that is, before the
	 * file counts as begun - except ended_at and ending. */
	uint32_t pid; /* as the process sees itself */
	uint32_t uid;
	uint64_t pid_namespace; /* inode of /proc/self/ns/pid */
	uint64_t start_ticks;	/* field 22 of /proc/self/stat */
	uint64_t started_at;	/* of the first verbs call; ns since 1970 */
	_Atomic uint64_t ended_at;
	_Atomic uint32_t ending;     /* enum state_ending */
	uint32_t parent_pid;	     /* != 0: made by fork of a guarded process */
	uint64_t memlock_bytes;	     /* RLIMIT_MEMLOCK, soft; UINT64_MAX: unlimited */
	uint64_t cgroup_memory_max;  /* UINT64_MAX: none or not readable */
	uint64_t boot_ns_offset;     /* CLOCK_REALTIME - CLOCK_BOOTTIME at start */
	uint32_t args_recorded;	     /* [report] args = yes: argv holds all of it */
	_Atomic uint32_t incomplete; /* the file stopped growing: later objects are not in it */
	_Atomic uint32_t policy_complaints;
	uint32_t injects;	    /* [inject] makes calls fail on purpose */
	_Atomic uint32_t looked_up; /* lookups by a handle that got a function of the guard's */
	uint32_t zero0;

	struct state_totals totals;
	_Atomic uint64_t entry_points[ENTRY_POINTS];
	struct state_budget budget[16]; /* BUDGET_LIMITS of them */
	_Atomic uint32_t used[16];	/* by kind: records ever begun; the rest is zero */

	char guard_version[32];
	char comm[16];
	char host[72];
	char exe[1024];	   /* NUL-terminated, cut if longer, as are the following */
	char argv0[512];   /* "/a/b\0" or, with args_recorded, all arguments separated by NUL */
	char labels[1024]; /* "job=train7,rank=3" */
	char policy_file[512];

	struct state_mrs mrs;

	/* Of a forked child: what its parent had when it forked, and what the child did with that.
	 * Objects that were made in the child are in records like all others. */
	uint32_t inherited_qps, inherited_cqs, inherited_srqs;
	uint32_t zero1;
	_Atomic uint64_t inherited_uses[INHERITED_USES];
	struct state_wqs wqs;
	struct state_devx devx;
	struct state_cm_event cm_events[STATE_CM_EVENTS];
};
static_assert(sizeof(struct state_header) <= STATE_HEADER_BYTES, "header");

enum record_state { RECORD_FREE = 0, RECORD_LIVE = 1, RECORD_ENDED = 2 };

/* Why posts were refused: index of refusal counts (interface: rejected{}). */
enum refusal {
	REFUSED_QUEUE_FULL,
	REFUSED_QUEUE_FULL_EARLY,
	REFUSED_TOO_MANY_SGE,
	REFUSED_INLINE_TOO_BIG,
	REFUSED_BAD_STATE,
	REFUSED_OTHER,
	REFUSED_INJECTED,
	REFUSALS
};

/* Flags of a QP record. */
enum {
	QP_HAS_SRQ = 1,
	QP_SIG_ALL = 2,	     /* every send request makes a completion */
	QP_SENDS_HIDDEN = 4, /* posted or completed by a way that is not seen: send{} is null */
	QP_RECVS_HIDDEN = 8,
};

/* Flag of a record of any kind: a library of rdma-core made the object for itself. */
enum { LIBRARY_OWNED = 16 };

/* Refused calls of one side by reason, and all requests of those calls that were not accepted. */
struct refusal_counts {
	_Atomic uint64_t queue_full;
	_Atomic uint64_t not_posted;
	_Atomic uint32_t queue_full_early, too_many_sge, inline_too_big, bad_state, other, injected;
};

/*
 * One QP. Its counters lie in lines by who writes them, so that threads do not share lines:
 *
 *   post_*   the first thread that ever posted on that side (plain stores)
 *   poll_*   the first thread that ever polled the CQ of that side (plain stores)
 *   other_*  every other thread, and control verbs (atomic adds)
 *
 * With "retired" for all requests that are outstanding no more, discarded ones included:
 *   posted      = post_*_posted + other_*_posted
 *   receive:      retired = poll_recv_retired + other_recv_retired
 *   send, !mixed: retired = poll_send_completions + other_send_completions
 *   send, mixed (unsignaled requests were seen; a completion retires all before it):
 *                 retired = max(poll_send_retired, other_send_retired)
 *   outstanding = max(posted - retired, 0)
 *   and if mixed and every signaled request has completed, that is
 *       posted - post_unsignaled - other_unsignaled == send completions   (mod 2^32),
 *   outstanding = min(that, trailing), trailing being what was posted after the last signaled one:
 *       (post_send_posted  - later of post_last_signaled,  other_seen_post) +
 *       (other_send_posted - later of other_last_signaled, post_seen_other)  (mod 2^32, at least 0)
 *   completed   = posted - outstanding - discarded
 * counts.h holds these formulas.
 */
struct qp_record {
	/* lines 0 to 2: cold */
	_Atomic uint32_t seq;
	_Atomic uint8_t state;	  /* enum record_state */
	uint8_t type;		  /* enum qp_type, as far as it fits */
	_Atomic uint8_t qp_state; /* enum ibv_qp_state, as far as seen; 0xff unknown */
	uint8_t flags;
	uint32_t id; /* unique among the QPs of the process, from 1; never used again */
	uint32_t qp_num;
	uint16_t device; /* index among the records of KIND_DEVICE; as are group, caller */
	uint16_t group;
	uint16_t caller;
	uint8_t entry; /* enum entry_point */
	uint8_t basis; /* enum bytes_basis */
	uint32_t send_cq, recv_cq,
		srq; /* ids, or STATE_NONE when there is none or it was not seen */
	struct qp_caps requested, submitted, effective;
	_Atomic uint8_t mixed;
	uint8_t clamped;
	_Atomic uint16_t other_send_peak_sge, other_send_peak_inline, other_recv_peak_sge;
	uint64_t created_at; /* ns since 1970 */
	_Atomic uint64_t ended_at;
	uint32_t sq_bytes, rq_bytes, bookkeeping_bytes; /* UINT32_MAX: that or more */
	_Atomic uint32_t other_send_peak, other_recv_peak;
	_Atomic uint32_t
		flushed_unattributed; /* error completions of either side, not told apart */
	struct refusal_counts send_refused;
	_Atomic uint32_t other_seen_post;
	uint32_t zero0;
	/* line 3: the thread that owns posting */
	_Alignas(64) _Atomic uint64_t post_send_posted;
	_Atomic uint64_t post_recv_posted;
	_Atomic uint32_t post_send_peak, post_recv_peak; /* outstanding, at most */
	_Atomic uint16_t post_send_peak_sge, post_send_peak_inline, post_recv_peak_sge;
	uint16_t zero1;
	_Atomic uint32_t post_unsignaled, post_last_signaled, post_seen_other;
	uint32_t zero2[5];
	/* line 4: the thread that owns polling */
	_Alignas(64) _Atomic uint64_t poll_send_completions;
	_Atomic uint64_t poll_send_retired; /* mixed alone */
	_Atomic uint64_t poll_recv_retired;
	struct refusal_counts recv_refused;
	/* line 5: all others */
	_Alignas(64) _Atomic uint64_t other_send_posted;
	_Atomic uint64_t other_recv_posted;
	_Atomic uint64_t other_send_completions;
	_Atomic uint64_t other_send_retired;
	_Atomic uint64_t other_recv_retired;
	_Atomic uint64_t send_discarded, recv_discarded;
	_Atomic uint32_t other_unsignaled, other_last_signaled;
};
static_assert(sizeof(struct qp_record) == 384, "QP record");

struct cq_record {
	_Atomic uint32_t seq;
	_Atomic uint8_t state;
	uint8_t entry;
	uint8_t basis;
	uint8_t flags; /* CQ_POLLS_HIDDEN */
	uint32_t id;
	uint16_t device, group, caller;
	uint16_t zero0;
	uint32_t requested_cqe, submitted_cqe;
	_Atomic uint32_t effective_cqe;
	_Atomic uint64_t ended_at;
	uint64_t created_at;
	_Atomic uint64_t ring_bytes, bookkeeping_bytes;
	/* effective depths of the QPs bound now, and at most */
	_Atomic uint64_t bound_send_wrs, bound_recv_wrs;
	_Atomic uint64_t peak_bound_wrs;		/* send and receive together */
	_Alignas(64) _Atomic uint64_t poll_completions; /* by the first thread that polled */
	_Atomic uint64_t other_completions;		/* by all others */
	_Atomic uint64_t flushed_unattributed;
	_Atomic uint32_t peak_backlog, other_peak_backlog;
	/* what the QPs bound now asked for, of both sides, an SRQ once: what the CQ may have to hold */
	_Atomic uint64_t asked_wrs;
	uint64_t zero1[3];
};
static_assert(sizeof(struct cq_record) == 192, "CQ record");
enum { CQ_POLLS_HIDDEN = 1 }; /* and LIBRARY_OWNED */

/* One SRQ: the receive side of a QP, with the same rules. */
struct srq_record {
	_Atomic uint32_t seq;
	_Atomic uint8_t state;
	uint8_t entry;
	uint8_t basis;
	uint8_t flags; /* SRQ_HIDDEN */
	uint32_t id;
	uint16_t device, group, caller;
	uint16_t zero0;
	uint32_t requested_wr, requested_sge, submitted_wr, submitted_sge;
	_Atomic uint32_t effective_wr;
	uint32_t effective_sge;
	_Atomic uint64_t ended_at;
	uint64_t created_at;
	_Atomic uint64_t ring_bytes, bookkeeping_bytes;
	_Atomic uint32_t other_peak, other_peak_sge;
	_Alignas(64) _Atomic uint64_t post_posted;
	_Atomic uint32_t post_peak, post_peak_sge;
	_Atomic uint64_t other_posted;
	_Atomic uint64_t poll_retired; /* by the owner of the first CQ that got completions */
	_Atomic uint64_t retired;      /* by all others */
	_Atomic uint64_t discarded;
	uint64_t zero1[2];
	_Alignas(64) struct refusal_counts refused;
	uint64_t zero2[3];
};
static_assert(sizeof(struct srq_record) == 256, "SRQ record");
enum { SRQ_HIDDEN = 1 }; /* completions do not tell of it: XRC, tag matching; and LIBRARY_OWNED */

/* One WQ. What is outstanding is not known, since no completion tells which WQ it is of. */
struct wq_record {
	_Atomic uint32_t seq;
	_Atomic uint8_t state;
	uint8_t entry;
	uint8_t basis;
	uint8_t flags; /* WQ_HIDDEN, LIBRARY_OWNED */
	uint32_t id;
	uint32_t wq_num;
	uint16_t device, group, caller;
	_Atomic uint8_t wq_state; /* enum ibv_wq_state, as far as seen */
	uint8_t zero0;
	uint32_t cq; /* id, or STATE_NONE when it was not seen */
	uint32_t requested_wr, requested_sge, submitted_wr, submitted_sge;
	uint32_t effective_wr, effective_sge;
	uint64_t created_at;
	_Atomic uint64_t ended_at;
	uint64_t ring_bytes, bookkeeping_bytes;
	uint64_t zero1[3];
	_Alignas(64) _Atomic uint64_t posted;
	_Atomic uint32_t peak_sge;
	uint32_t zero2;
	struct refusal_counts refused;
};
static_assert(sizeof(struct wq_record) == 192, "WQ record");
enum { WQ_HIDDEN = 1 };

/* Sums over the destroyed members of a group, one side. */
struct side_sums {
	uint64_t posted, completed, discarded, not_posted;
	uint64_t refused[REFUSALS];
	uint32_t peak_outstanding, peak_sge, peak_inline;
	uint32_t zero;
};

struct group_sums {
	uint64_t destroyed;
	uint64_t completions;	       /* CQ */
	uint64_t flushed_unattributed; /* CQ */
	uint64_t peak_bound_wrs;       /* CQ: most of one member */
	uint32_t peak_backlog;	       /* CQ: most of one member */
	uint32_t hidden;	       /* members whose counts could not be seen */
	struct side_sums send, recv;
	uint64_t zero[1];
};

/*
 * Like objects: same kind, caller, type, device, requested and effective caps. Living members have
 * records of their own; a destroyed one is added to sums[]. That is done to the copy that `folded`
 * does not select, then folded = id << 1 | selector in one store. So a process killed at any
 * instruction leaves a whole copy, and a live record whose id is folded >> 1 is in the sums already.
 * The last group is "other": flags GROUP_OTHER, for what found no room.
 */
struct group_record {
	_Atomic uint32_t seq;
	_Atomic uint8_t state; /* RECORD_LIVE once in use */
	uint8_t kind;	       /* KIND_QP, KIND_CQ, KIND_SRQ or KIND_WQ */
	uint8_t type;	       /* of QPs */
	uint8_t flags;	       /* GROUP_OTHER */
	uint16_t device, caller;
	struct qp_caps requested, effective; /* QP; CQ: max_send_wr is cqe; SRQ, WQ: max_recv_* */
	_Atomic uint64_t created;
	_Atomic uint64_t live, peak_live;
	_Atomic uint64_t bytes, peak_bytes;
	_Atomic uint64_t folded;
	uint8_t qp_flags; /* QP_HAS_SRQ, QP_SIG_ALL; of any kind LIBRARY_OWNED */
	uint8_t basis;
	uint8_t zero0[6];
	uint64_t zero1[10];
	struct group_sums sums[2];
};
static_assert(sizeof(struct group_record) % 64 == 0, "group record");
enum { GROUP_OTHER = 1 };

/* Failures of one kind, counted. The last of them is "other" (reason 0). */
struct failure_record {
	_Atomic uint32_t seq;
	_Atomic uint8_t state;
	uint8_t qp_type; /* create_qp */
	uint8_t told;	 /* its line is out */
	uint8_t zero0;
	struct failure_reason reason;
	uint16_t device, caller; /* 0xffff: not known */
	/* create_qp; CQ: max_send_wr is cqe; SRQ: max_recv_*; MR: max_send_wr << 32 | max_recv_wr bytes */
	struct qp_caps requested;
	_Atomic uint64_t count, first_at, last_at;
	uint64_t zero1;
};
static_assert(sizeof(struct failure_record) == 128, "failure record");

struct device_record {
	_Atomic uint32_t seq;
	_Atomic uint8_t state;
	uint8_t zero0[3];
	struct device_limits limits; /* all 0 until the device was asked */
	_Atomic uint32_t contexts;   /* open now */
	_Atomic uint32_t known;	     /* limits and firmware are filled */
	_Atomic uint64_t bytes, peak_bytes;
	char name[64];
	char driver[64];
	char firmware[64];
};
static_assert(sizeof(struct device_record) == 256, "device record");

/* A loaded object that frames lie in. */
struct module_record {
	_Atomic uint32_t seq;
	_Atomic uint8_t state;
	uint8_t build_id_bytes; /* 0: it has none, or it could not be read */
	uint8_t zero[2];
	uint64_t base;				/* load address */
	uint8_t build_id[STATE_BUILD_ID_BYTES]; /* a longer one is cut */
	char path[220];
};
static_assert(sizeof(struct module_record) == 256, "module record");

/* A return address that is part of a call stack. */
struct frame_record {
	_Atomic uint32_t seq;
	_Atomic uint8_t state;
	uint8_t flags;	 /* FRAME_OTHER */
	uint16_t module; /* index among the records of KIND_MODULE, or UINT16_MAX */
	uint64_t address;
	uint64_t offset; /* address - module.base */
	uint64_t zero[5];
};
static_assert(sizeof(struct frame_record) == 64, "frame record");
enum { FRAME_OTHER = 1 }; /* for what found no room */

/*
 * Who made objects: one distinct call stack, the innermost frame first, which is the one that called
 * verbs. One frame where stacks cannot be had. The last one is "other": flags CALLER_OTHER, no frame.
 */
struct caller_record {
	_Atomic uint32_t seq;
	_Atomic uint8_t state;
	uint8_t flags;	/* CALLER_OTHER, CALLER_CUT */
	uint8_t frames; /* so many of them */
	uint8_t zero0;
	uint16_t frame[STATE_STACK_FRAMES]; /* indices among the records of KIND_FRAME */
	uint64_t zero1;
};
static_assert(sizeof(struct caller_record) == 64, "caller record");
enum { CALLER_OTHER = 1, CALLER_CUT = 2 }; /* cut: there were more frames */

/* A log line, kept whether or not it could be printed. The oldest is overwritten, a failure
 * first. */
struct event_record {
	_Atomic uint32_t seq;
	_Atomic uint8_t state;
	uint8_t level;	    /* enum log_level */
	uint8_t is_failure; /* stands among the failures too: the first to be overwritten */
	uint8_t zero[1];
	_Atomic uint64_t count; /* times it happened */
	_Atomic uint64_t first_at, last_at;
	char text[352];
};
static_assert(sizeof(struct event_record) == 384, "event record");

#endif
