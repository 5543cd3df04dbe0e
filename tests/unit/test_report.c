/* SPDX-License-Identifier: MIT */
/*
 * Reading state files: what a good one says, and that no bad one does harm. Files are built in
 * memory and lie in a temporary folder. QPG_MUTATIONS sets how many damaged files are tried of each
 * kind; with QPG_UNBOUNDED they may take any memory, as tools need that take their own.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "report/folders.h"
#include "report/output.h"
#include "report/show.h"
#include "report/tool.h"
#include "shim/retain.h"
#include "state_builder.h"

#define MUTATIONS    600
#define MEMORY_BYTES (64u << 20)

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif

static char folder[64], path[128];
static struct builder builder;
static struct model model;
static struct statefile *file;
static char why[STATEFILE_WHY_BYTES];
static json_t *roots[8]; /* of this test, for end() to free */
static unsigned int root_count;

static void begin(void)
{
	strcpy(folder, "/tmp/qpguard-test-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/qpguard-1-4711-1.state", folder);
	builder_begin(&builder);
	file = NULL;
	setenv("COLUMNS", "80", 1);
	unsetenv("QPGUARD_DIR");
	unsetenv("QPGUARD_CONF");
}

static void end(void)
{
	char command[128];

	while (root_count)
		json_decref(roots[--root_count]);
	statefile_close(file);
	builder_free(&builder);
	snprintf(command, sizeof(command), "rm -rf %s", folder);
	ck_assert_int_eq(system(command), 0);
}

static void save(void)
{
	ck_assert(builder_save(&builder, path));
}

/* Saves, opens and reads what was built. */
static void read_built(void)
{
	save();
	file = statefile_open(AT_FDCWD, path, why);
	ck_assert_msg(file != NULL, "%s", why);
	ck_assert(model_read(&model, file, path));
}

static void expect_refusal(const char *part)
{
	file = statefile_open(AT_FDCWD, path, why);
	ck_assert_ptr_null(file);
	ck_assert_msg(strstr(why, part) != NULL, "'%s' says nothing of '%s'", why, part);
}

static void write_bytes(const void *bytes, size_t len)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, bytes, len), (ssize_t)len);
	close(fd);
}

static char *as_json(bool verbose, size_t *len)
{
	char *text = NULL;
	struct json_output w = { .out = open_memstream(&text, len), .verbose = verbose };

	json_output_begin(&w);
	json_output_process(&w, &model);
	json_output_end(&w);
	fclose(w.out);
	return text;
}

/* The process of the report, as a JSON reader sees it. */
static json_t *json_process(bool verbose)
{
	size_t len;
	char *text = as_json(verbose, &len);
	json_error_t error;
	json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &error);

	ck_assert_msg(root != NULL, "line %d: %s", error.line, error.text);
	free(text);
	ck_assert_uint_lt(root_count, 8);
	roots[root_count++] = root;
	return json_array_get(json_object_get(root, "processes"), 0);
}

static char *as_text(bool verbose)
{
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);
	struct text_output w;

	text_output_begin(&w, out, verbose);
	w.width = 80;
	text_output_process(&w, &model);
	text_output_end(&w);
	fclose(out);
	return text;
}

static char *as_checklist(unsigned int *failed)
{
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);
	struct text_output w;

	text_output_begin(&w, out, false);
	w.width = 80;
	*failed = check_process(&w, &model);
	fclose(out);
	return text;
}

static struct group_shape rc_shape(void)
{
	return (struct group_shape){ .kind = KIND_QP,
				     .type = QP_TYPE_RC,
				     .caller = 0xffff,
				     .requested = { 64, 64, 2, 2, 0 },
				     .effective = { 64, 64, 2, 2, 0 } };
}

static uint32_t rc_group(void)
{
	struct group_shape shape = rc_shape();

	shape.device = (uint16_t)builder_device(&builder, "rxe0", "rxe");
	return builder_group(&builder, &shape);
}

/* What is refused, and in which words. */

START_TEST(an_empty_file_is_refused)
{
	write_bytes("", 0);
	expect_refusal("is empty");
}
END_TEST

START_TEST(a_missing_file_is_told)
{
	expect_refusal("does not exist");
}
END_TEST

START_TEST(a_text_file_is_no_state_file)
{
	static char text[STATE_HEADER_BYTES + 100];

	memset(text, 'x', sizeof(text));
	write_bytes(text, sizeof(text));
	expect_refusal("does not begin with " STATE_MAGIC);
}
END_TEST

START_TEST(a_short_file_is_no_state_file)
{
	write_bytes("QPGSTATE", 8);
	expect_refusal("shorter than a header");
}
END_TEST

START_TEST(a_file_that_its_process_never_began_is_told)
{
	static char zero[STATE_HEADER_BYTES];

	write_bytes(zero, sizeof(zero));
	expect_refusal("is not begun");
}
END_TEST

START_TEST(a_newer_version_is_refused)
{
	builder_header(&builder)->version = STATE_VERSION + 1;
	save();
	expect_refusal("newer");
}
END_TEST

START_TEST(the_other_byte_order_is_refused)
{
	builder_header(&builder)->byte_order = __builtin_bswap32(STATE_BYTE_ORDER);
	save();
	expect_refusal("other byte order");
}
END_TEST

START_TEST(records_of_another_size_are_refused)
{
	builder_header(&builder)->record_bytes[KIND_QP] = 385;
	save();
	expect_refusal("QP records of 385 bytes");
}
END_TEST

START_TEST(a_claim_of_terabytes_is_refused)
{
	builder_header(&builder)->file_bytes = 1ull << 40;
	save();
	expect_refusal("more than a state file ever has");
}
END_TEST

START_TEST(a_symbolic_link_is_not_followed)
{
	char target[160];

	snprintf(target, sizeof(target), "%s/target", folder);
	ck_assert(builder_save(&builder, target));
	ck_assert_int_eq(symlink(target, path), 0);
	expect_refusal("symbolic link");
}
END_TEST

START_TEST(a_fifo_is_refused_without_waiting)
{
	ck_assert_int_eq(mkfifo(path, 0600), 0);
	expect_refusal("not a regular file");
}
END_TEST

START_TEST(a_folder_is_no_state_file)
{
	ck_assert_int_eq(mkdir(path, 0700), 0);
	expect_refusal("not a regular file");
}
END_TEST

/* What is read in part. */

START_TEST(a_file_with_a_header_alone_is_a_process_that_holds_nothing)
{
	builder.size = STATE_HEADER_BYTES;
	builder_header(&builder)->file_bytes = STATE_HEADER_BYTES;
	read_built();
	ck_assert_str_eq(model.trouble, "");
	ck_assert_uint_eq(model.live_qps, 0);
}
END_TEST

START_TEST(a_cut_file_is_read_as_far_as_it_goes)
{
	uint32_t group = rc_group();

	builder_qp(&builder, group, 4096);
	builder_block(&builder, KIND_EVENT, 64);
	builder.size -= 4096;
	read_built();
	ck_assert_ptr_nonnull(strstr(model.trouble, "is cut"));
	ck_assert_uint_eq(model.live_qps, 1);
}
END_TEST

START_TEST(a_block_that_claims_more_than_it_holds_ends_the_reading)
{
	uint32_t group = rc_group();
	struct state_block *block;

	builder_qp(&builder, group, 4096);
	block = (struct state_block *)((unsigned char *)builder_record(&builder, KIND_QP, 0) -
				       sizeof(*block));
	block->records = 1000000;
	read_built();
	ck_assert_ptr_nonnull(strstr(model.trouble, "more records than it holds"));
	ck_assert_uint_eq(model.live_qps, 0);
}
END_TEST

START_TEST(a_block_of_no_length_does_not_hang_the_reader)
{
	struct state_block *block = (struct state_block *)(builder.bytes + STATE_HEADER_BYTES);

	block->bytes = 0;
	read_built();
	ck_assert_ptr_nonnull(strstr(model.trouble, "impossible length"));
}
END_TEST

START_TEST(an_unknown_kind_of_block_is_stepped_over)
{
	uint32_t group = rc_group();
	uint32_t first = builder_block(&builder, KIND_EVENT, 16);
	struct state_block *block = (struct state_block *)((unsigned char *)builder_record(
								   &builder, KIND_EVENT, first) -
							   sizeof(*block));

	block->kind = 77;
	builder_qp(&builder, group, 4096);
	read_built();
	ck_assert_str_eq(model.trouble, "");
	ck_assert_uint_eq(model.live_qps, 1);
}
END_TEST

START_TEST(a_torn_record_is_left_out)
{
	uint32_t group = rc_group();

	builder_qp(&builder, group, 4096)->seq = 7; /* odd: being written */
	builder_qp(&builder, group, 4096);
	read_built();
	ck_assert_uint_eq(model.live_qps, 1);
	ck_assert_uint_eq(model.torn, 1);
}
END_TEST

START_TEST(a_record_of_a_group_that_is_not_there_counts_in_the_totals_alone)
{
	uint32_t group = rc_group();

	builder_qp(&builder, group, 4096)->group = 900;
	read_built();
	ck_assert_uint_eq(model.live_qps, 1);
	ck_assert_uint_eq(model.strays, 1);
	ck_assert_uint_eq(model.groups[group].seen, 0);
}
END_TEST

START_TEST(texts_without_an_end_are_ended)
{
	struct device_record *d;

	builder_device(&builder, "rxe0", "rxe");
	d = builder_record(&builder, KIND_DEVICE, 0);
	memset(d->name, 'n', sizeof(d->name));
	memset(builder_header(&builder)->labels, ',', sizeof(builder_header(&builder)->labels));
	memset(builder_header(&builder)->exe, 'e', sizeof(builder_header(&builder)->exe));
	read_built();
	ck_assert_uint_eq(strlen(model.devices[0].name), sizeof(d->name) - 1);
	ck_assert_uint_eq(model.damaged, 3);
	free(as_text(true));
	json_process(true);
}
END_TEST

/* Sums. */

START_TEST(living_and_destroyed_members_are_added_up)
{
	uint32_t group = rc_group();
	struct qp_record *r;

	builder_destroyed(&builder, group, 3, 100);
	r = builder_qp(&builder, group, 4096);
	r->post_send_posted = 50;
	r->poll_send_completions = 45;
	r->post_send_peak = 9;
	read_built();
	ck_assert_uint_eq(model.groups[group].send.counts.posted, 350);
	ck_assert_uint_eq(model.groups[group].send.counts.completed, 345);
	ck_assert_uint_eq(model.groups[group].send.counts.outstanding, 5);
	ck_assert_uint_eq(model.groups[group].send.counts.peak_outstanding, 9);
	ck_assert_uint_eq(model.groups[group].destroyed, 3);
}
END_TEST

START_TEST(the_copy_that_folded_selects_holds_the_sums)
{
	uint32_t group = rc_group();
	struct group_record *g = builder_record(&builder, KIND_GROUP, group);

	g->sums[0].destroyed = 8; /* of one being folded when the process was killed */
	g->sums[0].send.posted = 800;
	g->sums[1].destroyed = 7;
	g->sums[1].send.posted = 700;
	g->folded = 7u << 1 | 1;
	read_built();
	ck_assert_uint_eq(model.groups[group].destroyed, 7);
	ck_assert_uint_eq(model.groups[group].send.counts.posted, 700);
}
END_TEST

START_TEST(a_live_record_that_was_folded_already_counts_once)
{
	uint32_t group = rc_group();
	struct group_record *g;
	struct qp_record *r = builder_qp(&builder, group, 4096);

	r->post_send_posted = r->poll_send_completions = 100;
	g = builder_record(&builder, KIND_GROUP, group);
	g->sums[1].destroyed = 1;
	g->sums[1].send.posted = g->sums[1].send.completed = 100;
	g->folded = (uint64_t)r->id << 1 | 1; /* killed before the record was marked as ended */
	read_built();
	ck_assert_uint_eq(model.live_qps, 0);
	ck_assert_uint_eq(model.groups[group].send.counts.posted, 100);
	ck_assert_uint_eq(json_array_size(json_object_get(json_process(false), "qps")), 0);
}
END_TEST

START_TEST(counts_that_cannot_be_seen_are_null_and_not_seen)
{
	uint32_t group = rc_group();
	json_t *p, *qp;
	char *text;

	builder_qp(&builder, group, 4096)->flags = QP_SENDS_HIDDEN | QP_RECVS_HIDDEN;
	read_built();
	p = json_process(false);
	qp = json_array_get(json_object_get(p, "qps"), 0);
	ck_assert(json_is_false(json_object_get(qp, "posts_visible")));
	ck_assert(json_is_null(json_object_get(qp, "send")));
	ck_assert(json_is_null(json_object_get(qp, "recv")));
	ck_assert(json_is_null(
		json_object_get(json_array_get(json_object_get(p, "groups"), 0), "send")));
	text = as_text(false);
	ck_assert_ptr_nonnull(strstr(text, "not seen"));
	free(text);
}
END_TEST

START_TEST(a_queue_pair_on_an_srq_has_no_receive_side)
{
	struct group_shape shape = rc_shape();
	uint32_t group;
	json_t *qp;

	shape.qp_flags = QP_HAS_SRQ;
	group = builder_group(&builder, &shape);
	builder_qp(&builder, group, 4096);
	read_built();
	qp = json_array_get(json_object_get(json_process(false), "qps"), 0);
	ck_assert(json_is_object(json_object_get(qp, "send")));
	ck_assert(json_is_null(json_object_get(qp, "recv")));
}
END_TEST

/* Alive or dead. */

static const char *state_now(void)
{
	const char *name;

	file = statefile_open(AT_FDCWD, path, why);
	ck_assert_msg(file != NULL, "%s", why);
	name = process_state_names[file->state];
	statefile_close(file);
	file = NULL;
	return name;
}

/* A child that maps and locks the file as the shim does, and closes its descriptor. */
static pid_t hold_file(void)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	int ready[2], fd;
	char byte;
	pid_t pid;

	ck_assert_int_eq(pipe(ready), 0);
	pid = fork();
	if (pid == 0) {
		fd = open(path, O_RDWR);
		if (fcntl(fd, F_OFD_SETLK, &lock) != 0 ||
		    mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED)
			_exit(1);
		close(fd);
		if (write(ready[1], "", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	close(ready[1]);
	ck_assert_int_eq(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	return pid;
}

START_TEST(a_locked_file_is_of_a_running_process_until_it_is_killed)
{
	pid_t pid;

	save();
	pid = hold_file();
	ck_assert_str_eq(state_now(), "running");
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	ck_assert_str_eq(state_now(), "died");
}
END_TEST

START_TEST(a_process_that_said_goodbye_exited)
{
	builder_header(&builder)->ending = ENDING_EXIT;
	save();
	ck_assert_str_eq(state_now(), "exited");
}
END_TEST

/* Makes the file one of the process `pid` of this namespace. */
static void belongs_to(pid_t pid)
{
	struct stat ns;

	ck_assert_int_eq(stat("/proc/self/ns/pid", &ns), 0);
	builder_header(&builder)->pid = (uint32_t)pid;
	builder_header(&builder)->pid_namespace = ns.st_ino;
	builder_header(&builder)->start_ticks = start_ticks_of((uint32_t)pid, false);
	save();
}

START_TEST(a_process_that_became_another_program_is_unknown)
{
	belongs_to(getpid());
	ck_assert_str_eq(state_now(), "unknown");
}
END_TEST

START_TEST(a_killed_process_that_waits_for_its_parent_died)
{
	pid_t pid = fork();
	siginfo_t s;

	if (pid == 0)
		for (;;)
			pause();
	belongs_to(pid);
	ck_assert_str_eq(state_now(), "unknown");
	kill(pid, SIGKILL);
	ck_assert_int_eq(waitid(P_PID, (id_t)pid, &s, WEXITED | WNOWAIT), 0);
	ck_assert_str_eq(state_now(), "died");
	waitpid(pid, NULL, 0);
}
END_TEST

START_TEST(another_process_with_the_same_pid_does_not_count)
{
	belongs_to(getpid());
	builder_header(&builder)->start_ticks++;
	save();
	ck_assert_str_eq(state_now(), "died");
}
END_TEST

START_TEST(what_run_wrote_tells_the_signal)
{
	struct ended e = { true, SIGSEGV, -1, 1772366460000000000ull };
	int fd = folder_open(folder);

	save();
	ck_assert(ended_write(fd, strrchr(path, '/') + 1, &e));
	close(fd);
	read_built();
	ck_assert_str_eq(process_state_names[file->state], "died");
	ck_assert_int_eq(json_integer_value(json_object_get(json_process(false), "signal")),
			 SIGSEGV);
}
END_TEST

START_TEST(an_end_file_of_rubbish_tells_nothing)
{
	static const char *const rubbish[] = {
		"",	    "signal",	  "signal 9999 at 3", "exit 256 at 3", "signal -9 at 3",
		"\377\376", "exit 3 at x"
	};
	char ended[160];

	save();
	snprintf(ended, sizeof(ended), "%.*s.ended", (int)(strlen(path) - strlen(".state")), path);
	for (size_t i = 0; i < sizeof(rubbish) / sizeof(rubbish[0]); i++) {
		FILE *f = fopen(ended, "w");

		fputs(rubbish[i], f);
		fclose(f);
		file = statefile_open(AT_FDCWD, path, why);
		ck_assert(!file->ended.known);
		statefile_close(file);
	}
	file = NULL;
}
END_TEST

/* Names are data. */

static const char hostile[] = "a\033[31mb\r\n\x9b\xff\xc3\xa9\xe2\x80\xae\"\\";

START_TEST(names_of_strangers_do_not_steer_the_terminal)
{
	struct state_header *h = builder_header(&builder);
	char *text;

	strcpy(h->comm, "\033]0;x\a");
	strcpy(h->exe, hostile);
	strcpy(h->labels, hostile);
	builder_device(&builder, hostile, hostile);
	builder_event(&builder, LOG_WARN, hostile, 1);
	read_built();
	text = as_text(true);
	for (const char *c = text; *c; c++)
		ck_assert((unsigned char)*c >= 0x20 || *c == '\n');
	ck_assert_ptr_null(strstr(text, "\xe2\x80\xae"));
	ck_assert_ptr_nonnull(strstr(text, "\\x1b[31m"));
	ck_assert_ptr_nonnull(strstr(text, "\xc3\xa9")); /* a letter is a letter */
	free(text);
}
END_TEST

START_TEST(json_stays_valid_whatever_the_names_are)
{
	struct state_header *h = builder_header(&builder);
	json_t *p;

	strcpy(h->exe, hostile);
	strcpy(h->labels, "job=\xff,job=\xfe,=x,,y,a\xc3=1");
	builder_device(&builder, hostile, hostile);
	read_built();
	p = json_process(true);
	ck_assert_str_eq(json_string_value(json_object_get(p, "exe")),
			 "a\033[31mb\r\n\\x9b\\xff\xc3\xa9\xe2\x80\xae\"\\");
	ck_assert(json_is_string(json_object_get(json_object_get(p, "labels"), "job")));
}
END_TEST

START_TEST(arguments_are_told_when_they_were_recorded)
{
	struct state_header *h = builder_header(&builder);
	json_t *args;

	memcpy(h->argv0, "prog\0-x\0\0last", 14);
	read_built();
	ck_assert(json_is_null(json_object_get(json_process(false), "args")));
	statefile_close(file);
	h->args_recorded = 1;
	read_built();
	args = json_object_get(json_process(false), "args");
	ck_assert_uint_eq(json_array_size(args), 4);
	ck_assert_str_eq(json_string_value(json_array_get(args, 3)), "last");
}
END_TEST

/* The promises of the JSON. */

static void expect_names(json_t *object, const char *names)
{
	char copy[512], *save_at = NULL;

	snprintf(copy, sizeof(copy), "%s", names);
	for (char *n = strtok_r(copy, " ", &save_at); n; n = strtok_r(NULL, " ", &save_at))
		ck_assert_msg(json_object_get(object, n) != NULL, "no '%s'", n);
}

static json_t *first_of(json_t *p, const char *list)
{
	return json_array_get(json_object_get(p, list), 0);
}

START_TEST(the_json_has_the_names_that_others_rely_on)
{
	json_t *p, *qp;

	builder_free(&builder);
	builder_sample(&builder);
	read_built();
	p = json_process(false);
	expect_names(p, "pid exe comm argv0 labels host uid started_at ended_at state signal guard "
			"totals budget limits devices groups qps cqs srqs wqs mrs failures events");
	expect_names(json_object_get(p, "guard"),
		     "version action policy_file entry_points unguarded");
	expect_names(json_object_get(p, "totals"),
		     "live_qps live_cqs live_srqs bytes peak_bytes peak_qps created_qps "
		     "destroyed_qps create_failures budget_refusals clamped");
	expect_names(json_object_get(json_object_get(p, "budget"), "qps"),
		     "limit conditional used peak refusals");
	expect_names(json_object_get(p, "limits"), "memlock_bytes memlock_used_bytes "
						   "cgroup_memory_max cgroup_memory_current");
	expect_names(first_of(p, "devices"),
		     "name driver firmware max_qp max_qp_wr max_sge max_cqe");
	expect_names(first_of(p, "groups"), "caller type device requested effective live created "
					    "peak_live bytes peak_bytes send recv");
	qp = first_of(p, "qps");
	expect_names(qp, "id device qp_num type qp_state created_at destroyed_at caller requested "
			 "submitted effective bytes posts_visible send recv");
	expect_names(json_object_get(qp, "bytes"), "sq rq bookkeeping total basis");
	expect_names(json_object_get(qp, "send"), "posted completed discarded outstanding "
						  "peak_outstanding peak_sge peak_inline rejected "
						  "not_posted");
	expect_names(json_object_get(json_object_get(qp, "send"), "rejected"),
		     "queue_full queue_full_early too_many_sge inline_too_big bad_state other");
	expect_names(first_of(p, "cqs"),
		     "id device requested_cqe effective_cqe bytes bound_send_wrs bound_recv_wrs "
		     "completions flushed_unattributed peak_backlog");
	expect_names(json_object_get(p, "mrs"), "count peak bytes peak_bytes registered "
						"made_by_libraries device_memory sizes");
	expect_names(first_of(p, "failures"),
		     "call device errno requested reason text count first_at last_at");
}
END_TEST

START_TEST(times_are_rfc_3339_and_null_when_unknown)
{
	json_t *p;

	read_built();
	p = json_process(false);
	ck_assert_str_eq(json_string_value(json_object_get(p, "started_at")),
			 "2026-03-01T12:00:00.000000000Z");
	ck_assert(json_is_null(json_object_get(p, "ended_at")));
}
END_TEST

START_TEST(ended_objects_are_listed_when_asked_for)
{
	uint32_t group = rc_group();
	struct qp_record *r = builder_qp(&builder, group, 4096);
	json_t *qps;

	r->state = RECORD_ENDED;
	r->ended_at = 1772366460000000000ull;
	read_built();
	ck_assert_uint_eq(json_array_size(json_object_get(json_process(false), "qps")), 0);
	qps = json_object_get(json_process(true), "qps");
	ck_assert_uint_eq(json_array_size(qps), 1);
	ck_assert_str_eq(json_string_value(json_object_get(json_array_get(qps, 0), "destroyed_at")),
			 "2026-03-01T12:01:00.000000000Z");
}
END_TEST

START_TEST(the_text_fits_eighty_columns)
{
	char *text, *save_at = NULL;

	builder_free(&builder);
	builder_sample(&builder);
	read_built();
	text = as_text(false);
	for (char *line = strtok_r(text, "\n", &save_at); line;
	     line = strtok_r(NULL, "\n", &save_at))
		ck_assert_msg(show_width(line) <= 80, "%zu columns: %s", show_width(line), line);
	free(text);
}
END_TEST

/* The checklist. */

static void expect_point(const char *words)
{
	unsigned int failed;
	char *text = as_checklist(&failed);

	ck_assert_uint_eq(failed, 1);
	ck_assert_msg(strstr(text, words) != NULL, "no '%s' in\n%s", words, text);
	free(text);
}

START_TEST(a_sound_process_passes_the_checklist)
{
	unsigned int failed;
	char *text;

	builder_qp(&builder, rc_group(), 4096);
	read_built();
	text = as_checklist(&failed);
	ck_assert_msg(failed == 0, "%s", text);
	free(text);
}
END_TEST

START_TEST(a_refusal_fails_the_checklist)
{
	builder_qp(&builder, rc_group(), 4096)->send_refused.queue_full = 1;
	read_built();
	expect_point("FAIL  no refusals");
}
END_TEST

START_TEST(a_completion_queue_that_is_too_small_fails_the_checklist)
{
	struct group_shape shape = { .kind = KIND_CQ,
				     .caller = 0xffff,
				     .requested = { .max_send_wr = 100 },
				     .effective = { .max_send_wr = 127 } };
	struct cq_record *cq;

	shape.device = (uint16_t)builder_device(&builder, "rxe0", "rxe");
	cq = builder_cq(&builder, builder_group(&builder, &shape), 8192);
	cq->bound_send_wrs = 64;
	cq->bound_recv_wrs = 63;
	read_built();
	free(as_checklist(&(unsigned int){ 0 }));
	statefile_close(file);
	cq->bound_recv_wrs = 64;
	read_built();
	expect_point("64 send + 64 receive WRs are bound, it holds 127");
}
END_TEST

/* 64 receives were asked for and 128 came, of a CQ of 127: nobody needs more than it holds, unless
 * the program uses what it got. */
START_TEST(a_completion_queue_too_small_by_rounding_alone_is_a_note)
{
	struct group_shape cqs = { .kind = KIND_CQ,
				   .caller = 0xffff,
				   .requested = { .max_send_wr = 100 },
				   .effective = { .max_send_wr = 127 } };
	struct group_shape qps = rc_shape();
	struct cq_record *cq;
	struct qp_record *qp;
	unsigned int failed;
	char *text;

	qps.requested.max_recv_wr = 63;
	qps.effective.max_recv_wr = 128;
	qps.device = cqs.device = (uint16_t)builder_device(&builder, "mlx5_0", "mlx5");
	cq = builder_cq(&builder, builder_group(&builder, &cqs), 8192);
	cq->bound_send_wrs = 64;
	cq->bound_recv_wrs = 128;
	qp = builder_qp(&builder, builder_group(&builder, &qps), 4096);
	qp->send_cq = qp->recv_cq = 1;
	read_built();
	text = as_checklist(&failed);
	ck_assert_uint_eq(failed, 0);
	ck_assert_msg(strstr(text, "note  each CQ holds") != NULL, "%s", text);
	free(text);
	statefile_close(file);
	qp->post_recv_peak = 64;
	read_built();
	expect_point("FAIL  each CQ holds");
}
END_TEST

START_TEST(depths_beyond_max_qp_wr_are_no_failure_on_mlx5)
{
	struct group_shape shape = rc_shape();
	uint32_t group;
	unsigned int failed;
	char *text;

	shape.device = (uint16_t)builder_device(&builder, "mlx5_0", "mlx5");
	shape.requested.max_send_wr = shape.effective.max_send_wr = 32768;
	group = builder_group(&builder, &shape);
	builder_qp(&builder, group, 4096);
	read_built();
	text = as_checklist(&failed);
	ck_assert_msg(failed == 0, "%s", text);
	ck_assert_ptr_nonnull(strstr(text, "note  caps are within the device's limits"));
	free(text);
}
END_TEST

START_TEST(queues_beyond_the_locked_memory_limit_fail_the_checklist)
{
	struct group_shape shape = rc_shape();

	shape.device = (uint16_t)builder_device(&builder, "irdma0", "irdma");
	builder_qp(&builder, builder_group(&builder, &shape), 16u << 20);
	read_built();
	expect_point("RLIMIT_MEMLOCK is 8 MiB, the queues took 16 MiB");
}
END_TEST

/* Damage of every sort does no harm. */

static unsigned int mutations(void)
{
	const char *wanted = getenv("QPG_MUTATIONS");

	return wanted ? (unsigned int)strtoul(wanted, NULL, 10) : MUTATIONS;
}

static uint32_t seed;

static uint32_t random_number(uint32_t below)
{
	seed = seed * 1664525u + 1013904223u;
	return (uint32_t)((uint64_t)seed * below >> 32);
}

/* No allocation beyond 64 MiB succeeds from here on. Every test is a process of its own. */
static void bound_memory(void)
{
#ifndef SANITIZED
	struct rlimit limit;
	unsigned long pages = 0;
	FILE *f = fopen("/proc/self/statm", "r");

	ck_assert_int_eq(fscanf(f, "%lu", &pages), 1);
	fclose(f);
	ck_assert_int_eq(getrlimit(RLIMIT_AS, &limit), 0);
	limit.rlim_cur = pages * 4096 + MEMORY_BYTES;
	if (!getenv("QPG_UNBOUNDED"))
		ck_assert_int_eq(setrlimit(RLIMIT_AS, &limit), 0);
#endif
}

/* Reads the file in every way there is. Either it is refused with words or all outputs can be made.
 */
static void survive(void)
{
	size_t len;
	char *text;
	json_error_t error;
	json_t *root;
	unsigned int failed;

	why[0] = '\0';
	file = statefile_open(AT_FDCWD, path, why);
	if (!file) {
		ck_assert_uint_ge(strlen(why), 8);
		return;
	}
	if (model_read(&model, file, path)) {
		free(as_text(true));
		free(as_checklist(&failed));
		text = as_json(true, &len);
		root = json_loadb(text, len, 0, &error);
		ck_assert_msg(root != NULL, "line %d: %s", error.line, error.text);
		json_decref(root);
		free(text);
	}
	statefile_close(file);
	file = NULL;
}

static unsigned char *sample(size_t *len)
{
	unsigned char *copy;

	builder_free(&builder);
	builder_sample(&builder);
	*len = builder.size;
	copy = malloc(builder.size);
	memcpy(copy, builder.bytes, builder.size);
	return copy;
}

START_TEST(a_file_cut_at_any_length_does_no_harm)
{
	size_t len;
	unsigned char *bytes = sample(&len);
	size_t step = len / mutations() + 1;

	bound_memory();
	for (size_t cut = 0; cut < len; cut += cut < 64 ? 1 : step) {
		write_bytes(bytes, cut);
		survive();
	}
	free(bytes);
}
END_TEST

START_TEST(flipped_bits_do_no_harm)
{
	size_t len;
	unsigned char *bytes = sample(&len), *damaged = malloc(len);

	bound_memory();
	seed = 1;
	for (unsigned int i = 0; i < mutations(); i++) {
		/* half of them in the headers of file and blocks, where it matters most */
		uint32_t flips = 1 + random_number(8);

		memcpy(damaged, bytes, len);
		while (flips--) {
			size_t at = random_number((uint32_t)len);

			if (flips & 1)
				at = at / 4096 * 4096 + at % 128;
			damaged[at] ^= (unsigned char)(1u << random_number(8));
		}
		write_bytes(damaged, len);
		survive();
	}
	free(bytes);
	free(damaged);
}
END_TEST

START_TEST(random_words_in_records_do_no_harm)
{
	size_t len;
	unsigned char *bytes = sample(&len), *damaged = malloc(len);
	static const uint64_t words[] = { 0,	     1,		 UINT32_MAX,	    UINT64_MAX,
					  INT64_MAX, 1ull << 63, 0x8000000080000000 };

	bound_memory();
	seed = 2;
	for (unsigned int i = 0; i < mutations(); i++) {
		memcpy(damaged, bytes, len);
		for (uint32_t n = 1 + random_number(400); n; n--) {
			size_t at = STATE_HEADER_BYTES +
				    random_number((uint32_t)(len - STATE_HEADER_BYTES) / 8) * 8;

			if (at % 4096 >= sizeof(struct state_block)) /* the blocks stay whole */
				memcpy(damaged + at, &words[random_number(7)], 8);
		}
		write_bytes(damaged, len);
		survive();
	}
	free(bytes);
	free(damaged);
}
END_TEST

START_TEST(random_bytes_do_no_harm)
{
	static unsigned char bytes[65536];

	bound_memory();
	seed = 3;
	for (unsigned int i = 0; i < mutations(); i++) {
		size_t len = random_number(sizeof(bytes));

		for (size_t k = 0; k < len; k++)
			bytes[k] = (unsigned char)random_number(256);
		if (i & 1) /* with a good header, the rest is looked at */
			memcpy(bytes, builder.bytes, STATE_HEADER_BYTES);
		write_bytes(bytes, len);
		survive();
	}
}
END_TEST

START_TEST(a_huge_sparse_file_is_read_in_little_memory_and_time)
{
	uint32_t first = 0;
	struct timespec from, to;
	int fd;

	builder_block(&builder, KIND_QP, 1);
	for (size_t at = STATE_HEADER_BYTES; at < builder.size;) {
		struct state_block *b = (struct state_block *)(builder.bytes + at);

		if (b->kind == KIND_QP) {
			b->bytes = (256u << 20) - 8192 - (uint32_t)(at - STATE_HEADER_BYTES);
			b->records = (b->bytes - sizeof(*b)) / sizeof(struct qp_record);
			b->first = first;
			break;
		}
		at += b->bytes;
	}
	builder_header(&builder)->file_bytes = 256u << 20;
	save();
	fd = open(path, O_WRONLY);
	ck_assert_int_eq(ftruncate(fd, 256 << 20), 0);
	close(fd);
	bound_memory();
	clock_gettime(CLOCK_MONOTONIC, &from);
	survive();
	clock_gettime(CLOCK_MONOTONIC, &to);
	ck_assert_int_lt(to.tv_sec - from.tv_sec, 30);
}
END_TEST

/* While it is written. */

struct writer {
	unsigned char *map;
	struct qp_record *qp;
	struct group_record *group;
	_Atomic bool stop;
};

/* Rewrites a record's cold part and folds members, as the shim does, without a pause. */
static void *write_on(void *arg)
{
	struct writer *w = arg;
	uint32_t id = 1000;

	while (!atomic_load(&w->stop)) {
		uint32_t seq = atomic_load_explicit(&w->qp->seq, memory_order_relaxed);
		unsigned int other;

		atomic_store_explicit(&w->qp->seq, seq + 1, memory_order_relaxed);
		atomic_thread_fence(memory_order_seq_cst);
		w->qp->qp_num = id;
		for (volatile int i = 0; i < 50; i++)
			;
		w->qp->srq = id;
		atomic_store_explicit(&w->qp->seq, seq + 2, memory_order_release);
		other = !(w->group->folded & 1);
		w->group->sums[other] = w->group->sums[!other];
		w->group->sums[other].destroyed++;
		w->group->sums[other].send.posted += 10;
		w->group->sums[other].send.completed += 10;
		atomic_store_explicit(&w->group->folded, (uint64_t)id++ << 1 | other,
				      memory_order_release);
		if (id % 64 == 0)
			usleep(100);
	}
	return NULL;
}

static bool expect_whole_qp(void *arg, uint32_t index, const void *record)
{
	const struct qp_record *r = record;

	(void)arg;
	(void)index;
	ck_assert_uint_eq(r->qp_num, r->srq);
	return true;
}

START_TEST(a_file_that_is_being_written_reads_well)
{
	uint32_t group = rc_group();
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	struct writer w = { .stop = false };
	pthread_t thread;
	size_t qp_at, group_at;
	struct qp_record *r = builder_qp(&builder, group, 4096);
	int fd;

	r->qp_num = r->srq = 1;
	qp_at = (size_t)((unsigned char *)r - builder.bytes);
	group_at = (size_t)((unsigned char *)builder_record(&builder, KIND_GROUP, group) -
			    builder.bytes);
	save();
	fd = open(path, O_RDWR);
	ck_assert_int_eq(fcntl(fd, F_OFD_SETLK, &lock), 0);
	w.map = mmap(NULL, builder.size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(w.map, MAP_FAILED);
	w.qp = (struct qp_record *)(w.map + qp_at);
	w.group = (struct group_record *)(w.map + group_at);
	ck_assert_int_eq(pthread_create(&thread, NULL, write_on, &w), 0);
	file = statefile_open(AT_FDCWD, path, why);
	for (int i = 0; i < 200; i++) {
		const struct group_view *g = &model.groups[group];

		ck_assert(model_read(&model, file, path));
		ck_assert_uint_eq(file->state, PROCESS_RUNNING);
		if (g->used) {
			ck_assert_uint_eq(g->send.counts.posted, 10 * g->destroyed);
			ck_assert_uint_eq(g->send.counts.completed, 10 * g->destroyed);
		}
		statefile_each(file, KIND_QP, expect_whole_qp, NULL);
	}
	atomic_store(&w.stop, true);
	pthread_join(thread, NULL);
	munmap(w.map, builder.size);
	close(fd);
}
END_TEST

START_TEST(a_file_that_is_cut_while_it_is_read_does_no_harm)
{
	size_t len;
	unsigned char *bytes = sample(&len);
	pid_t pid;

	write_bytes(bytes, len);
	pid = fork();
	if (pid == 0)
		for (uint32_t i = 0;; i++)
			if (truncate(path, (off_t)(i % 2 ? len : (i * 4099u) % len)) != 0)
				_exit(1);
	for (int i = 0; i < 100; i++)
		survive();
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	free(bytes);
}
END_TEST

/* Which files are kept. */

#define DAY (86400ull * 1000000000u)

static struct retain_item kept(const char *name, uint64_t days_ago, uint64_t bytes, bool live)
{
	return (struct retain_item){ name, 100 * DAY - days_ago * DAY, bytes, live, false };
}

static bool goes(const struct retain_item *items, size_t count, const char *name)
{
	for (size_t i = 0; i < count; i++)
		if (strcmp(items[i].name, name) == 0)
			return items[i].remove;
	ck_abort_msg("%s is lost", name);
}

START_TEST(old_files_go_and_running_processes_keep_theirs)
{
	struct retain_item items[] = { kept("new", 1, 10, false), kept("old", 8, 10, false),
				       kept("running", 30, 10, true) };
	struct retain_limits limits = { 7 * 86400, UINT64_MAX, UINT64_MAX };

	ck_assert_uint_eq(retain_choose(items, 3, &limits, 100 * DAY), 1);
	ck_assert(goes(items, 3, "old"));
	ck_assert(!goes(items, 3, "new"));
	ck_assert(!goes(items, 3, "running"));
}
END_TEST

START_TEST(of_too_many_files_the_oldest_go)
{
	struct retain_item items[] = { kept("c", 3, 10, false), kept("a", 1, 10, false),
				       kept("d", 4, 10, false), kept("b", 2, 10, false),
				       kept("e", 5, 10, true) };
	struct retain_limits limits = { UINT64_MAX, 2, UINT64_MAX };

	ck_assert_uint_eq(retain_choose(items, 5, &limits, 100 * DAY), 2);
	ck_assert(goes(items, 5, "c"));
	ck_assert(goes(items, 5, "d"));
}
END_TEST

START_TEST(of_too_many_bytes_the_oldest_go)
{
	struct retain_item items[] = { kept("a", 1, 600, false), kept("b", 2, 500, false),
				       kept("c", 3, 10, false) };
	struct retain_limits limits = { UINT64_MAX, UINT64_MAX, 1000 };

	ck_assert_uint_eq(retain_choose(items, 3, &limits, 100 * DAY), 2);
	ck_assert(!goes(items, 3, "a"));
}
END_TEST

START_TEST(limits_of_nothing_keep_nothing_but_the_running)
{
	struct retain_item items[] = { kept("a", 0, 1, false), kept("b", 0, 1, true) };
	struct retain_limits limits = { 0, UINT64_MAX, UINT64_MAX };

	ck_assert_uint_eq(retain_choose(items, 2, &limits, 100 * DAY), 1);
	ck_assert(goes(items, 2, "a"));
	ck_assert_uint_eq(retain_choose(items, 0, &limits, 0), 0);
}
END_TEST

static int quietly(int (*command)(int, char **), char **argv)
{
	int argc = 0, status, out = dup(1), null = open("/dev/null", O_WRONLY);

	while (argv[argc])
		argc++;
	fflush(stdout);
	dup2(null, 1);
	status = command(argc, argv);
	fflush(stdout);
	dup2(out, 1);
	close(out);
	close(null);
	return status;
}

static bool exists(const char *name)
{
	char whole[256];

	snprintf(whole, sizeof(whole), "%s/%s", folder, name);
	return access(whole, F_OK) == 0;
}

static void touch(const char *name)
{
	char whole[256];

	snprintf(whole, sizeof(whole), "%s/%s", folder, name);
	close(open(whole, O_WRONLY | O_CREAT, 0600));
}

START_TEST(clean_removes_what_is_dead_and_ours_and_nothing_else)
{
	char *argv[] = { "clean", "--all", folder, NULL };
	char link[160];
	pid_t pid;

	save();
	pid = hold_file();
	touch("qpguard-1-1-1.state");
	touch("qpguard-1-1-1.ended");
	touch("qpguard-1-1-1.state.bak");
	touch("other.state");
	snprintf(link, sizeof(link), "%s/qpguard-1-2-2.state", folder);
	ck_assert_int_eq(symlink("other.state", link), 0);
	ck_assert_int_eq(quietly(cmd_clean, argv), DONE);
	ck_assert(exists("qpguard-1-4711-1.state"));
	ck_assert(exists("other.state"));
	ck_assert(exists("qpguard-1-2-2.state"));
	ck_assert(exists("qpguard-1-1-1.state.bak"));
	ck_assert(!exists("qpguard-1-1-1.state"));
	ck_assert(!exists("qpguard-1-1-1.ended"));
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	ck_assert_int_eq(quietly(cmd_clean, argv), DONE);
	ck_assert(!exists("qpguard-1-4711-1.state"));
}
END_TEST

/* However old its file looks: the first that finds it dead begins the time, and a look at the file
 * does not begin it anew. */
START_TEST(what_was_killed_is_kept_from_when_it_was_found_dead)
{
	char *argv[] = { "clean", "--older-than", "1d", folder, NULL };
	struct timespec old[2] = { { 1000, 0 }, { 1000, 0 } };
	char byte;
	int fd;

	save();
	ck_assert_int_eq(utimensat(AT_FDCWD, path, old, 0), 0);
	ck_assert_int_eq(quietly(cmd_clean, argv), DONE);
	ck_assert(exists("qpguard-1-4711-1.state"));
	fd = open(path, O_RDONLY);
	ck_assert_int_eq(read(fd, &byte, 1), 1);
	close(fd);
	old[0].tv_nsec = UTIME_OMIT; /* as if that had been long ago */
	ck_assert_int_eq(utimensat(AT_FDCWD, path, old, 0), 0);
	ck_assert_int_eq(quietly(cmd_clean, argv), DONE);
	ck_assert(!exists("qpguard-1-4711-1.state"));
}
END_TEST

START_TEST(clean_only_tells_when_asked_to)
{
	char *argv[] = { "clean", "-n", "--all", folder, NULL };

	save();
	ck_assert_int_eq(quietly(cmd_clean, argv), DONE);
	ck_assert(exists("qpguard-1-4711-1.state"));
}
END_TEST

/* Exit statuses. */

START_TEST(report_has_a_status_for_each_outcome)
{
	char *good[] = { "report", path, NULL };
	char *whole_folder[] = { "report", folder, NULL };
	char *missing[] = { "report", "/nonexistent", NULL };
	char *checked[] = { "report", "--check", path, NULL };
	char *format[] = { "report", "--format", "html", NULL };
	char *option[] = { "report", "--bogus", NULL };

	ck_assert_int_eq(quietly(cmd_report, whole_folder), INPUT_MISSING);
	builder_free(&builder);
	builder_sample(&builder);
	save();
	ck_assert_int_eq(quietly(cmd_report, good), DONE);
	ck_assert_int_eq(quietly(cmd_report, whole_folder), DONE);
	ck_assert_int_eq(quietly(cmd_report, missing), INPUT_MISSING);
	ck_assert_int_eq(quietly(cmd_report, checked), CHECK_FAILED);
	ck_assert_int_eq(quietly(cmd_report, format), USAGE);
	ck_assert_int_eq(quietly(cmd_report, option), USAGE);
	touch("qpguard-1-9-9.state");
	ck_assert_int_eq(quietly(cmd_report, whole_folder), INPUT_MISSING);
}
END_TEST

START_TEST(run_has_the_status_of_the_program)
{
	char *status[] = { "run", "--dir", folder, "--", "sh", "-c", "exit 7", NULL };
	char *killed[] = { "run", "--dir", folder, "sh", "-c", "kill -KILL $$", NULL };
	char *missing[] = { "run", "--dir", folder, "/nonexistent/program", NULL };
	char *bad_key[] = { "run", "--budget-qpz=3", "true", NULL };
	char *bad_value[] = { "run", "--budget-qps=many", "true", NULL };

	setenv("LD_PRELOAD", "libqpguard.so", 1); /* not again, and not found: the program runs */
	ck_assert_int_eq(quietly(cmd_run, status), 7);
	ck_assert_int_eq(quietly(cmd_run, killed), 128 + SIGKILL);
	ck_assert_int_eq(quietly(cmd_run, missing), 127);
	ck_assert_int_eq(quietly(cmd_run, bad_key), USAGE);
	ck_assert_int_eq(quietly(cmd_run, bad_value), USAGE);
}
END_TEST

START_TEST(a_folder_name_may_hold_host_and_user)
{
	char out[512], expected[512], host[256];

	ck_assert_int_eq(gethostname(host, sizeof(host)), 0);
	snprintf(expected, sizeof(expected), "/x/%s/%u%%", host, (unsigned int)getuid());
	ck_assert(folder_expand("/x/%h/%u%%", out, sizeof(out)));
	ck_assert_str_eq(out, expected);
	ck_assert(!folder_expand("/much/too/long", out, 5));
}
END_TEST

START_TEST(sizes_read_as_people_write_them)
{
	char buf[SHOW_BYTES];

	ck_assert_str_eq(show_size(buf, 0), "0 B");
	ck_assert_str_eq(show_size(buf, 1023), "1023 B");
	ck_assert_str_eq(show_size(buf, 98304), "96 KiB");
	ck_assert_str_eq(show_size(buf, 1536), "1.5 KiB");
	ck_assert_str_eq(show_size(buf, 1048575), "1 MiB");
	ck_assert_str_eq(show_size(buf, 640ull << 20), "640 MiB");
	ck_assert_str_eq(show_size(buf, UINT64_MAX), "16 EiB");
	ck_assert_str_eq(show_count(buf, 9999999), "9999999");
	ck_assert_str_eq(show_count(buf, 12345678), "12.3M");
}
END_TEST

static void add_refusals(Suite *suite)
{
	TCase *t = tcase_create("refused");

	tcase_add_checked_fixture(t, begin, end);
	tcase_add_test(t, an_empty_file_is_refused);
	tcase_add_test(t, a_missing_file_is_told);
	tcase_add_test(t, a_text_file_is_no_state_file);
	tcase_add_test(t, a_short_file_is_no_state_file);
	tcase_add_test(t, a_file_that_its_process_never_began_is_told);
	tcase_add_test(t, a_newer_version_is_refused);
	tcase_add_test(t, the_other_byte_order_is_refused);
	tcase_add_test(t, records_of_another_size_are_refused);
	tcase_add_test(t, a_claim_of_terabytes_is_refused);
	tcase_add_test(t, a_symbolic_link_is_not_followed);
	tcase_add_test(t, a_fifo_is_refused_without_waiting);
	tcase_add_test(t, a_folder_is_no_state_file);
	suite_add_tcase(suite, t);
}

static void add_reading(Suite *suite)
{
	TCase *t = tcase_create("reading");

	tcase_add_checked_fixture(t, begin, end);
	tcase_add_test(t, a_file_with_a_header_alone_is_a_process_that_holds_nothing);
	tcase_add_test(t, a_cut_file_is_read_as_far_as_it_goes);
	tcase_add_test(t, a_block_that_claims_more_than_it_holds_ends_the_reading);
	tcase_add_test(t, a_block_of_no_length_does_not_hang_the_reader);
	tcase_add_test(t, an_unknown_kind_of_block_is_stepped_over);
	tcase_add_test(t, a_torn_record_is_left_out);
	tcase_add_test(t, a_record_of_a_group_that_is_not_there_counts_in_the_totals_alone);
	tcase_add_test(t, texts_without_an_end_are_ended);
	tcase_add_test(t, living_and_destroyed_members_are_added_up);
	tcase_add_test(t, the_copy_that_folded_selects_holds_the_sums);
	tcase_add_test(t, a_live_record_that_was_folded_already_counts_once);
	tcase_add_test(t, counts_that_cannot_be_seen_are_null_and_not_seen);
	tcase_add_test(t, a_queue_pair_on_an_srq_has_no_receive_side);
	suite_add_tcase(suite, t);
}

static void add_liveness(Suite *suite)
{
	TCase *t = tcase_create("liveness");

	tcase_add_checked_fixture(t, begin, end);
	tcase_add_test(t, a_locked_file_is_of_a_running_process_until_it_is_killed);
	tcase_add_test(t, a_process_that_said_goodbye_exited);
	tcase_add_test(t, a_process_that_became_another_program_is_unknown);
	tcase_add_test(t, a_killed_process_that_waits_for_its_parent_died);
	tcase_add_test(t, another_process_with_the_same_pid_does_not_count);
	tcase_add_test(t, what_run_wrote_tells_the_signal);
	tcase_add_test(t, an_end_file_of_rubbish_tells_nothing);
	suite_add_tcase(suite, t);
}

static void add_outputs(Suite *suite)
{
	TCase *t = tcase_create("outputs");

	tcase_add_checked_fixture(t, begin, end);
	tcase_add_test(t, names_of_strangers_do_not_steer_the_terminal);
	tcase_add_test(t, json_stays_valid_whatever_the_names_are);
	tcase_add_test(t, arguments_are_told_when_they_were_recorded);
	tcase_add_test(t, the_json_has_the_names_that_others_rely_on);
	tcase_add_test(t, times_are_rfc_3339_and_null_when_unknown);
	tcase_add_test(t, ended_objects_are_listed_when_asked_for);
	tcase_add_test(t, the_text_fits_eighty_columns);
	tcase_add_test(t, sizes_read_as_people_write_them);
	tcase_add_test(t, a_sound_process_passes_the_checklist);
	tcase_add_test(t, a_refusal_fails_the_checklist);
	tcase_add_test(t, a_completion_queue_that_is_too_small_fails_the_checklist);
	tcase_add_test(t, a_completion_queue_too_small_by_rounding_alone_is_a_note);
	tcase_add_test(t, depths_beyond_max_qp_wr_are_no_failure_on_mlx5);
	tcase_add_test(t, queues_beyond_the_locked_memory_limit_fail_the_checklist);
	suite_add_tcase(suite, t);
}

static void add_damage(Suite *suite)
{
	TCase *t = tcase_create("damage");

	tcase_set_timeout(t, 300);
	tcase_add_checked_fixture(t, begin, end);
	tcase_add_test(t, a_file_cut_at_any_length_does_no_harm);
	tcase_add_test(t, flipped_bits_do_no_harm);
	tcase_add_test(t, random_words_in_records_do_no_harm);
	tcase_add_test(t, random_bytes_do_no_harm);
	tcase_add_test(t, a_huge_sparse_file_is_read_in_little_memory_and_time);
	tcase_add_test(t, a_file_that_is_being_written_reads_well);
	tcase_add_test(t, a_file_that_is_cut_while_it_is_read_does_no_harm);
	suite_add_tcase(suite, t);
}

static void add_commands(Suite *suite)
{
	TCase *t = tcase_create("commands");

	tcase_add_checked_fixture(t, begin, end);
	tcase_add_test(t, old_files_go_and_running_processes_keep_theirs);
	tcase_add_test(t, of_too_many_files_the_oldest_go);
	tcase_add_test(t, of_too_many_bytes_the_oldest_go);
	tcase_add_test(t, limits_of_nothing_keep_nothing_but_the_running);
	tcase_add_test(t, clean_removes_what_is_dead_and_ours_and_nothing_else);
	tcase_add_test(t, what_was_killed_is_kept_from_when_it_was_found_dead);
	tcase_add_test(t, clean_only_tells_when_asked_to);
	tcase_add_test(t, report_has_a_status_for_each_outcome);
	tcase_add_test(t, run_has_the_status_of_the_program);
	tcase_add_test(t, a_folder_name_may_hold_host_and_user);
	suite_add_tcase(suite, t);
}

int main(void)
{
	Suite *suite = suite_create("report");
	SRunner *runner = srunner_create(suite);
	int failed;

	add_refusals(suite);
	add_reading(suite);
	add_liveness(suite);
	add_outputs(suite);
	add_damage(suite);
	add_commands(suite);
	srunner_set_tap(runner, "-");
	srunner_run_all(runner, CK_SILENT);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
