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

// Read transaction, reset and renewed from one handle: cheap. One at a time per store_lmdb.
int store_lmdb_read_begin(struct store_lmdb *db, struct store_tx *tx);
void store_lmdb_read_end(struct store_lmdb *db, struct store_tx *tx);

struct store_lmdb_info {
	uint64_t map_bytes, used_bytes;
	uint32_t readers, readers_max, readers_cleared;
};
// Also clears the slots of readers that died: call it about once a minute.
int store_lmdb_info(struct store_lmdb *db, struct store_lmdb_info *info);
