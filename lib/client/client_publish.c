/* SPDX-License-Identifier: BSD-3-Clause */
// Publishes in flight: sent to the worker of their channel, sent again until an outcome is known or the
// deadline has passed, ended exactly once. Runs on the client's thread.
//
// A publish is in the heap by the time of its next action. While the link is down it waits; the link
// coming up makes all that waited due. The payload is copied once at tagcast_publish and once into each
// datagram; a slot keeps its buffer for the next publish.
#include <errno.h>
#include <stdlib.h>

#include "client_pvt.h"

#define DEADLINE_DEFAULT_NS (30 * NS_PER_S)  // our own bound when the node's default applies
#define OUTCOME_GRACE_NS (1 * NS_PER_S)  // for the node's answer at its own deadline
#define RESEND_FIRST_NS (100 * NS_PER_MS)
#define RESEND_MAX_NS (2 * NS_PER_S)
#define RESEND_LARGE_MAX_NS \
	(1 * NS_PER_S)  // of segments: soon enough to meet those of the last time
#define FRAME_SENDS 4u
#define REFUSED_FIRST_NS (10 * NS_PER_MS)
#define REFUSED_MAX_NS (500 * NS_PER_MS)
#define BUSY_MAX_NS (5 * NS_PER_S)
#define SILENT_SENDS 3u  // unanswered sends that put the link in doubt
#define REHELLO_MIN_NS (1 * NS_PER_S)
#define POLL_SENDS_MAX 256u  // datagrams of one poll
#define SLOT_BITS 20u

// --- heap of slots by due time ------------------------------------------------------------------------

static uint64_t due_at(const struct client_publishes *ps, uint32_t at)
{
	return ps->slot[ps->heap[at]].due_ns;
}

static void heap_set(struct client_publishes *ps, uint32_t at, uint32_t slot)
{
	ps->heap[at] = slot;
	ps->slot[slot].heap_at = at;
}

static void heap_swap(struct client_publishes *ps, uint32_t a, uint32_t b)
{
	const uint32_t slot = ps->heap[a];

	heap_set(ps, a, ps->heap[b]);
	heap_set(ps, b, slot);
}

static void heap_fix(struct client_publishes *ps, uint32_t at)
{
	for (; at > 0 && due_at(ps, at) < due_at(ps, (at - 1) / 2); at = (at - 1) / 2)
		heap_swap(ps, at, (at - 1) / 2);
	for (;;) {
		uint32_t least = at;

		for (uint32_t child = 2 * at + 1; child <= 2 * at + 2; child++) {
			if (child < ps->used && due_at(ps, child) < due_at(ps, least))
				least = child;
		}
		if (least == at)
			return;
		heap_swap(ps, at, least);
		at = least;
	}
}

static void set_due(struct client_core *core, struct client_publish *p, uint64_t due_ns)
{
	p->due_ns = due_ns < p->deadline_ns ? due_ns : p->deadline_ns;
	heap_fix(&core->publishes, p->heap_at);
}

// --- slots --------------------------------------------------------------------------------------------

int client_publishes_init(struct client_core *core)
{
	struct client_publishes *ps = &core->publishes;

	ps->max = core->config.publish_max;
	ps->slot = calloc(ps->max, sizeof(*ps->slot));
	ps->heap = calloc(ps->max, sizeof(*ps->heap));
	if (ps->slot == NULL || ps->heap == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < ps->max; i++)
		ps->slot[i].next_free = i + 1;
	return 0;
}

void client_publishes_fini(struct client_core *core)
{
	struct client_publishes *ps = &core->publishes;

	for (uint32_t i = 0; ps->slot != NULL && i < ps->max; i++)
		free(ps->slot[i].bytes);
	free(ps->slot);
	free(ps->heap);
}

static void finish(
	struct client_core *core, struct client_publish *p, struct tagcast_outcome *outcome)
{
	struct client_publishes *ps = &core->publishes;
	const uint32_t at = p->heap_at;

	outcome->request = p->request;
	outcome->message_id = p->m.message_id;
	outcome->user = p->user;
	p->request = 0;
	ps->used--;
	if (at != ps->used) {
		heap_set(ps, at, ps->heap[ps->used]);
		heap_fix(ps, at);
	}
	p->next_free = ps->free;
	ps->free = (uint32_t)(p - ps->slot);
	core->stats.outcomes++;
	if (core->callbacks.outcome != NULL)
		core->callbacks.outcome(core->callbacks.ctx, outcome);
}

static int check(const struct client_core *core, const struct tagcast_publish *publish)
{
	if (publish->payload_len > PAYLOAD_MAX)
		return -EMSGSIZE;
	if (publish->message_id == 0 || publish->channel_type < 1 ||
		publish->channel_type > CHANNEL_TYPE_MAX || publish->channel.len < 1 ||
		publish->channel.len > ID_LEN_MAX || publish->from_uid.len > ID_LEN_MAX ||
		(unsigned)publish->ack > TAGCAST_ACK_CLIENT || publish->channel.bytes == NULL ||
		(publish->from_uid.len != 0 && publish->from_uid.bytes == NULL) ||
		(publish->payload_len != 0 && publish->payload == NULL))
		return -EINVAL;
	if (publish->sender_session && client_session_of(core, publish->session, NULL) == NULL)
		return -EINVAL;
	if (core->publishes.used == core->publishes.max)
		return -ENOBUFS;
	return 0;
}

// Copies what the caller gave into the slot.
static int fill(
	struct client_core *core, struct client_publish *p, const struct tagcast_publish *publish)
{
	const uint32_t need = (uint32_t)(publish->from_uid.len + publish->payload_len);
	const struct client_session *session;
	uint32_t slot = 0;

	if (need > p->room) {
		uint8_t *bytes = realloc(p->bytes, need);

		if (bytes == NULL)
			return -ENOMEM;
		p->bytes = bytes;
		p->room = need;
	}
	p->m = (struct wire_publish){
		.message_id = publish->message_id,
		.stamp = publish->stamp,
		.ack = (uint8_t)publish->ack,
		.from_uid = id_view_of(p->bytes, (uint8_t)publish->from_uid.len),
		.payload = {.len = (uint32_t)publish->payload_len},
	};
	channel_key_set(&p->m.channel, (uint8_t)publish->channel_type, publish->channel.bytes,
		(uint8_t)publish->channel.len);
	if (publish->from_uid.len != 0)
		memcpy(p->bytes, publish->from_uid.bytes, publish->from_uid.len);
	if (publish->payload_len != 0) {
		p->m.payload.p = p->bytes + publish->from_uid.len;
		memcpy(p->bytes + publish->from_uid.len, publish->payload, publish->payload_len);
	}
	p->echo_session = publish->sender_session != 0;
	if (p->echo_session) {
		session = client_session_of(core, publish->session, &slot);
		p->m.sender_gateway = core->config.client_id;
		p->m.sender_slot = slot;
		p->m.sender_gen = session->gen;
		// The node leaves the sender's own session out as long as it knows it under the
		// registration the message was sent with. Over a new one this memory does.
		client_seen_add(core->seen,
			client_delivery_print(channel_key_hash(&p->m.channel), publish->message_id,
				slot, session->gen),
			core->now_ns);
	}
	return 0;
}

// --- sending ------------------------------------------------------------------------------------------

// One datagram when the body fits, else segments. Sending an unanswered frame again fills the gaps of
// what came before, and a node that has it complete answers to its first part. Every fourth send is a new
// frame all the same: the node may have refused the complete one and forgotten why.
static uint32_t send_segments(
	struct client_core *core, struct client_publish *p, uint32_t worker, uint32_t total)
{
	const uint32_t part = client_send_begin(core, worker).cap - WIRE_SEGMENT_BYTES;
	const uint32_t count = (total + part - 1) / part;

	if (p->epoch != core->link.epoch || p->unanswered % FRAME_SENDS == 0)
		p->frame_id = ++core->publishes.frame_id;
	for (uint32_t i = 0; i < count; i++) {
		struct wire_buf out = client_send_begin(core, worker);
		const uint32_t offset = i * part;
		const struct wire_segment segment = {
			.frame_id = p->frame_id,
			.type = WIRE_PUBLISH,
			.index = (uint16_t)i,
			.count = (uint16_t)count,
			.total = total,
			.offset = offset,
			.part = {.p = core->frame + offset,
				.len = total - offset < part ? total - offset : part},
		};

		if (!wire_put_segment(&out, &segment))
			return i;
		client_send(core, worker, WIRE_SEGMENT, out.len);
	}
	return count;
}

// Returns: datagrams sent.
static uint32_t send_publish(struct client_core *core, struct client_publish *p)
{
	const struct client_link *link = &core->link;
	const uint32_t worker = channel_key_worker(&p->m.channel, link->workers);
	struct wire_buf out = client_send_begin(core, worker);
	uint32_t sent = 1;

	p->m.request_id = p->request;
	p->m.cookie = link->cookie;
	p->m.deadline_ms = 0;
	if (p->node_deadline_ns != 0) {
		const uint64_t left =
			p->node_deadline_ns > core->now_ns ? p->node_deadline_ns - core->now_ns : 0;

		p->m.deadline_ms = left < NS_PER_MS ? 1 : (uint32_t)(left / NS_PER_MS);
	}
	p->m.sender_boot = p->echo_session ? link->boot : 0;
	if (wire_put_publish(&out, &p->m)) {
		client_send(core, worker, WIRE_PUBLISH, out.len);
	} else {
		struct wire_buf frame = {.p = core->frame, .cap = sizeof(core->frame), .ok = true};

		if (!wire_put_publish(&frame, &p->m))
			return 0;
		sent = send_segments(core, p, worker, frame.len);
	}
	if (p->sends++ != 0)
		core->stats.publish_resends++;
	p->unanswered++;
	p->sent_ns = core->now_ns;
	p->epoch = link->epoch;
	p->refused = 0;
	return sent;
}

static uint64_t backoff(struct client_core *core, uint64_t first, uint64_t max, uint32_t times)
{
	uint64_t wait = first << (times < 10 ? times : 10);

	if (wait > max)
		wait = max;
	return wait + client_random(core, wait / 4);
}

// Sends, or waits for the link. Returns: datagrams sent.
static uint32_t act(struct client_core *core, struct client_publish *p)
{
	struct client_publishes *ps = &core->publishes;
	uint64_t max_ns;
	uint32_t sent;

	// Silence since three sends: the node may have restarted and refuse what names its former boot id.
	if (core->link.up && p->unanswered >= SILENT_SENDS && core->link.heard_ns < p->sent_ns &&
		core->now_ns - ps->rehello_ns >= REHELLO_MIN_NS) {
		ps->rehello_ns = core->now_ns;
		client_link_again(core);
	}
	if (!core->link.up) {
		p->waiting = true;
		set_due(core, p, CLIENT_NEVER);
		return 0;
	}
	p->waiting = false;
	sent = send_publish(core, p);
	max_ns = sent > 1 ? RESEND_LARGE_MAX_NS : RESEND_MAX_NS;
	set_due(core, p, core->now_ns + backoff(core, RESEND_FIRST_NS, max_ns, p->unanswered - 1));
	return sent;
}

// The node leaves the sender's own session out, but knows it by its registration: one that was lost while
// the message waited there would bring the echo back. So the session has it already, and its receipt too.
static void remember_own(struct client_core *core, const struct client_publish *p)
{
	const struct client_await own = {
		.print = client_delivery_print(channel_key_hash(&p->m.channel), p->m.message_id,
			p->m.sender_slot, p->m.sender_gen),
		.given = true,
	};

	if (client_seen_has(core->seen, own.print, core->now_ns))
		return;
	client_seen_add(core->seen, own.print, core->now_ns);
	if (p->m.ack == WIRE_ACK_CLIENT)
		client_awaiting_put(core->awaiting, &own);
}

int client_core_publish(struct client_core *core, const struct tagcast_publish *publish,
	uint64_t now_ns, uint64_t *request)
{
	struct client_publishes *ps = &core->publishes;
	struct client_publish *p;
	const uint64_t wait_ns = publish->deadline_ms * NS_PER_MS;
	int rc = check(core, publish);

	if (rc != 0)
		return rc;
	core->now_ns = now_ns;
	p = &ps->slot[ps->free];
	rc = fill(core, p, publish);
	if (rc != 0)
		return rc;
	p->request = ++ps->serial << SLOT_BITS | ps->free;
	p->user = publish->user;
	p->node_deadline_ns = wait_ns != 0 ? now_ns + wait_ns : 0;
	p->deadline_ns = now_ns + (wait_ns != 0 ? wait_ns + OUTCOME_GRACE_NS : DEADLINE_DEFAULT_NS);
	p->sent_ns = 0;
	p->epoch = 0;
	p->sends = 0;
	p->unanswered = 0;
	p->refusals = 0;
	p->refused = 0;
	p->due_ns = now_ns;
	heap_set(ps, ps->used, ps->free);
	ps->used++;
	ps->free = p->next_free;
	heap_fix(ps, p->heap_at);
	core->stats.published++;
	*request = p->request;
	if (p->echo_session)
		remember_own(core, p);
	act(core, p);
	return 0;
}

uint32_t client_core_publish_pending(const struct client_core *core)
{
	return core->publishes.used;
}

// --- answers ------------------------------------------------------------------------------------------

static void refused(
	struct client_core *core, struct client_publish *p, const struct wire_publish_ack *m)
{
	uint64_t wait = backoff(core, REFUSED_FIRST_NS, REFUSED_MAX_NS, p->refusals);

	if (m->status == WIRE_BUSY && m->retry_after_ms != 0) {
		wait = m->retry_after_ms * NS_PER_MS;
		if (wait > BUSY_MAX_NS)
			wait = BUSY_MAX_NS;
		wait += client_random(core, wait / 4);
	}
	p->refused = m->status;
	p->refusals++;
	p->unanswered = 0;
	if (m->status == WIRE_NEED_HELLO) {
		// An answer to a send from before the last HELLO only asks for another send.
		if (core->link.up && p->epoch == core->link.epoch)
			client_link_again(core);
		if (!core->link.up) {
			p->waiting = true;
			set_due(core, p, CLIENT_NEVER);
			return;
		}
	}
	set_due(core, p, core->now_ns + wait);
}

void client_on_publish_ack(struct client_core *core, struct wire_view body)
{
	struct client_publishes *ps = &core->publishes;
	struct tagcast_outcome outcome;
	struct wire_publish_ack m;
	struct client_publish *p;
	uint32_t slot;

	if (wire_get_publish_ack(body, &m) != 0) {
		core->stats.rx_bad++;
		return;
	}
	slot = (uint32_t)m.request_id & ((1u << SLOT_BITS) - 1);
	if (slot >= ps->max)
		return;
	p = &ps->slot[slot];
	if (m.request_id == 0 || p->request != m.request_id || p->m.message_id != m.message_id)
		return;  // of a publish that has ended
	if (m.status == WIRE_RETRYABLE || m.status == WIRE_BUSY || m.status == WIRE_NEED_HELLO) {
		// A second answer to the same send changes nothing.
		if (p->refused == 0)
			refused(core, p, &m);
		return;
	}
	outcome = (struct tagcast_outcome){
		.status = m.status,
		.duplicate = m.duplicate,
		.seq = m.seq,
		.members = m.members,
		.routes = m.routes,
		.acked = m.acked,
		.ended = m.ended,
	};
	finish(core, p, &outcome);
}

// --- timers -------------------------------------------------------------------------------------------

void client_publishes_link_up(struct client_core *core)
{
	struct client_publishes *ps = &core->publishes;

	for (uint32_t i = 0; i < ps->max; i++) {
		struct client_publish *p = &ps->slot[i];

		if (p->request != 0 && p->waiting)
			set_due(core, p, core->now_ns);
	}
}

void client_publishes_poll(struct client_core *core)
{
	struct client_publishes *ps = &core->publishes;
	uint32_t sent = 0;

	while (ps->used != 0 && due_at(ps, 0) <= core->now_ns && sent < POLL_SENDS_MAX) {
		struct client_publish *p = &ps->slot[ps->heap[0]];
		struct tagcast_outcome outcome = {.status = TAGCAST_TIMEOUT};

		if (p->deadline_ns > core->now_ns) {
			sent += act(core, p);
			continue;
		}
		// Refused by the last answer, and not sent again since: that is known, not a silence.
		if (p->refused == WIRE_RETRYABLE || p->refused == WIRE_BUSY)
			outcome.status = p->refused;
		finish(core, p, &outcome);
	}
}

uint64_t client_publishes_next_ns(const struct client_core *core)
{
	return core->publishes.used != 0 ? due_at(&core->publishes, 0) : CLIENT_NEVER;
}
