/* SPDX-License-Identifier: BSD-3-Clause */
// Zeroed lines.
#include "base_memory.h"

#include <stdint.h>

#include "unit.h"

static void lines_are_zero_and_aligned(void **state)
{
	for (size_t bytes = 0; bytes < 5000; bytes += 77) {
		uint8_t *p = memory_lines(3, bytes);

		assert_non_null(p);
		assert_int_equal((uintptr_t)p % 64, 0);
		for (size_t i = 0; i < 3 * bytes; i++) {
			assert_int_equal(p[i], 0);
			p[i] = 0xff;
		}
		memory_lines_free(p);
	}
	memory_lines_free(NULL);
}

static void too_much_is_refused(void **state)
{
	assert_null(memory_lines(SIZE_MAX, 1));
	assert_null(memory_lines(SIZE_MAX / 2, 3));
	assert_null(memory_lines(3, SIZE_MAX / 2));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lines_are_zero_and_aligned),
		cmocka_unit_test(too_much_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
