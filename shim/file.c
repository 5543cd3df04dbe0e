/* SPDX-License-Identifier: MIT */
/*
 * Making, growing and sealing the state file: see file.h. System calls only. Nothing is followed or
 * overwritten that another could have put there: the folder must be ours (or root's and not writable by
 * others without the sticky bit), files are made with O_EXCL and opened with O_NOFOLLOW.
 */
#include "file.h"

#include <errno.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "log.h"
#include "memory.h"
#include "sweep.h"
#include "sys.h"
#include "../policy/text.h"

#ifndef RAMFS_MAGIC
#define RAMFS_MAGIC 0x858458f6
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#define FIRST_BLOCK  (16u << 10)
#define SECOND_BLOCK (64u << 10)
#define LATER_BLOCK  (256u << 10)
#define WINDOW_BYTES (1u << 20)
#define PATH_BYTES   512

/* Blocks of one kind, in the order of their records. */
struct block_list {
	struct state_block **block;
	uint32_t blocks, room;
	uint32_t records; /* begun */
};

enum backing {
	IN_FILE,   /* mapped, tmpfs */
	AT_EXIT,   /* anonymous, written once at exit: the folder is on a disk */
	IN_MEMORY, /* anonymous, lost at exit */
};

struct state_file {
	struct state_header *header; /* and what else of the window is reserved */
	uint32_t window;	     /* bytes mapped from the header on */
	enum backing backing;
	uint64_t device, inode; /* of the file, to know it again */
	uint32_t gid;		/* [state] group, or UINT32_MAX */
	char path[PATH_BYTES];
	struct block_list kinds[KINDS];
};

static const uint32_t record_bytes[KINDS] = {
	[KIND_QP] = sizeof(struct qp_record),
	[KIND_CQ] = sizeof(struct cq_record),
	[KIND_SRQ] = sizeof(struct srq_record),
	[KIND_GROUP] = sizeof(struct group_record),
	[KIND_FAILURE] = sizeof(struct failure_record),
	[KIND_DEVICE] = sizeof(struct device_record),
	[KIND_MODULE] = sizeof(struct module_record),
	[KIND_CALLER] = sizeof(struct caller_record),
	[KIND_EVENT] = sizeof(struct event_record),
	[KIND_FRAME] = sizeof(struct frame_record),
	[KIND_WQ] = sizeof(struct wq_record),
};

/* Of the kinds that are bounded: no block claims room for more. */
static const uint32_t most_of[KINDS] = {
	[KIND_GROUP] = STATE_MAX_GROUPS,   [KIND_FAILURE] = STATE_MAX_FAILURES,
	[KIND_DEVICE] = STATE_MAX_DEVICES, [KIND_MODULE] = STATE_MAX_MODULES,
	[KIND_CALLER] = STATE_MAX_CALLERS, [KIND_EVENT] = STATE_MAX_EVENTS,
	[KIND_FRAME] = STATE_MAX_FRAMES,
};

struct state_header *file_header(struct state_file *f)
{
	return f->header;
}

static bool file_size_allowed(uint64_t bytes)
{
	struct rlimit limit;

	return getrlimit(RLIMIT_FSIZE, &limit) || limit.rlim_cur == RLIM_INFINITY ||
	       bytes <= limit.rlim_cur;
}

/* Reserves before anything is touched: a full tmpfs would answer a store with SIGBUS. The file size limit
 * is looked at first because passing it raises SIGXFSZ. */
static int reserve_room(int fd, uint64_t offset, uint64_t bytes)
{
	int rc;

	if (!file_size_allowed(offset + bytes))
		return EFBIG;
	do
		rc = sys_fallocate(fd, offset, bytes);
	while (rc && errno == EINTR);
	return rc ? errno : 0;
}

static uint64_t device_of_file(const struct statx *st)
{
	return (uint64_t)st->stx_dev_major << 32 | st->stx_dev_minor;
}

/* The description is opened anew each time and closed at once: a descriptor kept open could be closed or
 * used by the program, and would keep the lock in a forked child. */
static int reopen(const struct state_file *f)
{
	struct statx st;
	int fd = sys_openat(AT_FDCWD, f->path, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0);

	if (fd < 0)
		return -1;
	if (sys_stat_fd(fd, &st) && st.stx_ino == f->inode && device_of_file(&st) == f->device)
		return fd;
	sys_close(fd);
	errno = ENOENT;
	return -1;
}

/* Room behind a part of the window, which is mapped but not reserved. The advice needs no
 * descriptor, so it works whatever became of path, user, root, descriptors and permitted system
 * calls. Linux 5.14. */
static bool reserve_in_window(struct state_file *f, char *at, uint64_t offset, uint32_t bytes)
{
	int error, fd;

	if (!madvise(at, bytes, MADV_POPULATE_WRITE))
		return true;
	if (errno != EINVAL) {
		errno = errno == EFAULT ? ENOSPC : errno;
		return false;
	}
	fd = reopen(f);
	if (fd < 0)
		return false;
	error = reserve_room(fd, offset, bytes);
	sys_close(fd);
	errno = error;
	return !error;
}

static struct state_block *map_more(struct state_file *f, uint64_t offset, uint32_t bytes)
{
	struct state_block *b;
	int error, fd = reopen(f);

	if (fd < 0)
		return NULL;
	error = reserve_room(fd, offset, bytes);
	b = error ? MAP_FAILED
		  : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)offset);
	if (b != MAP_FAILED && memory_is_wiped_on_fork())
		madvise(b, bytes, MADV_DONTFORK);
	sys_close(fd);
	if (error)
		errno = error;
	return b == MAP_FAILED ? NULL : b;
}

static struct state_block *map_block(struct state_file *f, uint32_t bytes)
{
	uint64_t offset = atomic_load_explicit(&f->header->file_bytes, memory_order_relaxed);
	char *at = (char *)f->header + offset;

	if (offset + bytes > f->window)
		return map_more(f, offset, bytes);
	return reserve_in_window(f, at, offset, bytes) ? (struct state_block *)at : NULL;
}

static void say_incomplete(struct guard *g, struct state_file *f, const char *what)
{
	struct text t;
	char line[200];

	if (atomic_exchange_explicit(&f->header->incomplete, 1, memory_order_relaxed))
		return;
	t = text_begin(line, sizeof(line));
	text_put(&t, "state file cannot grow (");
	text_put(&t, what);
	text_put(&t, "): later objects are guarded but not in the report");
	log_line(g, LOG_WARN, line);
}

static bool remember_block(struct block_list *l, struct state_block *b)
{
	if (l->blocks == l->room) {
		uint32_t room = l->room ? l->room * 2 : 16;
		struct state_block **more = memory_map(room * sizeof(*more));

		if (!more)
			return false;
		if (l->blocks)
			memcpy(more, l->block, l->blocks * sizeof(*more));
		l->block = more;
		l->room = room;
	}
	l->block[l->blocks++] = b;
	return true;
}

static bool add_block(struct guard *g, struct state_file *f, enum state_kind kind)
{
	struct block_list *l = &f->kinds[kind];
	uint32_t bytes = l->blocks == 0 ? FIRST_BLOCK : l->blocks < 8 ? SECOND_BLOCK : LATER_BLOCK;
	struct state_block *b = NULL;
	bool in_file = f->backing == IN_FILE &&
		       !atomic_load_explicit(&f->header->incomplete, memory_order_relaxed);

	if (in_file) {
		char name[24];

		b = map_block(f, bytes);
		if (!b) {
			say_incomplete(g, f, errno_name(errno, name, sizeof(name)));
			in_file = false;
		}
	}
	if (!b)
		b = memory_map(bytes);
	if (!b || !remember_block(l, b))
		return false;
	b->kind = kind;
	b->record_bytes = record_bytes[kind];
	b->bytes = bytes;
	b->first = l->blocks > 1 ? l->block[l->blocks - 2]->first + l->block[l->blocks - 2]->records
				 : 0;
	b->records = (bytes - STATE_BLOCK_HEADER_BYTES) / record_bytes[kind];
	if (most_of[kind] && b->records > most_of[kind] - b->first)
		b->records = most_of[kind] - b->first;
	if (in_file)
		atomic_fetch_add_explicit(&f->header->file_bytes, bytes, memory_order_release);
	return true;
}

void *file_record(const struct state_file *f, enum state_kind kind, uint32_t index)
{
	const struct block_list *l = &f->kinds[kind];
	uint32_t low = 0, high = l->blocks - 1;

	while (low < high) {
		uint32_t middle = (low + high + 1) / 2;

		if (l->block[middle]->first <= index)
			low = middle;
		else
			high = middle - 1;
	}
	return (char *)l->block[low] + STATE_BLOCK_HEADER_BYTES +
	       (size_t)(index - l->block[low]->first) * record_bytes[kind];
}

void *file_add(struct guard *g, enum state_kind kind, uint32_t most, uint32_t *index)
{
	struct state_file *f = g->file;
	struct block_list *l = &f->kinds[kind];
	const struct state_block *last;
	int saved = errno;
	bool added;

	if (l->records >= most)
		return NULL;
	last = l->blocks ? l->block[l->blocks - 1] : NULL;
	if (!last || l->records == last->first + last->records) {
		added = add_block(g, f, kind);
		errno = saved;
		if (!added)
			return NULL;
	}
	*index = l->records++;
	atomic_store_explicit(&f->header->used[kind], l->records, memory_order_release);
	return file_record(f, kind, *index);
}

/* --- the folder --- */

/* The pattern may end anywhere in a "%x". */
static void expand(struct text *t, const char *pattern, uint32_t uid)
{
	struct utsname host;

	for (; *pattern; pattern++) {
		if (pattern[0] != '%') {
			text_char(t, *pattern);
			continue;
		}
		pattern++;
		if (*pattern == 'u')
			text_number(t, uid);
		else if (*pattern == 'h' && !uname(&host))
			text_put(t, host.nodename);
		else if (*pattern == '%')
			text_char(t, '%');
		if (!*pattern)
			break;
	}
}

/* The mode that was meant, whatever the umask; without the group it stays usable by its owner. */
static void set_access(int fd, uint32_t *gid, unsigned int alone, unsigned int with_group)
{
	if (*gid != UINT32_MAX && fchown(fd, (uid_t)-1, *gid))
		*gid = UINT32_MAX;
	fchmod(fd, *gid == UINT32_MAX ? alone : with_group);
}

/* Opens the folder; NULL in *fault when it may be used, else the words that say why not. */
static int open_folder(const char *path, uint32_t uid, uint32_t gid, const char **fault)
{
	bool made = !mkdir(path, 0700);
	struct statx st;
	int fd;

	*fault = NULL;
	fd = sys_openat(AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
	if (fd < 0) {
		*fault = errno == ELOOP || errno == ENOTDIR ? "not a folder, or a symbolic link"
			 : errno == ENOENT		    ? "it is missing and cannot be made"
							    : "it cannot be opened";
		return -1;
	}
	if (made)
		set_access(fd, &gid, 0700, 0750);
	if (!sys_stat_fd(fd, &st))
		*fault = "it cannot be examined";
	else if (st.stx_uid != uid && st.stx_uid != 0)
		*fault = "it belongs to another user";
	else if ((st.stx_mode & 022) && !(st.stx_mode & S_ISVTX) &&
		 !(st.stx_uid == 0 && !(st.stx_mode & 02)))
		*fault = "others may write to it";
	if (*fault) {
		sys_close(fd);
		return -1;
	}
	return fd;
}

static bool on_memory_fs(int fd)
{
	struct statfs fs;

	return !fstatfs(fd, &fs) &&
	       ((unsigned long)fs.f_type == TMPFS_MAGIC || (unsigned long)fs.f_type == RAMFS_MAGIC);
}

/* Absolute, since the program may move; without slashes at its end, behind which a link is
 * followed. False when it is too long to be kept. */
static bool choose_folder(char *out, size_t size, uint32_t uid)
{
	const char *chosen = secure_getenv("QPGUARD_DIR");
	struct text t = text_begin(out, size);
	size_t len;

	if (!chosen || !*chosen)
		chosen = !access("/run/qpguard", W_OK | X_OK) ? "/run/qpguard"
							      : "/dev/shm/qpguard-%u";
	if (chosen[0] != '/' && getcwd(out, size)) {
		t.len = strlen(out);
		text_char(&t, '/');
	}
	expand(&t, chosen, uid);
	for (len = strlen(out); len > 1 && out[len - 1] == '/'; len--)
		out[len - 1] = '\0';
	return text_end(&t) < size;
}

static uint32_t number_in(const char *s)
{
	uint32_t n = 0;

	while (*s >= '0' && *s <= '9')
		n = n * 10 + (uint32_t)(*s++ - '0');
	return n;
}

/* A group's number without NSS, which would run strangers' code in here: a number, or /etc/group. */
static uint32_t group_number(const char *name)
{
	const size_t size = 256u << 10, len = strlen(name);
	char *line;

	if (*name >= '0' && *name <= '9')
		return number_in(name);
	line = memory_map(size);
	if (!line || sys_slurp("/etc/group", line, size) < 0)
		return UINT32_MAX;
	for (; line && *line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (!strncmp(line, name, len) && line[len] == ':') {
			const char *number = strchr(line + len + 1, ':');

			return number ? number_in(number + 1) : UINT32_MAX;
		}
	}
	return UINT32_MAX;
}

/* --- the file --- */

static void name_of(struct text *t, const struct state_header *h, unsigned int n)
{
	text_put(t, STATE_FILE_PREFIX);
	text_number(t, h->pid_namespace);
	text_char(t, '-');
	text_number(t, h->pid);
	text_char(t, '-');
	text_number(t, h->start_ticks);
	if (n) {
		text_char(t, '-');
		text_number(t, n);
	}
}

static bool lock_whole(int fd)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };

	return !fcntl(fd, F_OFD_SETLK, &lock);
}

/* A program that replaces itself by exec keeps pid and start time: its later images get names with a number. */
static bool give_name(struct state_file *f, int dir, const char *folder, const char *temporary,
		      const struct state_header *h)
{
	char name[128];

	for (unsigned int n = 0; n < 1000; n++) {
		struct text t = text_begin(name, sizeof(name));

		name_of(&t, h, n);
		text_put(&t, STATE_FILE_SUFFIX);
		if (!linkat(dir, temporary, dir, name, 0)) {
			t = text_begin(f->path, sizeof(f->path));
			text_put(&t, folder);
			text_char(&t, '/');
			text_put(&t, name);
			return true;
		}
		if (errno != EEXIST)
			return false;
	}
	return false;
}

/* A file of our own in the folder under a name that nobody knows, yet: *temporary gets it. One
 * left there by an image of this process that was killed goes; what cannot be removed is passed
 * by. */
static int make_temporary(int dir, char *temporary, size_t size, int access_mode, uint32_t *gid,
			  const struct state_header *h)
{
	int fd = -1;

	for (unsigned int n = 0; fd < 0 && n < 16; n++) {
		struct text t = text_begin(temporary, size);

		text_char(&t, '.');
		name_of(&t, h, n);
		unlinkat(dir, temporary, 0);
		fd = sys_openat(dir, temporary,
				access_mode | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
		if (fd < 0 && errno != EEXIST)
			break;
	}
	if (fd >= 0)
		set_access(fd, gid, 0600, 0640);
	return fd;
}

/* The header's room, and address space for what follows it: a file of holes, as far as the
 * limits of this process allow. NULL in *fault when the header is there. */
static struct state_header *map_window(int fd, uint32_t *window, const char **fault)
{
	struct state_header *h = MAP_FAILED;
	int error = reserve_room(fd, 0, STATE_HEADER_BYTES);

	*fault = error == EFBIG ? "the file size limit of this process"
		 : error	? "no room in it"
				: NULL;
	if (error)
		return NULL;
	*window = WINDOW_BYTES;
	if (file_size_allowed(WINDOW_BYTES) && !ftruncate(fd, WINDOW_BYTES))
		h = mmap(NULL, *window, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (h == MAP_FAILED) {
		*window = STATE_HEADER_BYTES;
		h = mmap(NULL, *window, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	}
	if (h == MAP_FAILED) {
		*fault = "its files cannot be mapped";
		return NULL;
	}
	return h;
}

/* The file appears under its name only when it is locked and its header whole. */
static const char *make_file(struct state_file *f, int dir, const char *folder,
			     const struct state_header *filled)
{
	char temporary[128];
	struct state_header *h = NULL;
	const char *fault = NULL;
	struct statx st;
	int fd = make_temporary(dir, temporary, sizeof(temporary), O_RDWR, &f->gid, filled);

	if (fd < 0)
		return "no file can be made in it";
	if (!sys_stat_fd(fd, &st) || !lock_whole(fd))
		fault = "its files cannot be locked";
	else
		h = map_window(fd, &f->window, &fault);
	if (h) {
		memcpy(h, filled, sizeof(*h));
		if (!give_name(f, dir, folder, temporary, filled))
			fault = "no file can be named in it";
	}
	unlinkat(dir, temporary, 0);
	sys_close(fd);
	if (fault) {
		if (h)
			munmap(h, f->window);
		return fault;
	}
	if (memory_is_wiped_on_fork())
		madvise(h, f->window, MADV_DONTFORK);
	f->inode = st.stx_ino;
	f->device = device_of_file(&st);
	f->header = h;
	return NULL;
}

static void say_why(char *why, size_t size, const char *folder, const char *fault)
{
	struct text t = text_begin(why, size);

	text_put(&t, "no state file in ");
	text_name(&t, folder);
	text_put(&t, ": ");
	text_put(&t, fault);
}

struct state_file *file_begin(const struct policy_values *v, uint32_t uid,
			      void (*fill)(struct state_header *h, void *arg), void *arg, char *why,
			      size_t why_size)
{
	struct state_file *f = memory_map(sizeof(*f));
	struct state_header *h = memory_map(STATE_HEADER_BYTES);
	const char *fault;
	char folder[PATH_BYTES - 128];
	int dir;

	why[0] = '\0';
	if (!f || !h)
		return NULL;
	fill(h, arg);
	for (unsigned int k = 1; k < KINDS; k++)
		h->record_bytes[k] = record_bytes[k];
	atomic_store_explicit(&h->file_bytes, STATE_HEADER_BYTES, memory_order_relaxed);
	f->header = h;
	f->gid = v->text[STATE_GROUP][0] ? group_number(v->text[STATE_GROUP]) : UINT32_MAX;
	f->backing = IN_MEMORY;
	if (!choose_folder(folder, sizeof(folder), uid)) {
		say_why(why, why_size, folder, "the name of the folder is too long");
		return f;
	}
	dir = open_folder(folder, uid, f->gid, &fault);
	if (dir < 0) {
		say_why(why, why_size, folder, fault);
		return f;
	}
	sweep_folder(dir, v, uid);
	if (!on_memory_fs(dir)) {
		struct text t;

		f->backing = AT_EXIT;
		t = text_begin(f->path, sizeof(f->path));
		text_put(&t, folder);
		say_why(why, why_size, folder,
			"it is not on tmpfs; written once at exit, a kill loses it");
	} else {
		fault = make_file(f, dir, folder, h);
		if (fault)
			say_why(why, why_size, folder, fault);
		else
			f->backing = IN_FILE;
	}
	sys_close(dir);
	return f;
}

/* --- the end --- */

static bool write_all(int fd, const void *from, size_t bytes, uint64_t *offset)
{
	const char *p = from;

	while (bytes) {
		ssize_t n = sys_pwrite(fd, p, bytes, *offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		p += n;
		bytes -= (size_t)n;
		*offset += (uint64_t)n;
	}
	return true;
}

static uint64_t size_of_all(const struct state_file *f)
{
	uint64_t bytes = STATE_HEADER_BYTES;

	for (unsigned int k = 1; k < KINDS; k++)
		for (uint32_t i = 0; i < f->kinds[k].blocks; i++)
			bytes += f->kinds[k].block[i]->bytes;
	return bytes;
}

/* The folder is on a disk: what a mapping would have held is written once, under its name by a link. */
static void write_whole(struct state_file *f)
{
	struct state_file named = *f;
	char temporary[128];
	const char *fault;
	uint64_t offset = 0, bytes = size_of_all(f);
	int fd, dir;
	bool done;

	if (!file_size_allowed(bytes))
		return;
	dir = open_folder(f->path, f->header->uid, f->gid, &fault);
	if (dir < 0)
		return;
	fd = make_temporary(dir, temporary, sizeof(temporary), O_WRONLY, &named.gid, f->header);
	if (fd >= 0) {
		atomic_store_explicit(&f->header->file_bytes, bytes, memory_order_relaxed);
		done = write_all(fd, f->header, STATE_HEADER_BYTES, &offset);
		for (unsigned int k = 1; done && k < KINDS; k++)
			for (uint32_t i = 0; done && i < f->kinds[k].blocks; i++)
				done = write_all(fd, f->kinds[k].block[i],
						 f->kinds[k].block[i]->bytes, &offset);
		sys_close(fd);
		if (done)
			give_name(&named, dir, f->path, temporary, f->header);
		unlinkat(dir, temporary, 0);
	}
	sys_close(dir);
}

void file_leave(struct state_file *f)
{
	if (f->backing == IN_FILE)
		munmap(f->header, f->window);
}

void file_end(struct state_file *f)
{
	int saved = errno;

	atomic_store_explicit(&f->header->ended_at, now_ns(), memory_order_relaxed);
	atomic_store_explicit(&f->header->ending, ENDING_EXIT, memory_order_release);
	if (f->backing == AT_EXIT)
		write_whole(f);
	errno = saved;
}
