/* SPDX-License-Identifier: BSD-3-Clause */
// From a received datagram to who handles it: steering by port, the checks that every datagram passes, and
// the dispatch by type. Each datagram is handed on or ends in one drop counter. Worker.
//
// Nothing a stranger sends is answered with more bytes than it had, and only PUBLISH is answered here
// (NEED_HELLO); HELLO and the like go to the control core.
#include "node_pvt.h"

#define RX_BURSTS 4u  // of a turn, while they are full
#define HANDED_MAX 64u  // datagrams taken from each other worker in a turn
#define REPLIES_MAX 64u

static void drop(struct node_worker *w, struct dgram *d, int why) WORKER_ONLY;
static void drop(struct node_worker *w, struct dgram *d, int why)
{
	counter_add(w->counters, (enum counter)why, 1);
	w->node->params.dgram->free(w->queue, &d, 1);
}

static void done(struct node_worker *w, struct dgram *d) WORKER_ONLY;
static void done(struct node_worker *w, struct dgram *d)
{
	w->node->params.dgram->free(w->queue, &d, 1);
}

static bool from_client(uint8_t type)
{
	switch (type) {
	case WIRE_HELLO:
	case WIRE_HEARTBEAT:
	case WIRE_ANNOUNCE:
	case WIRE_BYE:
	case WIRE_PUBLISH:
	case WIRE_PUSH_ACK:
	case WIRE_RECEIPT:
	case WIRE_SEGMENT:
		return true;
	default:
		return false;
	}
}

// Who sent it, whether it is meant for this start of this node, and whether it came before.
// Returns: 0 with *sender, or the drop counter.
static int check(struct node_worker *w, const struct dgram *d, const struct wire_header *header,
	struct node_sender **sender) WORKER_ONLY;
static int check(struct node_worker *w, const struct dgram *d, const struct wire_header *header,
	struct node_sender **sender)
{
	const struct node_params *params = &w->node->params;
	int bad;

	if (!from_client(header->type))
		return CTR_DROP_TYPE;
	if (header->sender == params->id)
		return CTR_DROP_REFLECTED;
	bad = wire_open(
		&w->keys, d->data, d->len, header, header->type == WIRE_HELLO ? 0 : params->boot);
	if (bad != 0)
		return bad;
	*sender = node_senders_take(w->senders, header, w->now_ns);
	if (*sender == NULL)
		return CTR_DROP_SENDERS_FULL;
	return wire_replay_take(&(*sender)->replay, header->seq) ? 0 : CTR_DROP_REPLAY;
}

// --- publishes ----------------------------------------------------------------------------------------

static void prove(
	struct node_worker *w, struct node_sender *sender, struct net_addr addr) WORKER_ONLY;
static void prove(struct node_worker *w, struct node_sender *sender, struct net_addr addr)
{
	if (!node_senders_prove(w->senders, sender, addr))
		counter_add(w->counters, CTR_SENDER_SHARE, 1);
}

bool node_rx_proven(struct node_worker *w, struct node_sender *sender,
	const struct wire_header *header, struct net_addr from, uint64_t cookie)
{
	if (sender->addr.port != 0 && net_addr_equal(sender->addr, from))
		return true;
	if (cookie !=
		wire_cookie(w->node->params.cookie_secret, from, header->sender, header->boot))
		return false;
	prove(w, sender, from);
	return true;
}

void node_rx_refuse(struct node_worker *w, const struct fanout_publish *p, enum counter why,
	enum wire_status status)
{
	const struct wire_publish_ack ack = {
		.request_id = p->m.request_id,
		.message_id = p->m.message_id,
		.status = (uint16_t)status,
	};

	counter_add(w->counters, CTR_PUBLISH, 1);
	counter_add(w->counters, why, 1);
	node_tx_outcome(w, p->from, p->publisher_boot, &ack);
}

static void publish_datagram(struct node_worker *w, struct dgram *d,
	const struct wire_header *header, struct wire_view body,
	struct node_sender *sender) WORKER_ONLY;
static void publish_datagram(struct node_worker *w, struct dgram *d,
	const struct wire_header *header, struct wire_view body, struct node_sender *sender)
{
	struct fanout_publish *p = &w->burst[w->burst_count];
	const int bad = wire_get_publish(body, &p->m);
	uint16_t owner;

	if (bad != 0) {
		drop(w, d, bad);
		return;
	}
	p->from = d->peer;
	p->publisher_boot = header->boot;
	p->body = (struct fanout_body){.dgram = d};
	if (sender != NULL && !node_rx_proven(w, sender, header, d->peer, p->m.cookie)) {
		node_rx_refuse(w, p, CTR_PUB_NEED_HELLO, WIRE_NEED_HELLO);
		done(w, d);
		return;
	}
	owner = channel_key_worker(&p->m.channel, w->node->params.workers);
	if (owner != w->index) {
		node_tx_hand_over(w, owner, d, true);
		return;
	}
	if (++w->burst_count == BURST)
		node_rx_admit(w);
}

// --- answers of gateways ------------------------------------------------------------------------------

// The live incarnation that sent a datagram, 0 when there is none. Without keys a sender is known by
// nothing but its address.
static uint32_t gateway_of(
	const struct node_worker *w, const struct wire_header *header, struct net_addr from)
{
	const uint32_t gateway = presence_gateway_of(&w->presence, header->sender, header->boot);

	if (gateway == 0 || w->keys.count != 0)
		return gateway;
	return net_addr_equal(w->presence.gateway[gateway].addr, from) ? gateway : 0;
}

// A registered gateway has proven its address to the control core.
static void known(
	struct node_worker *w, struct node_sender *sender, struct net_addr from) WORKER_ONLY;
static void known(struct node_worker *w, struct node_sender *sender, struct net_addr from)
{
	if (sender->state != NODE_SENDER_PROVEN)
		prove(w, sender, from);
}

static int push_ack(struct node_worker *w, const struct dgram *d, const struct wire_header *header,
	struct wire_view body, struct node_sender *sender) WORKER_ONLY;
static int push_ack(struct node_worker *w, const struct dgram *d, const struct wire_header *header,
	struct wire_view body, struct node_sender *sender)
{
	struct wire_push_ack m;
	const int bad = wire_get_push_ack(body, &m);
	const uint32_t gateway = gateway_of(w, header, d->peer);

	if (bad != 0)
		return bad;
	if (gateway == 0)
		return CTR_PUSH_ACK_UNKNOWN;
	known(w, sender, d->peer);
	delivery_on_ack(w->delivery, gateway, &m, w->now_ns);
	return 0;
}

static int receipt(struct node_worker *w, const struct dgram *d, const struct wire_header *header,
	struct wire_view body, struct node_sender *sender) WORKER_ONLY;
static int receipt(struct node_worker *w, const struct dgram *d, const struct wire_header *header,
	struct wire_view body, struct node_sender *sender)
{
	struct wire_receipt m;
	const int bad = wire_get_receipt(body, &m);
	const uint32_t gateway = gateway_of(w, header, d->peer);

	if (bad != 0)
		return bad;
	if (gateway == 0)
		return CTR_RECEIPT_UNKNOWN;
	known(w, sender, d->peer);
	delivery_on_receipt(w->delivery, gateway, &m, w->now_ns);
	return 0;
}

// What goes to the control core. It parses; here only what the sender proved is noted.
static void request(struct node_worker *w, const struct dgram *d, const struct wire_header *header,
	struct wire_view body, struct node_sender *sender) WORKER_ONLY;
static void request(struct node_worker *w, const struct dgram *d, const struct wire_header *header,
	struct wire_view body, struct node_sender *sender)
{
	struct wire_hello hello;

	if (header->type == WIRE_HELLO) {
		if (wire_get_hello(body, &hello) == 0 && hello.cookie != 0)
			node_rx_proven(w, sender, header, d->peer, hello.cookie);
	} else if (gateway_of(w, header, d->peer) != 0) {
		known(w, sender, d->peer);
	}
	node_tx_request(w, d->peer, header, body);
}

// --- dispatch -----------------------------------------------------------------------------------------

static void receive(struct node_worker *w, struct dgram *d, bool checked) WORKER_ONLY;
static void receive(struct node_worker *w, struct dgram *d, bool checked)
{
	struct node_sender *sender = NULL;
	struct wire_header header;
	struct wire_view body;
	int bad = wire_get_header(d->data, d->len, &header, &body);

	if (bad == 0 && !checked)
		bad = check(w, d, &header, &sender);
	if (bad != 0) {
		drop(w, d, bad);
		return;
	}
	switch (header.type) {
	case WIRE_PUBLISH:
		publish_datagram(w, d, &header, body, sender);
		return;
	case WIRE_PUSH_ACK:
		bad = push_ack(w, d, &header, body, sender);
		break;
	case WIRE_RECEIPT:
		bad = receipt(w, d, &header, body, sender);
		break;
	case WIRE_SEGMENT:
		bad = node_rx_segment(w, d, &header, body, sender);
		break;
	default:
		request(w, d, &header, body, sender);
		break;
	}
	if (bad != 0)
		drop(w, d, bad);
	else
		done(w, d);
}

static void steer(struct node_worker *w, struct dgram *d) WORKER_ONLY;
static void steer(struct node_worker *w, struct dgram *d)
{
	const uint32_t owner = (uint32_t)d->local_port - w->node->params.addr.port;

	if (owner == w->index)
		receive(w, d, false);
	else if (owner < w->node->params.workers)
		node_tx_hand_over(w, owner, d, false);
	else
		drop(w, d, CTR_DROP_PORT);
}

void node_rx_admit(struct node_worker *w)
{
	if (w->burst_count != 0)
		fanout_admit(w->fanout, w->burst, w->burst_count, w->now_ns);
	w->burst_count = 0;
}

uint32_t node_rx_port(struct node_worker *w)
{
	struct dgram *d[BURST];
	uint32_t total = 0, bytes = 0;
	uint16_t n = BURST;

	for (uint32_t burst = 0; burst < RX_BURSTS && n == BURST; burst++) {
		n = w->node->params.dgram->rx(w->queue, d, BURST);
		for (uint16_t i = 0; i < n; i++)
			__builtin_prefetch(d[i]->data);
		for (uint16_t i = 0; i < n; i++) {
			bytes += d[i]->len;
			steer(w, d[i]);
		}
		total += n;
	}
	if (total != 0) {
		counter_add(w->counters, CTR_RX, total);
		counter_add(w->counters, CTR_RX_BYTES, bytes);
	}
	return total;
}

uint32_t node_rx_handed(struct node_worker *w)
{
	uint32_t total = 0;

	for (uint32_t from = 0; from < w->node->params.workers; from++) {
		struct wq_spsc *ring = &w->from_worker[from];
		const struct node_handoff *item;

		if (from == w->index)
			continue;
		for (uint32_t n = 0; n < HANDED_MAX && (item = wq_spsc_peek(ring)) != NULL; n++) {
			const struct node_handoff taken = *item;

			wq_spsc_drop(ring);
			receive(w, taken.dgram, taken.checked);
			total++;
		}
	}
	return total;
}

static void take_reply(struct node_worker *w, const struct node_reply *reply) WORKER_ONLY;
static void take_reply(struct node_worker *w, const struct node_reply *reply)
{
	switch (reply->kind) {
	case NODE_REP_DATAGRAM:
		node_tx(w, reply->to, reply->type, reply->receiver_boot, reply->body, reply->bytes);
		break;
	case NODE_REP_GATEWAY_DOWN:
		// An entry given out again is noticed by delivery itself.
		if (atomic_load_explicit(&w->presence.gateway[reply->index].use,
			    memory_order_acquire) == reply->use)
			delivery_gateway_down(w->delivery, reply->index);
		break;
	case NODE_REP_SETTINGS: {
		struct node_settings settings;

		memcpy(&settings, reply->body, sizeof(settings));
		node_settings_take(w, &settings);
		break;
	}
	case NODE_REP_CHANNEL_GONE:
		fanout_channel_gone(w->fanout, reply->index, reply->use, w->now_ns);
		break;
	default:
		break;
	}
}

uint32_t node_rx_replies(struct node_worker *w)
{
	const struct node_reply *reply;
	uint32_t n = 0;

	for (; n < REPLIES_MAX && (reply = wq_spsc_peek(&w->from_control)) != NULL; n++) {
		take_reply(w, reply);
		wq_spsc_drop(&w->from_control);
	}
	return n;
}
