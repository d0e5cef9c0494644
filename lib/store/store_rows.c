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

// Reads from `from` on, without it when `after`.
static int batch_read(struct store_tx *tx, const struct row_key *from, bool after, uint32_t max,
	struct rows_batch *b)
{
	struct store_bytes key, v;
	int rc = tx_seek(tx, STORE_T_MEMBER, row_bytes(from), after, &key, &v);

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
		int rc = batch_read(tx, &from, false, left < MOVE_BATCH ? left : MOVE_BATCH, &b);

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

int rows_each(struct store_tx *tx, const struct store_chan *chan, uint8_t list, uint32_t generation,
	void (*each)(void *ctx, struct id_view uid), void *ctx)
{
	struct rows_batch b = {.end = false};
	struct row_key from;

	row_prefix(&from, chan->number, list, generation);
	while (!b.end) {
		const int rc = batch_read(tx, &from, from.len != 0, MOVE_BATCH, &b);

		if (rc != 0)
			return rc;
		for (uint32_t i = 0; i < b.count; i++)
			each(ctx, id_view_of(b.row[i].bytes + ROW_PREFIX, b.row[i].len));
		if (b.count != 0)
			from = b.row[b.count - 1];
	}
	return 0;
}

// Takes an emptied generation out of the stack.
static void layer_drop(struct store_rowset *set, uint32_t at)
{
	set->layers--;
	memmove(&set->layer[at], &set->layer[at + 1], (set->layers - at) * sizeof(set->layer[0]));
}

// The smallest generation from `first` on: merging it into the one below costs no more than what came in
// lately has paid for.
static uint32_t smallest_from(const struct store_rowset *set, uint32_t first)
{
	uint32_t at = first;

	for (uint32_t i = first + 1; i < set->layers; i++)
		if (set->layer[i].rows < set->layer[at].rows)
			at = i;
	return at;
}

// Merges generation `at` into the one below it. Returns: rows moved and one for the bookkeeping, so that a
// loop of calls ends; -errno.
static int merge_one(
	struct store_tx *tx, struct store_chan *chan, uint8_t list, uint32_t at, uint32_t steps)
{
	struct store_rowset *set = &chan->list[list];
	struct store_layer *upper = &set->layer[at];
	const int rc = rows_move(tx, chan, list, upper->generation, at - 1, steps, NULL, NULL);

	if (rc < 0)
		return rc;
	upper->rows -= (uint32_t)rc < upper->rows ? (uint32_t)rc : upper->rows;
	if ((uint32_t)rc < steps)
		layer_drop(set, at);
	return rc + 1;
}

int rows_merge(struct store_tx *tx, struct store_chan *chan, uint8_t list, uint32_t steps)
{
	struct store_rowset *set = &chan->list[list];
	uint32_t done = 0;

	while (done < steps && set->layers >= 2) {
		const uint32_t at = set->layers >= LAYERS_HIGH ? smallest_from(set, 1) : 1;
		const int rc = merge_one(tx, chan, list, at, steps - done);

		if (rc < 0)
			return rc;
		done += (uint32_t)rc;
	}
	return (int)(done < steps ? done : steps);
}

// Only upper generations among themselves: their rows lie close together, those of the oldest may be a page
// each apart.
int rows_merge_paid(struct store_tx *tx, struct store_chan *chan, uint8_t list, uint32_t rows)
{
	struct store_rowset *set = &chan->list[list];
	const uint32_t steps = set->layers < LAYERS_FULL_PAID ? (rows + 1) / 2 : rows;
	uint32_t done = 0;

	while (done < steps && set->layers >= LAYERS_PAID) {
		const int rc = merge_one(tx, chan, list, smallest_from(set, 2), steps - done);

		if (rc < 0)
			return rc;
		done += (uint32_t)rc;
	}
	return (int)done;
}

// Makes room in a full stack, whatever it costs. What each chunk pays keeps the stack far from full, so
// this is for stores that an earlier version left.
static int stack_shrink(struct store_tx *tx, struct store_chan *chan, uint8_t list)
{
	struct store_rowset *set = &chan->list[list];
	const uint32_t at = smallest_from(set, 1);
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
