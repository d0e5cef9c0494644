/* SPDX-License-Identifier: BSD-3-Clause */
// The inside of tags, for lib/tag and its unit tests. Control core only.
//
// Who holds which reference on a UID: the members of the newest version of an incarnation (a line) are
// held once, by the line. A member that an edit removes becomes a drop of the version before the edit;
// drops move to the next older version when theirs is freed, and are let go with the oldest. When a line
// ends (its newest is retired) or its body is replaced (rebuild), all members of that version are let go,
// after every older version is gone. So an index stays valid while any version that names it lives.
#pragma once

#include "presence.h"
#include "tag.h"
#include "topology.h"

#define TAG_FILL_UIDS (TAG_CHUNK_UIDS / 4 * 3)  // of a chunk when built or split: room for edits
#define TAG_SMALL_UIDS (TAG_CHUNK_UIDS / 4)  // chunks below are merged with a neighbour
#define TAG_STEP_UIDS_MAX TAG_CHUNK_UIDS  // of all steps of a line
#define TAG_FREE_UIDS 16384u  // references dropped by one tag_space_step

struct tag_drops {
	struct tag_drops *next;
	uint32_t count;
	uint32_t uid[];
};

struct tag_record;

// One incarnation.
struct tag_line {
	struct tag_line *prev, *next;  // of the space
	struct tag_record *oldest, *latest;
	struct tag_record *newest;  // NULL: ended
	uint64_t last_version;  // of the newest step
	struct tag_step **step;  // ring of steps_max
	uint32_t step_first, step_count;
	uint32_t step_uids;
};

// What the control core knows of a tag: tag->control.
struct tag_record {
	struct tag *tag;
	struct tag_space *space;
	struct tag_line *line;
	struct tag_record *older, *newer;  // live versions of the line
	struct tag_record *next;  // of the waiting list
	struct tag_drops *drops, *drops_last;
	struct topology_ref *topology;  // cut to its slots
	uint64_t bytes;  // of record, tag and topology; chunks count on their own
	uint32_t released_chunk, released_uid;  // where dropping its members stands
	bool let_go;  // its members are to be dropped with it
	bool retired;
};

struct tag_space {
	uint64_t bytes, bytes_max;
	uint64_t now_ns;
	uint32_t steps_max;
	struct presence *presence;
	struct rcu_retire *retire;
	struct tag_line *lines;
	struct tag_record *waiting,
		*waiting_last;  // grace period over, pins or older versions left
	uint32_t waiting_count;
	bool seeded;
	uint64_t seed;
	// Scratch of builds and edits, grown when needed.
	uint32_t *scratch;
	uint32_t scratch_cap;
};

static inline size_t chunk_bytes(uint32_t count)
{
	return sizeof(struct tag_chunk) + (size_t)count * sizeof(uint32_t);
}

// Room for `count` words in space->scratch. Returns: NULL when there is no memory.
uint32_t *space_scratch(struct tag_space *space, uint32_t count);
// Sorts by TAG_UID; `other` is room for as many.
void tag_sort(uint32_t *uid, uint32_t *other, uint32_t count);

// A chunk without references, or NULL; the budget is the caller's to check.
struct tag_chunk *chunk_make(const uint32_t *uid, uint32_t count);
void chunk_unref(struct tag_space *space, struct tag_chunk *chunk);

// Makes a tag over `chunks` chunks (a reference is taken on each, `fresh_bytes` of them are new) as the
// newest version of `line`, NULL: of a new line with a new key. Returns: NULL: no memory or no budget.
struct tag *tag_make(struct tag_space *space, struct tag_line *line, struct tag_chunk **chunk,
	uint32_t chunks, uint64_t fresh_bytes, uint64_t smv, const struct topology_ref *topology);

// Copies the members of a small tag, whose chunks are written by now, into it. The last step of making one.
void tag_inline(struct tag *tag);

static inline struct tag_record *record_of(const struct tag *tag)
{
	return tag->control;
}

// Gives a tag that nobody reads yet the fence its leader gave it, and no steps: a follower's copy.
void tag_fence_set(
	struct tag_space *space, struct tag *tag, const struct tag_fence *fence) CONTROL_ONLY;
// Hands over `targets` (malloc), which count for the budget from here on.
void tag_targets_set(
	struct tag_space *space, struct tag *tag, struct tag_targets *targets) CONTROL_ONLY;

// Steps of a line: clear, add one (space permitting).
void steps_clear(struct tag_space *space, struct tag_line *line, uint64_t version) CONTROL_ONLY;
struct step_lists {
	const uint32_t *add, *remove, *deny_set, *deny_clear;
	uint32_t adds, removes, deny_sets, deny_clears;
};
void steps_add(struct tag_space *space, struct tag_line *line, uint64_t version,
	const struct step_lists *lists) CONTROL_ONLY;
void steps_free(struct tag_line *line);
