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
	const char *name, *version;
	_Atomic(void *) address;
};

/* Its address, or NULL when libibverbs is not loaded or has none. Any thread; errno is kept. */
void *real_find(struct real *r);
/* The same in the library of that name alone, if it is loaded. */
void *real_find_in(struct real *r, const char *library);
/* A libc function that may be newer than the oldest libc we run on, or NULL. */
void *real_libc(const char *name);

#endif
