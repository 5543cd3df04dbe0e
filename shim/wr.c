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
	struct hot_wr *w = lookup_find(&wrs, offsetof(struct hot_wr, qp), (uintptr_t)qp);

	return w;
}

/* False in a child of fork, whose hot records are wiped: it passes on and counts nothing. */
static ALWAYS_INLINE bool is_ours(const struct hot_wr *w)
{
	return likely(w->hot->qp == w->qp);
}

/* The ring's places for a batch that has its first unsignaled request: the signaled ones before it first. */
static OUT_OF_LINE void batch_becomes_mixed(struct hot_wr *w)
{
	if (!LOAD(w->hot->mixed))
		become_mixed(w->hot);
	for (uint32_t i = 0; i < w->requests; i++)
		if (ring_room(w->hot, w->first_turn + i))
			ring_put(w->hot, w->first_turn + i, w->first + i + 1);
	w->last_signaled = w->requests;
}

static OUT_OF_LINE void request_in_ring(struct hot_wr *w, bool signaled)
{
	struct hot_qp *h = w->hot;
	uint32_t turn;

	if (!h->ring || !is_ours(w))
		return;
	if (!LOAD(h->mixed))
		batch_becomes_mixed(w);
	turn = w->first_turn + w->requests - w->unsignaled;
	if (signaled) {
		if (ring_room(h, turn))
			ring_put(h, turn, w->first + w->requests + 1);
		w->last_signaled = w->requests + 1;
	} else {
		w->unsignaled++;
	}
}

/* One request more in the batch; what it is made of follows by the setters. */
static ALWAYS_INLINE const struct wr_functions *one_more(struct ibv_qp_ex *qp)
{
	struct hot_wr *w = wr_of(qp);
	bool signaled = qp->wr_flags & IBV_SEND_SIGNALED;

	if (unlikely(!signaled || LOAD(w->hot->mixed)) && !(w->hot->flags & QP_SIG_ALL))
		request_in_ring(w, signaled);
	w->requests++;
	return w->real;
}

static void guarded_atomic_cmp_swp(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t address,
				   uint64_t compare, uint64_t swap)
{
	one_more(qp)->cmp_swp(qp, rkey, address, compare, swap);
}

static void guarded_atomic_fetch_add(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t address,
				     uint64_t add)
{
	one_more(qp)->fetch_add(qp, rkey, address, add);
}

static void guarded_bind(struct ibv_qp_ex *qp, struct ibv_mw *mw, uint32_t rkey,
			 const struct ibv_mw_bind_info *info)
{
	one_more(qp)->bind_mw(qp, mw, rkey, info);
}

static void guarded_local_inv(struct ibv_qp_ex *qp, uint32_t rkey)
{
	one_more(qp)->local_inv(qp, rkey);
}

static void guarded_rdma_read(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t address)
{
	one_more(qp)->rdma_read(qp, rkey, address);
}

static void guarded_rdma_write(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t address)
{
	one_more(qp)->rdma_write(qp, rkey, address);
}

static void guarded_rdma_write_imm(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t address,
				   __be32 imm)
{
	one_more(qp)->rdma_write_imm(qp, rkey, address, imm);
}

static void guarded_send(struct ibv_qp_ex *qp)
{
	one_more(qp)->send(qp);
}

static void guarded_send_imm(struct ibv_qp_ex *qp, __be32 imm)
{
	one_more(qp)->send_imm(qp, imm);
}

static void guarded_send_inv(struct ibv_qp_ex *qp, uint32_t rkey)
{
	one_more(qp)->send_inv(qp, rkey);
}

static void guarded_send_tso(struct ibv_qp_ex *qp, void *header, uint16_t size, uint16_t mss)
{
	one_more(qp)->send_tso(qp, header, size, mss);
}

static ALWAYS_INLINE struct hot_wr *with_sges(struct ibv_qp_ex *qp, size_t sges)
{
	struct hot_wr *w = wr_of(qp);

	if (sges > w->widest)
		w->widest = (uint32_t)sges;
	return w;
}

static ALWAYS_INLINE struct hot_wr *with_inline(struct ibv_qp_ex *qp, size_t bytes)
{
	struct hot_wr *w = wr_of(qp);

	if (bytes > w->inlined)
		w->inlined = bytes > UINT32_MAX ? UINT32_MAX : (uint32_t)bytes;
	return w;
}

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
	w->widest = w->inlined = 0;
}

/* The real start takes the QP's send lock: only then is the batch this thread's. */
static void guarded_start(struct ibv_qp_ex *qp)
{
	struct hot_wr *w = wr_of(qp);
	const struct qp_record *r;

	w->real->start(qp);
	forget_batch(w);
	if (unlikely(!is_ours(w)))
		return;
	if (w->hot->ring) {
		r = w->hot->record;
		w->first = LOAD(r->post_send_posted) + LOAD(r->other_send_posted);
		w->first_turn =
			(uint32_t)w->first - LOAD(r->post_unsignaled) - LOAD(r->other_unsignaled);
	}
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
	count_refusal(&r->send_refused,
		      why_send_refused(r, batch->widest, batch->inlined,
				       outstanding ? outstanding - 1 : 0, rc),
		      batch->requests);
}

static OUT_OF_LINE int complete_as_other(struct hot_wr *w, struct ibv_qp_ex *qp)
{
	struct qp_record *r = w->hot->record;
	struct hot_wr batch = *w; /* the real call gives the QP's lock away */
	uint64_t outstanding;
	int rc;

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

/* What the owner's words were, and what of the batch a refusal needs to know. */
struct before {
	uint64_t posted, outstanding;
	uint32_t unsignaled, last_signaled, seen, peak, peak_sge, peak_inline;
	struct hot_wr batch;
};

static OUT_OF_LINE int batch_refused(struct qp_record *r, const struct before *b, int rc)
{
	STORE(r->post_send_posted, b->posted);
	if (LOAD(r->mixed)) {
		STORE(r->post_unsignaled, b->unsignaled);
		STORE(r->post_last_signaled, b->last_signaled);
		STORE(r->post_seen_other, b->seen);
	}
	STORE(r->post_send_peak, b->peak);
	STORE(r->post_send_peak_sge, cut16(b->peak_sge));
	STORE(r->post_send_peak_inline, cut16(b->peak_inline));
	count_batch_refusal(r, &b->batch, b->outstanding, rc);
	return rc;
}

static ALWAYS_INLINE void record_signals(struct qp_record *r, const struct hot_wr *w,
					 struct before *b)
{
	b->unsignaled = LOAD(r->post_unsignaled);
	b->last_signaled = LOAD(r->post_last_signaled);
	b->seen = LOAD(r->post_seen_other);
	STORE(r->post_unsignaled, b->unsignaled + w->unsignaled);
	if (w->last_signaled) {
		STORE(r->post_last_signaled, (uint32_t)b->posted + w->last_signaled);
		STORE(r->post_seen_other, (uint32_t)LOAD(r->other_send_posted));
	}
}

/* Takes the place of ibv_qp_ex.wr_complete: man ibv_wr_complete. */
static int guarded_complete(struct ibv_qp_ex *qp)
{
	struct hot_wr *w = wr_of(qp);
	struct qp_record *r;
	struct before b;
	bool mixed;
	int rc;

	if (unlikely(!is_ours(w)))
		return w->real->complete(qp);
	if (unlikely(!owns(&w->hot->send_owner)) && !become_owner(&w->hot->send_owner))
		return complete_as_other(w, qp);
	r = w->hot->record;
	mixed = LOAD(w->hot->mixed);
	b.batch.requests = w->requests;
	b.batch.widest = w->widest;
	b.batch.inlined = w->inlined;
	b.posted = LOAD(r->post_send_posted);
	STORE(r->post_send_posted, b.posted + w->requests);
	if (mixed)
		record_signals(r, w, &b);
	b.outstanding =
		b.posted + w->requests + LOAD(r->other_send_posted) - sends_retired(r, mixed);
	if (unlikely((int64_t)b.outstanding < 0))
		b.outstanding = 0;
	b.peak = LOAD(r->post_send_peak);
	if (b.outstanding > b.peak)
		STORE(r->post_send_peak, (uint32_t)b.outstanding);
	b.peak_sge = LOAD(r->post_send_peak_sge);
	if (w->widest > b.peak_sge)
		STORE(r->post_send_peak_sge, cut16(w->widest));
	b.peak_inline = LOAD(r->post_send_peak_inline);
	if (w->inlined > b.peak_inline)
		STORE(r->post_send_peak_inline, cut16(w->inlined));
	rc = w->real->complete(qp);
	return likely(!rc) ? rc : batch_refused(r, &b, rc);
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
		.start = qp->wr_start,
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
	qp->wr_start = guarded_start;
	qp->wr_complete = guarded_complete;
	qp->wr_abort = guarded_abort;
}

bool wr_hook(struct hot_qp *h, struct ibv_qp_ex *qp)
{
	struct wr_functions f = functions_of(qp);
	const struct wr_functions *real = shared_set(&f);
	struct hot_wr *w;

	if (!real || !f.start || !f.complete || !f.abort)
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
	if (ex->wr_start != guarded_start)
		f.start = ex->wr_start;
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
