/* SPDX-License-Identifier: BSD-3-Clause */
// Reading a snapshot: the strict row parser, the check in steps, loading in steps. Thread: any one at a
// time; the loader's is the owner of the write transaction.
#include "store_snapshot_pvt.h"

#include "store_crc.h"

#define SEEN_FORMAT 1u
#define SEEN_STATE 2u

// --- rows -----------------------------------------------------------------------------------------------

static void rows_begin(struct store_snapshot_rows *r, const uint8_t *bytes, uint64_t len)
{
	r->p = bytes + SNAPSHOT_HEADER;
	r->end = bytes + len - SNAPSHOT_TRAILER;
	r->began = r->ended = false;
	r->rows = 0;
	r->key_len = 0;
	r->value = bytes_of(NULL, 0);
}

// A LEB128 number of at most 17 bits, in as few bytes as can be. Returns: false when it is none.
static bool number(struct store_snapshot_rows *r, uint32_t *v)
{
	*v = 0;
	for (uint32_t shift = 0; shift < 21 && r->p < r->end; shift += 7) {
		const uint8_t b = *r->p++;

		*v |= (uint32_t)(b & 0x7f) << shift;
		if (b < 0x80)
			return b != 0 || shift == 0;
	}
	return false;
}

// The table that follows the current one, or the end of all. Returns: 0: at a table; 1 the end; -EUCLEAN.
static int next_table(struct store_snapshot_rows *r)
{
	uint32_t want = r->began ? r->table + 1u : STORE_T_META;

	want += want == STORE_T_JOURNAL;
	if (want < STORE_TABLES) {
		if (r->p >= r->end || *r->p++ != want + 1)
			return -EUCLEAN;
		r->table = (uint8_t)want;
		r->began = true;
		r->key_len = 0;
		r->value = bytes_of(NULL, 0);
		return 0;
	}
	if (r->end - r->p < 1 || r->end - r->p > 8)
		return -EUCLEAN;
	while (r->p < r->end)
		if (*r->p++ != 0)
			return -EUCLEAN;
	r->ended = true;
	return 1;
}

static bool row_key_next(struct store_snapshot_rows *r, uint32_t suffix)
{
	uint32_t shared;

	if (!number(r, &shared) || shared > r->key_len || suffix > KEY_BYTES_MAX - shared ||
		suffix > (uint64_t)(r->end - r->p))
		return false;
	// Shared as far as can be, so this one byte decides the order of the two keys.
	if (shared < r->key_len && *r->p <= r->key[shared])
		return false;
	memcpy(r->key + shared, r->p, suffix);
	r->p += suffix;
	r->key_len = shared + suffix;
	return true;
}

static bool row_value_next(struct store_snapshot_rows *r)
{
	uint32_t len;

	if (!number(r, &len))
		return false;
	if (len == 0)
		return r->value.p != NULL;
	len--;
	if (len > VALUE_BYTES_MAX || len > (uint64_t)(r->end - r->p))
		return false;
	// What equals the value before is written as 0, so that one state has one form.
	if (r->value.p != NULL && r->value.len == len && memcmp(r->value.p, r->p, len) == 0)
		return false;
	r->value = bytes_of(r->p, len);
	r->p += len;
	return true;
}

// Returns: 1 with a row in r; 0 at the end; -EUCLEAN.
static int rows_next(struct store_snapshot_rows *r)
{
	uint32_t suffix = 0;

	while (!r->ended) {
		if (r->began && !number(r, &suffix))
			return -EUCLEAN;
		if (r->began && suffix != 0) {
			if (!row_key_next(r, suffix) || !row_value_next(r))
				return -EUCLEAN;
			r->rows++;
			return 1;
		}
		if (next_table(r) < 0)
			return -EUCLEAN;
	}
	return 0;
}

// --- check ----------------------------------------------------------------------------------------------

static int refuse(const char **why, int rc, const char *text)
{
	*why = text;
	return rc;
}

int store_snapshot_check_begin(
	struct store_snapshot_check *c, const uint8_t *bytes, uint64_t len, const char **why)
{
	const uint8_t *const tail = bytes + len - SNAPSHOT_TRAILER;

	memset(c, 0, sizeof(*c));
	if (len < STORE_SNAPSHOT_BYTES_MIN || len % 8 != 0)
		return refuse(why, -EUCLEAN, "the snapshot is cut short");
	if (memcmp(bytes, SNAPSHOT_MAGIC, 8) != 0)
		return refuse(why, -EUCLEAN, "not a snapshot");
	if (get_le(bytes + 8, 4) != SNAPSHOT_VERSION || get_le(bytes + 12, 4) != STORE_FORMAT)
		return refuse(why, -EPROTO, "the snapshot is of another version");
	if (memcmp(tail + 16, SNAPSHOT_END, 8) != 0 || get_le(tail + 8, 8) != len)
		return refuse(why, -EUCLEAN, "the snapshot is cut short");
	c->bytes = bytes;
	c->len = len;
	c->info = (struct store_snapshot_info){.cluster_id = get_le(bytes + 16, 8),
		.applied = get_le(bytes + 24, 8),
		.commit = get_le(bytes + 32, 8),
		.chain = get_le(bytes + 40, 8),
		.limits.dedup_commits = get_le(bytes + 48, 8),
		.limits.stage_commits = get_le(bytes + 56, 8),
		.limits.stages = (uint32_t)get_le(bytes + 64, 4),
		.limits.fold_rows = (uint32_t)get_le(bytes + 68, 4),
		.rows = get_le(tail, 8),
		.bytes = len};
	rows_begin(&c->rows, bytes, len);
	return 0;
}

// The two rows of META say what the header says.
static bool meta_fits(struct store_snapshot_check *c, struct store_bytes key, struct store_bytes v)
{
	const struct store_snapshot_info *i = &c->info;
	struct store_state state;
	uint64_t cluster_id;
	uint32_t format;

	if (state_is(key, v)) {
		c->seen |= SEEN_STATE;
		return state_decode(v, &state) == 0 && state.applied == i->applied &&
		       state.commit == i->commit && state.chain == i->chain &&
		       state.generation == 0;
	}
	if (format_decode(key, v, &format, &cluster_id) != 0)
		return false;
	c->seen |= SEEN_FORMAT;
	return format == STORE_FORMAT && cluster_id == i->cluster_id;
}

static int check_rows(struct store_snapshot_check *c, uint32_t budget, const char **why)
{
	struct store_snapshot_rows *r = &c->rows;
	const uint8_t *const until =
		(uint64_t)(r->end - r->p) > budget ? r->p + budget : r->end + 1;

	while (r->p < until) {
		const int rc = rows_next(r);
		const struct store_bytes key = bytes_of(r->key, r->key_len);

		if (rc < 0)
			return refuse(why, rc, "the snapshot's rows are damaged");
		if (rc == 0) {
			if (r->rows != c->info.rows || c->seen != (SEEN_FORMAT | SEEN_STATE))
				return refuse(why, -EUCLEAN, "the snapshot's rows are incomplete");
			return 1;
		}
		if (!row_valid(r->table, key, r->value) ||
			(r->table == STORE_T_META && !meta_fits(c, key, r->value)))
			return refuse(why, -EUCLEAN, "the snapshot holds a row that is none");
	}
	return 0;
}

int store_snapshot_check_step(struct store_snapshot_check *c, uint32_t budget, const char **why)
{
	const uint64_t covered = c->len - 4, left = covered - c->crc_at;
	const uint64_t now = left < budget ? left : budget;

	if (left == 0)
		return check_rows(c, budget < 64 ? 64 : budget, why);
	c->crc = store_crc32c(c->crc, c->bytes + c->crc_at, now);
	c->crc_at += now;
	if (c->crc_at == covered && c->crc != get_le(c->bytes + covered, 4))
		return refuse(why, -EUCLEAN, "the snapshot's checksum is wrong");
	return 0;
}

int store_snapshot_check(
	const uint8_t *bytes, uint64_t len, struct store_snapshot_info *info, const char **why)
{
	struct store_snapshot_check c;
	int rc = store_snapshot_check_begin(&c, bytes, len, why);

	while (rc == 0)
		rc = store_snapshot_check_step(&c, UINT32_MAX, why);
	if (rc == 1)
		*info = c.info;
	return rc == 1 ? 0 : rc;
}

int store_snapshot_fits(const struct store_snapshot_info *info, uint64_t cluster_id,
	const struct store_limits *limits, const char **why)
{
	const struct store_limits *made = &info->limits;

	if (info->cluster_id != cluster_id)
		return refuse(why, -EPROTO, "the snapshot is of another cluster");
	if (made->dedup_commits != limits->dedup_commits)
		return refuse(why, -EPROTO, "the snapshot was made with another dedup_commits");
	if (made->stages != limits->stages || made->stage_commits != limits->stage_commits)
		return refuse(why, -EPROTO, "the snapshot was made with other limits of stages");
	if (made->fold_rows != (limits->fold_rows == 0 ? FOLD_ROWS : limits->fold_rows))
		return refuse(why, -EPROTO, "the snapshot was made with another fold_rows");
	return 0;
}

// --- load -----------------------------------------------------------------------------------------------

int store_snapshot_load_begin(
	struct store_snapshot_load *l, const uint8_t *bytes, uint64_t len, const char **why)
{
	const int rc = store_snapshot_check_begin(&l->check, bytes, len, why);

	l->checked = false;
	if (rc == 0)
		rows_begin(&l->rows, bytes, len);
	return rc;
}

int store_snapshot_load_step(
	struct store_snapshot_load *l, struct store_tx *tx, uint32_t rows, const char **why)
{
	struct store_snapshot_rows *r = &l->rows;

	if (!l->checked) {
		const uint64_t bytes = (uint64_t)rows * 64;
		const int rc = store_snapshot_check_step(
			&l->check, bytes > UINT32_MAX ? UINT32_MAX : (uint32_t)bytes, why);

		l->checked = rc == 1;
		return rc == 1 ? 0 : rc;
	}
	for (uint32_t n = 0; n < rows; n++) {
		int rc = rows_next(r);

		if (rc < 0)
			return refuse(why, rc, "the snapshot's rows are damaged");
		if (rc == 0)
			return 1;
		rc = tx_append(tx, r->table, bytes_of(r->key, r->key_len), r->value);
		if (rc != 0)
			return refuse(why, rc,
				rc == -EEXIST ? "the store to load into is not empty"
					      : "the store cannot be written");
	}
	return 0;
}
