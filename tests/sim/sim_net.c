/* SPDX-License-Identifier: BSD-3-Clause */
// The simulated network and the node's view of it. A packet is copied in when sent; the node's datagrams
// are counted so that a leak or a double free is seen.
#include <stdlib.h>
#include <string.h>

#include "sim.h"

#define QUEUE_MAX 4096u
#define ROOM 1472u  // MTU 1500

struct sim_packet {
	uint64_t due_ns, order;
	struct net_addr from, to;
	uint16_t len;
	bool repeat;
	uint8_t bytes[ROOM];
};

struct sim_dgram {
	struct dgram d;
	uint32_t refs;
	struct sim *sim;
	uint8_t bytes[ROOM];
};

struct sim_queue {
	struct sim *sim;
	uint32_t head, tail;
	struct sim_dgram *item[QUEUE_MAX];
};

static struct sim_dgram *dgram_new(struct sim *s)
{
	struct sim_dgram *g = calloc(1, sizeof(*g));

	if (g == NULL)
		abort();
	g->d.data = g->bytes;
	g->d.room = ROOM;
	g->refs = 1;
	g->sim = s;
	s->dgrams++;
	return g;
}

static void dgram_drop(struct sim_dgram *g)
{
	if (g->refs == 0)
		abort();
	if (--g->refs == 0) {
		g->sim->dgrams--;
		free(g);
	}
}

static uint16_t op_rx(void *queue, struct dgram **d, uint16_t n)
{
	struct sim_queue *q = queue;
	uint16_t got = 0;

	while (got < n && q->head != q->tail)
		d[got++] = &q->item[q->head++ % QUEUE_MAX]->d;
	return got;
}

static void op_tx(void *queue, struct dgram **d, uint16_t n)
{
	struct sim_queue *q = queue;

	for (uint16_t i = 0; i < n; i++) {
		struct net_addr from = q->sim->node_addr;

		from.port = d[i]->local_port;
		if (d[i]->len > ROOM) {
			sim_fail(q->sim, "datagram of %u bytes over the MTU", d[i]->len);
		} else {
			sim_wire_out(q->sim, d[i]->peer, d[i]->data, d[i]->len);
			sim_net_send(q->sim, from, d[i]->peer, d[i]->data, d[i]->len);
		}
		dgram_drop((struct sim_dgram *)d[i]);
	}
}

static uint16_t op_alloc(void *queue, struct dgram **d, uint16_t n)
{
	struct sim_queue *q = queue;

	if (q->sim->dgrams + n > q->sim->dgrams_max)
		return 0;
	for (uint16_t i = 0; i < n; i++)
		d[i] = &dgram_new(q->sim)->d;
	return n;
}

static void op_free(void *queue, struct dgram **d, uint16_t n)
{
	(void)queue;
	for (uint16_t i = 0; i < n; i++)
		dgram_drop((struct sim_dgram *)d[i]);
}

static void op_hold(struct dgram *d)
{
	((struct sim_dgram *)d)->refs++;
}

static bool op_exclusive(const struct dgram *d)
{
	return ((const struct sim_dgram *)d)->refs == 1;
}

static uint32_t op_available(void *queue)
{
	const struct sim_queue *q = queue;

	return (uint32_t)(q->sim->dgrams_max - q->sim->dgrams);
}

const struct dgram_ops sim_dgram_ops = {
	.rx = op_rx,
	.tx = op_tx,
	.alloc = op_alloc,
	.free = op_free,
	.hold = op_hold,
	.exclusive = op_exclusive,
	.available = op_available,
};

static struct sim_packet *insert(struct sim *s, struct net_addr from, struct net_addr to, const uint8_t *bytes,
	uint16_t len, uint64_t due_ns)
{
	if (s->packet_count == s->packet_max) {
		s->packet_max = s->packet_max == 0 ? 1024 : s->packet_max * 2;
		s->packets = realloc(s->packets, s->packet_max * sizeof(*s->packets));
		if (s->packets == NULL)
			abort();
	}
	// A heap by (due, order): equal times keep the order of sending.
	uint32_t i = s->packet_count++;
	const uint64_t order = s->packet_seq++;
	while (i > 0) {
		struct sim_packet *up = &s->packets[(i - 1) / 2];

		if (up->due_ns < due_ns || (up->due_ns == due_ns && up->order < order))
			break;
		s->packets[i] = *up;
		i = (i - 1) / 2;
	}
	struct sim_packet *p = &s->packets[i];
	p->due_ns = due_ns;
	p->order = order;
	p->from = from;
	p->to = to;
	p->len = len;
	p->repeat = false;
	memcpy(p->bytes, bytes, len);
	return p;
}

static void remove_first(struct sim *s)
{
	const struct sim_packet last = s->packets[--s->packet_count];
	uint32_t i = 0;

	for (;;) {
		uint32_t c = 2 * i + 1;

		if (c >= s->packet_count)
			break;
		if (c + 1 < s->packet_count &&
			(s->packets[c + 1].due_ns < s->packets[c].due_ns ||
				(s->packets[c + 1].due_ns == s->packets[c].due_ns &&
					s->packets[c + 1].order < s->packets[c].order)))
			c++;
		if (last.due_ns < s->packets[c].due_ns ||
			(last.due_ns == s->packets[c].due_ns && last.order < s->packets[c].order))
			break;
		s->packets[i] = s->packets[c];
		i = c;
	}
	s->packets[i] = last;
}

void sim_net_send(struct sim *s, struct net_addr from, struct net_addr to, const uint8_t *bytes,
	uint16_t len)
{
	uint64_t due = s->now_ns + s->p.delay_min_ns;
	uint8_t bad[ROOM];

	if (s->quiet) {
		insert(s, from, to, bytes, len, due);
		return;
	}
	if (sim_chance(s, s->p.loss_permille))
		return;
	if (sim_chance(s, s->p.reorder_permille))
		due += sim_random(s) % (s->p.delay_max_ns - s->p.delay_min_ns + 1);
	insert(s, from, to, bytes, len, due);
	if (sim_chance(s, s->p.dup_permille))
		insert(s, from, to, bytes, len, due + sim_random(s) % (s->p.delay_max_ns + 1))
			->repeat = true;
	if (sim_chance(s, s->p.garbage_permille) && len > 0) {
		// A hostile twin: some bits flipped, sometimes cut. Only under authentication may it be
		// anything; without, the header is spoilt so that it cannot be mistaken for a real one.
		memcpy(bad, bytes, len);
		for (uint32_t i = 0; i < 1 + sim_below(s, 4); i++)
			bad[sim_below(s, len)] ^= (uint8_t)(1u << sim_below(s, 8));
		if (!s->p.auth)
			bad[0] ^= 0x80;
		insert(s, from, to, bad, sim_chance(s, 300) ? (uint16_t)sim_below(s, len) : len, due);
	}
}

void sim_net_inject(struct sim *s, struct net_addr from, struct net_addr to, const uint8_t *bytes,
	uint16_t len)
{
	insert(s, from, to, bytes, len, s->now_ns + s->p.delay_min_ns);
}

uint64_t sim_net_next_ns(const struct sim *s)
{
	return s->packet_count != 0 ? s->packets[0].due_ns : SIM_NEVER;
}

static void to_node(struct sim *s, const struct sim_packet *p)
{
	// Whatever queue a datagram comes in on, the node must get it to the worker of its port.
	struct sim_queue *q = s->queue[sim_below(s, s->p.workers)];

	if (s->node == NULL || q->tail - q->head == QUEUE_MAX || s->dgrams >= s->dgrams_max)
		return;
	struct sim_dgram *g = dgram_new(s);
	memcpy(g->bytes, p->bytes, p->len);
	g->d.len = p->len;
	g->d.peer = p->from;
	g->d.local_port = p->to.port;
	s->repeats += p->repeat;
	q->item[q->tail++ % QUEUE_MAX] = g;
}

void sim_net_step(struct sim *s)
{
	while (s->packet_count != 0 && s->packets[0].due_ns <= s->now_ns) {
		const struct sim_packet p = s->packets[0];

		remove_first(s);
		if (p.to.ip == s->node_addr.ip)
			to_node(s, &p);
		else
			sim_client_rx(s, p.to, p.bytes, p.len, p.from);
	}
}

void sim_net_open(struct sim *s)
{
	for (uint32_t w = 0; w < WORKERS_MAX; w++) {
		s->queue[w] = calloc(1, sizeof(*s->queue[w]));
		if (s->queue[w] == NULL)
			abort();
		s->queue[w]->sim = s;
	}
}

void sim_net_drop_queues(struct sim *s)
{
	for (uint32_t w = 0; w < WORKERS_MAX; w++)
		while (s->queue[w]->head != s->queue[w]->tail)
			dgram_drop(s->queue[w]->item[s->queue[w]->head++ % QUEUE_MAX]);
}

void sim_net_close(struct sim *s)
{
	sim_net_drop_queues(s);
	for (uint32_t w = 0; w < WORKERS_MAX; w++)
		free(s->queue[w]);
	free(s->packets);
}
