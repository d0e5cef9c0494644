/* SPDX-License-Identifier: BSD-3-Clause */
// The control core's part: writes the neighbour table from what workers learnt, ages it, watches the link,
// describes the port. May log and make system calls; sends nothing itself, worker 0 does.
#include "port_pvt.h"
#include "wq_monitor.h"

#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <rte_ethdev.h>

#include "base_log.h"

#define LINK_NS (200u * NS_PER_MS)
#define IP_FMT "%u.%u.%u.%u"
#define IP_ARG(ip) (ip) >> 24, (ip) >> 16 & 255, (ip) >> 8 & 255, (ip)&255

static void wake_all(struct port *port)
{
	for (uint16_t w = 0; w < port->workers; w++)
		port_wake(port, w);
}

static bool learn(struct port *port, const struct port_event *e, uint64_t now_ns)
{
	switch ((enum port_event_kind)e->kind) {
	case PORT_LEARN:
		return neigh_set(port->neigh, e->ip, e->mac, false, now_ns) > 0;
	case PORT_CONFIRM:
		return neigh_confirm(port->neigh, e->ip, e->mac, now_ns) > 0;
	case PORT_CONFLICT:
		LOG(LOG_ERROR, "port", "address_conflict",
			"ip=" IP_FMT " is also used by mac=%02x:%02x:%02x:%02x:%02x:%02x",
			IP_ARG(e->ip), e->mac[0], e->mac[1], e->mac[2], e->mac[3], e->mac[4],
			e->mac[5]);
		return false;
	}
	return false;
}

static uint32_t take_events(struct port *port, uint64_t now_ns)
{
	const struct port_event *e;
	uint32_t work = 0;
	bool changed = false;

	for (uint16_t w = 0; w < port->workers; w++) {
		struct wq_spsc *ring = &port->queue[w].events;

		// bounded by the ring: a worker may go on filling it
		for (uint32_t left = PORT_EVENTS; left > 0 && (e = wq_spsc_peek(ring)) != NULL;
			left--) {
			changed |= learn(port, e, now_ns);
			wq_spsc_drop(ring);
			work++;
		}
	}
	// somebody may wait for just this
	if (changed)
		wake_all(port);
	return work;
}

static void command(struct port *port, uint32_t ip, const uint8_t *mac)
{
	struct port_command c = {.ip = ip, .unicast = mac != NULL};

	if (mac != NULL)
		memcpy(c.mac, mac, 6);
	// full: the next sweep asks again
	wq_spsc_push(&port->queue[0].commands, &c);
	port_wake(port, 0);
}

static uint32_t age(struct port *port, uint64_t now_ns)
{
	struct neigh_refresh refresh;
	const uint32_t removed = neigh_sweep(port->neigh, port->neighbour_ttl_ns, now_ns, &refresh);

	for (uint32_t i = 0; i < refresh.count; i++)
		command(port, refresh.item[i].ip, refresh.item[i].mac);
	return removed + refresh.count;
}

// af_packet says "up" for ever: its interface is asked instead.
static bool kernel_link_up(struct port *port)
{
	struct ifreq req = {0};

	if (port->link_socket < 0)
		port->link_socket = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (port->link_socket < 0 || if_indextoname(port->if_index, req.ifr_name) == NULL ||
		ioctl(port->link_socket, SIOCGIFFLAGS, &req) != 0)
		return false;
	return (req.ifr_flags & IFF_UP) != 0 && (req.ifr_flags & IFF_RUNNING) != 0;
}

static bool device_link_up(struct port *port)
{
	struct rte_eth_link link = {0};

	if (port->kernel_backed)
		return kernel_link_up(port);
	return rte_eth_link_get_nowait(port->port_id, &link) == 0 && link.link_status != 0;
}

static uint32_t watch_link(struct port *port, uint64_t now_ns)
{
	if (now_ns < port->next_link_ns)
		return 0;
	port->next_link_ns = now_ns + LINK_NS;
	const uint32_t up = device_link_up(port);

	if (up == atomic_load_explicit(&port->link_up, memory_order_relaxed))
		return 0;
	atomic_store_explicit(&port->link_up, up, memory_order_relaxed);
	LOG(up ? LOG_INFO : LOG_WARN, "port", up ? "link_up" : "link_down", "device=%s",
		port->device);
	// switches and stations may have forgotten, or never known, where we are
	if (up)
		command(port, port->proto.ip, NULL);
	return 1;
}

uint32_t port_control_step(struct port *port, uint64_t now_ns)
{
	return take_events(port, now_ns) + age(port, now_ns) + watch_link(port, now_ns);
}

static void add_ring(struct wq_monitor *monitor, const struct wq_spsc *ring, enum wq_label label)
{
	struct wq_sample sample;

	wq_spsc_stats(ring, label, &sample);
	wq_monitor_add(monitor, &sample);
}

void port_queues(const struct port *port, struct wq_monitor *monitor)
{
	for (uint32_t w = 0; w < port->workers; w++) {
		const struct port_queue *q = &port->queue[w];

		add_ring(monitor, &q->events, WQ_L_PORT_EVENTS);
		add_ring(monitor, &q->commands, WQ_L_PORT_COMMANDS);
		if (!q->has_tx)
			add_ring(monitor, &q->frames, WQ_L_PORT_FRAMES);
	}
}

void port_info(struct port *port, struct port_info *info)
{
	struct rte_eth_stats stats = {0};

	rte_eth_stats_get(port->port_id, &stats);
	*info = (struct port_info){
		.mtu = port->mtu,
		.queues = port->rx_queues,
		.link_up = atomic_load_explicit(&port->link_up, memory_order_relaxed),
		.steered = port->steered,
		.checksum_ip_hw = port->rx_ip_hw,
		.checksum_udp_hw = port->queue[0].udp_sum == PORT_SUM_OFFLOAD,
		.buffers = port->buffers,
		.buffers_free = rte_mempool_avail_count(port->pool),
		.neighbours = atomic_load_explicit(&port->neigh->count, memory_order_relaxed),
		.rx_missed = stats.imissed,
		.rx_nombuf = stats.rx_nombuf,
		.rx_errors = stats.ierrors,
		.tx_errors = stats.oerrors,
	};
	snprintf(info->device, sizeof(info->device), "%s", port->device);
	snprintf(info->driver, sizeof(info->driver), "%s", port->driver);
	memcpy(info->mac, port->proto.mac, 6);
}
