/* SPDX-License-Identifier: BSD-3-Clause */
#include "fanout_world.h"

#include <stdio.h>
#include <stdlib.h>

static struct world w;

static void start(void) WORKER_ONLY CONTROL_ONLY;
static void start(void)
{
	world_start(&w);
	for (uint32_t g = 1; g <= 4; g++)
		world_gateway(&w, g, 1500);
}

// A tag of u0..u<count-1> with u1 denied.
static void tag_with_denied(struct channel *channel, uint32_t count) CONTROL_ONLY;
static void tag_with_denied(struct channel *channel, uint32_t count)
{
	uint32_t denied = presence_uid_find(w.presence, id_view_of("u1", 2));
	const struct tag_edit edit = {.deny_set = &denied, .deny_sets = 1, .smv = 2};
	struct tag *old = world_tag(&w, channel, "u", count), *tag;

	denied = presence_uid_find(w.presence, id_view_of("u1", 2));
	tag = tag_edit(w.tags, old, &edit);
	assert_non_null(tag);
	world_smv(channel, 2);
	rcu_publish(&channel->tag, tag);
	tag_retire(w.tags, old);
}

static void every_member_ends_in_exactly_one_way(void **state) WORKER_ONLY CONTROL_ONLY;
static void every_member_ends_in_exactly_one_way(void **state)
{
	struct fanout_publish p;

	world_defaults(&w);
	start();
	world_session(&w, 1, 10, 3, "u0");  // routed
	world_session(&w, 1, 11, 1, "u1");  // denied
	world_session(&w, 2, 12, 5, "u2");  // the sender's only session
	world_session(&w, 2, 13, 1, "u3");  // several sessions on two gateways
	world_session(&w, 3, 13, 1, "u3");
	world_session(&w, 3, 14, 1, "u3");
	tag_with_denied(world_channel(&w, "room"), 6);  // u4, u5 offline
	p = world_message(&w, "room", 1, WIRE_ACK_NONE, 10);
	p.m.sender_gateway = 2;
	p.m.sender_boot = 20;
	p.m.sender_slot = 12;
	p.m.sender_gen = 5;
	world_admit(&w, &p);
	world_turn(&w);
	assert_int_equal(world_count(&w, CTR_MEMBERS), 6);
	assert_int_equal(world_count(&w, CTR_END_ROUTED), 2);
	assert_int_equal(world_count(&w, CTR_END_DENIED), 1);
	assert_int_equal(world_count(&w, CTR_END_SENDER_ONLY), 1);
	assert_int_equal(world_count(&w, CTR_END_OFFLINE), 2);
	assert_int_equal(world_count(&w, CTR_ROUTE_ECHO), 1);
	assert_int_equal(world_count(&w, CTR_ROUTES), 4);
	assert_int_equal(w.arrived_count, 4);
	for (uint32_t i = 0; i < 4; i++)
		assert_true(w.arrived[i].slot != 11 && w.arrived[i].slot != 12);
	world_check_sums(&w);
	world_end(&w);
}

static void echo_leaves_the_senders_other_sessions_alone(void **state) WORKER_ONLY CONTROL_ONLY;
static void echo_leaves_the_senders_other_sessions_alone(void **state)
{
	struct fanout_publish p;

	world_defaults(&w);
	start();
	world_session(&w, 1, 10, 1, "u0");
	world_session(&w, 2, 10, 1, "u0");
	world_tag(&w, world_channel(&w, "room"), "u", 1);
	p = world_message(&w, "room", 1, WIRE_ACK_NONE, 10);
	p.m.sender_gateway = 1;
	p.m.sender_boot = 10;
	p.m.sender_slot = 10;
	p.m.sender_gen = 1;
	world_admit(&w, &p);
	world_turn(&w);
	assert_int_equal(w.arrived_count, 1);
	assert_int_equal(w.arrived[0].gateway, 2);
	assert_int_equal(world_count(&w, CTR_END_ROUTED), 1);
	assert_int_equal(world_count(&w, CTR_END_SENDER_ONLY), 0);
	world_end(&w);
}

static void echo_needs_boot_slot_and_generation_to_match(void **state) WORKER_ONLY CONTROL_ONLY;
static void echo_needs_boot_slot_and_generation_to_match(void **state)
{
	world_defaults(&w);
	start();
	world_session(&w, 1, 10, 7, "u0");
	world_tag(&w, world_channel(&w, "room"), "u", 1);
	for (uint64_t id = 1; id <= 3; id++) {
		struct fanout_publish p = world_message(&w, "room", id, WIRE_ACK_NONE, 10);

		p.m.sender_gateway = 1;
		p.m.sender_boot = id == 1 ? 11 : 10;
		p.m.sender_slot = id == 2 ? 9 : 10;
		p.m.sender_gen = id == 3 ? 6 : 7;
		world_admit(&w, &p);
	}
	world_turn(&w);
	assert_int_equal(w.arrived_count, 3);
	assert_int_equal(world_count(&w, CTR_ROUTE_ECHO), 0);
	world_end(&w);
}

static void members_of_a_dead_gateway_are_offline(void **state) WORKER_ONLY CONTROL_ONLY;
static void members_of_a_dead_gateway_are_offline(void **state)
{
	world_defaults(&w);
	start();
	world_online(&w, "u", 40, 4);
	world_session(&w, 1, 1000, 1, "u1");  // u1 lives on gateway 2 and has another session on 1
	world_tag(&w, world_channel(&w, "room"), "u", 40);
	presence_gateway_down(w.presence, 2, w.now_ns);
	world_publish(&w, "room", 1, WIRE_ACK_NONE, 10);
	world_turn(&w);
	assert_int_equal(w.arrived_count, 31);
	assert_int_equal(world_count(&w, CTR_END_OFFLINE), 9);
	assert_int_equal(world_count(&w, CTR_END_ROUTED), 31);
	world_check_sums(&w);
	world_end(&w);
}

static void a_message_past_its_deadline_ends_its_routes_unsent(
	void **state) WORKER_ONLY CONTROL_ONLY;
static void a_message_past_its_deadline_ends_its_routes_unsent(void **state)
{
	world_defaults(&w);
	start();
	world_online(&w, "u", 10, 2);
	world_tag(&w, world_channel(&w, "room"), "u", 15);
	world_publish(&w, "room", 1, WIRE_ACK_CLIENT, 10);
	w.now_ns += w.limits.deadline_ns;
	world_turn(&w);
	assert_int_equal(w.arrived_count, 0);
	assert_int_equal(world_count(&w, CTR_ROUTE_DEADLINE), 10);
	assert_int_equal(world_count(&w, CTR_END_OFFLINE), 5);
	assert_int_equal(world_last_told(&w)->status, WIRE_INCOMPLETE);
	assert_int_equal(world_last_told(&w)->ended, 10);
	assert_int_equal(world_last_told(&w)->routes, 10);
	world_check_sums(&w);
	world_end(&w);
}

static void small_channel_is_not_held_up_by_a_large_one(void **state) WORKER_ONLY CONTROL_ONLY;
static void small_channel_is_not_held_up_by_a_large_one(void **state)
{
	world_defaults(&w);
	w.limits.quantum_members = 64;
	w.limits.turn_members = 256;
	start();
	world_online(&w, "u", 8000, 4);
	world_tag(&w, world_channel(&w, "large"), "u", 8000);
	world_tag(&w, world_channel(&w, "small"), "u", 10);
	world_publish(&w, "large", 1, WIRE_ACK_NONE, 10);
	world_turn(&w);
	assert_true(world_arrivals(&w, 1) <= 320);
	for (uint64_t id = 2; id <= 4; id++) {
		world_publish(&w, "small", id, WIRE_ACK_NONE, 10);
		world_turn(&w);
		assert_int_equal(world_arrivals(&w, id), 10);
	}
	assert_true(world_arrivals(&w, 1) < 1500);
	assert_true(fanout_runnable(w.fanout));
	world_turns(&w, 40);
	assert_int_equal(world_arrivals(&w, 1), 8000);
	assert_false(fanout_runnable(w.fanout));
	world_check_sums(&w);
	world_end(&w);
}

static void runnable_channels_share_a_turn_by_quanta(void **state) WORKER_ONLY CONTROL_ONLY;
static void runnable_channels_share_a_turn_by_quanta(void **state)
{
	static const char *const name[] = {"a", "b", "c", "d"};

	world_defaults(&w);
	w.limits.quantum_members = 100;
	w.limits.turn_members = 800;
	start();
	world_online(&w, "u", 2000, 4);
	for (uint32_t i = 0; i < 4; i++) {
		world_tag(&w, world_channel(&w, name[i]), "u", 2000);
		world_publish(&w, name[i], i + 1, WIRE_ACK_NONE, 10);
	}
	world_turn(&w);
	for (uint64_t id = 1; id <= 4; id++)
		assert_int_equal(world_arrivals(&w, id), 200);
	world_turns(&w, 12);
	assert_int_equal(w.arrived_count, 8000);
	world_check_sums(&w);
	world_end(&w);
}

static void chunks_and_quanta_of_any_size_lose_and_repeat_nobody(
	void **state) WORKER_ONLY CONTROL_ONLY;
static void chunks_and_quanta_of_any_size_lose_and_repeat_nobody(void **state)
{
	static const uint32_t quantum[] = {1, 7, 31, 32, 33, 4096, 100000};

	for (unsigned k = 0; k < sizeof(quantum) / sizeof(quantum[0]); k++) {
		uint8_t *seen = calloc(1, 9000);

		world_defaults(&w);
		w.limits.quantum_members = quantum[k];
		w.limits.turn_members = 3000;
		start();
		world_online(&w, "u", 9000, 3);
		world_tag(&w, world_channel(&w, "room"), "u", 9000);
		world_publish(&w, "room", 1, WIRE_ACK_NONE, 10);
		world_turns(&w, 5);
		assert_int_equal(w.arrived_count, 9000);
		for (uint32_t i = 0; i < 9000; i++)
			assert_int_equal(seen[w.arrived[i].slot]++, 0);
		world_check_sums(&w);
		world_end(&w);
		free(seen);
	}
}

// Whatever the mix, nobody is lost and the counters add up.
static void random_members_add_up(void **state) WORKER_ONLY CONTROL_ONLY;
static void random_members_add_up(void **state)
{
	srand(5);
	for (uint32_t round = 0; round < 30; round++) {
		uint32_t slot = 0, sessions = 0, message = 0, acked = 0;

		world_defaults(&w);
		w.limits.quantum_members = 1 + (uint32_t)rand() % 50;
		w.limits.turn_members = 1 + (uint32_t)rand() % 500;
		w.limits.mtu = (uint16_t)(576 + rand() % 2000);
		start();
		for (uint32_t i = 0; i < 300; i++) {
			char name[16];
			const int n = rand() % 4 == 0 ? rand() % 9 : rand() % 2;

			snprintf(name, sizeof(name), "u%u", i);
			for (int k = 0; k < n; k++, sessions++)
				world_session(&w, 1 + (uint32_t)rand() % 4, slot++, 1, name);
		}
		world_tag(&w, world_channel(&w, "room"), "u", 300);
		for (; message < 20; message++) {
			struct fanout_publish p = world_message(&w, "room", message + 1,
				(enum wire_ack_class)(rand() % 2), (uint32_t)rand() % 400);

			p.m.sender_gateway = 1 + (uint64_t)rand() % 4;
			p.m.sender_boot = p.m.sender_gateway * 10;
			p.m.sender_slot = (uint32_t)rand() % (slot + 1);
			p.m.sender_gen = 1;
			world_admit(&w, &p);
			if (rand() % 3 == 0)
				world_turn(&w);
		}
		for (uint32_t i = 0; fanout_runnable(w.fanout) && i < 10000; i++) {
			world_turn(&w);
			world_ack(&w, acked);
			acked = w.arrived_count;
		}
		assert_int_equal(world_count(&w, CTR_MEMBERS), 300 * message);
		assert_int_equal(world_count(&w, CTR_ROUTES) + world_count(&w, CTR_ROUTE_ECHO),
			(uint64_t)sessions * message);
		assert_int_equal(w.arrived_count, world_count(&w, CTR_ROUTES));
		assert_true(w.largest <= w.limits.mtu);
		world_check_sums(&w);
		world_end(&w);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_member_ends_in_exactly_one_way),
		cmocka_unit_test(echo_leaves_the_senders_other_sessions_alone),
		cmocka_unit_test(echo_needs_boot_slot_and_generation_to_match),
		cmocka_unit_test(members_of_a_dead_gateway_are_offline),
		cmocka_unit_test(a_message_past_its_deadline_ends_its_routes_unsent),
		cmocka_unit_test(small_channel_is_not_held_up_by_a_large_one),
		cmocka_unit_test(runnable_channels_share_a_turn_by_quanta),
		cmocka_unit_test(chunks_and_quanta_of_any_size_lose_and_repeat_nobody),
		cmocka_unit_test(random_members_add_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
