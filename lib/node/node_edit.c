/* SPDX-License-Identifier: BSD-3-Clause */
// Tags of channels: publication, and the edit a delta asks for. Control core.
//
// Beside a tag stands the channel's deny list, as far as it is not too long: whoever is added later must
// come denied. Without it an added member makes the tag stale, and it is built anew.
#include "node_control_pvt.h"

#include <stdlib.h>

// --- lists of held indices ------------------------------------------------------------------------------

bool node_uids_add(struct node *node, struct node_uids *list, uint32_t uid)
{
	struct node_build *b = &node->control->build;

	if (list->count == list->cap) {
		const uint32_t cap = list->cap == 0 ? 64 : list->cap * 2;
		uint32_t *grown;

		if (tag_space_bytes(node->tags) + (b->uids + cap - list->cap) * sizeof(*grown) >
			node->params.tag_bytes) {
			counter_add(own(node), CTR_LIMIT_TAG_MEMORY, 1);
			return false;
		}
		grown = realloc(list->uid, cap * sizeof(*grown));
		if (grown == NULL)
			return false;
		b->uids += cap - list->cap;
		list->uid = grown;
		list->cap = cap;
	}
	list->uid[list->count++] = uid;
	return true;
}

void node_uids_drop(struct node *node, struct node_uids *list, uint64_t now_ns)
{
	for (uint32_t i = 0; i < list->count; i++)
		presence_uid_drop(node->presence, TAG_UID(list->uid[i]), now_ns);
	node->control->build.uids -= list->cap;
	free(list->uid);
	*list = (struct node_uids){0};
}

bool node_scratch(struct node *node, uint32_t count)
{
	struct node_build *b = &node->control->build;
	struct id_view *name;
	uint32_t *uid;

	if (count <= b->scratch_cap)
		return true;
	name = realloc(b->name, count * sizeof(*name));
	if (name == NULL)
		return false;
	b->name = name;
	uid = realloc(b->scratch, count * sizeof(*uid));
	if (uid == NULL)
		return false;
	b->scratch = uid;
	b->scratch_cap = count;
	return true;
}

// --- publication --------------------------------------------------------------------------------------

void node_tag_set(struct node *node, struct channel *channel, struct tag *tag)
{
	struct tag *old = atomic_load_explicit(&channel->tag, memory_order_relaxed);

	rcu_publish(&channel->tag, tag);
	if (old != NULL)
		tag_retire(node->tags, old);
}

bool node_tag_current(const struct node *node, const struct channel *channel)
{
	const struct tag *tag = atomic_load_explicit(&channel->tag, memory_order_relaxed);

	return tag != NULL &&
	       tag->smv == atomic_load_explicit(&channel->smv, memory_order_relaxed) &&
	       topology_ref_current(tag_topology(tag), node->topology);
}

// --- the deny list --------------------------------------------------------------------------------------

void node_deny_drop(struct node *node, struct node_channel *nc, uint64_t now_ns)
{
	nc->deny_partial = false;
	if (nc->deny.cap != 0)
		node_uids_drop(node, &nc->deny, now_ns);
}

// Where `uid` stands or belongs.
static uint32_t deny_at(const struct node_uids *deny, uint32_t uid)
{
	uint32_t low = 0, high = deny->count;

	while (low < high) {
		const uint32_t mid = low + (high - low) / 2;

		if (deny->uid[mid] < uid)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

static bool denied(const struct node_uids *deny, uint32_t uid)
{
	const uint32_t at = deny_at(deny, uid);

	return at < deny->count && deny->uid[at] == uid;
}

// Takes over a reference. From DENY_KEPT_MAX on the list is not kept.
static void deny_insert(
	struct node *node, struct node_channel *nc, uint32_t uid, uint64_t now_ns) CONTROL_ONLY;
static void deny_insert(struct node *node, struct node_channel *nc, uint32_t uid, uint64_t now_ns)
{
	struct node_uids *deny = &nc->deny;
	const uint32_t at = deny_at(deny, uid);

	if (nc->deny_partial || (at < deny->count && deny->uid[at] == uid)) {
		presence_uid_drop(node->presence, uid, now_ns);
		return;
	}
	if (deny->count == DENY_KEPT_MAX || !node_uids_add(node, deny, uid)) {
		presence_uid_drop(node->presence, uid, now_ns);
		node_deny_drop(node, nc, now_ns);
		nc->deny_partial = true;
		return;
	}
	memmove(&deny->uid[at + 1], &deny->uid[at], (deny->count - 1 - at) * sizeof(uid));
	deny->uid[at] = uid;
}

static void deny_remove(
	struct node *node, struct node_channel *nc, uint32_t uid, uint64_t now_ns) CONTROL_ONLY;
static void deny_remove(struct node *node, struct node_channel *nc, uint32_t uid, uint64_t now_ns)
{
	struct node_uids *deny = &nc->deny;
	const uint32_t at = deny_at(deny, uid);

	if (at == deny->count || deny->uid[at] != uid)
		return;
	deny->count--;
	memmove(&deny->uid[at], &deny->uid[at + 1], (deny->count - at) * sizeof(uid));
	presence_uid_drop(node->presence, uid, now_ns);
}

// --- edits --------------------------------------------------------------------------------------------

// Names of a delta into build.name. Returns: their number, at most `uid_count`; false: malformed.
static bool names_of(struct node *node, const struct store_delta *d) CONTROL_ONLY;
static bool names_of(struct node *node, const struct store_delta *d)
{
	const uint8_t *p = d->uids, *const end = d->uids + d->uids_bytes;
	struct id_view uid;
	uint32_t n = 0;

	if (!node_scratch(node, d->uid_count + 1))
		return false;
	for (; n < d->uid_count && store_uids_next(&p, end, &uid); n++) {
		if (uid.len == 0 || p > end)
			return false;
		node->control->build.name[n] = uid;
	}
	return n == d->uid_count && p == end;
}

// The tag's topology with the slots of added members. A slot that lost its last member stays until the
// next build: it can cost a build, never a wrong delivery. Returns: NULL: as it was.
static bool ref_of(struct node *node, const struct tag *tag, uint32_t count,
	const struct topology_ref **ref) CONTROL_ONLY;
static bool ref_of(
	struct node *node, const struct tag *tag, uint32_t count, const struct topology_ref **ref)
{
	struct node_build *b = &node->control->build;
	const struct topology_ref *was = tag_topology(tag);

	b->ref.version = was->version;
	b->ref.count = was->count;
	memcpy(b->ref.slot, was->slot, was->count * sizeof(was->slot[0]));
	for (uint32_t i = 0; i < count; i++)
		if (topology_ref_add(&b->ref, node->topology,
			    topology_slot_of(node->topology, b->name[i])) != 0)
			return false;
	*ref = b->ref.count != was->count ? &b->ref : NULL;
	return true;
}

static struct tag *edit_tag(
	struct node *node, const struct tag *old, const struct tag_edit *e) CONTROL_ONLY;
static struct tag *edit_tag(struct node *node, const struct tag *old, const struct tag_edit *e)
{
	struct tag *tag = tag_edit(node->tags, old, e);

	if (tag == NULL && old->fence.version != UINT64_MAX)
		counter_add(own(node), CTR_LIMIT_TAG_MEMORY, 1);
	return tag;
}

// Holds all names of the delta. Returns: false when the UID table is full; nothing is held then.
static bool hold_all(struct node *node, uint32_t count, uint64_t now_ns) CONTROL_ONLY;
static bool hold_all(struct node *node, uint32_t count, uint64_t now_ns)
{
	struct node_build *b = &node->control->build;
	uint32_t held = presence_uid_hold_burst(node->presence, b->name, count, b->scratch);

	if (held == count)
		return true;
	while (held-- != 0)
		presence_uid_drop(node->presence, b->scratch[held], now_ns);
	counter_add(own(node), CTR_LIMIT_UIDS, 1);
	return false;
}

static struct tag *edit_add(struct node *node, struct node_channel *nc, const struct tag *old,
	const struct store_delta *d, uint64_t now_ns) CONTROL_ONLY;
static struct tag *edit_add(struct node *node, struct node_channel *nc, const struct tag *old,
	const struct store_delta *d, uint64_t now_ns)
{
	uint32_t *const uid = node->control->build.scratch;
	struct tag_edit e = {.add = uid, .adds = d->uid_count, .smv = d->smv};
	struct tag *tag = NULL;

	if (nc->deny_partial || !hold_all(node, d->uid_count, now_ns))
		return NULL;
	for (uint32_t i = 0; nc->deny.count != 0 && i < d->uid_count; i++)
		if (denied(&nc->deny, uid[i]))
			uid[i] |= TAG_DENIED;
	if (ref_of(node, old, d->uid_count, &e.topology))
		tag = edit_tag(node, old, &e);
	for (uint32_t i = 0; i < d->uid_count; i++)
		presence_uid_drop(node->presence, TAG_UID(uid[i]), now_ns);
	return tag;
}

// Indices of those names that are known at all. Returns: number.
static uint32_t find_all(struct node *node, uint32_t count) CONTROL_ONLY;
static uint32_t find_all(struct node *node, uint32_t count)
{
	struct node_build *b = &node->control->build;
	uint32_t n = 0;

	for (uint32_t i = 0; i < count; i++) {
		const uint32_t uid = presence_uid_find(node->presence, b->name[i]);

		if (uid != 0)
			b->scratch[n++] = uid;
	}
	return n;
}

static struct tag *edit_deny(struct node *node, struct node_channel *nc, const struct tag *old,
	const struct store_delta *d, uint64_t now_ns) CONTROL_ONLY;
static struct tag *edit_deny(struct node *node, struct node_channel *nc, const struct tag *old,
	const struct store_delta *d, uint64_t now_ns)
{
	uint32_t *const uid = node->control->build.scratch;
	struct tag_edit e = {.deny_set = uid, .deny_sets = d->uid_count, .smv = d->smv};
	struct tag *tag;

	if (!hold_all(node, d->uid_count, now_ns))
		return NULL;
	tag = edit_tag(node, old, &e);
	for (uint32_t i = 0; i < d->uid_count; i++)
		deny_insert(node, nc, uid[i], now_ns);
	return tag;
}

static struct tag *edit_allow(struct node *node, struct node_channel *nc, const struct tag *old,
	const struct store_delta *d, uint64_t now_ns) CONTROL_ONLY;
static struct tag *edit_allow(struct node *node, struct node_channel *nc, const struct tag *old,
	const struct store_delta *d, uint64_t now_ns)
{
	uint32_t *const uid = node->control->build.scratch;
	struct tag_edit e = {.deny_clear = uid, .smv = d->smv};
	struct tag *tag;

	e.deny_clears = find_all(node, d->uid_count);
	tag = edit_tag(node, old, &e);
	for (uint32_t i = 0; i < e.deny_clears; i++)
		deny_remove(node, nc, uid[i], now_ns);
	return tag;
}

struct tag *node_edit(
	struct node *node, struct channel *channel, const struct store_delta *d, uint64_t now_ns)
{
	struct node_channel *nc = node_channel_of(node, channel);
	const struct tag *old = atomic_load_explicit(&channel->tag, memory_order_relaxed);
	const bool set = d->list == STORE_MEMBERS || d->list == STORE_DENY;
	struct tag_edit e = {.smv = d->smv};

	// Flags, and lists no delivery depends on: the version moves, the members do not. What is left to be
	// anything but ADD and REMOVE is BULK.
	if (d->kind == STORE_DELTA_CHANNEL || !set)
		return edit_tag(node, old, &e);
	if ((d->kind != STORE_DELTA_ADD && d->kind != STORE_DELTA_REMOVE) || !names_of(node, d))
		return NULL;
	if (d->list == STORE_DENY)
		return d->kind == STORE_DELTA_ADD ? edit_deny(node, nc, old, d, now_ns)
						  : edit_allow(node, nc, old, d, now_ns);
	if (d->kind == STORE_DELTA_ADD)
		return edit_add(node, nc, old, d, now_ns);
	e.removes = find_all(node, d->uid_count);
	e.remove = node->control->build.scratch;
	return edit_tag(node, old, &e);
}
