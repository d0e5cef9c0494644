/* SPDX-License-Identifier: BSD-3-Clause */
// A published tag as workers read it: immutable but for its pin count. Under RCU; what must outlive the
// turn takes a pin. A channel belongs to one worker, so a tag has one pinning thread.
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#include "base_limits.h"

#define TAG_DENIED (UINT32_C(1) << 31)  // of an entry: member on the deny list
#define TAG_INLINE_UIDS 32u
#define TAG_UID(entry) ((entry) & ~TAG_DENIED)

// Both halves move together: a fence is copied as a whole from one published tag, never put together.
struct tag_fence {
	uint8_t key[16];
	uint64_t version;
};

// The other nodes with members of a leader's tag: who gets a task. Immutable, lives as long as its tag.
struct tag_targets {
	uint32_t count;  // from 1
	struct {
		uint64_t node;
		uint32_t members;
	} target[];  // ascending by node
};

struct tag_chunk {
	uint32_t refs;  // control: rw
	uint32_t count;  // 1..TAG_CHUNK_UIDS
	uint32_t uid[];  // ascending by TAG_UID
};

struct tag {
	struct tag_fence fence;
	uint64_t smv;
	uint32_t count;  // members in all chunks: of this node's partition
	uint32_t chunks;
	_Atomic uint32_t pins;  // worker of the channel: rw, control: ro
	_Atomic uint64_t used_ns;  // worker: last use, for the TTL; control: ro
	// The members once more when there are at most TAG_INLINE_UIDS of them, else NULL: close to the rest, so
	// that a message to few waits for less memory. In the tag's own memory, behind the chunks.
	const uint32_t *inlined;
	void *control;  // control: its own record of this tag
	const struct tag_targets *targets;  // NULL: no other node has members
	struct tag_chunk *chunk[];  // ascending
};

static inline void tag_pin(struct tag *tag)
{
	atomic_store_explicit(&tag->pins,
		atomic_load_explicit(&tag->pins, memory_order_relaxed) + 1, memory_order_relaxed);
}
// Pairs with the control core's acquire load before it frees a retired tag.
static inline void tag_unpin(struct tag *tag)
{
	atomic_store_explicit(&tag->pins,
		atomic_load_explicit(&tag->pins, memory_order_relaxed) - 1, memory_order_release);
}
