/* SPDX-License-Identifier: MIT */
/*
 * The NIC's thread: looks at the doorbell pages, lets the queue pairs that were
 * rung do their work, handles messages, and sleeps when there is nothing to do.
 * One pass runs under nic.lock, as does every command.
 *
 * A doorbell is only a hint, because the next one may overwrite it before the
 * NIC looks. The truth is the doorbell record in the program's memory, written
 * before the doorbell. So a page on which a doorbell was seen stays suspect
 * until, in a quiet moment, the records of all its QPs have been read.
 */
#include "mlx5dev.h"

#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { BF_FIRST = 0x800, BF_STEP = 0x100, BF_END = 0xc00 };

uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

struct qp *qp_of_number(uint32_t qpn)
{
	if ((int)(qpn >> HANDLE_BITS) != nic.id)
		return NULL;
	return object_get(QP, qpn & HANDLE_MASK);
}

/* Takes what lies in a doorbell register and leaves zero; zero if it was not rung. */
static uint64_t take_doorbell(const struct uar *uar, unsigned offset)
{
	uint64_t *reg = (uint64_t *)(nic.uar_pages + uar->o.handle * (size_t)PAGE_BYTES + offset);

	if (!__atomic_load_n(reg, __ATOMIC_ACQUIRE))
		return 0;
	return be64toh(__atomic_exchange_n(reg, 0, __ATOMIC_ACQ_REL));
}

/* A send doorbell is the first eight bytes of a WQE: ..., QP number, size. */
static unsigned send_doorbells(struct uar *uar)
{
	unsigned seen = 0;

	for (unsigned at = BF_FIRST; at < BF_END; at += BF_STEP) {
		uint64_t rung = take_doorbell(uar, at);
		struct qp *qp = rung ? qp_of_number((uint32_t)rung >> 8 & 0xffffff) : NULL;

		if (!rung)
			continue;
		seen++;
		uar->lapped = true;
		if (qp)
			requester_run(qp);
	}
	return seen;
}

static unsigned arm_doorbells(struct uar *uar)
{
	struct cq *cq;
	uint64_t rung = take_doorbell(uar, MLX5_CQ_DOORBELL);

	if (!rung)
		return 0;
	cq = object_get(CQ, (uint32_t)rung & 0xffffff);
	if (cq)
		cq_look_at_arm(cq);
	uar->lapped = true;
	return 1;
}

static void read_all_records(struct uar *uar)
{
	struct node *n, *next;

	uar->lapped = false;
	for (n = uar->qps.next; n != &uar->qps; n = next) {
		next = n->next;
		requester_run(owner_of(n, struct qp, of_uar));
	}
	for (n = nic.channels.next; n != &nic.channels; n = n->next) {
		struct channel *ch = owner_of(n, struct channel, all);

		for (struct node *c = ch->cqs.next; c != &ch->cqs; c = c->next)
			cq_look_at_arm(owner_of(c, struct cq, of_channel));
	}
}

static unsigned doorbells(bool quiet)
{
	unsigned seen = 0;

	for (struct node *n = nic.contexts.next; n != &nic.contexts; n = n->next) {
		struct context *ctx = owner_of(n, struct context, all);

		for (struct node *m = ctx->uars.next; m != &ctx->uars; m = m->next) {
			struct uar *uar = owner_of(m, struct uar, of_uars);
			unsigned here = send_doorbells(uar) + arm_doorbells(uar);

			seen += here;
			if (uar->lapped && !here && quiet)
				read_all_records(uar);
		}
	}
	return seen;
}

/* QPs that wait for an answer, a timer, or the rest of their window. */
static unsigned go_on(void)
{
	unsigned done = 0;
	struct node *n, *next;

	for (n = nic.waiting.next; n != &nic.waiting; n = next) {
		next = n->next;
		done += requester_run(owner_of(n, struct qp, waiting));
	}
	return done;
}

/*
 * A QP in error flushes what is still posted to it, and a receive rings no
 * doorbell. A few QPs in each pass, the first ones become the last.
 */
static unsigned flush_late(void)
{
	struct node *last = nic.in_error.prev, *n = NULL;
	unsigned done = 0;

	for (unsigned i = 0; i < 256 && n != last && last != &nic.in_error; i++) {
		struct qp *qp;

		n = nic.in_error.next;
		qp = owner_of(n, struct qp, in_error);
		list_del(n);
		list_add(&nic.in_error, n);
		done += requester_flush(qp) + responder_flush(qp);
	}
	return done;
}

static void undelivered_events(void)
{
	for (struct node *n = nic.channels.next; n != &nic.channels; n = n->next) {
		struct channel *ch = owner_of(n, struct channel, all);

		for (struct node *c = ch->cqs.next; c != &ch->cqs; c = c->next)
			if (owner_of(c, struct cq, of_channel)->event_waits)
				cq_announce(owner_of(c, struct cq, of_channel));
	}
}

static unsigned pass(unsigned idle)
{
	unsigned work;

	pthread_mutex_lock(&nic.lock);
	work = doorbells(idle > 0);
	work += wire_poll();
	work += go_on();
	/* In a busy time not at all, in a calm one before each longer sleep. */
	if (idle == 1 || idle > 24)
		work += flush_late();
	if (nic.waiting_events)
		undelivered_events();
	pthread_mutex_unlock(&nic.lock);
	return work;
}

/*
 * Spins a little after work, then sleeps ever longer: 10 us up to 2.5 ms, or 100 ms
 * while no QP can send or receive. A message ends the sleep, from another process
 * or from wire_wake().
 */
static void rest(unsigned idle)
{
	struct pollfd p = { .fd = wire_fd(), .events = POLLIN };
	struct timespec t = { 0 };
	uint64_t ns;

	if (idle < 16)
		return;
	ns = 10000ull << (idle < 64 ? (idle - 16) / 6 : 8);
	if (idle >= 64 && !nic.active_qps)
		ns = 100000000;
	t.tv_nsec = (long)ns;
	ppoll(&p, 1, &t, NULL);
}

/*
 * Hardware does not wait for a processor, but this thread must, and programs that
 * spin on a CQ leave none: a real-time priority where it may be had, else a short
 * time slice, which the scheduler (Linux 6.12) serves sooner.
 */
static void ask_for_promptness(void)
{
	struct sched_param fifo = { .sched_priority = 1 };
	struct {
		uint32_t size, policy;
		uint64_t flags;
		int32_t nice;
		uint32_t priority;
		uint64_t runtime, deadline, period;
	} slice = { .size = 48, .runtime = 100000 };

	prctl(PR_SET_TIMERSLACK, 1000);
	if (pthread_setschedparam(pthread_self(), SCHED_FIFO, &fifo))
		syscall(SYS_sched_setattr, 0l, &slice, 0l);
}

static void *engine(void *unused)
{
	unsigned idle = 0;

	(void)unused;
	prctl(PR_SET_NAME, "mlx5dev");
	ask_for_promptness();
	for (;;) {
		idle = pass(idle) ? 0 : idle + (idle < 1000);
		rest(idle);
	}
	return NULL;
}

/* No memory file: those obey RLIMIT_FSIZE. In a forked child the parent's pages are replaced. */
static int map_doorbells(void)
{
	nic.uar_pages = (uint8_t *)syscall(SYS_mmap, NULL, MAX_UARS * (size_t)PAGE_BYTES,
					   (long)(PROT_READ | PROT_WRITE),
					   (long)(MAP_SHARED | MAP_ANONYMOUS), -1l, 0l);
	return nic.uar_pages == MAP_FAILED ? errno : 0;
}

/* Starts the NIC with the first context of the process. Called under nic.lock. */
int nic_start(void)
{
	sigset_t all, old;
	pthread_attr_t attr;
	pthread_t thread;
	int err;

	if (nic.running)
		return 0;
	err = wire_open();
	if (!err)
		err = map_doorbells();
	if (err)
		return err;
	/* The program's signals are not for this thread. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 256 << 10);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	err = pthread_create(&thread, &attr, engine, NULL);
	pthread_attr_destroy(&attr);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	nic.running = !err;
	return err;
}
