/* SPDX-License-Identifier: MIT */
/*
 * Where state files are: see folders.h. Reads the environment and directories.
 */
#include "folders.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "statefile.h"

#define SYSTEM_FOLDER "/run/qpguard"
#define SHM	      "/dev/shm"
#define SHM_PREFIX    "qpguard-"

bool folder_expand(const char *pattern, char *out, size_t size)
{
	size_t used = 0;

	for (const char *p = pattern; *p; p++) {
		char piece[256] = { *p };

		if (p[0] == '%' && p[1] == 'h') {
			if (gethostname(piece, sizeof(piece)) != 0)
				return false;
			piece[sizeof(piece) - 1] = '\0';
			p++;
		} else if (p[0] == '%' && p[1] == 'u') {
			snprintf(piece, sizeof(piece), "%u", (unsigned int)getuid());
			p++;
		} else if (p[0] == '%') { /* as the shim does: "%%" is one, anything else nothing */
			piece[0] = p[1] == '%' ? '%' : '\0';
			p += p[1] != '\0';
		}
		if (used + strlen(piece) >= size)
			return false;
		strcpy(out + used, piece);
		used += strlen(piece);
	}
	return used > 0;
}

static bool is_folder(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

bool folder_for_writing(char *out, size_t size)
{
	const char *pattern = getenv("QPGUARD_DIR");

	if (pattern && *pattern)
		return folder_expand(pattern, out, size);
	if (is_folder(SYSTEM_FOLDER) && access(SYSTEM_FOLDER, W_OK) == 0)
		return (size_t)snprintf(out, size, SYSTEM_FOLDER) < size;
	return folder_expand(SHM "/" SHM_PREFIX "%u", out, size);
}

static void add(struct folders *f, const char *path)
{
	if (f->count < FOLDERS && (f->path[f->count] = strdup(path)))
		f->count++;
}

/* Root looks into the folders of all users. */
static void add_everybodys(struct folders *f)
{
	DIR *shm = opendir(SHM);
	struct dirent *e;

	if (!shm)
		return;
	while ((e = readdir(shm))) {
		char path[sizeof(SHM) + sizeof(e->d_name) + 1];

		if (strncmp(e->d_name, SHM_PREFIX, strlen(SHM_PREFIX)) != 0)
			continue;
		snprintf(path, sizeof(path), SHM "/%s", e->d_name);
		if (is_folder(path))
			add(f, path);
	}
	closedir(shm);
}

void folders_find(struct folders *f)
{
	const char *pattern = getenv("QPGUARD_DIR");
	char path[4096];

	memset(f, 0, sizeof(*f));
	if (pattern && *pattern) {
		add(f, folder_expand(pattern, path, sizeof(path)) ? path : pattern);
		return;
	}
	if (is_folder(SYSTEM_FOLDER))
		add(f, SYSTEM_FOLDER);
	if (getuid() == 0) {
		add_everybodys(f);
		return;
	}
	if (folder_expand(SHM "/" SHM_PREFIX "%u", path, sizeof(path)) && is_folder(path))
		add(f, path);
}

void folders_free(struct folders *f)
{
	for (unsigned int i = 0; i < f->count; i++)
		free(f->path[i]);
	f->count = 0;
}

int folder_open(const char *path)
{
	return open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

char **folder_names(int dirfd, size_t *count)
{
	int copy = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = copy < 0 ? NULL : fdopendir(copy);
	char **names = calloc(FOLDER_FILES + 1, sizeof(*names));
	struct dirent *e;

	*count = 0;
	if (!dir || !names) {
		if (dir)
			closedir(dir);
		else if (copy >= 0)
			close(copy);
		free(names);
		return NULL;
	}
	while (*count < FOLDER_FILES && (e = readdir(dir)))
		if (statefile_name(e->d_name) && (names[*count] = strdup(e->d_name)))
			(*count)++;
	closedir(dir);
	qsort(names, *count, sizeof(*names), by_name);
	return names;
}

void folder_names_free(char **names)
{
	for (char **n = names; n && *n; n++)
		free(*n);
	free(names);
}
