/* SPDX-License-Identifier: BSD-3-Clause */
// A pipeline with real tables around it and a port without a network, for the tests of lib/fanout: what is
// published goes in as datagrams, what leaves is taken apart into routes. One thread.
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka wants these first.
#include <cmocka.h>

#include "channel_table.h"
#include "fake_dgram.h"
#include "fanout.h"
#include "presence.h"
#include "tag.h"
#include "topology.h"
#include "wire_frame.h"

#define WORLD_START_NS (UINT64_C(1000) * 1000000000u)
#define MS UINT64_C(1000000)

// One route as a gateway received it.
struct arrived {
	uint32_t gateway;  // incarnation index
	uint32_t datagram;  // number of the push it came in
	uint64_t message_id, seq, stamp;
	uint32_t slot, gen;
	uint32_t payload_len;
	uint8_t payload_first;
	uint8_t flags;
	bool need_ack;
	uint32_t push_id, push_gen;
	uint16_t position, routes;  // in its push, of its push
};

struct told {
	struct net_addr to;
	uint64_t boot;
	struct wire_publish_ack ack;
};

struct world {
	struct fanout_limits limits;
	struct delivery_limits delivery_limits;
	uint64_t now_ns;
	struct rcu_retire retire;
	struct presence *presence;
	struct presence_view view;
	struct channel_table *channels;
	struct tag_space *tags;
	struct topology topology;
	struct topology_ref ref;
	struct idem *idem;
	struct delivery *delivery;
	struct fake_port port;
	struct counters counters;
	struct wire_keys keys;
	struct wire_lane lane;
	struct wire_reassembly *frames;  // the gateways' side
	struct fanout *fanout;

	struct arrived *arrived;
	uint32_t arrived_count, datagrams, sent_seen;
	uint32_t largest;  // datagram seen, with IP and UDP headers
	struct told told[4096];
	uint32_t told_count;
	uint32_t wants;  // calls of want_tag
	bool want_refused;
	uint32_t frames_done;
	uint16_t next_message;
};

// Limits as a test wants them may be changed between the two calls.
void world_defaults(struct world *w);
void world_start(struct world *w) WORKER_ONLY CONTROL_ONLY;
void world_end(struct world *w) WORKER_ONLY CONTROL_ONLY;

uint32_t world_gateway(struct world *w, uint64_t id, uint16_t mtu) CONTROL_ONLY;
void world_session(struct world *w, uint32_t gateway, uint32_t slot, uint32_t gen,
	const char *uid) CONTROL_ONLY;
struct channel *world_channel(struct world *w, const char *name) CONTROL_ONLY;
// Publishes a tag of `count` members named prefix0, prefix1 ... for the channel's current smv.
struct tag *world_tag(
	struct world *w, struct channel *channel, const char *prefix, uint32_t count) CONTROL_ONLY;
// `count` members prefix0.. each with one session, slot = number, spread over gateways 1..gateways.
void world_online(
	struct world *w, const char *prefix, uint32_t count, uint32_t gateways) CONTROL_ONLY;
void world_smv(struct channel *channel, uint64_t smv);

// A publish with a payload of `bytes`, every byte the low byte of the message id.
struct fanout_publish world_message(struct world *w, const char *channel, uint64_t message_id,
	enum wire_ack_class ack, uint32_t bytes);
void world_admit(struct world *w, struct fanout_publish *p) WORKER_ONLY;
void world_publish(struct world *w, const char *channel, uint64_t message_id,
	enum wire_ack_class ack, uint32_t bytes) WORKER_ONLY;
// tick, run, flush; then takes apart what was sent.
uint32_t world_turn(struct world *w) WORKER_ONLY;
void world_turns(struct world *w, uint32_t n) WORKER_ONLY;
// Accepts every push that wants it and arrived since `first`.
void world_ack(struct world *w, uint32_t first) WORKER_ONLY;

uint64_t world_count(const struct world *w, enum counter id);
// Arrivals of one message.
uint32_t world_arrivals(const struct world *w, uint64_t message_id);
const struct wire_publish_ack *world_last_told(const struct world *w);
// Members and routes of the counters add up.
void world_check_sums(const struct world *w);
