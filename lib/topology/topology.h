/* SPDX-License-Identifier: BSD-3-Clause */
// Topology: one immutable, numbered snapshot of nodes, hash slots, slot assignments and channel leaders
// named by runtime rows, and the full-shape comparison of the part a tag depends on (I8). Pure; made by
// topology_build.h, published by RCU by its owner.
//
// Two numbers: `revision` grows with every change of anything in here (it is the commit number of the newest
// row, the same on all nodes); `version` only when the hash-slot table changes. References of tags know
// nothing but the version and their own slots, so that unrelated changes invalidate nothing.
//
// An absent assignment, leader, term or config epoch (0) equals nothing, itself included: it means
// retryable.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base_id.h"

#define TOPOLOGY_SLOTS_MAX 256u
#define TOPOLOGY_PEERS_MAX 16u
#define TOPOLOGY_NODES_MAX 4096u
#define TOPOLOGY_BUCKETS 1024u  // of channels with a runtime row

struct topology_slot {
	uint32_t slot;  // 1..
	uint64_t leader;  // node id, 0 unknown
	uint64_t term;
	uint64_t config_epoch;
	uint64_t balance_version;
};

enum topology_node_state {
	TOPOLOGY_JOINING = 1,
	TOPOLOGY_ACTIVE = 2,
	TOPOLOGY_LEAVING = 3,
	TOPOLOGY_REMOVED = 4,
};

struct topology_node {
	uint64_t id;
	uint64_t revision;  // of its row: its address may have changed when this did
	uint32_t ip;  // of the data plane, host byte order; 0: the row names no IPv4 address
	uint16_t port;  // of worker 0
	uint8_t state;  // enum topology_node_state
};

struct topology_peers {
	uint32_t count;
	uint64_t node[TOPOLOGY_PEERS_MAX];  // ascending
};

struct topology_bucket;

struct topology {
	uint64_t version;  // of the table
	uint64_t revision;  // of the snapshot
	uint32_t hash_slots;  // 256
	uint32_t slot_count;  // 10
	uint32_t node_count;
	uint32_t channel_count;  // runtime rows
	uint16_t slot_of[HASH_SLOTS_MAX];  // hash slot -> slot number (1..), 0 unassigned
	struct topology_slot slot[TOPOLOGY_SLOTS_MAX];  // [slot - 1]
	struct topology_peers peers[TOPOLOGY_SLOTS_MAX];
	const struct topology_node *node;  // ascending by id; NULL: a node by itself
	struct topology_bucket *bucket[TOPOLOGY_BUCKETS];  // channels, by hash; shared
};

// Contiguous initial table: the first (hash_slots mod slots) slots get one hash slot more; every slot led
// by `node` with term 1, config epoch 1. Returns: 0; -EINVAL when a count is out of range.
int topology_init(struct topology *t, uint32_t hash_slots, uint32_t slots, uint64_t node);

// Slot of an id; 0 when unassigned.
uint32_t topology_slot_of(const struct topology *t, struct id_view id);
// Leader of an id's slot, the owner node of a UID; 0 when unknown: means retryable, never equal to anything.
uint64_t topology_leader_of(const struct topology *t, struct id_view id);
// A slot whose leader is known; NULL when there is none.
const struct topology_slot *topology_slot_known(const struct topology *t, uint32_t slot);
// NULL when there is no such node.
const struct topology_node *topology_node(const struct topology *t, uint64_t id);
// Number of slots led by `node`.
uint32_t topology_slots_led(const struct topology *t, uint64_t node);

// --- who leads a channel --------------------------------------------------------------------------------

// By what right a node leads a channel: its slot's term and, where the channel has a runtime row, that row's
// epochs. Carried by messages between nodes, so that those of a past leader are refused.
struct topology_authority {
	uint64_t node;  // 0: nobody known
	uint32_t slot;  // of the channel's root
	uint64_t term;
	uint64_t channel_epoch, leader_epoch;  // 0: no runtime row
};
// Leader of a channel: whom its own runtime row names (a row without replicas names nobody), else the leader
// of its root's slot. `hash` is channel_key_hash(key). Returns: 0; -EAGAIN: unknown, node is 0 then.
int topology_authority(const struct topology *t, const struct channel_key *key, uint64_t hash,
	struct topology_authority *a);

enum topology_order {
	TOPOLOGY_SAME,
	TOPOLOGY_OLDER,  // what was told is past: not_leader
	TOPOLOGY_NEWER,  // what is known here is past: retryable
	TOPOLOGY_UNLIKE,  // cannot be ordered: retryable
};
// `told` by a message against what is `known` here.
enum topology_order topology_authority_compare(
	const struct topology_authority *told, const struct topology_authority *known);

// --- what a tag depends on ------------------------------------------------------------------------------

// What a tag remembers of the topology it was built on: table version and the exact sorted set of slots
// that hold its UIDs.
struct topology_ref {
	uint64_t version;
	uint32_t count;
	struct topology_slot slot[TOPOLOGY_SLOTS_MAX];
};
// Starts, adds the slot of one id, and finishes a reference. `ref_add` ignores a slot already present.
// Returns of add: 0; -EAGAIN when the slot is unassigned or its leader unknown.
void topology_ref_begin(struct topology_ref *ref, const struct topology *t);
int topology_ref_add(struct topology_ref *ref, const struct topology *t, uint32_t slot);
// Takes an assignment told by another node. Returns: 0; -EINVAL: unknown leader, or not above the last slot.
int topology_ref_push(struct topology_ref *ref, const struct topology_slot *slot);
// True when every part is equal to what `t` says now, leader and term known.
bool topology_ref_current(const struct topology_ref *ref, const struct topology *t);
// True when both have the same version and the same slots, all of them known, equal in every part.
bool topology_ref_equal(const struct topology_ref *a, const struct topology_ref *b);
