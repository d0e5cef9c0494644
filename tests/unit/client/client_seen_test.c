/* SPDX-License-Identifier: BSD-3-Clause */
#include "client_test_common.h"

#include "client_seen.h"

static void a_print_is_seen_only_after_it_was_added(void **state)
{
	struct client_seen *seen = client_seen_create(64, 1000);

	(void)state;
	assert_false(client_seen_has(seen, 5, 0));
	client_seen_add(seen, 5, 0);
	assert_true(client_seen_has(seen, 5, 0));
	assert_false(client_seen_has(seen, 6, 0));
	client_seen_destroy(seen);
}

static void print_zero_works_like_any_other(void **state)
{
	struct client_seen *seen = client_seen_create(64, 1000);

	(void)state;
	assert_false(client_seen_has(seen, 0, 0));
	client_seen_add(seen, 0, 0);
	assert_true(client_seen_has(seen, 0, 0));
	client_seen_destroy(seen);
}

static void the_last_entries_are_always_remembered(void **state)
{
	struct client_seen *seen = client_seen_create(100, 1000000);
	const uint64_t total = 1234;

	(void)state;
	for (uint64_t i = 1; i <= total; i++) {
		client_seen_add(seen, i * 0x9e3779b97f4a7c15u, 1);
		for (uint64_t back = 0; back < 100 && back < i; back++)
			assert_true(client_seen_has(seen, (i - back) * 0x9e3779b97f4a7c15u, 1));
	}
	// And at most twice as many.
	for (uint64_t i = 1; i <= total - 200; i++)
		assert_false(client_seen_has(seen, i * 0x9e3779b97f4a7c15u, 1));
	client_seen_destroy(seen);
}

static void a_print_is_forgotten_after_its_age(void **state)
{
	struct client_seen *seen = client_seen_create(64, 1000);

	(void)state;
	client_seen_add(seen, 5, 10000);
	assert_true(client_seen_has(seen, 5, 10000 + 499));
	client_seen_add(seen, 6, 10000 + 900);
	assert_false(client_seen_has(seen, 5, 10000 + 1900));
	client_seen_destroy(seen);
}

static void silence_longer_than_the_age_forgets_all_at_once(void **state)
{
	struct client_seen *seen = client_seen_create(64, 1000);

	(void)state;
	client_seen_add(seen, 5, 10000);
	assert_false(client_seen_has(seen, 5, 50000));
	client_seen_destroy(seen);
}

static void sizes_out_of_range_are_refused(void **state)
{
	(void)state;
	assert_null(client_seen_create(15, 1000));
	assert_null(client_seen_create((1u << 24) + 1, 1000));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_print_is_seen_only_after_it_was_added),
		cmocka_unit_test(print_zero_works_like_any_other),
		cmocka_unit_test(the_last_entries_are_always_remembered),
		cmocka_unit_test(a_print_is_forgotten_after_its_age),
		cmocka_unit_test(silence_longer_than_the_age_forgets_all_at_once),
		cmocka_unit_test(sizes_out_of_range_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
