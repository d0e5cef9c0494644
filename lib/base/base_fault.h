/* SPDX-License-Identifier: BSD-3-Clause */
// Planted faults, compiled into test builds only (meson -Dtest_hooks=true); a release build has none of
// this code. A fault is armed by name and fires a counted number of times. Any thread.
#pragma once

#include <stdbool.h>
#include <stdint.h>

// X(enumerator, "name", "what it does")
#define FAULTS(X) \
	X(FAULT_DROP1, "drop1", "one route of one push is left out and counted as sent") \
	X(FAULT_DUP1, "dup1", "one message is handed to one session twice, past the suppression") \
	X(FAULT_STALE, "stale", "tags are used although the channel's version moved on") \
	X(FAULT_REMOVED, "removed", "removed members stay in edited tags")

enum fault {
#define X(id, name, help) id,
	FAULTS(X)
#undef X
		FAULT_COUNT
};

#ifdef TAGCAST_TEST_HOOKS
// Arms a fault to fire `times` times. Returns: 0, -ENOENT: no such name.
int fault_arm(const char *name, uint32_t times);
// True when the fault is armed; takes one firing.
bool fault_take(enum fault fault);
// True when fault_take would be; takes none.
bool fault_armed(enum fault fault);
#else
static inline bool fault_armed(enum fault fault)
{
	(void)fault;
	return false;
}
static inline bool fault_take(enum fault fault)
{
	(void)fault;
	return false;
}
#endif
