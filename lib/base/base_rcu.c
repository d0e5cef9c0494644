/* SPDX-License-Identifier: BSD-3-Clause */
// liburcu QSBR behind base_rcu.h. The control core is never a registered reader, so waiting for a
// grace period cannot wait for itself.
#include "base_rcu.h"

#include <urcu-qsbr.h>

// The packaged liburcu is not instrumented: the thread sanitizer is told what a grace period orders.
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
static char grace;
#define SEEN_BY_GRACE() __tsan_release(&grace)
#define GRACE_SEES() __tsan_acquire(&grace)
#else
#define SEEN_BY_GRACE() ((void)0)
#define GRACE_SEES() ((void)0)
#endif

void rcu_reader_register(void)
{
	urcu_qsbr_register_thread();
}

void rcu_reader_unregister(void)
{
	SEEN_BY_GRACE();
	urcu_qsbr_unregister_thread();
}

void rcu_reader_quiescent(void)
{
	SEEN_BY_GRACE();
	urcu_qsbr_quiescent_state();
}

void rcu_reader_offline(void)
{
	SEEN_BY_GRACE();
	urcu_qsbr_thread_offline();
}

void rcu_reader_online(void)
{
	urcu_qsbr_thread_online();
}

void rcu_retire_init(struct rcu_retire *list)
{
	list->count = 0;
}

void rcu_retire(
	struct rcu_retire *list, void (*free_fn)(void *owner, void *ptr), void *owner, void *ptr)
{
	if (list->count == RCU_RETIRE_MAX)
		rcu_reclaim(list);
	list->item[list->count++] =
		(struct rcu_retired){.free_fn = free_fn, .owner = owner, .ptr = ptr};
}

uint32_t rcu_reclaim(struct rcu_retire *list)
{
	const uint32_t count = list->count;

	if (count == 0)
		return 0;
	urcu_qsbr_synchronize_rcu();
	GRACE_SEES();
	for (uint32_t i = 0; i < count; i++)
		list->item[i].free_fn(list->item[i].owner, list->item[i].ptr);
	list->count = 0;
	return count;
}
