/* SPDX-License-Identifier: MIT */
/* See text.h. Touches nothing but the memory it is given. */
#include <string.h>

#include "text.h"

enum { QUOTED_MOST = 60 };

struct span span_of(const char *s)
{
	return (struct span){ s, strlen(s) };
}

struct span span_trim(struct span s)
{
	while (s.len && is_blank(s.at[0])) {
		s.at++;
		s.len--;
	}
	while (s.len && is_blank(s.at[s.len - 1]))
		s.len--;
	return s;
}

bool span_is(struct span s, const char *word)
{
	return strlen(word) == s.len && memcmp(s.at, word, s.len) == 0;
}

bool span_is_nocase(struct span s, const char *word)
{
	size_t i = 0;

	while (i < s.len && word[i] && lower(s.at[i]) == lower(word[i]))
		i++;
	return i == s.len && !word[i];
}

struct text text_begin(char *out, size_t size)
{
	if (size)
		out[0] = '\0';
	return (struct text){ .at = out, .size = size };
}

void text_char(struct text *t, char c)
{
	if (t->len + 1 < t->size) {
		t->at[t->len] = c;
		t->at[t->len + 1] = '\0';
	}
	t->len++;
}

void text_put(struct text *t, const char *s)
{
	while (*s)
		text_char(t, *s++);
}

void text_span(struct text *t, struct span s)
{
	for (size_t i = 0; i < s.len; i++)
		text_char(t, s.at[i]);
}

void text_number(struct text *t, uint64_t n)
{
	char digits[20];
	size_t i = sizeof(digits);

	do {
		digits[--i] = (char)('0' + n % 10);
		n /= 10;
	} while (n);
	text_span(t, (struct span){ digits + i, sizeof(digits) - i });
}

void text_quoted(struct text *t, struct span s)
{
	text_char(t, '\'');
	for (size_t i = 0; i < s.len && i < QUOTED_MOST; i++) {
		unsigned char c = (unsigned char)s.at[i];

		text_char(t, c < 0x20 || c == 0x7f ? '?' : (char)c);
	}
	text_put(t, s.len > QUOTED_MOST ? "...'" : "'");
}

void text_name(struct text *t, const char *s)
{
	for (; *s; s++)
		text_char(t, (unsigned char)*s < 0x20 || *s == 0x7f ? '?' : *s);
}

size_t text_end(const struct text *t)
{
	return t->len;
}
