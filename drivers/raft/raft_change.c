/* SPDX-License-Identifier: BSD-3-Clause */
// Changes of members, done: the steps of raft_member.h at the library and at the new leader, their answers
// to whoever asked, and this node's own joining. Owns the one change under way. Context: the loop.
#include "raft_peer.h"

#include <inttypes.h>
#include <string.h>

#include "base_log.h"
#include "base_time.h"

static void do_step(struct raft_peers *p, const struct member_step *step);

// --- what the steps look at --------------------------------------------------------------------------------

static void fill_node(struct raft_peers *p, unsigned i, struct member_node *node)
{
	const struct raft *raft = &p->c->raft;
	const struct raft_server *server = &raft->configuration.servers[i];
	const struct peer *peer = side_peer(p, server->id);

	*node = (struct member_node){.id = server->id,
		.role = server->role == RAFT_VOTER     ? CONS_VOTER
			: server->role == RAFT_STANDBY ? CONS_STANDBY
						       : CONS_SPARE,
		.address = server->address,
		.answers = peer != NULL && peer->out != NULL && peer->heard_ns != 0 &&
			   p->now_ns < peer->heard_ns + SIDE_HEARD_NS};
	if (raft->state == RAFT_LEADER)
		node->match_index = raft->leader_state.progress[i].match_index;
}

static void fill_view(struct raft_peers *p, uint64_t id, struct member_view *view)
{
	struct raft_cons *c = p->c;
	const char *address = NULL;
	raft_id leader = 0;

	*view = (struct member_view){.self_id = c->params.node_id, .leads = core_leads(c)};
	if (!c->started)
		return;
	raft_leader(&c->raft, &leader, &address);
	view->leader_id = leader;
	view->last_index = raft_last_index(&c->raft);
	view->library_busy =
		c->raft.transfer != NULL || c->raft.configuration_uncommitted_index != 0 ||
		(c->raft.state == RAFT_LEADER && (c->raft.leader_state.change != NULL ||
							 c->raft.leader_state.promotee_id != 0));
	view->id_removed = c->events->id_removed != NULL && c->events->id_removed(c->ctx, id) != 0;
	for (unsigned i = 0; i < c->raft.configuration.n && view->count <= CONS_MEMBERS_MAX; i++)
		fill_node(p, i, &view->node[view->count++]);
}

// --- answers -----------------------------------------------------------------------------------------------

static void remember_joined(struct raft_peers *p, const struct change_reply *reply)
{
	p->joined[p->joined_next] = (struct joined){.id = reply->join_id, .life = reply->join_life};
	p->joined_next = (p->joined_next + 1) % JOINED_COUNT;
}

// True when this very start of that node was let in lately: its answer was lost.
static bool was_joined(const struct raft_peers *p, uint64_t id, uint64_t life)
{
	for (uint32_t i = 0; i < JOINED_COUNT; i++)
		if (p->joined[i].id == id && p->joined[i].life == life && life != 0)
			return side_is_member(p, id);
	return false;
}

void change_answer(struct raft_peers *p, const struct change_reply *reply, enum cons_status status,
	const char *why)
{
	struct side_frame frame = {
		.type = reply->kind == REPLY_JOIN ? SIDE_JOIN_RESULT : SIDE_MEMBER_RESULT,
		.request = reply->request,
		.status = (uint8_t)status};
	struct side_conn *conn;

	if (reply->kind == REPLY_TOKEN) {
		core_answer(p->c, reply->token, status, why);
		return;
	}
	if (reply->kind == REPLY_NONE)
		return;
	conn = side_conn_find(p, reply->serial);
	if (conn == NULL)
		return;
	snprintf(frame.text, sizeof(frame.text), "%s", why);
	side_send(conn, &frame);
}

static void ended(struct raft_peers *p, const struct member_step *step)
{
	const struct cons_change *change = &p->machine.change;

	LOG(step->status == CONS_OK ? LOG_INFO : LOG_WARN, "raft", "members",
		"change %u of node %" PRIu64 ": %s %s", change->op, change->id,
		step->status == CONS_OK ? "done" : "not done:", step->why);
	if (step->status == CONS_OK && p->reply.join_life != 0)
		remember_joined(p, &p->reply);
	change_answer(p, &p->reply, step->status, step->why);
	p->reply = (struct change_reply){0};
}

// --- steps -------------------------------------------------------------------------------------------------

// In callbacks of the library: put down for the turn.
static void on_change(struct raft_change *request, int status)
{
	struct raft_peers *p = request->data;

	p->library_done = true;
	p->library_status = status;
}

static void on_transfer(struct raft_transfer *request)
{
	struct raft_peers *p = request->data;

	p->library_done = true;
	p->library_status = 0;
}

static int begin_transfer(struct raft_peers *p, uint64_t id)
{
	struct raft_transfer *transfer = &p->transfer[p->transfer_next];

	p->transfer_next = (p->transfer_next + 1) % (sizeof(p->transfer) / sizeof(p->transfer[0]));
	*transfer = (struct raft_transfer){.data = p};
	return raft_transfer(&p->c->raft, transfer, id, on_transfer);
}

static int begin(struct raft_peers *p, const struct member_step *step)
{
	struct raft *raft = &p->c->raft;

	p->change = (struct raft_change){.data = p};
	switch (step->what) {
	case MEMBER_ADD:
		return raft_add(raft, &p->change, step->id, p->machine.change.address, on_change);
	case MEMBER_STANDBY:
		return raft_assign(raft, &p->change, step->id, RAFT_STANDBY, on_change);
	case MEMBER_VOTER:
		return raft_assign(raft, &p->change, step->id, RAFT_VOTER, on_change);
	case MEMBER_REMOVE:
		return raft_remove(raft, &p->change, step->id, on_change);
	default:
		return begin_transfer(p, step->id);
	}
}

// The library ended what was asked, or would not begin it.
static void library_ended(struct raft_peers *p, int status)
{
	struct member_view view;
	struct member_step step;

	fill_view(p, p->machine.change.id, &view);
	member_done(&p->machine, status != 0 ? core_error(status) : NULL,
		status == RAFT_LEADERSHIPLOST || status == RAFT_SHUTDOWN || status == RAFT_CANCELED,
		&view, p->now_ns, &step);
	do_step(p, &step);
}

static void do_step(struct raft_peers *p, const struct member_step *step)
{
	int status;

	switch (step->what) {
	case MEMBER_WAIT:
		return;
	case MEMBER_ANSWER:
		ended(p, step);
		return;
	case MEMBER_FORWARD:
		// No way there yet: asked again until the machine gives up.
		if (!forward_change(p, &p->machine.change, 0, NULL, true))
			p->machine.state = MEMBER_MOVES;
		return;
	default:
		p->library_done = false;
		status = begin(p, step);
		if (status != 0)
			library_ended(p, status);
	}
}

void change_submit(struct raft_peers *p, const struct cons_change *change, uint64_t life,
	const struct change_reply *reply, bool may_forward)
{
	struct member_view view;
	struct member_step step;

	if (change->op == CONS_ADD && core_leads(p->c) && was_joined(p, change->id, life)) {
		change_answer(p, reply, CONS_OK, "");
		return;
	}
	if (!core_leads(p->c) && may_forward) {
		if (!forward_change(p, change, life, reply, false))
			change_answer(p, reply, CONS_NOT_LEADER, "no leader is known and reached");
		return;
	}
	fill_view(p, change->id, &view);
	member_begin(&p->machine, change, &view, &step);
	if (step.what == MEMBER_ANSWER) {
		change_answer(p, reply, step.status, step.why);
		return;
	}
	p->reply = *reply;
	if (change->op == CONS_ADD) {
		p->reply.join_id = change->id;
		p->reply.join_life = life;
	}
	do_step(p, &step);
}

void change_relayed(struct raft_peers *p, enum cons_status status, const char *why)
{
	struct member_step step;

	member_handed(&p->machine, status, why, &step);
	do_step(p, &step);
}

enum cons_status raft_member_change(
	struct raft_cons *c, const struct cons_change *change, uint64_t token)
{
	const struct change_reply reply = {.kind = REPLY_TOKEN, .token = token};
	struct sockaddr_in parsed;

	if (change->op == CONS_ADD && !net_parse(change->address, &parsed)) {
		core_answer(c, token, CONS_REFUSED, "the address must be a.b.c.d:port");
		return CONS_OK;
	}
	change_submit(c->peers, change, 0, &reply, true);
	return CONS_OK;
}

// --- joining -----------------------------------------------------------------------------------------------

static void join_end(struct raft_peers *p, enum cons_status status, const char *why)
{
	uint64_t token = p->join_token;

	p->join_until_ns = 0;
	join_discard(p);
	core_answer(p->c, token, status, why);
}

void join_discard(struct raft_peers *p)
{
	struct side_conn *conn = p->join_conn;

	if (p->join_dial != NULL)
		net_dial_cancel(p->join_dial);
	p->join_dial = NULL;
	p->join_conn = NULL;
	if (conn != NULL && conn->link != NULL) {
		conn->joins = false;
		side_conn_close(conn);
	}
}

void join_conn_gone(struct raft_peers *p)
{
	p->join_conn = NULL;
	p->join_retry_ns = p->now_ns + JOIN_RETRY_NS;
}

void join_on_result(struct raft_peers *p, enum cons_status status, const char *why)
{
	const char *text = "";

	if (p->join_until_ns == 0)
		return;
	if (status == CONS_NOT_LEADER || status == CONS_BUSY || status == CONS_UNKNOWN) {
		snprintf(p->join_why, sizeof(p->join_why), "%s", why);
		join_discard(p);
		p->join_retry_ns = p->now_ns + JOIN_RETRY_NS;
	} else if (status != CONS_OK) {
		join_end(p, status, why);
	} else if (core_become_member(p->c, &text) != RAFT_REFUSED_NOT) {
		join_end(p, CONS_FAILED, text);
	} else {
		join_end(p, CONS_OK, "");
	}
}

static void on_join_dialed(
	void *ctx, struct uv_tcp_s *stream, uint64_t peer_id, enum hello_refusal refusal, bool told)
{
	struct raft_peers *p = ctx;
	struct side_frame frame = {
		.type = SIDE_JOIN, .id = p->c->params.node_id, .life = p->c->life};

	p->join_dial = NULL;
	p->join_retry_ns = p->now_ns + JOIN_RETRY_NS;
	if (stream == NULL) {
		snprintf(p->join_why, sizeof(p->join_why), "%s%s", told ? "it says: " : "",
			refusal == HELLO_CLOSED ? "not reached" : hello_refusal_name(refusal));
		// Another answer will not come of asking again.
		if (refusal != HELLO_OK && refusal != HELLO_CLOSED && refusal != HELLO_TIMED_OUT &&
			refusal != HELLO_NO_ROOM)
			join_end(p, CONS_REFUSED, p->join_why);
		return;
	}
	p->join_conn = side_conn_new(p, stream, peer_id, false);
	if (p->join_conn == NULL)
		return;
	p->join_conn->joins = true;
	memcpy(frame.address, p->c->params.address, sizeof(frame.address));
	side_send(p->join_conn, &frame);
}

static void join_turn(struct raft_peers *p)
{
	char why[SIDE_TEXT_MAX + CONS_ADDRESS_MAX + 16];

	if (p->join_until_ns == 0)
		return;
	if (p->join_until_ns == UINT64_MAX)
		p->join_until_ns = p->now_ns + JOIN_NS;  // the first turn knows the time
	if (p->now_ns >= p->join_until_ns) {
		snprintf(why, sizeof(why), "%s: %s", p->join_via, p->join_why);
		join_end(p, CONS_UNKNOWN, why);
		return;
	}
	if (p->join_conn != NULL || p->join_dial != NULL || p->now_ns < p->join_retry_ns)
		return;
	p->join_retry_ns = p->now_ns + JOIN_RETRY_NS;
	p->join_dial = net_dial(p->c->net, HELLO_SIDE, 0, p->join_via, on_join_dialed, p);
}

enum raft_cons_refusal raft_member_join(
	struct raft_cons *c, const char *via, uint64_t token, const char **why)
{
	struct raft_peers *p = c->peers;
	struct sockaddr_in parsed;

	if (!net_parse(via, &parsed))
		return core_refuse(
			c, RAFT_REFUSED_ADDRESS, why, "%s is not an address a.b.c.d:port", via);
	if (!net_parse(c->params.address, &parsed))
		return core_refuse(c, RAFT_REFUSED_ADDRESS, why,
			"a node without an address of its own cannot join: others must reach it");
	if (p->join_until_ns != 0)
		return core_refuse(c, RAFT_REFUSED_STATE, why, "this node is joining already");
	snprintf(p->join_via, sizeof(p->join_via), "%s", via);
	snprintf(p->join_why, sizeof(p->join_why), "no answer");
	p->join_token = token;
	p->join_until_ns = UINT64_MAX;
	p->join_retry_ns = 0;
	return RAFT_REFUSED_NOT;
}

void change_turn(struct raft_peers *p)
{
	struct member_view view;
	struct member_step step;

	join_turn(p);
	if (p->machine.state == MEMBER_ASKED && p->library_done) {
		p->library_done = false;
		library_ended(p, p->library_status);
	}
	if (p->machine.state != MEMBER_MOVES)
		return;
	fill_view(p, p->machine.change.id, &view);
	member_turn(&p->machine, &view, p->now_ns, &step);
	do_step(p, &step);
}
