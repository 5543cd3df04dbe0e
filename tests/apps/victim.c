/* SPDX-License-Identifier: MIT */
/*
 * Works at full speed until it is killed. Its last will is a file that it shares with nobody but
 * the script: for each queue pair how many requests were being posted and polled, written before
 * each call, and how many had been, written after it. Whatever instruction the kill strikes, the
 * state file must lie between.
 *
 *     victim FILE		works
 *     victim FILE tell		prints what the file says
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "verbs_pair.h"

#define PAIRS 3

struct will {
	_Atomic uint32_t qp_num;
	_Atomic uint64_t posting, posted; /* before and after the calls */
	_Atomic uint64_t polled;	  /* completions of signaled requests, after the call */
	_Atomic uint64_t retired;	  /* requests that these tell the end of */
};

static struct will *wills;

static void open_wills(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT, 0600);

	need(fd >= 0 && !ftruncate(fd, 4096), "%s", path);
	wills = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	need(wills != MAP_FAILED, "mmap");
	close(fd);
}

/* One in four is signaled; wr_id is the number of the request. */
static void *work(void *arg)
{
	struct will *w = arg;
	struct end *e[2];
	struct ibv_sge sge = { (uintptr_t)memory, 8, mr->lkey };
	struct ibv_wc wc[4];

	static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;

	pthread_mutex_lock(&making);
	pair_make(e, &(struct plan){ .cap.max_send_wr = 64 });
	pthread_mutex_unlock(&making);
	w->qp_num = e[0]->qp->qp_num;
	for (uint64_t n = 0;; n++) {
		struct ibv_send_wr wr = { .wr_id = n,
					  .sg_list = &sge,
					  .num_sge = 1,
					  .opcode = IBV_WR_RDMA_WRITE,
					  .send_flags = n % 4 == 3 ? IBV_SEND_SIGNALED : 0 },
				   *bad;
		int got;

		wr.wr.rdma.remote_addr = (uintptr_t)memory + 8192;
		wr.wr.rdma.rkey = mr->rkey;
		w->posting = n + 1;
		need(!ibv_post_send(e[0]->qp, &wr, &bad), "post_send");
		w->posted = n + 1;
		do {
			got = ibv_poll_cq(e[0]->send_cq, 4, wc);
			need(got >= 0, "poll_cq");
			for (int i = 0; i < got; i++) {
				need(wc[i].status == IBV_WC_SUCCESS, "status %d", wc[i].status);
				w->retired = wc[i].wr_id + 1;
			}
			w->polled += (unsigned int)got;
		} while (n + 1 - w->retired > 50);
	}
	return NULL;
}

static void tell(void)
{
	for (struct will *w = wills; w < wills + PAIRS; w++)
		printf("qp=%u posting=%llu posted=%llu polled=%llu retired=%llu\n", w->qp_num,
		       (unsigned long long)w->posting, (unsigned long long)w->posted,
		       (unsigned long long)w->polled, (unsigned long long)w->retired);
}

int main(int argc, char **argv)
{
	pthread_t thread[PAIRS];
	struct shared_queue *s;
	int sges = 1;

	need(argc > 1, "victim FILE");
	open_wills(argv[1]);
	if (argc > 2) {
		tell();
		return 0;
	}
	device_begin();
	s = srq_make(32, 1);
	for (unsigned int i = 0; i < 5; i++)
		post_srq_recvs(s, &sges, 1, NOT_AT_ALL);
	for (unsigned int i = 0; i < PAIRS; i++)
		need(!pthread_create(&thread[i], NULL, work, &wills[i]), "a thread");
	for (unsigned int i = 0; i < PAIRS; i++)
		while (wills[i].polled < 100)
			usleep(1000);
	result("all work");
	for (;;)
		pause();
}
