/* SPDX-License-Identifier: BSD-3-Clause */
// Rows of lists and their generations: the merged view of one UID, writing, merging, killing.
// Thread: owner of the write transaction.
#include "store_pvt.h"

int rows_has(struct store_tx *tx, const struct store_chan *chan, uint8_t list, struct id_view uid)
{
	const struct store_rowset *set = &chan->list[list];
	struct row_key key;

	row_prefix(&key, chan->number, list, 0);
	row_uid(&key, uid);
	for (uint32_t i = set->layers; i-- > 0;) {
		struct store_bytes v;

		put_be(key.bytes + 9, set->layer[i].generation, 4);

		const int rc = tx_get(tx, STORE_T_MEMBER, row_bytes(&key), &v);

		if (rc == 0)
			return v.len == 1 ? *(const uint8_t *)v.p == 1 : -EUCLEAN;
		if (rc != -ENOENT)
			return rc;
	}
	return 0;
}

int rows_set(struct store_tx *tx, struct store_chan *chan, uint8_t list, uint32_t at,
	struct id_view uid, uint8_t present)
{
	struct store_layer *layer = &chan->list[list].layer[at];
	struct row_key key;

	row_prefix(&key, chan->number, list, layer->generation);
	row_uid(&key, uid);
	if (at == 0 && present == 0)
		return tx_del(tx, STORE_T_MEMBER, row_bytes(&key));
	if (at != 0 && layer->rows < UINT32_MAX)
		layer->rows++;
	return tx_put(tx, STORE_T_MEMBER, row_bytes(&key), bytes_of(&present, 1));
}

int rows_stage(struct store_tx *tx, const struct store_chan *chan, uint8_t list,
	uint32_t generation, struct id_view uid, uint8_t present)
{
	struct row_key key;
	struct store_bytes v;

	row_prefix(&key, chan->number, list, generation);
	row_uid(&key, uid);

	int rc = tx_get(tx, STORE_T_MEMBER, row_bytes(&key), &v);

	if (rc != -ENOENT)
		return rc;
	rc = tx_put(tx, STORE_T_MEMBER, row_bytes(&key), bytes_of(&present, 1));
	return rc == 0 ? 1 : rc;
}

int rows_kill(struct store_tx *tx, const struct store_chan *chan, uint8_t list, uint32_t generation)
{
	struct row_key key;
	uint8_t k[1 + ROW_PREFIX] = {'G'};

	row_prefix(&key, chan->number, list, generation);
	memcpy(k + 1, key.bytes, ROW_PREFIX);
	return tx_put(tx, STORE_T_STAGE, bytes_of(k, sizeof(k)), bytes_of("", 1));
}

int rows_kill_list(struct store_tx *tx, struct store_chan *chan, uint8_t list)
{
	struct store_rowset *set = &chan->list[list];

	for (uint32_t i = 0; i < set->layers; i++) {
		const int rc = rows_kill(tx, chan, list, set->layer[i].generation);

		if (rc != 0)
			return rc;
	}
	set->layers = 0;
	set->count = 0;
	return 0;
}

int rows_move(struct store_tx *tx, struct store_chan *chan, uint8_t list, uint32_t generation,
	uint32_t into, uint32_t steps, void (*each)(void *ctx, struct id_view uid), void *ctx)
{
	struct row_key from, row;
	uint32_t done = 0;

	row_prefix(&from, chan->number, list, generation);
	row = from;
	for (; done < steps; done++) {
		struct store_bytes key, v;
		int rc = tx_seek(tx, STORE_T_MEMBER, row_bytes(&from), false, &key, &v);

		if (rc == -ENOENT || (rc == 0 && !row_in(&from, key)))
			break;
		if (rc == 0 && v.len != 1)
			rc = -EUCLEAN;
		if (rc != 0)
			return rc;

		const uint8_t present = *(const uint8_t *)v.p;
		const struct id_view uid =
			id_view_of(row.bytes + ROW_PREFIX, (uint8_t)(key.len - ROW_PREFIX));

		row_uid(&row, id_view_of((const uint8_t *)key.p + ROW_PREFIX, uid.len));
		rc = rows_set(tx, chan, list, into, uid, present);
		if (rc == 0)
			rc = tx_del(tx, STORE_T_MEMBER, row_bytes(&row));
		if (rc != 0)
			return rc;
		if (each != NULL)
			each(ctx, uid);
	}
	return (int)done;
}

// Takes an emptied generation out of the stack.
static void layer_drop(struct store_rowset *set, uint32_t at)
{
	set->layers--;
	memmove(&set->layer[at], &set->layer[at + 1], (set->layers - at) * sizeof(set->layer[0]));
}

int rows_merge(struct store_tx *tx, struct store_chan *chan, uint8_t list, uint32_t steps)
{
	struct store_rowset *set = &chan->list[list];
	uint32_t done = 0;

	while (done < steps && set->layers >= 2) {
		struct store_layer *upper = &set->layer[1];
		const int rc =
			rows_move(tx, chan, list, upper->generation, 0, steps - done, NULL, NULL);

		if (rc < 0)
			return rc;
		upper->rows -= (uint32_t)rc < upper->rows ? (uint32_t)rc : upper->rows;
		if ((uint32_t)rc < steps - done)
			layer_drop(set, 1);
		done += (uint32_t)rc + 1;  // the bookkeeping counts, so that a loop of calls ends
	}
	return (int)(done < steps ? done : steps);
}

// Merges the smallest generation above the oldest into the one below it, whole. The stack only fills
// when closed stages outrun the merging that each written row pays for; what is left of them then is
// at most MUTATION_UIDS_MAX rows, so the smallest is a small part of that.
static int stack_shrink(struct store_tx *tx, struct store_chan *chan, uint8_t list)
{
	struct store_rowset *set = &chan->list[list];
	uint32_t at = 1;

	for (uint32_t i = 2; i < set->layers; i++)
		if (set->layer[i].rows < set->layer[at].rows)
			at = i;

	const int rc = rows_move(
		tx, chan, list, set->layer[at].generation, at - 1, UINT32_MAX, NULL, NULL);

	if (rc >= 0)
		layer_drop(set, at);
	return rc < 0 ? rc : 0;
}

int rows_push(struct store_tx *tx, struct store_chan *chan, uint8_t list, uint32_t generation,
	uint32_t rows)
{
	struct store_rowset *set = &chan->list[list];

	if (set->layers == LAYERS_MAX) {
		const int rc = stack_shrink(tx, chan, list);

		if (rc != 0)
			return rc;
	}
	set->layer[set->layers++] = (struct store_layer){.generation = generation, .rows = rows};
	return 0;
}
