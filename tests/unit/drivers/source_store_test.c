/* SPDX-License-Identifier: BSD-3-Clause */
// The tag source over a store written by another process: not there yet, there, replaced. The writer is
// a child, because LMDB allows one environment a folder and process.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "source_store.h"
#include "store_lmdb.h"

#define MAP_BYTES (UINT64_C(64) << 20)

static char dir[64];
static struct source_store *source;

static int setup(void **state)
{
	(void)state;
	snprintf(dir, sizeof(dir), "/tmp/source_store_test.XXXXXX");
	if (mkdtemp(dir) == NULL)
		return -1;
	return source_store_open(dir, MAP_BYTES, &source);
}

static void unlink_store(void)
{
	static const char *const file[] = {"data.mdb", "lock.mdb", "writer.lock"};
	char path[128];

	for (size_t i = 0; i < sizeof(file) / sizeof(file[0]); i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, file[i]);
		unlink(path);
	}
}

static int teardown(void **state)
{
	(void)state;
	source_store_close(source);
	unlink_store();
	return rmdir(dir);
}

static int write_process(uint64_t generation, uint64_t index, const char *uid)
{
	static const struct store_limits limits = {100, 100, 4, 100, 0};
	struct store_command cmd = {.op = STORE_ADD, .uid_count = 1};
	struct store_result result;
	struct store_lmdb *db;
	struct store_tx tx;
	uint8_t packed[32], data[256];
	const char *why;

	channel_key_set(&cmd.channel, CHANNEL_GROUP, "g", 1);
	packed[0] = (uint8_t)strlen(uid);
	memcpy(packed + 1, uid, packed[0]);
	cmd.uids = packed;
	cmd.uids_bytes = 1u + packed[0];

	const int len = store_command_encode(&cmd, data, sizeof(data));

	if (len < 0 || store_lmdb_open(dir, MAP_BYTES, true, false, &db, &why) != 0)
		return 1;
	if (store_lmdb_begin(db, &tx) != 0 || store_open(&tx, 7, &why) != 0 ||
		store_set_generation(&tx, generation) != 0 ||
		store_apply(&tx, &limits, index, data, (uint32_t)len, &result, 1, NULL, NULL) !=
			1 ||
		store_lmdb_commit(db, &tx) != 0)
		return 2;
	store_lmdb_close(db);
	return 0;
}

static void write_store(uint64_t generation, uint64_t index, const char *uid)
{
	int status;
	const pid_t pid = fork();

	if (pid == 0)
		_exit(write_process(generation, index, uid));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static void before_the_store_exists_the_answer_is_try_again(void **state)
{
	struct store_position pos;

	(void)state;
	assert_int_equal(source_store_ops.position(source, &pos), -EAGAIN);
	assert_int_equal(source_store_ops.reopen(source), -EAGAIN);
	write_store(3, 1, "a");
	assert_int_equal(source_store_ops.position(source, &pos), 0);
	assert_true(pos.generation == 3 && pos.commit == 1 && pos.cluster_id == 7);
}

static void each_call_sees_the_newest_commit(void **state)
{
	struct channel_key start = {0};
	struct store_channel channel;
	struct store_page page;
	uint8_t uids[512];

	(void)state;
	write_store(3, 1, "a");
	assert_int_equal(source_store_ops.next_channel(source, &start, &channel), 0);
	assert_true(channel.members == 1 && channel.smv == 1);
	assert_int_equal(source_store_ops.next_channel(source, &channel.key, &channel), -ENOENT);
	write_store(3, 2, "b");
	assert_int_equal(source_store_ops.page(source, &channel.key, STORE_MEMBERS,
				 id_view_of(uids, 0), 10, uids, sizeof(uids), &page),
		0);
	assert_true(page.count == 2 && page.last && page.smv == 2 && page.commit == 2);
	assert_memory_equal(uids, "\1a\1b", 4);
}

static void reopen_finds_the_store_that_took_the_place(void **state)
{
	struct store_position pos;

	(void)state;
	write_store(3, 5, "a");
	assert_int_equal(source_store_ops.position(source, &pos), 0);
	unlink_store();
	write_store(4, 1, "z");
	assert_int_equal(source_store_ops.position(source, &pos), 0);
	assert_int_equal(pos.generation, 3);  // still the old file
	assert_int_equal(source_store_ops.reopen(source), 0);
	assert_int_equal(source_store_ops.position(source, &pos), 0);
	assert_true(pos.generation == 4 && pos.applied == 1);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(before_the_store_exists_the_answer_is_try_again),
		T(each_call_sees_the_newest_commit),
		T(reopen_finds_the_store_that_took_the_place),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
