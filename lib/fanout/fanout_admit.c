/* SPDX-License-Identifier: BSD-3-Clause */
// Admission of a burst of publishes: one hash and one lookup pass over the burst, then the checks of each
// in the order of the answers: size, channel, repeat, room. Worker.
#include "fanout_pvt.h"

#include <assert.h>

#include "base_time.h"

#define BUSY_MESSAGES_MS 10u  // slots come free as gateways answer
#define BUSY_PARKED_MS 50u  // a tag build takes longer

// What is known of one publish of a burst before its turn comes.
struct found {
	uint64_t hash, idem_hash;
	struct channel *channel;
};

enum admitted {
	ADMITTED_NOT,  // it was answered, its body is free
	ADMITTED_LATER,  // it waits in its channel's queue
	ADMITTED_DONE,  // it was expanded; its body is to be given back
};

// The record a hash most likely means: what channel_find will look at first.
static struct channel *likely_channel(const struct channel_table *table, uint64_t hash)
{
	struct index_cursor cur;
	uint32_t value;

	index_first(&table->index, hash, &cur);
	value = index_next(&table->index, &cur);
	return value != 0 && value <= table->limit ? &table->channel[value] : NULL;
}

// --- looking ahead ------------------------------------------------------------------------------------
// What the lookups, the checks and the expansion of a publish read lies anywhere in memory, each piece named by
// the one before. So each is fetched a few publishes before it is read, and the one it names when it has come.
// Fetching in between, not all at once, keeps the misses of translation and cache under the work.

#define AHEAD_HASH 8u  // publishes between a step and its turn
#define AHEAD_CHANNEL 6u
#define AHEAD_TAG 4u
#define AHEAD_MEMBERS 2u

static void fetch_channel(const struct fanout *f, struct found *found)
{
	found->channel = likely_channel(f->io.channels, found->hash);
	__builtin_prefetch(found->channel);
	// To the compiler prefetches are no effect, and a function without one need not be called.
	__asm__ volatile("" : : : "memory");
}

static void fetch_tag(const struct fanout *f, const struct found *found)
{
	const struct channel *channel = found->channel;
	const struct tag *tag;

	__asm__ volatile("" : : : "memory");
	if (channel == NULL)
		return;
	tag = rcu_read(&channel->tag);
	__builtin_prefetch(channel->key_bytes);
	__builtin_prefetch(&f->channel[channel - f->io.channels->channel], 1);
	__builtin_prefetch(tag, 1);
	__builtin_prefetch((const char *)tag + 64);
}

static void fetch_members(const struct fanout *f, const struct tag *tag)
{
	__asm__ volatile("" : : : "memory");
	for (uint32_t k = 0; k < tag->count; k++)
		presence_prefetch(f->io.presence, TAG_UID(tag->inlined[k]));
}

// The channel that was likely, or the one it is. Returns: its tag, when its members are to be fetched.
static const struct tag *find_channel(
	const struct fanout *f, const struct fanout_publish *p, struct found *found)
{
	const struct channel_key *key = &p->m.channel;
	const struct tag *tag;

	if (found->channel != NULL && unlikely(!channel_has_key(found->channel, key, found->hash)))
		found->channel = channel_find(f->io.channels, key, found->hash);
	tag = found->channel != NULL ? rcu_read(&found->channel->tag) : NULL;
	return tag != NULL && tag->inlined != NULL ? tag : NULL;
}

static void refuse(struct fanout *f, const struct fanout_publish *p, enum wire_status status,
	uint32_t retry_after_ms) WORKER_ONLY;
static void refuse(struct fanout *f, const struct fanout_publish *p, enum wire_status status,
	uint32_t retry_after_ms)
{
	fanout_answer(f, p, status, retry_after_ms);
	fanout_body_free(f, &p->body);
}

uint64_t fanout_deadline(const struct fanout *f, uint32_t deadline_ms)
{
	uint64_t ns = deadline_ms == 0 ? f->limits.deadline_ns : deadline_ms * NS_PER_MS;

	if (ns > f->limits.deadline_max_ns)
		ns = f->limits.deadline_max_ns;
	return f->now_ns + ns;
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
	m->deadline_ns = fanout_deadline(f, p->m.deadline_ms);
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

// Answers what can be answered without a message. Returns: the new record of the idempotence window when it
// is to be admitted, or NULL.
static struct idem_record *check(struct fanout *f, const struct fanout_publish *p,
	const struct found *found, bool complete) WORKER_ONLY;
static struct idem_record *check(
	struct fanout *f, const struct fanout_publish *p, const struct found *found, bool complete)
{
	const struct channel *channel = found->channel;
	struct idem_record *record;

	if (p->m.payload.len > f->limits.payload_bytes) {
		refuse(f, p, WIRE_TOO_LARGE, 0);
		return NULL;
	}
	if (p->m.payload.len > atomic_load_explicit(&f->stat_payload_most, memory_order_relaxed))
		atomic_store_explicit(
			&f->stat_payload_most, p->m.payload.len, memory_order_relaxed);
	if (channel == NULL && !complete) {
		refuse(f, p, WIRE_RETRYABLE, 0);
		return NULL;
	}
	if (channel == NULL ||
		(atomic_load_explicit(&channel->flags, memory_order_acquire) & CHANNEL_F_REMOVED)) {
		refuse(f, p, WIRE_UNKNOWN_CHANNEL, 0);
		return NULL;
	}
	record = idem_take_hashed(
		f->io.idem, found->idem_hash, found->hash, p->m.message_id, f->now_ns);
	if (record->state == IDEM_DONE) {
		fanout_answer_repeat(f, p, record);
		fanout_body_free(f, &p->body);
		return NULL;
	}
	if (record->state == IDEM_PENDING) {  // its outcome follows
		counter_add(f->io.counters, CTR_PUB_PENDING, 1);
		fanout_body_free(f, &p->body);
		return NULL;
	}
	return record;
}

static void forget(struct fanout *f, const struct fanout_publish *p, uint64_t hash,
	uint32_t retry_after_ms) WORKER_ONLY;
static void forget(
	struct fanout *f, const struct fanout_publish *p, uint64_t hash, uint32_t retry_after_ms)
{
	idem_forget(f->io.idem, hash, p->m.message_id);
	refuse(f, p, WIRE_BUSY, retry_after_ms);
}

// `complete`: a channel that was not found does not exist. Returns: what became of it.
static enum admitted admit(struct fanout *f, const struct fanout_publish *p,
	const struct found *found, bool complete) WORKER_ONLY;
static enum admitted admit(
	struct fanout *f, const struct fanout_publish *p, const struct found *found, bool complete)
{
	struct idem_record *const record = check(f, p, found, complete);
	struct channel *const channel = found->channel;
	const uint64_t hash = found->hash;
	struct fanout_queue *queue;
	struct tag *tag = NULL;
	uint32_t slot;
	bool quiet;

	if (record == NULL)
		return ADMITTED_NOT;
	slot = fanout_message_take(f);
	if (slot == FANOUT_NONE) {
		forget(f, p, hash, BUSY_MESSAGES_MS);
		return ADMITTED_NOT;
	}
	quiet = fanout_quiet(f, channel);
	if (quiet) {
		tag = fanout_usable_tag(f, channel);
		if (tag != NULL && fanout_small(f, p, channel, tag, slot, record))
			return ADMITTED_DONE;
	}
	queue = fanout_queue_get(f, channel);
	if (!quiet && queue->parked == 0)
		tag = fanout_usable_tag(f, channel);
	if (tag == NULL &&
		(f->parked >= f->limits.parked || queue->parked >= f->limits.parked_per_channel)) {
		if (queue->parked >= f->limits.parked_per_channel)
			counter_add(f->io.counters, CTR_LIMIT_PARKED_CHANNEL, 1);
		fanout_message_free(f, slot);
		fanout_queue_settle(f, queue);
		forget(f, p, hash, BUSY_PARKED_MS);
		return ADMITTED_NOT;
	}
	record->state = IDEM_PENDING;
	record->message = slot;
	fill(f, slot, p, channel, hash);
	fanout_queue_append(f, queue, slot);
	if (tag == NULL) {
		fanout_park(f, queue, slot);
		fanout_ask(f, queue, channel);
		return ADMITTED_LATER;
	}
	counter_add(f->io.counters, CTR_TAG_HIT, 1);
	fanout_resolve(f, slot, tag, record);
	fanout_run_push(f, queue);
	return ADMITTED_LATER;
}

void fanout_admit(struct fanout *f, struct fanout_publish *burst, uint32_t count, uint64_t now_ns)
{
	const bool complete = atomic_load_explicit(&f->io.channels->complete, memory_order_acquire);
	struct found found[BURST];
	struct dgram *done[BURST];
	uint16_t n = 0;

	assert(count <= BURST);
	f->now_ns = now_ns;
	fanout_close_records(f);
	f->current = FANOUT_NONE;
	for (uint32_t t = 0; t < count + AHEAD_HASH; t++) {
		const uint32_t i = t - AHEAD_HASH;  // wraps while nobody's turn has come
		const uint32_t channel = i + AHEAD_CHANNEL, tag = i + AHEAD_TAG;
		const uint32_t members = i + AHEAD_MEMBERS;

		if (t < count) {
			found[t].hash = channel_key_hash(&burst[t].m.channel);
			index_prefetch(&f->io.channels->index, found[t].hash);
			found[t].idem_hash =
				idem_prefetch(f->io.idem, found[t].hash, burst[t].m.message_id);
		}
		if (channel < count)
			fetch_channel(f, &found[channel]);
		if (tag < count)
			fetch_tag(f, &found[tag]);
		f->ahead =
			members < count ? find_channel(f, &burst[members], &found[members]) : NULL;
		if (i < count && admit(f, &burst[i], &found[i], complete) == ADMITTED_DONE) {
			if (burst[i].body.dgram != NULL)
				done[n++] = burst[i].body.dgram;
			else
				fanout_body_free(f, &burst[i].body);
		}
		if (f->ahead != NULL)
			fetch_members(f, f->ahead);
	}
	if (n != 0)
		f->io.dgram->free(f->io.queue, done, n);
	counter_add(f->io.counters, CTR_PUBLISH, count);
	fanout_small_count(f);
}
