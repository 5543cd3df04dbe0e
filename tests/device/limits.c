/* SPDX-License-Identifier: MIT */
/*
 * What the device can do, from the environment. Read once, by the constructor,
 * and constant from then on. Touches nothing but its own variable.
 */
#include "mlx5dev.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

struct limits limits = {
	.max_send_wqebb = 32768,
	.max_sq_desc_sz = 1024,
	.max_rq_desc_sz = 512,
	.max_recv_wr = 32768,
	.max_srq_recv_wr = 32768,
	.max_cqe = (1 << 22) - 1,
	.max = { 1 << 24, 1 << 24, 1 << 24, HANDLE_MASK, 1 << 23, MAX_UARS, 1 << 24, 1 << 24,
		 1 << 24, 1 << 24, 1 << 24 },
	.nth = { ~0ull, ~0ull, ~0ull, ~0ull, ~0ull, ~0ull, ~0ull, ~0ull, ~0ull, ~0ull, ~0ull },
	.nth_errno = 12,
	.memlock = ~0ull,
	.name = "mlx5_0",
};

static const struct {
	const char *name;
	uint64_t *value, most;
} numbers[] = {
	{ "max_send_wqebb", &limits.max_send_wqebb, 32768 },
	{ "max_sq_desc_sz", &limits.max_sq_desc_sz, 1024 },
	{ "max_rq_desc_sz", &limits.max_rq_desc_sz, 65535 },
	{ "max_recv_wr", &limits.max_recv_wr, 32768 },
	{ "max_srq_recv_wr", &limits.max_srq_recv_wr, 65536 },
	{ "max_cqe", &limits.max_cqe, (1 << 24) - 1 },
	{ "max_qp_wr", &limits.max_qp_wr, 0x7fffffff },
	{ "max_sge", &limits.max_sge, 0x7fffffff },
	{ "max_pd", &limits.max[PD], 1 << 24 },
	{ "max_mr", &limits.max[MR], 1 << 24 },
	{ "max_cq", &limits.max[CQ], 1 << 24 },
	{ "max_qp", &limits.max[QP], HANDLE_MASK },
	{ "max_srq", &limits.max[SRQ], 1 << 23 },
	{ "max_uar", &limits.max[UAR], MAX_UARS },
	{ "nth_pd", &limits.nth[PD], ~0ull },
	{ "nth_mr", &limits.nth[MR], ~0ull },
	{ "nth_cq", &limits.nth[CQ], ~0ull },
	{ "nth_qp", &limits.nth[QP], ~0ull },
	{ "nth_srq", &limits.nth[SRQ], ~0ull },
	{ "nth_uar", &limits.nth[UAR], ~0ull },
	{ "nth_errno", &limits.nth_errno, 4095 },
	{ "memlock", &limits.memlock, ~0ull },
	{ "devx", &limits.devx, 1 },
};

static void refuse(const char *setting, const char *why)
{
	dprintf(STDERR_FILENO, "mlx5dev: %s: %s\n", setting, why);
	_exit(2);
}

/* Settings that are a word; true when this was one. */
static bool read_word(const char *name, const char *value)
{
	struct rlimit r;

	if (!strcmp(name, "name"))
		limits.name = value;
	else if (!strcmp(name, "trace"))
		limits.trace = value;
	else if (!strcmp(name, "max_qp_wr") && !strcmp(value, "old"))
		limits.max_qp_wr = 0;
	else if (!strcmp(name, "max_qp_wr") && !strcmp(value, "new"))
		limits.max_qp_wr = ~0ull;
	else if (!strcmp(name, "memlock") && !strcmp(value, "rlimit"))
		limits.memlock = getrlimit(RLIMIT_MEMLOCK, &r) ? ~0ull : r.rlim_cur;
	else
		return false;
	return true;
}

static void read_setting(const char *setting, const char *name, const char *value)
{
	unsigned long long n;
	char *end;

	if (read_word(name, value))
		return;
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		if (strcmp(name, numbers[i].name))
			continue;
		n = strtoull(value, &end, 0);
		if (end == value || *end || *value == '-')
			refuse(setting, "not a number");
		if (n > numbers[i].most)
			refuse(setting, "more than the model allows");
		*numbers[i].value = n;
		return;
	}
	refuse(setting, "no such setting");
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

void limits_read(void)
{
	char name[64];

	for (char **e = environ; e && *e; e++) {
		const char *eq = strchr(*e, '=');

		if (strncmp(*e, "MLX5DEV_", 8) || !eq)
			continue;
		if ((size_t)(eq - *e) - 8 >= sizeof(name))
			refuse(*e, "no such setting");
		memcpy(name, *e + 8, (size_t)(eq - *e) - 8);
		name[eq - *e - 8] = 0;
		/* MLX5DEV_SO tells test scripts where this library is. */
		if (strcmp(name, "SO"))
			read_setting(*e, name, eq + 1);
	}
	if (!limits.max_qp_wr)
		limits.max_qp_wr = limits.max_send_wqebb;
	else if (limits.max_qp_wr == ~0ull)
		limits.max_qp_wr = limits.max_send_wqebb * 64 / 256;
	/* As the kernel's driver counts: a control and a remote address segment first. */
	if (!limits.max_sge)
		limits.max_sge = smaller(limits.max_rq_desc_sz / 16,
					 (smaller(limits.max_sq_desc_sz, 512) - 32) / 16);
}
