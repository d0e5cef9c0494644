/* SPDX-License-Identifier: BSD-3-Clause */
// Groups of several nodes over loopback: nodes that die, stand still, lost their data or
// have another history.
#include "unit.h"

#include <signal.h>
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

static void survivors_of_the_leader_go_on(void **state)
{
	uint64_t leader;

	nodes_form(&g, 3, 3);
	assert_int_equal(node_propose(&g, 1, "one"), CONS_OK);
	leader = nodes_leader(&g);
	node_kill(&g, leader);
	leader = nodes_leader(&g);
	for (uint64_t i = 1; i <= 3; i++) {
		if (g.node[i].pid == 0)
			continue;
		node_wait(&g, i, "ready", 1);
		node_propose_until_done(&g, i, "two");
		assert_int_equal(node_barrier(&g, i), CONS_OK);
	}
	for (uint64_t i = 1; i <= 3; i++) {
		if (g.node[i].pid != 0)
			continue;
		node_start(&g, i, NODE_MEMBER, 0);
		node_wait_least(&g, i, "entries", 3);
	}
}

static void a_wiped_node_is_refused_under_its_old_id(void **state)
{
	nodes_form(&g, 3, 3);
	assert_int_equal(node_propose(&g, 1, "before"), CONS_OK);
	node_kill(&g, 3);
	node_wipe(&g, 3);
	node_start(&g, 3, NODE_JOIN, 2);
	assert_int_equal(node_join_result(&g, 3), CONS_REFUSED);
	node_kill(&g, 3);
	// Gone from the group, its address may come back; its id may not, and a new one may.
	assert_int_equal(node_change(&g, 1, CONS_REMOVE, 3, ""), CONS_OK);
	node_start(&g, 4, NODE_JOIN, 2);
	assert_int_equal(node_join_result(&g, 4), CONS_OK);
	node_wait(&g, 4, "entries", 1);
	assert_int_equal(node_info(&g, 4, "chain"), node_info(&g, 1, "chain"));
	node_wait(&g, 1, "connected", 3);
	assert_int_equal(node_change(&g, 1, CONS_ADD, 66, "127.0.0.1:7400"), CONS_REFUSED);
	assert_non_null(strstr(g.line, "was a member before"));
}

static void a_wiped_node_that_makes_its_own_group_is_left_alone(void **state)
{
	uint64_t leader;

	nodes_form(&g, 3, 3);
	assert_int_equal(node_propose(&g, 1, "before"), CONS_OK);
	node_kill(&g, 3);
	node_wipe(&g, 3);
	node_start(&g, 3, NODE_BOOTSTRAP, 0);
	node_wait(&g, 3, "ready", 1);
	leader = nodes_leader(&g);
	assert_int_not_equal(leader, 3);
	// Two are a majority and go on; the third leads nobody but itself and lets nobody in.
	node_propose_until_done(&g, leader, "after");
	node_wait_least(&g, 3, "refused", 1);
	assert_int_equal(node_info(&g, 3, "voters"), 1);
	assert_int_equal(node_info(&g, 3, "entries"), 0);
}

static void without_a_way_to_the_leader_nothing_is_taken(void **state)
{
	nodes_form(&g, 2, 2);
	node_wait(&g, 2, "ready", 1);
	node_kill(&g, 1);
	node_wait(&g, 2, "ready", 0);
	assert_int_equal(node_propose(&g, 2, "nobody"), CONS_NOT_LEADER);
	assert_int_equal(node_barrier(&g, 2), CONS_NOT_LEADER);
	assert_int_equal(node_change(&g, 2, CONS_PROMOTE, 2, ""), CONS_NOT_LEADER);
	node_start(&g, 1, NODE_MEMBER, 0);
	node_propose_until_done(&g, 2, "somebody");
}

static void a_node_with_another_history_ends(void **state)
{
	nodes_form(&g, 3, 3);
	assert_int_equal(node_propose(&g, 1, "equal"), CONS_OK);
	for (uint64_t i = 1; i <= 3; i++)
		node_wait_least(&g, i, "checked", 1);
	node_lie(&g, 3);
	assert_int_equal(node_propose(&g, 1, "differs"), CONS_OK);
	assert_int_equal(node_wait_end(&g, 3), RAFT_EXIT_HISTORY);
	// The majority stays, however long it looks at it.
	node_wait(&g, nodes_leader(&g), "connected", 2);
	node_propose_until_done(&g, nodes_leader(&g), "goes on");
}

static void of_two_with_different_histories_none_goes_on(void **state)
{
	nodes_form(&g, 2, 2);
	node_lie(&g, 2);
	assert_int_equal(node_propose(&g, 1, "differs"), CONS_OK);
	assert_int_equal(node_wait_end(&g, 1), RAFT_EXIT_HISTORY);
	assert_int_equal(node_wait_end(&g, 2), RAFT_EXIT_HISTORY);
}

// Every acknowledged batch is there in the end, however often the leader dies under them; short.
static void nothing_acknowledged_is_lost_over_deaths_of_leaders(void **state)
{
	uint64_t acknowledged = 0;

	nodes_form(&g, 3, 3);
	for (int round = 0; round < 6; round++) {
		const uint64_t leader = nodes_leader(&g);
		const uint64_t follower = leader % 3 + 1;

		for (uint64_t i = 1; i <= 3; i++)
			node_wait(&g, i, "ready", 1);
		for (int i = 0; i < 20; i++)
			node_propose_begin(&g, follower, "kept");
		for (int i = 0; i < 20; i++) {
			if (i == 3 * round)
				node_kill(&g, leader);
			acknowledged += node_any_result(&g, follower) == CONS_OK;
		}
		nodes_leader(&g);
		node_start(&g, leader, NODE_MEMBER, 0);
	}
	nodes_leader(&g);
	for (uint64_t i = 1; i <= 3; i++)
		node_barrier_until_done(&g, i);
	assert_true(acknowledged > 0);
	assert_true(node_info(&g, 1, "entries") >= acknowledged);
	for (uint64_t i = 2; i <= 3; i++) {
		assert_int_equal(node_info(&g, i, "entries"), node_info(&g, 1, "entries"));
		assert_int_equal(node_info(&g, i, "chain"), node_info(&g, 1, "chain"));
	}
}

// A leader that stands still loses its place; what a follower asked of it is not known, not lost silently.
static void a_leader_that_stands_still_leaves_no_request_hanging(void **state)
{
	enum cons_status status;
	uint64_t leader, follower;

	nodes_form(&g, 3, 3);
	leader = nodes_leader(&g);
	follower = leader % 3 + 1;
	node_wait(&g, follower, "ready", 1);
	kill(g.node[leader].pid, SIGSTOP);
	status = node_propose(&g, follower, "when");
	assert_true(status == CONS_UNKNOWN || status == CONS_NOT_LEADER);
	node_propose_until_done(&g, follower, "then");
	kill(g.node[leader].pid, SIGCONT);
	node_wait_least(&g, leader, "entries", 1);
	node_barrier_until_done(&g, leader);
	assert_int_equal(node_info(&g, leader, "chain"), node_info(&g, follower, "chain"));
}

static void a_dead_voter_stops_changes_but_not_its_own_removal(void **state)
{
	nodes_form(&g, 4, 3);
	node_wait(&g, 1, "connected", 4);
	node_kill(&g, 3);
	node_wait(&g, 1, "connected", 3);
	assert_int_equal(node_change(&g, 1, CONS_PROMOTE, 4, ""), CONS_REFUSED);
	assert_non_null(strstr(g.line, "voter 3 does not answer"));
	assert_int_equal(node_change(&g, 1, CONS_REMOVE, 3, ""), CONS_OK);
	assert_int_equal(node_change(&g, 1, CONS_PROMOTE, 4, ""), CONS_OK);
	node_wait(&g, 4, "voters", 3);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(survivors_of_the_leader_go_on),
		T(a_wiped_node_is_refused_under_its_old_id),
		T(a_wiped_node_that_makes_its_own_group_is_left_alone),
		T(without_a_way_to_the_leader_nothing_is_taken),
		T(a_node_with_another_history_ends),
		T(of_two_with_different_histories_none_goes_on),
		T(nothing_acknowledged_is_lost_over_deaths_of_leaders),
		T(a_leader_that_stands_still_leaves_no_request_hanging),
		T(a_dead_voter_stops_changes_but_not_its_own_removal),
	};
#undef T
	return cmocka_run_group_tests(tests, NULL, NULL);
}
