/* SPDX-License-Identifier: BSD-3-Clause */
// Entries of older terms (Raft's figure 8) and answers for entries a follower does not have: the library
// alone diverges, which shows that the scenes are real; behind the guard it does not.
#include "raft_cluster.h"

#include <stdio.h>
#include <stdlib.h>

static struct cluster *c;

static int teardown(void **state)
{
	(void)state;
	cluster_fini(c);
	free(c);
	return 0;
}

static int setup(void **state)
{
	(void)state;
	c = calloc(1, sizeof(*c));
	return c == NULL ? -1 : 0;
}

static void join_all(void)
{
	for (uint32_t i = 0; i < c->n; i++)
		for (uint32_t j = 0; j < i; j++)
			cluster_join(c, i, j);
}

static bool follows(struct cluster *cluster, void *arg)
{
	return raft_state(raft_fixture_get(&cluster->f, *(uint32_t *)arg)) == RAFT_FOLLOWER;
}

// A leader that hears from nobody steps down.
static void depose(uint32_t i)
{
	cluster_isolate(c, i);
	assert_true(cluster_step_until(c, follows, &i, 20000));
}

static bool has_last(struct cluster *cluster, void *arg)
{
	const uint64_t *want = arg;
	struct raft *r = raft_fixture_get(&cluster->f, (unsigned)want[0]);

	return raft_last_index(r) >= want[1] && r->last_stored >= want[1];
}

static bool until_stored(uint32_t i, uint64_t index, unsigned msecs)
{
	uint64_t want[2] = {i, index};

	return cluster_step_until(c, has_last, want, msecs);
}

// S1..S5 of the figure are nodes 0..4; `slow`: S1's disk while it leads the second time.
static uint64_t figure8(uint32_t rules, unsigned slow_ms)
{
	struct raft *s1;
	uint64_t index;

	cluster_init(c, 5, rules);
	s1 = raft_fixture_get(&c->f, 0);
	// (a) S1 leads, everybody has everything; then one entry reaches S2 alone.
	cluster_stand(c, 0);
	assert_true(cluster_leads(c, 0, 20000));
	cluster_calm(c);
	cluster_run(c, 1000);
	for (uint32_t i = 2; i < 5; i++)
		cluster_cut(c, 0, i), cluster_cut(c, 1, i);
	assert_int_equal(cluster_apply(c, 0, 'A'), 0);
	index = raft_last_index(s1);
	assert_true(until_stored(1, index, 5000) && until_stored(0, index, 5000));
	depose(0);
	// (b) S5 leads by the votes of S3 and S4 and keeps another entry to itself.
	cluster_isolate(c, 1);
	cluster_stand(c, 4);
	assert_true(cluster_leads(c, 4, 20000));
	cluster_isolate(c, 4);
	assert_int_equal(cluster_apply(c, 4, 'B'), 0);
	assert_true(until_stored(4, index, 5000));
	depose(4);
	// (c) S1 leads again, S2 and S4 vote for it; only S3 gets entries.
	cluster_calm(c);
	join_all();
	cluster_isolate(c, 4);
	cluster_stand(c, 0);
	raft_fixture_set_disk_latency(&c->f, 0, slow_ms);
	assert_true(cluster_leads(c, 0, 20000));
	cluster_calm(c);
	cluster_cut(c, 0, 3);
	// S2 has the entry: it says so to the first heartbeat, and then gets nothing more.
	cluster_run(c, 20);
	raft_fixture_saturate(&c->f, 0, 1);
	assert_true(until_stored(2, index, 5000));
	cluster_run(c, 60);
	// (d) S1 goes, S5 leads by the votes of S2 and S4 and brings its own entry to all.
	cluster_isolate(c, 0);
	for (uint32_t i = 1; i < 4; i++)
		cluster_join(c, 4, i);
	cluster_stand(c, 4);
	if (!cluster_leads(c, 4, 20000)) {
		// Nobody without the entry can lead any more: as it should be.
		cluster_stand(c, 2);
		assert_true(cluster_leads(c, 2, 20000));
	}
	cluster_calm(c);
	for (uint32_t i = 0; i < 5; i++)
		if (raft_state(raft_fixture_get(&c->f, i)) == RAFT_LEADER && i != 0)
			(void)cluster_apply(c, i, 'C');
	cluster_run(c, 3000);
	printf("  rules %2u, disk %3u ms: %s (held %llu)\n", rules, slow_ms,
		cluster_differs(c) != 0 ? "differ" : "equal",
		(unsigned long long)c->node[0].guard.stats.held_messages);
	return cluster_differs(c);
}

static void f1_bare_library_diverges_with_a_fast_disk(void **state)
{
	(void)state;
	assert_int_not_equal(figure8(0, 10), 0);
}

static void f1_bare_library_diverges_with_a_slow_disk(void **state)
{
	(void)state;
	assert_int_not_equal(figure8(0, 300), 0);
}

static void f1_barrier_alone_is_not_enough_with_a_slow_disk(void **state)
{
	(void)state;
	assert_int_not_equal(figure8(GUARD_ALL & ~GUARD_HOLD, 300), 0);
}

static void f1_guard_holds_with_a_fast_disk(void **state)
{
	(void)state;
	assert_int_equal(figure8(GUARD_ALL, 10), 0);
}

static void f1_guard_holds_with_a_slow_disk(void **state)
{
	(void)state;
	assert_int_equal(figure8(GUARD_ALL, 300), 0);
	assert_true(c->node[0].guard.stats.held_messages > 0);
}

// S2 has entries of a leader that is gone. A new leader's first heartbeat reaches it; it answers with the
// whole of its log, and the library counts it for the new leader's entries at these places.
static uint64_t false_match(uint32_t rules)
{
	uint64_t index;

	cluster_init(c, 5, rules);
	cluster_stand(c, 0);
	assert_true(cluster_leads(c, 0, 20000));
	cluster_calm(c);
	cluster_run(c, 1000);
	for (uint32_t i = 2; i < 5; i++) {
		cluster_cut(c, 0, i);
		cluster_cut(c, 1, i);
	}
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(cluster_apply(c, 0, 'A'), 0);
	index = raft_last_index(raft_fixture_get(&c->f, 0));
	assert_true(until_stored(1, index, 5000));
	depose(0);
	// S3 leads by the votes of S4 and S5. S2 hears one heartbeat of it, S5 no entry.
	join_all();
	cluster_isolate(c, 0);
	cluster_stand(c, 2);
	assert_true(cluster_leads(c, 2, 20000));
	cluster_calm(c);
	cluster_cut(c, 2, 4);
	assert_int_equal(cluster_apply(c, 2, 'X'), 0);
	cluster_run(c, 20);
	raft_fixture_saturate(&c->f, 2, 1);
	cluster_run(c, 300);
	// S3 and S4 go; S2 leads by the votes of S1 and S5.
	join_all();
	cluster_isolate(c, 2);
	cluster_isolate(c, 3);
	cluster_stand(c, 1);
	assert_true(cluster_leads(c, 1, 20000));
	cluster_calm(c);
	(void)cluster_apply(c, 1, 'C');
	cluster_run(c, 3000);
	return cluster_differs(c);
}

static void f1_library_counts_followers_for_entries_they_do_not_have(void **state)
{
	(void)state;
	assert_int_not_equal(false_match(0), 0);
}

static void f1_only_the_match_rule_closes_that(void **state)
{
	(void)state;
	assert_int_not_equal(false_match(GUARD_ALL & ~GUARD_MATCH), 0);
}

static void f1_guard_counts_followers_for_what_they_have(void **state)
{
	(void)state;
	assert_int_equal(false_match(GUARD_ALL), 0);
	assert_true(c->node[1].guard.stats.clamped_results > 0);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(f1_bare_library_diverges_with_a_fast_disk),
		T(f1_bare_library_diverges_with_a_slow_disk),
		T(f1_barrier_alone_is_not_enough_with_a_slow_disk),
		T(f1_guard_holds_with_a_fast_disk),
		T(f1_guard_holds_with_a_slow_disk),
		T(f1_library_counts_followers_for_entries_they_do_not_have),
		T(f1_only_the_match_rule_closes_that),
		T(f1_guard_counts_followers_for_what_they_have),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
