/* SPDX-License-Identifier: BSD-3-Clause */
// De-duplication keys: applied once, answered again, forgotten after the window, never applied twice.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>

#include "store_bench.h"

static struct store_bench b;

static int setup(void **state)
{
	(void)state;
	store_bench_open(&b);
	b.limits.dedup_commits = 10;
	return 0;
}
static int teardown(void **state)
{
	(void)state;
	store_bench_close(&b);
	return 0;
}

static struct store_result keyed(uint8_t op, const char *uids, uint64_t base, uint64_t unique)
{
	struct store_command cmd = store_bench_command(op, "g", uids);

	store_dedup_key(cmd.dedup, base, unique);
	return store_bench_apply(&b, &cmd);
}

// Moves the commit number on.
static void commits(uint32_t count)
{
	static uint32_t n;

	for (uint32_t i = 0; i < count; i++) {
		char uid[16];

		snprintf(uid, sizeof(uid), "n%u", n++);
		assert_int_equal(store_bench_do(&b, STORE_ADD, "noise", uid).code, STORE_R_OK);
	}
}

static void a_retry_applies_nothing_and_gets_the_first_result(void **state)
{
	struct store_result first, again;

	(void)state;
	first = keyed(STORE_ADD, "a", 0, 1);
	assert_true(first.code == STORE_R_OK && first.repeated == 0 && first.commit == 1);
	store_bench_do(&b, STORE_REMOVE, "g", "a");
	again = keyed(STORE_ADD, "a", 0, 1);
	assert_int_equal(again.repeated, 1);
	assert_int_equal(b.deltas, 0);
	assert_true(again.code == first.code && again.commit == first.commit &&
		    again.smv == first.smv && again.changed == first.changed);
	assert_string_equal(store_bench_list(&b, "g", STORE_MEMBERS), "");
	assert_int_equal(store_bench_position(&b).commit, 2);
}

static void a_result_that_changed_nothing_is_remembered_too(void **state)
{
	(void)state;
	store_bench_do(&b, STORE_ADD, "g", "a");
	assert_int_equal(keyed(STORE_ADD, "a", 1, 1).code, STORE_R_NO_CHANGE);
	store_bench_do(&b, STORE_REMOVE, "g", "a");
	assert_int_equal(keyed(STORE_ADD, "a", 1, 1).repeated, 1);
	assert_string_equal(store_bench_list(&b, "g", STORE_MEMBERS), "");
}

static void a_retry_after_the_window_is_expired_not_applied(void **state)
{
	(void)state;
	keyed(STORE_ADD, "a", 0, 1);
	store_bench_do(&b, STORE_REMOVE, "g", "a");
	commits(9);  // commit 11: the record is of commit 1, ten back
	assert_int_equal(keyed(STORE_ADD, "a", 0, 1).code, STORE_R_OK);
	assert_int_equal(b.result.repeated, 1);
	commits(1);
	assert_int_equal(keyed(STORE_ADD, "a", 0, 1).code, STORE_R_EXPIRED);
	commits(50);
	assert_int_equal(keyed(STORE_ADD, "a", 0, 1).code, STORE_R_EXPIRED);
	assert_string_equal(store_bench_list(&b, "g", STORE_MEMBERS), "");
}

// At every distance: either the recorded answer or EXPIRED.
static void no_age_of_a_key_applies_it_twice(void **state)
{
	(void)state;
	for (uint32_t age = 0; age < 25; age++) {
		const uint64_t base = store_bench_position(&b).commit;

		commits(age % 5);
		if (keyed(STORE_ADD, "a", base, age + 1).code != STORE_R_OK)
			fail();
		commits(age);
		store_bench_do(&b, STORE_REMOVE, "g", "a");
		keyed(STORE_ADD, "a", base, age + 1);
		assert_true(b.result.repeated == 1 || b.result.code == STORE_R_EXPIRED);
		assert_string_equal(store_bench_list(&b, "g", STORE_MEMBERS), "");
	}
}

static void a_base_in_the_future_is_invalid(void **state)
{
	(void)state;
	assert_int_equal(keyed(STORE_ADD, "a", 1, 1).code, STORE_R_INVALID);
	assert_int_equal(keyed(STORE_ADD, "a", UINT64_MAX, 1).code, STORE_R_INVALID);
	assert_string_equal(store_bench_list(&b, "g", STORE_MEMBERS), "-");
}

static void busy_is_not_remembered(void **state)
{
	(void)state;
	store_bench_stage(&b, 5, STORE_ADD, "g", "x");
	assert_int_equal(keyed(STORE_ADD, "a", 0, 1).code, STORE_R_BUSY);
	store_bench_close_stage(&b, 5, STORE_ADD, "g");
	assert_int_equal(keyed(STORE_ADD, "a", 0, 1).code, STORE_R_OK);
	assert_int_equal(b.result.repeated, 0);
}

static void the_table_stays_bounded(void **state)
{
	(void)state;
	for (uint64_t i = 0; i < 200; i++) {
		keyed(i % 2 == 0 ? STORE_ADD : STORE_REMOVE, "a", i, i);
		assert_true(store_map_rows(b.map, STORE_T_DEDUP) <= 2 * 12);
	}
	// Commands that change nothing and move no commit number.
	for (uint64_t i = 0; i < 200; i++)
		assert_int_equal(keyed(STORE_REMOVE, "a", 200, 1000 + i).code, STORE_R_NO_CHANGE);
	assert_true(store_map_rows(b.map, STORE_T_DEDUP) <= 2 * (2 * 10 + 2));
	commits(40);
	assert_int_equal(store_map_rows(b.map, STORE_T_DEDUP), 0);
}

static void chunks_and_closes_are_applied_once(void **state)
{
	struct store_command chunk = store_bench_command(STORE_STAGE, "g", "a b"), close;

	(void)state;
	chunk.stage_id = 5;
	chunk.staged_op = STORE_ADD;
	store_dedup_key(chunk.dedup, 0, 1);
	assert_int_equal(store_bench_apply(&b, &chunk).changed, 2);
	chunk = store_bench_command(STORE_STAGE, "g", "a b");
	chunk.stage_id = 5;
	chunk.staged_op = STORE_ADD;
	store_dedup_key(chunk.dedup, 0, 1);
	assert_int_equal(store_bench_apply(&b, &chunk).repeated, 1);
	close = store_bench_command(STORE_CLOSE, "g", NULL);
	close.stage_id = 5;
	close.staged_op = STORE_ADD;
	close.uid_count = 2;
	store_dedup_key(close.dedup, 0, 2);
	assert_int_equal(store_bench_apply(&b, &close).smv, 1);
	assert_int_equal(store_bench_apply(&b, &close).repeated, 1);
	assert_int_equal(b.result.smv, 1);
	// A late chunk does not open the stage again.
	chunk = store_bench_command(STORE_STAGE, "g", "a b");
	chunk.stage_id = 5;
	chunk.staged_op = STORE_ADD;
	store_dedup_key(chunk.dedup, 0, 1);
	assert_int_equal(store_bench_apply(&b, &chunk).repeated, 1);
	assert_int_equal(store_bench_do(&b, STORE_ADD, "g", "c").code, STORE_R_OK);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(a_retry_applies_nothing_and_gets_the_first_result),
		T(a_result_that_changed_nothing_is_remembered_too),
		T(a_retry_after_the_window_is_expired_not_applied),
		T(no_age_of_a_key_applies_it_twice),
		T(a_base_in_the_future_is_invalid),
		T(busy_is_not_remembered),
		T(the_table_stays_bounded),
		T(chunks_and_closes_are_applied_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
