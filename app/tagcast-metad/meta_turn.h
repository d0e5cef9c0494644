/* SPDX-License-Identifier: BSD-3-Clause */
// How long the turns of the event loop are, and what made the longest so long. A turn is all work between
// two waits; a heartbeat is due in the next one, so none may use half a heartbeat of CPU.
// Context: the loop of the meta process.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base_role.h"

#define META_TURN_CPU_MAX_NS UINT64_C(25000000)  // half of the default heartbeat
#define META_PIECE_CPU_NS UINT64_C(4000000)  // what one kind of bounded work uses of a turn

enum meta_turn_part {
	TURN_CONSENSUS,  // and whatever else the loop polls
	TURN_REQUESTS,
	TURN_FEED,
	TURN_QUEUE,
	TURN_COMMIT,
	TURN_COMPACT,
	TURN_RESTORE,
	TURN_SNAPSHOT,
	TURN_OTHER,
	TURN_PARTS
};
const char *meta_turn_part_name(enum meta_turn_part part);

struct meta_turn {
	uint64_t cpu_begin_ns, wall_begin_ns, mark_ns;
	uint64_t part_ns[TURN_PARTS];  // CPU of this turn
	// For good:
	uint64_t turns, over;  // over META_TURN_CPU_MAX_NS
	uint64_t cpu_max_ns, wall_max_ns;
	uint64_t cpu_max_part_ns;
	uint8_t cpu_max_part;  // enum meta_turn_part
	uint8_t last_part;  // of the last turn that was too long
};

// CPU time of the calling thread.
uint64_t meta_cpu_ns(void);

// Counts the CPU used since the last mark, or the begin of the turn, as `part`.
void meta_turn_mark(struct meta_turn *turn, enum meta_turn_part part) META_ONLY;
// Ends a turn; the next begins. `wall_ns`: a clock that stands while the loop waits.
// What is not marked counts as TURN_OTHER. Returns: true when the turn was too long.
bool meta_turn_end(struct meta_turn *turn, uint64_t wall_ns) META_ONLY;
