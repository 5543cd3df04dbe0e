/* SPDX-License-Identifier: MIT */
/*
 * The state file of this process: made, locked, grown, sealed. The layout is state.h's. Where no file can
 * be had, the same records live in anonymous memory, and one log line says so. All under guard->lock
 * except where said.
 */
#ifndef QPG_FILE_H
#define QPG_FILE_H

#include "guard.h"

struct state_file;

/*
 * Chooses the folder, makes the file and maps its header, which `fill` fills before the file gets its
 * name; or falls back to anonymous memory. Returns NULL only without any memory. `why` gets the line to
 * log when there is no file, else "".
 */
struct state_file *file_begin(const struct policy_values *v, uint32_t uid,
			      void (*fill)(struct state_header *h, void *arg), void *arg, char *why,
			      size_t why_size);
struct state_header *file_header(struct state_file *f);

/* In a child that found its parent's memory as it was: lets go of the file, whose lock tells
 * that the parent lives. */
void file_leave(struct state_file *f);

/* The record of that kind and index; it must have been begun. */
void *file_record(const struct state_file *f, enum state_kind kind, uint32_t index);

/* A new record of the kind, all zero, and its index. Never fails silently: NULL without memory or when
 * `most` records of the kind exist. */
void *file_add(struct guard *g, enum state_kind kind, uint32_t most, uint32_t *index);

/* At exit, not under lock: ended_at and ending, and the whole of it written where it could not be
 * mapped (a folder on a disk). */
void file_end(struct state_file *f);

#endif
