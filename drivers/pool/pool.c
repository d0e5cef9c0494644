/* SPDX-License-Identifier: BSD-3-Clause */
// The threads of a pool: poll, share what is left with a sleeper, sleep. Each thread owns its worker index.
#include "pool.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

struct pool_thread {
	struct pool *pool;
	uint32_t index;
	pthread_t id;
};

struct pool {
	struct wq *queue;
	uint32_t threads;
	_Atomic uint32_t running;  // also the word to sleep on
	struct pool_thread thread[];
};

static void *work(void *arg)
{
	const struct pool_thread *t = arg;
	struct pool *pool = t->pool;
	const struct wq_ops *ops = pool_wq_ops();
	struct wq *queue = pool->queue;

	do {
		while (wq_poll(queue, t->index) != 0)
			wq_share(queue);
	} while (wq_idle(queue));
	atomic_fetch_sub(&pool->running, 1);
	ops->wake(&pool->running, 1);
	return NULL;
}

// Signals are for the thread that asked for them.
static int start(struct pool_thread *t, const char *name)
{
	sigset_t all, old;
	char short_name[16] = "";
	int rc;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = pthread_create(&t->id, NULL, work, t);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (rc != 0)
		return -rc;
	for (uint32_t i = 0; i < sizeof(short_name) - 1 && name[i] != '\0'; i++)
		short_name[i] = name[i];
	pthread_setname_np(t->id, short_name);
	return 0;
}

int pool_create(struct wq *queue, const char *name, struct pool **pool)
{
	struct pool *p;
	int rc = 0;

	*pool = NULL;
	if (queue->params.ops == NULL)
		return -EINVAL;
	p = calloc(1, sizeof(*p) + queue->workers * sizeof(p->thread[0]));
	if (p == NULL)
		return -ENOMEM;
	p->queue = queue;
	while (rc == 0 && p->threads < queue->workers) {
		struct pool_thread *t = &p->thread[p->threads];

		t->pool = p;
		t->index = p->threads;
		atomic_fetch_add(&p->running, 1);
		rc = start(t, name);
		if (rc == 0)
			p->threads++;
		else
			atomic_fetch_sub(&p->running, 1);
	}
	if (rc != 0) {
		// Half a pool is none; nothing was submitted yet, so they end at once.
		wq_shut(queue);
		pool_join(p, UINT64_MAX);
		return rc;
	}
	*pool = p;
	return 0;
}

int pool_join(struct pool *pool, uint64_t deadline_ns)
{
	const struct wq_ops *ops = pool_wq_ops();
	uint32_t left;

	while ((left = atomic_load(&pool->running)) != 0) {
		if (ops->now_ns() >= deadline_ns)
			return -ETIMEDOUT;
		ops->wait(&pool->running, left, deadline_ns);
	}
	// Each has said its last word.
	for (uint32_t i = 0; i < pool->threads; i++)
		pthread_join(pool->thread[i].id, NULL);
	free(pool);
	return 0;
}
