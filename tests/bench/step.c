/* SPDX-License-Identifier: MIT */
/* Single stepping of one's own thread: see step.h. */
#include "step.h"

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <ucontext.h>

static volatile unsigned long counted, in_guard, forbidden;
static uintptr_t guard_start, guard_end;
static uint64_t flag = 0x100;

/* The first instruction at `p`, as far as it must not be on the data path. A xchg with memory locks too. */
static bool is_forbidden(const unsigned char *p)
{
	bool locked = false;

	for (; *p == 0xf0 || *p == 0xf2 || *p == 0xf3 || *p == 0x66 || (*p & 0xf0) == 0x40; p++)
		locked |= *p == 0xf0;
	if (locked)
		return true;
	if (p[0] == 0x0f && p[1] == 0xae && p[2] >= 0xe8) /* lfence, mfence, sfence */
		return true;
	if (p[0] == 0x0f &&
	    (p[1] == 0x31 || p[1] == 0x05 || p[1] == 0xa2)) /* rdtsc, syscall, cpuid */
		return true;
	if (p[0] == 0x0f && p[1] == 0x01 && p[2] == 0xf9) /* rdtscp */
		return true;
	if ((p[0] == 0xf6 || p[0] == 0xf7) && (p[1] & 0x30) == 0x30) /* div, idiv */
		return true;
	return (p[0] == 0x86 || p[0] == 0x87) && (p[1] & 0xc0) != 0xc0;
}

static void on_trap(int signal, siginfo_t *info, void *context)
{
	uintptr_t at = (uintptr_t)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];

	(void)signal;
	(void)info;
	counted++;
	if (at >= guard_start && at < guard_end) {
		in_guard++;
		forbidden += is_forbidden((const unsigned char *)at);
	}
}

void step_setup(void)
{
	struct sigaction action = { .sa_sigaction = on_trap, .sa_flags = SA_SIGINFO };
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512];

	sigaction(SIGTRAP, &action, NULL);
	while (maps && fgets(line, sizeof(line), maps)) {
		unsigned long start, end;

		if (strstr(line, "libqpguard.so") && strstr(line, " r-xp ") &&
		    sscanf(line, "%lx-%lx", &start, &end) == 2) {
			guard_start = start;
			guard_end = end;
		}
	}
	if (maps)
		fclose(maps);
}

/* The flag takes effect after the instruction that follows popf; both ends are counted and taken off. */
static __attribute__((noinline)) void with_trap_flag(void (*f)(void *), void *arg)
{
	uint64_t set = flag;

	__asm__ volatile("pushfq\n\torq %0, (%%rsp)\n\tpopfq" : : "r"(set) : "memory", "cc");
	f(arg);
	__asm__ volatile("pushfq\n\tandq $~0x100, (%%rsp)\n\tpopfq" ::: "memory", "cc");
}

void step_rehearse(bool only)
{
	flag = only ? 0 : 0x100;
}

static void nothing(void *arg)
{
	(void)arg;
}

static struct steps raw(void (*f)(void *), void *arg)
{
	counted = in_guard = forbidden = 0;
	with_trap_flag(f, arg);
	return (struct steps){ counted, in_guard, forbidden };
}

struct steps step_call(void (*f)(void *), void *arg)
{
	struct steps empty = raw(nothing, arg), s = raw(f, arg);

	s.all -= empty.all;
	return s;
}

static void hundred_nops(void *arg)
{
	(void)arg;
	__asm__ volatile(".rept 100\n\tnop\n\t.endr");
}

bool step_works(void)
{
	return step_call(hundred_nops, NULL).all == 100;
}
