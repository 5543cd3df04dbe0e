/* SPDX-License-Identifier: MIT */
/* Failure on purpose: [inject]. */
#ifndef QPG_SHIM_INJECT_H
#define QPG_SHIM_INJECT_H

#include "guard.h"

/* The errno that a creation or registration is to fail with, by the values that hold for it; 0: it is not
 * hit. Counts it. Under lock. */
int inject_failure(struct guard *g, const struct policy_values *v, enum policy_key key);
/* Notes one that was hit. Under lock; `d`, `requested` may be NULL. */
void note_injected(struct guard *g, const struct device *d, enum guarded_call call, int error,
		   uint16_t caller, unsigned int qp_type, const struct qp_caps *requested);
/* Tells at the start what is going to fail. Under lock. */
void inject_say(struct guard *g);

/* Whether posts on the contexts of a device may be hit, which then need injected_post_send in their ops. Under
 * lock. */
bool inject_posts(struct guard *g, const struct device *d);
int injected_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr);

#endif
