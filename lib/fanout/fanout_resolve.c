/* SPDX-License-Identifier: BSD-3-Clause */
// From a channel to the tag a message is delivered by: usable or parked, in admission order. Worker; tags
// are read under RCU and pinned for what outlives the turn.
#include "fanout_pvt.h"

#define ASK_REFUSED_NS UINT64_C(200000)  // first wait after a refusal
#define ASK_REFUSED_MAX_NS UINT64_C(20000000)
#define ASK_AGAIN_NS UINT64_C(250000000)  // a request that led to nothing is repeated
#define POLL_MAX 64u  // parked channels looked at in one turn

// The version is read before the tag: an edit stores the version first, so that whoever sees the new
// version and the old tag waits. Pairs with the release stores of the control core.
static struct tag *current_tag(struct channel *channel, bool *stale)
{
	const uint64_t smv = atomic_load_explicit(&channel->smv, memory_order_acquire);
	struct tag *tag = rcu_read(&channel->tag);

	*stale = tag != NULL && tag->smv != smv;
	if (*stale && fault_take(FAULT_STALE))
		*stale = false;
	return *stale ? NULL : tag;
}

static bool uncertain(const struct channel *channel)
{
	return atomic_load_explicit(&channel->flags, memory_order_acquire) & CHANNEL_F_UNCERTAIN;
}

struct tag *fanout_usable_tag(struct fanout *f, struct channel *channel)
{
	bool stale;
	struct tag *tag = current_tag(channel, &stale);

	if (tag == NULL) {
		counter_add(f->io.counters, stale ? CTR_TAG_STALE : CTR_TAG_MISSING, 1);
		return NULL;
	}
	return uncertain(channel) ? NULL : tag;
}

void fanout_resolve(struct fanout *f, uint32_t slot, struct tag *tag, struct idem_record *record)
{
	struct fanout_message *m = &f->message[slot];

	tag_pin(tag);
	atomic_store_explicit(&tag->used_ns, f->now_ns, memory_order_relaxed);
	m->tag = tag;
	m->fence = tag->fence;
	m->members = tag->count;
	m->seq = fanout_seq(f, m->channel);
	m->state = FANOUT_READY;
	counter_add(f->io.counters, CTR_MEMBERS, tag->count);
	if (m->ack != WIRE_ACK_CLIENT)
		fanout_outcome(f, slot, WIRE_OK, record);
}

// --- parking ------------------------------------------------------------------------------------------

static void park_push(struct fanout *f, struct fanout_queue *queue)
{
	const uint32_t index = (uint32_t)(queue - f->queue);

	if (queue->parking)
		return;
	queue->parking = true;
	queue->park_next = FANOUT_NONE;
	if (f->park.head == FANOUT_NONE)
		f->park.head = index;
	else
		f->queue[f->park.tail].park_next = index;
	f->park.tail = index;
	f->park.count++;
}

static struct fanout_queue *park_pop(struct fanout *f)
{
	struct fanout_queue *queue = &f->queue[f->park.head];

	f->park.head = queue->park_next;
	f->park.count--;
	queue->parking = false;
	return queue;
}

void fanout_park(struct fanout *f, struct fanout_queue *queue, uint32_t slot)
{
	struct fanout_message *m = &f->message[slot];

	m->state = FANOUT_PARKED;
	if (queue->parked++ == 0) {
		queue->parked_first = slot;
		queue->expire_ns = m->deadline_ns;
		queue->ask_ns = 0;
		queue->ask_wait_ns = ASK_REFUSED_NS;
		queue->asked_smv = 0;
	}
	if (queue->parked >
		atomic_load_explicit(&f->stat_parked_channel_most, memory_order_relaxed))
		atomic_store_explicit(
			&f->stat_parked_channel_most, queue->parked, memory_order_relaxed);
	if (m->deadline_ns < queue->expire_ns)
		queue->expire_ns = m->deadline_ns;
	f->parked++;
	counter_add(f->io.counters, CTR_PARKED, 1);
	park_push(f, queue);
}

void fanout_ask(struct fanout *f, struct fanout_queue *queue, struct channel *channel)
{
	bool stale;
	const uint64_t smv = atomic_load_explicit(&channel->smv, memory_order_relaxed);

	// A version that moved on is a new need; so is a request nothing came of.
	if (f->now_ns < queue->ask_ns && smv == queue->asked_smv)
		return;
	if (current_tag(channel, &stale) != NULL)
		return;  // there is one: its channel waits for something else
	if (f->io.want_tag(f->io.ctx, channel)) {
		queue->asked_smv = smv;
		queue->ask_ns = f->now_ns + ASK_AGAIN_NS;
		queue->ask_wait_ns = ASK_REFUSED_NS;
		return;
	}
	queue->asked_smv = smv;
	queue->ask_ns = f->now_ns + queue->ask_wait_ns;
	if (queue->ask_wait_ns < ASK_REFUSED_MAX_NS)
		queue->ask_wait_ns *= 2;
}

// Takes one parked message, whose predecessor in the queue is `before`, out and ends it.
static void end_parked(struct fanout *f, struct fanout_queue *queue, uint32_t before, uint32_t slot,
	enum wire_status status) WORKER_ONLY;
static void end_parked(struct fanout *f, struct fanout_queue *queue, uint32_t before, uint32_t slot,
	enum wire_status status)
{
	const struct fanout_message *m = &f->message[slot];

	if (before == FANOUT_NONE)
		queue->head = m->next;
	else
		f->message[before].next = m->next;
	if (queue->tail == slot)
		queue->tail = before;
	if (queue->parked_first == slot)
		queue->parked_first = m->next;
	queue->parked--;
	f->parked--;
	fanout_outcome(f, slot, status, NULL);
	fanout_body_free(f, &m->body);
	fanout_message_free(f, slot);
}

// Ends the parked messages with a deadline before `before_ns`. Returns: number.
static uint32_t sweep(struct fanout *f, struct fanout_queue *queue, uint64_t before_ns,
	enum wire_status status) WORKER_ONLY;
static uint32_t sweep(
	struct fanout *f, struct fanout_queue *queue, uint64_t before_ns, enum wire_status status)
{
	uint32_t before = FANOUT_NONE, slot = queue->head, ended = 0;

	queue->expire_ns = UINT64_MAX;
	while (slot != FANOUT_NONE) {
		const struct fanout_message *m = &f->message[slot];
		const uint32_t next = m->next;

		if (m->state == FANOUT_PARKED && m->deadline_ns <= before_ns) {
			end_parked(f, queue, before, slot, status);
			ended++;
		} else {
			if (m->state == FANOUT_PARKED && m->deadline_ns < queue->expire_ns)
				queue->expire_ns = m->deadline_ns;
			before = slot;
		}
		slot = next;
	}
	return ended;
}

void fanout_unpark_all(struct fanout *f, struct fanout_queue *queue, enum wire_status status)
{
	if (queue->parked != 0)
		sweep(f, queue, UINT64_MAX, status);
}

void fanout_channel_gone(struct fanout *f, uint32_t channel, uint32_t use, uint64_t now_ns)
{
	f->now_ns = now_ns;
	if (channel > f->io.channels->limit || f->channel[channel].queue == FANOUT_NONE ||
		f->channel[channel].use != use)
		return;
	fanout_unpark_all(f, &f->queue[f->channel[channel].queue], WIRE_UNKNOWN_CHANNEL);
}

// Looks at one parked channel. Returns: messages that went on or ended.
static uint32_t look_at_parked(struct fanout *f, struct fanout_queue *queue) WORKER_ONLY;
static uint32_t look_at_parked(struct fanout *f, struct fanout_queue *queue)
{
	struct channel *channel = &f->io.channels->channel[queue->channel];
	uint32_t work = 0;
	struct tag *tag;
	bool stale;

	if (queue->use != atomic_load_explicit(&channel->use, memory_order_acquire) ||
		(atomic_load_explicit(&channel->flags, memory_order_acquire) & CHANNEL_F_REMOVED))
		return sweep(f, queue, UINT64_MAX, WIRE_UNKNOWN_CHANNEL);
	if (f->now_ns >= queue->expire_ns)
		work = sweep(f, queue, f->now_ns, WIRE_EXPIRED);
	tag = current_tag(channel, &stale);
	if (tag == NULL || uncertain(channel)) {
		if (queue->parked != 0)
			fanout_ask(f, queue, channel);
		return work;
	}
	work += queue->parked;
	f->parked -= queue->parked;
	queue->parked = 0;
	for (uint32_t s = queue->parked_first; s != FANOUT_NONE; s = f->message[s].next)
		fanout_resolve(f, s, tag, NULL);
	queue->parked_first = FANOUT_NONE;
	return work;
}

uint32_t fanout_poll_parked(struct fanout *f)
{
	uint32_t n = f->park.count < POLL_MAX ? f->park.count : POLL_MAX, work = 0;

	while (n-- != 0) {
		struct fanout_queue *queue = park_pop(f);

		work += look_at_parked(f, queue);
		if (queue->parked != 0)
			park_push(f, queue);
		if (queue->head != FANOUT_NONE && f->message[queue->head].state == FANOUT_READY)
			fanout_run_push(f, queue);
		fanout_queue_settle(f, queue);
	}
	return work;
}
