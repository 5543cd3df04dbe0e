/* SPDX-License-Identifier: MIT */
/*
 * The table of keys and everything that deals in names: looking one up, and the nearest to one that
 * does not exist. Touches nothing.
 */
#include "keys.h"

#include <errno.h>

#define NO_LIMIT UINT64_MAX
#define ACTIONS	 "observe|refuse|clamp"

#define LIMIT_ACTION(name)                                                     \
	{                                                                      \
		"budget", name ".action", VALUE_WORD, ACTIONS, ACTION_OBSERVE, \
			"the action for " name                                 \
	}

/* In the order of enum policy_key. */
const struct policy_key_info policy_keys[POLICY_KEYS] = {
	{ "budget", "process_bytes", VALUE_SIZE, NULL, NO_LIMIT, "queue memory of a process" },
	{ "budget", "device_bytes", VALUE_SIZE, NULL, NO_LIMIT,
	  "queue memory of a process on one device" },
	{ "budget", "bytes_per_qp", VALUE_SIZE, NULL, NO_LIMIT, "queue memory of one QP" },
	{ "budget", "node_bytes", VALUE_SIZE, NULL, NO_LIMIT,
	  "queue memory of all guarded processes that share QPGUARD_DIR" },
	{ "budget", "qps", VALUE_COUNT, NULL, NO_LIMIT, "QPs of a process" },
	{ "budget", "cqs", VALUE_COUNT, NULL, NO_LIMIT, "CQs of a process" },
	{ "budget", "srqs", VALUE_COUNT, NULL, NO_LIMIT, "SRQs of a process" },
	{ "budget", "send_wrs", VALUE_COUNT, NULL, NO_LIMIT, "send depths of a process, summed" },
	{ "budget", "recv_wrs", VALUE_COUNT, NULL, NO_LIMIT,
	  "receive depths of a process, of QPs and SRQs, summed" },
	{ "budget", "cqes", VALUE_COUNT, NULL, NO_LIMIT, "CQ entries of a process, summed" },
	{ "budget", "mrs", VALUE_COUNT, NULL, NO_LIMIT, "memory regions of a process" },
	{ "budget", "mr_bytes", VALUE_SIZE, NULL, NO_LIMIT, "registered memory of a process" },
	{ "budget", "action", VALUE_WORD, ACTIONS, ACTION_OBSERVE,
	  "what a request beyond a limit gets: counted, ENOMEM, or shallower queues" },
	LIMIT_ACTION("process_bytes"),
	LIMIT_ACTION("device_bytes"),
	LIMIT_ACTION("bytes_per_qp"),
	LIMIT_ACTION("node_bytes"),
	LIMIT_ACTION("qps"),
	LIMIT_ACTION("cqs"),
	LIMIT_ACTION("srqs"),
	LIMIT_ACTION("send_wrs"),
	LIMIT_ACTION("recv_wrs"),
	LIMIT_ACTION("cqes"),
	LIMIT_ACTION("mrs"),
	LIMIT_ACTION("mr_bytes"),
	{ "clamp", "max_send_wr", VALUE_COUNT, NULL, NO_LIMIT, "most send requests of a QP" },
	{ "clamp", "max_recv_wr", VALUE_COUNT, NULL, NO_LIMIT,
	  "most receive requests of a QP or an SRQ" },
	{ "clamp", "max_send_sge", VALUE_COUNT, NULL, NO_LIMIT, "most SGEs of a send request" },
	{ "clamp", "max_recv_sge", VALUE_COUNT, NULL, NO_LIMIT, "most SGEs of a receive request" },
	{ "clamp", "max_inline_data", VALUE_SIZE, NULL, NO_LIMIT,
	  "most inline data of a send request" },
	{ "clamp", "max_cqe", VALUE_COUNT, NULL, NO_LIMIT, "most entries of a CQ" },
	{ "clamp", "to_device", VALUE_WORD, "no|yes", 0,
	  "whether a request that the device cannot meet becomes the nearest that it can" },
	{ "clamp", "keep", VALUE_WORD, "sge|depth", KEEP_SGE, "what to_device lowers last" },
	{ "cq", "check", VALUE_WORD, "off|warn|grow", CQ_CHECK_OFF,
	  "whether the requests bound to a CQ are held against its size" },
	{ "state", "keep", VALUE_SECONDS, NULL, 7 * 86400, "how long dead processes are kept" },
	{ "state", "max_files", VALUE_COUNT, NULL, 1000, "most state files of dead processes" },
	{ "state", "max_bytes", VALUE_SIZE, NULL, 32 << 20,
	  "most bytes of state files of dead processes" },
	{ "state", "group", VALUE_TEXT, NULL, 0, "the group that may read folder and files" },
	{ "log", "level", VALUE_WORD, "off|warn|info|debug", LOG_WARN, "how much is logged" },
	{ "log", "file", VALUE_TEXT, NULL, 0,
	  "where to; %p is the pid, %h the host; standard error if not set" },
	{ "report", "args", VALUE_WORD, "no|yes", 0,
	  "whether arguments beyond argv[0] are recorded" },
	{ "inject", "create_qp", VALUE_TURN, NULL, 0, "which creations of QPs fail on purpose" },
	{ "inject", "create_cq", VALUE_TURN, NULL, 0, "which creations of CQs fail on purpose" },
	{ "inject", "reg_mr", VALUE_TURN, NULL, 0, "which registrations fail on purpose" },
	{ "inject", "post_send", VALUE_TURN, NULL, 0,
	  "which calls of ibv_post_send are refused as full" },
	{ "inject", "create_qp.errno", VALUE_ERRNO, NULL, ENOMEM, "with what create_qp fails" },
	{ "inject", "create_cq.errno", VALUE_ERRNO, NULL, ENOMEM, "with what create_cq fails" },
	{ "inject", "reg_mr.errno", VALUE_ERRNO, NULL, ENOMEM, "with what reg_mr fails" },
	{ "inject", "seed", VALUE_COUNT, NULL, 1, "another seed hits other calls of a share" },
};

const char *const policy_sections[] = {
	"budget", "clamp", "cq", "state", "log", "report", "measure", "audit", "inject",
};
const unsigned int policy_section_count = sizeof(policy_sections) / sizeof(policy_sections[0]);

const struct future_key future_keys[] = {
	{ "measure", "latency" },     { "measure", "sge_histogram" },
	{ "measure", "durations" },   { "measure", "empty_polls" },
	{ "audit", "page_crossing" }, { "audit", "atomic_alignment" },
};
const unsigned int future_key_count = sizeof(future_keys) / sizeof(future_keys[0]);

unsigned int key_find(const char *section, struct span name)
{
	unsigned int key = 0;

	while (key < POLICY_KEYS && !(span_is(span_of(section), policy_keys[key].section) &&
				      span_is(name, policy_keys[key].name)))
		key++;
	return key;
}

bool key_is_future(const char *section, struct span name)
{
	for (unsigned int i = 0; i < future_key_count; i++)
		if (span_is(span_of(section), future_keys[i].section) &&
		    (!future_keys[i].name[0] || span_is(name, future_keys[i].name)))
			return true;
	return false;
}

enum { DISTANCE_MOST = 64 };

static unsigned int min3(unsigned int a, unsigned int b, unsigned int c)
{
	a = a < b ? a : b;
	return a < c ? a : c;
}

unsigned int edit_distance(struct span a, struct span b)
{
	uint8_t row[3][DISTANCE_MOST + 1], *above2 = row[0], *above = row[1], *here = row[2];
	size_t n = a.len < DISTANCE_MOST ? a.len : DISTANCE_MOST;
	size_t m = b.len < DISTANCE_MOST ? b.len : DISTANCE_MOST;

	for (size_t j = 0; j <= m; j++)
		above[j] = above2[j] = (uint8_t)j;
	for (size_t i = 1; i <= n; i++) {
		uint8_t *oldest = above2;

		here[0] = (uint8_t)i;
		for (size_t j = 1; j <= m; j++) {
			bool same = lower(a.at[i - 1]) == lower(b.at[j - 1]);
			unsigned int d =
				min3(above[j] + 1u, here[j - 1] + 1u, above[j - 1] + !same);

			if (i > 1 && j > 1 && lower(a.at[i - 1]) == lower(b.at[j - 2]) &&
			    lower(a.at[i - 2]) == lower(b.at[j - 1]) && above2[j - 2] + 1u < d)
				d = above2[j - 2] + 1u;
			here[j] = (uint8_t)d;
		}
		above2 = above;
		above = here;
		here = oldest;
	}
	return above[m];
}

void nearest_offer(struct nearest *n, const char *candidate)
{
	unsigned int d = edit_distance(n->name, span_of(candidate));

	if (n->best && d >= n->distance)
		return;
	n->best = candidate;
	n->distance = d;
}
