/* SPDX-License-Identifier: MIT */
/*
 * System calls without libc's wrappers. open, read, write and close are cancellation points: a thread
 * of the program that is cancelled there would leave guard->lock held. fstat is a symbol newer than
 * glibc 2.31. These return -1 with errno like the wrappers.
 */
#ifndef QPG_SYS_H
#define QPG_SYS_H

#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static inline int sys_openat(int dir, const char *path, int flags, unsigned int mode)
{
	return (int)syscall(SYS_openat, dir, path, flags, mode);
}

static inline int sys_close(int fd)
{
	return (int)syscall(SYS_close, fd);
}

static inline ssize_t sys_read(int fd, void *to, size_t bytes)
{
	return syscall(SYS_read, fd, to, bytes);
}

static inline ssize_t sys_write(int fd, const void *from, size_t bytes)
{
	return syscall(SYS_write, fd, from, bytes);
}

static inline ssize_t sys_pwrite(int fd, const void *from, size_t bytes, uint64_t offset)
{
	return syscall(SYS_pwrite64, fd, from, bytes, offset);
}

static inline int sys_fallocate(int fd, uint64_t offset, uint64_t bytes)
{
	return (int)syscall(SYS_fallocate, fd, 0, offset, bytes);
}

static inline bool sys_stat_fd(int fd, struct statx *st)
{
	return !syscall(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, st);
}

static inline bool sys_stat_path(const char *path, struct statx *st)
{
	return !syscall(SYS_statx, AT_FDCWD, path, 0, STATX_BASIC_STATS, st);
}

/* The start of a small file, NUL-terminated; its length, or -1. */
static inline ssize_t sys_slurp(const char *path, char *buf, size_t size)
{
	int fd = sys_openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
	size_t len = 0;
	ssize_t n;

	if (fd < 0)
		return -1;
	while (len + 1 < size && (n = sys_read(fd, buf + len, size - 1 - len)) > 0)
		len += (size_t)n;
	sys_close(fd);
	buf[len] = '\0';
	return (ssize_t)len;
}

#endif
