/* SPDX-License-Identifier: BSD-3-Clause */
// The follower's side of tags: the partition of one channel that this node owns, as its leader gave it, and the
// rules by which tasks use it and answers replace it. Only a leader's answer ever makes or moves one; a node
// never builds a partition it does not lead, and never answers with more than its own.
//
// The rules (tag_lookup_judge, tag_answer_judge) are pure functions. The cache around them is written by the
// control core; workers read the published tag under RCU, so nobody ever sees half a fence.
#pragma once

#include "tag.h"
#include "tag_pull.h"

struct topology;

// --- a task against what is cached --------------------------------------------------------------------------

enum tag_lookup {
	TAG_LOOKUP_HIT,  // same fence, topology equal: serve
	TAG_LOOKUP_STALE_REQUEST,  // same key, older version: serve with what is cached, change nothing
	TAG_LOOKUP_MISSING_REF,  // nothing known of the channel: ask the leader
	TAG_LOOKUP_MISSING_TAG,  // the fence is known, the body went: ask
	TAG_LOOKUP_KEY_MISMATCH,  // another incarnation, not ordered against this one: ask, keep what is there
	TAG_LOOKUP_NEWER_REQUEST,  // same key, later version: ask
	TAG_LOOKUP_TOPOLOGY_MISMATCH,  // what is cached belongs to another topology: ask
	TAG_LOOKUPS
};
const char *tag_lookup_name(enum tag_lookup lookup);
static inline bool tag_lookup_serves(enum tag_lookup lookup)
{
	return lookup <= TAG_LOOKUP_STALE_REQUEST;
}

struct tag_cached {
	struct tag_fence fence;  // version 0: no reference
	bool body;
	bool topology;  // equal in full shape to the current one
};
enum tag_lookup tag_lookup_judge(const struct tag_cached *cached, const struct tag_fence *request);

// --- a leader's answer against what is cached ---------------------------------------------------------------

enum tag_answer {
	TAG_ANSWER_DROP,  // late, or not of whom leads now: nothing happens
	TAG_ANSWER_INSTALL,  // confirmed current: replaces what is cached
	TAG_ANSWER_CONFIRM,  // what is cached is current, by this topology
	TAG_ANSWER_PAST,  // the task's fence is past or unknown to the leader: tag_mismatch
	TAG_ANSWER_RETRY,  // later, with back-off
	TAG_ANSWER_REDIRECT,  // ask whom the topology names by now
};
struct tag_told {
	bool asked;  // answers the attempt under way
	bool from_leader;  // sender and authority are those of the leader by the current topology
	bool topology;  // its slots are current in full shape
	enum wire_status status;  // through wire_pull_status
	struct tag_fence fence;
};
enum tag_answer tag_answer_judge(const struct tag_cached *cached, const struct tag_told *told);

// --- the cache of one channel -------------------------------------------------------------------------------

struct tag_follow {
	struct tag_space *space;
	struct presence *presence;
	uint64_t self;
	_Atomic(struct tag *) *published;  // where workers find it
	struct tag_fence fence;  // of the last one installed; stays when the body goes
	struct tag *tag;
	struct tag_pull *pull;  // NULL: none under way
	// What came of the attempt under way: entries, each with a reference; its slots.
	uint32_t *uid;
	uint32_t uids, uids_cap;
	struct topology_ref *ref;
	uint64_t smv;
};

// Starts without anything. `published` is where a tag of this channel goes; NULL in it now.
void tag_follow_init(struct tag_follow *f, struct tag_space *space, struct presence *presence,
	uint64_t self, _Atomic(struct tag *) *published);
// Unpublishes and gives up all; also when leadership comes to this node, before it builds its own.
void tag_follow_fini(struct tag_follow *f) CONTROL_ONLY;

enum tag_lookup tag_follow_lookup(const struct tag_follow *f, const struct tag_fence *request,
	const struct topology *t) CONTROL_ONLY;
// What workers ask under RCU: the tag they may serve `request` with, or NULL. Whether its topology is current
// the control core sees to: it unpublishes on change (tag_follow_topology).
static inline struct tag *tag_follow_read(
	_Atomic(struct tag *) *published, const struct tag_fence *request)
{
	struct tag *const tag = rcu_read(published);

	if (tag == NULL || memcmp(tag->fence.key, request->key, sizeof(request->key)) != 0 ||
		tag->fence.version < request->version)
		return NULL;
	return tag;
}

// Begins a pull; one that is under way goes on with the later wish. Returns: 0; -EALREADY: goes on; -ENOMEM.
int tag_follow_pull(struct tag_follow *f, const struct tag_pull_config *config, uint64_t request_id,
	const struct tag_fence *want, uint64_t now_ns) CONTROL_ONLY;
void tag_follow_stop(struct tag_follow *f) CONTROL_ONLY;

enum tag_follow_event {
	TAG_FOLLOW_NOTHING,  // late, repeated, or of somebody who does not lead
	TAG_FOLLOW_MORE,  // taken; look at tag_pull_due
	TAG_FOLLOW_INSTALLED,  // the pull is over, what is cached is new (or confirmed)
	TAG_FOLLOW_PAST,  // the pull is over: answer the tasks that wait tag_mismatch
	TAG_FOLLOW_RETRY,  // the pull is over: later again
	TAG_FOLLOW_REDIRECT,  // the pull is over: ask the leader known by then
	TAG_FOLLOW_RESTART,  // the attempt is over: tag_follow_restart with a new request id
	TAG_FOLLOW_LIMIT,  // the pull is over: UID table or tag memory is full
};
// Takes a TAG_PART. `from_leader`: its sender and authority are those of the channel's leader by `t`, the
// topology of now.
enum tag_follow_event tag_follow_part(struct tag_follow *f, const struct wire_tag_part *part,
	bool from_leader, const struct topology *t, uint64_t now_ns) CONTROL_ONLY;
// Returns: false: too many attempts, the pull is over.
bool tag_follow_restart(struct tag_follow *f, const struct tag_pull_config *config,
	uint64_t request_id, uint64_t now_ns) CONTROL_ONLY;

// After a change of topology: what is cached over another one is unpublished, and kept as the base of a
// delta. Returns: true when it still counts.
bool tag_follow_topology(struct tag_follow *f, const struct topology *t) CONTROL_ONLY;
// Lets the body go when nobody used it since `before_ns`; frees memory and nothing else. Returns: true: gone.
bool tag_follow_expire(struct tag_follow *f, uint64_t before_ns) CONTROL_ONLY;
