/* SPDX-License-Identifier: BSD-3-Clause */
// PUBLISH and its outcome.
#include "wire_samples.h"

static void publish_survives_the_round_trip(void **state)
{
	uint8_t body[SAMPLE_MAX];
	const uint32_t len = sample_body(S_PUBLISH, body);
	struct wire_publish m;

	assert_int_equal(wire_get_publish((struct wire_view){body, len}, &m), 0);
	assert_int_equal(m.request_id, 11);
	assert_int_equal(m.message_id, 12);
	assert_int_equal(m.stamp, 13);
	assert_int_equal(m.cookie, 14);
	assert_int_equal(m.deadline_ms, 1500);
	assert_int_equal(m.ack, WIRE_ACK_CLIENT);
	assert_int_equal(m.redirect, 1);
	assert_int_equal(m.channel.type, CHANNEL_GROUP);
	assert_true(id_equal(channel_key_id(&m.channel), id_view_of("room", 4)));
	assert_true(id_equal(m.from_uid, id_view_of("alice", 5)));
	assert_int_equal(m.sender_gateway, 21);
	assert_int_equal(m.sender_boot, 22);
	assert_int_equal(m.sender_slot, 23);
	assert_int_equal(m.sender_gen, 24);
	assert_int_equal(m.payload.len, 11);
	assert_memory_equal(m.payload.p, "hello, room", 11);
	(void)state;
}

static void smallest_and_largest_publish_survive(void **state)
{
	static uint8_t body[FRAME_BYTES_MAX], payload[PAYLOAD_MAX + 1];
	uint8_t id[ID_LEN_MAX];
	struct wire_buf out = {.p = body, .cap = sizeof(body), .ok = true};
	struct wire_publish m = {.message_id = 1}, got;

	memset(id, 'c', sizeof(id));
	assert_int_equal(channel_key_set(&m.channel, 1, "x", 1), 0);
	assert_true(wire_put_publish(&out, &m));
	assert_int_equal(out.len, 81);
	assert_int_equal(wire_get_publish((struct wire_view){body, out.len}, &got), 0);
	assert_int_equal(got.from_uid.len, 0);
	assert_int_equal(got.payload.len, 0);

	out.len = 0;
	assert_int_equal(channel_key_set(&m.channel, 12, id, 255), 0);
	m.from_uid = id_view_of(id, 255);
	payload[PAYLOAD_MAX - 1] = 7;
	m.payload = (struct wire_view){payload, PAYLOAD_MAX};
	assert_true(wire_put_publish(&out, &m));
	assert_int_equal(wire_get_publish((struct wire_view){body, out.len}, &got), 0);
	assert_int_equal(got.channel.len, 255);
	assert_int_equal(got.from_uid.len, 255);
	assert_int_equal(got.payload.len, PAYLOAD_MAX);
	assert_int_equal(got.payload.p[PAYLOAD_MAX - 1], 7);

	m.payload.len++;
	out.len = 0;
	assert_false(wire_put_publish(&out, &m));
	(void)state;
}

static void bad_publish_fields_are_refused(void **state)
{
	static const struct patch patches[] = {
		{"message id 0", 8, 8, 0, CTR_DROP_FIELD},
		{"request id 0", 0, 8, 0, 0},
		{"session without gateway", 32, 8, 0, CTR_DROP_FIELD},
		{"session boot 0", 40, 8, 0, CTR_DROP_FIELD},
		{"slot 2^24 - 1", 48, 4, 0xffffff, 0},
		{"slot 2^24", 48, 4, 0x1000000, CTR_DROP_FIELD},
		{"generation 2^24", 52, 4, 0x1000000, CTR_DROP_FIELD},
		{"payload one more", 60, 4, 12, CTR_DROP_SHORT},
		{"payload one less", 60, 4, 10, CTR_DROP_LENGTH},
		{"payload at its limit", 60, 4, PAYLOAD_MAX, CTR_DROP_SHORT},
		{"payload over its limit", 60, 4, PAYLOAD_MAX + 1, CTR_DROP_FIELD},
		{"payload 2^32 - 1", 60, 4, UINT32_MAX, CTR_DROP_FIELD},
		{"ack class 3", 64, 1, 3, CTR_DROP_FIELD},
		{"ack class 255", 64, 1, 255, CTR_DROP_FIELD},
		{"redirect 2", 65, 1, 2, CTR_DROP_FIELD},
		{"channel type 0", 66, 1, 0, CTR_DROP_FIELD},
		{"channel type 12", 66, 1, 12, 0},
		{"channel type 13", 66, 1, 13, CTR_DROP_FIELD},
		{"channel empty", 67, 1, 0, CTR_DROP_FIELD},
		{"channel longer", 67, 1, 5, CTR_DROP_SHORT},
		{"channel shorter", 67, 1, 3, CTR_DROP_LENGTH},
		{"from longer", 68, 1, 255, CTR_DROP_SHORT},
		{"forwarded and redirect", 69, 1, 1, CTR_DROP_FIELD},
		{"forwarded 2", 69, 1, 2, CTR_DROP_FIELD},
		{"forwarded", 65, 5, UINT64_C(0x0105040200), 0},
		{"padding", 70, 1, 1, CTR_DROP_FIELD},
		{"padding", 79, 1, 1, CTR_DROP_FIELD},
	};

	CHECK_PATCHES(S_PUBLISH, patches);
	(void)state;
}

static void publish_ack_survives_the_round_trip(void **state)
{
	uint8_t body[SAMPLE_MAX];
	const uint32_t len = sample_body(S_PUBLISH_ACK, body);
	struct wire_publish_ack m;

	assert_int_equal(wire_get_publish_ack((struct wire_view){body, len}, &m), 0);
	assert_int_equal(m.request_id, 11);
	assert_int_equal(m.message_id, 12);
	assert_int_equal(m.seq, 99);
	assert_int_equal(m.status, WIRE_NOT_LEADER);
	assert_int_equal(m.duplicate, 1);
	assert_int_equal(m.unfinished, 3);
	assert_int_equal(m.retry_after_ms, 20);
	assert_int_equal(m.tag_key[0], 1);
	assert_int_equal(m.tag_key[15], 16);
	assert_int_equal(m.tag_version, 5);
	assert_int_equal(m.members, 1000);
	assert_int_equal(m.routes, 1200);
	assert_int_equal(m.acked, 1100);
	assert_int_equal(m.ended, 100);
	assert_true(net_addr_equal(m.leader, (struct net_addr){.ip = 0x0a000001, .port = 7400}));
	(void)state;
}

static void bad_publish_ack_fields_are_refused(void **state)
{
	static const struct patch patches[] = {
		{"last status", 24, 2, WIRE_STATUS_COUNT - 1, 0},
		{"status unknown", 24, 2, WIRE_STATUS_COUNT, CTR_DROP_FIELD},
		{"duplicate 2", 26, 1, 2, CTR_DROP_FIELD},
		{"reserved", 78, 2, 1, CTR_DROP_FIELD},
	};

	CHECK_PATCHES(S_PUBLISH_ACK, patches);
	(void)state;
}

static void outcome_is_no_larger_than_the_smallest_publish(void **state)
{
	uint8_t body[SAMPLE_MAX];

	assert_true(sample_body(S_PUBLISH_ACK, body) <= 81);
	(void)state;
}

static void lengths_are_exact(void **state)
{
	static const enum sample_id ids[] = {S_PUBLISH, S_PUBLISH_ACK};

	for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
		check_truncated_and_overlong(ids[i]);
		check_bit_flips(ids[i]);
		check_builder_fails_without_room(ids[i]);
	}
	(void)state;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(publish_survives_the_round_trip),
		cmocka_unit_test(smallest_and_largest_publish_survive),
		cmocka_unit_test(bad_publish_fields_are_refused),
		cmocka_unit_test(publish_ack_survives_the_round_trip),
		cmocka_unit_test(bad_publish_ack_fields_are_refused),
		cmocka_unit_test(outcome_is_no_larger_than_the_smallest_publish),
		cmocka_unit_test(lengths_are_exact),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
