/* SPDX-License-Identifier: BSD-3-Clause */
// Large operations: chunks written to a generation that no reader sees, and the close that shows all of
// it at once. While a stage is open its channel takes no other mutation, so what the chunks counted
// against the view still holds at the close. Thread: owner of the write transaction.
#include "store_pvt.h"

static uint8_t stage_check(const struct store_command *cmd, const struct store_chan *chan,
	const struct store_stage *stage)
{
	return stage->op == cmd->staged_op && stage->list == cmd->list &&
			       stage->number == chan->number &&
			       channel_key_equal(&stage->channel, &cmd->channel)
		       ? STORE_R_OK
		       : STORE_R_INVALID;
}

// Opens a stage. Leaves a reason in r->code when it may not.
static int stage_begin(struct store_apply *a, const struct store_command *cmd,
	struct store_chan *chan, struct store_stage *stage, struct store_result *r)
{
	if (!chan_alive(chan) && cmd->staged_op == STORE_REMOVE)
		r->code = STORE_R_NOT_FOUND;
	else if (a->state.stages >= a->limits->stages)
		r->code = STORE_R_BUSY;
	else if (!chan_generations_left(chan))
		r->code = STORE_R_LIMIT;
	if (r->code != STORE_R_OK)
		return 0;
	chan_create(a, chan);
	*stage = (struct store_stage){
		.id = cmd->stage_id,
		.number = chan->number,
		.generation = chan->next_generation++,
		.list = cmd->list,
		.op = cmd->staged_op,
		.channel = cmd->channel,
	};
	chan->stage_id = cmd->stage_id;
	a->state.stages++;
	return chan_save(a->tx, chan);
}

// Writes one UID of a chunk. Returns: 0 or -errno.
static int stage_uid(struct store_apply *a, const struct store_command *cmd,
	const struct store_chan *chan, struct store_stage *stage, struct id_view uid,
	struct store_result *r)
{
	const uint8_t present = cmd->staged_op != STORE_REMOVE;
	const int has = rows_has(a->tx, chan, cmd->list, uid);
	int wrote;

	if (has < 0 || (cmd->staged_op != STORE_RESET && has == present))
		return has < 0 ? has : 0;
	wrote = rows_stage(a->tx, chan, cmd->list, stage->generation, uid, present);
	if (wrote <= 0)
		return wrote;
	stage->rows++;
	if (has == present)
		stage->kept++;
	else
		r->changed++;
	return 0;
}

// Writes one chunk's rows; r->changed counts those that will change something.
static int stage_rows(struct store_apply *a, const struct store_command *cmd,
	const struct store_chan *chan, struct store_stage *stage, struct store_result *r)
{
	struct uid_walk walk;
	struct id_view uid;
	int rc = uid_walk_begin(&walk, cmd);

	while (rc == 0 && uid_walk_next(&walk, &uid))
		rc = stage_uid(a, cmd, chan, stage, uid, r);
	uid_walk_end(&walk);
	return rc;
}

int apply_stage(struct store_apply *a, const struct store_command *cmd, struct store_chan *chan,
	struct store_result *r)
{
	struct store_stage stage;
	int rc = stage_load(a->tx, cmd->stage_id, &stage);

	if (rc == 0)
		r->code = stage_check(cmd, chan, &stage);
	else if (rc == -ENOENT)
		rc = stage_begin(a, cmd, chan, &stage, r);
	if (rc != 0 || r->code != STORE_R_OK)
		return rc;
	if (stage.uids + cmd->uid_count > MUTATION_UIDS_MAX) {
		r->code = STORE_R_LIMIT;
		return 0;
	}
	rc = stage_rows(a, cmd, chan, &stage, r);
	if (rc == 0) {
		rc = rows_merge_paid(a->tx, chan, cmd->list, cmd->uid_count);
		if (rc > 0)
			rc = chan_save(a->tx, chan);
	}
	if (rc != 0)
		return rc;
	stage.uids += cmd->uid_count;
	stage.index = a->index;
	r->smv = chan->smv;
	return stage_save(a->tx, &stage);
}

// Ends a stage without effect: its rows are dead, its channel is free.
static int stage_drop(
	struct store_apply *a, struct store_chan *chan, const struct store_stage *stage)
{
	int rc = rows_kill(a->tx, chan, stage->list, stage->generation);

	chan->stage_id = 0;
	a->state.stages--;
	if (rc == 0)
		rc = stage_erase(a->tx, stage->id);
	if (rc != 0)
		return rc;
	// A channel that only this stage brought in was never seen by anyone.
	return chan->removed && chan->smv == 0 ? chan_erase(a->tx, chan) : chan_save(a->tx, chan);
}

static void stage_counts(
	const struct store_stage *stage, uint64_t before, uint64_t *changed, uint64_t *after)
{
	*changed = stage->rows;
	*after = before + stage->rows;
	if (stage->op == STORE_REMOVE) {
		*after = before - stage->rows;
	} else if (stage->op == STORE_RESET) {
		*changed = before - stage->kept + stage->rows - stage->kept;
		*after = stage->rows;
	}
}

// Puts the staged generation into the view. Small ones are listed in the delta, and merged here when that is
// cheap.
static int stage_show(struct store_apply *a, struct store_chan *chan,
	const struct store_stage *stage, uint8_t *kind)
{
	struct store_rowset *set = &chan->list[stage->list];
	int rc;

	*kind = STORE_DELTA_BULK;
	if (stage->op == STORE_RESET) {
		rc = rows_kill_list(a->tx, chan, stage->list);
		return rc != 0 ? rc
			       : rows_push(
					 a->tx, chan, stage->list, stage->generation, stage->rows);
	}
	if (stage->rows > fold_rows(a->limits))
		return rows_push(a->tx, chan, stage->list, stage->generation, stage->rows);
	*kind = stage->op == STORE_ADD ? STORE_DELTA_ADD : STORE_DELTA_REMOVE;
	if (rows_spread(a, set, stage->rows)) {
		rc = rows_each(a->tx, chan, stage->list, stage->generation, delta_uid, a);
		return rc != 0 ? rc
			       : rows_push(
					 a->tx, chan, stage->list, stage->generation, stage->rows);
	}
	if (set->layers == 0)
		set->layer[set->layers++].generation = chan->next_generation++;
	rc = rows_move(a->tx, chan, stage->list, stage->generation, set->layers - 1, UINT32_MAX,
		delta_uid, a);
	return rc < 0 ? rc : 0;
}

int apply_close(struct store_apply *a, const struct store_command *cmd, struct store_chan *chan,
	struct store_result *r)
{
	struct store_stage stage;
	uint64_t changed, after;
	uint8_t kind;
	int rc = stage_load(a->tx, cmd->stage_id, &stage);

	if (rc == -ENOENT) {
		r->code = STORE_R_NOT_FOUND;
		return 0;
	}
	if (rc != 0)
		return rc;
	r->code = stage_check(cmd, chan, &stage);
	if (cmd->uid_count != 0 && cmd->uid_count != stage.uids)
		r->code = STORE_R_INVALID;
	if (r->code != STORE_R_OK)
		return 0;
	stage_counts(&stage, chan->list[stage.list].count, &changed, &after);
	if (changed == 0) {
		r->code = STORE_R_NO_CHANGE;
		return stage_drop(a, chan, &stage);
	}
	chan_revive(chan);
	delta_begin(a, chan);
	rc = stage_show(a, chan, &stage, &kind);
	if (rc == 0)
		rc = stage_erase(a->tx, stage.id);
	if (rc != 0)
		return rc;
	chan->list[stage.list].count = after;
	chan->stage_id = 0;
	a->state.stages--;
	return delta_finish(a, chan, kind, stage.list, changed, r);
}

int apply_abort(struct store_apply *a, const struct store_command *cmd, struct store_chan *chan,
	struct store_result *r)
{
	struct store_stage stage;
	const int rc = stage_load(a->tx, cmd->stage_id, &stage);

	if (rc != 0 && rc != -ENOENT)
		return rc;
	if (rc == -ENOENT || !channel_key_equal(&stage.channel, &cmd->channel)) {
		r->code = STORE_R_NOT_FOUND;
		return 0;
	}
	return stage_drop(a, chan, &stage);
}

int stage_expire(struct store_apply *a)
{
	uint64_t id = 0;

	while (a->state.stages != 0) {
		struct store_stage stage;
		struct store_chan chan;
		int rc = stage_next(a->tx, id, &stage);

		if (rc != 0)
			return rc == -ENOENT ? 0 : rc;
		if (a->index - stage.index > a->limits->stage_commits) {
			rc = chan_load(a->tx, &stage.channel, &chan);
			if (rc == 0)
				rc = stage_drop(a, &chan, &stage);
			if (rc != 0)
				return rc;
		}
		if (stage.id == UINT64_MAX)
			return 0;
		id = stage.id + 1;
	}
	return 0;
}
