/* SPDX-License-Identifier: BSD-3-Clause */
// Writer side of the hash index.
#include "base_index.h"

#include "base_memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static uint32_t buckets_of(uint32_t limit)
{
	uint32_t buckets = 2;

	while ((uint64_t)buckets * INDEX_BUCKET_SLOTS < (uint64_t)limit * 2)
		buckets *= 2;
	return buckets;
}

uint64_t index_memory(uint32_t limit)
{
	return (uint64_t)buckets_of(limit) * sizeof(struct index_bucket);
}

int index_init(struct index *index, uint32_t limit)
{
	uint32_t buckets;

	if (limit == 0 || limit > 1u << 30)
		return -EINVAL;
	buckets = buckets_of(limit);
	index->bucket = memory_lines(buckets, sizeof(*index->bucket));
	if (index->bucket == NULL)
		return -ENOMEM;
	index->mask = buckets - 1;
	index->count = 0;
	index->limit = limit;
	return 0;
}

void index_fini(struct index *index)
{
	memory_lines_free(index->bucket);
	index->bucket = NULL;
}

static unsigned free_slots(const struct index_bucket *b)
{
	unsigned n = 0;

	for (unsigned i = 0; i < INDEX_BUCKET_SLOTS; i++)
		n += atomic_load_explicit(&b->value[i], memory_order_relaxed) == 0;
	return n;
}

int index_insert(struct index *index, uint64_t hash, uint32_t value)
{
	struct index_cursor cur;
	struct index_bucket *b;

	if (index->count >= index->limit)
		return -ENOSPC;
	index_first(index, hash, &cur);
	b = &index->bucket[cur.bucket[0]];
	// The emptier bucket keeps overflow practically impossible at half load.
	if (free_slots(&index->bucket[cur.bucket[1]]) > free_slots(b))
		b = &index->bucket[cur.bucket[1]];
	for (unsigned i = 0; i < INDEX_BUCKET_SLOTS; i++) {
		if (atomic_load_explicit(&b->value[i], memory_order_relaxed) != 0)
			continue;
		atomic_store_explicit(&b->print[i], cur.print, memory_order_relaxed);
		atomic_store_explicit(&b->value[i], value, memory_order_release);
		index->count++;
		return 0;
	}
	return -ENOSPC;
}

int index_remove(struct index *index, uint64_t hash, uint32_t value)
{
	struct index_cursor cur;

	index_first(index, hash, &cur);
	for (unsigned side = 0; side < 2; side++) {
		struct index_bucket *b = &index->bucket[cur.bucket[side]];

		for (unsigned i = 0; i < INDEX_BUCKET_SLOTS; i++) {
			if (atomic_load_explicit(&b->value[i], memory_order_relaxed) != value)
				continue;
			atomic_store_explicit(&b->value[i], 0, memory_order_release);
			index->count--;
			return 0;
		}
	}
	return -ENOENT;
}
