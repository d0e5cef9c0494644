/* SPDX-License-Identifier: BSD-3-Clause */
// Senders one worker has heard of: a replay window per (sender, boot, lane) and the address it proved.
// A fixed table of sets of eight. A sender that proved nothing may be displaced by any other; one that did
// is displaced only after it was silent for IDLE_NS, so that strangers cannot push known senders out.
// Memory at creation; then the worker's alone.
#include "node_pvt.h"

#include <stdlib.h>

#define WAYS 8u
#define IDLE_NS (UINT64_C(120) * 1000000000u)

struct node_senders {
	struct node_sender *entry;
	uint32_t sets;  // power of two
	uint32_t limit;
	_Atomic uint32_t count;  // control: relaxed reads
};

struct node_senders *node_senders_create(uint32_t limit)
{
	struct node_senders *s;

	if (limit == 0 || limit > 1u << 22)
		return NULL;
	s = calloc(1, sizeof(*s));
	if (s == NULL)
		return NULL;
	s->limit = limit;
	s->sets = 1;
	while (s->sets * WAYS <
		limit * 2)  // half empty, so that sets rarely overflow before the table
		s->sets *= 2;
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

// True when `a` is to go before `b`: free ones first, then unproven ones, then the longest silent.
static bool goes_before(const struct node_sender *a, const struct node_sender *b)
{
	if (a->state != b->state)
		return a->state < b->state;
	return a->heard_ns < b->heard_ns;
}

struct node_sender *node_senders_take(
	struct node_senders *senders, const struct wire_header *header, uint64_t now_ns)
{
	struct node_sender *set = set_of(senders, header), *victim = &set[0];
	const uint32_t count = node_senders_count(senders);

	for (uint32_t i = 0; i < WAYS; i++) {
		struct node_sender *e = &set[i];

		if (e->state != NODE_SENDER_FREE && e->sender == header->sender &&
			e->boot == header->boot && e->lane == header->lane) {
			e->heard_ns = now_ns;
			return e;
		}
		// At the limit a free place is none: somebody else has to go.
		if (e->state == NODE_SENDER_FREE && count >= senders->limit)
			continue;
		if (victim->state == NODE_SENDER_FREE && count >= senders->limit)
			victim = e;
		else if (goes_before(e, victim))
			victim = e;
	}
	if (victim->state == NODE_SENDER_FREE && count >= senders->limit)
		return NULL;
	if (victim->state == NODE_SENDER_PROVEN && now_ns - victim->heard_ns < IDLE_NS)
		return NULL;
	if (victim->state == NODE_SENDER_FREE)
		atomic_store_explicit(&senders->count, count + 1, memory_order_relaxed);
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
