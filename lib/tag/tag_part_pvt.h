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
