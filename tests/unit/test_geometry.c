/* SPDX-License-Identifier: MIT */
/*
 * What requests become in memory. Sizes of rxe are worked by hand from the kernel's layout: a
 * header of 384 bytes, 2^n slots of 2^m bytes, pages of 4096. Needs policy/ alone.
 */
#include <check.h>
#include <stdlib.h>
#include <unistd.h>

#include "policy/geometry.h"

static struct queue_bytes bytes;

static void qp(const char *driver, struct qp_caps caps, bool has_srq)
{
	struct qp_request req = { .caps = caps, .type = QP_TYPE_RC, .has_srq = has_srq };

	geometry_qp_bytes(geometry_of(driver), &req, NULL, NULL, &bytes);
}

START_TEST(a_provider_is_found_by_name_and_all_others_are_estimated)
{
	ck_assert_str_eq(geometry_of("rxe")->driver, "rxe");
	ck_assert_ptr_eq(geometry_of("rxe2"), &geometry_estimate);
	ck_assert_ptr_eq(geometry_of(""), &geometry_estimate);
	ck_assert_ptr_eq(geometry_of(NULL), &geometry_estimate);
}
END_TEST

START_TEST(the_estimate_is_64_bytes_and_16_per_sge)
{
	qp("", (struct qp_caps){ 100, 50, 1, 3, 999 }, false);
	ck_assert_uint_eq(bytes.sq, 100 * 80);
	ck_assert_uint_eq(bytes.rq, 50 * 112);
	ck_assert_uint_eq(bytes.bookkeeping, 0);
	ck_assert_int_eq(bytes.basis, BASIS_ESTIMATE);
	qp("", (struct qp_caps){ 100, 50, 0, 3, 0 }, true);
	ck_assert_uint_eq(queue_bytes_total(&bytes), 100 * 64);
	geometry_cq_bytes(&geometry_estimate, 10, 15, NULL, &bytes);
	ck_assert_uint_eq(bytes.rq, 15 * 64);
	geometry_cq_bytes(&geometry_estimate, 10, 0, NULL, &bytes);
	ck_assert_uint_eq(bytes.rq, 10 * 64);
	geometry_srq_bytes(&geometry_estimate, 10, 2, NULL, &bytes);
	ck_assert_uint_eq(bytes.rq, 10 * 96);
}
END_TEST

START_TEST(the_estimate_prefers_what_came_back)
{
	struct qp_request req = { .caps = { 100, 100, 1, 1, 0 }, .type = QP_TYPE_RC };
	struct qp_caps effective = { 127, 128, 2, 1, 0 };

	geometry_qp_bytes(&geometry_estimate, &req, &effective, NULL, &bytes);
	ck_assert_uint_eq(bytes.sq, 127 * 96);
	ck_assert_uint_eq(bytes.rq, 128 * 80);
}
END_TEST

START_TEST(xrc_has_one_side_only)
{
	struct qp_request req = { .caps = { 10, 10, 1, 1, 0 }, .type = QP_TYPE_XRC_SEND };

	geometry_qp_bytes(&geometry_estimate, &req, NULL, NULL, &bytes);
	ck_assert_uint_eq(bytes.sq, 800);
	ck_assert_uint_eq(bytes.rq, 0);
	req.type = QP_TYPE_XRC_RECV;
	geometry_qp_bytes(&geometry_estimate, &req, NULL, NULL, &bytes);
	ck_assert_uint_eq(queue_bytes_total(&bytes), 0);
}
END_TEST

START_TEST(rxe_queue_pairs_as_worked_by_hand)
{
	static const struct {
		struct qp_caps caps;
		uint64_t sq, rq;
	} qps[] = {
		/* 1 + 1 = 2 slots of pow2(208 + 16) = 256: 896; 2 of 64: 512 */
		{ { 1, 1, 1, 1, 0 }, 4096, 4096 },
		/* 129 -> 256 slots of 256: 65920; 256 of 64: 16768 */
		{ { 128, 128, 1, 1, 0 }, 69632, 20480 },
		/* 127 + 1 = 128 slots: 33152; 8576 */
		{ { 127, 127, 1, 1, 0 }, 36864, 12288 },
		/* 208 + 48 = 256 fits, 208 + 64 = 272 needs 512: 512 * 512 + 384 */
		{ { 300, 0, 3, 0, 0 }, 135168, 4096 },
		{ { 300, 0, 4, 0, 0 }, 266240, 4096 },
		/* inline counts where it is more than the SGEs: 208 + 220 = 428 -> 512 */
		{ { 300, 0, 1, 0, 220 }, 266240, 4096 },
		{ { 300, 0, 3, 0, 40 }, 135168, 4096 },
		{ { 300, 0, 0, 0, 48 }, 135168, 4096 },
		{ { 300, 0, 0, 0, 49 }, 266240, 4096 },
		/* the most there is: 208 + 512 = 720 -> 1024; 40 + 32 * 16 = 552 -> 1024 */
		{ { 63, 63, 32, 32, 512 }, 69632, 69632 },
		/* 40 + 16 = 56 -> 64, 40 + 32 = 72 -> 128: 16 * 128 + 384 */
		{ { 0, 15, 0, 2, 0 }, 4096, 4096 },
		{ { 0, 31, 0, 2, 0 }, 4096, 8192 },
		/* nothing asked: one slot each, a page each */
		{ { 0, 0, 0, 0, 0 }, 4096, 4096 },
		/* the device's limit: 1048577 -> 2^21 slots of 256 */
		{ { 1048576, 0, 1, 0, 0 }, 536875008, 4096 },
	};

	for (size_t i = 0; i < sizeof(qps) / sizeof(qps[0]); i++) {
		qp("rxe", qps[i].caps, false);
		ck_assert_uint_eq(bytes.sq, qps[i].sq);
		ck_assert_uint_eq(bytes.rq, qps[i].rq);
		ck_assert_uint_eq(bytes.bookkeeping, 464);
		ck_assert_int_eq(bytes.basis, BASIS_MODEL);
	}
}
END_TEST

START_TEST(rxe_with_an_srq_has_no_receive_queue)
{
	qp("rxe", (struct qp_caps){ 128, 128, 1, 1, 0 }, true);
	ck_assert_uint_eq(bytes.sq, 69632);
	ck_assert_uint_eq(bytes.rq, 0);
}
END_TEST

START_TEST(rxe_says_the_same_of_the_request_and_of_what_came_back)
{
	struct qp_request req = { .caps = { 100, 60, 1, 2, 30 }, .type = QP_TYPE_UD };
	/* inline and SGEs as the kernel raises them; the depth as asked, or as made */
	struct qp_caps back[] = { { 100, 60, 1, 2, 30 }, { 127, 63, 1, 2, 30 } };
	struct queue_bytes predicted;

	geometry_qp_bytes(geometry_of("rxe"), &req, NULL, NULL, &predicted);
	for (size_t i = 0; i < 2; i++) {
		geometry_qp_bytes(geometry_of("rxe"), &req, &back[i], NULL, &bytes);
		ck_assert_mem_eq(&bytes, &predicted, sizeof(bytes));
	}
}
END_TEST

START_TEST(rxe_makes_no_other_types)
{
	struct qp_request req = { .caps = { 10, 10, 1, 1, 0 }, .type = QP_TYPE_XRC_SEND };

	geometry_qp_bytes(geometry_of("rxe"), &req, NULL, NULL, &bytes);
	ck_assert_int_eq(bytes.basis, BASIS_ESTIMATE);
}
END_TEST

START_TEST(a_row_that_cannot_tell_is_estimated)
{
	static const struct geometry knows_nothing = { .driver = "x" };
	struct qp_request req = { .caps = { 10, 10, 1, 1, 0 }, .type = QP_TYPE_RC };

	geometry_qp_bytes(&knows_nothing, &req, NULL, NULL, &bytes);
	ck_assert_uint_eq(queue_bytes_total(&bytes), 1600);
	geometry_cq_bytes(&knows_nothing, 10, 0, NULL, &bytes);
	ck_assert_uint_eq(queue_bytes_total(&bytes), 640);
	geometry_srq_bytes(&knows_nothing, 10, 1, NULL, &bytes);
	ck_assert_uint_eq(queue_bytes_total(&bytes), 800);
	ck_assert_int_eq(bytes.basis, BASIS_ESTIMATE);
}
END_TEST

START_TEST(rxe_completion_queues_as_worked_by_hand)
{
	static const struct {
		uint32_t requested, effective;
		uint64_t ring;
	} cqs[] = {
		{ 1, 0, 4096 },				  /* 2 slots of 128 */
		{ 28, 31, 8192 },			  /* 32 slots: 4480 */
		{ 28, 0, 8192 },     { 100, 127, 20480 }, /* 128 slots: 16768 */
		{ 127, 127, 20480 }, { 128, 255, 36864 }, { 32767, 32767, 4198400 },
	};

	for (size_t i = 0; i < sizeof(cqs) / sizeof(cqs[0]); i++) {
		geometry_cq_bytes(geometry_of("rxe"), cqs[i].requested, cqs[i].effective, NULL,
				  &bytes);
		ck_assert_uint_eq(bytes.rq, cqs[i].ring);
		ck_assert_uint_eq(bytes.sq, 0);
		ck_assert_uint_eq(bytes.bookkeeping, 344);
		ck_assert_int_eq(bytes.basis, BASIS_MODEL);
	}
}
END_TEST

START_TEST(rxe_shared_receive_queues_as_worked_by_hand)
{
	geometry_srq_bytes(geometry_of("rxe"), 100, 1, NULL, &bytes);
	ck_assert_uint_eq(bytes.rq, 12288); /* 128 slots of 64: 8576 */
	ck_assert_uint_eq(bytes.bookkeeping, 208);
	geometry_srq_bytes(geometry_of("rxe"), 100, 0, NULL, &bytes);
	ck_assert_uint_eq(bytes.rq, 12288);
	geometry_srq_bytes(geometry_of("rxe"), 128, 3, NULL, &bytes);
	ck_assert_uint_eq(bytes.rq, 36864); /* 256 slots of 128: 33152 */
	ck_assert_int_eq(bytes.basis, BASIS_MODEL);
}
END_TEST

START_TEST(hostile_numbers_saturate_in_every_row)
{
	static const struct qp_caps most = { UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX,
					     UINT32_MAX };
	static const char *const drivers[] = { "rxe", "" };

	for (size_t i = 0; i < 2; i++) {
		qp(drivers[i], most, false);
		ck_assert_uint_ge(bytes.sq, UINT64_MAX / 4 - 4096);
		ck_assert_uint_ge(bytes.rq, UINT64_MAX / 4 - 4096);
		ck_assert_uint_ge(queue_bytes_total(&bytes), UINT64_MAX / 2 - 8192);
		geometry_cq_bytes(geometry_of(drivers[i]), UINT32_MAX, UINT32_MAX, NULL, &bytes);
		ck_assert_uint_ge(bytes.rq, 64ULL * UINT32_MAX);
		geometry_srq_bytes(geometry_of(drivers[i]), UINT32_MAX, UINT32_MAX, NULL, &bytes);
		ck_assert_uint_ge(bytes.rq, UINT64_MAX / 4 - 4096);
	}
}
END_TEST

START_TEST(more_is_never_less)
{
	static const char *const drivers[] = { "rxe", "" };

	for (size_t i = 0; i < 2; i++) {
		uint64_t before = 0;

		for (uint32_t wr = 0; wr < 3000; wr++) {
			qp(drivers[i], (struct qp_caps){ wr, wr, 2, 2, 0 }, false);
			ck_assert_uint_ge(queue_bytes_total(&bytes), before);
			before = queue_bytes_total(&bytes);
		}
	}
}
END_TEST

START_TEST(types_have_names)
{
	ck_assert_str_eq(qp_type_name(QP_TYPE_RC), "RC");
	ck_assert_str_eq(qp_type_name(QP_TYPE_UC), "UC");
	ck_assert_str_eq(qp_type_name(QP_TYPE_UD), "UD");
	ck_assert_str_eq(qp_type_name(QP_TYPE_RAW_PACKET), "RAW_PACKET");
	ck_assert_str_eq(qp_type_name(QP_TYPE_XRC_SEND), "XRC_SEND");
	ck_assert_str_eq(qp_type_name(QP_TYPE_XRC_RECV), "XRC_RECV");
	ck_assert_str_eq(qp_type_name(QP_TYPE_DRIVER), "DRIVER");
	ck_assert_str_eq(qp_type_name(0), "other");
	ck_assert_str_eq(qp_type_name(UINT32_MAX), "other");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("geometry");
	TCase *c = tcase_create("bytes");
	SRunner *sr;
	int failed;

	tcase_set_timeout(c, 60); /* the machine may be busy */
	tcase_add_test(c, a_provider_is_found_by_name_and_all_others_are_estimated);
	tcase_add_test(c, the_estimate_is_64_bytes_and_16_per_sge);
	tcase_add_test(c, the_estimate_prefers_what_came_back);
	tcase_add_test(c, xrc_has_one_side_only);
	if (sysconf(_SC_PAGESIZE) == 4096) {
		tcase_add_test(c, rxe_queue_pairs_as_worked_by_hand);
		tcase_add_test(c, rxe_with_an_srq_has_no_receive_queue);
		tcase_add_test(c, rxe_completion_queues_as_worked_by_hand);
		tcase_add_test(c, rxe_shared_receive_queues_as_worked_by_hand);
	}
	tcase_add_test(c, rxe_says_the_same_of_the_request_and_of_what_came_back);
	tcase_add_test(c, rxe_makes_no_other_types);
	tcase_add_test(c, a_row_that_cannot_tell_is_estimated);
	tcase_add_test(c, hostile_numbers_saturate_in_every_row);
	tcase_add_test(c, more_is_never_less);
	tcase_add_test(c, types_have_names);
	suite_add_tcase(s, c);
	sr = srunner_create(s);
	srunner_set_tap(sr, "-");
	srunner_run_all(sr, CK_SILENT);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
