/* SPDX-License-Identifier: BSD-3-Clause */
// Time is an argument: 64-bit nanoseconds of CLOCK_BOOTTIME (or of a simulator), read once per turn.
#pragma once

#include <stdint.h>

#define NS_PER_US UINT64_C(1000)
#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_S UINT64_C(1000000000)

// Reads CLOCK_BOOTTIME. Context: the loop of a thread, once per turn; never inside lib code that is
// given `now_ns`.
uint64_t time_now_ns(void);
