/* SPDX-License-Identifier: BSD-3-Clause */
// Futexes, the clock and membarrier for queues of lib/wq. Owns nothing; any thread.
#include <limits.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base_time.h"
#include "pool.h"

static void futex_wait(_Atomic uint32_t *word, uint32_t expected, uint64_t until_ns)
{
	const uint64_t now_ns = time_now_ns();
	const uint64_t ns = until_ns > now_ns ? until_ns - now_ns : 0;
	const uint64_t s = ns / NS_PER_S;
	const struct timespec left = {
		.tv_sec = (time_t)(s < 1u << 30 ? s : 1u << 30),
		.tv_nsec = (long)(ns % NS_PER_S),
	};

	if (ns != 0)
		syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, &left, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word, uint32_t sleepers)
{
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, sleepers < INT_MAX ? (int)sleepers : INT_MAX,
		NULL, NULL, 0);
}

static void fence_all(void)
{
	// Registered once below, it does not fail.
	syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
}

static const struct wq_ops with_barrier = {
	.now_ns = time_now_ns,
	.wait = futex_wait,
	.wake = futex_wake,
	.fence_all = fence_all,
};
static const struct wq_ops without_barrier = {
	.now_ns = time_now_ns,
	.wait = futex_wait,
	.wake = futex_wake,
};

const struct wq_ops *pool_wq_ops(void)
{
	// Registering again is allowed and cheap.
	return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0
		       ? &with_barrier
		       : &without_barrier;
}
