/* SPDX-License-Identifier: BSD-3-Clause */
// First sends, the backlog behind a window, and resends. Worker thread.
#include <string.h>

#include "base_time.h"
#include "delivery_pvt.h"

#define PUT_OFF_NS (1 * NS_PER_MS)  // a resend whose buffer the port has not given back yet

// --- intervals ----------------------------------------------------------------------------------------

uint64_t delivery_jitter(struct delivery *d, uint64_t interval_ns)
{
	uint32_t x = d->random;

	x ^= x << 13;
	x ^= x >> 17;
	x ^= x << 5;
	d->random = x;
	return interval_ns - interval_ns / 4 + ((interval_ns / 2 * (x >> 22)) >> 10);
}

uint64_t delivery_backoff(struct delivery *d, uint32_t sends)
{
	const uint32_t doublings = sends > 1 ? sends - 1 : 0;
	const uint64_t max = d->limits.retry_max_ns;
	uint64_t interval = max;

	if (doublings < 32 && d->limits.push_timeout_ns <= max >> doublings)
		interval = d->limits.push_timeout_ns << doublings;
	return delivery_jitter(d, interval);
}

void delivery_times(struct delivery *d, uint64_t push_timeout_ns, uint64_t retry_max_ns,
	uint64_t receipt_timeout_ns)
{
	assert(push_timeout_ns != 0 && retry_max_ns >= push_timeout_ns && receipt_timeout_ns != 0);
	d->limits.push_timeout_ns = push_timeout_ns;
	d->limits.retry_max_ns = retry_max_ns;
	d->limits.receipt_timeout_ns = receipt_timeout_ns;
}

// --- datagrams ----------------------------------------------------------------------------------------

// Body bytes of a datagram that was sealed before (`sealed`) or not.
static uint32_t body_bytes(const struct dgram *f, bool sealed)
{
	const uint32_t tag = sealed && f->data[WIRE_FLAGS_OFFSET] & WIRE_AUTH ? WIRE_TAG_BYTES : 0;

	return f->len - WIRE_HEADER_BYTES - tag;
}

static inline void seal(struct delivery *d, struct dgram *f, uint8_t type,
	const struct presence_gateway *entry, bool hold, bool sealed)
{
	f->len = wire_lane_seal(d->io.lane, type, f->data, body_bytes(f, sealed), entry->boot);
	assert(f->len <= f->room);
	f->peer = entry->addr;
	if (hold)
		d->io.dgram->hold(f);
}

// Seals and sends `n` datagrams of one push; with `hold` they stay the caller's too.
static void transmit(
	struct delivery *d, struct dgram **frame, uint32_t n, uint32_t g, bool hold, bool sealed)
{
	const struct presence_gateway *entry = &d->io.presence->gateway[g];
	struct dgram *burst[BURST];

	if (n == 1) {
		seal(d, frame[0], WIRE_PUSH, entry, hold, sealed);
		d->io.dgram->tx(d->io.queue, frame, 1);
		return;
	}
	for (uint32_t i = 0; i < n;) {
		uint16_t k = 0;

		for (; k < BURST && i < n; k++, i++) {
			seal(d, frame[i], WIRE_SEGMENT, entry, hold, sealed);
			burst[k] = frame[i];
		}
		d->io.dgram->tx(d->io.queue, burst, k);
	}
}

// The fixed part of the PUSH body: in the only datagram, or behind the head of the first segment.
static uint8_t *push_body(struct dgram **frame, uint32_t n)
{
	return frame[0]->data + WIRE_HEADER_BYTES + (n == 1 ? 0 : WIRE_SEGMENT_BYTES);
}

static void patch_id(struct dgram **frame, uint32_t n, uint32_t id, uint32_t gen, bool need_ack)
{
	const uint64_t both = (uint64_t)gen << 32 | id;
	uint8_t *body = push_body(frame, n);

	memcpy(body + PUSH_ID_OFFSET, &both, sizeof(both));
	body[PUSH_NEED_ACK_OFFSET] = need_ack;
	body[PUSH_ATTEMPT_OFFSET] = 0;
}

// What is sent again may arrive out of channel order, and says so. The bytes of a frame must not differ from
// those the receiver may hold already, so each of its segments says it for itself.
static void patch_attempt(struct dgram **frame, uint32_t n, uint8_t attempt)
{
	if (n == 1) {
		push_body(frame, 1)[PUSH_ATTEMPT_OFFSET] = attempt;
		return;
	}
	for (uint32_t i = 0; i < n; i++)
		frame[i]->data[WIRE_HEADER_BYTES + WIRE_SEGMENT_ATTEMPT_OFFSET] = attempt;
}

static void first_send(struct delivery *d, uint32_t i, uint64_t now_ns)
{
	struct record *r = &d->record[i];
	struct dgram **frame = record_frames(d, i);

	patch_id(frame, r->frames, record_push_id(d, i), r->gen, true);
	transmit(d, frame, r->frames, r->gateway, true, false);
	counter_add(d->io.counters, CTR_PUSH, 1);
	r->sends = 1;
	r->sent = sent_clock(now_ns);
	gateway_sent_add(d, i);
	r->resend_ns = now_ns + delivery_jitter(d, gateway_wait_ns(d, r->gateway));
	record_arm(d, i, now_ns);
}

// --- pushes that get no record ------------------------------------------------------------------------

// Ends all routes of a push that has no record. `match` is d->match when routes were handed out for it.
static void end_push(struct delivery *d, const struct delivery_push *push, const uint32_t *match,
	enum counter how)
{
	if (match == NULL) {
		counter_add(d->io.counters, how, push->routes);
		record_tell_spans(d, push->span, push->spans, how);
		return;
	}
	for (uint32_t s = 0; s < push->spans; s++) {
		const struct delivery_span *span = &push->span[s];
		uint32_t n = 0;

		for (uint32_t p = span->first; p < (uint32_t)span->first + span->count; p++) {
			if (match[p] == MATCH_NEW) {
				n++;
			} else if (match[p] != MATCH_ENDED) {
				n += record_end_ref(d, match[p]);
				record_drop_ref(d, match[p]);
			}
		}
		record_counted(d, span->message, how, n);
	}
}

static void refuse(struct delivery *d, const struct delivery_push *push, const uint32_t *match,
	enum counter how)
{
	d->io.dgram->free(d->io.queue, push->frame, push->frames);
	end_push(d, push, match, how);
}

static void send_unkept(struct delivery *d, const struct delivery_push *push, const uint32_t *match)
{
	patch_id(push->frame, push->frames, 0, 0, false);
	transmit(d, push->frame, push->frames, push->gateway, false, false);
	counter_add(d->io.counters, CTR_PUSH, 1);
	end_push(d, push, match, CTR_ROUTE_SENT);
}

// --- delivery_send ------------------------------------------------------------------------------------

static bool push_valid(const struct delivery *d, const struct delivery_push *push)
{
	const struct delivery_span *const last = &push->span[push->spans - 1u];

	return push->gateway != 0 && push->gateway <= d->limits.gateways && push->frames != 0 &&
	       push->frames <= FRAME_SEGMENTS_MAX && push->spans != 0 &&
	       push->spans <= DELIVERY_SPANS_MAX && push->routes <= FRAME_ROUTES_MAX &&
	       push->span[0].first == 0 && last->first + last->count == push->routes &&
	       push->acks != 0;
}

// Writes the references of matched routes into a new record.
static void install(struct delivery *d, uint32_t i, const uint32_t *match)
{
	struct record *r = &d->record[i];
	struct bits bits;

	record_materialise(d, i, &bits);
	r->flags |= RECORD_REFS;
	for (uint32_t p = 0; p < r->routes; p++) {
		bits.ref[p] = match[p] == MATCH_ENDED ? NONE : match[p];
		if (match[p] != MATCH_ENDED)
			continue;
		bits.alive[p / 64] &= ~(UINT64_C(1) << (p % 64));
		bits.active[p / 64] &= ~(UINT64_C(1) << (p % 64));
		r->alive_count--;
		r->active_count--;
	}
}

// True when a gateway may not take another record: its backlog is full, or records are scarce and it
// holds more than its share of them.
static bool crowded(const struct delivery *d, const struct delivery_push *push, bool waits)
{
	const struct gateway *gw = &d->gateway[push->gateway];
	const uint32_t large = !record_fits_small(push);

	if (waits && gw->backlog >= d->limits.backlog) {
		counter_add(d->io.counters, CTR_LIMIT_BACKLOG, 1);
		return true;
	}
	return d->free_count[large] < d->gateway_share[large] &&
	       gw->held[large] >= d->gateway_share[large];
}

bool delivery_pressed(const struct delivery *d, uint32_t gateway, bool large)
{
	const struct gateway *gw = &d->gateway[gateway];

	return 2 * gw->backlog > d->limits.backlog ||
	       d->free_count[large] < 2 * d->gateway_share[large];
}

static void keep(struct delivery *d, const struct delivery_push *push, const uint32_t *match,
	bool waits, uint64_t now_ns)
{
	const uint32_t i = crowded(d, push, waits) ? NONE : record_take(d, push);

	if (i == NONE) {
		refuse(d, push, match, CTR_ROUTE_OVERFLOW);
		return;
	}
	if (match != NULL)
		install(d, i, match);
	if (waits) {
		if (push->acks == ACKS_NONE)
			d->record[i].flags |= RECORD_NO_ACK;
		gateway_backlog_add(d, i);
		record_arm(d, i, now_ns);
	} else {
		first_send(d, i, now_ns);
	}
}

void delivery_send(struct delivery *d, const struct delivery_push *push, uint64_t now_ns)
{
	const struct gateway *gw = &d->gateway[push->gateway];
	const uint32_t *match = NULL;
	const bool no_ack = push->acks == ACKS_NONE;
	bool waits;

	assert(push_valid(d, push));
	d->credit += d->limits.resend_percent;
	if (!gateway_current(d, push->gateway)) {
		if (push->retried && retry_match(d, push) != MATCH_NOTHING)
			match = d->match;
		refuse(d, push, match, CTR_ROUTE_GATEWAY_GONE);
		return;
	}
	if (push->retried) {
		const uint32_t left = retry_match(d, push);

		if (left == 0) {
			d->io.dgram->free(d->io.queue, push->frame, push->frames);
			return;
		}
		if (left != MATCH_NOTHING)
			match = d->match;
	}
	// The order of a channel: nothing overtakes what waits for the same gateway.
	waits = gw->backlog != 0 || (!no_ack && gw->unanswered >= d->limits.window);
	if (no_ack && !waits)
		send_unkept(d, push, match);
	else
		keep(d, push, match, waits, now_ns);
}

bool gateway_open(struct delivery *d, uint32_t g, uint64_t now_ns)
{
	struct gateway *gw = &d->gateway[g];
	const uint32_t i = gw->backlog_head;
	struct record *r = &d->record[i];

	if (i == NONE || gw->unanswered >= d->limits.window)
		return false;
	if (r->flags & RECORD_NO_ACK) {
		patch_id(record_frames(d, i), r->frames, 0, 0, false);
		transmit(d, record_frames(d, i), r->frames, g, false, false);
		counter_add(d->io.counters, CTR_PUSH, 1);
		r->frames = 0;
		record_end(d, i, NULL, CTR_ROUTE_SENT);
		record_settle(d, i, now_ns);
		return true;
	}
	gateway_remove(d, i);
	first_send(d, i, now_ns);
	return true;
}

// --- resends ------------------------------------------------------------------------------------------

// Takes one resend off the budget. Returns: false when it is used up.
static bool budget_take(struct delivery *d, uint64_t now_ns)
{
	uint64_t passed = now_ns > d->credit_ns ? now_ns - d->credit_ns : 0;
	uint64_t more;

	if (passed > NS_PER_S) {
		passed = NS_PER_S;
		d->credit_ns = now_ns - passed;
	}
	more = passed * (100u * DELIVERY_RESEND_FLOOR) / NS_PER_S;
	d->credit += more;
	d->credit_ns += more * NS_PER_S / (100u * DELIVERY_RESEND_FLOOR);
	if (d->credit > d->credit_max)
		d->credit = d->credit_max;
	if (d->credit < 100)
		return false;
	d->credit -= 100;
	return true;
}

static bool all_exclusive(struct delivery *d, struct dgram **frame, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		if (!d->io.dgram->exclusive(frame[i]))
			return false;
	}
	return true;
}

// Ends the routes that were sent as often as they may be.
static void end_at_cap(struct delivery *d, uint32_t i)
{
	const uint32_t sends = d->record[i].sends;
	uint64_t mask[LARGE_WORDS] = {0};
	struct span_walk walk;
	bool any = false;

	for (struct delivery_span *s = span_first(d, i, &walk); s != NULL;
		s = span_next(d, &walk)) {
		if (s->attempt - 1u + sends < d->limits.attempts)
			continue;
		any = true;
		for (uint32_t w = s->first / 64u; w * 64u < (uint32_t)s->first + s->count; w++)
			mask[w] |= range_word(s->first, s->count, w);
	}
	if (any)
		record_end(d, i, mask, CTR_ROUTE_RETRY_CAP);
}

// The wait may have grown since the push was sent: by answers that came, or by another push that missed
// it. Returns: true when this one goes on waiting.
static bool waits_longer(struct delivery *d, struct record *r, uint64_t now_ns)
{
	const uint64_t wait = gateway_wait_ns(d, r->gateway);
	const uint64_t age = sent_age_ns(r->sent, now_ns);

	if (r->sends != 1 || age >= wait - wait / 4)
		return false;
	r->resend_ns = now_ns + delivery_jitter(d, wait) - age;
	return true;
}

// Between a resend and the next: doubled each time, from whatever the first wait was.
static uint64_t later_wait(struct delivery *d, const struct record *r, uint64_t now_ns)
{
	const uint64_t backoff = delivery_backoff(d, r->sends);
	uint64_t age = sent_age_ns(r->sent, now_ns);

	if (age > d->limits.retry_max_ns)
		age = d->limits.retry_max_ns;
	return backoff > age ? backoff : age;
}

void record_resend(struct delivery *d, uint32_t i, uint64_t now_ns)
{
	struct record *r = &d->record[i];
	struct dgram **frame = record_frames(d, i);

	if (waits_longer(d, r, now_ns))
		return;
	if (r->sends == 1)
		gateway_missed(d, i, now_ns);
	end_at_cap(d, i);
	if (r->alive_count == 0)
		return;
	if (!all_exclusive(d, frame, r->frames)) {
		r->resend_ns = now_ns + PUT_OFF_NS;
		return;
	}
	if (!budget_take(d, now_ns)) {
		counter_add(d->io.counters, CTR_RESEND_BUDGET, 1);
		r->resend_ns = now_ns + delivery_jitter(d, gateway_wait_ns(d, r->gateway) / 4);
		return;
	}
	patch_attempt(frame, r->frames, r->sends);
	transmit(d, frame, r->frames, r->gateway, true, true);
	counter_add(d->io.counters, CTR_PUSH_RESENT, 1);
	r->sends++;
	r->resend_ns = now_ns + later_wait(d, r, now_ns);
}
