/* SPDX-License-Identifier: BSD-3-Clause */
// What the files of this folder share: one group as a struct, with a section for each part, and the calls
// between the core (raft_cons.c, raft_core.c, raft_fsm.c, raft_guard.c, raft_sidecar.c, raft_files.c) and
// the peers (raft_transport.c, raft_peer.c, raft_member.c, raft_chain.c). Context: the loop, but for what
// says pool.
//
// Rules of re-entry: a callback of the library may call nothing that calls raft_apply, raft_barrier,
// raft_add, raft_assign, raft_remove or raft_transfer, nor answer the consumer (which may propose at
// once). What has to be said is put down (core_answer, core_barrier_at) and said by turn().
#pragma once

#include <raft.h>
#include <raft/uv.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "raft_cons.h"
#include "raft_guard.h"
#include "raft_nudge.h"
#include "raft_sidecar.h"

#define RAFT_APPLIES_MAX 2u  // entries in flight on the leader, whoever proposed them
#define RAFT_OPEN_MAX 1024u  // tokens of this node without an answer
#define RAFT_OFFER_MAX 256u  // commits offered to the consumer at once
#define RAFT_BARRIERS_MAX 1024u  // barriers that wait on the leader
#define RAFT_SNAPSHOT_BYTES_MAX (UINT64_C(1) << 30)  // the library holds one in memory, whole
#define RAFT_ENTRY_HEADER_BYTES 32u
#define RAFT_SEGMENT_BYTES (8u << 20)  // of a log file, made at once
#define RAFT_DRAIN_NS UINT64_C(10000000)  // for entries that wait when a snapshot is to be made
#define RAFT_STOP_NS UINT64_C(3000000000)  // for a graceful end
// Free space: an alarm under this share, no start under this many bytes (three segments of 8 MiB and the
// metadata), and what is kept to be given back when the disk is full.
#define RAFT_SPACE_ALARM_PERCENT 20u
#define RAFT_SPACE_NEED_BYTES (UINT64_C(32) << 20)
#define RAFT_BALLAST_BYTES (UINT64_C(64) << 20)
#define RAFT_LZ4_MAGIC UINT32_C(0x184d2204)  // opens a compressed snapshot; ours never are
#define RAFT_NO_ADDRESS "127.0.0.1:1"  // what the library sees of a node that listens nowhere

// Who proposed an entry; opens each entry of the log.
struct raft_origin {
	uint64_t node_id, life, token;
};

enum core_open_kind { OPEN_PROPOSAL, OPEN_BARRIER, OPEN_CHANGE };
enum core_open_state {
	OPEN_WAITS,
	OPEN_INDEX,  // barrier: answered once `index` is applied here
	OPEN_ANSWERED,  // said by the next turn
};
// A token of this node without an answer yet.
struct core_open {
	TAILQ_ENTRY(core_open) link;
	uint64_t token, index;
	uint8_t kind, state;
	uint8_t status;  // of the answer, enum cons_status
	char why[160];
};
TAILQ_HEAD(core_opens, core_open);

// A barrier on the leader, of this node or of a follower.
struct core_barrier;
struct core_barriers {
	struct core_barrier *first;
	uint32_t count;
};

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
	struct fsm_entry *first, **last;
	uint64_t entries, bytes;
	uint64_t taken_index;  // highest index the consumer took or restored
	uint64_t log_bytes;  // of entries since the last snapshot
	struct raft_buffer restore,
		restore_next;  // bytes the consumer reads; those that came meanwhile
	uint64_t restore_index, restore_next_index;
	bool restoring;
	void *snapshot;  // being made: begun here, encoded in the pool
	bool snapshot_open;
	int snapshot_rc;  // pool, read when it is done
	uint64_t snapshot_bytes;
	struct raft_buffer *bufs;  // pool, then the library until finalize
	unsigned n_bufs;
};

struct core_apply {
	struct raft_apply req;
	struct raft_cons *c;
	bool used;
	struct raft_origin origin;
};

struct raft_cons {
	struct raft_cons_params params;  // strings are copies
	char dir[512], ballast[512];
	const struct cons_events *events;
	void *ctx;
	struct uv_loop_s *loop;
	uint64_t life;  // of this process on this node: never 0, never used before
	enum raft_cons_state state;
	bool started, stopping, stopped;
	bool in_library;  // inside a callback that must not propose
	int lock_fd;
	enum raft_cons_refusal refusal;  // set by what stands behind a library call
	char why[512];

	// The library and what stands around it.
	bool ready;  // raft_init is done
	struct raft_uv_transport transport;
	struct raft_io inner;  // raft_uv_init's; guard.io is given to the library
	struct raft raft;
	struct raft_guard guard;
	struct raft_sidecar sidecar;
	struct fsm fsm;

	struct core_opens opens;  // in order of arrival
	uint32_t open_count;
	struct core_apply apply[RAFT_APPLIES_MAX];
	struct raft_nudge nudge;
	bool own_waits;  // a proposal of this node was refused for want of room, none was taken since
	struct core_barriers waiting, flying;  // barriers
	struct raft_barrier barrier;
	struct raft_transfer transfer;
	bool transferring, transferred;
	uint64_t stop_ns;
	uint64_t last_leader, last_term;  // as the last turn saw them
	uint64_t space_ns;  // next look at the free space
	bool space_alarm, address_rewrite;
	struct raft_cons_stats stats;

	// The peers' part, owned by raft_transport.c and raft_peer.c.
	struct raft_net *net;
	struct raft_peers *peers;
};

// --- core, for the peers -----------------------------------------------------------------------------------

// True while this node leads and may propose: its barrier of this term is applied.
bool core_leads(const struct raft_cons *c);
// On the leader: one entry from `origin`. Its outcome is its being applied, on every node alike.
// Returns: CONS_OK taken; CONS_NOT_LEADER, CONS_BUSY, CONS_TOO_LARGE, CONS_FAILED: not taken.
enum cons_status core_lead_propose(
	struct raft_cons *c, const struct raft_origin *origin, const uint8_t *data, uint32_t len);
// On the leader: `done` gets an index with everything committed before this call at or below it, status 0;
// or a RAFT_* status when leadership was lost. It runs in a library callback: see the rules above.
typedef void (*core_barrier_done)(struct raft_cons *c, uint64_t id, int status, uint64_t index);
enum cons_status core_lead_barrier(struct raft_cons *c, core_barrier_done done, uint64_t id);

// Puts down the answer to an open token of this node; a token that is not open (any more) is ignored.
void core_answer(struct raft_cons *c, uint64_t token, enum cons_status status, const char *why);
// An open barrier is answered once the consumer has applied `index`.
void core_barrier_at(struct raft_cons *c, uint64_t token, uint64_t index);
struct core_open *core_find(struct raft_cons *c, uint64_t token, enum core_open_kind kind);
// History of the consumer's store. Returns: chain after *applied; 0 with 0 when it has none.
uint64_t core_chain(const struct raft_cons *c, uint64_t *applied);
// After a join was granted: EMPTY to MEMBER with an empty log; raft_cons_start may follow.
enum raft_cons_refusal core_become_member(struct raft_cons *c, const char **why);
// Sets the refusal's text. Returns: `refusal`.
enum raft_cons_refusal core_refuse(struct raft_cons *c, enum raft_cons_refusal refusal,
	const char **why, const char *format, ...) __attribute__((format(printf, 4, 5)));
// Says why in the log and ends the process.
_Noreturn void core_exit(int code, const char *log_code, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
// A text for people for each RAFT_* error.
const char *core_error(int raft_error);

// --- inside the core ----------------------------------------------------------------------------------------

// raft_fsm.c
void fsm_init(struct raft_cons *c);
void fsm_fini(struct raft_cons *c);
// Offers what waits, once. Returns: 0, or -errno of the consumer.
int fsm_turn(struct raft_cons *c, uint8_t *busy);
// Everything up to `index` was taken by the consumer (or is no entry for it).
bool fsm_reached(const struct raft_cons *c, uint64_t index);
// The snapshot to be sent to others has so many bytes.
void fsm_snapshot_size(struct raft_cons *c, uint64_t bytes);
// What the library loads or installs next stands at `index` for the consumer.
enum raft_cons_refusal fsm_check_snapshot(
	struct raft_cons *c, const struct raft_snapshot *snapshot, const char **why);

// raft_load.c
extern const struct guard_hooks cons_hooks;
// The promise on disk against the library's metadata; writes it forward when it is one behind.
enum raft_cons_refusal cons_check_promise(
	struct raft_cons *c, const struct guard_load *load, const char **why);
// The members in the newest configuration of what was loaded. Returns: their number, 0: none, -EBADMSG.
int cons_members_of(
	const struct guard_load *load, struct cons_member *members, uint32_t max, uint64_t *index);

// raft_offline.c: reads the log once in a child process, which may fall over or spin in our place.
enum raft_cons_refusal offline_probe(struct raft_cons *c, const char **why);

// raft_core.c
void core_init(struct raft_cons *c);
void core_fini(struct raft_cons *c);
struct core_open *core_open_new(struct raft_cons *c, uint64_t token, enum core_open_kind kind);
void core_open_drop(struct raft_cons *c, struct core_open *open);
// Starts barriers that wait, gives the answers put down. Once a turn, last.
void core_turn(struct raft_cons *c, uint8_t *busy);
bool core_idle(const struct raft_cons *c);

// raft_files.c: what of the folder needs no library running.
enum raft_cons_refusal files_library(struct raft_cons *c, const char **why);
enum raft_cons_refusal files_lock(struct raft_cons *c, const char **why);
// Free space and the ballast; at start.
enum raft_cons_refusal files_space(struct raft_cons *c, const char **why);
// While running, now and then: the alarm, and the ballast again when there is room.
void files_space_look(struct raft_cons *c, uint64_t now_ns);
// Number of files of the library's in the folder, or -errno.
int files_of_library(const char *dir);
int files_remove_library(const char *dir);
// Files that would make the library fall over or spin.
enum raft_cons_refusal files_check(struct raft_cons *c, const char **why);
// The configuration in an entry of the library's. Returns: members, or -EBADMSG.
int files_decode_members(const void *base, size_t len, struct cons_member *members, uint32_t max);

// --- peers, for the core -----------------------------------------------------------------------------------

// Fills `t` for raft_uv_init; nothing listens before the library's raft_start calls t->listen.
// Returns: 0 or a RAFT_* error.
int raft_transport_open(struct raft_cons *c, struct raft_uv_transport *t);
// After the library's side is closed, or when it never was opened.
void raft_transport_discard(struct raft_cons *c);
// After raft_start failed: was it the listening? Returns: RAFT_REFUSED_NOT when not.
enum raft_cons_refusal raft_transport_refusal(const struct raft_cons *c, const char **why);
// A proven stream that carries side frames; taken over in any case.
void raft_peers_accepted(struct raft_cons *c, uint64_t id, struct uv_tcp_s *tcp);

// Made by raft_cons_open, freed by raft_cons_discard; start: right after raft_start, before the first turn.
// Return 0 or -errno.
int raft_peers_open(struct raft_cons *c);
void raft_peers_discard(struct raft_cons *c);
int raft_peers_start(struct raft_cons *c);
// Once a loop turn, after commits were offered and before answers are given: time-outs, history
// (`changed`: another leader or term than at the last turn).
void raft_peers_turn(struct raft_cons *c, uint64_t now_ns, bool changed, uint8_t *busy);
// This node does not lead: the token is open already; the answer comes by core_answer, or (proposal) by
// seeing the entry applied. Other than CONS_OK: not taken, the core drops the token.
enum cons_status raft_peers_propose(
	struct raft_cons *c, const uint8_t *data, uint32_t len, uint64_t token);
enum cons_status raft_peers_barrier(struct raft_cons *c, uint64_t token);
// Fills connected, applied_index and chain of other members.
void raft_peers_members(struct raft_cons *c, struct cons_member *members, uint32_t count);
// True when this node may forward: a leader is known and its side connection stands.
bool raft_peers_ready(const struct raft_cons *c);

// raft_member.c. Change: the token is open already; on the leader and elsewhere.
enum cons_status raft_member_change(
	struct raft_cons *c, const struct cons_change *change, uint64_t token);
// Asks `via` to add this node; see raft_cons_join. The token is open already.
enum raft_cons_refusal raft_member_join(
	struct raft_cons *c, const char *via, uint64_t token, const char **why);
