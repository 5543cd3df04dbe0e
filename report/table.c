/* SPDX-License-Identifier: MIT */
/*
 * Aligned columns: see table.h. Writes to the FILE it is given, nothing else.
 */
#include "table.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "show.h"

#define INDENT 2
#define GAP    2

unsigned int terminal_width(FILE *out)
{
	const char *columns = getenv("COLUMNS");
	unsigned long width = columns ? strtoul(columns, NULL, 10) : 0;
	struct winsize size;

	if (width == 0 && ioctl(fileno(out), TIOCGWINSZ, &size) == 0)
		width = size.ws_col;
	if (width == 0)
		width = 80;
	return width < 60 ? 60 : width > 400 ? 400 : (unsigned int)width;
}

const char *color_on(bool colors, enum color c)
{
	static const char *const codes[] = { "",	 "\033[1m",  "\033[31m",
					     "\033[33m", "\033[32m", "\033[2m" };

	return colors ? codes[c] : "";
}

const char *color_off(bool colors)
{
	return colors ? "\033[0m" : "";
}

struct table *table_new(FILE *out, unsigned int width, bool colors)
{
	struct table *t = calloc(1, sizeof(*t));

	if (t) {
		t->out = out;
		t->width = width;
		t->colors = colors;
		t->gap = 2;
	}
	return t;
}

void table_column(struct table *t, const char *head, bool right, unsigned char drop)
{
	if (t && t->columns < TABLE_COLUMNS)
		t->column[t->columns++] = (struct table_column){ head, right, drop,
								 (unsigned int)strlen(head), true };
}

static unsigned int total_width(const struct table *t)
{
	unsigned int width = INDENT;

	for (unsigned int c = 0; c < t->columns; c++)
		if (t->column[c].shown)
			width += t->column[c].width + t->gap;
	return width - t->gap;
}

/* Leaves out the least wanted columns until the rest fits; if none is left to go, moves them
 * closer. */
static void choose_columns(struct table *t)
{
	while (total_width(t) > t->width) {
		struct table_column *worst = NULL;

		for (unsigned int c = 0; c < t->columns; c++) {
			struct table_column *k = &t->column[c];

			if (k->shown && k->drop && (!worst || k->drop > worst->drop))
				worst = k;
		}
		if (!worst) {
			t->gap = 1;
			return;
		}
		worst->shown = false;
	}
}

static void print_cell(const struct table *t, const struct table_column *k, const char *text,
		       enum color c, bool last)
{
	unsigned int width = (unsigned int)show_width(text);
	int pad = width < k->width ? (int)(k->width - width) : 0;

	if (k->right)
		fprintf(t->out, "%*s", pad, "");
	fprintf(t->out, "%s%s%s", color_on(t->colors, c), text, c ? color_off(t->colors) : "");
	if (!k->right && !last)
		fprintf(t->out, "%*s", pad, "");
	if (!last)
		fprintf(t->out, "%*s", (int)t->gap, "");
}

static void print_row(const struct table *t, int row)
{
	unsigned int last = 0;

	for (unsigned int c = 0; c < t->columns; c++)
		if (t->column[c].shown)
			last = c;
	fprintf(t->out, "%*s", INDENT, "");
	for (unsigned int c = 0; c < t->columns; c++)
		if (t->column[c].shown)
			print_cell(t, &t->column[c], row < 0 ? t->column[c].head : t->text[row][c],
				   row < 0 ? DIM : t->color[row][c], c == last);
	fputc('\n', t->out);
	if (row >= 0 && t->note[row][0]) {
		fprintf(t->out, "%*s", 3 * INDENT, "");
		print_wrapped(t->out, t->width, 3 * INDENT, 4 * INDENT, t->note[row]);
	}
}

static void flush_rows(struct table *t)
{
	for (unsigned int r = 0; r < t->rows; r++)
		for (unsigned int c = 0; c < t->columns; c++) {
			unsigned int width = (unsigned int)show_width(t->text[r][c]);

			if (width > t->column[c].width)
				t->column[c].width = width;
		}
	if (!t->begun && t->rows) {
		choose_columns(t);
		print_row(t, -1);
		t->begun = true;
	}
	for (unsigned int r = 0; r < t->rows; r++)
		print_row(t, (int)r);
	memset(t->text, 0, sizeof(t->text));
	memset(t->color, 0, sizeof(t->color));
	memset(t->note, 0, sizeof(t->note));
	t->rows = 0;
}

void table_row(struct table *t)
{
	if (!t)
		return;
	if (t->rows == TABLE_ROWS)
		flush_rows(t);
	t->rows++;
	t->cell = 0;
}

void table_cell(struct table *t, enum color c, const char *format, ...)
{
	va_list ap;

	if (!t || t->rows == 0 || t->cell >= t->columns)
		return;
	va_start(ap, format);
	vsnprintf(t->text[t->rows - 1][t->cell], TABLE_CELL, format, ap);
	va_end(ap);
	t->color[t->rows - 1][t->cell++] = c;
}

void table_note(struct table *t, const char *format, ...)
{
	va_list ap;

	if (!t || t->rows == 0)
		return;
	va_start(ap, format);
	vsnprintf(t->note[t->rows - 1], TABLE_NOTE, format, ap);
	va_end(ap);
}

void table_end(struct table *t)
{
	if (!t)
		return;
	flush_rows(t);
	free(t);
}

void print_wrapped(FILE *out, unsigned int width, unsigned int used, unsigned int indent,
		   const char *text)
{
	bool first = true;

	while (*text) {
		size_t len = strcspn(text, " ");
		char word[1024];
		unsigned int columns;

		if (len >= sizeof(word))
			len = sizeof(word) - 1;
		memcpy(word, text, len);
		word[len] = '\0';
		columns = (unsigned int)show_width(word);
		if (!first && used + 1 + columns > width) {
			fprintf(out, "\n%*s", (int)indent, "");
			used = indent;
		} else if (!first) {
			fputc(' ', out);
			used++;
		}
		fputs(word, out);
		used += columns;
		first = false;
		text += len;
		text += strspn(text, " ");
	}
	fputc('\n', out);
}
