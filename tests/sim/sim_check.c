/* SPDX-License-Identifier: BSD-3-Clause */
// The model of what memberships were, and the invariants. It knows sets, times and messages; it reads
// nothing of the node but what a client or an operator can see.
#include <stdio.h>
#include <stdlib.h>
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

// A result of something the store has done before must be the one it gave then.
static void check_repeated(struct sim *s, uint32_t index, const struct store_result *result)
{
	const struct store_result *first = &s->mutation[index].result;

	if (!result->repeated)
		sim_fail(s, "mutation %u was applied twice", index);
	else if (result->code != first->code || result->commit != first->commit ||
		result->smv != first->smv || result->changed != first->changed)
		sim_fail(s, "the repeat of mutation %u got another result than the first", index);
}

// A stage may stand in the way of other mutations until it was idle for so many log entries.
static bool stage_open(const struct sim_channel *c, uint64_t index)
{
	return c->stage_index != 0 && index - c->stage_index <= SIM_STAGE_COMMITS;
}

void sim_check_chunk(struct sim *s, uint32_t mutation, uint64_t index,
	const struct store_result *result)
{
	struct sim_mutation *m = &s->mutation[mutation];
	struct sim_channel *c = &s->channel[m->channel];

	if (result->repeated)
		sim_fail(s, "a chunk of mutation %u was applied before", mutation);
	if (result->smv != newest(c)->smv)
		sim_fail(s, "I6: a chunk moved the version of room-%u to %llu", m->channel,
			(unsigned long long)result->smv);
	if (result->code == STORE_R_OK)
		c->stage_index = index;
	else
		m->stage_failed = true;
}

// What a command did that the model cannot foresee: a stage is in its way, or its own was lost.
static bool excused(const struct sim_mutation *m, const struct sim_channel *c, uint64_t index,
	uint8_t code)
{
	if (code == STORE_R_BUSY)
		return stage_open(c, index);
	if (m->chunks == 0)
		return false;
	return (code == STORE_R_INVALID || code == STORE_R_NOT_FOUND) &&
		(m->stage_failed || !stage_open(c, index));
}

// I6: the store assigns the version, once per change, never back.
void sim_check_applied(struct sim *s, uint32_t index, uint64_t log_index,
	const struct store_result *result)
{
	struct sim_mutation *m = &s->mutation[index];
	struct sim_channel *c = &s->channel[m->channel];
	const struct sim_state *old = newest(c);
	struct sim_state next = expected(old, m);
	const bool changed = next.exists != old->exists || !same_set(&next.members, &old->members) ||
		!same_set(&next.denied, &old->denied);

	if (m->applied) {
		check_repeated(s, index, result);
		return;
	}
	if (result->repeated)
		sim_fail(s, "mutation %u is called a repeat and was never applied", index);
	const bool not_done = excused(m, c, log_index, result->code);
	// What did nothing for a reason of the moment may be sent again; NOT_FOUND is remembered.
	m->applied = !not_done || result->code == STORE_R_NOT_FOUND;
	m->result = *result;
	if (not_done)
		return;
	if (m->chunks != 0)
		c->stage_index = 0;
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

	m->returned = true;
	if (m->state == 0)
		return;
	if (c->state[m->state].smv > c->returned_smv)
		c->returned_smv = c->state[m->state].smv;
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
	// A repeat to a node that was started since is a message of its own.
	const bool again = m->repeated && m->node_life != s->node_life;
	const uint64_t end = m->outcomes != 0 && !again ? m->outcome_ns : s->now_ns;

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

static bool same_payload(const struct sim_message *m, const uint8_t *got)
{
	static uint8_t payload[PAYLOAD_MAX];

	sim_story_payload(m->id, payload, m->payload);
	return m->payload == 0 || memcmp(payload, got, m->payload) == 0;
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
	if (m->first_got_ns == 0)
		m->first_got_ns = s->now_ns;
	const struct channel_key *key = &s->channel[m->channel].key;
	if (d->channel_type != key->type || d->channel.len != key->len ||
		memcmp(d->channel.bytes, key->bytes, key->len) != 0 ||
		d->payload_len != m->payload || d->stamp != m->sent_ns ||
		!same_payload(m, d->payload))
		sim_fail(s, "message %llu arrives with other content", (unsigned long long)m->id);
	if (m->answer_life != 0 && m->answer_life == s->node_life && m->answer_life == m->node_life &&
		d->seq != m->answer.seq)
		sim_fail(s, "message %llu arrives as %llu, its outcome said %llu",
			(unsigned long long)m->id, (unsigned long long)d->seq,
			(unsigned long long)m->answer.seq);
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
	if (!d->late && s->channel[m->channel].removals == 0 && s->p.loss_permille == 0 &&
		!s->p.crashes && !s->p.slow_gateway && !s->p.jumps && !s->p.tiny) {
		if (d->seq <= session->last_seq[m->channel])
			sim_fail(s, "order: seq %llu after %llu in room-%u",
				(unsigned long long)d->seq,
				(unsigned long long)session->last_seq[m->channel], m->channel);
		session->last_seq[m->channel] = d->seq;
	}
}

// --- tags and limits -----------------------------------------------------------------------------------

static const struct sim_state *state_of(const struct sim_channel *c, uint64_t smv)
{
	for (uint32_t i = c->states; i-- != 0;)
		if (c->state[i].smv == smv)
			return &c->state[i];
	return NULL;
}

static void fence_add(struct sim *s, uint32_t channel, const struct node_tag_info *info)
{
	if (s->fences == s->fence_max) {
		s->fence_max = s->fence_max == 0 ? 256 : s->fence_max * 2;
		s->fence = realloc(s->fence, s->fence_max * sizeof(*s->fence));
		if (s->fence == NULL)
			abort();
	}
	struct sim_fence *f = &s->fence[s->fences++];

	memcpy(f->key, info->fence.key, sizeof(f->key));
	f->version = info->fence.version;
	f->smv = info->smv;
	f->channel = channel;
	f->members = info->members;
	f->life = s->node_life;
}

// A tag as an operator sees it, against the one at the last look. Every change is looked at, so that a
// version may only be the next one, and a key only change where there was no tag.
static void check_tag(struct sim *s, uint32_t index, const struct node_tag_info *info)
{
	struct sim_channel *c = &s->channel[index];
	const struct sim_state *state = state_of(c, info->smv);
	const bool same = c->tag_present && memcmp(c->tag_key, info->fence.key, 16) == 0;
	const unsigned long long version = info->fence.version, was = c->tag_version;

	if (same && version == was) {
		if (info->smv != c->tag_smv)
			sim_fail(s, "I3: one fence names two memberships of room-%u", index);
		return;
	}
	if (c->tag_present && !same)
		sim_fail(s, "I5: a change gave room-%u another key", index);
	if (same && version != was + 1)
		sim_fail(s, "%s: version %llu of room-%u after %llu under one key",
			version < was ? "I4" : "I5", version, index, was);
	if (!same && version != 1)
		sim_fail(s, "I5: a new key of room-%u starts at version %llu", index, version);
	if (same && info->smv < c->tag_smv)
		sim_fail(s, "I4: the tag of room-%u went back to version %llu", index,
			(unsigned long long)info->smv);
	for (uint32_t i = 0; !same && i < s->fences; i++)
		if (memcmp(s->fence[i].key, info->fence.key, 16) == 0)
			sim_fail(s, "I5: room-%u got a key that was used before", index);
	if (state == NULL || !state->exists)
		sim_fail(s, "I6: a tag of room-%u is of version %llu, which never was", index,
			(unsigned long long)info->smv);
	else if (info->members != (uint32_t)(__builtin_popcountll(state->members.bits[0]) +
					   __builtin_popcountll(state->members.bits[1])))
		sim_fail(s, "the tag of room-%u at version %llu has %u members", index,
			(unsigned long long)info->smv, info->members);
	fence_add(s, index, info);
	memcpy(c->tag_key, info->fence.key, 16);
	c->tag_version = info->fence.version;
	c->tag_smv = info->smv;
}

void sim_check_tags(struct sim *s)
{
	bool seen[SIM_CHANNELS] = {false};
	struct node_tag_info info;
	uint32_t at = 0;

	role_take_control();
	while (node_next_tag(s->node, &at, s->now_ns, &info)) {
		uint32_t c = 0;

		while (c < SIM_CHANNELS && !channel_key_equal(&s->channel[c].key, &info.channel))
			c++;
		if (c == SIM_CHANNELS) {
			sim_fail(s, "a tag of an unknown channel");
			break;
		}
		check_tag(s, c, &info);
		seen[c] = true;
	}
	role_drop_control();
	for (uint32_t c = 0; c < SIM_CHANNELS; c++)
		s->channel[c].tag_present = seen[c];
}

// I14: nothing holds more than its limit.
void sim_check_limits(struct sim *s)
{
	struct node_limit limit[16];

	role_take_control();
	const uint32_t n = node_limits(s->node, limit, 16);
	role_drop_control();
	for (uint32_t i = 0; i < n; i++)
		if (limit[i].used > limit[i].max)
			sim_fail(s, "I14: %s uses %llu of %llu", limit[i].name,
				(unsigned long long)limit[i].used, (unsigned long long)limit[i].max);
}

// Nothing is at work: nothing may be held for it.
void sim_check_idle(struct sim *s)
{
	struct node_tag_info info;
	uint32_t at = 0;

	role_take_control();
	while (node_next_tag(s->node, &at, s->now_ns, &info))
		if (info.pins != 0)
			sim_fail(s, "an idle node pins a tag %u times", info.pins);
	role_drop_control();
}

// --- outcomes and the end ------------------------------------------------------------------------------

void sim_check_outcome(struct sim *s, const struct sim_message *m, const struct tagcast_outcome *o)
{
	const struct sim_message *first = &s->message[m->first];
	const bool known = o->status == TAGCAST_OK || o->status == TAGCAST_INCOMPLETE;

	if (m->outcomes > 1)
		sim_fail(s, "message %llu has %u outcomes", (unsigned long long)m->id, m->outcomes);
	if (known && first->answer_life == 0)
		sim_fail(s, "message %llu has an outcome no node gave", (unsigned long long)m->id);
	// The first publish had its outcome in this life of the node: the repeat is one.
	if (m != first && first->node_life == s->node_life && m->node_life == s->node_life &&
		o->status != TAGCAST_TIMEOUT &&
		(o->status != TAGCAST_UNKNOWN_CHANNEL || s->channel[m->channel].removals == 0) &&
		(!known || !o->duplicate || o->seq != first->answer.seq))
		sim_fail(s, "I4: the repeat of message %llu ended as %s, seq %llu",
			(unsigned long long)m->id, tagcast_status_name(o->status),
			(unsigned long long)o->seq);
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

	if (m->status != TAGCAST_OK || m->ack == TAGCAST_ACK_NONE || m->node_life != s->node_life ||
		m->first != index || s->p.tiny)
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
		t[CTR_PUB_BAD] + t[CTR_PUB_INCOMPLETE] + t[CTR_PUB_PENDING] +
		t[CTR_PUB_NEED_HELLO];

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

// Where nothing is lost and nobody goes away, nothing need be done twice and everything ends well.
static void check_perfect(struct sim *s)
{
	uint64_t last[SIM_CHANNELS][SIM_PUBLISHERS] = {{0}};

	if (s->totals[CTR_PUSH_RESENT] != 0)
		sim_fail(s, "%llu pushes were sent again where none is lost",
			(unsigned long long)s->totals[CTR_PUSH_RESENT]);
	if (s->totals[CTR_DROP_REPLAY] != s->repeats)
		sim_fail(s, "%llu datagrams came twice, %llu were dropped for it",
			(unsigned long long)s->repeats,
			(unsigned long long)s->totals[CTR_DROP_REPLAY]);
	for (uint32_t i = 0; i < s->messages; i++) {
		const struct sim_message *m = &s->message[i];
		uint64_t *seq = &last[m->channel][m->publisher];

		if (m->ack == TAGCAST_ACK_CLIENT && m->status == TAGCAST_INCOMPLETE)
			sim_fail(s, "message %llu ended incomplete where all answer",
				(unsigned long long)m->id);
		// One queue, equal ways, none refused: a publisher's messages keep their order.
		if (m->first != i || m->answer_life == 0 || m->echo_session != UINT32_MAX ||
			m->payload > 1000 || s->p.workers != 1 || s->totals[CTR_PUB_BUSY] != 0 ||
			s->channel[m->channel].removals != 0)
			continue;
		if (m->answer.seq <= *seq)
			sim_fail(s, "order: message %llu is number %llu, the one before it %llu",
				(unsigned long long)m->id, (unsigned long long)m->answer.seq,
				(unsigned long long)*seq);
		*seq = m->answer.seq;
	}
}

void sim_check_end(struct sim *s)
{
	if (s->p.perfect)
		check_perfect(s);
	for (uint32_t i = 0; i < s->messages; i++)
		check_must_get(s, &s->message[i], i);
	check_sums(s);
	if (s->messages > 20 && s->delivered == 0 && s->p.gateways != 0)
		sim_trace(s, "note: nothing was delivered in this seed");
}
