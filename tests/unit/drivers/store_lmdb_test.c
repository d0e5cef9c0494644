/* SPDX-License-Identifier: BSD-3-Clause */
// The store over LMDB: the random model, other processes reading under write load, a writer killed at any
// point, and what opening refuses. Children never return into cmocka: they _exit.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "store_lmdb.h"
#include "store_model.h"

#define MAP_BYTES (UINT64_C(1) << 30)

static struct store_limits limits = {
	.journal_commits = 1000, .dedup_commits = 1000, .stages = 4, .stage_commits = 1000};

static char dir[64];
static pid_t child;  // 0: none; a failed test's is ended by its teardown

static int setup(void **state)
{
	(void)state;
	snprintf(dir, sizeof(dir), "/tmp/store_lmdb_test.XXXXXX");
	return mkdtemp(dir) == NULL ? -1 : 0;
}

static int teardown(void **state)
{
	static const char *const file[] = {"data.mdb", "lock.mdb", "writer.lock"};
	char path[128];

	(void)state;
	if (child > 0) {
		kill(child, SIGKILL);
		waitpid(child, NULL, 0);
		child = 0;
	}
	for (size_t i = 0; i < sizeof(file) / sizeof(file[0]); i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, file[i]);
		unlink(path);
	}
	return rmdir(dir);
}

static int child_end(void)
{
	const pid_t pid = child;
	int status = 0;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	child = 0;
	return status;
}

static struct store_lmdb *open_writer(bool sync)
{
	struct store_lmdb *db;
	struct store_tx tx;
	const char *why = "";

	if (store_lmdb_open(dir, MAP_BYTES, true, sync, &db, &why) != 0) {
		fprintf(stderr, "open: %s\n", why);
		return NULL;
	}
	if (store_lmdb_begin(db, &tx) != 0 || store_open(&tx, 7, &why) != 0 ||
		store_lmdb_commit(db, &tx) != 0) {
		fprintf(stderr, "format: %s\n", why);
		store_lmdb_close(db);
		return NULL;
	}
	return db;
}

// --- the model ------------------------------------------------------------------------------------------

static int begin(void *ctx, struct store_tx *tx)
{
	return store_lmdb_begin(ctx, tx);
}
static int commit(void *ctx, struct store_tx *tx)
{
	return store_lmdb_commit(ctx, tx);
}
static void abort_tx(void *ctx, struct store_tx *tx)
{
	store_lmdb_abort(ctx, tx);
}
static int read_begin(void *ctx, struct store_tx *tx)
{
	return store_lmdb_read_begin(ctx, tx);
}
static void read_end(void *ctx, struct store_tx *tx)
{
	store_lmdb_read_end(ctx, tx);
}

static void random_commands_give_what_plain_sets_give(void **state)
{
	struct store_lmdb *db = open_writer(false);
	const struct store_model_backend backend = {
		begin, commit, abort_tx, read_begin, read_end, db};
	struct store_model *model = store_model_create(&backend, 99);

	(void)state;
	assert_non_null(db);
	assert_int_equal(store_model_run(model, 100000), 0);
	// What was committed is there after the environment was closed and opened again.
	store_lmdb_close(db);
	db = open_writer(false);
	assert_non_null(db);
	store_model_rebind(model, db);
	assert_int_equal(store_model_check(model), 0);
	assert_int_equal(store_model_run(model, 1000), 0);
	store_model_destroy(model);
	store_lmdb_close(db);
}

// --- load whose every commit can be checked from outside ------------------------------------------------
//
// Batch n adds "a<n>" to channel "one" and "b<n>" to channel "two" and removes both of batch n - 20, all
// in one transaction: a reader sees equal sets of equal age in both channels, or half a commit.

static struct channel_key channel(const char *id)
{
	struct channel_key key;

	channel_key_set(&key, CHANNEL_GROUP, id, (uint8_t)strlen(id));
	return key;
}

static uint32_t put_command(
	uint8_t *data, uint32_t cap, uint8_t op, const char *chan, char prefix, uint64_t n)
{
	uint8_t packed[32];
	struct store_command cmd = {
		.op = op, .channel = channel(chan), .uid_count = 1, .uids = packed};

	packed[0] = (uint8_t)snprintf(
		(char *)packed + 1, sizeof(packed) - 1, "%c%08llu", prefix, (unsigned long long)n);
	cmd.uids_bytes = 1u + packed[0];

	const int len = store_command_encode(&cmd, data, cap);

	return len < 0 ? 0 : (uint32_t)len;
}

static int write_batch(struct store_lmdb *db, uint64_t n)
{
	uint8_t data[1024];
	struct store_result result[4];
	struct store_tx tx;
	uint32_t len = 0, count = 2;

	len += put_command(data + len, 1024 - len, STORE_ADD, "one", 'a', n);
	len += put_command(data + len, 1024 - len, STORE_ADD, "two", 'b', n);
	if (n > 20) {
		len += put_command(data + len, 1024 - len, STORE_REMOVE, "one", 'a', n - 20);
		len += put_command(data + len, 1024 - len, STORE_REMOVE, "two", 'b', n - 20);
		count = 4;
	}

	int rc = store_lmdb_begin(db, &tx);

	if (rc != 0)
		return rc;
	rc = store_apply(&tx, &limits, n, data, len, result, 4, NULL, NULL);
	for (uint32_t i = 0; i < count; i++)
		if (rc != (int)count || result[i].code != STORE_R_OK) {
			store_lmdb_abort(db, &tx);
			return rc < 0 ? rc : -EPROTO;
		}
	return store_lmdb_commit(db, &tx);
}

// Reads the numbers of one channel. Returns: how many, or -1.
static int read_numbers(
	struct store_tx *tx, const char *chan, uint64_t *first, uint64_t *last, uint64_t *smv)
{
	const struct channel_key key = channel(chan);
	uint8_t uids[4096];
	struct store_page page;
	const uint8_t *p = uids;
	struct id_view uid;
	const int rc = store_read_page(
		tx, &key, STORE_MEMBERS, id_view_of(uids, 0), 100, uids, sizeof(uids), &page);

	*first = *last = *smv = 0;
	if (rc == -ENOENT)
		return 0;
	if (rc != 0 || !page.last)
		return -1;
	*smv = page.smv;
	while (store_uids_next(&p, uids + page.bytes_used, &uid)) {
		char text[16] = {0};

		memcpy(text, uid.bytes + 1, uid.len - 1u);
		*last = strtoull(text, NULL, 10);
		if (*first == 0)
			*first = *last;
	}
	return (int)page.count;
}

// Returns: the newest batch seen, or -1 for anything but a whole commit.
static int64_t read_whole(struct store_lmdb *db)
{
	uint64_t f1, l1, s1, f2, l2, s2;
	struct store_position pos;
	struct store_tx tx;

	if (store_lmdb_read_begin(db, &tx) != 0)
		return -1;

	const int rc = store_read_position(&tx, &pos);
	const int n1 = read_numbers(&tx, "one", &f1, &l1, &s1);
	const int n2 = read_numbers(&tx, "two", &f2, &l2, &s2);

	store_lmdb_read_end(db, &tx);
	if (rc != 0 || n1 < 0 || n1 != n2 || f1 != f2 || l1 != l2 || s1 != s2 || pos.applied != l1)
		return -1;
	if (n1 != (int)(l1 < 20 ? l1 : 20) || pos.commit != s1 + s2)
		return -1;
	return (int64_t)l1;
}

// --- other processes ------------------------------------------------------------------------------------

static int reader_process(int ready)
{
	struct store_lmdb *db;
	const char *why;
	int64_t seen = 0;
	uint64_t distinct = 0;

	if (store_lmdb_open(dir, MAP_BYTES, false, true, &db, &why) != 0)
		return 2;
	if (write(ready, "r", 1) != 1)
		return 3;
	while (seen < 3000) {
		const int64_t now = read_whole(db);

		if (now < 0)
			return 4;
		// One back, see store_lmdb_read_begin; never more.
		if (now + 1 < seen)
			return 6;
		distinct += now != seen;
		seen = now;
	}
	store_lmdb_close(db);
	return distinct > 10 ? 0 : 5;
}

static void another_process_sees_only_whole_commits(void **state)
{
	struct store_lmdb *db = NULL;
	int pipe_fd[2], status;
	char byte;

	(void)state;
	// The writer makes the store, then leaves, so that the child inherits no open environment.
	db = open_writer(false);
	assert_non_null(db);
	store_lmdb_close(db);
	assert_int_equal(pipe(pipe_fd), 0);

	child = fork();
	if (child == 0)
		_exit(reader_process(pipe_fd[1]));
	assert_true(child > 0);
	db = open_writer(false);
	assert_non_null(db);
	close(pipe_fd[1]);
	assert_int_equal(read(pipe_fd[0], &byte, 1), 1);
	close(pipe_fd[0]);
	for (uint64_t n = 1; n <= 3000; n++)
		assert_int_equal(write_batch(db, n), 0);
	status = child_end();
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	store_lmdb_close(db);
}

static void a_reader_with_a_smaller_map_follows_the_growth(void **state)
{
	struct store_lmdb *db = open_writer(false);
	struct store_lmdb_info info;
	int ready[2], go[2], status;
	char byte;

	(void)state;
	assert_non_null(db);
	store_lmdb_close(db);
	assert_int_equal(pipe(ready), 0);
	assert_int_equal(pipe(go), 0);

	child = fork();
	if (child == 0) {
		const char *why;

		if (store_lmdb_open(dir, UINT64_C(1) << 20, false, true, &db, &why) != 0 ||
			read_whole(db) != 0 || write(ready[1], "r", 1) != 1 ||
			read(go[0], &byte, 1) != 1)
			_exit(1);
		_exit(read_whole(db) == 5000 && read_whole(db) == 5000 ? 0 : 2);
	}
	close(ready[1]);
	close(go[0]);
	db = open_writer(false);
	assert_non_null(db);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	limits.journal_commits = 1000000;
	for (uint64_t n = 1; n <= 5000; n++)
		assert_int_equal(write_batch(db, n), 0);
	limits.journal_commits = 1000;
	assert_int_equal(store_lmdb_info(db, &info), 0);
	assert_true(info.used_bytes > 3u << 19);
	assert_int_equal(write(go[1], "g", 1), 1);
	status = child_end();
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	close(ready[0]);
	close(go[1]);
	store_lmdb_close(db);
}

// Writes for ever; says each batch on `out` after its commit.
static int writer_process(int out)
{
	struct store_lmdb *db = open_writer(true);

	if (db == NULL)
		return 2;

	const int64_t at = read_whole(db);

	if (at < 0)
		return 3;
	for (uint64_t n = (uint64_t)at + 1;; n++)
		if (write_batch(db, n) != 0 || write(out, &n, sizeof(n)) != sizeof(n))
			return 4;
}

static void a_killed_writer_loses_no_committed_batch(void **state)
{
	uint64_t said = 0;

	(void)state;
	srand(42);
	for (int round = 0; round < 20; round++) {
		const uint64_t until = said + 1 + (uint64_t)rand() % 40;
		int pipe_fd[2], status;
		uint64_t n;

		assert_int_equal(pipe(pipe_fd), 0);

		child = fork();
		if (child == 0) {
			close(pipe_fd[0]);
			_exit(writer_process(pipe_fd[1]));
		}
		assert_true(child > 0);
		close(pipe_fd[1]);
		while (said < until && read(pipe_fd[0], &n, sizeof(n)) == sizeof(n))
			said = n;
		// Somewhere in the next commits: the child goes on while this spins.
		for (volatile int spin = rand() % 3000000; spin > 0; spin--)
			;
		kill(child, SIGKILL);
		status = child_end();
		assert_true(WIFSIGNALED(status));
		while (read(pipe_fd[0], &n, sizeof(n)) == sizeof(n))
			said = n;
		close(pipe_fd[0]);

		struct store_lmdb *db = open_writer(true);

		assert_non_null(db);

		const int64_t at = read_whole(db);

		assert_true(at >= (int64_t)said);
		assert_true(at <= (int64_t)said + 1);
		said = (uint64_t)at;
		store_lmdb_close(db);
	}
}

static void a_killed_readers_slot_is_cleared(void **state)
{
	struct store_lmdb *db = open_writer(false);
	struct store_lmdb_info info;
	int pipe_fd[2];
	char byte;

	(void)state;
	assert_non_null(db);
	store_lmdb_close(db);
	assert_int_equal(pipe(pipe_fd), 0);

	child = fork();
	if (child == 0) {
		const char *why;
		struct store_tx tx;

		if (store_lmdb_open(dir, MAP_BYTES, false, true, &db, &why) != 0 ||
			store_lmdb_read_begin(db, &tx) != 0 || write(pipe_fd[1], "r", 1) != 1)
			_exit(1);
		pause();
		_exit(0);
	}
	close(pipe_fd[1]);
	db = open_writer(false);
	assert_non_null(db);
	assert_int_equal(read(pipe_fd[0], &byte, 1), 1);
	kill(child, SIGKILL);
	assert_true(WIFSIGNALED(child_end()));
	assert_int_equal(store_lmdb_info(db, &info), 0);
	assert_int_equal(info.readers_cleared, 1);
	assert_true(info.readers_max > 0 && info.map_bytes == MAP_BYTES && info.used_bytes > 0);
	close(pipe_fd[0]);
	store_lmdb_close(db);
}

// --- opening --------------------------------------------------------------------------------------------

static void a_second_writer_is_refused_with_a_reason(void **state)
{
	struct store_lmdb *db = open_writer(false), *second;
	const char *why = NULL;

	(void)state;
	assert_non_null(db);
	assert_int_equal(store_lmdb_open(dir, MAP_BYTES, true, false, &second, &why), -EBUSY);
	assert_null(second);
	assert_non_null(strstr(why, dir));
	assert_non_null(strstr(why, "another process writes"));
	store_lmdb_close(db);
}

static void a_reader_before_the_writer_gets_enoent(void **state)
{
	struct store_lmdb *db;
	const char *why = NULL;
	char path[128];
	int fd;

	(void)state;
	assert_int_equal(store_lmdb_open(dir, MAP_BYTES, false, true, &db, &why), -ENOENT);
	assert_non_null(strstr(why, dir));
	// A file the writer only just created.
	snprintf(path, sizeof(path), "%s/data.mdb", dir);
	fd = open(path, O_CREAT | O_RDWR, 0600);
	assert_true(fd >= 0);
	assert_int_equal(store_lmdb_open(dir, MAP_BYTES, false, true, &db, &why), -ENOENT);
	close(fd);
}

static void a_foreign_file_is_refused(void **state)
{
	struct store_lmdb *db;
	const char *why = NULL;
	char path[128];
	FILE *f;

	(void)state;
	snprintf(path, sizeof(path), "%s/data.mdb", dir);
	f = fopen(path, "w");
	assert_non_null(f);
	for (int i = 0; i < 20000; i++)
		fputc('x', f);
	fclose(f);
	assert_int_equal(store_lmdb_open(dir, MAP_BYTES, true, true, &db, &why), -EUCLEAN);
	assert_non_null(strstr(why, dir));
	assert_int_equal(store_lmdb_open(dir, MAP_BYTES, false, true, &db, &why), -EUCLEAN);
}

static void a_store_of_another_cluster_is_refused(void **state)
{
	struct store_lmdb *db = open_writer(false);
	struct store_tx tx;
	const char *why = NULL;

	(void)state;
	assert_non_null(db);
	assert_int_equal(store_lmdb_begin(db, &tx), 0);
	assert_int_equal(store_open(&tx, 8, &why), -EPROTO);
	assert_non_null(strstr(why, "cluster"));
	store_lmdb_abort(db, &tx);
	store_lmdb_close(db);
}

static void a_full_map_is_an_error_and_the_store_stays_whole(void **state)
{
	struct store_lmdb *db;
	struct store_tx tx;
	const char *why;
	int rc = 0;
	uint64_t n = 0;

	(void)state;
	assert_int_equal(store_lmdb_open(dir, UINT64_C(1) << 20, true, false, &db, &why), 0);
	assert_int_equal(store_lmdb_begin(db, &tx), 0);
	assert_int_equal(store_open(&tx, 7, &why), 0);
	assert_int_equal(store_lmdb_commit(db, &tx), 0);
	// The journal grows until the map is full; the failing batch leaves nothing behind.
	limits.journal_commits = 1000000;
	while (rc == 0 && n < 100000) {
		rc = write_batch(db, n + 1);
		n += rc == 0;
	}
	limits.journal_commits = 1000;
	assert_int_equal(rc, -ENOSPC);
	assert_int_equal(read_whole(db), (int64_t)n);
	store_lmdb_close(db);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(random_commands_give_what_plain_sets_give),
		T(another_process_sees_only_whole_commits),
		T(a_reader_with_a_smaller_map_follows_the_growth),
		T(a_killed_writer_loses_no_committed_batch),
		T(a_killed_readers_slot_is_cleared),
		T(a_second_writer_is_refused_with_a_reason),
		T(a_reader_before_the_writer_gets_enoent),
		T(a_foreign_file_is_refused),
		T(a_store_of_another_cluster_is_refused),
		T(a_full_map_is_an_error_and_the_store_stays_whole),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
