/* SPDX-License-Identifier: BSD-3-Clause */
// Whether a row could have been written by lib/store: for bytes that come from elsewhere. Pure.
#include "store_cluster_pvt.h"
#include "store_snapshot_pvt.h"

static bool channel_bytes(const uint8_t *p, uint32_t len, struct channel_key *key)
{
	return len >= 2 && len <= 1 + ID_LEN_MAX &&
	       channel_key_set(key, p[0], p + 1, (uint8_t)(len - 1)) == 0;
}

static bool channel_row(struct store_bytes key, struct store_bytes value)
{
	struct channel_key name;
	struct store_chan chan;

	return channel_bytes(key.p, key.len, &name) && chan_decode(&name, value, &chan) == 0;
}

static bool member_row(struct store_bytes key, struct store_bytes value)
{
	const uint8_t *k = key.p, *v = value.p;

	return key.len > ROW_PREFIX && key.len <= ROW_PREFIX + ID_LEN_MAX && k[8] < STORE_LISTS &&
	       value.len == 1 && v[0] <= 1;
}

static bool dedup_row(struct store_bytes key, struct store_bytes value)
{
	const uint8_t kind = *(const uint8_t *)key.p;

	if (kind == 'K')
		return key.len == 1 + STORE_DEDUP_BYTES && value.len == DEDUP_RECORD_BYTES;
	return kind == 'O' && key.len == 9 && value.len == DEDUP_ORDER_BYTES;
}

static bool stage_row(struct store_bytes key, struct store_bytes value)
{
	const uint8_t *k = key.p;
	struct store_stage stage;
	struct channel_key name;

	switch (k[0]) {
	case 'S':
		return stage_decode(key, value, &stage) == 0;
	case 'G':
		return key.len == 1 + ROW_PREFIX && k[9] < STORE_LISTS && value.len <= 1;
	case 'L':
		return key.len == 10 && k[9] < STORE_LISTS &&
		       channel_bytes(value.p, value.len, &name);
	default:
		return false;
	}
}

bool row_valid(enum store_table t, struct store_bytes key, struct store_bytes value)
{
	struct store_state state;
	uint64_t cluster_id;
	uint32_t format;

	if (key.len == 0 || key.len > KEY_BYTES_MAX || value.len > VALUE_BYTES_MAX)
		return false;
	switch (t) {
	case STORE_T_META:
		return (state_is(key, value) && state_decode(value, &state) == 0) ||
		       format_decode(key, value, &format, &cluster_id) == 0;
	case STORE_T_CHANNEL:
		return channel_row(key, value);
	case STORE_T_MEMBER:
		return member_row(key, value);
	case STORE_T_DEDUP:
		return dedup_row(key, value);
	case STORE_T_STAGE:
		return stage_row(key, value);
	case STORE_T_RUNTIME:
		return cluster_row_valid(key, value);
	case STORE_T_JOURNAL:
	case STORE_TABLES:
		break;
	}
	return false;
}
