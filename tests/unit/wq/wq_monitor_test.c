/* SPDX-License-Identifier: BSD-3-Clause */
// The monitor: scores and levels at their edges, instances merged to one row, windows, order.
#include "wq_monitor.h"

#include <string.h>

#include "unit.h"

#define S UINT64_C(1000000000)

static struct wq_monitor *monitor;
static struct wq_row rows[WQ_LABEL_COUNT];
static struct wq_summary summary;

static int begin(void **state)
{
	monitor = wq_monitor_create(16);
	return monitor == NULL ? -1 : 0;
}

static int end(void **state)
{
	wq_monitor_destroy(monitor);
	return 0;
}

static void bad_history_is_refused(void **state)
{
	assert_null(wq_monitor_create(0));
	assert_null(wq_monitor_create(1));
	assert_null(wq_monitor_create(WQ_HISTORY_MAX + 1));
}

static void nothing_is_said_before_the_first_tick(void **state)
{
	assert_int_equal(wq_monitor_rows(monitor, 10 * S, rows, &summary), 0);
	assert_false(summary.ready);
	assert_int_equal(summary.overall, WQ_LEVEL_OK);
}

static void levels_begin_at_their_edges(void **state)
{
	static const struct {
		uint32_t depth, capacity, busy, workers;
		double score;
		enum wq_level level;
		const char *hint;
	} table[] = {
		{0, 100, 0, 4, 0, WQ_LEVEL_OK, ""},
		{59, 100, 0, 0, 0.59, WQ_LEVEL_OK, ""},
		{60, 100, 0, 0, 0.60, WQ_LEVEL_BUSY, ""},
		{79, 100, 0, 0, 0.79, WQ_LEVEL_BUSY, ""},
		{80, 100, 0, 0, 0.80, WQ_LEVEL_DEGRADED, "depth approaching capacity"},
		{94, 100, 0, 0, 0.94, WQ_LEVEL_DEGRADED, "depth approaching capacity"},
		{95, 100, 0, 0, 0.95, WQ_LEVEL_CRITICAL, "depth approaching capacity"},
		{10, 100, 3, 4, 0.75, WQ_LEVEL_BUSY, ""},
		{10, 100, 4, 4, 1, WQ_LEVEL_CRITICAL, "inflight at worker capacity"},
		{1, 0, 0, 0, 1, WQ_LEVEL_CRITICAL, "depth without capacity"},
		{0, 0, 0, 0, 0, WQ_LEVEL_OK, ""},
		{0, 100, 5, 0, 0, WQ_LEVEL_OK, ""},
	};

	for (uint32_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		const struct wq_sample sample = {
			.label = WQ_L_TEST,
			.depth = table[i].depth,
			.capacity = table[i].capacity,
			.busy = table[i].busy,
			.workers = table[i].workers,
		};

		wq_monitor_add(monitor, &sample);
		wq_monitor_tick(monitor, (i + 1) * S);
		assert_int_equal(wq_monitor_rows(monitor, 10 * S, rows, &summary), 1);
		assert_true(rows[0].score > table[i].score - 1e-9 &&
			    rows[0].score < table[i].score + 1e-9);
		assert_int_equal(rows[0].level, table[i].level);
		assert_string_equal(rows[0].hint, table[i].hint);
		assert_int_equal(summary.overall, table[i].level);
		assert_int_equal(summary.count[table[i].level], 1);
	}
}

static void instances_of_a_place_are_one_row(void **state)
{
	struct wq_sample a = {.label = WQ_L_HANDOFF, .depth = 10, .capacity = 100, .admitted = 5};
	struct wq_sample b = {.label = WQ_L_HANDOFF, .depth = 15, .capacity = 20, .admitted = 7};

	a.rejected[WQ_REJECT_FULL] = 1;
	b.rejected[WQ_REJECT_FULL] = 2;
	a.busy = b.busy = a.workers = 1;
	b.workers = 3;
	wq_monitor_add(monitor, &a);
	wq_monitor_add(monitor, &b);
	wq_monitor_tick(monitor, S);
	a.admitted += 100;
	b.rejected[WQ_REJECT_FULL] += 50;
	wq_monitor_add(monitor, &b);
	wq_monitor_add(monitor, &a);
	wq_monitor_tick(monitor, 3 * S);
	assert_int_equal(wq_monitor_rows(monitor, 10 * S, rows, &summary), 1);
	assert_int_equal(rows[0].depth, 15);
	assert_int_equal(rows[0].capacity, 20);
	assert_int_equal(rows[0].busy, 2);
	assert_int_equal(rows[0].workers, 4);
	assert_true(rows[0].admitted_per_s == 50 && rows[0].rejected_per_s == 25);
	assert_int_equal(rows[0].rejected[WQ_REJECT_FULL], 50);
	assert_false(rows[0].timed);
	assert_string_equal(rows[0].component, "node");
	assert_string_equal(rows[0].queue, "handoff");
}

static void rates_and_times_are_of_the_window(void **state)
{
	struct wq_sample s = {.label = WQ_L_TEST, .capacity = 8};

	// slow in the beginning, quick at the end
	for (uint64_t i = 1; i <= 40; i++) {
		s.admitted += i <= 20 ? 10 : 1000;
		s.wait.bucket[wq_hist_bucket(i <= 35 ? 1000000 : 1000)] += 10;
		s.times.bucket[wq_hist_bucket(500)] += 10;
		wq_monitor_add(monitor, &s);
		wq_monitor_tick(monitor, i * S);
	}
	assert_int_equal(wq_monitor_rows(monitor, 4 * S, rows, &summary), 1);
	assert_true(summary.ready && summary.seconds == 4);
	assert_true(rows[0].admitted_per_s == 1000);
	assert_true(rows[0].timed);
	assert_in_range(rows[0].wait_p99_ns, 1000, 1536);
	assert_in_range(rows[0].run_p50_ns, 500, 768);
	// no more is kept than the history
	assert_int_equal(wq_monitor_rows(monitor, 1000 * S, rows, &summary), 1);
	assert_true(summary.seconds == 15);
	assert_in_range(rows[0].wait_p99_ns, 1000000, 1572864);
}

static void a_queue_that_is_new_counts_from_nothing(void **state)
{
	struct wq_sample s = {.label = WQ_L_TEST, .capacity = 8, .admitted = 1000};

	wq_monitor_add(monitor, &s);
	wq_monitor_tick(monitor, S);
	s.admitted = 30;
	wq_monitor_add(monitor, &s);
	wq_monitor_tick(monitor, 2 * S);
	wq_monitor_rows(monitor, 10 * S, rows, &summary);
	assert_true(rows[0].admitted_per_s == 30);
}

static void the_hottest_comes_first_then_names(void **state)
{
	const struct wq_sample samples[] = {
		{.label = WQ_L_TEST, .depth = 1, .capacity = 10},
		{.label = WQ_L_PORT_FRAMES, .depth = 1, .capacity = 10},
		{.label = WQ_L_PORT_EVENTS, .depth = 1, .capacity = 10},
		{.label = WQ_L_HANDOFF, .depth = 9, .capacity = 10},
		{.label = WQ_L_TO_CONTROL, .depth = 7, .capacity = 10},
	};
	static const char *const queues[] = {"handoff", "requests", "events", "frames", "test"};

	for (uint32_t i = 0; i < 5; i++)
		wq_monitor_add(monitor, &samples[i]);
	wq_monitor_tick(monitor, S);
	assert_int_equal(wq_monitor_rows(monitor, S, rows, &summary), 5);
	for (uint32_t i = 0; i < 5; i++)
		assert_string_equal(rows[i].queue, queues[i]);
	assert_int_equal(summary.total, 5);
	assert_int_equal(summary.count[WQ_LEVEL_OK], 3);
	assert_int_equal(summary.count[WQ_LEVEL_BUSY], 1);
	assert_int_equal(summary.count[WQ_LEVEL_DEGRADED], 1);
	assert_int_equal(summary.overall, WQ_LEVEL_DEGRADED);
	// what was not sampled this time is not shown
	wq_monitor_tick(monitor, 2 * S);
	assert_int_equal(wq_monitor_rows(monitor, S, rows, &summary), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bad_history_is_refused),
		cmocka_unit_test_setup_teardown(nothing_is_said_before_the_first_tick, begin, end),
		cmocka_unit_test_setup_teardown(levels_begin_at_their_edges, begin, end),
		cmocka_unit_test_setup_teardown(instances_of_a_place_are_one_row, begin, end),
		cmocka_unit_test_setup_teardown(rates_and_times_are_of_the_window, begin, end),
		cmocka_unit_test_setup_teardown(
			a_queue_that_is_new_counts_from_nothing, begin, end),
		cmocka_unit_test_setup_teardown(the_hottest_comes_first_then_names, begin, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
