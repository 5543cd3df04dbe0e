/* SPDX-License-Identifier: MIT */
/*
 * A process that holds queue pairs and forks: children that make no verbs call, and one that opens
 * the device anew and makes a queue pair of its own. What the parent has outstanding stays as it
 * is.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "verbs_pair.h"

static void wait_for(pid_t child, const char *what)
{
	int status = -1;

	need(child > 0 && waitpid(child, &status, 0) == child, "a child");
	result("the child that %s: status %d", what, status);
}

static int life_of_its_own(void)
{
	struct ibv_context *c = device_open();
	struct ibv_pd *own_pd = ibv_alloc_pd(c);
	struct ibv_cq *cq = ibv_create_cq(c, 64, NULL, NULL, 0);
	struct ibv_qp_init_attr a = {
		.qp_type = IBV_QPT_RC, .send_cq = cq, .recv_cq = cq, .cap = { 8, 8, 1, 1, 0 }
	};
	struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	struct ibv_recv_wr wr = { 0 }, *bad;
	struct ibv_qp *qp;

	need(own_pd && cq, "PD and CQ of a child");
	qp = ibv_create_qp(own_pd, &a);
	need(qp, "create_qp of a child");
	need(!ibv_modify_qp(qp, &init,
			    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
	     "INIT");
	for (unsigned int i = 0; i < 4; i++)
		need(!ibv_post_recv(qp, &wr, &bad), "post_recv of a child");
	printf("child %ld\n", (long)getpid());
	return 0;
}

int main(void)
{
	struct end *e[2];
	pid_t child;

	need(!ibv_fork_init(), "fork_init");
	device_begin();
	pair_make(e, &(struct plan){ .cap = { .max_send_wr = 32, .max_recv_wr = 32 } });
	send_each(e[0], 3, WAITING);
	send_each(e[0], 2, (struct request){ .opcode = IBV_WR_SEND, .unsignaled = true });
	recv_each(e[0], 7);
	fflush(stdout);

	child = fork();
	if (!child)
		exit(0); /* with all destructors */
	wait_for(child, "makes no verbs call");
	child = fork();
	if (!child)
		_exit(0);
	wait_for(child, "ends at once");
	child = fork();
	if (!child) {
		int status = life_of_its_own();

		fflush(stdout);
		exit(status);
	}
	wait_for(child, "opens the device itself");

	send_each(e[0], 1, WAITING);
	recv_each(e[1], 6);
	reap_recvs(e[1]);
	reap_sends(e[0]);
	recv_each(e[0], 1);
	printf("parent %ld\n", (long)getpid());
	step("the parent went on");
	return 0;
}
