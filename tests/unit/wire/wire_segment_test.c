/* SPDX-License-Identifier: BSD-3-Clause */
// SEGMENT: what one part alone may claim.
#include "wire_samples.h"

static void segment_survives_the_round_trip(void **state)
{
	uint8_t body[SAMPLE_MAX];
	const uint32_t len = sample_body(S_SEGMENT, body);
	struct wire_segment m;

	assert_int_equal(len, WIRE_SEGMENT_BYTES + 7);
	assert_int_equal(wire_get_segment((struct wire_view){body, len}, &m), 0);
	assert_int_equal(m.frame_id, 41);
	assert_int_equal(m.type, WIRE_PUSH);
	assert_int_equal(m.index, 2);
	assert_int_equal(m.count, 3);
	assert_int_equal(m.total, 47);
	assert_int_equal(m.offset, 40);
	assert_int_equal(m.part.len, 7);
	assert_memory_equal(m.part.p, "7 bytes", 7);
	(void)state;
}

static void bad_segment_fields_are_refused(void **state)
{
	static const struct patch patches[] = {
		{"frame id 0", 0, 4, 0, 0},
		{"type publish", 4, 1, WIRE_PUBLISH, 0},
		{"type task", 4, 1, WIRE_TASK, 0},
		{"type 0", 4, 1, 0, CTR_DROP_FIELD},
		{"a segment in a segment", 4, 1, WIRE_SEGMENT, CTR_DROP_FIELD},
		{"type ack", 4, 1, WIRE_PUSH_ACK, CTR_DROP_FIELD},
		{"attempt", 5, 1, 255, 0},
		{"reserved 6", 6, 2, 1, CTR_DROP_FIELD},
		{"index 1", 8, 2, 1, CTR_DROP_FIELD},
		{"index count", 8, 2, 3, CTR_DROP_FIELD},
		{"index 65535", 8, 2, 65535, CTR_DROP_FIELD},
		{"count 0", 10, 2, 0, CTR_DROP_FIELD},
		{"count 1", 10, 2, 1, CTR_DROP_FIELD},
		{"count 2", 10, 2, 2, CTR_DROP_FIELD},
		{"count over the limit", 10, 2, FRAME_SEGMENTS_MAX + 1, CTR_DROP_FIELD},
		{"count 65535", 10, 2, 65535, CTR_DROP_FIELD},
		{"total less", 12, 4, 46, CTR_DROP_FIELD},
		{"total more", 12, 4, 48, CTR_DROP_FIELD},
		{"total over the limit", 12, 4, FRAME_BYTES_MAX + 1, CTR_DROP_FIELD},
		{"total 0", 12, 4, 0, CTR_DROP_FIELD},
		{"total 2^32 - 1", 12, 4, UINT32_MAX, CTR_DROP_FIELD},
		{"offset 0", 16, 4, 0, CTR_DROP_FIELD},
		{"offset less", 16, 4, 39, CTR_DROP_FIELD},
		{"offset beyond", 16, 4, 41, CTR_DROP_FIELD},
		{"offset that would wrap", 16, 4, UINT32_MAX - 3, CTR_DROP_FIELD},
	};

	CHECK_PATCHES(S_SEGMENT, patches);
	(void)state;
}

struct claim {
	const char *what;
	uint16_t index, count;
	uint32_t total, offset, part;
	bool good;
};

static void parts_must_tile_their_frame(void **state)
{
	static const struct claim claims[] = {
		{"first of two", 0, 2, 2000, 0, 1000, true},
		{"last of two", 1, 2, 2000, 1000, 1000, true},
		{"short last", 1, 2, 1001, 1000, 1, true},
		{"last larger than the others", 1, 2, 2001, 1000, 1001, false},
		{"empty last", 1, 2, 1000, 1000, 0, false},
		{"first leaves nothing for the last", 0, 2, 1000, 0, 1000, false},
		{"first leaves too much for the last", 0, 2, 2001, 0, 1000, false},
		{"first leaves one byte", 0, 2, 1001, 0, 1000, true},
		{"middle in place", 1, 3, 2500, 1000, 1000, true},
		{"middle out of place", 1, 3, 2500, 999, 1000, false},
		{"middle overlaps", 1, 3, 2500, 500, 1000, false},
		{"too many parts for the total", 0, 4, 2500, 0, 1000, false},
		{"last of a frame with uneven parts", 2, 3, 2500, 1001, 1499, false},
		{"largest frame", 255, 256, FRAME_BYTES_MAX, 255 * 384, 384, true},
		{"one part too many", 256, 257, FRAME_BYTES_MAX, 256 * 383, 256, false},
	};
	static uint8_t bytes[FRAME_BYTES_MAX], body[FRAME_BYTES_MAX];

	for (size_t i = 0; i < sizeof(claims) / sizeof(claims[0]); i++) {
		const struct claim *const c = &claims[i];
		const struct wire_segment m = {
			.type = WIRE_PUBLISH,
			.index = c->index,
			.count = c->count,
			.total = c->total,
			.offset = c->offset,
			.part = {.p = bytes, .len = c->part},
		};
		struct wire_buf out = {.p = body, .cap = sizeof(body), .ok = true};
		const bool built = wire_put_segment(&out, &m);

		if (built != c->good)
			fail_msg("%s: %s", c->what, built ? "accepted" : "refused");
	}
	(void)state;
}

static void lengths_are_exact(void **state)
{
	check_truncated_and_overlong(S_SEGMENT);
	check_bit_flips(S_SEGMENT);
	check_builder_fails_without_room(S_SEGMENT);
	(void)state;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(segment_survives_the_round_trip),
		cmocka_unit_test(bad_segment_fields_are_refused),
		cmocka_unit_test(parts_must_tile_their_frame),
		cmocka_unit_test(lengths_are_exact),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
