/* SPDX-License-Identifier: BSD-3-Clause */
// Hard limits of the product: each with its unit and the reason for its value. What an operator may
// tune lives in lib/conf and must stay within these. No thread owns anything here.
#pragma once

#include <assert.h>
#include <stdint.h>

#define ID_LEN_MAX 255u  // bytes; one length byte on the wire and in the store
#define CHANNEL_TYPE_MAX 12u  // highest channel type; 0 is invalid
#define PAYLOAD_MAX 61440u  // bytes; 60 KiB, what a chat message may reasonably hold
#define WORKERS_MAX 16u  // polling cores of a node; also the width of a lane on the wire
#define GATEWAYS_MAX 4096u  // live gateway incarnations; 12 bits of a route word
#define SESSION_SLOT_BITS 24u  // sessions of one gateway incarnation: 16 M
#define SESSION_GEN_BITS 24u  // reuse count of one session slot
#define SESSIONS_PER_UID_MAX 16u  // routes of one UID; bounds expansion of one member
#define UID_INDEX_MAX (1u << 30)  // UID indices; bit 31 of a tag entry flags a denied member
#define TAG_CHUNK_UIDS 4096u  // UIDs of one copy-on-write chunk: 16 KiB, one edit copies one chunk
#define MUTATION_UIDS_MAX 1000000u  // UIDs of one logical membership command
#define ENTRY_BYTES_MAX (256u * 1024u)  // one replicated entry; larger costs a leader its heartbeat
#define MTU_MIN 576u  // bytes of an IPv4 packet; the least a host must take
#define MTU_MAX 9000u  // bytes; common jumbo size
#define PUSH_ROUTES_MAX 1120u  // routes of a datagram at MTU_MAX: (9000-28-headers)/8, rounded up
#define FRAME_BYTES_MAX (96u * 1024u)  // segmented frame: 60 KiB payload, 4096 routes, headers
#define FRAME_ROUTES_MAX 4096u  // routes of one segmented push frame
#define FRAME_SEGMENTS_MAX 256u  // datagrams of one frame: 96 KiB at the smallest MTU
#define BURST 32u  // datagrams of one receive or transmit burst
#define HASH_SLOTS_DEFAULT 256u  // presence and leadership buckets of a cluster
#define HASH_SLOTS_MAX 16384u

static_assert(SESSION_SLOT_BITS + SESSION_GEN_BITS + 12u + 4u == 64u, "a route word is 8 bytes");
static_assert(GATEWAYS_MAX == 1u << 12, "gateway index is 12 bits of a route word");
static_assert(
	PAYLOAD_MAX + 8u * FRAME_ROUTES_MAX < FRAME_BYTES_MAX, "a full frame holds a full payload");
