/* SPDX-License-Identifier: BSD-3-Clause */
// Proposals and barriers of a follower at its leader: frames there, answers back, and what becomes of them
// when the connection or the leader goes. Owns the list of requests under way. Context: the loop.
#include "raft_peer.h"

#include <string.h>
#include <stdlib.h>

#include "base_log.h"

// --- requests of this node ---------------------------------------------------------------------------------

static struct forward *forward_new(struct raft_peers *p, enum side_type type, uint64_t request,
	const struct side_conn *conn, uint64_t wait_ns)
{
	struct forward *f = calloc(1, sizeof(*f));

	if (f == NULL)
		return NULL;
	*f = (struct forward){.type = (uint8_t)type,
		.request = request,
		.serial = conn->serial,
		.deadline_ns = p->now_ns + wait_ns,
		.next = p->forwards};
	p->forwards = f;
	return f;
}

// Returns: where the request of this type and number is linked, or NULL.
static struct forward **find(
	struct raft_peers *p, enum side_type type, const struct side_conn *conn, uint64_t request)
{
	for (struct forward **at = &p->forwards; *at != NULL; at = &(*at)->next)
		if ((*at)->type == type && (*at)->request == request &&
			(*at)->serial == conn->serial)
			return at;
	return NULL;
}

static void drop(struct forward **at)
{
	struct forward *f = *at;

	*at = f->next;
	free(f);
}

static uint32_t count(const struct raft_peers *p, enum side_type type)
{
	uint32_t n = 0;

	for (const struct forward *f = p->forwards; f != NULL; f = f->next)
		n += f->type == type;
	return n;
}

// Sends what was accounted for at the head of the list. Returns: CONS_OK; CONS_BUSY: it is forgotten again.
static enum cons_status forward_send(struct raft_peers *p, struct forward *f, uint64_t token,
	struct side_conn *conn, const struct side_frame *frame)
{
	if (f == NULL)
		return CONS_BUSY;
	f->token = token;
	if (side_send(conn, frame))
		return CONS_OK;
	drop(&p->forwards);
	return CONS_BUSY;
}

enum cons_status raft_peers_propose(
	struct raft_cons *c, const uint8_t *data, uint32_t len, uint64_t token)
{
	struct raft_peers *p = c->peers;
	struct side_conn *conn = side_leader(p);
	const struct side_frame frame = {
		.type = SIDE_PROPOSE, .request = token, .life = c->life, .data = data, .len = len};

	if (len > ENTRY_BYTES_MAX)
		return CONS_TOO_LARGE;
	if (conn == NULL)
		return CONS_NOT_LEADER;
	if (count(p, SIDE_PROPOSE) >= FORWARD_PROPOSALS_MAX)
		return CONS_BUSY;
	return forward_send(
		p, forward_new(p, SIDE_PROPOSE, token, conn, FORWARD_NS), token, conn, &frame);
}

enum cons_status raft_peers_barrier(struct raft_cons *c, uint64_t token)
{
	struct raft_peers *p = c->peers;
	struct side_conn *conn = side_leader(p);
	const struct side_frame frame = {.type = SIDE_BARRIER, .request = ++p->request};

	if (conn == NULL)
		return CONS_NOT_LEADER;
	if (count(p, SIDE_BARRIER) >= FORWARD_BARRIERS_MAX)
		return CONS_BUSY;
	return forward_send(p, forward_new(p, SIDE_BARRIER, frame.request, conn, FORWARD_NS), token,
		conn, &frame);
}

bool forward_change(struct raft_peers *p, const struct cons_change *change, uint64_t life,
	const struct change_reply *reply, bool relayed)
{
	struct side_conn *conn = side_leader(p);
	struct side_frame frame = {.type = SIDE_MEMBER,
		.request = ++p->request,
		.life = life,
		.op = change->op,
		.id = change->id};
	struct forward *f;

	if (conn == NULL)
		return false;
	memcpy(frame.address, change->address, sizeof(frame.address));
	f = forward_new(p, SIDE_MEMBER, frame.request, conn, FORWARD_CHANGE_NS);
	if (f == NULL)
		return false;
	f->relayed = relayed;
	if (reply != NULL)
		f->reply = *reply;
	if (side_send(conn, &frame))
		return true;
	drop(&p->forwards);
	return false;
}

// No answer will come any more.
static void forward_lost(struct raft_peers *p, struct forward *f, const char *why)
{
	switch (f->type) {
	case SIDE_PROPOSE:
		core_answer(p->c, f->token, CONS_UNKNOWN, why);
		break;
	case SIDE_BARRIER:
		core_answer(p->c, f->token, CONS_NOT_LEADER, why);
		break;
	default:
		if (f->relayed)
			change_relayed(p, CONS_UNKNOWN, why);
		else
			change_answer(p, &f->reply, CONS_UNKNOWN, why);
	}
}

// Takes all that fit out of the list, then says so: saying may begin new requests.
static void lose(struct raft_peers *p,
	bool (*fits)(const struct raft_peers *, const struct forward *, uint64_t),
	uint64_t argument, const char *why)
{
	struct forward *lost = NULL, *f;

	for (struct forward **at = &p->forwards; *at != NULL;) {
		f = *at;
		if (!fits(p, f, argument)) {
			at = &f->next;
			continue;
		}
		*at = f->next;
		f->next = lost;
		lost = f;
	}
	while (lost != NULL) {
		f = lost;
		lost = f->next;
		forward_lost(p, f, why);
		free(f);
	}
}

static bool over_conn(const struct raft_peers *p, const struct forward *f, uint64_t serial)
{
	return f->serial == serial;
}

static bool moved(const struct raft_peers *p, const struct forward *f, uint64_t unused)
{
	return f->type != SIDE_MEMBER;  // a leader that hands over still says how a change ended
}

static bool late(const struct raft_peers *p, const struct forward *f, uint64_t unused)
{
	return p->now_ns >= f->deadline_ns;
}

void forward_conn_gone(struct raft_peers *p, uint64_t serial)
{
	lose(p, over_conn, serial, "the connection to the leader was lost");
}

void forward_turn(struct raft_peers *p, bool changed)
{
	for (struct forward **at = &p->forwards; *at != NULL;) {
		if ((*at)->type == SIDE_PROPOSE &&
			core_find(p->c, (*at)->token, OPEN_PROPOSAL) == NULL)
			drop(at);  // seen applied
		else
			at = &(*at)->next;
	}
	if (changed)
		lose(p, moved, 0, "leadership moved meanwhile");
	lose(p, late, 0, "the leader did not answer in time");
}

void forward_discard(struct raft_peers *p)
{
	while (p->forwards != NULL)
		drop(&p->forwards);
	while (p->led != NULL) {
		struct led_barrier *next = p->led->next;

		free(p->led);
		p->led = next;
	}
}

// --- requests of others at this leader ---------------------------------------------------------------------

// The few places in flight go round: this node's own proposals, which come and are refused when there is
// no room, then those that wait at connections. True when it is not this connection's turn.
static bool must_wait(struct side_conn *conn)
{
	struct raft_peers *p = conn->p;
	struct raft_cons *c = p->c;

	if (conn->stalled_ns == 0)
		for (const struct side_conn *other = p->conns; other != NULL; other = other->next)
			if (other->stalled_ns != 0)
				return true;
	if (!c->own_waits || p->own_seen != c->stats.proposals) {
		p->way_ns = 0;
		return false;
	}
	if (p->way_ns == 0)
		p->way_ns = p->now_ns;
	if (p->now_ns < p->way_ns + SIDE_WAY_NS)
		return true;
	c->own_waits = false;
	p->way_ns = 0;
	return false;
}

static enum side_taken on_propose(
	struct side_conn *conn, const struct side_frame *frame, bool waited)
{
	struct raft_peers *p = conn->p;
	const struct raft_origin origin = {
		.node_id = conn->peer_id, .life = frame->life, .token = frame->request};
	struct side_frame answer = {.type = SIDE_PROPOSED, .request = frame->request};
	enum cons_status status = CONS_NOT_LEADER;

	if (!waited && must_wait(conn))
		return SIDE_STALLED;
	if (side_is_member(p, conn->peer_id))
		status = core_lead_propose(p->c, &origin, frame->data, frame->len);
	if (status == CONS_OK)
		p->own_seen = p->c->stats.proposals;
	if (status == CONS_BUSY && !waited)
		return SIDE_STALLED;
	// A fault of this node is none of the asker's.
	answer.status = (uint8_t)(status == CONS_FAILED ? CONS_NOT_LEADER : status);
	side_send(conn, &answer);
	return SIDE_TAKEN;
}

// In a callback of the library: nothing but a frame.
static void on_barrier_done(struct raft_cons *c, uint64_t id, int status, uint64_t index)
{
	struct raft_peers *p = c->peers;
	struct side_frame answer = {.type = SIDE_BARRIER_OK, .index = index};
	struct led_barrier *led;
	struct side_conn *conn;

	if (p == NULL)
		return;
	for (struct led_barrier **at = &p->led; *at != NULL; at = &(*at)->next) {
		led = *at;
		if (led->id != id)
			continue;
		*at = led->next;
		answer.request = led->request;
		answer.status = status == 0 ? CONS_OK : CONS_NOT_LEADER;
		conn = side_conn_find(p, led->serial);
		if (conn != NULL)
			side_send(conn, &answer);
		free(led);
		return;
	}
}

static enum side_taken on_barrier(
	struct side_conn *conn, const struct side_frame *frame, bool waited)
{
	struct raft_peers *p = conn->p;
	struct side_frame answer = {.type = SIDE_BARRIER_OK, .request = frame->request};
	enum cons_status status = CONS_NOT_LEADER;
	struct led_barrier *led = malloc(sizeof(*led));

	if (led == NULL)
		return SIDE_BROKEN;
	*led = (struct led_barrier){.id = ++p->serial,
		.serial = conn->serial,
		.request = frame->request,
		.next = p->led};
	p->led = led;
	if (side_is_member(p, conn->peer_id))
		status = core_lead_barrier(p->c, on_barrier_done, led->id);
	if (status == CONS_OK)
		return SIDE_TAKEN;
	p->led = led->next;
	free(led);
	if (status == CONS_BUSY && !waited)
		return SIDE_STALLED;
	answer.status = (uint8_t)(status == CONS_FAILED ? CONS_NOT_LEADER : status);
	side_send(conn, &answer);
	return SIDE_TAKEN;
}

static enum side_taken on_change(
	struct side_conn *conn, const struct side_frame *frame, bool waited)
{
	struct change_reply reply = {
		.kind = REPLY_MEMBER, .serial = conn->serial, .request = frame->request};
	struct cons_change change = {.op = frame->op, .id = frame->id};
	struct raft_cons *c = conn->p->c;

	// A new leader, whose first entry is on its way.
	if (!waited && raft_state(&c->raft) == RAFT_LEADER && !core_leads(c))
		return SIDE_STALLED;
	if (frame->type == SIDE_JOIN) {
		change.op = CONS_ADD;
		reply.kind = REPLY_JOIN;
		// Nobody asks for another.
		if (frame->id != conn->peer_id)
			return SIDE_BROKEN;
	} else if (!side_is_member(conn->p, conn->peer_id)) {
		change_answer(conn->p, &reply, CONS_REFUSED, "not a member of the group");
		return SIDE_TAKEN;
	}
	memcpy(change.address, frame->address, sizeof(change.address));
	change_submit(conn->p, &change, frame->life, &reply, frame->type == SIDE_JOIN);
	return SIDE_TAKEN;
}

// --- answers of the leader ---------------------------------------------------------------------------------

static enum side_taken on_answer(
	struct side_conn *conn, enum side_type request, const struct side_frame *frame)
{
	struct raft_peers *p = conn->p;
	struct forward **at = find(p, request, conn, frame->request);
	struct forward f;

	if (at == NULL)
		return SIDE_TAKEN;  // given up meanwhile
	// Taken is not done: that is seen here, when the entry is applied.
	if (request == SIDE_PROPOSE && frame->status == CONS_OK)
		return SIDE_TAKEN;
	f = **at;
	drop(at);
	if (request == SIDE_BARRIER && frame->status == CONS_OK)
		core_barrier_at(p->c, f.token, frame->index);
	else if (request != SIDE_MEMBER)
		core_answer(p->c, f.token, (enum cons_status)frame->status,
			"the leader did not take it");
	else if (f.relayed)
		change_relayed(p, (enum cons_status)frame->status, frame->text);
	else
		change_answer(p, &f.reply, (enum cons_status)frame->status, frame->text);
	return SIDE_TAKEN;
}

enum side_taken forward_on_frame(
	struct side_conn *conn, const struct side_frame *frame, bool waited)
{
	if (conn->inbound) {
		switch (frame->type) {
		case SIDE_PROPOSE:
			return on_propose(conn, frame, waited);
		case SIDE_BARRIER:
			return on_barrier(conn, frame, waited);
		case SIDE_MEMBER:
		case SIDE_JOIN:
			return on_change(conn, frame, waited);
		default:
			return SIDE_BROKEN;
		}
	}
	switch (frame->type) {
	case SIDE_PROPOSED:
		return on_answer(conn, SIDE_PROPOSE, frame);
	case SIDE_BARRIER_OK:
		return on_answer(conn, SIDE_BARRIER, frame);
	case SIDE_MEMBER_RESULT:
		return on_answer(conn, SIDE_MEMBER, frame);
	case SIDE_JOIN_RESULT:
		if (!conn->joins)
			return SIDE_BROKEN;
		join_on_result(conn->p, (enum cons_status)frame->status, frame->text);
		return SIDE_TAKEN;
	default:
		return SIDE_BROKEN;
	}
}
