/* SPDX-License-Identifier: BSD-3-Clause */
// Opens the configured device with a queue pair per worker, as far as it has them, and the buffers of all
// datagrams; gives lib/node its dgram_ops. Owns struct port. Open and close: main thread, before and
// after the others; the ops: the worker of the queue.
//
// One pool for all workers: datagrams are freed by other workers than took them. Its ring is of the
// relaxed-tail kind, as a default one stalls for milliseconds when a thread that holds its tail is
// preempted; each worker's cache hides its price. Device memory is never chained, and MBUF_FAST_FREE
// is never asked for: a datagram that may be sent again has two references.
#include "port_args.h"
#include "port_pvt.h"

#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <rte_cycles.h>
#include <rte_dev.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_ring.h>

#define PRIVATE_BYTES 64u  // struct dgram, and payloads stay cache-line aligned
#define CACHE_MAX 256u
#define DESCRIPTORS_DEFAULT 1024u
#define LINK_WAIT_MS 2000
#define PEER_WAIT_MS 5000  // of a memif client for its server's socket
#define L2_OVERHEAD 22u  // Ethernet header, check sequence, VLAN tag
_Static_assert(sizeof(struct dgram) <= PRIVATE_BYTES, "a datagram fits beside its buffer");
_Static_assert(
	RTE_PKTMBUF_HEADROOM >= PORT_TEMPLATE_BYTES, "templates are written into the headroom");

static void sleep_ms(long ms)
{
	const struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

	nanosleep(&t, NULL);
}

static bool driver_is(const struct port *port, const char *name)
{
	return strcmp(port->driver, name) == 0;
}

uint64_t port_clock_ns(const struct port *port)
{
	const uint64_t tsc = rte_rdtsc();

	return tsc / port->tsc_hz * NS_PER_S + tsc % port->tsc_hz * NS_PER_S / port->tsc_hz;
}

// Makes the device known to EAL. A virtual one is added here and not by --vdev, whose failure EAL hides.
static int probe(struct port *port, const struct port_device *device, const char **why)
{
	if (!device->pci) {
		// adding it again would succeed and hand out the same port
		if (rte_eth_dev_get_port_by_name(device->name, &port->port_id) == 0) {
			*why = port_why("port.device: %s is in use", device->name);
			return -EBUSY;
		}
		const int rc = rte_eal_hotplug_add("vdev", device->name, device->options);

		if (rc != 0) {
			*why = port_why(
				"port.device: %s,%s: %s; a privilege, an interface or a driver is "
				"missing",
				device->name, device->options, strerror(-rc));
			return -ENODEV;
		}
		port->probed = true;
	}
	if (rte_eth_dev_get_port_by_name(device->name, &port->port_id) == 0)
		return 0;
	char full[80];

	snprintf(full, sizeof(full), "0000:%s", device->name);
	if (device->pci && rte_eth_dev_get_port_by_name(full, &port->port_id) == 0)
		return 0;
	*why = port_why(
		"port.device: %s is not there as a port; a PCI device must be bound to vfio-pci",
		device->name);
	return -ENODEV;
}

static int check_kernel_mtu(struct port *port, const char **why)
{
	struct ifreq req = {0};
	const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || if_indextoname(port->if_index, req.ifr_name) == NULL ||
		ioctl(fd, SIOCGIFMTU, &req) != 0) {
		*why = port_why("port.device: %s: cannot read the interface's MTU: %s",
			port->device, strerror(errno));
		if (fd >= 0)
			close(fd);
		return -ENODEV;
	}
	close(fd);
	if (req.ifr_mtu >= port->mtu)
		return 0;
	*why = port_why("port.mtu %u is above the MTU %d of interface %s", port->mtu, req.ifr_mtu,
		req.ifr_name);
	return -EINVAL;
}

static uint16_t queues_of(uint16_t workers, uint16_t max)
{
	if (max == 0)
		return 1;
	return workers < max ? workers : max;
}

static int describe(
	struct port *port, const struct conf *conf, struct rte_eth_dev_info *info, const char **why)
{
	struct rte_ether_addr mac;

	if (rte_eth_dev_info_get(port->port_id, info) != 0 ||
		rte_eth_macaddr_get(port->port_id, &mac) != 0) {
		*why = port_why("port.device: %s does not describe itself", port->device);
		return -EIO;
	}
	snprintf(port->driver, sizeof(port->driver), "%s", info->driver_name);
	memcpy(port->proto.mac, mac.addr_bytes, 6);
	port->if_index = info->if_index;
	port->af_packet = driver_is(port, "net_af_packet");
	port->kernel_backed = port->af_packet || driver_is(port, "net_af_xdp");
	// we are the peer of a tap's interface, and the driver reports the interface's own address
	if (driver_is(port, "net_tap"))
		port->proto.mac[5] ^= 1;
	port->rx_queues = queues_of(port->workers, info->max_rx_queues);
	port->tx_queues = queues_of(port->workers, info->max_tx_queues);
	const uint32_t held = port->af_packet ? 0 : port->rx_queues * conf->port.rx_descriptors;
	const uint32_t need = held + port->workers * 8u * BURST;

	if (port->buffers < need) {
		*why = port_why(
			"port.buffers %u: %u workers with %u rx descriptors need at least %u",
			port->buffers, port->workers, conf->port.rx_descriptors, need);
		return -EINVAL;
	}
	return port->kernel_backed ? check_kernel_mtu(port, why) : 0;
}

static int make_pool(struct port *port, const struct port_device *device, const char **why)
{
	uint32_t frame = RTE_ALIGN_CEIL(port->mtu + L2_OVERHEAD, 1024u);
	const uint32_t cache = RTE_MIN(CACHE_MAX, port->buffers / (8u * port->workers));
	char name[32];

	// 1 KiB steps: registers of several NICs know no finer ones
	frame = RTE_MAX(RTE_MAX(frame, 2048u), device->frame_bytes);
	snprintf(name, sizeof(name), "tagcast_port_%u", port->port_id);
	port->pool = rte_pktmbuf_pool_create_by_ops(name, port->buffers, cache, PRIVATE_BYTES,
		(uint16_t)(frame + RTE_PKTMBUF_HEADROOM), rte_eth_dev_socket_id(port->port_id),
		"ring_mt_rts");
	if (port->pool != NULL)
		return 0;
	*why = port_why(
		"port.buffers: no room for %u buffers of %u bytes (%s): raise eal.memory or lower "
		"port.buffers",
		port->buffers, frame, rte_strerror(rte_errno));
	return -ENOMEM;
}

static void device_conf(const struct port *port, const struct rte_eth_dev_info *info,
	bool interrupts, struct rte_eth_conf *c)
{
	const uint64_t hash =
		(RTE_ETH_RSS_IP | RTE_ETH_RSS_NONFRAG_IPV4_UDP) & info->flow_type_rss_offloads;

	memset(c, 0, sizeof(*c));
	// these two announce a constant and refuse more, but carry what their slots hold; and no driver's
	// set_mtu is ever called: some write through to the kernel's interface, for good
	const bool any_size = port->af_packet || driver_is(port, "net_memif");

	c->rxmode.mtu = any_size ? RTE_MIN(port->mtu, (uint16_t)RTE_ETHER_MTU) : port->mtu;
	c->rxmode.offloads = info->rx_offload_capa &
			     (RTE_ETH_RX_OFFLOAD_IPV4_CKSUM | RTE_ETH_RX_OFFLOAD_UDP_CKSUM);
	c->txmode.offloads = info->tx_offload_capa & RTE_ETH_TX_OFFLOAD_UDP_CKSUM;
	if (port->rx_queues > 1 && hash != 0) {
		c->rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
		c->rx_adv_conf.rss_conf.rss_hf = hash;
	}
	c->intr_conf.rxq = interrupts;
}

static int start_device(struct port *port)
{
	int rc = rte_eth_dev_start(port->port_id);

	// a memif client cannot start before its server listens
	for (int ms = 0; rc != 0 && driver_is(port, "net_memif") && ms < PEER_WAIT_MS; ms += 50) {
		sleep_ms(50);
		rc = rte_eth_dev_start(port->port_id);
	}
	return rc;
}

// Configures and starts. Returns: 0; -errno with *what naming the step.
static int bring_up(struct port *port, const struct conf *conf, const struct rte_eth_dev_info *info,
	bool interrupts, const char **what)
{
	struct rte_eth_conf c;
	uint16_t rxd = (uint16_t)RTE_MIN(conf->port.rx_descriptors, (uint32_t)UINT16_MAX);
	uint16_t txd = (uint16_t)RTE_MIN(conf->port.tx_descriptors, (uint32_t)UINT16_MAX);
	const int socket = rte_eth_dev_socket_id(port->port_id);

	rxd = rxd != 0 ? rxd : DESCRIPTORS_DEFAULT;
	txd = txd != 0 ? txd : DESCRIPTORS_DEFAULT;
	device_conf(port, info, interrupts, &c);
	*what = "configure";
	int rc = rte_eth_dev_configure(port->port_id, port->rx_queues, port->tx_queues, &c);

	if (rc != 0)
		return rc;
	*what = "descriptors";
	rc = rte_eth_dev_adjust_nb_rx_tx_desc(port->port_id, &rxd, &txd);
	struct rte_eth_rxconf rx = info->default_rxconf;
	struct rte_eth_txconf tx = info->default_txconf;

	rx.offloads = c.rxmode.offloads;
	tx.offloads = c.txmode.offloads;
	for (uint16_t i = 0; rc == 0 && i < port->rx_queues; i++) {
		*what = "rx queue";
		rc = rte_eth_rx_queue_setup(
			port->port_id, i, rxd, (unsigned)socket, &rx, port->pool);
	}
	for (uint16_t i = 0; rc == 0 && i < port->tx_queues; i++) {
		*what = "tx queue";
		rc = rte_eth_tx_queue_setup(port->port_id, i, txd, (unsigned)socket, &tx);
	}
	if (rc != 0)
		return rc;
	*what = "start";
	rc = start_device(port);
	port->started = rc == 0;
	port->interrupts = interrupts && rc == 0;
	port->rx_ip_hw = (c.rxmode.offloads & RTE_ETH_RX_OFFLOAD_IPV4_CKSUM) != 0;
	for (uint16_t i = 0; i < port->workers; i++) {
		if (conf->port.checksum == CONF_CHECKSUM_OFF)
			port->queue[i].udp_sum = PORT_SUM_NONE;
		else if ((c.txmode.offloads & RTE_ETH_TX_OFFLOAD_UDP_CKSUM) != 0)
			port->queue[i].udp_sum = PORT_SUM_OFFLOAD;
		else
			port->queue[i].udp_sum = PORT_SUM_MADE;
	}
	return rc;
}

// Drivers that have no rx interrupts, some of which take the request and then do nothing.
static bool may_interrupt(const struct port *port)
{
	static const char *const without[] = {
		"net_af_packet", "net_af_xdp", "net_memif", "net_null", "net_ring", "net_pcap"};

	for (size_t i = 0; i < RTE_DIM(without); i++)
		if (driver_is(port, without[i]))
			return false;
	return true;
}

static int start(struct port *port, const struct conf *conf, const struct rte_eth_dev_info *info,
	const char **why)
{
	const bool busy = conf->workers.idle == CONF_IDLE_BUSY;
	const char *what = "";
	int rc = -ENOTSUP;

	if (!busy && may_interrupt(port))
		rc = bring_up(port, conf, info, true, &what);
	if (rc != 0)
		rc = bring_up(port, conf, info, false, &what);
	if (rc != 0) {
		*why = port_why("port.device: %s (%s) with %u rx and %u tx queues, MTU %u: %s: %s",
			port->device, port->driver, port->rx_queues, port->tx_queues, port->mtu,
			what, strerror(-rc));
		return rc;
	}
	if (driver_is(port, "net_tap"))
		rte_eth_promiscuous_enable(port->port_id);
	port->steered = port_steer(port) == 0;
	// a memif is up when its peer comes, which may be never
	for (int ms = 0; ms < LINK_WAIT_MS && !driver_is(port, "net_memif"); ms += 10) {
		struct rte_eth_link link = {0};

		if (rte_eth_link_get_nowait(port->port_id, &link) != 0 || link.link_status != 0)
			break;
		sleep_ms(10);
	}
	return 0;
}

static int make_queue(struct port *port, uint16_t w)
{
	struct port_queue *q = &port->queue[w];

	q->port = port;
	q->port_id = port->port_id;
	q->worker = w;
	q->queue_id = w;
	q->pool = port->pool;
	q->neigh = port->neigh;
	q->proto = &port->proto;
	q->has_rx = w < port->rx_queues;
	q->has_tx = w < port->tx_queues;
	q->via = w;
	if (!q->has_tx)
		q->via = (uint16_t)(w % port->tx_queues);
	q->payload_max = (uint16_t)(port->mtu - PORT_IP_LEN - PORT_UDP_LEN);
	if (q->udp_sum == PORT_SUM_OFFLOAD)
		q->tx_flags = RTE_MBUF_F_TX_IPV4 | RTE_MBUF_F_TX_UDP_CKSUM;
	q->templates = aligned_alloc(64, PORT_TEMPLATES * sizeof(*q->templates));
	if (q->templates == NULL)
		return -ENOMEM;
	memset(q->templates, 0, PORT_TEMPLATES * sizeof(*q->templates));
	if (wq_spsc_init(&q->events, PORT_EVENTS, sizeof(struct port_event)) != 0 ||
		wq_spsc_init(&q->commands, PORT_COMMANDS, sizeof(struct port_command)) != 0)
		return -ENOMEM;
	if (q->has_tx)
		return 0;
	port->queue[q->via].feeders++;
	return wq_spsc_init(&q->frames, PORT_TX_RING, sizeof(struct rte_mbuf *));
}

static int make_queues(struct port *port, const struct conf *conf, struct counters *const *counters,
	const char **why)
{
	*why = "port: no memory";
	port->neigh = neigh_create();
	if (port->neigh == NULL)
		return -ENOMEM;
	for (uint16_t w = 0; w < port->workers; w++) {
		port->queue[w].counters = counters[w];
		const int rc = make_queue(port, w);

		if (rc != 0)
			return rc;
	}
	for (uint32_t i = 0; i < conf->port.neighbour_count; i++) {
		const struct conf_neighbour *n = &conf->port.neighbours[i];

		if (neigh_set(port->neigh, n->ip, n->mac, true, 0) < 0) {
			*why = "port.neighbours: too many that share a table row";
			return -EINVAL;
		}
	}
	const struct port_command announce = {.ip = port->proto.ip};

	wq_spsc_push(&port->queue[0].commands, &announce);
	return 0;
}

static struct port *make_port(const struct conf *conf)
{
	struct port *port = aligned_alloc(64, RTE_ALIGN_CEIL(sizeof(*port), 64));

	if (port == NULL)
		return NULL;
	memset(port, 0, sizeof(*port));
	port->workers = (uint16_t)conf->workers.count;
	port->mtu = conf->port.mtu;
	port->buffers = conf->port.buffers;
	port->neighbour_ttl_ns = conf->port.neighbour_ttl_ns;
	port->tsc_hz = rte_get_tsc_hz();
	port->link_socket = -1;
	port->proto = (struct port_proto){
		.vlan = conf->port.vlan,
		.ip = conf->port.ip,
		.netmask =
			conf->port.prefix_len == 0 ? 0 : UINT32_MAX << (32 - conf->port.prefix_len),
		.gateway = conf->port.gateway_ip,
		.udp_base = conf->port.udp_base,
		.udp_count = port->workers,
		.verify_udp = conf->port.checksum == CONF_CHECKSUM_ON,
	};
	for (uint16_t w = 0; w < WORKERS_MAX; w++) {
		port->queue[w].idle.event_fd = -1;
		port->queue[w].idle.epoll_fd = -1;
		port->queue[w].idle.packet_fd = -1;
	}
	return port;
}

int port_open(const struct conf *conf, struct counters *const *counters, struct port **out,
	const char **why)
{
	struct rte_eth_dev_info info;
	struct port_device device;
	int before[256];

	if (conf->workers.count < 1 || conf->workers.count > WORKERS_MAX ||
		conf->port.mtu < MTU_MIN || conf->port.mtu > MTU_MAX || conf->port.ip == 0 ||
		conf->port.prefix_len > 32) {
		*why = "port: workers.count, port.mtu or port.address is outside its range";
		return -EINVAL;
	}
	int rc = port_args_device(
		conf->port.device, conf->workers.count, conf->port.mtu, &device, why);

	if (rc != 0)
		return rc;
	struct port *port = make_port(conf);

	if (port == NULL) {
		*why = "port: no memory";
		return -ENOMEM;
	}
	snprintf(port->device, sizeof(port->device), "%s", device.name);
	const uint32_t before_count = port_idle_sockets(0, before, RTE_DIM(before));

	rc = probe(port, &device, why);
	if (rc == 0)
		rc = describe(port, conf, &info, why);
	if (rc == 0)
		rc = make_pool(port, &device, why);
	if (rc == 0)
		rc = start(port, conf, &info, why);
	if (rc == 0)
		rc = make_queues(port, conf, counters, why);
	if (rc == 0) {
		rc = port_idle_init(
			port, conf->workers.idle == CONF_IDLE_BUSY, before, before_count);
		if (rc != 0)
			*why = port_why("port: idle waiting: %s", strerror(-rc));
	}
	if (rc != 0) {
		port_close(port);
		return rc;
	}
	*out = port;
	return 0;
}

void port_close(struct port *port)
{
	if (port == NULL)
		return;
	port_idle_fini(port);
	if (port->started)
		rte_eth_dev_stop(port->port_id);
	for (uint16_t w = 0; w < port->workers; w++) {
		struct port_queue *q = &port->queue[w];

		port_pending_free(q);
		wq_spsc_fini(&q->events);
		wq_spsc_fini(&q->commands);
		wq_spsc_fini(&q->frames);
		free(q->templates);
	}
	if (port->probed || port->pool != NULL)
		rte_eth_dev_close(port->port_id);
	if (port->probed)
		rte_eal_hotplug_remove("vdev", port->device);
	if (port->link_socket >= 0)
		close(port->link_socket);
	rte_mempool_free(port->pool);
	neigh_destroy(port->neigh);
	free(port);
}

void *port_queue(struct port *port, uint32_t worker)
{
	return &port->queue[worker];
}

static uint16_t alloc_datagrams(void *queue, struct dgram **d, uint16_t n)
{
	struct port_queue *q = queue;
	struct rte_mbuf *m[BURST];

	if (n > BURST || rte_pktmbuf_alloc_bulk(q->pool, m, n) != 0)
		return 0;
	for (uint16_t i = 0; i < n; i++) {
		d[i] = port_dgram(m[i]);
		*d[i] = (struct dgram){
			.data = rte_pktmbuf_mtod(m[i], uint8_t *), .room = q->payload_max};
	}
	return n;
}

static void free_datagrams(void *queue, struct dgram **d, uint16_t n)
{
	struct rte_mbuf *m[BURST];

	if (n == 1) {
		rte_pktmbuf_free(port_mbuf(d[0]));
		return;
	}
	for (uint16_t i = 0; i < n;) {
		uint16_t k = 0;

		while (k < BURST && i < n)
			m[k++] = port_mbuf(d[i++]);
		rte_pktmbuf_free_bulk(m, k);
	}
}

static void hold_datagram(struct dgram *d)
{
	rte_mbuf_refcnt_update(port_mbuf(d), 1);
}

static bool exclusive_datagram(const struct dgram *d)
{
	return rte_mbuf_refcnt_read(port_mbuf(d)) == 1;
}

// The ring below the pool; what workers' caches hold comes on top. rte_mempool_avail_count would walk
// the caches of all lcores.
static uint32_t available_datagrams(void *queue)
{
	const struct port_queue *q = queue;

	return rte_ring_count(q->pool->pool_data);
}

const struct dgram_ops *port_dgram_ops(void)
{
	static const struct dgram_ops ops = {
		.rx = port_rx_datagrams,
		.tx = port_tx_datagrams,
		.alloc = alloc_datagrams,
		.free = free_datagrams,
		.hold = hold_datagram,
		.exclusive = exclusive_datagram,
		.available = available_datagrams,
	};

	return &ops;
}
