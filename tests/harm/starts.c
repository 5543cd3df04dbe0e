/* SPDX-License-Identifier: MIT */
/*
 * What a start of a program costs under one preload library more than under another:
 *
 *     starts N LIBRARY OTHER PROGRAM
 *
 * N pairs, one after the other, so that whatever else the machine does falls on both. Counted are
 * the instructions of user and kernel, where the processor lets us, and the processor time as the
 * scheduler accounts it. The last line is how much more OTHER costs, in thousandths: by the first
 * of the two that can be had.
 */
#include <errno.h>
#include <linux/perf_event.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Counts what children do from their exec on; -1 where it cannot be counted. */
static int instructions = -1;

static void begin_counting(void)
{
	struct perf_event_attr a = { .type = PERF_TYPE_HARDWARE,
				     .size = sizeof(a),
				     .config = PERF_COUNT_HW_INSTRUCTIONS,
				     .inherit = 1,
				     .exclude_hv = 1 };

	instructions = (int)syscall(SYS_perf_event_open, &a, 0, -1, -1, 0);
	if (instructions < 0) {
		a.exclude_kernel = 1;
		instructions = (int)syscall(SYS_perf_event_open, &a, 0, -1, -1, 0);
	}
}

static uint64_t counted(void)
{
	uint64_t n = 0;

	if (instructions < 0 || read(instructions, &n, sizeof(n)) != sizeof(n))
		return 0;
	return n;
}

struct cost {
	uint64_t instructions, ns;
};

static struct cost start(const char *library, char *program)
{
	char preload[4096];
	char *argv[] = { program, NULL }, *envp[] = { preload, NULL };
	struct cost c = { .instructions = counted() };
	struct rusage use;
	pid_t pid;
	int status;

	snprintf(preload, sizeof(preload), "LD_PRELOAD=%s", library);
	errno = posix_spawn(&pid, program, NULL, NULL, argv, envp);
	if (errno || wait4(pid, &status, 0, &use) != pid || status) {
		perror(program);
		exit(1);
	}
	c.instructions = counted() - c.instructions;
	c.ns = (uint64_t)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) * 1000000000 +
	       (uint64_t)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) * 1000;
	return c;
}

static int by_size(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* A quarter of the starts are cheaper: the middle of those that nothing disturbed. */
static uint64_t usual(uint64_t *of, unsigned int n)
{
	qsort(of, n, sizeof(*of), by_size);
	return of[n / 4];
}

static int told(const char *what, uint64_t *one, uint64_t *other, unsigned int n)
{
	uint64_t a = usual(one, n), b = usual(other, n);

	if (!a)
		return -1000;
	printf("%s %llu %llu\n", what, (unsigned long long)a, (unsigned long long)b);
	return (int)(((int64_t)b - (int64_t)a) * 1000 / (int64_t)a);
}

int main(int argc, char **argv)
{
	unsigned int n = argc == 5 ? (unsigned int)atoi(argv[1]) : 0;
	uint64_t *v[4];
	int by_count, by_time;

	if (!n)
		return 2;
	for (unsigned int i = 0; i < 4; i++)
		v[i] = calloc(n, sizeof(*v[i]));
	begin_counting();
	for (unsigned int i = 0; i < n; i++) {
		/* each is the first of its pair as often as the other */
		struct cost one, other;

		if (i & 1)
			other = start(argv[3], argv[4]);
		one = start(argv[2], argv[4]);
		if (!(i & 1))
			other = start(argv[3], argv[4]);
		v[0][i] = one.instructions;
		v[1][i] = other.instructions;
		v[2][i] = one.ns;
		v[3][i] = other.ns;
	}
	by_count = told("instructions", v[0], v[1], n);
	by_time = told("nanoseconds", v[2], v[3], n);
	printf("more %d\n", by_count != -1000 ? by_count : by_time);
	return 0;
}
