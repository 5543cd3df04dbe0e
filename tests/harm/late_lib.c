/* SPDX-License-Identifier: MIT */
/*
 * A library whose constructor makes and destroys a QP, also on a thread of its own that it waits for while the
 * loader holds its lock, and whose destructor makes one at the very end of the program.
 */
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;

static void make_one(const char *when)
{
	struct ibv_qp_init_attr a = { .qp_type = IBV_QPT_RC, .send_cq = cq, .recv_cq = cq };
	struct ibv_qp *qp;

	a.cap = (struct ibv_qp_cap){ 8, 8, 1, 1, 0 };
	qp = ibv_create_qp(pd, &a);
	printf("%s: %s\n", when, qp && !ibv_destroy_qp(qp) ? "made" : "not made");
	fflush(stdout);
}

static void *on_thread(void *arg)
{
	make_one(arg);
	return NULL;
}

__attribute__((constructor)) static void early(void)
{
	const char *name = getenv("QPG_DEVICE");
	struct ibv_device **list = ibv_get_device_list(NULL);
	pthread_t thread;

	for (struct ibv_device **d = list; d && *d && !context; d++)
		if (!name || !*name || !strcmp(name, ibv_get_device_name(*d)))
			context = ibv_open_device(*d);
	if (list)
		ibv_free_device_list(list);
	if (!context)
		return;
	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	/* with all that is still to be looked up */
	if (!pthread_create(&thread, NULL, on_thread, "thread of the constructor"))
		pthread_join(thread, NULL);
}

__attribute__((destructor)) static void late(void)
{
	if (context)
		make_one("destructor");
}
