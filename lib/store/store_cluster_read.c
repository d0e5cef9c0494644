/* SPDX-License-Identifier: BSD-3-Clause */
// Reading the cluster's tables. Thread: owner of the transaction, in any process.
#include "store_cluster_pvt.h"

static int decoded(int rc)
{
	return rc == -EINVAL ? -EUCLEAN : rc;
}

uint32_t runtime_key(uint32_t hash_slot, const struct channel_key *channel,
	uint8_t k[RUNTIME_KEY_PREFIX + 1 + ID_LEN_MAX])
{
	k[0] = 'C';
	put_be(k + 1, hash_slot, 2);
	return RUNTIME_KEY_PREFIX + chan_key_bytes(channel, k + RUNTIME_KEY_PREFIX);
}

int store_read_node(struct store_tx *tx, uint64_t id, struct store_node *node)
{
	uint8_t k[9] = {'N'};
	struct store_bytes v;
	int rc;

	put_be(k + 1, id, 8);
	rc = tx_get(tx, STORE_T_RUNTIME, bytes_of(k, sizeof(k)), &v);
	return rc != 0 ? rc : decoded(store_node_decode(v.p, v.len, node));
}

int store_read_next_node(struct store_tx *tx, uint64_t after, struct store_node *node)
{
	uint8_t k[9] = {'N'};
	struct store_bytes key, v;
	int rc;

	put_be(k + 1, after, 8);
	rc = tx_seek(tx, STORE_T_RUNTIME, bytes_of(k, sizeof(k)), true, &key, &v);
	if (rc != 0)
		return rc;
	if (*(const uint8_t *)key.p != 'N')
		return -ENOENT;
	return decoded(store_node_decode(v.p, v.len, node));
}

int store_read_slot(struct store_tx *tx, uint32_t slot, struct store_slot *out)
{
	uint8_t k[3] = {'S'};
	struct store_bytes v;
	int rc;

	if (slot > STORE_SLOTS_MAX)
		return -ENOENT;
	put_be(k + 1, slot, 2);
	rc = tx_get(tx, STORE_T_RUNTIME, bytes_of(k, sizeof(k)), &v);
	return rc != 0 ? rc : decoded(store_slot_decode(v.p, v.len, out));
}

int store_read_next_slot(struct store_tx *tx, uint32_t after, struct store_slot *out)
{
	uint8_t k[3] = {'S'};
	struct store_bytes key, v;
	int rc;

	if (after >= STORE_SLOTS_MAX)
		return -ENOENT;
	put_be(k + 1, after, 2);
	rc = tx_seek(tx, STORE_T_RUNTIME, bytes_of(k, sizeof(k)), true, &key, &v);
	if (rc != 0)
		return rc;
	if (*(const uint8_t *)key.p != 'S')
		return -ENOENT;
	return decoded(store_slot_decode(v.p, v.len, out));
}

int store_read_hash_slots(struct store_tx *tx, struct store_hash_slots *table)
{
	struct store_bytes v;
	const int rc = tx_get(tx, STORE_T_RUNTIME, bytes_of("H", 1), &v);

	return rc != 0 ? rc : decoded(store_hash_slots_decode(v.p, v.len, table));
}

int hash_slot_count(struct store_tx *tx, uint32_t *count)
{
	struct store_bytes v;
	const int rc = tx_get(tx, STORE_T_RUNTIME, bytes_of("H", 1), &v);

	if (rc != 0)
		return rc;
	if (v.len < 8)
		return -EUCLEAN;
	*count = (uint32_t)get_le((const uint8_t *)v.p + 4, 4);
	return *count == 0 || *count > HASH_SLOTS_MAX ? -EUCLEAN : 0;
}

int store_read_runtime(
	struct store_tx *tx, const struct channel_key *channel, struct store_runtime *runtime)
{
	uint8_t k[RUNTIME_KEY_PREFIX + 1 + ID_LEN_MAX];
	struct store_bytes v;
	uint32_t count, len;
	int rc = hash_slot_count(tx, &count);

	if (rc != 0)
		return rc;
	len = runtime_key(id_hash_slot(channel_key_id(channel), count), channel, k);
	rc = tx_get(tx, STORE_T_RUNTIME, bytes_of(k, len), &v);
	if (rc != 0)
		return rc;
	runtime->channel = *channel;
	return decoded(store_runtime_decode(v.p, v.len, runtime));
}

int store_read_next_runtime(struct store_tx *tx, uint32_t hash_slot,
	const struct channel_key *cursor, struct store_runtime *runtime)
{
	uint8_t k[RUNTIME_KEY_PREFIX + 1 + ID_LEN_MAX];
	struct store_bytes key, v;
	uint32_t len = RUNTIME_KEY_PREFIX;
	int rc;

	if (hash_slot >= HASH_SLOTS_MAX)
		return -ENOENT;
	if (cursor->type != 0) {
		len = runtime_key(hash_slot, cursor, k);
	} else {
		k[0] = 'C';
		put_be(k + 1, hash_slot, 2);
	}
	rc = tx_seek(tx, STORE_T_RUNTIME, bytes_of(k, len), true, &key, &v);
	if (rc != 0)
		return rc;
	if (key.len < RUNTIME_KEY_PREFIX || memcmp(key.p, k, RUNTIME_KEY_PREFIX) != 0)
		return -ENOENT;
	if (!cluster_row_valid(key, v))
		return -EUCLEAN;

	const uint8_t *p = key.p;

	channel_key_set(&runtime->channel, p[RUNTIME_KEY_PREFIX], p + RUNTIME_KEY_PREFIX + 1,
		(uint8_t)(key.len - RUNTIME_KEY_PREFIX - 1));
	return decoded(store_runtime_decode(v.p, v.len, runtime));
}

bool cluster_row_valid(struct store_bytes key, struct store_bytes value)
{
	struct store_hash_slots table;
	struct store_runtime runtime;
	struct channel_key channel;
	struct store_node node;
	struct store_slot slot;
	const uint8_t *k = key.p;

	switch (k[0]) {
	case 'C':
		return key.len >= RUNTIME_KEY_PREFIX + 2 &&
		       key.len <= RUNTIME_KEY_PREFIX + 1 + ID_LEN_MAX &&
		       get_be(k + 1, 2) < HASH_SLOTS_MAX &&
		       channel_key_set(&channel, k[RUNTIME_KEY_PREFIX], k + RUNTIME_KEY_PREFIX + 1,
			       (uint8_t)(key.len - RUNTIME_KEY_PREFIX - 1)) == 0 &&
		       store_runtime_decode(value.p, value.len, &runtime) == 0;
	case 'H':
		return key.len == 1 && store_hash_slots_decode(value.p, value.len, &table) == 0;
	case 'N':
		return key.len == 9 && store_node_decode(value.p, value.len, &node) == 0 &&
		       node.id == get_be(k + 1, 8);
	case 'S':
		return key.len == 3 && store_slot_decode(value.p, value.len, &slot) == 0 &&
		       slot.slot == get_be(k + 1, 2);
	default:
		return false;
	}
}
