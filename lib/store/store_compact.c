/* SPDX-License-Identifier: BSD-3-Clause */
// Work that may wait: dead rows, generations to merge, old deltas. Each step leaves every view as it
// was. Thread: owner of the write transaction.
#include "store_pvt.h"

// Finds the first queue entry of a kind and copies its key. Returns: 1, 0: none, -errno.
static int queue_first(
	struct store_tx *tx, uint8_t kind, uint32_t key_len, uint8_t *k, struct store_bytes *value)
{
	struct store_bytes key;
	const int rc = tx_seek(tx, STORE_T_STAGE, bytes_of(&kind, 1), false, &key, value);

	if (rc == -ENOENT || (rc == 0 && *(const uint8_t *)key.p != kind))
		return 0;
	if (rc != 0)
		return rc;
	if (key.len != key_len)
		return -EUCLEAN;
	memcpy(k, key.p, key_len);
	return 1;
}

// Deletes rows of the first dead generation. Returns: steps used, 0: no dead rows, -errno.
static int drop_dead(struct store_tx *tx, uint32_t steps)
{
	uint8_t k[1 + ROW_PREFIX];
	struct row_key prefix, row;
	struct store_bytes key, v;
	int rc = queue_first(tx, 'G', sizeof(k), k, &v);

	if (rc <= 0)
		return rc;
	memcpy(prefix.bytes, k + 1, ROW_PREFIX);
	prefix.len = 0;
	for (uint32_t done = 0; done < steps; done++) {
		rc = tx_seek(tx, STORE_T_MEMBER, row_bytes(&prefix), false, &key, &v);
		if (rc == -ENOENT || (rc == 0 && !row_in(&prefix, key))) {
			rc = tx_del(tx, STORE_T_STAGE, bytes_of(k, sizeof(k)));
			return rc != 0 ? rc : (int)done + 1;
		}
		if (rc == 0) {
			memcpy(row.bytes, key.p, key.len);
			rc = tx_del(tx, STORE_T_MEMBER, bytes_of(row.bytes, key.len));
		}
		if (rc != 0)
			return rc;
	}
	return (int)steps;
}

// Merges generations of the first queued list. Returns: steps used, 0: none queued, -errno.
static int merge_queued(struct store_tx *tx, uint32_t steps)
{
	uint8_t k[10];
	struct store_bytes v;
	struct channel_key key;
	struct store_chan chan;
	int rc = queue_first(tx, 'L', sizeof(k), k, &v);

	if (rc <= 0)
		return rc;

	const uint8_t *p = v.p;

	if (v.len < 2 || v.len > 1 + ID_LEN_MAX || k[9] >= STORE_LISTS ||
		channel_key_set(&key, p[0], p + 1, (uint8_t)(v.len - 1)) != 0)
		return -EUCLEAN;
	rc = chan_load(tx, &key, &chan);
	if (rc != 0)
		return rc;

	const int done = rows_merge(tx, &chan, k[9], steps);

	if (done < 0)
		return done;
	if (chan.list[k[9]].layers < 2)
		rc = tx_del(tx, STORE_T_STAGE, bytes_of(k, sizeof(k)));
	if (rc == 0 && done != 0)
		rc = chan_save(tx, &chan);
	return rc != 0 ? rc : done + 1;
}

// Deletes deltas beyond what is kept (apply does it one for one; this catches up after a lower limit).
static int trim_journal(struct store_tx *tx, const struct store_limits *limits, uint32_t steps)
{
	struct store_state state;
	uint32_t done = 0;
	int rc = state_load(tx, &state);

	for (; rc == 0 && done < steps; done++) {
		uint8_t k[8] = {0};
		struct store_bytes key, v;

		rc = tx_seek(tx, STORE_T_JOURNAL, bytes_of(k, 8), false, &key, &v);
		if (rc == 0 && key.len != 8)
			return -EUCLEAN;
		if (rc != 0 || state.commit - get_be(key.p, 8) < limits->journal_commits)
			break;
		memcpy(k, key.p, 8);
		rc = tx_del(tx, STORE_T_JOURNAL, bytes_of(k, 8));
	}
	return rc == 0 || rc == -ENOENT ? (int)done : rc;
}

int store_compact(struct store_tx *tx, const struct store_limits *limits, uint32_t steps)
{
	uint32_t done = 0;

	while (done < steps) {
		int rc = drop_dead(tx, steps - done);

		if (rc == 0)
			rc = merge_queued(tx, steps - done);
		if (rc == 0)
			rc = trim_journal(tx, limits, steps - done);
		if (rc < 0)
			return rc;
		if (rc == 0)
			break;
		done += (uint32_t)rc;
	}
	return (int)done;
}
