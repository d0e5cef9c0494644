/* SPDX-License-Identifier: BSD-3-Clause */
// Channels with a runtime row, inside of lib/topology: rows and buckets of them are immutable and shared by
// the snapshots that have them; the builder counts. Readers see them under RCU like the snapshot itself.
#pragma once

#include "topology.h"

struct topology_channel {
	uint64_t hash;
	uint64_t leader;  // 0: unknown, or nobody named
	uint64_t channel_epoch, leader_epoch;
	uint64_t revision;
	uint32_t refs;  // builder
	bool named;  // has replicas: its leader counts, not the slot's
	uint8_t type, len;
	uint8_t bytes[];
};

struct topology_bucket {
	uint32_t refs;  // builder
	uint32_t count;
	struct topology_channel *row[];  // ascending by hash
};

static inline uint32_t bucket_of(uint64_t hash)
{
	return (uint32_t)(hash >> 32) % TOPOLOGY_BUCKETS;
}

// First row of a bucket with this hash or above.
uint32_t bucket_lower(const struct topology_bucket *b, uint64_t hash);
// Its place in the bucket, or `count`.
uint32_t bucket_find(const struct topology_bucket *b, const struct channel_key *key, uint64_t hash);
