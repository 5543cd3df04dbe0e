/* SPDX-License-Identifier: MIT */
/*
 * A library to be preloaded that wraps dlsym, as others do, in plain C: it wraps puts for whoever
 * looks that up by a handle, and passes all else on. Tells at exit, on standard error, what it saw.
 */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#if defined(__aarch64__)
#define FIRST_GLIBC "GLIBC_2.17"
#else
#define FIRST_GLIBC "GLIBC_2.2.5"
#endif

static _Atomic unsigned int verbs_lookups;

static int wrapped_puts(const char *text)
{
	return printf("wrapped: %s\n", text);
}

__attribute__((visibility("default"))) void *dlsym(void *restrict handle, const char *restrict name)
{
	static void *(*next)(void *, const char *);

	if (!next)
		next = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", FIRST_GLIBC);
	if (!strncmp(name, "ibv_", 4))
		verbs_lookups++;
	if (handle != RTLD_NEXT && handle != RTLD_DEFAULT && !strcmp(name, "puts"))
		return (void *)wrapped_puts;
	return next(handle, name);
}

/* Before the other library's start-up, where this one is begun first: a lookup must work. */
__attribute__((constructor)) static void begin(void)
{
	void *(*find)(void *, const char *) = dlsym;

	if (!find(RTLD_NEXT, "getpid") || !dlvsym(RTLD_NEXT, "dlvsym", FIRST_GLIBC))
		fprintf(stderr, "wrapper: a lookup in a constructor found nothing\n");
}

__attribute__((destructor)) static void end(void)
{
	fprintf(stderr, "wrapper: %s functions of libibverbs were looked up\n",
		verbs_lookups ? "some" : "no");
}
