/* SPDX-License-Identifier: MIT */
/*
 * Keeps the state folder bounded: called once when a process makes its file. Removes files of dead
 * processes past the age, number or bytes of [state]; `qpguard clean` does the same by hand.
 */
#ifndef QPG_SWEEP_H
#define QPG_SWEEP_H

#include <stdint.h>

#include "../policy/policy.h"

/* Looks at a bounded number of files, removes by unlink alone, only those of `uid`; silent. */
void sweep_folder(int dir, const struct policy_values *v, uint32_t uid);

#endif
