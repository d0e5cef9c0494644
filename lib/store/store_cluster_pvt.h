/* SPDX-License-Identifier: BSD-3-Clause */
// What apply, the codec and the row check share of the cluster's tables. Keys of RUNTIME:
//   'C', hash slot u16, type u8, id bytes   -> runtime row
//   'H'                                     -> hash slots
//   'N', node id u64                        -> node
//   'S', slot u16                           -> slot
#pragma once

#include "store_cluster.h"
#include "store_pvt.h"

#define RUNTIME_KEY_PREFIX 3u

static inline bool op_is_cluster(uint8_t op)
{
	return op >= STORE_NODE_JOIN && op <= STORE_RUNTIME_SET;
}
static inline bool delta_is_cluster(uint8_t kind)
{
	return kind >= STORE_DELTA_NODE && kind <= STORE_DELTA_RUNTIME;
}

// Hash slots of the table in force. Returns: 0, -ENOENT: none yet, -errno.
int hash_slot_count(struct store_tx *tx, uint32_t *count);

bool ids_have(const uint64_t *ids, uint32_t count, uint64_t id);
const char *cluster_command_fault(const struct store_command *cmd);
bool cluster_delta_valid(const struct store_delta *delta);
bool cluster_row_valid(struct store_bytes key, struct store_bytes value);
uint32_t runtime_key(uint32_t hash_slot, const struct channel_key *channel,
	uint8_t k[RUNTIME_KEY_PREFIX + 1 + ID_LEN_MAX]);
