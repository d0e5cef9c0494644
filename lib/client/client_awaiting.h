/* SPDX-License-Identifier: BSD-3-Clause */
// Deliveries whose client may still acknowledge: fingerprint of (channel, message id, session) -> where
// its receipt goes. A ring of the last `entries` with a hash over it; a newer delivery pushes the oldest
// out. A receipt given stays remembered, because a node that missed it pushes the route again.
// Runs on the client's thread.
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct client_awaiting;

struct client_await {
	uint64_t print;
	uint32_t push_id, push_gen;
	uint16_t position;
	uint8_t worker;  // of the node: the push came from its port
	bool given;  // the client has acknowledged
};

// Returns: NULL when entries is outside 16..2^24 or there is no memory.
struct client_awaiting *client_awaiting_create(uint32_t entries);
void client_awaiting_destroy(struct client_awaiting *a);

// Finds a delivery. Returns: NULL when it is not remembered; valid until the next put.
struct client_await *client_awaiting_find(struct client_awaiting *a, uint64_t print);
// Remembers a delivery; one of the same fingerprint is replaced.
void client_awaiting_put(struct client_awaiting *a, const struct client_await *await);
void client_awaiting_drop(struct client_awaiting *a, uint64_t print);
