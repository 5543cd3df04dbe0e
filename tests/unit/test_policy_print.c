/* SPDX-License-Identifier: MIT */
/*
 * Printing a policy and reading it again: the same meaning, for texts by hand and by chance. Needs
 * policy/ alone.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policy/policy.h"

static struct policy policy, again;
static char printed[300000];

static void print_of(const char *text)
{
	policy_init(&policy);
	policy_parse(&policy, "f", text, strlen(text), NULL, NULL);
	ck_assert_uint_lt(policy_print(&policy, printed, sizeof(printed)), sizeof(printed));
}

static void prints(const char *text, const char *expected)
{
	print_of(text);
	ck_assert_str_eq(printed, expected);
}

static const char *text_at(const struct policy *p, uint32_t offset)
{
	ck_assert_uint_lt(offset, p->text_used);
	return p->text + offset;
}

/* Same conditions, spelt the same. */
static void same_section(const struct policy_section *a, const struct policy_section *b)
{
	ck_assert_str_eq(text_at(&policy, a->device), text_at(&again, b->device));
	ck_assert_str_eq(text_at(&policy, a->driver), text_at(&again, b->driver));
	ck_assert_str_eq(text_at(&policy, a->type), text_at(&again, b->type));
	ck_assert_str_eq(text_at(&policy, a->program), text_at(&again, b->program));
	ck_assert_str_eq(text_at(&policy, a->comm), text_at(&again, b->comm));
	ck_assert_str_eq(text_at(&policy, a->library), text_at(&again, b->library));
	ck_assert_uint_eq(a->has_after_qps, b->has_after_qps);
	ck_assert_uint_eq(a->after_qps, b->after_qps);
	ck_assert_uint_eq(a->conditions, b->conditions);
}

/* What `policy` prints, read into `again` without a complaint, has the same settings in the same
 * order under the same conditions. */
static void prints_the_same_meaning(void)
{
	size_t len = policy_print(&policy, printed, sizeof(printed));

	ck_assert_uint_lt(len, sizeof(printed));
	ck_assert_uint_eq(len, strlen(printed));
	policy_init(&again);
	ck_assert_msg(policy_parse(&again, "again", printed, len, NULL, NULL) == 0, "%s", printed);
	ck_assert_uint_eq(policy.settings, again.settings);
	for (uint32_t i = 0; i < policy.settings; i++) {
		const struct policy_setting *a = &policy.setting[i], *b = &again.setting[i];

		ck_assert_uint_eq(a->key, b->key);
		ck_assert_uint_eq(a->num, b->num);
		ck_assert_str_eq(text_at(&policy, a->text), text_at(&again, b->text));
		same_section(&policy.section[a->section], &again.section[b->section]);
	}
}

START_TEST(a_policy_prints_as_a_person_would_write_it)
{
	prints("", "");
	prints("[budget]\nprocess_bytes = 268435456\nqps=3\naction=REFUSE\n"
	       "[state]\nkeep=604800\n[report]\nargs=YES",
	       "[budget]\nprocess_bytes = 256M\nqps = 3\naction = refuse\n\n"
	       "[state]\nkeep = 1w\n\n[report]\nargs = yes\n");
	prints("[clamp   type=RC device=mlx5_0 after_qps=64]\nmax_cqe=5",
	       "[clamp device=mlx5_0 type=RC after_qps=64]\nmax_cqe = 5\n");
}
END_TEST

START_TEST(numbers_keep_the_largest_unit_that_fits)
{
	prints("[budget]\nprocess_bytes=0\nprocess_bytes=1\nprocess_bytes=1536\nprocess_bytes="
	       "3072M",
	       "[budget]\nprocess_bytes = 0\nprocess_bytes = 1\nprocess_bytes = 1536\n"
	       "process_bytes = 3G\n");
	prints("[state]\nkeep=0\nkeep=59\nkeep=60\nkeep=36h\nkeep=48h\n",
	       "[state]\nkeep = 0\nkeep = 59\nkeep = 1m\nkeep = 36h\nkeep = 2d\n");
}
END_TEST

START_TEST(values_are_quoted_where_needed)
{
	prints("[log]\nfile = /tmp/a b # c", "[log]\nfile = \"/tmp/a b\"\n");
	prints("[log]\nfile = \"a\\\"b\\\\c\"", "[log]\nfile = \"a\\\"b\\\\c\"\n");
	prints("[budget program=\"*/my prog\" comm=a[bc]*]\nqps = 1",
	       "[budget program=\"*/my prog\" comm=\"a[bc]*\"]\nqps = 1\n");
}
END_TEST

START_TEST(variables_are_printed_last)
{
	print_of("[budget]\nqps = 1\n[budget device=a]\nqps = 2\n");
	policy_variable(&policy, "QPGUARD_BUDGET_QPS", "3", NULL, NULL);
	policy_parse(&policy, "g", "[log]\nlevel = info\n", 20, NULL, NULL);
	policy_print(&policy, printed, sizeof(printed));
	ck_assert_str_eq(printed, "[budget]\nqps = 1\n\n[budget device=a]\nqps = 2\n\n"
				  "[log]\nlevel = info\n\n[budget]\nqps = 3\n");
}
END_TEST

START_TEST(printing_is_cut_like_snprintf)
{
	char small[10];

	print_of("[budget]\nqps = 3\n");
	memset(small, 'x', sizeof(small));
	ck_assert_uint_eq(policy_print(&policy, small, sizeof(small)), 17);
	ck_assert_str_eq(small, "[budget]\n");
	ck_assert_uint_eq(policy_print(&policy, small, 1), 17);
	ck_assert_str_eq(small, "");
	ck_assert_uint_eq(policy_print(&policy, NULL, 0), 17);
}
END_TEST

static const char *const texts[] = {
	"[budget]\nqps = 3\n[clamp]\nmax_cqe = 9\n[budget]\nqps = 4\n",
	"[budget device=a]\nqps = 1\n[budget device=a type=UD]\nqps = 2\n[budget]\nqps = 3\n",
	"[budget comm=a\\]b]\nqps = 1\n",
	"[budget comm=[]x] library=\"a\\\\\\\"b\"]\nqps = 1\n[log comm=\"x;y#z\"]\nfile = ;no\n",
	"[log]\nfile = \"  \"\nfile = \"#\"\nfile = a\"b\nfile = [x]\nfile = \t\\\\\n",
	("[budget comm=\"\\\"\" program=\"a\\b\"]\nprocess_bytes.action = "
	 "clamp\nqps.action=observe\n"),
	"[state]\ngroup = rdma\nmax_files = 18446744073709551615\nmax_bytes = 16777215G\n",
	"[budget after_qps=18446744073709551615]\nnode_bytes = 1K\n[report]\nargs = no\n",
	"[log]\nfile = \xc3\xa4\xff\n[budget comm=\xff\xfe]\nqps=1\n",
};

START_TEST(texts_mean_the_same_after_printing)
{
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		print_of(texts[i]);
		prints_the_same_meaning();
	}
}
END_TEST

/* Pieces that make a text which is mostly right, so that chance reaches deep. */
static const char *const pieces[] = {
	"[",
	"]",
	"budget",
	"clamp",
	"log",
	"state",
	"cq",
	" ",
	"\n",
	"\n",
	"\n[budget ",
	"]\n",
	"device=",
	"type=",
	"comm=",
	"program=",
	"after_qps=",
	"RC",
	"\"",
	"\\",
	"#",
	";",
	"=",
	" = ",
	"*",
	"[a-b]",
	"x",
	"qps",
	"qps = ",
	"process_bytes = ",
	"action = ",
	"refuse",
	"file = ",
	"level = ",
	"keep = ",
	"7d",
	"64",
	"1M",
	"info",
	"\t",
	"\r",
	"18446744073709551615",
	"\xff",
	"\x01",
	"qps.action = ",
	"]\nqps = 3\n",
	"\"a b\"",
	"max_cqe = ",
};

START_TEST(texts_by_chance_mean_the_same_after_printing)
{
	static char text[2000];

	srandom(2);
	for (int i = 0; i < 20000; i++) {
		size_t len = 0, many = (size_t)random() % 60;

		for (size_t j = 0; j < many; j++) {
			size_t n = (size_t)random() % (sizeof(pieces) / sizeof(pieces[0]));

			len += (size_t)sprintf(text + len, "%s", pieces[n]);
		}
		policy_init(&policy);
		policy_parse(&policy, "f", text, len, NULL, NULL);
		prints_the_same_meaning();
	}
}
END_TEST

START_TEST(bytes_by_chance_harm_nothing)
{
	static const struct policy_subject s = { "a", "b", "RC", "/c", "c", "d", 3 };
	struct policy_values v;
	char *text;

	srandom(3);
	for (int i = 0; i < 5000; i++) {
		size_t len = (size_t)random() % 400;

		text = malloc(len + 1); /* of its own, for the sanitizer */
		for (size_t j = 0; j < len; j++)
			text[j] = (char)(random() % 4 ? random() : "[]=\"\\ \n#"[random() % 8]);
		policy_init(&policy);
		policy_parse(&policy, "f", text, len, NULL, NULL);
		free(text);
		policy_resolve(&policy, &s, &v);
		prints_the_same_meaning();
	}
}
END_TEST

START_TEST(a_full_policy_fits_after_printing)
{
	static char text[100000];
	size_t len = 0;

	for (int i = 1; i < POLICY_MAX_SECTIONS; i++) {
		len += (size_t)sprintf(text + len, "[budget comm=%d-%0200d]\n", i, i);
		for (int j = 0; j < 8; j++)
			len += (size_t)sprintf(text + len, "qps = %d\n", j);
	}
	len += (size_t)sprintf(text + len, "[log]\nlevel = off\n[budget]\nqps = 3\n");
	policy_init(&policy);
	ck_assert_uint_eq(policy_parse(&policy, "f", text, len, NULL, NULL), 0);
	prints_the_same_meaning();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("policy_print");
	TCase *c = tcase_create("round_trip");
	SRunner *sr;
	int failed;

	tcase_set_timeout(c, 60); /* the machine may be busy */
	tcase_add_test(c, a_policy_prints_as_a_person_would_write_it);
	tcase_add_test(c, numbers_keep_the_largest_unit_that_fits);
	tcase_add_test(c, values_are_quoted_where_needed);
	tcase_add_test(c, variables_are_printed_last);
	tcase_add_test(c, printing_is_cut_like_snprintf);
	tcase_add_test(c, texts_mean_the_same_after_printing);
	tcase_add_test(c, texts_by_chance_mean_the_same_after_printing);
	tcase_add_test(c, bytes_by_chance_harm_nothing);
	tcase_add_test(c, a_full_policy_fits_after_printing);
	suite_add_tcase(s, c);
	sr = srunner_create(s);
	srunner_set_tap(sr, "-");
	srunner_run_all(sr, CK_SILENT);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
