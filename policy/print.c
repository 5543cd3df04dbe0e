/* SPDX-License-Identifier: MIT */
/*
 * A policy as text again: what policy_parse() makes of it means the same. Settings stand in their
 * order, so that "later wins" still holds; those of variables come last, as they count. Only reads
 * the policy.
 */
#include <string.h>

#include "keys.h"
#include "reason.h"

/* Whether a value means itself wherever it stands, without quotes. */
static bool is_plain(const char *s)
{
	for (; *s; s++)
		if (!is_digit(*s) && !(lower(*s) >= 'a' && lower(*s) <= 'z') &&
		    !strchr("_./*?%:+,@=~^!-", *s))
			return false;
	return true;
}

static void put_value(struct text *t, const char *s)
{
	if (is_plain(s)) {
		text_put(t, s);
		return;
	}
	text_char(t, '"');
	for (; *s; s++) {
		if (*s == '"' || *s == '\\')
			text_char(t, '\\');
		text_char(t, *s);
	}
	text_char(t, '"');
}

static void put_head(struct text *t, const struct policy *p, const struct policy_section *s,
		     const char *name)
{
	const char *condition = NULL;
	uint32_t value;

	text_char(t, '[');
	text_put(t, name);
	for (unsigned int n = 0; (value = section_condition(s, n, &condition)) != UINT32_MAX; n++) {
		if (!value)
			continue;
		text_char(t, ' ');
		text_put(t, condition);
		text_char(t, '=');
		put_value(t, p->text + value);
	}
	if (s->has_after_qps) {
		text_put(t, " after_qps=");
		text_number(t, s->after_qps);
	}
	text_put(t, "]\n");
}

/* The largest unit that leaves a whole number. */
static void put_with_unit(struct text *t, uint64_t n, const uint64_t *factors, const char *units)
{
	unsigned int i = 0;

	while (units[i] && (!n || n % factors[i]))
		i++;
	text_number(t, units[i] ? n / factors[i] : n);
	if (units[i])
		text_char(t, units[i]);
}

static void put_word(struct text *t, uint64_t n, const char *words)
{
	for (; n && *words; words++)
		n -= *words == '|';
	while (*words && *words != '|')
		text_char(t, *words++);
}

static void put_setting(struct text *t, const struct policy *p, const struct policy_setting *s)
{
	static const uint64_t sizes[] = { 1 << 30, 1 << 20, 1 << 10 };
	static const uint64_t times[] = { 604800, 86400, 3600, 60 };
	const struct policy_key_info *k = &policy_keys[s->key];
	char number[24];

	text_put(t, k->name);
	text_put(t, " = ");
	switch (k->kind) {
	case VALUE_SIZE:
		put_with_unit(t, s->num, sizes, "GMK");
		break;
	case VALUE_COUNT:
		text_number(t, s->num);
		break;
	case VALUE_SECONDS:
		put_with_unit(t, s->num, times, "wdhm");
		break;
	case VALUE_WORD:
		put_word(t, s->num, k->words);
		break;
	case VALUE_TURN:
		text_number(t, s->num & UINT32_MAX);
		if (s->num >> 32) {
			text_char(t, '/');
			text_number(t, s->num >> 32);
		}
		break;
	case VALUE_ERRNO:
		text_put(t, errno_name((int)s->num, number, sizeof(number)));
		break;
	case VALUE_TEXT:
		put_value(t, p->text + s->text);
		break;
	}
	text_char(t, '\n');
}

size_t policy_print(const struct policy *p, char *out, size_t size)
{
	const struct policy_setting *last = NULL;
	struct text t = text_begin(out, size);

	for (int variables = 0; variables <= 1; variables++) {
		for (uint32_t i = 0; i < p->settings; i++) {
			const struct policy_setting *s = &p->setting[i];
			const char *name = policy_keys[s->key].section;

			if ((s->line == 0) != variables)
				continue;
			if (!last || last->section != s->section ||
			    strcmp(policy_keys[last->key].section, name) != 0) {
				if (last)
					text_char(&t, '\n');
				put_head(&t, p, &p->section[s->section], name);
			}
			put_setting(&t, p, s);
			last = s;
		}
	}
	return text_end(&t);
}
