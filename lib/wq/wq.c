/* SPDX-License-Identifier: BSD-3-Clause */
// Memory, sleeping callers and the end of a queue; the path of the workers is inline in wq.h. Control side,
// but for the functions that wq.h calls.
//
// Sleepers and wakers pass each other by a flag and a word (one of the two sees the other):
//   a worker:  sleepers + 1 | barrier | tail = head?   a submitter: moves the tail | barrier | sleepers?
//   a waiter:  waiters + 1  | barrier | no room?       a worker:    moves the head | barrier | waiters?
// The locked instruction that moves tail or head is the barrier; a side with one thread has none, and there
// the sleeper has every thread pass one (fence_all). What is claimed and not copied yet is looked at again
// after a nap.
#include "wq.h"

#include <stdlib.h>

#define US UINT64_C(1000)  // ns
#define NAP_NS (200 * US)  // a submitter or worker is in the middle of its copy
#define LOOK_NS (1000 * US)  // nobody wakes: quiet workers, and the end of a queue
#define SLEEP_NS (100000 * US)  // somebody wakes; a sleeper looks up all the same

_Thread_local char wq_thread;

// --- memory -------------------------------------------------------------------------------------------

static void *zeroed(size_t bytes)
{
	const size_t rounded = (bytes + 63) & ~(size_t)63;
	void *p = aligned_alloc(64, rounded);

	// Every page is touched now: no page fault later.
	if (p != NULL)
		memset(p, 0, rounded);
	return p;
}

static bool valid(const struct wq_params *p)
{
	return p->capacity >= 2 && p->capacity <= WQ_CAPACITY_MAX &&
	       (p->capacity & (p->capacity - 1)) == 0 && p->item_bytes >= 1 &&
	       p->item_bytes <= WQ_ITEM_BYTES_MAX && p->workers >= 1 &&
	       p->workers <= WQ_WORKERS_MAX && p->batch >= 1 && p->batch <= WQ_BATCH_MAX &&
	       p->timed_every <= WQ_TIMED_EVERY_MAX &&
	       (p->timed_every & (p->timed_every - 1)) == 0 && p->run != NULL &&
	       p->label < WQ_LABEL_COUNT &&
	       (p->ops == NULL ||
		       (p->ops->now_ns != NULL && p->ops->wait != NULL && p->ops->wake != NULL));
}

static void release(struct wq *q)
{
	for (uint32_t w = 0; q->worker != NULL && w < q->workers; w++)
		free(q->worker[w].items);
	free(q->worker);
	free(q->slots);
	free(q->stamps);
	free(q);
}

int wq_create(const struct wq_params *params, struct wq **queue)
{
	struct wq *q;
	bool bad;

	*queue = NULL;
	if (!valid(params))
		return -EINVAL;
	q = zeroed(sizeof(*q));
	if (q == NULL)
		return -ENOMEM;
	q->params = *params;
	q->mask = params->capacity - 1;
	q->item_bytes = params->item_bytes;
	q->stride = (8 + params->item_bytes + 7) & ~7u;
	q->batch = params->batch < params->capacity ? params->batch : params->capacity;
	q->workers = params->workers;
	q->one_submitter = params->one_submitter;
	q->one_worker = params->workers == 1;
	q->quiet_workers = params->quiet_workers;
	q->self_fence = params->ops == NULL || params->ops->fence_all == NULL;
	q->deadline_ns = UINT64_MAX;
	q->slots = zeroed((size_t)params->capacity * q->stride);
	q->timed_mask = (params->timed_every == 0 ? WQ_TIMED_EVERY : params->timed_every) - 1;
	q->stamps = zeroed((params->capacity / (q->timed_mask + 1) + 1) * sizeof(*q->stamps));
	q->worker = zeroed(params->workers * sizeof(*q->worker));
	bad = q->slots == NULL || q->stamps == NULL || q->worker == NULL;
	for (uint32_t w = 0; !bad && w < q->workers; w++) {
		q->worker[w].items = zeroed((size_t)q->batch * q->item_bytes);
		bad = q->worker[w].items == NULL;
	}
	if (bad) {
		release(q);
		return -ENOMEM;
	}
	for (uint64_t pos = 0; pos < params->capacity; pos++)
		atomic_init(wq_number(wq_slot(q, pos)), pos);
	*queue = q;
	return 0;
}

// --- what the worker path calls now and then ------------------------------------------------------------

static uint64_t *stamp_of(struct wq *q, uint64_t pos)
{
	return &q->stamps[(pos & q->mask) / (q->timed_mask + 1)];
}

// Timed positions that are in the ring together have stamps apart.
void wq_stamp(struct wq *q, uint64_t pos, uint32_t n)
{
	const uint64_t now_ns = q->params.ops != NULL ? q->params.ops->now_ns() : 0;

	for (uint64_t at = (pos + q->timed_mask) & ~q->timed_mask; at < pos + n;
		at += q->timed_mask + 1)
		*stamp_of(q, at) = now_ns;
}

void wq_time_wait(struct wq *q, uint64_t pos, uint64_t now_ns)
{
	const uint64_t then_ns = *stamp_of(q, pos);

	wq_hist_add(&q->wait, now_ns > then_ns ? now_ns - then_ns : 0);
}

static void wake(struct wq *q, _Atomic uint32_t *word, uint32_t sleepers)
{
	atomic_fetch_add_explicit(word, 1, memory_order_seq_cst);
	if (q->params.ops != NULL)
		q->params.ops->wake(word, sleepers);
}

// One wake-up is under way at a time: submitters behind it save the system call. A worker clears the flag and
// then looks, on its way in and on its way out of sleep, so it sees what they published.
void wq_wake_worker(struct wq *q)
{
	if (atomic_exchange_explicit(&q->wake_pending, 1, memory_order_seq_cst) == 0)
		wake(q, &q->items_word, 1);
}

void wq_wake_waiters(struct wq *q, uint32_t n)
{
	wake(q, &q->room_word, n);
}

// --- positions ----------------------------------------------------------------------------------------

static uint64_t tail_of(const struct wq *q)
{
	return atomic_load_explicit(&q->tail, memory_order_seq_cst) & ~WQ_CLOSED;
}

static uint64_t head_of(const struct wq *q)
{
	return atomic_load_explicit(&q->head, memory_order_seq_cst);
}

// Admission is over and every admitted item has left the ring.
static bool is_empty(const struct wq *q)
{
	return atomic_load_explicit(&q->sealed, memory_order_seq_cst) != 0 &&
	       atomic_load_explicit(&q->submitting, memory_order_acquire) == 0 &&
	       tail_of(q) == head_of(q);
}

static bool is_canceled(const struct wq *q)
{
	return atomic_load_explicit(&q->canceled, memory_order_seq_cst) != 0;
}

static void fence_all(const struct wq *q)
{
	if (q->self_fence)
		atomic_thread_fence(memory_order_seq_cst);
	else
		q->params.ops->fence_all();
}

uint32_t wq_depth(const struct wq *q)
{
	uint64_t head = head_of(q), tail, again;

	// The head did not move, so the tail was read at a moment when it stood there.
	for (uint32_t tries = 0; tries < 64; tries++) {
		tail = tail_of(q);
		again = head_of(q);
		if (again == head)
			return (uint32_t)(tail - head);
		head = again;
	}
	// Workers are faster than we look: they take, so there is little; never more than fits.
	return tail > head ? (uint32_t)(tail - head) : 0;
}

static uint32_t busy_workers(const struct wq *q)
{
	uint32_t busy = 0;

	for (uint32_t w = 0; w < q->workers; w++)
		busy += atomic_load_explicit(&q->worker[w].state, memory_order_acquire) > WQ_TAKING;
	return busy;
}

static bool all_idle(const struct wq *q)
{
	for (uint32_t w = 0; w < q->workers; w++)
		if (atomic_load_explicit(&q->worker[w].state, memory_order_acquire) != WQ_IDLE)
			return false;
	return true;
}

// The calling thread is inside of a handler or of on_abandon of this queue.
static bool inside(const struct wq *q)
{
	for (uint32_t w = 0; w < q->workers; w++)
		if (atomic_load_explicit(&q->worker[w].state, memory_order_relaxed) == wq_self())
			return true;
	return atomic_load_explicit(&q->abandoner, memory_order_relaxed) == wq_self();
}

// --- callers that sleep ---------------------------------------------------------------------------------

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

// Sleeps until there may be room. `seen`: room_word from before the last try.
static void wait_room(struct wq *q, uint32_t seen, uint64_t now_ns, uint64_t deadline_ns)
{
	const bool full = tail_of(q) - head_of(q) > q->mask;
	const uint64_t most = !full ? NAP_NS : q->quiet_workers ? LOOK_NS : SLEEP_NS;

	q->params.ops->wait(&q->room_word, seen, earlier(deadline_ns, now_ns + most));
}

static int wait_and_submit(
	struct wq *q, const void *item, uint64_t deadline_ns, const _Atomic uint32_t *cancel)
{
	int rc;

	for (;;) {
		const uint32_t seen = atomic_load_explicit(&q->room_word, memory_order_seq_cst);
		const uint64_t now_ns = q->params.ops->now_ns();

		if (cancel != NULL && atomic_load_explicit(cancel, memory_order_seq_cst) != 0)
			return -ECANCELED;
		rc = wq_try(q, item, 1);
		if (rc != -ENOBUFS)
			return rc < 0 ? rc : 0;
		if (now_ns >= deadline_ns)
			return -ETIMEDOUT;
		if (inside(q))
			return -EDEADLK;
		wait_room(q, seen, now_ns, deadline_ns);
	}
}

int wq_submit_wait(
	struct wq *q, const void *item, uint64_t deadline_ns, const _Atomic uint32_t *cancel)
{
	int rc;

	if (q->params.ops == NULL)
		return -EINVAL;
	if (cancel == NULL || atomic_load_explicit(cancel, memory_order_seq_cst) == 0) {
		rc = wq_try(q, item, 1);
		if (rc > 0)
			return 0;
	}
	atomic_fetch_add_explicit(&q->waiters, 1, memory_order_seq_cst);
	if (q->one_worker)
		fence_all(q);
	rc = wait_and_submit(q, item, deadline_ns, cancel);
	atomic_fetch_sub_explicit(&q->waiters, 1, memory_order_seq_cst);
	if (rc == 0)
		return 0;
	// The wake-up that this caller was given, and does not need, is somebody else's.
	wake(q, &q->room_word, 1);
	wq_reject(q, rc == -ESHUTDOWN   ? WQ_REJECT_CLOSED
		     : rc == -ECANCELED ? WQ_REJECT_CANCELED
		     : rc == -ETIMEDOUT ? WQ_REJECT_TIMEOUT
					: WQ_REJECT_FULL);
	return rc;
}

void wq_cancel(struct wq *q, _Atomic uint32_t *cancel)
{
	atomic_store_explicit(cancel, 1, memory_order_seq_cst);
	wake(q, &q->room_word, UINT32_MAX);
}

// What a worker finds: something to take, nothing yet, or the end.
static bool look_for_items(struct wq *q, uint32_t seen)
{
	const uint64_t head = head_of(q);
	const uint64_t now_ns = q->params.ops->now_ns();

	if (wq_scan(q, head, 1, 1) != 0)
		return true;
	if (tail_of(q) != head) {
		q->params.ops->wait(&q->items_word, seen, now_ns + NAP_NS);
		return true;
	}
	if (is_empty(q))
		return false;
	q->params.ops->wait(&q->items_word, seen, now_ns + SLEEP_NS);
	return true;
}

bool wq_idle(struct wq *q)
{
	uint32_t seen;
	bool more;

	if (is_canceled(q))
		return false;
	atomic_fetch_add_explicit(&q->sleepers, 1, memory_order_seq_cst);
	if (q->one_submitter)
		fence_all(q);
	// In this order: a wake-up that is begun after the flag is cleared changes the word that was seen.
	seen = atomic_load_explicit(&q->items_word, memory_order_seq_cst);
	atomic_exchange_explicit(&q->wake_pending, 0, memory_order_seq_cst);
	more = look_for_items(q, seen);
	atomic_fetch_sub_explicit(&q->sleepers, 1, memory_order_seq_cst);
	atomic_exchange_explicit(&q->wake_pending, 0, memory_order_seq_cst);
	return more && !is_canceled(q);
}

void wq_share(struct wq *q)
{
	if (atomic_load_explicit(&q->sleepers, memory_order_seq_cst) != 0 &&
		tail_of(q) != head_of(q))
		wq_wake_worker(q);
}

// --- the end --------------------------------------------------------------------------------------------

void wq_shut(struct wq *q)
{
	// Who comes second need not wait here: `sealed` says when the first is through.
	if (q->one_submitter) {
		if (atomic_exchange_explicit(&q->shut, 1, memory_order_seq_cst) != 0)
			return;
		fence_all(q);  // pairs with wq_light_fence in wq_claim_one
	} else if (atomic_fetch_or_explicit(&q->tail, WQ_CLOSED, memory_order_seq_cst) &
		   WQ_CLOSED) {
		return;
	}
	atomic_store_explicit(&q->sealed, 1, memory_order_seq_cst);
	wake(q, &q->items_word, UINT32_MAX);
	wake(q, &q->room_word, UINT32_MAX);
}

bool wq_drained(const struct wq *q)
{
	return is_empty(q) && all_idle(q);
}

static void abandon(struct wq *q, uint64_t pos)
{
	uint8_t *slot = wq_slot(q, pos);

	atomic_store_explicit(&q->abandoner, wq_self(), memory_order_relaxed);
	if (q->params.on_abandon != NULL)
		q->params.on_abandon(q->params.ctx, slot + 8);
	atomic_store_explicit(&q->abandoner, WQ_IDLE, memory_order_relaxed);
	atomic_store_explicit(wq_number(slot), pos + q->mask + 1, memory_order_release);
	atomic_fetch_add_explicit(&q->abandoned, 1, memory_order_relaxed);
}

bool wq_abandon(struct wq *q, uint64_t *count)
{
	uint64_t head;

	wq_shut(q);
	if (atomic_exchange_explicit(&q->canceled, 1, memory_order_seq_cst) == 0) {
		if (q->one_worker)
			fence_all(q);  // pairs with wq_light_fence in wq_take_one
		wake(q, &q->items_word, UINT32_MAX);
	}
	if (q->one_worker &&
		atomic_load_explicit(&q->worker[0].state, memory_order_acquire) == WQ_TAKING)
		return false;
	head = head_of(q);
	for (;;) {
		if (wq_scan(q, head, 1, 1) == 0) {
			const uint64_t now = head_of(q);

			if (now == head)
				return is_empty(q);
			head = now;
			continue;
		}
		// Other workers may still take one; with one worker the head is ours by now.
		if (!atomic_compare_exchange_strong_explicit(
			    &q->head, &head, head + 1, memory_order_seq_cst, memory_order_seq_cst))
			continue;
		abandon(q, head);
		++*count;
		head++;
	}
}

// Sleeps until `done` may have become true.
static void end_nap(struct wq *q, uint32_t seen, uint64_t until_ns)
{
	const uint64_t now_ns = q->params.ops->now_ns();

	if (now_ns < until_ns)
		q->params.ops->wait(&q->end_word, seen, earlier(until_ns, now_ns + LOOK_NS));
}

static void end(struct wq *q, uint64_t *count)
{
	int rc = 0;

	while (!wq_drained(q)) {
		const uint64_t deadline_ns =
			atomic_load_explicit(&q->deadline_ns, memory_order_seq_cst);

		if (q->params.ops->now_ns() >= deadline_ns) {
			rc = -ETIMEDOUT;
			break;
		}
		end_nap(q, atomic_load_explicit(&q->end_word, memory_order_seq_cst), deadline_ns);
	}
	while (rc != 0 && !wq_abandon(q, count))
		end_nap(q, atomic_load_explicit(&q->end_word, memory_order_seq_cst), UINT64_MAX);
	q->close_rc = rc;
	atomic_store_explicit(&q->close_state, WQ_ENDED, memory_order_release);
	wake(q, &q->end_word, UINT32_MAX);
}

static void bring_forward(struct wq *q, uint64_t deadline_ns)
{
	uint64_t old = atomic_load_explicit(&q->deadline_ns, memory_order_relaxed);

	while (deadline_ns < old &&
		!atomic_compare_exchange_weak_explicit(&q->deadline_ns, &old, deadline_ns,
			memory_order_seq_cst, memory_order_relaxed))
		;
	wake(q, &q->end_word, UINT32_MAX);
}

int wq_close(struct wq *q, uint64_t deadline_ns, uint64_t *abandoned)
{
	uint32_t open = WQ_OPEN;
	uint64_t count = 0;

	if (q->params.ops == NULL)
		return -EINVAL;
	wq_shut(q);
	if (inside(q))
		return -EDEADLK;
	bring_forward(q, deadline_ns);
	if (atomic_compare_exchange_strong_explicit(
		    &q->close_state, &open, WQ_CLOSING, memory_order_seq_cst, memory_order_seq_cst))
		end(q, &count);
	for (;;) {
		const uint32_t seen = atomic_load_explicit(&q->end_word, memory_order_seq_cst);

		if (atomic_load_explicit(&q->close_state, memory_order_acquire) == WQ_ENDED)
			break;
		end_nap(q, seen, UINT64_MAX);
	}
	if (abandoned != NULL)
		*abandoned = atomic_load_explicit(&q->abandoned, memory_order_relaxed);
	return q->close_rc;
}

int wq_destroy(struct wq *q)
{
	if (q == NULL)
		return 0;
	if (!all_idle(q) || tail_of(q) != head_of(q))
		return -EBUSY;
	release(q);
	return 0;
}

// --- counters -------------------------------------------------------------------------------------------

void wq_stats(const struct wq *q, struct wq_sample *sample)
{
	const uint64_t head = head_of(q);

	*sample = (struct wq_sample){
		.label = q->params.label,
		.depth = wq_depth(q),
		.capacity = q->params.capacity,
		.busy = busy_workers(q),
		.workers = q->workers,
		.admitted = tail_of(q),
		.abandoned = atomic_load_explicit(&q->abandoned, memory_order_relaxed),
	};
	for (uint32_t w = 0; w < q->workers; w++) {
		sample->run += atomic_load_explicit(&q->worker[w].runs, memory_order_relaxed);
		sample->failed += atomic_load_explicit(&q->worker[w].failed, memory_order_relaxed);
	}
	if (sample->admitted < head)
		sample->admitted = head;
	for (uint32_t i = 0; i < WQ_REJECT_COUNT; i++)
		sample->rejected[i] = atomic_load_explicit(&q->rejected[i], memory_order_relaxed);
	wq_hist_read(&q->wait, &sample->wait);
	wq_hist_read(&q->run, &sample->times);
}
