/* SPDX-License-Identifier: BSD-3-Clause */
// TAG_GET and TAG_PART.
#include "wire_samples.h"

static void a_request_survives_the_round_trip(void **state)
{
	uint8_t body[SAMPLE_MAX];
	const uint32_t len = sample_body(S_TAG_GET, body);
	struct wire_tag_get m;

	assert_int_equal(wire_get_tag_get((struct wire_view){body, len}, &m), 0);
	assert_int_equal(m.request_id, 61);
	assert_int_equal(m.target, 4);
	assert_int_equal(m.tag_version, 900);
	assert_int_equal(m.have_version, 890);
	assert_int_equal(m.body_version, 901);
	assert_memory_equal(&m.authority, &sample_authority, sizeof(m.authority));
	assert_int_equal(m.first, 64);
	assert_int_equal(m.want, 0x8000000000000003u);
	assert_int_equal(m.room, 1416);
	assert_int_equal(m.flags, WIRE_TAG_GET_DELTA | WIRE_TAG_GET_PIN);
	assert_int_equal(m.channel.type, CHANNEL_GROUP);
	assert_true(id_equal(channel_key_id(&m.channel), id_view_of("room", 4)));
	(void)state;
}

static void bad_request_fields_are_refused(void **state)
{
	static const struct patch get[] = {
		{"request 0", 0, 8, 0, CTR_DROP_FIELD},
		{"target 0", 8, 8, 0, CTR_DROP_FIELD},
		{"whatever is current", 32, 8, 0, 0},
		{"nothing cached", 56, 8, 0, 0},
		{"term 0", 72, 8, 0, CTR_DROP_FIELD},
		{"nothing wanted", 96, 8, 0, CTR_DROP_FIELD},
		{"chunk beyond all", 104, 4, WIRE_PART_CHUNKS_MAX, CTR_DROP_FIELD},
		{"slot 0", 108, 4, 0, CTR_DROP_FIELD},
		{"no room", 112, 2, WIRE_ROOM_MIN - 1, CTR_DROP_FIELD},
		{"least room", 112, 2, WIRE_ROOM_MIN, 0},
		{"a future flag", 114, 1, 4, CTR_DROP_FIELD},
		{"type 0", 115, 1, 0, CTR_DROP_FIELD},
		{"type 13", 115, 1, 13, CTR_DROP_FIELD},
		{"no channel", 116, 1, 0, CTR_DROP_FIELD},
		{"channel too long", 116, 1, 5, CTR_DROP_SHORT},
		{"channel too short", 116, 1, 3, CTR_DROP_LENGTH},
		{"padding", 119, 1, 1, CTR_DROP_FIELD},
	};

	CHECK_PATCHES(S_TAG_GET, get);
	(void)state;
}

static void chunks_give_their_entries_back(void **state)
{
	uint8_t body[SAMPLE_MAX];
	uint32_t len = sample_body(S_TAG_PART, body);
	struct wire_tag_part m;
	struct wire_part_entry e;

	assert_int_equal(wire_get_tag_part((struct wire_view){body, len}, &m), 0);
	assert_int_equal(m.tag_version, 901);
	assert_int_equal(m.base_version, 0);
	assert_int_equal(m.smv, 77);
	assert_int_equal(m.table_version, 6);
	assert_int_equal(m.index, 1);
	assert_int_equal(m.count, 3);
	assert_int_equal(m.members, 33000);
	assert_true(wire_part_next(&m.body, &e));
	assert_int_equal(e.op, WIRE_PART_SLOT);
	assert_int_equal(e.slot, 3);
	assert_int_equal(e.term, 9);
	assert_int_equal(e.config_epoch, 1);
	assert_int_equal(e.balance_version, 4);
	assert_true(wire_part_next(&m.body, &e));
	assert_int_equal(e.op, WIRE_PART_MEMBER);
	assert_true(id_equal(e.uid, id_view_of("alice", 5)));
	assert_true(wire_part_next(&m.body, &e));
	assert_int_equal(e.op, WIRE_PART_DENIED);
	assert_false(wire_part_next(&m.body, &e));
	len = sample_body(S_DELTA_PART, body);
	assert_int_equal(wire_get_tag_part((struct wire_view){body, len}, &m), 0);
	assert_int_equal(m.base_version, 890);
	assert_true(wire_part_next(&m.body, &e));
	assert_int_equal(e.op, WIRE_PART_GONE);
	(void)state;
}

static void bad_chunk_fields_are_refused(void **state)
{
	static const struct patch part[] = {
		{"request 0", 0, 8, 0, CTR_DROP_FIELD},
		{"version 0", 24, 8, 0, CTR_DROP_FIELD},
		{"base of the same version", 32, 8, 901, CTR_DROP_FIELD},
		{"table 0", 48, 8, 0, CTR_DROP_FIELD},
		{"term 0", 64, 8, 0, CTR_DROP_FIELD},
		{"slot 0", 88, 4, 0, CTR_DROP_FIELD},
		{"index of count", 92, 4, 3, CTR_DROP_FIELD},
		{"no chunks", 96, 4, 0, CTR_DROP_FIELD},
		{"most chunks", 96, 4, WIRE_PART_CHUNKS_MAX, 0},
		{"too many chunks", 96, 4, WIRE_PART_CHUNKS_MAX + 1, CTR_DROP_FIELD},
		{"more entries", 108, 2, 4, CTR_DROP_SHORT},
		{"fewer entries", 108, 2, 2, CTR_DROP_LENGTH},
		{"a refusal with entries", 110, 2, WIRE_NOT_LEADER, CTR_DROP_FIELD},
		{"an unknown status with entries", 110, 2, 999, CTR_DROP_FIELD},
		{"operation 0", 112, 1, 0, CTR_DROP_FIELD},
		{"operation 5", 112, 1, 5, CTR_DROP_FIELD},
		{"slot entry of another size", 113, 1, 27, CTR_DROP_FIELD},
		{"slot 0 assigned", 114, 4, 0, CTR_DROP_FIELD},
		{"slot without a term", 118, 8, 0, CTR_DROP_FIELD},
		{"slot without a config epoch", 126, 8, 0, CTR_DROP_FIELD},
		{"gone from a whole partition", 142, 1, WIRE_PART_GONE, CTR_DROP_FIELD},
		{"an empty UID", 143, 1, 0, CTR_DROP_FIELD},
		{"a UID beyond the end", 150, 1, 4, CTR_DROP_SHORT},
	};

	CHECK_PATCHES(S_TAG_PART, part);
	(void)state;
}

static void slots_after_a_uid_are_refused(void **state)
{
	const struct wire_part_entry e[] = {
		{.op = WIRE_PART_MEMBER, .uid = id_view_of("a", 1)},
		{.op = WIRE_PART_SLOT, .slot = 3, .term = 9, .config_epoch = 1},
	};
	uint8_t body[SAMPLE_MAX];
	struct wire_buf out = {.p = body, .cap = sizeof(body), .ok = true};

	assert_false(sample_part(&out, e, 2, 0));
	(void)state;
}

static void a_refusal_tells_the_current_fence(void **state)
{
	static const uint16_t statuses[] = {WIRE_NOT_LEADER, WIRE_TAG_NOT_CURRENT,
		WIRE_TAG_VERSION_MISMATCH, WIRE_TAG_NOT_FOUND, WIRE_RETRYABLE, 12345};

	for (uint32_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++) {
		struct wire_tag_part m = {
			.request_id = 5, .status = statuses[i], .tag_version = 3, .leader = 2};
		uint8_t body[SAMPLE_MAX];
		struct wire_buf out = {.p = body, .cap = sizeof(body), .ok = true};

		m.tag_key[0] = 9;
		assert_true(wire_put_tag_part(&out, &m));
		assert_int_equal(out.len, WIRE_TAG_PART_BYTES);
		memset(&m, 0, sizeof(m));
		assert_int_equal(wire_get_tag_part((struct wire_view){body, out.len}, &m), 0);
		assert_int_equal(m.status, statuses[i]);
		assert_int_equal(m.tag_key[0], 9);
		assert_int_equal(m.tag_version, 3);
		assert_int_equal(m.leader, 2);
	}
	(void)state;
}

static void entries_fill_a_chunk_and_no_more(void **state)
{
	uint8_t body[40];
	struct wire_buf out = {.p = body, .cap = sizeof(body), .ok = true};
	const struct wire_part_entry e = {.op = WIRE_PART_MEMBER, .uid = id_view_of("12345678", 8)};

	assert_int_equal(wire_part_entry_bytes(&e), 10);
	for (uint32_t i = 0; i < 4; i++)
		assert_true(wire_part_add(&out, &e));
	assert_false(wire_part_add(&out, &e));
	assert_true(out.ok);
	assert_int_equal(out.len, 40);
	(void)state;
}

static void lengths_are_checked(void **state)
{
	for (enum sample_id id = S_TAG_GET; id <= S_DELTA_PART; id++) {
		check_truncated_and_overlong(id);
		check_bit_flips(id);
		check_builder_fails_without_room(id);
	}
	(void)state;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_request_survives_the_round_trip),
		cmocka_unit_test(bad_request_fields_are_refused),
		cmocka_unit_test(chunks_give_their_entries_back),
		cmocka_unit_test(bad_chunk_fields_are_refused),
		cmocka_unit_test(slots_after_a_uid_are_refused),
		cmocka_unit_test(a_refusal_tells_the_current_fence),
		cmocka_unit_test(entries_fill_a_chunk_and_no_more),
		cmocka_unit_test(lengths_are_checked),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
