/* SPDX-License-Identifier: BSD-3-Clause */
// The tick: timers of records, records of dead incarnations, windows that opened. Worker thread.
#include "delivery_pvt.h"

#define LOOK_MAX 64u  // records

// Ends routes whose deadline passed, in whichever push they are by now.
static void end_at_deadline(struct delivery *d, uint32_t i, uint64_t now_ns)
{
	struct record *r = &d->record[i];
	uint64_t mask[LARGE_WORDS] = {0};
	struct span_walk walk;

	if (now_ns < r->deadline_ns)
		return;
	r->deadline_ns = NEVER;
	for (struct delivery_span *s = span_first(d, i, &walk); s != NULL;
		s = span_next(d, &walk)) {
		if (s->deadline_ns > now_ns) {
			if (s->deadline_ns < r->deadline_ns)
				r->deadline_ns = s->deadline_ns;
			continue;
		}
		for (uint32_t w = s->first / 64u; w * 64u < (uint32_t)s->first + s->count; w++)
			mask[w] |= range_word(s->first, s->count, w);
	}
	record_end(d, i, mask, CTR_ROUTE_DEADLINE);
}

// No receipt in time: the routes join those to be retried, not before those are due.
static void receipts_missing(struct delivery *d, uint32_t i, uint64_t now_ns)
{
	struct record *r = &d->record[i];
	uint64_t waiting[LARGE_WORDS];
	struct bits bits;

	r->receipt_ns = NEVER;
	if (r->retry_count == 0)
		r->retry_ns = now_ns;
	record_materialise(d, i, &bits);
	for (uint32_t w = 0; w < bits.words; w++)
		waiting[w] = bits.active[w];
	record_mark_retry(d, i, waiting);
}

static void fire(struct delivery *d, uint32_t i, uint64_t now_ns)
{
	struct record *r = &d->record[i];

	if (r->state == RECORD_FREE || r->state == RECORD_DETACHED)
		return;  // of a push that ended
	if (!gateway_current(d, r->gateway) || r->epoch != d->gateway[r->gateway].epoch) {
		record_end(d, i, NULL, CTR_ROUTE_GATEWAY_GONE);
		record_settle(d, i, now_ns);
		return;
	}
	record_sweep(d, i);
	if (r->alive_count != 0)
		end_at_deadline(d, i, now_ns);
	if (r->alive_count != 0 && r->state == RECORD_SENT) {
		if (!(r->flags & RECORD_ACKED) && now_ns >= r->resend_ns)
			record_resend(d, i, now_ns);
		if (now_ns >= r->receipt_ns)
			receipts_missing(d, i, now_ns);
		if (r->retry_count != 0 && now_ns >= r->retry_ns)
			record_ready(d, i);
	}
	record_settle(d, i, now_ns);
}

// Looks for records of ended incarnations. Looking at LOOK_MAX costs as much as ending one.
static uint32_t drain(struct delivery *d, uint64_t now_ns, uint32_t max)
{
	uint32_t done = 0, looked = 0;

	while (d->drain_left != 0 && done < max) {
		const uint32_t i = d->drain_at;
		const struct record *r = &d->record[i];

		d->drain_left--;
		d->drain_at = i + 1 < d->total ? i + 1 : 0;
		if (r->state != RECORD_FREE && r->state != RECORD_DETACHED &&
			r->epoch != d->gateway[r->gateway].epoch) {
			record_end(d, i, NULL, CTR_ROUTE_GATEWAY_GONE);
			record_settle(d, i, now_ns);
			done++;
		} else if (++looked == LOOK_MAX || d->drain_left == 0) {
			looked = 0;
			done++;
		}
	}
	return done;
}

static uint32_t open_windows(struct delivery *d, uint64_t now_ns, uint32_t max)
{
	uint32_t done = 0;

	while (d->open.head != 0 && done < max) {
		const uint32_t g = d->open.head;

		if (gateway_current(d, g) && gateway_open(d, g, now_ns))
			done++;
		else
			gateway_dequeue_open(d);
	}
	return done;
}

static uint32_t timers(struct delivery *d, uint64_t now_ns, uint32_t max)
{
	uint32_t left = max, i;

	while ((i = wheel_pop(&d->wheel, now_ns, &left)) != NONE)
		fire(d, i, now_ns);
	return max - left;
}

// Each of the three gets a third first, so that none starves the others; then who has more takes the rest.
uint32_t delivery_tick(struct delivery *d, uint64_t now_ns, uint32_t max)
{
	const uint32_t third = (max + 2) / 3;
	uint32_t done = 0;

	assert(d->handed_count == 0);  // each retry was pushed or ended in the turn it was taken
	for (uint32_t round = 0; round < 2 && done < max; round++) {
		const uint32_t share = round == 0 ? third : max;

		done += drain(d, now_ns, share < max - done ? share : max - done);
		done += open_windows(d, now_ns, share < max - done ? share : max - done);
		done += timers(d, now_ns, share < max - done ? share : max - done);
	}
	return done;
}
