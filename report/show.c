/* SPDX-License-Identifier: MIT */
/*
 * Numbers, times and names as people read them: see show.h. Pure but for gmtime_r, which without a
 * time zone file gives UTC.
 */
#include "show.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define NS 1000000000ull

char *show_size(char *out, uint64_t bytes)
{
	static const char *const units[] = { "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
	double value = (double)bytes / 1024;
	unsigned int unit = 0;
	size_t len;

	if (bytes < 1024) {
		snprintf(out, SHOW_BYTES, "%" PRIu64 " B", bytes);
		return out;
	}
	while (value >= 1023.95 && unit + 1 < sizeof(units) / sizeof(units[0])) {
		value /= 1024;
		unit++;
	}
	snprintf(out, SHOW_BYTES, value < 99.95 ? "%.1f" : "%.0f", value);
	len = strlen(out);
	if (len > 2 && strcmp(out + len - 2, ".0") == 0)
		len -= 2;
	snprintf(out + len, SHOW_BYTES - len, " %s", units[unit]);
	return out;
}

char *show_count(char *out, uint64_t number)
{
	static const char units[] = "MGTPE";
	double value = (double)number / 1e6;
	unsigned int unit = 0;

	if (number < 10000000) {
		snprintf(out, SHOW_BYTES, "%" PRIu64, number);
		return out;
	}
	while (value >= 999.95 && units[unit + 1]) {
		value /= 1000;
		unit++;
	}
	snprintf(out, SHOW_BYTES, "%.1f%c", value, units[unit]);
	return out;
}

char *show_span(char *out, uint64_t ns)
{
	uint64_t s = ns / NS;

	if (s < 1)
		snprintf(out, SHOW_BYTES, "%" PRIu64 " ms", ns / 1000000);
	else if (s < 120)
		snprintf(out, SHOW_BYTES, "%" PRIu64 " s", s);
	else if (s < 120 * 60)
		snprintf(out, SHOW_BYTES, "%" PRIu64 " min", s / 60);
	else if (s < 48 * 3600)
		snprintf(out, SHOW_BYTES, "%" PRIu64 " h", s / 3600);
	else
		snprintf(out, SHOW_BYTES, "%" PRIu64 " days", s / 86400);
	return out;
}

static void utc(uint64_t ns, const char *format, char *out)
{
	time_t seconds = (time_t)(ns / NS);
	struct tm tm;

	if (!gmtime_r(&seconds, &tm) || !strftime(out, SHOW_BYTES, format, &tm))
		snprintf(out, SHOW_BYTES, "1970-01-01");
}

char *show_time(char *out, uint64_t ns)
{
	utc(ns, "%Y-%m-%d %H:%M:%S UTC", out);
	return out;
}

char *show_rfc3339(char *out, uint64_t ns)
{
	size_t len;

	utc(ns, "%Y-%m-%dT%H:%M:%S", out);
	len = strlen(out);
	snprintf(out + len, SHOW_BYTES - len, ".%09uZ", (unsigned int)(ns % NS));
	return out;
}

/* Length of the UTF-8 character at `s`, its code point in *point; 0 if it is none. */
static size_t utf8_character(const unsigned char *s, size_t len, uint32_t *point)
{
	static const uint32_t smallest[] = { 0, 0, 0x80, 0x800, 0x10000 };
	size_t need = s[0] < 0x80	? 1
		      : s[0] >> 5 == 6	? 2
		      : s[0] >> 4 == 14 ? 3
		      : s[0] >> 3 == 30 ? 4
					: 0;
	uint32_t value;

	if (need == 0 || need > len)
		return 0;
	value = need == 1 ? s[0] : s[0] & (0x7fu >> need);
	for (size_t i = 1; i < need; i++) {
		if (s[i] >> 6 != 2)
			return 0;
		value = value << 6 | (s[i] & 0x3f);
	}
	if (value < smallest[need] || value > 0x10ffff || (value >= 0xd800 && value < 0xe000))
		return 0;
	*point = value;
	return need;
}

/* Controls, and the marks that reorder or hide text. */
static bool steers_terminal(uint32_t point)
{
	return point < 0x20 || (point >= 0x7f && point < 0xa0) || point == 0xad ||
	       (point >= 0x200b && point <= 0x200f) || (point >= 0x2028 && point <= 0x202e) ||
	       (point >= 0x2060 && point <= 0x206f) || point == 0xfeff ||
	       (point >= 0xfff9 && point <= 0xfffb) || (point >= 0xe0000 && point <= 0xe007f);
}

char *show_text(char *out, size_t size, const char *text, size_t len, enum escape how)
{
	const unsigned char *s = (const unsigned char *)text;
	size_t used = 0;

	for (size_t i = 0; i < len;) {
		uint32_t point = 0;
		size_t n = utf8_character(s + i, len - i, &point);
		bool escaped = n == 0 || point == 0 ||
			       (how == ESCAPE_FOR_TERMINAL && steers_terminal(point));
		size_t bytes = n ? n : 1;

		if (used + bytes * (escaped ? 4 : 1) >= size)
			break;
		if (!escaped) {
			memcpy(out + used, s + i, bytes);
			used += bytes;
		}
		for (size_t k = 0; escaped && k < bytes; k++)
			used += (size_t)snprintf(out + used, size - used, "\\x%02x", s[i + k]);
		i += bytes;
	}
	out[used] = '\0';
	return out;
}

size_t show_width(const char *text)
{
	size_t width = 0;

	for (; *text; text++)
		width += ((unsigned char)*text & 0xc0) != 0x80;
	return width;
}

const char *show_qp_state(unsigned int state)
{
	static const char *const names[] = { "RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR" };

	return state < sizeof(names) / sizeof(names[0]) ? names[state] : NULL;
}

const char *show_wq_state(unsigned int state)
{
	static const char *const names[] = { "RESET", "RDY", "ERR" };

	return state < sizeof(names) / sizeof(names[0]) ? names[state] : NULL;
}
