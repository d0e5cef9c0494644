/* SPDX-License-Identifier: BSD-3-Clause */
#include "client_test_common.h"

#include "fake_node.h"

static void a_client_registers_by_echoing_the_cookie(void **state)
{
	struct world *w = world_create(1, true, true);

	(void)state;
	assert_true(world_until(w, world_up, 1000));
	assert_int_equal(w->hellos, 2);
	assert_int_equal(w->states_up, 1);
	assert_int_equal(w->client_boot, 0x7700);
	world_destroy(w);
}

static void lost_hellos_are_said_again(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 50; seed++) {
		struct world *w = world_create(seed, true, true);

		w->loss_percent = 40;
		w->dup_percent = 20;
		w->jitter_ns = 30 * WORLD_MS;
		assert_true(world_until(w, world_up, 60000));
		world_destroy(w);
	}
}

static bool drop_hello_ack(struct world *w, const struct wire_header *h, bool to_client)
{
	(void)w;
	return !(to_client && h->type == WIRE_HELLO_ACK);
}

static void unanswered_hellos_back_off(void **state)
{
	struct world *w = world_create(1, true, true);

	(void)state;
	w->filter = drop_hello_ack;
	world_run(w, 60000);
	assert_false(world_up(w));
	assert_in_range(w->hellos, 20, 60);
	w->filter = NULL;
	assert_true(world_until(w, world_up, 10000));
	world_destroy(w);
}

static void a_cookie_that_never_satisfies_is_no_storm(void **state)
{
	struct world *w = world_create(1, true, true);

	(void)state;
	w->hello_status = WIRE_NEED_HELLO;
	world_run(w, 10000);
	assert_false(world_up(w));
	assert_in_range(w->hellos, 2, 40);
	world_destroy(w);
}

static void a_node_without_a_common_version_is_asked_rarely(void **state)
{
	struct world *w = world_create(1, true, true);

	(void)state;
	w->hello_status = WIRE_UNSUPPORTED;
	world_run(w, 30000);
	assert_false(world_up(w));
	assert_in_range(w->hellos, 2, 16);
	w->hello_status = WIRE_OK;
	assert_true(world_until(w, world_up, 10000));
	world_destroy(w);
}

static void a_publisher_registers_too_and_gets_no_state_call(void **state)
{
	struct world *w = world_create(1, false, true);

	(void)state;
	assert_true(world_until(w, world_up, 1000));
	assert_int_equal(w->states_up, 0);
	assert_int_equal(w->client_boot, 0);
	world_destroy(w);
}

static void heartbeats_come_as_often_as_the_node_asks(void **state)
{
	struct world *w = world_create(1, true, true);

	(void)state;
	assert_true(world_until(w, world_up, 1000));
	w->heartbeats = 0;
	world_run(w, 20000);
	assert_in_range(w->heartbeats, 19, 22);
	world_destroy(w);
}

static void three_silent_heartbeats_lose_the_state(void **state)
{
	struct world *w = world_create(1, true, true);

	(void)state;
	assert_true(world_until(w, world_up, 1000));
	w->cut = true;
	world_run(w, 2500);
	assert_int_equal(w->states_down, 0);
	world_run(w, 1500);
	assert_int_equal(w->states_down, 1);
	w->cut = false;
	assert_true(world_until(w, world_announced, 5000));
	assert_int_equal(w->states_up, 2);
	// The registration still held, so it goes on under the same boot id.
	assert_int_equal(w->client_boot, 0x7700);
	world_destroy(w);
}

static void another_node_process_gets_a_new_boot_id_and_all_sessions(void **state)
{
	struct world *w = world_create(1, true, true);
	uint32_t a, b;

	(void)state;
	a = world_open(w, "alice");
	b = world_open(w, "bob");
	assert_true(world_until(w, world_announced, 1000));
	world_node_restart(w);
	assert_int_equal(w->sessions, 0);
	world_run(w, 8000);
	assert_true(world_announced(w));
	assert_int_equal(w->sessions, 2);
	assert_string_equal(world_session(w, a)->uid, "alice");
	assert_string_equal(world_session(w, b)->uid, "bob");
	assert_int_equal(w->client_boot, 0x7701);
	assert_int_equal(w->states_up, 2);
	world_destroy(w);
}

static void a_registration_the_node_forgot_is_made_anew(void **state)
{
	for (int keys = 0; keys < 2; keys++) {
		struct world *w = world_create(1, true, keys != 0);
		uint32_t a;

		(void)state;
		a = world_open(w, "alice");
		assert_true(world_until(w, world_announced, 1000));
		world_forget(w);
		world_run(w, 3000);
		assert_true(world_announced(w));
		assert_non_null(world_session(w, a));
		assert_int_equal(w->client_boot, 0x7701);
		world_destroy(w);
	}
}

static void a_node_that_registered_again_in_silence_is_found_out(void **state)
{
	struct world *w = world_create(1, true, true);
	uint32_t a;

	(void)state;
	a = world_open(w, "alice");
	assert_true(world_until(w, world_announced, 1000));
	// The node has a registration under this boot id, but it is a fresh one.
	world_forget(w);
	w->client_boot = 0x7700;
	w->next_expected = 1;
	world_run(w, 3000);
	assert_true(world_announced(w));
	assert_non_null(world_session(w, a));
	assert_int_equal(w->client_boot, 0x7701);
	world_destroy(w);
}

static void a_changed_topology_announces_everything_again(void **state)
{
	struct world *w = world_create(1, true, true);

	(void)state;
	world_open(w, "alice");
	world_open(w, "bob");
	assert_true(world_until(w, world_announced, 1000));
	assert_int_equal(w->announce_entries, 2);
	w->topology_version++;
	world_run(w, 3000);
	assert_true(world_announced(w));
	assert_int_equal(w->announce_entries, 4);
	assert_int_equal(w->sessions, 2);
	assert_int_equal(w->client_boot, 0x7700);
	assert_int_equal(w->states_down, 0);
	world_destroy(w);
}

static void garbage_is_counted_and_changes_nothing(void **state)
{
	struct world *w = world_create(1, true, true);
	struct tagcast_stats stats;
	uint32_t x = 1;

	(void)state;
	assert_true(world_until(w, world_up, 1000));
	client_core_stats(w->core, &stats);
	const uint64_t bad = stats.rx_bad;

	for (uint32_t i = 0; i < 2000; i++) {
		uint8_t bytes[200];
		const uint32_t len = i % sizeof(bytes);

		for (uint32_t k = 0; k < len; k++) {
			x = x * 1664525 + 1013904223;
			bytes[k] = (uint8_t)(x >> 24);
		}
		if (i % 2 == 0 && len >= 4) {
			bytes[0] = 'T';
			bytes[1] = 'C';
			bytes[2] = WIRE_VERSION;
			bytes[3] = (uint8_t)(i % 20);
		}
		world_inject(w, i % 8, bytes, len);
	}
	client_core_stats(w->core, &stats);
	assert_int_equal(stats.rx_bad - bad, 2000);
	assert_true(world_up(w));
	world_destroy(w);
}

// A heartbeat answer of the node, changed by `spoil` before it is handed over.
static uint64_t bad_after(void (*spoil)(uint8_t *p, struct wire_keys *keys, struct wire_lane *lane))
{
	struct world *w = world_create(1, true, true);
	struct wire_lane lane;
	struct wire_keys keys;
	struct tagcast_stats before, after;
	uint8_t p[256];
	struct wire_buf out = {.p = p + WIRE_HEADER_BYTES, .cap = 200, .ok = true};
	const struct wire_heartbeat_ack ack = {.stamp = 1};
	uint16_t bytes;

	assert_true(world_until(w, world_up, 1000));
	world_run(w, 100);
	keys = w->keys;
	lane = w->lane[0];
	lane.keys = &keys;
	assert_true(wire_put_heartbeat_ack(&out, &ack));
	spoil(NULL, &keys, &lane);
	bytes = wire_lane_seal(&lane, WIRE_HEARTBEAT_ACK, p, out.len, 0x7700);
	spoil(p, &keys, &lane);
	client_core_stats(w->core, &before);
	world_inject(w, 0, p, bytes);
	client_core_stats(w->core, &after);
	world_destroy(w);
	return after.rx_bad - before.rx_bad;
}

static void unspoilt(uint8_t *p, struct wire_keys *keys, struct wire_lane *lane)
{
	(void)p, (void)keys, (void)lane;
}

static void other_version(uint8_t *p, struct wire_keys *keys, struct wire_lane *lane)
{
	(void)keys, (void)lane;
	if (p != NULL)
		p[2]++;
}

static void flipped_bit(uint8_t *p, struct wire_keys *keys, struct wire_lane *lane)
{
	(void)keys, (void)lane;
	if (p != NULL)
		p[WIRE_HEADER_BYTES + 3] ^= 1;
}

static void other_key(uint8_t *p, struct wire_keys *keys, struct wire_lane *lane)
{
	(void)p, (void)lane;
	keys->key[0][0] ^= 1;
}

static void other_key_id(uint8_t *p, struct wire_keys *keys, struct wire_lane *lane)
{
	(void)p, (void)lane;
	keys->id[0]++;
}

static void no_auth(uint8_t *p, struct wire_keys *keys, struct wire_lane *lane)
{
	(void)p, (void)lane;
	keys->count = 0;
}

static void other_boot(uint8_t *p, struct wire_keys *keys, struct wire_lane *lane)
{
	(void)p, (void)keys;
	lane->boot++;
}

static void own_id(uint8_t *p, struct wire_keys *keys, struct wire_lane *lane)
{
	(void)p, (void)keys;
	lane->sender = 77;
}

static void old_sequence(uint8_t *p, struct wire_keys *keys, struct wire_lane *lane)
{
	(void)keys;
	if (p == NULL)
		lane->seq = 1;  // that of the answer to HELLO comes next
}

static void each_thing_wrong_with_a_datagram_is_refused(void **state)
{
	(void)state;
	assert_int_equal(bad_after(unspoilt), 0);
	assert_int_equal(bad_after(other_version), 1);
	assert_int_equal(bad_after(flipped_bit), 1);
	assert_int_equal(bad_after(other_key), 1);
	assert_int_equal(bad_after(other_key_id), 1);
	assert_int_equal(bad_after(no_auth), 1);
	assert_int_equal(bad_after(other_boot), 1);
	assert_int_equal(bad_after(own_id), 1);
	assert_int_equal(bad_after(old_sequence), 1);
}

static void a_client_without_key_does_not_register_at_a_node_with_one(void **state)
{
	struct world *w = world_create(1, true, false);

	(void)state;
	w->keys.count = 1;
	w->keys.id[0] = 7;
	world_run(w, 5000);
	assert_false(world_up(w));
	assert_true(w->rejected_auth > 0);
	world_destroy(w);
}

static void goodbye_ends_the_sessions(void **state)
{
	struct world *w = world_create(1, true, true);

	(void)state;
	world_open(w, "alice");
	assert_true(world_until(w, world_announced, 1000));
	client_core_bye(w->core);
	world_run(w, 10);
	assert_int_equal(w->byes, 1);
	assert_int_equal(w->sessions, 0);
	world_destroy(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_client_registers_by_echoing_the_cookie),
		cmocka_unit_test(lost_hellos_are_said_again),
		cmocka_unit_test(unanswered_hellos_back_off),
		cmocka_unit_test(a_cookie_that_never_satisfies_is_no_storm),
		cmocka_unit_test(a_node_without_a_common_version_is_asked_rarely),
		cmocka_unit_test(a_publisher_registers_too_and_gets_no_state_call),
		cmocka_unit_test(heartbeats_come_as_often_as_the_node_asks),
		cmocka_unit_test(three_silent_heartbeats_lose_the_state),
		cmocka_unit_test(another_node_process_gets_a_new_boot_id_and_all_sessions),
		cmocka_unit_test(a_registration_the_node_forgot_is_made_anew),
		cmocka_unit_test(a_node_that_registered_again_in_silence_is_found_out),
		cmocka_unit_test(a_changed_topology_announces_everything_again),
		cmocka_unit_test(garbage_is_counted_and_changes_nothing),
		cmocka_unit_test(each_thing_wrong_with_a_datagram_is_refused),
		cmocka_unit_test(a_client_without_key_does_not_register_at_a_node_with_one),
		cmocka_unit_test(goodbye_ends_the_sessions),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
