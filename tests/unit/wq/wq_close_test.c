/* SPDX-License-Identifier: BSD-3-Clause */
// The end of a queue as a table: in what state it is closed, and what comes of it, for every variant with
// threads of a pool. Each admitted item ends once: run or abandoned.
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base_time.h"
#include "wq_variants.h"

#define CAPACITY 8u
#define SOON_NS (20 * NS_PER_MS)
#define LATE_NS (60 * NS_PER_S)  // a test that gets there has failed
#define STUCK UINT64_MAX  // an item whose handler waits for `release` or the cancel flag
#define CLOSES (UINT64_MAX - 1)  // an item whose handler closes its queue

struct world {
	const struct variant *v;
	struct wq *q;
	struct pool *pool;
	_Atomic uint32_t started, ran, abandoned, saw_cancel;
	_Atomic uint32_t times[64];  // run and abandoned, by item
	_Atomic int rc_in_handler;
	_Atomic bool release, heed_cancel;
};

static void nap(void)
{
	const struct timespec t = {.tv_nsec = 100000};

	nanosleep(&t, NULL);
}

#define WAIT_FOR(condition) \
	do { \
		const uint64_t give_up_ns = time_now_ns() + LATE_NS; \
		while (!(condition)) { \
			assert_true(time_now_ns() < give_up_ns); \
			nap(); \
		} \
	} while (0)

static int handle(void *ctx, const void *items, uint32_t n)
{
	struct world *w = ctx;
	uint64_t item;

	memcpy(&item, items, sizeof(item));
	atomic_fetch_add(&w->started, 1);
	if (item == CLOSES)
		atomic_store(&w->rc_in_handler, wq_close(w->q, time_now_ns() + LATE_NS, NULL));
	while (item == STUCK && !atomic_load(&w->release)) {
		if (wq_canceled(w->q)) {
			atomic_store(&w->saw_cancel, 1);
			if (atomic_load(&w->heed_cancel))
				break;
		}
		nap();
	}
	if (item < 64)
		atomic_fetch_add(&w->times[item], 1);
	atomic_fetch_add(&w->ran, 1);
	return 0;
}

static void take_back(void *ctx, const void *item)
{
	struct world *w = ctx;
	uint64_t value;

	memcpy(&value, item, sizeof(value));
	if (value < 64)
		atomic_fetch_add(&w->times[value], 1);
	atomic_fetch_add(&w->abandoned, 1);
	// Whoever ends the queue here waits for nobody.
	if (wq_close(w->q, 0, NULL) != -EDEADLK)
		atomic_store(&w->rc_in_handler, -1);
}

static void begin(struct world *w, const struct variant *v, bool threads)
{
	struct wq_params params = variant_params(v, CAPACITY, handle, w);

	memset(w, 0, sizeof(*w));
	w->v = v;
	params.on_abandon = take_back;
	assert_int_equal(wq_create(&params, &w->q), 0);
	if (threads)
		assert_int_equal(pool_create(w->q, "test", &w->pool), 0);
}

static void finish(struct world *w, uint32_t items)
{
	const uint64_t item = 0;

	assert_int_equal(wq_submit(w->q, &item), -ESHUTDOWN);
	assert_int_equal(wq_submit_wait(w->q, &item, time_now_ns() + LATE_NS, NULL), -ESHUTDOWN);
	if (w->pool != NULL)
		assert_int_equal(pool_join(w->pool, time_now_ns() + LATE_NS), 0);
	for (uint32_t i = 0; i < 64; i++)
		assert_int_equal(atomic_load(&w->times[i]), i < items ? 1 : 0);
	assert_int_equal(wq_destroy(w->q), 0);
}

static void submit(struct world *w, uint32_t first, uint32_t n)
{
	for (uint64_t item = first; item < first + n; item++)
		assert_int_equal(wq_submit(w->q, &item), 0);
}

// A handler in each worker that does not come back.
static void stick(struct world *w)
{
	const uint64_t item = STUCK;

	for (uint32_t i = 0; i < w->v->workers; i++)
		assert_int_equal(wq_submit_wait(w->q, &item, time_now_ns() + LATE_NS, NULL), 0);
	WAIT_FOR(atomic_load(&w->started) == w->v->workers);
}

static void before_start_empty(struct world *w)
{
	uint64_t count = 99;

	begin(w, w->v, false);
	assert_int_equal(wq_close(w->q, time_now_ns() + LATE_NS, &count), 0);
	assert_int_equal(count, 0);
	finish(w, 0);
}

static void before_start_with_items(struct world *w)
{
	uint64_t count = 0;

	begin(w, w->v, false);
	submit(w, 0, 5);
	assert_int_equal(wq_close(w->q, time_now_ns() + SOON_NS, &count), -ETIMEDOUT);
	assert_int_equal(count, 5);
	assert_int_equal(atomic_load(&w->abandoned), 5);
	assert_int_equal(wq_poll(w->q, 0), 0);
	finish(w, 5);
}

static void idle(struct world *w)
{
	uint64_t count = 99;

	begin(w, w->v, true);
	submit(w, 0, 3);
	WAIT_FOR(atomic_load(&w->ran) == 3);
	assert_int_equal(wq_close(w->q, time_now_ns() + LATE_NS, &count), 0);
	assert_int_equal(count, 0);
	finish(w, 3);
}

static void full(struct world *w)
{
	const uint64_t item = 0;
	uint64_t count = 99;

	begin(w, w->v, true);
	stick(w);
	submit(w, 0, CAPACITY);
	assert_int_equal(wq_submit(w->q, &item), -ENOBUFS);
	wq_shut(w->q);
	assert_int_equal(wq_submit(w->q, &item), -ESHUTDOWN);  // closed is told before full
	atomic_store(&w->release, true);
	assert_int_equal(wq_close(w->q, time_now_ns() + LATE_NS, &count), 0);
	assert_int_equal(count, 0);
	assert_int_equal(atomic_load(&w->ran), CAPACITY + w->v->workers);
	finish(w, CAPACITY);
}

struct caller {
	struct world *w;
	pthread_t thread;
	uint64_t deadline_ns, count;
	_Atomic uint32_t *cancel;
	int rc;
};

static void *wait_and_submit(void *arg)
{
	struct caller *c = arg;
	const uint64_t item = 50;

	c->rc = wq_submit_wait(c->w->q, &item, c->deadline_ns, c->cancel);
	return NULL;
}

static void during_submit_wait(struct world *w)
{
	struct caller c = {.w = w, .deadline_ns = time_now_ns() + LATE_NS};
	uint64_t count = 99;

	begin(w, w->v, true);
	stick(w);
	submit(w, 0, CAPACITY);
	assert_int_equal(pthread_create(&c.thread, NULL, wait_and_submit, &c), 0);
	WAIT_FOR(atomic_load(&w->q->waiters) == 1);
	assert_int_equal(wq_close(w->q, time_now_ns() + SOON_NS, &count), -ETIMEDOUT);
	pthread_join(c.thread, NULL);
	assert_int_equal(c.rc, -ESHUTDOWN);
	assert_int_equal(count, CAPACITY);
	atomic_store(&w->release, true);
	finish(w, CAPACITY);
}

static void stuck_handler(struct world *w)
{
	const uint64_t started_ns = time_now_ns();
	uint64_t count = 0;

	begin(w, w->v, true);
	stick(w);
	submit(w, 0, 6);
	assert_int_equal(wq_close(w->q, started_ns + 3 * SOON_NS, &count), -ETIMEDOUT);
	assert_true(time_now_ns() >= started_ns + 3 * SOON_NS);
	assert_int_equal(count, 6);
	assert_int_equal(pool_join(w->pool, time_now_ns() + SOON_NS), -ETIMEDOUT);
	assert_int_equal(wq_destroy(w->q), -EBUSY);
	WAIT_FOR(atomic_load(&w->saw_cancel) == 1);
	atomic_store(&w->release, true);
	finish(w, 6);
	assert_int_equal(atomic_load(&w->ran), w->v->workers);
}

// Nothing is left to abandon, yet not everything has been run.
static void stuck_handler_alone(struct world *w)
{
	uint64_t count = 99;

	begin(w, w->v, true);
	stick(w);
	assert_int_equal(wq_close(w->q, time_now_ns() + SOON_NS, &count), -ETIMEDOUT);
	assert_int_equal(count, 0);
	atomic_store(&w->heed_cancel, true);
	finish(w, 0);
}

static void twice(struct world *w)
{
	uint64_t first = 0, second = 0;

	begin(w, w->v, true);
	stick(w);
	submit(w, 0, 4);
	assert_int_equal(wq_close(w->q, time_now_ns() + SOON_NS, &first), -ETIMEDOUT);
	assert_int_equal(wq_close(w->q, time_now_ns() + LATE_NS, &second), -ETIMEDOUT);
	assert_int_equal(first, 4);
	assert_int_equal(second, 4);
	assert_int_equal(atomic_load(&w->abandoned), 4);
	atomic_store(&w->release, true);
	finish(w, 4);
}

static void *close_it(void *arg)
{
	struct caller *c = arg;

	c->rc = wq_close(c->w->q, c->deadline_ns, &c->count);
	return NULL;
}

static void from_two_threads(struct world *w)
{
	struct caller c[2] = {{.w = w, .deadline_ns = UINT64_MAX}, {.w = w}};

	begin(w, w->v, true);
	stick(w);
	submit(w, 0, 7);
	// The first would wait for ever; the second one's deadline counts for both.
	assert_int_equal(pthread_create(&c[0].thread, NULL, close_it, &c[0]), 0);
	WAIT_FOR(atomic_load(&w->q->close_state) == WQ_CLOSING);
	c[1].deadline_ns = time_now_ns() + SOON_NS;
	assert_int_equal(pthread_create(&c[1].thread, NULL, close_it, &c[1]), 0);
	for (uint32_t i = 0; i < 2; i++) {
		pthread_join(c[i].thread, NULL);
		assert_int_equal(c[i].rc, -ETIMEDOUT);
		assert_int_equal(c[i].count, 7);
	}
	atomic_store(&w->release, true);
	finish(w, 7);
}

static void from_a_handler(struct world *w)
{
	const uint64_t item = CLOSES;
	uint64_t count = 99;

	begin(w, w->v, true);
	submit(w, 0, 2);
	assert_int_equal(wq_submit(w->q, &item), 0);
	WAIT_FOR(atomic_load(&w->rc_in_handler) == -EDEADLK);
	assert_int_equal(wq_submit(w->q, &item), -ESHUTDOWN);
	assert_int_equal(wq_close(w->q, time_now_ns() + LATE_NS, &count), 0);
	assert_int_equal(count, 0);
	finish(w, 2);
}

static const struct row {
	const char *when;
	void (*run)(struct world *w);
} rows[] = {
	{"before start, empty", before_start_empty},
	{"before start, with items", before_start_with_items},
	{"idle", idle},
	{"full", full},
	{"during a waiting submit", during_submit_wait},
	{"stuck handler, items behind it", stuck_handler},
	{"stuck handler, nothing behind it", stuck_handler_alone},
	{"twice", twice},
	{"from two threads", from_two_threads},
	{"from a handler", from_a_handler},
};

static void an_end_keeps_its_promise_in_every_state(void **state)
{
	for (uint32_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++)
		EACH_VARIANT(v)
		{
			struct world w = {.v = v};

			print_message("close %s: %s\n", rows[r].when, v->name);
			rows[r].run(&w);
			assert_int_not_equal(atomic_load(&w.rc_in_handler), -1);
		}
}

// --- waiting submitters ------------------------------------------------------------------------------------

static void a_waiting_submit_gets_the_room_that_comes(void **state)
{
	EACH_VARIANT(v)
	{
		struct world w;
		struct caller c = {.w = &w, .deadline_ns = time_now_ns() + LATE_NS};

		begin(&w, v, true);
		stick(&w);
		submit(&w, 0, CAPACITY);
		assert_int_equal(pthread_create(&c.thread, NULL, wait_and_submit, &c), 0);
		WAIT_FOR(atomic_load(&w.q->waiters) == 1);
		atomic_store(&w.release, true);
		pthread_join(c.thread, NULL);
		assert_int_equal(c.rc, 0);
		assert_int_equal(wq_close(w.q, time_now_ns() + LATE_NS, NULL), 0);
		assert_int_equal(atomic_load(&w.times[50]), 1);
		atomic_store(&w.times[50], 0);
		finish(&w, CAPACITY);
	}
}

static void a_waiting_submit_ends_by_its_deadline(void **state)
{
	EACH_VARIANT(v)
	{
		const uint64_t item = 9, until_ns = time_now_ns() + SOON_NS;
		struct world w;

		begin(&w, v, false);
		submit(&w, 0, CAPACITY);
		assert_int_equal(wq_submit_wait(w.q, &item, until_ns, NULL), -ETIMEDOUT);
		assert_true(time_now_ns() >= until_ns);
		assert_int_equal(wq_close(w.q, 0, NULL), -ETIMEDOUT);
		finish(&w, CAPACITY);
	}
}

static void a_waiting_submit_can_be_canceled(void **state)
{
	EACH_VARIANT(v)
	{
		struct world w;
		_Atomic uint32_t cancel = 0;
		struct caller c = {
			.w = &w, .deadline_ns = time_now_ns() + LATE_NS, .cancel = &cancel};

		begin(&w, v, false);
		submit(&w, 0, CAPACITY);
		assert_int_equal(pthread_create(&c.thread, NULL, wait_and_submit, &c), 0);
		WAIT_FOR(atomic_load(&w.q->waiters) == 1);
		wq_cancel(w.q, &cancel);
		pthread_join(c.thread, NULL);
		assert_int_equal(c.rc, -ECANCELED);
		assert_int_equal(wq_close(w.q, 0, NULL), -ETIMEDOUT);
		finish(&w, CAPACITY);
	}
}

static int submit_to_itself(void *ctx, const void *items, uint32_t n)
{
	struct world *w = ctx;
	const uint64_t item = 1;

	while (wq_submit(w->q, &item) == 0)
		;
	atomic_store(&w->rc_in_handler, wq_submit_wait(w->q, &item, time_now_ns() + LATE_NS, NULL));
	return 0;
}

static void a_handler_does_not_wait_for_its_own_queue(void **state)
{
	struct world w = {.v = &variants[0]};
	struct wq_params params = variant_params(w.v, 2, submit_to_itself, &w);
	const uint64_t item = 1;

	assert_int_equal(wq_create(&params, &w.q), 0);
	assert_int_equal(wq_submit(w.q, &item), 0);
	assert_int_equal(wq_poll(w.q, 0), 1);
	assert_int_equal(atomic_load(&w.rc_in_handler), -EDEADLK);
	assert_int_equal(wq_close(w.q, 0, NULL), -ETIMEDOUT);
	assert_int_equal(wq_destroy(w.q), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_end_keeps_its_promise_in_every_state),
		cmocka_unit_test(a_waiting_submit_gets_the_room_that_comes),
		cmocka_unit_test(a_waiting_submit_ends_by_its_deadline),
		cmocka_unit_test(a_waiting_submit_can_be_canceled),
		cmocka_unit_test(a_handler_does_not_wait_for_its_own_queue),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
