/* SPDX-License-Identifier: MIT */
/*
 * Reads a state file and trusts none of it. The file is read with pread, never mapped, since
 * whoever owns it may cut it at any time; every length, offset, count and index is checked, every
 * text is ended by force. Records are handed out one at a time, so that memory stays the same
 * however many there are. Opens regular files only, follows no symlink, waits for nothing.
 */
#ifndef QPG_STATEFILE_H
#define QPG_STATEFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../shim/state.h"

/* A file that claims more is no state file: two million QPs fit in less. */
#define STATEFILE_MAX_BYTES (1ull << 30)
/* Records of a kind that one block may claim to be large. */
#define STATEFILE_MAX_RECORD_BYTES 4096u
#define STATEFILE_WHY_BYTES	   256
/* Files of ours beside the state files. */
#define ENDED_FILE_SUFFIX ".ended"
#define TEMPORARY_PREFIX  "." STATE_FILE_PREFIX

enum process_state { PROCESS_RUNNING, PROCESS_EXITED, PROCESS_DIED, PROCESS_UNKNOWN };
extern const char *const process_state_names[]; /* "running", ... */

/* How `qpguard run` saw the process end: text beside the state file, see ended.c. */
struct ended {
	bool known;
	int signal;    /* 0: none */
	int exit_code; /* -1: killed by a signal */
	uint64_t at;   /* ns since 1970 */
};

/* An open state file. The header is a copy whose texts end within their arrays. */
struct statefile {
	int fd;
	enum process_state state;
	struct ended ended;
	uint64_t bytes; /* readable: file_bytes, or less when the file is cut */
	uint64_t size, mtime_ns;
	uint32_t uid;			   /* owner of the file */
	unsigned int torn;		   /* records left out because they were being written */
	unsigned int damaged;		   /* records left out because they make no sense */
	char trouble[STATEFILE_WHY_BYTES]; /* "" or why only part of the file could be read */
	unsigned char *buffer;
	struct state_header header;
};

/*
 * Opens `name` in the folder `dirfd` (or AT_FDCWD). Returns NULL with a sentence in `why`, which
 * goes on from the file's name: "is empty", "is of layout version 2, ...". A file that can be read
 * in part is opened, with `trouble` set.
 */
struct statefile *statefile_open(int dirfd, const char *name, char why[STATEFILE_WHY_BYTES]);
void statefile_close(struct statefile *f);

/* Reads the header again: a running process moves on. False when it is not a header any more. */
bool statefile_refresh(struct statefile *f);

/* One record in use (state != RECORD_FREE), whole, texts ended; `index` counts within its kind.
 * Returns false to stop. Must not read the same file itself. */
typedef bool (*statefile_record)(void *arg, uint32_t index, const void *record);

/* Hands out all records of one kind in the order of their indices. False when the file's structure
 * broke before the end, with `trouble` set. Torn and damaged ones are added to *f's counts. */
bool statefile_each(struct statefile *f, enum state_kind kind, statefile_record fn, void *arg);

/* Whether a process holds the lock on an open state file, or made it and lives on as another
 * program (PROCESS_UNKNOWN). */
enum process_state statefile_liveness(int fd, const struct state_header *h);

/* Field 22 of /proc/PID/stat; 0: no such process, or with `living` one that only awaits its parent.
 */
uint64_t start_ticks_of(uint32_t pid, bool living);

/* Whether a process holds the lock on an open state file. */
bool statefile_locked(int fd);

/* Whether /proc/PID of this process is the one that made the file. */
bool statefile_same_process(const struct state_header *h);

/* ended.c: "qpguard-1-2-3.state" -> "qpguard-1-2-3.ended"; false when the name is no state file's.
 */
bool ended_file_name(const char *state_name, char *out, size_t size);
/* Believes only what `owner` or root wrote. */
void ended_read(int dirfd, const char *state_name, uint32_t owner, struct ended *out);
/* With the mode and group of the state file. */
bool ended_write(int dirfd, const char *state_name, const struct ended *e);

/* Whether a name looks like that of a state file. */
bool statefile_name(const char *name);

#endif
