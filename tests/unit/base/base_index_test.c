/* SPDX-License-Identifier: BSD-3-Clause */
// The hash index against a model: insert, find, remove, limits, equal hashes.
#include "base_index.h"

#include <errno.h>
#include <stdlib.h>

#include "unit.h"

static int found(const struct index *index, uint64_t hash, uint32_t value)
{
	struct index_cursor cur;
	uint32_t v;

	index_first(index, hash, &cur);
	while ((v = index_next(index, &cur)) != 0)
		if (v == value)
			return 1;
	return 0;
}

static void everything_inserted_is_found_up_to_the_limit(void **state)
{
	const uint32_t limit = 100000;
	uint64_t seed = 42;
	uint64_t *hash = calloc(limit, sizeof(*hash));
	struct index index;

	assert_int_equal(index_init(&index, limit), 0);
	for (uint32_t i = 0; i < limit; i++) {
		hash[i] = unit_random(&seed);
		assert_int_equal(index_insert(&index, hash[i], i + 1), 0);
	}
	assert_int_equal(index_insert(&index, 7, limit + 1), -ENOSPC);
	for (uint32_t i = 0; i < limit; i++)
		assert_true(found(&index, hash[i], i + 1));
	for (uint32_t i = 0; i < limit; i += 2)
		assert_int_equal(index_remove(&index, hash[i], i + 1), 0);
	for (uint32_t i = 0; i < limit; i++)
		assert_int_equal(found(&index, hash[i], i + 1), i % 2);
	assert_int_equal(index.count, limit / 2);
	index_fini(&index);
	free(hash);
}

static void remove_of_an_absent_value_says_so(void **state)
{
	struct index index;

	assert_int_equal(index_init(&index, 8), 0);
	assert_int_equal(index_insert(&index, 1, 5), 0);
	assert_int_equal(index_remove(&index, 1, 6), -ENOENT);
	assert_int_equal(index_remove(&index, 1, 5), 0);
	assert_int_equal(index_remove(&index, 1, 5), -ENOENT);
	index_fini(&index);
}

static void equal_hashes_are_all_walked_and_their_excess_is_refused(void **state)
{
	struct index index;
	uint32_t taken = 0, seen = 0;
	struct index_cursor cur;

	assert_int_equal(index_init(&index, 64), 0);
	for (uint32_t i = 1; i <= 32; i++)
		taken += index_insert(&index, UINT64_C(0x123456789abcdef), i) == 0;
	assert_int_equal(taken, 2 * INDEX_BUCKET_SLOTS);
	index_first(&index, UINT64_C(0x123456789abcdef), &cur);
	while (index_next(&index, &cur) != 0)
		seen++;
	assert_int_equal(seen, taken);
	index_fini(&index);
}

static void init_refuses_counts_out_of_range(void **state)
{
	struct index index;

	assert_int_equal(index_init(&index, 0), -EINVAL);
	assert_int_equal(index_init(&index, UINT32_MAX), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(everything_inserted_is_found_up_to_the_limit),
		cmocka_unit_test(remove_of_an_absent_value_says_so),
		cmocka_unit_test(equal_hashes_are_all_walked_and_their_excess_is_refused),
		cmocka_unit_test(init_refuses_counts_out_of_range),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
