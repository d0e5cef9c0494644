/* SPDX-License-Identifier: BSD-3-Clause */
// Our raft_io around another one (the library's over libuv, or the fixture's in tests), which makes
// libraft 0.15 safe. Context: the loop; everything is a call of the library or of the inner raft_io.
//
//   G1 a leader's first entry is a barrier of ours; ready() only when it is applied
//   G2 results of followers are held until an entry of the leader's own term is stored here
//   G3 votes are asked for with what is stored, not with what is in memory; no election and no TimeoutNow
//      while our own writes are in flight
//   G4 a configuration cut off the log ends the process: memory would keep the wrong one
//   G6 a failed write ends the process, the library never sees it
//   G9 promises go to the sidecar first (hooks)
#pragma once

#include <raft.h>
#include <stdbool.h>
#include <stdint.h>

enum guard_fault {
	GUARD_DISK,  // a write failed
	GUARD_ROLLBACK,  // a configuration was cut off: start again
	GUARD_LIBRARY,  // the library refused what it must not
};

struct guard_hooks {
	// Before the inner set_term and set_vote. Returns: 0, or other: a fault of the disk.
	int (*promise)(void *ctx, uint64_t term, uint64_t vote);
	// After the inner load, before the library sees it. Returns: 0 or a RAFT_* error.
	int (*loaded)(void *ctx, raft_term *term, raft_id *vote,
		const struct raft_snapshot *snapshot, uint64_t first_index, uint64_t last_index);
	// A snapshot of the leader's is about to replace everything.
	void (*installing)(void *ctx, uint64_t index);
	// Must not return.
	void (*fault)(void *ctx, enum guard_fault fault, int error, const char *what);
	// Must a message be dropped unseen?
	bool (*refuse)(void *ctx, const struct raft_message *message);
};

// Which rules act; all but in tests that show what happens without.
#define GUARD_BARRIER 1u
#define GUARD_HOLD 2u
#define GUARD_VOTES 4u
#define GUARD_ROLLBACKS 8u
#define GUARD_FAULTS 16u
#define GUARD_ALL 31u

struct guard_append;
struct guard_held;
struct guard_stats {
	uint64_t barriers, held_messages, clamped_votes, skipped_ticks, held_timeouts, elections;
};

struct raft_guard {
	struct raft_io io;  // the outer one
	struct raft_io *inner;
	struct raft *raft;
	const struct guard_hooks *hooks;
	void *ctx;
	uint32_t rules;
	raft_io_tick_cb tick;
	raft_io_recv_cb recv;

	uint64_t submitted_index;  // last entry handed to the disk
	uint64_t stored_index, stored_term;  // last entry known to be on it
	struct guard_append *appends;  // in flight, oldest first
	uint32_t installs;  // snapshots of a leader being stored
	uint64_t change_index;  // highest configuration in the log
	bool rolled_back;  // G4: ends after the next append

	uint64_t barrier_term;  // term in which a barrier was submitted
	uint64_t ready_term;  // term in which it was applied
	struct raft_barrier barrier;
	bool barrier_flying;
	struct guard_held *held;  // results, in order of arrival
	struct guard_held *timeout_now;
	struct guard_stats stats;
};

// Fills g->io around `inner`, which is initialised and not started. `inner->data` and the callbacks given
// to `inner` are the guard's from then on. Lives as long as `raft`.
void guard_wrap(struct raft_guard *g, struct raft_io *inner, struct raft *raft, uint32_t rules,
	const struct guard_hooks *hooks, void *ctx);
// This node leads and its barrier of this term is applied.
bool guard_ready(const struct raft_guard *g);
// Looks at what changed without a callback of the io: after raft_start, and once a loop turn.
void guard_look(struct raft_guard *g);
// Writes of our own in flight.
bool guard_writing(const struct raft_guard *g);
