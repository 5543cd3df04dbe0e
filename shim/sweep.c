/* SPDX-License-Identifier: MIT */
/*
 * The bounded look through the state folder at start: see sweep.h. Reads names by getdents64 and opens
 * what looks like a state file of ours; what is removed is decided by retain.c. No allocation but one
 * mapping, given back.
 */
#include "sweep.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

#include "guard.h"
#include "retain.h"
#include "sys.h"

#define MOST_FILES 4096u
#define NAME_BYTES 64u

/* <dirent.h> has no such struct; man getdents64. */
struct entry {
	uint64_t ino;
	int64_t off;
	uint16_t bytes;
	uint8_t type;
	char name[];
};

struct listing {
	struct retain_item item[MOST_FILES];
	char name[MOST_FILES][NAME_BYTES];
	size_t count;
	_Alignas(8) char buf[32768];
};

static bool is_state_name(const char *name)
{
	size_t len = strlen(name), suffix = strlen(STATE_FILE_SUFFIX);

	return len < NAME_BYTES && len > suffix &&
	       !strncmp(name, STATE_FILE_PREFIX, strlen(STATE_FILE_PREFIX)) &&
	       !strcmp(name + len - suffix, STATE_FILE_SUFFIX);
}

/* A lock on the file is held by its process and by nothing else. */
static bool is_locked(int fd)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };

	return syscall(SYS_fcntl, fd, F_OFD_GETLK, &lock) || lock.l_type != F_UNLCK;
}

/*
 * When a dead process ended. One that was killed left no time, and tmpfs changes mtime only when a
 * page is first written: a long steady run would look old the moment it died. So the first who
 * finds it dead writes down the time, as mtime, with an atime that tells that it is so.
 */
static uint64_t ended_at(int fd, const struct statx *st)
{
	struct timespec found_dead[2] = { { FOUND_DEAD_ATIME, 0 }, { 0, UTIME_NOW } };
	uint64_t ended = 0, mtime = (uint64_t)st->stx_mtime.tv_sec * 1000000000;

	syscall(SYS_pread64, fd, &ended, sizeof(ended), offsetof(struct state_header, ended_at));
	if (ended || st->stx_atime.tv_sec == FOUND_DEAD_ATIME)
		return ended > mtime ? ended : mtime;
	syscall(SYS_utimensat, fd, NULL, found_dead, 0);
	return now_ns();
}

static void add(struct listing *l, int dir, const char *name, uint32_t uid)
{
	struct retain_item *item = &l->item[l->count];
	struct statx st;
	int fd = sys_openat(dir, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0);

	if (fd < 0)
		return;
	if (sys_stat_fd(fd, &st) && S_ISREG(st.stx_mode) && st.stx_uid == uid) {
		memcpy(l->name[l->count], name, strlen(name) + 1);
		item->name = l->name[l->count];
		item->bytes = st.stx_blocks * 512;
		item->live = is_locked(fd);
		item->ended_ns = item->live ? 0 : ended_at(fd, &st);
		item->remove = false;
		l->count++;
	}
	sys_close(fd);
}

/* The state file, and what `qpguard run` wrote beside it about its end. */
static void remove_file(int dir, const char *name)
{
	char ended[NAME_BYTES + 8];
	size_t stem = strlen(name) - strlen(STATE_FILE_SUFFIX);

	unlinkat(dir, name, 0);
	memcpy(ended, name, stem);
	memcpy(ended + stem, ".ended", sizeof(".ended"));
	unlinkat(dir, ended, 0);
}

static void list(struct listing *l, int dir, uint32_t uid)
{
	long n;

	while (l->count < MOST_FILES &&
	       (n = syscall(SYS_getdents64, dir, l->buf, sizeof(l->buf))) > 0)
		for (long at = 0; at < n && l->count < MOST_FILES;) {
			const struct entry *e = (const struct entry *)(l->buf + at);

			if (is_state_name(e->name))
				add(l, dir, e->name, uid);
			at += e->bytes;
		}
}

void sweep_folder(int dir, const struct policy_values *v, uint32_t uid)
{
	struct retain_limits limits = retain_limits_of(v);
	int fd = sys_openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	struct listing *l;

	if (fd < 0)
		return;
	l = mmap(NULL, sizeof(*l), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (l != MAP_FAILED) {
		list(l, fd, uid);
		if (retain_choose(l->item, l->count, &limits, now_ns()))
			for (size_t i = 0; i < l->count; i++)
				if (l->item[i].remove)
					remove_file(dir, l->item[i].name);
		munmap(l, sizeof(*l));
	}
	sys_close(fd);
}
