/* SPDX-License-Identifier: BSD-3-Clause */
// Bounded ring from one thread to one other: fixed-size values, copied in and out. The only way, next
// to RCU snapshots and counters, across threads. Full is returned and counted by the caller, never
// spun on. The producer's and the consumer's index have a cache line each; each side keeps a cached
// copy of the other's index, so an uncontended step touches one shared line.
// Pairing: the release store of `tail` (push) pairs with the acquire load in pop; `head` likewise.
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

struct wq_spsc {
	// both: ro
	uint32_t mask;
	uint32_t item_bytes;
	uint8_t *items;
	// producer: rw, consumer: ro
	_Alignas(64) _Atomic uint32_t tail;
	uint32_t head_cached;
	// consumer: rw, producer: ro
	_Alignas(64) _Atomic uint32_t head;
	uint32_t tail_cached;
};

// Prepares a ring of `capacity` items (a power of two, 2..2^24) of `item_bytes` (1..65536).
// Context: before the two threads start. Owns: memory until wq_spsc_fini. Returns: 0, -EINVAL, -ENOMEM.
int wq_spsc_init(struct wq_spsc *ring, uint32_t capacity, uint32_t item_bytes);
void wq_spsc_fini(struct wq_spsc *ring);

// A free slot to write the next item into, or NULL when full. Context: producer. The item is not
// visible before wq_spsc_commit.
static inline void *wq_spsc_reserve(struct wq_spsc *ring)
{
	const uint32_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);

	if (tail - ring->head_cached > ring->mask) {
		ring->head_cached = atomic_load_explicit(&ring->head, memory_order_acquire);
		if (tail - ring->head_cached > ring->mask)
			return NULL;
	}
	return ring->items + (size_t)(tail & ring->mask) * ring->item_bytes;
}

static inline void wq_spsc_commit(struct wq_spsc *ring)
{
	const uint32_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);

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

// The oldest item in place, or NULL when empty. Context: consumer. Valid until wq_spsc_drop.
static inline void *wq_spsc_peek(struct wq_spsc *ring)
{
	const uint32_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);

	if (head == ring->tail_cached) {
		ring->tail_cached = atomic_load_explicit(&ring->tail, memory_order_acquire);
		if (head == ring->tail_cached)
			return NULL;
	}
	return ring->items + (size_t)(head & ring->mask) * ring->item_bytes;
}

static inline void wq_spsc_drop(struct wq_spsc *ring)
{
	const uint32_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);

	atomic_store_explicit(&ring->head, head + 1, memory_order_release);
}

// Items waiting; a snapshot. Context: any.
static inline uint32_t wq_spsc_depth(const struct wq_spsc *ring)
{
	return atomic_load_explicit(&ring->tail, memory_order_relaxed) -
	       atomic_load_explicit(&ring->head, memory_order_relaxed);
}
