/* SPDX-License-Identifier: MIT */
/*
 * Short texts put together without printf: no locale, no allocation, 100 bytes of stack, usable in any
 * hook. What does not fit is cut; the text is always terminated.
 */
#ifndef QPG_TEXT_H
#define QPG_TEXT_H

#include <stddef.h>
#include <stdint.h>

struct text {
	char *buf;
	size_t size, len;
};

static inline void text_char(struct text *t, char c)
{
	if (t->len + 1 < t->size) {
		t->buf[t->len++] = c;
		t->buf[t->len] = '\0';
	}
}

static inline struct text text_on(char *buf, size_t size)
{
	if (size)
		buf[0] = '\0';
	return (struct text){ .buf = buf, .size = size };
}

static inline void text_add(struct text *t, const char *s)
{
	while (*s)
		text_char(t, *s++);
}

static inline void text_number(struct text *t, uint64_t n)
{
	char digits[20];
	unsigned int i = sizeof(digits);

	do
		digits[--i] = (char)('0' + n % 10);
	while (n /= 10);
	while (i < sizeof(digits))
		text_char(t, digits[i++]);
}

/* Control characters, which a program's or a device's name may hold, become '?'. */
static inline void text_name(struct text *t, const char *s)
{
	for (; *s; s++)
		text_char(t, (unsigned char)*s < 0x20 || *s == 0x7f ? '?' : *s);
}

#endif
