/* SPDX-License-Identifier: BSD-3-Clause */
// What a queue promises without threads: every variant, one step at a time.
#include <errno.h>
#include <string.h>

#include "wq_variants.h"

// Remembers what ran, in order.
struct seen {
	uint64_t item[256];
	uint32_t count, calls;
	int rc;
};

static int remember(void *ctx, const void *items, uint32_t n)
{
	struct seen *seen = ctx;

	memcpy(&seen->item[seen->count], items, n * sizeof(uint64_t));
	seen->count += n;
	seen->calls++;
	return seen->rc;
}

static struct wq *make(
	const struct variant *v, uint32_t capacity, uint32_t batch, struct seen *seen)
{
	struct wq_params params = variant_params(v, capacity, remember, seen);
	struct wq *q;

	params.batch = batch;
	*seen = (struct seen){0};
	assert_int_equal(wq_create(&params, &q), 0);
	return q;
}

static void full_is_said_and_nothing_is_overwritten(void **state)
{
	struct seen seen;

	EACH_VARIANT(v)
	{
		struct wq *q = make(v, 4, 1, &seen);
		uint64_t item;

		for (item = 0; item < 4; item++)
			assert_int_equal(wq_submit(q, &item), 0);
		assert_int_equal(wq_submit(q, &item), -ENOBUFS);
		assert_int_equal(wq_depth(q), 4);
		assert_int_equal(wq_poll(q, 0), 1);
		assert_int_equal(wq_submit(q, &item), 0);
		assert_int_equal(wq_submit(q, &item), -ENOBUFS);
		while (wq_poll(q, 0) != 0)
			;
		assert_int_equal(seen.count, 5);
		for (item = 0; item < 5; item++)
			assert_int_equal(seen.item[item], item);
		assert_int_equal(wq_depth(q), 0);
		assert_int_equal(wq_destroy(q), 0);
	}
}

static void bad_config_is_refused(void **state)
{
	static const struct wq_ops no_clock = {.now_ns = NULL};
	const struct wq_params good = variant_params(&variants[0], 8, remember, NULL);
	struct wq_params bad[16];
	struct wq *q;

	for (uint32_t i = 0; i < 16; i++)
		bad[i] = good;
	bad[0].capacity = 0;
	bad[1].capacity = 1;
	bad[2].capacity = 6;
	bad[3].capacity = WQ_CAPACITY_MAX * 2;
	bad[4].item_bytes = 0;
	bad[5].item_bytes = WQ_ITEM_BYTES_MAX + 1;
	bad[6].workers = 0;
	bad[7].workers = WQ_WORKERS_MAX + 1;
	bad[8].batch = 0;
	bad[9].batch = WQ_BATCH_MAX + 1;
	bad[10].run = NULL;
	bad[11].label = WQ_LABEL_COUNT;
	bad[12].ops = &no_clock;
	bad[13].capacity = UINT32_MAX;
	bad[14].timed_every = 3;
	bad[15].timed_every = WQ_TIMED_EVERY_MAX * 2;
	for (uint32_t i = 0; i < 16; i++) {
		assert_int_equal(wq_create(&bad[i], &q), -EINVAL);
		assert_null(q);
	}
	assert_int_equal(wq_create(&good, &q), 0);
	assert_int_equal(wq_destroy(q), 0);
}

static void without_ops_nothing_blocks(void **state)
{
	struct seen seen = {.count = 0};
	struct wq_params params = variant_params(&variants[2], 2, remember, &seen);
	uint64_t item = 7, count = 0;
	struct wq *q;

	params.ops = NULL;
	assert_int_equal(wq_create(&params, &q), 0);
	assert_int_equal(wq_submit_wait(q, &item, UINT64_MAX, NULL), -EINVAL);
	assert_int_equal(wq_close(q, UINT64_MAX, &count), -EINVAL);
	assert_int_equal(wq_submit(q, &item), 0);
	wq_shut(q);
	assert_int_equal(wq_submit(q, &item), -ESHUTDOWN);
	assert_false(wq_drained(q));
	assert_int_equal(wq_poll(q, 0), 1);
	assert_true(wq_drained(q));
	assert_int_equal(wq_destroy(q), 0);
}

static void a_burst_is_admitted_as_far_as_there_is_room(void **state)
{
	uint64_t items[100];
	struct seen seen;

	for (uint64_t i = 0; i < 100; i++)
		items[i] = i;
	EACH_VARIANT(v)
	{
		struct wq *q = make(v, 8, 3, &seen);

		assert_int_equal(wq_submit_burst(q, items, 0), 0);
		assert_int_equal(wq_submit_burst(q, items, 5), 5);
		assert_int_equal(wq_submit_burst(q, items + 5, 5), 3);
		assert_int_equal(wq_submit_burst(q, items + 8, 5), -ENOBUFS);
		assert_int_equal(wq_poll(q, 0), 3);
		assert_int_equal(wq_submit_burst(q, items + 8, 100), 3);
		while (wq_poll(q, 0) != 0)
			;
		assert_int_equal(seen.count, 11);
		assert_int_equal(seen.calls, 4);  // 3, 3, 3, 2
		for (uint64_t i = 0; i < 11; i++)
			assert_int_equal(seen.item[i], i);
		assert_int_equal(wq_destroy(q), 0);
	}
}

static void one_burst_is_at_most_64(void **state)
{
	static uint64_t items[200];
	struct seen seen;
	struct wq *q = make(&variants[2], 256, 64, &seen);

	assert_int_equal(wq_submit_burst(q, items, 200), WQ_BATCH_MAX);
	assert_int_equal(wq_poll(q, 0), 64);
	assert_int_equal(wq_destroy(q), 0);
}

static void a_failing_handler_loses_no_slot(void **state)
{
	struct seen seen;

	EACH_VARIANT(v)
	{
		struct wq *q = make(v, 2, 1, &seen);
		struct wq_sample sample;
		uint64_t item;

		seen.rc = -EIO;
		for (item = 0; item < 100; item++) {
			assert_int_equal(wq_submit(q, &item), 0);
			assert_int_equal(wq_poll(q, 0), 1);
		}
		wq_stats(q, &sample);
		assert_int_equal(sample.run, 100);
		assert_int_equal(sample.failed, 100);
		assert_int_equal(sample.depth, 0);
		assert_int_equal(sample.busy, 0);
		assert_int_equal(wq_submit(q, &item), 0);
		assert_int_equal(wq_submit(q, &item), 0);
		assert_int_equal(wq_destroy(q), -EBUSY);
		while (wq_poll(q, 0) != 0)
			;
		assert_int_equal(wq_destroy(q), 0);
	}
}

// Items of any size, also none of 8, come out as they went in.
static int compare_bytes(void *ctx, const void *items, uint32_t n)
{
	const uint8_t *p = items;
	const uint32_t bytes = *(uint32_t *)ctx;

	assert_int_equal(n, 1);
	for (uint32_t i = 0; i < bytes; i++)
		assert_int_equal(p[i], (uint8_t)(i * 7 + bytes));
	return 0;
}

static void items_of_any_size_keep_their_bytes(void **state)
{
	static const uint32_t sizes[] = {1, 3, 8, 13, 16, 24, 31, 32, 33, 64, 288, 1500, 65536};
	static uint8_t item[65536];

	for (uint32_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
		uint32_t bytes = sizes[s];
		struct wq_params params = variant_params(&variants[5], 4, compare_bytes, &bytes);
		struct wq *q;

		params.item_bytes = bytes;
		assert_int_equal(wq_create(&params, &q), 0);
		for (uint32_t i = 0; i < bytes; i++)
			item[i] = (uint8_t)(i * 7 + bytes);
		for (uint32_t i = 0; i < 10; i++) {
			assert_int_equal(wq_submit(q, item), 0);
			assert_int_equal(wq_submit(q, item), 0);
			assert_int_equal(wq_poll(q, 0), 1);
			assert_int_equal(wq_poll(q, 1), 1);
		}
		assert_int_equal(wq_destroy(q), 0);
	}
}

static void refusals_are_counted_by_reason(void **state)
{
	struct seen seen;

	EACH_VARIANT(v)
	{
		struct wq *q = make(v, 2, 1, &seen);
		_Atomic uint32_t cancel = 1;
		struct wq_sample s;
		uint64_t item = 1;

		assert_int_equal(wq_submit_wait(q, &item, 0, NULL), 0);
		assert_int_equal(wq_submit_wait(q, &item, 0, &cancel), -ECANCELED);
		assert_int_equal(wq_submit(q, &item), 0);
		assert_int_equal(wq_submit(q, &item), -ENOBUFS);
		assert_int_equal(wq_submit_burst(q, &item, 1), -ENOBUFS);
		assert_int_equal(wq_submit_wait(q, &item, 0, NULL), -ETIMEDOUT);
		wq_shut(q);
		assert_int_equal(wq_submit(q, &item), -ESHUTDOWN);
		assert_int_equal(wq_submit_wait(q, &item, UINT64_MAX, NULL), -ESHUTDOWN);
		wq_stats(q, &s);
		assert_int_equal(s.admitted, 2);
		assert_int_equal(s.rejected[WQ_REJECT_FULL], 2);
		assert_int_equal(s.rejected[WQ_REJECT_CANCELED], 1);
		assert_int_equal(s.rejected[WQ_REJECT_TIMEOUT], 1);
		assert_int_equal(s.rejected[WQ_REJECT_CLOSED], 2);
		while (wq_poll(q, 0) != 0)
			;
		assert_int_equal(wq_destroy(q), 0);
	}
}

static uint64_t fake_ns;

static uint64_t fake_now(void)
{
	return fake_ns;
}

static void fake_wait(_Atomic uint32_t *word, uint32_t expected, uint64_t until_ns)
{
	fake_ns = until_ns;
}

static void fake_wake(_Atomic uint32_t *word, uint32_t sleepers)
{
}

static int take_a_while(void *ctx, const void *items, uint32_t n)
{
	fake_ns += 5000;
	return 0;
}

static const struct wq_ops fake_ops = {.now_ns = fake_now, .wait = fake_wait, .wake = fake_wake};

static void times_are_sampled(uint32_t capacity, uint32_t every)
{
	struct wq_params params = variant_params(&variants[2], capacity, take_a_while, NULL);
	struct wq_sample s;
	struct wq *q;

	fake_ns = 1000;
	params.ops = &fake_ops;
	params.timed_every = every;
	assert_int_equal(wq_create(&params, &q), 0);
	for (uint64_t i = 0; i < UINT64_C(64) * every; i++) {
		assert_int_equal(wq_submit(q, &i), 0);
		fake_ns += i < UINT64_C(63) * every ? 1000 : 1000000;
		assert_int_equal(wq_poll(q, 0), 1);
	}
	wq_stats(q, &s);
	// buckets end within half an octave above what they hold
	assert_in_range(wq_times_percentile(&s.wait, 50), 1000, 1536);
	assert_in_range(wq_times_percentile(&s.wait, 99), 1000000, 1572864);
	assert_in_range(wq_times_percentile(&s.times, 99), 5000, 6144);
	assert_int_equal(wq_destroy(q), 0);
}

static void waiting_and_running_times_are_sampled(void **state)
{
	for (uint32_t capacity = 4; capacity <= 256; capacity *= 4)
		for (uint32_t every = 1; every <= 256; every *= 16)
			times_are_sampled(capacity, every);
}

static void a_burst_is_timed_by_its_items(void **state)
{
	static const uint64_t items[8];
	struct wq_params params = variant_params(&variants[2], 8, take_a_while, NULL);
	struct wq_sample s;
	struct wq *q;

	fake_ns = 1000;
	params.ops = &fake_ops;
	params.timed_every = 1;
	assert_int_equal(wq_create(&params, &q), 0);
	assert_int_equal(wq_submit_burst(q, items, 8), 8);
	while (wq_poll(q, 0) != 0)
		;
	wq_stats(q, &s);
	// each waits for those before it: 0, 5, ... 35 us
	assert_int_equal(wq_times_percentile(&s.wait, 1), 16);
	assert_in_range(wq_times_percentile(&s.wait, 99), 35000, 53000);
	assert_int_equal(wq_destroy(q), 0);
}
static void percentiles_never_understate(void **state)
{
	for (uint64_t ns = 1; ns < UINT64_C(1) << 42; ns = ns * 5 / 4 + 1) {
		struct wq_hist hist = {0};
		struct wq_times times;

		wq_hist_add(&hist, ns);
		wq_hist_read(&hist, &times);
		assert_true(wq_times_percentile(&times, 50) > ns);
		assert_true(wq_times_percentile(&times, 50) <= (ns < 16 ? 16 : ns + ns / 2 + 1));
	}
	struct wq_hist hist = {0};
	struct wq_times times;

	wq_hist_read(&hist, &times);
	assert_int_equal(wq_times_percentile(&times, 99), 0);
	wq_hist_add(&hist, UINT64_MAX);
	wq_hist_read(&hist, &times);
	assert_true(wq_times_percentile(&times, 99) > UINT64_C(1) << 42);
}

static void two_workers_take_turns_without_threads(void **state)
{
	struct seen seen;
	struct wq *q = make(&variants[5], 8, 2, &seen);
	uint64_t items[6] = {0, 1, 2, 3, 4, 5};

	assert_int_equal(wq_submit_burst(q, items, 6), 6);
	for (uint32_t w = 0; w < 3; w++)
		assert_int_equal(wq_poll(q, w), 2);
	assert_int_equal(wq_poll(q, 3), 0);
	for (uint64_t i = 0; i < 6; i++)
		assert_int_equal(seen.item[i], i);
	assert_int_equal(wq_destroy(q), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(full_is_said_and_nothing_is_overwritten),
		cmocka_unit_test(bad_config_is_refused),
		cmocka_unit_test(without_ops_nothing_blocks),
		cmocka_unit_test(a_burst_is_admitted_as_far_as_there_is_room),
		cmocka_unit_test(one_burst_is_at_most_64),
		cmocka_unit_test(a_failing_handler_loses_no_slot),
		cmocka_unit_test(items_of_any_size_keep_their_bytes),
		cmocka_unit_test(refusals_are_counted_by_reason),
		cmocka_unit_test(waiting_and_running_times_are_sampled),
		cmocka_unit_test(a_burst_is_timed_by_its_items),
		cmocka_unit_test(percentiles_never_understate),
		cmocka_unit_test(two_workers_take_turns_without_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
