/* SPDX-License-Identifier: MIT */
/*
 * Memory that a process may use and uses, as the kernel tells: for a running process of this host
 * and pid namespace only. Reads /proc and /sys/fs/cgroup.
 */
#ifndef QPG_REPORT_MEMORY_H
#define QPG_REPORT_MEMORY_H

#include "statefile.h"

#define MEMORY_UNKNOWN UINT64_MAX

struct process_memory {
	uint64_t pinned;	 /* VmPin: what is counted against RLIMIT_MEMLOCK */
	uint64_t cgroup_current; /* memory.current of its cgroup */
};

void process_memory_read(const struct statefile *f, struct process_memory *out);

/* MemTotal of this host. */
uint64_t host_memory(void);

#endif
