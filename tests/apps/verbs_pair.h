/* SPDX-License-Identifier: MIT */
/*
 * What the programs of this folder share: queue pairs that are connected to each other inside one
 * process, and an account of what the program truly did with them.
 *
 * Every post and poll goes through here. The account is kept from what a program can see, that is
 * from return values, bad_wr and completions, and from what it knows: in which order it posted and
 * why it expects a call to fail. It is printed as lines that the scripts compare with the report:
 *
 *     queue qp=NUMBER side=send posted=5 completed=3 outstanding=2 ...
 *     queue srq=ID side=recv ...
 *     total side=send ...         all queue pairs there ever were, destroyed ones too
 *     cq id=ID completions=...
 *     totals live_qps=...
 *     result KEY=VALUE            nothing that a report says: must be the same bare and guarded
 *     step TEXT                   all lines above hold now; the program waits for a line on its
 *                                 standard input, so that the report can be read meanwhile
 *
 * With $QPG_OWNER set to "other" the first call on each queue is made by another thread, so that
 * all further ones come from a thread that is not the first.
 *
 * With $QPG_API set to "extended" the same is done by ibv_wr_* and ibv_start_poll instead of
 * ibv_post_send and ibv_poll_cq: queue pairs are made with the operations that they send, CQs
 * without the QP's number.
 *
 * The device is $QPG_DEVICE (by default the first), the GID that of index $QPG_GID.
 */
#ifndef QPG_TESTS_VERBS_PAIR_H
#define QPG_TESTS_VERBS_PAIR_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MEMORY_BYTES (1u << 20)

extern struct ibv_context *context;
extern struct ibv_pd *pd;
extern struct ibv_mr *mr;
extern char *memory; /* MEMORY_BYTES of it, registered as mr */
extern struct ibv_device_attr device_attr;

/* Why a call is expected to fail. The names are those of the report. */
enum why {
	NOT_AT_ALL,
	QUEUE_FULL,
	QUEUE_FULL_EARLY,
	TOO_MANY_SGE,
	INLINE_TOO_BIG,
	BAD_STATE,
	OTHER,
	WHYS
};

/* What was done with one side of a queue. */
struct account {
	uint64_t posted, retired, discarded, not_posted;
	uint64_t refused[WHYS];
	uint32_t peak_outstanding, peak_sge, peak_inline;
	bool begun;
	bool peaks_unknown; /* several threads at once: not printed */
};

struct shared_queue {
	struct ibv_srq *srq;
	struct ibv_srq_attr attr;
	struct account recv;
	uint32_t id; /* in the report: the order of creation */
};

/* A queue pair with what belongs to it. */
struct end {
	struct ibv_qp *qp;
	struct ibv_cq *send_cq, *recv_cq;
	struct shared_queue *srq;
	struct ibv_qp_cap cap; /* as the provider granted it */
	bool sig_all, owns_cqs;
	uint32_t serial;
	struct account send, recv;
	uint64_t sends_with_receive; /* IBV_WR_SEND: each takes a receive of the peer's */
};

/* How an end is to be made; zeroes stand for what is given here. */
struct plan {
	enum ibv_qp_type type; /* RC */
	struct ibv_qp_cap cap; /* 16 sends and receives of 1 SGE */
	bool sig_all, two_cqs;
	int cqe;			  /* 4 * (max_send_wr + max_recv_wr) */
	struct ibv_cq *send_cq, *recv_cq; /* CQs of its own */
	struct shared_queue *srq;	  /* receives of its own */
	struct ibv_pd *pd;		  /* that of the device */
};

/* One request of a list. */
struct request {
	bool unsignaled;
	int sge;	  /* 1 */
	uint32_t inlined; /* bytes; 0: not inline */
	int opcode;	  /* IBV_WR_RDMA_WRITE, or IBV_WR_SEND on UD */
};

/* Opens the device and registers the memory; ends the program when there is none. */
void device_begin(void);
struct ibv_context *device_open(void);
void device_end(void);

struct end *end_make(const struct plan *plan);
/* The same, or NULL with errno as it was left. */
struct end *end_try(const struct plan *plan);
/* Takes the end through the states up to this one; `peer` is where it sends to. */
void end_to(struct end *e, enum ibv_qp_state state, const struct end *peer);
void end_drop(struct end *e);
/* Two ends that are connected with each other. */
void pair_make(struct end *e[2], const struct plan *plan);
void pair_drop(struct end *e[2]);
/* Queue pairs that the program made and destroyed by itself, and the receives that they took
 * with them. */
void made_elsewhere(uint64_t qps, uint64_t receives);
/* RESET or ERR. RESET discards what is outstanding. */
void end_state(struct end *e, enum ibv_qp_state state);
/* A CQ of the program's own making: its number in the report is the order of creation. And what
 * was polled from a CQ other than by the functions below. */
void cq_made(struct ibv_cq *cq);
void cq_took(const struct ibv_cq *cq, uint64_t completions);

struct shared_queue *srq_make(uint32_t max_wr, uint32_t max_sge);
void srq_drop(struct shared_queue *s);

/*
 * Posts a list; returns how many were accepted. A refusal is accounted to `why`, and ends the
 * program when none was expected.
 */
unsigned int post_sends(struct end *e, const struct request *list, unsigned int n, enum why why);
unsigned int post_recvs(struct end *e, const int *sges, unsigned int n, enum why why);
unsigned int post_srq_recvs(struct shared_queue *s, const int *sges, unsigned int n, enum why why);
/* n requests of one kind, each by a call of its own. */
void send_each(struct end *e, unsigned int n, struct request r);
void recv_each(struct end *e, unsigned int n);

/* One poll for at most n completions; returns how many came. */
int reap(struct ibv_cq *cq, int n);
/* Polls until the ends' sends are all done, as far as signals can tell; then receives. */
void reap_sends(struct end *e);
void reap_recvs(struct end *e);
/* Exactly n completions. */
void reap_exactly(struct ibv_cq *cq, unsigned int n);

uint64_t outstanding(const struct account *a);
/* A request that ends with this opcode and remains outstanding until the peer posts receives. */
#define WAITING ((struct request){ .opcode = IBV_WR_SEND })

/* Prints every living queue and "step TEXT", then waits for a line. */
void step(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The same with no lines of queues before it, for programs that tell what they have themselves. */
void step_alone(const char *format, ...) __attribute__((format(printf, 1, 2)));
void result(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Ends the program with status 1 and what went wrong, unless `good`. */
void need(bool good, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool on_rxe(void);

#endif
