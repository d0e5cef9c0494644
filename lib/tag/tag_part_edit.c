/* SPDX-License-Identifier: BSD-3-Clause */
// Edits of a tag that is split by owner node: only the bodies that change are made anew. Control core.
#include "tag_part.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tag_part_pvt.h"

#define ADDED TAG_DENIED  // of an entry of `touched`

enum { LISTS = 4 };  // add, remove, deny_set, deny_clear

struct edit {
	struct tag_space *space;
	const struct topology *t;
	struct tag_parts *old, *made;
	uint32_t *list[LISTS];  // each by owner
	struct owners owners[LISTS];
	uint32_t *touched;  // what is added or removed, sorted; ADDED says which
	uint32_t touches;
	uint64_t smv, version;
	struct topology_ref ref;
};

// What of the lists is of one node.
static struct tag_edit edit_of(const struct edit *e, uint64_t node)
{
	const uint32_t *list[LISTS] = {NULL};
	uint32_t count[LISTS] = {0};

	for (uint32_t k = 0; k < LISTS; k++)
		for (uint32_t g = 0; g < e->owners[k].count; g++)
			if (e->owners[k].group[g].node == node) {
				list[k] = e->list[k] + e->owners[k].group[g].from;
				count[k] = e->owners[k].group[g].count;
			}
	return (struct tag_edit){
		.add = list[0],
		.remove = list[1],
		.deny_set = list[2],
		.deny_clear = list[3],
		.adds = count[0],
		.removes = count[1],
		.deny_sets = count[2],
		.deny_clears = count[3],
		.smv = e->smv,
	};
}

static bool edits_nothing(const struct tag_edit *e)
{
	return e->adds + e->removes + e->deny_sets + e->deny_clears == 0;
}

// Copies the lists, sorted by owner. Returns: 0; -EAGAIN; -ENOMEM.
static int lists_split(struct edit *e, const struct tag_edit *edit) CONTROL_ONLY;
static int lists_split(struct edit *e, const struct tag_edit *edit)
{
	const uint32_t *const from[LISTS] = {
		edit->add, edit->remove, edit->deny_set, edit->deny_clear};
	const uint32_t count[LISTS] = {
		edit->adds, edit->removes, edit->deny_sets, edit->deny_clears};

	for (uint32_t k = 0; k < LISTS; k++) {
		int rc;

		e->list[k] = malloc(((size_t)count[k] + 1) * sizeof(uint32_t));
		if (e->list[k] == NULL)
			return -ENOMEM;
		rc = tag_owners_split(e->space, e->t, from[k], count[k], e->list[k], &e->owners[k]);
		if (rc != 0)
			return rc;
	}
	e->touched = malloc(2 * ((size_t)edit->adds + edit->removes + 1) * sizeof(uint32_t));
	if (e->touched == NULL)
		return -ENOMEM;
	for (uint32_t k = 0; k < 2; k++)
		for (uint32_t i = 0; i < count[k]; i++)
			e->touched[e->touches++] = TAG_UID(from[k][i]) | (k == 0 ? ADDED : 0);
	tag_sort(e->touched, e->touched + e->touches, e->touches);
	return 0;
}

// Whether a UID was a member, by the bodies before.
static bool was_member(const struct edit *e, uint32_t uid, uint64_t node) CONTROL_ONLY;
static bool was_member(const struct edit *e, uint32_t uid, uint64_t node)
{
	const struct tag_body *const body = tag_parts_find(e->old, node);

	if (node == e->old->self)
		return tag_has(e->old->local, uid);
	return body != NULL && tag_has(body->tag, uid);
}

// Counts members of slots as they will be, so that the references can be made before the bodies.
static void slots_edit(struct edit *e) CONTROL_ONLY;
static void slots_edit(struct edit *e)
{
	uint32_t *const members = e->made->slot_members;

	memcpy(members, e->old->slot_members, sizeof(e->old->slot_members));
	for (uint32_t i = 0, next; i < e->touches; i = next) {
		const uint32_t uid = TAG_UID(e->touched[i]);
		bool added = false, removed = false, before;
		uint32_t slot;
		uint64_t node;

		for (next = i; next < e->touches && TAG_UID(e->touched[next]) == uid; next++) {
			added = added || (e->touched[next] & ADDED) != 0;
			removed = removed || (e->touched[next] & ADDED) == 0;
		}
		if (tag_owner_of(e->space, e->t, uid, &slot, &node) != 0)
			continue;
		// Removal comes first, an add after it.
		before = was_member(e, uid, node);
		members[slot] += (uint32_t)(added || (before && !removed)) - (uint32_t)before;
	}
}

// The next version of one node's body: shared, edited or new.
static int body_edit(struct edit *e, uint64_t node, struct tag_body *was) CONTROL_ONLY;
static int body_edit(struct edit *e, uint64_t node, struct tag_body *was)
{
	struct tag_edit lists = edit_of(e, node);
	struct tag_body *body;
	struct tag *tag;

	if (was != NULL && edits_nothing(&lists)) {
		was->refs++;
		e->made->body[e->made->count++] = was;
		return 0;
	}
	if (was == NULL && lists.adds == 0)
		return 0;
	if (tag_parts_ref(e->made, e->t, node, &e->ref) != 0)
		return -EAGAIN;
	lists.topology = &e->ref;
	if (was != NULL) {
		tag = tag_edit(e->space, was->tag, &lists);
	} else {
		uint32_t *const uid = e->list[0] + (lists.add - e->list[0]);

		for (uint32_t i = 0; i < lists.adds; i++)
			presence_uid_ref(e->space->presence, TAG_UID(uid[i]));
		tag = tag_build(e->space, uid, lists.adds, e->smv, &e->ref);
		if (tag == NULL)
			tag_refs_drop(e->space, uid, lists.adds);
	}
	if (tag == NULL)
		return -ENOMEM;
	body = tag_body_make(e->space, node, tag, was == NULL ? NULL : was->history, e->version);
	if (body == NULL) {
		tag_retire(e->space, tag);
		return -ENOMEM;
	}
	e->made->body[e->made->count++] = body;
	return 0;
}

// Bodies of all nodes that have one or get one, ascending.
static int bodies_edit(struct edit *e) CONTROL_ONLY;
static int bodies_edit(struct edit *e)
{
	uint32_t b = 0, g = 0;
	const struct owners *const adds = &e->owners[0];

	while (b < e->old->count || g < adds->count) {
		struct tag_body *const was = b < e->old->count ? e->old->body[b] : NULL;
		const uint64_t added = g < adds->count ? adds->group[g].node : UINT64_MAX;
		int rc = 0;

		if (was != NULL && was->node <= added) {
			rc = body_edit(e, was->node, was);
			b++;
			g += was->node == added;
		} else {
			if (added != e->old->self)
				rc = body_edit(e, added, NULL);
			g++;
		}
		if (rc != 0)
			return rc;
	}
	return 0;
}

static int local_edit(struct edit *e) CONTROL_ONLY;
static int local_edit(struct edit *e)
{
	struct tag_edit lists = edit_of(e, e->old->self);

	if (tag_parts_ref(e->made, e->t, 0, &e->ref) != 0)
		return -EAGAIN;
	lists.topology = &e->ref;
	e->made->local = tag_edit(e->space, e->old->local, &lists);
	if (e->made->local == NULL)
		return -ENOMEM;
	return tag_targets_make(e->space, e->made);
}

static int edit_run(struct edit *e, const struct tag_edit *edit) CONTROL_ONLY;
static int edit_run(struct edit *e, const struct tag_edit *edit)
{
	int rc = lists_split(e, edit);

	if (rc != 0)
		return rc;
	e->made = tag_parts_make(e->old->self, e->old->count + e->owners[0].count);
	if (e->made == NULL)
		return -ENOMEM;
	slots_edit(e);
	rc = bodies_edit(e);
	if (rc == 0)
		rc = local_edit(e);
	if (rc != 0) {
		// Bodies edited so far have ended the line of those before.
		e->old->broken = true;
		tag_parts_retire(e->space, e->made);
	}
	return rc;
}

int tag_parts_edit(struct tag_space *space, struct tag_parts *old, const struct topology *t,
	const struct tag_edit *edit, struct tag_parts **made)
{
	struct edit *e;
	int rc;

	if (old->broken || old->local->fence.version == UINT64_MAX ||
		!topology_ref_current(tag_topology(old->local), t))
		return -EAGAIN;
	e = calloc(1, sizeof(*e));
	if (e == NULL)
		return -ENOMEM;
	e->space = space;
	e->t = t;
	e->old = old;
	e->smv = edit->smv;
	e->version = old->local->fence.version + 1;
	rc = edit_run(e, edit);
	if (rc == 0)
		*made = e->made;
	for (uint32_t k = 0; k < LISTS; k++)
		free(e->list[k]);
	free(e->touched);
	free(e);
	return rc;
}
