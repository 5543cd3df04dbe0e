/* SPDX-License-Identifier: MIT */
/*
 * Connected queue pairs in one process and the account of what was done with them: see
 * verbs_pair.h. Not for several threads at once; the programs that have them keep their own
 * account.
 */
#include "verbs_pair.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MOST_ENDS 4096
#define MOST_CQS  4096
#define LONGEST	  256 /* list of requests */
#define MOST_SGES 64
#define PATIENCE  60 /* seconds */
/* In wr_id: what it is a request of, whose, and its number there. */
#define RECV_MARK   (UINT64_C(1) << 63)
#define SRQ_MARK    (UINT64_C(1) << 62)
#define WHOSE_SHIFT 40
#define NUMBER_MASK ((UINT64_C(1) << WHOSE_SHIFT) - 1)
#define QKEY	    0x1234
#define REMOTE_FROM 4096u

struct ibv_context *context;
struct ibv_pd *pd;
struct ibv_mr *mr;
char *memory;
struct ibv_device_attr device_attr;

static uint8_t port = 1;
static struct ibv_ah *ah; /* of ourselves; made when a datagram needs it */
static int gid_index;
static struct end *ends[MOST_ENDS];
static struct shared_queue *srqs[MOST_ENDS];
static unsigned int end_count, srq_count;
static uint32_t srqs_made;
/* CQs in the order of creation: the report's ids count from 1. */
static struct {
	struct ibv_cq *cq;
	uint64_t completions;
	bool begun;
} cqs[MOST_CQS];
static unsigned int cqs_made;
static struct account dropped_send, dropped_recv;
static uint64_t qps_made, qps_dropped;

static const char *const why_names[WHYS] = {
	[QUEUE_FULL] = "queue_full",	 [QUEUE_FULL_EARLY] = "queue_full_early",
	[TOO_MANY_SGE] = "too_many_sge", [INLINE_TOO_BIG] = "inline_too_big",
	[BAD_STATE] = "bad_state",	 [OTHER] = "other",
};

void need(bool good, const char *format, ...)
{
	va_list ap;

	if (good)
		return;
	fflush(stdout);
	printf("Bail out! ");
	va_start(ap, format);
	vprintf(format, ap);
	va_end(ap);
	printf(" (errno %d)\n", errno);
	fflush(stdout);
	exit(1);
}

bool on_rxe(void)
{
	return !strncmp(ibv_get_device_name(context->device), "rxe", 3);
}

/* --- the device --- */

struct ibv_context *device_open(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	const char *name = getenv("QPG_DEVICE");
	struct ibv_context *opened = NULL;

	for (struct ibv_device **d = list; d && *d && !opened; d++)
		if (!name || !*name || !strcmp(name, ibv_get_device_name(*d)))
			opened = ibv_open_device(*d);
	need(opened, "no RDMA device %s", name ? name : "");
	ibv_free_device_list(list);
	return opened;
}

void device_begin(void)
{
	const char *gid = getenv("QPG_GID");

	gid_index = gid ? atoi(gid) : 0;
	context = device_open();
	need(!ibv_query_device(context, &device_attr), "query_device");
	pd = ibv_alloc_pd(context);
	need(pd, "alloc_pd");
	memory = aligned_alloc(4096, MEMORY_BYTES);
	need(memory, "memory");
	memset(memory, 0, MEMORY_BYTES);
	mr = ibv_reg_mr(pd, memory, MEMORY_BYTES,
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
				IBV_ACCESS_REMOTE_ATOMIC);
	need(mr, "reg_mr");
}

void device_end(void)
{
	need(!ah || !ibv_destroy_ah(ah), "destroy_ah");
	need(!ibv_dereg_mr(mr), "dereg_mr");
	need(!ibv_dealloc_pd(pd), "dealloc_pd");
	need(!ibv_close_device(context), "close_device");
	free(memory);
}

/* --- ends --- */

void cq_made(struct ibv_cq *cq)
{
	need(cqs_made < MOST_CQS, "room for CQs");
	cqs[cqs_made].cq = cq;
	cqs[cqs_made].begun = false;
	cqs[cqs_made++].completions = 0;
}

void cq_took(const struct ibv_cq *cq, uint64_t completions)
{
	for (unsigned int i = 0; i < cqs_made; i++)
		if (cqs[i].cq == cq)
			cqs[i].completions += completions;
}

static bool extended(void)
{
	const char *api = getenv("QPG_API");

	return api && !strcmp(api, "extended");
}

static struct ibv_cq *own_cq(struct ibv_context *c, int cqe)
{
	struct ibv_cq_init_attr_ex a = { .cqe = (uint32_t)cqe };
	struct ibv_cq *cq;

	if (extended()) {
		struct ibv_cq_ex *ex = ibv_create_cq_ex(c, &a);

		cq = ex ? ibv_cq_ex_to_cq(ex) : NULL;
	} else {
		cq = ibv_create_cq(c, cqe, NULL, NULL, 0);
	}
	need(cq, "create_cq of %d", cqe);
	cq_made(cq);
	return cq;
}

static void drop_cq(struct ibv_cq *cq)
{
	for (unsigned int i = 0; i < cqs_made; i++)
		if (cqs[i].cq == cq)
			cqs[i].cq = NULL;
	need(!ibv_destroy_cq(cq), "destroy_cq");
}

static struct ibv_qp_cap planned_cap(const struct plan *p)
{
	struct ibv_qp_cap cap = p->cap;

	cap.max_send_wr = cap.max_send_wr ? cap.max_send_wr : 16;
	cap.max_send_sge = cap.max_send_sge ? cap.max_send_sge : 1;
	if (!p->srq) {
		cap.max_recv_wr = cap.max_recv_wr ? cap.max_recv_wr : 16;
		cap.max_recv_sge = cap.max_recv_sge ? cap.max_recv_sge : 1;
	}
	return cap;
}

static struct end *add_end(struct ibv_qp *qp, const struct ibv_qp_init_attr *a,
			   const struct plan *p)
{
	struct end *e = calloc(1, sizeof(*e));

	need(e && end_count < MOST_ENDS, "room for queue pairs");
	e->qp = qp;
	e->send_cq = a->send_cq;
	e->recv_cq = a->recv_cq;
	e->owns_cqs = !p->send_cq;
	e->cap = a->cap;
	e->sig_all = p->sig_all;
	e->srq = p->srq;
	ends[end_count++] = e;
	e->serial = (uint32_t)++qps_made;
	return e;
}

static struct ibv_qp *create(struct ibv_pd *in, struct ibv_qp_init_attr *a)
{
	struct ibv_qp_init_attr_ex ex = {
		.qp_type = a->qp_type,
		.sq_sig_all = a->sq_sig_all,
		.srq = a->srq,
		.cap = a->cap,
		.send_cq = a->send_cq,
		.recv_cq = a->recv_cq,
		.pd = in,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_SEND,
	};
	struct ibv_qp *qp;

	if (!extended())
		return ibv_create_qp(in, a);
	if (a->qp_type != IBV_QPT_UD)
		ex.send_ops_flags |= IBV_QP_EX_WITH_RDMA_WRITE;
	qp = ibv_create_qp_ex(in->context, &ex);
	a->cap = ex.cap;
	return qp;
}

struct end *end_try(const struct plan *p)
{
	struct ibv_qp_cap cap = planned_cap(p);
	struct ibv_pd *in = p->pd ? p->pd : pd;
	int cqe = p->cqe ? p->cqe : 4 * (int)(cap.max_send_wr + cap.max_recv_wr);
	struct ibv_qp_init_attr a = {
		.qp_type = p->type ? p->type : IBV_QPT_RC,
		.sq_sig_all = p->sig_all,
		.srq = p->srq ? p->srq->srq : NULL,
		.cap = cap,
		.send_cq = p->send_cq ? p->send_cq : own_cq(in->context, cqe),
	};
	struct ibv_qp *qp;
	int error;

	a.recv_cq = p->recv_cq ? p->recv_cq : p->two_cqs ? own_cq(in->context, cqe) : a.send_cq;
	errno = 0;
	qp = create(in, &a);
	if (qp)
		return add_end(qp, &a, p);
	error = errno;
	if (!p->recv_cq && a.recv_cq != a.send_cq)
		drop_cq(a.recv_cq);
	if (!p->send_cq)
		drop_cq(a.send_cq);
	errno = error;
	return NULL;
}

struct end *end_make(const struct plan *p)
{
	struct end *e = end_try(p);

	need(e, "create_qp");
	return e;
}

static void to_init(struct end *e)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = port };
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;

	if (e->qp->qp_type == IBV_QPT_UD) {
		a.qkey = QKEY;
		mask |= IBV_QP_QKEY;
	} else {
		a.qp_access_flags =
			IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
		mask |= IBV_QP_ACCESS_FLAGS;
	}
	errno = ibv_modify_qp(e->qp, &a, mask);
	need(!errno, "INIT");
}

static void address(struct ibv_ah_attr *to)
{
	*to = (struct ibv_ah_attr){ .is_global = 1, .port_num = port };
	to->grh.sgid_index = (uint8_t)gid_index;
	to->grh.hop_limit = 1;
	errno = ibv_query_gid(context, port, gid_index, &to->grh.dgid);
	need(!errno, "GID of index %d", gid_index);
}

static void to_rtr(struct end *e, const struct end *peer)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RTR };
	int mask = IBV_QP_STATE;

	if (e->qp->qp_type != IBV_QPT_UD) {
		a.path_mtu = IBV_MTU_1024;
		a.dest_qp_num = peer->qp->qp_num;
		address(&a.ah_attr);
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	}
	if (e->qp->qp_type == IBV_QPT_RC) {
		a.max_dest_rd_atomic = 1;
		a.min_rnr_timer = 14; /* 1.28 ms */
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	}
	errno = ibv_modify_qp(e->qp, &a, mask);
	need(!errno, "RTR");
}

static void to_rts(struct end *e)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RTS };
	int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;

	if (e->qp->qp_type == IBV_QPT_RC) {
		a.timeout = 14;
		a.retry_cnt = 7;
		a.rnr_retry = 7; /* without end */
		a.max_rd_atomic = 1;
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_MAX_QP_RD_ATOMIC;
	}
	errno = ibv_modify_qp(e->qp, &a, mask);
	need(!errno, "RTS");
}

void end_to(struct end *e, enum ibv_qp_state state, const struct end *peer)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr now;

	need(!ibv_query_qp(e->qp, &now, IBV_QP_STATE, &init), "query_qp");
	if (now.qp_state < IBV_QPS_INIT && state >= IBV_QPS_INIT)
		to_init(e);
	if (now.qp_state < IBV_QPS_RTR && state >= IBV_QPS_RTR)
		to_rtr(e, peer);
	if (now.qp_state < IBV_QPS_RTS && state >= IBV_QPS_RTS)
		to_rts(e);
}

uint64_t outstanding(const struct account *a)
{
	return a->posted - a->retired;
}

static void discard(struct account *a)
{
	a->discarded += outstanding(a);
	a->retired = a->posted;
}

void end_state(struct end *e, enum ibv_qp_state state)
{
	struct ibv_qp_attr a = { .qp_state = state };

	errno = ibv_modify_qp(e->qp, &a, IBV_QP_STATE);
	need(!errno, "state %d", state);
	if (state == IBV_QPS_RESET) {
		discard(&e->send);
		discard(&e->recv);
	}
}

static void add_account(struct account *to, const struct account *a)
{
	to->posted += a->posted;
	to->retired += a->retired;
	to->discarded += a->discarded;
	to->not_posted += a->not_posted;
	for (unsigned int i = 0; i < WHYS; i++)
		to->refused[i] += a->refused[i];
	if (a->peak_outstanding > to->peak_outstanding)
		to->peak_outstanding = a->peak_outstanding;
	if (a->peak_sge > to->peak_sge)
		to->peak_sge = a->peak_sge;
	if (a->peak_inline > to->peak_inline)
		to->peak_inline = a->peak_inline;
	to->peaks_unknown |= a->peaks_unknown;
}

void end_drop(struct end *e)
{
	unsigned int i = 0;

	while (ends[i] != e)
		i++;
	ends[i] = ends[--end_count];
	need(!ibv_destroy_qp(e->qp), "destroy_qp");
	discard(&e->send);
	discard(&e->recv);
	add_account(&dropped_send, &e->send);
	add_account(&dropped_recv, &e->recv);
	qps_dropped++;
	if (e->owns_cqs) {
		if (e->recv_cq != e->send_cq)
			drop_cq(e->recv_cq);
		drop_cq(e->send_cq);
	}
	free(e);
}

void made_elsewhere(uint64_t qps, uint64_t receives)
{
	qps_made += qps;
	qps_dropped += qps;
	dropped_recv.posted += receives;
	dropped_recv.retired += receives;
	dropped_recv.discarded += receives;
	dropped_recv.peaks_unknown = true;
}

void pair_make(struct end *e[2], const struct plan *plan)
{
	e[0] = end_make(plan);
	e[1] = end_make(plan);
	end_to(e[0], IBV_QPS_RTS, e[1]);
	end_to(e[1], IBV_QPS_RTS, e[0]);
}

void pair_drop(struct end *e[2])
{
	end_drop(e[0]);
	end_drop(e[1]);
}

struct shared_queue *srq_make(uint32_t max_wr, uint32_t max_sge)
{
	struct ibv_srq_init_attr a = { .attr = { .max_wr = max_wr, .max_sge = max_sge } };
	struct shared_queue *s = calloc(1, sizeof(*s));

	need(s, "memory");
	s->srq = ibv_create_srq(pd, &a);
	need(s->srq, "create_srq");
	s->attr = a.attr;
	s->id = ++srqs_made;
	srqs[srq_count++] = s;
	return s;
}

void srq_drop(struct shared_queue *s)
{
	unsigned int i = 0;

	while (srqs[i] != s)
		i++;
	srqs[i] = srqs[--srq_count];
	need(!ibv_destroy_srq(s->srq), "destroy_srq");
	free(s);
}

/* --- whose calls they are --- */

/* One call of the data path, which may have to be made by another thread. */
struct call {
	struct ibv_qp *qp;
	struct ibv_srq *srq;
	struct ibv_cq *cq;
	struct ibv_send_wr *send, **bad_send;
	struct ibv_recv_wr *recv, **bad_recv;
	struct ibv_wc *wc;
	int n, rc;
};

static void build(struct ibv_qp_ex *qp, const struct ibv_send_wr *wr)
{
	struct ibv_data_buf bufs[MOST_SGES];

	qp->wr_id = wr->wr_id;
	qp->wr_flags = wr->send_flags & IBV_SEND_SIGNALED;
	if (wr->opcode == IBV_WR_SEND)
		ibv_wr_send(qp);
	else
		ibv_wr_rdma_write(qp, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr);
	if (qp->qp_base.qp_type == IBV_QPT_UD)
		ibv_wr_set_ud_addr(qp, wr->wr.ud.ah, wr->wr.ud.remote_qpn, wr->wr.ud.remote_qkey);
	for (int i = 0; i < wr->num_sge; i++)
		bufs[i] = (struct ibv_data_buf){ (void *)(uintptr_t)wr->sg_list[i].addr,
						 wr->sg_list[i].length };
	if (wr->send_flags & IBV_SEND_INLINE)
		ibv_wr_set_inline_data_list(qp, (size_t)wr->num_sge, bufs);
	else
		ibv_wr_set_sge_list(qp, (size_t)wr->num_sge, wr->sg_list);
}

/* A list is all or nothing here. */
static int send_by_builder(struct ibv_qp *qp, struct ibv_send_wr *list, struct ibv_send_wr **bad)
{
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);
	int rc;

	need(ex, "ibv_wr_* of this QP");
	ibv_wr_start(ex);
	for (struct ibv_send_wr *wr = list; wr; wr = wr->next)
		build(ex, wr);
	rc = ibv_wr_complete(ex);
	if (rc)
		*bad = list;
	return rc;
}

/* Of a completion no more is read than its wr_id. On rxe one at a time: once ibv_next_poll has said
 * that there are no more, its ibv_end_poll takes one that is not there. */
static int poll_extended(struct ibv_cq_ex *cq, int n, struct ibv_wc *wc)
{
	struct ibv_poll_cq_attr attr = { 0 };
	int got = 0, rc = ibv_start_poll(cq, &attr);

	if (rc == ENOENT)
		return 0;
	need(!rc, "start_poll: %d", rc);
	do {
		wc[got++].wr_id = cq->wr_id;
	} while (got < n && !on_rxe() && !(rc = ibv_next_poll(cq)));
	ibv_end_poll(cq);
	need(!rc || rc == ENOENT, "next_poll: %d", rc);
	return got;
}

static void *make_call(void *arg)
{
	struct call *c = arg;

	if (c->send && extended())
		c->rc = send_by_builder(c->qp, c->send, c->bad_send);
	else if (c->send)
		c->rc = ibv_post_send(c->qp, c->send, c->bad_send);
	else if (c->recv && c->qp)
		c->rc = ibv_post_recv(c->qp, c->recv, c->bad_recv);
	else if (c->recv)
		c->rc = ibv_post_srq_recv(c->srq, c->recv, c->bad_recv);
	else if (extended())
		c->rc = poll_extended((struct ibv_cq_ex *)c->cq, c->n, c->wc);
	else
		c->rc = ibv_poll_cq(c->cq, c->n, c->wc);
	return NULL;
}

/* The first call on a queue makes its thread the owner there. */
static int call(struct call c, bool *begun)
{
	const char *owner = getenv("QPG_OWNER");
	pthread_t thread;

	if (!*begun && owner && !strcmp(owner, "other")) {
		need(!pthread_create(&thread, NULL, make_call, &c), "a thread");
		pthread_join(thread, NULL);
	} else {
		make_call(&c);
	}
	*begun = true;
	return c.rc;
}

/* --- posting --- */

static struct ibv_ah *own_address(void)
{
	struct ibv_ah_attr attr;

	if (!ah) {
		address(&attr);
		ah = ibv_create_ah(pd, &attr);
		need(ah, "create_ah");
	}
	return ah;
}

static void fill_sges(struct ibv_sge *sges, int n, uint32_t bytes)
{
	need(n <= MOST_SGES, "%d SGEs", n);
	for (int i = 0; i < n; i++)
		sges[i] = (struct ibv_sge){ (uintptr_t)memory + 64 * (unsigned int)i, bytes,
					    mr->lkey };
}

static void fill_send(struct end *e, struct ibv_send_wr *wr, struct ibv_sge *sges,
		      const struct request *r, uint64_t id)
{
	bool datagram = e->qp->qp_type == IBV_QPT_UD;
	int n = r->sge ? r->sge : 1;

	fill_sges(sges, n, r->inlined ? r->inlined / (unsigned int)n : 8);
	if (r->inlined)
		sges[0].length += r->inlined % (unsigned int)n;
	*wr = (struct ibv_send_wr){
		.wr_id = id,
		.sg_list = sges,
		.num_sge = n,
		.opcode = r->opcode  ? (enum ibv_wr_opcode)r->opcode
			  : datagram ? IBV_WR_SEND
				     : IBV_WR_RDMA_WRITE,
		.send_flags = (r->unsignaled ? 0u : IBV_SEND_SIGNALED) |
			      (r->inlined ? (unsigned int)IBV_SEND_INLINE : 0u),
	};
	if (datagram) {
		wr->wr.ud.ah = own_address();
		wr->wr.ud.remote_qpn = e->qp->qp_num;
		wr->wr.ud.remote_qkey = QKEY;
	} else {
		wr->wr.rdma.remote_addr = (uintptr_t)memory + REMOTE_FROM;
		wr->wr.rdma.rkey = mr->rkey;
	}
}

static uint64_t whose(uint32_t serial, uint64_t number)
{
	return (uint64_t)serial << WHOSE_SHIFT | number;
}

static void note_peaks(struct account *a, const struct request *list, unsigned int accepted)
{
	for (unsigned int i = 0; i < accepted; i++) {
		uint32_t sge = list[i].sge ? (uint32_t)list[i].sge : 1;

		if (list[i].inlined && extended())
			sge = 0; /* data without any SGE */
		if (sge > a->peak_sge)
			a->peak_sge = sge;
		if (list[i].inlined > a->peak_inline)
			a->peak_inline = list[i].inlined;
	}
	if (accepted && outstanding(a) > a->peak_outstanding)
		a->peak_outstanding = (uint32_t)outstanding(a);
}

static void note_refusal(struct account *a, int rc, unsigned int n, unsigned int accepted,
			 enum why why)
{
	need(!rc == (accepted == n) || on_rxe(), "%u of %u accepted, yet %d", accepted, n, rc);
	need(!rc || why != NOT_AT_ALL, "a post failed with %d: %u of %u accepted", rc, accepted, n);
	if (!rc)
		return;
	a->refused[why]++;
	a->not_posted += n - accepted;
}

unsigned int post_sends(struct end *e, const struct request *list, unsigned int n, enum why why)
{
	static struct ibv_send_wr wr[LONGEST];
	static struct ibv_sge sges[LONGEST][MOST_SGES];
	struct ibv_send_wr *bad = &wr[n];
	unsigned int accepted;
	int rc;

	need(n < LONGEST, "a list of %u", n);
	for (unsigned int i = 0; i < n; i++) {
		fill_send(e, &wr[i], sges[i], &list[i], whose(e->serial, e->send.posted + i));
		wr[i].next = i + 1 < n ? &wr[i + 1] : NULL;
	}
	rc = call((struct call){ .qp = e->qp, .send = wr, .bad_send = &bad }, &e->send.begun);
	/* rxe may fail without telling where: it took them all, and they will run */
	accepted = bad ? (unsigned int)(bad - wr) : n;
	/* afterwards the list is nobody's: whoever still reads it reads nonsense */
	memset(wr, 0xee, n * sizeof(wr[0]));
	e->send.posted += accepted;
	for (unsigned int i = 0; i < accepted; i++)
		e->sends_with_receive += list[i].opcode == IBV_WR_SEND;
	note_refusal(&e->send, rc, n, accepted, why);
	note_peaks(&e->send, list, accepted);
	return accepted;
}

static unsigned int fill_recvs(struct ibv_recv_wr *wr, struct ibv_sge (*sges)[MOST_SGES],
			       const int *counts, unsigned int n, uint64_t id)
{
	need(n < LONGEST, "a list of %u", n);
	for (unsigned int i = 0; i < n; i++) {
		fill_sges(sges[i], counts[i], 64);
		wr[i] = (struct ibv_recv_wr){
			.wr_id = (id + i) | RECV_MARK,
			.next = i + 1 < n ? &wr[i + 1] : NULL,
			.sg_list = sges[i],
			.num_sge = counts[i],
		};
	}
	return n;
}

static unsigned int received(struct account *a, int rc, const struct ibv_recv_wr *wr,
			     const struct ibv_recv_wr *bad, const int *counts, unsigned int n,
			     enum why why)
{
	unsigned int accepted = bad ? (unsigned int)(bad - wr) : n;

	a->posted += accepted;
	note_refusal(a, rc, n, accepted, why);
	for (unsigned int i = 0; i < accepted; i++)
		note_peaks(a, &(struct request){ .sge = counts[i] }, 1);
	return accepted;
}

unsigned int post_recvs(struct end *e, const int *counts, unsigned int n, enum why why)
{
	static struct ibv_recv_wr wr[LONGEST];
	static struct ibv_sge sges[LONGEST][MOST_SGES];
	struct ibv_recv_wr *bad =
		wr + fill_recvs(wr, sges, counts, n, whose(e->serial, e->recv.posted));
	int rc = call((struct call){ .qp = e->qp, .recv = wr, .bad_recv = &bad }, &e->recv.begun);

	memset(wr, 0xee, n * sizeof(wr[0]));
	return received(&e->recv, rc, wr, bad, counts, n, why);
}

unsigned int post_srq_recvs(struct shared_queue *s, const int *counts, unsigned int n, enum why why)
{
	static struct ibv_recv_wr wr[LONGEST];
	static struct ibv_sge sges[LONGEST][MOST_SGES];
	struct ibv_recv_wr *bad =
		wr + fill_recvs(wr, sges, counts, n, whose(s->id, s->recv.posted) | SRQ_MARK);
	int rc = call((struct call){ .srq = s->srq, .recv = wr, .bad_recv = &bad }, &s->recv.begun);

	memset(wr, 0xee, n * sizeof(wr[0]));
	return received(&s->recv, rc, wr, bad, counts, n, why);
}

void send_each(struct end *e, unsigned int n, struct request r)
{
	for (unsigned int i = 0; i < n; i++)
		post_sends(e, &r, 1, NOT_AT_ALL);
}

void recv_each(struct end *e, unsigned int n)
{
	int one = 1;

	for (unsigned int i = 0; i < n; i++) {
		if (e->srq)
			post_srq_recvs(e->srq, &one, 1, NOT_AT_ALL);
		else
			post_recvs(e, &one, 1, NOT_AT_ALL);
	}
}

/* --- polling --- */

/* Requests of a queue end in order: this one ends all before it. Those of a queue pair that is
 * gone do not count. */
static void take(uint64_t wr_id)
{
	uint32_t serial = (uint32_t)((wr_id & ~(RECV_MARK | SRQ_MARK)) >> WHOSE_SHIFT);
	uint64_t number = (wr_id & NUMBER_MASK) + 1;
	struct account *a = NULL;

	for (unsigned int i = 0; i < srq_count && wr_id & SRQ_MARK; i++)
		if (srqs[i]->id == serial)
			srqs[i]->recv.retired++;
	for (unsigned int i = 0; i < end_count && !(wr_id & SRQ_MARK); i++)
		if (ends[i]->serial == serial)
			a = wr_id & RECV_MARK ? &ends[i]->recv : &ends[i]->send;
	if (a && number > a->retired)
		a->retired = number;
}

int reap(struct ibv_cq *cq, int n)
{
	struct ibv_wc wc[64];
	unsigned int i = 0;
	int got;

	while (i < cqs_made && cqs[i].cq != cq)
		i++;
	need(i < cqs_made, "a CQ that is known");
	memset(wc, 0xee, sizeof(wc));
	got = call((struct call){ .cq = cq, .n = n < 64 ? n : 64, .wc = wc }, &cqs[i].begun);
	need(got >= 0, "poll_cq: %d", got);
	cq_took(cq, got > 0 ? (unsigned int)got : 0);
	for (int k = 0; k < got; k++)
		take(wc[k].wr_id);
	return got;
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* A poll, and a rest when nothing came; ends the program after a minute of nothing. */
static int patiently(struct ibv_cq *cq, int n, double *deadline)
{
	int got = reap(cq, n);

	if (got) {
		*deadline = now() + PATIENCE;
	} else {
		need(now() < *deadline, "no completion in %d seconds", PATIENCE);
		usleep(50);
	}
	return got;
}

void reap_exactly(struct ibv_cq *cq, unsigned int n)
{
	double deadline = now() + PATIENCE;

	while (n)
		n -= (unsigned int)patiently(cq, n < 16 ? (int)n : 16, &deadline);
}

void reap_sends(struct end *e)
{
	double deadline = now() + PATIENCE;

	while (outstanding(&e->send))
		patiently(e->send_cq, 16, &deadline);
}

void reap_recvs(struct end *e)
{
	double deadline = now() + PATIENCE;

	while (outstanding(&e->recv))
		patiently(e->recv_cq, 16, &deadline);
}

/* --- what is printed --- */

static void print_account(const struct account *a)
{
	printf(" posted=%llu completed=%llu outstanding=%llu discarded=%llu not_posted=%llu",
	       (unsigned long long)a->posted, (unsigned long long)(a->retired - a->discarded),
	       (unsigned long long)outstanding(a), (unsigned long long)a->discarded,
	       (unsigned long long)a->not_posted);
	for (unsigned int i = QUEUE_FULL; i < WHYS; i++)
		printf(" %s=%llu", why_names[i], (unsigned long long)a->refused[i]);
	if (!a->peaks_unknown)
		printf(" peak_outstanding=%u peak_sge=%u peak_inline=%u", a->peak_outstanding,
		       a->peak_sge, a->peak_inline);
	printf("\n");
}

static void print_all(void)
{
	struct account send = dropped_send, recv = dropped_recv;

	for (unsigned int i = 0; i < end_count; i++) {
		printf("queue qp=%u side=send", ends[i]->qp->qp_num);
		print_account(&ends[i]->send);
		if (!ends[i]->srq) {
			printf("queue qp=%u side=recv", ends[i]->qp->qp_num);
			print_account(&ends[i]->recv);
		}
		add_account(&send, &ends[i]->send);
		add_account(&recv, &ends[i]->recv);
	}
	for (unsigned int i = 0; i < srq_count; i++) {
		printf("queue srq=%u side=recv", srqs[i]->id);
		print_account(&srqs[i]->recv);
	}
	for (unsigned int i = 0; i < cqs_made; i++)
		if (cqs[i].cq)
			printf("cq id=%u completions=%llu\n", i + 1,
			       (unsigned long long)cqs[i].completions);
	printf("total side=send");
	print_account(&send);
	printf("total side=recv");
	print_account(&recv);
	printf("totals live_qps=%u created_qps=%llu destroyed_qps=%llu\n", end_count,
	       (unsigned long long)qps_made, (unsigned long long)qps_dropped);
}

__attribute__((format(printf, 1, 0))) static void tell_step(const char *format, va_list ap)
{
	char line[64];

	printf("step ");
	vprintf(format, ap);
	printf("\n");
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		return;
}

void step(const char *format, ...)
{
	va_list ap;

	print_all();
	va_start(ap, format);
	tell_step(format, ap);
	va_end(ap);
}

void step_alone(const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	tell_step(format, ap);
	va_end(ap);
}

void result(const char *format, ...)
{
	va_list ap;

	printf("result ");
	va_start(ap, format);
	vprintf(format, ap);
	va_end(ap);
	printf("\n");
	fflush(stdout);
}
