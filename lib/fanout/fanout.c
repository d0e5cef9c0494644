/* SPDX-License-Identifier: BSD-3-Clause */
// Owns the memory of the pipeline: message slots, channel queues, open pushes, staging; and its turn.
// Create and destroy before and after the worker; the rest on the worker.
#include "fanout_pvt.h"

#include <stdlib.h>

#define NS_PARKED_POLL UINT64_C(500000)  // a parked channel is looked at this often at least
#define NS_STALLED_POLL UINT64_C(50000)  // an expansion that waits for buffers

static bool limits_valid(const struct fanout_limits *l)
{
	return l->messages != 0 && l->messages < 1u << 24 && l->parked != 0 &&
	       l->parked_per_channel != 0 && l->quantum_members != 0 && l->turn_members != 0 &&
	       l->payload_bytes <= PAYLOAD_MAX && l->mtu >= MTU_MIN && l->mtu <= MTU_MAX;
}

static void chain(struct fanout *f)
{
	for (uint32_t i = 0; i < f->limits.messages; i++) {
		f->message[i].next = i + 1 < f->limits.messages ? i + 1 : FANOUT_NONE;
		f->queue[i].run_next = f->message[i].next;
	}
	for (uint32_t i = 0; i < FANOUT_BLOCKS; i++)
		f->block[i].next = i + 1 < FANOUT_BLOCKS ? i + 1 : FANOUT_NONE;
	for (uint32_t i = 0; i <= f->io.channels->limit; i++)
		f->channel[i].queue = FANOUT_NONE;
	for (uint32_t i = 0; i < f->io.presence->gateways; i++)
		f->push[i].span = &f->spans[(size_t)i * DELIVERY_SPANS_MAX];
	f->run = f->park = (struct fanout_list){.head = FANOUT_NONE, .tail = FANOUT_NONE};
	f->current = f->stage_owner = FANOUT_NONE;
	f->small_left = f->limits.turn_members / 2;
	f->small.next = UINT64_C(1) << 32;  // further than any place from the marks of no message
	f->cursor[0] = (struct fanout_cursor){
		.tail = (uint8_t *)&f->sink,
		.limit = (uint8_t *)&f->sink + sizeof(f->sink),
	};
}

// Zeroed memory of whole cache lines. Returns: NULL when there is none.
static void *lines_create(size_t count, size_t bytes)
{
	void *p = aligned_alloc(64, count * bytes);

	if (p != NULL)
		memset(p, 0, count * bytes);
	return p;
}

struct fanout *fanout_create(const struct fanout_limits *limits, const struct fanout_io *io)
{
	const size_t gateways = io->presence->gateways;
	struct fanout *f;

	if (!limits_valid(limits))
		return NULL;
	f = calloc(1, sizeof(*f));
	if (f == NULL)
		return NULL;
	f->limits = *limits;
	f->io = *io;
	f->message = lines_create(limits->messages, sizeof(*f->message));
	f->key = calloc(limits->messages, sizeof(*f->key));
	f->queue = calloc(limits->messages, sizeof(*f->queue));
	f->channel = calloc((size_t)io->channels->limit + 1, sizeof(*f->channel));
	f->push = lines_create(gateways, sizeof(*f->push));
	f->spans = calloc(gateways * DELIVERY_SPANS_MAX, sizeof(*f->spans));
	f->touched = calloc(gateways, sizeof(*f->touched));
	f->open = calloc(gateways, sizeof(*f->open));
	f->staged = calloc(gateways, sizeof(*f->staged));
	f->block = calloc(FANOUT_BLOCKS, sizeof(*f->block));
	f->scratch[0] = calloc(2, FRAME_BYTES_MAX);
	if (f->message == NULL || f->key == NULL || f->queue == NULL || f->channel == NULL ||
		f->push == NULL || f->spans == NULL || f->touched == NULL || f->open == NULL ||
		f->staged == NULL || f->block == NULL || f->scratch[0] == NULL) {
		fanout_destroy(f);
		return NULL;
	}
	f->scratch[1] = f->scratch[0] + FRAME_BYTES_MAX;
	chain(f);
	return f;
}

uint64_t fanout_memory(const struct fanout_limits *l, uint32_t channels, uint32_t gateways,
	uint64_t *channel_bytes, uint64_t *gateway_bytes)
{
	const struct fanout *f = NULL;
	const uint64_t message = sizeof(*f->message) + sizeof(*f->key) + sizeof(*f->queue);
	const uint64_t gateway = sizeof(*f->push) + DELIVERY_SPANS_MAX * sizeof(*f->spans) +
				 sizeof(*f->touched) + sizeof(*f->open) + sizeof(*f->staged);

	*channel_bytes = (channels + UINT64_C(1)) * sizeof(*f->channel);
	*gateway_bytes = (gateways + UINT64_C(1)) * gateway;
	return l->messages * message + FANOUT_BLOCKS * sizeof(*f->block) + 2 * FRAME_BYTES_MAX;
}

static void give_bodies_back(struct fanout *f)
{
	for (uint32_t i = 0; f->message != NULL && i < f->limits.messages; i++) {
		struct fanout_message *m = &f->message[i];

		if (m->state != FANOUT_PARKED && m->state != FANOUT_READY)
			continue;
		if (m->tag != NULL)
			tag_unpin(m->tag);
		if (m->body.dgram != NULL)
			f->io.dgram->free(f->io.queue, &m->body.dgram, 1);
	}
	for (uint32_t i = 0; f->push != NULL && i < f->io.presence->gateways; i++)
		if (f->push[i].dgram != NULL)
			f->io.dgram->free(f->io.queue, &f->push[i].dgram, 1);
	for (uint32_t i = 0; i < f->spares; i++)
		f->io.dgram->free(f->io.queue, &f->spare[i], 1);
}

void fanout_destroy(struct fanout *f)
{
	if (f == NULL)
		return;
	give_bodies_back(f);
	free(f->scratch[0]);
	free(f->block);
	free(f->staged);
	free(f->open);
	free(f->touched);
	free(f->spans);
	free(f->push);
	free(f->channel);
	free(f->queue);
	free(f->key);
	free(f->message);
	free(f);
}

// --- messages and queues ------------------------------------------------------------------------------

uint32_t fanout_message_take(struct fanout *f)
{
	const uint32_t slot = f->message_free;

	if (f->messages == f->limits.messages)
		return FANOUT_NONE;
	f->message_free = f->message[slot].next;
	f->messages++;
	return slot;
}

void fanout_message_free(struct fanout *f, uint32_t slot)
{
	struct fanout_message *m = &f->message[slot];

	m->state = FANOUT_FREE;
	m->next = f->message_free;
	f->message_free = slot;
	f->messages--;
}

void fanout_body_free(struct fanout *f, const struct fanout_body *body)
{
	struct dgram *d = body->dgram;

	if (d != NULL)
		f->io.dgram->free(f->io.queue, &d, 1);
	else
		f->io.frame_done(f->io.ctx, body->frame);
}

struct fanout_queue *fanout_queue_get(struct fanout *f, const struct channel *channel)
{
	struct fanout_channel *c = &f->channel[channel->index];
	const uint32_t use = atomic_load_explicit(&channel->use, memory_order_relaxed);
	struct fanout_queue *q;

	if (c->use != use) {
		// The record was given to another channel: nothing of the old one may leak into it.
		if (c->queue != FANOUT_NONE)
			fanout_unpark_all(f, &f->queue[c->queue], WIRE_UNKNOWN_CHANNEL);
		c->use = use;
		c->seq = 0;
	}
	if (c->queue == FANOUT_NONE) {
		c->queue = f->queue_free;
		q = &f->queue[c->queue];
		f->queue_free = q->run_next;
		*q = (struct fanout_queue){
			.channel = channel->index,
			.use = use,
			.head = FANOUT_NONE,
			.tail = FANOUT_NONE,
			.parked_first = FANOUT_NONE,
		};
	}
	q = &f->queue[c->queue];
	q->use = use;
	return q;
}

void fanout_queue_append(struct fanout *f, struct fanout_queue *queue, uint32_t slot)
{
	f->message[slot].next = FANOUT_NONE;
	if (queue->head == FANOUT_NONE)
		queue->head = slot;
	else
		f->message[queue->tail].next = slot;
	queue->tail = slot;
}

void fanout_queue_settle(struct fanout *f, struct fanout_queue *queue)
{
	const uint32_t index = (uint32_t)(queue - f->queue);

	if (queue->head != FANOUT_NONE || queue->running || queue->parking)
		return;
	f->channel[queue->channel].queue = FANOUT_NONE;
	queue->run_next = f->queue_free;
	f->queue_free = index;
}

void fanout_run_push(struct fanout *f, struct fanout_queue *queue)
{
	const uint32_t index = (uint32_t)(queue - f->queue);

	if (queue->running)
		return;
	queue->running = true;
	queue->run_next = FANOUT_NONE;
	if (f->run.head == FANOUT_NONE)
		f->run.head = index;
	else
		f->queue[f->run.tail].run_next = index;
	f->run.tail = index;
	f->run.count++;
}

static struct fanout_queue *run_pop(struct fanout *f)
{
	struct fanout_queue *queue = &f->queue[f->run.head];

	f->run.head = queue->run_next;
	f->run.count--;
	queue->running = false;
	return queue;
}

// --- the turn -----------------------------------------------------------------------------------------

// One quantum of each runnable channel in turn, until the budget of the turn is used or nobody gets on.
static uint32_t expand_all(struct fanout *f, uint32_t budget) WORKER_ONLY;
static uint32_t expand_all(struct fanout *f, uint32_t budget)
{
	const uint32_t quantum = f->limits.quantum_members;
	uint32_t work = 0, stalled = 0;

	while (f->run.head != FANOUT_NONE && work < budget && stalled < f->run.count) {
		struct fanout_queue *queue = run_pop(f);
		const uint32_t left = budget - work;
		const uint32_t done = fanout_expand(f, queue, left < quantum ? left : quantum);

		if (queue->head != FANOUT_NONE && f->message[queue->head].state == FANOUT_READY)
			fanout_run_push(f, queue);
		else
			fanout_queue_settle(f, queue);
		stalled = done == 0 ? stalled + 1 : 0;
		work += done;
	}
	return work;
}

uint32_t fanout_run(struct fanout *f, uint64_t now_ns)
{
	uint32_t work;

	f->now_ns = now_ns;
	work = fanout_poll_parked(f);
	fanout_know_buffers(f);
	// delivery remembers one frame's worth of retries that are on their way into a push.
	work += fanout_retry(f, f->limits.turn_members < FRAME_ROUTES_MAX ? f->limits.turn_members
									  : FRAME_ROUTES_MAX);
	work += expand_all(f, f->limits.turn_members);
	return work;
}

void fanout_flush(struct fanout *f, uint64_t now_ns)
{
	f->now_ns = now_ns;
	fanout_close_records(f);
	f->current = FANOUT_NONE;
	atomic_store_explicit(&f->stat_open_pushes, f->open_count, memory_order_relaxed);
	for (uint32_t i = 0; i < f->open_count; i++) {
		f->push[f->open[i]].listed = false;
		if (f->push[f->open[i]].dgram != NULL)
			fanout_close_push(f, f->open[i]);
	}
	f->open_count = 0;
	f->buffers_known = false;
	f->small_left = f->limits.turn_members / 2;
	atomic_store_explicit(&f->stat_messages, f->messages, memory_order_relaxed);
	atomic_store_explicit(&f->stat_parked, f->parked, memory_order_relaxed);
	atomic_store_explicit(&f->stat_runnable, f->run.count, memory_order_relaxed);
}

bool fanout_runnable(const struct fanout *f)
{
	return f->run.head != FANOUT_NONE;
}

uint64_t fanout_next_ns(const struct fanout *f)
{
	if (f->run.head != FANOUT_NONE)
		return f->now_ns + NS_STALLED_POLL;
	return f->park.head != FANOUT_NONE ? f->now_ns + NS_PARKED_POLL : UINT64_MAX;
}

void fanout_stats(const struct fanout *f, struct fanout_stats *stats)
{
	*stats = (struct fanout_stats){
		.messages = atomic_load_explicit(&f->stat_messages, memory_order_relaxed),
		.parked = atomic_load_explicit(&f->stat_parked, memory_order_relaxed),
		.parked_channel_most =
			atomic_load_explicit(&f->stat_parked_channel_most, memory_order_relaxed),
		.payload_most = atomic_load_explicit(&f->stat_payload_most, memory_order_relaxed),
		.runnable = atomic_load_explicit(&f->stat_runnable, memory_order_relaxed),
		.open_pushes = atomic_load_explicit(&f->stat_open_pushes, memory_order_relaxed),
	};
}
