/* SPDX-License-Identifier: BSD-3-Clause */
// The guard: see raft_guard.h for its rules. Owns what it holds back and the requests it stands in for.
// Context: the loop.
#include "raft_guard_pvt.h"

#include <stdlib.h>
#include <string.h>

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

// --- the inner's answers to writes --------------------------------------------------------------------------

static int fail(struct raft_guard *g, int rc, const char *what)
{
	memcpy(g->io.errmsg, g->inner->errmsg, sizeof(g->io.errmsg));
	if (rc != 0 && rc != RAFT_CANCELED && rc != RAFT_SHUTDOWN && guard_acts(g, GUARD_FAULTS))
		g->hooks->fault(g->ctx, GUARD_DISK, rc, what);
	return rc;
}

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
	// The library counts entries, not indexes: those that were cut off and came back while their first
	// write was on its way it counts twice, and would take what is in flight for stored from then on.
	if (guard_acts(g, GUARD_MATCH) && g->raft->last_stored > g->stored_index)
		g->raft->last_stored = g->stored_index;
	free(a);
	guard_deliver(g);
	guard_look(g);
}

static int io_append(struct raft_io *io, struct raft_io_append *req,
	const struct raft_entry entries[], unsigned n, raft_io_append_cb cb)
{
	struct raft_guard *g = guard_of(io);
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
	struct raft_guard *g = guard_of(io);
	const uint64_t last = index - 1, last_term = guard_term_of(g, last);
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
	if (g->change_index >= index && guard_acts(g, GUARD_ROLLBACKS))
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
	guard_deliver(g);
	guard_look(g);
}

static int io_snapshot_put(struct raft_io *io, unsigned trailing, struct raft_io_snapshot_put *req,
	const struct raft_snapshot *snapshot, raft_io_snapshot_put_cb cb)
{
	struct raft_guard *g = guard_of(io);
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
	struct raft_guard *g = guard_of(io);

	if (g->hooks->promise != NULL && g->hooks->promise(g->ctx, term, 0) != 0)
		return fail(g, RAFT_IOERR, "write of the sidecar");
	g->term = term;
	return fail(g, g->inner->set_term(g->inner, term), "write of the term");
}

static int io_set_vote(struct raft_io *io, raft_id id)
{
	struct raft_guard *g = guard_of(io);

	if (g->hooks->promise != NULL && g->hooks->promise(g->ctx, g->term, id) != 0)
		return fail(g, RAFT_IOERR, "write of the sidecar");
	return fail(g, g->inner->set_vote(g->inner, id), "write of the vote");
}

// --- ticks and leadership -----------------------------------------------------------------------------------

static bool only_voter(const struct raft *r)
{
	bool self = false;

	for (unsigned i = 0; i < r->configuration.n; i++) {
		if (r->configuration.servers[i].role != RAFT_VOTER)
			continue;
		if (r->configuration.servers[i].id != r->id)
			return false;
		self = true;
	}
	return self;
}

// The library makes an only voter leader in the term it is in, which another may have led.
static void own_term(struct raft_guard *g)
{
	struct raft *r = g->raft;

	if (!guard_acts(g, GUARD_TERMS) || raft_state(r) != RAFT_FOLLOWER || !only_voter(r) ||
		g->inner->time(g->inner) - r->election_timer_start <
			r->follower_state.randomized_election_timeout)
		return;
	if (io_set_term(&g->io, r->current_term + 1) != 0)
		return;
	r->current_term++;
	r->voted_for = 0;
}

static void on_tick(struct raft_io *inner)
{
	struct raft_guard *g = inner->data;

	if (guard_acts(g, GUARD_VOTES) && raft_state(g->raft) == RAFT_FOLLOWER &&
		guard_writing(g)) {
		g->stats.skipped_ticks++;
		return;
	}
	own_term(g);
	g->tick(&g->io);
	guard_look(g);
}

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
	if (state == RAFT_UNAVAILABLE && g->close == NULL && guard_acts(g, GUARD_FAULTS))
		g->hooks->fault(g->ctx, GUARD_LIBRARY, 0, raft_errmsg(g->raft));
	if (state != RAFT_LEADER)
		return;
	if (g->leader_term != g->raft->current_term) {
		g->leader_term = g->raft->current_term;
		g->stats.elections++;
	}
	if (!guard_acts(g, GUARD_BARRIER) || g->barrier_flying || g->barrier_term == g->leader_term)
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
	if (rc != RAFT_NOTLEADER && guard_acts(g, GUARD_FAULTS))
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
	struct raft_guard *g = guard_of(io);
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
	struct raft_guard *g = guard_of(io);

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
	struct raft_guard *g = guard_of(io);
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
	struct raft_guard *g = guard_of(io);
	int rc;

	g->tick = tick;
	g->recv = recv;
	rc = g->inner->start(g->inner, msecs, on_tick, guard_recv);
	memcpy(io->errmsg, g->inner->errmsg, sizeof(io->errmsg));
	g->started = rc == 0;
	return rc;
}

static int io_bootstrap(struct raft_io *io, const struct raft_configuration *conf)
{
	struct raft_guard *g = guard_of(io);
	const int rc = g->inner->bootstrap(g->inner, conf);

	memcpy(io->errmsg, g->inner->errmsg, sizeof(io->errmsg));
	return rc;
}

static int io_recover(struct raft_io *io, const struct raft_configuration *conf)
{
	struct raft_guard *g = guard_of(io);
	const int rc = g->inner->recover(g->inner, conf);

	memcpy(io->errmsg, g->inner->errmsg, sizeof(io->errmsg));
	return rc;
}

static int io_snapshot_get(
	struct raft_io *io, struct raft_io_snapshot_get *req, raft_io_snapshot_get_cb cb)
{
	struct raft_guard *g = guard_of(io);

	return g->inner->snapshot_get(g->inner, req, cb);
}

static raft_time io_time(struct raft_io *io)
{
	struct raft_guard *g = guard_of(io);

	return g->inner->time(g->inner);
}

static int io_random(struct raft_io *io, int min, int max)
{
	struct raft_guard *g = guard_of(io);

	return g->inner->random(g->inner, min, max);
}

static int io_async_work(
	struct raft_io *io, struct raft_io_async_work *req, raft_io_async_work_cb cb)
{
	struct raft_guard *g = guard_of(io);

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
		.send = guard_send,
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
