/* SPDX-License-Identifier: BSD-3-Clause */
// The shell: a real socket on loopback, a real timer. The test plays the node from the same thread.
#include "client_test_common.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tagcast.h"
#include "wire.h"
#include "wire_lane.h"

#define NODE_BOOT 0x900u

struct node {
	int fd;
	uint16_t port;
	struct sockaddr_in client;
	struct wire_keys keys;
	struct wire_lane lane;
	uint64_t client_boot;
};

static struct node node_open(void)
{
	struct node n = {.fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0)};
	struct sockaddr_in addr = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(addr);

	assert_int_equal(bind(n.fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
	assert_int_equal(getsockname(n.fd, (struct sockaddr *)&addr, &len), 0);
	n.port = ntohs(addr.sin_port);
	return n;
}

static void node_answer(struct node *n, uint8_t type, const uint8_t *body, uint32_t len)
{
	uint8_t p[2000];

	n->lane.sender = 9;
	n->lane.boot = NODE_BOOT;
	n->lane.keys = &n->keys;
	memcpy(p + WIRE_HEADER_BYTES, body, len);
	len = wire_lane_seal(&n->lane, type, p, len, n->client_boot);
	assert_int_equal(
		sendto(n->fd, p, len, 0, (struct sockaddr *)&n->client, sizeof(n->client)), len);
}

static void node_handle(struct node *n, const struct wire_header *h, struct wire_view body)
{
	uint8_t bytes[256];
	struct wire_buf out = {.p = bytes, .cap = sizeof(bytes), .ok = true};
	struct wire_publish p;

	n->client_boot = h->boot;
	if (h->type == WIRE_HELLO) {
		const struct wire_hello_ack ack = {.cookie = 3,
			.node_id = 9,
			.node_boot = NODE_BOOT,
			.port_base = n->port,
			.workers = 1,
			.version = 1,
			.mtu = 1500,
			.payload_max = 61440,
			.heartbeat_ms = 1000};

		assert_true(wire_put_hello_ack(&out, &ack));
		node_answer(n, WIRE_HELLO_ACK, bytes, out.len);
	} else if (h->type == WIRE_PUBLISH && wire_get_publish(body, &p) == 0) {
		const struct wire_publish_ack ack = {
			.request_id = p.request_id, .message_id = p.message_id, .members = 12};

		assert_true(wire_put_publish_ack(&out, &ack));
		node_answer(n, WIRE_PUBLISH_ACK, bytes, out.len);
	}
}

static void node_turn(struct node *n)
{
	uint8_t p[2000];
	socklen_t len = sizeof(n->client);
	ssize_t bytes;

	while ((bytes = recvfrom(n->fd, p, sizeof(p), 0, (struct sockaddr *)&n->client, &len)) >
		0) {
		struct wire_header h;
		struct wire_view body;

		assert_int_equal(wire_get_header(p, (uint32_t)bytes, &h, &body), 0);
		node_handle(n, &h, body);
	}
}

static int outcomes;
static void outcome(void *ctx, const struct tagcast_outcome *o)
{
	(void)ctx;
	assert_int_equal(o->status, TAGCAST_OK);
	assert_int_equal(o->members, 12);
	outcomes++;
}

static void a_publish_goes_out_and_its_outcome_comes_back(void **state)
{
	struct node n = node_open();
	const struct tagcast_config config = {.node_ip = "127.0.0.1", .node_port = n.port};
	const struct tagcast_callbacks cb = {.outcome = outcome};
	const struct tagcast_publish p = {.channel_type = 2,
		.channel = {.bytes = "c", .len = 1},
		.message_id = 1,
		.payload = "hi",
		.payload_len = 2};
	struct tagcast_stats stats;
	struct tagcast *c;
	uint64_t request;

	(void)state;
	assert_int_equal(tagcast_open(&config, &cb, &c), 0);
	assert_int_equal(tagcast_publish(c, &p, &request), 0);
	for (int i = 0; i < 200 && outcomes == 0; i++) {
		struct pollfd fds[] = {
			{.fd = tagcast_fd(c), .events = POLLIN}, {.fd = n.fd, .events = POLLIN}};

		assert_true(poll(fds, 2, 5000) > 0);
		node_turn(&n);
		assert_true(tagcast_process(c) >= 0);
	}
	assert_int_equal(outcomes, 1);
	assert_int_equal(tagcast_publish_pending(c), 0);
	tagcast_stats(c, &stats);
	assert_int_equal(stats.published, 1);
	assert_int_equal(stats.outcomes, 1);
	tagcast_close(c);
	close(n.fd);
}

static void the_descriptor_wakes_for_timers(void **state)
{
	struct node n = node_open();
	const struct tagcast_config config = {.node_ip = "127.0.0.1", .node_port = n.port};
	const struct tagcast_callbacks cb = {.outcome = outcome};
	struct tagcast_stats stats;
	struct tagcast *c;

	(void)state;
	assert_int_equal(tagcast_open(&config, &cb, &c), 0);
	tagcast_stats(c, &stats);
	assert_int_equal(stats.hellos, 1);
	// Nobody answers: the hello is said again when the timer fires.
	for (int i = 0; i < 100 && stats.hellos < 2; i++) {
		struct pollfd fd = {.fd = tagcast_fd(c), .events = POLLIN};

		assert_int_equal(poll(&fd, 1, 5000), 1);
		assert_true(tagcast_process(c) >= 0);
		tagcast_stats(c, &stats);
	}
	assert_int_equal(stats.hellos, 2);
	tagcast_close(c);
	close(n.fd);
}

static void an_idle_client_does_not_wake(void **state)
{
	struct node n = node_open();
	const struct tagcast_config config = {.node_ip = "127.0.0.1", .node_port = n.port};
	const struct tagcast_callbacks cb = {.outcome = outcome};
	struct tagcast_stats stats;
	struct pollfd fd;
	struct tagcast *c;

	(void)state;
	assert_int_equal(tagcast_open(&config, &cb, &c), 0);
	do {
		struct pollfd fds[] = {
			{.fd = tagcast_fd(c), .events = POLLIN}, {.fd = n.fd, .events = POLLIN}};

		assert_true(poll(fds, 2, 5000) > 0);
		node_turn(&n);
		assert_true(tagcast_process(c) >= 0);
		tagcast_stats(c, &stats);
	} while (stats.rx_datagrams == 0);
	fd = (struct pollfd){.fd = tagcast_fd(c), .events = POLLIN};
	assert_int_equal(poll(&fd, 1, 150), 0);
	tagcast_close(c);
	close(n.fd);
}

static void bad_configurations_are_refused(void **state)
{
	const struct tagcast_callbacks cb = {.outcome = outcome};
	const struct tagcast_config good = {.node_ip = "127.0.0.1", .node_port = 7000};
	struct tagcast_config config;
	struct tagcast *c = NULL;

	(void)state;
#define REFUSED(change) \
	do { \
		config = good; \
		change; \
		assert_int_equal(tagcast_open(&config, &cb, &c), -EINVAL); \
	} while (0)
	REFUSED(config.node_ip = NULL);
	REFUSED(config.node_ip = "node.example");
	REFUSED(config.node_ip = "0.0.0.0");
	REFUSED(config.node_port = 0);
	REFUSED(config.gateway = 1);  // without an id
	REFUSED(config.bind_ip = "nowhere");
	REFUSED(config.mtu = 500);
	REFUSED(config.mtu = 9001);
	REFUSED(config.publish_inflight_max = (1u << 20) + 1);
#undef REFUSED
	assert_int_equal(tagcast_open(NULL, &cb, &c), -EINVAL);
	assert_null(c);
	tagcast_close(NULL);
}

static void each_status_has_a_name(void **state)
{
	(void)state;
	assert_string_equal(tagcast_status_name(TAGCAST_OK), "ok");
	assert_string_equal(tagcast_status_name(TAGCAST_TIMEOUT), "timeout");
	assert_string_equal(tagcast_status_name(77), "unknown");
	for (int s = 0; s < WIRE_STATUS_COUNT; s++) {
		if (strcmp(tagcast_status_name(s), "unknown") != 0)
			assert_string_equal(tagcast_status_name(s), wire_status_name(s));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_publish_goes_out_and_its_outcome_comes_back),
		cmocka_unit_test(the_descriptor_wakes_for_timers),
		cmocka_unit_test(an_idle_client_does_not_wake),
		cmocka_unit_test(bad_configurations_are_refused),
		cmocka_unit_test(each_status_has_a_name),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
