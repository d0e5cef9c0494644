/* SPDX-License-Identifier: BSD-3-Clause */
#include "unit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lease_plan.h"

#define MS UINT64_C(1000000)

static const struct lease_config config = {
	.lease_ns = 1000 * MS, .drift_permille = 100, .margin_ns = 50 * MS};

static struct lease_grant grant_of(uint64_t request, uint64_t term, uint64_t commit)
{
	return (struct lease_grant){request, term, commit};
}

// --- the holder ---------------------------------------------------------------------------------------------

static void a_lease_counts_from_the_send_time_of_its_request(void **state)
{
	struct lease_holder h;
	struct lease_grant g;
	uint64_t id;

	(void)state;
	lease_holder_init(&h, 100);
	assert_false(lease_held(&h, 5, 0));
	id = lease_ask(&h, 10 * MS);
	g = grant_of(id, 1, 5);
	assert_int_equal(lease_granted(&h, &config, &g, 5, 600 * MS), 0);
	assert_int_equal(lease_rest_ns(&h, 1000 * MS), 10 * MS);
	assert_true(lease_held(&h, 5, 1010 * MS - 1));
	assert_false(lease_held(&h, 5, 1010 * MS));
	assert_int_equal(lease_rest_ns(&h, 1010 * MS), 0);
}

static void a_late_answer_gives_only_what_is_left_of_it(void **state)
{
	struct lease_holder h;
	struct lease_grant g;

	(void)state;
	lease_holder_init(&h, 0);
	g = grant_of(lease_ask(&h, 0), 1, 0);
	assert_int_equal(lease_granted(&h, &config, &g, 0, 5000 * MS), 0);
	assert_false(lease_held(&h, 0, 5000 * MS));
}

static void repeated_and_reordered_answers_change_nothing(void **state)
{
	struct lease_holder h;
	struct lease_grant first, second;

	(void)state;
	lease_holder_init(&h, 0);
	first = grant_of(lease_ask(&h, 0), 1, 0);
	second = grant_of(lease_ask(&h, 400 * MS), 1, 0);
	assert_int_equal(lease_granted(&h, &config, &second, 0, 450 * MS), 0);
	assert_int_equal(lease_granted(&h, &config, &first, 0, 460 * MS), 0);
	assert_int_equal(lease_granted(&h, &config, &second, 0, 1300 * MS), 0);
	assert_true(lease_held(&h, 0, 1400 * MS - 1));
	assert_false(lease_held(&h, 0, 1400 * MS));
}

static void answers_to_nobody_or_of_a_past_controller_are_refused(void **state)
{
	struct lease_holder h;
	struct lease_grant g;
	uint64_t old;

	(void)state;
	lease_holder_init(&h, 1000);
	g = grant_of(1001, 1, 0);
	assert_int_equal(lease_granted(&h, &config, &g, 0, 0), -ESTALE);
	g = grant_of(0, 1, 0);
	assert_int_equal(lease_granted(&h, &config, &g, 0, 0), -ESTALE);
	old = lease_ask(&h, 0);
	g = grant_of(lease_ask(&h, MS), 2, 0);
	assert_int_equal(lease_granted(&h, &config, &g, 0, 2 * MS), 0);
	g = grant_of(lease_ask(&h, 500 * MS), 1, 0);
	assert_int_equal(lease_granted(&h, &config, &g, 0, 510 * MS), -ESTALE);
	for (uint32_t i = 0; i < LEASE_REQUESTS; i++)
		lease_ask(&h, 600 * MS);
	g = grant_of(old, 9, 0);
	assert_int_equal(lease_granted(&h, &config, &g, 0, 610 * MS), -ESTALE);
	assert_false(lease_held(&h, 0, 1001 * MS));
}

static void a_grant_is_no_use_before_its_commit_is_applied(void **state)
{
	struct lease_holder h;
	struct lease_grant g;

	(void)state;
	lease_holder_init(&h, 0);
	g = grant_of(lease_ask(&h, 0), 1, 10);
	assert_int_equal(lease_granted(&h, &config, &g, 9, MS), 0);
	assert_false(lease_held(&h, 9, 2 * MS));
	assert_true(lease_held(&h, 10, 3 * MS));
	// What was won before goes on; the later part waits for its own commit.
	g = grant_of(lease_ask(&h, 500 * MS), 1, 20);
	assert_int_equal(lease_granted(&h, &config, &g, 10, 510 * MS), 0);
	assert_true(lease_held(&h, 10, 999 * MS));
	assert_false(lease_held(&h, 10, 1000 * MS));
	assert_true(lease_held(&h, 20, 1400 * MS));
	assert_false(lease_held(&h, 20, 1500 * MS));
}

static void a_clock_that_jumps_never_lengthens_a_lease(void **state)
{
	struct lease_holder h;
	struct lease_grant g;

	(void)state;
	lease_holder_init(&h, 0);
	g = grant_of(lease_ask(&h, 10000 * MS), 1, 0);
	assert_int_equal(lease_granted(&h, &config, &g, 0, 10001 * MS), 0);
	assert_true(lease_held(&h, 0, 10500 * MS));
	assert_true(lease_held(&h, 0, 3000 * MS));  // back: as late as it ever was
	assert_int_equal(lease_rest_ns(&h, 3000 * MS), 500 * MS);
	assert_false(lease_held(&h, 0, 99000 * MS));  // it slept
	assert_false(lease_held(&h, 0, 10600 * MS));
	g = grant_of(lease_ask(&h, 10600 * MS), 1, 0);  // a request out of the past
	assert_int_equal(lease_granted(&h, &config, &g, 0, 10601 * MS), 0);
	assert_true(lease_held(&h, 0, 10602 * MS));
	assert_false(lease_held(&h, 0, 100000 * MS));
}

static void a_node_alone_needs_no_lease(void **state)
{
	struct lease_holder h;

	(void)state;
	lease_holder_init(&h, 0);
	lease_holder_alone(&h, true);
	assert_true(lease_held(&h, 0, UINT64_MAX));
	assert_int_equal(lease_rest_ns(&h, 0), UINT64_MAX);
	lease_holder_alone(&h, false);
	assert_false(lease_held(&h, 0, 0));
	lease_holder_alone(&h, true);
	lease_holder_drop(&h);
	assert_false(lease_held(&h, 0, 0));
}

// --- the controller -----------------------------------------------------------------------------------------

static struct lease_controller *controller(uint64_t term, uint64_t now_ns)
{
	struct lease_controller *c = calloc(1, sizeof(*c));

	assert_non_null(c);
	lease_controller_start(c, term, now_ns);
	return c;
}

static void a_new_controller_waits_one_full_lease(void **state)
{
	struct lease_controller *c = controller(3, 5000 * MS);

	(void)state;
	assert_int_equal(lease_term_ns(&config), 1150 * MS + 100);
	assert_false(lease_controller_over(c, &config, 7, 6150 * MS));
	assert_true(lease_controller_alive(c, &config, 7, 6150 * MS));
	assert_true(lease_controller_over(c, &config, 7, 6151 * MS));
	free(c);
}

static void a_grant_puts_the_end_off(void **state)
{
	struct lease_controller *c = controller(3, 0);
	struct lease_grant g;

	(void)state;
	assert_true(lease_controller_grant(c, 7, 55, 12, 1000 * MS, &g));
	assert_int_equal(g.request_id, 55);
	assert_int_equal(g.controller_term, 3);
	assert_int_equal(g.commit, 12);
	assert_false(lease_controller_over(c, &config, 7, 2150 * MS));
	assert_true(lease_controller_over(c, &config, 7, 2151 * MS));
	assert_true(lease_controller_over(c, &config, 8, 2151 * MS));
	lease_controller_stop(c);
	assert_false(lease_controller_grant(c, 7, 56, 12, 3000 * MS, &g));
	assert_false(lease_controller_over(c, &config, 7, 9000 * MS));
	free(c);
}

static void who_is_held_back_gets_no_grant_and_afterwards_one_behind_the_move(void **state)
{
	struct lease_controller *c = controller(3, 0);
	struct lease_grant g;

	(void)state;
	assert_int_equal(lease_controller_hold_back(c, 7), 0);
	assert_false(lease_controller_grant(c, 7, 1, 12, MS, &g));
	assert_true(lease_controller_grant(c, 8, 1, 12, MS, &g));
	lease_controller_release(c, 7, 20);
	assert_true(lease_controller_grant(c, 7, 2, 12, MS, &g));
	assert_int_equal(g.commit, 20);
	assert_true(lease_controller_grant(c, 7, 3, 25, MS, &g));
	assert_int_equal(g.commit, 25);
	free(c);
}

static void a_slot_nobody_leads_is_free_after_a_lease_or_consent(void **state)
{
	struct lease_controller *c = controller(3, 0);
	static struct topology t;

	(void)state;
	topology_init(&t, 256, 4, 1);
	lease_controller_seen(c, &t, 100 * MS);
	assert_false(lease_controller_free(c, &config, 2, 9000 * MS));
	lease_controller_vacated(c, 2);
	t.slot[1].leader = t.slot[2].leader = 0;
	lease_controller_seen(c, &t, 10000 * MS);
	lease_controller_seen(c, &t, 10500 * MS);
	assert_false(lease_controller_free(c, &config, 2, 11150 * MS));
	assert_true(lease_controller_free(c, &config, 2, 11151 * MS));
	lease_controller_start(c, 4, 11200 * MS);  // another one does not know since when
	lease_controller_seen(c, &t, 11200 * MS);
	assert_false(lease_controller_free(c, &config, 2, 12000 * MS));
	lease_controller_vacated(c, 2);
	assert_true(lease_controller_free(c, &config, 2, 12000 * MS));
	assert_false(lease_controller_free(c, &config, 3, 12000 * MS));
	t.slot[1].leader = 2;
	lease_controller_seen(c, &t, 12100 * MS);
	assert_false(lease_controller_free(c, &config, 2, 99000 * MS));
	free(c);
}

// --- both, in a cluster that loses, delays and repeats ----------------------------------------------------------

enum { NODES = 3, SLOTS = 4, LETTERS = 128, COMMITS = 4000 };

struct letter {
	uint64_t at_ms;  // when it arrives; 0: none
	uint32_t node;  // 0-based: who asks, or whom the grant is for
	uint32_t controller;
	bool grant;
	uint64_t request;
	struct lease_grant content;
};

struct sim_node {
	struct lease_holder lease;
	double rate, offset_ms;  // of its clock
	uint32_t applied;  // commits
	uint64_t paused_until_ms, cut_until_ms;
};

struct sim_controller {
	struct lease_controller *lease;
	double rate, offset_ms;
	bool believes;
	uint32_t seen;  // commits it knows
	uint64_t propose_at_ms;  // a proposal under way; 0: none
	struct lease_move move;
	bool take;
};

struct sim {
	uint64_t seed, now_ms;
	uint32_t commits;
	struct topology base;  // peers and counts; leaders come from the log
	struct topology_node row[NODES];
	uint64_t leader[COMMITS][SLOTS], term[COMMITS][SLOTS];
	struct sim_node node[NODES];
	struct sim_controller controller[2];
	uint32_t real;  // who leads the consensus
	uint64_t epoch;
	struct letter letter[LETTERS];
	uint64_t acted, moves, elections;
};

static uint32_t roll(struct sim *s, uint32_t of)
{
	return (uint32_t)(unit_random(&s->seed) % of);
}

static uint64_t clock_of(const struct sim *s, double rate, double offset_ms)
{
	return (uint64_t)((offset_ms + (double)s->now_ms * rate) * (double)MS);
}

static struct topology *topology_at(struct sim *s, uint32_t commits)
{
	static struct topology t;

	t = s->base;
	for (uint32_t i = 0; i < SLOTS; i++) {
		t.slot[i].leader = s->leader[commits][i];
		t.slot[i].term = s->term[commits][i];
	}
	return &t;
}

// Sends a letter: lost, late, repeated. A node that is cut off neither sends nor gets.
static void post(struct sim *s, const struct letter *l)
{
	for (uint32_t copies = roll(s, 5) == 0 ? 0 : 1 + (roll(s, 5) == 0); copies > 0; copies--)
		for (uint32_t i = 0; i < LETTERS; i++)
			if (s->letter[i].at_ms == 0) {
				s->letter[i] = *l;
				s->letter[i].at_ms =
					s->now_ms + 1 + roll(s, roll(s, 10) == 0 ? 900 : 40);
				break;
			}
}

static void deliver(struct sim *s, struct letter l)
{
	struct sim_controller *const c = &s->controller[l.controller];
	struct sim_node *const n = &s->node[l.node];
	const bool cut = n->cut_until_ms > s->now_ms;

	if (l.grant) {
		if (!cut)
			lease_granted(&n->lease, &config, &l.content, n->applied,
				clock_of(s, n->rate, n->offset_ms));
		return;
	}
	// The barrier before a grant fails at who does not lead any more.
	if (cut || !c->believes || l.controller != s->real)
		return;
	if (lease_controller_grant(c->lease, l.node + 1, l.request, s->commits,
		    clock_of(s, c->rate, c->offset_ms), &l.content)) {
		l.grant = true;
		post(s, &l);
	}
}

static void elect(struct sim *s)
{
	struct sim_controller *c;

	s->real = 1 - s->real;
	s->epoch++;
	s->elections++;
	c = &s->controller[s->real];
	c->believes = true;
	c->seen = s->commits;
	c->propose_at_ms = 0;
	lease_controller_start(c->lease, s->epoch, clock_of(s, c->rate, c->offset_ms));
}

static void commit_move(struct sim *s, struct sim_controller *c)
{
	struct store_slot row;
	uint64_t *leader, *term;

	if (c->take)
		lease_move_take(topology_at(s, s->commits), &c->move, &row);
	else
		lease_move_give(topology_at(s, s->commits), &c->move, &row);
	assert_true(s->commits + 1 < COMMITS);
	leader = s->leader[s->commits + 1];
	term = s->term[s->commits + 1];
	memcpy(leader, s->leader[s->commits], sizeof(s->leader[0]));
	memcpy(term, s->term[s->commits], sizeof(s->term[0]));
	leader[c->move.slot - 1] = row.leader;
	term[c->move.slot - 1] = row.term;
	s->commits++;
	s->moves++;
	c->propose_at_ms = 0;
	c->seen = s->commits;
	if (!c->take && c->move.from != 0)
		lease_controller_release(c->lease, c->move.from, s->commits);
}

static void plan(struct sim *s, struct sim_controller *c)
{
	const uint64_t now = clock_of(s, c->rate, c->offset_ms);
	const struct topology *const t = topology_at(s, c->seen);
	bool waiting[TOPOLOGY_SLOTS_MAX + 1] = {false};
	uint8_t health[NODES];

	lease_controller_seen(c->lease, t, now);
	for (uint32_t i = 0; i < NODES; i++) {
		const bool heard = s->node[i].cut_until_ms <= s->now_ms &&
				   s->node[i].paused_until_ms <= s->now_ms;

		health[i] = lease_controller_over(c->lease, &config, i + 1, now) ? LEASE_OVER
			    : heard                                              ? LEASE_ALIVE
										 : LEASE_UNSURE;
	}
	for (uint32_t slot = 1; slot <= SLOTS; slot++) {
		// Whoever led it last says so, if it can be heard.
		for (uint32_t back = c->seen; t->slot[slot - 1].leader == 0 && back > 0; back--) {
			const uint64_t last = s->leader[back - 1][slot - 1];

			if (last == 0)
				continue;
			if (s->node[last - 1].applied >= back &&
				s->node[last - 1].cut_until_ms <= s->now_ms)
				lease_controller_vacated(c->lease, slot);
			break;
		}
		waiting[slot] = t->slot[slot - 1].leader == 0 &&
				!lease_controller_free(c->lease, &config, slot, now);
	}
	if (lease_plan(t, health, waiting, 1, &c->move) == 0) {
		const uint32_t slot = 1 + roll(s, SLOTS), to = 1 + roll(s, NODES);

		// Now and then somebody moves one by hand.
		if (roll(s, 20) != 0 || waiting[slot] ||
			lease_plan_by_hand(t, health, slot, to, &c->move) != 0)
			return;
	}
	c->take = lease_move_takes_two(&c->move);
	if (!c->take && c->move.from != 0)
		assert_int_equal(lease_controller_hold_back(c->lease, c->move.from), 0);
	c->propose_at_ms = s->now_ms + 1 + roll(s, 100);
}

static void controllers_step(struct sim *s)
{
	for (uint32_t i = 0; i < 2; i++) {
		struct sim_controller *const c = &s->controller[i];

		if (!c->believes)
			continue;
		if (i != s->real) {
			// It finds out late; what it proposes comes to nothing.
			if (roll(s, 500) == 0) {
				c->believes = false;
				lease_controller_stop(c->lease);
			}
			continue;
		}
		if (c->propose_at_ms == 0 && s->now_ms % 50 == 0)
			plan(s, c);
		else if (c->propose_at_ms != 0 && c->propose_at_ms <= s->now_ms)
			commit_move(s, c);
	}
}

static void nodes_step(struct sim *s)
{
	for (uint32_t i = 0; i < NODES; i++) {
		struct sim_node *const n = &s->node[i];
		const uint64_t now = clock_of(s, n->rate, n->offset_ms);

		if (roll(s, 8000) == 0)
			n->paused_until_ms = s->now_ms + roll(s, 3000);
		if (roll(s, 8000) == 0)
			n->cut_until_ms = s->now_ms + roll(s, 5000);
		if (roll(s, 6000) == 0)
			n->offset_ms += roll(s, 2000);  // its clock jumps on
		if (n->paused_until_ms > s->now_ms)
			continue;
		if (n->cut_until_ms <= s->now_ms && n->applied < s->commits && roll(s, 60) == 0)
			n->applied++;
		if ((s->now_ms + i * 37) % 250 == 0 && n->cut_until_ms <= s->now_ms)
			post(s, &(struct letter){.node = i,
					.controller = roll(s, 4) == 0 ? 1 - s->real : s->real,
					.request = lease_ask(&n->lease, now)});
	}
}

// At each instant at most one node acts on a slot. A paused one acts as soon as it wakes, by a fresh clock.
static void nobody_acts_beside_another(struct sim *s)
{
	for (uint32_t slot = 0; slot < SLOTS; slot++) {
		uint32_t acting = 0;

		for (uint32_t i = 0; i < NODES; i++) {
			struct sim_node *const n = &s->node[i];

			if (s->leader[n->applied][slot] == i + 1 &&
				n->paused_until_ms <= s->now_ms &&
				lease_held(
					&n->lease, n->applied, clock_of(s, n->rate, n->offset_ms)))
				acting++;
		}
		s->acted += acting;
		if (acting > 1)
			fail_msg("%u nodes act on slot %u at %llu ms", acting, slot + 1,
				(unsigned long long)s->now_ms);
	}
}

static void sim_begin(struct sim *s, uint64_t seed)
{
	struct lease_controller *const a = s->controller[0].lease, *const b =
									   s->controller[1].lease;

	memset(s, 0, sizeof(*s));
	s->seed = seed * UINT64_C(0x9e3779b97f4a7c15) | 1;
	memset(a, 0, sizeof(*a));
	memset(b, 0, sizeof(*b));
	s->controller[0].lease = a;
	s->controller[1].lease = b;
	assert_int_equal(topology_init(&s->base, 256, SLOTS, 1), 0);
	s->base.node = s->row;
	s->base.node_count = NODES;
	for (uint32_t i = 0; i < NODES; i++) {
		s->row[i] = (struct topology_node){.id = i + 1, .state = TOPOLOGY_ACTIVE};
		lease_holder_init(&s->node[i].lease, 1000 * (i + 1));
		s->node[i].rate = 0.955 + roll(s, 90) / 1000.0;
		s->node[i].offset_ms = roll(s, 100000);
	}
	for (uint32_t i = 0; i < SLOTS; i++) {
		s->leader[0][i] = 1 + i % NODES;
		s->term[0][i] = 1;
		s->base.peers[i] = (struct topology_peers){.count = 3, .node = {1, 2, 3}};
	}
	for (uint32_t i = 0; i < 2; i++) {
		s->controller[i].rate = 0.955 + roll(s, 90) / 1000.0;
		s->controller[i].offset_ms = 1 + roll(s, 100000);
	}
	elect(s);
}

static void two_nodes_never_act_on_one_slot(void **state)
{
	const char *const text = getenv("LEASE_RUNS");
	const uint64_t runs = text == NULL ? 40 : strtoull(text, NULL, 10);
	struct sim *s = calloc(1, sizeof(*s));
	uint64_t acted = 0, moves = 0, elections = 0;

	(void)state;
	for (uint32_t i = 0; i < 2; i++)
		s->controller[i].lease = calloc(1, sizeof(struct lease_controller));
	for (uint64_t run = 1; run <= runs; run++) {
		sim_begin(s, run);
		for (s->now_ms = 1; s->now_ms < 30000; s->now_ms++) {
			if (roll(s, 5000) == 0)
				elect(s);
			controllers_step(s);
			nodes_step(s);
			for (uint32_t i = 0; i < LETTERS; i++)
				if (s->letter[i].at_ms != 0 && s->letter[i].at_ms <= s->now_ms) {
					const struct letter l = s->letter[i];

					s->letter[i].at_ms = 0;
					deliver(s, l);
				}
			nobody_acts_beside_another(s);
		}
		acted += s->acted;
		moves += s->moves;
		elections += s->elections;
	}
	print_message("%llu %% of slot time led, %llu moves, %llu elections\n",
		(unsigned long long)(acted * 100 / (runs * 30000 * SLOTS)),
		(unsigned long long)moves, (unsigned long long)elections);
	// It is no use to be safe by doing nothing.
	assert_true(acted * 100 / (runs * 30000 * SLOTS) > 50);
	assert_true(moves > runs * 10);
	for (uint32_t i = 0; i < 2; i++)
		free(s->controller[i].lease);
	free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_lease_counts_from_the_send_time_of_its_request),
		cmocka_unit_test(a_late_answer_gives_only_what_is_left_of_it),
		cmocka_unit_test(repeated_and_reordered_answers_change_nothing),
		cmocka_unit_test(answers_to_nobody_or_of_a_past_controller_are_refused),
		cmocka_unit_test(a_grant_is_no_use_before_its_commit_is_applied),
		cmocka_unit_test(a_clock_that_jumps_never_lengthens_a_lease),
		cmocka_unit_test(a_node_alone_needs_no_lease),
		cmocka_unit_test(a_new_controller_waits_one_full_lease),
		cmocka_unit_test(a_grant_puts_the_end_off),
		cmocka_unit_test(who_is_held_back_gets_no_grant_and_afterwards_one_behind_the_move),
		cmocka_unit_test(a_slot_nobody_leads_is_free_after_a_lease_or_consent),
		cmocka_unit_test(two_nodes_never_act_on_one_slot),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
