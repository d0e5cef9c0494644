/* SPDX-License-Identifier: BSD-3-Clause */
// What the files of this folder share: one group as a struct, with a section for each part, and the calls
// between the core (raft_cons.c, raft_fsm.c, raft_guard.c, raft_sidecar.c) and the peers (raft_transport.c,
// raft_peer.c, raft_member.c, raft_chain.c). Context: the loop, but for the pool threads named below.
//
// Rules of re-entry: a callback of the library may call nothing that calls the library's raft_apply,
// raft_barrier, raft_add, raft_assign, raft_remove or raft_transfer, nor answer the consumer (which may
// propose at once). What has to be said is put down (core_answer, waiters) and said by turn().
#pragma once

#include <raft.h>
#include <raft/uv.h>
#include <stdbool.h>
#include <stdint.h>

#include "raft_cons.h"
#include "raft_guard.h"
#include "raft_sidecar.h"

#define RAFT_APPLIES_MAX 2u  // entries of ours in flight on the leader, whoever proposed them
#define RAFT_ANSWERS_MAX 1024u  // answers put down and not yet given; tokens open at once
#define RAFT_SNAPSHOT_BYTES_MAX (UINT64_C(1) << 30)  // the library holds one in memory, whole
#define RAFT_ENTRY_HEADER_BYTES 24u
// Free space: an alarm under this share, no start under this many bytes (three segments of 8 MiB and the
// metadata), and what is kept to be given back when the disk is full.
#define RAFT_SPACE_ALARM_PERCENT 20u
#define RAFT_SPACE_NEED_BYTES (UINT64_C(32) << 20)
#define RAFT_BALLAST_BYTES (UINT64_C(64) << 20)

// Who proposed an entry; opens each entry of the log, little-endian.
struct raft_origin {
	uint64_t node_id, life, token;
};

// One open token of this node.
struct core_open {
	uint64_t token;
	uint8_t kind;  // enum core_open_kind
	uint8_t state;  // enum core_open_state
	uint8_t status;  // of the answer, enum cons_status
	uint64_t index;  // barrier: answered once this is applied here
	char why[128];
};
enum core_open_kind { OPEN_PROPOSAL = 1, OPEN_BARRIER, OPEN_CHANGE };
enum core_open_state { OPEN_WAITS = 1, OPEN_INDEX, OPEN_ANSWERED };

// Entries the library applied and the consumer did not take yet; raft_fsm.c.
struct fsm_entry {
	struct fsm_entry *next;
	uint64_t index;
	struct raft_origin origin;
	uint32_t len;
	uint8_t data[];
};
struct fsm {
	struct raft_fsm ops;  // given to the library
	struct fsm_entry *first, *last;
	uint64_t entries, bytes;
	uint64_t queued_index;  // highest index put in the queue
	uint64_t taken_index;  // highest index the consumer took, or holds by a restore
	uint64_t log_bytes;  // of entries since the last snapshot
	uint64_t put_index;  // of the snapshot the library is handing over or loading
	// Restore: bytes of the library's, freed when the consumer is done.
	struct raft_buffer restore;
	uint64_t restore_index;
	bool restoring, loading;  // loading: inside raft_start
	const char *load_why;
	// Snapshot being made: begun here, encoded in the pool.
	void *snapshot;
	bool snapshot_open;
	bool snapshot_alarm;
};

struct raft_cons {
	struct raft_cons_params params;  // strings are copies
	char dir[512];
	const struct cons_events *events;
	void *ctx;
	struct uv_loop_s *loop;
	uint64_t life;  // of this process on this node: never 0, never used before
	bool started, stopping, stopped;
	int lock_fd;
	char why[512];  // text of the last refusal

	// The library and what stands around it.
	struct raft_uv_transport transport;
	struct raft_io inner;  // raft_uv_init's; guard.io is given to the library
	struct raft raft;
	struct raft_guard guard;
	struct raft_sidecar sidecar;
	struct fsm fsm;

	// Open tokens, in the order of their arrival.
	struct core_open *open;
	uint32_t open_count;
	uint32_t applies;  // raft_apply in flight
	bool barrier_flying;
	uint64_t now_ns;  // of the last turn
	uint64_t last_leader, last_term;  // as the last turn saw them
	bool was_ready;
	struct raft_transfer transfer;  // of a stop
	bool transferring;
	uint64_t stop_ns;
	struct raft_cons_stats stats;

	// The peers' part, owned by raft_transport.c and raft_peer.c.
	struct raft_net *net;
	struct raft_peers *peers;
};

// --- core, for the peers -----------------------------------------------------------------------------------

// True while this node leads and may propose (its first entry of the term is stored and applied).
bool core_leads(const struct raft_cons *c);
// On the leader: one entry from `origin`. The outcome is its being applied, on every node alike.
// `done`, when given, says with 0 that it was applied here or with RAFT_* that its fate is unknown.
// Returns: CONS_OK taken; CONS_NOT_LEADER, CONS_BUSY, CONS_TOO_LARGE, CONS_FAILED: not taken.
enum cons_status core_lead_propose(
	struct raft_cons *c, const struct raft_origin *origin, const uint8_t *data, uint32_t len);
// On the leader: `done` gets an index with everything committed before this call at or below it, status 0;
// or a RAFT_* status when leadership was lost. Called from a library callback: see the rules above.
typedef void (*core_barrier_done)(void *ctx, int status, uint64_t index);
enum cons_status core_lead_barrier(struct raft_cons *c, core_barrier_done done, void *ctx);

// Puts down the answer to an open token of this node; a token that is not open (any more) is ignored.
void core_answer(struct raft_cons *c, uint64_t token, enum cons_status status, const char *why);
// An open barrier is answered once `index` is applied by the consumer.
void core_barrier_at(struct raft_cons *c, uint64_t token, uint64_t index);
// True while the token waits for its answer.
bool core_is_open(const struct raft_cons *c, uint64_t token);
// History of the consumer's store. Returns: chain after *applied; 0 when the consumer has none.
uint64_t core_chain(const struct raft_cons *c, uint64_t *applied);
// After a join was granted: EMPTY to MEMBER with an empty log, then raft_cons_start may follow.
enum raft_cons_refusal core_become_member(struct raft_cons *c, const char **why);
// Says why in the log and ends the process.
_Noreturn void core_exit(int code, const char *log_code, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
// A text for people for each RAFT_* error.
const char *core_error(int raft_error);

// --- peers, for the core -----------------------------------------------------------------------------------

// Fills `t` for raft_uv_init; nothing listens before the library's raft_start calls t->listen.
// Returns: 0 or a RAFT_* error.
int raft_transport_open(struct raft_cons *c, struct raft_uv_transport *t);
// Of one whose library side is closed or was never started.
void raft_transport_discard(struct raft_cons *c);

// Made by raft_cons_open, freed by raft_cons_discard; start: right after raft_start, before the first turn.
int raft_peers_open(struct raft_cons *c);
void raft_peers_discard(struct raft_cons *c);
int raft_peers_start(struct raft_cons *c);
// Once a loop turn, after commits were offered: time-outs, history, leader changes
// (`changed`: another leader or term than at the last turn).
void raft_peers_turn(struct raft_cons *c, uint64_t now_ns, bool changed, uint8_t *busy);
// This node does not lead: the token is open already, the answer comes by core_answer, or (proposal) by
// seeing the entry applied. Other than CONS_OK: not taken.
enum cons_status raft_peers_propose(
	struct raft_cons *c, const uint8_t *data, uint32_t len, uint64_t token);
enum cons_status raft_peers_barrier(struct raft_cons *c, uint64_t token);
// Also on the leader (raft_member.c).
enum cons_status raft_member_change(
	struct raft_cons *c, const struct cons_change *change, uint64_t token);
// Fills connected, applied_index and chain of other members.
void raft_peers_members(struct raft_cons *c, struct cons_member *members, uint32_t count);
// True when this node may forward: a leader is known and its side connection stands.
bool raft_peers_ready(const struct raft_cons *c);
// Asks `via` to add this node; see raft_cons_join.
enum raft_cons_refusal raft_member_join(
	struct raft_cons *c, const char *via, uint64_t token, const char **why);
