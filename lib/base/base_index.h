/* SPDX-License-Identifier: BSD-3-Clause */
// Fixed-capacity hash index: 64-bit hash -> 32-bit value (never 0). One writer, lock-free readers.
// The index knows no keys: a reader walks the values whose 16-bit fingerprint matches and compares the
// full key itself. Two candidate buckets of 8 slots a key; entries never move, so a reader needs no
// retry. Values removed may be seen for the rest of a grace period: what they name must live that long.
// Pairing: the release store of a slot's value pairs with the acquire load in index_next.
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#define INDEX_BUCKET_SLOTS 8u

struct index_bucket {
	_Atomic uint32_t value[INDEX_BUCKET_SLOTS];  // 0: free
	_Alignas(8) _Atomic uint16_t print[INDEX_BUCKET_SLOTS];  // read four at once
	uint8_t pad[16];
};
_Static_assert(sizeof(struct index_bucket) == 64, "a bucket is one cache line");

struct index {
	struct index_bucket *bucket;
	uint32_t mask;  // buckets - 1
	uint32_t count;  // writer: entries in use
	uint32_t limit;  // most entries
};

// Walk over candidates of one hash.
struct index_cursor {
	uint32_t bucket[2];
	uint16_t print;
	uint8_t side;
	uint8_t slot;
};

// Prepares room for `limit` entries (1..2^30) at a load factor of at most one half.
// Owns: memory until index_fini. Returns: 0, -EINVAL, -ENOMEM.
int index_init(struct index *index, uint32_t limit);
void index_fini(struct index *index);
// Bytes of an index with that limit. They are touched as entries come.
uint64_t index_memory(uint32_t limit);

// Adds value (not 0). Context: writer. Returns: 0; -ENOSPC at the limit or when both buckets are full.
int index_insert(struct index *index, uint64_t hash, uint32_t value);

// Removes value. Context: writer. Returns: 0; -ENOENT.
int index_remove(struct index *index, uint64_t hash, uint32_t value);

static inline void index_prefetch(const struct index *index, uint64_t hash)
{
	__builtin_prefetch(&index->bucket[(uint32_t)hash & index->mask]);
}

static inline void index_first(const struct index *index, uint64_t hash, struct index_cursor *cur)
{
	cur->bucket[0] = (uint32_t)hash & index->mask;
	cur->bucket[1] = (uint32_t)(hash >> 32) & index->mask;
	cur->print = (uint16_t)(hash >> 16 ^ hash >> 48);
	cur->side = 0;
	cur->slot = 0;
}

// Four fingerprints at once: the high bit of each that equals `print` is set; it may be set, too, in one behind
// such a one. Relaxed, as fingerprints are hints: the key is compared in full.
static inline uint64_t index_hits(const struct index_bucket *b, uint32_t half, uint16_t print)
{
	const uint64_t ones = UINT64_C(0x0001000100010001);
	const _Atomic uint64_t *four = (const _Atomic uint64_t *)(const void *)&b->print[half * 4];
	const uint64_t x = atomic_load_explicit(four, memory_order_relaxed) ^ ones * print;

	return (x - ones) & ~x & ones << 15;
}

// The next candidate value, or 0 when there is none. Context: any reader under RCU, or the writer.
static inline uint32_t index_next(const struct index *index, struct index_cursor *cur)
{
	for (; cur->side < 2; cur->side++, cur->slot = 0) {
		const struct index_bucket *b = &index->bucket[cur->bucket[cur->side]];

		while (cur->slot < INDEX_BUCKET_SLOTS) {
			const uint32_t half = cur->slot / 4, skip = cur->slot % 4 * 16;
			const uint64_t hits = index_hits(b, half, cur->print) >> skip;
			uint32_t value;

			if (hits == 0) {
				cur->slot = (uint8_t)(half * 4 + 4);
				continue;
			}
			cur->slot = (uint8_t)(cur->slot + (uint32_t)__builtin_ctzll(hits) / 16);
			value = atomic_load_explicit(&b->value[cur->slot++], memory_order_acquire);
			if (value != 0)
				return value;
		}
	}
	return 0;
}
