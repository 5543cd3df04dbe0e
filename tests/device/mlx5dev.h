/* SPDX-License-Identifier: MIT */
/*
 * mlx5dev.so: a preload library that plays the kernel's uverbs device and a
 * small mlx5 NIC, so that the distribution's unmodified libibverbs and libmlx5
 * size their queues, build WQEs, ring doorbells and parse CQEs in a process
 * that has neither an RDMA kernel module nor an adapter:
 *
 *	LD_PRELOAD=.../mlx5dev.so ibv_rc_pingpong -d mlx5_0 -g 0
 *
 * It may stand behind other preload libraries and beside real devices, which
 * keep working: only /dev/infiniband/uverbs99 and what hangs on it is played.
 * (Netlink is refused, so that libibverbs reads sysfs; tools like rdma(8), which
 * need it, must run without this library.)
 *
 * The NIC is a thread of the process. It polls the doorbell pages and sleeps
 * when nothing happens, so a post or a poll executes libmlx5's instructions and
 * no others. Processes of one user reach each other: a QP number is 7 bits of
 * NIC id above 17 bits of handle, the NIC id is an abstract unix socket, and
 * the payload moves by process_vm_readv and process_vm_writev.
 *
 * Facts come from the kernel's uAPI headers: rdma/ib_user_verbs.h (commands),
 * rdma/rdma_user_ioctl_cmds.h and rdma/ib_user_ioctl_cmds.h (their envelope),
 * rdma/mlx5-abi.h and rdma/mlx5_user_ioctl_cmds.h (the driver's part), and from
 * infiniband/mlx5dv.h (WQEs, CQEs, doorbell records).
 *
 * Environment, read once; numbers in C notation:
 *	MLX5DEV_max_send_wqebb	blocks of 64 bytes in a send queue (32768)
 *	MLX5DEV_max_sq_desc_sz	bytes of one send WQE (1024)
 *	MLX5DEV_max_rq_desc_sz	bytes of one receive WQE (512)
 *	MLX5DEV_max_recv_wr	receive WQEs of a QP (32768)
 *	MLX5DEV_max_srq_recv_wr	receive WQEs of an SRQ as libmlx5 counts, a power of two (32768)
 *	MLX5DEV_max_cqe		entries of a CQ, less one a power of two (4194303)
 *	MLX5DEV_max_qp_wr	as reported by ibv_query_device: a number, "old" (the
 *				meaning of kernels before 2025: max_send_wqebb, the
 *				default) or "new" (max_send_wqebb * 64 / 256)
 *	MLX5DEV_max_sge		as reported (what the descriptor sizes allow: 30)
 *	MLX5DEV_max_{pd,mr,cq,qp,srq,uar}	how many may live at once; reported;
 *				one more is refused with ENOMEM
 *	MLX5DEV_nth_{pd,mr,cq,qp,srq,uar}	the same, but not reported, and
 *				refused with MLX5DEV_nth_errno (12, ENOMEM)
 *	MLX5DEV_memlock		bytes of QP, CQ, SRQ and doorbell pages and of
 *				registered memory that may be pinned at once, else
 *				ENOMEM; "rlimit" takes RLIMIT_MEMLOCK, root's too (no limit)
 *	MLX5DEV_devx		1: DEVX objects and memory, of which handles are given out (0)
 *	MLX5DEV_name		name of the device (mlx5_0), where a real one has that name
 *	MLX5DEV_trace		a file to which each refused command is appended
 * A name or a number that is not understood ends the program with a line on
 * stderr: a test that misspells a limit must not pass.
 *
 * Limits of the model: one device, one InfiniBand port, GID 0. No resize of a
 * CQ, memory windows, asynchronous events, multicast, tag
 * matching. XRC QPs and SRQs, DC QPs, work queues and DEVX
 * objects are created but carry no data; a RAW_PACKET send
 * completes and goes nowhere. One PSN a message. A peer that lives but is stopped
 * is waited for, only a dead or unready one ends in RETRY_EXC_ERR. A CQ that
 * overflows goes silent. A region of a dmabuf cannot be reached. A forked child
 * must open the device anew: its inherited context answers EIO.
 */
#ifndef MLX5DEV_H
#define MLX5DEV_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <infiniband/mlx5dv.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>

#define UVERBS_NAME "uverbs99"
#define UVERBS_PATH "/dev/infiniband/" UVERBS_NAME
#define PAGE_BYTES  4096u
#define HANDLE_BITS 17
#define HANDLE_MASK ((1u << HANDLE_BITS) - 1)
#define NIC_IDS	    128
#define MAX_UARS    2048
#define WINDOW	    16 /* requests of one QP on the wire at a time */
#define MAX_SEGS    64 /* data segments of one WQE: its size has 6 bits of 16 bytes */
#define MAX_WQE	    1024
#define NODE_GUID   0x0002c90300000001ull

/* ---- lists: each object sits in at most one list per member ---- */

struct node {
	struct node *next, *prev;
};

static inline void list_init(struct node *n)
{
	n->next = n->prev = n;
}

static inline void list_add(struct node *head, struct node *n)
{
	n->next = head;
	n->prev = head->prev;
	head->prev->next = n;
	head->prev = n;
}

static inline void list_del(struct node *n)
{
	n->next->prev = n->prev;
	n->prev->next = n->next;
	list_init(n);
}

#define owner_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

/* ---- limits.c ---- */

enum kind { PD, MR, CQ, QP, SRQ, UAR, XRCD, WQ, RWQ_TABLE, DEVX_OBJ, DEVX_UMEM, KINDS };

struct limits {
	uint64_t max_send_wqebb, max_sq_desc_sz, max_rq_desc_sz, max_recv_wr;
	uint64_t max_srq_recv_wr, max_cqe, max_qp_wr, max_sge;
	uint64_t max[KINDS], nth[KINDS], nth_errno;
	uint64_t memlock, devx;
	const char *name, *trace;
};

extern struct limits limits;
void limits_read(void);

/* ---- objects.c: what the kernel keeps ---- */

struct context {
	struct node all;
	int fd;
	int async_peer;	     /* our end of the asynchronous event pipe */
	struct node objects; /* struct object.of_context */
	struct node uars;    /* struct uar.of_uars */
};

/* The head of everything that has a handle. */
struct object {
	enum kind kind;
	uint32_t handle;
	uint32_t users;	  /* objects that point to this one; busy while > 0 */
	uint64_t pages;	  /* pinned for it */
	uint64_t db_page; /* page of its doorbell record, 0 if none */
	struct context *ctx;
	struct node of_context;
};

struct pd {
	struct object o;
};

struct mr {
	struct object o;
	struct pd *pd;
	uint64_t start, length, iova;
	uint32_t access, key;
};

struct uar {
	struct object o;
	struct node qps; /* struct qp.of_uar: those that may send */
	struct node of_uars;
	bool lapped; /* a doorbell may have been overwritten unseen */
};

/* A completion channel: the program holds the read end of a pipe. */
struct channel {
	struct node all;
	int fd;		       /* the program's descriptor, -1 once it closed it */
	int read_fd, write_fd; /* ours, non-blocking */
	uint32_t users;
	struct node cqs; /* struct cq.of_channel */
};

struct cq {
	struct object o;
	uint64_t user_handle;
	uint8_t *buf;
	volatile __be32 *dbrec;
	uint32_t count, stride;
	uint32_t pi;
	bool overrun, ignore_overrun;
	struct channel *channel;
	struct node of_channel;
	bool armed, solicited_only, event_waits;
	uint32_t arm_seen;  /* the arm record as last read */
	uint32_t arm_ci;    /* consumer index the program armed with */
	uint32_t announced; /* entries up to here have had their event */
	uint32_t last_solicited;
	uint32_t events; /* written to the channel */
};

struct srq {
	struct object o;
	struct pd *pd;
	struct cq *cq; /* of an XRC SRQ */
	uint8_t *buf;
	volatile __be32 *dbrec;
	uint32_t stride, max_wr, max_sge, limit;
	uint16_t head, taken;
};

struct wq {
	struct object o;
	struct pd *pd;
	struct cq *cq;
	uint32_t state;
};

#define MOST_LOG_TABLE 7
struct rwq_table {
	struct object o;
	unsigned count;
	struct wq *wq[1 << MOST_LOG_TABLE];
};

enum inflight_state { ON_WIRE, DONE_HERE, FAILED_HERE };

/* A send WQE between its start and its completion. */
struct inflight {
	uint16_t index;
	uint8_t blocks, state, syndrome;
};

struct qp {
	struct object o;
	struct pd *pd;
	struct cq *send_cq, *recv_cq;
	struct srq *srq;
	struct rwq_table *table; /* receives through it, and has no queues */
	struct uar *uar;
	uint32_t type, number, user_index, generation;
	bool sig_all, signature;
	struct ib_uverbs_qp_cap cap;
	struct ib_uverbs_modify_qp attr; /* as last set */
	uint32_t state;

	uint8_t *sq, *rq;
	volatile __be32 *dbrec;
	uint32_t sq_blocks, rq_wqes, rq_shift;

	/* requester */
	uint16_t next;	  /* block index of the next WQE to start */
	uint32_t una_psn; /* PSN of window[first] */
	unsigned first, flying;
	struct inflight window[WINDOW];
	uint64_t wake_at; /* when to go on after RNR or a silent peer, ns */
	unsigned rnr_left, retry_left;
	struct node of_uar, waiting;
	/* responder */
	uint16_t rq_taken;
	uint32_t expected_psn;
	struct node in_error;
};

struct nic {
	pthread_mutex_t lock;
	bool running;
	int id; /* -1: none yet */
	pid_t pid;
	uint8_t *uar_pages; /* the NIC's view of all doorbell pages */
	struct node contexts, channels;
	struct node waiting;	 /* QPs with something in flight or a timer */
	struct node in_error;	 /* QPs whose late receives must be flushed */
	unsigned active_qps;	 /* in RTR or beyond: the NIC must look at them */
	unsigned waiting_events; /* that found the pipe of their channel full */
};

extern struct nic nic;

void objects_reset(void);
int object_add(struct object *o, enum kind kind, struct context *ctx);
void object_remove(struct object *o);
void *object_get(enum kind kind, uint32_t handle);
unsigned objects_of(enum kind kind);
int pin(struct object *o, uint64_t addr, uint64_t len);
int pin_doorbell(struct object *o, uint64_t addr);
void unpin(struct object *o);
struct context *context_of_fd(int fd);
struct context *context_new(int fd);
void context_free(struct context *ctx);
struct channel *channel_of_fd(int fd);
struct channel *channel_new(void);
uint32_t channel_pending(const struct channel *ch);
void channel_put(struct channel *ch);

/* ---- commands.c, queues.c, wq.c: one command of the uverbs device ---- */

/* The four buffers of a write-style command. */
struct args {
	const void *in;
	void *out;
	const void *drv_in;
	void *drv_out;
	uint32_t in_len, out_len, drv_in_len, drv_out_len;
};

int command_ioctl(struct context *ctx, void *hdr);
void object_destroy(struct object *o);
int create_cq(struct context *ctx, struct args *a, bool extended);
int destroy_cq(struct context *ctx, struct args *a);
int create_srq(struct context *ctx, struct args *a, bool extended);
int query_srq(struct context *ctx, struct args *a);
int modify_srq(struct context *ctx, struct args *a);
int destroy_srq(struct context *ctx, struct args *a);
int create_qp(struct context *ctx, struct args *a, bool extended);
int modify_qp(struct context *ctx, struct args *a);
int query_qp(struct context *ctx, struct args *a);
int destroy_qp(struct context *ctx, struct args *a);
int open_qp(struct context *ctx, struct args *a);
int create_wq(struct context *ctx, struct args *a);
int modify_wq(struct context *ctx, struct args *a);
int destroy_wq(struct context *ctx, struct args *a);
int create_rwq_table(struct context *ctx, struct args *a);
int destroy_rwq_table(struct context *ctx, struct args *a);

/* Reads the command's core input; false when it is too short. */
#define ARGS_IN(a, var) args_in((a), &(var), sizeof(var))
bool args_in(const struct args *a, void *to, size_t len);
void args_out(const struct args *a, const void *from, size_t len);
void args_drv_out(const struct args *a, const void *from, size_t len);

/* ---- cq.c: completions and their events ---- */

struct completion {
	uint8_t opcode; /* MLX5_CQE_* */
	uint8_t wqe_opcode, syndrome;
	uint16_t wqe_index;
	uint32_t length, src_qp;
	__be32 imm;
	bool solicited, grh;
};

void cq_push(struct cq *cq, const struct qp *qp, const struct completion *c);
void cq_look_at_arm(struct cq *cq);
void cq_announce(struct cq *cq);
uint32_t cq_withdraw_events(struct cq *cq);

/* ---- wire.c: messages and payload ---- */

enum wire_kind { REQUEST, RESPONSE, PROBE };
enum wire_status { ACK, RNR, NAK_INVALID, NAK_ACCESS, NAK_OP, NOT_READY, BAD_LOCAL };

struct range {
	uint64_t addr, len;
};

struct message {
	uint8_t kind, opcode, status, qp_type;
	bool solicited, grh;
	uint16_t segs;
	uint32_t src_qp, dst_qp, generation, psn;
	pid_t pid;
	__be32 imm;
	uint32_t rkey, qkey, rnr_timer;
	uint64_t remote, compare, swap, length;
	struct range seg[MAX_SEGS + 1];
};

int wire_open(void);
void wire_close(void);
void wire_wake(void);
int wire_fd(void);
bool wire_alive(uint32_t qpn);
bool wire_send(struct message *m);
unsigned wire_poll(void);
int payload_copy(pid_t pid, const struct range *theirs, unsigned n_theirs, const struct range *ours,
		 unsigned n_ours, uint64_t len, bool to_them);

/* ---- nic.c, requester.c, responder.c ---- */

int nic_start(void);
uint64_t now_ns(void);
void qp_set_state(struct qp *qp, uint32_t state);
unsigned requester_run(struct qp *qp);
void requester_response(const struct message *m);
unsigned requester_flush(struct qp *qp);
unsigned responder_flush(struct qp *qp);
void responder_request(const struct message *m);
int local_range(const struct pd *pd, uint32_t key, uint64_t addr, uint64_t len, uint32_t access,
		struct range *r);
struct qp *qp_of_number(uint32_t qpn);

/* ---- sysfs.c ---- */

void sysfs_publish(void);

void *fresh(size_t size); /* zeroed; ends the program when memory is out */

#endif
