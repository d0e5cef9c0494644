/* SPDX-License-Identifier: BSD-3-Clause */
// cons_ops over libraft 0.15, which is safe only behind the guard in this folder. The one door to raft.h.
// Owns the folder DIR: the library's log, metadata and snapshots, and our sidecar. Context: the loop that
// was given; every call, every callback. A fault of the disk or of the library ends the process with
// _exit: the log is intact on disk, a restart is the repair.
//
//   raft_cons.c      open, start, turn, stop; the cons_ops
//   raft_load.c      what was loaded against what was promised, acknowledged and applied
//   raft_core.c      tokens and their answers; entries and barriers on the leader
//   raft_guard*      our raft_io around the library's: stored position, leader's barrier, held messages
//   raft_fsm.c       entries in, copied to a queue and offered to the consumer in bounded turns; snapshots
//   raft_nudge.*     followers hear of commits at once
//   raft_files.c     the folder: library version, lock, free space, files not to be loaded
//   raft_restore.c   a group that begins with a snapshot
//   raft_offline.c   inspect and recover, on a folder nobody runs
//   raft_sidecar.*   who this is and what it promised, checksummed: cluster, node, life, term, vote
//   raft_transport.* listening; the library's dials
//   raft_dial.c      a connection until its handshake is done: options, time-outs, who is let in
//   raft_hello.*     the handshake as bytes in, bytes out
//   raft_side.*      frames between meta processes beside Raft's own: proposals to the leader, barriers,
//                    changes of members, history
//   raft_conn.c      one side connection: frames in, frames out
//   raft_peer.*      one to each member, and the history told over it
//   raft_forward.c   proposals and barriers over them
//   raft_chain.*     history: (index, chain) pairs of others against our own
//   raft_member.*    changes of members, step by step
//   raft_change.c    those steps done, and joining
//   raft_resolve.c   names to literal addresses
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "cons.h"

struct raft_cons;

// How the process ends when going on is not safe; the log line before says what happened. A supervisor
// starts it again after a pause, but for RAFT_EXIT_HISTORY.
enum raft_exit {
	RAFT_EXIT_ROLLBACK = 80,  // an uncommitted configuration was taken back: read the log again
	RAFT_EXIT_DISK = 81,  // a write failed or the disk is full
	RAFT_EXIT_LIBRARY = 82,  // the library broke a rule it must keep
	RAFT_EXIT_STORE = 83,  // the consumer could not apply or restore
	RAFT_EXIT_HISTORY = 84,  // this node's history differs from the group's: do not start again
};

#define RAFT_KEY_BYTES 32u

struct raft_cons_params {
	struct uv_loop_s *loop;
	const char *dir;  // made when absent
	const char *ballast;  // file that is given back when the disk is full; NULL: none
	uint64_t node_id, cluster_id;
	char address
		[CONS_ADDRESS_MAX];  // literal "a.b.c.d:port" others reach us at; "" listens nowhere
	char bind[CONS_ADDRESS_MAX];  // where to listen; "": at `address`
	bool authenticated;
	uint8_t key[RAFT_KEY_BYTES];  // of the cluster; all peers hold it
	uint32_t election_ms, heartbeat_ms;
	uint32_t snapshot_entries, snapshot_trailing;
	uint64_t snapshot_log_bytes;  // a snapshot also after so much log
	uint64_t applied_index;  // of the consumer's store: what is in it is not offered again
	const struct cons_events *events;
	void *ctx;
};

enum raft_cons_state {
	RAFT_CONS_EMPTY,  // no group yet: raft_cons_bootstrap or raft_cons_join
	RAFT_CONS_MEMBER,  // runs, or may run after raft_cons_start
};

// Why an open or start was refused; the caller says it and what to do, and ends.
enum raft_cons_refusal {
	RAFT_REFUSED_NOT = 0,
	RAFT_REFUSED_LIBRARY,  // not the version this was built and tested with
	RAFT_REFUSED_FOREIGN,  // files of another cluster or node
	RAFT_REFUSED_NEWER,  // format of a later version
	RAFT_REFUSED_AMNESIA,  // acknowledged data is missing: remove the id, add a new one
	RAFT_REFUSED_DAMAGED,  // log, snapshot, metadata or sidecar
	RAFT_REFUSED_ADDRESS,  // address in use, or not ours
	RAFT_REFUSED_SPACE,  // no room
	RAFT_REFUSED_LOCKED,  // another process has the folder
	RAFT_REFUSED_STATE,  // a member already, or none yet
	RAFT_REFUSED_FAULT,  // anything else of the system
};

// Opens the folder, takes its lock and checks what is in it. Nothing runs yet.
// Returns: 0 with *state set; otherwise what was refused, with a text in `why` valid until the next call.
enum raft_cons_refusal raft_cons_open(const struct raft_cons_params *params,
	struct raft_cons **cons, enum raft_cons_state *state, const char **why);
// Frees what an open that is not started holds. A started one ends with the process (raft_cons_stop).
void raft_cons_discard(struct raft_cons *cons);

// EMPTY to MEMBER: makes a group of this node alone. By an operator's word only.
enum raft_cons_refusal raft_cons_bootstrap(struct raft_cons *cons, const char **why);
// A group of this node alone that begins with a snapshot of the consumer's at log index `index`. First it
// is written. Context: any thread, one at a time. Returns: 0, -EFBIG, -errno.
int raft_cons_restore_write(
	const struct raft_cons *cons, const uint8_t *bytes, uint64_t len, uint64_t index);
// EMPTY to MEMBER: then it is put in place. By an operator's word only.
enum raft_cons_refusal raft_cons_restore(struct raft_cons *cons, uint64_t index, const char **why);
// EMPTY to MEMBER: asks the member at `via` (literal address:port) to add this node as standby;
// on_result(token) says how that ended.
enum raft_cons_refusal raft_cons_join(
	struct raft_cons *cons, const char *via, uint64_t token, const char **why);
// Runs a MEMBER.
enum raft_cons_refusal raft_cons_start(struct raft_cons *cons, const char **why);

// Graceful end: takes no more proposals, hands leadership over, waits for what is in flight.
// raft_cons_stopped turns true when the caller may sync its store and _exit(0).
void raft_cons_stop(struct raft_cons *cons);
bool raft_cons_stopped(const struct raft_cons *cons);

// Offline, on a folder that no process runs. Inspect reads what is there (the library closes open log files
// on the way). Recover makes this node the only member, as voter at params->address, keeping its log; of
// several survivors take the one with the highest (term, last index), and give the others its folder.
// `params`: as for raft_cons_open, without loop and peers; `events` may be NULL (snapshot_check is used).
struct raft_cons_files {
	uint64_t cluster_id, node_id, term, vote, first_index, last_index, snapshot_index;
	uint64_t configuration_index;
	uint32_t members;
	struct cons_member member[CONS_MEMBERS_MAX];
};
enum raft_cons_refusal raft_cons_inspect(
	const char *dir, struct raft_cons_files *files, const char **why);
enum raft_cons_refusal raft_cons_recover(
	const struct raft_cons_params *params, struct raft_cons_files *files, const char **why);

// Why connections were refused: a name for each counter of raft_cons_stats.refused; the first is unused.
#define RAFT_REFUSALS 13u
const char *raft_cons_handshake_name(uint32_t reason);

// Counters for status and metrics.
struct raft_cons_stats {
	uint64_t proposals, forwarded, commits, replays_skipped, queue_entries, queue_bytes;
	uint64_t barriers, held_messages, clamped_votes, skipped_ticks, held_timeouts;
	uint64_t handshakes_refused, connections_in, connections_out, side_frames_refused;
	uint64_t snapshots, snapshot_bytes, restores, elections;
	uint64_t clamped_results, refused_messages;
	uint64_t chain_checked, log_bytes;
	uint64_t nudges;  // heartbeats sent early, to tell of a commit
	uint64_t refused[RAFT_REFUSALS];  // handshakes, by reason
};
void raft_cons_stats(const struct raft_cons *cons, struct raft_cons_stats *stats);
extern const struct cons_ops raft_cons_ops;

// "host:port" to "a.b.c.d:port", before an open. Blocks. Returns: 0; -1 with a text in `why`.
int raft_cons_resolve(const char *host_port, char literal[CONS_ADDRESS_MAX], const char **why);
