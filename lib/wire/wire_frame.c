/* SPDX-License-Identifier: BSD-3-Clause */
// Reassembly of segmented frames. Owns a fixed number of slots of FRAME_BYTES_MAX bytes: free, filling
// (in the order of their first segment), or complete and held by the caller until released. Names of
// frames completed lately are kept apart from the slots, so that a resent segment is told from a new
// frame. One owner thread; nothing is allocated after creation.
#include "wire_frame.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base_id.h"
#include "base_index.h"

#define FRAMES_MAX 65536u
#define NONE UINT32_MAX
#define RECENT_WAYS 4u
#define RECENT_SETS_MIN 64u
#define RECENT_AGE_TIMEOUTS 8u  // a completed frame is remembered this many time-outs at most

// Name of a frame, hashed and compared as bytes: no padding.
struct frame_name {
	uint64_t sender;
	uint64_t boot;
	uint32_t id;
	uint32_t lane;
};
_Static_assert(sizeof(struct frame_name) == 24, "no padding");

enum slot_state { SLOT_FREE, SLOT_FILLING, SLOT_COMPLETE };

struct slot {
	struct frame_name name;
	uint64_t hash;
	uint64_t first_ns;  // arrival of the first segment
	uint64_t have[FRAME_SEGMENTS_MAX / 64];
	uint32_t total;
	uint32_t part;  // bytes of every part but the last
	uint32_t next, previous;  // free list (next only), or order of arrival
	uint16_t count, missing;
	uint8_t type;
	uint8_t state;
	uint8_t attempt;  // highest among its segments
	uint32_t owner;
};

// Who has frames, and how many.
struct owner {
	uint64_t name;
	uint32_t frames;
	uint32_t next;  // free list
};

struct recent {
	struct frame_name name;
	uint64_t at_ns;
	bool used;
};

struct wire_reassembly {
	uint64_t timeout_ns;
	uint64_t recent_ns;  // age at which a completed frame is forgotten
	struct slot *slots;
	uint8_t *bytes;  // FRAME_BYTES_MAX a slot
	struct index index;  // hash of the name -> filling slot + 1
	struct recent *recent;
	uint32_t recent_sets;  // power of two
	struct index owners;  // hash of the owner's name -> owner + 1
	struct owner *owner;  // as many as frames
	uint32_t owner_free;
	uint32_t share;
	uint32_t frames;
	uint32_t free;
	uint32_t oldest, newest;  // of the filling slots
	uint32_t filling;
	uint32_t given_up;  // to make room, not yet reported by expire
};

struct wire_reassembly *wire_reassembly_create(uint32_t frames, uint64_t timeout_ns)
{
	struct wire_reassembly *r;

	if (frames == 0 || frames > FRAMES_MAX)
		return NULL;
	r = calloc(1, sizeof(*r));
	if (r == NULL)
		return NULL;
	r->frames = frames;
	r->timeout_ns = timeout_ns;
	r->recent_ns = timeout_ns > UINT64_MAX / RECENT_AGE_TIMEOUTS
			       ? UINT64_MAX
			       : timeout_ns * RECENT_AGE_TIMEOUTS;
	r->recent_sets = RECENT_SETS_MIN;
	while (r->recent_sets < frames)
		r->recent_sets *= 2;
	r->slots = calloc(frames, sizeof(*r->slots));
	r->bytes = calloc(frames, FRAME_BYTES_MAX);
	r->recent = calloc((size_t)r->recent_sets * RECENT_WAYS, sizeof(*r->recent));
	r->owner = calloc(frames, sizeof(*r->owner));
	if (r->slots == NULL || r->bytes == NULL || r->recent == NULL || r->owner == NULL ||
		index_init(&r->index, frames) != 0 || index_init(&r->owners, frames) != 0) {
		wire_reassembly_destroy(r);
		return NULL;
	}
	for (uint32_t i = 0; i < frames; i++)
		r->slots[i].next = r->owner[i].next = i + 1 < frames ? i + 1 : NONE;
	r->share = frames;
	r->oldest = r->newest = NONE;
	return r;
}

uint64_t wire_reassembly_memory(uint32_t frames)
{
	uint64_t sets = RECENT_SETS_MIN;

	while (sets < frames)
		sets *= 2;
	return frames * (sizeof(struct slot) + sizeof(struct owner) + (uint64_t)FRAME_BYTES_MAX) +
	       sets * RECENT_WAYS * sizeof(struct recent) + 2 * index_memory(frames);
}

void wire_reassembly_destroy(struct wire_reassembly *r)
{
	if (r == NULL)
		return;
	index_fini(&r->owners);
	index_fini(&r->index);
	free(r->owner);
	free(r->recent);
	free(r->bytes);
	free(r->slots);
	free(r);
}

void wire_reassembly_share(struct wire_reassembly *r, uint32_t share)
{
	assert(share >= 1);
	r->share = share < r->frames ? share : r->frames;
}

// --- owners -------------------------------------------------------------------------------------------

static uint64_t owner_hash(uint64_t name)
{
	return id_hash(id_view_of(&name, sizeof(name)));
}

// One more frame of an owner. Returns: its number; NONE when it has its share (*full) or there is no room.
static uint32_t owner_take(struct wire_reassembly *r, uint64_t name, bool *full)
{
	const uint64_t hash = owner_hash(name);
	struct index_cursor cur;
	uint32_t i;

	index_first(&r->owners, hash, &cur);
	while ((i = index_next(&r->owners, &cur)) != 0) {
		struct owner *const o = &r->owner[i - 1];

		if (o->name != name)
			continue;
		*full = r->share < r->frames && o->frames >= r->share;
		if (*full)
			return NONE;
		o->frames++;
		return i - 1;
	}
	i = r->owner_free;
	*full = false;
	if (i == NONE || index_insert(&r->owners, hash, i + 1) != 0)
		return NONE;
	r->owner_free = r->owner[i].next;
	r->owner[i] = (struct owner){.name = name, .frames = 1};
	return i;
}

static void owner_give(struct wire_reassembly *r, uint32_t i)
{
	struct owner *const o = &r->owner[i];

	if (--o->frames != 0)
		return;
	index_remove(&r->owners, owner_hash(o->name), i + 1);
	o->next = r->owner_free;
	r->owner_free = i;
}

// --- frames -------------------------------------------------------------------------------------------

static bool name_equal(const struct frame_name *a, const struct frame_name *b)
{
	return a->sender == b->sender && a->boot == b->boot && a->id == b->id && a->lane == b->lane;
}

static uint32_t find(const struct wire_reassembly *r, const struct frame_name *name, uint64_t hash)
{
	struct index_cursor cur;
	uint32_t value;

	index_first(&r->index, hash, &cur);
	while ((value = index_next(&r->index, &cur)) != 0) {
		if (name_equal(&r->slots[value - 1].name, name))
			return value - 1;
	}
	return NONE;
}

static struct recent *recent_set(struct wire_reassembly *r, uint64_t hash)
{
	return &r->recent[(size_t)((hash >> 20) & (r->recent_sets - 1)) * RECENT_WAYS];
}

static bool recent_has(
	struct wire_reassembly *r, const struct frame_name *name, uint64_t hash, uint64_t now_ns)
{
	const struct recent *const set = recent_set(r, hash);

	for (uint32_t i = 0; i < RECENT_WAYS; i++) {
		if (set[i].used && name_equal(&set[i].name, name) &&
			now_ns - set[i].at_ns <= r->recent_ns)
			return true;
	}
	return false;
}

static void recent_add(
	struct wire_reassembly *r, const struct frame_name *name, uint64_t hash, uint64_t now_ns)
{
	struct recent *const set = recent_set(r, hash);
	struct recent *into = &set[0];

	for (uint32_t i = 0; i < RECENT_WAYS; i++) {
		if (!set[i].used || name_equal(&set[i].name, name)) {
			into = &set[i];
			break;
		}
		if (set[i].at_ns < into->at_ns)
			into = &set[i];
	}
	*into = (struct recent){.name = *name, .at_ns = now_ns, .used = true};
}

// Takes a filling slot out of the order and the index; its bytes stay.
static void unlist(struct wire_reassembly *r, uint32_t i)
{
	struct slot *const s = &r->slots[i];
	const int removed = index_remove(&r->index, s->hash, i + 1);

	assert(removed == 0);
	(void)removed;
	if (s->previous != NONE)
		r->slots[s->previous].next = s->next;
	else
		r->oldest = s->next;
	if (s->next != NONE)
		r->slots[s->next].previous = s->previous;
	else
		r->newest = s->previous;
	r->filling--;
}

static void give_back(struct wire_reassembly *r, uint32_t i)
{
	owner_give(r, r->slots[i].owner);
	r->slots[i].state = SLOT_FREE;
	r->slots[i].next = r->free;
	r->free = i;
}

static uint32_t give_up_old(struct wire_reassembly *r, uint64_t now_ns, uint32_t most)
{
	uint32_t n = 0;

	while (n < most && r->oldest != NONE &&
		now_ns - r->slots[r->oldest].first_ns > r->timeout_ns) {
		const uint32_t i = r->oldest;

		unlist(r, i);
		give_back(r, i);
		n++;
	}
	return n;
}

// Starts a frame with the first of its segments that came. Returns: its slot; NONE when there is no room, or
// its owner has its share (*full).
static uint32_t start(struct wire_reassembly *r, uint64_t name_of_owner,
	const struct frame_name *name, uint64_t hash, const struct wire_segment *m, uint64_t now_ns,
	bool *full)
{
	uint32_t i, owner;
	struct slot *s;

	owner = owner_take(r, name_of_owner, full);
	if (owner == NONE && *full) {
		// What it has may be too old by now.
		r->given_up += give_up_old(r, now_ns, UINT32_MAX);
		owner = owner_take(r, name_of_owner, full);
	}
	if (owner == NONE)
		return NONE;
	if (r->free == NONE)
		r->given_up += give_up_old(r, now_ns, 1);
	i = r->free;
	if (i == NONE || index_insert(&r->index, hash, i + 1) != 0) {
		owner_give(r, owner);
		return NONE;
	}
	s = &r->slots[i];
	r->free = s->next;
	*s = (struct slot){
		.name = *name,
		.hash = hash,
		.first_ns = now_ns,
		.total = m->total,
		.part = m->index + 1u == m->count ? m->offset / (m->count - 1u) : m->part.len,
		.next = NONE,
		.previous = r->newest,
		.count = m->count,
		.missing = m->count,
		.type = m->type,
		.state = SLOT_FILLING,
		.owner = owner,
	};
	if (r->newest != NONE)
		r->slots[r->newest].next = i;
	else
		r->oldest = i;
	r->newest = i;
	r->filling++;
	return i;
}

// True when the segment stands where its frame says it must.
static bool fits(const struct slot *s, const struct wire_segment *m)
{
	const uint32_t at = m->index * s->part;
	const uint32_t len = m->index + 1u == s->count ? s->total - at : s->part;

	return m->type == s->type && m->total == s->total && m->count == s->count &&
	       m->offset == at && m->part.len == len;
}

// What wire_get_segment has checked, as far as memory depends on it.
static bool bounded(const struct wire_segment *m)
{
	return m->count >= 2 && m->count <= FRAME_SEGMENTS_MAX && m->index < m->count &&
	       m->total <= FRAME_BYTES_MAX && m->part.len != 0 && m->part.len <= m->total &&
	       m->offset <= m->total - m->part.len;
}

enum wire_part wire_reassembly_add(struct wire_reassembly *r, const struct wire_header *header,
	const struct wire_segment *segment, uint64_t now_ns, struct wire_view *frame,
	uint32_t *handle)
{
	return wire_reassembly_add_owned(r, header->sender, header, segment, now_ns, frame, handle);
}

enum wire_part wire_reassembly_add_owned(struct wire_reassembly *r, uint64_t owner,
	const struct wire_header *header, const struct wire_segment *segment, uint64_t now_ns,
	struct wire_view *frame, uint32_t *handle)
{
	const struct frame_name name = {
		.sender = header->sender,
		.boot = header->boot,
		.id = segment->frame_id,
		.lane = header->lane,
	};
	const uint64_t hash = id_hash(id_view_of(&name, sizeof(name)));
	const uint64_t bit = UINT64_C(1) << (segment->index % 64);
	uint32_t i = find(r, &name, hash);
	uint64_t *have;
	struct slot *s;
	uint8_t *at;

	if (!bounded(segment))
		return WIRE_PART_BAD;
	if (i == NONE) {
		if (recent_has(r, &name, hash, now_ns))
			return WIRE_PART_REPEATED;
		bool full;

		i = start(r, owner, &name, hash, segment, now_ns, &full);
		if (i == NONE)
			return full ? WIRE_PART_SHARE : WIRE_PART_FULL;
	}
	s = &r->slots[i];
	if (!fits(s, segment))
		return WIRE_PART_BAD;
	have = &s->have[segment->index / 64];
	at = r->bytes + (size_t)i * FRAME_BYTES_MAX + segment->offset;
	if (*have & bit)
		return memcmp(at, segment->part.p, segment->part.len) == 0 ? WIRE_PART_MORE
									   : WIRE_PART_BAD;
	memcpy(at, segment->part.p, segment->part.len);
	s->attempt = segment->attempt > s->attempt ? segment->attempt : s->attempt;
	*have |= bit;
	if (--s->missing != 0)
		return WIRE_PART_MORE;
	unlist(r, i);
	s->state = SLOT_COMPLETE;
	recent_add(r, &name, hash, now_ns);
	*frame = (struct wire_view){
		.p = r->bytes + (size_t)i * FRAME_BYTES_MAX,
		.len = s->total,
	};
	*handle = i;
	return WIRE_PART_COMPLETE;
}

uint8_t wire_reassembly_attempt(const struct wire_reassembly *r, uint32_t handle)
{
	assert(handle < r->frames && r->slots[handle].state == SLOT_COMPLETE);
	return r->slots[handle].attempt;
}

void wire_reassembly_release(struct wire_reassembly *r, uint32_t handle)
{
	assert(handle < r->frames && r->slots[handle].state == SLOT_COMPLETE);
	give_back(r, handle);
}

void wire_reassembly_forget(struct wire_reassembly *r, uint32_t handle)
{
	const struct slot *const s = &r->slots[handle];
	struct recent *const set = recent_set(r, s->hash);

	for (uint32_t i = 0; i < RECENT_WAYS; i++)
		if (set[i].used && name_equal(&set[i].name, &s->name))
			set[i].used = false;
	wire_reassembly_release(r, handle);
}

uint32_t wire_reassembly_expire(struct wire_reassembly *r, uint64_t now_ns)
{
	const uint32_t n = r->given_up + give_up_old(r, now_ns, UINT32_MAX);

	r->given_up = 0;
	return n;
}

uint32_t wire_reassembly_pending(const struct wire_reassembly *r)
{
	return r->filling;
}
