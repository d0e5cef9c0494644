/* SPDX-License-Identifier: BSD-3-Clause */
// HINT, by which nodes tell a channel's leader of changes, and PRESENCE, by which gateways learn what a node
// lacks. Pure functions, any thread.
#include "wire_node.h"

#include <assert.h>

#include "wire_pvt.h"

// clang-format off
struct WIRE_PACKED hint_bytes {
	uint64_t hint_id;        //  0 never 0
	uint64_t commit;         //  8
	uint64_t smv;            // 16
	uint64_t leader;         // 24 0 in a question
	uint64_t term;           // 32 never 0 in a question
	uint64_t channel_epoch;  // 40
	uint64_t leader_epoch;   // 48
	uint32_t slot;           // 56 never 0 in a question
	uint16_t status;         // 60 any in an answer, 0 in a question
	uint8_t op;              // 62 enum wire_hint_op
	uint8_t answer;          // 63 0, 1
	uint8_t channel_type;    // 64 1..12
	uint8_t channel_len;     // 65 1..255
	uint16_t zero66;         // 66
	uint32_t zero68;         // 68
};                               // then channel id
struct WIRE_PACKED presence_bytes {
	uint64_t revision;       //  0
	uint64_t table_version;  //  8 never 0
	uint64_t stream_seq;     // 16
	uint32_t hash_slots;     // 24 1..HASH_SLOTS_MAX
	uint16_t count;          // 28 ranges, from 1
	uint16_t zero30;         // 30
};                               // then ranges
struct WIRE_PACKED range_bytes {
	uint16_t first;  //  0 <= last
	uint16_t last;   //  2 < hash_slots
	uint32_t slot;   //  4 never 0
	uint64_t term;   //  8 never 0
	uint8_t state;   // 16 enum wire_presence_state
	uint8_t pad[7];  // 17 zero
};
// clang-format on
_Static_assert(sizeof(struct hint_bytes) == 72, "wire format");
_Static_assert(offsetof(struct hint_bytes, slot) == 56, "wire format");
_Static_assert(offsetof(struct hint_bytes, channel_type) == 64, "wire format");
_Static_assert(sizeof(struct presence_bytes) == 32, "wire format");
_Static_assert(sizeof(struct range_bytes) == WIRE_PRESENCE_RANGE_BYTES, "wire format");

static bool hint_valid(const struct hint_bytes *b)
{
	if (b->hint_id == 0 || b->op < WIRE_HINT_DIRTY || b->op > WIRE_HINT_FENCE ||
		b->answer > 1 || b->channel_type == 0 || b->channel_type > CHANNEL_TYPE_MAX ||
		b->channel_len == 0)
		return false;
	return b->answer != 0 || (b->term != 0 && b->slot != 0 && b->status == 0 && b->leader == 0);
}

bool wire_put_hint(struct wire_buf *out, const struct wire_hint *m)
{
	const struct hint_bytes b = {
		.hint_id = m->hint_id,
		.commit = m->commit,
		.smv = m->smv,
		.leader = m->leader,
		.term = m->authority.term,
		.channel_epoch = m->authority.channel_epoch,
		.leader_epoch = m->authority.leader_epoch,
		.slot = m->authority.slot,
		.status = m->status,
		.op = m->op,
		.answer = m->answer,
		.channel_type = m->channel.type,
		.channel_len = m->channel.len,
	};
	uint8_t *at;

	if (!hint_valid(&b))
		return wire_refuse(out);
	at = wire_reserve(out, (uint32_t)sizeof(b) + b.channel_len);
	if (at == NULL)
		return false;
	at = wire_copy(at, &b, sizeof(b));
	wire_copy(at, m->channel.bytes, b.channel_len);
	return true;
}

int wire_get_hint(struct wire_view body, struct wire_hint *m)
{
	struct hint_bytes b;
	int drop;

	if (body.len < sizeof(b))
		return CTR_DROP_SHORT;
	memcpy(&b, body.p, sizeof(b));
	if (!hint_valid(&b) || b.zero66 != 0 || b.zero68 != 0)
		return CTR_DROP_FIELD;
	drop = wire_rest(body, (uint32_t)sizeof(b), b.channel_len);
	if (drop != 0)
		return drop;
	m->hint_id = b.hint_id;
	m->op = b.op;
	m->answer = b.answer;
	m->status = b.status;
	m->commit = b.commit;
	m->smv = b.smv;
	m->leader = b.leader;
	m->authority = (struct wire_authority){b.slot, b.term, b.channel_epoch, b.leader_epoch};
	m->channel.type = b.channel_type;
	m->channel.len = b.channel_len;
	memcpy(m->channel.bytes, body.p + sizeof(b), b.channel_len);
	return 0;
}

// --- PRESENCE -----------------------------------------------------------------------------------------

bool wire_presence_begin(struct wire_buf *out, const struct wire_presence *m)
{
	const struct presence_bytes b = {
		.revision = m->revision,
		.table_version = m->table_version,
		.stream_seq = m->stream_seq,
		.hash_slots = m->hash_slots,
	};
	uint8_t *at;

	assert(out->len == 0);
	if (m->table_version == 0 || m->hash_slots == 0 || m->hash_slots > HASH_SLOTS_MAX)
		return wire_refuse(out);
	at = wire_reserve(out, sizeof(b));
	if (at == NULL)
		return false;
	memcpy(at, &b, sizeof(b));
	return true;
}

static bool range_valid(const struct range_bytes *r, uint32_t hash_slots)
{
	return r->first <= r->last && r->last < hash_slots && r->slot != 0 && r->term != 0 &&
	       r->state >= WIRE_PRESENCE_NOT_READY && r->state <= WIRE_PRESENCE_COMPLETE &&
	       wire_all_zero(r->pad, sizeof(r->pad));
}

bool wire_presence_add(struct wire_buf *out, const struct wire_presence_range *range)
{
	const struct range_bytes r = {
		.first = range->first,
		.last = range->last,
		.slot = range->slot,
		.term = range->term,
		.state = range->state,
	};
	struct presence_bytes b;

	if (!out->ok || out->len < sizeof(b) || sizeof(r) > out->cap - out->len)
		return false;
	memcpy(&b, out->p, sizeof(b));
	if (b.count == UINT16_MAX || !range_valid(&r, b.hash_slots))
		return false;
	b.count++;
	memcpy(out->p, &b, sizeof(b));
	memcpy(wire_reserve(out, sizeof(r)), &r, sizeof(r));
	return true;
}

bool wire_presence_next(struct wire_view *ranges, struct wire_presence_range *range)
{
	struct range_bytes r;

	if (ranges->len < sizeof(r))
		return false;
	memcpy(&r, ranges->p, sizeof(r));
	*range = (struct wire_presence_range){
		.first = r.first,
		.last = r.last,
		.slot = r.slot,
		.term = r.term,
		.state = r.state,
	};
	ranges->p += sizeof(r);
	ranges->len -= (uint32_t)sizeof(r);
	return true;
}

int wire_get_presence(struct wire_view body, struct wire_presence *m)
{
	struct presence_bytes b;
	int drop;

	if (body.len < sizeof(b))
		return CTR_DROP_SHORT;
	memcpy(&b, body.p, sizeof(b));
	if (b.table_version == 0 || b.hash_slots == 0 || b.hash_slots > HASH_SLOTS_MAX ||
		b.count == 0 || b.zero30 != 0)
		return CTR_DROP_FIELD;
	drop = wire_rest(body, (uint32_t)sizeof(b), b.count * WIRE_PRESENCE_RANGE_BYTES);
	if (drop != 0)
		return drop;
	for (uint32_t i = 0; i < b.count; i++) {
		struct range_bytes r;

		memcpy(&r, body.p + sizeof(b) + i * sizeof(r), sizeof(r));
		if (!range_valid(&r, b.hash_slots))
			return CTR_DROP_FIELD;
	}
	*m = (struct wire_presence){
		.revision = b.revision,
		.table_version = b.table_version,
		.stream_seq = b.stream_seq,
		.hash_slots = b.hash_slots,
		.count = b.count,
		.ranges = {.p = body.p + sizeof(b), .len = b.count * WIRE_PRESENCE_RANGE_BYTES},
	};
	return 0;
}
