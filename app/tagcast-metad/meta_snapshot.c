/* SPDX-License-Identifier: BSD-3-Clause */
// Snapshots of the store for the consensus, and back: a restore builds a new generation in the pool and
// swaps it in, so that no turn waits for it. Run by the loop; encoding and building by other threads.
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base_log.h"
#include "base_time.h"
#include "meta_state_pvt.h"
#include "store_snapshot.h"

#define DROP_RETRY_US 50000

struct snapshot {
	struct store_lmdb *db;  // of the generation it is of
	struct store_lmdb_walker *walker;
	struct store_limits limits;
};

// --- out ----------------------------------------------------------------------------------------------------

int meta_snapshot_begin(void *ctx, void **out)
{
	struct meta_state *state = ctx;
	struct snapshot *snapshot = calloc(1, sizeof(*snapshot));
	int rc;

	if (snapshot == NULL)
		return -EBUSY;  // asked again later
	snapshot->db = state->db;
	snapshot->limits = state->limits;
	rc = store_lmdb_walker_open(state->db, &snapshot->walker);
	if (rc != 0) {
		free(snapshot);
		return rc;
	}
	state->snapshots++;
	*out = snapshot;
	return 0;
}

int meta_snapshot_encode(void *ctx, const struct cons_sink *sink)
{
	struct snapshot *snapshot = ctx;
	const struct store_snapshot_sink out = {.write = sink->write, .ctx = sink->ctx};
	struct store_tx tx;
	int rc;

	store_lmdb_walker_tx(snapshot->walker, &tx);
	rc = store_snapshot_encode(&tx, &snapshot->limits, &out, NULL);
	store_lmdb_walker_end(snapshot->walker);
	return rc;
}

void meta_snapshot_end(void *ctx, void *done)
{
	struct snapshot *snapshot = done;

	(void)ctx;
	store_lmdb_walker_close(snapshot->db, snapshot->walker);
	free(snapshot);
}

// --- in -----------------------------------------------------------------------------------------------------

// The limits that decide results are those the group's state was made with, whatever this node's
// configuration says: else two nodes would make different states of one log.
static void adopt_limits(struct meta_state *state, const struct store_limits *limits)
{
	struct store_limits *own = &state->limits;
	const bool same =
		own->dedup_commits == limits->dedup_commits && own->stages == limits->stages &&
		own->stage_commits == limits->stage_commits && own->fold_rows == limits->fold_rows;

	if (same)
		return;
	if (!state->limits_said)
		LOG(LOG_WARN, "store", "STORE_LIMITS",
			"this group was made with dedup_commits %llu, stages %u, stage_commits "
			"%llu: "
			"they stay in force, whatever is configured here",
			(unsigned long long)limits->dedup_commits, limits->stages,
			(unsigned long long)limits->stage_commits);
	state->limits_said = true;
	own->dedup_commits = limits->dedup_commits;
	own->stages = limits->stages;
	own->stage_commits = limits->stage_commits;
	own->fold_rows = limits->fold_rows;
}

int meta_snapshot_check(
	void *ctx, const uint8_t *bytes, uint64_t len, uint64_t *index, const char **why)
{
	struct meta_state *state = ctx;
	struct store_snapshot_info info;
	const int rc = store_snapshot_check(bytes, len, &info, why);

	if (rc != 0)
		return rc;
	if (info.cluster_id != state->cluster_id) {
		*why = "the snapshot is of another cluster";
		return -EPROTO;
	}
	// Before the group runs this is the loop's thread, and nothing was applied yet.
	if (!state->running)
		adopt_limits(state, &info.limits);
	*index = info.applied;
	return 0;
}

struct meta_restore {
	struct meta_job job;
	struct meta_state *state;
	struct store_gen_load *load;
	atomic_int rc;  // 0: runs
	bool returned;  // the pool is through with it
	uint64_t began_ns;
};

static void restore_run(struct meta_job *job)
{
	struct meta_restore *restore = (struct meta_restore *)job;
	int rc;

	do
		rc = store_gen_load_step(restore->load);
	while (rc == 0);
	atomic_store(&restore->rc, rc);
}

static void restore_returned(struct meta_job *job)
{
	((struct meta_restore *)job)->returned = true;
}

int meta_restore_begin(void *ctx, const uint8_t *bytes, uint64_t len)
{
	struct meta_state *state = ctx;
	struct meta_restore *restore = calloc(1, sizeof(*restore));
	const char *why = "no memory";
	struct store_snapshot_check check;
	int rc = restore == NULL ? -ENOMEM : store_snapshot_check_begin(&check, bytes, len, &why);

	if (rc == 0)
		rc = store_gen_load_begin(state->gen, bytes, len, &restore->load, &why);
	if (rc == 0)
		adopt_limits(state, &check.info.limits);
	if (rc != 0) {
		LOG(LOG_ERROR, "store", "STORE_RESTORE", "cannot take the snapshot: %s", why);
		free(restore);
		return rc;
	}
	LOG(LOG_INFO, "store", "STORE_RESTORE",
		"building a new store from a snapshot of %llu bytes", (unsigned long long)len);
	restore->state = state;
	restore->began_ns = time_now_ns();
	restore->job.run = restore_run;
	restore->job.done = restore_returned;
	state->restore = restore;
	meta_pool_submit(state->pool, META_LONG, &restore->job);
	return 0;
}

struct drop_job {
	struct meta_job job;
	struct meta_state *state;
	struct store_gen_old *old;
	int rc;
};

static void drop_run(struct meta_job *job)
{
	struct drop_job *drop = (struct drop_job *)job;

	drop->rc = store_gen_drop(drop->old);
	if (drop->rc == -EBUSY)
		usleep(DROP_RETRY_US);
}

static void drop_done(struct meta_job *job) META_ONLY;
static void drop_done(struct meta_job *job)
{
	struct drop_job *drop = (struct drop_job *)job;

	// A walk over it goes on: behind whatever else the lane has to do, which is what walks.
	if (drop->rc == -EBUSY && drop->state->pool != NULL)
		meta_pool_submit(drop->state->pool, META_LONG, &drop->job);
	else
		free(drop);
}

static int swap_in(struct meta_state *state, struct meta_restore *restore) META_ONLY;
static int swap_in(struct meta_state *state, struct meta_restore *restore)
{
	struct drop_job *drop = calloc(1, sizeof(*drop));
	int rc;

	if (drop == NULL)
		return -ENOMEM;
	store_gen_finish(state->gen, restore->load, &drop->old);
	rc = meta_state_adopt(state);
	drop->state = state;
	drop->job.run = drop_run;
	drop->job.done = drop_done;
	meta_pool_submit(state->pool, META_LONG, &drop->job);
	if (rc != 0)
		return rc;
	state->restores++;
	LOG(LOG_INFO, "store", "STORE_RESTORED", "new store at commit %llu after %llu ms",
		(unsigned long long)state->position.commit,
		(unsigned long long)((time_now_ns() - restore->began_ns) / NS_PER_MS));
	if (state->on_generation != NULL)
		state->on_generation(state->ctx);
	return 1;
}

int meta_restore_turn(void *ctx)
{
	struct meta_state *state = ctx;
	struct meta_restore *restore = state->restore;
	int rc;

	if (!restore->returned)
		return 0;
	rc = atomic_load(&restore->rc);
	if (rc < 0)
		LOG(LOG_ERROR, "store", "STORE_RESTORE",
			"the new store could not be built: %s (%s)",
			store_gen_load_why(restore->load), strerror(-rc));
	else
		rc = swap_in(state, restore);
	state->restore = NULL;
	free(restore);
	return rc;
}

bool meta_restore_rows(const struct meta_state *state, uint64_t *rows)
{
	if (state->restore == NULL)
		return false;
	*rows = store_gen_load_rows(state->restore->load);
	return true;
}
