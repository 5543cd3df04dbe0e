/* SPDX-License-Identifier: MIT */
/* Call stacks of the calling thread, see stack.c. */
#ifndef QPG_STACK_H
#define QPG_STACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "modules.h"
#include "state.h"

struct guard;

/* How to get from a frame to the one that called it, by the registers in it. */
enum step_rule {
	STEP_UNKNOWN,
	STEP_BY_SP,    /* the caller's stack pointer is that of this frame + caller_sp */
	STEP_BY_FP,    /* or the frame pointer + caller_sp */
	STEP_BY_SAVED, /* or what lies at the frame pointer + caller_sp */
	STEP_UNSTEADY, /* differs each time: libunwind is asked each time */
	STEP_END,      /* the outermost frame */
};

/* A return address that was met. */
struct place {
	uintptr_t address;
	uint16_t module; /* UINT16_MAX: none */
	uint16_t frame;	 /* index among the records of KIND_FRAME, or UINT16_MAX: not part of a
				   caller yet */
	uint8_t rule;	 /* enum step_rule */
	bool keeps_fp;	 /* this frame left the frame pointer as it was */
	int32_t caller_sp;
	int32_t return_address; /* where they were saved, from the caller's stack pointer on */
	int32_t saved_fp;
};

#define STACK_PLACES STATE_MAX_FRAMES

struct places {
	struct place *all; /* STACK_PLACES of them, or NULL */
	uint32_t used;
	uint16_t slot[STACK_PLACES * 2]; /* hash of address and module to index + 1 */
};

/*
 * Opens libunwind: once, at the first device that is opened, under no lock since the loader's lock is taken.
 * False, once, when there is none: say so.
 */
bool stack_prepare(void);
/* When a guard begins: a child of a process that was forked amid the unwinding goes without. */
void stack_begin(void);

/*
 * The stack of the calling thread from the return address `from` outwards, as places; their number, 0
 * when it cannot be had. *cut: there were more. Under guard->lock. The places stay in memory.
 */
unsigned int stack_walk(struct guard *g, const void *from, struct place *out[STATE_STACK_FRAMES],
			bool *cut);
/* The place of an address, made when new; NULL without room. Under guard->lock. */
struct place *stack_place(struct guard *g, uintptr_t address);

#endif
