/* SPDX-License-Identifier: MIT */
/*
 * What it costs to make and to destroy a QP while many others live, in a process that is bare or guarded as it was
 * started, on the first device. Driven by lines on standard input, so that a bare and a guarded process can
 * take turns; each is answered by a line on standard output:
 *
 *     live N      N QPs live from now on, on 16 CQs             live N
 *     time N      N QPs made and destroyed, one by one          time CREATE DESTROY BOTH, medians, nanoseconds
 *     step        one QP made and destroyed, single-stepped     step CREATE DESTROY, instructions
 *     memory      what is resident of this process              memory ANONYMOUS FILE SHARED, KiB
 *
 * Memory is that of plain pages: huge ones would be counted whole where a part is used.
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "step.h"

#define CQS	  16
#define MOST_QPS  130000
#define MOST_TIME 1000

static struct ibv_pd *pd;
static struct ibv_cq *cq[CQS];
static struct ibv_qp *qps[MOST_QPS];
static unsigned int live, made;

static _Noreturn void die(const char *what)
{
	fprintf(stderr, "creation: %s: %s\n", what, strerror(errno));
	exit(1);
}

static struct ibv_qp *create(void)
{
	/* neighbours in time are none on the CQs */
	struct ibv_cq *on = cq[made++ * 7 % CQS];
	struct ibv_qp_init_attr a = {
		.send_cq = on, .recv_cq = on, .qp_type = IBV_QPT_RC, .cap = { 16, 16, 1, 1, 0 }
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &a);

	if (!qp)
		die("create_qp");
	return qp;
}

static void destroy(struct ibv_qp *qp)
{
	if (ibv_destroy_qp(qp))
		die("destroy_qp");
}

static void do_create(void *arg)
{
	*(struct ibv_qp **)arg = create();
}

static void do_destroy(void *arg)
{
	destroy(*(struct ibv_qp **)arg);
}

static void begin(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = list && list[0] ? ibv_open_device(list[0]) : NULL;

	if (!context || !(pd = ibv_alloc_pd(context)))
		die("device");
	for (unsigned int i = 0; i < CQS; i++)
		if (!(cq[i] = ibv_create_cq(context, 64, NULL, NULL, 0)))
			die("create_cq");
}

static void answer_live(unsigned int wanted)
{
	if (wanted > MOST_QPS)
		die("live: that many are not foreseen");
	while (live < wanted)
		qps[live++] = create();
	while (live > wanted)
		destroy(qps[--live]);
	printf("live %u\n", live);
}

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static unsigned long long median(uint64_t *values, unsigned int n)
{
	qsort(values, n, sizeof(*values), by_value);
	return values[n / 2];
}

static void answer_time(unsigned int n)
{
	static uint64_t to_create[MOST_TIME], to_destroy[MOST_TIME], both[MOST_TIME];

	if (!n || n > MOST_TIME)
		die("time: that many are not foreseen");
	destroy(create()); /* what another process put out of the caches comes back */
	for (unsigned int i = 0; i < n; i++) {
		uint64_t a = now(), b, c;
		struct ibv_qp *qp = create();

		b = now();
		destroy(qp);
		c = now();
		to_create[i] = b - a;
		to_destroy[i] = c - b;
		both[i] = c - a;
	}
	printf("time %llu %llu %llu\n", median(to_create, n), median(to_destroy, n),
	       median(both, n));
}

static void answer_step(void)
{
	unsigned long to_create = 0, to_destroy = 0;
	struct ibv_qp *qp;

	for (volatile int pass = 0; pass < 2; pass++) {
		step_rehearse(pass == 0);
		to_create = step_call(do_create, &qp).all;
		to_destroy = step_call(do_destroy, &qp).all;
	}
	printf("step %lu %lu\n", to_create, to_destroy);
}

static void answer_memory(void)
{
	static const char *const kinds[] = { "RssAnon", "RssFile", "RssShmem" };
	FILE *f = fopen("/proc/self/status", "re");
	unsigned long kib[3] = { 0 };
	char line[256];

	while (f && fgets(line, sizeof(line), f))
		for (unsigned int i = 0; i < 3; i++)
			if (!strncmp(line, kinds[i], strlen(kinds[i])))
				kib[i] = strtoul(line + strlen(kinds[i]) + 1, NULL, 10);
	if (f)
		fclose(f);
	printf("memory %lu %lu %lu\n", kib[0], kib[1], kib[2]);
}

int main(void)
{
	char line[64], word[16];
	unsigned int n;

	setvbuf(stdout, NULL, _IOLBF, 0);
	prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
	step_setup();
	if (!step_works())
		die("single stepping does not count right here");
	begin();
	while (fgets(line, sizeof(line), stdin)) {
		n = 0;
		if (sscanf(line, "%15s %u", word, &n) < 1)
			continue;
		if (!strcmp(word, "live"))
			answer_live(n);
		else if (!strcmp(word, "time"))
			answer_time(n);
		else if (!strcmp(word, "step"))
			answer_step();
		else if (!strcmp(word, "memory"))
			answer_memory();
		else
			die(word);
	}
	return 0;
}
