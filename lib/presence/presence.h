/* SPDX-License-Identifier: BSD-3-Clause */
// Who is online, where: the UID table (bytes <-> dense 32-bit index), the route words, and the gateway
// incarnations they name. Written by the control core alone; workers read through presence_read.h.
// Context: CONTROL_ONLY for everything here.
//
// A gateway incarnation (gateway id, boot id) gets an index 1..4095 of its own. When it ends, its entry
// turns dead in one store; its routes are thereby invalid at once and are swept in bounded steps; the
// index is given out again only after the sweep, so no number needs to wrap.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base_counters.h"
#include "base_id.h"
#include "base_rcu.h"
#include "base_role.h"
#include "dgram.h"

struct presence;

struct presence_limits {
	uint32_t uids;  // 1..UID_INDEX_MAX - 1
	uint32_t gateways;  // 1..GATEWAYS_MAX - 1
	uint32_t sessions_per_gateway;  // slots, 1..2^24; memory is taken as slots are used
	uint64_t uid_quarantine_ns;  // a freed index rests this long: longer than any push lives
};

// Reserves the tables; names and session slots take memory as they are used, up to bounds that follow from
// the limits. Owns: memory until presence_destroy, which must come after the last reader.
// Returns: NULL when there is no memory or a limit is out of range.
struct presence *presence_create(const struct presence_limits *limits, struct rcu_retire *retire);
void presence_destroy(struct presence *p);
// Bytes the limits stand for: of UIDs, each with one session and a name of 32 bytes, and of gateways.
uint64_t presence_memory(const struct presence_limits *limits, uint64_t *gateways);

// --- UIDs -------------------------------------------------------------------------------------------

// Index of a UID, interned when new, with one more reference. Returns: index > 0; 0 when the table is full.
uint32_t presence_uid_hold(struct presence *p, struct id_view uid) CONTROL_ONLY;
// The same for a page: index[i] for uid[i], prefetched together. Returns: number held; less than `count`
// when the table is full.
uint32_t presence_uid_hold_burst(struct presence *p, const struct id_view *uid, uint32_t count,
	uint32_t *index) CONTROL_ONLY;
// One more reference on a live index.
void presence_uid_ref(struct presence *p, uint32_t index) CONTROL_ONLY;
// Drops a reference; the last one sends the index to quarantine.
void presence_uid_drop(struct presence *p, uint32_t index, uint64_t now_ns) CONTROL_ONLY;
// Index or 0, no reference taken.
uint32_t presence_uid_find(const struct presence *p, struct id_view uid) CONTROL_ONLY;
struct id_view presence_uid_name(const struct presence *p, uint32_t index) CONTROL_ONLY;
uint32_t presence_uid_count(const struct presence *p) CONTROL_ONLY;

// --- gateways ---------------------------------------------------------------------------------------

// Registers an incarnation, or finds it: then its address moves and its MTU stays. An older boot of the same gateway id ends.
// Returns: index > 0; -ENOSPC when the table is full.
int presence_gateway_up(struct presence *p, uint64_t gateway, uint64_t boot, struct net_addr addr,
	uint16_t mtu, uint64_t now_ns) CONTROL_ONLY;
// Ends an incarnation: O(1), whatever its number of routes.
void presence_gateway_down(struct presence *p, uint32_t index, uint64_t now_ns) CONTROL_ONLY;
uint32_t presence_gateway_find(
	const struct presence *p, uint64_t gateway, uint64_t boot) CONTROL_ONLY;
// The live incarnation of a gateway id. Returns: its number, of no other one before or after, and its address;
// 0 when there is none.
uint64_t presence_gateway_live(
	const struct presence *p, uint64_t gateway, struct net_addr *addr) CONTROL_ONLY;
// The incarnation was heard of.
void presence_gateway_heard(struct presence *p, uint32_t index, uint64_t now_ns) CONTROL_ONLY;
// Ends incarnations not heard of since `before_ns`. Returns: number ended.
uint32_t presence_gateway_expire(
	struct presence *p, uint64_t before_ns, uint64_t now_ns) CONTROL_ONLY;

struct presence_gateway_info {
	uint64_t gateway, boot;
	struct net_addr addr;
	uint32_t sessions;
	uint64_t next_expected;  // of its announce stream
	uint64_t heard_ns;
	uint16_t mtu;
	bool alive;
};
bool presence_gateway_info(
	const struct presence *p, uint32_t index, struct presence_gateway_info *info) CONTROL_ONLY;

// The oldest incarnation that ended, however, and has not been taken note of. Its index is not given out
// again before presence_gateway_ended_done. Returns: index, `use` as workers know it; 0 when there is none.
uint32_t presence_gateway_ended(const struct presence *p, uint32_t *use) CONTROL_ONLY;
void presence_gateway_ended_done(struct presence *p, uint32_t index) CONTROL_ONLY;

// --- sessions ---------------------------------------------------------------------------------------

// Checks the frame's place in the stream and moves it on. Returns: 1 apply it; 0 repeated, answer only;
// -EILSEQ out of sequence.
int presence_stream_take(struct presence *p, uint32_t gateway, uint64_t stream_seq) CONTROL_ONLY;

// Returns: 0; -EMLINK: the UID has SESSIONS_PER_UID_MAX; -ENOSPC: UID table or slot memory full; -EEXIST:
// slot in use by another UID, or this or a newer generation was there; -EINVAL: slot or generation out of
// range, UID empty, incarnation not alive.
// Opening a slot again with a newer generation closes what was there.
int presence_session_open(struct presence *p, uint32_t gateway, uint32_t slot, uint32_t gen,
	struct id_view uid, uint64_t now_ns) CONTROL_ONLY;
// Returns: 0; -ENOENT: no such session, UID or generation.
int presence_session_close(struct presence *p, uint32_t gateway, uint32_t slot, uint32_t gen,
	struct id_view uid, uint64_t now_ns) CONTROL_ONLY;

// Indices freed from here on rest this long at least; a shorter time than before is not taken.
void presence_quarantine(struct presence *p, uint64_t uid_quarantine_ns) CONTROL_ONLY;
// Bounded housekeeping: sweeps routes of dead incarnations, ends quarantines. Returns: steps used.
uint32_t presence_step(struct presence *p, uint32_t steps, uint64_t now_ns) CONTROL_ONLY;

struct presence_stats {
	uint32_t uids, uids_quarantined;
	uint32_t sessions, uids_online;
	uint32_t gateways, gateways_sweeping;
	uint64_t bytes;
};
void presence_stats(const struct presence *p, struct presence_stats *stats) CONTROL_ONLY;
