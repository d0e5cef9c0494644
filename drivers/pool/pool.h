/* SPDX-License-Identifier: BSD-3-Clause */
// Threads that work on a queue of lib/wq, for the control side, and what such queues need of the system:
// sleeping and waking over futexes, the clock, the barrier in every thread.
//
// lib/wq knows no thread: a poll loop of a core, the simulator and these threads are the same to it.
#pragma once

#include <stdint.h>

#include "wq.h"

// For wq_params.ops. Context: any. The barrier is missing where the kernel refuses membarrier.
const struct wq_ops *pool_wq_ops(void);

struct pool;

// Starts a thread for each worker of `queue`, whose ops must not be NULL. They end when the queue is closed
// and drained, or abandoned. Owns: the pool until pool_join gives 0; the queue stays the caller's.
// `name`: of the threads, 15 bytes at most are kept. Returns: 0, -EINVAL, -ENOMEM, -EAGAIN (no thread).
int pool_create(struct wq *queue, const char *name, struct pool **pool);
// Waits for the threads to end and frees the pool. After wq_close, or wq_shut. Context: no thread of the pool.
// Returns: 0; -ETIMEDOUT: a handler still runs, the pool stays; call again.
int pool_join(struct pool *pool, uint64_t deadline_ns);
