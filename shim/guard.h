/* SPDX-License-Identifier: MIT */
/*
 * The guard inside one process: what the files of shim/ share. Read the types first.
 *
 *   struct guard         everything this process holds: policy, tables, state file. It lies in memory
 *                        that a forked child finds zeroed (MADV_WIPEONFORK), so that the child starts
 *                        afresh at its first verbs call, also after a raw clone.
 *   struct context_hooks one opened device and the provider's own functions behind the ones we put into
 *                        its ops. Ordinary memory: a child still needs them to pass calls on.
 *   struct hot_qp, hot_cq, hot_srq
 *                        what the data path needs of an object, one or two cache lines each, found in
 *                        one step (lookup.h). Wiped in a child, whose posts then miss and pass through.
 *   struct qp_record ... the same objects as the report sees them (state.h), in the mapped file.
 *
 * Locks: guard->lock is held while tables and records change, never across a call into libibverbs or
 * a provider. The data path takes no lock.
 */
#ifndef QPG_GUARD_H
#define QPG_GUARD_H

#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../policy/policy.h"
#include "../policy/reason.h"
#include "lookup.h"
#include "memory.h"
#include "modules.h"
#include "stack.h"
#include "state.h"

#define INTERPOSED __attribute__((visibility("default")))
/* A frame of its own: what it needs of the stack is free again when it returns. */
#define APART	    __attribute__((noinline))
#define likely(x)   __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
/* The code that called the wrapper: a program's or a library's return address. */
#define CALLER() __builtin_return_address(0)

struct state_file; /* file.h */

/* A device name's place in the state file, and what the guard knows of the device. */
struct device {
	struct device_record *record;
	uint16_t index;
	const struct geometry *geometry;
	struct device_facts facts; /* what its geometry depends on */
	bool difference_told;	   /* between model and provider */
	/* most inline data that a QP came back with, by type; of unknown types in [0] */
	uint32_t inline_promised[QP_TYPE_XRC_RECV + 1];
	uint64_t reserved_bytes; /* by creations under way */
};

/* What ended keeps its last values until an object needs it; the oldest goes first. */
struct ended {
	void **ring;
	uint32_t room, first, count;
};

/* What was granted last, of one kind. */
struct granted {
	struct qp_caps requested, effective;
	const void *thread;
	uint16_t device;
	bool searched; /* after attempts that failed and differ in inline data alone */
};

/* A failed creation of one kind whose line is held back, and the attempts before it: failures.c. */
enum { HELD_CALLS = 4, REFUSED_POSTS = 64 };
struct held {
	struct failure_record *record;
	struct failure_reason why;
	struct qp_caps first, last; /* requested */
	uint64_t since;		    /* ns */
	void *thread;
	uint32_t attempts; /* 0: nothing is held */
	uint16_t device;
	bool inline_alone; /* each asked for other inline data than was granted before, and for nothing else */
	bool searched; /* and so did one that was granted after some that failed */
	struct granted granted;
};

struct guard {
	_Atomic uint32_t ready;	      /* GUARD_*; 0 in fresh and in wiped memory */
	_Atomic uint32_t lock_wanted; /* threads that hold or wait for it */
	pthread_mutex_t lock;
	struct policy *policy;
	struct state_header *header;
	struct state_file *file;
	struct device devices[STATE_MAX_DEVICES];
	unsigned int device_count;
	/* of [budget], device_bytes unused: held by objects, and by creations under way */
	uint64_t used[BUDGET_LIMITS], reserved[BUDGET_LIMITS];
	uint32_t next_id[KINDS];
	uint64_t log_tick, log_held_back;
	uint32_t log_tokens;
	struct pool hot_objects; /* of 64 bytes */
	struct rings rings;
	struct ended ended_records[KINDS], ended_hot;
	uint32_t
		inherited_contexts; /* of a forked child: those up to this serial are its parent's */
	uint16_t group_slot[4096];  /* hash of group_key to index + 1 */
	uint16_t caller_slot[4096]; /* hash of stack to index + 1 */
	uint32_t caller_other;	    /* index + 1 of the caller "other" */
	struct modules modules;
	struct places places;
	struct held held[HELD_CALLS];
	/* records of refused posts, by a hash of their kind: refused.c */
	_Atomic(struct failure_record *) refused_posts[REFUSED_POSTS];
	uint64_t
		inject_calls[4]; /* of each kind that [inject] knows, as far as it concerned them */
	struct policy_values standard; /* the policy as an unconditional subject sees it */
};

enum { GUARD_READY = 1, GUARD_FAILED = 2 };

/* process.c; outside struct guard, since a child must be able to look before it has begun. */
#pragma GCC visibility push(hidden) /* so that they are reached without the GOT */
extern struct lookup qps_by_address, qps_by_number, cqs, srqs;
extern struct lookup regions; /* mr.c */
extern struct lookup wqs;     /* wq.c */
extern struct lookup devxs;   /* devx.c */
#pragma GCC visibility pop

/* The provider's functions of further slots of verbs_context; NULL: it has none. */
struct context_slots {
	struct ibv_mr *(*alloc_null_mr)(struct ibv_pd *);
	struct ibv_mr *(*reg_dm_mr)(struct ibv_pd *, struct ibv_dm *, uint64_t, size_t,
				    unsigned int);
	struct ibv_dm *(*alloc_dm)(struct ibv_context *, struct ibv_alloc_dm_attr *);
	int (*free_dm)(struct ibv_dm *);
	struct ibv_qp *(*open_qp)(struct ibv_context *, struct ibv_qp_open_attr *);
	struct ibv_wq *(*create_wq)(struct ibv_context *, struct ibv_wq_init_attr *);
	int (*modify_wq)(struct ibv_wq *, struct ibv_wq_attr *);
	int (*destroy_wq)(struct ibv_wq *);
	struct ibv_rwq_ind_table *(*create_rwq_ind_table)(struct ibv_context *,
							  struct ibv_rwq_ind_table_init_attr *);
	/* no slot, but the pointer in each WQ */
	int (*post_wq_recv)(struct ibv_wq *, struct ibv_recv_wr *, struct ibv_recv_wr **);
};

/* One opened context. Entries are never freed, so that a late call always finds its way on. */
struct context_hooks {
	_Atomic(struct ibv_context *) context; /* NULL: free for use */
	_Atomic uint32_t serial;	       /* tells contexts at one address apart */
	struct ibv_context_ops real;	       /* as the provider set them */
	struct ibv_qp *(*create_qp_ex)(struct ibv_context *, struct ibv_qp_init_attr_ex *);
	struct ibv_cq_ex *(*create_cq_ex)(struct ibv_context *, struct ibv_cq_init_attr_ex *);
	struct ibv_srq *(*create_srq_ex)(struct ibv_context *, struct ibv_srq_init_attr_ex *);
	struct context_slots slots;
	char driver[32];
};

struct hot_srq {
	const struct ibv_srq *srq; /* key */
	struct srq_record *record;
	const struct context_hooks *hooks;
	_Atomic(void *) post_owner;
	_Atomic(void *)
		poll_cq; /* the first CQ that got its completions: whose owner counts plainly */
	uint32_t max_wr, max_sge;
	struct srq_binding *bindings;
	uint64_t zero[1];
};

/* Bits that are neither IBV_SEND_SIGNALED nor IBV_SEND_INLINE, but for the one that means "as if it were". */
enum { MODE_SIG_ALL = IBV_SEND_SIGNALED, MODE_SHARED = 0x40, MODE_MIXED = 0x80 };

/*
 * hot_qp.mixed: unsignaled requests were seen, so that the ring tells what a completion retires; the two sides'
 * "retired" may be far apart; threads that do not own it have posted or polled. With the first alone
 * the short paths hold.
 */
enum { QUEUE_MIXED = 1, QUEUE_APART = 2, QUEUE_SHARED = 4 };

struct hot_qp {
	const struct ibv_qp *qp; /* key of qps_by_address */
	uint64_t number;	 /* key of qps_by_number: qp_number_key() */
	struct qp_record *record;
	const struct context_hooks *hooks;
	_Atomic(void *) send_owner; /* thread_pointer() of the first that posted */
	union {
		_Atomic(void *) recv_owner;
		struct hot_srq *srq; /* QP_HAS_SRQ */
	};
	uint16_t *ring;	       /* position after each signaled request, mod 2^16 (wide: 2^32);
			       NULL: QP_SIG_ALL */
	uint32_t ring_mask;    /* slots - 1 */
	_Atomic uint8_t mixed; /* QUEUE_* */
	uint8_t flags;	       /* those of the record */
	uint8_t order;	       /* of the ring, see memory.h */
	_Atomic uint8_t mode;  /* MODE_*, or-ed to send_flags to choose a path */
};
static_assert(sizeof(struct hot_qp) == 64, "one cache line");

struct hot_cq {
	const struct ibv_cq *cq;			    /* key */
	int (*poll)(struct ibv_cq *, int, struct ibv_wc *); /* the provider's */
	_Atomic uint32_t polls; /* since one got all that it asked for, mod 2^32 */
	uint32_t zero0;
	/* poll_completions above which peak_backlog rises, as long as no poll comes back short */
	_Atomic uint64_t rise_at;
	uint64_t number_key; /* qp_number_key() of this context with QP number 0 */
	_Atomic(void *) poll_owner;
	struct cq_record *record;
	const struct context_hooks *hooks;
};
static_assert(sizeof(struct hot_cq) == 64, "one cache line");

/* QP numbers repeat between contexts: the key of a completion is the CQ's context and wc.qp_num. */
static inline uint64_t qp_number_key(const struct context_hooks *h, uint32_t qp_num)
{
	return (uint64_t)h->serial << 32 | qp_num;
}

/*
 * process.c. guard_enter: the guard of this process, made at its first verbs call; NULL when
 * QPGUARD=off or when there is no memory for it: the caller then passes straight on. Any thread,
 * also in a forked child; leaves errno alone.
 */
struct guard *guard_enter(void);
void guard_lock(struct guard *g);
void guard_unlock(struct guard *g);
/* Never waits for anybody, also in a signal handler that interrupted a holder; false: not locked. */
bool guard_trylock(struct guard *g);
/* True with QPGUARD=off. Any thread, before a guard has begun too. */
bool guard_bypassed(void);
/* Brings header.looked_up up to date, if there is a header. Any thread; makes nothing. */
void guard_tell_lookups(void);
/* True while this thread is inside a guarded creation: calls that the provider makes meanwhile are its own. */
bool guard_nested(void);
void guard_nest(int step); /* +1 before, -1 after the real call */
uint64_t now_ns(void);	   /* CLOCK_REALTIME, ns since 1970 */
/*
 * An object that is in no table was used, which in a forked child is its parent's if the context is (or was
 * made there out of our sight): counts it, n times, in the child's own header. Begins the child's guard. Not for the
 * short paths; any thread, no lock held; `hooks` may be NULL; errno is kept.
 */
void inherited_used(const struct context_hooks *hooks, enum inherited_use use, uint64_t n);

/* device.c */
const struct context_hooks *
hooks_of(const struct ibv_context *context); /* never allocates; or NULL */
uint32_t last_serial(void);		     /* of a context opened so far */
/* Whether the context has our functions. One that was opened in a way that we do not see (a lookup by handle,
 * ibv_import_device) gets them now, at the first creation that we do see. Takes the lock. */
bool context_known(struct guard *g, struct ibv_context *context);
struct device *device_of(struct guard *g, struct ibv_context *context); /* under lock; or NULL */
void device_learn(struct guard *g,
		  struct ibv_context *context); /* asks once for limits; not under lock */
const struct device_limits *limits_of(const struct device *d); /* zeroes for NULL */
const struct device_facts *facts_of(const struct device *d);   /* NULL for NULL */
const struct geometry *geometry_for(const struct device *d);   /* the estimate for NULL */

/* by_handle.c: how many lookups by a handle got a function of ours. */
uint32_t lookups_handed_out(void);

/*
 * callers.c: who made an object, as an index among the records of KIND_CALLER, made when new: the call stack
 * from the return address `address` outwards. Under lock, by the thread that was called from
 * there. UINT16_MAX: no room at all. caller_module: path of the object that `address` lies in, or "".
 */
uint16_t caller_index(struct guard *g, const void *address);
const char *caller_module(struct guard *g, uint16_t caller);

/*
 * records.c: records of QPs, CQs and SRQs in the state file. Under lock. record_begin: one to fill, all
 * zero but seq, which is odd until record_ready; NULL without memory. record_end: the object is gone;
 * the record keeps its values until another object needs it.
 */
void *record_begin(struct guard *g, enum state_kind kind);
void record_ready(void *record);
void record_end(struct guard *g, enum state_kind kind, void *record);
/*
 * Hot records, 64 bytes, zeroed; given back only after they left their tables, with the number
 * of their keys, which come first. All else in them stays in place for long: a thread that
 * polls may have found the record of a QP just before another thread destroyed it.
 */
void *hot_take(struct guard *g);
void hot_give(struct guard *g, void *hot, unsigned int keys);

/* owner.c: whether the caller is a library of rdma-core, which makes objects for itself. Under lock. */
bool made_by_library(struct guard *g, uint16_t caller);

/* rdmacm.c: where librdmacm makes an object because the application asked it to, the application's call and
 * what it was. */
void asked_by_librdmacm(void **address, uint8_t *entry);

/* account.c: budgets. All under lock. */
void subject_of(struct guard *g, const struct device *d, unsigned int qp_type, uint16_t caller,
		struct policy_subject *out);
void usage_of(struct guard *g, const struct device *d, struct policy_usage *out);
/* Room held while a creation is under way; and what objects hold. Negative amounts give back. */
void reserve(struct guard *g, enum policy_key limit, int64_t amount);
void reserve_bytes(struct guard *g, struct device *d, int64_t bytes);
void charge(struct guard *g, enum policy_key limit, int64_t amount);
void charge_bytes(struct guard *g, struct device *d, int64_t bytes); /* process and device */
/* Raises a peak. */
void raise_to(_Atomic uint64_t *peak, uint64_t value);
/* One object more or less in the totals. */
void count_created(_Atomic uint64_t *created, _Atomic uint64_t *live);
void count_destroyed(_Atomic uint64_t *destroyed, _Atomic uint64_t *live);
/* Counts what a verdict says, and logs a refusal or a clamp. `d` may be NULL. */
void note_verdict(struct guard *g, const struct device *d, enum guarded_call call, uint16_t caller,
		  unsigned int qp_type, const struct qp_caps *requested,
		  const struct policy_verdict *v);

/* The same for what [clamp] to_device made of a request, once the provider took it. */
void note_fitted(struct guard *g, const struct device *d, enum guarded_call call,
		 const struct policy_verdict *submitted);

/* groups.c: under lock. */
struct group_key {
	uint8_t kind, type, qp_flags, basis;
	uint16_t device, caller;
	struct qp_caps requested, effective;
};
uint16_t group_join(struct guard *g, const struct group_key *key, uint64_t bytes);
void group_resize(struct guard *g, uint16_t group, int64_t bytes);
void group_leave_qp(struct guard *g, const struct qp_record *r);
void group_leave_cq(struct guard *g, const struct cq_record *r);
void group_leave_srq(struct guard *g, const struct srq_record *r);
void group_leave_wq(struct guard *g, const struct wq_record *r);

/* failures.c: counts a failure and logs its sentence, at once or when it is clear that it was no probe.
 * Under lock. `d`, `requested` may be NULL. */
void note_failure(struct guard *g, const struct device *d, const struct failure_reason *reason,
		  uint16_t caller, unsigned int qp_type, const struct qp_caps *requested);
/* A call on an object that failed with `error`, positive or negative. Takes the lock; errno is kept. */
void note_call_failure(struct guard *g, struct ibv_context *context, enum guarded_call call,
		       void *address, int error);
/* The same of one that wanted to pin `bytes`, or that was to destroy the CQ or SRQ `id` (else STATE_NONE). */
void note_failure_of(struct guard *g, struct ibv_context *context, enum guarded_call call,
		     void *address, uint64_t bytes, uint32_t id, int error);
/* A creation that failed, as explain_creation() needs it. */
struct failed_creation {
	enum guarded_call call;
	const struct qp_request *req;	 /* of a CQ its entries are in max_send_wr */
	const struct queue_bytes *bytes; /* as foretold */
	const struct ibv_cq *send_cq, *recv_cq;
	int error; /* 0: errno was left as it was */
};
/* Why it failed, as far as can be said. Under lock. */
void explain_creation(struct guard *g, const struct device *d, const struct failed_creation *f,
		      struct failure_reason *out);
/* Something of the kind was made: what failed before on this thread, and asked for as much at least, was a
 * probe. Under lock. */
void failures_settle(struct guard *g, enum guarded_call call, const struct device *d,
		     const struct qp_caps *requested, const struct qp_caps *effective);
/* Tells what has been held back for a second; under lock. And what is left at the end; takes the lock. */
void failures_overdue(struct guard *g);
void failures_end(struct guard *g);
/* Whether it is the record of that kind; any thread. And that record, made when it is new; NULL without memory.
 * Under lock. */
bool failure_is(const struct failure_record *f, const struct failure_reason *r, uint16_t device,
		uint16_t caller, const struct qp_caps *requested);
struct failure_record *failure_of(struct guard *g, const struct failure_reason *reason,
				  uint16_t device, uint16_t caller, unsigned int qp_type,
				  const struct qp_caps *requested);

/* cq.c: makes a CQ larger for what is bound to it; says so, or that it cannot. Not under lock. */
void cq_grow(struct guard *g, struct ibv_cq *cq, uint32_t cqe);
/* srq.c: an SRQ's requests on a CQ, counted once however many QPs take them there: what the CQ may have to
 * hold more with the QP that is bound now (sign 1), or fewer without it (-1), 0: nothing. Under lock. */
uint32_t srq_bind(struct guard *g, struct hot_srq *s, struct cq_record *cq, int sign);
/* What it would be, without binding. */
uint32_t srq_would_bind(const struct hot_srq *s, const struct cq_record *cq);

/* qp.c, cq.c, srq.c: what goes into a context's slots at open. */
struct ibv_qp *guarded_create_qp_ex(struct ibv_context *, struct ibv_qp_init_attr_ex *);
struct ibv_cq_ex *guarded_create_cq_ex(struct ibv_context *, struct ibv_cq_init_attr_ex *);
struct ibv_srq *guarded_create_srq_ex(struct ibv_context *, struct ibv_srq_init_attr_ex *);
struct ibv_qp *guarded_open_qp(struct ibv_context *, struct ibv_qp_open_attr *);
/* wq.c: the same. */
struct ibv_wq *guarded_create_wq(struct ibv_context *, struct ibv_wq_init_attr *);
int guarded_modify_wq(struct ibv_wq *, struct ibv_wq_attr *);
int guarded_destroy_wq(struct ibv_wq *);
struct ibv_rwq_ind_table *guarded_create_rwq_ind_table(struct ibv_context *,
						       struct ibv_rwq_ind_table_init_attr *);
/* One creation, however it came in: `create` calls the provider, `more` is what it needs besides. */
struct wq_call {
	void *address; /* of the caller */
	uint8_t entry; /* enum entry_point */
	struct ibv_wq *(*create)(struct ibv_context *, struct ibv_wq_init_attr *, void *more);
	void *more;
};
struct ibv_wq *wq_creation(struct guard *g, struct ibv_context *context,
			   struct ibv_wq_init_attr *attr, const struct wq_call *call);
/* mr.c: the same. */
struct ibv_mr *guarded_alloc_null_mr(struct ibv_pd *);
struct ibv_mr *guarded_reg_dm_mr(struct ibv_pd *, struct ibv_dm *, uint64_t, size_t, unsigned int);
struct ibv_dm *guarded_alloc_dm(struct ibv_context *, struct ibv_alloc_dm_attr *);
int guarded_free_dm(struct ibv_dm *);
/* The hot records, or NULL for an object made out of our sight. Under lock. */
struct hot_qp *hot_qp_of(const struct ibv_qp *qp);
struct hot_cq *hot_cq_of(const struct ibv_cq *cq);
struct hot_srq *hot_srq_of(const struct ibv_srq *srq);

/* post.c, poll.c: the data path. */
int guarded_post_send(struct ibv_qp *, struct ibv_send_wr *, struct ibv_send_wr **);
int guarded_post_recv(struct ibv_qp *, struct ibv_recv_wr *, struct ibv_recv_wr **);
int guarded_post_srq_recv(struct ibv_srq *, struct ibv_recv_wr *, struct ibv_recv_wr **);
int guarded_bind_mw(struct ibv_qp *, struct ibv_mw *, struct ibv_mw_bind *);
int guarded_poll_cq(struct ibv_cq *, int, struct ibv_wc *);
/* To be told when other_send_retired was raised by anything but a completion. */
void retired_apart(struct hot_qp *h);

#endif
