/* SPDX-License-Identifier: BSD-3-Clause */
// A thread that is watched while it works: allocations and locks are counted by calls that stand in for the
// C library's, system calls by a filter of the kernel that turns each into a signal (and lets none
// through). One watched thread a process; it never ends, so watch in a child process and leave it by _exit.
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum quiet_what { QUIET_ALLOC, QUIET_FREE, QUIET_LOCK, QUIET_SYSCALL, QUIET_COUNT };

struct quiet_counts {
	uint64_t n[QUIET_COUNT];
	int syscall;  // number of the first one, -1 without
};

// True when system calls are counted too; sanitizers' runtimes make their own.
bool quiet_counts_syscalls(void);

// Starts the thread, which runs once(ctx) unwatched. Aborts when the kernel has no such filter.
void quiet_start(void (*once)(void *ctx), void *ctx);
// Runs fn(ctx) on the watched thread and waits for its end.
void quiet_run(void (*fn)(void *ctx), void *ctx);
// What was counted since the start. Between runs only.
void quiet_counts(struct quiet_counts *counts);
