/* SPDX-License-Identifier: BSD-3-Clause */
// Plans of slot moves. Pure functions, any thread.
#include "lease_plan.h"

#include <errno.h>
#include <string.h>

struct plan {
	const struct topology *t;
	const uint8_t *health;
	const bool *waiting;
	struct lease_move *moves;
	uint32_t count, max;
	uint64_t leader[TOPOLOGY_SLOTS_MAX + 1];  // by slot, as it will be
	uint16_t load[TOPOLOGY_NODES_MAX];  // by place in t->node
};

static uint32_t place_of(const struct topology *t, uint64_t id)
{
	const struct topology_node *const n = topology_node(t, id);

	return n == NULL ? t->node_count : (uint32_t)(n - t->node);
}

static bool fit(const struct plan *p, uint32_t place)
{
	return p->t->node[place].state == TOPOLOGY_ACTIVE && p->health[place] == LEASE_ALIVE;
}

static bool is_peer(const struct topology *t, uint32_t slot, uint64_t node)
{
	const struct topology_peers *const peers = &t->peers[slot - 1];

	for (uint32_t i = 0; i < peers->count; i++)
		if (peers->node[i] == node)
			return true;
	return false;
}

// The fit node with the least load, a peer of the slot if there is one. Returns: its place; node_count: none.
static uint32_t target_of(const struct plan *p, uint32_t slot)
{
	uint32_t best = p->t->node_count;
	bool best_peer = false;

	for (uint32_t i = 0; i < p->t->node_count; i++) {
		const bool peer = is_peer(p->t, slot, p->t->node[i].id);

		if (!fit(p, i) || (best_peer && !peer))
			continue;
		if (best == p->t->node_count || (peer && !best_peer) ||
			p->load[i] < p->load[best]) {
			best = i;
			best_peer = peer;
		}
	}
	return best;
}

static void move(struct plan *p, uint32_t slot, uint32_t to, enum lease_reason reason)
{
	const uint32_t from = place_of(p->t, p->leader[slot]);

	p->moves[p->count++] = (struct lease_move){
		.slot = slot,
		.from = p->leader[slot],
		.to = p->t->node[to].id,
		.reason = (uint8_t)reason,
		.new_peer = !is_peer(p->t, slot, p->t->node[to].id),
	};
	if (from < p->t->node_count)
		p->load[from]--;
	p->load[to]++;
	p->leader[slot] = p->t->node[to].id;
}

// Why a slot must go; 0: it stays.
static uint32_t must_go(const struct plan *p, uint32_t slot)
{
	const uint32_t place = place_of(p->t, p->leader[slot]);

	if (p->leader[slot] == 0)
		return LEASE_MOVE_LEADERLESS;
	if (place == p->t->node_count || p->t->node[place].state == TOPOLOGY_REMOVED ||
		p->health[place] == LEASE_OVER)
		return LEASE_MOVE_FAILED;
	return p->t->node[place].state == TOPOLOGY_LEAVING && p->health[place] == LEASE_ALIVE
		       ? LEASE_MOVE_LEAVING
		       : 0;
}

static void plan_needed(struct plan *p, bool leaving)
{
	for (uint32_t s = 1; s <= p->t->slot_count && p->count < p->max; s++) {
		const uint32_t reason = p->t->slot[s - 1].slot == 0 ? 0 : must_go(p, s);
		uint32_t to;

		if (reason == 0 || (p->waiting != NULL && p->waiting[s]) ||
			(reason == LEASE_MOVE_LEAVING) != leaving)
			continue;
		to = target_of(p, s);
		if (to < p->t->node_count)
			move(p, s, to, (enum lease_reason)reason);
	}
}

// One slot from the most loaded node to the least loaded. Returns: false: as even as can be.
static bool plan_balance(struct plan *p)
{
	const struct topology *const t = p->t;
	uint32_t most = t->node_count, least = t->node_count, slot = 0;

	for (uint32_t i = 0; i < t->node_count; i++) {
		if (!fit(p, i))
			continue;
		if (most == t->node_count || p->load[i] > p->load[most])
			most = i;
		if (least == t->node_count || p->load[i] < p->load[least])
			least = i;
	}
	if (most == t->node_count || p->load[most] < p->load[least] + 2)
		return false;
	for (uint32_t s = 1; s <= t->slot_count; s++) {
		if (p->leader[s] != t->node[most].id)
			continue;
		if (slot == 0)
			slot = s;
		if (is_peer(t, s, t->node[least].id)) {
			slot = s;
			break;
		}
	}
	move(p, slot, least, LEASE_MOVE_BALANCE);
	return true;
}

static void plan_begin(struct plan *p, const struct topology *t, const uint8_t *health)
{
	memset(p, 0, sizeof(*p));
	p->t = t;
	p->health = health;
	for (uint32_t s = 1; s <= t->slot_count; s++) {
		const uint32_t place = place_of(t, t->slot[s - 1].leader);

		p->leader[s] = t->slot[s - 1].leader;
		if (place < t->node_count)
			p->load[place]++;
	}
}

uint32_t lease_plan(const struct topology *t, const uint8_t *health, const bool *waiting,
	uint32_t moves_max, struct lease_move *moves)
{
	struct plan p;

	plan_begin(&p, t, health);
	p.waiting = waiting;
	p.moves = moves;
	p.max = moves_max;
	plan_needed(&p, false);
	plan_needed(&p, true);
	if (p.count != 0)
		return p.count;
	// A slot nobody can take yet, or one of a node nobody is sure of, is no reason to shuffle others.
	for (uint32_t s = 1; s <= t->slot_count; s++) {
		const uint32_t place = place_of(t, p.leader[s]);

		if ((waiting != NULL && waiting[s]) ||
			(t->slot[s - 1].slot != 0 &&
				(must_go(&p, s) != 0 || health[place] != LEASE_ALIVE)))
			return 0;
	}
	while (p.count < p.max && plan_balance(&p))
		;
	return p.count;
}

int lease_plan_by_hand(const struct topology *t, const uint8_t *health, uint32_t slot, uint64_t to,
	struct lease_move *by_hand)
{
	const uint32_t place = place_of(t, to);
	struct plan p;
	uint32_t reason;

	if (slot == 0 || slot > t->slot_count || t->slot[slot - 1].slot == 0)
		return -ENOENT;
	plan_begin(&p, t, health);
	if (place == t->node_count || !fit(&p, place))
		return -EINVAL;
	if (p.leader[slot] == to)
		return -EALREADY;
	p.moves = by_hand;
	p.max = 1;
	reason = must_go(&p, slot);
	move(&p, slot, place, reason != 0 ? (enum lease_reason)reason : LEASE_MOVE_BALANCE);
	return 0;
}

// --- rows -----------------------------------------------------------------------------------------------------

bool lease_move_takes_two(const struct lease_move *m)
{
	return m->reason == LEASE_MOVE_LEAVING || m->reason == LEASE_MOVE_BALANCE;
}

static void row_begin(const struct topology *t, uint32_t slot, struct store_slot *row)
{
	const struct topology_slot *const s = &t->slot[slot - 1];

	*row = (struct store_slot){
		.slot = slot,
		.leader = s->leader,
		.term = s->term,
		.config_epoch = s->config_epoch,
		.balance_version = s->balance_version,
		.peer_count = t->peers[slot - 1].count,
	};
	memcpy(row->peer, t->peers[slot - 1].node, row->peer_count * sizeof(row->peer[0]));
}

void lease_move_take(const struct topology *t, const struct lease_move *m, struct store_slot *row)
{
	row_begin(t, m->slot, row);
	row->leader = 0;
}

// Puts `to` among the peers, in order.
static void peer_take(struct store_slot *row, uint64_t from, uint64_t to)
{
	uint32_t at = 0;

	while (at < row->peer_count && row->peer[at] != from)
		at++;
	if (at == row->peer_count && row->peer_count == STORE_REPLICAS_MAX)
		at--;
	if (at < row->peer_count) {
		memmove(&row->peer[at], &row->peer[at + 1],
			(row->peer_count - at - 1) * sizeof(row->peer[0]));
		row->peer_count--;
	}
	for (at = row->peer_count; at > 0 && row->peer[at - 1] > to; at--)
		row->peer[at] = row->peer[at - 1];
	row->peer[at] = to;
	row->peer_count++;
	row->config_epoch++;
}

void lease_move_give(const struct topology *t, const struct lease_move *m, struct store_slot *row)
{
	row_begin(t, m->slot, row);
	row->leader = m->to;
	row->term++;
	if (m->new_peer)
		peer_take(row, m->from, m->to);
	if (m->reason == LEASE_MOVE_BALANCE)
		row->balance_version++;
}
