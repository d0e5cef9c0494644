/* SPDX-License-Identifier: BSD-3-Clause */
// What crosses between a worker and the control core of a node, and between workers: fixed-size values in
// one-to-one rings (lib/wq). Nothing else does, but RCU snapshots and counters.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base_limits.h"
#include "dgram.h"
#include "wire.h"

#define NODE_MSG_BYTES_MAX (MTU_MAX - WIRE_UDP_OVERHEAD)

// worker -> control
enum node_request_kind {
	NODE_REQ_DATAGRAM = 1,  // HELLO, HEARTBEAT, ANNOUNCE, BYE: checked, body copied
	NODE_REQ_TAG = 2,  // a message waits for a tag of `channel`
};
struct node_request {
	uint8_t kind;
	uint8_t worker;
	uint16_t bytes;
	uint32_t channel, use;  // TAG
	struct net_addr from;  // DATAGRAM
	struct wire_header header;
	uint8_t body[];  // ring items are sized by the port's MTU
};

// control -> worker
enum node_reply_kind {
	NODE_REP_DATAGRAM = 1,  // send this body
	NODE_REP_GATEWAY_DOWN = 2,  // end what is in flight to it
	NODE_REP_CHANNEL_GONE = 3,  // end what is queued for it
	NODE_REP_SETTINGS = 4,  // act on these: struct node_settings in the body
};
struct node_reply {
	uint8_t kind;
	uint8_t type;  // DATAGRAM: enum wire_type
	uint16_t bytes;
	uint32_t index, use;  // GATEWAY_DOWN, CHANNEL_GONE
	struct net_addr to;
	uint64_t receiver_boot;
	uint8_t body[256];  // answers are short
};

// worker -> worker: a datagram that came in on the wrong queue, or a PUBLISH sent to the wrong port
struct node_handoff {
	struct dgram *dgram;
	bool checked;  // authentication, replay and cookie were checked by the worker it was sent to
};
