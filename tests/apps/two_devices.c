/* SPDX-License-Identifier: MIT */
/*
 * One process with several devices, of different providers, in use at once: on each a CQ and two QPs
 * connected with each other, requests posted in turns, and different counts on each.
 *
 *     two_devices DEVICE:GID_INDEX...
 *
 * On the n-th device (from 1): n * 10 writes in lists of 1 and 2, of which one in two is unsignaled, the last
 * never; n * 5 sends with as many receives; n refused for too many SGEs; n QPs made and destroyed besides.
 * Prints what the report has to say of each device.
 */
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MOST_DEVICES 8
#define PATIENCE     60 /* seconds */

struct side {
	const char *name;
	int gid_index;
	unsigned int number; /* from 1 */
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_cq *cq;
	struct ibv_qp *qp[2];
	char *memory;
	uint32_t max_send_sge;
	unsigned int writes, sends, completions;
};

static void need(bool good, const struct side *s, const char *what)
{
	if (good)
		return;
	printf("Bail out! %s: %s\n", s->name, what);
	fflush(stdout);
	exit(1);
}

static struct ibv_qp *make_qp(struct side *s)
{
	struct ibv_qp_init_attr a = { .send_cq = s->cq,
				      .recv_cq = s->cq,
				      .qp_type = IBV_QPT_RC,
				      .cap = { 64 * s->number, 32, 2, 1, 0 } };
	struct ibv_qp *qp = ibv_create_qp(s->pd, &a);

	need(qp, s, "create_qp");
	s->max_send_sge = a.cap.max_send_sge;
	return qp;
}

static void connect_qp(const struct side *s, struct ibv_qp *qp, uint32_t to)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT,
				 .port_num = 1,
				 .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };
	struct ibv_port_attr port;
	union ibv_gid gid;

	need(!ibv_query_port(s->context, 1, &port), s, "query_port");
	need(!ibv_query_gid(s->context, 1, s->gid_index, &gid), s, "query_gid");
	need(!ibv_modify_qp(qp, &a,
			    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
	     s, "INIT");
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR,
				  .path_mtu = IBV_MTU_1024,
				  .dest_qp_num = to,
				  .max_dest_rd_atomic = 1,
				  .min_rnr_timer = 12 };
	a.ah_attr = (struct ibv_ah_attr){ .is_global = 1, .port_num = 1, .dlid = port.lid };
	a.ah_attr.grh.dgid = gid;
	a.ah_attr.grh.sgid_index = (uint8_t)s->gid_index;
	a.ah_attr.grh.hop_limit = 1;
	need(!ibv_modify_qp(qp, &a,
			    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				    IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				    IBV_QP_MIN_RNR_TIMER),
	     s, "RTR");
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS,
				  .timeout = 14,
				  .retry_cnt = 7,
				  .rnr_retry = 7,
				  .max_rd_atomic = 1 };
	need(!ibv_modify_qp(qp, &a,
			    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				    IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
	     s, "RTS");
}

static void open_side(struct side *s, char *argument, unsigned int number)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	char *colon = strchr(argument, ':');

	s->name = argument;
	s->number = number;
	if (colon) {
		*colon = '\0';
		s->gid_index = atoi(colon + 1);
	}
	for (struct ibv_device **d = list; d && *d && !s->context; d++)
		if (!strcmp(ibv_get_device_name(*d), s->name))
			s->context = ibv_open_device(*d);
	need(s->context, s, "no such device");
	ibv_free_device_list(list);
	s->pd = ibv_alloc_pd(s->context);
	s->memory = aligned_alloc(4096, 8192);
	need(s->pd && s->memory, s, "alloc_pd");
	s->mr = ibv_reg_mr(s->pd, s->memory, 8192,
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	s->cq = ibv_create_cq(s->context, 512, NULL, NULL, 0);
	need(s->mr && s->cq, s, "reg_mr, create_cq");
	for (unsigned int i = 0; i < 2; i++)
		s->qp[i] = make_qp(s);
	connect_qp(s, s->qp[0], s->qp[1]->qp_num);
	connect_qp(s, s->qp[1], s->qp[0]->qp_num);
}

static void reap(struct side *s, unsigned int n)
{
	time_t deadline = time(NULL) + PATIENCE;
	struct ibv_wc wc[8];

	while (n) {
		int got = ibv_poll_cq(s->cq, n < 8 ? (int)n : 8, wc);

		need(got >= 0, s, "poll_cq");
		for (int i = 0; i < got; i++)
			need(wc[i].status == IBV_WC_SUCCESS, s, ibv_wc_status_str(wc[i].status));
		n -= (unsigned int)got;
		s->completions += (unsigned int)got;
		need(time(NULL) < deadline, s, "a completion is missing");
	}
}

/* `n` requests from qp[0], the last one signaled. */
static void post(struct side *s, enum ibv_wr_opcode opcode, unsigned int n)
{
	struct ibv_sge sge = { (uintptr_t)s->memory, 8, s->mr->lkey };
	struct ibv_send_wr wr[2] = { { 0 } }, *bad;

	for (unsigned int i = 0; i < n; i++) {
		wr[i].opcode = opcode;
		wr[i].sg_list = &sge;
		wr[i].num_sge = 1;
		wr[i].send_flags = i + 1 == n ? IBV_SEND_SIGNALED : 0;
		wr[i].wr.rdma.remote_addr = (uintptr_t)s->memory + 4096;
		wr[i].wr.rdma.rkey = s->mr->rkey;
		wr[i].next = i + 1 < n ? &wr[i + 1] : NULL;
	}
	need(!ibv_post_send(s->qp[0], wr, &bad), s, "post_send");
	reap(s, 1);
}

static void post_recv(struct side *s)
{
	struct ibv_sge sge = { (uintptr_t)s->memory + 4096, 8, s->mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

	need(!ibv_post_recv(s->qp[1], &wr, &bad), s, "post_recv");
}

static void post_too_many_sges(struct side *s)
{
	static struct ibv_sge sge[64];
	struct ibv_send_wr wr = { .sg_list = sge, .opcode = IBV_WR_SEND }, *bad;

	need(s->max_send_sge < 64, s, "64 SGEs are too few");
	wr.num_sge = (int)s->max_send_sge + 1;
	need(ibv_post_send(s->qp[0], &wr, &bad), s, "too many SGEs were accepted");
}

/* One turn of a device: 2 writes, or 1 send with its receive. */
static void turn(struct side *s, unsigned int n)
{
	if (s->writes < 10 * s->number) {
		post(s, IBV_WR_RDMA_WRITE, 2);
		s->writes += 2;
	}
	if (s->sends < 5 * s->number) {
		post_recv(s);
		post(s, IBV_WR_SEND, 1);
		reap(s, 1);
		s->sends++;
	}
	if (n < s->number) {
		post_too_many_sges(s);
		need(!ibv_destroy_qp(make_qp(s)), s, "destroy_qp");
	}
}

int main(int argc, char **argv)
{
	struct side sides[MOST_DEVICES] = { { 0 } };
	unsigned int count = (unsigned int)argc - 1;

	if (!count || count > MOST_DEVICES)
		return 2;
	for (unsigned int i = 0; i < count; i++)
		open_side(&sides[i], argv[i + 1], i + 1);
	for (unsigned int n = 0; n < 5 * count; n++)
		for (unsigned int i = 0; i < count; i++)
			turn(&sides[i], n);
	for (unsigned int i = 0; i < count; i++) {
		const struct side *s = &sides[i];

		printf("%s sends=%u receives=%u completions=%u refused=%u made=%u\n", s->name,
		       s->writes + s->sends, s->sends, s->completions, s->number, 2 + s->number);
	}
	return 0;
}
