/* SPDX-License-Identifier: BSD-3-Clause */
// The inside of presence, for lib/presence and its unit tests. All of it is written by the control core;
// workers reach the route words, the `more` pointers, the gateway entries and the session slots.
#pragma once

#include "base_id.h"
#include "base_index.h"
#include "presence.h"
#include "presence_read.h"

// --- names: cells of 8..256 bytes in pages of 64 KiB, one size a page ------------------------------

#define NAME_PAGE_BYTES 65536u
#define NAME_UNIT_BYTES 8u
#define NAME_PAGE_UNITS (NAME_PAGE_BYTES / NAME_UNIT_BYTES)
#define NAME_CLASSES 32u  // units of a cell: 1..32
#define NAME_NONE UINT32_MAX

struct name_page {
	uint8_t *bytes;  // NULL: no memory
	uint32_t prev, next;  // of its class's pages with room
	uint16_t used, fresh;  // cells in use; cells never used before start at `fresh`
	uint16_t free;  // first free cell + 1
	uint8_t units;  // of a cell; 0: page unused
};
struct names {
	struct name_page *page;
	uint32_t pages, pages_max;
	uint32_t unused;  // first page without a class, linked by next
	uint32_t room[NAME_CLASSES];  // first page of the class with room
	uint64_t bytes;  // memory taken
};
int names_init(struct names *names, uint32_t pages_max);
void names_fini(struct names *names);
// Copies a name. Returns: its cell, or NAME_NONE when there is no room.
uint32_t names_put(struct names *names, struct id_view name);
void names_free(struct names *names, uint32_t cell);

static inline const uint8_t *names_at(const struct names *names, uint32_t cell)
{
	return names->page[cell / NAME_PAGE_UNITS].bytes +
	       (size_t)(cell % NAME_PAGE_UNITS) * NAME_UNIT_BYTES;
}

// --- UIDs -------------------------------------------------------------------------------------------

enum uid_state {
	UID_QUEUED = 1 << 0,  // stands in a quarantine list
	UID_AGAIN = 1 << 1,  // was held and dropped once more since: rests anew
};

// Cold part of a UID. With its route word (8), its `more` pointer (8) and at most 32 bytes of index this
// is at most 64 bytes.
struct uid_record {
	uint32_t name;
	uint32_t refs;
	uint32_t next;  // of the list it stands in
	uint8_t len;  // 0: index is free
	uint8_t state;  // enum uid_state
	uint16_t pad;
};
_Static_assert(sizeof(struct uid_record) == 16, "cold part of a UID");

struct uid_list {
	uint32_t head, tail;
};

// --- gateways and sessions --------------------------------------------------------------------------

// A session slot, one word: bits 0..29 UID index | 30..53 generation | 62 open | 63 used before.
#define SLOT_OPEN (UINT64_C(1) << 62)
#define SLOT_USED (UINT64_C(1) << 63)
#define SLOT_BLOCK 512u  // slots of a block: 4 KiB

static inline uint32_t slot_uid(uint64_t word)
{
	return (uint32_t)word & (UID_INDEX_MAX - 1);
}
static inline uint32_t slot_gen(uint64_t word)
{
	return (uint32_t)(word >> 30) & ((1u << SESSION_GEN_BITS) - 1);
}

struct slot_block {
	_Atomic uint64_t slot[SLOT_BLOCK];
};
// Grown by copy, published, the old one retired. A block pointer goes from NULL to a block once.
struct slot_dir {
	uint32_t blocks;
	_Atomic(struct slot_block *) block[];
};

enum gateway_state { GATEWAY_FREE, GATEWAY_LIVE, GATEWAY_ENDED };

// Control core's part of a gateway entry; `dir` is read by workers.
struct gateway_control {
	_Atomic(struct slot_dir *) dir;
	struct presence *presence;
	uint64_t next_expected;
	uint64_t heard_ns;
	uint32_t sessions;
	uint32_t prev, next;  // of live entries by time heard; next: of free or ended ones too
	uint32_t ended_next;  // of ended ones nobody took note of
	uint32_t sweep;  // next slot to sweep
	uint8_t state;
	bool told, grace_over, swept;
};

struct presence {
	struct presence_limits limits;
	struct rcu_retire *retire;
	// UIDs
	_Atomic uint64_t *route;
	_Atomic(struct presence_more *) *more;
	struct uid_record *uid;
	struct index uid_index;
	struct names names;
	uint32_t uid_top;  // indices at and above were never used
	uint32_t uid_free;
	uint32_t uids, uids_quarantined, uids_online;
	struct uid_list young, old, ready;  // quarantine: two generations, and what rested
	uint64_t turned_ns;  // when `young` was begun
	struct presence_more *dead;  // unlinked and past a grace period, to be retired
	uint32_t blocks_more;
	// gateways
	struct presence_gateway *gateway;
	struct gateway_control *control;
	struct index gateway_index;  // (gateway, boot) of live ones; workers read
	struct index gateway_ids;  // gateway of live ones
	uint32_t gateway_top;
	uint32_t free_head, free_tail;  // FIFO, so that an index rests
	uint32_t live_head, live_tail;  // by time heard
	uint32_t swept_head, swept_tail;  // ended, until they are free again
	uint32_t ended_head, ended_tail;
	uint32_t gateways, gateways_sweeping;
	uint32_t sessions;
	uint32_t blocks, blocks_max;  // slot blocks
};

uint64_t presence_gateway_hash(uint64_t gateway, uint64_t boot);
void presence_uids_turn(struct presence *p, uint64_t now_ns) CONTROL_ONLY;
uint32_t presence_uids_release(struct presence *p, uint32_t steps) CONTROL_ONLY;
uint32_t presence_gateways_sweep(struct presence *p, uint32_t steps) CONTROL_ONLY;
void presence_more_retire(struct presence *p) CONTROL_ONLY;

// Ends the session in a slot: route, reference and slot word.
void presence_slot_end(struct presence *p, uint32_t gateway, _Atomic uint64_t *cell) CONTROL_ONLY;
void presence_slots_free(struct presence *p, uint32_t gateway) CONTROL_ONLY;

// Memory that workers gather from: zeroed and touched, in huge pages where the system has them.
void *presence_map(size_t bytes);
void presence_unmap(void *p, size_t bytes);
