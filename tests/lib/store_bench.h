/* SPDX-License-Identifier: BSD-3-Clause */
// A store over the sorted map with commands written as text, one command a batch. One thread.
#pragma once

#include "store_map.h"
#include "store_read.h"

struct store_bench {
	struct store_map *map;
	struct store_limits limits;
	uint64_t index;  // last log index used
	int rc;  // of the last store_apply
	struct store_result result;
	uint32_t deltas;  // of the last batch
	struct store_delta delta;  // the last one; its UIDs as text:
	char delta_uids[4096];
};

// Owns: the map until store_bench_close. Aborts the program when there is no memory.
void store_bench_open(struct store_bench *bench);
void store_bench_close(struct store_bench *bench);

// A command on group channel `chan`. `uids`: separated by blanks, NULL or "" for none.
struct store_command store_bench_command(uint8_t op, const char *chan, const char *uids);
// Applies it at the next index in a transaction of its own; aborted when store_apply fails.
struct store_result store_bench_apply(struct store_bench *bench, const struct store_command *cmd);
// Both in one, for a plain command.
struct store_result store_bench_do(
	struct store_bench *bench, uint8_t op, const char *chan, const char *uids);
// A chunk of, or the close of, a stage of MEMBERS.
struct store_result store_bench_stage(struct store_bench *bench, uint64_t stage_id,
	uint8_t staged_op, const char *chan, const char *uids);
struct store_result store_bench_close_stage(
	struct store_bench *bench, uint64_t stage_id, uint8_t staged_op, const char *chan);
// Stages `count` UIDs "<prefix>%07u" from `first` on in chunks of 4,000 and closes.
struct store_result store_bench_large(struct store_bench *bench, uint64_t stage_id,
	uint8_t staged_op, const char *chan, const char *prefix, uint32_t first, uint32_t count);

// Compacts by `steps` in a transaction of its own. Returns: what store_compact does.
int store_bench_compact(struct store_bench *bench, uint32_t steps);

// The members as text "a b c", in a static buffer; "-" when the channel is not there.
const char *store_bench_list(struct store_bench *bench, const char *chan, enum store_list list);
struct store_channel store_bench_channel(struct store_bench *bench, const char *chan);
struct store_position store_bench_position(struct store_bench *bench);
