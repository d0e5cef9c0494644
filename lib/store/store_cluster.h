/* SPDX-License-Identifier: BSD-3-Clause */
// The cluster's own tables: nodes and their lifecycle, the hash-slot table, slots, and the runtime rows of
// channels. Rows change by commands (STORE_NODE_JOIN and the ones behind it) and come down the feed as
// deltas whose body is the new row.
//
// What apply guarantees, so that a scan over a table that moves stays sound:
// - a node that is not `active` is never newly named by a slot or a runtime row, in any role;
// - a removed node id stays removed for ever;
// - epochs, terms, generations and versions never go back, and leaders and replica sets change only with them.
// Context: META_ONLY for apply; codecs and readers any thread, any process.
#pragma once

#include "store.h"

#define STORE_ADDRESS_MAX 127u  // bytes of a node's "host:port"
#define STORE_NODES_MAX 4096u  // node ids ever used
#define STORE_REPLICAS_MAX 16u  // nodes named by a slot or a runtime row
#define STORE_SLOTS_MAX 256u

enum store_node_state {
	STORE_NODE_JOINING = 1,
	STORE_NODE_ACTIVE = 2,
	STORE_NODE_LEAVING = 3,
	STORE_NODE_REMOVED = 4,  // a tombstone, kept for ever
};
const char *store_node_state_name(enum store_node_state state);

struct store_node {
	uint64_t id;  // not 0
	uint64_t revision;  // commit number of its last change
	uint8_t state;  // enum store_node_state
	uint8_t address_len;
	uint8_t address[STORE_ADDRESS_MAX];
};

// Node ids ascend in every list; a leader is 0 or one of the list.
struct store_slot {
	uint32_t slot;  // 1..STORE_SLOTS_MAX
	uint64_t leader, term, config_epoch, balance_version;
	uint64_t revision;
	uint32_t peer_count;
	uint64_t peer[STORE_REPLICAS_MAX];
};

struct store_hash_slots {
	uint64_t version;  // 1, 2, ...; given by apply
	uint64_t revision;
	uint32_t count;  // hash slots; the first table decides it for ever
	uint16_t slot_of[HASH_SLOTS_MAX];  // 0: unassigned
};

// Runtime row of a channel. A row without replicas is a tombstone: it keeps the epochs.
struct store_runtime {
	struct channel_key channel;
	uint64_t leader;
	uint64_t channel_epoch;  // of the replica set
	uint64_t leader_epoch;  // of the leader, within the channel epoch
	uint64_t route_generation;
	uint64_t features, lease_until_ms;
	uint64_t revision;
	uint8_t status, min_isr;
	uint32_t replica_count, isr_count;  // ISR is a part of the replicas
	uint64_t replica[STORE_REPLICAS_MAX], isr[STORE_REPLICAS_MAX];
};

// --- bytes of rows, which are those of command and delta bodies too ---------------------------------------
// Encode: bytes written, -ENOSPC, -EINVAL: a rule above is broken. Decode: 0 or -EINVAL; takes all of `len`.
// Commands carry revision and version 0.

#define STORE_BODY_MAX (24u + 2u * HASH_SLOTS_MAX)

int store_node_encode(const struct store_node *node, uint8_t *out, uint32_t cap);
int store_node_decode(const uint8_t *p, uint32_t len, struct store_node *node);
int store_slot_encode(const struct store_slot *slot, uint8_t *out, uint32_t cap);
int store_slot_decode(const uint8_t *p, uint32_t len, struct store_slot *slot);
int store_hash_slots_encode(const struct store_hash_slots *table, uint8_t *out, uint32_t cap);
int store_hash_slots_decode(const uint8_t *p, uint32_t len, struct store_hash_slots *table);
// The channel is not among the bytes: decode leaves it.
int store_runtime_encode(const struct store_runtime *runtime, uint8_t *out, uint32_t cap);
int store_runtime_decode(const uint8_t *p, uint32_t len, struct store_runtime *runtime);

// Fill a command; `body` (of at least STORE_BODY_MAX bytes) is where its bytes go and must outlive it.
// Returns: 0 or -EINVAL.
int store_command_node(
	struct store_command *cmd, const struct store_node *node, uint8_t *body);  // NODE_JOIN
// `if_revision`: refused as stale unless it is the node's; 0: whatever it is.
void store_command_node_state(
	struct store_command *cmd, uint64_t id, enum store_node_state state, uint64_t if_revision);
int store_command_slot(struct store_command *cmd, const struct store_slot *slot, uint8_t *body);
// `if_version`: refused as stale unless it is the table's (0: whatever it is).
int store_command_hash_slots(struct store_command *cmd, const struct store_hash_slots *table,
	uint64_t if_version, uint8_t *body);
int store_command_runtime(
	struct store_command *cmd, const struct store_runtime *runtime, uint8_t *body);

// --- reading, in key order; page by page = so many calls in one transaction ---------------------------------
// Returns: 0; -ENOENT: no such row, or no further one; -EUCLEAN, other -errno: faults.

// A removed node is found, as a tombstone: "was this id ever removed".
int store_read_node(struct store_tx *tx, uint64_t id, struct store_node *node);
int store_read_next_node(struct store_tx *tx, uint64_t after, struct store_node *node);
int store_read_slot(struct store_tx *tx, uint32_t slot, struct store_slot *out);
int store_read_next_slot(struct store_tx *tx, uint32_t after, struct store_slot *out);
int store_read_hash_slots(struct store_tx *tx, struct store_hash_slots *table);
int store_read_runtime(
	struct store_tx *tx, const struct channel_key *channel, struct store_runtime *runtime);
// Rows are kept by the hash slot of the channel's id, then type and id. `cursor` type 0: from the first
// of the hash slot.
int store_read_next_runtime(struct store_tx *tx, uint32_t hash_slot,
	const struct channel_key *cursor, struct store_runtime *runtime);
