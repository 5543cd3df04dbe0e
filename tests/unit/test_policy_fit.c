/* SPDX-License-Identifier: MIT */
/* Requests over a device: what they become, and why they are refused. Which calls fail on purpose. Needs policy/
 * alone. */
#include <check.h>
#include <errno.h>
#include <stdlib.h>

#include "policy/explain.h"
#include "policy/inject.h"

static struct device_facts new_kernel(void)
{
	return (struct device_facts){ .limits = { .max_qp_wr = 8192,
						  .max_sge = 30,
						  .max_cqe = 4194303,
						  .max_srq_wr = 32767,
						  .max_srq_sge = 31 } };
}

static struct qp_request rc(uint32_t send_wr, uint32_t recv_wr, uint32_t send_sge,
			    uint32_t recv_sge, uint32_t inlined)
{
	return (struct qp_request){ .type = QP_TYPE_RC,
				    .caps = { send_wr, recv_wr, send_sge, recv_sge, inlined } };
}

static struct qp_caps fitted(enum fit_keep keep, uint32_t promised, struct qp_request r)
{
	struct device_facts dev = new_kernel();
	struct qp_caps out = { 0 };

	ck_assert(fit_largest(geometry_of("mlx5"), &dev, FIT_QP, keep, promised, &r, &out));
	return out;
}

START_TEST(sge_are_kept_and_the_queue_becomes_shallower)
{
	struct qp_caps c = fitted(KEEP_SGE, 0, rc(65536, 65536, 16, 4, 0));

	ck_assert_uint_eq(c.max_send_wr, 4681); /* 2 MiB of 448 bytes */
	ck_assert_uint_eq(c.max_send_sge, 16);
	ck_assert_uint_eq(c.max_recv_wr, 32768);
	ck_assert_uint_eq(c.max_recv_sge, 4);
}
END_TEST

START_TEST(the_depth_is_kept_and_requests_become_narrower)
{
	struct qp_caps c = fitted(KEEP_DEPTH, 0, rc(65536, 16, 16, 1, 0));

	ck_assert_uint_eq(c.max_send_wr, 8192); /* 2 MiB of 256 bytes */
	ck_assert_uint_eq(c.max_send_sge, 4);
}
END_TEST

START_TEST(inline_data_is_lowered_only_where_nothing_else_helps)
{
	ck_assert_uint_eq(fitted(KEEP_SGE, 0, rc(65536, 16, 1, 1, 800)).max_inline_data, 800);
	ck_assert_uint_eq(fitted(KEEP_DEPTH, 0, rc(65536, 16, 1, 1, 800)).max_inline_data, 800);
	ck_assert_uint_eq(fitted(KEEP_SGE, 0, rc(16, 16, 1, 1, 2000)).max_inline_data, 828);
}
END_TEST

START_TEST(less_inline_than_was_promised_is_no_fit)
{
	struct qp_request r = rc(16, 16, 1, 1, 2000);
	struct device_facts dev = new_kernel();
	struct qp_caps out;

	ck_assert(!fit_largest(geometry_of("mlx5"), &dev, FIT_QP, KEEP_SGE, 900, &r, &out));
}
END_TEST

START_TEST(what_was_not_asked_for_stays_so)
{
	struct qp_caps c = fitted(KEEP_SGE, 0, rc(0, 65536, 0, 0, 0));

	ck_assert_uint_eq(c.max_send_wr, 0);
	ck_assert_uint_eq(c.max_recv_wr, 32768);
	ck_assert_uint_eq(c.max_recv_sge, 0);
}
END_TEST

START_TEST(attempts_end_with_the_least_and_are_six_at_most)
{
	struct device_facts dev = new_kernel();
	struct qp_request r = rc(65536, 65536, 60, 60, 2000);
	struct qp_caps last = { 0 };
	unsigned int n = 0;
	struct fit f;

	fit_begin(&f, geometry_of("mlx5"), FIT_QP, KEEP_SGE, 0, &r);
	while (fit_next(&f, &dev, &last))
		n++;
	ck_assert_uint_ge(n, 2);
	ck_assert_uint_le(n, FIT_ATTEMPTS);
	ck_assert_uint_eq(last.max_send_wr, 1);
	ck_assert_uint_eq(last.max_send_sge, 1);
	ck_assert_uint_eq(last.max_inline_data, 0);
}
END_TEST

START_TEST(an_unknown_provider_is_held_to_what_the_device_reports)
{
	struct device_facts dev = { .limits = { .max_qp_wr = 1000, .max_sge = 8 } };
	struct qp_request r = rc(4000, 500, 16, 1, 0);
	struct qp_caps c;

	ck_assert(fit_largest(geometry_of("none such"), &dev, FIT_QP, KEEP_SGE, 0, &r, &c));
	ck_assert_uint_eq(c.max_send_wr, 1000);
	ck_assert_uint_eq(c.max_recv_wr, 500);
	ck_assert_uint_eq(c.max_send_sge, 8);
}
END_TEST

/* --- why --- */

static struct failure_reason why(struct qp_request r, int error)
{
	struct failure_reason out = { .call = CALL_CREATE_QP, .error = error };
	struct device_facts dev = new_kernel();

	explain_request(geometry_of("mlx5"), &dev, FIT_QP, &r, error, &out);
	return out;
}

START_TEST(all_fields_that_are_over_are_told)
{
	struct failure_reason f = why(rc(16, 16, 60, 40, 1000), EINVAL);

	ck_assert_uint_eq(f.reason, REASON_DEVICE_LIMIT);
	ck_assert_uint_eq(f.field, FIELD_MAX_SEND_SGE);
	ck_assert_uint_eq(f.asked, 60);
	ck_assert_uint_eq(f.limit, 52);
	ck_assert_uint_eq(f.number[0], 40ULL << 32 | 32);
	ck_assert_uint_eq(f.number[1], 1000ULL << 32 | 828);
	ck_assert_uint_eq(f.number[OVER_FIELDS], FIELD_MAX_RECV_SGE | FIELD_MAX_INLINE_DATA << 8);
}
END_TEST

START_TEST(a_queue_of_too_many_bytes_tells_the_deepest_and_the_widest)
{
	struct failure_reason f = why(rc(8000, 16, 16, 1, 0), EINVAL);

	ck_assert_uint_eq(f.reason, REASON_JOINT_LIMIT);
	ck_assert_uint_eq(f.asked, 8000);
	ck_assert_uint_eq(f.limit, 4681);
	ck_assert_uint_eq(f.number[JOINT_WIDEST], 4);
	ck_assert_uint_eq(f.number[JOINT_BYTES], 4 << 20);
	ck_assert_uint_eq(f.number[JOINT_MOST_BYTES], 2 << 20);
}
END_TEST

START_TEST(another_errno_is_explained_by_nothing_in_the_request)
{
	ck_assert_uint_eq(why(rc(65536, 16, 16, 1, 0), ENOMEM).reason, 0);
	ck_assert_uint_eq(why(rc(16, 16, 1, 1, 0), EINVAL).reason, 0);
	ck_assert_uint_eq(why(rc(16, 16, 1, 1, 0), EPROTONOSUPPORT).reason, REASON_UNSUPPORTED);
}
END_TEST

START_TEST(a_value_that_nobody_meant_is_known)
{
	struct failure_reason f = why(rc(16, 0xdeadbeef, 1, 1, 0), EINVAL);

	ck_assert_uint_eq(f.reason, REASON_UNINITIALIZED);
	ck_assert_uint_eq(f.field, FIELD_MAX_RECV_WR);
}
END_TEST

START_TEST(a_power_of_two_costs_double_on_mlx5)
{
	uint64_t bytes, half;

	ck_assert_uint_eq(explain_cq_cost(geometry_of("mlx5"), NULL, 4096, &bytes, &half), 4095);
	ck_assert_uint_eq(bytes, 524288);
	ck_assert_uint_eq(half, 262144);
	ck_assert_uint_eq(explain_cq_cost(geometry_of("mlx5"), NULL, 4095, &bytes, &half), 0);
	ck_assert_uint_eq(explain_cq_cost(geometry_of("irdma"), NULL, 4096, &bytes, &half), 0);
}
END_TEST

/* --- on purpose --- */

START_TEST(a_number_hits_one_call_and_a_share_its_part)
{
	unsigned int hits = 0, same = 0;

	for (uint64_t n = 1; n <= 8000; n++) {
		ck_assert_int_eq(inject_hits(3, 1, 0, n), n == 3);
		ck_assert(!inject_hits(0, 1, 0, n));
		ck_assert(inject_hits(1ULL << 32 | 1, 1, 0, n));
		hits += inject_hits(8ULL << 32 | 1, 1, 0, n);
		same += inject_hits(8ULL << 32 | 1, 1, 0, n) ==
			inject_hits(8ULL << 32 | 1, 2, 0, n);
	}
	ck_assert_uint_gt(hits, 850);
	ck_assert_uint_lt(hits, 1150);
	ck_assert_uint_lt(same, 8000);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("policy_fit");
	TCase *tc = tcase_create("all");
	SRunner *runner = srunner_create(suite);
	int failed;

	suite_add_tcase(suite, tc);
	tcase_add_test(tc, sge_are_kept_and_the_queue_becomes_shallower);
	tcase_add_test(tc, the_depth_is_kept_and_requests_become_narrower);
	tcase_add_test(tc, inline_data_is_lowered_only_where_nothing_else_helps);
	tcase_add_test(tc, less_inline_than_was_promised_is_no_fit);
	tcase_add_test(tc, what_was_not_asked_for_stays_so);
	tcase_add_test(tc, attempts_end_with_the_least_and_are_six_at_most);
	tcase_add_test(tc, an_unknown_provider_is_held_to_what_the_device_reports);
	tcase_add_test(tc, all_fields_that_are_over_are_told);
	tcase_add_test(tc, a_queue_of_too_many_bytes_tells_the_deepest_and_the_widest);
	tcase_add_test(tc, another_errno_is_explained_by_nothing_in_the_request);
	tcase_add_test(tc, a_value_that_nobody_meant_is_known);
	tcase_add_test(tc, a_power_of_two_costs_double_on_mlx5);
	tcase_add_test(tc, a_number_hits_one_call_and_a_share_its_part);
	srunner_set_tap(runner, "-");
	srunner_run_all(runner, CK_SILENT);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
