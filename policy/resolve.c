/* SPDX-License-Identifier: MIT */
/*
 * Which values hold for a subject. Each key is decided on its own: among the settings whose section
 * matches, the section with the most conditions wins, then a variable over a line, then the later.
 * Only reads the policy.
 */
#include <string.h>

#include "glob.h"
#include "policy.h"

static bool matches(const struct policy *p, uint32_t condition, const char *value)
{
	return !condition || glob_match(p->text + condition, value ? value : "");
}

static bool section_matches(const struct policy *p, const struct policy_section *c,
			    const struct policy_subject *s)
{
	if (c->has_after_qps && s->qps < c->after_qps)
		return false;
	return matches(p, c->device, s->device) && matches(p, c->driver, s->driver) &&
	       matches(p, c->type, s->type) && matches(p, c->program, s->program) &&
	       matches(p, c->comm, s->comm) && matches(p, c->library, s->library);
}

static void set_defaults(struct policy_values *out)
{
	out->set = 0;
	for (unsigned int key = 0; key < POLICY_KEYS; key++) {
		out->num[key] = policy_keys[key].standard;
		out->text[key] = "";
	}
}

/* What a setting weighs against others of its key; of equal ones the later in the list wins. */
static unsigned int strength(const struct policy *p, const struct policy_setting *s)
{
	return 2u * p->section[s->section].conditions + (s->line == 0);
}

void policy_resolve(const struct policy *p, const struct policy_subject *s,
		    struct policy_values *out)
{
	uint64_t known[(POLICY_MAX_SECTIONS + 63) / 64] = { 0 };
	uint8_t best[POLICY_KEYS];

	set_defaults(out);
	for (uint32_t i = 0; i < p->sections; i++)
		if (section_matches(p, &p->section[i], s))
			known[i / 64] |= 1ULL << i % 64;
	for (uint32_t i = 0; i < p->settings; i++) {
		const struct policy_setting *v = &p->setting[i];
		unsigned int weight = strength(p, v);

		if (!(known[v->section / 64] >> v->section % 64 & 1))
			continue;
		if (out->set >> v->key & 1 && weight < best[v->key])
			continue;
		best[v->key] = (uint8_t)weight;
		out->set |= 1ULL << v->key;
		out->num[v->key] = v->num;
		out->text[v->key] = p->text + v->text;
	}
	for (unsigned int limit = 0; limit < BUDGET_LIMITS; limit++)
		if (!(out->set >> (BUDGET_ACTION_OF + limit) & 1))
			out->num[BUDGET_ACTION_OF + limit] = out->num[BUDGET_ACTION];
}
