/* SPDX-License-Identifier: BSD-3-Clause */
// The link to the node: HELLO with its cookie, the registration and its loss, heartbeats. Runs on the
// client's thread.
//
// HELLO -> NEED_HELLO with a cookie -> HELLO with the cookie -> OK. Lost HELLOs are repeated with
// back-off. A gateway that hears nothing for three heartbeats, or a publisher whose publishes stay
// unanswered, says HELLO again; the answer shows whether it is the same node process.
#include <assert.h>

#include "client_pvt.h"

#define HELLO_FIRST_NS (100 * NS_PER_MS)
#define HELLO_MAX_NS (2 * NS_PER_S)
#define HELLO_REFUSED_NS (5 * NS_PER_S)  // no common version, or the node is full
#define HELLO_ROUND_MIN_NS \
	(50 * NS_PER_MS)  // between two rounds, so that a confused node is no storm
#define BEAT_RETRY_NS (200 * NS_PER_MS)
#define BEATS_MISSED_MAX 3u  // as the node counts

static void lanes_reset(struct client_core *core)
{
	for (uint32_t w = 0; w < WORKERS_MAX; w++) {
		core->link.lane[w] = (struct wire_lane){
			.sender = core->config.client_id,
			.boot = core->link.boot,
			.lane = (uint8_t)w,
			.keys = &core->config.keys,
		};
	}
}

void client_link_init(struct client_core *core)
{
	struct client_link *link = &core->link;

	link->boot = core->config.boot;
	link->mtu = core->config.mtu;
	link->port_base = core->config.node.port;
	link->workers = 1;
	link->hello_due_ns = core->now_ns;
	lanes_reset(core);
}

static void state(struct client_core *core, int registered)
{
	if (core->gateway != NULL && core->callbacks.state != NULL)
		core->callbacks.state(core->callbacks.ctx, registered);
}

static void round_start(struct client_core *core)
{
	struct client_link *link = &core->link;
	const uint64_t floor = link->hello_first_ns + HELLO_ROUND_MIN_NS;

	link->hello_due_ns = core->now_ns > floor ? core->now_ns : floor;
	link->hello_tries = 0;
	link->beat_stamp = 0;
	if (link->up) {
		link->up = false;
		state(core, 0);
	}
}

void client_link_again(struct client_core *core)
{
	core->link.cookie = 0;
	round_start(core);
}

void client_link_lost(struct client_core *core)
{
	core->link.boot++;
	lanes_reset(core);
	if (core->gateway != NULL)
		client_gateway_stop(core);
	client_link_again(core);
}

static void hello_send(struct client_core *core)
{
	struct client_link *link = &core->link;
	struct wire_buf out;
	const struct wire_hello m = {
		.role = core->gateway != NULL ? WIRE_ROLE_GATEWAY : WIRE_ROLE_PUBLISHER,
		.version_min = WIRE_VERSION,
		.version_max = WIRE_VERSION,
		.mtu = core->config.mtu,
		.cookie = link->cookie,
	};
	const uint32_t doublings = link->hello_tries < 5 ? link->hello_tries : 5;
	uint64_t wait = HELLO_FIRST_NS << doublings;

	if (link->hello_tries == 0)
		link->hello_first_ns = core->now_ns;
	// A cookie that brings no answer may be one of a former process.
	if (link->hello_tries >= 3 && link->hello_tries % 3 == 0)
		link->cookie = 0;
	if (wait > HELLO_MAX_NS)
		wait = HELLO_MAX_NS;
	link->hello_tries++;
	link->hello_due_ns = core->now_ns + wait + client_random(core, wait / 4);
	// Asked at the configured port: the node may have come back with another range.
	link->port_base = core->config.node.port;
	out = client_send_begin(core, 0);
	if (!wire_put_hello(&out, &m))
		return;
	core->stats.hellos++;
	client_send(core, 0, WIRE_HELLO, out.len);
}

static bool ack_sane(const struct wire_header *header, const struct wire_hello_ack *m)
{
	return m->node_id == header->sender && m->node_boot == header->boot && m->workers >= 1 &&
	       m->workers <= WORKERS_MAX && m->port_base != 0 &&
	       (uint32_t)m->port_base + m->workers <= 65536 && m->mtu >= MTU_MIN &&
	       m->heartbeat_ms != 0;
}

static void registered(
	struct client_core *core, const struct wire_header *header, const struct wire_hello_ack *m)
{
	struct client_link *link = &core->link;
	const bool again = link->epoch != 0;
	const bool other =
		again && (m->node_id != link->node_id || m->node_boot != link->node_boot);

	if (!again || other) {
		memset(link->replay, 0, sizeof(link->replay));
		(void)wire_replay_take(&link->replay[header->lane], header->seq);
	}
	link->node_id = m->node_id;
	link->node_boot = m->node_boot;
	if (other) {
		if (core->gateway != NULL) {
			// Another node process, reached under the boot id of a registration with the one
			// before: begin anew, so that the two streams cannot mix.
			link->epoch = 0;
			client_link_lost(core);
			return;
		}
	}
	link->port_base = m->port_base;
	link->workers = m->workers;
	link->mtu = m->mtu < core->config.mtu ? m->mtu : core->config.mtu;
	link->heartbeat_ns = m->heartbeat_ms * NS_PER_MS;
	link->topology_version = m->topology_version;
	link->epoch = ++link->epochs;
	link->up = true;
	link->heard_ns = core->now_ns;
	link->beat_due_ns = core->now_ns;
	link->beat_stamp = 0;
	link->beat_tries = 0;
	if (core->gateway != NULL && core->gateway->base == 0)
		client_gateway_restart(core);
	state(core, 1);
	client_publishes_link_up(core);
}

void client_on_hello_ack(
	struct client_core *core, const struct wire_header *header, struct wire_view body)
{
	struct client_link *link = &core->link;
	struct wire_hello_ack m;

	if (wire_get_hello_ack(body, &m) != 0) {
		core->stats.rx_bad++;
		return;
	}
	if (link->up || link->hello_tries == 0)
		return;  // a repeated answer
	switch (m.status) {
	case WIRE_NEED_HELLO:
		// Echo a cookie at once the first time it is seen; else the timer decides.
		if (m.cookie != 0 && m.cookie != link->cookie) {
			link->cookie = m.cookie;
			hello_send(core);
		}
		return;
	case WIRE_OK:
		if (!ack_sane(header, &m)) {
			core->stats.rx_bad++;
			return;
		}
		if (m.cookie != 0)
			link->cookie = m.cookie;
		registered(core, header, &m);
		return;
	case WIRE_UNSUPPORTED:
	case WIRE_LIMIT:
	default:
		link->hello_due_ns = core->now_ns + HELLO_REFUSED_NS;
		return;
	}
}

static void beat_send(struct client_core *core)
{
	struct client_link *link = &core->link;
	struct wire_buf out = client_send_begin(core, 0);
	const struct wire_heartbeat m = {
		.stamp = core->now_ns,
		.sessions = core->gateway->open,
	};
	uint64_t wait = BEAT_RETRY_NS << (link->beat_tries < 8 ? link->beat_tries : 8);

	if (wait > link->heartbeat_ns)
		wait = link->heartbeat_ns;
	if (!wire_put_heartbeat(&out, &m))
		return;
	link->beat_stamp = core->now_ns;
	link->beat_confirmed = core->gateway->base;
	link->beat_due_ns = core->now_ns + wait;
	link->beat_tries++;
	client_send(core, 0, WIRE_HEARTBEAT, out.len);
}

void client_on_heartbeat_ack(struct client_core *core, struct wire_view body)
{
	struct client_link *link = &core->link;
	struct wire_heartbeat_ack m;

	if (wire_get_heartbeat_ack(body, &m) != 0) {
		core->stats.rx_bad++;
		return;
	}
	if (!link->up || link->beat_stamp == 0 || m.stamp != link->beat_stamp)
		return;  // late or repeated
	link->beat_stamp = 0;
	link->beat_tries = 0;
	link->beat_due_ns = core->now_ns + link->heartbeat_ns;
	if (m.status != WIRE_OK ||
		!client_gateway_expected(core, link->beat_confirmed, m.next_expected)) {
		client_link_lost(core);
		return;
	}
	if (m.topology_version != link->topology_version) {
		link->topology_version = m.topology_version;
		client_gateway_repeat(core);
	}
	client_gateway_compare(core, m.sessions);
}

void client_link_poll(struct client_core *core)
{
	struct client_link *link = &core->link;

	if (link->up && core->gateway != NULL) {
		if (core->now_ns - link->heard_ns >= BEATS_MISSED_MAX * link->heartbeat_ns)
			client_link_again(core);
		else if (core->now_ns >= link->beat_due_ns)
			beat_send(core);
	}
	if (!link->up && core->now_ns >= link->hello_due_ns)
		hello_send(core);
}

uint64_t client_link_next_ns(const struct client_core *core)
{
	const struct client_link *link = &core->link;
	uint64_t silent_ns;

	if (!link->up)
		return link->hello_due_ns;
	if (core->gateway == NULL)
		return CLIENT_NEVER;
	silent_ns = link->heard_ns + BEATS_MISSED_MAX * link->heartbeat_ns;
	return link->beat_due_ns < silent_ns ? link->beat_due_ns : silent_ns;
}
