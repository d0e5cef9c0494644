/* SPDX-License-Identifier: BSD-3-Clause */
// See node_net.h.
#include "node_net.h"

void net_open(struct net *net, uint32_t workers, bool keys)
{
	memset(net, 0, sizeof(*net));
	net->workers = workers;
	net->steer = -1;
	if (keys) {
		net->keys.count = 1;
		net->keys.id[0] = 3;
		memset(net->keys.key[0], 9, sizeof(net->keys.key[0]));
	}
	world_params.workers = (uint16_t)workers;
	world_params.keys = net->keys;
	world_params.senders = 64;
	world_params.frames = 8;
	world_params.window = 1024;
	world_params.window_age_ns = 60 * SECOND;
	world_params.ring_items = 64;
	world_params.fanout = (struct fanout_limits){
		.messages = 256,
		.parked = 64,
		.parked_per_channel = 32,
		.quantum_members = 256,
		.turn_members = 4096,
		.payload_bytes = PAYLOAD_MAX,
		.buffer_reserve = 8,
		.deadline_ns = 5 * SECOND,
		.deadline_max_ns = 10 * SECOND,
	};
	world_params.delivery = (struct delivery_limits){
		.inflight = 1024,
		.inflight_large = 64,
		.window = 256,
		.backlog = 256,
		.attempts = 4,
		.resend_percent = 100,
		.push_timeout_ns = 100 * MS,
		.retry_max_ns = SECOND,
		.receipt_timeout_ns = SECOND,
		.seed = 3,
	};
	for (uint32_t q = 0; q < workers; q++) {
		fake_port_init(&net->port[q], 2048, 1472);
		net->port[q].record_sent = true;
		world_params.queue[q] = &net->port[q];
	}
	world_params.dgram = net->port[0].ops;
	net->w = world_open();
	net->node = net->w->node;
	for (uint32_t i = 0; i < NET_CLIENTS; i++) {
		net->client[i] = (struct net_client){
			.id = 100 + i,
			.boot = 1000 + i,
			.addr = {.ip = 0x0a000001u + i, .port = 6000},
			.frames = wire_reassembly_create(16, SECOND),
		};
	}
}

void net_close(struct net *net)
{
	world_close(net->w);
	for (uint32_t i = 0; i < NET_CLIENTS; i++)
		wire_reassembly_destroy(net->client[i].frames);
	for (uint32_t q = 0; q < net->workers; q++)
		fake_port_fini(&net->port[q]);
	world_params.dgram = NULL;
}

// --- sending ------------------------------------------------------------------------------------------

uint16_t net_build(struct net *net, struct net_client *c, uint8_t type, const void *body,
	uint32_t bytes, uint8_t *p)
{
	struct wire_lane lane = {
		.sender = c->id, .boot = c->boot, .seq = c->seq, .keys = &net->keys};
	uint16_t len;

	if (bytes != 0)
		memcpy(p + WIRE_HEADER_BYTES, body, bytes);
	len = wire_lane_seal(&lane, type, p, bytes, type == WIRE_HELLO ? 0 : world_params.boot);
	c->seq = lane.seq;
	return len;
}

void net_raw(struct net *net, struct net_addr from, uint16_t port, const uint8_t *p, uint16_t len)
{
	uint32_t q = (uint32_t)port - NET_BASE;

	if (net->steer >= 0)
		q = (uint32_t)net->steer;
	fake_port_inject(&net->port[q < net->workers ? q : 0], from, port, p, len);
}

void net_send(struct net *net, struct net_client *c, uint32_t worker, uint8_t type,
	const void *body, uint32_t bytes)
{
	uint8_t p[1600];
	const uint16_t len = net_build(net, c, type, body, bytes, p);

	net_raw(net, c->addr, (uint16_t)(NET_BASE + worker), p, len);
}

void net_hello(struct net *net, struct net_client *c, uint8_t role, uint32_t worker)
{
	uint8_t body[256];
	struct wire_buf out = {.p = body, .cap = sizeof(body), .ok = true};
	const struct wire_hello m = {
		.role = role, .version_min = 1, .version_max = 1, .mtu = 1500, .cookie = c->cookie};

	assert_true(wire_put_hello(&out, &m));
	net_send(net, c, worker, WIRE_HELLO, body, out.len);
}

void net_join(struct net *net, struct net_client *c, uint8_t role)
{
	net_hello(net, c, role, 0);
	net_turns(net, 3);
	assert_int_equal(c->hello.status, WIRE_NEED_HELLO);
	net_hello(net, c, role, 0);
	net_turns(net, 3);
	assert_int_equal(c->hello.status, WIRE_OK);
	assert_int_equal(c->hellos, 2);
}

void net_announce(
	struct net *net, struct net_client *c, const char *prefix, uint32_t from, uint32_t to)
{
	while (from < to) {
		uint8_t body[1400];
		struct wire_buf out = {.p = body, .cap = sizeof(body), .ok = true};
		char name[32];

		assert_true(wire_announce_begin(&out, ++c->stream_seq));
		for (; from < to; from++) {
			const int len = snprintf(name, sizeof(name), "%s%u", prefix, from);
			const struct wire_session s = {
				.op = WIRE_SESSION_OPEN,
				.slot = from,
				.gen = 1,
				.uid = id_view_of(name, (uint8_t)len),
			};

			if (!wire_announce_add(&out, &s))
				break;
		}
		net_send(net, c, 0, WIRE_ANNOUNCE, body, out.len);
	}
}

struct wire_publish net_message(const struct net_client *c, const char *channel,
	uint64_t message_id, enum wire_ack_class ack, uint32_t bytes)
{
	static uint8_t payload[PAYLOAD_MAX];
	struct wire_publish m = {
		.request_id = message_id + 1000,
		.message_id = message_id,
		.cookie = c->cookie,
		.ack = (uint8_t)ack,
		.payload = {.p = payload, .len = bytes},
	};

	channel_key_set(&m.channel, CHANNEL_GROUP, channel, (uint8_t)strlen(channel));
	return m;
}

uint32_t net_worker_of(const struct net *net, const char *channel)
{
	struct channel_key key;

	channel_key_set(&key, CHANNEL_GROUP, channel, (uint8_t)strlen(channel));
	return channel_key_worker(&key, (uint16_t)net->workers);
}

void net_publish_to(
	struct net *net, struct net_client *c, const struct wire_publish *m, uint32_t worker)
{
	static uint8_t body[FRAME_BYTES_MAX];
	struct wire_buf out = {.p = body, .cap = sizeof(body), .ok = true};
	const uint32_t part = 1300;

	assert_true(wire_put_publish(&out, m));
	if (out.len <= 1400) {
		net_send(net, c, worker, WIRE_PUBLISH, body, out.len);
		return;
	}
	c->frame_id++;
	for (uint32_t i = 0; i * part < out.len; i++) {
		const uint32_t left = out.len - i * part;
		const struct wire_segment s = {
			.frame_id = c->frame_id,
			.type = WIRE_PUBLISH,
			.index = (uint16_t)i,
			.count = (uint16_t)((out.len + part - 1) / part),
			.total = out.len,
			.offset = i * part,
			.part = {.p = body + i * part, .len = left < part ? left : part},
		};
		uint8_t p[1400];
		struct wire_buf seg = {.p = p, .cap = sizeof(p), .ok = true};

		assert_true(wire_put_segment(&seg, &s));
		net_send(net, c, worker, WIRE_SEGMENT, p, seg.len);
	}
}

void net_publish(struct net *net, struct net_client *c, const struct wire_publish *m)
{
	net_publish_to(net, c, m, channel_key_worker(&m->channel, (uint16_t)net->workers));
}

// --- receiving ----------------------------------------------------------------------------------------

// Every client of the push acknowledges.
static void send_receipt(struct net *net, struct net_client *c, uint32_t worker,
	const struct wire_push *push)
{
	uint8_t bits[FRAME_ROUTES_MAX / 8 + 1] = {0}, body[FRAME_ROUTES_MAX / 8 + 64];
	struct wire_buf out = {.p = body, .cap = sizeof(body), .ok = true};
	const struct wire_receipt receipt = {
		.push_id = push->push_id,
		.push_gen = push->push_gen,
		.bits = {.p = bits, .len = (push->routes + 7u) / 8},
	};

	for (uint32_t i = 0; i < push->routes; i++)
		bits[i / 8] |= (uint8_t)(1u << i % 8);
	assert_true(wire_put_receipt(&out, &receipt));
	net_send(net, c, worker, WIRE_RECEIPT, body, out.len);
}

static void answer_push(struct net *net, struct net_client *c, uint32_t worker,
	const struct wire_push *push)
{
	uint8_t body[64], position[4] = {0};
	struct wire_buf out = {.p = body, .cap = sizeof(body), .ok = true};
	struct wire_push_ack ack = {.push_id = push->push_id, .push_gen = push->push_gen};

	if (push->routes > 1) {
		const uint16_t last = (uint16_t)(push->routes - 1);

		ack.retryable = c->retry_every != 0 && c->pushes % c->retry_every == 0;
		ack.dropped = c->drop_every != 0 && c->pushes % c->drop_every == 0;
		memcpy(position + 2u * ack.retryable, &last, 2);
	}
	ack.accepted = (uint16_t)(push->routes - ack.retryable - ack.dropped);
	ack.positions = (struct wire_view){.p = position, .len = 2u * (ack.retryable + ack.dropped)};
	assert_true(wire_put_push_ack(&out, &ack));
	net_send(net, c, worker, WIRE_PUSH_ACK, body, out.len);
}

static void take_push(struct net *net, struct net_client *c, uint16_t node_port, struct wire_view body)
{
	const uint32_t worker = (uint32_t)node_port - NET_BASE;
	struct wire_record record;
	struct wire_push push;
	bool receipt = false;

	assert_int_equal(wire_get_push(body, &push), 0);
	assert_int_equal(push.gateway_boot, c->boot);
	c->pushes++;
	while (wire_push_next(&push.body, &record)) {
		for (uint32_t i = 0; i < record.routes; i++) {
			uint32_t slot, gen;

			wire_get_route(record.route + i * WIRE_ROUTE_BYTES, &slot, &gen);
			assert_int_equal(gen, 1);
			c->got[slot & 0xffff]++;
			c->deliveries++;
		}
		c->last_seq = record.seq;
		receipt |= (record.flags & WIRE_RECORD_RECEIPT) != 0;
	}
	if (!push.need_ack || c->silent)
		return;
	answer_push(net, c, worker, &push);
	if (receipt && c->receipts)
		send_receipt(net, c, worker, &push);
}

static void take_segment(struct net *net, struct net_client *c, uint16_t node_port,
	const struct wire_header *header, struct wire_view body)
{
	struct wire_segment segment;
	struct wire_view frame;
	uint32_t handle;

	assert_int_equal(wire_get_segment(body, &segment), 0);
	if (wire_reassembly_add(c->frames, header, &segment, net->w->now_ns, &frame, &handle) !=
		WIRE_PART_COMPLETE)
		return;
	take_push(net, c, node_port, frame);
	wire_reassembly_release(c->frames, handle);
}

static void take(struct net *net, const struct dgram *d)
{
	struct net_client *c = NULL;
	struct wire_heartbeat_ack heartbeat;
	struct wire_header header;
	struct wire_view body;

	net->answer_bytes = d->len;
	for (uint32_t i = 0; i < NET_CLIENTS; i++)
		if (net_addr_equal(net->client[i].addr, d->peer))
			c = &net->client[i];
	if (c == NULL)
		return;
	assert_int_equal(wire_get_header(d->data, d->len, &header, &body), 0);
	assert_int_equal(wire_open(&net->keys, d->data, d->len, &header, c->boot), 0);
	assert_int_equal(header.sender, 1);
	assert_int_equal(d->local_port, NET_BASE + header.lane);
	switch (header.type) {
	case WIRE_HELLO_ACK:
		assert_int_equal(wire_get_hello_ack(body, &c->hello), 0);
		c->cookie = c->hello.cookie;
		c->hellos++;
		break;
	case WIRE_HEARTBEAT_ACK:
		assert_int_equal(wire_get_heartbeat_ack(body, &heartbeat), 0);
		c->heartbeats++;
		break;
	case WIRE_ANNOUNCE_ACK:
		assert_int_equal(wire_get_announce_ack(body, &c->announced), 0);
		break;
	case WIRE_PUBLISH_ACK:
		assert_int_equal(wire_get_publish_ack(body, &c->ack), 0);
		c->acks++;
		break;
	case WIRE_PUSH:
		take_push(net, c, d->local_port, body);
		break;
	case WIRE_SEGMENT:
		take_segment(net, c, d->local_port, &header, body);
		break;
	default:
		fail_msg("type %u", header.type);
	}
}

void net_worker_turns(struct net *net)
{
	for (uint32_t i = 0; i < net->workers; i++)
		node_worker_turn(node_worker_of(net->node, i), net->w->now_ns);
}

void net_turn(struct net *net)
{
	net->w->now_ns += MS;
	if (net->turn != NULL)
		net->turn(net);
	else
		net_worker_turns(net);
	node_control_step(net->node, net->w->now_ns);
	for (uint32_t q = 0; q < net->workers; q++) {
		struct fake_port *port = &net->port[q];

		for (; net->seen[q] < port->sent_count; net->seen[q]++)
			take(net, fake_port_sent(port, net->seen[q]));
		// What a port keeps and does not copy is seen on its way out.
		for (uint32_t i = 0; !port->record_sent && i < port->held_count; i++)
			take(net, port->held[i]);
		if (!port->record_sent)
			fake_port_complete(port);
	}
}

void net_turns(struct net *net, uint32_t n)
{
	while (n-- != 0)
		net_turn(net);
}

uint64_t net_count(const struct net *net, enum counter id)
{
	uint64_t all[CTR_COUNT];

	node_counters(net->node, all);
	return all[id];
}
