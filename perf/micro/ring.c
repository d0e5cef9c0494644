/* SPDX-License-Identifier: BSD-3-Clause */
// The one-to-one ring of lib/wq against DPDK's SP/SC ring: a 16-byte item in and out on one core, in bursts
// of 1, 8 and 32; and a stream from one core to another.
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rte_ring.h>

#include "bench.h"
#include "wq_spsc.h"

#define ITEMS 1024u
#define TIMES (1u << 20)  // items of a round on one core
#define STREAM (1u << 17)  // from core to core
#define BURST_MAX 32u

struct item {
	void *datagram;
	uint64_t word;
};

static struct wq_spsc ours;
static struct rte_ring *theirs;
static volatile uint64_t sink;

static void must(bool holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "ring: %s failed\n", what);
	exit(1);
}

static double push_pop(uint32_t burst)
{
	struct item in[BURST_MAX] = {{.datagram = &ours}}, out[BURST_MAX];
	const uint64_t start = bench_ns();
	uint64_t sum = 0;

	for (uint32_t t = 0; t < TIMES; t += burst) {
		for (uint32_t i = 0; i < burst; i++)
			in[i].word = t + i;
		if (burst == 1) {
			must(wq_spsc_push(&ours, in), "push");
			out[0] = *(const struct item *)wq_spsc_peek(&ours);
			wq_spsc_drop(&ours);
		} else {
			must(wq_spsc_push_burst(&ours, in, burst) == burst, "push");
			must(wq_spsc_pop_burst(&ours, out, burst) == burst, "pop");
		}
		for (uint32_t i = 0; i < burst; i++)
			sum += out[i].word;
	}
	sink = sum;
	return (double)(bench_ns() - start) / TIMES;
}

static double rte_push_pop(uint32_t burst)
{
	struct item in[BURST_MAX] = {{.datagram = &ours}}, out[BURST_MAX];
	const uint64_t start = bench_ns();
	uint64_t sum = 0;

	for (uint32_t t = 0; t < TIMES; t += burst) {
		for (uint32_t i = 0; i < burst; i++)
			in[i].word = t + i;
		must(rte_ring_sp_enqueue_burst_elem(theirs, in, sizeof(in[0]), burst, NULL) ==
				burst,
			"enqueue");
		must(rte_ring_sc_dequeue_burst_elem(theirs, out, sizeof(out[0]), burst, NULL) ==
				burst,
			"dequeue");
		for (uint32_t i = 0; i < burst; i++)
			sum += out[i].word;
	}
	sink = sum;
	return (double)(bench_ns() - start) / TIMES;
}

// --- from core to core --------------------------------------------------------------------------------

static void *consume(void *arg)
{
	uint64_t sum = 0;

	(void)arg;
	for (uint32_t got = 0; got < STREAM;) {
		const struct item *at = wq_spsc_peek(&ours);

		if (at == NULL) {
			__builtin_ia32_pause();
			continue;
		}
		sum += at->word;
		wq_spsc_drop(&ours);
		got++;
	}
	sink = sum;
	return NULL;
}

static void *rte_consume(void *arg)
{
	struct item out;
	uint64_t sum = 0;

	(void)arg;
	for (uint32_t got = 0; got < STREAM;) {
		if (rte_ring_sc_dequeue_burst_elem(theirs, &out, sizeof(out), 1, NULL) == 0) {
			__builtin_ia32_pause();
			continue;
		}
		sum += out.word;
		got++;
	}
	sink = sum;
	return NULL;
}

static double wall_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static double stream(void)
{
	struct item in = {.datagram = &ours};
	const double start = wall_ns();
	pthread_t thread;

	must(pthread_create(&thread, NULL, consume, NULL) == 0, "a thread");
	for (uint32_t t = 0; t < STREAM; t++) {
		in.word = t;
		while (!wq_spsc_push(&ours, &in))
			__builtin_ia32_pause();
	}
	pthread_join(thread, NULL);
	return (wall_ns() - start) / STREAM;
}

static double rte_stream(void)
{
	struct item in = {.datagram = &ours};
	const double start = wall_ns();
	pthread_t thread;

	must(pthread_create(&thread, NULL, rte_consume, NULL) == 0, "a thread");
	for (uint32_t t = 0; t < STREAM; t++) {
		in.word = t;
		while (rte_ring_sp_enqueue_burst_elem(theirs, &in, sizeof(in), 1, NULL) == 0)
			__builtin_ia32_pause();
	}
	pthread_join(thread, NULL);
	return (wall_ns() - start) / STREAM;
}

// --- report -------------------------------------------------------------------------------------------

static void create(void)
{
	const ssize_t bytes = rte_ring_get_memsize_elem(sizeof(struct item), ITEMS);

	must(wq_spsc_init(&ours, ITEMS, sizeof(struct item)) == 0, "a ring");
	must(bytes > 0, "the size of an rte_ring");
	theirs = aligned_alloc(64, ((size_t)bytes + 63) / 64 * 64);
	must(theirs != NULL, "memory");
	must(rte_ring_init(theirs, "bench", ITEMS, RING_F_SP_ENQ | RING_F_SC_DEQ) == 0,
		"an rte_ring");
}

int main(void)
{
	static const uint32_t bursts[] = {1, 8, 32};
	double a[BENCH_ROUNDS], b[BENCH_ROUNDS];
	char what[64];

	create();
	bench_head("an item of 16 bytes through a one-to-one ring");
	for (uint32_t k = 0; k < 3; k++) {
		for (uint32_t r = 0; r < BENCH_ROUNDS; r++) {
			a[r] = push_pop(bursts[k]);
			b[r] = rte_push_pop(bursts[k]);
		}
		snprintf(what, sizeof(what), "one core, bursts of %u", bursts[k]);
		bench_row(what, a, "rte_ring SP/SC", b, BENCH_NONE);
	}
	for (uint32_t r = 0; r < BENCH_ROUNDS; r++) {
		a[r] = stream();
		b[r] = rte_stream();
	}
	bench_row("core to core, single items, wall time", a, "rte_ring SP/SC", b, BENCH_NONE);
	wq_spsc_fini(&ours);
	free(theirs);
	return 0;
}
