/* SPDX-License-Identifier: BSD-3-Clause */
#include "unit.h"

#include <errno.h>
#include <string.h>

#include "lease_plan.h"

enum { SLOTS = 10, NODES_MAX = 6 };

struct world {
	struct topology t;
	struct topology_node node[NODES_MAX];
	uint8_t health[NODES_MAX];
};

// Nodes 1..n, active and alive; slots led in turn; peers: three nodes from the leader on.
static void world_begin(struct world *w, uint32_t nodes)
{
	memset(w, 0, sizeof(*w));
	assert_int_equal(topology_init(&w->t, 256, SLOTS, 1), 0);
	w->t.node = w->node;
	w->t.node_count = nodes;
	for (uint32_t i = 0; i < nodes; i++) {
		w->node[i] = (struct topology_node){.id = i + 1, .state = TOPOLOGY_ACTIVE};
		w->health[i] = LEASE_ALIVE;
	}
	for (uint32_t s = 0; s < SLOTS; s++) {
		struct topology_peers *const p = &w->t.peers[s];

		w->t.slot[s].leader = 1 + s % nodes;
		p->count = nodes < 3 ? nodes : 3;
		for (uint32_t i = 0, id = 1; id <= nodes; id++)
			if ((id + nodes - w->t.slot[s].leader) % nodes < p->count)
				p->node[i++] = id;
	}
}

static void carry_out(struct world *w, const struct lease_move *m)
{
	struct store_slot row;
	struct topology_slot *const s = &w->t.slot[m->slot - 1];

	lease_move_give(&w->t, m, &row);
	assert_int_equal(row.slot, m->slot);
	assert_int_equal(row.leader, m->to);
	assert_int_equal(row.term, s->term + 1);
	assert_int_equal(row.config_epoch, s->config_epoch + m->new_peer);
	assert_int_equal(
		row.balance_version, s->balance_version + (m->reason == LEASE_MOVE_BALANCE));
	s->leader = row.leader;
	s->term = row.term;
	s->config_epoch = row.config_epoch;
	w->t.peers[m->slot - 1].count = row.peer_count;
	memcpy(w->t.peers[m->slot - 1].node, row.peer, sizeof(row.peer));
	for (uint32_t i = 1; i < row.peer_count; i++)
		assert_true(row.peer[i] > row.peer[i - 1]);
}

static void an_even_cluster_stays_as_it_is(void **state)
{
	struct lease_move moves[SLOTS];
	static struct world w;

	(void)state;
	for (uint32_t n = 1; n <= NODES_MAX; n++) {
		world_begin(&w, n);
		assert_int_equal(lease_plan(&w.t, w.health, NULL, SLOTS, moves), 0);
	}
}

static void slots_of_a_failed_node_go_to_its_peers_evenly_and_boundedly(void **state)
{
	struct lease_move moves[SLOTS];
	static struct world w;
	uint32_t n;

	(void)state;
	world_begin(&w, 5);
	w.health[1] = LEASE_OVER;
	assert_int_equal(lease_plan(&w.t, w.health, NULL, 1, moves), 1);
	n = lease_plan(&w.t, w.health, NULL, SLOTS, moves);
	assert_int_equal(n, 2);
	for (uint32_t i = 0; i < n; i++) {
		assert_int_equal(moves[i].from, 2);
		assert_int_equal(moves[i].reason, LEASE_MOVE_FAILED);
		assert_false(moves[i].new_peer);
		assert_false(lease_move_takes_two(&moves[i]));
		carry_out(&w, &moves[i]);
	}
	assert_int_not_equal(moves[0].to, moves[1].to);
	assert_int_equal(topology_slots_led(&w.t, 2), 0);
}

static void who_is_merely_silent_loses_nothing_and_gets_nothing(void **state)
{
	struct lease_move moves[SLOTS];
	static struct world w;

	(void)state;
	world_begin(&w, 3);
	w.health[1] = LEASE_UNSURE;
	assert_int_equal(lease_plan(&w.t, w.health, NULL, SLOTS, moves), 0);
	w.t.slot[0].leader = 0;
	assert_int_equal(lease_plan(&w.t, w.health, NULL, SLOTS, moves), 1);
	assert_int_equal(moves[0].slot, 1);
	assert_int_equal(moves[0].from, 0);
	assert_int_equal(moves[0].reason, LEASE_MOVE_LEADERLESS);
	assert_int_not_equal(moves[0].to, 2);
}

static void a_slot_that_is_not_free_yet_waits_and_holds_balance_back(void **state)
{
	bool waiting[TOPOLOGY_SLOTS_MAX + 1] = {false};
	struct lease_move moves[SLOTS];
	static struct world w;

	(void)state;
	world_begin(&w, 3);
	for (uint32_t s = 0; s < SLOTS; s++)
		w.t.slot[s].leader = 1;
	w.t.slot[4].leader = 0;
	waiting[5] = true;
	assert_int_equal(lease_plan(&w.t, w.health, waiting, SLOTS, moves), 0);
	waiting[5] = false;
	assert_int_equal(lease_plan(&w.t, w.health, waiting, SLOTS, moves), 1);
	assert_int_equal(moves[0].slot, 5);
}

static void a_leaving_node_is_emptied_in_two_steps(void **state)
{
	struct lease_move moves[SLOTS];
	struct store_slot row;
	static struct world w;

	(void)state;
	world_begin(&w, 3);
	w.node[0].state = TOPOLOGY_LEAVING;
	assert_int_equal(lease_plan(&w.t, w.health, NULL, SLOTS, moves), 4);
	for (uint32_t i = 0; i < 4; i++) {
		assert_int_equal(moves[i].from, 1);
		assert_int_not_equal(moves[i].to, 1);
		assert_int_equal(moves[i].reason, LEASE_MOVE_LEAVING);
		assert_true(lease_move_takes_two(&moves[i]));
		lease_move_take(&w.t, &moves[i], &row);
		assert_int_equal(row.leader, 0);
		assert_int_equal(row.term, 1);
		carry_out(&w, &moves[i]);
	}
	assert_int_equal(topology_slots_led(&w.t, 2), 5);
	assert_int_equal(topology_slots_led(&w.t, 3), 5);
	assert_int_equal(lease_plan(&w.t, w.health, NULL, SLOTS, moves), 0);
}

static void a_node_that_is_no_peer_takes_the_place_of_the_one_that_failed(void **state)
{
	struct lease_move moves[SLOTS];
	struct store_slot row;
	static struct world w;

	(void)state;
	world_begin(&w, 5);
	w.t.slot[0].leader = 1;
	w.t.peers[0] = (struct topology_peers){.count = 2, .node = {1, 2}};
	w.health[0] = w.health[1] = LEASE_OVER;
	assert_true(lease_plan(&w.t, w.health, NULL, SLOTS, moves) >= 1);
	assert_int_equal(moves[0].slot, 1);
	assert_true(moves[0].new_peer);
	lease_move_give(&w.t, &moves[0], &row);
	assert_int_equal(row.peer_count, 2);
	assert_int_equal(row.peer[0], 2);
	assert_int_equal(row.peer[1], moves[0].to);
	assert_int_equal(row.config_epoch, 2);
}

static void a_new_node_gets_its_share(void **state)
{
	struct lease_move moves[SLOTS];
	static struct world w;
	uint32_t n, total = 0;

	(void)state;
	world_begin(&w, 3);
	w.node[3] = (struct topology_node){.id = 4, .state = TOPOLOGY_JOINING};
	w.health[3] = LEASE_ALIVE;
	w.t.node_count = 4;
	assert_int_equal(lease_plan(&w.t, w.health, NULL, SLOTS, moves), 0);
	w.node[3].state = TOPOLOGY_ACTIVE;
	while ((n = lease_plan(&w.t, w.health, NULL, 1, moves)) != 0) {
		assert_int_equal(n, 1);
		assert_int_equal(moves[0].to, 4);
		assert_int_equal(moves[0].reason, LEASE_MOVE_BALANCE);
		carry_out(&w, &moves[0]);
		total++;
	}
	assert_int_equal(total, 2);
	assert_int_equal(topology_slots_led(&w.t, 4), 2);
}

static void by_hand_a_slot_goes_where_it_can(void **state)
{
	struct lease_move m;
	static struct world w;

	(void)state;
	world_begin(&w, 3);
	w.node[2].state = TOPOLOGY_LEAVING;
	assert_int_equal(lease_plan_by_hand(&w.t, w.health, 0, 2, &m), -ENOENT);
	assert_int_equal(lease_plan_by_hand(&w.t, w.health, SLOTS + 1, 2, &m), -ENOENT);
	assert_int_equal(lease_plan_by_hand(&w.t, w.health, 1, 9, &m), -EINVAL);
	assert_int_equal(lease_plan_by_hand(&w.t, w.health, 1, 3, &m), -EINVAL);
	assert_int_equal(lease_plan_by_hand(&w.t, w.health, 1, 1, &m), -EALREADY);
	assert_int_equal(lease_plan_by_hand(&w.t, w.health, 1, 2, &m), 0);
	assert_int_equal(m.from, 1);
	assert_int_equal(m.to, 2);
	assert_true(lease_move_takes_two(&m));
	w.health[0] = LEASE_OVER;
	assert_int_equal(lease_plan_by_hand(&w.t, w.health, 1, 2, &m), 0);
	assert_false(lease_move_takes_two(&m));
}

// Any cluster: plans end, are the same each time, never name who cannot lead, and end even.
static void plans_end_even_whatever_the_cluster(void **state)
{
	(void)state;
	for (uint64_t run = 1; run <= 500; run++) {
		struct lease_move moves[3], same[3];
		static struct world w;
		uint32_t n, rounds = 0, fit = 0, least = SLOTS, most = 0;
		bool unsure = false;
		uint64_t seed = run * 77;

		world_begin(&w, 1 + (uint32_t)(unit_random(&seed) % NODES_MAX));
		for (uint32_t i = 0; i < w.t.node_count; i++) {
			w.node[i].state = (uint8_t)(1 + unit_random(&seed) % 4);
			w.health[i] = (uint8_t)(unit_random(&seed) % 3);
			if (unit_random(&seed) % 2 == 0) {
				w.node[i].state = TOPOLOGY_ACTIVE;
				w.health[i] = LEASE_ALIVE;
			}
			fit += w.node[i].state == TOPOLOGY_ACTIVE && w.health[i] == LEASE_ALIVE;
			unsure = unsure || w.health[i] == LEASE_UNSURE;
		}
		for (uint32_t s = 0; s < SLOTS; s++) {
			const uint64_t id = unit_random(&seed) % (w.t.node_count + 1);

			// Who has not joined yet never led anything.
			w.t.slot[s].leader =
				id != 0 && w.node[id - 1].state == TOPOLOGY_JOINING ? 0 : id;
		}
		while ((n = lease_plan(&w.t, w.health, NULL, 3, moves)) != 0) {
			assert_in_range(n, 1, 3);
			assert_int_equal(lease_plan(&w.t, w.health, NULL, 3, same), n);
			for (uint32_t i = 0; i < n; i++) {
				const uint64_t to = moves[i].to;

				assert_int_equal(same[i].slot, moves[i].slot);
				assert_int_equal(same[i].to, to);
				assert_int_equal(w.node[to - 1].state, TOPOLOGY_ACTIVE);
				assert_int_equal(w.health[to - 1], LEASE_ALIVE);
				assert_int_not_equal(to, moves[i].from);
				assert_true(moves[i].from == 0 ||
					    w.health[moves[i].from - 1] != LEASE_UNSURE ||
					    w.node[moves[i].from - 1].state == TOPOLOGY_REMOVED);
				carry_out(&w, &moves[i]);
			}
			assert_true(++rounds < 50);
		}
		for (uint32_t i = 0; i < w.t.node_count && fit != 0 && !unsure; i++) {
			const uint32_t led = topology_slots_led(&w.t, i + 1);

			if (w.node[i].state == TOPOLOGY_ACTIVE && w.health[i] == LEASE_ALIVE) {
				least = led < least ? led : least;
				most = led > most ? led : most;
			} else {
				assert_int_equal(led, 0);
			}
		}
		if (fit != 0 && !unsure)
			assert_true(most <= least + 1);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_even_cluster_stays_as_it_is),
		cmocka_unit_test(slots_of_a_failed_node_go_to_its_peers_evenly_and_boundedly),
		cmocka_unit_test(who_is_merely_silent_loses_nothing_and_gets_nothing),
		cmocka_unit_test(a_slot_that_is_not_free_yet_waits_and_holds_balance_back),
		cmocka_unit_test(a_leaving_node_is_emptied_in_two_steps),
		cmocka_unit_test(a_node_that_is_no_peer_takes_the_place_of_the_one_that_failed),
		cmocka_unit_test(a_new_node_gets_its_share),
		cmocka_unit_test(by_hand_a_slot_goes_where_it_can),
		cmocka_unit_test(plans_end_even_whatever_the_cluster),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
