/* SPDX-License-Identifier: BSD-3-Clause */
// Random operations on real threads, whatever the variant, and what must hold afterwards: nothing lost,
// nothing done twice, each submitter's items taken in its order, never deeper than the capacity.
//
// Usage: wq_property [--ops N] [--seed N]
// A round is one queue with random parameters, 1 to 64 submitters, 1 to 8 workers; it is closed after the
// submitters are done or at any moment before, with a deadline or without. An operation is a submit, burst,
// waiting submit, cancel or close. Every eighth round is a lane (wq_spsc.h). Prints what it did; exit 1 with the round's parameters on a violation.
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base_time.h"
#include "pool.h"
#include "wq.h"
#include "wq_spsc.h"

#define SUBMITTERS_MAX 64u
#define WORKERS_MAX 8u
#define ITEMS_MAX 65536u  // of one submitter in a round

struct item {
	uint32_t submitter, number;
	uint64_t check;
};

struct submitter {
	struct round *round;
	pthread_t thread;
	uint64_t random;
	uint32_t items;  // what it will try
	uint64_t ops;
	_Atomic uint32_t cancel;
	_Atomic bool waiting;
	uint8_t *admitted;  // own
	_Atomic uint8_t *done;  // run + abandoned
};

struct round {
	uint64_t seed, number;
	struct wq_ops ops[2];  // with and without the barrier in every thread
	struct wq_params params;
	struct wq *q;
	uint32_t submitters;
	bool stall;  // handlers give up their core now and then,
	bool slow;  // or sleep
	int close_rc;
	uint64_t close_count, abandoned, cancels;
	_Atomic uint64_t admitted, started;
	_Atomic bool over;
	struct submitter s[SUBMITTERS_MAX];
};

// What a worker saw last of each submitter; worker threads are new in each round.
static _Thread_local uint32_t last_seen[SUBMITTERS_MAX];
static _Thread_local uint64_t worker_random;

static uint64_t random_next(uint64_t *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return *state * UINT64_C(2685821657736338717);
}

static uint32_t below(uint64_t *state, uint32_t n)
{
	return (uint32_t)(random_next(state) >> 33) % n;
}

static void nap_us(uint32_t us)
{
	const struct timespec t = {.tv_nsec = (long)us * 1000};

	nanosleep(&t, NULL);
}

static void fail(const struct round *r, const char *what, uint64_t a, uint64_t b)
{
	printf("FAILED %s (%llu, %llu): seed %llu round %llu, capacity %u workers %u batch %u "
	       "item %u submitters %u%s%s, close %d abandoned %llu\n",
		what, (unsigned long long)a, (unsigned long long)b, (unsigned long long)r->seed,
		(unsigned long long)r->number, r->params.capacity, r->params.workers,
		r->params.batch, r->params.item_bytes, r->submitters,
		r->params.one_submitter ? " one" : "",
		r->params.ops->fence_all == NULL ? " fences" : "", r->close_rc,
		(unsigned long long)r->close_count);
	fflush(stdout);
	_exit(1);
}

static void count_done(struct round *r, const struct item *item)
{
	if (item->submitter >= r->submitters || item->number >= ITEMS_MAX ||
		item->check != (((uint64_t)item->submitter << 32) ^ ~(uint64_t)item->number))
		fail(r, "an item is damaged", item->submitter, item->number);
	atomic_fetch_add_explicit(
		&r->s[item->submitter].done[item->number], 1, memory_order_relaxed);
}

static int run(void *ctx, const void *items, uint32_t n)
{
	struct round *r = ctx;
	const uint8_t *p = items;

	atomic_fetch_add_explicit(&r->started, n, memory_order_relaxed);
	for (uint32_t i = 0; i < n; i++, p += r->params.item_bytes) {
		struct item item;

		memcpy(&item, p, sizeof(item));
		count_done(r, &item);
		if (item.number + 1 <= last_seen[item.submitter])
			fail(r, "out of order", item.submitter, item.number);
		last_seen[item.submitter] = item.number + 1;
	}
	worker_random += (uintptr_t)&last_seen + n;
	if (r->stall && below(&worker_random, 200) == 0)
		sched_yield();
	if (r->slow && below(&worker_random, 20) == 0)
		nap_us(100);
	return (int)(n & 1) * -EIO;
}

static void on_abandon(void *ctx, const void *p)
{
	struct round *r = ctx;
	struct item item;

	memcpy(&item, p, sizeof(item));
	count_done(r, &item);
	r->abandoned++;
	atomic_fetch_add_explicit(&r->started, 1, memory_order_relaxed);
}

static void mark(struct submitter *s, uint32_t from, uint32_t n)
{
	memset(s->admitted + from, 1, n);
	atomic_fetch_add_explicit(&s->round->admitted, n, memory_order_relaxed);
}

static void *submitter_main(void *arg)
{
	struct submitter *s = arg;
	struct round *r = s->round;
	const uint32_t bytes = r->params.item_bytes;
	uint8_t *items = calloc(16, bytes);
	int rc = 0;

	if (items == NULL)
		abort();
	for (uint32_t at = 0; at < s->items;) {
		uint32_t n = below(&s->random, 16) == 0 ? 1 + below(&s->random, 16) : 1;
		const uint32_t kind = below(&s->random, 8);

		n = n < s->items - at ? n : s->items - at;
		for (uint32_t i = 0; i < n; i++) {
			const struct item item = {.submitter = (uint32_t)(s - r->s),
				.number = at + i,
				.check = ((uint64_t)(s - r->s) << 32) ^ ~(uint64_t)(at + i)};

			memcpy(items + i * bytes, &item, sizeof(item));
		}
		s->ops++;
		if (n > 1) {
			rc = wq_submit_burst(r->q, items, n);
		} else if (kind == 0) {
			atomic_store(&s->waiting, true);
			rc = wq_submit_wait(r->q, items,
				time_now_ns() + below(&s->random, 200) * 1000, &s->cancel);
			atomic_store(&s->waiting, false);
			atomic_store(&s->cancel, 0);
			rc = rc == 0 ? 1 : rc;
		} else {
			rc = wq_submit(r->q, items);
			rc = rc == 0 ? 1 : rc;
		}
		if (rc > 0) {
			mark(s, at, (uint32_t)rc);
			at += (uint32_t)rc;
		} else if (rc == -ENOBUFS) {
			at++;  // refused for good
			if (below(&s->random, 4) == 0)
				sched_yield();
		} else {
			at++;
		}
	}
	free(items);
	return NULL;
}

// Looks at the depth, and cancels waits.
static void *watcher_main(void *arg)
{
	struct round *r = arg;
	uint64_t random = r->seed + r->number + 1, canceled = 0;

	while (!atomic_load_explicit(&r->over, memory_order_relaxed)) {
		const uint64_t in = atomic_load_explicit(&r->admitted, memory_order_acquire);
		const uint64_t out = atomic_load_explicit(&r->started, memory_order_acquire);
		const uint32_t depth = wq_depth(r->q);
		struct submitter *s = &r->s[below(&random, r->submitters)];

		if (depth > r->params.capacity)
			fail(r, "deeper than the capacity", depth, r->params.capacity);
		// by our own books, where what a worker has taken and not begun counts too
		if (in > out + r->params.capacity + (uint64_t)r->params.workers * r->params.batch)
			fail(r, "more admitted than fits", in, out);
		if (atomic_load(&s->waiting) && below(&random, 4) == 0) {
			wq_cancel(r->q, &s->cancel);
			canceled++;
		}
		nap_us(20);
	}
	r->cancels = canceled;
	return NULL;
}

static void choose(struct round *r, uint64_t *random, uint64_t ops_left)
{
	const bool one = below(random, 3) == 0;
	uint32_t each;

	r->submitters = one ? 1 : 1 + below(random, below(random, 4) == 0 ? SUBMITTERS_MAX : 6);
	r->stall = below(random, 2) == 0;
	r->slow = below(random, 3) == 0;
	r->params = (struct wq_params){
		.label = WQ_L_TEST,
		.capacity = 2u << below(random, 10),
		.item_bytes = (uint32_t)sizeof(struct item) + 4 * below(random, 10),
		.timed_every = 1u << below(random, 10),
		.workers = below(random, 3) == 0 ? 1 : 1 + below(random, WORKERS_MAX),
		.batch = 1 + below(random, 16),
		.one_submitter = one,
		.quiet_workers = below(random, 8) == 0,
		.run = run,
		.on_abandon = on_abandon,
		.ctx = r,
		.ops = &r->ops[below(random, 3) == 0],
	};
	each = (2000u << below(random, 8)) / r->submitters;
	if (r->slow)
		each = each / 16 + 1;
	each = each < ITEMS_MAX ? each : ITEMS_MAX;
	if (ops_left < (uint64_t)each * r->submitters)
		each = (uint32_t)(ops_left / r->submitters) + 1;
	for (uint32_t i = 0; i < r->submitters; i++) {
		struct submitter *s = &r->s[i];
		uint8_t *admitted = s->admitted;
		_Atomic uint8_t *done = s->done;

		*s = (struct submitter){
			.round = r, .items = each, .admitted = admitted, .done = done};
		s->random = random_next(random) | 1;
		memset(admitted, 0, each);
		memset((void *)done, 0, each);
	}
	r->admitted = r->started = 0;
	r->abandoned = r->close_count = 0;
	r->over = false;
}

static void check(const struct round *r)
{
	uint64_t done = 0, admitted = 0;
	struct wq_sample sample;

	for (uint32_t i = 0; i < r->submitters; i++)
		for (uint32_t k = 0; k < r->s[i].items; k++) {
			if (r->s[i].done[k] != r->s[i].admitted[k])
				fail(r,
					r->s[i].done[k] < r->s[i].admitted[k] ? "an item is lost"
					: r->s[i].admitted[k] ? "an item was done twice"
							      : "a refused item was done",
					i, k);
			done += r->s[i].done[k];
			admitted += r->s[i].admitted[k];
		}
	wq_stats(r->q, &sample);
	if (sample.admitted != admitted || sample.run + sample.abandoned != done ||
		sample.abandoned != r->abandoned || r->close_count != r->abandoned)
		fail(r, "the counters do not match", sample.admitted, admitted);
	if ((r->close_rc == 0) != (r->abandoned == 0) && r->close_rc != -ETIMEDOUT)
		fail(r, "the result does not match", r->abandoned, 0);
}

// Returns: operations done.
static uint64_t play(struct round *r, uint64_t *random)
{
	const uint32_t when = below(random, 3);  // 0: in the middle, else when submitters are done
	const uint64_t margin_ns = below(random, 2) == 0 ? UINT64_MAX / 4 : below(random, 1000000);
	uint64_t ops = 1;  // the close
	pthread_t watcher;
	struct pool *pool;

	if (wq_create(&r->params, &r->q) != 0 || pool_create(r->q, "property", &pool) != 0 ||
		pthread_create(&watcher, NULL, watcher_main, r) != 0)
		abort();
	for (uint32_t i = 0; i < r->submitters; i++)
		if (pthread_create(&r->s[i].thread, NULL, submitter_main, &r->s[i]) != 0)
			abort();
	if (when == 0) {
		nap_us(below(random, 5000));
	} else {
		for (uint32_t i = 0; i < r->submitters; i++)
			pthread_join(r->s[i].thread, NULL);
	}
	r->close_rc = wq_close(r->q, time_now_ns() + margin_ns, &r->close_count);
	for (uint32_t i = 0; i < r->submitters && when == 0; i++)
		pthread_join(r->s[i].thread, NULL);
	atomic_store(&r->over, true);
	pthread_join(watcher, NULL);
	if (pool_join(pool, UINT64_MAX) != 0)
		abort();
	for (uint32_t i = 0; i < r->submitters; i++)
		ops += r->s[i].ops;
	ops += r->cancels;
	check(r);
	if (wq_destroy(r->q) != 0)
		fail(r, "items are left in the queue", 0, 0);
	return ops;
}

// --- the lane ------------------------------------------------------------------------------------------------

struct lane_round {
	struct wq_spsc ring;
	struct round *round;
	uint64_t random[2];
	uint32_t items;
	_Atomic uint32_t sent;
	uint64_t ops;
};

static void *lane_producer(void *arg)
{
	struct lane_round *l = arg;
	uint64_t items[16];

	for (uint32_t at = 0; at < l->items;) {
		const uint32_t kind = below(&l->random[0], 3), left = l->items - at;
		uint32_t n = kind == 0 ? 1 + below(&l->random[0], 16) : 1;

		n = n < left ? n : left;
		for (uint32_t i = 0; i < n; i++)
			items[i] = ~(uint64_t)(at + i);
		if (kind == 0) {
			n = wq_spsc_push_burst(&l->ring, items, n);
		} else if (kind == 1) {
			n = wq_spsc_push(&l->ring, items);
		} else {
			uint64_t *slot = wq_spsc_reserve(&l->ring);

			n = slot != NULL;
			if (n == 1) {
				*slot = items[0];
				wq_spsc_commit(&l->ring);
			}
		}
		at += n;
		l->ops++;
		atomic_store_explicit(&l->sent, at, memory_order_release);
		if (n == 0)
			sched_yield();
	}
	return NULL;
}

static uint64_t play_lane(struct round *r, uint64_t *random)
{
	struct lane_round l = {.round = r, .items = 2000u << below(random, 6)};
	const uint32_t capacity = 2u << below(random, 10);
	uint64_t items[16];
	pthread_t producer;

	r->params.capacity = capacity;
	l.random[0] = random_next(random) | 1;
	l.random[1] = random_next(random) | 1;
	if (wq_spsc_init(&l.ring, capacity, sizeof(uint64_t)) != 0 ||
		pthread_create(&producer, NULL, lane_producer, &l) != 0)
		abort();
	for (uint32_t at = 0; at < l.items;) {
		uint32_t n = below(&l.random[1], 17);
		const uint32_t sent = atomic_load_explicit(&l.sent, memory_order_acquire);

		if (wq_spsc_depth(&l.ring) > capacity || (int32_t)(sent - at) > (int32_t)capacity)
			fail(r, "a lane deeper than its capacity", sent - at, capacity);
		if (n > 0) {
			n = wq_spsc_pop_burst(&l.ring, items, n);
		} else {
			const uint64_t *slot = wq_spsc_peek(&l.ring);

			n = slot != NULL;
			if (n == 1) {
				items[0] = *slot;
				wq_spsc_drop(&l.ring);
			}
		}
		for (uint32_t i = 0; i < n; i++, at++)
			if (items[i] != ~(uint64_t)at)
				fail(r, "a lane out of order", ~items[i], at);
		if (n == 0)
			sched_yield();
	}
	pthread_join(producer, NULL);
	if (wq_spsc_depth(&l.ring) != 0)
		fail(r, "items are left in a lane", wq_spsc_depth(&l.ring), 0);
	wq_spsc_fini(&l.ring);
	return l.ops;
}

int main(int argc, char **argv)
{
	static struct round r;
	uint64_t want = 10000000, ops = 0, abandoned = 0, timeouts = 0;

	r.seed = time_now_ns();
	r.ops[0] = r.ops[1] = *pool_wq_ops();
	r.ops[1].fence_all = NULL;
	for (int i = 1; i + 1 < argc; i += 2) {
		if (strcmp(argv[i], "--ops") == 0)
			want = strtoull(argv[i + 1], NULL, 10);
		else if (strcmp(argv[i], "--seed") == 0)
			r.seed = strtoull(argv[i + 1], NULL, 10);
	}
	for (uint32_t i = 0; i < SUBMITTERS_MAX; i++) {
		r.s[i].admitted = malloc(ITEMS_MAX);
		r.s[i].done = malloc(ITEMS_MAX);
		if (r.s[i].admitted == NULL || r.s[i].done == NULL)
			abort();
	}
	for (r.number = 0; ops < want; r.number++) {
		uint64_t random = (r.seed + 1) * UINT64_C(0x9e3779b97f4a7c15) ^ (r.number + 1)
											<< 20;

		choose(&r, &random, want - ops);
		if (r.number % 8 == 7) {
			ops += play_lane(&r, &random);
			continue;
		}
		ops += play(&r, &random);
		abandoned += r.abandoned;
		timeouts += r.close_rc == -ETIMEDOUT;
	}
	printf("wq_property: %llu operations in %llu queues, %llu ended by their deadline with "
	       "%llu "
	       "items abandoned; seed %llu\n",
		(unsigned long long)ops, (unsigned long long)r.number, (unsigned long long)timeouts,
		(unsigned long long)abandoned, (unsigned long long)r.seed);
	for (uint32_t i = 0; i < SUBMITTERS_MAX; i++) {
		free(r.s[i].admitted);
		free((void *)r.s[i].done);
	}
	return 0;
}
