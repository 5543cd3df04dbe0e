/* SPDX-License-Identifier: MIT */
/*
 * What requests become on mlx5. The rows were produced by libmlx5's own functions, with send
 * requests of at most 1024 bytes, receive requests of 512, queues of 32768 and pages of 4096. Needs
 * policy/ alone.
 */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "policy/geometry.h"

static struct device_facts device;
static struct prediction p;

/* A device whose limits creations have pinned down. */
static void known_device(void)
{
	static const uint32_t limits[LEARNED_LIMITS] = {
		[LEARNED_SEND_BLOCKS] = 32768,	[LEARNED_SEND_WQE_BYTES] = 1024,
		[LEARNED_RECV_WQE_BYTES] = 512, [LEARNED_RECV_WR] = 32768,
		[LEARNED_SRQ_WR] = 32768,
	};

	device = (struct device_facts){ 0 };
	for (unsigned int i = 0; i < LEARNED_LIMITS; i++)
		device.learned[i] = (struct learned){ limits[i], limits[i] + 1 };
}

static void predict(const struct qp_request *req)
{
	geometry_predict_qp(geometry_of("mlx5"), req, &device, &p);
}

enum { WRITE = 1, SEND = 4, SEND_IMM = 8 };

/* One row of the table: the request, and what it becomes. */
struct row {
	struct qp_request req;
	uint64_t sq, rq;
	struct qp_caps back;
	uint64_t buffers; /* with their rounding to pages */
};

static const struct row accepted[] = {
	{ { .type = QP_TYPE_RC, .caps = { 128, 128, 1, 1, 0 } },
	  32768,
	  2048,
	  { 128, 128, 1, 1, 60 },
	  36864 },
	{ { .type = QP_TYPE_RC, .caps = { 1, 1, 1, 1, 0 } }, 256, 64, { 1, 4, 1, 1, 60 }, 4096 },
	{ { .type = QP_TYPE_RC, .caps = { 128, 128, 4, 4, 0 } },
	  32768,
	  8192,
	  { 128, 128, 4, 4, 60 },
	  40960 },
	{ { .type = QP_TYPE_RC, .caps = { 128, 128, 5, 5, 0 } },
	  65536,
	  16384,
	  { 204, 128, 5, 8, 124 },
	  81920 },
	{ { .type = QP_TYPE_RC, .caps = { 128, 128, 1, 1, 64 } },
	  65536,
	  2048,
	  { 204, 128, 1, 1, 124 },
	  69632 },
	{ { .type = QP_TYPE_RC, .caps = { 128, 128, 1, 1, 220 } },
	  65536,
	  2048,
	  { 146, 128, 1, 1, 252 },
	  69632 },
	{ { .type = QP_TYPE_RC, .caps = { 129, 129, 1, 1, 0 } },
	  65536,
	  4096,
	  { 256, 256, 1, 1, 60 },
	  69632 },
	{ { .type = QP_TYPE_RC, .caps = { 100, 100, 12, 3, 0 } },
	  65536,
	  8192,
	  { 170, 128, 12, 4, 188 },
	  73728 },
	{ { .type = QP_TYPE_RC, .caps = { 128, 128, 52, 1, 0 } },
	  131072,
	  2048,
	  { 128, 128, 52, 1, 828 },
	  135168 },
	{ { .type = QP_TYPE_RC, .caps = { 0, 64, 0, 1, 77 } },
	  0,
	  1024,
	  { 0, 64, 0, 1, 77 },
	  4096 }, /* inline data as asked */
	{ { .type = QP_TYPE_RC,
	    .caps = { 128, 128, 1, 1, 0 },
	    .has_send_ops = true,
	    .send_ops = SEND | WRITE },
	  8192,
	  2048,
	  { 128, 128, 1, 1, 28 },
	  12288 },
	{ { .type = QP_TYPE_RC,
	    .caps = { 128, 128, 1, 1, 44 },
	    .has_send_ops = true,
	    .send_ops = SEND },
	  8192,
	  2048,
	  { 128, 128, 1, 1, 44 },
	  12288 },
	{ { .type = QP_TYPE_RC,
	    .caps = { 128, 128, 1, 1, 45 },
	    .has_send_ops = true,
	    .send_ops = SEND },
	  16384,
	  2048,
	  { 128, 128, 1, 1, 108 },
	  20480 },
	{ { .type = QP_TYPE_UC, .caps = { 128, 128, 1, 1, 0 } },
	  32768,
	  2048,
	  { 128, 128, 1, 1, 60 },
	  36864 },
	{ { .type = QP_TYPE_UD, .caps = { 128, 128, 1, 1, 0 } },
	  16384,
	  2048,
	  { 128, 128, 1, 1, 60 },
	  20480 },
	{ { .type = QP_TYPE_UD, .caps = { 128, 128, 1, 1, 64 } },
	  32768,
	  2048,
	  { 170, 128, 1, 1, 124 },
	  36864 },
	{ { .type = QP_TYPE_XRC_SEND, .caps = { 128, 0, 1, 0, 0 } },
	  32768,
	  0,
	  { 128, 0, 1, 0, 44 },
	  32768 },
	{ { .type = QP_TYPE_RAW_PACKET, .caps = { 128, 128, 1, 1, 0 } },
	  8192,
	  2048,
	  { 128, 128, 1, 1, 12 },
	  4096 + 8192 },
	{ { .type = QP_TYPE_RAW_PACKET, .caps = { 128, 128, 4, 1, 0 }, .max_tso_header = 128 },
	  32768,
	  2048,
	  { 128, 128, 4, 1, 204 },
	  4096 + 32768 },
};

static const struct qp_request refused[] = {
	{ .type = QP_TYPE_RC, .caps = { 8193, 1, 1, 1, 0 } },	 /* 65536 blocks */
	{ .type = QP_TYPE_RC, .caps = { 4096, 1, 1, 1, 512 } },	 /* 4096 * 768 -> 65536 blocks */
	{ .type = QP_TYPE_RC, .caps = { 128, 128, 53, 1, 0 } },	 /* 192 + 53 * 16 = 1040 */
	{ .type = QP_TYPE_RC, .caps = { 128, 128, 1, 1, 829 } }, /* 192 + 848 */
	{ .type = QP_TYPE_RC, .caps = { 1, 32769, 1, 1, 0 } },
	{ .type = QP_TYPE_RC, .caps = { 1, 1, 1, 33, 0 } }, /* 528 bytes a receive request */
	{ .type = QP_TYPE_RC, .caps = { 0, 32769, 1, 1, 0 }, .has_srq = true },
};

static void check_caps(const struct qp_caps *got, const struct qp_caps *want)
{
	ck_assert_uint_eq(got->max_send_wr, want->max_send_wr);
	ck_assert_uint_eq(got->max_recv_wr, want->max_recv_wr);
	ck_assert_uint_eq(got->max_send_sge, want->max_send_sge);
	ck_assert_uint_eq(got->max_recv_sge, want->max_recv_sge);
	ck_assert_uint_eq(got->max_inline_data, want->max_inline_data);
}

/* The struct, a slot of the doorbell page, 16 bytes a block and 8 a receive request. */
static uint64_t beside(const struct row *r)
{
	return 960 + 64 + r->sq / 64 * 16 + r->back.max_recv_wr * UINT64_C(8);
}

START_TEST(queue_pairs_as_the_provider_makes_them)
{
	const struct row *r = &accepted[_i];

	known_device();
	predict(&r->req);
	ck_assert_int_eq(p.fate, FATE_ACCEPTED);
	ck_assert_uint_eq(p.bytes.sq, r->sq);
	ck_assert_uint_eq(p.bytes.rq, r->rq);
	check_caps(&p.caps, &r->back);
	ck_assert_uint_eq(queue_bytes_total(&p.bytes), r->buffers + beside(r));
	ck_assert_int_eq(p.bytes.basis, BASIS_MODEL);
	ck_assert_int_eq(p.bytes.place, PLACE_PROCESS);
}
END_TEST

START_TEST(what_came_back_tells_nothing_new)
{
	const struct row *r = &accepted[_i];
	struct queue_bytes bytes;

	known_device();
	predict(&r->req);
	geometry_qp_bytes(geometry_of("mlx5"), &r->req, &r->back, &device, &bytes);
	ck_assert_mem_eq(&bytes, &p.bytes, sizeof(bytes));
}
END_TEST

START_TEST(what_the_provider_refuses_is_foretold)
{
	known_device();
	predict(&refused[_i]);
	ck_assert_int_eq(p.fate, FATE_REFUSED);
	ck_assert_int_eq(p.error, EINVAL);
}
END_TEST

START_TEST(the_most_that_fits_is_accepted)
{
	static const struct qp_caps caps[] = {
		{ 8192, 1, 1, 1, 0 },  { 2730, 1, 1, 1, 512 }, { 128, 128, 52, 1, 828 },
		{ 1, 32768, 1, 1, 0 }, { 1, 1, 1, 32, 0 },
	};

	known_device();
	for (size_t i = 0; i < sizeof(caps) / sizeof(caps[0]); i++) {
		struct qp_request req = { .type = QP_TYPE_RC, .caps = caps[i] };

		predict(&req);
		ck_assert_int_eq(p.fate, FATE_ACCEPTED);
	}
}
END_TEST

START_TEST(a_signature_takes_16_bytes_of_each_receive_request)
{
	struct qp_request req = { .type = QP_TYPE_RC, .caps = { 1, 128, 1, 1, 0 } };

	known_device();
	device.settings.qp_signature = true;
	predict(&req);
	ck_assert_uint_eq(p.bytes.rq, 128 * 32);
	ck_assert_uint_eq(p.caps.max_recv_sge, 1);
	req.caps.max_recv_sge = 2; /* 32 + 16 -> 64: room for 3 */
	predict(&req);
	ck_assert_uint_eq(p.bytes.rq, 128 * 64);
	ck_assert_uint_eq(p.caps.max_recv_sge, 3);
	req.caps.max_recv_sge = 32; /* 512 + 16 */
	predict(&req);
	ck_assert_int_eq(p.fate, FATE_REFUSED);
}
END_TEST

START_TEST(an_srq_takes_the_place_of_the_receive_ring)
{
	struct qp_request req = { .type = QP_TYPE_RC,
				  .caps = { 1, 128, 1, 4, 0 },
				  .has_srq = true };

	known_device();
	predict(&req);
	ck_assert_uint_eq(p.bytes.rq, 0);
	ck_assert_uint_eq(p.caps.max_recv_wr, 0);
	ck_assert_uint_eq(p.caps.max_recv_sge, 0);
}
END_TEST

START_TEST(operations_that_a_type_lacks_are_not_supported)
{
	static const struct {
		uint32_t type;
		uint64_t ops;
		int error;
	} cases[] = {
		{ QP_TYPE_UD, SEND | SEND_IMM, 0 },
		{ QP_TYPE_UD, SEND | WRITE, EOPNOTSUPP },
		{ QP_TYPE_UC, SEND | WRITE, 0 },
		{ QP_TYPE_UC, 1 << 4, EOPNOTSUPP }, /* READ */
		{ QP_TYPE_RC, 1 << 4, 0 },
		{ QP_TYPE_RC, 1 << 10, EOPNOTSUPP }, /* TSO */
		{ QP_TYPE_RAW_PACKET, SEND | 1 << 10, 0 },
		{ QP_TYPE_RAW_PACKET, SEND_IMM, EOPNOTSUPP },
	};

	known_device();
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct qp_request req = { .type = cases[i].type,
					  .caps = { 1, 1, 1, 1, 0 },
					  .has_send_ops = true,
					  .send_ops = cases[i].ops };

		predict(&req);
		ck_assert_int_eq(p.fate, cases[i].error ? FATE_REFUSED : FATE_ACCEPTED);
		ck_assert_int_eq(p.error, cases[i].error);
	}
}
END_TEST

START_TEST(an_underlay_ud_qp_has_48_bytes_more_and_two_buffers)
{
	struct qp_request req = { .type = QP_TYPE_UD,
				  .caps = { 128, 128, 2, 1, 0 },
				  .create_flags = 1 << 10 };

	known_device();
	predict(&req); /* 16 + 48 + 48 + 32 = 144 -> 192: 24576 -> 32768 */
	ck_assert_uint_eq(p.bytes.sq, 32768);
	ck_assert_uint_eq(p.caps.max_send_wr, 170);
	ck_assert_uint_eq(p.caps.max_inline_data, 76); /* 192 - 112 - 4 */
	ck_assert_uint_eq(queue_bytes_total(&p.bytes),
			  32768 + 4096 + 960 + 64 + 512 * 16 + 128 * 8);
	req.type = QP_TYPE_RC;
	predict(&req);
	ck_assert_int_eq(p.error, EINVAL);
}
END_TEST

START_TEST(no_sge_and_no_inline_data_come_back_as_minus_4)
{
	struct qp_request req = { .type = QP_TYPE_RC, .caps = { 1, 0, 0, 0, 0 } };

	known_device();
	predict(&req); /* 192 - 192 - 4 */
	ck_assert_uint_eq(p.caps.max_inline_data, 4294967292);
}
END_TEST

START_TEST(inline_data_wraps_as_in_the_provider)
{
	struct qp_request req = { .type = QP_TYPE_RC, .caps = { 1, 0, 1, 0, UINT32_MAX } };

	known_device();
	predict(&req); /* 192 + 2^32 + 16, in 32 bits */
	ck_assert_int_eq(p.fate, FATE_ACCEPTED);
	ck_assert_uint_eq(p.bytes.sq, 256);
}
END_TEST

START_TEST(huge_pages_are_taken_by_32_kib)
{
	struct qp_request req = { .type = QP_TYPE_RC, .caps = { 128, 128, 1, 1, 0 } };

	known_device();
	device.settings.huge_queues = HUGE_RC | HUGE_CQ;
	predict(&req);
	ck_assert_uint_eq(queue_bytes_total(&p.bytes), 65536 + 960 + 64 + 512 * 16 + 128 * 8);
	geometry_predict_cq(geometry_of("mlx5"), 100, &device, &p);
	ck_assert_uint_eq(queue_bytes_total(&p.bytes), 32768 + 592 + 64);
}
END_TEST

START_TEST(completion_queues_as_the_provider_makes_them)
{
	static const struct {
		uint32_t cqe;
		uint64_t entries;
	} cqs[] = {
		{ 1, 2 },	  { 1024, 2048 },    { 4095, 4096 },	   { 4096, 8192 },
		{ 16384, 32768 }, { 65536, 131072 }, { 4194303, 4194304 },
	};

	known_device();
	for (size_t i = 0; i < sizeof(cqs) / sizeof(cqs[0]); i++) {
		uint64_t pages = (cqs[i].entries * 64 + 4095) / 4096 * 4096;

		device.settings.cqe_bytes = 0;
		geometry_predict_cq(geometry_of("mlx5"), cqs[i].cqe, &device, &p);
		ck_assert_int_eq(p.fate, FATE_ACCEPTED);
		ck_assert_uint_eq(p.cqe, cqs[i].entries - 1);
		ck_assert_uint_eq(p.bytes.rq, cqs[i].entries * 64);
		ck_assert_uint_eq(queue_bytes_total(&p.bytes), pages + 592 + 64);
		device.settings.cqe_bytes = 128;
		geometry_predict_cq(geometry_of("mlx5"), cqs[i].cqe, &device, &p);
		ck_assert_uint_eq(p.bytes.rq, cqs[i].entries * 128);
	}
}
END_TEST

START_TEST(completion_queues_that_are_refused)
{
	known_device();
	geometry_predict_cq(geometry_of("mlx5"), 0, &device, &p);
	ck_assert_int_eq(p.error, EINVAL);
	geometry_predict_cq(geometry_of("mlx5"), 1 << 24, &device, &p);
	ck_assert_int_eq(p.error, EINVAL);
	geometry_predict_cq(geometry_of("mlx5"), (1 << 24) - 1, &device, &p);
	ck_assert_int_eq(p.fate, FATE_ACCEPTED);
	device.limits.max_cqe = 4194303;
	geometry_predict_cq(geometry_of("mlx5"), 4194304, &device, &p);
	ck_assert_int_eq(p.error, EINVAL);
	device.settings.cqe_bytes = 96;
	geometry_predict_cq(geometry_of("mlx5"), 1, &device, &p);
	ck_assert_int_eq(p.error, EINVAL);
}
END_TEST

START_TEST(a_shared_receive_queue_has_twice_the_room)
{
	static const struct {
		uint32_t wr, sge;
		uint64_t entries, wqe, back_wr, back_sge;
	} srqs[] = {
		{ 1, 1, 4, 32, 1, 1 },
		{ 100, 1, 256, 32, 127, 1 },
		{ 128, 2, 512, 64, 255, 3 },
		{ 16383, 1, 32768, 32, 16383, 1 },
		/* twice that is more than the device has: 2^15 alone */
		{ 16384, 1, 32768, 32, 32767, 1 },
		{ 32767, 30, 32768, 512, 32767, 31 },
	};

	known_device();
	for (size_t i = 0; i < sizeof(srqs) / sizeof(srqs[0]); i++) {
		geometry_predict_srq(geometry_of("mlx5"), srqs[i].wr, srqs[i].sge, &device, &p);
		ck_assert_int_eq(p.fate, FATE_ACCEPTED);
		ck_assert_uint_eq(p.bytes.rq, srqs[i].entries * srqs[i].wqe);
		ck_assert_uint_eq(p.caps.max_recv_wr, srqs[i].back_wr);
		ck_assert_uint_eq(p.caps.max_recv_sge, srqs[i].back_sge);
	}
}
END_TEST

START_TEST(the_first_guess_of_hidden_limits_is_what_the_device_reports)
{
	struct qp_request req = { .type = QP_TYPE_RC, .caps = { 4096, 1, 1, 1, 0 } };

	device = (struct device_facts){ .limits = { .max_qp_wr = 8192, .max_srq_wr = 8191 } };
	predict(&req); /* 16384 blocks */
	ck_assert_int_eq(p.fate, FATE_REFUSED);
	ck_assert(p.guessed);
	device.limits.max_srq_wr = 32767; /* as newer kernels report */
	predict(&req);
	ck_assert_int_eq(p.fate, FATE_ACCEPTED);
	device.limits = (struct device_limits){ 0 };
	req.caps.max_send_wr = 8192;
	predict(&req);
	ck_assert_int_eq(p.fate, FATE_ACCEPTED);
}
END_TEST

static void learn(uint32_t wr, uint32_t sge, int error)
{
	struct qp_request req = { .type = QP_TYPE_RC, .caps = { wr, 0, sge, 0, 0 } };

	geometry_learn_qp(geometry_of("mlx5"), &req, error, &device);
}

START_TEST(creations_teach_hidden_limits)
{
	const struct learned *blocks = &device.learned[LEARNED_SEND_BLOCKS];

	device = (struct device_facts){ 0 };
	learn(1024, 1, 0);
	ck_assert_uint_eq(blocks->accepted, 4096);
	ck_assert_uint_eq(blocks->refused, 0);
	learn(4096, 1, EINVAL); /* only the depth is new */
	ck_assert_uint_eq(blocks->refused, 16384);
	ck_assert_uint_eq(geometry_limit(&device, LEARNED_SEND_BLOCKS, 32768), 16383);
	learn(2048, 1, ENOMEM); /* no limit of the provider's gives that */
	ck_assert_uint_eq(blocks->refused, 16384);
	learn(8192, 30, EINVAL); /* depth or size: nobody knows */
	ck_assert_uint_eq(blocks->refused, 16384);
	ck_assert_uint_eq(device.learned[LEARNED_SEND_WQE_BYTES].refused, 0);
	learn(1, 52, 0);
	ck_assert_uint_eq(device.learned[LEARNED_SEND_WQE_BYTES].accepted, 1024);
	learn(4096, 1, 0); /* so it was something else */
	ck_assert_uint_eq(blocks->accepted, 16384);
	ck_assert_uint_eq(blocks->refused, 0);
}
END_TEST

START_TEST(a_smaller_refusal_is_the_one_that_counts)
{
	device = (struct device_facts){ 0 };
	learn(1, 1, 0);
	learn(4096, 1, EINVAL);
	learn(8192, 1, EINVAL);
	ck_assert_uint_eq(device.learned[LEARNED_SEND_BLOCKS].refused, 16384);
	learn(2048, 1, EINVAL);
	ck_assert_uint_eq(device.learned[LEARNED_SEND_BLOCKS].refused, 8192);
}
END_TEST

START_TEST(other_kinds_of_qp_are_estimated)
{
	struct qp_request req = { .type = QP_TYPE_DRIVER, .caps = { 1, 1, 1, 1, 0 } };

	known_device();
	predict(&req);
	ck_assert_int_eq(p.fate, FATE_UNKNOWN);
	ck_assert_int_eq(p.bytes.basis, BASIS_ESTIMATE);
}
END_TEST

#define COUNT(rows) ((int)(sizeof(rows) / sizeof((rows)[0])))

int main(void)
{
	Suite *s = suite_create("geometry of mlx5");
	TCase *c = tcase_create("mlx5");
	SRunner *sr;
	int failed;

	tcase_set_timeout(c, 60); /* the machine may be busy */
	if (sysconf(_SC_PAGESIZE) == 4096) {
		tcase_add_loop_test(c, queue_pairs_as_the_provider_makes_them, 0, COUNT(accepted));
		tcase_add_test(c, an_underlay_ud_qp_has_48_bytes_more_and_two_buffers);
		tcase_add_test(c, huge_pages_are_taken_by_32_kib);
		tcase_add_test(c, completion_queues_as_the_provider_makes_them);
	}
	tcase_add_loop_test(c, what_came_back_tells_nothing_new, 0, COUNT(accepted));
	tcase_add_loop_test(c, what_the_provider_refuses_is_foretold, 0, COUNT(refused));
	tcase_add_test(c, the_most_that_fits_is_accepted);
	tcase_add_test(c, a_signature_takes_16_bytes_of_each_receive_request);
	tcase_add_test(c, an_srq_takes_the_place_of_the_receive_ring);
	tcase_add_test(c, operations_that_a_type_lacks_are_not_supported);
	tcase_add_test(c, no_sge_and_no_inline_data_come_back_as_minus_4);
	tcase_add_test(c, inline_data_wraps_as_in_the_provider);
	tcase_add_test(c, completion_queues_that_are_refused);
	tcase_add_test(c, a_shared_receive_queue_has_twice_the_room);
	tcase_add_test(c, the_first_guess_of_hidden_limits_is_what_the_device_reports);
	tcase_add_test(c, creations_teach_hidden_limits);
	tcase_add_test(c, a_smaller_refusal_is_the_one_that_counts);
	tcase_add_test(c, other_kinds_of_qp_are_estimated);
	suite_add_tcase(s, c);
	sr = srunner_create(s);
	srunner_set_tap(sr, "-");
	srunner_run_all(sr, CK_SILENT);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
