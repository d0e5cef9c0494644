/* SPDX-License-Identifier: BSD-3-Clause */
// Sending a datagram through the port (buffer, headers from the template of one of 16 destinations,
// checksums, burst) against bare bursts of the same buffers on the same device, net_null. Rounds of both
// alternate; medians and their ratio are printed, with the UDP checksum made here and without one.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <rte_ethdev.h>

#include "port_pvt.h"

#define ROUNDS 15u
#define BURSTS 20000u
#define PEERS 16u

static const uint16_t sizes[] = {64, 256, 1024, 1472};

static int by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *v)
{
	qsort(v, ROUNDS, sizeof(*v), by_value);
	return v[ROUNDS / 2];
}

// CPU time of this thread: what others take from the machine is not counted.
static uint64_t cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

static double ns_per_packet(uint64_t start)
{
	return (double)(cpu_ns() - start) / ((double)BURSTS * BURST);
}

static double bare(const struct port_queue *q, uint16_t len)
{
	const uint64_t start = cpu_ns();
	struct rte_mbuf *m[BURST];

	for (uint32_t i = 0; i < BURSTS; i++) {
		if (rte_pktmbuf_alloc_bulk(q->pool, m, BURST) != 0)
			abort();
		for (uint32_t k = 0; k < BURST; k++) {
			m[k]->data_len = (uint16_t)(len + 42);
			m[k]->pkt_len = m[k]->data_len;
		}
		const uint16_t sent = rte_eth_tx_burst(q->port_id, q->queue_id, m, BURST);

		if (sent < BURST)
			rte_pktmbuf_free_bulk(m + sent, BURST - sent);
	}
	return ns_per_packet(start);
}

static double ours(struct port_queue *q, uint16_t len)
{
	const struct dgram_ops *ops = port_dgram_ops();
	const uint64_t start = cpu_ns();
	struct dgram *d[BURST];

	for (uint32_t i = 0; i < BURSTS; i++) {
		if (ops->alloc(q, d, BURST) != BURST)
			abort();
		for (uint32_t k = 0; k < BURST; k++) {
			d[k]->len = len;
			d[k]->local_port = 7400;
			d[k]->peer = (struct net_addr){.ip = 0x0a000010u + k % PEERS, .port = 7500};
		}
		ops->tx(q, d, BURST);
	}
	return ns_per_packet(start);
}

static struct conf conf_make(void)
{
	struct conf c = {.node.id = 1,
		.eal.memory_bytes = 64u << 20,
		.workers.count = 1,
		.port = {.ip = 0x0a000001u,
			.prefix_len = 24,
			.mtu = 1500,
			.udp_base = 7400,
			.rx_descriptors = 512,
			.tx_descriptors = 512,
			.buffers = 4096,
			.checksum = CONF_CHECKSUM_ON,
			.neighbour_count = PEERS,
			.neighbour_ttl_ns = 600 * NS_PER_S}};

	for (uint8_t i = 0; i < PEERS; i++)
		c.port.neighbours[i] =
			(struct conf_neighbour){.ip = 0x0a000010u + i, .mac = {2, 0, 0, 0, 1, i}};
	strcpy(c.eal.lcores, "auto");
	strcpy(c.node.log_level, "warn");
	strcpy(c.eal.extra, "--no-telemetry");  // its socket would keep EAL's folder
	strcpy(c.port.device, "net_null0");
	snprintf(c.eal.file_prefix, sizeof(c.eal.file_prefix), "tc_bench_%d", getpid());
	return c;
}

static void compare(struct port_queue *q, enum port_udp_sum how, const char *name)
{
	for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
		double b[ROUNDS], o[ROUNDS];

		q->udp_sum = how;
		for (uint32_t round = 0; round < ROUNDS; round++) {
			b[round] = bare(q, sizes[s]);
			o[round] = ours(q, sizes[s]);
		}
		const double bare_ns = median(b), port_ns = median(o);

		printf("%8s %8u %10.1f %10.1f %8.2f %10.1f\n", name, sizes[s], bare_ns, port_ns,
			port_ns / bare_ns, port_ns - bare_ns);
	}
}

int main(void)
{
	static struct counters counters;
	struct counters *all[] = {&counters};
	const struct conf conf = conf_make();
	const char *why = "";
	struct port *port;

	if (port_eal_start(&conf, &why) != 0 || port_open(&conf, all, &port, &why) != 0) {
		fprintf(stderr, "port_tx: %s\n", why);
		return 1;
	}
	printf("%8s %8s %10s %10s %8s %10s\n", "checksum", "payload", "bare_ns", "port_ns", "ratio",
		"extra_ns");
	compare(port_queue(port, 0), PORT_SUM_MADE, "made");
	compare(port_queue(port, 0), PORT_SUM_NONE, "none");
	const bool lost = counter_get(&counters, CTR_DROP_TX_FULL) +
				  counter_get(&counters, CTR_DROP_TX_NO_NEIGH) !=
			  0;

	port_close(port);
	port_eal_stop();
	if (lost)
		fprintf(stderr, "port_tx: datagrams were dropped; the figures mean nothing\n");
	return lost;
}
