/* SPDX-License-Identifier: BSD-3-Clause */
// What the node puts on the wire, looked at before the network touches it: every outcome names a fence that
// was published (I3), a message is answered and pushed once (I4), in order, and no stranger gets more bytes
// than it sent.
#include <stdlib.h>
#include <string.h>

#include "sim.h"
#include "wire.h"

const struct sim_fence *sim_wire_fence(
	const struct sim *s, uint32_t channel, const uint8_t *key, uint64_t version)
{
	for (uint32_t i = s->fences; i-- != 0;) {
		const struct sim_fence *f = &s->fence[i];

		if (f->life == s->node_life && f->channel == channel && f->version == version &&
			memcmp(f->key, key, sizeof(f->key)) == 0)
			return f;
	}
	return NULL;
}

// --- outcomes -----------------------------------------------------------------------------------------

static void check_counts(
	struct sim *s, const struct sim_message *m, const struct wire_publish_ack *ack)
{
	const unsigned long long id = m->id;

	if (ack->acked + ack->ended > ack->routes)
		sim_fail(s, "outcome of %llu: %u acked and %u ended of %u routes", id, ack->acked,
			ack->ended, ack->routes);
	if (m->ack != TAGCAST_ACK_CLIENT)
		return;
	if (ack->acked + ack->ended != ack->routes)
		sim_fail(s, "outcome of %llu: %u routes, but %u acked and %u ended", id,
			ack->routes, ack->acked, ack->ended);
	if ((ack->status == WIRE_OK) != (ack->ended == 0))
		sim_fail(s, "outcome of %llu: %s with %u routes not acknowledged", id,
			wire_status_name((enum wire_status)ack->status), ack->ended);
}

static void check_fence(
	struct sim *s, const struct sim_message *m, const struct wire_publish_ack *ack)
{
	const struct sim_fence *f = sim_wire_fence(s, m->channel, ack->tag_key, ack->tag_version);

	if (f == NULL)
		sim_fail(s, "I3: the outcome of %llu names a fence that was never published",
			(unsigned long long)m->id);
	else if (f->members != ack->members)
		sim_fail(s, "I3: the outcome of %llu names %u members, its tag has %u",
			(unsigned long long)m->id, ack->members, f->members);
	else if (f->smv < m->smv_at_send && m->answer_life == m->node_life)
		sim_fail(s, "I7: message %llu, sent when version %llu had returned, used %llu",
			(unsigned long long)m->id, (unsigned long long)m->smv_at_send,
			(unsigned long long)f->smv);
}

static void outcome(struct sim *s, struct wire_view body)
{
	struct wire_publish_ack ack;
	struct sim_message *m;

	if (wire_get_publish_ack(body, &ack) != 0) {
		sim_fail(s, "the node sent an outcome that does not parse");
		return;
	}
	if (ack.status != WIRE_OK && ack.status != WIRE_INCOMPLETE)
		return;
	if (ack.message_id < 1000 || ack.message_id >= 1000 + s->messages) {
		sim_fail(s, "an outcome of message %llu, which was never sent",
			(unsigned long long)ack.message_id);
		return;
	}
	m = &s->message[ack.message_id - 1000];
	if (m->answer_life == s->node_life) {
		// Told before: the same again, and said to be that.
		if (!ack.duplicate)
			sim_fail(s, "I4: message %llu was answered twice as if it were new",
				(unsigned long long)m->id);
		else if (ack.seq != m->answer.seq || ack.status != m->answer.status ||
			 ack.tag_version != m->answer.tag_version ||
			 memcmp(ack.tag_key, m->answer.tag_key, sizeof(ack.tag_key)) != 0)
			sim_fail(s, "I4: the repeat of %llu got another outcome than the first",
				(unsigned long long)m->id);
		return;
	}
	if (ack.duplicate)
		sim_fail(s, "message %llu is called a repeat and had no outcome before",
			(unsigned long long)m->id);
	m->answer = ack;
	m->answer_life = s->node_life;
	check_counts(s, m, &ack);
	check_fence(s, m, &ack);
}

// --- pushes -------------------------------------------------------------------------------------------

// Returns: false when it was in the set.
static bool pushed_add(struct sim *s, uint64_t hash)
{
	uint32_t at = (uint32_t)(hash >> 32) % SIM_PUSHED;

	if (s->pushed_count > SIM_PUSHED / 2)
		return true;
	hash |= 1;
	for (; s->pushed[at] != 0; at = (at + 1) % SIM_PUSHED)
		if (s->pushed[at] == hash)
			return false;
	s->pushed[at] = hash;
	s->pushed_count++;
	return true;
}

// True for the session that sent the message itself, under the registration it was sent with.
static bool own_session(const struct sim *s, uint32_t g, const struct sim_message *m, uint64_t boot,
	const uint8_t *route)
{
	uint32_t slot, gen, handle;

	if (m->echo_session == UINT32_MAX || m->echo_gateway != g || m->echo_boot != boot)
		return false;
	wire_get_route(route, &slot, &gen);
	handle = s->gateway[g].session[m->echo_session].handle;
	return (handle & 0xffffffu) == slot && handle >> 24 == (gen & 0xffu);
}

static void check_record(
	struct sim *s, uint32_t g, const struct wire_push *push, const struct wire_record *record)
{
	struct sim_channel *c;
	struct sim_message *m;

	if (record->message_id < 1000 || record->message_id >= 1000 + s->messages) {
		sim_fail(s, "a push of message %llu, which was never sent",
			(unsigned long long)record->message_id);
		return;
	}
	m = &s->message[record->message_id - 1000];
	c = &s->channel[m->channel];
	if (record->flags & WIRE_RECORD_LATE)
		return;
	for (uint16_t i = 0; i < record->routes; i++) {
		uint64_t name[4] = {record->message_id, push->gateway_boot, s->node_life};

		if (own_session(s, g, m, push->gateway_boot, record->route + i * WIRE_ROUTE_BYTES))
			sim_fail(s, "echo: message %llu is pushed to the session that sent it",
				(unsigned long long)m->id);
		memcpy(&name[3], record->route + i * WIRE_ROUTE_BYTES, WIRE_ROUTE_BYTES);
		if (!pushed_add(s, id_hash(id_view_of(name, sizeof(name)))))
			sim_fail(s, "I4: message %llu is pushed twice to one session of gateway %u",
				(unsigned long long)m->id, g);
	}
	// A channel made again starts a new sequence, as a node does.
	if (c->removals == 0 && record->seq < c->pushed_seq[g])
		sim_fail(s, "order: seq %llu of room-%u is pushed to gateway %u after %llu",
			(unsigned long long)record->seq, m->channel, g,
			(unsigned long long)c->pushed_seq[g]);
	c->pushed_seq[g] = record->seq;
}

static void push(struct sim *s, struct net_addr to, uint8_t lane, struct wire_view body)
{
	struct wire_record record;
	struct wire_push m;
	uint32_t g = 0;

	while (g < s->p.gateways && !net_addr_equal(s->gateway[g].addr, to))
		g++;
	if (g == s->p.gateways) {
		sim_fail(s, "a push to an address no gateway has");
		return;
	}
	if (wire_get_push(body, &m) != 0) {
		sim_fail(s, "the node sent a push that does not parse");
		return;
	}
	// The same push again is a resend.
	const uint64_t name[3] = {(uint64_t)m.push_gen << 32 | m.push_id, lane, s->node_life};
	if (!pushed_add(s, id_hash(id_view_of(name, sizeof(name)))))
		return;
	while (wire_push_next(&m.body, &record))
		check_record(s, g, &m, &record);
}

void sim_wire_out(struct sim *s, struct net_addr to, const uint8_t *bytes, uint16_t len)
{
	struct wire_header header;
	struct wire_view body;

	if (wire_get_header(bytes, len, &header, &body) != 0) {
		sim_fail(s, "the node sent a datagram without a header");
		return;
	}
	if ((to.ip & ~0xffu) == SIM_STRANGER_IP) {
		s->stranger_out += len;
		if (s->stranger_out > s->stranger_in)
			sim_fail(s, "strangers sent %llu bytes and get %llu",
				(unsigned long long)s->stranger_in,
				(unsigned long long)s->stranger_out);
		return;
	}
	if (header.type == WIRE_PUBLISH_ACK)
		outcome(s, body);
	else if (header.type == WIRE_PUSH)
		push(s, to, header.lane, body);
}
