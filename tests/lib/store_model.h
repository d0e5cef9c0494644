/* SPDX-License-Identifier: BSD-3-Clause */
// Random commands against a store, predicted by plain sets: the same run for every backend. One thread.
#pragma once

#include "store_read.h"

struct store_model_backend {
	int (*begin)(void *ctx, struct store_tx *tx);
	int (*commit)(void *ctx, struct store_tx *tx);
	void (*abort)(void *ctx, struct store_tx *tx);
	int (*read_begin)(void *ctx, struct store_tx *tx);
	void (*read_end)(void *ctx, struct store_tx *tx);
	void *ctx;
};

struct store_map;
// Over a sorted map (store_model_map.c).
struct store_model_backend store_model_on_map(struct store_map *map);

struct store_model;

// A store just opened, empty. Owns: the model until store_model_destroy.
struct store_model *store_model_create(const struct store_model_backend *backend, uint64_t seed);
void store_model_destroy(struct store_model *model);
// Goes on with another `ctx` of the same backend (the store was closed and opened again).
void store_model_rebind(struct store_model *model, void *ctx);

// Runs batches until `commands` were applied, checking each result, with aborted transactions, retries,
// replays and compaction between; checks the content now and then. Returns: 0; -1 after printing what
// differed and the seed.
int store_model_run(struct store_model *model, uint64_t commands);

// Compares all of the store with the sets, and with a copy kept up by deltas alone. Returns: 0, -1.
int store_model_check(struct store_model *model);

// How often each path was taken, so that a test can show it was.
struct store_model_stats {
	uint64_t commands, changed, repeated, busy, expired, staged, closed, dropped, aborted_tx;
	uint64_t bulk, listed, layered;  // layered: checks that met more than one generation
	uint64_t cluster, refused;  // changes of the cluster's tables, and refusals there
};
void store_model_stats(const struct store_model *model, struct store_model_stats *stats);
