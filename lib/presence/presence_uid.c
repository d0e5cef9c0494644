/* SPDX-License-Identifier: BSD-3-Clause */
// The UID table: bytes -> dense index, counted. An index nobody holds rests in quarantine, where its UID
// finds it again; what rested long enough is freed in bounded steps. Control core only: workers know
// UIDs by index.
//
// Quarantine has two generations: every uid_quarantine_ns the old one is over and the young one becomes
// the old one, so each index rests at least that long and at most twice that long, without a time each.
#include "presence_pvt.h"

#define HOLD_GROUP 16u  // UIDs whose memory is fetched together

static void list_push(struct presence *p, struct uid_list *list, uint32_t index)
{
	p->uid[index].next = 0;
	if (list->head == 0)
		list->head = index;
	else
		p->uid[list->tail].next = index;
	list->tail = index;
}

static uint32_t list_pop(struct presence *p, struct uid_list *list)
{
	const uint32_t index = list->head;

	if (index != 0)
		list->head = p->uid[index].next;
	return index;
}

static bool is_named(const struct presence *p, uint32_t index, struct id_view uid)
{
	const struct uid_record *r = &p->uid[index];

	return r->len == uid.len && memcmp(names_at(&p->names, r->name), uid.bytes, uid.len) == 0;
}

static uint32_t find_hashed(const struct presence *p, struct id_view uid, uint64_t hash)
{
	struct index_cursor cur;
	uint32_t index;

	index_first(&p->uid_index, hash, &cur);
	while ((index = index_next(&p->uid_index, &cur)) != 0) {
		if (is_named(p, index, uid))
			return index;
	}
	return 0;
}

static uint32_t intern(struct presence *p, struct id_view uid, uint64_t hash)
{
	const bool reused = p->uid_free != 0;
	const uint32_t index = reused ? p->uid_free : p->uid_top;
	uint32_t name;

	if (!reused && p->uid_top > p->limits.uids)
		return 0;
	name = names_put(&p->names, uid);
	if (name == NAME_NONE)
		return 0;
	if (index_insert(&p->uid_index, hash, index) != 0) {
		names_free(&p->names, name);
		return 0;
	}
	if (reused)
		p->uid_free = p->uid[index].next;
	else
		p->uid_top++;
	// Its page is here before a worker looks at it.
	atomic_store_explicit(&p->route[index], 0, memory_order_relaxed);
	p->uid[index] = (struct uid_record){.name = name, .refs = 1, .len = uid.len};
	p->uids++;
	return index;
}

static uint32_t hold_hashed(struct presence *p, struct id_view uid, uint64_t hash) CONTROL_ONLY;
static uint32_t hold_hashed(struct presence *p, struct id_view uid, uint64_t hash)
{
	const uint32_t index = find_hashed(p, uid, hash);

	if (index == 0)
		return intern(p, uid, hash);
	presence_uid_ref(p, index);
	return index;
}

uint32_t presence_uid_hold(struct presence *p, struct id_view uid)
{
	return uid.len == 0 ? 0 : hold_hashed(p, uid, id_hash(uid));
}

// Hashes of a group and the index each most likely means, 0: none; their memory is fetched in steps.
static void look_at_group(const struct presence *p, const struct id_view *uid, uint32_t n,
	uint64_t *hash, uint32_t *likely)
{
	for (uint32_t i = 0; i < n; i++) {
		hash[i] = id_hash(uid[i]);
		index_prefetch(&p->uid_index, hash[i]);
		__builtin_prefetch(
			&p->uid_index.bucket[(uint32_t)(hash[i] >> 32) & p->uid_index.mask]);
	}
	for (uint32_t i = 0; i < n; i++) {
		struct index_cursor cur;

		index_first(&p->uid_index, hash[i], &cur);
		likely[i] = index_next(&p->uid_index, &cur);
		__builtin_prefetch(&p->uid[likely[i]]);
	}
	for (uint32_t i = 0; i < n; i++)
		if (likely[i] != 0)
			__builtin_prefetch(names_at(&p->names, p->uid[likely[i]].name));
}

uint32_t presence_uid_hold_burst(
	struct presence *p, const struct id_view *uid, uint32_t count, uint32_t *index)
{
	for (uint32_t at = 0; at < count; at += HOLD_GROUP) {
		const uint32_t n = count - at < HOLD_GROUP ? count - at : HOLD_GROUP;
		uint64_t hash[HOLD_GROUP], fresh = 0;
		uint32_t likely[HOLD_GROUP];

		look_at_group(p, uid + at, n, hash, likely);
		for (uint32_t i = 0; i < n; i++) {
			const struct id_view one = uid[at + i];
			const uint64_t bit = UINT64_C(1) << (hash[i] & 63);
			uint32_t found = likely[i];

			if (one.len == 0)
				return at + i;
			// A group's own new UIDs were not there when it was looked at.
			if (found != 0 && is_named(p, found, one))
				presence_uid_ref(p, found);
			else if (found == 0 && !(fresh & bit))
				found = intern(p, one, hash[i]);
			else
				found = hold_hashed(p, one, hash[i]);
			fresh |= bit;
			index[at + i] = found;
			if (found == 0)
				return at + i;
		}
	}
	return count;
}

void presence_uid_ref(struct presence *p, uint32_t index)
{
	if (p->uid[index].refs++ != 0)
		return;
	p->uids++;
	p->uids_quarantined--;
}

void presence_uid_drop(struct presence *p, uint32_t index, uint64_t now_ns)
{
	struct uid_record *r = &p->uid[index];

	(void)now_ns;
	assert(r->len != 0 && r->refs != 0);
	if (--r->refs != 0)
		return;
	p->uids--;
	p->uids_quarantined++;
	if ((r->state & UID_QUEUED) != 0) {
		r->state |= UID_AGAIN;
		return;
	}
	r->state = UID_QUEUED;
	list_push(p, &p->young, index);
}

uint32_t presence_uid_find(const struct presence *p, struct id_view uid)
{
	const uint32_t index = uid.len == 0 ? 0 : find_hashed(p, uid, id_hash(uid));

	return index != 0 && p->uid[index].refs != 0 ? index : 0;
}

struct id_view presence_uid_name(const struct presence *p, uint32_t index)
{
	const struct uid_record *r = &p->uid[index];

	if (r->len == 0)
		return (struct id_view){0};
	return id_view_of(names_at(&p->names, r->name), r->len);
}

uint32_t presence_uid_count(const struct presence *p)
{
	return p->uids;
}

// Moves the generations on when their time is over.
void presence_uids_turn(struct presence *p, uint64_t now_ns)
{
	if (p->turned_ns == 0)
		p->turned_ns = now_ns;
	if (now_ns - p->turned_ns < p->limits.uid_quarantine_ns)
		return;
	p->turned_ns = now_ns;
	if (p->old.head != 0) {
		if (p->ready.head == 0)
			p->ready.head = p->old.head;
		else
			p->uid[p->ready.tail].next = p->old.head;
		p->ready.tail = p->old.tail;
	}
	p->old = p->young;
	p->young = (struct uid_list){0};
}

// Frees up to `steps` indices that rested. Returns: steps used.
uint32_t presence_uids_release(struct presence *p, uint32_t steps)
{
	uint32_t done = 0;
	uint32_t index;

	while (done < steps && (index = list_pop(p, &p->ready)) != 0) {
		struct uid_record *r = &p->uid[index];
		const uint8_t state = r->state;

		done++;
		r->state = 0;
		if (r->refs != 0)
			continue;
		if ((state & UID_AGAIN) != 0) {
			r->state = UID_QUEUED;
			list_push(p, &p->young, index);
			continue;
		}
		index_remove(&p->uid_index, id_hash(presence_uid_name(p, index)), index);
		names_free(&p->names, r->name);
		r->len = 0;
		r->next = p->uid_free;
		p->uid_free = index;
		p->uids_quarantined--;
	}
	return done;
}
