/* SPDX-License-Identifier: MIT */
/* Finding the real functions: see real.h. */
#include "real.h"

#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>

#include "loaded.h"

/*
 * dlopen moved from libdl into libc with glibc 2.34. Bound to its first version it is found in
 * either; weak, because libdl need not be there in a process that loads no library by hand.
 */
#if defined(__x86_64__)
#define FIRST_GLIBC "GLIBC_2.2.5"
#elif defined(__aarch64__)
#define FIRST_GLIBC "GLIBC_2.17"
#endif
/* Where libc itself has it at build time; the linker of an older system does not know its version. */
#if defined(FIRST_GLIBC) && __GLIBC_PREREQ(2, 34)
__asm__(".symver dlopen, dlopen@" FIRST_GLIBC);
#endif
#pragma weak dlopen

/* libc's own, since RTLD_NEXT must mean what comes after this library: through another one that
 * wraps the lookups it would mean what comes after that, which may be us. */
static void *lookup(void *handle, const struct real *r)
{
	static _Atomic(void *) libc_dlsym, libc_dlvsym;
	_Atomic(void *) *kept = r->version ? &libc_dlvsym : &libc_dlsym;
	void *look = atomic_load_explicit(kept, memory_order_relaxed);

	if (!look) {
		look = loaded_in_libc(r->version ? "dlvsym" : "dlsym");
		atomic_store_explicit(kept, look, memory_order_relaxed);
	}
	if (!look)
		return NULL;
	if (r->version)
		return ((void *(*)(void *, const char *, const char *))look)(handle, r->name,
									     r->version);
	return ((void *(*)(void *, const char *))look)(handle, r->name);
}

/* A handle that is never closed, so that an address stays good. NULL: not loaded. */
static void *keep(const char *library)
{
	return dlopen ? dlopen(library, RTLD_LAZY | RTLD_NOLOAD) : NULL;
}

static void *keep_libibverbs(void)
{
	static _Atomic(void *) kept;
	void *library = atomic_load_explicit(&kept, memory_order_relaxed);

	if (!library) {
		library = keep("libibverbs.so.1");
		atomic_store_explicit(&kept, library, memory_order_relaxed);
	}
	return library;
}

/* `library` is a handle of where it is, or NULL. What is libibverbs' may be another preloaded library's that comes
 * after us. */
static void *find(struct real *r, void *library)
{
	void *address = r->library ? NULL : lookup(RTLD_NEXT, r);

	if (!address && library)
		address = lookup(library, r);
	if (address)
		atomic_store_explicit(&r->address, address, memory_order_relaxed);
	return address;
}

void *real_find(struct real *r)
{
	void *address = atomic_load_explicit(&r->address, memory_order_relaxed);
	int saved = errno;

	if (address)
		return address;
	address = find(r, r->library ? keep(r->library) : keep_libibverbs());
	errno = saved;
	return address;
}

void *library_open(const char *name)
{
	return dlopen ? dlopen(name, RTLD_LOCAL | RTLD_NOW) : NULL;
}

void *library_symbol(void *library, const char *name)
{
	const struct real any = { .name = name };

	return lookup(library, &any);
}

/* A library of a provider is asked for once, not for each of its functions, which lie beside each other. */
void real_find_early(void)
{
	const char *library = NULL;
	void *handle = NULL;
	int saved = errno;

	for (struct real *r = __start_sought_early; r < __stop_sought_early; r++) {
		if (atomic_load_explicit(&r->address, memory_order_relaxed))
			continue;
		if (r->library && r->library != library)
			handle = keep(r->library);
		library = r->library;
		if (!library || handle)
			find(r, library ? handle : keep_libibverbs());
	}
	errno = saved;
}
