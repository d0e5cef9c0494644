/* SPDX-License-Identifier: BSD-3-Clause */
// Inside of the mutation queue: meta_queue.c owns lists, gates, stages and deadlines, meta_batch.c what
// goes to the consensus and comes back. Run by the loop of the meta process.
#pragma once

#include "meta_queue.h"

struct mutation_list {
	struct mutation *first, *last;
	uint32_t count;
};

struct gate {
	struct gate *next;
	uint64_t hash;
	struct channel_key key;
	struct mutation *owner;  // the large one that runs, is prepared, or waits for a stage
	struct mutation_list waiters;
};

struct meta_queue {
	struct meta_queue_params params;
	struct mutation_list runnable, slot, retry, apply, other;
	// What came back without an outcome, by the order it was sent in. While there is any, nothing new
	// is proposed; once nothing is in flight it goes in front of the runnable ones: order is kept.
	struct mutation_list again;
	struct gate *gates;
	uint64_t next_stage_id;
	uint32_t stages_open;
	bool connected;
	bool apply_more;  // more to answer than one turn does
	uint64_t applied;
	uint64_t next_token;
	uint64_t now_ns;  // of the last tick
	uint64_t propose_ns;  // nothing is proposed before
	uint64_t expire_ns;  // when to look for callers that waited long enough
	struct meta_queue_info info;
	struct meta_batch batch[META_BATCHES];
};

void mutations_push(struct mutation_list *list, struct mutation *m, enum mutation_state state);
void mutations_remove(struct mutation *m);
void mutations_move(struct mutation_list *list, struct mutation *m, enum mutation_state state);
void mutations_push_again(struct mutation_list *list, struct mutation *m);
void mutations_prepend(
	struct mutation_list *list, struct mutation_list *front, enum mutation_state state);

// Gives `m` up for now, for another try a little later or, after its wait, for good.
void queue_retry_later(struct meta_queue *q, struct mutation *m, uint64_t now_ns);
// The outcome is known; what committed still waits for the fast process.
void queue_finish(struct meta_queue *q, struct mutation *m, uint64_t now_ns);
// Ends `m` with the best that is known of it: unknown, when an earlier try may have been applied.
void queue_fail(struct meta_queue *q, struct mutation *m, enum mutation_outcome outcome);
// The channel's stage was lost or left in the dark: `m` starts over with a new one.
void queue_new_stage(struct meta_queue *q, struct mutation *m);
