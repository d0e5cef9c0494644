/* SPDX-License-Identifier: BSD-3-Clause */
// Topology: one immutable, numbered snapshot of nodes, hash slots and slot assignments, and the
// full-shape comparison of the part a tag depends on (I8). Pure; published by RCU by its owner.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base_id.h"

#define TOPOLOGY_SLOTS_MAX 256u

struct topology_slot {
	uint32_t slot;  // 1..
	uint64_t leader;  // node id, 0 unknown
	uint64_t term;
	uint64_t config_epoch;
	uint64_t balance_version;
};

struct topology {
	uint64_t version;  // of the table
	uint32_t hash_slots;  // 256
	uint32_t slot_count;  // 10
	uint16_t slot_of[HASH_SLOTS_MAX];  // hash slot -> slot number (1..), 0 unassigned
	struct topology_slot slot[TOPOLOGY_SLOTS_MAX];  // [slot - 1]
};

// Contiguous initial table: the first (hash_slots mod slots) slots get one hash slot more; every slot led
// by `node` with term 1, config epoch 1. Returns: 0; -EINVAL when a count is out of range.
int topology_init(struct topology *t, uint32_t hash_slots, uint32_t slots, uint64_t node);

// Slot of an id; 0 when unassigned.
uint32_t topology_slot_of(const struct topology *t, struct id_view id);
// Leader of an id's slot; 0 when unknown: means retryable, never equal to anything.
uint64_t topology_leader_of(const struct topology *t, struct id_view id);

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
// True when every part is equal to what `t` says now, leader and term known.
bool topology_ref_current(const struct topology_ref *ref, const struct topology *t);
