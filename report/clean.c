/* SPDX-License-Identifier: MIT */
/*
 * `qpguard clean`: removes state files of processes that ended, by the [state] limits of the
 * policy. What it does to a file is unlink, and only to regular files of its own naming,
 * of its own user (root: of any), that no process has locked; of one that was killed it notes the
 * time in the file's own.
 */
#include "tool.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../shim/retain.h"
#include "folders.h"
#include "show.h"
#include "statefile.h"

/* A temporary file this old was left by a process that was killed while it made it. */
#define LEFTOVER_SECONDS 3600

static const char usage_text[] =
	"usage: qpguard clean [--all] [--older-than AGE] [--max-files N] [--max-bytes SIZE] [-n] "
	"[FOLDER...]\n"
	"\n"
	"Removes the state files of processes that ended, as [state] of the policy says (7 days, "
	"1000\n"
	"files and 32 MiB if it says nothing). A running process keeps its file. Without FOLDER:\n"
	"QPGUARD_DIR, else /run/qpguard and /dev/shm/qpguard-UID (root: of every user).\n"
	"\n"
	"  --all             all of them\n"
	"  --older-than AGE  instead of [state] keep: 30m, 12h, 7d\n"
	"  --max-files N     keep at most so many, the newest\n"
	"  --max-bytes SIZE  keep at most so many bytes of them\n"
	"  --conf FILE       the policy file, instead of QPGUARD_CONF or /etc/qpguard.conf\n"
	"  -n                only tell what would be removed\n"
	"\n"
	"Exit status: 0 done, 2 usage, 3 a folder is missing or a file could not be removed.\n";

struct clean {
	struct policy *policy;
	struct retain_limits limits;
	const char *conf;
	bool all, dry_run;
	unsigned int files, running, removed;
	uint64_t removed_bytes;
	int status;
};

/*
 * When a dead process ended, by the rule of shim/sweep.c: one that was killed left no time, and its
 * file's mtime is old, so the first who finds it dead writes down the time, as mtime, with an atime
 * that tells that it is so.
 */
static uint64_t dead_since(int fd, const struct stat *st, bool dry_run)
{
	const struct timespec found_dead[2] = { { FOUND_DEAD_ATIME, 0 }, { 0, UTIME_NOW } };
	uint64_t mtime = (uint64_t)st->st_mtim.tv_sec * 1000000000u + (uint64_t)st->st_mtim.tv_nsec;
	uint64_t now = clock_now(), ended = 0;

	if (pread(fd, &ended, sizeof(ended), offsetof(struct state_header, ended_at)) !=
	    sizeof(ended))
		ended = 0;
	if (ended || st->st_atim.tv_sec == FOUND_DEAD_ATIME)
		return ended > mtime && ended < now ? ended : mtime;
	if (!dry_run)
		futimens(fd, found_dead);
	return now;
}

/* What is known of a state file; false: not ours to judge. */
static bool examine(int dirfd, const char *name, bool dry_run, struct retain_item *item)
{
	int fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
	struct stat st;

	if (fd < 0)
		return false;
	if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) ||
	    (st.st_uid != geteuid() && geteuid() != 0)) {
		close(fd);
		return false;
	}
	*item = (struct retain_item){
		.name = name,
		.bytes = (uint64_t)st.st_blocks * 512,
		.live = statefile_locked(fd),
	};
	if (!item->live)
		item->ended_ns = dead_since(fd, &st, dry_run);
	close(fd);
	return true;
}

static void remove_one(struct clean *c, int dirfd, const char *folder,
		       const struct retain_item *item)
{
	char ended[NAME_MAX + 1], path[4096], shown[4096];

	snprintf(path, sizeof(path), "%s/%s", folder, item->name);
	show_text(shown, sizeof(shown), path, strlen(path), ESCAPE_FOR_TERMINAL);
	if (c->dry_run) {
		printf("would remove %s\n", shown);
	} else if (unlinkat(dirfd, item->name, 0) != 0 && errno != ENOENT) {
		complain("clean", "%s: %s", shown, strerror(errno));
		c->status = INPUT_MISSING;
		return;
	} else if (ended_file_name(item->name, ended, sizeof(ended))) {
		unlinkat(dirfd, ended, 0);
	}
	c->removed++;
	c->removed_bytes += item->bytes;
}

static void clean_files(struct clean *c, int dirfd, const char *folder, char **names, size_t count)
{
	struct retain_item *items = calloc(count ? count : 1, sizeof(*items));
	size_t n = 0;

	if (!items) {
		c->status = INPUT_MISSING;
		return;
	}
	for (size_t i = 0; i < count; i++)
		n += examine(dirfd, names[i], c->dry_run, &items[n]);
	retain_choose(items, n, &c->limits, clock_now());
	for (size_t i = 0; i < n; i++) {
		c->files++;
		c->running += items[i].live;
		if (items[i].remove)
			remove_one(c, dirfd, folder, &items[i]);
	}
	free(items);
}

/* A temporary file that its maker never got to name, or an .ended file whose state file is gone. */
static bool is_leftover(int dirfd, const char *name)
{
	const char *suffix = strstr(name, ENDED_FILE_SUFFIX);
	char state[NAME_MAX + sizeof(STATE_FILE_SUFFIX)];
	struct stat st;

	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(st.st_mode) ||
	    (st.st_uid != geteuid() && geteuid() != 0) ||
	    (uint64_t)st.st_mtim.tv_sec + LEFTOVER_SECONDS > clock_now() / 1000000000u)
		return false;
	if (strncmp(name, TEMPORARY_PREFIX, strlen(TEMPORARY_PREFIX)) == 0) {
		int fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
		bool locked = fd >= 0 && statefile_locked(fd);

		if (fd >= 0)
			close(fd);
		return !locked;
	}
	if (strncmp(name, STATE_FILE_PREFIX, strlen(STATE_FILE_PREFIX)) != 0 || !suffix)
		return false;
	snprintf(state, sizeof(state), "%.*s" STATE_FILE_SUFFIX, (int)(suffix - name), name);
	return faccessat(dirfd, state, F_OK, AT_SYMLINK_NOFOLLOW) != 0 && errno == ENOENT;
}

static void clean_leftovers(struct clean *c, int dirfd)
{
	int copy = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = copy < 0 ? NULL : fdopendir(copy);
	struct dirent *e;

	if (!dir) {
		if (copy >= 0)
			close(copy);
		return;
	}
	while (!c->dry_run && (e = readdir(dir)))
		if (is_leftover(dirfd, e->d_name))
			unlinkat(dirfd, e->d_name, 0);
	closedir(dir);
}

static void clean_folder(struct clean *c, const char *folder)
{
	int fd = folder_open(folder);
	size_t count = 0;
	char **names = fd < 0 ? NULL : folder_names(fd, &count);

	if (!names) {
		complain("clean", "%s: %s", folder, strerror(errno));
		c->status = INPUT_MISSING;
	} else {
		clean_files(c, fd, folder, names, count);
		clean_leftovers(c, fd);
	}
	folder_names_free(names);
	if (fd >= 0)
		close(fd);
}

static void tell(const struct clean *c)
{
	char size[SHOW_BYTES];

	printf("%s %u of %u state file%s (%s)", c->dry_run ? "would remove" : "removed", c->removed,
	       c->files, c->files == 1 ? "" : "s", show_size(size, c->removed_bytes));
	if (c->running)
		printf("; %u of running processes stay%s", c->running, c->running == 1 ? "s" : "");
	putchar('\n');
}

static int clean_all(struct clean *c, char **folders)
{
	int written;

	if (*folders) {
		for (; *folders; folders++)
			clean_folder(c, *folders);
	} else {
		struct folders f;

		folders_find(&f);
		for (unsigned int i = 0; i < f.count; i++)
			clean_folder(c, f.path[i]);
		folders_free(&f);
	}
	tell(c);
	written = finish_output("clean", stdout, "standard output");
	return c->status != DONE ? c->status : written;
}

/* The policy of file and environment, which faults do not make useless: the guard says them too. */
static int load_policy(struct clean *c, struct policy *options)
{
	static const struct policy_subject nobody = { "", "", "", "", "", "", 0 };
	struct policy_values v, o;
	unsigned int complaints = 0;
	const char *file = policy_file_name(c->conf);

	if (file && policy_file_load("clean", file, c->policy, &complaints) != DONE)
		return INPUT_MISSING;
	policy_environment_load("clean", c->policy, &complaints);
	policy_resolve(c->policy, &nobody, &v);
	policy_resolve(options, &nobody, &o);
	for (unsigned int key = STATE_KEEP; key <= STATE_MAX_BYTES; key++)
		if (o.set >> key & 1)
			v.num[key] = o.num[key];
	if (c->all)
		v.num[STATE_KEEP] = 0;
	c->limits = retain_limits_of(&v);
	return DONE;
}

/* A value is read as the policy's parser reads it: one notion of ages and sizes. */
static bool set_limit(struct policy *options, unsigned int key, const char *value)
{
	char name[64], label[] = "clean";

	policy_variable_name(key, name, sizeof(name));
	return policy_variable(options, name, value, policy_complaint_print, label) == 0;
}

static int parse(struct clean *c, struct policy *options, int argc, char **argv)
{
	static const struct option names[] = {
		{ "all", no_argument, NULL, 'a' },
		{ "older-than", required_argument, NULL, 'o' },
		{ "max-files", required_argument, NULL, 'f' },
		{ "max-bytes", required_argument, NULL, 'b' },
		{ "conf", required_argument, NULL, 'c' },
		{ "dry-run", no_argument, NULL, 'n' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	bool good = true;
	int o;

	optind = 1;
	while (good && (o = getopt_long(argc, argv, "anh", names, NULL)) != -1) {
		switch (o) {
		case 'a':
			c->all = true;
			break;
		case 'n':
			c->dry_run = true;
			break;
		case 'c':
			c->conf = optarg;
			break;
		case 'o':
			good = set_limit(options, STATE_KEEP, optarg);
			break;
		case 'f':
			good = set_limit(options, STATE_MAX_FILES, optarg);
			break;
		case 'b':
			good = set_limit(options, STATE_MAX_BYTES, optarg);
			break;
		default:
			fputs(usage_text, o == 'h' ? stdout : stderr);
			if (o == 'h')
				c->files = 1;
			good = false;
		}
	}
	return good ? DONE : USAGE;
}

int cmd_clean(int argc, char **argv)
{
	struct policy *options = malloc(sizeof(*options));
	struct clean c = { .policy = malloc(sizeof(*c.policy)), .status = DONE };
	int status = INPUT_MISSING;

	if (options && c.policy) {
		policy_init(options);
		policy_init(c.policy);
		status = parse(&c, options, argc, argv);
		if (status == USAGE && c.files) /* --help */
			status = finish_output("clean", stdout, "standard output");
		else if (status == DONE)
			status = load_policy(&c, options) == DONE ? clean_all(&c, argv + optind)
								  : INPUT_MISSING;
	}
	free(options);
	free(c.policy);
	return status;
}
