/* SPDX-License-Identifier: BSD-3-Clause */
// The open push of each gateway: a datagram that collects records of the messages of a turn. Routes are
// written straight into it through fanout.cursor; here records and pushes are opened and closed. Worker.
//
// Records of one message at a time are open ("current"); those of the message before are closed when
// another begins, so that the hot loop has one compare for "needs a record" and "is full".
#include "fanout_pvt.h"

#include <assert.h>

_Static_assert(DELIVERY_SPANS_MAX *(WIRE_RECORD_BYTES + WIRE_ROUTE_BYTES) >= FANOUT_TIGHT_BYTES,
	"records of a tight push are fewer than spans");

#define RECORD_ROUTES_MIN \
	4u  // a record that cannot take so many of its routes goes into the next push

uint32_t fanout_body_room(const struct fanout *f, uint32_t gateway)
{
	uint32_t mtu = f->io.presence->gateway[gateway].mtu;

	if (mtu > f->limits.mtu || mtu == 0)
		mtu = f->limits.mtu;
	if (mtu < MTU_MIN)
		mtu = MTU_MIN;
	return wire_lane_body_room(f->io.lane, mtu - WIRE_UDP_OVERHEAD);
}

bool fanout_dgrams_ready(struct fanout *f, uint32_t n)
{
	if (f->spares < n && f->buffers < n - f->spares)
		return false;
	while (f->spares < n) {
		uint32_t want = f->buffers < BURST ? f->buffers : BURST;

		if (f->io.dgram->alloc(f->io.queue, &f->spare[f->spares], (uint16_t)want) == 0) {
			want = n - f->spares < BURST ? n - f->spares : BURST;
			if (f->io.dgram->alloc(f->io.queue, &f->spare[f->spares], (uint16_t)want) ==
				0)
				return false;
		}
		f->buffers -= want;
		f->spares += want;
	}
	return true;
}

void fanout_know_buffers(struct fanout *f)
{
	uint32_t available;

	if (f->buffers_known)
		return;
	available = f->io.dgram->available(f->io.queue);
	f->buffers =
		available > f->limits.buffer_reserve ? available - f->limits.buffer_reserve : 0;
	f->buffers_known = true;
}

struct dgram *fanout_dgram(struct fanout *f)
{
	return fanout_dgrams_ready(f, 1) ? f->spare[--f->spares] : NULL;
}

void fanout_record_of(const struct fanout *f, uint32_t slot, struct wire_record *record)
{
	const struct fanout_message *m = &f->message[slot];
	const struct channel_key *key = &f->key[slot];

	*record = (struct wire_record){
		.message_id = m->message_id,
		.seq = m->seq,
		.stamp = m->stamp,
		.channel_type = key->type,
		.flags = m->ack == WIRE_ACK_CLIENT ? WIRE_RECORD_RECEIPT : 0,
		.channel = channel_key_id(key),
		.from_uid = m->from_uid,
		.payload = m->payload,
	};
}

void fanout_end_routes(struct fanout *f, uint32_t slot, enum counter how, uint32_t count)
{
	counter_add(f->io.counters, CTR_ROUTES, count);
	f->message[slot].routes += count;
	f->message[slot].open += count;
	delivery_end(f->io.delivery, slot, how, count);
}

void fanout_begin(struct fanout *f, uint32_t slot)
{
	const struct fanout_message *m = &f->message[slot];
	struct wire_buf out = {.p = f->head, .cap = sizeof(f->head), .ok = true};
	struct wire_record record;

	if (f->current == slot)
		return;
	fanout_close_records(f);
	f->current = slot;
	fanout_record_of(f, slot, &record);
	f->head_bytes =
		WIRE_RECORD_BYTES + record.channel.len + record.from_uid.len + record.payload.len;
	if (f->head_bytes <= sizeof(f->head))
		wire_put_record(&out, &record);
	f->current_routes_beside =
		m->members < FANOUT_ROUTES_BESIDE ? m->members : FANOUT_ROUTES_BESIDE;
}

// --- records ------------------------------------------------------------------------------------------

#ifdef TAGCAST_TEST_HOOKS
// FAULT_DUP1: the last route of the record just closed gets the message again, under an id with one bit
// changed, which the receivers' suppression takes for another message: same seq, same payload.
static void planted_repeat(struct fanout *f, struct fanout_push *p, struct fanout_cursor *c)
{
	struct fanout_message *m = &f->message[f->current];
	const uint64_t id = (m->message_id ^ UINT64_C(1) << 62) != 0
				    ? m->message_id ^ UINT64_C(1) << 62
				    : UINT64_C(1) << 61;
	const uint16_t one = 1;
	uint8_t *at = c->tail;

	if (p->spans >= DELIVERY_SPANS_MAX || p->routes + 1u > PUSH_ROUTES_MAX ||
		at + f->head_bytes + WIRE_ROUTE_BYTES > p->end || !fault_take(FAULT_DUP1))
		return;
	memcpy(at, f->head, f->head_bytes);
	memcpy(at, &id, sizeof(id));
	memcpy(at + WIRE_RECORD_ROUTES_OFFSET, &one, sizeof(one));
	memcpy(at + f->head_bytes, c->tail - WIRE_ROUTE_BYTES, WIRE_ROUTE_BYTES);
	c->tail = at + f->head_bytes + WIRE_ROUTE_BYTES;
	fanout_add_span(p, f->current, 1, 1, m->deadline_ns, m->ack);
	m->routes++;
	m->open++;
	counter_add(f->io.counters, CTR_ROUTES, 1);
}
#else
static void planted_repeat(struct fanout *f, struct fanout_push *p, struct fanout_cursor *c)
{
	(void)f;
	(void)p;
	(void)c;
}
#endif

// Closes the record of the current message in a gateway's push; the cursor stands still until room is made
// again. Returns: its routes, for the caller to count.
static uint32_t close_record(struct fanout *f, const struct fanout_message *m, uint32_t gateway)
{
	struct fanout_push *p = &f->push[gateway];
	struct fanout_cursor *c = &f->cursor[gateway];
	const uint32_t routes = (uint32_t)(c->tail - p->route) / WIRE_ROUTE_BYTES;
	const uint16_t patch = (uint16_t)routes;

	if (routes == 0) {  // room was made and not used
		c->tail = p->record;
	} else {
		memcpy(p->record + WIRE_RECORD_ROUTES_OFFSET, &patch, sizeof(patch));
		fanout_add_span(p, f->current, routes, 1, m->deadline_ns, m->ack);
		planted_repeat(f, p, c);
	}
	p->record = NULL;
	c->limit = c->tail;
	return routes;
}

static void count_routes(struct fanout *f, struct fanout_message *m, uint32_t routes)
{
	m->routes += routes;
	m->open += routes;
	counter_add(f->io.counters, CTR_ROUTES, routes);
}

void fanout_close_records(struct fanout *f)
{
	struct fanout_message *m = &f->message[f->current];
	uint32_t routes = 0;

	if (f->touched_count == 0)
		return;
	for (uint32_t i = 0; i < f->touched_count; i++) {
		const uint32_t gateway = f->touched[i];
		struct fanout_push *p = &f->push[gateway];

		p->touched = false;
		if (p->record != NULL)
			routes += close_record(f, m, gateway);
		else if (p->staged)
			fanout_stage_close(f, gateway);
	}
	f->touched_count = 0;
	count_routes(f, m, routes);
}

// --- pushes -------------------------------------------------------------------------------------------

static bool open_push(struct fanout *f, uint32_t gateway) WORKER_ONLY;
static bool open_push(struct fanout *f, uint32_t gateway)
{
	struct fanout_push *p = &f->push[gateway];
	uint8_t *body;

	p->dgram = fanout_dgram(f);
	if (p->dgram == NULL)
		return false;
	body = p->dgram->data + WIRE_HEADER_BYTES;
	p->room = fanout_body_room(f, gateway);
	p->end = body + p->room;
	p->roomy = p->room > FANOUT_TIGHT_BYTES;
	p->routes = 0;
	p->spans = 0;
	p->acks = 0;
	p->retried = false;
	p->deadline_ns = UINT64_MAX;
	f->cursor[gateway].tail = f->cursor[gateway].limit = body + WIRE_PUSH_BYTES;
	if (!p->listed) {
		p->listed = true;
		f->open[f->open_count++] = (uint16_t)gateway;
	}
	return true;
}

void fanout_close_push(struct fanout *f, uint32_t gateway)
{
	const struct presence_gateway *g = &f->io.presence->gateway[gateway];
	struct fanout_push *p = &f->push[gateway];
	struct fanout_cursor *c = &f->cursor[gateway];
	struct dgram *d = p->dgram;
	uint8_t *body = d->data + WIRE_HEADER_BYTES;
	struct wire_buf out = {.p = body, .cap = WIRE_PUSH_BYTES, .ok = true};
	const struct wire_push head = {
		.gateway_boot = g->boot,
		.records = p->spans,
		.routes = p->routes,
		.need_ack = p->acks != 1u << WIRE_ACK_NONE,
	};
	struct delivery_push push;

	assert(p->record == NULL);
	p->dgram = NULL;
	if (p->spans == 0) {
		// As many as there are gateways may have been opened for members that had to wait.
		if (f->spares < FANOUT_SPARES)
			f->spare[f->spares++] = d;
		else
			f->io.dgram->free(f->io.queue, &d, 1);
		c->limit = c->tail;
		return;
	}
	wire_put_push(&out, &head);
	d->len = (uint16_t)(WIRE_HEADER_BYTES + (uint32_t)(c->tail - body));
	d->peer = g->addr;
	d->local_port = f->io.local_port;
	c->limit = c->tail;
	push = (struct delivery_push){
		.gateway = (uint16_t)gateway,
		.routes = p->routes,
		.frames = 1,
		.spans = p->spans,
		.acks = p->acks,
		.retried = p->retried,
		.deadline_ns = p->deadline_ns,
		.frame = &d,
		.span = p->span,
	};
	delivery_send(f->io.delivery, &push, f->now_ns);
}

static bool push_takes(const struct fanout *f, uint32_t gateway, uint32_t bytes)
{
	const struct fanout_push *p = &f->push[gateway];

	return p->dgram != NULL && p->spans < DELIVERY_SPANS_MAX &&
	       p->routes + RECORD_ROUTES_MIN <= FANOUT_PUSH_ROUTES &&
	       bytes <= (uint32_t)(p->end - f->cursor[gateway].tail);
}

// Copies in whole steps where there is room behind: what is too much is overwritten by the routes.
static void copy_head(uint8_t *to, const uint8_t *from, uint32_t bytes, const uint8_t *end)
{
	if (unlikely(bytes + FANOUT_COPY > (uint32_t)(end - to))) {
		memcpy(to, from, bytes);
		return;
	}
	for (uint32_t i = 0; i < bytes; i += FANOUT_COPY)
		memcpy(to + i, from + i, FANOUT_COPY);
}

// Opens a record of the current message in the gateway's push, which has room for it.
static void open_record(struct fanout *f, uint32_t gateway)
{
	struct fanout_push *p = &f->push[gateway];
	struct fanout_cursor *c = &f->cursor[gateway];
	uint32_t routes;

	p->record = c->tail;
	copy_head(c->tail, f->head, f->head_bytes, p->end);
	c->tail += f->head_bytes;
	p->route = c->tail;
	routes = (uint32_t)(p->end - c->tail) / WIRE_ROUTE_BYTES;
	if (routes > FANOUT_PUSH_ROUTES - p->routes)
		routes = FANOUT_PUSH_ROUTES - p->routes;
	c->limit = c->tail + routes * WIRE_ROUTE_BYTES;
}

bool fanout_reopen_push(struct fanout *f, uint32_t gateway)
{
	if (f->push[gateway].dgram != NULL)
		fanout_close_push(f, gateway);
	return open_push(f, gateway);
}

// A gateway that stays under pressure is waited for once; then its own limit decides what it loses, and
// others are not held up by it until it has recovered.
bool fanout_pressed(struct fanout *f, uint32_t gateway, bool large)
{
	struct fanout_push *p = &f->push[gateway];

	if (!delivery_pressed(f->io.delivery, gateway, large)) {
		p->pressed_ns = 0;
		return false;
	}
	if (p->pressed_ns == 0)
		p->pressed_ns = f->now_ns;
	return f->now_ns - p->pressed_ns < FANOUT_PATIENCE_NS;
}

static void touch(struct fanout *f, uint32_t gateway)
{
	if (f->push[gateway].touched)
		return;
	f->push[gateway].touched = true;
	f->touched[f->touched_count++] = (uint16_t)gateway;
}

bool fanout_make_room(struct fanout *f, uint32_t gateway)
{
	struct fanout_push *p = &f->push[gateway];
	const uint32_t room = fanout_body_room(f, gateway);
	const uint32_t beside =
		f->current_routes_beside < room / 16 ? f->current_routes_beside : room / 16;
	uint32_t routes;

	if (WIRE_PUSH_BYTES + f->head_bytes + beside * WIRE_ROUTE_BYTES > room)
		return fanout_stage_room(f, gateway);
	routes = beside < RECORD_ROUTES_MIN ? beside : RECORD_ROUTES_MIN;
	if (p->record != NULL) {  // full
		count_routes(f, &f->message[f->current],
			close_record(f, &f->message[f->current], gateway));
		fanout_close_push(f, gateway);
	} else if (p->dgram != NULL &&
		   !push_takes(f, gateway, f->head_bytes + routes * WIRE_ROUTE_BYTES)) {
		fanout_close_push(f, gateway);
	}
	if (p->dgram == NULL && ((f->message[f->current].members > FANOUT_BULK_MEMBERS &&
					 fanout_pressed(f, gateway, false)) ||
					!open_push(f, gateway)))
		return false;
	open_record(f, gateway);
	touch(f, gateway);
	return true;
}

bool fanout_quick_room(struct fanout *f, uint32_t gateway)
{
	const struct fanout_push *p = &f->push[gateway];
	uint32_t routes = f->current_routes_beside;

	if (p->record != NULL || p->dgram == NULL)
		return false;
	if (WIRE_PUSH_BYTES + f->head_bytes + routes * WIRE_ROUTE_BYTES > p->room)
		return false;
	if (routes > RECORD_ROUTES_MIN)
		routes = RECORD_ROUTES_MIN;
	if (!push_takes(f, gateway, f->head_bytes + routes * WIRE_ROUTE_BYTES) ||
		!atomic_load_explicit(
			&f->io.presence->gateway[gateway].alive, memory_order_acquire))
		return false;
	open_record(f, gateway);
	touch(f, gateway);
	return true;
}

bool fanout_append_record(struct fanout *f, uint32_t gateway, const struct delivery_span *span,
	const uint8_t *record, uint32_t bytes)
{
	struct fanout_push *p = &f->push[gateway];
	struct fanout_cursor *c = &f->cursor[gateway];

	if (p->dgram != NULL &&
		(!push_takes(f, gateway, bytes) || p->routes + span->count > FANOUT_PUSH_ROUTES))
		fanout_close_push(f, gateway);
	if (p->dgram == NULL && !open_push(f, gateway))
		return false;
	memcpy(c->tail, record, bytes);
	c->tail += bytes;
	c->limit = c->tail;
	fanout_add_span(p, span->message, span->count, span->attempt, span->deadline_ns, span->ack);
	return true;
}
