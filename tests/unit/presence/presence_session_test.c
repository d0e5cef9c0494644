/* SPDX-License-Identifier: BSD-3-Clause */
#include "presence_fixture.h"

#include <errno.h>

CONTROL_ONLY static void a_session_gives_its_uid_a_route_and_takes_it(void **state)
{
	struct fixture *f = fixture_new(100, 4, 1000);
	const uint32_t g = (uint32_t)gateway_up(f, 1, 1, 1);
	uint64_t route[16];
	uint32_t uid;

	(void)state;
	assert_int_equal(presence_session_open(f->p, g, 700, 5, uid_of(f, 1), 1), 0);
	uid = presence_uid_find(f->p, uid_of(f, 1));
	assert_true(presence_route(&f->view, uid) == route_word(g, 700, 5));
	assert_int_equal(routes_seen(f, uid, route), 1);
	assert_int_equal(presence_session_open(f->p, g, 700, 5, uid_of(f, 1), 1), 0);
	assert_int_equal(presence_session_close(f->p, g, 700, 4, uid_of(f, 1), 1), -ENOENT);
	assert_int_equal(presence_session_close(f->p, g, 700, 5, uid_of(f, 2), 1), -ENOENT);
	assert_int_equal(presence_session_close(f->p, g, 701, 5, uid_of(f, 1), 1), -ENOENT);
	assert_int_equal(presence_session_close(f->p, g, 700, 5, uid_of(f, 1), 1), 0);
	assert_true(presence_route(&f->view, uid) == 0);
	assert_false(presence_session_live(&f->view, g, 700, 5));
	assert_int_equal(presence_session_close(f->p, g, 700, 5, uid_of(f, 1), 1), -ENOENT);
	assert_int_equal(presence_uid_count(f->p), 0);
	fixture_free(f);
}

CONTROL_ONLY static void the_sixteenth_session_is_the_last(void **state)
{
	struct fixture *f = fixture_new(100, 4, 1000);
	const uint32_t g = (uint32_t)gateway_up(f, 1, 1, 1);
	const uint32_t h = (uint32_t)gateway_up(f, 2, 1, 1);
	uint64_t route[16];
	uint32_t uid;

	(void)state;
	for (uint32_t i = 0; i < 16; i++)
		assert_int_equal(
			presence_session_open(f->p, i % 2 == 0 ? g : h, i, 1, uid_of(f, 1), 1), 0);
	uid = presence_uid_find(f->p, uid_of(f, 1));
	assert_int_equal(routes_seen(f, uid, route), 16);
	assert_int_equal(presence_session_open(f->p, g, 50, 1, uid_of(f, 1), 1), -EMLINK);
	assert_false(presence_session_live(&f->view, g, 50, 1));
	// Sessions of an ended incarnation make room before any sweep.
	presence_gateway_down(f->p, h, 1);
	assert_int_equal(presence_session_open(f->p, g, 50, 1, uid_of(f, 1), 1), 0);
	assert_int_equal(routes_seen(f, uid, route), 9);
	settle(f, 1);
	assert_int_equal(routes_seen(f, uid, route), 9);
	fixture_free(f);
}

// What a reader finds that read `word` before the routes changed.
static bool finds(struct fixture *f, uint32_t uid, uint64_t word, uint64_t session)
{
	const struct presence_more *m = presence_more_of(&f->view, uid);
	bool found = m == NULL && route_session(word) == session;

	for (uint32_t i = 0; m != NULL && i < m->count; i++)
		found |= m->route[i] == session;
	return found;
}

CONTROL_ONLY static void a_reader_with_an_older_word_finds_what_stayed_open(void **state)
{
	struct fixture *f = fixture_new(100, 4, 1000);
	const uint32_t g = (uint32_t)gateway_up(f, 1, 1, 1);
	const uint64_t kept = route_word(g, 2, 1);
	uint64_t three, two;
	uint32_t uid;

	(void)state;
	for (uint32_t slot = 0; slot < 3; slot++)
		assert_int_equal(presence_session_open(f->p, g, slot, 1, uid_of(f, 1), 1), 0);
	uid = presence_uid_find(f->p, uid_of(f, 1));
	three = presence_route(&f->view, uid);
	assert_int_equal(presence_session_close(f->p, g, 0, 1, uid_of(f, 1), 1), 0);
	assert_true(finds(f, uid, three, kept));
	two = presence_route(&f->view, uid);
	assert_true((two & ROUTE_MORE) != 0);
	assert_int_equal(presence_session_close(f->p, g, 1, 1, uid_of(f, 1), 1), 0);
	assert_true(presence_route(&f->view, uid) == kept);
	// No quiescent point yet: all three words may still be in a reader's hand.
	assert_true(finds(f, uid, three, kept));
	assert_true(finds(f, uid, two, kept));
	settle(f, 1);
	assert_null(presence_more_of(&f->view, uid));
	assert_int_equal(f->p->blocks_more, 0);
	fixture_free(f);
}

CONTROL_ONLY static void a_newer_generation_closes_what_was_there(void **state)
{
	struct fixture *f = fixture_new(100, 4, 1000);
	const uint32_t g = (uint32_t)gateway_up(f, 1, 1, 1);
	struct presence_stats stats;

	(void)state;
	assert_int_equal(presence_session_open(f->p, g, 3, 5, uid_of(f, 1), 1), 0);
	assert_int_equal(presence_session_open(f->p, g, 3, 5, uid_of(f, 2), 1), -EEXIST);
	assert_int_equal(presence_session_open(f->p, g, 3, 4, uid_of(f, 2), 1), -EEXIST);
	assert_int_equal(presence_session_open(f->p, g, 3, 6, uid_of(f, 2), 1), 0);
	assert_int_equal(presence_uid_find(f->p, uid_of(f, 1)), 0);
	assert_false(presence_session_live(&f->view, g, 3, 5));
	assert_true(presence_session_live(&f->view, g, 3, 6));
	assert_int_equal(presence_session_close(f->p, g, 3, 6, uid_of(f, 2), 1), 0);
	// A closed generation is not opened again: late receipts would match it.
	assert_int_equal(presence_session_open(f->p, g, 3, 6, uid_of(f, 2), 1), -EEXIST);
	assert_int_equal(presence_session_open(f->p, g, 3, 7, uid_of(f, 2), 1), 0);
	presence_stats(f->p, &stats);
	assert_int_equal(stats.sessions, 1);
	assert_int_equal(stats.uids_online, 1);
	fixture_free(f);
}

CONTROL_ONLY static void out_of_range_values_are_refused(void **state)
{
	struct fixture *f = fixture_new(2, 4, 1000);
	const uint32_t g = (uint32_t)gateway_up(f, 1, 1, 1);

	(void)state;
	assert_int_equal(presence_session_open(f->p, g, 1000, 1, uid_of(f, 1), 1), -EINVAL);
	assert_int_equal(presence_session_open(f->p, g, 999, 1u << 24, uid_of(f, 1), 1), -EINVAL);
	assert_int_equal(presence_session_open(f->p, g, 999, 1, (struct id_view){0}, 1), -EINVAL);
	assert_int_equal(presence_session_open(f->p, 0, 9, 1, uid_of(f, 1), 1), -EINVAL);
	assert_int_equal(presence_session_open(f->p, g + 1, 9, 1, uid_of(f, 1), 1), -EINVAL);
	assert_int_equal(presence_session_close(f->p, 77, 9, 1, uid_of(f, 1), 1), -ENOENT);
	assert_false(presence_session_live(&f->view, 77, 1, 1));
	assert_false(presence_session_live(&f->view, g, UINT32_MAX, 1));
	assert_int_equal(presence_session_open(f->p, g, 1, 1, uid_of(f, 1), 1), 0);
	assert_int_equal(presence_session_open(f->p, g, 2, 1, uid_of(f, 2), 1), 0);
	assert_int_equal(presence_session_open(f->p, g, 3, 1, uid_of(f, 3), 1), -ENOSPC);
	fixture_free(f);
}

CONTROL_ONLY static void sparse_slots_take_no_more_than_their_bound(void **state)
{
	struct fixture *f = fixture_new(1000, 2, 1u << 24);
	const uint32_t g = (uint32_t)gateway_up(f, 1, 1, 1);
	uint32_t opened = 0;
	int rc = 0;

	(void)state;
	for (uint32_t i = 0; rc == 0 && i < 1000; i++) {
		rc = presence_session_open(f->p, g, i * 16384, 1, uid_of(f, i), 1);
		opened += rc == 0;
	}
	assert_int_equal(rc, -ENOSPC);
	assert_int_equal(opened, f->p->blocks_max);
	assert_int_equal(opened, 1000 * 16 / 512 + 2 * 64);
	fixture_free(f);
}

// Model: per UID a set of open sessions.
CONTROL_ONLY static void random_sessions_match_a_model(void **state)
{
	enum { UIDS = 12, GATEWAYS = 3, SLOTS = 64 };
	static struct {
		uint32_t gen, uid;
		bool open;
	} model[GATEWAYS][SLOTS];
	struct fixture *f = fixture_new(100, 16, SLOTS);
	uint32_t g[GATEWAYS], boot = 1, seed = 11;

	(void)state;
	for (uint32_t i = 0; i < GATEWAYS; i++)
		g[i] = (uint32_t)gateway_up(f, i + 1, boot, 1);
	for (uint32_t round = 1; round < 60000; round++) {
		const uint32_t r = (seed = seed * 1664525 + 1013904223) >> 8;
		const uint32_t gw = r % GATEWAYS, slot = r / 3 % SLOTS, uid = r / 192 % UIDS;
		uint32_t have[UIDS] = {0};
		uint64_t route[16];

		if (round % 1000 == 0) {
			g[gw] = (uint32_t)gateway_up(f, gw + 1, ++boot, round);
			assert_true((int)g[gw] > 0);
			for (uint32_t i = 0; i < SLOTS; i++)
				model[gw][i].open = false, model[gw][i].gen = 0;
		} else if (model[gw][slot].open && (r & 1 << 20) != 0) {
			assert_int_equal(
				presence_session_close(f->p, g[gw], slot, model[gw][slot].gen,
					uid_of(f, model[gw][slot].uid), round),
				0);
			model[gw][slot].open = false;
		} else {
			const int rc = presence_session_open(
				f->p, g[gw], slot, model[gw][slot].gen + 1, uid_of(f, uid), round);

			model[gw][slot].open = rc == 0;
			model[gw][slot].uid = uid;
			model[gw][slot].gen += rc == 0;
		}
		for (uint32_t i = 0; i < GATEWAYS; i++)
			for (uint32_t s = 0; s < SLOTS; s++)
				have[model[i][s].uid] += model[i][s].open;
		for (uint32_t u = 0; u < UIDS; u++) {
			const uint32_t index = presence_uid_find(f->p, uid_of(f, u));

			assert_int_equal(index == 0 ? 0 : routes_seen(f, index, route), have[u]);
		}
		if (round % 7 == 0)
			settle(f, round * SECOND / 100);
	}
	fixture_free(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_session_gives_its_uid_a_route_and_takes_it),
		cmocka_unit_test(the_sixteenth_session_is_the_last),
		cmocka_unit_test(a_reader_with_an_older_word_finds_what_stayed_open),
		cmocka_unit_test(a_newer_generation_closes_what_was_there),
		cmocka_unit_test(out_of_range_values_are_refused),
		cmocka_unit_test(sparse_slots_take_no_more_than_their_bound),
		cmocka_unit_test(random_sessions_match_a_model),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
