/* SPDX-License-Identifier: MIT */
/*
 * What people ran into, one step an argument: opens the device by itself, does what the arguments say in their
 * order, and ends. What fails is passed over, as programs do that report it elsewhere.
 *
 *     cq=CQE  qp=TYPE,SEND_WR,RECV_WR,SEND_SGE,RECV_SGE,INLINE  srq=WR,SGE  mr=BYTES
 *     shared=TYPE,...	  a QP on the newest SRQ
 *     qps=N		  N QPs like the last one, as many as there are
 *     inline=A,B,C	  QPs with so much inline data, until one is made: a probe
 *     connect		  a pair of QPs of 16 sends, the further steps post to the first
 *     unsignaled=N  signaled=N  sges=N  bytes=N (inline)	sends
 *     posts=N		  N sends, 16 at a time, each polled
 *     drop=cq		  destroys the newest CQ
 *     close		  gives everything back, the device too
 *     wait=MS  exit=STATUS
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "verbs_pair.h"

#define MOST 4096

static struct ibv_cq *cqs[MOST];
static struct ibv_qp *qps[MOST];
static struct ibv_srq *srq;
static unsigned int cq_count, qp_count;
static struct ibv_qp_init_attr last_qp;
static struct ibv_qp *sender;

static struct ibv_cq *newest_cq(void)
{
	if (!cq_count)
		cqs[cq_count++] = ibv_create_cq(context, 100, NULL, NULL, 0);
	need(cqs[cq_count - 1], "a CQ");
	return cqs[cq_count - 1];
}

static bool make_qp(void)
{
	struct ibv_qp_init_attr a = last_qp;
	struct ibv_qp *qp;

	a.send_cq = a.recv_cq = newest_cq();
	qp = ibv_create_qp(pd, &a);
	if (qp && qp_count < MOST)
		qps[qp_count++] = qp;
	return qp != NULL;
}

static void read_qp(const char *text, struct ibv_srq *shared)
{
	struct ibv_qp_cap *c = &last_qp.cap;

	last_qp.qp_type = !strncmp(text, "UD", 2) ? IBV_QPT_UD : IBV_QPT_RC;
	last_qp.srq = shared;
	need(sscanf(text, "%*[A-Z],%u,%u,%u,%u,%u", &c->max_send_wr, &c->max_recv_wr,
		    &c->max_send_sge, &c->max_recv_sge, &c->max_inline_data) == 5,
	     "%s", text);
}

static void make_cq(int cqe)
{
	struct ibv_cq *cq = ibv_create_cq(context, cqe, NULL, NULL, 0);

	if (cq)
		cqs[cq_count++] = cq;
}

static void probe_inline(const char *text)
{
	read_qp("RC,16,16,1,1,0", NULL);
	for (bool made = false; text && !made; text = strchr(text, ',')) {
		text += *text == ',';
		last_qp.cap.max_inline_data = (uint32_t)atoi(text);
		made = make_qp();
	}
}

static void connect_pair(void)
{
	struct plan plan = { .cap = { 16, 16, 1, 1, 0 } };
	static struct end *e[2];

	mr = ibv_reg_mr(pd, memory = calloc(1, MEMORY_BYTES), MEMORY_BYTES,
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	need(mr, "an MR");
	pair_make(e, &plan);
	sender = e[0]->qp;
}

/* Sends that wait for a receive which never comes. */
static void send_some(int n, unsigned int flags, int sges, uint32_t bytes)
{
	struct ibv_sge list[64];
	struct ibv_send_wr wr = { .sg_list = list,
				  .num_sge = sges,
				  .opcode = IBV_WR_SEND,
				  .send_flags = flags },
			   *bad;

	need(sender, "connect before sends");
	for (int i = 0; i < sges && i < 64; i++)
		list[i] = (struct ibv_sge){ (uintptr_t)memory, bytes, mr->lkey };
	while (n--)
		if (ibv_post_send(sender, &wr, &bad))
			continue; /* the program does not look */
}

/* As programs do: as many as the queue holds, then their completions. */
static void post_many(int n)
{
	struct ibv_sge sge = { (uintptr_t)memory, 8, mr->lkey };
	struct ibv_send_wr list[16], *bad;
	struct ibv_wc wc[16];

	for (int i = 0; i < 16; i++) {
		list[i] = (struct ibv_send_wr){ .next = i < 15 ? &list[i + 1] : NULL,
						.sg_list = &sge,
						.num_sge = 1,
						.opcode = IBV_WR_RDMA_WRITE,
						.send_flags = IBV_SEND_SIGNALED };
		list[i].wr.rdma.remote_addr = (uintptr_t)memory + 4096;
		list[i].wr.rdma.rkey = mr->rkey;
	}
	for (; n > 0; n -= 16) {
		need(!ibv_post_send(sender, list, &bad), "a list of 16");
		for (int left = 16, got; left; left -= got) {
			got = ibv_poll_cq(sender->send_cq, left, wc);
			need(got >= 0, "polling");
		}
	}
}

static void close_all(void)
{
	while (qp_count)
		ibv_destroy_qp(qps[--qp_count]);
	while (cq_count)
		ibv_destroy_cq(cqs[--cq_count]);
	ibv_dealloc_pd(pd);
	ibv_close_device(context);
}

static void make_srq(const char *text)
{
	struct ibv_srq_init_attr a = { 0 };

	need(sscanf(text, "%u,%u", &a.attr.max_wr, &a.attr.max_sge) == 2, "%s", text);
	srq = ibv_create_srq(pd, &a);
}

static void make_many(int n)
{
	while (n-- && make_qp())
		;
}

static void pause_for(long ms)
{
	struct timespec t = { ms / 1000, ms % 1000 * 1000000 };

	nanosleep(&t, NULL);
}

static void step_of(const char *name, const char *value)
{
	int n = atoi(value);

	if (!strcmp(name, "cq"))
		make_cq(n);
	else if (!strcmp(name, "qp") || !strcmp(name, "shared")) {
		read_qp(value, *name == 's' ? srq : NULL);
		make_qp();
	} else if (!strcmp(name, "srq"))
		make_srq(value);
	else if (!strcmp(name, "mr"))
		ibv_reg_mr(pd, calloc(1, (size_t)n), (size_t)n, IBV_ACCESS_LOCAL_WRITE);
	else if (!strcmp(name, "qps"))
		make_many(n);
	else if (!strcmp(name, "inline"))
		probe_inline(value);
	else if (!strcmp(name, "posts"))
		post_many(n);
	else if (!strcmp(name, "connect"))
		connect_pair();
	else if (!strcmp(name, "unsignaled") || !strcmp(name, "signaled"))
		send_some(n, *name == 's' ? IBV_SEND_SIGNALED : 0, 1, 8);
	else if (!strcmp(name, "sges"))
		send_some(1, IBV_SEND_SIGNALED, n, 8);
	else if (!strcmp(name, "bytes"))
		send_some(1, IBV_SEND_SIGNALED | IBV_SEND_INLINE, 1, (uint32_t)n);
	else if (!strcmp(name, "drop"))
		ibv_destroy_cq(cqs[cq_count - 1]);
	else if (!strcmp(name, "close"))
		close_all();
	else if (!strcmp(name, "wait"))
		pause_for(n);
	else if (!strcmp(name, "exit"))
		exit(n);
	else
		need(false, "what is %s?", name);
}

int main(int argc, char **argv)
{
	context = device_open();
	pd = context ? ibv_alloc_pd(context) : NULL;
	if (!pd)
		return 1;
	for (int i = 1; i < argc; i++) {
		char *equals = strchr(argv[i], '=');

		if (equals)
			*equals = '\0';
		step_of(argv[i], equals ? equals + 1 : "");
	}
	return 0;
}
