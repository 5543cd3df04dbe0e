/* SPDX-License-Identifier: MIT */
/*
 * One value of one key, from a line or a variable: reads it by the kind of its key, adds it to the
 * policy, or says what is wrong with it. Touches the policy and the buffer of the complaint.
 */
#include "keys.h"
#include "reason.h"
#include "saturate.h"

struct text *fault_begin(struct faults *f)
{
	f->text = text_begin(f->buf, sizeof(f->buf));
	return &f->text;
}

void fault_tell(struct faults *f)
{
	struct policy_complaint c = { .file = f->file, .line = f->line, .text = f->buf };

	text_end(&f->text);
	f->count++;
	if (f->complain)
		f->complain(f->arg, &c);
}

void fault_say(struct faults *f, const char *sentence)
{
	text_put(fault_begin(f), sentence);
	fault_tell(f);
}

static bool has_control_character(struct span s)
{
	for (size_t i = 0; i < s.len; i++) {
		unsigned char c = (unsigned char)s.at[i];

		if ((c < 0x20 && c != '\t') || c == 0x7f)
			return true;
	}
	return false;
}

uint32_t keep_text(struct policy *p, struct faults *f, struct value v)
{
	uint32_t start = p->text_used, end = start;

	if (has_control_character(v.raw)) {
		struct text *t = fault_begin(f);

		text_quoted(t, v.raw);
		text_put(t, " holds a control character: use printable text");
		fault_tell(f);
		return 0;
	}
	if (v.raw.len >= POLICY_TEXT_BYTES - start) {
		if (!f->no_text)
			fault_say(f, "no room for more text: this and what follows that needs it "
				     "is left out");
		f->no_text = true;
		return 0;
	}
	for (size_t i = 0; i < v.raw.len; i++) {
		char c = v.raw.at[i];

		if (v.quoted && c == '\\' && i + 1 < v.raw.len &&
		    (v.raw.at[i + 1] == '\\' || v.raw.at[i + 1] == '"'))
			c = v.raw.at[++i];
		p->text[end++] = c;
	}
	p->text[end++] = '\0';
	p->text_used = end;
	return start;
}

/* The digits at the head of *s; what follows them stays. */
static enum reading take_digits(struct span *s, uint64_t *out)
{
	enum reading r = s->len && is_digit(s->at[0]) ? READ_OK : READ_NONE;

	for (*out = 0; s->len && is_digit(s->at[0]); s->at++, s->len--)
		if (__builtin_mul_overflow(*out, 10, out) ||
		    __builtin_add_overflow(*out, (uint64_t)(s->at[0] - '0'), out))
			r = READ_TOO_BIG;
	return r;
}

enum reading read_count(struct span s, uint64_t *out)
{
	enum reading r = take_digits(&s, out);

	return s.len ? READ_NONE : r;
}

struct unit {
	const char *name;
	uint64_t factor;
};

static const struct unit size_units[] = {
	{ "", 1 },	    { "K", 1 << 10 },	{ "M", 1 << 20 },   { "G", 1 << 30 },
	{ "KiB", 1 << 10 }, { "MiB", 1 << 20 }, { "GiB", 1 << 30 }, { NULL, 0 },
};
static const struct unit time_units[] = {
	{ "", 1 },	{ "s", 1 },	 { "m", 60 }, { "h", 3600 },
	{ "d", 86400 }, { "w", 604800 }, { NULL, 0 },
};

static enum reading read_with_unit(struct span s, const struct unit *units, uint64_t *out)
{
	enum reading r = take_digits(&s, out);

	s = span_trim(s);
	while (units->name && !span_is_nocase(s, units->name))
		units++;
	if (r == READ_NONE || !units->name)
		return READ_NONE;
	if (__builtin_mul_overflow(*out, units->factor, out))
		r = READ_TOO_BIG;
	return r;
}

bool policy_size(const char *text, uint64_t *bytes)
{
	return read_with_unit(span_trim(span_of(text)), size_units, bytes) == READ_OK;
}

/* The next of "a|b|c". */
static struct span next_word(const char **words)
{
	struct span w = { *words, 0 };

	while (w.at[w.len] && w.at[w.len] != '|')
		w.len++;
	*words += w.len + (w.at[w.len] == '|');
	return w;
}

static enum reading read_word(struct span s, const char *words, uint64_t *out)
{
	for (*out = 0; *words; ++*out) {
		struct span w = next_word(&words);

		if (w.len == s.len && edit_distance(w, s) == 0)
			return READ_OK;
	}
	return READ_NONE;
}

/* "observe, refuse or clamp" */
static void put_words(struct text *t, const char *words)
{
	for (bool first = true; *words; first = false) {
		struct span w = next_word(&words);

		if (!first)
			text_put(t, *words ? ", " : " or ");
		text_span(t, w);
	}
}

static void put_right_value(struct text *t, const struct policy_key_info *k)
{
	switch (k->kind) {
	case VALUE_SIZE:
		text_put(t, "use a whole number, with K, M, G, KiB, MiB or GiB if wanted, such as "
			    "256M");
		break;
	case VALUE_COUNT:
		text_put(t, "use a whole number such as 64");
		break;
	case VALUE_SECONDS:
		text_put(t, "use a whole number with s, m, h, d or w, such as 7d");
		break;
	case VALUE_WORD:
		text_put(t, "use ");
		put_words(t, k->words);
		break;
	case VALUE_TURN:
		text_put(t, "use a whole number such as 3 for the third, or a share such as 1/8");
		break;
	case VALUE_ERRNO:
		text_put(t, "use the name of an errno such as ENOMEM");
		break;
	case VALUE_TEXT:
		text_put(t, "write some text after it, or leave the key out");
		break;
	}
}

static void put_nearest_word(struct text *t, struct span s, const char *words)
{
	struct span best = { 0 };
	unsigned int least_distance = 0;

	while (*words) {
		struct span w = next_word(&words);
		unsigned int d = edit_distance(s, w);

		if (best.at && d >= least_distance)
			continue;
		best = w;
		least_distance = d;
	}
	text_put(t, "did you mean ");
	text_quoted(t, best);
	text_put(t, "? ");
}

static void complain_of_value(struct faults *f, const struct policy_key_info *k, struct span s,
			      enum reading r)
{
	struct text *t = fault_begin(f);

	if (!s.len) {
		text_quoted(t, span_of(k->name));
		text_put(t, " has no value: ");
	} else {
		text_quoted(t, s);
		text_put(t, r == READ_TOO_BIG ? " is too big for " : " is no value for ");
		text_quoted(t, span_of(k->name));
		text_put(t, ": ");
	}
	if (r == READ_TOO_BIG) {
		text_put(t, "the most is ");
		text_number(t, UINT64_MAX);
	} else {
		if (s.len && k->kind == VALUE_WORD)
			put_nearest_word(t, s, k->words);
		put_right_value(t, k);
	}
	fault_tell(f);
}

/* "3" or "1/8": see inject.h. */
static enum reading read_turn(struct span s, uint64_t *out)
{
	enum reading r = take_digits(&s, out);
	uint64_t of;

	if (r == READ_OK && *out > UINT32_MAX)
		return READ_TOO_BIG;
	if (r != READ_OK || !s.len)
		return r;
	if (s.at[0] != '/')
		return READ_NONE;
	s.at++;
	s.len--;
	r = take_digits(&s, &of);
	if (r != READ_OK || s.len || !of || *out > of || of > UINT32_MAX)
		return READ_NONE;
	*out |= of << 32;
	return READ_OK;
}

static enum reading read_value(const struct policy_key_info *k, struct span s, uint64_t *num)
{
	*num = 0;
	if (!s.len)
		return READ_NONE;
	switch (k->kind) {
	case VALUE_SIZE:
		return read_with_unit(s, size_units, num);
	case VALUE_COUNT:
		return read_count(s, num);
	case VALUE_SECONDS:
		return read_with_unit(s, time_units, num);
	case VALUE_WORD:
		return read_word(s, k->words, num);
	case VALUE_TURN:
		return read_turn(s, num);
	case VALUE_ERRNO:
		*num = (uint64_t)errno_of_name(s.at, s.len);
		return *num ? READ_OK : READ_NONE;
	case VALUE_TEXT:
		break;
	}
	return READ_OK;
}

void setting_add(struct policy *p, struct faults *f, unsigned int key, uint32_t section,
		 struct value v)
{
	const struct policy_key_info *k = &policy_keys[key];
	struct policy_setting s = { .key = (uint16_t)key,
				    .section = (uint16_t)section,
				    .line = f->line };
	enum reading r = read_value(k, v.raw, &s.num);

	if (r != READ_OK) {
		complain_of_value(f, k, v.raw, r);
		return;
	}
	if (p->settings == POLICY_MAX_SETTINGS) {
		if (!f->no_settings) {
			struct text *t = fault_begin(f);

			text_put(t, "more than ");
			text_number(t, POLICY_MAX_SETTINGS);
			text_put(t, " settings: this and what follows is left out");
			fault_tell(f);
		}
		f->no_settings = true;
		return;
	}
	if (k->kind == VALUE_TEXT && !(s.text = keep_text(p, f, v)))
		return;
	p->setting[p->settings++] = s;
}
