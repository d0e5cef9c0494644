/* SPDX-License-Identifier: BSD-3-Clause */
// What the tests of lib/delivery share; see delivery_fixture.h.
#include "delivery_fixture.h"

#include <stdlib.h>
#include <string.h>

static struct fix *current;

// Stands in for lib/presence.
bool presence_session_live(
	const struct presence_view *v, uint32_t gateway, uint32_t slot, uint32_t gen)
{
	return atomic_load(&v->gateway[gateway].alive) && gen == FIX_GEN &&
	       !current->closed[gateway][slot];
}

static void on_end(void *ctx, uint32_t message, enum counter how, uint32_t count)
{
	struct fix *f = ctx;

	assert_in_range(how, CTR_ROUTE_SENT, CTR_ROUTE_NO_BUFFER);
	assert_true(count > 0);
	assert_in_range(message, 0, FIX_MESSAGES - 1);
	f->ended[message] += count;
	f->ended_how[message] = (uint8_t)how;
	f->ends += count;
	f->ends_by[how] += count;
	if (f->watch != NULL)
		f->watch(f->watch_ctx, message, how, count);
}

void fix_init(struct fix *f)
{
	memset(f, 0, sizeof(*f));
	assert_int_equal(wire_auth_init(), 0);
	f->limits = (struct delivery_limits){
		.inflight = 64,
		.inflight_large = 8,
		.gateways = FIX_GATEWAYS,
		.window = 8,
		.backlog = 4,
		.attempts = 4,
		.resend_percent = 100,
		.push_timeout_ns = 50 * NS_PER_MS,
		.retry_max_ns = 400 * NS_PER_MS,
		.receipt_timeout_ns = 1 * NS_PER_S,
		.seed = 7,
	};
	f->keys = (struct wire_keys){.count = 1, .id = {3}, .key = {{1, 2, 3}}};
	f->now = 1000 * NS_PER_S;
}

void fix_start(struct fix *f)
{
	struct delivery_io io;

	current = f;
	fake_port_init(&f->port, 2048, 1472);
	f->port.record_sent = true;
	f->lane = (struct wire_lane){.sender = 1, .boot = 2, .lane = 0, .keys = &f->keys};
	for (uint32_t g = 1; g <= FIX_GATEWAYS; g++) {
		atomic_store(&f->gateway[g].alive, true);
		atomic_store(&f->gateway[g].use, 1);
		f->gateway[g].mtu = 1500;
		f->gateway[g].addr = (struct net_addr){.ip = 0x0a000000 + g, .port = (uint16_t)g};
		f->gateway[g].gateway = 100 + g;
		f->gateway[g].boot = g;
	}
	f->view = (struct presence_view){.gateway = f->gateway, .gateways = FIX_GATEWAYS + 1};
	io = (struct delivery_io){
		.dgram = f->port.ops,
		.queue = &f->port,
		.lane = &f->lane,
		.presence = &f->view,
		.counters = &f->counters,
		.on_end = on_end,
		.ctx = f,
	};
	f->d = delivery_create(&f->limits, &io);
	assert_non_null(f->d);
}

void fix_stop(struct fix *f)
{
	delivery_destroy(f->d);
	fake_port_fini(&f->port);
}

uint64_t fix_count(const struct fix *f, enum counter id)
{
	return counter_get(&f->counters, id);
}

// --- pushes -------------------------------------------------------------------------------------------

WORKER_ONLY static uint32_t build(struct fix *f, uint32_t gateway, struct delivery_span *span,
	uint32_t spans, const uint32_t *slots, uint8_t *body, uint32_t cap)
{
	struct wire_buf out = {.p = body, .cap = cap, .ok = true};
	struct wire_push push = {.push_id = 77, .gateway_boot = f->gateway[gateway].boot};
	uint16_t first = 0;

	push.records = (uint16_t)spans;
	for (uint32_t s = 0; s < spans; s++) {
		span[s].first = first;
		first = (uint16_t)(first + span[s].count);
	}
	push.routes = first;
	assert_true(wire_put_push(&out, &push));
	for (uint32_t s = 0; s < spans; s++) {
		const struct wire_record record = {
			.message_id = span[s].message + 1u,
			.seq = span[s].message,
			.stamp = f->stamp[span[s].message],
			.channel_type = 2,
			.channel = id_view_of("group", 5),
			.payload = {.p = (const uint8_t *)"hello", .len = 5},
			.routes = span[s].count,
		};

		assert_true(wire_put_record(&out, &record));
		for (uint32_t k = 0; k < span[s].count; k++) {
			assert_true(out.len + WIRE_ROUTE_BYTES <= cap);
			wire_put_route(out.p + out.len, *slots++, FIX_GEN);
			out.len += WIRE_ROUTE_BYTES;
		}
	}
	return out.len;
}

WORKER_ONLY static void cut(
	struct fix *f, const uint8_t *body, uint32_t bytes, struct dgram **frame, uint32_t frames)
{
	const uint32_t part = (bytes + frames - 1) / frames;

	f->frame_id++;
	for (uint32_t i = 0; i < frames; i++) {
		struct wire_buf out = {
			.p = frame[i]->data + WIRE_HEADER_BYTES,
			.cap = frame[i]->room - WIRE_HEADER_BYTES,
			.ok = true,
		};
		const struct wire_segment segment = {
			.frame_id = f->frame_id,
			.type = WIRE_PUSH,
			.index = (uint16_t)i,
			.count = (uint16_t)frames,
			.total = bytes,
			.offset = i * part,
			.part = {.p = body + i * part,
				.len = bytes - i * part < part ? bytes - i * part : part},
		};

		assert_true(wire_put_segment(&out, &segment));
		frame[i]->len = (uint16_t)(WIRE_HEADER_BYTES + out.len);
	}
}

void fix_push(struct fix *f, uint32_t gateway, struct delivery_span *span, uint32_t spans,
	const uint32_t *slots, uint32_t frames)
{
	static uint8_t body[FRAME_BYTES_MAX];
	struct dgram *frame[FRAME_SEGMENTS_MAX];
	struct delivery_push push = {
		.gateway = (uint16_t)gateway,
		.frames = (uint16_t)frames,
		.spans = (uint16_t)spans,
		.deadline_ns = UINT64_MAX,
		.frame = frame,
		.span = span,
	};
	uint32_t bytes;

	for (uint32_t s = 0; s < spans; s++)
		delivery_push_add(&push, &span[s]);
	assert_int_equal(f->port.ops->alloc(&f->port, frame, (uint16_t)frames), frames);
	bytes = build(f, gateway, span, spans, slots, body, sizeof(body));
	push.routes = (uint16_t)(span[spans - 1].first + span[spans - 1].count);
	if (frames > 1) {
		cut(f, body, bytes, frame, frames);
	} else {
		assert_true(bytes + WIRE_HEADER_BYTES + WIRE_TAG_BYTES <= frame[0]->room);
		memcpy(frame[0]->data + WIRE_HEADER_BYTES, body, bytes);
		frame[0]->len = (uint16_t)(WIRE_HEADER_BYTES + bytes);
	}
	delivery_send(f->d, &push, f->now);
}

void fix_push_one(struct fix *f, uint32_t gateway, uint32_t message, uint32_t count, uint8_t ack)
{
	struct delivery_span span = {
		.message = message,
		.count = (uint16_t)count,
		.ack = ack,
		.attempt = 1,
		.deadline_ns = f->now + 60 * NS_PER_S,
	};
	uint32_t slots[FRAME_ROUTES_MAX];

	for (uint32_t k = 0; k < count; k++)
		slots[k] = message * 8 + k;
	fix_push(f, gateway, &span, 1, slots, 1);
}

// --- what was sent ------------------------------------------------------------------------------------

static uint32_t gateway_of(const struct fix *f, const struct dgram *d)
{
	for (uint32_t g = 1; g <= FIX_GATEWAYS; g++) {
		if (net_addr_equal(d->peer, f->gateway[g].addr))
			return g;
	}
	fail_msg("sent to nobody");
	return 0;
}

// Checks one datagram; its body.
static struct wire_view open_one(
	struct fix *f, const struct dgram *d, uint32_t gateway, struct wire_header *header)
{
	struct wire_view body;

	assert_int_equal(wire_get_header(d->data, d->len, header, &body), 0);
	assert_int_equal(wire_open(&f->keys, d->data, d->len, header, f->gateway[gateway].boot), 0);
	assert_int_equal(header->seq, f->last_seq + 1);
	f->last_seq = header->seq;
	return body;
}

bool fix_take_sent(struct fix *f, struct fix_sent *sent)
{
	static uint8_t whole[FRAME_BYTES_MAX];
	struct wire_segment segment;
	struct wire_header header;
	struct wire_record record;
	struct wire_push push;
	struct wire_view body;
	const struct dgram *d;
	uint32_t at = 0;

	if (f->sent_seen == f->port.sent_count) {
		fake_port_forget_sent(&f->port);
		f->sent_seen = 0;
		return false;
	}
	d = fake_port_sent(&f->port, f->sent_seen++);
	memset(sent, 0, sizeof(*sent));
	sent->gateway = gateway_of(f, d);
	sent->frames = 1;
	body = open_one(f, d, sent->gateway, &header);
	if (header.type == WIRE_SEGMENT) {
		assert_int_equal(wire_get_segment(body, &segment), 0);
		sent->frames = segment.count;
		sent->segment_attempt = segment.attempt;
		memcpy(whole, segment.part.p, segment.part.len);
		for (uint32_t i = 1; i < segment.count; i++) {
			d = fake_port_sent(&f->port, f->sent_seen++);
			body = open_one(f, d, sent->gateway, &header);
			assert_int_equal(wire_get_segment(body, &segment), 0);
			assert_int_equal(segment.index, i);
			assert_int_equal(segment.attempt, sent->segment_attempt);
			memcpy(whole + segment.offset, segment.part.p, segment.part.len);
		}
		body = (struct wire_view){.p = whole, .len = segment.total};
	} else {
		assert_int_equal(header.type, WIRE_PUSH);
	}
	assert_int_equal(wire_get_push(body, &push), 0);
	sent->id = push.push_id;
	sent->gen = push.push_gen;
	sent->need_ack = push.need_ack;
	sent->attempt = push.attempt;
	sent->routes = push.routes;
	while (wire_push_next(&push.body, &record)) {
		for (uint32_t k = 0; k < record.routes; k++, at++) {
			uint32_t gen;

			sent->message[at] = (uint32_t)record.message_id - 1;
			sent->stamp[at] = record.stamp;
			wire_get_route(record.route + k * WIRE_ROUTE_BYTES, &sent->slot[at], &gen);
		}
	}
	assert_int_equal(at, push.routes);
	f->sends++;
	return true;
}

// --- answers ------------------------------------------------------------------------------------------

void fix_ack(struct fix *f, const struct fix_sent *sent, const uint16_t *retryable,
	uint32_t retryable_count, const uint16_t *dropped, uint32_t dropped_count)
{
	uint16_t positions[2 * FRAME_ROUTES_MAX];
	struct wire_push_ack ack = {
		.push_id = sent->id,
		.push_gen = sent->gen,
		.accepted = (uint16_t)(sent->routes - retryable_count - dropped_count),
		.retryable = (uint16_t)retryable_count,
		.dropped = (uint16_t)dropped_count,
		.positions = {.p = (const uint8_t *)positions,
			.len = 2 * (retryable_count + dropped_count)},
	};

	if (retryable_count != 0)
		memcpy(positions, retryable, retryable_count * sizeof(positions[0]));
	if (dropped_count != 0)
		memcpy(positions + retryable_count, dropped, dropped_count * sizeof(positions[0]));
	delivery_on_ack(f->d, sent->gateway, &ack, f->now);
}

void fix_receipt(struct fix *f, const struct fix_sent *sent, uint32_t position)
{
	const uint8_t bit = (uint8_t)(1u << (position % 8));
	const struct wire_receipt receipt = {
		.push_id = sent->id,
		.push_gen = sent->gen,
		.first = (uint16_t)(position & ~7u),
		.bits = {.p = &bit, .len = 1},
	};

	delivery_on_receipt(f->d, sent->gateway, &receipt, f->now);
}

void fix_tick_to(struct fix *f, uint64_t now)
{
	f->now = now;
	while (delivery_tick(f->d, now, 64) != 0)
		;
}

uint32_t fix_retry_all(struct fix *f)
{
	struct delivery_retry retry;
	uint32_t n = 0;

	while (delivery_next_retry(f->d, f->now, &retry)) {
		struct delivery_span span = {
			.message = retry.message,
			.count = 1,
			.ack = retry.ack,
			.attempt = retry.attempt,
			.deadline_ns = retry.deadline_ns,
		};
		const uint32_t slot = route_slot(retry.route);

		assert_int_equal(retry.record.message_id, retry.message + 1u);
		assert_int_equal(retry.record.payload.len, 5);
		assert_memory_equal(retry.record.payload.p, "hello", 5);
		fix_push(f, route_gateway(retry.route), &span, 1, &slot, 1);
		n++;
	}
	return n;
}

void fix_gateway_restart(struct fix *f, uint32_t gateway)
{
	struct presence_gateway *g = &f->gateway[gateway];

	g->boot += 100;
	atomic_store(&g->use, atomic_load(&g->use) + 1);
	atomic_store(&g->alive, true);
}
