/* SPDX-License-Identifier: BSD-3-Clause */
// Rows of lists and their generations: the merged view of one UID, writing, merging, killing.
// Thread: owner of the write transaction.
#include "store_pvt.h"

#define MOVE_BATCH 32u  // rows copied out at once: 9 KiB

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
	int rc;

	row_prefix(&key, chan->number, list, generation);
	row_uid(&key, uid);
	rc = tx_insert(tx, STORE_T_MEMBER, row_bytes(&key), bytes_of(&present, 1));
	return rc == 0 ? 1 : rc == -EEXIST ? 0 : rc;
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

// Rows of a generation, copied out so that writing does not disturb the walk that finds them.
struct rows_batch {
	uint32_t count;
	bool end;  // no row behind these
	uint8_t present[MOVE_BATCH];
	struct row_key row[MOVE_BATCH];
};

static int batch_read(
	struct store_tx *tx, const struct row_key *from, uint32_t max, struct rows_batch *b)
{
	struct store_bytes key, v;
	int rc = tx_seek(tx, STORE_T_MEMBER, row_bytes(from), false, &key, &v);

	b->count = 0;
	b->end = false;
	while (rc == 0 && row_in(from, key)) {
		struct row_key *row = &b->row[b->count];

		if (v.len != 1)
			return -EUCLEAN;
		row->len = (uint8_t)(key.len - ROW_PREFIX);
		memcpy(row->bytes, key.p, key.len);
		b->present[b->count++] = *(const uint8_t *)v.p;
		if (b->count == max)
			return 0;
		rc = tx_seek(tx, STORE_T_MEMBER, key, true, &key, &v);
	}
	b->end = true;
	return rc == -ENOENT ? 0 : rc;
}

int rows_move(struct store_tx *tx, struct store_chan *chan, uint8_t list, uint32_t generation,
	uint32_t into, uint32_t steps, void (*each)(void *ctx, struct id_view uid), void *ctx)
{
	struct rows_batch b = {.end = false};
	struct row_key from;
	uint32_t done = 0;

	row_prefix(&from, chan->number, list, generation);
	while (!b.end && done < steps) {
		const uint32_t left = steps - done;
		int rc = batch_read(tx, &from, left < MOVE_BATCH ? left : MOVE_BATCH, &b);

		for (uint32_t i = 0; rc == 0 && i < b.count; i++) {
			const struct id_view uid =
				id_view_of(b.row[i].bytes + ROW_PREFIX, b.row[i].len);

			rc = rows_set(tx, chan, list, into, uid, b.present[i]);
			if (rc == 0 && each != NULL)
				each(ctx, uid);
		}
		for (uint32_t i = 0; rc == 0 && i < b.count; i++)
			rc = tx_del(tx, STORE_T_MEMBER, row_bytes(&b.row[i]));
		if (rc != 0)
			return rc;
		done += b.count;
	}
	return (int)done;
}

// Takes an emptied generation out of the stack.
static void layer_drop(struct store_rowset *set, uint32_t at)
{
	set->layers--;
	memmove(&set->layer[at], &set->layer[at + 1], (set->layers - at) * sizeof(set->layer[0]));
}

// Which generation to merge into the one below it: the second, so that the stack gets low; when it is high
// the smallest, which costs no more than what came in lately has paid for.
static uint32_t merge_at(const struct store_rowset *set)
{
	uint32_t at = 1;

	for (uint32_t i = 2; set->layers >= LAYERS_HIGH && i < set->layers; i++)
		if (set->layer[i].rows < set->layer[at].rows)
			at = i;
	return at;
}

int rows_merge(struct store_tx *tx, struct store_chan *chan, uint8_t list, uint32_t steps)
{
	struct store_rowset *set = &chan->list[list];
	uint32_t done = 0;

	while (done < steps && set->layers >= 2) {
		const uint32_t at = merge_at(set);
		struct store_layer *upper = &set->layer[at];
		const int rc = rows_move(
			tx, chan, list, upper->generation, at - 1, steps - done, NULL, NULL);

		if (rc < 0)
			return rc;
		upper->rows -= (uint32_t)rc < upper->rows ? (uint32_t)rc : upper->rows;
		if ((uint32_t)rc < steps - done)
			layer_drop(set, at);
		done += (uint32_t)rc + 1;  // the bookkeeping counts, so that a loop of calls ends
	}
	return (int)(done < steps ? done : steps);
}

int rows_merge_paid(struct store_tx *tx, struct store_chan *chan, uint8_t list, uint32_t rows)
{
	const uint32_t layers = chan->list[list].layers;

	if (layers < LAYERS_PAID)
		return 0;
	return rows_merge(tx, chan, list, layers < LAYERS_FULL_PAID ? (rows + 1) / 2 : rows);
}

// Makes room in a full stack, whatever it costs. What each chunk pays keeps the stack far from full, so
// this is for stores that an earlier version left.
static int stack_shrink(struct store_tx *tx, struct store_chan *chan, uint8_t list)
{
	struct store_rowset *set = &chan->list[list];
	const uint32_t at = merge_at(set);
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
