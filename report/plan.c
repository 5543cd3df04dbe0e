/* SPDX-License-Identifier: MIT */
/*
 * `qpguard plan`: what queues of a given size would take, without a run: the caps that would come back, the bytes
 * of the rings and of all QPs with their CQs, by each provider's own formulas and by the rule of thumb.
 * Reads nothing but its arguments.
 */
#include "tool.h"

#include <getopt.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../policy/reason.h"
#include "../policy/saturate.h"
#include "show.h"
#include "table.h"

static const char usage_text[] =
	"usage: qpguard plan [OPTIONS]\n"
	"\n"
	"What QPs of a given size would take, without a run: the caps that come back, the bytes, "
	"the CQ that holds\n"
	"their completions, by each provider's formulas and by the rule of thumb (64 bytes and 16 "
	"per SGE).\n"
	"\n"
	"  --driver NAME      one provider (mlx5, rxe, irdma, ...; default: all, side by side)\n"
	"  --qps N            how many QPs (1)\n"
	"  --type TYPE        RC, UC, UD, RAW_PACKET or XRC_SEND (RC)\n"
	"  --send-wr N, --send-sge N, --recv-wr N, --recv-sge N, --inline BYTES\n"
	"                     the caps asked for (128, 1, 128, 1, 0)\n"
	"  --srq              receives come from an SRQ, which is not counted\n"
	"  --ops OP,...       made with IBV_QP_INIT_ATTR_SEND_OPS_FLAGS: write, write_imm, send, "
	"send_imm, read,\n"
	"                     cmp_swp, fetch_add, local_inv, bind_mw, send_inv, tso\n"
	"  --tso-header BYTES of RAW_PACKET with tso\n"
	"  --qps-per-cq N     QPs that share a CQ (1)\n"
	"  --max-qp-wr N, --max-sge N, --max-cqe N\n"
	"                     limits of the device, from ibv_devinfo -v (not known)\n"
	"  --memory SIZE      what there is: does it fit?\n"
	"  --format text|json\n"
	"\n"
	"Exit status: 0 it can be made and fits, 1 it is refused or does not fit, 2 usage.\n";

struct plan {
	struct qp_request request;
	struct device_facts facts;
	const struct geometry *only; /* NULL: all */
	uint64_t qps, qps_per_cq, memory;
	bool json;
};

/* What a plan comes to with one provider. */
struct outcome {
	const struct geometry *geometry;
	struct prediction qp, cq;
	uint32_t cqe; /* that holds what can be outstanding */
	uint64_t qp_bytes, cq_bytes, cqs, all_bytes;
	bool has_best[2]; /* of a refused one, by enum fit_keep */
	struct qp_caps best[2];
};

/* What can be outstanding on a CQ of so many QPs at once. */
static uint32_t entries_needed(const struct plan *p, const struct qp_caps *effective)
{
	uint64_t each = effective->max_send_wr;

	if (!p->request.has_srq)
		each += effective->max_recv_wr;
	return (uint32_t)least(saturating_mul(each, p->qps_per_cq), INT32_MAX);
}

static void work_out(const struct plan *p, const struct geometry *g, struct outcome *o)
{
	*o = (struct outcome){ .geometry = g };
	geometry_predict_qp(g, &p->request, &p->facts, &o->qp);
	if (o->qp.fate == FATE_UNKNOWN)
		o->qp.caps = p->request.caps;
	for (unsigned int keep = 0; keep < 2 && o->qp.fate == FATE_REFUSED; keep++)
		o->has_best[keep] =
			fit_largest(g, &p->facts, FIT_QP, (enum fit_keep)keep,
				    p->request.caps.max_inline_data, &p->request, &o->best[keep]);
	o->cqe = entries_needed(p, &o->qp.caps);
	if (o->cqe)
		geometry_predict_cq(g, o->cqe, &p->facts, &o->cq);
	o->qp_bytes = queue_bytes_total(&o->qp.bytes);
	o->cq_bytes = queue_bytes_total(&o->cq.bytes);
	o->cqs = o->cqe ? (p->qps + p->qps_per_cq - 1) / p->qps_per_cq : 0;
	o->all_bytes = saturating_add(saturating_mul(o->qp_bytes, p->qps),
				      saturating_mul(o->cq_bytes, o->cqs));
}

static bool is_fine(const struct plan *p, const struct outcome *o)
{
	return o->qp.fate != FATE_REFUSED && o->cq.fate != FATE_REFUSED &&
	       o->all_bytes <= p->memory;
}

static const char *name_of(const struct geometry *g)
{
	return *g->driver ? g->driver : "rule of thumb";
}

/* --- text --- */

static void show_caps(char *out, size_t size, const struct qp_caps *c)
{
	int n = snprintf(out, size, "%" PRIu32 "x%" PRIu32 "/%" PRIu32 "x%" PRIu32, c->max_send_wr,
			 c->max_send_sge, c->max_recv_wr, c->max_recv_sge);

	if (c->max_inline_data && n > 0 && (size_t)n < size)
		snprintf(out + n, size - (size_t)n, "+%" PRIu32, c->max_inline_data);
}

static void note_refusal(struct table *t, const struct outcome *o)
{
	const struct qp_caps *deep = &o->best[KEEP_DEPTH], *wide = &o->best[KEEP_SGE];

	if (o->has_best[KEEP_SGE])
		table_note(t,
			   "takes at most %" PRIu32 " sends of %" PRIu32 " SGEs and %" PRIu32
			   " receives of %" PRIu32,
			   wide->max_send_wr, wide->max_send_sge, wide->max_recv_wr,
			   wide->max_recv_sge);
	if (o->has_best[KEEP_DEPTH] && memcmp(deep, wide, sizeof(*deep)) != 0)
		table_note(t,
			   "or %" PRIu32 " sends of %" PRIu32 " SGEs and %" PRIu32
			   " receives of %" PRIu32,
			   deep->max_send_wr, deep->max_send_sge, deep->max_recv_wr,
			   deep->max_recv_sge);
}

/* A CQ that is one entry smaller, where that costs much less. */
static void note_cheaper_cq(const struct plan *p, struct table *t, const struct outcome *o)
{
	struct prediction less;
	char one[SHOW_BYTES], other[SHOW_BYTES];

	if (o->cqe < 2 || o->cq.fate == FATE_REFUSED)
		return;
	geometry_predict_cq(o->geometry, o->cqe - 1, &p->facts, &less);
	if (queue_bytes_total(&less.bytes) < o->cq_bytes / 3 * 2)
		table_note(t, "a CQ of %" PRIu32 " costs %s, one of %" PRIu32 " %s", o->cqe,
			   show_size(one, o->cq_bytes), o->cqe - 1,
			   show_size(other, queue_bytes_total(&less.bytes)));
}

static void put_row(const struct plan *p, struct table *t, const struct outcome *o)
{
	char caps[80], size[SHOW_BYTES], error[24];
	bool refused = o->qp.fate == FATE_REFUSED;

	table_row(t);
	table_cell(t, PLAIN, "%s", name_of(o->geometry));
	if (refused) {
		table_cell(t, RED, "refused, %s",
			   o->qp.error ? errno_name(o->qp.error, error, sizeof(error))
				       : "no errno");
		for (unsigned int i = 0; i < 6; i++)
			table_cell(t, PLAIN, "-");
		note_refusal(t, o);
		return;
	}
	show_caps(caps, sizeof(caps), &o->qp.caps);
	table_cell(t, PLAIN, "%s%s", caps, o->qp.fate == FATE_UNKNOWN ? "?" : "");
	table_cell(t, PLAIN, "%s", show_size(size, o->qp.bytes.sq));
	table_cell(t, PLAIN, "%s", show_size(size, o->qp.bytes.rq));
	table_cell(t, PLAIN, "%s", show_size(size, o->qp.bytes.bookkeeping));
	table_cell(t, PLAIN, "%" PRIu32, o->cqe);
	if (o->cq.fate == FATE_REFUSED)
		table_cell(t, RED, "refused");
	else
		table_cell(t, PLAIN, "%s", show_size(size, o->cq_bytes));
	table_cell(t, o->all_bytes > p->memory ? RED : PLAIN, "%s", show_size(size, o->all_bytes));
	note_cheaper_cq(p, t, o);
}

static void put_head(const struct plan *p)
{
	const struct qp_caps *c = &p->request.caps;
	char size[SHOW_BYTES];

	printf("%" PRIu64 " %s %s of %" PRIu32 " sends x %" PRIu32 " SGE", p->qps,
	       qp_type_name(p->request.type), p->qps == 1 ? "QP" : "QPs", c->max_send_wr,
	       c->max_send_sge);
	if (p->request.has_srq)
		printf(", receives from an SRQ");
	else
		printf(", %" PRIu32 " receives x %" PRIu32 " SGE", c->max_recv_wr, c->max_recv_sge);
	if (c->max_inline_data)
		printf(", %" PRIu32 " bytes inline", c->max_inline_data);
	printf("; a CQ for each %s", p->qps_per_cq == 1 ? "QP" : "");
	if (p->qps_per_cq != 1)
		printf("%" PRIu64 " QPs", p->qps_per_cq);
	if (p->memory != UINT64_MAX)
		printf("; memory %s", show_size(size, p->memory));
	printf("\n\n");
}

/* Bytes of one send queue over depths and SGE counts: what people work out by hand. */
static void put_depths(const struct plan *p)
{
	static const uint32_t depths[] = { 128, 1024, 8192, 32768 }, sges[] = { 1, 4, 16 };
	struct table *t = table_new(stdout, terminal_width(stdout), false);

	printf("\nOne send queue, %s%sby the rule of thumb\n", p->only ? name_of(p->only) : "",
	       p->only ? " / " : "");
	table_column(t, "SENDS", true, 0);
	for (unsigned int s = 0; s < 3; s++)
		table_column(t, s == 0 ? "1 SGE" : s == 1 ? "4 SGE" : "16 SGE", true, 0);
	for (unsigned int d = 0; d < 4; d++) {
		table_row(t);
		table_cell(t, PLAIN, "%" PRIu32, depths[d]);
		for (unsigned int s = 0; s < 3; s++) {
			struct qp_request req = p->request;
			struct prediction own = { 0 }, rule;
			char a[SHOW_BYTES], b[SHOW_BYTES];

			req.caps.max_send_wr = depths[d];
			req.caps.max_send_sge = sges[s];
			geometry_predict_qp(geometry_of(""), &req, &p->facts, &rule);
			show_size(b, rule.bytes.sq);
			if (p->only)
				geometry_predict_qp(p->only, &req, &p->facts, &own);
			if (own.fate == FATE_REFUSED)
				table_cell(t, PLAIN, "refused / %s", b);
			else if (p->only)
				table_cell(t, PLAIN, "%s / %s", show_size(a, own.bytes.sq), b);
			else
				table_cell(t, PLAIN, "%s", b);
		}
	}
	table_end(t);
}

static void put_legend(const struct plan *p, bool guessed, bool unknown)
{
	printf("\nGOT: sends x SGEs / receives x SGEs + inline bytes. BESIDE: arrays and rounding. "
	       "CQE: what can be\n"
	       "outstanding on one CQ. ALL: the QPs and their CQs.\n");
	if (unknown)
		printf("?: the provider's answer depends on what the device allows; taken as "
		       "asked.\n");
	if (guessed)
		printf("How much mlx5 accepts depends on limits of the device that programs cannot "
		       "read; usual ones are "
		       "taken.\n");
	if (!p->facts.limits.max_qp_wr || !p->facts.limits.max_sge)
		printf("Limits of the device that are not given (--max-qp-wr, --max-sge) refuse "
		       "nothing here.\n");
}

static bool print_text(const struct plan *p, const struct outcome *all, unsigned int count)
{
	struct table *t = table_new(stdout, terminal_width(stdout), isatty(STDOUT_FILENO));
	bool guessed = false, unknown = false;

	put_head(p);
	table_column(t, "PROVIDER", false, 0);
	table_column(t, "GOT", false, 0);
	table_column(t, "SQ", true, 0);
	table_column(t, "RQ", true, 0);
	table_column(t, "BESIDE", true, 1);
	table_column(t, "CQE", true, 0);
	table_column(t, "CQ", true, 0);
	table_column(t, "ALL", true, 0);
	for (unsigned int i = 0; i < count; i++) {
		put_row(p, t, &all[i]);
		guessed = guessed || all[i].qp.guessed;
		unknown = unknown || (all[i].qp.fate == FATE_UNKNOWN && *all[i].geometry->driver);
	}
	table_end(t);
	put_depths(p);
	put_legend(p, guessed, unknown);
	return t;
}

/* --- JSON --- */

static json_t *json_caps(const struct qp_caps *c)
{
	return json_pack("{sI sI sI sI sI}", "max_send_wr", (json_int_t)c->max_send_wr,
			 "max_recv_wr", (json_int_t)c->max_recv_wr, "max_send_sge",
			 (json_int_t)c->max_send_sge, "max_recv_sge", (json_int_t)c->max_recv_sge,
			 "max_inline_data", (json_int_t)c->max_inline_data);
}

static json_t *json_bytes(uint64_t n)
{
	return json_integer(n > INT64_MAX ? INT64_MAX : (json_int_t)n);
}

static json_t *json_outcome(const struct plan *p, const struct outcome *o)
{
	bool refused = o->qp.fate == FATE_REFUSED;
	const struct queue_bytes *b = &o->qp.bytes;
	json_t *best[2];
	char error[24];

	for (unsigned int keep = 0; keep < 2; keep++)
		best[keep] = o->has_best[keep] ? json_caps(&o->best[keep]) : json_null();
	if (refused)
		return json_pack(
			"{ss sb ss so so sb}", "provider",
			*o->geometry->driver ? o->geometry->driver : "estimate", "refused", 1,
			"error",
			o->qp.error ? errno_name(o->qp.error, error, sizeof(error)) : "none",
			"keep_sge", best[KEEP_SGE], "keep_depth", best[KEEP_DEPTH], "fits", 0);
	json_decref(best[0]);
	json_decref(best[1]);
	return json_pack(
		"{ss sb so s{so so so so ss} s{sI so so so} so sb}", "provider",
		*o->geometry->driver ? o->geometry->driver : "estimate", "refused", 0, "effective",
		o->qp.fate == FATE_ACCEPTED ? json_caps(&o->qp.caps) : json_null(), "bytes", "sq",
		json_bytes(b->sq), "rq", json_bytes(b->rq), "bookkeeping",
		json_bytes(b->bookkeeping), "total", json_bytes(o->qp_bytes), "basis",
		b->basis == BASIS_MODEL ? "model" : "estimate", "cq", "cqe", (json_int_t)o->cqe,
		"effective_cqe", o->cq.fate == FATE_ACCEPTED ? json_bytes(o->cq.cqe) : json_null(),
		"bytes", o->cq.fate == FATE_REFUSED ? json_null() : json_bytes(o->cq_bytes),
		"count", json_bytes(o->cqs), "all_bytes", json_bytes(o->all_bytes), "fits",
		is_fine(p, o));
}

static bool print_json(const struct plan *p, const struct outcome *all, unsigned int count)
{
	json_t *rows = json_array(), *top;
	bool good = rows;

	for (unsigned int i = 0; i < count; i++)
		good = json_array_append_new(rows, json_outcome(p, &all[i])) == 0 && good;
	top = json_pack("{si sI ss so so}", "schema", 1, "qps",
			(json_int_t)least(p->qps, INT64_MAX), "type", qp_type_name(p->request.type),
			"requested", json_caps(&p->request.caps), "providers", rows);
	good = good && top && json_dumpf(top, stdout, JSON_INDENT(2)) == 0;
	putchar('\n');
	json_decref(top);
	return good;
}

/* --- options --- */

static bool read_number(const char *option, const char *text, uint64_t most, uint64_t *out)
{
	char *end;

	*out = strtoull(text, &end, 10);
	if (*text >= '0' && *text <= '9' && *end == '\0' && *out <= most)
		return true;
	complain("plan", "--%s %s: a number of at most %" PRIu64, option, text, most);
	return false;
}

static bool read_type(struct plan *p, const char *text)
{
	static const uint32_t types[] = { QP_TYPE_RC, QP_TYPE_UC, QP_TYPE_UD, QP_TYPE_RAW_PACKET,
					  QP_TYPE_XRC_SEND };

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		if (strcasecmp(text, qp_type_name(types[i])) == 0) {
			p->request.type = types[i];
			return true;
		}
	complain("plan", "--type %s: RC, UC, UD, RAW_PACKET or XRC_SEND", text);
	return false;
}

/* The bits are those of enum ibv_qp_create_send_ops_flags. */
static bool read_ops(struct plan *p, const char *text)
{
	static const char *const names[] = { "write",	"write_imm", "send",	  "send_imm",
					     "read",	"cmp_swp",   "fetch_add", "local_inv",
					     "bind_mw", "send_inv",  "tso" };
	enum { OPS = sizeof(names) / sizeof(names[0]) };

	p->request.has_send_ops = true;
	for (size_t len; *text; text += len + (text[len] == ',')) {
		unsigned int i = 0;

		len = strcspn(text, ",");
		while (i < OPS && (strlen(names[i]) != len || memcmp(names[i], text, len) != 0))
			i++;
		if (i == OPS) {
			complain("plan",
				 "--ops %.*s: write, write_imm, send, send_imm, read, cmp_swp, "
				 "fetch_add, local_inv, bind_mw, send_inv, tso",
				 (int)len, text);
			return false;
		}
		p->request.send_ops |= 1u << i;
	}
	return true;
}

static bool read_driver(struct plan *p, const char *text)
{
	char known[256] = "";

	p->only = geometry_of(text);
	if (*p->only->driver)
		return true;
	for (unsigned int i = 0; geometry_at(i); i++)
		snprintf(known + strlen(known), sizeof(known) - strlen(known), "%s%s",
			 i ? ", " : "", geometry_at(i)->driver);
	complain("plan", "--driver %s: one of %s", text, known);
	return false;
}

enum {
	OPTION_DRIVER = 256,
	OPTION_TYPE,
	OPTION_OPS,
	OPTION_SRQ,
	OPTION_MEMORY,
	OPTION_FORMAT,
	OPTION_NUMBER, /* and up: struct number_option */
};

/* Options that are numbers, with where each goes. */
static const struct number_option {
	const char *name;
	size_t offset; /* in struct plan */
	uint32_t least;
	bool wide; /* 64 bits */
} number_options[] = {
	{ "qps", offsetof(struct plan, qps), 1, true },
	{ "qps-per-cq", offsetof(struct plan, qps_per_cq), 1, true },
	{ "send-wr", offsetof(struct plan, request.caps.max_send_wr), 0, false },
	{ "recv-wr", offsetof(struct plan, request.caps.max_recv_wr), 0, false },
	{ "send-sge", offsetof(struct plan, request.caps.max_send_sge), 0, false },
	{ "recv-sge", offsetof(struct plan, request.caps.max_recv_sge), 0, false },
	{ "inline", offsetof(struct plan, request.caps.max_inline_data), 0, false },
	{ "max-qp-wr", offsetof(struct plan, facts.limits.max_qp_wr), 0, false },
	{ "max-sge", offsetof(struct plan, facts.limits.max_sge), 0, false },
	{ "max-cqe", offsetof(struct plan, facts.limits.max_cqe), 0, false },
};
enum { NUMBERS = sizeof(number_options) / sizeof(number_options[0]) };

static bool set_number(struct plan *p, const struct number_option *o, const char *text)
{
	uint64_t n;
	uint32_t narrow;

	if (!read_number(o->name, text, o->wide ? 1u << 30 : INT32_MAX, &n))
		return false;
	if (n < o->least) {
		complain("plan", "--%s %s: at least %" PRIu32, o->name, text, o->least);
		return false;
	}
	narrow = (uint32_t)n;
	if (o->wide)
		memcpy((char *)p + o->offset, &n, sizeof(n));
	else
		memcpy((char *)p + o->offset, &narrow, sizeof(narrow));
	return true;
}

static bool set_option(struct plan *p, int option, const char *text)
{
	uint64_t n;

	switch (option) {
	case OPTION_DRIVER:
		return read_driver(p, text);
	case OPTION_TYPE:
		return read_type(p, text);
	case OPTION_OPS:
		return read_ops(p, text);
	case OPTION_SRQ:
		p->request.has_srq = true;
		return true;
	case OPTION_MEMORY:
		if (policy_size(text, &p->memory))
			return true;
		complain("plan", "--memory %s: a size such as 64G", text);
		return false;
	case OPTION_FORMAT:
		p->json = strcmp(text, "json") == 0;
		if (p->json || strcmp(text, "text") == 0)
			return true;
		complain("plan", "--format %s: text or json", text);
		return false;
	case 't':
		if (!read_number("tso-header", text, UINT16_MAX, &n))
			return false;
		p->request.max_tso_header = (uint16_t)n;
		return true;
	default:
		return set_number(p, &number_options[option - OPTION_NUMBER], text);
	}
}

/* Options, of which those with numbers come from their table. -1: go on; else an exit status. */
static int read_options(struct plan *p, int argc, char **argv)
{
	struct option options[NUMBERS + 9] = {
		{ "driver", required_argument, NULL, OPTION_DRIVER },
		{ "type", required_argument, NULL, OPTION_TYPE },
		{ "ops", required_argument, NULL, OPTION_OPS },
		{ "srq", no_argument, NULL, OPTION_SRQ },
		{ "memory", required_argument, NULL, OPTION_MEMORY },
		{ "format", required_argument, NULL, OPTION_FORMAT },
		{ "tso-header", required_argument, NULL, 't' },
		{ "help", no_argument, NULL, 'h' },
	};
	int c;

	for (int i = 0; i < NUMBERS; i++)
		options[8 + i] = (struct option){ number_options[i].name, required_argument, NULL,
						  OPTION_NUMBER + i };
	optind = 1;
	while ((c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		if (c == 'h' || c == '?') {
			fputs(usage_text, c == 'h' ? stdout : stderr);
			return c == 'h' ? finish_output("plan", stdout, "standard output") : USAGE;
		}
		if (!set_option(p, c, optarg))
			return USAGE;
	}
	if (optind < argc) {
		complain("plan", "'%s': no argument is expected", argv[optind]);
		return USAGE;
	}
	return -1;
}

int cmd_plan(int argc, char **argv)
{
	struct plan p = {
		.request = { .caps = { 128, 128, 1, 1, 0 }, .type = QP_TYPE_RC },
		.qps = 1,
		.qps_per_cq = 1,
		.memory = UINT64_MAX,
	};
	struct outcome all[32];
	unsigned int count = 0;
	bool fine = true, written;
	int status = read_options(&p, argc, argv);

	if (status >= 0)
		return status;
	for (unsigned int i = 0; geometry_at(i) && count + 1 < sizeof(all) / sizeof(all[0]); i++)
		if (!p.only || p.only == geometry_at(i))
			work_out(&p, geometry_at(i), &all[count++]);
	work_out(&p, geometry_of(""), &all[count++]);
	/* with all providers side by side none of them is the one that has to fit */
	if (p.only)
		fine = is_fine(&p, &all[0]);
	written = p.json ? print_json(&p, all, count) : print_text(&p, all, count);
	status = finish_output("plan", stdout, "standard output");
	if (!written || status != DONE)
		return INPUT_MISSING;
	return fine ? DONE : CHECK_FAILED;
}
