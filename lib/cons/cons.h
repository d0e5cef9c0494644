/* SPDX-License-Identifier: BSD-3-Clause */
// Consensus as the store sees it: a log of batches, each applied in order on every node. No Raft type
// crosses this header. Context: the meta process' event loop, all of it.
#pragma once

#include <stdint.h>

#include "base_role.h"

enum cons_status {
	CONS_OK = 0,
	CONS_NOT_LEADER,  // not taken; ask the leader
	CONS_BUSY,  // not taken; too much in flight
	CONS_TOO_LARGE,  // not taken; over ENTRY_BYTES_MAX
	CONS_UNKNOWN,  // outcome unknown: retry with the same de-duplication key
	CONS_FAILED,  // not taken; local fault (disk), the process is about to end
};

// One committed batch, in order. `index` grows; an index at or below the store's applied one is a replay
// to be skipped by the consumer.
struct cons_commit {
	uint64_t index;
	const uint8_t *data;
	uint32_t len;
	uint64_t token;  // of the local proposal, 0 when it came from elsewhere
};

// What the consumer (the meta process over lib/store) implements.
struct cons_events {
	// Apply these now; the answer to the proposer follows only after on_commit returned 0.
	// A negative errno is a fault of the store: the process must end.
	int (*on_commit)(void *ctx, const struct cons_commit *commits, uint32_t count);
	// A proposal will not be applied under this token (status != CONS_OK), or was (CONS_OK).
	void (*on_result)(void *ctx, uint64_t token, enum cons_status status);
	// Replace the whole state by a snapshot: the consumer reads it from `source` in its own format.
	int (*on_restore)(void *ctx, const void *source);
};

struct cons_info {
	uint64_t node_id, leader_id;
	uint64_t term, commit_index, applied_index;
	uint32_t voters, standbys;
	uint8_t is_leader;
};

// What a consensus engine implements: lib/cons/cons_local for one node, drivers/raft for a group.
struct cons_ops {
	// Takes one batch of encoded commands. Returns: CONS_OK when taken; on_result follows.
	enum cons_status (*propose)(void *cons, const uint8_t *data, uint32_t len, uint64_t token);
	// Calls on_result(token, CONS_OK) once everything committed before the call is applied here.
	enum cons_status (*barrier)(void *cons, uint64_t token);
	void (*info)(void *cons, struct cons_info *info);
	// Drives what is pending. Called once per loop turn.
	int (*turn)(void *cons, uint64_t now_ns);
};
