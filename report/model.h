/* SPDX-License-Identifier: MIT */
/*
 * What a state file says, added up for people: groups of like objects (destroyed members' sums and
 * living members' records together), failures, devices, events and the names that records refer to.
 * Of fixed size; single QPs, CQs and SRQs are not kept here but handed out by statefile_each().
 */
#ifndef QPG_MODEL_H
#define QPG_MODEL_H

#include "../shim/counts.h"
#include "statefile.h"

/* One side of all queues of a group. Valid for `visible` members; of `hidden` ones nothing is
 * known. */
struct side_total {
	uint64_t visible, hidden;
	struct side_counts counts;
};

struct group_view {
	bool used;
	struct group_record record;
	uint64_t seen;	    /* living members whose records were read and are not in the sums */
	uint64_t destroyed; /* members in the sums */
	struct side_total send, recv; /* SRQ: recv */
	struct side_total polls;      /* CQ: whether completions were visible; counts unused */
	uint64_t completions, flushed_unattributed, peak_bound_wrs;
	uint32_t peak_backlog;
};

struct model {
	struct statefile *file;
	const struct state_header *header;
	const char *path;
	struct group_view groups[STATE_MAX_GROUPS];
	struct failure_record failures[STATE_MAX_FAILURES];
	struct device_record devices[STATE_MAX_DEVICES];
	struct module_record modules[STATE_MAX_MODULES];
	struct caller_record callers[STATE_MAX_CALLERS];
	struct event_record events[STATE_MAX_EVENTS];
	struct frame_record frames[STATE_MAX_FRAMES];
	uint64_t live_qps, live_cqs, live_srqs, live_wqs; /* records read */
	uint64_t live_bytes;				  /* of those */
	uint64_t hidden_qps;				  /* living, posts of a side not visible */
	uint64_t post_refusals, not_posted;		  /* of all queues that ever were */
	unsigned int strays;				  /* records whose group is not there */
	unsigned int torn, damaged;			  /* records left out */
	bool settled; /* nothing was destroyed while it was read: all sums are of one moment */
	char trouble[STATEFILE_WHY_BYTES];
};

/* Reads the file anew. False when it is no state file any more, with model->trouble set. */
bool model_read(struct model *m, struct statefile *f, const char *path);

/* A living record that the sums of its group do not hold already. */
bool model_qp_is_live(const struct model *m, const struct qp_record *r);
bool model_cq_is_live(const struct model *m, const struct cq_record *r);
bool model_wq_is_live(const struct model *m, const struct wq_record *r);
bool model_srq_is_live(const struct model *m, const struct srq_record *r);

/* Name of a device, as the file has it; NULL: not known. */
const struct device_record *model_device(const struct model *m, uint16_t device);
/* The call stack of a caller, its frames, what they lie in; NULL: not known, for any of them. */
const struct caller_record *model_stack(const struct model *m, uint16_t caller);
const struct frame_record *model_frame(const struct model *m, uint16_t frame);
const struct module_record *model_module(const struct model *m, const struct frame_record *f);
/* Whether it is libibverbs, librdmacm or a provider, and so between verbs and who uses them. */
bool module_is_verbs(const struct module_record *module);
/* The innermost frame that is not of those; where all are, the first. */
const struct frame_record *model_who(const struct model *m, uint16_t caller);
/* The path of the object that it lies in, or "?": one of at most STATE_MAX_MODULES + 1 texts. */
const char *model_holder(const struct model *m, uint16_t caller);
uint64_t qp_record_bytes(const struct qp_record *r);
uint64_t refusals_of(const struct side_counts *c); /* calls refused, all reasons */
const char *basis_name(unsigned int basis);	   /* "provider", ...; NULL: not known */
const char *action_name(unsigned int action);
/* Whether a QP takes its receives from an SRQ and so has no receive side of its own to speak of. */
bool recv_side_absent(unsigned int flags, const struct side_counts *recv);
/* What holds for the process as a whole: "observe", ... or "mixed". */
const char *model_action(const struct model *m);

/* The classes of sizes in which MRs were registered, those most used first; returns how many. */
unsigned int model_mr_classes(const struct state_mrs *r, unsigned int order[STATE_MR_CLASSES]);
/* Bytes, least and most, of the MRs of a class; UINT64_MAX: no bound. */
uint64_t mr_class_from(unsigned int n);
uint64_t mr_class_to(unsigned int n);

/* Objects of DEVX that live, registered memory and doorbell pages not among them. */
uint64_t model_devx_objects(const struct state_devx *s);
/* "qp", ...; NULL: no such kind. And "rejected", ... of enum rdma_cm_event_type. */
const char *devx_kind_name(unsigned int kind);
const char *cm_event_name(unsigned int event);

#define LOADED(word) atomic_load_explicit(&(word), memory_order_relaxed)

#endif
