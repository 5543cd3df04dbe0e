/* SPDX-License-Identifier: MIT */
/*
 * `qpguard report`: finds state files, reads each and hands it to the output that was asked for.
 * Files that cannot be read are told one by one; the others are reported all the same.
 */
#include "tool.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "folders.h"
#include "output.h"
#include "show.h"
#include "symbols.h"

enum format { FORMAT_TEXT, FORMAT_JSON, FORMAT_JSONL };

struct report {
	enum format format;
	bool check, verbose;
	const char *output; /* -o */
	struct json_output json;
	struct text_output text;
	struct model *model;
	unsigned int found, failed_checks;
	int status;
};

static const char usage_text[] =
	"usage: qpguard report [--check] [--verbose] [--format text|json|jsonl] [-o FILE]\n"
	"                      [--debug-dir DIR] [PATH...]\n"
	"\n"
	"Tells what the queues of guarded programs asked for, got and cost, and what was refused.\n"
	"PATH is a state file or a folder of them; without one, everything in QPGUARD_DIR, else "
	"in\n"
	"/run/qpguard and /dev/shm/qpguard-UID (root: of every user).\n"
	"\n"
	"  --check        go through the list before going live; exit status 1 if a point fails\n"
	"  --verbose, -v  each QP, every CQ and SRQ, the whole log; in JSON also ended objects\n"
	"  --format F     text (default), json (one object), jsonl (one process a line)\n"
	"  -o FILE        write to FILE instead of standard output\n"
	"  --debug-dir D  look for debug information of the programs in D too\n"
	"\n"
	"Exit status: 0 done, 1 a check failed, 2 usage, 3 input missing or unreadable.\n";

static void show_path(char *out, size_t size, const char *path)
{
	show_text(out, size, path, strlen(path), ESCAPE_FOR_TERMINAL);
}

static void unreadable(struct report *r, const char *path, const char *why)
{
	char shown[4096];

	show_path(shown, sizeof(shown), path);
	complain("report", "%s: %s", shown, why);
	r->status = INPUT_MISSING;
}

static void write_model(struct report *r)
{
	if (r->check)
		r->failed_checks += check_process(&r->text, r->model);
	else if (r->format == FORMAT_TEXT)
		text_output_process(&r->text, r->model);
	else
		json_output_process(&r->json, r->model);
}

/* `name` in the folder dirfd; path for messages. */
static void report_file(struct report *r, int dirfd, const char *name, const char *path)
{
	char why[STATEFILE_WHY_BYTES];
	struct statefile *f = statefile_open(dirfd, name, why);

	r->found++;
	if (!f) {
		unreadable(r, path, why);
		return;
	}
	if (model_read(r->model, f, path))
		write_model(r);
	if (r->model->trouble[0])
		unreadable(r, path, r->model->trouble);
	statefile_close(f);
}

/* Files of others in a folder that all share are none of ours, as long as nobody named them. */
static bool somebody_elses(int dirfd, const char *name)
{
	struct stat st;

	return fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_uid != geteuid() &&
	       faccessat(dirfd, name, R_OK, AT_EACCESS) != 0;
}

static void report_folder(struct report *r, const char *folder, bool named)
{
	int fd = folder_open(folder);
	size_t count = 0;
	char **names = fd < 0 ? NULL : folder_names(fd, &count);

	if (!names) {
		unreadable(r, folder,
			   fd < 0 && errno == ENOENT ? "does not exist" : strerror(errno));
	} else if (count == 0 && named) {
		unreadable(r, folder, "has no state file in it");
	}
	for (size_t i = 0; i < count; i++) {
		char path[4096];

		snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
		if (named || !somebody_elses(fd, names[i]))
			report_file(r, fd, names[i], path);
	}
	folder_names_free(names);
	if (fd >= 0)
		close(fd);
}

static void report_path(struct report *r, const char *path)
{
	struct stat st;

	if (lstat(path, &st) != 0)
		unreadable(r, path, errno == ENOENT ? "does not exist" : strerror(errno));
	else if (S_ISDIR(st.st_mode))
		report_folder(r, path, true);
	else
		report_file(r, AT_FDCWD, path, path);
}

static void report_defaults(struct report *r)
{
	struct folders f;

	folders_find(&f);
	for (unsigned int i = 0; i < f.count; i++)
		report_folder(r, f.path[i], false);
	folders_free(&f);
	if (r->found == 0 && r->status == DONE) {
		complain("report", "no guarded program has left a state file in %s",
			 getenv("QPGUARD_DIR") ? getenv("QPGUARD_DIR")
					       : "/run/qpguard or /dev/shm/qpguard-UID");
		r->status = INPUT_MISSING;
	}
}

/* -o: a regular file appears whole, by rename; anything else is written as it is. */

static FILE *open_output(const struct report *r, char *fresh, size_t size)
{
	struct stat st;

	fresh[0] = '\0';
	if (!r->output)
		return stdout;
	if (stat(r->output, &st) == 0 && !S_ISREG(st.st_mode))
		return fopen(r->output, "we");
	snprintf(fresh, size, "%s.%d", r->output, (int)getpid());
	return fopen(fresh, "wxe");
}

static int close_output(const struct report *r, FILE *out, const char *fresh)
{
	int status = finish_output("report", out, r->output ? r->output : "standard output");

	if (fresh[0] && status == DONE && rename(fresh, r->output) != 0) {
		complain("report", "%s: cannot be written: %s", r->output, strerror(errno));
		status = INPUT_MISSING;
	}
	if (fresh[0] && status != DONE)
		unlink(fresh);
	return status;
}

static void begin(struct report *r, FILE *out)
{
	text_output_begin(&r->text, out, r->verbose);
	r->json = (struct json_output){ .out = out,
					.lines = r->format == FORMAT_JSONL,
					.verbose = r->verbose };
	if (!r->check && r->format != FORMAT_TEXT)
		json_output_begin(&r->json);
}

static void end(struct report *r)
{
	if (r->check)
		return;
	if (r->format == FORMAT_TEXT)
		text_output_end(&r->text);
	else
		json_output_end(&r->json);
}

static int make_report(struct report *r, char **paths)
{
	char fresh[4096];
	FILE *out = open_output(r, fresh, sizeof(fresh));
	int written;

	r->model = calloc(1, sizeof(*r->model));
	if (!out || !r->model) {
		complain("report", "%s: cannot be written: %s", r->output ? r->output : "report",
			 strerror(errno));
		free(r->model);
		return INPUT_MISSING;
	}
	begin(r, out);
	if (!*paths)
		report_defaults(r);
	for (; *paths; paths++)
		report_path(r, *paths);
	end(r);
	free(r->model);
	written = close_output(r, out, fresh);
	if (r->status != DONE)
		return r->status;
	return written != DONE ? written : r->failed_checks ? CHECK_FAILED : DONE;
}

static bool set_format(struct report *r, const char *name)
{
	static const char *const names[] = { "text", "json", "jsonl" };

	for (unsigned int i = 0; i < 3; i++)
		if (strcmp(name, names[i]) == 0) {
			r->format = (enum format)i;
			return true;
		}
	if (strcmp(name, "html") == 0 || strcmp(name, "prometheus") == 0)
		complain("report", "--format %s is not in this version", name);
	else
		complain("report", "--format %s: text, json or jsonl", name);
	return false;
}

int cmd_report(int argc, char **argv)
{
	static const struct option options[] = {
		{ "check", no_argument, NULL, 'c' },
		{ "verbose", no_argument, NULL, 'v' },
		{ "format", required_argument, NULL, 'f' },
		{ "output", required_argument, NULL, 'o' },
		{ "debug-dir", required_argument, NULL, 'd' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	struct report r = { .status = DONE };
	int c;

	optind = 1;
	while ((c = getopt_long(argc, argv, "vo:f:h", options, NULL)) != -1) {
		if (c == 'c') {
			r.check = true;
		} else if (c == 'v') {
			r.verbose = true;
		} else if (c == 'o') {
			r.output = optarg;
		} else if (c == 'd') {
			symbol_directory(optarg);
		} else if (c == 'f') {
			if (!set_format(&r, optarg))
				return USAGE;
		} else {
			fputs(usage_text, c == 'h' ? stdout : stderr);
			return c == 'h' ? finish_output("report", stdout, "standard output")
					: USAGE;
		}
	}
	if (r.check && r.format != FORMAT_TEXT) {
		complain("report", "--check is text only");
		return USAGE;
	}
	return make_report(&r, argv + optind);
}
