/* SPDX-License-Identifier: BSD-3-Clause */
// Seeded chaos in the fixture: links, slow disks, elections, transfers with writes in flight. At any time
// one leader a term and equal prefixes of what was applied.
#include "raft_cluster.h"

#include <stdio.h>
#include <stdlib.h>

#define SEEDS 120u
#define ROUNDS 150u

static unsigned disk_ms_max = 600;

static void give_up(struct raft_transfer *req)
{
	free(req);
}

static void transfer(struct cluster *c, uint32_t i, uint64_t *seed)
{
	struct raft_transfer *req = calloc(1, sizeof(*req));
	struct raft *r = raft_fixture_get(&c->f, i);

	assert_non_null(req);
	if (r->transfer != NULL ||
		raft_transfer(r, req, unit_random(seed) % c->n + 1, give_up) != 0)
		free(req);
}

static void disturb(struct cluster *c, uint64_t *seed, uint64_t *value)
{
	const uint32_t i = (uint32_t)(unit_random(seed) % c->n);
	const uint32_t j = (uint32_t)(unit_random(seed) % c->n);

	switch (unit_random(seed) % 10) {
	case 0:
	case 1:
		if (i != j)
			raft_fixture_saturate(&c->f, i, j);
		break;
	case 2:
		if (i != j)
			cluster_cut(c, i, j);
		break;
	case 3:
	case 4:
		for (uint32_t k = 0; k < c->n; k++)
			if (k != i)
				cluster_join(c, i, k);
		break;
	case 5:
		raft_fixture_set_disk_latency(
			&c->f, i, (unsigned)(unit_random(seed) % disk_ms_max + 1));
		break;
	case 6:
		raft_fixture_set_network_latency(&c->f, i, (unsigned)(unit_random(seed) % 80 + 1));
		break;
	case 7:
		raft_fixture_set_randomized_election_timeout(
			&c->f, i, (unsigned)(unit_random(seed) % 1000 + 1000));
		break;
	case 8:
		if (raft_state(raft_fixture_get(&c->f, i)) == RAFT_LEADER)
			transfer(c, i, seed);
		break;
	default:
		break;
	}
	for (uint32_t k = 0; k < c->n; k++)
		if (raft_state(raft_fixture_get(&c->f, k)) == RAFT_LEADER)
			for (uint64_t n = unit_random(seed) % 3; n > 0; n--)
				(void)cluster_apply(c, k, ++*value);
}

// Somebody leads with just enough voters, tells few of them, and goes.
static void short_reign(struct cluster *c, uint64_t *seed, uint64_t *value)
{
	const uint32_t i = (uint32_t)(unit_random(seed) % c->n);

	for (uint32_t k = 0; k < c->n; k++)
		cluster_isolate(c, k);
	for (uint32_t k = 0; k < c->n; k++)
		if (k != i && unit_random(seed) % 4 != 0)
			cluster_join(c, i, k);
	raft_fixture_set_disk_latency(&c->f, i, (unsigned)(unit_random(seed) % 200 + 1));
	cluster_stand(c, i);
	if (!cluster_leads(c, i, 2500))
		return;
	cluster_calm(c);
	cluster_run(c, (unsigned)(unit_random(seed) % 40));
	for (uint32_t k = 0; k < c->n; k++)
		if (k != i && unit_random(seed) % 2 == 0)
			cluster_cut(c, i, k);
	for (uint64_t n = unit_random(seed) % 3; n > 0; n--)
		(void)cluster_apply(c, i, ++*value);
	cluster_run(c, (unsigned)(unit_random(seed) % 200));
}

// Does a library take for stored what is not on its disk?
static bool overcounts(struct cluster *c)
{
	for (uint32_t i = 0; i < c->n; i++)
		if (raft_fixture_get(&c->f, i)->last_stored > c->node[i].guard.stored_index)
			return true;
	return false;
}

struct outcome {
	bool differs, two_leaders, faulted, overcounted;
	uint64_t nudges;
	uint64_t applied, elections, held, clamped_votes, skipped, held_timeouts, clamped_results;
};

static struct outcome run(uint32_t rules, uint64_t seed, uint32_t n, bool reigns)
{
	struct cluster *c = calloc(1, sizeof(*c));
	struct outcome out = {0};
	uint64_t value = 0;

	assert_non_null(c);
	seed = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
	c->nudges = rules != 0;
	cluster_init(c, n, rules);
	for (uint32_t round = 0; round < ROUNDS; round++)
		if (reigns) {
			short_reign(c, &seed, &value);
		} else {
			disturb(c, &seed, &value);
			cluster_run(c, (unsigned)(unit_random(&seed) % 400));
			out.overcounted |= overcounts(c);
		}
	for (uint32_t i = 0; i < n; i++)
		for (uint32_t j = 0; j < i; j++)
			cluster_join(c, i, j);
	for (uint32_t i = 0; i < n; i++) {
		raft_fixture_set_disk_latency(&c->f, i, 10);
		raft_fixture_set_network_latency(&c->f, i, 15);
		raft_fixture_set_randomized_election_timeout(&c->f, i, 1000 + 300 * i);
	}
	cluster_run(c, 15000);
	out.differs = cluster_differs(c) != 0;
	out.two_leaders = cluster_two_leaders(c) != 0;
	for (uint32_t i = 0; i < n; i++) {
		const struct guard_stats *g = &c->node[i].guard.stats;

		out.faulted |= c->node[i].faulted;
		out.nudges += c->node[i].nudge.sent;
		out.applied += c->node[i].applied;
		out.elections += c->node[i].led;
		out.held += g->held_messages;
		out.clamped_votes += g->clamped_votes;
		out.skipped += g->skipped_ticks;
		out.held_timeouts += g->held_timeouts;
		out.clamped_results += g->clamped_results;
	}
	cluster_fini(c);
	free(c);
	return out;
}

static void f2_guarded_groups_agree_for_every_seed(void **state)
{
	struct outcome sum = {0};

	(void)state;
	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		const struct outcome out =
			run(GUARD_ALL, seed, seed % 2 == 0 ? 3 : 5, seed % 3 == 0);

		assert_false(out.overcounted);
		if (out.differs || out.two_leaders || out.faulted)
			printf("seed %llu: differs %d, two leaders %d, fault %d\n",
				(unsigned long long)seed, out.differs, out.two_leaders,
				out.faulted);
		assert_false(out.differs || out.two_leaders || out.faulted);
		sum.nudges += out.nudges;
		sum.applied += out.applied;
		sum.elections += out.elections;
		sum.held += out.held;
		sum.clamped_votes += out.clamped_votes;
		sum.skipped += out.skipped;
		sum.held_timeouts += out.held_timeouts;
		sum.clamped_results += out.clamped_results;
	}
	printf("  applied %llu, elections %llu, held %llu, clamped votes %llu, skipped ticks %llu, "
	       "held transfers %llu, clamped answers %llu\n",
		(unsigned long long)sum.applied, (unsigned long long)sum.elections,
		(unsigned long long)sum.held, (unsigned long long)sum.clamped_votes,
		(unsigned long long)sum.skipped, (unsigned long long)sum.held_timeouts,
		(unsigned long long)sum.clamped_results);
	// The chaos reaches what the rules are for.
	assert_true(sum.nudges > 1000);
	assert_true(sum.applied > 1000 && sum.elections > SEEDS);
	assert_true(sum.held > 0 && sum.skipped > 0 && sum.clamped_results > 0);
}

// Disks that stall for longer than elections take: what was cut off and came back is written twice, and the
// library counts it twice. The seeds are those of 1500 where it does.
static void f2_nothing_counts_as_stored_before_it_is(void **state)
{
	static const struct {
		uint64_t seed;
		uint32_t n;
	} known[] = {{61, 3}, {318, 3}, {527, 3}, {634, 5}, {748, 5}};

	(void)state;
	disk_ms_max = 6000;
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		const struct outcome with = run(GUARD_ALL, known[i].seed, known[i].n, false);

		assert_false(with.overcounted || with.differs || with.two_leaders);
		assert_true(run(GUARD_ALL & ~GUARD_MATCH, known[i].seed, known[i].n, false)
				    .overcounted);
	}
	disk_ms_max = 600;
}

static void f2_the_bare_library_fails_for_some_seed(void **state)
{
	uint32_t bad = 0;

	(void)state;
	for (uint64_t seed = 3; seed <= SEEDS; seed += 6) {
		const struct outcome out = run(0, seed, 5, true);

		bad += out.differs || out.two_leaders;
	}
	printf("  %u seeds\n", bad);
	assert_true(bad > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(f2_guarded_groups_agree_for_every_seed),
		cmocka_unit_test(f2_nothing_counts_as_stored_before_it_is),
		cmocka_unit_test(f2_the_bare_library_fails_for_some_seed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
