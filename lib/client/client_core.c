/* SPDX-License-Identifier: BSD-3-Clause */
// One client: creation, the checks every datagram passes, sending, and the timers together. Runs on the
// client's thread (client_core.h).
#include "client_core.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "client_pvt.h"

#define REASSEMBLY_TIMEOUT_NS (2 * NS_PER_S)  // a sender resends within this or has given up

uint64_t client_random(struct client_core *core, uint64_t below)
{
	// xorshift64*: jitter needs spread, not secrecy.
	core->random ^= core->random >> 12;
	core->random ^= core->random << 25;
	core->random ^= core->random >> 27;
	return below == 0 ? 0 : (core->random * UINT64_C(0x2545f4914f6cdd1d) >> 11) % below;
}

struct wire_buf client_send_begin(struct client_core *core, uint32_t worker)
{
	const uint32_t room = core->link.mtu - WIRE_UDP_OVERHEAD;

	return (struct wire_buf){
		.p = core->tx + WIRE_HEADER_BYTES,
		.cap = wire_lane_body_room(&core->link.lane[worker], room),
		.ok = true,
	};
}

void client_send(struct client_core *core, uint32_t worker, uint8_t type, uint32_t body)
{
	const struct net_addr to = {
		.ip = core->config.node.ip,
		.port = (uint16_t)(core->link.port_base + worker),
	};
	const uint64_t receiver = type == WIRE_HELLO ? 0 : core->link.node_boot;
	const uint16_t bytes =
		wire_lane_seal(&core->link.lane[worker], type, core->tx, body, receiver);

	core->stats.tx_datagrams++;
	core->io.send(core->io.ctx, to, core->tx, bytes);
}

static bool config_valid(const struct client_core_config *config)
{
	return config->client_id != 0 && config->boot != 0 && config->node.ip != 0 &&
	       config->node.port != 0 && config->mtu >= MTU_MIN && config->mtu <= MTU_MAX &&
	       config->publish_max >= 1 && config->publish_max <= 1u << 20 &&
	       (!config->gateway ||
		       (config->frames >= 1 && config->frames <= 4096 && config->window >= 16 &&
			       config->window <= 1u << 24 && config->receipts >= 16 &&
			       config->receipts <= 1u << 24));
}

int client_core_create(const struct client_core_config *config, const struct client_core_io *io,
	const struct tagcast_callbacks *callbacks, uint64_t now_ns, struct client_core **out)
{
	struct client_core *core;
	int rc;

	if (!config_valid(config))
		return -EINVAL;
	core = calloc(1, sizeof(*core));
	if (core == NULL)
		return -ENOMEM;
	core->config = *config;
	core->io = *io;
	core->callbacks = *callbacks;
	core->now_ns = now_ns;
	core->random = config->seed ^ config->client_id ^ UINT64_C(0x9e3779b97f4a7c15);
	if (core->random == 0)
		core->random = 1;
	client_link_init(core);
	rc = client_publishes_init(core);
	if (rc == 0 && config->gateway)
		rc = client_gateway_init(core);
	if (rc == 0 && config->gateway) {
		core->frames = wire_reassembly_create(config->frames, REASSEMBLY_TIMEOUT_NS);
		core->seen = client_seen_create(config->window, config->window_ns);
		core->awaiting = client_awaiting_create(config->receipts);
		core->receipts = calloc(1, sizeof(*core->receipts));
		core->acks = calloc(CLIENT_ACK_MEMORY, sizeof(*core->acks));
		if (core->frames == NULL || core->seen == NULL || core->awaiting == NULL ||
			core->receipts == NULL || core->acks == NULL)
			rc = -ENOMEM;
	}
	if (rc != 0) {
		client_core_destroy(core);
		return rc;
	}
	*out = core;
	return 0;
}

int client_core_set_keys(struct client_core *core, const struct wire_keys *keys)
{
	if (core->config.keys.count == 0 || keys->count == 0 || keys->count > WIRE_KEYS_MAX ||
		keys->send >= keys->count || (keys->count == 2 && keys->id[0] == keys->id[1]))
		return -EINVAL;
	core->config.keys = *keys;  // lanes point here
	return 0;
}

void client_core_destroy(struct client_core *core)
{
	if (core == NULL)
		return;
	for (uint32_t i = 0; core->acks != NULL && i < CLIENT_ACK_MEMORY; i++)
		free(core->acks[i].body);
	free(core->acks);
	free(core->receipts);
	client_awaiting_destroy(core->awaiting);
	client_seen_destroy(core->seen);
	if (core->frames != NULL)
		wire_reassembly_destroy(core->frames);
	client_gateway_fini(core);
	client_publishes_fini(core);
	free(core);
}

// HELLO_ACK is the one answer that comes before the node's boot id is known: its body says it.
static void rx_hello_ack(struct client_core *core, const uint8_t *bytes, uint32_t len,
	const struct wire_header *header, struct wire_view body)
{
	struct client_link *link = &core->link;
	const bool known = link->epoch != 0 && header->boot == link->node_boot;

	if (wire_open(&core->config.keys, bytes, len, header, link->boot) != 0 ||
		(known && !wire_replay_take(&link->replay[header->lane], header->seq))) {
		core->stats.rx_bad++;
		return;
	}
	client_on_hello_ack(core, header, body);
}

static void dispatch(struct client_core *core, const struct wire_header *header, uint32_t worker,
	struct wire_view body)
{
	const bool gateway = core->gateway != NULL;

	switch (header->type) {
	case WIRE_PUBLISH_ACK:
		client_on_publish_ack(core, body);
		return;
	case WIRE_HEARTBEAT_ACK:
		if (gateway) {
			client_on_heartbeat_ack(core, body);
			return;
		}
		break;
	case WIRE_ANNOUNCE_ACK:
		if (gateway) {
			client_on_announce_ack(core, body);
			return;
		}
		break;
	case WIRE_PUSH:
		if (gateway) {
			client_on_push(core, worker, body, false, 0);
			return;
		}
		break;
	case WIRE_SEGMENT:
		if (gateway) {
			client_on_segment(core, header, worker, body);
			return;
		}
		break;
	default:
		break;
	}
	core->stats.rx_bad++;
}

void client_core_rx(struct client_core *core, const uint8_t *bytes, uint32_t len,
	struct net_addr from, uint64_t now_ns)
{
	const struct client_link *link = &core->link;
	struct wire_header header;
	struct wire_view body;
	uint32_t worker;

	core->now_ns = now_ns;
	core->stats.rx_datagrams++;
	if (from.ip != core->config.node.ip || wire_get_header(bytes, len, &header, &body) != 0 ||
		header.sender == core->config.client_id || header.lane >= WORKERS_MAX) {
		core->stats.rx_bad++;
		return;
	}
	if (header.type == WIRE_HELLO_ACK) {
		rx_hello_ack(core, bytes, len, &header, body);
		return;
	}
	worker = (uint32_t)from.port - link->port_base;
	if (link->epoch == 0 || header.sender != link->node_id || header.boot != link->node_boot ||
		worker >= link->workers ||
		wire_open(&core->config.keys, bytes, len, &header, link->boot) != 0 ||
		!wire_replay_take(&core->link.replay[header.lane], header.seq)) {
		core->stats.rx_bad++;
		return;
	}
	core->link.heard_ns = now_ns;
	dispatch(core, &header, worker, body);
}

void client_core_poll(struct client_core *core, uint64_t now_ns)
{
	core->now_ns = now_ns;
	client_link_poll(core);
	if (core->gateway != NULL) {
		client_gateway_poll(core);
		client_receipts_flush(core);
		wire_reassembly_expire(core->frames, now_ns);
	}
	client_publishes_poll(core);
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

uint64_t client_core_next_ns(const struct client_core *core)
{
	uint64_t next = client_link_next_ns(core);

	next = earlier(next, client_publishes_next_ns(core));
	if (core->gateway == NULL)
		return next;
	next = earlier(next, client_gateway_next_ns(core));
	if (core->receipts->count != 0)
		next = earlier(next, core->now_ns);
	if (wire_reassembly_pending(core->frames) != 0)
		next = earlier(next, core->now_ns + REASSEMBLY_TIMEOUT_NS);
	return next;
}

void client_core_stats(const struct client_core *core, struct tagcast_stats *stats)
{
	*stats = core->stats;
}

void client_core_bye(struct client_core *core)
{
	if (core->gateway != NULL && core->link.up)
		client_send(core, 0, WIRE_BYE, 0);
}

bool client_core_registered(const struct client_core *core)
{
	return core->link.up;
}

uint64_t client_core_boot(const struct client_core *core)
{
	return core->link.boot;
}
