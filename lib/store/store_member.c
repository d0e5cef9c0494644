/* SPDX-License-Identifier: BSD-3-Clause */
// ADD, REMOVE and RESET that fit one command, and the delta that each change leaves behind.
// Thread: owner of the write transaction.
#include "store_pvt.h"

#include <stdlib.h>

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

static int journal_put(struct store_apply *a, const struct store_delta *delta)
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

int delta_publish(struct store_apply *a, const struct store_delta *delta, struct store_result *r)
{
	const int rc = journal_put(a, delta);

	if (rc != 0)
		return rc;
	if (a->on_delta != NULL)
		a->on_delta(a->ctx, delta);
	r->code = STORE_R_OK;
	r->commit = delta->commit;
	return 0;
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
		rc = delta_publish(a, &delta, r);
	if (rc != 0)
		return rc;
	r->smv = chan->smv;
	r->changed = (uint32_t)changed;
	return 0;
}

static int uid_order(struct id_view a, struct id_view b)
{
	const int c = memcmp(a.bytes, b.bytes, a.len < b.len ? a.len : b.len);

	return c != 0 ? c : (int)a.len - (int)b.len;
}

static int uid_compare(const void *a, const void *b)
{
	return uid_order(*(const struct id_view *)a, *(const struct id_view *)b);
}

int uid_walk_begin(struct uid_walk *w, const struct store_command *cmd)
{
	struct id_view uid, last = {NULL, 0};
	bool ascending = true;

	*w = (struct uid_walk){.p = cmd->uids, .end = cmd->uids + cmd->uids_bytes};
	while (ascending && store_uids_next(&w->p, w->end, &uid)) {
		ascending = last.len == 0 || uid_order(last, uid) <= 0;
		last = uid;
	}
	w->p = cmd->uids;
	if (ascending)
		return 0;
	w->sorted = malloc(cmd->uid_count * sizeof(*w->sorted));
	if (w->sorted == NULL)
		return -ENOMEM;
	while (w->count < cmd->uid_count && store_uids_next(&w->p, w->end, &uid))
		w->sorted[w->count++] = uid;
	qsort(w->sorted, w->count, sizeof(*w->sorted), uid_compare);
	return 0;
}

void uid_walk_end(struct uid_walk *w)
{
	free(w->sorted);
}

// Writes one UID when that changes anything: into the newest generation, or into `own` when it is not 0.
// Returns: 1 changed, 0, -errno.
static int edit_uid(struct store_apply *a, const struct store_command *cmd, struct store_chan *chan,
	uint32_t own, struct id_view uid)
{
	const uint8_t present = cmd->op == STORE_ADD;
	int rc = rows_has(a->tx, chan, cmd->list, uid);

	if (rc == present || rc < 0)
		return rc < 0 ? rc : 0;
	if (own != 0)  // a UID that is there twice is written once
		return rows_stage(a->tx, chan, cmd->list, own, uid, present);
	rc = rows_set(a->tx, chan, cmd->list, chan->list[cmd->list].layers - 1, uid, present);
	return rc < 0 ? rc : 1;
}

// ADD or REMOVE. Counts what changed.
static int edit(struct store_apply *a, const struct store_command *cmd, struct store_chan *chan,
	uint64_t *changed)
{
	struct store_rowset *set = &chan->list[cmd->list];
	const uint32_t own = rows_spread(a, set, cmd->uid_count) ? chan->next_generation++ : 0;
	struct uid_walk walk;
	struct id_view uid;
	int rc;

	if (set->layers == 0) {
		if (cmd->op != STORE_ADD)
			return 0;
		set->layers = 1;
		set->layer[0] = (struct store_layer){.generation = chan->next_generation++};
	}
	rc = uid_walk_begin(&walk, cmd);
	while (rc >= 0 && uid_walk_next(&walk, &uid)) {
		rc = edit_uid(a, cmd, chan, own, uid);
		if (rc <= 0)
			continue;
		delta_uid(a, uid);
		(*changed)++;
	}
	uid_walk_end(&walk);
	if (rc < 0)
		return rc;
	set->count = cmd->op == STORE_ADD ? set->count + *changed : set->count - *changed;
	if (*changed == 0)
		return 0;
	rc = own != 0 ? rows_push(a->tx, chan, cmd->list, own, (uint32_t)*changed) : 0;
	if (rc == 0)
		rc = rows_merge_paid(a->tx, chan, cmd->list, cmd->uid_count);
	return rc < 0 ? rc : 0;
}

// Stages the rows of a RESET. Counts them, and those that are members already.
static int reset_rows(struct store_apply *a, const struct store_command *cmd,
	const struct store_chan *chan, uint32_t generation, uint64_t *rows, uint64_t *kept)
{
	struct uid_walk walk;
	struct id_view uid;
	int rc = uid_walk_begin(&walk, cmd);

	while (rc >= 0 && uid_walk_next(&walk, &uid)) {
		rc = rows_stage(a->tx, chan, cmd->list, generation, uid, 1);
		if (rc <= 0)
			continue;
		(*rows)++;
		rc = rows_has(a->tx, chan, cmd->list, uid);
		*kept += rc > 0;
	}
	uid_walk_end(&walk);
	return rc < 0 ? rc : 0;
}

// RESET: the new rows go to a generation of their own, which replaces the stack.
static int reset(struct store_apply *a, const struct store_command *cmd, struct store_chan *chan,
	uint64_t *changed)
{
	struct store_rowset *set = &chan->list[cmd->list];
	const uint32_t generation = chan->next_generation++;
	uint64_t rows = 0, kept = 0;
	int rc = reset_rows(a, cmd, chan, generation, &rows, &kept);

	if (rc != 0)
		return rc;
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
