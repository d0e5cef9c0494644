/* SPDX-License-Identifier: BSD-3-Clause */
// What tagcastd knows of the meta process, over the real tagcast-metad: its supervisor and its feed.
// usage: meta_child_test METAD
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base_log.h"
#include "base_time.h"
#include "ctl.h"
#include "feed_client.h"
#include "meta_child.h"
#include "meta_exit.h"

#define DEADLINE_NS (30 * NS_PER_S)

static const char *metad_path;

struct fixture {
	char dir[64], run[80], data[80], feed_path[96], meta_path[96];
	struct meta_child *child;
	struct feed_client *feed;
	uint64_t generation, commit;  // as a node would keep them
	uint32_t deltas, welcomes, lost;
	bool gap;
	int refuse;  // answer of the frame callback, once
	bool apply;
};

static void on_hello(void *ctx, struct store_feed_frame *hello)
{
	struct fixture *f = ctx;

	hello->node = 5;
	hello->generation = f->generation;
	hello->commit = f->commit;
}

static int on_frame(void *ctx, const struct store_feed_frame *frame, uint64_t now_ns)
{
	struct fixture *f = ctx;
	const int rc = f->refuse;

	f->refuse = 0;
	if (rc != 0)
		return rc;
	if (frame->type == STORE_FEED_WELCOME) {
		f->welcomes++;
		f->generation = frame->generation;
		f->commit = frame->commit;
	} else {
		f->gap = f->gap || frame->commit != f->commit + 1;
		f->commit = frame->commit;
		f->deltas++;
	}
	return 0;
}

static void on_lost(void *ctx, uint64_t now_ns)
{
	((struct fixture *)ctx)->lost++;
}

static const struct feed_client_events events = {on_hello, on_frame, on_lost};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	strcpy(f->dir, "/tmp/meta_child.XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	snprintf(f->run, sizeof(f->run), "%s/run", f->dir);
	snprintf(f->data, sizeof(f->data), "%s/data", f->dir);
	snprintf(f->feed_path, sizeof(f->feed_path), "%s/feed.sock", f->run);
	snprintf(f->meta_path, sizeof(f->meta_path), "%s/meta.sock", f->run);
	assert_int_equal(feed_client_create(f->feed_path, &events, f, &f->feed), 0);
	f->apply = true;
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;
	char command[128];

	meta_child_destroy(f->child);
	feed_client_destroy(f->feed);
	snprintf(command, sizeof(command), "rm -rf %s", f->dir);
	assert_int_equal(system(command), 0);
	free(f);
	return 0;
}

static void create(struct fixture *f, const char *program)
{
	const struct meta_child_params params = {.program = program,
		.run_dir = f->run,
		.data_dir = f->data,
		.log_level = "error",
		.node_id = 5,
		.cluster_id = 6,
		.map_bytes = 64 << 20,
		.apply_wait_ns = 20 * NS_PER_S,
		.journal_commits = 2001,
		.dedup_commits = 2002,
		.stage_commits = 2003,
		.stages = 17,
		.feed_backlog_bytes = 3 << 20,
		.raft_auth_off = true,
		.election_ns = 301 * NS_PER_MS,
		.heartbeat_ns = 51 * NS_PER_MS,
		.snapshot_entries = 3001,
		.snapshot_trailing = 301,
		.snapshot_log_bytes = 4 << 20};

	assert_int_equal(meta_child_create(&params, &f->child), 0);
}

// One step of the control thread's loop: sleeps until something is due.
CONTROL_ONLY static void step(struct fixture *f)
{
	struct pollfd fds[2] = {{.fd = feed_client_fd(f->feed), .events = POLLIN},
		{.fd = f->child != NULL ? meta_child_fd(f->child) : -1, .events = POLLIN}};
	uint64_t now = time_now_ns(), next = feed_client_next_ns(f->feed);

	if (f->child != NULL && meta_child_next_ns(f->child) < next)
		next = meta_child_next_ns(f->child);
	poll(fds, 2,
		next <= now                   ? 0
		: next - now > 20 * NS_PER_MS ? 20
					      : (int)((next - now) / NS_PER_MS) + 1);
	now = time_now_ns();
	if (f->child != NULL)
		meta_child_process(f->child, now);
	feed_client_process(f->feed, now);
	if (f->apply)
		feed_client_applied(f->feed, f->commit);
}

CONTROL_ONLY static struct feed_client_info feed_info(struct fixture *f)
{
	struct feed_client_info info;

	feed_client_info(f->feed, &info);
	return info;
}

CONTROL_ONLY static struct meta_child_info child_info(struct fixture *f)
{
	struct meta_child_info info;

	meta_child_info(f->child, &info);
	return info;
}

#define UNTIL(f, condition) \
	do { \
		const uint64_t end_ = time_now_ns() + DEADLINE_NS; \
		while (!(condition)) { \
			assert_true(time_now_ns() < end_); \
			step(f); \
		} \
	} while (0)

// Sends one request; the loop goes on until its answer is there.
CONTROL_ONLY static json_t *ask(struct fixture *f, json_t *request)
{
	struct ctl_pipe *pipe = ctl_pipe_create(ctl_connect(f->meta_path, 5000));
	json_t *answer = NULL;

	assert_non_null(pipe);
	assert_int_equal(ctl_pipe_send(pipe, request, 1000), 0);
	UNTIL(f, (answer = ctl_pipe_receive(pipe, 0)) != NULL);
	json_decref(request);
	ctl_pipe_destroy(pipe);
	assert_true(json_is_true(json_object_get(answer, "ok")));
	return answer;
}

// A mutation whose answer needs APPLIED of this process.
CONTROL_ONLY static json_t *mutate(struct fixture *f, const char *uid)
{
	return ask(f, json_pack("{s:s,s:i,s:s,s:[s]}", "cmd", "channel.add", "type", 2, "channel",
			      "g", "uids", uid));
}

// The real program, as a group of its own.
CONTROL_ONLY static void up(struct fixture *f)
{
	create(f, metad_path);
	UNTIL(f, feed_info(f).waiting);
	assert_false(feed_info(f).connected);
	json_decref(ask(f, json_pack("{s:s}", "cmd", "meta.bootstrap")));
	UNTIL(f, feed_info(f).connected);
	assert_false(feed_info(f).waiting);
}

CONTROL_ONLY static void the_child_is_given_every_option_of_the_configuration(void **state)
{
	static const char *const wanted[] = {"--run-dir", "--data-dir", "--node-id 5",
		"--cluster-id 6", "--map-size 67108864", "--apply-wait-ms 20000",
		"--journal-commits 2001", "--dedup-commits 2002", "--stage-commits 2003",
		"--stages 17", "--feed-backlog 3145728", "--log-level error", "--raft-auth off",
		"--election-ms 301", "--heartbeat-ms 51", "--snapshot-entries 3001",
		"--snapshot-trailing 301", "--snapshot-log 4194304"};
	struct fixture *f = *state;
	char path[64], line[4096];
	size_t len;
	FILE *in;

	up(f);
	snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)child_info(f).pid);
	in = fopen(path, "re");
	assert_non_null(in);
	len = fread(line, 1, sizeof(line) - 1, in);
	fclose(in);
	line[len] = '\0';
	for (size_t i = 0; i < len; i++)
		line[i] = line[i] == '\0' ? ' ' : line[i];
	for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
		if (strstr(line, wanted[i]) == NULL)
			fail_msg("no \"%s\" in: %s", wanted[i], line);
}

CONTROL_ONLY static void a_child_serves_the_feed_and_mutations_are_applied(void **state)
{
	struct fixture *f = *state;

	up(f);
	assert_int_equal(f->welcomes, 1);
	for (int i = 0; i < 5; i++) {
		char uid[8];
		json_t *answer;

		snprintf(uid, sizeof(uid), "u%d", i);
		answer = mutate(f, uid);
		assert_true(json_is_true(json_object_get(answer, "applied")));
		json_decref(answer);
	}
	assert_int_equal(f->deltas, 5);
	assert_false(f->gap);
}

CONTROL_ONLY static void a_killed_child_comes_back_and_the_feed_goes_on(void **state)
{
	struct fixture *f = *state;
	pid_t first;

	up(f);
	json_decref(mutate(f, "a"));
	for (uint32_t round = 1; round <= 3; round++) {
		const uint64_t generation = f->generation;
		char uid[8];

		first = child_info(f).pid;
		kill(first, SIGKILL);
		UNTIL(f, child_info(f).exits == round && f->lost == round);
		assert_true(WIFSIGNALED(child_info(f).last_status));
		UNTIL(f, feed_info(f).connected);
		assert_int_not_equal(child_info(f).pid, first);
		assert_int_equal(f->generation, generation);
		snprintf(uid, sizeof(uid), "r%u", round);
		json_decref(mutate(f, uid));
	}
	assert_int_equal(f->deltas, 4);
	assert_false(f->gap);
}

CONTROL_ONLY static void a_stop_is_clean_and_final(void **state)
{
	struct fixture *f = *state;

	up(f);
	meta_child_stop(f->child, time_now_ns() + DEADLINE_NS);
	UNTIL(f, !child_info(f).running);
	assert_true(WIFEXITED(child_info(f).last_status));
	assert_int_equal(WEXITSTATUS(child_info(f).last_status), 0);
	assert_true(meta_child_next_ns(f->child) == UINT64_MAX);
	assert_false(meta_child_process(f->child, UINT64_MAX));
}

CONTROL_ONLY static void a_child_that_ignores_the_stop_is_killed(void **state)
{
	struct fixture *f = *state;

	up(f);
	kill(child_info(f).pid, SIGSTOP);
	meta_child_stop(f->child, time_now_ns() + 50 * NS_PER_MS);
	UNTIL(f, !child_info(f).running);
	assert_int_equal(WTERMSIG(child_info(f).last_status), SIGKILL);
}

CONTROL_ONLY static void back_off_doubles_up_to_its_cap(void **state)
{
	struct fixture *f = *state;
	const uint64_t want_ms[] = {
		100, 200, 400, 800, 1600, 3200, 6400, 12800, 25600, 30000, 30000};
	uint64_t now = NS_PER_S;

	// Time is an argument: no waiting for the back-off itself.
	create(f, "/bin/false");
	for (size_t i = 0; i < sizeof(want_ms) / sizeof(want_ms[0]); i++) {
		const uint64_t end = time_now_ns() + DEADLINE_NS;

		assert_true(meta_child_process(f->child, now));
		assert_true(child_info(f).running);
		while (child_info(f).running) {
			struct pollfd poller = {.fd = meta_child_fd(f->child), .events = POLLIN};

			assert_true(time_now_ns() < end);
			poll(&poller, 1, 100);
			meta_child_process(f->child, now);
		}
		assert_int_equal((meta_child_next_ns(f->child) - now) / NS_PER_MS, want_ms[i]);
		assert_false(meta_child_process(f->child, meta_child_next_ns(f->child) - 1));
		now = meta_child_next_ns(f->child);
	}
	assert_int_equal(child_info(f).starts, 11);
}

// A program that ends with `code`.
static void write_program(const struct fixture *f, char *path, size_t size, int code)
{
	FILE *out;

	snprintf(path, size, "%s/ends", f->dir);
	out = fopen(path, "we");
	assert_non_null(out);
	fprintf(out, "#!/bin/sh\nexit %d\n", code);
	fclose(out);
	assert_int_equal(chmod(path, 0700), 0);
}

CONTROL_ONLY static void what_a_restart_does_not_mend_is_tried_less_often(void **state)
{
	static const struct {
		int code;
		uint64_t want_ms[3];
	} rows[] = {
		{1, {100, 200, 400}},
		{META_EXIT_RESTART, {100, 200, 400}},
		{META_EXIT_SPACE, {1000, 2000, 4000}},
		{META_EXIT_ADDRESS, {1000, 2000, 4000}},
		{META_EXIT_AMNESIA, {1000, 2000, 4000}},
		{EX_CONFIG, {1000, 2000, 4000}},
	};
	struct fixture *f = *state;
	char path[96];

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		uint64_t now = NS_PER_S;

		write_program(f, path, sizeof(path), rows[i].code);
		create(f, path);
		for (uint32_t k = 0; k < 3; k++) {
			const uint64_t end = time_now_ns() + DEADLINE_NS;

			assert_true(meta_child_process(f->child, now));
			while (child_info(f).running) {
				struct pollfd poller = {
					.fd = meta_child_fd(f->child), .events = POLLIN};

				assert_true(time_now_ns() < end);
				poll(&poller, 1, 100);
				meta_child_process(f->child, now);
			}
			assert_int_equal(child_info(f).last_code, rows[i].code);
			assert_int_equal((meta_child_next_ns(f->child) - now) / NS_PER_MS,
				rows[i].want_ms[k]);
			now = meta_child_next_ns(f->child);
		}
		meta_child_destroy(f->child);
		f->child = NULL;
	}
}

CONTROL_ONLY static void a_missing_program_is_noted(void **state)
{
	struct fixture *f = *state;

	create(f, "/nonexistent/tagcast-metad");
	UNTIL(f, child_info(f).exits == 1);
	assert_int_equal(WEXITSTATUS(child_info(f).last_status), 127);
}

CONTROL_ONLY static void a_frame_that_does_not_fit_makes_a_fresh_connection(void **state)
{
	struct fixture *f = *state;

	up(f);
	f->refuse = -EPROTO;
	f->apply = true;
	json_decref(mutate(f, "a"));
	assert_int_equal(f->lost, 1);
	assert_int_equal(f->welcomes, 2);
	assert_int_equal(f->deltas, 1);
	assert_false(f->gap);
}

// --- the feed client alone, against a server of this file ---------------------------------------------------

static int listen_at(const char *path)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	strcpy(addr.sun_path, path);
	assert_int_equal(bind(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
	assert_int_equal(listen(fd, 4), 0);
	return fd;
}

CONTROL_ONLY static void feed_client_survives_fragments_and_garbage(void **state)
{
	struct fixture *f = *state;
	const struct store_feed_frame welcome = {
		.type = STORE_FEED_WELCOME, .generation = 3, .commit = 9};
	const struct store_feed_frame lagged = {.type = STORE_FEED_LAGGED};
	const char *bad[] = {"\xff\xff\xff\x7f", "\x01\x00\x00\x00\x63", "\x01\x00\x00\x00\x05"};
	uint8_t bytes[64];
	int listener, peer, len;
	uint64_t now = NS_PER_S;
	char path[96];

	snprintf(path, sizeof(path), "%s/alone.sock", f->dir);
	feed_client_destroy(f->feed);
	assert_int_equal(feed_client_create(path, &events, f, &f->feed), 0);
	// Nobody there: tries again later and later.
	for (uint64_t wait_ms = 20; wait_ms < 1000; wait_ms *= 2) {
		feed_client_process(f->feed, now);
		assert_int_equal((feed_client_next_ns(f->feed) - now) / NS_PER_MS, wait_ms);
		now = feed_client_next_ns(f->feed);
	}
	listener = listen_at(path);
	feed_client_process(f->feed, now);
	peer = accept(listener, NULL, NULL);
	assert_int_equal(recv(peer, bytes, sizeof(bytes), 0), 33);
	// One byte at a time.
	len = store_feed_encode(&welcome, bytes, sizeof(bytes));
	for (int i = 0; i < len; i++) {
		assert_false(feed_info(f).connected);
		assert_int_equal(send(peer, bytes + i, 1, 0), 1);
		feed_client_process(f->feed, now);
	}
	assert_true(feed_info(f).connected);
	assert_int_equal(f->commit, 9);
	len = store_feed_encode(&lagged, bytes, sizeof(bytes));
	assert_int_equal(send(peer, bytes, (size_t)len, 0), len);
	feed_client_process(f->feed, now);
	assert_int_equal(feed_info(f).lagged, 1);
	assert_int_equal(f->lost, 1);
	close(peer);
	for (size_t i = 0; i < 3; i++) {
		const size_t bad_len = i == 0 ? 4 : 5;

		now = feed_client_next_ns(f->feed);
		feed_client_process(f->feed, now);
		peer = accept(listener, NULL, NULL);
		assert_int_equal(send(peer, bad[i], bad_len, 0), bad_len);
		feed_client_process(f->feed, now);
		assert_false(feed_info(f).connected);
		assert_true(feed_client_next_ns(f->feed) > now);
		close(peer);
	}
	// A server that never answers is given up too.
	now = feed_client_next_ns(f->feed);
	feed_client_process(f->feed, now);
	peer = accept(listener, NULL, NULL);
	now = feed_client_next_ns(f->feed);
	feed_client_process(f->feed, now);
	assert_string_equal(feed_info(f).last_error, "no answer to HELLO");
	close(peer);
	close(listener);
}

int main(int argc, char **argv)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(the_child_is_given_every_option_of_the_configuration),
		T(a_child_serves_the_feed_and_mutations_are_applied),
		T(a_killed_child_comes_back_and_the_feed_goes_on),
		T(a_stop_is_clean_and_final),
		T(a_child_that_ignores_the_stop_is_killed),
		T(back_off_doubles_up_to_its_cap),
		T(what_a_restart_does_not_mend_is_tried_less_often),
		T(a_missing_program_is_noted),
		T(a_frame_that_does_not_fit_makes_a_fresh_connection),
		T(feed_client_survives_fragments_and_garbage),
	};

	int failed;

	if (argc != 2)
		return 64;
	metad_path = argv[1];
	log_set_level(LOG_ERROR);
	role_take_control();
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	role_drop_control();
	return failed;
}
