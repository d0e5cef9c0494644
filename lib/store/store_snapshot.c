/* SPDX-License-Identifier: BSD-3-Clause */
// Encoding: one walk over the tables in key order into pieces for a sink. Thread: owner of the read
// transaction.
#include "store_snapshot_pvt.h"

#include <stdlib.h>

#include "store_crc.h"

// Bytes that wait for the sink.
struct out {
	const struct store_snapshot_sink *sink;
	uint8_t *buf;
	uint32_t used, crc;
	uint64_t bytes, rows;
};

static int out_flush(struct out *o)
{
	const int rc = o->used == 0 ? 0 : o->sink->write(o->sink->ctx, o->buf, o->used);

	o->crc = store_crc32c(o->crc, o->buf, o->used);
	o->bytes += o->used;
	o->used = 0;
	return rc;
}

static inline uint8_t *put_number(uint8_t *p, uint32_t v)
{
	while (v >= 0x80) {
		*p++ = (uint8_t)(v | 0x80);
		v >>= 7;
	}
	*p++ = (uint8_t)v;
	return p;
}

static uint32_t shared_bytes(struct store_bytes a, struct store_bytes b)
{
	const uint8_t *x = a.p, *y = b.p;
	const uint32_t max = a.len < b.len ? a.len : b.len;
	uint32_t n = 0;

	while (n < max && x[n] == y[n])
		n++;
	return n;
}

static int put_row(struct out *o, struct store_bytes last_key, struct store_bytes last_value,
	struct store_bytes key, struct store_bytes value)
{
	const uint32_t shared = shared_bytes(last_key, key);
	uint8_t *const start = o->buf + o->used;
	uint8_t *p = put_number(start, key.len - shared);

	if (key.len == shared || key.len > KEY_BYTES_MAX || value.len > VALUE_BYTES_MAX)
		return -EUCLEAN;
	p = put_number(p, shared);
	memcpy(p, (const uint8_t *)key.p + shared, key.len - shared);
	p += key.len - shared;
	if (value.len == last_value.len && last_value.p != NULL &&
		memcmp(value.p, last_value.p, value.len) == 0) {
		*p++ = 0;
	} else {
		p = put_number(p, value.len + 1);
		memcpy(p, value.p, value.len);
		p += value.len;
	}
	o->used += (uint32_t)(p - start);
	o->rows++;
	return 0;
}

static void put_bytes(struct out *o, const void *p, uint32_t len)
{
	memcpy(o->buf + o->used, p, len);
	o->used += len;
}

// One table: its number, its rows, a zero. Rows of META go out with the generation taken out.
static int put_table(struct out *o, struct store_tx *tx, enum store_table t)
{
	const uint8_t open = (uint8_t)(t + 1), close = 0;
	struct store_bytes last_key = {NULL, 0}, last_value = {NULL, 0}, key, value;
	uint8_t state[STATE_BYTES];
	int rc = out_flush(o);

	put_bytes(o, &open, 1);
	if (rc == 0)
		rc = tx_seek(tx, t, bytes_of("", 1), false, &key, &value);
	while (rc == 0) {
		if (t == STORE_T_META && state_is(key, value)) {
			memcpy(state, value.p, sizeof(state));
			state_forget_generation(state);
			value = bytes_of(state, sizeof(state));
		}
		if (STORE_SNAPSHOT_CHUNK - o->used < ROW_BYTES_MAX)
			rc = out_flush(o);
		if (rc == 0)
			rc = put_row(o, last_key, last_value, key, value);
		last_key = key;
		last_value = value;
		if (rc == 0)
			rc = tx_seek(tx, t, last_key, true, &key, &value);
	}
	put_bytes(o, &close, 1);
	return rc == -ENOENT ? 0 : rc;
}

static void put_header(struct out *o, uint64_t cluster_id, const struct store_state *state,
	const struct store_limits *limits)
{
	uint8_t p[SNAPSHOT_HEADER] = {0};

	memcpy(p, SNAPSHOT_MAGIC, 8);
	put_le(p + 8, SNAPSHOT_VERSION, 4);
	put_le(p + 12, STORE_FORMAT, 4);
	put_le(p + 16, cluster_id, 8);
	put_le(p + 24, state->applied, 8);
	put_le(p + 32, state->commit, 8);
	put_le(p + 40, state->chain, 8);
	put_le(p + 48, limits->dedup_commits, 8);
	put_le(p + 56, limits->stage_commits, 8);
	put_le(p + 64, limits->stages, 4);
	put_le(p + 68, limits->fold_rows == 0 ? FOLD_ROWS : limits->fold_rows, 4);
	put_bytes(o, p, sizeof(p));
}

static int put_trailer(struct out *o)
{
	uint8_t p[8 + SNAPSHOT_TRAILER] = {0};
	const uint64_t at = o->bytes + o->used + 1;
	const uint32_t pad = 1 + (uint32_t)(-at & 7);

	put_bytes(o, p, pad);
	put_le(p, o->rows, 8);
	put_le(p + 8, o->bytes + o->used + SNAPSHOT_TRAILER, 8);
	memcpy(p + 16, SNAPSHOT_END, 8);
	put_bytes(o, p, SNAPSHOT_TRAILER - 4);
	put_le(p, store_crc32c(o->crc, o->buf, o->used), 4);
	put_bytes(o, p, 4);
	return out_flush(o);
}

static int encode(struct out *o, struct store_tx *tx, const struct store_limits *limits,
	struct store_snapshot_info *info)
{
	struct store_state state;
	uint64_t cluster_id;
	uint32_t format;
	int rc = format_load(tx, &format, &cluster_id);

	if (rc == 0)
		rc = state_load(tx, &state);
	if (rc != 0)
		return rc == -ENOENT ? -EUCLEAN : rc;
	put_header(o, cluster_id, &state, limits);
	for (uint32_t t = 0; rc == 0 && t < STORE_TABLES; t++)
		if (t != STORE_T_JOURNAL)
			rc = put_table(o, tx, t);
	if (rc == 0)
		rc = out_flush(o);
	if (rc == 0)
		rc = put_trailer(o);
	if (rc != 0 || info == NULL)
		return rc;
	*info = (struct store_snapshot_info){.cluster_id = cluster_id,
		.applied = state.applied,
		.commit = state.commit,
		.chain = state.chain,
		.limits = *limits,
		.rows = o->rows,
		.bytes = o->bytes};
	info->limits.journal_commits = 0;
	if (info->limits.fold_rows == 0)
		info->limits.fold_rows = FOLD_ROWS;
	return 0;
}

int store_snapshot_encode(struct store_tx *tx, const struct store_limits *limits,
	const struct store_snapshot_sink *sink, struct store_snapshot_info *info)
{
	struct out o = {.sink = sink, .buf = malloc(STORE_SNAPSHOT_CHUNK)};

	if (o.buf == NULL)
		return -ENOMEM;

	const int rc = encode(&o, tx, limits, info);

	free(o.buf);
	return rc;
}
