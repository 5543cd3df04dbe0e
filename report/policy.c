/* SPDX-License-Identifier: MIT */
/*
 * `qpguard policy`: reads the policy file and the QPGUARD_ variables as the guard would, tells what
 * is wrong with them, and prints the policy back; with a subject, the values in force for it and
 * the place each comes from.
 */
#include "tool.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "show.h"
#include "table.h"

static const char usage_text[] =
	"usage: qpguard policy [--conf FILE] [SUBJECT...]\n"
	"\n"
	"Reads the policy file and the QPGUARD_ variables as the guard would, tells every fault "
	"in\n"
	"them and prints the policy back. With a subject: the values in force for it and where "
	"each\n"
	"comes from.\n"
	"\n"
	"  --conf FILE      instead of QPGUARD_CONF or /etc/qpguard.conf\n"
	"  --program PATH   the subject: path of the executable,\n"
	"  --comm NAME      name of the process (default: from --program),\n"
	"  --library PATH   the shared object that asks,\n"
	"  --device NAME    the RDMA device,\n"
	"  --driver NAME    its driver,\n"
	"  --type RC|UC|UD  the type of QP,\n"
	"  --qps N          how many QPs the process holds, for after_qps\n"
	"\n"
	"Exit status: 0 no fault, 1 a fault in the policy, 2 usage, 3 the file cannot be read.\n";

struct request {
	const char *file;
	struct policy_subject subject;
	bool has_subject;
};

/* A value as one would write it in the file. */
static void show_value(char *out, size_t size, unsigned int key, uint64_t num, const char *text)
{
	const struct policy_key_info *k = &policy_keys[key];
	const char *word = k->words;
	char buf[SHOW_BYTES];

	if (k->kind == VALUE_TEXT) {
		show_text(out, size, text, strlen(text), ESCAPE_FOR_TERMINAL);
	} else if (k->kind == VALUE_WORD) {
		for (uint64_t i = 0; i < num && word && (word = strchr(word, '|')); i++)
			word++;
		snprintf(out, size, "%.*s", word ? (int)strcspn(word, "|") : 1, word ? word : "?");
	} else if (num == UINT64_MAX) {
		snprintf(out, size, "no limit");
	} else if (k->kind == VALUE_SIZE) {
		snprintf(out, size, "%s", show_size(buf, num));
	} else if (k->kind == VALUE_SECONDS && num % 86400 == 0 && num) {
		snprintf(out, size, "%" PRIu64 "d", num / 86400);
	} else {
		snprintf(out, size, "%" PRIu64 "%s", num, k->kind == VALUE_SECONDS ? "s" : "");
	}
}

/* Whether setting i alone would set its key for the subject: asked of policy_resolve itself, so
 * that there is one judge of what a condition matches. */
static bool applies(const struct policy *p, struct policy *alone, uint32_t i,
		    const struct policy_subject *s)
{
	struct policy_values v;

	alone->settings = 1;
	alone->setting[0] = p->setting[i];
	policy_resolve(alone, s, &v);
	return v.set >> p->setting[i].key & 1;
}

/* The setting that decides a key: more conditions first, variables after lines, then the later one.
 */
static const struct policy_setting *decider(const struct policy *p, struct policy *alone,
					    unsigned int key, const struct policy_subject *s)
{
	const struct policy_setting *best = NULL;

	for (uint32_t i = 0; i < p->settings; i++) {
		const struct policy_setting *c = &p->setting[i];
		int stronger;

		if (c->key != key || !applies(p, alone, i, s))
			continue;
		stronger = best ? (int)p->section[c->section].conditions -
					   (int)p->section[best->section].conditions
				: 1;
		if (stronger > 0 || (stronger == 0 && (c->line == 0 || best->line != 0)))
			best = c;
	}
	return best;
}

static void show_origin(char *out, size_t size, const char *file, const struct policy_setting *c)
{
	char name[1024];

	if (!c)
		snprintf(out, size, "default");
	else if (c->line == 0)
		policy_variable_name(c->key, out, size);
	else
		snprintf(out, size, "%s:%" PRIu32,
			 show_text(name, sizeof(name), file ? file : "?", file ? strlen(file) : 1,
				   ESCAPE_FOR_TERMINAL),
			 c->line);
}

static int print_in_force(const struct policy *p, const struct request *r)
{
	struct policy *alone = malloc(sizeof(*alone));
	struct table *t = table_new(stdout, 400, false);
	struct policy_values v;

	if (!alone || !t) {
		free(alone);
		table_end(t);
		return INPUT_MISSING;
	}
	memcpy(alone, p, sizeof(*alone));
	policy_resolve(p, &r->subject, &v);
	table_column(t, "KEY", false, 0);
	table_column(t, "VALUE", false, 0);
	table_column(t, "FROM", false, 0);
	for (unsigned int key = 0; key < POLICY_KEYS; key++) {
		const struct policy_setting *c = decider(p, alone, key, &r->subject);
		char value[TABLE_CELL], from[TABLE_CELL];

		/* a limit's own action is worth a line where somebody set it; else `action` holds
		 */
		if (!c && key >= BUDGET_ACTION_OF && key <= BUDGET_ACTION_OF_LAST)
			continue;
		show_value(value, sizeof(value), key, v.num[key], v.text[key] ? v.text[key] : "");
		show_origin(from, sizeof(from), r->file, c);
		table_row(t);
		table_cell(t, PLAIN, "[%s] %s", policy_keys[key].section, policy_keys[key].name);
		table_cell(t, PLAIN, "%s", value);
		table_cell(t, PLAIN, "%s", from);
	}
	table_end(t);
	free(alone);
	return DONE;
}

static int print_policy(const struct policy *p)
{
	size_t need = policy_print(p, NULL, 0);
	char *text = malloc(need + 1);

	if (!text)
		return INPUT_MISSING;
	policy_print(p, text, need + 1);
	fputs(text, stdout);
	free(text);
	return DONE;
}

static int show_policy(struct request *r)
{
	struct policy *p = malloc(sizeof(*p));
	unsigned int complaints = 0;
	int status = DONE, written;

	if (!p) {
		complain("policy", "no memory left");
		return INPUT_MISSING;
	}
	policy_init(p);
	r->file = policy_file_name(r->file);
	if (r->file)
		status = policy_file_load("policy", r->file, p, &complaints);
	policy_environment_load("policy", p, &complaints);
	if (status == DONE)
		status = r->has_subject ? print_in_force(p, r) : print_policy(p);
	free(p);
	written = finish_output("policy", stdout, "standard output");
	if (status != DONE || written != DONE)
		return INPUT_MISSING;
	return complaints ? CHECK_FAILED : DONE;
}

/* The subject's absent parts are "". */
static void complete_subject(struct policy_subject *s)
{
	const char *slash = s->program ? strrchr(s->program, '/') : NULL;

	if (!s->comm && s->program)
		s->comm = slash ? slash + 1 : s->program;
	if (!s->library)
		s->library = s->program;
	s->device = s->device ? s->device : "";
	s->driver = s->driver ? s->driver : "";
	s->type = s->type ? s->type : "";
	s->program = s->program ? s->program : "";
	s->comm = s->comm ? s->comm : "";
	s->library = s->library ? s->library : "";
}

static bool set_qps(struct policy_subject *s, const char *text)
{
	char *end;

	errno = 0;
	s->qps = strtoull(text, &end, 10);
	if (errno == 0 && *text >= '0' && *text <= '9' && *end == '\0')
		return true;
	complain("policy", "--qps %s: a number", text);
	return false;
}

int cmd_policy(int argc, char **argv)
{
	static const struct option options[] = {
		{ "conf", required_argument, NULL, 'c' },
		{ "program", required_argument, NULL, 'p' },
		{ "comm", required_argument, NULL, 'm' },
		{ "library", required_argument, NULL, 'l' },
		{ "device", required_argument, NULL, 'd' },
		{ "driver", required_argument, NULL, 'r' },
		{ "type", required_argument, NULL, 't' },
		{ "qps", required_argument, NULL, 'q' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	struct request r = { 0 };
	int c;

	optind = 1;
	while ((c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		r.has_subject = r.has_subject || (c != 'c' && c != 'h' && c != '?');
		switch (c) {
		case 'c':
			r.file = optarg;
			break;
		case 'p':
			r.subject.program = optarg;
			break;
		case 'm':
			r.subject.comm = optarg;
			break;
		case 'l':
			r.subject.library = optarg;
			break;
		case 'd':
			r.subject.device = optarg;
			break;
		case 'r':
			r.subject.driver = optarg;
			break;
		case 't':
			r.subject.type = optarg;
			break;
		case 'q':
			if (!set_qps(&r.subject, optarg))
				return USAGE;
			break;
		default:
			fputs(usage_text, c == 'h' ? stdout : stderr);
			return c == 'h' ? finish_output("policy", stdout, "standard output")
					: USAGE;
		}
	}
	if (optind < argc) {
		complain("policy", "'%s': no argument is expected", argv[optind]);
		return USAGE;
	}
	complete_subject(&r.subject);
	return show_policy(&r);
}
