/* SPDX-License-Identifier: MIT */
/* What only the process and the provider know of a provider's memory: its settings, its own
 * figures. */
#ifndef QPG_ASK_H
#define QPG_ASK_H

#include "guard.h"

/* The environment of `driver`, as it is now. */
void ask_settings(const char *driver, struct provider_settings *out);

/* What the provider made of a QP that it has just returned; false: it cannot be asked. Not under
 * lock. */
bool ask_rings(const struct context_hooks *hooks, const struct ibv_qp *qp,
	       const struct qp_request *req, struct queue_rings *out);

/* Puts the provider's figures into *bytes; where the model's were others, says so once for each
 * device. Under lock. */
void ask_compare(struct guard *g, struct device *d, const struct qp_request *req,
		 const struct queue_rings *rings, struct queue_bytes *bytes);

#endif
