/* SPDX-License-Identifier: BSD-3-Clause */
// Frames between meta processes on a SIDE connection, after its handshake. Pure. Context: the loop, or a
// test.
//
//   head: payload length u32, type u8, three zero bytes; then the payload; little-endian.
//   HISTORY        count u8, count x (index u64, chain u64)           each second, to every member
//   PROPOSE        request u64, life u64, batch bytes                 to the leader
//   PROPOSED       request u64, status u8                             taken, or why not
//   BARRIER        request u64
//   BARRIER_OK     request u64, status u8, index u64                  all committed before is at or below
//   MEMBER         request u64, life u64, op u8, id u64, address      a change of members
//   MEMBER_RESULT  request u64, status u8, text
//   JOIN           life u64, id u64, address                          from a node that is no member yet
//   JOIN_RESULT    status u8, text
// address and text: length u8, bytes. `request` is the sender's own number, given back; `life` is random
// per start of the process whose request it is.
#pragma once

#include <stdint.h>

#include "base_limits.h"
#include "cons.h"
#include "raft_chain.h"

#define SIDE_HEAD_BYTES 8u
#define SIDE_PAYLOAD_MAX (16u + ENTRY_BYTES_MAX)
#define SIDE_FRAME_MAX (SIDE_HEAD_BYTES + SIDE_PAYLOAD_MAX)
#define SIDE_SMALL_MAX 512u  // any frame but PROPOSE
#define SIDE_TEXT_MAX 128u  // with its end

enum side_type {
	SIDE_HISTORY = 1,
	SIDE_PROPOSE,
	SIDE_PROPOSED,
	SIDE_BARRIER,
	SIDE_BARRIER_OK,
	SIDE_MEMBER,
	SIDE_MEMBER_RESULT,
	SIDE_JOIN,
	SIDE_JOIN_RESULT,
	SIDE_TYPE_END,
};

// One frame; which fields count depends on the type.
struct side_frame {
	uint8_t type;  // enum side_type
	uint8_t status;  // enum cons_status
	uint8_t op;  // enum cons_change_op
	uint8_t pair_count;
	uint64_t request, life, id, index;
	struct chain_pair pair[CHAIN_TOLD_MAX];
	char address[CONS_ADDRESS_MAX];
	char text[SIDE_TEXT_MAX];
	const uint8_t *data;  // PROPOSE; points into what was decoded
	uint32_t len;
};

// Bytes of the frame that opens with these 8. Returns: whole length, or -EBADMSG: no type of ours, or a
// length this type cannot have.
int side_length(const uint8_t head[SIDE_HEAD_BYTES]);
// Decodes one whole frame of `len` bytes. Returns: 0 or -EBADMSG.
int side_decode(const uint8_t *bytes, uint32_t len, struct side_frame *frame);
// Bytes side_encode writes for this frame.
uint32_t side_size(const struct side_frame *frame);
// Writes side_size(frame) bytes. Strings longer than their field are cut.
void side_encode(const struct side_frame *frame, uint8_t *out);
