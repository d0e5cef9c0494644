/* SPDX-License-Identifier: BSD-3-Clause */
// Snapshots of a store with many members: encoding beside a bare cursor walk that copies every row, the check
// beside a plain copy of the bytes, loading beside bare appends of the same rows, all in one run.
// Usage: store_snapshot [rows]
#include <lmdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base_time.h"
#include "bench.h"
#include "store_lmdb.h"
#include "store_snapshot.h"

#define MAP_BYTES (UINT64_C(64) << 30)
#define LISTS 10u  // channels the rows belong to
#define STEP 32768u

static const struct store_limits limits = {
	.journal_commits = 100, .dedup_commits = 100, .stages = 4, .stage_commits = 1000};
static char root[] = "/tmp/store_snapshot.XXXXXX";
static uint8_t *bytes, *copy;
static uint64_t len, cap;

static void must(int holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "store_snapshot: %s failed\n", what);
	exit(1);
}

static void clean_up(void)
{
	char command[96];

	snprintf(command, sizeof(command), "rm -rf '%s'", root);
	if (system(command) != 0)
		fprintf(stderr, "store_snapshot: %s is left\n", root);
}

static const char *folder(const char *name)
{
	static char path[96];

	snprintf(path, sizeof(path), "%s/%s", root, name);
	return path;
}

static int keep(void *ctx, const uint8_t *p, uint64_t n)
{
	(void)ctx;
	must(n <= cap - len, "room");
	memcpy(bytes + len, p, n);
	len += n;
	return 0;
}

// Rows as the store has them: ids of one channel ascend by uneven steps, as a sample of users does.
static void fill(struct store_lmdb *db, uint64_t rows)
{
	struct store_tx tx;
	const char *why;
	uint64_t random = 1, uid = 0;

	must(store_lmdb_begin(db, &tx) == 0 && store_open(&tx, 7, &why) == 0, "format");
	for (uint64_t i = 0; i < rows; i++) {
		const uint64_t per = (rows + LISTS - 1) / LISTS;
		uint8_t key[13 + 16] = {0};
		int n;

		if (i % per == 0)
			uid = 0;
		random = random * UINT64_C(6364136223846793005) + 1;
		uid += 1 + (random >> 33) % 999;
		key[7] = (uint8_t)(1 + i / per);
		key[12] = 1;
		n = snprintf((char *)key + 13, 16, "u%010llu", (unsigned long long)uid);
		must(tx.ops->append(tx.tx, STORE_T_MEMBER,
			     (struct store_bytes){key, 13 + (uint32_t)n},
			     (struct store_bytes){"\1", 1}) == 0,
			"append");
	}
	must(store_lmdb_commit(db, &tx) == 0, "commit");
}

static double encode(struct store_lmdb *db)
{
	const struct store_snapshot_sink sink = {keep, NULL};
	struct store_lmdb_walker *walker;
	const uint64_t start = bench_ns();
	struct store_tx tx;

	len = 0;
	must(store_lmdb_walker_open(db, &walker) == 0, "walker");
	store_lmdb_walker_tx(walker, &tx);
	must(store_snapshot_encode(&tx, &limits, &sink, NULL) == 0, "encode");
	store_lmdb_walker_close(db, walker);
	return (double)(bench_ns() - start);
}

static MDB_env *env_open(const char *dir, unsigned flags)
{
	MDB_env *env;

	must(mdb_env_create(&env) == 0 && mdb_env_set_maxdbs(env, 8) == 0, "env");
	must(mdb_env_set_mapsize(env, MAP_BYTES) == 0, "map");
	must(mdb_env_open(env, dir, MDB_NOTLS | flags, 0600) == 0, "env open");
	return env;
}

// Steps over the member table and copies keys and values behind each other.
static double walk(uint64_t rows)
{
	MDB_env *env = env_open(folder("store"), MDB_RDONLY);
	MDB_cursor *cursor;
	MDB_txn *txn;
	MDB_val k, v;
	MDB_dbi dbi;
	uint64_t n = 0, at = 0, start;

	must(mdb_txn_begin(env, NULL, MDB_RDONLY, &txn) == 0, "txn");
	must(mdb_dbi_open(txn, "member", 0, &dbi) == 0, "table");
	must(mdb_cursor_open(txn, dbi, &cursor) == 0, "cursor");
	start = bench_ns();
	while (mdb_cursor_get(cursor, &k, &v, MDB_NEXT) == 0) {
		if (at + k.mv_size + v.mv_size > cap)
			at = 0;
		memcpy(copy + at, k.mv_data, k.mv_size);
		memcpy(copy + at + k.mv_size, v.mv_data, v.mv_size);
		at += k.mv_size + v.mv_size;
		n++;
	}
	start = bench_ns() - start;
	must(n == rows, "row count");
	mdb_cursor_close(cursor);
	mdb_txn_abort(txn);
	mdb_env_close(env);
	return (double)start;
}

static double check(void)
{
	const uint64_t start = bench_ns();
	struct store_snapshot_info info;
	const char *why;

	must(store_snapshot_check(bytes, len, &info, &why) == 0, "check");
	return (double)(bench_ns() - start);
}

static double copy_bytes(void)
{
	const uint64_t start = bench_ns();

	memcpy(copy, bytes, len);
	return (double)(bench_ns() - start);
}

static void remove_folder(const char *name)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf '%s/%s'", root, name);
	must(system(command) == 0, "rm");
}

// Without the check, which is measured by itself.
static double load(void)
{
	struct store_snapshot_load l;
	struct store_lmdb *db;
	struct store_tx tx;
	const char *why;
	uint64_t start;
	int rc = 0;

	must(store_lmdb_open(folder("loaded"), MAP_BYTES, true, false, &db, &why) == 0, "open");
	must(store_snapshot_load_begin(&l, bytes, len, &why) == 0, "load begin");
	l.checked = true;
	start = bench_ns();
	while (rc == 0) {
		must(store_lmdb_begin(db, &tx) == 0, "begin");
		rc = store_snapshot_load_step(&l, &tx, STEP, &why);
		must(store_lmdb_commit(db, &tx) == 0, "commit");
	}
	start = bench_ns() - start;
	must(rc == 1, "load");
	store_lmdb_close(db);
	remove_folder("loaded");
	return (double)start;
}

// The same rows put behind each other by the library alone.
static double append(uint64_t rows)
{
	MDB_env *from = env_open(folder("store"), MDB_RDONLY), *to;
	MDB_txn *read, *write = NULL;
	MDB_cursor *in, *out = NULL;
	MDB_dbi member, dbi;
	MDB_val k, v;
	uint64_t n = 0, start;

	must(mkdir(folder("bare"), 0700) == 0, "mkdir");
	to = env_open(folder("bare"), MDB_NOSYNC);
	must(mdb_txn_begin(from, NULL, MDB_RDONLY, &read) == 0, "txn");
	must(mdb_dbi_open(read, "member", 0, &member) == 0, "table");
	must(mdb_cursor_open(read, member, &in) == 0, "cursor");
	start = bench_ns();
	while (mdb_cursor_get(in, &k, &v, MDB_NEXT) == 0) {
		if (n++ % STEP == 0) {
			if (write != NULL) {
				mdb_cursor_close(out);
				must(mdb_txn_commit(write) == 0, "commit");
			}
			must(mdb_txn_begin(to, NULL, 0, &write) == 0, "txn");
			must(mdb_dbi_open(write, "member", MDB_CREATE, &dbi) == 0, "table");
			must(mdb_cursor_open(write, dbi, &out) == 0, "cursor");
		}
		must(mdb_cursor_put(out, &k, &v, MDB_APPEND) == 0, "put");
	}
	mdb_cursor_close(out);
	must(mdb_txn_commit(write) == 0 && n == rows, "commit");
	start = bench_ns() - start;
	mdb_cursor_close(in);
	mdb_txn_abort(read);
	mdb_env_close(from);
	mdb_env_close(to);
	remove_folder("bare");
	return (double)start;
}

int main(int argc, char **argv)
{
	const uint64_t rows = argc > 1 ? strtoull(argv[1], NULL, 10) : 1000000;
	double ns[6][BENCH_ROUNDS];
	struct store_lmdb *db;
	const char *why;

	must(rows >= LISTS && mkdtemp(root) != NULL, "mkdtemp");
	atexit(clean_up);
	cap = rows * 40 + (4u << 20);
	bytes = malloc(cap);
	copy = malloc(cap);
	must(bytes != NULL && copy != NULL, "memory");
	memset(bytes, 1, cap);
	memset(copy, 1, cap);
	must(store_lmdb_open(folder("store"), MAP_BYTES, true, false, &db, &why) == 0, "open");
	fill(db, rows);
	for (uint32_t r = 0; r < BENCH_ROUNDS; r++)
		ns[0][r] = encode(db) / (double)rows;
	store_lmdb_close(db);
	for (uint32_t r = 0; r < BENCH_ROUNDS; r++) {
		ns[1][r] = walk(rows) / (double)rows;
		ns[2][r] = check() / (double)rows;
		ns[3][r] = copy_bytes() / (double)rows;
		ns[4][r] = load() / (double)rows;
		ns[5][r] = append(rows) / (double)rows;
	}
	printf("%llu rows, %.1f bytes a row\n", (unsigned long long)rows,
		(double)len / (double)rows);
	printf("encode %.1f M rows/s, check %.1f, load %.1f\n", 1e3 / bench_median(ns[0], NULL),
		1e3 / bench_median(ns[2], NULL), 1e3 / bench_median(ns[4], NULL));
	bench_head("snapshots, per row");
	bench_row("encode", ns[0], "cursor walk with copy", ns[1], BENCH_MOST(4));
	bench_row("check", ns[2], "memcpy", ns[3], BENCH_NONE);
	bench_row("load", ns[4], "cursor appends", ns[5], BENCH_MOST(2));
	return 0;
}
