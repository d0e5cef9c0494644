/* SPDX-License-Identifier: BSD-3-Clause */
// The model of what memberships were, and the invariants. It knows sets, times and messages; it reads
// nothing of the node but what a client or an operator can see.
#include <stdio.h>
#include <string.h>

#include "base_time.h"
#include "sim.h"

static struct sim_state *newest(struct sim_channel *c)
{
	return &c->state[c->states - 1];
}

static void or_set(struct sim_set *a, const struct sim_set *b, bool remove)
{
	for (unsigned i = 0; i < 2; i++)
		a->bits[i] = remove ? a->bits[i] & ~b->bits[i] : a->bits[i] | b->bits[i];
}

static bool same_set(const struct sim_set *a, const struct sim_set *b)
{
	return a->bits[0] == b->bits[0] && a->bits[1] == b->bits[1];
}

// What the mutation makes of a state, by plain set arithmetic.
static struct sim_state expected(const struct sim_state *old, const struct sim_mutation *m)
{
	struct sim_state next = *old;
	struct sim_set *list = m->list == STORE_DENY ? &next.denied : &next.members;

	switch (m->op) {
	case STORE_ADD:
		next.exists = true;
		or_set(list, &m->set, false);
		break;
	case STORE_REMOVE:
		or_set(list, &m->set, true);
		break;
	case STORE_RESET:
		// Emptying what does not exist changes nothing.
		next.exists = old->exists || m->set.bits[0] != 0 || m->set.bits[1] != 0;
		*list = m->set;
		break;
	case STORE_CHANNEL_REMOVE:
		next.exists = false;
		memset(&next.members, 0, sizeof(next.members));
		memset(&next.denied, 0, sizeof(next.denied));
		break;
	default:
		break;
	}
	return next;
}

// I6: the store assigns the version, once per change, never back.
void sim_check_applied(struct sim *s, uint32_t index, const struct store_result *result)
{
	struct sim_mutation *m = &s->mutation[index];
	struct sim_channel *c = &s->channel[m->channel];
	const struct sim_state *old = newest(c);
	struct sim_state next = expected(old, m);
	const bool changed = next.exists != old->exists || !same_set(&next.members, &old->members) ||
		!same_set(&next.denied, &old->denied);

	if (result->repeated)
		return;
	if (changed != (result->code == STORE_R_OK)) {
		sim_fail(s, "mutation %u of room-%u: model says %s, store says %s", index, m->channel,
			changed ? "changed" : "no change",
			store_result_name((enum store_result_code)result->code));
		return;
	}
	if (!changed)
		return;
	if (result->smv != old->smv + 1) {
		sim_fail(s, "I6: mutation %u of room-%u moved the version from %llu to %llu", index,
			m->channel, (unsigned long long)old->smv, (unsigned long long)result->smv);
		return;
	}
	if (c->states == SIM_STATES_MAX) {
		sim_fail(s, "the model is full");
		return;
	}
	next.smv = result->smv;
	next.begin_ns = m->proposed_ns;
	next.end_ns = SIM_NEVER;
	m->state = c->states;
	c->removals += m->op == STORE_CHANNEL_REMOVE;
	c->state[c->states++] = next;
	sim_trace(s, "room-%u is at version %llu", m->channel, (unsigned long long)next.smv);
}

// I7: from the return of a success on, nobody may use what was before.
void sim_check_returned(struct sim *s, uint32_t index)
{
	struct sim_mutation *m = &s->mutation[index];
	struct sim_channel *c = &s->channel[m->channel];

	if (m->state == 0)
		return;
	sim_trace(s, "mutation %u of room-%u returned", index, m->channel);
	for (uint32_t i = 0; i < m->state; i++)
		if (c->state[i].end_ns == SIM_NEVER)
			c->state[i].end_ns = s->now_ns;
}

// Members of a message: those of any state, and those of every state, that may have been in use between
// its sending and its outcome.
static void members_of(const struct sim *s, const struct sim_message *m, struct sim_set *may,
	struct sim_set *must)
{
	const struct sim_channel *c = &s->channel[m->channel];
	const uint64_t end = m->outcomes != 0 ? m->outcome_ns : s->now_ns;

	memset(may, 0, sizeof(*may));
	memset(must, 0xff, sizeof(*must));
	for (uint32_t i = 0; i < c->states; i++) {
		const struct sim_state *st = &c->state[i];
		struct sim_set got = st->members;

		if (st->begin_ns > end || st->end_ns < m->sent_ns)
			continue;
		or_set(&got, &st->denied, true);
		or_set(may, &got, false);
		for (unsigned b = 0; b < 2; b++)
			must->bits[b] &= got.bits[b];
	}
}

static struct sim_message *message_of(struct sim *s, uint64_t id)
{
	return id >= 1000 && id < 1000 + s->messages ? &s->message[id - 1000] : NULL;
}

void sim_check_deliver(struct sim *s, uint32_t g, struct sim_session *session,
	const struct tagcast_message *d)
{
	struct sim_message *m = message_of(s, d->message_id);
	struct sim_set may, must;
	const uint32_t index = (uint32_t)(d->message_id - 1000);

	s->delivered++;
	if (m == NULL) {
		sim_fail(s, "message %llu was never sent", (unsigned long long)d->message_id);
		return;
	}
	sim_trace(s, "gateway %u session %u (user-%03u) gets %llu%s", g, session->handle, session->uid,
		(unsigned long long)d->message_id, d->late ? " late" : "");
	const struct channel_key *key = &s->channel[m->channel].key;
	if (d->channel_type != key->type || d->channel.len != key->len ||
		memcmp(d->channel.bytes, key->bytes, key->len) != 0 ||
		d->payload_len != m->payload || d->stamp != m->sent_ns)
		sim_fail(s, "message %llu arrives with other content", (unsigned long long)m->id);
	if (session->closed_ns != SIM_NEVER)
		sim_fail(s, "a closed session gets message %llu", (unsigned long long)m->id);
	if (session->got[index / 64] >> index % 64 & 1)
		sim_fail(s, "duplicate: session %u of gateway %u gets message %llu twice",
			session->handle, g, (unsigned long long)m->id);
	session->got[index / 64] |= UINT64_C(1) << index % 64;
	if (m->echo_session != UINT32_MAX && m->echo_gateway == g &&
		session == &s->gateway[g].session[m->echo_session])
		sim_fail(s, "echo: the sender's own session gets message %llu",
			(unsigned long long)m->id);
	members_of(s, m, &may, &must);
	if (!sim_has(&may, session->uid))
		sim_fail(s, "wrong: user-%03u gets message %llu of room-%u", session->uid,
			(unsigned long long)m->id, m->channel);
	// Order holds where the network keeps it and nothing was retried; a channel that was removed and
	// made again starts a new sequence.
	if (!d->late && s->channel[m->channel].removals == 0 && s->p.loss_permille == 0 && !s->p.crashes && !s->p.slow_gateway) {
		if (d->seq <= session->last_seq[m->channel])
			sim_fail(s, "order: seq %llu after %llu in room-%u",
				(unsigned long long)d->seq,
				(unsigned long long)session->last_seq[m->channel], m->channel);
		session->last_seq[m->channel] = d->seq;
	}
}

// I3, I5: the fences an operator sees: key and version move together, the key stays over changes.
void sim_check_tags(struct sim *s)
{
	struct node_tag_info info;
	uint32_t at = 0;

	role_take_control();
	while (node_next_tag(s->node, &at, s->now_ns, &info)) {
		struct sim_channel *c = NULL;

		for (uint32_t i = 0; i < SIM_CHANNELS; i++)
			if (channel_key_equal(&s->channel[i].key, &info.channel))
				c = &s->channel[i];
		if (c == NULL) {
			sim_fail(s, "a tag of an unknown channel");
			break;
		}
		const bool same = memcmp(c->tag_key, info.fence.key, 16) == 0;
		if (!same && c->removals_seen != c->removals) {
			c->key_may_change = true;
			c->removals_seen = c->removals;
		}
		if (c->tag_seen && !same && !c->key_may_change && !s->p.short_ttl)
			sim_fail(s, "I5: an ordinary change gave the channel another key");
		if (c->tag_seen && same && info.fence.version < c->tag_version)
			sim_fail(s, "I4: version %llu after %llu under one key",
				(unsigned long long)info.fence.version,
				(unsigned long long)c->tag_version);
		if (c->tag_seen && same && info.fence.version == c->tag_version &&
			info.smv != c->tag_smv)
			sim_fail(s, "I3: one fence names two memberships");
		if (!same && info.fence.version != 1 && c->tag_seen && !s->p.short_ttl &&
			!c->key_may_change)
			sim_fail(s, "I5: a new key starts at version %llu",
				(unsigned long long)info.fence.version);
		memcpy(c->tag_key, info.fence.key, 16);
		c->tag_version = info.fence.version;
		c->tag_smv = info.smv;
		c->tag_seen = true;
		c->key_may_change = false;
	}
	role_drop_control();
}

static bool unsure(const struct sim_gateway *gw, uint64_t at_ns)
{
	if (gw->unsures == SIM_UNSURE_MAX)
		return true;
	for (uint32_t i = 0; i < gw->unsures; i++)
		if (gw->unsure[i].from_ns <= at_ns && at_ns <= gw->unsure[i].to_ns)
			return true;
	return false;
}

static void check_must_get(struct sim *s, const struct sim_message *m, uint32_t index)
{
	struct sim_set may, must;

	if (m->status != TAGCAST_OK || m->ack == TAGCAST_ACK_NONE || m->node_life != s->node_life)
		return;
	members_of(s, m, &may, &must);
	for (uint32_t g = 0; g < s->p.gateways; g++) {
		const struct sim_gateway *gw = &s->gateway[g];

		if (gw->started_ns > m->sent_ns || (g == 0 && s->p.slow_gateway) ||
			unsure(gw, m->sent_ns))
			continue;
		for (uint32_t i = 0; i < gw->sessions; i++) {
			const struct sim_session *x = &gw->session[i];

			if (!sim_has(&must, x->uid) || x->confirmed_ns >= m->sent_ns ||
				x->closed_ns != SIM_NEVER ||
				(m->echo_gateway == g && m->echo_session == i))
				continue;
			if (!(x->got[index / 64] >> index % 64 & 1))
				sim_fail(s, "missing: user-%03u (gateway %u session %u) never got "
					    "message %llu of room-%u",
					x->uid, g, x->handle, (unsigned long long)m->id, m->channel);
		}
	}
}

// Everything that began has ended exactly once, in one counter.
static void check_sums(struct sim *s)
{
	const uint64_t *t = s->totals;
	const uint64_t members = t[CTR_END_OFFLINE] + t[CTR_END_DENIED] + t[CTR_END_ROUTED] +
		t[CTR_END_SENDER_ONLY];
	const uint64_t routes = t[CTR_ROUTE_SENT] + t[CTR_ROUTE_ACCEPTED] + t[CTR_ROUTE_ACKED] +
		t[CTR_ROUTE_DROPPED] + t[CTR_ROUTE_SESSION_GONE] + t[CTR_ROUTE_GATEWAY_GONE] +
		t[CTR_ROUTE_RETRY_CAP] + t[CTR_ROUTE_DEADLINE] + t[CTR_ROUTE_OVERFLOW] +
		t[CTR_ROUTE_NO_BUFFER];
	const uint64_t publishes = t[CTR_PUB_OK] + t[CTR_PUB_DUPLICATE] + t[CTR_PUB_UNKNOWN_CHANNEL] +
		t[CTR_PUB_BUSY] + t[CTR_PUB_TOO_LARGE] + t[CTR_PUB_RETRYABLE] + t[CTR_PUB_EXPIRED] +
		t[CTR_PUB_BAD] + t[CTR_PUB_INCOMPLETE] + t[CTR_PUB_PENDING];

	if (s->p.crashes)
		return;  // a crash cuts its incarnation's sums short
	if (members != t[CTR_MEMBERS])
		sim_fail(s, "sums: %llu members ended of %llu", (unsigned long long)members,
			(unsigned long long)t[CTR_MEMBERS]);
	if (routes != t[CTR_ROUTES])
		sim_fail(s, "sums: %llu routes ended of %llu", (unsigned long long)routes,
			(unsigned long long)t[CTR_ROUTES]);
	if (publishes != t[CTR_PUBLISH])
		sim_fail(s, "sums: %llu publishes ended of %llu", (unsigned long long)publishes,
			(unsigned long long)t[CTR_PUBLISH]);
}

void sim_check_end(struct sim *s)
{
	for (uint32_t i = 0; i < s->messages; i++)
		check_must_get(s, &s->message[i], i);
	check_sums(s);
	if (s->messages > 20 && s->delivered == 0 && s->p.gateways != 0)
		sim_trace(s, "note: nothing was delivered in this seed");
}
