/* SPDX-License-Identifier: BSD-3-Clause */
// Link addresses of the next hops: a bounded set-associative table with one writer, the control core, and
// lock-free readers, the workers. A full set gives way to new stations: first what no worker uses, the
// oldest first, never a static entry. No device and no clock here.
// Pairing: an entry is a sequence lock; the release store of `seq` in the writer pairs with the acquire
// load in neigh_lookup. `generation` is stored after a change, and read by a worker before it looks up.
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define NEIGH_SETS 1024u
#define NEIGH_WAYS 8u  // 8192 stations: twice GATEWAYS_MAX, so that sets overflow rarely
#define NEIGH_REFRESH_MAX 64u

struct neigh_entry {
	_Atomic uint32_t seq;  // odd while the writer is inside
	_Atomic uint32_t ip;  // 0: free
	_Atomic uint64_t mac;  // low 48 bits
	_Atomic uint32_t used;  // workers set it, the writer clears it
	// control: rw
	uint32_t fixed;  // from the configuration
	uint64_t confirmed_ns;
};

struct neigh_table {
	_Atomic uint32_t
		generation;  // changes when an address a worker may hold is no longer valid
	_Atomic uint32_t additions;  // changes when an entry was added
	_Atomic uint32_t count;
	uint64_t next_sweep_ns;  // control
	struct neigh_entry entry[NEIGH_SETS][NEIGH_WAYS];
};

// Stations whose entry gets old and that a worker still uses: to be asked again.
struct neigh_refresh {
	uint32_t count;
	struct {
		uint32_t ip;
		uint8_t mac[6];
	} item[NEIGH_REFRESH_MAX];
};

// Owns: memory until neigh_destroy. Returns: NULL when there is no memory.
struct neigh_table *neigh_create(void);
void neigh_destroy(struct neigh_table *table);

// Link address of `ip`, marks the entry as used. Context: any worker. Returns: false when unknown.
bool neigh_lookup(struct neigh_table *table, uint32_t ip, uint8_t mac[6]);

// What follows: control core only (or before the threads).

// Adds or confirms ip; `fixed` entries change never. Returns: 0; 1 when something changed; -ENOSPC when
// the set is full of fixed entries.
int neigh_set(
	struct neigh_table *table, uint32_t ip, const uint8_t mac[6], bool fixed, uint64_t now_ns);
// Confirms ip only when it is there already. Returns: as neigh_set, and 0 when it is not there.
int neigh_confirm(struct neigh_table *table, uint32_t ip, const uint8_t mac[6], uint64_t now_ns);

// Every eighth of the lifetime: removes entries older than ttl_ns, lists used ones older than half of it.
// Returns: entries removed.
uint32_t neigh_sweep(
	struct neigh_table *table, uint64_t ttl_ns, uint64_t now_ns, struct neigh_refresh *refresh);
