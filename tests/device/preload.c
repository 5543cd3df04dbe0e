/* SPDX-License-Identifier: MIT */
/*
 * The libc calls that lead to the device: seven functions, each of which looks
 * whether the call is about us and else hands it to the kernel unchanged. They
 * go by system call or by a sibling function (openat, fstatat) and never look up
 * the next definition, so they work before libc is ready and whichever library
 * stands before or behind this one. Also the life of the library: load and fork.
 */
/* Both would give the functions that are defined here other names or bodies. */
#undef _FILE_OFFSET_BITS
#undef _FORTIFY_SOURCE

#include "mlx5dev.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define PUBLIC __attribute__((visibility("default")))

_Static_assert(sizeof(off_t) == 8 && sizeof(long) == 8, "offsets are passed as they come");

/* Zero keeps close() of programs without a context free of our lock. */
static volatile int opened;

/* Not so in a child that was made behind fork()'s back, whose lock nobody may ever free. */
static bool in_use(void)
{
	return opened && nic.pid == getpid();
}

static int open_ours(int flags)
{
	int fd = openat(AT_FDCWD, "/dev/zero", O_RDWR | (flags & O_CLOEXEC));

	if (fd >= 0) {
		pthread_mutex_lock(&nic.lock);
		context_new(fd);
		opened = 1;
		pthread_mutex_unlock(&nic.lock);
	}
	return fd;
}

static int open_any(const char *path, int flags, va_list ap)
{
	mode_t mode = 0;

	if (path && !strcmp(path, UVERBS_PATH))
		return open_ours(flags);
	if (flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE)
		mode = va_arg(ap, mode_t);
	return openat(AT_FDCWD, path, flags, mode);
}

PUBLIC int open(const char *path, int flags, ...)
{
	va_list ap;
	int fd;

	va_start(ap, flags);
	fd = open_any(path, flags, ap);
	va_end(ap);
	return fd;
}

PUBLIC int open64(const char *path, int flags, ...)
{
	va_list ap;
	int fd;

	va_start(ap, flags);
	fd = open_any(path, flags, ap);
	va_end(ap);
	return fd;
}

PUBLIC int close(int fd)
{
	int saved = errno;

	if (in_use()) {
		struct context *ctx;
		struct channel *ch;

		pthread_mutex_lock(&nic.lock);
		ctx = context_of_fd(fd);
		ch = channel_of_fd(fd);
		/* The kernel destroys what is left of a context with its last descriptor. */
		if (ctx)
			context_free(ctx);
		if (ch) {
			ch->fd = -1;
			channel_put(ch);
		}
		pthread_mutex_unlock(&nic.lock);
		errno = saved;
	}
	return (int)syscall(SYS_close, fd);
}

PUBLIC int stat(const char *restrict path, struct stat *restrict st)
{
	if (!strcmp(path, UVERBS_PATH))
		path = "/dev/zero";
	return fstatat(AT_FDCWD, path, st, 0);
}

/* libibverbs asks netlink for devices first, and netlink knows only real ones. */
PUBLIC int socket(int domain, int type, int protocol)
{
	if (domain == AF_NETLINK && protocol == NETLINK_RDMA) {
		errno = EPROTONOSUPPORT;
		return -1;
	}
	return (int)syscall(SYS_socket, domain, type, protocol);
}

/* A descriptor of ours that a forked child inherited has no context any more. */
static bool orphaned(int fd)
{
	struct stat st;

	return opened && !fstat(fd, &st) && S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 5);
}

static int ioctl_ours(int fd, void *arg, bool *ours)
{
	struct context *ctx;
	int err = EIO;

	if (!in_use()) {
		*ours = orphaned(fd);
		return EIO;
	}
	pthread_mutex_lock(&nic.lock);
	ctx = context_of_fd(fd);
	*ours = ctx || orphaned(fd);
	if (ctx)
		err = command_ioctl(ctx, arg);
	pthread_mutex_unlock(&nic.lock);
	return err;
}

PUBLIC int ioctl(int fd, unsigned long request, ...)
{
	va_list ap;
	void *arg;
	bool ours;
	int err;

	va_start(ap, request);
	arg = va_arg(ap, void *);
	va_end(ap);
	if (opened && request == RDMA_VERBS_IOCTL) {
		err = ioctl_ours(fd, arg, &ours);
		if (ours && !err)
			return 0;
		if (ours) {
			errno = err;
			return -1;
		}
	}
	return (int)syscall(SYS_ioctl, fd, request, arg);
}

/*
 * Where the first mapping cannot be had twice (valgrind allows no such mremap): a new page, mapped
 * by both. A segment rather than a memory file, for the reason given at map_doorbells() in nic.c.
 */
static void *share_doorbell(uint8_t *first, size_t len)
{
	void *second = MAP_FAILED;
	int id = shmget(IPC_PRIVATE, len, 0600);

	if (id < 0)
		return MAP_FAILED;
	if (shmat(id, first, SHM_REMAP) == first)
		second = shmat(id, NULL, 0);
	shmctl(id, IPC_RMID, NULL); /* it goes with its last mapping */
	return second;
}

/*
 * A doorbell page: a second mapping of one of the NIC's pages in place of one of
 * the device's. Offsets are those that alloc_uar() in commands.c gave out.
 */
static void *map_doorbell(size_t len, off_t offset)
{
	void *page;

	if (len != PAGE_BYTES || (uint64_t)offset >= MAX_UARS * (uint64_t)PAGE_BYTES) {
		errno = EINVAL;
		return MAP_FAILED;
	}
	/* An old size of 0 leaves the first mapping of shared memory where it is. */
	page = mremap(nic.uar_pages + offset, 0, len, MREMAP_MAYMOVE);
	return page == MAP_FAILED ? share_doorbell(nic.uar_pages + offset, len) : page;
}

static void *map_any(void *addr, size_t len, int prot, int flags, int fd, off_t offset)
{
	if (fd >= 0 && offset && in_use()) {
		bool ours;

		pthread_mutex_lock(&nic.lock);
		ours = context_of_fd(fd);
		pthread_mutex_unlock(&nic.lock);
		if (ours)
			return map_doorbell(len, offset);
	}
	return (void *)syscall(SYS_mmap, addr, len, (long)prot, (long)flags, (long)fd, offset);
}

PUBLIC void *mmap(void *addr, size_t len, int prot, int flags, int fd, off_t offset)
{
	return map_any(addr, len, prot, flags, fd, offset);
}

PUBLIC void *mmap64(void *addr, size_t len, int prot, int flags, int fd, off64_t offset)
{
	return map_any(addr, len, prot, flags, fd, offset);
}

/* ---- life ---- */

static void fork_lock(void)
{
	pthread_mutex_lock(&nic.lock);
}

static void fork_unlock(void)
{
	pthread_mutex_unlock(&nic.lock);
}

/*
 * The child has no NIC thread. It forgets the parent's objects without freeing
 * them, lets go of the NIC's address so that the parent's death shows, and may
 * open the device anew.
 */
static void fork_child(void)
{
	pthread_mutex_init(&nic.lock, NULL);
	wire_close();
	nic.running = false;
	nic.id = -1;
	nic.pid = getpid();
	objects_reset();
}

__attribute__((constructor)) static void load(void)
{
	int saved = errno;

	limits_read();
	objects_reset();
	nic.pid = getpid();
	nic.id = -1;
	pthread_atfork(fork_lock, fork_unlock, fork_child);
	sysfs_publish();
	errno = saved;
}
