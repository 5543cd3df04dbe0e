/* SPDX-License-Identifier: MIT */
/*
 * Random oversized requests to an mlx5 device, for [clamp] to_device:
 *
 *	clamps ask SEED COUNT		under guard: asks, and prints what was asked and what came of it
 *	clamps verify sge|depth		without the guard: reads that, and tries at the same device
 *					whether more could have been had
 *
 * An attempt of the provider is known by the memory that libmlx5 takes for each QP it begins, seen
 * since the program stands before libc for everybody.
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- the witness of attempts --- */

void *__libc_calloc(size_t count, size_t size);

static unsigned int begun;
static size_t qp_bytes; /* of the provider's struct, the first thing that it takes memory for */
static bool learning;

void *calloc(size_t count, size_t size)
{
	if (learning && !qp_bytes)
		qp_bytes = count * size;
	if (count * size == qp_bytes)
		begun++;
	return __libc_calloc(count, size);
}

/* --- chance --- */

static uint64_t chance;

static uint32_t draw(uint32_t below)
{
	chance ^= chance << 13;
	chance ^= chance >> 7;
	chance ^= chance << 17;
	return (uint32_t)(chance >> 16) % below;
}

/* Any size is as likely as any other. */
static uint32_t draw_size(uint32_t bits)
{
	uint32_t power = 1u << draw(bits + 1);

	return draw(5) ? power + draw(power) : power - 1 + draw(3);
}

/* --- the device --- */

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_srq *srq;

struct request {
	uint32_t type, has_srq;
	struct ibv_qp_cap cap;
};

static struct ibv_qp *create(const struct request *r, struct ibv_qp_cap *back)
{
	struct ibv_qp_init_attr a = { .qp_type = (enum ibv_qp_type)r->type,
				      .send_cq = cq,
				      .recv_cq = cq,
				      .srq = r->has_srq ? srq : NULL,
				      .cap = r->cap };
	struct ibv_qp_init_attr_ex x = { .qp_type = a.qp_type,
					 .send_cq = cq,
					 .recv_cq = cq,
					 .srq = a.srq,
					 .cap = r->cap,
					 .pd = pd,
					 .comp_mask = IBV_QP_INIT_ATTR_PD |
						      IBV_QP_INIT_ATTR_CREATE_FLAGS };
	struct ibv_qp *qp;

	/* both ways in */
	if (r->cap.max_recv_sge & 1) {
		qp = ibv_create_qp(pd, &a);
		*back = a.cap;
	} else {
		qp = ibv_create_qp_ex(context, &x);
		*back = x.cap;
	}
	return qp;
}

static void open_device(void)
{
	struct ibv_srq_init_attr srq_attr = { .attr = { .max_wr = 1, .max_sge = 1 } };
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct request first = { .type = IBV_QPT_RC, .cap = { 1, 1, 1, 1, 0 } };
	struct ibv_qp_cap back;
	struct ibv_qp *qp;

	context = list && list[0] ? ibv_open_device(list[0]) : NULL;
	pd = context ? ibv_alloc_pd(context) : NULL;
	cq = pd ? ibv_create_cq(context, 1, NULL, NULL, 0) : NULL;
	srq = cq ? ibv_create_srq(pd, &srq_attr) : NULL;
	/* of the second QP: tables are made with the first */
	qp = srq ? create(&first, &back) : NULL;
	if (!qp || ibv_destroy_qp(qp)) {
		perror("the device");
		exit(1);
	}
	learning = true;
	qp = create(&first, &back);
	learning = false;
	if (!qp || ibv_destroy_qp(qp)) {
		perror("the device");
		exit(1);
	}
	ibv_free_device_list(list);
}

/* --- asking --- */

static void draw_request(struct request *r)
{
	static const enum ibv_qp_type types[] = { IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD,
						  IBV_QPT_RAW_PACKET, IBV_QPT_XRC_SEND };

	memset(r, 0, sizeof(*r));
	r->type = types[draw(5)];
	r->has_srq = r->type != IBV_QPT_XRC_SEND && !draw(4);
	r->cap.max_send_wr = draw(12) ? draw_size(20) : 0;
	r->cap.max_send_sge = draw(12) ? draw_size(7) : 0;
	r->cap.max_inline_data = draw(2) ? 0 : draw_size(11);
	if (r->type == IBV_QPT_XRC_SEND)
		return;
	r->cap.max_recv_wr = draw(12) ? draw_size(18) : 0;
	r->cap.max_recv_sge = draw(12) ? draw_size(7) : 0;
}

static void print_cap(const struct ibv_qp_cap *c)
{
	printf(" %u %u %u %u %u", c->max_send_wr, c->max_recv_wr, c->max_send_sge, c->max_recv_sge,
	       c->max_inline_data);
}

static int ask(uint32_t seed, uint32_t count)
{
	struct ibv_qp_cap back;
	struct request r;
	struct ibv_qp *qp;
	int error;

	chance = UINT64_C(0x9e3779b97f4a7c15) * (seed + UINT64_C(1));
	for (uint32_t i = 0; i < count; i++) {
		draw_request(&r);
		begun = 0;
		errno = 0;
		qp = create(&r, &back);
		error = errno;
		printf("%u %u", r.type, r.has_srq);
		print_cap(&r.cap);
		printf(" %u %d", begun, qp ? 0 : error ? error : -1);
		print_cap(&back);
		printf("\n");
		if (qp && ibv_destroy_qp(qp)) {
			perror("ibv_destroy_qp");
			return 1;
		}
	}
	return 0;
}

/* --- verifying --- */

static bool could_have(const struct request *r)
{
	struct ibv_qp_cap back;
	struct ibv_qp *qp = create(r, &back);

	if (qp)
		ibv_destroy_qp(qp);
	return qp != NULL;
}

static unsigned int tests, failures, faults;

static void verdict(bool good, const char *text)
{
	printf("%sok %u - %s\n", good ? "" : "not ", ++tests, text);
	failures += !good;
}

static void fault(const struct request *r, const struct ibv_qp_cap *got, const char *what)
{
	if (++faults > 20)
		return;
	printf("# %s: type %u%s", what, r->type, r->has_srq ? " srq" : "");
	print_cap(&r->cap);
	printf(" ->");
	print_cap(got);
	printf("\n");
}

static uint32_t smaller(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

/* What the program can be sure of: no more than it asked, though providers round up. */
static struct ibv_qp_cap granted(const struct request *r, const struct ibv_qp_cap *back)
{
	return (struct ibv_qp_cap){
		.max_send_wr = smaller(r->cap.max_send_wr, back->max_send_wr),
		.max_send_sge = smaller(r->cap.max_send_sge, back->max_send_sge),
		.max_inline_data = smaller(r->cap.max_inline_data, back->max_inline_data),
		.max_recv_wr = r->has_srq ? 0 : smaller(r->cap.max_recv_wr, back->max_recv_wr),
		.max_recv_sge = r->has_srq ? 0 : smaller(r->cap.max_recv_sge, back->max_recv_sge),
	};
}

static struct request least_of(const struct request *r)
{
	struct request least = *r;

	least.cap.max_send_wr = smaller(r->cap.max_send_wr, 1);
	least.cap.max_send_sge = smaller(r->cap.max_send_sge, 1);
	least.cap.max_recv_wr = r->has_srq ? 0 : smaller(r->cap.max_recv_wr, 1);
	least.cap.max_recv_sge = r->has_srq ? 0 : smaller(r->cap.max_recv_sge, 1);
	least.cap.max_inline_data = 0;
	return least;
}

/* What is kept first is as large as it can be with the least of all else, what comes after as large as it can be beside
 * it. */
static void verify_one(const struct request *r, const struct ibv_qp_cap *back, bool keeps_depth)
{
	struct ibv_qp_cap got = granted(r, back);
	struct request more, floor = least_of(r);

	if ((!got.max_send_wr && r->cap.max_send_wr) ||
	    (!got.max_send_sge && r->cap.max_send_sge && r->cap.max_send_wr))
		fault(r, back, "a depth or an SGE count of 0");
	if (got.max_inline_data < r->cap.max_inline_data && r->cap.max_send_wr) {
		more = floor;
		more.cap.max_inline_data = got.max_inline_data + 1;
		if (could_have(&more))
			fault(r, back, "more inline data was possible");
	}
	floor.cap.max_inline_data = got.max_inline_data;
	if (got.max_send_wr < r->cap.max_send_wr) {
		more = (struct request){ r->type, r->has_srq, got };
		if (keeps_depth)
			more.cap.max_send_sge = floor.cap.max_send_sge;
		more.cap.max_send_wr++;
		if (could_have(&more))
			fault(r, back, "a deeper send queue was possible");
	}
	if (got.max_send_sge < r->cap.max_send_sge && r->cap.max_send_wr) {
		more = (struct request){ r->type, r->has_srq, got };
		if (!keeps_depth)
			more.cap.max_send_wr = floor.cap.max_send_wr;
		more.cap.max_send_sge++;
		if (could_have(&more))
			fault(r, back, "more send SGEs were possible");
	}
	if (r->has_srq)
		return;
	if (got.max_recv_wr < r->cap.max_recv_wr) {
		more = (struct request){ r->type, 0, got };
		more.cap.max_recv_wr++;
		if (could_have(&more))
			fault(r, back, "a deeper receive queue was possible");
	}
	if (got.max_recv_sge < r->cap.max_recv_sge && r->cap.max_recv_wr) {
		more = (struct request){ r->type, 0, got };
		more.cap.max_recv_sge++;
		if (could_have(&more))
			fault(r, back, "more receive SGEs were possible");
	}
}

static bool read_one(struct request *r, unsigned int *attempts, int *error, struct ibv_qp_cap *back)
{
	struct ibv_qp_cap *c = &r->cap;

	return scanf("%u %u %u %u %u %u %u %u %d %u %u %u %u %u", &r->type, &r->has_srq,
		     &c->max_send_wr, &c->max_recv_wr, &c->max_send_sge, &c->max_recv_sge,
		     &c->max_inline_data, attempts, error, &back->max_send_wr, &back->max_recv_wr,
		     &back->max_send_sge, &back->max_recv_sge, &back->max_inline_data) == 14;
}

static int verify(bool keeps_depth, bool exactly)
{
	unsigned int count = 0, oversized = 0, impossible = 0, attempts, most_attempts = 0;
	unsigned int all_attempts = 0;
	struct ibv_qp_cap back;
	struct request r, least;
	char text[200];
	int error;

	while (read_one(&r, &attempts, &error, &back)) {
		count++;
		if (attempts > most_attempts)
			most_attempts = attempts;
		if (could_have(&r)) {
			if (error || attempts != 1)
				fault(&r, &back, "possible as it was asked, and not made at once");
			continue;
		}
		oversized++;
		all_attempts += attempts;
		if (!error && exactly) {
			verify_one(&r, &back, keeps_depth);
		} else if (error) {
			impossible++;
			least = least_of(&r);
			if (could_have(&least))
				fault(&r, &back, "refused, though less was possible");
		}
	}
	snprintf(
		text, sizeof(text),
		"%u requests, %u oversized, %u of them impossible at any size, %.2f attempts each: "
		"%u faults",
		count, oversized, impossible, oversized ? (double)all_attempts / oversized : 0,
		faults);
	verdict(count && oversized * 2 > count && !faults, text);
	snprintf(text, sizeof(text), "at most 6 attempts (%u)", most_attempts);
	verdict(most_attempts && most_attempts <= 6, text);
	printf("1..%u\n", tests);
	return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
	open_device();
	if (argc == 4 && !strcmp(argv[1], "ask"))
		return ask((uint32_t)atoi(argv[2]), (uint32_t)atoi(argv[3]));
	if (argc == 4 && !strcmp(argv[1], "verify"))
		return verify(!strcmp(argv[2], "depth"), !strcmp(argv[3], "exactly"));
	fprintf(stderr, "usage: clamps ask SEED COUNT | clamps verify sge|depth exactly|somehow\n");
	return 2;
}
