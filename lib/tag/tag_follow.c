/* SPDX-License-Identifier: BSD-3-Clause */
// The follower's partition of a channel: rules, and installation of what its leader told. Control core.
#include "tag_follow.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tag_pvt.h"

#define GONE (UINT32_C(1) << 30)  // of a staged entry: no member

const char *tag_lookup_name(enum tag_lookup lookup)
{
	static const char *const names[TAG_LOOKUPS] = {
		[TAG_LOOKUP_HIT] = "hit",
		[TAG_LOOKUP_STALE_REQUEST] = "stale_request",
		[TAG_LOOKUP_MISSING_REF] = "missing_ref",
		[TAG_LOOKUP_MISSING_TAG] = "missing_tag",
		[TAG_LOOKUP_KEY_MISMATCH] = "tag_key_mismatch",
		[TAG_LOOKUP_NEWER_REQUEST] = "newer_request",
		[TAG_LOOKUP_TOPOLOGY_MISMATCH] = "topology_mismatch",
	};

	return (unsigned)lookup < TAG_LOOKUPS ? names[lookup] : "unknown";
}

static bool key_same(const struct tag_fence *a, const struct tag_fence *b)
{
	return memcmp(a->key, b->key, sizeof(a->key)) == 0;
}

enum tag_lookup tag_lookup_judge(const struct tag_cached *cached, const struct tag_fence *request)
{
	if (cached->fence.version == 0)
		return TAG_LOOKUP_MISSING_REF;
	if (!key_same(&cached->fence, request))
		return TAG_LOOKUP_KEY_MISMATCH;
	if (!cached->body)
		return TAG_LOOKUP_MISSING_TAG;
	if (!cached->topology)
		return TAG_LOOKUP_TOPOLOGY_MISMATCH;
	if (request->version > cached->fence.version)
		return TAG_LOOKUP_NEWER_REQUEST;
	return request->version == cached->fence.version ? TAG_LOOKUP_HIT
							 : TAG_LOOKUP_STALE_REQUEST;
}

enum tag_answer tag_answer_judge(const struct tag_cached *cached, const struct tag_told *told)
{
	if (!told->asked)
		return TAG_ANSWER_DROP;
	switch (told->status) {
	case WIRE_OK:
		break;
	case WIRE_NOT_LEADER:
		return TAG_ANSWER_REDIRECT;
	case WIRE_TAG_NOT_CURRENT:
	case WIRE_TAG_VERSION_MISMATCH:
		// Only who leads can say what is past.
		return told->from_leader ? TAG_ANSWER_PAST : TAG_ANSWER_RETRY;
	case WIRE_TAG_NOT_FOUND:
	default:
		return TAG_ANSWER_RETRY;
	}
	if (!told->from_leader)
		return TAG_ANSWER_DROP;
	if (!told->topology)
		return TAG_ANSWER_RETRY;
	if (cached->fence.version != 0 && key_same(&cached->fence, &told->fence)) {
		if (told->fence.version < cached->fence.version)
			return TAG_ANSWER_DROP;
		if (told->fence.version == cached->fence.version && cached->body)
			return TAG_ANSWER_CONFIRM;
	}
	return TAG_ANSWER_INSTALL;
}

// --- the cache ------------------------------------------------------------------------------------------

void tag_follow_init(struct tag_follow *f, struct tag_space *space, struct presence *presence,
	uint64_t self, _Atomic(struct tag *) *published)
{
	*f = (struct tag_follow){
		.space = space, .presence = presence, .self = self, .published = published};
}

static void staged_drop(struct tag_follow *f) CONTROL_ONLY;
static void staged_drop(struct tag_follow *f)
{
	for (uint32_t i = 0; i < f->uids; i++)
		presence_uid_drop(f->presence, TAG_UID(f->uid[i]) & ~GONE, f->space->now_ns);
	f->uids = 0;
	if (f->ref != NULL)
		f->ref->count = 0;
}

void tag_follow_stop(struct tag_follow *f)
{
	staged_drop(f);
	free(f->uid);
	free(f->ref);
	free(f->pull);
	f->uid = NULL;
	f->uids_cap = 0;
	f->ref = NULL;
	f->pull = NULL;
}

static void body_drop(struct tag_follow *f) CONTROL_ONLY;
static void body_drop(struct tag_follow *f)
{
	if (f->tag == NULL)
		return;
	rcu_publish(f->published, NULL);
	tag_retire(f->space, f->tag);
	f->tag = NULL;
}

void tag_follow_fini(struct tag_follow *f)
{
	tag_follow_stop(f);
	body_drop(f);
	memset(&f->fence, 0, sizeof(f->fence));
}

static struct tag_cached cached(const struct tag_follow *f, const struct topology *t) CONTROL_ONLY;
static struct tag_cached cached(const struct tag_follow *f, const struct topology *t)
{
	return (struct tag_cached){
		.fence = f->fence,
		.body = f->tag != NULL,
		.topology = f->tag != NULL && topology_ref_current(tag_topology(f->tag), t),
	};
}

enum tag_lookup tag_follow_lookup(
	const struct tag_follow *f, const struct tag_fence *request, const struct topology *t)
{
	const struct tag_cached c = cached(f, t);

	return tag_lookup_judge(&c, request);
}

bool tag_follow_topology(struct tag_follow *f, const struct topology *t)
{
	if (f->tag == NULL)
		return false;
	if (!topology_ref_current(tag_topology(f->tag), t)) {
		rcu_publish(f->published, NULL);
		return false;
	}
	rcu_publish(f->published, f->tag);
	return true;
}

bool tag_follow_expire(struct tag_follow *f, uint64_t before_ns)
{
	if (f->tag == NULL || f->pull != NULL ||
		atomic_load_explicit(&f->tag->used_ns, memory_order_relaxed) >= before_ns)
		return false;
	body_drop(f);
	return true;
}

// --- pulls ------------------------------------------------------------------------------------------------

static bool later(const struct tag_fence *a, const struct tag_fence *b)
{
	return key_same(a, b) && a->version > b->version;
}

int tag_follow_pull(struct tag_follow *f, const struct tag_pull_config *config, uint64_t request_id,
	const struct tag_fence *want, uint64_t now_ns)
{
	static const struct tag_fence nothing;

	if (f->pull != NULL) {
		// A pull bound to an older body ends first; the next one brings the rest, as a delta.
		if (f->pull->body.version == 0 && later(want, &f->pull->want))
			f->pull->want = *want;
		return -EALREADY;
	}
	f->pull = malloc(sizeof(*f->pull));
	f->ref = malloc(sizeof(*f->ref));
	if (f->pull == NULL || f->ref == NULL) {
		tag_follow_stop(f);
		return -ENOMEM;
	}
	f->ref->count = 0;
	tag_pull_begin(
		f->pull, config, request_id, want, f->tag != NULL ? &f->fence : &nothing, now_ns);
	return 0;
}

bool tag_follow_restart(struct tag_follow *f, const struct tag_pull_config *config,
	uint64_t request_id, uint64_t now_ns)
{
	staged_drop(f);
	if (f->pull != NULL && tag_pull_restart(f->pull, config, request_id, now_ns))
		return true;
	tag_follow_stop(f);
	return false;
}

static bool room_for(struct tag_follow *f, uint32_t more)
{
	uint32_t cap = f->uids_cap;
	uint32_t *grown;

	if (f->uids + more <= cap)
		return true;
	cap = cap * 2 > f->uids + more ? cap * 2 : f->uids + more;
	grown = realloc(f->uid, cap * sizeof(*grown));
	if (grown == NULL)
		return false;
	f->uid = grown;
	f->uids_cap = cap;
	return true;
}

// Slots may come in chunks in any order.
static bool slot_stage(struct topology_ref *ref, const struct wire_part_entry *e, uint64_t self)
{
	const struct topology_slot s = {
		.slot = e->slot,
		.leader = self,
		.term = e->term,
		.config_epoch = e->config_epoch,
		.balance_version = e->balance_version,
	};
	uint32_t at = ref->count;

	if (s.slot > TOPOLOGY_SLOTS_MAX || ref->count == TOPOLOGY_SLOTS_MAX)
		return false;
	while (at > 0 && ref->slot[at - 1].slot > s.slot)
		at--;
	if (at > 0 && ref->slot[at - 1].slot == s.slot)
		return false;
	memmove(&ref->slot[at + 1], &ref->slot[at], (ref->count - at) * sizeof(s));
	ref->slot[at] = s;
	ref->count++;
	return true;
}

// Keeps a chunk's entries. Returns: 0; -ENOSPC: no room for a UID; -EINVAL: what no leader tells.
static int stage(struct tag_follow *f, const struct wire_tag_part *part) CONTROL_ONLY;
static int stage(struct tag_follow *f, const struct wire_tag_part *part)
{
	struct wire_view rest = part->body;
	struct wire_part_entry e;

	f->ref->version = part->table_version;
	f->smv = part->smv;
	if (!room_for(f, part->entries))
		return -ENOSPC;
	while (wire_part_next(&rest, &e)) {
		uint32_t uid;

		if (e.op == WIRE_PART_SLOT) {
			if (!slot_stage(f->ref, &e, f->self))
				return -EINVAL;
			continue;
		}
		if (e.op == WIRE_PART_GONE) {
			// Who has no index here is no member here either.
			uid = presence_uid_find(f->presence, e.uid);
			if (uid == 0)
				continue;
			presence_uid_ref(f->presence, uid);
		} else {
			uid = presence_uid_hold(f->presence, e.uid);
		}
		if (uid == 0)
			return -ENOSPC;
		f->uid[f->uids++] = uid | (e.op == WIRE_PART_GONE            ? GONE
						  : e.op == WIRE_PART_DENIED ? TAG_DENIED
									     : 0);
	}
	return 0;
}

// True when each member told is of a slot told: the leader sent this node's own partition, and all its slots.
static bool own_only(const struct tag_follow *f, const struct topology *t) CONTROL_ONLY;
static bool own_only(const struct tag_follow *f, const struct topology *t)
{
	for (uint32_t i = 0; i < f->uids; i++) {
		const struct id_view name =
			presence_uid_name(f->presence, TAG_UID(f->uid[i]) & ~GONE);
		const uint32_t slot = topology_slot_of(t, name);
		uint32_t at = 0;

		if ((f->uid[i] & GONE) != 0)
			continue;
		while (at < f->ref->count && f->ref->slot[at].slot < slot)
			at++;
		if (at == f->ref->count || f->ref->slot[at].slot != slot)
			return false;
	}
	return true;
}

static void replace(
	struct tag_follow *f, struct tag *tag, const struct tag_fence *fence) CONTROL_ONLY;
static void replace(struct tag_follow *f, struct tag *tag, const struct tag_fence *fence)
{
	struct tag *const old = f->tag;

	tag_fence_set(f->space, tag, fence);
	f->tag = tag;
	f->fence = *fence;
	rcu_publish(f->published, tag);
	if (old != NULL)
		tag_retire(f->space, old);
}

// Returns: 0; -ENOSPC: no memory; -EINVAL: not the number of members told.
static int install_whole(
	struct tag_follow *f, const struct tag_fence *fence, uint32_t members) CONTROL_ONLY;
static int install_whole(struct tag_follow *f, const struct tag_fence *fence, uint32_t members)
{
	struct tag *const tag = tag_build(f->space, f->uid, f->uids, f->smv, f->ref);

	if (tag == NULL)
		return -ENOSPC;
	f->uids = 0;  // references are the tag's
	if (tag->count != members) {
		tag_retire(f->space, tag);
		return -EINVAL;
	}
	replace(f, tag, fence);
	return 0;
}

// Sorts what was told into the lists of an edit: each list is as long as all of it.
static void edit_fill(const struct tag_follow *f, uint32_t *list, struct tag_edit *e)
{
	uint32_t *const add = list, *const remove = list + f->uids;
	uint32_t *const set = list + 2 * (size_t)f->uids, *const clear = list + 3 * (size_t)f->uids;

	*e = (struct tag_edit){.add = add,
		.remove = remove,
		.deny_set = set,
		.deny_clear = clear,
		.smv = f->smv,
		.topology = f->ref};
	for (uint32_t i = 0; i < f->uids; i++) {
		const uint32_t uid = TAG_UID(f->uid[i]) & ~GONE;

		if ((f->uid[i] & GONE) != 0) {
			remove[e->removes++] = uid;
		} else if ((f->uid[i] & TAG_DENIED) != 0) {
			add[e->adds++] = uid | TAG_DENIED;
			set[e->deny_sets++] = uid;
		} else {
			add[e->adds++] = uid;
			clear[e->deny_clears++] = uid;
		}
	}
}

static int install_delta(
	struct tag_follow *f, const struct tag_fence *fence, uint32_t members) CONTROL_ONLY;
static int install_delta(struct tag_follow *f, const struct tag_fence *fence, uint32_t members)
{
	uint32_t *const list = malloc(((size_t)f->uids * 4 + 1) * sizeof(*list));
	struct tag_edit edit;
	struct tag *tag;

	if (list == NULL)
		return -ENOSPC;
	edit_fill(f, list, &edit);
	tag = tag_edit(f->space, f->tag, &edit);
	free(list);
	staged_drop(f);
	if (tag == NULL)
		return -ENOSPC;
	replace(f, tag, fence);
	if (tag->count == members)
		return 0;
	// What was there was not what the leader thought: nothing of it is to be used.
	body_drop(f);
	return -EINVAL;
}

static enum tag_follow_event install(struct tag_follow *f, const struct wire_tag_part *part,
	const struct topology *t) CONTROL_ONLY;
static enum tag_follow_event install(
	struct tag_follow *f, const struct wire_tag_part *part, const struct topology *t)
{
	const struct tag_cached c = cached(f, t);
	const struct tag_told told = {
		.asked = true,
		.from_leader = true,
		.topology = topology_ref_current(f->ref, t) && own_only(f, t),
		.status = WIRE_OK,
		.fence = f->pull->body,
	};
	const uint64_t base = f->pull->base;
	int rc = 0;

	switch (tag_answer_judge(&c, &told)) {
	case TAG_ANSWER_INSTALL:
		if (base != 0 && (f->tag == NULL || f->fence.version != base ||
					 !key_same(&f->fence, &told.fence)))
			rc = -EINVAL;
		else
			rc = base != 0 ? install_delta(f, &told.fence, part->members)
				       : install_whole(f, &told.fence, part->members);
		break;
	case TAG_ANSWER_CONFIRM:
		// Same members, perhaps over another topology.
		if (base == 0 && !c.topology)
			rc = install_whole(f, &told.fence, part->members);
		break;
	case TAG_ANSWER_DROP:
	case TAG_ANSWER_PAST:
	case TAG_ANSWER_RETRY:
	case TAG_ANSWER_REDIRECT:
		tag_follow_stop(f);
		return TAG_FOLLOW_RETRY;
	}
	if (rc == -EINVAL) {
		f->pull->delta = false;
		memset(&f->pull->have, 0, sizeof(f->pull->have));
		return TAG_FOLLOW_RESTART;
	}
	tag_follow_stop(f);
	return rc == 0 ? TAG_FOLLOW_INSTALLED : TAG_FOLLOW_LIMIT;
}

// An answer that is no chunk.
static enum tag_follow_event refusal(
	struct tag_follow *f, const struct wire_tag_part *part, bool from_leader) CONTROL_ONLY;
static enum tag_follow_event refusal(
	struct tag_follow *f, const struct wire_tag_part *part, bool from_leader)
{
	const struct tag_cached c = {.fence = f->fence};
	bool unknown;
	const struct tag_told told = {
		.asked = f->pull != NULL && part->request_id == f->pull->request_id,
		.from_leader = from_leader,
		.status = wire_pull_status(part->status, &unknown),
	};

	switch (tag_answer_judge(&c, &told)) {
	case TAG_ANSWER_PAST:
		tag_follow_stop(f);
		return TAG_FOLLOW_PAST;
	case TAG_ANSWER_REDIRECT:
		tag_follow_stop(f);
		return TAG_FOLLOW_REDIRECT;
	case TAG_ANSWER_RETRY:
		tag_follow_stop(f);
		return TAG_FOLLOW_RETRY;
	case TAG_ANSWER_DROP:
	case TAG_ANSWER_INSTALL:
	case TAG_ANSWER_CONFIRM:
		break;
	}
	return TAG_FOLLOW_NOTHING;
}

enum tag_follow_event tag_follow_part(struct tag_follow *f, const struct wire_tag_part *part,
	bool from_leader, const struct topology *t, uint64_t now_ns)
{
	enum tag_pull_event event;
	int rc;

	if (part->status != WIRE_OK)
		return refusal(f, part, from_leader);
	if (f->pull == NULL || !from_leader)
		return TAG_FOLLOW_NOTHING;
	event = tag_pull_part(f->pull, part, now_ns);
	switch (event) {
	case TAG_PULL_LATE:
	case TAG_PULL_REPEATED:
		return TAG_FOLLOW_NOTHING;
	case TAG_PULL_RESTART:
		return TAG_FOLLOW_RESTART;
	case TAG_PULL_TAKEN:
	case TAG_PULL_COMPLETE:
		break;
	}
	rc = stage(f, part);
	if (rc == -EINVAL)
		return TAG_FOLLOW_RESTART;
	if (rc != 0) {
		tag_follow_stop(f);
		return TAG_FOLLOW_LIMIT;
	}
	return event == TAG_PULL_COMPLETE ? install(f, part, t) : TAG_FOLLOW_MORE;
}
