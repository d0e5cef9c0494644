/* SPDX-License-Identifier: BSD-3-Clause */
// A whole node on ports without a network, and scripted clients around it: gateways and publishers that
// build and parse real datagrams. One thread steps everything. Over control_world.h.
#pragma once

#include "control_world.h"
#include "fake_dgram.h"
#include "wire_frame.h"

#define NET_CLIENTS 8u
#define NET_INBOX 8192u
#define NET_BASE 5000u

struct net_client {
	uint64_t id, boot, seq, cookie;
	struct net_addr addr;
	uint64_t stream_seq;
	struct wire_reassembly *frames;
	uint32_t frame_id;
	// what came in
	struct wire_hello_ack hello;
	uint32_t hellos;
	struct wire_publish_ack ack;  // the last
	uint32_t acks;
	struct wire_announce_ack announced;
	uint32_t heartbeats;
	uint32_t got[65536];  // deliveries by session slot
	uint64_t last_seq;
	uint32_t deliveries, pushes;
	bool silent;                   // answers no push
	bool receipts;                 // sends receipts for pushes that want them
	uint32_t retry_every;          // one push of so many has its first route called retryable,
	uint32_t drop_every;           // its last one dropped; 0: none
};

struct net {
	struct world *w;
	struct node *node;
	struct fake_port port[4];
	uint32_t seen[4];  // of each port's sent datagrams
	uint32_t workers;
	int steer;  // queue datagrams arrive on: -1 the right one, else that one
	struct wire_keys keys;
	struct net_client client[NET_CLIENTS];
	uint32_t answer_bytes;         // of the last datagram to a client
	// Runs the workers' turns in place of net_turn; NULL: it does so itself.
	void (*turn)(struct net *net);
};

void net_open(struct net *net, uint32_t workers, bool keys);
void net_close(struct net *net) CONTROL_ONLY;

// Sends a datagram with header and tag as the client would. `worker`: whose UDP port.
void net_send(struct net *net, struct net_client *c, uint32_t worker, uint8_t type,
	const void *body, uint32_t bytes);
// The same bytes as they are.
void net_raw(struct net *net, struct net_addr from, uint16_t port, const uint8_t *p, uint16_t len);
// Builds a datagram in `p`. Returns: its bytes.
uint16_t net_build(struct net *net, struct net_client *c, uint8_t type, const void *body,
	uint32_t bytes, uint8_t *p);

// One turn of every worker, as net_turn does it.
void net_worker_turns(struct net *net) WORKER_ONLY;
// One turn of every worker and one control step; clients take what is theirs and answer pushes.
void net_turn(struct net *net) WORKER_ONLY CONTROL_ONLY;
void net_turns(struct net *net, uint32_t n) WORKER_ONLY CONTROL_ONLY;

// HELLO with the cookie it was given.
void net_hello(struct net *net, struct net_client *c, uint8_t role, uint32_t worker);
// HELLO twice, turns in between.
void net_join(struct net *net, struct net_client *c, uint8_t role) WORKER_ONLY CONTROL_ONLY;
// Sessions slot from..to-1, generation 1, of UIDs prefix<slot>.
void net_announce(
	struct net *net, struct net_client *c, const char *prefix, uint32_t from, uint32_t to);

struct wire_publish net_message(const struct net_client *c, const char *channel,
	uint64_t message_id, enum wire_ack_class ack, uint32_t bytes);
// To the channel's worker, in segments when it is large.
void net_publish(struct net *net, struct net_client *c, const struct wire_publish *m);
void net_publish_to(
	struct net *net, struct net_client *c, const struct wire_publish *m, uint32_t worker);
uint32_t net_worker_of(const struct net *net, const char *channel);
uint64_t net_count(const struct net *net, enum counter id) CONTROL_ONLY;
