/* SPDX-License-Identifier: BSD-3-Clause */
// Every counter has a unique name in the form metrics want, and a text.
#include "base_counters.h"

#include <ctype.h>
#include <string.h>

#include "unit.h"

static void names_are_unique_snake_case_with_a_text(void **state)
{
	for (unsigned i = 0; i < CTR_COUNT; i++) {
		const char *name = counter_name((enum counter)i);

		assert_non_null(name);
		assert_true(strlen(counter_help((enum counter)i)) > 5);
		for (const char *c = name; *c != '\0'; c++)
			assert_true(islower((unsigned char)*c) || isdigit((unsigned char)*c) ||
				    *c == '_');
		for (unsigned j = 0; j < i; j++)
			assert_string_not_equal(name, counter_name((enum counter)j));
	}
}

static void adding_counts(void **state)
{
	static struct counters c;

	counter_add(&c, CTR_RX, 3);
	counter_add(&c, CTR_RX, 4);
	assert_int_equal(counter_get(&c, CTR_RX), 7);
	assert_int_equal(counter_get(&c, CTR_TX), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_are_unique_snake_case_with_a_text),
		cmocka_unit_test(adding_counts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
