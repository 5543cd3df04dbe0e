/* SPDX-License-Identifier: MIT */
/*
 * Objects that libibverbs has no symbols for, made through the slots of the context: work queues, tables of
 * receive side scaling and the QPs that receive through them; XRC domains, QPs and SRQs, and shares of an XRC
 * QP. Tells what lives after each step, by the names of the report.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "verbs_pair.h"

#define WQS 4

static struct ibv_cq *cq;
static struct {
	unsigned int live_qps, created_qps, live_wqs, created_wqs, live_srqs;
} now;

static void tell(const char *what)
{
	printf("totals live_qps=%u created_qps=%u live_wqs=%u created_wqs=%u live_srqs=%u\n",
	       now.live_qps, now.created_qps, now.live_wqs, now.created_wqs, now.live_srqs);
	step_alone("%s", what);
}

static void made_qp(struct ibv_qp *qp, const char *what)
{
	need(qp, "%s: %s", what, strerror(errno));
	now.live_qps++;
	now.created_qps++;
}

static void drop_qp(struct ibv_qp *qp)
{
	need(!ibv_destroy_qp(qp), "destroy_qp");
	now.live_qps--;
}

/* --- work queues --- */

struct work_queue {
	struct ibv_wq *wq;
	struct ibv_wq_init_attr attr;
	unsigned int posted, full, sges, not_posted;
};

static struct work_queue make_wq(uint32_t max_wr, uint32_t max_sge)
{
	struct work_queue q = { .attr = { .wq_type = IBV_WQT_RQ,
					  .max_wr = max_wr,
					  .max_sge = max_sge,
					  .pd = pd,
					  .cq = cq } };

	q.wq = ibv_create_wq(context, &q.attr);
	need(q.wq, "create_wq: %s", strerror(errno));
	now.live_wqs++;
	now.created_wqs++;
	return q;
}

/* Ids are given in the order of creation. */
static void tell_wqs(const struct work_queue *q, unsigned int n, const char *state,
		     const char *what)
{
	for (unsigned int i = 0; i < n; i++)
		printf("wq id=%u wq_num=%u wq_state=%s max_wr=%u max_sge=%u posted=%u "
		       "queue_full=%u "
		       "too_many_sge=%u not_posted=%u\n",
		       i + 1, q[i].wq->wq_num, state, q[i].attr.max_wr, q[i].attr.max_sge,
		       q[i].posted, q[i].full, q[i].sges, q[i].not_posted);
	tell(what);
}

static void post(struct work_queue *q, unsigned int n, int sges)
{
	struct ibv_recv_wr wr[8] = { 0 }, *bad = NULL;
	struct ibv_sge sge[8];
	unsigned int refused = 0;
	int rc;

	for (unsigned int i = 0; i < 8; i++)
		sge[i] = (struct ibv_sge){ (uintptr_t)memory, 64, mr->lkey };
	for (unsigned int i = 0; i < n; i++) {
		wr[i].sg_list = sge;
		wr[i].num_sge = i == n - 1 ? sges : 1;
		wr[i].next = i + 1 < n ? &wr[i + 1] : NULL;
	}
	rc = ibv_post_wq_recv(q->wq, wr, &bad);
	result("post_wq_recv of %u: %d, stops at %td", n, rc, rc ? bad - wr : -1);
	for (; rc && bad; bad = bad->next)
		refused++;
	q->posted += n - refused;
	q->not_posted += refused;
	if (rc && sges > (int)q->attr.max_sge)
		q->sges++;
	else if (rc)
		q->full++;
}

static struct ibv_qp *make_rss_qp(struct ibv_rwq_ind_table *table)
{
	static uint8_t key[40];
	struct ibv_qp_init_attr_ex a = {
		.qp_type = IBV_QPT_RAW_PACKET,
		.comp_mask =
			IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_RX_HASH | IBV_QP_INIT_ATTR_IND_TABLE,
		.pd = pd,
		.rwq_ind_tbl = table,
		.rx_hash_conf = { .rx_hash_function = IBV_RX_HASH_FUNC_TOEPLITZ,
				  .rx_hash_key_len = sizeof(key),
				  .rx_hash_key = key,
				  .rx_hash_fields_mask = IBV_RX_HASH_SRC_IPV4 },
	};
	struct ibv_qp *qp = ibv_create_qp_ex(context, &a);

	made_qp(qp, "a QP of receive side scaling");
	return qp;
}

static void receive_side_scaling(void)
{
	struct ibv_wq_attr ready = { .attr_mask = IBV_WQ_ATTR_STATE, .wq_state = IBV_WQS_RDY };
	struct ibv_rwq_ind_table_init_attr t = { .log_ind_tbl_size = 2 };
	struct ibv_rwq_ind_table *table;
	struct work_queue q[WQS];
	struct ibv_wq *of_table[WQS];
	struct ibv_qp *qp;

	for (unsigned int i = 0; i < WQS; i++) {
		q[i] = make_wq(16 << i, 1 + i);
		of_table[i] = q[i].wq;
	}
	tell_wqs(q, WQS, "RESET", "work queues");
	for (unsigned int i = 0; i < WQS; i++)
		need(!ibv_modify_wq(q[i].wq, &ready), "modify_wq");
	tell_wqs(q, WQS, "RDY", "they are ready");
	t.ind_tbl = of_table;
	table = ibv_create_rwq_ind_table(context, &t);
	need(table, "create_rwq_ind_table: %s", strerror(errno));
	printf("entry_points create_wq=%u create_rwq_ind_table=1\n", WQS);
	qp = make_rss_qp(table);
	tell_wqs(q, WQS, "RDY", "a table of them and a QP");
	for (unsigned int i = 0; i < 3; i++)
		post(&q[0], 6, 1);
	post(&q[1], 4, 8);
	post(&q[3], 8, 4);
	tell_wqs(q, WQS, "RDY", "receives were posted, some refused");
	drop_qp(qp);
	need(!ibv_destroy_rwq_ind_table(table), "destroy_rwq_ind_table");
	for (unsigned int i = WQS; i-- > 0;) {
		need(!ibv_destroy_wq(q[i].wq), "destroy_wq");
		now.live_wqs--;
		tell_wqs(q, i, "RDY", "one WQ less");
	}
}

/* --- XRC --- */

static struct ibv_srq *make_xrc_srq(struct ibv_xrcd *xrcd)
{
	struct ibv_srq_init_attr_ex a = {
		.attr = { .max_wr = 32, .max_sge = 2 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_XRCD |
			     IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_PD,
		.srq_type = IBV_SRQT_XRC,
		.pd = pd,
		.xrcd = xrcd,
		.cq = cq,
	};
	struct ibv_srq *srq = ibv_create_srq_ex(context, &a);

	need(srq, "an XRC SRQ: %s", strerror(errno));
	now.live_srqs++;
	return srq;
}

static struct ibv_qp *make_xrc_qp(struct ibv_xrcd *xrcd, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr_ex a = { .qp_type = type };
	struct ibv_qp *qp;

	if (type == IBV_QPT_XRC_RECV) {
		a.comp_mask = IBV_QP_INIT_ATTR_XRCD;
		a.xrcd = xrcd;
	} else {
		a.comp_mask = IBV_QP_INIT_ATTR_PD;
		a.pd = pd;
		a.send_cq = cq;
		a.cap = (struct ibv_qp_cap){ .max_send_wr = 16, .max_send_sge = 1 };
	}
	qp = ibv_create_qp_ex(context, &a);
	made_qp(qp, "an XRC QP");
	return qp;
}

/* The share stays until the program ends: libmlx5 frees a doorbell record of it that it never had. */
static void extended_reliable_connection(void)
{
	struct ibv_xrcd_init_attr domain = { .comp_mask = IBV_XRCD_INIT_ATTR_FD |
							  IBV_XRCD_INIT_ATTR_OFLAGS,
					     .fd = -1,
					     .oflags = O_CREAT };
	struct ibv_qp_open_attr o = { .comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD |
						   IBV_QP_OPEN_ATTR_TYPE,
				      .qp_type = IBV_QPT_XRC_RECV };
	struct ibv_xrcd *xrcd = ibv_open_xrcd(context, &domain);
	struct ibv_qp *send, *recv, *share;
	struct ibv_srq *srq;

	need(xrcd, "open_xrcd: %s", strerror(errno));
	srq = make_xrc_srq(xrcd);
	send = make_xrc_qp(xrcd, IBV_QPT_XRC_SEND);
	recv = make_xrc_qp(xrcd, IBV_QPT_XRC_RECV);
	tell("an XRC domain with an SRQ and two QPs");
	o.xrcd = xrcd;
	o.qp_num = recv->qp_num;
	share = ibv_open_qp(context, &o);
	made_qp(share, "open_qp");
	need(share->qp_num == recv->qp_num, "the number of the QP that is shared");
	printf("entry_points open_qp=1\n");
	tell("a share of one");
	o.qp_num = recv->qp_num + 77;
	share = ibv_open_qp(context, &o);
	result("a share of no QP: %s", share ? "made" : strerror(errno));
	tell("one of no QP is refused");
	drop_qp(recv);
	drop_qp(send);
	need(!ibv_destroy_srq(srq), "destroy_srq");
	now.live_srqs--;
	need(!ibv_close_xrcd(xrcd), "close_xrcd");
	tell("all but the share is given back");
}

int main(int argc, char **argv)
{
	device_begin();
	cq = ibv_create_cq(context, 1024, NULL, NULL, 0);
	need(cq, "create_cq");
	if (argc > 1 && !strcmp(argv[1], "xrc"))
		extended_reliable_connection();
	else
		receive_side_scaling();
	need(!ibv_destroy_cq(cq), "destroy_cq");
	device_end();
	return 0;
}
