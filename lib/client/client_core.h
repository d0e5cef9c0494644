/* SPDX-License-Identifier: BSD-3-Clause */
// A tagcast client without socket, clock or thread: datagrams and `now_ns` in, datagrams and callbacks
// out. The shell in client.c runs one over a UDP socket; a simulator runs many from one loop. Same input,
// same output. One object belongs to one thread.
//
// Callbacks run inside client_core_rx and client_core_poll; they may call any function here but rx, poll
// and destroy.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "dgram.h"
#include "tagcast.h"
#include "wire_auth.h"

struct client_core;

struct client_core_config {
	uint64_t client_id;  // not 0; gateways: unique in the cluster
	uint64_t boot;  // first boot id, not 0; one more with every registration that was lost
	struct net_addr node;  // its base port
	bool gateway;
	uint16_t mtu;  // MTU_MIN..MTU_MAX
	struct wire_keys keys;
	uint32_t window;  // deliveries remembered against repetition, 16..2^24
	uint64_t window_ns;  // how long
	uint32_t publish_max;  // publishes in flight, 1..2^20
	uint32_t receipts;  // deliveries whose receipt may still come, 16..2^24
	uint32_t frames;  // large pushes in reassembly, 1..4096
	uint64_t seed;  // of the jitter
};

struct client_core_io {
	// Sends one datagram; the bytes are valid during the call.
	void (*send)(void *ctx, struct net_addr to, const uint8_t *bytes, uint16_t len);
	void *ctx;
};

// Owns: everything given is copied. Returns: 0, -EINVAL, -ENOMEM.
int client_core_create(const struct client_core_config *config, const struct client_core_io *io,
	const struct tagcast_callbacks *callbacks, uint64_t now_ns, struct client_core **core);
// Frees everything; nothing is sent, outcomes not given are lost.
void client_core_destroy(struct client_core *core);

// Takes one datagram; whatever is wrong with it is counted and forgotten.
void client_core_rx(struct client_core *core, const uint8_t *bytes, uint32_t len,
	struct net_addr from, uint64_t now_ns);
// Sends what is due: hello, heartbeat, announcements, publishes and their resends, receipts. Bounded per
// call; call it after a burst of rx and when client_core_next_ns has come.
void client_core_poll(struct client_core *core, uint64_t now_ns);
// When poll wants to run again; UINT64_MAX: only after rx or another call.
uint64_t client_core_next_ns(const struct client_core *core);

// As the functions of tagcast.h of the same names.
int client_core_publish(struct client_core *core, const struct tagcast_publish *publish,
	uint64_t now_ns, uint64_t *request);
uint32_t client_core_publish_pending(const struct client_core *core);
int client_core_session_open(
	struct client_core *core, struct tagcast_id uid, void *user, uint32_t *session);
int client_core_session_close(struct client_core *core, uint32_t session);
int client_core_receipt(struct client_core *core, uint32_t session, struct tagcast_id channel,
	unsigned channel_type, uint64_t message_id);
uint32_t client_core_announce_pending(const struct client_core *core);
void client_core_stats(const struct client_core *core, struct tagcast_stats *stats);

// Another set of keys; authentication stays on. Returns: 0, -EINVAL.
int client_core_set_keys(struct client_core *core, const struct wire_keys *keys);

// A gateway's goodbye: its sessions end at the node now. Nothing is sent for a publisher.
void client_core_bye(struct client_core *core);
bool client_core_registered(const struct client_core *core);
// The boot id of the current registration: what routes of this gateway carry.
uint64_t client_core_boot(const struct client_core *core);
