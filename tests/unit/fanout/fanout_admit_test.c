/* SPDX-License-Identifier: BSD-3-Clause */
#include "fanout_world.h"

static struct world w;

static void expect(uint32_t told, enum wire_status status, enum counter id)
{
	assert_int_equal(w.told_count, told);
	assert_int_equal(world_last_told(&w)->status, status);
	assert_int_equal(world_count(&w, id), 1);
}

static void publish_reaches_every_online_member_once(void **state) WORKER_ONLY CONTROL_ONLY;
static void publish_reaches_every_online_member_once(void **state)
{
	world_defaults(&w);
	world_start(&w);
	for (uint32_t g = 1; g <= 3; g++)
		world_gateway(&w, g, 1500);
	world_online(&w, "u", 600, 3);
	world_tag(&w, world_channel(&w, "room"), "u", 1000);
	world_publish(&w, "room", 5, WIRE_ACK_NONE, 100);
	world_turns(&w, 8);
	assert_int_equal(w.arrived_count, 600);
	for (uint32_t i = 0; i < 600; i++) {
		const struct arrived *a = &w.arrived[i];

		assert_int_equal(a->message_id, 5);
		assert_int_equal(a->stamp, 2005);
		assert_int_equal(a->seq, 1);
		assert_int_equal(a->gen, 1);
		assert_int_equal(a->gateway, 1 + a->slot % 3);
		assert_int_equal(a->payload_len, 100);
		assert_int_equal(a->payload_first, 5);
		for (uint32_t k = 0; k < i; k++)
			assert_true(w.arrived[k].slot != a->slot);
	}
	expect(1, WIRE_OK, CTR_PUB_OK);
	assert_int_equal(world_last_told(&w)->members, 1000);
	assert_int_equal(world_last_told(&w)->request_id, 1005);
	assert_int_equal(world_last_told(&w)->seq, 1);
	assert_int_equal(world_count(&w, CTR_END_OFFLINE), 400);
	assert_int_equal(world_count(&w, CTR_TAG_HIT), 1);
	world_check_sums(&w);
	world_end(&w);
}

static void payload_over_the_limit_is_refused_before_the_channel(
	void **state) WORKER_ONLY CONTROL_ONLY;
static void payload_over_the_limit_is_refused_before_the_channel(void **state)
{
	world_defaults(&w);
	w.limits.payload_bytes = 200;
	world_start(&w);
	world_publish(&w, "nowhere", 1, WIRE_ACK_NONE, 201);
	expect(1, WIRE_TOO_LARGE, CTR_PUB_TOO_LARGE);
	world_tag(&w, world_channel(&w, "room"), "u", 1);
	world_publish(&w, "room", 1, WIRE_ACK_NONE, 200);
	expect(2, WIRE_OK, CTR_PUB_OK);
	world_turn(&w);
	world_end(&w);
}

static void unknown_and_removed_channels_are_refused_and_not_remembered(
	void **state) WORKER_ONLY CONTROL_ONLY;
static void unknown_and_removed_channels_are_refused_and_not_remembered(void **state)
{
	struct channel *channel;

	world_defaults(&w);
	world_start(&w);
	world_publish(&w, "room", 1, WIRE_ACK_NONE, 10);
	expect(1, WIRE_UNKNOWN_CHANNEL, CTR_PUB_UNKNOWN_CHANNEL);
	channel = world_channel(&w, "room");
	world_tag(&w, channel, "u", 1);
	atomic_store(&channel->flags, CHANNEL_F_REMOVED);
	world_publish(&w, "room", 1, WIRE_ACK_NONE, 10);
	assert_int_equal(world_count(&w, CTR_PUB_UNKNOWN_CHANNEL), 2);
	atomic_store(&channel->flags, 0);
	world_publish(&w, "room", 1, WIRE_ACK_NONE, 10);
	expect(3, WIRE_OK, CTR_PUB_OK);
	assert_int_equal(world_last_told(&w)->duplicate, 0);
	world_turn(&w);
	world_check_sums(&w);
	world_end(&w);
}

static void channel_that_is_not_there_yet_is_to_be_tried_again(
	void **state) WORKER_ONLY CONTROL_ONLY;
static void channel_that_is_not_there_yet_is_to_be_tried_again(void **state)
{
	world_defaults(&w);
	world_start(&w);
	atomic_store(&w.channels->complete, false);
	world_publish(&w, "room", 1, WIRE_ACK_NONE, 10);
	expect(1, WIRE_RETRYABLE, CTR_PUB_RETRYABLE);
	world_tag(&w, world_channel(&w, "room"), "u", 1);
	world_publish(&w, "room", 1, WIRE_ACK_NONE, 10);
	expect(2, WIRE_OK, CTR_PUB_OK);
	assert_int_equal(world_last_told(&w)->duplicate, 0);
	world_turn(&w);
	world_check_sums(&w);
	world_end(&w);
}

static void repeat_gets_the_recorded_outcome_and_is_not_delivered(
	void **state) WORKER_ONLY CONTROL_ONLY;
static void repeat_gets_the_recorded_outcome_and_is_not_delivered(void **state)
{
	struct wire_publish_ack first;
	struct channel *channel;

	world_defaults(&w);
	world_start(&w);
	world_gateway(&w, 1, 1500);
	world_online(&w, "u", 4, 1);
	channel = world_channel(&w, "room");
	world_tag(&w, channel, "u", 4);
	world_publish(&w, "room", 9, WIRE_ACK_GATEWAY, 10);
	first = *world_last_told(&w);
	world_turn(&w);
	// Another fence by now: the repeat names the first one.
	world_smv(channel, 2);
	world_tag(&w, channel, "u", 3);
	world_publish(&w, "room", 9, WIRE_ACK_GATEWAY, 10);
	world_turn(&w);
	assert_int_equal(w.told_count, 2);
	assert_int_equal(world_last_told(&w)->duplicate, 1);
	assert_int_equal(world_last_told(&w)->status, WIRE_OK);
	assert_int_equal(world_last_told(&w)->seq, first.seq);
	assert_int_equal(world_last_told(&w)->members, 4);
	assert_memory_equal(world_last_told(&w)->tag_key, first.tag_key, 16);
	assert_int_equal(world_arrivals(&w, 9), 4);
	assert_int_equal(world_count(&w, CTR_PUB_DUPLICATE), 1);
	world_ack(&w, 0);
	world_check_sums(&w);
	world_end(&w);
}

static void same_id_in_another_channel_is_another_message(void **state) WORKER_ONLY CONTROL_ONLY;
static void same_id_in_another_channel_is_another_message(void **state)
{
	world_defaults(&w);
	world_start(&w);
	world_gateway(&w, 1, 1500);
	world_online(&w, "u", 1, 1);
	world_tag(&w, world_channel(&w, "a"), "u", 1);
	world_tag(&w, world_channel(&w, "b"), "u", 1);
	world_publish(&w, "a", 9, WIRE_ACK_NONE, 10);
	world_publish(&w, "b", 9, WIRE_ACK_NONE, 10);
	world_turn(&w);
	assert_int_equal(world_arrivals(&w, 9), 2);
	assert_int_equal(world_count(&w, CTR_PUB_DUPLICATE), 0);
	world_end(&w);
}

static void repeat_of_a_pending_publish_is_dropped_and_one_outcome_follows(
	void **state) WORKER_ONLY CONTROL_ONLY;
static void repeat_of_a_pending_publish_is_dropped_and_one_outcome_follows(void **state)
{
	struct channel *channel;

	world_defaults(&w);
	world_start(&w);
	channel = world_channel(&w, "room");
	world_publish(&w, "room", 9, WIRE_ACK_NONE, 10);
	world_publish(&w, "room", 9, WIRE_ACK_NONE, 10);
	assert_int_equal(w.told_count, 0);
	assert_int_equal(world_count(&w, CTR_PUB_PENDING), 1);
	world_tag(&w, channel, "u", 2);
	world_turn(&w);
	expect(1, WIRE_OK, CTR_PUB_OK);
	world_check_sums(&w);
	world_end(&w);
}

static void full_message_table_answers_busy_and_forgets_the_id(
	void **state) WORKER_ONLY CONTROL_ONLY;
static void full_message_table_answers_busy_and_forgets_the_id(void **state)
{
	world_defaults(&w);
	w.limits.messages = 3;
	world_start(&w);
	world_gateway(&w, 1, 1500);
	world_online(&w, "u", 1, 1);
	world_tag(&w, world_channel(&w, "room"), "u", 1);
	for (uint64_t id = 1; id <= 3; id++)
		world_publish(&w, "room", id, WIRE_ACK_GATEWAY, 10);
	world_publish(&w, "room", 4, WIRE_ACK_GATEWAY, 10);
	expect(4, WIRE_BUSY, CTR_PUB_BUSY);
	assert_true(world_last_told(&w)->retry_after_ms != 0);
	// Slots come back when the gateway has answered.
	world_turn(&w);
	world_publish(&w, "room", 4, WIRE_ACK_GATEWAY, 10);
	assert_int_equal(world_count(&w, CTR_PUB_BUSY), 2);
	world_ack(&w, 0);
	world_publish(&w, "room", 4, WIRE_ACK_GATEWAY, 10);
	assert_int_equal(world_last_told(&w)->status, WIRE_OK);
	assert_int_equal(world_last_told(&w)->duplicate, 0);
	world_turn(&w);
	world_ack(&w, 3);
	world_check_sums(&w);
	world_end(&w);
}

static void parked_messages_are_bounded_per_channel_and_per_worker(
	void **state) WORKER_ONLY CONTROL_ONLY;
static void parked_messages_are_bounded_per_channel_and_per_worker(void **state)
{
	world_defaults(&w);
	w.limits.parked_per_channel = 2;
	w.limits.parked = 3;
	world_start(&w);
	world_channel(&w, "a");
	world_channel(&w, "b");
	world_tag(&w, world_channel(&w, "c"), "u", 0);
	world_publish(&w, "a", 1, WIRE_ACK_NONE, 10);
	world_publish(&w, "a", 2, WIRE_ACK_NONE, 10);
	world_publish(&w, "a", 3, WIRE_ACK_NONE, 10);  // of its channel
	expect(1, WIRE_BUSY, CTR_PUB_BUSY);
	world_publish(&w, "b", 1, WIRE_ACK_NONE, 10);
	world_publish(&w, "b", 2, WIRE_ACK_NONE, 10);  // of the worker
	assert_int_equal(world_count(&w, CTR_PUB_BUSY), 2);
	assert_int_equal(world_count(&w, CTR_LIMIT_PARKED_CHANNEL), 1);
	assert_int_equal(world_count(&w, CTR_PARKED), 3);
	world_publish(&w, "c", 1, WIRE_ACK_NONE, 10);  // needs no parking
	assert_int_equal(world_last_told(&w)->status, WIRE_OK);
	world_turn(&w);
	world_end(&w);
}

static void deadline_is_the_default_when_absent_and_cut_at_the_maximum(
	void **state) WORKER_ONLY CONTROL_ONLY;
static void deadline_is_the_default_when_absent_and_cut_at_the_maximum(void **state)
{
	struct fanout_publish p;

	world_defaults(&w);
	w.limits.deadline_ns = 100 * MS;
	w.limits.deadline_max_ns = 300 * MS;
	world_start(&w);
	world_channel(&w, "room");
	world_publish(&w, "room", 1, WIRE_ACK_NONE, 10);
	p = world_message(&w, "room", 2, WIRE_ACK_NONE, 10);
	p.m.deadline_ms = 200;
	world_admit(&w, &p);
	p = world_message(&w, "room", 3, WIRE_ACK_NONE, 10);
	p.m.deadline_ms = 100000;
	world_admit(&w, &p);
	for (uint32_t expired = 1; expired <= 3; expired++) {
		w.now_ns += 100 * MS - 1;
		world_turn(&w);
		assert_int_equal(w.told_count, expired - 1);
		w.now_ns += 1;
		world_turn(&w);
		assert_int_equal(w.told_count, expired);
		assert_int_equal(world_last_told(&w)->status, WIRE_EXPIRED);
		assert_int_equal(world_last_told(&w)->message_id, expired);
	}
	world_check_sums(&w);
	world_end(&w);
}

static void a_burst_mixes_all_answers(void **state) WORKER_ONLY CONTROL_ONLY;
static void a_burst_mixes_all_answers(void **state)
{
	struct fanout_publish burst[BURST];

	world_defaults(&w);
	world_start(&w);
	world_gateway(&w, 1, 1500);
	world_online(&w, "u", 2, 1);
	world_tag(&w, world_channel(&w, "a"), "u", 2);
	world_channel(&w, "parked");
	for (uint32_t i = 0; i < BURST; i++) {
		static const char *const name[] = {"a", "parked", "none", "a"};

		// The last of four repeats the first.
		burst[i] = world_message(
			&w, name[i % 4], i % 4 == 3 ? i - 2 : i + 1, WIRE_ACK_NONE, 20);
	}
	fanout_admit(w.fanout, burst, BURST, w.now_ns);
	world_turn(&w);
	assert_int_equal(world_count(&w, CTR_PUB_OK), 8);
	assert_int_equal(world_count(&w, CTR_PUB_DUPLICATE), 8);
	assert_int_equal(world_count(&w, CTR_PUB_UNKNOWN_CHANNEL), 8);
	assert_int_equal(world_count(&w, CTR_PARKED), 8);
	assert_int_equal(w.arrived_count, 16);
	world_end(&w);
}

static void large_repeat_is_answered_from_the_window(void **state) WORKER_ONLY CONTROL_ONLY;
static void large_repeat_is_answered_from_the_window(void **state)
{
	struct fanout_publish p;

	world_defaults(&w);
	world_start(&w);
	world_tag(&w, world_channel(&w, "room"), "u", 0);
	p = world_message(&w, "room", 1, WIRE_ACK_NONE, 10);
	fanout_repeat(w.fanout, &p);  // nothing known: no answer
	assert_int_equal(w.told_count, 0);
	world_admit(&w, &p);
	world_turn(&w);
	fanout_repeat(w.fanout, &p);
	assert_int_equal(w.told_count, 2);
	assert_int_equal(world_last_told(&w)->duplicate, 1);
	world_check_sums(&w);
	world_end(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(publish_reaches_every_online_member_once),
		cmocka_unit_test(payload_over_the_limit_is_refused_before_the_channel),
		cmocka_unit_test(unknown_and_removed_channels_are_refused_and_not_remembered),
		cmocka_unit_test(channel_that_is_not_there_yet_is_to_be_tried_again),
		cmocka_unit_test(repeat_gets_the_recorded_outcome_and_is_not_delivered),
		cmocka_unit_test(same_id_in_another_channel_is_another_message),
		cmocka_unit_test(repeat_of_a_pending_publish_is_dropped_and_one_outcome_follows),
		cmocka_unit_test(full_message_table_answers_busy_and_forgets_the_id),
		cmocka_unit_test(parked_messages_are_bounded_per_channel_and_per_worker),
		cmocka_unit_test(deadline_is_the_default_when_absent_and_cut_at_the_maximum),
		cmocka_unit_test(a_burst_mixes_all_answers),
		cmocka_unit_test(large_repeat_is_answered_from_the_window),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
