/* SPDX-License-Identifier: BSD-3-Clause */
// The guard: see raft_guard.h for its rules. Owns what it holds back and the requests it stands in for.
// Context: the loop.
#include "raft_guard.h"

#include <stdlib.h>
#include <string.h>

#define HELD_MAX 256u  // results; a leader's next heartbeat brings new ones
#define ADDRESS_BYTES 64u

// One write, in our name; the library's request is answered after we took note.
struct guard_append {
	struct guard_append *next;
	struct raft_guard *g;
	struct raft_io_append req;
	struct raft_io_append *outer;
	uint64_t last_index, last_term;  // 0: all of it was cut off since
};

struct guard_put {
	struct raft_guard *g;
	struct raft_io_snapshot_put req;
	struct raft_io_snapshot_put *outer;
	uint64_t index, term;
	bool install;
};

struct guard_held {
	struct guard_held *next;
	struct raft_message message;
	char address[ADDRESS_BYTES];
};

static struct raft_guard *of_outer(struct raft_io *io)
{
	return (struct raft_guard *)((char *)io - offsetof(struct raft_guard, io));
}

static bool acts(const struct raft_guard *g, uint32_t rule)
{
	return (g->rules & rule) != 0;
}

// Term of an entry in memory, as the library's own lookup: 0 when it has none there.
static uint64_t term_of(const struct raft_guard *g, uint64_t index)
{
	const struct raft_log *log = &g->raft->log;
	const uint64_t count =
		log->size == 0 ? 0 : (log->back + log->size - log->front) % log->size;

	if (index != 0 && index == log->snapshot.last_index)
		return log->snapshot.last_term;
	if (index <= log->offset || index > log->offset + count)
		return 0;
	return log->entries[(log->front + (index - log->offset - 1)) % log->size].term;
}

// --- the inner's answers to writes --------------------------------------------------------------------------

static int fail(struct raft_guard *g, int rc, const char *what)
{
	memcpy(g->io.errmsg, g->inner->errmsg, sizeof(g->io.errmsg));
	if (rc != 0 && rc != RAFT_CANCELED && rc != RAFT_SHUTDOWN && acts(g, GUARD_FAULTS))
		g->hooks->fault(g->ctx, GUARD_DISK, rc, what);
	return rc;
}

static void deliver_held(struct raft_guard *g);

static void append_done(struct raft_io_append *req, int status)
{
	struct guard_append *a = req->data;
	struct raft_guard *g = a->g;
	struct guard_append **at = &g->appends;

	(void)fail(g, status, "write of the log");
	while (*at != a)
		at = &(*at)->next;
	*at = a->next;
	if (status == 0 && a->last_index > g->stored_index) {
		g->stored_index = a->last_index;
		g->stored_term = a->last_term;
	}
	if (status == 0 && g->rolled_back)
		g->hooks->fault(g->ctx, GUARD_ROLLBACK, 0, "a configuration was taken back");
	a->outer->cb(a->outer, status);
	free(a);
	deliver_held(g);
	guard_look(g);
}

static int io_append(struct raft_io *io, struct raft_io_append *req,
	const struct raft_entry entries[], unsigned n, raft_io_append_cb cb)
{
	struct raft_guard *g = of_outer(io);
	struct guard_append *a = calloc(1, sizeof(*a)), **at = &g->appends;
	int rc;

	if (a == NULL)
		return fail(g, RAFT_NOMEM, "memory of a write");
	req->cb = cb;
	*a = (struct guard_append){.g = g, .outer = req, .last_index = g->submitted_index + n};
	a->last_term = entries[n - 1].term;
	a->req.data = a;
	for (unsigned i = 0; i < n; i++)
		if (entries[i].type == RAFT_CHANGE)
			g->change_index = g->submitted_index + 1 + i;
	while (*at != NULL)
		at = &(*at)->next;
	*at = a;
	g->submitted_index += n;
	rc = g->inner->append(g->inner, &a->req, entries, n, append_done);
	if (rc != 0) {
		g->submitted_index -= n;
		*at = NULL;
		free(a);
		return fail(g, rc, "write of the log");
	}
	return 0;
}

static int io_truncate(struct raft_io *io, raft_index index)
{
	struct raft_guard *g = of_outer(io);
	const uint64_t last = index - 1, last_term = term_of(g, last);
	const int rc = g->inner->truncate(g->inner, index);

	if (rc != 0)
		return fail(g, rc, "cut of the log");
	if (g->submitted_index > last)
		g->submitted_index = last;
	if (g->stored_index > last) {
		g->stored_index = last;
		g->stored_term = last_term;
	}
	for (struct guard_append *a = g->appends; a != NULL; a = a->next)
		if (a->last_index > last) {
			a->last_index = last;
			a->last_term = last_term;
		}
	if (g->change_index >= index && acts(g, GUARD_ROLLBACKS))
		g->rolled_back = true;
	return 0;
}

static void put_done(struct raft_io_snapshot_put *req, int status)
{
	struct guard_put *p = req->data;
	struct raft_guard *g = p->g;

	(void)fail(g, status, "write of a snapshot");
	if (p->install) {
		g->installs--;
		if (status == 0 && p->index >= g->stored_index) {
			g->stored_index = p->index;
			g->stored_term = p->term;
		}
	}
	p->outer->cb(p->outer, status);
	free(p);
	deliver_held(g);
	guard_look(g);
}

static int io_snapshot_put(struct raft_io *io, unsigned trailing, struct raft_io_snapshot_put *req,
	const struct raft_snapshot *snapshot, raft_io_snapshot_put_cb cb)
{
	struct raft_guard *g = of_outer(io);
	struct guard_put *p = calloc(1, sizeof(*p));
	int rc;

	if (p == NULL)
		return fail(g, RAFT_NOMEM, "memory of a snapshot");
	req->cb = cb;
	*p = (struct guard_put){.g = g, .outer = req, .index = snapshot->index};
	p->term = snapshot->term;
	p->install = trailing == 0;
	p->req.data = p;
	rc = g->inner->snapshot_put(g->inner, trailing, &p->req, snapshot, put_done);
	if (rc != 0) {
		free(p);
		return fail(g, rc, "write of a snapshot");
	}
	if (trailing == 0) {
		// Replaces the log: what was in flight for it no longer counts.
		g->installs++;
		g->submitted_index = snapshot->index;
		g->stored_index = g->stored_term = 0;
		g->change_index = snapshot->configuration_index;
		for (struct guard_append *a = g->appends; a != NULL; a = a->next)
			a->last_index = 0;
	}
	return 0;
}

static int io_set_term(struct raft_io *io, raft_term term)
{
	struct raft_guard *g = of_outer(io);

	if (g->hooks->promise != NULL && g->hooks->promise(g->ctx, term, 0) != 0)
		return fail(g, RAFT_IOERR, "write of the sidecar");
	g->term = term;
	return fail(g, g->inner->set_term(g->inner, term), "write of the term");
}

static int io_set_vote(struct raft_io *io, raft_id id)
{
	struct raft_guard *g = of_outer(io);

	if (g->hooks->promise != NULL && g->hooks->promise(g->ctx, g->term, id) != 0)
		return fail(g, RAFT_IOERR, "write of the sidecar");
	return fail(g, g->inner->set_vote(g->inner, id), "write of the vote");
}

// --- messages out -------------------------------------------------------------------------------------------

static int io_send(struct raft_io *io, struct raft_io_send *req, const struct raft_message *message,
	raft_io_send_cb cb)
{
	struct raft_guard *g = of_outer(io);
	struct raft_message copy = *message;
	struct raft_request_vote *vote = &copy.request_vote;
	struct raft_append_entries_result *result = &copy.append_entries_result;

	if (message->type == RAFT_IO_REQUEST_VOTE && acts(g, GUARD_VOTES) &&
		vote->last_log_index > g->stored_index) {
		vote->last_log_index = g->stored_index;
		vote->last_log_term = g->stored_term;
		g->stats.clamped_votes++;
	}
	if (message->type == RAFT_IO_APPEND_ENTRIES_RESULT && acts(g, GUARD_MATCH) &&
		result->rejected == 0) {
		const uint64_t match = g->match_term == result->term ? g->match_index : 0;

		if (result->last_log_index > match) {
			result->last_log_index = match;
			g->stats.clamped_results++;
		}
	}
	return g->inner->send(g->inner, req, &copy, cb);
}

// --- messages in and ticks ----------------------------------------------------------------------------------

static struct guard_held *held_new(const struct raft_message *message)
{
	struct guard_held *held = calloc(1, sizeof(*held));

	if (held == NULL)
		return NULL;
	held->message = *message;
	if (message->server_address != NULL)
		strncpy(held->address, message->server_address, sizeof(held->address) - 1);
	held->message.server_address = held->address;
	return held;
}

static bool must_hold(const struct raft_guard *g, const struct raft_message *message)
{
	return message->type == RAFT_IO_APPEND_ENTRIES_RESULT && acts(g, GUARD_HOLD) &&
	       message->append_entries_result.rejected == 0 && raft_state(g->raft) == RAFT_LEADER &&
	       g->stored_term < g->raft->current_term;
}

static void hold(struct raft_guard *g, const struct raft_message *message)
{
	struct guard_held **at = &g->held;

	if (g->held_count == HELD_MAX)
		return;
	while (*at != NULL)
		at = &(*at)->next;
	*at = held_new(message);
	if (*at == NULL)
		return;
	g->held_count++;
	g->stats.held_messages++;
}

static void take(struct raft_guard *g, struct raft_message *message);

static void deliver_held(struct raft_guard *g)
{
	if (g->timeout_now != NULL && !guard_writing(g)) {
		struct guard_held *held = g->timeout_now;

		g->timeout_now = NULL;
		take(g, &held->message);
		free(held);
	}
	if (g->held != NULL && raft_state(g->raft) == RAFT_LEADER &&
		g->stored_term < g->raft->current_term)
		return;
	while (g->held != NULL) {
		struct guard_held *held = g->held;

		g->held = held->next;
		g->held_count--;
		// The library looks at the term itself.
		take(g, &held->message);
		free(held);
	}
}

// The library rolls a configuration back by reading the entry of the one before, and falls over when a
// snapshot took that. What is on disk is sound: a start from it is the repair.
static void check_rollback(struct raft_guard *g, const struct raft_append_entries *args)
{
	const uint64_t uncommitted = g->raft->configuration_uncommitted_index;

	if (!acts(g, GUARD_ROLLBACKS) || uncommitted == 0 ||
		g->raft->configuration_index > g->raft->log.offset ||
		args->term < g->raft->current_term)
		return;
	for (unsigned i = 0; i < args->n_entries; i++) {
		const uint64_t index = args->prev_log_index + 1 + i, term = term_of(g, index);

		if (index > uncommitted)
			return;
		if (term != 0 && term != args->entries[i].term)
			g->hooks->fault(g->ctx, GUARD_ROLLBACK, 0,
				"a configuration is to be taken back behind a snapshot");
	}
}

// How far the log will agree with the sender's once the library has taken the message.
static void note_match(struct raft_guard *g, struct raft_message *message)
{
	struct raft_append_entries *args = &message->append_entries;
	uint64_t term = 0, index = 0;

	if (message->type == RAFT_IO_APPEND_ENTRIES) {
		const uint64_t last = args->prev_log_index + args->n_entries;

		check_rollback(g, args);
		if (acts(g, GUARD_MATCH) && args->leader_commit > last)
			args->leader_commit = last;
		if (args->prev_log_index != 0 &&
			term_of(g, args->prev_log_index) != args->prev_log_term)
			return;  // the library rejects it
		term = args->term;
		index = last;
	} else if (message->type == RAFT_IO_INSTALL_SNAPSHOT) {
		term = message->install_snapshot.term;
		index = message->install_snapshot.last_index;
	}
	if (term == 0 || term < g->raft->current_term || term < g->match_term)
		return;
	if (term > g->match_term || index > g->match_index)
		g->match_index = index;
	g->match_term = term;
}

static void take(struct raft_guard *g, struct raft_message *message)
{
	note_match(g, message);
	g->recv(&g->io, message);
	guard_look(g);
}

static void drop(struct raft_message *message)
{
	if (message->type == RAFT_IO_APPEND_ENTRIES && message->append_entries.n_entries > 0) {
		raft_free(message->append_entries.entries[0].batch);
		raft_free(message->append_entries.entries);
	} else if (message->type == RAFT_IO_INSTALL_SNAPSHOT) {
		raft_configuration_close(&message->install_snapshot.conf);
		raft_free(message->install_snapshot.data.base);
	}
}

static void on_recv(struct raft_io *inner, struct raft_message *message)
{
	struct raft_guard *g = inner->data;

	if (g->hooks->refuse != NULL && g->hooks->refuse(g->ctx, message)) {
		g->stats.refused_messages++;
		drop(message);
		return;
	}
	if (must_hold(g, message)) {
		hold(g, message);
		return;
	}
	if (message->type == RAFT_IO_TIMEOUT_NOW && acts(g, GUARD_VOTES) && guard_writing(g)) {
		// The newest counts.
		free(g->timeout_now);
		g->timeout_now = held_new(message);
		g->stats.held_timeouts++;
		return;
	}
	take(g, message);
}

static void on_tick(struct raft_io *inner)
{
	struct raft_guard *g = inner->data;

	if (acts(g, GUARD_VOTES) && raft_state(g->raft) == RAFT_FOLLOWER && guard_writing(g)) {
		g->stats.skipped_ticks++;
		return;
	}
	g->tick(&g->io);
	guard_look(g);
}

// --- leadership ---------------------------------------------------------------------------------------------

static void barrier_done(struct raft_barrier *req, int status)
{
	struct raft_guard *g = req->data;

	g->barrier_flying = false;
	if (status == 0)
		g->ready_term = g->barrier_term;
}

void guard_look(struct raft_guard *g)
{
	const int state = raft_state(g->raft);
	int rc;

	if (!g->started)
		return;
	if (state == RAFT_UNAVAILABLE && g->close == NULL && acts(g, GUARD_FAULTS))
		g->hooks->fault(g->ctx, GUARD_LIBRARY, 0, raft_errmsg(g->raft));
	if (state != RAFT_LEADER)
		return;
	if (g->leader_term != g->raft->current_term) {
		g->leader_term = g->raft->current_term;
		g->stats.elections++;
	}
	if (!acts(g, GUARD_BARRIER) || g->barrier_flying || g->barrier_term == g->leader_term)
		return;
	g->barrier_term = g->leader_term;
	g->barrier_flying = true;
	g->barrier.data = g;
	rc = raft_barrier(g->raft, &g->barrier, barrier_done);
	if (rc == 0) {
		g->stats.barriers++;
		return;
	}
	g->barrier_flying = false;
	g->barrier_term = 0;  // asked again with the next look
	if (rc != RAFT_NOTLEADER && acts(g, GUARD_FAULTS))
		g->hooks->fault(g->ctx, GUARD_LIBRARY, rc, "a barrier was refused");
}

bool guard_ready(const struct raft_guard *g)
{
	return raft_state(g->raft) == RAFT_LEADER && g->ready_term == g->raft->current_term;
}

bool guard_writing(const struct raft_guard *g)
{
	return g->appends != NULL || g->installs != 0;
}

// --- the rest of raft_io ------------------------------------------------------------------------------------

static int io_init(struct raft_io *io, raft_id id, const char *address)
{
	struct raft_guard *g = of_outer(io);
	const int rc = g->inner->init(g->inner, id, address);

	g->inner->data = g;
	memcpy(io->errmsg, g->inner->errmsg, sizeof(io->errmsg));
	return rc;
}

static void on_close(struct raft_io *inner)
{
	struct raft_guard *g = inner->data;

	g->close(&g->io);
}

static void io_close(struct raft_io *io, raft_io_close_cb cb)
{
	struct raft_guard *g = of_outer(io);

	g->close = cb;
	g->inner->close(g->inner, on_close);
}

void guard_unload(const struct guard_load *load)
{
	void *batch = NULL;

	for (size_t i = 0; i < load->count; i++) {
		if (load->entries[i].batch != batch)
			raft_free(load->entries[i].batch);
		batch = load->entries[i].batch;
	}
	raft_free(load->entries);
	if (load->snapshot == NULL)
		return;
	raft_configuration_close(&load->snapshot->configuration);
	for (unsigned i = 0; i < load->snapshot->n_bufs; i++)
		raft_free(load->snapshot->bufs[i].base);
	raft_free(load->snapshot->bufs);
	raft_free(load->snapshot);
}

static int io_load(struct raft_io *io, raft_term *term, raft_id *vote,
	struct raft_snapshot **snapshot, raft_index *start_index, struct raft_entry *entries[],
	size_t *n_entries)
{
	struct raft_guard *g = of_outer(io);
	struct guard_load load = {.term = term, .vote = vote};
	int rc = g->inner->load(g->inner, term, vote, snapshot, start_index, entries, n_entries);

	memcpy(io->errmsg, g->inner->errmsg, sizeof(io->errmsg));
	if (rc != 0)
		return rc;
	load.snapshot = *snapshot;
	load.first_index = *start_index;
	load.entries = *entries;
	load.count = *n_entries;
	if (g->hooks->loaded != NULL)
		rc = g->hooks->loaded(g->ctx, &load);
	if (rc != 0) {
		guard_unload(&load);
		return rc;
	}
	g->loaded = true;
	g->term = *term;
	g->submitted_index = load.first_index + load.count - 1;
	if (load.count > 0) {
		g->stored_term = load.entries[load.count - 1].term;
	} else if (load.snapshot != NULL) {
		g->stored_term = load.snapshot->term;
	}
	g->stored_index = g->submitted_index;
	if (load.snapshot != NULL)
		g->change_index = load.snapshot->configuration_index;
	for (size_t i = 0; i < load.count; i++)
		if (load.entries[i].type == RAFT_CHANGE)
			g->change_index = load.first_index + i;
	return 0;
}

static int io_start(struct raft_io *io, unsigned msecs, raft_io_tick_cb tick, raft_io_recv_cb recv)
{
	struct raft_guard *g = of_outer(io);
	int rc;

	g->tick = tick;
	g->recv = recv;
	rc = g->inner->start(g->inner, msecs, on_tick, on_recv);
	memcpy(io->errmsg, g->inner->errmsg, sizeof(io->errmsg));
	g->started = rc == 0;
	return rc;
}

static int io_bootstrap(struct raft_io *io, const struct raft_configuration *conf)
{
	struct raft_guard *g = of_outer(io);
	const int rc = g->inner->bootstrap(g->inner, conf);

	memcpy(io->errmsg, g->inner->errmsg, sizeof(io->errmsg));
	return rc;
}

static int io_recover(struct raft_io *io, const struct raft_configuration *conf)
{
	struct raft_guard *g = of_outer(io);
	const int rc = g->inner->recover(g->inner, conf);

	memcpy(io->errmsg, g->inner->errmsg, sizeof(io->errmsg));
	return rc;
}

static int io_snapshot_get(
	struct raft_io *io, struct raft_io_snapshot_get *req, raft_io_snapshot_get_cb cb)
{
	struct raft_guard *g = of_outer(io);

	return g->inner->snapshot_get(g->inner, req, cb);
}

static raft_time io_time(struct raft_io *io)
{
	struct raft_guard *g = of_outer(io);

	return g->inner->time(g->inner);
}

static int io_random(struct raft_io *io, int min, int max)
{
	struct raft_guard *g = of_outer(io);

	return g->inner->random(g->inner, min, max);
}

static int io_async_work(
	struct raft_io *io, struct raft_io_async_work *req, raft_io_async_work_cb cb)
{
	struct raft_guard *g = of_outer(io);

	return g->inner->async_work(g->inner, req, cb);
}

void guard_wrap(struct raft_guard *g, struct raft_io *inner, struct raft *raft, uint32_t rules,
	const struct guard_hooks *hooks, void *ctx)
{
	*g = (struct raft_guard){
		.inner = inner, .raft = raft, .rules = rules, .hooks = hooks, .ctx = ctx};
	g->io = (struct raft_io){
		.version = 2,  // asynchronous snapshots (the library's own says 1 and can them)
		.data = raft,
		.init = io_init,
		.close = io_close,
		.load = io_load,
		.start = io_start,
		.bootstrap = io_bootstrap,
		.recover = io_recover,
		.set_term = io_set_term,
		.set_vote = io_set_vote,
		.send = io_send,
		.append = io_append,
		.truncate = io_truncate,
		.snapshot_put = io_snapshot_put,
		.snapshot_get = io_snapshot_get,
		.time = io_time,
		.random = io_random,
		.async_work = io_async_work,
	};
	inner->data = g;
}

void guard_drop(struct raft_guard *g)
{
	free(g->timeout_now);
	g->timeout_now = NULL;
	while (g->held != NULL) {
		struct guard_held *next = g->held->next;

		free(g->held);
		g->held = next;
	}
	g->held_count = 0;
}
