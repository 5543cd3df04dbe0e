/* SPDX-License-Identifier: MIT */
/*
 * The program qpguard: what its subcommands share. report/ knows people: it runs in a process of
 * its own, reads state files and policies, and writes text. It never maps a state file and never
 * changes one.
 */
#ifndef QPG_TOOL_H
#define QPG_TOOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "../policy/policy.h"

#define TOOL_VERSION "0.1.0"

/* Exit statuses of every subcommand. */
enum exit_status {
	DONE = 0,
	CHECK_FAILED = 1,
	USAGE = 2,
	INPUT_MISSING = 3, /* missing, unreadable or damaged; or the output could not be written */
};

/* One subcommand. argv[0] is its name. */
struct subcommand {
	const char *name;
	int (*run)(int argc, char **argv); /* NULL: not in this version */
	const char *summary;
};

int cmd_report(int argc, char **argv);
int cmd_clean(int argc, char **argv);
int cmd_run(int argc, char **argv);
int cmd_policy(int argc, char **argv);
int cmd_plan(int argc, char **argv);

/* One line on standard error: "qpguard report: ...". */
void complain(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Flushes and closes `out`, telling of a failure to write. */
int finish_output(const char *command, FILE *out, const char *name);

/* Realtime clock, ns since 1970. */
uint64_t clock_now(void);

/*
 * policy_file.c: the policy as the shim of this environment would see it.
 */

/* The file that holds: `given`, else QPGUARD_CONF, else /etc/qpguard.conf if it exists, else NULL.
 */
const char *policy_file_name(const char *given);
/* Adds a file's text to *p. A complaint is told on standard error and counted in *complaints.
 * Returns INPUT_MISSING, having said why, when the file cannot be read. */
int policy_file_load(const char *command, const char *name, struct policy *p,
		     unsigned int *complaints);
/* Adds what the environment's QPGUARD_ variables say. */
void policy_environment_load(const char *command, struct policy *p, unsigned int *complaints);
/* QPGUARD_BUDGET_QPS for BUDGET_QPS. */
void policy_variable_name(unsigned int key, char *out, size_t size);
/* For policy_parse and policy_variable: prints and counts. `arg` is the command's name. */
void policy_complaint_print(void *arg, const struct policy_complaint *c);

#endif
