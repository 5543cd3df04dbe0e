/* SPDX-License-Identifier: MIT */
/*
 * The formulas of state.h: what the words of a record mean as counts. Used by the shim when an object
 * ends and by the reader; touches nothing but the record it is given.
 */
#ifndef QPG_COUNTS_H
#define QPG_COUNTS_H

#include "state.h"

/* One side of a queue as a person thinks of it: posted = completed + outstanding + discarded. */
struct side_counts {
	uint64_t posted, completed, outstanding, discarded, not_posted;
	uint64_t refused[REFUSALS];
	uint32_t peak_outstanding, peak_sge, peak_inline;
};

void record_send_counts(const struct qp_record *r, struct side_counts *out);
void record_recv_counts(const struct qp_record *r, struct side_counts *out);
/* Of a WQ posted, refused and the widest request alone mean anything. */
void record_wq_counts(const struct wq_record *r, struct side_counts *out);
void record_srq_counts(const struct srq_record *r, struct side_counts *out);

/* Requests of the send side that are outstanding no more, and outstanding now. */
uint64_t record_send_retired(const struct qp_record *r);
uint64_t record_send_outstanding(const struct qp_record *r);
uint64_t record_recv_outstanding(const struct qp_record *r);
uint64_t record_srq_outstanding(const struct srq_record *r);

#endif
