/* SPDX-License-Identifier: BSD-3-Clause */
// Two threads for what takes too long for a turn: one for short work that requests wait for (parsing,
// sorting), one for long work (backup, restore, removal of old files). Not libuv's pool: that one writes
// the log.
#pragma once

#include <uv.h>

#include "base_role.h"

enum meta_lane { META_SHORT, META_LONG, META_LANES };

struct meta_job {
	struct meta_job *next;
	void (*run)(struct meta_job *job);  // the lane's thread
	void (*done)(struct meta_job *job);  // the loop, in the order of submission per lane
};

struct meta_pool;

// Returns: 0, -ENOMEM, or -errno of the system.
int meta_pool_create(uv_loop_t *loop, struct meta_pool **pool);
// Waits for jobs that run and calls `done` of all that ran. What was not begun is run and done too.
void meta_pool_stop(struct meta_pool *pool) META_ONLY;
// Owns: the job is the pool's until its `done`.
void meta_pool_submit(struct meta_pool *pool, enum meta_lane lane, struct meta_job *job) META_ONLY;
// Jobs whose `done` was not called yet.
unsigned meta_pool_pending(const struct meta_pool *pool) META_ONLY;
