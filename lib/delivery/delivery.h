/* SPDX-License-Identifier: BSD-3-Clause */
// In-flight pushes of one worker: send, window and backlog per gateway, acknowledgement, receipts,
// resend and give-up. One object per worker, WORKER_ONLY; no allocation after creation, no clock, no call
// that blocks. Every route handed in ends exactly once, with one counter, reported through on_end.
//
// Promise kept here: a push whose records ask for an acknowledgement is resent with back-off until
// PUSH_ACK, the attempt cap or the deadline. Routes the gateway calls retryable, and for ack=client
// routes without a receipt in time, come back through delivery_next_retry for a narrowed push while their
// session lives. A resend takes a new sequence (and tag), so it is no replay; the push id stays.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base_counters.h"
#include "base_role.h"
#include "dgram.h"
#include "presence_read.h"
#include "wire.h"
#include "wire_lane.h"

struct delivery;

struct delivery_limits {
	uint32_t inflight;  // pushes in flight, 16..2^20
	uint32_t inflight_large;  // of them segmented or of more than 192 routes, 4..4096
	uint32_t gateways;  // incarnation indices, as presence
	uint32_t window;  // unanswered pushes per gateway
	uint32_t backlog;  // pushes waiting for the window per gateway: hard limit
	uint32_t attempts;  // sends of one route at most, the first included
	uint32_t resend_percent;  // resends per 100 data pushes, with a floor of 64 a second
	uint64_t
		push_timeout_ns;  // least time before the first resend of an unanswered push (rtt.h)
	uint64_t retry_max_ns;  // upper end of the back-off
	uint64_t receipt_timeout_ns;
	uint32_t seed;  // of the jitter
};

// Routes of one message in a push: positions first .. first + count - 1.
struct delivery_span {
	uint32_t message;  // the caller's name of the message
	uint16_t first;
	uint16_t count;
	uint8_t ack;  // enum wire_ack_class
	uint8_t attempt;  // 1 for a first push; retried routes: delivery_retry.attempt (or the most of several)
	uint64_t deadline_ns;
};

struct delivery_io {
	const struct dgram_ops *dgram;
	void *queue;
	struct wire_lane *lane;
	const struct presence_view *presence;
	struct counters *counters;
	// `count` routes of message `message` ended with `how` (CTR_ROUTE_*; ACCEPTED and ACKED are the good
	// ones). delivery has counted them already. Must not call delivery.
	void (*on_end)(void *ctx, uint32_t message, enum counter how, uint32_t count);
	// The same for whole spans, in one call: all routes of each ended with `how`. NULL: on_end is called for each.
	void (*on_spans)(
		void *ctx, const struct delivery_span *span, uint32_t spans, enum counter how);
	void *ctx;
};

// Owns: all memory, reserved now. Returns: NULL when there is none or a limit is out of range.
struct delivery *delivery_create(
	const struct delivery_limits *limits, const struct delivery_io *io);
// Bytes of the records, and of what is kept per gateway.
uint64_t delivery_memory(const struct delivery_limits *limits, uint64_t *gateways);
void delivery_destroy(struct delivery *d);  // frees what it holds without counting

#define DELIVERY_SPANS_MAX 64u  // records of one push

// A finished push. `frame[i]` are datagrams with room for header and tag around their body: body bytes of
// frame[i] are frame[i]->len - WIRE_HEADER_BYTES and stand at data + WIRE_HEADER_BYTES; headers are not
// written yet. One datagram of type WIRE_PUSH, or several of type WIRE_SEGMENT.
// push_id/push_gen stand at body offset 0 of the PUSH body; delivery chooses them and patches
// them (offset WIRE_SEGMENT_BYTES further in the first segment), as it does need_ack and attempt. Spans
// follow each other without a gap: first of the first is 0, their counts add up to `routes`. What they are in
// sum is told beside them (delivery_push_add), so that nobody has to go through them for it.
struct delivery_push {
	uint16_t gateway;  // incarnation index
	uint16_t routes;
	uint16_t frames;
	uint16_t spans;
	uint8_t acks;  // 1 << enum wire_ack_class of each span
	bool retried;  // some span has attempt > 1
	uint64_t deadline_ns;  // earliest
	struct dgram **frame;
	const struct delivery_span *span;
};

// Adds what `span`, one of its own, is to the sums of a push, which start from 0, false and UINT64_MAX.
static inline void delivery_push_add(struct delivery_push *push, const struct delivery_span *span)
{
	push->acks |= (uint8_t)(1u << span->ack);
	push->retried |= span->attempt > 1;
	if (span->deadline_ns < push->deadline_ns)
		push->deadline_ns = span->deadline_ns;
}

// Sends a push, or queues it behind the gateway's window. Owns: the datagrams are delivery's from here.
// What cannot be taken ends at once (ROUTE_OVERFLOW, ROUTE_GATEWAY_GONE). Without need of an
// acknowledgement (all spans ack none) the routes end as ROUTE_SENT when sent, and no record is kept.
// A route of a span with attempt > 1 is known again by (message, session): it stays one route, whichever
// of the pushes that carried it is answered first. Nothing is counted for a route that was acknowledged
// through an earlier push while it was on its way.
void delivery_send(
	struct delivery *d, const struct delivery_push *push, uint64_t now_ns) WORKER_ONLY;

// True when a message of many pushes had better wait with the next one to this gateway: half of its backlog
// is used, or half of all records of that size (`large`: segmented or of more than 192 routes). What is
// left is for others. Only advice: delivery_send takes what its limits allow.
bool delivery_pressed(const struct delivery *d, uint32_t gateway, bool large) WORKER_ONLY;

// Answers from the gateway whose incarnation index is `gateway` (already matched by sender and boot).
// Unknown, repeated, future and malformed ones are counted, nothing more.
void delivery_on_ack(struct delivery *d, uint32_t gateway, const struct wire_push_ack *ack,
	uint64_t now_ns) WORKER_ONLY;
void delivery_on_receipt(struct delivery *d, uint32_t gateway, const struct wire_receipt *receipt,
	uint64_t now_ns) WORKER_ONLY;

// Drives timers: resends within the budget, give-ups, pushes to dead incarnations, backlogs of windows
// that opened. Bounded by `max` actions. Returns: actions taken.
uint32_t delivery_tick(struct delivery *d, uint64_t now_ns, uint32_t max) WORKER_ONLY;

// One route due for a narrowed push.
struct delivery_retry {
	uint32_t message;
	uint64_t route;  // route word of the same session, known to be live
	uint8_t ack;
	uint8_t attempt;  // of the push to come
	uint64_t deadline_ns;
	struct wire_record record;  // names and payload; routes 0. Points into a held datagram
};
// Takes the next one. `record` is valid until the next call of any delivery function. The caller must
// push the route (delivery_send, attempt as given) before the next delivery_tick, or end it with
// delivery_end_retries. Returns: false when none is due, or FRAME_ROUTES_MAX were taken and not pushed yet.
bool delivery_next_retry(
	struct delivery *d, uint64_t now_ns, struct delivery_retry *retry) WORKER_ONLY;
// Ends routes taken by delivery_next_retry that could not be pushed. `route`: `count` entries as in a push
// record (wire_put_route), all of one message and gateway. A route that ended meanwhile is not counted.
void delivery_end_retries(struct delivery *d, uint32_t gateway, uint32_t message,
	const uint8_t *route, enum counter how, uint32_t count) WORKER_ONLY;
// Ends `count` routes that could not be pushed for the first time.
void delivery_end(
	struct delivery *d, uint32_t message, enum counter how, uint32_t count) WORKER_ONLY;

// Everything to this incarnation ends as ROUTE_GATEWAY_GONE, in bounded steps of delivery_tick.
void delivery_gateway_down(struct delivery *d, uint32_t gateway) WORKER_ONLY;

// New times from here on; what is armed keeps its own. As in the limits at creation.
void delivery_times(struct delivery *d, uint64_t push_timeout_ns, uint64_t retry_max_ns,
	uint64_t receipt_timeout_ns) WORKER_ONLY;

// Earliest time delivery_tick or delivery_next_retry has something to do: 0 when it has now, UINT64_MAX when
// nothing waits. May be early (timers of pushes that were answered are let run out), never late by more than one tick (131 us).
uint64_t delivery_next_ns(const struct delivery *d) WORKER_ONLY;

struct delivery_stats {
	uint32_t inflight;  // pushes kept: waiting, unanswered, or with routes that have not ended
	uint32_t inflight_max;  // most at once so far
	uint32_t backlog;  // of them waiting for a window
	uint32_t backlog_most;  // of one gateway at once, so far
	uint32_t retries_due;  // routes delivery_next_retry has for the caller
};
void delivery_stats(const struct delivery *d, struct delivery_stats *stats);
// Smoothed time gateway entry `gateway`, in use `use`, takes to answer a push; 0: not measured. Any thread.
uint32_t delivery_srtt_us(const struct delivery *d, uint32_t gateway, uint32_t use);
