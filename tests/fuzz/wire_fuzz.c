/* SPDX-License-Identifier: BSD-3-Clause */
// Fuzz target of lib/wire. An input is a list of datagrams, each behind a two-byte length. Every one goes
// through header, authentication, body parser, printer and, for segments, one small reassembly; complete
// frames are parsed as what they claim to be. What a parser accepts, the builder must turn into the same
// bytes again.
#include <stdlib.h>
#include <string.h>

#include "wire_auth.h"
#include "wire_frame.h"
#include "wire_node.h"

#define REQUIRE(x) \
	do { \
		if (!(x)) \
			abort(); \
	} while (0)

static uint8_t rebuilt[FRAME_BYTES_MAX];

static struct wire_buf fresh(void)
{
	return (struct wire_buf){.p = rebuilt, .cap = sizeof(rebuilt), .ok = true};
}

static void same(const struct wire_buf *out, struct wire_view body)
{
	REQUIRE(out->ok && out->len == body.len);
	REQUIRE(body.len == 0 || memcmp(out->p, body.p, body.len) == 0);
}

#define ROUND_TRIP(x) \
	static void try_##x(struct wire_view body) \
	{ \
		struct wire_##x m; \
		struct wire_buf out = fresh(); \
		if (wire_get_##x(body, &m) != 0) \
			return; \
		REQUIRE(wire_put_##x(&out, &m)); \
		same(&out, body); \
	}
ROUND_TRIP(hello)
ROUND_TRIP(hello_ack)
ROUND_TRIP(heartbeat)
ROUND_TRIP(heartbeat_ack)
ROUND_TRIP(announce_ack)
ROUND_TRIP(publish)
ROUND_TRIP(publish_ack)
ROUND_TRIP(push_ack)
ROUND_TRIP(receipt)
ROUND_TRIP(segment)
ROUND_TRIP(task)
ROUND_TRIP(task_ack)
ROUND_TRIP(tag_get)
ROUND_TRIP(hint)

static void try_announce(struct wire_view body)
{
	struct wire_announce m;
	struct wire_session s;
	struct wire_buf out = fresh();
	uint32_t n = 0;

	if (wire_get_announce(body, &m) != 0)
		return;
	REQUIRE(wire_announce_begin(&out, m.stream_seq));
	while (wire_announce_next(&m.entries, &s)) {
		REQUIRE(wire_announce_add(&out, &s));
		n++;
	}
	REQUIRE(n == m.count && m.entries.len == 0);
	same(&out, body);
}

static void try_push(struct wire_view body)
{
	struct wire_push m;
	struct wire_record r;
	struct wire_buf out = fresh();
	uint32_t records = 0, routes = 0;

	if (wire_get_push(body, &m) != 0)
		return;
	REQUIRE(wire_put_push(&out, &m));
	while (wire_push_next(&m.body, &r)) {
		REQUIRE(wire_put_record(&out, &r));
		REQUIRE(out.cap - out.len >= r.routes * WIRE_ROUTE_BYTES);
		for (uint32_t i = 0; i < r.routes; i++) {
			uint32_t slot, gen;

			wire_get_route(r.route + i * WIRE_ROUTE_BYTES, &slot, &gen);
			REQUIRE(slot < 1u << 24 && gen < 1u << 24);
			wire_put_route(out.p + out.len, slot, gen);
			out.len += WIRE_ROUTE_BYTES;
		}
		records++;
		routes += r.routes;
	}
	REQUIRE(records == m.records && routes == m.routes && m.body.len == 0);
	same(&out, body);
}

// Whole, and entry by entry.
static void try_tag_part(struct wire_view body)
{
	struct wire_tag_part m;
	struct wire_part_entry e;
	struct wire_buf out = fresh();
	struct wire_view rest;
	uint32_t n = 0;
	bool unknown;

	if (wire_get_tag_part(body, &m) != 0)
		return;
	REQUIRE(wire_put_tag_part(&out, &m));
	same(&out, body);
	out = fresh();
	rest = m.body;
	while (wire_part_next(&rest, &e)) {
		REQUIRE(wire_part_add(&out, &e));
		n++;
	}
	REQUIRE(n == m.entries && rest.len == 0);
	same(&out, m.body);
	REQUIRE(wire_pull_status(m.status, &unknown) < WIRE_STATUS_COUNT);
}

static void try_presence(struct wire_view body)
{
	struct wire_presence m;
	struct wire_presence_range r;
	struct wire_buf out = fresh();
	uint32_t n = 0;

	if (wire_get_presence(body, &m) != 0)
		return;
	REQUIRE(wire_presence_begin(&out, &m));
	while (wire_presence_next(&m.ranges, &r)) {
		REQUIRE(wire_presence_add(&out, &r));
		n++;
	}
	REQUIRE(n == m.count && m.ranges.len == 0);
	same(&out, body);
}

static void try_bye(struct wire_view body)
{
	(void)body;
}

static void (*const tries[])(struct wire_view) = {
	[WIRE_HELLO] = try_hello,
	[WIRE_HELLO_ACK] = try_hello_ack,
	[WIRE_HEARTBEAT] = try_heartbeat,
	[WIRE_HEARTBEAT_ACK] = try_heartbeat_ack,
	[WIRE_ANNOUNCE] = try_announce,
	[WIRE_ANNOUNCE_ACK] = try_announce_ack,
	[WIRE_BYE] = try_bye,
	[WIRE_PUBLISH] = try_publish,
	[WIRE_PUBLISH_ACK] = try_publish_ack,
	[WIRE_TASK] = try_task,
	[WIRE_TASK_ACK] = try_task_ack,
	[WIRE_TAG_GET] = try_tag_get,
	[WIRE_TAG_PART] = try_tag_part,
	[WIRE_HINT] = try_hint,
	[WIRE_PRESENCE] = try_presence,
	[WIRE_PUSH] = try_push,
	[WIRE_PUSH_ACK] = try_push_ack,
	[WIRE_RECEIPT] = try_receipt,
	[WIRE_SEGMENT] = try_segment,
};

static void one_datagram(struct wire_reassembly *r, const struct wire_keys *keys, const uint8_t *p,
	uint32_t len, uint64_t now)
{
	struct wire_header h;
	struct wire_view body, frame;
	struct wire_segment segment;
	uint8_t header[WIRE_HEADER_BYTES];
	char text[600];
	uint32_t handle;

	REQUIRE(wire_print(p, len, text, sizeof(text)) < (int)sizeof(text));
	REQUIRE(wire_print(p, len, text, 40) < 40);
	if (wire_get_header(p, len, &h, &body) != 0)
		return;
	wire_put_header(header, &h);
	REQUIRE(memcmp(header, p, sizeof(header)) == 0);
	wire_open(keys, p, len, &h, 1);
	tries[h.type](body);
	if (h.type != WIRE_SEGMENT || wire_get_segment(body, &segment) != 0)
		return;
	if (wire_reassembly_add(r, &h, &segment, now, &frame, &handle) != WIRE_PART_COMPLETE)
		return;
	REQUIRE(frame.len == segment.total);
	tries[segment.type](frame);
	wire_reassembly_release(r, handle);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct wire_reassembly *r;
	static uint64_t now;
	const struct wire_keys keys = {.count = 1, .id = {1}};

	if (r == NULL) {
		REQUIRE(wire_auth_init() == 0);
		r = wire_reassembly_create(4, 1000);
		REQUIRE(r != NULL);
	}
	while (size >= 2) {
		uint32_t len = (uint32_t)data[0] | (uint32_t)data[1] << 8;
		uint8_t *copy;

		data += 2;
		size -= 2;
		if (len > size)
			len = (uint32_t)size;
		copy = malloc(len != 0 ? len : 1);  // exact, so that one byte too far is seen
		REQUIRE(copy != NULL);
		memcpy(copy, data, len);
		one_datagram(r, &keys, copy, len, now += 100);
		free(copy);
		data += len;
		size -= len;
	}
	// The next input starts from an empty table: an input alone decides what happens.
	now += 100000;
	wire_reassembly_expire(r, now);
	REQUIRE(wire_reassembly_pending(r) == 0);
	return 0;
}
