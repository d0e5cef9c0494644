/* SPDX-License-Identifier: BSD-3-Clause */
// A worker's side of the port over a ring and over a null device allocates nothing, takes no lock and makes
// no system call: its bursts run on a watched thread (quiet.h). What the ring carries away comes back with
// its ends swapped, some of it damaged, some as ARP and ping, so that the way in is taken too.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <rte_ethdev.h>
#include <rte_lcore.h>

#include "port_pvt.h"
#include "quiet.h"

#define TURNS 10000u
#define PEERS 16u
#define KEPT 64u
#define LEARNT_IP 0x0a0000f0u  // answers ARP
#define ABSENT_IP 0x0a0000f1u  // does not

struct report {
	struct quiet_counts quiet;
	struct counters counters;
	uint64_t taken, resent;
};
static struct report *report;  // shared with the child
static struct port_queue *queue;
static const struct dgram_ops *ops;
static bool plant;
static void *volatile block;

static void must(bool ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "port_quiet: %s\n", what);
	_exit(1);
}

// --- the watched thread -------------------------------------------------------------------------------

static void become_worker(void *ctx)
{
	(void)ctx;
	must(rte_thread_register() == 0, "the thread gets no lcore");
}

// What a worker does in a turn: a burst in, looked at and freed; a burst out to many peers, one of them
// unknown, one datagram kept; and the kept one again once the port is done with it.
static void turn(void *ctx)
{
	static struct dgram *kept[KEPT];
	static uint32_t turns;
	struct dgram *d[BURST];
	const uint16_t n = ops->rx(queue, d, BURST);
	const uint16_t send = (uint16_t)(1 + turns % BURST);
	struct dgram **keep = &kept[turns++ % KEPT];

	(void)ctx;
	report->taken += n;
	ops->free(queue, d, n);
	if (*keep != NULL && ops->exclusive(*keep)) {
		(*keep)->data[0]++;
		ops->tx(queue, keep, 1);
		*keep = NULL;
		report->resent++;
	}
	if (ops->available(queue) < 1000 || ops->alloc(queue, d, send) != send)
		return;
	for (uint16_t i = 0; i < send; i++) {
		d[i]->len = (uint16_t)(i * 46u % (d[i]->room + 1u));
		memset(d[i]->data, i, d[i]->len);
		d[i]->local_port = 7400;
		d[i]->peer =
			(struct net_addr){.ip = 0x0a000010u + (i + turns) % PEERS, .port = 7500};
		if (turns % 64 == 9 && i == 3)
			d[i]->peer.ip = turns % 128 == 9 ? ABSENT_IP : LEARNT_IP;
	}
	if (*keep == NULL) {
		d[0]->len = 100;
		ops->hold(d[0]);
		*keep = d[0];
	}
	ops->tx(queue, d, send);
	if (plant && turns % 100 == 0)
		block = malloc(turns);
}

// --- the other end of the ring ------------------------------------------------------------------------

static void swap(uint8_t *a, uint8_t *b, uint32_t n)
{
	uint8_t t[8];

	memcpy(t, a, n);
	memcpy(a, b, n);
	memcpy(b, t, n);
}

static void turn_round(struct rte_mbuf *m, uint32_t number)
{
	static const uint8_t peer_mac[6] = {2, 0, 0, 0, 1, 1};
	uint8_t *p = rte_pktmbuf_mtod(m, uint8_t *);

	swap(p, p + 6, 6);
	if (p[12] == 0x08 && p[13] == 0x06) {
		memcpy(p + 6, peer_mac, 6);
		if (p[41] != (uint8_t)LEARNT_IP)
			return;  // comes back as it was, which is no answer
		p[21] = 2;
		swap(p + 22, p + 32, 6);
		swap(p + 28, p + 38, 4);
		memcpy(p + 22, peer_mac, 6);
		return;
	}
	swap(p + 26, p + 30, 4);
	swap(p + 34, p + 36, 2);
	if (number % 97 == 0)
		p[14 + number % 28] ^= 0x10;
	if (number % 101 == 0)
		p[13] = 0x06;
	if (number % 103 == 0)
		m->data_len = (uint16_t)(m->data_len - 1);
	m->pkt_len = m->data_len;
}

// A ping and its checksums, made from a datagram of the worker.
static void make_ping(struct rte_mbuf *m)
{
	static const uint8_t ip[20] = {0x45, 0, 0, 28, 0, 1, 0x40, 0, 64, 1};
	static const uint8_t icmp[8] = {8, 0, 0xf7, 0xff};
	uint8_t *p = rte_pktmbuf_mtod(m, uint8_t *), from[4], to[4];
	uint32_t sum = 0;

	memcpy(from, p + 26, 4);
	memcpy(to, p + 30, 4);
	memcpy(p + 14, ip, sizeof(ip));
	memcpy(p + 26, from, 4);
	memcpy(p + 30, to, 4);
	memcpy(p + 34, icmp, sizeof(icmp));
	for (uint32_t i = 0; i < 20; i += 2)
		sum += (uint32_t)p[14 + i] << 8 | p[15 + i];
	sum = (sum & 0xffff) + (sum >> 16);
	sum = ~(sum + (sum >> 16)) & 0xffff;
	p[24] = (uint8_t)(sum >> 8);
	p[25] = (uint8_t)sum;
	m->data_len = 42;
	m->pkt_len = 42;
}

static void mirror(void)
{
	static uint32_t number;
	struct rte_mbuf *m[256];
	uint16_t n = 0, got;

	while (n + 32 <= 256 &&
		(got = rte_eth_rx_burst(queue->port_id, queue->queue_id, m + n, 32)) != 0)
		n = (uint16_t)(n + got);
	for (uint16_t i = 0; i < n; i++) {
		struct rte_mbuf *copy;

		// What is kept for a resend must not change under its owner.
		copy = rte_pktmbuf_copy(m[i], queue->pool, 0, UINT32_MAX);
		rte_pktmbuf_free(m[i]);
		if (copy == NULL)
			continue;
		turn_round(copy, ++number);
		if (number % 89 == 0 && copy->data_len > 60)
			make_ping(copy);
		if (rte_eth_tx_burst(queue->port_id, queue->queue_id, &copy, 1) == 0)
			rte_pktmbuf_free(copy);
	}
}

// --- the tests ----------------------------------------------------------------------------------------

static struct conf conf_make(const char *device)
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
	strcpy(c.port.device, device);
	snprintf(c.eal.file_prefix, sizeof(c.eal.file_prefix), "tc_quiet_%d", getpid());
	return c;
}

static void child(const char *device)
{
	const struct conf conf = conf_make(device);
	struct counters *all[] = {&report->counters};
	const char *why = "";
	struct port *port;

	must(port_eal_start(&conf, &why) == 0, why);
	must(port_open(&conf, all, &port, &why) == 0, why);
	queue = port_queue(port, 0);
	ops = port_dgram_ops();
	quiet_start(become_worker, NULL);
	for (uint32_t t = 0; t < TURNS; t++) {
		quiet_run(turn, NULL);
		if (strncmp(device, "net_ring", 8) == 0)
			mirror();
		if (t % 64 == 0) {
			role_take_control();
			port_control_step(port, time_now_ns());
			role_drop_control();
		}
	}
	quiet_counts(&report->quiet);
	rte_eth_dev_stop(queue->port_id);
	port_eal_stop();
	_exit(0);
}

static void watch(const char *device, bool planted)
{
	int status;
	pid_t pid;

	memset(report, 0, sizeof(*report));
	plant = planted;
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		child(device);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static void expect_quiet(void)
{
	assert_int_equal(report->quiet.syscall, -1);
	for (uint32_t i = 0; i < QUIET_COUNT; i++)
		assert_int_equal(report->quiet.n[i], 0);
	assert_true(report->resent > 1000);
}

static void bursts_over_a_ring_are_quiet(void **state)
{
	static const enum counter path[] = {CTR_ARP, CTR_ECHO, CTR_DROP_IP, CTR_DROP_IP_CSUM,
		CTR_DROP_UDP_CSUM, CTR_DROP_ARP, CTR_DROP_UDP_LEN, CTR_DROP_TX_NO_NEIGH};

	watch("net_ring0", false);
	expect_quiet();
	assert_true(report->taken > TURNS);
	for (size_t i = 0; i < sizeof(path) / sizeof(path[0]); i++)
		if (counter_get(&report->counters, path[i]) == 0)
			fail_msg("%s is 0", counter_name(path[i]));
}

static void bursts_over_a_null_device_are_quiet(void **state)
{
	watch("net_null0", false);
	expect_quiet();
	assert_true(counter_get(&report->counters, CTR_DROP_L2) > TURNS);
}

static void planted_allocation_is_seen(void **state)
{
	watch("net_null0", true);
	assert_true(report->quiet.n[QUIET_ALLOC] >= TURNS / 100 - 1);
	assert_int_equal(report->quiet.n[QUIET_LOCK], 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bursts_over_a_ring_are_quiet),
		cmocka_unit_test(bursts_over_a_null_device_are_quiet),
		cmocka_unit_test(planted_allocation_is_seen),
	};

	report = mmap(
		NULL, sizeof(*report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (report == MAP_FAILED)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
