/* SPDX-License-Identifier: BSD-3-Clause */
// A look at a whole store: what is in it, and whether all of it fits together. For offline tools, on a copy
// or a store that nobody writes: the transaction stays open for the whole walk.
// Context: any thread; allocates some bytes per channel.
#pragma once

#include "store.h"

struct store_inspection {
	uint64_t cluster_id, applied, commit, chain, generation;
	uint64_t rows[STORE_TABLES];
	uint64_t channels, tombstones, channels_staged;  // staged: brought in by an open stage only
	uint64_t members;  // of STORE_MEMBERS of all channels
	uint64_t list_rows[4];  // by enum store_list, in force
	uint64_t lists_layered;  // with generations to merge
	uint64_t generations_dead;  // with rows to drop
	uint64_t stages, dedup_keys;
	uint64_t journal_first, journal_last;  // 0: empty
	uint64_t nodes[5];  // by enum store_node_state; [0] is all of them
	uint64_t slots, hash_slots, runtime_rows;
};

// The first thing that is wrong.
struct store_fault {
	const char *what;  // static text
	uint8_t table;  // enum store_table
	uint32_t key_len;  // 0: not of one row
	uint8_t key[512];
};

// Walks all tables and checks rows, order, counts, references, versions and the journal against each other.
// Fills `out` as far as it got. Returns: 0 all is well; -EUCLEAN with `fault`; -ENOENT: not formatted;
// -ENOMEM; other -errno of the backend.
int store_verify(struct store_tx *tx, struct store_inspection *out, struct store_fault *fault);
