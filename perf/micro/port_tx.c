/* SPDX-License-Identifier: BSD-3-Clause */
// Sending a datagram through the port (buffer, headers from the template of one of 16 destinations,
// checksums, burst) against bare bursts of the same buffers on the same device, net_null; with the UDP
// checksum made here and without one.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_ethdev.h>

#include "bench.h"
#include "port_pvt.h"

#define BURSTS 20000u
#define PEERS 16u

static const uint16_t sizes[] = {64, 256, 1024, 1472};

static double ns_per_packet(uint64_t start)
{
	return (double)(bench_ns() - start) / ((double)BURSTS * BURST);
}

static double bare(const struct port_queue *q, uint16_t len)
{
	const uint64_t start = bench_ns();
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

// `payload`: copied into each, or NULL.
static double ours(struct port_queue *q, uint16_t len, const uint8_t *payload)
{
	const struct dgram_ops *ops = port_dgram_ops();
	const uint64_t start = bench_ns();
	struct dgram *d[BURST];

	for (uint32_t i = 0; i < BURSTS; i++) {
		if (ops->alloc(q, d, BURST) != BURST)
			abort();
		for (uint32_t k = 0; k < BURST; k++) {
			d[k]->len = len;
			if (payload != NULL)
				memcpy(d[k]->data, payload, len);
			d[k]->local_port = 7400;
			d[k]->peer = (struct net_addr){.ip = 0x0a000010u + k % PEERS, .port = 7500};
		}
		ops->tx(q, d, BURST);
	}
	return ns_per_packet(start);
}

// What a copy of the payload into each datagram adds to sending it.
static void compare_copy(struct port_queue *q)
{
	static const uint16_t payloads[] = {128, 512, 1024};
	static uint8_t payload[1472];

	q->udp_sum = PORT_SUM_NONE;
	for (size_t s = 0; s < sizeof(payloads) / sizeof(payloads[0]); s++) {
		double without[BENCH_ROUNDS], with[BENCH_ROUNDS];
		char what[64];

		for (uint32_t round = 0; round < BENCH_ROUNDS; round++) {
			without[round] = ours(q, payloads[s], NULL);
			with[round] = ours(q, payloads[s], payload);
		}
		snprintf(what, sizeof(what), "the same with %u bytes copied in", payloads[s]);
		bench_row(what, with, "without the copy", without, BENCH_NONE);
	}
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
		double b[BENCH_ROUNDS], o[BENCH_ROUNDS];
		char what[64];

		q->udp_sum = how;
		for (uint32_t round = 0; round < BENCH_ROUNDS; round++) {
			b[round] = bare(q, sizes[s]);
			o[round] = ours(q, sizes[s], NULL);
		}
		snprintf(what, sizeof(what), "datagram of %u bytes, checksum %s", sizes[s], name);
		bench_row(what, o, "tx packet", b, BENCH_NONE);
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
	bench_head("datagram through the port to 16 peers, net_null");
	compare(port_queue(port, 0), PORT_SUM_MADE, "made");
	compare(port_queue(port, 0), PORT_SUM_NONE, "none");
	compare_copy(port_queue(port, 0));
	const bool lost = counter_get(&counters, CTR_DROP_TX_FULL) +
				  counter_get(&counters, CTR_DROP_TX_NO_NEIGH) !=
			  0;

	port_close(port);
	port_eal_stop();
	if (lost)
		fprintf(stderr, "port_tx: datagrams were dropped; the figures mean nothing\n");
	return lost;
}
