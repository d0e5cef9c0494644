/* SPDX-License-Identifier: BSD-3-Clause */
// Topology snapshots and the full-shape comparison. Pure functions, any thread.
#include "topology.h"

#include <errno.h>
#include <string.h>

int topology_init(struct topology *t, uint32_t hash_slots, uint32_t slots, uint64_t node)
{
	uint32_t hash_slot = 0;

	if (hash_slots == 0 || hash_slots > HASH_SLOTS_MAX || slots == 0 ||
		slots > TOPOLOGY_SLOTS_MAX || slots > hash_slots || node == 0)
		return -EINVAL;
	memset(t, 0, sizeof(*t));
	t->version = 1;
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
		for (uint32_t i = 0; i < share; i++)
			t->slot_of[hash_slot++] = (uint16_t)s;
	}
	return 0;
}

uint32_t topology_slot_of(const struct topology *t, struct id_view id)
{
	return t->hash_slots == 0 ? 0 : t->slot_of[id_hash_slot(id, t->hash_slots)];
}

// The assignment of a slot, NULL when there is none or its leader or term is unknown.
static const struct topology_slot *known(const struct topology *t, uint32_t slot)
{
	const struct topology_slot *s;

	if (slot == 0 || slot > t->slot_count)
		return NULL;
	s = &t->slot[slot - 1];
	return s->slot == slot && s->leader != 0 && s->term != 0 ? s : NULL;
}

uint64_t topology_leader_of(const struct topology *t, struct id_view id)
{
	const struct topology_slot *s = known(t, topology_slot_of(t, id));

	return s == NULL ? 0 : s->leader;
}

void topology_ref_begin(struct topology_ref *ref, const struct topology *t)
{
	ref->version = t->version;
	ref->count = 0;
}

int topology_ref_add(struct topology_ref *ref, const struct topology *t, uint32_t slot)
{
	const struct topology_slot *s = known(t, slot);
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

bool topology_ref_current(const struct topology_ref *ref, const struct topology *t)
{
	if (ref->version != t->version)
		return false;
	for (uint32_t i = 0; i < ref->count; i++) {
		const struct topology_slot *was = &ref->slot[i];
		const struct topology_slot *is = known(t, was->slot);

		if (is == NULL || is->leader != was->leader || is->term != was->term ||
			is->config_epoch != was->config_epoch ||
			is->balance_version != was->balance_version)
			return false;
	}
	return true;
}
