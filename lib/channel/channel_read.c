/* SPDX-License-Identifier: BSD-3-Clause */
// The look-up of a channel. Any thread under RCU.
#include "channel_read.h"

struct channel *channel_find(
	const struct channel_table *table, const struct channel_key *key, uint64_t hash)
{
	struct index_cursor cur;
	uint32_t i;

	index_first(&table->index, hash, &cur);
	while ((i = index_next(&table->index, &cur)) != 0)
		if (channel_has_key(&table->channel[i], key, hash))
			return &table->channel[i];
	return NULL;
}
