/* SPDX-License-Identifier: BSD-3-Clause */
// tagcast-metad as a child of tagcastd: started, watched by pidfd, started again with back-off, stopped.
// The child dies with the thread that started it (PR_SET_PDEATHSIG).
// Context: the control thread, all of it; it must live as long as the process.
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base_role.h"

struct meta_child;

struct meta_child_params {
	const char *
		program;  // path; without a slash it is looked for beside the running program, then in PATH
	const char *run_dir, *data_dir;
	const char *log_level;  // NULL: the default of the program
	uint64_t node_id, cluster_id;
	uint64_t map_bytes;
	uint64_t apply_wait_ns;
	uint64_t journal_commits, dedup_commits;  // 0: the program's default, as all below
	uint64_t stage_commits;
	uint32_t stages;
	uint32_t feed_backlog_bytes;
	const char *raft_address, *raft_bind, *raft_key_file;  // NULL or empty: none
	bool raft_auth_off;
	uint64_t election_ns, heartbeat_ns;
	uint32_t snapshot_entries, snapshot_trailing;
	uint64_t snapshot_log_bytes;
};

struct meta_child_info {
	bool running;
	pid_t pid;  // 0: not running
	uint64_t starts;
	uint64_t exits;
	int last_status;  // as of waitpid; -1: none yet
	int last_code;  // exit code; -1: none yet, or a signal ended it
	uint64_t next_start_ns;  // while not running; UINT64_MAX: never
};

// Copies the parameters; starts nothing yet. Returns: 0; -ENAMETOOLONG; -ENOMEM.
int meta_child_create(const struct meta_child_params *params, struct meta_child **child);
// Kills a child that still runs and waits for it.
void meta_child_destroy(struct meta_child *child);

// Descriptor for the owner's epoll: readable when the child ended. It stays the same over restarts.
int meta_child_fd(const struct meta_child *child);
// Starts the child when it is due, takes note of its end, escalates a stop. Never blocks.
// Returns: true when something happened.
bool meta_child_process(struct meta_child *child, uint64_t now_ns) CONTROL_ONLY;
// When to call meta_child_process although the descriptor is quiet; UINT64_MAX: never.
uint64_t meta_child_next_ns(const struct meta_child *child) CONTROL_ONLY;

// SIGTERM now, SIGKILL at `deadline_ns`; no restart. Ends when info.running is false.
void meta_child_stop(struct meta_child *child, uint64_t deadline_ns) CONTROL_ONLY;

void meta_child_info(const struct meta_child *child, struct meta_child_info *info) CONTROL_ONLY;
