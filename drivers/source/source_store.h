/* SPDX-License-Identifier: BSD-3-Clause */
// The subscriber source of the fast process: node_source_ops over the store, mapped read-only from the
// meta process' data folder. Every call is one read transaction. Context: control core.
#pragma once

#include "node.h"

struct source_store;

// The store need not exist yet: calls answer -EAGAIN until it does.
int source_store_open(const char *dir, uint64_t map_bytes, struct source_store **source);
void source_store_close(struct source_store *source);
extern const struct node_source_ops source_store_ops;
