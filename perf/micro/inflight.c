/* SPDX-License-Identifier: BSD-3-Clause */
// What reliability costs a push at 16k in flight: a push that is kept and acknowledged against one that is
// not, the timer wheel alone, and the idempotence window. Each beside a primitive in the same run: writing
// a record of one line into an array and clearing it when its turn comes round.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base_time.h"
#include "bench.h"
#include "delivery.h"
#include "idem.h"
#include "wheel.h"

#define INFLIGHT 16384u
#define PUSHES (1u << 20)
#define GATEWAYS 16u
#define ROUTES 160u
#define TURN 32u  // pushes of a turn
#define HOT 16u  // buffers the datagrams share: just written, as they are in life

// --- a port that takes everything ---------------------------------------------------------------------

static uint64_t freed;

static void null_tx(void *queue, struct dgram **d, uint16_t n)
{
}
static void null_free(void *queue, struct dgram **d, uint16_t n)
{
	freed += n;
}
static void null_hold(struct dgram *d)
{
}
static bool null_exclusive(const struct dgram *d)
{
	return true;
}
static const struct dgram_ops null_ops = {
	.tx = null_tx,
	.free = null_free,
	.hold = null_hold,
	.exclusive = null_exclusive,
};

static uint64_t ended;

static void on_end(void *ctx, uint32_t message, enum counter how, uint32_t count)
{
	ended += count;
}

// --- pushes -------------------------------------------------------------------------------------------

struct bench {
	struct delivery *d;
	struct counters counters;
	struct wire_keys keys;
	struct wire_lane lane;
	struct presence_gateway gateway[GATEWAYS + 1];
	struct presence_view view;
	uint8_t (*data)[1472];
	struct dgram *dgram;
	uint64_t *name;  // push id and generation, by push
};

static void start(struct bench *b)
{
	const struct delivery_limits limits = {
		.inflight = INFLIGHT + 4096,
		.inflight_large = 64,
		.gateways = GATEWAYS,
		.window = INFLIGHT,
		.backlog = 16,
		.attempts = 4,
		.resend_percent = 10,
		.push_timeout_ns = NS_PER_S,
		.retry_max_ns = 2 * NS_PER_S,
		.receipt_timeout_ns = 5 * NS_PER_S,
	};
	const struct delivery_io io = {
		.dgram = &null_ops,
		.lane = &b->lane,
		.presence = &b->view,
		.counters = &b->counters,
		.on_end = on_end,
	};

	b->lane.keys = &b->keys;
	for (uint32_t g = 1; g <= GATEWAYS; g++) {
		atomic_store(&b->gateway[g].alive, true);
		b->gateway[g].boot = g;
	}
	b->view = (struct presence_view){.gateway = b->gateway, .gateways = GATEWAYS + 1};
	b->data = calloc(HOT, sizeof(*b->data));
	b->dgram = calloc(2 * INFLIGHT, sizeof(*b->dgram));
	b->name = calloc(INFLIGHT, sizeof(*b->name));
	b->d = delivery_create(&limits, &io);
	if (b->d == NULL || b->data == NULL || b->dgram == NULL || b->name == NULL)
		exit(1);
	for (uint32_t i = 0; i < 2 * INFLIGHT; i++) {
		b->dgram[i].data = b->data[i % HOT];
		b->dgram[i].room = sizeof(*b->data);
	}
}

WORKER_ONLY static void send_one(struct bench *b, uint32_t i, uint8_t ack, uint64_t now)
{
	struct dgram *frame = &b->dgram[i % (2 * INFLIGHT)];
	const struct delivery_span span = {
		.message = i & 0xffff,
		.count = ROUTES,
		.ack = ack,
		.attempt = 1,
		.deadline_ns = now + 30 * NS_PER_S,
	};
	const struct delivery_push push = {
		.gateway = (uint16_t)(1 + i % GATEWAYS),
		.routes = ROUTES,
		.frames = 1,
		.spans = 1,
		.acks = (uint8_t)(1u << ack),
		.deadline_ns = span.deadline_ns,
		.frame = &frame,
		.span = &span,
	};

	frame->len = WIRE_HEADER_BYTES + 1400;
	delivery_send(b->d, &push, now);
	memcpy(&b->name[i % INFLIGHT], frame->data + WIRE_HEADER_BYTES, sizeof(b->name[0]));
}

WORKER_ONLY static void ack_one(struct bench *b, uint32_t i, uint64_t now)
{
	const uint64_t name = b->name[i % INFLIGHT];
	const struct wire_push_ack ack = {
		.push_id = (uint32_t)name,
		.push_gen = (uint32_t)(name >> 32),
		.accepted = ROUTES,
	};

	delivery_on_ack(b->d, 1 + i % GATEWAYS, &ack, now);
}

// ns of a push, all in flight but the last INFLIGHT acknowledged.
WORKER_ONLY static double push_ns(struct bench *b, uint8_t ack, uint64_t *now)
{
	uint64_t begin = 0;

	for (uint32_t i = 0; i < PUSHES + INFLIGHT; i++) {
		if (i == INFLIGHT)
			begin = bench_ns();
		if (i >= INFLIGHT && ack != WIRE_ACK_NONE)
			ack_one(b, i, *now);
		if (i % TURN == 0) {
			*now += 20 * NS_PER_US;
			delivery_tick(b->d, *now, 256);
		}
		send_one(b, i, ack, *now);
	}
	begin = bench_ns() - begin;
	for (uint32_t i = 0; i < INFLIGHT && ack != WIRE_ACK_NONE; i++)
		ack_one(b, PUSHES + INFLIGHT + i, *now);
	return (double)begin / PUSHES;
}

// --- primitives ---------------------------------------------------------------------------------------

static double array_ns(void)
{
	struct line {
		_Alignas(64) uint64_t v[8];
	} *line = aligned_alloc(64, INFLIGHT * sizeof(*line));
	volatile uint64_t sink = 0;
	uint64_t begin, sum = 0;

	if (line == NULL)
		exit(1);
	memset(line, 0, INFLIGHT * sizeof(*line));
	begin = bench_ns();
	for (uint32_t i = 0; i < PUSHES; i++) {
		struct line *l = &line[i * 40503u % INFLIGHT];

		sum += l->v[0];
		for (uint32_t k = 0; k < 8; k++)
			l->v[k] = i + k;
		__asm__ volatile("" ::: "memory");
	}
	begin = bench_ns() - begin;
	sink = sum;
	(void)sink;
	free(line);
	return (double)begin / PUSHES;
}

static double wheel_ns(void)
{
	static struct wheel_node node[INFLIGHT];
	static struct wheel wheel;
	uint64_t begin = 0;

	wheel_init(&wheel, node, sizeof(node[0]), 0);
	for (uint32_t i = 0; i < INFLIGHT; i++)
		wheel_node_init(&node[i]);
	for (uint32_t i = 0; i < PUSHES + INFLIGHT; i++) {
		const uint32_t at = i % INFLIGHT;

		if (i == INFLIGHT)
			begin = bench_ns();
		wheel_cancel(&wheel, at);
		wheel_add(&wheel, at, (uint64_t)i * 600 + 50 * NS_PER_MS + (i * 2654435761u >> 7));
		if (i % TURN == 0) {
			uint32_t steps = 64;

			while (wheel_pop(&wheel, (uint64_t)i * 600, &steps) != WHEEL_NONE)
				;
		}
	}
	return (double)(bench_ns() - begin) / PUSHES;
}

WORKER_ONLY static void idem_ns(double *fresh, double *repeat)
{
	const uint32_t entries = 65536;
	struct idem *idem = idem_create(entries, 3600 * NS_PER_S);
	uint64_t begin;

	if (idem == NULL)
		exit(1);
	begin = bench_ns();
	for (uint32_t i = 0; i < PUSHES; i++)
		idem_take(idem, i % 1000, i + 1, 1)->state = IDEM_DONE;
	*fresh = (double)(bench_ns() - begin) / PUSHES;
	begin = bench_ns();
	for (uint32_t i = 0; i < PUSHES; i++) {
		const uint32_t id = PUSHES - 1 - i * 40503u % entries;

		idem_take(idem, id % 1000, id + 1, 1);
	}
	*repeat = (double)(bench_ns() - begin) / PUSHES;
	idem_destroy(idem);
}

// --- report -------------------------------------------------------------------------------------------

int main(void)
{
	double array[BENCH_ROUNDS], wheel[BENCH_ROUNDS], kept[BENCH_ROUNDS], unkept[BENCH_ROUNDS],
		fresh[BENCH_ROUNDS], repeat[BENCH_ROUNDS], tax[BENCH_ROUNDS], route[BENCH_ROUNDS];
	const char *line = "write a cold line";
	static struct bench b;
	uint64_t now = NS_PER_S;

	role_take_worker();
	start(&b);
	for (uint32_t r = 0; r < BENCH_ROUNDS; r++) {
		array[r] = array_ns();
		wheel[r] = wheel_ns();
		unkept[r] = push_ns(&b, WIRE_ACK_NONE, &now);
		kept[r] = push_ns(&b, WIRE_ACK_GATEWAY, &now);
		tax[r] = kept[r] - unkept[r];
		route[r] = tax[r] / ROUTES;
		idem_ns(&fresh[r], &repeat[r]);
	}
	bench_head("a push with 16384 in flight");
	bench_row("timer wheel: cancel and add", wheel, line, array, BENCH_NONE);
	bench_row("push of ack none: seal, send", unkept, line, array, BENCH_NONE);
	bench_row("push kept and acknowledged: all", kept, line, array, BENCH_NONE);
	bench_row("  of it register, timer, PUSH_ACK, end", tax, line, array, BENCH_NONE);
	bench_row("  the same a route, 160 routes a push", route, NULL, NULL, BENCH_NONE);
	bench_row("idempotence window: first take", fresh, line, array, BENCH_NONE);
	bench_row("idempotence window: repeat", repeat, line, array, BENCH_NONE);
	delivery_destroy(b.d);
	role_drop_worker();
	return ended == 0 || freed == 0;
}
