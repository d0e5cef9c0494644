/* SPDX-License-Identifier: BSD-3-Clause */
// A delivery object over the fake port and a presence made by hand: gateways 1..FIX_GATEWAYS, sessions
// named by their slot (generation 1), open until closed here. One test thread.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base_time.h"
#include "delivery.h"
#include "fake_dgram.h"
#include "unit.h"

#define FIX_GATEWAYS 4u
#define FIX_SLOTS 65536u
#define FIX_MESSAGES 65536u
#define FIX_GEN 1u
#define FIX_PART 300u  // bytes of a segment's part

struct fix {
	struct fake_port port;
	struct counters counters;
	struct wire_keys keys;
	struct wire_lane lane;
	struct presence_gateway gateway[FIX_GATEWAYS + 1];
	struct presence_view view;
	bool closed[FIX_GATEWAYS + 1][FIX_SLOTS];
	struct delivery_limits limits;
	struct delivery *d;
	uint64_t now;
	uint32_t frame_id;
	uint64_t stamp[FIX_MESSAGES];  // carried by the records of a message
	uint32_t sent_seen;  // sent datagrams fix_take_sent has looked at
	uint64_t last_seq;
	uint64_t sends;  // pushes taken by fix_take_sent
	// what ended
	uint32_t ended[FIX_MESSAGES];
	uint8_t ended_how[FIX_MESSAGES];  // the last one
	uint64_t ends, ends_by[CTR_COUNT];
	void (*watch)(void *ctx, uint32_t message, enum counter how, uint32_t count);
	void *watch_ctx;
};

// Small limits that tests change before fix_start.
void fix_init(struct fix *f);
void fix_start(struct fix *f);
// Ends the object; fails on a leaked datagram.
void fix_stop(struct fix *f);

// Sends a push to a gateway: one record and span for each of `spans`, whose routes are the next of
// `slots`. `first` is filled in. More than one datagram when `frames` > 1.
void fix_push(struct fix *f, uint32_t gateway, struct delivery_span *span, uint32_t spans,
	const uint32_t *slots, uint32_t frames) WORKER_ONLY;
// The common case: `count` routes of one message, slots message * 8 and on.
void fix_push_one(
	struct fix *f, uint32_t gateway, uint32_t message, uint32_t count, uint8_t ack) WORKER_ONLY;

// A push as the gateway saw it.
struct fix_sent {
	uint32_t gateway;
	uint32_t id, gen;
	uint8_t need_ack, attempt;
	uint8_t segment_attempt;  // of each of its segments
	uint32_t routes, frames;
	uint32_t message[FRAME_ROUTES_MAX];
	uint32_t slot[FRAME_ROUTES_MAX];
	uint64_t stamp[FRAME_ROUTES_MAX];
};
// The next push that was sent, checked: sealed for its gateway, sequence new. Returns: false at the end.
bool fix_take_sent(struct fix *f, struct fix_sent *sent);

void fix_ack(struct fix *f, const struct fix_sent *sent, const uint16_t *retryable,
	uint32_t retryable_count, const uint16_t *dropped, uint32_t dropped_count) WORKER_ONLY;
void fix_receipt(struct fix *f, const struct fix_sent *sent, uint32_t position) WORKER_ONLY;
// Ticks to `now`, as a worker would.
void fix_tick_to(struct fix *f, uint64_t now) WORKER_ONLY;
// Pushes every retry that is due, one record each. Returns: number.
uint32_t fix_retry_all(struct fix *f) WORKER_ONLY;
// Ends an incarnation and gives its index to the next one.
void fix_gateway_restart(struct fix *f, uint32_t gateway);
uint64_t fix_count(const struct fix *f, enum counter id);
