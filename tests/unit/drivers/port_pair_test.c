/* SPDX-License-Identifier: BSD-3-Clause */
// Two ports of two workers each, joined by a memif pair in one process, no hugepages: what one sends the
// other receives, through the real EAL, pool and device queues. One thread plays every role.
// One file because starting EAL and the pair once serves all of it.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <errno.h>

#include <rte_alarm.h>

#include "port_pvt.h"

#define IP(n) (0x0a000000u + (n))
#define WORKERS 2u
#define BUFFERS 4096u
#define INBOX 4096u

struct side {
	struct port *port;
	struct counters counters[WORKERS];
	void *queue[WORKERS];
	struct dgram *inbox[INBOX];  // received, not yet looked at
	uint32_t from[INBOX];  // queue it came in on
	uint32_t count;
};

struct pair {
	struct side a, b;
	uint64_t skew_ns;  // added to the control steps' clock
};

static const struct dgram_ops *ops;
static char socket_dir[] = "/tmp/tagcast_port_XXXXXX";
static struct pair pair;

static struct conf conf_make(
	const char *role, uint32_t id, uint32_t ip, uint16_t mtu, uint32_t buffers)
{
	struct conf c = {.node.id = 1,
		.eal.memory_bytes = 192u << 20,
		.workers.count = WORKERS,
		.port = {.ip = ip,
			.prefix_len = 24,
			.mtu = mtu,
			.udp_base = 7000,
			.rx_descriptors = 512,
			.tx_descriptors = 512,
			.buffers = buffers,
			.checksum = CONF_CHECKSUM_ON,
			.neighbour_ttl_ns = 600 * NS_PER_S,
			.gateway_ip = IP(2)}};

	strcpy(c.eal.lcores, "auto");
	strcpy(c.node.log_level, "warn");
	strcpy(c.eal.extra, "--no-telemetry");  // its socket would keep EAL's folder
	snprintf(c.eal.file_prefix, sizeof(c.eal.file_prefix), "tc_pair_%d", getpid());
	snprintf(c.port.device, sizeof(c.port.device),
		"net_memif%u%s,role=%s,id=%u,socket=%s/s%u,socket-abstract=no", id,
		role[0] == 's' ? "" : "1", role, id, socket_dir, id);
	return c;
}

static uint64_t now_ns(const struct pair *p)
{
	return time_now_ns() + p->skew_ns;
}

static void poll_side(struct pair *p, struct side *s)
{
	role_take_control();
	port_control_step(s->port, now_ns(p));
	role_drop_control();
	for (uint32_t w = 0; w < WORKERS; w++) {
		struct dgram *d[BURST];
		const uint16_t n = ops->rx(s->queue[w], d, BURST);

		for (uint16_t i = 0; i < n; i++) {
			assert_true(s->count < INBOX);
			s->from[s->count] = w;
			s->inbox[s->count++] = d[i];
		}
	}
}

static void poll_both(struct pair *p)
{
	poll_side(p, &p->a);
	poll_side(p, &p->b);
}

// Polls both sides until `cond`; a failing test says which condition never came.
#define wait_for(p, cond) \
	do { \
		const uint64_t until_ = time_now_ns() + 10 * NS_PER_S; \
		while (!(cond)) { \
			if (time_now_ns() > until_) \
				fail_msg("never: %s", #cond); \
			poll_both(p); \
		} \
	} while (0)

static uint64_t sum(const struct side *s, enum counter id)
{
	uint64_t total = 0;

	for (uint32_t w = 0; w < WORKERS; w++)
		total += counter_get(&s->counters[w], id);
	return total;
}

static void empty_inbox(struct side *s)
{
	for (uint32_t i = 0; i < s->count; i++)
		ops->free(s->queue[0], &s->inbox[i], 1);
	s->count = 0;
}

static uint32_t free_buffers(const struct side *s)
{
	struct port_info info;

	port_info(s->port, &info);
	return info.buffers_free;
}

static bool link_up(const struct side *s)
{
	struct port_info info;

	port_info(s->port, &info);
	return info.link_up;
}

static void open_side(struct side *s, const struct conf *c)
{
	struct counters *counters[WORKERS] = {&s->counters[0], &s->counters[1]};
	const char *why = "";
	const int rc = port_open(c, counters, &s->port, &why);

	if (rc != 0)
		fail_msg("port_open: %s", why);
	for (uint32_t w = 0; w < WORKERS; w++)
		s->queue[w] = port_queue(s->port, w);
}

static void open_pair(struct pair *p, uint32_t id, uint16_t mtu, uint32_t buffers)
{
	const struct conf a = conf_make("server", id, IP(1), mtu, buffers);
	const struct conf b = conf_make("client", id, IP(2), mtu, buffers);

	memset(p, 0, sizeof(*p));
	open_side(&p->a, &a);
	open_side(&p->b, &b);
	wait_for(p, link_up(&p->a) && link_up(&p->b));
}

static void note(void *arg)
{
	atomic_store((_Atomic int *)arg, 1);
}

// The memif driver frees a connection from EAL's interrupt thread when the peer leaves, and again from
// whoever closes the device meanwhile: the second side is closed only when that thread is done, which a
// timer of its own shows, as it does one thing at a time.
static void close_pair(struct pair *p)
{
	const uint64_t until = time_now_ns() + 10 * NS_PER_S;
	_Atomic int done = 0;

	empty_inbox(&p->a);
	empty_inbox(&p->b);
	port_close(p->b.port);
	while (link_up(&p->a) && time_now_ns() < until)
		poll_side(p, &p->a);
	if (rte_eal_alarm_set(1, note, (void *)&done) == 0)
		while (!atomic_load(&done))
			;
	empty_inbox(&p->a);
	port_close(p->a.port);
}

static int group_setup(void **state)
{
	const char *why = "";

	if (mkdtemp(socket_dir) == NULL)
		return -1;
	const struct conf c = conf_make("server", 0, IP(1), 1500, BUFFERS);

	if (port_eal_start(&c, &why) != 0) {
		print_error("%s\n", why);
		return -1;
	}
	ops = port_dgram_ops();
	open_pair(&pair, 0, 1500, BUFFERS);
	return 0;
}

static int group_teardown(void **state)
{
	char path[64];

	close_pair(&pair);
	port_eal_stop();
	for (uint32_t id = 0; id < 3; id++) {
		snprintf(path, sizeof(path), "%s/s%u", socket_dir, id);
		unlink(path);
	}
	rmdir(socket_dir);
	return 0;
}

static struct dgram *make(
	struct side *s, uint32_t w, uint32_t to, uint16_t port, uint16_t len, uint8_t seed)
{
	struct dgram *d;

	assert_int_equal(ops->alloc(s->queue[w], &d, 1), 1);
	assert_true(len <= d->room);
	assert_int_equal((uintptr_t)d->data % 2, 0);
	for (uint32_t i = 0; i < len; i++)
		d->data[i] = (uint8_t)(seed + i * 5);
	d->len = len;
	d->local_port = (uint16_t)(7000 + w);
	d->peer = (struct net_addr){.ip = to, .port = port};
	return d;
}

static void expect_content(const struct dgram *d, uint16_t len, uint8_t seed)
{
	assert_int_equal(d->len, len);
	for (uint32_t i = 0; i < len; i++)
		assert_int_equal(d->data[i], (uint8_t)(seed + i * 5));
}

static void send(struct side *s, uint32_t w, struct dgram *d)
{
	ops->tx(s->queue[w], &d, 1);
}

// --- tests ------------------------------------------------------------------------------------------------

static void first_datagram_waits_for_the_link_address(void **state)
{
	struct pair *p = &pair;

	send(&p->a, 0, make(&p->a, 0, IP(2), 7001, 100, 1));
	assert_int_equal(((struct port_queue *)p->a.queue[0])->pending.count, 1);
	wait_for(p, p->b.count == 1);
	expect_content(p->b.inbox[0], 100, 1);
	assert_int_equal(p->b.inbox[0]->local_port, 7001);
	assert_true(
		net_addr_equal(p->b.inbox[0]->peer, (struct net_addr){.ip = IP(1), .port = 7000}));
	assert_int_equal(sum(&p->a, CTR_DROP_TX_NO_NEIGH), 0);
	// b learnt from the request: its answer needs none
	const uint64_t arps = sum(&p->a, CTR_ARP);

	send(&p->b, 1, make(&p->b, 1, IP(1), 7000, 5, 2));
	wait_for(p, p->a.count == 1);
	assert_int_equal(sum(&p->a, CTR_ARP), arps);
	empty_inbox(&p->a);
	empty_inbox(&p->b);
}

static void every_length_arrives_whole_on_both_queues(void **state)
{
	struct pair *p = &pair;
	uint32_t on_queue[WORKERS] = {0};

	for (uint16_t len = 0; len <= 1472; len = (uint16_t)(len < 1440 ? len + 31 : len + 1)) {
		for (uint32_t w = 0; w < WORKERS; w++) {
			send(&p->a, w, make(&p->a, w, IP(2), 7000, len, (uint8_t)len));
			wait_for(p, p->b.count == 1);
			on_queue[p->b.from[0]]++;
			expect_content(p->b.inbox[0], len, (uint8_t)len);
			assert_int_equal(p->b.inbox[0]->peer.port, 7000 + w);
			empty_inbox(&p->b);
		}
	}
	assert_true(on_queue[0] > 0 && on_queue[1] > 0);
}

static void room_is_what_the_mtu_leaves(void **state)
{
	struct dgram *d = make(&pair.a, 0, IP(2), 7000, 0, 0);

	assert_int_equal(d->room, 1472);
	ops->free(pair.a.queue[0], &d, 1);
}

static void received_datagram_can_be_sent_back(void **state)
{
	struct pair *p = &pair;

	send(&p->a, 0, make(&p->a, 0, IP(2), 7001, 1472, 9));
	wait_for(p, p->b.count == 1);
	struct dgram *d = p->b.inbox[0];

	p->b.count = 0;
	d->len = d->room;
	d->data[0] = 77;
	send(&p->b, p->b.from[0], d);
	wait_for(p, p->a.count == 1);
	assert_int_equal(p->a.inbox[0]->len, 1472);
	assert_int_equal(p->a.inbox[0]->data[0], 77);
	assert_int_equal(p->a.inbox[0]->local_port, 7000);
	empty_inbox(&p->a);
}

static void held_datagram_is_sent_again_with_new_content(void **state)
{
	struct pair *p = &pair;
	const uint32_t before = free_buffers(&p->a);
	struct dgram *d = make(&p->a, 0, IP(2), 7000, 200, 3);

	for (uint8_t round = 0; round < 5; round++) {
		assert_true(ops->exclusive(d));
		for (uint32_t i = 0; i < 200; i++)
			d->data[i] = (uint8_t)(round + i * 5);
		d->len = (uint16_t)(200 - round);
		ops->hold(d);
		assert_false(ops->exclusive(d));
		send(&p->a, 0, d);
		wait_for(p, p->b.count == 1 && ops->exclusive(d));
		expect_content(p->b.inbox[0], (uint16_t)(200 - round), round);
		empty_inbox(&p->b);
	}
	ops->free(p->a.queue[0], &d, 1);
	assert_int_equal(free_buffers(&p->a), before);
}

static void silent_next_hop_costs_a_bounded_wait_and_counted_drops(void **state)
{
	struct pair *p = &pair;
	const uint32_t before = free_buffers(&p->a), extra = 8;
	const uint64_t asked = sum(&p->b, CTR_ARP), dropped = sum(&p->a, CTR_DROP_TX_NO_NEIGH);
	const struct port_pending *pending = &((struct port_queue *)p->a.queue[0])->pending;
	const uint64_t start = time_now_ns();

	for (uint32_t i = 0; i < PORT_PENDING_PER_HOP + extra; i++)
		send(&p->a, 0, make(&p->a, 0, IP(9), 7000, 10, 0));
	assert_int_equal(pending->count, PORT_PENDING_PER_HOP);
	assert_int_equal(sum(&p->a, CTR_DROP_TX_NO_NEIGH) - dropped, extra);
	wait_for(p, pending->count == 0);
	assert_int_equal(sum(&p->a, CTR_DROP_TX_NO_NEIGH) - dropped, PORT_PENDING_PER_HOP + extra);
	assert_true(time_now_ns() - start >= PORT_PENDING_NS);
	assert_int_equal(free_buffers(&p->a), before);
	// at 0, 100, 300, 700 ms of each second waited, not once per datagram
	assert_in_range(sum(&p->b, CTR_ARP) - asked, 2, 8);
}

static void many_silent_hops_leave_room_for_a_bounded_number(void **state)
{
	struct pair *p = &pair;
	const struct port_pending *pending = &((struct port_queue *)p->a.queue[0])->pending;
	const uint64_t dropped = sum(&p->a, CTR_DROP_TX_NO_NEIGH);

	for (uint32_t i = 0; i < 200; i++)
		send(&p->a, 0, make(&p->a, 0, IP(20 + i), 7000, 10, 0));
	assert_int_equal(pending->count, PORT_PENDING_HOPS);
	// who is known is served meanwhile
	send(&p->a, 0, make(&p->a, 0, IP(2), 7000, 10, 0));
	wait_for(p, p->b.count == 1);
	empty_inbox(&p->b);
	wait_for(p, pending->count == 0);
	assert_int_equal(sum(&p->a, CTR_DROP_TX_NO_NEIGH) - dropped, 200);
}

static void addresses_that_no_host_has_are_dropped_at_once(void **state)
{
	struct pair *p = &pair;
	const uint64_t dropped = sum(&p->a, CTR_DROP_TX_NO_NEIGH);

	send(&p->a, 0, make(&p->a, 0, 0xe0000001, 7000, 10, 0));
	send(&p->a, 0, make(&p->a, 0, IP(255), 7000, 10, 0));
	send(&p->a, 0, make(&p->a, 0, IP(1), 7000, 10, 0));
	send(&p->a, 0, make(&p->a, 0, 0, 7000, 10, 0));
	assert_int_equal(sum(&p->a, CTR_DROP_TX_NO_NEIGH) - dropped, 4);
}

static void what_is_not_on_the_link_goes_to_the_gateway(void **state)
{
	struct pair *p = &pair;
	const uint64_t dropped = sum(&p->b, CTR_DROP_IP);

	send(&p->a, 0, make(&p->a, 0, 0x09090909, 7000, 10, 0));
	wait_for(p, sum(&p->b, CTR_DROP_IP) == dropped + 1);  // b is no router
}

// Sends a datagram with two bytes of its headers changed; at: from the IPv4 header.
static void send_spoilt(struct pair *p, uint32_t at, uint16_t value)
{
	struct port_queue *q = p->a.queue[0];
	struct dgram *d = make(&p->a, 0, IP(2), 7000, 100, 0);
	uint32_t hop;
	struct rte_mbuf *m = port_tx_build(q, d, port_tx_template(q, IP(2), &hop));
	uint8_t *ip = d->data - 28;
	const uint16_t be = port_be16(value), none = 0;

	memcpy(ip + at, &be, 2);
	memcpy(ip + 10, &none, 2);
	const uint16_t csum = (uint16_t)~port_sum_fold(port_sum(ip, 20));

	memcpy(ip + 10, &csum, 2);
	port_tx_frames(q, &m, 1);
}

static void bad_frames_end_in_the_counter_of_the_receiving_worker(void **state)
{
	static const struct {
		uint32_t at;
		uint16_t value;
		enum counter reason;
	} table[] = {
		{6, 0x2000, CTR_DROP_FRAGMENT},
		{6, 100, CTR_DROP_FRAGMENT},
		{2, 1400, CTR_DROP_IP},
		{24, 4, CTR_DROP_UDP_LEN},
		{26, 0x1111, CTR_DROP_UDP_CSUM},
		{22, 80, CTR_DROP_PORT},
	};
	struct pair *p = &pair;
	const uint32_t before = free_buffers(&p->b);

	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		const uint64_t was = sum(&p->b, table[i].reason);

		send_spoilt(p, table[i].at, table[i].value);
		wait_for(p, sum(&p->b, table[i].reason) == was + 1);
	}
	assert_int_equal(p->b.count, 0);
	assert_int_equal(free_buffers(&p->b), before);
}

static void full_device_costs_bounded_retries_and_counted_drops(void **state)
{
	struct pair *p = &pair;
	const uint32_t before = free_buffers(&p->a), total = 2000;
	const uint64_t dropped = sum(&p->a, CTR_DROP_TX_FULL);

	for (uint32_t i = 0; i < total; i++)
		send(&p->a, 0, make(&p->a, 0, IP(2), 7000, 100, 0));
	const uint32_t lost = (uint32_t)(sum(&p->a, CTR_DROP_TX_FULL) - dropped);

	assert_in_range(lost, 1, total - 1);
	wait_for(p, p->b.count == total - lost);
	empty_inbox(&p->b);
	assert_int_equal(free_buffers(&p->a), before);
}

static void empty_pool_gives_all_or_nothing_and_recovers(void **state)
{
	struct pair *p = &pair;
	static struct dgram *all[BUFFERS];
	const uint32_t before = free_buffers(&p->a);
	struct dgram *d[BURST];
	uint32_t n = 0;

	assert_in_range(ops->available(p->a.queue[0]), 1, BUFFERS);
	while (ops->alloc(p->a.queue[0], d, 7) != 0) {
		memcpy(all + n, d, 7 * sizeof(d[0]));
		n += 7;
	}
	assert_in_range(n, before - 6, before);
	assert_in_range(ops->available(p->a.queue[0]), 0, 6);
	// frames that find no buffer stay in the device or are lost; nothing breaks
	send(&p->b, 0, make(&p->b, 0, IP(1), 7000, 10, 4));
	poll_both(p);
	for (uint32_t i = 0; i < n; i += 7)
		ops->free(p->a.queue[0], all + i, 7);
	assert_true(ops->available(p->a.queue[0]) > 0);
	send(&p->b, 0, make(&p->b, 0, IP(1), 7000, 10, 5));
	wait_for(p, p->a.count >= 1 && p->a.inbox[p->a.count - 1]->data[0] == 5);
	expect_content(p->a.inbox[p->a.count - 1], 10, 5);
	empty_inbox(&p->a);
	assert_int_equal(free_buffers(&p->a), before);
}

static void neighbour_in_use_is_confirmed_and_a_silent_one_forgotten(void **state)
{
	struct pair *p = &pair;
	struct port_info info;

	// from half its lifetime on it is asked, and it answers
	for (int i = 0; i < 24; i++) {
		const uint32_t had = p->b.count;

		p->skew_ns += 600 * NS_PER_S / 8;
		send(&p->a, 0, make(&p->a, 0, IP(2), 7000, 1, 0));
		wait_for(p, p->b.count == had + 1);
		wait_for(p, wq_spsc_depth(&((struct port_queue *)p->a.queue[0])->commands) == 0);
		poll_both(p);
	}
	empty_inbox(&p->b);
	port_info(p->a.port, &info);
	assert_int_equal(info.neighbours, 1);
	for (int i = 0; i < 10; i++) {
		p->skew_ns += 600 * NS_PER_S / 8;
		poll_side(p, &p->a);  // b is deaf
	}
	port_info(p->a.port, &info);
	assert_int_equal(info.neighbours, 0);
	send(&p->a, 0, make(&p->a, 0, IP(2), 7000, 1, 0));
	wait_for(p, p->b.count == 1);  // and is found anew
	empty_inbox(&p->b);
}

static void wake_ends_the_sleep_and_is_not_lost_before_it(void **state)
{
	struct pair *p = &pair;
	struct port_queue *q = p->a.queue[0];

	role_take_worker();
	q->idle.empty = 1000;
	const uint64_t sleeps = atomic_load(&q->idle.sleeps);

	port_wake(p->a.port, 0);
	port_idle_wait(p->a.port, 0, 10 * NS_PER_S);
	assert_int_equal(atomic_load(&q->idle.sleeps), sleeps);
	assert_int_equal(q->idle.empty, 0);
	// without one it does sleep, for a millisecond at most where nothing tells of frames
	q->idle.empty = 1000;
	const uint64_t start = time_now_ns();

	port_idle_wait(p->a.port, 0, 10 * NS_PER_S);
	assert_int_equal(atomic_load(&q->idle.sleeps), sleeps + 1);
	assert_true(time_now_ns() - start >= NS_PER_MS / 2);
	role_drop_worker();
}

static void jumbo_datagrams_arrive_and_ports_reopen(void **state)
{
	for (uint32_t round = 0; round < 2; round++) {
		static struct pair big;

		open_pair(&big, 1, 9000, 1024 + 512);
		for (uint16_t len = 8000; len <= 8972; len = (uint16_t)(len + 162)) {
			send(&big.a, 1, make(&big.a, 1, IP(2), 7000, len, 6));
			wait_for(&big, big.b.count == 1);
			expect_content(big.b.inbox[0], len, 6);
			empty_inbox(&big.b);
		}
		close_pair(&big);
	}
}

static void what_cannot_be_opened_says_why(void **state)
{
	struct counters c[WORKERS];
	struct counters *counters[WORKERS] = {&c[0], &c[1]};
	struct port *port = NULL;
	const char *why = NULL;
	struct conf bad = conf_make("client", 2, IP(1), 1500, 1024);

	strcpy(bad.port.device, "net_af_packet9,iface=no_such_if");
	assert_int_equal(port_open(&bad, counters, &port, &why), -ENODEV);
	assert_non_null(strstr(why, "net_af_packet9"));
	strcpy(bad.port.device, "net_no_such_driver0");
	assert_int_equal(port_open(&bad, counters, &port, &why), -ENODEV);
	bad = conf_make("server", 0, IP(1), 1500, BUFFERS);  // opened already
	assert_int_equal(port_open(&bad, counters, &port, &why), -EBUSY);
	bad = conf_make("server", 2, IP(1), 1500, 100);
	assert_int_equal(port_open(&bad, counters, &port, &why), -EINVAL);
	assert_non_null(strstr(why, "port.buffers"));
	bad = conf_make("server", 2, IP(1), 1500, 1000000);
	assert_int_equal(port_open(&bad, counters, &port, &why), -ENOMEM);
	assert_non_null(strstr(why, "eal.memory"));
	bad = conf_make("server", 2, IP(1), 100, BUFFERS);
	assert_int_equal(port_open(&bad, counters, &port, &why), -EINVAL);
	assert_null(port);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(first_datagram_waits_for_the_link_address),
		cmocka_unit_test(every_length_arrives_whole_on_both_queues),
		cmocka_unit_test(room_is_what_the_mtu_leaves),
		cmocka_unit_test(received_datagram_can_be_sent_back),
		cmocka_unit_test(held_datagram_is_sent_again_with_new_content),
		cmocka_unit_test(silent_next_hop_costs_a_bounded_wait_and_counted_drops),
		cmocka_unit_test(many_silent_hops_leave_room_for_a_bounded_number),
		cmocka_unit_test(addresses_that_no_host_has_are_dropped_at_once),
		cmocka_unit_test(what_is_not_on_the_link_goes_to_the_gateway),
		cmocka_unit_test(bad_frames_end_in_the_counter_of_the_receiving_worker),
		cmocka_unit_test(full_device_costs_bounded_retries_and_counted_drops),
		cmocka_unit_test(empty_pool_gives_all_or_nothing_and_recovers),
		cmocka_unit_test(neighbour_in_use_is_confirmed_and_a_silent_one_forgotten),
		cmocka_unit_test(wake_ends_the_sleep_and_is_not_lost_before_it),
		cmocka_unit_test(jumbo_datagrams_arrive_and_ports_reopen),
		cmocka_unit_test(what_cannot_be_opened_says_why),
	};

	return cmocka_run_group_tests_name("port_pair", tests, group_setup, group_teardown);
}
