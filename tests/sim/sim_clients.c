/* SPDX-License-Identifier: BSD-3-Clause */
// Simulated gateways and publishers over the pure core of libtagcast.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base_time.h"
#include "sim.h"

#define NOTICE_NS (4 * NS_PER_S)    // at most from the first lost heartbeat to the gateway's knowledge
#define ANNOUNCE_NS (2 * NS_PER_S)  // at most from a registration to the last announcement

struct endpoint {
	struct sim *sim;
	uint32_t index;
	bool gateway;
};

static struct endpoint endpoints[SIM_GATEWAYS + SIM_PUBLISHERS];

void sim_uid_name(uint32_t uid, char name[16])
{
	snprintf(name, 16, "user-%03u", uid);
}

static void on_send(void *ctx, struct net_addr to, const uint8_t *bytes, uint16_t len)
{
	const struct endpoint *e = ctx;
	struct sim *s = e->sim;

	sim_net_send(s, e->gateway ? s->gateway[e->index].addr : s->publisher[e->index].addr, to,
		bytes, len);
}

static void on_outcome(void *ctx, const struct tagcast_outcome *outcome)
{
	const struct endpoint *e = ctx;
	struct sim *s = e->sim;
	struct sim_message *m = outcome->user;

	m->outcomes++;
	// Without an answer it may still be on its way.
	m->outcome_ns = outcome->status == TAGCAST_TIMEOUT ? SIM_NEVER : s->now_ns;
	m->status = outcome->status;
	sim_trace(s, "outcome of %llu: %s, %u members, %u routes, %u acked, %u ended%s",
		(unsigned long long)m->id, tagcast_status_name(outcome->status), outcome->members,
		outcome->routes, outcome->acked, outcome->ended, outcome->duplicate ? ", again" : "");
	sim_check_outcome(s, m, outcome);
}

static enum tagcast_verdict on_deliver(void *ctx, uint32_t handle, void *user,
	const struct tagcast_message *message)
{
	const struct endpoint *e = ctx;
	struct sim *s = e->sim;
	struct sim_session *session = user;

	if (session->handle != handle)
		sim_fail(s, "deliver names session %u with the user pointer of %u", handle,
			session->handle);
	// A connection that is busy now and then.
	if (!s->quiet && !s->p.starve && !s->p.perfect && sim_chance(s, 20))
		return TAGCAST_RETRY;
	sim_check_deliver(s, e->index, session, message);
	if (!s->quiet && !s->p.starve && !s->p.perfect && sim_chance(s, 50))
		return TAGCAST_ACCEPT;  // this client never sends its receipt for this one
	client_core_receipt(s->gateway[e->index].core, handle, message->channel,
		message->channel_type, message->message_id);
	return TAGCAST_ACCEPT;
}

static void on_state(void *ctx, int registered)
{
	const struct endpoint *e = ctx;

	sim_trace(e->sim, "%s %u %s", e->gateway ? "gateway" : "publisher", e->index,
		registered ? "registered" : "lost");
	if (!e->gateway)
		return;
	struct sim_gateway *gw = &e->sim->gateway[e->index];
	if (registered && gw->unsures != 0 && gw->unsure[gw->unsures - 1].to_ns == SIM_NEVER) {
		gw->unsure[gw->unsures - 1].to_ns = e->sim->now_ns + ANNOUNCE_NS;
	} else if (!registered) {
		sim_gateway_unsure(e->sim, e->index,
			e->sim->now_ns > NOTICE_NS ? e->sim->now_ns - NOTICE_NS : 0, SIM_NEVER);
	}
}

void sim_gateway_unsure(struct sim *s, uint32_t g, uint64_t from_ns, uint64_t to_ns)
{
	struct sim_gateway *gw = &s->gateway[g];

	if (gw->unsures == SIM_UNSURE_MAX)
		return;
	// An open one stays the last.
	if (gw->unsures != 0 && gw->unsure[gw->unsures - 1].to_ns == SIM_NEVER) {
		if (from_ns < gw->unsure[gw->unsures - 1].from_ns)
			gw->unsure[gw->unsures - 1].from_ns = from_ns;
		return;
	}
	gw->unsure[gw->unsures].from_ns = from_ns;
	gw->unsure[gw->unsures++].to_ns = to_ns;
}

static int core_open(struct sim *s, struct endpoint *e, uint64_t id, uint64_t boot,
	struct client_core **core)
{
	const struct client_core_config config = {
		.client_id = id,
		.boot = boot,
		.node = s->node_addr,
		.gateway = e->gateway,
		.mtu = 1500,
		.keys = s->keys,
		.window = 16384,
		.window_ns = 600 * NS_PER_S,
		.publish_max = 256,
		.receipts = 4096,
		.frames = 16,
		.seed = sim_random(s),
	};
	const struct client_core_io io = {.send = on_send, .ctx = e};
	const struct tagcast_callbacks callbacks = {
		.outcome = on_outcome,
		.deliver = on_deliver,
		.state = on_state,
		.ctx = e,
	};

	return client_core_create(&config, &io, &callbacks, s->now_ns, core);
}

static void core_close(struct sim *s, struct client_core *core)
{
	struct tagcast_stats stats;

	if (core == NULL)
		return;
	client_core_stats(core, &stats);
	s->suppressed += stats.suppressed;
	client_core_destroy(core);
}

int sim_clients_open(struct sim *s)
{
	for (uint32_t g = 0; g < s->p.gateways; g++) {
		endpoints[g] = (struct endpoint){.sim = s, .index = g, .gateway = true};
		s->gateway[g].addr = (struct net_addr){.ip = 0x0a000100 + g, .port = 9000};
		s->gateway[g].session = calloc(SIM_SESSIONS_MAX, sizeof(struct sim_session));
		if (s->gateway[g].session == NULL || sim_gateway_restart(s, g) != 0)
			return 1;
	}
	for (uint32_t p = 0; p < s->p.publishers; p++) {
		struct endpoint *e = &endpoints[SIM_GATEWAYS + p];

		*e = (struct endpoint){.sim = s, .index = p};
		s->publisher[p].addr = (struct net_addr){.ip = 0x0a000200 + p, .port = 9100};
		if (core_open(s, e, 500 + p, 1 + sim_below(s, 1u << 30), &s->publisher[p].core) != 0)
			return 1;
	}
	return 0;
}

void sim_clients_close(struct sim *s)
{
	for (uint32_t g = 0; g < s->p.gateways; g++) {
		core_close(s, s->gateway[g].core);
		free(s->gateway[g].session);
		s->gateway[g].core = NULL;
	}
	for (uint32_t p = 0; p < s->p.publishers; p++)
		core_close(s, s->publisher[p].core);
}

// A gateway process dies (its sessions with it) and comes back with another boot id.
int sim_gateway_restart(struct sim *s, uint32_t g)
{
	struct sim_gateway *gw = &s->gateway[g];

	core_close(s, gw->core);
	gw->core = NULL;
	// What this process had sent and not heard of dies with it.
	for (uint32_t i = 0; i < s->messages; i++) {
		struct sim_message *m = &s->message[i];

		if (m->echo_session == UINT32_MAX || m->echo_gateway != g || m->outcomes != 0)
			continue;
		m->outcomes = 1;
		m->status = TAGCAST_TIMEOUT;
		m->outcome_ns = SIM_NEVER;
	}
	for (uint32_t i = 0; i < gw->sessions; i++)
		if (gw->session[i].closed_ns == SIM_NEVER)
			gw->session[i].closed_ns = s->now_ns;
	gw->life++;
	gw->started_ns = s->now_ns;
	gw->boot = (uint64_t)gw->life << 32 | (1 + sim_below(s, 1u << 30));
	sim_trace(s, "gateway %u starts, life %u", g, gw->life);
	return core_open(s, &endpoints[g], 100 + g, gw->boot, &gw->core);
}

void sim_client_rx(struct sim *s, struct net_addr to, const uint8_t *bytes, uint16_t len,
	struct net_addr from)
{
	for (uint32_t g = 0; g < s->p.gateways; g++)
		if (net_addr_equal(s->gateway[g].addr, to) && !s->gateway[g].deaf)
			client_core_rx(s->gateway[g].core, bytes, len, from, s->now_ns);
	for (uint32_t p = 0; p < s->p.publishers; p++)
		if (net_addr_equal(s->publisher[p].addr, to))
			client_core_rx(s->publisher[p].core, bytes, len, from, s->now_ns);
}

void sim_clients_step(struct sim *s)
{
	for (uint32_t g = 0; g < s->p.gateways; g++) {
		struct sim_gateway *gw = &s->gateway[g];

		if (gw->deaf)
			continue;
		client_core_poll(gw->core, s->now_ns);
		if (client_core_announce_pending(gw->core) != 0 || !client_core_registered(gw->core))
			continue;
		for (uint32_t i = 0; i < gw->sessions; i++)
			if (gw->session[i].confirmed_ns == SIM_NEVER &&
				gw->session[i].closed_ns == SIM_NEVER)
				gw->session[i].confirmed_ns = s->now_ns;
	}
	for (uint32_t p = 0; p < s->p.publishers; p++)
		client_core_poll(s->publisher[p].core, s->now_ns);
}

uint64_t sim_clients_next_ns(const struct sim *s)
{
	uint64_t next = SIM_NEVER;

	for (uint32_t g = 0; g < s->p.gateways; g++) {
		const uint64_t n = client_core_next_ns(s->gateway[g].core);

		next = n < next ? n : next;
	}
	return next;
}
