/* SPDX-License-Identifier: BSD-3-Clause */
// The idempotence window; see idem.h. Owns two generations of a table and their records. Worker thread.
//
// A generation is an open-addressed table of slots beside an array of records. A slot counts only when it
// carries the generation's epoch, so starting a generation anew is one addition; the slots of an older
// life are overwritten as they are met. Removal closes the gap by moving later slots of the run back, so
// that no marks are left to walk over. Slots hold the whole hash, records the whole key.
#include "idem.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base_id.h"

#define ENTRIES_MIN 16u
#define ENTRIES_MAX (1u << 24)
#define NONE UINT32_MAX
#define AHEAD 4  // entries fetched before they are used; they are used in a row

struct slot {
	uint64_t hash;
	uint32_t epoch;
	uint32_t entry;
};

struct entry {
	uint64_t channel_hash, message_id;
	struct idem_record record;
	uint32_t free_next;
};

struct generation {
	struct slot *slot;
	struct entry *entry;
	uint32_t epoch;  // from 1
	uint32_t count;  // entries in use
	uint32_t unused;  // entries never used in this life start here
	uint32_t free_head;  // of entries forgotten
	uint64_t start_ns;
};

struct idem {
	struct generation generation[2];
	uint32_t young;
	uint32_t entries;
	uint32_t mask;
	uint64_t age_ns;
	// control: relaxed reads
	_Atomic uint32_t used;
	_Atomic uint64_t early;
};

static void generation_start(struct idem *idem, struct generation *g, uint64_t now_ns)
{
	// Epochs run out after 2^32 lives of at least 16 records each; then, once, the slots are wiped.
	if (++g->epoch == 0) {
		memset(g->slot, 0, ((size_t)idem->mask + 1) * sizeof(*g->slot));
		g->epoch = 1;
	}
	g->count = 0;
	g->unused = 0;
	g->free_head = NONE;
	g->start_ns = now_ns;
}

struct idem *idem_create(uint32_t entries, uint64_t age_ns)
{
	struct idem *idem;

	if (entries < ENTRIES_MIN || entries > ENTRIES_MAX)
		return NULL;
	idem = calloc(1, sizeof(*idem));
	if (idem == NULL)
		return NULL;
	idem->entries = entries;
	idem->age_ns = age_ns;
	// Between two and four slots an entry: runs stay short.
	idem->mask = 1;
	while (idem->mask < 2 * entries)
		idem->mask *= 2;
	idem->mask--;
	for (uint32_t k = 0; k < 2; k++) {
		struct generation *g = &idem->generation[k];

		g->slot = calloc((size_t)idem->mask + 1, sizeof(*g->slot));
		g->entry = calloc(entries, sizeof(*g->entry));
		if (g->slot == NULL || g->entry == NULL) {
			idem_destroy(idem);
			return NULL;
		}
		generation_start(idem, g, 0);
	}
	return idem;
}

uint64_t idem_memory(uint32_t entries)
{
	const struct generation *g = NULL;
	uint64_t slots = 1;

	while (slots < 2 * (uint64_t)entries)
		slots *= 2;
	return 2 * (slots * sizeof(*g->slot) + entries * sizeof(*g->entry));
}

void idem_destroy(struct idem *idem)
{
	if (idem == NULL)
		return;
	for (uint32_t k = 0; k < 2; k++) {
		free(idem->generation[k].slot);
		free(idem->generation[k].entry);
	}
	free(idem);
}

static uint64_t hash_of(uint64_t channel_hash, uint64_t message_id)
{
	const uint64_t key[2] = {channel_hash, message_id};

	// Seeded: whoever chooses message ids cannot choose where they fall.
	return id_hash(id_view_of(key, sizeof(key)));
}

// Slot of the key, or the free slot where its run ends.
static uint32_t probe(const struct idem *idem, const struct generation *g, uint64_t hash,
	uint64_t channel_hash, uint64_t message_id)
{
	uint32_t at = (uint32_t)hash & idem->mask;

	for (; g->slot[at].epoch == g->epoch; at = (at + 1) & idem->mask) {
		const struct entry *e = &g->entry[g->slot[at].entry];

		if (g->slot[at].hash == hash && e->channel_hash == channel_hash &&
			e->message_id == message_id)
			break;
	}
	return at;
}

static struct idem_record *lookup(
	struct idem *idem, uint64_t hash, uint64_t channel_hash, uint64_t message_id)
{
	for (uint32_t k = 0; k < 2; k++) {
		struct generation *g = &idem->generation[idem->young ^ k];
		uint32_t at;

		if (g->count == 0)
			continue;
		at = probe(idem, g, hash, channel_hash, message_id);
		if (g->slot[at].epoch == g->epoch)
			return &g->entry[g->slot[at].entry].record;
	}
	return NULL;
}

static void rotate(struct idem *idem, uint64_t now_ns)
{
	idem->young ^= 1;
	generation_start(idem, &idem->generation[idem->young], now_ns);
}

// Forgets what is too old. Nothing outlives age_ns: what was made in a generation's life is at most half
// of that old when it turns old, and is forgotten half of that later.
static void age(struct idem *idem, uint64_t now_ns)
{
	const uint64_t start = idem->generation[idem->young].start_ns;
	const uint64_t passed = now_ns > start ? now_ns - start : 0;

	if (passed < idem->age_ns / 2)
		return;
	rotate(idem, now_ns);
	if (passed >= idem->age_ns)
		rotate(idem, now_ns);
}

// Makes the record of a key that was not found; `at`: the free slot of the young generation.
static struct idem_record *insert(struct idem *idem, uint32_t at, uint64_t hash,
	uint64_t channel_hash, uint64_t message_id, uint64_t now_ns)
{
	struct generation *g = &idem->generation[idem->young];
	struct entry *e;
	uint32_t i;

	if (g->count == idem->entries) {
		atomic_store_explicit(&idem->early,
			atomic_load_explicit(&idem->early, memory_order_relaxed) + 1,
			memory_order_relaxed);
		rotate(idem, now_ns);
		g = &idem->generation[idem->young];
		at = probe(idem, g, hash, channel_hash, message_id);
	}
	if (g->free_head != NONE) {
		i = g->free_head;
		g->free_head = g->entry[i].free_next;
	} else {
		i = g->unused++;
	}
	g->count++;
	atomic_store_explicit(&idem->used, g->count, memory_order_relaxed);
	e = &g->entry[i];
	__builtin_prefetch(e + AHEAD, 1);
	__builtin_prefetch((const uint8_t *)(e + AHEAD) + 64, 1);
	e->channel_hash = channel_hash;
	e->message_id = message_id;
	e->record.state = IDEM_NEW;
	g->slot[at] = (struct slot){.hash = hash, .epoch = g->epoch, .entry = i};
	return &e->record;
}

void idem_stats(const struct idem *idem, struct idem_stats *stats)
{
	*stats = (struct idem_stats){
		.used = atomic_load_explicit(&idem->used, memory_order_relaxed),
		.early = atomic_load_explicit(&idem->early, memory_order_relaxed),
	};
}

uint64_t idem_prefetch(const struct idem *idem, uint64_t channel_hash, uint64_t message_id)
{
	const uint64_t hash = hash_of(channel_hash, message_id);
	const uint32_t at = (uint32_t)hash & idem->mask;

	__builtin_prefetch(&idem->generation[0].slot[at], 1);
	__builtin_prefetch(&idem->generation[1].slot[at]);
	return hash;
}

struct idem_record *idem_take(
	struct idem *idem, uint64_t channel_hash, uint64_t message_id, uint64_t now_ns)
{
	return idem_take_hashed(
		idem, hash_of(channel_hash, message_id), channel_hash, message_id, now_ns);
}

struct idem_record *idem_take_hashed(struct idem *idem, uint64_t hash, uint64_t channel_hash,
	uint64_t message_id, uint64_t now_ns)
{
	const struct generation *young, *old;
	uint32_t at, old_at;

	age(idem, now_ns);
	young = &idem->generation[idem->young];
	at = probe(idem, young, hash, channel_hash, message_id);
	if (young->slot[at].epoch == young->epoch)
		return &young->entry[young->slot[at].entry].record;
	old = &idem->generation[idem->young ^ 1];
	old_at = probe(idem, old, hash, channel_hash, message_id);
	if (old->slot[old_at].epoch == old->epoch)
		return &old->entry[old->slot[old_at].entry].record;
	return insert(idem, at, hash, channel_hash, message_id, now_ns);
}

struct idem_record *idem_find(struct idem *idem, uint64_t channel_hash, uint64_t message_id)
{
	return lookup(idem, hash_of(channel_hash, message_id), channel_hash, message_id);
}

// Frees slot `gap`: each later slot of the run moves back into the gap unless its home lies behind it.
static void close_gap(const struct idem *idem, struct generation *g, uint32_t gap)
{
	uint32_t at = gap;

	for (;;) {
		uint32_t home;

		at = (at + 1) & idem->mask;
		if (g->slot[at].epoch != g->epoch)
			break;
		home = (uint32_t)g->slot[at].hash & idem->mask;
		if (((at - home) & idem->mask) < ((at - gap) & idem->mask))
			continue;
		g->slot[gap] = g->slot[at];
		gap = at;
	}
	g->slot[gap].epoch = 0;
}

void idem_forget(struct idem *idem, uint64_t channel_hash, uint64_t message_id)
{
	const uint64_t hash = hash_of(channel_hash, message_id);

	for (uint32_t k = 0; k < 2; k++) {
		struct generation *g = &idem->generation[k];
		const uint32_t at = probe(idem, g, hash, channel_hash, message_id);
		uint32_t i;

		if (g->slot[at].epoch != g->epoch)
			continue;
		i = g->slot[at].entry;
		g->entry[i].free_next = g->free_head;
		g->free_head = i;
		g->count--;
		close_gap(idem, g, at);
		return;
	}
}

uint32_t idem_count(const struct idem *idem)
{
	return idem->generation[0].count + idem->generation[1].count;
}
