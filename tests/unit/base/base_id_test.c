/* SPDX-License-Identifier: BSD-3-Clause */
// Ids: limits, equality, hash slot vectors, steering.
#include "base_id.h"

#include <errno.h>
#include <stdio.h>

#include "unit.h"

static struct id_view id_of(const char *text)
{
	return id_view_of(text, (uint8_t)strlen(text));
}

static void hash_slot_matches_the_published_vectors(void **state)
{
	assert_int_equal(id_hash_slot(id_of("u1"), 256), 118);
	assert_int_equal(id_hash_slot(id_of("u2"), 256), 204);
	assert_int_equal(id_hash_slot(id_of("alice"), 256), 71);
	assert_int_equal(id_hash_slot(id_of("bob"), 256), 64);
	assert_int_equal(id_hash_slot(id_of("user1"), 256), 85);
}

static void channel_key_refuses_bad_type_and_empty_id(void **state)
{
	struct channel_key key;

	assert_int_equal(channel_key_set(&key, 0, "a", 1), -EINVAL);
	assert_int_equal(channel_key_set(&key, 13, "a", 1), -EINVAL);
	assert_int_equal(channel_key_set(&key, 2, "a", 0), -EINVAL);
	assert_int_equal(channel_key_set(&key, 12, "a", 1), 0);
	assert_true(channel_key_valid(&key));
}

static void ids_hold_any_bytes_up_to_255(void **state)
{
	uint8_t bytes[ID_LEN_MAX];
	struct channel_key a, b;

	for (unsigned i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)i;
	assert_int_equal(channel_key_set(&a, 2, bytes, ID_LEN_MAX), 0);
	assert_int_equal(channel_key_set(&b, 2, bytes, ID_LEN_MAX), 0);
	assert_true(channel_key_equal(&a, &b));
	assert_int_equal(channel_key_hash(&a), channel_key_hash(&b));
	b.bytes[200] ^= 1;
	assert_false(channel_key_equal(&a, &b));
}

static void same_id_in_another_type_is_another_channel(void **state)
{
	struct channel_key a, b;

	channel_key_set(&a, 2, "x", 1);
	channel_key_set(&b, 3, "x", 1);
	assert_false(channel_key_equal(&a, &b));
	assert_true(channel_key_hash(&a) != channel_key_hash(&b));
}

static void steering_spreads_channels_and_is_stable(void **state)
{
	uint32_t hits[4] = {0};

	for (uint32_t i = 0; i < 4000; i++) {
		struct channel_key key;
		char name[16];
		const int len = snprintf(name, sizeof(name), "channel-%u", i);

		channel_key_set(&key, 2, name, (uint8_t)len);
		const uint16_t worker = channel_key_worker(&key, 4);
		assert_true(worker < 4);
		assert_int_equal(worker, channel_key_worker(&key, 4));
		assert_int_equal(channel_key_worker(&key, 1), 0);
		hits[worker]++;
	}
	for (unsigned w = 0; w < 4; w++)
		assert_in_range(hits[w], 800, 1200);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(hash_slot_matches_the_published_vectors),
		cmocka_unit_test(channel_key_refuses_bad_type_and_empty_id),
		cmocka_unit_test(ids_hold_any_bytes_up_to_255),
		cmocka_unit_test(same_id_in_another_type_is_another_channel),
		cmocka_unit_test(steering_spreads_channels_and_is_stable),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
