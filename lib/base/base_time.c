/* SPDX-License-Identifier: BSD-3-Clause */
// The one place that reads a clock.
#include "base_time.h"

#include <time.h>

uint64_t time_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_BOOTTIME, &ts);
	return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}
