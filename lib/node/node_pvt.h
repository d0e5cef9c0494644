/* SPDX-License-Identifier: BSD-3-Clause */
// The inside of a node, for lib/node and its unit tests. Each group of fields names its owner.
//
//   node.c           create, destroy, statistics                     before and after the threads
//   node_worker.c    the poll turn                                   worker
//   node_rx.c        checks of a datagram, senders, steering         worker
//   node_control.c   the control step                                control core
//   node_gateway.c   HELLO, HEARTBEAT, ANNOUNCE, BYE                 control core
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

struct node_senders;  // replay windows of one worker, node_rx.c
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
	// worker: rw
	struct wire_lane lane;
	struct node_senders *senders;
	struct wire_reassembly *frames;
	struct idem *idem;
	struct delivery *delivery;
	struct fanout *fanout;
	// rings; this worker produces to_control and consumes from_control and from_worker[]
	struct wq_spsc to_control;               // struct node_request, NODE_MSG bytes by MTU
	struct wq_spsc from_control;             // struct node_reply
	struct wq_spsc from_worker[WORKERS_MAX]; // struct node_handoff, [producer]
};

struct node {
	// all: ro after creation
	struct node_params params;
	struct channel_table *channels;
	struct presence *presence;
	struct tag_space *tags;
	struct topology *topology;   // one-node: constant after creation
	// control: rw
	struct rcu_retire retire;
	struct counters *control_counters;
	struct node_control *control;
	struct node_worker worker[WORKERS_MAX];
};

// Control side, called by node.c. Returns: 0, -ENOMEM.
int node_control_create(struct node *node);
void node_control_destroy(struct node *node);

// Queues an answer or a command for a worker and wakes it. Returns: false when its ring is full.
bool node_control_reply(struct node *node, uint32_t worker, const struct node_reply *reply)
	CONTROL_ONLY;
void node_gateway_datagram(struct node *node, const struct node_request *request, uint64_t now_ns)
	CONTROL_ONLY;
// Builds asked for and running; a bounded piece per call. Returns: members handled.
void node_build_want(struct node *node, struct channel *channel) CONTROL_ONLY;
uint32_t node_build_step(struct node *node, uint64_t now_ns) CONTROL_ONLY;
