/* SPDX-License-Identifier: BSD-3-Clause */
// The burst pipeline of one worker: admit, resolve, expand, emit. Owns the messages between admission and
// outcome, the per-channel queues (in order), parked messages and the open pushes. WORKER_ONLY; memory
// reserved at creation; channel, tag and presence are read under RCU.
//
// A message: PUBLISH -> admitted (idempotence, limits) -> its channel's queue -> resolved (tag pinned,
// fence and seq fixed) or parked until a tag is published -> expanded in quanta -> routes end in
// lib/delivery -> outcome through fanout_io.outcome, exactly once. One to few members, with nothing of its
// channel before it, is expanded as it is admitted.
// ack none/gateway: the outcome is given when the expansion has been taken over (task accepted);
// ack client: when every route has ended.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base_counters.h"
#include "base_role.h"
#include "channel_read.h"
#include "delivery.h"
#include "idem.h"
#include "presence_read.h"
#include "wire.h"

struct fanout;

struct fanout_limits {
	uint32_t messages;  // admitted and unfinished
	uint32_t parked;  // of them waiting for a tag
	uint32_t parked_per_channel;
	uint32_t quantum_members;  // of one channel per turn of the round
	uint32_t
		turn_members;  // of all queued messages per worker turn; small ones half as many beside them
	uint32_t payload_bytes;
	uint32_t buffer_reserve;  // no expansion while fewer buffers are free
	uint64_t deadline_ns, deadline_max_ns;
	uint16_t mtu;  // of the port; pushes keep to the smaller of it and the gateway's
};

// Where the bytes of an admitted message live until its last push is built.
struct fanout_body {
	struct dgram *dgram;  // a datagram given over, or NULL
	uint32_t frame;  // else a reassembly handle, given back through frame_done
};

struct fanout_io {
	const struct dgram_ops *dgram;
	void *queue;
	const struct channel_table *channels;
	const struct presence_view *presence;
	struct delivery *delivery;
	struct idem *idem;
	struct wire_lane *lane;
	struct counters *counters;
	uint16_t local_port;  // source port of pushes
	void *ctx;
	// Asks the control core for a tag, once per channel and need; may be refused (ring full): asked again.
	bool (*want_tag)(void *ctx, struct channel *channel);
	void (*outcome)(void *ctx, struct net_addr to, uint64_t publisher_boot,
		const struct wire_publish_ack *ack);
	void (*frame_done)(void *ctx, uint32_t frame);
};

// Owns: all memory, reserved now; 0 in a limit is refused. Returns: NULL when there is no memory or a limit
// is out of range.
struct fanout *fanout_create(const struct fanout_limits *limits, const struct fanout_io *io);
// Bytes of the message slots; of what is kept per gateway and per channel.
uint64_t fanout_memory(const struct fanout_limits *limits, uint32_t channels, uint32_t gateways,
	uint64_t *channel_bytes, uint64_t *gateway_bytes);
void fanout_destroy(struct fanout *f);  // gives back the bodies and buffers it holds; no outcome

// One parsed PUBLISH of a burst.
struct fanout_publish {
	struct wire_publish m;
	struct net_addr from;
	uint64_t publisher_boot;
	struct fanout_body body;
};

// Takes a burst: hashes and looks channels up together, answers refusals and repeats at once.
// count <= BURST. Owns: every body is fanout's from here.
void fanout_admit(struct fanout *f, struct fanout_publish *burst, uint32_t count,
	uint64_t now_ns) WORKER_ONLY;

// A large publish came again, of which only the fields and the channel are at hand: the recorded outcome is
// given when there is one. Owns: nothing.
void fanout_repeat(struct fanout *f, const struct fanout_publish *p) WORKER_ONLY;

// Resolves parked messages whose tag came, expands a quantum of each runnable channel in turn, pushes
// retries that are due. Returns: members and retries handled.
uint32_t fanout_run(struct fanout *f, uint64_t now_ns) WORKER_ONLY;

// Ends the turn: closes the open pushes and hands them to delivery.
void fanout_flush(struct fanout *f, uint64_t now_ns) WORKER_ONLY;

// Delivery's on_end: routes of a message ended. Message is named by its slot.
void fanout_on_end(void *fanout, uint32_t message, enum counter how, uint32_t count) WORKER_ONLY;

// Delivery's on_spans: the same for whole spans.
void fanout_on_spans(void *fanout, const struct delivery_span *span, uint32_t spans,
	enum counter how) WORKER_ONLY;

// The control core takes this channel's record (index, use) away: messages that wait for its tag end as
// unknown channel; those resolved already are finished.
void fanout_channel_gone(
	struct fanout *f, uint32_t channel, uint32_t use, uint64_t now_ns) WORKER_ONLY;

// New deadlines of messages admitted from here on.
void fanout_deadlines(struct fanout *f, uint64_t deadline_ns, uint64_t deadline_max_ns) WORKER_ONLY;

// True when fanout_run would find something to do now.
bool fanout_runnable(const struct fanout *f) WORKER_ONLY;
uint64_t fanout_next_ns(const struct fanout *f) WORKER_ONLY;

struct fanout_stats {
	uint32_t messages, parked, runnable, open_pushes;
	uint32_t parked_channel_most;  // messages of one channel parked at once, so far
	uint32_t payload_most;  // bytes of the largest message so far
};
// As of the end of the last turn. Context: any thread.
void fanout_stats(const struct fanout *f, struct fanout_stats *stats);
