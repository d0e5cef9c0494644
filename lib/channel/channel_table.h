/* SPDX-License-Identifier: BSD-3-Clause */
// The channel table of the fast process: key -> record {SMV, tag, flags, worker}. Filled by the control
// core from the feed; workers read through channel_read.h. Context: CONTROL_ONLY.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base_id.h"
#include "base_rcu.h"
#include "base_role.h"
#include "channel_read.h"

// Reserves room for `limit` channels served by `workers` workers. Returns: NULL when there is no memory.
struct channel_table *channel_table_create(
	uint32_t limit, uint32_t workers, struct rcu_retire *retire);
void channel_table_destroy(struct channel_table *table);
// Bytes of so many channels, with names of 32 bytes.
uint64_t channel_table_memory(uint32_t limit);

// The record of a channel, made when absent (smv 0, no tag). Returns: NULL at the limit.
struct channel *channel_table_get(
	struct channel_table *table, const struct channel_key *key) CONTROL_ONLY;
// Takes a channel out; readers may see it to the end of their turn, its index is reused after a grace
// period with `use` grown. Its tag must have been taken off before.
void channel_table_remove(struct channel_table *table, struct channel *channel) CONTROL_ONLY;
uint32_t channel_table_count(const struct channel_table *table) CONTROL_ONLY;
// False too while all that is left are records whose grace period goes on.
bool channel_table_has_room(const struct channel_table *table) CONTROL_ONLY;

// Walks all channels; start with *at = 0. Returns: NULL at the end.
struct channel *channel_table_next(struct channel_table *table, uint32_t *at) CONTROL_ONLY;
