/* SPDX-License-Identifier: BSD-3-Clause */
// Tells followers at once what is committed. The library tells with the next entry or the next heartbeat,
// so that a follower applies the last entry of a burst up to a whole heartbeat late, and a proposal by way
// of it takes as long. This sends the very heartbeat the library would send then: no entries, our last
// entry as the one before, and the commit index. Context: the loop.
#pragma once

#include <raft.h>
#include <stdint.h>

#include "cons.h"

struct raft_nudge {
	uint64_t sent;  // heartbeats, ever
	struct {
		uint64_t id, index;
	} told[CONS_MEMBERS_MAX];  // commits, by place in the configuration
};

// Sends what is due, of a leader whose first entry of the term is applied.
void nudge_followers(struct raft_nudge *n, struct raft *raft);
