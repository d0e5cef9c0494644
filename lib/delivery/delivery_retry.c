/* SPDX-License-Identifier: BSD-3-Clause */
// Routes on their way from one push into the next: taken by delivery_next_retry, found again by
// (message, session) in the push that carries them, or ended by delivery_end_retries. Worker thread.
#include <string.h>

#include "delivery_pvt.h"

#define STEPS_MAX 1024u  // routes looked at by one delivery_next_retry
#define HASH_BITS 13u

_Static_assert(1u << HASH_BITS == 2 * HANDED_MAX, "two buckets an entry");

// --- marking ------------------------------------------------------------------------------------------

uint32_t record_mark_retry(struct delivery *d, uint32_t i, uint64_t *mask)
{
	struct record *r = &d->record[i];
	uint64_t capped[LARGE_WORDS] = {0};
	struct span_walk walk;
	bool any_capped = false;
	uint32_t most = 0;
	struct bits bits;

	record_materialise(d, i, &bits);
	for (struct delivery_span *s = span_first(d, i, &walk); s != NULL;
		s = span_next(d, &walk)) {
		const uint32_t sent = s->attempt - 1u + r->sends;
		const bool cap = sent >= d->limits.attempts;

		for (uint32_t w = s->first / 64u; w * 64u < (uint32_t)s->first + s->count; w++) {
			const uint64_t m =
				mask[w] & bits.active[w] & range_word(s->first, s->count, w);

			if (m == 0)
				continue;
			if (cap) {
				capped[w] |= m;
				any_capped = true;
			} else if (sent > most) {
				most = sent;
			}
		}
	}
	if (any_capped)
		record_end(d, i, capped, CTR_ROUTE_RETRY_CAP);
	if (r->retry_count == 0)
		memset(bits.retry, 0, bits.words * sizeof(bits.retry[0]));
	for (uint32_t w = 0; w < bits.words; w++) {
		const uint64_t m = mask[w] & bits.active[w] & ~bits.retry[w];
		const uint16_t n = (uint16_t)__builtin_popcountll(m);

		bits.retry[w] |= m;
		r->retry_count += n;
		if (r->flags & RECORD_READY)
			d->retries_due += n;
	}
	return most;
}

// --- walking through a push ---------------------------------------------------------------------------

// The body of a push in one piece: in its only datagram, or put together in d->scratch.
static struct wire_view frame_body(
	struct delivery *d, struct dgram **frame, uint32_t n, bool sealed)
{
	uint32_t at = 0;

	if (n > 1)
		d->walk.index = NONE;
	for (uint32_t k = 0; k < n; k++) {
		const uint32_t head = WIRE_HEADER_BYTES + (n > 1 ? WIRE_SEGMENT_BYTES : 0);
		const uint32_t tail = sealed && frame[k]->data[WIRE_FLAGS_OFFSET] & WIRE_AUTH
					      ? WIRE_TAG_BYTES
					      : 0;
		const uint32_t len = frame[k]->len - head - tail;

		if (n == 1)
			return (struct wire_view){.p = frame[0]->data + head, .len = len};
		assert(at + len <= FRAME_BYTES_MAX);
		memcpy(d->scratch + at, frame[k]->data + head, len);
		at += len;
	}
	return (struct wire_view){.p = d->scratch, .len = at};
}

static void walk_start(struct walk *walk, struct wire_view body)
{
	walk->first = 0;
	walk->end = 0;
	walk->rest = (struct wire_view){
		.p = body.p + WIRE_PUSH_BYTES,
		.len = body.len - WIRE_PUSH_BYTES,
	};
}

// Goes on to the record of `position`. Returns: its route there, without flags.
static uint64_t walk_route(struct walk *walk, uint32_t position, uint32_t gateway)
{
	uint32_t slot, gen;

	while (position >= walk->end) {
		const bool more = wire_push_next(&walk->rest, &walk->record);

		assert(more);
		walk->first = walk->end;
		walk->end += more ? walk->record.routes : FRAME_ROUTES_MAX;
	}
	wire_get_route(
		walk->record.route + (position - walk->first) * WIRE_ROUTE_BYTES, &slot, &gen);
	return route_word(gateway, slot, gen);
}

// The same in a kept push, going on where the last walk stopped if that was before `position`.
static uint64_t record_route(struct delivery *d, uint32_t i, uint32_t position)
{
	const struct record *r = &d->record[i];
	struct walk *walk = &d->walk;

	if (walk->index != i || walk->gen != r->gen || position < walk->first) {
		walk_start(walk, frame_body(d, record_frames(d, i), r->frames, true));
		walk->index = i;
		walk->gen = r->gen;
	}
	return walk_route(walk, position, r->gateway);
}

// --- handed-out routes --------------------------------------------------------------------------------

static uint32_t *bucket(struct delivery *d, uint32_t message, uint64_t session)
{
	const uint64_t mixed = (session ^ (uint64_t)message << 17) * UINT64_C(0x9e3779b97f4a7c15);

	return &d->handed_hash[mixed >> (64 - HASH_BITS)];
}

static void handed_add(struct delivery *d, uint32_t message, uint64_t session, uint32_t home)
{
	uint32_t *head = bucket(d, message, session);
	const uint32_t h = d->handed_free;
	struct handed *e = &d->handed[h];

	d->handed_free = e->chain;
	*e = (struct handed){
		.session = session,
		.message = message,
		.home = home,
		.chain = *head,
	};
	*head = h;
	d->handed_count++;
	d->record[ref_record(d, home)].refs++;
}

// Takes a handed-out route by its name. Returns: its reference, or NONE.
static uint32_t handed_take(struct delivery *d, uint32_t message, uint64_t session)
{
	for (uint32_t *link = bucket(d, message, session); *link != NONE;
		link = &d->handed[*link].chain) {
		const uint32_t h = *link;
		struct handed *e = &d->handed[h];

		if (e->message != message || e->session != session)
			continue;
		*link = e->chain;
		e->chain = d->handed_free;
		d->handed_free = h;
		d->handed_count--;
		return e->home;
	}
	return NONE;
}

// What a handed-out route is in its new push: its reference, or MATCH_ENDED.
static uint32_t match_home(struct delivery *d, uint32_t home, uint32_t message)
{
	const struct record *r = &d->record[ref_record(d, home)];

	if (r->epoch != d->gateway[r->gateway].epoch)
		record_counted(d, message, CTR_ROUTE_GATEWAY_GONE, record_end_ref(d, home));
	if (!record_ref_alive(d, home)) {
		record_drop_ref(d, home);
		return MATCH_ENDED;
	}
	counter_add(d->io.counters, CTR_ROUTE_RETRIED, 1);
	if (r->active_count == 0)
		record_free_frames(d, ref_record(d, home));
	return home;
}

uint32_t retry_match(struct delivery *d, const struct delivery_push *push)
{
	uint32_t left = 0, found = 0;
	struct walk walk;

	if (d->handed_count == 0)
		return MATCH_NOTHING;
	walk_start(&walk, frame_body(d, push->frame, push->frames, false));
	for (uint32_t s = 0; s < push->spans; s++) {
		const struct delivery_span *span = &push->span[s];

		for (uint32_t p = span->first; p < (uint32_t)span->first + span->count; p++) {
			uint32_t home = NONE;

			if (span->attempt > 1)
				home = handed_take(
					d, span->message, walk_route(&walk, p, push->gateway));
			d->match[p] = home == NONE ? MATCH_NEW : match_home(d, home, span->message);
			found += home != NONE;
			left += d->match[p] != MATCH_ENDED;
		}
	}
	return found == 0 ? MATCH_NOTHING : left;
}

void delivery_end_retries(struct delivery *d, uint32_t gateway, uint32_t message,
	const uint8_t *route, enum counter how, uint32_t count)
{
	uint32_t ended = 0;

	for (uint32_t k = 0; k < count; k++) {
		uint32_t slot, gen, home;

		wire_get_route(route + k * WIRE_ROUTE_BYTES, &slot, &gen);
		home = handed_take(d, message, route_word(gateway, slot, gen));
		assert(home != NONE);
		if (home == NONE)
			continue;
		ended += record_end_ref(d, home);
		record_drop_ref(d, home);
	}
	record_counted(d, message, how, ended);
}

void delivery_end(struct delivery *d, uint32_t message, enum counter how, uint32_t count)
{
	record_counted(d, message, how, count);
}

// --- delivery_next_retry ------------------------------------------------------------------------------

static const struct delivery_span *span_of(struct delivery *d, uint32_t i, uint32_t position)
{
	struct span_walk walk;
	struct delivery_span *s = span_first(d, i, &walk);

	while (position >= (uint32_t)s->first + s->count)
		s = span_next(d, &walk);
	return s;
}

static uint32_t first_retry(const struct bits *bits)
{
	uint32_t w = 0;

	while (w + 1 < bits->words && bits->retry[w] == 0)
		w++;
	assert(bits->retry[w] != 0);  // a ready record has a route to retry
	return w * 64u + (uint32_t)__builtin_ctzll(bits->retry[w]);
}

// Why a route cannot be retried, or 0. On success `route` is its word.
static enum counter why_not(struct delivery *d, uint32_t i, uint32_t position,
	const struct delivery_span *span, uint64_t now_ns, uint64_t *route)
{
	if (span->deadline_ns <= now_ns)
		return CTR_ROUTE_DEADLINE;
	*route = record_route(d, i, position);
	if (!presence_session_live(
		    d->io.presence, d->record[i].gateway, route_slot(*route), route_gen(*route)))
		return CTR_ROUTE_SESSION_GONE;
	return 0;
}

// Takes the first due route of record i. Returns: false when it ended instead.
static bool take_route(
	struct delivery *d, uint32_t i, uint64_t now_ns, struct delivery_retry *retry)
{
	struct record *r = &d->record[i];
	const struct delivery_span *span;
	uint64_t mask[LARGE_WORDS];
	uint32_t p, home;
	enum counter how;
	uint64_t route = 0;
	struct bits bits;

	record_bits(d, i, &bits);
	p = first_retry(&bits);
	span = span_of(d, i, p);
	home = r->flags & RECORD_REFS && bits.ref[p] != NONE ? bits.ref[p] : ref_make(d, i, p);
	how = why_not(d, i, p, span, now_ns, &route);
	if (how != 0 || !record_ref_alive(d, home)) {
		memset(mask, 0, bits.words * sizeof(mask[0]));
		mask[p / 64] = UINT64_C(1) << (p % 64);
		record_end(d, i, mask, how);
		return false;
	}
	*retry = (struct delivery_retry){
		.message = span->message,
		.route = route,
		.ack = span->ack,
		.attempt = (uint8_t)(span->attempt + r->sends),
		.deadline_ns = span->deadline_ns,
		.record = d->walk.record,
	};
	retry->record.routes = 0;
	retry->record.route = NULL;
	bits.retry[p / 64] &= ~(UINT64_C(1) << (p % 64));
	bits.active[p / 64] &= ~(UINT64_C(1) << (p % 64));
	r->retry_count--;
	r->active_count--;
	d->retries_due--;
	handed_add(d, span->message, route, home);
	return true;
}

bool delivery_next_retry(struct delivery *d, uint64_t now_ns, struct delivery_retry *retry)
{
	for (uint32_t step = 0; step < STEPS_MAX; step++) {
		const uint32_t i = d->ready_head;
		struct record *r;

		if (i == NONE || d->handed_free == NONE)
			return false;
		r = &d->record[i];
		if (!gateway_current(d, r->gateway) || r->epoch != d->gateway[r->gateway].epoch) {
			record_end(d, i, NULL, CTR_ROUTE_GATEWAY_GONE);
		} else if (take_route(d, i, now_ns, retry)) {
			// The datagrams stay until the route is pushed: `record` points into them.
			if (r->retry_count == 0)
				record_unready(d, i);
			record_arm(d, i, now_ns);
			return true;
		}
		record_settle(d, i, now_ns);
	}
	return false;
}
