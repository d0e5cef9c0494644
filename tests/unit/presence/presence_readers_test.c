/* SPDX-License-Identifier: BSD-3-Clause */
// A polling reader beside a churning writer: what stays open is always found, and no more than a grace
// period's worth of memory is touched late (the sanitizers see to that).
#include "presence_fixture.h"

#include <pthread.h>

enum { CHANGES = 100000 };

struct reader {
	struct fixture *f;
	uint32_t uid;
	uint64_t kept;  // the session that never closes
	_Atomic bool stop;
	uint64_t rounds, missed;
};

static void *reader_main(void *arg)
{
	struct reader *r = arg;
	uint64_t route[16];

	rcu_reader_register();
	while (!atomic_load_explicit(&r->stop, memory_order_relaxed)) {
		const uint32_t n = routes_seen(r->f, r->uid, route);
		bool found = false;

		for (uint32_t i = 0; i < n; i++)
			found |= route[i] == r->kept;
		r->missed += !found;
		r->rounds++;
		(void)presence_gateway_of(&r->f->view, 2, r->rounds % 1000);
		rcu_reader_quiescent();
	}
	rcu_reader_unregister();
	return NULL;
}

CONTROL_ONLY static void a_session_that_stays_open_is_never_missed(void **state)
{
	struct fixture *f = fixture_new(100, 16, 1 << 16);
	const uint32_t g = (uint32_t)gateway_up(f, 1, 1, 1);
	struct reader r = {.f = f, .kept = route_word(g, 7, 1)};
	uint32_t gen = 1, seed = 5;
	pthread_t thread;

	(void)state;
	// The kept session comes second, so that it is promoted to the word again and again.
	assert_int_equal(presence_session_open(f->p, g, 6, 1, uid_of(f, 1), 1), 0);
	assert_int_equal(presence_session_open(f->p, g, 7, 1, uid_of(f, 1), 1), 0);
	r.uid = presence_uid_find(f->p, uid_of(f, 1));
	assert_int_equal(pthread_create(&thread, NULL, reader_main, &r), 0);
	for (uint32_t i = 0; i < CHANGES; i++) {
		const uint32_t slot = 100 + (seed = seed * 1664525 + 1013904223) / 64 % 3;
		uint32_t use, ended;

		(void)presence_session_close(f->p, g, 6, gen, uid_of(f, 1), 1);
		if (i % 3 == 0)
			(void)presence_session_open(f->p, g, slot + i % 5000, i, uid_of(f, 1), 1);
		if (i % 3 == 1)
			(void)presence_session_open(f->p, g, 6, ++gen, uid_of(f, 1), 1);
		if (i % 64 == 0) {
			const int h = gateway_up(f, 2, i, 1);

			if (h > 0)
				(void)presence_session_open(
					f->p, (uint32_t)h, 1, 1, uid_of(f, 1), 1);
			while ((ended = presence_gateway_ended(f->p, &use)) != 0)
				presence_gateway_ended_done(f->p, ended);
		}
		for (uint32_t k = 0; i % 50 == 0 && k < 3; k++)
			for (uint32_t s = 100; s < 5103; s++) {
				_Atomic uint64_t *cell = NULL;
				struct slot_dir *dir = atomic_load(&f->p->control[g].dir);

				if (s / SLOT_BLOCK < dir->blocks &&
					dir->block[s / SLOT_BLOCK] != NULL)
					cell = &dir->block[s / SLOT_BLOCK]->slot[s % SLOT_BLOCK];
				if (cell != NULL && (*cell & SLOT_OPEN) != 0)
					presence_slot_end(f->p, g, cell);
			}
		presence_step(f->p, 64, i);
		if (i % 16 == 0)
			rcu_reclaim(&f->retire);
	}
	atomic_store(&r.stop, true);
	pthread_join(thread, NULL);
	assert_true(r.rounds > 0);
	assert_int_equal(r.missed, 0);
	fixture_free(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_session_that_stays_open_is_never_missed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
