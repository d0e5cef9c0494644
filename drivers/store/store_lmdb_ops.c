/* SPDX-License-Identifier: BSD-3-Clause */
// The ops of lib/store over an LMDB transaction. Thread: the owner of the transaction.
//
// Cursors are kept: a reader's are renewed with its transaction, a writer's live as long as it. A seek
// that goes on from the key a cursor gave out last is one step of that cursor, which makes page reads
// walks instead of searches. After a write every position counts as lost.
#include "store_lmdb_pvt.h"

#include <errno.h>
#include <string.h>

int lmdb_errno(int rc)
{
	switch (rc) {
	case MDB_SUCCESS:
		return 0;
	case MDB_NOTFOUND:
		return -ENOENT;
	case MDB_KEYEXIST:
		return -EEXIST;
	case MDB_MAP_FULL:
		return -ENOSPC;
	case MDB_READERS_FULL:
		return -EUSERS;
	case MDB_TXN_FULL:
		return -EFBIG;
	case MDB_VERSION_MISMATCH:
		return -EPROTO;
	case MDB_INVALID:
	case MDB_CORRUPTED:
	case MDB_PAGE_NOTFOUND:
		return -EUCLEAN;
	case MDB_BAD_VALSIZE:
		return -EINVAL;
	default:
		return rc > 0 ? -rc : -EIO;
	}
}

static MDB_val val_of(struct store_bytes b)
{
	return (MDB_val){.mv_size = b.len, .mv_data = (void *)(uintptr_t)b.p};
}

static struct store_bytes bytes_of_val(const MDB_val *v)
{
	return (struct store_bytes){.p = v->mv_data, .len = (uint32_t)v->mv_size};
}

// Where single keys of the table are handled: NULL when by the plain calls. Readers seek instead.
static MDB_cursor *point_for(struct lmdb_tx *x, enum store_table t, struct store_bytes key, int *rc)
{
	struct lmdb_point *oldest = &x->point[0];

	*rc = 0;
	if (t != STORE_T_MEMBER || key.len < POINT_BYTES || x != &x->db->write)
		return NULL;
	x->point_uses++;
	for (uint32_t i = 0; i < POINTS; i++) {
		struct lmdb_point *p = &x->point[i];

		if (p->cursor != NULL && memcmp(p->run, key.p, POINT_BYTES) == 0) {
			p->used = x->point_uses;
			return p->cursor;
		}
		if (p->used < oldest->used)
			oldest = p;
	}
	if (oldest->cursor == NULL)
		*rc = mdb_cursor_open(x->txn, x->db->dbi[t], &oldest->cursor);
	memcpy(oldest->run, key.p, POINT_BYTES);
	oldest->used = x->point_uses;
	return *rc == 0 ? oldest->cursor : NULL;
}

static int op_get(void *tx, enum store_table t, struct store_bytes key, struct store_bytes *value)
{
	struct lmdb_tx *x = tx;
	MDB_val k = val_of(key), v;
	int rc;
	MDB_cursor *point = point_for(x, t, key, &rc);

	if (rc == 0)
		rc = point != NULL ? mdb_cursor_get(point, &k, &v, MDB_SET)
				   : mdb_get(x->txn, x->db->dbi[t], &k, &v);
	if (rc == 0)
		*value = bytes_of_val(&v);
	return lmdb_errno(rc);
}

static int put(struct lmdb_tx *x, enum store_table t, struct store_bytes key,
	struct store_bytes value, unsigned flags)
{
	MDB_val k = val_of(key), v = val_of(value);
	int rc;
	MDB_cursor *point = point_for(x, t, key, &rc);

	x->writes++;
	if (rc == 0)
		rc = point != NULL ? mdb_cursor_put(point, &k, &v, flags)
				   : mdb_put(x->txn, x->db->dbi[t], &k, &v, flags);
	return lmdb_errno(rc);
}

static int op_put(void *tx, enum store_table t, struct store_bytes key, struct store_bytes value)
{
	return put(tx, t, key, value, 0);
}

static int op_insert(void *tx, enum store_table t, struct store_bytes key, struct store_bytes value)
{
	return put(tx, t, key, value, MDB_NOOVERWRITE);
}

static int op_del(void *tx, enum store_table t, struct store_bytes key)
{
	struct lmdb_tx *x = tx;
	MDB_val k = val_of(key), v;
	int rc;
	MDB_cursor *point = point_for(x, t, key, &rc);

	x->writes++;
	if (rc != 0 || point == NULL)
		return lmdb_errno(rc != 0 ? rc : mdb_del(x->txn, x->db->dbi[t], &k, NULL));
	rc = mdb_cursor_get(point, &k, &v, MDB_SET);
	return lmdb_errno(rc != 0 ? rc : mdb_cursor_del(point, 0));
}

// A usable cursor on table t: one that stands at `key` when there is one, else any of it, else another
// one opened or re-opened. NULL with *rc set.
static struct lmdb_cursor *cursor_for(
	struct lmdb_tx *x, enum store_table t, struct store_bytes key, bool *stands, int *rc)
{
	struct lmdb_cursor *c;

	*stands = false;
	*rc = 0;
	for (uint32_t i = 0; i < CURSORS; i++) {
		c = &x->cursor[i];
		if (c->turn == x->turn && c->writes == x->writes && c->table == t &&
			c->key.mv_data == key.p && c->key.mv_size == key.len) {
			*stands = true;
			return c;
		}
	}
	// The tables but MEMBER are looked at one key at a time; only there several walks interleave.
	if (t == STORE_T_MEMBER)
		x->next = (x->next + 1) % (CURSORS - STORE_TABLES);
	c = &x->cursor[t == STORE_T_MEMBER ? STORE_TABLES + x->next : (uint32_t)t];
	if (c->cursor == NULL)
		*rc = mdb_cursor_open(x->txn, x->db->dbi[t], &c->cursor);
	else if (c->turn != x->turn)
		*rc = mdb_cursor_renew(x->txn, c->cursor);
	c->table = t;
	c->turn = x->turn;
	c->key.mv_data = NULL;
	return *rc == 0 ? c : NULL;
}

static bool val_is(const MDB_val *v, struct store_bytes key)
{
	return v->mv_size == key.len && memcmp(v->mv_data, key.p, key.len) == 0;
}

static int cursor_done(struct lmdb_tx *x, struct lmdb_cursor *c, int rc, MDB_val k, MDB_val v,
	struct store_bytes *key, struct store_bytes *value)
{
	c->key = k;
	c->writes = x->writes;
	if (rc != 0) {
		c->key.mv_data = NULL;
		return lmdb_errno(rc);
	}
	*key = bytes_of_val(&k);
	*value = bytes_of_val(&v);
	return 0;
}

static int op_seek(void *tx, enum store_table t, struct store_bytes from, bool after,
	struct store_bytes *key, struct store_bytes *value)
{
	struct lmdb_tx *x = tx;
	MDB_val k = val_of(from), v;
	bool stands;
	int rc;
	struct lmdb_cursor *c = cursor_for(x, t, from, &stands, &rc);

	if (c == NULL)
		return lmdb_errno(rc);
	if (stands && after) {
		rc = mdb_cursor_get(c->cursor, &k, &v, MDB_NEXT);
	} else {
		rc = mdb_cursor_get(c->cursor, &k, &v, MDB_SET_RANGE);
		if (rc == 0 && after && val_is(&k, from))
			rc = mdb_cursor_get(c->cursor, &k, &v, MDB_NEXT);
	}
	return cursor_done(x, c, rc, k, v, key, value);
}

static int op_seek_below(void *tx, enum store_table t, struct store_bytes before,
	struct store_bytes *key, struct store_bytes *value)
{
	struct lmdb_tx *x = tx;
	MDB_val k = val_of(before), v;
	bool stands;
	int rc;
	struct lmdb_cursor *c = cursor_for(x, t, before, &stands, &rc);

	if (c == NULL)
		return lmdb_errno(rc);
	rc = mdb_cursor_get(c->cursor, &k, &v, MDB_SET_RANGE);
	if (rc == 0)
		rc = mdb_cursor_get(c->cursor, &k, &v, MDB_PREV);
	else if (rc == MDB_NOTFOUND)
		rc = mdb_cursor_get(c->cursor, &k, &v, MDB_LAST);
	return cursor_done(x, c, rc, k, v, key, value);
}

// Through the table's cursor, which stays at the end of it.
static int op_append(void *tx, enum store_table t, struct store_bytes key, struct store_bytes value)
{
	const struct store_bytes none = {NULL, 0};
	struct lmdb_tx *x = tx;
	MDB_val k = val_of(key), v = val_of(value);
	bool stands;
	int rc;
	struct lmdb_cursor *c = cursor_for(x, t, none, &stands, &rc);

	if (c == NULL)
		return lmdb_errno(rc);
	x->writes++;
	return lmdb_errno(mdb_cursor_put(c->cursor, &k, &v, MDB_APPEND));
}

static const struct store_backend_ops lmdb_ops = {
	.get = op_get,
	.put = op_put,
	.del = op_del,
	.seek = op_seek,
	.seek_below = op_seek_below,
	.append = op_append,
	.insert = op_insert,
};

void lmdb_cursors_close(struct lmdb_tx *x)
{
	for (uint32_t i = 0; i < CURSORS; i++) {
		if (x->cursor[i].cursor != NULL)
			mdb_cursor_close(x->cursor[i].cursor);
		x->cursor[i] = (struct lmdb_cursor){0};
	}
	for (uint32_t i = 0; i < POINTS; i++) {
		if (x->point[i].cursor != NULL)
			mdb_cursor_close(x->point[i].cursor);
		x->point[i] = (struct lmdb_point){0};
	}
}

void lmdb_tx_give(struct lmdb_tx *x, struct store_tx *tx)
{
	x->turn++;
	x->writes = 0;
	tx->ops = &lmdb_ops;
	tx->tx = x;
}
