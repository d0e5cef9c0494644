/* SPDX-License-Identifier: BSD-3-Clause */
// A port without a network for unit tests: a bounded pool of datagrams with reference counts, a queue of
// what was sent and one of what is to be received. Counts every call; a double free, a write to a datagram
// the port still has, or a leak fails the test that did it. One thread.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "dgram.h"

#define FAKE_DGRAM_ROOM 8972u  // MTU_MAX - 28

struct fake_dgram;

struct fake_port {
	const struct dgram_ops *ops;  // pass these with the port itself as `queue`
	struct fake_dgram *all;
	struct dgram **idle;  // free ones
	uint32_t count, idle_count;
	uint16_t room;
	bool keep_sent;  // sent datagrams stay with the port until fake_port_complete
	bool record_sent;  // copies of what was sent are kept for fake_port_sent
	uint32_t fail_alloc;  // this many calls of alloc fail from now
	void (*on_tx)(void);  // called by each call of tx: what another thread does meanwhile

	// what happened
	uint64_t allocs, frees, holds, txs, tx_bytes, rxs;

	struct dgram **held;  // by the port after tx
	uint32_t held_count;
	struct dgram *sent;  // copies: data is malloc'ed
	uint32_t sent_count, sent_room;
	struct dgram **inbound;
	uint32_t inbound_count, inbound_room;
};

// A port of `count` datagrams of `room` bytes (0: FAKE_DGRAM_ROOM). Aborts the test without memory.
void fake_port_init(struct fake_port *port, uint32_t count, uint16_t room);
// Fails when a datagram is still held by anybody but the port.
void fake_port_fini(struct fake_port *port);

// The port is done with what it was given to send.
void fake_port_complete(struct fake_port *port);
// Copies of what was sent, oldest first; with record_sent only. The copies are the port's.
const struct dgram *fake_port_sent(const struct fake_port *port, uint32_t i);
void fake_port_forget_sent(struct fake_port *port);
// Puts a datagram into the receive queue.
void fake_port_inject(struct fake_port *port, struct net_addr from, uint16_t local_port,
	const void *bytes, uint16_t len);
// Datagrams in use outside the port.
uint32_t fake_port_outside(const struct fake_port *port);
