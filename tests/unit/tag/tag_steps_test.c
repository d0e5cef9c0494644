/* SPDX-License-Identifier: BSD-3-Clause */
#include "tag_fixture.h"

#include <errno.h>

CONTROL_ONLY static void steps_lead_from_an_older_version_to_the_tag(void **state)
{
	struct fixture *f = fixture_new(100, 1 << 20, 4);
	struct tag *tag = build_range(f, 0, 10, 1);
	const uint32_t remove = 5;

	(void)state;
	for (uint32_t n = 20; n < 22; n++)
		tag = edit_names(f, tag, &n, 1, &remove, 1);
	assert_int_equal(tag_steps_since(f->space, tag, 3), 0);
	assert_int_equal(tag_steps_since(f->space, tag, 2), 1);
	assert_int_equal(tag_steps_since(f->space, tag, 1), 2);
	assert_int_equal(tag_steps_since(f->space, tag, 0), -ESTALE);
	assert_int_equal(tag_steps_since(f->space, tag, 4), -ESTALE);
	// The first took user-5 out, the second found it gone: steps tell what changed.
	assert_int_equal(tag_step_of(f->space, tag, 2)->adds, 1);
	assert_int_equal(tag_step_of(f->space, tag, 2)->removes, 1);
	assert_int_equal(tag_step_of(f->space, tag, 3)->removes, 0);
	assert_null(tag_step_of(f->space, tag, 1));
	assert_null(tag_step_of(f->space, tag, 4));
	fixture_free(f);
}

CONTROL_ONLY static void old_steps_make_room_for_new_ones(void **state)
{
	struct fixture *f = fixture_new(1000, 1 << 20, 4);
	struct tag *tag = build_range(f, 0, 10, 1);

	(void)state;
	for (uint32_t n = 20; n < 40; n++)
		tag = edit_names(f, tag, &n, 1, NULL, 0);
	assert_int_equal(tag->fence.version, 21);
	assert_int_equal(tag_steps_since(f->space, tag, 17), 4);
	assert_int_equal(tag_steps_since(f->space, tag, 16), -ESTALE);
	for (uint64_t v = 18; v <= 21; v++)
		assert_int_equal(tag_step_of(f->space, tag, v)->version, v);
	fixture_free(f);
}

CONTROL_ONLY static void a_uid_in_a_kept_step_stays_valid(void **state)
{
	struct fixture *f = fixture_new(100, 1 << 20, 2);
	struct tag *tag = build_range(f, 0, 3, 1), *next;
	const uint32_t remove = 1;
	const uint32_t index = presence_uid_find(f->presence, uid_of(f, 1));

	(void)state;
	next = edit_names(f, tag, NULL, 0, &remove, 1);
	tag_retire(f->space, tag);
	settle(f);
	assert_int_equal(tag_step_of(f->space, next, 2)->uid[0], index);
	assert_true(id_equal(presence_uid_name(f->presence, index), uid_of(f, 1)));
	for (uint32_t n = 20; n < 22; n++)
		next = edit_names(f, next, &n, 1, NULL, 0);
	settle(f);
	assert_int_equal(presence_uid_find(f->presence, uid_of(f, 1)), 0);
	fixture_free(f);
}

CONTROL_ONLY static void a_rebuild_and_too_large_a_step_end_the_chain(void **state)
{
	static uint32_t many[TAG_STEP_UIDS_MAX + 1];
	struct fixture *f = fixture_new(10000, 1 << 24, 8);
	struct tag *tag = build_range(f, 0, 3, 1);
	uint32_t one = 5;

	(void)state;
	tag = edit_names(f, tag, &one, 1, NULL, 0);
	for (uint32_t i = 0; i <= TAG_STEP_UIDS_MAX; i++)
		many[i] = 100 + i;
	tag = edit_names(f, tag, many, TAG_STEP_UIDS_MAX + 1, NULL, 0);
	assert_int_equal(tag_steps_since(f->space, tag, 2), -ESTALE);
	assert_int_equal(tag_steps_since(f->space, tag, 3), 0);
	one = 6;
	tag = edit_names(f, tag, &one, 1, NULL, 0);
	assert_int_equal(tag_steps_since(f->space, tag, 3), 1);
	tag = tag_rebuild(f->space, tag, NULL, 0, 9, &f->ref);
	assert_int_equal(tag_steps_since(f->space, tag, 4), -ESTALE);
	assert_null(tag_step_of(f->space, tag, 4));
	fixture_free(f);
}

CONTROL_ONLY static void without_room_for_steps_edits_go_on(void **state)
{
	struct fixture *f = fixture_new(100, 1 << 20, 0);
	struct tag *tag = build_range(f, 0, 3, 1);
	const uint32_t one = 5;

	(void)state;
	tag = edit_names(f, tag, &one, 1, NULL, 0);
	assert_int_equal(tag->count, 4);
	assert_int_equal(tag_steps_since(f->space, tag, 1), -ESTALE);
	fixture_free(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(steps_lead_from_an_older_version_to_the_tag),
		cmocka_unit_test(old_steps_make_room_for_new_ones),
		cmocka_unit_test(a_uid_in_a_kept_step_stays_valid),
		cmocka_unit_test(a_rebuild_and_too_large_a_step_end_the_chain),
		cmocka_unit_test(without_room_for_steps_edits_go_on),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
