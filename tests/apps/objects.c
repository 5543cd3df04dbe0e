/* SPDX-License-Identifier: MIT */
/*
 * Makes what its arguments name, in that order, and tells what came of it, as a program that
 * counts on nothing but errno would see it:
 *
 *     qp=TYPE,SEND_WR,RECV_WR,SEND_SGE,RECV_SGE,INLINE	  cq=CQE   srq=WR,SGE   mr=BYTES
 *     drop=KIND	destroys the newest of that kind
 *     traffic		connects the first two QPs that live and sends in both directions
 *     errno=N		what errno is before each call from now on
 *     race=ROUNDS	two threads make a QP at the same time, so many times; how many of the two
 *			got one is told; they are destroyed again
 *
 * The QPs use a CQ of their own, the first object made, if no cq= stands before them.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "verbs_pair.h"

#define MOST 256

static struct ibv_cq *cqs[MOST];
static struct ibv_qp *qps[MOST];
static struct ibv_srq *srqs[MOST];
static struct ibv_mr *mrs[MOST];
static unsigned int cq_count, qp_count, srq_count, mr_count;
static int errno_before = 12345;

static const char *errno_text(int error)
{
	static _Thread_local char number[32];

	switch (error) {
	case ENOMEM:
		return "ENOMEM";
	case EINVAL:
		return "EINVAL";
	default:
		snprintf(number, sizeof(number), "errno %d", error);
		return number;
	}
}

/* After a call that succeeded: not a result, since the provider may change it where the guard
 * does not. */
static void tell_errno(const char *what, int after)
{
	printf("errno %s %s\n", what, after == errno_before ? "kept" : "changed");
}

static enum ibv_qp_type type_of(const char *name)
{
	return !strncmp(name, "UD", 2)	 ? IBV_QPT_UD
	       : !strncmp(name, "UC", 2) ? IBV_QPT_UC
					 : IBV_QPT_RC;
}

static struct ibv_cq *any_cq(void)
{
	if (!cq_count) {
		cqs[0] = ibv_create_cq(context, 256, NULL, NULL, 0);
		need(cqs[0], "a first CQ");
		cq_count = 1;
	}
	return cqs[cq_count - 1];
}

static struct ibv_qp_init_attr qp_request(const char *text)
{
	struct ibv_qp_init_attr a = { .qp_type = type_of(text) };
	struct ibv_qp_cap *c = &a.cap;

	need(sscanf(text, "%*[A-Z],%u,%u,%u,%u,%u", &c->max_send_wr, &c->max_recv_wr,
		    &c->max_send_sge, &c->max_recv_sge, &c->max_inline_data) == 5,
	     "qp=%s", text);
	return a;
}

static void make_qp(const char *text)
{
	struct ibv_qp_init_attr a = qp_request(text);
	struct ibv_qp *qp;
	int after;

	a.send_cq = a.recv_cq = any_cq();
	errno = errno_before;
	qp = ibv_create_qp(pd, &a);
	after = errno;
	result("qp=%s: %s, caps %u %u %u %u %u", text, qp ? "made" : errno_text(after),
	       a.cap.max_send_wr, a.cap.max_recv_wr, a.cap.max_send_sge, a.cap.max_recv_sge,
	       a.cap.max_inline_data);
	if (qp)
		tell_errno("qp", after);
	if (qp)
		qps[qp_count++] = qp;
}

static void make_cq(const char *text)
{
	struct ibv_cq *cq;
	int after;

	errno = errno_before;
	cq = ibv_create_cq(context, atoi(text), NULL, NULL, 0);
	after = errno;
	result("cq=%s: %s, cqe %d", text, cq ? "made" : errno_text(after), cq ? cq->cqe : 0);
	if (cq)
		tell_errno("cq", after);
	if (cq)
		cqs[cq_count++] = cq;
}

static void make_srq(const char *text)
{
	struct ibv_srq_init_attr a = { 0 };
	struct ibv_srq *srq;
	int after;

	need(sscanf(text, "%u,%u", &a.attr.max_wr, &a.attr.max_sge) == 2, "srq=%s", text);
	errno = errno_before;
	srq = ibv_create_srq(pd, &a);
	after = errno;
	result("srq=%s: %s, caps %u %u", text, srq ? "made" : errno_text(after), a.attr.max_wr,
	       a.attr.max_sge);
	if (srq)
		tell_errno("srq", after);
	if (srq)
		srqs[srq_count++] = srq;
}

static void make_mr(const char *text)
{
	size_t bytes = strtoul(text, NULL, 0);
	struct ibv_mr *m;
	int after;

	need(bytes <= MEMORY_BYTES, "mr=%s", text);
	errno = errno_before;
	m = ibv_reg_mr(pd, memory, bytes, IBV_ACCESS_LOCAL_WRITE);
	after = errno;
	result("mr=%s: %s", text, m ? "made" : errno_text(after));
	if (m)
		tell_errno("mr", after);
	if (m)
		mrs[mr_count++] = m;
}

static void drop(const char *kind)
{
	int rc, after;

	errno = errno_before;
	if (!strcmp(kind, "qp"))
		rc = ibv_destroy_qp(qps[--qp_count]);
	else if (!strcmp(kind, "cq"))
		rc = ibv_destroy_cq(cqs[--cq_count]);
	else if (!strcmp(kind, "srq"))
		rc = ibv_destroy_srq(srqs[--srq_count]);
	else
		rc = ibv_dereg_mr(mrs[--mr_count]);
	after = errno;
	result("drop=%s: %d", kind, rc);
	if (!rc)
		tell_errno(kind, after);
}

static void traffic(void)
{
	struct end a = { .qp = qps[0] }, b = { .qp = qps[1] };
	struct ibv_sge sge = { (uintptr_t)memory, 8, mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_RDMA_WRITE,
				  .send_flags = IBV_SEND_SIGNALED },
			   *bad;
	unsigned int done = 0;
	struct ibv_wc wc;

	need(qp_count > 1, "two QPs for traffic");
	end_to(&a, IBV_QPS_RTS, &b);
	end_to(&b, IBV_QPS_RTS, &a);
	wr.wr.rdma.remote_addr = (uintptr_t)memory + 4096;
	wr.wr.rdma.rkey = mr->rkey;
	for (unsigned int i = 0; i < 20; i++) {
		need(!ibv_post_send(i % 2 ? a.qp : b.qp, &wr, &bad), "post_send");
		while (!ibv_poll_cq(a.qp->send_cq, 1, &wc))
			;
		done += wc.status == IBV_WC_SUCCESS;
	}
	result("traffic: %u of 20 done", done);
}

/* --- two at once --- */

static pthread_barrier_t start;
static struct ibv_qp_init_attr raced;
static _Atomic int wrong_errno;

static void *one_more(void *arg)
{
	struct ibv_qp_init_attr a = raced;
	struct ibv_qp **made = arg;

	pthread_barrier_wait(&start);
	errno = errno_before;
	*made = ibv_create_qp(pd, &a);
	if (errno != (*made ? errno_before : ENOMEM))
		wrong_errno++;
	return NULL;
}

static void race(const char *text)
{
	unsigned int rounds = (unsigned int)atoi(text), got[3] = { 0 };
	pthread_t thread[2];
	struct ibv_qp *made[2];

	raced = qp_request("RC,16,16,1,1,0");
	raced.send_cq = raced.recv_cq = any_cq();
	pthread_barrier_init(&start, NULL, 2);
	for (unsigned int r = 0; r < rounds; r++) {
		for (unsigned int i = 0; i < 2; i++)
			need(!pthread_create(&thread[i], NULL, one_more, &made[i]), "a thread");
		for (unsigned int i = 0; i < 2; i++)
			pthread_join(thread[i], NULL);
		got[!!made[0] + !!made[1]]++;
		for (unsigned int i = 0; i < 2; i++)
			need(!made[i] || !ibv_destroy_qp(made[i]), "destroy_qp");
	}
	result("race: none got it %u times, one %u, both %u; wrong errno %d", got[0], got[1],
	       got[2], wrong_errno);
}

int main(int argc, char **argv)
{
	device_begin();
	for (int i = 1; i < argc; i++) {
		const char *value = strchr(argv[i], '=');

		value = value ? value + 1 : "";
		if (!strncmp(argv[i], "qp=", 3))
			make_qp(value);
		else if (!strncmp(argv[i], "cq=", 3))
			make_cq(value);
		else if (!strncmp(argv[i], "srq=", 4))
			make_srq(value);
		else if (!strncmp(argv[i], "mr=", 3))
			make_mr(value);
		else if (!strncmp(argv[i], "drop=", 5))
			drop(value);
		else if (!strncmp(argv[i], "errno=", 6))
			errno_before = atoi(value);
		else if (!strncmp(argv[i], "race=", 5))
			race(value);
		else if (!strcmp(argv[i], "traffic"))
			traffic();
		else
			need(false, "what is %s?", argv[i]);
	}
	return 0;
}
