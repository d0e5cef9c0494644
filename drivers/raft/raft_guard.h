/* SPDX-License-Identifier: BSD-3-Clause */
// Our raft_io around another one (the library's over libuv, or the fixture's in tests), which makes
// libraft 0.15 safe. Context: the loop; everything is a call of the library or of the inner raft_io.
//
//   G1 a leader's first entry is a barrier of ours; ready only when it is applied
//   G2 results of followers are held until an entry of the leader's own term is stored here
//   G3 votes are asked for with what is stored, not with what is in memory; no election and no TimeoutNow
//      while writes of our own are in flight
//   G4 a configuration cut off the log ends the process: memory would keep the wrong one
//   G6 a failed write ends the process, the library never sees it
//   G9 promises go to the sidecar first (hook)
//   GM a follower acknowledges no further than where its log was seen to match this leader's. The
//      library answers with its whole log, whose tail may be of another leader, and is counted for
//      entries it does not have
//   GT an only voter leads in a term of its own. The library makes it leader in the term it finds: the term
//      of a leader that was removed, or its own of before a crash, in which a standby may have entries that
//      never reached this disk
#pragma once

#include <raft.h>
#include <stdbool.h>
#include <stdint.h>

enum guard_fault {
	GUARD_DISK,  // a write failed
	GUARD_ROLLBACK,  // a configuration was cut off: start again
	GUARD_LIBRARY,  // the library gave up or refused what it must not
};

struct guard_load {
	raft_term *term;
	raft_id *vote;
	struct raft_snapshot *snapshot;  // NULL: none
	uint64_t first_index;
	struct raft_entry *entries;
	size_t count;
};

struct guard_hooks {
	// Before the inner set_term and set_vote. Returns: 0, or other: a fault of the disk.
	int (*promise)(void *ctx, uint64_t term, uint64_t vote);
	// After the inner load, before the library sees it. Returns: 0 or a RAFT_* error.
	int (*loaded)(void *ctx, const struct guard_load *load);
	// A message nobody is to see? May be NULL.
	bool (*refuse)(void *ctx, const struct raft_message *message);
	// Must not return in production. `error`: RAFT_*, or 0.
	void (*fault)(void *ctx, enum guard_fault fault, int error, const char *what);
};

// Which rules act; all but in tests that show what happens without.
#define GUARD_BARRIER 1u  // G1
#define GUARD_HOLD 2u  // G2
#define GUARD_VOTES 4u  // G3
#define GUARD_ROLLBACKS 8u  // G4
#define GUARD_FAULTS 16u  // G6
#define GUARD_MATCH 32u  // GM
#define GUARD_TERMS 64u  // GT
#define GUARD_ALL 127u

struct guard_append;
struct guard_held;
struct guard_stats {
	uint64_t barriers, held_messages, clamped_votes, skipped_ticks, held_timeouts, elections;
	uint64_t clamped_results, refused_messages;
};

struct raft_guard {
	struct raft_io io;  // the outer one
	struct raft_io *inner;
	struct raft *raft;
	const struct guard_hooks *hooks;
	void *ctx;
	uint32_t rules;
	bool loaded, started;  // what the library asked for so far, and got
	raft_io_tick_cb tick;
	raft_io_recv_cb recv;
	raft_io_close_cb close;

	uint64_t term;  // of the last promise
	uint64_t submitted_index;  // last entry handed to the disk
	uint64_t stored_index, stored_term;  // last entry known to be on it
	struct guard_append *appends;  // in flight, oldest first
	uint32_t installs;  // snapshots of a leader being stored
	uint64_t change_index;  // highest configuration in the log
	bool rolled_back;  // G4: ends after the next append

	uint64_t match_term, match_index;  // GM: agrees with the leader of that term up to there
	uint64_t leader_term;  // newest term this node led
	uint64_t barrier_term;  // term in which a barrier was submitted
	uint64_t ready_term;  // term in which it was applied
	struct raft_barrier barrier;
	bool barrier_flying;
	struct guard_held *held;  // results, in order of arrival
	uint32_t held_count;
	struct guard_held *timeout_now;
	struct guard_stats stats;
};

// Fills g->io around `inner` (ready for init, or initialised and not started). `inner->data` and the
// callbacks given to `inner` are the guard's from then on. Lives as long as `raft`, whose io is to be g->io.
void guard_wrap(struct raft_guard *g, struct raft_io *inner, struct raft *raft, uint32_t rules,
	const struct guard_hooks *hooks, void *ctx);
// Frees what an inner load gave and the library did not take.
void guard_unload(const struct guard_load *load);
// Frees what is held; after the inner close.
void guard_drop(struct raft_guard *g);
// This node leads and its barrier of this term is applied.
bool guard_ready(const struct raft_guard *g);
// Looks at what changed outside the io's callbacks: after raft_start, and once a loop turn.
void guard_look(struct raft_guard *g);
// Writes of our own in flight.
bool guard_writing(const struct raft_guard *g);
