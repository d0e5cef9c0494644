/* SPDX-License-Identifier: BSD-3-Clause */
// Groups of several nodes over loopback: forming, forwarding, changes of members, history.
#include "unit.h"

#include <stdio.h>
#include <string.h>

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
	for (uint64_t i = 1; i <= 3; i++)
		assert_int_equal(node_propose(&g, i, "a batch"), CONS_OK);
	for (uint64_t i = 1; i <= 3; i++) {
		assert_int_equal(node_barrier(&g, i), CONS_OK);
		// What was proposed before the barrier is here.
		assert_int_equal(node_info(&g, i, "entries"), 3);
	}
	assert_int_equal(node_info(&g, 1, "chain"), node_info(&g, 3, "chain"));
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
		assert_int_equal(node_propose(&g, i, "two"), CONS_OK);
		assert_int_equal(node_barrier(&g, i), CONS_OK);
	}
	for (uint64_t i = 1; i <= 3; i++) {
		if (g.node[i].pid != 0)
			continue;
		node_start(&g, i, NODE_MEMBER, 0);
		node_wait(&g, i, "entries", 3);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			three_nodes_form_and_every_one_takes_proposals, setup, teardown),
		cmocka_unit_test_setup_teardown(survivors_of_the_leader_go_on, setup, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
