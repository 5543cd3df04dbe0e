/* SPDX-License-Identifier: MIT */
/*
 * Where state files are: the folders that the guard of this environment writes to, and the state
 * files in a folder. Reads directories only.
 */
#ifndef QPG_FOLDERS_H
#define QPG_FOLDERS_H

#include <stdbool.h>
#include <stddef.h>

#define FOLDERS	     1024
#define FOLDER_FILES 65536 /* of one folder that are looked at */

struct folders {
	unsigned int count;
	char *path[FOLDERS];
};

/*
 * QPGUARD_DIR where set; else the default folders that exist: /run/qpguard and
 * /dev/shm/qpguard-UID, for root those of all users.
 */
void folders_find(struct folders *f);
void folders_free(struct folders *f);

/* QPGUARD_DIR with %h and %u filled in; false when it does not fit. */
bool folder_expand(const char *pattern, char *out, size_t size);

/* The one folder that a program started now writes to. */
bool folder_for_writing(char *out, size_t size);

/* Opens a folder without following a symbolic link in its last part; -1 with errno. */
int folder_open(const char *path);

/*
 * Names of the state files in an open folder, sorted; *count of them, NULL at the end. NULL: no
 * memory or not readable. Free with folder_names_free().
 */
char **folder_names(int dirfd, size_t *count);
void folder_names_free(char **names);

#endif
