/* SPDX-License-Identifier: BSD-3-Clause */
// The turning of the timer wheel; see wheel.h. Runs on the thread that owns the wheel.
#include "wheel.h"

#include <string.h>

#define AHEAD 8
#define STEP_MAX 4

void wheel_init(struct wheel *w, void *base, size_t stride, uint64_t now_ns)
{
	w->base = base;
	w->stride = stride;
	w->tick = now_ns >> WHEEL_TICK_SHIFT;
	w->armed = 0;
	w->spreading = WHEEL_NONE;
	memset(w->map, 0, sizeof(w->map));
	memset(w->head, 0xff, sizeof(w->head));
}

static uint32_t digit(uint64_t tick, uint32_t level)
{
	return (uint32_t)(tick >> (6u * level)) & (WHEEL_SLOTS - 1);
}

// The slot with the earliest first tick, which is returned through `start`. At level 0 the digit of the
// wheel's own tick counts; above it only later digits are in use, but for the slot being spread, and they
// lie behind every lower level.
static uint32_t earliest(const struct wheel *w, uint64_t *start)
{
	if (w->spreading != WHEEL_NONE && w->head[w->spreading] != WHEEL_NONE &&
		digit(w->tick, w->spreading / WHEEL_SLOTS) == w->spreading % WHEEL_SLOTS) {
		*start = w->tick;
		return w->spreading;
	}
	for (uint32_t level = 0; level < WHEEL_LEVELS; level++) {
		const uint32_t shift = 6u * level;
		uint64_t upper;
		uint32_t slot;

		if (w->map[level] == 0)
			continue;
		slot = (uint32_t)__builtin_ctzll(w->map[level]);
		upper = w->tick >> shift >> 6;  // digits above this level
		*start = (upper << 6 | slot) << shift;
		return level * WHEEL_SLOTS + slot;
	}
	return WHEEL_NONE;
}

// Nodes are mostly armed in the order of their index, so the step to the next one tells where those after
// it stand. Fetched early: what is due was armed long ago and is out of the caches.
static void fetch_ahead(const struct wheel *w, uint32_t i, const struct wheel_node *node)
{
	const int32_t step = (int32_t)(node->next - i);

	if (step >= -STEP_MAX && step <= STEP_MAX)
		__builtin_prefetch(
			(const void *)((uintptr_t)node +
				       (uintptr_t)((intptr_t)step * AHEAD * (intptr_t)w->stride)));
	// gcc takes a function that only prefetches for one without effect, and its calls out.
	__asm__ volatile("");
}

uint32_t wheel_pop(struct wheel *w, uint64_t now_ns, uint32_t *steps)
{
	const uint64_t now = now_ns >> WHEEL_TICK_SHIFT;

	while (*steps > 0) {
		uint64_t start = 0;
		const uint32_t slot = earliest(w, &start);
		struct wheel_node *node;
		uint32_t i;

		if (slot == WHEEL_NONE || start > now) {
			// No slot begins up to now, so every node keeps its level and slot.
			if (now > w->tick)
				w->tick = now;
			return WHEEL_NONE;
		}
		if (start > w->tick)
			w->tick = start;
		w->spreading = slot;
		i = w->head[slot];
		node = wheel_node(w, i);
		fetch_ahead(w, i, node);
		wheel_unlink(w, node);
		--*steps;
		if (wheel_tick_of(node->due_ns) <= w->tick) {
			w->armed--;
			return i;
		}
		wheel_place(w, i, node);
	}
	return WHEEL_NONE;
}

uint64_t wheel_next_ns(const struct wheel *w)
{
	uint64_t start = 0;

	if (earliest(w, &start) == WHEEL_NONE)
		return UINT64_MAX;
	if (start > UINT64_MAX >> WHEEL_TICK_SHIFT)
		return UINT64_MAX;
	return start << WHEEL_TICK_SHIFT;
}
