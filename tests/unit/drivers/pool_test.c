/* SPDX-License-Identifier: BSD-3-Clause */
// The threads of a pool: there when made, gone when joined, and woken whenever there is work.
#include "pool.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <time.h>

#include "base_time.h"
#include "unit.h"

#define LATE_NS (60 * NS_PER_S)

static _Atomic uint32_t ran;

static int count(void *ctx, const void *items, uint32_t n)
{
	atomic_fetch_add(&ran, n);
	return 0;
}

static struct wq_params params_of(uint32_t workers)
{
	return (struct wq_params){
		.label = WQ_L_TEST,
		.capacity = 64,
		.item_bytes = 8,
		.workers = workers,
		.batch = 1,
		.run = count,
		.ops = pool_wq_ops(),
	};
}

static uint32_t threads(void)
{
	DIR *dir = opendir("/proc/self/task");
	uint32_t n = 0;

	assert_non_null(dir);
	for (const struct dirent *entry; (entry = readdir(dir)) != NULL;)
		n += entry->d_name[0] != '.';
	closedir(dir);
	return n;
}

static void wait_for(uint32_t n)
{
	const uint64_t give_up_ns = time_now_ns() + LATE_NS;
	const struct timespec nap = {.tv_nsec = 100000};

	while (atomic_load(&ran) < n) {
		assert_true(time_now_ns() < give_up_ns);
		nanosleep(&nap, NULL);
	}
}

static void make_and_end(uint32_t *during)
{
	const struct wq_params params = params_of(8);
	struct pool *pool;
	struct wq *q;

	assert_int_equal(wq_create(&params, &q), 0);
	assert_int_equal(pool_create(q, "a long name of threads", &pool), 0);
	*during = threads();
	assert_int_equal(wq_close(q, time_now_ns() + LATE_NS, NULL), 0);
	assert_int_equal(pool_join(pool, time_now_ns() + LATE_NS), 0);
	assert_int_equal(wq_destroy(q), 0);
}

static void threads_are_gone_after_a_join(void **state)
{
	uint32_t before, during;

	make_and_end(&during);  // a sanitizer keeps a thread of its own from here on
	before = during - 8;
	for (uint32_t round = 0; round < 8; round++) {
		const uint64_t give_up_ns = time_now_ns() + LATE_NS;

		// The kernel takes a moment to remove one that has been joined.
		while (threads() != before)
			assert_true(time_now_ns() < give_up_ns);
		make_and_end(&during);
		assert_int_equal(during, before + 8);
	}
}

static void a_queue_without_ops_has_no_pool(void **state)
{
	struct wq_params params = params_of(1);
	struct pool *pool;
	struct wq *q;

	params.ops = NULL;
	assert_int_equal(wq_create(&params, &q), 0);
	assert_int_equal(pool_create(q, "none", &pool), -EINVAL);
	assert_null(pool);
	assert_int_equal(wq_destroy(q), 0);
}

static const struct wq_ops *real;

// Long sleeps have no end here, so that a wake-up that is lost is one that never comes.
static void wait_for_ever(_Atomic uint32_t *word, uint32_t expected, uint64_t until_ns)
{
	const bool nap = until_ns < real->now_ns() + 10 * NS_PER_MS;

	real->wait(word, expected, nap ? until_ns : UINT64_MAX);
}

static void no_wake_up_is_lost(void **state)
{
	const struct timespec rest = {.tv_nsec = 100000};
	struct wq_params params = params_of(8);
	struct wq_ops ops = *pool_wq_ops();
	struct pool *pool;
	struct wq *q;

	real = pool_wq_ops();
	ops.wait = wait_for_ever;
	params.ops = &ops;
	atomic_store(&ran, 0);
	assert_int_equal(wq_create(&params, &q), 0);
	assert_int_equal(pool_create(q, "sleepers", &pool), 0);
	for (uint64_t i = 0; i < 1000; i++) {
		assert_int_equal(wq_submit(q, &i), 0);
		wait_for((uint32_t)i + 1);
		// sometimes they have just fallen asleep, sometimes they are about to
		if (i % 3 == 0)
			nanosleep(&rest, NULL);
	}
	assert_int_equal(wq_close(q, time_now_ns() + LATE_NS, NULL), 0);
	assert_int_equal(pool_join(pool, time_now_ns() + LATE_NS), 0);
	assert_int_equal(wq_destroy(q), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(threads_are_gone_after_a_join),
		cmocka_unit_test(a_queue_without_ops_has_no_pool),
		cmocka_unit_test(no_wake_up_is_lost),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
