/* SPDX-License-Identifier: MIT */
/*
 * QPGUARD_<SECTION>_<KEY>: the keys of the policy as variables of the environment. The value
 * stands as it is, blanks at its ends aside: quotes are the shell's business. Touches the policy
 * alone; reading the environment is the caller's.
 */
#include <string.h>

#include "keys.h"

#define PREFIX "QPGUARD"

/* Variables that others look at. */
static const char *const own_names[] = { "", "_DIR", "_CONF", "_LABELS" };
enum { OWN_NAMES = sizeof(own_names) / sizeof(own_names[0]) };

/* Every name there is by number, into out: keys, keys to come, our own. False after the last. */
static bool nth_name(unsigned int n, char *out, size_t size)
{
	struct text t = text_begin(out, size);
	const char *section = NULL, *key = NULL;

	text_put(&t, PREFIX);
	if (n < POLICY_KEYS) {
		section = policy_keys[n].section;
		key = policy_keys[n].name;
	} else if (n - POLICY_KEYS < future_key_count) {
		section = future_keys[n - POLICY_KEYS].section;
		key = future_keys[n - POLICY_KEYS].name;
	} else if (n - POLICY_KEYS - future_key_count < OWN_NAMES) {
		text_put(&t, own_names[n - POLICY_KEYS - future_key_count]);
	} else {
		return false;
	}
	if (section) {
		text_char(&t, '_');
		while (*section)
			text_char(&t, upper(*section++));
		text_char(&t, '_');
		for (; *key; key++)
			text_char(&t, *key == '.' ? '_' : upper(*key));
	}
	text_end(&t);
	return true;
}

static bool is_ours(const char *name)
{
	size_t n = strlen(PREFIX);

	return strncmp(name, PREFIX, n) == 0 && (name[n] == '_' || !name[n]);
}

/* Whether candidate n, spelt out, is what `name` says; a future section may take any key. */
static bool is_name(unsigned int n, const char *name, const char *candidate)
{
	if (n >= POLICY_KEYS && n - POLICY_KEYS < future_key_count &&
	    !future_keys[n - POLICY_KEYS].name[0])
		return strncmp(name, candidate, strlen(candidate)) == 0;
	return strcmp(name, candidate) == 0;
}

static void complain_of_name(struct faults *f, const char *name, unsigned int nearest)
{
	struct text *t = fault_begin(f);
	char best[64];

	nth_name(nearest, best, sizeof(best));
	text_put(t, "unknown variable ");
	text_quoted(t, span_of(name));
	text_put(t, ": did you mean ");
	text_quoted(t, span_of(best));
	text_put(t, "?");
	fault_tell(f);
}

unsigned int policy_variable(struct policy *p, const char *name, const char *value,
			     policy_complain complain, void *arg)
{
	struct faults f = { .file = name, .complain = complain, .arg = arg };
	unsigned int nearest = 0, distance = UINT32_MAX;
	char candidate[64];

	if (!is_ours(name))
		return 0;
	for (unsigned int n = 0; nth_name(n, candidate, sizeof(candidate)); n++) {
		unsigned int d = edit_distance(span_of(name), span_of(candidate));

		if (is_name(n, name, candidate)) {
			struct value v = { .raw = span_trim(span_of(value)) };

			if (n < POLICY_KEYS)
				setting_add(p, &f, n, 0, v);
			else if (n - POLICY_KEYS < future_key_count)
				fault_say(&f, "not supported by this version");
			return f.count;
		}
		if (d < distance) {
			nearest = n;
			distance = d;
		}
	}
	complain_of_name(&f, name, nearest);
	return f.count;
}
