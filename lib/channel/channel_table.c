/* SPDX-License-Identifier: BSD-3-Clause */
// The channel table. Records are one cache line each, reserved at creation; names are copied on the side.
// The control core writes; workers look up under RCU. A record taken out is given out again in turn
// (first out, first in), after a grace period, with `use` grown.
#include "channel_table.h"

#include "base_memory.h"

#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(struct channel) == 64, "a record is one cache line");

#define NAME_BYTES 32u  // of a channel, as the estimate of memory sees it

enum record_state { RECORD_FREE, RECORD_USED, RECORD_LEAVING };

// What only the control core knows of the table.
struct table_control {
	struct rcu_retire *retire;
	uint32_t top;  // records at and above were never used
	uint32_t free_head, free_tail;
	uint32_t *next;  // of the free list, by index
	uint8_t *state;  // enum record_state, by index
};

static bool control_create(struct channel_table *table, struct rcu_retire *retire)
{
	struct table_control *c = calloc(1, sizeof(*c));

	table->control = c;
	if (c == NULL)
		return false;
	c->retire = retire;
	c->top = 1;
	c->next = calloc((size_t)table->limit + 1, sizeof(*c->next));
	c->state = calloc((size_t)table->limit + 1, sizeof(*c->state));
	return c->next != NULL && c->state != NULL;
}

struct channel_table *channel_table_create(
	uint32_t limit, uint32_t workers, struct rcu_retire *retire)
{
	struct channel_table *table;

	if (limit == 0 || limit > 1u << 30 || workers == 0 || workers > WORKERS_MAX)
		return NULL;
	table = calloc(1, sizeof(*table));
	if (table == NULL)
		return NULL;
	table->limit = limit;
	table->workers = (uint16_t)workers;
	table->channel = memory_lines((size_t)limit + 1, sizeof(*table->channel));
	if (table->channel == NULL || !control_create(table, retire) ||
		index_init(&table->index, limit) != 0) {
		channel_table_destroy(table);
		return NULL;
	}
	return table;
}

uint64_t channel_table_memory(uint32_t limit)
{
	const uint64_t one =
		sizeof(struct channel) + sizeof(uint32_t) + sizeof(uint8_t) + NAME_BYTES;

	return ((uint64_t)limit + 1) * one + index_memory(limit);
}

void channel_table_destroy(struct channel_table *table)
{
	struct table_control *c;

	if (table == NULL)
		return;
	c = table->control;
	if (c != NULL) {
		rcu_reclaim(c->retire);
		for (uint32_t i = 1; i < c->top; i++)
			free((void *)(uintptr_t)table->channel[i].key_bytes);
		free(c->next);
		free(c->state);
		free(c);
	}
	index_fini(&table->index);
	memory_lines_free(table->channel);
	free(table);
}

static uint32_t record_take(struct channel_table *table)
{
	struct table_control *c = table->control;
	uint32_t i = c->free_head;

	if (i != 0)
		c->free_head = c->next[i];
	else if (c->top <= table->limit)
		i = c->top++;
	return i;
}

static void record_give(struct channel_table *table, uint32_t i)
{
	struct table_control *c = table->control;

	c->state[i] = RECORD_FREE;
	c->next[i] = 0;
	if (c->free_head == 0)
		c->free_head = i;
	else
		c->next[c->free_tail] = i;
	c->free_tail = i;
}

struct channel *channel_table_get(struct channel_table *table, const struct channel_key *key)
{
	const uint64_t hash = channel_key_hash(key);
	struct table_control *c = table->control;
	struct channel *channel = channel_find(table, key, hash);
	uint8_t *bytes;
	uint32_t i;

	if (channel != NULL)
		return channel;
	i = record_take(table);
	if (i == 0)
		return NULL;
	channel = &table->channel[i];
	bytes = malloc(key->len);
	if (bytes == NULL) {
		record_give(table, i);
		return NULL;
	}
	memcpy(bytes, key->bytes, key->len);
	atomic_store_explicit(&channel->smv, 0, memory_order_relaxed);
	atomic_store_explicit(&channel->tag, NULL, memory_order_relaxed);
	atomic_store_explicit(&channel->flags, 0, memory_order_relaxed);
	atomic_fetch_add_explicit(&channel->use, 1, memory_order_relaxed);
	channel->hash = hash;
	channel->worker = channel_key_worker(key, table->workers);
	channel->info_flags = 0;
	channel->key_len = key->len;
	channel->key_type = key->type;
	channel->index = i;
	channel->members = 0;
	channel->key_bytes = bytes;
	channel->control = NULL;
	if (index_insert(&table->index, hash, i) != 0) {
		free(bytes);
		channel->key_bytes = NULL;
		record_give(table, i);
		return NULL;
	}
	c->state[i] = RECORD_USED;
	return channel;
}

static void record_free(void *owner, void *ptr)
{
	struct channel *channel = ptr;

	free((void *)(uintptr_t)channel->key_bytes);
	channel->key_bytes = NULL;
	record_give(owner, channel->index);
}

void channel_table_remove(struct channel_table *table, struct channel *channel)
{
	struct table_control *c = table->control;

	assert(c->state[channel->index] == RECORD_USED);
	assert(atomic_load_explicit(&channel->tag, memory_order_relaxed) == NULL);
	index_remove(&table->index, channel->hash, channel->index);
	c->state[channel->index] = RECORD_LEAVING;
	rcu_retire(c->retire, record_free, table, channel);
}

uint32_t channel_table_count(const struct channel_table *table)
{
	return table->index.count;
}

bool channel_table_has_room(const struct channel_table *table)
{
	const struct table_control *c = table->control;

	return c->free_head != 0 || c->top <= table->limit;
}

struct channel *channel_table_next(struct channel_table *table, uint32_t *at)
{
	const struct table_control *c = table->control;

	while (++*at < c->top)
		if (c->state[*at] == RECORD_USED)
			return &table->channel[*at];
	return NULL;
}
