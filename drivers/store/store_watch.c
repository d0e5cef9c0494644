/* SPDX-License-Identifier: BSD-3-Clause */
// The walk that another thread reads, and the watchdog over everything that reads for long.
// Thread: the owner of the store_lmdb, but for a walker's tx and end.
#include "store_lmdb_pvt.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base_log.h"
#include "base_time.h"

// --- walker ---------------------------------------------------------------------------------------------

int store_lmdb_walker_open(struct store_lmdb *db, struct store_lmdb_walker **walker)
{
	struct store_lmdb_walker *w = calloc(1, sizeof(*w));

	*walker = NULL;
	if (w == NULL)
		return -ENOMEM;

	const int rc = mdb_txn_begin(db->env, NULL, MDB_RDONLY, &w->read.txn);

	if (rc != 0) {
		free(w);
		return lmdb_errno(rc);
	}
	w->read.db = db;
	w->read.began_ns = time_now_ns();
	atomic_store(&w->began_ns, w->read.began_ns);
	w->next = db->walkers;
	db->walkers = w;
	atomic_fetch_add(&db->walker_count, 1);
	*walker = w;
	return 0;
}

void store_lmdb_walker_tx(struct store_lmdb_walker *walker, struct store_tx *tx)
{
	lmdb_tx_give(&walker->read, tx);
}

void store_lmdb_walker_end(struct store_lmdb_walker *walker)
{
	if (walker->read.txn == NULL)
		return;
	lmdb_cursors_close(&walker->read);
	mdb_txn_abort(walker->read.txn);
	walker->read.txn = NULL;
	atomic_store(&walker->began_ns, 0);
}

void store_lmdb_walker_close(struct store_lmdb *db, struct store_lmdb_walker *walker)
{
	struct store_lmdb_walker **link = &db->walkers;

	if (walker == NULL)
		return;
	store_lmdb_walker_end(walker);
	while (*link != walker)
		link = &(*link)->next;
	*link = walker->next;
	free(walker);
	atomic_fetch_sub(&db->walker_count, 1);
}

// --- watchdog -------------------------------------------------------------------------------------------

void lmdb_read_ended(struct store_lmdb *db, uint64_t began_ns)
{
	const uint64_t took = time_now_ns() - began_ns;

	if (took > db->longest_read_ns)
		db->longest_read_ns = took;
	if (took <= STORE_READ_MAX_NS)
		return;
	db->long_reads++;
	LOG(LOG_WARN, "store", "READ_LONG", "a read of the store was open for %llu ms",
		(unsigned long long)(took / NS_PER_MS));
}

static uint32_t watch_walkers(struct store_lmdb *db, uint64_t now_ns)
{
	uint32_t found = 0;

	for (struct store_lmdb_walker *w = db->walkers; w != NULL; w = w->next) {
		const uint64_t began = atomic_load(&w->began_ns);

		if (began == 0 || now_ns < began || now_ns - began <= STORE_WALK_MAX_NS)
			continue;
		found++;
		if (w->told)
			continue;
		w->told = true;
		db->long_walks++;
		LOG(LOG_WARN, "store", "WALK_LONG",
			"a snapshot reads the store for %llu s: the file grows meanwhile",
			(unsigned long long)((now_ns - began) / NS_PER_S));
	}
	return found;
}

struct reader_search {
	long own, pid;
	unsigned long long before, txn;  // looks for one that reads a commit older than `before`
};

// Gets the reader table as text, line by line or several at once: "pid thread txnid", "-" for none.
static int reader_line(const char *text, void *ctx)
{
	struct reader_search *s = ctx;
	unsigned long long txn;
	long pid;

	for (; text != NULL && *text != 0; text = strchr(text, '\n')) {
		text += *text == '\n';
		if (sscanf(text, "%ld %*s %llu", &pid, &txn) == 2 && pid != s->own &&
			txn < s->before && (s->pid == 0 || txn < s->txn)) {
			s->pid = pid;
			s->txn = txn;
		}
	}
	return 0;
}

// A reader that still sees a commit older than the newest one of the last look has read since then: one
// begun later would see at least that.
static uint32_t watch_others(struct store_lmdb *db, uint64_t now_ns)
{
	struct reader_search s = {.own = getpid(), .before = db->watched_txn};
	MDB_envinfo env;

	if (db->watched_ns != 0 && now_ns - db->watched_ns < STORE_READ_MAX_NS)
		return 0;
	if (mdb_env_info(db->env, &env) != 0 || mdb_reader_list(db->env, reader_line, &s) < 0)
		return 0;
	db->watched_ns = now_ns;
	db->watched_txn = env.me_last_txnid;
	if (s.pid == 0)
		return 0;
	if (s.pid != db->told_pid || s.txn != db->told_txn) {
		db->told_pid = s.pid;
		db->told_txn = s.txn;
		db->long_reads_other++;
		LOG(LOG_WARN, "store", "READER_LONG",
			"process %ld reads the store for more than %llu ms: the file grows "
			"meanwhile",
			s.pid, (unsigned long long)(STORE_READ_MAX_NS / NS_PER_MS));
	}
	return 1;
}

uint32_t store_lmdb_watch(struct store_lmdb *db, uint64_t now_ns)
{
	return watch_walkers(db, now_ns) + watch_others(db, now_ns);
}
