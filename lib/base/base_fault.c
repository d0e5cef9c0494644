/* SPDX-License-Identifier: BSD-3-Clause */
// State of the planted faults; empty in a release build.
#include "base_fault.h"

#ifdef TAGCAST_TEST_HOOKS
#include <errno.h>
#include <stdatomic.h>
#include <string.h>

static _Atomic uint32_t armed[FAULT_COUNT];

static const char *const names[FAULT_COUNT] = {
#define X(id, name, help) [id] = name,
	FAULTS(X)
#undef X
};

int fault_arm(const char *name, uint32_t times)
{
	for (int i = 0; i < FAULT_COUNT; i++) {
		if (strcmp(names[i], name) != 0)
			continue;
		atomic_store(&armed[i], times);
		return 0;
	}
	return -ENOENT;
}

bool fault_armed(enum fault fault)
{
	return atomic_load_explicit(&armed[fault], memory_order_relaxed) != 0;
}

bool fault_take(enum fault fault)
{
	uint32_t left = atomic_load_explicit(&armed[fault], memory_order_relaxed);

	while (left > 0)
		if (atomic_compare_exchange_weak(&armed[fault], &left, left - 1))
			return true;
	return false;
}
#endif
