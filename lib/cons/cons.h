/* SPDX-License-Identifier: BSD-3-Clause */
// Consensus as the store sees it: a log of batches, each applied in order on every node of a group, and
// the group's members. No Raft type crosses this header. Context: the meta process' event loop, all of it,
// but for snapshot_encode.
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
	CONS_REFUSED,  // not taken; a change of members that is not allowed now, the text says why
};

// One committed batch, in order. `index` grows; an index at or below the store's applied one is a replay
// to be skipped by the consumer.
struct cons_commit {
	uint64_t index;
	const uint8_t *data;
	uint32_t len;
	uint64_t token;  // of a proposal of this node and this life, 0 when it came from elsewhere
};

// Where the bytes of a snapshot go. Returns: 0 or -errno, which ends the writing.
struct cons_sink {
	int (*write)(void *ctx, const uint8_t *bytes, uint64_t len);
	void *ctx;
};

// What the consumer (the meta process over lib/store) implements.
struct cons_events {
	// Applies these in order, as many as fit one turn of the loop and at least one; the rest is offered
	// again in the next turn. The answer to a proposer follows only after its commit was taken.
	// Returns: number taken (1..count), or a negative errno, a fault of the store: the process must end.
	int (*on_commit)(void *ctx, const struct cons_commit *commits, uint32_t count);
	// A proposal, barrier or change of members is done (CONS_OK: applied here) or will not be done
	// under this token. `why`: a text for people, "" when there is none.
	void (*on_result)(void *ctx, uint64_t token, enum cons_status status, const char *why);

	// A snapshot of exactly what on_commit has taken so far. begin and end: loop; encode: one call, any
	// thread, must not touch the consumer's other state. begin returns 0, -EBUSY (asked again later) or
	// -errno; end is called once after every begin that returned 0.
	int (*snapshot_begin)(void *ctx, void **snapshot);
	int (*snapshot_encode)(void *snapshot, const struct cons_sink *sink);
	void (*snapshot_end)(void *ctx, void *snapshot);
	// Looks at a whole snapshot without using it. Returns: 0 with the log index it stands at, or -errno
	// with a text in `why`: damaged or foreign. Loop, also before the group runs.
	int (*snapshot_check)(
		void *ctx, const uint8_t *bytes, uint64_t len, uint64_t *index, const char **why);

	// Replaces the whole state by a snapshot. `bytes` stay valid until restore_turn returned other than
	// 0; no commit is offered meanwhile. restore_turn does a bounded piece, or asks after work that runs
	// elsewhere. Returns: 1 done, 0 going on, -errno: the process must end.
	int (*restore_begin)(void *ctx, const uint8_t *bytes, uint64_t len);
	int (*restore_turn)(void *ctx);

	// History: a hash over all commits taken so far, and the index of the last of them. Two nodes with the
	// same index and another chain have diverged.
	uint64_t (*chain)(void *ctx, uint64_t *applied);

	// Was this id ever a member that was removed? It may never come back. May be NULL: never.
	int (*id_removed)(void *ctx, uint64_t id);
};

enum cons_role { CONS_VOTER = 0, CONS_STANDBY = 1, CONS_SPARE = 2 };
const char *cons_role_name(enum cons_role role);

#define CONS_VOTERS_MAX 5u  // more voters slow every commit and survive hardly more
#define CONS_MEMBERS_MAX 64u  // voters and standbys
#define CONS_ADDRESS_MAX 64u  // bytes of "address:port" with its end

struct cons_member {
	uint64_t id;
	uint8_t role;  // enum cons_role
	uint8_t is_leader;
	uint8_t connected;  // seen lately from here
	char address[CONS_ADDRESS_MAX];  // literal address and port
	uint64_t applied_index, chain;  // as it last told; 0: not known
};

enum cons_change_op {
	CONS_ADD = 1,  // a new member, as standby; its id must be new for ever
	CONS_PROMOTE,  // standby to voter, once it has caught up
	CONS_DEMOTE,  // voter to standby
	CONS_REMOVE,
	CONS_TRANSFER,  // leadership to `id`; 0: to whoever is furthest
};
struct cons_change {
	uint8_t op;  // enum cons_change_op
	uint64_t id;
	char address[CONS_ADDRESS_MAX];  // CONS_ADD
};

struct cons_info {
	uint64_t node_id, leader_id;  // leader 0: none known
	uint64_t term, last_index, commit_index, applied_index, snapshot_index;
	uint32_t voters, standbys;
	uint8_t is_leader;
	uint8_t is_ready;  // takes proposals and barriers now, here or by way of the leader
	uint8_t restoring;
};

// What a consensus engine implements: lib/cons/cons_local for one node, drivers/raft for a group.
struct cons_ops {
	// Takes one batch of encoded commands. Returns: CONS_OK when taken; on_result follows.
	enum cons_status (*propose)(void *cons, const uint8_t *data, uint32_t len, uint64_t token);
	// Calls on_result(token, CONS_OK) once everything committed before the call, anywhere in the group, is
	// applied here: what is read from then on is linearizable.
	enum cons_status (*barrier)(void *cons, uint64_t token);
	// Changes the members. on_result follows; one change at a time.
	enum cons_status (*change)(void *cons, const struct cons_change *change, uint64_t token);
	void (*info)(void *cons, struct cons_info *info);
	// Returns: number of members written, at most `max`.
	uint32_t (*members)(void *cons, struct cons_member *members, uint32_t max);
	// Drives what is pending; called once per loop turn. `*busy`: set when there is more to do at once.
	int (*turn)(void *cons, uint64_t now_ns, uint8_t *busy);
};
