/* SPDX-License-Identifier: MIT */
/*
 * From a module and an offset to function, file and line, by the module's own file or a file with its debug
 * information, on this machine. A file counts only if its build-id is the recorded one, and only
 * if it belongs to root or to who asks: parsing what a stranger wrote is not safe.
 */
#ifndef QPG_SYMBOLS_H
#define QPG_SYMBOLS_H

#include <stdbool.h>
#include <stdint.h>

#include "../shim/state.h"

/* Of a return address. Texts are those of the files: to be escaped. They live until the program ends. */
struct symbol {
	const char *function; /* NULL: not known */
	uint64_t inside;      /* without a line: offset - start of the function */
	const char *file;     /* NULL: not known */
	int line;	      /* 0: not known */
};

/* Where further files are looked for, before /usr/lib/debug: DIR/.build-id/xx/rest.debug, and DIR/NAME and
 * DIR/NAME.debug with the module's own name. Before the first symbol_find(). */
void symbol_directory(const char *dir);

/* False when nothing is known. */
bool symbol_find(const struct module_record *module, uint64_t offset, struct symbol *out);

#endif
