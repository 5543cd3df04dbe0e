/* SPDX-License-Identifier: MIT */
/*
 * The policy: which limits hold for whom, and what a request that meets them gets. Pure: no verbs
 * call, no lock, no clock, no allocation, no file; text comes in as memory. A struct policy is
 * filled once and only read afterwards, so any number of threads may ask it.
 */
#ifndef QPG_POLICY_H
#define QPG_POLICY_H

#include <stddef.h>

#include "caps.h"
#include "fit.h"
#include "geometry.h"

/* Every key of the policy file, in the order of policy_keys[] (keys.c). */
enum policy_key {
	/* [budget]: the first BUDGET_LIMITS are limits and index struct policy_usage too */
	BUDGET_PROCESS_BYTES,
	BUDGET_DEVICE_BYTES,
	BUDGET_BYTES_PER_QP,
	BUDGET_NODE_BYTES,
	BUDGET_QPS,
	BUDGET_CQS,
	BUDGET_SRQS,
	BUDGET_SEND_WRS,
	BUDGET_RECV_WRS,
	BUDGET_CQES,
	BUDGET_MRS,
	BUDGET_MR_BYTES,
	BUDGET_LIMITS,
	BUDGET_ACTION = BUDGET_LIMITS,
	/* <limit>.action, in the order of the limits */
	BUDGET_ACTION_OF,
	BUDGET_ACTION_OF_LAST = BUDGET_ACTION_OF + BUDGET_LIMITS - 1,
	CLAMP_MAX_SEND_WR,
	CLAMP_MAX_RECV_WR,
	CLAMP_MAX_SEND_SGE,
	CLAMP_MAX_RECV_SGE,
	CLAMP_MAX_INLINE_DATA,
	CLAMP_MAX_CQE,
	CLAMP_TO_DEVICE, /* no, yes */
	CLAMP_KEEP,	 /* enum fit_keep */
	CQ_CHECK,	 /* enum cq_check */
	STATE_KEEP,	 /* seconds */
	STATE_MAX_FILES,
	STATE_MAX_BYTES,
	STATE_GROUP, /* text: group name or number */
	LOG_LEVEL,   /* enum log_level */
	LOG_FILE,    /* text */
	REPORT_ARGS, /* yes, no */
	/* [inject]: turns, see inject.h; then an errno for each of the first three */
	INJECT_CREATE_QP,
	INJECT_CREATE_CQ,
	INJECT_REG_MR,
	INJECT_POST_SEND,
	INJECT_CREATE_QP_ERRNO,
	INJECT_CREATE_CQ_ERRNO,
	INJECT_REG_MR_ERRNO,
	INJECT_SEED,
	POLICY_KEYS,
};

enum budget_action { ACTION_OBSERVE, ACTION_REFUSE, ACTION_CLAMP };
enum log_level { LOG_OFF, LOG_WARN, LOG_INFO, LOG_DEBUG };
enum cq_check { CQ_CHECK_OFF, CQ_CHECK_WARN, CQ_CHECK_GROW };

/* What a section's conditions look at. Absent text is "". All are matched with shell globs. */
struct policy_subject {
	const char *device;  /* "mlx5_0" */
	const char *driver;  /* "mlx5" */
	const char *type;    /* "RC", ...; "" for a CQ or an SRQ */
	const char *program; /* path of the executable */
	const char *comm;
	const char *library; /* path of the shared object (or program) that asks */
	uint64_t qps;	     /* QPs that the process holds now, for after_qps */
};

/* The values in force for one subject. set is one bit per key; num[] or text[] holds its value. */
struct policy_values {
	uint64_t set;
	uint64_t num[POLICY_KEYS];
	const char *text[POLICY_KEYS]; /* into the struct policy; "" where not text */
};

#define POLICY_TEXT_BYTES   32768
#define POLICY_MAX_SECTIONS 128
#define POLICY_MAX_SETTINGS 1024

/* One `key = value`, with the place it came from. */
struct policy_setting {
	uint16_t key; /* enum policy_key */
	uint16_t section;
	uint32_t line; /* 0: a variable of the environment */
	uint64_t num;
	uint32_t text; /* offset into policy.text, 0: none */
};

/* Condition values are offsets into policy.text; 0: the condition is absent. */
struct policy_section {
	uint32_t device, driver, type, program, comm, library;
	uint64_t after_qps;
	uint8_t has_after_qps;
	uint8_t conditions; /* how many: the more, the stronger */
};

/* About 64 KiB. Filled by policy_parse and policy_variable; ready when zeroed by policy_init. */
struct policy {
	uint32_t sections, settings, text_used;
	struct policy_section section[POLICY_MAX_SECTIONS];
	struct policy_setting setting[POLICY_MAX_SETTINGS];
	char text[POLICY_TEXT_BYTES];
};

/* One fault in what a person wrote. `text` is a whole sentence that names the value and what would
 * be right ("unknown key 'proces_bytes' in [budget]: did you mean 'process_bytes'?"). */
struct policy_complaint {
	const char *file; /* or the variable's name */
	uint32_t line;	  /* 0 for a variable */
	const char *text; /* valid during the call only */
};
typedef void (*policy_complain)(void *arg, const struct policy_complaint *c);

void policy_init(struct policy *p);

/*
 * Parse `len` bytes of INI text and add to *p. Every fault is told through `complain` and only the
 * faulty line (or the section whose head is faulty) is left out: the rest holds. Returns the number
 * of complaints. Tolerates CRLF, a byte order mark, missing last newline, NUL bytes (a complaint).
 */
unsigned int policy_parse(struct policy *p, const char *file, const char *text, size_t len,
			  policy_complain complain, void *arg);

/*
 * One variable of the environment. Names outside QPGUARD_<SECTION>_<KEY> that the guard knows for
 * itself (QPGUARD, QPGUARD_DIR, QPGUARD_CONF, QPGUARD_LABELS) are accepted and ignored; an unknown
 * QPGUARD_ name is a complaint that names the nearest. QPGUARD_BUDGET_QPS_ACTION is `qps.action`.
 * Settings from variables are unconditional and later than all lines of the file.
 */
unsigned int policy_variable(struct policy *p, const char *name, const char *value,
			     policy_complain complain, void *arg);

/*
 * The values in force for `s`: the more conditions, the stronger; later wins among equals. Keys
 * that nobody set hold their defaults, with their bit in out->set clear; the default of
 * <limit>.action is what `action` holds for `s`. A variable is later than any line, in whatever
 * order they came.
 */
void policy_resolve(const struct policy *p, const struct policy_subject *s,
		    struct policy_values *out);

/* Writes *p back as policy text that means the same, sections in order; like snprintf, returns the
 * length that was needed. */
size_t policy_print(const struct policy *p, char *out, size_t size);

/* A size as the policy writes it: "4096", "64K", "2 GiB". False: it is none, or too big for 64 bits. */
bool policy_size(const char *text, uint64_t *bytes);

/* Name, section and meaning of each key, for messages, the man page and `qpguard policy`. */
struct policy_key_info {
	const char *section; /* "budget" */
	const char *name;    /* "process_bytes" */
	enum {
		VALUE_SIZE,
		VALUE_COUNT,
		VALUE_SECONDS,
		VALUE_WORD,
		VALUE_TEXT,
		VALUE_TURN, /* inject.h */
		VALUE_ERRNO,
	} kind;
	const char *words; /* VALUE_WORD: "observe|refuse|clamp", in the order of their numbers */
	uint64_t standard; /* the default of num */
	const char *meaning;
};
extern const struct policy_key_info policy_keys[POLICY_KEYS];

/* In use now, per limit of [budget]; for device_bytes that of the device in question, for
 * bytes_per_qp unused. */
struct policy_usage {
	uint64_t used[BUDGET_LIMITS];
};

/* What becomes of a request. */
struct policy_verdict {
	bool refused;		    /* fail with ENOMEM, do not call the provider */
	enum policy_key refused_by; /* the limit; if not refused: the first that is observed */
	uint64_t asked, limit;	    /* of refused_by: what the use would become, and the limit */
	uint32_t observed;	    /* bit per limit that action observe lets pass */
	bool clamped;		    /* submitted differs from requested */
	enum policy_key
		clamped_by;	  /* CLAMP_* key, or the limit under action clamp; the first one */
	struct qp_caps submitted; /* for a QP; of an SRQ or a WQ max_recv_wr and max_recv_sge */
	uint32_t submitted_cqe;	  /* for a CQ */
	struct queue_bytes bytes; /* predicted for what is submitted */
};

/*
 * Clamps first, then the budgets with what the clamps left. Action clamp shrinks depths (never
 * SGEs or inline data, never below 1 of a depth that was asked; both depths in proportion) to the
 * largest that every limit with that action allows by the geometry's own bytes; if none does,
 * refused. A limit of 0 means none may be had. node_bytes is not judged here.
 *
 * A limit on one side's depth (send_wrs, recv_wrs) shrinks that side alone. [clamp] too leaves at
 * least 1 of a depth or of the SGEs that were asked. A request that adds nothing to a limit is not
 * held up by it. With an SRQ, max_recv_* of a QP mean nothing and stay as they are. When refused,
 * submitted and bytes are those of the request as [clamp] left it.
 */
void policy_judge_qp(const struct policy_values *v, const struct policy_usage *use,
		     const struct geometry *g, const struct device_facts *dev,
		     const struct qp_request *req, struct policy_verdict *out);
void policy_judge_cq(const struct policy_values *v, const struct policy_usage *use,
		     const struct geometry *g, const struct device_facts *dev, uint32_t cqe,
		     struct policy_verdict *out);
void policy_judge_srq(const struct policy_values *v, const struct policy_usage *use,
		      const struct geometry *g, const struct device_facts *dev, uint32_t max_wr,
		      uint32_t max_sge, struct policy_verdict *out);

/* The upper bounds of [clamp] on their own, applied to *caps (of a CQ its entries are in max_send_wr, an
 * SRQ has max_recv_*). Returns the first that lowered something, POLICY_KEYS if none did. */
enum policy_key policy_bound(const struct policy_values *v, enum fit_kind kind, bool has_srq,
			     struct qp_caps *caps);

/* A WQ: an SRQ that no limit on SRQs counts. */
void policy_judge_wq(const struct policy_values *v, const struct policy_usage *use,
		     const struct geometry *g, const struct device_facts *dev, uint32_t max_wr,
		     uint32_t max_sge, struct policy_verdict *out);

/* Memory that a program registers for queues of its own making: process_bytes and device_bytes. Cannot be shrunk. */
void policy_judge_memory(const struct policy_values *v, const struct policy_usage *use,
			 uint64_t bytes, struct policy_verdict *out);

/* A memory registration of `bytes`: budgets mrs and mr_bytes. It cannot be shrunk: action clamp
 * refuses. */
void policy_judge_mr(const struct policy_values *v, const struct policy_usage *use, uint64_t bytes,
		     struct policy_verdict *out);

#endif
