/* SPDX-License-Identifier: BSD-3-Clause */
// What the limits of a configuration come to, and when a machine is too small for them.
#include "app_limits.h"

#include <errno.h>
#include <string.h>

#include "unit.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

static struct conf conf;

static int setup(void **state)
{
	conf_defaults(&conf);
	conf.port.mtu = 1500;
	return 0;
}

static uint64_t bytes_of(const char *option)
{
	struct app_memory memory;

	app_memory(&conf, &memory);
	for (uint32_t i = 0; i < memory.rows; i++)
		if (strcmp(memory.row[i].option, option) == 0)
			return memory.row[i].bytes;
	fail_msg("no row %s", option);
	return 0;
}

static void defaults_fit_a_small_machine(void **state)
{
	char problem[512];
	const char *key;

	assert_int_equal(app_memory_check(&conf, 2 * GIB, &key, problem, sizeof(problem)), 0);
}

static void sum_is_the_sum_of_rows_and_the_largest_comes_first(void **state)
{
	struct app_memory memory;
	uint64_t sum = 0;

	app_memory(&conf, &memory);
	for (uint32_t i = 0; i < memory.rows; i++) {
		sum += memory.row[i].bytes;
		assert_true(memory.row[i].bytes > 0);
		assert_true(i == 0 || memory.row[i].bytes <= memory.row[i - 1].bytes);
	}
	assert_int_equal(memory.bytes, sum);
}

// A limit near the end of its range must show in its own row.
static void each_limit_weighs_in_its_row(void **state)
{
	const struct {
		uint32_t *limit;
		uint32_t value;
		const char *option;
		uint64_t least;
	} rows[] = {
		{&conf.limits.uids, 1073741822, "limits.uids", 64 * GIB},
		{&conf.limits.channels, 16777216, "limits.channels", GIB},
		{&conf.limits.gateways, 4095, "limits.gateways", 4 * MIB},
		{&conf.limits.senders, 1048576, "limits.senders", 256 * MIB},
		{&conf.limits.frames, 65536, "limits.frames", 6 * GIB},
		{&conf.limits.window, 16777216, "limits.window", GIB},
		{&conf.limits.messages, 1048576, "limits.messages", 128 * MIB},
		{&conf.limits.inflight_pushes, 1048576, "limits.inflight_pushes", 512 * MIB},
		{&conf.workers.ring_items, 65536, "workers.ring", 64 * MIB},
		{&conf.eal.memory_bytes, 4095u << 20, "eal.memory", 4095 * MIB},
		{&conf.meta.feed_backlog_bytes, 4095u << 20, "meta.feed_backlog", 4095 * MIB},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const uint32_t was = *rows[i].limit;
		const uint64_t before = bytes_of(rows[i].option);

		*rows[i].limit = rows[i].value;
		assert_true(bytes_of(rows[i].option) >= rows[i].least);
		assert_true(bytes_of(rows[i].option) > before);
		*rows[i].limit = was;
	}
}

static void what_workers_keep_counts_for_each(void **state)
{
	const uint64_t one = bytes_of("limits.inflight_pushes");

	conf.workers.count = 16;
	assert_int_equal(bytes_of("limits.inflight_pushes"), 16 * one);
}

static void absurd_limit_is_named(void **state)
{
	char problem[512];
	const char *key = NULL;

	conf.limits.uids = 1073741822;
	assert_int_equal(app_memory_check(&conf, 24 * GIB, &key, problem, sizeof(problem)), -E2BIG);
	assert_string_equal(key, "limits.uids");
	assert_non_null(strstr(problem, "24576MiB"));
	assert_int_equal(app_memory_check(&conf, 4096 * GIB, &key, problem, sizeof(problem)), 0);
}

static void biggest_limits_of_all_do_not_overflow(void **state)
{
	char problem[512];
	const char *key = NULL;

	conf.limits.uids = 1073741822;
	conf.limits.channels = 16777216;
	conf.limits.gateways = 4095;
	conf.limits.senders = 1048576;
	conf.limits.frames = 65536;
	conf.limits.window = 16777216;
	conf.limits.messages = 1048576;
	conf.limits.inflight_pushes = 1048576;
	conf.limits.tag_bytes = UINT64_C(1) << 40;
	conf.workers.count = 16;
	conf.workers.ring_items = 65536;
	conf.port.mtu = 9000;
	assert_int_equal(
		app_memory_check(&conf, 1024 * GIB, &key, problem, sizeof(problem)), -E2BIG);
	assert_string_equal(key, "limits.tag_memory");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(defaults_fit_a_small_machine, setup),
		cmocka_unit_test_setup(sum_is_the_sum_of_rows_and_the_largest_comes_first, setup),
		cmocka_unit_test_setup(each_limit_weighs_in_its_row, setup),
		cmocka_unit_test_setup(what_workers_keep_counts_for_each, setup),
		cmocka_unit_test_setup(absurd_limit_is_named, setup),
		cmocka_unit_test_setup(biggest_limits_of_all_do_not_overflow, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
