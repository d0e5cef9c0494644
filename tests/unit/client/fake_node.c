/* SPDX-License-Identifier: BSD-3-Clause */
// The scripted node and its network (fake_node.h). One thread.
#include "fake_node.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

uint8_t world_byte(uint64_t message_id, uint32_t i)
{
	return (uint8_t)(message_id * 31 + i * 7 + (i >> 8));
}

static uint32_t rnd(struct world *w, uint32_t below)
{
	w->random = w->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return below == 0 ? 0 : (uint32_t)(w->random >> 33) % below;
}

// --- network ------------------------------------------------------------------------------------------

static void net_put(
	struct world *w, bool to_client, uint16_t port, const uint8_t *bytes, uint32_t len)
{
	struct world_packet *p;

	if (w->packets == WORLD_PACKETS)
		return;
	p = &w->packet[w->packets++];
	*p = (struct world_packet){
		.due_ns = w->now_ns + w->delay_ns + rnd(w, (uint32_t)w->jitter_ns),
		.order = w->order++,
		.bytes = malloc(len + 1),
		.len = (uint16_t)len,
		.port = port,
		.to_client = to_client,
	};
	memcpy(p->bytes, bytes, len);
}

static void net_send(
	struct world *w, bool to_client, uint16_t port, const uint8_t *bytes, uint32_t len)
{
	struct wire_header header;
	struct wire_view body;

	if (w->cut || rnd(w, 100) < w->loss_percent)
		return;
	if (w->filter != NULL && wire_get_header(bytes, len, &header, &body) == 0 &&
		!w->filter(w, &header, to_client))
		return;
	net_put(w, to_client, port, bytes, len);
	if (rnd(w, 100) < w->dup_percent)
		net_put(w, to_client, port, bytes, len);
}

static void node_lanes(struct world *w)
{
	for (uint32_t i = 0; i < WORLD_WORKERS; i++)
		w->lane[i] = (struct wire_lane){.sender = w->node_id,
			.boot = w->node_boot,
			.lane = (uint8_t)i,
			.keys = &w->keys};
}

static void node_send(struct world *w, uint32_t worker, uint8_t type, const uint8_t *body,
	uint32_t len, uint64_t boot)
{
	uint8_t p[MTU_MAX];
	uint16_t bytes;

	memcpy(p + WIRE_HEADER_BYTES, body, len);
	bytes = wire_lane_seal(&w->lane[worker], type, p, len, boot);
	net_send(w, true, (uint16_t)(WORLD_PORT + worker), p, bytes);
}

void world_send(struct world *w, uint32_t worker, uint8_t type, const uint8_t *body, uint32_t len)
{
	uint8_t p[MTU_MAX];
	uint16_t bytes;

	memcpy(p + WIRE_HEADER_BYTES, body, len);
	bytes = wire_lane_seal(&w->lane[worker], type, p, len, client_core_boot(w->core));
	world_inject(w, worker, p, bytes);
}

void world_inject(struct world *w, uint32_t worker, const uint8_t *bytes, uint32_t len)
{
	const struct net_addr from = {.ip = WORLD_IP, .port = (uint16_t)(WORLD_PORT + worker)};

	client_core_rx(w->core, bytes, len, from, w->now_ns);
}

// --- node ---------------------------------------------------------------------------------------------

static uint64_t cookie_of(const struct world *w, const struct wire_header *h)
{
	return (h->sender * 31 + h->boot) ^ w->cookie_salt ^ 0x5555;
}

static void on_hello(struct world *w, const struct wire_header *h, struct wire_view body)
{
	uint8_t bytes[256];
	struct wire_buf out = {.p = bytes, .cap = sizeof(bytes), .ok = true};
	struct wire_hello m;
	struct wire_hello_ack ack = {
		.status = WIRE_NEED_HELLO,
		.cookie = cookie_of(w, h),
		.node_id = w->node_id,
		.node_boot = w->node_boot,
		.port_base = WORLD_PORT,
		.workers = WORLD_WORKERS,
		.version = WIRE_VERSION,
		.mtu = 1500,
		.payload_max = PAYLOAD_MAX,
		.heartbeat_ms = w->heartbeat_ms,
		.topology_version = w->topology_version,
	};

	if (wire_get_hello(body, &m) != 0) {
		w->bad++;
		return;
	}
	w->hellos++;
	if (m.cookie == ack.cookie)
		ack.status = w->hello_status;
	if (ack.status == WIRE_OK && m.role == WIRE_ROLE_GATEWAY && w->client_boot != h->boot) {
		world_forget(w);
		w->client_boot = h->boot;
		w->next_expected = 1;
	}
	assert(wire_put_hello_ack(&out, &ack));
	node_send(w, 0, WIRE_HELLO_ACK, bytes, out.len, h->boot);
}

static void on_heartbeat(struct world *w, const struct wire_header *h, struct wire_view body)
{
	uint8_t bytes[256];
	struct wire_buf out = {.p = bytes, .cap = sizeof(bytes), .ok = true};
	struct wire_heartbeat m;
	struct wire_heartbeat_ack ack;

	if (wire_get_heartbeat(body, &m) != 0) {
		w->bad++;
		return;
	}
	w->heartbeats++;
	ack = (struct wire_heartbeat_ack){
		.stamp = m.stamp,
		.topology_version = w->topology_version,
		.next_expected = w->client_boot == h->boot ? w->next_expected : 0,
		.sessions = w->sessions,
		.status = w->client_boot == h->boot ? WIRE_OK : WIRE_UNKNOWN_GATEWAY,
	};
	assert(wire_put_heartbeat_ack(&out, &ack));
	node_send(w, 0, WIRE_HEARTBEAT_ACK, bytes, out.len, h->boot);
}

static void apply(struct world *w, const struct wire_session *e)
{
	struct world_session *s = &w->session[e->slot];

	assert(e->slot < WORLD_SESSIONS);
	w->announce_entries++;
	if (e->op == WIRE_SESSION_OPEN) {
		if (!s->open)
			w->sessions++;
		s->open = true;
		s->gen = e->gen;
		s->uid_len = e->uid.len;
		memcpy(s->uid, e->uid.bytes, e->uid.len);
		s->uid[e->uid.len] = 0;
		return;
	}
	if (s->open && s->gen == e->gen) {
		s->open = false;
		w->sessions--;
	}
}

static void on_announce(struct world *w, const struct wire_header *h, struct wire_view body)
{
	uint8_t bytes[256];
	struct wire_buf out = {.p = bytes, .cap = sizeof(bytes), .ok = true};
	static const uint16_t first[2] = {0, WIRE_LIMIT};
	struct wire_announce m;
	struct wire_session e;
	struct wire_announce_ack ack = {.status = WIRE_OK};

	if (wire_get_announce(body, &m) != 0) {
		w->bad++;
		return;
	}
	w->announces++;
	ack.stream_seq = m.stream_seq;
	if (w->client_boot != h->boot) {
		ack.status = WIRE_UNKNOWN_GATEWAY;
	} else if (m.stream_seq == w->next_expected) {
		for (uint32_t i = 0; wire_announce_next(&m.entries, &e); i++) {
			if (i == 0 && w->ack_reject_once) {
				w->ack_reject_once = false;
				ack.rejected = 1;
				ack.rejects =
					(struct wire_view){.p = (const uint8_t *)first, .len = 4};
				continue;
			}
			apply(w, &e);
		}
		w->next_expected++;
	} else if (m.stream_seq > w->next_expected) {
		ack.status = WIRE_OUT_OF_ORDER;
	}
	ack.next_expected = w->next_expected;
	assert(wire_put_announce_ack(&out, &ack));
	node_send(w, 0, WIRE_ANNOUNCE_ACK, bytes, out.len, h->boot);
}

static bool admit(struct world *w, uint64_t message_id)
{
	for (uint32_t i = 0; i < w->admissions; i++) {
		if (w->admitted[i] == message_id)
			return false;
	}
	assert(w->admissions < WORLD_LOG);
	w->admitted[w->admissions++] = message_id;
	return true;
}

static void on_publish(
	struct world *w, const struct wire_header *h, uint32_t worker, struct wire_view body)
{
	uint8_t bytes[256];
	struct wire_buf out = {.p = bytes, .cap = sizeof(bytes), .ok = true};
	struct wire_publish m;
	struct wire_publish_ack ack = {.status = WIRE_OK};

	if (wire_get_publish(body, &m) != 0) {
		w->bad++;
		return;
	}
	w->publishes++;
	w->last_publish = m;
	w->last_publish_worker = worker;
	w->last_payload_sum = 0;
	for (uint32_t i = 0; i < m.payload.len; i++)
		w->last_payload_sum = w->last_payload_sum * 131 + m.payload.p[i];
	if (w->mute_publish)
		return;
	ack.request_id = m.request_id;
	ack.message_id = m.message_id;
	ack.retry_after_ms = w->retry_after_ms;
	if (m.cookie != cookie_of(w, h))
		ack.status = WIRE_NEED_HELLO;
	else if (w->publish_at < w->publish_statuses)
		ack.status = w->publish_status[w->publish_at++];
	if (ack.status == WIRE_OK)
		ack.duplicate = !admit(w, m.message_id);
	ack.acked = ack.status == WIRE_OK ? 7 : 0;
	assert(wire_put_publish_ack(&out, &ack));
	node_send(w, worker, WIRE_PUBLISH_ACK, bytes, out.len, h->boot);
}

static struct world_push *push_of(struct world *w, uint32_t worker, uint32_t id, uint32_t gen)
{
	for (uint32_t i = 0; i < w->pushes; i++) {
		struct world_push *p = &w->push[i];

		if (p->used && p->push_id == id && p->push_gen == gen && p->worker == worker)
			return p;
	}
	return NULL;
}

static void on_push_ack(struct world *w, uint32_t worker, struct wire_view body)
{
	struct wire_push_ack m;
	struct world_push *p;

	if (wire_get_push_ack(body, &m) != 0) {
		w->bad++;
		return;
	}
	p = push_of(w, worker, m.push_id, m.push_gen);
	assert(p != NULL);
	p->acked = true;
	p->acks++;
	p->accepted = m.accepted;
	p->retryable = m.retryable;
	p->dropped = m.dropped;
	for (uint32_t i = 0; i < m.positions.len / 2 && i < 64; i++)
		p->position[i] = wire_position(m.positions, i);
}

static void on_receipt(struct world *w, uint32_t worker, struct wire_view body)
{
	struct wire_receipt m;
	struct world_push *p;

	if (wire_get_receipt(body, &m) != 0) {
		w->bad++;
		return;
	}
	p = push_of(w, worker, m.push_id, m.push_gen);
	assert(p != NULL);
	p->receipts++;
	for (uint32_t i = 0; i < m.bits.len && m.first / 8u + i < sizeof(p->receipt); i++)
		p->receipt[m.first / 8u + i] |= m.bits.p[i];
}

// The outcome of a frame that was complete before, by the ids at the start of its body.
static void repeated(struct world *w, const struct wire_header *h, uint32_t worker,
	const struct wire_segment *segment)
{
	uint8_t bytes[256];
	struct wire_buf out = {.p = bytes, .cap = sizeof(bytes), .ok = true};
	struct wire_publish_ack ack = {.status = WIRE_OK, .duplicate = 1, .acked = 7};

	if (segment->index != 0 || w->mute_publish)
		return;
	memcpy(&ack.request_id, segment->part.p, 8);
	memcpy(&ack.message_id, segment->part.p + 8, 8);
	for (uint32_t i = 0; i < w->admissions; i++) {
		if (w->admitted[i] != ack.message_id)
			continue;
		assert(wire_put_publish_ack(&out, &ack));
		node_send(w, worker, WIRE_PUBLISH_ACK, bytes, out.len, h->boot);
		return;
	}
}

static void on_segment(
	struct world *w, const struct wire_header *h, uint32_t worker, struct wire_view body)
{
	struct wire_segment segment;
	struct wire_view frame;
	uint32_t handle;

	if (wire_get_segment(body, &segment) != 0) {
		w->bad++;
		return;
	}
	switch (wire_reassembly_add(w->frames, h, &segment, w->now_ns, &frame, &handle)) {
	case WIRE_PART_COMPLETE:
		on_publish(w, h, worker, frame);
		wire_reassembly_release(w->frames, handle);
		break;
	case WIRE_PART_REPEATED:
		repeated(w, h, worker, &segment);
		break;
	default:
		break;
	}
}

static void node_rx(struct world *w, uint32_t worker, const uint8_t *bytes, uint32_t len)
{
	struct wire_header h;
	struct wire_view body;

	if (wire_get_header(bytes, len, &h, &body) != 0) {
		w->bad++;
		return;
	}
	if (wire_open(&w->keys, bytes, len, &h, h.type == WIRE_HELLO ? 0 : w->node_boot) != 0) {
		w->rejected_auth++;
		return;
	}
	if (h.boot != w->replay_boot) {
		memset(w->replay, 0, sizeof(w->replay));
		w->replay_boot = h.boot;
	}
	assert(h.lane == worker);
	if (!wire_replay_take(&w->replay[h.lane], h.seq)) {
		w->rejected_replay++;
		return;
	}
	switch (h.type) {
	case WIRE_HELLO:
		on_hello(w, &h, body);
		break;
	case WIRE_HEARTBEAT:
		on_heartbeat(w, &h, body);
		break;
	case WIRE_ANNOUNCE:
		on_announce(w, &h, body);
		break;
	case WIRE_BYE:
		w->byes++;
		world_forget(w);
		break;
	case WIRE_PUBLISH:
		on_publish(w, &h, worker, body);
		break;
	case WIRE_SEGMENT:
		on_segment(w, &h, worker, body);
		break;
	case WIRE_PUSH_ACK:
		on_push_ack(w, worker, body);
		break;
	case WIRE_RECEIPT:
		on_receipt(w, worker, body);
		break;
	default:
		w->bad++;
		break;
	}
}

void world_forget(struct world *w)
{
	w->client_boot = 0;
	w->next_expected = 0;
	w->sessions = 0;
	memset(w->session, 0, sizeof(w->session));
}

void world_node_restart(struct world *w)
{
	world_forget(w);
	w->node_boot++;
	w->cookie_salt++;
	w->replay_boot = 0;
	node_lanes(w);
}

// --- pushes -------------------------------------------------------------------------------------------

static void push_send(struct world *w, struct world_push *p)
{
	const uint32_t room = wire_lane_body_room(&w->lane[p->worker], 1500 - WIRE_UDP_OVERHEAD);
	const uint32_t part = room - WIRE_SEGMENT_BYTES;

	const uint8_t attempt = (uint8_t)p->sends++;
	const uint32_t lost = w->lose;

	w->lose = 0;
	p->due_ns = w->now_ns + w->push_timeout_ns;
	if (p->len <= room) {
		p->body[WIRE_PUSH_RECORDS_OFFSET + 5] = attempt;
		if (lost == 1)
			return;
		node_send(w, p->worker, WIRE_PUSH, p->body, p->len, client_core_boot(w->core));
		return;
	}
	for (uint32_t i = 0; i * part < p->len; i++) {
		uint8_t bytes[MTU_MAX];
		struct wire_buf out = {.p = bytes, .cap = room, .ok = true};
		const uint32_t left = p->len - i * part;
		const struct wire_segment s = {
			.frame_id = p->frame_id,
			.type = WIRE_PUSH,
			.attempt = attempt,
			.index = (uint16_t)i,
			.count = (uint16_t)((p->len + part - 1) / part),
			.total = p->len,
			.offset = i * part,
			.part = {.p = p->body + i * part, .len = left < part ? left : part},
		};

		if (i + 1 == lost)
			continue;
		assert(wire_put_segment(&out, &s));
		node_send(w, p->worker, WIRE_SEGMENT, bytes, out.len, client_core_boot(w->core));
	}
}

uint32_t world_push(struct world *w, uint32_t worker, const struct world_record *record,
	uint32_t records, bool need_ack)
{
	struct world_push *p = &w->push[w->pushes];
	struct wire_push m = {
		.push_id = w->pushes,
		.push_gen = 5,
		.gateway_boot = client_core_boot(w->core),
		.records = (uint16_t)records,
		.need_ack = need_ack,
	};
	struct wire_buf out = {.cap = FRAME_BYTES_MAX, .ok = true};

	assert(w->pushes < WORLD_PUSHES);
	out.p = malloc(FRAME_BYTES_MAX);
	for (uint32_t i = 0; i < records; i++)
		m.routes = (uint16_t)(m.routes + record[i].routes);
	assert(wire_put_push(&out, &m));
	for (uint32_t i = 0; i < records; i++) {
		const struct world_record *r = &record[i];
		uint8_t *payload = malloc(r->payload_bytes + 1);
		struct wire_record wr = {
			.message_id = r->message_id,
			.seq = r->seq,
			.channel_type = 2,
			.flags = r->flags,
			.channel = id_view_of(r->channel, (uint8_t)strlen(r->channel)),
			.payload = {.p = payload, .len = r->payload_bytes},
			.routes = (uint16_t)r->routes,
		};

		for (uint32_t k = 0; k < r->payload_bytes; k++)
			payload[k] = world_byte(r->message_id, k);
		assert(wire_put_record(&out, &wr));
		free(payload);
		for (uint32_t k = 0; k < r->routes; k++) {
			wire_put_route(out.p + out.len, r->route[k].slot, r->route[k].gen);
			out.len += WIRE_ROUTE_BYTES;
		}
	}
	*p = (struct world_push){
		.used = true,
		.acked = !need_ack,
		.push_id = m.push_id,
		.push_gen = m.push_gen,
		.worker = worker,
		.routes = m.routes,
		.body = out.p,
		.len = out.len,
		.frame_id = w->pushes + 1,
	};
	push_send(w, p);
	return w->pushes++;
}

void world_push_again(struct world *w, uint32_t index)
{
	push_send(w, &w->push[index]);
}

// --- client side --------------------------------------------------------------------------------------

static void on_send(void *ctx, struct net_addr to, const uint8_t *bytes, uint16_t len)
{
	struct world *w = ctx;

	assert(to.ip == WORLD_IP && to.port >= WORLD_PORT && to.port < WORLD_PORT + WORLD_WORKERS);
	net_send(w, false, to.port, bytes, len);
}

static void on_outcome(void *ctx, const struct tagcast_outcome *o)
{
	struct world *w = ctx;

	assert(w->outcomes < WORLD_LOG);
	w->outcome[w->outcomes++] = (struct world_outcome){
		.message_id = o->message_id,
		.request = o->request,
		.at_ns = w->now_ns,
		.status = o->status,
		.duplicate = o->duplicate,
		.acked = o->acked,
		.user = o->user,
	};
}

static enum tagcast_verdict on_deliver(
	void *ctx, uint32_t session, void *user, const struct tagcast_message *m)
{
	struct world *w = ctx;
	struct world_delivery *d = &w->delivery[w->deliveries];
	const uint8_t *payload = m->payload;

	assert(w->deliveries < WORLD_LOG && m->channel.len < sizeof(d->channel));
	w->deliveries++;
	*d = (struct world_delivery){
		.message_id = m->message_id,
		.seq = m->seq,
		.session = session,
		.user = user,
		.late = m->late,
		.payload_len = (uint32_t)m->payload_len,
	};
	memcpy(d->channel, m->channel.bytes, m->channel.len);
	for (uint32_t i = 0; i < m->payload_len; i++)
		assert(payload[i] == world_byte(m->message_id, i));
	return w->verdict != NULL ? w->verdict(w, d, m) : TAGCAST_ACCEPT;
}

static void on_state(void *ctx, int registered)
{
	struct world *w = ctx;

	if (registered)
		w->states_up++;
	else
		w->states_down++;
}

uint32_t world_open(struct world *w, const char *uid)
{
	const struct tagcast_id id = {.bytes = uid, .len = strlen(uid)};
	uint32_t session = 0;

	assert(client_core_session_open(w->core, id, w, &session) == 0);
	return session;
}

uint64_t world_publish(struct world *w, const char *channel, uint64_t message_id, uint32_t bytes)
{
	uint8_t *payload = malloc(bytes + 1);
	const struct tagcast_publish p = {
		.channel_type = 2,
		.channel = {.bytes = channel, .len = strlen(channel)},
		.message_id = message_id,
		.payload = payload,
		.payload_len = bytes,
		.ack = TAGCAST_ACK_GATEWAY,
		.user = w,
	};
	uint64_t request = 0;

	for (uint32_t i = 0; i < bytes; i++)
		payload[i] = world_byte(message_id, i);
	assert(client_core_publish(w->core, &p, w->now_ns, &request) == 0);
	free(payload);
	return request;
}

struct world_route world_route(const struct world *w, uint32_t handle)
{
	const uint32_t slot = handle & 0xffffff;

	(void)w;
	return (struct world_route){.slot = slot, .gen = w->session[slot].gen};
}

const struct world_session *world_session(const struct world *w, uint32_t handle)
{
	const struct world_session *s = &w->session[handle & 0xffffff];

	return s->open ? s : NULL;
}

// --- time ---------------------------------------------------------------------------------------------

static uint32_t next_packet(const struct world *w)
{
	uint32_t best = UINT32_MAX;

	for (uint32_t i = 0; i < w->packets; i++) {
		if (best == UINT32_MAX || w->packet[i].due_ns < w->packet[best].due_ns ||
			(w->packet[i].due_ns == w->packet[best].due_ns &&
				w->packet[i].order < w->packet[best].order))
			best = i;
	}
	return best;
}

static void deliver(struct world *w, uint32_t at)
{
	struct world_packet p = w->packet[at];

	w->packet[at] = w->packet[--w->packets];
	if (p.to_client) {
		const struct net_addr from = {.ip = WORLD_IP, .port = p.port};

		client_core_rx(w->core, p.bytes, p.len, from, w->now_ns);
	} else {
		node_rx(w, (uint32_t)p.port - WORLD_PORT, p.bytes, p.len);
	}
	free(p.bytes);
}

static uint64_t next_push_ns(const struct world *w)
{
	uint64_t next = UINT64_MAX;

	for (uint32_t i = 0; i < w->pushes; i++) {
		if (!w->push[i].acked && w->push[i].due_ns < next)
			next = w->push[i].due_ns;
	}
	return next;
}

// One step: moves to the next event up to `limit_ns`. False: there is none before.
static bool step(struct world *w, uint64_t limit_ns)
{
	const uint32_t at = next_packet(w);
	uint64_t next = client_core_next_ns(w->core);
	bool packet = false;

	if (next_push_ns(w) < next)
		next = next_push_ns(w);
	if (at != UINT32_MAX && w->packet[at].due_ns <= next) {
		next = w->packet[at].due_ns;
		packet = true;
	}
	if (next > limit_ns)
		return false;
	if (next > w->now_ns)
		w->now_ns = next;
	wire_reassembly_expire(w->frames, w->now_ns);
	if (packet)
		deliver(w, at);
	for (uint32_t i = 0; i < w->pushes; i++) {
		if (!w->push[i].acked && w->push[i].due_ns <= w->now_ns)
			push_send(w, &w->push[i]);
	}
	client_core_poll(w->core, w->now_ns);
	return true;
}

void world_run(struct world *w, uint64_t for_ms)
{
	const uint64_t until = w->now_ns + for_ms * WORLD_MS;

	while (step(w, until))
		;
	w->now_ns = until;
	client_core_poll(w->core, w->now_ns);
}

bool world_until(struct world *w, bool (*done)(struct world *w), uint64_t limit_ms)
{
	const uint64_t until = w->now_ns + limit_ms * WORLD_MS;

	client_core_poll(w->core, w->now_ns);
	while (!done(w)) {
		if (!step(w, until))
			return false;
	}
	return true;
}

bool world_up(struct world *w)
{
	return client_core_registered(w->core);
}

bool world_announced(struct world *w)
{
	return client_core_registered(w->core) && client_core_announce_pending(w->core) == 0;
}

struct world *world_create(uint64_t seed, bool gateway, bool keys)
{
	struct world *w = calloc(1, sizeof(*w));
	const struct client_core_io io = {.send = on_send, .ctx = w};
	const struct tagcast_callbacks cb = {
		.outcome = on_outcome, .deliver = on_deliver, .state = on_state, .ctx = w};

	assert(wire_auth_init() == 0);
	w->now_ns = 1000 * WORLD_MS;
	w->random = seed * 7919 + 1;
	w->delay_ns = WORLD_MS;
	w->node_id = 9;
	w->node_boot = 0x9000;
	w->heartbeat_ms = 1000;
	w->topology_version = 3;
	w->push_timeout_ns = 200 * WORLD_MS;
	w->frames = wire_reassembly_create(16, 2000 * WORLD_MS);
	if (keys) {
		w->keys.count = 1;
		w->keys.id[0] = 7;
		memset(w->keys.key[0], 0x42, WIRE_KEY_BYTES);
	}
	node_lanes(w);
	w->config = (struct client_core_config){
		.client_id = 77,
		.boot = 0x7700,
		.node = {.ip = WORLD_IP, .port = WORLD_PORT},
		.gateway = gateway,
		.mtu = 1500,
		.keys = w->keys,
		.window = 4096,
		.window_ns = 60000 * WORLD_MS,
		.publish_max = 64,
		.receipts = 1024,
		.frames = 8,
		.seed = seed,
	};
	assert(client_core_create(&w->config, &io, &cb, w->now_ns, &w->core) == 0);
	return w;
}

void world_replace_core(struct world *w, const struct tagcast_callbacks *callbacks)
{
	const struct client_core_io io = {.send = on_send, .ctx = w};

	client_core_destroy(w->core);
	assert(client_core_create(&w->config, &io, callbacks, w->now_ns, &w->core) == 0);
}

void world_destroy(struct world *w)
{
	client_core_destroy(w->core);
	for (uint32_t i = 0; i < w->packets; i++)
		free(w->packet[i].bytes);
	for (uint32_t i = 0; i < w->pushes; i++)
		free(w->push[i].body);
	wire_reassembly_destroy(w->frames);
	free(w);
}
