/* SPDX-License-Identifier: MIT */
/* Whom a value holds for: conditions, their strength, and the variables. Needs policy/ alone. */
#include <check.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policy/glob.h"
#include "policy/policy.h"

static struct policy policy;
static char told[2048];

static void tell(void *arg, const struct policy_complaint *c)
{
	size_t n = strlen(told);

	(void)arg;
	snprintf(told + n, sizeof(told) - n, "%s:%u: %s\n", c->file, c->line, c->text);
}

static void begin(const char *text)
{
	policy_init(&policy);
	told[0] = '\0';
	ck_assert_msg(policy_parse(&policy, "f", text, strlen(text), tell, NULL) == 0, "%s", told);
}

static unsigned int variable(const char *name, const char *value)
{
	told[0] = '\0';
	return policy_variable(&policy, name, value, tell, NULL);
}

static const struct policy_subject subject = {
	.device = "mlx5_0",
	.driver = "mlx5",
	.type = "RC",
	.program = "/usr/bin/storaged",
	.comm = "storaged",
	.library = "/usr/lib/libnccl.so.2",
	.qps = 10,
};

static struct policy_values values_of(const struct policy_subject *s)
{
	struct policy_values v;

	policy_resolve(&policy, s, &v);
	return v;
}

static uint64_t qps(void)
{
	struct policy_values v = values_of(&subject);

	return v.set >> BUDGET_QPS & 1 ? v.num[BUDGET_QPS] : UINT64_MAX;
}

/* Whether a head with these conditions applies to the subject. */
static bool applies(const char *conditions)
{
	char text[200];

	snprintf(text, sizeof(text), "[budget %s]\nqps = 1\n", conditions);
	begin(text);
	return qps() == 1;
}

START_TEST(each_condition_looks_at_its_own_field)
{
	ck_assert(applies("device=mlx5_0"));
	ck_assert(!applies("device=mlx5_1"));
	ck_assert(applies("driver=mlx5"));
	ck_assert(!applies("driver=rxe"));
	ck_assert(applies("type=RC"));
	ck_assert(!applies("type=UD"));
	ck_assert(applies("program=/usr/bin/storaged"));
	ck_assert(!applies("program=storaged"));
	ck_assert(applies("comm=storaged"));
	ck_assert(!applies("comm=nccl"));
	ck_assert(applies("library=*/libnccl.so*"));
	ck_assert(!applies("library=*/libucp.so*"));
}
END_TEST

START_TEST(all_conditions_must_match)
{
	ck_assert(applies("device=mlx5_* type=RC program=*/storaged"));
	ck_assert(!applies("device=mlx5_* type=UD program=*/storaged"));
	ck_assert(!applies("device=mlx5_* type=RC program=*/other"));
}
END_TEST

START_TEST(after_qps_holds_once_so_many_are_there)
{
	ck_assert(applies("after_qps=10"));
	ck_assert(!applies("after_qps=11"));
	ck_assert(applies("after_qps=0"));
}
END_TEST

START_TEST(absent_fields_match_a_star_only)
{
	struct policy_subject cq = { .device = "rxe0" }; /* the others are NULL */

	begin("[budget type=*]\nqps = 1\n[budget type=R*]\ncqs = 2\n[budget device=rxe0]\nsrqs = "
	      "3\n");
	ck_assert_uint_eq(values_of(&cq).set, 1ULL << BUDGET_QPS | 1ULL << BUDGET_SRQS);
}
END_TEST

START_TEST(more_conditions_are_stronger_wherever_they_stand)
{
	begin("[budget device=mlx5_0 type=RC]\nqps = 2\n[budget device=mlx5_0]\nqps = 1\n"
	      "[budget]\nqps = 0\n");
	ck_assert_uint_eq(qps(), 2);
	begin("[budget]\nqps = 0\n[budget device=mlx5_0]\nqps = 1\n"
	      "[budget device=mlx5_0 after_qps=1]\nqps = 2\n");
	ck_assert_uint_eq(qps(), 2);
}
END_TEST

START_TEST(the_later_wins_among_equals)
{
	begin("[budget device=mlx5_0]\nqps = 1\n[budget type=RC]\nqps = 2\n");
	ck_assert_uint_eq(qps(), 2);
	begin("[budget type=RC]\nqps = 2\n[budget device=mlx5_0]\nqps = 1\n");
	ck_assert_uint_eq(qps(), 1);
}
END_TEST

START_TEST(each_key_is_decided_on_its_own)
{
	struct policy_values v;

	begin("[budget]\nqps = 1\ncqs = 2\naction = refuse\n[budget device=mlx5_0]\nqps = 3\n");
	v = values_of(&subject);
	ck_assert_uint_eq(v.num[BUDGET_QPS], 3);
	ck_assert_uint_eq(v.num[BUDGET_CQS], 2);
	ck_assert_uint_eq(v.num[BUDGET_ACTION], ACTION_REFUSE);
}
END_TEST

START_TEST(a_limit_without_an_action_has_the_common_one)
{
	struct policy_values v;

	begin("[budget]\naction = refuse\nqps.action = clamp\n");
	v = values_of(&subject);
	ck_assert_uint_eq(v.num[BUDGET_ACTION_OF + BUDGET_QPS], ACTION_CLAMP);
	ck_assert_uint_eq(v.num[BUDGET_ACTION_OF + BUDGET_CQS], ACTION_REFUSE);
	ck_assert_uint_eq(v.set >> (BUDGET_ACTION_OF + BUDGET_CQS) & 1, 0);
}
END_TEST

START_TEST(a_variable_sets_a_key)
{
	struct policy_values v;

	begin("");
	ck_assert_uint_eq(variable("QPGUARD_CLAMP_MAX_SEND_WR", "256"), 0);
	ck_assert_uint_eq(variable("QPGUARD_BUDGET_PROCESS_BYTES", " 256M "), 0);
	ck_assert_uint_eq(variable("QPGUARD_LOG_LEVEL", "info"), 0);
	ck_assert_uint_eq(variable("QPGUARD_BUDGET_QPS_ACTION", "refuse"), 0);
	ck_assert_uint_eq(variable("QPGUARD_LOG_FILE", "/tmp/my \"log\" # x"), 0);
	v = values_of(&subject);
	ck_assert_uint_eq(v.num[CLAMP_MAX_SEND_WR], 256);
	ck_assert_uint_eq(v.num[BUDGET_PROCESS_BYTES], 256 << 20);
	ck_assert_uint_eq(v.num[LOG_LEVEL], LOG_INFO);
	ck_assert_uint_eq(v.num[BUDGET_ACTION_OF + BUDGET_QPS], ACTION_REFUSE);
	ck_assert_str_eq(v.text[LOG_FILE], "/tmp/my \"log\" # x");
}
END_TEST

START_TEST(a_variable_beats_the_file_but_not_a_condition)
{
	begin("[budget]\nqps = 1\ncqs = 1\n[budget device=mlx5_0]\ncqs = 2\n");
	variable("QPGUARD_BUDGET_QPS", "7");
	variable("QPGUARD_BUDGET_CQS", "7");
	ck_assert_uint_eq(qps(), 7);
	ck_assert_uint_eq(values_of(&subject).num[BUDGET_CQS], 2);
}
END_TEST

START_TEST(a_variable_beats_a_line_that_is_read_after_it)
{
	static const char text[] = "[budget]\nqps = 1\n";

	begin("");
	variable("QPGUARD_BUDGET_QPS", "7");
	policy_parse(&policy, "f", text, strlen(text), tell, NULL);
	ck_assert_uint_eq(qps(), 7);
}
END_TEST

START_TEST(variables_of_others_are_left_alone)
{
	begin("");
	ck_assert_uint_eq(variable("QPGUARD", "off"), 0);
	ck_assert_uint_eq(variable("QPGUARD_DIR", "/x"), 0);
	ck_assert_uint_eq(variable("QPGUARD_CONF", ""), 0);
	ck_assert_uint_eq(variable("QPGUARD_LABELS", "a=b"), 0);
	ck_assert_uint_eq(variable("QPGUARDIAN", "x"), 0);
	ck_assert_uint_eq(variable("PATH", "x"), 0);
	ck_assert_uint_eq(policy.settings, 0);
}
END_TEST

START_TEST(an_unknown_variable_is_told_with_the_nearest)
{
	begin("");
	ck_assert_uint_eq(variable("QPGUARD_BUDGET_PROCES_BYTES", "1"), 1);
	ck_assert_str_eq(told, "QPGUARD_BUDGET_PROCES_BYTES:0: unknown variable "
			       "'QPGUARD_BUDGET_PROCES_BYTES': did you mean "
			       "'QPGUARD_BUDGET_PROCESS_BYTES'?\n");
	ck_assert_uint_eq(variable("QPGUARD_DRI", "1"), 1);
	ck_assert_str_eq(told, "QPGUARD_DRI:0: unknown variable 'QPGUARD_DRI': did you mean "
			       "'QPGUARD_DIR'?\n");
	ck_assert_uint_eq(variable("QPGUARD_log_level", "info"), 1);
	ck_assert_str_eq(told, "QPGUARD_log_level:0: unknown variable 'QPGUARD_log_level': did you "
			       "mean 'QPGUARD_LOG_LEVEL'?\n");
	ck_assert_uint_eq(variable("QPGUARD_", "1"), 1);
	ck_assert_uint_eq(policy.settings, 0);
}
END_TEST

START_TEST(a_wrong_value_of_a_variable_is_told)
{
	begin("");
	ck_assert_uint_eq(variable("QPGUARD_BUDGET_QPS", "many"), 1);
	ck_assert_str_eq(told, "QPGUARD_BUDGET_QPS:0: 'many' is no value for 'qps': use a whole "
			       "number such as 64\n");
	ck_assert_uint_eq(variable("QPGUARD_BUDGET_QPS", ""), 1);
	ck_assert_str_eq(told, "QPGUARD_BUDGET_QPS:0: 'qps' has no value: use a whole number such "
			       "as 64\n");
	ck_assert_uint_eq(variable("QPGUARD_LOG_FILE", "a\nb"), 1);
	ck_assert_str_eq(told, "QPGUARD_LOG_FILE:0: 'a?b' holds a control character: use printable "
			       "text\n");
	ck_assert_uint_eq(policy.settings, 0);
}
END_TEST

START_TEST(variables_of_later_versions_are_not_supported)
{
	begin("");
	ck_assert_uint_eq(variable("QPGUARD_MEASURE_LATENCY", "yes"), 1);
	ck_assert_str_eq(told, "QPGUARD_MEASURE_LATENCY:0: not supported by this version\n");
	ck_assert_uint_eq(variable("QPGUARD_INJECT_POST_SEND", "1"), 0);
}
END_TEST

static const char *const globs[] = {
	"",
	"*",
	"**",
	"?",
	"a",
	"a*",
	"*a",
	"*a*b*",
	"a?c",
	"[abc]",
	"[a-c]",
	"[!a-c]",
	"[^a]",
	"[]a]",
	"[!]a]",
	"[a-]",
	"[-a]",
	"a[b",
	"[",
	"[]",
	"[!]",
	"\\*",
	"\\a",
	"*/b",
	"*[0-9]",
	"a[b]c*",
	"[a\\]b]",
	"[\\]]",
	"*.so*",
	"[[:digit:]]",
	"[[:alpha:]_]*",
	"[![:digit:]]",
	"[[:nope:]]",
	"a\\[b",
	"[z-a]",
	"[[]",
	"[a-c-e]",
	"*\\",
	"[[:punct:]]",
	"[[:space:]]",
	"[[:xdigit:]]",
	"x*y?z",
};
static const char *const texts[] = {
	"",   "a",	  "b",	     "ab",    "abc", "a/b", "/b", "]",	 "[",	  "-",	 "a]",
	"a-", "lib.so.2", "*",	     "\\",    "a5",  "5",   "_x", "a[b", ".a",	  "aab", "d",
	"e",  "\xff",	  "abcabcb", "xyzyz", " ",   "!",   "^",  "F",	 "xAyBz",
};

START_TEST(globs_match_as_fnmatch_does_in_the_c_locale)
{
	for (size_t g = 0; g < sizeof(globs) / sizeof(globs[0]); g++)
		for (size_t t = 0; t < sizeof(texts) / sizeof(texts[0]); t++) {
			/* a class that does not exist and a '\' at the end are no fault of the
			 * text: fnmatch says no match, or differs between versions */
			if (strcmp(globs[g], "[[:nope:]]") == 0 || strcmp(globs[g], "*\\") == 0)
				continue;
			ck_assert_msg(glob_match(globs[g], texts[t]) ==
					      (fnmatch(globs[g], texts[t], 0) == 0),
				      "'%s' on '%s'", globs[g], texts[t]);
		}
}
END_TEST

static bool has_open_bracket(const char *glob)
{
	for (; *glob; glob++)
		if (*glob == '[' && !glob_bracket_length(glob, strlen(glob)))
			return true;
	return false;
}

START_TEST(a_backslash_makes_the_next_character_itself)
{
	ck_assert(glob_match("\\*\\?\\[", "*?["));
	ck_assert(!glob_match("\\*", "a"));
	ck_assert(glob_match("[a\\-z]", "-"));
	ck_assert(!glob_match("[a\\-z]", "b"));
	ck_assert(glob_match("[+-\\]]", "A"));
	ck_assert(!glob_match("[+-\\]]", "a"));
	ck_assert(glob_match("a\\", "a\\"));
	ck_assert(!glob_match("a\\", "a"));
}
END_TEST

START_TEST(random_globs_match_as_fnmatch_does)
{
	static const char alphabet[] = "ab-*?[]!^\\";
	char glob[9], text[7];

	srandom(1);
	for (int i = 0; i < 300000; i++) {
		size_t g = (size_t)random() % sizeof(glob), t = (size_t)random() % sizeof(text);
		bool ours, libc;

		for (size_t j = 0; j < g; j++)
			glob[j] = alphabet[(size_t)random() % (sizeof(alphabet) - 1)];
		for (size_t j = 0; j < t; j++)
			text[j] = "ab-]["[random() % 5];
		glob[g] = text[t] = '\0';
		if (strchr(glob, '\\') || has_open_bracket(glob))
			continue; /* libc's own rules for these are odd, and changed over time */
		ours = glob_match(glob, text);
		libc = fnmatch(glob, text, 0) == 0;
		ck_assert_msg(ours == libc, "'%s' on '%s': %d, libc %d", glob, text, ours, libc);
	}
}
END_TEST

START_TEST(a_hostile_glob_ends_soon)
{
	static char glob[2001], text[20001];

	for (int i = 0; i < 1000; i++)
		memcpy(glob + 2 * i, "*a", 2);
	memset(text, 'a', 20000);
	text[19999] = 'b';
	ck_assert(!glob_match(glob, text));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("policy_resolve");
	TCase *c = tcase_create("subjects");
	SRunner *sr;
	int failed;

	tcase_set_timeout(c, 60); /* the machine may be busy */
	tcase_add_test(c, each_condition_looks_at_its_own_field);
	tcase_add_test(c, all_conditions_must_match);
	tcase_add_test(c, after_qps_holds_once_so_many_are_there);
	tcase_add_test(c, absent_fields_match_a_star_only);
	tcase_add_test(c, more_conditions_are_stronger_wherever_they_stand);
	tcase_add_test(c, the_later_wins_among_equals);
	tcase_add_test(c, each_key_is_decided_on_its_own);
	tcase_add_test(c, a_limit_without_an_action_has_the_common_one);
	tcase_add_test(c, a_variable_sets_a_key);
	tcase_add_test(c, a_variable_beats_the_file_but_not_a_condition);
	tcase_add_test(c, a_variable_beats_a_line_that_is_read_after_it);
	tcase_add_test(c, variables_of_others_are_left_alone);
	tcase_add_test(c, an_unknown_variable_is_told_with_the_nearest);
	tcase_add_test(c, a_wrong_value_of_a_variable_is_told);
	tcase_add_test(c, variables_of_later_versions_are_not_supported);
	tcase_add_test(c, globs_match_as_fnmatch_does_in_the_c_locale);
	tcase_add_test(c, a_backslash_makes_the_next_character_itself);
	tcase_add_test(c, random_globs_match_as_fnmatch_does);
	tcase_add_test(c, a_hostile_glob_ends_soon);
	suite_add_tcase(s, c);
	sr = srunner_create(s);
	srunner_set_tap(sr, "-");
	srunner_run_all(sr, CK_SILENT);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
