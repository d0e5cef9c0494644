/* SPDX-License-Identifier: BSD-3-Clause */
// What one command of a large operation costs the loop that applies it: chunks of 48 KiB of sorted UIDs into
// lists of several shapes, closes, and pieces of compaction, each in a transaction of its own without sync.
// Prints CPU time of the median, of 99 in 100 and of the longest call. Asserts nothing.
// Usage: store_turn [members]
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "store_lmdb.h"

#define CHUNK_BYTES (48u * 1024u)
#define MAP_BYTES (UINT64_C(64) << 30)

static const struct store_limits limits = {
	.journal_commits = 1000, .dedup_commits = 1000, .stages = 4, .stage_commits = 100000};
static char dir[] = "/tmp/store_turn.XXXXXX";
static struct store_lmdb *db;
static uint64_t applied, next_stage = 1;

static void must(int holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "store_turn: %s failed\n", what);
	exit(1);
}

static void clean_up(void)
{
	char command[96];

	snprintf(command, sizeof(command), "rm -rf '%s'", dir);
	if (system(command) != 0)
		fprintf(stderr, "store_turn: %s is left\n", dir);
}

// CPU times of calls of one kind.
struct times {
	double *ms;
	uint32_t count, cap;
};

static void times_add(struct times *t, double ms)
{
	if (t->count == t->cap) {
		t->cap = t->cap == 0 ? 1024 : 2 * t->cap;
		t->ms = realloc(t->ms, t->cap * sizeof(*t->ms));
		must(t->ms != NULL, "memory");
	}
	t->ms[t->count++] = ms;
}

static void times_print(const char *what, struct times *t)
{
	if (t->count == 0)
		return;
	qsort(t->ms, t->count, sizeof(*t->ms), bench_by_value);
	printf("%-46s %6u calls  median %7.2f  p99 %7.2f  longest %7.2f ms\n", what, t->count,
		t->ms[t->count / 2], t->ms[t->count * 99ull / 100], t->ms[t->count - 1]);
	t->count = 0;
}

static double apply(const struct store_command *cmd, uint32_t compact)
{
	static uint8_t data[ENTRY_BYTES_MAX];
	const int len = store_command_encode(cmd, data, sizeof(data));
	const uint64_t start = bench_ns();
	struct store_result result;
	struct store_tx tx;

	must(len > 0 && store_lmdb_begin(db, &tx) == 0, "begin");
	must(store_apply(&tx, &limits, ++applied, data, (uint32_t)len, &result, 1, NULL, NULL) == 1,
		"apply");
	must(result.code <= STORE_R_NO_CHANGE, store_result_name(result.code));
	must(compact == 0 || store_compact(&tx, &limits, compact) >= 0, "compact");
	must(store_lmdb_commit(db, &tx) == 0, "commit");
	return (double)(bench_ns() - start) / 1e6;
}

static void compact_all(struct times *t, uint32_t steps)
{
	int rc = 1;

	while (rc > 0) {
		const uint64_t start = bench_ns();
		struct store_tx tx;

		must(store_lmdb_begin(db, &tx) == 0, "begin");
		rc = store_compact(&tx, &limits, steps);
		must(rc >= 0 && store_lmdb_commit(db, &tx) == 0, "compact");
		times_add(t, (double)(bench_ns() - start) / 1e6);
	}
}

// One large operation over `count` UIDs: 10 digits, first, first + step, ...
static void large(const char *what, uint8_t op, uint64_t first, uint64_t step, uint32_t count,
	uint32_t compact)
{
	static uint8_t uids[CHUNK_BYTES];
	struct store_command cmd = {
		.op = STORE_STAGE, .staged_op = op, .stage_id = next_stage++, .uids = uids};
	struct times stage = {0}, close = {0};
	char text[80];

	channel_key_set(&cmd.channel, CHANNEL_GROUP, "large", 5);
	for (uint32_t i = 0; i < count;) {
		cmd.uid_count = 0;
		cmd.uids_bytes = 0;
		for (; cmd.uids_bytes + 16 <= CHUNK_BYTES && i < count; i++, cmd.uid_count++) {
			char uid[24];

			snprintf(uid, sizeof(uid), "%010llu",
				(unsigned long long)(first + i * step));
			uids[cmd.uids_bytes] = 10;
			memcpy(uids + cmd.uids_bytes + 1, uid, 10);
			cmd.uids_bytes += 11;
		}
		times_add(&stage, apply(&cmd, compact));
	}
	cmd.op = STORE_CLOSE;
	cmd.uid_count = count;
	cmd.uids_bytes = 0;
	times_add(&close, apply(&cmd, compact));
	snprintf(text, sizeof(text), "%s: chunk", what);
	times_print(text, &stage);
	snprintf(text, sizeof(text), "%s: close", what);
	times_print(text, &close);
	free(stage.ms);
	free(close.ms);
}

// One command of as many UIDs as fit it, far apart and in no order, as a caller may send them.
static void unstaged(const char *what, uint8_t op, uint64_t seed, uint32_t calls)
{
	static uint8_t uids[STORE_UIDS_INLINE_MAX * 11];
	struct store_command cmd = {.op = op, .uids = uids};
	struct times t = {0};

	channel_key_set(&cmd.channel, CHANNEL_GROUP, "large", 5);
	for (uint32_t c = 0; c < calls; c++) {
		cmd.uids_bytes = 0;
		for (cmd.uid_count = 0; cmd.uid_count < STORE_UIDS_INLINE_MAX; cmd.uid_count++) {
			char uid[24];

			seed = seed * UINT64_C(6364136223846793005) + 1;
			snprintf(uid, sizeof(uid), "%010llu",
				(unsigned long long)(seed >> 33) % 20000000);
			uids[cmd.uids_bytes] = 10;
			memcpy(uids + cmd.uids_bytes + 1, uid, 10);
			cmd.uids_bytes += 11;
		}
		times_add(&t, apply(&cmd, 0));
	}
	times_print(what, &t);
	free(t.ms);
}

int main(int argc, char **argv)
{
	const uint32_t n = argc > 1 ? (uint32_t)atoi(argv[1]) : 1000000;
	struct times t = {0};
	struct store_tx tx;
	const char *why;

	must(n >= 5000 && n <= 1000000 && mkdtemp(dir) != NULL, "mkdtemp");
	atexit(clean_up);
	must(store_lmdb_open(dir, MAP_BYTES, true, false, &db, &why) == 0, "open");
	must(store_lmdb_begin(db, &tx) == 0 && store_open(&tx, 7, &why) == 0 &&
			store_lmdb_commit(db, &tx) == 0,
		"format");
	large("add to nothing", STORE_ADD, 0, 20, n, 0);
	large("add between", STORE_ADD, 7, 20, n, 0);
	large("add to two generations, compacting", STORE_ADD, 11, 20, n, 512);
	compact_all(&t, 512);
	times_print("compaction, 512 steps: merging", &t);
	for (uint32_t i = 0; i < 12; i++) {
		char what[64];

		snprintf(what, sizeof(what), "add, %u operations not compacted", i);
		large(what, STORE_ADD, 1 + i, 30, 50000, 0);
	}
	compact_all(&t, 512);
	times_print("compaction, 512 steps: merging", &t);
	unstaged("add 8192 unsorted in one command", STORE_ADD, 5, 20);
	unstaged("remove 8192 unsorted in one command", STORE_REMOVE, 5, 20);
	large("remove half", STORE_REMOVE, 0, 40, n / 2, 0);
	compact_all(&t, 512);
	times_print("compaction, 512 steps: merging removals", &t);
	large("reset, half of it kept", STORE_RESET, 7, 10, n, 0);
	compact_all(&t, 512);
	times_print("compaction, 512 steps: dead rows", &t);
	large("add a small stage (folded)", STORE_ADD, 3, 40, 4096, 0);
	large("remove a small stage (folded)", STORE_REMOVE, 3, 40, 4096, 0);
	free(t.ms);
	store_lmdb_close(db);
	return 0;
}
