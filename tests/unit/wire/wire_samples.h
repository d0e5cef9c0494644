/* SPDX-License-Identifier: BSD-3-Clause */
// One good body of every message type, and checks that hold for all of them. Shared by the tests of
// lib/wire and by the seed writer of the fuzzer.
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "wire_node.h"

#define SAMPLE_MAX 4096u

struct sample {
	const char *name;
	uint8_t type;
	bool (*build)(struct wire_buf *out);
	int (*parse)(struct wire_view body);
};

static bool sample_hello(struct wire_buf *out)
{
	return wire_put_hello(out, &(struct wire_hello){
					   .role = WIRE_ROLE_GATEWAY,
					   .version_min = 1,
					   .version_max = 3,
					   .mtu = 1500,
					   .cookie = 0x1122334455667788u,
				   });
}

static bool sample_hello_ack(struct wire_buf *out)
{
	return wire_put_hello_ack(out, &(struct wire_hello_ack){
					       .status = WIRE_OK,
					       .cookie = 0x8877665544332211u,
					       .node_id = 7,
					       .node_boot = 0xb007,
					       .port_base = 7400,
					       .workers = 2,
					       .version = 1,
					       .mtu = 9000,
					       .payload_max = PAYLOAD_MAX,
					       .heartbeat_ms = 1000,
					       .topology_version = 42,
				       });
}

static bool sample_heartbeat(struct wire_buf *out)
{
	return wire_put_heartbeat(
		out, &(struct wire_heartbeat){.stamp = 0x0102030405060708u, .sessions = 77});
}

static bool sample_heartbeat_ack(struct wire_buf *out)
{
	return wire_put_heartbeat_ack(out, &(struct wire_heartbeat_ack){
						   .stamp = 0x0102030405060708u,
						   .topology_version = 42,
						   .next_expected = 9,
						   .sessions = 76,
						   .status = WIRE_UNKNOWN_GATEWAY,
					   });
}

static bool sample_announce(struct wire_buf *out)
{
	const struct wire_session sessions[] = {
		{WIRE_SESSION_OPEN, 0, 1, id_view_of("alice", 5)},
		{WIRE_SESSION_CLOSE, 0xffffff, 0xfffffe, id_view_of("b", 1)},
		{WIRE_SESSION_OPEN, 3, 0, id_view_of("\0\xff\"", 3)},
	};

	if (!wire_announce_begin(out, 5))
		return false;
	for (size_t i = 0; i < sizeof(sessions) / sizeof(sessions[0]); i++) {
		if (!wire_announce_add(out, &sessions[i]))
			return false;
	}
	return true;
}

static bool sample_announce_ack(struct wire_buf *out)
{
	const uint16_t rejects[] = {0, WIRE_LIMIT, 2, WIRE_STALE};

	return wire_put_announce_ack(
		out, &(struct wire_announce_ack){
			     .stream_seq = 5,
			     .next_expected = 6,
			     .status = WIRE_OK,
			     .rejected = 3,
			     .rejects = {.p = (const uint8_t *)rejects, .len = sizeof(rejects)},
		     });
}

static bool sample_publish(struct wire_buf *out)
{
	struct wire_publish m = {
		.request_id = 11,
		.message_id = 12,
		.stamp = 13,
		.cookie = 14,
		.deadline_ms = 1500,
		.ack = WIRE_ACK_CLIENT,
		.redirect = 1,
		.from_uid = id_view_of("alice", 5),
		.sender_gateway = 21,
		.sender_boot = 22,
		.sender_slot = 23,
		.sender_gen = 24,
		.payload = {.p = (const uint8_t *)"hello, room", .len = 11},
	};

	if (channel_key_set(&m.channel, CHANNEL_GROUP, "room", 4) != 0)
		return false;
	return wire_put_publish(out, &m);
}

static bool sample_publish_ack(struct wire_buf *out)
{
	return wire_put_publish_ack(
		out, &(struct wire_publish_ack){
			     .request_id = 11,
			     .message_id = 12,
			     .seq = 99,
			     .status = WIRE_NOT_LEADER,
			     .duplicate = 1,
			     .unfinished = 3,
			     .retry_after_ms = 20,
			     .tag_key = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16},
			     .tag_version = 5,
			     .members = 1000,
			     .routes = 1200,
			     .acked = 1100,
			     .ended = 100,
			     .leader = {.ip = 0x0a000001, .port = 7400},
		     });
}

// Head of a record, then its routes (slot i, generation i + 1), count patched afterwards as workers do.
static bool sample_record(struct wire_buf *out, const struct wire_record *m, uint16_t routes)
{
	uint8_t *const at = out->p + out->len;

	if (!wire_put_record(out, m) || out->cap - out->len < routes * WIRE_ROUTE_BYTES)
		return false;
	for (uint32_t i = 0; i < routes; i++) {
		wire_put_route(out->p + out->len, i, i + 1);
		out->len += WIRE_ROUTE_BYTES;
	}
	memcpy(at + WIRE_RECORD_ROUTES_OFFSET, &routes, sizeof(routes));
	return true;
}

static bool sample_push(struct wire_buf *out)
{
	const uint32_t start = out->len;
	const uint16_t counts[2] = {2, 5};
	const struct wire_push push = {
		.push_id = 31,
		.push_gen = 32,
		.gateway_boot = 33,
		.need_ack = 1,
		.attempt = 2,
	};
	const struct wire_record first = {
		.message_id = 12,
		.seq = 99,
		.stamp = 13,
		.channel_type = CHANNEL_GROUP,
		.flags = WIRE_RECORD_LATE | WIRE_RECORD_RECEIPT,
		.channel = id_view_of("room", 4),
		.from_uid = id_view_of("alice", 5),
		.payload = {.p = (const uint8_t *)"hello, room", .len = 11},
	};
	const struct wire_record second = {
		.message_id = 13,
		.seq = 1,
		.channel_type = CHANNEL_AGENT_GROUP,
		.channel = id_view_of("x", 1),
	};

	if (!wire_put_push(out, &push) || !sample_record(out, &first, 3) ||
		!sample_record(out, &second, 2))
		return false;
	memcpy(out->p + start + WIRE_PUSH_RECORDS_OFFSET, counts, sizeof(counts));
	return true;
}

static bool sample_push_ack(struct wire_buf *out)
{
	const uint16_t positions[] = {1, 4, 0};

	return wire_put_push_ack(out,
		&(struct wire_push_ack){
			.push_id = 31,
			.push_gen = 32,
			.accepted = 2,
			.retryable = 2,
			.dropped = 1,
			.positions = {.p = (const uint8_t *)positions, .len = sizeof(positions)},
		});
}

static bool sample_receipt(struct wire_buf *out)
{
	return wire_put_receipt(out, &(struct wire_receipt){
					     .push_id = 31,
					     .push_gen = 32,
					     .first = 8,
					     .bits = {.p = (const uint8_t *)"\x05\x80", .len = 2},
				     });
}

// The last of three parts: 20 + 20 + 7 bytes.
static bool sample_segment(struct wire_buf *out)
{
	return wire_put_segment(out, &(struct wire_segment){
					     .frame_id = 41,
					     .type = WIRE_PUSH,
					     .index = 2,
					     .count = 3,
					     .total = 47,
					     .offset = 40,
					     .part = {.p = (const uint8_t *)"7 bytes", .len = 7},
				     });
}

static const struct wire_authority sample_authority = {3, 9, 2, 5};

static bool sample_task(struct wire_buf *out)
{
	return wire_put_task(
		out, &(struct wire_task){
			     .task_id = 51,
			     .message_id = 12,
			     .seq = 7,
			     .stamp = 13,
			     .tag_key = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16},
			     .tag_version = 900,
			     .target = 4,
			     .authority = sample_authority,
			     .deadline_ms = 1500,
			     .ack = WIRE_ACK_CLIENT,
			     .attempt = 1,
			     .channel_type = CHANNEL_GROUP,
			     .channel = id_view_of("room", 4),
			     .from_uid = id_view_of("alice", 5),
			     .sender_gateway = 21,
			     .sender_boot = 22,
			     .sender_slot = 23,
			     .sender_gen = 24,
			     .payload = {.p = (const uint8_t *)"hello, room", .len = 11},
		     });
}

// To an explicit set; no tag.
static bool sample_scoped_task(struct wire_buf *out)
{
	return wire_put_task(out, &(struct wire_task){
					  .task_id = 52,
					  .message_id = 12,
					  .seq = 8,
					  .target = 4,
					  .authority = {3, 9, 0, 0},
					  .flags = WIRE_TASK_SCOPED,
					  .channel_type = CHANNEL_TEMP,
					  .channel = id_view_of("17922244540036557902____cmd", 27),
					  .payload = {.p = (const uint8_t *)"hi", .len = 2},
					  .uid_count = 2,
					  .uids = {.p = (const uint8_t *)"\2u1\2u2", .len = 6},
				  });
}

static bool sample_task_ack(struct wire_buf *out)
{
	return wire_put_task_ack(
		out, &(struct wire_task_ack){
			     .task_id = 51,
			     .message_id = 12,
			     .status = WIRE_COMPLETED,
			     .duplicate = 1,
			     .retry_after_ms = 20,
			     .tag_key = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16},
			     .tag_version = 899,
			     .leader = 2,
			     .term = 9,
			     .members = 1000,
			     .routes = 1200,
			     .acked = 1100,
			     .ended = 100,
		     });
}

static bool sample_tag_get(struct wire_buf *out)
{
	struct wire_tag_get m = {
		.request_id = 61,
		.target = 4,
		.tag_key = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16},
		.tag_version = 900,
		.have_key = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16},
		.have_version = 890,
		.body_version = 901,
		.authority = sample_authority,
		.first = 64,
		.want = 0x8000000000000003u,
		.room = 1416,
		.flags = WIRE_TAG_GET_DELTA | WIRE_TAG_GET_PIN,
	};

	if (channel_key_set(&m.channel, CHANNEL_GROUP, "room", 4) != 0)
		return false;
	return wire_put_tag_get(out, &m);
}

static bool sample_part(
	struct wire_buf *out, const struct wire_part_entry *e, uint16_t entries, uint64_t base)
{
	uint8_t body[256];
	struct wire_buf b = {.p = body, .cap = sizeof(body), .ok = true};

	for (uint32_t i = 0; i < entries; i++)
		if (!wire_part_add(&b, &e[i]))
			return false;
	return wire_put_tag_part(
		out, &(struct wire_tag_part){
			     .request_id = 61,
			     .status = WIRE_OK,
			     .tag_key = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16},
			     .tag_version = 901,
			     .base_version = base,
			     .smv = 77,
			     .table_version = 6,
			     .authority = sample_authority,
			     .index = 1,
			     .count = 3,
			     .members = 33000,
			     .entries = entries,
			     .body = {.p = body, .len = b.len},
		     });
}

static bool sample_tag_part(struct wire_buf *out)
{
	const struct wire_part_entry e[] = {
		{.op = WIRE_PART_SLOT,
			.slot = 3,
			.term = 9,
			.config_epoch = 1,
			.balance_version = 4},
		{.op = WIRE_PART_MEMBER, .uid = id_view_of("alice", 5)},
		{.op = WIRE_PART_DENIED, .uid = id_view_of("\0\xff\"", 3)},
	};

	return sample_part(out, e, 3, 0);
}

static bool sample_delta_part(struct wire_buf *out)
{
	const struct wire_part_entry e[] = {
		{.op = WIRE_PART_GONE, .uid = id_view_of("alice", 5)},
		{.op = WIRE_PART_MEMBER, .uid = id_view_of("bob", 3)},
	};

	return sample_part(out, e, 2, 890);
}

static bool sample_hint(struct wire_buf *out)
{
	struct wire_hint m = {
		.hint_id = 71,
		.op = WIRE_HINT_INVALIDATE,
		.commit = 1000,
		.smv = 77,
		.authority = sample_authority,
	};

	if (channel_key_set(&m.channel, CHANNEL_GROUP, "room", 4) != 0)
		return false;
	return wire_put_hint(out, &m);
}

static bool sample_hint_answer(struct wire_buf *out)
{
	struct wire_hint m = {
		.hint_id = 71,
		.op = WIRE_HINT_FENCE,
		.answer = 1,
		.status = WIRE_NOT_LEADER,
		.commit = 999,
		.leader = 3,
	};

	if (channel_key_set(&m.channel, CHANNEL_GROUP, "room", 4) != 0)
		return false;
	return wire_put_hint(out, &m);
}

static bool sample_presence(struct wire_buf *out)
{
	return wire_presence_begin(out, &(struct wire_presence){.revision = 88,
						.table_version = 6,
						.stream_seq = 5,
						.hash_slots = 256}) &&
	       wire_presence_add(
		       out, &(struct wire_presence_range){0, 25, 1, 9, WIRE_PRESENCE_NOT_READY}) &&
	       wire_presence_add(
		       out, &(struct wire_presence_range){255, 255, 10, 2, WIRE_PRESENCE_COMPLETE});
}

static bool sample_bye(struct wire_buf *out)
{
	(void)out;
	return true;
}

#define SAMPLE_PARSE(x) \
	static int parse_##x(struct wire_view body) \
	{ \
		struct wire_##x m; \
		return wire_get_##x(body, &m); \
	}
SAMPLE_PARSE(hello)
SAMPLE_PARSE(hello_ack)
SAMPLE_PARSE(heartbeat)
SAMPLE_PARSE(heartbeat_ack)
SAMPLE_PARSE(announce)
SAMPLE_PARSE(announce_ack)
SAMPLE_PARSE(publish)
SAMPLE_PARSE(publish_ack)
SAMPLE_PARSE(push)
SAMPLE_PARSE(push_ack)
SAMPLE_PARSE(receipt)
SAMPLE_PARSE(segment)
SAMPLE_PARSE(task)
SAMPLE_PARSE(task_ack)
SAMPLE_PARSE(tag_get)
SAMPLE_PARSE(tag_part)
SAMPLE_PARSE(hint)
SAMPLE_PARSE(presence)

static int parse_bye(struct wire_view body)
{
	return body.len == 0 ? 0 : CTR_DROP_LENGTH;
}

// Indexed by enum sample_id.
enum sample_id {
	S_HELLO,
	S_HELLO_ACK,
	S_HEARTBEAT,
	S_HEARTBEAT_ACK,
	S_ANNOUNCE,
	S_ANNOUNCE_ACK,
	S_BYE,
	S_PUBLISH,
	S_PUBLISH_ACK,
	S_PUSH,
	S_PUSH_ACK,
	S_RECEIPT,
	S_SEGMENT,
	S_TASK,
	S_SCOPED_TASK,
	S_TASK_ACK,
	S_TAG_GET,
	S_TAG_PART,
	S_DELTA_PART,
	S_HINT,
	S_HINT_ANSWER,
	S_PRESENCE,
	S_COUNT
};
static const struct sample samples[S_COUNT] = {
	[S_HELLO] = {"hello", WIRE_HELLO, sample_hello, parse_hello},
	[S_HELLO_ACK] = {"hello_ack", WIRE_HELLO_ACK, sample_hello_ack, parse_hello_ack},
	[S_HEARTBEAT] = {"heartbeat", WIRE_HEARTBEAT, sample_heartbeat, parse_heartbeat},
	[S_HEARTBEAT_ACK] = {"heartbeat_ack", WIRE_HEARTBEAT_ACK, sample_heartbeat_ack,
		parse_heartbeat_ack},
	[S_ANNOUNCE] = {"announce", WIRE_ANNOUNCE, sample_announce, parse_announce},
	[S_ANNOUNCE_ACK] = {"announce_ack", WIRE_ANNOUNCE_ACK, sample_announce_ack,
		parse_announce_ack},
	[S_BYE] = {"bye", WIRE_BYE, sample_bye, parse_bye},
	[S_PUBLISH] = {"publish", WIRE_PUBLISH, sample_publish, parse_publish},
	[S_PUBLISH_ACK] = {"publish_ack", WIRE_PUBLISH_ACK, sample_publish_ack, parse_publish_ack},
	[S_PUSH] = {"push", WIRE_PUSH, sample_push, parse_push},
	[S_PUSH_ACK] = {"push_ack", WIRE_PUSH_ACK, sample_push_ack, parse_push_ack},
	[S_RECEIPT] = {"receipt", WIRE_RECEIPT, sample_receipt, parse_receipt},
	[S_SEGMENT] = {"segment", WIRE_SEGMENT, sample_segment, parse_segment},
	[S_TASK] = {"task", WIRE_TASK, sample_task, parse_task},
	[S_SCOPED_TASK] = {"scoped_task", WIRE_TASK, sample_scoped_task, parse_task},
	[S_TASK_ACK] = {"task_ack", WIRE_TASK_ACK, sample_task_ack, parse_task_ack},
	[S_TAG_GET] = {"tag_get", WIRE_TAG_GET, sample_tag_get, parse_tag_get},
	[S_TAG_PART] = {"tag_part", WIRE_TAG_PART, sample_tag_part, parse_tag_part},
	[S_DELTA_PART] = {"delta_part", WIRE_TAG_PART, sample_delta_part, parse_tag_part},
	[S_HINT] = {"hint", WIRE_HINT, sample_hint, parse_hint},
	[S_HINT_ANSWER] = {"hint_answer", WIRE_HINT, sample_hint_answer, parse_hint},
	[S_PRESENCE] = {"presence", WIRE_PRESENCE, sample_presence, parse_presence},
};

// Builds a sample body. Returns: its bytes.
static inline uint32_t sample_body(enum sample_id id, uint8_t body[SAMPLE_MAX])
{
	struct wire_buf out = {.p = body, .cap = SAMPLE_MAX, .ok = true};

	assert_true(samples[id].build(&out));
	assert_true(out.ok);
	return out.len;
}

// Builds a whole datagram without authentication. Returns: its bytes.
static inline uint32_t sample_datagram(enum sample_id id, uint8_t p[SAMPLE_MAX])
{
	struct wire_buf out = {
		.p = p + WIRE_HEADER_BYTES, .cap = SAMPLE_MAX - WIRE_HEADER_BYTES, .ok = true};
	struct wire_header h = {
		.type = samples[id].type, .lane = 1, .sender = 2, .boot = 3, .seq = 4};

	assert_true(samples[id].build(&out));
	h.bytes = (uint16_t)(WIRE_HEADER_BYTES + out.len);
	wire_put_header(p, &h);
	return h.bytes;
}

// Parses a copy of exactly `len` bytes of heap, so that the sanitizer sees one byte read too far.
static inline int parse_exact(int (*parse)(struct wire_view), const uint8_t *p, uint32_t len)
{
	uint8_t *const copy = malloc(len != 0 ? len : 1);
	int got;

	assert_non_null(copy);
	memcpy(copy, p, len);
	got = parse((struct wire_view){.p = copy, .len = len});
	free(copy);
	return got;
}

static inline void check_truncated_and_overlong(enum sample_id id)
{
	uint8_t body[SAMPLE_MAX] = {0};
	const uint32_t len = sample_body(id, body);

	assert_int_equal(parse_exact(samples[id].parse, body, len), 0);
	for (uint32_t n = 0; n < len; n++) {
		if (parse_exact(samples[id].parse, body, n) == 0)
			fail_msg("%s: %u of %u bytes accepted", samples[id].name, n, len);
	}
	for (uint32_t n = 1; n <= 9; n++) {
		if (parse_exact(samples[id].parse, body, len + n) == 0)
			fail_msg("%s: %u bytes too many accepted", samples[id].name, n);
	}
}

static inline void check_bit_flips(enum sample_id id)
{
	uint8_t body[SAMPLE_MAX];
	const uint32_t len = sample_body(id, body);

	for (uint32_t bit = 0; bit < 8 * len; bit++) {
		body[bit / 8] ^= (uint8_t)(1u << bit % 8);
		parse_exact(samples[id].parse, body, len);
		body[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
}

static inline void check_builder_fails_without_room(enum sample_id id)
{
	uint8_t body[SAMPLE_MAX];
	const uint32_t len = sample_body(id, body);

	for (uint32_t cap = 0; cap < len; cap++) {
		uint8_t *const small = malloc(cap != 0 ? cap : 1);
		struct wire_buf out = {.p = small, .cap = cap, .ok = true};

		if (samples[id].build(&out))
			fail_msg("%s: built into %u bytes", samples[id].name, cap);
		assert_true(out.len <= cap);
		free(small);
	}
}

// A field overwritten in a good body, and the drop it must cause (0: still good).
struct patch {
	const char *what;
	uint32_t at;
	uint32_t bytes;
	uint64_t value;
	int drop;
};

static inline void check_patches(enum sample_id id, const struct patch *patches, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		uint8_t body[SAMPLE_MAX];
		const uint32_t len = sample_body(id, body);
		int got;

		assert_true(patches[i].at + patches[i].bytes <= len);
		memcpy(body + patches[i].at, &patches[i].value, patches[i].bytes);
		got = parse_exact(samples[id].parse, body, len);
		if (got != patches[i].drop)
			fail_msg("%s, %s: %s instead of %s", samples[id].name, patches[i].what,
				got ? counter_name((enum counter)got) : "accepted",
				patches[i].drop ? counter_name((enum counter)patches[i].drop)
						: "accepted");
	}
}
#define CHECK_PATCHES(id, patches) \
	check_patches(id, patches, sizeof(patches) / sizeof((patches)[0]))
