/* SPDX-License-Identifier: MIT */
/* Finding the real functions: see real.h. */
#include "real.h"

#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>

/*
 * The lookups moved from libdl into libc with glibc 2.34. Bound to their first version they are found in
 * either; weak, because libdl need not be there in a process that loads no library by hand.
 */
#if defined(__x86_64__)
#define FIRST_GLIBC "GLIBC_2.2.5"
#elif defined(__aarch64__)
#define FIRST_GLIBC "GLIBC_2.17"
#endif
#ifdef FIRST_GLIBC
__asm__(".symver dlsym, dlsym@" FIRST_GLIBC);
__asm__(".symver dlvsym, dlvsym@" FIRST_GLIBC);
__asm__(".symver dlopen, dlopen@" FIRST_GLIBC);
#endif
#pragma weak dlsym
#pragma weak dlvsym
#pragma weak dlopen

static void *lookup(void *handle, const struct real *r)
{
	return r->version ? dlvsym(handle, r->name, r->version) : dlsym(handle, r->name);
}

void *real_find(struct real *r)
{
	void *address = atomic_load_explicit(&r->address, memory_order_relaxed);
	int saved = errno;
	void *library;

	if (address || !dlsym || !dlvsym || !dlopen)
		return address;
	address = lookup(RTLD_NEXT, r);
	if (!address) {
		library = dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_NOLOAD);
		if (library)
			address = lookup(library, r);
	}
	atomic_store_explicit(&r->address, address, memory_order_relaxed);
	errno = saved;
	return address;
}

void *real_find_in(struct real *r, const char *library)
{
	void *address = atomic_load_explicit(&r->address, memory_order_relaxed);
	int saved = errno;
	void *handle;

	if (address || !dlsym || !dlvsym || !dlopen)
		return address;
	handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
	if (handle)
		address = lookup(handle, r);
	atomic_store_explicit(&r->address, address, memory_order_relaxed);
	errno = saved;
	return address;
}

void *library_open(const char *name)
{
	return dlopen && dlsym ? dlopen(name, RTLD_LOCAL | RTLD_NOW) : NULL;
}

void *library_symbol(void *library, const char *name)
{
	return dlsym(library, name);
}

extern struct real __start_sought_early[], __stop_sought_early[];

void real_find_early(void)
{
	for (struct real *r = __start_sought_early; r < __stop_sought_early; r++)
		real_find(r);
}
