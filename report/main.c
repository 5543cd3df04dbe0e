/* SPDX-License-Identifier: MIT */
/*
 * The program qpguard: one table of subcommands, each in a file of its own. Reads and prints; the
 * only things it ever changes are the files that `clean` removes, what `-o` names and what `run`
 * writes beside a state file.
 */
#include "tool.h"

#include <string.h>

static int cmd_help(int argc, char **argv);

static const struct subcommand subcommands[] = {
	{ "report", cmd_report, "what the queues of guarded programs asked for, got and cost" },
	{ "run", cmd_run, "run a program under guard" },
	{ "plan", cmd_plan, "what queues of a given size would take, without a run" },
	{ "policy", cmd_policy, "check the policy and tell what holds for whom" },
	{ "clean", cmd_clean, "remove the state files of processes that ended" },
	{ "help", cmd_help, "this text" },
	{ "top", NULL, "" },
	{ "advise", NULL, "" },
	{ "whatif", NULL, "" },
	{ "diff", NULL, "" },
	{ "export", NULL, "" },
	{ "collect", NULL, "" },
	{ "doctor", NULL, "" },
	{ "set", NULL, "" },
	{ "reload", NULL, "" },
};
#define SUBCOMMANDS (sizeof(subcommands) / sizeof(subcommands[0]))

static void usage(FILE *out)
{
	fputs("usage: qpguard COMMAND [OPTIONS]\n\n", out);
	for (size_t i = 0; i < SUBCOMMANDS; i++)
		if (subcommands[i].run)
			fprintf(out, "  %-8s %s\n", subcommands[i].name, subcommands[i].summary);
	fputs("\nqpguard COMMAND --help tells more. A program is guarded by "
	      "LD_PRELOAD=libqpguard.so or by\n"
	      "qpguard run -- PROGRAM; its queues are then told by qpguard report.\n"
	      "Exit status: 0 done, 1 a check failed, 2 usage, 3 input missing or unreadable.\n",
	      out);
}

static const struct subcommand *find(const char *name)
{
	for (size_t i = 0; i < SUBCOMMANDS; i++)
		if (strcmp(subcommands[i].name, name) == 0)
			return &subcommands[i];
	return NULL;
}

static int cmd_help(int argc, char **argv)
{
	const struct subcommand *s = argc > 1 ? find(argv[1]) : NULL;
	char help[] = "--help", *args[] = { argc > 1 ? argv[1] : NULL, help, NULL };

	if (s && s->run && s->run != cmd_help)
		return s->run(2, args);
	usage(stdout);
	return finish_output("help", stdout, "standard output");
}

int main(int argc, char **argv)
{
	const struct subcommand *s;

	if (argc < 2) {
		usage(stderr);
		return USAGE;
	}
	if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0) {
		puts("qpguard " TOOL_VERSION);
		return finish_output(NULL, stdout, "standard output");
	}
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
		return cmd_help(1, argv + 1);
	s = find(argv[1]);
	if (!s) {
		complain(NULL, "there is no command '%s'", argv[1]);
		usage(stderr);
		return USAGE;
	}
	if (!s->run) {
		complain(NULL, "'%s' is not in this version", argv[1]);
		return USAGE;
	}
	return s->run(argc - 1, argv + 1);
}
