/* SPDX-License-Identifier: BSD-3-Clause */
// A port against the kernel's own network stack: ping, ARP both ways, UDP of every length, fragments, bad
// checksums, a link that goes down, and what it costs to be idle. The port lives in one network namespace,
// the kernel's sockets in another; both are anonymous, so they and the interfaces in them end with this
// process however it ends. One file because all of it
// stands on the same namespaces and threads.
//   port_kernel_test one|two|four|vlan|jumbo|xdp|tap
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <netinet/ip_icmp.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "port_pvt.h"

#define SKIP 77
#define NODE_IP 0x0a090001u  // 10.9.0.1
#define KERNEL_IP 0x0a090002u  // 10.9.0.2
#define OTHER_IP 0x0a090003u  // 10.9.0.3, unknown to the port until it asks
#define BASE 7000u
#define CLIENT_PORT 6000u
#define WAIT_NS (10 * NS_PER_S)

struct variant {
	const char *name, *device, *kernel_if;
	uint32_t workers, queues;
	uint16_t mtu, vlan;
	enum port_idle_mode idle;
};
static const struct variant variants[] = {
	{"one", "net_af_packet0,iface=e0", "p0", 1, 1, 1500, 0, PORT_IDLE_FD},
	{"two", "net_af_packet0,iface=e0", "p0", 2, 2, 1500, 0, PORT_IDLE_FD},
	{"four", "net_af_packet0,iface=e0,qpairs=1", "p0", 4, 1, 1500, 0, PORT_IDLE_FD},
	{"vlan", "net_af_packet0,iface=e0", "p0", 1, 1, 1500, 10, PORT_IDLE_FD},
	{"jumbo", "net_af_packet0,iface=e0", "p0", 1, 1, 9000, 0, PORT_IDLE_FD},
	{"xdp", "net_af_xdp0,iface=e0,busy_budget=0", "p0", 1, 1, 1500, 0, PORT_IDLE_FD},
	{"tap", "net_tap0,iface=t0", "t0", 1, 1, 1500, 0, PORT_IDLE_INTERRUPT},
};

static const struct variant *variant;
static int node_ns, kernel_ns;
static int udp = -1, ping = -1;
static struct port *port;
static struct counters *counters[WORKERS_MAX];
static struct wq_spsc hand[WORKERS_MAX][WORKERS_MAX];  // [from][to]
static _Atomic int stop;
static _Atomic uint32_t send_to;  // address worker 0 shall send one datagram to
static pthread_t control;

// Jumbo buffers are large, and af_xdp starts with no fewer than some thousands.
static uint32_t buffers(void)
{
	return variant->mtu > 1500 ? 2048 : 8192;
}

static bool is_tap(void)
{
	return strcmp(variant->name, "tap") == 0;
}

// --- the node ---------------------------------------------------------------------------------------------

static void echo(uint32_t w, struct dgram *d)
{
	port_dgram_ops()->tx(port_queue(port, w), &d, 1);
}

static uint32_t worker_turn(uint32_t w)
{
	const struct dgram_ops *ops = port_dgram_ops();
	struct dgram *d[BURST], **handed;
	const uint16_t n = ops->rx(port_queue(port, w), d, BURST);
	uint32_t work = n;

	for (uint16_t i = 0; i < n; i++) {
		const uint32_t to = d[i]->local_port - BASE;

		if (to == w) {
			echo(w, d[i]);
			continue;
		}
		if (!wq_spsc_push(&hand[w][to], &d[i]))
			ops->free(port_queue(port, w), &d[i], 1);
		port_wake(port, to);
	}
	for (uint32_t from = 0; from < variant->workers; from++) {
		while ((handed = wq_spsc_peek(&hand[from][w])) != NULL) {
			struct dgram *one = *handed;

			wq_spsc_drop(&hand[from][w]);
			echo(w, one);
			work++;
		}
	}
	if (w == 0 && atomic_load(&send_to) != 0 && ops->alloc(port_queue(port, 0), d, 1) == 1) {
		d[0]->len = 5;
		memcpy(d[0]->data, "hello", 5);
		d[0]->local_port = BASE;
		d[0]->peer =
			(struct net_addr){.ip = atomic_exchange(&send_to, 0), .port = CLIENT_PORT};
		echo(0, d[0]);
		work++;
	}
	return work;
}

static int worker_main(void *arg)
{
	const uint32_t w = (uint32_t)(uintptr_t)arg;

	role_take_worker();
	while (!atomic_load(&stop))
		if (worker_turn(w) == 0)
			port_idle_wait(port, w, 100 * NS_PER_MS);
	role_drop_worker();
	return 0;
}

static void *control_main(void *arg)
{
	const struct timespec pause = {.tv_nsec = 5000000};

	role_take_control();
	while (!atomic_load(&stop)) {
		port_control_step(port, time_now_ns());
		nanosleep(&pause, NULL);
	}
	role_drop_control();
	return NULL;
}

static uint64_t sum(enum counter id)
{
	uint64_t total = 0;

	for (uint32_t w = 0; w < variant->workers; w++)
		total += counter_get(counters[w], id);
	return total;
}

// --- the kernel's side ------------------------------------------------------------------------------------

// Runs a command in a namespace. Returns: its exit status.
static int run_in(int ns, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static int run_in(int ns, const char *fmt, ...)
{
	char command[512];
	va_list ap;
	int status;

	va_start(ap, fmt);
	vsnprintf(command, sizeof(command), fmt, ap);
	va_end(ap);
	const pid_t pid = fork();

	if (pid == 0) {
		if (setns(ns, CLONE_NEWNET) != 0)
			_exit(126);
		execl("/bin/sh", "sh", "-c", command, (char *)NULL);
		_exit(127);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return -1;
	if (status != 0)
		print_error("%s: status %d\n", command, status);
	return status;
}

static int make_namespaces(void)
{
	static const char quiet[] =
		"ip link set lo up; echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6; "
		"echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6";
	if (unshare(CLONE_NEWNET) != 0)
		return SKIP;
	kernel_ns = open("/proc/self/ns/net", O_RDONLY);
	if (unshare(CLONE_NEWNET) != 0)
		return SKIP;
	node_ns = open("/proc/self/ns/net", O_RDONLY);
	if (is_tap()) {
		kernel_ns = node_ns;  // the interface appears where the port is opened
		return run_in(node_ns, "%s", quiet);
	}
	const int mtu = variant->mtu > 1500 ? variant->mtu : 1500;

	if (run_in(node_ns, "%s", quiet) != 0 || run_in(kernel_ns, "%s", quiet) != 0)
		return -1;
	if (run_in(node_ns,
		    "ip link add e0 mtu %d numtxqueues 1 numrxqueues 1 type veth "
		    "peer name p0 mtu %d numtxqueues 1 numrxqueues 1 "
		    "netns /proc/%d/fd/%d && ip link set e0 up",
		    mtu, mtu, getpid(), kernel_ns) != 0)
		return -1;
	// the kernel would leave the checksum of what it sends over a veth to hardware that is not there
	return run_in(kernel_ns, "ethtool -K p0 tx off gro off >/dev/null && ip link set p0 up");
}

static int make_sockets(void)
{
	struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons(CLIENT_PORT)};
	const struct timeval timeout = {.tv_usec = 100000};
	const int dont = IP_PMTUDISC_DONT;

	if (run_in(kernel_ns,
		    "ip addr add 10.9.0.2/24 dev %s && ip addr add 10.9.0.3/24 dev %s && "
		    "ip link set %s up",
		    variant->kernel_if, variant->kernel_if, variant->kernel_if) != 0)
		return -1;
	setns(kernel_ns, CLONE_NEWNET);
	udp = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	ping = socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_ICMP);
	setns(node_ns, CLONE_NEWNET);
	setsockopt(udp, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
	setsockopt(ping, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
	setsockopt(udp, IPPROTO_IP, IP_MTU_DISCOVER, &dont, sizeof(dont));
	return bind(udp, (struct sockaddr *)&any, sizeof(any));
}

static int send_udp(uint32_t w, const void *data, size_t len)
{
	struct sockaddr_in to = {.sin_family = AF_INET,
		.sin_port = htons((uint16_t)(BASE + w)),
		.sin_addr.s_addr = htonl(NODE_IP)};

	return sendto(udp, data, len, 0, (struct sockaddr *)&to, sizeof(to)) == (ssize_t)len
		       ? 0
		       : -errno;
}

// Sends and waits for the same bytes from the same port. Returns: true when they came.
static bool round_trip(uint32_t w, uint32_t len, uint64_t wait_ns)
{
	static uint32_t serial;
	static uint8_t out[65536], in[65536];
	const uint64_t until = time_now_ns() + wait_ns;
	struct sockaddr_in from;
	socklen_t from_len = sizeof(from);

	serial++;
	for (uint32_t i = 0; i < len; i++)
		out[i] = (uint8_t)(i * 13 + serial);
	if (send_udp(w, out, len) != 0)
		return false;
	while (time_now_ns() < until) {
		const ssize_t n =
			recvfrom(udp, in, sizeof(in), 0, (struct sockaddr *)&from, &from_len);

		if (n == (ssize_t)len && memcmp(in, out, len) == 0 &&
			ntohs(from.sin_port) == BASE + w && ntohl(from.sin_addr.s_addr) == NODE_IP)
			return true;
	}
	return false;
}

static bool ping_answers(uint16_t id, uint32_t payload)
{
	uint8_t out[9100] = {8}, in[9200];
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(NODE_IP)};
	const uint64_t until = time_now_ns() + WAIT_NS;
	const uint32_t len = 8 + payload;

	memcpy(out + 4, &id, 2);
	for (uint32_t i = 8; i < len; i++)
		out[i] = (uint8_t)(i * 3);
	const uint16_t csum = (uint16_t)~port_sum_fold(port_sum(out, len));

	memcpy(out + 2, &csum, 2);
	if (sendto(ping, out, len, 0, (struct sockaddr *)&to, sizeof(to)) != (ssize_t)len)
		return false;
	while (time_now_ns() < until) {
		const ssize_t n = recv(ping, in, sizeof(in), 0);

		if (n == (ssize_t)(20 + len) && in[20] == 0 &&
			memcmp(in + 24, out + 4, len - 4) == 0)
			return true;
	}
	return false;
}

#define wait_for(cond) \
	do { \
		const uint64_t until_ = time_now_ns() + WAIT_NS; \
		const struct timespec pause_ = {.tv_nsec = 1000000}; \
		while (!(cond)) { \
			if (time_now_ns() > until_) \
				fail_msg("never: %s", #cond); \
			nanosleep(&pause_, NULL); \
		} \
	} while (0)

static bool link_is_up(void)
{
	struct port_info info;

	port_info(port, &info);
	return info.link_up;
}

// CPU time of this process in nanoseconds, from /proc/self/stat.
static uint64_t cpu_ns(void)
{
	unsigned long user = 0, sys = 0;
	char line[1024] = "";
	FILE *f = fopen("/proc/self/stat", "r");

	if (f == NULL)
		return 0;
	if (fgets(line, sizeof(line), f) != NULL)
		sscanf(strrchr(line, ')') + 2,
			"%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &sys);
	fclose(f);
	return (user + sys) * (NS_PER_S / (uint64_t)sysconf(_SC_CLK_TCK));
}

// Smallest share of a core, in percent, used in one of up to ten windows of a second.
static uint32_t idle_percent(void)
{
	uint32_t best = 1000;

	for (int i = 0; i < 10 && best >= 10; i++) {
		const struct timespec window = {.tv_sec = 1};
		const uint64_t start = time_now_ns(), used = cpu_ns();

		nanosleep(&window, NULL);
		const uint32_t percent =
			(uint32_t)((cpu_ns() - used) * 100 / (time_now_ns() - start));

		best = percent < best ? percent : best;
	}
	return best;
}

// --- tests ------------------------------------------------------------------------------------------------

static void kernel_pings_the_port(void **state)
{
	for (uint16_t i = 0; i < 20; i++)
		assert_true(ping_answers(i, i == 19 ? variant->mtu - 28u : i * 50u));
	assert_true(sum(CTR_ECHO) >= 20);
	assert_true(sum(CTR_ARP) >= 1);
}

static void datagrams_of_every_length_come_back_from_every_worker(void **state)
{
	const uint32_t max = variant->mtu - 28u;

	for (uint32_t w = 0; w < variant->workers; w++)
		for (uint32_t len = 1; len <= max;
			len = len + 97 < max || len == max ? len + 97 : max)
			if (!round_trip(w, len, WAIT_NS))
				fail_msg("worker %u, %u bytes", w, len);
}

static void bursts_come_back_whole(void **state)
{
	const uint32_t total = 2000;
	uint32_t got = 0, sent = 0;
	uint8_t in[256];
	const uint64_t until = time_now_ns() + WAIT_NS;

	while (got < total && time_now_ns() < until) {
		for (; sent < total && sent - got < 64; sent++)
			assert_int_equal(send_udp(sent % variant->workers, &sent, sizeof(sent)), 0);
		got += recv(udp, in, sizeof(in), 0) == sizeof(sent);
	}
	assert_int_equal(got, total);
	assert_int_equal(sum(CTR_DROP_TX_FULL), 0);
}

static void port_finds_a_host_it_never_heard_of(void **state)
{
	char in[256];
	ssize_t n = 0;
	const uint64_t until = time_now_ns() + WAIT_NS;

	atomic_store(&send_to, OTHER_IP);
	port_wake(port, 0);
	while (n != 5 && time_now_ns() < until)
		n = recv(udp, in, sizeof(in), 0);
	assert_int_equal(n, 5);
	assert_memory_equal(in, "hello", 5);
	assert_int_equal(sum(CTR_DROP_TX_NO_NEIGH), 0);
}

static void fragmented_datagram_is_a_counted_drop(void **state)
{
	static uint8_t big[20000];
	const uint64_t before = sum(CTR_DROP_IP) + sum(CTR_DROP_FRAGMENT);
	const uint32_t len = variant->mtu > 1500 ? 20000 : 4000;

	// as it is: fragments, or reassembled and cut off by the packet socket
	assert_int_equal(send_udp(0, big, len), 0);
	wait_for(sum(CTR_DROP_IP) + sum(CTR_DROP_FRAGMENT) > before);
	assert_true(round_trip(0, 100, WAIT_NS));
}

static void unfinished_checksums_are_counted_drops(void **state)
{
	const uint64_t before = sum(CTR_DROP_UDP_CSUM);

	assert_int_equal(run_in(kernel_ns, "ethtool -K p0 tx on >/dev/null"), 0);
	assert_int_equal(send_udp(0, "0123456789", 10), 0);
	wait_for(sum(CTR_DROP_UDP_CSUM) > before);
	assert_int_equal(run_in(kernel_ns, "ethtool -K p0 tx off >/dev/null"), 0);
	assert_true(round_trip(0, 100, WAIT_NS));
}

static void idle_workers_cost_little_and_sleep_as_the_device_allows(void **state)
{
	for (uint32_t w = 0; w < variant->workers; w++) {
		struct port_queue *q = port_queue(port, w);

		assert_int_equal(q->idle.mode, q->has_rx ? variant->idle : PORT_IDLE_FD);
	}
	const uint32_t percent = idle_percent();

	print_message("idle: %u %% of a core\n", percent);
	assert_in_range(percent, 0, 9);
	assert_true(round_trip(0, 100, WAIT_NS));
}

static void link_that_goes_down_is_seen_costs_little_and_comes_back(void **state)
{
	wait_for(link_is_up());
	assert_int_equal(run_in(kernel_ns, "ip link set p0 down"), 0);
	wait_for(!link_is_up());
	const uint32_t percent = idle_percent();

	print_message("link down: %u %% of a core\n", percent);
	assert_in_range(percent, 0, 9);
	assert_int_equal(
		run_in(kernel_ns, "ip link set p0 up && ip link set %s up", variant->kernel_if), 0);
	wait_for(link_is_up());
	// the first frames after a flap may be lost
	const uint64_t until = time_now_ns() + WAIT_NS;
	bool back = false;

	while (!back && time_now_ns() < until)
		back = round_trip(0, 100, 300 * NS_PER_MS);
	assert_true(back);
}

static void downed_interface_of_the_port_itself_does_not_spin(void **state)
{
	assert_int_equal(run_in(node_ns, "ip link set e0 down"), 0);
	wait_for(!link_is_up());
	const uint32_t percent = idle_percent();

	print_message("interface down: %u %% of a core\n", percent);
	assert_in_range(percent, 0, 9);
	assert_int_equal(run_in(node_ns, "ip link set e0 up"), 0);
	wait_for(link_is_up());
	const uint64_t until = time_now_ns() + WAIT_NS;
	bool back = false;

	while (!back && time_now_ns() < until)
		back = round_trip(0, 100, 300 * NS_PER_MS);
	assert_true(back);
}

static void every_buffer_is_back(void **state)
{
	struct port_info info;

	port_info(port, &info);
	assert_int_equal(info.mtu, variant->mtu);
	assert_int_equal(info.queues, variant->queues);
	wait_for((port_info(port, &info), info.buffers_free == buffers()));
}

// --- VLAN: the kernel may lack support for it, so the station here is a packet socket ---------------------

struct station {
	int fd;
	struct port_proto proto;
};

static void station_open(struct station *s, uint16_t vlan)
{
	const int on = 1;
	const struct timeval timeout = {.tv_usec = 100000};
	struct sockaddr_ll addr = {.sll_family = AF_PACKET, .sll_protocol = htons(0x0003)};

	setns(kernel_ns, CLONE_NEWNET);
	s->fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
	addr.sll_ifindex = (int)if_nametoindex("p0");
	setns(node_ns, CLONE_NEWNET);
	setsockopt(s->fd, SOL_PACKET, PACKET_AUXDATA, &on, sizeof(on));
	setsockopt(s->fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
	assert_int_equal(bind(s->fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
	s->proto = (struct port_proto){.mac = {2, 7, 7, 7, 7, 7},
		.vlan = vlan,
		.ip = KERNEL_IP,
		.netmask = 0xffffff00u,
		.udp_base = CLIENT_PORT,
		.udp_count = 1,
		.verify_udp = true};
}

static void station_send_udp(const struct station *s)
{
	uint8_t frame[128] = {0};
	struct port_info info;
	struct port_template t;
	struct dgram d = {.data = frame + 64,
		.len = 5,
		.local_port = CLIENT_PORT,
		.peer = {.ip = NODE_IP, .port = BASE}};
	const uint32_t headers = port_proto_l2_len(&s->proto) + 28;

	port_info(port, &info);
	memcpy(d.data, "tag10", 5);
	port_proto_template(&s->proto, NODE_IP, info.mac, 1, &t);
	port_proto_headers(&t, &d, PORT_SUM_MADE);
	assert_int_equal(send(s->fd, d.data - headers, headers + 5, 0), headers + 5);
}

// Waits for a frame to the station with the given verdict. Returns: its VLAN id, or -1: none came.
static int station_wait(const struct station *s, enum port_verdict verdict)
{
	const uint64_t until = time_now_ns() + WAIT_NS;
	uint8_t frame[2048], aux[256];
	struct port_packet packet;

	while (time_now_ns() < until) {
		struct iovec iov = {frame, sizeof(frame)};
		struct msghdr msg = {.msg_iov = &iov,
			.msg_iovlen = 1,
			.msg_control = aux,
			.msg_controllen = sizeof(aux)};
		const ssize_t n = recvmsg(s->fd, &msg, 0);
		struct tpacket_auxdata data = {0};
		const struct cmsghdr *c = n > 0 ? CMSG_FIRSTHDR(&msg) : NULL;

		if (c == NULL || c->cmsg_type != PACKET_AUXDATA)
			continue;
		memcpy(&data, CMSG_DATA(c), sizeof(data));
		const struct port_rx_meta meta = {
			.vlan_stripped = (data.tp_status & TP_STATUS_VLAN_VALID) != 0,
			.vlan_tci = data.tp_vlan_tci};

		if (port_proto_parse(&s->proto, frame, (uint32_t)n, &meta, &packet) == verdict)
			return meta.vlan_stripped ? data.tp_vlan_tci & 0xfff : 0;
	}
	return -1;
}

static void tagged_station_is_answered_with_the_tag(void **state)
{
	struct station s;
	uint8_t frame[128] = {0};

	station_open(&s, variant->vlan);
	const uint32_t len = port_proto_arp_request(&s.proto, frame + 18, NODE_IP, NULL);

	assert_int_equal(send(s.fd, frame, len, 0), len);
	assert_int_equal(station_wait(&s, PORT_ARP), variant->vlan);
	station_send_udp(&s);
	assert_int_equal(station_wait(&s, PORT_DATAGRAM), variant->vlan);
	close(s.fd);
}

static void other_tag_or_none_is_a_counted_drop(void **state)
{
	static const uint16_t other[] = {11, 0};

	for (int i = 0; i < 2; i++) {
		const uint64_t before = sum(CTR_DROP_VLAN);
		struct station s;

		station_open(&s, other[i]);
		station_send_udp(&s);
		wait_for(sum(CTR_DROP_VLAN) > before);
		close(s.fd);
	}
}

// --- start and end ----------------------------------------------------------------------------------------

static struct conf conf_make(void)
{
	struct conf c = {.node.id = 1,
		.eal.memory_bytes = 96u << 20,
		.workers.count = variant->workers,
		.port = {.ip = NODE_IP,
			.prefix_len = 24,
			.mtu = variant->mtu,
			.vlan = variant->vlan,
			.udp_base = BASE,
			.rx_descriptors = 512,
			.tx_descriptors = 512,
			.buffers = buffers(),
			.checksum = CONF_CHECKSUM_ON,
			.neighbour_ttl_ns = 600 * NS_PER_S}};

	strcpy(c.eal.lcores, "auto");
	strcpy(c.node.log_level, "warn");
	strcpy(c.eal.extra, "--no-telemetry");  // its socket would keep EAL's folder
	snprintf(c.eal.file_prefix, sizeof(c.eal.file_prefix), "tc_kernel_%d", getpid());
	strcpy(c.port.device, variant->device);
	return c;
}

static int group_setup(void **state)
{
	const struct conf conf = conf_make();
	const char *why = "";

	for (uint32_t w = 0; w < variant->workers; w++) {
		counters[w] = aligned_alloc(64, (sizeof(struct counters) + 63) / 64 * 64);
		if (counters[w] == NULL)
			return -1;
		memset(counters[w], 0, sizeof(struct counters));
		for (uint32_t to = 0; to < variant->workers; to++)
			if (wq_spsc_init(&hand[w][to], 256, sizeof(struct dgram *)) != 0)
				return -1;
	}
	if (port_eal_start(&conf, &why) != 0 || port_open(&conf, counters, &port, &why) != 0) {
		print_error("%s\n", why);
		return -1;
	}
	if (make_sockets() != 0 || pthread_create(&control, NULL, control_main, NULL) != 0)
		return -1;
	for (uint32_t w = 0; w < variant->workers; w++)
		if (port_worker_launch(w, worker_main, (void *)(uintptr_t)w) != 0)
			return -1;
	return 0;
}

// libxdp keeps 80 bytes of an af_xdp device that was closed. Read by a leak checker, when there is one.
const char *__lsan_default_suppressions(void) __attribute__((visibility("default")));
const char *__lsan_default_suppressions(void)
{
	return "leak:xsk_umem__create\n";
}

static int group_teardown(void **state)
{
	if (port == NULL)
		return 0;  // the set-up failed
	atomic_store(&stop, 1);
	for (uint32_t w = 0; w < variant->workers; w++)
		port_wake(port, w);
	port_workers_wait();
	pthread_join(control, NULL);
	port_close(port);
	port_eal_stop();
	for (uint32_t w = 0; w < variant->workers; w++) {
		free(counters[w]);
		for (uint32_t to = 0; to < variant->workers; to++)
			wq_spsc_fini(&hand[w][to]);
	}
	return 0;
}

static int run_variant(void)
{
	const struct CMUnitTest veth[] = {
		cmocka_unit_test(kernel_pings_the_port),
		cmocka_unit_test(datagrams_of_every_length_come_back_from_every_worker),
		cmocka_unit_test(bursts_come_back_whole),
		cmocka_unit_test(port_finds_a_host_it_never_heard_of),
		cmocka_unit_test(fragmented_datagram_is_a_counted_drop),
		cmocka_unit_test(unfinished_checksums_are_counted_drops),
		cmocka_unit_test(idle_workers_cost_little_and_sleep_as_the_device_allows),
		cmocka_unit_test(link_that_goes_down_is_seen_costs_little_and_comes_back),
		cmocka_unit_test(downed_interface_of_the_port_itself_does_not_spin),
		cmocka_unit_test(every_buffer_is_back),
	};
	const struct CMUnitTest tap[] = {
		cmocka_unit_test(kernel_pings_the_port),
		cmocka_unit_test(datagrams_of_every_length_come_back_from_every_worker),
		cmocka_unit_test(bursts_come_back_whole),
		cmocka_unit_test(port_finds_a_host_it_never_heard_of),
		cmocka_unit_test(fragmented_datagram_is_a_counted_drop),
		cmocka_unit_test(idle_workers_cost_little_and_sleep_as_the_device_allows),
	};
	// its fill ring holds buffers for ever
	const struct CMUnitTest xdp[] = {
		cmocka_unit_test(kernel_pings_the_port),
		cmocka_unit_test(datagrams_of_every_length_come_back_from_every_worker),
		cmocka_unit_test(bursts_come_back_whole),
		cmocka_unit_test(port_finds_a_host_it_never_heard_of),
		cmocka_unit_test(fragmented_datagram_is_a_counted_drop),
		cmocka_unit_test(unfinished_checksums_are_counted_drops),
		cmocka_unit_test(idle_workers_cost_little_and_sleep_as_the_device_allows),
		cmocka_unit_test(link_that_goes_down_is_seen_costs_little_and_comes_back),
		cmocka_unit_test(downed_interface_of_the_port_itself_does_not_spin),
	};
	const struct CMUnitTest vlan[] = {
		cmocka_unit_test(tagged_station_is_answered_with_the_tag),
		cmocka_unit_test(other_tag_or_none_is_a_counted_drop),
		cmocka_unit_test(every_buffer_is_back),
	};

	if (is_tap())
		return cmocka_run_group_tests_name(
			"port_kernel_tap", tap, group_setup, group_teardown);
	if (strcmp(variant->name, "xdp") == 0)
		return cmocka_run_group_tests_name(
			"port_kernel_xdp", xdp, group_setup, group_teardown);
	if (variant->vlan != 0)
		return cmocka_run_group_tests_name(
			"port_kernel_vlan", vlan, group_setup, group_teardown);
	return cmocka_run_group_tests_name("port_kernel", veth, group_setup, group_teardown);
}

int main(int argc, char **argv)
{
	for (size_t i = 0; i < sizeof(variants) / sizeof(variants[0]); i++)
		if (argc == 2 && strcmp(argv[1], variants[i].name) == 0)
			variant = &variants[i];
	if (variant == NULL) {
		fprintf(stderr, "usage: port_kernel_test one|two|four|vlan|jumbo|xdp|tap\n");
		return 2;
	}
	const int rc = make_namespaces();

	if (rc != 0) {
		fprintf(stderr, "%s: network namespaces: %s\n", rc == SKIP ? "SKIP" : "FAIL",
			rc == SKIP ? strerror(errno) : "a command failed");
		return rc == SKIP ? SKIP : 1;
	}
	return run_variant();
}
