/* SPDX-License-Identifier: MIT */
/*
 * What stands around a creation that failed, beyond its request: locked memory, cgroups, how many objects there are, who
 * holds what. Limits are read from /proc/self and /sys/fs/cgroup when the guard begins and never later: the
 * program may have installed a filter that kills for opening a file. What is in use is what was then, and what
 * was seen to come since. Under guard->lock; calls no verbs.
 */
#include <errno.h>
#include <string.h>
#include <sys/resource.h>

#include "file.h"
#include "guard.h"
#include "surroundings.h"
#include "sys.h"
#include "../policy/explain.h"
#include "../policy/text.h"

#define NONE UINT64_MAX

/* As it was at the beginning of this process, or of a forked child. */
static struct {
	uint64_t memlock, pinned; /* pinned 0: the kernel counts none */
	bool may_lock;		  /* CAP_IPC_LOCK where the kernel heeds it */
	uint64_t memory_max, memory_current;
	char rdma_max[512], rdma_current[512];
	char text[4096];
} seen;

static uint64_t number_at(const char *s)
{
	uint64_t n = 0;

	while (*s == ' ' || *s == '\t')
		s++;
	if (*s < '0' || *s > '9')
		return NONE;
	while (*s >= '0' && *s <= '9' && n < UINT64_C(1) << 59)
		n = n * 10 + (uint64_t)(*s++ - '0');
	return n;
}

/* The number after `key` at the start of a line of seen.text, or NONE. */
static uint64_t field(const char *key)
{
	const char *p = seen.text;
	size_t len = strlen(key);

	while (p && strncmp(p, key, len) != 0) {
		p = strchr(p, '\n');
		p = p ? p + 1 : NULL;
	}
	return p ? number_at(p + len) : NONE;
}

static bool has_cap_ipc_lock(void)
{
	const char *p = strstr(seen.text, "\nCapEff:\t");
	unsigned int digit;

	/* sixteen digits, of which bit 14 is in the fourth from the end */
	if (!p || strnlen(p + 9, 16) < 16)
		return false;
	digit = (unsigned char)p[9 + 12];
	return (digit >= 'a' ? digit - 'a' + 10 : digit - '0') & 4;
}

/* In a user namespace the kernel does not heed it. */
static bool is_first_user_namespace(void)
{
	uint64_t inside, outside, count = NONE;
	const char *p = seen.text;

	if (sys_slurp("/proc/self/uid_map", seen.text, sizeof(seen.text)) < 0)
		return true;
	inside = number_at(p);
	p += strspn(p, " \t");
	p += strcspn(p, " \t");
	outside = number_at(p);
	p += strspn(p, " \t");
	p += strcspn(p, " \t");
	count = number_at(p);
	return !inside && !outside && count == UINT32_MAX;
}

static void look_at_memlock(void)
{
	struct rlimit limit;
	uint64_t pinned, locked;

	seen.memlock = !getrlimit(RLIMIT_MEMLOCK, &limit) && limit.rlim_cur != RLIM_INFINITY
			       ? limit.rlim_cur
			       : NONE;
	seen.pinned = 0;
	seen.may_lock = false;
	if (seen.memlock == NONE ||
	    sys_slurp("/proc/self/status", seen.text, sizeof(seen.text)) < 0)
		return;
	pinned = field("VmPin:");
	locked = field("VmLck:");
	seen.pinned = (pinned == NONE ? 0 : pinned * 1024) + (locked == NONE ? 0 : locked * 1024);
	seen.may_lock = has_cap_ipc_lock();
	seen.may_lock = seen.may_lock && is_first_user_namespace();
}

/*
 * A file of this process's cgroup: of version 2, or of the named controller of version 1. Where its own folder is not
 * there, as in a container that sees its cgroup as the root, the root's. Into seen.text.
 */
static bool slurp_cgroup(const char *controller, const char *file)
{
	char path[512], group[256] = "";
	const char *line;
	size_t len = strlen(controller);
	struct text t;

	if (sys_slurp("/proc/self/cgroup", seen.text, sizeof(seen.text)) < 0)
		return false;
	for (line = seen.text; line && *line; line = strchr(line, '\n')) {
		line += *line == '\n';
		line = strchr(line, ':');
		if (!line)
			return false;
		if (!strncmp(line + 1, controller, len) && line[1 + len] == ':')
			break;
	}
	if (!line || !*line)
		return false;
	line += len + 2;
	len = strcspn(line, "\n");
	if (len >= sizeof(group))
		return false;
	memcpy(group, line, len);
	for (int whole = 1; whole >= 0; whole--) {
		t = text_begin(path, sizeof(path));
		text_put(&t, "/sys/fs/cgroup/");
		text_put(&t, controller);
		text_put(&t, whole ? group : "");
		text_char(&t, '/');
		text_put(&t, file);
		if (sys_slurp(path, seen.text, sizeof(seen.text)) >= 0)
			return true;
	}
	return false;
}

static uint64_t cgroup_number(const char *v2, const char *v1)
{
	uint64_t n =
		slurp_cgroup("", v2) || slurp_cgroup("memory", v1) ? number_at(seen.text) : NONE;

	return n >= UINT64_C(1) << 59 ? NONE : n; /* version 1 writes none so */
}

static void keep_rdma(const char *file, char *out, size_t size)
{
	struct text t = text_begin(out, size);

	if (slurp_cgroup("", file) || slurp_cgroup("rdma", file))
		text_put(&t, seen.text);
}

void surroundings_begin(void)
{
	look_at_memlock();
	seen.memory_max = cgroup_number("memory.max", "memory.limit_in_bytes");
	seen.memory_current = seen.memory_max == NONE
				      ? NONE
				      : cgroup_number("memory.current", "memory.usage_in_bytes");
	keep_rdma("rdma.max", seen.rdma_max, sizeof(seen.rdma_max));
	keep_rdma("rdma.current", seen.rdma_current, sizeof(seen.rdma_current));
}

/* "mlx5_0 hca_handle=2 hca_object=2000" */
static uint64_t rdma_objects(const char *lines, const char *device)
{
	const char *line, *object;
	size_t len = strlen(device);

	for (line = lines; line && *line; line = strchr(line, '\n')) {
		line += *line == '\n';
		object = strstr(line, "hca_object=");
		if (object && !strncmp(line, device, len) && line[len] == ' ')
			return number_at(object + 11);
	}
	return NONE;
}

/* --- the reasons --- */

static bool explain_memlock(const struct guard *g, uint64_t bytes, struct failure_reason *out)
{
	uint64_t pinned = seen.pinned + g->used[BUDGET_PROCESS_BYTES] + g->used[BUDGET_MR_BYTES];

	if (seen.memlock == NONE || !bytes || pinned > seen.memlock ||
	    bytes <= seen.memlock - pinned)
		return false;
	out->reason = REASON_MEMLOCK;
	out->asked = bytes;
	out->limit = seen.memlock;
	out->number[MEMLOCK_PINNED] = pinned;
	out->number[MEMLOCK_CAPABLE] = seen.may_lock;
	return true;
}

static bool explain_cgroup(const struct guard *g, const struct device *d, uint64_t bytes,
			   struct failure_reason *out)
{
	uint64_t most, used, memory = seen.memory_current + g->used[BUDGET_PROCESS_BYTES];

	if (seen.memory_max != NONE && seen.memory_current != NONE &&
	    memory + bytes > seen.memory_max) {
		out->reason = REASON_CGROUP_MEMORY;
		out->asked = bytes;
		out->limit = seen.memory_max;
		out->number[0] = memory;
		return true;
	}
	if (!d)
		return false;
	most = rdma_objects(seen.rdma_max, d->record->name);
	used = rdma_objects(seen.rdma_current, d->record->name);
	used = (used == NONE ? 0 : used) + g->used[BUDGET_QPS] + g->used[BUDGET_CQS] +
	       g->used[BUDGET_SRQS] + g->used[BUDGET_MRS];
	if (most == NONE || used < most)
		return false;
	out->reason = REASON_CGROUP_RDMA;
	out->asked = used;
	out->limit = most;
	return true;
}

static uint64_t qps_on(struct guard *g, const struct device *d)
{
	uint32_t used = atomic_load_explicit(&g->header->used[KIND_GROUP], memory_order_relaxed);
	uint64_t qps = 0;

	for (uint32_t i = 0; i < used; i++) {
		const struct group_record *r = file_record(g->file, KIND_GROUP, i);

		if (r->kind == KIND_QP && r->device == d->index)
			qps += r->live;
	}
	return qps;
}

static void explain_counts(struct guard *g, const struct device *d, enum guarded_call call,
			   struct failure_reason *out)
{
	uint64_t qps = d ? qps_on(g, d) : 0;
	uint32_t most = limits_of(d)->max_qp;

	if (call == CALL_CREATE_QP && most && qps >= most / 2) {
		out->reason = REASON_COUNT;
		out->asked = qps;
		out->limit = most;
		return;
	}
	out->reason = REASON_EXHAUSTED;
	out->number[STATE_CONTEXTS] = d ? d->record->contexts : 0;
	out->number[STATE_QPS] = qps;
	out->number[STATE_QUEUE_BYTES] = d ? d->record->bytes : 0;
	out->number[STATE_MAX_QP] = most;
}

void explain_resources(struct guard *g, const struct device *d, enum guarded_call call,
		       uint64_t bytes, int error, struct failure_reason *out)
{
	if (error != ENOMEM && error != EAGAIN && error != EPERM && error != ENOSPC)
		return;
	if (!seen.may_lock && explain_memlock(g, bytes, out))
		return;
	if (explain_cgroup(g, d, bytes, out))
		return;
	if (error == EPERM)
		return;
	if (explain_memlock(g, bytes, out))
		return;
	explain_counts(g, d, call, out);
}

void explain_holders(struct guard *g, enum guarded_call call, uint32_t id,
		     struct failure_reason *out)
{
	uint32_t used = atomic_load_explicit(&g->header->used[KIND_QP], memory_order_relaxed);

	for (uint32_t i = 0; i < used; i++) {
		const struct qp_record *r = file_record(g->file, KIND_QP, i);
		bool holds = call == CALL_DESTROY_CQ ? r->send_cq == id || r->recv_cq == id
						     : r->srq == id;

		if (r->state != RECORD_LIVE || !holds)
			continue;
		if (!out->asked++)
			out->number[0] = r->qp_num;
	}
	if (out->asked)
		out->reason = REASON_BUSY;
}
