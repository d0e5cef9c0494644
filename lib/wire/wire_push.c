/* SPDX-License-Identifier: BSD-3-Clause */
// PUSH with its records, PUSH_ACK and RECEIPT. Pure functions, any thread.
#include "wire.h"

#include "wire_pvt.h"

// clang-format off
struct WIRE_PACKED push_bytes {
	uint32_t push_id;       //  0
	uint32_t push_gen;      //  4
	uint64_t gateway_boot;  //  8 never 0
	uint16_t records;       // 16 from 1
	uint16_t routes;        // 18 of all records, 1..FRAME_ROUTES_MAX
	uint8_t need_ack;       // 20 0, 1
	uint8_t attempt;        // 21
	uint16_t zero22;        // 22
};                              // then the records
struct WIRE_PACKED record_bytes {
	uint64_t message_id;     //  0 never 0
	uint64_t seq;            //  8
	uint64_t stamp;          // 16
	uint32_t payload_bytes;  // 24 <= PAYLOAD_MAX
	uint16_t routes;         // 28 from 1
	uint8_t channel_type;    // 30 1..12
	uint8_t flags;           // 31 enum wire_record_flag
	uint8_t channel_len;     // 32 1..255
	uint8_t from_len;        // 33 0..255
	uint16_t zero34;         // 34
};                               // then channel id, from UID, payload, routes (u32 slot, u32 generation)
struct WIRE_PACKED push_ack_bytes {
	uint32_t push_id;    //  0
	uint32_t push_gen;   //  4
	uint16_t accepted;   //  8
	uint16_t retryable;  // 10
	uint16_t dropped;    // 12 the three make 1..FRAME_ROUTES_MAX
	uint16_t zero14;     // 14
};                           // then retryable + dropped positions of u16
struct WIRE_PACKED receipt_bytes {
	uint32_t push_id;   //  0
	uint32_t push_gen;  //  4
	uint16_t first;     //  8 multiple of 8
	uint16_t bytes;     // 10 of bits that follow, from 1; first + 8 * bytes <= FRAME_ROUTES_MAX
	uint32_t zero12;    // 12
};
// clang-format on
#define RECORD_FLAGS (WIRE_RECORD_LATE | WIRE_RECORD_RECEIPT)

_Static_assert(sizeof(struct push_bytes) == WIRE_PUSH_BYTES, "wire format");
_Static_assert(offsetof(struct push_bytes, push_id) == 0, "delivery patches it");
_Static_assert(offsetof(struct push_bytes, push_gen) == 4, "delivery patches it");
_Static_assert(offsetof(struct push_bytes, records) == WIRE_PUSH_RECORDS_OFFSET, "wire format");
_Static_assert(offsetof(struct push_bytes, routes) == WIRE_PUSH_RECORDS_OFFSET + 2, "wire format");
_Static_assert(offsetof(struct push_bytes, need_ack) == 20, "wire_put_push writes words");
_Static_assert(offsetof(struct push_bytes, attempt) == 21, "wire_put_push writes words");
_Static_assert(sizeof(struct record_bytes) == WIRE_RECORD_BYTES, "wire format");
_Static_assert(offsetof(struct record_bytes, routes) == WIRE_RECORD_ROUTES_OFFSET, "wire format");
// wire_record_words writes the same as words.
_Static_assert(offsetof(struct record_bytes, seq) == 8, "wire format");
_Static_assert(offsetof(struct record_bytes, stamp) == 16, "wire format");
_Static_assert(offsetof(struct record_bytes, payload_bytes) == 24, "wire format");
_Static_assert(offsetof(struct record_bytes, channel_type) == 30, "wire format");
_Static_assert(offsetof(struct record_bytes, flags) == 31, "wire format");
_Static_assert(offsetof(struct record_bytes, channel_len) == 32, "wire format");
_Static_assert(offsetof(struct record_bytes, from_len) == 33, "wire format");
_Static_assert(sizeof(struct push_ack_bytes) == 16, "wire format");
_Static_assert(sizeof(struct receipt_bytes) == 16, "wire format");
_Static_assert(WIRE_PUSH_BYTES + WIRE_RECORD_BYTES + 2u * ID_LEN_MAX + PAYLOAD_MAX +
			       FRAME_ROUTES_MAX * WIRE_ROUTE_BYTES <=
		       FRAME_BYTES_MAX,
	"a frame holds the largest message with the most routes");

// --- PUSH ---------------------------------------------------------------------------------------------

// By words: built as a struct on the stack and copied from there, it would wait for its own narrow stores.
bool wire_put_push(struct wire_buf *out, const struct wire_push *m)
{
	const uint64_t id = (uint64_t)m->push_gen << 32 | m->push_id;
	const uint64_t counts = (uint64_t)m->attempt << 40 | (uint64_t)m->need_ack << 32 |
				(uint32_t)m->routes << 16 | m->records;
	uint8_t *at;

	if (m->gateway_boot == 0 || m->need_ack > 1)
		return wire_refuse(out);
	at = wire_reserve(out, sizeof(struct push_bytes));
	if (at == NULL)
		return false;
	memcpy(at, &id, 8);
	memcpy(at + 8, &m->gateway_boot, 8);
	memcpy(at + 16, &counts, 8);
	return true;
}

static bool record_valid(const struct record_bytes *b)
{
	return b->message_id != 0 && b->payload_bytes <= PAYLOAD_MAX && b->channel_type >= 1 &&
	       b->channel_type <= CHANNEL_TYPE_MAX && b->channel_len != 0 &&
	       (b->flags & ~(unsigned)RECORD_FLAGS) == 0;
}

bool wire_put_record(struct wire_buf *out, const struct wire_record *m)
{
	const struct record_bytes b = {
		.message_id = m->message_id,
		.seq = m->seq,
		.stamp = m->stamp,
		.payload_bytes = m->payload.len,
		.routes = m->routes,
		.channel_type = m->channel_type,
		.flags = m->flags,
		.channel_len = m->channel.len,
		.from_len = m->from_uid.len,
	};
	uint8_t *at;

	if (!record_valid(&b))
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

// Takes one record off. Returns: 0 or why there is none.
static int record_take(struct wire_view *body, struct wire_record *record)
{
	struct record_bytes b;
	const uint8_t *at;
	uint32_t want;

	if (body->len < sizeof(b))
		return CTR_DROP_SHORT;
	memcpy(&b, body->p, sizeof(b));
	if (!record_valid(&b) || b.zero34 != 0 || b.routes == 0)
		return CTR_DROP_FIELD;
	want = (uint32_t)sizeof(b) + b.channel_len + b.from_len + b.payload_bytes +
	       b.routes * WIRE_ROUTE_BYTES;
	if (body->len < want)
		return CTR_DROP_SHORT;
	at = body->p + sizeof(b);
	record->message_id = b.message_id;
	record->seq = b.seq;
	record->stamp = b.stamp;
	record->channel_type = b.channel_type;
	record->flags = b.flags;
	record->channel = id_view_of(at, b.channel_len);
	at += b.channel_len;
	record->from_uid = id_view_of(at, b.from_len);
	at += b.from_len;
	record->payload = (struct wire_view){.p = at, .len = b.payload_bytes};
	at += b.payload_bytes;
	record->routes = b.routes;
	record->route = at;
	body->p += want;
	body->len -= want;
	return 0;
}

static bool routes_valid(const struct wire_record *record)
{
	uint32_t any = 0;

	for (uint32_t i = 0; i < record->routes; i++) {
		uint32_t slot, gen;

		wire_get_route(record->route + i * WIRE_ROUTE_BYTES, &slot, &gen);
		any |= slot | gen;
	}
	return any <= WIRE_U24_MAX;
}

int wire_get_push(struct wire_view body, struct wire_push *m)
{
	struct push_bytes b;
	struct wire_record record;
	struct wire_view rest;
	uint32_t routes = 0;

	if (body.len < sizeof(b))
		return CTR_DROP_SHORT;
	memcpy(&b, body.p, sizeof(b));
	if (b.gateway_boot == 0 || b.records == 0 || b.routes == 0 || b.routes > FRAME_ROUTES_MAX ||
		b.need_ack > 1 || b.zero22 != 0)
		return CTR_DROP_FIELD;
	*m = (struct wire_push){
		.push_id = b.push_id,
		.push_gen = b.push_gen,
		.gateway_boot = b.gateway_boot,
		.records = b.records,
		.routes = b.routes,
		.need_ack = b.need_ack,
		.attempt = b.attempt,
		.body = {.p = body.p + sizeof(b), .len = body.len - (uint32_t)sizeof(b)},
	};
	rest = m->body;
	for (uint32_t i = 0; i < b.records; i++) {
		const int bad = record_take(&rest, &record);

		if (bad != 0)
			return bad;
		if (!routes_valid(&record))
			return CTR_DROP_FIELD;
		routes += record.routes;
		if (routes > b.routes)
			return CTR_DROP_FIELD;
	}
	if (rest.len != 0)
		return CTR_DROP_LENGTH;
	return routes == b.routes ? 0 : CTR_DROP_FIELD;
}

bool wire_push_next(struct wire_view *body, struct wire_record *record)
{
	return body->len != 0 && record_take(body, record) == 0;
}

// --- PUSH_ACK, RECEIPT --------------------------------------------------------------------------------

static bool push_ack_valid(uint32_t accepted, uint32_t retryable, uint32_t dropped)
{
	const uint32_t routes = accepted + retryable + dropped;

	return routes != 0 && routes <= FRAME_ROUTES_MAX;
}

bool wire_put_push_ack(struct wire_buf *out, const struct wire_push_ack *m)
{
	const struct push_ack_bytes b = {
		.push_id = m->push_id,
		.push_gen = m->push_gen,
		.accepted = m->accepted,
		.retryable = m->retryable,
		.dropped = m->dropped,
	};
	uint8_t *at;

	if (!push_ack_valid(m->accepted, m->retryable, m->dropped) ||
		m->positions.len != 2u * ((uint32_t)m->retryable + m->dropped))
		return wire_refuse(out);
	at = wire_reserve(out, (uint32_t)sizeof(b) + m->positions.len);
	if (at == NULL)
		return false;
	memcpy(at, &b, sizeof(b));
	wire_copy(at + sizeof(b), m->positions.p, m->positions.len);
	return true;
}

int wire_get_push_ack(struct wire_view body, struct wire_push_ack *m)
{
	struct push_ack_bytes b;
	uint32_t want;
	int drop;

	if (body.len < sizeof(b))
		return CTR_DROP_SHORT;
	memcpy(&b, body.p, sizeof(b));
	if (!push_ack_valid(b.accepted, b.retryable, b.dropped) || b.zero14 != 0)
		return CTR_DROP_FIELD;
	want = 2u * ((uint32_t)b.retryable + b.dropped);
	drop = wire_rest(body, (uint32_t)sizeof(b), want);
	if (drop != 0)
		return drop;
	*m = (struct wire_push_ack){
		.push_id = b.push_id,
		.push_gen = b.push_gen,
		.accepted = b.accepted,
		.retryable = b.retryable,
		.dropped = b.dropped,
		.positions = {.p = body.p + sizeof(b), .len = want},
	};
	return 0;
}

uint16_t wire_position(struct wire_view positions, uint32_t i)
{
	uint16_t position;

	memcpy(&position, positions.p + 2u * i, sizeof(position));
	return position;
}

static bool receipt_valid(uint32_t first, uint32_t bytes)
{
	return first % 8 == 0 && bytes != 0 && bytes <= FRAME_ROUTES_MAX / 8 &&
	       first + 8 * bytes <= FRAME_ROUTES_MAX;
}

bool wire_put_receipt(struct wire_buf *out, const struct wire_receipt *m)
{
	const struct receipt_bytes b = {
		.push_id = m->push_id,
		.push_gen = m->push_gen,
		.first = m->first,
		.bytes = (uint16_t)m->bits.len,
	};
	uint8_t *at;

	if (!receipt_valid(m->first, m->bits.len))
		return wire_refuse(out);
	at = wire_reserve(out, (uint32_t)sizeof(b) + m->bits.len);
	if (at == NULL)
		return false;
	memcpy(at, &b, sizeof(b));
	wire_copy(at + sizeof(b), m->bits.p, m->bits.len);
	return true;
}

int wire_get_receipt(struct wire_view body, struct wire_receipt *m)
{
	struct receipt_bytes b;
	int drop;

	if (body.len < sizeof(b))
		return CTR_DROP_SHORT;
	memcpy(&b, body.p, sizeof(b));
	if (!receipt_valid(b.first, b.bytes) || b.zero12 != 0)
		return CTR_DROP_FIELD;
	drop = wire_rest(body, (uint32_t)sizeof(b), b.bytes);
	if (drop != 0)
		return drop;
	*m = (struct wire_receipt){
		.push_id = b.push_id,
		.push_gen = b.push_gen,
		.first = b.first,
		.bits = {.p = body.p + sizeof(b), .len = b.bytes},
	};
	return 0;
}
