/* SPDX-License-Identifier: MIT */
/*
 * Signaled and unsignaled requests, in the manners that programs use: a window that is kept filled,
 * one signal in so many, a tail without a signal, batches, a queue where everything signals, and
 * unsignaled ones that begin after a life of signaled ones. One completion retires all before it.
 */
#include <stdlib.h>
#include <string.h>

#include "verbs_pair.h"

static const struct request signaled;
static const struct request unsignaled = { .unsignaled = true };

static unsigned int requests(void)
{
	return on_rxe() ? 1024 : 4096;
}

/* All signaled, with at most `window` outstanding. */
static void window(unsigned int width)
{
	unsigned int sent = 0;
	struct end *e[2];

	pair_make(e, &(struct plan){ .cap.max_send_wr = 64 });
	while (sent < requests()) {
		while (sent < requests() && outstanding(&e[0]->send) < width) {
			send_each(e[0], 1, signaled);
			sent++;
		}
		if (sent == requests())
			break;
		reap_exactly(e[0]->send_cq, width < 5 ? 1 : 5);
		if (sent < 2 * width)
			step("the first of a window of %u are done", width);
	}
	step("a window of %u, some of it outstanding", width);
	reap_sends(e[0]);
	step("a window of %u", width);
	pair_drop(e);
}

/* One signaled request in `every`; the queue holds two such rounds. */
static void one_in(unsigned int every)
{
	struct end *e[2];

	pair_make(e, &(struct plan){ .cap.max_send_wr = 2 * every });
	for (unsigned int i = 0; i < requests(); i++) {
		send_each(e[0], 1, i % every == every - 1 ? signaled : unsignaled);
		if (i == every / 2)
			step("one in %u: none was signaled yet", every);
		if (i % every == every - 1) {
			if (i < 3 * every)
				step("one in %u: before the poll", every);
			reap_exactly(e[0]->send_cq, 1);
			if (i < 3 * every)
				step("one in %u: after the poll", every);
		}
	}
	step("one in %u: the end", every);
	pair_drop(e);
}

/* The last requests have no signal: they stay outstanding until a later one completes. */
static void tail(void)
{
	struct end *e[2];

	pair_make(e, &(struct plan){ .cap.max_send_wr = 64 });
	send_each(e[0], 7, signaled);
	send_each(e[0], 5, unsignaled);
	step("7 signaled, 5 not, no poll");
	reap_exactly(e[0]->send_cq, 3);
	step("3 polled");
	reap_exactly(e[0]->send_cq, 4);
	step("all 7 polled, 5 remain");
	send_each(e[0], 2, unsignaled);
	step("7 remain");
	send_each(e[0], 1, signaled);
	step("8 remain, the last is signaled");
	reap_sends(e[0]);
	step("none remains");
	send_each(e[0], 3, unsignaled);
	step("3 remain, to the end");
	end_state(e[0], IBV_QPS_RESET);
	step("RESET discards them");
	pair_drop(e);
}

/* Unsignaled ones begin while signaled ones are outstanding, at many a place of the ring. */
static void late(void)
{
	struct end *e[2];

	for (unsigned int lead = 0; lead <= 40; lead += 20) {
		pair_make(e, &(struct plan){ .cap.max_send_wr = 16 });
		for (unsigned int i = 0; i < lead; i++) {
			send_each(e[0], 1, signaled);
			reap_exactly(e[0]->send_cq, 1);
		}
		send_each(e[0], 4, signaled);
		send_each(e[0], 3, unsignaled);
		send_each(e[0], 2, signaled);
		send_each(e[0], 1, unsignaled);
		for (unsigned int i = 0; i < 6; i++) {
			step("after %u signaled ones: %u completions of a mixed list", lead, i);
			reap_exactly(e[0]->send_cq, 1);
		}
		step("after %u signaled ones: the unsignaled one remains", lead);
		pair_drop(e);
	}
}

static void all_signal(void)
{
	struct end *e[2];

	pair_make(e, &(struct plan){ .cap.max_send_wr = 64, .sig_all = true });
	for (unsigned int round = 0; round < 50; round++) {
		send_each(e[0], 20, unsignaled); /* the queue signals them nevertheless */
		send_each(e[0], 13, signaled);
		reap_exactly(e[0]->send_cq, 30);
		if (round == 10)
			step("sq_sig_all: 3 are outstanding");
		reap_exactly(e[0]->send_cq, 3);
	}
	step("sq_sig_all");
	pair_drop(e);
}

/* Lists of all lengths, signaled by a pattern that is not in step with them. */
static void batches(void)
{
	struct request list[32];
	unsigned int number = 0, n;
	struct end *e[2];

	pair_make(e, &(struct plan){ .cap.max_send_wr = 64, .cap.max_recv_wr = 64 });
	for (unsigned int round = 0; round < 400; round++) {
		n = 1 + round * 7 % 31;
		for (unsigned int i = 0; i < n; i++, number++)
			list[i] = number % 11 % 3 == 1 ? signaled : unsignaled;
		list[n - 1].unsignaled = false;
		post_sends(e[0], list, n, NOT_AT_ALL);
		if (round % 57 == 3)
			step("a list of %u is out", n);
		reap_sends(e[0]);
		if (round % 57 == 3)
			step("a list of %u is done", n);
	}
	step("batches");
	pair_drop(e);
}

/* As many outstanding as there can be: on rxe more than 16 bits can number. mlx5 makes a queue
 * deeper that has nothing but writes to hold. */
static void deep(void)
{
	const char *api = getenv("QPG_API");
	unsigned int half = on_rxe() ? 70000 : api && !strcmp(api, "extended") ? 16380 : 4000;
	struct end *e[2];

	pair_make(e, &(struct plan){ .cap.max_send_wr = 2 * half + 4, .cqe = 100 });
	for (unsigned int round = 0; round < 2; round++) {
		send_each(e[0], half, unsignaled);
		send_each(e[0], 1, signaled);
	}
	step("%u requests, two of them signaled", 2 * half + 2);
	reap_exactly(e[0]->send_cq, 1);
	step("the first half of %u is done", 2 * half + 2);
	reap_exactly(e[0]->send_cq, 1);
	step("all %u are done", 2 * half + 2);
	pair_drop(e);
}

/* Both directions at once, receives with and without a completion of their own for the sender. */
static void both_ways(void)
{
	struct request send = { .opcode = IBV_WR_SEND },
		       quiet = { .opcode = IBV_WR_SEND, .unsignaled = true };
	struct end *e[2];

	pair_make(e, &(struct plan){ .cap = { .max_send_wr = 64, .max_recv_wr = 64 } });
	for (unsigned int round = 0; round < 40; round++) {
		for (unsigned int i = 0; i < 2; i++)
			recv_each(e[i], 32);
		for (unsigned int i = 0; i < 2; i++) {
			send_each(e[i], 31, quiet);
			send_each(e[i], 1, send);
		}
		if (round == 7)
			step("both ways: all is posted");
		for (unsigned int i = 0; i < 2; i++) {
			reap_recvs(e[i]);
			reap_sends(e[i]);
		}
	}
	step("both ways");
	pair_drop(e);
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";

	device_begin();
	if (!strcmp(what, "window")) {
		window(37);
		window(1);
	} else if (!strcmp(what, "one_in")) {
		one_in(64);
		one_in(3);
	} else if (!strcmp(what, "tail")) {
		tail();
	} else if (!strcmp(what, "late")) {
		late();
	} else if (!strcmp(what, "all_signal")) {
		all_signal();
	} else if (!strcmp(what, "batches")) {
		batches();
	} else if (!strcmp(what, "deep")) {
		deep();
	} else if (!strcmp(what, "both_ways")) {
		both_ways();
	} else {
		need(false, "what? window one_in tail late all_signal batches deep both_ways");
	}
	step("all is gone");
	device_end();
	return 0;
}
