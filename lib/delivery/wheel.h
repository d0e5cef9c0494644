/* SPDX-License-Identifier: BSD-3-Clause */
// Hierarchical timer wheel over nodes that live inside the caller's records, named by their index. One
// owner thread; nothing is allocated. Adding and cancelling cost the same whatever is armed; a pop looks
// at one bitmap word a level, so that a long sleep walks no empty slot.
//
// A tick is 2^17 ns (131 us). A node stands at the level of the highest 6-bit digit in which its tick
// differs from the wheel's, in the slot of that digit: level 0 slots hold one tick each, the slots of
// level l hold 64^l ticks and are spread over lower levels when their first tick comes. Eight levels
// cover every 64-bit time. A timer fires at the first tick at or after its time, never before it.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WHEEL_TICK_SHIFT 17u
#define WHEEL_LEVELS 8u
#define WHEEL_SLOTS 64u
#define WHEEL_NONE UINT32_MAX  // no node; a node with this `prev` is not armed
#define WHEEL_HEAD (UINT32_C(1) << 31)  // `prev` of a slot's first node: WHEEL_HEAD | slot

struct wheel_node {
	uint32_t next, prev;
	uint64_t due_ns;
};

struct wheel {
	uint8_t *base;  // node i stands at base + i * stride
	size_t stride;
	uint64_t tick;  // everything due before it has fired or waits in the slot being spread
	uint32_t armed;
	uint32_t spreading;  // slot whose first tick has come, WHEEL_NONE
	uint64_t map[WHEEL_LEVELS];  // slots in use
	uint32_t head[WHEEL_LEVELS * WHEEL_SLOTS];
};

static inline struct wheel_node *wheel_node(const struct wheel *w, uint32_t i)
{
	return (struct wheel_node *)(void *)(w->base + (size_t)i * w->stride);
}

static inline void wheel_node_init(struct wheel_node *node)
{
	node->prev = WHEEL_NONE;
}

static inline bool wheel_armed(const struct wheel_node *node)
{
	return node->prev != WHEEL_NONE;
}

static inline uint64_t wheel_tick_of(uint64_t due_ns)
{
	const uint64_t mask = (UINT64_C(1) << WHEEL_TICK_SHIFT) - 1;

	return (due_ns >> WHEEL_TICK_SHIFT) + ((due_ns & mask) != 0);
}

static inline void wheel_place(struct wheel *w, uint32_t i, struct wheel_node *node)
{
	uint64_t tick = wheel_tick_of(node->due_ns);
	uint32_t level, slot;
	uint64_t differ;

	if (tick < w->tick)
		tick = w->tick;
	differ = tick ^ w->tick;
	level = differ == 0 ? 0 : (63u - (uint32_t)__builtin_clzll(differ)) / 6u;
	slot = (uint32_t)(tick >> (6u * level)) & (WHEEL_SLOTS - 1);
	w->map[level] |= UINT64_C(1) << slot;
	slot += level * WHEEL_SLOTS;
	node->prev = WHEEL_HEAD | slot;
	node->next = w->head[slot];
	if (node->next != WHEEL_NONE)
		wheel_node(w, node->next)->prev = i;
	w->head[slot] = i;
}

static inline void wheel_unlink(struct wheel *w, struct wheel_node *node)
{
	if (node->next != WHEEL_NONE)
		wheel_node(w, node->next)->prev = node->prev;
	if (node->prev & WHEEL_HEAD) {
		const uint32_t slot = node->prev & ~WHEEL_HEAD;

		w->head[slot] = node->next;
		if (node->next == WHEEL_NONE)
			w->map[slot / WHEEL_SLOTS] &= ~(UINT64_C(1) << (slot % WHEEL_SLOTS));
	} else {
		wheel_node(w, node->prev)->next = node->next;
	}
	node->prev = WHEEL_NONE;
}

// Arms a node that is not armed.
static inline void wheel_add(struct wheel *w, uint32_t i, uint64_t due_ns)
{
	struct wheel_node *node = wheel_node(w, i);

	node->due_ns = due_ns;
	wheel_place(w, i, node);
	w->armed++;
}

// Disarms a node; nothing happens when it is not armed.
static inline void wheel_cancel(struct wheel *w, uint32_t i)
{
	struct wheel_node *node = wheel_node(w, i);

	if (!wheel_armed(node))
		return;
	wheel_unlink(w, node);
	w->armed--;
}

// Prepares a wheel over nodes `stride` bytes apart, the first at `base`; the caller inits the nodes.
void wheel_init(struct wheel *w, void *base, size_t stride, uint64_t now_ns);

// Disarms and returns the next node due at `now_ns`. Each node taken or spread costs one of `steps`.
// Returns: WHEEL_NONE when nothing is due or the steps are used up.
uint32_t wheel_pop(struct wheel *w, uint64_t now_ns, uint32_t *steps);

// Time at which wheel_pop has something to do: exact to a tick within 8 ms, else a time at or before it.
// Returns: UINT64_MAX when nothing is armed.
uint64_t wheel_next_ns(const struct wheel *w);
