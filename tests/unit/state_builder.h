/* SPDX-License-Identifier: MIT */
/*
 * Builds state files for tests, in memory, as the shim would lay them out. Touches nothing until it
 * is told to save.
 */
#ifndef QPG_STATE_BUILDER_H
#define QPG_STATE_BUILDER_H

#include <stdbool.h>
#include <stddef.h>

#include "../../shim/state.h"

struct builder {
	unsigned char *bytes;
	size_t size, room;
	uint32_t records[KINDS]; /* so far */
	uint32_t qp_id, cq_id, srq_id;
};

/* A process named "sender" that began at 2026-03-01 12:00 UTC and holds nothing. */
void builder_begin(struct builder *b);
void builder_free(struct builder *b);
struct state_header *builder_header(struct builder *b);

/* A new block with room for `records`, or NULL-free: the index of the first one. */
uint32_t builder_block(struct builder *b, enum state_kind kind, uint32_t records);
/* Record `index` of a kind; valid until the next block. */
void *builder_record(struct builder *b, enum state_kind kind, uint32_t index);

/* Adds a record in a block of its own kind, making blocks as needed; returns its index. */
uint32_t builder_device(struct builder *b, const char *name, const char *driver);
/* A frame in a module of its own; a call stack of frames; one of a single frame. */
uint16_t builder_frame(struct builder *b, const char *module, uint64_t offset);
uint32_t builder_stack(struct builder *b, const uint16_t *frame, unsigned int frames);
uint32_t builder_caller(struct builder *b, const char *module, uint64_t offset);
uint32_t builder_failure(struct builder *b, const struct failure_reason *reason, uint16_t device,
			 uint64_t count);
uint32_t builder_event(struct builder *b, enum log_level level, const char *text, uint64_t count);

struct group_shape {
	enum state_kind kind;
	enum qp_type type;
	uint16_t device, caller;
	struct qp_caps requested, effective;
	uint8_t qp_flags;
};
uint32_t builder_group(struct builder *b, const struct group_shape *shape);
/* A living member of a group, counted in the group and in the totals. */
struct qp_record *builder_qp(struct builder *b, uint32_t group, uint32_t bytes);
struct cq_record *builder_cq(struct builder *b, uint32_t group, uint64_t bytes);
struct srq_record *builder_srq(struct builder *b, uint32_t group, uint64_t bytes);
/* `members` destroyed ones of which each posted and completed so many sends. */
void builder_destroyed(struct builder *b, uint32_t group, uint64_t members, uint64_t sends);

/* Writes the file; false with errno. */
bool builder_save(const struct builder *b, const char *path);

/* A process with some of everything, as a person would meet it. */
void builder_sample(struct builder *b);

#endif
