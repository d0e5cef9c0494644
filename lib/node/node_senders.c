/* SPDX-License-Identifier: BSD-3-Clause */
// Senders one worker has heard of: a replay window per (sender, boot, lane) and the address it proved.
// A fixed table of sets of eight. A sender that proved nothing may be displaced by any other; one that did
// is displaced only after it was silent for IDLE_NS, so that strangers cannot push known senders out.
// Memory at creation; then the worker's alone.
#include "node_pvt.h"

#include <stdlib.h>

#define WAYS 8u
#define LOOKED_AT 64u  // entries, for room elsewhere
#define IDLE_NS (UINT64_C(120) * 1000000000u)

struct node_senders {
	struct node_sender *entry;
	uint32_t sets;  // power of two
	uint32_t limit;
	uint32_t hand;  // where make_room looks next
	_Atomic uint32_t count;  // control: relaxed reads
};

// Half empty, so that sets rarely overflow before the table.
static uint32_t sets_of(uint32_t limit)
{
	uint32_t sets = 1;

	while (sets * WAYS < limit * 2)
		sets *= 2;
	return sets;
}

uint64_t node_senders_memory(uint32_t limit)
{
	return (uint64_t)sets_of(limit) * WAYS * sizeof(struct node_sender);
}

struct node_senders *node_senders_create(uint32_t limit)
{
	struct node_senders *s;

	if (limit == 0 || limit > 1u << 22)
		return NULL;
	s = calloc(1, sizeof(*s));
	if (s == NULL)
		return NULL;
	s->limit = limit;
	s->sets = sets_of(limit);
	s->entry = calloc((size_t)s->sets * WAYS, sizeof(*s->entry));
	if (s->entry == NULL) {
		free(s);
		return NULL;
	}
	return s;
}

void node_senders_destroy(struct node_senders *senders)
{
	if (senders == NULL)
		return;
	free(senders->entry);
	free(senders);
}

static struct node_sender *set_of(struct node_senders *s, const struct wire_header *header)
{
	struct {
		uint64_t sender, boot, lane;
	} name = {header->sender, header->boot, header->lane};
	const uint64_t hash = id_hash(id_view_of(&name, sizeof(name)));

	return &s->entry[(size_t)(hash & (s->sets - 1)) * WAYS];
}

// True when `a` is to go before `b`: unproven ones first, then the longest silent.
static bool goes_before(const struct node_sender *a, const struct node_sender *b)
{
	if (a->state != b->state)
		return a->state < b->state;
	return a->heard_ns < b->heard_ns;
}

static bool displaceable(const struct node_sender *e, uint64_t now_ns)
{
	return e->state == NODE_SENDER_UNPROVEN ||
	       (e->state == NODE_SENDER_PROVEN && now_ns - e->heard_ns >= IDLE_NS);
}

// At the limit, for a sender whose own set has nobody to displace: takes somebody out elsewhere. Otherwise
// strangers who fill the table would keep everybody out who falls into an empty set.
static bool make_room(struct node_senders *s, uint64_t now_ns)
{
	const uint32_t entries = s->sets * WAYS;

	for (uint32_t i = 0; i < LOOKED_AT; i++) {
		struct node_sender *e = &s->entry[s->hand++ & (entries - 1)];

		if (!displaceable(e, now_ns))
			continue;
		e->state = NODE_SENDER_FREE;
		return true;
	}
	return false;
}

struct node_sender *node_senders_take(
	struct node_senders *senders, const struct wire_header *header, uint64_t now_ns)
{
	struct node_sender *set = set_of(senders, header), *used = NULL, *victim = NULL;
	const uint32_t count = node_senders_count(senders);

	for (uint32_t i = 0; i < WAYS; i++) {
		struct node_sender *e = &set[i];

		if (e->state == NODE_SENDER_FREE) {
			victim = e;
			continue;
		}
		if (e->sender == header->sender && e->boot == header->boot &&
			e->lane == header->lane) {
			e->heard_ns = now_ns;
			return e;
		}
		if (used == NULL || goes_before(e, used))
			used = e;
	}
	if (victim != NULL && count < senders->limit)
		atomic_store_explicit(&senders->count, count + 1, memory_order_relaxed);
	else if (used != NULL && displaceable(used, now_ns))
		victim = used;
	else if (victim == NULL || !make_room(senders, now_ns))
		return NULL;
	*victim = (struct node_sender){
		.sender = header->sender,
		.boot = header->boot,
		.lane = header->lane,
		.heard_ns = now_ns,
		.state = NODE_SENDER_UNPROVEN,
	};
	return victim;
}

uint32_t node_senders_count(const struct node_senders *senders)
{
	return atomic_load_explicit(&senders->count, memory_order_relaxed);
}
