/* SPDX-License-Identifier: MIT */
/*
 * Random requests to a real provider, each foretold by the model of policy/geometry_<driver>.c:
 * accepted or refused with which errno, the effective caps, and the bytes.
 *
 *	LD_PRELOAD=.../mlx5dev.so sweep [SEED [QPS [CQS [SRQS]]]]	libmlx5 on the played device
 *	sweep [SEED [QPS [CQS [SRQS]]]]			rxe, or what device comes first
 *
 * Witnesses tell the bytes. The rings of mlx5 are those that mlx5dv_init_obj names, to the byte, in
 * buffers that the provider took from posix_memalign: seen here, since the program stands before
 * libc for everybody. Those of rxe are the mappings of the device in /proc/self/maps. All that a
 * provider took from malloc and calloc is the rest, but for mlx5's slot in a page of doorbell
 * records. What the played device allocates itself is not counted: it runs inside ioctl.
 *
 * Half of the QPs have signed receive requests, by MLX5_QP_SIGNATURE, which is set and unset all the
 * while; with SWEEP_UNSIGNED none has.
 *
 * The limits that applications of mlx5 cannot read come from MLX5DEV_*, as those of the device do.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "policy/geometry.h"

/* --- the witness --- */

static _Thread_local struct {
	bool on;
	size_t rings;	 /* bytes from posix_memalign */
	size_t rest;	 /* bytes from malloc and calloc */
	unsigned pieces; /* of the rest */
} seen;

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

static void note(size_t size)
{
	if (!seen.on)
		return;
	seen.rest += size;
	seen.pieces++;
}

void *malloc(size_t size)
{
	note(size);
	return __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
	note(count * size);
	return __libc_calloc(count, size);
}

int posix_memalign(void **to, size_t alignment, size_t size)
{
	void *p = __libc_memalign(alignment, size);

	if (seen.on)
		seen.rings += size;
	if (!p)
		return ENOMEM;
	*to = p;
	return 0;
}

/* The kernel's side. RTLD_NEXT would find the device's ioctl too, at the price of dlsym's own
 * memory. */
int ioctl(int fd, unsigned long request, ...)
{
	static int (*next)(int, unsigned long, ...);
	bool was_on = seen.on;
	va_list ap;
	void *arg;
	int rc;

	va_start(ap, request);
	arg = va_arg(ap, void *);
	va_end(ap);
	seen.on = false;
	if (!next)
		next = (int (*)(int, unsigned long, ...))dlsym(RTLD_NEXT, "ioctl");
	rc = next(fd, request, arg);
	seen.on = was_on;
	return rc;
}

static void watch(void)
{
	memset(&seen, 0, sizeof(seen));
	seen.on = true;
}

/* Mappings of the device, as the kernel lists them; never joined, for it keeps books of each. */
static struct mappings {
	unsigned count;
	struct {
		uint64_t at, bytes;
	} of[64];
} before;

static void read_mappings(struct mappings *m)
{
	static char text[1 << 17];
	int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
	size_t len = 0;
	ssize_t n;

	m->count = 0;
	while (fd >= 0 && (n = read(fd, text + len, sizeof(text) - 1 - len)) > 0)
		len += (size_t)n;
	close(fd);
	text[len] = '\0';
	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
		unsigned long long from, to;

		if (strstr(line, "/dev/infiniband/") && m->count < 64 &&
		    sscanf(line, "%llx-%llx", &from, &to) == 2) {
			m->of[m->count].at = from;
			m->of[m->count++].bytes = to - from;
		}
	}
}

/* --- what differs --- */

static unsigned tests, failures, differences;

static void verdict(bool good, const char *text)
{
	printf("%sok %u - %s\n", good ? "" : "not ", ++tests, text);
	failures += !good;
}

__attribute__((format(printf, 1, 2))) static void differs(const char *format, ...)
{
	va_list ap;

	if (++differences > 20)
		return;
	va_start(ap, format);
	printf("# ");
	vprintf(format, ap);
	printf("\n");
	va_end(ap);
}

/* --- chance --- */

static uint64_t chance;

static uint32_t draw(uint32_t below)
{
	chance ^= chance << 13;
	chance ^= chance >> 7;
	chance ^= chance << 17;
	return (uint32_t)(chance >> 16) % below;
}

/* Small numbers as often as large ones, powers of two and their neighbours most of all. */
static uint32_t draw_depth(uint32_t bits)
{
	uint32_t power = 1u << draw(bits + 1);

	switch (draw(4)) {
	case 0:
		return power - 1 + draw(3);
	case 1:
		return draw(8);
	default:
		return power + draw(power);
	}
}

/* --- the device --- */

static const struct geometry *model;
static bool is_mlx5, is_unsigned;
static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_srq *srq;
static struct device_facts device;

static uint32_t setting(const char *name, uint32_t standard)
{
	const char *value = getenv(name);

	return value ? (uint32_t)strtoul(value, NULL, 0) : standard;
}

static void pin_down(enum learned_limit limit, const char *name, uint32_t standard)
{
	uint32_t value = setting(name, standard);

	device.learned[limit] = (struct learned){ value, value + 1 };
}

static void learn_device(void)
{
	struct ibv_device_attr a;

	if (ibv_query_device(context, &a)) {
		perror("ibv_query_device");
		exit(1);
	}
	model = geometry_of(is_mlx5 ? "mlx5" : "rxe");
	device.limits.max_qp_wr = (uint32_t)a.max_qp_wr;
	device.limits.max_sge = (uint32_t)a.max_sge;
	device.limits.max_srq_sge = (uint32_t)a.max_srq_sge;
	device.limits.max_cqe = (uint32_t)a.max_cqe;
	device.limits.max_srq_wr = (uint32_t)a.max_srq_wr;
	pin_down(LEARNED_SEND_BLOCKS, "MLX5DEV_max_send_wqebb", 32768);
	pin_down(LEARNED_SEND_WQE_BYTES, "MLX5DEV_max_sq_desc_sz", 1024);
	pin_down(LEARNED_RECV_WQE_BYTES, "MLX5DEV_max_rq_desc_sz", 512);
	pin_down(LEARNED_RECV_WR, "MLX5DEV_max_recv_wr", 32768);
	pin_down(LEARNED_SRQ_WR, "MLX5DEV_max_srq_recv_wr", 32768);
}

/* One object of each kind lives all the while, so that tables and doorbell pages, which objects
 * share, are there already. */
static void open_device(void)
{
	struct ibv_srq_init_attr srq_attr = { .attr = { .max_wr = 1, .max_sge = 1 } };
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_qp_init_attr qp_attr = { .qp_type = IBV_QPT_RC, .cap = { 1, 1, 1, 1, 0 } };

	context = list && list[0] ? ibv_open_device(list[0]) : NULL;
	is_mlx5 = context && mlx5dv_is_supported(list[0]);
	pd = context ? ibv_alloc_pd(context) : NULL;
	cq = pd ? ibv_create_cq(context, 1, NULL, NULL, 0) : NULL;
	srq = cq ? ibv_create_srq(pd, &srq_attr) : NULL;
	qp_attr.send_cq = qp_attr.recv_cq = cq;
	if (!srq || !ibv_create_qp(pd, &qp_attr)) {
		perror("the device");
		exit(1);
	}
	ibv_free_device_list(list);
	learn_device();
}

/* --- queue pairs --- */

enum { TYPES = 5 };
static const struct {
	uint32_t type;
	const char *name;
} types[TYPES] = {
	{ IBV_QPT_RC, "RC" },
	{ IBV_QPT_UC, "UC" },
	{ IBV_QPT_UD, "UD" },
	{ IBV_QPT_RAW_PACKET, "RAW_PACKET" },
	{ IBV_QPT_XRC_SEND, "XRC_SEND" },
};

static const char *type_name(uint32_t type)
{
	for (size_t i = 0; i < TYPES; i++)
		if (types[i].type == type)
			return types[i].name;
	return "?";
}

/* Operations that most types know, or any; none at all is the provider's own affair. */
static uint64_t draw_ops(uint32_t type)
{
	uint64_t known = type == IBV_QPT_UD ? IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM
			 : type == IBV_QPT_RAW_PACKET ? IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_TSO
						      : 0x3ff;

	if (!draw(8))
		return draw(0x800);
	if (!draw(4))
		return IBV_QP_EX_WITH_SEND;
	return draw(0x800) & known;
}

static void draw_qp(struct qp_request *r)
{
	*r = (struct qp_request){
		.type = types[draw(is_mlx5 || !draw(4) ? TYPES : 3)].type,
		.caps = {
			.max_send_wr = draw_depth(is_mlx5 ? 17 : 12),
			.max_recv_wr = draw_depth(is_mlx5 ? 16 : 12),
			.max_send_sge = draw(2) ? draw(4) : draw(61),
			.max_recv_sge = draw(2) ? draw(4) : draw(61),
			.max_inline_data = draw(2) ? 0 : draw(1201),
		},
		.has_srq = !draw(4),
		.has_send_ops = draw(2),
	};
	if (r->type == QP_TYPE_XRC_SEND) {
		r->has_srq = false;
		if (draw(4))
			r->caps.max_recv_wr = r->caps.max_recv_sge = 0;
	}
	if (!is_mlx5 && !draw(20)) /* its limit is far away */
		*(draw(2) ? &r->caps.max_send_wr : &r->caps.max_recv_wr) =
			device.limits.max_qp_wr + 1 + draw(1000);
	else if (draw(2)) /* most of the largest are refused: leave those that go */
		r->caps.max_send_wr %= 2048;
	if (r->has_send_ops)
		r->send_ops = draw_ops(r->type);
	if (!draw(r->type == QP_TYPE_RAW_PACKET ? 3 : 50))
		r->max_tso_header = (uint16_t)draw(300);
	if (!draw(r->type == QP_TYPE_UD ? 5 : 100))
		r->create_flags = IBV_QP_CREATE_SOURCE_QPN;
	if (!draw(500))
		r->caps.max_inline_data = UINT32_MAX - draw(64);
}

/* As the model wants it told: a header of 0 bytes is one too. */
static struct ibv_qp *create_qp(const struct qp_request *r, struct ibv_qp_cap *back)
{
	struct ibv_qp_init_attr_ex a = {
		.qp_type = (enum ibv_qp_type)r->type,
		.send_cq = cq,
		.recv_cq = cq,
		.srq = r->has_srq ? srq : NULL,
		.cap = { r->caps.max_send_wr, r->caps.max_recv_wr, r->caps.max_send_sge,
			 r->caps.max_recv_sge, r->caps.max_inline_data },
		.pd = pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
	};
	struct ibv_qp *qp;

	if (r->has_send_ops) {
		a.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
		a.send_ops_flags = r->send_ops;
	}
	if (r->max_tso_header) {
		a.comp_mask |= IBV_QP_INIT_ATTR_MAX_TSO_HEADER;
		a.max_tso_header = r->max_tso_header;
	}
	if (r->create_flags) {
		a.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
		a.create_flags = r->create_flags;
		a.source_qpn = 7;
	}
	qp = ibv_create_qp_ex(context, &a);
	*back = a.cap;
	return qp;
}

static void tell(const struct qp_request *r, const char *what)
{
	differs("%s: %s%s %u/%u/%u %u/%u%s ops %#llx tso %u flags %#x", what, type_name(r->type),
		device.settings.qp_signature ? " signed" : "", r->caps.max_send_wr,
		r->caps.max_send_sge, r->caps.max_inline_data, r->caps.max_recv_wr,
		r->caps.max_recv_sge, r->has_srq ? " srq" : "",
		r->has_send_ops ? (unsigned long long)r->send_ops : 0ULL, r->max_tso_header,
		r->create_flags);
}

/* rxe writes the depth back as asked or as made, which differs between kernels. */
static bool same_depth(uint32_t back, uint32_t foretold)
{
	uint32_t slots = 1;

	while (slots <= foretold)
		slots *= 2;
	return back == foretold || (!is_mlx5 && back == slots - 1);
}

static bool same_caps(const struct ibv_qp_cap *a, const struct qp_caps *b)
{
	return same_depth(a->max_send_wr, b->max_send_wr) &&
	       same_depth(a->max_recv_wr, b->max_recv_wr) && a->max_send_sge == b->max_send_sge &&
	       a->max_recv_sge == b->max_recv_sge && a->max_inline_data == b->max_inline_data;
}

static uint64_t to_pages(uint64_t bytes)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

	return (bytes + page - 1) / page * page;
}

/* The slot of a doorbell page is the one thing that no call for memory shows. */
enum { SLOT_BYTES = 64, ROUNDING = 16 };

static bool rest_agrees(uint64_t foretold)
{
	uint64_t allowed = (uint64_t)ROUNDING * seen.pieces;

	return foretold <= seen.rest + allowed && seen.rest <= foretold + allowed;
}

static void compare_rest(const char *what, uint64_t foretold)
{
	if (!rest_agrees(foretold))
		differs("%s, the rest: model %llu, provider %zu in %u pieces", what,
			(unsigned long long)foretold, seen.rest, seen.pieces);
}

static void compare_mlx5_bytes(const struct qp_request *r, const struct queue_bytes *b,
			       struct ibv_qp *qp)
{
	struct mlx5dv_qp dv = { 0 };
	struct mlx5dv_obj obj = { .qp = { .in = qp, .out = &dv } };
	uint64_t sq, rq, buffers = to_pages(b->sq + b->rq);

	if (mlx5dv_init_obj(&obj, MLX5DV_OBJ_QP)) {
		tell(r, "mlx5dv_init_obj");
		return;
	}
	sq = (uint64_t)dv.sq.wqe_cnt * dv.sq.stride;
	rq = (uint64_t)dv.rq.wqe_cnt * dv.rq.stride;
	if (r->type == QP_TYPE_RAW_PACKET || r->create_flags)
		buffers = to_pages(b->sq) + to_pages(b->rq);
	if (sq != b->sq || rq != b->rq) {
		tell(r, "rings");
		differs("  model %llu + %llu, provider %llu + %llu", (unsigned long long)b->sq,
			(unsigned long long)b->rq, (unsigned long long)sq, (unsigned long long)rq);
	}
	if (seen.rings != buffers) {
		tell(r, "buffers");
		differs("  model %llu, provider %zu", (unsigned long long)buffers, seen.rings);
	}
	compare_rest("QP", queue_bytes_total(b) - buffers - SLOT_BYTES);
}

/* The mappings that are new are the two rings, or the one there is. */
static void compare_mappings(const char *what, const struct queue_bytes *b)
{
	struct mappings now;
	uint64_t want[2] = { b->sq, b->rq };
	unsigned extra = 0;

	read_mappings(&now);
	for (unsigned i = 0, j; i < now.count; i++) {
		for (j = 0; j < before.count && before.of[j].at != now.of[i].at; j++)
			;
		if (j < before.count)
			continue;
		if (now.of[i].bytes == want[0])
			want[0] = 0;
		else if (now.of[i].bytes == want[1])
			want[1] = 0;
		else
			extra++;
	}
	if (want[0] || want[1] || extra)
		differs("%s: model %llu and %llu: %llu and %llu not found, %u others", what,
			(unsigned long long)b->sq, (unsigned long long)b->rq,
			(unsigned long long)want[0], (unsigned long long)want[1], extra);
	compare_rest(what, b->bookkeeping);
}

static unsigned accepted, refused;

/* Whether fate and errno are as foretold; errno was 0 before. */
static bool same_fate(const struct prediction *p, bool made, int error)
{
	if (made)
		accepted++;
	else
		refused++;
	if (p->fate != (made ? FATE_ACCEPTED : FATE_REFUSED))
		return false;
	return made || p->error == error;
}

static void one_qp(void)
{
	struct qp_request r;
	struct prediction p;
	struct ibv_qp_cap back;
	struct ibv_qp *qp;
	int error;

	draw_qp(&r);
	device.settings.qp_signature = is_mlx5 && !is_unsigned && draw(2);
	if (device.settings.qp_signature)
		setenv("MLX5_QP_SIGNATURE", "1", 1);
	else
		unsetenv("MLX5_QP_SIGNATURE");
	geometry_predict_qp(model, &r, &device, &p);
	watch();
	errno = 0;
	qp = create_qp(&r, &back);
	error = errno;
	seen.on = false;
	if (!same_fate(&p, qp != NULL, error)) {
		tell(&r, qp ? "accepted" : "refused");
		differs("  model: fate %d, %s; provider: %s", p.fate, strerror(p.error),
			strerror(error));
	} else if (qp) {
		if (!same_caps(&back, &p.caps)) {
			tell(&r, "caps");
			differs("  model %u/%u/%u %u/%u, provider %u/%u/%u %u/%u",
				p.caps.max_send_wr, p.caps.max_send_sge, p.caps.max_inline_data,
				p.caps.max_recv_wr, p.caps.max_recv_sge, back.max_send_wr,
				back.max_send_sge, back.max_inline_data, back.max_recv_wr,
				back.max_recv_sge);
		}
		if (is_mlx5)
			compare_mlx5_bytes(&r, &p.bytes, qp);
		else
			compare_mappings("QP", &p.bytes);
	}
	if (qp)
		ibv_destroy_qp(qp);
}

/* --- completion queues, shared receive queues --- */

static void compare_ring(const char *what, const struct queue_bytes *b)
{
	uint64_t buffer = to_pages(b->rq);

	if (!is_mlx5) {
		compare_mappings(what, b);
		return;
	}
	if (seen.rings != buffer)
		differs("%s: model %llu, provider %zu", what, (unsigned long long)buffer,
			seen.rings);
	compare_rest(what, queue_bytes_total(b) - buffer - SLOT_BYTES);
}

static void draw_cqe_size(void)
{
	static const char *const sizes[] = { "64", "128", "96" };
	uint32_t n = draw(20);

	device.settings.cqe_bytes = 0;
	unsetenv("MLX5_CQE_SIZE");
	if (n >= 3 || !is_mlx5)
		return;
	setenv("MLX5_CQE_SIZE", sizes[n], 1);
	device.settings.cqe_bytes = (uint16_t)atoi(sizes[n]);
}

static void one_cq(void)
{
	uint32_t cqe = draw_depth(is_mlx5 ? 17 : 15);
	struct prediction p;
	struct ibv_cq *made;
	int error;

	if (!draw(12))
		cqe = (1u << 24) - 1 + draw(1u << 25); /* more than the provider takes, or just */
	if (cqe == (1u << 24) - 1)
		cqe++; /* 1 GiB: no */
	draw_cqe_size();
	geometry_predict_cq(model, cqe, &device, &p);
	watch();
	errno = 0;
	made = ibv_create_cq(context, (int)cqe, NULL, NULL, 0);
	error = errno;
	seen.on = false;
	if (!same_fate(&p, made != NULL, error)) {
		differs("CQ of %u with CQEs of %u: model fate %d, %s; provider %s, %s", cqe,
			device.settings.cqe_bytes, p.fate, strerror(p.error),
			made ? "accepts" : "refuses", strerror(error));
	} else if (made) {
		if ((uint32_t)made->cqe != p.cqe)
			differs("CQ of %u: model %u, provider %d", cqe, p.cqe, made->cqe);
		compare_ring("CQ", &p.bytes);
	}
	if (made)
		ibv_destroy_cq(made);
}

static void one_srq(void)
{
	uint32_t wr = draw_depth(is_mlx5 ? 16 : 12), sge = draw(40);
	struct ibv_srq_init_attr a = { .attr = { .max_wr = wr, .max_sge = sge } };
	struct prediction p;
	struct ibv_srq *made;
	int error;

	geometry_predict_srq(model, wr, sge, &device, &p);
	watch();
	errno = 0;
	made = ibv_create_srq(pd, &a);
	error = errno;
	seen.on = false;
	if (!same_fate(&p, made != NULL, error)) {
		differs("SRQ of %u x %u: model fate %d, %s; provider %s, %s", wr, sge, p.fate,
			strerror(p.error), made ? "accepts" : "refuses", strerror(error));
	} else if (made) {
		if (!same_depth(a.attr.max_wr, p.caps.max_recv_wr) ||
		    a.attr.max_sge != p.caps.max_recv_sge)
			differs("SRQ of %u x %u: model %u x %u, provider %u x %u", wr, sge,
				p.caps.max_recv_wr, p.caps.max_recv_sge, a.attr.max_wr,
				a.attr.max_sge);
		compare_ring("SRQ", &p.bytes);
	}
	if (made)
		ibv_destroy_srq(made);
}

/* --- all of them --- */

static void sweep(const char *what, uint32_t count, void (*one)(void))
{
	char text[160];

	accepted = refused = differences = 0;
	for (uint32_t i = 0; i < count; i++)
		one();
	snprintf(text, sizeof(text), "%u %s, %u accepted and %u refused: %u differ from the model",
		 count, what, accepted, refused, differences);
	verdict(!differences, text);
	snprintf(text, sizeof(text), "of the %s each fate is at least a twentieth", what);
	verdict(accepted * 20 >= count && refused * 20 >= count, text);
}

static uint32_t argument(int argc, char **argv, int i, uint32_t standard)
{
	return i < argc ? (uint32_t)strtoul(argv[i], NULL, 0) : standard;
}

int main(int argc, char **argv)
{
	uint32_t seed = argument(argc, argv, 1, 1);

	chance = UINT64_C(0x9e3779b97f4a7c15) * (seed + UINT64_C(1));
	setvbuf(stdout, NULL, _IOLBF, 0);
	is_unsigned = getenv("SWEEP_UNSIGNED") != NULL;
	open_device();
	read_mappings(&before);
	sweep("queue pairs", argument(argc, argv, 2, 5000), one_qp);
	sweep("completion queues", argument(argc, argv, 3, 500), one_cq);
	sweep("shared receive queues", argument(argc, argv, 4, 500), one_srq);
	printf("1..%u\n", tests);
	return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
