/* SPDX-License-Identifier: BSD-3-Clause */
// Which slots go where: pure and deterministic, so that each controller plans the same. A plan is a few moves
// at a time; the next is made of the topology they lead to.
#pragma once

#include "lease.h"
#include "store_cluster.h"
#include "topology.h"

enum lease_reason {
	LEASE_MOVE_LEADERLESS = 1,  // nobody leads the slot
	LEASE_MOVE_FAILED,  // its leader's lease is over, or it was removed
	LEASE_MOVE_LEAVING,  // its leader leaves; it is alive
	LEASE_MOVE_BALANCE,  // its leader leads two more than another; it is alive
};

struct lease_move {
	uint32_t slot;
	uint64_t from, to;  // from 0: nobody
	uint8_t reason;  // enum lease_reason
	bool new_peer;  // `to` is no peer yet: it takes the place of `from`, or of the last
};

enum lease_health {
	LEASE_UNSURE = 0,  // silent, but its lease may still run: nothing goes from or to it
	LEASE_ALIVE = 1,
	LEASE_OVER = 2,  // lease_controller_over
};

// Plans at most `moves_max` moves. `health` of each node of `t`, in its order. `waiting`: by slot number,
// TOPOLOGY_SLOTS_MAX + 1 of them, slots nobody leads but that are not free yet (lease_controller_free), or that
// a proposal is open for; NULL: none. First slots without an acting
// leader, then those of leaving nodes; only when there are none of them, balance: active nodes that are
// alive lead the same number, give or take one. Ties: peers before others, least load, lowest id.
// Returns: number of moves.
uint32_t lease_plan(const struct topology *t, const uint8_t *health, const bool *waiting,
	uint32_t moves_max, struct lease_move *moves);
// Whether a plan by hand can be: slot there, `to` active and alive, another leader than now.
// Returns: 0 and the move; -ENOENT: no such slot; -EINVAL: no such target; -EALREADY.
int lease_plan_by_hand(const struct topology *t, const uint8_t *health, uint32_t slot, uint64_t to,
	struct lease_move *move);

// Rows to propose. A move from a live leader takes two: the first takes the slot away (leader 0), the second,
// when that leader has applied the first or lease_term_ns has passed since, gives it to `to`. From a leader
// that is over, and from nobody, the second alone.
bool lease_move_takes_two(const struct lease_move *move);
void lease_move_take(
	const struct topology *t, const struct lease_move *move, struct store_slot *row);
void lease_move_give(
	const struct topology *t, const struct lease_move *move, struct store_slot *row);
