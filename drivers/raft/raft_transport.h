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

struct net_dial;
// A dial ended. `stream`: proven, of `peer_id`; NULL with why not (HELLO_CLOSED: not reached).
typedef void (*net_dialed)(void *ctx, struct uv_tcp_s *stream, uint64_t peer_id,
	enum hello_refusal refusal, bool told);

// Dials `address` (literal) and proves both sides; peer_id 0: whoever answers there. `done` is called
// later, once, unless the dial is cancelled first.
// Returns: NULL when it could not begin (no memory, no descriptor, not an address).
struct net_dial *net_dial(struct raft_net *net, enum hello_kind kind, uint64_t peer_id,
	const char *address, net_dialed done, void *ctx);
void net_dial_cancel(struct net_dial *dial);

// Parses "a.b.c.d:port". Returns: false when it is anything else.
bool net_parse(const char *literal, struct sockaddr_in *address);
// Sets what every connection of ours has (G11). Returns: 0 or -errno.
int net_set_options(int fd);
