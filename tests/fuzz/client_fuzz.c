/* SPDX-License-Identifier: BSD-3-Clause */
// Fuzz target of what the client library receives. An input is a byte of switches and datagrams, each with
// four bytes in front: type, lane, length. The harness puts a sound header before the body, as the node the
// client is registered with would (type 0: the bytes are the whole datagram). Whatever comes, the client
// goes on: it sends only well-formed datagrams that fit the path, and ends without a leak.
#include <stdlib.h>
#include <string.h>

#include "client_core.h"
#include "wire_lane.h"

#define REQUIRE(x) \
	do { \
		if (!(x)) \
			abort(); \
	} while (0)

#define NODE_ID 7u
#define NODE_BOOT 77u
#define CLIENT_ID 9u
#define MTU 1500u
#define STEP_NS UINT64_C(50000000)
#define SESSIONS 4u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct net_addr node = {.ip = 0x0a000001, .port = 7400};
static uint64_t seq;

struct harness {
	struct client_core *core;
	uint64_t now_ns;
	uint32_t handle[SESSIONS];
	uint32_t step;
};

static void on_send(void *ctx, struct net_addr to, const uint8_t *bytes, uint16_t len)
{
	struct wire_header header;
	struct wire_view body;

	(void)ctx;
	REQUIRE(to.ip == node.ip && len <= MTU - WIRE_UDP_OVERHEAD);
	REQUIRE(wire_get_header(bytes, len, &header, &body) == 0);
	REQUIRE(header.sender == CLIENT_ID);
}

static void read_all(const void *bytes, size_t len)
{
	static volatile uint8_t sum;

	for (size_t i = 0; i < len; i++)
		sum = (uint8_t)(sum + ((const uint8_t *)bytes)[i]);
}

static enum tagcast_verdict on_deliver(
	void *ctx, uint32_t session, void *user, const struct tagcast_message *m)
{
	struct harness *h = ctx;

	(void)user;
	read_all(m->payload, m->payload_len);
	read_all(m->channel.bytes, m->channel.len);
	read_all(m->from_uid.bytes, m->from_uid.len);
	// Calls back as an application may.
	switch (h->step++ % 5) {
	case 0:
		return TAGCAST_RETRY;
	case 1:
		return TAGCAST_DROP;
	case 2:
		(void)client_core_session_close(h->core, session);
		return TAGCAST_ACCEPT;
	default:
		(void)client_core_receipt(
			h->core, session, m->channel, m->channel_type, m->message_id);
		return TAGCAST_ACCEPT;
	}
}

static void rx(struct harness *h, const uint8_t *bytes, uint32_t len)
{
	// A block of its own, so that one byte too far is seen.
	uint8_t *copy = malloc(len > 0 ? len : 1);

	REQUIRE(copy != NULL);
	memcpy(copy, bytes, len);
	client_core_rx(h->core, copy, len, node, h->now_ns);
	free(copy);
}

static void from_node(
	struct harness *h, uint8_t type, uint8_t lane, const uint8_t *body, uint32_t len)
{
	uint8_t p[2048];
	if (len > sizeof(p) - WIRE_HEADER_BYTES)
		len = sizeof(p) - WIRE_HEADER_BYTES;
	const struct wire_header header = {.type = type,
		.lane = lane,
		.sender = NODE_ID,
		.boot = NODE_BOOT,
		.seq = ++seq,
		.bytes = (uint16_t)(WIRE_HEADER_BYTES + len)};

	wire_put_header(p, &header);
	if (len != 0)
		memcpy(p + WIRE_HEADER_BYTES, body, len);
	rx(h, p, WIRE_HEADER_BYTES + len);
}

static void hello_ack(struct harness *h, uint16_t status)
{
	uint8_t body[256];
	struct wire_buf out = {.p = body, .cap = sizeof(body), .ok = true};

	REQUIRE(wire_put_hello_ack(&out, &(struct wire_hello_ack){.status = status,
						 .cookie = 5,
						 .node_id = NODE_ID,
						 .node_boot = NODE_BOOT,
						 .port_base = node.port,
						 .workers = 2,
						 .version = WIRE_VERSION,
						 .mtu = MTU,
						 .payload_max = PAYLOAD_MAX,
						 .heartbeat_ms = 1000,
						 .topology_version = 1}));
	from_node(h, WIRE_HELLO_ACK, 0, body, out.len);
	client_core_poll(h->core, h->now_ns);
}

static void open_client(struct harness *h, bool gateway)
{
	const struct client_core_config config = {.client_id = CLIENT_ID,
		.boot = 3,
		.node = node,
		.gateway = gateway,
		.mtu = MTU,
		.window = 64,
		.window_ns = UINT64_C(1000000000),
		.publish_max = 8,
		.receipts = 16,
		.frames = 4,
		.seed = 1};
	const struct client_core_io io = {.send = on_send, .ctx = h};
	const struct tagcast_callbacks callbacks = {.ctx = h, .deliver = on_deliver};
	const struct tagcast_publish publish = {.channel = {"room", 4},
		.channel_type = 2,
		.message_id = 1,
		.payload = (const uint8_t *)"x",
		.payload_len = 1,
		.ack = TAGCAST_ACK_GATEWAY};
	uint64_t request;

	REQUIRE(client_core_create(&config, &io, &callbacks, h->now_ns, &h->core) == 0);
	for (uint32_t i = 0; gateway && i < SESSIONS; i++)
		REQUIRE(client_core_session_open(
				h->core, (struct tagcast_id){"uid", 3}, NULL, &h->handle[i]) == 0);
	(void)client_core_publish(h->core, &publish, h->now_ns, &request);
	client_core_poll(h->core, h->now_ns);
	hello_ack(h, WIRE_NEED_HELLO);
	hello_ack(h, WIRE_OK);
	REQUIRE(client_core_registered(h->core));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct harness h = {.now_ns = UINT64_C(1000000000)};

	if (size < 1 || size > 65536)
		return 0;
	REQUIRE(wire_auth_init() == 0);
	seq = 0;
	open_client(&h, (data[0] & 1) != 0);
	for (size_t at = 1; size - at >= 4;) {
		const uint8_t type = data[at], lane = data[at + 1];
		uint32_t len = data[at + 2] | (uint32_t)data[at + 3] << 8;

		at += 4;
		if (len > size - at)
			len = (uint32_t)(size - at);
		if (type == 0)
			rx(&h, data + at, len);
		else
			from_node(&h, type, lane, data + at, len);
		at += len;
		h.now_ns += STEP_NS * (1 + (lane >> 4));
		client_core_poll(h.core, h.now_ns);
		(void)client_core_next_ns(h.core);
	}
	client_core_destroy(h.core);
	return 0;
}
