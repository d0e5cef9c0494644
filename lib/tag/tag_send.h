/* SPDX-License-Identifier: BSD-3-Clause */
// The leader's side of pulls: one owner node's partition, or what changed of it since a version, cut into
// chunks that are written from a pinned body when they are asked for; and the table of such bodies, bounded
// in number, per node, and in time. Context: CONTROL_ONLY.
#pragma once

#include "tag_part.h"
#include "wire_node.h"

struct tag_send;

// Pins the partition of `node`; none is an empty one. `room`: bytes of a TAG_PART body, from WIRE_ROOM_MIN.
// Returns: NULL: no memory, or more than WIRE_PART_CHUNKS_MAX chunks.
struct tag_send *tag_send_full(struct tag_space *space, const struct tag_parts *parts,
	uint64_t node, uint32_t room) CONTROL_ONLY;
// What changed of it since `base`, of the same key: from the steps kept, or by comparing with a whole
// partition at `base` that is still pinned (`from`; NULL: none). Returns: NULL too when neither reaches back.
struct tag_send *tag_send_delta(struct tag_space *space, const struct tag_parts *parts,
	uint64_t node, uint32_t room, const struct tag_fence *base,
	const struct tag_send *from) CONTROL_ONLY;
void tag_send_free(struct tag_send *send) CONTROL_ONLY;

uint32_t tag_send_chunks(const struct tag_send *send) CONTROL_ONLY;
const struct tag_fence *tag_send_fence(const struct tag_send *send) CONTROL_ONLY;
uint64_t tag_send_base(const struct tag_send *send) CONTROL_ONLY;  // 0: whole
// Writes the TAG_PART body of one chunk. Returns: false when there is no such chunk or no room in `out`.
bool tag_send_chunk(const struct tag_send *send, uint32_t index, uint64_t request_id,
	const struct wire_authority *authority, struct wire_buf *out) CONTROL_ONLY;

// --- the table ------------------------------------------------------------------------------------------

struct tag_serve_config {
	uint32_t sends;  // bodies pinned at once
	uint32_t per_node;
	uint64_t hold_ns;  // after the last request for one
};
struct tag_serve;
struct tag_serve *tag_serve_create(struct tag_space *space, const struct tag_serve_config *config);
void tag_serve_destroy(struct tag_serve *serve) CONTROL_ONLY;

// Decides on a TAG_GET; asked only by a node that leads the channel by its current topology and holds its
// lease. `current`: its tag as published and usable, NULL: none. `sender`: who sent it, as authenticated.
// Returns: WIRE_OK and *send, whose chunks get->want are to be sent; else the status to answer with
// tag_serve_refuse: TAG_NOT_FOUND, TAG_NOT_CURRENT (another key), TAG_VERSION_MISMATCH (a version not
// reached), BUSY (its share or the table is full), RETRYABLE (no memory), BAD_REQUEST: a target that is not
// the sender: dropped, not answered.
enum wire_status tag_serve_get(struct tag_serve *serve, const struct tag_parts *current,
	uint64_t sender, const struct wire_tag_get *get, uint64_t now_ns,
	const struct tag_send **send) CONTROL_ONLY;
// The answer of a refusal: with the current fence, and the leader known for NOT_LEADER.
bool tag_serve_refuse(struct wire_buf *out, const struct wire_tag_get *get, enum wire_status status,
	const struct tag_fence *current, uint64_t leader, const struct wire_authority *authority);
// Lets go what nobody asked for lately. Returns: number.
uint32_t tag_serve_step(struct tag_serve *serve, uint64_t now_ns) CONTROL_ONLY;
// Lets go all of a node: it left or restarted.
void tag_serve_forget(struct tag_serve *serve, uint64_t node) CONTROL_ONLY;
