/* SPDX-License-Identifier: BSD-3-Clause */
// Admission of a burst of publishes: one hash and one lookup pass over the burst, then the checks of each
// in the order of the answers: size, channel, repeat, room. Worker.
#include "fanout_pvt.h"

#include <assert.h>

#include "base_time.h"

#define BUSY_MESSAGES_MS 10u  // slots come free as gateways answer
#define BUSY_PARKED_MS 50u  // a tag build takes longer

// The record a hash most likely means: what channel_find will look at first.
static const struct channel *likely_channel(const struct channel_table *table, uint64_t hash)
{
	struct index_cursor cur;
	uint32_t value;

	index_first(&table->index, hash, &cur);
	value = index_next(&table->index, &cur);
	return value != 0 && value <= table->limit ? &table->channel[value] : NULL;
}

// Finds the channels of a burst; what the lookups and the checks after them read is fetched in steps over the
// whole burst, so that it waits for memory once a step and not once a message.
static void find_channels(struct fanout *f, const struct fanout_publish *burst, uint32_t count,
	uint64_t hash[BURST], struct channel *channel[BURST]) WORKER_ONLY;
static void find_channels(struct fanout *f, const struct fanout_publish *burst, uint32_t count,
	uint64_t hash[BURST], struct channel *channel[BURST])
{
	const struct channel_table *table = f->io.channels;
	const struct channel *likely_one[BURST];

	for (uint32_t i = 0; i < count; i++) {
		hash[i] = channel_key_hash(&burst[i].m.channel);
		index_prefetch(&table->index, hash[i]);
		idem_prefetch(f->io.idem, hash[i], burst[i].m.message_id);
	}
	for (uint32_t i = 0; i < count; i++) {
		likely_one[i] = likely_channel(table, hash[i]);
		__builtin_prefetch(likely_one[i]);
	}
	for (uint32_t i = 0; i < count; i++) {
		if (likely_one[i] == NULL)
			continue;
		__builtin_prefetch(likely_one[i]->key_bytes);
		__builtin_prefetch(&f->channel[likely_one[i] - table->channel]);
	}
	for (uint32_t i = 0; i < count; i++) {
		const struct tag *tag;

		channel[i] = channel_find(table, &burst[i].m.channel, hash[i]);
		if (channel[i] == NULL)
			continue;
		tag = rcu_read(&channel[i]->tag);
		__builtin_prefetch(tag);
		__builtin_prefetch((const char *)tag + 64);
	}
}

static void refuse(struct fanout *f, const struct fanout_publish *p, enum wire_status status,
	uint32_t retry_after_ms) WORKER_ONLY;
static void refuse(struct fanout *f, const struct fanout_publish *p, enum wire_status status,
	uint32_t retry_after_ms)
{
	fanout_answer(f, p, status, retry_after_ms);
	fanout_body_free(f, &p->body);
}

static uint64_t deadline_of(const struct fanout *f, uint32_t deadline_ms, uint64_t now_ns)
{
	uint64_t ns = deadline_ms == 0 ? f->limits.deadline_ns : deadline_ms * NS_PER_MS;

	if (ns > f->limits.deadline_max_ns)
		ns = f->limits.deadline_max_ns;
	return now_ns + ns;
}

void fanout_deadlines(struct fanout *f, uint64_t deadline_ns, uint64_t deadline_max_ns)
{
	f->limits.deadline_ns = deadline_ns;
	f->limits.deadline_max_ns = deadline_max_ns;
}

static void fill(struct fanout *f, uint32_t slot, const struct fanout_publish *p,
	const struct channel *channel, uint64_t hash)
{
	struct fanout_message *m = &f->message[slot];
	struct channel_key *key = &f->key[slot];

	// Field by field: clearing the whole slot first costs more than the rest of this.
	m->channel = channel->index;
	m->ack = p->m.ack;
	m->tag = NULL;
	m->chunk = m->at = 0;
	m->members = m->routes = m->open = m->acked = m->ended = 0;
	m->deadline_ns = deadline_of(f, p->m.deadline_ms, f->now_ns);
	m->message_id = p->m.message_id;
	m->seq = 0;
	m->stamp = p->m.stamp;
	m->hash = hash;
	m->request_id = p->m.request_id;
	m->from_uid = p->m.from_uid;
	m->payload = p->m.payload;
	m->sender_gateway = p->m.sender_gateway;
	m->sender_boot = p->m.sender_boot;
	m->sender_slot = p->m.sender_slot;
	m->sender_gen = p->m.sender_gen;
	m->from = p->from;
	m->publisher_boot = p->publisher_boot;
	m->body = p->body;
	m->fence = (struct tag_fence){0};
	key->type = p->m.channel.type;
	key->len = p->m.channel.len;
	memcpy(key->bytes, p->m.channel.bytes, key->len);
}

// `complete`: a channel that was not found does not exist.
// Returns: slot of the message when it was admitted and resolved at once, or FANOUT_NONE.
static uint32_t admit(struct fanout *f, const struct fanout_publish *p, struct channel *channel,
	uint64_t hash, bool complete) WORKER_ONLY;
static uint32_t admit(struct fanout *f, const struct fanout_publish *p, struct channel *channel,
	uint64_t hash, bool complete)
{
	struct fanout_queue *queue;
	struct idem_record *record;
	struct tag *tag;
	uint32_t slot;

	counter_add(f->io.counters, CTR_PUBLISH, 1);
	if (p->m.payload.len > f->limits.payload_bytes) {
		refuse(f, p, WIRE_TOO_LARGE, 0);
		return FANOUT_NONE;
	}
	if (p->m.payload.len > atomic_load_explicit(&f->stat_payload_most, memory_order_relaxed))
		atomic_store_explicit(
			&f->stat_payload_most, p->m.payload.len, memory_order_relaxed);
	if (channel == NULL && !complete) {
		refuse(f, p, WIRE_RETRYABLE, 0);
		return FANOUT_NONE;
	}
	if (channel == NULL ||
		(atomic_load_explicit(&channel->flags, memory_order_acquire) & CHANNEL_F_REMOVED)) {
		refuse(f, p, WIRE_UNKNOWN_CHANNEL, 0);
		return FANOUT_NONE;
	}
	record = idem_take(f->io.idem, hash, p->m.message_id, f->now_ns);
	if (record->state == IDEM_DONE) {
		fanout_answer_repeat(f, p, record);
		fanout_body_free(f, &p->body);
		return FANOUT_NONE;
	}
	if (record->state == IDEM_PENDING) {  // its outcome follows
		counter_add(f->io.counters, CTR_PUB_PENDING, 1);
		fanout_body_free(f, &p->body);
		return FANOUT_NONE;
	}
	slot = fanout_message_take(f);
	if (slot == FANOUT_NONE) {
		idem_forget(f->io.idem, hash, p->m.message_id);
		refuse(f, p, WIRE_BUSY, BUSY_MESSAGES_MS);
		return FANOUT_NONE;
	}
	queue = fanout_queue_get(f, channel);
	tag = queue->parked == 0 ? fanout_usable_tag(f, channel) : NULL;
	if (tag == NULL &&
		(f->parked >= f->limits.parked || queue->parked >= f->limits.parked_per_channel)) {
		if (queue->parked >= f->limits.parked_per_channel)
			counter_add(f->io.counters, CTR_LIMIT_PARKED_CHANNEL, 1);
		fanout_message_free(f, slot);
		fanout_queue_settle(f, queue);
		idem_forget(f->io.idem, hash, p->m.message_id);
		refuse(f, p, WIRE_BUSY, BUSY_PARKED_MS);
		return FANOUT_NONE;
	}
	record->state = IDEM_PENDING;
	record->message = slot;
	fill(f, slot, p, channel, hash);
	fanout_queue_append(f, queue, slot);
	if (tag == NULL) {
		fanout_park(f, queue, slot);
		fanout_ask(f, queue, channel);
		return FANOUT_NONE;
	}
	counter_add(f->io.counters, CTR_TAG_HIT, 1);
	fanout_resolve(f, slot, tag, record);
	fanout_run_push(f, queue);
	return slot;
}

// Small channels live by this: the members and then the route words of a whole burst are on their way
// before the first of them is expanded.
static void prefetch_members(const struct fanout *f, const uint32_t *slot, uint32_t count)
{
	// To the compiler prefetches are no effect, and a function without one need not be called.
	__asm__ volatile("" : : : "memory");
	for (uint32_t i = 0; i < count; i++) {
		const struct tag *tag = slot[i] == FANOUT_NONE ? NULL : f->message[slot[i]].tag;

		if (tag != NULL && tag->chunks != 0)
			__builtin_prefetch(tag->chunk[0]);
	}
	for (uint32_t i = 0; i < count; i++) {
		const struct tag *tag = slot[i] == FANOUT_NONE ? NULL : f->message[slot[i]].tag;
		uint32_t members;

		if (tag == NULL || tag->chunks == 0)
			continue;
		members = tag->chunk[0]->count < FANOUT_AHEAD ? tag->chunk[0]->count : FANOUT_AHEAD;
		for (uint32_t k = 0; k < members; k++)
			presence_prefetch(f->io.presence, TAG_UID(tag->chunk[0]->uid[k]));
	}
}

void fanout_admit(struct fanout *f, struct fanout_publish *burst, uint32_t count, uint64_t now_ns)
{
	const bool complete = atomic_load_explicit(&f->io.channels->complete, memory_order_acquire);
	struct channel *channel[BURST];
	uint64_t hash[BURST];
	uint32_t slot[BURST];

	assert(count <= BURST);
	f->now_ns = now_ns;
	find_channels(f, burst, count, hash, channel);
	for (uint32_t i = 0; i < count; i++)
		slot[i] = admit(f, &burst[i], channel[i], hash[i], complete);
	prefetch_members(f, slot, count);
}
