/* SPDX-License-Identifier: BSD-3-Clause */
// Asks the device to put datagrams for the UDP port of a worker into that worker's queue. A device that
// cannot do it for all of them does it for none; then lib/node hands datagrams over. Main thread.
#include "port_pvt.h"

#include <errno.h>

#include <rte_byteorder.h>
#include <rte_flow.h>

static int steer_one(struct port *port, uint16_t worker)
{
	const struct rte_flow_attr attr = {.ingress = 1};
	const struct rte_flow_item_udp port_is = {
		.hdr.dst_port = rte_cpu_to_be_16((uint16_t)(port->proto.udp_base + worker))};
	const struct rte_flow_item_udp port_mask = {.hdr.dst_port = 0xffff};
	const struct rte_flow_item_ipv4 ip_is = {.hdr.dst_addr = rte_cpu_to_be_32(port->proto.ip)};
	const struct rte_flow_item_ipv4 ip_mask = {.hdr.dst_addr = 0xffffffff};
	const struct rte_flow_action_queue to = {.index = worker};
	const struct rte_flow_item pattern[] = {
		{.type = RTE_FLOW_ITEM_TYPE_ETH},
		{.type = RTE_FLOW_ITEM_TYPE_IPV4, .spec = &ip_is, .mask = &ip_mask},
		{.type = RTE_FLOW_ITEM_TYPE_UDP, .spec = &port_is, .mask = &port_mask},
		{.type = RTE_FLOW_ITEM_TYPE_END},
	};
	const struct rte_flow_action actions[] = {
		{.type = RTE_FLOW_ACTION_TYPE_QUEUE, .conf = &to},
		{.type = RTE_FLOW_ACTION_TYPE_END},
	};
	struct rte_flow_error error;

	if (rte_flow_validate(port->port_id, &attr, pattern, actions, &error) != 0)
		return -ENOTSUP;
	return rte_flow_create(port->port_id, &attr, pattern, actions, &error) != NULL ? 0
										       : -ENOTSUP;
}

int port_steer(struct port *port)
{
	struct rte_flow_error error;

	// a tagged frame would need a pattern of its own, which fewer devices take
	if (port->rx_queues < 2 || port->rx_queues < port->workers || port->proto.vlan != 0)
		return -ENOTSUP;
	for (uint16_t w = 0; w < port->workers; w++) {
		if (steer_one(port, w) == 0)
			continue;
		if (w > 0)
			rte_flow_flush(port->port_id, &error);
		return -ENOTSUP;
	}
	return 0;
}
