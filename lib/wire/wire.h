/* SPDX-License-Identifier: BSD-3-Clause */
// Every message tagcast puts into a UDP datagram: one builder, one parser, one printer each.
// Little-endian, unaligned, versioned. A datagram is: header (40), body, and with WIRE_AUTH set a
// 16-byte authentication tag. Parsers check every length before use and return a drop counter; what they
// return points into the datagram. Pure functions, any thread; nothing is allocated.
//
// Header, 40 bytes:
//   0 u16 magic "TC"   2 u8 version   3 u8 type   4 u8 flags   5 u8 key id   6 u8 lane   7 u8 zero
//   8 u64 sender id   16 u64 sender boot id   24 u64 sequence   32 u16 datagram bytes   34 u16 zero
//   36 u32 zero
// Lane: which of the sender's sequence spaces this is, (sender, boot, lane) counts from 1. Under
// authentication the receiver's boot id is mixed into the tag without being sent (0 in HELLO).
//
// Steering: worker w of a node listens on UDP port base + w. A datagram belongs to the worker of its
// destination port, whatever queue it came in on.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base_counters.h"
#include "base_id.h"
#include "dgram.h"

#define WIRE_MAGIC 0x4354u  // "TC" in memory
#define WIRE_VERSION 1u
#define WIRE_HEADER_BYTES 40u
#define WIRE_TAG_BYTES 16u
#define WIRE_UDP_OVERHEAD 28u  // IPv4 + UDP headers of an MTU

enum wire_type {
	WIRE_HELLO = 1,  // client -> node
	WIRE_HELLO_ACK = 2,  // node -> client
	WIRE_HEARTBEAT = 3,  // gateway -> node
	WIRE_HEARTBEAT_ACK = 4,  // node -> gateway
	WIRE_ANNOUNCE = 5,  // gateway -> node: sessions come and go
	WIRE_ANNOUNCE_ACK = 6,  // node -> gateway
	WIRE_BYE = 7,  // gateway -> node: all its sessions end
	WIRE_PUBLISH = 8,  // publisher -> node
	WIRE_PUBLISH_ACK = 9,  // node -> publisher: the outcome
	WIRE_TASK = 10,  // leader -> owner node: deliver a message to your partition
	WIRE_TASK_ACK = 11,  // owner node -> leader
	WIRE_TAG_GET = 12,  // owner node -> leader: chunks of its partition wanted
	WIRE_TAG_PART = 13,  // leader -> owner node: one chunk, or why not
	WIRE_HINT = 14,  // node <-> leader: a channel changed; is its commit applied
	WIRE_PRESENCE = 15,  // owner node <-> gateway: which hash slots wait for its sessions
	WIRE_PUSH = 16,  // node -> gateway
	WIRE_PUSH_ACK = 17,  // gateway -> node
	WIRE_RECEIPT = 18,  // gateway -> node
	WIRE_SEGMENT = 19,  // a part of a frame too large for one datagram
};

enum wire_flag {
	WIRE_AUTH = 1 << 0,  // an authentication tag follows the body
};

// What a peer is told. One vocabulary for all answers; values are wire format, never reordered.
enum wire_status {
	WIRE_OK = 0,
	WIRE_RETRYABLE = 1,  // cannot decide now; try again later
	WIRE_NOT_LEADER = 2,  // leader's address is given when known
	WIRE_BUSY = 3,  // a limit was reached; try again after retry_after_ms
	WIRE_TOO_LARGE = 4,  // payload over the limit
	WIRE_UNKNOWN_CHANNEL = 5,  // no such channel
	WIRE_BAD_REQUEST = 6,  // a field is invalid
	WIRE_NEED_HELLO = 7,  // address or boot id not known: HELLO first
	WIRE_EXPIRED = 8,  // deadline passed before the message could be resolved
	WIRE_UNKNOWN_GATEWAY = 9,  // gateway incarnation not registered: HELLO, then announce all
	WIRE_OUT_OF_ORDER = 10,  // announce out of sequence; next_expected says where to go on
	WIRE_LIMIT = 11,  // a table is full
	WIRE_TOO_MANY_SESSIONS = 12,  // UID already has its limit of sessions
	WIRE_STALE = 13,  // withdraw of a session or generation that is not there
	WIRE_INCOMPLETE = 14,  // ack=client: ended, but not every route was acknowledged
	WIRE_UNSUPPORTED = 15,  // no common protocol version
	WIRE_ACCEPTED = 16,  // task taken over: not to be sent again in this incarnation
	WIRE_COMPLETED = 17,  // task ended, every recipient with its outcome
	WIRE_TAG_MISMATCH = 18,  // task of a fence that the leader says is past
	WIRE_TAG_NOT_CURRENT = 19,  // key of a past incarnation; the current fence is given
	WIRE_TAG_VERSION_MISMATCH = 20,  // version never published here; the current fence is given
	WIRE_TAG_NOT_FOUND = 21,  // the leader has no tag of the channel
	WIRE_NOT_READY = 22,  // presence of a slot is still being handed over
	WIRE_STATUS_COUNT
};
const char *wire_status_name(enum wire_status status);
const char *wire_type_name(uint8_t type);

enum wire_ack_class { WIRE_ACK_NONE = 0, WIRE_ACK_GATEWAY = 1, WIRE_ACK_CLIENT = 2 };

struct wire_header {
	uint8_t type;
	uint8_t flags;
	uint8_t key_id;
	uint8_t lane;
	uint64_t sender;
	uint64_t boot;
	uint64_t seq;
	uint16_t bytes;
};

// Bounded writer and reader over bytes; `ok` turns false on the first overrun and stays so.
struct wire_buf {
	uint8_t *p;
	uint32_t len;
	uint32_t cap;
	bool ok;
};
struct wire_view {
	const uint8_t *p;
	uint32_t len;
};

// --- header -------------------------------------------------------------------------------------------

// Writes a header for a datagram of `bytes` in all (tag included) at p[0..40). Inline and by words: built
// as a struct on the stack and copied from there, it would wait for its own narrow stores at each datagram.
static inline void wire_put_header(uint8_t *p, const struct wire_header *header)
{
	const uint64_t first = WIRE_MAGIC | (uint64_t)WIRE_VERSION << 16 |
			       (uint64_t)header->type << 24 | (uint64_t)header->flags << 32 |
			       (uint64_t)header->key_id << 40 | (uint64_t)header->lane << 48;
	const uint64_t last = header->bytes;

	memcpy(p, &first, sizeof(first));
	memcpy(p + 8, &header->sender, sizeof(header->sender));
	memcpy(p + 16, &header->boot, sizeof(header->boot));
	memcpy(p + 24, &header->seq, sizeof(header->seq));
	memcpy(p + 32, &last, sizeof(last));
}

// Checks magic, version, zero fields, known flags and type range, and that the length field equals `len`.
// On success `body` is what lies between header and tag. Returns: 0, or the CTR_DROP_* that names why not.
int wire_get_header(
	const uint8_t *p, uint32_t len, struct wire_header *header, struct wire_view *body);

// --- bodies -------------------------------------------------------------------------------------------
// wire_put_x appends a body to `out`; false when it does not fit or a field is one the parser would refuse
// (nothing is appended, `out` is failed). wire_get_x parses a whole body; 0, or CTR_DROP_SHORT,
// CTR_DROP_LENGTH (bytes left over), CTR_DROP_FIELD. BYE has no body. Layouts stand beside the builders.

#define WIRE_HELLO_BYTES 64u  // padded, so that no answer is larger than the question
enum wire_role { WIRE_ROLE_PUBLISHER = 1, WIRE_ROLE_GATEWAY = 2, WIRE_ROLE_NODE = 3 };
struct wire_hello {
	uint8_t role;
	uint8_t version_min, version_max;
	uint16_t mtu;  // largest IPv4 packet the sender takes, 576..9000
	uint64_t cookie;  // 0, or what the last HELLO_ACK gave: the echo proves the address
};

struct wire_hello_ack {
	uint16_t status;  // OK, NEED_HELLO (echo the cookie), UNSUPPORTED, LIMIT
	uint64_t cookie;
	uint64_t node_id;
	uint64_t node_boot;
	uint16_t port_base;  // worker w listens on port_base + w
	uint8_t workers;  // 1..16
	uint8_t version;
	uint16_t mtu;  // the node's own
	uint32_t payload_max;
	uint32_t heartbeat_ms;  // send one this often; three missed end the incarnation
	uint64_t topology_version;  // a change asks gateways to announce again
};

struct wire_heartbeat {
	uint64_t stamp;  // echoed
	uint32_t sessions;  // the gateway's own count, for diagnosis
};
struct wire_heartbeat_ack {
	uint64_t stamp;
	uint64_t topology_version;
	uint64_t next_expected;  // of the announce stream
	uint32_t sessions;  // the node's count
	uint16_t status;  // OK, UNKNOWN_GATEWAY
};

// Sessions that opened or closed on a gateway. Frames of one incarnation are numbered from 1 and applied
// in order, once; go-back-N with next_expected.
enum wire_announce_op { WIRE_SESSION_OPEN = 1, WIRE_SESSION_CLOSE = 2 };
struct wire_announce {
	uint64_t stream_seq;
	uint16_t count;  // entries, 1..
	struct wire_view entries;  // walk with wire_announce_next
};
struct wire_session {
	uint8_t op;
	uint32_t slot;  // < 2^24, chosen by the gateway
	uint32_t gen;  // < 2^24, grows each time the slot is reused
	struct id_view uid;  // of a close too: it must match
};
struct wire_announce_ack {
	uint64_t stream_seq;  // the frame this answers
	uint64_t next_expected;
	uint16_t status;  // OK, OUT_OF_ORDER, UNKNOWN_GATEWAY
	uint16_t rejected;  // entries refused; `rejects` holds the first of them
	struct wire_view rejects;  // u16 entry position, u16 status, each
};

struct wire_publish {
	uint64_t request_id;  // the publisher's, echoed in the outcome
	uint64_t message_id;  // idempotence key together with the channel; not 0
	uint64_t stamp;  // opaque to the node, carried to receivers (send time)
	uint64_t cookie;  // from the HELLO_ACK that said OK
	uint32_t deadline_ms;  // from admission; 0: the node's default
	uint8_t ack;  // enum wire_ack_class
	uint8_t redirect;  // 1: answer not_leader instead of forwarding
	uint8_t forwarded;  // 1: by a node to the leader it knows; never forwarded again
	struct channel_key channel;
	struct id_view from_uid;  // may be empty (system message)
	// The sender's own session, which gets no echo; gateway 0: none.
	uint64_t sender_gateway, sender_boot;
	uint32_t sender_slot, sender_gen;
	struct wire_view payload;  // 0..60 KiB
	// Parsed: channel id, from UID and payload as they stand in the body, one behind the other, in the order
	// in which a push record has them. Not read by the builder.
	struct wire_view tail;
};

struct wire_publish_ack {
	uint64_t request_id;
	uint64_t message_id;
	uint64_t seq;  // of the channel in this leader incarnation; 0 when refused
	uint16_t status;
	uint8_t duplicate;  // 1: answered from the idempotence window
	uint8_t unfinished;  // owner nodes that did not answer
	uint32_t retry_after_ms;
	uint8_t tag_key[16];  // the fence used
	uint64_t tag_version;
	uint32_t members, routes, acked, ended;  // ended: without the acknowledgement asked for
	struct net_addr leader;  // for NOT_LEADER
};

// A push is a container of records; route positions count through all records of the frame from 0.
struct wire_push {
	uint32_t push_id;  // of the sending worker's lane
	uint32_t push_gen;
	uint64_t gateway_boot;  // the incarnation meant
	uint16_t records;
	uint16_t routes;  // in all records
	uint8_t need_ack;  // 1: PUSH_ACK wanted
	uint8_t attempt;  // 0 first
	struct wire_view body;  // walk with wire_push_next
};
enum wire_record_flag {
	WIRE_RECORD_LATE = 1 << 0,  // may be out of channel order: a retry
	WIRE_RECORD_RECEIPT = 1 << 1,  // receipts wanted (ack=client)
};
struct wire_record {
	uint64_t message_id;
	uint64_t seq;
	uint64_t stamp;
	uint8_t channel_type;
	uint8_t flags;
	struct id_view channel;
	struct id_view from_uid;  // len 0: none
	struct wire_view payload;
	uint16_t routes;
	const uint8_t *route;  // `routes` entries of 8 bytes: u32 slot, u32 generation
};
#define WIRE_PUSH_BYTES 24u  // fixed part of the body
#define WIRE_RECORD_BYTES 36u  // fixed part of a record, before channel, from, payload, routes
#define WIRE_ROUTE_BYTES 8u
#define WIRE_RECORD_ROUTES_OFFSET 28u  // where a record's u16 route count stands, for patching
// The fixed part of a record as words, for who writes the same record to many gateways: built as a struct
// on the stack and copied from there, it would wait for its own narrow stores.
typedef uint64_t wire_words __attribute__((vector_size(32), aligned(1), may_alias));
struct wire_record_words {
	wire_words word;  // without the routes
	uint32_t last;
};
static inline void wire_record_words(const struct wire_record *m, struct wire_record_words *w)
{
	w->word = (wire_words){
		m->message_id,
		m->seq,
		m->stamp,
		(uint64_t)m->flags << 56 | (uint64_t)m->channel_type << 48 | m->payload.len,
	};
	w->last = (uint32_t)m->from_uid.len << 8 | m->channel.len;
}
static inline void wire_put_record_words(
	uint8_t *p, const struct wire_record_words *w, uint16_t routes)
{
	*(wire_words *)(void *)p = w->word;
	memcpy(p + WIRE_RECORD_ROUTES_OFFSET, &routes, sizeof(routes));
	memcpy(p + 32, &w->last, sizeof(w->last));
}
#define WIRE_PUSH_RECORDS_OFFSET 16u  // where the push's u16 record and route counts stand

struct wire_push_ack {
	uint32_t push_id, push_gen;
	uint16_t accepted;  // count
	uint16_t retryable;  // positions listed first
	uint16_t dropped;  // positions listed after them; accepted + retryable + dropped == routes
	struct wire_view positions;  // u16 each
};
struct wire_receipt {
	uint32_t push_id, push_gen;
	uint16_t first;  // position of bit 0; multiple of 8
	struct wire_view bits;  // bit set: the client of that position acknowledged
};

// A part of a frame. Every part but the last carries the same number of bytes, part i starts at i * that.
struct wire_segment {
	uint32_t frame_id;
	uint8_t type;  // of the frame: PUBLISH, PUSH or TASK
	uint8_t attempt;  // 0 first; the bytes of the frame stay the same
	uint16_t index, count;
	uint32_t total;  // bytes of the frame's body
	uint32_t offset;
	struct wire_view part;
};
#define WIRE_SEGMENT_BYTES 20u
#define WIRE_SEGMENT_ATTEMPT_OFFSET 5u  // for patching

bool wire_put_hello(struct wire_buf *out, const struct wire_hello *m);
int wire_get_hello(struct wire_view body, struct wire_hello *m);
bool wire_put_hello_ack(struct wire_buf *out, const struct wire_hello_ack *m);
int wire_get_hello_ack(struct wire_view body, struct wire_hello_ack *m);
bool wire_put_heartbeat(struct wire_buf *out, const struct wire_heartbeat *m);
int wire_get_heartbeat(struct wire_view body, struct wire_heartbeat *m);
bool wire_put_heartbeat_ack(struct wire_buf *out, const struct wire_heartbeat_ack *m);
int wire_get_heartbeat_ack(struct wire_view body, struct wire_heartbeat_ack *m);

// Announce frames are built in place: begin, then add until false (no room; `out` stays good). Each add
// patches the count. `out` holds nothing but this body: out->p is where the body starts.
bool wire_announce_begin(struct wire_buf *out, uint64_t stream_seq);
bool wire_announce_add(struct wire_buf *out, const struct wire_session *session);
int wire_get_announce(struct wire_view body, struct wire_announce *m);
// Takes the next entry off `entries`. Returns: false at the end; get_announce has validated all of them.
bool wire_announce_next(struct wire_view *entries, struct wire_session *session);
bool wire_put_announce_ack(struct wire_buf *out, const struct wire_announce_ack *m);
int wire_get_announce_ack(struct wire_view body, struct wire_announce_ack *m);

bool wire_put_publish(struct wire_buf *out, const struct wire_publish *m);
int wire_get_publish(struct wire_view body, struct wire_publish *m);
// The same for the first part of a segmented one: the payload may be cut.
int wire_get_publish_part(struct wire_view part, struct wire_publish *m);
bool wire_put_publish_ack(struct wire_buf *out, const struct wire_publish_ack *m);
int wire_get_publish_ack(struct wire_view body, struct wire_publish_ack *m);

// Push frames are built in place: fixed part, then per record the head, then routes by the caller, then
// the counts patched through the offsets above.
bool wire_put_push(struct wire_buf *out, const struct wire_push *m);
// Head of a record: fixed part, channel, from, payload; `routes` as given.
bool wire_put_record(struct wire_buf *out, const struct wire_record *m);
int wire_get_push(struct wire_view body, struct wire_push *m);  // validates all records
bool wire_push_next(struct wire_view *body, struct wire_record *record);

static inline void wire_put_route(uint8_t *p, uint32_t slot, uint32_t gen)
{
	const uint64_t entry = (uint64_t)gen << 32 | slot;

	memcpy(p, &entry, WIRE_ROUTE_BYTES);
}

static inline void wire_get_route(const uint8_t *p, uint32_t *slot, uint32_t *gen)
{
	uint64_t entry;

	memcpy(&entry, p, WIRE_ROUTE_BYTES);
	*slot = (uint32_t)entry;
	*gen = (uint32_t)(entry >> 32);
}

bool wire_put_push_ack(struct wire_buf *out, const struct wire_push_ack *m);
int wire_get_push_ack(struct wire_view body, struct wire_push_ack *m);
uint16_t wire_position(struct wire_view positions, uint32_t i);
bool wire_put_receipt(struct wire_buf *out, const struct wire_receipt *m);
int wire_get_receipt(struct wire_view body, struct wire_receipt *m);
bool wire_put_segment(struct wire_buf *out, const struct wire_segment *m);
int wire_get_segment(struct wire_view body, struct wire_segment *m);

// One line of text for a datagram, whatever is in it: for logs, traces and tests.
// Returns: length written, cut at `size` - 1; always NUL terminated.
int wire_print(const uint8_t *p, uint32_t len, char *text, size_t size);

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "wire access copies little-endian words");
