/* SPDX-License-Identifier: BSD-3-Clause */
// The poll turn of a worker. Worker; nothing here or below it allocates, locks, logs or calls the system.
#include "node_pvt.h"

#define TICK_MAX 512u  // timer actions of one turn
#define NS_FRAMES_POLL UINT64_C(100000000)  // incomplete frames are looked at this often at least

static void bump(_Atomic uint64_t *v, uint64_t n)
{
	atomic_store_explicit(
		v, atomic_load_explicit(v, memory_order_relaxed) + n, memory_order_relaxed);
}

uint32_t node_worker_turn(struct node_worker *worker, uint64_t now_ns)
{
	struct node_worker *w = worker;
	uint32_t work, expired;

	w->now_ns = now_ns;
	work = node_rx_port(w);
	work += node_rx_handed(w);
	node_rx_admit(w);
	work += node_rx_replies(w);
	expired = wire_reassembly_expire(w->frames, now_ns);
	if (expired != 0)
		counter_add(w->counters, CTR_DROP_REASSEMBLY_TIMEOUT, expired);
	work += delivery_tick(w->delivery, now_ns, TICK_MAX);
	work += fanout_run(w->fanout, now_ns);
	fanout_flush(w->fanout, now_ns);
	node_tx_flush(w);
	atomic_store_explicit(
		&w->frames_incomplete, wire_reassembly_pending(w->frames), memory_order_relaxed);
	rcu_reader_quiescent();
	node_tx_wake(w);
	bump(&w->turns, 1);
	if (work != 0)
		bump(&w->busy_turns, 1);
	return work;
}

void node_worker_turn_took(struct node_worker *worker, uint64_t ns)
{
	if (ns > atomic_load_explicit(&worker->turn_max_ns, memory_order_relaxed))
		atomic_store_explicit(&worker->turn_max_ns, ns, memory_order_relaxed);
}

uint64_t node_worker_next_ns(const struct node_worker *worker)
{
	const uint64_t fanout = fanout_next_ns(worker->fanout);
	const uint64_t delivery = delivery_next_ns(worker->delivery);
	uint64_t next = fanout < delivery ? fanout : delivery;

	if (wire_reassembly_pending(worker->frames) != 0 && next > worker->now_ns + NS_FRAMES_POLL)
		next = worker->now_ns + NS_FRAMES_POLL;
	return next;
}
