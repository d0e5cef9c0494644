/* SPDX-License-Identifier: BSD-3-Clause */
// The meter of turns. Run by the loop of the meta process.
#include "meta_turn.h"

#include <string.h>
#include <time.h>

#include "base_time.h"

const char *meta_turn_part_name(enum meta_turn_part part)
{
	static const char *const names[] = {
		[TURN_CONSENSUS] = "consensus",
		[TURN_REQUESTS] = "requests",
		[TURN_FEED] = "feed",
		[TURN_QUEUE] = "queue",
		[TURN_COMMIT] = "commit",
		[TURN_COMPACT] = "compaction",
		[TURN_RESTORE] = "restore",
		[TURN_SNAPSHOT] = "snapshot",
		[TURN_OTHER] = "other",
	};

	return part < TURN_PARTS ? names[part] : "unknown";
}

uint64_t meta_cpu_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

void meta_turn_mark(struct meta_turn *turn, enum meta_turn_part part)
{
	const uint64_t now_ns = meta_cpu_ns();

	turn->part_ns[part] += now_ns - turn->mark_ns;
	turn->mark_ns = now_ns;
}

static uint8_t longest_part(const struct meta_turn *turn)
{
	uint8_t longest = 0;

	for (uint8_t part = 1; part < TURN_PARTS; part++)
		if (turn->part_ns[part] > turn->part_ns[longest])
			longest = part;
	return longest;
}

bool meta_turn_end(struct meta_turn *turn, uint64_t wall_ns)
{
	uint64_t cpu_ns, took_ns = wall_ns - turn->wall_begin_ns;

	meta_turn_mark(turn, TURN_OTHER);
	cpu_ns = turn->mark_ns - turn->cpu_begin_ns;
	// The first one has no begin.
	if (turn->turns++ > 0) {
		if (took_ns > turn->wall_max_ns)
			turn->wall_max_ns = took_ns;
		turn->over += cpu_ns > META_TURN_CPU_MAX_NS;
		if (cpu_ns > META_TURN_CPU_MAX_NS)
			turn->last_part = longest_part(turn);
		if (cpu_ns > turn->cpu_max_ns) {
			turn->cpu_max_ns = cpu_ns;
			turn->cpu_max_part = longest_part(turn);
			turn->cpu_max_part_ns = turn->part_ns[turn->cpu_max_part];
		}
	} else {
		cpu_ns = 0;
	}
	memset(turn->part_ns, 0, sizeof(turn->part_ns));
	turn->cpu_begin_ns = turn->mark_ns;
	turn->wall_begin_ns = wall_ns;
	return cpu_ns > META_TURN_CPU_MAX_NS;
}
