/* SPDX-License-Identifier: BSD-3-Clause */
// Owns the store. Run by the loop of the meta process; the only writer there is.
#include "meta_state.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base_log.h"
#include "base_time.h"
#include "meta_exit.h"
#include "meta_state_pvt.h"
#include "store_cluster.h"

#define COMPACT_STEPS_TURN 256u  // rows worked off between two looks at the clock

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
		return META_EXIT_FOREIGN;
	case -EINVAL:
	case -EOPNOTSUPP:
		return EX_CONFIG;
	case -EACCES:
	case -EPERM:
		return EX_NOPERM;
	case -ENOENT:
	case -ENOTDIR:
	case -EROFS:
		return EX_CANTCREAT;
	case -ENOMEM:
		return EX_OSERR;
	case -ENOSPC:
	case -EDQUOT:
		return META_EXIT_SPACE;
	case -EUCLEAN:
		return META_EXIT_DAMAGED;
	default:
		return EX_IOERR;
	}
}

static int read_position(struct meta_state *state)
{
	struct store_tx tx;
	int rc = store_lmdb_read_begin(state->db, &tx);

	if (rc != 0)
		return rc;
	rc = store_read_position(&tx, &state->position);
	store_lmdb_read_end(state->db, &tx);
	return rc;
}

int meta_state_adopt(struct meta_state *state)
{
	state->db = store_gen_db(state->gen);
	state->compact = true;
	return read_position(state);
}

int meta_state_open(struct meta_state *state, const char *dir, uint64_t map_bytes,
	uint64_t cluster_id, const char **why)
{
	static char text[512];
	const struct store_gen_params params = {
		.dir = dir,
		.map_bytes = map_bytes,
		.cluster_id = cluster_id,
		.sync = false,
	};
	struct store_gen_info info;
	int rc = store_gen_open(&params, &state->gen, why);

	// The store has one code for both; its text tells them apart.
	if (rc == -EPROTO && strstr(*why, "newer version") != NULL)
		return META_EXIT_NEWER;
	if (rc != 0)
		return exit_code_of(rc);
	state->cluster_id = cluster_id;
	rc = meta_state_adopt(state);
	if (rc != 0) {
		snprintf(text, sizeof(text), "%s: cannot read it (%s)", dir, strerror(-rc));
		*why = text;
		store_gen_abandon(state->gen);
		state->gen = NULL;
		return exit_code_of(rc);
	}
	store_gen_info(state->gen, &info);
	if (info.origin == STORE_GEN_BOOT || info.origin == STORE_GEN_DAMAGED)
		LOG(LOG_WARN, "store", "STORE_REBUILD",
			"the store %s and is built anew from the log",
			info.origin == STORE_GEN_BOOT
				? "may have lost its end when the machine stopped"
				: "did not open");
	return 0;
}

int meta_state_close(struct meta_state *state)
{
	int rc = 0;

	if (state->gen != NULL)
		rc = store_gen_close(state->gen);
	if (rc != 0)
		LOG(LOG_WARN, "store", "STORE_CLOSE",
			"the store was not closed cleanly (%s): it is looked at again at start",
			strerror(-rc));
	state->gen = NULL;
	state->db = NULL;
	return rc == 0 ? 0 : exit_code_of(rc);
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
		if (batch->item[i].op == STORE_STAGE || batch->item[i].op == STORE_ABORT ||
			batch->item[i].op >= STORE_NODE_JOIN)
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

// The transaction around as many batches as fit the turn. `*taken`: how many.
static int commit_some(struct meta_state *state, const struct cons_commit *commits, uint32_t count,
	uint32_t *taken) META_ONLY;
static int commit_some(struct meta_state *state, const struct cons_commit *commits, uint32_t count,
	uint32_t *taken)
{
	const uint64_t until_ns = meta_cpu_ns() + META_PIECE_CPU_NS;
	struct store_tx tx;
	int rc = store_lmdb_begin(state->db, &tx);

	if (rc != 0)
		return rc;
	for (*taken = 0; *taken < count && rc == 0 && (*taken == 0 || meta_cpu_ns() < until_ns);)
		rc = apply_one(state, &tx, &commits[(*taken)++]);
	if (rc == 0 && meta_cpu_ns() < until_ns) {
		rc = store_compact(&tx, &state->limits, COMPACT_STEPS_TURN);
		state->compact = state->compact || rc > 0;
	}
	if (rc >= 0)
		rc = store_read_position(&tx, &state->position);
	if (rc != 0) {
		store_lmdb_abort(state->db, &tx);
		return rc;
	}
	return store_lmdb_commit(state->db, &tx);
}

static void say_fault(int rc)
{
	LOG(LOG_ERROR, "store", "STORE_FAULT", "the store failed: %s%s", strerror(-rc),
		rc == -ENOSPC ? " (disk or map full: make room, or start with a larger map size)"
			      : "");
}

static void note_transaction(struct meta_state *state, uint64_t before_ns)
{
	const uint64_t took_ns = time_now_ns() - before_ns;

	if (took_ns > state->commit_max_ns)
		state->commit_max_ns = took_ns;
	state->transactions++;
}

int meta_state_commit(void *ctx, const struct cons_commit *commits, uint32_t count)
{
	struct meta_state *state = ctx;
	const uint64_t before_ns = time_now_ns();
	uint32_t taken = 0;
	int rc;

	if (state->meter != NULL)
		meta_turn_mark(state->meter, TURN_CONSENSUS);
	rc = commit_some(state, commits, count, &taken);
	note_transaction(state, before_ns);
	for (uint32_t i = 0; i < taken && rc == 0; i++) {
		struct meta_batch *batch =
			commits[i].token == 0 ? NULL
					      : meta_queue_batch(state->queue, commits[i].token);

		if (batch != NULL)
			meta_queue_committed(state->queue, batch, state->now_ns);
	}
	if (state->meter != NULL)
		meta_turn_mark(state->meter, TURN_COMMIT);
	if (rc != 0)
		say_fault(rc);
	return rc == 0 ? (int)taken : rc;
}

void meta_state_result(void *ctx, uint64_t token, enum cons_status status, const char *why)
{
	struct meta_state *state = ctx;
	struct meta_batch *batch = meta_queue_batch(state->queue, token);

	// What committed was answered with its results already; when it committed before a snapshot that
	// was restored since, they are gone: its keys tell.
	if (batch != NULL)
		meta_queue_refused(state->queue, batch, status == CONS_OK ? CONS_UNKNOWN : status);
	else if (state->on_result != NULL)
		state->on_result(state->ctx, token, status, why);
}

int meta_state_compact(struct meta_state *state)
{
	const uint64_t before_ns = time_now_ns(), until_ns = meta_cpu_ns() + META_PIECE_CPU_NS;
	struct store_tx tx;
	int rc = store_lmdb_begin(state->db, &tx);

	if (rc != 0)
		return rc;
	do
		rc = store_compact(&tx, &state->limits, COMPACT_STEPS_TURN);
	while (rc > 0 && meta_cpu_ns() < until_ns);
	state->compact = rc > 0;
	if (rc < 0) {
		store_lmdb_abort(state->db, &tx);
		say_fault(rc);
		return rc;
	}
	rc = store_lmdb_commit(state->db, &tx);
	note_transaction(state, before_ns);
	if (rc != 0)
		say_fault(rc);
	return rc;
}

int meta_state_read(struct meta_state *state, struct store_tx *tx)
{
	return store_lmdb_read_begin(state->db, tx);
}

void meta_state_read_end(struct meta_state *state, struct store_tx *tx)
{
	store_lmdb_read_end(state->db, tx);
}

static uint64_t state_chain(void *ctx, uint64_t *applied)
{
	const struct meta_state *state = ctx;

	*applied = state->position.applied;
	return state->position.chain;
}

static int state_id_removed(void *ctx, uint64_t id)
{
	struct meta_state *state = ctx;
	struct store_node node;
	struct store_tx tx;
	int rc = meta_state_read(state, &tx);

	if (rc != 0)
		return rc;
	rc = store_read_node(&tx, id, &node);
	meta_state_read_end(state, &tx);
	return rc == 0 ? node.state == STORE_NODE_REMOVED : rc == -ENOENT ? 0 : rc;
}

const struct cons_events meta_state_events = {
	.on_commit = meta_state_commit,
	.on_result = meta_state_result,
	.chain = state_chain,
	.id_removed = state_id_removed,
	.snapshot_begin = meta_snapshot_begin,
	.snapshot_encode = meta_snapshot_encode,
	.snapshot_end = meta_snapshot_end,
	.snapshot_check = meta_snapshot_check,
	.restore_begin = meta_restore_begin,
	.restore_turn = meta_restore_turn,
};
