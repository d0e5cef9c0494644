/* SPDX-License-Identifier: BSD-3-Clause */
// Owns a read-only map of the current generation. Thread: the reader's one.
#include "store_follow.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "store_gen_pvt.h"

#define OPEN_TRIES 4u

struct store_follow {
	struct store_lmdb *db;  // NULL: none open
	uint64_t map_bytes;
	struct stat seen;  // of `current` when db was opened
	bool plain;  // db is a store that lies in the folder itself, without generations
	char current[PATH_BYTES];
	char dir[PATH_BYTES];
	char store[PATH_BYTES];
};

int store_follow_open(const char *dir, uint64_t map_bytes, struct store_follow **follow)
{
	struct store_follow *f = calloc(1, sizeof(*f));

	*follow = f;
	if (f == NULL)
		return -ENOMEM;
	f->map_bytes = map_bytes;
	// A path cut off here leads to nothing, and so to -EAGAIN.
	snprintf(f->dir, sizeof(f->dir), "%.1000s", dir);
	snprintf(f->store, sizeof(f->store), "%.1000s/store", dir);
	snprintf(f->current, sizeof(f->current), "%.1000s/store/current", dir);
	return 0;
}

void store_follow_drop(struct store_follow *follow)
{
	store_lmdb_close(follow->db);
	follow->db = NULL;
}

void store_follow_close(struct store_follow *follow)
{
	if (follow == NULL)
		return;
	store_follow_drop(follow);
	free(follow);
}

static bool same_file(const struct stat *a, const struct stat *b)
{
	return a->st_ino == b->st_ino && a->st_dev == b->st_dev && a->st_size == b->st_size &&
	       a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

// Opens what `current` names. It may be replaced and its folder removed between any two steps: then there is
// another one by now.
static int open_current(struct store_follow *f)
{
	char path[PATH_BYTES];
	uint64_t number;
	const char *why;
	int rc = -EAGAIN;

	for (uint32_t i = 0; i < OPEN_TRIES; i++) {
		if (stat(f->current, &f->seen) != 0)
			return errno == ENOENT || errno == ENOTDIR ? -ENOENT : -errno;
		rc = current_load(f->store, &number);
		if (rc == 0)
			rc = generation_path(f->store, number, path, sizeof(path));
		if (rc == 0)
			rc = store_lmdb_open(path, f->map_bytes, false, true, &f->db, &why);
		if (rc != -ENOENT)
			return rc;
	}
	return -EAGAIN;
}

static int open_any(struct store_follow *f)
{
	const char *why;
	int rc = open_current(f);

	f->plain = rc == -ENOENT;
	if (f->plain)
		rc = store_lmdb_open(f->dir, f->map_bytes, false, true, &f->db, &why);
	return rc == -ENOENT ? -EAGAIN : rc;
}

int store_follow_begin(struct store_follow *follow, struct store_tx *tx)
{
	struct stat now;

	if (follow->db != NULL) {
		const bool there = stat(follow->current, &now) == 0;

		if (there != !follow->plain || (there && !same_file(&now, &follow->seen)))
			store_follow_drop(follow);
	}
	if (follow->db == NULL) {
		const int rc = open_any(follow);

		if (rc != 0)
			return rc;
	}
	return store_lmdb_read_begin(follow->db, tx);
}

void store_follow_end(struct store_follow *follow, struct store_tx *tx)
{
	store_lmdb_read_end(follow->db, tx);
}
