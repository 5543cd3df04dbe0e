/* SPDX-License-Identifier: MIT */
/*
 * The interfaces that posting and polling have besides ibv_context_ops: ibv_wr_* (struct ibv_qp_ex) and the
 * extended CQs (struct ibv_cq_ex), whose function pointers lie in each object. What the provider put
 * there is kept here, in ordinary memory, since a forked child must still find it.
 */
#ifndef QPG_BUILDER_H
#define QPG_BUILDER_H

#include "guard.h"

/* The provider's own functions of one kind of QP. Few sets exist; QPs share them. */
struct wr_functions {
	void (*cmp_swp)(struct ibv_qp_ex *, uint32_t, uint64_t, uint64_t, uint64_t);
	void (*fetch_add)(struct ibv_qp_ex *, uint32_t, uint64_t, uint64_t);
	void (*bind_mw)(struct ibv_qp_ex *, struct ibv_mw *, uint32_t,
			const struct ibv_mw_bind_info *);
	void (*local_inv)(struct ibv_qp_ex *, uint32_t);
	void (*rdma_read)(struct ibv_qp_ex *, uint32_t, uint64_t);
	void (*rdma_write)(struct ibv_qp_ex *, uint32_t, uint64_t);
	void (*rdma_write_imm)(struct ibv_qp_ex *, uint32_t, uint64_t, __be32);
	void (*send)(struct ibv_qp_ex *);
	void (*send_imm)(struct ibv_qp_ex *, __be32);
	void (*send_inv)(struct ibv_qp_ex *, uint32_t);
	void (*send_tso)(struct ibv_qp_ex *, void *, uint16_t, uint16_t);
	void (*set_inline_data)(struct ibv_qp_ex *, void *, size_t);
	void (*set_inline_data_list)(struct ibv_qp_ex *, size_t, const struct ibv_data_buf *);
	void (*set_sge)(struct ibv_qp_ex *, uint32_t, uint64_t, uint32_t);
	void (*set_sge_list)(struct ibv_qp_ex *, size_t, const struct ibv_sge *);
	int (*complete)(struct ibv_qp_ex *);
	void (*abort)(struct ibv_qp_ex *);
};

/*
 * One QP with ibv_wr_*, and its batch between start and complete: the provider holds the QP's send lock
 * all that time, so only one thread writes here. Complete and abort leave the batch empty for the next one, so that
 * start need not be guarded.
 */
struct hot_wr {
	const struct ibv_qp *qp; /* key */
	const struct wr_functions *real;
	struct hot_qp *hot; /* hot->qp == qp, unless this is a child of fork */
	union {
		struct {
			uint32_t requests, unsignaled;
		};
		uint64_t counts; /* both */
	};
	uint32_t
		last_signaled; /* of a mixed queue; it is not in the ring yet, those before it are */
	uint32_t zero0;
	union {
		struct {
			uint32_t widest, inlined; /* as in a list of ibv_post_send */
		};
		uint64_t sizes; /* both; 0: nothing that is worth a look */
	};
	uint64_t zero1[2];
};
static_assert(sizeof(struct hot_wr) == 64, "one cache line");

/* One extended CQ. */
struct poll_functions {
	int (*start)(struct ibv_cq_ex *, struct ibv_poll_cq_attr *);
	int (*next)(struct ibv_cq_ex *);
};
struct hot_poll {
	const struct ibv_cq_ex *cq; /* key */
	const struct poll_functions *real;
	struct hot_cq *hot;
	uint64_t zero[5];
};
static_assert(sizeof(struct hot_poll) == 64, "one cache line");

extern struct lookup wrs, polls;

/*
 * Under guard->lock. wr_hook puts our functions into a QP made with send_ops_flags; false
 * without memory or when the provider's set is one too many: the QP then works as if it were
 * not guarded. wr_hook_again does so after a modify, since mlx5 rewrites wr_complete at RESET
 * and RTS (providers/mlx5/verbs.c:mlx5_modify_qp). wr_hooked finds what wr_forget is told when
 * the QP is gone, not before: the provider may refuse to destroy it, while others post to it.
 * Both know NULL.
 */
bool wr_hook(struct hot_qp *h, struct ibv_qp_ex *qp);
void wr_hook_again(struct ibv_qp *qp);
struct hot_wr *wr_hooked(const struct ibv_qp *qp);
void wr_forget(struct hot_wr *w);
/* The same for an extended CQ. */
bool poll_hook(struct hot_cq *q, struct ibv_cq_ex *cq);
struct hot_poll *poll_hooked(const struct ibv_cq *cq);
void poll_forget(struct hot_poll *p);

/* poll.c: one completion of a known CQ. */
void completion_taken(struct hot_cq *q, const struct ibv_wc *wc);

#endif
