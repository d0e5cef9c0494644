/* SPDX-License-Identifier: BSD-3-Clause */
#include "presence_fixture.h"

CONTROL_ONLY static void a_uid_keeps_its_index_while_held(void **state)
{
	struct fixture *f = fixture_new(100, 4, 16);
	const uint32_t a = presence_uid_hold(f->p, uid_of(f, 1));
	const uint32_t b = presence_uid_hold(f->p, uid_of(f, 2));

	(void)state;
	assert_int_not_equal(a, 0);
	assert_int_not_equal(a, b);
	assert_int_equal(presence_uid_hold(f->p, uid_of(f, 1)), a);
	presence_uid_drop(f->p, a, 0);
	settle(f, SECOND);
	settle(f, 2 * SECOND);
	settle(f, 3 * SECOND);
	assert_int_equal(presence_uid_find(f->p, uid_of(f, 1)), a);
	assert_int_equal(presence_uid_count(f->p), 2);
	assert_true(id_equal(presence_uid_name(f->p, b), uid_of(f, 2)));
	fixture_free(f);
}

CONTROL_ONLY static void a_dropped_index_rests_for_the_quarantine(void **state)
{
	struct fixture *f = fixture_new(1, 4, 16);
	const uint32_t a = presence_uid_hold(f->p, uid_of(f, 1));
	const uint64_t start = 10 * SECOND;

	(void)state;
	settle(f, start);
	settle(f, start + SECOND - 1);
	presence_uid_drop(f->p, a, start + SECOND - 1);
	assert_int_equal(presence_uid_find(f->p, uid_of(f, 1)), 0);
	assert_int_equal(presence_uid_hold(f->p, uid_of(f, 2)), 0);
	settle(f, start + SECOND);  // the turn right after the drop must not free it
	settle(f, start + 2 * SECOND - 2);
	assert_int_equal(presence_uid_hold(f->p, uid_of(f, 2)), 0);
	settle(f, start + 2 * SECOND);
	assert_int_equal(presence_uid_hold(f->p, uid_of(f, 2)), a);
	assert_true(id_equal(presence_uid_name(f->p, a), uid_of(f, 2)));
	fixture_free(f);
}

CONTROL_ONLY static void a_uid_comes_back_from_quarantine_with_its_index(void **state)
{
	struct fixture *f = fixture_new(2, 4, 16);
	const uint32_t a = presence_uid_hold(f->p, uid_of(f, 1));

	(void)state;
	settle(f, SECOND);
	presence_uid_drop(f->p, a, SECOND);
	assert_int_equal(presence_uid_hold(f->p, uid_of(f, 1)), a);
	for (uint64_t s = 2; s < 8; s++)
		settle(f, s * SECOND);
	assert_int_equal(presence_uid_find(f->p, uid_of(f, 1)), a);
	fixture_free(f);
}

CONTROL_ONLY static void a_second_drop_in_quarantine_rests_anew(void **state)
{
	struct fixture *f = fixture_new(1, 4, 16);
	const uint32_t a = presence_uid_hold(f->p, uid_of(f, 1));

	(void)state;
	settle(f, SECOND);
	presence_uid_drop(f->p, a, SECOND);
	settle(f, 2 * SECOND);
	presence_uid_hold(f->p, uid_of(f, 1));
	presence_uid_drop(f->p, a, 2 * SECOND);
	settle(f, 3 * SECOND);  // the first drop's rest is over, the second's is not
	assert_int_equal(presence_uid_hold(f->p, uid_of(f, 2)), 0);
	settle(f, 4 * SECOND);
	settle(f, 5 * SECOND);
	assert_int_not_equal(presence_uid_hold(f->p, uid_of(f, 2)), 0);
	fixture_free(f);
}

CONTROL_ONLY static void a_full_table_refuses_and_says_how_far_a_page_got(void **state)
{
	struct fixture *f = fixture_new(20, 4, 16);
	struct id_view uid[40];
	char name[40][16];
	uint32_t index[40];

	(void)state;
	for (uint32_t i = 0; i < 40; i++)
		uid[i] = id_view_of(name[i], (uint8_t)snprintf(name[i], 16, "n%u", i));
	assert_int_equal(presence_uid_hold_burst(f->p, uid, 40, index), 20);
	assert_int_equal(presence_uid_hold_burst(f->p, uid, 20, index), 20);
	assert_int_equal(presence_uid_hold(f->p, uid[30]), 0);
	assert_int_equal(presence_uid_hold(f->p, (struct id_view){0}), 0);
	fixture_free(f);
}

CONTROL_ONLY static void burst_holds_like_single_ones_with_repeats_inside(void **state)
{
	struct fixture *f = fixture_new(4000, 4, 16);
	static char name[200][16];
	struct id_view uid[200];
	uint32_t index[200], seed = 11;

	(void)state;
	for (uint32_t round = 0; round < 50; round++) {
		for (uint32_t i = 0; i < 200; i++) {
			// Old ones, new ones, and new ones again at every distance.
			const uint32_t n =
				(seed = seed * 1664525 + 1013904223) / 7 % (60 + 60 * round);

			uid[i] = id_view_of(name[i], (uint8_t)snprintf(name[i], 16, "n%u", n));
		}
		assert_int_equal(presence_uid_hold_burst(f->p, uid, 200, index), 200);
		for (uint32_t i = 0; i < 200; i++) {
			assert_true(id_equal(presence_uid_name(f->p, index[i]), uid[i]));
			assert_int_equal(presence_uid_find(f->p, uid[i]), index[i]);
		}
	}
	fixture_free(f);
}

CONTROL_ONLY static void random_holds_match_a_model(void **state)
{
	enum { NAMES = 500 };
	struct fixture *f = fixture_new(300, 4, 16);
	static uint32_t refs[NAMES], index[NAMES];
	uint32_t seed = 7;
	uint64_t now = SECOND;

	(void)state;
	for (uint32_t round = 0; round < 200000; round++) {
		const uint32_t n = (seed = seed * 1664525 + 1013904223) / 7 % NAMES;

		if (refs[n] != 0 && (seed & 1 << 20) != 0) {
			presence_uid_drop(f->p, index[n], now);
			refs[n]--;
		} else {
			const uint32_t got = presence_uid_hold(f->p, uid_of(f, n));

			if (got == 0)
				continue;
			if (refs[n] != 0)
				assert_int_equal(got, index[n]);
			index[n] = got;
			refs[n]++;
		}
		presence_step(f->p, 4, now += SECOND / 200);
	}
	for (uint32_t n = 0; n < NAMES; n++) {
		assert_int_equal(
			presence_uid_find(f->p, uid_of(f, n)), refs[n] != 0 ? index[n] : 0);
		if (refs[n] != 0)
			assert_true(id_equal(presence_uid_name(f->p, index[n]), uid_of(f, n)));
	}
	fixture_free(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_uid_keeps_its_index_while_held),
		cmocka_unit_test(a_dropped_index_rests_for_the_quarantine),
		cmocka_unit_test(a_uid_comes_back_from_quarantine_with_its_index),
		cmocka_unit_test(a_second_drop_in_quarantine_rests_anew),
		cmocka_unit_test(a_full_table_refuses_and_says_how_far_a_page_got),
		cmocka_unit_test(burst_holds_like_single_ones_with_repeats_inside),
		cmocka_unit_test(random_holds_match_a_model),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
