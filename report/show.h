/* SPDX-License-Identifier: MIT */
/*
 * Numbers, times and names as people read them. Names come from strangers' processes: whatever
 * could steer a terminal or is not UTF-8 is shown escaped. Touches only the buffers it is given.
 */
#ifndef QPG_SHOW_H
#define QPG_SHOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A buffer large enough for any number or time here; each function returns its argument. */
#define SHOW_BYTES 48
char *show_size(char *out, uint64_t bytes);   /* "96 KiB", "1.25 MiB" */
char *show_count(char *out, uint64_t number); /* "1234567" or, from ten million, "12.3M" */
char *show_span(char *out, uint64_t ns);      /* "12 s", "3 min", "5 h", "8 days" */
char *show_time(char *out, uint64_t ns);      /* "2026-03-01 12:00:03 UTC" */
char *show_rfc3339(char *out, uint64_t ns);   /* "2026-03-01T12:00:03.000000000Z" */

/* What to escape. Both write \xHH for bytes that are not UTF-8. */
enum escape { ESCAPE_FOR_JSON, ESCAPE_FOR_TERMINAL };

/* Copies `len` bytes of `text` into `out`, cut between characters where it does not fit, always
 * ended by NUL. Returns out. */
char *show_text(char *out, size_t size, const char *text, size_t len, enum escape how);

/* Columns that UTF-8 text takes, one for each character. */
size_t show_width(const char *text);

/* "RTS", ...; NULL for a value that is no enum ibv_qp_state. */
const char *show_qp_state(unsigned int state);
/* The same of enum ibv_wq_state: "RDY", ... */
const char *show_wq_state(unsigned int state);

#endif
