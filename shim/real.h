/* SPDX-License-Identifier: MIT */
/*
 * The functions behind the ones we interpose. Looked up when first wanted and by version: before glibc
 * 2.36 a plain RTLD_NEXT lookup finds the IBVERBS_1.0 compatibility symbol. libibverbs may have come in
 * by a plugin opened RTLD_LOCAL, where RTLD_NEXT finds nothing: then the loaded library is asked.
 */
#ifndef QPG_REAL_H
#define QPG_REAL_H

#include <stdatomic.h>

/* One function: `name` at `version`, or at any version when that is NULL. */
struct real {
	_Alignas(32) const char *name; /* 32 bytes each, without gaps in a section */
	const char *version;
	_Atomic(void *) address;
};

/*
 * All that are marked so are looked up by real_find_early. A lookup waits for the loader's lock, which
 * a constructor may hold while it waits for the thread that makes a verbs call, or for one that
 * waits for guard->lock: so it comes early, and never under that lock.
 */
#define SOUGHT_EARLY __attribute__((section("sought_early"), used))
void real_find_early(void);

/* Its address, or NULL when libibverbs is not loaded or has none. Any thread; errno is kept. */
void *real_find(struct real *r);
/* The same in the library of that name alone, if it is loaded. */
void *real_find_in(struct real *r, const char *library);

/* A library for ourselves alone, opened RTLD_LOCAL and never closed, and what it defines; NULL: not there.
 * Both take the loader's lock. */
void *library_open(const char *name);
void *library_symbol(void *library, const char *name);

#endif
