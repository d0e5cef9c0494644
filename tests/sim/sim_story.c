/* SPDX-License-Identifier: BSD-3-Clause */
// What happens in a simulated world: one random act at a time.
#include <stdio.h>
#include <string.h>

#include "base_time.h"
#include "sim.h"

static void act_open(struct sim *s)
{
	const uint32_t g = sim_below(s, s->p.gateways);
	struct sim_gateway *gw = &s->gateway[g];
	struct sim_session *session = &gw->session[gw->sessions];
	char name[16];

	if (gw->sessions == SIM_SESSIONS_MAX)
		return;
	memset(session, 0, sizeof(*session));
	session->uid = sim_below(s, SIM_UIDS);
	session->opened_ns = s->now_ns;
	session->confirmed_ns = session->closed_ns = SIM_NEVER;
	sim_uid_name(session->uid, name);
	if (client_core_session_open(gw->core,
		    (struct tagcast_id){.bytes = name, .len = strlen(name)}, session,
		    &session->handle) != 0)
		return;
	gw->sessions++;
	sim_trace(s, "gateway %u opens session %u of %s", g, session->handle, name);
}

static void act_close(struct sim *s)
{
	const uint32_t g = sim_below(s, s->p.gateways);
	struct sim_gateway *gw = &s->gateway[g];

	if (gw->sessions == 0)
		return;
	struct sim_session *session = &gw->session[sim_below(s, gw->sessions)];
	if (session->closed_ns != SIM_NEVER)
		return;
	session->closed_ns = s->now_ns;
	client_core_session_close(gw->core, session->handle);
	sim_trace(s, "gateway %u closes session %u", g, session->handle);
}

// A session of a gateway to be the sender's own, or none.
static struct sim_session *pick_sender(struct sim *s, uint32_t g)
{
	struct sim_gateway *gw = &s->gateway[g];

	if (gw->sessions == 0 || !sim_chance(s, 300))
		return NULL;
	struct sim_session *session = &gw->session[sim_below(s, gw->sessions)];
	return session->closed_ns == SIM_NEVER ? session : NULL;
}

static void act_publish(struct sim *s)
{
	static uint8_t payload[PAYLOAD_MAX];
	struct sim_message *m = &s->message[s->messages];
	const uint32_t g = sim_below(s, s->p.gateways);
	struct sim_session *sender;
	uint64_t request;

	if (s->messages == SIM_MESSAGES_MAX)
		return;
	memset(m, 0, sizeof(*m));
	m->id = 1000 + s->messages;
	m->channel = sim_below(s, SIM_CHANNELS);
	m->ack = (enum tagcast_ack)sim_below(s, 3);
	m->payload = sim_chance(s, 30) ? sim_below(s, PAYLOAD_MAX + 1) : sim_below(s, 600);
	m->publisher = sim_below(s, s->p.publishers);
	m->sent_ns = s->now_ns;
	m->node_life = s->node_life;
	m->echo_session = UINT32_MAX;
	sender = pick_sender(s, g);
	const struct channel_key *key = &s->channel[m->channel].key;
	struct tagcast_publish publish = {
		.channel_type = key->type,
		.channel = {.bytes = key->bytes, .len = key->len},
		.message_id = m->id,
		.payload = payload,
		.payload_len = m->payload,
		.ack = m->ack,
		.stamp = s->now_ns,
		.user = m,
	};
	struct client_core *core = s->publisher[m->publisher].core;
	if (sender != NULL && !s->gateway[g].deaf) {
		// Sent by a client of this gateway through the gateway itself.
		core = s->gateway[g].core;
		publish.sender_session = 1;
		publish.session = sender->handle;
		m->echo_gateway = g;
		m->echo_session = (uint32_t)(sender - s->gateway[g].session);
	}
	if (client_core_publish(core, &publish, s->now_ns, &request) != 0)
		return;
	s->messages++;
	sim_trace(s, "publish %llu to room-%u, ack %d, %u bytes%s", (unsigned long long)m->id,
		m->channel, m->ack, m->payload, sender != NULL ? ", own session" : "");
}

static void act_mutate(struct sim *s)
{
	struct sim_mutation *m = &s->mutation[s->mutations];
	const uint32_t dice = sim_below(s, 100);

	if (s->mutations == SIM_MUTATIONS_MAX)
		return;
	memset(m, 0, sizeof(*m));
	m->channel = sim_below(s, SIM_CHANNELS);
	m->list = sim_chance(s, 150) ? STORE_DENY : STORE_MEMBERS;
	m->op = dice < 50 ? STORE_ADD : dice < 80 ? STORE_REMOVE : dice < 96 ? STORE_RESET
									    : STORE_CHANNEL_REMOVE;
	uint32_t count = sim_chance(s, 200) ? 1 + sim_below(s, SIM_UIDS) : 1 + sim_below(s, 4);
	if (m->op == STORE_RESET && sim_chance(s, 300))
		count = 0;  // remove all
	if (m->op == STORE_CHANNEL_REMOVE) {
		count = 0;
		m->list = STORE_MEMBERS;
	}
	for (uint32_t i = 0; i < count; i++)
		sim_put(&m->set, sim_below(s, SIM_UIDS), true);
	if (sim_meta_propose(s, s->mutations))
		s->mutations++;
}

static void act_crash(struct sim *s)
{
	const uint32_t dice = sim_below(s, 10);

	if (dice < 4) {
		sim_meta_crash(s);
	} else if (dice < 7) {
		sim_gateway_restart(s, sim_below(s, s->p.gateways));
	} else if (dice < 9) {
		sim_node_stop(s);
		for (uint32_t c = 0; c < SIM_CHANNELS; c++)
			s->channel[c].key_may_change = true;
		sim_node_start(s);
	} else if (s->p.slow_gateway) {
		s->gateway[0].deaf = !s->gateway[0].deaf;
		sim_trace(s, "gateway 0 is %s", s->gateway[0].deaf ? "deaf" : "back");
	}
}

void sim_story_act(struct sim *s)
{
	const uint32_t dice = sim_below(s, 1000);

	if (dice < 300)
		act_open(s);
	else if (dice < 360)
		act_close(s);
	else if (dice < 620)
		act_mutate(s);
	else if (dice < 985 || !s->p.crashes)
		act_publish(s);
	else
		act_crash(s);
}
