/* SPDX-License-Identifier: MIT */
/*
 * How a process ended, as `qpguard run` saw it: one line of text in a file beside the state file,
 * which only the process itself writes. "signal 9 at NS" or "exit 3 at NS". Written by rename, so
 * it is whole or absent; what is read is checked like anything from a stranger.
 */
#include "statefile.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ENDED_BYTES 96

bool ended_file_name(const char *state_name, char *out, size_t size)
{
	size_t len = strlen(state_name), suffix = strlen(STATE_FILE_SUFFIX);

	if (len <= suffix || strcmp(state_name + len - suffix, STATE_FILE_SUFFIX) != 0)
		return false;
	return (size_t)snprintf(out, size, "%.*s" ENDED_FILE_SUFFIX, (int)(len - suffix),
				state_name) < size;
}

void ended_read(int dirfd, const char *state_name, uint32_t owner, struct ended *out)
{
	char name[4096], text[ENDED_BYTES + 1], what[8];
	unsigned int number;
	uint64_t at;
	struct stat st;
	ssize_t n;
	int fd;

	memset(out, 0, sizeof(*out));
	if (!ended_file_name(state_name, name, sizeof(name)))
		return;
	fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
	if (fd < 0)
		return;
	n = -1;
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (st.st_uid == owner || st.st_uid == 0))
		n = read(fd, text, ENDED_BYTES);
	close(fd);
	if (n <= 0)
		return;
	text[n] = '\0';
	if (sscanf(text, "%7s %3u at %20" SCNu64, what, &number, &at) != 3)
		return;
	if (strcmp(what, "signal") == 0 && number >= 1 && number < 128)
		*out = (struct ended){ true, (int)number, -1, at };
	else if (strcmp(what, "exit") == 0 && number < 256)
		*out = (struct ended){ true, 0, (int)number, at };
}

bool ended_write(int dirfd, const char *state_name, const struct ended *e)
{
	char name[256], fresh[300], text[ENDED_BYTES];
	struct stat st;
	bool written;
	int fd, len;

	if (!ended_file_name(state_name, name, sizeof(name)) ||
	    fstatat(dirfd, state_name, &st, AT_SYMLINK_NOFOLLOW) != 0)
		return false;
	snprintf(fresh, sizeof(fresh), "%s.%d", name, (int)getpid());
	len = snprintf(text, sizeof(text), "%s %d at %" PRIu64 "\n", e->signal ? "signal" : "exit",
		       e->signal ? e->signal : e->exit_code, e->at);
	fd = openat(dirfd, fresh, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return false;
	if (fchown(fd, (uid_t)-1, st.st_gid) == 0)
		fchmod(fd, st.st_mode & 0640);
	written = write(fd, text, (size_t)len) == len;
	written = close(fd) == 0 && written;
	if (!written || renameat(dirfd, fresh, dirfd, name) != 0) {
		unlinkat(dirfd, fresh, 0);
		return false;
	}
	return true;
}
