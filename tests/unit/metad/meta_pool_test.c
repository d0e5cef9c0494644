/* SPDX-License-Identifier: BSD-3-Clause */
// The pool under a loop of its own.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "meta_pool.h"

#define JOBS 100

struct work {
	struct meta_job job;
	int number;
	atomic_int *gate;  // runs only once this is set; NULL: at once
	bool ran;
};

static int order[2 * JOBS], done_count;

static void run(struct meta_job *job)
{
	struct work *work = (struct work *)job;

	while (work->gate != NULL && atomic_load(work->gate) == 0)
		;
	work->ran = true;
}

static void done(struct meta_job *job)
{
	struct work *work = (struct work *)job;

	assert_true(work->ran);
	order[done_count++] = work->number;
}

static void on_closed(uv_handle_t *handle, void *arg)
{
	(void)arg;
	if (!uv_is_closing(handle))
		uv_close(handle, NULL);
}

static void end(uv_loop_t *loop)
{
	uv_walk(loop, on_closed, NULL);
	uv_run(loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(loop), 0);
}

META_ONLY static void jobs_of_a_lane_end_in_their_order(void **state)
{
	static struct work work[JOBS];
	struct meta_pool *pool;
	uv_loop_t loop;

	done_count = 0;
	uv_loop_init(&loop);
	assert_int_equal(meta_pool_create(&loop, &pool), 0);
	for (int i = 0; i < JOBS; i++) {
		work[i] = (struct work){.job = {.run = run, .done = done}, .number = i};
		meta_pool_submit(pool, META_SHORT, &work[i].job);
	}
	while (meta_pool_pending(pool) > 0)
		uv_run(&loop, UV_RUN_ONCE);
	assert_int_equal(done_count, JOBS);
	for (int i = 0; i < JOBS; i++)
		assert_int_equal(order[i], i);
	meta_pool_stop(pool);
	end(&loop);
	free(pool);
	(void)state;
}

META_ONLY static void long_work_does_not_hold_up_short_work(void **state)
{
	static atomic_int gate;
	struct work slow = {.job = {.run = run, .done = done}, .number = 1, .gate = &gate};
	struct work quick = {.job = {.run = run, .done = done}, .number = 2};
	struct meta_pool *pool;
	uv_loop_t loop;

	done_count = 0;
	uv_loop_init(&loop);
	assert_int_equal(meta_pool_create(&loop, &pool), 0);
	meta_pool_submit(pool, META_LONG, &slow.job);
	meta_pool_submit(pool, META_SHORT, &quick.job);
	while (done_count == 0)
		uv_run(&loop, UV_RUN_ONCE);
	assert_int_equal(order[0], 2);
	assert_int_equal(meta_pool_pending(pool), 1);
	atomic_store(&gate, 1);
	// The stop waits for what runs, and gives it back.
	meta_pool_stop(pool);
	assert_int_equal(done_count, 2);
	assert_int_equal(meta_pool_pending(pool), 0);
	meta_pool_stop(pool);
	end(&loop);
	free(pool);
	(void)state;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(jobs_of_a_lane_end_in_their_order),
		cmocka_unit_test(long_work_does_not_hold_up_short_work),
	};
	int failed;

	role_take_meta();
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	role_drop_meta();
	return failed;
}
