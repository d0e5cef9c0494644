/* SPDX-License-Identifier: BSD-3-Clause */
// HELLO, HEARTBEAT and ANNOUNCE with their answers. BYE has no body. Pure functions, any thread.
// Each answer is no larger than the smallest question it answers: nobody is amplified.
#include "wire.h"

#include <assert.h>

#include "wire_pvt.h"

// clang-format off
struct WIRE_PACKED hello_bytes {
	uint8_t role;         //  0 enum wire_role
	uint8_t version_min;  //  1
	uint8_t version_max;  //  2 >= version_min
	uint8_t zero3;        //  3
	uint16_t mtu;         //  4 MTU_MIN..MTU_MAX
	uint16_t zero6;       //  6
	uint64_t cookie;      //  8
	uint8_t pad[48];      // 16 zero
};
struct WIRE_PACKED hello_ack_bytes {
	uint16_t status;            //  0 enum wire_status
	uint8_t version;            //  2
	uint8_t workers;            //  3 1..WORKERS_MAX
	uint16_t port_base;         //  4
	uint16_t mtu;               //  6
	uint64_t cookie;            //  8
	uint64_t node_id;           // 16
	uint64_t node_boot;         // 24
	uint64_t topology_version;  // 32
	uint32_t payload_max;       // 40
	uint32_t heartbeat_ms;      // 44
};
struct WIRE_PACKED heartbeat_bytes {
	uint64_t stamp;     //  0
	uint32_t sessions;  //  8
	uint8_t pad[20];    // 12 zero
};
struct WIRE_PACKED heartbeat_ack_bytes {
	uint64_t stamp;             //  0
	uint64_t topology_version;  //  8
	uint64_t next_expected;     // 16
	uint32_t sessions;          // 24
	uint16_t status;            // 28 enum wire_status
	uint16_t zero30;            // 30
};
struct WIRE_PACKED announce_bytes {
	uint64_t stream_seq;  //  0 from 1
	uint16_t count;       //  8 entries, from 1
	uint16_t zero10;      // 10
	uint32_t zero12;      // 12
};
// One entry, before its UID: op 0..7, UID length 8..15, slot 16..39, generation 40..63.
#define ENTRY_BYTES 8u
struct WIRE_PACKED announce_ack_bytes {
	uint64_t stream_seq;     //  0
	uint64_t next_expected;  //  8
	uint16_t status;         // 16 enum wire_status
	uint16_t rejected;       // 18
	uint16_t listed;         // 20 rejects that follow: u16 position, u16 status; <= rejected
	uint16_t zero22;         // 22
};
// clang-format on
#define REJECT_BYTES 4u

_Static_assert(sizeof(struct hello_bytes) == WIRE_HELLO_BYTES, "wire format");
_Static_assert(sizeof(struct hello_ack_bytes) == 48, "wire format");
_Static_assert(sizeof(struct heartbeat_bytes) == 32, "wire format");
_Static_assert(sizeof(struct heartbeat_ack_bytes) == 32, "wire format");
_Static_assert(sizeof(struct announce_bytes) == 16, "wire format");
_Static_assert(sizeof(struct announce_ack_bytes) == 24, "wire format");
_Static_assert(sizeof(struct hello_ack_bytes) <= sizeof(struct hello_bytes), "no amplification");
_Static_assert(
	sizeof(struct heartbeat_ack_bytes) <= sizeof(struct heartbeat_bytes), "no amplification");
_Static_assert(sizeof(struct announce_ack_bytes) <= sizeof(struct announce_bytes) + ENTRY_BYTES + 1,
	"no amplification: an answer without rejects to an announcement of one entry");

// --- HELLO --------------------------------------------------------------------------------------------

static bool hello_valid(const struct wire_hello *m)
{
	return m->role >= WIRE_ROLE_PUBLISHER && m->role <= WIRE_ROLE_NODE && m->version_min >= 1 &&
	       m->version_min <= m->version_max && m->mtu >= MTU_MIN && m->mtu <= MTU_MAX;
}

bool wire_put_hello(struct wire_buf *out, const struct wire_hello *m)
{
	const struct hello_bytes b = {
		.role = m->role,
		.version_min = m->version_min,
		.version_max = m->version_max,
		.mtu = m->mtu,
		.cookie = m->cookie,
	};
	uint8_t *at;

	if (!hello_valid(m))
		return wire_refuse(out);
	at = wire_reserve(out, sizeof(b));
	if (at == NULL)
		return false;
	memcpy(at, &b, sizeof(b));
	return true;
}

int wire_get_hello(struct wire_view body, struct wire_hello *m)
{
	struct hello_bytes b;

	if (body.len < sizeof(b))
		return CTR_DROP_SHORT;
	if (body.len > sizeof(b))
		return CTR_DROP_LENGTH;
	memcpy(&b, body.p, sizeof(b));
	*m = (struct wire_hello){
		.role = b.role,
		.version_min = b.version_min,
		.version_max = b.version_max,
		.mtu = b.mtu,
		.cookie = b.cookie,
	};
	if (b.zero3 != 0 || b.zero6 != 0 || !wire_all_zero(b.pad, sizeof(b.pad)) || !hello_valid(m))
		return CTR_DROP_FIELD;
	return 0;
}

// With a status other than OK only the status and the cookie mean something; what is told beyond them
// must still be possible.
static bool hello_ack_valid(const struct wire_hello_ack *m)
{
	const bool ok = m->status == WIRE_OK;

	if (m->status >= WIRE_STATUS_COUNT || m->workers > WORKERS_MAX ||
		m->payload_max > PAYLOAD_MAX || (uint32_t)m->port_base + m->workers > 65536u)
		return false;
	if (m->mtu != 0 && (m->mtu < MTU_MIN || m->mtu > MTU_MAX))
		return false;
	return !ok || (m->workers != 0 && m->port_base != 0 && m->mtu != 0 && m->version != 0 &&
			      m->node_id != 0 && m->node_boot != 0 && m->heartbeat_ms != 0);
}

bool wire_put_hello_ack(struct wire_buf *out, const struct wire_hello_ack *m)
{
	const struct hello_ack_bytes b = {
		.status = m->status,
		.version = m->version,
		.workers = m->workers,
		.port_base = m->port_base,
		.mtu = m->mtu,
		.cookie = m->cookie,
		.node_id = m->node_id,
		.node_boot = m->node_boot,
		.topology_version = m->topology_version,
		.payload_max = m->payload_max,
		.heartbeat_ms = m->heartbeat_ms,
	};
	uint8_t *at;

	if (!hello_ack_valid(m))
		return wire_refuse(out);
	at = wire_reserve(out, sizeof(b));
	if (at == NULL)
		return false;
	memcpy(at, &b, sizeof(b));
	return true;
}

int wire_get_hello_ack(struct wire_view body, struct wire_hello_ack *m)
{
	struct hello_ack_bytes b;

	if (body.len < sizeof(b))
		return CTR_DROP_SHORT;
	if (body.len > sizeof(b))
		return CTR_DROP_LENGTH;
	memcpy(&b, body.p, sizeof(b));
	*m = (struct wire_hello_ack){
		.status = b.status,
		.cookie = b.cookie,
		.node_id = b.node_id,
		.node_boot = b.node_boot,
		.port_base = b.port_base,
		.workers = b.workers,
		.version = b.version,
		.mtu = b.mtu,
		.payload_max = b.payload_max,
		.heartbeat_ms = b.heartbeat_ms,
		.topology_version = b.topology_version,
	};
	return hello_ack_valid(m) ? 0 : CTR_DROP_FIELD;
}

// --- HEARTBEAT ----------------------------------------------------------------------------------------

bool wire_put_heartbeat(struct wire_buf *out, const struct wire_heartbeat *m)
{
	const struct heartbeat_bytes b = {.stamp = m->stamp, .sessions = m->sessions};
	uint8_t *const at = wire_reserve(out, sizeof(b));

	if (at == NULL)
		return false;
	memcpy(at, &b, sizeof(b));
	return true;
}

int wire_get_heartbeat(struct wire_view body, struct wire_heartbeat *m)
{
	struct heartbeat_bytes b;

	if (body.len < sizeof(b))
		return CTR_DROP_SHORT;
	if (body.len > sizeof(b))
		return CTR_DROP_LENGTH;
	memcpy(&b, body.p, sizeof(b));
	if (!wire_all_zero(b.pad, sizeof(b.pad)))
		return CTR_DROP_FIELD;
	*m = (struct wire_heartbeat){.stamp = b.stamp, .sessions = b.sessions};
	return 0;
}

bool wire_put_heartbeat_ack(struct wire_buf *out, const struct wire_heartbeat_ack *m)
{
	const struct heartbeat_ack_bytes b = {
		.stamp = m->stamp,
		.topology_version = m->topology_version,
		.next_expected = m->next_expected,
		.sessions = m->sessions,
		.status = m->status,
	};
	uint8_t *at;

	if (m->status >= WIRE_STATUS_COUNT)
		return wire_refuse(out);
	at = wire_reserve(out, sizeof(b));
	if (at == NULL)
		return false;
	memcpy(at, &b, sizeof(b));
	return true;
}

int wire_get_heartbeat_ack(struct wire_view body, struct wire_heartbeat_ack *m)
{
	struct heartbeat_ack_bytes b;

	if (body.len < sizeof(b))
		return CTR_DROP_SHORT;
	if (body.len > sizeof(b))
		return CTR_DROP_LENGTH;
	memcpy(&b, body.p, sizeof(b));
	if (b.status >= WIRE_STATUS_COUNT || b.zero30 != 0)
		return CTR_DROP_FIELD;
	*m = (struct wire_heartbeat_ack){
		.stamp = b.stamp,
		.topology_version = b.topology_version,
		.next_expected = b.next_expected,
		.sessions = b.sessions,
		.status = b.status,
	};
	return 0;
}

// --- ANNOUNCE -----------------------------------------------------------------------------------------

bool wire_announce_begin(struct wire_buf *out, uint64_t stream_seq)
{
	const struct announce_bytes b = {.stream_seq = stream_seq};
	uint8_t *at;

	assert(out->len == 0);
	if (stream_seq == 0)
		return wire_refuse(out);
	at = wire_reserve(out, sizeof(b));
	if (at == NULL)
		return false;
	memcpy(at, &b, sizeof(b));
	return true;
}

bool wire_announce_add(struct wire_buf *out, const struct wire_session *session)
{
	const uint32_t bytes = ENTRY_BYTES + session->uid.len;
	struct announce_bytes b;
	uint64_t entry;
	uint8_t *at;

	assert(session->slot <= WIRE_U24_MAX && session->gen <= WIRE_U24_MAX);
	assert(session->uid.len != 0);
	assert(session->op == WIRE_SESSION_OPEN || session->op == WIRE_SESSION_CLOSE);
	if (!out->ok || out->len < sizeof(b) || bytes > out->cap - out->len)
		return false;
	memcpy(&b, out->p, sizeof(b));
	if (b.count == UINT16_MAX)
		return false;
	b.count++;
	memcpy(out->p, &b, sizeof(b));
	at = wire_reserve(out, bytes);
	entry = (uint64_t)session->op | (uint64_t)session->uid.len << 8 |
		(uint64_t)session->slot << 16 | (uint64_t)session->gen << 40;
	memcpy(at, &entry, sizeof(entry));
	memcpy(at + sizeof(entry), session->uid.bytes, session->uid.len);
	return true;
}

// Takes one entry off. Returns: 0 or why there is none.
static int entry_take(struct wire_view *entries, struct wire_session *session)
{
	uint64_t entry;

	if (entries->len < ENTRY_BYTES)
		return CTR_DROP_SHORT;
	memcpy(&entry, entries->p, sizeof(entry));
	session->op = (uint8_t)entry;
	session->uid = id_view_of(entries->p + ENTRY_BYTES, (uint8_t)(entry >> 8));
	session->slot = (uint32_t)(entry >> 16) & WIRE_U24_MAX;
	session->gen = (uint32_t)(entry >> 40);
	if (session->op != WIRE_SESSION_OPEN && session->op != WIRE_SESSION_CLOSE)
		return CTR_DROP_FIELD;
	if (session->uid.len == 0)
		return CTR_DROP_FIELD;
	if (entries->len - ENTRY_BYTES < session->uid.len)
		return CTR_DROP_SHORT;
	entries->p += ENTRY_BYTES + session->uid.len;
	entries->len -= ENTRY_BYTES + session->uid.len;
	return 0;
}

int wire_get_announce(struct wire_view body, struct wire_announce *m)
{
	struct announce_bytes b;
	struct wire_session session;
	struct wire_view rest;

	if (body.len < sizeof(b))
		return CTR_DROP_SHORT;
	memcpy(&b, body.p, sizeof(b));
	if (b.stream_seq == 0 || b.count == 0 || b.zero10 != 0 || b.zero12 != 0)
		return CTR_DROP_FIELD;
	m->stream_seq = b.stream_seq;
	m->count = b.count;
	m->entries = (struct wire_view){
		.p = body.p + sizeof(b),
		.len = body.len - (uint32_t)sizeof(b),
	};
	rest = m->entries;
	for (uint32_t i = 0; i < b.count; i++) {
		const int bad = entry_take(&rest, &session);

		if (bad != 0)
			return bad;
	}
	return rest.len == 0 ? 0 : CTR_DROP_LENGTH;
}

bool wire_announce_next(struct wire_view *entries, struct wire_session *session)
{
	return entries->len != 0 && entry_take(entries, session) == 0;
}

bool wire_put_announce_ack(struct wire_buf *out, const struct wire_announce_ack *m)
{
	const struct announce_ack_bytes b = {
		.stream_seq = m->stream_seq,
		.next_expected = m->next_expected,
		.status = m->status,
		.rejected = m->rejected,
		.listed = (uint16_t)(m->rejects.len / REJECT_BYTES),
	};
	uint8_t *at;

	if (m->status >= WIRE_STATUS_COUNT || m->rejects.len % REJECT_BYTES != 0 ||
		m->rejects.len / REJECT_BYTES > m->rejected)
		return wire_refuse(out);
	at = wire_reserve(out, (uint32_t)sizeof(b) + m->rejects.len);
	if (at == NULL)
		return false;
	memcpy(at, &b, sizeof(b));
	wire_copy(at + sizeof(b), m->rejects.p, m->rejects.len);
	return true;
}

int wire_get_announce_ack(struct wire_view body, struct wire_announce_ack *m)
{
	struct announce_ack_bytes b;
	int drop;

	if (body.len < sizeof(b))
		return CTR_DROP_SHORT;
	memcpy(&b, body.p, sizeof(b));
	if (b.status >= WIRE_STATUS_COUNT || b.listed > b.rejected || b.zero22 != 0)
		return CTR_DROP_FIELD;
	drop = wire_rest(body, (uint32_t)sizeof(b), b.listed * REJECT_BYTES);
	if (drop != 0)
		return drop;
	*m = (struct wire_announce_ack){
		.stream_seq = b.stream_seq,
		.next_expected = b.next_expected,
		.status = b.status,
		.rejected = b.rejected,
		.rejects = {.p = body.p + sizeof(b), .len = b.listed * REJECT_BYTES},
	};
	return 0;
}
