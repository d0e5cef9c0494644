/* SPDX-License-Identifier: BSD-3-Clause */
// Memory of a one-to-one ring; everything else is inline in wq_spsc.h.
#include "wq_spsc.h"

#include <errno.h>
#include <stdlib.h>

int wq_spsc_init(struct wq_spsc *ring, uint32_t capacity, uint32_t item_bytes)
{
	if (capacity < 2 || capacity > 1u << 24 || (capacity & (capacity - 1)) != 0 ||
		item_bytes == 0 || item_bytes > 65536)
		return -EINVAL;
	memset(ring, 0, sizeof(*ring));
	ring->items = calloc(capacity, item_bytes);
	if (ring->items == NULL)
		return -ENOMEM;
	// Every page is touched now: a producer must not meet a page fault, and what a ring takes is taken
	// at the start.
	for (size_t at = 0; at < (size_t)capacity * item_bytes; at += 4096)
		*(volatile uint8_t *)(ring->items + at) = 0;
	ring->mask = capacity - 1;
	ring->item_bytes = item_bytes;
	return 0;
}

void wq_spsc_fini(struct wq_spsc *ring)
{
	free(ring->items);
	ring->items = NULL;
}

void wq_spsc_stats(const struct wq_spsc *ring, enum wq_label label, struct wq_sample *sample)
{
	*sample = (struct wq_sample){
		.label = label,
		.depth = wq_spsc_depth(ring),
		.capacity = ring->mask + 1,
		.admitted = atomic_load_explicit(&ring->tail, memory_order_relaxed),
		.run = atomic_load_explicit(&ring->head, memory_order_relaxed),
		.rejected[WQ_REJECT_FULL] =
			atomic_load_explicit(&ring->refused, memory_order_relaxed),
	};
}
