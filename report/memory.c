/* SPDX-License-Identifier: MIT */
/*
 * What the kernel tells of a process's memory: see memory.h. Only small files of /proc and
 * /sys/fs/cgroup are read; what is missing is MEMORY_UNKNOWN.
 */
#include "memory.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool read_text(const char *path, char *text, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	ssize_t n;

	if (fd < 0)
		return false;
	n = read(fd, text, size - 1);
	close(fd);
	if (n <= 0)
		return false;
	text[n] = '\0';
	return true;
}

/* The number of kB after `name` at the start of a line, in bytes. */
static uint64_t kilobytes_of(const char *text, const char *name)
{
	const char *at = strstr(text, name);

	if (!at || (at != text && at[-1] != '\n'))
		return MEMORY_UNKNOWN;
	return strtoull(at + strlen(name), NULL, 10) * 1024;
}

uint64_t host_memory(void)
{
	char text[4096];

	return read_text("/proc/meminfo", text, sizeof(text)) ? kilobytes_of(text, "MemTotal:")
							      : MEMORY_UNKNOWN;
}

static uint64_t cgroup_current(uint32_t pid)
{
	char path[4200], text[4096], *group;
	uint64_t bytes;

	snprintf(path, sizeof(path), "/proc/%" PRIu32 "/cgroup", pid);
	if (!read_text(path, text, sizeof(text)))
		return MEMORY_UNKNOWN;
	group = strstr(text, "0::/"); /* version 2 */
	if (!group || (group != text && group[-1] != '\n'))
		return MEMORY_UNKNOWN;
	group += strlen("0::");
	group[strcspn(group, "\n")] = '\0';
	if (strstr(group, "/..")) /* outside of what this process can see */
		return MEMORY_UNKNOWN;
	snprintf(path, sizeof(path), "/sys/fs/cgroup%s/memory.current", group);
	if (!read_text(path, text, sizeof(text)))
		return MEMORY_UNKNOWN;
	bytes = strtoull(text, NULL, 10);
	return bytes ? bytes : MEMORY_UNKNOWN;
}

void process_memory_read(const struct statefile *f, struct process_memory *out)
{
	char path[64], text[4096];

	out->pinned = out->cgroup_current = MEMORY_UNKNOWN;
	if (f->state != PROCESS_RUNNING || !statefile_same_process(&f->header))
		return;
	snprintf(path, sizeof(path), "/proc/%" PRIu32 "/status", f->header.pid);
	if (read_text(path, text, sizeof(text)))
		out->pinned = kilobytes_of(text, "VmPin:");
	out->cgroup_current = cgroup_current(f->header.pid);
}
