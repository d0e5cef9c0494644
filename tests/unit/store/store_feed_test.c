/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "store_feed.h"

static const uint8_t uids[] = {1, 'a', 3, 'b', 'c', 'd'};

static struct store_feed_frame sample(uint8_t type)
{
	struct store_feed_frame frame = {.type = type,
		.proto = STORE_FEED_PROTO,
		.node = 7,
		.generation = UINT64_C(0x1122334455667788),
		.commit = UINT64_MAX,
		.resync = 1};

	if (type == STORE_FEED_DELTA) {
		frame.delta = (struct store_delta){.commit = 9,
			.smv_before = 4,
			.smv = 5,
			.members = 2,
			.kind = STORE_DELTA_ADD,
			.list = STORE_MEMBERS,
			.uid_count = 2,
			.uids = uids,
			.uids_bytes = sizeof(uids)};
		assert_int_equal(channel_key_set(&frame.delta.channel, 2, "ch", 2), 0);
	}
	return frame;
}

static uint32_t encode(uint8_t type, uint8_t *out, uint32_t cap)
{
	const struct store_feed_frame frame = sample(type);
	const int bytes = store_feed_encode(&frame, out, cap);

	assert_true(bytes > 0);
	return (uint32_t)bytes;
}

static void frames_come_back_as_they_were(void **state)
{
	struct store_feed_frame got;
	uint8_t out[512];

	for (uint8_t type = STORE_FEED_HELLO; type <= STORE_FEED_WAIT; type++) {
		const struct store_feed_frame want = sample(type);
		const uint32_t len = encode(type, out, sizeof(out));

		assert_int_equal(store_feed_decode(out, len, &got), len);
		assert_int_equal(got.type, type);
		if (type == STORE_FEED_HELLO) {
			assert_int_equal(got.proto, want.proto);
			assert_int_equal(got.node, want.node);
		}
		if (type == STORE_FEED_HELLO || type == STORE_FEED_WELCOME)
			assert_int_equal(got.generation, want.generation);
		if (type == STORE_FEED_HELLO || type == STORE_FEED_WELCOME ||
			type == STORE_FEED_APPLIED)
			assert_true(got.commit == want.commit);
		if (type == STORE_FEED_WELCOME)
			assert_int_equal(got.resync, 1);
		if (type == STORE_FEED_DELTA) {
			assert_int_equal(got.commit, 9);
			assert_int_equal(got.delta.smv, 5);
			assert_int_equal(got.delta.uid_count, 2);
			assert_true(channel_key_equal(&got.delta.channel, &want.delta.channel));
			assert_memory_equal(got.delta.uids, uids, sizeof(uids));
		}
	}
}

static void hello_has_these_bytes(void **state)
{
	static const uint8_t want[] = {29, 0, 0, 0, 1, 1, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0x88,
		0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 255, 255, 255, 255, 255, 255, 255, 255};
	uint8_t out[64];

	assert_int_equal(encode(STORE_FEED_HELLO, out, sizeof(out)), sizeof(want));
	assert_memory_equal(out, want, sizeof(want));
}

static void every_truncation_waits_for_more(void **state)
{
	struct store_feed_frame got;
	uint8_t out[512];

	for (uint8_t type = STORE_FEED_HELLO; type <= STORE_FEED_WAIT; type++) {
		const uint32_t len = encode(type, out, sizeof(out));

		for (uint32_t cut = 0; cut < len; cut++) {
			uint8_t *copy = malloc(cut + 1);

			memcpy(copy, out, cut);
			assert_int_equal(store_feed_decode(copy, cut, &got), 0);
			free(copy);
		}
		// What follows belongs to the next frame.
		out[len] = 0xff;
		assert_int_equal(store_feed_decode(out, len + 1, &got), len);
	}
}

static void every_length_but_the_right_one_is_no_frame(void **state)
{
	struct store_feed_frame got;
	uint8_t out[512];

	for (uint8_t type = STORE_FEED_HELLO; type <= STORE_FEED_WAIT; type++) {
		const uint32_t len = encode(type, out, 256);

		memset(out + len, 0, sizeof(out) - len);
		for (uint32_t body = 0; body < 300; body++) {
			out[0] = (uint8_t)body;
			out[1] = (uint8_t)(body >> 8);
			if (body != len - 4)
				assert_int_equal(
					store_feed_decode(out, sizeof(out), &got), -EPROTO);
		}
	}
}

static void unknown_types_and_huge_lengths_are_refused_early(void **state)
{
	static const uint8_t unknown[] = {1, 0, 0, 0, 7}, zero[] = {1, 0, 0, 0, 0};
	static const uint8_t huge[] = {0xff, 0xff, 0xff, 0x7f}, over[] = {0x00, 0x04, 0x04, 0x00};
	struct store_feed_frame got;

	assert_int_equal(store_feed_decode(unknown, sizeof(unknown), &got), -EPROTO);
	assert_int_equal(store_feed_decode(zero, sizeof(zero), &got), -EPROTO);
	assert_int_equal(store_feed_decode(huge, sizeof(huge), &got), -EPROTO);
	assert_int_equal(store_feed_decode(over, sizeof(over), &got), -EPROTO);
}

static void resync_is_yes_or_no(void **state)
{
	struct store_feed_frame got;
	uint8_t out[64];
	const uint32_t len = encode(STORE_FEED_WELCOME, out, sizeof(out));

	out[len - 1] = 2;
	assert_int_equal(store_feed_decode(out, len, &got), -EPROTO);
}

static void a_delta_with_bad_uids_is_refused(void **state)
{
	struct store_feed_frame got;
	uint8_t out[512];
	const uint32_t len = encode(STORE_FEED_DELTA, out, sizeof(out));

	out[len - 6] = 0;  // length of the first UID
	assert_int_equal(store_feed_decode(out, len, &got), -EPROTO);
	out[len - 6] = 200;
	assert_int_equal(store_feed_decode(out, len, &got), -EPROTO);
}

static void no_room_is_said_and_nothing_written_past_it(void **state)
{
	uint8_t out[512];

	for (uint8_t type = STORE_FEED_HELLO; type <= STORE_FEED_WAIT; type++) {
		const struct store_feed_frame frame = sample(type);
		const uint32_t len = encode(type, out, sizeof(out));

		for (uint32_t cap = 0; cap < len; cap++) {
			uint8_t *small = malloc(cap + 1);

			small[cap] = 0x5a;
			assert_int_equal(store_feed_encode(&frame, small, cap), -ENOSPC);
			assert_int_equal(small[cap], 0x5a);
			free(small);
		}
	}
	assert_int_equal(
		store_feed_encode(&(struct store_feed_frame){.type = 77}, out, sizeof(out)),
		-EINVAL);
}

static void the_largest_delta_fits_a_frame(void **state)
{
	const uint32_t count = ENTRY_BYTES_MAX / 256;
	uint8_t *packed = calloc(1, ENTRY_BYTES_MAX), *out = malloc(STORE_FEED_FRAME_MAX);
	struct store_feed_frame frame = sample(STORE_FEED_DELTA), got;
	uint8_t id[ID_LEN_MAX];
	int bytes;

	memset(id, 'c', sizeof(id));
	for (uint32_t i = 0; i < count; i++)
		packed[i * 256] = 255;
	assert_int_equal(channel_key_set(&frame.delta.channel, 12, id, 255), 0);
	frame.delta.uids = packed;
	frame.delta.uid_count = count;
	frame.delta.uids_bytes = count * 256;
	bytes = store_feed_encode(&frame, out, STORE_FEED_FRAME_MAX);
	assert_true(bytes > (int)(count * 256));
	assert_int_equal(store_feed_decode(out, (uint32_t)bytes, &got), bytes);
	assert_int_equal(got.delta.uid_count, count);
	free(packed);
	free(out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(frames_come_back_as_they_were),
		cmocka_unit_test(hello_has_these_bytes),
		cmocka_unit_test(every_truncation_waits_for_more),
		cmocka_unit_test(every_length_but_the_right_one_is_no_frame),
		cmocka_unit_test(unknown_types_and_huge_lengths_are_refused_early),
		cmocka_unit_test(resync_is_yes_or_no),
		cmocka_unit_test(a_delta_with_bad_uids_is_refused),
		cmocka_unit_test(no_room_is_said_and_nothing_written_past_it),
		cmocka_unit_test(the_largest_delta_fits_a_frame),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
