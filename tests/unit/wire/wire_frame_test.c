/* SPDX-License-Identifier: BSD-3-Clause */
// Reassembly: order, repeats, disagreement, limits, time.
#include "wire_samples.h"

#include "wire_frame.h"

#define TIMEOUT UINT64_C(1000)

static uint8_t frame_bytes[FRAME_BYTES_MAX];
static const struct wire_header peer = {.sender = 2, .boot = 3, .lane = 1};

static int fill(void **state)
{
	for (uint32_t i = 0; i < sizeof(frame_bytes); i++)
		frame_bytes[i] = (uint8_t)(i * 31 + (i >> 8));
	(void)state;
	return 0;
}

// Part `index` of a frame of `total` bytes cut into parts of `size`.
static struct wire_segment part(uint32_t id, uint32_t total, uint32_t size, uint16_t index)
{
	const uint32_t at = index * size;
	const uint32_t len = total - at < size ? total - at : size;

	return (struct wire_segment){
		.frame_id = id,
		.type = WIRE_PUBLISH,
		.index = index,
		.count = (uint16_t)((total + size - 1) / size),
		.total = total,
		.offset = at,
		.part = {.p = frame_bytes + at, .len = len},
	};
}

static enum wire_part give_from(struct wire_reassembly *r, const struct wire_header *from,
	struct wire_segment m, uint64_t now)
{
	struct wire_view frame = {0};
	uint32_t handle = 0;
	const enum wire_part got = wire_reassembly_add(r, from, &m, now, &frame, &handle);

	if (got == WIRE_PART_COMPLETE) {
		assert_int_equal(frame.len, m.total);
		assert_memory_equal(frame.p, frame_bytes, m.total);
		wire_reassembly_release(r, handle);
	}
	return got;
}

static enum wire_part give(struct wire_reassembly *r, struct wire_segment m, uint64_t now)
{
	return give_from(r, &peer, m, now);
}

static void parts_in_order_make_the_frame(void **state)
{
	struct wire_reassembly *const r = wire_reassembly_create(2, TIMEOUT);

	for (uint16_t i = 0; i < 4; i++)
		assert_int_equal(give(r, part(1, 5000, 1000, i), 0), WIRE_PART_MORE);
	assert_int_equal(wire_reassembly_pending(r), 1);
	assert_int_equal(give(r, part(1, 5000, 1000, 4), 0), WIRE_PART_COMPLETE);
	assert_int_equal(wire_reassembly_pending(r), 0);
	wire_reassembly_destroy(r);
	(void)state;
}

static void any_order_makes_the_frame(void **state)
{
	static const uint16_t orders[][4] = {
		{3, 2, 1, 0}, {3, 0, 2, 1}, {1, 3, 0, 2}, {2, 3, 1, 0}};
	struct wire_reassembly *const r = wire_reassembly_create(1, TIMEOUT);

	for (uint32_t o = 0; o < 4; o++) {
		for (uint32_t i = 0; i < 4; i++)
			assert_int_equal(give(r, part(o, 3001, 1000, orders[o][i]), 0),
				i == 3 ? WIRE_PART_COMPLETE : WIRE_PART_MORE);
	}
	wire_reassembly_destroy(r);
	(void)state;
}

static void largest_frame_fits(void **state)
{
	struct wire_reassembly *const r = wire_reassembly_create(1, TIMEOUT);

	for (uint16_t i = 255; i > 0; i--)
		assert_int_equal(give(r, part(9, FRAME_BYTES_MAX, 384, i), 0), WIRE_PART_MORE);
	assert_int_equal(give(r, part(9, FRAME_BYTES_MAX, 384, 0), 0), WIRE_PART_COMPLETE);
	wire_reassembly_destroy(r);
	(void)state;
}

static void repeated_parts_change_nothing(void **state)
{
	struct wire_reassembly *const r = wire_reassembly_create(1, TIMEOUT);

	assert_int_equal(give(r, part(1, 2500, 1000, 0), 0), WIRE_PART_MORE);
	assert_int_equal(give(r, part(1, 2500, 1000, 0), 1), WIRE_PART_MORE);
	assert_int_equal(give(r, part(1, 2500, 1000, 0), 2), WIRE_PART_MORE);
	assert_int_equal(give(r, part(1, 2500, 1000, 2), 3), WIRE_PART_MORE);
	assert_int_equal(give(r, part(1, 2500, 1000, 1), 4), WIRE_PART_COMPLETE);
	wire_reassembly_destroy(r);
	(void)state;
}

static void parts_of_a_completed_frame_are_repeats(void **state)
{
	struct wire_reassembly *const r = wire_reassembly_create(2, TIMEOUT);
	struct wire_segment last = part(1, 2500, 1000, 2);
	struct wire_view frame;
	uint32_t handle;

	give(r, part(1, 2500, 1000, 0), 0);
	give(r, part(1, 2500, 1000, 1), 0);
	assert_int_equal(
		wire_reassembly_add(r, &peer, &last, 0, &frame, &handle), WIRE_PART_COMPLETE);
	// Before and after the release.
	assert_int_equal(give(r, part(1, 2500, 1000, 0), 10), WIRE_PART_REPEATED);
	wire_reassembly_release(r, handle);
	assert_int_equal(give(r, part(1, 2500, 1000, 2), 20), WIRE_PART_REPEATED);
	assert_int_equal(wire_reassembly_pending(r), 0);
	// Long after, the name means a new frame.
	assert_int_equal(give(r, part(1, 2500, 1000, 0), 100 * TIMEOUT), WIRE_PART_MORE);
	wire_reassembly_destroy(r);
	(void)state;
}

static void sender_boot_lane_and_id_name_a_frame(void **state)
{
	const struct wire_header others[] = {
		{.sender = 9, .boot = 3, .lane = 1},
		{.sender = 2, .boot = 9, .lane = 1},
		{.sender = 2, .boot = 3, .lane = 9},
	};
	struct wire_reassembly *const r = wire_reassembly_create(5, TIMEOUT);

	assert_int_equal(give(r, part(1, 2000, 1000, 0), 0), WIRE_PART_MORE);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(
			give_from(r, &others[i], part(1, 2000, 1000, 1), 0), WIRE_PART_MORE);
	assert_int_equal(give(r, part(2, 2000, 1000, 1), 0), WIRE_PART_MORE);
	assert_int_equal(wire_reassembly_pending(r), 5);
	assert_int_equal(give(r, part(1, 2000, 1000, 1), 0), WIRE_PART_COMPLETE);
	// What one peer completed is no repeat of another's.
	assert_int_equal(give_from(r, &others[0], part(1, 2000, 1000, 0), 0), WIRE_PART_COMPLETE);
	wire_reassembly_destroy(r);
	(void)state;
}

static void parts_that_disagree_are_refused_and_do_no_harm(void **state)
{
	struct wire_reassembly *const r = wire_reassembly_create(1, TIMEOUT);
	struct wire_segment bad;
	uint8_t forged[1000] = {0};

	assert_int_equal(give(r, part(1, 2500, 1000, 0), 0), WIRE_PART_MORE);
	bad = part(1, 2500, 1000, 1);
	bad.type = WIRE_PUSH;
	assert_int_equal(give(r, bad, 0), WIRE_PART_BAD);
	assert_int_equal(give(r, part(1, 2600, 1000, 1), 0), WIRE_PART_BAD);  // another total
	assert_int_equal(
		give(r, part(1, 2500, 900, 1), 0), WIRE_PART_BAD);  // another size: overlaps
	assert_int_equal(give(r, part(1, 2500, 1200, 2), 0), WIRE_PART_BAD);
	assert_int_equal(give(r, part(1, 2500, 1300, 1), 0), WIRE_PART_BAD);  // another count
	bad = part(1, 2500, 1000, 0);
	bad.part.p = forged;  // same place, other bytes
	assert_int_equal(give(r, bad, 0), WIRE_PART_BAD);
	assert_int_equal(give(r, part(1, 2500, 1000, 1), 0), WIRE_PART_MORE);
	assert_int_equal(give(r, part(1, 2500, 1000, 2), 0), WIRE_PART_COMPLETE);
	wire_reassembly_destroy(r);
	(void)state;
}

static void part_size_is_learnt_from_the_last_part_too(void **state)
{
	struct wire_reassembly *const r = wire_reassembly_create(1, TIMEOUT);

	assert_int_equal(give(r, part(1, 2500, 1000, 2), 0), WIRE_PART_MORE);
	assert_int_equal(give(r, part(1, 2500, 900, 0), 0), WIRE_PART_BAD);
	assert_int_equal(give(r, part(1, 2500, 1000, 0), 0), WIRE_PART_MORE);
	assert_int_equal(give(r, part(1, 2500, 1000, 1), 0), WIRE_PART_COMPLETE);
	wire_reassembly_destroy(r);
	(void)state;
}

static void parts_outside_a_slot_are_refused(void **state)
{
	struct wire_reassembly *const r = wire_reassembly_create(1, TIMEOUT);
	struct wire_segment m = part(1, 2000, 1000, 0);

	m.index = 2;
	assert_int_equal(give(r, m, 0), WIRE_PART_BAD);
	m = part(1, 2000, 1000, 0);
	m.total = FRAME_BYTES_MAX + 1;
	assert_int_equal(give(r, m, 0), WIRE_PART_BAD);
	m = part(1, 2000, 1000, 1);
	m.offset = UINT32_MAX - 10;
	assert_int_equal(give(r, m, 0), WIRE_PART_BAD);
	m = part(1, 2000, 1000, 0);
	m.count = 1;
	assert_int_equal(give(r, m, 0), WIRE_PART_BAD);
	assert_int_equal(wire_reassembly_pending(r), 0);
	wire_reassembly_destroy(r);
	(void)state;
}

static void frames_beyond_the_limit_are_refused(void **state)
{
	struct wire_reassembly *const r = wire_reassembly_create(3, TIMEOUT);

	for (uint32_t id = 0; id < 3; id++)
		assert_int_equal(give(r, part(id, 2000, 1000, 0), 0), WIRE_PART_MORE);
	assert_int_equal(give(r, part(7, 2000, 1000, 0), 1), WIRE_PART_FULL);
	assert_int_equal(wire_reassembly_pending(r), 3);
	// Those begun still complete, and make room.
	assert_int_equal(give(r, part(1, 2000, 1000, 1), 1), WIRE_PART_COMPLETE);
	assert_int_equal(give(r, part(7, 2000, 1000, 0), 1), WIRE_PART_MORE);
	wire_reassembly_destroy(r);
	(void)state;
}

static void unreleased_frames_take_room(void **state)
{
	struct wire_reassembly *const r = wire_reassembly_create(1, TIMEOUT);
	struct wire_segment last = part(1, 2000, 1000, 1);
	struct wire_view frame;
	uint32_t handle;

	give(r, part(1, 2000, 1000, 0), 0);
	assert_int_equal(
		wire_reassembly_add(r, &peer, &last, 0, &frame, &handle), WIRE_PART_COMPLETE);
	assert_int_equal(give(r, part(2, 2000, 1000, 0), 0), WIRE_PART_FULL);
	// Nor does time take them away: they are the caller's.
	assert_int_equal(give(r, part(2, 2000, 1000, 0), 100 * TIMEOUT), WIRE_PART_FULL);
	assert_int_equal(wire_reassembly_expire(r, 100 * TIMEOUT), 0);
	assert_memory_equal(frame.p, frame_bytes, 2000);
	wire_reassembly_release(r, handle);
	assert_int_equal(give(r, part(2, 2000, 1000, 0), 100 * TIMEOUT), WIRE_PART_MORE);
	wire_reassembly_destroy(r);
	(void)state;
}

static void frames_that_never_complete_are_given_up(void **state)
{
	struct wire_reassembly *const r = wire_reassembly_create(4, TIMEOUT);

	give(r, part(1, 2000, 1000, 0), 0);
	give(r, part(2, 2000, 1000, 0), 500);
	give(r, part(1, 2000, 1000, 0), 900);  // a repeat keeps nothing alive
	assert_int_equal(wire_reassembly_expire(r, TIMEOUT), 0);
	assert_int_equal(wire_reassembly_expire(r, TIMEOUT + 1), 1);
	assert_int_equal(wire_reassembly_pending(r), 1);
	// Given up, not completed: the missing part begins the frame anew.
	assert_int_equal(give(r, part(1, 2000, 1000, 1), TIMEOUT + 2), WIRE_PART_MORE);
	assert_int_equal(give(r, part(2, 2000, 1000, 1), TIMEOUT + 3), WIRE_PART_COMPLETE);
	assert_int_equal(wire_reassembly_expire(r, 10 * TIMEOUT), 1);
	assert_int_equal(wire_reassembly_pending(r), 0);
	wire_reassembly_destroy(r);
	(void)state;
}

static void the_oldest_expired_frame_makes_room(void **state)
{
	struct wire_reassembly *const r = wire_reassembly_create(2, TIMEOUT);

	give(r, part(1, 2000, 1000, 0), 0);
	give(r, part(2, 2000, 1000, 0), 600);
	assert_int_equal(give(r, part(3, 2000, 1000, 0), TIMEOUT), WIRE_PART_FULL);
	assert_int_equal(give(r, part(3, 2000, 1000, 0), TIMEOUT + 1), WIRE_PART_MORE);
	assert_int_equal(wire_reassembly_pending(r), 2);
	assert_int_equal(give(r, part(2, 2000, 1000, 1), TIMEOUT + 1), WIRE_PART_COMPLETE);
	// Reported once, by the next expire.
	assert_int_equal(wire_reassembly_expire(r, TIMEOUT + 1), 1);
	assert_int_equal(wire_reassembly_expire(r, TIMEOUT + 1), 0);
	wire_reassembly_destroy(r);
	(void)state;
}

static void many_frames_interleave(void **state)
{
	enum { FRAMES = 64, PARTS = 5 };
	struct wire_reassembly *const r = wire_reassembly_create(FRAMES, TIMEOUT);

	for (uint32_t round = 0; round < 20; round++) {
		for (uint16_t i = 0; i < PARTS; i++) {
			for (uint32_t f = 0; f < FRAMES; f++)
				assert_int_equal(
					give(r, part(round * FRAMES + f, 4100, 1000, i), round),
					i == PARTS - 1 ? WIRE_PART_COMPLETE : WIRE_PART_MORE);
		}
	}
	assert_int_equal(wire_reassembly_pending(r), 0);
	wire_reassembly_destroy(r);
	(void)state;
}

static void limits_of_creation_are_checked(void **state)
{
	struct wire_reassembly *r;

	assert_null(wire_reassembly_create(0, TIMEOUT));
	assert_null(wire_reassembly_create(65537, TIMEOUT));
	r = wire_reassembly_create(1, UINT64_MAX);
	assert_non_null(r);
	assert_int_equal(give(r, part(1, 2000, 1000, 0), 0), WIRE_PART_MORE);
	assert_int_equal(wire_reassembly_expire(r, UINT64_MAX), 0);
	wire_reassembly_destroy(r);
	wire_reassembly_destroy(NULL);
	(void)state;
}

static void owner_has_its_share_and_leaves_the_rest(void **state)
{
	struct wire_reassembly *const r = wire_reassembly_create(8, TIMEOUT);
	struct wire_header other = peer;
	struct wire_view frame;
	uint32_t handle;
	uint8_t byte[10] = {0};
	struct wire_segment first = {
		.type = WIRE_PUBLISH, .count = 2, .total = 20, .part = {.p = byte, .len = 10}};
	struct wire_segment last = {.type = WIRE_PUBLISH,
		.index = 1,
		.count = 2,
		.total = 20,
		.offset = 10,
		.part = {.p = byte, .len = 10}};

	(void)state;
	wire_reassembly_share(r, 2);
	for (uint32_t f = 1; f <= 5; f++) {
		first.frame_id = f;
		assert_int_equal(wire_reassembly_add(r, &peer, &first, 0, &frame, &handle),
			f <= 2 ? WIRE_PART_MORE : WIRE_PART_SHARE);
	}
	other.sender++;
	assert_int_equal(
		wire_reassembly_add(r, &other, &first, 0, &frame, &handle), WIRE_PART_MORE);
	// Under another owner's name the same sender has more.
	assert_int_equal(wire_reassembly_add_owned(r, 77, &peer, &first, 0, &frame, &handle),
		WIRE_PART_MORE);
	// A complete one counts until it is released.
	last.frame_id = 1;
	assert_int_equal(
		wire_reassembly_add(r, &peer, &last, 0, &frame, &handle), WIRE_PART_COMPLETE);
	first.frame_id = 6;
	assert_int_equal(
		wire_reassembly_add(r, &peer, &first, 0, &frame, &(uint32_t){0}), WIRE_PART_SHARE);
	wire_reassembly_release(r, handle);
	assert_int_equal(wire_reassembly_add(r, &peer, &first, 0, &frame, &handle), WIRE_PART_MORE);
	first.frame_id = 7;
	assert_int_equal(
		wire_reassembly_add(r, &peer, &first, 0, &frame, &handle), WIRE_PART_SHARE);
	// What it has is too old: it goes.
	assert_int_equal(wire_reassembly_add(r, &peer, &first, TIMEOUT + 1, &frame, &handle),
		WIRE_PART_MORE);
	wire_reassembly_destroy(r);
}

static void forgotten_frame_is_made_again(void **state)
{
	struct wire_reassembly *const r = wire_reassembly_create(2, TIMEOUT);
	uint8_t byte[10] = {0};
	struct wire_segment part = {.frame_id = 1,
		.type = WIRE_PUBLISH,
		.count = 2,
		.total = 20,
		.part = {.p = byte, .len = 10}};
	struct wire_view frame;
	uint32_t handle;

	(void)state;
	for (int round = 0; round < 3; round++) {
		part.index = 0;
		part.offset = 0;
		assert_int_equal(
			wire_reassembly_add(r, &peer, &part, 0, &frame, &handle), WIRE_PART_MORE);
		part.index = 1;
		part.offset = 10;
		assert_int_equal(wire_reassembly_add(r, &peer, &part, 0, &frame, &handle),
			WIRE_PART_COMPLETE);
		wire_reassembly_forget(r, handle);
	}
	wire_reassembly_destroy(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(parts_in_order_make_the_frame),
		cmocka_unit_test(any_order_makes_the_frame),
		cmocka_unit_test(largest_frame_fits),
		cmocka_unit_test(repeated_parts_change_nothing),
		cmocka_unit_test(parts_of_a_completed_frame_are_repeats),
		cmocka_unit_test(sender_boot_lane_and_id_name_a_frame),
		cmocka_unit_test(parts_that_disagree_are_refused_and_do_no_harm),
		cmocka_unit_test(part_size_is_learnt_from_the_last_part_too),
		cmocka_unit_test(parts_outside_a_slot_are_refused),
		cmocka_unit_test(frames_beyond_the_limit_are_refused),
		cmocka_unit_test(unreleased_frames_take_room),
		cmocka_unit_test(frames_that_never_complete_are_given_up),
		cmocka_unit_test(the_oldest_expired_frame_makes_room),
		cmocka_unit_test(many_frames_interleave),
		cmocka_unit_test(owner_has_its_share_and_leaves_the_rest),
		cmocka_unit_test(forgotten_frame_is_made_again),
		cmocka_unit_test(limits_of_creation_are_checked),
	};

	return cmocka_run_group_tests(tests, fill, NULL);
}
