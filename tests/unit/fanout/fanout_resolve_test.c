/* SPDX-License-Identifier: BSD-3-Clause */
#include "fanout_world.h"

static struct world w;

static struct channel *room(void) WORKER_ONLY CONTROL_ONLY;
static struct channel *room(void)
{
	world_start(&w);
	world_gateway(&w, 1, 1500);
	world_online(&w, "u", 8, 1);
	return world_channel(&w, "room");
}

static void message_waits_for_a_tag_and_asks_once(void **state) WORKER_ONLY CONTROL_ONLY;
static void message_waits_for_a_tag_and_asks_once(void **state)
{
	struct channel *channel;

	world_defaults(&w);
	channel = room();
	for (uint64_t id = 1; id <= 3; id++)
		world_publish(&w, "room", id, WIRE_ACK_NONE, 10);
	world_turns(&w, 20);
	assert_int_equal(w.wants, 1);
	assert_int_equal(w.told_count, 0);
	assert_int_equal(w.arrived_count, 0);
	assert_int_equal(world_count(&w, CTR_TAG_MISSING), 1);
	assert_true(fanout_next_ns(w.fanout) <= w.now_ns + MS);
	world_tag(&w, channel, "u", 8);
	world_turn(&w);
	assert_int_equal(w.told_count, 3);
	assert_int_equal(w.arrived_count, 24);
	assert_int_equal(fanout_next_ns(w.fanout), UINT64_MAX);
	world_check_sums(&w);
	world_end(&w);
}

static void order_of_a_channel_is_kept_behind_a_parked_message(
	void **state) WORKER_ONLY CONTROL_ONLY;
static void order_of_a_channel_is_kept_behind_a_parked_message(void **state)
{
	struct channel *channel;

	world_defaults(&w);
	channel = room();
	world_publish(&w, "room", 1, WIRE_ACK_NONE, 10);
	// The tag is there now; message 2 must not overtake message 1.
	world_tag(&w, channel, "u", 8);
	world_publish(&w, "room", 2, WIRE_ACK_NONE, 10);
	assert_int_equal(w.told_count, 0);
	world_turns(&w, 2);
	assert_int_equal(w.told[0].ack.message_id, 1);
	assert_int_equal(w.told[0].ack.seq, 1);
	assert_int_equal(w.told[1].ack.message_id, 2);
	assert_int_equal(w.told[1].ack.seq, 2);
	for (uint32_t i = 0; i < 16; i++)
		assert_int_equal(w.arrived[i].message_id, 1 + i / 8);
	world_end(&w);
}

static void refused_request_is_asked_again_with_growing_pauses(
	void **state) WORKER_ONLY CONTROL_ONLY;
static void refused_request_is_asked_again_with_growing_pauses(void **state)
{
	uint32_t wants[3] = {0};

	world_defaults(&w);
	room();
	w.want_refused = true;
	world_publish(&w, "room", 1, WIRE_ACK_NONE, 10);
	for (uint32_t part = 0; part < 3; part++) {
		const uint32_t before = w.wants;

		for (uint32_t i = 0; i < 1000; i++) {
			w.now_ns += MS / 50;
			world_turn(&w);
		}
		wants[part] = w.wants - before;
	}
	assert_true(wants[0] > wants[2]);
	assert_true(wants[2] >= 1);
	assert_true(w.wants < 40);
	w.want_refused = false;
	w.now_ns += 30 * MS;
	world_turn(&w);
	wants[0] = w.wants;
	world_turns(&w, 10);
	assert_int_equal(w.wants, wants[0]);
	world_end(&w);
}

static void tag_older_than_the_channel_is_not_used(void **state) WORKER_ONLY CONTROL_ONLY;
static void tag_older_than_the_channel_is_not_used(void **state)
{
	struct channel *channel;

	world_defaults(&w);
	channel = room();
	world_tag(&w, channel, "u", 8);
	world_smv(channel, 2);
	world_publish(&w, "room", 1, WIRE_ACK_NONE, 10);
	world_turns(&w, 3);
	assert_int_equal(w.arrived_count, 0);
	assert_int_equal(w.wants, 1);
	assert_int_equal(world_count(&w, CTR_TAG_STALE), 1);
	world_smv(channel, 3);  // it moved on once more: a new need
	world_turns(&w, 3);
	assert_int_equal(w.wants, 2);
	world_tag(&w, channel, "u", 2);
	world_turn(&w);
	assert_int_equal(w.arrived_count, 2);
	world_end(&w);
}

static void tag_newer_than_the_channel_is_not_used_either(void **state) WORKER_ONLY CONTROL_ONLY;
static void tag_newer_than_the_channel_is_not_used_either(void **state)
{
	struct channel *channel;

	world_defaults(&w);
	channel = room();
	world_smv(channel, 5);
	world_tag(&w, channel, "u", 8);
	world_smv(channel, 4);
	world_publish(&w, "room", 1, WIRE_ACK_NONE, 10);
	world_turn(&w);
	assert_int_equal(w.arrived_count, 0);
	world_end(&w);
}

static void uncertain_channel_parks_without_asking_for_a_tag(void **state) WORKER_ONLY CONTROL_ONLY;
static void uncertain_channel_parks_without_asking_for_a_tag(void **state)
{
	struct channel *channel;

	world_defaults(&w);
	channel = room();
	world_tag(&w, channel, "u", 8);
	atomic_store(&channel->flags, CHANNEL_F_UNCERTAIN);
	world_publish(&w, "room", 1, WIRE_ACK_NONE, 10);
	world_turns(&w, 3);
	assert_int_equal(w.arrived_count, 0);
	assert_int_equal(w.wants, 0);
	atomic_store(&channel->flags, 0);
	world_turn(&w);
	assert_int_equal(w.arrived_count, 8);
	world_end(&w);
}

static void parked_message_expires_and_may_be_tried_again(void **state) WORKER_ONLY CONTROL_ONLY;
static void parked_message_expires_and_may_be_tried_again(void **state)
{
	struct fanout_publish p;
	struct channel *channel;

	world_defaults(&w);
	channel = room();
	world_publish(&w, "room", 1, WIRE_ACK_NONE, 10);
	p = world_message(&w, "room", 2, WIRE_ACK_NONE, 10);
	p.m.deadline_ms = 10;
	world_admit(&w, &p);
	world_publish(&w, "room", 3, WIRE_ACK_NONE, 10);
	w.now_ns += 10 * MS;
	world_turn(&w);
	assert_int_equal(w.told_count, 1);
	assert_int_equal(world_last_told(&w)->status, WIRE_EXPIRED);
	assert_int_equal(world_last_told(&w)->message_id, 2);
	assert_int_equal(world_last_told(&w)->seq, 0);
	world_tag(&w, channel, "u", 8);
	world_turn(&w);
	world_publish(&w, "room", 2, WIRE_ACK_NONE, 10);
	world_turn(&w);
	assert_int_equal(world_last_told(&w)->message_id, 2);
	assert_int_equal(world_last_told(&w)->status, WIRE_OK);
	assert_int_equal(world_last_told(&w)->seq, 3);
	assert_int_equal(world_last_told(&w)->duplicate, 0);
	assert_int_equal(world_arrivals(&w, 2), 8);
	world_check_sums(&w);
	world_end(&w);
}

static void channel_taken_away_ends_what_waits_and_finishes_what_was_resolved(
	void **state) WORKER_ONLY CONTROL_ONLY;
static void channel_taken_away_ends_what_waits_and_finishes_what_was_resolved(void **state)
{
	struct channel *channel;

	world_defaults(&w);
	channel = room();
	world_tag(&w, channel, "u", 8);
	world_publish(&w, "room", 1, WIRE_ACK_NONE, 10);
	world_smv(channel, 2);
	world_publish(&w, "room", 2, WIRE_ACK_NONE, 10);
	fanout_channel_gone(w.fanout, channel->index, atomic_load(&channel->use) + 1, w.now_ns);
	assert_int_equal(w.told_count, 1);
	fanout_channel_gone(w.fanout, channel->index, atomic_load(&channel->use), w.now_ns);
	assert_int_equal(w.told_count, 2);
	assert_int_equal(world_last_told(&w)->status, WIRE_UNKNOWN_CHANNEL);
	assert_int_equal(world_last_told(&w)->message_id, 2);
	world_turns(&w, 2);
	assert_int_equal(w.arrived_count, 8);
	assert_int_equal(world_arrivals(&w, 1), 8);
	world_check_sums(&w);
	world_end(&w);
}

static void removed_channel_ends_what_waits_even_without_being_told(
	void **state) WORKER_ONLY CONTROL_ONLY;
static void removed_channel_ends_what_waits_even_without_being_told(void **state)
{
	struct channel *channel;

	world_defaults(&w);
	channel = room();
	world_publish(&w, "room", 1, WIRE_ACK_NONE, 10);
	atomic_store(&channel->flags, CHANNEL_F_REMOVED);
	world_turn(&w);
	assert_int_equal(world_last_told(&w)->status, WIRE_UNKNOWN_CHANNEL);
	world_end(&w);
}

static void record_given_to_another_channel_starts_anew(void **state) WORKER_ONLY CONTROL_ONLY;
static void record_given_to_another_channel_starts_anew(void **state)
{
	struct channel *channel;

	world_defaults(&w);
	channel = room();
	world_tag(&w, channel, "u", 8);
	world_publish(&w, "room", 1, WIRE_ACK_NONE, 10);
	world_publish(&w, "room", 2, WIRE_ACK_NONE, 10);
	assert_int_equal(world_last_told(&w)->seq, 2);
	world_smv(channel, 2);
	world_publish(&w, "room", 3, WIRE_ACK_NONE, 10);  // parked in the old use
	atomic_fetch_add(&channel->use, 1);
	world_tag(&w, channel, "u", 8);
	world_publish(&w, "room", 4, WIRE_ACK_NONE, 10);
	assert_int_equal(w.told_count, 4);
	assert_int_equal(w.told[2].ack.status, WIRE_UNKNOWN_CHANNEL);
	assert_int_equal(w.told[2].ack.message_id, 3);
	assert_int_equal(w.told[3].ack.seq, 1);
	world_turns(&w, 3);
	world_check_sums(&w);
	world_end(&w);
}

static void fence_is_that_of_the_tag_in_force_when_resolved(void **state) WORKER_ONLY CONTROL_ONLY;
static void fence_is_that_of_the_tag_in_force_when_resolved(void **state)
{
	struct channel *channel;
	struct tag_fence fence;

	world_defaults(&w);
	channel = room();
	fence = world_tag(&w, channel, "u", 8)->fence;
	world_publish(&w, "room", 1, WIRE_ACK_CLIENT, 10);
	world_smv(channel, 2);
	world_tag(&w, channel, "u", 0);  // published after admission: message 1 keeps its own
	world_turn(&w);
	assert_int_equal(w.arrived_count, 8);
	w.now_ns += 20000 * MS;
	for (uint32_t i = 0; i < 200 && w.told_count == 0; i++)
		world_turn(&w);
	assert_int_equal(world_last_told(&w)->tag_version, fence.version);
	assert_memory_equal(world_last_told(&w)->tag_key, fence.key, sizeof(fence.key));
	world_end(&w);
}

static void tag_is_pinned_while_it_is_expanded_only(void **state) WORKER_ONLY CONTROL_ONLY;
static void tag_is_pinned_while_it_is_expanded_only(void **state)
{
	struct tag *tag;

	world_defaults(&w);
	w.limits.turn_members = 4;
	w.limits.quantum_members = 4;
	tag = world_tag(&w, room(), "u", 8);
	world_publish(&w, "room", 1, WIRE_ACK_GATEWAY, 10);
	assert_int_equal(atomic_load(&tag->pins), 1);
	assert_int_equal(atomic_load(&tag->used_ns), w.now_ns);
	world_turn(&w);
	assert_int_equal(atomic_load(&tag->pins), 1);
	world_turns(&w, 2);
	assert_int_equal(atomic_load(&tag->pins), 0);
	world_end(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(message_waits_for_a_tag_and_asks_once),
		cmocka_unit_test(order_of_a_channel_is_kept_behind_a_parked_message),
		cmocka_unit_test(refused_request_is_asked_again_with_growing_pauses),
		cmocka_unit_test(tag_older_than_the_channel_is_not_used),
		cmocka_unit_test(tag_newer_than_the_channel_is_not_used_either),
		cmocka_unit_test(uncertain_channel_parks_without_asking_for_a_tag),
		cmocka_unit_test(parked_message_expires_and_may_be_tried_again),
		cmocka_unit_test(channel_taken_away_ends_what_waits_and_finishes_what_was_resolved),
		cmocka_unit_test(removed_channel_ends_what_waits_even_without_being_told),
		cmocka_unit_test(record_given_to_another_channel_starts_anew),
		cmocka_unit_test(fence_is_that_of_the_tag_in_force_when_resolved),
		cmocka_unit_test(tag_is_pinned_while_it_is_expanded_only),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
