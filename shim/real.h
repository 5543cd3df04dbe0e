/* SPDX-License-Identifier: MIT */
/*
 * The functions behind the ones we interpose. Looked up when first wanted and by version: before
 * glibc 2.36 a plain RTLD_NEXT lookup finds the IBVERBS_1.0 compatibility symbol. libibverbs may
 * have come in by a plugin opened RTLD_LOCAL, where RTLD_NEXT finds nothing: then the loaded
 * library is asked.
 */
#ifndef QPG_REAL_H
#define QPG_REAL_H

#include <stdatomic.h>

/*
 * One function: `name` at `version`, or at any version when that is NULL. One that we interpose is
 * told by its wrapper, and then guarded by symbol and by handle alike:
 *     static struct real real_x SOUGHT_EARLY = { "ibv_x", "IBVERBS_1.1", .wrapper = (void *)ibv_x };
 */
struct real {
	_Alignas(64) const char *name; /* 64 bytes each, without gaps in a section */
	const char *version;
	_Atomic(void *) address; /* NULL: not found yet */
	void *wrapper; /* our own of that name, if we interpose it: what a lookup by handle gets */
	const char *library; /* where it is, if not in libibverbs: it is looked for there alone */
};

/*
 * All that are marked so are looked up by real_find_early, and those with a wrapper are also
 * guarded when a program looks them up (by_handle.c). Once before the first verbs call, and again as
 * a device is opened, for the libraries of providers that came in since. A lookup waits for the loader's lock, which
 * a constructor may hold while it waits for the thread that makes a verbs call, or for one that
 * waits for guard->lock: so it comes early, and never under that lock.
 */
#define MLX5	     "libmlx5.so.1"
#define MLX4	     "libmlx4.so.1"
#define EFA	     "libefa.so.1"
#define HNS	     "libhns.so.1"
#define RDMACM	     "librdmacm.so.1"
#define SOUGHT_EARLY __attribute__((section("sought_early"), used))
void real_find_early(void);
extern struct real __start_sought_early[], __stop_sought_early[];

/* Its address, or NULL when its library is not loaded or has none. The library stays loaded from
 * then on. Any thread; errno is kept, the state of dlerror() is not. */
void *real_find(struct real *r);

/* A library for ourselves alone, opened RTLD_LOCAL and never closed, and what it defines; NULL: not there.
 * Both take the loader's lock. */
void *library_open(const char *name);
void *library_symbol(void *library, const char *name);

#endif
