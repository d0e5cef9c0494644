/* SPDX-License-Identifier: BSD-3-Clause */
// What happens in a simulated world: one random act at a time.
#include <stdio.h>
#include <string.h>

#include "base_time.h"
#include "sim.h"

void sim_story_payload(uint64_t id, uint8_t *payload, uint32_t bytes)
{
	uint64_t r = id * UINT64_C(0x9e3779b97f4a7c15) | 1;

	for (uint32_t i = 0; i < bytes; i++) {
		r = r * UINT64_C(6364136223846793005) + 1442695040888963407u;
		payload[i] = (uint8_t)(r >> 56);
	}
}

struct sim_session *sim_story_open(struct sim *s, uint32_t g, uint32_t uid)
{
	struct sim_gateway *gw = &s->gateway[g];
	struct sim_session *session = &gw->session[gw->sessions];
	char name[16];

	if (gw->sessions == SIM_SESSIONS_MAX)
		return NULL;
	memset(session, 0, sizeof(*session));
	session->uid = uid;
	session->opened_ns = s->now_ns;
	session->confirmed_ns = session->closed_ns = SIM_NEVER;
	sim_uid_name(session->uid, name);
	if (client_core_session_open(gw->core,
		    (struct tagcast_id){.bytes = name, .len = strlen(name)}, session,
		    &session->handle) != 0)
		return NULL;
	gw->sessions++;
	sim_trace(s, "gateway %u opens session %u of %s", g, session->handle, name);
	return session;
}

static void act_close(struct sim *s)
{
	const uint32_t g = sim_story_below(s, s->p.gateways);
	struct sim_gateway *gw = &s->gateway[g];

	if (gw->sessions == 0)
		return;
	struct sim_session *session = &gw->session[sim_story_below(s, gw->sessions)];
	if (session->closed_ns != SIM_NEVER)
		return;
	session->closed_ns = s->now_ns;
	client_core_session_close(gw->core, session->handle);
	sim_trace(s, "gateway %u closes session %u", g, session->handle);
}

// --- publishes ----------------------------------------------------------------------------------------

// A session of a gateway to be the sender's own, or none.
static struct sim_session *pick_sender(struct sim *s, uint32_t g)
{
	struct sim_gateway *gw = &s->gateway[g];

	if (!sim_story_chance(s, 300) || gw->sessions == 0)
		return NULL;
	struct sim_session *session = &gw->session[sim_story_below(s, gw->sessions)];
	return session->closed_ns == SIM_NEVER ? session : NULL;
}

// Sends message number `index`, filled in, and takes it into the list.
static bool send(struct sim *s, uint32_t index, struct client_core *core, const struct sim_session *sender)
{
	static uint8_t payload[PAYLOAD_MAX];
	struct sim_message *m = &s->message[index];
	const struct channel_key *key = &s->channel[m->channel].key;
	struct tagcast_publish publish = {
		.channel_type = key->type,
		.channel = {.bytes = key->bytes, .len = key->len},
		.message_id = m->id,
		.payload = payload,
		.payload_len = m->payload,
		.ack = m->ack,
		.stamp = s->message[m->first].sent_ns,
		.user = m,
	};
	uint64_t request;

	sim_story_payload(m->id, payload, m->payload);
	if (sender != NULL) {
		publish.sender_session = 1;
		publish.session = sender->handle;
	}
	if (client_core_publish(core, &publish, s->now_ns, &request) != 0)
		return false;
	s->messages = index + 1;
	sim_trace(s, "publish %llu%s to room-%u, ack %d, %u bytes%s", (unsigned long long)m->id,
		m->first != index ? " again" : "", m->channel, m->ack, m->payload,
		sender != NULL ? ", own session" : "");
	return true;
}

struct sim_message *sim_story_publish(struct sim *s, uint32_t channel, enum tagcast_ack ack,
	uint32_t payload)
{
	struct sim_message *m = &s->message[s->messages];
	const uint32_t g = sim_story_below(s, s->p.gateways);
	const uint32_t publisher = sim_story_below(s, s->p.publishers);
	struct sim_session *sender = pick_sender(s, g);
	struct client_core *core = s->publisher[publisher].core;

	if (s->messages == SIM_MESSAGES_MAX)
		return NULL;
	*m = (struct sim_message){
		.id = 1000 + s->messages,
		.first = s->messages,
		.channel = channel,
		.ack = ack,
		.payload = payload,
		.publisher = publisher,
		.sent_ns = s->now_ns,
		.smv_at_send = s->channel[channel].returned_smv,
		.node_life = s->node_life,
		.echo_session = UINT32_MAX,
	};
	if (s->gateway[g].deaf)
		sender = NULL;
	if (sender != NULL) {
		// Sent by a client of this gateway through the gateway itself.
		core = s->gateway[g].core;
		m->echo_gateway = g;
		m->echo_session = (uint32_t)(sender - s->gateway[g].session);
	}
	return send(s, s->messages, core, sender) ? m : NULL;
}

static void act_publish(struct sim *s)
{
	const uint32_t channel = sim_story_below(s, SIM_CHANNELS);
	const enum tagcast_ack ack = (enum tagcast_ack)sim_story_below(s, 3);
	const bool large = sim_story_chance(s, 30);

	sim_story_publish(s, channel, ack, sim_story_below(s, large ? PAYLOAD_MAX + 1 : 600));
	// A few in a row: while one waits for its tag, others come to wait behind it.
	for (uint32_t i = 0; s->p.perfect && i < 3; i++)
		sim_story_publish(s, channel, ack, 100);
}

// A publisher that forgot: the same message once more, from anywhere.
static void act_repeat(struct sim *s)
{
	const uint32_t pick = sim_story_below(s, s->messages);
	const uint32_t publisher = sim_story_below(s, s->p.publishers);
	struct sim_message *m = &s->message[s->messages], *first;

	if (s->messages == 0 || s->messages == SIM_MESSAGES_MAX)
		return;
	first = &s->message[s->message[pick].first];
	if (first->outcomes == 0 || first->answer_life != s->node_life ||
		first->node_life != s->node_life || s->p.tiny)
		return;
	*m = (struct sim_message){
		.id = first->id,
		.first = first->first,
		.channel = first->channel,
		.ack = first->ack,
		.payload = first->payload,
		.publisher = publisher,
		.sent_ns = s->now_ns,
		.node_life = s->node_life,
		.echo_session = UINT32_MAX,
	};
	if (send(s, s->messages, s->publisher[publisher].core, NULL))
		first->repeated = true;
}

// --- mutations ----------------------------------------------------------------------------------------

static void act_mutate(struct sim *s)
{
	struct sim_mutation *m = &s->mutation[s->mutations];
	const uint32_t dice = sim_story_below(s, 100), channel = sim_story_below(s, SIM_CHANNELS);
	const bool deny = sim_story_chance(s, 150), many = sim_story_chance(s, 200);
	const bool staged = sim_story_chance(s, 80);
	uint32_t count = 1 + sim_story_below(s, many || staged ? SIM_UIDS : 4);

	if (s->mutations == SIM_MUTATIONS_MAX)
		return;
	*m = (struct sim_mutation){.channel = channel};
	m->list = deny ? STORE_DENY : STORE_MEMBERS;
	m->op = dice < 50 ? STORE_ADD : dice < 80 ? STORE_REMOVE : dice < 96 ? STORE_RESET
									    : STORE_CHANNEL_REMOVE;
	if (m->op == STORE_RESET && sim_story_chance(s, 300))
		count = 0;  // remove all
	if (m->op == STORE_CHANNEL_REMOVE) {
		count = 0;
		m->list = STORE_MEMBERS;
	}
	for (uint32_t i = 0; i < count; i++)
		sim_put(&m->set, sim_story_below(s, SIM_UIDS), true);
	if (staged && count != 0)
		m->chunks = (uint32_t)(__builtin_popcountll(m->set.bits[0]) +
				    __builtin_popcountll(m->set.bits[1]) + 11) / 12;
	if (!sim_meta_propose(s, s->mutations))
		return;
	s->mutations++;
	// A proposer that is not sure whether it was heard.
	if (m->chunks == 0 && sim_story_chance(s, 80))
		sim_meta_propose(s, s->mutations - 1);
}

// Somebody never learned what became of a mutation, and tries once more.
static void act_mutate_again(struct sim *s)
{
	const uint32_t pick = sim_story_below(s, s->mutations);

	if (s->mutations != 0 && !s->mutation[pick].returned && !s->mutation[pick].open)
		sim_meta_propose(s, pick);
}

// --- faults -------------------------------------------------------------------------------------------

static void act_crash(struct sim *s)
{
	const uint32_t dice = sim_story_below(s, 10), g = sim_story_below(s, s->p.gateways);

	if (dice < 4) {
		sim_meta_crash(s);
	} else if (dice < 7) {
		sim_gateway_restart(s, g);
	} else if (dice < 9) {
		sim_node_stop(s);
		sim_node_start(s);
	} else if (s->p.slow_gateway) {
		s->gateway[0].deaf = !s->gateway[0].deaf;
		sim_trace(s, "gateway 0 is %s", s->gateway[0].deaf ? "deaf" : "back");
	}
}

// A machine that was suspended, or a clock set forward.
static void act_jump(struct sim *s)
{
	const uint64_t from_ns = s->now_ns;

	s->now_ns += (1 + sim_story_below(s, 6)) * NS_PER_S;
	sim_trace(s, "the clock jumps");
	for (uint32_t g = 0; g < s->p.gateways; g++)
		sim_gateway_unsure(s, g, from_ns > 5 * NS_PER_S ? from_ns - 5 * NS_PER_S : 0,
			s->now_ns + 5 * NS_PER_S);
}

// The body of something a stranger may say. Returns: its type.
static uint8_t stranger_body(struct sim *s, struct wire_buf *out)
{
	const struct wire_push_ack ack = {.push_id = sim_story_below(s, 64),
		.push_gen = 1 + sim_story_below(s, 4), .accepted = (uint16_t)sim_story_below(s, 8)};
	struct wire_publish publish = {.request_id = 1, .message_id = 1 + sim_story_below(s, 5000),
		.cookie = sim_random(s), .ack = WIRE_ACK_GATEWAY, .channel = s->channel[0].key};
	const struct wire_hello hello = {.role = WIRE_ROLE_GATEWAY, .version_min = WIRE_VERSION,
		.version_max = WIRE_VERSION, .mtu = 1500, .cookie = sim_random(s)};
	const struct wire_segment segment = {.frame_id = sim_story_below(s, 8), .type = WIRE_PUBLISH,
		.count = 2 + (uint16_t)sim_story_below(s, 60), .total = 60000, .part = {out->p, 0}};
	const struct wire_heartbeat heartbeat = {.stamp = 1};

	switch (sim_story_below(s, 6)) {
	case 0:
		wire_put_push_ack(out, &ack);
		return WIRE_PUSH_ACK;
	case 1:
		wire_put_publish(out, &publish);
		return WIRE_PUBLISH;
	case 2:
		wire_put_hello(out, &hello);
		return WIRE_HELLO;
	case 3:
		wire_put_segment(out, &segment);
		return WIRE_SEGMENT;
	case 4:
		wire_put_heartbeat(out, &heartbeat);
		return WIRE_HEARTBEAT;
	default:
		wire_announce_begin(out, 1 + sim_story_below(s, 3));
		wire_announce_add(out, &(struct wire_session){.op = WIRE_SESSION_OPEN, .slot = 1,
						.gen = 1, .uid = id_view_of("user-001", 8)});
		return WIRE_ANNOUNCE;
	}
}

void sim_story_stranger(struct sim *s)
{
	const struct net_addr from = {
		.ip = SIM_STRANGER_IP + sim_story_below(s, 64), .port = 5000};
	struct net_addr to = s->node_addr;
	struct wire_header header = {.sender = 9000 + sim_story_below(s, 1000),
		.boot = 1 + sim_story_below(s, 3), .lane = (uint8_t)sim_story_below(s, 4),
		.seq = 1 + sim_random(s) % 1000000};
	uint8_t bytes[512];
	struct wire_buf out = {.p = bytes + WIRE_HEADER_BYTES, .cap = 400, .ok = true};

	to.port = (uint16_t)(to.port + sim_story_below(s, s->p.workers + 1));
	header.type = stranger_body(s, &out);
	// Who knows the key is no stranger; but it may be a client with a wrong idea of things.
	const bool sealed = s->p.auth && sim_story_chance(s, 500);
	header.flags = sealed ? WIRE_AUTH : 0;
	header.key_id = sealed ? s->keys.id[0] : 0;
	header.bytes = (uint16_t)(WIRE_HEADER_BYTES + out.len + (sealed ? WIRE_TAG_BYTES : 0));
	wire_put_header(bytes, &header);
	if (sealed)
		wire_seal(&s->keys, bytes, header.bytes,
			header.type == WIRE_HELLO ? 0 : 1000 + s->node_life);
	s->stranger_in += header.bytes;
	sim_net_inject(s, from, to, bytes, header.bytes);
}

void sim_story_act(struct sim *s)
{
	const uint32_t dice = sim_story_below(s, 1000), extra = sim_story_below(s, 1000);

	for (uint32_t i = 0; s->p.strangers && i < extra % 8; i++)
		sim_story_stranger(s);
	if (s->p.jumps && extra < 10)
		act_jump(s);
	if (dice < 300)
		sim_story_open(s, sim_story_below(s, s->p.gateways), sim_story_below(s, SIM_UIDS));
	else if (dice < 360 && !s->p.perfect)
		act_close(s);
	else if (dice < 610)
		act_mutate(s);
	else if (dice < 620)
		act_mutate_again(s);
	else if (dice < 660)
		act_repeat(s);
	else if (dice < 985 || !s->p.crashes)
		act_publish(s);
	else
		act_crash(s);
}
