/* SPDX-License-Identifier: BSD-3-Clause */
// The inside of a node, for lib/node and its unit tests. Each group of fields names its owner.
//
//   node.c           create, destroy, statistics                     before and after the threads
//   node_memory.c    what the limits come to                         any
//   node_worker.c    the poll turn                                   worker
//   node_rx.c        checks of a datagram, steering, dispatch        worker
//   node_frame.c     publishes in segments                          worker
//   node_senders.c   replay windows and proven addresses             worker
//   node_tx.c        answers, hand-off, requests to the control core worker
//   node_control.c   the control step                                control core
//   node_gateway.c   HELLO, HEARTBEAT, ANNOUNCE, BYE                 control core
//   node_settings.c  what changes while the node runs               control core, worker
//   node_feed.c      deltas into the channel table, tag edits        control core
//   node_build.c     tag builds from the source, by pages            control core
#pragma once

#include "channel_table.h"
#include "node.h"
#include "node_msg.h"
#include "presence.h"
#include "tag.h"
#include "topology.h"
#include "wire_frame.h"
#include "wire_lane.h"
#include "wq_spsc.h"

struct node_senders;  // replay windows of one worker, node_senders.c
struct node_control;  // everything private to the control core, node_control.c

struct node_worker {
	// both: ro after creation
	struct node *node;
	uint16_t index;
	void *queue;
	struct presence_view presence;
	// worker: rw, control: relaxed reads
	struct counters *counters;
	_Atomic uint64_t turns, busy_turns, turn_max_ns;
	_Atomic uint32_t frames_incomplete;
	// worker: rw
	struct wire_keys keys;
	struct wire_lane lane;
	struct node_senders *senders;
	struct wire_reassembly *frames;
	struct idem *idem;
	struct delivery *delivery;
	struct fanout *fanout;
	uint64_t now_ns;  // of the turn
	uint32_t wake;  // who has something of this turn: bit w, bit WORKERS_MAX control
	uint16_t port;  // UDP port of this worker
	struct fanout_publish burst[BURST];  // parsed, to be admitted together
	uint32_t burst_count;
	struct dgram *out[BURST];  // to be sent with the next burst
	uint32_t out_count;
	struct dgram *spare[BURST];
	uint32_t spares;
	// rings; this worker produces to_control and consumes from_control and from_worker[]
	struct wq_spsc to_control;  // struct node_request, NODE_MSG bytes by MTU
	struct wq_spsc from_control;  // struct node_reply
	struct wq_spsc from_worker[WORKERS_MAX];  // struct node_handoff, [producer]
};

struct node {
	// all: ro after creation
	struct node_params params;
	struct dgram_ops worker_ops;  // params.dgram with `queue` meaning the worker
	struct channel_table *channels;
	struct presence *presence;
	struct tag_space *tags;
	struct topology *topology;  // one-node: constant after creation
	// control: rw
	struct rcu_retire retire;
	struct counters *control_counters;
	struct node_control *control;
	struct node_worker worker[WORKERS_MAX];
};

// Items and item sizes of the rings. Items are used in place: each starts aligned.
static inline uint32_t node_ring_items(uint32_t wanted)
{
	uint32_t items = 2;

	while (items < wanted)
		items *= 2;
	return items;
}
static inline uint32_t node_request_bytes(uint32_t mtu)
{
	return (uint32_t)(sizeof(struct node_request) + mtu - WIRE_UDP_OVERHEAD + 7) & ~7u;
}

// --- worker side --------------------------------------------------------------------------------------

// Replay windows of senders, at most `share` of them proven from one IP address (of all its ports: they cost
// nothing). Returns: NULL when there is no memory.
struct node_senders *node_senders_create(uint32_t limit, uint32_t share);
uint64_t node_senders_memory(uint32_t limit);
void node_senders_destroy(struct node_senders *senders);
// One (sender, boot, lane).
struct node_sender {
	uint64_t sender, boot;
	uint64_t heard_ns;
	struct net_addr addr;  // proven by a cookie, or the port is 0
	uint8_t lane;
	uint8_t state;  // enum node_sender_state
	uint32_t source;  // proven: number of its address's entry in node_senders, + 1
	uint32_t older, newer;  // proven from the same address: entry + 1
	struct wire_replay replay;
};
enum node_sender_state {
	NODE_SENDER_FREE = 0,
	NODE_SENDER_UNPROVEN = 1,  // may be displaced at any time
	NODE_SENDER_PROVEN = 2,  // echoed a cookie or is a registered gateway: kept until idle
};
// Finds or makes a sender. Returns: NULL when there is no room.
struct node_sender *node_senders_take(struct node_senders *senders,
	const struct wire_header *header, uint64_t now_ns) WORKER_ONLY;
// The sender is who it says at `addr`. Returns: false when another sender of that IP address, the one not
// heard of for longest, lost its proof for it: the address had its share.
bool node_senders_prove(
	struct node_senders *senders, struct node_sender *sender, struct net_addr addr) WORKER_ONLY;
uint32_t node_senders_count(const struct node_senders *senders);

// New settings from the control core.
void node_settings_take(struct node_worker *w, const struct node_settings *settings) WORKER_ONLY;

// Takes received, handed over and control's datagrams. Returns: number.
uint32_t node_rx_port(struct node_worker *w) WORKER_ONLY;
uint32_t node_rx_handed(struct node_worker *w) WORKER_ONLY;
uint32_t node_rx_replies(struct node_worker *w) WORKER_ONLY;
void node_rx_admit(struct node_worker *w) WORKER_ONLY;

// True when the sender echoed the cookie of this address, now or before.
bool node_rx_proven(struct node_worker *w, struct node_sender *sender,
	const struct wire_header *header, struct net_addr from, uint64_t cookie) WORKER_ONLY;
void node_rx_refuse(struct node_worker *w, const struct fanout_publish *p, enum counter why,
	enum wire_status status) WORKER_ONLY;
// A SEGMENT. `sender` is NULL when another worker checked it. Returns: 0, or the drop counter.
int node_rx_segment(struct node_worker *w, const struct dgram *d, const struct wire_header *header,
	struct wire_view body, struct node_sender *sender) WORKER_ONLY;

// An empty datagram of a store of them. Returns: NULL, counted, when the port has none.
struct dgram *node_tx_take(struct node_worker *w) WORKER_ONLY;
// The port's operations with `queue` meaning the worker: sends are counted and collected to bursts.
void node_tx_ops(const struct dgram_ops *port, struct dgram_ops *ops);
// Sends `body` (bytes) as one datagram of `type`.
void node_tx(struct node_worker *w, struct net_addr to, uint8_t type, uint64_t receiver_boot,
	const uint8_t *body, uint32_t bytes) WORKER_ONLY;
void node_tx_outcome(void *worker, struct net_addr to, uint64_t publisher_boot,
	const struct wire_publish_ack *ack) WORKER_ONLY;
void node_tx_flush(struct node_worker *w) WORKER_ONLY;
// Gives a datagram to worker `to`. Owns: the datagram is taken; dropped and counted when the ring is full.
void node_tx_hand_over(
	struct node_worker *w, uint32_t to, struct dgram *d, bool checked) WORKER_ONLY;
// Copies a client's request to the control core; dropped and counted when the ring is full.
void node_tx_request(struct node_worker *w, struct net_addr from, const struct wire_header *header,
	struct wire_view body) WORKER_ONLY;
bool node_tx_want_tag(void *worker, struct channel *channel) WORKER_ONLY;
// Wakes who was given something in this turn.
void node_tx_wake(struct node_worker *w) WORKER_ONLY;

// --- control side -------------------------------------------------------------------------------------

// A UID index must not be given out again while a push or a message may still name it.
uint64_t node_quarantine_ns(const struct node_settings *settings);

// Called by node.c. Returns: 0, -ENOMEM.
int node_control_create(struct node *node);
void node_control_destroy(struct node *node);

// Queues an answer or a command for a worker and wakes it. Returns: false when its ring is full.
bool node_control_reply(
	struct node *node, uint32_t worker, const struct node_reply *reply) CONTROL_ONLY;
void node_gateway_datagram(
	struct node *node, const struct node_request *request, uint64_t now_ns) CONTROL_ONLY;
// Builds asked for and running; a bounded piece per call. Returns: members handled.
void node_build_want(struct node *node, struct channel *channel) CONTROL_ONLY;
uint32_t node_build_step(struct node *node, uint64_t now_ns) CONTROL_ONLY;
