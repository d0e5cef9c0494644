/* SPDX-License-Identifier: BSD-3-Clause */
// The hops of the product where work crosses threads, each in its own shape (size, burst, number of rings to
// look at), over the ring it uses and over those it could use. doc/queues.md holds the decisions; the rows with a
// goal keep them. One core, CPU time; what crosses cores is in micro_wq and micro_ring.
#include <stddef.h>
#include <string.h>

#include <rte_ring.h>

#include "bench.h"
#include "node_msg.h"
#include "wq.h"
#include "wq_spsc.h"

#define ITEMS 1024u
#define TIMES (1u << 18)  // items of a round
#define PEERS 15u  // other workers of the largest node
#define REQUEST_BYTES 1600u  // struct node_request at an MTU of 1500, rounded up
#define REQUEST_BODY 64u  // bytes of a usual one
#define FRAMES 32u

static struct wq_spsc lane[PEERS], requests, replies, frames;
static struct wq *one_handoff, *many_handoff, *many_requests, *one_replies, *one_frames;
static struct rte_ring *ring_handoff, *ring_frames, *ring_replies;
static volatile uint64_t sink;

static void must(bool holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "hops: %s failed\n", what);
	exit(1);
}

static int take(void *ctx, const void *items, uint32_t n)
{
	uint64_t word;

	(void)ctx;
	(void)n;
	memcpy(&word, items, sizeof(word));
	sink = word;
	return 0;
}

static int take_frames(void *ctx, const void *items, uint32_t n)
{
	const uint64_t *word = items;
	uint64_t sum = 0;

	(void)ctx;
	for (uint32_t i = 0; i < n; i++)
		sum += word[i];
	sink = sum;
	return 0;
}

static struct wq *make_wq(uint32_t bytes, bool one_submitter, uint32_t batch,
	int (*run)(void *ctx, const void *items, uint32_t n))
{
	// A worker's queues have no clock and no sleepers. The barrier in every thread is the closer's.
	const struct wq_params params = {
		.label = WQ_L_TEST,
		.capacity = ITEMS,
		.item_bytes = bytes,
		.workers = 1,
		.batch = batch,
		.one_submitter = one_submitter,
		.run = run,
	};
	struct wq *q;

	must(wq_create(&params, &q) == 0, "a queue");
	q->self_fence = false;
	return q;
}

static struct rte_ring *make_ring(uint32_t bytes)
{
	const ssize_t size = rte_ring_get_memsize_elem(bytes, ITEMS);
	struct rte_ring *ring = aligned_alloc(64, ((size_t)size + 63) / 64 * 64);

	must(size > 0 && ring != NULL &&
			rte_ring_init(ring, "hop", ITEMS, RING_F_SP_ENQ | RING_F_SC_DEQ) == 0,
		"an rte_ring");
	return ring;
}

// Runs `body` TIMES / per times and gives the time of one item.
#define MEASURE(per, body) \
	({ \
		const uint64_t start_ = bench_ns(); \
		for (uint32_t t = 0; t < TIMES; t += (per)) { \
			body; \
		} \
		(double)(bench_ns() - start_) / TIMES; \
	})

// --- worker to worker: a datagram on the wrong queue -----------------------------------------------------

static void lane_handoff(uint32_t t)
{
	const struct node_handoff in = {.dgram = (struct dgram *)(uintptr_t)(t + 1)};
	const struct node_handoff *at;

	must(wq_spsc_push(&lane[0], &in), "push");
	at = wq_spsc_peek(&lane[0]);
	sink = (uintptr_t)at->dgram;
	wq_spsc_drop(&lane[0]);
}

static void queue_handoff(struct wq *q, uint32_t t)
{
	const struct node_handoff in = {.dgram = (struct dgram *)(uintptr_t)(t + 1)};

	must(wq_submit(q, &in) == 0 && wq_poll(q, 0) == 1, "submit and poll");
}

static void ring_one(uint32_t t)
{
	struct node_handoff item = {.dgram = (struct dgram *)(uintptr_t)(t + 1)};

	must(rte_ring_sp_enqueue_burst_elem(ring_handoff, &item, sizeof(item), 1, NULL) == 1 &&
			rte_ring_sc_dequeue_burst_elem(
				ring_handoff, &item, sizeof(item), 1, NULL) == 1,
		"a ring");
	sink = (uintptr_t)item.dgram;
}

// A turn that finds nothing from any of its peers.
static void empty_lanes(void)
{
	for (uint32_t from = 0; from < PEERS; from++)
		must(wq_spsc_peek(&lane[from]) == NULL, "an empty lane");
}

static void handoff(void)
{
	double now[BENCH_ROUNDS], one[BENCH_ROUNDS], many[BENCH_ROUNDS], ring[BENCH_ROUNDS],
		lanes[BENCH_ROUNDS], queue[BENCH_ROUNDS];

	for (uint32_t r = 0; r < BENCH_ROUNDS; r++) {
		now[r] = MEASURE(1, lane_handoff(t));
		one[r] = MEASURE(1, queue_handoff(one_handoff, t));
		many[r] = MEASURE(1, queue_handoff(many_handoff, t));
		ring[r] = MEASURE(1, ring_one(t));
		lanes[r] = MEASURE(1, empty_lanes());
		queue[r] = MEASURE(1, must(wq_poll(many_handoff, 0) == 0, "an empty queue"));
	}
	bench_head("worker to worker, a datagram of 16 bytes, singly");
	bench_row("datagram: lane", now, "rte_ring SP/SC", ring, BENCH_MOST(1.25));
	bench_row("datagram: lane", now, "wq, one and one", one, BENCH_MOST(1));
	bench_row("datagram: lane", now, "wq, many into one", many, BENCH_MOST(1));
	bench_row("no datagram: a look at 15 lanes", lanes, "wq, many into one", queue, BENCH_NONE);
}

// --- worker to control: a request of any length up to the MTU ---------------------------------------------

static void lane_request(uint32_t t)
{
	struct node_request *in = wq_spsc_reserve(&requests);
	const struct node_request *at;

	must(in != NULL, "reserve");
	*in = (struct node_request){.kind = NODE_REQ_DATAGRAM, .bytes = REQUEST_BODY, .use = t};
	memset(in->body, (int)t, REQUEST_BODY);
	wq_spsc_commit(&requests);
	at = wq_spsc_peek(&requests);
	sink = at->use + at->body[REQUEST_BODY - 1];
	wq_spsc_drop(&requests);
}

static void queue_request(uint32_t t)
{
	static _Alignas(8) uint8_t space[REQUEST_BYTES];
	struct node_request *in = (struct node_request *)(void *)space;

	*in = (struct node_request){.kind = NODE_REQ_DATAGRAM, .bytes = REQUEST_BODY, .use = t};
	memset(in->body, (int)t, REQUEST_BODY);
	must(wq_submit(many_requests, in) == 0 && wq_poll(many_requests, 0) == 1,
		"submit and poll");
}

// --- control to worker: an answer ---------------------------------------------------------------------------

static void lane_reply(uint32_t t)
{
	static struct node_reply in;
	const struct node_reply *at;

	in.index = t;
	must(wq_spsc_push(&replies, &in), "push");
	at = wq_spsc_peek(&replies);
	sink = at->index;
	wq_spsc_drop(&replies);
}

static void queue_reply(uint32_t t)
{
	static struct node_reply in;

	in.index = t;
	must(wq_submit(one_replies, &in) == 0 && wq_poll(one_replies, 0) == 1, "submit and poll");
}

static void ring_reply(uint32_t t)
{
	static struct node_reply item;

	item.index = t;
	must(rte_ring_sp_enqueue_burst_elem(ring_replies, &item, sizeof(item), 1, NULL) == 1 &&
			rte_ring_sc_dequeue_burst_elem(
				ring_replies, &item, sizeof(item), 1, NULL) == 1,
		"a ring");
	sink = item.index;
}

static void requests_and_replies(void)
{
	double now[BENCH_ROUNDS], queue[BENCH_ROUNDS], reply[BENCH_ROUNDS], one[BENCH_ROUNDS],
		ring[BENCH_ROUNDS];

	for (uint32_t r = 0; r < BENCH_ROUNDS; r++) {
		now[r] = MEASURE(1, lane_request(t));
		queue[r] = MEASURE(1, queue_request(t));
		reply[r] = MEASURE(1, lane_reply(t));
		one[r] = MEASURE(1, queue_reply(t));
		ring[r] = MEASURE(1, ring_reply(t));
	}
	bench_head("worker to control and back");
	bench_row("request of 64 bytes: lane, in place", now, "wq, many into one", queue,
		BENCH_MOST(1));
	bench_row("answer: lane", reply, "wq, one and one", one, BENCH_MOST(1));
	bench_row("answer: lane", reply, "rte_ring SP/SC", ring, BENCH_NONE);
}

// --- worker to worker: frames for the one with a transmit queue -------------------------------------------

static void lane_frames(uint32_t t)
{
	uint64_t out[FRAMES], sum = 0;

	for (uint64_t i = 0; i < FRAMES; i++) {
		const uint64_t frame = t + i;

		must(wq_spsc_push(&frames, &frame), "push");
	}
	for (uint32_t i = 0; i < FRAMES; i++) {
		out[i] = *(const uint64_t *)wq_spsc_peek(&frames);
		wq_spsc_drop(&frames);
	}
	for (uint32_t i = 0; i < FRAMES; i++)
		sum += out[i];
	sink = sum;
}

static void lane_bursts(uint32_t t)
{
	uint64_t in[FRAMES], sum = 0;

	for (uint32_t i = 0; i < FRAMES; i++)
		in[i] = t + i;
	must(wq_spsc_push_burst(&frames, in, FRAMES) == FRAMES &&
			wq_spsc_pop_burst(&frames, in, FRAMES) == FRAMES,
		"a burst");
	for (uint32_t i = 0; i < FRAMES; i++)
		sum += in[i];
	sink = sum;
}

static void queue_frames(uint32_t t)
{
	uint64_t in[FRAMES];

	for (uint32_t i = 0; i < FRAMES; i++)
		in[i] = t + i;
	must(wq_submit_burst(one_frames, in, FRAMES) == (int)FRAMES &&
			wq_poll(one_frames, 0) == FRAMES,
		"a burst");
}

static void rte_frames(uint32_t t)
{
	uint64_t in[FRAMES], sum = 0;

	for (uint32_t i = 0; i < FRAMES; i++)
		in[i] = t + i;
	must(rte_ring_sp_enqueue_burst_elem(ring_frames, in, sizeof(in[0]), FRAMES, NULL) ==
				FRAMES &&
			rte_ring_sc_dequeue_burst_elem(
				ring_frames, in, sizeof(in[0]), FRAMES, NULL) == FRAMES,
		"a burst");
	for (uint32_t i = 0; i < FRAMES; i++)
		sum += in[i];
	sink = sum;
}

static void frames_between_workers(void)
{
	double now[BENCH_ROUNDS], bursts[BENCH_ROUNDS], queue[BENCH_ROUNDS], ring[BENCH_ROUNDS];

	for (uint32_t r = 0; r < BENCH_ROUNDS; r++) {
		now[r] = MEASURE(FRAMES, lane_frames(t));
		bursts[r] = MEASURE(FRAMES, lane_bursts(t));
		queue[r] = MEASURE(FRAMES, queue_frames(t));
		ring[r] = MEASURE(FRAMES, rte_frames(t));
	}
	bench_head("worker to worker, frames of a worker without a transmit queue, bursts of 32");
	bench_row("frame: lane, singly", now, "wq, one and one", queue, BENCH_NONE);
	bench_row("frame: lane, singly", now, "rte_ring SP/SC", ring, BENCH_NONE);
	bench_row("frame: lane, in bursts", bursts, "wq, one and one", queue, BENCH_MOST(1));
	bench_row("frame: lane, in bursts", bursts, "rte_ring SP/SC", ring, BENCH_MOST(1.5));
}

int main(void)
{
	bool made = true;

	for (uint32_t i = 0; i < PEERS; i++)
		made &= wq_spsc_init(&lane[i], ITEMS, sizeof(struct node_handoff)) == 0;
	made &= wq_spsc_init(&requests, ITEMS, REQUEST_BYTES) == 0;
	made &= wq_spsc_init(&replies, ITEMS, sizeof(struct node_reply)) == 0;
	made &= wq_spsc_init(&frames, ITEMS, sizeof(void *)) == 0;
	must(made, "a lane");
	one_handoff = make_wq(sizeof(struct node_handoff), true, 1, take);
	many_handoff = make_wq(sizeof(struct node_handoff), false, 1, take);
	many_requests = make_wq(REQUEST_BYTES, false, 1, take);
	one_replies = make_wq(sizeof(struct node_reply), true, 1, take);
	one_frames = make_wq(sizeof(void *), true, FRAMES, take_frames);
	ring_handoff = make_ring(sizeof(struct node_handoff));
	ring_replies = make_ring(sizeof(struct node_reply));
	ring_frames = make_ring(sizeof(void *));
	handoff();
	requests_and_replies();
	frames_between_workers();
	return 0;
}
