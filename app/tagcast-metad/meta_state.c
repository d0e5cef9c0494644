/* SPDX-License-Identifier: BSD-3-Clause */
// Owns the LMDB handle. Run by the loop of the meta process; the only writer there is.
#include "meta_state.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sysexits.h>

#include "base_log.h"
#include "base_time.h"
#include "store_feed.h"

#define COMPACT_STEPS_TURN 512u  // rows a turn with commits works off on the side
#define COMPACT_STEPS_IDLE 4096u  // rows of a transaction made for it: about 5 ms

// Members of the channel after each delta of one batch, in commit order.
struct collected {
	struct meta_state *state;
	uint32_t count;
	uint64_t commit[META_BATCH_COMMANDS];
	uint64_t members[META_BATCH_COMMANDS];
};

static int exit_code_of(int rc)
{
	switch (rc) {
	case -EBUSY:
		return EX_TEMPFAIL;  // another writer lives
	case -EPROTO:
	case -EINVAL:
	case -EOPNOTSUPP:
		return EX_CONFIG;
	case -EACCES:
	case -EPERM:
		return EX_NOPERM;
	case -ENOENT:
	case -ENOTDIR:
		return EX_CANTCREAT;
	case -ENOMEM:
		return EX_OSERR;
	default:
		return EX_IOERR;
	}
}

// Formats or checks the store, and gives a new one a generation that no subscriber has seen.
static int format(
	struct meta_state *state, struct store_tx *tx, uint64_t cluster_id, const char **why)
{
	uint64_t generation = 0;
	int rc = store_read_position(tx, &state->position);
	const bool fresh = rc == -ENOENT;

	if (rc != 0 && !fresh)
		return rc;
	*why = "cannot read or format it";
	rc = store_open(tx, cluster_id, why);
	if (rc != 0)
		return rc;
	if (fresh) {
		while (generation == 0)
			if (getrandom(&generation, sizeof(generation), 0) != sizeof(generation))
				return -EIO;
		rc = store_set_generation(tx, generation >> 1 | 1);
		if (rc != 0)
			return rc;
	}
	return store_read_position(tx, &state->position);
}

int meta_state_open(struct meta_state *state, const char *dir, uint64_t map_bytes,
	uint64_t cluster_id, const char **why)
{
	static char text[512];
	const char *reason = "unknown fault";
	struct store_tx tx;
	int rc = store_lmdb_open(dir, map_bytes, true, true, &state->db, why);

	if (rc != 0)
		return exit_code_of(rc);
	rc = store_lmdb_begin(state->db, &tx);
	if (rc == 0) {
		rc = format(state, &tx, cluster_id, &reason);
		if (rc == 0)
			rc = store_lmdb_commit(state->db, &tx);
		else
			store_lmdb_abort(state->db, &tx);
	}
	if (rc != 0) {
		snprintf(text, sizeof(text), "%s: %s (%s)", dir, reason, strerror(-rc));
		*why = text;
		meta_state_close(state);
		return exit_code_of(rc);
	}
	state->compact = true;
	return 0;
}

void meta_state_close(struct meta_state *state)
{
	store_lmdb_close(state->db);
	state->db = NULL;
}

static void collect(void *ctx, const struct store_delta *delta)
{
	struct collected *c = ctx;

	c->state->delta_bytes += meta_state_delta_bytes(delta);
	if (c->count < META_BATCH_COMMANDS) {
		c->commit[c->count] = delta->commit;
		c->members[c->count++] = delta->members;
	}
}

// Fills in what the answers say of the channels: from the deltas, or by a look for what changed nothing.
static int fill_members(struct store_tx *tx, struct meta_batch *batch, const struct collected *c)
{
	uint32_t at = 0;

	for (uint32_t i = 0; i < batch->count; i++) {
		const struct store_result *r = &batch->result[i];
		struct store_channel channel = {.members = 0};
		int rc;

		batch->members[i] = 0;
		while (at < c->count && c->commit[at] < r->commit)
			at++;
		if (r->code == STORE_R_OK && !r->repeated && at < c->count &&
			c->commit[at] == r->commit) {
			batch->members[i] = c->members[at];
			continue;
		}
		if (batch->item[i].op == STORE_STAGE || batch->item[i].op == STORE_ABORT)
			continue;
		rc = store_read_channel(tx, &batch->item[i].m->key, &channel);
		if (rc != 0 && rc != -ENOENT)
			return rc;
		batch->members[i] = channel.removed ? 0 : channel.members;
	}
	return 0;
}

static int apply_one(
	struct meta_state *state, struct store_tx *tx, const struct cons_commit *commit) META_ONLY;
static int apply_one(
	struct meta_state *state, struct store_tx *tx, const struct cons_commit *commit)
{
	struct meta_batch *batch =
		commit->token == 0 ? NULL : meta_queue_batch(state->queue, commit->token);
	struct collected c = {.state = state};
	int rc = store_apply(tx, &state->limits, commit->index, commit->data, commit->len,
		batch != NULL ? batch->result : NULL, batch != NULL ? META_BATCH_COMMANDS : 0,
		collect, &c);

	if (rc < 0 || batch == NULL)
		return rc < 0 ? rc : 0;
	state->batches++;
	state->commands += batch->count;
	if ((uint32_t)rc != batch->count)
		return -EUCLEAN;
	return fill_members(tx, batch, &c);
}

// The transaction around all batches of a turn.
static int commit_all(
	struct meta_state *state, const struct cons_commit *commits, uint32_t count) META_ONLY;
static int commit_all(struct meta_state *state, const struct cons_commit *commits, uint32_t count)
{
	struct store_tx tx;
	int rc = store_lmdb_begin(state->db, &tx);

	if (rc != 0)
		return rc;
	for (uint32_t i = 0; i < count && rc == 0; i++)
		rc = apply_one(state, &tx, &commits[i]);
	if (rc == 0) {
		rc = store_compact(
			&tx, &state->limits, count == 0 ? COMPACT_STEPS_IDLE : COMPACT_STEPS_TURN);
		state->compact = rc > 0;
	}
	if (rc >= 0)
		rc = store_read_position(&tx, &state->position);
	if (rc != 0) {
		store_lmdb_abort(state->db, &tx);
		return rc;
	}
	return store_lmdb_commit(state->db, &tx);
}

int meta_state_commit(void *ctx, const struct cons_commit *commits, uint32_t count)
{
	struct meta_state *state = ctx;
	const uint64_t before = time_now_ns();
	uint64_t took;
	int rc;

	rc = commit_all(state, commits, count);
	took = time_now_ns() - before;
	if (took > state->commit_max_ns)
		state->commit_max_ns = took;
	state->transactions++;
	for (uint32_t i = 0; i < count && rc == 0; i++) {
		struct meta_batch *batch =
			commits[i].token == 0 ? NULL
					      : meta_queue_batch(state->queue, commits[i].token);

		if (batch != NULL)
			meta_queue_committed(state->queue, batch, state->now_ns);
	}
	if (rc != 0)
		LOG(LOG_ERROR, "store", "STORE_FAULT", "the store failed: %s%s", strerror(-rc),
			rc == -ENOSPC
				? " (disk or map full: make room, or start with a larger map size)"
				: "");
	return rc == 0 ? (int)count : rc;
}

void meta_state_result(void *ctx, uint64_t token, enum cons_status status, const char *why)
{
	struct meta_state *state = ctx;
	struct meta_batch *batch;

	(void)why;
	// What committed was answered with its results already.
	if (status == CONS_OK)
		return;
	batch = meta_queue_batch(state->queue, token);
	if (batch != NULL)
		meta_queue_refused(state->queue, batch, status);
}

int meta_state_compact(struct meta_state *state)
{
	return meta_state_commit(state, NULL, 0);
}

int meta_state_read(struct meta_state *state, struct store_tx *tx)
{
	return store_lmdb_read_begin(state->db, tx);
}

void meta_state_read_end(struct meta_state *state, struct store_tx *tx)
{
	store_lmdb_read_end(state->db, tx);
}
