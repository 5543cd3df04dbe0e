/* SPDX-License-Identifier: MIT */
/*
 * Queue pairs that come and go: numbers and addresses that are used again, contexts of one device
 * side by side, RESET, ERR and what they leave, and threads that make and destroy while others
 * post.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "verbs_pair.h"

static const struct request one, quiet = { .unsignaled = true };

/* Made, used and destroyed with requests outstanding, again and again, of three kinds by turns. */
static void churn(void)
{
	struct end *e[2];

	for (unsigned int i = 0; i < 60; i++) {
		pair_make(e, &(struct plan){ .cap.max_send_wr = 8u << i % 3,
					     .sig_all = i % 3 == 2,
					     .two_cqs = i % 2 });
		send_each(e[0], 1 + i % 5, WAITING);
		recv_each(e[0], i % 4);
		if (i % 4 == 1) {
			recv_each(e[1], 1 + i % 5);
			reap_recvs(e[1]);
			reap_sends(e[0]);
		}
		if (i % 7 == 3)
			send_each(e[1], 2, quiet);
		if (i % 20 == 7)
			step("round %u, the pair still lives", i);
		pair_drop(e);
		if (i % 20 == 7)
			step("round %u", i);
	}
	step("60 pairs of three kinds");
}

/* The same device opened twice more: objects of one do not count in the other. */
static void contexts(void)
{
	struct ibv_context *other[2];
	struct ibv_pd *pds[2];
	struct end *e[6];

	for (unsigned int i = 0; i < 2; i++) {
		other[i] = device_open();
		pds[i] = ibv_alloc_pd(other[i]);
		need(pds[i], "alloc_pd");
	}
	for (unsigned int i = 0; i < 6; i++)
		e[i] = end_make(&(struct plan){ .pd = i / 2 ? pds[i / 2 - 1] : pd });
	for (unsigned int i = 0; i < 6; i++)
		end_to(e[i], IBV_QPS_RTR, e[i ^ 1]);
	for (unsigned int i = 0; i < 6; i++)
		recv_each(e[i], i + 1);
	step("receives on three contexts");
	for (unsigned int i = 2; i < 6; i++)
		end_drop(e[i]);
	for (unsigned int i = 0; i < 2; i++) {
		need(!ibv_dealloc_pd(pds[i]), "dealloc_pd");
		need(!ibv_close_device(other[i]), "close_device");
	}
	step("two contexts are closed");
	for (unsigned int round = 0; round < 5; round++) {
		other[0] = device_open();
		pds[0] = ibv_alloc_pd(other[0]);
		e[2] = end_make(&(struct plan){ .pd = pds[0] });
		end_to(e[2], IBV_QPS_INIT, NULL);
		recv_each(e[2], 3);
		if (round == 2)
			step("a context opened anew");
		end_drop(e[2]);
		need(!ibv_dealloc_pd(pds[0]) && !ibv_close_device(other[0]), "close");
	}
	end_drop(e[0]);
	end_drop(e[1]);
}

static void reset(void)
{
	struct end *e[2];

	for (unsigned int mixed = 0; mixed < 2; mixed++) {
		pair_make(e, &(struct plan){ 0 });
		send_each(e[0], 3, WAITING);
		if (mixed)
			send_each(e[0], 4,
				  (struct request){ .opcode = IBV_WR_SEND, .unsignaled = true });
		recv_each(e[0], 5);
		step("outstanding on both sides");
		end_state(e[0], IBV_QPS_RESET);
		end_state(e[1], IBV_QPS_RESET);
		step("RESET discards them");
		end_to(e[0], IBV_QPS_RTS, e[1]);
		end_to(e[1], IBV_QPS_RTS, e[0]);
		send_each(e[0], 6, mixed ? quiet : one);
		send_each(e[0], 1, one);
		recv_each(e[0], 2);
		step("the second life");
		reap_sends(e[0]);
		step("its sends are done");
		end_state(e[0], IBV_QPS_RESET);
		step("RESET once more");
		pair_drop(e);
	}
}

/* Completions that nobody polled before RESET: mlx5 drops them, rxe still gives them out. */
static void stale(bool mixed, bool two_cqs)
{
	struct end *e[2];
	int came = 0;

	pair_make(e, &(struct plan){ .two_cqs = two_cqs });
	if (mixed)
		send_each(e[0], 2, quiet);
	send_each(e[0], 5, one);
	recv_each(e[0], 4);
	send_each(e[1], 3, WAITING);
	reap_sends(e[1]);
	usleep(300000);
	step("5 sends and 3 receives are done and not polled");
	end_state(e[0], IBV_QPS_RESET);
	step("RESET");
	for (unsigned int i = 0; i < 20; i++) {
		came += reap(e[0]->send_cq, 16);
		if (two_cqs)
			came += reap(e[0]->recv_cq, 16);
		usleep(5000);
	}
	result("completions from before RESET: %d", came);
	end_state(e[1], IBV_QPS_RESET);
	end_to(e[0], IBV_QPS_RTS, e[1]);
	end_to(e[1], IBV_QPS_RTS, e[0]);
	step("they are polled, the queue pair lives again");
	send_each(e[0], 3, one);
	recv_each(e[0], 2);
	step("3 sends and 2 receives are outstanding");
	reap_sends(e[0]);
	step("the sends are done");
	send_each(e[0], 1, quiet);
	send_each(e[0], 4, one);
	step("5 are outstanding, of both sorts");
	reap_exactly(e[0]->send_cq, 2);
	step("3 of them are done");
	send_each(e[1], 2, WAITING);
	reap_sends(e[1]);
	reap_sends(e[0]);
	reap_recvs(e[0]);
	step("all are done");
	pair_drop(e);
}

/* ERR flushes what is outstanding. `two_cqs`: the sides are told apart. */
static void flush(bool two_cqs, bool both, bool mixed)
{
	struct end *e[2];

	pair_make(e, &(struct plan){ .two_cqs = two_cqs });
	for (unsigned int i = 0; i < 6; i++)
		send_each(e[0], 1,
			  (struct request){ .opcode = IBV_WR_SEND, .unsignaled = mixed && i % 2 });
	if (both)
		recv_each(e[0], 5);
	step("outstanding before ERR");
	end_state(e[0], IBV_QPS_ERR);
	reap_sends(e[0]);
	reap_recvs(e[0]);
	step("flushed");
	send_each(e[0], 2, one);
	reap_sends(e[0]);
	step("posted in ERR and flushed");
	recv_each(e[0], 2);
	if (!on_rxe()) /* flushes what is there at ERR, and no more */
		reap_recvs(e[0]);
	step("receives in ERR");
	end_state(e[0], IBV_QPS_RESET);
	end_state(e[1], IBV_QPS_RESET);
	end_to(e[0], IBV_QPS_RTS, e[1]);
	end_to(e[1], IBV_QPS_RTS, e[0]);
	send_each(e[0], 2, quiet);
	send_each(e[0], 2, one);
	step("alive again");
	reap_sends(e[0]);
	step("alive again, done");
	pair_drop(e);
}

static void shared(void)
{
	struct shared_queue *s = srq_make(64, 1);
	struct end *e[4];

	for (unsigned int i = 0; i < 2; i++) {
		e[2 * i] = end_make(&(struct plan){ 0 });
		e[2 * i + 1] = end_make(&(struct plan){ .srq = s, .two_cqs = i });
		end_to(e[2 * i], IBV_QPS_RTS, e[2 * i + 1]);
		end_to(e[2 * i + 1], IBV_QPS_RTS, e[2 * i]);
	}
	for (unsigned int i = 0; i < 40; i++)
		recv_each(e[1], 1);
	step("an SRQ for two");
	send_each(e[0], 12, WAITING);
	send_each(e[2], 13, WAITING);
	reap_sends(e[0]);
	reap_sends(e[2]);
	reap_exactly(e[1]->recv_cq, 12);
	reap_exactly(e[3]->recv_cq, 13);
	step("25 of 40 are used");
	send_each(e[1], 3, one);
	reap_sends(e[1]);
	pair_drop(e);
	step("one user is gone");
	send_each(e[2], 5, WAITING);
	reap_sends(e[2]);
	reap_exactly(e[3]->recv_cq, 5);
	step("the other goes on");
	pair_drop(e + 2);
	srq_drop(s);
}

/* --- at once --- */

static _Atomic bool enough;
static _Atomic uint64_t made;

static void *make_and_destroy(void *arg)
{
	struct ibv_cq *cq = ibv_create_cq(context, 64, NULL, NULL, 0);
	struct ibv_recv_wr wr = { 0 }, *bad;
	struct ibv_qp *qp[3];
	unsigned int rounds = (unsigned int)(uintptr_t)arg;

	need(cq, "create_cq");
	for (unsigned int r = 0; r < rounds; r++) {
		for (unsigned int i = 0; i < 3; i++) {
			struct ibv_qp_init_attr a = { .qp_type = IBV_QPT_RC,
						      .send_cq = cq,
						      .recv_cq = cq,
						      .cap = { 8, 8, 1, 1, 0 } };
			struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT, .port_num = 1 };

			qp[i] = ibv_create_qp(pd, &a);
			need(qp[i], "create_qp");
			made++;
			need(!ibv_modify_qp(qp[i], &init,
					    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
						    IBV_QP_ACCESS_FLAGS),
			     "INIT");
			for (unsigned int k = 0; k <= i; k++)
				need(!ibv_post_recv(qp[i], &wr, &bad), "post_recv");
		}
		for (unsigned int i = 0; i < 3; i++)
			need(!ibv_destroy_qp(qp[i]), "destroy_qp");
	}
	need(!ibv_destroy_cq(cq), "destroy_cq");
	return NULL;
}

static void *post_and_poll(void *arg)
{
	struct end *e = arg;
	struct ibv_sge sge = { (uintptr_t)memory, 8, mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_RDMA_WRITE,
				  .send_flags = IBV_SEND_SIGNALED },
			   *bad;
	struct ibv_wc wc[4];
	uint64_t posted = 0, polled = 0;

	wr.wr.rdma.remote_addr = (uintptr_t)memory + 8192;
	wr.wr.rdma.rkey = mr->rkey;
	while (!enough || posted > polled) {
		int got;

		if (!enough && posted - polled < 16) {
			need(!ibv_post_send(e->qp, &wr, &bad), "post_send");
			posted++;
		}
		got = ibv_poll_cq(e->send_cq, 4, wc);
		need(got >= 0, "poll_cq");
		for (int i = 0; i < got; i++)
			need(wc[i].status == IBV_WC_SUCCESS, "status %d", wc[i].status);
		polled += (unsigned int)got;
	}
	cq_took(e->send_cq, polled);
	e->send.posted = e->send.retired = posted;
	e->send.peaks_unknown = true;
	return NULL;
}

static void at_once(void)
{
	unsigned int rounds = on_rxe() ? 60 : 400;
	struct end *e[2][2];
	pthread_t thread[4];

	for (unsigned int i = 0; i < 2; i++)
		pair_make(e[i], &(struct plan){ 0 });
	for (unsigned int i = 0; i < 2; i++) {
		need(!pthread_create(&thread[i], NULL, make_and_destroy, (void *)(uintptr_t)rounds),
		     "a thread");
		need(!pthread_create(&thread[2 + i], NULL, post_and_poll, e[i][0]), "a thread");
	}
	for (unsigned int i = 0; i < 2; i++)
		pthread_join(thread[i], NULL);
	enough = true;
	for (unsigned int i = 2; i < 4; i++)
		pthread_join(thread[i], NULL);
	made_elsewhere(made, 2 * made);
	result("made and destroyed: %llu", (unsigned long long)made);
	step("2 threads made and destroyed while 2 others posted");
	for (unsigned int i = 0; i < 2; i++)
		pair_drop(e[i]);
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";

	device_begin();
	if (!strcmp(what, "churn")) {
		churn();
	} else if (!strcmp(what, "contexts")) {
		contexts();
	} else if (!strcmp(what, "reset")) {
		reset();
	} else if (!strcmp(what, "stale")) {
		for (unsigned int i = 0; i < 4; i++)
			stale(i & 1, i & 2);
	} else if (!strcmp(what, "flush")) {
		for (unsigned int i = 0; i < 8; i++)
			flush(i & 1, i & 2, i & 4);
	} else if (!strcmp(what, "shared")) {
		shared();
	} else if (!strcmp(what, "at_once")) {
		at_once();
	} else {
		need(false, "what? churn contexts reset stale flush shared at_once");
	}
	step("all is gone");
	device_end();
	return 0;
}
