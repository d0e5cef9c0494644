/* SPDX-License-Identifier: BSD-3-Clause */
// TASK and its answer, and what statuses of answers between nodes mean. Pure functions, any thread.
#include "wire_node.h"

#include "wire_pvt.h"

// clang-format off
struct WIRE_PACKED task_bytes {
	uint64_t task_id;         //   0
	uint64_t message_id;      //   8 never 0
	uint64_t seq;             //  16 never 0
	uint64_t stamp;           //  24
	uint8_t tag_key[16];      //  32 zero when scoped
	uint64_t tag_version;     //  48 0 when scoped, never else
	uint64_t target;          //  56 never 0
	uint64_t term;            //  64 never 0
	uint64_t channel_epoch;   //  72
	uint64_t leader_epoch;    //  80
	uint64_t sender_gateway;  //  88 0: no session; then the next three are 0 too
	uint64_t sender_boot;     //  96 never 0 with a gateway
	uint32_t sender_slot;     // 104 < 2^24
	uint32_t sender_gen;      // 108 < 2^24
	uint32_t slot;            // 112 never 0
	uint32_t deadline_ms;     // 116
	uint32_t payload_bytes;   // 120 <= PAYLOAD_MAX
	uint32_t uid_bytes;       // 124 0 unless scoped
	uint32_t uids;            // 128 0 unless scoped
	uint8_t ack;              // 132 enum wire_ack_class
	uint8_t channel_type;     // 133 1..12
	uint8_t channel_len;      // 134 1..255
	uint8_t from_len;         // 135 0..255
	uint8_t attempt;          // 136
	uint8_t flags;            // 137 enum wire_task_flag
	uint16_t zero138;         // 138
};                                // then channel id, from UID, payload, UIDs (u8 length, bytes)
struct WIRE_PACKED task_ack_bytes {
	uint64_t task_id;         //  0
	uint64_t message_id;      //  8
	uint8_t tag_key[16];      // 16
	uint64_t tag_version;     // 32
	uint64_t leader;          // 40
	uint64_t term;            // 48
	uint32_t members;         // 56
	uint32_t routes;          // 60
	uint32_t acked;           // 64
	uint32_t ended;           // 68
	uint32_t retry_after_ms;  // 72
	uint16_t status;          // 76 any
	uint8_t duplicate;        // 78 0, 1
	uint8_t zero79;           // 79
};
// clang-format on
_Static_assert(sizeof(struct task_bytes) == WIRE_TASK_BYTES, "wire format");
_Static_assert(offsetof(struct task_bytes, target) == 56, "wire format");
_Static_assert(offsetof(struct task_bytes, payload_bytes) == 120, "wire format");
_Static_assert(offsetof(struct task_bytes, flags) == 137, "wire format");
_Static_assert(sizeof(struct task_ack_bytes) == 80, "wire format");
_Static_assert(sizeof(struct task_ack_bytes) <= sizeof(struct task_bytes), "no amplification");
_Static_assert(
	WIRE_TASK_BYTES + 2u * ID_LEN_MAX + PAYLOAD_MAX + WIRE_TASK_UIDS_MAX <= FRAME_BYTES_MAX,
	"a frame holds the largest task");

static bool task_valid(const struct task_bytes *b)
{
	const bool scoped = (b->flags & WIRE_TASK_SCOPED) != 0;
	const bool no_key = wire_all_zero(b->tag_key, sizeof(b->tag_key));

	if (b->message_id == 0 || b->seq == 0 || b->target == 0 || b->term == 0 || b->slot == 0 ||
		b->ack > WIRE_ACK_CLIENT || b->payload_bytes > PAYLOAD_MAX)
		return false;
	if ((b->flags & ~(unsigned)WIRE_TASK_SCOPED) != 0 || b->zero138 != 0)
		return false;
	if (scoped ? !no_key || b->tag_version != 0 || b->uids == 0
		   : b->tag_version == 0 || b->uids != 0 || b->uid_bytes != 0)
		return false;
	if (b->uid_bytes > WIRE_TASK_UIDS_MAX || b->channel_type == 0 ||
		b->channel_type > CHANNEL_TYPE_MAX || b->channel_len == 0)
		return false;
	if (b->sender_gateway == 0)
		return b->sender_boot == 0 && b->sender_slot == 0 && b->sender_gen == 0;
	return b->sender_boot != 0 && b->sender_slot <= WIRE_U24_MAX &&
	       b->sender_gen <= WIRE_U24_MAX;
}

bool wire_uids_next(struct wire_view *uids, struct id_view *uid)
{
	if (uids->len < 1 || uids->p[0] == 0 || uids->len - 1 < uids->p[0])
		return false;
	*uid = id_view_of(uids->p + 1, uids->p[0]);
	uids->p += 1 + uid->len;
	uids->len -= 1u + uid->len;
	return true;
}

static bool uids_are(struct wire_view uids, uint32_t count)
{
	struct id_view uid;

	while (count != 0 && wire_uids_next(&uids, &uid))
		count--;
	return count == 0 && uids.len == 0;
}

bool wire_put_task(struct wire_buf *out, const struct wire_task *m)
{
	struct task_bytes b = {
		.task_id = m->task_id,
		.message_id = m->message_id,
		.seq = m->seq,
		.stamp = m->stamp,
		.tag_version = m->tag_version,
		.target = m->target,
		.term = m->authority.term,
		.channel_epoch = m->authority.channel_epoch,
		.leader_epoch = m->authority.leader_epoch,
		.sender_gateway = m->sender_gateway,
		.sender_boot = m->sender_boot,
		.sender_slot = m->sender_slot,
		.sender_gen = m->sender_gen,
		.slot = m->authority.slot,
		.deadline_ms = m->deadline_ms,
		.payload_bytes = m->payload.len,
		.uid_bytes = m->uids.len,
		.uids = m->uid_count,
		.ack = m->ack,
		.channel_type = m->channel_type,
		.channel_len = m->channel.len,
		.from_len = m->from_uid.len,
		.attempt = m->attempt,
		.flags = m->flags,
	};
	uint8_t *at;

	memcpy(b.tag_key, m->tag_key, sizeof(b.tag_key));
	if (!task_valid(&b) || !uids_are(m->uids, m->uid_count))
		return wire_refuse(out);
	at = wire_reserve(out,
		(uint32_t)sizeof(b) + b.channel_len + b.from_len + b.payload_bytes + b.uid_bytes);
	if (at == NULL)
		return false;
	at = wire_copy(at, &b, sizeof(b));
	at = wire_copy(at, m->channel.bytes, b.channel_len);
	at = wire_copy(at, m->from_uid.bytes, b.from_len);
	at = wire_copy(at, m->payload.p, b.payload_bytes);
	wire_copy(at, m->uids.p, b.uid_bytes);
	return true;
}

int wire_get_task(struct wire_view body, struct wire_task *m)
{
	struct task_bytes b;
	const uint8_t *at;
	uint32_t want;
	int drop;

	if (body.len < sizeof(b))
		return CTR_DROP_SHORT;
	memcpy(&b, body.p, sizeof(b));
	if (!task_valid(&b))
		return CTR_DROP_FIELD;
	at = body.p + sizeof(b);
	want = (uint32_t)b.channel_len + b.from_len + b.payload_bytes + b.uid_bytes;
	drop = wire_rest(body, (uint32_t)sizeof(b), want);
	if (drop != 0)
		return drop;
	*m = (struct wire_task){
		.task_id = b.task_id,
		.message_id = b.message_id,
		.seq = b.seq,
		.stamp = b.stamp,
		.tag_version = b.tag_version,
		.target = b.target,
		.authority = {b.slot, b.term, b.channel_epoch, b.leader_epoch},
		.deadline_ms = b.deadline_ms,
		.ack = b.ack,
		.attempt = b.attempt,
		.flags = b.flags,
		.channel_type = b.channel_type,
		.sender_gateway = b.sender_gateway,
		.sender_boot = b.sender_boot,
		.sender_slot = b.sender_slot,
		.sender_gen = b.sender_gen,
		.uid_count = b.uids,
	};
	memcpy(m->tag_key, b.tag_key, sizeof(m->tag_key));
	m->channel = id_view_of(at, b.channel_len);
	at += b.channel_len;
	m->from_uid = id_view_of(at, b.from_len);
	at += b.from_len;
	m->payload = (struct wire_view){.p = at, .len = b.payload_bytes};
	at += b.payload_bytes;
	m->uids = (struct wire_view){.p = at, .len = b.uid_bytes};
	return uids_are(m->uids, m->uid_count) ? 0 : CTR_DROP_FIELD;
}

bool wire_put_task_ack(struct wire_buf *out, const struct wire_task_ack *m)
{
	struct task_ack_bytes b = {
		.task_id = m->task_id,
		.message_id = m->message_id,
		.tag_version = m->tag_version,
		.leader = m->leader,
		.term = m->term,
		.members = m->members,
		.routes = m->routes,
		.acked = m->acked,
		.ended = m->ended,
		.retry_after_ms = m->retry_after_ms,
		.status = m->status,
		.duplicate = m->duplicate,
	};
	uint8_t *at;

	if (m->duplicate > 1)
		return wire_refuse(out);
	memcpy(b.tag_key, m->tag_key, sizeof(b.tag_key));
	at = wire_reserve(out, sizeof(b));
	if (at == NULL)
		return false;
	memcpy(at, &b, sizeof(b));
	return true;
}

int wire_get_task_ack(struct wire_view body, struct wire_task_ack *m)
{
	struct task_ack_bytes b;

	if (body.len < sizeof(b))
		return CTR_DROP_SHORT;
	if (body.len > sizeof(b))
		return CTR_DROP_LENGTH;
	memcpy(&b, body.p, sizeof(b));
	if (b.duplicate > 1 || b.zero79 != 0)
		return CTR_DROP_FIELD;
	*m = (struct wire_task_ack){
		.task_id = b.task_id,
		.message_id = b.message_id,
		.status = b.status,
		.duplicate = b.duplicate,
		.retry_after_ms = b.retry_after_ms,
		.tag_version = b.tag_version,
		.leader = b.leader,
		.term = b.term,
		.members = b.members,
		.routes = b.routes,
		.acked = b.acked,
		.ended = b.ended,
	};
	memcpy(m->tag_key, b.tag_key, sizeof(m->tag_key));
	return 0;
}

// --- statuses -----------------------------------------------------------------------------------------

#define BIT(s) (UINT32_C(1) << (s))
_Static_assert(WIRE_STATUS_COUNT <= 32, "a set of statuses is one word");

static enum wire_status status_of(uint16_t status, uint32_t known, bool *unknown)
{
	*unknown = status >= WIRE_STATUS_COUNT || (known & BIT(status)) == 0;
	return *unknown ? WIRE_RETRYABLE : (enum wire_status)status;
}

enum wire_status wire_task_status(uint16_t status, bool *unknown)
{
	return status_of(status,
		BIT(WIRE_ACCEPTED) | BIT(WIRE_COMPLETED) | BIT(WIRE_RETRYABLE) |
			BIT(WIRE_TAG_MISMATCH) | BIT(WIRE_NOT_LEADER) | BIT(WIRE_BUSY) |
			BIT(WIRE_TOO_LARGE) | BIT(WIRE_NOT_READY),
		unknown);
}

enum wire_status wire_pull_status(uint16_t status, bool *unknown)
{
	return status_of(status,
		BIT(WIRE_OK) | BIT(WIRE_NOT_LEADER) | BIT(WIRE_TAG_NOT_CURRENT) |
			BIT(WIRE_TAG_VERSION_MISMATCH) | BIT(WIRE_TAG_NOT_FOUND) |
			BIT(WIRE_RETRYABLE) | BIT(WIRE_BUSY),
		unknown);
}

enum wire_status wire_hint_status(uint16_t status, bool *unknown)
{
	return status_of(status,
		BIT(WIRE_OK) | BIT(WIRE_NOT_LEADER) | BIT(WIRE_RETRYABLE) | BIT(WIRE_BUSY),
		unknown);
}
