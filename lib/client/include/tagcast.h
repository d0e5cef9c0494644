/* SPDX-License-Identifier: BSD-3-Clause */
// libtagcast: publishers and gateways of a tagcast cluster, over plain UDP sockets. Installed header; it
// includes nothing of the product. No threads of its own: wait until tagcast_fd() is readable (any
// event loop), then call tagcast_process(); callbacks run inside it, on your thread. One client object
// belongs to one thread.
//
// All functions return 0 or a count, or a negative errno value. Ids are bytes with a length, 1..255.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TAGCAST_API __attribute__((visibility("default")))

struct tagcast;

enum tagcast_ack {
	TAGCAST_ACK_NONE = 0,  // sent once, best effort
	TAGCAST_ACK_GATEWAY = 1,  // resent until the gateway has taken it
	TAGCAST_ACK_CLIENT = 2,  // resent until the client acknowledged; the outcome waits for it
};

enum tagcast_status {
	TAGCAST_OK = 0,
	TAGCAST_RETRYABLE = 1,
	TAGCAST_NOT_LEADER = 2,
	TAGCAST_BUSY = 3,
	TAGCAST_TOO_LARGE = 4,
	TAGCAST_UNKNOWN_CHANNEL = 5,
	TAGCAST_BAD_REQUEST = 6,
	TAGCAST_EXPIRED = 8,
	TAGCAST_LIMIT = 11,
	TAGCAST_INCOMPLETE = 14,
	TAGCAST_TIMEOUT = 100,  // no node answered before the deadline: the outcome is not known
};
TAGCAST_API const char *tagcast_status_name(int status);

struct tagcast_id {
	const void *bytes;
	size_t len;
};

// Final answer to one publish; given exactly once.
struct tagcast_outcome {
	uint64_t request;  // as returned by tagcast_publish
	uint64_t message_id;
	int status;  // enum tagcast_status
	int duplicate;  // the node had seen this message id before
	uint64_t seq;  // in the channel
	uint32_t members;  // of the membership used
	// With TAGCAST_ACK_CLIENT: routes pushed, acknowledged, ended without that. Else 0, since the
	// outcome is given when the node has taken the message over.
	uint32_t routes, acked, ended;
	void *user;
};

// A message for one of this gateway's sessions.
struct tagcast_message {
	struct tagcast_id channel;
	unsigned channel_type;
	uint64_t message_id;
	uint64_t seq;
	uint64_t stamp;  // as the publisher set it
	struct tagcast_id from_uid;
	const void *payload;
	size_t payload_len;
	int late;  // may be out of channel order
};

// What a gateway says of one route.
enum tagcast_verdict {
	TAGCAST_ACCEPT = 0,  // written to the client's connection
	TAGCAST_RETRY = 1,  // could not be written now
	TAGCAST_DROP = 2,  // never can: no such client
};

struct tagcast_callbacks {
	// Publisher: the outcome of one publish.
	void (*outcome)(void *ctx, const struct tagcast_outcome *outcome);
	// Gateway: deliver `message` to `session` (its uid and the user pointer given at open).
	enum tagcast_verdict (*deliver)(
		void *ctx, uint32_t session, void *user, const struct tagcast_message *message);
	// Gateway: registered (1) with a node, or lost (0); the library registers and announces again.
	// tagcast_announce_pending tells when the node knows all sessions.
	void (*state)(void *ctx, int registered);
	void *ctx;
};

struct tagcast_config {
	const char *node_ip;  // a.b.c.d
	uint16_t node_port;  // base port of the node
	const char *bind_ip;  // NULL: any
	uint16_t bind_port;  // 0: any
	uint64_t
		client_id;  // gateways: fixed and unique in the cluster; 0: random (publishers only)
	int gateway;  // 1: gateway role as well as publisher
	uint16_t mtu;  // 0: 1500
	int socket_buffer_bytes;  // 0: 8 MiB wanted, what the system grants is taken
	uint8_t key_id;
	const uint8_t *key;  // 32 bytes, NULL: authentication off
	// Gateways: repeats are suppressed among the last deliveries, each one message to one session.
	uint32_t window_messages;  // deliveries remembered, up to 2^24; 0: 262144
	uint32_t window_ms;  // how long; 0: 60000
	uint32_t publish_inflight_max;  // up to 2^20; 0: 1024
};

// Opens the socket and starts to say hello. Owns: `config` is copied, the object is the caller's.
// Returns: 0; -EINVAL (bad config), -ENOMEM, or errno of the socket calls.
TAGCAST_API int tagcast_open(const struct tagcast_config *config,
	const struct tagcast_callbacks *callbacks, struct tagcast **client);
// Says goodbye (a gateway's sessions end at once) and frees everything; outcomes not given are lost.
// Never from inside a callback.
TAGCAST_API void tagcast_close(struct tagcast *client);

// Keys of 32 bytes from here on: the first one to send with, answers made with either are taken. other NULL:
// there is only one. To rotate without a gap, node and clients first learn both, then send with the new
// one, then drop the old one. Returns: 0; -EINVAL: opened without a key, or both have one id.
TAGCAST_API int tagcast_set_keys(struct tagcast *client, uint8_t key_id, const uint8_t *key,
	uint8_t other_id, const uint8_t *other);

// Readable when tagcast_process has something to do (an epoll descriptor; it covers timers too).
TAGCAST_API int tagcast_fd(const struct tagcast *client);
// Handles what is there, without waiting. Returns: events handled, or -errno.
TAGCAST_API int tagcast_process(struct tagcast *client);

struct tagcast_publish {
	unsigned channel_type;
	struct tagcast_id channel;
	uint64_t message_id;  // not 0; idempotence key with the channel
	const void *payload;
	size_t payload_len;  // 0..60 KiB
	enum tagcast_ack ack;
	uint32_t deadline_ms;  // 0: the node's default
	uint64_t stamp;  // carried to receivers
	struct tagcast_id from_uid;  // len 0: none
	int sender_session;  // 1: `session` of this gateway gets no echo
	uint32_t session;
	void *user;
};
// Sends and resends until an outcome is known or the deadline passed. Owns: everything is copied.
// Returns: 0 with *request set; -EINVAL; -EMSGSIZE; -ENOBUFS: too many in flight; -ESHUTDOWN.
TAGCAST_API int tagcast_publish(
	struct tagcast *client, const struct tagcast_publish *publish, uint64_t *request);
TAGCAST_API uint32_t tagcast_publish_pending(const struct tagcast *client);

// Gateway: a client connected as `uid`. *session names it until closed. The announcement goes out in
// bulk with the next process call. *session is never 0. Returns: 0; -EINVAL; -ENOMEM; -ENOSPC: no slot;
// -EPERM: not a gateway.
TAGCAST_API int tagcast_session_open(
	struct tagcast *client, struct tagcast_id uid, void *user, uint32_t *session);
TAGCAST_API int tagcast_session_close(struct tagcast *client, uint32_t session);
// Gateway: the client of `session` acknowledged a message (ack=client). May be called from inside
// deliver; receipts go out in bulk with the next process call.
// Returns: 0; -EINVAL: no such session; -ENOENT: nothing awaits it, or it is too long ago; -EPERM.
TAGCAST_API int tagcast_receipt(struct tagcast *client, uint32_t session, struct tagcast_id channel,
	unsigned channel_type, uint64_t message_id);
// Sessions opened or closed and not yet confirmed by the node.
TAGCAST_API uint32_t tagcast_announce_pending(const struct tagcast *client);

struct tagcast_stats {
	uint64_t rx_datagrams, tx_datagrams, rx_bad;
	uint64_t published, outcomes, publish_resends;
	uint64_t pushes, records, delivered, suppressed, unknown_session;
	uint64_t stale_pushes;  // meant for a registration of this gateway that has ended
	uint64_t announces, announce_resends, hellos;
};
TAGCAST_API void tagcast_stats(const struct tagcast *client, struct tagcast_stats *stats);

#ifdef __cplusplus
}
#endif
