/* SPDX-License-Identifier: BSD-3-Clause */
// ADD, REMOVE and RESET that fit one command, and the delta that each change leaves behind.
// Thread: owner of the write transaction.
#include "store_pvt.h"

bool chan_alive(const struct store_chan *chan)
{
	return chan->exists && !chan->removed;
}

void chan_create(struct store_apply *a, struct store_chan *chan)
{
	if (chan->exists)
		return;
	chan->number = a->state.next_number++;
	chan->next_generation = 1;
	chan->exists = true;
}

void chan_revive(struct store_chan *chan)
{
	if (chan->removed)
		chan->flags = 0;
	chan->removed = false;
}

void delta_begin(struct store_apply *a, const struct store_chan *chan)
{
	a->delta_uids = 0;
	a->delta_bytes = 0;
	a->delta_full = false;
	a->delta_at = a->scratch + DELTA_HEADER + chan->key.len;
}

void delta_uid(void *apply, struct id_view uid)
{
	struct store_apply *a = apply;

	if (a->delta_full || 1u + uid.len > ENTRY_BYTES_MAX - a->delta_bytes) {
		a->delta_full = true;
		return;
	}
	a->delta_at[a->delta_bytes] = uid.len;
	memcpy(a->delta_at + a->delta_bytes + 1, uid.bytes, uid.len);
	a->delta_bytes += 1u + uid.len;
	a->delta_uids++;
}

int journal_put(struct store_apply *a, const struct store_delta *delta)
{
	uint8_t k[8];
	const int len = store_delta_encode(delta, a->scratch, SCRATCH_BYTES);
	int rc = len;

	if (len > 0) {
		put_be(k, delta->commit, 8);
		rc = tx_put(a->tx, STORE_T_JOURNAL, bytes_of(k, 8),
			bytes_of(a->scratch, (uint32_t)len));
	}
	if (rc == 0 && delta->commit > a->limits->journal_commits) {
		put_be(k, delta->commit - a->limits->journal_commits, 8);
		rc = tx_del(a->tx, STORE_T_JOURNAL, bytes_of(k, 8));
	}
	return rc;
}

int delta_finish(struct store_apply *a, struct store_chan *chan, uint8_t kind, uint8_t list,
	uint64_t changed, struct store_result *r)
{
	const bool listed = kind == STORE_DELTA_ADD || kind == STORE_DELTA_REMOVE;
	struct store_delta delta = {
		.commit = ++a->state.commit,
		.smv_before = chan->smv,
		.smv = chan->smv + 1,
		.members = chan->list[STORE_MEMBERS].count,
		.kind = listed && a->delta_full ? STORE_DELTA_BULK : kind,
		.list = list,
		.flags = chan->flags,
		.channel = chan->key,
		.uids = a->delta_at,
	};

	if (delta.kind == kind && listed) {
		delta.uid_count = a->delta_uids;
		delta.uids_bytes = a->delta_bytes;
	}
	chan->smv++;

	int rc = chan_save(a->tx, chan);

	if (rc == 0)
		rc = journal_put(a, &delta);
	if (rc != 0)
		return rc;
	if (a->on_delta != NULL)
		a->on_delta(a->ctx, &delta);
	r->code = STORE_R_OK;
	r->commit = delta.commit;
	r->smv = chan->smv;
	r->changed = (uint32_t)changed;
	return 0;
}

// ADD or REMOVE into the newest generation. Counts what changed.
static int edit(struct store_apply *a, const struct store_command *cmd, struct store_chan *chan,
	uint64_t *changed)
{
	struct store_rowset *set = &chan->list[cmd->list];
	const uint8_t present = cmd->op == STORE_ADD;
	const uint8_t *p = cmd->uids;
	struct id_view uid;

	if (set->layers == 0) {
		if (!present)
			return 0;
		set->layers = 1;
		set->layer[0] = (struct store_layer){.generation = chan->next_generation++};
	}
	while (store_uids_next(&p, cmd->uids + cmd->uids_bytes, &uid)) {
		int rc = rows_has(a->tx, chan, cmd->list, uid);

		if (rc == present)
			continue;
		if (rc >= 0)
			rc = rows_set(a->tx, chan, cmd->list, set->layers - 1, uid, present);
		if (rc < 0)
			return rc;
		delta_uid(a, uid);
		(*changed)++;
	}
	set->count = present ? set->count + *changed : set->count - *changed;
	if (*changed == 0 || set->layers < 2)
		return 0;

	const int rc = rows_merge_paid(a->tx, chan, cmd->list, cmd->uid_count);

	return rc < 0 ? rc : 0;
}

// RESET: the new rows go to a generation of their own, which replaces the stack.
static int reset(struct store_apply *a, const struct store_command *cmd, struct store_chan *chan,
	uint64_t *changed)
{
	struct store_rowset *set = &chan->list[cmd->list];
	const uint32_t generation = chan->next_generation++;
	const uint8_t *p = cmd->uids;
	uint64_t rows = 0, kept = 0;
	struct id_view uid;
	int rc;

	while (store_uids_next(&p, cmd->uids + cmd->uids_bytes, &uid)) {
		rc = rows_stage(a->tx, chan, cmd->list, generation, uid, 1);
		if (rc > 0) {
			rows++;
			rc = rows_has(a->tx, chan, cmd->list, uid);
			kept += rc > 0;
		}
		if (rc < 0)
			return rc;
	}
	*changed = set->count - kept + rows - kept;
	if (*changed == 0)
		return rows == 0 ? 0 : rows_kill(a->tx, chan, cmd->list, generation);
	rc = rows_kill_list(a->tx, chan, cmd->list);
	if (rc != 0 || rows == 0)
		return rc;
	set->count = rows;
	return rows_push(a->tx, chan, cmd->list, generation, 0);
}

int apply_rows(struct store_apply *a, const struct store_command *cmd, struct store_chan *chan,
	struct store_result *r)
{
	const uint32_t generation = chan->next_generation;
	uint64_t changed = 0;
	uint8_t kind = STORE_DELTA_BULK;
	int rc;

	if (!chan_alive(chan) && (cmd->op == STORE_REMOVE || cmd->uid_count == 0)) {
		r->code = STORE_R_NOT_FOUND;
		return 0;
	}
	if (!chan_generations_left(chan)) {
		r->code = STORE_R_LIMIT;
		return 0;
	}
	chan_create(a, chan);
	chan_revive(chan);
	delta_begin(a, chan);
	if (cmd->op == STORE_RESET) {
		rc = reset(a, cmd, chan, &changed);
	} else {
		kind = cmd->op == STORE_ADD ? STORE_DELTA_ADD : STORE_DELTA_REMOVE;
		rc = edit(a, cmd, chan, &changed);
	}
	if (rc != 0)
		return rc;
	if (changed != 0)
		return delta_finish(a, chan, kind, cmd->list, changed, r);
	r->code = STORE_R_NO_CHANGE;
	// A generation was used up: its number must not come again.
	return chan->next_generation != generation ? chan_save(a->tx, chan) : 0;
}
