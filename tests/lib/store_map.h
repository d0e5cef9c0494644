/* SPDX-License-Identifier: BSD-3-Clause */
// A store backend in memory: ordered maps with one write transaction that commits or aborts whole, and a
// fault for the Nth call. Values handed out inside a write transaction die with the next write, as the
// contract allows, so that a sanitizer sees a stale view. One thread.
#pragma once

#include "store.h"

struct store_map;

// Returns: NULL when there is no memory.
struct store_map *store_map_create(void);
void store_map_destroy(struct store_map *map);

void store_map_begin(struct store_map *map, struct store_tx *tx);
void store_map_commit(struct store_map *map, struct store_tx *tx);
void store_map_abort(struct store_map *map, struct store_tx *tx);

// The committed state, to be read while no write transaction is open.
void store_map_read(struct store_map *map, struct store_tx *tx);

// The Nth call (1 = the next) of any op answers `rc`, once. 0 switches it off.
void store_map_fail(struct store_map *map, uint64_t nth, int rc);
bool store_map_failed(const struct store_map *map);  // the fault has fired

uint64_t store_map_calls(const struct store_map *map);
uint64_t store_map_rows(const struct store_map *map, enum store_table table);
// Makes `to` hold exactly what `from` holds (a snapshot in a simulator).
void store_map_copy(struct store_map *to, const struct store_map *from);
// FNV-1a over all rows of all tables.
uint64_t store_map_digest(const struct store_map *map);
