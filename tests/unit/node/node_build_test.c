/* SPDX-License-Identifier: BSD-3-Clause */
#include "control_world.h"

#include <errno.h>

CONTROL_ONLY static void a_tag_is_built_from_pages_and_its_worker_woken(void **state)
{
	struct world *w = world_open();
	const struct channel *channel;
	const struct tag *tag;

	(void)state;
	world_range(w, STORE_ADD, STORE_MEMBERS, "a", "user-", 0, 3000);
	world_ready(w);
	channel = world_channel(w, "a");
	memset(w->wakes, 0, sizeof(w->wakes));
	tag = world_tag(w, "a");
	assert_int_equal(tag->count, 3000);
	assert_int_equal(tag->smv, 1);
	assert_int_equal(tag->fence.version, 1);
	assert_true(w->wakes[channel->worker] != 0);
	assert_true(w->pages >= 6);
	assert_int_equal(channel->flags, 0);
	assert_true(topology_ref_current(tag_topology(tag), w->node->topology));
	assert_int_equal(tag_topology(tag)->count, 10);
	world_close(w);
}

CONTROL_ONLY static void a_step_handles_no_more_members_than_it_may(void **state)
{
	struct world *w = world_open();

	(void)state;
	world_range(w, STORE_ADD, STORE_MEMBERS, "a", "user-", 0, 5000);
	world_ready(w);
	world_want(w, "a");
	for (uint32_t pages = 0, step = 0; !world_usable(w, "a"); step++) {
		world_step(w, 1);
		assert_in_range(w->pages - pages, 0, 4);
		assert_in_range(step, 0, 7);
		pages = w->pages;
	}
	world_close(w);
}

CONTROL_ONLY static void a_current_tag_is_not_built_again(void **state)
{
	struct world *w = world_open();
	const struct tag *tag;
	uint32_t pages;

	(void)state;
	world_do(w, STORE_ADD, STORE_MEMBERS, "a", "ann");
	world_ready(w);
	tag = world_tag(w, "a");
	pages = w->pages;
	world_want(w, "a");
	world_want(w, "a");
	world_step(w, 3);
	assert_ptr_equal(world_channel(w, "a")->tag, tag);
	assert_int_equal(w->pages, pages);
	world_close(w);
}

CONTROL_ONLY static void a_tag_of_another_topology_is_built_again(void **state)
{
	struct world *w = world_open();
	const struct tag *tag;

	(void)state;
	world_do(w, STORE_ADD, STORE_MEMBERS, "a", "ann");
	world_do(w, STORE_ADD, STORE_DENY, "a", "ann bob");
	world_ready(w);
	tag = world_tag(w, "a");
	w->node->topology->version++;
	world_want(w, "a");
	world_step(w, 2);
	assert_ptr_not_equal(world_channel(w, "a")->tag, tag);
	assert_int_equal(world_channel(w, "a")->tag->fence.version, 2);
	assert_string_equal(world_members(w, "a"), "!ann");
	world_close(w);
}

CONTROL_ONLY static void without_a_known_leader_no_tag_is_built(void **state)
{
	struct world *w = world_open();

	(void)state;
	world_do(w, STORE_ADD, STORE_MEMBERS, "a", "ann");
	world_ready(w);
	for (uint32_t s = 0; s < 10; s++)
		w->node->topology->slot[s].leader = 0;
	world_want(w, "a");
	world_step(w, 30);
	assert_null(world_channel(w, "a")->tag);
	for (uint32_t s = 0; s < 10; s++)
		w->node->topology->slot[s].leader = 1;
	world_step(w, 200);
	assert_true(world_usable(w, "a"));
	world_close(w);
}

CONTROL_ONLY static void requests_for_a_record_given_away_are_ignored(void **state)
{
	struct world *w = world_open();
	struct wq_spsc *ring = &w->node->worker[0].to_control;
	const struct node_request stale[] = {
		{.kind = NODE_REQ_TAG, .channel = 1, .use = 7},
		{.kind = NODE_REQ_TAG, .channel = 0, .use = 1},
		{.kind = NODE_REQ_TAG, .channel = 1000000, .use = 1},
		{.kind = 77},
	};

	(void)state;
	world_do(w, STORE_ADD, STORE_MEMBERS, "a", "ann");
	world_ready(w);
	for (uint32_t i = 0; i < 4; i++) {
		memcpy(wq_spsc_reserve(ring), &stale[i], sizeof(stale[i]));
		wq_spsc_commit(ring);
	}
	world_step(w, 3);
	assert_int_equal(w->pages, 0);
	world_close(w);
}

// --- the store moves while it is read -----------------------------------------------------------------

static uint32_t mutations;

// Between the pages: one member of the part read already leaves, one of the part to come joins.
static void mutate_between_pages(struct world *w)
{
	char name[16];

	if (w->pages % 2 == 0 || mutations > 20)
		return;
	snprintf(name, sizeof(name), "user-%u", 1000 + mutations);
	world_do(w, STORE_REMOVE, STORE_MEMBERS, "a", name);
	snprintf(name, sizeof(name), "a-%u", mutations);
	world_do(w, STORE_ADD, STORE_MEMBERS, "a", name);
	snprintf(name, sizeof(name), "zz-%u", mutations++);
	world_do(w, STORE_ADD, STORE_MEMBERS, "a", name);
}

CONTROL_ONLY static void a_build_waits_for_the_feed_and_replays_what_came_between(void **state)
{
	struct world *w = world_open();
	const struct tag *tag;

	(void)state;
	world_range(w, STORE_ADD, STORE_MEMBERS, "a", "user-", 0, 5000);
	world_ready(w);
	mutations = 0;
	w->on_page = mutate_between_pages;
	world_want(w, "a");
	world_step(w, 50);
	assert_true(mutations > 2);
	assert_null(world_channel(w, "a")->tag);  // the store is ahead of the feed
	assert_int_equal(world_deliver(w, w->deltas - 2), 0);
	world_step(w, 1);
	assert_int_equal(world_deliver(w, 100), 0);
	world_step(w, 2);
	assert_true(world_usable(w, "a"));
	tag = world_channel(w, "a")->tag;
	assert_int_equal(tag->count, 5000 + mutations);
	assert_int_equal(tag->smv, 1 + 3 * mutations);
	world_close(w);
}

static void reset_once(struct world *w)
{
	if (w->pages == 3)
		world_bulk(w, STORE_MEMBERS, "a", "new-", 0, 2000);
}

CONTROL_ONLY static void a_reset_between_pages_starts_the_build_anew(void **state)
{
	struct world *w = world_open();

	(void)state;
	world_range(w, STORE_ADD, STORE_MEMBERS, "a", "user-", 0, 4000);
	world_ready(w);
	w->on_page = reset_once;
	world_want(w, "a");
	world_step(w, 10);
	assert_int_equal(world_deliver(w, 10), 0);
	world_step(w, 20);
	assert_true(world_usable(w, "a"));
	assert_int_equal(world_channel(w, "a")->tag->count, 2000);
	assert_int_equal(world_count(w, CTR_TAG_BUILD_FAILED), 0);
	world_close(w);
}

CONTROL_ONLY static void reset_and_deliver(struct world *w)
{
	if (w->pages % 3 == 2)
		world_bulk(w, STORE_MEMBERS, "a", w->pages % 2 == 0 ? "new-" : "old-", 0, 2000);
	world_deliver(w, 10);
}

CONTROL_ONLY static void a_build_that_never_gets_through_fails_and_is_tried_again_later(
	void **state)
{
	struct world *w = world_open();

	(void)state;
	world_range(w, STORE_ADD, STORE_MEMBERS, "a", "user-", 0, 4000);
	world_ready(w);
	w->on_page = reset_and_deliver;
	world_want(w, "a");
	world_step(w, 100);
	assert_in_range(world_count(w, CTR_TAG_BUILD_FAILED), 1, 4);
	assert_false(world_usable(w, "a"));
	w->on_page = NULL;
	world_step(w, 2000);
	assert_true(world_usable(w, "a"));
	world_close(w);
}

CONTROL_ONLY static void too_many_deltas_start_the_build_anew(void **state)
{
	struct world *w = world_open();
	struct channel *channel;

	(void)state;
	world_range(w, STORE_ADD, STORE_MEMBERS, "a", "user-", 0, 3000);
	world_ready(w);
	channel = world_channel(w, "a");
	world_want(w, "a");
	world_step(w, 1);
	// Each leaves and comes back: more bytes than a build keeps.
	for (uint32_t i = 0; i < 40; i++) {
		world_range(w, i % 2 == 0 ? STORE_REMOVE : STORE_ADD, STORE_MEMBERS, "a", "user-",
			0, 2999);
		assert_int_equal(world_deliver(w, 1), 0);
	}
	assert_true(w->node->control->build.job[0].restart);
	assert_true(w->node->control->build.job[0].delta_bytes <= BUILD_DELTA_BYTES_MAX);
	world_step(w, 20);
	assert_true(world_usable(w, "a"));
	assert_int_equal(channel->tag->count, 3000);
	world_close(w);
}

CONTROL_ONLY static void a_channel_removed_while_it_is_read_ends_the_build(void **state)
{
	struct world *w = world_open();

	(void)state;
	world_range(w, STORE_ADD, STORE_MEMBERS, "a", "user-", 0, 4000);
	world_ready(w);
	world_want(w, "a");
	world_step(w, 1);
	assert_int_equal(w->node->control->build.jobs, 1);
	world_do(w, STORE_CHANNEL_REMOVE, 0, "a", NULL);
	world_step(w, 1);  // the store says there is none, the feed does not yet
	assert_int_equal(world_deliver(w, 1), 0);
	assert_int_equal(w->node->control->build.jobs, 0);
	assert_int_equal(w->node->control->build.waiting, 0);
	world_step(w, 100);
	assert_int_equal(world_count(w, CTR_TAG_BUILD), 0);
	world_close(w);
}

CONTROL_ONLY static void a_removed_channel_made_again_between_pages_gets_the_new_members(
	void **state)
{
	struct world *w = world_open();

	(void)state;
	world_range(w, STORE_ADD, STORE_MEMBERS, "a", "user-", 0, 2000);
	world_ready(w);
	world_want(w, "a");
	w->node->params.build_members_per_step = 500;
	world_step(w, 1);
	world_do(w, STORE_CHANNEL_REMOVE, 0, "a", NULL);
	world_do(w, STORE_ADD, STORE_MEMBERS, "a", "zoe");
	world_step(w, 20);
	assert_false(world_usable(w, "a"));
	assert_int_equal(world_deliver(w, 2), 0);
	assert_non_null(world_tag(w, "a"));
	assert_string_equal(world_members(w, "a"), "zoe");
	world_close(w);
}

CONTROL_ONLY static void a_build_starts_anew_with_the_feed(void **state)
{
	struct world *w = world_open();
	struct world_delta *lost;

	(void)state;
	world_range(w, STORE_ADD, STORE_MEMBERS, "a", "user-", 0, 4000);
	world_ready(w);
	world_want(w, "a");
	world_step(w, 1);
	// A delta is lost with the connection; a replay without it would leave user-1 in.
	world_do(w, STORE_REMOVE, STORE_MEMBERS, "a", "user-1");
	lost = w->delta;
	w->delta = NULL;
	free(lost);
	node_control_feed_lost(w->node, w->now_ns);
	world_ready(w);
	world_step(w, 20);
	assert_true(world_usable(w, "a"));
	assert_int_equal(world_channel(w, "a")->tag->count, 3999);
	world_close(w);
}

static void new_generation(struct world *w)
{
	if (w->pages == 2)
		w->generation_shift = 1;
}

CONTROL_ONLY static void f22_pages_of_two_generations_are_never_mixed(void **state)
{
	struct world *w = world_open();

	(void)state;
	world_range(w, STORE_ADD, STORE_MEMBERS, "a", "user-", 0, 4000);
	world_ready(w);
	w->on_page = new_generation;
	world_want(w, "a");
	world_step(w, 20);
	assert_null(world_channel(w, "a")->tag);
	assert_true(w->reopens > 0);
	node_control_feed_lost(w->node, w->now_ns);
	world_ready(w);
	world_step(w, 2000);
	assert_true(world_usable(w, "a"));
	world_close(w);
}

CONTROL_ONLY static void a_source_behind_the_feed_is_waited_for(void **state)
{
	struct world *w = world_open();

	(void)state;
	world_do(w, STORE_ADD, STORE_MEMBERS, "a", "ann");
	world_ready(w);
	w->node->control->feed.commit = 9;
	world_want(w, "a");
	world_step(w, 30);
	assert_null(world_channel(w, "a")->tag);
	w->node->control->feed.commit = 1;
	world_step(w, 200);
	assert_true(world_usable(w, "a"));
	world_close(w);
}

// --- faults and limits --------------------------------------------------------------------------------

CONTROL_ONLY static void a_page_that_fails_is_counted_and_read_again(void **state)
{
	struct world *w = world_open();

	(void)state;
	world_do(w, STORE_ADD, STORE_MEMBERS, "a", "ann");
	world_ready(w);
	w->page_rc = -EIO;
	world_want(w, "a");
	world_step(w, 100);
	// With growing waits: some tries, not a hundred.
	assert_in_range(world_count(w, CTR_TAG_BUILD_FAILED), 2, 6);
	w->page_rc = 0;
	world_step(w, 1200);
	assert_true(world_usable(w, "a"));
	world_close(w);
}

CONTROL_ONLY static void after_many_failures_nobody_tries_until_asked(void **state)
{
	struct world *w = world_open();
	uint64_t failed;

	(void)state;
	world_do(w, STORE_ADD, STORE_MEMBERS, "a", "ann");
	world_ready(w);
	w->page_rc = -EIO;
	world_want(w, "a");
	world_step(w, 10000);
	failed = world_count(w, CTR_TAG_BUILD_FAILED);
	assert_int_equal(failed, BUILD_ATTEMPTS_MAX + 1);
	assert_int_equal(world_channel(w, "a")->flags & CHANNEL_F_BUILDING, 0);
	world_step(w, 3000);
	assert_int_equal(world_count(w, CTR_TAG_BUILD_FAILED), failed);
	w->page_rc = 0;
	world_want(w, "a");
	world_step(w, 2);
	assert_true(world_usable(w, "a"));
	world_close(w);
}

CONTROL_ONLY static void a_full_uid_table_fails_the_build_and_leaves_nothing_held(void **state)
{
	struct world *w;

	(void)state;
	world_params.uids = 1500;
	w = world_open();
	world_params.uids = 20000;
	world_range(w, STORE_ADD, STORE_MEMBERS, "a", "user-", 0, 2000);
	world_do(w, STORE_ADD, STORE_MEMBERS, "b", "ann");
	world_ready(w);
	world_want(w, "a");
	world_step(w, 5);
	assert_true(world_count(w, CTR_LIMIT_UIDS) >= 1);
	assert_true(world_count(w, CTR_TAG_BUILD_FAILED) >= 1);
	assert_int_equal(presence_uid_count(w->node->presence), 0);
	world_close(w);
}

CONTROL_ONLY static void used_up_tag_memory_fails_the_build(void **state)
{
	struct world *w;

	(void)state;
	world_params.tag_bytes = 12000;
	w = world_open();
	world_params.tag_bytes = 8 << 20;
	world_range(w, STORE_ADD, STORE_MEMBERS, "a", "user-", 0, 4000);
	world_range(w, STORE_ADD, STORE_MEMBERS, "b", "user-", 0, 10);
	world_ready(w);
	world_want(w, "a");
	world_step(w, 5);
	assert_true(world_count(w, CTR_LIMIT_TAG_MEMORY) >= 1);
	assert_null(world_channel(w, "a")->tag);
	assert_non_null(world_tag(w, "b"));
	world_close(w);
}

CONTROL_ONLY static void a_malformed_page_fails_the_build(void **state)
{
	struct world *w = world_open();

	(void)state;
	world_do(w, STORE_ADD, STORE_MEMBERS, "a", "ann");
	world_ready(w);
	w->page_garble = true;
	world_want(w, "a");
	world_step(w, 3);
	assert_int_equal(world_count(w, CTR_TAG_BUILD_FAILED), 1);
	assert_null(world_channel(w, "a")->tag);
	world_close(w);
}

// --- fairness and idle tags ---------------------------------------------------------------------------

CONTROL_ONLY static void small_builds_do_not_wait_for_a_big_one(void **state)
{
	struct world *w = world_open();
	uint32_t steps = 0;
	char name[16];

	(void)state;
	for (uint32_t from = 0; from < 16000; from += 4000)
		world_range(w, STORE_ADD, STORE_MEMBERS, "big", "user-", from, from + 4000);
	for (uint32_t i = 0; i < 8; i++) {
		snprintf(name, sizeof(name), "small-%u", i);
		world_range(w, STORE_ADD, STORE_MEMBERS, name, "user-", 0, 20);
	}
	world_ready(w);
	world_want(w, "big");
	world_step(w, 1);
	for (uint32_t i = 0; i < 8; i++) {
		snprintf(name, sizeof(name), "small-%u", i);
		world_want(w, name);
	}
	while (!world_usable(w, "small-7") && steps++ < 100)
		world_step(w, 1);
	assert_in_range(steps, 0, 3);
	assert_false(world_usable(w, "big"));
	world_step(w, 40);
	assert_true(world_usable(w, "big"));
	world_close(w);
}

CONTROL_ONLY static void idle_tags_are_taken_off_and_used_ones_stay(void **state)
{
	struct world *w;
	struct node_tag_info info;
	uint32_t at = 0;

	(void)state;
	world_params.tag_ttl_ns = 10 * SECOND;
	w = world_open();
	world_params.tag_ttl_ns = 0;
	world_do(w, STORE_ADD, STORE_MEMBERS, "a", "ann");
	world_do(w, STORE_ADD, STORE_MEMBERS, "b", "ann");
	world_ready(w);
	assert_non_null(world_tag(w, "a"));
	assert_non_null(world_tag(w, "b"));
	w->now_ns += 9 * SECOND;
	atomic_store(&world_channel(w, "b")->tag->used_ns, w->now_ns);
	w->now_ns += 2 * SECOND;
	world_step(w, 2);
	assert_null(world_channel(w, "a")->tag);
	assert_true(world_usable(w, "b"));
	assert_int_equal(world_count(w, CTR_TAG_EXPIRED), 1);
	assert_true(node_next_tag(w->node, &at, w->now_ns, &info));
	assert_int_equal(info.channel.bytes[0], 'b');
	assert_int_equal(info.members, 1);
	assert_in_range(info.idle_ns, 2 * SECOND, 3 * SECOND);
	assert_false(node_next_tag(w->node, &at, w->now_ns, &info));
	assert_non_null(world_tag(w, "a"));
	world_close(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_tag_is_built_from_pages_and_its_worker_woken),
		cmocka_unit_test(a_step_handles_no_more_members_than_it_may),
		cmocka_unit_test(a_current_tag_is_not_built_again),
		cmocka_unit_test(a_tag_of_another_topology_is_built_again),
		cmocka_unit_test(without_a_known_leader_no_tag_is_built),
		cmocka_unit_test(requests_for_a_record_given_away_are_ignored),
		cmocka_unit_test(a_build_waits_for_the_feed_and_replays_what_came_between),
		cmocka_unit_test(a_reset_between_pages_starts_the_build_anew),
		cmocka_unit_test(a_build_that_never_gets_through_fails_and_is_tried_again_later),
		cmocka_unit_test(too_many_deltas_start_the_build_anew),
		cmocka_unit_test(a_channel_removed_while_it_is_read_ends_the_build),
		cmocka_unit_test(a_removed_channel_made_again_between_pages_gets_the_new_members),
		cmocka_unit_test(a_build_starts_anew_with_the_feed),
		cmocka_unit_test(f22_pages_of_two_generations_are_never_mixed),
		cmocka_unit_test(a_source_behind_the_feed_is_waited_for),
		cmocka_unit_test(a_page_that_fails_is_counted_and_read_again),
		cmocka_unit_test(after_many_failures_nobody_tries_until_asked),
		cmocka_unit_test(a_full_uid_table_fails_the_build_and_leaves_nothing_held),
		cmocka_unit_test(used_up_tag_memory_fails_the_build),
		cmocka_unit_test(a_malformed_page_fails_the_build),
		cmocka_unit_test(small_builds_do_not_wait_for_a_big_one),
		cmocka_unit_test(idle_tags_are_taken_off_and_used_ones_stay),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
