/* SPDX-License-Identifier: BSD-3-Clause */
// The thread around a worker: turn after turn, back off when idle, sleep on the port. Owns nothing but the
// sleeping flag. Runs on the worker's lcore.
#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "app.h"
#include "base_log.h"
#include "base_rcu.h"
#include "base_time.h"

#define IDLE_TURNS 32u  // empty turns before a sleep
#define SLEEP_MAX_NS (100 * NS_PER_MS)  // a sleeper looks up this often, whatever happens

static void relax(void)
{
	__builtin_ia32_pause();
}

// Sleeps until the port or another thread has something, or the worker's next timer. The flag is set
// before the last look, and app_wake looks at it behind a full barrier: one of the two sees the other.
static void sleep_a_while(struct app_worker *w, struct node_worker *worker) WORKER_ONLY
{
	atomic_store_explicit(&w->sleeping, true, memory_order_relaxed);
	atomic_thread_fence(memory_order_seq_cst);

	uint64_t now = time_now_ns();

	if (node_worker_turn(worker, now) == 0) {
		const uint64_t next = node_worker_next_ns(worker);

		if (next > now) {
			const uint64_t left = next - now;

			rcu_reader_offline();
			port_idle_wait(
				w->app->port, w->index, left < SLEEP_MAX_NS ? left : SLEEP_MAX_NS);
			rcu_reader_online();
		}
	}
	atomic_store_explicit(&w->sleeping, false, memory_order_relaxed);
}

static int worker_main(void *arg)
{
	struct app_worker *w = arg;
	struct node_worker *worker = node_worker_of(w->app->node, w->index);
	const bool adaptive = w->app->conf.workers.idle == CONF_IDLE_ADAPTIVE;
	uint32_t idle = 0;
	uint64_t now = time_now_ns();

	role_take_worker();
	rcu_reader_register();
	while (!atomic_load_explicit(&w->app->stop, memory_order_relaxed)) {
		const uint32_t work = node_worker_turn(worker, now);
		const uint64_t end = time_now_ns();

		// One clock read a turn: the end of this one is the start of the next.
		node_worker_turn_took(worker, end - now);
		now = end;
		if (work != 0) {
			idle = 0;
		} else if (++idle < IDLE_TURNS || !adaptive) {
			relax();
		} else {
			sleep_a_while(w, worker);
			idle = IDLE_TURNS - 4;
			now = time_now_ns();
		}
	}
	rcu_reader_unregister();
	role_drop_worker();
	return 0;
}

int app_workers_start(struct app *app)
{
	for (uint32_t w = 0; w < app->conf.workers.count; w++) {
		app->worker[w].app = app;
		app->worker[w].index = w;
		const int rc = port_worker_launch(w, worker_main, &app->worker[w]);

		if (rc != 0) {
			LOG(LOG_ERROR, "worker", "E1501", "worker %u does not start", w);
			app_workers_stop(app);
			return rc;
		}
		app->worker[w].launched = true;
	}
	return 0;
}

void app_workers_stop(struct app *app)
{
	atomic_store(&app->stop, true);
	for (uint32_t w = 0; w < app->conf.workers.count; w++)
		if (app->worker[w].launched)
			port_wake(app->port, w);
	port_workers_wait();
	for (uint32_t w = 0; w < app->conf.workers.count; w++)
		app->worker[w].launched = false;
}

void app_wake(void *arg, uint32_t who)
{
	struct app *app = arg;
	const uint64_t one = 1;

	atomic_thread_fence(memory_order_seq_cst);
	if (who == WORKERS_MAX) {
		if (atomic_exchange_explicit(&app->control_sleeping, false, memory_order_relaxed) &&
			write(app->wake_fd, &one, sizeof(one)) < 0 && errno != EAGAIN)
			return;  // the control core looks up by itself within a millisecond or so
		return;
	}
	if (atomic_load_explicit(&app->worker[who].sleeping, memory_order_relaxed))
		port_wake(app->port, who);
}
