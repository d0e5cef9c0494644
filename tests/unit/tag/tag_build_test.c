/* SPDX-License-Identifier: BSD-3-Clause */
#include "tag_fixture.h"

static int compare(const void *a, const void *b)
{
	const uint32_t x = TAG_UID(*(const uint32_t *)a), y = TAG_UID(*(const uint32_t *)b);

	return (x > y) - (x < y);
}

static void sorting_agrees_with_qsort_at_all_sizes(void **state)
{
	static const uint32_t sizes[] = {0, 1, 2, 63, 64, 65, 1000, 4097, 100000};
	static uint32_t a[100000], b[100000], other[100000];
	uint32_t seed = 1;

	(void)state;
	for (uint32_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
		for (uint32_t range = 4; range != 0; range <<= 9) {
			for (uint32_t i = 0; i < sizes[s]; i++) {
				seed = seed * 1664525 + 1013904223;
				a[i] = b[i] = (seed >> 2) % range;
			}
			tag_sort(a, other, sizes[s]);
			qsort(b, sizes[s], sizeof(*b), compare);
			assert_memory_equal(a, b, sizes[s] * sizeof(*a));
		}
	}
}

CONTROL_ONLY static void members_in_any_order_become_sorted_chunks(void **state)
{
	struct fixture *f = fixture_new(20000, 1 << 24, 8);
	static uint32_t uid[10000];
	struct tag *tag;

	(void)state;
	for (uint32_t i = 0; i < 10000; i++)
		uid[i] = hold(f, i * 7919 % 10000);
	for (uint32_t i = 0; i < 10000; i += 100)
		uid[i] |= TAG_DENIED;
	tag = tag_build(f->space, uid, 10000, 77, &f->ref);
	check_shape(tag);
	assert_int_equal(tag->count, 10000);
	assert_int_equal(tag->smv, 77);
	assert_int_equal(tag->fence.version, 1);
	assert_int_equal(tag->chunks, (10000 + TAG_FILL_UIDS - 1) / TAG_FILL_UIDS);
	for (uint32_t i = 0; i < 10000; i++)
		assert_true(tag_has(tag, presence_uid_find(f->presence, uid_of(f, i))));
	assert_false(tag_has(tag, 10001));
	assert_false(tag_has(tag, 0));
	fixture_free(f);
}

CONTROL_ONLY static void repeats_are_folded_and_give_their_references_back(void **state)
{
	struct fixture *f = fixture_new(100, 1 << 20, 8);
	uint32_t uid[6] = {hold(f, 1), hold(f, 2), hold(f, 1), hold(f, 3), hold(f, 2), hold(f, 1)};
	struct tag *tag;

	(void)state;
	uid[4] |= TAG_DENIED;
	tag = tag_build(f->space, uid, 6, 1, &f->ref);
	assert_int_equal(tag->count, 3);
	assert_int_equal(tag->chunk[0]->uid[1] & TAG_DENIED, TAG_DENIED);
	tag_retire(f->space, tag);
	settle(f);
	assert_int_equal(presence_uid_count(f->presence), 0);
	fixture_free(f);
}

CONTROL_ONLY static void an_empty_tag_is_a_tag(void **state)
{
	struct fixture *f = fixture_new(100, 1 << 20, 8);
	struct tag *tag = tag_build(f->space, NULL, 0, 3, &f->ref);
	const uint32_t one = 1;

	(void)state;
	assert_non_null(tag);
	assert_int_equal(tag->count, 0);
	assert_false(tag_has(tag, 1));
	tag = edit_names(f, tag, &one, 1, NULL, 0);
	assert_int_equal(tag->count, 1);
	tag = edit_names(f, tag, NULL, 0, &one, 1);
	assert_int_equal(tag->count, 0);
	assert_int_equal(tag->chunks, 0);
	fixture_free(f);
}

CONTROL_ONLY static void each_build_is_an_incarnation_of_its_own(void **state)
{
	struct fixture *f = fixture_new(100, 1 << 20, 8);
	struct tag *a = build_range(f, 0, 10, 1), *b = build_range(f, 0, 10, 1);

	(void)state;
	assert_memory_not_equal(a->fence.key, b->fence.key, 16);
	fixture_free(f);
}

CONTROL_ONLY static void a_rebuild_keeps_the_key_and_moves_the_version_by_one(void **state)
{
	struct fixture *f = fixture_new(100, 1 << 20, 8);
	struct tag *a = build_range(f, 0, 10, 1), *b;
	uint32_t uid[3] = {hold(f, 50), hold(f, 51), hold(f, 5)};

	(void)state;
	b = tag_rebuild(f->space, a, uid, 3, 9, &f->ref);
	assert_memory_equal(a->fence.key, b->fence.key, 16);
	assert_int_equal(b->fence.version, 2);
	assert_int_equal(b->count, 3);
	assert_int_equal(a->count, 10);
	tag_retire(f->space, a);
	settle(f);
	assert_int_equal(presence_uid_count(f->presence), 3);
	fixture_free(f);
}

CONTROL_ONLY static void after_the_highest_version_comes_a_new_key(void **state)
{
	struct fixture *f = fixture_new(100, 1 << 20, 8);
	struct tag *a = build_range(f, 0, 10, 1), *b;
	const struct tag_edit edit = {.smv = 2};
	uint32_t uid[1] = {hold(f, 50)};

	(void)state;
	a->fence.version = UINT64_MAX;
	assert_null(tag_edit(f->space, a, &edit));
	b = tag_rebuild(f->space, a, uid, 1, 2, &f->ref);
	assert_memory_not_equal(a->fence.key, b->fence.key, 16);
	assert_int_equal(b->fence.version, 1);
	tag_retire(f->space, a);
	tag_retire(f->space, b);
	settle(f);
	assert_int_equal(presence_uid_count(f->presence), 0);
	fixture_free(f);
}

CONTROL_ONLY static void without_budget_the_caller_keeps_its_references(void **state)
{
	struct fixture *f = fixture_new(2000, 4096, 8);
	static uint32_t uid[1100];
	const uint64_t before = tag_space_bytes(f->space);

	(void)state;
	for (uint32_t i = 0; i < 1100; i++)
		uid[i] = hold(f, i % 1000);
	assert_null(tag_build(f->space, uid, 1100, 1, &f->ref));
	assert_int_equal(tag_space_bytes(f->space), before);
	for (uint32_t i = 0; i < 1100; i++)
		presence_uid_drop(f->presence, TAG_UID(uid[i]), 0);
	assert_int_equal(presence_uid_count(f->presence), 0);
	fixture_free(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sorting_agrees_with_qsort_at_all_sizes),
		cmocka_unit_test(members_in_any_order_become_sorted_chunks),
		cmocka_unit_test(repeats_are_folded_and_give_their_references_back),
		cmocka_unit_test(an_empty_tag_is_a_tag),
		cmocka_unit_test(each_build_is_an_incarnation_of_its_own),
		cmocka_unit_test(a_rebuild_keeps_the_key_and_moves_the_version_by_one),
		cmocka_unit_test(after_the_highest_version_comes_a_new_key),
		cmocka_unit_test(without_budget_the_caller_keeps_its_references),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
