/* SPDX-License-Identifier: BSD-3-Clause */
// One sequence space of a sender: (sender id, boot id, lane). Owned by one thread.
#pragma once

#include "wire.h"
#include "wire_auth.h"

struct wire_lane {
	uint64_t sender;
	uint64_t boot;
	uint64_t seq;  // last used
	uint8_t lane;
	const struct wire_keys *keys;
};

// Bytes a body may have in a datagram of `room` bytes.
static inline uint32_t wire_lane_body_room(const struct wire_lane *lane, uint32_t room)
{
	return room - WIRE_HEADER_BYTES - (lane->keys->count != 0 ? WIRE_TAG_BYTES : 0);
}

// Finishes a datagram whose body of `body` bytes stands at p + WIRE_HEADER_BYTES: takes the next
// sequence, writes the header and, with keys, the tag behind the body. Used for a first send and, with a
// new sequence, for a resend of the same body. Returns: bytes of the datagram.
static inline uint16_t wire_lane_seal(
	struct wire_lane *lane, uint8_t type, uint8_t *p, uint32_t body, uint64_t receiver_boot)
{
	const bool auth = lane->keys->count != 0;
	const uint32_t bytes = WIRE_HEADER_BYTES + body + (auth ? WIRE_TAG_BYTES : 0);
	const struct wire_header header = {
		.type = type,
		.flags = auth ? WIRE_AUTH : 0,
		.key_id = auth ? lane->keys->id[lane->keys->send] : 0,
		.lane = lane->lane,
		.sender = lane->sender,
		.boot = lane->boot,
		.seq = ++lane->seq,
		.bytes = (uint16_t)bytes,
	};

	wire_put_header(p, &header);
	if (auth)
		wire_seal(lane->keys, p, bytes, receiver_boot);
	return (uint16_t)bytes;
}
