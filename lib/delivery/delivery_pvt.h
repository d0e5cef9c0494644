/* SPDX-License-Identifier: BSD-3-Clause */
// The inside of lib/delivery, for its files and unit tests. Everything belongs to one worker.
//
//   delivery.c         create, destroy, statistics, next due time
//   delivery_record.c  records of pushes: spans, bitmaps, ends of routes, reuse
//   delivery_send.c    first sends, backlog, resends
//   delivery_ack.c     PUSH_ACK and RECEIPT
//   delivery_retry.c   routes on their way from one push into the next
//   delivery_timer.c   the tick: timers, dead incarnations, windows that opened
//
// Who owns a route. A route is at home in the record of the first push that carried it and stays there, as
// one bit of `alive`, until it ends; the home record lives as long as any such bit. A narrowed push that
// carries the route again has a record of its own whose position points home (`ref`). An answer to any of
// these pushes therefore finds the same bit, and the one that clears it ends the route: once. Positions
// of other pushes notice when they are next looked at, and let go of their reference.
// `active` marks the positions a record still drives (waiting for PUSH_ACK, receipt or retry): of all the
// positions that name a route, at most one, the newest.
#pragma once

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#include "base_limits.h"
#include "delivery.h"
#include "rtt.h"
#include "wheel.h"

#define NONE UINT32_MAX
#define NEVER UINT64_MAX

#define SMALL_ROUTES 192u
#define SMALL_WORDS (SMALL_ROUTES / 64u)
#define LARGE_WORDS (FRAME_ROUTES_MAX / 64u)
#define BLOCK_SPANS 10u
#define HANDED_MAX FRAME_ROUTES_MAX  // retries taken and not yet pushed: a frame's worth
#define DELIVERY_RESEND_FLOOR 64u  // resends a second allowed without data pushes
#define ACKS_NONE (1u << WIRE_ACK_NONE)  // delivery_push.acks: nobody asks for an acknowledgement
#define ACKS_GATEWAY (1u << WIRE_ACK_GATEWAY)
#define LARGE_BIT (UINT32_C(1) << 31)  // of a push id and of a reference: the record is a large one

#define WIRE_FLAGS_OFFSET 4u  // of a datagram's header: says whether a tag ends it
// Byte offsets inside a PUSH body that delivery patches.
#define PUSH_ID_OFFSET 0u
#define PUSH_NEED_ACK_OFFSET (WIRE_PUSH_RECORDS_OFFSET + 4u)
#define PUSH_ATTEMPT_OFFSET (WIRE_PUSH_RECORDS_OFFSET + 5u)

enum record_state { RECORD_FREE = 0, RECORD_BACKLOG = 1, RECORD_SENT = 2, RECORD_DETACHED = 3 };

enum record_flag {
	RECORD_FRESH = 1 << 0,  // every position alive and active; the bitmaps are not written yet
	RECORD_ACKED = 1 << 1,  // PUSH_ACK came
	RECORD_REFS = 1 << 2,  // some positions point home
	RECORD_READY = 1 << 3,  // in the list of records with retries that are due
	RECORD_NO_ACK = 1 << 4,  // backlogged push of ack none: ends when sent
	RECORD_ALIKE = 1 << 5,  // all spans are of one class, and that is not client
};

// One push. The first line is all that a first send and a clean PUSH_ACK touch beside the first span.
struct record {
	uint32_t gen;  // of the push id; grows with each reuse, never 0
	uint32_t epoch;  // of the gateway's entry when it was made
	uint16_t gateway;
	uint16_t routes;
	uint8_t state;  // enum record_state
	uint8_t flags;  // enum record_flag
	uint8_t sends;  // of this push
	uint8_t spans;
	struct dgram *frame;  // of a small one; large ones have an array
	struct wheel_node timer;
	uint32_t next, prev;  // in the gateway's backlog, or the free list (next)
	uint32_t block;  // spans beyond the first
	uint16_t alive_count, active_count, retry_count;
	uint16_t frames;  // held; 0 once nothing can be sent from it again
	uint32_t sent;  // when it was sent first: sent_clock

	_Alignas(64) struct delivery_span span;
	uint64_t deadline_ns;  // earliest of its spans that may hold an alive route
	uint64_t resend_ns;  // while unanswered
	uint64_t retry_ns;  // when retryable routes are due
	uint64_t receipt_ns;  // when routes without receipt are due, NEVER
	uint32_t refs;  // positions and handed retries that point home to here
	uint32_t ready_next, ready_prev;
	uint64_t alive[SMALL_WORDS], active[SMALL_WORDS];
};
_Static_assert(sizeof(struct record) == 192, "three lines, the third untouched by a clean push");

struct small_cold {
	uint64_t retry[SMALL_WORDS];
	uint32_t ref[SMALL_ROUTES];
};
struct large_cold {
	uint64_t alive[LARGE_WORDS], active[LARGE_WORDS], retry[LARGE_WORDS];
	uint32_t ref[FRAME_ROUTES_MAX];
	struct dgram *frame[FRAME_SEGMENTS_MAX];
};

struct span_block {
	struct delivery_span span[BLOCK_SPANS];
	uint32_t next;
	uint32_t pad[3];
};
_Static_assert(sizeof(struct span_block) == 256, "four lines");

// The bitmaps of one record, wherever they stand.
struct bits {
	uint64_t *alive, *active, *retry;
	uint32_t *ref;
	uint32_t words;
};

struct gateway {
	uint32_t use;  // of the presence entry that the records belong to
	uint32_t epoch;  // grows when the incarnation ends; records of an older one are ended
	uint32_t unanswered;  // pushes sent, without PUSH_ACK
	uint32_t backlog;  // pushes waiting
	uint32_t held[2];  // records of this epoch, small and large
	uint32_t backlog_head, backlog_tail;
	uint16_t open_next;  // 0: none
	bool opening;
	struct rtt rtt;
	_Atomic uint64_t shown;  // control: relaxed reads. Low 32 bits of `use` << 32 | smoothed us
};

// A route taken by delivery_next_retry and not yet pushed.
struct handed {
	uint64_t session;  // route word without flags
	uint32_t message;
	uint32_t home;  // reference
	uint32_t chain;  // hash chain, or free list
};

// Where the last walk through a push's records stopped.
struct walk {
	uint32_t index, gen;  // record, NONE
	uint32_t first, end;  // positions of `record`
	struct wire_view rest;  // records behind it
	struct wire_record record;
};

struct fifo16 {
	uint16_t head, tail;
};

struct delivery {
	struct delivery_limits limits;
	struct delivery_io io;

	uint32_t small_count, total;  // records; large ones stand behind the small ones
	struct record *record;
	struct small_cold *small;
	struct large_cold *large;
	struct span_block *block;
	uint32_t block_count, block_free, blocks_free, block_unused;

	uint32_t free_head[2], free_count[2];  // [0] small, [1] large: last in, first out
	uint32_t inflight, inflight_max;
	uint32_t backlog;
	_Atomic uint32_t backlog_most;  // of one gateway; control: relaxed reads
	uint32_t retries_due;
	uint32_t ready_head, ready_tail;
	uint32_t gateway_share[2];  // records a gateway may hold when no more than that are left

	struct gateway *gateway;
	struct fifo16 open;  // gateways with room for their backlog
	uint32_t drain_at;  // records are looked at from here for those of ended incarnations
	uint32_t drain_left;  // so many of them; 0 when there is none to find
	struct wheel wheel;

	uint64_t credit;  // of resends, in hundredths
	uint64_t credit_max;
	uint64_t credit_ns;  // floor added up to here
	uint32_t random;

	struct handed *handed;
	uint32_t *handed_hash;
	uint32_t handed_free, handed_count;
	uint32_t *match;  // references of the push being sent, by position
	uint8_t *scratch;  // a segmented frame put together
	struct walk walk;
};

// --- records (delivery_record.c) ----------------------------------------------------------------------

static inline bool record_is_large(const struct delivery *d, uint32_t i)
{
	return i >= d->small_count;
}

static inline bool record_fits_small(const struct delivery_push *push)
{
	return push->frames == 1 && push->routes <= SMALL_ROUTES;
}

static inline uint32_t record_push_id(const struct delivery *d, uint32_t i)
{
	return record_is_large(d, i) ? LARGE_BIT | (i - d->small_count) : i;
}

// Returns: NONE when there is no such record.
static inline uint32_t record_of_push_id(const struct delivery *d, uint32_t push_id)
{
	const uint32_t n = push_id & ~LARGE_BIT;

	if (push_id & LARGE_BIT)
		return n < d->total - d->small_count ? d->small_count + n : NONE;
	return n < d->small_count ? n : NONE;
}

// A reference names a record and a position in 32 bits; never NONE.
static inline uint32_t ref_make(const struct delivery *d, uint32_t i, uint32_t position)
{
	return record_is_large(d, i) ? LARGE_BIT | (i - d->small_count) << 12 | position
				     : i << 8 | position;
}

static inline uint32_t ref_record(const struct delivery *d, uint32_t ref)
{
	return ref & LARGE_BIT ? d->small_count + ((ref & ~LARGE_BIT) >> 12) : ref >> 8;
}

static inline uint32_t ref_position(uint32_t ref)
{
	return ref & LARGE_BIT ? ref & 0xfffu : ref & 0xffu;
}

static inline struct dgram **record_frames(struct delivery *d, uint32_t i)
{
	return record_is_large(d, i) ? d->large[i - d->small_count].frame : &d->record[i].frame;
}

// Bits of word `w` that lie in positions first .. first + count - 1.
static inline uint64_t range_word(uint32_t first, uint32_t count, uint32_t w)
{
	const uint32_t base = w * 64u, end = first + count;
	uint64_t bits = ~UINT64_C(0);

	if (end <= base || first >= base + 64u)
		return 0;
	if (first > base)
		bits &= ~UINT64_C(0) << (first - base);
	if (end < base + 64u)
		bits &= ~UINT64_C(0) >> (base + 64u - end);
	return bits;
}

// Walk over the spans of a record.
struct span_walk {
	uint32_t left, block, at;
};
static inline struct delivery_span *span_first(
	struct delivery *d, uint32_t i, struct span_walk *walk)
{
	walk->left = d->record[i].spans - 1u;
	walk->block = d->record[i].block;
	walk->at = 0;
	return &d->record[i].span;
}
static inline struct delivery_span *span_next(struct delivery *d, struct span_walk *walk)
{
	if (walk->left == 0)
		return NULL;
	walk->left--;
	if (walk->at == BLOCK_SPANS) {
		walk->block = d->block[walk->block].next;
		walk->at = 0;
	}
	return &d->block[walk->block].span[walk->at++];
}

void record_bits(struct delivery *d, uint32_t i, struct bits *bits);
// Writes the bitmaps of a fresh record.
void record_materialise(struct delivery *d, uint32_t i, struct bits *bits);

// Takes a record for a push. Returns: NONE when there is none, or no room for its spans.
uint32_t record_take(struct delivery *d, const struct delivery_push *push);

// Ends the alive routes among the positions of `mask` (NULL: all).
void record_end(struct delivery *d, uint32_t i, const uint64_t *mask, enum counter how);
// Ends one route by its reference. Returns: 1, 0 when it had ended before.
uint32_t record_end_ref(struct delivery *d, uint32_t ref);
// Lets go of a reference; the home record is freed when it was the last thing that kept it.
void record_drop_ref(struct delivery *d, uint32_t ref);
bool record_ref_alive(struct delivery *d, uint32_t ref);
// Forgets positions whose route ended through another push.
void record_sweep(struct delivery *d, uint32_t i);
// After any change: frees the record when no route is left, else sets its timer.
void record_settle(struct delivery *d, uint32_t i, uint64_t now_ns);
// Time of the earliest thing the record waits for.
uint64_t record_due(const struct delivery *d, uint32_t i, uint64_t now_ns);
// Makes the record's timer fire by then. A timer that would fire before is left as it is and found to be
// early when it does: so most pushes come and go without touching the wheel.
void record_arm(struct delivery *d, uint32_t i, uint64_t now_ns);
void record_free_frames(struct delivery *d, uint32_t i);
void record_unready(struct delivery *d, uint32_t i);
void record_ready(struct delivery *d, uint32_t i);

static inline void record_counted(
	struct delivery *d, uint32_t message, enum counter how, uint32_t n)
{
	if (n == 0)
		return;
	counter_add(d->io.counters, how, n);
	d->io.on_end(d->io.ctx, message, how, n);
}

// Tells that every route of whole spans ended; they are counted already.
static inline void record_tell_spans(
	struct delivery *d, const struct delivery_span *span, uint32_t spans, enum counter how)
{
	if (d->io.on_spans != NULL) {
		d->io.on_spans(d->io.ctx, span, spans, how);
		return;
	}
	for (uint32_t s = 0; s < spans; s++)
		d->io.on_end(d->io.ctx, span[s].message, how, span[s].count);
}

// --- gateways (delivery_gateway.c) --------------------------------------------------------------------

// True when the incarnation lives; when it does not, or its entry changed hands, what is held is ended.
bool gateway_current(struct delivery *d, uint32_t g);
// Records of the incarnation are to be ended, by the tick.
void gateway_end(struct delivery *d, uint32_t g);
void gateway_sent_add(struct delivery *d, uint32_t i);  // unanswered
void gateway_backlog_add(struct delivery *d, uint32_t i);
void gateway_remove(struct delivery *d, uint32_t i);  // a record of either kind
// A push was answered, or ended without.
void gateway_answered(struct delivery *d, uint32_t g);
void gateway_dequeue_open(struct delivery *d);
// How long its pushes wait for their answer before they are sent again.
uint64_t gateway_wait_ns(const struct delivery *d, uint32_t g);
// That wait changes: push i, sent once, was answered; or was not, in time.
void gateway_measure(struct delivery *d, uint32_t i, uint64_t now_ns);
void gateway_missed(struct delivery *d, uint32_t i, uint64_t now_ns);

// Times of first sends are kept in 32 bits, in steps of 4 us: enough for 4.9 h, far more than a push waits
// for its first resend (retry_max is an hour at most).
static inline uint32_t sent_clock(uint64_t now_ns)
{
	return (uint32_t)(now_ns >> 12);
}
static inline uint64_t sent_age_ns(uint32_t sent, uint64_t now_ns)
{
	return (uint64_t)(sent_clock(now_ns) - sent) << 12;
}

// --- sending (delivery_send.c) ------------------------------------------------------------------------

// Sends the oldest of a backlog. Returns: false when there is none or the window is full.
bool gateway_open(struct delivery *d, uint32_t g, uint64_t now_ns);
// A resend is due: sends it, puts it off, or ends its routes at the cap.
void record_resend(struct delivery *d, uint32_t i, uint64_t now_ns);
// `interval` with 25 % of jitter either way.
uint64_t delivery_jitter(struct delivery *d, uint64_t interval_ns);
// Back-off before send number `sends` + 1.
uint64_t delivery_backoff(struct delivery *d, uint32_t sends);

// --- retries (delivery_retry.c) -----------------------------------------------------------------------

// Marks the active routes among `mask` for a retry; those sent as often as allowed end. Returns: the most
// sends any of them had.
uint32_t record_mark_retry(struct delivery *d, uint32_t i, uint64_t *mask);

#define MATCH_NEW NONE  // a route of its own
#define MATCH_ENDED (NONE - 1u)  // ended while it was on its way
#define MATCH_NOTHING NONE  // retry_match: no route of the push was handed out
// Finds the routes of a push that were handed out for it; fills d->match for each position. Their
// references are the caller's from here. Returns: positions that still want to be sent, or MATCH_NOTHING
// with d->match not filled.
uint32_t retry_match(struct delivery *d, const struct delivery_push *push);
