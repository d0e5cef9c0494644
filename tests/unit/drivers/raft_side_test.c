/* SPDX-License-Identifier: BSD-3-Clause */
// Side frames: each type there and back, each cut short, too long and with fields outside their range.
#include "unit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "raft_side.h"

static const uint8_t batch[] = "bytes of a batch";

static struct side_frame sample(enum side_type type)
{
	struct side_frame f = {.type = (uint8_t)type,
		.status = CONS_REFUSED,
		.op = CONS_REMOVE,
		.pair_count = 2,
		.request = UINT64_C(0x1122334455667788),
		.life = UINT64_MAX,
		.id = 3,
		.index = 99,
		.pair = {{1, 2}, {UINT64_MAX, 4}},
		.address = "10.0.0.1:7400",
		.text = "why not",
		.data = batch,
		.len = sizeof(batch)};
	return f;
}

static void each_type_comes_back_as_it_was(void **state)
{
	for (int type = 1; type < SIDE_TYPE_END; type++) {
		const struct side_frame in = sample((enum side_type)type);
		uint8_t bytes[SIDE_SMALL_MAX];
		const uint32_t size = side_size(&in);
		struct side_frame out;

		side_encode(&in, bytes);
		assert_int_equal(side_length(bytes), size);
		assert_int_equal(side_decode(bytes, size, &out), 0);
		assert_int_equal(out.type, type);
		assert_true(out.request == 0 || out.request == in.request);
		if (type == SIDE_HISTORY)
			assert_memory_equal(out.pair, in.pair, sizeof(in.pair));
		if (type == SIDE_PROPOSE) {
			assert_int_equal(out.len, in.len);
			assert_memory_equal(out.data, in.data, in.len);
			assert_true(out.life == in.life);
		}
		if (type == SIDE_MEMBER) {
			assert_int_equal(out.op, in.op);
			assert_int_equal(out.id, in.id);
			assert_string_equal(out.address, in.address);
		}
		if (type == SIDE_BARRIER_OK)
			assert_int_equal(out.index, in.index);
		if (type == SIDE_MEMBER_RESULT || type == SIDE_JOIN_RESULT) {
			assert_int_equal(out.status, in.status);
			assert_string_equal(out.text, in.text);
		}
	}
}

static void set_length(uint8_t *bytes, uint32_t payload)
{
	memcpy(bytes, &payload, 4);
}

static void a_payload_too_short_or_too_long_is_refused(void **state)
{
	for (int type = 1; type < SIDE_TYPE_END; type++) {
		const struct side_frame in = sample((enum side_type)type);
		uint8_t bytes[SIDE_SMALL_MAX] = {0};
		const uint32_t size = side_size(&in);
		struct side_frame out;

		side_encode(&in, bytes);
		for (uint32_t n = SIDE_HEAD_BYTES; n < size; n++) {
			// A proposal may carry any number of bytes.
			if (type == SIDE_PROPOSE && n >= SIDE_HEAD_BYTES + 16)
				break;
			set_length(bytes, n - SIDE_HEAD_BYTES);
			assert_int_equal(side_decode(bytes, n, &out), -EBADMSG);
		}
		if (type == SIDE_PROPOSE)
			continue;
		set_length(bytes, size + 1 - SIDE_HEAD_BYTES);
		assert_int_equal(side_decode(bytes, size + 1, &out), -EBADMSG);
	}
}

static void lengths_at_their_extremes_are_bounded(void **state)
{
	const uint32_t extremes[] = {
		SIDE_PAYLOAD_MAX + 1, 0x7fffffff, 0x80000000, 0xfffffff7, UINT32_MAX};

	for (int type = 0; type < 256; type++) {
		uint8_t head[SIDE_HEAD_BYTES] = {0};
		const bool ours = type >= 1 && type < SIDE_TYPE_END;
		const uint32_t most =
			type == SIDE_PROPOSE ? SIDE_PAYLOAD_MAX : SIDE_SMALL_MAX - SIDE_HEAD_BYTES;

		head[4] = (uint8_t)type;
		assert_int_equal(side_length(head), ours ? (int)SIDE_HEAD_BYTES : -EBADMSG);
		set_length(head, most);
		assert_int_equal(
			side_length(head), ours ? (int)(SIDE_HEAD_BYTES + most) : -EBADMSG);
		set_length(head, most + 1);
		assert_int_equal(side_length(head), -EBADMSG);
		for (uint32_t i = 0; i < 5; i++) {
			set_length(head, extremes[i]);
			assert_int_equal(side_length(head), -EBADMSG);
		}
		set_length(head, 8);
		head[5 + type % 3] = 1;
		assert_int_equal(side_length(head), -EBADMSG);
	}
}

static void fields_outside_their_range_are_refused(void **state)
{
	struct side_frame in = sample(SIDE_HISTORY), out;
	uint8_t bytes[SIDE_SMALL_MAX];

	side_encode(&in, bytes);
	bytes[SIDE_HEAD_BYTES] = CHAIN_TOLD_MAX + 1;
	assert_int_equal(side_decode(bytes, side_size(&in), &out), -EBADMSG);
	in = sample(SIDE_PROPOSED);
	side_encode(&in, bytes);
	bytes[SIDE_HEAD_BYTES + 8] = CONS_REFUSED + 1;
	assert_int_equal(side_decode(bytes, side_size(&in), &out), -EBADMSG);
	in = sample(SIDE_MEMBER);
	in.op = 0;
	side_encode(&in, bytes);
	assert_int_equal(side_decode(bytes, side_size(&in), &out), -EBADMSG);
	in.op = CONS_TRANSFER + 1;
	side_encode(&in, bytes);
	assert_int_equal(side_decode(bytes, side_size(&in), &out), -EBADMSG);
	in = sample(SIDE_JOIN);
	in.address[0] = '\0';
	side_encode(&in, bytes);
	assert_int_equal(side_decode(bytes, side_size(&in), &out), -EBADMSG);
}

static void strings_end_where_they_say(void **state)
{
	struct side_frame in = sample(SIDE_JOIN_RESULT), out;
	uint8_t bytes[SIDE_SMALL_MAX] = {0};

	memset(in.text, 'x', sizeof(in.text));
	side_encode(&in, bytes);
	assert_int_equal(side_decode(bytes, side_size(&in), &out), 0);
	assert_int_equal(strlen(out.text), SIDE_TEXT_MAX - 1);
	// One byte longer than its field, and one with an end inside.
	bytes[SIDE_HEAD_BYTES + 1] = SIDE_TEXT_MAX;
	set_length(bytes, 2 + SIDE_TEXT_MAX);
	assert_int_equal(side_decode(bytes, SIDE_HEAD_BYTES + 2 + SIDE_TEXT_MAX, &out), -EBADMSG);
	bytes[SIDE_HEAD_BYTES + 1] = 4;
	bytes[SIDE_HEAD_BYTES + 3] = '\0';
	set_length(bytes, 6);
	assert_int_equal(side_decode(bytes, SIDE_HEAD_BYTES + 6, &out), -EBADMSG);
}

static void the_largest_entry_fits(void **state)
{
	struct side_frame in = sample(SIDE_PROPOSE), out;
	uint8_t *data = calloc(1, ENTRY_BYTES_MAX), *bytes = malloc(SIDE_FRAME_MAX);

	in.data = data;
	in.len = ENTRY_BYTES_MAX;
	assert_int_equal(side_size(&in), SIDE_FRAME_MAX);
	side_encode(&in, bytes);
	assert_int_equal(side_length(bytes), SIDE_FRAME_MAX);
	assert_int_equal(side_decode(bytes, SIDE_FRAME_MAX, &out), 0);
	assert_int_equal(out.len, ENTRY_BYTES_MAX);
	free(data);
	free(bytes);
}

static void random_bytes_never_decode_to_more_than_they_are(void **state)
{
	uint64_t seed = 5;

	for (uint32_t i = 0; i < 200000; i++) {
		const uint32_t len = SIDE_HEAD_BYTES + (uint32_t)(unit_random(&seed) % 64);
		uint8_t *bytes = malloc(len);  // so that a sanitizer sees a byte too far
		struct side_frame out;

		for (uint32_t k = 0; k < len; k++)
			bytes[k] = (uint8_t)(unit_random(&seed) >> 40);
		set_length(bytes, len - SIDE_HEAD_BYTES);
		bytes[4] = (uint8_t)(1 + unit_random(&seed) % (SIDE_TYPE_END - 1));
		memset(bytes + 5, 0, 3);
		if (side_decode(bytes, len, &out) == 0) {
			assert_int_equal(side_size(&out), len);
		}
		free(bytes);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_type_comes_back_as_it_was),
		cmocka_unit_test(a_payload_too_short_or_too_long_is_refused),
		cmocka_unit_test(lengths_at_their_extremes_are_bounded),
		cmocka_unit_test(fields_outside_their_range_are_refused),
		cmocka_unit_test(strings_end_where_they_say),
		cmocka_unit_test(the_largest_entry_fits),
		cmocka_unit_test(random_bytes_never_decode_to_more_than_they_are),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
