/* SPDX-License-Identifier: MIT */
/*
 * librdmacm. What it makes comes in by the symbols and slots of libibverbs like everything else; here it is only
 * marked that the application asked for it by rdma_create_qp or the like, and in whose name: what remains unmarked
 * is what librdmacm makes for itself, such as the CQs of such a QP. Events of the connection manager are counted.
 */
#include <errno.h>

#include "guard.h"
#include "real.h"

/* rdma/rdma_cma.h, which need not be there where this is built. */
struct rdma_cm_id;
struct rdma_addrinfo;
struct rdma_event_channel;
struct rdma_cm_event {
	struct rdma_cm_id *id, *listen_id;
	unsigned int event; /* enum rdma_cm_event_type */
	int status;	    /* and more */
};
int rdma_create_qp(struct rdma_cm_id *, struct ibv_pd *, struct ibv_qp_init_attr *);
int rdma_create_qp_ex(struct rdma_cm_id *, struct ibv_qp_init_attr_ex *);
int rdma_create_srq(struct rdma_cm_id *, struct ibv_pd *, struct ibv_srq_init_attr *);
int rdma_create_srq_ex(struct rdma_cm_id *, struct ibv_srq_init_attr_ex *);
int rdma_create_ep(struct rdma_cm_id **, struct rdma_addrinfo *, struct ibv_pd *,
		   struct ibv_qp_init_attr *);
int rdma_get_request(struct rdma_cm_id *, struct rdma_cm_id **);
int rdma_get_cm_event(struct rdma_event_channel *, struct rdma_cm_event **);

static struct real real_create_qp SOUGHT_EARLY = { "rdma_create_qp", "RDMACM_1.0",
						   .wrapper = (void *)rdma_create_qp,
						   .library = RDMACM };
static struct real real_create_qp_ex SOUGHT_EARLY = { "rdma_create_qp_ex", "RDMACM_1.0",
						      .wrapper = (void *)rdma_create_qp_ex,
						      .library = RDMACM };
static struct real real_create_srq SOUGHT_EARLY = { "rdma_create_srq", "RDMACM_1.0",
						    .wrapper = (void *)rdma_create_srq,
						    .library = RDMACM };
static struct real real_create_srq_ex SOUGHT_EARLY = { "rdma_create_srq_ex", "RDMACM_1.0",
						       .wrapper = (void *)rdma_create_srq_ex,
						       .library = RDMACM };
static struct real real_create_ep SOUGHT_EARLY = { "rdma_create_ep", "RDMACM_1.0",
						   .wrapper = (void *)rdma_create_ep,
						   .library = RDMACM };
static struct real real_get_request SOUGHT_EARLY = { "rdma_get_request", "RDMACM_1.0",
						     .wrapper = (void *)rdma_get_request,
						     .library = RDMACM };
static struct real real_get_event SOUGHT_EARLY = { "rdma_get_cm_event", "RDMACM_1.0",
						   .wrapper = (void *)rdma_get_cm_event,
						   .library = RDMACM };

/* The outermost call that this thread is in. */
struct asked {
	void *address; /* of its caller; NULL: none */
	uint8_t entry; /* enum entry_point */
};
static _Thread_local struct asked asked __attribute__((tls_model("initial-exec")));

void asked_by_librdmacm(void **address, uint8_t *entry)
{
	if (!asked.address)
		return;
	*address = asked.address;
	*entry = asked.entry;
}

static struct asked begin(void *address, enum entry_point entry)
{
	struct asked before = asked;

	if (!asked.address)
		asked = (struct asked){ address, (uint8_t)entry };
	return before;
}

static int none(void)
{
	errno = ENOSYS;
	return -1;
}

/* man rdma_create_qp. */
INTERPOSED int rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd,
			      struct ibv_qp_init_attr *attr)
{
	int (*create)(struct rdma_cm_id *, struct ibv_pd *, struct ibv_qp_init_attr *) =
		(int (*)(struct rdma_cm_id *, struct ibv_pd *, struct ibv_qp_init_attr *))real_find(
			&real_create_qp);
	struct asked before;
	int rc;

	if (!create)
		return none();
	before = begin(CALLER(), ENTRY_RDMA_CREATE_QP);
	rc = create(id, pd, attr);
	asked = before;
	return rc;
}

/* man rdma_create_qp_ex: rdma/rdma_cma.h. */
INTERPOSED int rdma_create_qp_ex(struct rdma_cm_id *id, struct ibv_qp_init_attr_ex *attr)
{
	int (*create)(struct rdma_cm_id *, struct ibv_qp_init_attr_ex *) = (int (*)(
		struct rdma_cm_id *, struct ibv_qp_init_attr_ex *))real_find(&real_create_qp_ex);
	struct asked before;
	int rc;

	if (!create)
		return none();
	before = begin(CALLER(), ENTRY_RDMA_CREATE_QP_EX);
	rc = create(id, attr);
	asked = before;
	return rc;
}

/* man rdma_create_srq. */
INTERPOSED int rdma_create_srq(struct rdma_cm_id *id, struct ibv_pd *pd,
			       struct ibv_srq_init_attr *attr)
{
	int (*create)(struct rdma_cm_id *, struct ibv_pd *, struct ibv_srq_init_attr *) =
		(int (*)(struct rdma_cm_id *, struct ibv_pd *,
			 struct ibv_srq_init_attr *))real_find(&real_create_srq);
	struct asked before;
	int rc;

	if (!create)
		return none();
	before = begin(CALLER(), ENTRY_RDMA_CREATE_SRQ);
	rc = create(id, pd, attr);
	asked = before;
	return rc;
}

/* man rdma_create_srq: rdma/rdma_cma.h. */
INTERPOSED int rdma_create_srq_ex(struct rdma_cm_id *id, struct ibv_srq_init_attr_ex *attr)
{
	int (*create)(struct rdma_cm_id *, struct ibv_srq_init_attr_ex *) = (int (*)(
		struct rdma_cm_id *, struct ibv_srq_init_attr_ex *))real_find(&real_create_srq_ex);
	struct asked before;
	int rc;

	if (!create)
		return none();
	before = begin(CALLER(), ENTRY_RDMA_CREATE_SRQ_EX);
	rc = create(id, attr);
	asked = before;
	return rc;
}

/* man rdma_create_ep. */
INTERPOSED int rdma_create_ep(struct rdma_cm_id **id, struct rdma_addrinfo *res, struct ibv_pd *pd,
			      struct ibv_qp_init_attr *attr)
{
	int (*create)(struct rdma_cm_id **, struct rdma_addrinfo *, struct ibv_pd *,
		      struct ibv_qp_init_attr *) =
		(int (*)(struct rdma_cm_id **, struct rdma_addrinfo *, struct ibv_pd *,
			 struct ibv_qp_init_attr *))real_find(&real_create_ep);
	struct asked before;
	int rc;

	if (!create)
		return none();
	before = begin(CALLER(), ENTRY_RDMA_CREATE_EP);
	rc = create(id, res, pd, attr);
	asked = before;
	return rc;
}

/* man rdma_get_request: the QP of an endpoint that listens is made when somebody connects. */
INTERPOSED int rdma_get_request(struct rdma_cm_id *listen, struct rdma_cm_id **id)
{
	int (*get)(struct rdma_cm_id *, struct rdma_cm_id **) =
		(int (*)(struct rdma_cm_id *, struct rdma_cm_id **))real_find(&real_get_request);
	struct asked before;
	int rc;

	if (!get)
		return none();
	before = begin(CALLER(), ENTRY_RDMA_GET_REQUEST);
	rc = get(listen, id);
	asked = before;
	return rc;
}

/* man rdma_get_cm_event. Blocks: nothing is done before it. */
INTERPOSED int rdma_get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **event)
{
	int (*get)(struct rdma_event_channel *, struct rdma_cm_event **) = (int (*)(
		struct rdma_event_channel *, struct rdma_cm_event **))real_find(&real_get_event);
	struct state_cm_event *s;
	struct guard *g;
	unsigned int kind;
	int rc;

	if (!get)
		return none();
	rc = get(channel, event);
	g = rc ? NULL : guard_enter();
	if (!g)
		return rc;
	kind = (unsigned int)(*event)->event;
	s = &g->header->cm_events[kind < STATE_CM_EVENTS ? kind : STATE_CM_EVENTS - 1];
	atomic_fetch_add_explicit(&s->count, 1, memory_order_relaxed);
	if ((*event)->status) {
		atomic_fetch_add_explicit(&s->with_status, 1, memory_order_relaxed);
		atomic_store_explicit(&s->last_status, (*event)->status, memory_order_relaxed);
	}
	return rc;
}
