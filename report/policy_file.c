/* SPDX-License-Identifier: MIT */
/*
 * The policy as the guard of this environment would see it: the file and the QPGUARD_ variables,
 * with every fault told on standard error. Reads one file and the environment.
 */
#include "tool.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "show.h"

#define STANDARD_FILE "/etc/qpguard.conf"
#define FILE_BYTES    (1u << 20)

extern char **environ;

const char *policy_file_name(const char *given)
{
	const char *named = getenv("QPGUARD_CONF");

	if (given)
		return given;
	if (named && *named)
		return named;
	return access(STANDARD_FILE, F_OK) == 0 ? STANDARD_FILE : NULL;
}

void policy_complaint_print(void *arg, const struct policy_complaint *c)
{
	char text[1024];

	show_text(text, sizeof(text), c->text, strlen(c->text), ESCAPE_FOR_TERMINAL);
	if (c->line)
		complain(arg, "%s:%" PRIu32 ": %s", c->file, c->line, text);
	else
		complain(arg, "%s: %s", c->file, text);
}

void policy_variable_name(unsigned int key, char *out, size_t size)
{
	snprintf(out, size, "QPGUARD_%s_%s", policy_keys[key].section, policy_keys[key].name);
	for (char *c = out; *c; c++)
		*c = *c == '.' ? '_' : (char)toupper((unsigned char)*c);
}

/* All of a file, at most FILE_BYTES; NULL with errno. */
static char *read_whole(const char *name, size_t *len)
{
	int fd = open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat st;
	char *text;
	ssize_t n;

	if (fd < 0)
		return NULL;
	if (fstat(fd, &st) != 0 || S_ISDIR(st.st_mode)) {
		close(fd);
		errno = EISDIR;
		return NULL;
	}
	text = malloc(FILE_BYTES + 1);
	*len = 0;
	while (text && (n = read(fd, text + *len, FILE_BYTES + 1 - *len)) > 0)
		*len += (size_t)n;
	close(fd);
	if (text && *len > FILE_BYTES) {
		free(text);
		errno = EFBIG;
		return NULL;
	}
	return text;
}

int policy_file_load(const char *command, const char *name, struct policy *p,
		     unsigned int *complaints)
{
	char label[64];
	size_t len;
	char *text = read_whole(name, &len);

	if (!text) {
		complain(command, "%s: %s", name, strerror(errno));
		return INPUT_MISSING;
	}
	snprintf(label, sizeof(label), "%s", command);
	*complaints += policy_parse(p, name, text, len, policy_complaint_print, label);
	free(text);
	return DONE;
}

void policy_environment_load(const char *command, struct policy *p, unsigned int *complaints)
{
	char label[64];

	snprintf(label, sizeof(label), "%s", command);
	for (char **e = environ; *e; e++) {
		const char *equals = strchr(*e, '=');
		char name[256];

		if (strncmp(*e, "QPGUARD_", 8) != 0 || !equals ||
		    (size_t)(equals - *e) >= sizeof(name))
			continue;
		memcpy(name, *e, (size_t)(equals - *e));
		name[equals - *e] = '\0';
		*complaints += policy_variable(p, name, equals + 1, policy_complaint_print, label);
	}
}
