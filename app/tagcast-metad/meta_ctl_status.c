/* SPDX-License-Identifier: BSD-3-Clause */
// `meta.status`: everything one wants to know of a meta process, as fields. Run by the loop.
#include <stdio.h>
#include <string.h>

#include "base_time.h"
#include "metad.h"

static void set(json_t *fields, const char *name, uint64_t value)
{
	json_object_set_new(fields, name, json_integer((json_int_t)value));
}

static void set_text(json_t *fields, const char *name, const char *value)
{
	json_object_set_new(fields, name, json_string(value));
}

// One word for the state of it all.
static const char *state_of(const struct metad *metad, const struct cons_info *cons)
{
	if (metad->stopping)
		return "stopping";
	if (metad->group == METAD_WAITING)
		return "waiting";
	if (metad->group == METAD_JOINING)
		return "joining";
	if (metad->group == METAD_RESTORING)
		return "restoring";
	if (metad->state.restore != NULL || cons->restoring)
		return "restoring";
	return cons->is_ready ? "ready" : "no leader";
}

static void set_group(const struct metad *metad, json_t *f)
{
	struct cons_info cons = {.node_id = metad->options.node_id};
	struct raft_cons_stats raft = {.proposals = 0};
	uint64_t rows;

	if (metad->group == METAD_MEMBER) {
		metad->cons_ops->info(metad->raft, &cons);
		raft_cons_stats(metad->raft, &raft);
	}
	set_text(f, "state", state_of(metad, &cons));
	set(f, "node", metad->options.node_id);
	set(f, "cluster", metad->options.cluster_id);
	set(f, "leader", cons.leader_id);
	set(f, "term", cons.term);
	set(f, "voters", cons.voters);
	set(f, "standbys", cons.standbys);
	set_text(f, "address",
		metad->options.raft_address[0] != '\0' ? metad->options.raft_address : "none");
	set(f, "uptime_s", (time_now_ns() - metad->started_ns) / NS_PER_S);
	if (meta_restore_rows(&metad->state, &rows))
		set(f, "restore_rows", rows);
	set(f, "log_last", cons.last_index);
	set(f, "log_committed", cons.commit_index);
	set(f, "log_applied", cons.applied_index);
	set(f, "log_snapshot", cons.snapshot_index);
	set(f, "log_bytes", raft.log_bytes);
	set(f, "snapshots", raft.snapshots);
	set(f, "snapshot_bytes", raft.snapshot_bytes);
	set(f, "restores", raft.restores);
	set(f, "elections", raft.elections);
	set(f, "proposals", raft.proposals);
	set(f, "proposals_forwarded", raft.forwarded);
	set(f, "barriers", raft.barriers);
	set(f, "histories_compared", raft.chain_checked);
	set(f, "handshakes_refused", raft.handshakes_refused);
	set(f, "side_frames_refused", raft.side_frames_refused);
}

static void set_store(struct metad *metad, json_t *f)
{
	const struct store_position *position = &metad->state.position;
	struct store_lmdb_info db = {.map_bytes = 0};
	struct store_gen_info gen;
	char chain[20];

	(void)store_lmdb_info(metad->state.db, &db);
	store_gen_info(metad->state.gen, &gen);
	snprintf(chain, sizeof(chain), "%016llx", (unsigned long long)position->chain);
	set(f, "commit", position->commit);
	set(f, "applied", position->applied);
	set_text(f, "chain", chain);
	set(f, "generation", position->generation);
	set_text(f, "store_origin", store_gen_origin_name(gen.origin));
	set(f, "transactions", metad->state.transactions);
	set(f, "transaction_max_us", metad->state.commit_max_ns / NS_PER_US);
	set(f, "map_bytes", db.map_bytes);
	set(f, "map_used_bytes", db.used_bytes);
	set(f, "readers", db.readers);
	set(f, "readers_max", db.readers_max);
	set(f, "long_reads", db.long_reads + db.long_reads_other + db.long_walks);
}

static void set_feed(const struct metad *metad, json_t *f) META_ONLY;
static void set_feed(const struct metad *metad, json_t *f)
{
	struct meta_feed_info feed;

	meta_feed_info(metad->feed, &feed);
	set(f, "subscribers", feed.subscribers);
	set(f, "fast_process", feed.own);
	set(f, "feed_least_sent", feed.least_sent);
	set(f, "feed_least_applied", feed.least_applied);
	set(f, "feed_resyncs", feed.resyncs);
	set(f, "feed_lagged", feed.lagged);
	set(f, "feed_protocol_errors", feed.protocol_errors);
}

static void set_queue(const struct metad *metad, json_t *f) META_ONLY;
static void set_queue(const struct metad *metad, json_t *f)
{
	struct meta_queue_info queue;

	meta_queue_info(metad->queue, &queue);
	set(f, "mutations", queue.submitted);
	set(f, "mutations_applied", queue.applied);
	set(f, "mutations_unapplied", queue.unapplied);
	set(f, "mutations_refused", queue.refused);
	set(f, "mutations_timed_out", queue.timed_out);
	set(f, "pending", queue.pending);
	set(f, "pending_bytes", queue.pending_bytes);
	set(f, "waiting_applied", queue.apply_waiting);
	set(f, "waiting_stage", queue.gated);
	set(f, "stages_open", queue.stages_open);
	set(f, "batches_deferred", queue.deferred);
	set(f, "batches_resent", queue.resent);
}

// How long the loop was busy at a stretch: over half a heartbeat and leadership is in danger.
static void set_turns(const struct metad *metad, json_t *f)
{
	const struct meta_turn *turn = &metad->meter;

	set(f, "turns", turn->turns);
	set(f, "turn_max_cpu_us", turn->cpu_max_ns / NS_PER_US);
	set(f, "turn_max_wall_us", turn->wall_max_ns / NS_PER_US);
	set_text(f, "turn_max_part", meta_turn_part_name((enum meta_turn_part)turn->cpu_max_part));
	set(f, "turn_max_part_us", turn->cpu_max_part_ns / NS_PER_US);
	set(f, "turns_over_limit", turn->over);
}

void metad_status(void *ctx, struct ctl_request *request, const json_t *args) META_ONLY;
void metad_status(void *ctx, struct ctl_request *request, const json_t *args)
{
	struct metad *metad = ctx;
	json_t *f;

	if (!args_known(request, args, ""))
		return;
	f = json_object();
	set_group(metad, f);
	set_store(metad, f);
	set_feed(metad, f);
	set_queue(metad, f);
	set_turns(metad, f);
	set(f, "clients", ctl_server_clients(metad->ctl));
	ctl_reply(request, json_pack("{s:o}", "fields", f));
}
