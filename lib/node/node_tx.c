/* SPDX-License-Identifier: BSD-3-Clause */
// What a worker gives away besides pushes: answers to clients, datagrams to other workers, requests to the
// control core. Worker.
#include "node_pvt.h"

#define SPARES 16u  // buffers taken at once

// --- the port as the worker's own objects see it ------------------------------------------------------
// What they send is counted and collected to bursts; `queue` is the worker.

static void port_tx(void *queue, struct dgram **d, uint16_t n) WORKER_ONLY;
static void port_tx(void *queue, struct dgram **d, uint16_t n)
{
	struct node_worker *w = queue;
	uint32_t bytes = 0;

	for (uint16_t i = 0; i < n; i++) {
		bytes += d[i]->len;
		w->out[w->out_count++] = d[i];
		if (w->out_count == BURST)
			node_tx_flush(w);
	}
	counter_add(w->counters, CTR_TX, n);
	counter_add(w->counters, CTR_TX_BYTES, bytes);
}

static uint16_t port_rx(void *queue, struct dgram **d, uint16_t n)
{
	struct node_worker *w = queue;

	return w->node->params.dgram->rx(w->queue, d, n);
}

static uint16_t port_alloc(void *queue, struct dgram **d, uint16_t n)
{
	struct node_worker *w = queue;

	return w->node->params.dgram->alloc(w->queue, d, n);
}

static void port_free(void *queue, struct dgram **d, uint16_t n)
{
	struct node_worker *w = queue;

	w->node->params.dgram->free(w->queue, d, n);
}

static uint32_t port_available(void *queue)
{
	struct node_worker *w = queue;

	return w->node->params.dgram->available(w->queue);
}

void node_tx_ops(const struct dgram_ops *port, struct dgram_ops *ops)
{
	*ops = (struct dgram_ops){
		.rx = port_rx,
		.tx = port_tx,
		.alloc = port_alloc,
		.free = port_free,
		.hold = port->hold,
		.exclusive = port->exclusive,
		.available = port_available,
	};
}

// --- answers, hand-off, requests ----------------------------------------------------------------------

struct dgram *node_tx_take(struct node_worker *w)
{
	const struct dgram_ops *ops = w->node->params.dgram;

	if (w->spares == 0) {
		w->spares = ops->alloc(w->queue, w->spare, SPARES);
		if (w->spares == 0)
			w->spares = ops->alloc(w->queue, w->spare, 1);
	}
	if (w->spares == 0) {
		counter_add(w->counters, CTR_DROP_NO_BUFFER, 1);
		return NULL;
	}
	return w->spare[--w->spares];
}

static void send(struct node_worker *w, struct dgram *d, struct net_addr to, uint8_t type,
	uint64_t receiver_boot, uint32_t body) WORKER_ONLY;
static void send(struct node_worker *w, struct dgram *d, struct net_addr to, uint8_t type,
	uint64_t receiver_boot, uint32_t body)
{
	d->len = wire_lane_seal(&w->lane, type, d->data, body, receiver_boot);
	d->peer = to;
	d->local_port = w->port;
	port_tx(w, &d, 1);
}

void node_tx(struct node_worker *w, struct net_addr to, uint8_t type, uint64_t receiver_boot,
	const uint8_t *body, uint32_t bytes)
{
	struct dgram *d = node_tx_take(w);

	if (d == NULL)
		return;
	memcpy(d->data + WIRE_HEADER_BYTES, body, bytes);
	send(w, d, to, type, receiver_boot, bytes);
}

void node_tx_outcome(void *worker, struct net_addr to, uint64_t publisher_boot,
	const struct wire_publish_ack *ack)
{
	struct node_worker *w = worker;
	struct dgram *d = node_tx_take(w);
	struct wire_buf out;

	if (d == NULL)
		return;
	out = (struct wire_buf){
		.p = d->data + WIRE_HEADER_BYTES,
		.cap = wire_lane_body_room(&w->lane, d->room),
		.ok = true,
	};
	wire_put_publish_ack(&out, ack);
	send(w, d, to, WIRE_PUBLISH_ACK, publisher_boot, out.len);
}

void node_tx_flush(struct node_worker *w)
{
	if (w->out_count != 0)
		w->node->params.dgram->tx(w->queue, w->out, (uint16_t)w->out_count);
	w->out_count = 0;
}

void node_tx_hand_over(struct node_worker *w, uint32_t to, struct dgram *d, bool checked)
{
	const struct node_handoff item = {.dgram = d, .checked = checked};

	if (!wq_spsc_push(&w->node->worker[to].from_worker[w->index], &item)) {
		counter_add(w->counters, CTR_DROP_HANDOFF_FULL, 1);
		w->node->params.dgram->free(w->queue, &d, 1);
		return;
	}
	counter_add(w->counters, CTR_HANDOFF, 1);
	w->wake |= 1u << to;
}

void node_tx_request(struct node_worker *w, struct net_addr from, const struct wire_header *header,
	struct wire_view body)
{
	struct node_request *request;

	if (body.len > w->to_control.item_bytes - sizeof(*request)) {
		counter_add(w->counters, CTR_DROP_LENGTH, 1);
		return;
	}
	request = wq_spsc_reserve(&w->to_control);
	if (request == NULL) {
		counter_add(w->counters, CTR_DROP_CONTROL_FULL, 1);
		return;
	}
	*request = (struct node_request){
		.kind = NODE_REQ_DATAGRAM,
		.worker = (uint8_t)w->index,
		.bytes = (uint16_t)body.len,
		.from = from,
		.header = *header,
	};
	if (body.len != 0)
		memcpy(request->body, body.p, body.len);
	wq_spsc_commit(&w->to_control);
	w->wake |= 1u << WORKERS_MAX;
}

bool node_tx_want_tag(void *worker, struct channel *channel)
{
	struct node_worker *w = worker;
	struct node_request *request = wq_spsc_reserve(&w->to_control);

	if (request == NULL)
		return false;
	*request = (struct node_request){
		.kind = NODE_REQ_TAG,
		.worker = (uint8_t)w->index,
		.channel = channel->index,
		.use = atomic_load_explicit(&channel->use, memory_order_relaxed),
	};
	wq_spsc_commit(&w->to_control);
	w->wake |= 1u << WORKERS_MAX;
	return true;
}

void node_tx_wake(struct node_worker *w)
{
	const struct node_params *params = &w->node->params;

	for (uint32_t who = 0; w->wake != 0; who++) {
		const uint32_t bit = 1u << who;

		if (!(w->wake & bit))
			continue;
		w->wake &= ~bit;
		if (params->wake != NULL)
			params->wake(params->wake_ctx, who);
	}
}
