/* SPDX-License-Identifier: BSD-3-Clause */
// Worker side of presence: route words, routes of UIDs with several, gateway entries. Under RCU, no lock.
//
// Route word, 64 bits, 0 = offline:
//   bits 0..23 session slot | 24..47 session generation | 48..59 gateway index | 60 more routes | 61 set
// With "more routes" set, all routes of the UID, this one too, are in its struct presence_more.
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base_limits.h"
#include "dgram.h"

#define ROUTE_MORE (UINT64_C(1) << 60)
#define ROUTE_SET (UINT64_C(1) << 61)

static inline uint64_t route_word(uint32_t gateway, uint32_t slot, uint32_t gen)
{
	return ROUTE_SET | (uint64_t)gateway << 48 | (uint64_t)gen << 24 | slot;
}
static inline uint32_t route_slot(uint64_t route)
{
	return (uint32_t)route & 0xffffffu;
}
static inline uint32_t route_gen(uint64_t route)
{
	return (uint32_t)(route >> 24) & 0xffffffu;
}
static inline uint32_t route_gateway(uint64_t route)
{
	return (uint32_t)(route >> 48) & 0xfffu;
}
// The session of a route, without flags: equal words are the same session.
static inline uint64_t route_session(uint64_t route)
{
	return route & ~ROUTE_MORE;
}

// A gateway incarnation as workers see it. `alive` is cleared once; the entry is reused only after a
// grace period and a full sweep of its routes, with `use` grown by one.
struct presence_gateway {
	_Alignas(64) _Atomic bool alive;
	uint16_t mtu;  // of its first HELLO: what a worker opened for it must go on fitting
	_Atomic uint32_t
		use;  // how often this entry was given out: worker state kept per index resets on change
	// A gateway that says HELLO again from another address moves in place, in one 8-byte store; a
	// reader that mixes old and new loses one datagram, which is sent again.
	_Alignas(8) struct net_addr addr;
	uint64_t gateway, boot;
};

// All routes of one UID that has several, the route word's own among them; immutable once published.
// Replaced before the word changes, and kept for a grace period after the word stopped naming it: a
// reader that holds an older word with ROUTE_MORE finds every session that stayed open here.
struct presence_more {
	uint32_t count;  // 1..16
	// control: private
	uint32_t uid;
	struct presence_more *next;
	bool leaving;  // the word names one route again; unlinked after a grace period
	uint64_t route[SESSIONS_PER_UID_MAX];
};

// What a worker holds of presence; constant after creation.
struct presence_view {
	const _Atomic uint64_t *route;  // by UID index
	uint32_t uids;  // entries of `route`
	const struct presence_gateway *gateway;  // by gateway index
	uint32_t gateways;  // entries of `gateway`
	const struct presence *owner;  // for the calls below; read under RCU only
};

struct presence;
void presence_view(const struct presence *p, struct presence_view *view);

static inline uint64_t presence_route(const struct presence_view *v, uint32_t uid)
{
	return atomic_load_explicit(&v->route[uid], memory_order_acquire);
}
static inline void presence_prefetch(const struct presence_view *v, uint32_t uid)
{
	__builtin_prefetch((const void *)&v->route[uid]);
}

// Routes of a UID whose word has ROUTE_MORE: to be used in place of the word. NULL when they just went:
// the word alone counts then. Valid to the end of turn.
const struct presence_more *presence_more_of(const struct presence_view *v, uint32_t uid);

// True while that session (slot, generation) of a live incarnation is open: what a re-push asks.
bool presence_session_live(
	const struct presence_view *v, uint32_t gateway, uint32_t slot, uint32_t gen);

// Incarnation index of (gateway, boot), 0 when there is none alive. A scan-free lookup for workers.
uint32_t presence_gateway_of(const struct presence_view *v, uint64_t gateway, uint64_t boot);
