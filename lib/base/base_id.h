/* SPDX-License-Identifier: BSD-3-Clause */
// Names of things: UIDs and channels. Ids are bytes with a length (1..255), never normalised, never
// NUL terminated. Pure functions, any thread.
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base_limits.h"

// A view of an id; whoever made the view says how long the bytes live.
struct id_view {
	const uint8_t *bytes;
	uint8_t len;  // 1..255 when valid
};

// A channel's name, held by value.
struct channel_key {
	uint8_t type;  // 1..12
	uint8_t len;  // 1..255
	uint8_t bytes[ID_LEN_MAX];
};

enum channel_type {
	CHANNEL_PERSON = 1,
	CHANNEL_GROUP = 2,
	CHANNEL_CUSTOMER_SERVICE = 3,
	CHANNEL_COMMUNITY = 4,
	CHANNEL_COMMUNITY_TOPIC = 5,
	CHANNEL_INFO = 6,
	CHANNEL_DATA = 7,
	CHANNEL_TEMP = 8,
	CHANNEL_LIVE = 9,
	CHANNEL_VISITORS = 10,
	CHANNEL_AGENT = 11,
	CHANNEL_AGENT_GROUP = 12,
};

static inline struct id_view id_view_of(const void *bytes, uint8_t len)
{
	return (struct id_view){.bytes = bytes, .len = len};
}

static inline bool id_equal(struct id_view a, struct id_view b)
{
	return a.len == b.len && memcmp(a.bytes, b.bytes, a.len) == 0;
}

static inline struct id_view channel_key_id(const struct channel_key *key)
{
	return (struct id_view){.bytes = key->bytes, .len = key->len};
}

static inline bool channel_key_valid(const struct channel_key *key)
{
	return key->type >= 1 && key->type <= CHANNEL_TYPE_MAX && key->len >= 1;
}

static inline bool channel_key_equal(const struct channel_key *a, const struct channel_key *b)
{
	return a->type == b->type && id_equal(channel_key_id(a), channel_key_id(b));
}

// Sets `key` from parts. Returns: 0; -EINVAL when type is outside 1..12 or len is 0.
int channel_key_set(struct channel_key *key, uint8_t type, const void *bytes, uint8_t len);

// 64-bit hashes with a per-process seed: same input, same process, same value; never sent or stored.
uint64_t id_hash(struct id_view id);
uint64_t channel_key_hash(const struct channel_key *key);

// Chooses the seed of the hashes above. Context: once, before any other thread runs; a simulator
// passes a fixed seed.
void id_hash_seed(uint64_t seed);

// Hash slot of an id: CRC-32 (IEEE, reflected, as in zlib) of the bytes, modulo `slot_count`.
// Vectors at 256: u1 118, u2 204, alice 71, bob 64, user1 85.
uint32_t id_hash_slot(struct id_view id, uint32_t slot_count);

// CRC-32 (IEEE, reflected, as in zlib) of the bytes.
uint32_t id_crc32(struct id_view id);

// Worker (and so UDP port) that serves a channel: the same on every node and in the client library.
// CRC-32 of the id bytes followed by the type byte, shifted right by 16 so that it shares no low bits
// with the hash slot, modulo `workers` (1..WORKERS_MAX).
uint16_t channel_key_worker(const struct channel_key *key, uint16_t workers);
