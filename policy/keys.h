/* SPDX-License-Identifier: MIT */
/*
 * Between the parser of lines, that of variables and the writer: names, faults, and adding one
 * setting. Nobody outside policy/ includes this.
 */
#ifndef QPG_KEYS_H
#define QPG_KEYS_H

#include "policy.h"
#include "text.h"

/* Names that the manual knows and this version does not act upon: told, and left out. */
struct future_key {
	const char *section;
	const char *name; /* "": any */
};
extern const struct future_key future_keys[];
extern const unsigned int future_key_count;

/* All section names there are, in the order of the manual. */
extern const char *const policy_sections[];
extern const unsigned int policy_section_count;

/* The key, or POLICY_KEYS. */
unsigned int key_find(const char *section, struct span name);
bool key_is_future(const char *section, struct span name);

/* The candidate closest to a name that nobody knows: offer candidates, then read `best`. */
struct nearest {
	struct span name;
	const char *best;
	unsigned int distance;
};
void nearest_offer(struct nearest *n, const char *candidate);
/* Steps (insert, delete, replace, swap neighbours) from a to b, case aside. Cut at 64 bytes. */
unsigned int edit_distance(struct span a, struct span b);

/* What a person wrote as a value. Between quotes, '\' stands before '"' and '\'. */
struct value {
	struct span raw; /* without the quotes */
	bool quoted;
};

/* Where faults go while one file or one variable is read. */
struct faults {
	const char *file;
	uint32_t line;
	policy_complain complain;
	void *arg;
	unsigned int count;
	bool no_settings, no_sections, no_text; /* these were told: once a file is enough */
	struct text text;			/* the sentence in the making */
	char buf[400];
};

/* Begin a sentence; fault_tell() ends and tells it. */
struct text *fault_begin(struct faults *f);
void fault_tell(struct faults *f);
void fault_say(struct faults *f, const char *sentence);

/* Keeps a value in the policy's text, without its quotes. 0 and a complaint if it cannot. */
uint32_t keep_text(struct policy *p, struct faults *f, struct value v);

/* A whole number with nothing around it. */
enum reading { READ_OK, READ_NONE, READ_TOO_BIG };
enum reading read_count(struct span s, uint64_t *out);

/* The glob of the nth condition, an offset into policy.text (0: absent), and the condition's name.
 * UINT32_MAX: there are no more. */
uint32_t section_condition(const struct policy_section *s, unsigned int n, const char **name);

/* Adds one setting to a section, or complains. */
void setting_add(struct policy *p, struct faults *f, unsigned int key, uint32_t section,
		 struct value v);

#endif
