/* SPDX-License-Identifier: BSD-3-Clause */
// Records of pushes: taking and freeing them, their bitmaps, and the one place where a route ends.
// Worker thread.
//
// Why a push id cannot be mistaken: a record's number changes with each use. To meet its own number again a
// record must be used 2^32 times, each use at least one datagram there and one answer back, or a timeout;
// that is hours at the highest rate of a single record, while a datagram lives for seconds and its sender's
// replay window for a thousand more.
//
// Records freed last are used first: they are in the caches, and so are their timers, which mostly are armed
// still and early enough, so that a push that is answered soon costs the wheel nothing.
#include <string.h>

#include "delivery_pvt.h"

// --- bitmaps ------------------------------------------------------------------------------------------

void record_bits(struct delivery *d, uint32_t i, struct bits *bits)
{
	struct record *r = &d->record[i];

	if (record_is_large(d, i)) {
		struct large_cold *c = &d->large[i - d->small_count];

		bits->alive = c->alive;
		bits->active = c->active;
		bits->retry = c->retry;
		bits->ref = c->ref;
	} else {
		bits->alive = r->alive;
		bits->active = r->active;
		bits->retry = d->small[i].retry;
		bits->ref = d->small[i].ref;
	}
	bits->words = (r->routes + 63u) / 64u;
}

void record_materialise(struct delivery *d, uint32_t i, struct bits *bits)
{
	struct record *r = &d->record[i];

	record_bits(d, i, bits);
	if (!(r->flags & RECORD_FRESH))
		return;
	r->flags &= (uint8_t)~RECORD_FRESH;
	for (uint32_t w = 0; w < bits->words; w++) {
		const uint64_t all = range_word(0, r->routes, w);

		bits->alive[w] = all;
		bits->active[w] = all;
	}
}

static uint16_t ones(uint64_t word)
{
	return (uint16_t)__builtin_popcountll(word);
}

// Takes alive positions `m` of word `w` out of every bitmap.
static void clear_word(
	struct delivery *d, struct record *r, const struct bits *bits, uint32_t w, uint64_t m)
{
	r->alive_count -= ones(bits->alive[w] & m);
	bits->alive[w] &= ~m;
	r->active_count -= ones(bits->active[w] & m);
	bits->active[w] &= ~m;
	if (r->retry_count != 0) {
		const uint16_t n = ones(bits->retry[w] & m);

		r->retry_count -= n;
		bits->retry[w] &= ~m;
		if (r->flags & RECORD_READY)
			d->retries_due -= n;
	}
}

// --- free lists ---------------------------------------------------------------------------------------

static uint32_t blocks_wanted(uint32_t spans)
{
	return (spans - 1 + BLOCK_SPANS - 1) / BLOCK_SPANS;
}

static uint32_t block_take(struct delivery *d)
{
	const uint32_t b = d->block_free;

	d->blocks_free--;
	if (b == NONE)
		return d->block_unused++;
	d->block_free = d->block[b].next;
	return b;
}

static void spans_take(struct delivery *d, struct record *r, const struct delivery_push *push)
{
	const struct delivery_span *from = push->span;
	uint32_t *link = &r->block, left = push->spans - 1u;

	r->spans = (uint8_t)push->spans;
	r->span = *from++;
	while (left != 0) {
		const uint32_t n = left < BLOCK_SPANS ? left : BLOCK_SPANS;
		struct span_block *b;

		*link = block_take(d);
		b = &d->block[*link];
		for (uint32_t s = 0; s < n; s++)
			b->span[s] = *from++;
		link = &b->next;
		left -= n;
	}
	*link = NONE;
	r->deadline_ns = push->deadline_ns;
}

static void spans_give(struct delivery *d, struct record *r)
{
	for (uint32_t b = r->block; b != NONE;) {
		const uint32_t next = d->block[b].next;

		d->block[b].next = d->block_free;
		d->block_free = b;
		d->blocks_free++;
		b = next;
	}
	r->block = NONE;
}

static void prefetch_record(const struct record *r)
{
	__builtin_prefetch(r, 1);
	__builtin_prefetch(&r->span, 1);
}

uint32_t record_take(struct delivery *d, const struct delivery_push *push)
{
	const uint32_t large = !record_fits_small(push);
	const uint32_t i = d->free_head[large];
	struct record *r;

	if (d->free_count[large] == 0 || d->blocks_free < blocks_wanted(push->spans))
		return NONE;
	r = &d->record[i];
	d->free_head[large] = r->next;
	d->free_count[large]--;
	if (r->next != NONE)
		prefetch_record(&d->record[r->next]);
	d->inflight++;
	if (d->inflight > d->inflight_max)
		d->inflight_max = d->inflight;
	spans_take(d, r, push);
	r->epoch = d->gateway[push->gateway].epoch;
	r->gateway = push->gateway;
	r->routes = push->routes;
	r->flags = RECORD_FRESH;
	if (push->acks == ACKS_NONE || push->acks == ACKS_GATEWAY)
		r->flags |= RECORD_ALIKE;
	r->sends = 0;
	r->alive_count = push->routes;
	r->active_count = push->routes;
	r->retry_count = 0;
	r->frames = push->frames;
	if (large)
		memcpy(record_frames(d, i), push->frame, push->frames * sizeof(push->frame[0]));
	else
		r->frame = push->frame[0];
	r->resend_ns = NEVER;
	r->retry_ns = NEVER;
	r->receipt_ns = NEVER;
	return i;
}

static void slot_give(struct delivery *d, uint32_t i)
{
	const uint32_t large = record_is_large(d, i);
	struct record *r = &d->record[i];

	r->state = RECORD_FREE;
	r->next = d->free_head[large];
	d->free_head[large] = i;
	d->free_count[large]++;
	d->inflight--;
}

void record_free_frames(struct delivery *d, uint32_t i)
{
	struct record *r = &d->record[i];

	if (r->frames == 0)
		return;
	d->io.dgram->free(d->io.queue, record_frames(d, i), r->frames);
	r->frames = 0;
}

// No route of the record is alive: takes it out of everything. Its slot is given back when nothing points
// to it any more.
static void detach(struct delivery *d, uint32_t i)
{
	struct record *r = &d->record[i];

	assert(r->alive_count == 0 && r->active_count == 0 && r->retry_count == 0);
	record_unready(d, i);
	gateway_remove(d, i);
	record_free_frames(d, i);
	spans_give(d, r);
	r->state = RECORD_DETACHED;
	if (++r->gen == 0)
		r->gen = 1;
	if (r->refs == 0)
		slot_give(d, i);
}

// --- references and ends ------------------------------------------------------------------------------

bool record_ref_alive(struct delivery *d, uint32_t ref)
{
	const uint32_t home = ref_record(d, ref), position = ref_position(ref);
	struct bits bits;

	if (d->record[home].state == RECORD_DETACHED)
		return false;
	record_bits(d, home, &bits);
	return bits.alive[position / 64] >> (position % 64) & 1;
}

uint32_t record_end_ref(struct delivery *d, uint32_t ref)
{
	const uint32_t home = ref_record(d, ref), position = ref_position(ref);
	struct record *r = &d->record[home];
	struct bits bits;

	if (!record_ref_alive(d, ref))
		return 0;
	record_bits(d, home, &bits);
	clear_word(d, r, &bits, position / 64, UINT64_C(1) << (position % 64));
	if (r->alive_count == 0)
		detach(d, home);
	return 1;
}

void record_drop_ref(struct delivery *d, uint32_t ref)
{
	const uint32_t home = ref_record(d, ref);
	struct record *r = &d->record[home];

	assert(r->refs > 0);
	if (--r->refs == 0 && r->state == RECORD_DETACHED)
		slot_give(d, home);
}

// Ends positions `m` of word `w` of a record with references. Returns: routes that ended by this.
static uint32_t end_refs(struct delivery *d, const struct bits *bits, uint32_t w, uint64_t m)
{
	uint32_t n = 0;

	for (; m != 0; m &= m - 1) {
		uint32_t *ref = &bits->ref[w * 64u + (uint32_t)__builtin_ctzll(m)];

		if (*ref == NONE) {
			n++;
			continue;
		}
		n += record_end_ref(d, *ref);
		record_drop_ref(d, *ref);
		*ref = NONE;
	}
	return n;
}

void record_end(struct delivery *d, uint32_t i, const uint64_t *mask, enum counter how)
{
	struct record *r = &d->record[i];
	struct span_walk walk;
	struct bits bits;

	record_materialise(d, i, &bits);
	for (struct delivery_span *s = span_first(d, i, &walk); s != NULL;
		s = span_next(d, &walk)) {
		uint32_t n = 0;

		for (uint32_t w = s->first / 64u; w * 64u < (uint32_t)s->first + s->count; w++) {
			const uint64_t m = bits.alive[w] & range_word(s->first, s->count, w) &
					   (mask == NULL ? ~UINT64_C(0) : mask[w]);

			if (m == 0)
				continue;
			n += r->flags & RECORD_REFS ? end_refs(d, &bits, w, m) : ones(m);
			clear_word(d, r, &bits, w, m);
		}
		record_counted(d, s->message, how, n);
	}
}

void record_sweep(struct delivery *d, uint32_t i)
{
	struct record *r = &d->record[i];
	struct bits bits;

	if (!(r->flags & RECORD_REFS))
		return;
	record_bits(d, i, &bits);
	for (uint32_t w = 0; w < bits.words; w++) {
		for (uint64_t m = bits.alive[w]; m != 0; m &= m - 1) {
			uint32_t *ref = &bits.ref[w * 64u + (uint32_t)__builtin_ctzll(m)];

			if (*ref == NONE || record_ref_alive(d, *ref))
				continue;
			record_drop_ref(d, *ref);
			*ref = NONE;
			clear_word(d, r, &bits, w, m & -m);
		}
	}
}

// --- readiness and timer ------------------------------------------------------------------------------

void record_ready(struct delivery *d, uint32_t i)
{
	struct record *r = &d->record[i];

	if (r->flags & RECORD_READY)
		return;
	r->flags |= RECORD_READY;
	d->retries_due += r->retry_count;
	r->ready_next = NONE;
	r->ready_prev = d->ready_tail;
	if (d->ready_tail == NONE)
		d->ready_head = i;
	else
		d->record[d->ready_tail].ready_next = i;
	d->ready_tail = i;
}

void record_unready(struct delivery *d, uint32_t i)
{
	struct record *r = &d->record[i];

	if (!(r->flags & RECORD_READY))
		return;
	r->flags &= (uint8_t)~RECORD_READY;
	d->retries_due -= r->retry_count;
	if (r->ready_prev == NONE)
		d->ready_head = r->ready_next;
	else
		d->record[r->ready_prev].ready_next = r->ready_next;
	if (r->ready_next == NONE)
		d->ready_tail = r->ready_prev;
	else
		d->record[r->ready_next].ready_prev = r->ready_prev;
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

uint64_t record_due(const struct delivery *d, uint32_t i, uint64_t now_ns)
{
	const struct record *r = &d->record[i];
	uint64_t due = earlier(r->deadline_ns, r->receipt_ns);

	if (!(r->flags & RECORD_ACKED))
		due = earlier(due, r->resend_ns);
	if (r->retry_count != 0 && !(r->flags & RECORD_READY))
		due = earlier(due, r->retry_ns);
	// Its routes went on into other pushes: look now and then whether they have ended.
	if (r->active_count == 0 && r->flags & RECORD_REFS)
		due = earlier(due,
			now_ns + earlier(d->limits.receipt_timeout_ns, d->limits.retry_max_ns));
	return due;
}

void record_arm(struct delivery *d, uint32_t i, uint64_t now_ns)
{
	const struct wheel_node *timer = &d->record[i].timer;
	const uint64_t due = record_due(d, i, now_ns);

	if (wheel_armed(timer)) {
		if (timer->due_ns <= due)
			return;
		wheel_cancel(&d->wheel, i);
	}
	if (due != NEVER)
		wheel_add(&d->wheel, i, due);
}

void record_settle(struct delivery *d, uint32_t i, uint64_t now_ns)
{
	struct record *r = &d->record[i];

	if (r->state == RECORD_FREE || r->state == RECORD_DETACHED)
		return;
	if (r->alive_count == 0) {
		detach(d, i);
		return;
	}
	if (r->retry_count == 0)
		record_unready(d, i);
	if (r->active_count == 0)
		record_free_frames(d, i);
	record_arm(d, i, now_ns);
}
