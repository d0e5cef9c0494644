/* SPDX-License-Identifier: BSD-3-Clause */
// Read side of the store: positions, channels, pages of members, the journal. Works on any read
// transaction of a backend, in any process; every page is a transaction of its own.
#pragma once

#include "store.h"

struct store_position {
	uint64_t applied;  // log index
	uint64_t commit;  // commit number
	uint64_t chain;  // history chain
	uint64_t generation;  // changes when the whole content was replaced: reopen and rebuild
	uint64_t cluster_id;
};
// Returns: 0; -ENOENT: not formatted yet; other -errno.
int store_read_position(struct store_tx *tx, struct store_position *position);

struct store_channel {
	struct channel_key key;
	uint64_t number;  // interned, never reused
	uint64_t smv;
	uint64_t members;  // rows of STORE_MEMBERS
	uint8_t flags;  // enum store_channel_flag
	bool removed;  // tombstone
};
// Returns: 0; -ENOENT (a tombstone is found, with `removed`).
int store_read_channel(
	struct store_tx *tx, const struct channel_key *key, struct store_channel *channel);

// The channel after `cursor` (in key order; type 0 = start), tombstones included. -ENOENT at the end.
int store_read_next_channel(
	struct store_tx *tx, const struct channel_key *cursor, struct store_channel *channel);

// A page of one list of a channel, in UID byte order, generations merged.
struct store_page {
	uint64_t commit;  // position the page was read at
	uint64_t generation;  // of the store
	uint64_t smv;
	uint32_t count;
	bool last;  // no member after this page
	uint32_t bytes_used;  // of `uids`
	uint8_t next_len;  // unless last: `after` of the next page
	uint8_t next[ID_LEN_MAX];
};
// Rows beyond `max` that one page may look at. Generations not merged yet hide rows, so a page may be
// short, even empty, and still not be the last: go on from `next`, never from the last UID seen.
#define STORE_PAGE_SKIP_MAX 32768u
// Reads up to `max` (>= 1) members with a UID after `after` (len 0 = from the start) into `uids`
// (packed), stopping before `cap` (>= 256) bytes.
// Returns: 0; -ENOENT: no such channel or a tombstone (an empty last page, commit, generation and SMV
// are set); -EINVAL; other -errno.
int store_read_page(struct store_tx *tx, const struct channel_key *key, enum store_list list,
	struct id_view after, uint32_t max, uint8_t *uids, uint32_t cap, struct store_page *page);

// The delta with the lowest commit number above `commit`; points into the transaction.
// Returns: 0; -ENOENT: none yet; -ESTALE: the journal no longer reaches back to `commit`, or `commit` is
// ahead of this store (another history): read the whole store again.
int store_read_delta(struct store_tx *tx, uint64_t commit, struct store_delta *delta);

// The open stage with the lowest id >= `id`, for whoever has to drop those of an earlier life.
// Returns: 0 with `found` and `channel` set; -ENOENT: none.
int store_read_stage(
	struct store_tx *tx, uint64_t id, uint64_t *found, struct channel_key *channel);
