/* SPDX-License-Identifier: BSD-3-Clause */
// The control half of a node without workers: rings filled and emptied by hand, and a real store in memory
// whose deltas reach the feed when the test says so. One thread.
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "node_control_pvt.h"
#include "store_map.h"

#define MS UINT64_C(1000000)
#define SECOND UINT64_C(1000000000)
#define WORLD_GENERATION 5u  // of the store, plus what the test adds

struct world_delta {
	struct world_delta *next;
	uint64_t commit;
	uint32_t bytes;
	uint8_t frame[];
};

struct world {
	struct node *node;
	uint64_t now_ns;
	// store
	struct store_map *map;
	struct store_limits limits;
	uint64_t log_index;
	uint64_t generation_shift;
	uint32_t reopens;
	struct world_delta *delta, *delta_last;  // not delivered yet
	uint32_t deltas;
	// source faults
	int page_rc, channel_rc, position_rc;  // answered while not 0
	bool page_garble;  // pages are not well formed
	uint32_t pages;  // read so far
	void (*on_page)(struct world *w);  // before each page
	// wakes, by who
	uint32_t wakes[WORKERS_MAX + 1];
};

// Sizes of the node; change before world_open. With `dgram` set it is a whole node, workers and all.
extern struct node_params world_params;

struct world *world_open(void);
void world_close(struct world *w) CONTROL_ONLY;  // fails when a reference was left behind

// A mutation of group channel `chan`; `uids` separated by blanks.
struct store_result world_do(
	struct world *w, uint8_t op, uint8_t list, const char *chan, const char *uids);
// UIDs "<prefix><n>" for n in [from, to).
struct store_result world_range(struct world *w, uint8_t op, uint8_t list, const char *chan,
	const char *prefix, uint32_t from, uint32_t to);
// The list becomes exactly these, as one BULK delta.
void world_bulk(struct world *w, uint8_t list, const char *chan, const char *prefix, uint32_t from,
	uint32_t to);

int world_welcome(struct world *w, bool resync) CONTROL_ONLY;
// Delivers up to `max` deltas. Returns: the feed's last answer.
int world_deliver(struct world *w, uint32_t max) CONTROL_ONLY;
void world_step(struct world *w, uint32_t steps) CONTROL_ONLY;
// WELCOME and the full read.
void world_ready(struct world *w) CONTROL_ONLY;

struct channel *world_channel(struct world *w, const char *chan);
void world_want(struct world *w, const char *chan) CONTROL_ONLY;
// Wants and steps until the tag is current; NULL when it does not come.
struct tag *world_tag(struct world *w, const char *chan) CONTROL_ONLY;
bool world_usable(struct world *w, const char *chan);
// Members of the current tag in byte order, "a b !c": ! marks denied ones. In a static buffer.
const char *world_members(struct world *w, const char *chan) CONTROL_ONLY;

// The same of the store, as of now.
const char *world_stored(struct world *w, const char *chan);

uint64_t world_count(const struct world *w, enum counter id);

// A client's request to the control core, as a worker puts it.
void world_request(struct world *w, uint32_t worker, uint64_t sender, uint64_t boot, uint8_t type,
	const struct wire_buf *body);
// The oldest reply in a worker's ring. Returns: false when it is empty.
bool world_reply(struct world *w, uint32_t worker, struct node_reply *reply);
