/* SPDX-License-Identifier: BSD-3-Clause */
// See raft_cluster.h.
#include "raft_cluster.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NEVER_MS 1000000000u

struct request {
	struct raft_apply req;
};

static int apply(struct raft_fsm *fsm, const struct raft_buffer *buf, void **result)
{
	struct raft *raft = fsm->data;
	struct cluster_node *node =
		(struct cluster_node *)((char *)fsm - offsetof(struct cluster_node, fsm));
	const uint64_t index = raft_last_applied(raft) + 1;

	*result = NULL;
	assert_true(index < CLUSTER_APPLIED_MAX);
	memcpy(&node->value[index], buf->base, sizeof(uint64_t));
	if (index > node->applied)
		node->applied = index;
	return 0;
}

static int snapshot(struct raft_fsm *fsm, struct raft_buffer *bufs[], unsigned *n_bufs)
{
	const struct cluster_node *node =
		(struct cluster_node *)((char *)fsm - offsetof(struct cluster_node, fsm));

	if (!node->cluster->snapshots)
		return RAFT_BUSY;
	*bufs = raft_malloc(sizeof(**bufs));
	assert_non_null(*bufs);
	(*bufs)[0] = (struct raft_buffer){.base = raft_calloc(1, 8), .len = 8};
	*n_bufs = 1;
	return 0;
}

static int restore(struct raft_fsm *fsm, struct raft_buffer *buf)
{
	(void)fsm;
	raft_free(buf->base);
	return 0;
}

static void fault(void *ctx, enum guard_fault what, int error, const char *text)
{
	struct cluster_node *node = ctx;

	(void)error;
	(void)text;
	if (node->cluster->exit_on_fault)
		_exit(CLUSTER_EXIT_FAULT + (int)what);
	node->faulted = true;
	node->fault = what;
}

static const struct guard_hooks hooks = {.fault = fault};

// The fixture's own reads beyond its array when a write before the cut is still in flight. What it keeps is
// only read by a load, which no test does twice.
static int truncate_nothing(struct raft_io *io, raft_index index)
{
	(void)io;
	(void)index;
	return 0;
}

void cluster_init(struct cluster *c, uint32_t n, uint32_t rules)
{
	struct raft_configuration conf;

	c->n = n;
	c->rules = rules;
	assert_int_equal(raft_fixture_initialize(&c->f), 0);
	for (uint32_t i = 0; i < n; i++) {
		struct cluster_node *node = &c->node[i];

		node->cluster = c;
		node->fsm = (struct raft_fsm){
			.version = 1, .apply = apply, .snapshot = snapshot, .restore = restore};
		assert_int_equal(raft_fixture_grow(&c->f, &node->fsm), 0);
		node->fsm.data = raft_fixture_get(&c->f, i);
		raft_fixture_get(&c->f, i)->io->truncate = truncate_nothing;
		if (c->snapshots) {
			raft_set_snapshot_threshold(raft_fixture_get(&c->f, i), 5);
			raft_set_snapshot_trailing(raft_fixture_get(&c->f, i), 1);
		}
		if (rules != 0) {
			struct raft *raft = raft_fixture_get(&c->f, i);

			guard_wrap(&node->guard, raft->io, raft, rules, &hooks, node);
			raft->io = &node->guard.io;
		}
	}
	assert_int_equal(raft_fixture_configuration(&c->f, n, &conf), 0);
	assert_int_equal(raft_fixture_bootstrap(&c->f, &conf), 0);
	raft_configuration_close(&conf);
	assert_int_equal(raft_fixture_start(&c->f), 0);
}

void cluster_fini(struct cluster *c)
{
	raft_fixture_close(&c->f);
	for (uint32_t i = 0; i < c->n; i++)
		guard_drop(&c->node[i].guard);
}

void cluster_cut(struct cluster *c, uint32_t i, uint32_t j)
{
	raft_fixture_saturate(&c->f, i, j);
	raft_fixture_saturate(&c->f, j, i);
}

void cluster_join(struct cluster *c, uint32_t i, uint32_t j)
{
	raft_fixture_desaturate(&c->f, i, j);
	raft_fixture_desaturate(&c->f, j, i);
}

void cluster_isolate(struct cluster *c, uint32_t i)
{
	for (uint32_t j = 0; j < c->n; j++)
		if (j != i)
			cluster_cut(c, i, j);
}

static void set_timeout(struct cluster *c, uint32_t i, unsigned msecs)
{
	struct raft *r = raft_fixture_get(&c->f, i);

	raft_fixture_set_randomized_election_timeout(&c->f, i, msecs);
	if (r->state == RAFT_FOLLOWER)
		r->follower_state.randomized_election_timeout = msecs;
	else if (r->state == RAFT_CANDIDATE)
		r->candidate_state.randomized_election_timeout = msecs;
}

void cluster_stand(struct cluster *c, uint32_t i)
{
	for (uint32_t j = 0; j < c->n; j++) {
		struct raft *r = raft_fixture_get(&c->f, j);

		set_timeout(c, j, j == i ? 1000 : NEVER_MS);
		// As if they had not heard of a leader for their time-out: else they grant no vote.
		if (r->state == RAFT_FOLLOWER)
			r->follower_state.current_leader.id = 0;
	}
}

void cluster_calm(struct cluster *c)
{
	for (uint32_t j = 0; j < c->n; j++)
		set_timeout(c, j, NEVER_MS);
}

static void step(struct cluster *c)
{
	raft_fixture_step(&c->f);
	for (uint32_t i = 0; i < c->n; i++) {
		struct cluster_node *node = &c->node[i];
		struct raft *r = raft_fixture_get(&c->f, i);

		if (c->nudges && r->state == RAFT_LEADER && guard_ready(&node->guard))
			nudge_followers(&node->nudge, r);
		if (r->state != RAFT_LEADER ||
			(node->led > 0 && node->terms_led[node->led - 1] == r->current_term))
			continue;
		assert_true(node->led < sizeof(node->terms_led) / sizeof(node->terms_led[0]));
		node->terms_led[node->led++] = r->current_term;
	}
}

bool cluster_step_until(
	struct cluster *c, bool (*done)(struct cluster *c, void *arg), void *arg, unsigned msecs)
{
	const raft_time end = raft_fixture_time(&c->f) + msecs;

	while (!done(c, arg)) {
		if (raft_fixture_time(&c->f) >= end)
			return false;
		step(c);
	}
	return true;
}

static bool leads(struct cluster *c, void *arg)
{
	return raft_state(raft_fixture_get(&c->f, *(uint32_t *)arg)) == RAFT_LEADER;
}

bool cluster_leads(struct cluster *c, uint32_t i, unsigned msecs)
{
	return cluster_step_until(c, leads, &i, msecs);
}

static bool never(struct cluster *c, void *arg)
{
	(void)c;
	(void)arg;
	return false;
}

void cluster_run(struct cluster *c, unsigned msecs)
{
	(void)cluster_step_until(c, never, NULL, msecs);
}

static void applied(struct raft_apply *req, int status, void *result)
{
	(void)status;
	(void)result;
	free(req);
}

int cluster_apply(struct cluster *c, uint32_t i, uint64_t value)
{
	struct raft_apply *req = calloc(1, sizeof(*req));
	struct raft_buffer buf = {.base = raft_malloc(8), .len = 8};
	int rc;

	assert_true(req != NULL && buf.base != NULL);
	memcpy(buf.base, &value, 8);
	rc = raft_apply(raft_fixture_get(&c->f, i), req, &buf, 1, applied);
	if (rc != 0) {
		raft_free(buf.base);
		free(req);
	}
	return rc;
}

uint64_t cluster_differs(const struct cluster *c)
{
	for (uint64_t index = 1; index < CLUSTER_APPLIED_MAX; index++)
		for (uint32_t i = 0; i < c->n; i++)
			for (uint32_t j = i + 1; j < c->n; j++) {
				const struct cluster_node *a = &c->node[i], *b = &c->node[j];

				if (a->applied >= index && b->applied >= index &&
					a->value[index] != b->value[index])
					return index;
			}
	return 0;
}

uint64_t cluster_two_leaders(const struct cluster *c)
{
	for (uint32_t i = 0; i < c->n; i++)
		for (uint32_t j = i + 1; j < c->n; j++)
			for (uint32_t a = 0; a < c->node[i].led; a++)
				for (uint32_t b = 0; b < c->node[j].led; b++)
					if (c->node[i].terms_led[a] == c->node[j].terms_led[b])
						return c->node[i].terms_led[a];
	return 0;
}
