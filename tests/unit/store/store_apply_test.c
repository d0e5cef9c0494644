/* SPDX-License-Identifier: BSD-3-Clause */
// Batches, versions and commit numbers, opening, replay, and faults of the backend.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
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

static void each_changing_command_moves_smv_and_commit_by_one(void **state)
{
	struct store_result r;

	(void)state;
	r = store_bench_do(&b, STORE_ADD, "g", "a b");
	assert_int_equal(r.code, STORE_R_OK);
	assert_true(r.smv == 1 && r.commit == 1 && r.changed == 2);
	r = store_bench_do(&b, STORE_REMOVE, "g", "a");
	assert_true(r.smv == 2 && r.commit == 2 && r.changed == 1);
	r = store_bench_do(&b, STORE_ADD, "other", "a");
	assert_true(r.smv == 1 && r.commit == 3);
	r = store_bench_do(&b, STORE_RESET, "g", "x y z");
	assert_true(r.smv == 3 && r.commit == 4 && r.changed == 4);
	assert_int_equal(store_bench_position(&b).commit, 4);
	assert_int_equal(store_bench_position(&b).applied, 4);
}

static void a_command_that_changes_nothing_moves_neither(void **state)
{
	struct store_result r;

	(void)state;
	store_bench_do(&b, STORE_ADD, "g", "a b");
	r = store_bench_do(&b, STORE_ADD, "g", "b a");
	assert_int_equal(r.code, STORE_R_NO_CHANGE);
	assert_true(r.smv == 1 && r.commit == 1 && r.changed == 0 && b.deltas == 0);
	r = store_bench_do(&b, STORE_REMOVE, "g", "c");
	assert_int_equal(r.code, STORE_R_NO_CHANGE);
	r = store_bench_do(&b, STORE_RESET, "g", "b a b");
	assert_int_equal(r.code, STORE_R_NO_CHANGE);
	assert_int_equal(store_bench_channel(&b, "g").smv, 1);
	assert_int_equal(store_bench_position(&b).commit, 1);
	assert_int_equal(store_bench_position(&b).applied, 4);
	assert_string_equal(store_bench_list(&b, "g", STORE_MEMBERS), "a b");
}

static void smv_goes_on_over_remove_and_create(void **state)
{
	struct store_result r;
	uint64_t number;

	(void)state;
	store_bench_do(&b, STORE_ADD, "g", "a b c");
	number = store_bench_channel(&b, "g").number;
	r = store_bench_do(&b, STORE_CHANNEL_REMOVE, "g", NULL);
	assert_true(r.code == STORE_R_OK && r.smv == 2 && r.changed == 3);
	assert_int_equal(b.delta.kind, STORE_DELTA_REMOVED);
	assert_true(store_bench_channel(&b, "g").removed);
	assert_string_equal(store_bench_list(&b, "g", STORE_MEMBERS), "-");
	r = store_bench_do(&b, STORE_CHANNEL_REMOVE, "g", NULL);
	assert_true(r.code == STORE_R_NOT_FOUND && r.smv == 2);
	r = store_bench_do(&b, STORE_CHANNEL_CREATE, "g", NULL);
	assert_true(r.code == STORE_R_OK && r.smv == 3);
	assert_string_equal(store_bench_list(&b, "g", STORE_MEMBERS), "");
	r = store_bench_do(&b, STORE_ADD, "g", "b");
	assert_int_equal(r.smv, 4);
	assert_string_equal(store_bench_list(&b, "g", STORE_MEMBERS), "b");
	assert_int_equal(store_bench_channel(&b, "g").number, number);
	assert_int_equal(store_bench_channel(&b, "g").members, 1);
}

static void old_rows_do_not_come_back_with_the_channel(void **state)
{
	(void)state;
	store_bench_do(&b, STORE_ADD, "g", "a b c");
	store_bench_do(&b, STORE_CHANNEL_REMOVE, "g", NULL);
	store_bench_do(&b, STORE_ADD, "g", "z");
	assert_string_equal(store_bench_list(&b, "g", STORE_MEMBERS), "z");
	while (store_bench_compact(&b, 3) > 0)
		;
	assert_string_equal(store_bench_list(&b, "g", STORE_MEMBERS), "z");
	assert_int_equal(store_map_rows(b.map, STORE_T_MEMBER), 1);
}

static void flags_are_kept_and_counted_as_changes(void **state)
{
	struct store_command cmd = store_bench_command(STORE_CHANNEL_UPDATE, "g", NULL);

	(void)state;
	cmd.flags = STORE_FLAG_BAN;
	assert_int_equal(store_bench_apply(&b, &cmd).code, STORE_R_NOT_FOUND);
	cmd.op = STORE_CHANNEL_CREATE;
	assert_int_equal(store_bench_apply(&b, &cmd).smv, 1);
	assert_int_equal(b.delta.kind, STORE_DELTA_CHANNEL);
	assert_int_equal(b.delta.flags, STORE_FLAG_BAN);
	assert_int_equal(store_bench_apply(&b, &cmd).code, STORE_R_NO_CHANGE);
	cmd.op = STORE_CHANNEL_UPDATE;
	cmd.flags = STORE_FLAG_LARGE;
	assert_int_equal(store_bench_apply(&b, &cmd).smv, 2);
	assert_int_equal(store_bench_channel(&b, "g").flags, STORE_FLAG_LARGE);
}

static void lists_of_a_channel_are_apart_and_share_its_smv(void **state)
{
	struct store_command cmd;

	(void)state;
	store_bench_do(&b, STORE_ADD, "g", "a b");
	cmd = store_bench_command(STORE_ADD, "g", "b x");
	cmd.list = STORE_DENY;
	assert_int_equal(store_bench_apply(&b, &cmd).smv, 2);
	assert_true(b.delta.list == STORE_DENY && b.delta.members == 2 && b.delta.smv_before == 1);
	assert_string_equal(b.delta_uids, "b x");
	assert_string_equal(store_bench_list(&b, "g", STORE_MEMBERS), "a b");
	assert_string_equal(store_bench_list(&b, "g", STORE_DENY), "b x");
	assert_int_equal(store_bench_channel(&b, "g").members, 2);
}

static void a_delta_lists_only_what_changed_once(void **state)
{
	(void)state;
	store_bench_do(&b, STORE_ADD, "g", "a b");
	store_bench_do(&b, STORE_ADD, "g", "b c a d c");
	assert_int_equal(b.deltas, 1);
	assert_int_equal(b.delta.kind, STORE_DELTA_ADD);
	assert_string_equal(b.delta_uids, "c d");
	assert_int_equal(b.result.changed, 2);
	store_bench_do(&b, STORE_REMOVE, "g", "x a a");
	assert_int_equal(b.delta.kind, STORE_DELTA_REMOVE);
	assert_string_equal(b.delta_uids, "a");
	store_bench_do(&b, STORE_RESET, "g", "q");
	assert_int_equal(b.delta.kind, STORE_DELTA_BULK);
	assert_int_equal(b.delta.members, 1);
}

static void nothing_is_made_by_commands_on_an_absent_channel(void **state)
{
	(void)state;
	assert_int_equal(store_bench_do(&b, STORE_REMOVE, "g", "a").code, STORE_R_NOT_FOUND);
	assert_int_equal(store_bench_do(&b, STORE_RESET, "g", "").code, STORE_R_NOT_FOUND);
	assert_int_equal(
		store_bench_do(&b, STORE_CHANNEL_REMOVE, "g", NULL).code, STORE_R_NOT_FOUND);
	assert_int_equal(store_map_rows(b.map, STORE_T_CHANNEL), 0);
	assert_int_equal(store_bench_position(&b).commit, 0);
}

static void remove_all_is_one_mutation(void **state)
{
	struct store_result r;

	(void)state;
	store_bench_do(&b, STORE_ADD, "g", "a b c");
	r = store_bench_do(&b, STORE_RESET, "g", "");
	assert_true(r.code == STORE_R_OK && r.smv == 2 && r.changed == 3);
	assert_string_equal(store_bench_list(&b, "g", STORE_MEMBERS), "");
	assert_int_equal(store_bench_do(&b, STORE_RESET, "g", "").code, STORE_R_NO_CHANGE);
	assert_int_equal(store_bench_do(&b, STORE_ADD, "g", "d").smv, 3);
	assert_string_equal(store_bench_list(&b, "g", STORE_MEMBERS), "d");
}

// --- batches --------------------------------------------------------------------------------------------

static uint32_t append(uint8_t *data, uint32_t len, uint8_t op, const char *chan, const char *uids)
{
	const struct store_command cmd = store_bench_command(op, chan, uids);
	const int n = store_command_encode(&cmd, data + len, 4096 - len);

	assert_true(n > 0);
	return len + (uint32_t)n;
}

static int apply(
	uint64_t index, const uint8_t *data, uint32_t len, struct store_result *r, uint32_t max)
{
	struct store_tx tx;

	store_map_begin(b.map, &tx);

	const int rc = store_apply(&tx, &b.limits, index, data, len, r, max, NULL, NULL);

	if (rc < 0)
		store_map_abort(b.map, &tx);
	else
		store_map_commit(b.map, &tx);
	return rc;
}

static void a_bad_command_harms_no_other_of_its_batch(void **state)
{
	uint8_t data[4096];
	struct store_result r[4];
	uint32_t bad, len = append(data, 0, STORE_ADD, "g", "a");

	(void)state;
	bad = len;
	len = append(data, len, STORE_ADD, "g", "b");
	data[bad + 5] = 99;  // op
	len = append(data, len, STORE_ADD, "g", "c");
	assert_int_equal(apply(1, data, len, r, 4), 3);
	assert_int_equal(r[0].code, STORE_R_OK);
	assert_int_equal(r[1].code, STORE_R_INVALID);
	assert_int_equal(r[2].code, STORE_R_OK);
	assert_int_equal(r[2].smv, 2);
	assert_string_equal(store_bench_list(&b, "g", STORE_MEMBERS), "a c");
}

static void a_broken_frame_ends_its_batch_with_invalid(void **state)
{
	uint8_t data[4096];
	struct store_result r[4];
	const uint32_t first = append(data, 0, STORE_ADD, "g", "a");
	const uint32_t len = append(data, first, STORE_ADD, "g", "b");

	(void)state;
	assert_int_equal(apply(1, data, len - 1, r, 4), 2);
	assert_int_equal(r[0].code, STORE_R_OK);
	assert_int_equal(r[1].code, STORE_R_INVALID);
	assert_string_equal(store_bench_list(&b, "g", STORE_MEMBERS), "a");
}

static void all_commands_apply_even_without_room_for_results(void **state)
{
	uint8_t data[4096];
	struct store_result r[1];
	uint32_t len = append(data, 0, STORE_ADD, "g", "a");

	(void)state;
	len = append(data, len, STORE_ADD, "g", "b");
	assert_int_equal(apply(1, data, len, r, 1), 1);
	assert_string_equal(store_bench_list(&b, "g", STORE_MEMBERS), "a b");
}

static void an_applied_index_is_skipped(void **state)
{
	uint8_t data[4096];
	struct store_result r[4];
	const uint32_t len = append(data, 0, STORE_ADD, "g", "a");
	uint64_t digest;

	(void)state;
	assert_int_equal(apply(5, data, len, r, 4), 1);
	store_bench_do(&b, STORE_REMOVE, "g", "none");
	b.index = 5;
	store_bench_do(&b, STORE_REMOVE, "g", "a");
	digest = store_map_digest(b.map);
	for (uint64_t index = 0; index <= 6; index++) {
		assert_int_equal(apply(index, data, len, r, 4), 1);
		assert_int_equal(r[0].repeated, 1);
	}
	assert_true(store_map_digest(b.map) == digest);
	assert_string_equal(store_bench_list(&b, "g", STORE_MEMBERS), "");
}

static void the_chain_tells_histories_apart(void **state)
{
	struct store_bench other;
	uint64_t chain;

	(void)state;
	store_bench_open(&other);
	store_bench_do(&b, STORE_ADD, "g", "a");
	store_bench_do(&other, STORE_ADD, "g", "a");
	chain = store_bench_position(&b).chain;
	assert_true(chain != 0 && chain == store_bench_position(&other).chain);
	// The same content at another index, then other content.
	store_bench_do(&b, STORE_ADD, "g", "a");
	other.index++;
	store_bench_do(&other, STORE_ADD, "g", "a");
	assert_true(store_bench_position(&b).chain != store_bench_position(&other).chain);
	assert_true(store_bench_position(&b).chain != chain);
	store_bench_close(&other);
}

// --- opening --------------------------------------------------------------------------------------------

static void opening_again_keeps_everything(void **state)
{
	struct store_tx tx;
	const char *why;
	uint64_t digest;

	(void)state;
	store_bench_do(&b, STORE_ADD, "g", "a");
	digest = store_map_digest(b.map);
	store_map_begin(b.map, &tx);
	assert_int_equal(store_open(&tx, 7, &why), 0);
	assert_int_equal(store_open(&tx, 8, &why), -EPROTO);
	assert_non_null(strstr(why, "another cluster"));
	store_map_commit(b.map, &tx);
	assert_true(store_map_digest(b.map) == digest);
	assert_int_equal(store_bench_position(&b).cluster_id, 7);
}

static void a_newer_or_foreign_format_is_refused(void **state)
{
	uint8_t v[20] = "tagcast";
	struct store_tx tx;
	const char *why;

	(void)state;
	v[8] = 200;
	v[12] = 7;
	store_map_begin(b.map, &tx);
	tx.ops->put(tx.tx, STORE_T_META, (struct store_bytes){"format", 6},
		(struct store_bytes){v, sizeof(v)});
	assert_int_equal(store_open(&tx, 7, &why), -EPROTO);
	assert_non_null(strstr(why, "newer"));
	v[0] = 'x';
	tx.ops->put(tx.tx, STORE_T_META, (struct store_bytes){"format", 6},
		(struct store_bytes){v, sizeof(v)});
	assert_int_equal(store_open(&tx, 7, &why), -EPROTO);
	store_map_abort(b.map, &tx);
}

static void a_set_generation_stays(void **state)
{
	struct store_tx tx;

	(void)state;
	assert_int_equal(store_bench_position(&b).generation, 1);
	store_map_begin(b.map, &tx);
	assert_int_equal(store_set_generation(&tx, 0x1234567890), 0);
	store_map_commit(b.map, &tx);
	store_bench_do(&b, STORE_ADD, "g", "a");
	assert_true(store_bench_position(&b).generation == 0x1234567890);
	assert_int_equal(store_bench_position(&b).commit, 1);
}

// --- faults ---------------------------------------------------------------------------------------------

// One command of each kind and compaction, with everything they touch.
static int script(struct store_bench *s, uint32_t step)
{
	struct store_command cmd;

	switch (step) {
	case 0:
		cmd = store_bench_command(STORE_ADD, "g", "a b c d e");
		store_dedup_key(cmd.dedup, 0, 1);
		store_bench_apply(s, &cmd);
		break;
	case 1:
		store_bench_do(s, STORE_REMOVE, "g", "a");
		break;
	case 2:
		store_bench_stage(s, 9, STORE_ADD, "g", "p q r s t u");
		break;
	case 3:
		store_bench_close_stage(s, 9, STORE_ADD, "g");
		break;
	case 4:
		store_bench_do(s, STORE_REMOVE, "g", "p b");
		break;
	case 5:
		return store_bench_compact(s, 3);
	case 6:
		store_bench_do(s, STORE_RESET, "g", "k l");
		break;
	case 7:
		return store_bench_compact(s, 100);
	case 8:
		store_bench_stage(s, 10, STORE_RESET, "g", "m n");
		break;
	case 9:
		cmd = store_bench_command(STORE_ABORT, "g", NULL);
		cmd.stage_id = 10;
		store_bench_apply(s, &cmd);
		break;
	case 10:
		store_bench_stage(s, 11, STORE_ADD, "h", "z");
		break;
	case 11:  // another channel's command drops the idle stage
		s->index += 200;
		store_bench_do(s, STORE_CHANNEL_CREATE, "i", NULL);
		break;
	case 12:
		store_bench_do(s, STORE_CHANNEL_REMOVE, "g", NULL);
		break;
	default:
		return 1;
	}
	return s->rc;
}
#define SCRIPT_STEPS 13u

static void a_failing_backend_call_fails_the_batch_and_leaves_no_trace(void **state)
{
	struct store_bench clean;
	uint64_t faults = 0;

	(void)state;
	b.limits.fold_rows = 2;
	store_bench_open(&clean);
	clean.limits = b.limits;
	for (uint32_t step = 0; step < SCRIPT_STEPS; step++) {
		const uint64_t digest = store_map_digest(b.map), index = b.index;

		for (uint64_t nth = 1;; nth++) {
			store_map_fail(b.map, nth, -EIO);

			const int rc = script(&b, step);

			if (!store_map_failed(b.map)) {
				assert_true(rc >= 0);
				break;
			}
			assert_int_equal(rc, -EIO);
			assert_true(store_map_digest(b.map) == digest);
			b.index = index;
			faults++;
		}
		store_map_fail(b.map, 0, 0);
		// As if nothing had failed on the way.
		assert_true(script(&clean, step) >= 0);
		assert_true(store_map_digest(b.map) == store_map_digest(clean.map));
	}
	print_message("%llu faults\n", (unsigned long long)faults);
	assert_true(faults > 100);
	assert_true(store_bench_channel(&b, "g").removed);
	store_bench_close(&clean);
}

// Writes `value` into the record of group channel "g", `bytes` long at `at`.
static void patch_record(uint32_t at, uint64_t value, uint32_t bytes)
{
	struct store_bytes v;
	struct store_tx tx;
	uint8_t copy[1024];

	store_map_begin(b.map, &tx);
	assert_int_equal(
		tx.ops->get(tx.tx, STORE_T_CHANNEL, (struct store_bytes){"\2g", 2}, &v), 0);
	memcpy(copy, v.p, v.len);
	for (uint32_t i = 0; i < bytes; i++)
		copy[at + i] = (uint8_t)(value >> (8 * i));
	assert_int_equal(tx.ops->put(tx.tx, STORE_T_CHANNEL, (struct store_bytes){"\2g", 2},
				 (struct store_bytes){copy, v.len}),
		0);
	store_map_commit(b.map, &tx);
}

static void numbers_at_their_end_are_refused_not_wrapped(void **state)
{
	(void)state;
	store_bench_do(&b, STORE_ADD, "g", "a");
	patch_record(16, UINT64_MAX, 8);  // SMV
	assert_int_equal(store_bench_do(&b, STORE_ADD, "g", "b").code, STORE_R_LIMIT);
	patch_record(16, 1, 8);
	patch_record(4, UINT32_MAX - 2, 4);  // next generation
	assert_int_equal(store_bench_do(&b, STORE_RESET, "g", "b").code, STORE_R_LIMIT);
	assert_int_equal(store_bench_stage(&b, 1, STORE_ADD, "g", "b").code, STORE_R_LIMIT);
	assert_string_equal(store_bench_list(&b, "g", STORE_MEMBERS), "a");
}

static void a_damaged_record_is_a_fault(void **state)
{
	(void)state;
	store_bench_do(&b, STORE_ADD, "g", "a");
	patch_record(0, 9, 1);  // version
	store_bench_do(&b, STORE_ADD, "g", "b");
	assert_int_equal(b.rc, -EUCLEAN);
	assert_string_equal(store_bench_list(&b, "g", STORE_MEMBERS), "fault");
}

static void a_store_never_opened_is_a_fault(void **state)
{
	struct store_map *map = store_map_create();
	struct store_result r;
	struct store_tx tx;
	uint8_t data[4096];
	const uint32_t len = append(data, 0, STORE_ADD, "g", "a");

	(void)state;
	store_map_begin(map, &tx);
	assert_int_equal(store_apply(&tx, &b.limits, 1, data, len, &r, 1, NULL, NULL), -EUCLEAN);
	store_map_abort(map, &tx);
	store_map_destroy(map);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(each_changing_command_moves_smv_and_commit_by_one),
		T(a_command_that_changes_nothing_moves_neither),
		T(smv_goes_on_over_remove_and_create),
		T(old_rows_do_not_come_back_with_the_channel),
		T(flags_are_kept_and_counted_as_changes),
		T(lists_of_a_channel_are_apart_and_share_its_smv),
		T(a_delta_lists_only_what_changed_once),
		T(nothing_is_made_by_commands_on_an_absent_channel),
		T(remove_all_is_one_mutation),
		T(a_bad_command_harms_no_other_of_its_batch),
		T(a_broken_frame_ends_its_batch_with_invalid),
		T(all_commands_apply_even_without_room_for_results),
		T(an_applied_index_is_skipped),
		T(the_chain_tells_histories_apart),
		T(opening_again_keeps_everything),
		T(a_newer_or_foreign_format_is_refused),
		T(a_set_generation_stays),
		T(a_failing_backend_call_fails_the_batch_and_leaves_no_trace),
		T(numbers_at_their_end_are_refused_not_wrapped),
		T(a_damaged_record_is_a_fault),
		T(a_store_never_opened_is_a_fault),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
