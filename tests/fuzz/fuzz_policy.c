/* SPDX-License-Identifier: MIT */
/*
 * libFuzzer: any text is read without harm, and what is read, printed and read again means the
 * same. Needs policy/ alone; build with clang -fsanitize=fuzzer,address,undefined.
 */
#include <stdlib.h>
#include <string.h>

#include "policy/policy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Whether both policies give a subject the same. */
static bool same_values(const struct policy *a, const struct policy *b,
			const struct policy_subject *s)
{
	static struct policy_values x, y;

	policy_resolve(a, s, &x);
	policy_resolve(b, s, &y);
	for (unsigned int key = 0; key < POLICY_KEYS; key++)
		if (strcmp(x.text[key], y.text[key]) != 0)
			return false;
	return x.set == y.set && memcmp(x.num, y.num, sizeof(x.num)) == 0;
}

static void must(bool holds)
{
	if (!holds)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct policy_subject subjects[] = {
		{ "", "", "", "", "", "", 0 },
		{ "a", "a", "RC", "a", "a", "a", 1 },
		{ "mlx5_0", "mlx5", "UD", "/bin/my prog", "a]b", "\\\"", 64 },
		{ NULL, NULL, NULL, NULL, NULL, NULL, UINT64_MAX },
	};
	static struct policy first, second;
	static char printed[4 * POLICY_TEXT_BYTES + 64 * POLICY_MAX_SETTINGS];
	size_t len;

	policy_init(&first);
	policy_init(&second);
	policy_parse(&first, "first", (const char *)data, size, NULL, NULL);
	len = policy_print(&first, printed, sizeof(printed));
	must(len < sizeof(printed));
	must(policy_parse(&second, "second", printed, len, NULL, NULL) == 0);
	must(first.settings == second.settings);
	for (size_t i = 0; i < sizeof(subjects) / sizeof(subjects[0]); i++)
		must(same_values(&first, &second, &subjects[i]));
	return 0;
}
