/* SPDX-License-Identifier: MIT */
/*
 * Memory registrations, as far as the budgets mrs and mr_bytes go: counted at registration, given back at
 * ibv_dereg_mr by the length that the MR itself tells. No record each.
 */
#include <errno.h>

#include "guard.h"
#include "real.h"

/* Judges and holds one registration of `length` bytes; false: refused, counted and told. */
static bool registration_begin(struct guard *g, struct ibv_context *context, void *address,
			       uint64_t length)
{
	struct policy_subject subject;
	struct policy_verdict verdict;
	struct policy_values values;
	struct policy_usage usage;
	struct device *d;
	uint16_t caller;

	guard_lock(g);
	d = device_of(g, context);
	caller = caller_index(g, address);
	subject_of(g, d, 0, caller, &subject);
	policy_resolve(g->policy, &subject, &values);
	usage_of(g, d, &usage);
	policy_judge_mr(&values, &usage, length, &verdict);
	note_verdict(g, d, CALL_REG_MR, caller, 0, NULL, &verdict);
	if (!verdict.refused) {
		reserve(g, BUDGET_MRS, 1);
		reserve(g, BUDGET_MR_BYTES, (int64_t)length);
	}
	guard_unlock(g);
	return !verdict.refused;
}

/* After the real call, whose errno is still in place; `before` is the application's. */
static struct ibv_mr *registration_end(struct guard *g, struct ibv_mr *mr, void *address,
				       struct ibv_context *context, uint64_t length, int before)
{
	int after = errno;

	guard_nest(-1);
	guard_lock(g);
	reserve(g, BUDGET_MRS, -1);
	reserve(g, BUDGET_MR_BYTES, -(int64_t)length);
	if (mr) {
		charge(g, BUDGET_MRS, 1);
		charge(g, BUDGET_MR_BYTES, (int64_t)length);
	}
	guard_unlock(g);
	if (!mr)
		note_call_failure(g, context, CALL_REG_MR, address, after);
	errno = mr || !after ? before : after;
	return mr;
}

static struct real real_reg_mr SOUGHT_EARLY = { "ibv_reg_mr", "IBVERBS_1.1", NULL };
static struct real real_reg_mr_iova SOUGHT_EARLY = { "ibv_reg_mr_iova", "IBVERBS_1.7", NULL };
static struct real real_reg_mr_iova2 SOUGHT_EARLY = { "ibv_reg_mr_iova2", "IBVERBS_1.8", NULL };
static struct real real_reg_dmabuf_mr SOUGHT_EARLY = { "ibv_reg_dmabuf_mr", "IBVERBS_1.12", NULL };
static struct real real_dereg_mr SOUGHT_EARLY = { "ibv_dereg_mr", "IBVERBS_1.1", NULL };

static struct ibv_mr *refuse(int error)
{
	errno = error;
	return NULL;
}

#undef ibv_reg_mr
#undef ibv_reg_mr_iova

/* man ibv_reg_mr; the symbol behind the macro of the same name. */
INTERPOSED struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	struct ibv_mr *(*reg)(struct ibv_pd *, void *, size_t, int) =
		(struct ibv_mr * (*)(struct ibv_pd *, void *, size_t, int)) real_find(&real_reg_mr);
	struct guard *g = guard_enter();
	int before = errno;

	if (!reg)
		return refuse(ENOSYS);
	if (!g || guard_nested())
		return reg(pd, addr, length, access);
	if (!registration_begin(g, pd->context, CALLER(), length))
		return refuse(ENOMEM);
	errno = 0;
	guard_nest(1);
	return registration_end(g, reg(pd, addr, length, access), CALLER(), pd->context, length,
				before);
}

/* man ibv_reg_mr. */
INTERPOSED struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length,
					  uint64_t iova, int access)
{
	struct ibv_mr *(*reg)(struct ibv_pd *, void *, size_t, uint64_t, int) =
		(struct ibv_mr * (*)(struct ibv_pd *, void *, size_t, uint64_t, int))
			real_find(&real_reg_mr_iova);
	struct guard *g = guard_enter();
	int before = errno;

	if (!reg)
		return refuse(ENOSYS);
	if (!g || guard_nested())
		return reg(pd, addr, length, iova, access);
	if (!registration_begin(g, pd->context, CALLER(), length))
		return refuse(ENOMEM);
	errno = 0;
	guard_nest(1);
	return registration_end(g, reg(pd, addr, length, iova, access), CALLER(), pd->context,
				length, before);
}

/* libibverbs/verbs.h: what ibv_reg_mr() becomes when its access flags are not constant. */
INTERPOSED struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length,
					   uint64_t iova, unsigned int access)
{
	struct ibv_mr *(*reg)(struct ibv_pd *, void *, size_t, uint64_t, unsigned int) =
		(struct ibv_mr * (*)(struct ibv_pd *, void *, size_t, uint64_t, unsigned int))
			real_find(&real_reg_mr_iova2);
	struct guard *g = guard_enter();
	int before = errno;

	if (!reg)
		return refuse(ENOSYS);
	if (!g || guard_nested())
		return reg(pd, addr, length, iova, access);
	if (!registration_begin(g, pd->context, CALLER(), length))
		return refuse(ENOMEM);
	errno = 0;
	guard_nest(1);
	return registration_end(g, reg(pd, addr, length, iova, access), CALLER(), pd->context,
				length, before);
}

/* man ibv_reg_dmabuf_mr: ibv_reg_mr.3. */
INTERPOSED struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length,
					    uint64_t iova, int fd, int access)
{
	struct ibv_mr *(*reg)(struct ibv_pd *, uint64_t, size_t, uint64_t, int, int) =
		(struct ibv_mr * (*)(struct ibv_pd *, uint64_t, size_t, uint64_t, int, int))
			real_find(&real_reg_dmabuf_mr);
	struct guard *g = guard_enter();
	int before = errno;

	if (!reg)
		return refuse(EOPNOTSUPP);
	if (!g || guard_nested())
		return reg(pd, offset, length, iova, fd, access);
	if (!registration_begin(g, pd->context, CALLER(), length))
		return refuse(ENOMEM);
	errno = 0;
	guard_nest(1);
	return registration_end(g, reg(pd, offset, length, iova, fd, access), CALLER(), pd->context,
				length, before);
}

/* man ibv_dereg_mr. */
INTERPOSED int ibv_dereg_mr(struct ibv_mr *mr)
{
	int (*dereg)(struct ibv_mr *) = (int (*)(struct ibv_mr *))real_find(&real_dereg_mr);
	struct guard *g = guard_enter();
	uint64_t length;
	int rc;

	if (!dereg)
		return ENOSYS;
	if (!g || guard_nested())
		return dereg(mr);
	length = mr->length;
	rc = dereg(mr);
	if (!rc) {
		guard_lock(g);
		charge(g, BUDGET_MRS, -1);
		charge(g, BUDGET_MR_BYTES, -(int64_t)length);
		guard_unlock(g);
	}
	return rc;
}
