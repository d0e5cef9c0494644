/* SPDX-License-Identifier: BSD-3-Clause */
// Jobs that a loop hands to threads and gets back (the meta process sorts the UIDs of large mutations so): libuv's
// own pool, and a queue of lib/wq each way. First jobs that do nothing, one at a time and many in flight; then
// what a short job waits while long ones are at work, in the pool they share and beside a pool of their own.
#include <string.h>

#include <uv.h>

#include "bench.h"
#include "pool.h"
#include "wq.h"

#define JOBS 4000u  // of a round
#define LONG_NS 5000000u  // what a long job computes
#define LONG_JOBS 4u  // as many as libuv has threads
#define SHORT_TIMES 5u

struct job {
	uint64_t sent_ns, work_ns;
};

static uv_loop_t loop;
static uv_async_t async;
static struct wq *out, *back;
static uint32_t left, in_flight;
static uint64_t took_ns;

static void must(bool holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "hop_pool: %s failed\n", what);
	exit(1);
}

static uint64_t wall_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

static void compute(uint64_t ns)
{
	const uint64_t until = bench_ns() + ns;

	while (ns != 0 && bench_ns() < until)
		;
}

// --- libuv's pool ---------------------------------------------------------------------------------------

struct uv_job {
	uv_work_t work;
	struct job job;
};

static void uv_run_job(uv_work_t *work)
{
	const struct uv_job *j = work->data;

	compute(j->job.work_ns);
}

static void uv_submit(uint64_t work_ns, uv_after_work_cb done)
{
	struct uv_job *j = calloc(1, sizeof(*j));

	must(j != NULL, "memory");
	j->work.data = j;
	j->job = (struct job){.sent_ns = wall_ns(), .work_ns = work_ns};
	must(uv_queue_work(&loop, &j->work, uv_run_job, done) == 0, "a job");
	in_flight++;
}

static void uv_next(uv_work_t *work, int status)
{
	(void)status;
	free(work->data);
	in_flight--;
	if (left > 0) {
		left--;
		uv_submit(0, uv_next);
	}
}

static double uv_round(uint32_t at_once)
{
	const uint64_t start = wall_ns();

	left = JOBS - at_once;
	for (uint32_t i = 0; i < at_once; i++)
		uv_submit(0, uv_next);
	while (in_flight > 0)
		uv_run(&loop, UV_RUN_ONCE);
	return (double)(wall_ns() - start) / JOBS;
}

// --- queues of lib/wq ------------------------------------------------------------------------------------

static int run_job(void *ctx, const void *items, uint32_t n)
{
	const struct job *job = items;

	(void)ctx;
	(void)n;
	compute(job->work_ns);
	must(wq_submit(back, job) == 0, "the way back");
	uv_async_send(&async);
	return 0;
}

static void wq_job(uint64_t work_ns)
{
	const struct job job = {.sent_ns = wall_ns(), .work_ns = work_ns};

	must(wq_submit(out, &job) == 0, "a job");
	in_flight++;
}

static int job_done(void *ctx, const void *items, uint32_t n)
{
	(void)ctx;
	(void)items;
	for (uint32_t i = 0; i < n; i++) {
		in_flight--;
		if (left > 0) {
			left--;
			wq_job(0);
		}
	}
	return 0;
}

static void on_async(uv_async_t *handle)
{
	(void)handle;
	while (wq_poll(back, 0) != 0)
		;
}

static double wq_round(uint32_t at_once)
{
	const uint64_t start = wall_ns();

	left = JOBS - at_once;
	for (uint32_t i = 0; i < at_once; i++)
		wq_job(0);
	while (in_flight > 0)
		uv_run(&loop, UV_RUN_ONCE);
	return (double)(wall_ns() - start) / JOBS;
}

// --- a short job while long ones are at work ----------------------------------------------------------------

static void long_done(uv_work_t *work, int status)
{
	(void)status;
	free(work->data);
	in_flight--;
}

static void short_done(uv_work_t *work, int status)
{
	const struct uv_job *j = work->data;

	(void)status;
	took_ns += wall_ns() - j->job.sent_ns;
	free(work->data);
	in_flight--;
}

static double short_job(bool own_pool)
{
	took_ns = 0;
	for (uint32_t t = 0; t < SHORT_TIMES; t++) {
		left = 0;
		for (uint32_t i = 0; i < LONG_JOBS; i++)
			if (own_pool)
				wq_job(LONG_NS);
			else
				uv_submit(LONG_NS, long_done);
		uv_submit(0, short_done);
		while (in_flight > 0)
			uv_run(&loop, UV_RUN_ONCE);
	}
	return (double)took_ns / SHORT_TIMES;
}

int main(void)
{
	const struct wq_params to_threads = {
		.label = WQ_L_TEST,
		.capacity = 64,
		.item_bytes = sizeof(struct job),
		.workers = 1,
		.batch = 1,
		.run = run_job,
		.ops = pool_wq_ops(),
	};
	struct wq_params to_loop = to_threads;
	double uv_one[BENCH_ROUNDS], wq_one[BENCH_ROUNDS], uv_many[BENCH_ROUNDS],
		wq_many[BENCH_ROUNDS], shared[BENCH_ROUNDS], own[BENCH_ROUNDS];
	struct pool *pool;

	to_loop.run = job_done;
	to_loop.batch = 32;
	must(uv_loop_init(&loop) == 0 && uv_async_init(&loop, &async, on_async) == 0 &&
			wq_create(&to_threads, &out) == 0 && wq_create(&to_loop, &back) == 0 &&
			pool_create(out, "hop", &pool) == 0,
		"a loop and its pool");
	for (uint32_t r = 0; r < BENCH_ROUNDS; r++) {
		uv_one[r] = uv_round(1);
		wq_one[r] = wq_round(1);
		uv_many[r] = uv_round(32);
		wq_many[r] = wq_round(32);
		shared[r] = short_job(false);
		own[r] = short_job(true);
	}
	bench_head("a job from a loop to a thread and back, wall time");
	bench_row("wq both ways, one job at a time", wq_one, "libuv's pool", uv_one, BENCH_NONE);
	bench_row("wq both ways, 32 jobs in flight", wq_many, "libuv's pool", uv_many, BENCH_NONE);
	bench_row("short job beside 4 of 5 ms, own pool", own, "in the pool they share", shared,
		BENCH_MOST(0.5));
	must(wq_close(out, UINT64_MAX, NULL) == 0 && pool_join(pool, UINT64_MAX) == 0 &&
			wq_destroy(out) == 0 && wq_destroy(back) == 0,
		"the end of a pool");
	uv_close((uv_handle_t *)&async, NULL);
	uv_run(&loop, UV_RUN_DEFAULT);
	must(uv_loop_close(&loop) == 0, "the end of a loop");
	return 0;
}
