/* SPDX-License-Identifier: BSD-3-Clause */
// One pull of a partition as its receiver drives it: which chunks to ask for, when to ask again, when to begin
// anew. Pure: time, answers and request ids in, decisions out; knows neither UIDs nor sockets. One owner.
//
// An attempt is one request id and ends up with chunks of one (fence, base) or not at all: a chunk of another
// one ends it, what came so far is thrown away, a new attempt with a new id begins. From the third
// attempt on the leader is asked to hold its body, and what changed meanwhile is asked for as a delta
// afterwards, so that a pull ends under any churn. Chunks may be lost, repeated and reordered.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "tag_read.h"
#include "wire_node.h"

struct tag_pull_config {
	uint32_t window;  // chunks under way, 1..WIRE_WINDOW_MAX
	uint64_t retry_ns;  // without an answer, doubled each time
	uint64_t retry_max_ns;
	uint32_t silent_max;  // requests without an answer before it is given up
	uint32_t restarts_max;
};

struct tag_pull {
	uint64_t request_id;  // of the attempt; 0: no pull
	struct tag_fence want;  // version 0: whatever is current
	struct tag_fence have;  // version 0: nothing
	bool delta;  // a delta on `have` will do
	struct tag_fence body;  // of the attempt's chunks; version 0: none came yet
	uint64_t base;
	uint32_t count;  // chunks of it
	uint32_t got_count;
	uint32_t low;  // all below are here
	uint32_t next;  // none from here on was asked for
	uint32_t again;  // chunks of the last repeated request still missing
	uint32_t silent, restarts;
	bool asked;
	bool again_only;  // silence was met: gaps are asked for one after the other
	uint64_t begun_ns, heard_ns, wait_ns, retry_ns;
	uint64_t got[WIRE_PART_CHUNKS_MAX / 64];
};

// Begins a pull with its first attempt. `request_id`: never used before by this node in this boot.
void tag_pull_begin(struct tag_pull *p, const struct tag_pull_config *config, uint64_t request_id,
	const struct tag_fence *want, const struct tag_fence *have, uint64_t now_ns);
void tag_pull_end(struct tag_pull *p);

enum tag_pull_event {
	TAG_PULL_LATE,  // not of this attempt: thrown away, whatever it says
	TAG_PULL_REPEATED,  // had it
	TAG_PULL_TAKEN,  // its entries are to be kept
	TAG_PULL_COMPLETE,  // the same, and it was the last one missing
	TAG_PULL_RESTART,  // of another body: keep nothing, tag_pull_restart
};
// Judges a chunk (status ok) by its head.
enum tag_pull_event tag_pull_part(
	struct tag_pull *p, const struct wire_tag_part *part, uint64_t now_ns);
// The next attempt. Returns: false when there were too many: the pull is over.
bool tag_pull_restart(struct tag_pull *p, const struct tag_pull_config *config, uint64_t request_id,
	uint64_t now_ns);

enum tag_pull_due { TAG_PULL_WAIT, TAG_PULL_ASK, TAG_PULL_GIVE_UP };
enum tag_pull_due tag_pull_due(
	const struct tag_pull *p, const struct tag_pull_config *config, uint64_t now_ns);
// When to look again, with nothing heard.
uint64_t tag_pull_next_ns(const struct tag_pull *p);
// Fills the parts of a request that are the pull's own; to be sent. After TAG_PULL_ASK.
void tag_pull_ask(struct tag_pull *p, const struct tag_pull_config *config, uint64_t now_ns,
	struct wire_tag_get *get);
