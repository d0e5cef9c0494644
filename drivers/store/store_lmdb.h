/* SPDX-License-Identifier: BSD-3-Clause */
// LMDB behind lib/store. The one door to lmdb.h. One process writes (tagcast-metad), others map it
// read-only; a read transaction lives for one page, well under 100 ms.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "store.h"
#include "store_read.h"

struct store_lmdb;

// Opens `dir` (created 0700 when absent) with `map_bytes` of address space.
// writer: takes an exclusive lock file; -EBUSY when another writer lives. Reader: -ENOENT before the
// writer made it. sync=false skips fsync at commit (trusted only with a log to rebuild from).
// Never open one folder twice in a process (LMDB's locks are per process), nor use it after a fork.
// Returns: 0; -errno with `why` naming the path and the reason, valid until the thread's next open;
// -EOPNOTSUPP: on NFS.
int store_lmdb_open(const char *dir, uint64_t map_bytes, bool writer, bool sync,
	struct store_lmdb **db, const char **why);
void store_lmdb_close(struct store_lmdb *db);

// Write transaction. Commit returns -ENOSPC for a full disk or map: the caller ends the process.
int store_lmdb_begin(struct store_lmdb *db, struct store_tx *tx);
int store_lmdb_commit(struct store_lmdb *db, struct store_tx *tx);
void store_lmdb_abort(struct store_lmdb *db, struct store_tx *tx);

// Read transaction, reset and renewed from one handle: cheap. One at a time per store_lmdb. Always whole
// commits; but beside a writer in another process the one that is just being made may be seen once before it
// counts, so that the next transaction is one commit behind it (LMDB takes the commit's number and its roots
// in two steps). Who reads in several transactions compares positions.
int store_lmdb_read_begin(struct store_lmdb *db, struct store_tx *tx);
void store_lmdb_read_end(struct store_lmdb *db, struct store_tx *tx);

// Makes everything committed durable. Context: any thread, also beside transactions of others; blocks.
int store_lmdb_sync(struct store_lmdb *db);

// A second read transaction, for a walk over everything that another thread does while this one goes on
// writing: it sees what was committed when it was opened. Pages freed meanwhile are not used again before
// it ends, so the file grows with what changes.
struct store_lmdb_walker;
// Begins it. Context: the owner's thread, no write transaction open. Returns: 0, -ENOMEM, -EUSERS, -errno.
int store_lmdb_walker_open(struct store_lmdb *db, struct store_lmdb_walker **walker);
// Its ops. Context, with walker_end: one other thread.
void store_lmdb_walker_tx(struct store_lmdb_walker *walker, struct store_tx *tx);
// Ends the transaction, at once after the last read.
void store_lmdb_walker_end(struct store_lmdb_walker *walker);
// Frees it (ends it when that was not done). Context: the owner's thread. Before the db is closed.
void store_lmdb_walker_close(struct store_lmdb *db, struct store_lmdb_walker *walker);

// A read transaction that is open for longer keeps the file from using freed pages again: it is counted
// and logged, as is a walk.
#define STORE_READ_MAX_NS UINT64_C(100000000)
#define STORE_WALK_MAX_NS UINT64_C(60000000000)
// The watchdog of the writer: looks at open walks and at the readers of other processes. Call it about
// once a second with the time of the turn. Returns: long readers found now.
uint32_t store_lmdb_watch(struct store_lmdb *db, uint64_t now_ns);

struct store_lmdb_info {
	uint64_t map_bytes, used_bytes;
	uint32_t readers, readers_max, readers_cleared;
	uint64_t long_reads, long_reads_other,
		long_walks;  // over the limits above: own, others', walks
	uint64_t longest_read_ns;  // own
};
// Also clears the slots of readers that died: call it about once a minute.
int store_lmdb_info(struct store_lmdb *db, struct store_lmdb_info *info);
