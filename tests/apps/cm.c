/* SPDX-License-Identifier: MIT */
/*
 * The connection manager, both ends in one process, at the address given: a connection that is accepted and one
 * that is rejected, through endpoints; a QP by rdma_create_qp with a CQ of the program's own; or, with "sockets", two
 * rsockets that talk to each other. Tells what lives after each step, by the names of the report.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <rdma/rsocket.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "verbs_pair.h"

#define PORT "7471"

static const char *address;
static pthread_barrier_t listening;

static struct rdma_addrinfo *info(int flags)
{
	struct rdma_addrinfo hints = { .ai_flags = flags, .ai_port_space = RDMA_PS_TCP }, *res;

	need(!rdma_getaddrinfo((char *)(uintptr_t)address, (char *)PORT, &hints, &res),
	     "getaddrinfo: %s", strerror(errno));
	return res;
}

static struct ibv_qp_init_attr request(void)
{
	return (struct ibv_qp_init_attr){
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1 }
	};
}

static struct rdma_cm_id *endpoint(int flags)
{
	struct ibv_qp_init_attr a = request();
	struct rdma_addrinfo *res = info(flags);
	struct rdma_cm_id *id;

	need(!rdma_create_ep(&id, res, NULL, &a), "create_ep: %s", strerror(errno));
	rdma_freeaddrinfo(res);
	return id;
}

/* Accepts the first, rejects the second. */
static void *listener(void *arg)
{
	struct rdma_cm_id *listen_id = endpoint(RAI_PASSIVE), *id[2];

	need(!rdma_listen(listen_id, 2), "listen: %s", strerror(errno));
	pthread_barrier_wait(&listening);
	for (unsigned int i = 0; i < 2; i++) {
		need(!rdma_get_request(listen_id, &id[i]), "get_request: %s", strerror(errno));
		if (!i)
			need(!rdma_accept(id[0], NULL), "accept: %s", strerror(errno));
		else
			need(!rdma_reject(id[1], NULL, 0), "reject: %s", strerror(errno));
	}
	rdma_destroy_ep(id[1]);
	rdma_disconnect(id[0]);
	rdma_destroy_ep(id[0]);
	rdma_destroy_ep(listen_id);
	(void)arg;
	return NULL;
}

static void by_hand(void)
{
	struct ibv_qp_init_attr a = request();
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(7472) };
	struct rdma_cm_id *id;
	struct ibv_cq *cq;

	need(inet_pton(AF_INET, address, &to.sin_addr) == 1, "an address");
	need(!rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP), "create_id");
	need(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 2000), "resolve_addr");
	need(!rdma_resolve_route(id, 2000), "resolve_route");
	cq = ibv_create_cq(id->verbs, 64, NULL, NULL, 0);
	need(cq, "create_cq");
	a.send_cq = a.recv_cq = cq;
	need(!rdma_create_qp(id, NULL, &a), "create_qp: %s", strerror(errno));
	printf("entry_points rdma_create_qp=1\n");
	step_alone("a QP by rdma_create_qp");
	errno = 0;
	result("connecting to nobody: %d, %s", rdma_connect(id, NULL), strerror(errno));
	rdma_destroy_qp(id);
	need(!ibv_destroy_cq(cq), "destroy_cq");
	need(!rdma_destroy_id(id), "destroy_id");
}

static void endpoints(void)
{
	struct rdma_conn_param p = { 0 };
	struct rdma_cm_id *id[2];
	pthread_t thread;

	need(!pthread_create(&thread, NULL, listener, NULL), "a thread");
	pthread_barrier_wait(&listening);
	for (unsigned int i = 0; i < 2; i++) {
		id[i] = endpoint(0);
		errno = 0;
		result("connect %u: %d, %s", i, rdma_connect(id[i], &p), strerror(errno));
	}
	step_alone("one was accepted, one rejected");
	rdma_disconnect(id[0]);
	for (unsigned int i = 0; i < 2; i++)
		rdma_destroy_ep(id[i]);
	pthread_join(thread, NULL);
	by_hand();
	printf("totals live_qps=0 live_cqs=0\n");
	step_alone("all is given back");
}

static void *echo(void *arg)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(7473) };
	int s = rsocket(AF_INET, SOCK_STREAM, 0), peer;
	char byte;

	need(inet_pton(AF_INET, address, &at.sin_addr) == 1, "an address");
	need(s >= 0 && !rbind(s, (struct sockaddr *)&at, sizeof(at)) && !rlisten(s, 1),
	     "rlisten: %s", strerror(errno));
	pthread_barrier_wait(&listening);
	peer = raccept(s, NULL, NULL);
	need(peer >= 0, "raccept: %s", strerror(errno));
	while (rrecv(peer, &byte, 1, 0) == 1)
		need(rsend(peer, &byte, 1, 0) == 1, "rsend");
	rclose(peer);
	rclose(s);
	(void)arg;
	return NULL;
}

static void sockets(void)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(7473) };
	pthread_t thread;
	char byte = 'x';
	int s;

	need(!pthread_create(&thread, NULL, echo, NULL), "a thread");
	pthread_barrier_wait(&listening);
	need(inet_pton(AF_INET, address, &to.sin_addr) == 1, "an address");
	s = rsocket(AF_INET, SOCK_STREAM, 0);
	need(s >= 0 && !rconnect(s, (struct sockaddr *)&to, sizeof(to)), "rconnect: %s",
	     strerror(errno));
	need(rsend(s, &byte, 1, 0) == 1 && rrecv(s, &byte, 1, 0) == 1, "an echo");
	result("an echo: %c", byte);
	printf("totals live_qps=2\n");
	step_alone("two rsockets that are connected");
	rshutdown(s, SHUT_RDWR);
	rclose(s);
	pthread_join(thread, NULL);
	printf("totals live_qps=0\n");
	step_alone("they are closed");
}

int main(int argc, char **argv)
{
	need(argc > 1, "cm ADDRESS [sockets]");
	address = argv[1];
	pthread_barrier_init(&listening, NULL, 2);
	if (argc > 2 && !strcmp(argv[2], "sockets"))
		sockets();
	else
		endpoints();
	return 0;
}
