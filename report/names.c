/* SPDX-License-Identifier: MIT */
/* Callers as words: see names.h. Touches only the model. */
#include "names.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash && slash[1] ? slash + 1 : path;
}

void name_frame(const struct model *m, const struct frame_record *f, struct frame_name *out)
{
	*out = (struct frame_name){ .module = model_module(m, f), .offset = f->offset };
	if (out->module)
		symbol_find(out->module, f->offset, &out->symbol);
	else
		out->offset = f->address;
}

static const char *escaped(char *out, size_t size, const char *text, enum escape how)
{
	return show_text(out, size, text, strlen(text), how);
}

const char *frame_text(const struct model *m, const struct frame_record *f, enum escape how,
		       char *out, size_t size)
{
	char function[400], where[400];
	struct frame_name n;

	name_frame(m, f, &n);
	if (n.symbol.function)
		escaped(function, sizeof(function), n.symbol.function, how);
	if (n.symbol.file)
		escaped(where, sizeof(where), base_name(n.symbol.file), how);
	else if (n.module)
		escaped(where, sizeof(where), base_name(n.module->path), how);
	if (!n.module)
		snprintf(out, size, "0x%" PRIx64, n.offset);
	else if (!n.symbol.function)
		snprintf(out, size, "%s+0x%" PRIx64, where, n.offset);
	else if (!n.symbol.file)
		snprintf(out, size, "%s+0x%" PRIx64 " in %s", function, n.symbol.inside, where);
	else
		snprintf(out, size, "%s at %s:%d", function, where, n.symbol.line);
	return out;
}

const char *caller_text(const struct model *m, uint16_t caller, enum escape how, char *out,
			size_t size)
{
	const struct caller_record *c = model_stack(m, caller);
	const struct frame_record *f = model_who(m, caller);

	if (c && c->flags & CALLER_OTHER)
		return "other";
	return f ? frame_text(m, f, how, out, size) : NULL;
}
