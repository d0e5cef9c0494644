/* SPDX-License-Identifier: BSD-3-Clause */
// A leader's tag of a channel whose members are owned by several nodes: one body per owner node. The body of
// the leader's own node is the tag that its workers expand and that carries fence, SMV, topology and
// targets of the whole; the others are kept to be pulled by their owners (tag_send.h) and are shared by all
// versions of the tag that did not touch them. An edit touches the bodies concerned and no other.
// Context: CONTROL_ONLY.
//
// Use: build or edit; publish tag_parts_local of the new one in place of the old; tag_parts_retire the old.
#pragma once

#include "tag.h"

struct topology;
struct tag_parts;

// Builds over `t`, for the leader node `self`; members in any order, repeats folded. A new key, version 1.
// Owns: the reference that each entry carries (as for tag_build) is taken, also when it fails.
// Returns: 0; -EAGAIN: a UID's slot is unassigned or its leader unknown; -ENOMEM: no memory or budget.
int tag_parts_build(struct tag_space *space, const struct topology *t, uint64_t self, uint32_t *uid,
	uint32_t count, uint64_t smv, struct tag_parts **made) CONTROL_ONLY;

// One published change, as tag_edit: same key, version + 1. `edit->topology` is not looked at. References of
// `edit->add` stay the caller's.
// Returns: 0; -EAGAIN: `t` is not the topology of `old`, a UID's owner is unknown, the version is used
// up, or an edit of `old` failed half-way before: tag_parts_rebuild; -ENOMEM.
int tag_parts_edit(struct tag_space *space, struct tag_parts *old, const struct topology *t,
	const struct tag_edit *edit, struct tag_parts **made) CONTROL_ONLY;

// All bodies anew under the old key, version + 1: after a bulk change, or over another topology. As
// tag_parts_build else.
int tag_parts_rebuild(struct tag_space *space, struct tag_parts *old, const struct topology *t,
	uint32_t *uid, uint32_t count, uint64_t smv, struct tag_parts **made) CONTROL_ONLY;

// All members of all bodies into `uid` (room for tag_parts_members), a reference taken on each: what a rebuild
// over another topology starts from. Returns: number.
uint32_t tag_parts_gather(
	struct tag_space *space, const struct tag_parts *parts, uint32_t *uid) CONTROL_ONLY;

// Gives up a version; its local tag must have been unpublished before. Bodies go with their last version
// and their last pull.
void tag_parts_retire(struct tag_space *space, struct tag_parts *parts) CONTROL_ONLY;

struct tag *tag_parts_local(const struct tag_parts *parts) CONTROL_ONLY;
uint32_t tag_parts_members(const struct tag_parts *parts) CONTROL_ONLY;  // of all bodies
// Body of another node; NULL: it never had a member in this line of versions, which means none.
const struct tag *tag_parts_body(const struct tag_parts *parts, uint64_t node) CONTROL_ONLY;
