/* SPDX-License-Identifier: BSD-3-Clause */
// Creation of a worker's delivery, its statistics and its next due time; memory is taken here and nowhere
// else. Create and destroy run before and after the worker, the rest on it.
#include "delivery.h"

#include <stdlib.h>
#include <string.h>

#include "base_time.h"
#include "delivery_pvt.h"

#define INFLIGHT_MIN 16u
#define INFLIGHT_MAX (1u << 20)
#define LARGE_MIN 4u
#define LARGE_MAX 4096u
#define BLOCKS_PER_RECORD 2u  // 21 records a push on average; a push of one takes none
#define HANDED_BUCKETS (2u * HANDED_MAX)

_Static_assert((LARGE_MAX - 1) << 12 < LARGE_BIT, "a reference to a large record fits 31 bits");
_Static_assert((INFLIGHT_MAX - 1) << 8 < LARGE_BIT, "a reference to a small record fits 31 bits");
_Static_assert(SMALL_ROUTES <= 256 && FRAME_ROUTES_MAX <= 4096, "positions fit their bits");

static bool limits_valid(const struct delivery_limits *l)
{
	return l->inflight >= INFLIGHT_MIN && l->inflight <= INFLIGHT_MAX &&
	       l->inflight_large >= LARGE_MIN && l->inflight_large <= LARGE_MAX &&
	       l->inflight_large < l->inflight && l->gateways >= 1 && l->gateways < GATEWAYS_MAX &&
	       l->window >= 1 && l->attempts >= 1 && l->attempts <= UINT8_MAX &&
	       l->resend_percent <= 1000 && l->push_timeout_ns != 0 &&
	       l->retry_max_ns >= l->push_timeout_ns && l->retry_max_ns <= 3600 * NS_PER_S &&
	       l->receipt_timeout_ns != 0;
}

// Zeroed memory, aligned to a cache line. Returns: NULL when there is none.
static void *lines_create(size_t bytes)
{
	void *p = aligned_alloc(64, (bytes + 63) & ~(size_t)63);

	if (p != NULL)
		memset(p, 0, bytes);
	return p;
}

static void records_init(struct delivery *d)
{
	for (uint32_t large = 0; large < 2; large++) {
		const uint32_t first = large ? d->small_count : 0;
		const uint32_t end = large ? d->total : d->small_count;

		for (uint32_t i = first; i < end; i++) {
			struct record *r = &d->record[i];

			r->gen = 1;
			r->next = i + 1 < end ? i + 1 : NONE;
			wheel_node_init(&r->timer);
		}
		d->free_head[large] = first;
		d->free_count[large] = end - first;
	}
}

static void tables_init(struct delivery *d)
{
	for (uint32_t g = 0; g <= d->limits.gateways; g++) {
		struct gateway *gw = &d->gateway[g];

		gw->backlog_head = gw->backlog_tail = NONE;
		rtt_init(&gw->rtt, d->limits.push_timeout_ns);
	}
	for (uint32_t h = 0; h < HANDED_MAX; h++)
		d->handed[h].chain = h + 1 < HANDED_MAX ? h + 1 : NONE;
	for (uint32_t b = 0; b < HANDED_BUCKETS; b++)
		d->handed_hash[b] = NONE;
	d->handed_free = 0;
	d->ready_head = d->ready_tail = NONE;
	d->block_free = NONE;
	d->blocks_free = d->block_count;
	d->walk.index = NONE;
}

struct delivery *delivery_create(const struct delivery_limits *limits, const struct delivery_io *io)
{
	struct delivery *d;

	if (!limits_valid(limits))
		return NULL;
	d = calloc(1, sizeof(*d));
	if (d == NULL)
		return NULL;
	d->limits = *limits;
	d->io = *io;
	d->total = limits->inflight;
	d->small_count = limits->inflight - limits->inflight_large;
	d->gateway_share[0] = (d->small_count + 3) / 4;
	d->gateway_share[1] = (limits->inflight_large + 3) / 4;
	d->block_count = limits->inflight * BLOCKS_PER_RECORD;
	d->credit_max =
		100u * DELIVERY_RESEND_FLOOR + (uint64_t)limits->inflight * limits->resend_percent;
	d->random = limits->seed | 1u;
	d->record = lines_create(d->total * sizeof(*d->record));
	d->gateway = calloc(limits->gateways + 1u, sizeof(*d->gateway));
	// Left to calloc, so that pages nobody uses stay untouched.
	d->small = calloc(d->small_count, sizeof(*d->small));
	d->large = calloc(limits->inflight_large, sizeof(*d->large));
	d->block = calloc(d->block_count, sizeof(*d->block));
	d->handed = calloc(HANDED_MAX, sizeof(*d->handed));
	d->handed_hash = calloc(HANDED_BUCKETS, sizeof(*d->handed_hash));
	d->match = calloc(FRAME_ROUTES_MAX, sizeof(*d->match));
	d->scratch = calloc(1, FRAME_BYTES_MAX);
	if (d->record == NULL || d->gateway == NULL || d->small == NULL || d->large == NULL ||
		d->block == NULL || d->handed == NULL || d->handed_hash == NULL ||
		d->match == NULL || d->scratch == NULL) {
		delivery_destroy(d);
		return NULL;
	}
	records_init(d);
	tables_init(d);
	wheel_init(&d->wheel, (uint8_t *)d->record + offsetof(struct record, timer),
		sizeof(struct record), 0);
	return d;
}

void delivery_destroy(struct delivery *d)
{
	if (d == NULL)
		return;
	for (uint32_t i = 0; d->record != NULL && d->large != NULL && i < d->total; i++) {
		if (d->record[i].frames != 0)
			record_free_frames(d, i);
	}
	free(d->record);
	free(d->gateway);
	free(d->small);
	free(d->large);
	free(d->block);
	free(d->handed);
	free(d->handed_hash);
	free(d->match);
	free(d->scratch);
	free(d);
}

uint64_t delivery_memory(const struct delivery_limits *l, uint64_t *gateways)
{
	const uint64_t small = l->inflight - l->inflight_large;

	*gateways = (l->gateways + UINT64_C(1)) * sizeof(struct gateway);
	return (uint64_t)l->inflight *
		       (sizeof(struct record) + BLOCKS_PER_RECORD * sizeof(struct span_block)) +
	       small * sizeof(struct small_cold) +
	       (uint64_t)l->inflight_large * sizeof(struct large_cold) +
	       HANDED_MAX * (sizeof(struct handed) + 3 * sizeof(uint32_t)) + FRAME_BYTES_MAX;
}

uint64_t delivery_next_ns(const struct delivery *d)
{
	if (d->drain_left != 0 || d->open.head != 0 || d->ready_head != NONE)
		return 0;
	return wheel_next_ns(&d->wheel);
}

void delivery_stats(const struct delivery *d, struct delivery_stats *stats)
{
	*stats = (struct delivery_stats){
		.inflight = d->inflight,
		.inflight_max = d->inflight_max,
		.backlog = d->backlog,
		.backlog_most = atomic_load_explicit(&d->backlog_most, memory_order_relaxed),
		.retries_due = d->retries_due,
	};
}
