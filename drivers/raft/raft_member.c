/* SPDX-License-Identifier: BSD-3-Clause */
// Changes of members as steps; see raft_member.h. Owns nothing. Context: the loop.
#include "raft_member.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void answer(struct member_machine *m, struct member_step *step, enum cons_status status,
	const char *format, ...) __attribute__((format(printf, 4, 5)));

static void answer(struct member_machine *m, struct member_step *step, enum cons_status status,
	const char *format, ...)
{
	va_list args;

	m->state = MEMBER_IDLE;
	step->what = MEMBER_ANSWER;
	step->status = status;
	va_start(args, format);
	vsnprintf(step->why, sizeof(step->why), format, args);
	va_end(args);
}

static void ask(
	struct member_machine *m, struct member_step *step, enum member_do what, uint64_t id)
{
	m->state = MEMBER_ASKED;
	m->doing = (uint8_t)what;
	step->what = what;
	step->id = id;
}

static const struct member_node *find(const struct member_view *view, uint64_t id)
{
	for (uint32_t i = 0; i < view->count; i++)
		if (view->node[i].id == id)
			return &view->node[i];
	return NULL;
}

static uint32_t voters(const struct member_view *view)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < view->count; i++)
		count += view->node[i].role == CONS_VOTER;
	return count;
}

// Returns: a voter other than `but` that does not answer, or NULL.
static const struct member_node *silent_voter(const struct member_view *view, uint64_t but)
{
	for (uint32_t i = 0; i < view->count; i++) {
		const struct member_node *node = &view->node[i];

		if (node->role == CONS_VOTER && node->id != but && node->id != view->self_id &&
			!node->answers)
			return node;
	}
	return NULL;
}

static void begin_add(
	struct member_machine *m, const struct member_view *view, struct member_step *step)
{
	const struct cons_change *change = &m->change;
	const struct member_node *node = find(view, change->id);

	if (change->id == 0 || change->address[0] == '\0') {
		answer(m, step, CONS_REFUSED, "a new member needs an id and an address");
		return;
	}
	if (view->id_removed) {
		answer(m, step, CONS_REFUSED,
			"id %" PRIu64 " was a member before: give it a new one", change->id);
		return;
	}
	for (uint32_t i = 0; i < view->count; i++) {
		if (view->node[i].id != change->id &&
			strcmp(view->node[i].address, change->address) == 0) {
			answer(m, step, CONS_REFUSED, "address %s is that of node %" PRIu64,
				change->address, view->node[i].id);
			return;
		}
	}
	// An addition that was cut short left a spare, which never held anything.
	if (node != NULL && node->role == CONS_SPARE && strcmp(node->address, change->address) == 0)
		ask(m, step, MEMBER_STANDBY, change->id);
	else if (node != NULL)
		answer(m, step, CONS_REFUSED,
			"node %" PRIu64 " is a member: one whose data is lost "
			"must be removed and come back under a new id",
			change->id);
	else if (view->count >= CONS_MEMBERS_MAX)
		answer(m, step, CONS_REFUSED, "the group has %u members, which is the limit",
			view->count);
	else
		ask(m, step, MEMBER_ADD, change->id);
}

static void begin_promote(
	struct member_machine *m, const struct member_view *view, struct member_step *step)
{
	const struct member_node *node = find(view, m->change.id);
	uint64_t behind;

	if (node->role == CONS_VOTER) {
		answer(m, step, CONS_REFUSED, "node %" PRIu64 " is a voter already", node->id);
		return;
	}
	if (voters(view) >= CONS_VOTERS_MAX) {
		answer(m, step, CONS_REFUSED, "the group has %u voters, which is the limit",
			CONS_VOTERS_MAX);
		return;
	}
	behind = view->last_index > node->match_index ? view->last_index - node->match_index : 0;
	if (!node->answers)
		answer(m, step, CONS_REFUSED, "node %" PRIu64 " does not answer", node->id);
	else if (behind > MEMBER_BEHIND_MAX)
		answer(m, step, CONS_REFUSED,
			"node %" PRIu64 " has not caught up: %" PRIu64 " entries to go", node->id,
			behind);
	else
		ask(m, step, MEMBER_VOTER, node->id);
}

static void begin_leave(
	struct member_machine *m, const struct member_view *view, struct member_step *step)
{
	const struct member_node *node = find(view, m->change.id);
	bool demote = m->change.op == CONS_DEMOTE;

	if (demote && node->role != CONS_VOTER)
		answer(m, step, CONS_REFUSED, "node %" PRIu64 " is no voter", node->id);
	else if (node->role == CONS_VOTER && voters(view) == 1)
		answer(m, step, CONS_REFUSED, "node %" PRIu64 " is the last voter", node->id);
	else if (node->id == view->self_id)
		ask(m, step, MEMBER_TRANSFER, 0);
	else
		ask(m, step, demote ? MEMBER_STANDBY : MEMBER_REMOVE, node->id);
}

static void begin_transfer(
	struct member_machine *m, const struct member_view *view, struct member_step *step)
{
	const struct member_node *node = find(view, m->change.id);

	if (m->change.id == view->self_id)
		answer(m, step, CONS_OK, "%s", "");
	else if (m->change.id != 0 && (node == NULL || node->role != CONS_VOTER))
		answer(m, step, CONS_REFUSED, "node %" PRIu64 " is no voter", m->change.id);
	else if (node != NULL && !node->answers)
		answer(m, step, CONS_REFUSED, "node %" PRIu64 " does not answer", m->change.id);
	else if (voters(view) == 1)
		answer(m, step, CONS_REFUSED, "there is no other voter");
	else
		ask(m, step, MEMBER_TRANSFER, m->change.id);
}

void member_begin(struct member_machine *m, const struct cons_change *change,
	const struct member_view *view, struct member_step *step)
{
	struct member_machine other = {0};  // answers what leaves a change that goes on alone
	const struct member_node *silent;

	*step = (struct member_step){.what = MEMBER_WAIT};
	if (!view->leads) {
		answer(&other, step, CONS_NOT_LEADER, "this node does not lead");
		return;
	}
	if (m->state != MEMBER_IDLE || view->library_busy) {
		answer(&other, step, CONS_REFUSED, "another change is going on");
		return;
	}
	m->change = *change;
	silent = silent_voter(
		view, change->op == CONS_REMOVE || change->op == CONS_DEMOTE ? change->id : 0);
	if (change->op != CONS_TRANSFER && silent != NULL) {
		answer(m, step, CONS_REFUSED,
			"voter %" PRIu64 " does not answer: bring it back, or "
			"remove it first",
			silent->id);
		return;
	}
	if (change->op != CONS_ADD && change->op != CONS_TRANSFER &&
		find(view, change->id) == NULL) {
		answer(m, step, CONS_REFUSED, "node %" PRIu64 " is no member", change->id);
		return;
	}
	switch (change->op) {
	case CONS_ADD:
		begin_add(m, view, step);
		break;
	case CONS_PROMOTE:
		begin_promote(m, view, step);
		break;
	case CONS_DEMOTE:
	case CONS_REMOVE:
		begin_leave(m, view, step);
		break;
	case CONS_TRANSFER:
		begin_transfer(m, view, step);
		break;
	default:
		answer(m, step, CONS_REFUSED, "unknown change %u", change->op);
	}
}

void member_done(struct member_machine *m, const char *error, bool unknown,
	const struct member_view *view, uint64_t now_ns, struct member_step *step)
{
	*step = (struct member_step){.what = MEMBER_WAIT};
	if (m->state != MEMBER_ASKED)
		return;
	if (error != NULL) {
		if (unknown)
			answer(m, step, CONS_UNKNOWN,
				"leadership moved while the change ran: look at the "
				"members (%s)",
				error);
		else
			answer(m, step, CONS_REFUSED, "%s", error);
		return;
	}
	if (m->doing == MEMBER_TRANSFER) {
		m->state = MEMBER_MOVES;
		m->deadline_ns = now_ns + MEMBER_TRANSFER_NS;
		member_turn(m, view, now_ns, step);
		return;
	}
	if (m->doing == MEMBER_ADD)
		ask(m, step, MEMBER_STANDBY, m->change.id);
	else
		answer(m, step, CONS_OK, "%s", "");
}

void member_turn(struct member_machine *m, const struct member_view *view, uint64_t now_ns,
	struct member_step *step)
{
	uint64_t leader = view->leader_id;

	*step = (struct member_step){.what = MEMBER_WAIT};
	if (m->state != MEMBER_MOVES)
		return;
	if (leader != 0 && leader != view->self_id) {
		if (m->change.op != CONS_TRANSFER) {
			m->state = MEMBER_HANDED;
			step->what = MEMBER_FORWARD;
		} else if (m->change.id == 0 || m->change.id == leader) {
			answer(m, step, CONS_OK, "%s", "");
		} else {
			answer(m, step, CONS_REFUSED,
				"node %" PRIu64 " leads now, another than asked for", leader);
		}
	} else if (now_ns >= m->deadline_ns) {
		answer(m, step, leader != 0 ? CONS_REFUSED : CONS_UNKNOWN,
			leader != 0 ? "leadership stayed: no voter took it in time"
				    : "no leader is known");
	}
}

void member_handed(struct member_machine *m, enum cons_status status, const char *why,
	struct member_step *step)
{
	*step = (struct member_step){.what = MEMBER_WAIT};
	if (m->state == MEMBER_HANDED)
		answer(m, step, status, "%s", why);
}
