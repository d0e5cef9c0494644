/* SPDX-License-Identifier: BSD-3-Clause */
// Owns every mutation from submit to done: each is in exactly one list. Run by the loop of the meta
// process. A gate stands for a channel with a large mutation; its waiters keep their order. One file because
// the states of a mutation and the lists that stand for them change together.
#include "meta_queue.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base_time.h"

#define RETRY_NS (50 * NS_PER_MS)

struct mutation_list {
	struct mutation *first, *last;
	uint32_t count;
};

struct gate {
	struct gate *next;
	uint64_t hash;
	struct channel_key key;
	struct mutation *owner;  // the large one that runs, is prepared, or waits for a stage
	struct mutation_list waiters;
};

struct meta_queue {
	struct meta_queue_params params;
	struct mutation_list runnable, slot, retry, apply, other;
	struct gate *gates;
	uint64_t next_stage_id;
	uint32_t stages_open;
	bool connected;
	uint64_t applied;
	uint64_t next_token;
	struct meta_queue_info info;
	struct meta_batch batch[META_BATCHES];
};

// --- lists ------------------------------------------------------------------------------------------------

static void list_push(struct mutation_list *list, struct mutation *m, enum mutation_state state)
{
	assert(m->list_of == NULL);
	m->list_of = list;
	m->state = (uint8_t)state;
	m->next = NULL;
	m->prev = list->last;
	if (list->last != NULL)
		list->last->next = m;
	else
		list->first = m;
	list->last = m;
	list->count++;
}

static void list_remove(struct mutation *m)
{
	struct mutation_list *list = m->list_of;

	if (m->prev != NULL)
		m->prev->next = m->next;
	else
		list->first = m->next;
	if (m->next != NULL)
		m->next->prev = m->prev;
	else
		list->last = m->prev;
	m->next = m->prev = NULL;
	m->list_of = NULL;
	list->count--;
}

static void list_move(struct mutation_list *list, struct mutation *m, enum mutation_state state)
{
	if (m->list_of != NULL)
		list_remove(m);
	list_push(list, m, state);
}

// Answers all with "unknown", at the end of the process.
static void list_drain(struct meta_queue *q, struct mutation_list *list)
{
	while (list->first != NULL) {
		struct mutation *m = list->first;

		list_remove(m);
		m->outcome = MUTATION_UNKNOWN;
		q->params.done(q->params.ctx, m);
	}
}

// --- gates and stages ---------------------------------------------------------------------------------------

static struct gate **gate_find(struct meta_queue *q, const struct channel_key *key)
{
	const uint64_t hash = channel_key_hash(key);
	struct gate **at = &q->gates;

	while (*at != NULL && ((*at)->hash != hash || !channel_key_equal(&(*at)->key, key)))
		at = &(*at)->next;
	return at;
}

// Lets the owner of a gate have a stage, or wait for one.
static void want_slot(struct meta_queue *q, struct mutation *m)
{
	if (m->preparing) {
		list_move(&q->other, m, MUTATION_IDLE);
	} else if (q->stages_open < q->params.stages) {
		q->stages_open++;
		m->has_slot = true;
		m->stage_id = q->next_stage_id++;
		list_move(&q->runnable, m, MUTATION_RUNNABLE);
	} else {
		list_move(&q->slot, m, MUTATION_SLOT);
	}
}

static void release_slot(struct meta_queue *q, struct mutation *m)
{
	if (!m->has_slot)
		return;
	m->has_slot = false;
	q->stages_open--;
	if (q->slot.first != NULL)
		want_slot(q, q->slot.first);
}

// The owner is through with its channel: the waiters go on, up to the next large one.
static void release_gate(struct meta_queue *q, const struct mutation *owner)
{
	struct gate **at = gate_find(q, &owner->key), *gate = *at;

	if (gate == NULL || gate->owner != owner)
		return;
	while (gate->waiters.first != NULL) {
		struct mutation *m = gate->waiters.first;

		if (m->staged) {
			gate->owner = m;
			want_slot(q, m);
			return;
		}
		list_move(&q->runnable, m, MUTATION_RUNNABLE);
	}
	*at = gate->next;
	free(gate);
}

// --- the end of a mutation --------------------------------------------------------------------------------

static void done(struct meta_queue *q, struct mutation *m)
{
	if (m->list_of != NULL)
		list_remove(m);
	q->info.pending--;
	q->info.pending_bytes -= m->charged;
	if (m->outcome == MUTATION_BUSY)
		q->info.timed_out++;
	else if (m->outcome == MUTATION_OK && m->applied)
		q->info.applied++;
	else if (m->outcome == MUTATION_OK)
		q->info.unapplied++;
	q->params.done(q->params.ctx, m);
}

// The outcome is known; what committed still waits for the fast process.
static void finish(struct meta_queue *q, struct mutation *m, uint64_t now_ns)
{
	const bool applied = m->outcome == MUTATION_OK &&
			     (m->result.code == STORE_R_OK || m->result.code == STORE_R_NO_CHANGE);

	if (m->list_of != NULL)
		list_remove(m);
	if (m->staged) {
		release_slot(q, m);
		release_gate(q, m);
	}
	// The UIDs are of no more use, and the wait may be long.
	free(m->uids);
	m->uids = NULL;
	q->info.pending_bytes -= m->charged;
	m->charged = 0;
	m->applied = applied && q->connected && q->applied >= m->result.commit;
	if (!applied || m->applied || !q->connected) {
		done(q, m);
		return;
	}
	m->deadline_ns = now_ns + q->params.apply_wait_ns;
	list_push(&q->apply, m, MUTATION_APPLY_WAIT);
}

static void fail(struct meta_queue *q, struct mutation *m, enum mutation_outcome outcome)
{
	m->outcome = (uint8_t)outcome;
	finish(q, m, 0);
}

// --- in -----------------------------------------------------------------------------------------------------

int meta_queue_create(const struct meta_queue_params *params, struct meta_queue **queue)
{
	struct meta_queue *q = calloc(1, sizeof(*q));

	if (q == NULL)
		return -ENOMEM;
	q->params = *params;
	q->next_stage_id = params->stage_id_first == 0 ? 1 : params->stage_id_first;
	*queue = q;
	return 0;
}

void meta_queue_destroy(struct meta_queue *q)
{
	if (q == NULL)
		return;
	list_drain(q, &q->runnable);
	list_drain(q, &q->slot);
	list_drain(q, &q->retry);
	list_drain(q, &q->apply);
	list_drain(q, &q->other);
	while (q->gates != NULL) {
		struct gate *gate = q->gates;

		q->gates = gate->next;
		list_drain(q, &gate->waiters);
		free(gate);
	}
	free(q);
}

int meta_queue_submit(struct meta_queue *q, struct mutation *m, uint64_t now_ns)
{
	struct gate **at = gate_find(q, &m->key), *gate = *at;

	if (q->info.pending >= META_PENDING_MAX ||
		q->info.pending_bytes + m->uids_bytes > META_PENDING_BYTES_MAX) {
		q->info.refused++;
		return -ENOBUFS;
	}
	m->staged = mutation_large(m);
	if (gate == NULL && m->staged) {
		gate = calloc(1, sizeof(*gate));
		if (gate == NULL) {
			q->info.refused++;
			return -ENOBUFS;
		}
		gate->hash = channel_key_hash(&m->key);
		gate->key = m->key;
		*at = gate;
	}
	q->info.pending++;
	q->info.pending_bytes += m->uids_bytes;
	q->info.submitted++;
	m->charged = m->uids_bytes;
	m->deadline_ns = now_ns + q->params.wait_ns;
	if (gate == NULL) {
		list_push(&q->runnable, m, MUTATION_RUNNABLE);
	} else if (gate->owner == NULL) {
		gate->owner = m;
		want_slot(q, m);
	} else {
		list_push(&gate->waiters, m, MUTATION_GATED);
	}
	return 0;
}

void meta_queue_prepared(struct meta_queue *q, struct mutation *m)
{
	m->preparing = false;
	// Behind another one it stays where it is.
	if (m->state == MUTATION_IDLE)
		want_slot(q, m);
}

int meta_queue_abort_stage(struct meta_queue *q, uint64_t id, const struct channel_key *key)
{
	struct mutation *m = calloc(1, sizeof(*m));

	if (m == NULL)
		return -ENOMEM;
	m->key = *key;
	m->op = STORE_ABORT;
	m->staged = m->aborting = true;
	m->stage_id = id;
	m->deadline_ns = UINT64_MAX;
	q->info.pending++;
	list_push(&q->runnable, m, MUTATION_RUNNABLE);
	return 0;
}

// --- out: batches -------------------------------------------------------------------------------------------

// The next command of `m`; its UIDs point into the mutation.
static void next_command(const struct mutation *m, struct store_command *cmd)
{
	const uint8_t *p = m->uids + m->offset, *end = m->uids + m->uids_bytes;
	struct id_view uid;

	*cmd = (struct store_command){.op = m->op, .list = m->list, .channel = m->key};
	if (!m->staged) {
		cmd->flags = m->flags;
		memcpy(cmd->dedup, m->dedup, sizeof(cmd->dedup));
		cmd->uids = m->uids;
		cmd->uids_bytes = m->uids_bytes;
		cmd->uid_count = m->uid_count;
		return;
	}
	cmd->staged_op = m->op;
	cmd->stage_id = m->stage_id;
	if (m->aborting) {
		cmd->op = STORE_ABORT;
		cmd->staged_op = 0;
		cmd->list = 0;
	} else if (m->offset < m->uids_bytes) {
		cmd->op = STORE_STAGE;
		cmd->uids = p;
		while (cmd->uid_count < STORE_UIDS_INLINE_MAX && store_uids_next(&p, end, &uid) &&
			(uint32_t)(p - cmd->uids) <= META_CHUNK_BYTES) {
			cmd->uid_count++;
			cmd->uids_bytes = (uint32_t)(p - cmd->uids);
		}
	} else {
		cmd->op = STORE_CLOSE;
		cmd->uid_count = m->sent_count;
		memcpy(cmd->dedup, m->dedup, sizeof(cmd->dedup));
	}
}

// Notes that the command is on its way. More chunks: to the end of the line, so that others get their turn.
static void command_sent(struct meta_queue *q, struct mutation *m, const struct store_command *cmd)
{
	m->in_flight++;
	if (cmd->op == STORE_STAGE) {
		m->offset += cmd->uids_bytes;
		m->sent_count += cmd->uid_count;
		if (m->offset < m->uids_bytes) {
			list_move(&q->runnable, m, MUTATION_RUNNABLE);
			return;
		}
	}
	list_move(&q->other, m, MUTATION_SENT);
}

static void batch_fill(struct meta_queue *q, struct meta_batch *batch)
{
	while (q->runnable.first != NULL && batch->count < META_BATCH_COMMANDS) {
		struct mutation *m = q->runnable.first;
		struct store_command cmd;
		int bytes;

		if (batch->count > 0 && batch->len >= META_BATCH_BYTES)
			break;
		next_command(m, &cmd);
		bytes = store_command_encode(
			&cmd, batch->data + batch->len, ENTRY_BYTES_MAX - batch->len);
		if (bytes < 0) {
			// Handlers checked every field: only room can be missing.
			assert(bytes == -ENOSPC && batch->count > 0);
			break;
		}
		batch->item[batch->count].m = m;
		batch->item[batch->count].op = cmd.op;
		batch->count++;
		batch->len += (uint32_t)bytes;
		command_sent(q, m, &cmd);
	}
}

uint32_t meta_queue_fill(struct meta_queue *q)
{
	uint32_t proposed = 0;

	for (uint32_t i = 0; i < META_BATCHES; i++) {
		struct meta_batch *batch = &q->batch[i];
		enum cons_status status;

		if (batch->open)
			continue;
		if (batch->count == 0) {
			batch_fill(q, batch);
			if (batch->count == 0)
				break;
			batch->token = ++q->next_token;
		}
		batch->open = true;
		status = q->params.cons->propose(
			q->params.cons_ctx, batch->data, batch->len, batch->token);
		if (status == CONS_BUSY) {
			batch->open = false;  // kept as it is for the next turn
			break;
		}
		if (status != CONS_OK)
			meta_queue_refused(q, batch, status);
		else
			proposed++;
	}
	return proposed;
}

struct meta_batch *meta_queue_batch(struct meta_queue *q, uint64_t token)
{
	for (uint32_t i = 0; i < META_BATCHES; i++)
		if (q->batch[i].open && q->batch[i].token == token)
			return &q->batch[i];
	return NULL;
}

// --- results ------------------------------------------------------------------------------------------------

static void retry_later(struct meta_queue *q, struct mutation *m, uint64_t now_ns)
{
	if (now_ns >= m->deadline_ns) {
		fail(q, m, MUTATION_BUSY);
		return;
	}
	m->retry_ns = now_ns + RETRY_NS;
	list_move(&q->retry, m, MUTATION_RETRY);
}

static void whole_result(struct meta_queue *q, struct mutation *m, uint64_t now_ns)
{
	if (m->result.code == STORE_R_BUSY)
		retry_later(q, m, now_ns);
	else
		finish(q, m, now_ns);
}

static void chunk_result(struct meta_queue *q, struct mutation *m, uint8_t code)
{
	if (code != STORE_R_OK && m->stage_code == STORE_R_OK)
		m->stage_code = code;
	if (m->stage_code != STORE_R_OK)
		list_move(&q->other, m, MUTATION_SENT);  // no more chunks
	if (m->in_flight > 0)
		return;
	// A refused chunk leaves a part behind at most: dropped in any case.
	m->aborting = m->stage_code != STORE_R_OK;
	if (m->aborting || m->offset == m->uids_bytes)
		list_move(&q->runnable, m, MUTATION_RUNNABLE);
}

static void close_result(struct meta_queue *q, struct mutation *m, uint64_t now_ns)
{
	const bool closed = !m->result.repeated &&
			    (m->result.code == STORE_R_OK || m->result.code == STORE_R_NO_CHANGE);

	if (closed) {
		finish(q, m, now_ns);
		return;
	}
	// Answered from memory, or refused: the stage is still there.
	m->aborting = true;
	list_move(&q->runnable, m, MUTATION_RUNNABLE);
}

static void abort_result(struct meta_queue *q, struct mutation *m, uint64_t now_ns)
{
	m->aborting = false;
	if (m->stage_code == STORE_R_BUSY) {
		m->stage_code = STORE_R_OK;
		m->offset = m->sent_count = 0;
		retry_later(q, m, now_ns);
		return;
	}
	if (m->stage_code != STORE_R_OK)
		m->result.code = m->stage_code;
	finish(q, m, now_ns);
}

void meta_queue_committed(struct meta_queue *q, struct meta_batch *batch, uint64_t now_ns)
{
	for (uint32_t i = 0; i < batch->count; i++) {
		struct mutation *m = batch->item[i].m;
		const uint8_t op = batch->item[i].op;

		m->in_flight--;
		if (op != STORE_STAGE && op != STORE_ABORT) {
			m->result = batch->result[i];
			m->members = batch->members[i];
		}
		if (m->outcome != MUTATION_OK) {
			// Another of its commands was refused.
			if (m->in_flight == 0)
				finish(q, m, now_ns);
		} else if (op == STORE_STAGE) {
			chunk_result(q, m, batch->result[i].code);
		} else if (op == STORE_CLOSE) {
			close_result(q, m, now_ns);
		} else if (op == STORE_ABORT) {
			abort_result(q, m, now_ns);
		} else {
			whole_result(q, m, now_ns);
		}
	}
	batch->open = false;
	batch->count = batch->len = 0;
}

void meta_queue_refused(struct meta_queue *q, struct meta_batch *batch, enum cons_status status)
{
	const enum mutation_outcome outcome = status == CONS_NOT_LEADER ? MUTATION_NOT_LEADER
					      : status == CONS_BUSY || status == CONS_TOO_LARGE
						      ? MUTATION_BUSY
						      : MUTATION_UNKNOWN;

	for (uint32_t i = 0; i < batch->count; i++) {
		struct mutation *m = batch->item[i].m;
		const uint8_t op = batch->item[i].op;
		// A chunk or an abort shows nothing to anyone: what is lost with it was not applied.
		const bool hidden = op == STORE_STAGE || op == STORE_ABORT;

		m->in_flight--;
		if (m->outcome == MUTATION_OK)
			m->outcome = (uint8_t)(hidden && outcome == MUTATION_UNKNOWN ? MUTATION_BUSY
										     : outcome);
		if (m->state == MUTATION_RUNNABLE)
			list_move(&q->other, m, MUTATION_SENT);
		if (m->in_flight == 0)
			finish(q, m, 0);
	}
	batch->open = false;
	batch->count = batch->len = 0;
}

// --- time and what was applied -----------------------------------------------------------------------------------------

void meta_queue_applied(struct meta_queue *q, bool connected, uint64_t applied)
{
	struct mutation *next;

	if (q->connected == connected && q->applied == applied)
		return;
	q->connected = connected;
	q->applied = applied;
	if (!connected)
		return;  // it may come back within the wait
	for (struct mutation *m = q->apply.first; m != NULL; m = next) {
		next = m->next;
		if (m->result.commit <= applied) {
			m->applied = true;
			done(q, m);
		}
	}
}

static void expire_waiters(struct meta_queue *q, uint64_t now_ns)
{
	struct gate *next_gate;

	while (q->slot.first != NULL && q->slot.first->deadline_ns <= now_ns)
		fail(q, q->slot.first, MUTATION_BUSY);
	for (struct gate *gate = q->gates; gate != NULL; gate = next_gate) {
		next_gate = gate->next;
		// The first ones came first. One that is still being prepared is in use elsewhere.
		while (gate->waiters.first != NULL && gate->waiters.first->deadline_ns <= now_ns &&
			!gate->waiters.first->preparing) {
			struct mutation *m = gate->waiters.first;

			list_remove(m);
			m->staged = false;  // it holds no gate
			fail(q, m, MUTATION_BUSY);
		}
	}
}

void meta_queue_tick(struct meta_queue *q, uint64_t now_ns)
{
	struct mutation *next;

	expire_waiters(q, now_ns);
	for (struct mutation *m = q->retry.first; m != NULL; m = next) {
		next = m->next;
		if (m->retry_ns <= now_ns)
			list_move(&q->runnable, m, MUTATION_RUNNABLE);
	}
	while (q->apply.first != NULL && q->apply.first->deadline_ns <= now_ns)
		done(q, q->apply.first);
}

uint64_t meta_queue_next_ns(const struct meta_queue *q)
{
	uint64_t next_ns = UINT64_MAX;

	if (q->apply.first != NULL)
		next_ns = q->apply.first->deadline_ns;
	if (q->slot.first != NULL && q->slot.first->deadline_ns < next_ns)
		next_ns = q->slot.first->deadline_ns;
	for (const struct mutation *m = q->retry.first; m != NULL; m = m->next)
		if (m->retry_ns < next_ns)
			next_ns = m->retry_ns;
	for (const struct gate *gate = q->gates; gate != NULL; gate = gate->next)
		if (gate->waiters.first != NULL && !gate->waiters.first->preparing &&
			gate->waiters.first->deadline_ns < next_ns)
			next_ns = gate->waiters.first->deadline_ns;
	return next_ns;
}

bool meta_queue_runnable(const struct meta_queue *q)
{
	bool room = false;

	for (uint32_t i = 0; i < META_BATCHES; i++) {
		if (q->batch[i].count > 0 && !q->batch[i].open)
			return true;  // refused as busy, to be proposed again
		room = room || !q->batch[i].open;
	}
	return room && q->runnable.first != NULL;
}

void meta_queue_info(const struct meta_queue *q, struct meta_queue_info *info)
{
	*info = q->info;
	info->runnable = q->runnable.count;
	info->apply_waiting = q->apply.count;
	info->stages_open = q->stages_open;
	info->gated = 0;
	for (const struct gate *gate = q->gates; gate != NULL; gate = gate->next)
		info->gated += gate->waiters.count;
	info->batches = 0;
	for (uint32_t i = 0; i < META_BATCHES; i++)
		info->batches += q->batch[i].open;
}
