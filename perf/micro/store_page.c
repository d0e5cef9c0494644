/* SPDX-License-Identifier: BSD-3-Clause */
// How fast a tag build can read its members: pages of a large channel from LMDB, beside a bare cursor
// walk over the same rows in the same run. Also how long the close of a large operation takes.
// Usage: store_page [members]
#include <lmdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base_time.h"
#include "bench.h"
#include "store_lmdb.h"

#define CHUNK 4000u
#define PAGE 1024u
#define MAP_BYTES (UINT64_C(4) << 30)

static const struct store_limits limits = {
	.journal_commits = 100, .dedup_commits = 100, .stages = 4, .stage_commits = 1000};
static char dir[] = "/tmp/store_page.XXXXXX";
static uint64_t applied;

static void must(int holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "store_page: %s failed\n", what);
	exit(1);
}

static double seconds_since(uint64_t start_ns)
{
	return (double)(time_now_ns() - start_ns) / 1e9;
}

// Applies one command in a transaction of its own. Returns: its time in seconds.
static double apply(struct store_lmdb *db, const struct store_command *cmd)
{
	static uint8_t data[ENTRY_BYTES_MAX];
	const int len = store_command_encode(cmd, data, sizeof(data));
	const uint64_t start = time_now_ns();
	struct store_result result;
	struct store_tx tx;

	must(len > 0 && store_lmdb_begin(db, &tx) == 0, "begin");
	must(store_apply(&tx, &limits, ++applied, data, (uint32_t)len, &result, 1, NULL, NULL) == 1,
		"apply");
	must(result.code == STORE_R_OK, store_result_name(result.code));
	must(store_lmdb_commit(db, &tx) == 0, "commit");
	return seconds_since(start);
}

// Adds `count` members in a staged operation. Returns: seconds of the close.
static double load(struct store_lmdb *db, const struct channel_key *key, const char *prefix,
	uint32_t count, uint64_t stage)
{
	static uint8_t uids[CHUNK * 16];
	struct store_command cmd = {.op = STORE_STAGE,
		.staged_op = STORE_ADD,
		.stage_id = stage,
		.channel = *key,
		.uids = uids};
	const uint64_t start = time_now_ns();
	double worst = 0;

	for (uint32_t i = 0; i < count;) {
		cmd.uid_count = 0;
		cmd.uids_bytes = 0;
		for (; cmd.uid_count < CHUNK && i < count; i++, cmd.uid_count++) {
			uint8_t *p = uids + cmd.uids_bytes;

			p[0] = (uint8_t)snprintf((char *)p + 1, 15, "%s%07u", prefix, i);
			cmd.uids_bytes += 1u + p[0];
		}

		const double took = apply(db, &cmd);

		worst = took > worst ? took : worst;
	}
	printf("stage      %9.0f members/s, longest chunk of %u %.1f ms\n",
		count / seconds_since(start), CHUNK, worst * 1e3);
	cmd.op = STORE_CLOSE;
	cmd.uid_count = count;
	cmd.uids_bytes = 0;
	return apply(db, &cmd);
}

static uint64_t read_all(struct store_lmdb *db, const struct channel_key *key)
{
	static uint8_t uids[PAGE * 16];
	struct store_page page = {0};
	uint64_t members = 0;

	do {
		const struct store_page at = page;
		struct store_tx tx;

		must(store_lmdb_read_begin(db, &tx) == 0, "read_begin");
		must(store_read_page(&tx, key, STORE_MEMBERS, id_view_of(at.next, at.next_len),
			     PAGE, uids, sizeof(uids), &page) == 0,
			"page");
		store_lmdb_read_end(db, &tx);
		members += page.count;
	} while (!page.last);
	return members;
}

// ns per member by round.
static void page_ns(
	struct store_lmdb *db, const struct channel_key *key, uint64_t members, double *ns)
{
	for (uint32_t r = 0; r < BENCH_ROUNDS; r++) {
		const uint64_t start = bench_ns();

		must(read_all(db, key) == members, "member count");
		ns[r] = (double)(bench_ns() - start) / (double)members;
	}
}

// ns per row of a plain cursor that steps over the whole member table and sums the keys' lengths.
static void walk_ns(uint64_t rows, double *ns)
{
	uint64_t sum = 0;
	MDB_env *env;
	MDB_txn *txn;
	MDB_dbi dbi;

	must(mdb_env_create(&env) == 0 && mdb_env_set_maxdbs(env, 8) == 0, "env");
	must(mdb_env_set_mapsize(env, MAP_BYTES) == 0, "map");
	must(mdb_env_open(env, dir, MDB_NOTLS | MDB_RDONLY, 0600) == 0, "env open");
	must(mdb_txn_begin(env, NULL, MDB_RDONLY, &txn) == 0, "txn");
	must(mdb_dbi_open(txn, "member", 0, &dbi) == 0, "table");
	for (uint32_t r = 0; r < BENCH_ROUNDS; r++) {
		const uint64_t start = bench_ns();
		MDB_cursor *cursor;
		MDB_val k, v;
		uint64_t n = 0;

		must(mdb_cursor_open(txn, dbi, &cursor) == 0, "cursor");
		while (mdb_cursor_get(cursor, &k, &v, MDB_NEXT) == 0) {
			sum += k.mv_size;
			n++;
		}
		mdb_cursor_close(cursor);
		must(n == rows && sum > n, "row count");
		ns[r] = (double)(bench_ns() - start) / (double)n;
	}
	mdb_txn_abort(txn);
	mdb_env_close(env);
}

static void clean_up(void)
{
	static const char *const file[] = {"data.mdb", "lock.mdb", "writer.lock"};
	char path[128];

	for (size_t i = 0; i < sizeof(file) / sizeof(file[0]); i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, file[i]);
		unlink(path);
	}
	rmdir(dir);
}

static void compact_all(struct store_lmdb *db)
{
	const uint64_t start = time_now_ns();
	uint64_t rows = 0;
	struct store_tx tx;
	int rc;

	do {
		must(store_lmdb_begin(db, &tx) == 0, "begin");
		rc = store_compact(&tx, &limits, 4096);
		must(rc >= 0 && store_lmdb_commit(db, &tx) == 0, "compact");
		rows += (uint64_t)rc;
	} while (rc > 0);
	printf("compact    %9.0f rows/s\n", (double)rows / seconds_since(start));
}

int main(int argc, char **argv)
{
	const uint32_t members = argc > 1 ? (uint32_t)atoi(argv[1]) : 100000;
	double one[BENCH_ROUNDS], two[BENCH_ROUNDS], merged[BENCH_ROUNDS], walk[BENCH_ROUNDS];
	struct channel_key key;
	struct store_lmdb *db;
	struct store_tx tx;
	const char *why;

	must(members > 0 && members < 1000000 && mkdtemp(dir) != NULL, "mkdtemp");
	atexit(clean_up);
	channel_key_set(&key, CHANNEL_GROUP, "large", 5);
	must(store_lmdb_open(dir, MAP_BYTES, true, false, &db, &why) == 0, "open");
	must(store_lmdb_begin(db, &tx) == 0 && store_open(&tx, 7, &why) == 0 &&
			store_lmdb_commit(db, &tx) == 0,
		"format");
	printf("close      %9.3f ms for %u members\n", load(db, &key, "u", members, 1) * 1e3,
		members);

	page_ns(db, &key, members, one);
	printf("close      %9.3f ms for %u more\n", load(db, &key, "v", members / 2, 2) * 1e3,
		members / 2);
	page_ns(db, &key, members + members / 2, two);
	compact_all(db);
	page_ns(db, &key, members + members / 2, merged);
	store_lmdb_close(db);
	walk_ns(members + members / 2, walk);
	bench_head("pages of a channel, per member");
	bench_row("one generation", one, "bare cursor walk", walk, BENCH_NONE);
	bench_row("two generations", two, "bare cursor walk", walk, BENCH_NONE);
	bench_row("merged", merged, "bare cursor walk", walk, BENCH_NONE);
	return 0;
}
