/* SPDX-License-Identifier: MIT */
/*
 * Functions of the objects that are loaded beside this library, found without asking the loader's
 * own lookup, which is among what is looked for.
 */
#ifndef QPG_LOADED_H
#define QPG_LOADED_H

/*
 * The runtime of a sanitizer looks functions up while it begins, before it can serve what it puts
 * into our code: on the way of a lookup there must be none of that.
 */
#if defined(__clang__) && __has_attribute(disable_sanitizer_instrumentation)
#define UNSANITIZED __attribute__((disable_sanitizer_instrumentation))
#else
#define UNSANITIZED __attribute__((no_sanitize("address", "thread", "undefined")))
#endif

/*
 * The function of that name in the first object that has one, of those loaded after this library:
 * what RTLD_NEXT finds for it, be it another preloaded library's. NULL: none. Calls nothing, takes
 * no lock: good at any time, once this library is relocated. Source: struct r_debug of <link.h>.
 */
void *loaded_next(const char *name);
/* The same in libc itself, or in libdl, which had the lookups before glibc 2.34. */
void *loaded_in_libc(const char *name);

#endif
