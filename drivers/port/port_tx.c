/* SPDX-License-Identifier: BSD-3-Clause */
// Datagrams out: headers from the template of the destination are written before the payload, each time
// anew, so that a datagram sent again is just sent again; then a burst to the device with a bounded
// number of retries. Worker of the queue. No allocation, lock, system call.
#include "port_pvt.h"

#include <assert.h>

#include <rte_ethdev.h>
#include <rte_pause.h>

static void drop_frames(struct port_queue *q, struct rte_mbuf **m, uint16_t n)
{
	counter_add(q->counters, CTR_DROP_TX_FULL, n);
	rte_pktmbuf_free_bulk(m, n);
}

// Frames of a worker without a queue: to the one that sends for it.
static void pass_frames(struct port_queue *q, struct rte_mbuf **m, uint16_t n)
{
	const uint16_t took = (uint16_t)wq_spsc_push_burst(&q->frames, m, n);

	if (took < n)
		drop_frames(q, m + took, (uint16_t)(n - took));
	port_wake(q->port, q->via);
}

void port_tx_frames(struct port_queue *q, struct rte_mbuf **m, uint16_t n)
{
	uint16_t sent = 0;
	uint32_t refused = 0;

	if (!q->has_tx) {
		pass_frames(q, m, n);
		return;
	}
	while (sent < n) {
		uint16_t ready = (uint16_t)(n - sent);

		if (q->udp_sum == PORT_SUM_OFFLOAD)
			ready = rte_eth_tx_prepare(q->port_id, q->queue_id, m + sent, ready);
		if (ready == 0) {
			// the device will never take this one
			drop_frames(q, m + sent, 1);
			sent++;
			continue;
		}
		const uint16_t took = rte_eth_tx_burst(q->port_id, q->queue_id, m + sent, ready);

		sent = (uint16_t)(sent + took);
		if (took > 0)
			continue;
		// with the carrier down some drivers take nothing for ever
		if (++refused > PORT_TX_RETRIES) {
			drop_frames(q, m + sent, (uint16_t)(n - sent));
			return;
		}
		rte_pause();
	}
}

void port_tx_feeders(struct port_queue *q)
{
	for (uint16_t w = 0; w < q->port->workers; w++) {
		struct port_queue *from = &q->port->queue[w];
		struct rte_mbuf *m[BURST];

		if (from->via != q->worker || from == q)
			continue;
		// at most a ring's worth: the feeder may go on filling it
		for (uint32_t left = PORT_TX_RING; left > 0;) {
			const uint32_t n = wq_spsc_pop_burst(&from->frames, m, BURST);

			if (n == 0)
				break;
			port_tx_frames(q, m, (uint16_t)n);
			left -= n < left ? n : left;
		}
	}
}

static __attribute__((noinline)) struct port_template *make_template(struct port_queue *q,
	struct port_template *t, uint32_t ip, uint32_t generation, uint32_t *hop)
{
	uint8_t mac[6];

	*hop = port_proto_next_hop(q->proto, ip);
	if (*hop == 0 || !neigh_lookup(q->neigh, *hop, mac))
		return NULL;
	port_proto_template(q->proto, ip, mac, generation, t);
	return t;
}

struct port_template *port_tx_template(struct port_queue *q, uint32_t ip, uint32_t *hop)
{
	struct port_template *t = &q->templates[(ip * 2654435769u) >> 23];
	// read before the lookup: a change in between leaves a template of an old generation
	const uint32_t generation =
		atomic_load_explicit(&q->neigh->generation, memory_order_acquire);

	if (__builtin_expect(t->ip == ip && t->generation == generation && ip != 0, 1))
		return t;
	return make_template(q, t, ip, generation, hop);
}
_Static_assert(PORT_TEMPLATES == 1u << (32 - 23), "port_tx_template takes the top bits");

struct rte_mbuf *port_tx_build(struct port_queue *q, struct dgram *d, const struct port_template *t)
{
	struct rte_mbuf *m = port_mbuf(d);
	const uint32_t headers = port_proto_l2_len(q->proto) + PORT_IP_LEN + PORT_UDP_LEN;

	assert(d->len <= q->payload_max);
	port_proto_headers(t, d, q->udp_sum);
	m->data_off = (uint16_t)(d->data - headers - (uint8_t *)m->buf_addr);
	m->data_len = (uint16_t)(d->len + headers);
	m->pkt_len = m->data_len;
	m->ol_flags = q->tx_flags;
	m->l2_len = port_proto_l2_len(q->proto) & 0x7f;
	m->l3_len = PORT_IP_LEN;
	return m;
}

void port_tx_datagrams(void *queue, struct dgram **d, uint16_t n)
{
	struct port_queue *q = queue;
	struct rte_mbuf *m[BURST];
	uint16_t ready = 0;

	// what waited goes first, once its hop is known: a new datagram does not overtake it
	if (__builtin_expect(q->pending.count > 0, 0))
		port_pending_step(q);
	for (uint16_t i = 0; i < n; i++) {
		uint32_t hop = 0;
		struct port_template *t = port_tx_template(q, d[i]->peer.ip, &hop);

		if (__builtin_expect(t == NULL, 0)) {
			port_pending_add(q, d[i], hop);
			continue;
		}
		m[ready++] = port_tx_build(q, d[i], t);
		if (ready == BURST) {
			port_tx_frames(q, m, ready);
			ready = 0;
		}
	}
	if (ready > 0)
		port_tx_frames(q, m, ready);
	if (q->feeders > 0)
		port_tx_feeders(q);
}
