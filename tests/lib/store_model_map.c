/* SPDX-License-Identifier: BSD-3-Clause */
// The sorted map as a backend of the model. Owns nothing. One thread.
#include "store_map.h"
#include "store_model.h"

static int begin(void *ctx, struct store_tx *tx)
{
	store_map_begin(ctx, tx);
	return 0;
}
static int commit(void *ctx, struct store_tx *tx)
{
	store_map_commit(ctx, tx);
	return 0;
}
static void abort_tx(void *ctx, struct store_tx *tx)
{
	store_map_abort(ctx, tx);
}
static int read_begin(void *ctx, struct store_tx *tx)
{
	store_map_read(ctx, tx);
	return 0;
}
static void read_end(void *ctx, struct store_tx *tx)
{
	(void)ctx;
	(void)tx;
}

struct store_model_backend store_model_on_map(struct store_map *map)
{
	return (struct store_model_backend){begin, commit, abort_tx, read_begin, read_end, map};
}
