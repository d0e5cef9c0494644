/* SPDX-License-Identifier: BSD-3-Clause */
// What node_memory says against what a node takes.
#include <malloc.h>
#include <stdio.h>
#include <string.h>

#include "node_net.h"
#include "unit.h"

// Bytes malloc has given out; presence maps its tables itself, the estimate of those is not looked at here.
static uint64_t given_out(void)
{
	const struct mallinfo2 m = mallinfo2();

	return (uint64_t)m.uordblks + m.hblkhd;
}

static uint64_t said(const struct node_params *p, bool mapped)
{
	struct node_memory rows[NODE_MEMORY_ROWS];
	uint64_t sum = 0;

	node_memory(p, rows);
	for (uint32_t i = 0; i < NODE_MEMORY_ROWS; i++) {
		// Taken as it is used, not at the start.
		if (strcmp(rows[i].option, "limits.tag_memory") != 0 &&
			(mapped || strcmp(rows[i].option, "limits.uids") != 0))
			sum += rows[i].bytes;
	}
	return sum;
}

static const struct node_source_ops no_source;  // never asked

WORKER_ONLY CONTROL_ONLY static void node_takes_what_was_said(void **state)
{
	struct net net;
	struct node_params params;
	struct node *node;
	const char *why;
	uint64_t before, taken, lower, upper;

	net_open(&net, 2, false);
	params = world_params;
	params.channels = 20000;
	params.gateways = 500;
	params.senders = 3000;
	params.frames = 40;
	params.window = 50000;
	params.fanout.messages = 5000;
	params.delivery.inflight = 5000;
	params.source_ops = &no_source;
	before = given_out();
	if (node_create(&params, &node, &why) != 0)
		fail_msg("%s", why);
	taken = given_out() - before;
	node_destroy(node);
	net_close(&net);
	lower = said(&params, false);
	upper = said(&params, true);
	// Names of channels (32 bytes each) are said and not yet taken; lists of the control core and page
	// buffers are taken and not said.
	assert_in_range(taken, lower - lower / 10, upper + upper / 10);
}

static uint64_t resident(void)
{
	unsigned long long size, pages = 0;
	FILE *f = fopen("/proc/self/statm", "re");

	assert_non_null(f);
	assert_int_equal(fscanf(f, "%llu %llu", &size, &pages), 2);
	fclose(f);
	return pages * 4096;
}

WORKER_ONLY CONTROL_ONLY static void large_tables_cost_no_memory_before_they_are_used(void **state)
{
	struct net net;
	struct node_params params;
	struct node *node;
	const char *why;
	uint64_t before;

	net_open(&net, 1, false);
	params = world_params;
	params.source_ops = &no_source;
	before = resident();
	params.uids = 100000000;
	params.frames = 65536;
	if (node_create(&params, &node, &why) != 0)
		fail_msg("%s", why);
	assert_true(said(&params, true) > UINT64_C(12) << 30);
	assert_true(resident() - before < 64u << 20);
	node_destroy(node);
	net_close(&net);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(node_takes_what_was_said),
		cmocka_unit_test(large_tables_cost_no_memory_before_they_are_used),
	};

	mallopt(M_PERTURB, 0);  // of the test runner: it would touch every page
	return cmocka_run_group_tests(tests, NULL, NULL);
}
