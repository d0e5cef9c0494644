/* SPDX-License-Identifier: BSD-3-Clause */
// Large operations: invisible until closed, whole after, counted exactly, alone on their channel.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store_bench.h"

static struct store_bench b;

static int setup(void **state)
{
	(void)state;
	store_bench_open(&b);
	return 0;
}
static int teardown(void **state)
{
	(void)state;
	store_bench_close(&b);
	return 0;
}

static struct store_result abort_stage(uint64_t id, const char *chan)
{
	struct store_command cmd = store_bench_command(STORE_ABORT, chan, NULL);

	cmd.stage_id = id;
	return store_bench_apply(&b, &cmd);
}

static void chunks_are_invisible_until_the_close(void **state)
{
	struct store_result r;

	(void)state;
	store_bench_do(&b, STORE_ADD, "g", "a b");
	r = store_bench_stage(&b, 1, STORE_ADD, "g", "b c");
	assert_true(r.code == STORE_R_OK && r.changed == 1 && r.commit == 1 && b.deltas == 0);
	store_bench_stage(&b, 1, STORE_ADD, "g", "d c");
	assert_string_equal(store_bench_list(&b, "g", STORE_MEMBERS), "a b");
	assert_int_equal(store_bench_channel(&b, "g").smv, 1);
	assert_int_equal(store_bench_channel(&b, "g").members, 2);
	r = store_bench_close_stage(&b, 1, STORE_ADD, "g");
	assert_true(r.code == STORE_R_OK && r.smv == 2 && r.commit == 2 && r.changed == 2);
	assert_int_equal(b.deltas, 1);
	assert_int_equal(b.delta.kind, STORE_DELTA_ADD);
	assert_string_equal(b.delta_uids, "c d");
	assert_string_equal(store_bench_list(&b, "g", STORE_MEMBERS), "a b c d");
	assert_int_equal(store_bench_channel(&b, "g").members, 4);
}

static void a_staged_reset_is_one_mutation(void **state)
{
	struct store_result r;

	(void)state;
	store_bench_do(&b, STORE_ADD, "g", "a b c");
	store_bench_stage(&b, 1, STORE_RESET, "g", "b x");
	store_bench_stage(&b, 1, STORE_RESET, "g", "y x");
	r = store_bench_close_stage(&b, 1, STORE_RESET, "g");
	assert_true(r.smv == 2 && r.changed == 4);
	assert_int_equal(b.delta.kind, STORE_DELTA_BULK);
	assert_string_equal(store_bench_list(&b, "g", STORE_MEMBERS), "b x y");
	assert_int_equal(store_bench_channel(&b, "g").members, 3);
}

static void a_staged_reset_to_the_same_set_changes_nothing(void **state)
{
	(void)state;
	store_bench_do(&b, STORE_ADD, "g", "a b c");
	store_bench_stage(&b, 1, STORE_RESET, "g", "c a");
	store_bench_stage(&b, 1, STORE_RESET, "g", "b");
	assert_int_equal(store_bench_close_stage(&b, 1, STORE_RESET, "g").code, STORE_R_NO_CHANGE);
	assert_int_equal(store_bench_channel(&b, "g").smv, 1);
	assert_string_equal(store_bench_list(&b, "g", STORE_MEMBERS), "a b c");
	assert_int_equal(store_bench_do(&b, STORE_ADD, "g", "d").code, STORE_R_OK);
	while (store_bench_compact(&b, 10) > 0)
		;
	assert_int_equal(store_map_rows(b.map, STORE_T_MEMBER), 4);
}

static void a_large_add_and_remove_merge_without_a_visible_trace(void **state)
{
	struct store_result r;

	(void)state;
	r = store_bench_large(&b, 1, STORE_ADD, "g", "m", 0, 20000);
	assert_true(r.code == STORE_R_OK && r.changed == 20000 && r.smv == 1);
	assert_int_equal(b.delta.kind, STORE_DELTA_BULK);
	r = store_bench_large(&b, 2, STORE_ADD, "g", "m", 10000, 20000);
	assert_true(r.changed == 10000 && r.smv == 2);
	r = store_bench_large(&b, 3, STORE_REMOVE, "g", "m", 10, 29980);
	assert_true(r.changed == 29980 && r.smv == 3);
	assert_int_equal(store_bench_channel(&b, "g").members, 20);
	// One row at a time, with other commands between.
	for (uint32_t i = 0; store_bench_compact(&b, 997) > 0; i++) {
		char uid[16];

		snprintf(uid, sizeof(uid), "m%07u", 100 + i);
		assert_int_equal(store_bench_do(&b, STORE_ADD, "g", uid).changed, 1);
		assert_int_equal(store_bench_do(&b, STORE_ADD, "g", uid).code, STORE_R_NO_CHANGE);
		assert_non_null(strstr(store_bench_list(&b, "g", STORE_MEMBERS), uid));
		assert_int_equal(store_bench_do(&b, STORE_REMOVE, "g", uid).changed, 1);
		assert_null(strstr(store_bench_list(&b, "g", STORE_MEMBERS), uid));
	}
	assert_int_equal(store_map_rows(b.map, STORE_T_MEMBER), 20);
	assert_int_equal(store_map_rows(b.map, STORE_T_STAGE), 0);
	assert_int_equal(strlen(store_bench_list(&b, "g", STORE_MEMBERS)), 20 * 9 - 1);
}

static void other_commands_on_a_staged_channel_are_busy(void **state)
{
	static const uint8_t op[] = {STORE_ADD, STORE_REMOVE, STORE_RESET};

	(void)state;
	store_bench_do(&b, STORE_ADD, "g", "a");
	store_bench_stage(&b, 1, STORE_ADD, "g", "b");
	for (size_t i = 0; i < sizeof(op); i++)
		assert_int_equal(store_bench_do(&b, op[i], "g", "a").code, STORE_R_BUSY);
	assert_int_equal(store_bench_do(&b, STORE_CHANNEL_REMOVE, "g", NULL).code, STORE_R_BUSY);
	assert_int_equal(store_bench_do(&b, STORE_CHANNEL_CREATE, "g", NULL).code, STORE_R_BUSY);
	assert_int_equal(store_bench_stage(&b, 2, STORE_ADD, "g", "c").code, STORE_R_BUSY);
	assert_int_equal(store_bench_close_stage(&b, 2, STORE_ADD, "g").code, STORE_R_BUSY);
	assert_int_equal(store_bench_channel(&b, "g").smv, 1);
	assert_int_equal(store_bench_do(&b, STORE_ADD, "h", "a").code, STORE_R_OK);
	assert_int_equal(store_bench_close_stage(&b, 1, STORE_ADD, "g").code, STORE_R_OK);
	assert_int_equal(store_bench_do(&b, STORE_ADD, "g", "z").code, STORE_R_OK);
}

static void what_does_not_match_the_stage_is_invalid(void **state)
{
	struct store_command cmd;

	(void)state;
	store_bench_stage(&b, 1, STORE_ADD, "g", "a b");
	assert_int_equal(store_bench_stage(&b, 1, STORE_REMOVE, "g", "a").code, STORE_R_INVALID);
	assert_int_equal(store_bench_stage(&b, 1, STORE_ADD, "h", "a").code, STORE_R_INVALID);
	assert_int_equal(store_bench_close_stage(&b, 1, STORE_RESET, "g").code, STORE_R_INVALID);
	assert_int_equal(abort_stage(1, "h").code, STORE_R_NOT_FOUND);
	cmd = store_bench_command(STORE_CLOSE, "g", NULL);
	cmd.stage_id = 1;
	cmd.staged_op = STORE_ADD;
	cmd.uid_count = 3;  // a chunk is missing
	assert_int_equal(store_bench_apply(&b, &cmd).code, STORE_R_INVALID);
	assert_string_equal(store_bench_list(&b, "g", STORE_MEMBERS), "-");
	store_bench_stage(&b, 1, STORE_ADD, "g", "c");
	assert_int_equal(store_bench_apply(&b, &cmd).changed, 3);
	assert_int_equal(store_bench_close_stage(&b, 1, STORE_ADD, "g").code, STORE_R_NOT_FOUND);
}

static void an_aborted_stage_leaves_nothing(void **state)
{
	(void)state;
	store_bench_stage(&b, 1, STORE_ADD, "new", "a b");
	assert_int_equal(abort_stage(1, "new").code, STORE_R_OK);
	assert_int_equal(abort_stage(1, "new").code, STORE_R_NOT_FOUND);
	assert_int_equal(store_map_rows(b.map, STORE_T_CHANNEL), 0);
	while (store_bench_compact(&b, 1) > 0)
		;
	assert_int_equal(store_map_rows(b.map, STORE_T_MEMBER), 0);
	assert_int_equal(store_map_rows(b.map, STORE_T_STAGE), 0);
	assert_int_equal(store_bench_do(&b, STORE_ADD, "new", "c").smv, 1);
	assert_string_equal(store_bench_list(&b, "new", STORE_MEMBERS), "c");
}

static void an_idle_stage_is_dropped_after_its_time_and_not_before(void **state)
{
	(void)state;
	store_bench_stage(&b, 1, STORE_ADD, "g", "a");
	for (uint64_t i = 0; i < b.limits.stage_commits; i++)
		assert_int_equal(store_bench_do(&b, STORE_ADD, "g", "b").code, STORE_R_BUSY);
	assert_int_equal(store_bench_do(&b, STORE_ADD, "g", "b").code, STORE_R_OK);
	assert_int_equal(store_bench_close_stage(&b, 1, STORE_ADD, "g").code, STORE_R_NOT_FOUND);
	assert_string_equal(store_bench_list(&b, "g", STORE_MEMBERS), "b");
}

static void stages_at_once_are_limited(void **state)
{
	char chan[8];

	(void)state;
	for (uint64_t i = 1; i <= 5; i++) {
		snprintf(chan, sizeof(chan), "g%u", (unsigned)i);
		assert_int_equal(store_bench_stage(&b, i, STORE_ADD, chan, "a").code,
			i <= b.limits.stages ? STORE_R_OK : STORE_R_BUSY);
	}
	store_bench_close_stage(&b, 1, STORE_ADD, "g1");
	assert_int_equal(store_bench_stage(&b, 5, STORE_ADD, "g5", "a").code, STORE_R_OK);
}

static void a_mutation_over_the_limit_of_uids_is_refused(void **state)
{
	static uint8_t packed[8000 * 2];
	struct store_command cmd = store_bench_command(STORE_STAGE, "g", NULL);

	(void)state;
	for (uint32_t i = 0; i < 8000; i++) {
		packed[2 * i] = 1;
		packed[2 * i + 1] = (uint8_t)i;
	}
	cmd.stage_id = 1;
	cmd.staged_op = STORE_RESET;
	cmd.uids = packed;
	cmd.uid_count = 8000;
	cmd.uids_bytes = sizeof(packed);
	for (uint32_t i = 0; i < MUTATION_UIDS_MAX / 8000; i++)
		assert_int_equal(store_bench_apply(&b, &cmd).code, STORE_R_OK);
	assert_int_equal(store_bench_stage(&b, 1, STORE_RESET, "g", "more").code, STORE_R_LIMIT);
	assert_int_equal(store_bench_close_stage(&b, 1, STORE_RESET, "g").changed, 256);
}

// More generations than the stack holds: the smallest are merged, the view stays.
static void many_closed_stages_without_compaction_stay_correct(void **state)
{
	uint64_t members = 6000;

	(void)state;
	b.limits.fold_rows = 1;
	store_bench_large(&b, 1, STORE_ADD, "g", "m", 0, 6000);
	store_bench_large(&b, 2, STORE_REMOVE, "g", "m", 0, 3000);
	members -= 3000;
	for (uint64_t i = 0; i < 60; i++) {
		const uint8_t op = i % 3 == 2 ? STORE_REMOVE : STORE_ADD;
		const uint32_t count = (uint32_t)(2 + i % 4);
		const struct store_result r = store_bench_large(&b, 10 + i, op, "g",
			op == STORE_ADD ? "n" : "m",
			op == STORE_ADD ? (uint32_t)i * 10 : 5000 - (uint32_t)i * 10, count);

		assert_int_equal(r.changed, count);
		members = op == STORE_ADD ? members + count : members - count;
		assert_int_equal(store_bench_channel(&b, "g").members, members);
	}
	assert_int_equal(strlen(store_bench_list(&b, "g", STORE_MEMBERS)), members * 9 - 1);
	while (store_bench_compact(&b, 100) > 0)
		assert_int_equal(strlen(store_bench_list(&b, "g", STORE_MEMBERS)), members * 9 - 1);
	assert_int_equal(store_map_rows(b.map, STORE_T_MEMBER), members);
}

// Stages `count` UIDs and closes. Returns: backend calls of the close alone.
static uint64_t close_calls(uint64_t id, const char *prefix, uint32_t count)
{
	static uint8_t packed[4000 * 9];
	uint64_t before;

	for (uint32_t done = 0; done < count; done += 4000) {
		struct store_command cmd = store_bench_command(STORE_STAGE, "g", NULL);

		for (uint32_t k = 0; k < 4000; k++) {
			char text[16];

			snprintf(text, sizeof(text), "%s%07u", prefix, done + k);
			packed[k * 9] = 8;
			memcpy(packed + k * 9 + 1, text, 8);
		}
		cmd.stage_id = id;
		cmd.staged_op = STORE_ADD;
		cmd.uids = packed;
		cmd.uids_bytes = sizeof(packed);
		cmd.uid_count = 4000;
		assert_int_equal(store_bench_apply(&b, &cmd).changed, 4000);
	}
	before = store_map_calls(b.map);
	assert_int_equal(store_bench_close_stage(&b, id, STORE_ADD, "g").changed, count);
	return store_map_calls(b.map) - before;
}

static void a_close_is_cheap_whatever_was_staged(void **state)
{
	(void)state;
	store_bench_large(&b, 1, STORE_ADD, "g", "m", 0, 5000);

	const uint64_t small = close_calls(2, "s", 8000);
	const uint64_t large = close_calls(3, "l", 80000);

	assert_true(small < 30 && large <= small + 4);
}

// Few enough to be merged on the spot, too long to be listed in one delta.
// Calls of the backend stand for time: each chunk may cost so many per UID, each close a few, in whatever
// order large and small operations come, though nothing compacts.
static void no_command_does_the_work_of_another(void **state)
{
	uint64_t random = 9, stage = 1;
	uint32_t longest_close = 0;

	(void)state;
	b.limits.fold_rows = 16;
	for (uint32_t round = 0; round < 150; round++) {
		const uint32_t chunks = 1 + (round < 12 ? 24u >> (round / 2) : round % 7);

		stage++;
		for (uint32_t c = 0; c <= chunks; c++) {
			struct store_command cmd = store_bench_command(STORE_STAGE, "g", NULL);
			uint8_t uids[100 * 8];
			uint64_t before;

			cmd.uids = uids;
			for (uint32_t i = 0; i < 100; i++) {
				char text[16];

				random = random * UINT64_C(6364136223846793005) + 1;
				snprintf(text, sizeof(text), "%07u",
					(uint32_t)(random >> 33) % 40000);
				uids[8 * i] = 7;
				memcpy(uids + 8 * i + 1, text, 7);
			}
			cmd.uid_count = 100;
			cmd.uids_bytes = sizeof(uids);
			cmd.stage_id = stage;
			cmd.staged_op = round % 5 == 4 ? STORE_REMOVE : STORE_ADD;
			if (c == chunks) {
				cmd.op = STORE_CLOSE;
				cmd.uid_count = cmd.uids_bytes = 0;
			}
			before = store_map_calls(b.map);
			store_bench_apply(&b, &cmd);
			if (b.result.code != STORE_R_NO_CHANGE)
				assert_string_equal(store_result_name(b.result.code), "ok");

			const uint32_t calls = (uint32_t)(store_map_calls(b.map) - before);

			assert_true(calls < (c == chunks ? 150 : 100 * 24));
			if (c == chunks && calls > longest_close)
				longest_close = calls;
		}
	}
	print_message("longest close: %u calls\n", longest_close);
}

static void a_delta_too_long_to_list_says_read_again(void **state)
{
	static char uids[1000 * 256];

	(void)state;
	for (uint32_t chunk = 0; chunk < 2; chunk++) {
		for (uint32_t i = 0; i < 1000; i++) {
			char name[16];

			snprintf(name, sizeof(name), "%u_%03u", chunk, i);
			memset(uids + i * 256, 'x', 255);
			memcpy(uids + i * 256, name, 5);
			uids[i * 256 + 255] = i == 999 ? 0 : ' ';
		}
		assert_int_equal(store_bench_stage(&b, 1, STORE_ADD, "g", uids).changed, 1000);
	}
	assert_int_equal(store_bench_close_stage(&b, 1, STORE_ADD, "g").changed, 2000);
	assert_int_equal(b.delta.kind, STORE_DELTA_BULK);
	assert_int_equal(b.delta.uid_count, 0);
	assert_int_equal(store_bench_channel(&b, "g").members, 2000);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(chunks_are_invisible_until_the_close),
		T(a_staged_reset_is_one_mutation),
		T(a_staged_reset_to_the_same_set_changes_nothing),
		T(a_large_add_and_remove_merge_without_a_visible_trace),
		T(other_commands_on_a_staged_channel_are_busy),
		T(what_does_not_match_the_stage_is_invalid),
		T(an_aborted_stage_leaves_nothing),
		T(an_idle_stage_is_dropped_after_its_time_and_not_before),
		T(stages_at_once_are_limited),
		T(a_mutation_over_the_limit_of_uids_is_refused),
		T(many_closed_stages_without_compaction_stay_correct),
		T(a_close_is_cheap_whatever_was_staged),
		T(no_command_does_the_work_of_another),
		T(a_delta_too_long_to_list_says_read_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
