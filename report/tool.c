/* SPDX-License-Identifier: MIT */
/*
 * What the subcommands share: see tool.h. Writes to standard error and to the FILE it is given.
 */
#include "tool.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>

void complain(const char *command, const char *format, ...)
{
	va_list ap;

	fprintf(stderr, "qpguard%s%s: ", command ? " " : "", command ? command : "");
	va_start(ap, format);
	vfprintf(stderr, format, ap);
	va_end(ap);
	fputc('\n', stderr);
}

int finish_output(const char *command, FILE *out, const char *name)
{
	bool failed = ferror(out) || fflush(out) != 0;

	if (out != stdout && out != stderr)
		failed = fclose(out) != 0 || failed;
	if (failed)
		complain(command, "%s: cannot be written: %s", name, strerror(errno));
	return failed ? INPUT_MISSING : DONE;
}

uint64_t clock_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
