/* SPDX-License-Identifier: BSD-3-Clause */
// The store as the meta process owns it: generations of it, one in use, applied to by committed batches,
// one transaction per turn. It runs without fsync: what it may lose is in the log. A fault of the store
// ends the process; a restart is the repair. Context: the loop of the meta process.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cons.h"
#include "meta_pool.h"
#include "meta_queue.h"
#include "meta_turn.h"
#include "store.h"
#include "store_gen.h"
#include "store_read.h"

struct meta_restore;

struct meta_state {
	struct store_gen *gen;
	struct store_lmdb *db;  // that of the generation in use
	struct store_limits limits;
	uint64_t cluster_id;
	struct store_position position;  // as of the last commit
	struct meta_queue
		*queue;  // whose batches get their results here; set before the first turn
	struct meta_pool *pool;  // for restores; set before the first turn
	struct meta_turn *meter;
	// A proposal that is none of the queue's is done; and another generation is in use.
	void (*on_result)(void *ctx, uint64_t token, enum cons_status status, const char *why);
	void (*on_generation)(void *ctx);
	void *ctx;
	uint64_t now_ns;  // of the turn; set by the loop
	bool compact;  // there may be something to compact
	bool limits_said;
	bool running;  // the group runs: snapshots may be checked by other threads
	struct meta_restore *restore;
	uint64_t delta_bytes;  // feed bytes of all commits of this life
	uint64_t batches, commands, transactions, restores, snapshots;
	uint64_t commit_max_ns;  // longest transaction
};

// Opens the generation in use, or makes one. Returns: 0; an exit code (meta_exit.h) with `why` set.
int meta_state_open(struct meta_state *state, const char *dir, uint64_t map_bytes,
	uint64_t cluster_id, const char **why);
// Makes all durable and says so on disk. Returns: 0 or an exit code.
int meta_state_close(struct meta_state *state);

// What a delta counts in delta_bytes: about its bytes on the feed.
static inline uint64_t meta_state_delta_bytes(const struct store_delta *delta)
{
	return 64u + delta->channel.len + delta->uids_bytes;
}

// What a consensus engine calls; ctx is the meta_state.
extern const struct cons_events meta_state_events;

// Applies commits until the CPU time of a turn is used up, at least one. Returns: taken, or -errno.
int meta_state_commit(void *ctx, const struct cons_commit *commits, uint32_t count) META_ONLY;
void meta_state_result(
	void *ctx, uint64_t token, enum cons_status status, const char *why) META_ONLY;

// A bounded piece of compaction in a transaction of its own. Returns: 0 or -errno.
int meta_state_compact(struct meta_state *state) META_ONLY;

// Read transaction for handlers and the feed; one at a time.
int meta_state_read(struct meta_state *state, struct store_tx *tx);
void meta_state_read_end(struct meta_state *state, struct store_tx *tx);

// --- snapshots (meta_snapshot.c) --------------------------------------------------------------------------

// As in cons_events.
int meta_snapshot_begin(void *ctx, void **snapshot) META_ONLY;
int meta_snapshot_encode(void *snapshot, const struct cons_sink *sink);
void meta_snapshot_end(void *ctx, void *snapshot) META_ONLY;
int meta_snapshot_check(
	void *ctx, const uint8_t *bytes, uint64_t len, uint64_t *index, const char **why);
int meta_restore_begin(void *ctx, const uint8_t *bytes, uint64_t len) META_ONLY;
int meta_restore_turn(void *ctx) META_ONLY;
// Rows of the restore that runs. Returns: false: none runs.
bool meta_restore_rows(const struct meta_state *state, uint64_t *rows);
