/* SPDX-License-Identifier: BSD-3-Clause */
#include "control_world.h"

CONTROL_ONLY static void a_reply_wakes_its_worker_and_a_full_ring_is_said(void **state)
{
	struct world *w = world_open();
	const struct node_reply reply = {.kind = NODE_REP_GATEWAY_DOWN, .index = 3};
	struct node_reply got;
	uint32_t sent = 0;

	(void)state;
	while (node_control_reply(w->node, 1, &reply))
		sent++;
	assert_int_equal(sent, 16);
	assert_int_equal(w->wakes[0], 0);
	assert_true(w->wakes[1] >= 16);
	assert_true(world_reply(w, 1, &got));
	assert_int_equal(got.index, 3);
	assert_true(node_control_reply(w->node, 1, &reply));
	world_close(w);
}

CONTROL_ONLY static void word_of_a_gone_channel_waits_for_room(void **state)
{
	struct world *w = world_open();
	const struct node_reply filler = {.kind = NODE_REP_GATEWAY_DOWN};
	struct node_reply got;
	uint32_t told = 0, worker;
	char name[16];

	(void)state;
	for (uint32_t i = 0; i < 40; i++) {
		snprintf(name, sizeof(name), "room-%u", i);
		world_do(w, STORE_ADD, STORE_MEMBERS, name, "ann");
	}
	world_ready(w);
	worker = world_channel(w, "room-0")->worker;
	while (node_control_reply(w->node, worker, &filler))
		;
	for (uint32_t i = 0; i < 40; i++) {
		snprintf(name, sizeof(name), "room-%u", i);
		world_do(w, STORE_CHANNEL_REMOVE, 0, name, NULL);
	}
	assert_int_equal(world_deliver(w, 100), 0);
	assert_int_equal(channel_table_count(w->node->channels), 0);
	for (uint32_t round = 0; round < 20; round++) {
		world_step(w, 1);
		for (uint32_t i = 0; i < 2; i++)
			while (world_reply(w, i, &got))
				told += got.kind == NODE_REP_CHANNEL_GONE;
	}
	assert_int_equal(told, 40);
	world_close(w);
}

CONTROL_ONLY static void a_step_with_nothing_to_do_says_so(void **state)
{
	struct world *w = world_open();

	(void)state;
	world_do(w, STORE_ADD, STORE_MEMBERS, "a", "ann");
	world_ready(w);
	assert_non_null(world_tag(w, "a"));
	world_step(w, 10);
	w->now_ns += MS;
	assert_int_equal(node_control_step(w->node, w->now_ns), 0);
	world_want(w, "a");
	w->now_ns += MS;
	assert_int_equal(node_control_step(w->node, w->now_ns), 1);
	world_close(w);
}

CONTROL_ONLY static void what_was_replaced_is_freed_within_steps(void **state)
{
	struct world *w = world_open();
	uint64_t bytes;

	(void)state;
	world_range(w, STORE_ADD, STORE_MEMBERS, "a", "user-", 0, 3000);
	world_ready(w);
	assert_non_null(world_tag(w, "a"));
	bytes = tag_space_bytes(w->node->tags);
	for (uint32_t i = 0; i < 200; i++) {
		world_range(w, i % 2 == 0 ? STORE_REMOVE : STORE_ADD, STORE_MEMBERS, "a", "user-",
			i / 2, i / 2 + 1);
		assert_int_equal(world_deliver(w, 1), 0);
		world_step(w, 2);
		// The tag, one replaced version and the steps kept, whatever the number of edits.
		assert_true(tag_space_bytes(w->node->tags) < 2 * bytes + 8192);
	}
	assert_int_equal(world_channel(w, "a")->tag->fence.version, 201);
	world_close(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_reply_wakes_its_worker_and_a_full_ring_is_said),
		cmocka_unit_test(word_of_a_gone_channel_waits_for_room),
		cmocka_unit_test(a_step_with_nothing_to_do_says_so),
		cmocka_unit_test(what_was_replaced_is_freed_within_steps),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
