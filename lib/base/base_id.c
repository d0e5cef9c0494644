/* SPDX-License-Identifier: BSD-3-Clause */
// Hashing and construction of ids. Owns the process-wide hash seed, written once before threads start.
#include "base_id.h"

#include <errno.h>

#define XXH_INLINE_ALL
#include <xxhash.h>
#include <zlib.h>

static uint64_t seed_of_process;

int channel_key_set(struct channel_key *key, uint8_t type, const void *bytes, uint8_t len)
{
	if (type < 1 || type > CHANNEL_TYPE_MAX || len == 0)
		return -EINVAL;
	key->type = type;
	key->len = len;
	memcpy(key->bytes, bytes, len);
	return 0;
}

void id_hash_seed(uint64_t seed)
{
	seed_of_process = seed;
}

uint64_t id_hash(struct id_view id)
{
	return XXH3_64bits_withSeed(id.bytes, id.len, seed_of_process);
}

uint64_t channel_key_hash(const struct channel_key *key)
{
	return XXH3_64bits_withSeed(key->bytes, key->len, seed_of_process + key->type);
}

uint32_t id_crc32(struct id_view id)
{
	return (uint32_t)crc32(0, id.bytes, id.len);
}

uint32_t id_hash_slot(struct id_view id, uint32_t slot_count)
{
	return id_crc32(id) % slot_count;
}

uint16_t channel_key_worker(const struct channel_key *key, uint16_t workers)
{
	uint32_t crc = (uint32_t)crc32(0, key->bytes, key->len);

	crc = (uint32_t)crc32(crc, &key->type, 1);
	return (uint16_t)((crc >> 16) % workers);
}
