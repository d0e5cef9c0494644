/* SPDX-License-Identifier: BSD-3-Clause */
#include "presence_fixture.h"

#include <errno.h>

CONTROL_ONLY static void an_incarnation_is_found_by_workers_until_it_ends(void **state)
{
	struct fixture *f = fixture_new(100, 4, 16);
	const int g = gateway_up(f, 9, 1, SECOND);

	(void)state;
	assert_true(g > 0);
	assert_int_equal(gateway_up(f, 9, 1, SECOND), g);
	assert_int_equal(presence_gateway_of(&f->view, 9, 1), g);
	assert_int_equal(presence_gateway_of(&f->view, 9, 2), 0);
	presence_gateway_down(f->p, (uint32_t)g, SECOND);
	assert_int_equal(presence_gateway_of(&f->view, 9, 1), 0);
	presence_gateway_down(f->p, (uint32_t)g, SECOND);
	fixture_free(f);
}

CONTROL_ONLY static void a_new_boot_ends_the_old_one(void **state)
{
	struct fixture *f = fixture_new(100, 4, 16);
	const uint32_t old = (uint32_t)gateway_up(f, 9, 1, SECOND);
	const uint32_t new = (uint32_t)gateway_up(f, 9, 2, SECOND);
	uint32_t use;

	(void)state;
	assert_int_not_equal(old, new);
	assert_false(atomic_load(&f->view.gateway[old].alive));
	assert_true(atomic_load(&f->view.gateway[new].alive));
	assert_int_equal(presence_gateway_ended(f->p, &use), old);
	assert_int_equal(use, 1);
	fixture_free(f);
}

CONTROL_ONLY static void the_end_of_an_incarnation_touches_no_route(void **state)
{
	enum { USERS = 5000 };
	struct fixture *f = fixture_new(USERS, 4, USERS);
	const uint32_t g = (uint32_t)gateway_up(f, 9, 1, SECOND);
	struct presence_stats stats;
	uint32_t steps = 0;

	(void)state;
	for (uint32_t i = 0; i < USERS; i++)
		assert_int_equal(presence_session_open(f->p, g, i, 1, uid_of(f, i), SECOND), 0);
	presence_gateway_down(f->p, g, SECOND);
	presence_stats(f->p, &stats);
	// All routes stand as they did, none is usable, and the sessions count no more.
	assert_int_equal(stats.uids_online, USERS);
	assert_int_equal(stats.sessions, 0);
	assert_int_equal(stats.gateways_sweeping, 1);
	for (uint32_t i = 0; i < USERS; i++) {
		const uint32_t uid = presence_uid_find(f->p, uid_of(f, i));
		uint64_t route[16];

		assert_true(presence_route(&f->view, uid) != 0);
		assert_int_equal(routes_seen(f, uid, route), 0);
	}
	// The sweep comes in bounded pieces.
	while (stats.uids_online != 0) {
		const uint32_t done = presence_step(f->p, 64, SECOND);

		assert_in_range(done, 1, 64);
		presence_stats(f->p, &stats);
		steps++;
	}
	assert_in_range(steps, USERS / 64, USERS / 64 + 4);
	assert_int_equal(presence_uid_count(f->p), 0);
	fixture_free(f);
}

CONTROL_ONLY static void an_incarnation_moves_and_keeps_its_mtu(void **state)
{
	const struct net_addr to = {.ip = 0x0a000009, .port = 7009};
	struct fixture *f = fixture_new(100, 2, 16);
	const int g = presence_gateway_up(
		f->p, 9, 1, (struct net_addr){.ip = 0x0a000001, .port = 7001}, 1500, SECOND);

	(void)state;
	assert_int_equal(presence_gateway_up(f->p, 9, 1, to, 576, SECOND), g);
	assert_true(net_addr_equal(f->view.gateway[g].addr, to));
	assert_int_equal(f->view.gateway[g].mtu, 1500);
	assert_int_equal(presence_gateway_up(f->p, 9, 2, to, 576, SECOND), g + 1);
	assert_int_equal(f->view.gateway[g + 1].mtu, 576);
	fixture_free(f);
}

CONTROL_ONLY static void notice(struct fixture *f)
{
	uint32_t use;

	presence_gateway_ended_done(f->p, presence_gateway_ended(f->p, &use));
}

CONTROL_ONLY static void an_index_is_reused_only_after_sweep_grace_and_notice(void **state)
{
	(void)state;
	// The three in every place of the order; the last one missing keeps the index.
	for (uint32_t last = 0; last < 3; last++) {
		struct fixture *f = fixture_new(100, 1, 16);
		const uint32_t g = (uint32_t)gateway_up(f, 9, 1, SECOND);

		assert_int_equal(presence_session_open(f->p, g, 3, 1, uid_of(f, 1), SECOND), 0);
		presence_gateway_down(f->p, g, SECOND);
		for (uint32_t i = 1; i <= 3; i++) {
			const uint32_t what = (last + i) % 3;

			assert_int_equal(gateway_up(f, 9, 2, SECOND), -ENOSPC);
			if (what == 0)
				rcu_reclaim(&f->retire);
			else if (what == 1)
				notice(f);
			else
				presence_step(f->p, 1000, SECOND);
		}
		if (last != 2)
			presence_step(f->p, 1000, SECOND);
		assert_int_equal(gateway_up(f, 9, 2, SECOND), g);
		assert_int_equal(atomic_load(&f->view.gateway[g].use), 2);
		assert_false(presence_session_live(&f->view, g, 3, 1));
		fixture_free(f);
	}
}

CONTROL_ONLY static void silent_incarnations_expire_and_heard_ones_stay(void **state)
{
	struct fixture *f = fixture_new(100, 8, 16);
	const uint32_t a = (uint32_t)gateway_up(f, 1, 1, 1 * SECOND);
	const uint32_t b = (uint32_t)gateway_up(f, 2, 1, 2 * SECOND);
	const uint32_t c = (uint32_t)gateway_up(f, 3, 1, 3 * SECOND);

	(void)state;
	presence_gateway_heard(f->p, a, 4 * SECOND);
	assert_int_equal(presence_gateway_expire(f->p, 3 * SECOND, 5 * SECOND), 1);
	assert_int_equal(presence_gateway_find(f->p, 2, 1), 0);
	assert_int_equal(presence_gateway_find(f->p, 1, 1), a);
	assert_int_equal(presence_gateway_find(f->p, 3, 1), c);
	assert_int_equal(presence_gateway_expire(f->p, 100 * SECOND, 100 * SECOND), 2);
	(void)b;
	fixture_free(f);
}

CONTROL_ONLY static void a_hello_from_another_address_moves_the_incarnation(void **state)
{
	struct fixture *f = fixture_new(100, 8, 16);
	const uint32_t a = (uint32_t)gateway_up(f, 1, 1, SECOND);
	const struct net_addr to = {.ip = 0x0a000001, .port = 9};

	(void)state;
	assert_int_equal(presence_session_open(f->p, a, 1, 1, uid_of(f, 1), SECOND), 0);
	assert_int_equal(presence_gateway_up(f->p, 1, 1, to, 1400, SECOND), a);
	assert_true(net_addr_equal(f->view.gateway[a].addr, to));
	assert_true(presence_session_live(&f->view, a, 1, 1));
	fixture_free(f);
}

CONTROL_ONLY static void the_announce_stream_is_taken_once_and_in_order(void **state)
{
	struct fixture *f = fixture_new(100, 8, 16);
	const uint32_t a = (uint32_t)gateway_up(f, 1, 1, SECOND);

	(void)state;
	assert_int_equal(presence_stream_take(f->p, a, 0), -EILSEQ);
	assert_int_equal(presence_stream_take(f->p, a, 2), -EILSEQ);
	assert_int_equal(presence_stream_take(f->p, a, 1), 1);
	assert_int_equal(presence_stream_take(f->p, a, 1), 0);
	assert_int_equal(presence_stream_take(f->p, a, 2), 1);
	assert_int_equal(presence_stream_take(f->p, a, 4), -EILSEQ);
	f->p->control[a].next_expected = UINT64_MAX;
	assert_int_equal(presence_stream_take(f->p, a, UINT64_MAX), -EILSEQ);
	fixture_free(f);
}

CONTROL_ONLY static void gateways_come_and_go_without_end(void **state)
{
	struct fixture *f = fixture_new(64, 8, 4096);
	struct presence_stats stats;
	uint32_t seed = 3;

	(void)state;
	for (uint32_t round = 1; round < 20000; round++) {
		const uint64_t id = 1 + (seed = seed * 1664525 + 1013904223) / 13 % 8;
		const int g = gateway_up(f, id, round, round);
		uint32_t use, i;

		if (g > 0)
			(void)presence_session_open(f->p, (uint32_t)g, seed / 64 % 4096, 1,
				uid_of(f, seed / 4096 % 64), round);
		while ((i = presence_gateway_ended(f->p, &use)) != 0)
			presence_gateway_ended_done(f->p, i);
		presence_step(f->p, 16, round);
		if (round % 4 == 0)
			rcu_reclaim(&f->retire);
	}
	presence_gateway_expire(f->p, UINT64_MAX, 20000);
	settle(f, 20000);
	presence_stats(f->p, &stats);
	assert_int_equal(stats.gateways, 0);
	assert_int_equal(stats.gateways_sweeping, 0);
	assert_int_equal(stats.uids_online, 0);
	assert_int_equal(f->p->blocks, 0);
	fixture_free(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_incarnation_is_found_by_workers_until_it_ends),
		cmocka_unit_test(a_new_boot_ends_the_old_one),
		cmocka_unit_test(the_end_of_an_incarnation_touches_no_route),
		cmocka_unit_test(an_incarnation_moves_and_keeps_its_mtu),
		cmocka_unit_test(an_index_is_reused_only_after_sweep_grace_and_notice),
		cmocka_unit_test(silent_incarnations_expire_and_heard_ones_stay),
		cmocka_unit_test(a_hello_from_another_address_moves_the_incarnation),
		cmocka_unit_test(the_announce_stream_is_taken_once_and_in_order),
		cmocka_unit_test(gateways_come_and_go_without_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
