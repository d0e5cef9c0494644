/* SPDX-License-Identifier: BSD-3-Clause */
// Owns the threads and their queues. Submitted to by the loop; jobs come back by one uv_async.
#include "meta_pool.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

struct lane {
	uv_thread_t thread;
	bool started;
	struct meta_pool *pool;
	struct meta_job *first, *last;  // guarded by pool->lock
};

struct meta_pool {
	uv_mutex_t lock;
	uv_cond_t wake;
	bool stopping;  // guarded by lock
	struct meta_job *done_first, *done_last;  // guarded by lock
	struct lane lane[META_LANES];
	uv_async_t async;  // closed with the loop
	unsigned pending;  // loop
};

static void append(struct meta_job **first, struct meta_job **last, struct meta_job *job)
{
	job->next = NULL;
	if (*first == NULL)
		*first = job;
	else
		(*last)->next = job;
	*last = job;
}

static void lane_run(void *arg)
{
	struct lane *lane = arg;
	struct meta_pool *pool = lane->pool;

	uv_mutex_lock(&pool->lock);
	for (;;) {
		struct meta_job *job = lane->first;

		if (job == NULL) {
			if (pool->stopping)
				break;
			uv_cond_wait(&pool->wake, &pool->lock);
			continue;
		}
		lane->first = job->next;
		uv_mutex_unlock(&pool->lock);
		job->run(job);
		uv_mutex_lock(&pool->lock);
		append(&pool->done_first, &pool->done_last, job);
		uv_async_send(&pool->async);
	}
	uv_mutex_unlock(&pool->lock);
}

static void finish_jobs(struct meta_pool *pool)
{
	struct meta_job *job, *next;

	uv_mutex_lock(&pool->lock);
	job = pool->done_first;
	pool->done_first = pool->done_last = NULL;
	uv_mutex_unlock(&pool->lock);
	for (; job != NULL; job = next) {
		next = job->next;
		pool->pending--;
		job->done(job);
	}
}

static void on_async(uv_async_t *async)
{
	finish_jobs(async->data);
}

int meta_pool_create(uv_loop_t *loop, struct meta_pool **out)
{
	struct meta_pool *pool = calloc(1, sizeof(*pool));
	int rc;

	if (pool == NULL)
		return -ENOMEM;
	rc = uv_mutex_init(&pool->lock);
	if (rc == 0)
		rc = uv_cond_init(&pool->wake);
	if (rc == 0)
		rc = uv_async_init(loop, &pool->async, on_async);
	if (rc != 0) {
		free(pool);
		return rc;
	}
	pool->async.data = pool;
	*out = pool;
	for (int i = 0; i < META_LANES; i++) {
		pool->lane[i].pool = pool;
		rc = uv_thread_create(&pool->lane[i].thread, lane_run, &pool->lane[i]);
		if (rc != 0)
			return rc;
		pool->lane[i].started = true;
	}
	return 0;
}

void meta_pool_stop(struct meta_pool *pool)
{
	if (pool == NULL)
		return;
	uv_mutex_lock(&pool->lock);
	pool->stopping = true;
	uv_cond_broadcast(&pool->wake);
	uv_mutex_unlock(&pool->lock);
	for (int i = 0; i < META_LANES; i++)
		if (pool->lane[i].started) {
			uv_thread_join(&pool->lane[i].thread);
			pool->lane[i].started = false;
		}
	finish_jobs(pool);
}

void meta_pool_submit(struct meta_pool *pool, enum meta_lane lane, struct meta_job *job)
{
	pool->pending++;
	uv_mutex_lock(&pool->lock);
	append(&pool->lane[lane].first, &pool->lane[lane].last, job);
	uv_cond_broadcast(&pool->wake);
	uv_mutex_unlock(&pool->lock);
}

unsigned meta_pool_pending(const struct meta_pool *pool)
{
	return pool == NULL ? 0 : pool->pending;
}
