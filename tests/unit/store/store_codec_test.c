/* SPDX-License-Identifier: BSD-3-Clause */
// Commands and deltas as bytes: what is written is read back, what is not right is refused.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "store.h"

static struct store_command valid_command(uint8_t op)
{
	struct store_command cmd = {.op = op};

	channel_key_set(&cmd.channel, CHANNEL_GROUP, "room", 4);
	if (op >= STORE_ADD && op <= STORE_STAGE) {
		cmd.uids = (const uint8_t *)"\1a\2bc";
		cmd.uid_count = 2;
		cmd.uids_bytes = 5;
	}
	if (op >= STORE_STAGE)
		cmd.stage_id = 77;
	if (op == STORE_STAGE || op == STORE_CLOSE)
		cmd.staged_op = STORE_REMOVE;
	if (op >= STORE_ADD && op != STORE_ABORT)
		cmd.list = STORE_DENY;
	if (op <= STORE_CHANNEL_UPDATE)
		cmd.flags = STORE_FLAG_BAN;
	store_dedup_key(cmd.dedup, 5, 6);
	return cmd;
}

static void every_command_reads_back(void **state)
{
	(void)state;
	for (uint8_t op = STORE_CHANNEL_CREATE; op <= STORE_ABORT; op++) {
		const struct store_command cmd = valid_command(op);
		struct store_command got;
		uint8_t data[256];
		const char *why;
		const int len = store_command_encode(&cmd, data, sizeof(data));

		assert_true(len > 0);
		assert_int_equal(store_command_decode(data, (uint32_t)len, &got, &why), len);
		assert_true(got.op == op && got.list == cmd.list && got.staged_op == cmd.staged_op);
		assert_true(got.flags == cmd.flags && got.stage_id == cmd.stage_id);
		assert_memory_equal(got.dedup, cmd.dedup, STORE_DEDUP_BYTES);
		assert_true(channel_key_equal(&got.channel, &cmd.channel));
		assert_int_equal(got.uid_count, cmd.uid_count);
		assert_int_equal(got.uids_bytes, cmd.uids_bytes);
		if (cmd.uids_bytes != 0)
			assert_memory_equal(got.uids, cmd.uids, cmd.uids_bytes);
		assert_int_equal(store_command_encode(&cmd, data, (uint32_t)len - 1), -ENOSPC);
	}
}

static void no_prefix_of_a_command_is_one(void **state)
{
	const struct store_command cmd = valid_command(STORE_ADD);
	struct store_command got;
	uint8_t data[256];
	const char *why;
	const int len = store_command_encode(&cmd, data, sizeof(data));

	(void)state;
	for (uint32_t i = 0; i < (uint32_t)len; i++)
		assert_int_equal(store_command_decode(data, i, &got, &why), -EINVAL);
}

static void fields_out_of_range_are_refused_both_ways(void **state)
{
	(void)state;
#define REFUSED(op, change) \
	do { \
		struct store_command cmd = valid_command(op); \
		uint8_t data[256]; \
		change; \
		assert_int_equal(store_command_encode(&cmd, data, sizeof(data)), -EINVAL); \
	} while (0)
	REFUSED(STORE_ADD, cmd.op = 0);
	REFUSED(STORE_ADD, cmd.op = STORE_ABORT + 1);
	REFUSED(STORE_ADD, cmd.list = 4);
	REFUSED(STORE_CHANNEL_CREATE, cmd.list = 1);
	REFUSED(STORE_ADD, cmd.flags = 1);
	REFUSED(STORE_CHANNEL_UPDATE, cmd.flags = 0x20);
	REFUSED(STORE_ADD, cmd.stage_id = 1);
	REFUSED(STORE_STAGE, cmd.stage_id = 0);
	REFUSED(STORE_STAGE, cmd.staged_op = STORE_CHANNEL_CREATE);
	REFUSED(STORE_CLOSE, cmd.staged_op = 0);
	REFUSED(STORE_ADD, cmd.staged_op = STORE_ADD);
	REFUSED(STORE_ADD, cmd.channel.type = 13);
	REFUSED(STORE_ADD, cmd.channel.type = 0);
	REFUSED(STORE_ADD, cmd.channel.len = 0);
	REFUSED(STORE_ADD, (cmd.uid_count = 0, cmd.uids_bytes = 0));
	REFUSED(STORE_ADD, cmd.uid_count = 3);
	REFUSED(STORE_ADD, cmd.uid_count = 1);
	REFUSED(STORE_ADD, cmd.uids_bytes = 4);
	REFUSED(STORE_ADD, cmd.uids = (const uint8_t *)"\1a\0bc");
	REFUSED(STORE_CHANNEL_REMOVE, cmd.uid_count = 1);
	REFUSED(STORE_CLOSE, cmd.uids_bytes = 1);
	REFUSED(STORE_CLOSE, cmd.uid_count = MUTATION_UIDS_MAX + 1);
}

static void a_wrong_byte_never_reads_as_another_command_of_the_same_length(void **state)
{
	const struct store_command cmd = valid_command(STORE_STAGE);
	struct store_command got;
	uint8_t data[256];
	const char *why;
	const int len = store_command_encode(&cmd, data, sizeof(data));
	// version, reserved, lengths: each must be refused when changed
	static const uint8_t at[] = {0, 1, 2, 3, 4, 10, 11, 36, 37, 40, 41, 42, 43};

	(void)state;
	for (size_t i = 0; i < sizeof(at); i++) {
		data[at[i]] ^= 0x40;
		assert_int_equal(store_command_decode(data, (uint32_t)len, &got, &why), -EINVAL);
		assert_non_null(why);
		data[at[i]] ^= 0x40;
	}
}

static void inline_uids_are_limited(void **state)
{
	static uint8_t uids[(STORE_UIDS_INLINE_MAX + 1) * 2], data[ENTRY_BYTES_MAX];
	struct store_command cmd = valid_command(STORE_ADD);

	(void)state;
	for (uint32_t i = 0; i <= STORE_UIDS_INLINE_MAX; i++) {
		uids[2 * i] = 1;
		uids[2 * i + 1] = (uint8_t)i;
	}
	cmd.uids = uids;
	cmd.uid_count = STORE_UIDS_INLINE_MAX;
	cmd.uids_bytes = 2 * STORE_UIDS_INLINE_MAX;
	assert_true(store_command_encode(&cmd, data, sizeof(data)) > 0);
	cmd.uid_count++;
	cmd.uids_bytes += 2;
	assert_int_equal(store_command_encode(&cmd, data, sizeof(data)), -EINVAL);
}

static void packed_uids_are_checked_to_the_byte(void **state)
{
	(void)state;
	assert_int_equal(store_uids_check((const uint8_t *)"\1a\2bc", 5, 2), 0);
	assert_int_equal(store_uids_check(NULL, 0, 0), 0);
	assert_int_equal(store_uids_check((const uint8_t *)"\1a\2bc", 5, 1), -EINVAL);
	assert_int_equal(store_uids_check((const uint8_t *)"\1a\2bc", 4, 2), -EINVAL);
	assert_int_equal(store_uids_check((const uint8_t *)"\1a\2bc", 5, 3), -EINVAL);
	assert_int_equal(store_uids_check((const uint8_t *)"\0", 1, 1), -EINVAL);
	assert_int_equal(store_uids_check((const uint8_t *)"\1", 1, 1), -EINVAL);
}

static void deltas_read_back_and_bad_ones_are_refused(void **state)
{
	struct store_delta d = {.commit = 9,
		.smv_before = 3,
		.smv = 4,
		.members = 12,
		.kind = STORE_DELTA_ADD,
		.list = STORE_ALLOW,
		.flags = STORE_FLAG_LARGE,
		.uid_count = 2,
		.uids = (const uint8_t *)"\1a\2bc",
		.uids_bytes = 5};
	struct store_delta got;
	uint8_t data[512];
	int len;

	(void)state;
	channel_key_set(&d.channel, CHANNEL_LIVE, "l", 1);
	len = store_delta_encode(&d, data, sizeof(data));
	assert_true(len > 0);
	assert_int_equal(store_delta_decode(data, sizeof(data), &got), len);
	assert_true(got.commit == 9 && got.smv_before == 3 && got.smv == 4 && got.members == 12);
	assert_true(got.kind == d.kind && got.list == d.list && got.flags == d.flags);
	assert_true(got.uid_count == 2 && memcmp(got.uids, d.uids, 5) == 0);
	assert_int_equal(store_delta_encode(&d, data, (uint32_t)len - 1), -ENOSPC);
	for (uint32_t i = 0; i < (uint32_t)len; i++)
		assert_int_equal(store_delta_decode(data, i, &got), -EINVAL);

	static const uint8_t at[] = {0, 1, 4, 5, 6, 7, 40, 44, 45, 46, 47, 49};

	for (size_t i = 0; i < sizeof(at); i++) {
		data[at[i]] ^= 0x80;
		assert_int_equal(store_delta_decode(data, sizeof(data), &got), -EINVAL);
		data[at[i]] ^= 0x80;
	}
	d.smv = 3;
	len = store_delta_encode(&d, data, sizeof(data));
	assert_int_equal(store_delta_decode(data, (uint32_t)len, &got), -EINVAL);
}

static void result_codes_have_names(void **state)
{
	(void)state;
	assert_string_equal(store_result_name(STORE_R_OK), "ok");
	assert_string_equal(store_result_name(STORE_R_LIMIT), "limit");
	assert_string_equal(store_result_name((enum store_result_code)99), "unknown");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_command_reads_back),
		cmocka_unit_test(no_prefix_of_a_command_is_one),
		cmocka_unit_test(fields_out_of_range_are_refused_both_ways),
		cmocka_unit_test(a_wrong_byte_never_reads_as_another_command_of_the_same_length),
		cmocka_unit_test(inline_uids_are_limited),
		cmocka_unit_test(packed_uids_are_checked_to_the_byte),
		cmocka_unit_test(deltas_read_back_and_bad_ones_are_refused),
		cmocka_unit_test(result_codes_have_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
