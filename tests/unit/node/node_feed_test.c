/* SPDX-License-Identifier: BSD-3-Clause */
#include "control_world.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

#include "store_cluster.h"

CONTROL_ONLY static void ready_comes_after_every_channel_was_read(void **state)
{
	struct world *w;
	char name[16];

	(void)state;
	world_params.channels = 1000;
	w = world_open();
	world_params.channels = 64;
	for (uint32_t i = 0; i < 600; i++) {
		snprintf(name, sizeof(name), "room-%u", i);
		world_do(w, STORE_ADD, STORE_MEMBERS, name, "ann bob");
	}
	world_do(w, STORE_CHANNEL_REMOVE, 0, "room-7", NULL);
	assert_int_equal(world_deliver(w, UINT32_MAX), -EPROTO);  // no WELCOME yet
	while (w->delta != NULL)
		world_deliver(w, 1);
	assert_int_equal(world_welcome(w, true), 0);
	assert_false(node_control_ready(w->node));
	world_step(w, 2);
	assert_false(node_control_ready(w->node));
	assert_false(atomic_load(&w->node->channels->complete));
	assert_int_equal(node_control_applied(w->node), 0);
	world_step(w, 8);
	assert_true(node_control_ready(w->node));
	assert_true(atomic_load(&w->node->channels->complete));
	assert_int_equal(channel_table_count(w->node->channels), 599);
	assert_null(world_channel(w, "room-7"));
	assert_int_equal(world_channel(w, "room-8")->smv, 1);
	assert_int_equal(world_channel(w, "room-8")->members, 2);
	assert_int_equal(node_control_applied(w->node), 601);
	world_close(w);
}

CONTROL_ONLY static void deltas_during_the_read_lead_to_the_same_table(void **state)
{
	struct world *w;
	char name[16];

	(void)state;
	world_params.channels = 1000;
	w = world_open();
	world_params.channels = 64;
	for (uint32_t i = 0; i < 600; i++) {
		snprintf(name, sizeof(name), "room-%u", i);
		world_do(w, STORE_ADD, STORE_MEMBERS, name, "ann");
	}
	while (w->delta != NULL)
		world_deliver(w, 1);
	assert_int_equal(world_welcome(w, true), 0);
	world_step(w, 2);  // some 256 of them are read
	// Before and behind the place the read is at: removed, made again, changed; delivered later.
	world_do(w, STORE_CHANNEL_REMOVE, 0, "room-0", NULL);
	world_do(w, STORE_CHANNEL_REMOVE, 0, "room-99", NULL);
	world_do(w, STORE_CHANNEL_REMOVE, 0, "room-98", NULL);
	world_do(w, STORE_ADD, STORE_MEMBERS, "room-98", "eve");
	world_do(w, STORE_ADD, STORE_MEMBERS, "room-1", "bob");
	world_do(w, STORE_ADD, STORE_MEMBERS, "room-97", "bob");
	world_do(w, STORE_ADD, STORE_MEMBERS, "a-new-one", "bob");
	world_do(w, STORE_ADD, STORE_MEMBERS, "z-new-one", "bob");
	world_step(w, 1);
	assert_int_equal(world_deliver(w, 4), 0);
	world_step(w, 1);
	assert_int_equal(world_deliver(w, 100), 0);
	world_step(w, 10);
	assert_true(node_control_ready(w->node));
	assert_int_equal(channel_table_count(w->node->channels), 600);
	assert_null(world_channel(w, "room-0"));
	assert_null(world_channel(w, "room-99"));
	assert_int_equal(world_channel(w, "room-98")->smv, 3);
	assert_int_equal(world_channel(w, "room-1")->smv, 2);
	assert_int_equal(world_channel(w, "room-97")->smv, 2);
	assert_int_equal(world_channel(w, "a-new-one")->smv, 1);
	assert_int_equal(world_channel(w, "z-new-one")->smv, 1);
	world_close(w);
}

CONTROL_ONLY static void a_version_the_read_found_ahead_of_the_feed_never_goes_back(void **state)
{
	struct world *w = world_open();

	(void)state;
	world_do(w, STORE_ADD, STORE_MEMBERS, "a", "ann");
	world_do(w, STORE_ADD, STORE_MEMBERS, "a", "bob");
	world_do(w, STORE_ADD, STORE_MEMBERS, "a", "cat");
	assert_int_equal(world_welcome(w, true), 0);  // from before the first of them
	world_step(w, 4);
	assert_true(node_control_ready(w->node));
	while (w->delta != NULL) {
		assert_int_equal(world_channel(w, "a")->smv, 3);
		assert_int_equal(world_deliver(w, 1), 0);
	}
	assert_int_equal(world_channel(w, "a")->smv, 3);
	world_close(w);
}

CONTROL_ONLY static void rows_of_the_cluster_move_the_commit_and_no_channel(void **state)
{
	const struct store_node row = {.id = 9,
		.revision = 2,
		.state = STORE_NODE_ACTIVE,
		.address_len = 1,
		.address = "h"};
	struct world *w = world_open();
	struct store_feed_frame hello, frame = {.type = STORE_FEED_DELTA, .commit = 2};
	uint8_t body[256];

	(void)state;
	world_do(w, STORE_ADD, STORE_MEMBERS, "a", "ann");
	world_ready(w);
	frame.delta = (struct store_delta){.commit = 2, .kind = STORE_DELTA_NODE, .body = body};
	frame.delta.body_bytes = (uint32_t)store_node_encode(&row, body, sizeof(body));
	assert_int_equal(node_control_feed(w->node, &frame, w->now_ns), 0);
	node_control_feed_hello(w->node, &hello);
	assert_int_equal(hello.commit, 2);
	world_step(w, 1);
	assert_int_equal(node_control_applied(w->node), 2);
	assert_true(node_control_ready(w->node));
	assert_int_equal(world_channel(w, "a")->smv, 1);
	assert_int_equal(channel_table_count(w->node->channels), 1);
	// It counts like any other: again is a break.
	assert_int_equal(node_control_feed(w->node, &frame, w->now_ns), -EPROTO);
	world_close(w);
}

CONTROL_ONLY static void a_gap_breaks_off_and_the_next_hello_asks_for_everything(void **state)
{
	struct world *w = world_open();
	struct store_feed_frame hello;

	(void)state;
	world_do(w, STORE_ADD, STORE_MEMBERS, "a", "ann");
	world_ready(w);
	node_control_feed_hello(w->node, &hello);
	assert_int_equal(hello.type, STORE_FEED_HELLO);
	assert_int_equal(hello.node, 1);
	assert_int_equal(hello.generation, WORLD_GENERATION);
	assert_int_equal(hello.commit, 1);
	world_do(w, STORE_ADD, STORE_MEMBERS, "a", "bob");
	world_do(w, STORE_ADD, STORE_MEMBERS, "a", "cat");
	struct world_delta *lost = w->delta;

	w->delta = lost->next;
	free(lost);
	assert_int_equal(world_deliver(w, 1), -EPROTO);
	assert_false(node_control_ready(w->node));
	node_control_feed_hello(w->node, &hello);
	assert_int_equal(hello.generation, 0);
	assert_int_equal(hello.commit, 0);
	world_ready(w);
	assert_int_equal(world_channel(w, "a")->smv, 3);
	assert_int_equal(world_count(w, CTR_RESYNC), 2);
	world_close(w);
}

CONTROL_ONLY static void a_repeated_delta_is_a_break_too(void **state)
{
	struct world *w = world_open();
	struct store_feed_frame frame = {.type = STORE_FEED_DELTA};

	(void)state;
	world_do(w, STORE_ADD, STORE_MEMBERS, "a", "ann");
	world_ready(w);
	frame.delta = (struct store_delta){.commit = 1,
		.smv_before = 0,
		.smv = 1,
		.kind = STORE_DELTA_CHANNEL,
		.channel = {.type = 2, .len = 1, .bytes = "a"}};
	assert_int_equal(node_control_feed(w->node, &frame, w->now_ns), -EPROTO);
	world_close(w);
}

CONTROL_ONLY static void a_short_break_is_resumed_where_it_was(void **state)
{
	struct world *w = world_open();

	(void)state;
	world_do(w, STORE_ADD, STORE_MEMBERS, "a", "ann");
	world_ready(w);
	assert_non_null(world_tag(w, "a"));
	node_control_feed_lost(w->node, w->now_ns);
	assert_false(node_control_ready(w->node));
	assert_true(world_usable(w, "a"));
	world_do(w, STORE_ADD, STORE_MEMBERS, "a", "bob");
	assert_int_equal(world_welcome(w, false), 0);
	assert_true(node_control_ready(w->node));
	assert_int_equal(world_deliver(w, 1), 0);
	assert_string_equal(world_members(w, "a"), "ann bob");
	assert_int_equal(world_count(w, CTR_RESYNC), 1);
	world_close(w);
}

CONTROL_ONLY static void a_foreign_history_is_not_resumed(void **state)
{
	struct world *w = world_open();

	(void)state;
	world_ready(w);
	node_control_feed_lost(w->node, w->now_ns);
	w->generation_shift = 1;
	assert_int_equal(world_welcome(w, false), -EPROTO);
	world_close(w);
}

CONTROL_ONLY static void f22_another_generation_leaves_no_tag_and_reopens_the_source(void **state)
{
	struct world *w = world_open();
	uint8_t key[16];

	(void)state;
	world_do(w, STORE_ADD, STORE_MEMBERS, "a", "ann");
	world_ready(w);
	memcpy(key, world_tag(w, "a")->fence.key, 16);
	node_control_feed_lost(w->node, w->now_ns);
	w->generation_shift = 1;
	assert_int_equal(world_welcome(w, true), 0);
	// Equal versions of two histories must not meet.
	assert_null(world_channel(w, "a")->tag);
	world_step(w, 10);
	assert_true(node_control_ready(w->node));
	assert_int_equal(world_channel(w, "a")->smv, 1);
	assert_memory_not_equal(world_tag(w, "a")->fence.key, key, 16);
	world_close(w);
}

CONTROL_ONLY static void a_source_of_the_old_generation_is_reopened_until_it_fits(void **state)
{
	struct world *w = world_open();
	struct store_feed_frame frame = {
		.type = STORE_FEED_WELCOME, .generation = WORLD_GENERATION + 1, .resync = 1};

	(void)state;
	assert_int_equal(node_control_feed(w->node, &frame, w->now_ns), 0);
	world_step(w, 200);
	assert_false(node_control_ready(w->node));
	assert_in_range(w->reopens, 2, 10);
	w->generation_shift = 1;
	world_step(w, 100);
	assert_true(node_control_ready(w->node));
	world_close(w);
}

CONTROL_ONLY static void a_failing_source_delays_the_read_and_loses_nothing(void **state)
{
	struct world *w = world_open();

	(void)state;
	world_do(w, STORE_ADD, STORE_MEMBERS, "a", "ann");
	w->position_rc = -EIO;
	while (w->delta != NULL)
		world_deliver(w, 1);
	assert_int_equal(node_control_feed(w->node,
				 &(struct store_feed_frame){.type = STORE_FEED_WELCOME,
					 .generation = WORLD_GENERATION,
					 .commit = 1,
					 .resync = 1},
				 w->now_ns),
		0);
	world_step(w, 60);
	w->position_rc = 0;
	w->channel_rc = -EIO;
	world_step(w, 120);
	assert_false(node_control_ready(w->node));
	w->channel_rc = 0;
	world_step(w, 120);
	assert_true(node_control_ready(w->node));
	assert_non_null(world_channel(w, "a"));
	world_close(w);
}

CONTROL_ONLY static void a_resync_takes_out_what_is_gone(void **state)
{
	struct world *w = world_open();
	struct node_reply reply;
	bool told = false;

	(void)state;
	world_do(w, STORE_ADD, STORE_MEMBERS, "a", "ann");
	world_do(w, STORE_ADD, STORE_MEMBERS, "b", "ann");
	world_ready(w);
	assert_non_null(world_tag(w, "a"));
	assert_non_null(world_tag(w, "b"));
	node_control_feed_lost(w->node, w->now_ns);
	world_do(w, STORE_CHANNEL_REMOVE, 0, "a", NULL);
	while (w->delta != NULL) {
		struct world_delta *next = w->delta->next;

		free(w->delta);
		w->delta = next;
	}
	world_ready(w);
	assert_null(world_channel(w, "a"));
	assert_true(world_usable(w, "b"));
	world_step(w, 1);
	for (uint32_t i = 0; i < 2; i++)
		while (world_reply(w, i, &reply))
			told |= reply.kind == NODE_REP_CHANNEL_GONE;
	assert_true(told);
	world_close(w);
}

CONTROL_ONLY static void channels_another_history_never_had_are_taken_out(void **state)
{
	struct world *w = world_open();
	struct world *other = world_open();
	struct store_map *map = w->map;

	(void)state;
	world_do(w, STORE_ADD, STORE_MEMBERS, "a", "ann");
	world_do(w, STORE_ADD, STORE_MEMBERS, "b", "ann");
	world_do(other, STORE_ADD, STORE_MEMBERS, "b", "bob");
	world_ready(w);
	node_control_feed_lost(w->node, w->now_ns);
	w->generation_shift = 1;
	w->map = other->map;
	world_ready(w);
	assert_null(world_channel(w, "a"));
	assert_non_null(world_tag(w, "b"));
	assert_string_equal(world_members(w, "b"), "bob");
	w->map = map;
	world_close(w);
	world_close(other);
}

// --- edits --------------------------------------------------------------------------------------------

CONTROL_ONLY static void a_delta_edits_the_tag_in_the_same_step(void **state)
{
	struct world *w = world_open();
	const struct tag *tag;
	uint8_t key[16];

	(void)state;
	world_do(w, STORE_ADD, STORE_MEMBERS, "a", "ann bob cat");
	world_ready(w);
	tag = world_tag(w, "a");
	memcpy(key, tag->fence.key, 16);
	assert_int_equal(tag->fence.version, 1);
	world_do(w, STORE_REMOVE, STORE_MEMBERS, "a", "bob nobody");
	world_do(w, STORE_ADD, STORE_MEMBERS, "a", "dan eve ann");
	assert_int_equal(world_deliver(w, 1), 0);
	assert_true(world_usable(w, "a"));
	assert_string_equal(world_members(w, "a"), "ann cat");
	assert_int_equal(world_deliver(w, 1), 0);
	tag = world_channel(w, "a")->tag;
	assert_int_equal(tag->smv, 3);
	assert_int_equal(tag->fence.version, 3);
	assert_memory_equal(tag->fence.key, key, 16);
	assert_string_equal(world_members(w, "a"), "ann cat dan eve");
	assert_int_equal(world_count(w, CTR_TAG_EDIT), 2);
	assert_int_equal(world_count(w, CTR_TAG_BUILD), 1);
	world_close(w);
}

CONTROL_ONLY static void the_deny_list_is_part_of_the_tag(void **state)
{
	struct world *w = world_open();

	(void)state;
	world_do(w, STORE_ADD, STORE_MEMBERS, "a", "ann bob");
	world_do(w, STORE_ADD, STORE_DENY, "a", "bob zoe");
	world_ready(w);
	assert_non_null(world_tag(w, "a"));
	assert_string_equal(world_members(w, "a"), "ann !bob");
	// Denied before she became a member, and after she was one.
	world_do(w, STORE_ADD, STORE_MEMBERS, "a", "zoe");
	world_do(w, STORE_ADD, STORE_DENY, "a", "ann yan");
	world_do(w, STORE_ADD, STORE_MEMBERS, "a", "yan");
	assert_int_equal(world_deliver(w, 10), 0);
	assert_true(world_usable(w, "a"));
	assert_string_equal(world_members(w, "a"), "!ann !bob !yan !zoe");
	world_do(w, STORE_REMOVE, STORE_DENY, "a", "bob ann");
	world_do(w, STORE_REMOVE, STORE_MEMBERS, "a", "bob");
	world_do(w, STORE_ADD, STORE_MEMBERS, "a", "bob");
	assert_int_equal(world_deliver(w, 10), 0);
	assert_true(world_usable(w, "a"));
	assert_string_equal(world_members(w, "a"), "ann bob !yan !zoe");
	assert_int_equal(world_count(w, CTR_TAG_BUILD), 1);
	world_close(w);
}

CONTROL_ONLY static void a_deny_list_too_long_to_keep_means_a_build(void **state)
{
	struct world *w = world_open();
	struct node_channel *nc;

	(void)state;
	world_do(w, STORE_ADD, STORE_MEMBERS, "a", "ann bob");
	world_do(w, STORE_ADD, STORE_DENY, "a", "zoe");
	world_ready(w);
	assert_non_null(world_tag(w, "a"));
	nc = node_channel_of(w->node, world_channel(w, "a"));
	node_deny_drop(w->node, nc, 0);
	nc->deny_partial = true;
	world_do(w, STORE_ADD, STORE_DENY, "a", "ann");
	world_do(w, STORE_REMOVE, STORE_MEMBERS, "a", "bob");
	assert_int_equal(world_deliver(w, 10), 0);
	assert_true(world_usable(w, "a"));
	assert_string_equal(world_members(w, "a"), "!ann");
	world_do(w, STORE_ADD, STORE_MEMBERS, "a", "zoe");
	assert_int_equal(world_deliver(w, 10), 0);
	assert_false(world_usable(w, "a"));
	assert_non_null(world_tag(w, "a"));
	assert_string_equal(world_members(w, "a"), "!ann !zoe");
	world_close(w);
}

CONTROL_ONLY static void lists_and_flags_no_delivery_depends_on_move_the_version_only(void **state)
{
	struct world *w = world_open();

	(void)state;
	world_do(w, STORE_ADD, STORE_MEMBERS, "a", "ann");
	world_ready(w);
	assert_non_null(world_tag(w, "a"));
	world_do(w, STORE_ADD, STORE_ALLOW, "a", "bob");
	world_do(w, STORE_RESET, STORE_TEMP, "a", "cat");
	assert_int_equal(world_deliver(w, 10), 0);
	assert_true(world_usable(w, "a"));
	assert_int_equal(world_channel(w, "a")->smv, 3);
	assert_string_equal(world_members(w, "a"), "ann");
	world_close(w);
}

CONTROL_ONLY static void a_reset_makes_the_tag_stale_and_a_want_rebuilds_it_under_its_key(
	void **state)
{
	struct world *w = world_open();
	const struct tag *tag;
	uint8_t key[16];

	(void)state;
	world_do(w, STORE_ADD, STORE_MEMBERS, "a", "ann");
	world_ready(w);
	memcpy(key, world_tag(w, "a")->fence.key, 16);
	world_do(w, STORE_RESET, STORE_MEMBERS, "a", "bob cat");
	world_do(w, STORE_ADD, STORE_MEMBERS, "a", "dan");
	assert_int_equal(world_deliver(w, 10), 0);
	assert_false(world_usable(w, "a"));
	tag = world_tag(w, "a");
	assert_memory_equal(tag->fence.key, key, 16);
	assert_int_equal(tag->fence.version, 2);
	assert_string_equal(world_members(w, "a"), "bob cat dan");
	world_close(w);
}

CONTROL_ONLY static void a_tag_at_another_version_than_the_delta_is_not_edited(void **state)
{
	struct world *w = world_open();
	struct store_feed_frame frame = {.type = STORE_FEED_DELTA};

	(void)state;
	world_do(w, STORE_ADD, STORE_MEMBERS, "a", "ann");
	world_ready(w);
	assert_non_null(world_tag(w, "a"));
	frame.delta = (struct store_delta){.commit = 2,
		.smv_before = 4,
		.smv = 5,
		.kind = STORE_DELTA_ADD,
		.channel = {.type = 2, .len = 1, .bytes = "a"},
		.uid_count = 1,
		.uids = (const uint8_t *)"\3bob",
		.uids_bytes = 4};
	assert_int_equal(node_control_feed(w->node, &frame, w->now_ns), 0);
	assert_int_equal(world_channel(w, "a")->smv, 5);
	assert_false(world_usable(w, "a"));
	world_close(w);
}

CONTROL_ONLY static void malformed_uids_make_the_tag_stale_and_no_more(void **state)
{
	struct world *w = world_open();
	struct store_feed_frame frame = {.type = STORE_FEED_DELTA};

	(void)state;
	world_do(w, STORE_ADD, STORE_MEMBERS, "a", "ann");
	world_ready(w);
	assert_non_null(world_tag(w, "a"));
	frame.delta = (struct store_delta){.commit = 2,
		.smv_before = 1,
		.smv = 2,
		.kind = STORE_DELTA_ADD,
		.channel = {.type = 2, .len = 1, .bytes = "a"},
		.uid_count = 2,
		.uids = (const uint8_t *)"\3bob\011x",
		.uids_bytes = 6};
	assert_int_equal(node_control_feed(w->node, &frame, w->now_ns), 0);
	assert_false(world_usable(w, "a"));
	world_close(w);
}

CONTROL_ONLY static void a_removed_channel_comes_back_with_a_greater_version(void **state)
{
	struct world *w = world_open();
	struct channel *first;
	struct node_reply reply;
	uint32_t use;
	bool told = false;

	(void)state;
	world_do(w, STORE_ADD, STORE_MEMBERS, "a", "ann");
	world_ready(w);
	assert_non_null(world_tag(w, "a"));
	first = world_channel(w, "a");
	use = first->use;
	world_do(w, STORE_CHANNEL_REMOVE, 0, "a", NULL);
	assert_int_equal(world_deliver(w, 1), 0);
	assert_null(world_channel(w, "a"));
	assert_null(first->tag);
	assert_true((first->flags & CHANNEL_F_REMOVED) != 0);
	world_do(w, STORE_ADD, STORE_MEMBERS, "a", "bob");
	assert_int_equal(world_deliver(w, 1), 0);
	assert_ptr_not_equal(world_channel(w, "a"), first);
	assert_int_equal(world_channel(w, "a")->smv, 3);
	world_step(w, 1);
	while (world_reply(w, first->worker, &reply))
		if (reply.kind == NODE_REP_CHANNEL_GONE) {
			assert_int_equal(reply.index, first->index);
			assert_int_equal(reply.use, use);
			told = true;
		}
	assert_true(told);
	assert_non_null(world_tag(w, "a"));
	assert_string_equal(world_members(w, "a"), "bob");
	world_close(w);
}

CONTROL_ONLY static void the_channel_limit_refuses_new_channels_and_counts(void **state)
{
	struct world *w;

	(void)state;
	world_params.channels = 2;
	w = world_open();
	world_params.channels = 64;
	world_ready(w);
	world_do(w, STORE_ADD, STORE_MEMBERS, "a", "ann");
	world_do(w, STORE_ADD, STORE_MEMBERS, "b", "ann");
	world_do(w, STORE_ADD, STORE_MEMBERS, "c", "ann");
	assert_int_equal(world_deliver(w, 10), 0);
	assert_null(world_channel(w, "c"));
	assert_int_equal(world_count(w, CTR_LIMIT_CHANNELS), 1);
	world_do(w, STORE_CHANNEL_REMOVE, 0, "a", NULL);
	assert_int_equal(world_deliver(w, 10), 0);
	world_step(w, 2);
	world_do(w, STORE_ADD, STORE_MEMBERS, "c", "bob");
	assert_int_equal(world_deliver(w, 10), 0);
	assert_int_equal(world_channel(w, "c")->smv, 2);
	world_close(w);
}

// Not known is not the same as not there: nobody is told "no such channel", and room is used when it comes.
CONTROL_ONLY static void a_channel_without_room_is_found_when_there_is_room(void **state)
{
	struct world *w;

	(void)state;
	world_params.channels = 2;
	w = world_open();
	world_params.channels = 64;
	world_do(w, STORE_ADD, STORE_MEMBERS, "a", "ann");
	world_do(w, STORE_ADD, STORE_MEMBERS, "b", "ann");
	world_do(w, STORE_ADD, STORE_MEMBERS, "c", "ann");
	world_ready(w);
	assert_null(world_channel(w, "c"));
	assert_false(atomic_load(&w->node->channels->complete));
	world_do(w, STORE_CHANNEL_REMOVE, 0, "a", NULL);
	assert_int_equal(world_deliver(w, 10), 0);
	world_step(w, 4);
	assert_non_null(world_channel(w, "c"));
	assert_int_equal(world_channel(w, "c")->smv, 1);
	assert_true(atomic_load(&w->node->channels->complete));
	// Within the limit, but the record of the one is not free yet when the other comes.
	world_do(w, STORE_CHANNEL_REMOVE, 0, "b", NULL);
	world_do(w, STORE_ADD, STORE_MEMBERS, "d", "eve");
	assert_int_equal(world_deliver(w, 10), 0);
	for (uint32_t i = 0; i < 2000 && world_channel(w, "d") == NULL; i++)
		world_step(w, 1);
	assert_non_null(world_channel(w, "d"));
	world_step(w, 2);
	assert_true(atomic_load(&w->node->channels->complete));
	assert_true(node_control_ready(w->node));
	world_want(w, "d");
	world_step(w, 8);
	assert_string_equal(world_members(w, "d"), "eve");
	world_close(w);
}

// The table is as full as can be and lacks nothing: others do not exist, and their publishers are told so.
CONTROL_ONLY static void a_table_at_its_limit_that_lacks_nothing_is_complete(void **state)
{
	struct world *w;

	(void)state;
	world_params.channels = 2;
	w = world_open();
	world_params.channels = 64;
	world_do(w, STORE_ADD, STORE_MEMBERS, "a", "ann");
	world_do(w, STORE_ADD, STORE_MEMBERS, "b", "ann");
	world_ready(w);
	assert_true(atomic_load(&w->node->channels->complete));
	world_do(w, STORE_ADD, STORE_MEMBERS, "c", "ann");
	world_do(w, STORE_ADD, STORE_MEMBERS, "d", "ann");
	assert_int_equal(world_deliver(w, 10), 0);
	assert_false(atomic_load(&w->node->channels->complete));
	world_do(w, STORE_CHANNEL_REMOVE, 0, "c", NULL);
	assert_int_equal(world_deliver(w, 10), 0);
	for (uint32_t i = 0; i < 4; i++) {
		w->now_ns += SECOND;
		world_step(w, 4);
	}
	assert_false(atomic_load(&w->node->channels->complete));  // d is still lacking
	world_do(w, STORE_CHANNEL_REMOVE, 0, "d", NULL);
	assert_int_equal(world_deliver(w, 10), 0);
	for (uint32_t i = 0; i < 4; i++) {
		w->now_ns += SECOND;
		world_step(w, 4);
	}
	assert_true(atomic_load(&w->node->channels->complete));
	world_close(w);
}

CONTROL_ONLY static void a_full_uid_table_makes_the_tag_stale(void **state)
{
	struct world *w;

	(void)state;
	world_params.uids = 3;
	w = world_open();
	world_params.uids = 20000;
	world_do(w, STORE_ADD, STORE_MEMBERS, "a", "ann");
	world_ready(w);
	assert_non_null(world_tag(w, "a"));
	world_do(w, STORE_ADD, STORE_MEMBERS, "a", "bob cat dan");
	assert_int_equal(world_deliver(w, 10), 0);
	assert_false(world_usable(w, "a"));
	assert_int_equal(world_count(w, CTR_LIMIT_UIDS), 1);
	world_close(w);
}

CONTROL_ONLY static void f21_a_commit_counts_as_applied_after_a_grace_period(void **state)
{
	struct world *w = world_open();

	(void)state;
	world_ready(w);
	world_step(w, 1);
	assert_int_equal(node_control_applied(w->node), 0);
	world_do(w, STORE_ADD, STORE_MEMBERS, "a", "ann");
	world_do(w, STORE_ADD, STORE_MEMBERS, "a", "bob");
	assert_int_equal(world_deliver(w, 10), 0);
	assert_int_equal(node_control_applied(w->node), 0);
	world_step(w, 1);
	assert_int_equal(node_control_applied(w->node), 2);
	world_close(w);
}

static _Atomic int reader_online, reader_passed;

// A core in a long turn: it holds what it read all the time.
static void *slow_reader(void *arg)
{
	const struct timespec turn = {.tv_nsec = 50 * MS};

	(void)arg;
	rcu_reader_register();
	atomic_store(&reader_online, 1);
	nanosleep(&turn, NULL);
	atomic_store(&reader_passed, 1);
	rcu_reader_quiescent();
	rcu_reader_unregister();
	return NULL;
}

CONTROL_ONLY static void f21_a_commit_waits_for_the_slowest_core(void **state)
{
	struct world *w = world_open();
	pthread_t thread;

	(void)state;
	world_ready(w);
	world_step(w, 1);
	world_do(w, STORE_ADD, STORE_MEMBERS, "a", "ann");
	assert_int_equal(world_deliver(w, 10), 0);
	assert_int_equal(pthread_create(&thread, NULL, slow_reader, NULL), 0);
	while (atomic_load(&reader_online) == 0)
		sched_yield();
	while (node_control_applied(w->node) == 0)
		world_step(w, 1);
	assert_int_equal(atomic_load(&reader_passed), 1);
	assert_int_equal(node_control_applied(w->node), 1);
	pthread_join(thread, NULL);
	world_close(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ready_comes_after_every_channel_was_read),
		cmocka_unit_test(deltas_during_the_read_lead_to_the_same_table),
		cmocka_unit_test(a_version_the_read_found_ahead_of_the_feed_never_goes_back),
		cmocka_unit_test(channels_another_history_never_had_are_taken_out),
		cmocka_unit_test(a_gap_breaks_off_and_the_next_hello_asks_for_everything),
		cmocka_unit_test(rows_of_the_cluster_move_the_commit_and_no_channel),
		cmocka_unit_test(a_repeated_delta_is_a_break_too),
		cmocka_unit_test(a_short_break_is_resumed_where_it_was),
		cmocka_unit_test(a_foreign_history_is_not_resumed),
		cmocka_unit_test(f22_another_generation_leaves_no_tag_and_reopens_the_source),
		cmocka_unit_test(a_source_of_the_old_generation_is_reopened_until_it_fits),
		cmocka_unit_test(a_failing_source_delays_the_read_and_loses_nothing),
		cmocka_unit_test(a_resync_takes_out_what_is_gone),
		cmocka_unit_test(a_delta_edits_the_tag_in_the_same_step),
		cmocka_unit_test(the_deny_list_is_part_of_the_tag),
		cmocka_unit_test(a_deny_list_too_long_to_keep_means_a_build),
		cmocka_unit_test(lists_and_flags_no_delivery_depends_on_move_the_version_only),
		cmocka_unit_test(a_reset_makes_the_tag_stale_and_a_want_rebuilds_it_under_its_key),
		cmocka_unit_test(a_tag_at_another_version_than_the_delta_is_not_edited),
		cmocka_unit_test(malformed_uids_make_the_tag_stale_and_no_more),
		cmocka_unit_test(a_removed_channel_comes_back_with_a_greater_version),
		cmocka_unit_test(the_channel_limit_refuses_new_channels_and_counts),
		cmocka_unit_test(a_channel_without_room_is_found_when_there_is_room),
		cmocka_unit_test(a_table_at_its_limit_that_lacks_nothing_is_complete),
		cmocka_unit_test(a_full_uid_table_makes_the_tag_stale),
		cmocka_unit_test(f21_a_commit_counts_as_applied_after_a_grace_period),
		cmocka_unit_test(f21_a_commit_waits_for_the_slowest_core),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
