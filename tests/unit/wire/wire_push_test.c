/* SPDX-License-Identifier: BSD-3-Clause */
// PUSH and its records, PUSH_ACK, RECEIPT.
#include "wire_samples.h"

static void push_survives_the_round_trip(void **state)
{
	uint8_t body[SAMPLE_MAX];
	const uint32_t len = sample_body(S_PUSH, body);
	struct wire_push m;
	struct wire_record r;
	uint32_t slot, gen;

	assert_int_equal(wire_get_push((struct wire_view){body, len}, &m), 0);
	assert_int_equal(m.push_id, 31);
	assert_int_equal(m.push_gen, 32);
	assert_int_equal(m.gateway_boot, 33);
	assert_int_equal(m.records, 2);
	assert_int_equal(m.routes, 5);
	assert_int_equal(m.need_ack, 1);
	assert_int_equal(m.attempt, 2);

	assert_true(wire_push_next(&m.body, &r));
	assert_int_equal(r.message_id, 12);
	assert_int_equal(r.seq, 99);
	assert_int_equal(r.stamp, 13);
	assert_int_equal(r.channel_type, CHANNEL_GROUP);
	assert_int_equal(r.flags, WIRE_RECORD_LATE | WIRE_RECORD_RECEIPT);
	assert_true(id_equal(r.channel, id_view_of("room", 4)));
	assert_true(id_equal(r.from_uid, id_view_of("alice", 5)));
	assert_int_equal(r.payload.len, 11);
	assert_memory_equal(r.payload.p, "hello, room", 11);
	assert_int_equal(r.routes, 3);
	wire_get_route(r.route + 2 * WIRE_ROUTE_BYTES, &slot, &gen);
	assert_int_equal(slot, 2);
	assert_int_equal(gen, 3);

	assert_true(wire_push_next(&m.body, &r));
	assert_int_equal(r.message_id, 13);
	assert_int_equal(r.from_uid.len, 0);
	assert_int_equal(r.payload.len, 0);
	assert_int_equal(r.routes, 2);
	assert_false(wire_push_next(&m.body, &r));
	(void)state;
}

static void bad_push_fields_are_refused(void **state)
{
	// Records stand at 24 (36 + 4 + 5 + 11 + 3 routes = 80 bytes) and at 104 (36 + 1 + 2 routes).
	static const struct patch patches[] = {
		{"gateway boot 0", 8, 8, 0, CTR_DROP_FIELD},
		{"records 0", 16, 2, 0, CTR_DROP_FIELD},
		{"records 1", 16, 2, 1, CTR_DROP_LENGTH},
		{"records 3", 16, 2, 3, CTR_DROP_SHORT},
		{"routes 0", 18, 2, 0, CTR_DROP_FIELD},
		{"routes 4", 18, 2, 4, CTR_DROP_FIELD},
		{"routes 6", 18, 2, 6, CTR_DROP_FIELD},
		{"routes over the limit", 18, 2, FRAME_ROUTES_MAX + 1, CTR_DROP_FIELD},
		{"need_ack 2", 20, 1, 2, CTR_DROP_FIELD},
		{"reserved 22", 22, 2, 1, CTR_DROP_FIELD},
		{"message id 0", 24, 8, 0, CTR_DROP_FIELD},
		{"payload more", 24 + 24, 4, 12, CTR_DROP_FIELD},
		{"payload over the limit", 24 + 24, 4, PAYLOAD_MAX + 1, CTR_DROP_FIELD},
		{"payload 2^32 - 1", 104 + 24, 4, UINT32_MAX, CTR_DROP_FIELD},
		{"record without routes", 104 + 28, 2, 0, CTR_DROP_FIELD},
		{"record with routes beyond the end", 104 + 28, 2, 3, CTR_DROP_SHORT},
		{"record with 65535 routes", 104 + 28, 2, 65535, CTR_DROP_SHORT},
		{"channel type 0", 104 + 30, 1, 0, CTR_DROP_FIELD},
		{"channel type 13", 104 + 30, 1, 13, CTR_DROP_FIELD},
		{"unknown flag", 104 + 31, 1, 4, CTR_DROP_FIELD},
		{"channel empty", 104 + 32, 1, 0, CTR_DROP_FIELD},
		{"channel longer", 104 + 32, 1, 2, CTR_DROP_SHORT},
		{"from longer", 104 + 33, 1, 255, CTR_DROP_SHORT},
		{"reserved 34", 104 + 34, 2, 1, CTR_DROP_FIELD},
		{"route slot 2^24", 104 + 37, 4, 0x1000000, CTR_DROP_FIELD},
		{"route generation 2^24", 104 + 41, 4, 0x1000000, CTR_DROP_FIELD},
		{"route at its limits", 104 + 37, 8, 0x00ffffff00ffffffu, 0},
		{"last route of the first record", 24 + 56 + 16, 4, 0x80000000u, CTR_DROP_FIELD},
	};

	CHECK_PATCHES(S_PUSH, patches);
	(void)state;
}

static void routes_appended_while_open_are_counted_by_patching(void **state)
{
	static uint8_t body[FRAME_BYTES_MAX], payload[PAYLOAD_MAX];
	struct wire_buf out = {.p = body, .cap = sizeof(body), .ok = true};
	const struct wire_push push = {.gateway_boot = 1};
	const struct wire_record record = {
		.message_id = 1,
		.channel_type = 1,
		.channel = id_view_of(payload, 255),
		.from_uid = id_view_of(payload, 255),
		.payload = {.p = payload, .len = PAYLOAD_MAX},
	};
	const uint16_t counts[2] = {1, FRAME_ROUTES_MAX};
	struct wire_push m;

	assert_true(wire_put_push(&out, &push));
	assert_true(sample_record(&out, &record, FRAME_ROUTES_MAX));
	assert_int_equal(wire_get_push((struct wire_view){body, out.len}, &m), CTR_DROP_FIELD);
	memcpy(body + WIRE_PUSH_RECORDS_OFFSET, counts, sizeof(counts));
	assert_int_equal(wire_get_push((struct wire_view){body, out.len}, &m), 0);
	assert_int_equal(m.routes, FRAME_ROUTES_MAX);
	(void)state;
}

static void words_of_a_record_are_what_its_builder_writes(void **state)
{
	static const uint8_t name[255] = {1}, payload[10000] = {2};
	uint8_t built[WIRE_RECORD_BYTES + 600 + sizeof(payload)], words[WIRE_RECORD_BYTES];
	const uint8_t lens[] = {1, 7, 255};

	for (uint32_t i = 0; i < sizeof(lens); i++) {
		const uint16_t routes = (uint16_t)(1 + 0x1234u * i);
		const struct wire_record record = {
			.message_id = UINT64_C(0x1122334455667788) + i,
			.seq = UINT64_MAX - i,
			.stamp = UINT64_C(0x99aabbccddeeff00),
			.channel_type = (uint8_t)(12 - i),
			.flags = (uint8_t)i,
			.channel = id_view_of(name, lens[i]),
			.from_uid = id_view_of(name, lens[2 - i]),
			.payload = {.p = payload, .len = i * 4999},
			.routes = routes,
		};
		struct wire_buf out = {.p = built, .cap = sizeof(built), .ok = true};
		struct wire_record_words w;

		assert_true(wire_put_record(&out, &record));
		wire_record_words(&record, &w);
		wire_put_record_words(words, &w, routes);
		assert_memory_equal(words, built, sizeof(words));
	}
	(void)state;
}

static void route_counts_beyond_a_frame_are_refused(void **state)
{
	static uint8_t body[FRAME_BYTES_MAX];
	struct wire_buf out = {.p = body, .cap = sizeof(body), .ok = true};
	const struct wire_record record = {
		.message_id = 1, .channel_type = 1, .channel = id_view_of("c", 1)};
	uint16_t counts[2] = {2, FRAME_ROUTES_MAX + 1};
	struct wire_push m;

	assert_true(wire_put_push(&out, &(struct wire_push){.gateway_boot = 1}));
	assert_true(sample_record(&out, &record, FRAME_ROUTES_MAX));
	assert_true(sample_record(&out, &record, 1));
	memcpy(body + WIRE_PUSH_RECORDS_OFFSET, counts, sizeof(counts));
	assert_int_equal(wire_get_push((struct wire_view){body, out.len}, &m), CTR_DROP_FIELD);
	(void)state;
}

static void push_ack_survives_the_round_trip(void **state)
{
	uint8_t body[SAMPLE_MAX];
	const uint32_t len = sample_body(S_PUSH_ACK, body);
	struct wire_push_ack m;

	assert_int_equal(wire_get_push_ack((struct wire_view){body, len}, &m), 0);
	assert_int_equal(m.push_id, 31);
	assert_int_equal(m.push_gen, 32);
	assert_int_equal(m.accepted, 2);
	assert_int_equal(m.retryable, 2);
	assert_int_equal(m.dropped, 1);
	assert_int_equal(wire_position(m.positions, 0), 1);
	assert_int_equal(wire_position(m.positions, 1), 4);
	assert_int_equal(wire_position(m.positions, 2), 0);
	(void)state;
}

static void bad_push_ack_fields_are_refused(void **state)
{
	static const struct patch patches[] = {
		{"accepted at the limit", 8, 2, FRAME_ROUTES_MAX - 3, 0},
		{"sum over the limit", 8, 2, FRAME_ROUTES_MAX - 2, CTR_DROP_FIELD},
		{"sum that would wrap 16 bits", 8, 2, 65535, CTR_DROP_FIELD},
		{"retryable more", 10, 2, 3, CTR_DROP_SHORT},
		{"retryable less", 10, 2, 1, CTR_DROP_LENGTH},
		{"dropped more", 12, 2, 2, CTR_DROP_SHORT},
		{"dropped 65535", 12, 2, 65535, CTR_DROP_FIELD},
		{"reserved", 14, 2, 1, CTR_DROP_FIELD},
		{"nothing at all", 8, 6, 0, CTR_DROP_FIELD},
	};

	CHECK_PATCHES(S_PUSH_ACK, patches);
	(void)state;
}

static void receipt_survives_the_round_trip(void **state)
{
	uint8_t body[SAMPLE_MAX];
	const uint32_t len = sample_body(S_RECEIPT, body);
	struct wire_receipt m;

	assert_int_equal(wire_get_receipt((struct wire_view){body, len}, &m), 0);
	assert_int_equal(m.push_id, 31);
	assert_int_equal(m.push_gen, 32);
	assert_int_equal(m.first, 8);
	assert_int_equal(m.bits.len, 2);
	assert_memory_equal(m.bits.p, "\x05\x80", 2);
	(void)state;
}

static void bad_receipt_fields_are_refused(void **state)
{
	static const struct patch patches[] = {
		{"first not a multiple of 8", 8, 2, 9, CTR_DROP_FIELD},
		{"first at the limit", 8, 2, FRAME_ROUTES_MAX - 16, 0},
		{"first over the limit", 8, 2, FRAME_ROUTES_MAX - 8, CTR_DROP_FIELD},
		{"first that would wrap", 8, 2, 65528, CTR_DROP_FIELD},
		{"no bits", 10, 2, 0, CTR_DROP_FIELD},
		{"bits less", 10, 2, 1, CTR_DROP_LENGTH},
		{"bits more", 10, 2, 3, CTR_DROP_SHORT},
		{"bits 65535", 10, 2, 65535, CTR_DROP_FIELD},
		{"reserved", 12, 4, 1, CTR_DROP_FIELD},
	};

	CHECK_PATCHES(S_RECEIPT, patches);
	(void)state;
}

static void builders_refuse_what_parsers_refuse(void **state)
{
	uint8_t body[SAMPLE_MAX];
	struct wire_buf out = {.p = body, .cap = sizeof(body), .ok = true};

	assert_false(wire_put_push(&out, &(struct wire_push){.need_ack = 1}));
	out.ok = true;
	assert_false(
		wire_put_record(&out, &(struct wire_record){.message_id = 1, .channel_type = 1}));
	out.ok = true;
	assert_false(
		wire_put_push_ack(&out, &(struct wire_push_ack){.accepted = 1, .retryable = 1}));
	out.ok = true;
	assert_false(wire_put_push_ack(&out, &(struct wire_push_ack){.push_id = 1}));
	out.ok = true;
	assert_false(wire_put_receipt(
		&out, &(struct wire_receipt){.first = 4, .bits = {.p = body, .len = 1}}));
	assert_int_equal(out.len, 0);
	(void)state;
}

static void lengths_are_exact(void **state)
{
	static const enum sample_id ids[] = {S_PUSH, S_PUSH_ACK, S_RECEIPT};

	for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
		check_truncated_and_overlong(ids[i]);
		check_bit_flips(ids[i]);
		check_builder_fails_without_room(ids[i]);
	}
	(void)state;
}

// Answers are not segmented: what a datagram does not hold cannot be said, and is not read either.
static void positions_of_an_answer_end_with_its_datagram(void **state)
{
	static uint8_t positions[2 * FRAME_ROUTES_MAX], body[MTU_MAX];
	const uint32_t cap = 1500 - WIRE_UDP_OVERHEAD - WIRE_HEADER_BYTES - WIRE_TAG_BYTES;
	const uint16_t most = (uint16_t)((cap - 16) / 2);
	struct wire_push_ack ack = {.push_id = 1, .push_gen = 1, .accepted = 1}, got;
	struct wire_buf out;

	(void)state;
	for (uint32_t k = 0; k < 2u; k++) {
		ack.retryable = (uint16_t)(most + k);
		ack.positions = (struct wire_view){.p = positions, .len = 2u * ack.retryable};
		out = (struct wire_buf){.p = body, .cap = cap, .ok = true};
		assert_int_equal(wire_put_push_ack(&out, &ack), k == 0);
		if (k == 0)
			assert_int_equal(
				wire_get_push_ack((struct wire_view){body, out.len}, &got), 0);
	}
	// Counts that claim more than came, up to the most a push has and beyond it.
	for (uint32_t claimed = 1; claimed <= 65535; claimed += claimed < 5000 ? 1 : 4999) {
		body[10] = (uint8_t)claimed;
		body[11] = (uint8_t)(claimed >> 8);
		assert_int_equal(
			wire_get_push_ack((struct wire_view){body, 16 + 2u * most}, &got) == 0,
			claimed == most);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(push_survives_the_round_trip),
		cmocka_unit_test(bad_push_fields_are_refused),
		cmocka_unit_test(routes_appended_while_open_are_counted_by_patching),
		cmocka_unit_test(words_of_a_record_are_what_its_builder_writes),
		cmocka_unit_test(route_counts_beyond_a_frame_are_refused),
		cmocka_unit_test(push_ack_survives_the_round_trip),
		cmocka_unit_test(bad_push_ack_fields_are_refused),
		cmocka_unit_test(receipt_survives_the_round_trip),
		cmocka_unit_test(bad_receipt_fields_are_refused),
		cmocka_unit_test(builders_refuse_what_parsers_refuse),
		cmocka_unit_test(positions_of_an_answer_end_with_its_datagram),
		cmocka_unit_test(lengths_are_exact),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
