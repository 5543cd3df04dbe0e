/* SPDX-License-Identifier: MIT */
/*
 * Between NICs: small messages over abstract unix datagram sockets, one for each
 * NIC id of a user, and payload straight from memory to memory by
 * process_vm_readv and process_vm_writev. Messages to the own NIC take a queue
 * in memory and are otherwise treated alike. A full socket (it holds ten
 * datagrams) makes messages wait here, in order for each peer.
 */
#include "mlx5dev.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

/* A message that waits, cut after its last segment. */
struct queued {
	struct queued *next;
	struct message m;
};

struct queue {
	struct queued *first, **last;
};

static int sock = -1;
static struct queue to_nic[NIC_IDS]; /* the own NIC's holds what it sent itself */
static unsigned backlog;	     /* messages in the queues of others */

static size_t message_size(const struct message *m)
{
	return offsetof(struct message, seg) + m->segs * sizeof(m->seg[0]);
}

static socklen_t address(struct sockaddr_un *a, int id)
{
	int n;

	memset(a, 0, sizeof(*a));
	a->sun_family = AF_UNIX;
	n = snprintf(a->sun_path + 1, sizeof(a->sun_path) - 1, "mlx5dev/%u/%d", (unsigned)geteuid(),
		     id);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

int wire_open(void)
{
	struct sockaddr_un a;
	socklen_t len;
	int bytes = 1 << 20;

	for (int i = 0; i < NIC_IDS; i++)
		to_nic[i] = (struct queue){ NULL, &to_nic[i].first };
	backlog = 0;
	sock = (int)syscall(SYS_socket, AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (sock < 0)
		return errno;
	setsockopt(sock, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
	/* Id 0 would make QP numbers that look like the special QPs 0 and 1. */
	for (int i = 0; i < NIC_IDS - 1; i++) {
		int id = 1 + ((int)getpid() + i) % (NIC_IDS - 1);

		len = address(&a, id);
		if (!bind(sock, (struct sockaddr *)&a, len)) {
			nic.id = id;
			/* Where the kernel lets only a parent look into a process. */
			prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
			return 0;
		}
	}
	wire_close();
	return EADDRINUSE;
}

void wire_close(void)
{
	if (sock >= 0)
		syscall(SYS_close, sock);
	sock = -1;
}

int wire_fd(void)
{
	return sock;
}

static void enqueue(int id, const struct message *m)
{
	struct queued *q = malloc(offsetof(struct queued, m) + message_size(m));

	if (!q)
		_exit(2);
	q->next = NULL;
	memcpy(&q->m, m, message_size(m));
	*to_nic[id].last = q;
	to_nic[id].last = &q->next;
}

static struct queued *dequeue(int id)
{
	struct queued *q = to_nic[id].first;

	to_nic[id].first = q->next;
	if (!q->next)
		to_nic[id].last = &to_nic[id].first;
	return q;
}

/* 0, EAGAIN when the peer's socket is full, or ECONNREFUSED when it is gone. */
static int put_on_wire(int id, const struct message *m)
{
	struct sockaddr_un a;
	socklen_t len = address(&a, id);

	if (sendto(sock, m, message_size(m), MSG_NOSIGNAL, (struct sockaddr *)&a, len) >= 0)
		return 0;
	return errno == EAGAIN || errno == ENOBUFS ? EAGAIN : ECONNREFUSED;
}

/* False when there is no such NIC. */
bool wire_send(struct message *m)
{
	int id = (int)(m->dst_qp >> HANDLE_BITS) % NIC_IDS;
	int err;

	m->pid = nic.pid;
	if (id == nic.id || to_nic[id].first) {
		enqueue(id, m);
		backlog += id != nic.id;
		return true;
	}
	err = put_on_wire(id, m);
	if (err == EAGAIN) {
		enqueue(id, m);
		backlog++;
	}
	return !err || err == EAGAIN;
}

/* Is the process still there whose QP this is? */
bool wire_alive(uint32_t qpn)
{
	struct message probe = { .kind = PROBE };
	int id = (int)(qpn >> HANDLE_BITS) % NIC_IDS;

	return id == nic.id || put_on_wire(id, &probe) != ECONNREFUSED;
}

/* Ends the sleep of the own NIC. */
void wire_wake(void)
{
	struct message probe = { .kind = PROBE };

	put_on_wire(nic.id, &probe);
}

static void send_backlog(void)
{
	for (int id = 0; backlog && id < NIC_IDS; id++) {
		while (id != nic.id && to_nic[id].first) {
			if (put_on_wire(id, &to_nic[id].first->m) == EAGAIN)
				break;
			free(dequeue(id));
			backlog--;
		}
	}
}

static void receive(const struct message *m)
{
	if (m->kind == REQUEST)
		responder_request(m);
	else if (m->kind == RESPONSE)
		requester_response(m);
}

unsigned wire_poll(void)
{
	struct message m;
	unsigned seen = 0;
	ssize_t n;

	if (backlog)
		send_backlog();
	/* A bounded number, so that commands and doorbells get their turn. */
	while (seen < 64 && to_nic[nic.id].first) {
		struct queued *q = dequeue(nic.id);

		receive(&q->m);
		free(q);
		seen++;
	}
	while (seen < 64) {
		n = recv(sock, &m, sizeof(m), MSG_DONTWAIT);
		if (n < (ssize_t)offsetof(struct message, seg) || (size_t)n < message_size(&m))
			break;
		receive(&m);
		seen++;
	}
	return seen;
}

/* ---- payload ---- */

/* Cuts up to n ranges from byte `skip` on into at most IOV pieces; returns how many. */
static unsigned cut(struct iovec *iov, const struct range *r, unsigned n, uint64_t skip,
		    uint64_t most)
{
	unsigned used = 0;

	for (unsigned i = 0; i < n && most; i++) {
		uint64_t len = r[i].len;

		if (skip >= len) {
			skip -= len;
			continue;
		}
		len -= skip;
		if (len > most)
			len = most;
		iov[used].iov_base = (void *)(uintptr_t)(r[i].addr + skip);
		iov[used++].iov_len = len;
		most -= len;
		skip = 0;
	}
	return used;
}

/*
 * Copies len bytes between another process (or this one: the detour by the kernel
 * turns a wild address into an error instead of a signal) and this one. By bare
 * system calls, because sanitizers replace the functions. 0, EFAULT, or ESRCH when
 * the process is gone.
 */
int payload_copy(pid_t pid, const struct range *theirs, unsigned n_theirs, const struct range *ours,
		 unsigned n_ours, uint64_t len, bool to_them)
{
	struct iovec a[MAX_SEGS + 1], b[MAX_SEGS + 1];
	uint64_t done = 0;

	while (done < len) {
		uint64_t most = len - done < 1 << 20 ? len - done : 1 << 20;
		unsigned na = cut(a, ours, n_ours, done, most);
		unsigned nb = cut(b, theirs, n_theirs, done, most);
		long n = syscall(to_them ? SYS_process_vm_writev : SYS_process_vm_readv, (long)pid,
				 a, (long)na, b, (long)nb, 0l);

		if (n <= 0)
			return n < 0 && errno == ESRCH ? ESRCH : EFAULT;
		done += (uint64_t)n;
	}
	return 0;
}
