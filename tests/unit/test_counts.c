/* SPDX-License-Identifier: MIT */
/*
 * What the words of a record mean as counts. Needs shim/counts.c alone.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "shim/counts.h"

static struct qp_record qp;
static struct side_counts counts;

static void fresh_qp(void)
{
	memset(&qp, 0, sizeof(qp));
}

static void expect_send(uint64_t posted, uint64_t completed, uint64_t outstanding,
			uint64_t discarded)
{
	record_send_counts(&qp, &counts);
	ck_assert_uint_eq(counts.posted, posted);
	ck_assert_uint_eq(counts.outstanding, outstanding);
	ck_assert_uint_eq(counts.completed, completed);
	ck_assert_uint_eq(counts.discarded, discarded);
	ck_assert_uint_eq(counts.posted, counts.completed + counts.outstanding + counts.discarded);
}

START_TEST(an_untouched_queue_counts_zero)
{
	expect_send(0, 0, 0, 0);
	ck_assert_uint_eq(counts.peak_outstanding, 0);
	ck_assert_uint_eq(counts.not_posted, 0);
}
END_TEST

START_TEST(each_completion_of_a_signaled_queue_retires_one_request)
{
	qp.post_send_posted = 100;
	qp.poll_send_completions = 60;
	expect_send(100, 60, 40, 0);
}
END_TEST

START_TEST(the_counts_of_all_threads_add_up)
{
	qp.post_send_posted = 100;
	qp.other_send_posted = 50;
	qp.poll_send_completions = 60;
	qp.other_send_completions = 30;
	expect_send(150, 90, 60, 0);
}
END_TEST

START_TEST(discarded_requests_are_neither_completed_nor_outstanding)
{
	qp.post_send_posted = 100;
	qp.poll_send_completions = 60;
	qp.other_send_completions = 40; /* RESET retires what is left */
	qp.send_discarded = 40;
	expect_send(100, 60, 0, 40);
}
END_TEST

START_TEST(more_completions_than_posts_leave_nothing_outstanding)
{
	qp.post_send_posted = 5;
	qp.poll_send_completions = 6;
	expect_send(5, 5, 0, 0);
}
END_TEST

START_TEST(unsignaled_requests_stay_outstanding_until_a_later_completion)
{
	qp.mixed = 1;
	qp.post_send_posted = 10;
	qp.post_unsignaled = 9;
	qp.post_last_signaled = 10; /* the tenth is signaled */
	expect_send(10, 0, 10, 0);
	qp.poll_send_completions = 1;
	qp.poll_send_retired = 10;
	expect_send(10, 10, 0, 0);
}
END_TEST

START_TEST(of_two_pollers_the_farther_tells_what_is_retired)
{
	qp.mixed = 1;
	qp.post_send_posted = 20;
	qp.post_unsignaled = 16; /* 5, 10, 15 and 20 are signaled */
	qp.post_last_signaled = 20;
	qp.poll_send_retired = 10;
	qp.other_send_retired = 15;
	qp.poll_send_completions = 2;
	qp.other_send_completions = 1;
	ck_assert_uint_eq(record_send_retired(&qp), 15);
	expect_send(20, 15, 5, 0);
}
END_TEST

START_TEST(when_every_signaled_one_completed_only_those_after_the_last_are_outstanding)
{
	qp.mixed = 1;
	qp.post_send_posted = 12;
	qp.post_unsignaled = 11;
	qp.post_last_signaled = 9;
	qp.poll_send_completions = 1;
	qp.poll_send_retired = 7; /* the poller could not tell all that the completion retired */
	expect_send(12, 9, 3, 0);
}
END_TEST

START_TEST(marks_of_the_other_posters_count_as_seen)
{
	qp.mixed = 1;
	qp.post_send_posted = 10;
	qp.other_send_posted = 10;
	qp.post_unsignaled = 10;
	qp.other_unsignaled = 9;
	qp.other_last_signaled = 10; /* another thread's was the last signaled one, ... */
	qp.other_seen_post = 8;	     /* after 8 of the owner's */
	qp.poll_send_completions = 1;
	qp.poll_send_retired = 12;
	expect_send(20, 18, 2, 0);
}
END_TEST

START_TEST(marks_may_wrap_at_2_to_the_32)
{
	qp.mixed = 1;
	qp.post_send_posted = (1ull << 32) + 5;
	qp.post_unsignaled = (uint32_t)((1ull << 32) + 4 - 1); /* two signaled */
	qp.post_last_signaled = 2;
	qp.poll_send_completions = 2;
	qp.poll_send_retired = (1ull << 32) - 10;
	expect_send((1ull << 32) + 5, (1ull << 32) + 2, 3, 0);
}
END_TEST

START_TEST(a_mark_that_was_never_set_by_other_threads_does_not_hide_the_owners)
{
	qp.mixed = 1;
	qp.post_send_posted = 3000000000u; /* more than 2^31 since the mark that stays 0 */
	qp.post_unsignaled = 2999999999u;
	qp.post_last_signaled = 2999999990u;
	qp.poll_send_completions = 1;
	qp.poll_send_retired = 2999999000u;
	expect_send(3000000000u, 2999999990u, 10, 0);
}
END_TEST

START_TEST(a_mark_that_is_read_late_counts_as_nothing_after_it)
{
	qp.mixed = 1;
	qp.post_send_posted = 10;
	qp.post_unsignaled = 9;
	qp.post_last_signaled = 12; /* stored after the total was loaded */
	qp.poll_send_completions = 1;
	expect_send(10, 10, 0, 0);
}
END_TEST

START_TEST(receives_are_retired_one_by_one)
{
	qp.post_recv_posted = 500;
	qp.other_recv_posted = 12;
	qp.poll_recv_retired = 400;
	qp.other_recv_retired = 12;
	qp.recv_discarded = 2;
	record_recv_counts(&qp, &counts);
	ck_assert_uint_eq(counts.posted, 512);
	ck_assert_uint_eq(counts.outstanding, 100);
	ck_assert_uint_eq(counts.completed, 410);
	ck_assert_uint_eq(counts.peak_inline, 0);
}
END_TEST

START_TEST(peaks_are_the_larger_of_both_kinds_of_poster)
{
	qp.post_send_peak = 7;
	qp.other_send_peak = 9;
	qp.post_send_peak_sge = 4;
	qp.other_send_peak_sge = 3;
	qp.other_send_peak_inline = 64;
	record_send_counts(&qp, &counts);
	ck_assert_uint_eq(counts.peak_outstanding, 9);
	ck_assert_uint_eq(counts.peak_sge, 4);
	ck_assert_uint_eq(counts.peak_inline, 64);
}
END_TEST

START_TEST(refusals_keep_their_reasons_and_their_side)
{
	qp.send_refused.queue_full = 1;
	qp.send_refused.queue_full_early = 2;
	qp.send_refused.too_many_sge = 3;
	qp.send_refused.inline_too_big = 4;
	qp.send_refused.bad_state = 5;
	qp.send_refused.other = 6;
	qp.send_refused.not_posted = 99;
	qp.recv_refused.queue_full = 70;
	record_send_counts(&qp, &counts);
	for (unsigned int i = 0; i <= REFUSED_OTHER; i++)
		ck_assert_uint_eq(counts.refused[i], i + 1);
	ck_assert_uint_eq(counts.not_posted, 99);
	record_recv_counts(&qp, &counts);
	ck_assert_uint_eq(counts.refused[REFUSED_QUEUE_FULL], 70);
	ck_assert_uint_eq(counts.not_posted, 0);
}
END_TEST

START_TEST(an_srq_counts_like_a_receive_queue)
{
	struct srq_record srq;

	memset(&srq, 0, sizeof(srq));
	srq.post_posted = 90;
	srq.other_posted = 10;
	srq.retired = 30;
	srq.discarded = 5;
	srq.other_peak = 80;
	srq.post_peak_sge = 2;
	srq.refused.other = 1;
	record_srq_counts(&srq, &counts);
	ck_assert_uint_eq(counts.posted, 100);
	ck_assert_uint_eq(counts.outstanding, 70);
	ck_assert_uint_eq(counts.completed, 25);
	ck_assert_uint_eq(counts.peak_outstanding, 80);
	ck_assert_uint_eq(counts.peak_sge, 2);
	ck_assert_uint_eq(counts.refused[REFUSED_OTHER], 1);
	ck_assert_uint_eq(record_srq_outstanding(&srq), 70);
}
END_TEST

START_TEST(no_words_whatever_make_a_count_wrap_below_zero)
{
	uint32_t seed = 12345;

	for (int round = 0; round < 20000; round++) {
		unsigned char *byte = (unsigned char *)&qp;

		for (size_t i = 0; i < sizeof(qp); i++) {
			seed = seed * 1664525u + 1013904223u;
			byte[i] = (unsigned char)(seed >> 24);
		}
		qp.post_send_posted &= UINT32_MAX; /* sums of real counts do not wrap */
		qp.other_send_posted &= UINT32_MAX;
		record_send_counts(&qp, &counts);
		ck_assert_uint_le(counts.outstanding, counts.posted);
		ck_assert_uint_le(counts.completed, counts.posted);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("counts");
	TCase *t = tcase_create("counts");
	SRunner *runner = srunner_create(suite);
	int failed;

	tcase_add_checked_fixture(t, fresh_qp, NULL);
	tcase_add_test(t, an_untouched_queue_counts_zero);
	tcase_add_test(t, each_completion_of_a_signaled_queue_retires_one_request);
	tcase_add_test(t, the_counts_of_all_threads_add_up);
	tcase_add_test(t, discarded_requests_are_neither_completed_nor_outstanding);
	tcase_add_test(t, more_completions_than_posts_leave_nothing_outstanding);
	tcase_add_test(t, unsignaled_requests_stay_outstanding_until_a_later_completion);
	tcase_add_test(t, of_two_pollers_the_farther_tells_what_is_retired);
	tcase_add_test(t,
		       when_every_signaled_one_completed_only_those_after_the_last_are_outstanding);
	tcase_add_test(t, marks_of_the_other_posters_count_as_seen);
	tcase_add_test(t, marks_may_wrap_at_2_to_the_32);
	tcase_add_test(t, a_mark_that_was_never_set_by_other_threads_does_not_hide_the_owners);
	tcase_add_test(t, a_mark_that_is_read_late_counts_as_nothing_after_it);
	tcase_add_test(t, receives_are_retired_one_by_one);
	tcase_add_test(t, peaks_are_the_larger_of_both_kinds_of_poster);
	tcase_add_test(t, refusals_keep_their_reasons_and_their_side);
	tcase_add_test(t, an_srq_counts_like_a_receive_queue);
	tcase_add_test(t, no_words_whatever_make_a_count_wrap_below_zero);
	suite_add_tcase(suite, t);
	srunner_set_tap(runner, "-");
	srunner_run_all(runner, CK_SILENT);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
