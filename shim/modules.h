/* SPDX-License-Identifier: MIT */
/*
 * The loaded objects that addresses lie in, see modules.c. All but module_name_of() and
 * address_is_readable() under guard->lock. None waits for the loader's lock.
 */
#ifndef QPG_MODULES_H
#define QPG_MODULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "state.h"

struct guard;

struct loaded {
	uintptr_t start, end; /* its mappings */
	uintptr_t identity;   /* differs from what else may come to lie there later; 0: not known */
	uintptr_t base;	      /* what its own addresses count from */
	uintptr_t eh_frame;   /* its .eh_frame_hdr; 0: none */
	const char *name;     /* the loader's: "" for the program */
};

struct modules {
	struct loaded loaded[STATE_MAX_MODULES]; /* by index among the records */
	uint16_t slot[STATE_MAX_MODULES * 2];	 /* hash of place and identity to index + 1 */
};

/* The index among the records of KIND_MODULE, made when new; UINT16_MAX when the address lies in no
 * object (code made at run time) or there is no room. */
uint16_t module_index(struct guard *g, uintptr_t address);
/* The path of the object that `address` lies in, "" for the program; false when it cannot be told. */
bool module_name_of(const void *address, char *buf, size_t size);
/* The writable data of the object that `address` lies in. */
bool module_data_of(const void *address, uintptr_t *from, uintptr_t *to);
/* Whether 8 bytes at `address` can be read, by asking the kernel: about 0.1 us. */
bool address_is_readable(uintptr_t address);

#endif
