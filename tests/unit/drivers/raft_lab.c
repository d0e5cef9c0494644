/* SPDX-License-Identifier: BSD-3-Clause */
// See raft_lab.h.
#include "raft_lab.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base_time.h"

#define LAB_DEADLINE_NS (10 * NS_PER_S)
#define LAB_CHILD_S 30u  // a child that spins is a failure too
#define SNAPSHOT_MAGIC UINT64_C(0x50414e5342414c54)

// --- folders ------------------------------------------------------------------------------------------------

void lab_make(char dir[128])
{
	const char *tmp = getenv("TMPDIR");

	snprintf(dir, 128, "%s/tagcast-raft-XXXXXX", tmp == NULL ? "/tmp" : tmp);
	assert_non_null(mkdtemp(dir));
}

static void each(
	const char *dir, void (*f)(const char *path, const char *name, void *ctx), void *ctx)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	char path[512];

	if (d == NULL)
		return;
	while ((e = readdir(d)) != NULL)
		if (e->d_name[0] != '.') {
			snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
			f(path, e->d_name, ctx);
		}
	closedir(d);
}

static void remove_one(const char *path, const char *name, void *ctx)
{
	(void)name;
	(void)ctx;
	if (unlink(path) != 0)
		lab_remove(path);
}

void lab_remove(const char *dir)
{
	each(dir, remove_one, NULL);
	rmdir(dir);
}

static void copy_one(const char *path, const char *name, void *ctx)
{
	char to[700], buf[65536];
	struct stat st;
	int in, out;
	ssize_t n;

	snprintf(to, sizeof(to), "%s/%s", (const char *)ctx, name);
	if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
		assert_int_equal(mkdir(to, 0700), 0);
		each(path, copy_one, to);
		return;
	}
	in = open(path, O_RDONLY);
	out = open(to, O_WRONLY | O_CREAT | O_EXCL, 0600);
	assert_true(in >= 0 && out >= 0);
	while ((n = read(in, buf, sizeof(buf))) > 0)
		assert_int_equal(write(out, buf, (size_t)n), n);
	close(in);
	close(out);
}

void lab_copy(const char *from, char to[128])
{
	lab_make(to);
	each(from, copy_one, to);
}

// --- consumer -----------------------------------------------------------------------------------------------

uint64_t lab_chain(uint64_t chain, uint64_t index, const uint8_t *data, uint32_t len)
{
	chain = (chain ^ index) * UINT64_C(0x9e3779b97f4a7c15);
	for (uint32_t i = 0; i < len; i++)
		chain = (chain ^ data[i]) * UINT64_C(0x100000001b3);
	return chain;
}

static int on_commit(void *ctx, const struct cons_commit *commits, uint32_t count)
{
	struct lab *lab = ctx;

	if (lab->take_max != 0 && count > lab->take_max)
		count = lab->take_max;
	for (uint32_t i = 0; i < count; i++) {
		struct lab_state *s = lab->store;

		if (commits[i].index <= s->applied) {
			lab->report->replays++;
			continue;
		}
		// The applied index is written last: a kill between leaves an entry to be seen again.
		s->chain = lab_chain(s->chain, commits[i].index, commits[i].data, commits[i].len);
		s->bytes += commits[i].len;
		s->count++;
		s->applied = commits[i].index;
		lab->report->commits_seen++;
	}
	return (int)count;
}

static void on_result(void *ctx, uint64_t token, enum cons_status status, const char *why)
{
	struct lab *lab = ctx;

	lab->last_token = token;
	lab->last_status = status;
	lab->in_flight--;
	// An answer before the consumer has it would be a lie.
	if (status == CONS_OK && token >= LAB_TOKENS &&
		token - LAB_TOKENS > lab->report->commits_seen)
		_exit(95);
	if (status == CONS_OK)
		lab->report->acknowledged++;
	else if (status == CONS_UNKNOWN)
		lab->report->unknown++;
	else
		lab->report->failed++;
	if (why[0] != 0)
		snprintf(lab->report->why, sizeof(lab->report->why), "%s", why);
}

struct snapshot_bytes {
	uint64_t magic, len;
	struct lab_state state;
	uint64_t sum;
};

static int snapshot_begin(void *ctx, void **snapshot)
{
	struct lab *lab = ctx;

	if (lab->snapshot_busy)
		return -EBUSY;
	lab->snapped = *lab->store;
	*snapshot = lab;
	return 0;
}

static uint64_t sum_of(const uint8_t *bytes, uint64_t len)
{
	return lab_chain(1, len, bytes, (uint32_t)len);
}

static int snapshot_encode(void *snapshot, const struct cons_sink *sink)
{
	struct lab *lab = snapshot;
	struct snapshot_bytes s = {
		.magic = SNAPSHOT_MAGIC, .len = lab->snapshot_pad, .state = lab->snapped};
	static uint8_t pad[65536];
	int rc;

	if (lab->encode_rc != 0)
		return lab->encode_rc;
	if (lab->snapshot_huge)
		return sink->write(sink->ctx, pad, UINT64_C(1) << 31);
	s.sum = sum_of((const uint8_t *)&s, offsetof(struct snapshot_bytes, sum));
	rc = sink->write(sink->ctx, (const uint8_t *)&s, sizeof(s));
	for (uint64_t at = 0; rc == 0 && at < lab->snapshot_pad;) {
		const uint64_t left = lab->snapshot_pad - at;
		const uint64_t n = left < sizeof(pad) ? left : sizeof(pad);

		rc = sink->write(sink->ctx, pad, n);
		at += n;
	}
	return rc;
}

static void snapshot_end(void *ctx, void *snapshot)
{
	(void)ctx;
	(void)snapshot;
}

static int snapshot_check(
	void *ctx, const uint8_t *bytes, uint64_t len, uint64_t *index, const char **why)
{
	struct snapshot_bytes s;

	(void)ctx;
	*why = "damaged";
	if (len < sizeof(s))
		return -EBADMSG;
	memcpy(&s, bytes, sizeof(s));
	if (s.magic != SNAPSHOT_MAGIC || len != sizeof(s) + s.len ||
		s.sum != sum_of(bytes, offsetof(struct snapshot_bytes, sum)))
		return -EBADMSG;
	for (uint64_t i = sizeof(s); i < len; i++)
		if (bytes[i] != 0)
			return -EBADMSG;
	*index = s.state.applied;
	return 0;
}

static int restore_begin(void *ctx, const uint8_t *bytes, uint64_t len)
{
	struct lab *lab = ctx;
	struct snapshot_bytes s;
	uint64_t index;
	const char *why;

	if (snapshot_check(ctx, bytes, len, &index, &why) != 0)
		return -EBADMSG;
	memcpy(&s, bytes, sizeof(s));
	lab->incoming = s.state;
	lab->restore_turns = 3;
	return 0;
}

static int restore_turn(void *ctx)
{
	struct lab *lab = ctx;

	if (--lab->restore_turns > 0)
		return 0;
	*lab->store = lab->incoming;
	return 1;
}

static uint64_t chain(void *ctx, uint64_t *applied)
{
	struct lab *lab = ctx;

	*applied = lab->store->applied;
	return lab->store->chain;
}

const struct cons_events lab_events = {
	.on_commit = on_commit,
	.on_result = on_result,
	.snapshot_begin = snapshot_begin,
	.snapshot_encode = snapshot_encode,
	.snapshot_end = snapshot_end,
	.snapshot_check = snapshot_check,
	.restore_begin = restore_begin,
	.restore_turn = restore_turn,
	.chain = chain,
};

// --- child --------------------------------------------------------------------------------------------------

struct lab_report *lab_report_new(void)
{
	struct lab_report *report = mmap(
		NULL, sizeof(*report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(report, MAP_FAILED);
	return report;
}

static void on_wake(uv_timer_t *timer)
{
	(void)timer;
}

static struct lab_state *map_state(const char *dir)
{
	struct lab_state *state;
	char path[256];
	int fd;

	snprintf(path, sizeof(path), "%s/state", dir);
	fd = open(path, O_RDWR | O_CREAT, 0600);
	if (fd < 0 || ftruncate(fd, sizeof(*state)) != 0)
		_exit(98);
	state = mmap(NULL, sizeof(*state), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	return state == MAP_FAILED ? NULL : state;
}

static void init(struct lab *lab, const char *where, struct lab_report *report)
{
	static char raft_dir[256];
	char dir[128];

	snprintf(dir, sizeof(dir), "%s", where);  // it may be in `lab`, of the process forked from

	*lab = (struct lab){.report = report, .token = LAB_TOKENS};
	report->commits_seen = 0;
	snprintf(lab->dir, sizeof(lab->dir), "%s", dir);
	snprintf(raft_dir, sizeof(raft_dir), "%s/raft", dir);
	lab->store = map_state(dir);
	uv_loop_init(&lab->loop);
	uv_timer_init(&lab->loop, &lab->wake);
	uv_timer_start(&lab->wake, on_wake, 5, 5);
	lab->params = (struct raft_cons_params){
		.loop = &lab->loop,
		.dir = raft_dir,
		.node_id = 7,
		.cluster_id = 0xc1,
		.election_ms = 300,
		.heartbeat_ms = 50,
		.snapshot_entries = 65536,
		.snapshot_trailing = 1024,
		.applied_index = lab->store->applied,
		.events = &lab_events,
		.ctx = lab,
	};
}

int lab_child(const char *dir, struct lab_report *report, void (*run)(struct lab *lab))
{
	static const int ours[] = {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL};
	static struct lab lab;
	int status;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++)
			signal(ours[i], SIG_DFL);
		alarm(LAB_CHILD_S);
		init(&lab, dir, report);
		run(&lab);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

enum raft_cons_refusal lab_open(struct lab *lab)
{
	const char *why = "";

	lab->report->refusal = raft_cons_open(&lab->params, &lab->cons, &lab->state, &why);
	snprintf(lab->report->why, sizeof(lab->report->why), "%s", why);
	return lab->report->refusal;
}

enum raft_cons_refusal lab_start(struct lab *lab)
{
	enum raft_cons_refusal *refusal = &lab->report->refusal;
	const char *why = "";

	if (lab_open(lab) != RAFT_REFUSED_NOT)
		return *refusal;
	if (lab->state == RAFT_CONS_EMPTY)
		*refusal = raft_cons_bootstrap(lab->cons, &why);
	if (*refusal == RAFT_REFUSED_NOT)
		*refusal = raft_cons_start(lab->cons, &why);
	snprintf(lab->report->why, sizeof(lab->report->why), "%s", why);
	return *refusal;
}

void lab_step(struct lab *lab)
{
	uv_run(&lab->loop, lab->busy ? UV_RUN_NOWAIT : UV_RUN_ONCE);
	lab->busy = 0;
	if (raft_cons_ops.turn(lab->cons, time_now_ns(), &lab->busy) != 0)
		_exit(97);
}

void lab_until(struct lab *lab, bool (*done)(struct lab *lab), const char *what)
{
	const uint64_t end_ns = time_now_ns() + LAB_DEADLINE_NS;

	while (!done(lab)) {
		lab_step(lab);
		if (time_now_ns() > end_ns) {
			fprintf(stderr, "not within 10 s: %s\n", what);
			_exit(99);
		}
	}
}

bool lab_ready(struct lab *lab)
{
	struct cons_info info;

	raft_cons_ops.info(lab->cons, &info);
	return info.is_ready && !info.restoring;
}

static bool room(struct lab *lab)
{
	return lab->in_flight < 2;
}

static bool answered(struct lab *lab)
{
	return lab->in_flight == 0;
}

void lab_propose(struct lab *lab, uint64_t count, uint32_t len)
{
	static uint8_t data[512 * 1024];

	for (uint64_t i = 0; i < count; i++) {
		enum cons_status status;

		lab_until(lab, room, "room for a proposal");
		lab->token++;
		memset(data, (int)(lab->token & 0xff), len);
		status = raft_cons_ops.propose(lab->cons, data, len, lab->token);
		if (status != CONS_OK) {
			fprintf(stderr, "proposal %llu: status %d\n",
				(unsigned long long)lab->token, status);
			_exit(96);
		}
		lab->in_flight++;
	}
	lab_until(lab, answered, "answers to proposals");
}

int lab_listen(char address[CONS_ADDRESS_MAX])
{
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	const int fd = socket(AF_INET, SOCK_STREAM, 0);
	socklen_t len = sizeof(in);

	if (fd < 0 || bind(fd, (struct sockaddr *)&in, len) != 0 || listen(fd, 1) != 0 ||
		getsockname(fd, (struct sockaddr *)&in, &len) != 0)
		_exit(94);
	snprintf(address, CONS_ADDRESS_MAX, "127.0.0.1:%u", ntohs(in.sin_port));
	return fd;
}
