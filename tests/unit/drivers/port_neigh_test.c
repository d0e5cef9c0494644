/* SPDX-License-Identifier: BSD-3-Clause */
// The neighbour table: learning, ageing, giving way, and readers beside a writer.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <pthread.h>
#include <string.h>

#include <cmocka.h>

#include "base_time.h"
#include "port_neigh.h"

#define TTL (60u * NS_PER_S)
static const uint8_t mac_a[6] = {2, 1, 1, 1, 1, 1}, mac_b[6] = {2, 2, 2, 2, 2, 2};

static int setup(void **state)
{
	*state = neigh_create();
	return *state != NULL ? 0 : -1;
}

static int teardown(void **state)
{
	neigh_destroy(*state);
	return 0;
}

static bool known(struct neigh_table *t, uint32_t ip, const uint8_t *mac)
{
	uint8_t got[6];

	return neigh_lookup(t, ip, got) && memcmp(got, mac, 6) == 0;
}

static void unknown_address_is_not_found(void **state)
{
	uint8_t mac[6];

	assert_false(neigh_lookup(*state, 1, mac));
	assert_int_equal(neigh_confirm(*state, 1, mac_a, 0), 0);
	assert_false(neigh_lookup(*state, 1, mac));
}

static void learnt_address_is_found_and_noticed(void **state)
{
	struct neigh_table *t = *state;
	const uint32_t additions = t->additions, generation = t->generation;

	assert_int_equal(neigh_set(t, 1, mac_a, false, 0), 1);
	assert_true(known(t, 1, mac_a));
	assert_int_equal(t->count, 1);
	assert_int_not_equal(t->additions, additions);
	assert_int_equal(t->generation, generation);  // nothing a worker holds went wrong
	assert_int_equal(neigh_set(t, 1, mac_a, false, 1), 0);
}

static void moved_station_ends_the_templates_made_before(void **state)
{
	struct neigh_table *t = *state;

	neigh_set(t, 1, mac_a, false, 0);
	const uint32_t generation = t->generation;

	assert_int_equal(neigh_confirm(t, 1, mac_b, 1), 1);
	assert_true(known(t, 1, mac_b));
	assert_int_not_equal(t->generation, generation);
}

static void fixed_entry_never_changes_or_expires(void **state)
{
	struct neigh_table *t = *state;
	struct neigh_refresh refresh;

	neigh_set(t, 1, mac_a, true, 0);
	assert_int_equal(neigh_set(t, 1, mac_b, false, 1), 0);
	assert_int_equal(neigh_confirm(t, 1, mac_b, 1), 0);
	neigh_sweep(t, TTL, 100 * TTL, &refresh);
	assert_true(known(t, 1, mac_a));
	assert_int_equal(refresh.count, 0);
}

static void silent_station_expires_after_its_lifetime(void **state)
{
	struct neigh_table *t = *state;
	struct neigh_refresh refresh;

	neigh_set(t, 1, mac_a, false, 0);
	for (uint64_t now = 0; now < TTL; now += TTL / 16) {
		neigh_sweep(t, TTL, now, &refresh);
		assert_true(known(t, 1, mac_a));
	}
	const uint32_t generation = t->generation;

	assert_int_equal(neigh_sweep(t, TTL, TTL + TTL / 8 + 2, &refresh), 1);
	assert_false(known(t, 1, mac_a));
	assert_int_not_equal(t->generation, generation);
	assert_int_equal(t->count, 0);
}

static void used_station_is_asked_again_from_half_its_lifetime(void **state)
{
	struct neigh_table *t = *state;
	struct neigh_refresh refresh;
	uint32_t asked = 0;

	neigh_set(t, 1, mac_a, false, 0);
	neigh_set(t, 2, mac_b, false, 0);  // nobody uses it
	for (uint64_t now = TTL / 64; now < TTL; now += TTL / 64) {
		assert_true(known(t, 1, mac_a));
		neigh_sweep(t, TTL, now, &refresh);
		if (now < TTL / 2)
			assert_int_equal(refresh.count, 0);
		for (uint32_t i = 0; i < refresh.count; i++) {
			assert_int_equal(refresh.item[i].ip, 1);
			assert_memory_equal(refresh.item[i].mac, mac_a, 6);
			asked++;
		}
	}
	assert_in_range(asked, 3, 5);
	neigh_confirm(t, 1, mac_a, TTL - 1);
	neigh_sweep(t, TTL, TTL + TTL / 4, &refresh);
	assert_true(known(t, 1, mac_a));
	assert_false(known(t, 2, mac_b));
}

static void flood_of_stations_spares_those_in_use_and_the_fixed(void **state)
{
	struct neigh_table *t = *state;

	neigh_set(t, 0x0a000001, mac_a, true, 0);
	neigh_set(t, 0x0a000002, mac_a, false, 0);
	for (uint32_t i = 0; i < 200000; i++) {
		neigh_set(t, 0x0b000000 + i, mac_b, false, 1 + i);
		if (i % 1000 == 0)
			assert_true(known(t, 0x0a000002, mac_a));
	}
	assert_true(known(t, 0x0a000001, mac_a));
	assert_true(known(t, 0x0a000002, mac_a));
	assert_in_range(t->count, 2, NEIGH_SETS * NEIGH_WAYS);
}

static void row_of_fixed_entries_refuses_more(void **state)
{
	struct neigh_table *t = *state;
	int rc = 1;
	uint32_t ip = 0;

	for (ip = 1; rc == 1 && ip < 100000; ip++)
		rc = neigh_set(t, ip, mac_a, true, 0);
	assert_int_equal(rc, -28);  // ENOSPC
	assert_false(known(t, ip - 1, mac_a));
}

struct race {
	struct neigh_table *table;
	_Atomic int stop;
	uint64_t torn, seen;
};

static void *reader(void *arg)
{
	struct race *r = arg;
	uint8_t mac[6];

	while (!atomic_load(&r->stop)) {
		for (uint32_t ip = 1; ip <= 2; ip++) {
			if (!neigh_lookup(r->table, ip, mac))
				continue;
			r->seen++;
			for (int i = 1; i < 6; i++)
				r->torn += mac[i] != mac[0];
			r->torn += (mac[0] & 3) != (ip << 1 & 3);
		}
	}
	return NULL;
}

static void reader_never_sees_half_an_address_or_anothers(void **state)
{
	struct race r = {.table = *state};
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, reader, &r), 0);
	// the two share one slot's life: each is removed before the other is added
	for (uint32_t i = 0; i < 300000; i++) {
		struct neigh_refresh refresh;
		const uint32_t ip = 1 + i % 2;
		uint8_t mac[6];

		memset(mac, (int)((i & 0x3f) << 2 | (ip << 1 & 3)), 6);
		neigh_set(r.table, ip, mac, false, i);
		if (i % 64 == 0) {
			r.table->next_sweep_ns = 0;
			neigh_sweep(r.table, 1, UINT64_MAX / 2, &refresh);
		}
	}
	atomic_store(&r.stop, 1);
	pthread_join(thread, NULL);
	assert_int_equal(r.torn, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(unknown_address_is_not_found, setup, teardown),
		cmocka_unit_test_setup_teardown(
			learnt_address_is_found_and_noticed, setup, teardown),
		cmocka_unit_test_setup_teardown(
			moved_station_ends_the_templates_made_before, setup, teardown),
		cmocka_unit_test_setup_teardown(
			fixed_entry_never_changes_or_expires, setup, teardown),
		cmocka_unit_test_setup_teardown(
			silent_station_expires_after_its_lifetime, setup, teardown),
		cmocka_unit_test_setup_teardown(
			used_station_is_asked_again_from_half_its_lifetime, setup, teardown),
		cmocka_unit_test_setup_teardown(
			flood_of_stations_spares_those_in_use_and_the_fixed, setup, teardown),
		cmocka_unit_test_setup_teardown(row_of_fixed_entries_refuses_more, setup, teardown),
		cmocka_unit_test_setup_teardown(
			reader_never_sees_half_an_address_or_anothers, setup, teardown),
	};

	return cmocka_run_group_tests_name("port_neigh", tests, NULL, NULL);
}
