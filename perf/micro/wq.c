/* SPDX-License-Identifier: BSD-3-Clause */
// The worker queue of lib/wq beside rte_ring, a queue of a mutex and a condition, and a pipe: admission and
// drain on one core, from several threads at once, a refusal of a full queue, and the time from a submit to
// the handler. An operation of wq includes the call of its handler, which the others do not have.
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <dirent.h>
#include <unistd.h>

#include <rte_ring.h>

#include "bench.h"
#include "pool.h"
#include "wq.h"

#define ITEMS 1024u
#define TIMES (1u << 19)  // items of a round on one core
#define SHARED_NS 40000000u  // of a round of several threads
#define ADMIT_ITEMS (1u << 16)  // admission alone, from two threads
#define LATENCY_TIMES 400u
#define THREADS_MAX 8u
#define ALWAYS static inline __attribute__((always_inline))

struct item {
	uint64_t word, sent_ns;
};

static _Atomic uint64_t allocations;
static volatile uint64_t sink;

// Counts what is allocated while something is measured.
extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t n, size_t bytes);
void *malloc(size_t bytes)
{
	atomic_fetch_add_explicit(&allocations, 1, memory_order_relaxed);
	return __libc_malloc(bytes);
}
void *calloc(size_t n, size_t bytes)
{
	atomic_fetch_add_explicit(&allocations, 1, memory_order_relaxed);
	return __libc_calloc(n, bytes);
}

static void must(bool holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "wq: %s failed\n", what);
	exit(1);
}

static uint64_t wall_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

// --- the queues ---------------------------------------------------------------------------------------

enum { MANY_MANY, MANY_ONE, ONE_ONE, OURS };
enum { MPMC, HTS, SPSC, THEIRS };
static struct wq *ours[OURS];
static struct rte_ring *theirs[THEIRS], *big_ring;
static struct wq *big_wq;
static int pipe_fd[2];

static struct locked {
	pthread_mutex_t lock;
	pthread_cond_t some;
	uint32_t head, tail;
	struct item item[ITEMS];
} locked = {.lock = PTHREAD_MUTEX_INITIALIZER, .some = PTHREAD_COND_INITIALIZER};

static int take(void *ctx, const void *items, uint32_t n)
{
	const struct item *item = items;
	uint64_t sum = 0;

	(void)ctx;
	for (uint32_t i = 0; i < n; i++)
		sum += item[i].word;
	sink = sum;
	return 0;
}

ALWAYS int wq_in(void *q, const struct item *item, uint32_t n)
{
	return n == 1 ? wq_submit(q, item) == 0 : wq_submit_burst(q, item, n);
}

ALWAYS int wq_out(void *q, uint32_t n, uint32_t thread)
{
	(void)n;
	return (int)wq_poll(q, thread);
}

ALWAYS int ring_in(void *q, const struct item *item, uint32_t n)
{
	return (int)rte_ring_enqueue_burst_elem(q, item, sizeof(*item), n, NULL);
}

ALWAYS int ring_out(void *q, uint32_t n, uint32_t thread)
{
	struct item item[32];
	const int got = (int)rte_ring_dequeue_burst_elem(q, item, sizeof(*item), n, NULL);

	(void)thread;
	for (int i = 0; i < got; i++)
		sink = item[i].word;
	return got;
}

ALWAYS int locked_in(void *q, const struct item *item, uint32_t n)
{
	struct locked *l = q;
	int rc = 0;

	(void)n;
	pthread_mutex_lock(&l->lock);
	if (l->tail - l->head < ITEMS) {
		l->item[l->tail++ % ITEMS] = *item;
		rc = 1;
		pthread_cond_signal(&l->some);
	}
	pthread_mutex_unlock(&l->lock);
	return rc;
}

ALWAYS int locked_out(void *q, uint32_t n, uint32_t thread)
{
	struct locked *l = q;
	int rc = 0;

	(void)n;
	(void)thread;
	pthread_mutex_lock(&l->lock);
	if (l->tail != l->head) {
		sink = l->item[l->head++ % ITEMS].word;
		rc = 1;
	}
	pthread_mutex_unlock(&l->lock);
	return rc;
}

ALWAYS int pipe_in(void *q, const struct item *item, uint32_t n)
{
	(void)q;
	(void)n;
	return write(pipe_fd[1], item, sizeof(*item)) == sizeof(*item);
}

ALWAYS int pipe_out(void *q, uint32_t n, uint32_t thread)
{
	struct item item;

	(void)q;
	(void)n;
	(void)thread;
	return read(pipe_fd[0], &item, sizeof(item)) == sizeof(item);
}

typedef int in_fn(void *q, const struct item *item, uint32_t n);
typedef int out_fn(void *q, uint32_t n, uint32_t thread);

static struct wq *make_wq(bool one_submitter, uint32_t workers, uint32_t batch, uint32_t capacity)
{
	const struct wq_params params = {
		.label = WQ_L_TEST,
		.capacity = capacity,
		.item_bytes = sizeof(struct item),
		.workers = workers,
		.batch = batch,
		.one_submitter = one_submitter,
		.run = take,
		.ops = pool_wq_ops(),
	};
	struct wq *q;

	must(wq_create(&params, &q) == 0, "a queue");
	return q;
}

static struct rte_ring *make_ring(uint32_t items, unsigned flags)
{
	const ssize_t bytes = rte_ring_get_memsize_elem(sizeof(struct item), items);
	struct rte_ring *ring = aligned_alloc(64, ((size_t)bytes + 63) / 64 * 64);

	must(bytes > 0 && ring != NULL && rte_ring_init(ring, "bench", items, flags) == 0,
		"an rte_ring");
	return ring;
}

// --- one core -------------------------------------------------------------------------------------------

ALWAYS double pairs(void *q, in_fn *in, out_fn *out, uint32_t burst, uint32_t times)
{
	struct item item[32] = {{0}};
	const uint64_t start = bench_ns();

	for (uint32_t t = 0; t < times; t += burst) {
		item[0].word = t;
		must(in(q, item, burst) == (int)burst, "admission");
		must(out(q, burst, 0) == (int)burst, "drain");
	}
	return (double)(bench_ns() - start) / times;
}

// Admission alone: what is taken out between is not timed.
ALWAYS double admission(void *q, in_fn *in, out_fn *out, uint32_t burst)
{
	struct item item[32] = {{0}};
	uint64_t ns = 0;

	for (uint32_t t = 0; t < TIMES; t += ITEMS / 2) {
		const uint64_t start = bench_ns();

		for (uint32_t i = 0; i < ITEMS / 2; i += burst)
			must(in(q, item, burst) == (int)burst, "admission");
		ns += bench_ns() - start;
		while (out(q, 32, 0) > 0)
			;
	}
	return (double)ns / TIMES;
}

ALWAYS double refusal(void *q, in_fn *in, out_fn *out)
{
	struct item item = {0};
	uint64_t start, ns;

	while (in(q, &item, 1) == 1)
		;
	start = bench_ns();
	for (uint32_t t = 0; t < TIMES; t++)
		must(in(q, &item, 1) != 1, "a refusal");
	ns = bench_ns() - start;
	while (out(q, 1, 0) > 0)
		;
	return (double)ns / TIMES;
}

static void constant(double v[BENCH_ROUNDS], double ns)
{
	for (uint32_t r = 0; r < BENCH_ROUNDS; r++)
		v[r] = ns;
}

// Against a number of nanoseconds: the best round, for what others do to the machine only adds.
static void row_ns(const char *what, const double v[BENCH_ROUNDS], const char *most, double ns)
{
	double best[BENCH_ROUNDS], goal[BENCH_ROUNDS];

	constant(goal, ns);
	constant(best, v[0]);
	for (uint32_t r = 1; r < BENCH_ROUNDS; r++)
		if (v[r] < best[0])
			constant(best, v[r]);
	bench_row(what, best, most, goal, BENCH_MOST(1));
}

static void one_core(void)
{
	double many[BENCH_ROUNDS], one[BENCH_ROUNDS], both[BENCH_ROUNDS], mp[BENCH_ROUNDS],
		hts[BENCH_ROUNDS], sp[BENCH_ROUNDS], lock[BENCH_ROUNDS], fd[BENCH_ROUNDS];

	for (uint32_t r = 0; r < BENCH_ROUNDS; r++) {
		many[r] = pairs(ours[MANY_MANY], wq_in, wq_out, 1, TIMES);
		one[r] = pairs(ours[MANY_ONE], wq_in, wq_out, 1, TIMES);
		both[r] = pairs(ours[ONE_ONE], wq_in, wq_out, 1, TIMES);
		mp[r] = pairs(theirs[MPMC], ring_in, ring_out, 1, TIMES);
		hts[r] = pairs(theirs[HTS], ring_in, ring_out, 1, TIMES);
		sp[r] = pairs(theirs[SPSC], ring_in, ring_out, 1, TIMES);
		lock[r] = pairs(&locked, locked_in, locked_out, 1, TIMES);
		fd[r] = pairs(NULL, pipe_in, pipe_out, 1, TIMES / 16);
	}
	bench_head("admission and drain of one 16-byte item, one core");
	bench_row("wq, many submitters, many workers", many, "rte_ring MP/MC", mp, BENCH_MOST(2));
	bench_row("wq, many submitters, one worker", one, "rte_ring MP/MC", mp, BENCH_MOST(2));
	bench_row("wq, one submitter, one worker", both, "rte_ring MP/MC", mp, BENCH_MOST(2));
	bench_row("wq, one submitter, one worker", both, "rte_ring SP/SC", sp, BENCH_NONE);
	bench_row("rte_ring HTS", hts, "rte_ring MP/MC", mp, BENCH_NONE);
	bench_row("mutex and condition", lock, "rte_ring MP/MC", mp, BENCH_NONE);
	bench_row("pipe", fd, "rte_ring MP/MC", mp, BENCH_NONE);
	// The published figure is of another machine and language: context, no goal.
	constant(fd, 167);
	bench_row_as("wq, many and many: times below 167 ns", many, "published submit", fd,
		BENCH_NONE, true);
}

static void bursts_and_refusals(void)
{
	double one[BENCH_ROUNDS], many[BENCH_ROUNDS], whole[BENCH_ROUNDS], full[BENCH_ROUNDS],
		mp[BENCH_ROUNDS], ring_full[BENCH_ROUNDS];
	struct wq *q = make_wq(false, 1, 32, ITEMS);
	uint64_t before;

	for (uint32_t r = 0; r < BENCH_ROUNDS; r++) {
		before = atomic_load(&allocations);
		one[r] = admission(ours[MANY_MANY], wq_in, wq_out, 1);
		many[r] = admission(q, wq_in, wq_out, 32);
		whole[r] = pairs(q, wq_in, wq_out, 32, TIMES);
		full[r] = refusal(ours[MANY_MANY], wq_in, wq_out);
		must(atomic_load(&allocations) == before, "no allocation");
		mp[r] = pairs(theirs[MPMC], ring_in, ring_out, 32, TIMES);
		ring_full[r] = refusal(theirs[MPMC], ring_in, ring_out);
	}
	bench_head("bursts of 32 and refusals, one core, an item; no allocation in any of them");
	bench_row("wq, admission alone, single items", one, NULL, NULL, BENCH_NONE);
	row_ns("wq, admission alone, bursts of 32, best", many, "3 ns", 3);
	bench_row("wq, bursts of 32 in and out", whole, "rte_ring MP/MC", mp, BENCH_NONE);
	row_ns("wq, refused: full, counted, best", full, "10 ns", 10);
	bench_row(
		"wq, refused: full, counted", full, "rte_ring, not counted", ring_full, BENCH_NONE);
	must(wq_destroy(q) == 0, "the end of a queue");
}

// --- several threads ------------------------------------------------------------------------------------

struct runner {
	pthread_t thread;
	uint32_t index;
	uint64_t pairs;
	uint32_t what;
};
static _Atomic uint32_t go, ready;
static _Atomic bool stop;
enum { RUN_WQ, RUN_MPMC, RUN_HTS, RUN_LOCKED, RUNS };

ALWAYS uint64_t run_pairs(void *q, in_fn *in, out_fn *out, uint32_t index)
{
	struct item item = {0};
	uint64_t n = 0;

	while (!atomic_load_explicit(&stop, memory_order_relaxed))
		if (in(q, &item, 1) == 1) {
			while (out(q, 1, index) == 0 &&
				!atomic_load_explicit(&stop, memory_order_relaxed))
				__builtin_ia32_pause();
			n++;
		}
	return n;
}

static void *run_one(void *arg)
{
	struct runner *r = arg;

	atomic_fetch_add(&ready, 1);
	while (atomic_load(&go) == 0)
		sched_yield();
	switch (r->what) {
	case RUN_WQ:
		r->pairs = run_pairs(ours[MANY_MANY], wq_in, wq_out, r->index);
		break;
	case RUN_MPMC:
		r->pairs = run_pairs(theirs[MPMC], ring_in, ring_out, r->index);
		break;
	case RUN_HTS:
		r->pairs = run_pairs(theirs[HTS], ring_in, ring_out, r->index);
		break;
	default:
		r->pairs = run_pairs(&locked, locked_in, locked_out, r->index);
	}
	return NULL;
}

static void empty_all(void)
{
	while (wq_poll(ours[MANY_MANY], 0) != 0)
		;
	while (ring_out(theirs[MPMC], 1, 0) > 0 || ring_out(theirs[HTS], 1, 0) > 0 ||
		locked_out(&locked, 1, 0) > 0)
		;
}

// Wall time of a pair of operations, all threads together.
static double shared(uint32_t what, uint32_t threads)
{
	const struct timespec t = {.tv_nsec = SHARED_NS};
	struct runner r[THREADS_MAX];
	uint64_t total = 0, start;

	atomic_store(&go, 0);
	atomic_store(&ready, 0);
	atomic_store(&stop, false);
	for (uint32_t i = 0; i < threads; i++) {
		r[i] = (struct runner){.index = i, .what = what};
		must(pthread_create(&r[i].thread, NULL, run_one, &r[i]) == 0, "a thread");
	}
	while (atomic_load(&ready) < threads)
		sched_yield();
	start = wall_ns();
	atomic_store(&go, 1);
	nanosleep(&t, NULL);
	atomic_store(&stop, true);
	for (uint32_t i = 0; i < threads; i++)
		pthread_join(r[i].thread, NULL);
	start = wall_ns() - start;
	for (uint32_t i = 0; i < threads; i++)
		total += r[i].pairs;
	empty_all();
	return (double)start / (double)(total + 1);
}

// Two threads admit at once; nobody takes.
static void *admit(void *arg)
{
	struct runner *r = arg;
	struct item item = {0};

	atomic_fetch_add(&ready, 1);
	while (atomic_load(&go) == 0)
		__builtin_ia32_pause();
	for (uint32_t i = 0; i < ADMIT_ITEMS / 2; i++) {
		const int rc =
			r->what == RUN_WQ ? wq_in(big_wq, &item, 1) : ring_in(big_ring, &item, 1);

		r->pairs += rc == 1;
	}
	return NULL;
}

static double admit_both(uint32_t what)
{
	struct runner r[2] = {{.what = what}, {.what = what}};
	uint64_t start;

	atomic_store(&go, 0);
	atomic_store(&ready, 0);
	for (uint32_t i = 0; i < 2; i++)
		must(pthread_create(&r[i].thread, NULL, admit, &r[i]) == 0, "a thread");
	while (atomic_load(&ready) < 2)
		sched_yield();
	start = wall_ns();
	atomic_store(&go, 1);
	pthread_join(r[0].thread, NULL);
	pthread_join(r[1].thread, NULL);
	start = wall_ns() - start;
	while (wq_poll(big_wq, 0) != 0 || ring_out(big_ring, 32, 0) > 0)
		;
	return (double)start / ADMIT_ITEMS;
}

static void several_threads(void)
{
	double v[RUNS][BENCH_ROUNDS];
	char what[64];

	bench_head("threads that each put one in and take one out, wall time of a pair");
	for (uint32_t threads = 1; threads <= THREADS_MAX; threads *= 2) {
		for (uint32_t r = 0; r < BENCH_ROUNDS; r++)
			for (uint32_t k = 0; k < RUNS; k++)
				v[k][r] = shared(k, threads);
		snprintf(what, sizeof(what), "wq, %u threads on %ld cores", threads,
			sysconf(_SC_NPROCESSORS_ONLN));
		// More threads than cores: the default ring collapses when a thread is preempted in it.
		bench_row(what, v[RUN_WQ], "rte_ring MP/MC", v[RUN_MPMC],
			threads == 2 ? BENCH_MOST(1.25) : BENCH_NONE);
		bench_row(what, v[RUN_WQ], "rte_ring HTS", v[RUN_HTS], BENCH_NONE);
		bench_row(what, v[RUN_WQ], "mutex and condition", v[RUN_LOCKED], BENCH_NONE);
	}
	for (uint32_t r = 0; r < BENCH_ROUNDS; r++) {
		v[0][r] = admit_both(RUN_WQ);
		v[1][r] = admit_both(RUN_MPMC);
	}
	bench_row("wq, admission alone from 2 threads", v[0], "rte_ring MP/MC", v[1], BENCH_NONE);
}

// --- from submit to handler ------------------------------------------------------------------------------

static _Atomic uint64_t ran_after_ns, ran;

static int stamp(void *ctx, const void *items, uint32_t n)
{
	const struct item *item = items;

	(void)ctx;
	(void)n;
	atomic_store(&ran_after_ns, wall_ns() - item->sent_ns);
	atomic_fetch_add(&ran, 1);
	return 0;
}

static void *locked_main(void *arg)
{
	struct item item;

	(void)arg;
	for (;;) {
		pthread_mutex_lock(&locked.lock);
		while (locked.head == locked.tail)
			pthread_cond_wait(&locked.some, &locked.lock);
		item = locked.item[locked.head++ % ITEMS];
		pthread_mutex_unlock(&locked.lock);
		if (item.sent_ns == 0)
			return NULL;
		stamp(NULL, &item, 1);
	}
}

static void *pipe_main(void *arg)
{
	struct item item;

	(void)arg;
	while (read(pipe_fd[0], &item, sizeof(item)) == sizeof(item) && item.sent_ns != 0)
		stamp(NULL, &item, 1);
	return NULL;
}

// Median of the times to an idle, sleeping worker.
static double latency(void *q, in_fn *in)
{
	const struct timespec rest = {.tv_nsec = 50000};
	static double v[LATENCY_TIMES];

	for (uint32_t i = 0; i < LATENCY_TIMES; i++) {
		struct item item = {.word = i};
		const uint64_t before = atomic_load(&ran);

		nanosleep(&rest, NULL);
		item.sent_ns = wall_ns();
		must(in(q, &item, 1) == 1, "admission");
		while (atomic_load(&ran) == before)
			__builtin_ia32_pause();
		v[i] = (double)atomic_load(&ran_after_ns);
	}
	qsort(v, LATENCY_TIMES, sizeof(v[0]), bench_by_value);
	return v[LATENCY_TIMES / 2];
}

static uint32_t threads_now(void)
{
	DIR *dir = opendir("/proc/self/task");
	uint32_t n = 0;

	must(dir != NULL, "/proc/self/task");
	while (readdir(dir) != NULL)
		n++;
	closedir(dir);
	return n;
}

static double pool_latency(void)
{
	struct wq_params params = {
		.label = WQ_L_TEST,
		.capacity = ITEMS,
		.item_bytes = sizeof(struct item),
		.workers = 2,
		.batch = 1,
		.run = stamp,
		.ops = pool_wq_ops(),
	};
	struct pool *pool;
	struct wq *q;
	double v;

	must(wq_create(&params, &q) == 0 && pool_create(q, "bench", &pool) == 0, "a pool");
	v = latency(q, wq_in);
	must(wq_close(q, UINT64_MAX, NULL) == 0 && pool_join(pool, UINT64_MAX) == 0 &&
			wq_destroy(q) == 0,
		"the end of a pool");
	return v;
}

static double thread_latency(void *q, in_fn *in, void *(*main_fn)(void *))
{
	const struct item last = {.sent_ns = 0};
	pthread_t thread;
	double v;

	must(pthread_create(&thread, NULL, main_fn, NULL) == 0, "a thread");
	v = latency(q, in);
	must(in(q, &last, 1) == 1, "the end of a thread");
	pthread_join(thread, NULL);
	return v;
}

static void to_the_handler(void)
{
	double a[BENCH_ROUNDS], b[BENCH_ROUNDS], c[BENCH_ROUNDS];
	const uint32_t threads = threads_now();

	for (uint32_t r = 0; r < BENCH_ROUNDS; r++) {
		a[r] = pool_latency();
		b[r] = thread_latency(&locked, locked_in, locked_main);
		c[r] = thread_latency(NULL, pipe_in, pipe_main);
	}
	must(threads_now() == threads, "no thread left over");
	bench_head("from a submit to the handler in a sleeping thread, median; no thread is left "
		   "over");
	bench_row("wq and its pool", a, "mutex and condition", b, BENCH_NONE);
	bench_row("wq and its pool", a, "pipe", c, BENCH_NONE);
}

static void *park(void *arg)
{
	pause();
	return arg;
}

int main(void)
{
	pthread_t parked;

	// The C library leaves out the locked instructions of a mutex while a process has one thread.
	must(pthread_create(&parked, NULL, park, NULL) == 0, "a thread");
	ours[MANY_MANY] = make_wq(false, THREADS_MAX, 1, ITEMS);
	ours[MANY_ONE] = make_wq(false, 1, 1, ITEMS);
	ours[ONE_ONE] = make_wq(true, 1, 1, ITEMS);
	theirs[MPMC] = make_ring(ITEMS, 0);
	theirs[HTS] = make_ring(ITEMS, RING_F_MP_HTS_ENQ | RING_F_MC_HTS_DEQ);
	theirs[SPSC] = make_ring(ITEMS, RING_F_SP_ENQ | RING_F_SC_DEQ);
	big_wq = make_wq(false, 2, 32, ADMIT_ITEMS * 2);
	big_ring = make_ring(ADMIT_ITEMS * 2, 0);
	must(pipe(pipe_fd) == 0, "a pipe");
	one_core();
	bursts_and_refusals();
	several_threads();
	to_the_handler();
	return 0;
}
