/* SPDX-License-Identifier: MIT */
/* Shell globs over bytes, for the conditions of sections. */
#ifndef QPG_GLOB_H
#define QPG_GLOB_H

#include <stdbool.h>
#include <stddef.h>

/*
 * fnmatch(3) without flags as the C locale has it: '*', '?', '[a-c]', '[!a]' or '[^a]',
 * '[[:digit:]]', '\' before a character that is to stand for itself; '/' and a leading '.' are
 * like any other. Ours because libc's copies text to the heap and takes kilobytes of stack in a
 * UTF-8 locale, orders ranges as the locale does and can take exponential time; this one needs at
 * most glob length times text length steps.
 */
bool glob_match(const char *glob, const char *text);

/* How long the bracket expression at glob[0] == '[' is, of `len` bytes; 0: it is not closed. */
size_t glob_bracket_length(const char *glob, size_t len);

#endif
