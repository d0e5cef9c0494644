/* SPDX-License-Identifier: BSD-3-Clause */
// The 40-byte header of every datagram, and the names of types and statuses. Pure functions, any thread.
#include "wire.h"

#include "wire_pvt.h"

// clang-format off
struct WIRE_PACKED header_bytes {
	uint16_t magic;     //  0 "TC"
	uint8_t version;    //  2
	uint8_t type;       //  3 enum wire_type
	uint8_t flags;      //  4 enum wire_flag
	uint8_t key_id;     //  5 of the authentication tag; 0 without one
	uint8_t lane;       //  6 sequence space of the sender
	uint8_t zero7;      //  7
	uint64_t sender;    //  8 never 0
	uint64_t boot;      // 16 never 0
	uint64_t seq;       // 24 from 1; 0 is refused by the replay window
	uint16_t bytes;     // 32 of the datagram, tag included
	uint16_t zero34;    // 34
	uint32_t zero36;    // 36
};
// clang-format on
_Static_assert(sizeof(struct header_bytes) == WIRE_HEADER_BYTES, "header is 40 bytes");
_Static_assert(offsetof(struct header_bytes, sender) == 8, "wire format");
_Static_assert(offsetof(struct header_bytes, bytes) == 32, "wire format");
// wire_put_header writes the same as words.
_Static_assert(offsetof(struct header_bytes, version) == 2, "wire format");
_Static_assert(offsetof(struct header_bytes, type) == 3, "wire format");
_Static_assert(offsetof(struct header_bytes, flags) == 4, "wire format");
_Static_assert(offsetof(struct header_bytes, key_id) == 5, "wire format");
_Static_assert(offsetof(struct header_bytes, lane) == 6, "wire format");
_Static_assert(offsetof(struct header_bytes, boot) == 16, "wire format");
_Static_assert(offsetof(struct header_bytes, seq) == 24, "wire format");

static bool type_known(uint8_t type)
{
	return type >= WIRE_HELLO && type <= WIRE_SEGMENT;
}

int wire_get_header(
	const uint8_t *p, uint32_t len, struct wire_header *header, struct wire_view *body)
{
	struct header_bytes h;
	uint32_t around = WIRE_HEADER_BYTES;

	if (len < sizeof(h))
		return CTR_DROP_SHORT;
	memcpy(&h, p, sizeof(h));
	if (h.magic != WIRE_MAGIC)
		return CTR_DROP_MAGIC;
	if (h.version != WIRE_VERSION)
		return CTR_DROP_VERSION;
	if (!type_known(h.type))
		return CTR_DROP_TYPE;
	if ((h.flags & ~(unsigned)WIRE_AUTH) != 0 || h.zero7 != 0 || h.zero34 != 0 || h.zero36 != 0)
		return CTR_DROP_FLAGS;
	if (h.bytes != len)
		return CTR_DROP_LENGTH;
	if (h.flags & WIRE_AUTH)
		around += WIRE_TAG_BYTES;
	else if (h.key_id != 0)
		return CTR_DROP_FLAGS;
	if (len < around)
		return CTR_DROP_SHORT;
	if (h.sender == 0 || h.boot == 0)
		return CTR_DROP_FIELD;
	*header = (struct wire_header){
		.type = h.type,
		.flags = h.flags,
		.key_id = h.key_id,
		.lane = h.lane,
		.sender = h.sender,
		.boot = h.boot,
		.seq = h.seq,
		.bytes = h.bytes,
	};
	*body = (struct wire_view){.p = p + WIRE_HEADER_BYTES, .len = len - around};
	return 0;
}

const char *wire_status_name(enum wire_status status)
{
	static const char *const names[WIRE_STATUS_COUNT] = {
		[WIRE_OK] = "ok",
		[WIRE_RETRYABLE] = "retryable",
		[WIRE_NOT_LEADER] = "not_leader",
		[WIRE_BUSY] = "busy",
		[WIRE_TOO_LARGE] = "too_large",
		[WIRE_UNKNOWN_CHANNEL] = "unknown_channel",
		[WIRE_BAD_REQUEST] = "bad_request",
		[WIRE_NEED_HELLO] = "need_hello",
		[WIRE_EXPIRED] = "expired",
		[WIRE_UNKNOWN_GATEWAY] = "unknown_gateway",
		[WIRE_OUT_OF_ORDER] = "out_of_order",
		[WIRE_LIMIT] = "limit",
		[WIRE_TOO_MANY_SESSIONS] = "too_many_sessions",
		[WIRE_STALE] = "stale",
		[WIRE_INCOMPLETE] = "incomplete",
		[WIRE_UNSUPPORTED] = "unsupported",
		[WIRE_ACCEPTED] = "accepted",
		[WIRE_COMPLETED] = "completed",
		[WIRE_TAG_MISMATCH] = "tag_mismatch",
		[WIRE_TAG_NOT_CURRENT] = "tag_not_current",
		[WIRE_TAG_VERSION_MISMATCH] = "tag_version_mismatch",
		[WIRE_TAG_NOT_FOUND] = "tag_not_found",
		[WIRE_NOT_READY] = "not_ready",
	};

	return (unsigned)status < WIRE_STATUS_COUNT ? names[status] : "unknown_status";
}

const char *wire_type_name(uint8_t type)
{
	static const char *const names[] = {
		[WIRE_HELLO] = "HELLO",
		[WIRE_HELLO_ACK] = "HELLO_ACK",
		[WIRE_HEARTBEAT] = "HEARTBEAT",
		[WIRE_HEARTBEAT_ACK] = "HEARTBEAT_ACK",
		[WIRE_ANNOUNCE] = "ANNOUNCE",
		[WIRE_ANNOUNCE_ACK] = "ANNOUNCE_ACK",
		[WIRE_BYE] = "BYE",
		[WIRE_PUBLISH] = "PUBLISH",
		[WIRE_PUBLISH_ACK] = "PUBLISH_ACK",
		[WIRE_TASK] = "TASK",
		[WIRE_TASK_ACK] = "TASK_ACK",
		[WIRE_TAG_GET] = "TAG_GET",
		[WIRE_TAG_PART] = "TAG_PART",
		[WIRE_HINT] = "HINT",
		[WIRE_PRESENCE] = "PRESENCE",
		[WIRE_PUSH] = "PUSH",
		[WIRE_PUSH_ACK] = "PUSH_ACK",
		[WIRE_RECEIPT] = "RECEIPT",
		[WIRE_SEGMENT] = "SEGMENT",
	};

	return type_known(type) ? names[type] : "UNKNOWN";
}
