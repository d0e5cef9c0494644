/* SPDX-License-Identifier: BSD-3-Clause */
// Idempotence window of one worker: (channel, message id) -> what became of it. Two generations of a
// fixed array of fingerprints: when the young one is full or half the age old, it becomes the old one and
// the old one is forgotten; no deletion walk. Remembers at least `entries` and at most 2 x `entries`
// publishes, and at most `age_ns`. WORKER_ONLY.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base_role.h"

struct idem;

enum idem_state { IDEM_NEW = 0, IDEM_PENDING = 1, IDEM_DONE = 2 };

struct idem_record {
	uint8_t state;
	uint16_t status;  // enum wire_status, when done
	uint32_t message;  // the caller's name, while pending
	uint64_t seq;
	uint8_t tag_key[16];  // fence first used
	uint64_t tag_version;
	uint32_t members, routes, acked, ended;
};

// Returns: NULL when there is no memory or entries is outside 16..2^24.
struct idem *idem_create(uint32_t entries, uint64_t age_ns);
// Bytes of a window of so many entries.
uint64_t idem_memory(uint32_t entries);
void idem_destroy(struct idem *idem);

// Finds or makes the record of a message. `channel_hash` is channel_key_hash. Returns: the record, state
// IDEM_NEW when it was made now (the caller sets it, and the rest). Valid until the next idem_take.
struct idem_record *idem_take(
	struct idem *idem, uint64_t channel_hash, uint64_t message_id, uint64_t now_ns) WORKER_ONLY;
// The two halves of idem_take, for a burst: the first fetches what the second will read, and returns its
// `hash`.
uint64_t idem_prefetch(
	const struct idem *idem, uint64_t channel_hash, uint64_t message_id) WORKER_ONLY;
struct idem_record *idem_take_hashed(struct idem *idem, uint64_t hash, uint64_t channel_hash,
	uint64_t message_id, uint64_t now_ns) WORKER_ONLY;
// Finds only. Returns: NULL when not remembered.
struct idem_record *idem_find(
	struct idem *idem, uint64_t channel_hash, uint64_t message_id) WORKER_ONLY;
// Forgets a message that was refused, so that a later try is a first one.
void idem_forget(struct idem *idem, uint64_t channel_hash, uint64_t message_id) WORKER_ONLY;
uint32_t idem_count(const struct idem *idem);

struct idem_stats {
	uint32_t used;  // entries of the young generation
	uint64_t early;  // generations that ended because they were full, not old
};
void idem_stats(const struct idem *idem, struct idem_stats *stats);  // relaxed reads, any thread
