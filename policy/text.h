/* SPDX-License-Identifier: MIT */
/*
 * Reading and writing text without the locale, without allocation and without stdio's stack: pieces
 * of text that need no NUL, and a writer that counts what it could not store, as snprintf does.
 */
#ifndef QPG_TEXT_H
#define QPG_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A piece of somebody's text. */
struct span {
	const char *at;
	size_t len;
};

struct span span_of(const char *s);
struct span span_trim(struct span s); /* without blanks at both ends */
bool span_is(struct span s, const char *word);
bool span_is_nocase(struct span s, const char *word);

static inline bool is_blank(char c)
{
	return c == ' ' || c == '\t';
}

static inline bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static inline char lower(char c)
{
	return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static inline char upper(char c)
{
	return c >= 'a' && c <= 'z' ? (char)(c - 'a' + 'A') : c;
}

/* Where text goes: terminated at any time, cut where it does not fit. text_end() returns the length
 * that was needed. */
struct text {
	char *at;
	size_t size, len;
};

struct text text_begin(char *out, size_t size);
void text_char(struct text *t, char c);
void text_put(struct text *t, const char *s);
void text_span(struct text *t, struct span s);
void text_number(struct text *t, uint64_t n);
/* In single quotes, control characters as '?', cut after 60 bytes: safe to log. */
void text_quoted(struct text *t, struct span s);
/* Control characters as '?': a program's or a device's name may hold them. */
void text_name(struct text *t, const char *s);
size_t text_end(const struct text *t);

#endif
