/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "channel_table.h"

static struct channel_key key_of(uint8_t type, uint32_t n)
{
	struct channel_key key;
	char name[32];

	channel_key_set(&key, type, name, (uint8_t)snprintf(name, sizeof(name), "room-%u", n));
	return key;
}

static struct channel *find(struct channel_table *table, struct channel_key key)
{
	return channel_find(table, &key, channel_key_hash(&key));
}

CONTROL_ONLY static void a_channel_is_made_once_and_found_by_type_and_id(void **state)
{
	struct rcu_retire retire = {0};
	struct channel_table *t = channel_table_create(10, 4, &retire);
	const struct channel_key group = key_of(2, 1), person = key_of(1, 1);
	struct channel *a = channel_table_get(t, &group);

	(void)state;
	assert_non_null(a);
	assert_ptr_equal(channel_table_get(t, &group), a);
	assert_ptr_equal(find(t, group), a);
	assert_null(find(t, person));
	assert_ptr_not_equal(channel_table_get(t, &person), a);
	assert_int_equal(a->worker, channel_key_worker(&group, 4));
	assert_int_equal(a->use, 1);
	assert_int_equal(a->key_len, group.len);
	assert_memory_equal(a->key_bytes, group.bytes, group.len);
	assert_int_equal(channel_table_count(t), 2);
	channel_table_destroy(t);
}

CONTROL_ONLY static void the_limit_is_exact(void **state)
{
	struct rcu_retire retire = {0};
	struct channel_table *t = channel_table_create(100, 1, &retire);

	(void)state;
	for (uint32_t i = 0; i < 100; i++) {
		const struct channel_key key = key_of(2, i);

		assert_non_null(channel_table_get(t, &key));
	}
	assert_null(channel_table_get(t, &(struct channel_key){.type = 2, .len = 1, .bytes = "x"}));
	channel_table_destroy(t);
}

CONTROL_ONLY static void a_removed_record_rests_until_the_grace_period_is_over(void **state)
{
	struct rcu_retire retire = {0};
	struct channel_table *t = channel_table_create(1, 1, &retire);
	const struct channel_key a = key_of(2, 1), b = key_of(2, 2);
	struct channel *channel = channel_table_get(t, &a);

	(void)state;
	channel_table_remove(t, channel);
	assert_null(find(t, a));
	assert_null(channel_table_get(t, &b));
	// A reader that found it before may still read its name.
	assert_memory_equal(channel->key_bytes, a.bytes, a.len);
	assert_int_equal(channel->use, 1);
	rcu_reclaim(&retire);
	assert_ptr_equal(channel_table_get(t, &b), channel);
	assert_int_equal(channel->use, 2);
	assert_ptr_equal(find(t, b), channel);
	assert_null(find(t, a));
	channel_table_destroy(t);
}

CONTROL_ONLY static void a_channel_removed_and_made_again_at_once_is_another_record(void **state)
{
	struct rcu_retire retire = {0};
	struct channel_table *t = channel_table_create(4, 1, &retire);
	const struct channel_key a = key_of(2, 1);
	struct channel *first = channel_table_get(t, &a), *second;

	(void)state;
	channel_table_remove(t, first);
	second = channel_table_get(t, &a);
	assert_ptr_not_equal(first, second);
	rcu_reclaim(&retire);
	assert_ptr_equal(find(t, a), second);
	channel_table_destroy(t);
}

CONTROL_ONLY static void a_walk_sees_each_channel_once(void **state)
{
	struct rcu_retire retire = {0};
	struct channel_table *t = channel_table_create(50, 1, &retire);
	uint32_t at = 0, seen = 0;
	struct channel *c;

	(void)state;
	for (uint32_t i = 0; i < 40; i++) {
		const struct channel_key key = key_of(2, i);

		c = channel_table_get(t, &key);
		if (i % 4 == 0)
			channel_table_remove(t, c);
	}
	while ((c = channel_table_next(t, &at)) != NULL)
		seen++;
	assert_int_equal(seen, 30);
	channel_table_destroy(t);
}

static void limits_out_of_range_are_refused(void **state)
{
	struct rcu_retire retire = {0};

	(void)state;
	assert_null(channel_table_create(0, 1, &retire));
	assert_null(channel_table_create(1, 0, &retire));
	assert_null(channel_table_create(1, WORKERS_MAX + 1, &retire));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_channel_is_made_once_and_found_by_type_and_id),
		cmocka_unit_test(the_limit_is_exact),
		cmocka_unit_test(a_removed_record_rests_until_the_grace_period_is_over),
		cmocka_unit_test(a_channel_removed_and_made_again_at_once_is_another_record),
		cmocka_unit_test(a_walk_sees_each_channel_once),
		cmocka_unit_test(limits_out_of_range_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
