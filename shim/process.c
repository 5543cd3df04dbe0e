/* SPDX-License-Identifier: MIT */
/*
 * The life of the guard in a process: begun at the first verbs call, begun anew in a forked child at its
 * first, sealed at exit. Reads the environment, the policy file and /proc/self; a process that makes
 * no verbs call gets nothing from here.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <time.h>

#include "config.h"
#include "file.h"
#include "guard.h"
#include "inject.h"
#include "log.h"
#include "memory.h"
#include "real.h"
#include "surroundings.h"
#include "sys.h"
#include "../policy/text.h"

#define POLICY_FILE_BYTES (1u << 20)
#define COMPLAINTS	  16

extern char **environ;

struct lookup qps_by_address = LOOKUP(struct hot_qp, qp);
struct lookup qps_by_number = LOOKUP(struct hot_qp, number);
struct lookup cqs = LOOKUP(struct hot_cq, cq);
struct lookup srqs = LOOKUP(struct hot_srq, srq);

static _Atomic(struct guard *) the_guard;
/* Outside wiped memory: how a child knows that it is one, and whose. Set when the guard of a process has begun. */
static _Atomic uint32_t guarded_pid;
/* What its tables held, where they had to be emptied by hand. */
static struct inheritance {
	uint64_t qps, cqs, srqs;
} left;
static _Thread_local int nesting __attribute__((tls_model("initial-exec")));

bool guard_nested(void)
{
	return nesting > 0;
}

void guard_nest(int step)
{
	nesting += step;
}

uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

void guard_lock(struct guard *g)
{
	atomic_fetch_add(&g->lock_wanted, 1);
	pthread_mutex_lock(&g->lock);
}

void guard_unlock(struct guard *g)
{
	pthread_mutex_unlock(&g->lock);
	atomic_fetch_sub(&g->lock_wanted, 1);
}

/* pthread_mutex_trylock is a symbol newer than glibc 2.31. */
bool guard_trylock(struct guard *g)
{
	uint32_t nobody = 0;

	if (!atomic_compare_exchange_strong(&g->lock_wanted, &nobody, 1))
		return false;
	pthread_mutex_lock(&g->lock);
	return true;
}

/* Only while the guard begins: what the policy's author should hear, kept until there is a log. */
struct beginning {
	struct policy *policy;
	struct policy_values values;
	char exe[1024];
	char comm[16];
	char policy_file[512];
	struct inheritance inherited;
	char scratch[4096];
	uint32_t complaints;
	char complaint[COMPLAINTS][256];
	char why[640];
};

static void keep_complaint(void *arg, const struct policy_complaint *c)
{
	struct beginning *b = arg;
	struct text t;

	if (b->complaints++ >= COMPLAINTS)
		return;
	t = text_begin(b->complaint[b->complaints - 1], sizeof(b->complaint[0]));
	text_name(&t, c->file);
	if (c->line) {
		text_char(&t, ':');
		text_number(&t, c->line);
	}
	text_put(&t, ": ");
	text_put(&t, c->text);
}

static void complain(struct beginning *b, const char *where, const char *what)
{
	struct policy_complaint c = { .file = where, .text = what };

	keep_complaint(b, &c);
}

/* The policy file: QPGUARD_CONF, which must then be readable, or the system's if there is one. */
static void read_policy_file(struct beginning *b)
{
	const char *chosen = secure_getenv("QPGUARD_CONF");
	const char *path = chosen && *chosen ? chosen : "/etc/qpguard.conf";
	char *text = memory_map(POLICY_FILE_BYTES + 1);
	struct text t;
	ssize_t len;

	if (!text)
		return;
	len = sys_slurp(path, text, POLICY_FILE_BYTES + 1);
	if (len < 0) {
		if (path == chosen)
			complain(b, path,
				 "the policy file cannot be read: its limits are not in force");
		memory_unmap(text, POLICY_FILE_BYTES + 1);
		return;
	}
	if (len == POLICY_FILE_BYTES)
		complain(b, path, "the policy file is longer than 1 MiB: the rest is not read");
	t = text_begin(b->policy_file, sizeof(b->policy_file));
	text_put(&t, path);
	policy_parse(b->policy, path, text, (size_t)len, keep_complaint, b);
	memory_unmap(text, POLICY_FILE_BYTES + 1);
}

static void read_variables(struct beginning *b)
{
	char name[128];

	for (char **e = environ; e && *e; e++) {
		const char *equals = strchr(*e, '=');

		if (strncmp(*e, "QPGUARD", 7) || !equals || (size_t)(equals - *e) >= sizeof(name))
			continue;
		memcpy(name, *e, (size_t)(equals - *e));
		name[equals - *e] = '\0';
		if (!strcmp(name, "QPGUARD")) {
			if (strcmp(equals + 1, "on") && equals[1])
				complain(b, name, "only 'off' and 'on' are known: the guard is on");
		} else {
			policy_variable(b->policy, name, equals + 1, keep_complaint, b);
		}
	}
}

/* --- who this is --- */

/* Field 22 of /proc/self/stat, counted after the program's name, which may hold anything. */
static uint64_t start_ticks(char *scratch, size_t size)
{
	const char *p;
	uint64_t ticks = 0;

	if (sys_slurp("/proc/self/stat", scratch, size) < 0 || !(p = strrchr(scratch, ')')))
		return 0;
	for (unsigned int field = 2; field < 22 && p; field++) {
		p = strchr(p, ' ');
		p = p ? p + 1 : NULL;
	}
	while (p && *p >= '0' && *p <= '9')
		ticks = ticks * 10 + (uint64_t)(*p++ - '0');
	return ticks;
}

static uint64_t number_or_max(const char *s)
{
	uint64_t n = 0;

	if (*s < '0' || *s > '9')
		return UINT64_MAX;
	while (*s >= '0' && *s <= '9')
		n = n * 10 + (uint64_t)(*s++ - '0');
	return n;
}

/* cgroup version 2 alone: the one line "0::/path". */
static uint64_t cgroup_memory_max(char *scratch, size_t size)
{
	char path[512];
	struct text t = text_begin(path, sizeof(path));
	char *line;

	if (sys_slurp("/proc/self/cgroup", scratch, size) < 0 || !(line = strstr(scratch, "0::/")))
		return UINT64_MAX;
	line[strcspn(line, "\n")] = '\0';
	text_put(&t, "/sys/fs/cgroup");
	text_put(&t, line + 3);
	text_put(&t, "/memory.max");
	if (sys_slurp(path, scratch, size) < 0)
		return UINT64_MAX;
	return number_or_max(scratch);
}

static void add_label(struct text *t, const char *label, const char *variable)
{
	const char *value = secure_getenv(variable);

	if (!value || !*value)
		return;
	if (t->len)
		text_char(t, ',');
	text_put(t, label);
	text_char(t, '=');
	text_name(t, value);
}

static void fill_labels(struct state_header *h)
{
	struct text t = text_begin(h->labels, sizeof(h->labels));
	const char *chosen = secure_getenv("QPGUARD_LABELS");

	if (chosen) {
		text_name(&t, chosen);
		return;
	}
	add_label(&t, "job", "SLURM_JOB_ID");
	add_label(&t, "rank",
		  secure_getenv("SLURM_PROCID") ? "SLURM_PROCID" : "OMPI_COMM_WORLD_RANK");
	add_label(&t, "pod", "POD_NAME");
}

static void fill_header(struct state_header *h, void *arg)
{
	struct beginning *b = arg;
	struct utsname host;
	struct rlimit memlock;
	struct statx st;
	ssize_t n;

	memcpy(h->magic, STATE_MAGIC, sizeof(h->magic));
	h->version = STATE_VERSION;
	h->byte_order = STATE_BYTE_ORDER;
	h->header_bytes = STATE_HEADER_BYTES;
	h->block_header_bytes = STATE_BLOCK_HEADER_BYTES;
	h->pid = (uint32_t)getpid();
	h->uid = (uint32_t)geteuid();
	h->parent_pid = guarded_pid;
	h->inherited_qps = (uint32_t)b->inherited.qps;
	h->inherited_cqs = (uint32_t)b->inherited.cqs;
	h->inherited_srqs = (uint32_t)b->inherited.srqs;
	if (sys_stat_path("/proc/self/ns/pid", &st))
		h->pid_namespace = st.stx_ino;
	h->start_ticks = start_ticks(b->scratch, sizeof(b->scratch));
	h->started_at = now_ns();
	h->memlock_bytes = !getrlimit(RLIMIT_MEMLOCK, &memlock) && memlock.rlim_cur != RLIM_INFINITY
				   ? memlock.rlim_cur
				   : UINT64_MAX;
	h->cgroup_memory_max = cgroup_memory_max(b->scratch, sizeof(b->scratch));
	h->args_recorded = b->values.num[REPORT_ARGS] != 0;
	h->policy_complaints = b->complaints;
	for (unsigned int k = 0; k < BUDGET_LIMITS; k++) {
		bool limited = b->values.set >> k & 1;
		bool own = b->values.set >> (BUDGET_ACTION_OF + k) & 1;

		h->budget[k].limit = limited ? b->values.num[k] : UINT64_MAX;
		h->budget[k].action =
			(uint32_t)b->values.num[own ? BUDGET_ACTION_OF + k : BUDGET_ACTION];
	}
	for (uint32_t i = 0; i < b->policy->settings; i++) {
		const struct policy_setting *s = &b->policy->setting[i];

		if (s->key < BUDGET_LIMITS && b->policy->section[s->section].conditions)
			h->budget[s->key].conditional = 1;
	}
	memcpy(h->guard_version, PACKAGE_VERSION, sizeof(PACKAGE_VERSION));
	memcpy(h->comm, b->comm, sizeof(h->comm));
	memcpy(h->exe, b->exe, sizeof(h->exe));
	memcpy(h->policy_file, b->policy_file, sizeof(h->policy_file));
	if (!uname(&host))
		memcpy(h->host, host.nodename, sizeof(host.nodename));
	n = sys_slurp("/proc/self/cmdline", b->scratch, sizeof(b->scratch));
	if (n > 0)
		memcpy(h->argv0, b->scratch,
		       h->args_recorded
			       ? (size_t)n < sizeof(h->argv0) ? (size_t)n : sizeof(h->argv0) - 1
			       : strnlen(b->scratch, sizeof(h->argv0) - 1));
	fill_labels(h);
}

static void find_program(struct beginning *b)
{
	ssize_t n = readlink("/proc/self/exe", b->exe, sizeof(b->exe) - 1);

	b->exe[n > 0 ? n : 0] = '\0';
	n = sys_slurp("/proc/self/comm", b->comm, sizeof(b->comm));
	if (n > 0 && b->comm[n - 1] == '\n')
		b->comm[n - 1] = '\0';
}

/* The tables still tell what the parent had. They are kept in a child; the records that they lead to are wiped. */
static struct inheritance tables_hold(void)
{
	return (struct inheritance){ qps_by_address.live, cqs.live, srqs.live };
}

static void inherit(struct guard *g, struct inheritance *out)
{
	if (!guarded_pid)
		return;
	*out = tables_hold();
	out->qps += left.qps;
	out->cqs += left.cqs;
	out->srqs += left.srqs;
	left = (struct inheritance){ 0, 0, 0 };
	g->inherited_contexts = last_serial();
}

static bool make_tables(void)
{
	return lookup_init(&qps_by_address) && lookup_init(&qps_by_number) && lookup_init(&cqs) &&
	       lookup_init(&srqs) && lookup_init(&regions) && lookup_init(&wqs) &&
	       lookup_init(&devxs) && lookup_init_front(&cqs);
}

/* Under g->lock, once per process. False without memory: the guard then stays out of the way. */
static bool begin(struct guard *g)
{
	struct policy_subject self = { "", "", "", "", "", "", 0 };
	struct beginning *b = memory_map(sizeof(*b));

	if (!b || !(g->policy = memory_map(sizeof(*g->policy))))
		return false;
	inherit(g, &b->inherited);
	if (!make_tables())
		return false;
	stack_begin();
	b->policy = g->policy;
	policy_init(b->policy);
	find_program(b);
	read_policy_file(b);
	read_variables(b);
	self.program = b->exe;
	self.comm = b->comm;
	policy_resolve(g->policy, &self, &b->values);
	g->standard = b->values;
	g->file =
		file_begin(&b->values, (uint32_t)geteuid(), fill_header, b, b->why, sizeof(b->why));
	if (!g->file)
		return false;
	g->header = file_header(g->file);
	guarded_pid = g->header->pid;
	for (uint32_t i = 0; i < b->complaints && i < COMPLAINTS; i++)
		log_line(g, LOG_WARN, b->complaint[i]);
	if (b->why[0])
		log_line(g, LOG_WARN, b->why);
	inject_say(g);
	surroundings_begin();
	memory_unmap(b, sizeof(*b));
	return true;
}

/* Where children do not find their memory wiped (an old kernel, a sandbox that lacks the
 * advice): what the wiping would have done. A child by a bare clone remains a second hand in
 * its parent's file there. */
static void in_child(void)
{
	struct guard *g = atomic_load_explicit(&the_guard, memory_order_relaxed);

	if (!g)
		return;
	if (g->file)
		file_leave(g->file);
	atomic_store_explicit(&the_guard, NULL, memory_order_relaxed);
	left = tables_hold();
	lookup_wipe(&qps_by_address);
	lookup_wipe(&qps_by_number);
	lookup_wipe(&cqs);
	lookup_wipe(&srqs);
	lookup_wipe(&regions);
	lookup_wipe(&wqs);
	lookup_wipe(&devxs);
}

static void watch_forks(void)
{
	static bool watched;

	if (!watched && !memory_is_wiped_on_fork())
		watched = !pthread_atfork(NULL, NULL, in_child);
}

static struct guard *begin_once(void)
{
	struct guard *g = atomic_load_explicit(&the_guard, memory_order_acquire);
	struct guard *none = NULL;
	uint32_t ready;

	if (!g) {
		g = memory_map(sizeof(*g));
		if (!g)
			return NULL;
		if (!atomic_compare_exchange_strong(&the_guard, &none, g))
			g = none;
	}
	guard_lock(g);
	ready = atomic_load_explicit(&g->ready, memory_order_relaxed);
	if (!ready) {
		watch_forks();
		ready = begin(g) ? GUARD_READY : GUARD_FAILED;
		atomic_store_explicit(&g->ready, ready, memory_order_release);
	}
	guard_unlock(g);
	guard_tell_lookups();
	return ready == GUARD_READY ? g : NULL;
}

bool guard_bypassed(void)
{
	static _Atomic int bypass; /* 0: not looked, 1: off, 2: on */

	if (!bypass) {
		const char *value = secure_getenv("QPGUARD");

		bypass = value && !strcmp(value, "off") ? 1 : 2;
	}
	return bypass == 1;
}

/* The state file of another thread's making is not waited for: it is told when it begins. */
void guard_tell_lookups(void)
{
	struct guard *g = atomic_load_explicit(&the_guard, memory_order_acquire);

	if (g && atomic_load_explicit(&g->ready, memory_order_acquire) == GUARD_READY)
		atomic_store_explicit(&g->header->looked_up, lookups_handed_out(),
				      memory_order_relaxed);
}

struct guard *guard_enter(void)
{
	struct guard *g = atomic_load_explicit(&the_guard, memory_order_acquire);
	int saved = errno;

	if (likely(g && atomic_load_explicit(&g->ready, memory_order_acquire) == GUARD_READY))
		return g;
	g = NULL;
	if (!guard_bypassed()) {
		/* A child's are found; it may not ask the loader, whose lock a thread of the parent
		 * may have held. */
		if (!guarded_pid)
			real_find_early();
		g = begin_once();
	}
	errno = saved;
	return g;
}

void inherited_used(const struct context_hooks *hooks, enum inherited_use use, uint64_t n)
{
	struct guard *g = hooks ? guard_enter() : NULL;

	if (g && hooks->serial <= g->inherited_contexts)
		atomic_fetch_add_explicit(&g->header->inherited_uses[use], n, memory_order_relaxed);
}

/* Verbs calls that come later, from destructors that run after this one, are still recorded. */
__attribute__((destructor)) static void end(void)
{
	struct guard *g = atomic_load_explicit(&the_guard, memory_order_acquire);

	if (g && atomic_load_explicit(&g->ready, memory_order_acquire) == GUARD_READY) {
		failures_end(g);
		file_end(g->file);
	}
}
