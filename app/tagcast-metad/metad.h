/* SPDX-License-Identifier: BSD-3-Clause */
// Inside of tagcast-metad: what its parts share. One process, one event loop, one writer of the store.
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "conf.h"
#include "cons.h"
#include "ctl.h"
#include "meta_feed.h"
#include "meta_queue.h"
#include "meta_state.h"

struct cons_local;

struct metad_options {
	char run_dir[CONF_PATH_MAX], data_dir[CONF_PATH_MAX];
	char log_level[8];
	uint64_t node_id, cluster_id;
	uint64_t map_bytes;
	uint64_t apply_wait_ns, stage_wait_ns;
	uint64_t journal_commits, dedup_commits, stage_commits;
	uint32_t stages;
	uint64_t feed_backlog_bytes;
};

// Fills the options from defaults, the configuration file and the command line.
// Returns: -1 to go on, or the exit code (the reason was said).
int metad_options_read(struct metad_options *options, int argc, char **argv);

struct metad {
	struct metad_options options;
	struct meta_state state;
	struct meta_queue *queue;
	struct meta_feed *feed;
	struct ctl_server *ctl;
	struct cons_local *cons;
	const struct cons_ops *cons_ops;
	uint64_t started_ns;
	uint64_t dedup_unique;  // next key made here
	uint32_t preparing;  // mutations in the thread pool
	bool stopping;
	uint64_t stop_ns;  // latest end of a stop

	uv_loop_t loop;
	uv_poll_t ctl_poll, feed_poll;
	uv_check_t check;
	uv_idle_t idle;  // active while there is work that needs no event
	uv_timer_t timer;
	uv_signal_t sigterm, sigint, sighup;
};

// The command table of meta.sock; ctx is the metad.
extern const struct ctl_command metad_commands[];
extern const uint32_t metad_command_count;

// meta_queue_params.done: answers the request behind a mutation.
void metad_mutation_done(void *ctx, struct mutation *m);

// Handlers that only read (meta_ctl_read.c).
void metad_channel_list(void *ctx, struct ctl_request *request, const json_t *args);
void metad_channel_show(void *ctx, struct ctl_request *request, const json_t *args);
void metad_status(void *ctx, struct ctl_request *request, const json_t *args);

// --- arguments (meta_args.c): each says what is wrong to the request and returns false ----------------------

// Refuses arguments that are not in `names` (comma separated; cmd and id always are).
bool args_known(struct ctl_request *request, const json_t *args, const char *names);
bool args_channel(struct ctl_request *request, const json_t *args, struct channel_key *key);
bool args_list(struct ctl_request *request, const json_t *args, uint8_t *list);
bool args_flags(struct ctl_request *request, const json_t *args, uint8_t *flags);
// Packs "uids" into the mutation.
bool args_uids(struct ctl_request *request, const json_t *args, struct mutation *m);
bool args_dedup(struct ctl_request *request, const json_t *args, uint8_t dedup[STORE_DEDUP_BYTES],
	bool *given);
// Absent: `fallback`.
bool args_number(struct ctl_request *request, const json_t *args, const char *name, uint64_t min,
	uint64_t max, uint64_t fallback, uint64_t *value);
json_t *flags_json(uint8_t flags);
