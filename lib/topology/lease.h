/* SPDX-License-Identifier: BSD-3-Clause */
// Leases of nodes on their leadership (I9), both sides. Pure: time is an argument and comes from
// CLOCK_BOOTTIME, which counts suspended time too. One owner thread per object.
//
// Why two nodes never act as leader of one slot:
// - The holder counts from before it sent the request, the controller from after it granted: what the
//   holder thinks it has ends first, if clocks run apart by less than the drift and the margin covers the rest.
// - The controller grants only after it has confirmed its own leadership since the request came in (a
//   barrier). So no grant was asked for after the next controller was elected, and all it knows nothing
//   of are over one full lease after its election.
// - While a reassignment is under way the node that loses gets no grant; after it each grant names a
//   commit at or behind it, and is no use before the holder has applied that.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "topology.h"

struct lease_config {
	uint64_t lease_ns;
	uint32_t drift_permille;  // how far clocks of two nodes may run apart
	uint64_t margin_ns;
};
// lease x (1 + drift) + margin, rounded up: after this a lease granted now is over everywhere.
uint64_t lease_term_ns(const struct lease_config *config);

// Sent by the controller to one holder.
struct lease_grant {
	uint64_t request_id;
	uint64_t controller_term;  // of the consensus leader that grants
	uint64_t commit;  // to be applied before the grant is used
};

// --- the holder: a node -----------------------------------------------------------------------------------

#define LEASE_REQUESTS 16u  // remembered; an answer to an older one is late

struct lease_holder {
	uint64_t now_ns;  // latest time ever given: a clock that goes back adds nothing
	uint64_t until_ns;  // usable; 0: none
	uint64_t next_until_ns, next_commit;  // granted, but its commit was not applied yet
	uint64_t controller_term;
	uint64_t last_id;
	struct {
		uint64_t id, sent_ns;
	} request[LEASE_REQUESTS];
	bool alone;
};
// `first_id`: request ids start above it; another for each start of the process (boot id), so that an answer
// to a process before is never taken.
void lease_holder_init(struct lease_holder *h, uint64_t first_id);
// The topology has this node and no other: it needs no lease. Taken back with the row that adds a node.
void lease_holder_alone(struct lease_holder *h, bool alone);
// A request to be sent at once. Returns: its id.
uint64_t lease_ask(struct lease_holder *h, uint64_t now_ns);
// Takes an answer. Returns: 0; -ESTALE: to no request remembered, or of a past controller; it changes nothing.
int lease_granted(struct lease_holder *h, const struct lease_config *config,
	const struct lease_grant *grant, uint64_t applied_commit, uint64_t now_ns);
// May this node act as leader? Asked before each build, TAG_GET answer and admission, with time read after the
// burst was received. While its meta process is away it says so for the rest of the lease.
bool lease_held(struct lease_holder *h, uint64_t applied_commit, uint64_t now_ns);
// Time left of what is usable; 0: none. UINT64_MAX: alone.
uint64_t lease_rest_ns(const struct lease_holder *h, uint64_t now_ns);
// Gives all up: this node was told that it is removed, or stops.
void lease_holder_drop(struct lease_holder *h);

// --- the controller: the consensus leader ------------------------------------------------------------------

struct lease_node {
	uint64_t id;
	uint64_t granted_ns;  // last grant; 0: none by this controller
	uint64_t commit;  // the least a grant must name
	bool held_back;
};
struct lease_controller {
	uint64_t now_ns;
	uint64_t term;  // 0: does not lead
	uint64_t since_ns;
	uint32_t count;
	struct lease_node node[TOPOLOGY_NODES_MAX];  // ascending by id
	uint64_t taken_ns[TOPOLOGY_SLOTS_MAX +
			  1];  // since when nobody leads a slot; 0: somebody does
	bool vacated[TOPOLOGY_SLOTS_MAX + 1];  // whoever led it has said that it does no more
};
// Elected: knows nothing of grants before, so all nodes may hold one for a full lease from now.
void lease_controller_start(struct lease_controller *c, uint64_t term, uint64_t now_ns);
void lease_controller_stop(struct lease_controller *c);
// Answers a request of `node`, after a barrier that began after the request came. `commit`: the newest
// commit that barrier covers. Returns: false: no grant now (does not lead, held back, no room).
bool lease_controller_grant(struct lease_controller *c, uint64_t node, uint64_t request_id,
	uint64_t commit, uint64_t now_ns, struct lease_grant *grant);
// Before a reassignment away from `node` is proposed: it gets no grants until the outcome is known.
// Returns: 0; -ENOSPC.
int lease_controller_hold_back(struct lease_controller *c, uint64_t node);
// The outcome is known (applied, refused, or found by a barrier): grants name `commit` or later.
void lease_controller_release(struct lease_controller *c, uint64_t node, uint64_t commit);
// When no lease of `node` can be alive any more, in this controller's time.
uint64_t lease_controller_over_ns(
	const struct lease_controller *c, const struct lease_config *config, uint64_t node);
// Is it over? Only then may a slot go from `node` to another in one step.
bool lease_controller_over(struct lease_controller *c, const struct lease_config *config,
	uint64_t node, uint64_t now_ns);
// Had a grant lately, or a new controller gives it the time to ask: to be counted as alive.
bool lease_controller_alive(struct lease_controller *c, const struct lease_config *config,
	uint64_t node, uint64_t now_ns);

// A slot without a leader may still be led by who has not heard of it. To be called with each new topology: it
// notes since when there is nobody. A new controller begins to count anew.
void lease_controller_seen(struct lease_controller *c, const struct topology *t, uint64_t now_ns);
// The node that led the slot has applied the row that took it away.
void lease_controller_vacated(struct lease_controller *c, uint32_t slot);
// May a slot without a leader be given to anybody?
bool lease_controller_free(struct lease_controller *c, const struct lease_config *config,
	uint32_t slot, uint64_t now_ns);
