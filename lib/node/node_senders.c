/* SPDX-License-Identifier: BSD-3-Clause */
// Senders one worker has heard of: a replay window per (sender, boot, lane) and the address it proved.
// A fixed table of sets of eight. A sender that proved nothing may be displaced by any other; one that did
// is displaced only after it was silent for IDLE_NS, so that strangers cannot push known senders out. Whoever
// owns one address may prove any number of senders there: beyond a share of the table the longest silent of
// them becomes unproven again. Memory at creation; then the worker's alone.
#include "node_pvt.h"

#include <stdlib.h>

#define WAYS 8u
#define LOOKED_AT 64u  // entries, for room elsewhere
#define IDLE_NS (UINT64_C(120) * 1000000000u)
#define OLDEST_LOOKED_AT 8u  // of an address with its share: the longest silent of so many goes

// An IP address with proven senders, in the order they were proven.
struct source {
	uint32_t ip;
	uint32_t count;
	uint32_t oldest, newest;  // entry + 1
	uint32_t next_free;  // source + 1
};

struct node_senders {
	struct node_sender *entry;
	struct source *source;  // as many as entries
	struct index sources;  // hash of the IP -> source + 1
	uint32_t source_free;  // source + 1
	uint32_t source_top;  // sources at and above were never used
	uint32_t share;
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
	const uint32_t entries = sets_of(limit) * WAYS;

	return (uint64_t)entries * (sizeof(struct node_sender) + sizeof(struct source)) +
	       index_memory(entries);
}

struct node_senders *node_senders_create(uint32_t limit, uint32_t share)
{
	struct node_senders *s;

	if (limit == 0 || limit > 1u << 22 || share == 0)
		return NULL;
	s = calloc(1, sizeof(*s));
	if (s == NULL)
		return NULL;
	s->limit = limit;
	s->sets = sets_of(limit);
	s->share = share;
	s->entry = calloc((size_t)s->sets * WAYS, sizeof(*s->entry));
	s->source = calloc((size_t)s->sets * WAYS, sizeof(*s->source));
	if (s->entry == NULL || s->source == NULL || index_init(&s->sources, s->sets * WAYS) != 0) {
		node_senders_destroy(s);
		return NULL;
	}
	return s;
}

void node_senders_destroy(struct node_senders *senders)
{
	if (senders == NULL)
		return;
	index_fini(&senders->sources);
	free(senders->source);
	free(senders->entry);
	free(senders);
}

// --- proven senders of one address --------------------------------------------------------------------

static uint64_t hash_of_ip(uint32_t ip)
{
	return id_hash(id_view_of(&ip, sizeof(ip)));
}

// Returns: source + 1, 0 when the address has none.
static uint32_t source_find(const struct node_senders *s, uint32_t ip, uint64_t hash)
{
	struct index_cursor cur;
	uint32_t i;

	index_first(&s->sources, hash, &cur);
	while ((i = index_next(&s->sources, &cur)) != 0)
		if (s->source[i - 1].ip == ip)
			return i;
	return 0;
}

// Returns: source + 1; 0 when the index has no room where this address falls.
static uint32_t source_make(struct node_senders *s, uint32_t ip, uint64_t hash)
{
	const bool reused = s->source_free != 0;
	const uint32_t i = reused ? s->source_free : s->source_top + 1;

	if (index_insert(&s->sources, hash, i) != 0)
		return 0;
	if (reused)
		s->source_free = s->source[i - 1].next_free;
	else
		s->source_top++;
	s->source[i - 1] = (struct source){.ip = ip};
	return i;
}

// Takes a sender out of its address's list; it is no longer proven.
static void leave(struct node_senders *s, struct node_sender *e)
{
	struct source *source;

	if (e->source == 0)
		return;
	source = &s->source[e->source - 1];
	if (e->older != 0)
		s->entry[e->older - 1].newer = e->newer;
	else
		source->oldest = e->newer;
	if (e->newer != 0)
		s->entry[e->newer - 1].older = e->older;
	else
		source->newest = e->older;
	if (--source->count == 0) {
		index_remove(&s->sources, hash_of_ip(source->ip), e->source);
		source->next_free = s->source_free;
		s->source_free = e->source;
	}
	e->source = e->older = e->newer = 0;
	e->addr = (struct net_addr){0};
	e->state = NODE_SENDER_UNPROVEN;
}

static void unprove_one(struct node_senders *s, const struct source *source)
{
	struct node_sender *out = &s->entry[source->oldest - 1];
	uint32_t at = out->newer;

	for (uint32_t i = 1; i < OLDEST_LOOKED_AT && at != 0; i++) {
		struct node_sender *e = &s->entry[at - 1];

		if (e->heard_ns < out->heard_ns)
			out = e;
		at = e->newer;
	}
	leave(s, out);
}

bool node_senders_prove(struct node_senders *s, struct node_sender *sender, struct net_addr addr)
{
	const uint32_t self = (uint32_t)(sender - s->entry) + 1;
	const uint64_t hash = hash_of_ip(addr.ip);
	struct source *source;
	bool room = true;
	uint32_t i;

	leave(s, sender);
	sender->addr = addr;
	i = source_find(s, addr.ip, hash);
	if (i != 0 && s->source[i - 1].count >= s->share) {
		unprove_one(s, &s->source[i - 1]);
		i = source_find(s, addr.ip, hash);
		room = false;
	}
	if (i == 0)
		i = source_make(s, addr.ip, hash);
	if (i == 0)
		return room;  // it stays unproven: known by its address as long as nobody displaces it
	source = &s->source[i - 1];
	sender->state = NODE_SENDER_PROVEN;
	sender->source = i;
	sender->older = source->newest;
	if (source->newest != 0)
		s->entry[source->newest - 1].newer = self;
	else
		source->oldest = self;
	source->newest = self;
	source->count++;
	return room;
}

// --- the table ----------------------------------------------------------------------------------------

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
		leave(s, e);
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
	leave(senders, victim);
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
