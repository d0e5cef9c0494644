/* SPDX-License-Identifier: BSD-3-Clause */
// Receipts of clients: collected during a process call, sent as one bitmap for each push. Runs on the
// client's thread. RECEIPT is not answered: a lost one makes the node push the route again, and the
// repeat gives the receipt again.
#include <errno.h>
#include <stdlib.h>

#include "client_pvt.h"

static int by_push(const void *a, const void *b)
{
	const struct client_receipt *x = a, *y = b;

	if (x->worker != y->worker)
		return (int)x->worker - (int)y->worker;
	if (x->push_id != y->push_id)
		return x->push_id < y->push_id ? -1 : 1;
	if (x->push_gen != y->push_gen)
		return x->push_gen < y->push_gen ? -1 : 1;
	return (int)x->position - (int)y->position;
}

static bool same_push(const struct client_receipt *a, const struct client_receipt *b)
{
	return a->worker == b->worker && a->push_id == b->push_id && a->push_gen == b->push_gen;
}

// Sends the receipts of one push, `count` of them in order of position.
static void send_push(struct client_core *core, const struct client_receipt *r, uint32_t count)
{
	const uint16_t first = r[0].position & (uint16_t)~7u;
	const uint32_t bytes = ((uint32_t)r[count - 1].position - first) / 8 + 1;
	struct wire_buf out = client_send_begin(core, r->worker);
	struct wire_receipt m = {.push_id = r->push_id, .push_gen = r->push_gen, .first = first};
	uint8_t bits[FRAME_ROUTES_MAX / 8] = {0};

	for (uint32_t i = 0; i < count; i++) {
		const uint32_t bit = (uint32_t)r[i].position - first;

		bits[bit / 8] |= (uint8_t)(1u << bit % 8);
	}
	m.bits = (struct wire_view){.p = bits, .len = bytes};
	if (wire_put_receipt(&out, &m))
		client_send(core, r->worker, WIRE_RECEIPT, out.len);
}

void client_receipts_flush(struct client_core *core)
{
	struct client_receipts *rs = core->receipts;
	uint32_t start = 0;

	if (rs->count == 0)
		return;
	qsort(rs->batch, rs->count, sizeof(rs->batch[0]), by_push);
	for (uint32_t i = 1; i <= rs->count; i++) {
		if (i < rs->count && same_push(&rs->batch[i], &rs->batch[start]))
			continue;
		send_push(core, &rs->batch[start], i - start);
		start = i;
	}
	rs->count = 0;
}

void client_receipt_add(struct client_core *core, const struct client_await *await)
{
	struct client_receipts *rs = core->receipts;

	if (rs->count == CLIENT_RECEIPT_BATCH)
		client_receipts_flush(core);
	rs->batch[rs->count++] = (struct client_receipt){
		.push_id = await->push_id,
		.push_gen = await->push_gen,
		.position = await->position,
		.worker = await->worker,
	};
}

int client_core_receipt(struct client_core *core, uint32_t session, struct tagcast_id channel,
	unsigned channel_type, uint64_t message_id)
{
	const struct client_session *s;
	struct client_await *await;
	struct channel_key key;
	uint32_t slot;

	if (core->gateway == NULL)
		return -EPERM;
	s = client_session_of(core, session, &slot);
	if (s == NULL || channel.bytes == NULL || channel.len > ID_LEN_MAX || channel_type > 255 ||
		channel_key_set(&key, (uint8_t)channel_type, channel.bytes, (uint8_t)channel.len) !=
			0)
		return -EINVAL;
	await = client_awaiting_find(core->awaiting,
		client_delivery_print(channel_key_hash(&key), message_id, slot, s->gen));
	if (await == NULL)
		return -ENOENT;
	await->given = true;
	client_receipt_add(core, await);
	return 0;
}
