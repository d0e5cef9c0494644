/* SPDX-License-Identifier: BSD-3-Clause */
// What the publisher is told, exactly once for every admitted message, and the end of a message. Worker.
#include "fanout_pvt.h"

#include <assert.h>

static enum counter counter_of(enum wire_status status)
{
	switch (status) {
	case WIRE_OK:
		return CTR_PUB_OK;
	case WIRE_BUSY:
		return CTR_PUB_BUSY;
	case WIRE_TOO_LARGE:
		return CTR_PUB_TOO_LARGE;
	case WIRE_UNKNOWN_CHANNEL:
		return CTR_PUB_UNKNOWN_CHANNEL;
	case WIRE_EXPIRED:
		return CTR_PUB_EXPIRED;
	case WIRE_INCOMPLETE:
		return CTR_PUB_INCOMPLETE;
	default:
		return CTR_PUB_RETRYABLE;
	}
}

void fanout_answer(struct fanout *f, const struct fanout_publish *p, enum wire_status status,
	uint32_t retry_after_ms)
{
	const struct wire_publish_ack ack = {
		.request_id = p->m.request_id,
		.message_id = p->m.message_id,
		.status = (uint16_t)status,
		.retry_after_ms = retry_after_ms,
	};

	counter_add(f->io.counters, counter_of(status), 1);
	f->io.outcome(f->io.ctx, p->from, p->publisher_boot, &ack);
}

static void answer_recorded(struct fanout *f, struct net_addr to, uint64_t publisher_boot,
	uint64_t request_id, uint64_t message_id, const struct idem_record *record)
{
	struct wire_publish_ack ack = {
		.request_id = request_id,
		.message_id = message_id,
		.seq = record->seq,
		.status = record->status,
		.duplicate = 1,
		.tag_version = record->tag_version,
		.members = record->members,
		.routes = record->routes,
		.acked = record->acked,
		.ended = record->ended,
	};

	memcpy(ack.tag_key, record->tag_key, sizeof(ack.tag_key));
	counter_add(f->io.counters, CTR_PUB_DUPLICATE, 1);
	f->io.outcome(f->io.ctx, to, publisher_boot, &ack);
}

void fanout_answer_repeat(
	struct fanout *f, const struct fanout_publish *p, const struct idem_record *record)
{
	answer_recorded(f, p->from, p->publisher_boot, p->m.request_id, p->m.message_id, record);
}

void fanout_repeat(struct fanout *f, const struct fanout_publish *p)
{
	const struct idem_record *record =
		idem_find(f->io.idem, channel_key_hash(&p->m.channel), p->m.message_id);

	if (record == NULL || record->state == IDEM_NEW)
		return;  // refused or forgotten: it was answered then
	counter_add(f->io.counters, CTR_PUBLISH, 1);
	if (record->state == IDEM_DONE)
		fanout_answer_repeat(f, p, record);
	else
		counter_add(f->io.counters, CTR_PUB_PENDING, 1);
}

static void complete(struct fanout *f, const struct fanout_message *m, enum wire_status status,
	struct idem_record *record) WORKER_ONLY;
static void complete(struct fanout *f, const struct fanout_message *m, enum wire_status status,
	struct idem_record *record)
{
	if (status != WIRE_OK && status != WIRE_INCOMPLETE) {
		idem_forget(f->io.idem, m->hash, m->message_id);
		return;
	}
	if (record == NULL)
		record = idem_find(f->io.idem, m->hash, m->message_id);
	if (record == NULL)
		return;  // aged out meanwhile
	record->state = IDEM_DONE;
	record->status = (uint16_t)status;
	record->seq = m->seq;
	memcpy(record->tag_key, m->fence.key, sizeof(record->tag_key));
	record->tag_version = m->fence.version;
	record->members = m->members;
	record->routes = m->routes;
	record->acked = m->acked;
	record->ended = m->ended;
}

void fanout_outcome(
	struct fanout *f, uint32_t slot, enum wire_status status, struct idem_record *record)
{
	const struct fanout_message *m = &f->message[slot];
	struct wire_publish_ack ack = {
		.request_id = m->request_id,
		.message_id = m->message_id,
		.seq = m->seq,
		.status = (uint16_t)status,
		.tag_version = m->fence.version,
		.members = m->members,
		.routes = m->routes,
		.acked = m->acked,
		.ended = m->ended,
	};

	memcpy(ack.tag_key, m->fence.key, sizeof(ack.tag_key));
	counter_add(f->io.counters, counter_of(status), 1);
	complete(f, m, status, record);
	f->io.outcome(f->io.ctx, m->from, m->publisher_boot, &ack);
}

void fanout_accepted(struct fanout *f, const struct fanout_publish *p, const struct tag *tag,
	uint64_t seq, struct idem_record *record)
{
	struct wire_publish_ack ack = {
		.request_id = p->m.request_id,
		.message_id = p->m.message_id,
		.seq = seq,
		.status = WIRE_OK,
		.tag_version = tag->fence.version,
		.members = tag->count,
	};

	memcpy(ack.tag_key, tag->fence.key, sizeof(ack.tag_key));
	record->state = IDEM_DONE;
	record->status = WIRE_OK;
	record->seq = seq;
	memcpy(record->tag_key, tag->fence.key, sizeof(record->tag_key));
	record->tag_version = tag->fence.version;
	record->members = tag->count;
	record->routes = record->acked = record->ended = 0;
	f->io.outcome(f->io.ctx, p->from, p->publisher_boot, &ack);
}

void fanout_finish(struct fanout *f, uint32_t slot)
{
	const struct fanout_message *m = &f->message[slot];

	if (m->ack == WIRE_ACK_CLIENT)
		fanout_outcome(f, slot, m->ended == 0 ? WIRE_OK : WIRE_INCOMPLETE, NULL);
	fanout_message_free(f, slot);
}

void fanout_on_end(void *fanout, uint32_t message, enum counter how, uint32_t count)
{
	struct fanout *f = fanout;
	struct fanout_message *m = &f->message[message];

	assert(message < f->limits.messages && m->state != FANOUT_FREE && m->open >= count);
	m->open -= count;
	if (how == CTR_ROUTE_ACKED)
		m->acked += count;
	else
		m->ended += count;
	if (m->open == 0 && m->state == FANOUT_EXPANDED)
		fanout_finish(f, message);
}

// Only messages that wait for clients are told how their routes ended, and theirs end one by one.
void fanout_on_spans(
	void *fanout, const struct delivery_span *span, uint32_t spans, enum counter how)
{
	struct fanout *const f = fanout;
	struct fanout_message *const message = f->message;

	for (const struct delivery_span *const end = span + spans; span < end; span++) {
		struct fanout_message *const m = &message[span->message];
		const uint32_t open = m->open - span->count;

		assert(m->state != FANOUT_FREE && m->open >= span->count);
		if (unlikely(m->ack == WIRE_ACK_CLIENT)) {
			fanout_on_end(fanout, span->message, how, span->count);
			continue;
		}
		m->open = open;
		if (open == 0 && m->state == FANOUT_EXPANDED)
			fanout_message_free(f, span->message);
	}
}
