/* SPDX-License-Identifier: MIT */
/*
 * What the kernel keeps for a process: contexts, channels, objects by handle,
 * and the count of pinned pages. Every function runs under nic.lock, and all
 * but the rare look at contexts and channels (there are few) takes constant
 * time, so 100,000 QPs are made as fast as the first hundred.
 */
#include "mlx5dev.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

struct nic nic = { .lock = PTHREAD_MUTEX_INITIALIZER, .id = -1 };

void *fresh(size_t size)
{
	void *p = calloc(1, size);

	if (!p) {
		dprintf(STDERR_FILENO, "mlx5dev: out of memory\n");
		_exit(2);
	}
	return p;
}

/* ---- handles: index into a table whose free slots are chained ---- */

/* 0 is no handle, and 1 would make the key that libmlx5 takes for invalid (0x100). */
#define FIRST_HANDLE 2

struct table {
	void **slot; /* an object, or twice the next free handle plus one */
	uint32_t size, free, used;
};

static struct table tables[KINDS];

static void table_grow(struct table *t)
{
	uint32_t size = t->size ? t->size * 2 : 64;

	t->slot = realloc(t->slot, size * sizeof(*t->slot));
	if (!t->slot)
		_exit(2);
	for (uint32_t h = size; h-- > (t->size ? t->size : FIRST_HANDLE);) {
		t->slot[h] = (void *)((uintptr_t)t->free * 2 + 1);
		t->free = h;
	}
	t->size = size;
}

int object_add(struct object *o, enum kind kind, struct context *ctx)
{
	struct table *t = &tables[kind];

	if (t->used >= limits.max[kind])
		return ENOMEM;
	if (t->used + 1 >= limits.nth[kind])
		return (int)limits.nth_errno;
	if (!t->free)
		table_grow(t);
	o->kind = kind;
	o->ctx = ctx;
	o->handle = t->free;
	t->free = (uint32_t)((uintptr_t)t->slot[o->handle] / 2);
	t->slot[o->handle] = o;
	t->used++;
	list_add(&ctx->objects, &o->of_context);
	return 0;
}

void object_remove(struct object *o)
{
	struct table *t = &tables[o->kind];

	unpin(o);
	t->slot[o->handle] = (void *)((uintptr_t)t->free * 2 + 1);
	t->free = o->handle;
	t->used--;
	list_del(&o->of_context);
}

void *object_get(enum kind kind, uint32_t handle)
{
	struct table *t = &tables[kind];

	if (handle < FIRST_HANDLE || handle >= t->size || (uintptr_t)t->slot[handle] & 1)
		return NULL;
	return t->slot[handle];
}

unsigned objects_of(enum kind kind)
{
	return tables[kind].used;
}

/* ---- pinned pages, as the kernel's ib_umem counts them ---- */

static uint64_t pinned; /* pages */

static int pin_pages(uint64_t pages)
{
	if (limits.memlock != ~0ull && pinned + pages > limits.memlock / PAGE_BYTES)
		return ENOMEM;
	pinned += pages;
	return 0;
}

int pin(struct object *o, uint64_t addr, uint64_t len)
{
	uint64_t pages = (addr + len + PAGE_BYTES - 1) / PAGE_BYTES - addr / PAGE_BYTES;
	int err = pin_pages(len ? pages : 0);

	if (!err && len)
		o->pages += pages;
	return err;
}

/* The doorbell records of many objects share a page, which is pinned once. */
struct db_page {
	uint64_t page;
	uint32_t users;
	struct db_page *next;
};

static struct db_page *db_pages[4096];

static struct db_page **db_find(uint64_t page)
{
	struct db_page **p = &db_pages[(page ^ page >> 12) % 4096];

	while (*p && (*p)->page != page)
		p = &(*p)->next;
	return p;
}

int pin_doorbell(struct object *o, uint64_t addr)
{
	struct db_page **p = db_find(addr / PAGE_BYTES);
	int err;

	if (!*p) {
		err = pin_pages(1);
		if (err)
			return err;
		*p = fresh(sizeof(**p));
		(*p)->page = addr / PAGE_BYTES;
	}
	(*p)->users++;
	o->db_page = addr / PAGE_BYTES;
	return 0;
}

void unpin(struct object *o)
{
	struct db_page **p, *gone;

	pinned -= o->pages;
	o->pages = 0;
	if (!o->db_page)
		return;
	p = db_find(o->db_page);
	o->db_page = 0;
	gone = *p;
	if (--gone->users)
		return;
	*p = gone->next;
	free(gone);
	pinned--;
}

/* ---- contexts ---- */

struct context *context_of_fd(int fd)
{
	for (struct node *n = nic.contexts.next; n != &nic.contexts; n = n->next) {
		struct context *ctx = owner_of(n, struct context, all);

		if (ctx->fd == fd)
			return ctx;
	}
	return NULL;
}

struct context *context_new(int fd)
{
	struct context *ctx = context_of_fd(fd);

	/* Closed behind our back (by a raw system call, say). */
	if (ctx)
		context_free(ctx);
	ctx = fresh(sizeof(*ctx));
	ctx->fd = fd;
	ctx->async_peer = -1;
	list_init(&ctx->objects);
	list_init(&ctx->uars);
	list_add(&nic.contexts, &ctx->all);
	return ctx;
}

void context_free(struct context *ctx)
{
	/* Users before what they use, as the kernel cleans up a process. */
	static const enum kind order[] = { DEVX_OBJ, DEVX_UMEM, QP,  RWQ_TABLE, WQ, SRQ,
					   CQ,	     MR,	UAR, XRCD,	PD };

	for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
		struct node *n = ctx->objects.next, *next;

		for (; n != &ctx->objects; n = next) {
			struct object *o = owner_of(n, struct object, of_context);

			next = n->next;
			if (o->kind == order[i])
				object_destroy(o);
		}
	}
	if (ctx->async_peer >= 0)
		syscall(SYS_close, ctx->async_peer);
	list_del(&ctx->all);
	free(ctx);
}

/* ---- channels ---- */

struct channel *channel_of_fd(int fd)
{
	for (struct node *n = nic.channels.next; n != &nic.channels; n = n->next) {
		struct channel *ch = owner_of(n, struct channel, all);

		if (ch->fd == fd)
			return ch;
	}
	return NULL;
}

/*
 * The program may make its end blocking or not as it likes. Ours is a second
 * opening of the same pipe, so that it stays non-blocking.
 */
struct channel *channel_new(void)
{
	char path[32];
	struct channel *ch;
	int fds[2];

	if (pipe2(fds, O_CLOEXEC))
		return NULL;
	ch = fresh(sizeof(*ch));
	ch->fd = fds[0];
	ch->write_fd = fds[1];
	fcntl(fds[1], F_SETFL, O_NONBLOCK);
	fcntl(fds[1], F_SETPIPE_SZ, 1 << 18);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fds[0]);
	ch->read_fd = openat(AT_FDCWD, path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	ch->users = 1;
	list_init(&ch->cqs);
	list_add(&nic.channels, &ch->all);
	return ch;
}

/* Events that the program has not read yet. */
uint32_t channel_pending(const struct channel *ch)
{
	int bytes = 0;

	syscall(SYS_ioctl, ch->read_fd, FIONREAD, &bytes);
	return (uint32_t)bytes / sizeof(struct ib_uverbs_comp_event_desc);
}

void channel_put(struct channel *ch)
{
	if (--ch->users)
		return;
	syscall(SYS_close, ch->read_fd);
	syscall(SYS_close, ch->write_fd);
	list_del(&ch->all);
	free(ch);
}

/* Forgets all objects: at load, and in a forked child. */
void objects_reset(void)
{
	memset(tables, 0, sizeof(tables));
	memset(db_pages, 0, sizeof(db_pages));
	pinned = 0;
	list_init(&nic.contexts);
	list_init(&nic.channels);
	list_init(&nic.waiting);
	list_init(&nic.in_error);
	nic.active_qps = nic.waiting_events = 0;
}
