/* SPDX-License-Identifier: MIT */
/*
 * Several threads on the same queues: 4 threads post to 2 queue pairs, signaled and unsignaled
 * requests mixed, single and in lists, while 2 threads poll the same 2 CQs. A post on a full
 * queue is a failing call, counted, and tried again. In the end nothing is outstanding.
 *
 *     threads POSTERS REQUESTS ONE_CQ
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "verbs_pair.h"

#define QPS	 2
#define POLLERS	 2
#define LIST	 3
#define PATIENCE 300

static struct end *senders[QPS], *receivers[QPS];
static struct ibv_cq *polled[QPS];
static unsigned int posters, requests;
static _Atomic unsigned int posting;
static _Atomic uint64_t posted[QPS], signaled[QPS], refused[QPS], not_posted[QPS], completed[QPS];
static _Atomic uint64_t polled_from[QPS];

static void fill(struct ibv_send_wr *wr, struct ibv_sge *sge, unsigned int n, unsigned int first,
		 unsigned int seed)
{
	for (unsigned int i = 0; i < n; i++) {
		unsigned int number = first + i;
		/* about one in three signals; the last of a thread always does */
		bool signals = (number * 2654435761u + seed) >> 30 == 0 || number % 5 == 0 ||
			       number == requests - 1;

		wr[i] = (struct ibv_send_wr){
			.wr_id = signals,
			.next = i + 1 < n ? &wr[i + 1] : NULL,
			.sg_list = sge,
			.num_sge = 1,
			.opcode = IBV_WR_RDMA_WRITE,
			.send_flags = signals ? IBV_SEND_SIGNALED : 0,
		};
		wr[i].wr.rdma.remote_addr = (uintptr_t)memory + 8192;
		wr[i].wr.rdma.rkey = mr->rkey;
	}
}

static void *post(void *arg)
{
	unsigned int me = (unsigned int)(uintptr_t)arg, qp = me % QPS, done = 0;
	struct ibv_sge sge = { (uintptr_t)memory + 64 * me, 8, mr->lkey };
	struct ibv_send_wr wr[LIST], *bad;

	while (done < requests) {
		unsigned int n = done % 7 == 3 ? LIST : 1, taken;
		int rc;

		n = n < requests - done ? n : requests - done;
		fill(wr, &sge, n, done, me);
		bad = NULL;
		rc = ibv_post_send(senders[qp]->qp, wr, &bad);
		need(!rc == !bad, "a post returned %d, and bad_wr is %p", rc, (void *)bad);
		taken = rc ? (unsigned int)(bad - wr) : n;
		for (unsigned int i = 0; i < taken; i++)
			signaled[qp] += wr[i].wr_id;
		posted[qp] += taken;
		if (rc) {
			refused[qp]++;
			not_posted[qp] += n - taken;
			sched_yield();
		}
		done += taken;
	}
	posting--;
	return NULL;
}

static unsigned int qp_of(uint32_t number)
{
	for (unsigned int i = 0; i < QPS; i++)
		if (senders[i]->qp->qp_num == number)
			return i;
	need(false, "a completion of QP %u", number);
	return 0;
}

static bool all_done(void)
{
	if (posting)
		return false;
	for (unsigned int i = 0; i < QPS; i++)
		if (completed[i] != signaled[i])
			return false;
	return true;
}

static void *poll(void *arg)
{
	struct ibv_wc wc[8];
	unsigned int turn = (unsigned int)(uintptr_t)arg, idle = 0;

	while (!all_done()) {
		unsigned int cq = turn++ % QPS;
		int got = ibv_poll_cq(polled[cq], 1 + (int)(turn % 8), wc);

		need(got >= 0, "poll_cq: %d", got);
		polled_from[cq] += (unsigned int)got;
		for (int i = 0; i < got; i++) {
			need(wc[i].status == IBV_WC_SUCCESS, "status %d", wc[i].status);
			completed[qp_of(wc[i].qp_num)]++;
		}
		idle = got ? 0 : idle + 1;
		if (idle > 100)
			usleep(100);
		need(idle < PATIENCE * 10000, "no completion in %d seconds", PATIENCE);
	}
	return NULL;
}

static void account(void)
{
	for (unsigned int i = 0; i < QPS; i++) {
		struct account *a = &senders[i]->send;

		a->posted = a->retired = posted[i];
		a->refused[QUEUE_FULL] = refused[i];
		a->not_posted = not_posted[i];
		a->peaks_unknown = true;
		need(posted[i] == (uint64_t)posters / QPS * requests, "%llu posted",
		     (unsigned long long)posted[i]);
	}
}

int main(int argc, char **argv)
{
	pthread_t thread[16 + POLLERS];
	struct plan plan = { .cap.max_send_wr = 64, .cqe = 1024 };
	bool one_cq = argc > 3 && atoi(argv[3]);

	posters = argc > 1 ? (unsigned int)atoi(argv[1]) : 4;
	requests = argc > 2 ? (unsigned int)atoi(argv[2]) : 5000;
	need(posters && posters <= 16, "%u threads", posters);
	device_begin();
	for (unsigned int i = 0; i < QPS; i++) {
		if (one_cq && i) {
			plan.send_cq = senders[0]->send_cq;
			plan.recv_cq = senders[0]->recv_cq;
		}
		senders[i] = end_make(&plan);
		plan.send_cq = plan.recv_cq = NULL;
		receivers[i] = end_make(&plan);
		end_to(receivers[i], IBV_QPS_RTS, senders[i]);
		end_to(senders[i], IBV_QPS_RTS, receivers[i]);
		polled[i] = senders[i]->send_cq;
	}
	posting = posters;
	for (uintptr_t i = 0; i < posters + POLLERS; i++)
		need(!pthread_create(&thread[i], NULL, i < posters ? post : poll, (void *)i),
		     "a thread");
	for (unsigned int i = 0; i < posters + POLLERS; i++)
		pthread_join(thread[i], NULL);
	account();
	for (unsigned int i = 0; i < QPS; i++)
		cq_took(polled[i], polled_from[i]);
	for (unsigned int i = 0; i < QPS; i++)
		result("posted %llu", (unsigned long long)posted[i]);
	step("%u threads posted %u requests each", posters, requests);
	/* the queues are as good as new: the count is exact again */
	for (unsigned int i = 0; i < QPS; i++) {
		send_each(senders[i], 3, (struct request){ .unsignaled = true });
		send_each(senders[i], 1, (struct request){ 0 });
	}
	step("4 more are outstanding");
	for (unsigned int i = 0; i < QPS; i++)
		reap_exactly(senders[i]->send_cq, 1);
	step("and done");
	return 0;
}
