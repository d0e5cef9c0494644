/* SPDX-License-Identifier: BSD-3-Clause */
// HINT and PRESENCE.
#include "wire_samples.h"

static void hints_survive_the_round_trip(void **state)
{
	uint8_t body[SAMPLE_MAX];
	uint32_t len = sample_body(S_HINT, body);
	struct wire_hint m;

	assert_int_equal(wire_get_hint((struct wire_view){body, len}, &m), 0);
	assert_int_equal(m.hint_id, 71);
	assert_int_equal(m.op, WIRE_HINT_INVALIDATE);
	assert_int_equal(m.answer, 0);
	assert_int_equal(m.commit, 1000);
	assert_int_equal(m.smv, 77);
	assert_memory_equal(&m.authority, &sample_authority, sizeof(m.authority));
	assert_true(id_equal(channel_key_id(&m.channel), id_view_of("room", 4)));
	len = sample_body(S_HINT_ANSWER, body);
	assert_int_equal(wire_get_hint((struct wire_view){body, len}, &m), 0);
	assert_int_equal(m.op, WIRE_HINT_FENCE);
	assert_int_equal(m.answer, 1);
	assert_int_equal(m.status, WIRE_NOT_LEADER);
	assert_int_equal(m.leader, 3);
	assert_int_equal(m.commit, 999);
	(void)state;
}

static void bad_hint_fields_are_refused(void **state)
{
	static const struct patch question[] = {
		{"id 0", 0, 8, 0, CTR_DROP_FIELD},
		{"a question that names a leader", 24, 8, 1, CTR_DROP_FIELD},
		{"term 0", 32, 8, 0, CTR_DROP_FIELD},
		{"slot 0", 56, 4, 0, CTR_DROP_FIELD},
		{"a question with a status", 60, 2, 1, CTR_DROP_FIELD},
		{"operation 0", 62, 1, 0, CTR_DROP_FIELD},
		{"operation 4", 62, 1, 4, CTR_DROP_FIELD},
		{"answer 2", 63, 1, 2, CTR_DROP_FIELD},
		{"type 0", 64, 1, 0, CTR_DROP_FIELD},
		{"no channel", 65, 1, 0, CTR_DROP_FIELD},
		{"channel too long", 65, 1, 5, CTR_DROP_SHORT},
		{"channel too short", 65, 1, 3, CTR_DROP_LENGTH},
		{"reserved 66", 66, 2, 1, CTR_DROP_FIELD},
		{"reserved 68", 68, 4, 1, CTR_DROP_FIELD},
	};
	static const struct patch answer[] = {
		{"status of a later version", 60, 2, 500, 0},
		{"type 13", 64, 1, 13, CTR_DROP_FIELD},
	};

	CHECK_PATCHES(S_HINT, question);
	CHECK_PATCHES(S_HINT_ANSWER, answer);
	(void)state;
}

static void presence_ranges_come_back_in_order(void **state)
{
	uint8_t body[SAMPLE_MAX];
	const uint32_t len = sample_body(S_PRESENCE, body);
	struct wire_presence m;
	struct wire_presence_range r;

	assert_int_equal(wire_get_presence((struct wire_view){body, len}, &m), 0);
	assert_int_equal(m.revision, 88);
	assert_int_equal(m.table_version, 6);
	assert_int_equal(m.stream_seq, 5);
	assert_int_equal(m.hash_slots, 256);
	assert_int_equal(m.count, 2);
	assert_true(wire_presence_next(&m.ranges, &r));
	assert_int_equal(r.first, 0);
	assert_int_equal(r.last, 25);
	assert_int_equal(r.slot, 1);
	assert_int_equal(r.term, 9);
	assert_int_equal(r.state, WIRE_PRESENCE_NOT_READY);
	assert_true(wire_presence_next(&m.ranges, &r));
	assert_int_equal(r.last, 255);
	assert_int_equal(r.state, WIRE_PRESENCE_COMPLETE);
	assert_false(wire_presence_next(&m.ranges, &r));
	(void)state;
}

static void bad_presence_fields_are_refused(void **state)
{
	static const struct patch patches[] = {
		{"table 0", 8, 8, 0, CTR_DROP_FIELD},
		{"no hash slots", 24, 4, 0, CTR_DROP_FIELD},
		{"too many hash slots", 24, 4, HASH_SLOTS_MAX + 1, CTR_DROP_FIELD},
		{"a range beyond the table", 24, 4, 255, CTR_DROP_FIELD},
		{"no ranges", 28, 2, 0, CTR_DROP_FIELD},
		{"more ranges", 28, 2, 3, CTR_DROP_SHORT},
		{"fewer ranges", 28, 2, 1, CTR_DROP_LENGTH},
		{"reserved", 30, 2, 1, CTR_DROP_FIELD},
		{"upside down", 32, 2, 26, CTR_DROP_FIELD},
		{"slot 0", 36, 4, 0, CTR_DROP_FIELD},
		{"term 0", 40, 8, 0, CTR_DROP_FIELD},
		{"state 0", 48, 1, 0, CTR_DROP_FIELD},
		{"state 4", 48, 1, 4, CTR_DROP_FIELD},
		{"padding", 55, 1, 1, CTR_DROP_FIELD},
	};

	CHECK_PATCHES(S_PRESENCE, patches);
	(void)state;
}

static void a_range_that_would_be_refused_is_not_added(void **state)
{
	uint8_t body[128];
	struct wire_buf out = {.p = body, .cap = sizeof(body), .ok = true};

	assert_true(wire_presence_begin(
		&out, &(struct wire_presence){.table_version = 1, .hash_slots = 16}));
	assert_false(wire_presence_add(
		&out, &(struct wire_presence_range){0, 16, 1, 1, WIRE_PRESENCE_READY}));
	for (uint32_t i = 0; i < 4; i++)
		assert_true(wire_presence_add(
			&out, &(struct wire_presence_range){0, 15, 1, 1, WIRE_PRESENCE_READY}));
	assert_false(wire_presence_add(
		&out, &(struct wire_presence_range){0, 15, 1, 1, WIRE_PRESENCE_READY}));
	assert_true(out.ok);
	(void)state;
}

static void lengths_are_checked(void **state)
{
	for (enum sample_id id = S_HINT; id <= S_PRESENCE; id++) {
		check_truncated_and_overlong(id);
		check_bit_flips(id);
		check_builder_fails_without_room(id);
	}
	(void)state;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(hints_survive_the_round_trip),
		cmocka_unit_test(bad_hint_fields_are_refused),
		cmocka_unit_test(presence_ranges_come_back_in_order),
		cmocka_unit_test(bad_presence_fields_are_refused),
		cmocka_unit_test(a_range_that_would_be_refused_is_not_added),
		cmocka_unit_test(lengths_are_checked),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
