/* SPDX-License-Identifier: MIT */
/*
 * Functions looked up by a handle: dlopen("libibverbs.so.1") and then dlsym or dlvsym, as NCCL
 * does. No symbol that we interpose is bound that way, so the lookups themselves are, and who gets
 * a function that is behind one of ours gets ours.
 *
 * Everybody else's lookup is passed on untouched. RTLD_NEXT and RTLD_DEFAULT depend on the address
 * that the lookup returns to, so it is passed on by a jump, which C does not promise: hence the
 * assembly. It asks where to go and goes there with the arguments, the stack and the return address
 * that it found.
 *
 * They carry the versions of libc's own, as others ask for them by these: the first ever and, of
 * glibc 2.34, when they came into libc.
 *
 * A lookup can come before any constructor ran, from inside malloc, and from the start of a
 * sanitizer's runtime: up to the jump nothing is called but what the loaded objects themselves tell
 * (loaded.h).
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>

#include "guard.h"
#include "loaded.h"
#include "real.h"

typedef void *dlsym_fn(void *handle, const char *name);
typedef void *dlvsym_fn(void *handle, const char *name, const char *version);

#if defined(__x86_64__)
__asm__("	.text\n"
	"	.p2align 4\n"
	"	.globl	own_dlsym\n"
	"	.type	own_dlsym, @function\n"
	"own_dlsym:\n"
	"	.cfi_startproc\n"
	"	endbr64\n"
	"	pushq	%rdi\n"
	"	.cfi_adjust_cfa_offset 8\n"
	"	pushq	%rsi\n"
	"	.cfi_adjust_cfa_offset 8\n"
	"	subq	$8, %rsp\n"
	"	.cfi_adjust_cfa_offset 8\n"
	"	call	dlsym_goes_to\n"
	"	addq	$8, %rsp\n"
	"	.cfi_adjust_cfa_offset -8\n"
	"	popq	%rsi\n"
	"	.cfi_adjust_cfa_offset -8\n"
	"	popq	%rdi\n"
	"	.cfi_adjust_cfa_offset -8\n"
	"	jmp	*%rax\n"
	"	.cfi_endproc\n"
	"	.size	own_dlsym, . - own_dlsym\n"
	"	.p2align 4\n"
	"	.globl	own_dlvsym\n"
	"	.type	own_dlvsym, @function\n"
	"own_dlvsym:\n"
	"	.cfi_startproc\n"
	"	endbr64\n"
	"	pushq	%rdi\n"
	"	.cfi_adjust_cfa_offset 8\n"
	"	pushq	%rsi\n"
	"	.cfi_adjust_cfa_offset 8\n"
	"	pushq	%rdx\n"
	"	.cfi_adjust_cfa_offset 8\n"
	"	call	dlvsym_goes_to\n"
	"	popq	%rdx\n"
	"	.cfi_adjust_cfa_offset -8\n"
	"	popq	%rsi\n"
	"	.cfi_adjust_cfa_offset -8\n"
	"	popq	%rdi\n"
	"	.cfi_adjust_cfa_offset -8\n"
	"	jmp	*%rax\n"
	"	.cfi_endproc\n"
	"	.size	own_dlvsym, . - own_dlvsym\n"
	"	.globl	own_dlsym_first\n"
	"	.set	own_dlsym_first, own_dlsym\n"
	"	.symver	own_dlsym_first, dlsym@GLIBC_2.2.5\n"
	"	.symver	own_dlsym, dlsym@@GLIBC_2.34\n"
	"	.globl	own_dlvsym_first\n"
	"	.set	own_dlvsym_first, own_dlvsym\n"
	"	.symver	own_dlvsym_first, dlvsym@GLIBC_2.2.5\n"
	"	.symver	own_dlvsym, dlvsym@@GLIBC_2.34\n");
#elif defined(__aarch64__)
/* The hints are paciasp, which is also where an indirect branch may land, and autiasp. A jump by
 * x16 may land wherever a call may. */
__asm__("	.text\n"
	"	.p2align 4\n"
	"	.globl	own_dlsym\n"
	"	.type	own_dlsym, %function\n"
	"own_dlsym:\n"
	"	.cfi_startproc\n"
	"	hint	#25\n"
	"	.cfi_negate_ra_state\n"
	"	stp	x29, x30, [sp, #-32]!\n"
	"	.cfi_def_cfa_offset 32\n"
	"	.cfi_offset 29, -32\n"
	"	.cfi_offset 30, -24\n"
	"	mov	x29, sp\n"
	"	stp	x0, x1, [sp, #16]\n"
	"	bl	dlsym_goes_to\n"
	"	mov	x16, x0\n"
	"	ldp	x0, x1, [sp, #16]\n"
	"	ldp	x29, x30, [sp], #32\n"
	"	.cfi_restore 30\n"
	"	.cfi_restore 29\n"
	"	.cfi_def_cfa_offset 0\n"
	"	hint	#29\n"
	"	.cfi_negate_ra_state\n"
	"	br	x16\n"
	"	.cfi_endproc\n"
	"	.size	own_dlsym, . - own_dlsym\n"
	"	.p2align 4\n"
	"	.globl	own_dlvsym\n"
	"	.type	own_dlvsym, %function\n"
	"own_dlvsym:\n"
	"	.cfi_startproc\n"
	"	hint	#25\n"
	"	.cfi_negate_ra_state\n"
	"	stp	x29, x30, [sp, #-48]!\n"
	"	.cfi_def_cfa_offset 48\n"
	"	.cfi_offset 29, -48\n"
	"	.cfi_offset 30, -40\n"
	"	mov	x29, sp\n"
	"	stp	x0, x1, [sp, #16]\n"
	"	str	x2, [sp, #32]\n"
	"	bl	dlvsym_goes_to\n"
	"	mov	x16, x0\n"
	"	ldr	x2, [sp, #32]\n"
	"	ldp	x0, x1, [sp, #16]\n"
	"	ldp	x29, x30, [sp], #48\n"
	"	.cfi_restore 30\n"
	"	.cfi_restore 29\n"
	"	.cfi_def_cfa_offset 0\n"
	"	hint	#29\n"
	"	.cfi_negate_ra_state\n"
	"	br	x16\n"
	"	.cfi_endproc\n"
	"	.size	own_dlvsym, . - own_dlvsym\n"
	"	.globl	own_dlsym_first\n"
	"	.set	own_dlsym_first, own_dlsym\n"
	"	.symver	own_dlsym_first, dlsym@GLIBC_2.17\n"
	"	.symver	own_dlsym, dlsym@@GLIBC_2.34\n"
	"	.globl	own_dlvsym_first\n"
	"	.set	own_dlvsym_first, own_dlvsym\n"
	"	.symver	own_dlvsym_first, dlvsym@GLIBC_2.17\n"
	"	.symver	own_dlvsym, dlvsym@@GLIBC_2.34\n");
#endif

/* libdl is not loaded (before glibc 2.34): there is nothing that could look anything up. */
UNSANITIZED static void *finds_nothing(void *handle, const char *name)
{
	(void)handle;
	(void)name;
	return NULL;
}

UNSANITIZED static void *finds_no_version(void *handle, const char *name, const char *version)
{
	(void)version;
	return finds_nothing(handle, name);
}

/* The lookups of the next library that has them: libc's, or those of another preloaded library. */
UNSANITIZED static dlsym_fn *next_dlsym(void)
{
	static _Atomic(dlsym_fn *) kept;
	dlsym_fn *next = atomic_load_explicit(&kept, memory_order_relaxed);

	if (!next) {
		next = (dlsym_fn *)loaded_next("dlsym");
		atomic_store_explicit(&kept, next, memory_order_relaxed);
	}
	return next ? next : finds_nothing;
}

UNSANITIZED static dlvsym_fn *next_dlvsym(void)
{
	static _Atomic(dlvsym_fn *) kept;
	dlvsym_fn *next = atomic_load_explicit(&kept, memory_order_relaxed);

	if (!next) {
		next = (dlvsym_fn *)loaded_next("dlvsym");
		atomic_store_explicit(&kept, next, memory_order_relaxed);
	}
	return next ? next : finds_no_version;
}

/* strcmp may be a sanitizer's. */
UNSANITIZED static bool same(const char *a, const char *b)
{
	while (*a && *a == *b) {
		a++;
		b++;
	}
	return *a == *b;
}

/* Any version when that is NULL, on either side. */
UNSANITIZED static bool matches(const struct real *r, const char *name, const char *version)
{
	return r->wrapper && same(r->name, name) &&
	       (!version || !r->version || same(r->version, version));
}

UNSANITIZED static bool one_of_ours(const char *name, const char *version)
{
	for (const struct real *r = __start_sought_early; r < __stop_sought_early; r++)
		if (matches(r, name, version))
			return true;
	return false;
}

/* True when there is any of the functions that ours of that name stand for. */
static bool find_real(const char *name, const char *version)
{
	bool found = false;

	for (struct real *r = __start_sought_early; r < __stop_sought_early; r++)
		if (matches(r, name, version) && real_find(r))
			found = true;
	return found;
}

static _Atomic uint32_t handed_out;

uint32_t lookups_handed_out(void)
{
	return atomic_load_explicit(&handed_out, memory_order_relaxed);
}

/* What a lookup found, or ours if that is what ours stands for. */
static void *ours_for(const char *name, const char *version, void *found)
{
	for (const struct real *r = __start_sought_early; found && r < __stop_sought_early; r++)
		if (matches(r, name, version) &&
		    found == atomic_load_explicit(&r->address, memory_order_relaxed)) {
			atomic_fetch_add_explicit(&handed_out, 1, memory_order_relaxed);
			guard_tell_lookups();
			return r->wrapper;
		}
	return found;
}

/*
 * A lookup that would have failed without us must fail with us in the list of libraries, and say so
 * to dlerror(): what is searched is what comes after us. Not as a tail call, since RTLD_NEXT is
 * meant from here.
 */
static void *not_there(void *handle, const char *name)
{
	void *found = next_dlsym()(RTLD_NEXT, name);

	(void)handle;
	__asm__ volatile("" ::: "memory");
	return found;
}

static void *version_not_there(void *handle, const char *name, const char *version)
{
	void *found = next_dlvsym()(RTLD_NEXT, name, version);

	(void)handle;
	__asm__ volatile("" ::: "memory");
	return found;
}

static bool is_wrapper(const void *found)
{
	for (const struct real *r = __start_sought_early; found && r < __stop_sought_early; r++)
		if (r->wrapper == found)
			return true;
	return false;
}

/* The real lookup comes last: dlerror() tells what it left. */
static void *dlsym_by_handle(void *handle, const char *name)
{
	bool there = find_real(name, NULL);
	void *found = next_dlsym()(handle, name);

	if (!there && is_wrapper(found))
		return not_there(handle, name);
	return ours_for(name, NULL, found);
}

static void *dlvsym_by_handle(void *handle, const char *name, const char *version)
{
	bool there = find_real(name, version);
	void *found = next_dlvsym()(handle, name, version);

	if (!there && is_wrapper(found))
		return version_not_there(handle, name, version);
	return ours_for(name, version, found);
}

/* RTLD_DEFAULT finds ours by the order of the libraries, which is right if there is what ours
 * stands for, be it in a library that was opened RTLD_LOCAL. */
static bool default_is_right(const char *name, const char *version)
{
	if (find_real(name, version))
		return true;
	return !is_wrapper(version ? next_dlvsym()(RTLD_DEFAULT, name, version)
				   : next_dlsym()(RTLD_DEFAULT, name));
}

/*
 * Where a lookup goes on. RTLD_NEXT is asked by those who wrap a function themselves: their next
 * may be ours by the order of the libraries, and if it is not, it must not be.
 */
__attribute__((used)) UNSANITIZED dlsym_fn *dlsym_goes_to(void *handle, const char *name);
dlsym_fn *dlsym_goes_to(void *handle, const char *name)
{
	if (handle == RTLD_NEXT || !name || !one_of_ours(name, NULL) || guard_bypassed())
		return next_dlsym();
	if (handle != RTLD_DEFAULT)
		return dlsym_by_handle;
	return default_is_right(name, NULL) ? next_dlsym() : not_there;
}

__attribute__((used)) UNSANITIZED dlvsym_fn *dlvsym_goes_to(void *handle, const char *name,
							    const char *version);
dlvsym_fn *dlvsym_goes_to(void *handle, const char *name, const char *version)
{
	if (handle == RTLD_NEXT || !name || !version || !one_of_ours(name, version) ||
	    guard_bypassed())
		return next_dlvsym();
	if (handle != RTLD_DEFAULT)
		return dlvsym_by_handle;
	return default_is_right(name, version) ? next_dlvsym() : version_not_there;
}
