/* SPDX-License-Identifier: BSD-3-Clause */
// Frames in: a burst from the device becomes datagrams; ARP and ICMP echo requests are answered in the
// buffer they came in, on the queue they came in on; the rest is a counted drop. What ARP teaches goes to
// the control core. Worker of the queue. No allocation, lock, system call.
#include "port_pvt.h"

#include <rte_ethdev.h>
#include <rte_prefetch.h>

struct answers {
	uint16_t count;
	struct rte_mbuf *m[BURST];
};

static void report(
	struct port_queue *q, enum port_event_kind kind, const struct port_packet *packet)
{
	struct port_event event = {.ip = packet->arp_ip, .kind = (uint8_t)kind};

	memcpy(event.mac, packet->arp_mac, 6);
	if (!wq_spsc_push(&q->events, &event))
		counter_add(q->counters, CTR_DROP_CONTROL_FULL, 1);
}

static void set_frame(struct rte_mbuf *m, const uint8_t *start, uint32_t len)
{
	m->data_off = (uint16_t)(start - (uint8_t *)m->buf_addr);
	m->data_len = (uint16_t)len;
	m->pkt_len = len;
	m->ol_flags = 0;
}

static void take_arp(struct port_queue *q, struct rte_mbuf *m, uint8_t *l3,
	const struct port_packet *packet, struct answers *answers)
{
	counter_add(q->counters, CTR_ARP, 1);
	if (packet->arp_conflict)
		report(q, PORT_CONFLICT, packet);
	else if (packet->arp_ip != 0)
		// who asks for us, or answers us, is about to talk to us; of others we only correct
		// what we know
		report(q, packet->arp_for_us ? PORT_LEARN : PORT_CONFIRM, packet);
	if (!packet->arp_request || !packet->arp_for_us || packet->arp_conflict) {
		rte_pktmbuf_free(m);
		return;
	}
	const uint32_t len = port_proto_arp_answer(q->proto, l3);

	set_frame(m, l3 - port_proto_l2_len(q->proto), len);
	answers->m[answers->count++] = m;
}

static void take_echo(struct port_queue *q, struct rte_mbuf *m, const uint8_t *frame, uint8_t *l3,
	struct answers *answers)
{
	const uint32_t len = port_proto_echo_answer(q->proto, frame, l3);

	counter_add(q->counters, CTR_ECHO, 1);
	set_frame(m, l3 - port_proto_l2_len(q->proto), len);
	answers->m[answers->count++] = m;
}

static void take_datagram(struct port_queue *q, struct rte_mbuf *m, uint8_t *frame,
	const struct port_packet *packet, struct dgram *d)
{
	uint8_t *payload = frame + packet->payload_off;
	const uint32_t behind = (uint32_t)((uint8_t *)m->buf_addr + m->buf_len - payload);

	*d = (struct dgram){
		.data = payload,
		.len = packet->payload_len,
		.room = (uint16_t)(behind < q->payload_max ? behind : q->payload_max),
		.local_port = packet->local_port,
		.peer = packet->peer,
	};
}

// Returns: the datagram, or NULL when the frame was something else; then m is gone.
static struct dgram *take_frame(struct port_queue *q, struct rte_mbuf *m, struct answers *answers)
{
	struct port_packet packet;
	const struct port_rx_meta meta = {
		.vlan_stripped = (m->ol_flags & RTE_MBUF_F_RX_VLAN_STRIPPED) != 0,
		.vlan_tci = m->vlan_tci,
		// only "good" is believed: what a device calls bad, or not at all, is summed here
		.ip_good =
			(m->ol_flags & RTE_MBUF_F_RX_IP_CKSUM_MASK) == RTE_MBUF_F_RX_IP_CKSUM_GOOD,
		.udp_good =
			(m->ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK) == RTE_MBUF_F_RX_L4_CKSUM_GOOD,
	};

	// buffers hold the MTU, so only an oversized frame comes in pieces
	if (m->nb_segs > 1 && rte_pktmbuf_linearize(m) != 0) {
		counter_add(q->counters, CTR_DROP_L2, 1);
		rte_pktmbuf_free(m);
		return NULL;
	}
	uint8_t *frame = rte_pktmbuf_mtod(m, uint8_t *);

	switch (port_proto_parse(q->proto, frame, m->data_len, &meta, &packet)) {
	case PORT_DATAGRAM:
		take_datagram(q, m, frame, &packet, port_dgram(m));
		return port_dgram(m);
	case PORT_ARP:
		take_arp(q, m, frame + packet.l3_off, &packet, answers);
		return NULL;
	case PORT_ECHO:
		take_echo(q, m, frame, frame + packet.l3_off, answers);
		return NULL;
	case PORT_DROP:
		break;
	}
	counter_add(q->counters, packet.drop, 1);
	rte_pktmbuf_free(m);
	return NULL;
}

static void take_commands(struct port_queue *q)
{
	const struct port_command *c;

	while ((c = wq_spsc_peek(&q->commands)) != NULL) {
		port_send_request(q, c->ip, c->unicast ? c->mac : NULL);
		wq_spsc_drop(&q->commands);
	}
}

static uint16_t burst(struct port_queue *q, struct rte_mbuf **m, uint16_t n)
{
	uint16_t got = 0;

	// frames taken while making sure that it was right to sleep
	while (q->stash_count > 0 && got < n)
		m[got++] = q->stash[--q->stash_count];
	if (got == 0 && q->has_rx)
		got = rte_eth_rx_burst(q->port_id, q->queue_id, m, n);
	return got;
}

uint16_t port_rx_datagrams(void *queue, struct dgram **d, uint16_t n)
{
	struct port_queue *q = queue;
	struct rte_mbuf *m[BURST];
	struct answers answers = {.count = 0};
	uint16_t out = 0;

	if (wq_spsc_depth(&q->commands) > 0)
		take_commands(q);
	if (q->pending.count > 0)
		port_pending_step(q);
	if (q->feeders > 0)
		port_tx_feeders(q);
	const uint16_t got = burst(q, m, n < BURST ? n : BURST);

	if (got == 0)
		return 0;
	q->idle.empty = 0;
	for (uint16_t i = 0; i < got && i < 4; i++)
		rte_prefetch0(rte_pktmbuf_mtod(m[i], void *));
	for (uint16_t i = 0; i < got; i++) {
		if (i + 4 < got)
			rte_prefetch0(rte_pktmbuf_mtod(m[i + 4], void *));
		struct dgram *one = take_frame(q, m[i], &answers);

		if (one != NULL)
			d[out++] = one;
	}
	if (answers.count > 0)
		port_tx_frames(q, answers.m, answers.count);
	return out;
}
