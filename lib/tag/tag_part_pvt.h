/* SPDX-License-Identifier: BSD-3-Clause */
// Bodies of a leader's tag for other nodes, inside of lib/tag. Control core.
#pragma once

#include "tag_part.h"
#include "tag_pvt.h"
#include "topology.h"

// Which versions of the tag changed a body: version of the tag by version of the body. Shared by all bodies of
// one line.
struct tag_history {
	uint32_t refs;
	uint32_t size;
	uint64_t first;  // oldest body version kept
	uint64_t version[];  // [body version % size]
};

struct tag_body {
	uint32_t refs;  // versions of the tag that have it, and pulls
	uint64_t node;
	struct tag *tag;
	struct tag_history *history;
};

struct tag_parts {
	uint64_t self;
	struct tag *local;
	uint32_t members;
	bool broken;  // an edit ended half-way: bodies can only be built anew
	uint32_t slot_members[TOPOLOGY_SLOTS_MAX + 1];  // by slot number
	uint32_t count;
	struct tag_body *body[];  // ascending by node
};

struct tag_body *tag_parts_find(const struct tag_parts *parts, uint64_t node);
void tag_body_drop(struct tag_space *space, struct tag_body *body) CONTROL_ONLY;

#define OWNERS_MAX (TOPOLOGY_SLOTS_MAX + 1)  // a slot has one leader; and the node itself

// Members or edits of one owner node.
struct group {
	uint64_t node;
	uint32_t count;
	uint32_t from;  // of its list
};

struct owners {
	uint32_t count;
	struct group group[OWNERS_MAX];  // ascending by node
};

// What building (tag_part.c) and editing (tag_part_edit.c) share; said where it is defined.
int tag_owner_of(const struct tag_space *space, const struct topology *t, uint32_t uid,
	uint32_t *slot, uint64_t *node) CONTROL_ONLY;
int tag_owners_split(const struct tag_space *space, const struct topology *t, const uint32_t *uid,
	uint32_t count, uint32_t *out, struct owners *o) CONTROL_ONLY;
void tag_refs_drop(struct tag_space *space, const uint32_t *uid, uint32_t count) CONTROL_ONLY;
int tag_parts_ref(const struct tag_parts *p, const struct topology *t, uint64_t node,
	struct topology_ref *ref);
struct tag_body *tag_body_make(const struct tag_space *space, uint64_t node, struct tag *tag,
	struct tag_history *history, uint64_t version);
struct tag_parts *tag_parts_make(uint64_t self, uint32_t bodies);
int tag_targets_make(struct tag_space *space, struct tag_parts *p) CONTROL_ONLY;
