/* SPDX-License-Identifier: MIT */
/*
 * Who asks: distinct call stacks, each kept once, by index. Under guard->lock. Where stacks cannot be had, a
 * caller is the return address alone.
 */
#include <string.h>

#include "file.h"
#include "guard.h"
#include "stack.h"

/* The frame's record, made when the first caller has it; the last one is "other". */
static uint16_t frame_index(struct guard *g, struct place *p)
{
	struct frame_record *r;
	uint32_t index;

	if (p->frame != UINT16_MAX)
		return p->frame;
	r = file_add(g, KIND_FRAME, STATE_MAX_FRAMES, &index);
	if (!r)
		return UINT16_MAX;
	r->address = r->offset = p->address;
	r->module = UINT16_MAX;
	if (p->module != UINT16_MAX) {
		const struct module_record *m = file_record(g->file, KIND_MODULE, p->module);

		r->module = p->module;
		r->offset = p->address - m->base;
	}
	atomic_store_explicit(&r->state, RECORD_LIVE, memory_order_release);
	p->frame = (uint16_t)index;
	return p->frame;
}

/* What a caller is told by. */
struct stack {
	unsigned int frames;
	bool cut;
	uint16_t frame[STATE_STACK_FRAMES];
};

static void take_stack(struct guard *g, const void *address, struct stack *out)
{
	struct place *place[STATE_STACK_FRAMES];
	unsigned int n = stack_walk(g, address, place, &out->cut);

	out->frames = 0;
	if (!n) {
		place[0] = stack_place(g, (uintptr_t)address);
		n = place[0] != NULL;
	}
	for (unsigned int i = 0; i < n; i++) {
		uint16_t frame = frame_index(g, place[i]);

		if (frame == UINT16_MAX) {
			out->cut = true;
			break;
		}
		out->frame[out->frames++] = frame;
	}
}

static uint32_t hash_of(const struct stack *s)
{
	uint32_t h = 2166136261u;

	for (unsigned int i = 0; i < s->frames; i++)
		h = (h ^ s->frame[i]) * 16777619u;
	return h ^ h >> 15;
}

static bool is_stack(const struct caller_record *c, const struct stack *s)
{
	return c->frames == s->frames &&
	       !memcmp(c->frame, s->frame, s->frames * sizeof(s->frame[0]));
}

/* Two of the table are not for stacks: "other", and one slot that stays free. */
static uint16_t caller_add(struct guard *g, const struct stack *s)
{
	struct caller_record *c;
	uint32_t index;

	c = s->frames ? file_add(g, KIND_CALLER, STATE_MAX_CALLERS - 1, &index) : NULL;
	if (!c) {
		if (g->caller_other)
			return (uint16_t)(g->caller_other - 1);
		c = file_add(g, KIND_CALLER, STATE_MAX_CALLERS, &index);
		if (!c)
			return UINT16_MAX;
		c->flags = CALLER_OTHER;
		g->caller_other = index + 1;
	} else {
		c->flags = s->cut ? CALLER_CUT : 0;
		c->frames = (uint8_t)s->frames;
		memcpy(c->frame, s->frame, s->frames * sizeof(s->frame[0]));
	}
	atomic_store_explicit(&c->state, RECORD_LIVE, memory_order_release);
	return (uint16_t)index;
}

uint16_t caller_index(struct guard *g, const void *address)
{
	const uint32_t slots = sizeof(g->caller_slot) / sizeof(g->caller_slot[0]);
	struct stack s;
	uint32_t slot;
	uint16_t index;

	take_stack(g, address, &s);
	slot = hash_of(&s) % slots;
	for (; s.frames && g->caller_slot[slot]; slot = (slot + 1) % slots) {
		index = (uint16_t)(g->caller_slot[slot] - 1);
		if (is_stack(file_record(g->file, KIND_CALLER, index), &s))
			return index;
	}
	index = caller_add(g, &s);
	if (s.frames && index != UINT16_MAX && index + 1u != g->caller_other)
		g->caller_slot[slot] = (uint16_t)(index + 1);
	return index;
}

const char *caller_module(struct guard *g, uint16_t caller)
{
	const struct caller_record *c;
	const struct frame_record *f;

	if (caller == UINT16_MAX)
		return "";
	c = file_record(g->file, KIND_CALLER, caller);
	if (!c->frames)
		return "";
	f = file_record(g->file, KIND_FRAME, c->frame[0]);
	if (f->module == UINT16_MAX)
		return "";
	return ((const struct module_record *)file_record(g->file, KIND_MODULE, f->module))->path;
}
