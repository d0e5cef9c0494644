/* SPDX-License-Identifier: BSD-3-Clause */
#include "presence_fixture.h"

static struct id_view name_of(uint8_t bytes[256], uint32_t n, uint8_t len)
{
	for (uint32_t i = 0; i < len; i++)
		bytes[i] = (uint8_t)(n * 31 + i * 7 + (n >> 8));
	return id_view_of(bytes, len);
}

static void names_of_all_lengths_are_kept_apart(void **state)
{
	struct names names;
	uint32_t cell[256];
	uint8_t bytes[256];

	(void)state;
	assert_int_equal(names_init(&names, 64), 0);
	for (uint32_t len = 1; len <= 255; len++)
		cell[len] = names_put(&names, name_of(bytes, len, (uint8_t)len));
	for (uint32_t len = 1; len <= 255; len++) {
		const struct id_view want = name_of(bytes, len, (uint8_t)len);

		assert_memory_equal(names_at(&names, cell[len]), want.bytes, len);
	}
	names_fini(&names);
}

static void random_puts_and_frees_keep_every_name(void **state)
{
	enum { LIVE = 3000 };
	static struct {
		uint32_t cell, n;
		uint8_t len;
	} live[LIVE];
	struct names names;
	uint8_t bytes[256];
	uint32_t seed = 1;

	(void)state;
	assert_int_equal(names_init(&names, 4096), 0);
	for (uint32_t round = 0; round < 100000; round++) {
		const uint32_t i = (seed = seed * 1664525 + 1013904223) % LIVE;

		if (live[i].len != 0) {
			const struct id_view want = name_of(bytes, live[i].n, live[i].len);

			assert_memory_equal(names_at(&names, live[i].cell), want.bytes, want.len);
			names_free(&names, live[i].cell);
			live[i].len = 0;
			continue;
		}
		live[i].n = round;
		live[i].len = (uint8_t)(1 + (seed >> 16) % 255);
		live[i].cell = names_put(&names, name_of(bytes, round, live[i].len));
		assert_int_not_equal(live[i].cell, NAME_NONE);
	}
	for (uint32_t i = 0; i < LIVE; i++)
		if (live[i].len != 0)
			names_free(&names, live[i].cell);
	assert_int_equal(names.bytes, 0);
	names_fini(&names);
}

static void a_page_changes_size_class_when_empty(void **state)
{
	struct names names;
	uint8_t bytes[256];
	uint32_t small, large;

	(void)state;
	assert_int_equal(names_init(&names, 1), 0);
	small = names_put(&names, name_of(bytes, 1, 4));
	assert_int_equal(names_put(&names, name_of(bytes, 1, 200)), NAME_NONE);
	names_free(&names, small);
	large = names_put(&names, name_of(bytes, 1, 200));
	assert_int_not_equal(large, NAME_NONE);
	names_free(&names, large);
	names_fini(&names);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_of_all_lengths_are_kept_apart),
		cmocka_unit_test(random_puts_and_frees_keep_every_name),
		cmocka_unit_test(a_page_changes_size_class_when_empty),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
