/* SPDX-License-Identifier: BSD-3-Clause */
// Names and texts of the counters, made from the one list.
#include "base_counters.h"

static const char *const names[CTR_COUNT] = {
#define X(id, name, help) [id] = name,
	COUNTERS(X)
#undef X
};

static const char *const helps[CTR_COUNT] = {
#define X(id, name, help) [id] = help,
	COUNTERS(X)
#undef X
};

const char *counter_name(enum counter id)
{
	return names[id];
}

const char *counter_help(enum counter id)
{
	return helps[id];
}
