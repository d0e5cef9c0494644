/* SPDX-License-Identifier: BSD-3-Clause */
// A UDP datagram in a buffer, and what a worker asks of the port that carries it. Headers below UDP
// belong to the port (drivers/port over DPDK; a fake network in the simulator). No packet type of a
// driver crosses this header.
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct net_addr {
	uint32_t ip;  // host byte order
	uint16_t port;
	uint16_t zero;
};

static inline bool net_addr_equal(struct net_addr a, struct net_addr b)
{
	return a.ip == b.ip && a.port == b.port;
}

// One datagram. Owned by whoever holds it: exactly one holder unless dgram_ops.hold was called.
struct dgram {
	uint8_t *data;  // UDP payload; aligned to 2 at least
	uint16_t len;  // payload bytes
	uint16_t room;  // bytes usable at `data`
	uint16_t local_port;  // rx: UDP destination port; tx: UDP source port
	uint16_t zero;
	struct net_addr peer;  // rx: sender; tx: destination
};

// The port as one worker sees it. `queue` is the worker's own queue pair; only that worker calls, with
// one exception: free() may be given datagrams another worker's rx made (after a hand-off).
struct dgram_ops {
	// Takes up to n (<= BURST) received datagrams. Owns: they are the caller's. Returns: number.
	uint16_t (*rx)(void *queue, struct dgram **d, uint16_t n);
	// Sends n datagrams. Owns: takes one reference of each, sent or not; what could not be sent is
	// freed and counted by the port. Content must not be touched until exclusive() says so.
	void (*tx)(void *queue, struct dgram **d, uint16_t n);
	// n (<= BURST) empty datagrams with `room` of at least the port's MTU - 28. Returns: n or 0, never less.
	uint16_t (*alloc)(void *queue, struct dgram **d, uint16_t n);
	// Drops one reference of each.
	void (*free)(void *queue, struct dgram **d, uint16_t n);
	// Adds a reference, so that a sent datagram can be sent again.
	void (*hold)(struct dgram *d);
	// True when the caller's is the only reference: the port is done with it, it may be rewritten.
	bool (*exclusive)(const struct dgram *d);
	// Free buffers left, roughly; workers stop expanding below a reserve.
	uint32_t (*available)(void *queue);
};
