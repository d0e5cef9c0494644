/* SPDX-License-Identifier: BSD-3-Clause */
// The store as the meta process owns it: opened for writing, applied to by committed batches, one synced
// transaction per turn. A fault of the store ends the process: what was answered is on disk, a restart
// is the repair. Context: the loop of the meta process.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cons.h"
#include "meta_queue.h"
#include "store.h"
#include "store_lmdb.h"
#include "store_read.h"

struct meta_state {
	struct store_lmdb *db;
	struct store_limits limits;
	struct store_position position;  // as of the last commit
	struct meta_queue
		*queue;  // whose batches get their results here; set before the first turn
	uint64_t now_ns;  // of the turn; set by the loop
	bool compact;  // there may be something to compact
	uint64_t delta_bytes;  // feed bytes of all commits of this life
	uint64_t batches, commands, transactions;
	uint64_t commit_max_ns;  // longest transaction
};

// Opens or formats the store. Returns: 0; an exit code (sysexits) with `why` set.
int meta_state_open(struct meta_state *state, const char *dir, uint64_t map_bytes,
	uint64_t cluster_id, const char **why);
void meta_state_close(struct meta_state *state);

// What a delta counts in delta_bytes: about its bytes on the feed.
static inline uint64_t meta_state_delta_bytes(const struct store_delta *delta)
{
	return 64u + delta->channel.len + delta->uids_bytes;
}

// cons_events.on_commit and on_result; ctx is the meta_state.
int meta_state_commit(void *ctx, const struct cons_commit *commits, uint32_t count) META_ONLY;
void meta_state_result(
	void *ctx, uint64_t token, enum cons_status status, const char *why) META_ONLY;

// A bounded piece of compaction in a transaction of its own. Returns: 0 or -errno.
int meta_state_compact(struct meta_state *state) META_ONLY;

// Read transaction for handlers and the feed; one at a time.
int meta_state_read(struct meta_state *state, struct store_tx *tx);
void meta_state_read_end(struct meta_state *state, struct store_tx *tx);
