/* SPDX-License-Identifier: BSD-3-Clause */
// A group's life: open, bootstrap, start, turns, stop; and its cons_ops. Owns struct raft_cons. Context:
// the loop.
#include "raft_pvt.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base_log.h"
#include "base_time.h"

#define CONNECT_RETRY_MS 200u

// --- open ---------------------------------------------------------------------------------------------------

// The library tells a file that ends too early as an input error; nothing but damage does that.
static enum raft_cons_refusal refusal_of(const struct raft_cons *c, int raft_error)
{
	if (raft_error == RAFT_IOERR && strstr(c->raft.errmsg, "short read") != NULL)
		return RAFT_REFUSED_DAMAGED;
	switch (raft_error) {
	case RAFT_CORRUPT:
	case RAFT_MALFORMED:
		return RAFT_REFUSED_DAMAGED;
	case RAFT_NOSPACE:
		return RAFT_REFUSED_SPACE;
	case RAFT_NOCONNECTION:
		return RAFT_REFUSED_ADDRESS;
	default:
		return RAFT_REFUSED_FAULT;
	}
}

static enum raft_cons_refusal open_sidecar(struct raft_cons *c, const char **why)
{
	const struct sidecar_record *r = &c->sidecar.record;
	int rc = sidecar_open(&c->sidecar, c->dir), files = files_of_library(c->dir);

	if (files < 0)
		return core_refuse(c, RAFT_REFUSED_FAULT, why, "%s: %s", c->dir, strerror(-files));
	if (rc == -ENOENT && files > 0)
		return core_refuse(c, RAFT_REFUSED_DAMAGED, why,
			"%s has a log and no sidecar that says whose it is", c->dir);
	if (rc == -EPROTO)
		return core_refuse(
			c, RAFT_REFUSED_NEWER, why, "%s/sidecar is of a later version", c->dir);
	if (rc == -EBADMSG)
		return core_refuse(c, RAFT_REFUSED_DAMAGED, why, "%s/sidecar is damaged", c->dir);
	if (rc != 0 && rc != -ENOENT)
		return core_refuse(
			c, RAFT_REFUSED_FAULT, why, "%s/sidecar: %s", c->dir, strerror(-rc));
	if (rc == 0 && (r->cluster_id != c->params.cluster_id || r->node_id != c->params.node_id))
		return core_refuse(c, RAFT_REFUSED_FOREIGN, why,
			"%s is of node %llu of cluster %016llx", c->dir,
			(unsigned long long)r->node_id, (unsigned long long)r->cluster_id);
	if (rc == 0 && r->stage == SIDECAR_BOOTSTRAPPING) {
		// It ended inside a bootstrap: nothing ran, nothing was said to anybody.
		rc = files_remove_library(c->dir);
		if (rc != 0)
			return core_refuse(
				c, RAFT_REFUSED_FAULT, why, "%s: %s", c->dir, strerror(-rc));
		sidecar_close(&c->sidecar);
		rc = -ENOENT;
	}
	c->state = rc == 0 ? RAFT_CONS_MEMBER : RAFT_CONS_EMPTY;
	if (rc != 0 && c->params.applied_index != 0)
		return core_refuse(c, RAFT_REFUSED_AMNESIA, why,
			"entry %llu was applied and %s is empty",
			(unsigned long long)c->params.applied_index, c->dir);
	return RAFT_REFUSED_NOT;
}

static enum raft_cons_refusal open_library(struct raft_cons *c, const char **why)
{
	const struct raft_cons_params *p = &c->params;
	int rc = raft_transport_open(c, &c->transport);

	if (rc != 0)
		return core_refuse(c, RAFT_REFUSED_FAULT, why, "the transport: %s", core_error(rc));
	rc = raft_uv_init(&c->inner, c->loop, c->dir, &c->transport);
	if (rc != 0)
		return core_refuse(c, RAFT_REFUSED_FAULT, why, "%s: %s", c->dir, core_error(rc));
	raft_uv_set_auto_recovery(&c->inner, false);
	raft_uv_set_segment_size(&c->inner, RAFT_SEGMENT_BYTES);
	raft_uv_set_connect_retry_delay(&c->inner, CONNECT_RETRY_MS);
	rc = raft_uv_set_snapshot_compression(&c->inner, false);
	guard_wrap(&c->guard, &c->inner, &c->raft, GUARD_ALL, &cons_hooks, c);
	if (rc == 0)
		rc = raft_init(&c->raft, &c->guard.io, &c->fsm.ops, p->node_id,
			p->address[0] == 0 ? RAFT_NO_ADDRESS : p->address);
	if (rc != 0) {
		raft_uv_close(&c->inner);
		return core_refuse(c, refusal_of(c, rc), why, "%s: %s (%s)", c->dir, core_error(rc),
			c->raft.errmsg);
	}
	c->ready = true;
	raft_set_election_timeout(&c->raft, p->election_ms);
	raft_set_heartbeat_timeout(&c->raft, p->heartbeat_ms);
	raft_set_pre_vote(&c->raft, true);
	fsm_snapshot_size(c, 0);
	raft_set_snapshot_threshold(&c->raft, p->snapshot_entries);
	// 0 would mean to the guard what the library uses it for: a snapshot of a leader's.
	raft_set_snapshot_trailing(&c->raft, p->snapshot_trailing == 0 ? 1 : p->snapshot_trailing);
	return RAFT_REFUSED_NOT;
}

static enum raft_cons_refusal open_parts(struct raft_cons *c, const char **why)
{
	enum raft_cons_refusal refusal;
	int rc;

	if (mkdir(c->dir, 0700) != 0 && errno != EEXIST)
		return core_refuse(c, RAFT_REFUSED_FAULT, why, "%s: %s", c->dir, strerror(errno));
	refusal = files_library(c, why);
	if (refusal == RAFT_REFUSED_NOT)
		refusal = files_lock(c, why);
	if (refusal == RAFT_REFUSED_NOT)
		refusal = files_space(c, why);
	if (refusal == RAFT_REFUSED_NOT)
		refusal = open_sidecar(c, why);
	if (refusal == RAFT_REFUSED_NOT)
		refusal = files_check(c, why);
	if (refusal != RAFT_REFUSED_NOT)
		return refusal;
	refusal = open_library(c, why);
	if (refusal != RAFT_REFUSED_NOT)
		return refusal;
	rc = raft_peers_open(c);
	if (rc != 0)
		return core_refuse(c, RAFT_REFUSED_FAULT, why, "%s", strerror(-rc));
	return RAFT_REFUSED_NOT;
}

enum raft_cons_refusal raft_cons_open(const struct raft_cons_params *params,
	struct raft_cons **cons, enum raft_cons_state *state, const char **why)
{
	static char refused[sizeof(((struct raft_cons *)0)->why)];
	struct raft_cons *c = calloc(1, sizeof(*c));
	enum raft_cons_refusal refusal;

	*cons = NULL;
	*why = "no memory";
	if (c == NULL)
		return RAFT_REFUSED_FAULT;
	c->params = *params;
	snprintf(c->dir, sizeof(c->dir), "%s", params->dir);
	snprintf(c->ballast, sizeof(c->ballast), "%s",
		params->ballast == NULL ? "" : params->ballast);
	c->params.dir = c->dir;
	c->params.ballast = c->ballast;
	c->events = params->events;
	c->ctx = params->ctx;
	c->loop = params->loop;
	c->lock_fd = -1;
	c->sidecar.fd = -1;
	while (c->life == 0)
		if (getrandom(&c->life, sizeof(c->life), 0) != (ssize_t)sizeof(c->life))
			c->life = 0;
	core_init(c);
	fsm_init(c);
	refusal = open_parts(c, why);
	if (refusal != RAFT_REFUSED_NOT) {
		memcpy(refused, c->why, sizeof(refused));
		*why = refused;
		raft_cons_discard(c);
		return refusal;
	}
	*cons = c;
	*state = c->state;
	return RAFT_REFUSED_NOT;
}

static void closed(struct raft *raft)
{
	struct raft_cons *c = raft->data;

	c->ready = false;
}

void raft_cons_discard(struct raft_cons *c)
{
	if (c == NULL)
		return;
	if (c->peers != NULL)
		raft_peers_discard(c);
	if (c->ready) {
		c->raft.data = c;
		raft_close(&c->raft, closed);
		while (c->ready)
			uv_run(c->loop, UV_RUN_ONCE);
		raft_uv_close(&c->inner);
	}
	raft_transport_discard(c);
	guard_drop(&c->guard);
	fsm_fini(c);
	core_fini(c);
	sidecar_close(&c->sidecar);
	if (c->lock_fd >= 0)
		close(c->lock_fd);
	free(c);
}

// --- bootstrap and start ------------------------------------------------------------------------------------

static enum raft_cons_refusal first_record(
	struct raft_cons *c, enum sidecar_stage stage, uint64_t term, const char **why)
{
	const struct sidecar_record record = {
		.cluster_id = c->params.cluster_id,
		.node_id = c->params.node_id,
		.term = term,
		.stage = stage,
	};
	const int rc = sidecar_create(&c->sidecar, c->dir, &record);

	if (rc == 0)
		return RAFT_REFUSED_NOT;
	return core_refuse(c, rc == -ENOSPC ? RAFT_REFUSED_SPACE : RAFT_REFUSED_FAULT, why,
		"%s/sidecar: %s", c->dir, strerror(-rc));
}

static int configuration_of_one(struct raft_cons *c, struct raft_configuration *conf)
{
	raft_configuration_init(conf);
	return raft_configuration_add(conf, c->params.node_id, c->raft.address, RAFT_VOTER);
}

enum raft_cons_refusal raft_cons_bootstrap(struct raft_cons *c, const char **why)
{
	struct raft_configuration conf;
	struct sidecar_record record;
	enum raft_cons_refusal refusal;
	int rc;

	if (c->state != RAFT_CONS_EMPTY)
		return core_refuse(c, RAFT_REFUSED_STATE, why, "%s holds a group already", c->dir);
	refusal = first_record(c, SIDECAR_BOOTSTRAPPING, 1, why);
	if (refusal != RAFT_REFUSED_NOT)
		return refusal;
	rc = configuration_of_one(c, &conf);
	if (rc == 0)
		rc = raft_bootstrap(&c->raft, &conf);
	raft_configuration_close(&conf);
	if (rc != 0)
		return core_refuse(c, refusal_of(c, rc), why, "%s: %s (%s)", c->dir, core_error(rc),
			c->raft.errmsg);
	record = c->sidecar.record;
	record.stage = SIDECAR_MEMBER;
	rc = sidecar_write(&c->sidecar, &record);
	if (rc != 0)
		return core_refuse(
			c, RAFT_REFUSED_FAULT, why, "%s/sidecar: %s", c->dir, strerror(-rc));
	c->state = RAFT_CONS_MEMBER;
	return RAFT_REFUSED_NOT;
}

enum raft_cons_refusal core_become_member(struct raft_cons *c, const char **why)
{
	enum raft_cons_refusal refusal;

	if (c->state != RAFT_CONS_EMPTY)
		return core_refuse(c, RAFT_REFUSED_STATE, why, "%s holds a group already", c->dir);
	refusal = first_record(c, SIDECAR_JOINED, 0, why);
	if (refusal == RAFT_REFUSED_NOT)
		c->state = RAFT_CONS_MEMBER;
	return refusal;
}

enum raft_cons_refusal raft_cons_join(
	struct raft_cons *c, const char *via, uint64_t token, const char **why)
{
	struct core_open *open;
	enum raft_cons_refusal refusal;

	if (c->state != RAFT_CONS_EMPTY)
		return core_refuse(c, RAFT_REFUSED_STATE, why, "%s holds a group already", c->dir);
	open = core_open_new(c, token, OPEN_CHANGE);
	if (open == NULL)
		return core_refuse(c, RAFT_REFUSED_FAULT, why, "no memory");
	refusal = raft_member_join(c, via, token, why);
	if (refusal != RAFT_REFUSED_NOT)
		core_open_drop(c, open);
	return refusal;
}

static int rewrite_address(struct raft_cons *c)
{
	struct raft_configuration conf;
	int rc = configuration_of_one(c, &conf);

	LOG(LOG_INFO, "raft", "RAFT_ADDRESS", "the address becomes %s", c->raft.address);
	if (rc == 0)
		rc = raft_recover(&c->raft, &conf);
	raft_configuration_close(&conf);
	return rc;
}

static int say_loading(struct raft_cons *c, uint32_t loading)
{
	struct sidecar_record record = c->sidecar.record;

	record.loading = loading;
	return sidecar_write(&c->sidecar, &record);
}

enum raft_cons_refusal raft_cons_start(struct raft_cons *c, const char **why)
{
	enum raft_cons_refusal refusal;
	int rc;

	if (c->state != RAFT_CONS_MEMBER || c->started)
		return core_refuse(c, RAFT_REFUSED_STATE, why,
			c->started ? "the group runs already" : "%s holds no group yet", c->dir);
	if (c->sidecar.record.loading != 0) {
		// The last start ended while the library read the log: by a kill, or by the log.
		refusal = offline_probe(c, why);
		if (refusal != RAFT_REFUSED_NOT)
			return refusal;
	}
	c->refusal = RAFT_REFUSED_NOT;
	c->address_rewrite = false;
	rc = say_loading(c, 1);
	if (rc != 0)
		return core_refuse(
			c, RAFT_REFUSED_FAULT, why, "%s/sidecar: %s", c->dir, strerror(-rc));
	rc = raft_start(&c->raft);
	if (rc != 0 && c->address_rewrite) {
		c->refusal = RAFT_REFUSED_NOT;
		rc = rewrite_address(c);
		if (rc == 0)
			rc = raft_start(&c->raft);
	}
	if (rc != 0) {
		(void)say_loading(c, 0);
		*why = c->why;
		if (c->refusal != RAFT_REFUSED_NOT)
			return c->refusal;
		c->refusal = raft_transport_refusal(c, why);
		if (c->refusal != RAFT_REFUSED_NOT)
			return c->refusal;
		// After the load the library only listens; before, it reads.
		return core_refuse(c,
			rc != RAFT_IOERR  ? refusal_of(c, rc)
			: c->guard.loaded ? RAFT_REFUSED_ADDRESS
					  : RAFT_REFUSED_DAMAGED,
			why, "%s: %s (%s)", c->dir, core_error(rc), c->raft.errmsg);
	}
	c->started = true;
	rc = raft_peers_start(c);
	if (rc != 0)
		return core_refuse(c, RAFT_REFUSED_FAULT, why, "%s", strerror(-rc));
	guard_look(&c->guard);
	return RAFT_REFUSED_NOT;
}

// --- stop ---------------------------------------------------------------------------------------------------

void raft_cons_stop(struct raft_cons *c)
{
	c->stopping = true;
	if (!c->started)
		c->stopped = true;
}

bool raft_cons_stopped(const struct raft_cons *c)
{
	return c->stopped;
}

static void handed_over(struct raft_transfer *req)
{
	struct raft_cons *c = req->data;

	c->transferring = false;
}

static void stop_turn(struct raft_cons *c, uint64_t now_ns)
{
	if (c->stop_ns == 0)
		c->stop_ns = now_ns + RAFT_STOP_NS;
	if (!c->transferred && raft_state(&c->raft) == RAFT_LEADER && c->raft.transfer == NULL) {
		c->transferred = true;
		c->transfer.data = c;
		c->transferring = raft_transfer(&c->raft, &c->transfer, 0, handed_over) == 0;
	}
	if ((!c->transferring && core_idle(c)) || now_ns >= c->stop_ns)
		c->stopped = true;
}

// --- cons_ops -----------------------------------------------------------------------------------------------

static enum cons_status propose(void *cons, const uint8_t *data, uint32_t len, uint64_t token)
{
	struct raft_cons *c = cons;
	const struct raft_origin origin = {c->params.node_id, c->life, token};
	enum cons_status status;
	struct core_open *open;

	if (!c->started)
		return CONS_NOT_LEADER;
	open = core_open_new(c, token, OPEN_PROPOSAL);
	if (open == NULL)
		return CONS_BUSY;
	status = core_lead_propose(c, &origin, data, len);
	c->own_waits = status == CONS_BUSY;
	if (status == CONS_NOT_LEADER) {
		status = raft_peers_propose(c, data, len, token);
		c->stats.forwarded += status == CONS_OK;
	}
	c->stats.proposals += status == CONS_OK;
	if (status != CONS_OK)
		core_open_drop(c, open);
	return status;
}

static void own_barrier_done(struct raft_cons *c, uint64_t token, int status, uint64_t index)
{
	if (status == 0)
		core_barrier_at(c, token, index);
	else
		core_answer(c, token, CONS_NOT_LEADER, core_error(status));
}

static enum cons_status barrier(void *cons, uint64_t token)
{
	struct raft_cons *c = cons;
	enum cons_status status;
	struct core_open *open;

	if (!c->started)
		return CONS_NOT_LEADER;
	open = core_open_new(c, token, OPEN_BARRIER);
	if (open == NULL)
		return CONS_BUSY;
	status = core_lead_barrier(c, own_barrier_done, token);
	if (status == CONS_NOT_LEADER)
		status = raft_peers_barrier(c, token);
	c->stats.barriers += status == CONS_OK;
	if (status != CONS_OK)
		core_open_drop(c, open);
	return status;
}

static enum cons_status change(void *cons, const struct cons_change *what, uint64_t token)
{
	struct raft_cons *c = cons;
	enum cons_status status;
	struct core_open *open;

	if (!c->started)
		return CONS_NOT_LEADER;
	if (c->stopping)
		return CONS_FAILED;
	open = core_open_new(c, token, OPEN_CHANGE);
	if (open == NULL)
		return CONS_BUSY;
	status = raft_member_change(c, what, token);
	if (status != CONS_OK)
		core_open_drop(c, open);
	return status;
}

static uint64_t leader_of(struct raft_cons *c)
{
	const char *address;
	raft_id id = 0;

	if (!c->started)
		return 0;
	raft_leader(&c->raft, &id, &address);
	return id;
}

static void info(void *cons, struct cons_info *out)
{
	struct raft_cons *c = cons;

	*out = (struct cons_info){
		.node_id = c->params.node_id,
		.leader_id = leader_of(c),
		.applied_index = c->fsm.taken_index,
		.restoring = c->fsm.restoring,
	};
	if (!c->started)
		return;
	out->term = c->raft.current_term;
	out->last_index = raft_last_index(&c->raft);
	out->commit_index = c->raft.commit_index;
	out->snapshot_index = c->raft.log.snapshot.last_index;
	for (unsigned i = 0; i < c->raft.configuration.n; i++) {
		out->voters += c->raft.configuration.servers[i].role == RAFT_VOTER;
		out->standbys += c->raft.configuration.servers[i].role == RAFT_STANDBY;
	}
	out->is_leader = raft_state(&c->raft) == RAFT_LEADER;
	out->is_ready = out->is_leader ? core_leads(c) : !c->stopping && raft_peers_ready(c);
}

static uint32_t members(void *cons, struct cons_member *out, uint32_t max)
{
	struct raft_cons *c = cons;
	const struct raft_configuration *conf = &c->raft.configuration;
	const uint64_t leader = leader_of(c);
	uint32_t n = 0;

	if (!c->started)
		return 0;
	for (; n < max && n < conf->n; n++) {
		const struct raft_server *s = &conf->servers[n];

		out[n] = (struct cons_member){
			.id = s->id,
			.role = s->role == RAFT_VOTER     ? CONS_VOTER
				: s->role == RAFT_STANDBY ? CONS_STANDBY
							  : CONS_SPARE,
			.is_leader = s->id == leader,
		};
		snprintf(out[n].address, sizeof(out[n].address), "%s", s->address);
		if (s->id == c->params.node_id) {
			out[n].connected = 1;
			out[n].chain = core_chain(c, &out[n].applied_index);
		}
	}
	raft_peers_members(c, out, n);
	return n;
}

uint64_t core_chain(const struct raft_cons *c, uint64_t *applied)
{
	*applied = 0;
	return c->events->chain == NULL ? 0 : c->events->chain(c->ctx, applied);
}

static int turn(void *cons, uint64_t now_ns, uint8_t *busy)
{
	struct raft_cons *c = cons;
	uint64_t leader;
	bool changed;
	int rc;

	if (!c->started) {
		// A node that joins has peers to talk to before it runs.
		raft_peers_turn(c, now_ns, false, busy);
		core_turn(c, busy);
		return 0;
	}
	guard_look(&c->guard);
	rc = fsm_turn(c, busy);
	if (rc != 0)
		return rc;
	leader = leader_of(c);
	changed = leader != c->last_leader || c->raft.current_term != c->last_term;
	c->last_leader = leader;
	c->last_term = c->raft.current_term;
	raft_peers_turn(c, now_ns, changed, busy);
	files_space_look(c, now_ns);
	core_turn(c, busy);
	if (c->stopping && !c->stopped)
		stop_turn(c, now_ns);
	return 0;
}

void raft_cons_stats(const struct raft_cons *c, struct raft_cons_stats *stats)
{
	const struct guard_stats *g = &c->guard.stats;

	*stats = c->stats;
	stats->queue_entries = c->fsm.entries;
	stats->queue_bytes = c->fsm.bytes;
	stats->log_bytes = c->fsm.log_bytes;
	stats->held_messages = g->held_messages;
	stats->clamped_votes = g->clamped_votes;
	stats->clamped_results = g->clamped_results;
	stats->skipped_ticks = g->skipped_ticks;
	stats->held_timeouts = g->held_timeouts;
	stats->refused_messages = g->refused_messages;
	stats->elections = g->elections;
	stats->nudges = c->nudge.sent;
}

const struct cons_ops raft_cons_ops = {
	.propose = propose,
	.barrier = barrier,
	.change = change,
	.info = info,
	.members = members,
	.turn = turn,
};
