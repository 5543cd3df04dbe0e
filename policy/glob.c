/* SPDX-License-Identifier: MIT */
/* See glob.h. Touches nothing; a few words of stack, no recursion. */
#include <string.h>

#include "glob.h"

/* The classes of POSIX that make sense in a name, as ranges. */
static const struct {
	const char *name, *ranges;
} classes[] = {
	{ ":alnum:]", "azAZ09" }, { ":alpha:]", "azAZ" },     { ":digit:]", "09" },
	{ ":lower:]", "az" },	  { ":upper:]", "AZ" },	      { ":xdigit:]", "09afAF" },
	{ ":space:]", "\t\r  " }, { ":punct:]", "!/:@[`{~" },
};

/* The length of a class at s, which stands behind a '[', or 0. */
static size_t class_at(const char *s, size_t len, const char **ranges)
{
	for (size_t i = 0; i < sizeof(classes) / sizeof(classes[0]); i++) {
		size_t n = strlen(classes[i].name);

		if (n <= len && memcmp(s, classes[i].name, n) == 0) {
			*ranges = classes[i].ranges;
			return n;
		}
	}
	return 0;
}

size_t glob_bracket_length(const char *glob, size_t len)
{
	const char *ranges;
	size_t i = 1;

	if (i < len && (glob[i] == '!' || glob[i] == '^'))
		i++;
	if (i < len && glob[i] == ']') /* first, it stands for itself */
		i++;
	while (i < len && glob[i] != ']') {
		if (glob[i] == '\\' && i + 1 < len)
			i++;
		else if (glob[i] == '[')
			i += class_at(glob + i + 1, len - i - 1, &ranges);
		i++;
	}
	return i < len ? i + 1 : 0;
}

static bool in_ranges(const char *ranges, unsigned char c)
{
	for (; *ranges; ranges += 2)
		if ((unsigned char)ranges[0] <= c && c <= (unsigned char)ranges[1])
			return true;
	return false;
}

/* Whether c is in the closed bracket expression at glob, which is `len` long. */
static bool bracket_match(const char *glob, size_t len, unsigned char c)
{
	const char *s = glob + 1, *end = glob + len - 1, *ranges;
	bool negated = *s == '!' || *s == '^', found = false;

	s += negated;
	while (s < end) {
		size_t skip = *s == '[' ? class_at(s + 1, (size_t)(end - s - 1), &ranges) : 0;
		unsigned char from, to;

		if (skip) {
			found |= in_ranges(ranges, c);
			s += 1 + skip;
			continue;
		}
		if (*s == '\\' && s + 1 < end)
			s++;
		from = to = (unsigned char)*s++;
		if (s + 1 < end && *s == '-') {
			s++;
			if (*s == '\\' && s + 1 < end)
				s++;
			to = (unsigned char)*s++;
		}
		found |= from <= c && c <= to;
	}
	return found != negated;
}

/* How much of glob one character c takes, or 0 if it does not match. Not for '*' or the end. */
static size_t match_one(const char *glob, unsigned char c)
{
	size_t len;

	switch (*glob) {
	case '?':
		return 1;
	case '[':
		len = glob_bracket_length(glob, strlen(glob));
		if (len)
			return bracket_match(glob, len, c) ? len : 0;
		return c == '[';
	case '\\':
		if (glob[1])
			return (unsigned char)glob[1] == c ? 2 : 0;
		return c == '\\';
	default:
		return (unsigned char)*glob == c;
	}
}

/* Only the last '*' ever needs another try: what an earlier one took, it may as well keep. */
bool glob_match(const char *glob, const char *text)
{
	const char *star = NULL, *tried = NULL;

	while (*text) {
		size_t n;

		if (*glob == '*') {
			star = ++glob;
			tried = text;
		} else if (*glob && (n = match_one(glob, (unsigned char)*text))) {
			glob += n;
			text++;
		} else if (star) {
			glob = star;
			text = ++tried;
		} else {
			return false;
		}
	}
	while (*glob == '*')
		glob++;
	return !*glob;
}
