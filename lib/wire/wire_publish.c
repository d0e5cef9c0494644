/* SPDX-License-Identifier: BSD-3-Clause */
// PUBLISH and its outcome. Pure functions, any thread.
#include "wire.h"

#include "wire_pvt.h"

#define NAME_MOVE 32u
_Static_assert(NAME_MOVE <= ID_LEN_MAX, "a move stays within a key");

// clang-format off
struct WIRE_PACKED publish_bytes {
	uint64_t request_id;      //  0
	uint64_t message_id;      //  8 never 0
	uint64_t stamp;           // 16
	uint64_t cookie;          // 24
	uint64_t sender_gateway;  // 32 0: no session; then the next three are 0 too
	uint64_t sender_boot;     // 40 never 0 with a gateway
	uint32_t sender_slot;     // 48 < 2^24
	uint32_t sender_gen;      // 52 < 2^24
	uint32_t deadline_ms;     // 56
	uint32_t payload_bytes;   // 60 <= PAYLOAD_MAX
	uint8_t ack;              // 64 enum wire_ack_class
	uint8_t redirect;         // 65 0, 1
	uint8_t channel_type;     // 66 1..12
	uint8_t channel_len;      // 67 1..255
	uint8_t from_len;         // 68 0..255
	uint8_t forwarded;        // 69 0, 1; 1 never with redirect
	uint8_t pad[10];          // 70 zero
};                                // then channel id, from UID, payload
struct WIRE_PACKED publish_ack_bytes {
	uint64_t request_id;      //  0
	uint64_t message_id;      //  8
	uint64_t seq;             // 16
	uint16_t status;          // 24 enum wire_status
	uint8_t duplicate;        // 26 0, 1
	uint8_t unfinished;       // 27
	uint32_t retry_after_ms;  // 28
	uint8_t tag_key[16];      // 32
	uint64_t tag_version;     // 48
	uint32_t members;         // 56
	uint32_t routes;          // 60
	uint32_t acked;           // 64
	uint32_t ended;           // 68
	uint32_t leader_ip;       // 72
	uint16_t leader_port;     // 76
	uint16_t zero78;          // 78
};
// clang-format on
_Static_assert(sizeof(struct publish_bytes) == 80, "wire format");
_Static_assert(sizeof(struct publish_ack_bytes) == 80, "wire format");
_Static_assert(sizeof(struct publish_ack_bytes) <= sizeof(struct publish_bytes),
	"no amplification: a refusal may go to an address that proved nothing");

static bool publish_valid(const struct publish_bytes *b)
{
	if (b->message_id == 0 || b->ack > WIRE_ACK_CLIENT || b->redirect > 1 || b->forwarded > 1 ||
		(b->forwarded && b->redirect) || b->payload_bytes > PAYLOAD_MAX)
		return false;
	if (b->channel_type == 0 || b->channel_type > CHANNEL_TYPE_MAX || b->channel_len == 0)
		return false;
	if (b->sender_gateway == 0)
		return b->sender_boot == 0 && b->sender_slot == 0 && b->sender_gen == 0;
	return b->sender_boot != 0 && b->sender_slot <= WIRE_U24_MAX &&
	       b->sender_gen <= WIRE_U24_MAX;
}

bool wire_put_publish(struct wire_buf *out, const struct wire_publish *m)
{
	const struct publish_bytes b = {
		.request_id = m->request_id,
		.message_id = m->message_id,
		.stamp = m->stamp,
		.cookie = m->cookie,
		.sender_gateway = m->sender_gateway,
		.sender_boot = m->sender_boot,
		.sender_slot = m->sender_slot,
		.sender_gen = m->sender_gen,
		.deadline_ms = m->deadline_ms,
		.payload_bytes = m->payload.len,
		.ack = m->ack,
		.redirect = m->redirect,
		.forwarded = m->forwarded,
		.channel_type = m->channel.type,
		.channel_len = m->channel.len,
		.from_len = m->from_uid.len,
	};
	uint8_t *at;

	if (!publish_valid(&b))
		return wire_refuse(out);
	at = wire_reserve(out, (uint32_t)sizeof(b) + b.channel_len + b.from_len + b.payload_bytes);
	if (at == NULL)
		return false;
	at = wire_copy(at, &b, sizeof(b));
	at = wire_copy(at, m->channel.bytes, b.channel_len);
	at = wire_copy(at, m->from_uid.bytes, b.from_len);
	wire_copy(at, m->payload.p, b.payload_bytes);
	return true;
}

// Copies a name of which `rest` bytes follow: a usual one in one move.
static inline void copy_name(uint8_t *to, const uint8_t *from, uint32_t bytes, uint32_t rest)
{
	if (bytes <= NAME_MOVE && rest >= NAME_MOVE)
		memcpy(to, from, NAME_MOVE);
	else
		memcpy(to, from, bytes);
}

// Parses a body; `whole`: its payload must end where the body does, else it may be cut.
static int take_publish(struct wire_view body, struct wire_publish *m, bool whole)
{
	struct publish_bytes b;
	const uint8_t *at;
	uint32_t rest, want;

	if (body.len < sizeof(b))
		return CTR_DROP_SHORT;
	memcpy(&b, body.p, sizeof(b));
	if (!publish_valid(&b) || !wire_all_zero(b.pad, sizeof(b.pad)))
		return CTR_DROP_FIELD;
	at = body.p + sizeof(b);
	rest = body.len - (uint32_t)sizeof(b);
	want = (uint32_t)b.channel_len + b.from_len + b.payload_bytes;
	if (rest < want - (whole ? 0 : b.payload_bytes))
		return CTR_DROP_SHORT;
	if (rest > want)
		return CTR_DROP_LENGTH;
	m->request_id = b.request_id;
	m->message_id = b.message_id;
	m->stamp = b.stamp;
	m->cookie = b.cookie;
	m->deadline_ms = b.deadline_ms;
	m->ack = b.ack;
	m->redirect = b.redirect;
	m->forwarded = b.forwarded;
	m->channel.type = b.channel_type;
	m->channel.len = b.channel_len;
	m->tail = (struct wire_view){.p = at, .len = rest};
	copy_name(m->channel.bytes, at, b.channel_len, rest);
	at += b.channel_len;
	m->from_uid = id_view_of(at, b.from_len);
	at += b.from_len;
	m->sender_gateway = b.sender_gateway;
	m->sender_boot = b.sender_boot;
	m->sender_slot = b.sender_slot;
	m->sender_gen = b.sender_gen;
	m->payload = (struct wire_view){
		.p = at,
		.len = rest < want ? rest - b.channel_len - b.from_len : b.payload_bytes,
	};
	return 0;
}

int wire_get_publish(struct wire_view body, struct wire_publish *m)
{
	return take_publish(body, m, true);
}

int wire_get_publish_part(struct wire_view part, struct wire_publish *m)
{
	return take_publish(part, m, false);
}

bool wire_put_publish_ack(struct wire_buf *out, const struct wire_publish_ack *m)
{
	struct publish_ack_bytes b = {
		.request_id = m->request_id,
		.message_id = m->message_id,
		.seq = m->seq,
		.status = m->status,
		.duplicate = m->duplicate,
		.unfinished = m->unfinished,
		.retry_after_ms = m->retry_after_ms,
		.tag_version = m->tag_version,
		.members = m->members,
		.routes = m->routes,
		.acked = m->acked,
		.ended = m->ended,
		.leader_ip = m->leader.ip,
		.leader_port = m->leader.port,
	};
	uint8_t *at;

	if (m->status >= WIRE_STATUS_COUNT || m->duplicate > 1)
		return wire_refuse(out);
	memcpy(b.tag_key, m->tag_key, sizeof(b.tag_key));
	at = wire_reserve(out, sizeof(b));
	if (at == NULL)
		return false;
	memcpy(at, &b, sizeof(b));
	return true;
}

int wire_get_publish_ack(struct wire_view body, struct wire_publish_ack *m)
{
	struct publish_ack_bytes b;

	if (body.len < sizeof(b))
		return CTR_DROP_SHORT;
	if (body.len > sizeof(b))
		return CTR_DROP_LENGTH;
	memcpy(&b, body.p, sizeof(b));
	if (b.status >= WIRE_STATUS_COUNT || b.duplicate > 1 || b.zero78 != 0)
		return CTR_DROP_FIELD;
	*m = (struct wire_publish_ack){
		.request_id = b.request_id,
		.message_id = b.message_id,
		.seq = b.seq,
		.status = b.status,
		.duplicate = b.duplicate,
		.unfinished = b.unfinished,
		.retry_after_ms = b.retry_after_ms,
		.tag_version = b.tag_version,
		.members = b.members,
		.routes = b.routes,
		.acked = b.acked,
		.ended = b.ended,
		.leader = {.ip = b.leader_ip, .port = b.leader_port},
	};
	memcpy(m->tag_key, b.tag_key, sizeof(m->tag_key));
	return 0;
}
