/* SPDX-License-Identifier: BSD-3-Clause */
// The idempotence window: what is remembered, for how long, and what forgetting leaves behind.
#include "idem.h"

#include "base_id.h"
#include "base_time.h"
#include "unit.h"

#define AGE (100 * NS_PER_S)

WORKER_ONLY static struct idem_record *done(
	struct idem *idem, uint64_t channel, uint64_t id, uint64_t now)
{
	struct idem_record *r = idem_take(idem, channel, id, now);

	assert_non_null(r);
	assert_int_equal(r->state, IDEM_NEW);
	r->state = IDEM_DONE;
	r->seq = channel * 1000 + id;
	return r;
}

WORKER_ONLY static void sizes_out_of_range_are_refused(void **state)
{
	assert_null(idem_create(15, AGE));
	assert_null(idem_create((1u << 24) + 1, AGE));
}

WORKER_ONLY static void repeat_finds_the_first_outcome(void **state)
{
	struct idem *idem = idem_create(16, AGE);
	struct idem_record *r;

	done(idem, 1, 2, 0);
	done(idem, 2, 1, 0);  // halves of a key are not mixed up
	r = idem_take(idem, 1, 2, 1);
	assert_int_equal(r->state, IDEM_DONE);
	assert_int_equal(r->seq, 1002);
	assert_ptr_equal(idem_find(idem, 1, 2), r);
	assert_null(idem_find(idem, 1, 3));
	assert_null(idem_find(idem, 3, 2));
	assert_int_equal(idem_count(idem), 2);
	idem_destroy(idem);
}

WORKER_ONLY static void what_is_forgotten_early_is_counted(void **state)
{
	struct idem *idem = idem_create(100, AGE);
	struct idem_stats stats;

	for (uint64_t id = 1; id <= 40; id++)
		done(idem, 9, id, 0);
	idem_stats(idem, &stats);
	assert_int_equal(stats.used, 40);
	done(idem, 9, 1000, AGE);  // by age, not early
	idem_stats(idem, &stats);
	assert_int_equal(stats.used, 1);
	assert_int_equal(stats.early, 0);
	for (uint64_t id = 1; id <= 250; id++)
		done(idem, 9, id, AGE);
	idem_stats(idem, &stats);
	assert_int_equal(stats.early, 2);
	assert_int_equal(stats.used, 51);
	idem_destroy(idem);
}

WORKER_ONLY static void at_least_entries_and_at_most_twice_as_many_are_remembered(void **state)
{
	struct idem *idem = idem_create(100, AGE);

	for (uint64_t id = 1; id <= 1000; id++) {
		done(idem, 9, id, 0);
		assert_true(idem_count(idem) <= 200);
		for (uint64_t k = id > 100 ? id - 99 : 1; k <= id; k++)
			assert_non_null(idem_find(idem, 9, k));
		if (id > 200)
			assert_null(idem_find(idem, 9, id - 200));
	}
	idem_destroy(idem);
}

WORKER_ONLY static void nothing_outlives_its_age(void **state)
{
	struct idem *idem = idem_create(1000, AGE);

	for (uint64_t id = 1; id <= 100; id++)
		done(idem, 9, id, id * NS_PER_S);
	// Half the age at least, the whole age at most.
	idem_take(idem, 1, 1, 140 * NS_PER_S);
	assert_non_null(idem_find(idem, 9, 100));
	idem_take(idem, 1, 2, 210 * NS_PER_S);
	for (uint64_t id = 1; id <= 100; id++)
		assert_null(idem_find(idem, 9, id));
	idem_destroy(idem);
}

WORKER_ONLY static void a_pause_longer_than_the_age_forgets_all(void **state)
{
	struct idem *idem = idem_create(1000, AGE);

	for (uint64_t id = 1; id <= 100; id++)
		done(idem, 9, id, 1);
	done(idem, 9, 1, 5 * AGE);
	assert_int_equal(idem_count(idem), 1);
	idem_destroy(idem);
}

WORKER_ONLY static void forgotten_publish_is_new_again_and_takes_no_room(void **state)
{
	struct idem *idem = idem_create(64, AGE);

	for (uint64_t id = 1; id <= 60; id++)
		done(idem, 9, id, 0);
	// Refused ones come and go without pushing out what was accepted.
	for (uint64_t id = 1000; id < 3000; id++) {
		done(idem, 9, id, 0);
		done(idem, 9, id + 10000, 0);
		idem_forget(idem, 9, id);
		idem_forget(idem, 9, id + 10000);
		idem_forget(idem, 9, id);  // again: nothing
		assert_null(idem_find(idem, 9, id));
	}
	for (uint64_t id = 1; id <= 60; id++)
		assert_non_null(idem_find(idem, 9, id));
	assert_int_equal(idem_count(idem), 60);
	idem_destroy(idem);
}

WORKER_ONLY static void forgetting_keeps_the_rest_of_a_run(void **state)
{
	struct idem *idem = idem_create(16, UINT64_MAX);
	uint64_t seed = 99;
	bool known[16] = {false};

	// Sixteen keys in 32 slots: runs are long and wrap around.
	for (uint32_t round = 0; round < 200000; round++) {
		const uint64_t id = unit_random(&seed) % 16;

		if (round % 5000 == 0)
			id_hash_seed(round);
		if (round % 5000 == 0) {
			idem_destroy(idem);
			idem = idem_create(16, UINT64_MAX);
			for (uint32_t k = 0; k < 16; k++)
				known[k] = false;
		}
		if (known[id])
			idem_forget(idem, 4, id);
		else
			done(idem, 4, id, 0);
		known[id] = !known[id];
		for (uint64_t k = 0; k < 16; k++)
			assert_int_equal(idem_find(idem, 4, k) != NULL, known[k]);
	}
	idem_destroy(idem);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sizes_out_of_range_are_refused),
		cmocka_unit_test(repeat_finds_the_first_outcome),
		cmocka_unit_test(what_is_forgotten_early_is_counted),
		cmocka_unit_test(at_least_entries_and_at_most_twice_as_many_are_remembered),
		cmocka_unit_test(nothing_outlives_its_age),
		cmocka_unit_test(a_pause_longer_than_the_age_forgets_all),
		cmocka_unit_test(forgotten_publish_is_new_again_and_takes_no_room),
		cmocka_unit_test(forgetting_keeps_the_rest_of_a_run),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
