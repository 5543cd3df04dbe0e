/* SPDX-License-Identifier: MIT */
/*
 * Printing without harm: see log.h. Descriptor 2 may by now be the program's data file, so it
 * is compared with what it was at load. A pipe that nobody reads raises SIGPIPE, a file at its
 * size limit SIGXFSZ, the terminal of another job SIGTTOU: they are held back during the write,
 * and one that it raised is taken. A full pipe would block, so only what can be written is.
 */
#include "log.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <time.h>

#include "file.h"
#include "guard.h"
#include "sys.h"
#include "../policy/text.h"

/* At most BURST lines at once and one more each SECONDS_PER_LINE. */
#define BURST		 20
#define SECONDS_PER_LINE 10
#define LINE_BYTES	 400

static struct {
	uint64_t device, inode;
	bool known;
} stderr_at_load;

static bool identify(int fd, uint64_t *device, uint64_t *inode)
{
	struct stat st;

	/* the raw call, which libc makes too: a filter of the program's may kill for statx, and the symbol is newer
	 * than glibc 2.31 */
	if (syscall(SYS_fstat, fd, &st))
		return false;
	*device = st.st_dev;
	*inode = st.st_ino;
	return true;
}

__attribute__((constructor)) static void remember_stderr(void)
{
	int saved = errno;

	stderr_at_load.known = identify(2, &stderr_at_load.device, &stderr_at_load.inode);
	errno = saved;
}

static bool stderr_is_unchanged(void)
{
	uint64_t device, inode;

	return stderr_at_load.known && identify(2, &device, &inode) &&
	       device == stderr_at_load.device && inode == stderr_at_load.inode;
}

static uint64_t signal_bit(int number)
{
	return UINT64_C(1) << (number - 1);
}

/* Raw calls: pthread_sigmask is a symbol newer than glibc 2.31, and the kernel's set is 8
 * bytes. One that the program holds back itself may be pending already, and is then left to it. */
static void write_without_signals(int fd, const char *line, size_t len)
{
	const uint64_t raised = signal_bit(SIGPIPE) | signal_bit(SIGXFSZ);
	const uint64_t held = raised | signal_bit(SIGTTOU);
	const struct timespec at_once = { 0, 0 };
	struct pollfd ready = { .fd = fd, .events = POLLOUT };
	uint64_t before, take, pending = 0;

	if (syscall(SYS_ppoll, &ready, 1, &at_once, NULL, 8) != 1 ||
	    (ready.revents & (POLLERR | POLLNVAL)) || !(ready.revents & POLLOUT))
		return;
	syscall(SYS_rt_sigprocmask, SIG_BLOCK, &held, &before, 8);
	if (before & raised)
		syscall(SYS_rt_sigpending, &pending, 8);
	take = raised & ~pending;
	if (sys_write(fd, line, len) < 0 && (errno == EPIPE || errno == EFBIG) && take)
		syscall(SYS_rt_sigtimedwait, &take, NULL, &at_once, 8);
	syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before, NULL, 8);
}

static int open_log_file(const char *pattern)
{
	static char path[512]; /* not on the stack, of which a hook has little: under guard->lock */
	static struct utsname host;
	struct text t = text_begin(path, sizeof(path));

	for (; *pattern; pattern++) {
		if (pattern[0] != '%' || !pattern[1]) {
			text_char(&t, *pattern);
			continue;
		}
		pattern++;
		if (*pattern == 'p')
			text_number(&t, (uint64_t)getpid());
		else if (*pattern == 'h' && !uname(&host))
			text_put(&t, host.nodename);
		else
			text_char(&t, *pattern);
	}
	return sys_openat(AT_FDCWD, path,
			  O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC,
			  0600);
}

static void print(const struct guard *g, const char *line)
{
	static char out[LINE_BYTES]; /* under guard->lock */
	struct text t = text_begin(out, sizeof(out) - 1);
	size_t len;
	const char *file = g->standard.text[LOG_FILE];
	int fd;

	text_put(&t, "qpguard[");
	text_number(&t, g->header->pid);
	text_put(&t, "]: ");
	text_name(&t, line);
	len = strlen(out);
	out[len++] = '\n';
	if (file && *file) {
		fd = open_log_file(file);
		if (fd < 0)
			return;
		write_without_signals(fd, out, len);
		sys_close(fd);
	} else if (stderr_is_unchanged()) {
		write_without_signals(2, out, len);
	}
}

/* The oldest of those that stand in a record of their own too, else the oldest. */
static struct event_record *event_to_replace(struct guard *g, uint32_t used)
{
	struct event_record *oldest = NULL;

	for (uint32_t i = 0; i < used; i++) {
		struct event_record *e = file_record(g->file, KIND_EVENT, i);

		if (!oldest || e->is_failure > oldest->is_failure ||
		    (e->is_failure == oldest->is_failure && e->first_at < oldest->first_at))
			oldest = e;
	}
	return oldest;
}

/* The event with this text: an old one counted once more, or a new one. True when it is new. */
static bool keep_event(struct guard *g, enum log_level level, const char *line, bool is_failure)
{
	uint32_t used = atomic_load_explicit(&g->header->used[KIND_EVENT], memory_order_relaxed);
	struct event_record *e;
	uint64_t now = now_ns();
	uint32_t index;
	struct text t;

	for (uint32_t i = 0; i < used; i++) {
		e = file_record(g->file, KIND_EVENT, i);
		if (!strncmp(e->text, line, sizeof(e->text) - 1)) {
			atomic_fetch_add_explicit(&e->count, 1, memory_order_relaxed);
			atomic_store_explicit(&e->last_at, now, memory_order_relaxed);
			return false;
		}
	}
	e = file_add(g, KIND_EVENT, STATE_MAX_EVENTS, &index);
	if (!e && used)
		e = event_to_replace(g, used);
	if (!e)
		return true;
	atomic_fetch_add_explicit(&e->seq, 1, memory_order_acq_rel);
	t = text_begin(e->text, sizeof(e->text));
	text_put(&t, line);
	e->level = (uint8_t)level;
	e->is_failure = is_failure;
	atomic_store_explicit(&e->count, 1, memory_order_relaxed);
	atomic_store_explicit(&e->first_at, now, memory_order_relaxed);
	atomic_store_explicit(&e->last_at, now, memory_order_relaxed);
	atomic_store_explicit(&e->state, RECORD_LIVE, memory_order_relaxed);
	atomic_fetch_add_explicit(&e->seq, 1, memory_order_release);
	return true;
}

static bool rate_allows(struct guard *g)
{
	uint64_t tick = now_ns() / (SECONDS_PER_LINE * UINT64_C(1000000000));

	if (!g->log_tick)
		g->log_tokens = BURST;
	else if (tick > g->log_tick)
		g->log_tokens = (uint32_t)(g->log_tokens + (tick - g->log_tick) > BURST
						   ? BURST
						   : g->log_tokens + (tick - g->log_tick));
	g->log_tick = tick;
	if (!g->log_tokens) {
		g->log_held_back++;
		return false;
	}
	g->log_tokens--;
	return true;
}

static void tell(struct guard *g, enum log_level level, const char *line, bool is_failure)
{
	char more[80];
	struct text t;
	int saved = errno;

	if (keep_event(g, level, line, is_failure) && level <= g->standard.num[LOG_LEVEL] &&
	    rate_allows(g)) {
		if (g->log_held_back) {
			t = text_begin(more, sizeof(more));
			text_number(&t, g->log_held_back);
			text_put(&t, " lines were held back; the report has the latest");
			g->log_held_back = 0;
			print(g, more);
		}
		print(g, line);
	}
	errno = saved;
}

void log_line(struct guard *g, enum log_level level, const char *line)
{
	tell(g, level, line, false);
}

void log_failure(struct guard *g, enum log_level level, const char *line)
{
	tell(g, level, line, true);
}
