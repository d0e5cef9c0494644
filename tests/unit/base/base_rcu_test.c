/* SPDX-License-Identifier: BSD-3-Clause */
// Grace periods: nothing is freed while an online reader has not passed a quiescent point.
#include "base_rcu.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "unit.h"

struct shared {
	_Atomic(uint64_t *) slot;
	_Atomic bool stop;
	_Atomic bool online;
	_Atomic uint64_t reads, bad;
};

// A freed object is marked, so that a reader that still sees it notices.
static void mark_freed(void *owner, void *ptr)
{
	(void)owner;
	*(volatile uint64_t *)ptr = UINT64_MAX;
}

static void *reader(void *arg)
{
	struct shared *s = arg;

	rcu_reader_register();
	atomic_store(&s->online, true);
	while (!atomic_load(&s->stop)) {
		volatile uint64_t *p = rcu_read(&s->slot);
		for (int i = 0; i < 50; i++)
			if (*p == UINT64_MAX)
				atomic_fetch_add(&s->bad, 1);
		atomic_fetch_add(&s->reads, 1);
		rcu_reader_quiescent();
	}
	rcu_reader_unregister();
	return NULL;
}

static void a_reader_never_sees_a_freed_object(void **state)
{
	static uint64_t objects[20000];
	static struct rcu_retire list;
	struct shared s = {.slot = NULL};
	pthread_t thread;

	rcu_retire_init(&list);
	rcu_publish(&s.slot, &objects[0]);
	assert_int_equal(pthread_create(&thread, NULL, reader, &s), 0);
	while (!atomic_load(&s.online))
		;
	for (uint32_t i = 1; i < 20000; i++) {
		uint64_t *old = rcu_read(&s.slot);

		rcu_publish(&s.slot, &objects[i]);
		rcu_retire(&list, mark_freed, NULL, old);
		if (i % 16 == 0)
			assert_int_equal(rcu_reclaim(&list), 16);
	}
	atomic_store(&s.stop, true);
	pthread_join(thread, NULL);
	rcu_reclaim(&list);
	assert_int_equal(atomic_load(&s.bad), 0);
	assert_true(atomic_load(&s.reads) > 0);
}

static uint32_t freed;
static void count_freed(void *owner, void *ptr)
{
	(void)owner;
	(void)ptr;
	freed++;
}

static void a_full_list_frees_on_the_spot(void **state)
{
	static struct rcu_retire list;

	rcu_retire_init(&list);
	for (uint32_t i = 0; i < RCU_RETIRE_MAX + 1; i++)
		rcu_retire(&list, count_freed, NULL, NULL);
	assert_int_equal(freed, RCU_RETIRE_MAX);
	assert_int_equal(rcu_reclaim(&list), 1);
	assert_int_equal(rcu_reclaim(&list), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_reader_never_sees_a_freed_object),
		cmocka_unit_test(a_full_list_frees_on_the_spot),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
