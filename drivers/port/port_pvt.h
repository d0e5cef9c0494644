/* SPDX-License-Identifier: BSD-3-Clause */
// The inside of the port, for drivers/port and its tests. Each group of fields names its owner.
//
//   port_args.c     EAL's arguments, core map, device options; strings only     main thread
//   port_eal.c      EAL start and stop, worker launch                           main thread
//   port.c          open and close, queues, pool; alloc, free, hold             main thread; worker
//   port_steer.c    flow rules: UDP port of a worker to its queue               main thread
//   port_proto.c    protocols as bytes                                          any
//   port_neigh.c    neighbour table                                             control core; lookup: worker
//   port_rx.c       frames in, ARP and ping answers                             worker
//   port_tx.c       datagrams out, frames of workers without a queue            worker
//   port_pending.c  datagrams that wait for a link address                      worker
//   port_idle.c     sleeping and waking                                         worker; wake: any
//   port_control.c  learning, ageing, link; port_info                           control core
//
// Frames of a worker that has no tx queue (the device offers fewer than there are workers) go through a
// one-to-one ring to worker `via`, which sends them in its turn. A worker without an rx queue receives
// nothing: what is meant for it arrives at others, and lib/node hands it over.
#pragma once

#include <rte_cycles.h>
#include <rte_epoll.h>
#include <rte_mbuf.h>

#undef NS_PER_S  // DPDK's is a floating-point number
#include "base_role.h"
#include "base_time.h"
#include "port.h"
#include "port_neigh.h"
#include "port_proto.h"
#include "wq_spsc.h"

#define PORT_TEMPLATES 512u  // per worker, direct-mapped; 32 KiB
#define PORT_TX_RETRIES 16u  // of a burst the device takes nothing of
#define PORT_TX_RING 1024u  // frames on the way to another worker's queue
#define PORT_EVENTS 128u  // things learnt, on the way to the control core
#define PORT_COMMANDS 128u  // requests to send, from the control core
#define PORT_PENDING 128u  // datagrams of one worker that wait for a link address
#define PORT_PENDING_HOPS 16u  // next hops they may wait for
#define PORT_PENDING_PER_HOP 32u  // so that one dead station leaves room for others
#define PORT_PENDING_NS NS_PER_S  // how long they wait
#define PORT_REQUEST_NS (100u * NS_PER_MS)  // first repeat of an ARP request; doubles
#define PORT_REQUEST_MAX_NS (2u * NS_PER_S)

// worker -> control
enum port_event_kind { PORT_LEARN, PORT_CONFIRM, PORT_CONFLICT };
struct port_event {
	uint32_t ip;
	uint8_t mac[6];
	uint8_t kind;
};

// control -> worker 0: send an ARP request
struct port_command {
	uint32_t ip;
	uint8_t mac[6];
	bool unicast;
};

struct port_pending_hop {
	uint32_t ip;  // 0: free
	uint32_t waiting;
	uint64_t next_request_ns, interval_ns;
};
struct port_pending {
	uint32_t count;
	uint32_t seen_generation, seen_additions;
	uint64_t next_ns;  // earliest request or deadline
	struct port_pending_hop hop[PORT_PENDING_HOPS];
	struct {
		struct rte_mbuf *m;
		uint32_t hop;
		uint64_t deadline_ns;
	} item[PORT_PENDING];
};

// How a worker can sleep.
enum port_idle_mode {
	PORT_IDLE_TIERS,  // nothing tells of frames: short sleeps
	PORT_IDLE_FD,  // the device's packet socket in an epoll set
	PORT_IDLE_INTERRUPT,  // rx interrupts
	PORT_IDLE_BUSY,  // configured: never
};

struct port_idle {
	// any: rw
	_Alignas(64) _Atomic uint32_t wake;
	_Atomic uint32_t asleep;
	// both: ro after open
	_Alignas(64) enum port_idle_mode mode;
	int event_fd, epoll_fd, packet_fd;
	struct rte_epoll_event wake_event;  // INTERRUPT: EAL's record of event_fd
	// worker: rw
	uint32_t empty;  // calls in a row without a frame or a wake-up
	_Atomic uint64_t sleeps;
};

struct port_queue {
	// all: ro after open
	struct port *port;
	struct counters *counters;
	struct rte_mempool *pool;
	struct neigh_table *neigh;
	const struct port_proto *proto;
	uint16_t port_id, worker;
	uint16_t queue_id;  // rx and tx, where it has them
	bool has_rx, has_tx;
	enum port_udp_sum udp_sum;
	uint16_t via;  // worker that sends for it when it has no tx queue
	uint16_t feeders;  // number of workers it sends for
	uint16_t payload_max;  // MTU - 28
	uint64_t tx_flags;  // of every datagram's mbuf
	// worker: rw
	struct port_template *templates;
	struct port_pending pending;
	uint16_t stash_count;
	struct rte_mbuf *stash[BURST];
	// rings: this worker produces events and frames, consumes commands
	struct wq_spsc events, commands, frames;
	struct port_idle idle;
};

struct port {
	// all: ro after open
	uint16_t port_id, workers, rx_queues, tx_queues, mtu;
	bool started, probed, af_packet, kernel_backed, interrupts, steered, rx_ip_hw;
	char device[64], driver[32];
	uint32_t buffers, if_index;
	uint64_t neighbour_ttl_ns, tsc_hz;
	struct port_proto proto;
	struct rte_mempool *pool;
	struct neigh_table *neigh;
	// control: rw
	uint64_t next_link_ns;
	int link_socket;
	_Atomic uint32_t link_up;
	struct port_queue queue[WORKERS_MAX];
};

static inline struct rte_mbuf *port_mbuf(const struct dgram *d)
{
	return (struct rte_mbuf *)((uintptr_t)d - sizeof(struct rte_mbuf));
}

static inline struct dgram *port_dgram(struct rte_mbuf *m)
{
	return rte_mbuf_to_priv(m);
}

// Nanoseconds of a clock of this machine; not the node's. Read only where something waits.
uint64_t port_clock_ns(const struct port *port);

// Sends frames as they are. Owns: takes them; what does not go is freed and counted.
void port_tx_frames(struct port_queue *q, struct rte_mbuf **m, uint16_t n);
void port_tx_datagrams(void *queue, struct dgram **d, uint16_t n);
// Sends what workers without a tx queue left for this one.
void port_tx_feeders(struct port_queue *q);
// The template of `ip`, or NULL when its next hop (*hop, 0: none) has no known link address.
struct port_template *port_tx_template(struct port_queue *q, uint32_t ip, uint32_t *hop);
// Writes headers before the datagram and points the mbuf at them.
struct rte_mbuf *port_tx_build(
	struct port_queue *q, struct dgram *d, const struct port_template *t);

uint16_t port_rx_datagrams(void *queue, struct dgram **d, uint16_t n);

// Keeps a datagram until `hop` is known, asks for it. Owns: takes it; no room: freed and counted.
void port_pending_add(struct port_queue *q, struct dgram *d, uint32_t hop);
void port_pending_step(struct port_queue *q);
void port_pending_free(struct port_queue *q);
void port_send_request(struct port_queue *q, uint32_t ip, const uint8_t *mac);

int port_steer(struct port *port);

// Sockets of this process of family AF_PACKET (bound to if_index) or AF_XDP, ascending. Returns: number.
uint32_t port_idle_sockets(uint32_t if_index, int *fds, uint32_t max);
// Chooses how each worker sleeps. `before`: sockets there were before the device. Returns: 0, -errno.
int port_idle_init(struct port *port, bool busy, const int *before, uint32_t before_count);
void port_idle_fini(struct port *port);
