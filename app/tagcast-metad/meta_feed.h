/* SPDX-License-Identifier: BSD-3-Clause */
// Server side of the feed: subscribers get every delta from their commit number on, read from the
// journal, so that nothing is ever between "just committed" and "already kept". Each has one buffer of
// fixed size; one that falls behind by more than the backlog is told LAGGED and closed.
// Context: the loop of the meta process; never blocks it.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base_role.h"
#include "meta_state.h"

#define META_SUBSCRIBERS_MAX 16u

struct meta_feed;

// Listens at `path` as ctl_listen does. `node_id`: subscribers that name it count for what is applied.
// Returns: 0 or -errno.
int meta_feed_open(const char *path, uint64_t node_id, uint64_t backlog_bytes,
	struct meta_state *state, struct meta_feed **feed);
void meta_feed_close(struct meta_feed *feed);

// From here there is a store to follow: subscribers that came earlier are welcomed.
void meta_feed_ready(struct meta_feed *feed) META_ONLY;
// The store was replaced by another generation: everybody subscribes anew.
void meta_feed_generation(struct meta_feed *feed, uint64_t now_ns) META_ONLY;

int meta_feed_fd(const struct meta_feed *feed);
// Sockets that are ready: accepts, HELLO, APPLIED, more room to send.
void meta_feed_process(struct meta_feed *feed, uint64_t now_ns) META_ONLY;
// Sends what was committed since; bounded. Returns: true when there is more to send at once; -errno as
// a negative number when the store cannot be read.
int meta_feed_pump(struct meta_feed *feed, uint64_t now_ns) META_ONLY;
// Time-outs of subscribers. Returns: when to call again, UINT64_MAX: never.
uint64_t meta_feed_tick(struct meta_feed *feed, uint64_t now_ns) META_ONLY;

// What the fast process of this node acts on: the least of its connections. Returns: connected?
bool meta_feed_applied(const struct meta_feed *feed, uint64_t *applied) META_ONLY;

struct meta_feed_info {
	uint32_t subscribers, own;
	uint64_t accepted, resyncs, lagged, protocol_errors, deltas;
	uint64_t least_sent, least_applied;
};
void meta_feed_info(const struct meta_feed *feed, struct meta_feed_info *info) META_ONLY;
