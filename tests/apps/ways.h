/* SPDX-License-Identifier: MIT */
/*
 * The same little traffic by whatever way a program reaches the functions of libibverbs: the calls
 * it makes are named in a table, so that each program fills it in its own way.
 *
 * Environment: $QPG_DEVICE (by default the first), $QPG_GID, the index of its GID.
 */
#ifndef QPG_TESTS_WAYS_H
#define QPG_TESTS_WAYS_H

#include <infiniband/verbs.h>

struct calls {
	struct ibv_device **(*get_device_list)(int *);
	void (*free_device_list)(struct ibv_device **);
	const char *(*get_device_name)(struct ibv_device *);
	struct ibv_context *(*open_device)(struct ibv_device *);
	int (*close_device)(struct ibv_context *);
	int (*query_gid)(struct ibv_context *, uint8_t, int, union ibv_gid *);
	struct ibv_pd *(*alloc_pd)(struct ibv_context *);
	int (*dealloc_pd)(struct ibv_pd *);
	struct ibv_mr *(*reg_mr)(struct ibv_pd *, void *, size_t, int);
	struct ibv_mr *(*reg_mr_iova2)(struct ibv_pd *, void *, size_t, uint64_t, unsigned int);
	int (*dereg_mr)(struct ibv_mr *);
	struct ibv_cq *(*create_cq)(struct ibv_context *, int, void *, struct ibv_comp_channel *,
				    int);
	int (*destroy_cq)(struct ibv_cq *);
	struct ibv_srq *(*create_srq)(struct ibv_pd *, struct ibv_srq_init_attr *);
	int (*destroy_srq)(struct ibv_srq *);
	struct ibv_qp *(*create_qp)(struct ibv_pd *, struct ibv_qp_init_attr *);
	int (*modify_qp)(struct ibv_qp *, struct ibv_qp_attr *, int);
	int (*destroy_qp)(struct ibv_qp *);
};

/*
 * Opens the device, registers memory twice, makes a CQ, an SRQ and two QPs that are connected with
 * each other, sends `messages` from one to the other, and gives all back. Prints "result" lines,
 * which must be the same bare and guarded. Ends the program with status 1 when a call fails.
 */
void ways_traffic(const struct calls *call, unsigned int messages);

#endif
