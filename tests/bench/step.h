/* SPDX-License-Identifier: MIT */
/*
 * Counts the instructions of one call exactly, whatever the machine's mood: the calling thread sets the
 * x86 trap flag, so that each instruction ends in a SIGTRAP, and the handler counts them. x86-64 alone.
 */
#ifndef QPG_STEP_H
#define QPG_STEP_H

#include <stdbool.h>

/* What was seen while stepping. */
struct steps {
	unsigned long all;	 /* instructions */
	unsigned long guard;	 /* of them in libqpguard.so */
	unsigned long forbidden; /* of those: lock prefix, fence, division, clock, system call */
};

/* Installs the handler and finds where libqpguard.so lies, if it is loaded. */
void step_setup(void);
/* Whether 100 nops count as 100. */
bool step_works(void);
/* Calls f(arg) and returns what that took, without the cost of calling through here. */
struct steps step_call(void (*f)(void *), void *arg);
/*
 * From now on it only calls, and returns nothing of worth: what happens the first time a place is come from is
 * then over. The guard's unwinder blocks all signals there, and stepping with SIGTRAP blocked ends the process.
 */
void step_rehearse(bool only);

#endif
