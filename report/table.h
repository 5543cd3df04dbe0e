/* SPDX-License-Identifier: MIT */
/*
 * Aligned columns for a terminal. Rows are kept until a batch is full, so that a table of any
 * length takes the same memory; the widths of the first batch choose which columns fit.
 */
#ifndef QPG_TABLE_H
#define QPG_TABLE_H

#include <stdbool.h>
#include <stdio.h>

#define TABLE_COLUMNS 12
#define TABLE_ROWS    128
#define TABLE_CELL    80
#define TABLE_NOTE    320

enum color { PLAIN, BOLD, RED, YELLOW, GREEN, DIM };

/* The escape sequence that begins a color, or "" where colors are off. */
const char *color_on(bool colors, enum color c);
const char *color_off(bool colors);

struct table_column {
	const char *head;
	bool right;	    /* numbers */
	unsigned char drop; /* != 0: left out where the width is short, the highest first */
	unsigned int width;
	bool shown;
};

struct table {
	FILE *out;
	unsigned int width; /* of the terminal */
	unsigned int gap;   /* between columns */
	bool colors;
	unsigned int columns, rows, cell;
	bool begun;
	struct table_column column[TABLE_COLUMNS];
	char text[TABLE_ROWS][TABLE_COLUMNS][TABLE_CELL];
	enum color color[TABLE_ROWS][TABLE_COLUMNS];
	char note[TABLE_ROWS][TABLE_NOTE]; /* lines of their own below the row */
};

/* NULL: no memory. */
struct table *table_new(FILE *out, unsigned int width, bool colors);
void table_column(struct table *t, const char *head, bool right, unsigned char drop);
void table_row(struct table *t);
void table_cell(struct table *t, enum color c, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
void table_note(struct table *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
void table_end(struct table *t); /* prints what is left and frees */

/* The width of the terminal that `out` is, or COLUMNS, or 80; from 60 to 400. */
unsigned int terminal_width(FILE *out);

/* Text that is broken at spaces so that no line is longer than `width`; lines after the first are
 * indented by `indent`. `used` columns of the first line are taken. Ends with a newline. */
void print_wrapped(FILE *out, unsigned int width, unsigned int used, unsigned int indent,
		   const char *text);

#endif
