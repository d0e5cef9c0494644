/* SPDX-License-Identifier: BSD-3-Clause */
// Answers of gateways: PUSH_ACK and RECEIPT. Everything an answer names is checked before anything
// changes. Worker thread.
#include <string.h>

#include "delivery_pvt.h"

// The sent record an answer means. Returns: NONE when it is unknown, ended, or another gateway's.
static uint32_t find(struct delivery *d, uint32_t gateway, uint32_t push_id, uint32_t push_gen)
{
	const uint32_t i = record_of_push_id(d, push_id);
	const struct record *r;

	if (i == NONE || gateway == 0 || gateway > d->limits.gateways)
		return NONE;
	r = &d->record[i];
	if (r->state != RECORD_SENT || r->gen != push_gen || r->gateway != gateway ||
		r->epoch != d->gateway[gateway].epoch)
		return NONE;
	return i;
}

// --- PUSH_ACK -----------------------------------------------------------------------------------------

// Positions from..from + count - 1 of the list into `mask`. Returns: false when they do not ascend, are out of
// range, or stand in `other`.
static bool list_take(struct wire_view positions, uint32_t from, uint32_t count, uint32_t routes,
	uint64_t *mask, const uint64_t *other)
{
	uint32_t least = 0;

	for (uint32_t k = 0; k < count; k++) {
		const uint32_t p = wire_position(positions, from + k);
		const uint64_t bit = UINT64_C(1) << (p % 64);

		if (p < least || p >= routes || other[p / 64] & bit)
			return false;
		mask[p / 64] |= bit;
		least = p + 1;
	}
	return true;
}

// Checks counts and lists; with any listed, fills both masks.
static bool ack_valid(
	const struct wire_push_ack *ack, uint32_t routes, uint64_t *retryable, uint64_t *dropped)
{
	const uint32_t listed = (uint32_t)ack->retryable + ack->dropped;
	const size_t bytes = (routes + 63u) / 64u * sizeof(uint64_t);

	if (ack->accepted + listed != routes || ack->positions.len != 2 * listed)
		return false;
	if (listed == 0)
		return true;
	memset(retryable, 0, bytes);
	memset(dropped, 0, bytes);
	return list_take(ack->positions, 0, ack->retryable, routes, retryable, dropped) &&
	       list_take(ack->positions, ack->retryable, ack->dropped, routes, dropped, retryable);
}

static enum counter accepted_how(uint8_t ack)
{
	return ack == WIRE_ACK_NONE ? CTR_ROUTE_SENT : CTR_ROUTE_ACCEPTED;
}

// Every position accepted, all of one class that waits for no receipt, nothing happened to the record before:
// the common case. Returns: false when it is not.
static bool all_accepted(struct delivery *d, uint32_t i)
{
	struct record *r = &d->record[i];
	const enum counter how = accepted_how(r->span.ack);
	uint32_t left = r->spans - 1u;

	if ((r->flags & (RECORD_FRESH | RECORD_ALIKE)) != (RECORD_FRESH | RECORD_ALIKE))
		return false;
	r->flags &= (uint8_t)~RECORD_FRESH;
	r->alive_count = 0;
	r->active_count = 0;
	counter_add(d->io.counters, how, r->routes);
	record_tell_spans(d, &r->span, 1, how);
	for (uint32_t b = r->block; left != 0; b = d->block[b].next) {
		const uint32_t n = left < BLOCK_SPANS ? left : BLOCK_SPANS;

		record_tell_spans(d, d->block[b].span, n, how);
		left -= n;
	}
	return true;
}

// Ends what was accepted and waits for no receipt.
static void end_accepted(struct delivery *d, uint32_t i, const uint64_t *not_accepted)
{
	uint64_t gateway[LARGE_WORDS] = {0}, none[LARGE_WORDS] = {0};
	bool any_gateway = false, any_none = false;
	struct span_walk walk;

	for (struct delivery_span *s = span_first(d, i, &walk); s != NULL;
		s = span_next(d, &walk)) {
		uint64_t *mask = s->ack == WIRE_ACK_NONE ? none : gateway;

		if (s->ack == WIRE_ACK_CLIENT)
			continue;
		any_none |= s->ack == WIRE_ACK_NONE;
		any_gateway |= s->ack != WIRE_ACK_NONE;
		for (uint32_t w = s->first / 64u; w * 64u < (uint32_t)s->first + s->count; w++)
			mask[w] |= range_word(s->first, s->count, w) & ~not_accepted[w];
	}
	if (any_gateway)
		record_end(d, i, gateway, CTR_ROUTE_ACCEPTED);
	if (any_none)
		record_end(d, i, none, CTR_ROUTE_SENT);
}

static void apply(struct delivery *d, uint32_t i, uint64_t *retryable, const uint64_t *dropped,
	uint64_t now_ns)
{
	struct record *r = &d->record[i];
	uint32_t sent;

	if (dropped != NULL) {
		uint64_t not_accepted[LARGE_WORDS] = {0};

		for (uint32_t w = 0; w * 64u < r->routes; w++)
			not_accepted[w] = retryable[w] | dropped[w];
		record_end(d, i, dropped, CTR_ROUTE_DROPPED);
		sent = record_mark_retry(d, i, retryable);
		if (r->retry_count != 0)
			r->retry_ns = now_ns + delivery_backoff(d, sent);
		end_accepted(d, i, not_accepted);
	} else if (!all_accepted(d, i)) {
		static const uint64_t nothing[LARGE_WORDS];

		end_accepted(d, i, nothing);
	}
	if (r->active_count > r->retry_count)
		r->receipt_ns = now_ns + d->limits.receipt_timeout_ns;
}

void delivery_on_ack(
	struct delivery *d, uint32_t gateway, const struct wire_push_ack *ack, uint64_t now_ns)
{
	const uint32_t i = find(d, gateway, ack->push_id, ack->push_gen);
	const uint32_t listed = (uint32_t)ack->retryable + ack->dropped;
	uint64_t retryable[LARGE_WORDS], dropped[LARGE_WORDS];
	struct record *r;

	if (i == NONE) {
		counter_add(d->io.counters, CTR_PUSH_ACK_UNKNOWN, 1);
		return;
	}
	r = &d->record[i];
	if (r->flags & RECORD_ACKED) {
		counter_add(d->io.counters, CTR_PUSH_ACK_REPEATED, 1);
		return;
	}
	if (!ack_valid(ack, r->routes, retryable, dropped)) {
		counter_add(d->io.counters, CTR_PUSH_ACK_BAD, 1);
		return;
	}
	counter_add(d->io.counters, CTR_PUSH_ACK, 1);
	r->flags |= RECORD_ACKED;
	if (r->sends == 1)
		gateway_measure(d, i, now_ns);
	gateway_answered(d, gateway);
	apply(d, i, retryable, listed != 0 ? dropped : NULL, now_ns);
	record_settle(d, i, now_ns);
}

// --- RECEIPT ------------------------------------------------------------------------------------------

// Positions of the receipt into `mask`. Returns: false when one lies behind the push.
static bool receipt_mask(const struct wire_receipt *receipt, uint32_t routes, uint64_t *mask)
{
	if (receipt->first % 8 != 0 || receipt->bits.len > FRAME_ROUTES_MAX / 8)
		return false;
	for (uint32_t b = 0; b < receipt->bits.len; b++) {
		const uint32_t p = receipt->first + 8 * b;
		const uint8_t byte = receipt->bits.p[b];

		if (byte == 0)
			continue;
		if (p >= routes || (routes - p < 8 && byte >> (routes - p) != 0))
			return false;
		mask[p / 64] |= (uint64_t)byte << (p % 64);
	}
	return true;
}

void delivery_on_receipt(
	struct delivery *d, uint32_t gateway, const struct wire_receipt *receipt, uint64_t now_ns)
{
	const uint32_t i = find(d, gateway, receipt->push_id, receipt->push_gen);
	uint64_t got[LARGE_WORDS] = {0}, mask[LARGE_WORDS] = {0};
	struct span_walk walk;

	if (i == NONE || !receipt_mask(receipt, d->record[i].routes, got)) {
		counter_add(d->io.counters, CTR_RECEIPT_UNKNOWN, 1);
		return;
	}
	counter_add(d->io.counters, CTR_RECEIPT, 1);
	// Only routes that asked for one.
	for (struct delivery_span *s = span_first(d, i, &walk); s != NULL;
		s = span_next(d, &walk)) {
		if (s->ack != WIRE_ACK_CLIENT)
			continue;
		for (uint32_t w = s->first / 64u; w * 64u < (uint32_t)s->first + s->count; w++)
			mask[w] |= got[w] & range_word(s->first, s->count, w);
	}
	record_end(d, i, mask, CTR_ROUTE_ACKED);
	record_settle(d, i, now_ns);
}
