/* SPDX-License-Identifier: BSD-3-Clause */
// The reader in another process than the writer: follows DIR/store/current from generation to generation.
// Context: one thread.
#pragma once

#include "store_lmdb.h"

struct store_follow;

// `dir`: the writer's data folder. Nothing need be there yet. Returns: 0 or -ENOMEM.
int store_follow_open(const char *dir, uint64_t map_bytes, struct store_follow **follow);
void store_follow_close(struct store_follow *follow);

// Begins a read transaction on the generation that is current now, so that two of them may see two
// generations: store_position.generation tells. Costs one look at a file's inode.
// Returns: 0; -EAGAIN: there is no store yet, or it is being replaced this moment; -errno.
int store_follow_begin(struct store_follow *follow, struct store_tx *tx);
void store_follow_end(struct store_follow *follow, struct store_tx *tx);
// Forgets what is open, so that the next begin opens afresh.
void store_follow_drop(struct store_follow *follow);
