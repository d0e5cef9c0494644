/* SPDX-License-Identifier: BSD-3-Clause */
// From runnable mutations to batches, and from what came of a batch back to its mutations. Owns the
// batches. Run by the loop of the meta process.
#include "meta_queue_pvt.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base_time.h"

#define BUSY_NS (1 * NS_PER_MS)  // until a batch that was not taken is proposed again
#define LEADERLESS_NS (20 * NS_PER_MS)

// --- out: batches -------------------------------------------------------------------------------------------

// The next command of `m`; its UIDs point into the mutation.
static void next_command(const struct mutation *m, struct store_command *cmd)
{
	const uint8_t *p, *end;
	struct id_view uid;

	*cmd = (struct store_command){.op = m->op, .list = m->list, .channel = m->key};
	if (!m->staged) {
		cmd->flags = m->flags;
		memcpy(cmd->dedup, m->dedup, sizeof(cmd->dedup));
		cmd->uids = m->uids;
		cmd->uids_bytes = m->uids_bytes;
		cmd->uid_count = m->uid_count;
		if (m->op >= STORE_NODE_JOIN)
			cmd->id = m->stage_id;
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
		p = cmd->uids = m->uids + m->offset;
		end = m->uids + m->uids_bytes;
		while (cmd->uid_count < META_CHUNK_UIDS && store_uids_next(&p, end, &uid) &&
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
			mutations_move(&q->runnable, m, MUTATION_RUNNABLE);
			return;
		}
	}
	mutations_move(&q->other, m, MUTATION_SENT);
}

static void batch_fill(struct meta_queue *q, struct meta_batch *batch)
{
	uint32_t rows = 0;

	while (q->runnable.first != NULL && batch->count < META_BATCH_COMMANDS) {
		struct mutation *m = q->runnable.first;
		struct store_command cmd;
		int bytes;

		if (batch->count > 0 && (batch->len >= META_BATCH_BYTES || rows >= META_BATCH_UIDS))
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
		rows += cmd.uids != NULL ? cmd.uid_count : 0;
		command_sent(q, m, &cmd);
	}
}

// The batch to propose next: one that was not taken, oldest first, else an empty one that is filled.
static struct meta_batch *next_batch(struct meta_queue *q)
{
	struct meta_batch *kept = NULL, *empty = NULL;

	for (uint32_t i = 0; i < META_BATCHES; i++) {
		struct meta_batch *batch = &q->batch[i];

		if (batch->open)
			continue;
		if (batch->count == 0)
			empty = batch;
		else if (kept == NULL || batch->token < kept->token)
			kept = batch;
	}
	if (kept != NULL || empty == NULL || q->again.first != NULL)
		return kept;
	batch_fill(q, empty);
	if (empty->count == 0)
		return NULL;
	empty->token = ++q->next_token;
	return empty;
}

// Once nothing is in flight, what came back stands in front again.
static void take_again(struct meta_queue *q)
{
	if (q->again.first == NULL)
		return;
	for (uint32_t i = 0; i < META_BATCHES; i++)
		if (q->batch[i].count > 0)
			return;
	mutations_prepend(&q->runnable, &q->again, MUTATION_RUNNABLE);
}

static bool batch_overdue(const struct meta_queue *q, const struct meta_batch *batch)
{
	for (uint32_t i = 0; i < batch->count; i++)
		if (batch->item[i].m->answer_ns <= q->now_ns)
			return true;
	return false;
}

uint32_t meta_queue_fill(struct meta_queue *q)
{
	struct meta_batch *batch;
	uint32_t proposed = 0;

	if (q->now_ns < q->propose_ns)
		return 0;
	take_again(q);
	while ((batch = next_batch(q)) != NULL) {
		const enum cons_status status = q->params.cons->propose(
			q->params.cons_ctx, batch->data, batch->len, batch->token);

		batch->open = status == CONS_OK;
		if (status == CONS_OK) {
			proposed++;
			continue;
		}
		// Kept as it is for a later turn, unless somebody in it has waited enough.
		q->propose_ns = q->now_ns + (status == CONS_BUSY ? BUSY_NS : LEADERLESS_NS);
		q->info.deferred++;
		if ((status == CONS_BUSY || status == CONS_NOT_LEADER) && !batch_overdue(q, batch))
			break;
		batch->open = true;
		meta_queue_refused(q, batch, status);
		break;
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

static void whole_result(struct meta_queue *q, struct mutation *m, uint64_t now_ns)
{
	if (m->result.code == STORE_R_BUSY)
		queue_retry_later(q, m, now_ns);
	else
		queue_finish(q, m, now_ns);
}

// Once nothing of a stage is in flight: what is wrong with it is repaired, else it goes on.
static void stage_settle(struct meta_queue *q, struct mutation *m)
{
	if (m->in_flight > 0)
		return;
	// A refused chunk leaves a part behind at most: dropped in any case.
	m->aborting = m->restart || m->stage_code != STORE_R_OK;
	if (m->aborting || m->offset == m->uids_bytes)
		mutations_move(&q->runnable, m, MUTATION_RUNNABLE);
}

static void chunk_result(struct meta_queue *q, struct mutation *m, uint8_t code)
{
	if (code != STORE_R_OK && m->stage_code == STORE_R_OK)
		m->stage_code = code;
	if (m->restart || m->stage_code != STORE_R_OK)
		mutations_move(&q->other, m, MUTATION_SENT);  // no more chunks
	stage_settle(q, m);
}

static void close_result(struct meta_queue *q, struct mutation *m, uint64_t now_ns)
{
	const bool closed = !m->result.repeated &&
			    (m->result.code == STORE_R_OK || m->result.code == STORE_R_NO_CHANGE);

	if (closed) {
		queue_finish(q, m, now_ns);
		return;
	}
	// Answered from memory, or refused: the stage is still there.
	m->aborting = true;
	mutations_move(&q->runnable, m, MUTATION_RUNNABLE);
}

static void abort_result(struct meta_queue *q, struct mutation *m, uint64_t now_ns)
{
	const bool busy = m->stage_code == STORE_R_BUSY;

	m->aborting = false;
	if (m->restart || busy) {
		queue_new_stage(q, m);
		if (busy)
			queue_retry_later(q, m, now_ns);
		else
			mutations_move(&q->runnable, m, MUTATION_RUNNABLE);
		return;
	}
	if (m->stage_code != STORE_R_OK)
		m->result.code = m->stage_code;
	queue_finish(q, m, now_ns);
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
		if (op == STORE_STAGE) {
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

// One command came back. A chunk may be in the log or not: its stage is dropped and begun anew, which
// nobody can see. All others carry a key or do no harm twice, and are sent again as they are.
static void command_refused(struct meta_queue *q, struct mutation *m, uint8_t op, uint64_t token,
	enum cons_status status)
{
	m->in_flight--;
	m->last_status = (uint8_t)status;
	if (op == STORE_STAGE) {
		m->restart = true;
		mutations_move(&q->other, m, MUTATION_SENT);
		stage_settle(q, m);
		return;
	}
	m->maybe = m->maybe || (op != STORE_ABORT && status == CONS_UNKNOWN);
	m->token = token;
	if (m->list_of != NULL)
		mutations_remove(m);
	mutations_push_again(&q->again, m);
}

void meta_queue_refused(struct meta_queue *q, struct meta_batch *batch, enum cons_status status)
{
	const bool final = status == CONS_FAILED || status == CONS_TOO_LARGE;

	for (uint32_t i = 0; i < batch->count; i++) {
		struct mutation *m = batch->item[i].m;

		if (final && batch->item[i].op != STORE_STAGE) {
			m->in_flight--;
			queue_fail(q, m, status == CONS_FAILED ? MUTATION_UNKNOWN : MUTATION_BUSY);
		} else {
			command_refused(q, m, batch->item[i].op, batch->token, status);
		}
	}
	batch->open = false;
	batch->count = batch->len = 0;
	q->info.resent++;
	if (q->propose_ns < q->now_ns + LEADERLESS_NS && status != CONS_BUSY)
		q->propose_ns = q->now_ns + LEADERLESS_NS;
}
