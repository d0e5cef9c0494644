/* SPDX-License-Identifier: BSD-3-Clause */
// The LMDB environment of a store: opening, the writer's lock, transactions.
// Thread: whoever owns the struct store_lmdb; nothing here is shared between threads.
#include "store_lmdb_pvt.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base_time.h"

#define WHY_BYTES 512u
#define MAP_BYTES_MIN (1u << 20)
#define NFS_MAGIC 0x6969
#define FULL_BYTES (1u << 20)  // free bytes below which a failed write is taken for want of room

static _Thread_local char why_text[WHY_BYTES];

int lmdb_fail(const char **why, int rc, const char *dir, const char *what, const char *reason)
{
	snprintf(why_text, sizeof(why_text), "%.280s: %.60s: %.150s", dir, what, reason);
	*why = why_text;
	return rc;
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
		return lmdb_errno(rc);
	}
	lmdb_tx_give(&db->write, tx);
	return 0;
}

// LMDB tells a write that came out short, which is what a full disk makes of one, as an input error.
static bool disk_is_full(struct store_lmdb *db)
{
	struct statvfs fs;
	int fd;

	return mdb_env_get_fd(db->env, &fd) == 0 && fstatvfs(fd, &fs) == 0 &&
	       (uint64_t)fs.f_bavail * fs.f_frsize < FULL_BYTES;
}

int store_lmdb_commit(struct store_lmdb *db, struct store_tx *tx)
{
	lmdb_cursors_close(&db->write);

	const int rc = mdb_txn_commit(db->write.txn);

	db->write.txn = NULL;
	tx->tx = NULL;
	return rc == EIO && disk_is_full(db) ? -ENOSPC : lmdb_errno(rc);
}

void store_lmdb_abort(struct store_lmdb *db, struct store_tx *tx)
{
	lmdb_cursors_close(&db->write);
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
		lmdb_cursors_close(&db->read);
		if (db->read.txn != NULL)
			mdb_txn_abort(db->read.txn);
		db->read.txn = NULL;
		rc = mdb_env_set_mapsize(db->env, 0);
		if (rc == 0)
			rc = read_renew(db);
	}
	if (rc == 0) {
		lmdb_tx_give(&db->read, tx);
		db->read.began_ns = time_now_ns();
	}
	return lmdb_errno(rc);
}

void store_lmdb_read_end(struct store_lmdb *db, struct store_tx *tx)
{
	mdb_txn_reset(db->read.txn);
	tx->tx = NULL;
	lmdb_read_ended(db, db->read.began_ns);
}

int store_lmdb_sync(struct store_lmdb *db)
{
	return lmdb_errno(mdb_env_sync(db->env, 1));
}

// --- opening --------------------------------------------------------------------------------------------

static int lock_writer(struct store_lmdb *db, const char *dir, const char **why)
{
	char path[PATH_BYTES];

	if (mkdir(dir, 0700) != 0 && errno != EEXIST)
		return lmdb_fail(why, -errno, dir, "cannot create the folder", strerror(errno));
	if (snprintf(path, sizeof(path), "%s/writer.lock", dir) >= (int)sizeof(path))
		return lmdb_fail(why, -ENAMETOOLONG, dir, "cannot lock", "the path is too long");
	db->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (db->lock_fd < 0)
		return lmdb_fail(why, -errno, path, "cannot open the lock file", strerror(errno));
	if (flock(db->lock_fd, LOCK_EX | LOCK_NB) != 0)
		return lmdb_fail(why, errno == EWOULDBLOCK ? -EBUSY : -errno, path, "cannot lock",
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
		return lmdb_fail(why, -ENAMETOOLONG, dir, "cannot open", "the path is too long");
	if (stat(path, &st) != 0)
		return lmdb_fail(why, -errno, path, "cannot open", strerror(errno));
	if (st.st_size < 2 * sysconf(_SC_PAGESIZE))
		return lmdb_fail(why, -ENOENT, path, "cannot open", "not written yet");
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
		return lmdb_fail(why, lmdb_errno(rc), dir, "cannot create the environment",
			mdb_strerror(rc));
	if (statfs(dir, &fs) == 0 && fs.f_type == NFS_MAGIC)
		return lmdb_fail(
			why, -EOPNOTSUPP, dir, "cannot open", "a store must not lie on NFS");
	mdb_env_set_maxdbs(db->env, STORE_TABLES);
	rc = mdb_env_set_mapsize(db->env, (size_t)map_bytes);
	if (rc == 0)
		rc = mdb_env_open(db->env, dir, flags, 0600);
	if (rc != 0)
		return lmdb_fail(why, lmdb_errno(rc), dir, "cannot open", mdb_strerror(rc));
	rc = mdb_reader_check(db->env, &dead);
	if (rc != 0)
		return lmdb_fail(why, lmdb_errno(rc), dir, "cannot check the reader table",
			mdb_strerror(rc));
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
		return lmdb_fail(why, lmdb_errno(rc), dir, "cannot begin", mdb_strerror(rc));
	for (uint32_t t = 0; rc == 0 && t < STORE_TABLES; t++) {
		rc = mdb_dbi_open(txn, store_table_name((enum store_table)t),
			db->writer ? MDB_CREATE : 0, &db->dbi[t]);
		if (rc != 0)
			lmdb_fail(why, 0, dir, store_table_name((enum store_table)t),
				rc == MDB_NOTFOUND ? "no such table yet" : mdb_strerror(rc));
	}
	if (rc != 0) {
		mdb_txn_abort(txn);
		return lmdb_errno(rc);
	}
	rc = mdb_txn_commit(txn);
	return rc == 0 ? 0
		       : lmdb_fail(why, lmdb_errno(rc), dir, "cannot create tables",
				 mdb_strerror(rc));
}

int store_lmdb_open(const char *dir, uint64_t map_bytes, bool writer, bool sync,
	struct store_lmdb **out, const char **why)
{
	struct store_lmdb *db = calloc(1, sizeof(*db));
	int rc;

	*out = NULL;
	if (db == NULL)
		return lmdb_fail(why, -ENOMEM, dir, "cannot open", "no memory");
	db->lock_fd = -1;
	db->writer = writer;
	db->write.db = db;
	db->read.db = db;
	if (map_bytes < MAP_BYTES_MIN)
		rc = lmdb_fail(why, -EINVAL, dir, "cannot open", "the map is smaller than 1 MiB");
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
	assert(db->walkers == NULL);
	lmdb_cursors_close(&db->write);
	lmdb_cursors_close(&db->read);
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
		return lmdb_errno(rc);
	db->readers_cleared += (uint32_t)dead;
	*info = (struct store_lmdb_info){
		.map_bytes = env.me_mapsize,
		.used_bytes = (env.me_last_pgno + 1) * (uint64_t)stat.ms_psize,
		.readers = env.me_numreaders,
		.readers_max = env.me_maxreaders,
		.readers_cleared = db->readers_cleared,
		.long_reads = db->long_reads,
		.long_reads_other = db->long_reads_other,
		.long_walks = db->long_walks,
		.longest_read_ns = db->longest_read_ns,
	};
	return 0;
}
