/* SPDX-License-Identifier: MIT */
/*
 * Call stacks. libunwind takes each step once: where it led from a return address is kept as a rule,
 * and a stack of known addresses is walked by the rules alone, in some nanoseconds a frame.
 *
 * It is the unwinder for other processes that is used, on our own, since it gets everything through the functions
 * below. The one for the own process probes memory by writing to a pipe, whose descriptors may be another
 * file's once a program has closed all, and searches by dl_iterate_phdr. Ours probe by a system call that
 * needs no descriptor and search the tables of the object in memory. So a damaged stack ends the walk and
 * nothing else, and no lock is taken but libunwind's own around its memory.
 *
 * The walk begins in here: frames of our own are dropped up to the return address that is asked for.
 */
#include "stack.h"

#include "config.h"

#include <errno.h>
#include <string.h>
#ifdef HAVE_LIBUNWIND_H
#include <libunwind.h>
#endif

#include "guard.h"
#include "memory.h"
#include "real.h"
#include "sys.h"

/* Own frames before the one that is asked for. */
#define OWN_FRAMES 12

struct place *stack_place(struct guard *g, uintptr_t address)
{
	struct places *p = &g->places;
	const uint32_t slots = sizeof(p->slot) / sizeof(p->slot[0]);
	uint16_t module = module_index(g, address);
	uint32_t slot = (uint32_t)lookup_hash(address + module) % slots;

	for (; p->slot[slot]; slot = (slot + 1) % slots) {
		struct place *at = &p->all[p->slot[slot] - 1u];

		if (at->address == address && at->module == module)
			return at;
	}
	if (!p->all)
		p->all = memory_map(STACK_PLACES * sizeof(*p->all));
	if (!p->all || p->used == STACK_PLACES)
		return NULL;
	p->all[p->used] =
		(struct place){ address, module, UINT16_MAX, STEP_UNKNOWN, false, 0, 0, 0 };
	p->slot[slot] = (uint16_t)++p->used;
	return &p->all[p->used - 1];
}

#if defined(HAVE_LIBUNWIND_H) && (defined(__x86_64__) || defined(__aarch64__))

#if defined(__x86_64__)
#define LIBUNWIND "libunwind-x86_64.so.8"
#define REGISTERS 17
#define FP	  UNW_X86_64_RBP
#define SP	  UNW_X86_64_RSP
#define IP	  UNW_X86_64_RIP
#else
#define LIBUNWIND "libunwind-aarch64.so.8"
#define REGISTERS 33
#define FP	  UNW_AARCH64_X29
#define SP	  UNW_AARCH64_SP
#define IP	  UNW_AARCH64_PC
#endif

#define NAME_OF(x)  NAME_OF_(x)
#define NAME_OF_(x) #x
#define SYMBOL(fn)  NAME_OF(UNW_OBJ(fn))

/* By the names of its functions; loaded once and never again, also not in a child. */
static struct {
	_Atomic int state; /* 0: not tried, 1: somebody tries, 2: ready, 3: none */
	unw_addr_space_t (*create_addr_space)(unw_accessors_t *, int);
	int (*init_remote)(unw_cursor_t *, unw_addr_space_t, void *);
	int (*step)(unw_cursor_t *);
	int (*get_reg)(unw_cursor_t *, int, unw_word_t *);
	int (*get_save_loc)(unw_cursor_t *, int, unw_save_loc_t *);
	int (*is_signal_frame)(unw_cursor_t *);
	int (*search)(unw_addr_space_t, unw_word_t, unw_dyn_info_t *, unw_proc_info_t *, int,
		      void *);
	unw_addr_space_t space;
	/* While libunwind is in use its locks may be held: a child that is forked meanwhile finds them so. */
	_Atomic int at_work;
} unwinder;

struct registers {
	uintptr_t r[REGISTERS];
};

#define PAGES 16

/* One walk. */
struct walk {
	struct guard *guard;
	struct registers here;
	uintptr_t from;
	unsigned int own, frames; /* met before `from`, and from there on */
	bool cut;
	struct place **out;
	uintptr_t readable[PAGES]; /* pages that were probed, by their number */
	bool no_rule;		   /* libunwind found nothing on the address, and guesses */
	unw_cursor_t cursor;
};
static_assert(sizeof(struct walk) <= 2048, "hooks use at most 4 KiB of stack");

/* --- memory --- */

static bool read_word(struct walk *w, uintptr_t at, uintptr_t *value)
{
	uintptr_t page = at >> 12;

	if (at % sizeof(*value))
		return false;
	if (w->readable[page % PAGES] != page) {
		if (!address_is_readable(at))
			return false;
		w->readable[page % PAGES] = page;
	}
	*value = *(const uintptr_t *)at;
	return true;
}

/* --- what libunwind asks us --- */

static int access_mem(unw_addr_space_t as, unw_word_t at, unw_word_t *value, int write, void *arg)
{
	uintptr_t word;

	(void)as;
	if (write || !read_word(arg, at, &word))
		return -UNW_EINVAL;
	*value = word;
	return 0;
}

static int access_reg(unw_addr_space_t as, unw_regnum_t reg, unw_word_t *value, int write,
		      void *arg)
{
	const struct walk *w = arg;

	(void)as;
	if (write || reg < 0 || reg >= REGISTERS)
		return -UNW_EBADREG;
	*value = w->here.r[reg];
	return 0;
}

static int access_fpreg(unw_addr_space_t as, unw_regnum_t reg, unw_fpreg_t *value, int write,
			void *arg)
{
	(void)as;
	(void)reg;
	(void)value;
	(void)write;
	(void)arg;
	return -UNW_EBADREG;
}

/* Version 1, then how three values are encoded: a count in 4 bytes and a table sorted by address
 * are what linkers write. */
static int find_proc_info(unw_addr_space_t as, unw_word_t ip, unw_proc_info_t *out, int need,
			  void *arg)
{
	struct walk *w = arg;
	uint16_t module = module_index(w->guard, ip);
	const struct loaded *l = module == UINT16_MAX ? NULL : &w->guard->modules.loaded[module];
	const unsigned char *header = l ? (const unsigned char *)l->eh_frame : NULL;
	unw_dyn_info_t table = { 0 };
	uint32_t count;
	uintptr_t word;

	w->no_rule = true;
	if (!header || !read_word(w, (uintptr_t)header & ~(uintptr_t)7, &word) || header[0] != 1 ||
	    (header[1] & 0x0f) != 0x0b || header[2] != 0x03 || header[3] != 0x3b)
		return -UNW_ENOINFO;
	memcpy(&count, header + 8, sizeof(count));
	if (count > (l->end - l->eh_frame) / 8)
		return -UNW_ENOINFO;
	table.start_ip = l->start;
	table.end_ip = l->end;
	table.format = UNW_INFO_FORMAT_REMOTE_TABLE;
	table.u.rti.segbase = l->eh_frame;
	table.u.rti.table_data = l->eh_frame + 12;
	table.u.rti.table_len = (unw_word_t)count * 8 / sizeof(unw_word_t);
	w->no_rule = false;
	if (!unwinder.search(as, ip, &table, out, need, arg))
		return 0;
	w->no_rule = true;
	return -UNW_ENOINFO;
}

static void put_unwind_info(unw_addr_space_t as, unw_proc_info_t *info, void *arg)
{
	(void)as;
	(void)info;
	(void)arg;
}

static int get_dyn_info_list_addr(unw_addr_space_t as, unw_word_t *list, void *arg)
{
	(void)as;
	(void)list;
	(void)arg;
	return -UNW_ENOINFO;
}

static int resume(unw_addr_space_t as, unw_cursor_t *cursor, void *arg)
{
	(void)as;
	(void)cursor;
	(void)arg;
	return -UNW_EINVAL;
}

static int get_proc_name(unw_addr_space_t as, unw_word_t ip, char *name, size_t size,
			 unw_word_t *offset, void *arg)
{
	(void)as;
	(void)ip;
	(void)name;
	(void)size;
	(void)offset;
	(void)arg;
	return -UNW_ENOINFO;
}

static unw_accessors_t accessors = {
	.find_proc_info = find_proc_info,
	.put_unwind_info = put_unwind_info,
	.get_dyn_info_list_addr = get_dyn_info_list_addr,
	.access_mem = access_mem,
	.access_reg = access_reg,
	.access_fpreg = access_fpreg,
	.resume = resume,
	.get_proc_name = get_proc_name,
};

/* --- opening it --- */

static bool open_unwinder(void)
{
	/* local: in the global scope it would take over the exceptions of C++ */
	void *library = library_open(LIBUNWIND);

	if (!library)
		return false;
	*(void **)&unwinder.create_addr_space = library_symbol(library, SYMBOL(create_addr_space));
	*(void **)&unwinder.init_remote = library_symbol(library, SYMBOL(init_remote));
	*(void **)&unwinder.step = library_symbol(library, SYMBOL(step));
	*(void **)&unwinder.get_reg = library_symbol(library, SYMBOL(get_reg));
	*(void **)&unwinder.get_save_loc = library_symbol(library, SYMBOL(get_save_loc));
	*(void **)&unwinder.is_signal_frame = library_symbol(library, SYMBOL(is_signal_frame));
	*(void **)&unwinder.search = library_symbol(library, SYMBOL(dwarf_search_unwind_table));
	if (!unwinder.create_addr_space || !unwinder.init_remote || !unwinder.step ||
	    !unwinder.get_reg || !unwinder.get_save_loc || !unwinder.is_signal_frame ||
	    !unwinder.search)
		return false;
	unwinder.space = unwinder.create_addr_space(&accessors, 0);
	return unwinder.space != NULL;
}

static bool is_pipe(const int fd[2])
{
	struct statx a, b;

	return fd[0] >= 0 && fd[1] >= 0 && sys_stat_fd(fd[0], &a) && sys_stat_fd(fd[1], &b) &&
	       S_ISFIFO(a.stx_mode) && S_ISFIFO(b.stx_mode) && a.stx_ino == b.stx_ino;
}

/* Two descriptors in the data of libunwind that were none before: closed, and none again, as which it
 * opens them when it wants them. */
static void close_pipe(const char *before, char *now, size_t bytes)
{
	static const int none[2] = { -1, -1 };
	int fd[2];

	for (size_t i = 0; i + sizeof(fd) <= bytes; i += sizeof(int)) {
		memcpy(fd, now + i, sizeof(fd));
		if (memcmp(before + i, none, sizeof(none)) || !is_pipe(fd))
			continue;
		memcpy(now + i, none, sizeof(none));
		sys_close(fd[0]);
		sys_close(fd[1]);
		return;
	}
}

/* Its first use opens a pipe to probe memory with, also for those who probe it themselves. */
static void use_first(void)
{
	uintptr_t from = 0, to = 0;
	bool known = module_data_of((const void *)unwinder.init_remote, &from, &to);
	char *before = known ? memory_map(to - from) : NULL;
	struct walk w = { 0 };

	if (before)
		memcpy(before, (const void *)from, to - from);
	unwinder.init_remote(&w.cursor, unwinder.space, &w);
	if (before)
		close_pipe(before, (char *)from, to - from);
	memory_unmap(before, to - from);
}

bool stack_prepare(void)
{
	int none = 0, saved = errno;
	bool ready;

	if (atomic_load_explicit(&unwinder.state, memory_order_relaxed) ||
	    !atomic_compare_exchange_strong(&unwinder.state, &none, 1))
		return true;
	ready = open_unwinder();
	if (ready)
		use_first();
	atomic_store_explicit(&unwinder.state, ready ? 2 : 3, memory_order_release);
	errno = saved;
	return ready;
}

void stack_begin(void)
{
	if (unwinder.at_work)
		atomic_store_explicit(&unwinder.state, 3, memory_order_relaxed);
}

/* --- a walk by rules --- */

/* The registers that a function keeps, as they are here. */
static inline __attribute__((always_inline)) void registers_here(struct registers *out)
{
#if defined(__x86_64__)
	__asm__ volatile("movq %%rbx, 24(%0)\n\t"
			 "movq %%rbp, 48(%0)\n\t"
			 "movq %%rsp, 56(%0)\n\t"
			 "movq %%r12, 96(%0)\n\t"
			 "movq %%r13, 104(%0)\n\t"
			 "movq %%r14, 112(%0)\n\t"
			 "movq %%r15, 120(%0)\n\t"
			 "leaq 0(%%rip), %%rax\n\t"
			 "movq %%rax, 128(%0)"
			 :
			 : "r"(out->r)
			 : "rax", "memory");
#else
	__asm__ volatile("stp x19, x20, [%0, #152]\n\t"
			 "stp x21, x22, [%0, #168]\n\t"
			 "stp x23, x24, [%0, #184]\n\t"
			 "stp x25, x26, [%0, #200]\n\t"
			 "stp x27, x28, [%0, #216]\n\t"
			 "stp x29, x30, [%0, #232]\n\t"
			 "mov x9, sp\n\t"
			 "adr x10, .\n\t"
			 "stp x9, x10, [%0, #248]"
			 :
			 : "r"(out->r)
			 : "x9", "x10", "memory");
#endif
}

/* False when there is no room for more. */
static bool take_frame(struct walk *w, struct place *p)
{
	if (!w->frames && p->address != w->from)
		return ++w->own <= OWN_FRAMES;
	if (w->frames == STATE_STACK_FRAMES) {
		w->cut = true;
		return false;
	}
	w->out[w->frames++] = p;
	return true;
}

struct position {
	uintptr_t ip, sp, fp;
};

/* One step by the rule of `p`. False when there is none, or it cannot lead there. */
static bool step_by_rule(struct walk *w, const struct place *p, struct position *at)
{
	uintptr_t sp, base = p->rule == STEP_BY_SP ? at->sp : at->fp;

	if (p->rule != STEP_BY_SP && p->rule != STEP_BY_FP && p->rule != STEP_BY_SAVED)
		return false;
	sp = base + (uintptr_t)(intptr_t)p->caller_sp;
	if ((p->rule == STEP_BY_SAVED && !read_word(w, sp, &sp)) || sp <= at->sp ||
	    !read_word(w, sp + (uintptr_t)(intptr_t)p->return_address, &at->ip) ||
	    (!p->keeps_fp && !read_word(w, sp + (uintptr_t)(intptr_t)p->saved_fp, &at->fp)))
		return false;
	at->sp = sp;
	return true;
}

/* False: somewhere there was no rule. */
static bool walk_by_rules(struct walk *w)
{
	struct position at = { w->here.r[IP], w->here.r[SP], w->here.r[FP] };

	for (;;) {
		const struct place *p = stack_place(w->guard, at.ip);

		if (!p || p->rule == STEP_UNKNOWN)
			return false;
		if (p->module == UINT16_MAX || !take_frame(w, (struct place *)p) ||
		    p->rule == STEP_END)
			return true;
		if (!step_by_rule(w, p, &at))
			return false;
	}
}

/* --- a walk by libunwind --- */

static bool position_of(struct walk *w, struct position *out)
{
	unw_word_t ip, sp, fp;

	if (unwinder.get_reg(&w->cursor, UNW_REG_IP, &ip) ||
	    unwinder.get_reg(&w->cursor, UNW_REG_SP, &sp) || unwinder.get_reg(&w->cursor, FP, &fp))
		return false;
	*out = (struct position){ ip, sp, fp };
	return true;
}

/* Where the register was saved, from the caller's stack pointer on; false: not in this frame. */
static bool saved_in_frame(struct walk *w, int reg, const struct position *before,
			   const struct position *after, int32_t *out)
{
	unw_save_loc_t loc;

	if (unwinder.get_save_loc(&w->cursor, reg, &loc) || loc.type != UNW_SLT_MEMORY ||
	    loc.u.addr < before->sp || loc.u.addr >= after->sp)
		return false;
	*out = (int32_t)((intptr_t)loc.u.addr - (intptr_t)after->sp);
	return true;
}

static bool find_return_address(struct walk *w, const struct position *before,
				const struct position *after, int32_t *out)
{
#if defined(__x86_64__)
	uintptr_t word;

	(void)before;
	*out = -8;
	return read_word(w, after->sp - 8, &word) && word == after->ip;
#else
	return saved_in_frame(w, UNW_AARCH64_X30, before, after, out);
#endif
}

/* What was a frame pointer in one call may be anything in another: how the stack pointer is found is
 * told by what agrees with the step, the likeliest first. */
static void choose_rule(struct walk *w, struct place *p, const struct position *before,
			const struct position *after)
{
	intptr_t by_sp = (intptr_t)after->sp - (intptr_t)before->sp;
	intptr_t by_fp = (intptr_t)after->sp - (intptr_t)before->fp;
	bool fp_in_frame = before->fp >= before->sp && before->fp < after->sp;
	uintptr_t word;

	p->rule = STEP_UNSTEADY;
	if (by_sp <= 0 || by_sp > INT32_MAX / 2 ||
	    !find_return_address(w, before, after, &p->return_address))
		return;
	p->keeps_fp = !saved_in_frame(w, FP, before, after, &p->saved_fp);
	if (fp_in_frame && by_fp == 2 * (intptr_t)sizeof(uintptr_t)) {
		p->rule = STEP_BY_FP;
		p->caller_sp = (int32_t)by_fp;
	} else if (fp_in_frame && read_word(w, before->fp - sizeof(word), &word) &&
		   word == after->sp) { /* a frame that was aligned by more than its caller's */
		p->rule = STEP_BY_SAVED;
		p->caller_sp = -(int32_t)sizeof(word);
	} else {
		p->rule = STEP_BY_SP;
		p->caller_sp = (int32_t)by_sp;
	}
}

static void learn(struct walk *w, struct place *p, const struct position *before,
		  const struct position *after)
{
	struct position by_rule = *before;
	bool known = p->rule != STEP_UNKNOWN;

	if (known && step_by_rule(w, p, &by_rule) && by_rule.ip == after->ip &&
	    by_rule.sp == after->sp && by_rule.fp == after->fp)
		return;
	if (p->rule == STEP_UNSTEADY)
		return;
	choose_rule(w, p, before, after);
	if (known && p->rule == STEP_BY_SP)
		p->rule = STEP_UNSTEADY;
}

static void walk_by_libunwind(struct walk *w)
{
	struct position before, after;
	struct place *p;

	if (unwinder.init_remote(&w->cursor, unwinder.space, w) || !position_of(w, &before))
		return;
	for (;; before = after) {
		p = stack_place(w->guard, before.ip);
		if (!p || p->module == UINT16_MAX || !take_frame(w, p))
			return;
		/* what it guesses, and what a signal interrupted, is no caller */
		if (unwinder.step(&w->cursor) <= 0 || w->no_rule || !position_of(w, &after) ||
		    after.sp <= before.sp || unwinder.is_signal_frame(&w->cursor) > 0) {
			p->rule = STEP_END;
			return;
		}
		learn(w, p, &before, &after);
	}
}

__attribute__((noinline)) unsigned int stack_walk(struct guard *g, const void *from,
						  struct place *out[STATE_STACK_FRAMES], bool *cut)
{
	struct walk w;

	*cut = false;
	if (atomic_load_explicit(&unwinder.state, memory_order_acquire) != 2)
		return 0;
	w.guard = g;
	w.from = (uintptr_t)from;
	w.own = w.frames = 0;
	w.cut = false;
	w.out = out;
	memset(w.readable, 0, sizeof(w.readable));
	registers_here(&w.here);
	if (!walk_by_rules(&w)) {
		w.own = w.frames = 0;
		w.cut = false;
		w.no_rule = false;
		atomic_store_explicit(&unwinder.at_work, 1, memory_order_seq_cst);
		walk_by_libunwind(&w);
		atomic_store_explicit(&unwinder.at_work, 0, memory_order_release);
	}
	*cut = w.cut;
	return w.frames;
}

#else

bool stack_prepare(void)
{
	static _Atomic int told;

	return atomic_exchange(&told, 1);
}

void stack_begin(void)
{
}

unsigned int stack_walk(struct guard *g, const void *from, struct place *out[STATE_STACK_FRAMES],
			bool *cut)
{
	(void)g;
	(void)from;
	(void)out;
	*cut = false;
	return 0;
}

#endif
