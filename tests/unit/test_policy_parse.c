/* SPDX-License-Identifier: MIT */
/* What may stand in a policy file, and what is said of what may not. Needs policy/ alone. */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policy/keys.h"
#include "policy/policy.h"

static struct policy policy;
static char told[4096]; /* "file:line: sentence\n" of each complaint */

static void tell(void *arg, const struct policy_complaint *c)
{
	char line[600];

	(void)arg;
	snprintf(line, sizeof(line), "%s:%u: %s\n", c->file, c->line, c->text);
	strncat(told, line, sizeof(told) - strlen(told) - 1);
}

static unsigned int parse_bytes(const char *text, size_t len)
{
	policy_init(&policy);
	told[0] = '\0';
	return policy_parse(&policy, "f", text, len, tell, NULL);
}

static unsigned int parse(const char *text)
{
	return parse_bytes(text, strlen(text));
}

static struct policy_values resolve(void)
{
	struct policy_subject s = { "mlx5_0", "mlx5", "RC", "/bin/storaged", "storaged", "", 0 };
	struct policy_values v;

	policy_resolve(&policy, &s, &v);
	return v;
}

/* The value of `key` after `text`, which must be faultless. */
static uint64_t number(const char *text, enum policy_key key)
{
	struct policy_values v;

	ck_assert_msg(parse(text) == 0, "%s", told);
	v = resolve();
	ck_assert_msg(v.set >> key & 1, "%s not set by: %s", policy_keys[key].name, text);
	return v.num[key];
}

/* `text` has one fault, and this is what is said of it. */
static void faulty(const char *text, const char *complaint)
{
	ck_assert_uint_eq(parse(text), 1);
	ck_assert_str_eq(told, complaint);
}

START_TEST(a_whole_file_is_read)
{
	static const char text[] = "# the storage nodes\n"
				   "[budget]\n"
				   "process_bytes = 256M\n"
				   "qps=4096 ; enough\n"
				   "action = refuse\n"
				   "\n"
				   "[clamp device=mlx5_0 type=RC program=*/storaged]\n"
				   "\tmax_send_wr\t=\t512\n"
				   "[log]\n"
				   "level = info\n"
				   "file = /var/log/qpguard.%p.log\n";
	struct policy_values v;

	ck_assert_msg(parse(text) == 0, "%s", told);
	v = resolve();
	ck_assert_uint_eq(v.num[BUDGET_PROCESS_BYTES], 256u << 20);
	ck_assert_uint_eq(v.num[BUDGET_QPS], 4096);
	ck_assert_uint_eq(v.num[BUDGET_ACTION], ACTION_REFUSE);
	ck_assert_uint_eq(v.num[CLAMP_MAX_SEND_WR], 512);
	ck_assert_uint_eq(v.num[LOG_LEVEL], LOG_INFO);
	ck_assert_str_eq(v.text[LOG_FILE], "/var/log/qpguard.%p.log");
}
END_TEST

START_TEST(an_empty_file_sets_nothing)
{
	struct policy_values v;

	ck_assert_uint_eq(parse(""), 0);
	v = resolve();
	ck_assert_uint_eq(v.set, 0);
	ck_assert_uint_eq(v.num[BUDGET_ACTION], ACTION_OBSERVE);
	ck_assert_uint_eq(v.num[BUDGET_PROCESS_BYTES], UINT64_MAX);
	ck_assert_uint_eq(v.num[LOG_LEVEL], LOG_WARN);
	ck_assert_uint_eq(v.num[STATE_KEEP], 7 * 86400);
	ck_assert_uint_eq(v.num[REPORT_ARGS], 0);
	ck_assert_str_eq(v.text[LOG_FILE], "");
}
END_TEST

START_TEST(sizes_take_units_of_1024_in_any_case)
{
	static const struct {
		const char *text;
		uint64_t bytes;
	} sizes[] = {
		{ "0", 0 },
		{ "1", 1 },
		{ "4096", 4096 },
		{ "3K", 3 << 10 },
		{ "3k", 3 << 10 },
		{ "3KiB", 3 << 10 },
		{ "3kib", 3 << 10 },
		{ "5M", 5 << 20 },
		{ "5MiB", 5 << 20 },
		{ "2G", 2ULL << 30 },
		{ "2GIB", 2ULL << 30 },
		{ "2 GiB", 2ULL << 30 },
		{ "\"7M\"", 7 << 20 },
		{ "007", 7 },
		{ "18446744073709551615", UINT64_MAX },
		{ "17179869183G", 17179869183ULL << 30 },
	};
	char text[100];

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		snprintf(text, sizeof(text), "[budget]\nprocess_bytes = %s", sizes[i].text);
		ck_assert_uint_eq(number(text, BUDGET_PROCESS_BYTES), sizes[i].bytes);
	}
}
END_TEST

START_TEST(times_take_seconds_to_weeks)
{
	ck_assert_uint_eq(number("[state]\nkeep = 90", STATE_KEEP), 90);
	ck_assert_uint_eq(number("[state]\nkeep = 90s", STATE_KEEP), 90);
	ck_assert_uint_eq(number("[state]\nkeep = 5m", STATE_KEEP), 300);
	ck_assert_uint_eq(number("[state]\nkeep = 2h", STATE_KEEP), 7200);
	ck_assert_uint_eq(number("[state]\nkeep = 7d", STATE_KEEP), 604800);
	ck_assert_uint_eq(number("[state]\nkeep = 2w", STATE_KEEP), 1209600);
	ck_assert_uint_eq(number("[state]\nkeep = 0", STATE_KEEP), 0);
}
END_TEST

START_TEST(words_are_known_in_any_case)
{
	ck_assert_uint_eq(number("[budget]\naction = observe", BUDGET_ACTION), ACTION_OBSERVE);
	ck_assert_uint_eq(number("[budget]\naction = CLAMP", BUDGET_ACTION), ACTION_CLAMP);
	ck_assert_uint_eq(number("[report]\nargs = yes", REPORT_ARGS), 1);
	ck_assert_uint_eq(number("[report]\nargs = No", REPORT_ARGS), 0);
	ck_assert_uint_eq(number("[log]\nlevel = off", LOG_LEVEL), LOG_OFF);
	ck_assert_uint_eq(number("[log]\nlevel = debug", LOG_LEVEL), LOG_DEBUG);
}
END_TEST

START_TEST(every_key_of_the_table_is_read)
{
	static const char *const values[] = {
		[VALUE_SIZE] = "12K", [VALUE_COUNT] = "12",	  [VALUE_SECONDS] = "12h",
		[VALUE_WORD] = "",	  [VALUE_TEXT] = "some text", [VALUE_TURN] = "3",
		[VALUE_ERRNO] = "ENOMEM",
	};
	char text[200];

	for (unsigned int key = 0; key < POLICY_KEYS; key++) {
		const struct policy_key_info *k = &policy_keys[key];
		const char *word = k->words ? k->words : values[k->kind];

		snprintf(text, sizeof(text), "[%s]\n%s = %.*s\n", k->section, k->name,
			 (int)strcspn(word, "|"), word);
		number(text, key);
	}
}
END_TEST

START_TEST(each_limit_has_an_action_of_its_own_name)
{
	char name[64];

	for (unsigned int limit = 0; limit < BUDGET_LIMITS; limit++) {
		snprintf(name, sizeof(name), "%s.action", policy_keys[limit].name);
		ck_assert_str_eq(policy_keys[BUDGET_ACTION_OF + limit].name, name);
	}
}
END_TEST

START_TEST(comments_begin_a_line_or_follow_a_blank)
{
	ck_assert_uint_eq(number("[budget] # all\nqps = 3 # three\n", BUDGET_QPS), 3);
	ck_assert_uint_eq(number("  ; note\n[budget]\t;all\nqps = 3\t;three\n", BUDGET_QPS), 3);
	number("[log]\nfile = /tmp/a#b;c # not this\n", LOG_FILE);
	ck_assert_str_eq(resolve().text[LOG_FILE], "/tmp/a#b;c");
}
END_TEST

START_TEST(line_ends_byte_order_mark_and_indentation_do_not_matter)
{
	ck_assert_uint_eq(number("\xef\xbb\xbf[budget]\r\nqps = 3\r\n", BUDGET_QPS), 3);
	ck_assert_uint_eq(number("[budget]\ncqs = 4\n\t qps = 3", BUDGET_QPS), 3);
	ck_assert_uint_eq(number("\n\n\r\n[budget]\nqps=3", BUDGET_QPS), 3);
}
END_TEST

START_TEST(lines_may_be_long)
{
	static char text[30000];

	strcpy(text, "[log]\nfile = /");
	memset(text + strlen(text), 'x', 20000);
	strcat(text, "\n");
	memset(text + strlen(text), ' ', 5000);
	strcat(text, "level = info");
	ck_assert_uint_eq(parse(text), 0);
	ck_assert_uint_eq(strlen(resolve().text[LOG_FILE]), 20001);
	ck_assert_uint_eq(resolve().num[LOG_LEVEL], LOG_INFO);
}
END_TEST

START_TEST(text_keeps_its_inner_blanks_and_quotes_keep_all)
{
	number("[log]\nfile =  /tmp/my log \n", LOG_FILE);
	ck_assert_str_eq(resolve().text[LOG_FILE], "/tmp/my log");
	number("[log]\nfile = \" a # b ; c \" # d\n", LOG_FILE);
	ck_assert_str_eq(resolve().text[LOG_FILE], " a # b ; c ");
	number("[log]\nfile = \"a\\\"b\\\\c\\d\"\n", LOG_FILE);
	ck_assert_str_eq(resolve().text[LOG_FILE], "a\"b\\c\\d");
	number("[log]\nfile = a\\\\b\n", LOG_FILE);
	ck_assert_str_eq(resolve().text[LOG_FILE], "a\\\\b");
}
END_TEST

START_TEST(the_later_of_two_lines_wins)
{
	ck_assert_uint_eq(number("[budget]\nqps = 3\nqps = 4\n", BUDGET_QPS), 4);
	ck_assert_uint_eq(number("[budget]\nqps = 3\n[log]\n[budget]\nqps = 4\n", BUDGET_QPS), 4);
}
END_TEST

/* The conditions of a head and whether they hold for a process with this comm. */
static bool head_matches(const char *head, const char *comm)
{
	struct policy_subject s = { .comm = comm, .program = comm, .qps = 64 };
	struct policy_values v;
	char text[300];

	snprintf(text, sizeof(text), "%s\nqps = 3\n", head);
	ck_assert_msg(parse(text) == 0, "%s", told);
	policy_resolve(&policy, &s, &v);
	return v.set >> BUDGET_QPS & 1;
}

START_TEST(heads_take_quoted_values_and_brackets_of_globs)
{
	ck_assert(head_matches("[budget program=\"*/my prog\"]", "/opt/my prog"));
	ck_assert(!head_matches("[budget program=\"*/my prog\"]", "/opt/my"));
	ck_assert(head_matches("[budget comm=\"a]b\"]", "a]b"));
	ck_assert(head_matches("[budget comm=a[bc]*]", "ac1"));
	ck_assert(!head_matches("[budget comm=a[bc]*]", "ad1"));
	ck_assert(head_matches("[budget comm=a[bc]]", "ab"));
	ck_assert(head_matches("[budget comm=[]x]]", "]"));
	ck_assert(head_matches("[budget comm=[!a]]", "b"));
	ck_assert(head_matches("[budget comm=[[:digit:]]*]", "7z"));
	ck_assert(head_matches("[budget comm=a\\]b]", "a]b"));
	ck_assert(head_matches("[budget comm=\"a[ b]\"]", "a "));
	ck_assert(head_matches("[budget comm=a[b after_qps=1]", "a[b"));
	ck_assert(head_matches("[ budget  comm = a\tafter_qps = 64 ] # tail", "a"));
	ck_assert(head_matches("[budget comm=\"a\" program=a]", "a"));
	ck_assert(head_matches("[budget comm=k=v]", "k=v"));
	ck_assert(head_matches("[budget comm=a#b]", "a#b"));
}
END_TEST

START_TEST(an_unknown_key_is_told_with_the_nearest)
{
	faulty("[budget]\nproces_bytes = 1M\n",
	       "f:2: unknown key 'proces_bytes' in [budget]: did you mean 'process_bytes'?\n");
	faulty("[budget]\n\nQPS = 1\n",
	       "f:3: unknown key 'QPS' in [budget]: did you mean 'qps'?\n");
	faulty("[budget]\nqps.acton = refuse\n",
	       "f:2: unknown key 'qps.acton' in [budget]: did you mean 'qps.action'?\n");
	faulty("[clamp]\nto_devise = yes\n",
	       "f:2: unknown key 'to_devise' in [clamp]: did you mean 'to_device'?\n");
	faulty("[cq]\nchekc = warn\n", "f:2: unknown key 'chekc' in [cq]: did you mean 'check'?\n");
}
END_TEST

START_TEST(a_key_of_another_section_is_told)
{
	faulty("[budget]\nmax_send_wr = 4\n",
	       "f:2: 'max_send_wr' is a key of [clamp], not of [budget]\n");
}
END_TEST

START_TEST(an_unknown_section_is_told_once_and_left_out)
{
	faulty("[budgt]\nqps = 3\nnonsense\n",
	       "f:1: unknown section 'budgt': did you mean 'budget'?\n");
	ck_assert_uint_eq(resolve().set, 0);
	ck_assert_uint_eq(parse("[budgt]\nqps = 3\n[budget]\ncqs = 4\n"), 1);
	ck_assert_uint_eq(resolve().set, 1ULL << BUDGET_CQS);
	faulty("[]\n", "f:1: unknown section '': did you mean 'cq'?\n");
}
END_TEST

START_TEST(a_faulty_condition_leaves_its_section_out)
{
	faulty("[budget devise=mlx5_0]\nqps = 3\n",
	       "f:1: unknown condition 'devise': did you mean 'device'?\n");
	ck_assert_uint_eq(resolve().set, 0);
	faulty("[log device=mlx5_0]\nlevel = info\n", "f:1: 'device' is never met in [log], which "
						      "holds for a whole process: use 'program' "
						      "or 'comm'\n");
	faulty("[state comm=a after_qps=3]\nkeep = 1d\n",
	       "f:1: 'after_qps' is never met in [state], which holds for a whole process: use "
	       "'program' or 'comm'\n");
	faulty("[report type=RC]\nargs = yes\n",
	       "f:1: 'type' is never met in [report], which holds for a whole process: use "
	       "'program' or 'comm'\n");
	faulty("[budget after_qp=3]\n", "f:1: unknown condition 'after_qp': did you mean "
					"'after_qps'?\n");
	faulty("[budget type=rc]\n", "f:1: unknown type 'rc': did you mean 'RC'?\n");
	faulty("[budget device=a device=b]\n", "f:1: 'device' stands twice\n");
	faulty("[budget after_qps=1 after_qps=2]\n", "f:1: 'after_qps' stands twice\n");
	faulty("[budget device]\n",
	       "f:1: 'device' is no condition: write it as name=value, such as "
	       "device=mlx5_0\n");
	faulty("[budget device=]\n", "f:1: 'device' has no value: write it as name=value, such as "
				     "device=mlx5_0\n");
	faulty("[budget device=\"\"]\n", "f:1: 'device' has no value: write it as name=value, such "
					 "as device=mlx5_0\n");
	faulty("[budget after_qps=-1]\n",
	       "f:1: '-1' is no value for 'after_qps': use a whole number such as 64\n");
	faulty("[budget after_qps=99999999999999999999]\n",
	       "f:1: '99999999999999999999' is no value for 'after_qps': use a whole number such "
	       "as "
	       "64\n");
}
END_TEST

START_TEST(a_head_that_does_not_close_is_told)
{
	faulty("[budget\nqps = 3\n", "f:1: '[budget' has no closing ']'\n");
	faulty("[budget comm=a[b]\n", "f:1: '[budget comm=a[b]' has no closing ']'\n");
	faulty("[budget comm=\"a]\n", "f:1: '\"a]' has no closing quote\n");
	faulty("[budget comm=\"a\"b]\n", "f:1: '\"a\"b]': the closing quote must end the value\n");
	faulty("[budget program=*/\"my prog\"]\n",
	       "f:1: '*/\"my': put the quotes around the whole value\n");
	faulty("[budget] qps = 3\n",
	       "f:1: 'qps = 3' after the closing ']': quote a value that holds one\n");
	faulty("[budget]# no blank\n",
	       "f:1: '# no blank' after the closing ']': quote a value that holds one\n");
}
END_TEST

START_TEST(a_line_that_is_no_setting_is_told)
{
	faulty("[budget]\nqps 3\n", "f:2: 'qps 3' has no '=': write it as key = value\n");
	faulty("qps = 3\n", "f:1: 'qps' stands before the first section: put it below a head such "
			    "as [budget]\n");
	faulty("[log]\nfile = \"/tmp\n", "f:2: '\"/tmp' has no closing quote\n");
	faulty("[log]\nfile = \"/tmp\"x\n", "f:2: '\"/tmp\"x': the closing quote must end the "
					    "value\n");
}
END_TEST

START_TEST(a_wrong_value_is_told_with_what_would_be_right)
{
	faulty("[budget]\nqps = -1\n",
	       "f:2: '-1' is no value for 'qps': use a whole number such as 64\n");
	faulty("[budget]\nqps = 3x\n",
	       "f:2: '3x' is no value for 'qps': use a whole number such as 64\n");
	faulty("[budget]\nqps = 3 4\n",
	       "f:2: '3 4' is no value for 'qps': use a whole number such as 64\n");
	faulty("[budget]\nqps =\n", "f:2: 'qps' has no value: use a whole number such as 64\n");
	faulty("[budget]\nqps = # 3\n", "f:2: 'qps' has no value: use a whole number such as 64\n");
	faulty("[budget]\nqps = \"\"\n",
	       "f:2: 'qps' has no value: use a whole number such as 64\n");
	faulty("[budget]\nprocess_bytes = 1.5G\n", "f:2: '1.5G' is no value for 'process_bytes': "
						   "use a whole number, with K, M, G, KiB, "
						   "MiB or GiB if wanted, such as 256M\n");
	faulty("[budget]\nprocess_bytes = 1T\n",
	       "f:2: '1T' is no value for 'process_bytes': use a whole number, with K, M, G, KiB, "
	       "MiB or GiB if wanted, such as 256M\n");
	faulty("[state]\nkeep = 7y\n",
	       "f:2: '7y' is no value for 'keep': use a whole number with s, m, h, d or w, such as "
	       "7d\n");
	faulty("[budget]\naction = refus\n", "f:2: 'refus' is no value for 'action': did you mean "
					     "'refuse'? use observe, refuse or clamp\n");
	faulty("[report]\nargs = yess\n",
	       "f:2: 'yess' is no value for 'args': did you mean 'yes'? use no or yes\n");
	faulty("[log]\nfile =\n",
	       "f:2: 'file' has no value: write some text after it, or leave the key out\n");
	ck_assert_uint_eq(resolve().set, 0);
}
END_TEST

START_TEST(a_number_that_does_not_fit_is_told)
{
	faulty("[budget]\nqps = 18446744073709551616\n",
	       "f:2: '18446744073709551616' is too big for 'qps': the most is "
	       "18446744073709551615\n");
	faulty("[budget]\nprocess_bytes = 17179869184G\n",
	       "f:2: '17179869184G' is too big for 'process_bytes': the most is "
	       "18446744073709551615\n");
	faulty("[state]\nkeep = 99999999999999999w\n",
	       "f:2: '99999999999999999w' is too big for 'keep': the most is "
	       "18446744073709551615\n");
}
END_TEST

START_TEST(keys_of_later_versions_are_known_but_not_supported)
{
	faulty("[measure]\nlatency = yes\n",
	       "f:2: 'latency' of [measure] is not supported by this version\n");
	faulty("[inject]\ncreate_qp = 1/0\n",
	       "f:2: '1/0' is no value for 'create_qp': use a whole number such as 3 for the "
	       "third, or a share such as 1/8\n");
	faulty("[inject]\ncreate_qp.errno = EWRONG\n",
	       "f:2: 'EWRONG' is no value for 'create_qp.errno': use the name of an errno such as "
	       "ENOMEM\n");
	ck_assert_uint_eq(number("[inject]\npost_send = 1/8\n", INJECT_POST_SEND), 8ULL << 32 | 1);
	ck_assert_uint_eq(number("[inject]\nreg_mr.errno = eagain\n", INJECT_REG_MR_ERRNO), EAGAIN);
	ck_assert_uint_eq(number("[budget]\nnode_bytes = 1G\n", BUDGET_NODE_BYTES), 1 << 30);
}
END_TEST

START_TEST(the_rest_of_a_faulty_file_holds)
{
	ck_assert_uint_eq(parse("[budget]\nqps = x\ncqs = 4\n[bugdet]\nqps = 9\n[clamp]\n"
				"max_cqe = 10\nnonsense\n"),
			  3);
	ck_assert_uint_eq(resolve().set, 1ULL << BUDGET_CQS | 1ULL << CLAMP_MAX_CQE);
}
END_TEST

START_TEST(nul_bytes_and_control_characters_are_told)
{
	ck_assert_uint_eq(parse_bytes("[budget]\nqps = 3\0\ncqs = 4\n", 26), 1);
	ck_assert_str_eq(told, "f:2: 'qps = 3?' holds a NUL byte: use printable text\n");
	ck_assert_uint_eq(resolve().set, 1ULL << BUDGET_CQS);
	ck_assert_uint_eq(parse_bytes("[budget\0]\nqps = 3\n", 18), 1);
	ck_assert_uint_eq(resolve().set, 0);
	faulty("[log]\nfile = /tmp/a\x1b[31m\n",
	       "f:2: '/tmp/a?[31m' holds a control character: use printable text\n");
	faulty("[budget comm=a\rb]\n",
	       "f:1: 'a?b' holds a control character: use printable text\n");
}
END_TEST

START_TEST(a_long_value_is_cut_in_the_complaint)
{
	char text[400] = "[budget]\nqps = ";

	memset(text + strlen(text), 'z', 200);
	faulty(text, "f:2: 'zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz...' is no "
		     "value for 'qps': use a whole number such as 64\n");
}
END_TEST

START_TEST(too_many_settings_are_told_once)
{
	static char text[40000];

	strcpy(text, "[budget]\n");
	for (int i = 0; i < POLICY_MAX_SETTINGS + 3; i++)
		strcat(text, "qps = 3\n");
	faulty(text, "f:1026: more than 1024 settings: this and what follows is left out\n");
	ck_assert_uint_eq(policy.settings, POLICY_MAX_SETTINGS);
}
END_TEST

START_TEST(too_many_sections_are_told_once)
{
	static char text[20000];

	for (int i = 0; i < POLICY_MAX_SECTIONS + 3; i++)
		strcat(text, "[budget comm=a]\nqps = 3\n");
	strcat(text, "[budget]\ncqs = 4\n");
	faulty(text, "f:255: more than 127 sections with conditions: this and what follows is left "
		     "out\n");
	ck_assert_uint_eq(resolve().num[BUDGET_CQS], 4);
}
END_TEST

START_TEST(too_much_text_is_told_once)
{
	static char text[3 * POLICY_TEXT_BYTES];

	strcpy(text, "[log]\nfile = ");
	memset(text + strlen(text), 'x', POLICY_TEXT_BYTES);
	strcat(text, "\nlevel = info\nfile = y\nfile = ");
	memset(text + strlen(text), 'x', POLICY_TEXT_BYTES - 2);
	faulty(text,
	       "f:2: no room for more text: this and what follows that needs it is left out\n");
	ck_assert_str_eq(resolve().text[LOG_FILE], "y");
}
END_TEST

START_TEST(text_exactly_fills_its_room)
{
	static char text[2 * POLICY_TEXT_BYTES];

	strcpy(text, "[log]\nfile = ");
	memset(text + strlen(text), 'x', POLICY_TEXT_BYTES - 2);
	ck_assert_uint_eq(parse(text), 0);
	ck_assert_uint_eq(policy.text_used, POLICY_TEXT_BYTES);
	strcat(text, "x");
	faulty(text,
	       "f:2: no room for more text: this and what follows that needs it is left out\n");
}
END_TEST

START_TEST(a_faulty_head_keeps_no_text)
{
	uint32_t before;

	parse("");
	before = policy.text_used;
	parse("[budget comm=abc devise=x]\n");
	ck_assert_uint_eq(policy.text_used, before);
}
END_TEST

START_TEST(swapped_neighbours_are_one_step)
{
	ck_assert_uint_eq(edit_distance(span_of("qsp"), span_of("qps")), 1);
	ck_assert_uint_eq(edit_distance(span_of("QPS"), span_of("qps")), 0);
	ck_assert_uint_eq(edit_distance(span_of(""), span_of("qps")), 3);
	ck_assert_uint_eq(edit_distance(span_of("kitten"), span_of("sitting")), 3);
}
END_TEST

START_TEST(a_second_text_adds_to_the_first)
{
	static const char more[] = "[budget]\nqps = 5\n";

	parse("[budget]\nqps = 3\ncqs = 4\n");
	ck_assert_uint_eq(policy_parse(&policy, "g", more, strlen(more), tell, NULL), 0);
	ck_assert_uint_eq(resolve().num[BUDGET_QPS], 5);
	ck_assert_uint_eq(resolve().num[BUDGET_CQS], 4);
}
END_TEST

START_TEST(complaints_may_go_nowhere)
{
	policy_init(&policy);
	ck_assert_uint_eq(policy_parse(&policy, "f", "nonsense", 8, NULL, NULL), 1);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("policy_parse");
	TCase *c = tcase_create("text");
	SRunner *sr;
	int failed;

	tcase_set_timeout(c, 60); /* the machine may be busy */
	tcase_add_test(c, a_whole_file_is_read);
	tcase_add_test(c, an_empty_file_sets_nothing);
	tcase_add_test(c, sizes_take_units_of_1024_in_any_case);
	tcase_add_test(c, times_take_seconds_to_weeks);
	tcase_add_test(c, words_are_known_in_any_case);
	tcase_add_test(c, every_key_of_the_table_is_read);
	tcase_add_test(c, each_limit_has_an_action_of_its_own_name);
	tcase_add_test(c, comments_begin_a_line_or_follow_a_blank);
	tcase_add_test(c, line_ends_byte_order_mark_and_indentation_do_not_matter);
	tcase_add_test(c, lines_may_be_long);
	tcase_add_test(c, text_keeps_its_inner_blanks_and_quotes_keep_all);
	tcase_add_test(c, the_later_of_two_lines_wins);
	tcase_add_test(c, heads_take_quoted_values_and_brackets_of_globs);
	tcase_add_test(c, an_unknown_key_is_told_with_the_nearest);
	tcase_add_test(c, a_key_of_another_section_is_told);
	tcase_add_test(c, an_unknown_section_is_told_once_and_left_out);
	tcase_add_test(c, a_faulty_condition_leaves_its_section_out);
	tcase_add_test(c, a_head_that_does_not_close_is_told);
	tcase_add_test(c, a_line_that_is_no_setting_is_told);
	tcase_add_test(c, a_wrong_value_is_told_with_what_would_be_right);
	tcase_add_test(c, a_number_that_does_not_fit_is_told);
	tcase_add_test(c, keys_of_later_versions_are_known_but_not_supported);
	tcase_add_test(c, the_rest_of_a_faulty_file_holds);
	tcase_add_test(c, nul_bytes_and_control_characters_are_told);
	tcase_add_test(c, a_long_value_is_cut_in_the_complaint);
	tcase_add_test(c, too_many_settings_are_told_once);
	tcase_add_test(c, too_many_sections_are_told_once);
	tcase_add_test(c, too_much_text_is_told_once);
	tcase_add_test(c, text_exactly_fills_its_room);
	tcase_add_test(c, a_faulty_head_keeps_no_text);
	tcase_add_test(c, swapped_neighbours_are_one_step);
	tcase_add_test(c, a_second_text_adds_to_the_first);
	tcase_add_test(c, complaints_may_go_nowhere);
	suite_add_tcase(s, c);
	sr = srunner_create(s);
	srunner_set_tap(sr, "-");
	srunner_run_all(sr, CK_SILENT);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
