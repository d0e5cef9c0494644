/* SPDX-License-Identifier: BSD-3-Clause */
// DPDK ethdev port of a node: EAL start from the configuration, queues, and below-UDP work: Ethernet,
// VLAN, ARP, IPv4, ICMP echo, UDP, checksums. Implements lib/wire's dgram_ops; a struct dgram lives in the
// private area of its mbuf. The one door to rte_ethdev.h.
// Threads: port_eal_*, port_open, port_close: main thread. dgram_ops: worker of the queue.
// port_control_step: control core.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base_counters.h"
#include "base_role.h"
#include "conf.h"
#include "dgram.h"

struct port;

// Builds EAL's arguments from the configuration and starts it. Returns: 0; -EINVAL, -EIO with `why`.
int port_eal_start(const struct conf *conf, const char **why);
void port_eal_stop(void);
// The arguments given to EAL, for the log.
const char *port_eal_args(void);

// Opens and starts the device of the configuration with a queue pair per worker. counters[w] are the
// workers' (the port counts its drops there). Returns: 0; -errno with `why` naming the device and what to do.
int port_open(const struct conf *conf, struct counters *const *counters, struct port **port,
	const char **why);
void port_close(struct port *port);

const struct dgram_ops *port_dgram_ops(void);
void *port_queue(struct port *port, uint32_t worker);

// Idle wait of one worker: sleeps until its queue has something, `wake` was called, or the deadline.
// Uses rx interrupts where the port has them, the packet socket of af_packet/af_xdp, else short sleeps.
// Context: that worker, RCU offline.
void port_idle_wait(struct port *port, uint32_t worker, uint64_t max_ns) WORKER_ONLY;
// Ends the sleep. Any thread.
void port_wake(struct port *port, uint32_t worker);

// Ages neighbours, sends ARP requests that are due, watches the link. Returns: work done.
uint32_t port_control_step(struct port *port, uint64_t now_ns) CONTROL_ONLY;

struct port_info {
	char device[64], driver[32];
	uint8_t mac[6];
	uint16_t mtu;
	uint16_t queues;  // rx queues; workers beyond them receive by hand-over only
	bool link_up;
	bool steered;  // the device puts a worker's datagrams into that worker's queue
	bool checksum_ip_hw;  // it checks IPv4 headers it receives
	bool checksum_udp_hw;  // it makes UDP checksums it sends
	uint32_t buffers, buffers_free, neighbours;
	uint64_t rx_missed, rx_nombuf, rx_errors, tx_errors;
};
// Context: any thread but a worker.
void port_info(struct port *port, struct port_info *info);

struct wq_monitor;
// Gives the monitor a sample of every ring between the port's threads. Context: the monitor's thread.
void port_queues(const struct port *port, struct wq_monitor *monitor);

// Runs fn(arg) on lcore of worker w; port_workers_wait joins all.
int port_worker_launch(uint32_t worker, int (*fn)(void *), void *arg);
void port_workers_wait(void);
