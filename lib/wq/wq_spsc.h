/* SPDX-License-Identifier: BSD-3-Clause */
// The lane: a bounded ring from one thread to one other, for two threads of which neither ends before the
// other, so it needs no close. What it shares with the queue of wq.h: fixed-size values, copied in; never
// blocks; full is told, counted by the caller, never spun on; order is kept; never deeper than its capacity. What
// it has more: items can be built and read in place, and a hop costs half (perf/micro/hops). The only ways
// across threads are this, wq.h, RCU snapshots and counters.
//
// The producer's and the consumer's index have a cache line each; each side keeps a cached copy of the other's
// index, so an uncontended step touches one shared line.
// Pairing: the release store of `tail` (push) pairs with the acquire load in pop; `head` likewise.
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "wq_stats.h"

struct wq_spsc {
	// both: ro
	uint32_t mask;
	uint32_t item_bytes;
	uint8_t *items;
	// producer: rw, consumer: ro
	_Alignas(64) _Atomic uint64_t tail;
	uint64_t head_cached;
	_Atomic uint64_t refused;  // for want of room
	// consumer: rw, producer: ro
	_Alignas(64) _Atomic uint64_t head;
	uint64_t tail_cached;
};

// Prepares a ring of `capacity` items (a power of two, 2..2^24) of `item_bytes` (1..65536).
// Context: before the two threads start. Owns: memory until wq_spsc_fini. Returns: 0, -EINVAL, -ENOMEM.
int wq_spsc_init(struct wq_spsc *ring, uint32_t capacity, uint32_t item_bytes);
void wq_spsc_fini(struct wq_spsc *ring);
// What the monitor shows of it. Context: any.
void wq_spsc_stats(const struct wq_spsc *ring, enum wq_label label, struct wq_sample *sample);

static inline void wq_spsc_refuse(struct wq_spsc *ring, uint64_t n)
{
	atomic_store_explicit(&ring->refused,
		atomic_load_explicit(&ring->refused, memory_order_relaxed) + n,
		memory_order_relaxed);
}

// A free slot to write the next item into, or NULL when full. Context: producer. The item is not
// visible before wq_spsc_commit.
static inline void *wq_spsc_reserve(struct wq_spsc *ring)
{
	const uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);

	if (tail - ring->head_cached > ring->mask) {
		ring->head_cached = atomic_load_explicit(&ring->head, memory_order_acquire);
		if (tail - ring->head_cached > ring->mask) {
			wq_spsc_refuse(ring, 1);
			return NULL;
		}
	}
	return ring->items + (tail & ring->mask) * ring->item_bytes;
}

static inline void wq_spsc_commit(struct wq_spsc *ring)
{
	const uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);

	atomic_store_explicit(&ring->tail, tail + 1, memory_order_release);
}

// Copies one item in. Context: producer. Returns: false when full.
static inline bool wq_spsc_push(struct wq_spsc *ring, const void *item)
{
	void *slot = wq_spsc_reserve(ring);

	if (slot == NULL)
		return false;
	memcpy(slot, item, ring->item_bytes);
	wq_spsc_commit(ring);
	return true;
}

// Copies the first of n items in, as far as there is room; they are seen together. Context: producer.
// Returns: how many.
static inline uint32_t wq_spsc_push_burst(struct wq_spsc *ring, const void *items, uint32_t n)
{
	const uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
	uint32_t room = ring->mask + 1 - (uint32_t)(tail - ring->head_cached);

	if (room < n) {
		ring->head_cached = atomic_load_explicit(&ring->head, memory_order_acquire);
		room = ring->mask + 1 - (uint32_t)(tail - ring->head_cached);
		if (room < n) {
			wq_spsc_refuse(ring, n - room);
			n = room;
		}
	}
	// In two pieces where the ring's end lies between.
	const uint32_t at = (uint32_t)tail & ring->mask;
	const uint32_t first = n <= ring->mask + 1 - at ? n : ring->mask + 1 - at;

	memcpy(ring->items + (size_t)at * ring->item_bytes, items,
		(size_t)first * ring->item_bytes);
	memcpy(ring->items, (const uint8_t *)items + (size_t)first * ring->item_bytes,
		(size_t)(n - first) * ring->item_bytes);
	atomic_store_explicit(&ring->tail, tail + n, memory_order_release);
	return n;
}

// The oldest item in place, or NULL when empty. Context: consumer. Valid until wq_spsc_drop.
static inline void *wq_spsc_peek(struct wq_spsc *ring)
{
	const uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);

	if (head == ring->tail_cached) {
		ring->tail_cached = atomic_load_explicit(&ring->tail, memory_order_acquire);
		if (head == ring->tail_cached)
			return NULL;
	}
	return ring->items + (head & ring->mask) * ring->item_bytes;
}

static inline void wq_spsc_drop(struct wq_spsc *ring)
{
	const uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);

	atomic_store_explicit(&ring->head, head + 1, memory_order_release);
}

// Copies up to n of the oldest items out. Context: consumer. Returns: how many.
static inline uint32_t wq_spsc_pop_burst(struct wq_spsc *ring, void *items, uint32_t n)
{
	const uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
	uint32_t some = (uint32_t)(ring->tail_cached - head);

	if (some < n) {
		ring->tail_cached = atomic_load_explicit(&ring->tail, memory_order_acquire);
		some = (uint32_t)(ring->tail_cached - head);
		n = n < some ? n : some;
	}
	const uint32_t at = (uint32_t)head & ring->mask;
	const uint32_t first = n <= ring->mask + 1 - at ? n : ring->mask + 1 - at;

	memcpy(items, ring->items + (size_t)at * ring->item_bytes,
		(size_t)first * ring->item_bytes);
	memcpy((uint8_t *)items + (size_t)first * ring->item_bytes, ring->items,
		(size_t)(n - first) * ring->item_bytes);
	atomic_store_explicit(&ring->head, head + n, memory_order_release);
	return n;
}

// Items waiting; a snapshot, never over the capacity. Context: any. The head is read first: it never
// overtakes a tail read later, while a tail read first could be behind it.
static inline uint32_t wq_spsc_depth(const struct wq_spsc *ring)
{
	const uint64_t head = atomic_load_explicit(&ring->head, memory_order_acquire);
	const uint64_t depth = atomic_load_explicit(&ring->tail, memory_order_relaxed) - head;

	return depth <= ring->mask ? (uint32_t)depth : ring->mask + 1;
}
