/* SPDX-License-Identifier: BSD-3-Clause */
// Inside of drivers/store: an environment, its transactions and their cursors.
#pragma once

#include <lmdb.h>
#include <stdatomic.h>

#include "store_lmdb.h"

#define CURSORS 12u
#define PATH_BYTES 1024u

struct lmdb_cursor {
	MDB_cursor *cursor;
	enum store_table table;
	uint64_t turn;  // transaction it was opened or renewed in
	uint64_t writes;  // value of lmdb_tx.writes when `key` was right
	MDB_val key;
};

// A cursor that gets, puts and deletes single keys. Neighbours of the last key are found on its page without
// a search from the root, which halves the cost of sorted chunks.
#define POINTS 12u
#define POINT_BYTES 13u  // that keys share when they are of one run; longer ones only cost a search
struct lmdb_point {
	MDB_cursor *cursor;
	uint64_t used;
	uint8_t run[POINT_BYTES];
};

// One open transaction.
struct lmdb_tx {
	struct store_lmdb *db;
	MDB_txn *txn;
	uint64_t turn, writes;
	uint64_t began_ns;  // of a read
	uint32_t next;  // cursor to replace next
	struct lmdb_cursor cursor[CURSORS];
	struct lmdb_point point[POINTS];  // of MEMBER, while writing
	uint64_t point_uses;
};

struct store_lmdb_walker {
	struct lmdb_tx read;
	_Atomic uint64_t began_ns;  // 0: ended
	bool told;  // that it takes long
	struct store_lmdb_walker *next;
};

struct store_lmdb {
	MDB_env *env;
	MDB_dbi dbi[STORE_TABLES];
	int lock_fd;
	bool writer;
	uint32_t readers_cleared;
	struct lmdb_tx write, read;

	// the watchdog's
	struct store_lmdb_walker *walkers;
	_Atomic uint32_t walker_count;
	uint64_t long_reads, long_reads_other, long_walks, longest_read_ns;
	uint64_t watched_ns;  // of the last look at the reader table
	uint64_t watched_txn;  // newest commit then
	uint64_t told_txn;  // of the last long reader of another process
	long told_pid;
};

int lmdb_errno(int rc);
// Makes `tx` the ops over an open transaction.
void lmdb_tx_give(struct lmdb_tx *x, struct store_tx *tx);
void lmdb_cursors_close(struct lmdb_tx *x);
// A read has ended: counts and logs one that was too long (store_watch.c).
void lmdb_read_ended(struct store_lmdb *db, uint64_t began_ns);

// Writes a text that `why` points at; valid until the thread's next. Returns: rc.
int lmdb_fail(const char **why, int rc, const char *dir, const char *what, const char *reason);
