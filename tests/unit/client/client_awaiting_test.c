/* SPDX-License-Identifier: BSD-3-Clause */
#include "client_test_common.h"

#include "client_awaiting.h"

static struct client_await of(uint64_t print, uint32_t push_id)
{
	return (struct client_await){
		.print = print, .push_id = push_id, .position = 3, .worker = 1};
}

static void a_delivery_is_found_by_its_print(void **state)
{
	struct client_awaiting *a = client_awaiting_create(16);
	struct client_await one = of(11, 1), two = of(12, 2);

	(void)state;
	client_awaiting_put(a, &one);
	client_awaiting_put(a, &two);
	assert_int_equal(client_awaiting_find(a, 11)->push_id, 1);
	assert_int_equal(client_awaiting_find(a, 12)->push_id, 2);
	assert_null(client_awaiting_find(a, 13));
	client_awaiting_destroy(a);
}

static void a_second_delivery_of_the_same_print_replaces_the_first(void **state)
{
	struct client_awaiting *a = client_awaiting_create(16);
	struct client_await one = of(11, 1), two = of(11, 2);

	(void)state;
	client_awaiting_put(a, &one);
	client_awaiting_put(a, &two);
	assert_int_equal(client_awaiting_find(a, 11)->push_id, 2);
	client_awaiting_drop(a, 11);
	assert_null(client_awaiting_find(a, 11));
	client_awaiting_destroy(a);
}

static void the_ring_keeps_exactly_the_last_entries(void **state)
{
	struct client_awaiting *a = client_awaiting_create(20);

	(void)state;
	// Prints that share chains: 16 apart in a table of 32 heads.
	for (uint64_t i = 1; i <= 100; i++) {
		const struct client_await one = of(i * 16, (uint32_t)i);

		client_awaiting_put(a, &one);
		for (uint64_t k = 1; k <= i; k++) {
			const struct client_await *found = client_awaiting_find(a, k * 16);

			if (k + 20 <= i)
				assert_null(found);
			else
				assert_int_equal(found->push_id, k);
		}
	}
	client_awaiting_destroy(a);
}

static void a_dropped_entry_does_not_take_a_live_one_with_it(void **state)
{
	struct client_awaiting *a = client_awaiting_create(16);

	(void)state;
	for (uint64_t i = 1; i <= 16; i++) {
		const struct client_await one = of(i * 16, (uint32_t)i);

		client_awaiting_put(a, &one);
	}
	client_awaiting_drop(a, 16);
	client_awaiting_drop(a, 16);
	for (uint64_t i = 17; i <= 31; i++) {
		const struct client_await one = of(i * 16, (uint32_t)i);

		client_awaiting_put(a, &one);
		assert_int_equal(client_awaiting_find(a, i * 16)->push_id, i);
	}
	assert_int_equal(client_awaiting_find(a, 16 * 16)->push_id, 16);
	client_awaiting_destroy(a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_delivery_is_found_by_its_print),
		cmocka_unit_test(a_second_delivery_of_the_same_print_replaces_the_first),
		cmocka_unit_test(the_ring_keeps_exactly_the_last_entries),
		cmocka_unit_test(a_dropped_entry_does_not_take_a_live_one_with_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
