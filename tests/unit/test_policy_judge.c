/* SPDX-License-Identifier: MIT */
/*
 * What becomes of a request: limits reached and exceeded, the three actions, clamps, hostile
 * numbers. Needs policy/ alone. Bytes are those of the estimate, where a request of one SGE takes
 * 80 bytes and a completion 64, so that the numbers can be checked by head.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policy/policy.h"

static struct policy policy;
static struct policy_values values;
static struct policy_usage use;
static struct policy_verdict verdict;

static void tell(void *arg, const struct policy_complaint *c)
{
	(void)arg;
	ck_abort_msg("line %u: %s", c->line, c->text);
}

static void policy_is(const char *text)
{
	static const struct policy_subject anyone;

	policy_init(&policy);
	policy_parse(&policy, "f", text, strlen(text), tell, NULL);
	policy_resolve(&policy, &anyone, &values);
	use = (struct policy_usage){ 0 };
}

static void judge_qp(struct qp_request req)
{
	policy_judge_qp(&values, &use, &geometry_estimate, NULL, &req, &verdict);
}

/* An RC QP with one SGE each way. */
static struct qp_request rc(uint32_t send, uint32_t recv)
{
	return (struct qp_request){
		.caps = { .max_send_wr = send,
			  .max_recv_wr = recv,
			  .max_send_sge = 1,
			  .max_recv_sge = 1 },
		.type = QP_TYPE_RC,
	};
}

static void judge_cq(uint32_t cqe)
{
	policy_judge_cq(&values, &use, &geometry_estimate, NULL, cqe, &verdict);
}

static void judge_srq(uint32_t max_wr, uint32_t max_sge)
{
	policy_judge_srq(&values, &use, &geometry_estimate, NULL, max_wr, max_sge, &verdict);
}

static void refused_by(enum policy_key limit, uint64_t asked, uint64_t at_most)
{
	ck_assert(verdict.refused);
	ck_assert_uint_eq(verdict.refused_by, limit);
	ck_assert_uint_eq(verdict.asked, asked);
	ck_assert_uint_eq(verdict.limit, at_most);
	ck_assert_uint_eq(verdict.observed, 0);
}

static void passed(void)
{
	ck_assert(!verdict.refused);
	ck_assert(!verdict.clamped);
	ck_assert_uint_eq(verdict.observed, 0);
}

START_TEST(without_a_policy_everything_passes_unchanged)
{
	struct qp_request req = rc(128, 64);

	policy_is("");
	judge_qp(req);
	passed();
	ck_assert_mem_eq(&verdict.submitted, &req.caps, sizeof(req.caps));
	ck_assert_uint_eq(verdict.bytes.sq, 128 * 80);
	ck_assert_uint_eq(verdict.bytes.rq, 64 * 80);
	judge_cq(100);
	passed();
	ck_assert_uint_eq(verdict.submitted_cqe, 100);
	ck_assert_uint_eq(verdict.bytes.rq, 6400);
	judge_srq(10, 2);
	passed();
	ck_assert_uint_eq(verdict.submitted.max_recv_wr, 10);
	ck_assert_uint_eq(verdict.submitted.max_recv_sge, 2);
	ck_assert_uint_eq(verdict.bytes.rq, 960);
}
END_TEST

START_TEST(a_count_exactly_reached_passes_and_one_more_is_refused)
{
	policy_is("[budget]\nqps = 3\naction = refuse\n");
	use.used[BUDGET_QPS] = 2;
	judge_qp(rc(1, 1));
	passed();
	use.used[BUDGET_QPS] = 3;
	judge_qp(rc(1, 1));
	refused_by(BUDGET_QPS, 4, 3);
}
END_TEST

START_TEST(bytes_exactly_reached_pass_and_one_more_is_refused)
{
	policy_is("[budget]\nprocess_bytes = 1000\naction = refuse\n");
	use.used[BUDGET_PROCESS_BYTES] = 1000 - 160;
	judge_qp(rc(1, 1));
	passed();
	use.used[BUDGET_PROCESS_BYTES]++;
	judge_qp(rc(1, 1));
	refused_by(BUDGET_PROCESS_BYTES, 1001, 1000);
	use.used[BUDGET_PROCESS_BYTES] = 1000 - 640;
	judge_cq(10);
	passed();
	use.used[BUDGET_PROCESS_BYTES]++;
	judge_cq(10);
	refused_by(BUDGET_PROCESS_BYTES, 1001, 1000);
	use.used[BUDGET_PROCESS_BYTES] = 1000 - 800;
	judge_srq(10, 1);
	passed();
	use.used[BUDGET_PROCESS_BYTES]++;
	judge_srq(10, 1);
	refused_by(BUDGET_PROCESS_BYTES, 1001, 1000);
}
END_TEST

START_TEST(each_limit_is_kept)
{
	static const struct {
		const char *text;
		enum policy_key limit;
		uint64_t used, qp, cq, srq; /* what an object of 10, 10, 10 adds */
	} limits[] = {
		{ "process_bytes = 5000", BUDGET_PROCESS_BYTES, 4000, 1600, 640, 800 },
		{ "device_bytes = 5000", BUDGET_DEVICE_BYTES, 4000, 1600, 640, 800 },
		{ "bytes_per_qp = 1599", BUDGET_BYTES_PER_QP, 0, 1600, 0, 0 },
		{ "qps = 5", BUDGET_QPS, 5, 1, 0, 0 },
		{ "cqs = 5", BUDGET_CQS, 5, 0, 1, 0 },
		{ "srqs = 5", BUDGET_SRQS, 5, 0, 0, 1 },
		{ "send_wrs = 99", BUDGET_SEND_WRS, 90, 10, 0, 0 },
		{ "recv_wrs = 99", BUDGET_RECV_WRS, 90, 10, 0, 10 },
		{ "cqes = 99", BUDGET_CQES, 90, 0, 10, 0 },
	};
	char text[100];

	for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
		uint64_t limit, used = limits[i].used;

		snprintf(text, sizeof(text), "[budget]\naction = refuse\n%s\n", limits[i].text);
		policy_is(text);
		limit = values.num[limits[i].limit];
		use.used[limits[i].limit] = used;
		judge_qp(rc(10, 10));
		ck_assert_int_eq(verdict.refused, limits[i].qp && used + limits[i].qp > limit);
		if (verdict.refused)
			refused_by(limits[i].limit, used + limits[i].qp, limit);
		judge_cq(10);
		ck_assert_int_eq(verdict.refused, limits[i].cq && used + limits[i].cq > limit);
		if (verdict.refused)
			refused_by(limits[i].limit, used + limits[i].cq, limit);
		judge_srq(10, 1);
		ck_assert_int_eq(verdict.refused, limits[i].srq && used + limits[i].srq > limit);
		if (verdict.refused)
			refused_by(limits[i].limit, used + limits[i].srq, limit);
	}
}
END_TEST

START_TEST(a_limit_of_zero_means_none)
{
	policy_is("[budget]\nqps = 0\naction = refuse\n");
	judge_qp(rc(0, 0));
	refused_by(BUDGET_QPS, 1, 0);
	policy_is("[budget]\nprocess_bytes = 0\naction = clamp\n");
	judge_cq(1);
	refused_by(BUDGET_PROCESS_BYTES, 64, 0);
}
END_TEST

START_TEST(what_adds_nothing_to_a_limit_is_not_held_up)
{
	policy_is("[budget]\nsend_wrs = 10\naction = refuse\n");
	use.used[BUDGET_SEND_WRS] = 50;
	judge_qp(rc(0, 10));
	passed();
	policy_is("[budget]\nrecv_wrs = 0\naction = refuse\n");
	judge_qp((struct qp_request){ .caps = { .max_recv_wr = 9 }, .type = 2, .has_srq = true });
	passed();
}
END_TEST

START_TEST(node_bytes_is_not_judged_here)
{
	policy_is("[budget]\nnode_bytes = 1\naction = refuse\n");
	use.used[BUDGET_NODE_BYTES] = 50;
	judge_qp(rc(10, 10));
	passed();
}
END_TEST

START_TEST(observe_lets_pass_and_tells)
{
	policy_is("[budget]\nqps = 3\nprocess_bytes = 100\n");
	use.used[BUDGET_QPS] = 3;
	judge_qp(rc(1, 1));
	ck_assert(!verdict.refused);
	ck_assert(!verdict.clamped);
	ck_assert_uint_eq(verdict.observed, 1u << BUDGET_QPS | 1u << BUDGET_PROCESS_BYTES);
	ck_assert_uint_eq(verdict.refused_by, BUDGET_PROCESS_BYTES);
	ck_assert_uint_eq(verdict.asked, 160);
	ck_assert_uint_eq(verdict.limit, 100);
}
END_TEST

START_TEST(of_two_limits_exceeded_the_first_is_named)
{
	policy_is("[budget]\nqps = 0\nsend_wrs = 5\naction = refuse\n");
	judge_qp(rc(10, 10));
	refused_by(BUDGET_QPS, 1, 0);
	policy_is("[budget]\nqps = 1\nsend_wrs = 5\naction = refuse\n");
	judge_qp(rc(10, 10));
	refused_by(BUDGET_SEND_WRS, 10, 5);
}
END_TEST

START_TEST(an_action_may_be_of_one_limit_alone)
{
	policy_is("[budget]\nqps = 0\ncqs = 0\ncqs.action = refuse\n");
	judge_qp(rc(1, 1));
	ck_assert(!verdict.refused);
	ck_assert_uint_eq(verdict.observed, 1u << BUDGET_QPS);
	judge_cq(1);
	refused_by(BUDGET_CQS, 1, 0);
	policy_is("[budget]\nqps = 0\naction = refuse\nqps.action = observe\n");
	judge_qp(rc(1, 1));
	ck_assert(!verdict.refused);
}
END_TEST

START_TEST(a_refusal_by_one_limit_outweighs_what_another_observes)
{
	policy_is("[budget]\nprocess_bytes = 0\nqps = 0\nqps.action = refuse\n");
	judge_qp(rc(1, 1));
	refused_by(BUDGET_QPS, 1, 0);
}
END_TEST

START_TEST(clamps_are_upper_bounds)
{
	struct qp_request req = {
		.caps = { 100, 200, 10, 20, 300 },
		.type = QP_TYPE_RC,
	};

	policy_is("[clamp]\nmax_send_wr = 50\nmax_recv_wr = 200\nmax_send_sge = 3\nmax_recv_sge = "
		  "4\nmax_inline_data = 64\nmax_cqe = 7\n");
	judge_qp(req);
	ck_assert(verdict.clamped);
	ck_assert(!verdict.refused);
	ck_assert_uint_eq(verdict.clamped_by, CLAMP_MAX_SEND_WR);
	ck_assert_uint_eq(verdict.submitted.max_send_wr, 50);
	ck_assert_uint_eq(verdict.submitted.max_recv_wr, 200);
	ck_assert_uint_eq(verdict.submitted.max_send_sge, 3);
	ck_assert_uint_eq(verdict.submitted.max_recv_sge, 4);
	ck_assert_uint_eq(verdict.submitted.max_inline_data, 64);
	ck_assert_uint_eq(verdict.bytes.sq, 50 * (64 + 3 * 16));
	judge_cq(7);
	passed();
	judge_cq(8);
	ck_assert(verdict.clamped);
	ck_assert_uint_eq(verdict.clamped_by, CLAMP_MAX_CQE);
	ck_assert_uint_eq(verdict.submitted_cqe, 7);
	judge_srq(201, 4);
	ck_assert(verdict.clamped);
	ck_assert_uint_eq(verdict.clamped_by, CLAMP_MAX_RECV_WR);
	ck_assert_uint_eq(verdict.submitted.max_recv_wr, 200);
	ck_assert_uint_eq(verdict.submitted.max_recv_sge, 4);
}
END_TEST

START_TEST(a_clamp_of_zero_leaves_one_but_no_inline_data)
{
	struct qp_request req = { .caps = { 9, 9, 9, 0, 9 }, .type = QP_TYPE_RC };

	policy_is("[clamp]\nmax_send_wr = 0\nmax_recv_wr = 0\nmax_send_sge = 0\nmax_recv_sge = 0\n"
		  "max_inline_data = 0\nmax_cqe = 0\n");
	judge_qp(req);
	ck_assert_uint_eq(verdict.submitted.max_send_wr, 1);
	ck_assert_uint_eq(verdict.submitted.max_recv_wr, 1);
	ck_assert_uint_eq(verdict.submitted.max_send_sge, 1);
	ck_assert_uint_eq(verdict.submitted.max_recv_sge, 0);
	ck_assert_uint_eq(verdict.submitted.max_inline_data, 0);
	judge_cq(9);
	ck_assert_uint_eq(verdict.submitted_cqe, 1);
}
END_TEST

START_TEST(receive_caps_beside_an_srq_stay_as_they_are)
{
	struct qp_request req = rc(10, 500);

	policy_is("[clamp]\nmax_recv_wr = 5\nmax_recv_sge = 0\n"
		  "[budget]\nprocess_bytes = 400\naction = clamp\n");
	req.has_srq = true;
	judge_qp(req);
	ck_assert_uint_eq(verdict.submitted.max_recv_wr, 500);
	ck_assert_uint_eq(verdict.submitted.max_send_wr, 5);
	ck_assert_uint_eq(verdict.clamped_by, BUDGET_PROCESS_BYTES);
}
END_TEST

START_TEST(a_clamp_comes_before_the_budget)
{
	policy_is("[clamp]\nmax_send_wr = 10\n[budget]\nsend_wrs = 10\naction = refuse\n");
	judge_qp(rc(100, 1));
	ck_assert(!verdict.refused);
	ck_assert(verdict.clamped);
	ck_assert_uint_eq(verdict.submitted.max_send_wr, 10);
	use.used[BUDGET_SEND_WRS] = 1;
	judge_qp(rc(100, 1));
	refused_by(BUDGET_SEND_WRS, 11, 10);
}
END_TEST

START_TEST(action_clamp_shrinks_to_what_is_left)
{
	policy_is("[budget]\nprocess_bytes = 8000\naction = clamp\n");
	judge_qp(rc(100, 0));
	passed();
	use.used[BUDGET_PROCESS_BYTES] = 4000;
	judge_qp(rc(100, 0));
	ck_assert(!verdict.refused);
	ck_assert(verdict.clamped);
	ck_assert_uint_eq(verdict.clamped_by, BUDGET_PROCESS_BYTES);
	ck_assert_uint_eq(verdict.submitted.max_send_wr, 50);
	ck_assert_uint_eq(verdict.submitted.max_recv_wr, 0);
	ck_assert_uint_eq(verdict.bytes.sq, 4000);
	judge_cq(100);
	ck_assert_uint_eq(verdict.submitted_cqe, 62);
	ck_assert_uint_eq(verdict.clamped_by, BUDGET_PROCESS_BYTES);
	judge_srq(100, 3);
	ck_assert_uint_eq(verdict.submitted.max_recv_wr, 35);
	ck_assert_uint_eq(verdict.submitted.max_recv_sge, 3);
}
END_TEST

START_TEST(action_clamp_keeps_the_proportion_of_both_depths)
{
	policy_is("[budget]\nprocess_bytes = 24000\naction = clamp\n");
	judge_qp(rc(400, 200));
	ck_assert_uint_eq(verdict.submitted.max_send_wr, 200);
	ck_assert_uint_eq(verdict.submitted.max_recv_wr, 100);
	judge_qp(rc(400, 1));
	ck_assert_uint_eq(verdict.submitted.max_send_wr, 299);
	ck_assert_uint_eq(verdict.submitted.max_recv_wr, 1);
}
END_TEST

START_TEST(action_clamp_goes_down_to_one_and_then_refuses)
{
	policy_is("[budget]\nprocess_bytes = 1000\naction = clamp\n");
	use.used[BUDGET_PROCESS_BYTES] = 1000 - 160;
	judge_qp(rc(100, 100));
	ck_assert(!verdict.refused);
	ck_assert_uint_eq(verdict.submitted.max_send_wr, 1);
	ck_assert_uint_eq(verdict.submitted.max_recv_wr, 1);
	use.used[BUDGET_PROCESS_BYTES]++;
	judge_qp(rc(100, 100));
	refused_by(BUDGET_PROCESS_BYTES, 841 + 16000, 1000);
	ck_assert_uint_eq(verdict.submitted.max_send_wr, 100);
	ck_assert(!verdict.clamped);
}
END_TEST

START_TEST(action_clamp_never_touches_sges_or_inline_data)
{
	struct qp_request req = { .caps = { 100, 100, 4, 2, 220 }, .type = QP_TYPE_RC };

	policy_is("[budget]\nbytes_per_qp = 3000\naction = clamp\n");
	judge_qp(req);
	ck_assert(verdict.clamped);
	ck_assert_uint_eq(verdict.clamped_by, BUDGET_BYTES_PER_QP);
	ck_assert_uint_eq(verdict.submitted.max_send_sge, 4);
	ck_assert_uint_eq(verdict.submitted.max_recv_sge, 2);
	ck_assert_uint_eq(verdict.submitted.max_inline_data, 220);
	ck_assert_uint_eq(verdict.submitted.max_send_wr, 13); /* 13 * (128 + 96) = 2912 */
	ck_assert_uint_eq(verdict.submitted.max_recv_wr, 13);
}
END_TEST

START_TEST(a_limit_on_one_side_shrinks_that_side_alone)
{
	policy_is("[budget]\nsend_wrs = 100\naction = clamp\n");
	use.used[BUDGET_SEND_WRS] = 70;
	judge_qp(rc(60, 60));
	ck_assert_uint_eq(verdict.submitted.max_send_wr, 30);
	ck_assert_uint_eq(verdict.submitted.max_recv_wr, 60);
	ck_assert_uint_eq(verdict.clamped_by, BUDGET_SEND_WRS);
	use.used[BUDGET_SEND_WRS] = 100;
	judge_qp(rc(60, 60));
	refused_by(BUDGET_SEND_WRS, 160, 100);
}
END_TEST

START_TEST(action_clamp_obeys_every_limit_with_that_action)
{
	policy_is("[budget]\nprocess_bytes = 8000\ndevice_bytes = 4000\nsend_wrs = 40\n"
		  "action = clamp\n");
	judge_qp(rc(100, 0));
	ck_assert_uint_eq(verdict.submitted.max_send_wr, 40);
	use.used[BUDGET_DEVICE_BYTES] = 2000;
	judge_qp(rc(100, 0));
	ck_assert_uint_eq(verdict.submitted.max_send_wr, 25);
}
END_TEST

START_TEST(a_count_of_objects_cannot_be_clamped)
{
	policy_is("[budget]\nqps = 3\naction = clamp\n");
	use.used[BUDGET_QPS] = 3;
	judge_qp(rc(10, 10));
	refused_by(BUDGET_QPS, 4, 3);
	ck_assert_uint_eq(verdict.submitted.max_send_wr, 10);
}
END_TEST

START_TEST(what_clamping_left_meets_the_limits_that_refuse)
{
	policy_is("[budget]\nprocess_bytes = 4000\nprocess_bytes.action = clamp\n"
		  "device_bytes = 5000\ndevice_bytes.action = refuse\n");
	judge_qp(rc(100, 0));
	ck_assert(!verdict.refused);
	ck_assert_uint_eq(verdict.submitted.max_send_wr, 50);
	use.used[BUDGET_DEVICE_BYTES] = 1001;
	judge_qp(rc(100, 0));
	refused_by(BUDGET_DEVICE_BYTES, 5001, 5000);
}
END_TEST

START_TEST(the_largest_depth_of_a_real_geometry_is_found)
{
	struct qp_request req = rc(1000, 1000);
	const struct geometry *rxe = geometry_of("rxe");
	struct queue_bytes bytes;

	policy_is("[budget]\nprocess_bytes = 100K\naction = clamp\n");
	policy_judge_qp(&values, &use, rxe, NULL, &req, &verdict);
	ck_assert(verdict.clamped);
	ck_assert_uint_le(queue_bytes_total(&verdict.bytes), 100 << 10);
	req.caps = verdict.submitted;
	req.caps.max_send_wr++;
	req.caps.max_recv_wr++;
	geometry_qp_bytes(rxe, &req, NULL, NULL, &bytes);
	ck_assert_uint_gt(queue_bytes_total(&bytes), 100 << 10);
}
END_TEST

START_TEST(memory_regions_have_limits_of_their_own)
{
	policy_is("[budget]\nmrs = 2\nmr_bytes = 1000\nprocess_bytes = 0\naction = refuse\n");
	use.used[BUDGET_MRS] = 1;
	use.used[BUDGET_MR_BYTES] = 900;
	policy_judge_mr(&values, &use, 100, &verdict);
	passed();
	policy_judge_mr(&values, &use, 101, &verdict);
	refused_by(BUDGET_MR_BYTES, 1001, 1000);
	policy_judge_mr(&values, &use, UINT64_MAX, &verdict);
	refused_by(BUDGET_MR_BYTES, UINT64_MAX, 1000);
	use.used[BUDGET_MRS] = 2;
	policy_judge_mr(&values, &use, 0, &verdict);
	refused_by(BUDGET_MRS, 3, 2);
	policy_is("[budget]\nmr_bytes = 1000\naction = clamp\n");
	policy_judge_mr(&values, &use, 1001, &verdict);
	refused_by(BUDGET_MR_BYTES, 1001, 1000);
}
END_TEST

START_TEST(hostile_numbers_look_enormous)
{
	struct qp_request req = {
		.caps = { UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX },
		.type = QP_TYPE_RC,
	};
	static const char *const drivers[] = { "rxe", "unheard of" };

	policy_is("[budget]\nprocess_bytes = 17179869183G\naction = refuse\nqps = "
		  "18446744073709551615\n");
	for (size_t i = 0; i < 2; i++) {
		const struct geometry *g = geometry_of(drivers[i]);

		use.used[BUDGET_PROCESS_BYTES] = UINT64_MAX - 1;
		use.used[BUDGET_QPS] = UINT64_MAX;
		policy_judge_qp(&values, &use, g, NULL, &req, &verdict);
		refused_by(BUDGET_PROCESS_BYTES, UINT64_MAX, 17179869183ULL << 30);
		policy_judge_srq(&values, &use, g, NULL, UINT32_MAX, UINT32_MAX, &verdict);
		refused_by(BUDGET_PROCESS_BYTES, UINT64_MAX, 17179869183ULL << 30);
		policy_judge_cq(&values, &use, g, NULL, UINT32_MAX, &verdict);
		refused_by(BUDGET_PROCESS_BYTES, UINT64_MAX, 17179869183ULL << 30);
	}
	policy_is("[budget]\nprocess_bytes = 1M\naction = clamp\n");
	req.caps.max_send_sge = req.caps.max_recv_sge = 1;
	judge_qp(req);
	ck_assert_uint_eq(verdict.submitted.max_send_wr, (1 << 20) / 160);
	ck_assert_uint_eq(verdict.submitted.max_recv_wr, (1 << 20) / 160);
}
END_TEST

START_TEST(a_verdict_by_chance_keeps_its_promises)
{
	static const char *const actions[] = { "observe", "refuse", "clamp" };
	char text[300];

	srandom(4);
	for (int i = 0; i < 3000; i++) {
		const struct geometry *g = geometry_of(random() % 2 ? "rxe" : "x");
		struct qp_request req = rc((uint32_t)random() % 500, (uint32_t)random() % 500);
		unsigned int action = (unsigned int)random() % 3;
		uint64_t total;

		snprintf(text, sizeof(text),
			 "[budget]\nprocess_bytes = %ld\nbytes_per_qp = %ld\nsend_wrs = %ld\n"
			 "action = %s\n",
			 random() % 300000, random() % 300000, random() % 1000, actions[action]);
		policy_is(text);
		use.used[BUDGET_PROCESS_BYTES] = (uint64_t)random() % 300000;
		use.used[BUDGET_SEND_WRS] = (uint64_t)random() % 1000;
		policy_judge_qp(&values, &use, g, NULL, &req, &verdict);
		ck_assert(action == ACTION_CLAMP || !verdict.clamped);
		ck_assert(action == ACTION_OBSERVE ? !verdict.refused : !verdict.observed);
		ck_assert_uint_le(verdict.submitted.max_send_wr, req.caps.max_send_wr);
		ck_assert_uint_le(verdict.submitted.max_recv_wr, req.caps.max_recv_wr);
		ck_assert_int_eq(!verdict.submitted.max_send_wr, !req.caps.max_send_wr);
		ck_assert_int_eq(!verdict.submitted.max_recv_wr, !req.caps.max_recv_wr);
		ck_assert_int_eq(verdict.clamped,
				 memcmp(&verdict.submitted, &req.caps, sizeof(req.caps)) != 0);
		total = queue_bytes_total(&verdict.bytes);
		if (verdict.refused || verdict.observed) {
			ck_assert_uint_gt(verdict.asked, verdict.limit);
			continue;
		}
		ck_assert_uint_le(use.used[BUDGET_PROCESS_BYTES] + total,
				  values.num[BUDGET_PROCESS_BYTES]);
		ck_assert_uint_le(total, values.num[BUDGET_BYTES_PER_QP]);
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("policy_judge");
	TCase *c = tcase_create("verdicts");
	SRunner *sr;
	int failed;

	tcase_set_timeout(c, 60); /* the machine may be busy */
	tcase_add_test(c, without_a_policy_everything_passes_unchanged);
	tcase_add_test(c, a_count_exactly_reached_passes_and_one_more_is_refused);
	tcase_add_test(c, bytes_exactly_reached_pass_and_one_more_is_refused);
	tcase_add_test(c, each_limit_is_kept);
	tcase_add_test(c, a_limit_of_zero_means_none);
	tcase_add_test(c, what_adds_nothing_to_a_limit_is_not_held_up);
	tcase_add_test(c, node_bytes_is_not_judged_here);
	tcase_add_test(c, observe_lets_pass_and_tells);
	tcase_add_test(c, of_two_limits_exceeded_the_first_is_named);
	tcase_add_test(c, an_action_may_be_of_one_limit_alone);
	tcase_add_test(c, a_refusal_by_one_limit_outweighs_what_another_observes);
	tcase_add_test(c, clamps_are_upper_bounds);
	tcase_add_test(c, a_clamp_of_zero_leaves_one_but_no_inline_data);
	tcase_add_test(c, receive_caps_beside_an_srq_stay_as_they_are);
	tcase_add_test(c, a_clamp_comes_before_the_budget);
	tcase_add_test(c, action_clamp_shrinks_to_what_is_left);
	tcase_add_test(c, action_clamp_keeps_the_proportion_of_both_depths);
	tcase_add_test(c, action_clamp_goes_down_to_one_and_then_refuses);
	tcase_add_test(c, action_clamp_never_touches_sges_or_inline_data);
	tcase_add_test(c, a_limit_on_one_side_shrinks_that_side_alone);
	tcase_add_test(c, action_clamp_obeys_every_limit_with_that_action);
	tcase_add_test(c, a_count_of_objects_cannot_be_clamped);
	tcase_add_test(c, what_clamping_left_meets_the_limits_that_refuse);
	tcase_add_test(c, the_largest_depth_of_a_real_geometry_is_found);
	tcase_add_test(c, memory_regions_have_limits_of_their_own);
	tcase_add_test(c, hostile_numbers_look_enormous);
	tcase_add_test(c, a_verdict_by_chance_keeps_its_promises);
	suite_add_tcase(s, c);
	sr = srunner_create(s);
	srunner_set_tap(sr, "-");
	srunner_run_all(sr, CK_SILENT);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
