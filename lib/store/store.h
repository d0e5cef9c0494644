/* SPDX-License-Identifier: BSD-3-Clause */
// The authoritative store: commands and their application, pure and deterministic over a backend of
// ordered keys. Holds channels, members, lists, the journal of deltas and de-duplication keys.
// Context: META_ONLY for apply; readers (lib/store/store_read.h) run in any process.
//
// Rules: one command = one logical mutation = at most one SMV step of its channel (none when nothing
// changes, and the result says so). Every applied command that changes something gets the next commit
// number. SMV never goes back, also over removal and re-creation of a channel (a tombstone keeps it).
// Large operations come as STAGE chunks (invisible) and one CLOSE (visible at once).
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base_id.h"
#include "base_role.h"

enum store_op {
	STORE_CHANNEL_CREATE = 1,  // create or, when it exists, update the info flags
	STORE_CHANNEL_UPDATE = 2,  // flags of an existing channel
	STORE_CHANNEL_REMOVE = 3,  // tombstone; keeps SMV
	STORE_ADD = 4,  // add UIDs to a list of the channel; creates the channel when absent
	STORE_REMOVE = 5,  // remove UIDs
	STORE_RESET = 6,  // the list becomes exactly these UIDs (also "reset + add", "remove all")
	STORE_STAGE = 7,  // a chunk of a large ADD/REMOVE/RESET, invisible; the first one opens
	STORE_CLOSE = 8,  // makes a stage visible; `uid_count` (no uids) may name the number of
	// UIDs of all chunks: another number staged is INVALID, 0 = unchecked
	STORE_ABORT = 9,  // drops a stage

	// The cluster's own tables; made and explained in store_cluster.h.
	STORE_NODE_JOIN = 10,  // a new node, or another address of one
	STORE_NODE_STATE = 11,  // `flags`: its next state
	STORE_SLOT_SET = 12,
	STORE_HASH_SLOTS_SET = 13,
	STORE_RUNTIME_SET = 14,
};

enum store_list { STORE_MEMBERS = 0, STORE_DENY = 1, STORE_ALLOW = 2, STORE_TEMP = 3 };

// Channel info flags, as in the legacy API.
enum store_channel_flag {
	STORE_FLAG_LARGE = 1 << 0,
	STORE_FLAG_BAN = 1 << 1,
	STORE_FLAG_DISBAND = 1 << 2,
	STORE_FLAG_SEND_BAN = 1 << 3,
	STORE_FLAG_ALLOW_STRANGER = 1 << 4,
};

enum store_result_code {
	STORE_R_OK = 0,  // applied; `changed` says how many rows
	STORE_R_NO_CHANGE = 1,  // valid, nothing changed, no SMV step
	STORE_R_NOT_FOUND = 2,  // no such channel or stage
	STORE_R_INVALID = 3,  // a field is out of range
	STORE_R_BUSY = 4,  // a stage is open on the channel, or too many stages
	STORE_R_EXPIRED = 5,  // de-duplication key older than the window: outcome no longer known
	STORE_R_LIMIT = 6,  // over MUTATION_UIDS_MAX, or another limit
	STORE_R_REFUSED =
		7,  // not allowed: names a node that is not active, a step of a lifecycle that
	// is none, other content under the same epoch
	STORE_R_STALE = 8,  // behind what is stored, or not of the revision it was made for
};
const char *store_result_name(enum store_result_code code);

// A de-duplication key: bytes 0..7 the commit number its maker last knew (u64 LE, the base), bytes 8..15
// unique among the keys of one base and not 0. A key is remembered for `dedup_commits` commits. Any application of
// it happened at or after its base, so a key not found is new while its base is inside the window; with
// an older base it may have been forgotten and gets EXPIRED, and a base in the future is INVALID. What
// was answered anything but OK, NO_CHANGE or NOT_FOUND did nothing, is not remembered and may be sent again.
#define STORE_DEDUP_BYTES 16u
void store_dedup_key(uint8_t key[STORE_DEDUP_BYTES], uint64_t commit, uint64_t unique);

#define STORE_UIDS_INLINE_MAX \
	8192u  // UIDs of one unstaged command; bytes bounded by ENTRY_BYTES_MAX too

// UIDs are packed: u8 length (1..255), bytes, repeated `uid_count` times.
struct store_command {
	uint8_t op;
	uint8_t list;
	uint8_t staged_op;  // STAGE, CLOSE: ADD, REMOVE or RESET
	uint8_t flags;  // CHANNEL_CREATE, CHANNEL_UPDATE
	uint8_t dedup[STORE_DEDUP_BYTES];  // all zero: none; else applied at most once
	union {
		uint64_t stage_id;
		uint64_t id;  // of the node or slot
	};
	uint64_t if_revision;  // NODE_STATE, HASH_SLOTS_SET: only if it is at this one; 0: any
	struct channel_key channel;
	uint32_t uid_count;
	union {
		const uint8_t *uids;
		const uint8_t *body;  // of the commands of the cluster's tables
	};
	union {
		uint32_t uids_bytes;
		uint32_t body_bytes;
	};
};

struct store_result {
	uint8_t code;  // enum store_result_code
	uint8_t repeated;  // 1: answered from the de-duplication table
	uint64_t
		commit;  // commit number the caller may wait for (the current one when nothing changed)
	uint64_t smv;  // of the channel, after
	uint32_t changed;  // rows added or removed; of a STAGE: rows its chunk will change at CLOSE
};

// Encodes a command / a batch entry. Returns: bytes written, or -ENOSPC, -EINVAL.
int store_command_encode(const struct store_command *cmd, uint8_t *out, uint32_t cap);
// Decodes one command at p; points into p. Returns: bytes used, or -EINVAL with a static text in `why`.
int store_command_decode(
	const uint8_t *p, uint32_t len, struct store_command *cmd, const char **why);
// Checks packed UIDs. Returns: 0 or -EINVAL.
int store_uids_check(const uint8_t *uids, uint32_t bytes, uint32_t count);
// Walks packed UIDs.
static inline bool store_uids_next(const uint8_t **p, const uint8_t *end, struct id_view *uid)
{
	if (*p >= end)
		return false;
	*uid = id_view_of(*p + 1, **p);
	*p += 1 + uid->len;
	return true;
}

// What a change looked like, kept in the journal and sent down the feed, in commit order: one delta for
// each commit number, without gap. Any of ADD, REMOVE, BULK, CHANNEL may be the first sight of a channel
// or bring a removed one back (with all its lists empty before).
enum store_delta_kind {
	STORE_DELTA_CHANNEL = 1,  // created, flags changed; the lists are as before, the SMV moved
	STORE_DELTA_REMOVED = 2,  // channel gone (tombstone)
	STORE_DELTA_ADD = 3,  // UIDs added to `list` (only those that changed something)
	STORE_DELTA_REMOVE = 4,
	STORE_DELTA_BULK = 5,  // too large to list, or a reset: read the store again
	// A row of the cluster's tables (store_cluster.h), in `body`; SMVs, members and list are 0, the channel
	// is empty but for RUNTIME, and no list of the channel has changed.
	STORE_DELTA_NODE = 6,
	STORE_DELTA_SLOT = 7,
	STORE_DELTA_HASH_SLOTS = 8,
	STORE_DELTA_RUNTIME = 9,
};
// Does it change what a channel's members or flags are?
static inline bool store_delta_of_channel(uint8_t kind)
{
	return kind <= STORE_DELTA_BULK;
}
struct store_delta {
	uint64_t commit;
	uint64_t smv_before, smv;
	uint64_t members;  // of STORE_MEMBERS, after
	uint8_t kind;
	uint8_t list;
	uint8_t flags;  // of the channel, after
	struct channel_key channel;
	uint32_t uid_count;
	union {
		const uint8_t *uids;
		const uint8_t *body;
	};
	union {
		uint32_t uids_bytes;
		uint32_t body_bytes;
	};
};
int store_delta_encode(const struct store_delta *delta, uint8_t *out, uint32_t cap);
int store_delta_decode(const uint8_t *p, uint32_t len, struct store_delta *delta);

// --- backend --------------------------------------------------------------------------------------------

struct store_bytes {
	const void *p;
	uint32_t len;
};

// Ordered keys (memcmp order, 1..511 bytes) with values, in named tables. Implemented by
// drivers/store (LMDB) and by a sorted map in tests/lib.
enum store_table {
	STORE_T_META,  // small named values: format, applied, commit, chain, generation, next numbers
	STORE_T_CHANNEL,  // type, id -> channel record
	STORE_T_MEMBER,  // channel number, list, generation, uid -> row
	STORE_T_JOURNAL,  // commit number -> delta
	STORE_T_DEDUP,  // key -> result, and commit order for eviction
	STORE_T_STAGE,  // open stages
	STORE_T_RUNTIME,  // channel runtime meta, nodes, slots
	STORE_TABLES
};
// Its name, in messages and in files: never another one.
const char *store_table_name(enum store_table table);

struct store_backend_ops {
	// 0 and a view valid until the next write or end; -ENOENT; other -errno: fault.
	int (*get)(void *tx, enum store_table t, struct store_bytes key, struct store_bytes *value);
	int (*put)(void *tx, enum store_table t, struct store_bytes key, struct store_bytes value);
	int (*del)(void *tx, enum store_table t, struct store_bytes key);  // -ENOENT when absent
	// First entry with a key >= `from` (after=false) or > `from` (after=true). -ENOENT at the end.
	int (*seek)(void *tx, enum store_table t, struct store_bytes from, bool after,
		struct store_bytes *key, struct store_bytes *value);
	// First entry with key < `before`, walking down. -ENOENT at the start.
	int (*seek_below)(void *tx, enum store_table t, struct store_bytes before,
		struct store_bytes *key, struct store_bytes *value);
	// As put, of a key above all that the table holds; -EEXIST when it is not. May be NULL: then put
	// is taken.
	int (*append)(
		void *tx, enum store_table t, struct store_bytes key, struct store_bytes value);
	// As put, of a key that is not there; -EEXIST when it is, and nothing is changed. May be NULL: then get
	// and put are taken.
	int (*insert)(
		void *tx, enum store_table t, struct store_bytes key, struct store_bytes value);
};

// One write transaction of a backend, opened and committed by its owner.
struct store_tx {
	const struct store_backend_ops *ops;
	void *tx;
};

// Limits of the store that an operator may tune. All but journal_commits decide results, so they must be
// the same on every node of a cluster.
struct store_limits {
	uint64_t journal_commits;  // deltas kept; older subscribers rebuild
	uint64_t
		dedup_commits;  // de-duplication keys kept; twice as many of results that changed nothing
	uint32_t stages;  // open stages at once
	uint64_t stage_commits;  // a stage idle for this many log indexes is dropped
	uint32_t fold_rows;  // rows up to which a closed stage is merged on the spot and listed in
		// its delta; 0: 4096
};

// Formats an empty backend or checks an existing one. Returns: 0; -EPROTO for a newer or foreign format
// (`why` says which); other -errno: fault. A new store has generation 1.
int store_open(struct store_tx *tx, uint64_t cluster_id, const char **why);

// Sets the store's generation, which is no part of the replicated state: called by whoever formats the
// store anew or replaces its content, with a value never used before (its clock or random bits).
int store_set_generation(struct store_tx *tx, uint64_t generation);

// Applies the batch `data` of log index `index`: one or more encoded commands, each with its own result.
// An index at or below the applied one is skipped (results say repeated, with what the de-duplication
// key still knows, else NO_CHANGE). All commands are applied also when there are more than results. Bad commands give a result
// code, never an error. `on_delta` is called for each change, in commit order; it must only copy.
// Returns: number of results written (<= results_max), or -errno: a fault of the backend, which the
// caller answers by ending the process.
typedef void (*store_on_delta)(void *ctx, const struct store_delta *delta);
int store_apply(struct store_tx *tx, const struct store_limits *limits, uint64_t index,
	const uint8_t *data, uint32_t len, struct store_result *results, uint32_t results_max,
	store_on_delta on_delta, void *ctx);

// Bounded background work on the same transaction: dropping dead rows, merging generations, trimming the
// journal. Never changes what a reader sees or a command results in, so each node runs it when it likes.
// Does at most `steps` row operations. Returns: rows done (0: nothing left to do), or -errno.
int store_compact(struct store_tx *tx, const struct store_limits *limits, uint32_t steps);
