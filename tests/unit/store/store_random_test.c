/* SPDX-License-Identifier: BSD-3-Clause */
// Long random runs of lib/store over the sorted map against plain sets.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "store_map.h"
#include "store_model.h"

static void run(uint64_t seed, uint64_t commands, struct store_model_stats *stats)
{
	struct store_map *map = store_map_create();
	const struct store_model_backend backend = store_model_on_map(map);
	struct store_model *model = store_model_create(&backend, seed);
	struct store_tx tx;
	const char *why;

	store_map_begin(map, &tx);
	assert_int_equal(store_open(&tx, 7, &why), 0);
	store_map_commit(map, &tx);
	assert_int_equal(store_model_run(model, commands), 0);
	store_model_stats(model, stats);
	store_model_destroy(model);
	store_map_destroy(map);
}

static void random_commands_give_what_plain_sets_give(void **state)
{
	struct store_model_stats s;

	(void)state;
	run(1, 120000, &s);
	print_message("changed %llu repeated %llu busy %llu expired %llu staged %llu closed %llu "
		      "dropped %llu "
		      "aborted %llu bulk %llu listed %llu layered %llu cluster %llu refused %llu\n",
		(unsigned long long)s.changed, (unsigned long long)s.repeated,
		(unsigned long long)s.busy, (unsigned long long)s.expired,
		(unsigned long long)s.staged, (unsigned long long)s.closed,
		(unsigned long long)s.dropped, (unsigned long long)s.aborted_tx,
		(unsigned long long)s.bulk, (unsigned long long)s.listed,
		(unsigned long long)s.layered, (unsigned long long)s.cluster,
		(unsigned long long)s.refused);
	assert_true(s.changed > 1000 && s.repeated > 100 && s.busy > 100 && s.expired > 10);
	assert_true(s.staged > 1000 && s.closed > 300 && s.dropped > 5 && s.aborted_tx > 10);
	assert_true(s.bulk > 10 && s.listed > 1000 && s.layered > 10);
	assert_true(s.cluster > 1000 && s.refused > 500);
}

static void other_seeds_hold_too(void **state)
{
	struct store_model_stats s;

	(void)state;
	for (uint64_t seed = 2; seed <= 12; seed++)
		run(seed, 3000, &s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(random_commands_give_what_plain_sets_give),
		cmocka_unit_test(other_seeds_hold_too),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
