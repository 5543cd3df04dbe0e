/* SPDX-License-Identifier: MIT */
/*
 * Lines for people. A line goes into the state file's events first and is then printed, if its level is on,
 * it is new (an equal one is only counted) and the rate allows.
 */
#ifndef QPG_LOG_H
#define QPG_LOG_H

#include "../policy/policy.h"

struct guard;

/* Under guard->lock. `line` has no newline and no prefix. */
void log_line(struct guard *g, enum log_level level, const char *line);
/* The same of what stands among the failures of the state file too: such an event is overwritten first. */
void log_failure(struct guard *g, enum log_level level, const char *line);

#endif
