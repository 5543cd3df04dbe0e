/* SPDX-License-Identifier: MIT */
/*
 * Writing CQEs (infiniband/mlx5dv.h: struct mlx5_cqe64, mlx5_err_cqe) and the
 * events that announce them (rdma/ib_user_verbs.h: ib_uverbs_comp_event_desc).
 * Touches the CQ's ring, its doorbell record and the channel's pipe.
 */
#include "mlx5dev.h"

#include <endian.h>
#include <string.h>
#include <unistd.h>

static void fill(struct mlx5_cqe64 *e, const struct qp *qp, const struct completion *c)
{
	struct mlx5_err_cqe *bad = (struct mlx5_err_cqe *)e;

	memset(e, 0, sizeof(*e));
	e->srqn_uidx = htobe32(qp->user_index);
	e->sop_drop_qpn = htobe32((uint32_t)c->wqe_opcode << 24 | qp->number);
	e->wqe_counter = htobe16(c->wqe_index);
	if (c->syndrome) {
		bad->syndrome = c->syndrome;
		bad->vendor_err_synd = c->syndrome == MLX5_CQE_SYNDROME_WR_FLUSH_ERR ? 0xf9 : 0x88;
		return;
	}
	e->byte_cnt = htobe32(c->length);
	e->imm_inval_pkey = c->imm;
	e->timestamp = htobe64(now_ns());
	e->slid = htobe16(1);
	e->flags_rqpn = htobe32((uint32_t)c->grh << 28 | c->src_qp);
}

/* The last eight bytes hold the owner bit and are written last, in one piece. */
static void write_entry(uint8_t *slot, const struct mlx5_cqe64 *e)
{
	uint64_t word[8];

	memcpy(word, e, sizeof(word));
	for (unsigned i = 0; i < 7; i++)
		((volatile uint64_t *)(void *)slot)[i] = word[i];
	__atomic_store_n((uint64_t *)(void *)slot + 7, word[7], __ATOMIC_RELEASE);
}

/* Is entry a (24 bits) after entry b? */
static bool after(uint32_t a, uint32_t b)
{
	uint32_t d = (a - b) & 0xffffff;

	return d && d < 0x800000;
}

void cq_push(struct cq *cq, const struct qp *qp, const struct completion *c)
{
	uint32_t ci = be32toh(cq->dbrec[0]) & 0xffffff;
	struct mlx5_cqe64 e;

	if (((cq->pi - ci) & 0xffffff) >= cq->count && !cq->ignore_overrun)
		cq->overrun = true;
	if (cq->overrun)
		return;
	fill(&e, qp, c);
	e.op_own = (uint8_t)(c->opcode << 4 | !!(cq->pi & cq->count));
	/* Of 128 bytes the second half is the entry. */
	write_entry(cq->buf + (cq->pi & (cq->count - 1)) * (size_t)cq->stride + cq->stride - 64,
		    &e);
	cq->pi = (cq->pi + 1) & 0xffffff;
	if (c->solicited || c->syndrome)
		cq->last_solicited = cq->pi;
	if (cq->channel)
		cq_look_at_arm(cq);
}

/* Reads the arm record: sequence number, kind and consumer index, in one word. */
void cq_look_at_arm(struct cq *cq)
{
	uint32_t arm = be32toh(cq->dbrec[1]);

	if (!cq->channel)
		return;
	if (arm != cq->arm_seen) {
		cq->arm_seen = arm;
		cq->armed = true;
		cq->solicited_only = arm & MLX5_CQ_DB_REQ_NOT_SOL;
		cq->arm_ci = arm & 0xffffff;
	}
	if (cq->armed)
		cq_announce(cq);
}

static void set_waiting(struct cq *cq, bool waits)
{
	nic.waiting_events += (unsigned)waits - (unsigned)cq->event_waits;
	cq->event_waits = waits;
}

/*
 * Writes the event if there is an entry to announce. Entries consumed when the
 * program armed need none, and one event is enough for each entry.
 */
void cq_announce(struct cq *cq)
{
	struct ib_uverbs_comp_event_desc event = { .cq_handle = cq->user_handle };
	uint32_t newest = cq->solicited_only ? cq->last_solicited : cq->pi;
	uint32_t old = after(cq->announced, cq->arm_ci) ? cq->announced : cq->arm_ci;

	if (!cq->armed || !after(newest, old))
		return;
	/* The pipe is full only when nobody reads: the NIC's thread tries again. */
	set_waiting(cq, write(cq->channel->write_fd, &event, sizeof(event)) != sizeof(event));
	if (cq->event_waits)
		return;
	cq->armed = false;
	cq->announced = cq->pi;
	cq->events++;
}

/*
 * For a CQ that is being destroyed: takes its unread events out of the channel
 * and returns how many the program has read. Events of other CQs go back in order.
 */
uint32_t cq_withdraw_events(struct cq *cq)
{
	struct channel *ch = cq->channel;
	struct ib_uverbs_comp_event_desc event;
	uint32_t unread = 0;
	ssize_t n;

	if (!ch)
		return 0;
	cq->armed = false;
	set_waiting(cq, false);
	/* As many as lie there now: those put back come after them. */
	for (uint32_t left = channel_pending(ch); left; left--) {
		n = read(ch->read_fd, &event, sizeof(event));
		if (n != sizeof(event))
			break;
		if (event.cq_handle == cq->user_handle)
			unread++;
		else if (write(ch->write_fd, &event, sizeof(event)) < 0)
			break; /* cannot be: it was just taken out */
	}
	return cq->events - unread;
}
