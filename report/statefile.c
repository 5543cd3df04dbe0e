/* SPDX-License-Identifier: MIT */
/*
 * The trustless reader: see statefile.h. Reads one file descriptor, and /proc to tell whether the
 * process of a file without a lock lives on as another program.
 */
#include "statefile.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* A chunk of records is read three times: the sequence numbers before, the records, the numbers
 * after. */
#define CHUNK_BYTES  65536u
#define TORN_RETRIES 5

const char *const process_state_names[] = { "running", "exited", "died", "unknown" };

static const size_t record_sizes[KINDS] = {
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

static const char *const kind_names[KINDS] = {
	[KIND_QP] = "QP",	  [KIND_CQ] = "CQ",	      [KIND_SRQ] = "SRQ",
	[KIND_GROUP] = "group",	  [KIND_FAILURE] = "failure", [KIND_DEVICE] = "device",
	[KIND_MODULE] = "module", [KIND_CALLER] = "caller",   [KIND_EVENT] = "event",
	[KIND_FRAME] = "frame",	  [KIND_WQ] = "WQ",
};

/* Most records of each kind; more are damage. The four kinds of objects are bounded by the file.
 */
static const uint32_t record_bounds[KINDS] = {
	[KIND_QP] = UINT32_MAX,
	[KIND_CQ] = UINT32_MAX,
	[KIND_SRQ] = UINT32_MAX,
	[KIND_GROUP] = STATE_MAX_GROUPS,
	[KIND_FAILURE] = STATE_MAX_FAILURES,
	[KIND_DEVICE] = STATE_MAX_DEVICES,
	[KIND_MODULE] = STATE_MAX_MODULES,
	[KIND_CALLER] = STATE_MAX_CALLERS,
	[KIND_EVENT] = STATE_MAX_EVENTS,
	[KIND_FRAME] = STATE_MAX_FRAMES,
	[KIND_WQ] = UINT32_MAX,
};

bool statefile_name(const char *name)
{
	size_t len = strlen(name), prefix = strlen(STATE_FILE_PREFIX),
	       suffix = strlen(STATE_FILE_SUFFIX);

	return len > prefix + suffix && strncmp(name, STATE_FILE_PREFIX, prefix) == 0 &&
	       strcmp(name + len - suffix, STATE_FILE_SUFFIX) == 0 && !strchr(name, '/');
}

static bool read_at(int fd, void *out, size_t bytes, uint64_t offset)
{
	size_t done = 0;

	while (done < bytes) {
		ssize_t n = pread(fd, (char *)out + done, bytes - done, (off_t)(offset + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		done += (size_t)n;
	}
	return true;
}

/* Opening and the header. */

static int open_regular(int dirfd, const char *name, struct stat *st, char *why)
{
	int fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);

	if (fd < 0) {
		snprintf(why, STATEFILE_WHY_BYTES, "%s",
			 errno == ENOENT   ? "does not exist"
			 : errno == ELOOP  ? "is a symbolic link, which is not followed"
			 : errno == EACCES ? "may not be read by this user"
			 : errno == ENXIO  ? "is not a regular file"
					   : strerror(errno));
		return -1;
	}
	if (fstat(fd, st) != 0 || !S_ISREG(st->st_mode)) {
		snprintf(why, STATEFILE_WHY_BYTES, "is not a regular file");
		close(fd);
		return -1;
	}
	return fd;
}

/* The first bytes of what is no state file, for the sentence. */
static void tell_magic(const struct state_header *h, char *why)
{
	static const char zero[sizeof(h->magic)];

	if (memcmp(h->magic, zero, sizeof(zero)) == 0)
		snprintf(why, STATEFILE_WHY_BYTES,
			 "is not begun: its process is making it, or ended before it had");
	else
		snprintf(why, STATEFILE_WHY_BYTES,
			 "is not a state file: it does not begin with " STATE_MAGIC);
}

static bool check_identity(const struct state_header *h, char *why)
{
	if (memcmp(h->magic, STATE_MAGIC, sizeof(h->magic)) != 0) {
		tell_magic(h, why);
		return false;
	}
	if (h->byte_order == __builtin_bswap32(STATE_BYTE_ORDER)) {
		snprintf(why, STATEFILE_WHY_BYTES,
			 "was written by a machine of the other byte order: read it on such a one");
		return false;
	}
	if (h->byte_order != STATE_BYTE_ORDER) {
		snprintf(why, STATEFILE_WHY_BYTES, "is damaged: its byte order is 0x%08" PRIx32,
			 h->byte_order);
		return false;
	}
	if (h->version != STATE_VERSION) {
		snprintf(why, STATEFILE_WHY_BYTES,
			 h->version > STATE_VERSION
				 ? "is of layout version %" PRIu32
				   ", newer than the %u that this qpguard "
				   "reads: use the qpguard of the library that wrote it"
				 : "is damaged: its layout version is %" PRIu32
				   ", which never was (now: %u)",
			 h->version, STATE_VERSION);
		return false;
	}
	return true;
}

static bool check_sizes(const struct state_header *h, char *why)
{
	if (h->header_bytes != STATE_HEADER_BYTES ||
	    h->block_header_bytes != STATE_BLOCK_HEADER_BYTES) {
		snprintf(why, STATEFILE_WHY_BYTES,
			 "is damaged: it claims headers of %" PRIu32 " and %" PRIu32
			 " bytes, version %u has %u and %u",
			 h->header_bytes, h->block_header_bytes, STATE_VERSION, STATE_HEADER_BYTES,
			 STATE_BLOCK_HEADER_BYTES);
		return false;
	}
	for (unsigned int k = 1; k < KINDS; k++) {
		if (h->record_bytes[k] == record_sizes[k])
			continue;
		snprintf(why, STATEFILE_WHY_BYTES,
			 "is damaged: it claims %s records of %" PRIu32
			 " bytes, version %u has %zu",
			 kind_names[k], h->record_bytes[k], STATE_VERSION, record_sizes[k]);
		return false;
	}
	return true;
}

/* A text that fills its array is cut by one: the writer always ends them. */
static unsigned int end_text(char *text, size_t size)
{
	if (memchr(text, '\0', size))
		return 0;
	text[size - 1] = '\0';
	return 1;
}

static void end_header_texts(struct statefile *f)
{
	struct state_header *h = &f->header;

	f->damaged += end_text(h->guard_version, sizeof(h->guard_version));
	f->damaged += end_text(h->comm, sizeof(h->comm));
	f->damaged += end_text(h->host, sizeof(h->host));
	f->damaged += end_text(h->exe, sizeof(h->exe));
	f->damaged += end_text(h->argv0, sizeof(h->argv0));
	f->damaged += end_text(h->labels, sizeof(h->labels));
	f->damaged += end_text(h->policy_file, sizeof(h->policy_file));
}

/* How much of the file may be read: what it says is begun, as far as it is there. */
static bool measure(struct statefile *f, char *why)
{
	uint64_t begun = f->header.file_bytes;
	struct stat st;

	if (fstat(f->fd, &st) != 0 || st.st_size < (off_t)STATE_HEADER_BYTES) {
		snprintf(why, STATEFILE_WHY_BYTES, "was cut while it was read");
		return false;
	}
	f->size = (uint64_t)st.st_size;
	f->mtime_ns = (uint64_t)st.st_mtim.tv_sec * 1000000000u + (uint64_t)st.st_mtim.tv_nsec;
	f->uid = st.st_uid;
	if (begun < STATE_HEADER_BYTES) {
		snprintf(why, STATEFILE_WHY_BYTES,
			 "is not begun: its process is making it, or ended before it had");
		return false;
	}
	if (begun > STATEFILE_MAX_BYTES) {
		snprintf(why, STATEFILE_WHY_BYTES,
			 "is damaged: it claims %" PRIu64 " bytes, more than a state file ever has",
			 begun);
		return false;
	}
	f->bytes = begun;
	if (begun > f->size) {
		f->bytes = f->size;
		snprintf(f->trouble, sizeof(f->trouble),
			 "is cut: it has %" PRIu64 " of the %" PRIu64 " bytes that it claims",
			 f->size, begun);
	}
	return true;
}

static bool read_header(struct statefile *f, char *why)
{
	struct stat st;

	if (!read_at(f->fd, &f->header, sizeof(f->header), 0)) {
		if (fstat(f->fd, &st) == 0 && st.st_size == 0)
			snprintf(why, STATEFILE_WHY_BYTES, "is empty");
		else
			snprintf(why, STATEFILE_WHY_BYTES,
				 "is not a state file: it is shorter than a header of %u bytes",
				 STATE_HEADER_BYTES);
		return false;
	}
	if (!check_identity(&f->header, why) || !check_sizes(&f->header, why) || !measure(f, why))
		return false;
	end_header_texts(f);
	return true;
}

struct statefile *statefile_open(int dirfd, const char *name, char why[STATEFILE_WHY_BYTES])
{
	const char *base = strrchr(name, '/');
	struct statefile *f = calloc(1, sizeof(*f));
	struct stat st;

	if (f)
		f->buffer = malloc(3 * CHUNK_BYTES);
	if (!f || !f->buffer) {
		snprintf(why, STATEFILE_WHY_BYTES, "cannot be read: no memory left");
		free(f);
		return NULL;
	}
	f->fd = open_regular(dirfd, name, &st, why);
	if (f->fd < 0 || !read_header(f, why)) {
		statefile_close(f);
		return NULL;
	}
	if (statefile_name(base ? base + 1 : name))
		ended_read(dirfd, name, f->uid, &f->ended);
	f->state = statefile_liveness(f->fd, &f->header);
	if (f->ended.known && f->state != PROCESS_RUNNING)
		f->state = f->ended.signal ? PROCESS_DIED : PROCESS_EXITED;
	return f;
}

void statefile_close(struct statefile *f)
{
	if (!f)
		return;
	if (f->fd >= 0)
		close(f->fd);
	free(f->buffer);
	free(f);
}

bool statefile_refresh(struct statefile *f)
{
	f->trouble[0] = '\0';
	f->torn = f->damaged = 0;
	return read_header(f, f->trouble);
}

/* Liveness. */

uint64_t start_ticks_of(uint32_t pid, bool living)
{
	char path[64], text[1024], *p;
	uint64_t ticks = 0;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%" PRIu32 "/stat", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n <= 0)
		return 0;
	text[n] = '\0';
	p = strrchr(text, ')'); /* the name before it may hold anything */
	if (p && living && (strncmp(p, ") Z", 3) == 0 || strncmp(p, ") X", 3) == 0))
		return 0;
	for (int field = 2; p && field < 22; field++)
		p = strchr(p + 1, ' ');
	if (p)
		ticks = strtoull(p + 1, NULL, 10);
	return ticks;
}

bool statefile_locked(int fd)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };

	return fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

bool statefile_same_process(const struct state_header *h)
{
	struct stat ns;

	return h->pid && h->start_ticks && stat("/proc/self/ns/pid", &ns) == 0 &&
	       (uint64_t)ns.st_ino == h->pid_namespace &&
	       start_ticks_of(h->pid, true) == h->start_ticks;
}

enum process_state statefile_liveness(int fd, const struct state_header *h)
{
	if (statefile_locked(fd))
		return PROCESS_RUNNING;
	if (h->ending == ENDING_EXIT)
		return PROCESS_EXITED;
	return statefile_same_process(h) ? PROCESS_UNKNOWN : PROCESS_DIED;
}

/* Blocks and records. */

static bool trouble_at(struct statefile *f, uint64_t offset, const char *what)
{
	if (!f->trouble[0])
		snprintf(f->trouble, sizeof(f->trouble),
			 "is damaged: the block at byte %" PRIu64 " %s; what follows is left out",
			 offset, what);
	return false;
}

/* A block's header, checked against the file and itself. */
static bool read_block(struct statefile *f, uint64_t offset, struct state_block *b)
{
	uint64_t need;

	if (f->bytes - offset < sizeof(*b) || !read_at(f->fd, b, sizeof(*b), offset))
		return trouble_at(f, offset, "is cut");
	if (b->bytes < sizeof(*b) || b->bytes % 4096)
		return trouble_at(f, offset, "has an impossible length");
	if (b->bytes > f->bytes - offset)
		return trouble_at(f, offset, "reaches beyond the end of the file");
	if (b->kind == 0)
		return trouble_at(f, offset, "is of no kind");
	if (b->kind >= KINDS) /* nothing of version 1; the length is enough to step over it */
		return true;
	need = (uint64_t)b->records * b->record_bytes + sizeof(*b);
	if (b->record_bytes != record_sizes[b->kind])
		return trouble_at(f, offset, "has records of a wrong size");
	if (need > b->bytes)
		return trouble_at(f, offset, "claims more records than it holds");
	if (b->first > record_bounds[b->kind] || b->records > record_bounds[b->kind] - b->first)
		return trouble_at(f, offset, "claims more records than there may be of its kind");
	return true;
}

static uint32_t word_at(const unsigned char *p)
{
	uint32_t word;

	memcpy(&word, p, sizeof(word));
	return word;
}

/* Whether the record in `now`, read between the two others, is of one piece. */
static bool is_whole(enum state_kind kind, const unsigned char *before, const unsigned char *now,
		     const unsigned char *after)
{
	uint32_t seq = word_at(before); /* seq comes first in every record */
	size_t folded = offsetof(struct group_record, folded);

	if (seq & 1 || word_at(now) != seq || word_at(after) != seq)
		return false;
	/* no id ends twice: as long as folded stays, so do the sums that it selects */
	return kind != KIND_GROUP ||
	       (memcmp(before + folded, now + folded, sizeof(uint64_t)) == 0 &&
		memcmp(now + folded, after + folded, sizeof(uint64_t)) == 0);
}

static bool read_thrice(struct statefile *f, uint64_t offset, size_t bytes)
{
	for (int i = 0; i < 3; i++)
		if (!read_at(f->fd, f->buffer + i * CHUNK_BYTES, bytes, offset))
			return false;
	return true;
}

/* One record again, by itself, until it holds still; then it is put into `out`. */
static bool retry_record(struct statefile *f, enum state_kind kind, uint64_t offset,
			 unsigned char *out)
{
	unsigned char spare[3][1024];
	size_t bytes = record_sizes[kind];

	static_assert(sizeof(struct group_record) <= sizeof(spare[0]), "the largest record");
	for (int i = 0; i < TORN_RETRIES; i++) {
		const struct timespec pause = { .tv_nsec = 50000 };

		for (int k = 0; k < 3; k++)
			if (!read_at(f->fd, spare[k], bytes, offset))
				return false;
		if (is_whole(kind, spare[0], spare[1], spare[2])) {
			memcpy(out, spare[1], bytes);
			return true;
		}
		if (f->state != PROCESS_RUNNING)
			return false;
		nanosleep(&pause, NULL);
	}
	return false;
}

static unsigned int end_record_texts(enum state_kind kind, void *record)
{
	struct device_record *d = record;
	struct module_record *m = record;
	struct event_record *e = record;

	switch (kind) {
	case KIND_DEVICE:
		return end_text(d->name, sizeof(d->name)) + end_text(d->driver, sizeof(d->driver)) +
		       end_text(d->firmware, sizeof(d->firmware));
	case KIND_MODULE:
		return end_text(m->path, sizeof(m->path));
	case KIND_EVENT:
		return end_text(e->text, sizeof(e->text));
	default:
		return 0;
	}
}

/* What every record begins with. */
struct record_start {
	uint32_t seq;
	uint8_t state;
};

struct walk {
	enum state_kind kind;
	statefile_record fn;
	void *arg;
	bool stopped;
};

static void hand_out(struct statefile *f, struct walk *w, uint32_t index, unsigned char *record)
{
	_Alignas(64) unsigned char copy[1024];
	struct record_start start;

	memcpy(&start, record, sizeof(start));
	if (start.state == RECORD_FREE)
		return;
	if (start.state > RECORD_ENDED) {
		f->damaged++;
		return;
	}
	memcpy(copy, record, record_sizes[w->kind]);
	f->damaged += end_record_texts(w->kind, copy) != 0;
	w->stopped = !w->fn(w->arg, index, copy);
}

static bool walk_block(struct statefile *f, struct walk *w, const struct state_block *b,
		       uint64_t offset)
{
	size_t bytes = record_sizes[w->kind];
	uint32_t at_once = (uint32_t)(CHUNK_BYTES / bytes);

	for (uint32_t i = 0; i < b->records && !w->stopped; i += at_once) {
		uint32_t n = b->records - i < at_once ? b->records - i : at_once;
		uint64_t at = offset + sizeof(*b) + (uint64_t)i * bytes;

		if (!read_thrice(f, at, n * bytes))
			return trouble_at(f, offset, "was cut while it was read");
		for (uint32_t k = 0; k < n && !w->stopped; k++) {
			unsigned char *before = f->buffer + k * bytes, *now = before + CHUNK_BYTES,
				      *after = now + CHUNK_BYTES;

			if (is_whole(w->kind, before, now, after) ||
			    retry_record(f, w->kind, at + k * bytes, now))
				hand_out(f, w, b->first + i + k, now);
			else
				f->torn++;
		}
	}
	return true;
}

bool statefile_each(struct statefile *f, enum state_kind kind, statefile_record fn, void *arg)
{
	struct walk w = { .kind = kind, .fn = fn, .arg = arg };
	uint64_t offset = STATE_HEADER_BYTES;
	uint32_t next = 0;

	while (offset < f->bytes && !w.stopped) {
		struct state_block b;

		if (!read_block(f, offset, &b))
			return false;
		if (b.kind == kind) {
			if (b.first != next)
				return trouble_at(f, offset, "is out of order");
			next += b.records;
			if (!walk_block(f, &w, &b, offset))
				return false;
		}
		offset += b.bytes;
	}
	return true;
}
