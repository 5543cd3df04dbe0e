/* SPDX-License-Identifier: MIT */
/*
 * `qpguard run`: starts a program under guard, passes signals on to it, waits, and writes down
 * beside its state file how it ended, which the process itself cannot know. Changes the environment
 * of the program and nothing else; the exit status is the program's.
 */
#include "tool.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "folders.h"
#include "output.h"
#include "show.h"
#include "statefile.h"
#include "table.h"

#define LIBRARY "libqpguard.so"
#ifndef LIBDIR
#define LIBDIR "/usr/local/lib"
#endif
#define CANNOT_RUN 126
#define NOT_FOUND  127

static const char usage_head[] =
	"usage: qpguard run [OPTIONS] [--] PROGRAM [ARGUMENTS]\n"
	"\n"
	"Runs PROGRAM under guard, as LD_PRELOAD=" LIBRARY
	" does, and tells qpguard report how it\n"
	"ended. The exit status is the program's, 128 + N when signal N killed it.\n"
	"\n"
	"  --conf FILE   the policy file (QPGUARD_CONF)\n"
	"  --dir FOLDER  where state files go (QPGUARD_DIR); %h host, %u uid\n"
	"  --labels L    job=train7,rank=3 (QPGUARD_LABELS)\n"
	"  --report      print the report of the run on standard error at its end\n"
	"\n"
	"and every key of the policy:\n";

struct run {
	bool report;
	char **program; /* and its arguments */
	pid_t pid;
	uint64_t start_ticks, started_at;
	char folder[PATH_MAX];
};

/* "--budget-process-bytes" for BUDGET_PROCESS_BYTES. */
static void option_name(unsigned int key, char *out, size_t size)
{
	snprintf(out, size, "--%s-%s", policy_keys[key].section, policy_keys[key].name);
	for (char *c = out; *c; c++)
		if (*c == '_' || *c == '.')
			*c = '-';
}

static void usage(FILE *out)
{
	fputs(usage_head, out);
	for (unsigned int key = 0; key < POLICY_KEYS; key++) {
		char name[64];

		if (key > BUDGET_ACTION_OF && key <= BUDGET_ACTION_OF_LAST)
			continue;
		option_name(key, name, sizeof(name));
		fprintf(out, "  %-30s ", name);
		print_wrapped(out, 80, 33, 33, policy_keys[key].meaning);
		if (key == BUDGET_ACTION_OF)
			fputs("  ... and so for each of the limits\n", out);
	}
}

/* Options. */

/* The variable that an option stands for: --clamp-max-cqe -> QPGUARD_CLAMP_MAX_CQE. */
static void variable_of_option(const char *option, size_t len, char *out, size_t size)
{
	static const char *const own[][2] = { { "conf", "QPGUARD_CONF" },
					      { "dir", "QPGUARD_DIR" },
					      { "labels", "QPGUARD_LABELS" } };

	for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
		if (strlen(own[i][0]) == len && strncmp(option, own[i][0], len) == 0) {
			snprintf(out, size, "%s", own[i][1]);
			return;
		}
	snprintf(out, size, "QPGUARD_%.*s", (int)len, option);
	for (char *c = out; *c; c++)
		*c = *c == '-' ? '_' : (char)toupper((unsigned char)*c);
}

/* A complaint about a variable, in the words of the option that was typed: QPGUARD_LOG_LEVEL in it
 * is
 * --log-level here. */
static void complain_of_option(void *arg, const struct policy_complaint *c)
{
	static const char prefix[] = "QPGUARD_", unknown[] = "unknown variable";
	bool is_unknown = strncmp(c->text, unknown, strlen(unknown)) == 0;
	char text[512];
	size_t used = 0;

	if (is_unknown)
		used = (size_t)snprintf(text, sizeof(text), "unknown option");
	for (const char *s = c->text + (is_unknown ? strlen(unknown) : 0);
	     *s && used + 3 < sizeof(text);) {
		if (strncmp(s, prefix, strlen(prefix)) != 0) {
			text[used++] = *s++;
			continue;
		}
		text[used++] = '-';
		text[used++] = '-';
		for (s += strlen(prefix);
		     (isupper((unsigned char)*s) || *s == '_') && used + 3 < sizeof(text); s++)
			text[used++] = *s == '_' ? '-' : (char)tolower((unsigned char)*s);
	}
	text[used] = '\0';
	complain("run", "--%s: %s", (const char *)arg, text);
}

/* Sets the variable of one option, if the policy's parser finds nothing wrong with it. */
static bool take_option(struct policy *scratch, const char *option, size_t len, const char *value)
{
	char name[128], label[128];

	snprintf(label, sizeof(label), "%.*s", (int)len, option);
	variable_of_option(option, len, name, sizeof(name));
	if (!value) {
		/* an unknown name is worth its own words */
		if (policy_variable(scratch, name, "1", complain_of_option, label) == 0)
			complain("run", "--%s: a value is missing", label);
		return false;
	}
	return policy_variable(scratch, name, value, complain_of_option, label) == 0 &&
	       setenv(name, value, 1) == 0;
}

static bool parse_options(struct run *r, struct policy *scratch, char **arg)
{
	for (; *arg; arg++) {
		const char *option = *arg + 2, *equals;
		size_t len;

		if (strcmp(*arg, "--") == 0) {
			arg++;
			break;
		}
		if ((*arg)[0] != '-')
			break;
		if (strcmp(*arg, "--report") == 0) {
			r->report = true;
			continue;
		}
		if (strncmp(*arg, "--", 2) != 0) {
			complain("run", "unknown option '%s'", *arg);
			return false;
		}
		equals = strchr(option, '=');
		len = equals ? (size_t)(equals - option) : strlen(option);
		if (!take_option(scratch, option, len, equals ? equals + 1 : arg[1]))
			return false;
		arg += !equals;
	}
	r->program = arg;
	if (!*arg)
		complain("run", "which program?");
	return *arg != NULL;
}

/* The preload library. */

static bool is_readable(const char *path)
{
	return access(path, R_OK) == 0;
}

/* Beside this program: in a build tree, or as installed. Else the name, for the loader to find. */
static void find_library(char *out, size_t size)
{
	static const char *const places[] = { LIBRARY, ".libs/" LIBRARY, "../.libs/" LIBRARY,
					      "../lib/" LIBRARY, "../lib64/" LIBRARY };
	char self[PATH_MAX], path[PATH_MAX + 64];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	char *slash;

	self[n > 0 ? n : 0] = '\0';
	slash = strrchr(self, '/');
	for (size_t i = 0; slash && i < sizeof(places) / sizeof(places[0]); i++) {
		char whole[PATH_MAX];

		snprintf(path, sizeof(path), "%.*s/%s", (int)(slash - self), self, places[i]);
		/* a path with these in it cannot stand in LD_PRELOAD */
		if (is_readable(path) && realpath(path, whole) && !strpbrk(whole, ": \t")) {
			snprintf(out, size, "%s", whole);
			return;
		}
	}
	snprintf(out, size, "%s", is_readable(LIBDIR "/" LIBRARY) ? LIBDIR "/" LIBRARY : LIBRARY);
}

static bool set_preload(void)
{
	const char *before = getenv("LD_PRELOAD");
	char library[PATH_MAX], *both;
	bool set;

	if (before && strstr(before, LIBRARY))
		return true;
	find_library(library, sizeof(library));
	if (!before || !*before)
		return setenv("LD_PRELOAD", library, 1) == 0;
	if (asprintf(&both, "%s:%s", library, before) < 0)
		return false;
	set = setenv("LD_PRELOAD", both, 1) == 0;
	free(both);
	return set;
}

/* The program's life. */

static void signals_to_pass(sigset_t *set)
{
	static const int passed[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM };

	sigemptyset(set);
	sigaddset(set, SIGCHLD);
	for (size_t i = 0; i < sizeof(passed) / sizeof(passed[0]); i++)
		sigaddset(set, passed[i]);
}

/* How signals stood before, for the program to inherit. */
struct signals {
	sigset_t mask;
	struct sigaction on_child;
};

/* In the child: becomes the program, or tells errno through the pipe. */
__attribute__((noreturn)) static void become(char **program, const struct signals *before, int tell)
{
	ssize_t told;
	int error;

	sigaction(SIGCHLD, &before->on_child, NULL);
	sigprocmask(SIG_SETMASK, &before->mask, NULL);
	execvp(program[0], program);
	error = errno;
	told = write(tell, &error, sizeof(error));
	_exit(told == (ssize_t)sizeof(error) ? NOT_FOUND : CANNOT_RUN);
}

/* Starts the program; errno of a failed exec, else 0. */
static int start(struct run *r, const struct signals *before)
{
	int ends[2], error = 0;

	if (pipe2(ends, O_CLOEXEC) != 0)
		return errno;
	r->started_at = clock_now();
	r->pid = fork();
	if (r->pid == 0)
		become(r->program, before, ends[1]);
	close(ends[1]);
	if (r->pid < 0) {
		error = errno;
	} else {
		r->start_ticks = start_ticks_of((uint32_t)r->pid, false);
		if (read(ends[0], &error, sizeof(error)) != (ssize_t)sizeof(error))
			error = 0;
		if (error)
			waitpid(r->pid, NULL, 0);
	}
	close(ends[0]);
	return error;
}

/* Waits until the program ended and leaves it unreaped, so that its pid stays its own. What a
 * terminal sends reaches the program anyway; what a process sent to us is passed on. */
static void wait_for_end(const struct run *r, const sigset_t *set, siginfo_t *end)
{
	for (;;) {
		siginfo_t s;

		end->si_pid = 0;
		if (waitid(P_PID, (id_t)r->pid, end, WEXITED | WNOHANG | WNOWAIT) == 0 &&
		    end->si_pid == r->pid)
			return;
		if (sigwaitinfo(set, &s) > 0 && s.si_signo != SIGCHLD && s.si_code <= 0)
			kill(r->pid, s.si_signo);
	}
}

/* What it left. */

/* The state files of the folder that were begun during the run, one after the other. */
static void each_of_run(const struct run *r, int dirfd,
			void (*fn)(void *arg, struct statefile *f, const char *name), void *arg)
{
	size_t count = 0;
	char **names = folder_names(dirfd, &count);

	for (size_t i = 0; i < count; i++) {
		char why[STATEFILE_WHY_BYTES];
		struct statefile *f = statefile_open(dirfd, names[i], why);

		if (f && f->uid == geteuid() && f->header.started_at >= r->started_at)
			fn(arg, f, names[i]);
		statefile_close(f);
	}
	folder_names_free(names);
}

/* A program that was replaced by exec left several: the last one ended. */
struct latest {
	const struct run *r;
	uint64_t started_at;
	char name[NAME_MAX + 1];
};

static void find_latest(void *arg, struct statefile *f, const char *name)
{
	struct latest *l = arg;

	if (f->header.pid != (uint32_t)l->r->pid || f->header.start_ticks != l->r->start_ticks ||
	    f->header.started_at < l->started_at)
		return;
	l->started_at = f->header.started_at;
	snprintf(l->name, sizeof(l->name), "%s", name);
}

static void write_end(const struct run *r, int dirfd, const siginfo_t *end)
{
	bool killed = end->si_code != CLD_EXITED;
	struct ended e = { true, killed ? end->si_status : 0, killed ? -1 : end->si_status,
			   clock_now() };
	struct latest l = { .r = r };

	each_of_run(r, dirfd, find_latest, &l);
	if (l.name[0] && !ended_write(dirfd, l.name, &e))
		complain("run", "%s/%s: how it ended could not be written: %s", r->folder, l.name,
			 strerror(errno));
}

struct reports {
	const struct run *r;
	struct text_output text;
	struct model *model;
};

static void report_one(void *arg, struct statefile *f, const char *name)
{
	struct reports *reports = arg;
	char path[PATH_MAX + NAME_MAX + 2];

	snprintf(path, sizeof(path), "%s/%s", reports->r->folder, name);
	if (model_read(reports->model, f, path))
		text_output_process(&reports->text, reports->model);
}

static void print_report(const struct run *r, int dirfd)
{
	struct reports reports = { .r = r, .model = calloc(1, sizeof(*reports.model)) };

	if (!reports.model)
		return;
	text_output_begin(&reports.text, stderr, false);
	each_of_run(r, dirfd, report_one, &reports);
	text_output_end(&reports.text);
	if (reports.text.processes == 0)
		complain("run",
			 "no state file: the program made no verbs call, or had no place for one");
	free(reports.model);
}

static int run_program(struct run *r)
{
	const struct sigaction standard = { .sa_handler = SIG_DFL };
	struct signals before;
	sigset_t set;
	siginfo_t end = { 0 };
	int error, dirfd;

	signals_to_pass(&set);
	sigprocmask(SIG_BLOCK, &set, &before.mask);
	sigaction(SIGCHLD, &standard,
		  &before.on_child); /* ignored, it would take the status away */
	error = start(r, &before);
	if (error) {
		complain("run", "%s: %s", r->program[0], strerror(error));
		return error == ENOENT ? NOT_FOUND : CANNOT_RUN;
	}
	wait_for_end(r, &set, &end);
	dirfd = folder_open(r->folder);
	if (dirfd >= 0) {
		write_end(r, dirfd, &end);
		if (r->report)
			print_report(r, dirfd);
		close(dirfd);
	} else if (r->report) {
		complain("run", "%s: no report: %s", r->folder, strerror(errno));
	}
	waitpid(r->pid, NULL, 0);
	return end.si_code == CLD_EXITED ? end.si_status : 128 + end.si_status;
}

int cmd_run(int argc, char **argv)
{
	struct policy *scratch = malloc(sizeof(*scratch));
	struct run r = { 0 };
	const char *conf;
	bool good;

	if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
		free(scratch);
		usage(stdout);
		return finish_output("run", stdout, "standard output");
	}
	if (!scratch)
		return INPUT_MISSING;
	policy_init(scratch);
	good = parse_options(&r, scratch, argv + 1);
	free(scratch);
	if (!good) {
		fputs("qpguard run --help tells the options\n", stderr);
		return USAGE;
	}
	conf = getenv("QPGUARD_CONF");
	if (conf && *conf && !is_readable(conf)) {
		complain("run", "--conf %s: %s", conf, strerror(errno));
		return USAGE;
	}
	if (!folder_for_writing(r.folder, sizeof(r.folder)) || !set_preload()) {
		complain("run", "the environment of the program cannot be set");
		return USAGE;
	}
	return run_program(&r);
}
