/* SPDX-License-Identifier: BSD-3-Clause */
// A new generation beside the one in use: built from a snapshot in steps, made current on disk by the last
// of them, swapped in by the owner. Thread: steps in a pool thread, all else the owner's.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base_file.h"
#include "store_gen_pvt.h"
#include "store_snapshot.h"

#define ROWS_STEP 32768u

enum load_phase { LOAD_CHECK, LOAD_ROWS, LOAD_SYNC, LOAD_PUBLISH, LOAD_DONE };

struct store_gen_load {
	const struct store_gen *gen;  // read only: its folder, limits and boot id do not change
	uint64_t number;
	enum load_phase phase;
	bool published;
	const char *why;
	struct store_lmdb *db;
	_Atomic uint64_t rows;
	struct store_snapshot_load load;
	char path[PATH_BYTES];
};

struct store_gen_old {
	char dir[PATH_BYTES / 2];
	uint64_t number;
	struct store_lmdb *db;
};

int store_gen_load_begin(struct store_gen *gen, const uint8_t *bytes, uint64_t len,
	struct store_gen_load **load, const char **why)
{
	struct store_gen_load *l;
	int rc;

	*load = NULL;
	*why = "a snapshot is being loaded already";
	if (gen->loading)
		return -EBUSY;
	*why = "no memory";
	l = calloc(1, sizeof(*l));
	if (l == NULL)
		return -ENOMEM;
	l->gen = gen;
	l->number = gen->number + 1;
	rc = store_snapshot_load_begin(&l->load, bytes, len, why);
	if (rc == 0 && l->load.check.info.cluster_id != gen->cluster_id) {
		*why = "the snapshot is of another cluster";
		rc = -EPROTO;
	}
	if (rc == 0)
		rc = generation_path(gen->dir, l->number, l->path, sizeof(l->path));
	if (rc != 0) {
		free(l);
		return rc;
	}
	gen->loading = true;
	*load = l;
	return 0;
}

static int step_check(struct store_gen_load *l)
{
	const struct store_gen *g = l->gen;
	int rc = store_snapshot_load_step(&l->load, NULL, ROWS_STEP, &l->why);

	if (rc != 0 || !l->load.checked)
		return rc;
	rc = generation_remove(g->dir, l->number);  // what a killed load left
	l->why = "the new folder cannot be cleared";
	if (rc == 0)
		rc = store_lmdb_open(l->path, g->map_bytes, true, false, &l->db, &l->why);
	l->phase = LOAD_ROWS;
	return rc;
}

static int step_rows(struct store_gen_load *l)
{
	struct store_tx tx;
	int done, rc = store_lmdb_begin(l->db, &tx);

	l->why = "the new store cannot be written";
	if (rc != 0)
		return rc;
	done = rc = store_snapshot_load_step(&l->load, &tx, ROWS_STEP, &l->why);
	if (rc == 1)
		rc = generation_stamp(&tx);
	if (rc < 0) {
		store_lmdb_abort(l->db, &tx);
		return rc;
	}
	l->why = "the new store cannot be written";
	rc = store_lmdb_commit(l->db, &tx);
	atomic_store_explicit(&l->rows, l->load.rows.rows, memory_order_relaxed);
	if (rc == 0 && done == 1)
		l->phase = LOAD_SYNC;
	return rc;
}

static int step_sync(struct store_gen_load *l)
{
	const struct store_gen *g = l->gen;
	int rc = store_lmdb_sync(l->db);

	l->why = "the new store cannot be made durable";
	if (rc == 0)
		rc = boot_save(l->path, g->sync ? BOOT_SYNC : BOOT_DIRTY, g->boot_id);
	if (rc == 0)
		rc = file_sync_folder(g->dir);
	l->phase = LOAD_PUBLISH;
	return rc;
}

int store_gen_load_step(struct store_gen_load *load)
{
	int rc = 0;

	switch (load->phase) {
	case LOAD_CHECK:
		return step_check(load);
	case LOAD_ROWS:
		return step_rows(load);
	case LOAD_SYNC:
		return step_sync(load);
	case LOAD_PUBLISH:
		// It may be in force also when this fails behind the rename: no way back from here.
		load->published = true;
		load->why = "`current` cannot be written";
		rc = current_save(load->gen->dir, load->number);
		if (rc == 0)
			load->phase = LOAD_DONE;
		return rc == 0 ? 1 : rc;
	case LOAD_DONE:
		break;
	}
	return 1;
}

const char *store_gen_load_why(const struct store_gen_load *load)
{
	return load->why != NULL ? load->why : "";
}

uint64_t store_gen_load_rows(const struct store_gen_load *load)
{
	return atomic_load_explicit(&load->rows, memory_order_relaxed);
}

void store_gen_finish(
	struct store_gen *gen, struct store_gen_load *load, struct store_gen_old **old)
{
	struct store_gen_old *o = calloc(1, sizeof(*o));

	// Without memory the folder stays until the next start, and its map open.
	if (o != NULL) {
		strcpy(o->dir, gen->dir);
		o->number = gen->number;
		o->db = gen->db;
	}
	*old = o;
	gen->db = load->db;
	gen->number = load->number;
	gen->origin = STORE_GEN_LOADED;
	gen->loading = false;
	free(load);
}

int store_gen_load_cancel(struct store_gen *gen, struct store_gen_load *load)
{
	if (load->published)
		return -EBUSY;
	store_lmdb_close(load->db);
	(void)generation_remove(gen->dir, load->number);
	gen->loading = false;
	free(load);
	return 0;
}

int store_gen_drop(struct store_gen_old *old)
{
	int rc;

	if (old == NULL)
		return 0;
	if (atomic_load(&old->db->walker_count) != 0)
		return -EBUSY;
	store_lmdb_close(old->db);
	rc = generation_remove(old->dir, old->number);
	free(old);
	return rc;
}
