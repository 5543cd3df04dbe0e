/* SPDX-License-Identifier: MIT */
/*
 * Queue pairs that are made at many places, deep down, and on stacks of every kind.
 *
 *     stacks places N     N of them, one after the other, from 50 places: 50 ways through two calls
 *     stacks deep         from a depth of 40 calls
 *     stacks cost         the least time of a creation and a destruction, in ns, 24 calls deep
 *     stacks odd          on a coroutine's stack of 16 KiB; on one that ends amid nothing; from code that was
 *                         made at run time; from a frame of varying size, and one that is aligned
 *     stacks named        one from a function of this name: the report names it
 */
#include <alloca.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>

#include "verbs_pair.h"

#define PLACES	   50
#define STACK_SIZE 16384

static struct ibv_cq *cq;

__attribute__((noinline)) static void make_one(void)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = { 16, 16, 1, 1, 0 }
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &attr);

	need(qp != NULL, "no queue pair");
	need(ibv_destroy_qp(qp) == 0, "it cannot be destroyed");
}

/* Six turns left or right: as many ways as `turns` has values. */
__attribute__((noinline)) static void take_way(unsigned int turns, unsigned int left)
{
	/* the two calls differ in what follows, so that they stay two */
	if (left == 0) {
		make_one();
		__asm__ volatile("nop");
	} else if (turns & 1) {
		take_way(turns >> 1, left - 1);
		__asm__ volatile("nop\n\tnop");
	} else {
		take_way(turns >> 1, left - 1);
		__asm__ volatile("nop\n\tnop\n\tnop");
	}
}

static void places(unsigned long count)
{
	for (unsigned long i = 0; i < count; i++)
		take_way((unsigned int)(i % PLACES), 6);
	result("made %lu", count);
}

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static uint64_t least = UINT64_MAX;

__attribute__((noinline)) static void measure(void)
{
	for (unsigned int i = 0; i < 3000; i++) {
		uint64_t before = now(), took;

		make_one();
		took = now() - before;
		if (took < least)
			least = took;
	}
}

__attribute__((noinline)) static void descend(unsigned int left, void (*then)(void))
{
	volatile unsigned int here = left;

	if (left)
		descend(left - 1, then);
	else
		then();
	here++;
}

/* --- odd stacks --- */

static ucontext_t main_context, coroutine;

static void on_coroutine(void)
{
	make_one();
	make_one();
}

/* The stack's top page is the last one that there is. */
static char *bounded_stack(void)
{
	char *all =
		mmap(NULL, STACK_SIZE + 2 * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	need(all != MAP_FAILED, "no memory");
	need(!mprotect(all + 4096, STACK_SIZE, PROT_READ | PROT_WRITE), "no stack");
	return all + 4096;
}

static void run_coroutine(void)
{
	need(!getcontext(&coroutine), "no context");
	coroutine.uc_stack.ss_sp = bounded_stack();
	coroutine.uc_stack.ss_size = STACK_SIZE;
	coroutine.uc_link = &main_context;
	makecontext(&coroutine, on_coroutine, 0);
	need(!swapcontext(&main_context, &coroutine), "no coroutine");
	result("coroutine");
}

#if defined(__x86_64__)
/* Calls f on a stack that holds nothing but words of 1, up to its end. */
static void call_on(char *stack, void (*f)(void))
{
	char *top = stack + STACK_SIZE - 16;

	memset(stack, 1, STACK_SIZE);
	/* the frame pointer cannot be named where a sanitizer keeps it */
	__asm__ volatile("movq %%rsp, %%rbx\n\t"
			 "movq %%rbp, %%r12\n\t"
			 "movq %0, %%rsp\n\t"
			 "movq %0, %%rbp\n\t"
			 "call *%1\n\t"
			 "movq %%r12, %%rbp\n\t"
			 "movq %%rbx, %%rsp"
			 : "+d"(top), "+a"(f)
			 :
			 : "rbx", "r12", "rcx", "rsi", "rdi", "r8", "r9", "r10", "r11", "memory",
			   "cc");
}

/* A function that nobody has tables for: push %rbx; call *%rdi; pop %rbx; ret. */
static void call_by_made_code(void (*f)(void))
{
	static const unsigned char code[] = { 0x53, 0xff, 0xd7, 0x5b, 0xc3 };
	void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	void (*call)(void (*)(void));

	need(page != MAP_FAILED, "no memory");
	memcpy(page, code, sizeof(code));
	need(!mprotect(page, 4096, PROT_READ | PROT_EXEC), "no code");
	memcpy(&call, &page, sizeof(call));
	call(f);
}
#else
static void call_on(char *stack, void (*f)(void))
{
	(void)stack;
	f();
}

static void call_by_made_code(void (*f)(void))
{
	f();
}
#endif

__attribute__((noinline)) static void varying(size_t bytes)
{
	char *room = alloca(bytes);

	memset(room, 0, bytes);
	make_one();
	__asm__ volatile("" : : "r"(room) : "memory");
}

__attribute__((noinline)) static void aligned(void)
{
	_Alignas(256) char room[256] = { 0 };

	__asm__ volatile("" : : "r"(room) : "memory");
	make_one();
	__asm__ volatile("" : : "r"(room) : "memory");
}

__attribute__((noinline)) static void aligned_behind(size_t bytes)
{
	char *room = alloca(bytes);

	__asm__ volatile("" : : "r"(room) : "memory");
	aligned();
	__asm__ volatile("" : : "r"(room) : "memory");
}

static void odd(void)
{
	run_coroutine();
	call_on(bounded_stack(), make_one);
	call_on(bounded_stack(), on_coroutine);
	result("a stack of nothing");
	call_by_made_code(make_one);
	call_by_made_code(on_coroutine);
	result("made code");
	for (size_t bytes = 16; bytes <= 65536; bytes *= 2)
		varying(bytes);
	result("varying");
	for (size_t bytes = 16; bytes <= 512; bytes += 16)
		aligned_behind(bytes);
	result("aligned");
}

__attribute__((noinline)) static void made_by_this_function(void)
{
	make_one();
	__asm__ volatile("");
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";

	device_begin();
	cq = ibv_create_cq(context, 64, NULL, NULL, 0);
	need(cq != NULL, "no completion queue");
	if (!strcmp(what, "places"))
		places(argc > 2 ? strtoul(argv[2], NULL, 10) : PLACES);
	else if (!strcmp(what, "deep"))
		descend(40, make_one);
	else if (!strcmp(what, "cost"))
		descend(24, measure);
	else if (!strcmp(what, "odd"))
		odd();
	else if (!strcmp(what, "named"))
		made_by_this_function();
	else
		need(false, "stacks places|deep|cost|odd|named");
	if (least != UINT64_MAX)
		printf("least %llu\n", (unsigned long long)least);
	ibv_destroy_cq(cq);
	device_end();
	return 0;
}
