/* SPDX-License-Identifier: BSD-3-Clause */
// The header: what is accepted, and which drop names what is not.
#include "wire_samples.h"

static const struct wire_header good = {
	.type = WIRE_BYE,
	.flags = WIRE_AUTH,
	.key_id = 9,
	.lane = 15,
	.sender = 0x0102030405060708u,
	.boot = 0x1112131415161718u,
	.seq = 0x2122232425262728u,
	.bytes = WIRE_HEADER_BYTES + WIRE_TAG_BYTES + 4,
};

static void header_survives_the_round_trip(void **state)
{
	uint8_t p[WIRE_HEADER_BYTES + WIRE_TAG_BYTES + 4] = {0};
	struct wire_header h;
	struct wire_view body;

	wire_put_header(p, &good);
	assert_int_equal(wire_get_header(p, sizeof(p), &h, &body), 0);
	assert_int_equal(h.type, good.type);
	assert_int_equal(h.flags, good.flags);
	assert_int_equal(h.key_id, good.key_id);
	assert_int_equal(h.lane, good.lane);
	assert_int_equal(h.sender, good.sender);
	assert_int_equal(h.boot, good.boot);
	assert_int_equal(h.seq, good.seq);
	assert_int_equal(h.bytes, good.bytes);
	assert_ptr_equal(body.p, p + WIRE_HEADER_BYTES);
	assert_int_equal(body.len, 4);
	(void)state;
}

static void header_stands_on_the_wire_as_documented(void **state)
{
	static const uint8_t want[WIRE_HEADER_BYTES] = {'T', 'C', 1, WIRE_BYE, WIRE_AUTH, 9, 15, 0,
		8, 7, 6, 5, 4, 3, 2, 1, 0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11, 0x28, 0x27,
		0x26, 0x25, 0x24, 0x23, 0x22, 0x21, 60, 0, 0, 0, 0, 0, 0, 0};
	uint8_t p[WIRE_HEADER_BYTES];

	wire_put_header(p, &good);
	assert_memory_equal(p, want, sizeof(want));
	(void)state;
}

static void each_bad_header_field_has_its_drop(void **state)
{
	static const struct patch patches[] = {
		{"magic", 0, 2, 0x4353, CTR_DROP_MAGIC},
		{"magic swapped", 0, 2, 0x5443, CTR_DROP_MAGIC},
		{"version 0", 2, 1, 0, CTR_DROP_VERSION},
		{"version 2", 2, 1, 2, CTR_DROP_VERSION},
		{"type 0", 3, 1, 0, CTR_DROP_TYPE},
		{"type 20", 3, 1, 20, CTR_DROP_TYPE},
		{"type 255", 3, 1, 255, CTR_DROP_TYPE},
		{"unknown flag", 4, 1, 2, CTR_DROP_FLAGS},
		{"all flags", 4, 1, 255, CTR_DROP_FLAGS},
		{"key id without authentication", 5, 1, 1, CTR_DROP_FLAGS},
		{"reserved 7", 7, 1, 1, CTR_DROP_FLAGS},
		{"reserved 34", 34, 2, 0x100, CTR_DROP_FLAGS},
		{"reserved 36", 36, 4, 0x1000000, CTR_DROP_FLAGS},
		{"one byte more", 32, 2, 105, CTR_DROP_LENGTH},
		{"one byte less", 32, 2, 103, CTR_DROP_LENGTH},
		{"no bytes", 32, 2, 0, CTR_DROP_LENGTH},
		{"sender 0", 8, 8, 0, CTR_DROP_FIELD},
		{"boot 0", 16, 8, 0, CTR_DROP_FIELD},
		{"any lane", 6, 1, 255, 0},
		{"any sequence", 24, 8, UINT64_MAX, 0},
	};
	struct wire_header h;
	struct wire_view body;

	for (size_t i = 0; i < sizeof(patches) / sizeof(patches[0]); i++) {
		uint8_t p[SAMPLE_MAX];
		const uint32_t len = sample_datagram(S_HELLO, p);
		int got;

		assert_int_equal(len, 104);
		memcpy(p + patches[i].at, &patches[i].value, patches[i].bytes);
		got = wire_get_header(p, len, &h, &body);
		if (got != patches[i].drop)
			fail_msg("%s: %d instead of %d", patches[i].what, got, patches[i].drop);
	}
	(void)state;
}

static void tag_must_fit_behind_the_header(void **state)
{
	uint8_t p[WIRE_HEADER_BYTES + WIRE_TAG_BYTES] = {0};
	struct wire_header h = good, got;
	struct wire_view body;

	for (uint16_t len = WIRE_HEADER_BYTES; len < sizeof(p); len++) {
		h.bytes = len;
		wire_put_header(p, &h);
		assert_int_equal(wire_get_header(p, len, &got, &body), CTR_DROP_SHORT);
	}
	h.bytes = sizeof(p);
	wire_put_header(p, &h);
	assert_int_equal(wire_get_header(p, sizeof(p), &got, &body), 0);
	assert_int_equal(body.len, 0);
	(void)state;
}

static void every_truncation_of_every_datagram_is_refused(void **state)
{
	for (enum sample_id id = 0; id < S_COUNT; id++) {
		uint8_t p[SAMPLE_MAX] = {0};
		const uint32_t len = sample_datagram(id, p);
		struct wire_header h;
		struct wire_view body;

		assert_int_equal(wire_get_header(p, len, &h, &body), 0);
		assert_int_equal(samples[id].parse(body), 0);
		for (uint32_t n = 0; n < len + 4; n++) {
			uint8_t *const copy = malloc(n != 0 ? n : 1);
			int got;

			memcpy(copy, p, n);
			got = wire_get_header(copy, n, &h, &body);
			free(copy);
			if (n < WIRE_HEADER_BYTES)
				assert_int_equal(got, CTR_DROP_SHORT);
			else if (n != len)
				assert_int_equal(got, CTR_DROP_LENGTH);
			else
				assert_int_equal(got, 0);
		}
	}
	(void)state;
}

static void flipped_bits_of_a_header_never_pass_unseen(void **state)
{
	uint8_t p[SAMPLE_MAX];
	const uint32_t len = sample_datagram(S_HEARTBEAT, p);

	for (uint32_t bit = 0; bit < 8 * WIRE_HEADER_BYTES; bit++) {
		const bool free_field = (bit >= 48 && bit < 56) || (bit >= 64 && bit < 256);
		const bool other_type = bit >= 24 && bit < 32;
		struct wire_header h;
		struct wire_view body;
		int got;

		p[bit / 8] ^= (uint8_t)(1u << bit % 8);
		got = wire_get_header(p, len, &h, &body);
		p[bit / 8] ^= (uint8_t)(1u << bit % 8);
		if (bit == 32)  // claims a tag: its last bytes are taken for one
			assert_int_equal(body.len, len - WIRE_HEADER_BYTES - WIRE_TAG_BYTES);
		else if (!free_field && !other_type)
			assert_int_not_equal(got, 0);
	}
	(void)state;
}

static void all_statuses_and_types_have_names(void **state)
{
	for (unsigned i = 0; i < WIRE_STATUS_COUNT; i++) {
		assert_string_not_equal(wire_status_name(i), "unknown_status");
		for (unsigned k = 0; k < i; k++)
			assert_string_not_equal(wire_status_name(i), wire_status_name(k));
	}
	assert_string_equal(wire_status_name(WIRE_STATUS_COUNT), "unknown_status");
	assert_string_equal(wire_status_name((enum wire_status) - 1), "unknown_status");
	assert_string_equal(wire_type_name(WIRE_SEGMENT), "SEGMENT");
	for (unsigned i = 0; i < 256; i++) {
		const bool known = i >= 1 && i <= 19;

		assert_int_equal(strcmp(wire_type_name((uint8_t)i), "UNKNOWN") != 0, known);
	}
	(void)state;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(header_survives_the_round_trip),
		cmocka_unit_test(header_stands_on_the_wire_as_documented),
		cmocka_unit_test(each_bad_header_field_has_its_drop),
		cmocka_unit_test(tag_must_fit_behind_the_header),
		cmocka_unit_test(every_truncation_of_every_datagram_is_refused),
		cmocka_unit_test(flipped_bits_of_a_header_never_pass_unseen),
		cmocka_unit_test(all_statuses_and_types_have_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
