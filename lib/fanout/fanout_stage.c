/* SPDX-License-Identifier: BSD-3-Clause */
// Frames too large for a datagram. So that a large payload is not repeated for every few routes, the routes
// of one large message at a time are collected per gateway in blocks, and leave in frames of up to
// FRAME_ROUTES_MAX routes, cut into SEGMENT datagrams of equal parts. Worker.
//
// The stage belongs to one message (stage_owner) until everything staged is sent; another large message
// waits its turn, small ones do not notice. Sending is spread over turns by the budget of the turn.
#include "fanout_pvt.h"

#include <assert.h>

#define WORK_BYTES 32u  // bytes of a frame that cost about as much as one member

static void start_block(struct fanout *f, uint32_t gateway)
{
	const struct fanout_push *p = &f->push[gateway];
	struct fanout_block *b = &f->block[p->block_last];

	f->cursor[gateway] = (struct fanout_cursor){
		.tail = b->route + b->count * WIRE_ROUTE_BYTES,
		.limit = b->route + sizeof(b->route),
	};
}

// Notes how far the last block is filled.
void fanout_stage_close(struct fanout *f, uint32_t gateway)
{
	struct fanout_push *p = &f->push[gateway];
	struct fanout_block *b = &f->block[p->block_last];
	const uint32_t count = (uint32_t)(f->cursor[gateway].tail - b->route) / WIRE_ROUTE_BYTES;

	p->stage_routes = (uint16_t)(p->stage_routes + count - b->count);
	b->count = count;
	f->cursor[gateway].limit = f->cursor[gateway].tail;
}

static uint32_t take_block(struct fanout *f)
{
	const uint32_t block = f->block_free;

	if (block == FANOUT_NONE)
		return FANOUT_NONE;
	f->block_free = f->block[block].next;
	f->block[block].next = FANOUT_NONE;
	f->block[block].count = 0;
	return block;
}

static void drop_blocks(struct fanout *f, struct fanout_push *p)
{
	f->block[p->block_last].next = f->block_free;
	f->block_free = p->block_first;
	p->staged = false;
	p->stage_routes = 0;
}

bool fanout_stage_room(struct fanout *f, uint32_t gateway)
{
	struct fanout_push *p = &f->push[gateway];
	uint32_t block;

	if (f->stage_owner != f->current && f->stage_owner != FANOUT_NONE)
		return false;
	f->stage_owner = f->current;
	// An open push holds older messages: they go first, and its cursor is needed now.
	if (p->dgram != NULL)
		fanout_close_push(f, gateway);
	if (!p->touched) {
		p->touched = true;
		f->touched[f->touched_count++] = (uint16_t)gateway;
		if (p->staged && f->block[p->block_last].count < FANOUT_BLOCK_ROUTES) {
			start_block(f, gateway);
			return true;
		}
	} else if (p->staged) {
		fanout_stage_close(f, gateway);
	}
	block = p->staged && p->stage_routes + FANOUT_BLOCK_ROUTES > FRAME_ROUTES_MAX
			? FANOUT_NONE
			: take_block(f);
	if (block == FANOUT_NONE) {
		f->stage_flushing = true;
		return false;
	}
	if (p->staged) {
		f->block[p->block_last].next = block;
	} else {
		p->staged = true;
		p->stage_routes = 0;
		p->stage_use = atomic_load_explicit(
			&f->io.presence->gateway[gateway].use, memory_order_acquire);
		p->block_first = block;
		f->staged[f->staged_count++] = (uint16_t)gateway;
	}
	p->block_last = block;
	start_block(f, gateway);
	return true;
}

// --- frames -------------------------------------------------------------------------------------------

// Cuts a push body into the datagrams of f->frame, of equal parts.
static void cut(struct fanout *f, uint32_t gateway, const uint8_t *body, uint32_t bytes,
	uint32_t part, uint32_t frames) WORKER_ONLY;
static void cut(struct fanout *f, uint32_t gateway, const uint8_t *body, uint32_t bytes,
	uint32_t part, uint32_t frames)
{
	const struct net_addr peer = f->io.presence->gateway[gateway].addr;
	struct wire_segment segment = {
		.frame_id = ++f->frame_id,
		.type = WIRE_PUSH,
		.count = (uint16_t)frames,
		.total = bytes,
	};

	for (uint32_t i = 0; i < frames; i++) {
		struct dgram *d = f->frame[i] = fanout_dgram(f);
		struct wire_buf out = {
			.p = d->data + WIRE_HEADER_BYTES,
			.cap = d->room - WIRE_HEADER_BYTES,
			.ok = true,
		};
		bool fits;

		segment.index = (uint16_t)i;
		segment.offset = i * part;
		segment.part = (struct wire_view){
			.p = body + segment.offset,
			.len = bytes - segment.offset < part ? bytes - segment.offset : part,
		};
		fits = wire_put_segment(&out, &segment);
		assert(fits);
		(void)fits;
		d->len = (uint16_t)(WIRE_HEADER_BYTES + out.len);
		d->peer = peer;
		d->local_port = f->io.local_port;
	}
}

bool fanout_send_frame(struct fanout *f, uint32_t gateway, const struct delivery_span *span,
	const uint8_t *body, uint32_t bytes)
{
	const uint32_t room = fanout_body_room(f, gateway);
	const uint32_t part = room - WIRE_SEGMENT_BYTES;
	const uint32_t frames = bytes <= room ? 1 : (bytes + part - 1) / part;
	struct delivery_push push = {
		.gateway = (uint16_t)gateway,
		.routes = span->count,
		.frames = (uint16_t)frames,
		.spans = 1,
		.deadline_ns = UINT64_MAX,
		.frame = f->frame,
		.span = span,
	};

	if (!fanout_dgrams_ready(f, frames))
		return false;
	if (f->push[gateway].dgram != NULL)  // older messages first
		fanout_close_push(f, gateway);
	if (frames == 1) {
		struct dgram *d = f->frame[0] = fanout_dgram(f);

		memcpy(d->data + WIRE_HEADER_BYTES, body, bytes);
		d->len = (uint16_t)(WIRE_HEADER_BYTES + bytes);
		d->peer = f->io.presence->gateway[gateway].addr;
		d->local_port = f->io.local_port;
	} else {
		cut(f, gateway, body, bytes, part, frames);
	}
	delivery_push_add(&push, span);
	delivery_send(f->io.delivery, &push, f->now_ns);
	return true;
}

// Writes into scratch[0] fixed part and record of the owner with the staged routes of a gateway. Returns: bytes.
static uint32_t compose(struct fanout *f, uint32_t gateway)
{
	const struct fanout_push *p = &f->push[gateway];
	uint8_t *const body = f->scratch[0];
	struct wire_buf out = {.p = body, .cap = FRAME_BYTES_MAX, .ok = true};
	const struct wire_push head = {
		.gateway_boot = f->io.presence->gateway[gateway].boot,
		.records = 1,
		.routes = p->stage_routes,
		.need_ack = f->message[f->stage_owner].ack != WIRE_ACK_NONE,
	};
	struct wire_record record;
	uint32_t bytes;

	fanout_record_of(f, f->stage_owner, &record);
	record.routes = p->stage_routes;
	wire_put_push(&out, &head);
	wire_put_record(&out, &record);
	assert(out.ok);
	bytes = out.len;
	for (uint32_t b = p->block_first; b != FANOUT_NONE; b = f->block[b].next) {
		const uint32_t n = f->block[b].count * WIRE_ROUTE_BYTES;

		memcpy(body + bytes, f->block[b].route, n);
		bytes += n;
	}
	return bytes;
}

static bool same_incarnation(const struct fanout *f, uint32_t gateway)
{
	const struct presence_gateway *g = &f->io.presence->gateway[gateway];

	return atomic_load_explicit(&g->alive, memory_order_acquire) &&
	       atomic_load_explicit(&g->use, memory_order_acquire) == f->push[gateway].stage_use;
}

// Sends what is staged for one gateway. Returns: work in members; 0: not now.
static uint32_t send_staged(struct fanout *f, uint32_t gateway) WORKER_ONLY;
static uint32_t send_staged(struct fanout *f, uint32_t gateway)
{
	struct fanout_push *p = &f->push[gateway];
	struct fanout_message *m = &f->message[f->stage_owner];
	const uint32_t routes = p->stage_routes;
	const struct delivery_span span = {
		.message = f->stage_owner,
		.count = (uint16_t)routes,
		.ack = m->ack,
		.attempt = 1,
		.deadline_ns = m->deadline_ns,
	};
	uint32_t bytes;

	if (routes == 0) {
		drop_blocks(f, p);
		return 1;
	}
	if (!same_incarnation(f, gateway)) {
		drop_blocks(f, p);
		fanout_end_routes(f, span.message, CTR_ROUTE_GATEWAY_GONE, routes);
		return 1;
	}
	if (f->now_ns < m->deadline_ns && fanout_pressed(f, gateway, true))
		return 0;
	bytes = compose(f, gateway);
	m->routes += routes;
	m->open += routes;
	if (!fanout_send_frame(f, gateway, &span, f->scratch[0], bytes)) {
		m->routes -= routes;
		m->open -= routes;
		if (f->now_ns < m->deadline_ns)
			return 0;
		drop_blocks(f, p);
		fanout_end_routes(f, span.message, CTR_ROUTE_DEADLINE, routes);
		return 1;
	}
	counter_add(f->io.counters, CTR_ROUTES, routes);
	drop_blocks(f, p);
	return 1 + bytes / WORK_BYTES;
}

uint32_t fanout_stage_flush(struct fanout *f, uint32_t max, bool *done)
{
	uint32_t work = 0;

	fanout_close_records(f);
	f->current = FANOUT_NONE;
	for (uint32_t i = f->staged_count; i-- != 0 && work < max;) {
		const uint32_t used = send_staged(f, f->staged[i]);

		if (used != 0)
			f->staged[i] = f->staged[--f->staged_count];
		work += used;
	}
	*done = f->staged_count == 0;
	return work;
}
