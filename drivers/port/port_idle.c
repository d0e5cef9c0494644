/* SPDX-License-Identifier: BSD-3-Clause */
// How an idle worker sleeps and how it is woken. Each worker has an eventfd in an epoll set; with it, in
// this order: the device's rx interrupt; the packet socket behind af_packet or af_xdp, which those drivers
// do not offer but which is found among our descriptors; nothing, and then sleeps are short.
// Worker of the queue, outside its poll turn (these are system calls, and RCU is offline); port_wake: any.
// Pairing: a waker sets `wake`, then reads `asleep`; a sleeper sets `asleep`, then reads `wake`; all four
// sequentially consistent, so that one of the two sees the other.
#include "port_pvt.h"

#include <dirent.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <rte_ethdev.h>
#include <rte_interrupts.h>
#include <rte_pause.h>

#ifndef AF_XDP
#define AF_XDP 44
#endif

#define EMPTY_SPIN 32u  // empty turns before the first system call
#define EMPTY_YIELD 64u  // and before the first sleep, where nothing tells of frames
#define SLEEP_MAX_NS (100u * NS_PER_MS)  // never rely on a wake-up alone
#define TIER_MAX_NS NS_PER_MS
#define TIER_MIN_NS (20u * NS_PER_US)

static int socket_option(int fd, int name)
{
	int value = 0;
	socklen_t len = sizeof(value);

	return getsockopt(fd, SOL_SOCKET, name, &value, &len) == 0 ? value : -1;
}

static bool is_packet_socket(int fd, uint32_t if_index)
{
	const int domain = socket_option(fd, SO_DOMAIN);
	struct sockaddr_ll addr;
	socklen_t len = sizeof(addr);

	// an AF_XDP socket does not say what it is bound to
	if (domain == AF_XDP)
		return true;
	if (domain != AF_PACKET)
		return false;
	return if_index == 0 || (getsockname(fd, (struct sockaddr *)&addr, &len) == 0 &&
					addr.sll_ifindex == (int)if_index);
}

static int by_number(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

uint32_t port_idle_sockets(uint32_t if_index, int *fds, uint32_t max)
{
	DIR *dir = opendir("/proc/self/fd");
	const struct dirent *e;
	uint32_t n = 0;

	if (dir == NULL)
		return 0;
	while (n < max && (e = readdir(dir)) != NULL) {
		char *end;
		const long fd = strtol(e->d_name, &end, 10);

		if (end != e->d_name && *end == '\0' && is_packet_socket((int)fd, if_index))
			fds[n++] = (int)fd;
	}
	closedir(dir);
	qsort(fds, n, sizeof(fds[0]), by_number);
	return n;
}

// The device's sockets, in the order of its queues. Returns: true when there is one for each.
static bool find_sockets(
	const struct port *port, const int *before, uint32_t before_count, int *fds)
{
	int now[256];
	const uint32_t count = port_idle_sockets(port->if_index, now, 256);
	uint32_t found = 0;

	for (uint32_t i = 0; i < count; i++) {
		if (bsearch(&now[i], before, before_count, sizeof(int), by_number) != NULL)
			continue;
		if (found < WORKERS_MAX)
			fds[found] = now[i];
		found++;
	}
	return found == port->rx_queues;
}

static void close_fds(struct port_idle *idle)
{
	if (idle->epoll_fd >= 0)
		close(idle->epoll_fd);
	if (idle->event_fd >= 0)
		close(idle->event_fd);
	idle->epoll_fd = idle->event_fd = -1;
}

static int add_wake_fd(struct port_idle *idle)
{
	struct epoll_event event = {.events = EPOLLIN};

	close_fds(idle);
	idle->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	idle->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (idle->epoll_fd < 0 || idle->event_fd < 0)
		return -errno;
	event.data.fd = idle->event_fd;
	return epoll_ctl(idle->epoll_fd, EPOLL_CTL_ADD, idle->event_fd, &event) == 0 ? 0 : -errno;
}

// EAL's epoll keeps its own records in the set: the eventfd of such a worker is known through EAL too.
static int use_interrupts(struct port *port)
{
	for (uint16_t i = 0; i < port->rx_queues; i++) {
		struct port_idle *idle = &port->queue[i].idle;

		if (rte_eth_dev_rx_intr_ctl_q(
			    port->port_id, i, idle->epoll_fd, RTE_INTR_EVENT_ADD, NULL) != 0)
			return -ENOTSUP;
		if (epoll_ctl(idle->epoll_fd, EPOLL_CTL_DEL, idle->event_fd, NULL) != 0)
			return -errno;
		idle->wake_event = (struct rte_epoll_event){.epdata.event = EPOLLIN};
		if (rte_epoll_ctl(
			    idle->epoll_fd, EPOLL_CTL_ADD, idle->event_fd, &idle->wake_event) != 0)
			return -ENOTSUP;
	}
	return 0;
}

int port_idle_init(struct port *port, bool busy, const int *before, uint32_t before_count)
{
	int fds[WORKERS_MAX];
	const bool sockets = port->kernel_backed && find_sockets(port, before, before_count, fds);
	int rc = 0;

	for (uint16_t w = 0; rc == 0 && w < port->workers; w++)
		rc = add_wake_fd(&port->queue[w].idle);
	const bool interrupts = rc == 0 && !busy && port->interrupts && use_interrupts(port) == 0;

	// sets that were half made over to EAL start anew
	for (uint16_t w = 0; rc == 0 && !interrupts && port->interrupts && w < port->workers; w++)
		rc = add_wake_fd(&port->queue[w].idle);
	if (rc != 0)
		return rc;
	for (uint16_t w = 0; w < port->workers; w++) {
		struct port_queue *q = &port->queue[w];
		struct port_idle *idle = &q->idle;

		idle->mode = busy ? PORT_IDLE_BUSY : PORT_IDLE_TIERS;
		if (busy)
			continue;
		if (!q->has_rx) {
			idle->mode = PORT_IDLE_FD;  // woken by others only
		} else if (interrupts) {
			idle->mode = PORT_IDLE_INTERRUPT;
		} else if (sockets) {
			struct epoll_event event = {.events = EPOLLIN, .data.fd = fds[w]};

			idle->mode = PORT_IDLE_FD;
			idle->packet_fd = fds[w];
			if (epoll_ctl(idle->epoll_fd, EPOLL_CTL_ADD, fds[w], &event) != 0)
				return -errno;
		}
	}
	return 0;
}

void port_idle_fini(struct port *port)
{
	for (uint16_t w = 0; w < port->workers; w++) {
		struct port_queue *q = &port->queue[w];
		struct port_idle *idle = &q->idle;

		if (idle->mode == PORT_IDLE_INTERRUPT)
			rte_eth_dev_rx_intr_ctl_q(port->port_id, q->queue_id, idle->epoll_fd,
				RTE_INTR_EVENT_DEL, NULL);
		close_fds(idle);
	}
}

void port_wake(struct port *port, uint32_t worker)
{
	struct port_idle *idle = &port->queue[worker].idle;

	atomic_store(&idle->wake, 1);
	// one write per sleep, whoever comes first
	if (atomic_load(&idle->asleep) != 0 && atomic_exchange(&idle->asleep, 0) != 0) {
		const uint64_t one = 1;
		const ssize_t n = write(idle->event_fd, &one, sizeof(one));

		(void)n;  // a full counter wakes as well
	}
}

static void drain_wake_fd(struct port_idle *idle)
{
	uint64_t count;
	const ssize_t n = read(idle->event_fd, &count, sizeof(count));

	(void)n;  // nothing there: another descriptor ended the sleep
}

static int wait_epoll(struct port_idle *idle, uint64_t ns, struct epoll_event *event, int max)
{
	const struct timespec t = {
		.tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S)};
	int n = epoll_pwait2(idle->epoll_fd, event, max, &t, NULL);

	if (n < 0 && errno == ENOSYS)
		n = epoll_wait(idle->epoll_fd, event, max, (int)((ns + NS_PER_MS - 1) / NS_PER_MS));
	return n;
}

static void sleep_fd(struct port_idle *idle, uint64_t ns)
{
	struct epoll_event event[4];
	const int n = wait_epoll(idle, ns, event, 4);

	for (int i = 0; i < n; i++) {
		if (event[i].data.fd != idle->packet_fd ||
			(event[i].events & (EPOLLERR | EPOLLHUP)) == 0)
			continue;
		// the interface went down: the error stays until it is read, and may come again at once
		const struct timespec pause = {.tv_nsec = NS_PER_MS};

		socket_option(idle->packet_fd, SO_ERROR);
		nanosleep(&pause, NULL);
	}
}

static void sleep_interrupt(struct port_queue *q, uint64_t ns)
{
	struct rte_epoll_event event[4];
	const int ms = (int)((ns + NS_PER_MS - 1) / NS_PER_MS);

	if (rte_eth_dev_rx_intr_enable(q->port_id, q->queue_id) != 0) {
		sleep_fd(&q->idle, ns < TIER_MAX_NS ? ns : TIER_MAX_NS);
		return;
	}
	// what came before the interrupt was on would not raise it
	q->stash_count = rte_eth_rx_burst(q->port_id, q->queue_id, q->stash, BURST);
	if (q->stash_count == 0)
		rte_epoll_wait(q->idle.epoll_fd, event, 4, ms);
	rte_eth_dev_rx_intr_disable(q->port_id, q->queue_id);
}

// Sleeps grow with the number of empty turns, from tens of microseconds to a millisecond.
static uint64_t tier_ns(uint32_t empty)
{
	const uint32_t step = (empty - EMPTY_YIELD) / 16u;
	const uint64_t ns = TIER_MIN_NS << (step < 8 ? step : 8);

	return ns < TIER_MAX_NS ? ns : TIER_MAX_NS;
}

void port_idle_wait(struct port *port, uint32_t worker, uint64_t max_ns)
{
	struct port_queue *q = &port->queue[worker];
	struct port_idle *idle = &q->idle;

	if (idle->mode == PORT_IDLE_BUSY || idle->empty < EMPTY_SPIN || q->stash_count > 0 ||
		max_ns == 0) {
		if (atomic_load_explicit(&idle->wake, memory_order_relaxed) != 0) {
			atomic_store(&idle->wake, 0);
			idle->empty = 0;
		}
		idle->empty++;
		rte_pause();
		return;
	}
	if (idle->mode == PORT_IDLE_TIERS && idle->empty < EMPTY_YIELD) {
		idle->empty++;
		sched_yield();
		return;
	}
	uint64_t ns = max_ns < SLEEP_MAX_NS ? max_ns : SLEEP_MAX_NS;

	if (idle->mode == PORT_IDLE_TIERS) {
		const uint64_t tier = tier_ns(idle->empty);

		ns = ns < tier ? ns : tier;
		if (idle->empty < UINT16_MAX)
			idle->empty++;
	}
	if (q->pending.count > 0 && ns > 10u * NS_PER_MS)
		ns = 10u *
		     NS_PER_MS;  // requests are repeated and waiting ends by this worker's turns
	atomic_store(&idle->asleep, 1);
	if (atomic_load(&idle->wake) == 0 && wq_spsc_depth(&q->commands) == 0) {
		atomic_fetch_add_explicit(&idle->sleeps, 1, memory_order_relaxed);
		if (idle->mode == PORT_IDLE_INTERRUPT)
			sleep_interrupt(q, ns);
		else
			sleep_fd(idle, ns);
	}
	atomic_store(&idle->asleep, 0);
	drain_wake_fd(idle);
	// cleared before the turn that follows, which sees all that was handed over before the wake-up
	if (atomic_exchange(&idle->wake, 0) != 0)
		idle->empty = 0;
}
