/* SPDX-License-Identifier: BSD-3-Clause */
// Several nodes in the library's fixture (simulated network, disk and time), each behind the guard, or bare.
// Each records what it applied.
#pragma once

#include "unit.h"

#include <raft.h>
#include <raft/fixture.h>
#include <stdbool.h>
#include <stdint.h>

#include "raft_guard.h"
#include "raft_nudge.h"

#define CLUSTER_APPLIED_MAX 4096u

struct cluster_node {
	struct raft_guard guard;
	struct raft_nudge nudge;
	struct raft_fsm fsm;
	uint64_t value[CLUSTER_APPLIED_MAX];  // by index; 0: no command there
	uint64_t applied;  // highest index with a command
	uint64_t terms_led[512];
	uint32_t led;
	struct cluster *cluster;
	bool faulted;
	enum guard_fault fault;
};

#define CLUSTER_EXIT_FAULT 40  // plus the fault

struct cluster {
	// Set before cluster_init. snapshots: each few entries. exit_on_fault: as the product does.
	// nudges: leaders tell followers of commits at once, as the product does.
	bool snapshots, exit_on_fault, nudges;
	struct raft_fixture f;
	struct cluster_node node[RAFT_FIXTURE_MAX_SERVERS];
	uint32_t n, rules;
};

// rules 0: no guard at all. All are voters, started, nobody leads.
void cluster_init(struct cluster *c, uint32_t n, uint32_t rules);
void cluster_fini(struct cluster *c);
// Both directions.
void cluster_cut(struct cluster *c, uint32_t i, uint32_t j);
void cluster_join(struct cluster *c, uint32_t i, uint32_t j);
// Cuts i from everybody.
void cluster_isolate(struct cluster *c, uint32_t i);
// Makes only `i` stand for election from now on, until cluster_calm(c, i).
void cluster_stand(struct cluster *c, uint32_t i);
void cluster_calm(struct cluster *c);
bool cluster_step_until(
	struct cluster *c, bool (*done)(struct cluster *c, void *arg), void *arg, unsigned msecs);
bool cluster_leads(struct cluster *c, uint32_t i, unsigned msecs);
// Submits one command on i. Returns: the library's code.
int cluster_apply(struct cluster *c, uint32_t i, uint64_t value);
void cluster_run(struct cluster *c, unsigned msecs);
// Index at which two nodes applied something else, 0: none.
uint64_t cluster_differs(const struct cluster *c);
// Term that two nodes led, 0: none.
uint64_t cluster_two_leaders(const struct cluster *c);
