/* SPDX-License-Identifier: BSD-3-Clause */
// TAG_GET and TAG_PART: partitions of tags, chunk by chunk. Pure functions, any thread.
// A TAG_PART is larger than its question: it goes to nodes of the cluster only.
#include "wire_node.h"

#include "wire_pvt.h"

// clang-format off
struct WIRE_PACKED tag_get_bytes {
	uint64_t request_id;     //   0 never 0
	uint64_t target;         //   8 never 0
	uint8_t tag_key[16];     //  16
	uint64_t tag_version;    //  32
	uint8_t have_key[16];    //  40
	uint64_t have_version;   //  56
	uint64_t body_version;   //  64
	uint64_t term;           //  72 never 0
	uint64_t channel_epoch;  //  80
	uint64_t leader_epoch;   //  88
	uint64_t want;           //  96 never 0
	uint32_t first;          // 104 < WIRE_PART_CHUNKS_MAX
	uint32_t slot;           // 108 never 0
	uint16_t room;           // 112 from WIRE_ROOM_MIN
	uint8_t flags;           // 114 enum wire_tag_get_flag
	uint8_t channel_type;    // 115 1..12
	uint8_t channel_len;     // 116 1..255
	uint8_t pad[3];          // 117 zero
};                               // then channel id
struct WIRE_PACKED tag_part_bytes {
	uint64_t request_id;      //   0 never 0
	uint8_t tag_key[16];      //   8
	uint64_t tag_version;     //  24 never 0 when ok
	uint64_t base_version;    //  32 < tag_version or 0
	uint64_t smv;             //  40
	uint64_t table_version;   //  48 never 0 when ok
	uint64_t leader;          //  56
	uint64_t term;            //  64 never 0 when ok
	uint64_t channel_epoch;   //  72
	uint64_t leader_epoch;    //  80
	uint32_t slot;            //  88 never 0 when ok
	uint32_t index;           //  92 < count
	uint32_t count;           //  96 1..WIRE_PART_CHUNKS_MAX when ok, else 0
	uint32_t members;         // 100
	uint32_t retry_after_ms;  // 104
	uint16_t entries;         // 108 0 unless ok
	uint16_t status;          // 110 any
};                                // then entries: u8 operation, u8 length, UID or slot_bytes
struct WIRE_PACKED slot_bytes {
	uint32_t slot;             //  0 never 0
	uint64_t term;             //  4 never 0
	uint64_t config_epoch;     // 12 never 0
	uint64_t balance_version;  // 20
};
// clang-format on
_Static_assert(sizeof(struct tag_get_bytes) == 120, "wire format");
_Static_assert(offsetof(struct tag_get_bytes, want) == 96, "wire format");
_Static_assert(offsetof(struct tag_get_bytes, room) == 112, "wire format");
_Static_assert(sizeof(struct tag_part_bytes) == WIRE_TAG_PART_BYTES, "wire format");
_Static_assert(offsetof(struct tag_part_bytes, slot) == 88, "wire format");
_Static_assert(offsetof(struct tag_part_bytes, status) == 110, "wire format");
_Static_assert(sizeof(struct slot_bytes) == WIRE_PART_SLOT_BYTES, "wire format");
_Static_assert(WIRE_TAG_PART_BYTES + 2u + ID_LEN_MAX <= WIRE_ROOM_MIN, "any entry fits a chunk");
_Static_assert(WIRE_ROOM_MIN <= MTU_MIN - WIRE_UDP_OVERHEAD - WIRE_HEADER_BYTES - WIRE_TAG_BYTES,
	"the smallest room fits the smallest MTU");

static bool tag_get_valid(const struct tag_get_bytes *b)
{
	return b->request_id != 0 && b->target != 0 && b->term != 0 && b->slot != 0 &&
	       b->want != 0 && b->first < WIRE_PART_CHUNKS_MAX && b->room >= WIRE_ROOM_MIN &&
	       (b->flags & ~(unsigned)(WIRE_TAG_GET_DELTA | WIRE_TAG_GET_PIN)) == 0 &&
	       b->channel_type != 0 && b->channel_type <= CHANNEL_TYPE_MAX && b->channel_len != 0;
}

bool wire_put_tag_get(struct wire_buf *out, const struct wire_tag_get *m)
{
	struct tag_get_bytes b = {
		.request_id = m->request_id,
		.target = m->target,
		.tag_version = m->tag_version,
		.have_version = m->have_version,
		.body_version = m->body_version,
		.term = m->authority.term,
		.channel_epoch = m->authority.channel_epoch,
		.leader_epoch = m->authority.leader_epoch,
		.want = m->want,
		.first = m->first,
		.slot = m->authority.slot,
		.room = m->room,
		.flags = m->flags,
		.channel_type = m->channel.type,
		.channel_len = m->channel.len,
	};
	uint8_t *at;

	memcpy(b.tag_key, m->tag_key, sizeof(b.tag_key));
	memcpy(b.have_key, m->have_key, sizeof(b.have_key));
	if (!tag_get_valid(&b))
		return wire_refuse(out);
	at = wire_reserve(out, (uint32_t)sizeof(b) + b.channel_len);
	if (at == NULL)
		return false;
	at = wire_copy(at, &b, sizeof(b));
	wire_copy(at, m->channel.bytes, b.channel_len);
	return true;
}

int wire_get_tag_get(struct wire_view body, struct wire_tag_get *m)
{
	struct tag_get_bytes b;
	int drop;

	if (body.len < sizeof(b))
		return CTR_DROP_SHORT;
	memcpy(&b, body.p, sizeof(b));
	if (!tag_get_valid(&b) || !wire_all_zero(b.pad, sizeof(b.pad)))
		return CTR_DROP_FIELD;
	drop = wire_rest(body, (uint32_t)sizeof(b), b.channel_len);
	if (drop != 0)
		return drop;
	m->request_id = b.request_id;
	m->target = b.target;
	memcpy(m->tag_key, b.tag_key, sizeof(m->tag_key));
	m->tag_version = b.tag_version;
	memcpy(m->have_key, b.have_key, sizeof(m->have_key));
	m->have_version = b.have_version;
	m->body_version = b.body_version;
	m->authority = (struct wire_authority){b.slot, b.term, b.channel_epoch, b.leader_epoch};
	m->first = b.first;
	m->want = b.want;
	m->room = b.room;
	m->flags = b.flags;
	m->channel.type = b.channel_type;
	m->channel.len = b.channel_len;
	memcpy(m->channel.bytes, body.p + sizeof(b), b.channel_len);
	return 0;
}

// --- TAG_PART -----------------------------------------------------------------------------------------

static bool tag_part_valid(const struct tag_part_bytes *b)
{
	if (b->request_id == 0)
		return false;
	if (b->status != WIRE_OK)
		return b->index == 0 && b->count == 0 && b->entries == 0;
	return b->tag_version != 0 && b->base_version < b->tag_version && b->table_version != 0 &&
	       b->term != 0 && b->slot != 0 && b->count != 0 && b->count <= WIRE_PART_CHUNKS_MAX &&
	       b->index < b->count;
}

static bool entry_valid(const struct wire_part_entry *e)
{
	if (e->op == WIRE_PART_SLOT)
		return e->slot != 0 && e->term != 0 && e->config_epoch != 0;
	return e->op >= WIRE_PART_MEMBER && e->op <= WIRE_PART_GONE && e->uid.len != 0;
}

uint32_t wire_part_entry_bytes(const struct wire_part_entry *entry)
{
	return 2u + (entry->op == WIRE_PART_SLOT ? WIRE_PART_SLOT_BYTES : entry->uid.len);
}

bool wire_part_add(struct wire_buf *out, const struct wire_part_entry *entry)
{
	const uint32_t bytes = wire_part_entry_bytes(entry);
	uint8_t *at;

	if (!entry_valid(entry) || !out->ok || bytes > out->cap - out->len)
		return false;
	at = wire_reserve(out, bytes);
	at[0] = entry->op;
	at[1] = (uint8_t)(bytes - 2);
	if (entry->op == WIRE_PART_SLOT) {
		const struct slot_bytes s = {
			entry->slot, entry->term, entry->config_epoch, entry->balance_version};

		memcpy(at + 2, &s, sizeof(s));
	} else {
		memcpy(at + 2, entry->uid.bytes, entry->uid.len);
	}
	return true;
}

// Takes one entry off. Returns: 0 or why there is none.
static int entry_take(struct wire_view *body, struct wire_part_entry *e)
{
	uint32_t len;

	if (body->len < 2)
		return CTR_DROP_SHORT;
	len = body->p[1];
	if (body->len - 2 < len)
		return CTR_DROP_SHORT;
	*e = (struct wire_part_entry){.op = body->p[0]};
	if (e->op == WIRE_PART_SLOT) {
		struct slot_bytes s;

		if (len != sizeof(s))
			return CTR_DROP_FIELD;
		memcpy(&s, body->p + 2, sizeof(s));
		e->slot = s.slot;
		e->term = s.term;
		e->config_epoch = s.config_epoch;
		e->balance_version = s.balance_version;
	} else {
		e->uid = id_view_of(body->p + 2, (uint8_t)len);
	}
	if (!entry_valid(e))
		return CTR_DROP_FIELD;
	body->p += 2 + len;
	body->len -= 2 + len;
	return 0;
}

bool wire_part_next(struct wire_view *body, struct wire_part_entry *entry)
{
	return body->len != 0 && entry_take(body, entry) == 0;
}

// True when `body` is just so many entries, none GONE in a whole partition, slots before UIDs.
static int entries_check(struct wire_view body, uint32_t count, bool delta)
{
	struct wire_part_entry e;
	bool uids = false;

	for (uint32_t i = 0; i < count; i++) {
		const int bad = entry_take(&body, &e);

		if (bad != 0)
			return bad;
		if ((e.op == WIRE_PART_GONE && !delta) || (e.op == WIRE_PART_SLOT && uids))
			return CTR_DROP_FIELD;
		uids = uids || e.op != WIRE_PART_SLOT;
	}
	return body.len == 0 ? 0 : CTR_DROP_LENGTH;
}

bool wire_put_tag_part(struct wire_buf *out, const struct wire_tag_part *m)
{
	struct tag_part_bytes b = {
		.request_id = m->request_id,
		.tag_version = m->tag_version,
		.base_version = m->base_version,
		.smv = m->smv,
		.table_version = m->table_version,
		.leader = m->leader,
		.term = m->authority.term,
		.channel_epoch = m->authority.channel_epoch,
		.leader_epoch = m->authority.leader_epoch,
		.slot = m->authority.slot,
		.index = m->index,
		.count = m->count,
		.members = m->members,
		.retry_after_ms = m->retry_after_ms,
		.entries = m->entries,
		.status = m->status,
	};
	uint8_t *at;

	memcpy(b.tag_key, m->tag_key, sizeof(b.tag_key));
	if (!tag_part_valid(&b) || entries_check(m->body, m->entries, m->base_version != 0) != 0)
		return wire_refuse(out);
	at = wire_reserve(out, (uint32_t)sizeof(b) + m->body.len);
	if (at == NULL)
		return false;
	at = wire_copy(at, &b, sizeof(b));
	wire_copy(at, m->body.p, m->body.len);
	return true;
}

int wire_get_tag_part(struct wire_view body, struct wire_tag_part *m)
{
	struct tag_part_bytes b;

	if (body.len < sizeof(b))
		return CTR_DROP_SHORT;
	memcpy(&b, body.p, sizeof(b));
	if (!tag_part_valid(&b))
		return CTR_DROP_FIELD;
	*m = (struct wire_tag_part){
		.request_id = b.request_id,
		.status = b.status,
		.tag_version = b.tag_version,
		.base_version = b.base_version,
		.smv = b.smv,
		.table_version = b.table_version,
		.leader = b.leader,
		.authority = {b.slot, b.term, b.channel_epoch, b.leader_epoch},
		.index = b.index,
		.count = b.count,
		.members = b.members,
		.retry_after_ms = b.retry_after_ms,
		.entries = b.entries,
		.body = {.p = body.p + sizeof(b), .len = body.len - (uint32_t)sizeof(b)},
	};
	memcpy(m->tag_key, b.tag_key, sizeof(m->tag_key));
	return entries_check(m->body, m->entries, m->base_version != 0);
}
