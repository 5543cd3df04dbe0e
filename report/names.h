/* SPDX-License-Identifier: MIT */
/* Who made objects, as words: callers and their frames, see symbols.h for where names come from. */
#ifndef QPG_NAMES_H
#define QPG_NAMES_H

#include "model.h"
#include "show.h"
#include "symbols.h"

/* A frame, as far as it is known. Texts are to be escaped. */
struct frame_name {
	const struct module_record *module; /* NULL: none, or not known */
	struct symbol symbol;
	uint64_t offset; /* in the module; without one the address */
};
void name_frame(const struct model *m, const struct frame_record *f, struct frame_name *out);

/* "make_qp at pool.c:42", "make_qp+0x2c in libfoo.so.1", "libfoo.so.1+0x12f0", "0x7f12". Returns `out`. */
const char *frame_text(const struct model *m, const struct frame_record *f, enum escape how,
		       char *out, size_t size);
/* The same of the frame that is told as the caller (model_who); "other"; NULL: not known. */
const char *caller_text(const struct model *m, uint16_t caller, enum escape how, char *out,
			size_t size);
/* "libfoo.so.1": the part of a path that tells. */
const char *base_name(const char *path);

#endif
