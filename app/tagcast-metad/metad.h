/* SPDX-License-Identifier: BSD-3-Clause */
// Inside of tagcast-metad: what its parts share. One process, one event loop, one writer of the store.
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "conf.h"
#include "cons.h"
#include "ctl.h"
#include "meta_exit.h"
#include "meta_feed.h"
#include "meta_pool.h"
#include "meta_queue.h"
#include "meta_state.h"
#include "meta_turn.h"
#include "raft_cons.h"

struct metad_options {
	char run_dir[CONF_PATH_MAX], data_dir[CONF_PATH_MAX];
	char log_level[8];
	uint64_t node_id, cluster_id;
	uint64_t map_bytes;
	uint64_t apply_wait_ns, stage_wait_ns, answer_wait_ns;
	uint64_t journal_commits, dedup_commits, stage_commits;
	uint32_t stages;
	uint64_t feed_backlog_bytes;
	char raft_address[CONF_PATH_MAX], raft_bind[CONF_PATH_MAX];  // host:port; empty: none
	bool raft_auth;
	char raft_key_file[CONF_PATH_MAX];
	uint64_t election_ns, heartbeat_ns;
	uint32_t snapshot_entries, snapshot_trailing;
	uint64_t snapshot_log_bytes;
};

// Fills the options from defaults, the configuration file and the command line.
// Returns: -1 to go on, or the exit code (the reason was said).
int metad_options_read(struct metad_options *options, int argc, char **argv);

enum metad_group {
	METAD_WAITING,  // no group yet: an operator says bootstrap, join or restore
	METAD_RESTORING,  // reads a backup
	METAD_JOINING,  // asked a member to be added
	METAD_MEMBER,
};

struct metad_call;

struct metad {
	struct metad_options options;
	struct meta_state state;
	struct meta_turn meter;
	struct meta_queue *queue;
	struct meta_pool *pool;
	struct meta_feed *feed;
	struct ctl_server *ctl;
	struct raft_cons *raft;
	const struct cons_ops *cons_ops;
	enum metad_group group;
	bool was_ready;  // the store is one to follow
	bool asked;  // a barrier that tells is under way
	uint64_t ask_ns;
	struct metad_call *calls;  // requests that wait for the group
	uint64_t next_call;
	bool backing_up;  // one at a time
	uint64_t started_ns;
	uint64_t dedup_unique;  // next key made here
	uint64_t sweep_ns;  // when to look for stages that lost their mutation
	bool stopping, stop_asked;
	uint64_t stop_ns;  // latest end of a stop

	uv_loop_t loop;
	uv_poll_t ctl_poll, feed_poll;
	uv_prepare_t prepare;
	uv_check_t check;
	uv_idle_t idle;  // active while there is work that needs no event
	uv_timer_t timer;
	uv_signal_t sigterm, sigint, sighup;
};

// Each node has a range of stage ids of its own, so that it knows which of the group's stages are its.
#define METAD_STAGE_IDS (UINT64_C(1) << 40)
static inline uint64_t metad_stage_base(uint64_t node_id)
{
	// 23 bits of a mix of the id: two nodes share a range once in millions, and then only drop each other's
	// large changes now and then, which are begun anew.
	return ((node_id * UINT64_C(0x9e3779b97f4a7c15)) >> 41 | 1) * METAD_STAGE_IDS;
}

// The command table of meta.sock; ctx is the metad.
extern const struct ctl_command metad_commands[];
extern const uint32_t metad_command_count;
// Large lines go to the pool.
extern const struct ctl_elsewhere metad_elsewhere;

// meta_queue_params.done: answers the request behind a mutation.
void metad_mutation_done(void *ctx, struct mutation *m);

// Handlers that only read (meta_ctl_read.c).
void metad_channel_list(void *ctx, struct ctl_request *request, const json_t *args);
void metad_channel_show(void *ctx, struct ctl_request *request, const json_t *args);
void metad_status(void *ctx, struct ctl_request *request, const json_t *args);

// --- the group (meta_group.c) -----------------------------------------------------------------------------

// Opens log and group; a member is started. Returns: 0 or an exit code, said.
int metad_group_open(struct metad *metad) META_ONLY;
void metad_group_close(struct metad *metad) META_ONLY;
// Makes a group of this node alone. Returns: as raft_cons_bootstrap.
enum raft_cons_refusal metad_group_bootstrap(struct metad *metad, const char **why) META_ONLY;
// The same, of a snapshot that was written at `index`. Returns: as raft_cons_restore.
enum raft_cons_refusal metad_group_restore(
	struct metad *metad, uint64_t index, const char **why) META_ONLY;
// A join was granted. Returns: as raft_cons_start.
enum raft_cons_refusal metad_group_joined(struct metad *metad, const char **why) META_ONLY;
// Once a turn, until the store is known to be what the group has: then the feed may follow it.
void metad_group_turn(struct metad *metad, uint64_t now_ns) META_ONLY;
void metad_group_known(struct metad *metad) META_ONLY;
// Of the barrier behind that; apart from those of calls and batches.
#define METAD_KNOWN_TOKEN UINT64_MAX
bool metad_group_ready(const struct metad *metad);
int metad_refusal_exit(enum raft_cons_refusal refusal);

// --- requests that wait for the group (meta_call.c) --------------------------------------------------------

enum metad_call_kind { CALL_CHANGE, CALL_JOIN, CALL_BARRIER, CALL_READY };
typedef void (*metad_handler)(void *ctx, struct ctl_request *request, const json_t *args);
// Keeps the request. `handler`: is called with `args` when a barrier is done; else NULL.
// Returns: the token to propose under; 0 after refusing (no memory, too many).
uint64_t metad_call_begin(struct metad *metad, struct ctl_request *request,
	enum metad_call_kind kind, metad_handler handler, const json_t *args) META_ONLY;
// meta_state.on_result.
void metad_call_done(void *ctx, uint64_t token, enum cons_status status, const char *why) META_ONLY;
// Answers calls that waited for the group to be ready, and those whose time is over.
void metad_call_tick(struct metad *metad, uint64_t now_ns) META_ONLY;
uint64_t metad_call_next_ns(const struct metad *metad) META_ONLY;
// All of them, at the end.
void metad_call_drop(struct metad *metad) META_ONLY;
// False: go on. True when `args` asks for a linearizable read, and the request waits for it (`handler` is
// called again once what it reads is new enough) or was refused.
bool metad_linearizable(struct metad *metad, struct ctl_request *request, metad_handler handler,
	const json_t *args) META_ONLY;
// Answers what did not work, with what to do.
void metad_call_fail(struct ctl_request *request, enum cons_status status, const char *why);

// Refuses what only a node without a group may do.
bool metad_must_wait(struct metad *metad, struct ctl_request *request);
// Handlers of the group (meta_ctl_group.c) and of files (meta_ctl_files.c).
void metad_members(void *ctx, struct ctl_request *request, const json_t *args);
void metad_bootstrap(void *ctx, struct ctl_request *request, const json_t *args);
void metad_join(void *ctx, struct ctl_request *request, const json_t *args);
void metad_promote(void *ctx, struct ctl_request *request, const json_t *args);
void metad_demote(void *ctx, struct ctl_request *request, const json_t *args);
void metad_remove(void *ctx, struct ctl_request *request, const json_t *args);
void metad_transfer(void *ctx, struct ctl_request *request, const json_t *args);
void metad_backup(void *ctx, struct ctl_request *request, const json_t *args);
void metad_verify(void *ctx, struct ctl_request *request, const json_t *args);
void metad_restore(void *ctx, struct ctl_request *request, const json_t *args);

// --- arguments (meta_args.c): each says what is wrong to the request and returns false ----------------------

// Refuses arguments that are not in `names` (comma separated; cmd and id always are).
bool args_known(struct ctl_request *request, const json_t *args, const char *names);
bool args_channel(struct ctl_request *request, const json_t *args, struct channel_key *key);
bool args_list(struct ctl_request *request, const json_t *args, uint8_t *list);
bool args_flags(struct ctl_request *request, const json_t *args, uint8_t *flags);
// Packs "uids" into the mutation; takes them from the request when they are packed already.
bool args_uids(struct ctl_request *request, const json_t *args, struct mutation *m);
// ctl_elsewhere.take and drop: packs "uids" in another thread.
void *args_take_uids(json_t *args);
void args_drop_uids(void *taken);
bool args_dedup(struct ctl_request *request, const json_t *args, uint8_t dedup[STORE_DEDUP_BYTES],
	bool *given);
// Absent: `fallback`.
bool args_number(struct ctl_request *request, const json_t *args, const char *name, uint64_t min,
	uint64_t max, uint64_t fallback, uint64_t *value);
// A text of 1 to `size` - 1 bytes.
bool args_text(
	struct ctl_request *request, const json_t *args, const char *name, char *out, size_t size);
json_t *flags_json(uint8_t flags);
