/* SPDX-License-Identifier: BSD-3-Clause */
// Connections of one group: a listening socket, dials, and the handshake on each before anybody else reads
// a byte. RAFT streams go to the library, SIDE streams to raft_peer.c; whoever gets one closes it with
// uv_close and frees it with raft_free in the close callback. Context: the loop.
#pragma once

#include <netinet/in.h>
#include <stdbool.h>
#include <uv.h>

#include "raft_hello.h"
#include "raft_pvt.h"

#define NET_HALF_OPEN_MAX 64u  // inbound connections in their handshake; the oldest makes room
#define NET_BACKLOG 128
#define NET_CONNECT_MS 1000u  // SYN and one retry; then the handshake has NET_HELLO_MS
#define NET_HELLO_MS 2000u
#define NET_USER_TIMEOUT_MS 1500  // unacknowledged data this old ends a connection
#define NET_KEEPALIVE_S 1  // idle, and between probes
#define NET_KEEPALIVE_COUNT 3
#define NET_SYN_RETRIES 1
#define NET_QUIET_NS UINT64_C(10000000000)  // the same refusal is said once in so long
#define NET_QUIET_COUNT 16u

struct net_dial;
// A dial ended. `stream`: proven, of `peer_id`; NULL with why not (HELLO_CLOSED: not
// reached; HELLO_OK: this side closes).
typedef void (*net_dialed)(void *ctx, struct uv_tcp_s *stream, uint64_t peer_id,
	enum hello_refusal refusal, bool told);

// Dials `address` (literal) and proves both sides; peer_id 0: whoever answers there. `done` is called
// later, once, unless the dial is cancelled first.
// Returns: NULL when it could not begin (no memory, no descriptor, not an address).
struct net_dial *net_dial(struct raft_net *net, enum hello_kind kind, uint64_t peer_id,
	const char *address, net_dialed done, void *ctx);
void net_dial_cancel(struct net_dial *dial);

struct net_quiet {
	uint64_t peer_id, until_ns;
	uint8_t refusal, inbound;
	uint32_t held;  // refusals not said
};

// Both halves: raft_dial.c and raft_transport.c.
struct raft_net {
	struct raft_cons *c;
	struct raft_uv_transport *t;
	struct hello_self self;
	struct hello_seen seen;
	struct uv_tcp_s *listener;
	raft_uv_accept_cb accept;
	raft_uv_transport_close_cb close_cb;
	struct net_dial *dials, *accepts;
	uint32_t accept_count;
	uint32_t alive;  // dials not freed yet, and the listener
	bool closing, discarded;
	enum raft_cons_refusal refusal;  // why listen failed
	char why[160];
	// Refusals said lately: a member that is refused comes again five times a second.
	struct net_quiet quiet[NET_QUIET_COUNT];
	uint32_t quiet_next;
};

// Takes a connection that waits at the listener.
void net_accept(struct raft_net *net, struct uv_stream_s *listener);
// Ends every handshake; who dialled hears of it.
void net_end_dials(struct raft_net *net);
// One thing less alive of this net: frees it, or calls its close callback, after the last.
void net_put(struct raft_net *net);

// Parses "a.b.c.d:port". Returns: false when it is anything else.
bool net_parse(const char *literal, struct sockaddr_in *address);
// Sets what every connection of ours has (G11). Returns: 0 or -errno.
int net_set_options(int fd);
