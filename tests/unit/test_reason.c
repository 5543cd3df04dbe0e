/* SPDX-License-Identifier: MIT */
/* The sentences of failures, letter by letter. Needs policy/ alone. */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "policy/policy.h"
#include "policy/reason.h"

static void says(struct failure_reason f, const char *device, const char *sentence)
{
	char out[512];

	ck_assert_uint_eq(reason_sentence(&f, device, out, sizeof(out)), strlen(sentence));
	ck_assert_str_eq(out, sentence);
}

static struct failure_reason budget(enum policy_key limit, uint64_t asked, uint64_t at_most)
{
	return (struct failure_reason){ CALL_CREATE_QP, REASON_BUDGET, (uint16_t)limit,
					ENOMEM,		asked,	       at_most,
					{ 0 } };
}

START_TEST(a_refusal_by_budget_names_the_limit)
{
	says(budget(BUDGET_QPS, 4, 3), "rxe0",
	     "ibv_create_qp on rxe0 refused by budget qps: would be 4, limit 3 (ENOMEM)");
}
END_TEST

START_TEST(sizes_are_in_kib_and_mib)
{
	says(budget(BUDGET_PROCESS_BYTES, 1536 << 10, 1 << 20), "rxe0",
	     "ibv_create_qp on rxe0 refused by budget process_bytes: would be 1.5 MiB, limit 1 MiB "
	     "(ENOMEM)");
	says(budget(BUDGET_BYTES_PER_QP, 65 << 10, 100), "rxe0",
	     "ibv_create_qp on rxe0 refused by budget bytes_per_qp: would be 65 KiB, limit 100 "
	     "bytes "
	     "(ENOMEM)");
	says(budget(BUDGET_DEVICE_BYTES, 35ULL << 30, 1ULL << 30), "rxe0",
	     "ibv_create_qp on rxe0 refused by budget device_bytes: would be 35840 MiB, limit 1024 "
	     "MiB (ENOMEM)");
	says(budget(BUDGET_DEVICE_BYTES, 1023, 0), "rxe0",
	     "ibv_create_qp on rxe0 refused by budget device_bytes: would be 1023 bytes, limit 0 "
	     "bytes (ENOMEM)");
}
END_TEST

START_TEST(sizes_that_would_look_alike_are_told_exactly)
{
	says(budget(BUDGET_PROCESS_BYTES, (1 << 20) + 1, 1 << 20), "rxe0",
	     "ibv_create_qp on rxe0 refused by budget process_bytes: would be 1048577 bytes, limit "
	     "1048576 bytes (ENOMEM)");
}
END_TEST

START_TEST(a_device_limit_names_field_and_both_numbers)
{
	says((struct failure_reason){ CALL_CREATE_QP,
				      REASON_DEVICE_LIMIT,
				      FIELD_MAX_SEND_SGE,
				      EINVAL,
				      5,
				      4,
				      { 0 } },
	     "mlx5_0",
	     "ibv_create_qp on mlx5_0 failed: asked max_send_sge 5, the device takes at most 4 "
	     "(EINVAL)");
	says(
		(struct failure_reason){
			CALL_CREATE_CQ, REASON_DEVICE_LIMIT, FIELD_CQE, EINVAL, 5, 4, { 0 } },
		"mlx5_0",
		"ibv_create_cq on mlx5_0 failed: asked cqe 5, the device takes at most 4 (EINVAL)");
}
END_TEST

START_TEST(what_is_not_known_is_not_invented)
{
	says((struct failure_reason){ CALL_CREATE_SRQ, REASON_UNKNOWN, 0, ENOMEM, 0, 0, { 0 } },
	     "rxe0", "ibv_create_srq on rxe0 failed (ENOMEM)");
	says((struct failure_reason){ CALL_OPEN_DEVICE, REASON_NO_ERRNO, 0, 0, 0, 0, { 0 } },
	     "rxe0",
	     "ibv_open_device on rxe0 failed and the provider did not say why: it left errno "
	     "untouched");
	says((struct failure_reason){ CALL_MODIFY_QP, REASON_UNKNOWN, 0, EINVAL, 0, 0, { 0 } },
	     NULL, "ibv_modify_qp failed (EINVAL)");
	says((struct failure_reason){ CALL_MODIFY_QP, REASON_UNKNOWN, 0, 0, 0, 0, { 0 } }, "",
	     "ibv_modify_qp failed");
}
END_TEST

START_TEST(what_is_used_up_is_told_with_what_the_process_has)
{
	says((struct failure_reason){ CALL_OPEN_DEVICE,
				      REASON_EXHAUSTED,
				      0,
				      ENOMEM,
				      0,
				      0,
				      { 256, 12, 3 << 20, 131072, 0 } },
	     "mlx5_0",
	     "ibv_open_device on mlx5_0 failed, and no limit that can be seen is near: this "
	     "process has 256 contexts, 12 QPs of 131072 and 3 MiB of queues on the device; "
	     "memlock and cgroup allow more; doorbell pages (UAR) may be used up by all processes "
	     "of the node: see the kernel's log (dmesg) (ENOMEM)");
	says(
		(struct failure_reason){
			CALL_CREATE_QP, REASON_CGROUP_RDMA, 0, EAGAIN, 2000, 2000, { 0 } },
		"mlx5_0",
		"ibv_create_qp on mlx5_0 failed: the cgroup's rdma.max allows 2000 objects of the "
		"device, 2000 are in use (EAGAIN)");
	says((struct failure_reason){ CALL_CREATE_QP,
				      REASON_CGROUP_MEMORY,
				      0,
				      ENOMEM,
				      2 << 20,
				      64 << 20,
				      { 63 << 20 } },
	     "mlx5_0",
	     "ibv_create_qp on mlx5_0 failed: 2 MiB more, the cgroup has 63 MiB in use and a limit "
	     "of 64 MiB (ENOMEM)");
}
END_TEST

START_TEST(damaged_numbers_do_no_harm)
{
	char out[512];

	for (unsigned int i = 0; i < 65536; i++) {
		struct failure_reason f = { (uint8_t)i,
					    (uint8_t)(i >> 8),
					    (uint16_t)i,
					    (int32_t)(i * 65521),
					    UINT64_MAX,
					    UINT64_MAX,
					    { UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX,
					      UINT64_MAX } };

		ck_assert_uint_lt(reason_sentence(&f, "d", out, sizeof(out)), sizeof(out));
	}
	says((struct failure_reason){ CALL_CREATE_QP, REASON_UNKNOWN, 0, EIO, 0, 0, { 0 } },
	     "rx\n\x1b", "ibv_create_qp on rx?? failed (EIO)");
	says((struct failure_reason){ 200, REASON_BUDGET, 999, 0, 1, 2, { 0 } }, "d",
	     "unknown call on d refused by budget (unknown limit): would be 1, limit 2");
}
END_TEST

START_TEST(a_sentence_is_cut_like_snprintf)
{
	struct failure_reason f = budget(BUDGET_QPS, 4, 3);
	char out[14];

	ck_assert_uint_eq(reason_sentence(&f, "rxe0", out, sizeof(out)), 73);
	ck_assert_str_eq(out, "ibv_create_qp");
	ck_assert_uint_eq(reason_sentence(&f, "rxe0", NULL, 0), 73);
}
END_TEST

START_TEST(calls_codes_and_fields_have_names)
{
	ck_assert_str_eq(guarded_call_name(CALL_OPEN_DEVICE), "ibv_open_device");
	ck_assert_str_eq(guarded_call_name(CALL_DESTROY_SRQ), "ibv_destroy_srq");
	ck_assert_str_eq(guarded_call_name(0), "unknown call");
	ck_assert_str_eq(guarded_call_name(GUARDED_CALLS), "unknown call");
	for (unsigned int i = 1; i < GUARDED_CALLS; i++)
		ck_assert_str_ne(guarded_call_name(i), "unknown call");
	ck_assert_str_eq(reason_code(REASON_BUDGET), "budget");
	ck_assert_str_eq(reason_code(REASON_DEVICE_LIMIT), "device_limit");
	ck_assert_str_eq(reason_code(REASON_NO_ERRNO), "no_errno");
	ck_assert_str_eq(reason_code(REASON_UNKNOWN), "unknown");
	ck_assert_str_eq(reason_code(REASONS), "unknown");
	for (unsigned int i = 0; i < REASON_FIELDS; i++)
		ck_assert_ptr_nonnull(reason_field_name(i));
	ck_assert_str_eq(reason_field_name(FIELD_MAX_INLINE_DATA), "max_inline_data");
}
END_TEST

START_TEST(errors_have_names)
{
	char buf[24];

	ck_assert_str_eq(errno_name(ENOMEM, buf, sizeof(buf)), "ENOMEM");
	ck_assert_str_eq(errno_name(EINVAL, buf, sizeof(buf)), "EINVAL");
	ck_assert_str_eq(errno_name(EOPNOTSUPP, buf, sizeof(buf)), "EOPNOTSUPP");
	ck_assert_str_eq(errno_name(0, buf, sizeof(buf)), "errno 0");
	ck_assert_str_eq(errno_name(5000, buf, sizeof(buf)), "errno 5000");
	ck_assert_str_eq(errno_name(-12, buf, sizeof(buf)), "errno -12");
	ck_assert_str_eq(errno_name(INT32_MIN, buf, sizeof(buf)), "errno -2147483648");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("reason");
	TCase *c = tcase_create("sentences");
	SRunner *sr;
	int failed;

	tcase_set_timeout(c, 60); /* the machine may be busy */
	tcase_add_test(c, a_refusal_by_budget_names_the_limit);
	tcase_add_test(c, sizes_are_in_kib_and_mib);
	tcase_add_test(c, sizes_that_would_look_alike_are_told_exactly);
	tcase_add_test(c, a_device_limit_names_field_and_both_numbers);
	tcase_add_test(c, what_is_not_known_is_not_invented);
	tcase_add_test(c, what_is_used_up_is_told_with_what_the_process_has);
	tcase_add_test(c, damaged_numbers_do_no_harm);
	tcase_add_test(c, a_sentence_is_cut_like_snprintf);
	tcase_add_test(c, calls_codes_and_fields_have_names);
	tcase_add_test(c, errors_have_names);
	suite_add_tcase(s, c);
	sr = srunner_create(s);
	srunner_set_tap(sr, "-");
	srunner_run_all(sr, CK_SILENT);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
