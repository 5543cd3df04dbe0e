/* SPDX-License-Identifier: MIT */
/*
 * A program that uses verbs and, in between, does to itself what programs do to themselves. Its arguments are
 * what it does, in order; each prints a line of results, which must be the same bare and guarded:
 *
 *     guest open pair send 100 closefds send 100 drop close
 *
 * The table at the end lists the words. Every verbs call is watched: a call that succeeds must leave errno
 * alone, one that fails must say why. The device is $QPG_DEVICE, the GID that of index $QPG_GID.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define MOST_QPS 8192
#define MOST_FDS 1024
#define MARK	 77 /* errno before a call that is to leave it alone */

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static struct ibv_cq *inherited_cq; /* of a device opened before */
static struct ibv_qp *inherited_qp;
static struct ibv_qp *qps[MOST_QPS];
static unsigned int qp_count;
static char memory[8192];
static char **self; /* argv */
static int data_fd = -1;
static bool of_device[MOST_FDS]; /* descriptors that came with the device */

static void need(bool good, const char *what)
{
	if (good)
		return;
	printf("%s failed: errno %d\n", what, errno);
	fflush(stdout);
	_exit(1);
}

/* After a call that succeeded. */
static void untouched(const char *what)
{
	if (errno != MARK)
		printf("%s changed errno to %d\n", what, errno);
	errno = MARK;
}

static void say(const char *what, long n)
{
	printf("%s %ld\n", what, n);
	fflush(stdout);
	errno = MARK;
}

/* --- verbs --- */

static void do_open(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	const char *name = getenv("QPG_DEVICE");
	bool before[MOST_FDS];
	long came = 0;

	if (context) {
		inherited_cq = cq;
		inherited_qp = qp_count ? qps[qp_count - 1] : NULL;
		context = NULL;
		qp_count = 0;
	}
	need(list, "ibv_get_device_list");
	for (int fd = 0; fd < MOST_FDS; fd++)
		before[fd] = fcntl(fd, F_GETFD) >= 0;
	for (struct ibv_device **d = list; *d && !context; d++)
		if (!name || !*name || !strcmp(name, ibv_get_device_name(*d)))
			context = ibv_open_device(*d);
	need(context, "ibv_open_device");
	ibv_free_device_list(list);
	pd = ibv_alloc_pd(context);
	need(pd, "ibv_alloc_pd");
	errno = MARK;
	cq = ibv_create_cq(context, 256, NULL, NULL, 0);
	need(cq, "ibv_create_cq");
	untouched("ibv_create_cq");
	mr = ibv_reg_mr(pd, memory, sizeof(memory),
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	need(mr, "ibv_reg_mr");
	untouched("ibv_reg_mr");
	for (int fd = 0; fd < MOST_FDS; fd++) {
		of_device[fd] = !before[fd] && fcntl(fd, F_GETFD) >= 0;
		came += of_device[fd];
	}
	say("open", cq->cqe);
	say("descriptors", came);
}

static struct ibv_qp *create(struct ibv_qp_cap *cap)
{
	struct ibv_qp_init_attr a = {
		.qp_type = IBV_QPT_RC, .send_cq = cq, .recv_cq = cq, .cap = *cap
	};
	struct ibv_qp *qp;

	errno = MARK;
	qp = ibv_create_qp(pd, &a);
	if (qp) {
		untouched("ibv_create_qp");
		*cap = a.cap;
	}
	return qp;
}

static void destroy(struct ibv_qp *qp)
{
	errno = MARK;
	need(!ibv_destroy_qp(qp), "ibv_destroy_qp");
	untouched("ibv_destroy_qp");
}

static void make(unsigned int n)
{
	struct ibv_qp_cap cap = { 16, 16, 2, 1, 0 };

	for (unsigned int i = 0; i < n; i++) {
		need(qp_count < MOST_QPS, "room");
		qps[qp_count] = create(&cap);
		need(qps[qp_count++], "ibv_create_qp");
	}
}

static void do_qps(const char *n)
{
	make((unsigned int)atoi(n));
	say("qps", qp_count);
}

static void modify(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask)
{
	errno = MARK;
	need(!ibv_modify_qp(qp, a, mask), "ibv_modify_qp");
	untouched("ibv_modify_qp");
}

static void connect_to(struct ibv_qp *qp, uint32_t peer)
{
	const char *index = getenv("QPG_GID");
	struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT,
				    .port_num = 1,
				    .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };
	struct ibv_qp_attr rtr = { .qp_state = IBV_QPS_RTR,
				   .path_mtu = IBV_MTU_1024,
				   .dest_qp_num = peer,
				   .max_dest_rd_atomic = 1,
				   .min_rnr_timer = 12 };
	struct ibv_qp_attr rts = { .qp_state = IBV_QPS_RTS,
				   .timeout = 14,
				   .retry_cnt = 7,
				   .rnr_retry = 7,
				   .max_rd_atomic = 1 };

	rtr.ah_attr = (struct ibv_ah_attr){ .is_global = 1, .port_num = 1 };
	rtr.ah_attr.grh.sgid_index = (uint8_t)(index ? atoi(index) : 0);
	rtr.ah_attr.grh.hop_limit = 1;
	need(!ibv_query_gid(context, 1, rtr.ah_attr.grh.sgid_index, &rtr.ah_attr.grh.dgid),
	     "ibv_query_gid");
	modify(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	modify(qp, &rtr,
	       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	modify(qp, &rts,
	       IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
		       IBV_QP_MAX_QP_RD_ATOMIC);
}

static void do_pair(void)
{
	make(2);
	connect_to(qps[qp_count - 2], qps[qp_count - 1]->qp_num);
	connect_to(qps[qp_count - 1], qps[qp_count - 2]->qp_num);
	say("pair", 2);
}

static int post_write(struct ibv_qp *qp, uint64_t id)
{
	struct ibv_sge sge = { (uintptr_t)memory, 64, mr->lkey };
	struct ibv_send_wr wr = { .wr_id = id,
				  .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_RDMA_WRITE,
				  .send_flags = IBV_SEND_SIGNALED };
	struct ibv_send_wr *bad;

	wr.wr.rdma.remote_addr = (uintptr_t)memory + 4096;
	wr.wr.rdma.rkey = mr->rkey;
	return ibv_post_send(qp, &wr, &bad);
}

static void await(uint64_t id)
{
	struct ibv_wc wc;
	int got, seconds = 30;
	time_t end = time(NULL) + seconds;

	while ((got = ibv_poll_cq(cq, 1, &wc)) == 0)
		if (time(NULL) > end)
			break;
	need(got == 1 && wc.status == IBV_WC_SUCCESS && wc.wr_id == id, "ibv_poll_cq");
}

/* Writes by the last pair, one at a time. */
static void do_send(const char *count)
{
	unsigned int n = (unsigned int)atoi(count);

	for (unsigned int i = 0; i < n; i++) {
		memset(memory, (int)i, 64);
		errno = MARK;
		need(!post_write(qps[qp_count - 2], i), "ibv_post_send");
		untouched("ibv_post_send");
		await(i);
		need(!memcmp(memory, memory + 4096, 64), "the data");
	}
	say("send", n);
}

/* Posts by the last pair until the queue is full. */
static void do_overfill(void)
{
	time_t end = time(NULL) + 20;
	struct ibv_wc wc;
	long posted = 0, polled = 0;
	int got = 0;

	while (posted < 100000 && !post_write(qps[qp_count - 2], 0))
		posted++;
	while (polled < posted && got >= 0 && time(NULL) < end) {
		got = ibv_poll_cq(cq, 1, &wc);
		polled += got > 0;
	}
	say("overfill", posted);
	say("polled", polled);
}

static void do_fail(const char *count)
{
	long n = atol(count), failed = 0;
	int error = 0;

	for (long i = 0; i < n; i++) {
		struct ibv_qp_cap cap = { 1u << 30, 1, 1, 1, 0 };

		if (!create(&cap)) {
			failed++;
			error = errno;
		}
	}
	say("fail", failed);
	say("errno", error);
}

/* The same with another depth each time: no two failures are alike. */
static void do_failall(const char *count)
{
	long n = atol(count), failed = 0;

	for (long i = 0; i < n; i++) {
		struct ibv_qp_cap cap = { (1u << 30) + (uint32_t)i, 1, 1, 1, 0 };

		failed += !create(&cap);
	}
	say("failall", failed);
}

static uint32_t rnd(uint64_t *seed, uint32_t below)
{
	*seed = *seed * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(*seed >> 33) % below;
}

/* QPs of random caps, made and destroyed, up to 16 at a time. */
static void do_churn(const char *count)
{
	long n = atol(count), made = 0;
	struct ibv_qp *held[16] = { NULL };
	uint64_t seed = 1;

	for (long i = 0; i < n; i++) {
		struct ibv_qp_cap cap = { 1 + rnd(&seed, 64), rnd(&seed, 64), 1 + rnd(&seed, 4),
					  1 + rnd(&seed, 4), rnd(&seed, 128) };
		struct ibv_qp **at = &held[rnd(&seed, 16)];

		if (*at)
			destroy(*at);
		*at = create(&cap);
		made += *at != NULL;
	}
	for (unsigned int i = 0; i < 16; i++)
		if (held[i])
			destroy(held[i]);
	say("churn", made);
}

static void do_drop(void)
{
	while (qp_count)
		destroy(qps[--qp_count]);
	say("drop", 0);
}

static void do_close(void)
{
	errno = MARK;
	need(!ibv_dereg_mr(mr), "ibv_dereg_mr");
	untouched("ibv_dereg_mr");
	need(!ibv_destroy_cq(cq), "ibv_destroy_cq");
	untouched("ibv_destroy_cq");
	need(!ibv_dealloc_pd(pd), "ibv_dealloc_pd");
	need(!ibv_close_device(context), "ibv_close_device");
	context = NULL;
	say("close", 0);
}

/* --- descriptors and limits --- */

/* All above 2 but the device's own. */
static void do_closefds(void)
{
	for (int fd = 3; fd < MOST_FDS; fd++)
		if (!context || !of_device[fd])
			close(fd);
	say("closefds", 0);
}

static void do_err2file(const char *path)
{
	data_fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
	need(data_fd >= 0 && dup2(data_fd, 2) == 2, path);
	need(write(2, "data\n", 5) == 5, "write");
	say("err2file", 0);
}

/* A pipe that nobody will read any more. */
static void do_err2closed(void)
{
	int ends[2];

	need(!pipe(ends) && dup2(ends[1], 2) == 2, "pipe");
	close(ends[0]);
	close(ends[1]);
	say("err2closed", 0);
}

/* A full pipe: the next write would wait for ever. */
static void do_err2full(void)
{
	static char page[4096];
	int ends[2];

	need(!pipe2(ends, O_NONBLOCK) && dup2(ends[1], 2) == 2, "pipe");
	while (write(2, page, sizeof(page)) > 0)
		;
	need(!fcntl(2, F_SETFL, 0), "fcntl");
	say("err2full", 0);
}

/* The pipe or file that descriptor 2 was at the start is full: written by ourselves. */
static void do_fillerr(void)
{
	static char page[4096];
	int flags = fcntl(2, F_GETFL);

	fcntl(2, F_SETFL, flags | O_NONBLOCK);
	while (write(2, page, sizeof(page)) > 0)
		;
	fcntl(2, F_SETFL, flags);
	say("fillerr", 0);
}

static void do_limit(int resource, const char *name, const char *value)
{
	struct rlimit l = { (rlim_t)atoll(value), (rlim_t)atoll(value) };

	need(!setrlimit((unsigned int)resource, &l), name);
	say(name, 0);
}

static void do_nofile(const char *value)
{
	do_limit(RLIMIT_NOFILE, "nofile", value);
}

static void do_fsize(const char *value)
{
	do_limit(RLIMIT_FSIZE, "fsize", value);
}

/* So many KiB more of address space than now. */
static void do_more_as(const char *kib)
{
	char text[32];
	long pages = 0;
	FILE *f = fopen("/proc/self/statm", "r");

	need(f && fscanf(f, "%ld", &pages) == 1, "statm");
	fclose(f);
	snprintf(text, sizeof(text), "%ld", pages * 4096 + atol(kib) * 1024);
	do_limit(RLIMIT_AS, "more_as", text);
}

static void do_umask(const char *octal)
{
	umask((mode_t)strtol(octal, NULL, 8));
	say("umask", 0);
}

static void do_chdir(const char *path)
{
	need(!chdir(path), "chdir");
	say("chdir", 0);
}

static void do_chroot(const char *path)
{
	need(!chroot(path) && !chdir("/"), "chroot");
	say("chroot", 0);
}

static void do_setuid(const char *uid)
{
	need(!setgid((gid_t)atoi(uid)) && !setuid((uid_t)atoi(uid)), "setuid");
	say("setuid", 0);
}

static void do_shell(const char *command)
{
	int rc = system(command);

	say("shell", rc);
}

/* Daemons do this. */
static void do_daemon(void)
{
	int null = open("/dev/null", O_RDWR);

	fflush(stdout);
	if (fork() > 0) {
		int status;

		wait(&status);
		_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 99);
	}
	setsid();
	for (int fd = 3; fd < 1024; fd++)
		if (fd != null)
			close(fd);
	dup2(null, 0);
	dup2(null, 2);
	close(null);
	say("daemon", 0);
}

static void do_mlockall(void)
{
	need(!mlockall(MCL_CURRENT | MCL_FUTURE), "mlockall");
	say("mlockall", 0);
}

/*
 * From here on only what verbs themselves and a plain C program need; anything else kills. `openat` is among the
 * forbidden, so that whoever opens files behind the program's back is found.
 */
static void do_seccomp(void)
{
	static const int allowed[] = {
		SYS_read, SYS_write, SYS_close, SYS_ioctl, SYS_mmap, SYS_munmap, SYS_madvise,
		SYS_mprotect, SYS_brk, SYS_futex, SYS_mremap, SYS_exit_group, SYS_exit, SYS_poll,
		SYS_fstat, SYS_newfstatat, SYS_nanosleep, SYS_clock_nanosleep, SYS_clock_gettime,
		SYS_rt_sigreturn, SYS_lseek, SYS_sched_yield, SYS_process_vm_readv,
		SYS_process_vm_writev, SYS_sendto, SYS_sendmsg, SYS_recvmsg, SYS_recvfrom,
		SYS_ppoll, SYS_rt_sigprocmask, SYS_gettid, SYS_getpid,
		/* What libc does for a thread of the device that only begins. */
		SYS_prctl, SYS_sched_setscheduler, SYS_set_robust_list, SYS_rseq,
		SYS_sched_getaffinity, SYS_getrandom
	};
	enum { ALLOWED = sizeof(allowed) / sizeof(allowed[0]) };
	struct sock_filter code[ALLOWED + 3];
	struct sock_fprog program = { ALLOWED + 3, code };

	code[0] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
					       offsetof(struct seccomp_data, nr));
	for (unsigned int i = 0; i < ALLOWED; i++)
		code[i + 1] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K,
							   (uint32_t)allowed[i], ALLOWED - i, 0);
	code[ALLOWED + 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
	code[ALLOWED + 2] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	need(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) &&
		     !syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC,
			      &program),
	     "seccomp");
	say("seccomp", 0);
}

/* A kernel that does not know MADV_WIPEONFORK. */
static void do_nowipe(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 18, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof(code) / sizeof(code[0]), code };

	need(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) &&
		     !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program),
	     "seccomp");
	say("nowipe", 0);
}

/* --- processes --- */

static void do_each(int argc, char **argv);

static bool opens_block(const char *name);

static int words_until_end(char **argv)
{
	int n, depth = 0;

	for (n = 0; argv[n] && (depth || strcmp(argv[n], "end")); n++) {
		if (!strcmp(argv[n], "end"))
			depth--;
		else if (opens_block(argv[n]))
			depth++;
	}
	return n;
}

static void reap_child(const char *what, pid_t pid)
{
	int status = 0;

	need(pid > 0 && waitpid(pid, &status, __WALL) == pid, what);
	say(what, WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status));
}

/* The words up to "end" in a child. A child has no QPs of the words before. */
static void do_fork(char **argv)
{
	pid_t pid = fork();

	if (!pid) {
		do_each(words_until_end(argv), argv);
		exit(0);
	}
	reap_child("fork", pid);
}

/* The same by the bare system call: no handler of libc runs. */
static void do_clone(char **argv)
{
	pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, NULL, NULL, 0);

	if (!pid) {
		do_each(words_until_end(argv), argv);
		fflush(stdout);
		_exit(0);
	}
	reap_child("clone", pid);
}

static void do_vfork(void)
{
	pid_t pid = vfork();

	if (!pid) {
		execl("/bin/true", "true", (char *)NULL);
		_exit(127);
	}
	reap_child("vfork", pid);
}

static void do_exec(char **argv)
{
	char *next[64] = { self[0] };

	for (unsigned int i = 0; argv[i] && i < 62; i++)
		next[i + 1] = argv[i];
	execv("/proc/self/exe", next);
	need(false, "execv");
}

/* A child of the words before may still use what it inherited, as far as the device lets it. */
static void do_inherited(void)
{
	struct ibv_wc wc;

	if (!inherited_cq) {
		inherited_cq = cq;
		inherited_qp = qp_count ? qps[qp_count - 1] : NULL;
	}
	ibv_poll_cq(inherited_cq, 1, &wc);
	if (inherited_qp)
		post_write(inherited_qp, 1);
	say("inherited", 0);
}

/* Forks while other threads make and destroy: a lock that one of them held must not stay held. */
static _Atomic bool stop;

static void *churner(void *arg)
{
	uint64_t seed = (uintptr_t)arg;

	while (!stop) {
		struct ibv_qp_cap cap = { 1 + rnd(&seed, 16), 1, 1, 1, 0 };
		struct ibv_qp *qp = create(&cap);

		if (qp)
			ibv_destroy_qp(qp);
	}
	return NULL;
}

static void do_forkrace(const char *count)
{
	int n = atoi(count), good = 0;
	pthread_t t[2];

	for (unsigned int i = 0; i < 2; i++)
		pthread_create(&t[i], NULL, churner, (void *)(uintptr_t)(i + 1));
	for (int i = 0; i < n; i++) {
		pid_t pid = fork();
		int status;

		if (!pid) {
			struct ibv_qp_cap cap = { 1u << 30, 1, 1, 1, 0 };

			alarm(20);
			create(&cap);
			_exit(0);
		}
		good += waitpid(pid, &status, 0) == pid && WIFEXITED(status) &&
			!WEXITSTATUS(status);
	}
	stop = true;
	for (unsigned int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	say("forkrace", good);
}

/* --- threads --- */

static void *poster(void *arg)
{
	struct ibv_wc wc;

	for (;;) {
		post_write(arg, 0);
		ibv_poll_cq(cq, 1, &wc);
	}
	return NULL;
}

/* The program goes on to its end while a thread posts and polls. */
static void do_posters(void)
{
	pthread_t t;

	need(!pthread_create(&t, NULL, poster, qps[qp_count - 2]), "pthread_create");
	usleep(20000);
	say("posters", 0);
}

static void *cancelled(void *arg)
{
	for (;;) {
		churner(arg);
		pthread_testcancel();
	}
	return NULL;
}

/* Threads that are cancelled in the midst of creating; afterwards a creation must still work. */
static void do_cancel(const char *count)
{
	int n = atoi(count), joined = 0;

	for (int i = 0; i < n; i++) {
		pthread_t t;
		void *result;

		need(!pthread_create(&t, NULL, cancelled, (void *)(uintptr_t)(i + 1)), "thread");
		usleep(500);
		pthread_cancel(t);
		usleep(500);
		stop = true;
		joined += !pthread_join(t, &result);
		stop = false;
	}
	say("cancel", joined);
}

/* One thread polls, the other destroys QPs whose completions the first may be looking at. */
static void *poller(void *arg)
{
	struct ibv_wc wc[16];

	(void)arg;
	while (!stop)
		ibv_poll_cq(cq, 16, wc);
	return NULL;
}

static void do_pollrace(const char *count)
{
	int n = atoi(count);
	pthread_t t;

	need(!pthread_create(&t, NULL, poller, NULL), "pthread_create");
	for (int i = 0; i < n; i++) {
		make(2);
		connect_to(qps[qp_count - 2], qps[qp_count - 1]->qp_num);
		connect_to(qps[qp_count - 1], qps[qp_count - 2]->qp_num);
		for (unsigned int k = 0; k < 8; k++)
			post_write(qps[qp_count - 2], k);
		destroy(qps[--qp_count]);
		destroy(qps[--qp_count]);
	}
	stop = true;
	pthread_join(t, NULL);
	say("pollrace", n);
}

/* --- stacks --- */

#define COROUTINE_BYTES 16384
static ucontext_t here, there;
static char **coroutine_words;

static void coroutine(void)
{
	do_each(words_until_end(coroutine_words), coroutine_words);
}

/* The words up to "end" on a stack of 16 KiB with nothing below it. */
static void do_coroutine(char **argv)
{
	char *stack = mmap(NULL, 2 * COROUTINE_BYTES, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	need(stack != MAP_FAILED && !mprotect(stack, COROUTINE_BYTES, PROT_NONE), "stack");
	getcontext(&there);
	there.uc_stack.ss_sp = stack + COROUTINE_BYTES;
	there.uc_stack.ss_size = COROUTINE_BYTES;
	there.uc_link = &here;
	coroutine_words = argv;
	makecontext(&there, coroutine, 0);
	swapcontext(&here, &there);
	say("coroutine", 0);
}

/* How deep a call went, on a stack that was painted before. */
static char *painted;
static void (*measured)(void);
enum { PAINTED_BYTES = 256 << 10, PAINT = 0x5a };

static void run_measured(void)
{
	measured();
}

static long depth_of(void (*call)(void))
{
	long used = 0;

	if (!painted)
		painted = mmap(NULL, PAINTED_BYTES, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memset(painted, PAINT, PAINTED_BYTES);
	getcontext(&there);
	there.uc_stack.ss_sp = painted;
	there.uc_stack.ss_size = PAINTED_BYTES;
	there.uc_link = &here;
	measured = call;
	makecontext(&there, run_measured, 0);
	swapcontext(&here, &there);
	while (painted[used] == PAINT)
		used++;
	return PAINTED_BYTES - used;
}

static void good_creation(void)
{
	make(1);
}

static void bad_creation(void)
{
	struct ibv_qp_cap cap = { 1u << 30, 1, 1, 1, 0 };

	create(&cap);
}

static void last_destroyed(void)
{
	destroy(qps[--qp_count]);
}

static void one_post(void)
{
	post_write(qps[qp_count - 2], 0);
}

static void one_poll(void)
{
	struct ibv_wc wc;

	ibv_poll_cq(cq, 1, &wc);
}

/* To standard error, since it is not the same bare and guarded. A first call each, and a later one. */
static void do_depths(void)
{
	for (int i = 0; i < 2; i++) {
		fprintf(stderr, "depth post %ld\n", depth_of(one_post));
		fprintf(stderr, "depth poll %ld\n", depth_of(one_poll));
		fprintf(stderr, "depth create %ld\n", depth_of(good_creation));
		fprintf(stderr, "depth fail %ld\n", depth_of(bad_creation));
		fprintf(stderr, "depth destroy %ld\n", depth_of(last_destroyed));
	}
	say("depths", 0);
}

static void do_opendepth(void)
{
	fprintf(stderr, "depth open %ld\n", depth_of(do_open));
}

/* --- telling --- */

static void do_rss(void)
{
	char line[256];
	long kib = 0;
	FILE *f = fopen("/proc/self/status", "r");

	while (f && fgets(line, sizeof(line), f))
		if (!strncmp(line, "VmRSS:", 6))
			kib = atol(line + 6);
	if (f)
		fclose(f);
	fprintf(stderr, "rss %ld\n", kib);
}

/* How long what follows takes, in microseconds of this process. */
static void do_clock(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	fprintf(stderr, "clock %ld\n", t.tv_sec * 1000000 + t.tv_nsec / 1000);
}

static void do_wait(void)
{
	char line[16];

	say("wait", 0);
	if (!fgets(line, sizeof(line), stdin))
		exit(3);
}

/* Waits for the kernel to have delivered every signal that is due: there should be none. */
static void do_signals(void)
{
	sigset_t now, mask;

	sigpending(&now);
	sigprocmask(SIG_BLOCK, NULL, &mask);
	say("pending", sigismember(&now, SIGPIPE) + sigismember(&now, SIGXFSZ));
	say("blocked", sigismember(&mask, SIGPIPE) + sigismember(&mask, SIGXFSZ));
	for (int s = 1; s < 32; s++) {
		struct sigaction a;

		if (!sigaction(s, NULL, &a) && a.sa_handler != SIG_DFL && a.sa_handler != SIG_IGN)
			say("handler", s);
	}
}

static void do_underscore_exit(const char *status)
{
	fflush(stdout);
	_exit(atoi(status));
}

static void do_exit(const char *status)
{
	exit(atoi(status));
}

static void do_abort(void)
{
	struct rlimit none = { 0, 0 };

	setrlimit(RLIMIT_CORE, &none);
	fflush(stdout);
	abort();
}

static void do_kill(void)
{
	fflush(stdout);
	raise(SIGKILL);
}

static void at_exit_qps(void)
{
	make(2);
	while (qp_count)
		destroy(qps[--qp_count]);
	say("atexit", 0);
}

static void do_atexit(void)
{
	atexit(at_exit_qps);
	say("registered", 0);
}

/* A library whose constructor and destructor make QPs: see late.c. */
static void do_library(const char *path)
{
	void *handle = dlopen(path, RTLD_NOW);

	if (!handle)
		printf("%s\n", dlerror());
	need(handle, "dlopen");
	say("library", 0);
}

/* What each word does; one of the four. */
static const struct word {
	const char *name;
	void (*plain)(void);
	void (*with)(const char *); /* an argument */
	void (*block)(char **);	    /* words up to "end" */
	void (*rest)(char **);	    /* all words that follow */
} words[] = {
	{ .name = "open", .plain = do_open },
	{ .name = "opendepth", .plain = do_opendepth },
	{ .name = "qps", .with = do_qps },
	{ .name = "pair", .plain = do_pair },
	{ .name = "send", .with = do_send },
	{ .name = "overfill", .plain = do_overfill },
	{ .name = "fail", .with = do_fail },
	{ .name = "failall", .with = do_failall },
	{ .name = "churn", .with = do_churn },
	{ .name = "drop", .plain = do_drop },
	{ .name = "close", .plain = do_close },
	{ .name = "closefds", .plain = do_closefds },
	{ .name = "err2file", .with = do_err2file },
	{ .name = "err2closed", .plain = do_err2closed },
	{ .name = "err2full", .plain = do_err2full },
	{ .name = "fillerr", .plain = do_fillerr },
	{ .name = "nofile", .with = do_nofile },
	{ .name = "fsize", .with = do_fsize },
	{ .name = "more_as", .with = do_more_as },
	{ .name = "umask", .with = do_umask },
	{ .name = "chdir", .with = do_chdir },
	{ .name = "chroot", .with = do_chroot },
	{ .name = "setuid", .with = do_setuid },
	{ .name = "shell", .with = do_shell },
	{ .name = "daemon", .plain = do_daemon },
	{ .name = "mlockall", .plain = do_mlockall },
	{ .name = "seccomp", .plain = do_seccomp },
	{ .name = "nowipe", .plain = do_nowipe },
	{ .name = "fork", .block = do_fork },
	{ .name = "clone", .block = do_clone },
	{ .name = "vfork", .plain = do_vfork },
	{ .name = "exec", .rest = do_exec },
	{ .name = "inherited", .plain = do_inherited },
	{ .name = "forkrace", .with = do_forkrace },
	{ .name = "posters", .plain = do_posters },
	{ .name = "cancel", .with = do_cancel },
	{ .name = "pollrace", .with = do_pollrace },
	{ .name = "coroutine", .block = do_coroutine },
	{ .name = "depths", .plain = do_depths },
	{ .name = "rss", .plain = do_rss },
	{ .name = "clock", .plain = do_clock },
	{ .name = "wait", .plain = do_wait },
	{ .name = "signals", .plain = do_signals },
	{ .name = "_exit", .with = do_underscore_exit },
	{ .name = "exit", .with = do_exit },
	{ .name = "abort", .plain = do_abort },
	{ .name = "kill", .plain = do_kill },
	{ .name = "atexit", .plain = do_atexit },
	{ .name = "library", .with = do_library },
};

static const struct word *word_of(const char *name)
{
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (!strcmp(words[i].name, name))
			return &words[i];
	printf("unknown word %s\n", name);
	exit(2);
}

static bool opens_block(const char *name)
{
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (words[i].block && !strcmp(words[i].name, name))
			return true;
	return false;
}

static void do_each(int argc, char **argv)
{
	for (int i = 0; i < argc; i++) {
		const struct word *w = word_of(argv[i]);

		if (w->plain) {
			w->plain();
		} else if (w->with) {
			w->with(argv[++i]);
		} else if (w->block) {
			w->block(argv + i + 1);
			i += 1 + words_until_end(argv + i + 1);
		} else {
			w->rest(argv + i + 1);
		}
	}
}

int main(int argc, char **argv)
{
	self = argv;
	errno = MARK;
	do_each(argc - 1, argv + 1);
	return 0;
}
