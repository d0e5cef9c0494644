/* SPDX-License-Identifier: BSD-3-Clause */
// The part of the model that knows the cluster's tables: their rules written a second time, and a copy kept
// up by deltas. One thread.
#pragma once

#include "store_cluster.h"

#define MODEL_NODES 512u
#define MODEL_SLOTS 3u
#define MODEL_CHANNELS 7u

struct cluster_rows {
	struct store_node node[MODEL_NODES];  // [id]; state 0: not there
	struct store_slot slot[MODEL_SLOTS + 1];  // [number]; slot 0: not there
	uint32_t hash_count;  // 0: no table
	uint16_t hash_slot;  // of each
	uint64_t hash_version, hash_revision;
	struct store_runtime runtime[MODEL_CHANNELS];  // channel epoch 0: not there
};

typedef uint64_t (*cluster_random)(void *ctx, uint64_t below);

// Makes up a command. `base`: the lowest node id in use now; `channel`: the one it may be about.
void cluster_pick(const struct cluster_rows *rows, cluster_random random, void *ctx, uint64_t base,
	uint32_t number, const struct channel_key *channel, struct store_command *cmd,
	uint8_t *body);
// What the command must do, at the next commit number `commit`. Returns: the code.
uint8_t cluster_rule(struct cluster_rows *rows, const struct store_command *cmd, uint32_t number,
	uint64_t commit);
// Takes over a delta. Returns: 0, or -1 when it cannot be one.
int cluster_follow(struct cluster_rows *rows, const struct store_delta *delta, uint32_t number);
// Reads everything. Returns: 0; -1 when the rows or the copy differ.
int cluster_check(struct store_tx *tx, const struct cluster_rows *want,
	const struct cluster_rows *copy, const struct channel_key *channel);
