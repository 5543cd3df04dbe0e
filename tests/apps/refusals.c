/* SPDX-License-Identifier: MIT */
/*
 * Posts that are refused, for every reason and in every manner: one request at a time and lists,
 * lists that are taken in part, on both sides of a queue pair and on an SRQ. What was posted and
 * what was not is told by verbs_pair.c.
 */
#include <stdlib.h>
#include <string.h>

#include "verbs_pair.h"

#define BEYOND 7

static const struct request one;

/* The largest list whose first request is what the others are too. */
static void fill(struct request *list, unsigned int n, struct request r)
{
	for (unsigned int i = 0; i < n; i++)
		list[i] = r;
}

/* Sends that the peer lets wait, until the queue takes no more. */
static void fill_up(struct end *e)
{
	while (post_sends(e, &WAITING, 1, QUEUE_FULL))
		;
}

/* Everything that waits is received and done. */
static void release(struct end *e[2])
{
	unsigned int n = (unsigned int)(e[0]->sends_with_receive - e[1]->recv.posted), part;

	for (; n; n -= part) {
		part = n < e[1]->cap.max_recv_wr ? n : e[1]->cap.max_recv_wr;
		recv_each(e[1], part);
		reap_recvs(e[1]);
	}
	reap_sends(e[0]);
}

static void full(bool sig_all)
{
	struct request list[8];
	struct end *e[2];

	pair_make(e, &(struct plan){
			     .cap.max_send_wr = 32, .cap.max_recv_wr = 64, .sig_all = sig_all });
	fill_up(e[0]);
	for (unsigned int i = 1; i < BEYOND; i++)
		post_sends(e[0], &WAITING, 1, QUEUE_FULL);
	step("posting until full and %u beyond", BEYOND);
	fill(list, 8, WAITING);
	for (unsigned int i = 0; i < 3; i++)
		post_sends(e[0], list, 8, QUEUE_FULL);
	step("lists on a full queue");
	release(e);
	step("what waited is done");
	send_each(e[0], 20, one);
	reap_sends(e[0]);
	step("the queue works on");
	pair_drop(e);
}

/* The number of requests that the queue takes: rxe gives back a cap that is no limit. */
static unsigned int true_depth(struct end *e[2])
{
	unsigned int before = (unsigned int)e[0]->send.posted, depth;

	fill_up(e[0]);
	depth = (unsigned int)e[0]->send.posted - before;
	release(e);
	return depth;
}

static void full_lists(bool unsignaled)
{
	struct request r = { .opcode = IBV_WR_SEND, .unsignaled = unsignaled };
	struct request list[64];
	unsigned int depth, taken;
	struct end *e[2];

	pair_make(e, &(struct plan){ .cap.max_send_wr = 16, .cap.max_recv_wr = 64 });
	depth = true_depth(e);
	fill(list, 64, r);
	list[4].unsignaled = false;
	send_each(e[0], depth - 2, r);
	taken = post_sends(e[0], list, 5, QUEUE_FULL);
	result("of a list of 5 with room for 2: %u", taken);
	step("a list of 5 with room for 2");
	post_sends(e[0], list, 5, QUEUE_FULL);
	step("the same again, with room for none");
	recv_each(e[1], depth);
	reap_recvs(e[1]);
	/* every one of the signaled is there, but they need not be the last */
	if (unsignaled) {
		step("all is received, nothing was signaled");
		fill(list, 64, one);
		/* only a completion makes room: mlx5 will refuse all, rxe may take it */
		if (on_rxe()) {
			post_sends(e[0], list, 1, NOT_AT_ALL);
			reap_sends(e[0]);
		}
	} else {
		reap_sends(e[0]);
	}
	step("what came of it");
	/* signaled and unsignaled mixed, taken in part between them */
	if (!unsignaled) {
		for (unsigned int i = 0; i < 64; i++)
			list[i].unsignaled = i % 3 != 1;
		for (unsigned int i = 0; i < 6; i++) {
			send_each(e[0], depth - 5 - i % 3, WAITING);
			post_sends(e[0], list, 20, QUEUE_FULL);
			step("a mixed list of 20 with room for %u", 5 + i % 3);
			recv_each(e[1], depth);
			reap_recvs(e[1]);
			reap_exactly(e[0]->send_cq, depth - 5 - i % 3 +
							    (i % 3 == 2	  ? 2
							     : i % 3 == 1 ? 2
									  : 2));
			step("what was signaled is done");
			if (on_rxe())
				post_sends(e[0], &one, 1, NOT_AT_ALL);
			else if (!post_sends(e[0], &one, 1, QUEUE_FULL))
				break;
			reap_sends(e[0]);
			step("and the rest with the next");
		}
	}
	pair_drop(e);
}

/* Lists longer than the queue, while requests are outstanding whose completions retire several
 * each. */
static void overlong(void)
{
	struct request quiet = { .opcode = IBV_WR_SEND, .unsignaled = true };
	struct request list[200];
	unsigned int depth;
	struct end *e[2];

	pair_make(e, &(struct plan){ .cap.max_send_wr = 16, .cap.max_recv_wr = 64 });
	depth = true_depth(e);
	for (unsigned int i = 0; i < depth; i++)
		post_sends(e[0], i % 3 ? &quiet : &WAITING, 1, NOT_AT_ALL);
	step("signaled and unsignaled by turns, until full");
	fill(list, 200, WAITING);
	post_sends(e[0], list, 200, QUEUE_FULL);
	post_sends(e[0], list, 61, QUEUE_FULL);
	step("lists of 200 and of 61");
	for (unsigned int i = 0; i < 4; i++) {
		recv_each(e[1], 3);
		reap_exactly(e[0]->send_cq, 1);
		step("%u completions are polled", i + 1);
	}
	post_sends(e[0], list, 200, QUEUE_FULL);
	step("a list of 200 with room for some");
	release(e);
	step("all of them are done");
	pair_drop(e);
}

/* Refused requests leave nothing behind: not the signal of one that never was posted. */
static void afterwards(void)
{
	struct request quiet = { .unsignaled = true }, list[8];
	struct end *e[2];

	pair_make(e, &(struct plan){ .cap.max_send_wr = 16, .cap.max_recv_wr = 64 });
	send_each(e[0], 1, quiet);
	send_each(e[0], 1, one);
	reap_sends(e[0]);
	fill_up(e[0]);
	fill(list, 8, WAITING);
	post_sends(e[0], list, 8, QUEUE_FULL);
	release(e);
	step("refused, then drained");
	send_each(e[0], 2, quiet);
	step("2 unsignaled afterwards");
	send_each(e[0], 1, one);
	reap_sends(e[0]);
	step("and a signaled one, which is done");
	pair_drop(e);
}

static void too_many_sges(void)
{
	struct end *e[2];
	struct request list[6];
	int counts[5];

	pair_make(e, &(struct plan){ .cap = { .max_send_wr = 32,
					      .max_recv_wr = 32,
					      .max_send_sge = 3,
					      .max_recv_sge = 2 } });
	for (unsigned int i = 0; i < 4; i++)
		post_sends(e[0], &(struct request){ .sge = (int)(e[0]->cap.max_send_sge + 1 + i) },
			   1, TOO_MANY_SGE);
	step("sends with too many SGEs");
	fill(list, 6, (struct request){ .sge = 2 });
	list[2].sge = (int)e[0]->cap.max_send_sge + 1;
	post_sends(e[0], list, 6, TOO_MANY_SGE);
	step("a list whose third has too many");
	list[0].sge = (int)e[0]->cap.max_send_sge + 2;
	post_sends(e[0], list, 6, TOO_MANY_SGE);
	step("a list whose first has too many");
	reap_exactly(e[0]->send_cq, (unsigned int)outstanding(&e[0]->send));
	send_each(e[0], 3, (struct request){ .sge = (int)e[0]->cap.max_send_sge });
	reap_sends(e[0]);
	step("as many as are allowed");
	for (unsigned int i = 0; i < 5; i++)
		counts[i] = 1;
	counts[3] = (int)e[1]->cap.max_recv_sge + 1;
	post_recvs(e[1], counts, 5, TOO_MANY_SGE);
	step("receives whose fourth has too many");
	post_recvs(e[1], counts + 3, 1, TOO_MANY_SGE);
	counts[3] = (int)e[1]->cap.max_recv_sge;
	post_recvs(e[1], counts, 5, NOT_AT_ALL);
	step("receives with as many as are allowed");
	pair_drop(e);
}

static void too_much_inline(void)
{
	struct request list[4], large;
	struct end *e[2];
	uint32_t most;

	pair_make(e, &(struct plan){ .cap = { .max_send_wr = 32,
					      .max_recv_wr = 32,
					      .max_send_sge = 2,
					      .max_inline_data = 100 } });
	most = e[0]->cap.max_inline_data;
	large = (struct request){ .inlined = most + 1 };
	send_each(e[0], 3, (struct request){ .inlined = 20 });
	post_sends(e[0], &large, 1, INLINE_TOO_BIG);
	large.sge = 2;
	post_sends(e[0], &large, 1, INLINE_TOO_BIG);
	step("inline data that is too big");
	fill(list, 4, (struct request){ .inlined = 40, .unsignaled = true });
	list[3] = large;
	post_sends(e[0], list, 4, INLINE_TOO_BIG);
	step("a list whose fourth is too big, unsignaled before");
	send_each(e[0], 1, (struct request){ .inlined = most, .sge = 2 });
	reap_sends(e[0]);
	step("as much as is allowed");
	pair_drop(e);
}

/* A QP of INIT or RTR takes no sends, one of RESET no receives. */
static void too_early(void)
{
	struct request list[3] = { 0 };
	int counts[3] = { 1, 1, 1 };
	unsigned int ran;
	struct end *e[2];

	e[0] = end_make(&(struct plan){ 0 });
	e[1] = end_make(&(struct plan){ 0 });
	post_recvs(e[0], counts, 1, BAD_STATE);
	post_recvs(e[0], counts, 3, BAD_STATE);
	step("receives in RESET");
	end_to(e[0], IBV_QPS_INIT, e[1]);
	post_recvs(e[0], counts, 2, NOT_AT_ALL);
	post_sends(e[0], &one, 1, BAD_STATE);
	step("a send in INIT");
	post_sends(e[0], list, 3, BAD_STATE);
	step("a list of sends in INIT");
	end_to(e[0], IBV_QPS_RTR, e[1]);
	post_sends(e[0], &one, 1, BAD_STATE);
	step("a send in RTR");
	end_to(e[1], IBV_QPS_RTS, e[0]);
	end_to(e[0], IBV_QPS_RTS, e[1]);
	ran = (unsigned int)outstanding(&e[0]->send);
	result("refused and yet outstanding: %u", ran);
	send_each(e[0], 2, one);
	reap_exactly(e[0]->send_cq, ran + 2);
	step("sends in RTS");
	end_state(e[0], IBV_QPS_RESET);
	step("RESET");
	if (!on_rxe()) { /* there it would run later, at an address of its own choosing */
		post_sends(e[0], &one, 1, BAD_STATE);
		step("a send after RESET");
	}
	pair_drop(e);
}

static void other_reasons(void)
{
	struct request wrong = { .opcode = on_rxe() ? IBV_WR_ATOMIC_FETCH_AND_ADD : 100 };
	struct request list[3] = { 0 };
	struct end *e[2];

	/* rxe refuses an atomic of another size than 8, mlx5 an operation that there is not */
	if (on_rxe())
		wrong.sge = 2;
	pair_make(e, &(struct plan){ .cap.max_send_sge = 2 });
	if (!on_rxe()) {
		post_sends(e[0], &wrong, 1, OTHER);
		step("an operation that there is not");
		list[1] = wrong;
		post_sends(e[0], list, 3, OTHER);
		step("the same within a list");
		reap_sends(e[0]);
	}
	pair_drop(e);
}

static void receives_full(void)
{
	int counts[8] = { 1, 1, 1, 1, 1, 1, 1, 1 };
	unsigned int depth;
	struct end *e[2];

	pair_make(e, &(struct plan){ .cap = { .max_recv_wr = 20, .max_recv_sge = 2 } });
	while (post_recvs(e[1], counts, 1, QUEUE_FULL))
		;
	depth = (unsigned int)e[1]->recv.posted;
	for (unsigned int i = 1; i < BEYOND; i++)
		post_recvs(e[1], counts, 1, QUEUE_FULL);
	step("receives until full and %u beyond", BEYOND);
	post_recvs(e[1], counts, 8, QUEUE_FULL);
	step("a list of receives on a full queue");
	for (unsigned int left = depth; left;) {
		unsigned int part = left < 10 ? left : 10;

		send_each(e[0], part, WAITING);
		reap_sends(e[0]);
		left -= part;
	}
	reap_recvs(e[1]);
	step("all are used");
	for (unsigned int i = 0; i < depth - 3; i++)
		post_recvs(e[1], counts, 1, NOT_AT_ALL);
	result("of a list of 8 with room for 3: %u", post_recvs(e[1], counts, 8, QUEUE_FULL));
	step("a list of 8 receives with room for 3");
	pair_drop(e);
}

static void srq(void)
{
	int counts[6] = { 1, 1, 1, 1, 1, 1 };
	struct shared_queue *s = srq_make(20, 2);
	struct end *e[2];
	unsigned int depth;

	pair_make(e, &(struct plan){ .srq = s, .cqe = 200 });
	counts[0] = (int)s->attr.max_sge + 1;
	post_srq_recvs(s, counts, 1, TOO_MANY_SGE);
	counts[0] = 1;
	counts[4] = (int)s->attr.max_sge + 1;
	post_srq_recvs(s, counts, 6, TOO_MANY_SGE);
	step("an SRQ and too many SGEs");
	counts[4] = 1;
	while (post_srq_recvs(s, counts, 1, QUEUE_FULL))
		;
	depth = (unsigned int)s->recv.posted;
	for (unsigned int i = 1; i < BEYOND; i++)
		post_srq_recvs(s, counts, 1, QUEUE_FULL);
	step("an SRQ until full and %u beyond", BEYOND);
	send_each(e[0], 3, WAITING);
	reap_exactly(e[0]->send_cq, 3);
	reap_exactly(e[1]->recv_cq, 3);
	result("of a list of 6 with room for 3: %u",
	       post_srq_recvs(s, counts, 6, QUEUE_FULL) + (depth ? 0 : 1));
	step("a list of 6 with room for 3");
	pair_drop(e);
	srq_drop(s);
}

static void datagrams(void)
{
	struct request list[5];
	struct end *e = end_make(&(struct plan){
		.type = IBV_QPT_UD, .cap = { .max_send_sge = 2, .max_inline_data = 32 } });

	fill(list, 5, one);
	end_to(e, IBV_QPS_INIT, e);
	post_sends(e, list, 1, BAD_STATE);
	step("a datagram in INIT");
	end_to(e, IBV_QPS_RTS, e);
	send_each(e, 1, one);
	reap_exactly(e->send_cq, (unsigned int)outstanding(&e->send));
	list[3].sge = (int)e->cap.max_send_sge + 1;
	post_sends(e, list, 5, TOO_MANY_SGE);
	step("datagrams whose fourth has too many SGEs");
	reap_sends(e);
	list[3].sge = 1;
	list[3].inlined = e->cap.max_inline_data + 1;
	post_sends(e, list, 5, INLINE_TOO_BIG);
	send_each(e, 1, one); /* libmlx5 rings no doorbell for those before the one too big */
	reap_sends(e);
	step("datagrams whose fourth has too much inline");
	end_drop(e);
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";

	device_begin();
	if (!strcmp(what, "full")) {
		full(false);
		full(true);
	} else if (!strcmp(what, "lists")) {
		full_lists(false);
		full_lists(true);
	} else if (!strcmp(what, "overlong")) {
		overlong();
	} else if (!strcmp(what, "afterwards")) {
		afterwards();
	} else if (!strcmp(what, "sges")) {
		too_many_sges();
	} else if (!strcmp(what, "inline")) {
		too_much_inline();
	} else if (!strcmp(what, "early")) {
		too_early();
	} else if (!strcmp(what, "other")) {
		other_reasons();
	} else if (!strcmp(what, "receives")) {
		receives_full();
	} else if (!strcmp(what, "srq")) {
		srq();
	} else if (!strcmp(what, "datagrams")) {
		datagrams();
	} else {
		need(false, "what? full lists overlong afterwards sges inline early other receives "
			    "srq datagrams");
	}
	step("all is gone");
	device_end();
	return 0;
}
