/* SPDX-License-Identifier: BSD-3-Clause */
// Consensus of a one-node group without a log of its own: batches proposed in one loop turn are
// committed together by the turn() that follows, durable because the consumer's on_commit is one synced
// store transaction. Also the model for tests. Context: META_ONLY.
#pragma once

#include "cons.h"

struct cons_local;

// `applied_index` continues the store's count. Returns: NULL when there is no memory.
struct cons_local *cons_local_create(
	uint64_t node_id, uint64_t applied_index, const struct cons_events *events, void *ctx);
void cons_local_destroy(struct cons_local *cons);
extern const struct cons_ops cons_local_ops;
