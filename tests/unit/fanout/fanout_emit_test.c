/* SPDX-License-Identifier: BSD-3-Clause */
#include "fanout_world.h"

#include <stdio.h>

static struct world w;

static void start(uint16_t gateway_mtu) WORKER_ONLY CONTROL_ONLY;
static void start(uint16_t gateway_mtu)
{
	world_start(&w);
	for (uint32_t g = 1; g <= 2; g++)
		world_gateway(&w, g, gateway_mtu);
}

static void messages_of_a_turn_share_a_push(void **state) WORKER_ONLY CONTROL_ONLY;
static void messages_of_a_turn_share_a_push(void **state)
{
	world_defaults(&w);
	start(1500);
	world_online(&w, "u", 4, 2);
	world_tag(&w, world_channel(&w, "a"), "u", 4);
	world_tag(&w, world_channel(&w, "b"), "u", 4);
	world_publish(&w, "a", 1, WIRE_ACK_NONE, 50);
	world_publish(&w, "b", 2, WIRE_ACK_NONE, 60);
	world_publish(&w, "a", 3, WIRE_ACK_NONE, 70);
	world_turn(&w);
	assert_int_equal(w.port.sent_count, 2);
	assert_int_equal(w.arrived_count, 12);
	world_publish(&w, "a", 4, WIRE_ACK_NONE, 50);
	world_turn(&w);
	assert_int_equal(w.port.sent_count, 4);
	world_check_sums(&w);
	world_end(&w);
}

static void push_wants_an_answer_when_any_record_does(void **state) WORKER_ONLY CONTROL_ONLY;
static void push_wants_an_answer_when_any_record_does(void **state)
{
	world_defaults(&w);
	start(1500);
	world_online(&w, "u", 1, 1);
	world_tag(&w, world_channel(&w, "a"), "u", 1);
	world_publish(&w, "a", 1, WIRE_ACK_NONE, 50);
	world_publish(&w, "a", 2, WIRE_ACK_CLIENT, 50);
	world_turn(&w);
	assert_int_equal(w.port.sent_count, 1);
	assert_true(w.arrived[0].need_ack);
	assert_false(w.arrived[0].flags & WIRE_RECORD_RECEIPT);
	assert_true(w.arrived[1].flags & WIRE_RECORD_RECEIPT);
	world_publish(&w, "a", 3, WIRE_ACK_NONE, 50);
	world_turn(&w);
	assert_false(w.arrived[2].need_ack);
	world_end(&w);
}

static void datagrams_keep_to_the_smaller_mtu(void **state) WORKER_ONLY CONTROL_ONLY;
static void datagrams_keep_to_the_smaller_mtu(void **state)
{
	static const uint16_t mtu[][3] = {{1500, 9000, 1500}, {9000, 1400, 1400}, {576, 1500, 576}};

	for (uint32_t k = 0; k < 3; k++) {
		world_defaults(&w);
		w.limits.mtu = mtu[k][0];
		start(mtu[k][1]);
		world_online(&w, "u", 2000, 2);
		world_tag(&w, world_channel(&w, "room"), "u", 2000);
		world_publish(&w, "room", 1, WIRE_ACK_NONE, 90);
		world_turns(&w, 2);
		assert_int_equal(w.arrived_count, 2000);
		assert_true(w.largest <= mtu[k][2]);
		assert_true(w.largest > mtu[k][2] - 64u);  // and are filled
		world_end(&w);
	}
}

static void keyed_datagrams_leave_room_for_the_tag(void **state) WORKER_ONLY CONTROL_ONLY;
static void keyed_datagrams_leave_room_for_the_tag(void **state)
{
	world_defaults(&w);
	w.keys.count = 1;
	assert_int_equal(wire_auth_init(), 0);
	start(1500);
	world_online(&w, "u", 1000, 2);
	world_tag(&w, world_channel(&w, "room"), "u", 1000);
	world_publish(&w, "room", 1, WIRE_ACK_NONE, 90);
	world_publish(&w, "room", 2, WIRE_ACK_NONE, 3000);
	world_turns(&w, 4);
	assert_int_equal(w.arrived_count, 2000);
	assert_true(w.largest <= 1500);
	world_end(&w);
}

static void one_datagram_carries_no_more_routes_than_a_small_record_holds(
	void **state) WORKER_ONLY CONTROL_ONLY;
static void one_datagram_carries_no_more_routes_than_a_small_record_holds(void **state)
{
	world_defaults(&w);
	w.limits.mtu = 9000;
	start(9000);
	world_online(&w, "u", 1000, 1);
	world_tag(&w, world_channel(&w, "room"), "u", 1000);
	world_publish(&w, "room", 1, WIRE_ACK_GATEWAY, 10);
	world_turn(&w);
	assert_int_equal(w.arrived_count, 1000);
	for (uint32_t i = 0; i < 1000; i++)
		assert_true(w.arrived[i].routes <= 192);
	world_ack(&w, 0);
	world_check_sums(&w);
	world_end(&w);
}

// Payloads around and far beyond what fits, at every MTU: all arrive whole, once, within the MTU.
static void payload_of_any_size_arrives_whole(void **state) WORKER_ONLY CONTROL_ONLY;
static void payload_of_any_size_arrives_whole(void **state)
{
	static const uint16_t mtu[] = {576, 1280, 1500, 9000};
	static const uint32_t bytes[] = {0, 1, 300, 420, 440, 450, 460, 500, 800, 900, 1000, 1300,
		1400, 1410, 1420, 1440, 1500, 3000, 8000, 8800, 8900, 9000, 20000, 61440};

	for (unsigned m = 0; m < 4; m++) {
		uint32_t n = 0;

		world_defaults(&w);
		w.limits.mtu = mtu[m];
		start(9000);
		world_online(&w, "u", 150, 2);
		world_tag(&w, world_channel(&w, "room"), "u", 150);
		for (unsigned b = 0; b < sizeof(bytes) / sizeof(bytes[0]); b++) {
			world_publish(&w, "room", b + 1, WIRE_ACK_GATEWAY, bytes[b]);
			for (uint32_t i = 0; i < 100 && fanout_runnable(w.fanout); i++)
				world_turn(&w);
			assert_int_equal(w.arrived_count - n, 150);
			for (; n < w.arrived_count; n++) {
				assert_int_equal(w.arrived[n].message_id, b + 1);
				assert_int_equal(w.arrived[n].payload_len, bytes[b]);
				if (bytes[b] != 0)
					assert_int_equal(w.arrived[n].payload_first, b + 1);
			}
			world_ack(&w, n - 150);
		}
		assert_true(w.largest <= mtu[m]);
		assert_int_equal(w.frames_done, 3);
		world_check_sums(&w);
		world_end(&w);
	}
}

static void large_payload_is_not_repeated_for_every_few_routes(
	void **state) WORKER_ONLY CONTROL_ONLY;
static void large_payload_is_not_repeated_for_every_few_routes(void **state)
{
	world_defaults(&w);
	w.limits.quantum_members = 64;
	start(1500);
	world_online(&w, "u", 9000, 2);
	world_tag(&w, world_channel(&w, "room"), "u", 9000);
	world_publish(&w, "room", 1, WIRE_ACK_NONE, 5000);
	world_turns(&w, 20);
	assert_int_equal(w.arrived_count, 9000);
	assert_int_equal(w.datagrams, 4);  // 4,500 routes a gateway, 4,096 a frame
	world_check_sums(&w);
	world_end(&w);
}

static void large_messages_take_turns_and_small_ones_do_not_wait(
	void **state) WORKER_ONLY CONTROL_ONLY;
static void large_messages_take_turns_and_small_ones_do_not_wait(void **state)
{
	world_defaults(&w);
	w.limits.quantum_members = 64;
	w.limits.turn_members = 256;
	start(1500);
	world_online(&w, "u", 3000, 2);
	world_tag(&w, world_channel(&w, "a"), "u", 3000);
	world_tag(&w, world_channel(&w, "b"), "u", 3000);
	world_tag(&w, world_channel(&w, "c"), "u", 20);
	world_publish(&w, "a", 1, WIRE_ACK_GATEWAY, 5000);
	world_publish(&w, "b", 2, WIRE_ACK_GATEWAY, 5000);
	world_turn(&w);
	world_publish(&w, "c", 3, WIRE_ACK_GATEWAY, 100);
	world_turn(&w);
	assert_int_equal(world_arrivals(&w, 3), 20);
	world_turns(&w, 100);
	assert_int_equal(world_arrivals(&w, 1), 3000);
	assert_int_equal(world_arrivals(&w, 2), 3000);
	world_ack(&w, 0);
	world_check_sums(&w);
	world_end(&w);
}

static void order_of_a_channel_holds_between_small_and_large_payloads(
	void **state) WORKER_ONLY CONTROL_ONLY;
static void order_of_a_channel_holds_between_small_and_large_payloads(void **state)
{
	uint64_t last[3] = {0};

	world_defaults(&w);
	w.limits.quantum_members = 50;
	w.limits.turn_members = 100000;
	start(1500);
	world_online(&w, "u", 200, 2);
	world_tag(&w, world_channel(&w, "room"), "u", 200);
	for (uint64_t id = 1; id <= 12; id++)
		world_publish(&w, "room", id, WIRE_ACK_GATEWAY, id % 3 == 0 ? 6000 : 100);
	world_turns(&w, 10);
	assert_int_equal(w.arrived_count, 2400);
	for (uint32_t i = 0; i < w.arrived_count; i++) {
		assert_true(w.arrived[i].seq >= last[w.arrived[i].gateway]);
		last[w.arrived[i].gateway] = w.arrived[i].seq;
	}
	world_ack(&w, 0);
	world_check_sums(&w);
	world_end(&w);
}

static void without_buffers_the_expansion_waits_and_loses_nothing(
	void **state) WORKER_ONLY CONTROL_ONLY;
static void without_buffers_the_expansion_waits_and_loses_nothing(void **state)
{
	static const uint32_t bytes[] = {100, 5000};

	for (uint32_t k = 0; k < 2; k++) {
		struct dgram *taken[4096];
		uint16_t n = 0;

		world_defaults(&w);
		start(1500);
		world_online(&w, "u", 500, 2);
		world_tag(&w, world_channel(&w, "room"), "u", 500);
		world_publish(&w, "room", 1, WIRE_ACK_NONE, bytes[k]);
		while (w.port.idle_count > w.limits.buffer_reserve)
			w.port.ops->alloc(&w.port, &taken[n++], 1);
		for (uint32_t i = 0; i < 5; i++)
			assert_int_equal(world_turn(&w), k == 0 ? 0 : (i == 0 ? 500 : 0));
		assert_int_equal(w.arrived_count, 0);
		assert_true(fanout_runnable(w.fanout));
		assert_true(fanout_next_ns(w.fanout) <= w.now_ns + MS);
		w.port.ops->free(&w.port, taken, n);
		world_turns(&w, 3);
		assert_int_equal(w.arrived_count, 500);
		assert_int_equal(world_count(&w, CTR_ROUTE_NO_BUFFER), 0);
		world_check_sums(&w);
		world_end(&w);
	}
}

static void failing_allocations_lose_and_repeat_nobody(void **state) WORKER_ONLY CONTROL_ONLY;
static void failing_allocations_lose_and_repeat_nobody(void **state)
{
	for (uint32_t nth = 0; nth < 12; nth++) {
		world_defaults(&w);
		start(1500);
		world_online(&w, "u", 2000, 2);
		world_tag(&w, world_channel(&w, "room"), "u", 2000);
		world_publish(&w, "room", 1, WIRE_ACK_NONE, 100);
		world_publish(&w, "room", 2, WIRE_ACK_NONE, 5000);
		for (uint32_t i = 0; i < 60 && fanout_runnable(w.fanout); i++) {
			if (i == nth / 2)
				w.port.fail_alloc = 1 + nth % 2 * 3;
			world_turn(&w);
		}
		assert_int_equal(world_arrivals(&w, 1), 2000);
		assert_int_equal(world_arrivals(&w, 2), 2000);
		world_check_sums(&w);
		world_end(&w);
	}
}

// Room may be missing for the second session only: a large frame is full, or no datagram is free.
static void members_with_two_sessions_lose_neither_for_want_of_room(
	void **state) WORKER_ONLY CONTROL_ONLY;
static void members_with_two_sessions_lose_neither_for_want_of_room(void **state)
{
	for (uint32_t nth = 0; nth < 6; nth++) {
		const uint32_t members = 4800;  // more routes a gateway than a frame takes

		uint32_t both;

		world_defaults(&w);
		start(1500);
		both = world_gateway(&w, 9000, 1500);  // everyone's second session
		world_online(&w, "u", members, 2);
		for (uint32_t i = 0; i < members; i++) {
			char name[32];

			snprintf(name, sizeof(name), "u%u", i);
			world_session(&w, both, i, 1, name);
		}
		world_tag(&w, world_channel(&w, "room"), "u", members);
		world_publish(&w, "room", 1, WIRE_ACK_NONE, 100);
		world_publish(&w, "room", 2, WIRE_ACK_NONE, 5000);
		for (uint32_t i = 0; i < 200 && fanout_runnable(w.fanout); i++) {
			w.port.fail_alloc = i % 3 == 0 ? nth : 0;
			world_turn(&w);
		}
		assert_int_equal(world_count(&w, CTR_ROUTE_NO_BUFFER), 0);
		assert_int_equal(world_arrivals(&w, 1), 2 * members);
		assert_int_equal(world_arrivals(&w, 2), 2 * members);
		world_check_sums(&w);
		world_end(&w);
	}
}

static void buffers_that_never_come_end_the_message_at_its_deadline(
	void **state) WORKER_ONLY CONTROL_ONLY;
static void buffers_that_never_come_end_the_message_at_its_deadline(void **state)
{
	static const uint32_t bytes[] = {100, 5000};

	for (uint32_t k = 0; k < 2; k++) {
		struct dgram *taken[4096];
		uint16_t n = 0;

		world_defaults(&w);
		start(1500);
		world_online(&w, "u", 500, 2);
		world_tag(&w, world_channel(&w, "room"), "u", 500);
		world_publish(&w, "room", 1, WIRE_ACK_CLIENT, bytes[k]);
		while (w.port.idle_count > w.limits.buffer_reserve)
			w.port.ops->alloc(&w.port, &taken[n++], 1);
		world_turns(&w, 3);
		w.now_ns += w.limits.deadline_ns;
		world_turns(&w, 3);
		assert_int_equal(w.arrived_count, 0);
		assert_int_equal(world_last_told(&w)->status, WIRE_INCOMPLETE);
		assert_int_equal(world_count(&w, CTR_ROUTE_DEADLINE), 500);
		assert_false(fanout_runnable(w.fanout));
		w.port.ops->free(&w.port, taken, n);
		world_check_sums(&w);
		world_end(&w);
	}
}

static void gateway_that_dies_while_routes_are_staged_ends_them(
	void **state) WORKER_ONLY CONTROL_ONLY;
static void gateway_that_dies_while_routes_are_staged_ends_them(void **state)
{
	world_defaults(&w);
	w.limits.quantum_members = 100;
	w.limits.turn_members = 100;
	start(1500);
	world_online(&w, "u", 400, 2);
	world_tag(&w, world_channel(&w, "room"), "u", 400);
	world_publish(&w, "room", 1, WIRE_ACK_CLIENT, 5000);
	world_turn(&w);
	presence_gateway_down(w.presence, 2, w.now_ns);
	world_turns(&w, 20);
	assert_int_equal(w.arrived_count, 200);
	assert_int_equal(world_count(&w, CTR_ROUTE_GATEWAY_GONE), 50);
	assert_int_equal(world_count(&w, CTR_END_OFFLINE), 150);
	assert_int_equal(world_count(&w, CTR_ROUTES), 250);
	world_end(&w);
}

static void records_of_many_messages_stay_within_the_spans_of_a_push(
	void **state) WORKER_ONLY CONTROL_ONLY;
static void records_of_many_messages_stay_within_the_spans_of_a_push(void **state)
{
	world_defaults(&w);
	w.limits.messages = 512;
	w.limits.mtu = 9000;
	start(9000);
	world_online(&w, "u", 1, 1);
	world_tag(&w, world_channel(&w, "room"), "u", 1);
	for (uint64_t id = 1; id <= 300; id++)
		world_publish(&w, "room", id, WIRE_ACK_GATEWAY, 0);
	world_turns(&w, 2);
	assert_int_equal(w.arrived_count, 300);
	for (uint32_t i = 0; i < 300; i++) {
		assert_true(w.arrived[i].routes <= DELIVERY_SPANS_MAX);
		assert_int_equal(w.arrived[i].seq, i + 1);
	}
	world_ack(&w, 0);
	world_check_sums(&w);
	world_end(&w);
}

static void large_message_keeps_pace_with_its_gateways(void **state) WORKER_ONLY CONTROL_ONLY;
static void large_message_keeps_pace_with_its_gateways(void **state)
{
	static const uint32_t bytes[] = {100, 5000};

	for (uint32_t k = 0; k < 2; k++) {
		uint32_t acked = 0;

		world_defaults(&w);
		w.delivery_limits.window = 4;
		w.delivery_limits.backlog = 8;
		w.delivery_limits.inflight_large = 8;
		start(1500);
		world_online(&w, "u", 20000, 2);
		world_tag(&w, world_channel(&w, "room"), "u", 20000);
		world_publish(&w, "room", 1, WIRE_ACK_NONE, bytes[k]);
		for (uint32_t i = 0; i < 500 && (fanout_runnable(w.fanout) || i < 10); i++) {
			w.now_ns += MS / 10;
			world_turn(&w);
			world_ack(&w, acked);
			acked = w.arrived_count;
		}
		for (uint32_t i = 0; i < 10; i++) {
			world_turn(&w);
			world_ack(&w, acked);
			acked = w.arrived_count;
		}
		assert_int_equal(w.arrived_count, 20000);
		assert_int_equal(world_count(&w, CTR_ROUTE_OVERFLOW), 0);
		world_check_sums(&w);
		world_end(&w);
	}
}

static void silent_gateway_holds_a_large_message_up_once_and_small_ones_never(
	void **state) WORKER_ONLY CONTROL_ONLY;
static void silent_gateway_holds_a_large_message_up_once_and_small_ones_never(void **state)
{
	uint32_t acked = 0;

	world_defaults(&w);
	w.delivery_limits.window = 8;
	w.delivery_limits.backlog = 16;
	start(1500);
	world_online(&w, "u", 20000, 2);
	world_tag(&w, world_channel(&w, "room"), "u", 20000);
	world_tag(&w, world_channel(&w, "small"), "u", 10);
	for (uint64_t id = 1; id <= 3; id++)
		world_publish(&w, "room", id, WIRE_ACK_GATEWAY, 100);
	for (uint32_t i = 0; i < 4000; i++) {
		w.now_ns += MS / 4;
		if (i == 100)  // both gateways' share: there is room behind the large message
			world_publish(&w, "small", 4, WIRE_ACK_GATEWAY, 100);
		world_turn(&w);
		for (uint32_t k = acked; k < w.arrived_count; k++) {
			const struct arrived *a = &w.arrived[k];
			const struct wire_push_ack ack = {.push_id = a->push_id,
				.push_gen = a->push_gen,
				.accepted = a->routes};

			if (a->gateway == 1 && a->position == 0)
				delivery_on_ack(w.delivery, 1, &ack, w.now_ns);
		}
		acked = w.arrived_count;
		if (i == 110)
			assert_true(world_arrivals(&w, 4) >= 5);
	}
	assert_false(fanout_runnable(w.fanout));
	assert_int_equal(world_count(&w, CTR_ROUTE_ACCEPTED), 30000 + 5);
	assert_true(world_count(&w, CTR_ROUTE_OVERFLOW) > 10000);
	world_end(&w);
}

// A member is taken whole or not at all: what was opened for its other sessions stays empty until the end
// of the turn. Here that is more datagrams than a worker keeps for itself.
static void empty_pushes_of_many_stalled_messages_all_go_back(
	void **state) WORKER_ONLY CONTROL_ONLY;
static void empty_pushes_of_many_stalled_messages_all_go_back(void **state)
{
	enum { STALLED = 30, OTHERS = SESSIONS_PER_UID_MAX - 1 };
	const uint32_t busy = STALLED * OTHERS + 1;

	world_defaults(&w);
	w.delivery_limits.gateways = (uint16_t)busy;
	w.delivery_limits.window = 1;
	w.delivery_limits.backlog = 1;
	world_start(&w);
	for (uint32_t g = 1; g <= busy; g++)
		assert_int_equal(world_gateway(&w, g, 1500), g);
	world_session(&w, busy, 1000, 1, "b0");
	world_tag(&w, world_channel(&w, "busy"), "b", 1);
	for (uint64_t id = 1; id <= 2; id++) {  // one in the window, one behind it
		world_publish(&w, "busy", id, WIRE_ACK_GATEWAY, 10);
		world_turn(&w);
	}
	for (uint32_t k = 0; k < STALLED; k++) {
		char prefix[16], first[20];

		snprintf(prefix, sizeof(prefix), "c%u-", k);
		snprintf(first, sizeof(first), "%s0", prefix);
		for (uint32_t s = 0; s < OTHERS; s++)
			world_session(&w, 1 + k * OTHERS + s, k, 1, first);
		world_session(&w, busy, k, 1, first);
		world_tag(&w, world_channel(&w, prefix), prefix, 1025);
		world_publish(&w, prefix, 100 + k, WIRE_ACK_NONE, 10);
	}
	w.now_ns += MS;
	world_turn(&w);
	assert_int_equal(world_count(&w, CTR_ROUTES), 2);  // all wait for the busy gateway
	for (uint32_t i = 0; i < 100; i++) {
		w.now_ns += 5 * MS;
		world_turn(&w);
	}
	for (uint32_t k = 0; k < STALLED; k++)
		assert_true(world_arrivals(&w, 100 + k) >= OTHERS);
	world_ack(&w, 0);
	world_turn(&w);
	world_ack(&w, 0);
	world_check_sums(&w);
	world_end(&w);
}

// The control core takes another HELLO of the gateway while a worker changes from a full push to the next.
static void mtu_shrinks(void) CONTROL_ONLY;
static void mtu_shrinks(void)
{
	w.port.on_tx = NULL;
	assert_int_equal(
		presence_gateway_up(w.presence, 1, 10, w.view.gateway[1].addr, MTU_MIN, w.now_ns),
		1);
}

static void push_keeps_the_room_its_record_was_found_to_have(void **state) WORKER_ONLY CONTROL_ONLY;
static void push_keeps_the_room_its_record_was_found_to_have(void **state)
{
	static const uint32_t bytes[] = {90, 400, 800};

	for (uint32_t k = 0; k < 3; k++) {
		world_defaults(&w);
		start(1500);
		world_online(&w, "u", 1000, 1);
		world_tag(&w, world_channel(&w, "room"), "u", 1000);
		world_publish(&w, "room", 1, WIRE_ACK_NONE, bytes[k]);
		w.port.on_tx = mtu_shrinks;
		world_turns(&w, 20);
		assert_int_equal(world_arrivals(&w, 1), 1000);
		assert_true(w.largest <= 1500);
		world_check_sums(&w);
		world_end(&w);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(messages_of_a_turn_share_a_push),
		cmocka_unit_test(push_wants_an_answer_when_any_record_does),
		cmocka_unit_test(datagrams_keep_to_the_smaller_mtu),
		cmocka_unit_test(keyed_datagrams_leave_room_for_the_tag),
		cmocka_unit_test(one_datagram_carries_no_more_routes_than_a_small_record_holds),
		cmocka_unit_test(payload_of_any_size_arrives_whole),
		cmocka_unit_test(large_payload_is_not_repeated_for_every_few_routes),
		cmocka_unit_test(large_messages_take_turns_and_small_ones_do_not_wait),
		cmocka_unit_test(order_of_a_channel_holds_between_small_and_large_payloads),
		cmocka_unit_test(without_buffers_the_expansion_waits_and_loses_nothing),
		cmocka_unit_test(failing_allocations_lose_and_repeat_nobody),
		cmocka_unit_test(members_with_two_sessions_lose_neither_for_want_of_room),
		cmocka_unit_test(buffers_that_never_come_end_the_message_at_its_deadline),
		cmocka_unit_test(gateway_that_dies_while_routes_are_staged_ends_them),
		cmocka_unit_test(records_of_many_messages_stay_within_the_spans_of_a_push),
		cmocka_unit_test(large_message_keeps_pace_with_its_gateways),
		cmocka_unit_test(silent_gateway_holds_a_large_message_up_once_and_small_ones_never),
		cmocka_unit_test(empty_pushes_of_many_stalled_messages_all_go_back),
		cmocka_unit_test(push_keeps_the_room_its_record_was_found_to_have),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
