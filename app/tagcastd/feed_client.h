/* SPDX-License-Identifier: BSD-3-Clause */
// The fast process' end of the feed: one non-blocking unix stream connection to the meta process, kept
// up with back-off. Frames are handed to the owner in order; nothing is stored here.
// Context: the control thread, all of it.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base_role.h"
#include "store_feed.h"

struct feed_client;

struct feed_client_events {
	// Fills HELLO for a new connection (node_control_feed_hello).
	void (*hello)(void *ctx, struct store_feed_frame *hello);
	// WELCOME and DELTA as they arrive; points into the receive buffer. Non-zero: the connection is
	// given up and made again with a fresh HELLO (a gap, a foreign generation).
	int (*frame)(void *ctx, const struct store_feed_frame *frame, uint64_t now_ns);
	// A connection that said WELCOME is gone.
	void (*lost)(void *ctx, uint64_t now_ns);
};

struct feed_client_info {
	bool connected;  // WELCOME received
	bool waiting;  // the meta process is there and has no store to follow yet
	uint64_t connects;  // connections that said WELCOME
	uint64_t failures;  // attempts that ended before that
	uint64_t lagged;  // times the meta process gave us up as too slow
	uint64_t frames, bytes;
	const char *last_error;  // static text, "" when none
};

// `path` is copied. Returns: 0, -ENAMETOOLONG, -ENOMEM or -errno.
int feed_client_create(const char *path, const struct feed_client_events *events, void *ctx,
	struct feed_client **client);
void feed_client_destroy(struct feed_client *client);

// One descriptor for the owner's epoll: readable when feed_client_process has something to do. Time to
// connect again is not seen by it: call at feed_client_next_ns too.
int feed_client_fd(const struct feed_client *client);
// Connects, reads, hands out frames; bounded per call, never blocks. Returns: frames handed out.
uint32_t feed_client_process(struct feed_client *client, uint64_t now_ns) CONTROL_ONLY;
// When to call feed_client_process again although nothing is readable; UINT64_MAX: never.
uint64_t feed_client_next_ns(const struct feed_client *client) CONTROL_ONLY;

// Says APPLIED when `commit` is beyond what was said on this connection. Cheap when it is not.
void feed_client_applied(struct feed_client *client, uint64_t commit) CONTROL_ONLY;

void feed_client_info(const struct feed_client *client, struct feed_client_info *info) CONTROL_ONLY;
