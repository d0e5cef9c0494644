/* SPDX-License-Identifier: BSD-3-Clause */
// Mutations between their arrival and their answer: order per channel, staging of large ones, batches for
// the consensus, retries, and the wait for the fast process (I7). No socket, no store, no clock inside.
// Context: the loop of the meta process.
//
// One mutation is one logical change of one channel. Small ones are one command. Large ones are chunks
// of a stage, then a close; while that runs, later mutations of the channel wait behind it, in order.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cons.h"
#include "store.h"

#define META_BATCHES 2u  // proposals in flight
#define META_BATCH_COMMANDS 256u
#define META_BATCH_BYTES (64u * 1024u)  // a batch is closed at this size; one command may be larger
#define META_CHUNK_BYTES (32u * 1024u)  // UIDs of one staged chunk
#define META_CHUNK_UIDS 1024u  // and so many: what is applied in one piece keeps a turn short
#define META_BATCH_UIDS 1024u  // a batch is closed at so many rows
#define META_INLINE_UIDS 2048u  // UIDs of one unstaged command: applied in one piece
#define META_INLINE_BYTES (24u * 1024u)  // UIDs of one unstaged command
#define META_PENDING_BYTES_MAX (256u * 1024u * 1024u)  // UIDs of all mutations that wait
#define META_PENDING_MAX 70000u  // mutations; 64 clients with 1024 requests each fit

enum mutation_state {
	MUTATION_IDLE,  // submitted to nobody yet, or being prepared at the head of its gate
	MUTATION_GATED,  // behind a large mutation of the same channel
	MUTATION_SLOT,  // waits for one of the stages
	MUTATION_RUNNABLE,
	MUTATION_SENT,  // all commands so far are in flight
	MUTATION_RETRY,  // the channel was busy, will be tried again
	MUTATION_APPLY_WAIT,  // committed, waits for the fast process
};

enum mutation_outcome {
	MUTATION_OK,  // `result` is valid (its code may still say not found, expired, ...)
	MUTATION_BUSY,  // not applied: waited too long behind others
	MUTATION_NOT_LEADER,  // not applied
	MUTATION_UNKNOWN,  // may have been applied
};

struct mutation {
	struct mutation *next, *prev;
	struct mutation_list *list_of;
	uint8_t state;  // enum mutation_state
	uint8_t outcome;  // enum mutation_outcome
	bool preparing;  // its UIDs are being sorted elsewhere; set before submit
	bool staged;
	bool has_slot;  // counts as an open stage
	bool aborting;  // its stage is to be dropped
	bool restart;  // a chunk was lost: its stage is to be dropped and begun anew
	bool maybe;  // an earlier try may have been applied
	uint8_t last_status;  // enum cons_status of the last refusal
	bool applied;
	uint8_t stage_code;  // first refusal of a chunk
	uint8_t op, list, flags;
	uint8_t dedup[STORE_DEDUP_BYTES];
	struct channel_key key;
	uint8_t *uids;  // packed, malloc'd
	uint32_t uid_count, uids_bytes;
	uint32_t charged;  // bytes counted against the limit
	uint32_t offset, sent_count;  // of what was sent of the stage
	uint32_t in_flight;  // commands
	uint64_t
		stage_id;  // commands of the cluster's tables: the id of the row; `uids` is its body
	uint64_t deadline_ns, retry_ns;
	uint64_t answer_ns;  // when its caller stops waiting; 0: set by submit
	uint64_t token;  // of the last batch that came back with it
	struct store_result result;
	uint64_t members;
	void *owner;  // of whoever submitted it
	void (*on_done)(void *owner, const struct mutation *m);  // NULL: the queue's params.done
};

// A UID list is prepared (sorted, repeats left out) before a staged mutation may run: chunks in key
// order touch few pages. Context: any thread; touches the mutation's UIDs only.
// Returns: 0; -ENOMEM leaves the list as it was, which is slower but right.
int mutation_prepare(struct mutation *m);
bool mutation_large(const struct mutation *m);
void mutation_free(struct mutation *m);

struct meta_queue;

struct meta_queue_params {
	uint32_t stages;  // open stages at once
	uint64_t wait_ns;  // behind a stage, or for one
	uint64_t apply_wait_ns;
	uint64_t answer_wait_ns;  // for a group that does not take or finish it
	uint64_t stage_id_first, stage_id_last;  // of this node and life alone
	const struct cons_ops *cons;
	void *cons_ctx;
	// The mutation is answered; owned by the callee from here.
	void (*done)(void *ctx, struct mutation *m);
	void *ctx;
};

int meta_queue_create(const struct meta_queue_params *params, struct meta_queue **queue);
// What still waits is answered as unknown.
void meta_queue_destroy(struct meta_queue *queue);

// Takes over `m`, in the order of the calls per channel. `preparing`: it keeps its place and runs after
// meta_queue_prepared. Returns: 0; -ENOBUFS: over the limits, `m` stays the caller's.
int meta_queue_submit(struct meta_queue *queue, struct mutation *m, uint64_t now_ns) META_ONLY;
void meta_queue_prepared(struct meta_queue *queue, struct mutation *m) META_ONLY;
// Drops the stage `id` of `key`, left by an earlier life of this process or by a lost mutation.
// Returns: 0 or -ENOMEM.
int meta_queue_abort_stage(
	struct meta_queue *queue, uint64_t id, const struct channel_key *key) META_ONLY;

// Fills and proposes batches. Returns: batches proposed.
uint32_t meta_queue_fill(struct meta_queue *queue) META_ONLY;

// A proposal of this queue that committed: its commands with the place for their results.
struct meta_batch {
	uint64_t token;
	uint32_t count;
	struct {
		struct mutation *m;
		uint8_t op;  // enum store_op
	} item[META_BATCH_COMMANDS];
	struct store_result result[META_BATCH_COMMANDS];
	uint64_t members[META_BATCH_COMMANDS];  // of the channel, after
	uint32_t len;
	bool open;
	uint8_t data[ENTRY_BYTES_MAX];
};
// Returns: NULL when the token is not of this queue.
struct meta_batch *meta_queue_batch(struct meta_queue *queue, uint64_t token) META_ONLY;
// The results of the batch are in place and durable.
void meta_queue_committed(
	struct meta_queue *queue, struct meta_batch *batch, uint64_t now_ns) META_ONLY;
// The batch will not commit under its token. What is not final is proposed again, with the same
// de-duplication keys and in the same order, until its caller's wait is over.
void meta_queue_refused(
	struct meta_queue *queue, struct meta_batch *batch, enum cons_status status) META_ONLY;

// What the fast process acts on: `connected` now, `applied` at least.
void meta_queue_applied(struct meta_queue *queue, bool connected, uint64_t applied) META_ONLY;
// Deadlines and retries.
void meta_queue_tick(struct meta_queue *queue, uint64_t now_ns) META_ONLY;
// When meta_queue_tick has something to do; UINT64_MAX: never.
uint64_t meta_queue_next_ns(const struct meta_queue *queue) META_ONLY;
// True when meta_queue_fill would propose something.
bool meta_queue_runnable(const struct meta_queue *queue) META_ONLY;

// True while a mutation of this queue has the stage.
bool meta_queue_owns_stage(const struct meta_queue *queue, uint64_t id) META_ONLY;

struct meta_queue_info {
	uint32_t pending, gated, runnable, apply_waiting, stages_open, batches;
	uint64_t pending_bytes;
	uint64_t submitted, refused, timed_out, applied, unapplied;
	uint64_t deferred, resent;  // batches not taken, batches that came back
};
void meta_queue_info(const struct meta_queue *queue, struct meta_queue_info *info) META_ONLY;
