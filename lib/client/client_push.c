/* SPDX-License-Identifier: BSD-3-Clause */
// Pushes in: each route is matched to a session, checked against the suppression window, delivered, and
// answered for in one PUSH_ACK. Runs on the client's thread.
//
// A push that comes again is gone through again: what was delivered is in the window and counts as
// accepted, what could not be written then is tried now. So the answer of a repeated push is right even if
// nobody remembers the first one. Only the repeated segments of a large push, whose body is gone, are
// answered from memory.
#include <stdlib.h>

#include "base_fault.h"
#include "client_pvt.h"

static uint64_t mix(uint64_t x)
{
	x ^= x >> 30;
	x *= UINT64_C(0xbf58476d1ce4e5b9);
	x ^= x >> 27;
	x *= UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

uint64_t client_delivery_print(
	uint64_t channel_hash, uint64_t message_id, uint32_t slot, uint32_t gen)
{
	return mix(mix(channel_hash + mix(message_id)) ^ ((uint64_t)gen << 32 | slot));
}

// A push being gone through.
struct push {
	const struct wire_push *m;
	uint32_t worker;
	uint32_t position;
	uint32_t accepted, retryable, dropped;
	const struct wire_record *record;
	uint64_t channel_hash;
	struct tagcast_message message;
};

static enum tagcast_verdict deliver(
	struct client_core *core, struct push *push, uint32_t handle, void *user)
{
	const struct tagcast_callbacks *cb = &core->callbacks;

	if (cb->deliver == NULL)
		return TAGCAST_DROP;
	core->stats.delivered++;
	if (fault_take(FAULT_DUP1))
		cb->deliver(cb->ctx, handle, user, &push->message);
	return cb->deliver(cb->ctx, handle, user, &push->message);
}

// A repeat: accepted without another delivery. A receipt its client gave before is given again, as the
// node that pushes again has not seen it.
static void repeated(struct client_core *core, const struct client_await *await, bool receipts)
{
	struct client_await *old;

	core->stats.suppressed++;
	if (!receipts)
		return;
	old = client_awaiting_find(core->awaiting, await->print);
	if (old == NULL)
		return;
	*old = (struct client_await){
		.print = await->print,
		.push_id = await->push_id,
		.push_gen = await->push_gen,
		.position = await->position,
		.worker = await->worker,
		.given = old->given,
	};
	if (old->given)
		client_receipt_add(core, old);
}

static enum tagcast_verdict route(
	struct client_core *core, struct push *push, uint32_t slot, uint32_t gen)
{
	const bool receipts = (push->record->flags & WIRE_RECORD_RECEIPT) != 0;
	struct client_session *session = client_session_at(core, slot, gen);
	enum tagcast_verdict verdict;
	const struct client_await await = {
		.print = client_delivery_print(
			push->channel_hash, push->record->message_id, slot, gen),
		.push_id = push->m->push_id,
		.push_gen = push->m->push_gen,
		.position = (uint16_t)push->position,
		.worker = (uint8_t)push->worker,
	};

	if (session == NULL) {
		core->stats.unknown_session++;
		return TAGCAST_DROP;
	}
	if (client_seen_has(core->seen, await.print, core->now_ns)) {
		repeated(core, &await, receipts);
		return TAGCAST_ACCEPT;
	}
	// Before the delivery, so that the callback itself may give the receipt.
	if (receipts)
		client_awaiting_put(core->awaiting, &await);
	verdict = deliver(core, push, client_session_handle(slot, gen), session->user);
	if (verdict == TAGCAST_ACCEPT)
		client_seen_add(core->seen, await.print, core->now_ns);
	else if (receipts)
		client_awaiting_drop(core->awaiting, await.print);
	return verdict;
}

static void record_start(struct push *push, const struct wire_record *r)
{
	struct channel_key key;

	channel_key_set(&key, r->channel_type, r->channel.bytes, r->channel.len);
	push->record = r;
	push->channel_hash = channel_key_hash(&key);
	push->message = (struct tagcast_message){
		.channel = {.bytes = r->channel.bytes, .len = r->channel.len},
		.channel_type = r->channel_type,
		.message_id = r->message_id,
		.seq = r->seq,
		.stamp = r->stamp,
		.from_uid = {.bytes = r->from_uid.bytes, .len = r->from_uid.len},
		.payload = r->payload.p,
		.payload_len = r->payload.len,
		.late = (r->flags & WIRE_RECORD_LATE) != 0 || push->m->attempt != 0,
	};
}

static void walk(struct client_core *core, struct push *push)
{
	struct wire_view rest = push->m->body;
	struct wire_record r;

	while (wire_push_next(&rest, &r)) {
		record_start(push, &r);
		core->stats.records++;
		for (uint32_t i = 0; i < r.routes; i++, push->position++) {
			uint32_t slot, gen;

			wire_get_route(r.route + i * WIRE_ROUTE_BYTES, &slot, &gen);
			switch (route(core, push, slot, gen)) {
			case TAGCAST_ACCEPT:
				push->accepted++;
				break;
			case TAGCAST_RETRY:
				core->retryable[push->retryable++] = (uint16_t)push->position;
				break;
			case TAGCAST_DROP:
			default:
				core->dropped[push->dropped++] = (uint16_t)push->position;
				break;
			}
		}
	}
}

// The positions of an answer, in core->frame. They may be more than a datagram takes: dropped routes that
// do not fit are called accepted (they end all the same), retryable ones that do not fit make the answer
// impossible, so that the node pushes again. Returns: false then.
static bool positions_fit(struct client_core *core, struct push *push, uint32_t cap)
{
	const uint32_t room = cap / sizeof(uint16_t);

	if (push->retryable > room)
		return false;
	if (push->retryable + push->dropped > room) {
		const uint32_t over = push->retryable + push->dropped - room;

		push->dropped -= over;
		push->accepted += over;
	}
	memcpy(core->frame, core->retryable, push->retryable * sizeof(uint16_t));
	memcpy(core->frame + push->retryable * sizeof(uint16_t), core->dropped,
		push->dropped * sizeof(uint16_t));
	return true;
}

static void remember(struct client_core *core, const struct push *push, const struct wire_buf *body)
{
	struct client_ack_memory *a = &core->acks[core->acks_at++ % CLIENT_ACK_MEMORY];
	uint8_t *copy = realloc(a->body, body->len);

	a->boot = 0;
	if (copy == NULL)
		return;
	a->body = copy;
	memcpy(a->body, body->p, body->len);
	a->len = body->len;
	a->push_id = push->m->push_id;
	a->push_gen = push->m->push_gen;
	a->worker = (uint8_t)push->worker;
	a->boot = core->link.boot;
}

static void answer(struct client_core *core, struct push *push, bool segmented)
{
	struct wire_buf out = client_send_begin(core, push->worker);
	struct wire_push_ack ack = {
		.push_id = push->m->push_id,
		.push_gen = push->m->push_gen,
		.accepted = 1,
	};
	struct wire_buf probe = out;

	// What the fixed part takes is what an answer without positions takes.
	if (!wire_put_push_ack(&probe, &ack) || !positions_fit(core, push, out.cap - probe.len))
		return;
	ack.accepted = (uint16_t)push->accepted;
	ack.retryable = (uint16_t)push->retryable;
	ack.dropped = (uint16_t)push->dropped;
	ack.positions = (struct wire_view){
		.p = core->frame,
		.len = (push->retryable + push->dropped) * (uint32_t)sizeof(uint16_t),
	};
	if (!wire_put_push_ack(&out, &ack))
		return;
	if (segmented)
		remember(core, push, &out);
	client_send(core, push->worker, WIRE_PUSH_ACK, out.len);
}

void client_on_push(struct client_core *core, uint32_t worker, struct wire_view body,
	bool segmented, uint8_t attempt)
{
	struct push push = {.worker = worker};
	struct wire_push m;

	if (wire_get_push(body, &m) != 0 || m.routes > FRAME_ROUTES_MAX) {
		core->stats.rx_bad++;
		return;
	}
	if (m.gateway_boot != core->link.boot) {
		core->stats.stale_pushes++;  // for a registration that has ended
		return;
	}
	core->stats.pushes++;
	m.attempt = attempt > m.attempt ? attempt : m.attempt;
	push.m = &m;
	walk(core, &push);
	// The callbacks may have ended the registration (never the client): then nobody waits for this.
	if (m.need_ack != 0 && m.gateway_boot == core->link.boot)
		answer(core, &push, segmented);
}

static void answer_repeated(
	struct client_core *core, uint32_t worker, const struct wire_segment *segment)
{
	uint32_t id, gen;

	// The first segment starts with the push's id and generation.
	if (segment->index != 0 || segment->part.len < 2 * sizeof(uint32_t))
		return;
	memcpy(&id, segment->part.p, sizeof(id));
	memcpy(&gen, segment->part.p + sizeof(id), sizeof(gen));
	for (uint32_t i = 0; i < CLIENT_ACK_MEMORY; i++) {
		const struct client_ack_memory *a = &core->acks[i];
		struct wire_buf out;

		if (a->boot != core->link.boot || a->worker != worker || a->push_id != id ||
			a->push_gen != gen)
			continue;
		out = client_send_begin(core, worker);
		if (a->len > out.cap)
			return;
		memcpy(out.p, a->body, a->len);
		client_send(core, worker, WIRE_PUSH_ACK, a->len);
		return;
	}
}

void client_on_segment(struct client_core *core, const struct wire_header *header, uint32_t worker,
	struct wire_view body)
{
	struct wire_segment segment;
	struct wire_view frame;
	uint32_t handle;

	if (wire_get_segment(body, &segment) != 0 || segment.type != WIRE_PUSH) {
		core->stats.rx_bad++;
		return;
	}
	switch (wire_reassembly_add(
		core->frames, header, &segment, core->now_ns, &frame, &handle)) {
	case WIRE_PART_COMPLETE:
		client_on_push(
			core, worker, frame, true, wire_reassembly_attempt(core->frames, handle));
		wire_reassembly_release(core->frames, handle);
		return;
	case WIRE_PART_REPEATED:
		answer_repeated(core, worker, &segment);
		return;
	case WIRE_PART_BAD:
		core->stats.rx_bad++;
		return;
	case WIRE_PART_MORE:
	case WIRE_PART_FULL:
	default:
		return;
	}
}
