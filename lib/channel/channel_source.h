/* SPDX-License-Identifier: BSD-3-Clause */
// Ids that are made of other ids: person and agent channels, request-scoped sets, and derived (cmd)
// channels with the source they stand for. Pure functions, any thread.
//
// A derived channel is its source's id with CHANNEL_CMD_SUFFIX behind it, type kept. It has no members of its
// own: it takes those of its source. Its leader is that of its root's slot, so that a channel and all
// that is derived from it share a slot; runtime rows may name another for any of them.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base_id.h"

#define CHANNEL_CMD_SUFFIX "____cmd"
#define CHANNEL_CMD_SUFFIX_BYTES 7u

// The id without one suffix; `id` itself when it has none, or would be empty without it. Points into `id`.
struct id_view channel_source_id(struct id_view id);
// The id without any suffix: what hash slot, and so slot and leader, are computed of.
struct id_view channel_root_id(struct id_view id);
bool channel_is_derived(const struct channel_key *key);
// The channel whose members a channel has: the source of a derived one, else itself.
void channel_source(const struct channel_key *key, struct channel_key *source);
// The derived channel of a channel; one that is derived stays as it is.
// Returns: 0; -ENAMETOOLONG: the id would be longer than ID_LEN_MAX.
int channel_derive(const struct channel_key *key, struct channel_key *derived);

// Id of the person channel of two UIDs, the same whatever their order: the one with the larger CRC-32 goes
// left, on a tie the one greater by bytes; joined with '@'. The type of the key becomes CHANNEL_PERSON.
// Returns: 0; -EINVAL: a UID is empty or has an '@'; -ENAMETOOLONG.
int channel_person(struct id_view a, struct id_view b, struct channel_key *key);
// Both halves, as they stand. Returns: 0; -EINVAL: not exactly one '@', or a half is empty.
int channel_person_split(struct id_view id, struct id_view *left, struct id_view *right);
// What `sender` calls a person channel, the other UID or an id in any order, as its one id.
// Returns: as channel_person; -EINVAL too when `sender` is neither half.
int channel_person_normalise(struct id_view sender, struct id_view id, struct channel_key *key);

// Source id of a send to an explicit set of UIDs: blanks around each are cut, empty ones and repeats left
// out, the rest joined with ',' and hashed (FNV-1a 64); the hash in decimal is the id, type CHANNEL_TEMP. The
// derived channel of it carries the message. Depends on the order.
// Cost grows with the square of `count`. Returns: 0; -EINVAL: nothing is left.
int channel_request(const struct id_view *uid, uint32_t count, struct channel_key *source);
