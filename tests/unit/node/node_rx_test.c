/* SPDX-License-Identifier: BSD-3-Clause */
// Each way a datagram is turned away has its counter, its buffer comes back, and nobody is answered with
// more than he sent.
#include "node_net.h"

#include "node_pvt.h"

static struct net net;

static struct net_client *const gateway = &net.client[0];
static struct net_client *const publisher = &net.client[2];

static void start(uint32_t workers, bool keys) WORKER_ONLY CONTROL_ONLY;
static void start(uint32_t workers, bool keys)
{
	net_open(&net, workers, keys);
	world_range(net.w, STORE_ADD, STORE_MEMBERS, "room", "u", 0, 4);
	world_ready(net.w);
}

static void stop(void) CONTROL_ONLY;
static void stop(void)
{
	for (uint32_t q = 0; q < net.workers; q++)
		assert_true(fake_port_outside(&net.port[q]) <= 64);  // spare ones only
	net_close(&net);
}

// A turn after which `id` has grown by one and nothing else of the drops has.
static void expect_drop(enum counter id) WORKER_ONLY CONTROL_ONLY;
static void expect_drop(enum counter id)
{
	uint64_t before[CTR_COUNT], after[CTR_COUNT];

	node_counters(net.node, before);
	net_turn(&net);
	node_counters(net.node, after);
	for (int i = CTR_DROP_SHORT; i <= CTR_DROP_REPLY_FULL; i++)
		if (i != CTR_HANDOFF)
			assert_int_equal(after[i] - before[i], i == (int)id);
}

// A heartbeat datagram with one change.
static uint16_t heartbeat(uint8_t *p)
{
	uint8_t body[64];
	struct wire_buf out = {.p = body, .cap = sizeof(body), .ok = true};

	assert_true(wire_put_heartbeat(&out, &(struct wire_heartbeat){.stamp = 1}));
	return net_build(&net, gateway, WIRE_HEARTBEAT, body, out.len, p);
}

static void malformed_headers(void **state) WORKER_ONLY CONTROL_ONLY;
static void malformed_headers(void **state)
{
	static const struct {
		uint32_t at;
		uint8_t value;
		enum counter id;
	} change[] = {
		{0, 0, CTR_DROP_MAGIC},
		{2, 9, CTR_DROP_VERSION},
		{3, 99, CTR_DROP_TYPE},
		{3, WIRE_PUSH, CTR_DROP_TYPE},  // not for a node
		{3, WIRE_HELLO_ACK, CTR_DROP_TYPE},
		{4, 0x80, CTR_DROP_FLAGS},
		{7, 1, CTR_DROP_FLAGS},
		{32, 1, CTR_DROP_LENGTH},
	};

	start(1, false);
	for (unsigned i = 0; i < sizeof(change) / sizeof(change[0]); i++) {
		uint8_t p[200];
		const uint16_t len = heartbeat(p);

		p[change[i].at] = change[i].value;
		net_raw(&net, gateway->addr, NET_BASE, p, len);
		expect_drop(change[i].id);
	}
	for (uint16_t len = 0; len < WIRE_HEADER_BYTES; len = (uint16_t)(len + 13)) {
		uint8_t p[200];

		heartbeat(p);
		net_raw(&net, gateway->addr, NET_BASE, p, len);
		expect_drop(CTR_DROP_SHORT);
	}
	stop();
}

static void reflected_datagram(void **state) WORKER_ONLY CONTROL_ONLY;
static void reflected_datagram(void **state)
{
	uint8_t p[200];
	uint16_t len;

	start(1, true);
	gateway->id = 1;  // the node's
	len = heartbeat(p);
	net_raw(&net, gateway->addr, NET_BASE, p, len);
	expect_drop(CTR_DROP_REFLECTED);
	stop();
}

static void wrong_key_tag_or_receiver(void **state) WORKER_ONLY CONTROL_ONLY;
static void wrong_key_tag_or_receiver(void **state)
{
	struct wire_lane lane;
	uint8_t p[200];
	uint16_t len;

	start(1, true);
	len = heartbeat(p);
	p[len - 1] ^= 1;
	net_raw(&net, gateway->addr, NET_BASE, p, len);
	expect_drop(CTR_DROP_AUTH);
	len = heartbeat(p);
	p[WIRE_HEADER_BYTES] ^= 1;
	net_raw(&net, gateway->addr, NET_BASE, p, len);
	expect_drop(CTR_DROP_AUTH);
	len = heartbeat(p);
	p[5] = 77;
	net_raw(&net, gateway->addr, NET_BASE, p, len);
	expect_drop(CTR_DROP_KEY);
	// Meant for another start of the node.
	lane = (struct wire_lane){.sender = 100, .boot = 1000, .seq = 500, .keys = &net.keys};
	heartbeat(p);
	len = wire_lane_seal(&lane, WIRE_HEARTBEAT, p, 16, world_params.boot + 1);
	net_raw(&net, gateway->addr, NET_BASE, p, len);
	expect_drop(CTR_DROP_AUTH);
	// Without a tag at all.
	net.keys.count = 0;
	len = heartbeat(p);
	net.keys.count = 1;
	net_raw(&net, gateway->addr, NET_BASE, p, len);
	expect_drop(CTR_DROP_AUTH);
	stop();
}

static void replayed_datagram(void **state) WORKER_ONLY CONTROL_ONLY;
static void replayed_datagram(void **state)
{
	uint8_t first[200], last[200];
	uint16_t len;

	start(1, true);
	len = heartbeat(first);
	net_raw(&net, gateway->addr, NET_BASE, first, len);
	net_turns(&net, 2);
	assert_int_equal(gateway->heartbeats, 1);
	net_raw(&net, gateway->addr, NET_BASE, first, len);
	expect_drop(CTR_DROP_REPLAY);
	gateway->seq += 2000;
	heartbeat(last);
	net_raw(&net, gateway->addr, NET_BASE, last, len);
	net_turns(&net, 2);
	assert_int_equal(gateway->heartbeats, 2);
	// Fresh by number, but below the window.
	gateway->seq = 50;
	heartbeat(first);
	net_raw(&net, gateway->addr, NET_BASE, first, len);
	expect_drop(CTR_DROP_REPLAY);
	stop();
}

static void port_outside_the_range(void **state) WORKER_ONLY CONTROL_ONLY;
static void port_outside_the_range(void **state)
{
	uint8_t p[200];
	uint16_t len;

	start(2, false);
	len = heartbeat(p);
	net_raw(&net, gateway->addr, NET_BASE + 2, p, len);
	expect_drop(CTR_DROP_PORT);
	len = heartbeat(p);
	net_raw(&net, gateway->addr, NET_BASE - 1, p, len);
	expect_drop(CTR_DROP_PORT);
	stop();
}

static void bodies_that_do_not_parse(void **state) WORKER_ONLY CONTROL_ONLY;
static void bodies_that_do_not_parse(void **state)
{
	static const uint8_t type[] = {WIRE_PUBLISH, WIRE_PUSH_ACK, WIRE_RECEIPT, WIRE_SEGMENT};
	uint8_t zero[200] = {0};

	start(1, false);
	for (unsigned i = 0; i < sizeof(type); i++) {
		net_send(&net, gateway, 0, type[i], zero, 3);
		expect_drop(CTR_DROP_SHORT);
		net_send(&net, gateway, 0, type[i], zero, 150);
		expect_drop(CTR_DROP_FIELD);
	}
	stop();
}

static void strangers_do_not_push_known_senders_out(void **state) WORKER_ONLY CONTROL_ONLY;
static void strangers_do_not_push_known_senders_out(void **state)
{
	struct node_senders *senders = node_senders_create(16, 16);
	struct wire_header h = {.sender = 1, .boot = 1};
	struct node_sender *known, *s;
	uint64_t now = SECOND;
	uint32_t full = 0;

	known = node_senders_take(senders, &h, now);
	known->state = NODE_SENDER_PROVEN;
	assert_true(wire_replay_take(&known->replay, 5));
	for (h.sender = 2; h.sender < 5000; h.sender++)
		full += node_senders_take(senders, &h, ++now) == NULL;
	assert_int_equal(full, 0);
	assert_true(node_senders_count(senders) <= 16);
	h.sender = 1;
	s = node_senders_take(senders, &h, now);
	assert_ptr_equal(s, known);
	assert_false(wire_replay_take(&s->replay, 5));
	// Lane and boot make another sender.
	h.lane = 1;
	assert_ptr_not_equal(node_senders_take(senders, &h, now), known);
	node_senders_destroy(senders);
}

static void a_table_full_of_known_senders_refuses_until_one_is_idle(
	void **state) WORKER_ONLY CONTROL_ONLY;
static void a_table_full_of_known_senders_refuses_until_one_is_idle(void **state)
{
	struct node_senders *senders = node_senders_create(16, 16);
	struct wire_header h = {.boot = 1};
	uint32_t known = 0;

	for (h.sender = 1; h.sender <= 200; h.sender++) {
		struct node_sender *s = node_senders_take(senders, &h, SECOND);

		if (s == NULL)
			continue;
		s->state = NODE_SENDER_PROVEN;
		known++;
	}
	assert_int_equal(known, 16);
	h.sender = 1000;
	assert_null(node_senders_take(senders, &h, 100 * SECOND));
	assert_non_null(node_senders_take(senders, &h, 200 * SECOND));
	assert_int_equal(node_senders_count(senders), 16);
	node_senders_destroy(senders);
}

static void full_sender_table_is_a_counted_drop(void **state) WORKER_ONLY CONTROL_ONLY;
static void full_sender_table_is_a_counted_drop(void **state)
{
	uint32_t joined = 0;

	start(1, false);
	for (uint64_t id = 1000; id < 1200; id++) {
		struct net_client c = {
			.id = id, .boot = 1, .addr = {.ip = (uint32_t)id, .port = 6000}};

		c.cookie = wire_cookie(world_params.cookie_secret, c.addr, c.id, c.boot);
		net_hello(&net, &c, WIRE_ROLE_PUBLISHER, 0);
		net_turn(&net);
		joined++;
	}
	assert_int_equal(
		net_count(&net, CTR_DROP_SENDERS_FULL) + net_count(&net, CTR_HELLO), joined);
	assert_true(net_count(&net, CTR_DROP_SENDERS_FULL) >= joined - 64);
	stop();
}

static void one_address_without_keys_keeps_nobody_else_out(void **state) WORKER_ONLY CONTROL_ONLY;
static void one_address_without_keys_keeps_nobody_else_out(void **state)
{
	start(1, false);
	for (uint64_t id = 1000; id < 1500; id++) {
		struct net_client c = {.id = id,
			.boot = 1,
			.addr = {.ip = 0x0a000063, .port = (uint16_t)(6000 + id)}};

		c.cookie = wire_cookie(world_params.cookie_secret, c.addr, c.id, c.boot);
		net_hello(&net, &c, WIRE_ROLE_PUBLISHER, 0);
		net_turn(&net);
	}
	assert_true(net_count(&net, CTR_SENDER_SHARE) >= 500 - 16 - 64);
	for (uint32_t i = 0; i < NET_CLIENTS; i++) {
		struct wire_publish m = net_message(&net.client[i], "r", 1 + i, WIRE_ACK_NONE, 0);

		net_join(&net, &net.client[i], WIRE_ROLE_PUBLISHER);
		assert_int_equal(net.client[i].hello.status, WIRE_OK);
		m.cookie = net.client[i].cookie;
		net_publish(&net, &net.client[i], &m);
		net_turns(&net, 2);
		assert_int_equal(net.client[i].ack.status, WIRE_UNKNOWN_CHANNEL);
	}
	assert_int_equal(net_count(&net, CTR_DROP_SENDERS_FULL), 0);
	stop();
}

// The replay entry of a recorded datagram does not live for ever.
static void recorded_hello_without_its_replay_entry_ends_no_newer_boot(
	void **state) WORKER_ONLY CONTROL_ONLY;
static void recorded_hello_without_its_replay_entry_ends_no_newer_boot(void **state)
{
	uint8_t body[64], recorded[200];
	struct wire_buf out = {.p = body, .cap = sizeof(body), .ok = true};
	struct presence *presence;
	uint16_t len;

	start(1, true);
	presence = node_presence(net.node);
	net_hello(&net, gateway, WIRE_ROLE_GATEWAY, 0);
	net_turns(&net, 2);
	assert_true(wire_put_hello(&out, &(struct wire_hello){.role = WIRE_ROLE_GATEWAY,
						 .version_min = 1,
						 .version_max = 1,
						 .mtu = 1500,
						 .cookie = gateway->cookie}));
	len = net_build(&net, gateway, WIRE_HELLO, body, out.len, recorded);
	net_raw(&net, gateway->addr, NET_BASE, recorded, len);
	net_turns(&net, 2);
	assert_int_equal(gateway->hello.status, WIRE_OK);
	gateway->boot = 2000;
	gateway->hellos = 0;
	gateway->cookie = 0;
	net_join(&net, gateway, WIRE_ROLE_GATEWAY);
	assert_int_not_equal(presence_gateway_find(presence, gateway->id, 2000), 0);
	net_raw(&net, gateway->addr, NET_BASE, recorded, len);
	expect_drop(CTR_DROP_REPLAY);
	for (uint64_t id = 1000; id < 1500; id++) {
		struct net_client c = {
			.id = id, .boot = 1, .addr = {.ip = (uint32_t)id, .port = 9}};

		net_hello(&net, &c, WIRE_ROLE_PUBLISHER, 0);
		net_turn(&net);
	}
	net_raw(&net, gateway->addr, NET_BASE, recorded, len);
	expect_drop(CTR_COUNT);  // none: it is taken for new
	assert_int_not_equal(presence_gateway_find(presence, gateway->id, 2000), 0);
	assert_int_equal(presence_gateway_find(presence, gateway->id, 1000), 0);
	stop();
}

static void publish_without_a_proven_address(void **state) WORKER_ONLY CONTROL_ONLY;
static void publish_without_a_proven_address(void **state)
{
	struct wire_publish m;
	uint16_t len;

	start(1, false);
	m = net_message(publisher, "r", 1, WIRE_ACK_NONE, 0);
	net_publish(&net, publisher, &m);
	len = (uint16_t)(net.port[0].inbound[0]->len);
	net_turns(&net, 2);
	assert_int_equal(publisher->ack.status, WIRE_NEED_HELLO);
	assert_int_equal(publisher->ack.request_id, 1001);
	assert_true(net.answer_bytes <= len);
	assert_int_equal(net_count(&net, CTR_PUB_NEED_HELLO), 1);
	// With the cookie it goes on, and needs it once only.
	net_join(&net, publisher, WIRE_ROLE_PUBLISHER);
	m.cookie = publisher->cookie;
	net_publish(&net, publisher, &m);
	net_turns(&net, 2);
	assert_int_equal(publisher->ack.status, WIRE_UNKNOWN_CHANNEL);
	m.cookie = 0;
	net_publish(&net, publisher, &m);
	net_turns(&net, 2);
	assert_int_equal(publisher->ack.status, WIRE_UNKNOWN_CHANNEL);
	// Another address has proven nothing.
	publisher->addr.port++;
	net_publish(&net, publisher, &m);
	net_turns(&net, 2);
	assert_int_equal(publisher->ack.status, WIRE_NEED_HELLO);
	assert_int_equal(net_count(&net, CTR_PUBLISH), 4);
	stop();
}

static void no_answer_is_larger_than_what_a_stranger_sent(void **state) WORKER_ONLY CONTROL_ONLY;
static void no_answer_is_larger_than_what_a_stranger_sent(void **state)
{
	for (uint32_t keyed = 0; keyed < 2; keyed++) {
		uint32_t len;

		start(1, keyed != 0);
		net_hello(&net, gateway, WIRE_ROLE_GATEWAY, 0);
		len = net.port[0].inbound[0]->len;
		net_turns(&net, 3);
		assert_int_equal(gateway->hellos, 1);
		assert_true(net.answer_bytes <= len);
		stop();
	}
}

static void answers_to_pushes_nobody_sent(void **state) WORKER_ONLY CONTROL_ONLY;
static void answers_to_pushes_nobody_sent(void **state)
{
	const struct wire_push_ack ack = {.push_id = 1, .push_gen = 1, .accepted = 1};
	const uint8_t bits = 1;
	const struct wire_receipt receipt = {
		.push_id = 1, .push_gen = 1, .bits = {.p = &bits, .len = 1}};
	uint8_t body[64];
	struct wire_buf out = {.p = body, .cap = sizeof(body), .ok = true};

	start(1, false);
	assert_true(wire_put_push_ack(&out, &ack));
	net_send(&net, gateway, 0, WIRE_PUSH_ACK, body, out.len);  // not registered
	net_turn(&net);
	assert_int_equal(net_count(&net, CTR_PUSH_ACK_UNKNOWN), 1);
	out.len = 0;
	assert_true(wire_put_receipt(&out, &receipt));
	net_send(&net, gateway, 0, WIRE_RECEIPT, body, out.len);
	net_turn(&net);
	assert_int_equal(net_count(&net, CTR_RECEIPT_UNKNOWN), 1);
	net_join(&net, gateway, WIRE_ROLE_GATEWAY);
	net_send(&net, gateway, 0, WIRE_RECEIPT, body, out.len);
	net_turn(&net);
	assert_int_equal(net_count(&net, CTR_RECEIPT_UNKNOWN), 2);
	gateway->addr.port++;  // from elsewhere, and nothing but the address tells who it is
	net_send(&net, gateway, 0, WIRE_RECEIPT, body, out.len);
	net_turn(&net);
	assert_int_equal(net_count(&net, CTR_RECEIPT_UNKNOWN), 3);
	stop();
}

static void put_segment_of(struct net_client *c, uint32_t frame, uint16_t index, uint16_t count,
	uint8_t type, uint8_t fill)
{
	uint8_t part[100], p[200];
	struct wire_buf out = {.p = p, .cap = sizeof(p), .ok = true};
	const struct wire_segment m = {
		.frame_id = frame,
		.type = type,
		.index = index,
		.count = count,
		.total = count * 100u,
		.offset = index * 100u,
		.part = {.p = part, .len = 100},
	};

	memset(part, fill, sizeof(part));
	assert_true(wire_put_segment(&out, &m));
	net_send(&net, c, 0, WIRE_SEGMENT, p, out.len);
}

static void put_segment(uint32_t frame, uint16_t index, uint16_t count, uint8_t type, uint8_t fill)
{
	put_segment_of(publisher, frame, index, count, type, fill);
}

// A publisher sends a message of 60 KiB while `hostile` first segments come before each of its own.
static void large_message_arrives_beside(
	bool spoofed, struct net_client *hostile, uint32_t hostiles) WORKER_ONLY CONTROL_ONLY;
static void large_message_arrives_beside(
	bool spoofed, struct net_client *hostile, uint32_t hostiles)
{
	const uint32_t sent = net.client[2].acks;
	struct wire_publish m;

	net_join(&net, publisher, WIRE_ROLE_PUBLISHER);
	for (uint32_t f = 0; f < 200; f++) {
		struct net_client *c = &hostile[f % hostiles];

		if (spoofed)
			c->addr.ip = 0x0b000000 + f;
		put_segment_of(c, f, 0, 3, WIRE_PUBLISH, 0);
		net_turn(&net);
	}
	m = net_message(publisher, "room", 1, WIRE_ACK_GATEWAY, 60 * 1024);
	net_publish(&net, publisher, &m);
	net_turns(&net, 12);
	assert_int_equal(publisher->acks, sent + 1);
	assert_int_equal(publisher->ack.status, WIRE_OK);
	assert_true(net_count(&net, CTR_DROP_REASSEMBLY_SHARE) > 0);
	assert_int_equal(net_count(&net, CTR_DROP_REASSEMBLY_FULL), 0);
}

static void sender_that_begins_frames_stops_no_other(void **state) WORKER_ONLY CONTROL_ONLY;
static void sender_that_begins_frames_stops_no_other(void **state)
{
	start(1, true);
	large_message_arrives_beside(false, &net.client[5], 1);
	stop();
}

static void strangers_that_begin_frames_stop_nobody(void **state) WORKER_ONLY CONTROL_ONLY;
static void strangers_that_begin_frames_stop_nobody(void **state)
{
	start(1, false);
	large_message_arrives_beside(true, &net.client[3], 4);
	stop();
}

// Whoever owns an address can prove any number of senders there.
static void proven_senders_of_one_address_stop_no_other(void **state) WORKER_ONLY CONTROL_ONLY;
static void proven_senders_of_one_address_stop_no_other(void **state)
{
	start(1, false);
	for (uint32_t i = 3; i < 8; i++) {
		net.client[i].addr =
			(struct net_addr){.ip = 0x0a0000aa, .port = (uint16_t)(7000 + i)};
		net_join(&net, &net.client[i], WIRE_ROLE_PUBLISHER);
		assert_int_equal(net.client[i].hello.status, WIRE_OK);
	}
	large_message_arrives_beside(false, &net.client[3], 5);
	stop();
}

static void segments_that_disagree_or_find_no_room(void **state) WORKER_ONLY CONTROL_ONLY;
static void segments_that_disagree_or_find_no_room(void **state)
{
	start(1, true);
	put_segment(1, 0, 3, WIRE_PUSH, 0);
	expect_drop(CTR_DROP_TYPE);
	put_segment(2, 0, 3, WIRE_PUBLISH, 0);
	net_turn(&net);
	put_segment(2, 1, 4, WIRE_PUBLISH, 0);
	expect_drop(CTR_DROP_SEGMENT);
	put_segment(2, 0, 3, WIRE_PUBLISH, 1);
	expect_drop(CTR_DROP_SEGMENT);
	// A quarter of the 8 frames is its share, four senders have them all.
	put_segment(3, 0, 3, WIRE_PUBLISH, 0);
	net_turn(&net);
	put_segment(4, 0, 3, WIRE_PUBLISH, 0);
	expect_drop(CTR_DROP_REASSEMBLY_SHARE);
	for (uint32_t other = 3; other < 6; other++) {
		put_segment_of(&net.client[other], 1, 0, 3, WIRE_PUBLISH, 0);
		put_segment_of(&net.client[other], 2, 0, 3, WIRE_PUBLISH, 0);
	}
	net_turn(&net);
	put_segment_of(&net.client[6], 1, 0, 3, WIRE_PUBLISH, 0);
	expect_drop(CTR_DROP_REASSEMBLY_FULL);
	assert_true(node_worker_next_ns(node_worker_of(net.node, 0)) <= net.w->now_ns + SECOND);
	net.w->now_ns += 10 * SECOND;
	net_turn(&net);
	assert_int_equal(net_count(&net, CTR_DROP_REASSEMBLY_TIMEOUT), 8);
	// A whole frame that is no publish.
	for (uint16_t i = 0; i < 3; i++)
		put_segment(20, i, 3, WIRE_PUBLISH, 0);
	expect_drop(CTR_DROP_FIELD);
	stop();
}

static void full_rings_are_counted_and_lose_only_what_does_not_fit(
	void **state) WORKER_ONLY CONTROL_ONLY;
static void full_rings_are_counted_and_lose_only_what_does_not_fit(void **state)
{
	uint8_t p[200];
	uint16_t len;

	start(2, false);
	for (uint32_t i = 0; i < 100; i++) {
		len = heartbeat(p);
		net_raw(&net, gateway->addr, NET_BASE, p, len);
	}
	node_worker_turn(node_worker_of(net.node, 0), net.w->now_ns);
	assert_int_equal(net_count(&net, CTR_DROP_CONTROL_FULL), 36);  // 64 places
	net_turns(&net, 3);
	// Arrived on worker 0's queue, meant for worker 1, who does not turn.
	net.steer = 0;
	for (uint32_t i = 0; i < 100; i++) {
		len = heartbeat(p);
		net_raw(&net, gateway->addr, NET_BASE + 1, p, len);
	}
	node_worker_turn(node_worker_of(net.node, 0), net.w->now_ns);
	assert_int_equal(net_count(&net, CTR_HANDOFF), 64);
	assert_int_equal(net_count(&net, CTR_DROP_HANDOFF_FULL), 36);
	assert_true(net.w->wakes[1] == 1);
	net_turns(&net, 3);
	assert_int_equal(net_count(&net, CTR_HEARTBEAT), 128);
	stop();
}

static void no_buffer_for_an_answer_is_counted(void **state) WORKER_ONLY CONTROL_ONLY;
static void no_buffer_for_an_answer_is_counted(void **state)
{
	struct wire_publish m;

	start(1, false);
	m = net_message(publisher, "r", 1, WIRE_ACK_NONE, 0);
	net_publish(&net, publisher, &m);
	net.port[0].fail_alloc = 2;
	net_turn(&net);
	assert_int_equal(net_count(&net, CTR_DROP_NO_BUFFER), 1);
	assert_int_equal(publisher->acks, 0);
	stop();
}

static void random_bytes_harm_nothing(void **state) WORKER_ONLY CONTROL_ONLY;
static void random_bytes_harm_nothing(void **state)
{
	uint64_t total = 0;

	srand(3);
	start(2, false);
	net_join(&net, gateway, WIRE_ROLE_GATEWAY);
	for (uint32_t i = 0; i < 20000; i++) {
		uint8_t p[300], body[256];
		const uint32_t bytes = (uint32_t)rand() % 200;
		uint16_t len;

		for (uint32_t k = 0; k < bytes; k++)
			body[k] = (uint8_t)(rand() % 4 == 0 ? rand() : 0);
		len = net_build(&net, gateway, (uint8_t)(1 + rand() % 20), body, bytes, p);
		if (rand() % 4 == 0)
			p[rand() % len] ^= (uint8_t)(1 << rand() % 8);
		net_raw(&net, gateway->addr, (uint16_t)(NET_BASE + rand() % 2), p, len);
		if (i % 16 == 0)
			net_turn(&net);
		fake_port_forget_sent(&net.port[0]);
		fake_port_forget_sent(&net.port[1]);
		net.seen[0] = net.seen[1] = 0;
	}
	net_turns(&net, 10);
	for (int i = CTR_DROP_SHORT; i <= CTR_DROP_REASSEMBLY_TIMEOUT; i++)
		total += net_count(&net, (enum counter)i);
	assert_true(total > 1000);
	stop();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(malformed_headers),
		cmocka_unit_test(reflected_datagram),
		cmocka_unit_test(wrong_key_tag_or_receiver),
		cmocka_unit_test(replayed_datagram),
		cmocka_unit_test(port_outside_the_range),
		cmocka_unit_test(bodies_that_do_not_parse),
		cmocka_unit_test(strangers_do_not_push_known_senders_out),
		cmocka_unit_test(a_table_full_of_known_senders_refuses_until_one_is_idle),
		cmocka_unit_test(full_sender_table_is_a_counted_drop),
		cmocka_unit_test(one_address_without_keys_keeps_nobody_else_out),
		cmocka_unit_test(recorded_hello_without_its_replay_entry_ends_no_newer_boot),
		cmocka_unit_test(publish_without_a_proven_address),
		cmocka_unit_test(no_answer_is_larger_than_what_a_stranger_sent),
		cmocka_unit_test(answers_to_pushes_nobody_sent),
		cmocka_unit_test(segments_that_disagree_or_find_no_room),
		cmocka_unit_test(sender_that_begins_frames_stops_no_other),
		cmocka_unit_test(strangers_that_begin_frames_stop_nobody),
		cmocka_unit_test(proven_senders_of_one_address_stop_no_other),
		cmocka_unit_test(full_rings_are_counted_and_lose_only_what_does_not_fit),
		cmocka_unit_test(no_buffer_for_an_answer_is_counted),
		cmocka_unit_test(random_bytes_harm_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
