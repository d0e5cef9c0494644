/* SPDX-License-Identifier: BSD-3-Clause */
// Applying a batch: its commands one after the other, each exactly once, and the state that moves with
// them. Deterministic: nothing but the store, the limits and the bytes decides. Thread: owner of the
// write transaction.
#include "store_cluster_pvt.h"

#include <stdlib.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

static int apply_info(struct store_apply *a, const struct store_command *cmd,
	struct store_chan *chan, struct store_result *r)
{
	const bool alive = chan_alive(chan);

	if (!alive && cmd->op == STORE_CHANNEL_UPDATE) {
		r->code = STORE_R_NOT_FOUND;
		return 0;
	}
	if (alive && chan->flags == cmd->flags) {
		r->code = STORE_R_NO_CHANGE;
		return 0;
	}
	chan_create(a, chan);
	chan_revive(chan);
	chan->flags = cmd->flags;
	delta_begin(a, chan);
	return delta_finish(a, chan, STORE_DELTA_CHANNEL, 0, 0, r);
}

static int apply_remove(struct store_apply *a, struct store_chan *chan, struct store_result *r)
{
	uint64_t changed = 0;

	if (!chan_alive(chan)) {
		r->code = STORE_R_NOT_FOUND;
		return 0;
	}
	for (uint8_t l = 0; l < STORE_LISTS; l++) {
		changed += chan->list[l].count;

		const int rc = rows_kill_list(a->tx, chan, l);

		if (rc != 0)
			return rc;
	}
	chan->removed = true;
	chan->flags = 0;
	delta_begin(a, chan);
	return delta_finish(a, chan, STORE_DELTA_REMOVED, 0, changed, r);
}

static int dispatch(struct store_apply *a, const struct store_command *cmd, struct store_result *r)
{
	struct store_chan chan;
	int rc;

	if (op_is_cluster(cmd->op))
		return apply_cluster(a, cmd, r);
	rc = chan_load(a->tx, &cmd->channel, &chan);
	if (rc != 0)
		return rc;
	r->smv = chan.smv;
	if (chan.stage_id != 0 && chan.stage_id != cmd->stage_id) {
		r->code = STORE_R_BUSY;
		return 0;
	}
	if (chan.smv == UINT64_MAX || a->state.commit == UINT64_MAX) {
		r->code = STORE_R_LIMIT;
		return 0;
	}
	switch ((enum store_op)cmd->op) {
	case STORE_CHANNEL_CREATE:
	case STORE_CHANNEL_UPDATE:
		return apply_info(a, cmd, &chan, r);
	case STORE_CHANNEL_REMOVE:
		return apply_remove(a, &chan, r);
	case STORE_ADD:
	case STORE_REMOVE:
	case STORE_RESET:
		return apply_rows(a, cmd, &chan, r);
	case STORE_STAGE:
		return apply_stage(a, cmd, &chan, r);
	case STORE_CLOSE:
		return apply_close(a, cmd, &chan, r);
	case STORE_ABORT:
		return apply_abort(a, cmd, &chan, r);
	default:
		break;
	}
	r->code = STORE_R_INVALID;
	return 0;
}

static int apply_command(
	struct store_apply *a, const struct store_command *cmd, struct store_result *r)
{
	const bool keyed = dedup_given(cmd->dedup);
	const uint64_t commit = a->state.commit;
	enum dedup_verdict verdict = DEDUP_NEW;
	int rc = keyed ? dedup_find(a, cmd->dedup, r, &verdict) : 0;

	if (rc != 0 || verdict == DEDUP_REPEATED)
		return rc;
	r->commit = commit;
	if (verdict != DEDUP_NEW) {
		r->code = verdict == DEDUP_FUTURE ? STORE_R_INVALID : STORE_R_EXPIRED;
		return 0;
	}
	rc = dispatch(a, cmd, r);
	if (rc == 0 && keyed)
		rc = dedup_record(a, cmd->dedup, r, a->state.commit != commit);
	return rc != 0 ? rc : dedup_evict(a);
}

// A command of a batch that was applied before: only what is still known is said.
static int replay_command(
	struct store_apply *a, const struct store_command *cmd, struct store_result *r)
{
	enum dedup_verdict verdict = DEDUP_NEW;
	const int rc = dedup_given(cmd->dedup) ? dedup_find(a, cmd->dedup, r, &verdict) : 0;

	r->repeated = 1;
	if (verdict != DEDUP_REPEATED) {
		r->code = STORE_R_NO_CHANGE;
		r->commit = a->state.commit;
	}
	return rc;
}

static int apply_batch(struct store_apply *a, const uint8_t *data, uint32_t len, bool replay,
	struct store_result *results, uint32_t results_max)
{
	uint32_t count = 0, at = 0;

	while (at < len) {
		const uint32_t frame = command_frame(data + at, len - at);
		struct store_result r = {.commit = a->state.commit};
		struct store_command cmd;
		const char *why;
		int rc = 0;

		if (frame == 0 || store_command_decode(data + at, frame, &cmd, &why) < 0)
			r.code = STORE_R_INVALID;
		else if (replay)
			rc = replay_command(a, &cmd, &r);
		else
			rc = apply_command(a, &cmd, &r);
		if (rc != 0)
			return rc;
		if (count < results_max)
			results[count++] = r;
		at = frame == 0 ? len : at + frame;
	}
	return (int)count;
}

int store_apply(struct store_tx *tx, const struct store_limits *limits, uint64_t index,
	const uint8_t *data, uint32_t len, struct store_result *results, uint32_t results_max,
	store_on_delta on_delta, void *ctx)
{
	struct store_apply a = {
		.tx = tx, .limits = limits, .index = index, .on_delta = on_delta, .ctx = ctx};
	int rc = state_load(tx, &a.state);

	if (rc != 0)
		return rc == -ENOENT ? -EUCLEAN : rc;
	if (index <= a.state.applied)
		return apply_batch(&a, data, len, true, results, results_max);
	a.scratch = malloc(SCRATCH_BYTES);
	if (a.scratch == NULL)
		return -ENOMEM;

	int count = 0;

	rc = stage_expire(&a);
	if (rc == 0)
		count = apply_batch(&a, data, len, false, results, results_max);
	if (rc == 0 && count < 0)
		rc = count;
	if (rc == 0) {
		// The seed folds the index in, so that equal batches at other places give another chain.
		a.state.chain = XXH3_64bits_withSeed(
			data, len, a.state.chain + index * UINT64_C(0x9e3779b97f4a7c15));
		a.state.applied = index;
		rc = state_save(tx, &a.state);
	}
	free(a.scratch);
	return rc != 0 ? rc : count;
}
