/* SPDX-License-Identifier: BSD-3-Clause */
#include "tag_fixture.h"

CONTROL_ONLY static void a_pinned_tag_outlives_its_retirement(void **state)
{
	struct fixture *f = fixture_new(100, 1 << 20, 8);
	struct tag *tag = build_range(f, 0, 10, 1);

	(void)state;
	tag_pin(tag);
	tag_retire(f->space, tag);
	settle(f);
	assert_int_equal(presence_uid_count(f->presence), 10);
	assert_int_equal(tag->count, 10);
	tag_unpin(tag);
	settle(f);
	assert_int_equal(presence_uid_count(f->presence), 0);
	assert_int_equal(tag_space_bytes(f->space), 0);
	fixture_free(f);
}

CONTROL_ONLY static void nothing_is_freed_before_the_grace_period(void **state)
{
	struct fixture *f = fixture_new(100, 1 << 20, 8);
	struct tag *tag = build_range(f, 0, 10, 1);

	(void)state;
	tag_retire(f->space, tag);
	assert_int_equal(tag_space_step(f->space, SECOND), 0);
	assert_int_equal(presence_uid_count(f->presence), 10);
	rcu_reclaim(&f->retire);
	assert_int_equal(tag_space_step(f->space, SECOND), 1);
	assert_int_equal(presence_uid_count(f->presence), 0);
	fixture_free(f);
}

CONTROL_ONLY static void a_removed_uid_lives_while_any_pinned_version_names_it(void **state)
{
	struct fixture *f = fixture_new(100, 1 << 20, 0);
	struct tag *v1 = build_range(f, 0, 3, 1), *v2, *v3, *v4;
	const uint32_t add = 7, remove = 1;
	uint32_t index;

	(void)state;
	v2 = edit_names(f, v1, &add, 1, NULL, 0);
	v3 = edit_names(f, v2, NULL, 0, &remove, 1);
	v4 = edit_names(f, v3, NULL, 0, &add, 1);
	index = presence_uid_find(f->presence, uid_of(f, 1));
	tag_pin(v1);
	tag_retire(f->space, v1);
	tag_retire(f->space, v2);
	tag_retire(f->space, v3);
	settle(f);
	// v1 is pinned and names user-1; v2 and v3, which lost user-1 and user-7, are gone.
	assert_int_equal(presence_uid_find(f->presence, uid_of(f, 1)), index);
	assert_true(id_equal(presence_uid_name(f->presence, index), uid_of(f, 1)));
	tag_unpin(v1);
	settle(f);
	assert_int_equal(presence_uid_find(f->presence, uid_of(f, 1)), 0);
	assert_int_equal(presence_uid_find(f->presence, uid_of(f, 7)), 0);
	assert_int_equal(presence_uid_count(f->presence), 2);
	assert_int_equal(v4->count, 2);
	fixture_free(f);
}

CONTROL_ONLY static void an_ended_incarnation_keeps_members_for_older_pinned_versions(void **state)
{
	struct fixture *f = fixture_new(100, 1 << 20, 8);
	struct tag *v1 = build_range(f, 0, 3, 1), *v2;
	const uint32_t add = 7;

	(void)state;
	v2 = edit_names(f, v1, &add, 1, NULL, 0);
	tag_pin(v1);
	tag_retire(f->space, v1);
	tag_retire(f->space, v2);
	settle(f);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_not_equal(presence_uid_find(f->presence, uid_of(f, i)), 0);
	tag_unpin(v1);
	settle(f);
	assert_int_equal(presence_uid_count(f->presence), 0);
	fixture_free(f);
}

CONTROL_ONLY static void a_large_tag_is_freed_in_bounded_pieces(void **state)
{
	enum { N = 3 * TAG_FREE_UIDS };
	struct fixture *f = fixture_new(N + 1, 1 << 24, 8);
	struct tag *tag = build_range(f, 0, N, 1);
	uint32_t left = N, calls = 0;

	(void)state;
	tag_retire(f->space, tag);
	rcu_reclaim(&f->retire);
	while (tag_space_step(f->space, SECOND) != 0) {
		const uint32_t now = presence_uid_count(f->presence);

		assert_true(left - now <= TAG_FREE_UIDS);
		left = now;
		calls++;
	}
	assert_int_equal(left, 0);
	assert_in_range(calls, 3, 4);
	fixture_free(f);
}

CONTROL_ONLY static void keys_follow_from_a_seed_or_are_random(void **state)
{
	struct fixture *f = fixture_new(10, 1 << 20, 8), *g = fixture_new(10, 1 << 20, 8);
	struct tag *a = build_range(f, 0, 1, 1), *b = build_range(g, 0, 1, 1);

	(void)state;
	assert_memory_equal(a->fence.key, b->fence.key, 16);
	f->space->seeded = g->space->seeded = false;
	a = build_range(f, 0, 1, 1);
	b = build_range(g, 0, 1, 1);
	assert_memory_not_equal(a->fence.key, b->fence.key, 16);
	fixture_free(f);
	fixture_free(g);
}

CONTROL_ONLY static void a_tag_remembers_its_topology(void **state)
{
	struct fixture *f = fixture_new(100, 1 << 20, 8);
	struct tag *a, *b;
	struct tag_edit e = {.smv = 2};

	(void)state;
	assert_int_equal(topology_ref_add(&f->ref, &f->topology, 3), 0);
	a = build_range(f, 0, 3, 1);
	assert_int_equal(tag_topology(a)->count, 1);
	assert_int_equal(topology_ref_add(&f->ref, &f->topology, 5), 0);
	b = tag_edit(f->space, a, &e);
	assert_int_equal(tag_topology(b)->count, 1);
	e.topology = &f->ref;
	b = tag_edit(f->space, b, &e);
	assert_int_equal(tag_topology(b)->count, 2);
	assert_true(topology_ref_current(tag_topology(b), &f->topology));
	fixture_free(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_pinned_tag_outlives_its_retirement),
		cmocka_unit_test(nothing_is_freed_before_the_grace_period),
		cmocka_unit_test(a_removed_uid_lives_while_any_pinned_version_names_it),
		cmocka_unit_test(an_ended_incarnation_keeps_members_for_older_pinned_versions),
		cmocka_unit_test(a_large_tag_is_freed_in_bounded_pieces),
		cmocka_unit_test(keys_follow_from_a_seed_or_are_random),
		cmocka_unit_test(a_tag_remembers_its_topology),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
