/* SPDX-License-Identifier: BSD-3-Clause */
// TASK, its answer, and statuses of answers.
#include "wire_samples.h"

static void a_task_survives_the_round_trip(void **state)
{
	uint8_t body[SAMPLE_MAX];
	const uint32_t len = sample_body(S_TASK, body);
	struct wire_task m;

	assert_int_equal(wire_get_task((struct wire_view){body, len}, &m), 0);
	assert_int_equal(m.task_id, 51);
	assert_int_equal(m.message_id, 12);
	assert_int_equal(m.seq, 7);
	assert_int_equal(m.stamp, 13);
	assert_int_equal(m.tag_key[15], 16);
	assert_int_equal(m.tag_version, 900);
	assert_int_equal(m.target, 4);
	assert_memory_equal(&m.authority, &sample_authority, sizeof(m.authority));
	assert_int_equal(m.deadline_ms, 1500);
	assert_int_equal(m.ack, WIRE_ACK_CLIENT);
	assert_int_equal(m.attempt, 1);
	assert_true(id_equal(m.channel, id_view_of("room", 4)));
	assert_true(id_equal(m.from_uid, id_view_of("alice", 5)));
	assert_int_equal(m.sender_gateway, 21);
	assert_int_equal(m.sender_boot, 22);
	assert_int_equal(m.sender_slot, 23);
	assert_int_equal(m.sender_gen, 24);
	assert_int_equal(m.payload.len, 11);
	assert_memory_equal(m.payload.p, "hello, room", 11);
	assert_int_equal(m.uid_count, 0);
	(void)state;
}

static void a_scoped_task_carries_its_recipients_and_no_fence(void **state)
{
	uint8_t body[SAMPLE_MAX];
	const uint32_t len = sample_body(S_SCOPED_TASK, body);
	struct wire_task m;
	struct id_view uid;

	assert_int_equal(wire_get_task((struct wire_view){body, len}, &m), 0);
	assert_int_equal(m.flags, WIRE_TASK_SCOPED);
	assert_int_equal(m.tag_version, 0);
	assert_int_equal(m.uid_count, 2);
	assert_true(wire_uids_next(&m.uids, &uid));
	assert_true(id_equal(uid, id_view_of("u1", 2)));
	assert_true(wire_uids_next(&m.uids, &uid));
	assert_true(id_equal(uid, id_view_of("u2", 2)));
	assert_false(wire_uids_next(&m.uids, &uid));
	(void)state;
}

static void bad_task_fields_are_refused(void **state)
{
	static const struct patch task[] = {
		{"message 0", 8, 8, 0, CTR_DROP_FIELD},
		{"seq 0", 16, 8, 0, CTR_DROP_FIELD},
		{"version 0", 48, 8, 0, CTR_DROP_FIELD},
		{"target 0", 56, 8, 0, CTR_DROP_FIELD},
		{"term 0", 64, 8, 0, CTR_DROP_FIELD},
		{"no runtime row", 72, 8, 0, 0},
		{"session without a gateway", 88, 8, 0, CTR_DROP_FIELD},
		{"gateway without a boot", 96, 8, 0, CTR_DROP_FIELD},
		{"session slot of 25 bits", 104, 4, 1 << 24, CTR_DROP_FIELD},
		{"generation of 25 bits", 108, 4, 1 << 24, CTR_DROP_FIELD},
		{"slot 0", 112, 4, 0, CTR_DROP_FIELD},
		{"payload too large", 120, 4, PAYLOAD_MAX + 1, CTR_DROP_FIELD},
		{"payload longer than the body", 120, 4, 12, CTR_DROP_SHORT},
		{"payload shorter than the body", 120, 4, 10, CTR_DROP_LENGTH},
		{"UIDs, not scoped", 128, 4, 1, CTR_DROP_FIELD},
		{"bytes of UIDs, not scoped", 124, 4, 1, CTR_DROP_FIELD},
		{"ack class 3", 132, 1, 3, CTR_DROP_FIELD},
		{"type 0", 133, 1, 0, CTR_DROP_FIELD},
		{"type 13", 133, 1, 13, CTR_DROP_FIELD},
		{"no channel", 134, 1, 0, CTR_DROP_FIELD},
		{"attempt 255", 136, 1, 255, 0},
		{"a future flag", 137, 1, 2, CTR_DROP_FIELD},
		{"scoped with a fence", 137, 1, 1, CTR_DROP_FIELD},
		{"reserved", 138, 2, 0x100, CTR_DROP_FIELD},
	};
	static const struct patch scoped[] = {
		{"with a key", 32, 1, 1, CTR_DROP_FIELD},
		{"with a version", 48, 8, 1, CTR_DROP_FIELD},
		{"not said to be", 137, 1, 0, CTR_DROP_FIELD},
		{"too many bytes of UIDs", 124, 4, WIRE_TASK_UIDS_MAX + 1, CTR_DROP_FIELD},
		{"no UIDs", 128, 4, 0, CTR_DROP_FIELD},
		{"fewer UIDs than said", 128, 4, 3, CTR_DROP_FIELD},
		{"more UIDs than said", 128, 4, 1, CTR_DROP_FIELD},
		{"an empty UID", WIRE_TASK_BYTES + 29, 1, 0, CTR_DROP_FIELD},
		{"a UID beyond the end", WIRE_TASK_BYTES + 32, 1, 3, CTR_DROP_FIELD},
	};

	CHECK_PATCHES(S_TASK, task);
	CHECK_PATCHES(S_SCOPED_TASK, scoped);
	(void)state;
}

static void the_largest_task_fits_a_frame(void **state)
{
	static uint8_t frame[FRAME_BYTES_MAX], bytes[PAYLOAD_MAX];
	uint8_t id[ID_LEN_MAX];
	struct wire_buf out = {.p = frame, .cap = sizeof(frame), .ok = true};
	struct wire_task m = {
		.message_id = 1,
		.seq = 1,
		.target = 1,
		.authority = {1, 1, 0, 0},
		.flags = WIRE_TASK_SCOPED,
		.channel_type = 1,
		.channel = id_view_of(id, ID_LEN_MAX),
		.from_uid = id_view_of(id, ID_LEN_MAX),
		.payload = {bytes, PAYLOAD_MAX},
		.uid_count = WIRE_TASK_UIDS_MAX / 256,
		.uids = {bytes, WIRE_TASK_UIDS_MAX},
	};

	memset(id, 'x', sizeof(id));
	memset(bytes, 255, sizeof(bytes));
	assert_true(wire_put_task(&out, &m));
	assert_int_equal(wire_get_task((struct wire_view){frame, out.len}, &m), 0);
	(void)state;
}

static void task_answers_survive_the_round_trip(void **state)
{
	uint8_t body[SAMPLE_MAX];
	const uint32_t len = sample_body(S_TASK_ACK, body);
	struct wire_task_ack m;

	assert_int_equal(wire_get_task_ack((struct wire_view){body, len}, &m), 0);
	assert_int_equal(m.task_id, 51);
	assert_int_equal(m.message_id, 12);
	assert_int_equal(m.status, WIRE_COMPLETED);
	assert_int_equal(m.duplicate, 1);
	assert_int_equal(m.retry_after_ms, 20);
	assert_int_equal(m.tag_version, 899);
	assert_int_equal(m.leader, 2);
	assert_int_equal(m.term, 9);
	assert_int_equal(m.members, 1000);
	assert_int_equal(m.ended, 100);
	(void)state;
}

static void an_answer_of_the_future_is_taken_and_a_broken_one_is_not(void **state)
{
	static const struct patch ack[] = {
		{"status of a later version", 76, 2, WIRE_STATUS_COUNT, 0},
		{"any status", 76, 2, 0xffff, 0},
		{"duplicate 2", 78, 1, 2, CTR_DROP_FIELD},
		{"reserved", 79, 1, 1, CTR_DROP_FIELD},
	};

	CHECK_PATCHES(S_TASK_ACK, ack);
	(void)state;
}

static void a_status_not_of_its_kind_is_retryable_and_said_to_be_unknown(void **state)
{
	static const struct {
		enum wire_status (*of)(uint16_t, bool *);
		uint16_t known[8];
		uint32_t count;
	} kinds[] = {
		{wire_task_status,
			{WIRE_ACCEPTED, WIRE_COMPLETED, WIRE_RETRYABLE, WIRE_TAG_MISMATCH,
				WIRE_NOT_LEADER, WIRE_BUSY, WIRE_TOO_LARGE, WIRE_NOT_READY},
			8},
		{wire_pull_status,
			{WIRE_OK, WIRE_NOT_LEADER, WIRE_TAG_NOT_CURRENT, WIRE_TAG_VERSION_MISMATCH,
				WIRE_TAG_NOT_FOUND, WIRE_RETRYABLE, WIRE_BUSY},
			7},
		{wire_hint_status, {WIRE_OK, WIRE_NOT_LEADER, WIRE_RETRYABLE, WIRE_BUSY}, 4},
	};

	for (uint32_t k = 0; k < 3; k++) {
		for (uint32_t s = 0; s <= UINT16_MAX; s++) {
			bool known = false, unknown;
			enum wire_status got;

			for (uint32_t i = 0; i < kinds[k].count; i++)
				known = known || kinds[k].known[i] == s;
			got = kinds[k].of((uint16_t)s, &unknown);
			if (unknown == known || got != (known ? s : WIRE_RETRYABLE))
				fail_msg("kind %u, status %u", k, s);
		}
	}
	(void)state;
}

static void lengths_are_checked(void **state)
{
	for (enum sample_id id = S_TASK; id <= S_TASK_ACK; id++) {
		check_truncated_and_overlong(id);
		check_bit_flips(id);
		check_builder_fails_without_room(id);
	}
	(void)state;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_task_survives_the_round_trip),
		cmocka_unit_test(a_scoped_task_carries_its_recipients_and_no_fence),
		cmocka_unit_test(bad_task_fields_are_refused),
		cmocka_unit_test(the_largest_task_fits_a_frame),
		cmocka_unit_test(task_answers_survive_the_round_trip),
		cmocka_unit_test(an_answer_of_the_future_is_taken_and_a_broken_one_is_not),
		cmocka_unit_test(a_status_not_of_its_kind_is_retryable_and_said_to_be_unknown),
		cmocka_unit_test(lengths_are_checked),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
