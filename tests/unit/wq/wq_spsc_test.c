/* SPDX-License-Identifier: BSD-3-Clause */
// The one-to-one ring: order, fullness, and two real threads.
#include "wq_spsc.h"

#include <errno.h>
#include <pthread.h>

#include "unit.h"

static void full_is_said_and_nothing_is_overwritten(void **state)
{
	struct wq_spsc ring;
	struct wq_sample sample;
	uint32_t v;

	assert_int_equal(wq_spsc_init(&ring, 4, sizeof(v)), 0);
	for (v = 0; v < 4; v++)
		assert_true(wq_spsc_push(&ring, &v));
	assert_false(wq_spsc_push(&ring, &v));
	assert_null(wq_spsc_reserve(&ring));
	assert_int_equal(wq_spsc_push_burst(&ring, &v, 1), 0);
	assert_int_equal(wq_spsc_depth(&ring), 4);
	wq_spsc_stats(&ring, WQ_L_TEST, &sample);
	assert_int_equal(sample.rejected[WQ_REJECT_FULL], 3);
	assert_int_equal(sample.admitted, 4);
	assert_int_equal(sample.depth, 4);
	assert_int_equal(sample.capacity, 4);
	for (v = 0; v < 4; v++) {
		assert_int_equal(*(uint32_t *)wq_spsc_peek(&ring), v);
		wq_spsc_drop(&ring);
	}
	assert_null(wq_spsc_peek(&ring));
	wq_spsc_fini(&ring);
}

static void bad_sizes_are_refused(void **state)
{
	struct wq_spsc ring;

	assert_int_equal(wq_spsc_init(&ring, 3, 8), -EINVAL);
	assert_int_equal(wq_spsc_init(&ring, 1, 8), -EINVAL);
	assert_int_equal(wq_spsc_init(&ring, 8, 0), -EINVAL);
	assert_int_equal(wq_spsc_init(&ring, 8, 65537), -EINVAL);
	assert_int_equal(wq_spsc_init(&ring, 1u << 25, 8), -EINVAL);
}

#define ITEMS 1000000u

static void *produce(void *arg)
{
	struct wq_spsc *ring = arg;

	for (uint64_t i = 0; i < ITEMS;) {
		uint64_t item[2] = {i, ~i};

		if (wq_spsc_push(ring, item))
			i++;
		else
			sched_yield();
	}
	return NULL;
}

static void two_threads_keep_order_and_content(void **state)
{
	struct wq_spsc ring;
	pthread_t thread;

	assert_int_equal(wq_spsc_init(&ring, 256, 16), 0);
	assert_int_equal(pthread_create(&thread, NULL, produce, &ring), 0);
	for (uint64_t i = 0; i < ITEMS;) {
		const uint64_t *item = wq_spsc_peek(&ring);

		if (item == NULL) {
			sched_yield();
			continue;
		}
		assert_int_equal(item[0], i);
		assert_int_equal(item[1], ~i);
		wq_spsc_drop(&ring);
		i++;
	}
	pthread_join(thread, NULL);
	wq_spsc_fini(&ring);
}

static void the_index_may_wrap(void **state)
{
	struct wq_spsc ring;

	assert_int_equal(wq_spsc_init(&ring, 8, 4), 0);
	atomic_store(&ring.head, UINT64_MAX - 3);
	atomic_store(&ring.tail, UINT64_MAX - 3);
	ring.head_cached = ring.tail_cached = UINT64_MAX - 3;
	for (uint32_t round = 0; round < 4; round++) {
		for (uint32_t v = 0; v < 8; v++)
			assert_true(wq_spsc_push(&ring, &v));
		assert_false(wq_spsc_push(&ring, &round));
		for (uint32_t v = 0; v < 8; v++) {
			assert_int_equal(*(uint32_t *)wq_spsc_peek(&ring), v);
			wq_spsc_drop(&ring);
		}
	}
	wq_spsc_fini(&ring);
}

static void bursts_go_around_the_end(void **state)
{
	uint32_t in[8], out[8];
	uint64_t sent = UINT64_MAX - 20, taken = sent;
	struct wq_spsc ring;

	assert_int_equal(wq_spsc_init(&ring, 8, 4), 0);
	atomic_store(&ring.head, sent);
	atomic_store(&ring.tail, sent);
	ring.head_cached = ring.tail_cached = sent;
	for (uint32_t round = 0; round < 100; round++) {
		const uint32_t n = 1 + round * 7 % 8, room = 8 - (uint32_t)(sent - taken);

		for (uint32_t i = 0; i < n; i++)
			in[i] = (uint32_t)(sent + i);
		assert_int_equal(wq_spsc_push_burst(&ring, in, n), n < room ? n : room);
		sent += n < room ? n : room;
		assert_int_equal(wq_spsc_depth(&ring), sent - taken);
		const uint32_t some = (uint32_t)(sent - taken), want = 1 + round * 5 % 8;
		const uint32_t got = wq_spsc_pop_burst(&ring, out, want);

		assert_int_equal(got, want < some ? want : some);
		for (uint32_t i = 0; i < got; i++)
			assert_int_equal(out[i], (uint32_t)taken++);
	}
	assert_int_equal(wq_spsc_pop_burst(&ring, out, 8), sent - taken);
	assert_int_equal(wq_spsc_pop_burst(&ring, out, 8), 0);
	wq_spsc_fini(&ring);
}

static void bursts_and_single_items_mix(void **state)
{
	uint64_t items[6] = {0, 1, 2, 3, 4, 5}, more = 6;
	struct wq_spsc ring;

	assert_int_equal(wq_spsc_init(&ring, 8, 8), 0);
	assert_int_equal(wq_spsc_push_burst(&ring, items, 6), 6);
	assert_true(wq_spsc_push(&ring, &more));
	for (uint64_t i = 0; i < 2; i++) {
		assert_int_equal(*(uint64_t *)wq_spsc_peek(&ring), i);
		wq_spsc_drop(&ring);
	}
	assert_int_equal(wq_spsc_pop_burst(&ring, items, 6), 5);
	for (uint64_t i = 0; i < 5; i++)
		assert_int_equal(items[i], i + 2);
	assert_null(wq_spsc_peek(&ring));
	wq_spsc_fini(&ring);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(full_is_said_and_nothing_is_overwritten),
		cmocka_unit_test(bad_sizes_are_refused),
		cmocka_unit_test(two_threads_keep_order_and_content),
		cmocka_unit_test(the_index_may_wrap),
		cmocka_unit_test(bursts_go_around_the_end),
		cmocka_unit_test(bursts_and_single_items_mix),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
