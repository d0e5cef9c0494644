/* SPDX-License-Identifier: BSD-3-Clause */
// Questions to a topology snapshot and the full-shape comparison. Pure functions, any thread.
#include "topology.h"

#include <errno.h>
#include <string.h>

#include "channel_source.h"
#include "topology_pvt.h"

int topology_init(struct topology *t, uint32_t hash_slots, uint32_t slots, uint64_t node)
{
	uint32_t hash_slot = 0;

	if (hash_slots == 0 || hash_slots > HASH_SLOTS_MAX || slots == 0 ||
		slots > TOPOLOGY_SLOTS_MAX || slots > hash_slots || node == 0)
		return -EINVAL;
	memset(t, 0, sizeof(*t));
	t->version = 1;
	t->revision = 1;
	t->hash_slots = hash_slots;
	t->slot_count = slots;
	for (uint32_t s = 1; s <= slots; s++) {
		const uint32_t share = hash_slots / slots + (s <= hash_slots % slots);

		t->slot[s - 1] = (struct topology_slot){
			.slot = s,
			.leader = node,
			.term = 1,
			.config_epoch = 1,
		};
		t->peers[s - 1] = (struct topology_peers){.count = 1, .node = {node}};
		for (uint32_t i = 0; i < share; i++)
			t->slot_of[hash_slot++] = (uint16_t)s;
	}
	return 0;
}

uint32_t topology_slot_of(const struct topology *t, struct id_view id)
{
	return t->hash_slots == 0 ? 0 : t->slot_of[id_hash_slot(id, t->hash_slots)];
}

static bool assigned(const struct topology_slot *s)
{
	return s->slot != 0 && s->leader != 0 && s->term != 0 && s->config_epoch != 0;
}

static bool equal(const struct topology_slot *a, const struct topology_slot *b)
{
	return assigned(a) && a->slot == b->slot && a->leader == b->leader && a->term == b->term &&
	       a->config_epoch == b->config_epoch && a->balance_version == b->balance_version;
}

const struct topology_slot *topology_slot_known(const struct topology *t, uint32_t slot)
{
	const struct topology_slot *s;

	if (slot == 0 || slot > t->slot_count)
		return NULL;
	s = &t->slot[slot - 1];
	return s->slot == slot && assigned(s) ? s : NULL;
}

uint64_t topology_leader_of(const struct topology *t, struct id_view id)
{
	const struct topology_slot *s = topology_slot_known(t, topology_slot_of(t, id));

	return s == NULL ? 0 : s->leader;
}

const struct topology_node *topology_node(const struct topology *t, uint64_t id)
{
	uint32_t low = 0, high = t->node_count;

	while (low < high) {
		const uint32_t mid = low + (high - low) / 2;

		if (t->node[mid].id < id)
			low = mid + 1;
		else
			high = mid;
	}
	return low < t->node_count && t->node[low].id == id ? &t->node[low] : NULL;
}

uint32_t topology_slots_led(const struct topology *t, uint64_t node)
{
	uint32_t n = 0;

	for (uint32_t s = 1; s <= t->slot_count; s++) {
		const struct topology_slot *const k = topology_slot_known(t, s);

		n += k != NULL && k->leader == node;
	}
	return n;
}

// --- channels -------------------------------------------------------------------------------------------

uint32_t bucket_lower(const struct topology_bucket *b, uint64_t hash)
{
	uint32_t low = 0, high = b == NULL ? 0 : b->count;

	while (low < high) {
		const uint32_t mid = low + (high - low) / 2;

		if (b->row[mid]->hash < hash)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

uint32_t bucket_find(const struct topology_bucket *b, const struct channel_key *key, uint64_t hash)
{
	const uint32_t count = b == NULL ? 0 : b->count;

	for (uint32_t i = bucket_lower(b, hash); i < count && b->row[i]->hash == hash; i++) {
		const struct topology_channel *const c = b->row[i];

		if (c->type == key->type && c->len == key->len &&
			memcmp(c->bytes, key->bytes, key->len) == 0)
			return i;
	}
	return count;
}

// A removed node leads nothing, whatever its row says.
static uint64_t named_leader(const struct topology *t, const struct topology_channel *row)
{
	const struct topology_node *const n = topology_node(t, row->leader);

	return n == NULL || n->state == TOPOLOGY_REMOVED ? 0 : n->id;
}

int topology_authority(const struct topology *t, const struct channel_key *key, uint64_t hash,
	struct topology_authority *a)
{
	const struct topology_bucket *const b = t->bucket[bucket_of(hash)];
	const uint32_t at = bucket_find(b, key, hash);
	const struct topology_channel *const row = b != NULL && at < b->count ? b->row[at] : NULL;
	const uint32_t slot = topology_slot_of(t, channel_root_id(channel_key_id(key)));
	const struct topology_slot *const s = topology_slot_known(t, slot);

	*a = (struct topology_authority){.slot = slot};
	if (row != NULL) {
		a->channel_epoch = row->channel_epoch;
		a->leader_epoch = row->leader_epoch;
	}
	// The term of the slot fences a named leader too: without it nobody acts.
	if (s == NULL)
		return -EAGAIN;
	a->term = s->term;
	a->node = row != NULL && row->named ? named_leader(t, row) : s->leader;
	return a->node != 0 ? 0 : -EAGAIN;
}

enum topology_order topology_authority_compare(
	const struct topology_authority *told, const struct topology_authority *known)
{
	const bool epochs_older = told->channel_epoch < known->channel_epoch ||
				  (told->channel_epoch == known->channel_epoch &&
					  told->leader_epoch < known->leader_epoch);

	if (told->node == 0 || known->node == 0 || told->term == 0 || told->slot != known->slot)
		return TOPOLOGY_UNLIKE;
	if (told->term < known->term || epochs_older)
		return TOPOLOGY_OLDER;
	if (told->term > known->term || told->channel_epoch != known->channel_epoch ||
		told->leader_epoch != known->leader_epoch)
		return TOPOLOGY_NEWER;
	return told->node == known->node ? TOPOLOGY_SAME : TOPOLOGY_UNLIKE;
}

// --- references -----------------------------------------------------------------------------------------

void topology_ref_begin(struct topology_ref *ref, const struct topology *t)
{
	ref->version = t->version;
	ref->count = 0;
}

int topology_ref_add(struct topology_ref *ref, const struct topology *t, uint32_t slot)
{
	const struct topology_slot *s = topology_slot_known(t, slot);
	uint32_t at = 0;

	while (at < ref->count && ref->slot[at].slot < slot)
		at++;
	if (at < ref->count && ref->slot[at].slot == slot)
		return 0;
	if (s == NULL || ref->count == TOPOLOGY_SLOTS_MAX)
		return -EAGAIN;
	memmove(&ref->slot[at + 1], &ref->slot[at], (ref->count - at) * sizeof(ref->slot[0]));
	ref->slot[at] = *s;
	ref->count++;
	return 0;
}

int topology_ref_push(struct topology_ref *ref, const struct topology_slot *slot)
{
	if (!assigned(slot) || slot->slot > TOPOLOGY_SLOTS_MAX ||
		ref->count == TOPOLOGY_SLOTS_MAX ||
		(ref->count != 0 && slot->slot <= ref->slot[ref->count - 1].slot))
		return -EINVAL;
	ref->slot[ref->count++] = *slot;
	return 0;
}

bool topology_ref_current(const struct topology_ref *ref, const struct topology *t)
{
	if (ref->version == 0 || ref->version != t->version)
		return false;
	for (uint32_t i = 0; i < ref->count; i++) {
		const struct topology_slot *is = topology_slot_known(t, ref->slot[i].slot);

		if (is == NULL || !equal(&ref->slot[i], is))
			return false;
	}
	return true;
}

bool topology_ref_equal(const struct topology_ref *a, const struct topology_ref *b)
{
	if (a->version == 0 || a->version != b->version || a->count != b->count)
		return false;
	for (uint32_t i = 0; i < a->count; i++)
		if (!equal(&a->slot[i], &b->slot[i]))
			return false;
	return true;
}
