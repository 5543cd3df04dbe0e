/* SPDX-License-Identifier: MIT */
/*
 * libFuzzer: any bytes read as a state file do no harm and are told in JSON that holds. The first
 * byte of the input chooses whether a good header is put before the rest, so that blocks and
 * records are reached. Needs report/ and policy/; build with clang
 * -fsanitize=fuzzer,address,undefined.
 */
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "report/output.h"
#include "tests/unit/state_builder.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *input_file(void)
{
	static char path[] = "/tmp/qpguard-fuzz-XXXXXX";
	static int fd = -1;

	if (fd < 0)
		fd = mkstemp(path);
	if (fd < 0)
		abort();
	return path;
}

static void save(const uint8_t *data, size_t size)
{
	static struct builder good;
	int fd = open(input_file(), O_WRONLY | O_TRUNC);

	if (!good.bytes)
		builder_begin(&good);
	builder_header(&good)->file_bytes = STATE_HEADER_BYTES + size;
	if (size && data[0] & 1 && write(fd, good.bytes, STATE_HEADER_BYTES) < 0)
		abort();
	if (size && write(fd, data + 1, size - 1) < 0)
		abort();
	close(fd);
}

static void read_back(struct model *m, struct statefile *f)
{
	char *text = NULL;
	size_t len;
	struct json_output json = { .out = open_memstream(&text, &len), .verbose = true };
	struct text_output plain;
	FILE *null = fopen("/dev/null", "w");
	json_t *root;

	if (!json.out || !null)
		abort();
	json_output_begin(&json);
	json_output_process(&json, m);
	json_output_end(&json);
	fclose(json.out);
	root = json_loadb(text, len, 0, NULL);
	if (!root)
		abort();
	json_decref(root);
	free(text);
	text_output_begin(&plain, null, true);
	text_output_process(&plain, m);
	if (f->state != PROCESS_RUNNING)
		check_process(&plain, m);
	fclose(null);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct model model;
	char why[STATEFILE_WHY_BYTES];
	struct statefile *f;

	save(data, size);
	f = statefile_open(AT_FDCWD, input_file(), why);
	if (f && model_read(&model, f, "input"))
		read_back(&model, f);
	statefile_close(f);
	return 0;
}
