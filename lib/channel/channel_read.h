/* SPDX-License-Identifier: BSD-3-Clause */
// Channels as workers see them, under RCU.
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base_id.h"
#include "base_index.h"

struct tag;

enum channel_state_flag {
	CHANNEL_F_UNCERTAIN = 1 << 0,  // a mutation of unknown outcome is open: park
	CHANNEL_F_REMOVED = 1 << 1,  // tombstone: publish says unknown channel
	CHANNEL_F_BUILDING = 1 << 2,  // a build was asked for
};

struct channel {
	// control: rw, worker: ro
	_Alignas(64) _Atomic uint64_t smv;  // as applied here
	_Atomic(struct tag *) tag;  // NULL: none; usable only if tag->smv == smv
	_Atomic uint32_t flags;  // enum channel_state_flag
	_Atomic uint32_t use;  // grows when the record is given to another channel
	uint64_t hash;  // channel_key_hash
	uint16_t worker;  // owner of its messages
	uint8_t info_flags;  // enum store_channel_flag
	uint8_t key_len;
	uint8_t key_type;
	uint8_t pad[3];
	uint32_t index;  // of this record, 1..
	uint32_t members;  // as the feed says, for diagnosis
	const uint8_t *key_bytes;  // cold
	// control: private
	void *control;
};

struct channel_table {
	struct channel *channel;  // by index; [0] unused
	uint32_t limit;
	uint16_t workers;
	// control: rw, worker: ro. Every channel of the store is here; while it is false, one that is not
	// found may exist all the same. To be read (acquire) before the look-up.
	_Atomic bool complete;
	struct index index;
	void *control;
};

static inline bool channel_has_key(
	const struct channel *channel, const struct channel_key *key, uint64_t hash)
{
	return channel->hash == hash && channel->key_type == key->type &&
	       channel->key_len == key->len &&
	       memcmp(channel->key_bytes, key->bytes, key->len) == 0;
}

// Finds a channel. Returns: NULL when there is none. Valid to the end of the turn.
struct channel *channel_find(
	const struct channel_table *table, const struct channel_key *key, uint64_t hash);
