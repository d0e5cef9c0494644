/* SPDX-License-Identifier: BSD-3-Clause */
// Groups of several nodes over loopback: forming, forwarding, changes of members.
#include "unit.h"

#include <stdio.h>
#include <string.h>

#include "base_time.h"
#include "raft_nodes.h"

static struct nodes g;

static int setup(void **state)
{
	nodes_open(&g, true);
	return 0;
}

static int teardown(void **state)
{
	nodes_close(&g);
	return 0;
}

static void three_nodes_form_and_every_one_takes_proposals(void **state)
{
	nodes_form(&g, 3, 3);
	for (uint64_t i = 1; i <= 3; i++) {
		node_wait(&g, i, "voters", 3);
		node_wait(&g, i, "ready", 1);
	}
	for (uint64_t i = 1; i <= 3; i++) {
		assert_int_equal(node_propose(&g, i, "a batch"), CONS_OK);
		// Done is applied where it was asked.
		assert_int_equal(node_info(&g, i, "entries"), i);
	}
	for (uint64_t i = 1; i <= 3; i++) {
		assert_int_equal(node_barrier(&g, i), CONS_OK);
		// What was proposed before the barrier is here.
		assert_int_equal(node_info(&g, i, "entries"), 3);
	}
	assert_int_equal(node_info(&g, 1, "chain"), node_info(&g, 3, "chain"));
}

static void changes_go_through_any_member(void **state)
{
	nodes_form(&g, 3, 1);
	node_wait(&g, 3, "standbys", 2);
	node_wait(&g, 2, "connected", 3);
	// Asked at a standby, done by the leader.
	assert_int_equal(node_change(&g, 2, CONS_PROMOTE, 3, ""), CONS_OK);
	node_wait(&g, 2, "voters", 2);
	assert_int_equal(node_change(&g, 3, CONS_PROMOTE, 3, ""), CONS_REFUSED);
	assert_non_null(strstr(g.line, "voter already"));
	assert_int_equal(node_change(&g, 2, CONS_DEMOTE, 3, ""), CONS_OK);
	node_wait(&g, 2, "voters", 1);
	assert_int_equal(node_change(&g, 1, CONS_REMOVE, 3, ""), CONS_OK);
	node_wait(&g, 2, "standbys", 1);
	assert_int_equal(node_propose(&g, 2, "goes on"), CONS_OK);
}

static void leadership_moves_where_it_is_told(void **state)
{
	nodes_form(&g, 3, 3);
	node_wait(&g, 3, "connected", 3);
	assert_int_equal(node_change(&g, 1, CONS_TRANSFER, 2, ""), CONS_OK);
	node_wait(&g, 2, "leads", 1);
	node_wait(&g, 2, "ready", 1);
	node_wait(&g, 3, "leader", 2);
	node_wait(&g, 3, "ready", 1);
	// Asked at a follower.
	assert_int_equal(node_change(&g, 3, CONS_TRANSFER, 3, ""), CONS_OK);
	node_wait(&g, 3, "leads", 1);
	node_propose_until_done(&g, nodes_leader(&g), "goes on");
}

static void a_leader_that_is_removed_hands_over_first(void **state)
{
	uint64_t leader;

	nodes_form(&g, 3, 3);
	for (uint64_t i = 1; i <= 3; i++)
		node_wait(&g, i, "connected", 3);
	leader = nodes_leader(&g);
	assert_int_equal(node_change(&g, leader, CONS_REMOVE, leader, ""), CONS_OK);
	node_kill(&g, leader);
	node_wait(&g, nodes_leader(&g), "voters", 2);
	node_propose_until_done(&g, nodes_leader(&g), "goes on");
}

static void a_node_of_another_cluster_or_key_cannot_join(void **state)
{
	nodes_form(&g, 1, 1);
	g.node[2].cluster_id++;
	node_start(&g, 2, NODE_JOIN, 1);
	assert_int_equal(node_join_result(&g, 2), CONS_REFUSED);
	assert_non_null(strstr(g.line, "other cluster id"));
	g.node[3].key++;
	node_start(&g, 3, NODE_JOIN, 1);
	assert_int_equal(node_join_result(&g, 3), CONS_REFUSED);
	assert_non_null(strstr(g.line, "other cluster key"));
	assert_int_equal(node_info(&g, 1, "standbys"), 0);
}

static void without_a_key_a_group_works_too(void **state)
{
	g.authenticated = false;
	nodes_form(&g, 3, 3);
	assert_int_equal(node_propose(&g, 3, "a batch"), CONS_OK);
}

// The largest entry, and more of them at once than the leader takes, from every side.
static void proposals_wait_for_their_turn_at_the_leader(void **state)
{
	char text[400];
	uint64_t before;

	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	nodes_form(&g, 3, 3);
	node_wait(&g, 2, "ready", 1);
	node_wait(&g, 3, "ready", 1);
	before = node_info(&g, 1, "entries");
	// Sent without waiting: the socket's order is the nodes'.
	for (int i = 0; i < 8; i++)
		for (uint64_t id = 2; id <= 3; id++)
			node_propose_begin(&g, id, text);
	for (int i = 0; i < 8; i++)
		for (uint64_t id = 2; id <= 3; id++)
			assert_int_equal(node_any_result(&g, id), CONS_OK);
	node_wait(&g, 1, "entries", before + 16);
}

// Followers that never stop asking leave room for the leader's own, and each gets its share.
static void nobody_is_starved_by_the_others(void **state)
{
	uint64_t done[4] = {0};
	uint64_t leader;

	nodes_form(&g, 3, 3);
	leader = nodes_leader(&g);
	for (uint64_t id = 1; id <= 3; id++)
		node_wait(&g, id, "ready", 1);
	for (uint64_t id = 1; id <= 3; id++)
		for (int i = 0; i < 6; i++)
			node_propose_begin(&g, id, "mine");
	while (done[1] < 60 || done[2] < 60 || done[3] < 60) {
		const uint64_t id = nodes_await_any(&g);

		if (node_any_result(&g, id) == CONS_OK)
			done[id]++;
		node_propose_begin(&g, id, "mine");
		for (uint64_t other = 1; other <= 3; other++)
			if (done[id] > 8 * (done[other] + 10))
				fail_msg("node %d had %d, node %d %d (%d leads)", (int)id,
					(int)done[id], (int)other, (int)done[other], (int)leader);
	}
}

// The library alone tells of a commit with the next heartbeat: each proposal through a follower would
// take half of one.
static void a_follower_hears_of_a_commit_at_once(void **state)
{
	uint64_t began;

	g.heartbeat_ms = 1000;
	nodes_form(&g, 3, 3);
	for (uint64_t i = 1; i <= 3; i++)
		node_wait(&g, i, "ready", 1);
	began = time_now_ns();
	for (int i = 0; i < 20; i++) {
		assert_int_equal(node_propose(&g, 2 + (uint64_t)i % 2, "soon"), CONS_OK);
		assert_int_equal(node_barrier(&g, 2 + (uint64_t)i % 2), CONS_OK);
	}
	assert_true(time_now_ns() - began < 10 * g.heartbeat_ms * NS_PER_MS);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(three_nodes_form_and_every_one_takes_proposals),
		T(changes_go_through_any_member),
		T(leadership_moves_where_it_is_told),
		T(a_leader_that_is_removed_hands_over_first),
		T(a_node_of_another_cluster_or_key_cannot_join),
		T(without_a_key_a_group_works_too),
		T(proposals_wait_for_their_turn_at_the_leader),
		T(nobody_is_starved_by_the_others),
		T(a_follower_hears_of_a_commit_at_once),
	};
#undef T
	return cmocka_run_group_tests(tests, NULL, NULL);
}
