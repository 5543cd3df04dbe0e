/* SPDX-License-Identifier: MIT */
/*
 * Memory regions in each way that there is to make one: by each symbol, through the slots of the context,
 * changed, refused and given back. Tells after each step what lives, as "mrs" and "entry_points", whose
 * names are those of the report.
 *
 *     regions		all ways
 *     regions many	10,000 that come and go, of two sizes
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "verbs_pair.h"

#define PAGE	  4096u
#define ALL_FLAGS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)

/* What the program has, and what it ever had. */
static struct {
	uint64_t count, peak, bytes, peak_bytes, registered;
} now;
static struct {
	unsigned int reg_mr, reg_mr_iova, reg_mr_iova2, reg_dmabuf_mr, alloc_null_mr, alloc_dm,
		reg_dm_mr;
} by;

static void tell(const char *what)
{
	printf("mrs count=%llu peak=%llu bytes=%llu peak_bytes=%llu registered=%llu\n",
	       (unsigned long long)now.count, (unsigned long long)now.peak,
	       (unsigned long long)now.bytes, (unsigned long long)now.peak_bytes,
	       (unsigned long long)now.registered);
	printf("entry_points reg_mr=%u reg_mr_iova=%u reg_mr_iova2=%u reg_dmabuf_mr=%u "
	       "alloc_null_mr=%u alloc_dm=%u reg_dm_mr=%u\n",
	       by.reg_mr, by.reg_mr_iova, by.reg_mr_iova2, by.reg_dmabuf_mr, by.alloc_null_mr,
	       by.alloc_dm, by.reg_dm_mr);
	step("%s", what);
}

static void changed(int64_t count, int64_t bytes)
{
	now.count += (uint64_t)count;
	now.bytes += (uint64_t)bytes;
	if (now.count > now.peak)
		now.peak = now.count;
	if (now.bytes > now.peak_bytes)
		now.peak_bytes = now.bytes;
}

static struct ibv_mr *made(struct ibv_mr *m, unsigned int *entry, uint64_t bytes, const char *what)
{
	need(m, "%s: %s", what, strerror(errno));
	(*entry)++;
	now.registered++;
	changed(1, (int64_t)bytes);
	tell(what);
	return m;
}

static void dropped(struct ibv_mr *m, uint64_t bytes, const char *what)
{
	need(!ibv_dereg_mr(m), "%s", what);
	changed(-1, -(int64_t)bytes);
	tell(what);
}

static struct ibv_mr *by_symbols(struct ibv_mr *m[2])
{
	/* not a constant, so that the header takes the other symbol */
	volatile int flags = ALL_FLAGS;

	m[0] = made(ibv_reg_mr_iova(pd, memory + PAGE, 3 * PAGE, PAGE, ALL_FLAGS), &by.reg_mr_iova,
		    3 * PAGE, "ibv_reg_mr_iova");
	m[1] = made(ibv_reg_mr(pd, memory, 100, flags), &by.reg_mr_iova2, 100,
		    "ibv_reg_mr whose flags are no constant");
	return made(ibv_reg_mr(pd, memory, 2 * PAGE, IBV_ACCESS_LOCAL_WRITE), &by.reg_mr, 2 * PAGE,
		    "ibv_reg_mr");
}

/* A device may refuse these: then nothing is counted. */
static void by_others(void)
{
	int fd = memfd_create("dmabuf", 0);
	struct ibv_alloc_dm_attr a = { .length = 1024 };
	struct ibv_mr *m = ibv_reg_dmabuf_mr(pd, 0, 5 * PAGE, 0, fd, ALL_FLAGS), *part;
	struct ibv_dm *dm;

	result("ibv_reg_dmabuf_mr: %s", m ? "made" : strerror(errno));
	if (m)
		dropped(made(m, &by.reg_dmabuf_mr, 5 * PAGE, "ibv_reg_dmabuf_mr"), 5 * PAGE,
			"the dmabuf's is dropped");
	close(fd);
	m = ibv_alloc_null_mr(pd);
	result("ibv_alloc_null_mr: %s", m ? "made" : strerror(errno));
	if (m)
		dropped(made(m, &by.alloc_null_mr, 0, "ibv_alloc_null_mr"), 0,
			"the null MR is dropped");
	dm = ibv_alloc_dm(context, &a);
	result("ibv_alloc_dm: %s", dm ? "made" : strerror(errno));
	if (!dm)
		return;
	by.alloc_dm++;
	part = made(ibv_reg_dm_mr(pd, dm, 0, 512, IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE),
		    &by.reg_dm_mr, 512, "ibv_reg_dm_mr");
	dropped(part, 512, "the device memory's MR is dropped");
	need(!ibv_free_dm(dm), "free_dm");
}

static void change(struct ibv_mr *m)
{
	int rc = ibv_rereg_mr(m, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_REMOTE_READ);

	result("ibv_rereg_mr of the access: %d", rc);
	tell("an MR whose access was changed");
	rc = ibv_rereg_mr(m, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, memory, 8 * PAGE, 0);
	result("ibv_rereg_mr to 8 pages: %d, %s", rc, rc ? strerror(errno) : "done");
	if (!rc)
		changed(0, 6 * PAGE);
	tell("an MR of other memory than before");
}

static void all_ways(void)
{
	struct ibv_mr *first[2], *last, *refused;
	uint64_t bytes;

	last = by_symbols(first);
	by_others();
	change(last);
	bytes = last->length;
	errno = 0;
	refused = ibv_reg_mr_iova(pd, memory + 1, PAGE, 5, ALL_FLAGS);
	result("a region askew: %s", refused ? "made" : strerror(errno));
	if (refused)
		dropped(made(refused, &by.reg_mr_iova, PAGE, "askew"), PAGE, "askew");
	tell("an MR that the device refused");
	dropped(last, bytes, "the last is dropped");
	dropped(first[1], 100, "the second is dropped");
	dropped(first[0], 3 * PAGE, "the first is dropped");
}

static void many(void)
{
	struct ibv_mr *m;

	for (unsigned int i = 0; i < 10000; i++) {
		size_t bytes = i % 4 ? 3 * PAGE : PAGE;

		m = ibv_reg_mr(pd, memory, bytes, IBV_ACCESS_LOCAL_WRITE);
		need(m, "reg_mr");
		changed(1, (int64_t)bytes);
		need(!ibv_dereg_mr(m), "dereg_mr");
		changed(-1, -(int64_t)bytes);
	}
	by.reg_mr += 10000;
	now.registered += 10000;
	tell("10,000 came and went");
}

int main(int argc, char **argv)
{
	device_begin();
	changed(1, MEMORY_BYTES);
	now.registered = by.reg_mr = 1;
	tell("the memory of the program");
	if (argc > 1 && !strcmp(argv[1], "many"))
		many();
	else
		all_ways();
	device_end();
	changed(-1, -(int64_t)MEMORY_BYTES);
	tell("all is given back");
	return 0;
}
