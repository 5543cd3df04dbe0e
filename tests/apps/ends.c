/* SPDX-License-Identifier: MIT */
/*
 * A process that holds queue pairs and works while it forks a thousand children, some at a time. They end in every
 * way there is, and before that make no verbs call, or open the device and work on a queue pair of their own, or
 * post to one of the parent's (for which ibv_fork_init must not have kept its memory from them):
 *
 *     ends CHILDREN
 *
 * Of each child it prints "child PID USE POSTED STATE", the last what a report will say, of itself "parent PID POSTED". Under the name "ends nothing" it is
 * what some children become by exec.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "verbs_pair.h"

#define AT_ONCE 4

enum use { NOTHING, OWN, INHERITED, USES };
static const char *const use_names[USES] = { "nothing", "own", "inherited" };

static void by_exit(void)
{
	exit(0);
}

static void by_underscore_exit(void)
{
	_exit(0);
}

static void by_abort(void)
{
	abort();
}

static void by_kill(void)
{
	kill(getpid(), SIGKILL);
}

static void by_exit_group(void)
{
	syscall(SYS_exit_group, 0);
}

static void by_quick_exit(void)
{
	quick_exit(0);
}

static void by_fault(void)
{
	raise(SIGSEGV);
}

static void by_exec(void)
{
	execl("/proc/self/exe", "ends", "nothing", (char *)NULL);
}

static void by_exec_of_another(void)
{
	execl("/bin/true", "true", (char *)NULL);
}

static void by_return(void)
{
}

/* How a child ends, and the status that its parent sees: an exit status, or a signal as 1000 and its number. */
static const struct way {
	void (*end)(void);
	int status;
	const char *state;
} ways[] = {
	{ by_exit, 0, "exited" },
	{ by_underscore_exit, 0, "died" },
	{ by_abort, 1000 + SIGABRT, "died" },
	{ by_kill, 1000 + SIGKILL, "died" },
	{ by_exit_group, 0, "died" },
	{ by_quick_exit, 0, "died" },
	{ by_fault, 1000 + SIGSEGV, "died" },
	{ by_exec, 0, "died" },
	{ by_exec_of_another, 0, "died" },
	{ by_return, 0, "exited" },
};
enum { WAYS = sizeof(ways) / sizeof(ways[0]) };

/* A queue pair of the child's own, with so many receives posted. */
static void work(unsigned int posts)
{
	struct ibv_context *c = device_open();
	struct ibv_pd *own_pd = ibv_alloc_pd(c);
	struct ibv_cq *cq = ibv_create_cq(c, 64, NULL, NULL, 0);
	struct ibv_qp_init_attr a = { .qp_type = IBV_QPT_RC, .send_cq = cq, .recv_cq = cq };
	struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	struct ibv_recv_wr wr = { 0 }, *bad;
	struct ibv_qp *qp;

	a.cap = (struct ibv_qp_cap){ 8, 16, 1, 1, 0 };
	need(own_pd && cq, "PD and CQ of a child");
	qp = ibv_create_qp(own_pd, &a);
	need(qp, "create_qp of a child");
	need(!ibv_modify_qp(qp, &init,
			    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
	     "INIT");
	for (unsigned int i = 0; i < posts; i++)
		need(!ibv_post_recv(qp, &wr, &bad), "post_recv of a child");
}

/* What it is told of its posts does not matter: the device may not live through a fork. */
static void use_what_is_inherited(struct end *e, unsigned int posts)
{
	struct ibv_recv_wr wr = { 0 }, *bad;

	for (unsigned int i = 0; i < posts; i++)
		ibv_post_recv(e->qp, &wr, &bad);
}

/* Returns in the children that end by returning from main. */
static void child(unsigned int number, struct end *e)
{
	enum use use = number / WAYS % USES;
	unsigned int posts = use == NOTHING ? 0 : 1 + number % 7;

	printf("child %ld %s %u %s\n", (long)getpid(), use_names[use], posts,
	       ways[number % WAYS].state);
	fflush(stdout);
	if (use == OWN)
		work(posts);
	else if (use == INHERITED)
		use_what_is_inherited(e, posts);
	ways[number % WAYS].end();
}

static void wait_for(pid_t pid, unsigned int number)
{
	int status = -1;

	need(waitpid(pid, &status, 0) == pid, "a child");
	status = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
	need(status == ways[number % WAYS].status, "child %u: status %d", number, status);
}

int main(int argc, char **argv)
{
	const struct rlimit no_core = { 0, 0 };
	unsigned int children = argc > 1 ? (unsigned int)atoi(argv[1]) : 0;
	pid_t pid[AT_ONCE];
	struct end *e[2];

	if (!children)
		return 0;
	setrlimit(RLIMIT_CORE, &no_core);
	device_begin();
	pair_make(e, &(struct plan){ .cap = { .max_send_wr = 32, .max_recv_wr = 64 } });
	recv_each(e[1], 5);
	fflush(stdout);
	for (unsigned int i = 0; i < children; i++) {
		unsigned int place = i % AT_ONCE;

		if (i >= AT_ONCE)
			wait_for(pid[place], i - AT_ONCE);
		pid[place] = fork();
		if (!pid[place]) {
			child(i, e[1]);
			return 0;
		}
		send_each(e[0], 1, (struct request){ 0 });
		reap_sends(e[0]);
	}
	for (unsigned int i = children < AT_ONCE ? 0 : children - AT_ONCE; i < children; i++)
		wait_for(pid[i % AT_ONCE], i);
	printf("parent %ld %u\n", (long)getpid(), children);
	return 0;
}
