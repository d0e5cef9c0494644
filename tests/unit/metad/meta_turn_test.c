/* SPDX-License-Identifier: BSD-3-Clause */
// The meter of turns: CPU that is used here, and a wall clock of the test's.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base_time.h"
#include "meta_turn.h"

static void use_cpu(uint64_t ns)
{
	const uint64_t end = meta_cpu_ns() + ns;

	while (meta_cpu_ns() < end)
		;
}

META_ONLY static void the_longest_turn_and_its_part_are_kept(void **state)
{
	struct meta_turn turn = {.turns = 0};

	// What was before the first turn is none of it.
	assert_false(meta_turn_end(&turn, 1000));
	assert_int_equal(turn.cpu_max_ns, 0);
	use_cpu(NS_PER_MS);
	meta_turn_mark(&turn, TURN_FEED);
	use_cpu(4 * NS_PER_MS);
	meta_turn_mark(&turn, TURN_COMMIT);
	assert_false(meta_turn_end(&turn, 1000 + 6 * NS_PER_MS));
	assert_true(turn.cpu_max_ns >= 5 * NS_PER_MS);
	assert_int_equal(turn.cpu_max_part, TURN_COMMIT);
	assert_true(turn.cpu_max_part_ns >= 4 * NS_PER_MS);
	assert_true(turn.cpu_max_part_ns < turn.cpu_max_ns);
	assert_int_equal(turn.wall_max_ns, 6 * NS_PER_MS);
	// A shorter one leaves it.
	meta_turn_mark(&turn, TURN_QUEUE);
	assert_false(meta_turn_end(&turn, 1000 + 7 * NS_PER_MS));
	assert_int_equal(turn.cpu_max_part, TURN_COMMIT);
	assert_int_equal(turn.turns, 3);
	assert_int_equal(turn.over, 0);
	(void)state;
}

META_ONLY static void a_turn_over_the_limit_is_told_and_counted(void **state)
{
	struct meta_turn turn = {.turns = 0};

	(void)meta_turn_end(&turn, 0);
	use_cpu(META_TURN_CPU_MAX_NS);
	meta_turn_mark(&turn, TURN_REQUESTS);
	assert_true(meta_turn_end(&turn, 1));
	assert_int_equal(turn.over, 1);
	assert_int_equal(turn.last_part, TURN_REQUESTS);
	assert_false(meta_turn_end(&turn, 2));
	assert_int_equal(turn.over, 1);
	(void)state;
}

META_ONLY static void every_part_has_a_name(void **state)
{
	for (int part = 0; part < TURN_PARTS; part++)
		assert_string_not_equal(meta_turn_part_name((enum meta_turn_part)part), "unknown");
	assert_string_equal(meta_turn_part_name(TURN_PARTS), "unknown");
	(void)state;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_longest_turn_and_its_part_are_kept),
		cmocka_unit_test(a_turn_over_the_limit_is_told_and_counted),
		cmocka_unit_test(every_part_has_a_name),
	};
	int failed;

	role_take_meta();
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	role_drop_meta();
	return failed;
}
