/* SPDX-License-Identifier: MIT */
/*
 * The policy file, from memory. Touches the policy alone: no file, no locale, no allocation.
 *
 *	file      = [ byte order mark ] { line "\n" }    the last "\n" may be missing, a "\r" before
 *	                                                it be there
 *	line      = [ head | setting ] [ comment ]      blanks (space, tab) around anything
 *	comment   = ( "#" | ";" ) to the end of line    at the line's start or after a blank
 *	head      = "[" section { condition } "]"
 *	condition = name "=" value                      each name at most once
 *	setting   = key "=" value
 *	value     = '"' { character | '\"' | "\\" } '"'  any other "\" stands for itself
 *	          | bare
 *	bare      = in a setting: all that is left of the line, blanks inside included
 *	            in a head: up to a blank or the "]" that closes the head; a "]" that ends a
 *	            bracket glob ("a[bc]*", without blanks inside) or follows a "\" is part of it
 *
 * Conditions are shell globs (glob.h), of which `type` must name a type that exists, and after_qps
 * is a number. A head without conditions may come again; so may any key, the later wins. There is
 * no continuation, nothing depends on indentation or on the length of a line. A faulty line is
 * told and left out; with a faulty head all lines of its section are left out, told once.
 */
#include <string.h>

#include "glob.h"
#include "keys.h"

/* One file on its way in. */
struct parser {
	struct policy *p;
	struct faults faults;
	const char *section; /* of policy_sections; NULL: no head yet, or a faulty one */
	bool left_out;	     /* the head was faulty */
	uint32_t index;	     /* into p->section */
};

static void skip(struct span *s, size_t n)
{
	s->at += n;
	s->len -= n;
}

static void skip_blanks(struct span *s)
{
	while (s->len && is_blank(s->at[0]))
		skip(s, 1);
}

static bool starts_comment(struct span s)
{
	return s.len && (s.at[0] == '#' || s.at[0] == ';');
}

/* Whether nothing but a comment follows a complete head or quoted value. */
static bool is_end(struct span rest)
{
	struct span trimmed = span_trim(rest);

	return !trimmed.len || (is_blank(rest.at[0]) && starts_comment(trimmed));
}

/* A fault about one piece of the line: `'piece' what`. */
static bool fault_about(struct parser *ps, struct span piece, const char *what)
{
	struct text *t = fault_begin(&ps->faults);

	text_quoted(t, piece);
	text_put(t, what);
	fault_tell(&ps->faults);
	return false;
}

/* `unknown what 'name': did you mean 'best'?` */
static bool fault_unknown(struct parser *ps, const char *what, const struct nearest *n)
{
	struct text *t = fault_begin(&ps->faults);

	text_put(t, "unknown ");
	text_put(t, what);
	text_char(t, ' ');
	text_quoted(t, n->name);
	if (ps->section) {
		text_put(t, " in [");
		text_put(t, ps->section);
		text_char(t, ']');
	}
	text_put(t, ": did you mean ");
	text_quoted(t, span_of(n->best));
	text_char(t, '?');
	fault_tell(&ps->faults);
	return false;
}

/* A quoted value at the head of *rest. */
static bool take_quoted(struct parser *ps, struct span *rest, struct value *v)
{
	struct span whole = *rest;
	size_t i = 1;

	while (i < whole.len && whole.at[i] != '"')
		i += whole.at[i] == '\\' && i + 1 < whole.len ? 2 : 1;
	if (i >= whole.len)
		return fault_about(ps, whole, " has no closing quote");
	*v = (struct value){ .raw = { whole.at + 1, i - 1 }, .quoted = true };
	skip(rest, i + 1);
	return true;
}

/* The length of a bare value in a head; see the grammar above. */
static size_t bare_length(struct span s)
{
	size_t i = 0;

	while (i < s.len && !is_blank(s.at[i]) && s.at[i] != ']') {
		size_t n = 1;

		if (s.at[i] == '\\' && i + 1 < s.len && !is_blank(s.at[i + 1])) {
			n = 2;
		} else if (s.at[i] == '[') {
			n = glob_bracket_length(s.at + i, s.len - i);
			if (!n || memchr(s.at + i, ' ', n) || memchr(s.at + i, '\t', n))
				n = 1;
		}
		i += n;
	}
	return i;
}

static bool take_condition_value(struct parser *ps, struct span *rest, struct value *v)
{
	size_t n;

	if (rest->len && rest->at[0] == '"') {
		struct span whole = *rest;

		if (!take_quoted(ps, rest, v))
			return false;
		if (rest->len && !is_blank(rest->at[0]) && rest->at[0] != ']')
			return fault_about(ps, whole, ": the closing quote must end the value");
		return true;
	}
	n = bare_length(*rest);
	*v = (struct value){ .raw = { rest->at, n } };
	if (memchr(rest->at, '"', n))
		return fault_about(ps, v->raw, ": put the quotes around the whole value");
	skip(rest, n);
	return true;
}

/* The conditions that are globs, by name. */
static const struct {
	const char *name;
	size_t offset;
} globs[] = {
	{ "device", offsetof(struct policy_section, device) },
	{ "driver", offsetof(struct policy_section, driver) },
	{ "type", offsetof(struct policy_section, type) },
	{ "program", offsetof(struct policy_section, program) },
	{ "comm", offsetof(struct policy_section, comm) },
	{ "library", offsetof(struct policy_section, library) },
};
enum { GLOBS = sizeof(globs) / sizeof(globs[0]) };

uint32_t section_condition(const struct policy_section *s, unsigned int n, const char **name)
{
	if (n >= GLOBS)
		return UINT32_MAX;
	*name = globs[n].name;
	return *(const uint32_t *)((const char *)s + globs[n].offset);
}

static bool has_glob(struct span s)
{
	for (size_t i = 0; i < s.len; i++)
		if (strchr("*?[\\", s.at[i]))
			return true;
	return false;
}

/* A type that does not exist would leave a section without effect for ever. */
static bool check_type(struct parser *ps, struct span type)
{
	struct nearest n = { .name = type };

	if (has_glob(type))
		return true;
	for (unsigned int i = 0; i <= UINT8_MAX; i++) {
		const char *name = qp_type_name(i);

		if (span_is(type, name))
			return true;
		nearest_offer(&n, name);
	}
	return fault_unknown(ps, "type", &n);
}

static bool set_after_qps(struct parser *ps, struct policy_section *s, struct span value)
{
	if (s->has_after_qps)
		return fault_about(ps, span_of("after_qps"), " stands twice");
	if (read_count(value, &s->after_qps) != READ_OK)
		return fault_about(ps, value,
				   " is no value for 'after_qps': use a whole number such as 64");
	s->has_after_qps = true;
	return true;
}

static bool set_condition(struct parser *ps, struct policy_section *s, struct span name,
			  struct value v)
{
	struct nearest n = { .name = name };

	if (span_is(name, "after_qps"))
		return set_after_qps(ps, s, v.raw);
	for (unsigned int i = 0; i < GLOBS; i++) {
		uint32_t *at = (uint32_t *)((char *)s + globs[i].offset);

		nearest_offer(&n, globs[i].name);
		if (!span_is(name, globs[i].name))
			continue;
		if (*at)
			return fault_about(ps, name, " stands twice");
		if (at == &s->type && !check_type(ps, v.raw))
			return false;
		*at = keep_text(ps->p, &ps->faults, v);
		return *at != 0;
	}
	nearest_offer(&n, "after_qps");
	return fault_unknown(ps, "condition", &n);
}

/* One `name=value` of a head. */
static bool parse_condition(struct parser *ps, struct policy_section *s, struct span *rest)
{
	struct span name = { rest->at, 0 };
	struct value v;

	while (name.len < rest->len && !strchr("=] \t", rest->at[name.len]))
		name.len++;
	skip(rest, name.len);
	skip_blanks(rest);
	if (!rest->len || rest->at[0] != '=')
		return fault_about(ps, name,
				   " is no condition: write it as name=value, such as "
				   "device=mlx5_0");
	skip(rest, 1);
	skip_blanks(rest);
	if (!take_condition_value(ps, rest, &v))
		return false;
	if (!v.raw.len)
		return fault_about(ps, name,
				   " has no value: write it as name=value, such as "
				   "device=mlx5_0");
	s->conditions++;
	return set_condition(ps, s, name, v);
}

static const char *find_section(struct parser *ps, struct span name)
{
	struct nearest n = { .name = name };

	for (unsigned int i = 0; i < policy_section_count; i++) {
		if (span_is(name, policy_sections[i]))
			return policy_sections[i];
		nearest_offer(&n, policy_sections[i]);
	}
	fault_unknown(ps, "section", &n);
	return NULL;
}

/* Puts the conditions into the policy. Those without any share the first section. */
static bool add_section(struct parser *ps, const struct policy_section *s)
{
	struct text *t;

	if (!s->conditions) {
		ps->index = 0;
		return true;
	}
	if (ps->p->sections < POLICY_MAX_SECTIONS) {
		ps->index = ps->p->sections++;
		ps->p->section[ps->index] = *s;
		return true;
	}
	if (ps->faults.no_sections)
		return false;
	t = fault_begin(&ps->faults);
	text_put(t, "more than ");
	text_number(t, POLICY_MAX_SECTIONS - 1);
	text_put(t, " sections with conditions: this and what follows is left out");
	fault_tell(&ps->faults);
	ps->faults.no_sections = true;
	return false;
}

static const char *parse_head_into(struct parser *ps, struct span line, struct policy_section *s)
{
	struct span rest = line, name;
	const char *section;

	skip(&rest, 1);
	skip_blanks(&rest);
	for (name = (struct span){ rest.at, 0 };
	     name.len < rest.len && !strchr("] \t", rest.at[name.len]); name.len++)
		;
	skip(&rest, name.len);
	section = find_section(ps, name);
	if (!section)
		return NULL;
	for (skip_blanks(&rest); rest.len && rest.at[0] != ']'; skip_blanks(&rest))
		if (!parse_condition(ps, s, &rest))
			return NULL;
	if (!rest.len) {
		fault_about(ps, line, " has no closing ']'");
		return NULL;
	}
	skip(&rest, 1);
	if (is_end(rest))
		return section;
	fault_about(ps, span_trim(rest), " after the closing ']': quote a value that holds one");
	return NULL;
}

/* What is set for a whole process is asked for once, as it begins: another condition than those on
 * the process would never be met. */
static bool can_match(struct parser *ps, const char *section, const struct policy_section *s)
{
	const char *name = s->has_after_qps ? "after_qps"
			   : s->device	    ? "device"
			   : s->driver	    ? "driver"
			   : s->type	    ? "type"
			   : s->library	    ? "library"
					    : NULL;
	struct text *t;

	if (!name || strcmp(section, "budget") == 0 || strcmp(section, "clamp") == 0)
		return true;
	t = fault_begin(&ps->faults);
	text_quoted(t, span_of(name));
	text_put(t, " is never met in [");
	text_put(t, section);
	text_put(t, "], which holds for a whole process: use 'program' or 'comm'");
	fault_tell(&ps->faults);
	return false;
}

static void parse_head(struct parser *ps, struct span line)
{
	uint32_t text_used = ps->p->text_used;
	struct policy_section s = { 0 };
	const char *section;

	ps->section = NULL;
	section = parse_head_into(ps, line, &s);
	ps->left_out = !section || !can_match(ps, section, &s) || !add_section(ps, &s);
	if (ps->left_out)
		ps->p->text_used = text_used;
	else
		ps->section = section;
}

/* A key that its section does not know: perhaps another section does. */
static void complain_of_key(struct parser *ps, struct span key)
{
	struct nearest n = { .name = key };

	for (unsigned int i = 0; i < policy_section_count; i++) {
		if (key_find(policy_sections[i], key) == POLICY_KEYS)
			continue;
		struct text *t = fault_begin(&ps->faults);

		text_quoted(t, key);
		text_put(t, " is a key of [");
		text_put(t, policy_sections[i]);
		text_put(t, "], not of [");
		text_put(t, ps->section);
		text_char(t, ']');
		fault_tell(&ps->faults);
		return;
	}
	for (unsigned int i = 0; i < POLICY_KEYS; i++)
		if (strcmp(policy_keys[i].section, ps->section) == 0)
			nearest_offer(&n, policy_keys[i].name);
	for (unsigned int i = 0; i < future_key_count; i++)
		if (strcmp(future_keys[i].section, ps->section) == 0)
			nearest_offer(&n, future_keys[i].name);
	fault_unknown(ps, "key", &n);
}

/* What stands behind '='. */
static bool take_setting_value(struct parser *ps, struct span rest, struct value *v)
{
	struct span bare = { rest.at, 0 };

	skip_blanks(&rest);
	if (rest.len && rest.at[0] == '"') {
		struct span whole = rest;

		if (!take_quoted(ps, &rest, v))
			return false;
		if (!is_end(rest))
			return fault_about(ps, whole, ": the closing quote must end the value");
		return true;
	}
	for (bare.at = rest.at; bare.len < rest.len; bare.len++) {
		struct span here = { rest.at + bare.len, rest.len - bare.len };

		if (starts_comment(here) && (!bare.len || is_blank(here.at[-1])))
			break;
	}
	*v = (struct value){ .raw = span_trim(bare) };
	return true;
}

static void parse_setting(struct parser *ps, struct span line)
{
	const char *equals = memchr(line.at, '=', line.len);
	struct span key, rest;
	unsigned int number;
	struct value v;

	if (!equals) {
		fault_about(ps, line, " has no '=': write it as key = value");
		return;
	}
	key = span_trim((struct span){ line.at, (size_t)(equals - line.at) });
	rest = (struct span){ equals + 1, (size_t)(line.at + line.len - equals - 1) };
	if (!ps->section) {
		fault_about(ps, key,
			    " stands before the first section: put it below a head such "
			    "as [budget]");
		return;
	}
	number = key_find(ps->section, key);
	if (number < POLICY_KEYS) {
		if (take_setting_value(ps, rest, &v))
			setting_add(ps->p, &ps->faults, number, ps->index, v);
	} else if (key_is_future(ps->section, key)) {
		struct text *t = fault_begin(&ps->faults);

		text_quoted(t, key);
		text_put(t, " of [");
		text_put(t, ps->section);
		text_put(t, "] is not supported by this version");
		fault_tell(&ps->faults);
	} else {
		complain_of_key(ps, key);
	}
}

static void parse_line(struct parser *ps, struct span line)
{
	bool has_nul;

	if (line.len && line.at[line.len - 1] == '\r')
		line.len--;
	line = span_trim(line);
	if (!line.len || starts_comment(line))
		return;
	has_nul = memchr(line.at, '\0', line.len);
	if (has_nul && (line.at[0] == '[' || !ps->left_out))
		fault_about(ps, line, " holds a NUL byte: use printable text");
	if (has_nul && line.at[0] == '[') {
		ps->section = NULL;
		ps->left_out = true;
	} else if (has_nul) {
		return;
	} else if (line.at[0] == '[') {
		parse_head(ps, line);
	} else if (!ps->left_out) {
		parse_setting(ps, line);
	}
}

void policy_init(struct policy *p)
{
	p->sections = 1; /* the first has no conditions, and holds whatever has none */
	p->section[0] = (struct policy_section){ 0 };
	p->settings = 0;
	p->text_used = 1; /* offset 0 is "none" */
	p->text[0] = '\0';
}

unsigned int policy_parse(struct policy *p, const char *file, const char *text, size_t len,
			  policy_complain complain, void *arg)
{
	struct parser ps = {
		.p = p,
		.faults = { .file = file, .complain = complain, .arg = arg },
	};
	struct span rest = { text, len };

	if (len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0)
		skip(&rest, 3);
	while (rest.len) {
		const char *newline = memchr(rest.at, '\n', rest.len);
		struct span line = { rest.at, newline ? (size_t)(newline - rest.at) : rest.len };

		ps.faults.line++;
		parse_line(&ps, line);
		skip(&rest, line.len + (newline != NULL));
	}
	return ps.faults.count;
}
