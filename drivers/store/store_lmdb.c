/* SPDX-License-Identifier: BSD-3-Clause */
// The LMDB environment of a store: opening, the writer's lock, transactions, and the ops of lib/store.
// Thread: whoever owns the struct store_lmdb; nothing here is shared between threads.
//
// Cursors are kept: a reader's are renewed with its transaction, a writer's live as long as it. A seek
// that goes on from the key a cursor gave out last is one step of that cursor, which makes page reads
// walks instead of searches. After a write every position counts as lost.
#include "store_lmdb.h"

#include <errno.h>
#include <fcntl.h>
#include <lmdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define CURSORS 12u
#define WHY_BYTES 512u
#define PATH_BYTES 1024u
#define MAP_BYTES_MIN (1u << 20)
#define NFS_MAGIC 0x6969

struct lmdb_cursor {
	MDB_cursor *cursor;
	enum store_table table;
	uint64_t turn;  // transaction it was opened or renewed in
	uint64_t writes;  // value of lmdb_tx.writes when `key` was right
	MDB_val key;
};

// One open transaction.
struct lmdb_tx {
	struct store_lmdb *db;
	MDB_txn *txn;
	uint64_t turn, writes;
	uint32_t next;  // cursor to replace next
	struct lmdb_cursor cursor[CURSORS];
};

struct store_lmdb {
	MDB_env *env;
	MDB_dbi dbi[STORE_TABLES];
	int lock_fd;
	bool writer;
	uint32_t readers_cleared;
	struct lmdb_tx write, read;
};

static const char *const table_name[STORE_TABLES] = {
	[STORE_T_META] = "meta",
	[STORE_T_CHANNEL] = "channel",
	[STORE_T_MEMBER] = "member",
	[STORE_T_JOURNAL] = "journal",
	[STORE_T_DEDUP] = "dedup",
	[STORE_T_STAGE] = "stage",
	[STORE_T_RUNTIME] = "runtime",
};

static _Thread_local char why_text[WHY_BYTES];

static int fail(const char **why, int rc, const char *dir, const char *what, const char *reason)
{
	snprintf(why_text, sizeof(why_text), "%.280s: %.60s: %.150s", dir, what, reason);
	*why = why_text;
	return rc;
}

static int errno_of(int rc)
{
	switch (rc) {
	case MDB_SUCCESS:
		return 0;
	case MDB_NOTFOUND:
		return -ENOENT;
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

// --- ops ------------------------------------------------------------------------------------------------

static MDB_val val_of(struct store_bytes b)
{
	return (MDB_val){.mv_size = b.len, .mv_data = (void *)(uintptr_t)b.p};
}

static struct store_bytes bytes_of_val(const MDB_val *v)
{
	return (struct store_bytes){.p = v->mv_data, .len = (uint32_t)v->mv_size};
}

static int op_get(void *tx, enum store_table t, struct store_bytes key, struct store_bytes *value)
{
	struct lmdb_tx *x = tx;
	MDB_val k = val_of(key), v;
	const int rc = mdb_get(x->txn, x->db->dbi[t], &k, &v);

	if (rc == 0)
		*value = bytes_of_val(&v);
	return errno_of(rc);
}

static int op_put(void *tx, enum store_table t, struct store_bytes key, struct store_bytes value)
{
	struct lmdb_tx *x = tx;
	MDB_val k = val_of(key), v = val_of(value);

	x->writes++;
	return errno_of(mdb_put(x->txn, x->db->dbi[t], &k, &v, 0));
}

static int op_del(void *tx, enum store_table t, struct store_bytes key)
{
	struct lmdb_tx *x = tx;
	MDB_val k = val_of(key);

	x->writes++;
	return errno_of(mdb_del(x->txn, x->db->dbi[t], &k, NULL));
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
		return errno_of(rc);
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
		return errno_of(rc);
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
		return errno_of(rc);
	rc = mdb_cursor_get(c->cursor, &k, &v, MDB_SET_RANGE);
	if (rc == 0)
		rc = mdb_cursor_get(c->cursor, &k, &v, MDB_PREV);
	else if (rc == MDB_NOTFOUND)
		rc = mdb_cursor_get(c->cursor, &k, &v, MDB_LAST);
	return cursor_done(x, c, rc, k, v, key, value);
}

static const struct store_backend_ops lmdb_ops = {
	.get = op_get,
	.put = op_put,
	.del = op_del,
	.seek = op_seek,
	.seek_below = op_seek_below,
};

static void cursors_close(struct lmdb_tx *x)
{
	for (uint32_t i = 0; i < CURSORS; i++) {
		if (x->cursor[i].cursor != NULL)
			mdb_cursor_close(x->cursor[i].cursor);
		x->cursor[i] = (struct lmdb_cursor){0};
	}
}

static void tx_give(struct lmdb_tx *x, struct store_tx *tx)
{
	x->turn++;
	x->writes = 0;
	tx->ops = &lmdb_ops;
	tx->tx = x;
}

// --- transactions ---------------------------------------------------------------------------------------

int store_lmdb_begin(struct store_lmdb *db, struct store_tx *tx)
{
	if (!db->writer)
		return -EPERM;
	if (db->write.txn != NULL)
		return -EBUSY;

	const int rc = mdb_txn_begin(db->env, NULL, 0, &db->write.txn);

	if (rc != 0) {
		db->write.txn = NULL;
		return errno_of(rc);
	}
	tx_give(&db->write, tx);
	return 0;
}

int store_lmdb_commit(struct store_lmdb *db, struct store_tx *tx)
{
	cursors_close(&db->write);

	const int rc = mdb_txn_commit(db->write.txn);

	db->write.txn = NULL;
	tx->tx = NULL;
	return errno_of(rc);
}

void store_lmdb_abort(struct store_lmdb *db, struct store_tx *tx)
{
	cursors_close(&db->write);
	mdb_txn_abort(db->write.txn);
	db->write.txn = NULL;
	tx->tx = NULL;
}

static int read_renew(struct store_lmdb *db)
{
	if (db->read.txn != NULL)
		return mdb_txn_renew(db->read.txn);

	const int rc = mdb_txn_begin(db->env, NULL, MDB_RDONLY, &db->read.txn);

	if (rc != 0)
		db->read.txn = NULL;
	return rc;
}

int store_lmdb_read_begin(struct store_lmdb *db, struct store_tx *tx)
{
	int rc = read_renew(db);

	if (rc == MDB_MAP_RESIZED) {
		// Another process grew the map. Nothing of ours is open: take its size.
		cursors_close(&db->read);
		if (db->read.txn != NULL)
			mdb_txn_abort(db->read.txn);
		db->read.txn = NULL;
		rc = mdb_env_set_mapsize(db->env, 0);
		if (rc == 0)
			rc = read_renew(db);
	}
	if (rc == 0)
		tx_give(&db->read, tx);
	return errno_of(rc);
}

void store_lmdb_read_end(struct store_lmdb *db, struct store_tx *tx)
{
	mdb_txn_reset(db->read.txn);
	tx->tx = NULL;
}

// --- opening --------------------------------------------------------------------------------------------

static int lock_writer(struct store_lmdb *db, const char *dir, const char **why)
{
	char path[PATH_BYTES];

	if (mkdir(dir, 0700) != 0 && errno != EEXIST)
		return fail(why, -errno, dir, "cannot create the folder", strerror(errno));
	if (snprintf(path, sizeof(path), "%s/writer.lock", dir) >= (int)sizeof(path))
		return fail(why, -ENAMETOOLONG, dir, "cannot lock", "the path is too long");
	db->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (db->lock_fd < 0)
		return fail(why, -errno, path, "cannot open the lock file", strerror(errno));
	if (flock(db->lock_fd, LOCK_EX | LOCK_NB) != 0)
		return fail(why, errno == EWOULDBLOCK ? -EBUSY : -errno, path, "cannot lock",
			errno == EWOULDBLOCK ? "another process writes this store"
					     : strerror(errno));
	return 0;
}

// Before a reader may map the files: they exist and hold at least LMDB's two meta pages.
static int check_file(const char *dir, const char **why)
{
	char path[PATH_BYTES];
	struct stat st;

	if (snprintf(path, sizeof(path), "%s/data.mdb", dir) >= (int)sizeof(path))
		return fail(why, -ENAMETOOLONG, dir, "cannot open", "the path is too long");
	if (stat(path, &st) != 0)
		return fail(why, -errno, path, "cannot open", strerror(errno));
	if (st.st_size < 2 * sysconf(_SC_PAGESIZE))
		return fail(why, -ENOENT, path, "cannot open", "not written yet");
	return 0;
}

static int open_env(
	struct store_lmdb *db, const char *dir, uint64_t map_bytes, bool sync, const char **why)
{
	const unsigned flags = MDB_NOTLS | (db->writer ? 0 : MDB_RDONLY) | (sync ? 0 : MDB_NOSYNC);
	struct statfs fs;
	int dead = 0;
	int rc = mdb_env_create(&db->env);

	if (rc != 0)
		return fail(
			why, errno_of(rc), dir, "cannot create the environment", mdb_strerror(rc));
	if (statfs(dir, &fs) == 0 && fs.f_type == NFS_MAGIC)
		return fail(why, -EOPNOTSUPP, dir, "cannot open", "a store must not lie on NFS");
	mdb_env_set_maxdbs(db->env, STORE_TABLES);
	rc = mdb_env_set_mapsize(db->env, (size_t)map_bytes);
	if (rc == 0)
		rc = mdb_env_open(db->env, dir, flags, 0600);
	if (rc != 0)
		return fail(why, errno_of(rc), dir, "cannot open", mdb_strerror(rc));
	rc = mdb_reader_check(db->env, &dead);
	if (rc != 0)
		return fail(
			why, errno_of(rc), dir, "cannot check the reader table", mdb_strerror(rc));
	db->readers_cleared += (uint32_t)dead;
	return 0;
}

static int open_tables(struct store_lmdb *db, const char *dir, const char **why)
{
	MDB_txn *txn;
	int rc = mdb_txn_begin(db->env, NULL, db->writer ? 0 : MDB_RDONLY, &txn);

	if (rc == MDB_MAP_RESIZED) {
		rc = mdb_env_set_mapsize(db->env, 0);
		if (rc == 0)
			rc = mdb_txn_begin(db->env, NULL, db->writer ? 0 : MDB_RDONLY, &txn);
	}
	if (rc != 0)
		return fail(why, errno_of(rc), dir, "cannot begin", mdb_strerror(rc));
	for (uint32_t t = 0; rc == 0 && t < STORE_TABLES; t++) {
		rc = mdb_dbi_open(txn, table_name[t], db->writer ? MDB_CREATE : 0, &db->dbi[t]);
		if (rc != 0)
			fail(why, 0, dir, table_name[t],
				rc == MDB_NOTFOUND ? "no such table yet" : mdb_strerror(rc));
	}
	if (rc != 0) {
		mdb_txn_abort(txn);
		return errno_of(rc);
	}
	rc = mdb_txn_commit(txn);
	return rc == 0 ? 0 : fail(why, errno_of(rc), dir, "cannot create tables", mdb_strerror(rc));
}

int store_lmdb_open(const char *dir, uint64_t map_bytes, bool writer, bool sync,
	struct store_lmdb **out, const char **why)
{
	struct store_lmdb *db = calloc(1, sizeof(*db));
	int rc;

	*out = NULL;
	if (db == NULL)
		return fail(why, -ENOMEM, dir, "cannot open", "no memory");
	db->lock_fd = -1;
	db->writer = writer;
	db->write.db = db;
	db->read.db = db;
	if (map_bytes < MAP_BYTES_MIN)
		rc = fail(why, -EINVAL, dir, "cannot open", "the map is smaller than 1 MiB");
	else
		rc = writer ? lock_writer(db, dir, why) : check_file(dir, why);
	if (rc == 0)
		rc = open_env(db, dir, map_bytes, sync, why);
	if (rc == 0)
		rc = open_tables(db, dir, why);
	if (rc != 0) {
		store_lmdb_close(db);
		return rc;
	}
	*out = db;
	return 0;
}

void store_lmdb_close(struct store_lmdb *db)
{
	if (db == NULL)
		return;
	cursors_close(&db->write);
	cursors_close(&db->read);
	if (db->write.txn != NULL)
		mdb_txn_abort(db->write.txn);
	if (db->read.txn != NULL)
		mdb_txn_abort(db->read.txn);
	if (db->env != NULL)
		mdb_env_close(db->env);
	if (db->lock_fd >= 0)
		close(db->lock_fd);
	free(db);
}

int store_lmdb_info(struct store_lmdb *db, struct store_lmdb_info *info)
{
	MDB_envinfo env;
	MDB_stat stat;
	int dead = 0;
	int rc = mdb_reader_check(db->env, &dead);

	if (rc == 0)
		rc = mdb_env_info(db->env, &env);
	if (rc == 0)
		rc = mdb_env_stat(db->env, &stat);
	if (rc != 0)
		return errno_of(rc);
	db->readers_cleared += (uint32_t)dead;
	*info = (struct store_lmdb_info){
		.map_bytes = env.me_mapsize,
		.used_bytes = (env.me_last_pgno + 1) * (uint64_t)stat.ms_psize,
		.readers = env.me_numreaders,
		.readers_max = env.me_maxreaders,
		.readers_cleared = db->readers_cleared,
	};
	return 0;
}
