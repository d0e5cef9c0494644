/* SPDX-License-Identifier: BSD-3-Clause */
// Reading: positions, channels, pages over merged generations, the journal. Thread: owner of the read
// transaction, in any process; allocates nothing.
#include "store_read.h"

#include "store_pvt.h"

int store_read_position(struct store_tx *tx, struct store_position *position)
{
	struct store_state state;
	uint32_t format;
	int rc = format_load(tx, &format, &position->cluster_id);

	if (rc == 0)
		rc = state_load(tx, &state);
	if (rc != 0)
		return rc;
	position->applied = state.applied;
	position->commit = state.commit;
	position->chain = state.chain;
	position->generation = state.generation;
	return 0;
}

static void channel_fill(struct store_channel *channel, const struct store_chan *chan)
{
	channel->key = chan->key;
	channel->number = chan->number;
	channel->smv = chan->smv;
	channel->members = chan->list[STORE_MEMBERS].count;
	channel->flags = chan->flags;
	channel->removed = chan->removed;
}

int store_read_channel(
	struct store_tx *tx, const struct channel_key *key, struct store_channel *channel)
{
	struct store_chan chan;
	const int rc = chan_load(tx, key, &chan);

	if (rc != 0)
		return rc;
	if (!chan.exists)
		return -ENOENT;
	channel_fill(channel, &chan);
	return 0;
}

int store_read_next_channel(
	struct store_tx *tx, const struct channel_key *cursor, struct store_channel *channel)
{
	uint8_t k[1 + ID_LEN_MAX];
	struct store_bytes key, v;
	struct channel_key name;
	struct store_chan chan;
	const uint32_t len = cursor->type == 0 ? 1 : chan_key_bytes(cursor, k);

	if (cursor->type == 0)
		k[0] = 0;

	int rc = tx_seek(tx, STORE_T_CHANNEL, bytes_of(k, len), true, &key, &v);

	if (rc != 0)
		return rc;

	const uint8_t *p = key.p;

	if (key.len < 2 || key.len > 1 + ID_LEN_MAX ||
		channel_key_set(&name, p[0], p + 1, (uint8_t)(key.len - 1)) != 0)
		return -EUCLEAN;
	rc = chan_decode(&name, v, &chan);
	if (rc == 0)
		channel_fill(channel, &chan);
	return rc;
}

// --- pages ----------------------------------------------------------------------------------------------

// The next row of each generation of a list.
struct merge {
	struct store_tx *tx;
	uint32_t count;
	struct merge_layer {
		uint8_t prefix[ROW_PREFIX];
		struct store_bytes key;  // p NULL: at its end
		uint8_t present;
	} layer[LAYERS_MAX];
};

static int layer_seek(
	struct store_tx *tx, struct merge_layer *layer, struct store_bytes from, bool after)
{
	struct store_bytes key, v;
	const int rc = tx_seek(tx, STORE_T_MEMBER, from, after, &key, &v);

	layer->key.p = NULL;
	if (rc == -ENOENT)
		return 0;
	if (rc != 0)
		return rc;
	if (key.len <= ROW_PREFIX || key.len > ROW_PREFIX + ID_LEN_MAX ||
		memcmp(key.p, layer->prefix, ROW_PREFIX) != 0)
		return 0;
	if (v.len != 1)
		return -EUCLEAN;
	layer->key = key;
	layer->present = *(const uint8_t *)v.p;
	return 0;
}

static int merge_start(struct merge *m, struct store_tx *tx, const struct store_chan *chan,
	uint8_t list, struct id_view after)
{
	const struct store_rowset *set = &chan->list[list];

	m->tx = tx;
	m->count = set->layers;
	for (uint32_t i = 0; i < set->layers; i++) {
		struct row_key from;

		row_prefix(&from, chan->number, list, set->layer[i].generation);
		memcpy(m->layer[i].prefix, from.bytes, ROW_PREFIX);
		if (after.len != 0)
			row_uid(&from, after);

		const int rc = layer_seek(tx, &m->layer[i], row_bytes(&from), after.len != 0);

		if (rc != 0)
			return rc;
	}
	return 0;
}

static int uid_order(struct store_bytes a, struct store_bytes b)
{
	const uint32_t la = a.len - ROW_PREFIX, lb = b.len - ROW_PREFIX;
	const int c = memcmp((const uint8_t *)a.p + ROW_PREFIX, (const uint8_t *)b.p + ROW_PREFIX,
		la < lb ? la : lb);

	return c != 0 ? c : la < lb ? -1 : la > lb;
}

// The generation with the lowest UID, the newest of equals. NULL at the end.
static struct merge_layer *merge_front(struct merge *m)
{
	struct merge_layer *front = NULL;

	for (uint32_t i = m->count; i-- > 0;)
		if (m->layer[i].key.p != NULL &&
			(front == NULL || uid_order(m->layer[i].key, front->key) < 0))
			front = &m->layer[i];
	return front;
}

// Steps every generation that stands at the UID of `key` on. Returns: rows stepped over, -errno.
static int merge_step(struct merge *m, struct store_bytes key)
{
	int stepped = 0;

	for (uint32_t i = 0; i < m->count; i++) {
		struct merge_layer *layer = &m->layer[i];

		if (layer->key.p == NULL || (m->count > 1 && uid_order(layer->key, key) != 0))
			continue;

		const int rc = layer_seek(m->tx, layer, layer->key, true);

		if (rc != 0)
			return rc;
		stepped++;
	}
	return stepped;
}

static int page_fill(
	struct merge *m, uint32_t max, uint8_t *uids, uint32_t cap, struct store_page *page)
{
	const uint32_t budget = max + STORE_PAGE_SKIP_MAX;
	struct store_bytes key = {NULL, 0};
	struct merge_layer *front;

	for (uint32_t rows = 0; (front = merge_front(m)) != NULL;) {
		const uint32_t len = front->key.len - ROW_PREFIX;

		if (page->count == max || rows >= budget || 1 + len > cap - page->bytes_used)
			break;
		key = front->key;
		if (front->present) {
			uids[page->bytes_used] = (uint8_t)len;
			memcpy(uids + page->bytes_used + 1, (const uint8_t *)key.p + ROW_PREFIX,
				len);
			page->bytes_used += 1 + len;
			page->count++;
		}

		const int rc = merge_step(m, key);

		if (rc < 0)
			return rc;
		rows += (uint32_t)rc;
	}
	page->last = front == NULL;
	if (!page->last) {
		page->next_len = (uint8_t)(key.len - ROW_PREFIX);
		memcpy(page->next, (const uint8_t *)key.p + ROW_PREFIX, page->next_len);
	}
	return 0;
}

int store_read_page(struct store_tx *tx, const struct channel_key *key, enum store_list list,
	struct id_view after, uint32_t max, uint8_t *uids, uint32_t cap, struct store_page *page)
{
	struct store_state state;
	struct store_chan chan;
	struct merge merge;

	if ((uint32_t)list >= STORE_LISTS || max == 0 || max > UINT32_MAX - STORE_PAGE_SKIP_MAX ||
		cap <= ID_LEN_MAX)
		return -EINVAL;
	memset(page, 0, offsetof(struct store_page, next));
	page->last = true;

	int rc = state_load(tx, &state);

	if (rc == 0)
		rc = chan_load(tx, key, &chan);
	if (rc != 0)
		return rc;
	page->commit = state.commit;
	page->generation = state.generation;
	page->smv = chan.smv;
	if (!chan_alive(&chan))
		return -ENOENT;
	rc = merge_start(&merge, tx, &chan, (uint8_t)list, after);
	return rc != 0 ? rc : page_fill(&merge, max, uids, cap, page);
}

int store_read_delta(struct store_tx *tx, uint64_t commit, struct store_delta *delta)
{
	struct store_state state;
	struct store_bytes key, v;
	uint8_t k[8];

	put_be(k, commit, 8);

	int rc = tx_seek(tx, STORE_T_JOURNAL, bytes_of(k, 8), true, &key, &v);

	if (rc == -ENOENT) {
		rc = state_load(tx, &state);
		if (rc != 0)
			return rc;
		return state.commit == commit ? -ENOENT : -ESTALE;
	}
	if (rc != 0)
		return rc;
	if (key.len != 8)
		return -EUCLEAN;
	if (get_be(key.p, 8) != commit + 1)
		return -ESTALE;
	rc = store_delta_decode(v.p, v.len, delta);
	return rc < 0 ? -EUCLEAN : 0;
}

int store_read_stage(struct store_tx *tx, uint64_t id, uint64_t *found, struct channel_key *channel)
{
	struct store_stage stage;
	const int rc = stage_next(tx, id, &stage);

	if (rc != 0)
		return rc;
	*found = stage.id;
	*channel = stage.channel;
	return 0;
}
