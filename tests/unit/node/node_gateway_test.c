/* SPDX-License-Identifier: BSD-3-Clause */
#include "control_world.h"

static uint8_t bytes[NODE_MSG_BYTES_MAX];

static struct wire_buf body(void)
{
	return (struct wire_buf){.p = bytes, .cap = sizeof(bytes), .ok = true};
}

static struct wire_view view(const struct node_reply *r)
{
	return (struct wire_view){.p = r->body, .len = r->bytes};
}

CONTROL_ONLY static struct wire_hello_ack hello_of(
	struct world *w, uint64_t id, uint64_t boot, uint8_t role, uint64_t cookie)
{
	struct wire_buf out = body();
	struct wire_hello_ack ack;
	struct node_reply reply;

	wire_put_hello(&out, &(struct wire_hello){.role = role,
				     .version_min = 1,
				     .version_max = 1,
				     .mtu = 1400,
				     .cookie = cookie});
	world_request(w, 1, id, boot, WIRE_HELLO, &out);
	world_step(w, 1);
	do
		assert_true(world_reply(w, 1, &reply));
	while (reply.kind != NODE_REP_DATAGRAM);
	assert_int_equal(reply.type, WIRE_HELLO_ACK);
	assert_int_equal(reply.receiver_boot, boot);
	assert_int_equal(reply.to.port, 7000 + id);
	assert_int_equal(wire_get_hello_ack(view(&reply), &ack), 0);
	return ack;
}

// Registers a gateway as it comes: HELLO, echo.
CONTROL_ONLY static uint32_t join(struct world *w, uint64_t id, uint64_t boot)
{
	const struct wire_hello_ack ask = hello_of(w, id, boot, WIRE_ROLE_GATEWAY, 0);

	assert_int_equal(ask.status, WIRE_NEED_HELLO);
	assert_int_equal(hello_of(w, id, boot, WIRE_ROLE_GATEWAY, ask.cookie).status, WIRE_OK);
	return presence_gateway_find(w->node->presence, id, boot);
}

CONTROL_ONLY static struct wire_heartbeat_ack heartbeat_of(
	struct world *w, uint64_t id, uint64_t boot)
{
	struct wire_buf out = body();
	struct wire_heartbeat_ack ack;
	struct node_reply reply;

	wire_put_heartbeat(&out, &(struct wire_heartbeat){.stamp = 99, .sessions = 1});
	world_request(w, 0, id, boot, WIRE_HEARTBEAT, &out);
	world_step(w, 1);
	do
		assert_true(world_reply(w, 0, &reply));
	while (reply.kind != NODE_REP_DATAGRAM);
	assert_int_equal(wire_get_heartbeat_ack(view(&reply), &ack), 0);
	assert_int_equal(ack.stamp, 99);
	return ack;
}

struct entry {
	uint8_t op;
	uint32_t slot, gen;
	const char *uid;
};

static struct node_reply last;  // the rejects of an answer point in here

CONTROL_ONLY static struct wire_announce_ack announce_of(struct world *w, uint64_t id,
	uint64_t boot, uint64_t seq, const struct entry *e, uint32_t count)
{
	struct wire_buf out = body();
	struct wire_announce_ack ack;

	wire_announce_begin(&out, seq);
	for (uint32_t i = 0; i < count; i++)
		assert_true(wire_announce_add(
			&out, &(struct wire_session){.op = e[i].op,
				      .slot = e[i].slot,
				      .gen = e[i].gen,
				      .uid = id_view_of(e[i].uid, (uint8_t)strlen(e[i].uid))}));
	world_request(w, 0, id, boot, WIRE_ANNOUNCE, &out);
	world_step(w, 1);
	do
		assert_true(world_reply(w, 0, &last));
	while (last.kind != NODE_REP_DATAGRAM);
	assert_int_equal(last.type, WIRE_ANNOUNCE_ACK);
	assert_int_equal(wire_get_announce_ack(view(&last), &ack), 0);
	assert_int_equal(ack.stream_seq, seq);
	return ack;
}

CONTROL_ONLY static bool online(struct world *w, const char *uid)
{
	struct presence_view v;

	presence_view(w->node->presence, &v);
	return presence_route(&v, presence_uid_find(w->node->presence,
					  id_view_of(uid, (uint8_t)strlen(uid)))) != 0;
}

CONTROL_ONLY static void only_an_echoed_cookie_registers_a_gateway(void **state)
{
	struct world *w = world_open();
	const struct wire_hello_ack ask = hello_of(w, 3, 1, WIRE_ROLE_GATEWAY, 0);

	(void)state;
	assert_int_equal(ask.status, WIRE_NEED_HELLO);
	assert_int_equal(
		hello_of(w, 3, 1, WIRE_ROLE_GATEWAY, ask.cookie + 1).status, WIRE_NEED_HELLO);
	// Neither another client's nor another start's cookie does.
	assert_int_equal(hello_of(w, 4, 1, WIRE_ROLE_GATEWAY, ask.cookie).status, WIRE_NEED_HELLO);
	assert_int_equal(hello_of(w, 3, 2, WIRE_ROLE_GATEWAY, ask.cookie).status, WIRE_NEED_HELLO);
	assert_int_equal(presence_gateway_find(w->node->presence, 3, 1), 0);
	assert_int_equal(hello_of(w, 3, 1, WIRE_ROLE_GATEWAY, ask.cookie).status, WIRE_OK);
	assert_int_not_equal(presence_gateway_find(w->node->presence, 3, 1), 0);
	assert_int_equal(world_count(w, CTR_GATEWAY_UP), 1);
	assert_int_equal(world_count(w, CTR_HELLO), 5);
	world_close(w);
}

// Whoever missed the answer asks again and is registered still.
CONTROL_ONLY static void gateway_that_missed_the_answer_says_hello_again(void **state)
{
	struct world *w = world_open();
	struct wire_hello_ack ask = hello_of(w, 3, 1, WIRE_ROLE_GATEWAY, 0);
	uint32_t index;

	(void)state;
	hello_of(w, 3, 1, WIRE_ROLE_GATEWAY, ask.cookie);
	index = presence_gateway_find(w->node->presence, 3, 1);
	ask = hello_of(w, 3, 1, WIRE_ROLE_GATEWAY, ask.cookie);
	assert_int_equal(ask.status, WIRE_NEED_HELLO);
	for (int i = 0; i < 3; i++)
		assert_int_equal(hello_of(w, 3, 1, WIRE_ROLE_GATEWAY, ask.cookie).status, WIRE_OK);
	assert_int_equal(presence_gateway_find(w->node->presence, 3, 1), index);
	assert_int_equal(world_count(w, CTR_GATEWAY_UP), 1);
	world_close(w);
}

// HELLOs as they were, come again later: by then their replay entries may be gone.
CONTROL_ONLY static void recorded_hello_of_an_old_boot_ends_no_newer_one(void **state)
{
	struct world *w = world_open();
	uint64_t echo[2];

	(void)state;
	echo[0] = hello_of(w, 3, 1, WIRE_ROLE_GATEWAY, 0).cookie;
	assert_int_equal(hello_of(w, 3, 1, WIRE_ROLE_GATEWAY, echo[0]).status, WIRE_OK);
	echo[1] = hello_of(w, 3, 1, WIRE_ROLE_GATEWAY, 0).cookie;
	assert_int_equal(hello_of(w, 3, 1, WIRE_ROLE_GATEWAY, echo[1]).status, WIRE_OK);
	join(w, 3, 2);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(
			hello_of(w, 3, 1, WIRE_ROLE_GATEWAY, echo[i]).status, WIRE_NEED_HELLO);
		assert_int_equal(presence_gateway_find(w->node->presence, 3, 1), 0);
		assert_int_not_equal(presence_gateway_find(w->node->presence, 3, 2), 0);
	}
	// Nor does it come back to life when the newer one has ended, later.
	presence_gateway_down(
		w->node->presence, presence_gateway_find(w->node->presence, 3, 2), w->now_ns);
	w->now_ns += 20 * SECOND;
	for (int i = 0; i < 2; i++)
		assert_int_equal(
			hello_of(w, 3, 1, WIRE_ROLE_GATEWAY, echo[i]).status, WIRE_NEED_HELLO);
	assert_int_equal(presence_gateway_find(w->node->presence, 3, 1), 0);
	world_close(w);
}

CONTROL_ONLY static void a_hello_answer_says_all_a_client_needs(void **state)
{
	struct world *w = world_open();
	struct wire_hello_ack ack = hello_of(w, 3, 1, WIRE_ROLE_PUBLISHER, 0);

	(void)state;
	ack = hello_of(w, 3, 1, WIRE_ROLE_PUBLISHER, ack.cookie);
	assert_int_equal(ack.status, WIRE_OK);
	assert_int_equal(ack.node_id, 1);
	assert_int_equal(ack.node_boot, 11);
	assert_int_equal(ack.port_base, 5000);
	assert_int_equal(ack.workers, 2);
	assert_int_equal(ack.mtu, 1500);
	assert_int_equal(ack.heartbeat_ms, 1000);
	assert_int_equal(ack.payload_max, PAYLOAD_MAX);
	assert_int_equal(ack.topology_version, 1);
	assert_int_equal(presence_gateway_find(w->node->presence, 3, 1), 0);
	world_close(w);
}

CONTROL_ONLY static void a_client_of_another_protocol_is_told(void **state)
{
	struct world *w = world_open();
	struct wire_buf out = body();
	struct wire_hello_ack ack;
	struct node_reply reply;

	(void)state;
	wire_put_hello(&out, &(struct wire_hello){.role = WIRE_ROLE_GATEWAY,
				     .version_min = 2,
				     .version_max = 3,
				     .mtu = 1400});
	world_request(w, 1, 3, 1, WIRE_HELLO, &out);
	world_step(w, 1);
	assert_true(world_reply(w, 1, &reply));
	assert_int_equal(wire_get_hello_ack(view(&reply), &ack), 0);
	assert_int_equal(ack.status, WIRE_UNSUPPORTED);
	world_close(w);
}

CONTROL_ONLY static void a_full_table_refuses_a_gateway(void **state)
{
	struct world *w = world_open();
	struct wire_hello_ack ask;

	(void)state;
	for (uint64_t id = 1; id <= 8; id++)
		join(w, id, 1);
	ask = hello_of(w, 9, 1, WIRE_ROLE_GATEWAY, 0);
	assert_int_equal(hello_of(w, 9, 1, WIRE_ROLE_GATEWAY, ask.cookie).status, WIRE_LIMIT);
	assert_int_equal(world_count(w, CTR_LIMIT_GATEWAYS), 1);
	world_close(w);
}

CONTROL_ONLY static void a_heartbeat_of_a_stranger_is_answered_unknown(void **state)
{
	struct world *w = world_open();
	struct wire_heartbeat_ack ack;

	(void)state;
	assert_int_equal(heartbeat_of(w, 3, 1).status, WIRE_UNKNOWN_GATEWAY);
	join(w, 3, 1);
	ack = heartbeat_of(w, 3, 1);
	assert_int_equal(ack.status, WIRE_OK);
	assert_int_equal(ack.next_expected, 1);
	assert_int_equal(heartbeat_of(w, 3, 2).status, WIRE_UNKNOWN_GATEWAY);
	world_close(w);
}

CONTROL_ONLY static void without_keys_only_the_proven_address_speaks_for_a_gateway(void **state)
{
	struct world *w = world_open();
	const uint32_t g = join(w, 3, 1);

	(void)state;
	presence_gateway_up(
		w->node->presence, 3, 1, (struct net_addr){.ip = 9, .port = 9}, 1400, w->now_ns);
	assert_int_equal(heartbeat_of(w, 3, 1).status, WIRE_UNKNOWN_GATEWAY);
	world_request(w, 0, 3, 1, WIRE_BYE, NULL);
	world_step(w, 1);
	assert_int_equal(presence_gateway_find(w->node->presence, 3, 1), g);
	// With keys a datagram is authentic wherever it comes from.
	w->node->params.keys.count = 1;
	assert_int_equal(heartbeat_of(w, 3, 1).status, WIRE_OK);
	world_close(w);
}

CONTROL_ONLY static void sessions_come_and_go_with_the_stream(void **state)
{
	struct world *w = world_open();
	const struct entry come[] = {
		{WIRE_SESSION_OPEN, 1, 1, "ann"}, {WIRE_SESSION_OPEN, 2, 1, "bob"}};
	const struct entry go[] = {{WIRE_SESSION_CLOSE, 1, 1, "ann"}};
	struct wire_announce_ack ack;

	(void)state;
	join(w, 3, 1);
	ack = announce_of(w, 3, 1, 1, come, 2);
	assert_int_equal(ack.status, WIRE_OK);
	assert_int_equal(ack.next_expected, 2);
	assert_true(online(w, "ann") && online(w, "bob"));
	assert_int_equal(heartbeat_of(w, 3, 1).sessions, 2);
	assert_int_equal(announce_of(w, 3, 1, 2, go, 1).rejected, 0);
	assert_false(online(w, "ann"));
	assert_int_equal(world_count(w, CTR_ANNOUNCE), 2);
	assert_int_equal(world_count(w, CTR_WITHDRAW), 1);
	world_close(w);
}

CONTROL_ONLY static void out_of_order_frames_change_nothing(void **state)
{
	struct world *w = world_open();
	const struct entry ann = {WIRE_SESSION_OPEN, 1, 1, "ann"};
	struct wire_announce_ack ack;

	(void)state;
	join(w, 3, 1);
	ack = announce_of(w, 3, 1, 2, &ann, 1);
	assert_int_equal(ack.status, WIRE_OUT_OF_ORDER);
	assert_int_equal(ack.next_expected, 1);
	assert_false(online(w, "ann"));
	assert_int_equal(world_count(w, CTR_ANNOUNCE_GAP), 1);
	assert_int_equal(announce_of(w, 4, 1, 1, &ann, 1).status, WIRE_UNKNOWN_GATEWAY);
	assert_int_equal(world_count(w, CTR_ANNOUNCE_UNKNOWN), 1);
	assert_int_equal(announce_of(w, 3, 1, 1, &ann, 1).status, WIRE_OK);
	world_close(w);
}

CONTROL_ONLY static void a_repeated_frame_is_answered_as_the_first_was(void **state)
{
	struct world *w = world_open();
	const struct entry e[] = {
		{WIRE_SESSION_OPEN, 1, 1, "ann"}, {WIRE_SESSION_CLOSE, 9, 1, "bob"}};
	const struct entry close = {WIRE_SESSION_CLOSE, 1, 1, "ann"};
	struct wire_announce_ack ack;
	uint16_t reject[2];

	(void)state;
	join(w, 3, 1);
	for (uint32_t i = 0; i < 2; i++) {
		ack = announce_of(w, 3, 1, 1, e, 2);
		assert_int_equal(ack.status, WIRE_OK);
		assert_int_equal(ack.rejected, 1);
		memcpy(reject, ack.rejects.p, 4);
		assert_int_equal(reject[0], 1);
		assert_int_equal(reject[1], WIRE_STALE);
	}
	assert_int_equal(world_count(w, CTR_ANNOUNCE), 1);
	announce_of(w, 3, 1, 2, &close, 1);
	// The first again, late: it must not open the session anew.
	ack = announce_of(w, 3, 1, 1, e, 2);
	assert_int_equal(ack.next_expected, 3);
	assert_false(online(w, "ann"));
	world_close(w);
}

CONTROL_ONLY static void each_refused_entry_has_its_reason(void **state)
{
	struct world *w = world_open();
	struct entry e[17];
	struct wire_announce_ack ack;
	uint16_t reject[2];

	(void)state;
	join(w, 3, 1);
	for (uint32_t i = 0; i < 17; i++)
		e[i] = (struct entry){WIRE_SESSION_OPEN, i, 1, "ann"};
	ack = announce_of(w, 3, 1, 1, e, 17);
	assert_int_equal(ack.rejected, 1);
	memcpy(reject, ack.rejects.p, 4);
	assert_int_equal(reject[0], 16);
	assert_int_equal(reject[1], WIRE_TOO_MANY_SESSIONS);
	e[0] = (struct entry){WIRE_SESSION_OPEN, 5000, 1, "bob"};
	e[1] = (struct entry){WIRE_SESSION_OPEN, 2, 1, "bob"};
	ack = announce_of(w, 3, 1, 2, e, 2);
	assert_int_equal(ack.rejected, 2);
	memcpy(reject, ack.rejects.p, 4);
	assert_int_equal(reject[1], WIRE_BAD_REQUEST);
	memcpy(reject, ack.rejects.p + 4, 4);
	assert_int_equal(reject[1], WIRE_STALE);
	world_close(w);
}

CONTROL_ONLY static void more_rejects_than_fit_are_counted(void **state)
{
	struct world *w = world_open();
	struct entry e[90];
	struct wire_announce_ack ack;

	(void)state;
	join(w, 3, 1);
	for (uint32_t i = 0; i < 90; i++)
		e[i] = (struct entry){WIRE_SESSION_CLOSE, i, 1, "nobody"};
	ack = announce_of(w, 3, 1, 1, e, 90);
	assert_int_equal(ack.rejected, 90);
	assert_in_range(ack.rejects.len / 4, 40, 89);
	world_close(w);
}

CONTROL_ONLY static void bye_ends_all_sessions_at_once(void **state)
{
	struct world *w = world_open();
	const struct entry ann = {WIRE_SESSION_OPEN, 1, 1, "ann"};
	const uint32_t g = join(w, 3, 1);
	struct presence_view v;
	struct node_reply reply;

	(void)state;
	announce_of(w, 3, 1, 1, &ann, 1);
	world_request(w, 0, 3, 1, WIRE_BYE, NULL);
	world_step(w, 1);
	presence_view(w->node->presence, &v);
	assert_false(presence_session_live(&v, g, 1, 1));
	for (uint32_t i = 0; i < 2; i++) {
		assert_true(world_reply(w, i, &reply));
		assert_int_equal(reply.kind, NODE_REP_GATEWAY_DOWN);
		assert_int_equal(reply.index, g);
		assert_int_equal(reply.use, 1);
	}
	assert_int_equal(world_count(w, CTR_GATEWAY_DOWN), 1);
	assert_int_equal(heartbeat_of(w, 3, 1).status, WIRE_UNKNOWN_GATEWAY);
	world_close(w);
}

CONTROL_ONLY static void three_missed_heartbeats_end_a_gateway(void **state)
{
	struct world *w = world_open();
	const uint64_t start = w->now_ns;

	(void)state;
	join(w, 3, 1);
	join(w, 4, 1);
	w->now_ns = start + 2900 * MS;
	assert_int_equal(heartbeat_of(w, 4, 1).status, WIRE_OK);
	assert_int_not_equal(presence_gateway_find(w->node->presence, 3, 1), 0);
	w->now_ns = start + 3100 * MS;
	world_step(w, 1);
	assert_int_equal(presence_gateway_find(w->node->presence, 3, 1), 0);
	assert_int_not_equal(presence_gateway_find(w->node->presence, 4, 1), 0);
	world_close(w);
}

CONTROL_ONLY static void heartbeats_that_waited_out_a_pause_are_heard_first(void **state)
{
	struct world *w;
	struct wire_buf out = body();

	(void)state;
	world_params.ring_items = 1024;
	w = world_open();
	world_params.ring_items = 16;
	join(w, 3, 1);
	// More requests than one step takes stand before the heartbeat.
	for (uint32_t i = 0; i < 300; i++)
		world_request(w, 0, 77, 1, WIRE_BYE, NULL);
	wire_put_heartbeat(&out, &(struct wire_heartbeat){.stamp = 1});
	world_request(w, 0, 3, 1, WIRE_HEARTBEAT, &out);
	w->now_ns += 60 * SECOND;
	world_step(w, 3);
	assert_int_not_equal(presence_gateway_find(w->node->presence, 3, 1), 0);
	world_close(w);
}

CONTROL_ONLY static void every_worker_learns_of_an_end_whatever_its_ring(void **state)
{
	struct world *w = world_open();
	struct node_reply reply, filler = {.kind = NODE_REP_CHANNEL_GONE};
	uint32_t downs[2] = {0};

	(void)state;
	for (uint64_t id = 1; id <= 4; id++)
		join(w, id, 1);
	while (world_reply(w, 1, &reply))
		;
	while (node_control_reply(w->node, 1, &filler))
		;
	for (uint64_t id = 1; id <= 4; id++)
		world_request(w, 0, id, 1, WIRE_BYE, NULL);
	world_step(w, 5);
	// The ring of worker 1 is full: nobody's entry is given out again before it was told.
	assert_int_equal(world_count(w, CTR_GATEWAY_DOWN), 0);
	for (uint32_t round = 0; round < 20; round++) {
		for (uint32_t i = 0; i < 2; i++)
			while (world_reply(w, i, &reply))
				downs[i] += reply.kind == NODE_REP_GATEWAY_DOWN;
		world_step(w, 1);
	}
	assert_int_equal(downs[0], 4);
	assert_int_equal(downs[1], 4);
	assert_int_equal(world_count(w, CTR_GATEWAY_DOWN), 4);
	world_close(w);
}

CONTROL_ONLY static void a_restarted_gateway_starts_a_new_stream(void **state)
{
	struct world *w = world_open();
	const struct entry ann = {WIRE_SESSION_OPEN, 1, 1, "ann"},
			   bob = {WIRE_SESSION_OPEN, 2, 1, "bob"};
	const uint32_t old = join(w, 3, 1);

	(void)state;
	announce_of(w, 3, 1, 1, &ann, 1);
	assert_int_not_equal(join(w, 3, 2), old);
	assert_int_equal(announce_of(w, 3, 1, 2, &ann, 1).status, WIRE_UNKNOWN_GATEWAY);
	assert_int_equal(announce_of(w, 3, 2, 1, &bob, 1).status, WIRE_OK);
	world_step(w, 3);
	assert_false(online(w, "ann"));
	assert_true(online(w, "bob"));
	world_close(w);
}

CONTROL_ONLY static void malformed_bodies_are_counted_and_not_answered(void **state)
{
	struct world *w = world_open();
	const uint8_t types[] = {WIRE_HELLO, WIRE_HEARTBEAT, WIRE_ANNOUNCE};
	struct wire_buf out = body();
	struct node_reply reply;
	uint64_t drops = 0;

	(void)state;
	join(w, 3, 1);
	memset(bytes, 0xff, 100);
	for (uint32_t t = 0; t < 3; t++)
		for (out.len = 1; out.len < 100; out.len += 9) {
			world_request(w, 0, 3, 1, types[t], &out);
			world_step(w, 1);
			assert_false(world_reply(w, 0, &reply));
		}
	for (enum counter c = CTR_DROP_SHORT; c <= CTR_DROP_FIELD; c++)
		drops += world_count(w, c);
	assert_int_equal(drops, 33);
	world_request(w, 0, 3, 1, WIRE_BYE, &(struct wire_buf){.p = bytes, .len = 1, .ok = true});
	world_request(w, 0, 3, 1, WIRE_PUBLISH, NULL);
	world_step(w, 1);
	assert_int_not_equal(presence_gateway_find(w->node->presence, 3, 1), 0);
	assert_int_equal(world_count(w, CTR_DROP_TYPE), 1);
	world_close(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(only_an_echoed_cookie_registers_a_gateway),
		cmocka_unit_test(gateway_that_missed_the_answer_says_hello_again),
		cmocka_unit_test(recorded_hello_of_an_old_boot_ends_no_newer_one),
		cmocka_unit_test(a_hello_answer_says_all_a_client_needs),
		cmocka_unit_test(a_client_of_another_protocol_is_told),
		cmocka_unit_test(a_full_table_refuses_a_gateway),
		cmocka_unit_test(a_heartbeat_of_a_stranger_is_answered_unknown),
		cmocka_unit_test(without_keys_only_the_proven_address_speaks_for_a_gateway),
		cmocka_unit_test(sessions_come_and_go_with_the_stream),
		cmocka_unit_test(out_of_order_frames_change_nothing),
		cmocka_unit_test(a_repeated_frame_is_answered_as_the_first_was),
		cmocka_unit_test(each_refused_entry_has_its_reason),
		cmocka_unit_test(more_rejects_than_fit_are_counted),
		cmocka_unit_test(bye_ends_all_sessions_at_once),
		cmocka_unit_test(three_missed_heartbeats_end_a_gateway),
		cmocka_unit_test(heartbeats_that_waited_out_a_pause_are_heard_first),
		cmocka_unit_test(every_worker_learns_of_an_end_whatever_its_ring),
		cmocka_unit_test(a_restarted_gateway_starts_a_new_stream),
		cmocka_unit_test(malformed_bodies_are_counted_and_not_answered),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
