/* SPDX-License-Identifier: BSD-3-Clause */
// The small records of the store: format, state, channels, stages. Thread: owner of the transaction.
#include "store_pvt.h"

#define CHAN_HEADER 32u
#define LIST_HEADER 9u
#define LAYER_BYTES 8u
#define CHAN_BYTES_MAX (CHAN_HEADER + STORE_LISTS * (LIST_HEADER + LAYERS_MAX * LAYER_BYTES))
#define STAGE_HEADER 40u

static const char format_key[] = "format";
static const char state_key[] = "state";
static const char format_magic[8] = "tagcast";

int format_load(struct store_tx *tx, uint32_t *format, uint64_t *cluster_id)
{
	struct store_bytes v;
	const int rc = tx_get(tx, STORE_T_META, bytes_of(format_key, 6), &v);

	return rc != 0 ? rc : format_decode(bytes_of(format_key, 6), v, format, cluster_id);
}

int format_decode(
	struct store_bytes key, struct store_bytes v, uint32_t *format, uint64_t *cluster_id)
{
	if (key.len != 6 || memcmp(key.p, format_key, 6) != 0 || v.len < 20 ||
		memcmp(v.p, format_magic, 8) != 0)
		return -EUCLEAN;
	*format = (uint32_t)get_le((const uint8_t *)v.p + 8, 4);
	*cluster_id = get_le((const uint8_t *)v.p + 12, 8);
	return 0;
}

int format_save(struct store_tx *tx, uint64_t cluster_id)
{
	uint8_t v[20];

	memcpy(v, format_magic, 8);
	put_le(v + 8, STORE_FORMAT, 4);
	put_le(v + 12, cluster_id, 8);
	return tx_put(tx, STORE_T_META, bytes_of(format_key, 6), bytes_of(v, sizeof(v)));
}

int store_open(struct store_tx *tx, uint64_t cluster_id, const char **why)
{
	const struct store_state fresh = {.generation = 1, .next_number = 1};
	struct store_state state;
	uint32_t format = 0;
	uint64_t cluster = 0;
	int rc = format_load(tx, &format, &cluster);

	*why = "the store's tables cannot be read";
	if (rc == -ENOENT) {
		*why = "the store cannot be formatted";
		rc = format_save(tx, cluster_id);
		return rc != 0 ? rc : state_save(tx, &fresh);
	}
	if (rc == -EUCLEAN) {
		*why = "the file is no tagcast store";
		return -EPROTO;
	}
	if (rc != 0)
		return rc;
	if (format != STORE_FORMAT) {
		*why = format > STORE_FORMAT ? "the store was written by a newer version"
					     : "the store has an unknown format";
		return -EPROTO;
	}
	if (cluster != cluster_id) {
		*why = "the store belongs to another cluster";
		return -EPROTO;
	}
	return state_load(tx, &state);
}

int store_set_generation(struct store_tx *tx, uint64_t generation)
{
	struct store_state state;
	const int rc = state_load(tx, &state);

	if (rc != 0)
		return rc;
	state.generation = generation;
	return state_save(tx, &state);
}

int state_load(struct store_tx *tx, struct store_state *state)
{
	struct store_bytes v;
	const int rc = tx_get(tx, STORE_T_META, bytes_of(state_key, 5), &v);

	return rc != 0 ? rc : state_decode(v, state);
}

bool state_is(struct store_bytes key, struct store_bytes value)
{
	return key.len == 5 && memcmp(key.p, state_key, 5) == 0 && value.len == STATE_BYTES;
}

void state_forget_generation(uint8_t value[STATE_BYTES])
{
	put_le(value + 24, 0, 8);
}

int state_decode(struct store_bytes v, struct store_state *state)
{
	if (v.len != STATE_BYTES)
		return -EUCLEAN;

	const uint8_t *p = v.p;

	*state = (struct store_state){
		.applied = get_le(p, 8),
		.commit = get_le(p + 8, 8),
		.chain = get_le(p + 16, 8),
		.generation = get_le(p + 24, 8),
		.next_number = get_le(p + 32, 8),
		.dedup_next = get_le(p + 40, 8),
		.dedup_count = get_le(p + 48, 8),
		.stages = (uint32_t)get_le(p + 56, 4),
	};
	return 0;
}

int state_save(struct store_tx *tx, const struct store_state *state)
{
	uint8_t p[STATE_BYTES];

	put_le(p, state->applied, 8);
	put_le(p + 8, state->commit, 8);
	put_le(p + 16, state->chain, 8);
	put_le(p + 24, state->generation, 8);
	put_le(p + 32, state->next_number, 8);
	put_le(p + 40, state->dedup_next, 8);
	put_le(p + 48, state->dedup_count, 8);
	put_le(p + 56, state->stages, 4);
	return tx_put(tx, STORE_T_META, bytes_of(state_key, 5), bytes_of(p, sizeof(p)));
}

// --- channels -------------------------------------------------------------------------------------------

uint32_t chan_key_bytes(const struct channel_key *key, uint8_t out[1 + ID_LEN_MAX])
{
	out[0] = key->type;
	memcpy(out + 1, key->bytes, key->len);
	return 1u + key->len;
}

int chan_decode(const struct channel_key *key, struct store_bytes value, struct store_chan *chan)
{
	const uint8_t *p = value.p;
	uint32_t at = CHAN_HEADER;

	if (value.len < CHAN_HEADER || p[0] != 1)
		return -EUCLEAN;
	chan->key = *key;
	chan->exists = true;
	chan->flags = p[1];
	chan->removed = p[2] != 0;
	chan->next_generation = (uint32_t)get_le(p + 4, 4);
	chan->number = get_le(p + 8, 8);
	chan->smv = get_le(p + 16, 8);
	chan->stage_id = get_le(p + 24, 8);
	for (uint32_t l = 0; l < STORE_LISTS; l++) {
		struct store_rowset *list = &chan->list[l];

		if (value.len - at < LIST_HEADER)
			return -EUCLEAN;
		list->count = get_le(p + at, 8);
		list->layers = p[at + 8];
		at += LIST_HEADER;
		if (list->layers > LAYERS_MAX || value.len - at < list->layers * LAYER_BYTES)
			return -EUCLEAN;
		for (uint32_t i = 0; i < list->layers; i++, at += LAYER_BYTES) {
			list->layer[i].generation = (uint32_t)get_le(p + at, 4);
			list->layer[i].rows = (uint32_t)get_le(p + at + 4, 4);
		}
	}
	return at == value.len ? 0 : -EUCLEAN;
}

static uint32_t chan_encode(const struct store_chan *chan, uint8_t p[CHAN_BYTES_MAX])
{
	uint32_t at = CHAN_HEADER;

	p[0] = 1;
	p[1] = chan->flags;
	p[2] = chan->removed;
	p[3] = 0;
	put_le(p + 4, chan->next_generation, 4);
	put_le(p + 8, chan->number, 8);
	put_le(p + 16, chan->smv, 8);
	put_le(p + 24, chan->stage_id, 8);
	for (uint32_t l = 0; l < STORE_LISTS; l++) {
		const struct store_rowset *list = &chan->list[l];

		put_le(p + at, list->count, 8);
		p[at + 8] = (uint8_t)list->layers;
		at += LIST_HEADER;
		for (uint32_t i = 0; i < list->layers; i++, at += LAYER_BYTES) {
			put_le(p + at, list->layer[i].generation, 4);
			put_le(p + at + 4, list->layer[i].rows, 4);
		}
	}
	return at;
}

int chan_load(struct store_tx *tx, const struct channel_key *key, struct store_chan *chan)
{
	uint8_t k[1 + ID_LEN_MAX];
	struct store_bytes v;
	const int rc = tx_get(tx, STORE_T_CHANNEL, bytes_of(k, chan_key_bytes(key, k)), &v);

	if (rc == -ENOENT) {
		memset(chan, 0, sizeof(*chan));
		chan->key = *key;
		chan->removed = true;
		return 0;
	}
	return rc != 0 ? rc : chan_decode(key, v, chan);
}

// A list with several generations is queued for merging, one with fewer is not.
static int chan_queue_merges(struct store_tx *tx, const struct store_chan *chan)
{
	uint8_t v[1 + ID_LEN_MAX];
	uint8_t k[10] = {'L'};
	const struct store_bytes value = bytes_of(v, chan_key_bytes(&chan->key, v));

	put_be(k + 1, chan->number, 8);
	for (uint8_t l = 0; l < STORE_LISTS; l++) {
		struct store_bytes old;

		k[9] = l;
		if (chan->list[l].layers < 2)
			continue;

		int rc = tx_get(tx, STORE_T_STAGE, bytes_of(k, sizeof(k)), &old);

		if (rc == -ENOENT)
			rc = tx_put(tx, STORE_T_STAGE, bytes_of(k, sizeof(k)), value);
		if (rc != 0)
			return rc;
	}
	return 0;
}

int chan_save(struct store_tx *tx, struct store_chan *chan)
{
	uint8_t k[1 + ID_LEN_MAX], v[CHAN_BYTES_MAX];
	const int rc = chan_queue_merges(tx, chan);

	chan->exists = true;
	return rc != 0 ? rc
		       : tx_put(tx, STORE_T_CHANNEL, bytes_of(k, chan_key_bytes(&chan->key, k)),
				 bytes_of(v, chan_encode(chan, v)));
}

int chan_erase(struct store_tx *tx, const struct store_chan *chan)
{
	uint8_t k[1 + ID_LEN_MAX];

	return tx_del(tx, STORE_T_CHANNEL, bytes_of(k, chan_key_bytes(&chan->key, k)));
}

// --- stages ---------------------------------------------------------------------------------------------

int stage_decode(struct store_bytes key, struct store_bytes value, struct store_stage *stage)
{
	const uint8_t *p = value.p;

	if (key.len != 9 || value.len < STAGE_HEADER || value.len != STAGE_HEADER + p[3])
		return -EUCLEAN;
	stage->id = get_be((const uint8_t *)key.p + 1, 8);
	stage->list = p[0];
	stage->op = p[1];
	stage->number = get_le(p + 4, 8);
	stage->index = get_le(p + 12, 8);
	stage->uids = get_le(p + 20, 8);
	stage->rows = (uint32_t)get_le(p + 28, 4);
	stage->kept = (uint32_t)get_le(p + 32, 4);
	stage->generation = (uint32_t)get_le(p + 36, 4);
	return channel_key_set(&stage->channel, p[2], p + STAGE_HEADER, p[3]) != 0 ? -EUCLEAN : 0;
}

static struct store_bytes stage_key(uint64_t id, uint8_t k[9])
{
	k[0] = 'S';
	put_be(k + 1, id, 8);
	return bytes_of(k, 9);
}

int stage_load(struct store_tx *tx, uint64_t id, struct store_stage *stage)
{
	uint8_t k[9];
	struct store_bytes v;
	const int rc = tx_get(tx, STORE_T_STAGE, stage_key(id, k), &v);

	return rc != 0 ? rc : stage_decode(bytes_of(k, 9), v, stage);
}

int stage_next(struct store_tx *tx, uint64_t id, struct store_stage *stage)
{
	uint8_t k[9];
	struct store_bytes key, v;
	const int rc = tx_seek(tx, STORE_T_STAGE, stage_key(id, k), false, &key, &v);

	if (rc != 0)
		return rc;
	return *(const uint8_t *)key.p == 'S' ? stage_decode(key, v, stage) : -ENOENT;
}

int stage_save(struct store_tx *tx, const struct store_stage *stage)
{
	uint8_t k[9], p[STAGE_HEADER + ID_LEN_MAX] = {0};

	p[0] = stage->list;
	p[1] = stage->op;
	p[2] = stage->channel.type;
	p[3] = stage->channel.len;
	put_le(p + 4, stage->number, 8);
	put_le(p + 12, stage->index, 8);
	put_le(p + 20, stage->uids, 8);
	put_le(p + 28, stage->rows, 4);
	put_le(p + 32, stage->kept, 4);
	put_le(p + 36, stage->generation, 4);
	memcpy(p + STAGE_HEADER, stage->channel.bytes, stage->channel.len);
	return tx_put(tx, STORE_T_STAGE, stage_key(stage->id, k),
		bytes_of(p, STAGE_HEADER + stage->channel.len));
}

int stage_erase(struct store_tx *tx, uint64_t id)
{
	uint8_t k[9];

	return tx_del(tx, STORE_T_STAGE, stage_key(id, k));
}
