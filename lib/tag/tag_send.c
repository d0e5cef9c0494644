/* SPDX-License-Identifier: BSD-3-Clause */
// Bodies pinned for pulls, and their chunks. A chunk is a run of entries: first the slots of the partition,
// then its UIDs; where each run starts is found once, when the body is pinned. Control core.
#include "tag_send.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tag_part_pvt.h"

#define GONE (UINT32_C(1) << 30)  // of an entry of a delta: no member any more
_Static_assert(UID_INDEX_MAX <= GONE, "bit 30 of an entry is free");

struct tag_send {
	struct tag_space *space;
	struct tag_body *body;  // NULL: an empty partition
	struct topology_ref *ref;
	struct tag_fence fence;
	uint64_t base, smv;
	uint32_t members;
	uint32_t room;
	// A delta's entries, each with a reference; a whole partition is read from its body.
	uint32_t *uid;
	uint32_t uids;
	uint32_t chunks;
	uint32_t *start;  // chunks + 1: first entry of each
};

// --- entries --------------------------------------------------------------------------------------------

static uint32_t entry_count(const struct tag_send *s)
{
	return s->ref->count + (s->base != 0 ? s->uids : s->members);
}

// Walks entries in order, from any place.
struct walk {
	const struct tag_send *send;
	uint32_t at;
	uint32_t chunk, in_chunk;  // of the body
};

static void walk_begin(struct walk *w, const struct tag_send *send, uint32_t at)
{
	uint32_t skip = at <= send->ref->count ? 0 : at - send->ref->count;

	*w = (struct walk){.send = send, .at = at};
	if (send->base != 0 || send->body == NULL)
		return;
	while (w->chunk < send->body->tag->chunks &&
		skip >= send->body->tag->chunk[w->chunk]->count)
		skip -= send->body->tag->chunk[w->chunk++]->count;
	w->in_chunk = skip;
}

static uint32_t walk_uid(struct walk *w)
{
	const struct tag_send *const s = w->send;
	const struct tag_chunk *chunk;
	uint32_t uid;

	if (s->base != 0)
		return s->uid[w->at - s->ref->count];
	chunk = s->body->tag->chunk[w->chunk];
	uid = chunk->uid[w->in_chunk++];
	if (w->in_chunk == chunk->count) {
		w->in_chunk = 0;
		w->chunk++;
	}
	return uid;
}

static void walk_next(struct walk *w, struct wire_part_entry *e) CONTROL_ONLY;
static void walk_next(struct walk *w, struct wire_part_entry *e)
{
	const struct tag_send *const s = w->send;

	if (w->at < s->ref->count) {
		const struct topology_slot *const slot = &s->ref->slot[w->at];

		*e = (struct wire_part_entry){
			.op = WIRE_PART_SLOT,
			.slot = slot->slot,
			.term = slot->term,
			.config_epoch = slot->config_epoch,
			.balance_version = slot->balance_version,
		};
	} else {
		const uint32_t uid = walk_uid(w);

		*e = (struct wire_part_entry){
			.op = (uid & GONE) != 0         ? WIRE_PART_GONE
			      : (uid & TAG_DENIED) != 0 ? WIRE_PART_DENIED
							: WIRE_PART_MEMBER,
			.uid = presence_uid_name(s->space->presence, TAG_UID(uid) & ~GONE),
		};
	}
	w->at++;
}

// Finds where chunks start. Returns: 0; -ENOMEM; -E2BIG.
static int chunks_cut(struct tag_send *s) CONTROL_ONLY;
static int chunks_cut(struct tag_send *s)
{
	const uint32_t entries = entry_count(s), most = s->room - WIRE_TAG_PART_BYTES;
	uint32_t cap = 16, used = 0;
	struct wire_part_entry e;
	struct walk w;

	s->start = malloc((cap + 1) * sizeof(*s->start));
	if (s->start == NULL)
		return -ENOMEM;
	s->start[0] = 0;
	s->chunks = 1;
	walk_begin(&w, s, 0);
	for (uint32_t i = 0; i < entries; i++) {
		uint32_t bytes;

		walk_next(&w, &e);
		bytes = wire_part_entry_bytes(&e);
		if (used + bytes > most) {
			if (s->chunks == WIRE_PART_CHUNKS_MAX)
				return -E2BIG;
			if (s->chunks == cap) {
				uint32_t *const grown =
					realloc(s->start, (2 * cap + 1) * sizeof(*grown));

				if (grown == NULL)
					return -ENOMEM;
				s->start = grown;
				cap *= 2;
			}
			s->start[s->chunks++] = i;
			used = 0;
		}
		used += bytes;
	}
	s->start[s->chunks] = entries;
	return 0;
}

// --- pins -----------------------------------------------------------------------------------------------

void tag_send_free(struct tag_send *s)
{
	if (s == NULL)
		return;
	for (uint32_t i = 0; i < s->uids; i++)
		presence_uid_drop(s->space->presence, TAG_UID(s->uid[i]) & ~GONE, s->space->now_ns);
	if (s->body != NULL)
		tag_body_drop(s->space, s->body);
	free(s->uid);
	free(s->start);
	free(s->ref);
	free(s);
}

static struct topology_ref *ref_copy(const struct tag_parts *parts, const struct tag_body *body)
{
	const struct topology_ref *const whole = record_of(parts->local)->topology;
	const struct topology_ref *const own = body == NULL ? NULL : record_of(body->tag)->topology;
	const uint32_t slots = own == NULL ? 0 : own->count;
	struct topology_ref *const ref =
		malloc(offsetof(struct topology_ref, slot) + slots * sizeof(ref->slot[0]));

	if (ref == NULL)
		return NULL;
	ref->version = whole->version;
	ref->count = slots;
	if (slots != 0)
		memcpy(ref->slot, own->slot, slots * sizeof(ref->slot[0]));
	return ref;
}

static struct tag_send *send_make(struct tag_space *space, const struct tag_parts *parts,
	uint64_t node, uint32_t room, uint64_t base)
{
	struct tag_body *const body = tag_parts_find(parts, node);
	struct tag_send *const s = calloc(1, sizeof(*s));

	if (s == NULL)
		return NULL;
	s->ref = ref_copy(parts, body);
	if (s->ref == NULL) {
		free(s);
		return NULL;
	}
	s->space = space;
	s->fence = parts->local->fence;
	s->smv = parts->local->smv;
	s->base = base;
	s->room = room;
	s->members = body == NULL ? 0 : body->tag->count;
	s->body = body;
	if (body != NULL)
		body->refs++;
	return s;
}

struct tag_send *tag_send_full(
	struct tag_space *space, const struct tag_parts *parts, uint64_t node, uint32_t room)
{
	struct tag_send *const s =
		room < WIRE_ROOM_MIN ? NULL : send_make(space, parts, node, room, 0);

	if (s != NULL && chunks_cut(s) != 0) {
		tag_send_free(s);
		return NULL;
	}
	return s;
}

// --- deltas ---------------------------------------------------------------------------------------------

// The body version that was in the tag at `version`: the last one made at or before it. Returns: 0: not known.
static uint64_t body_version_at(const struct tag_body *b, uint64_t version)
{
	uint64_t v = b->tag->fence.version;

	while (v >= b->history->first && b->history->version[v % b->history->size] > version)
		v--;
	return v >= b->history->first ? v : 0;
}

static bool uid_add(struct tag_send *s, uint32_t *cap, uint32_t uid) CONTROL_ONLY;
static bool uid_add(struct tag_send *s, uint32_t *cap, uint32_t uid)
{
	if (s->uids == *cap) {
		const uint32_t more = *cap * 2 + 64;
		uint32_t *const grown = realloc(s->uid, more * sizeof(*grown));

		if (grown == NULL)
			return false;
		s->uid = grown;
		*cap = more;
	}
	presence_uid_ref(s->space->presence, TAG_UID(uid) & ~GONE);
	s->uid[s->uids++] = uid;
	return true;
}

// UIDs of the steps after `version` of the body, sorted and told once, as they stand now.
static bool by_steps(struct tag_send *s, uint64_t version) CONTROL_ONLY;
static bool by_steps(struct tag_send *s, uint64_t version)
{
	const struct tag *const tag = s->body->tag;
	uint32_t *touched, n = 0, total = 0, cap = 0;
	bool good = true;

	if (version == 0 || tag_steps_since(s->space, tag, version) < 0)
		return false;
	for (uint64_t v = version + 1; v <= tag->fence.version; v++) {
		const struct tag_step *const step = tag_step_of(s->space, tag, v);

		if (step == NULL)
			return false;
		total += step->adds + step->removes + step->deny_sets + step->deny_clears;
	}
	touched = malloc(2 * ((size_t)total + 1) * sizeof(*touched));
	if (touched == NULL)
		return false;
	for (uint64_t v = version + 1; v <= tag->fence.version; v++) {
		const struct tag_step *const step = tag_step_of(s->space, tag, v);
		const uint32_t uids =
			step->adds + step->removes + step->deny_sets + step->deny_clears;

		for (uint32_t i = 0; i < uids; i++)
			touched[n++] = TAG_UID(step->uid[i]);
	}
	tag_sort(touched, touched + total, total);
	for (uint32_t i = 0; i < total && good; i++) {
		const uint32_t entry = tag_entry(tag, touched[i]);

		if (i == 0 || touched[i] != touched[i - 1])
			good = uid_add(s, &cap, entry != 0 ? entry : touched[i] | GONE);
	}
	free(touched);
	return good;
}

// Place in a body.
struct place {
	const struct tag *tag;
	uint32_t chunk, at;
};

static bool at_end(const struct place *p)
{
	return p->tag == NULL || p->chunk == p->tag->chunks;
}

static uint32_t here(const struct place *p)
{
	return p->tag->chunk[p->chunk]->uid[p->at];
}

static void step_on(struct place *p)
{
	if (++p->at == p->tag->chunk[p->chunk]->count) {
		p->at = 0;
		p->chunk++;
	}
}

// Entries in which two bodies differ; chunks they share are passed over.
static bool by_difference(struct tag_send *s, const struct tag *from) CONTROL_ONLY;
static bool by_difference(struct tag_send *s, const struct tag *from)
{
	struct place a = {.tag = from}, b = {.tag = s->body == NULL ? NULL : s->body->tag};
	uint32_t cap = 0;

	while (!at_end(&a) || !at_end(&b)) {
		if (!at_end(&a) && !at_end(&b) && a.at == 0 && b.at == 0 &&
			a.tag->chunk[a.chunk] == b.tag->chunk[b.chunk]) {
			a.chunk++;
			b.chunk++;
			continue;
		}
		if (at_end(&b) || (!at_end(&a) && TAG_UID(here(&a)) < TAG_UID(here(&b)))) {
			if (!uid_add(s, &cap, TAG_UID(here(&a)) | GONE))
				return false;
			step_on(&a);
		} else if (at_end(&a) || TAG_UID(here(&b)) < TAG_UID(here(&a))) {
			if (!uid_add(s, &cap, here(&b)))
				return false;
			step_on(&b);
		} else {
			if (here(&a) != here(&b) && !uid_add(s, &cap, here(&b)))
				return false;
			step_on(&a);
			step_on(&b);
		}
	}
	return true;
}

struct tag_send *tag_send_delta(struct tag_space *space, const struct tag_parts *parts,
	uint64_t node, uint32_t room, const struct tag_fence *base, const struct tag_send *from)
{
	const struct tag_fence *const fence = &parts->local->fence;
	struct tag_send *s;
	bool good;

	if (room < WIRE_ROOM_MIN || base->version == 0 || base->version >= fence->version ||
		memcmp(base->key, fence->key, sizeof(fence->key)) != 0)
		return NULL;
	s = send_make(space, parts, node, room, base->version);
	if (s == NULL)
		return NULL;
	if (from != NULL && from->base == 0 && from->fence.version == base->version &&
		memcmp(from->fence.key, base->key, sizeof(base->key)) == 0)
		good = by_difference(s, from->body == NULL ? NULL : from->body->tag);
	else
		good = s->body != NULL && by_steps(s, body_version_at(s->body, base->version));
	if (!good || chunks_cut(s) != 0) {
		tag_send_free(s);
		return NULL;
	}
	return s;
}

// --- chunks ---------------------------------------------------------------------------------------------

uint32_t tag_send_chunks(const struct tag_send *s)
{
	return s->chunks;
}

const struct tag_fence *tag_send_fence(const struct tag_send *s)
{
	return &s->fence;
}

uint64_t tag_send_base(const struct tag_send *s)
{
	return s->base;
}

bool tag_send_chunk(const struct tag_send *s, uint32_t index, uint64_t request_id,
	const struct wire_authority *authority, struct wire_buf *out)
{
	uint8_t entries[MTU_MAX];
	struct wire_buf body = {.p = entries, .cap = sizeof(entries), .ok = true};
	struct wire_tag_part part = {
		.request_id = request_id,
		.status = WIRE_OK,
		.tag_version = s->fence.version,
		.base_version = s->base,
		.smv = s->smv,
		.table_version = s->ref->version,
		.authority = *authority,
		.index = index,
		.count = s->chunks,
		.members = s->members,
	};
	struct walk w;

	if (index >= s->chunks)
		return false;
	walk_begin(&w, s, s->start[index]);
	while (w.at < s->start[index + 1]) {
		struct wire_part_entry e;

		walk_next(&w, &e);
		if (!wire_part_add(&body, &e))
			return false;
		part.entries++;
	}
	memcpy(part.tag_key, s->fence.key, sizeof(part.tag_key));
	part.body = (struct wire_view){.p = entries, .len = body.len};
	return wire_put_tag_part(out, &part);
}
