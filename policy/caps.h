/* SPDX-License-Identifier: MIT */
/*
 * The vocabulary of numbers that shim/, policy/ and report/ share: what is asked of a queue and
 * what it costs. Plain data, no verbs header: the names are those of struct ibv_qp_cap so that a
 * reader of verbs code knows each field at once.
 */
#ifndef QPG_CAPS_H
#define QPG_CAPS_H

#include <stdbool.h>
#include <stdint.h>

/* struct ibv_qp_cap by other means (man ibv_create_qp). 20 bytes, part of the state file. */
struct qp_caps {
	uint32_t max_send_wr;
	uint32_t max_recv_wr;
	uint32_t max_send_sge;
	uint32_t max_recv_sge;
	uint32_t max_inline_data;
};

/* QP types, with the values of enum ibv_qp_type (infiniband/verbs.h). */
enum qp_type {
	QP_TYPE_RC = 2,
	QP_TYPE_UC = 3,
	QP_TYPE_UD = 4,
	QP_TYPE_RAW_PACKET = 8,
	QP_TYPE_XRC_SEND = 9,
	QP_TYPE_XRC_RECV = 10,
	QP_TYPE_DRIVER = 0xff,
};

/* "RC", "UD", ...; "other" for a value that has no name. Never NULL. */
const char *qp_type_name(unsigned int type);

/* What is known of a QP before it is made. */
struct qp_request {
	struct qp_caps caps;
	uint32_t type; /* enum qp_type */
	bool has_srq;  /* receives come from an SRQ: no receive queue of its own */
	bool sq_sig_all;
	bool is_rss;	       /* receives by hashing into other queues: no ring of its own */
	bool has_send_ops;     /* ibv_create_qp_ex with IBV_QP_INIT_ATTR_SEND_OPS_FLAGS */
	uint32_t create_flags; /* enum ibv_qp_create_flags */
	uint64_t send_ops;     /* enum ibv_qp_create_send_ops_flags, when has_send_ops */
	uint16_t max_tso_header;
};

/* The limits of struct ibv_device_attr that matter here; 0 where the device reports none. */
struct device_limits {
	uint32_t max_qp;
	uint32_t max_qp_wr;
	uint32_t max_sge;
	uint32_t max_cq;
	uint32_t max_cqe;
	uint32_t max_srq;
	uint32_t max_srq_wr;
	uint32_t max_srq_sge;
};

/*
 * What the environment of the process changes about a provider's memory. Zero: nothing. Filled by
 * shim/, since policy/ reads no environment.
 */
enum huge_queues { /* queues that the user wants in huge pages */
		   HUGE_RC = 1 << 0,
		   HUGE_UC = 1 << 1,
		   HUGE_UD = 1 << 2,
		   HUGE_RAW_PACKET = 1 << 3,
		   HUGE_OTHER_QP = 1 << 4,
		   HUGE_CQ = 1 << 5,
		   HUGE_SRQ = 1 << 6,
		   HUGE_WQ = 1 << 7,
};
struct provider_settings {
	uint16_t cqe_bytes;   /* MLX5_CQE_SIZE; 0: not set */
	uint16_t huge_queues; /* enum huge_queues */
	bool qp_signature;    /* MLX5_QP_SIGNATURE: 16 bytes more of each receive request */
	bool wq_signature;    /* MLX5_RWQ_SIGNATURE: the same of a WQ */
};

/* Limits that applications cannot read. */
enum learned_limit {
	LEARNED_SEND_BLOCKS,	/* blocks of a send queue */
	LEARNED_SEND_WQE_BYTES, /* of one send request */
	LEARNED_RECV_WQE_BYTES, /* of one receive request */
	LEARNED_RECV_WR,	/* receive requests of a QP */
	LEARNED_SRQ_WR,		/* receive requests of an SRQ */
	LEARNED_LIMITS
};

/* What creations taught of one: never more than that, and never told as the device's limit. */
struct learned {
	uint32_t accepted; /* the most that was ever taken */
	uint32_t refused;  /* the least that nothing else explains the refusal of; 0: none */
};

/* All that a provider's formulas depend on, besides the request. */
struct device_facts {
	struct device_limits limits;
	struct provider_settings settings;
	struct learned learned[LEARNED_LIMITS];
};

/* The rings of a QP as a provider tells them. */
struct queue_rings {
	uint32_t send_count, send_stride;
	uint32_t recv_count, recv_stride;
};

/* Where the rings of an object lie. */
enum queue_place {
	PLACE_UNKNOWN = 0,
	PLACE_PROCESS, /* heap or anonymous mapping of the process, pinned by the kernel driver */
	PLACE_KERNEL,  /* kernel memory that the process maps */
	PLACE_DEVICE,  /* memory of the adapter */
};

/* How a byte count is known (interface: bytes.basis). */
enum bytes_basis {
	BASIS_NONE = 0,	    /* not known */
	BASIS_ESTIMATE = 1, /* 64 + 16 per SGE */
	BASIS_MODEL = 2,    /* the provider's own formula, in policy/geometry_*.c */
	BASIS_PROVIDER = 3, /* read back from the provider */
};

/* Bytes of one object. For a CQ or an SRQ, sq is unused and rq holds the ring. */
struct queue_bytes {
	uint64_t sq;
	uint64_t rq;
	uint64_t bookkeeping; /* arrays beside the rings, headers of mappings, rounding to pages */
	uint64_t device;      /* in the adapter's own memory: not RAM, not in the total */
	enum bytes_basis basis;
	enum queue_place place;
};

/* Of RAM. */
static inline uint64_t queue_bytes_total(const struct queue_bytes *b)
{
	return b->sq + b->rq + b->bookkeeping;
}

#endif
