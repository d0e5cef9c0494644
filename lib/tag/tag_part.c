/* SPDX-License-Identifier: BSD-3-Clause */
// Splits members by owner node, one body per node; tag_part_edit.c keeps them through edits. Control core.
#include "tag_part.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tag_part_pvt.h"

// Slot and owner of a UID. Returns: 0; -EAGAIN: unknown.
int tag_owner_of(const struct tag_space *space, const struct topology *t, uint32_t uid,
	uint32_t *slot, uint64_t *node)
{
	const struct topology_slot *s;

	*slot = topology_slot_of(t, presence_uid_name(space->presence, TAG_UID(uid)));
	s = topology_slot_known(t, *slot);
	if (s == NULL)
		return -EAGAIN;
	*node = s->leader;
	return 0;
}

static struct group *group_of(struct owners *o, uint64_t node)
{
	uint32_t at = 0;

	while (at < o->count && o->group[at].node < node)
		at++;
	if (at == o->count || o->group[at].node != node) {
		assert(o->count < OWNERS_MAX);
		memmove(&o->group[at + 1], &o->group[at], (o->count - at) * sizeof(o->group[0]));
		o->group[at] = (struct group){.node = node};
		o->count++;
	}
	return &o->group[at];
}

// Sorts `uid` by owner node into `out`. Returns: 0; -EAGAIN.
int tag_owners_split(const struct tag_space *space, const struct topology *t, const uint32_t *uid,
	uint32_t count, uint32_t *out, struct owners *o)
{
	uint32_t from = 0, slot;
	uint64_t node;

	o->count = 0;
	for (uint32_t i = 0; i < count; i++) {
		if (tag_owner_of(space, t, uid[i], &slot, &node) != 0)
			return -EAGAIN;
		group_of(o, node)->count++;
	}
	for (uint32_t g = 0; g < o->count; g++) {
		o->group[g].from = from;
		from += o->group[g].count;
		o->group[g].count = 0;
	}
	for (uint32_t i = 0; i < count; i++) {
		struct group *g;

		(void)tag_owner_of(space, t, uid[i], &slot, &node);
		g = group_of(o, node);
		out[g->from + g->count++] = uid[i];
	}
	return 0;
}

void tag_refs_drop(struct tag_space *space, const uint32_t *uid, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		presence_uid_drop(space->presence, TAG_UID(uid[i]), space->now_ns);
}

// The reference of the slots that hold members; `node` 0: of all of them, else of its own.
int tag_parts_ref(const struct tag_parts *p, const struct topology *t, uint64_t node,
	struct topology_ref *ref)
{
	topology_ref_begin(ref, t);
	for (uint32_t s = 1; s <= TOPOLOGY_SLOTS_MAX; s++) {
		const struct topology_slot *const k =
			p->slot_members[s] == 0 ? NULL : topology_slot_known(t, s);

		if (p->slot_members[s] != 0 && k == NULL)
			return -EAGAIN;
		if (k != NULL && (node == 0 || k->leader == node) &&
			topology_ref_add(ref, t, s) != 0)
			return -EAGAIN;
	}
	return 0;
}

// --- bodies -------------------------------------------------------------------------------------------

static void history_drop(struct tag_history *h)
{
	if (--h->refs == 0)
		free(h);
}

void tag_body_drop(struct tag_space *space, struct tag_body *body)
{
	if (--body->refs != 0)
		return;
	tag_retire(space, body->tag);
	history_drop(body->history);
	free(body);
}

// Notes that the body's tag came with `version` of the whole.
static void history_note(struct tag_history *h, uint64_t body_version, uint64_t version)
{
	h->version[body_version % h->size] = version;
	if (body_version - h->first >= h->size)
		h->first = body_version - h->size + 1;
}

// A body over a tag just made; `history` NULL: a line of its own. Returns: NULL: no memory; `tag` stays.
struct tag_body *tag_body_make(const struct tag_space *space, uint64_t node, struct tag *tag,
	struct tag_history *history, uint64_t version)
{
	const uint32_t size = space->steps_max + 1;
	struct tag_body *b = malloc(sizeof(*b));

	if (b == NULL)
		return NULL;
	if (history == NULL) {
		history = calloc(1, sizeof(*history) + size * sizeof(history->version[0]));
		if (history == NULL) {
			free(b);
			return NULL;
		}
		history->size = size;
		history->first = tag->fence.version;
	}
	history->refs++;
	history_note(history, tag->fence.version, version);
	*b = (struct tag_body){.refs = 1, .node = node, .tag = tag, .history = history};
	return b;
}

struct tag_body *tag_parts_find(const struct tag_parts *parts, uint64_t node)
{
	for (uint32_t i = 0; i < parts->count; i++)
		if (parts->body[i]->node == node)
			return parts->body[i];
	return NULL;
}

struct tag_parts *tag_parts_make(uint64_t self, uint32_t bodies)
{
	struct tag_parts *p = calloc(1, sizeof(*p) + bodies * sizeof(struct tag_body *));

	if (p != NULL)
		p->self = self;
	return p;
}

// Also of what a failed call made; references go with the tags.
void tag_parts_retire(struct tag_space *space, struct tag_parts *p)
{
	for (uint32_t i = 0; i < p->count; i++)
		tag_body_drop(space, p->body[i]);
	if (p->local != NULL)
		tag_retire(space, p->local);
	free(p);
}

int tag_targets_make(struct tag_space *space, struct tag_parts *p)
{
	struct tag_targets *targets;
	uint32_t count = 0;

	p->members = p->local->count;
	for (uint32_t i = 0; i < p->count; i++) {
		p->members += p->body[i]->tag->count;
		count += p->body[i]->tag->count != 0;
	}
	if (count == 0)
		return 0;
	targets = malloc(sizeof(*targets) + count * sizeof(targets->target[0]));
	if (targets == NULL)
		return -ENOMEM;
	targets->count = 0;
	for (uint32_t i = 0; i < p->count; i++) {
		if (p->body[i]->tag->count == 0)
			continue;
		targets->target[targets->count].node = p->body[i]->node;
		targets->target[targets->count++].members = p->body[i]->tag->count;
	}
	tag_targets_set(space, p->local, targets);
	return 0;
}

// --- build --------------------------------------------------------------------------------------------

struct build {
	struct tag_space *space;
	const struct topology *t;
	const struct tag *before;  // NULL: none; else its key goes on
	uint32_t *uid;  // by owner
	struct owners owners;
	uint64_t smv, version;
	struct topology_ref ref;
};

// Members of each slot; repeats within `uid` are still there, so it asks the bodies.
static void slots_count(
	struct tag_space *space, const struct topology *t, struct tag_parts *p) CONTROL_ONLY;
static void slots_count(struct tag_space *space, const struct topology *t, struct tag_parts *p)
{
	memset(p->slot_members, 0, sizeof(p->slot_members));
	for (uint32_t b = 0; b <= p->count; b++) {
		const struct tag *const tag = b < p->count ? p->body[b]->tag : p->local;

		for (uint32_t c = 0; c < tag->chunks; c++)
			for (uint32_t i = 0; i < tag->chunk[c]->count; i++) {
				uint32_t slot;
				uint64_t node;

				if (tag_owner_of(space, t, tag->chunk[c]->uid[i], &slot, &node) ==
					0)
					p->slot_members[slot]++;
			}
	}
}

// Slots of the members before they are in bodies: which there are is all that counts here.
static void slots_mark(const struct build *b, uint32_t count, struct tag_parts *p) CONTROL_ONLY;
static void slots_mark(const struct build *b, uint32_t count, struct tag_parts *p)
{
	for (uint32_t i = 0; i < count; i++) {
		uint32_t slot;
		uint64_t node;

		if (tag_owner_of(b->space, b->t, b->uid[i], &slot, &node) == 0)
			p->slot_members[slot] = 1;
	}
}

// The body of one group. Returns: 0; -ENOMEM, its references dropped.
static int group_build(struct build *b, struct tag_parts *p, const struct group *g) CONTROL_ONLY;
static int group_build(struct build *b, struct tag_parts *p, const struct group *g)
{
	uint32_t *const uid = b->uid + g->from;
	const bool own = g->node == p->self;
	struct tag_body *body;
	struct tag *tag;
	int rc = tag_parts_ref(p, b->t, own ? 0 : g->node, &b->ref);

	if (rc == 0 && own && b->before != NULL)
		tag = tag_rebuild(b->space, b->before, uid, g->count, b->smv, &b->ref);
	else
		tag = rc != 0 ? NULL : tag_build(b->space, uid, g->count, b->smv, &b->ref);
	if (tag == NULL) {
		tag_refs_drop(b->space, uid, g->count);
		return rc != 0 ? rc : -ENOMEM;
	}
	if (own) {
		p->local = tag;
		return 0;
	}
	body = tag_body_make(b->space, g->node, tag, NULL, b->version);
	if (body == NULL) {
		tag_retire(b->space, tag);
		return -ENOMEM;
	}
	p->body[p->count++] = body;
	return 0;
}

static int all_build(
	struct build *b, uint64_t self, uint32_t count, struct tag_parts **made) CONTROL_ONLY;
static int all_build(struct build *b, uint64_t self, uint32_t count, struct tag_parts **made)
{
	struct tag_parts *p;
	struct owners *const o = &b->owners;
	int rc = 0;

	group_of(o, self);  // the local body is there without members too
	p = tag_parts_make(self, o->count);
	if (p == NULL) {
		tag_refs_drop(b->space, b->uid, count);
		return -ENOMEM;
	}
	slots_mark(b, count, p);
	// Own one last: it is what ends a version before, and only a whole one may.
	for (uint32_t pass = 0; pass < 2; pass++)
		for (uint32_t g = 0; g < o->count; g++) {
			if ((o->group[g].node == self) != (pass == 1))
				continue;
			if (rc == 0)
				rc = group_build(b, p, &o->group[g]);
			else
				tag_refs_drop(
					b->space, b->uid + o->group[g].from, o->group[g].count);
		}
	if (rc == 0)
		rc = tag_targets_make(b->space, p);
	if (rc != 0) {
		tag_parts_retire(b->space, p);
		return rc;
	}
	slots_count(b->space, b->t, p);
	*made = p;
	return 0;
}

static int build(struct tag_space *space, const struct topology *t, uint64_t self,
	const struct tag *before, uint32_t *uid, uint32_t count, uint64_t smv,
	struct tag_parts **made) CONTROL_ONLY;
static int build(struct tag_space *space, const struct topology *t, uint64_t self,
	const struct tag *before, uint32_t *uid, uint32_t count, uint64_t smv,
	struct tag_parts **made)
{
	struct build *const b = malloc(sizeof(*b));
	uint32_t *const sorted = malloc(((size_t)count + 1) * sizeof(*sorted));
	int rc = -ENOMEM;

	if (b != NULL && sorted != NULL) {
		b->space = space;
		b->t = t;
		b->before = before;
		b->uid = sorted;
		b->smv = smv;
		b->version = before == NULL ? 1 : before->fence.version + 1;
		rc = tag_owners_split(space, t, uid, count, sorted, &b->owners);
	}
	if (rc != 0)
		tag_refs_drop(space, uid, count);
	else
		rc = all_build(b, self, count, made);
	free(sorted);
	free(b);
	return rc;
}

int tag_parts_build(struct tag_space *space, const struct topology *t, uint64_t self, uint32_t *uid,
	uint32_t count, uint64_t smv, struct tag_parts **made)
{
	return build(space, t, self, NULL, uid, count, smv, made);
}

int tag_parts_rebuild(struct tag_space *space, struct tag_parts *old, const struct topology *t,
	uint32_t *uid, uint32_t count, uint64_t smv, struct tag_parts **made)
{
	// At the end of the numbers, and where the line of the old one is over, a new incarnation begins.
	const bool anew = old->local->fence.version == UINT64_MAX ||
			  record_of(old->local)->line->newest != record_of(old->local);

	return build(space, t, old->self, anew ? NULL : old->local, uid, count, smv, made);
}

uint32_t tag_parts_gather(struct tag_space *space, const struct tag_parts *parts, uint32_t *uid)
{
	uint32_t n = 0;

	for (uint32_t b = 0; b <= parts->count; b++) {
		const struct tag *const tag = b < parts->count ? parts->body[b]->tag : parts->local;

		for (uint32_t c = 0; c < tag->chunks; c++)
			for (uint32_t i = 0; i < tag->chunk[c]->count; i++) {
				uid[n] = tag->chunk[c]->uid[i];
				presence_uid_ref(space->presence, TAG_UID(uid[n++]));
			}
	}
	return n;
}

// --- the rest -----------------------------------------------------------------------------------------

struct tag *tag_parts_local(const struct tag_parts *parts)
{
	return parts->local;
}

uint32_t tag_parts_members(const struct tag_parts *parts)
{
	return parts->members;
}

const struct tag *tag_parts_body(const struct tag_parts *parts, uint64_t node)
{
	const struct tag_body *const body = tag_parts_find(parts, node);

	return body == NULL ? NULL : body->tag;
}
