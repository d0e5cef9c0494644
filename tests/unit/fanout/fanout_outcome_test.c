/* SPDX-License-Identifier: BSD-3-Clause */
#include "fanout_world.h"

#include <stdlib.h>

#include "base_fault.h"

static struct world w;

static void start(uint32_t online, uint32_t members) WORKER_ONLY CONTROL_ONLY;
static void start(uint32_t online, uint32_t members)
{
	world_start(&w);
	for (uint32_t g = 1; g <= 2; g++)
		world_gateway(&w, g, 1500);
	world_online(&w, "u", online, 2);
	world_tag(&w, world_channel(&w, "room"), "u", members);
}

// The client of arrival i acknowledged.
static void receipt(uint32_t i) WORKER_ONLY;
static void receipt(uint32_t i)
{
	const struct arrived *a = &w.arrived[i];
	const uint8_t bits = (uint8_t)(1u << (a->position % 8));
	const struct wire_receipt m = {
		.push_id = a->push_id,
		.push_gen = a->push_gen,
		.first = (uint16_t)(a->position / 8 * 8),
		.bits = {.p = &bits, .len = 1},
	};

	delivery_on_receipt(w.delivery, a->gateway, &m, w.now_ns);
}

static void none_and_gateway_are_told_when_the_owner_has_accepted(
	void **state) WORKER_ONLY CONTROL_ONLY;
static void none_and_gateway_are_told_when_the_owner_has_accepted(void **state)
{
	world_defaults(&w);
	start(4, 6);
	world_publish(&w, "room", 1, WIRE_ACK_NONE, 10);
	world_publish(&w, "room", 2, WIRE_ACK_GATEWAY, 10);
	assert_int_equal(w.told_count, 2);
	for (uint32_t i = 0; i < 2; i++) {
		assert_int_equal(w.told[i].ack.status, WIRE_OK);
		assert_int_equal(w.told[i].ack.members, 6);
		assert_int_equal(w.told[i].to.port, 4000);
		assert_int_equal(w.told[i].boot, 4);
	}
	world_turn(&w);
	world_ack(&w, 0);
	assert_int_equal(w.told_count, 2);
	world_check_sums(&w);
	world_end(&w);
}

static void client_is_told_ok_when_every_client_acknowledged(void **state) WORKER_ONLY CONTROL_ONLY;
static void client_is_told_ok_when_every_client_acknowledged(void **state)
{
	world_defaults(&w);
	start(6, 9);
	world_publish(&w, "room", 1, WIRE_ACK_CLIENT, 10);
	world_turn(&w);
	assert_int_equal(w.told_count, 0);
	world_ack(&w, 0);
	assert_int_equal(w.told_count, 0);
	for (uint32_t i = 0; i < 6; i++) {
		assert_int_equal(w.told_count, 0);
		receipt(i);
		receipt(i);
	}
	assert_int_equal(w.told_count, 1);
	assert_int_equal(world_last_told(&w)->status, WIRE_OK);
	assert_int_equal(world_last_told(&w)->members, 9);
	assert_int_equal(world_last_told(&w)->routes, 6);
	assert_int_equal(world_last_told(&w)->acked, 6);
	assert_int_equal(world_last_told(&w)->ended, 0);
	// A repeat gets the counts again.
	world_publish(&w, "room", 1, WIRE_ACK_CLIENT, 10);
	assert_int_equal(world_last_told(&w)->duplicate, 1);
	assert_int_equal(world_last_told(&w)->acked, 6);
	world_check_sums(&w);
	world_end(&w);
}

static void client_is_told_incomplete_with_counts(void **state) WORKER_ONLY CONTROL_ONLY;
static void client_is_told_incomplete_with_counts(void **state)
{
	world_defaults(&w);
	start(6, 6);
	world_publish(&w, "room", 1, WIRE_ACK_CLIENT, 10);
	world_turn(&w);
	world_ack(&w, 0);
	receipt(0);
	receipt(1);
	presence_gateway_down(w.presence, 1, w.now_ns);
	presence_gateway_down(w.presence, 2, w.now_ns);
	delivery_gateway_down(w.delivery, 1);
	delivery_gateway_down(w.delivery, 2);
	for (uint32_t i = 0; i < 10; i++)
		world_turn(&w);
	assert_int_equal(w.told_count, 1);
	assert_int_equal(world_last_told(&w)->status, WIRE_INCOMPLETE);
	assert_int_equal(world_last_told(&w)->acked, 2);
	assert_int_equal(world_last_told(&w)->ended, 4);
	assert_int_equal(world_count(&w, CTR_PUB_INCOMPLETE), 1);
	world_check_sums(&w);
	world_end(&w);
}

static void empty_channel_succeeds_with_nothing(void **state) WORKER_ONLY CONTROL_ONLY;
static void empty_channel_succeeds_with_nothing(void **state)
{
	world_defaults(&w);
	start(0, 0);
	for (uint32_t ack = 0; ack <= WIRE_ACK_CLIENT; ack++)
		world_publish(&w, "room", ack + 1, (enum wire_ack_class)ack, 10);
	world_turn(&w);
	assert_int_equal(w.told_count, 3);
	for (uint32_t i = 0; i < 3; i++) {
		assert_int_equal(w.told[i].ack.status, WIRE_OK);
		assert_int_equal(w.told[i].ack.members, 0);
		assert_int_equal(w.told[i].ack.routes, 0);
	}
	assert_int_equal(w.port.sent_count, 0);
	world_check_sums(&w);
	world_end(&w);
}

static void channel_with_everybody_offline_succeeds(void **state) WORKER_ONLY CONTROL_ONLY;
static void channel_with_everybody_offline_succeeds(void **state)
{
	world_defaults(&w);
	start(0, 50);
	world_publish(&w, "room", 1, WIRE_ACK_CLIENT, 5000);
	world_turn(&w);
	assert_int_equal(world_last_told(&w)->status, WIRE_OK);
	assert_int_equal(world_last_told(&w)->members, 50);
	assert_int_equal(world_count(&w, CTR_END_OFFLINE), 50);
	world_end(&w);
}

// A long story of publishes, tags that come and go, lost answers and time: each admitted message has one
// outcome, each slot comes back, all counters add up.
static void every_admitted_message_has_one_outcome(void **state) WORKER_ONLY CONTROL_ONLY;
static void every_admitted_message_has_one_outcome(void **state)
{
	srand(11);
	for (uint32_t round = 0; round < 6; round++) {
		static const char *const name[] = {"room", "b", "c", "none"};
		static uint8_t outcomes[1000];
		struct channel *channel[3];
		struct fanout_stats stats;
		uint32_t seen = 0;

		memset(outcomes, 0, sizeof(outcomes));
		world_defaults(&w);
		w.limits.quantum_members = 13;
		start(60, 80);
		channel[0] = world_channel(&w, "room");
		channel[1] = world_channel(&w, "b");
		channel[2] = world_channel(&w, "c");
		for (uint32_t id = 1; id < 1000; id++) {
			const uint32_t c = (uint32_t)rand() % 4;
			struct fanout_publish p =
				world_message(&w, name[c], id, (enum wire_ack_class)(rand() % 3),
					rand() % 10 == 0 ? 3000 : (uint32_t)rand() % 200);

			p.m.deadline_ms = rand() % 5 == 0 ? 1 : 500;
			world_admit(&w, &p);
			if (rand() % 8 == 0 && c < 3)
				world_smv(channel[c], atomic_load(&channel[c]->smv) + 1);
			if (rand() % 4 == 0 && c < 3)
				world_tag(&w, channel[c], "u", (uint32_t)rand() % 80);
			if (rand() % 3 == 0)
				world_turn(&w);
			if (rand() % 2 == 0) {
				world_ack(&w, seen);
				for (; seen < w.arrived_count; seen++)
					if (rand() % 8 != 0)
						receipt(seen);
			}
			w.now_ns += (uint64_t)(rand() % 3) * MS;
			tag_space_step(w.tags, w.now_ns);
		}
		for (uint32_t i = 0; i < 20000; i++) {
			w.now_ns += MS;
			world_turn(&w);
		}
		for (uint32_t i = 0; i < w.told_count; i++)
			assert_int_equal(outcomes[w.told[i].ack.message_id]++, 0);
		assert_int_equal(w.told_count, 999);
		fanout_stats(w.fanout, &stats);
		assert_int_equal(stats.messages, 0);
		assert_int_equal(stats.parked, 0);
		assert_int_equal(stats.runnable, 0);
		world_check_sums(&w);
		world_end(&w);
	}
}

#ifdef TAGCAST_TEST_HOOKS
static void planted_drop_is_a_loss_the_counters_do_not_show(void **state) WORKER_ONLY CONTROL_ONLY;
static void planted_drop_is_a_loss_the_counters_do_not_show(void **state)
{
	world_defaults(&w);
	start(10, 10);
	assert_int_equal(fault_arm("drop1", 1), 0);
	world_publish(&w, "room", 1, WIRE_ACK_CLIENT, 10);
	world_turn(&w);
	assert_int_equal(w.arrived_count, 9);
	assert_int_equal(world_count(&w, CTR_END_ROUTED), 10);
	assert_int_equal(world_count(&w, CTR_ROUTE_ACKED), 1);
	world_end(&w);
}

static void planted_repeat_reaches_one_session_twice(void **state) WORKER_ONLY CONTROL_ONLY;
static void planted_repeat_reaches_one_session_twice(void **state)
{
	world_defaults(&w);
	start(10, 10);
	assert_int_equal(fault_arm("dup1", 1), 0);
	world_publish(&w, "room", 1, WIRE_ACK_GATEWAY, 10);
	world_turn(&w);
	assert_int_equal(w.arrived_count, 11);
	assert_int_equal(world_arrivals(&w, 1), 10);
	world_ack(&w, 0);
	world_check_sums(&w);
	world_end(&w);
}

static void planted_stale_uses_an_old_tag(void **state) WORKER_ONLY CONTROL_ONLY;
static void planted_stale_uses_an_old_tag(void **state)
{
	world_defaults(&w);
	start(10, 10);
	world_smv(world_channel(&w, "room"), 7);
	assert_int_equal(fault_arm("stale", 1), 0);
	world_publish(&w, "room", 1, WIRE_ACK_NONE, 10);
	world_turn(&w);
	assert_int_equal(w.arrived_count, 10);
	world_end(&w);
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(none_and_gateway_are_told_when_the_owner_has_accepted),
		cmocka_unit_test(client_is_told_ok_when_every_client_acknowledged),
		cmocka_unit_test(client_is_told_incomplete_with_counts),
		cmocka_unit_test(empty_channel_succeeds_with_nothing),
		cmocka_unit_test(channel_with_everybody_offline_succeeds),
		cmocka_unit_test(every_admitted_message_has_one_outcome),
#ifdef TAGCAST_TEST_HOOKS
		cmocka_unit_test(planted_drop_is_a_loss_the_counters_do_not_show),
		cmocka_unit_test(planted_repeat_reaches_one_session_twice),
		cmocka_unit_test(planted_stale_uses_an_old_tag),
#endif
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
