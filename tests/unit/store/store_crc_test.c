/* SPDX-License-Identifier: BSD-3-Clause */
// CRC-32C against published values, and the two ways to compute it against each other.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "store_crc.h"

static void known_values_come_out(void **state)
{
	uint8_t bytes[32];

	(void)state;
	// RFC 3720 appendix B.4 and the usual check value.
	assert_int_equal(store_crc32c(0, "123456789", 9), 0xe3069283);
	memset(bytes, 0, sizeof(bytes));
	assert_int_equal(store_crc32c(0, bytes, 32), 0x8a9136aa);
	memset(bytes, 0xff, sizeof(bytes));
	assert_int_equal(store_crc32c(0, bytes, 32), 0x62a8ab43);
	for (uint8_t i = 0; i < 32; i++)
		bytes[i] = i;
	assert_int_equal(store_crc32c(0, bytes, 32), 0x46dd794e);
	assert_int_equal(store_crc32c(0, bytes, 0), 0);
}

static void both_ways_and_any_split_agree(void **state)
{
	uint8_t bytes[300];

	(void)state;
	for (uint32_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(i * 37 + (i >> 3));
	for (uint32_t len = 0; len <= sizeof(bytes); len++) {
		const uint32_t all = store_crc32c_table(0, bytes, len), at = len / 3;

		assert_int_equal(store_crc32c(0, bytes, len), all);
		assert_int_equal(
			store_crc32c(store_crc32c(0, bytes, at), bytes + at, len - at), all);
	}
}

static void the_end_of_a_stream_is_left_out_however_it_comes(void **state)
{
	uint8_t bytes[40];

	(void)state;
	for (uint32_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(i * 29);
	for (uint32_t step = 1; step <= sizeof(bytes); step++) {
		struct store_crc_body body = {0};

		for (uint32_t at = 0; at < sizeof(bytes); at += step)
			store_crc_body_add(&body, bytes + at,
				sizeof(bytes) - at < step ? sizeof(bytes) - at : step);
		assert_int_equal(body.crc, store_crc32c(0, bytes, sizeof(bytes) - 4));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(known_values_come_out),
		cmocka_unit_test(both_ways_and_any_split_agree),
		cmocka_unit_test(the_end_of_a_stream_is_left_out_however_it_comes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
