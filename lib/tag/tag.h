/* SPDX-License-Identifier: BSD-3-Clause */
// Delivery tags: the leader's membership snapshot of one channel as sorted chunks of UID indices,
// edited copy-on-write. Written by the control core; a published tag never changes and is read by
// workers under RCU (tag_read.h). Context: CONTROL_ONLY.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base_id.h"
#include "base_rcu.h"
#include "base_role.h"
#include "tag_read.h"

struct presence;
struct topology_ref;

// Owner of all tag memory of a node: chunks, tags, steps; budgeted.
struct tag_space;
struct tag_space *tag_space_create(uint64_t bytes_max, uint32_t steps_max,
	struct presence *presence, struct rcu_retire *retire);
// Frees every tag, retired or not. References on UIDs are not given back: presence ends with it.
void tag_space_destroy(struct tag_space *space);
// Makes the keys of tags follow from `seed`, for a simulator. Without it they are random.
void tag_space_seed(struct tag_space *space, uint64_t seed) CONTROL_ONLY;
uint64_t tag_space_bytes(const struct tag_space *space) CONTROL_ONLY;

// Builds a tag from members in any order, duplicates folded. Each index in `uid` carries a reference of
// presence that becomes the tag's; TAG_DENIED may be set in it. Mints a new key, version 1.
// Returns: NULL when the budget is used up (the caller keeps the references then).
struct tag *tag_build(struct tag_space *space, uint32_t *uid, uint32_t count, uint64_t smv,
	const struct topology_ref *topology) CONTROL_ONLY;

// One published change: same key, version + 1, smv as given. `add` and `remove` are UID indices (no
// order needed); an added index the tag has already, or a removed one it has not, changes nothing.
// deny_set/deny_clear change the flag of members. References of `add` stay the caller's; the tag takes
// its own. The old tag stays valid until tag_retire. Returns: NULL when the budget is used up.
struct tag_edit {
	const uint32_t *add, *remove, *deny_set, *deny_clear;
	uint32_t adds, removes, deny_sets, deny_clears;
	uint64_t smv;
	const struct topology_ref *topology;  // NULL: as before
};
struct tag *tag_edit(
	struct tag_space *space, const struct tag *old, const struct tag_edit *edit) CONTROL_ONLY;

// A rebuilt body under the old key: version + 1, for a rebuild inside one incarnation (bulk change). Same
// conditions on `old` as tag_edit. After the highest version comes a new key, version 1.
struct tag *tag_rebuild(struct tag_space *space, const struct tag *old, uint32_t *uid,
	uint32_t count, uint64_t smv, const struct topology_ref *topology) CONTROL_ONLY;

// Gives up a tag that no reader can find any more (its publishing slot was changed): freed after a grace
// period and after its pins are gone. References on UIDs are dropped then.
void tag_retire(struct tag_space *space, struct tag *tag) CONTROL_ONLY;

// Frees retired tags whose grace period and pins are over, a bounded piece per call: a reference on a UID
// is dropped only when no tag that had it as a member is left, pinned ones included.
// Returns: number freed, or 1 when only a part of a large one was done.
uint32_t tag_space_step(struct tag_space *space, uint64_t now_ns) CONTROL_ONLY;

// Steps kept of a tag's incarnation: what changed from `version` to the newest.
// Returns: number of steps from version+1 up to the tag's version; -ESTALE when they are gone.
int tag_steps_since(
	const struct tag_space *space, const struct tag *tag, uint64_t version) CONTROL_ONLY;

// The step that made `version`, while it is kept. UIDs in it stay valid as long as it does.
struct tag_step {
	uint64_t version;
	uint32_t adds, removes, deny_sets, deny_clears;
	uint32_t uid[];  // in this order
};
const struct tag_step *tag_step_of(
	const struct tag_space *space, const struct tag *tag, uint64_t version) CONTROL_ONLY;

const struct topology_ref *tag_topology(const struct tag *tag) CONTROL_ONLY;

// The entry of a member, with its flag; 0: no member.
uint32_t tag_entry(const struct tag *tag, uint32_t uid) CONTROL_ONLY;
bool tag_has(const struct tag *tag, uint32_t uid) CONTROL_ONLY;
