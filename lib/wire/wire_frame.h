/* SPDX-License-Identifier: BSD-3-Clause */
// Reassembly of segmented frames, bounded in number, bytes and time. One owner thread per object.
#pragma once

#include <stdint.h>

#include "wire.h"

struct wire_reassembly;

// Room for `frames` (1..65536) incomplete or unreleased frames of FRAME_BYTES_MAX each, given up
// after `timeout_ns`. Owns: all memory, reserved now. Returns: NULL when there is no memory.
struct wire_reassembly *wire_reassembly_create(uint32_t frames, uint64_t timeout_ns);
// Bytes of room for so many frames.
uint64_t wire_reassembly_memory(uint32_t frames);
// Lets one owner have at most `share` (1..frames) frames at a time, of incomplete and unreleased ones. Without
// it an owner may have all.
void wire_reassembly_share(struct wire_reassembly *r, uint32_t share);
void wire_reassembly_destroy(struct wire_reassembly *r);

enum wire_part {
	WIRE_PART_MORE,  // taken, the frame is not complete yet
	WIRE_PART_COMPLETE,  // `frame` and `handle` are set
	WIRE_PART_REPEATED,  // of a frame completed lately: the peer resent, answer it as a repeated frame
	WIRE_PART_BAD,  // overlaps or disagrees with what is known of its frame: CTR_DROP_SEGMENT
	WIRE_PART_FULL,  // no room: CTR_DROP_REASSEMBLY_FULL
	WIRE_PART_SHARE,  // its owner has its share: CTR_DROP_REASSEMBLY_SHARE
};

// Takes a segment. When it completes its frame, `frame` is the frame's body and `handle` names it: the
// bytes stay until wire_reassembly_release(handle). A frame is known by (sender, boot, lane, frame id).
enum wire_part wire_reassembly_add(struct wire_reassembly *r, const struct wire_header *header,
	const struct wire_segment *segment, uint64_t now_ns, struct wire_view *frame,
	uint32_t *handle);
// The same for a frame that counts as `owner`'s; above, the sender is its owner.
enum wire_part wire_reassembly_add_owned(struct wire_reassembly *r, uint64_t owner,
	const struct wire_header *header, const struct wire_segment *segment, uint64_t now_ns,
	struct wire_view *frame, uint32_t *handle);
// Of a complete frame: the highest attempt among its segments, 0 when none was sent again.
uint8_t wire_reassembly_attempt(const struct wire_reassembly *r, uint32_t handle);
void wire_reassembly_release(struct wire_reassembly *r, uint32_t handle);
// The same; segments of this frame that come again make a frame again, not WIRE_PART_REPEATED.
void wire_reassembly_forget(struct wire_reassembly *r, uint32_t handle);

// Gives up frames older than the timeout. Returns: number given up (CTR_DROP_REASSEMBLY_TIMEOUT).
uint32_t wire_reassembly_expire(struct wire_reassembly *r, uint64_t now_ns);
// Frames begun and not complete.
uint32_t wire_reassembly_pending(const struct wire_reassembly *r);
