/* SPDX-License-Identifier: MIT */
/*
 * Posting by ibv_wr_*: each request of a batch is counted as it is built, the batch is recorded before
 * wr_complete and taken back whole when that fails (mlx5, hns, efa and rxe roll the whole batch back).
 * The data path: no allocation, lock, division, clock or system call.
 */
#include <string.h>

#include "builder.h"
#include "outstanding.h"

struct lookup wrs = LOOKUP(struct hot_wr, qp);

/* A QP that has our functions has a record. */
static ALWAYS_INLINE struct hot_wr *wr_of(const struct ibv_qp_ex *qp)
{
	struct hot_wr *w = lookup_first(&wrs, offsetof(struct hot_wr, qp), (uintptr_t)qp);

	if (unlikely(!w))
		w = lookup_further(&wrs, offsetof(struct hot_wr, qp), (uintptr_t)qp);
	return w;
}

/* False in a child of fork, whose hot records are wiped: it passes on and counts nothing. */
static ALWAYS_INLINE bool is_ours(const struct hot_wr *w)
{
	return likely(w->hot->qp == w->qp);
}

/* Puts the batch's last signaled request in the ring. */
static ALWAYS_INLINE void put_last_signaled(const struct hot_wr *w)
{
	const struct qp_record *r = w->hot->record;
	uint64_t first = READ64(r->post_send_posted) + READ64(r->other_send_posted);
	uint32_t turn = (uint32_t)first - READ32(r->post_unsignaled) - READ32(r->other_unsignaled);

	turn += w->requests - w->unsignaled - 1;
	if (ring_room(w->hot, turn))
		ring_place(w->hot, turn, first + w->last_signaled);
}

/* The queue's first unsignaled request: those of the batch before it were signaled. */
static OUT_OF_LINE void batch_becomes_mixed(struct hot_wr *w)
{
	struct hot_wr upto = *w;

	become_mixed(w->hot);
	for (upto.requests = 1; upto.requests <= w->requests; upto.requests++) {
		upto.last_signaled = upto.requests;
		put_last_signaled(&upto);
	}
	w->last_signaled = w->requests;
}

/* One request more in the batch, of any kind and in any state. */
static SHORT_PATH const struct wr_functions *one_more_somehow(struct ibv_qp_ex *qp)
{
	struct hot_wr *w = wr_of(qp);
	bool signaled = qp->wr_flags & IBV_SEND_SIGNALED;

	if (is_ours(w) && w->hot->ring) {
		if (!signaled && !is_mixed(w->hot))
			batch_becomes_mixed(w);
		if (!signaled) {
			w->unsignaled++;
		} else if (is_mixed(w->hot)) {
			if (w->last_signaled)
				put_last_signaled(w);
			w->last_signaled = w->requests + 1;
		}
	}
	w->requests++;
	return w->real;
}

/* The same where that is done by a few counts: a signaled request of a queue that is not mixed, and the first signaled
 * or any other one of a queue that is; else NULL. */
static ALWAYS_INLINE const struct wr_functions *one_more(struct ibv_qp_ex *qp)
{
	struct hot_wr *w = lookup_first(&wrs, offsetof(struct hot_wr, qp), (uintptr_t)qp);
	uint32_t kind;

	if (unlikely(!w))
		return NULL;
	if (!w->real)
		__builtin_unreachable();
	kind = (qp->wr_flags & IBV_SEND_SIGNALED) | READ8(w->hot->mode);
	if (unlikely(kind != IBV_SEND_SIGNALED)) {
		if (kind == (MODE_MIXED | IBV_SEND_SIGNALED)) {
			if (w->last_signaled)
				return NULL;
			w->last_signaled = w->requests = w->requests + 1;
			return w->real;
		} else if (kind == MODE_MIXED) {
			w->unsignaled++;
		} else {
			return NULL;
		}
	}
	w->requests++;
	return w->real;
}

/* What the builder is told of a request is passed on as it is. */

static void guarded_atomic_cmp_swp(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t address,
				   uint64_t compare, uint64_t swap)
{
	const struct wr_functions *real = one_more(qp);

	if (likely(real))
		real->cmp_swp(qp, rkey, address, compare, swap);
	else
		one_more_somehow(qp)->cmp_swp(qp, rkey, address, compare, swap);
}

static void guarded_atomic_fetch_add(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t address,
				     uint64_t add)
{
	const struct wr_functions *real = one_more(qp);

	if (likely(real))
		real->fetch_add(qp, rkey, address, add);
	else
		one_more_somehow(qp)->fetch_add(qp, rkey, address, add);
}

static void guarded_bind(struct ibv_qp_ex *qp, struct ibv_mw *mw, uint32_t rkey,
			 const struct ibv_mw_bind_info *info)
{
	const struct wr_functions *real = one_more(qp);

	if (likely(real))
		real->bind_mw(qp, mw, rkey, info);
	else
		one_more_somehow(qp)->bind_mw(qp, mw, rkey, info);
}

static void guarded_local_inv(struct ibv_qp_ex *qp, uint32_t rkey)
{
	const struct wr_functions *real = one_more(qp);

	if (likely(real))
		real->local_inv(qp, rkey);
	else
		one_more_somehow(qp)->local_inv(qp, rkey);
}

static void guarded_rdma_read(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t address)
{
	const struct wr_functions *real = one_more(qp);

	if (likely(real))
		real->rdma_read(qp, rkey, address);
	else
		one_more_somehow(qp)->rdma_read(qp, rkey, address);
}

static void guarded_rdma_write(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t address)
{
	const struct wr_functions *real = one_more(qp);

	if (likely(real))
		real->rdma_write(qp, rkey, address);
	else
		one_more_somehow(qp)->rdma_write(qp, rkey, address);
}

static void guarded_rdma_write_imm(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t address,
				   __be32 imm)
{
	const struct wr_functions *real = one_more(qp);

	if (likely(real))
		real->rdma_write_imm(qp, rkey, address, imm);
	else
		one_more_somehow(qp)->rdma_write_imm(qp, rkey, address, imm);
}

static void guarded_send(struct ibv_qp_ex *qp)
{
	const struct wr_functions *real = one_more(qp);

	if (likely(real))
		real->send(qp);
	else
		one_more_somehow(qp)->send(qp);
}

static void guarded_send_imm(struct ibv_qp_ex *qp, __be32 imm)
{
	const struct wr_functions *real = one_more(qp);

	if (likely(real))
		real->send_imm(qp, imm);
	else
		one_more_somehow(qp)->send_imm(qp, imm);
}

static void guarded_send_inv(struct ibv_qp_ex *qp, uint32_t rkey)
{
	const struct wr_functions *real = one_more(qp);

	if (likely(real))
		real->send_inv(qp, rkey);
	else
		one_more_somehow(qp)->send_inv(qp, rkey);
}

static void guarded_send_tso(struct ibv_qp_ex *qp, void *header, uint16_t size, uint16_t mss)
{
	const struct wr_functions *real = one_more(qp);

	if (likely(real))
		real->send_tso(qp, header, size, mss);
	else
		one_more_somehow(qp)->send_tso(qp, header, size, mss);
}

/* Sizes are noted when they are above what was posted before, which complete then looks into. */
static ALWAYS_INLINE struct hot_wr *with_sges(struct ibv_qp_ex *qp, size_t sges)
{
	struct hot_wr *w = wr_of(qp);

	if (unlikely(sges > w->widest))
		w->widest = (uint32_t)sges;
	return w;
}

static ALWAYS_INLINE struct hot_wr *with_inline(struct ibv_qp_ex *qp, size_t bytes)
{
	struct hot_wr *w = wr_of(qp);

	if (unlikely(bytes > w->inlined))
		w->inlined = bytes > UINT32_MAX ? UINT32_MAX : (uint32_t)bytes;
	return w;
}

/* Only until the QP has posted a request with one SGE: see one_sge_is_known. */
static void guarded_set_sge(struct ibv_qp_ex *qp, uint32_t lkey, uint64_t address, uint32_t length)
{
	with_sges(qp, 1)->real->set_sge(qp, lkey, address, length);
}

static void guarded_set_sge_list(struct ibv_qp_ex *qp, size_t sges, const struct ibv_sge *list)
{
	with_sges(qp, sges)->real->set_sge_list(qp, sges, list);
}

static void guarded_set_inline_data(struct ibv_qp_ex *qp, void *address, size_t length)
{
	with_inline(qp, length)->real->set_inline_data(qp, address, length);
}

static void guarded_set_inline_data_list(struct ibv_qp_ex *qp, size_t buffers,
					 const struct ibv_data_buf *list)
{
	size_t bytes = 0;

	for (size_t i = 0; i < buffers; i++)
		bytes += list[i].length;
	with_inline(qp, bytes)->real->set_inline_data_list(qp, buffers, list);
}

static ALWAYS_INLINE void forget_batch(struct hot_wr *w)
{
	w->requests = w->unsignaled = w->last_signaled = 0;
	w->sizes = 0;
}

static void guarded_abort(struct ibv_qp_ex *qp)
{
	struct hot_wr *w = wr_of(qp);

	forget_batch(w);
	w->real->abort(qp);
}

/* What a batch adds, and what its failure takes away again: step is 1 or -1. */
static void step_others(struct qp_record *r, const struct hot_wr *w, int step)
{
	ADD(r->other_send_posted, (uint64_t)((int64_t)step * w->requests));
	ADD(r->other_unsignaled, (uint32_t)step * w->unsignaled);
}

/* `outstanding` has the whole batch in it; the queue was full if that is more than it holds. */
static void count_batch_refusal(struct qp_record *r, const struct hot_wr *batch,
				uint64_t outstanding, int rc)
{
	refused_send(r, batch->widest, batch->inlined, outstanding ? outstanding - 1 : 0,
		     batch->requests, rc);
}

static OUT_OF_LINE int complete_as_other(struct hot_wr *w, struct ibv_qp_ex *qp)
{
	struct qp_record *r = w->hot->record;
	struct hot_wr batch = *w; /* the real call gives the QP's lock away */
	uint64_t outstanding;
	int rc;

	if (w->last_signaled)
		put_last_signaled(w);
	forget_batch(w);
	used_by_other(w->hot);
	step_others(r, &batch, 1);
	outstanding = record_send_outstanding(r);
	rc = batch.real->complete(qp);
	if (rc) {
		step_others(r, &batch, -1);
		count_batch_refusal(r, &batch, outstanding, rc);
		return rc;
	}
	if (batch.last_signaled) {
		raise_mark(&r->other_last_signaled, (uint32_t)LOAD(r->other_send_posted) -
							    batch.requests + batch.last_signaled);
		raise_mark(&r->other_seen_post, (uint32_t)LOAD(r->post_send_posted));
	}
	raise32(&r->other_send_peak, (uint32_t)outstanding);
	raise16(&r->other_send_peak_sge, batch.widest);
	raise16(&r->other_send_peak_inline, batch.inlined);
	return rc;
}

/* A batch was taken that had an SGE, so that another one raises no peak: set_sge need not be seen any more. */
static void one_sge_is_known(struct ibv_qp_ex *qp, const struct hot_wr *batch)
{
	if (batch->widest && qp->wr_set_sge == guarded_set_sge)
		__atomic_store_n(&qp->wr_set_sge, batch->real->set_sge, __ATOMIC_RELAXED);
}

/* The owner's batch, whatever it is. The record may not be touched by others' failures meanwhile: what is taken back is
 * what was added. */
static SHORT_PATH int complete_somehow(struct ibv_qp_ex *qp, struct hot_wr *w)
{
	struct hot_wr batch = *w;
	struct qp_record *r;
	uint64_t outstanding, posted;
	bool mixed;
	int rc;

	if (unlikely(!is_ours(w))) {
		forget_batch(w);
		inherited_used(hooks_of(qp->qp_base.context), INHERITED_POSTS, 1);
		return batch.real->complete(qp);
	}
	if (!owns(&w->hot->send_owner) && !become_owner(&w->hot->send_owner))
		return complete_as_other(w, qp);
	r = w->hot->record;
	mixed = is_mixed(w->hot);
	if (w->last_signaled)
		put_last_signaled(w);
	posted = LOAD(r->post_send_posted);
	STORE(r->post_send_posted, posted + batch.requests);
	STORE(r->post_unsignaled, LOAD(r->post_unsignaled) + batch.unsignaled);
	outstanding =
		posted + batch.requests + LOAD(r->other_send_posted) - sends_retired(r, mixed);
	forget_batch(w);
	rc = batch.real->complete(qp);
	if (unlikely(rc)) {
		STORE(r->post_send_posted, LOAD(r->post_send_posted) - batch.requests);
		STORE(r->post_unsignaled, LOAD(r->post_unsignaled) - batch.unsignaled);
		count_batch_refusal(r, &batch, outstanding, rc);
		return rc;
	}
	if (batch.last_signaled) {
		STORE(r->post_last_signaled, (uint32_t)posted + batch.last_signaled);
		STORE(r->post_seen_other, (uint32_t)LOAD(r->other_send_posted));
	}
	if ((int64_t)outstanding > (int64_t)LOAD(r->post_send_peak))
		STORE(r->post_send_peak, (uint32_t)outstanding);
	if (batch.widest > LOAD(r->post_send_peak_sge))
		STORE(r->post_send_peak_sge, cut16(batch.widest));
	if (batch.inlined > LOAD(r->post_send_peak_inline))
		STORE(r->post_send_peak_inline, cut16(batch.inlined));
	one_sge_is_known(qp, &batch);
	return rc;
}

static OUT_OF_LINE int batch_refused(struct hot_wr *w, uint64_t counts, int rc)
{
	const struct hot_wr batch = { .counts = counts };
	struct qp_record *r = w->hot->record;
	uint64_t outstanding = record_send_outstanding(r);

	STORE(r->post_send_posted, LOAD(r->post_send_posted) - batch.requests);
	STORE(r->post_unsignaled, LOAD(r->post_unsignaled) - batch.unsignaled);
	count_batch_refusal(r, &batch, outstanding, rc);
	return rc;
}

/*
 * The owner's batch that raises no peak, on a queue that is not mixed, or is and nobody else posts to it. What is needed
 * only when it fails is kept as in send.c.
 */
static SHORT_PATH int complete_mixed(struct ibv_qp_ex *qp, struct hot_wr *w)
{
	struct qp_record *r = w->hot->record;
	struct hot_wr *volatile kept_w = w;
	volatile uint64_t kept_counts;
	uint64_t posted = READ64(r->post_send_posted) + w->requests;
	uint32_t unsignaled = w->unsignaled;
	int rc;

	if (unlikely(READ8(w->hot->mode) != MODE_MIXED ||
		     (int64_t)(posted - READ64(r->poll_send_retired)) >
			     (int64_t)READ32(r->post_send_peak)))
		return complete_somehow(qp, w);
	if (likely(w->last_signaled))
		ring_put(w->hot, (uint32_t)posted - READ32(r->post_unsignaled) - unsignaled - 1,
			 READ64(r->post_send_posted) + w->last_signaled);
	WRITE64(r->post_send_posted, posted);
	WRITE32(r->post_unsignaled, READ32(r->post_unsignaled) + unsignaled);
	kept_counts = w->counts;
	w->counts = 0;
	w->last_signaled = 0;
	rc = w->real->complete(qp);
	return likely(!rc) ? rc : batch_refused(kept_w, kept_counts, rc);
}

static SHORT_PATH int complete_plain(struct ibv_qp_ex *qp, struct hot_wr *w)
{
	struct qp_record *r = w->hot->record;
	struct hot_wr *volatile kept_w = w;
	volatile uint64_t kept_requests;
	uint64_t posted = READ64(r->post_send_posted) + w->requests;
	int rc;

	if (unlikely((int64_t)(posted + READ64(r->other_send_posted) -
			       READ64(r->poll_send_completions) -
			       READ64(r->other_send_completions)) >
		     (int64_t)READ32(r->post_send_peak)))
		return complete_somehow(qp, w);
	WRITE64(r->post_send_posted, posted);
	kept_requests = w->requests;
	w->requests = 0;
	rc = w->real->complete(qp);
	return likely(!rc) ? rc : batch_refused(kept_w, kept_requests, rc);
}

static OUT_OF_LINE int complete_found_later(struct ibv_qp_ex *qp)
{
	return complete_somehow(qp, wr_of(qp));
}

/* Takes the place of ibv_qp_ex.wr_complete: man ibv_wr_complete. */
static int guarded_complete(struct ibv_qp_ex *qp)
{
	struct hot_wr *w = lookup_first(&wrs, offsetof(struct hot_wr, qp), (uintptr_t)qp);

	if (unlikely(!w))
		return complete_found_later(qp);
	if (unlikely(!owns(&w->hot->send_owner) || w->sizes))
		return complete_somehow(qp, w);
	if (unlikely(READ8(w->hot->mode) & MODE_MIXED))
		return complete_mixed(qp, w);
	return complete_plain(qp, w);
}

/* --- putting them in --- */

#define MOST_SETS 64
static struct wr_functions sets[MOST_SETS];
static unsigned int set_count;
static struct pool kept_wrs;

static struct wr_functions functions_of(const struct ibv_qp_ex *qp)
{
	return (struct wr_functions){
		.cmp_swp = qp->wr_atomic_cmp_swp,
		.fetch_add = qp->wr_atomic_fetch_add,
		.bind_mw = qp->wr_bind_mw,
		.local_inv = qp->wr_local_inv,
		.rdma_read = qp->wr_rdma_read,
		.rdma_write = qp->wr_rdma_write,
		.rdma_write_imm = qp->wr_rdma_write_imm,
		.send = qp->wr_send,
		.send_imm = qp->wr_send_imm,
		.send_inv = qp->wr_send_inv,
		.send_tso = qp->wr_send_tso,
		.set_inline_data = qp->wr_set_inline_data,
		.set_inline_data_list = qp->wr_set_inline_data_list,
		.set_sge = qp->wr_set_sge,
		.set_sge_list = qp->wr_set_sge_list,
		.complete = qp->wr_complete,
		.abort = qp->wr_abort,
	};
}

/* A set like this one, shared and never changed; NULL when there are too many kinds. */
static const struct wr_functions *shared_set(const struct wr_functions *f)
{
	for (unsigned int i = 0; i < set_count; i++)
		if (!memcmp(&sets[i], f, sizeof(*f)))
			return &sets[i];
	if (set_count == MOST_SETS)
		return NULL;
	sets[set_count] = *f;
	return &sets[set_count++];
}

/* Only what the provider filled: rxe leaves what was not asked for NULL. */
static void put_in(struct ibv_qp_ex *qp)
{
	if (qp->wr_atomic_cmp_swp)
		qp->wr_atomic_cmp_swp = guarded_atomic_cmp_swp;
	if (qp->wr_atomic_fetch_add)
		qp->wr_atomic_fetch_add = guarded_atomic_fetch_add;
	if (qp->wr_bind_mw)
		qp->wr_bind_mw = guarded_bind;
	if (qp->wr_local_inv)
		qp->wr_local_inv = guarded_local_inv;
	if (qp->wr_rdma_read)
		qp->wr_rdma_read = guarded_rdma_read;
	if (qp->wr_rdma_write)
		qp->wr_rdma_write = guarded_rdma_write;
	if (qp->wr_rdma_write_imm)
		qp->wr_rdma_write_imm = guarded_rdma_write_imm;
	if (qp->wr_send)
		qp->wr_send = guarded_send;
	if (qp->wr_send_imm)
		qp->wr_send_imm = guarded_send_imm;
	if (qp->wr_send_inv)
		qp->wr_send_inv = guarded_send_inv;
	if (qp->wr_send_tso)
		qp->wr_send_tso = guarded_send_tso;
	if (qp->wr_set_inline_data)
		qp->wr_set_inline_data = guarded_set_inline_data;
	if (qp->wr_set_inline_data_list)
		qp->wr_set_inline_data_list = guarded_set_inline_data_list;
	if (qp->wr_set_sge)
		qp->wr_set_sge = guarded_set_sge;
	if (qp->wr_set_sge_list)
		qp->wr_set_sge_list = guarded_set_sge_list;
	qp->wr_complete = guarded_complete;
	qp->wr_abort = guarded_abort;
}

bool wr_hook(struct hot_qp *h, struct ibv_qp_ex *qp)
{
	struct wr_functions f = functions_of(qp);
	const struct wr_functions *real = shared_set(&f);
	struct hot_wr *w;

	if (!real || !f.complete || !f.abort)
		return false;
	if (wrs.table == &lookup_no_table && !lookup_init(&wrs))
		return false;
	/* a QP of this address whose destruction has not returned yet */
	w = lookup_find(&wrs, offsetof(struct hot_wr, qp), (uintptr_t)qp);
	if (w)
		lookup_remove(&wrs, w);
	w = pool_take_kept(&kept_wrs, sizeof(*w));
	if (!w)
		return false;
	w->real = real;
	w->hot = h;
	__atomic_store_n(&w->qp, &qp->qp_base, __ATOMIC_RELEASE);
	if (!lookup_insert(&wrs, w))
		return false;
	put_in(qp);
	return true;
}

/* The pointers that are not ours are the provider's new ones; those that are stand for the old ones. */
void wr_hook_again(struct ibv_qp *qp)
{
	struct ibv_qp_ex *ex = (struct ibv_qp_ex *)qp;
	struct hot_wr *w = wr_of(ex);
	const struct wr_functions *real;
	struct wr_functions f;

	if (!w)
		return;
	f = *w->real;
	if (ex->wr_complete != guarded_complete)
		f.complete = ex->wr_complete;
	if (ex->wr_abort != guarded_abort)
		f.abort = ex->wr_abort;
	real = shared_set(&f);
	if (!real)
		return;
	w->real = real;
	put_in(ex);
}

struct hot_wr *wr_hooked(const struct ibv_qp *qp)
{
	return wr_of((const struct ibv_qp_ex *)qp);
}

void wr_forget(struct hot_wr *w)
{
	if (!w)
		return;
	lookup_remove(&wrs, w);
	__atomic_store_n(&w->qp, NULL, __ATOMIC_RELAXED);
	memset(&w->real, 0, sizeof(*w) - sizeof(w->qp));
	pool_give(&kept_wrs, sizeof(*w), w);
}
