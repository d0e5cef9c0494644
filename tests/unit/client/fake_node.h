/* SPDX-License-Identifier: BSD-3-Clause */
// A scripted node and a seeded network around one client core, for tests of lib/client. The node speaks
// lib/wire, keeps what it was told, and answers as its knobs say. Time is a number that world_run moves.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "client_core.h"
#include "wire.h"
#include "wire_frame.h"
#include "wire_lane.h"

#define WORLD_MS UINT64_C(1000000)
#define WORLD_PACKETS 4096u
#define WORLD_SESSIONS 4096u
#define WORLD_LOG 4096u
#define WORLD_PUSHES 256u
#define WORLD_WORKERS 4u
#define WORLD_IP 0x0a000001u
#define WORLD_CLIENT_IP 0x0a000002u
#define WORLD_PORT 7000u

struct world_packet {
	uint64_t due_ns;
	uint64_t order;
	uint8_t *bytes;
	uint16_t len;
	uint16_t port;  // the node's side: destination or source
	bool to_client;
};

struct world_session {
	bool open;
	uint32_t gen;
	uint8_t uid_len;
	char uid[256];
};

struct world_outcome {
	uint64_t message_id, request, at_ns;
	int status, duplicate;
	uint32_t acked;
	void *user;
};

struct world_delivery {
	uint64_t message_id, seq;
	uint32_t session;
	void *user;
	int late;
	uint32_t payload_len;
	uint32_t payload_sum;
	char channel[64];
};

struct world_push {
	bool used, acked;
	uint32_t push_id, push_gen;
	uint32_t worker, routes;
	uint8_t *body;
	uint32_t len;
	uint64_t due_ns;
	uint32_t sends, acks;
	uint32_t accepted, retryable, dropped;
	uint16_t position[64];  // of the last answer
	uint8_t receipt[64];  // bitmap
	uint32_t receipts;  // RECEIPT datagrams
	uint32_t frame_id;
};

struct world {
	uint64_t now_ns;
	uint64_t random;
	// network
	uint32_t loss_percent, dup_percent;
	uint64_t delay_ns, jitter_ns;
	struct world_packet packet[WORLD_PACKETS];
	uint32_t packets;
	uint64_t order;
	bool cut;  // nothing passes
	bool (*filter)(
		struct world *w, const struct wire_header *header, bool to_client);  // false: lost
	// client
	struct client_core *core;
	struct client_core_config config;
	struct world_outcome outcome[WORLD_LOG];
	uint32_t outcomes;
	struct world_delivery delivery[WORLD_LOG];
	uint32_t deliveries;
	uint32_t states_up, states_down;
	enum tagcast_verdict (*verdict)(struct world *w, const struct world_delivery *d,
		const struct tagcast_message *message);
	// node: knobs
	uint64_t node_id, node_boot;
	struct wire_keys keys;
	uint16_t hello_status;  // instead of OK after the cookie
	bool no_cookie_check;
	bool ack_reject_once;  // next announce: first entry refused
	uint16_t publish_status[32];  // of the next publishes seen; WIRE_OK when used up
	uint32_t publish_statuses, publish_at;
	uint32_t retry_after_ms;
	bool mute_publish;
	uint64_t topology_version;
	uint32_t heartbeat_ms;
	uint64_t cookie_salt;
	// node: what it knows
	uint64_t client_boot;  // of the registration; 0: none
	uint64_t next_expected;
	struct world_session session[WORLD_SESSIONS];
	uint32_t sessions;
	struct wire_lane lane[WORLD_WORKERS];
	struct wire_replay replay[WORLD_WORKERS];
	uint64_t replay_boot;
	struct wire_reassembly *frames;
	uint64_t admitted[WORLD_LOG];  // message ids, once each
	uint32_t admissions;
	struct wire_publish last_publish;
	uint32_t last_publish_worker, last_payload_sum;
	uint32_t hellos, heartbeats, announces, publishes, byes, rejected_auth, rejected_replay,
		bad;
	uint32_t announce_entries;
	struct world_push push[WORLD_PUSHES];
	uint32_t lose;  // of the next push: this datagram, from 1, does not arrive
	uint32_t pushes;
	uint64_t push_timeout_ns;
};

// A world with a client of this kind; the network loses nothing and takes 1 ms. Keys: authentication on.
struct world *world_create(uint64_t seed, bool gateway, bool keys);
void world_destroy(struct world *w);
// Puts a fresh client in place, with w->config as it is now and callbacks of the test's own.
void world_replace_core(struct world *w, const struct tagcast_callbacks *callbacks);

// Moves time to `until_ns`, handling all that falls due.
void world_run(struct world *w, uint64_t for_ms);
// Moves time until `done` says so. False: `limit_ms` passed before.
bool world_until(struct world *w, bool (*done)(struct world *w), uint64_t limit_ms);
bool world_up(struct world *w);  // the client is registered
bool world_announced(struct world *w);  // and all sessions are confirmed

// The node's process dies and another starts: new boot id, nothing known.
void world_node_restart(struct world *w);
// The node ends the gateway's registration.
void world_forget(struct world *w);

uint32_t world_open(struct world *w, const char *uid);
uint64_t world_publish(struct world *w, const char *channel, uint64_t message_id, uint32_t bytes);
// Session as the node knows it, by the client's handle.
const struct world_session *world_session(const struct world *w, uint32_t handle);

// A push of one record to `count` routes, resent until acknowledged. Returns: its index.
struct world_route {
	uint32_t slot, gen;
};
struct world_record {
	const char *channel;
	uint64_t message_id, seq;
	uint8_t flags;
	uint32_t payload_bytes;
	const struct world_route *route;
	uint32_t routes;
};
uint32_t world_push(struct world *w, uint32_t worker, const struct world_record *record,
	uint32_t records, bool need_ack);
// Sends a push again under the same push id.
void world_push_again(struct world *w, uint32_t index);
// The route of a handle.
struct world_route world_route(const struct world *w, uint32_t handle);

// Hands raw bytes to the client as if they came from the node's port base + worker.
void world_inject(struct world *w, uint32_t worker, const uint8_t *bytes, uint32_t len);
// Seals a body the node's way and hands it over at once.
void world_send(struct world *w, uint32_t worker, uint8_t type, const uint8_t *body, uint32_t len);

uint8_t world_byte(uint64_t message_id, uint32_t i);  // of a payload
