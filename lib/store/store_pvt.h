/* SPDX-License-Identifier: BSD-3-Clause */
// Inside of lib/store: layout of keys and records, and what the parts of apply share.
// Thread: whoever owns the transaction.
//
// Tables and keys (integers in keys big-endian, so that byte order is number order; in values little-endian):
//   META     "format", "state"
//   CHANNEL  type u8, id bytes                               -> channel record
//   MEMBER   number u64, list u8, generation u32, uid bytes  -> u8: 1 present, 0 removed
//   JOURNAL  commit u64                                      -> delta
//   DEDUP    'K', key                                        -> sequence, result
//            'O', sequence u64                               -> commit it was recorded at, key
//   STAGE    'S', stage id u64                               -> stage record
//            'G', number u64, list u8, generation u32        -> nothing: rows of it are dead
//            'L', number u64, list u8                        -> channel key: generations to merge
//
// A list is a stack of generations, oldest first. A row of a newer one hides the rows of the same UID
// below; the oldest holds no removals. Merging moves the rows of a generation into the one right below
// it, one by one, which no reader can tell; it touches only the smaller, upper one.
#pragma once

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "store.h"

#define STORE_LISTS 4u
#define LAYERS_MAX 24u  // generations of a list; compaction keeps them at one or two
#define LAYERS_PAID 4u  // from here on what adds rows merges half as many itself
#define LAYERS_HIGH 8u  // from here on the smallest is merged first
#define LAYERS_FULL_PAID 12u  // from here on as many as it adds
#define FOLD_ROWS 4096u  // default of store_limits.fold_rows
#define COMMAND_HEADER 44u
#define DELTA_HEADER 48u
#define ROW_PREFIX 13u  // bytes of a member key before the UID
#define KEY_BYTES_MAX 511u
#define STORE_FORMAT 1u
#define STATE_BYTES 60u
#define DEDUP_RECORD_BYTES 37u
#define DEDUP_ORDER_BYTES (8u + STORE_DEDUP_BYTES)

_Static_assert(ROW_PREFIX + ID_LEN_MAX <= KEY_BYTES_MAX, "a member key fits a backend key");
_Static_assert(1u + ID_LEN_MAX <= KEY_BYTES_MAX, "a channel key fits a backend key");

struct store_layer {
	uint32_t generation;
	uint32_t rows;  // at most; not kept for the oldest
};
struct store_rowset {
	uint64_t count;  // members of the merged view, exact
	uint32_t layers;
	struct store_layer layer[LAYERS_MAX];
};
struct store_chan {
	struct channel_key key;
	uint8_t flags;
	bool removed;
	bool exists;  // has a record
	uint64_t number, smv, stage_id;
	uint32_t next_generation;
	struct store_rowset list[STORE_LISTS];
};

struct store_stage {
	uint64_t id, number, index;  // index: of its last chunk
	uint64_t uids;  // UIDs of all chunks, as sent
	uint32_t rows;  // rows written
	uint32_t kept;  // RESET: rows that are members already
	uint32_t generation;
	uint8_t list, op;
	struct channel_key channel;
};

struct store_state {
	uint64_t applied, commit, chain, generation;
	uint64_t next_number;
	uint64_t dedup_next, dedup_count;
	uint32_t stages;
};

// One call of store_apply or store_compact.
struct store_apply {
	struct store_tx *tx;
	const struct store_limits *limits;
	struct store_state state;
	uint64_t index;
	store_on_delta on_delta;
	void *ctx;
	uint8_t *scratch;  // a delta being collected
	uint32_t delta_uids, delta_bytes;
	uint8_t *delta_at;  // where its UIDs start
	bool delta_full;
};
#define SCRATCH_BYTES (DELTA_HEADER + ID_LEN_MAX + ENTRY_BYTES_MAX)

struct row_key {
	uint8_t len;  // of the UID
	uint8_t bytes[ROW_PREFIX + ID_LEN_MAX];
};

// --- bytes ----------------------------------------------------------------------------------------------

static inline void put_le(uint8_t *p, uint64_t v, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		p[i] = (uint8_t)(v >> (8 * i));
}
static inline uint64_t get_le(const uint8_t *p, uint32_t n)
{
	uint64_t v = 0;

	for (uint32_t i = 0; i < n; i++)
		v |= (uint64_t)p[i] << (8 * i);
	return v;
}
static inline void put_be(uint8_t *p, uint64_t v, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		p[i] = (uint8_t)(v >> (8 * (n - 1 - i)));
}
static inline uint64_t get_be(const uint8_t *p, uint32_t n)
{
	uint64_t v = 0;

	for (uint32_t i = 0; i < n; i++)
		v = v << 8 | p[i];
	return v;
}

static inline struct store_bytes bytes_of(const void *p, uint32_t len)
{
	return (struct store_bytes){.p = p, .len = len};
}
static inline int tx_get(
	struct store_tx *tx, enum store_table t, struct store_bytes key, struct store_bytes *value)
{
	return tx->ops->get(tx->tx, t, key, value);
}
static inline int tx_put(
	struct store_tx *tx, enum store_table t, struct store_bytes key, struct store_bytes value)
{
	return tx->ops->put(tx->tx, t, key, value);
}
// Deletes a key that may be absent.
static inline int tx_del(struct store_tx *tx, enum store_table t, struct store_bytes key)
{
	const int rc = tx->ops->del(tx->tx, t, key);

	return rc == -ENOENT ? 0 : rc;
}
static inline int tx_seek(struct store_tx *tx, enum store_table t, struct store_bytes from,
	bool after, struct store_bytes *key, struct store_bytes *value)
{
	return tx->ops->seek(tx->tx, t, from, after, key, value);
}

// Puts a key unless it is there: -EEXIST.
static inline int tx_insert(
	struct store_tx *tx, enum store_table t, struct store_bytes key, struct store_bytes value)
{
	struct store_bytes old;
	int rc;

	if (tx->ops->insert != NULL)
		return tx->ops->insert(tx->tx, t, key, value);
	rc = tx_get(tx, t, key, &old);
	if (rc != -ENOENT)
		return rc == 0 ? -EEXIST : rc;
	return tx_put(tx, t, key, value);
}
static inline int tx_append(
	struct store_tx *tx, enum store_table t, struct store_bytes key, struct store_bytes value)
{
	return (tx->ops->append != NULL ? tx->ops->append : tx->ops->put)(tx->tx, t, key, value);
}

// --- rows of a list (store_rows.c) ----------------------------------------------------------------------

static inline void row_prefix(
	struct row_key *key, uint64_t number, uint8_t list, uint32_t generation)
{
	put_be(key->bytes, number, 8);
	key->bytes[8] = list;
	put_be(key->bytes + 9, generation, 4);
	key->len = 0;
}
static inline void row_uid(struct row_key *key, struct id_view uid)
{
	key->len = uid.len;
	memcpy(key->bytes + ROW_PREFIX, uid.bytes, uid.len);
}
static inline struct store_bytes row_bytes(const struct row_key *key)
{
	return bytes_of(key->bytes, ROW_PREFIX + key->len);
}
// The UID of a row found by a seek, when it belongs to the generation of `prefix`.
static inline bool row_in(const struct row_key *prefix, struct store_bytes found)
{
	return found.len > ROW_PREFIX && found.len <= ROW_PREFIX + ID_LEN_MAX &&
	       memcmp(found.p, prefix->bytes, ROW_PREFIX) == 0;
}

// Is `uid` in the merged view of the list? Returns: 1, 0, -errno.
int rows_has(struct store_tx *tx, const struct store_chan *chan, uint8_t list, struct id_view uid);
// Writes present (1) or removed (0) for `uid` into generation `at` of the stack.
int rows_set(struct store_tx *tx, struct store_chan *chan, uint8_t list, uint32_t at,
	struct id_view uid, uint8_t present);
// Writes a row of a generation outside the stack unless it is there. Returns: 1 written, 0, -errno.
int rows_stage(struct store_tx *tx, const struct store_chan *chan, uint8_t list,
	uint32_t generation, struct id_view uid, uint8_t present);
// Marks the rows of a generation, or of the whole stack (which it empties), as dead.
int rows_kill(
	struct store_tx *tx, const struct store_chan *chan, uint8_t list, uint32_t generation);
int rows_kill_list(struct store_tx *tx, struct store_chan *chan, uint8_t list);
// Puts a generation on top of the stack; merges two when the stack is full.
int rows_push(struct store_tx *tx, struct store_chan *chan, uint8_t list, uint32_t generation,
	uint32_t rows);
// Merges generations by at most `steps` rows. Returns: rows moved, -errno. The caller saves chan.
int rows_merge(struct store_tx *tx, struct store_chan *chan, uint8_t list, uint32_t steps);
// The share of merging that a command with so many rows does itself: none while compaction keeps up.
int rows_merge_paid(struct store_tx *tx, struct store_chan *chan, uint8_t list, uint32_t rows);
// Shows every UID of a generation to `each`. Returns: 0 or -errno.
int rows_each(struct store_tx *tx, const struct store_chan *chan, uint8_t list, uint32_t generation,
	void (*each)(void *ctx, struct id_view uid), void *ctx);
// Moves at most `steps` rows of `generation` into generation `into` of the stack; `each` (may be NULL)
// sees every UID. Returns: rows moved; fewer than steps when it is empty now; -errno.
int rows_move(struct store_tx *tx, struct store_chan *chan, uint8_t list, uint32_t generation,
	uint32_t into, uint32_t steps, void (*each)(void *ctx, struct id_view uid), void *ctx);

// --- records (store_record.c) ---------------------------------------------------------------------------

int state_load(struct store_tx *tx, struct store_state *state);
int state_decode(struct store_bytes value, struct store_state *state);
// Is this row of META the state? (Its length is right then.)
bool state_is(struct store_bytes key, struct store_bytes value);
void state_forget_generation(uint8_t value[STATE_BYTES]);
int state_save(struct store_tx *tx, const struct store_state *state);
int format_load(struct store_tx *tx, uint32_t *format, uint64_t *cluster_id);
// The same of a row of META. Returns: 0, -EUCLEAN: another row.
int format_decode(
	struct store_bytes key, struct store_bytes value, uint32_t *format, uint64_t *cluster_id);
int format_save(struct store_tx *tx, uint64_t cluster_id);
// Decodes a channel's record. Returns: 0, -EUCLEAN: not a record.
int chan_decode(const struct channel_key *key, struct store_bytes value, struct store_chan *chan);
// Fills `chan`, empty with exists=false when there is none. Returns: 0 or -errno.
int chan_load(struct store_tx *tx, const struct channel_key *key, struct store_chan *chan);
int chan_save(struct store_tx *tx, struct store_chan *chan);
int chan_erase(struct store_tx *tx, const struct store_chan *chan);
uint32_t chan_key_bytes(const struct channel_key *key, uint8_t out[1 + ID_LEN_MAX]);
// Decodes an open stage. Returns: 0, -EUCLEAN.
int stage_decode(struct store_bytes key, struct store_bytes value, struct store_stage *stage);
// Returns: 0, -ENOENT, -errno.
int stage_load(struct store_tx *tx, uint64_t id, struct store_stage *stage);
int stage_save(struct store_tx *tx, const struct store_stage *stage);
int stage_erase(struct store_tx *tx, uint64_t id);
// The open stage with the lowest id >= `id`. Returns: 0, -ENOENT, -errno.
int stage_next(struct store_tx *tx, uint64_t id, struct store_stage *stage);

// --- parts of apply -------------------------------------------------------------------------------------

// Gives a channel without a record its number. It stays invisible (removed) until chan_revive.
void chan_create(struct store_apply *a, struct store_chan *chan);
void chan_revive(struct store_chan *chan);
bool chan_alive(const struct store_chan *chan);
// False when the generation numbers of a channel are used up (a command takes at most two).
static inline bool chan_generations_left(const struct store_chan *chan)
{
	return chan->next_generation < UINT32_MAX - 2;
}

// The UIDs of a command in key order, whatever order they came in: neighbours are found on one page. The
// order of a delta's UIDs is this one too.
struct uid_walk {
	const uint8_t *p, *end;  // when they are in order as they lie
	struct id_view *sorted;  // else
	uint32_t at, count;
};
// Returns: 0 or -ENOMEM.
int uid_walk_begin(struct uid_walk *walk, const struct store_command *cmd);
static inline bool uid_walk_next(struct uid_walk *walk, struct id_view *uid)
{
	if (walk->sorted == NULL)
		return store_uids_next(&walk->p, walk->end, uid);
	if (walk->at == walk->count)
		return false;
	*uid = walk->sorted[walk->at++];
	return true;
}
void uid_walk_end(struct uid_walk *walk);

static inline uint32_t fold_rows(const struct store_limits *limits)
{
	return limits->fold_rows == 0 ? FOLD_ROWS : limits->fold_rows;
}
// Rows that would lie far apart in a long list cost a page each. So many of them get a generation of their
// own, where they lie together, and are merged by and by. Equal on all nodes: it uses up a number.
static inline bool rows_spread(
	const struct store_apply *a, const struct store_rowset *set, uint32_t rows)
{
	return rows > fold_rows(a->limits) / 8 && set->count / 4 > fold_rows(a->limits);
}

// Deltas: start, add UIDs, and finish = one mutation: SMV + 1, commit + 1, channel record, journal entry.
void delta_begin(struct store_apply *a, const struct store_chan *chan);
void delta_uid(void *apply, struct id_view uid);
// Keeps an encoded delta, and lets go of the oldest.
// Journals a change, tells the subscriber, and says OK.
int delta_publish(struct store_apply *a, const struct store_delta *delta, struct store_result *r);
int delta_finish(struct store_apply *a, struct store_chan *chan, uint8_t kind, uint8_t list,
	uint64_t changed, struct store_result *r);

// Each applies one command kind. Returns: 0 with `r` filled, -errno: fault.
int apply_rows(struct store_apply *a, const struct store_command *cmd, struct store_chan *chan,
	struct store_result *r);
int apply_stage(struct store_apply *a, const struct store_command *cmd, struct store_chan *chan,
	struct store_result *r);
int apply_close(struct store_apply *a, const struct store_command *cmd, struct store_chan *chan,
	struct store_result *r);
int apply_abort(struct store_apply *a, const struct store_command *cmd, struct store_chan *chan,
	struct store_result *r);
int apply_cluster(struct store_apply *a, const struct store_command *cmd, struct store_result *r);
// Drops stages that were idle too long.
int stage_expire(struct store_apply *a);

// What is known of a key. FUTURE, EXPIRED: its base is ahead of the store, or older than the window.
enum dedup_verdict { DEDUP_NEW, DEDUP_REPEATED, DEDUP_FUTURE, DEDUP_EXPIRED };
// Looks a key up; fills `r` when REPEATED. Returns: 0, -errno: fault.
int dedup_find(struct store_apply *a, const uint8_t *key, struct store_result *r,
	enum dedup_verdict *verdict);
// Remembers the result of a command; `moved`: it took a commit number.
int dedup_record(
	struct store_apply *a, const uint8_t *key, const struct store_result *r, bool moved);
int dedup_evict(struct store_apply *a);
static inline bool dedup_given(const uint8_t *key)
{
	static const uint8_t none[STORE_DEDUP_BYTES];

	return memcmp(key, none, STORE_DEDUP_BYTES) != 0;
}

// Size of the frame at p, so that a bad command can be stepped over. 0: no frame.
uint32_t command_frame(const uint8_t *p, uint32_t len);
