/* SPDX-License-Identifier: BSD-3-Clause */
// Datagrams whose next hop has no known link address: kept for a bounded time in a bounded place, while
// the hop is asked for, first at once, then ever more slowly. Worker of the queue. The clock is the
// CPU's, read only while something waits.
#include "port_pvt.h"

static void drop(struct port_queue *q, struct rte_mbuf *m)
{
	counter_add(q->counters, CTR_DROP_TX_NO_NEIGH, 1);
	rte_pktmbuf_free(m);
}

void port_send_request(struct port_queue *q, uint32_t ip, const uint8_t *mac)
{
	struct rte_mbuf *m = rte_pktmbuf_alloc(q->pool);

	if (m == NULL) {
		counter_add(q->counters, CTR_DROP_NO_BUFFER, 1);
		return;
	}
	const uint32_t l2 = port_proto_l2_len(q->proto);
	uint8_t *frame = rte_pktmbuf_mtod(m, uint8_t *);

	m->data_len = (uint16_t)port_proto_arp_request(q->proto, frame + l2, ip, mac);
	m->pkt_len = m->data_len;
	port_tx_frames(q, &m, 1);
}

static void request(struct port_queue *q, struct port_pending_hop *hop, uint64_t now_ns)
{
	port_send_request(q, hop->ip, NULL);
	hop->next_request_ns = now_ns + hop->interval_ns;
	hop->interval_ns *= 2;
	if (hop->interval_ns > PORT_REQUEST_MAX_NS)
		hop->interval_ns = PORT_REQUEST_MAX_NS;
}

// The hop's slot; a new one takes a free slot, else that of a hop nothing waits for. NULL: none.
static struct port_pending_hop *hop_of(struct port_pending *p, uint32_t ip)
{
	struct port_pending_hop *unused = NULL;

	for (uint32_t i = 0; i < PORT_PENDING_HOPS; i++) {
		struct port_pending_hop *hop = &p->hop[i];

		if (hop->ip == ip)
			return hop;
		if (hop->waiting == 0 &&
			(unused == NULL || hop->next_request_ns < unused->next_request_ns))
			unused = hop;
	}
	if (unused != NULL)
		*unused = (struct port_pending_hop){.ip = ip, .interval_ns = PORT_REQUEST_NS};
	return unused;
}

void port_pending_add(struct port_queue *q, struct dgram *d, uint32_t hop_ip)
{
	struct port_pending *p = &q->pending;
	struct rte_mbuf *m = port_mbuf(d);

	if (hop_ip == 0) {
		drop(q, m);
		return;
	}
	const uint64_t now_ns = port_clock_ns(q->port);
	struct port_pending_hop *hop = hop_of(p, hop_ip);

	if (hop == NULL) {
		drop(q, m);
		return;
	}
	// also when there is no room: asked for often enough, it may be there next time
	if (now_ns >= hop->next_request_ns)
		request(q, hop, now_ns);
	if (p->count == PORT_PENDING || hop->waiting == PORT_PENDING_PER_HOP) {
		drop(q, m);
		return;
	}
	if (p->count == 0) {
		p->next_ns = UINT64_MAX;
		// 0 is never a generation: the first step looks again, as an answer may have come since
		p->seen_generation = 0;
	}
	hop->waiting++;
	p->item[p->count].m = m;
	p->item[p->count].hop = hop_ip;
	p->item[p->count].deadline_ns = now_ns + PORT_PENDING_NS;
	p->count++;
	if (now_ns + PORT_PENDING_NS < p->next_ns)
		p->next_ns = now_ns + PORT_PENDING_NS;
	if (hop->next_request_ns < p->next_ns)
		p->next_ns = hop->next_request_ns;
}

static void give_up_waiting(struct port_pending *p, uint32_t hop_ip, bool resolved)
{
	for (uint32_t i = 0; i < PORT_PENDING_HOPS; i++) {
		if (p->hop[i].ip != hop_ip)
			continue;
		p->hop[i].waiting--;
		if (resolved && p->hop[i].waiting == 0)
			p->hop[i].ip = 0;
		return;
	}
}

// Sends what can be sent now and drops what waited too long, in order.
static void settle(struct port_queue *q, uint64_t now_ns)
{
	struct port_pending *p = &q->pending;
	struct rte_mbuf *m[BURST];
	uint16_t ready = 0;
	uint32_t kept = 0;

	for (uint32_t i = 0; i < p->count; i++) {
		struct dgram *d = port_dgram(p->item[i].m);
		uint32_t hop;
		const struct port_template *t = port_tx_template(q, d->peer.ip, &hop);

		if (t == NULL && now_ns < p->item[i].deadline_ns) {
			if (p->item[i].deadline_ns < p->next_ns)
				p->next_ns = p->item[i].deadline_ns;
			p->item[kept++] = p->item[i];
			continue;
		}
		give_up_waiting(p, p->item[i].hop, t != NULL);
		if (t == NULL) {
			drop(q, p->item[i].m);
			continue;
		}
		m[ready++] = port_tx_build(q, d, t);
		if (ready == BURST) {
			port_tx_frames(q, m, ready);
			ready = 0;
		}
	}
	p->count = kept;
	if (ready > 0)
		port_tx_frames(q, m, ready);
}

void port_pending_step(struct port_queue *q)
{
	struct port_pending *p = &q->pending;
	const uint32_t generation =
		atomic_load_explicit(&q->neigh->generation, memory_order_acquire);
	const uint32_t additions = atomic_load_explicit(&q->neigh->additions, memory_order_acquire);
	const uint64_t now_ns = port_clock_ns(q->port);

	if (generation == p->seen_generation && additions == p->seen_additions &&
		now_ns < p->next_ns)
		return;
	p->seen_generation = generation;
	p->seen_additions = additions;
	p->next_ns = UINT64_MAX;
	settle(q, now_ns);
	for (uint32_t i = 0; i < PORT_PENDING_HOPS; i++) {
		struct port_pending_hop *hop = &p->hop[i];

		if (hop->waiting == 0)
			continue;
		if (now_ns >= hop->next_request_ns)
			request(q, hop, now_ns);
		if (hop->next_request_ns < p->next_ns)
			p->next_ns = hop->next_request_ns;
	}
}

void port_pending_free(struct port_queue *q)
{
	struct rte_mbuf **m;

	for (uint32_t i = 0; i < q->pending.count; i++)
		rte_pktmbuf_free(q->pending.item[i].m);
	q->pending.count = 0;
	if (q->frames.items == NULL)
		return;
	while ((m = wq_spsc_peek(&q->frames)) != NULL) {
		rte_pktmbuf_free(*m);
		wq_spsc_drop(&q->frames);
	}
}
