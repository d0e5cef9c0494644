/* SPDX-License-Identifier: BSD-3-Clause */
// The variants of the queue that every test of its semantics runs over.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "pool.h"
#include "unit.h"
#include "wq.h"

struct variant {
	const char *name;
	bool one_submitter;
	uint32_t workers;
	bool self_fence;  // as where the kernel has no membarrier
};

static const struct variant variants[] = {
	{"one submitter, one worker", true, 1, false},
	{"one submitter, one worker, fences", true, 1, true},
	{"many submitters, one worker", false, 1, false},
	{"many submitters, one worker, fences", false, 1, true},
	{"one submitter, many workers", true, 4, false},
	{"many submitters, many workers", false, 4, false},
};

static inline const struct wq_ops *variant_ops(const struct variant *v)
{
	static struct wq_ops fenced;

	if (!v->self_fence)
		return pool_wq_ops();
	fenced = *pool_wq_ops();
	fenced.fence_all = NULL;
	return &fenced;
}

// A queue of words.
static inline struct wq_params variant_params(const struct variant *v, uint32_t capacity,
	int (*run)(void *ctx, const void *items, uint32_t n), void *ctx)
{
	return (struct wq_params){
		.label = WQ_L_TEST,
		.capacity = capacity,
		.item_bytes = sizeof(uint64_t),
		.workers = v->workers,
		.batch = 1,
		.one_submitter = v->one_submitter,
		.run = run,
		.ctx = ctx,
		.ops = variant_ops(v),
	};
}

#define EACH_VARIANT(v) \
	for (const struct variant *v = variants; \
		v < variants + sizeof(variants) / sizeof(variants[0]); v++)
