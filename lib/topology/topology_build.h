/* SPDX-License-Identifier: BSD-3-Clause */
// Makes topology snapshots of replicated rows. Rows come as deltas of the feed or as read from the store, in
// any order; a snapshot is made only when all that is known fits together. One owner thread a builder; a
// published snapshot never changes and is read by anybody under RCU.
//
// Use: rows in; after the last delta of a turn topology_builder_publish; on 1 swap the pointer readers
// have (rcu_publish) and retire the old snapshot with topology_builder_free as free_fn, the builder as owner.
// A feed that starts over (another store generation): topology_builder_reset, all rows again.
#pragma once

#include "store_cluster.h"
#include "topology.h"

struct topology_builder;

// Room for `channels_max` runtime rows (TOPOLOGY_NODES_MAX nodes). Returns: NULL when there is no memory.
struct topology_builder *topology_builder_create(uint32_t channels_max);
// Owns: what was published must have been freed before.
void topology_builder_destroy(struct topology_builder *b);

// Takes a row. One of a revision at or below that of the row held is passed over, so that repeated deltas
// and rows read ahead of the feed do no harm.
// Returns: 1 taken; 0 nothing new; -EINVAL: no sound row; -ENOSPC: no room; -ENOMEM.
int topology_builder_node(struct topology_builder *b, const struct store_node *node);
int topology_builder_slot(struct topology_builder *b, const struct store_slot *slot);
int topology_builder_hash_slots(struct topology_builder *b, const struct store_hash_slots *table);
int topology_builder_channel(struct topology_builder *b, const struct store_runtime *runtime);
// The same by a delta; one of a channel's members is nothing new.
int topology_builder_delta(struct topology_builder *b, const struct store_delta *delta);

// Forgets all rows; what was published stays.
void topology_builder_reset(struct topology_builder *b);

// Makes a snapshot when anything changed since the last one.
// Returns: 1 and *now: published; 0: nothing changed; -EAGAIN: rows are missing, what was published
// stays; -ENOMEM.
int topology_builder_publish(struct topology_builder *b, const struct topology **now);
// Why the last publish said -EAGAIN; "" when it did not.
const char *topology_builder_missing(const struct topology_builder *b);
// Frees a published snapshot nobody reads. Of the type an RCU list takes.
void topology_builder_free(void *builder, void *snapshot);
