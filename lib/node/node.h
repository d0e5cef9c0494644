/* SPDX-License-Identifier: BSD-3-Clause */
// One whole node without threads, sockets or a clock: workers that take turns, a control core that takes
// steps. The daemon runs them on cores, the simulator from one loop; the code is the same.
//
// Threads: node_worker_* on that worker's core; node_control_* on the control core; create and destroy
// before and after both.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base_counters.h"
#include "base_role.h"
#include "delivery.h"
#include "dgram.h"
#include "fanout.h"
#include "store_feed.h"
#include "tag_read.h"
#include "store_read.h"
#include "wire_auth.h"

struct node;
struct node_worker;

// Where tags come from: pages of the authoritative store. Context: control core; a page per call, bounded.
struct node_source_ops {
	int (*position)(void *source, struct store_position *position);
	int (*next_channel)(
		void *source, const struct channel_key *cursor, struct store_channel *channel);
	int (*page)(void *source, const struct channel_key *key, enum store_list list,
		struct id_view after, uint32_t max, uint8_t *uids, uint32_t cap,
		struct store_page *page);
	int (*reopen)(void *source);  // after the store's generation changed
};

struct node_params {
	uint64_t id;
	uint64_t boot;  // differs at every start
	uint64_t cluster_id;
	struct net_addr addr;  // own address, port = base of the range
	uint16_t mtu;
	uint16_t workers;
	struct wire_keys keys;
	uint8_t cookie_secret[16];
	uint32_t channels, uids, gateways, senders, frames, ring_items;
	uint32_t window;
	uint64_t window_age_ns;
	uint64_t tag_bytes, tag_ttl_ns;
	uint32_t tag_steps;
	uint32_t build_members_per_step;
	uint64_t heartbeat_ns;
	struct fanout_limits fanout;
	struct delivery_limits delivery;

	const struct dgram_ops *dgram;
	void *queue[WORKERS_MAX];  // one per worker
	// Counters of each worker, shared with its port queue. Owns: the caller; NULL: the node makes its own.
	struct counters *counters[WORKERS_MAX];
	const struct node_source_ops *source_ops;
	void *source;
	// Ends the sleep of a worker (0..workers-1), or of the control core (WORKERS_MAX). Any thread.
	void (*wake)(void *ctx, uint32_t who);
	void *wake_ctx;
};

// Owns: all memory, reserved now. Returns: 0; -EINVAL with `why`; -ENOMEM.
int node_create(const struct node_params *params, struct node **node, const char **why);
void node_destroy(struct node *node);

// What the limits of a node come to, each under the option that sets it: upper ends, with one session and a
// name of 32 bytes per UID. `queue`, `counters` and the functions of `params` are not looked at.
struct node_memory {
	const char *option;
	uint64_t bytes;
};
#define NODE_MEMORY_ROWS 11u
void node_memory(const struct node_params *params, struct node_memory rows[NODE_MEMORY_ROWS]);

struct node_worker *node_worker_of(struct node *node, uint32_t worker);

// One poll turn: rx burst, inbound rings, timers, fan-out quanta, tx burst, one quiescent report.
// Returns: work done, 0 when the turn found nothing.
uint32_t node_worker_turn(struct node_worker *worker, uint64_t now_ns) WORKER_ONLY;
// What the turn just taken cost by the caller's clock: keeps the longest.
void node_worker_turn_took(struct node_worker *worker, uint64_t ns) WORKER_ONLY;
// Latest time the worker must turn again when nothing arrives.
uint64_t node_worker_next_ns(const struct node_worker *worker) WORKER_ONLY;

// One control step, bounded: requests of workers, announces, tag builds, sweeps, reclamation.
// Returns: work done.
uint32_t node_control_step(struct node *node, uint64_t now_ns) CONTROL_ONLY;

// The feed. HELLO's fields to send on (re)connect; WELCOME and DELTA as they arrive.
// Returns: 0; -EPROTO: a gap or a foreign generation, reconnect with a fresh HELLO.
void node_control_feed_hello(const struct node *node, struct store_feed_frame *hello) CONTROL_ONLY;
int node_control_feed(
	struct node *node, const struct store_feed_frame *frame, uint64_t now_ns) CONTROL_ONLY;
void node_control_feed_lost(struct node *node, uint64_t now_ns) CONTROL_ONLY;
// Commit number that all workers act on: what APPLIED may say.
uint64_t node_control_applied(struct node *node) CONTROL_ONLY;
// True once the channel table is complete and follows the feed.
bool node_control_ready(const struct node *node) CONTROL_ONLY;

// What may change while the node runs. Keys: authentication stays on or off as it was.
struct node_settings {
	struct wire_keys keys;
	uint64_t push_timeout_ns, retry_max_ns, receipt_timeout_ns;
	uint64_t deadline_ns, deadline_max_ns;
	uint64_t tag_ttl_ns;
};
// Those of `params`.
void node_settings_of(const struct node_params *params, struct node_settings *settings);
// Each worker acts on new settings from its next turn on; control steps bring them there. Of several, the last
// one counts. Returns: 0; -EINVAL: what they were made for cannot hold them.
int node_control_reload(struct node *node, const struct node_settings *settings) CONTROL_ONLY;
// True when the last ones are with every worker.
bool node_control_reloaded(const struct node *node) CONTROL_ONLY;

// --- what ctl shows ---------------------------------------------------------------------------------------

struct wq_monitor;

struct node_worker_stats {
	uint64_t turns, busy_turns;
	uint64_t turn_max_ns;  // longest turn
	struct fanout_stats fanout;
	struct delivery_stats delivery;
	uint32_t ring_depth_max;  // of its rings, now
};
struct node_limit {
	const char *name, *unit, *when_reached;
	uint64_t used, max, hits;
};
// Sums the counters of all threads into `out`. Context: control core, relaxed reads.
void node_counters(const struct node *node, uint64_t out[CTR_COUNT]) CONTROL_ONLY;
void node_worker_stats(
	const struct node *node, uint32_t worker, struct node_worker_stats *stats) CONTROL_ONLY;
// Fills up to `max` limits. Returns: number.
uint32_t node_limits(const struct node *node, struct node_limit *limits, uint32_t max) CONTROL_ONLY;
// Gives the monitor a sample of every ring between the node's threads.
void node_queues(const struct node *node, struct wq_monitor *monitor) CONTROL_ONLY;

// Smoothed time a gateway takes to answer a push, of the worker that sees it slowest; 0: not measured.
uint32_t node_gateway_srtt_us(const struct node *node, uint32_t gateway) CONTROL_ONLY;

struct node_tag_info {
	struct channel_key channel;
	struct tag_fence fence;
	uint64_t smv;
	uint32_t members, chunks, pins;
	uint64_t idle_ns;
};
// Walks live tags: start with *at = 0. Returns: false at the end.
bool node_next_tag(
	struct node *node, uint32_t *at, uint64_t now_ns, struct node_tag_info *info) CONTROL_ONLY;
struct presence *node_presence(struct node *node) CONTROL_ONLY;
