/* SPDX-License-Identifier: BSD-3-Clause */
// What workers ask of presence. Under RCU; nothing is written.
#include "presence_pvt.h"

void presence_view(const struct presence *p, struct presence_view *view)
{
	*view = (struct presence_view){
		.route = p->route,
		.uids = p->limits.uids + 1,
		.gateway = p->gateway,
		.gateways = p->limits.gateways + 1,
		.owner = p,
	};
}

const struct presence_more *presence_more_of(const struct presence_view *v, uint32_t uid)
{
	return rcu_read(&v->owner->more[uid]);
}

uint64_t presence_gateway_hash(uint64_t gateway, uint64_t boot)
{
	const uint64_t name[2] = {gateway, boot};

	return id_hash(id_view_of(name, sizeof(name)));
}

uint32_t presence_gateway_of(const struct presence_view *v, uint64_t gateway, uint64_t boot)
{
	const struct index *index = &v->owner->gateway_index;
	struct index_cursor cur;
	uint32_t i;

	index_first(index, presence_gateway_hash(gateway, boot), &cur);
	while ((i = index_next(index, &cur)) != 0) {
		const struct presence_gateway *g = &v->gateway[i];

		if (g->gateway == gateway && g->boot == boot &&
			atomic_load_explicit(&g->alive, memory_order_acquire))
			return i;
	}
	return 0;
}

bool presence_session_live(
	const struct presence_view *v, uint32_t gateway, uint32_t slot, uint32_t gen)
{
	const struct slot_dir *dir;
	const struct slot_block *b;
	uint64_t word;

	if (gateway == 0 || gateway >= v->gateways ||
		!atomic_load_explicit(&v->gateway[gateway].alive, memory_order_acquire))
		return false;
	dir = rcu_read(&v->owner->control[gateway].dir);
	if (dir == NULL || slot / SLOT_BLOCK >= dir->blocks)
		return false;
	b = rcu_read(&dir->block[slot / SLOT_BLOCK]);
	if (b == NULL)
		return false;
	word = atomic_load_explicit(&b->slot[slot % SLOT_BLOCK], memory_order_acquire);
	return (word & SLOT_OPEN) != 0 && slot_gen(word) == gen;
}
