/* SPDX-License-Identifier: BSD-3-Clause */
// Owns every mutation from submit to done: each is in exactly one list. Run by the loop of the meta
// process. A gate stands for a channel with a large mutation; its waiters keep their order.
#include "meta_queue_pvt.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base_time.h"

#define RETRY_NS (50 * NS_PER_MS)
#define EXPIRE_NS (100 * NS_PER_MS)
#define ANSWERS_PER_CALL 512u  // of those that waited for the fast process: about 2 ms

// --- lists ------------------------------------------------------------------------------------------------

void mutations_push(struct mutation_list *list, struct mutation *m, enum mutation_state state)
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

void mutations_remove(struct mutation *m)
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

void mutations_move(struct mutation_list *list, struct mutation *m, enum mutation_state state)
{
	if (m->list_of != NULL)
		mutations_remove(m);
	mutations_push(list, m, state);
}

// Keeps the order in which they were sent.
void mutations_push_again(struct mutation_list *list, struct mutation *m)
{
	struct mutation *after = list->last;

	while (after != NULL && after->token > m->token)
		after = after->prev;
	assert(m->list_of == NULL);
	m->list_of = list;
	m->state = MUTATION_RUNNABLE;
	m->prev = after;
	m->next = after != NULL ? after->next : list->first;
	if (m->next != NULL)
		m->next->prev = m;
	else
		list->last = m;
	if (after != NULL)
		after->next = m;
	else
		list->first = m;
	list->count++;
}

void mutations_prepend(
	struct mutation_list *list, struct mutation_list *front, enum mutation_state state)
{
	for (struct mutation *m = front->first; m != NULL; m = m->next) {
		m->list_of = list;
		m->state = (uint8_t)state;
	}
	if (front->first == NULL)
		return;
	front->last->next = list->first;
	if (list->first != NULL)
		list->first->prev = front->last;
	else
		list->last = front->last;
	list->first = front->first;
	list->count += front->count;
	*front = (struct mutation_list){.first = NULL};
}

// Answers all with "unknown", at the end of the process.
static void list_drain(struct meta_queue *q, struct mutation_list *list)
{
	while (list->first != NULL) {
		struct mutation *m = list->first;

		mutations_remove(m);
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

void queue_new_stage(struct meta_queue *q, struct mutation *m)
{
	m->restart = false;
	m->stage_code = STORE_R_OK;
	m->offset = m->sent_count = 0;
	m->stage_id = q->next_stage_id++;
	if (q->next_stage_id > q->params.stage_id_last)
		q->next_stage_id = q->params.stage_id_first;
}

// Lets the owner of a gate have a stage, or wait for one.
static void want_slot(struct meta_queue *q, struct mutation *m)
{
	if (m->preparing) {
		mutations_move(&q->other, m, MUTATION_IDLE);
	} else if (q->stages_open < q->params.stages) {
		q->stages_open++;
		m->has_slot = true;
		queue_new_stage(q, m);
		mutations_move(&q->runnable, m, MUTATION_RUNNABLE);
	} else {
		mutations_move(&q->slot, m, MUTATION_SLOT);
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
		mutations_move(&q->runnable, m, MUTATION_RUNNABLE);
	}
	*at = gate->next;
	free(gate);
}

// --- the end of a mutation --------------------------------------------------------------------------------

static void done(struct meta_queue *q, struct mutation *m)
{
	if (m->list_of != NULL)
		mutations_remove(m);
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
void queue_finish(struct meta_queue *q, struct mutation *m, uint64_t now_ns)
{
	const bool applied = m->outcome == MUTATION_OK &&
			     (m->result.code == STORE_R_OK || m->result.code == STORE_R_NO_CHANGE);

	if (m->list_of != NULL)
		mutations_remove(m);
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
	mutations_push(&q->apply, m, MUTATION_APPLY_WAIT);
}

static int drop_stage(struct meta_queue *q, uint64_t id, const struct channel_key *key)
{
	struct mutation *m = calloc(1, sizeof(*m));

	if (m == NULL)
		return -ENOMEM;
	m->key = *key;
	m->op = STORE_ABORT;
	m->staged = m->aborting = true;
	m->stage_id = id;
	m->deadline_ns = m->answer_ns = UINT64_MAX;
	q->info.pending++;
	mutations_push(&q->runnable, m, MUTATION_RUNNABLE);
	return 0;
}

void queue_fail(struct meta_queue *q, struct mutation *m, enum mutation_outcome outcome)
{
	m->outcome = (uint8_t)(m->maybe ? MUTATION_UNKNOWN : outcome);
	// What it left of a stage is dropped; without memory for that the store does it in time.
	if (m->has_slot && m->offset > 0)
		(void)drop_stage(q, m->stage_id, &m->key);
	queue_finish(q, m, 0);
}

void queue_retry_later(struct meta_queue *q, struct mutation *m, uint64_t now_ns)
{
	if (now_ns >= m->deadline_ns || now_ns >= m->answer_ns) {
		queue_fail(q, m, MUTATION_BUSY);
		return;
	}
	m->retry_ns = now_ns + RETRY_NS;
	mutations_move(&q->retry, m, MUTATION_RETRY);
}

// --- in -----------------------------------------------------------------------------------------------------

int meta_queue_create(const struct meta_queue_params *params, struct meta_queue **queue)
{
	struct meta_queue *q = calloc(1, sizeof(*q));

	if (q == NULL)
		return -ENOMEM;
	q->params = *params;
	q->next_stage_id = params->stage_id_first;
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
	list_drain(q, &q->again);
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
	if (m->answer_ns == 0)
		m->answer_ns = now_ns + q->params.answer_wait_ns;
	if (gate == NULL) {
		mutations_push(&q->runnable, m, MUTATION_RUNNABLE);
	} else if (gate->owner == NULL) {
		gate->owner = m;
		want_slot(q, m);
	} else {
		mutations_push(&gate->waiters, m, MUTATION_GATED);
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
	return drop_stage(q, id, key);
}

// --- time, and what was applied -----------------------------------------------------------------------------------------

void meta_queue_applied(struct meta_queue *q, bool connected, uint64_t applied)
{
	uint32_t answered = 0;
	struct mutation *next;

	if (q->connected == connected && q->applied == applied && !q->apply_more)
		return;
	q->connected = connected;
	q->applied = applied;
	q->apply_more = false;
	if (!connected)
		return;  // it may come back within the wait
	for (struct mutation *m = q->apply.first; m != NULL; m = next) {
		next = m->next;
		if (m->result.commit > applied)
			continue;
		if (answered++ == ANSWERS_PER_CALL) {
			q->apply_more = true;
			return;
		}
		m->applied = true;
		done(q, m);
	}
}

static void expire_waiters(struct meta_queue *q, uint64_t now_ns)
{
	struct gate *next_gate;

	while (q->slot.first != NULL && q->slot.first->deadline_ns <= now_ns)
		queue_fail(q, q->slot.first, MUTATION_BUSY);
	for (struct gate *gate = q->gates; gate != NULL; gate = next_gate) {
		next_gate = gate->next;
		// The first ones came first. One that is still being prepared is in use elsewhere.
		while (gate->waiters.first != NULL && gate->waiters.first->deadline_ns <= now_ns &&
			!gate->waiters.first->preparing) {
			struct mutation *m = gate->waiters.first;

			mutations_remove(m);
			m->staged = false;  // it holds no gate
			queue_fail(q, m, MUTATION_BUSY);
		}
	}
}

static void expire_list(struct meta_queue *q, struct mutation_list *list, uint64_t now_ns)
{
	uint32_t answered = 0;
	struct mutation *next;

	for (struct mutation *m = list->first; m != NULL && answered < ANSWERS_PER_CALL; m = next) {
		next = m->next;
		// Parts of it may be on their way; their end comes first.
		if (m->answer_ns > now_ns || m->in_flight > 0)
			continue;
		queue_fail(q, m,
			m->last_status == CONS_NOT_LEADER || m->last_status == CONS_OK
				? MUTATION_NOT_LEADER
				: MUTATION_BUSY);
		answered++;
	}
}

void meta_queue_tick(struct meta_queue *q, uint64_t now_ns)
{
	uint32_t answered = 0;
	struct mutation *next;

	q->now_ns = now_ns;
	expire_waiters(q, now_ns);
	if (now_ns >= q->expire_ns) {
		q->expire_ns = now_ns + EXPIRE_NS;
		expire_list(q, &q->again, now_ns);
		expire_list(q, &q->runnable, now_ns);
	}
	for (struct mutation *m = q->retry.first; m != NULL; m = next) {
		next = m->next;
		if (m->retry_ns <= now_ns)
			mutations_move(&q->runnable, m, MUTATION_RUNNABLE);
	}
	while (q->apply.first != NULL && q->apply.first->deadline_ns <= now_ns &&
		answered++ < ANSWERS_PER_CALL)
		done(q, q->apply.first);
}

// There is a batch or room for one, and something to put into it.
static bool wants_to_propose(const struct meta_queue *q)
{
	bool room = false, idle = true;

	for (uint32_t i = 0; i < META_BATCHES; i++) {
		if (q->batch[i].count > 0 && !q->batch[i].open)
			return true;  // not taken, to be proposed again
		room = room || !q->batch[i].open;
		idle = idle && !q->batch[i].open;
	}
	return q->again.first != NULL ? idle : room && q->runnable.first != NULL;
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
	if ((q->runnable.first != NULL || q->again.first != NULL) && q->expire_ns < next_ns)
		next_ns = q->expire_ns;
	if (wants_to_propose(q) && q->propose_ns < next_ns)
		next_ns = q->propose_ns;
	return next_ns;
}

bool meta_queue_runnable(const struct meta_queue *q)
{
	return q->apply_more || (q->now_ns >= q->propose_ns && wants_to_propose(q));
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

bool meta_queue_owns_stage(const struct meta_queue *q, uint64_t id)
{
	for (const struct gate *gate = q->gates; gate != NULL; gate = gate->next)
		if (gate->owner != NULL && gate->owner->has_slot && gate->owner->stage_id == id)
			return true;
	return false;
}
