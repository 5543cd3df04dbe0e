/* SPDX-License-Identifier: MIT */
/*
 * The ways a model is written for people and programs: one file each. All write to the FILE they
 * are given and read single records through model->file.
 */
#ifndef QPG_OUTPUT_H
#define QPG_OUTPUT_H

#include <stdio.h>

#include "model.h"

/* json.c: one object with processes[], or one process a line. begin, process ..., end. */
struct json_output {
	FILE *out;
	bool lines;	     /* jsonl */
	bool verbose;	     /* qps[] holds ended ones too */
	unsigned int items;  /* written in the list at hand */
	unsigned int fields; /* written in the process at hand */
	unsigned int processes;
};
void json_output_begin(struct json_output *w);
void json_output_process(struct json_output *w, const struct model *m);
void json_output_end(struct json_output *w);

/* text.c: for a terminal of `width` columns. */
struct text_output {
	FILE *out;
	unsigned int width;
	bool color;
	bool verbose;
	unsigned int processes;
	uint64_t qps, bytes, refusals; /* of all processes so far */
	unsigned int states[4];	       /* by enum process_state */
};
void text_output_begin(struct text_output *w, FILE *out, bool verbose);
void text_output_process(struct text_output *w, const struct model *m);
void text_output_end(struct text_output *w);

/* check.c: the checklist. Returns the number of points that failed. */
unsigned int check_process(struct text_output *w, struct model *m);

#endif
