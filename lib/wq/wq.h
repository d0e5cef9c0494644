/* SPDX-License-Identifier: BSD-3-Clause */
// The bounded worker queue: fixed-size values copied into a ring of numbered slots, taken out by workers
// that run a handler on them. One set of semantics; how many threads submit and how many take decides which
// side needs a locked instruction (struct wq_params). No lock anywhere: a thread that is stopped at any
// instruction holds at most the slots it has claimed, and nobody spins for it.
//
//   wq_submit         never blocks: 0, -ENOBUFS (full), -ESHUTDOWN (closed)
//   wq_submit_burst   the same for several; tells how many were admitted
//   wq_submit_wait    control side: until room, deadline (-ETIMEDOUT), cancel (-ECANCELED), close (-ESHUTDOWN)
//   wq_poll           a worker: takes up to `batch` items and runs the handler on them
//   wq_close          admission ends at once; what was admitted is run until the deadline, then abandoned
//
// An admitted item is run once, or after the deadline of wq_close abandoned once; never both, never lost.
// Items of one submitting thread are taken in its order. Ends are final: a closed queue does not open again.
//
// A slot carries the number of the position it stands for: `pos` free for it, `pos + 1` holds its item; a
// worker that took it out leaves `pos + capacity`. So a submitter and a worker meet at the slot only, and
// a slot is free again as soon as its item is copied out, before the handler runs.
// Pairing: the release store of a slot's number (publish, free) pairs with the acquire load in scan_*.
#pragma once

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "wq_stats.h"

#define WQ_CAPACITY_MAX (1u << 24)  // items
#define WQ_ITEM_BYTES_MAX 65536u
#define WQ_WORKERS_MAX 64u
#define WQ_BATCH_MAX 64u  // items of one call of the handler, and of one burst
#define WQ_TIMED_EVERY 256u  // one item of so many is timed, unless told otherwise
#define WQ_TIMED_EVERY_MAX 65536u
#define WQ_CLOSED (UINT64_C(1) << 63)  // in `tail`: admission is shut

// What a queue needs of the system for calls that block and for times; drivers/pool has one over futexes.
struct wq_ops {
	uint64_t (*now_ns)(void);
	// Sleeps while *word is `expected`, at most until `until_ns`; may return early.
	void (*wait)(_Atomic uint32_t *word, uint32_t expected, uint64_t until_ns);
	void (*wake)(_Atomic uint32_t *word, uint32_t sleepers);
	// A full memory barrier in every thread of the process, or NULL: then a side that has one thread
	// pays a barrier of its own for each call.
	void (*fence_all)(void);
};

struct wq_params {
	enum wq_label label;  // what it is in the monitor
	uint32_t capacity;  // items, a power of two, 2..WQ_CAPACITY_MAX
	uint32_t
		item_bytes;  // 1..WQ_ITEM_BYTES_MAX; alignment up to 8 is kept when it is a multiple of 8
	uint32_t
		workers;  // threads that poll, 1..WQ_WORKERS_MAX; with 1 taking needs no locked instruction
	uint32_t batch;  // 1..WQ_BATCH_MAX; an item given to the handler counts as run
	uint32_t
		timed_every;  // a power of two up to WQ_TIMED_EVERY_MAX; 1 where items are few; 0: WQ_TIMED_EVERY
	bool one_submitter;  // at most one thread submits at a time: admission needs no locked instruction
	bool quiet_workers;  // workers wake nobody (no system call on a worker): waiters look up by time
	// Runs `n` items that stand one after the other. Context: the worker that polls; `ctx` is the
	// queue's. Returns: 0 or a negative errno, which is counted; the items are done either way.
	int (*run)(void *ctx, const void *items, uint32_t n);
	// Takes back an item that will not run. Context: the thread in wq_close. May be NULL.
	void (*on_abandon)(void *ctx, const void *item);
	void *ctx;
	const struct wq_ops *ops;  // NULL: wq_submit_wait, wq_close and wq_idle are not to be used
};

enum wq_close_state { WQ_OPEN, WQ_CLOSING, WQ_ENDED };

// One worker's own line: it writes, others read.
struct wq_worker {
	_Alignas(64) _Atomic uintptr_t
		state;  // WQ_IDLE, WQ_TAKING, or the thread that is in the handler
	_Atomic uint64_t runs, failed;  // items
	uint8_t *items;  // batch * item_bytes
};
#define WQ_IDLE ((uintptr_t)0)
#define WQ_TAKING ((uintptr_t)1)

struct wq {
	// all: ro after creation
	uint8_t *slots;
	uint64_t mask;
	uint32_t item_bytes, stride, batch, workers;
	bool one_submitter, one_worker, quiet_workers, self_fence;
	struct wq_worker *worker;
	uint64_t timed_mask;  // timed_every - 1
	uint64_t *stamps;  // when a sampled item was submitted; of the slot's owner
	struct wq_params params;
	// submitters: rw
	_Alignas(64) _Atomic uint64_t tail;  // next position; WQ_CLOSED
	_Atomic uint32_t submitting;  // one_submitter: inside of a submit
	// workers: rw
	_Alignas(64) _Atomic uint64_t head;  // next position to take
	// rarely written; read by every call
	_Alignas(64) _Atomic uint32_t sleepers;  // workers in wq_idle
	_Atomic uint32_t waiters;  // callers in wq_submit_wait
	_Atomic uint32_t
		shut;  // for one_submitter, whose plain stores could lose WQ_CLOSED in `tail`
	_Atomic uint32_t sealed;  // admission is shut and every submitter knows
	_Atomic uint32_t canceled;
	// words to sleep on, and what ends a queue
	_Alignas(64) _Atomic uint32_t items_word;
	_Atomic uint32_t room_word, end_word, wake_pending;
	_Atomic uint32_t close_state;  // enum wq_close_state
	_Atomic uint64_t deadline_ns;  // the earliest of all who close
	_Atomic uint64_t abandoned;
	_Atomic uintptr_t abandoner;  // thread that is in on_abandon
	int close_rc;  // written before WQ_ENDED
	// anybody: rw
	_Alignas(64) _Atomic uint64_t rejected[WQ_REJECT_COUNT];
	struct wq_hist wait, run;
};

// Makes a queue. Context: control side. Owns: memory until wq_destroy.
// Returns: 0, -EINVAL (bad config), -ENOMEM.
int wq_create(const struct wq_params *params, struct wq **queue);
// Frees it. Only after nobody calls anything on it again. Returns: 0; -EBUSY: a handler still runs, or
// admitted items are left.
int wq_destroy(struct wq *q);

// Context: any thread but a worker core; sleeps. `cancel`: a word of the caller, or NULL; wq_cancel ends
// the wait. An item that was admitted is not withdrawn by it. In a handler of the same queue it does not wait.
// Returns: 0; -ESHUTDOWN, -ECANCELED, -ETIMEDOUT, -EDEADLK (full, in a handler), -EINVAL (no ops).
int wq_submit_wait(
	struct wq *q, const void *item, uint64_t deadline_ns, const _Atomic uint32_t *cancel);
// Sets *cancel and ends the waits of those who gave it.
void wq_cancel(struct wq *q, _Atomic uint32_t *cancel);

// Ends the queue. Shuts admission, waits until every admitted item has been run, or for `deadline_ns`: then
// sets the cancel flag, gives each item left to on_abandon, and returns while handlers may still run. A
// second caller waits for the same end; the earliest deadline counts. A submitter that is between claim and
// copy is waited for beyond the deadline: it needs a few instructions. Context: as wq_submit_wait.
// Returns: 0; -ETIMEDOUT with the number given to on_abandon in *abandoned (may be NULL); -EDEADLK in a
// handler of this queue: admission is shut, but the end is waited for by somebody else; -EINVAL: no ops.
int wq_close(struct wq *q, uint64_t deadline_ns, uint64_t *abandoned);

// The parts of wq_close, for owners that poll and do not sleep. wq_shut: admission ends. wq_drained: true
// when shut and everything has been run. wq_abandon: sets the cancel flag and abandons what can be now, adding
// to *count. Returns: false when a submitter or worker stands in the middle of a copy: call again.
void wq_shut(struct wq *q);
bool wq_drained(const struct wq *q);
bool wq_abandon(struct wq *q, uint64_t *count);
// True for a handler that should stop early. Context: any.
static inline bool wq_canceled(const struct wq *q)
{
	return atomic_load_explicit(&q->canceled, memory_order_relaxed) != 0;
}

// A worker without work sleeps until there is some. Returns: false when nothing will ever come.
bool wq_idle(struct wq *q);
// After a poll that found work: wakes another sleeper when there is more.
void wq_share(struct wq *q);

// Fills in depth, counters and times. Context: any.
void wq_stats(const struct wq *q, struct wq_sample *sample);
// Admitted and not yet taken; one consistent moment, so never above the capacity. Context: any.
uint32_t wq_depth(const struct wq *q);

// Out of line, rare. For the functions below only.
void wq_stamp(struct wq *q, uint64_t pos, uint32_t n);
void wq_time_wait(struct wq *q, uint64_t pos, uint64_t now_ns);
void wq_wake_worker(struct wq *q);
void wq_wake_waiters(struct wq *q, uint32_t n);
extern _Thread_local char wq_thread __attribute__((visibility("hidden")));

// --- worker path --------------------------------------------------------------------------------------

static inline uint8_t *wq_slot(const struct wq *q, uint64_t pos)
{
	return q->slots + (pos & q->mask) * q->stride;
}

static inline _Atomic uint64_t *wq_number(uint8_t *slot)
{
	return (_Atomic uint64_t *)(void *)slot;
}

#define WQ_HOT static inline __attribute__((always_inline))
#define WQ_RARE(condition) __builtin_expect(!!(condition), 0)

// Names the calling thread. Never WQ_IDLE or WQ_TAKING.
static inline uintptr_t wq_self(void)
{
	return (uintptr_t)&wq_thread;
}

// The last timed position among n from `pos` on, if one is: else the answer is below `pos`.
static inline uint64_t wq_timed(const struct wq *q, uint64_t pos, uint32_t n)
{
	return (pos + n - 1) & ~q->timed_mask;
}

// Orders a store before the loads behind it against a thread that calls fence_all between its own.
static inline void wq_light_fence(const struct wq *q)
{
	if (q->self_fence)
		atomic_thread_fence(memory_order_seq_cst);
	else
		atomic_signal_fence(memory_order_seq_cst);
}

// Slots from `pos` on whose number is `pos + ahead`, at most n: 0 counts free ones, 1 full ones.
WQ_HOT uint32_t wq_scan(const struct wq *q, uint64_t pos, uint64_t ahead, uint32_t n)
{
	uint8_t *slot = wq_slot(q, pos);
	uint32_t k = 0;

	while (k < n &&
		atomic_load_explicit(wq_number(slot), memory_order_acquire) == pos + k + ahead) {
		k++;
		slot = ((pos + k) & q->mask) != 0 ? slot + q->stride : q->slots;
	}
	return k;
}

// Claims up to n positions. Returns: how many, or a negative errno; *pos: the first.
WQ_HOT int wq_claim_many(struct wq *q, uint32_t n, uint64_t *pos)
{
	uint64_t tail = atomic_load_explicit(&q->tail, memory_order_relaxed);

	for (;;) {
		if (WQ_RARE(tail & WQ_CLOSED))
			return -ESHUTDOWN;
		const uint32_t k = wq_scan(q, tail, 0, n);

		if (k == 0) {
			const uint64_t now = atomic_load_explicit(&q->tail, memory_order_relaxed);

			// A position that somebody else filled is behind the tail by now.
			if (now == tail)
				return -ENOBUFS;
			tail = now;
			continue;
		}
		// The full barrier stands before the look at `sleepers` in wq_publish.
		if (atomic_compare_exchange_weak_explicit(&q->tail, &tail, tail + k,
			    memory_order_seq_cst, memory_order_relaxed)) {
			*pos = tail;
			return (int)k;
		}
	}
}

WQ_HOT int wq_claim_one(struct wq *q, uint32_t n, uint64_t *pos)
{
	const uint64_t tail = atomic_load_explicit(&q->tail, memory_order_relaxed);
	uint32_t k;

	// wq_shut sets the flag, fences all, and waits for `submitting` to end: either this sees the flag,
	// or wq_shut sees this.
	atomic_store_explicit(&q->submitting, 1, memory_order_relaxed);
	wq_light_fence(q);
	if (atomic_load_explicit(&q->shut, memory_order_relaxed) != 0) {
		atomic_store_explicit(&q->submitting, 0, memory_order_release);
		return -ESHUTDOWN;
	}
	k = wq_scan(q, tail, 0, n);
	if (k == 0) {
		atomic_store_explicit(&q->submitting, 0, memory_order_release);
		return -ENOBUFS;
	}
	atomic_store_explicit(&q->tail, tail + k, memory_order_relaxed);
	*pos = tail;
	return (int)k;
}

// Copies n items into slots that are ours; each is seen as soon as its number is stored.
WQ_HOT void wq_put_in(
	struct wq *q, uint64_t pos, const uint8_t *from, uint32_t n, uint32_t item_bytes)
{
	uint8_t *slot = wq_slot(q, pos);

	for (uint32_t i = 0; i < n; i++) {
		memcpy(slot + 8, from, item_bytes);
		atomic_store_explicit(wq_number(slot), pos + i + 1, memory_order_release);
		from += item_bytes;
		slot = ((pos + i + 1) & q->mask) != 0 ? slot + q->stride : q->slots;
	}
}

WQ_HOT void wq_publish(struct wq *q, uint64_t pos, const void *items, uint32_t n)
{
	// Stamped before it is seen.
	if (WQ_RARE(wq_timed(q, pos, n) >= pos))
		wq_stamp(q, pos, n);
	// The compiler, which sees a caller's small item, is not to warn of copies of larger ones.
	__asm__("" : "+r"(items));
	// Sizes that are common: a copy by moves in place of a call.
	if (q->item_bytes == 16)
		wq_put_in(q, pos, items, n, 16);
	else if (q->item_bytes == 8)
		wq_put_in(q, pos, items, n, 8);
	else
		wq_put_in(q, pos, items, n, q->item_bytes);
	if (q->one_submitter) {
		atomic_store_explicit(&q->submitting, 0, memory_order_release);
		wq_light_fence(q);
	}
	if (WQ_RARE(atomic_load_explicit(&q->sleepers, memory_order_seq_cst) != 0))
		wq_wake_worker(q);
}

// Without counting a refusal.
WQ_HOT int wq_try(struct wq *q, const void *items, uint32_t n)
{
	uint64_t pos;
	const int k = q->one_submitter ? wq_claim_one(q, n, &pos) : wq_claim_many(q, n, &pos);

	if (k > 0)
		wq_publish(q, pos, items, (uint32_t)k);
	return k;
}

static inline void wq_reject(struct wq *q, enum wq_reject why)
{
	atomic_fetch_add_explicit(&q->rejected[why], 1, memory_order_relaxed);
}

// Admits the first of n items (at most WQ_BATCH_MAX of them) as far as there is room. Context: any thread;
// never blocks.
// Returns: how many, or -ENOBUFS (none, full), -ESHUTDOWN.
WQ_HOT int wq_submit_burst(struct wq *q, const void *items, uint32_t n)
{
	const int k = n == 0 ? 0 : wq_try(q, items, n < WQ_BATCH_MAX ? n : WQ_BATCH_MAX);

	if (k < 0)
		wq_reject(q, k == -ENOBUFS ? WQ_REJECT_FULL : WQ_REJECT_CLOSED);
	return k;
}

// Admits an item. Context: any thread; never blocks. Returns: 0, -ENOBUFS, -ESHUTDOWN.
static inline int wq_submit(struct wq *q, const void *item)
{
	const int k = wq_submit_burst(q, item, 1);

	return k < 0 ? k : 0;
}

// Copies n items out and frees their slots.
WQ_HOT void wq_take_out(
	struct wq *q, struct wq_worker *w, uint64_t pos, uint32_t n, uint32_t item_bytes)
{
	uint8_t *to = w->items, *slot = wq_slot(q, pos);

	for (uint32_t i = 0; i < n; i++) {
		memcpy(to, slot + 8, item_bytes);
		atomic_store_explicit(wq_number(slot), pos + i + q->mask + 1, memory_order_release);
		to += item_bytes;
		slot = ((pos + i + 1) & q->mask) != 0 ? slot + q->stride : q->slots;
	}
}

// Claims up to `batch` full slots. The worker is TAKING before the head moves: whoever sees the head there
// sees the worker too, so that nothing is between "left" and "running". Returns: how many.
WQ_HOT uint32_t wq_take_many(struct wq *q, struct wq_worker *w, uint64_t *pos)
{
	uint64_t head = atomic_load_explicit(&q->head, memory_order_relaxed);

	for (;;) {
		const uint32_t n = wq_scan(q, head, 1, q->batch);

		if (n == 0) {
			const uint64_t now = atomic_load_explicit(&q->head, memory_order_relaxed);

			if (now == head)
				break;
			head = now;
			continue;
		}
		atomic_store_explicit(&w->state, WQ_TAKING, memory_order_relaxed);
		if (wq_canceled(q))
			break;
		if (atomic_compare_exchange_weak_explicit(&q->head, &head, head + n,
			    memory_order_seq_cst, memory_order_relaxed)) {
			*pos = head;
			return n;
		}
	}
	if (atomic_load_explicit(&w->state, memory_order_relaxed) != WQ_IDLE)
		atomic_store_explicit(&w->state, WQ_IDLE, memory_order_release);
	return 0;
}

WQ_HOT uint32_t wq_take_one(struct wq *q, struct wq_worker *w, uint64_t *pos)
{
	const uint64_t head = atomic_load_explicit(&q->head, memory_order_relaxed);

	if (wq_scan(q, head, 1, 1) == 0)
		return 0;
	// wq_abandon sets the flag, fences all, and waits for TAKING to end.
	atomic_store_explicit(&w->state, WQ_TAKING, memory_order_relaxed);
	wq_light_fence(q);
	if (wq_canceled(q)) {
		atomic_store_explicit(&w->state, WQ_IDLE, memory_order_release);
		return 0;
	}
	const uint32_t n = wq_scan(q, head, 1, q->batch);

	atomic_store_explicit(&q->head, head + n, memory_order_release);
	*pos = head;
	return n;
}

// Takes up to `batch` items and runs the handler on them. Context: the thread that is worker `index`; a
// handler must not poll its own queue under the same index. Returns: items run.
static inline uint32_t wq_poll(struct wq *q, uint32_t index)
{
	struct wq_worker *w = &q->worker[index];
	uint64_t pos, start_ns = 0;
	const uint32_t n = q->one_worker ? wq_take_one(q, w, &pos) : wq_take_many(q, w, &pos);
	int rc;

	if (n == 0)
		return 0;
	const bool timed = wq_timed(q, pos, n) >= pos && q->params.ops != NULL;

	if (WQ_RARE(timed)) {
		start_ns = q->params.ops->now_ns();
		wq_time_wait(q, wq_timed(q, pos, n), start_ns);
	}
	if (q->item_bytes == 16)
		wq_take_out(q, w, pos, n, 16);
	else if (q->item_bytes == 8)
		wq_take_out(q, w, pos, n, 8);
	else
		wq_take_out(q, w, pos, n, q->item_bytes);
	// Room: behind the barrier of taking, as `sleepers` is in wq_publish.
	if (q->one_worker)
		wq_light_fence(q);
	if (WQ_RARE(atomic_load_explicit(&q->waiters, memory_order_seq_cst) != 0) &&
		!q->quiet_workers)
		wq_wake_waiters(q, n);
	atomic_store_explicit(&w->state, wq_self(), memory_order_release);
	rc = q->params.run(q->params.ctx, w->items, n);
	if (WQ_RARE(timed))
		wq_hist_add(&q->run, q->params.ops->now_ns() - start_ns);
	atomic_store_explicit(&w->runs, atomic_load_explicit(&w->runs, memory_order_relaxed) + n,
		memory_order_relaxed);
	if (WQ_RARE(rc != 0))
		atomic_store_explicit(&w->failed,
			atomic_load_explicit(&w->failed, memory_order_relaxed) + n,
			memory_order_relaxed);
	atomic_store_explicit(&w->state, WQ_IDLE, memory_order_release);
	return n;
}
