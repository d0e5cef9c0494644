/* SPDX-License-Identifier: BSD-3-Clause */
// Nodes of one group as child processes on loopback, driven over socket pairs, with a consumer in memory.
// Context: the test's main thread.
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "raft_cons.h"

#define NODES_MAX 6u
#define NODES_CLUSTER 7u
#define NODES_KEY 9u
#define NODES_WAIT_MS 20000  // any condition a test waits for

struct node {
	uint64_t id;
	pid_t pid;  // 0: not running
	int fd;
	int exit_code;  // of the last end; -signal
	uint64_t cluster_id;
	uint8_t key;  // first byte of it
	char dir[96];
	char address[CONS_ADDRESS_MAX];
};

struct nodes {
	char dir[64];
	struct node node[NODES_MAX + 1];  // by id, from 1
	bool authenticated;
	uint32_t heartbeat_ms;  // elections wait ten of them
	uint64_t token;
	char line[512];  // last reply
};

void nodes_open(struct nodes *g, bool authenticated);
void nodes_close(struct nodes *g);

enum node_start { NODE_MEMBER, NODE_BOOTSTRAP, NODE_JOIN };
// Runs node `id` as its struct says. `via`: whom it asks to join.
void node_start(struct nodes *g, uint64_t id, enum node_start how, uint64_t via);
void node_kill(struct nodes *g, uint64_t id);
// Waits for a node to end by itself. Returns: its exit code.
int node_wait_end(struct nodes *g, uint64_t id);
// Forgets what the node had on disk.
void node_wipe(struct nodes *g, uint64_t id);

// A number out of a node's "info": leader term ready leads applied voters standbys entries chain refused
// shaken connected.
uint64_t node_info(struct nodes *g, uint64_t id, const char *what);
// Waits until that number is `value` (or at least it).
void node_wait(struct nodes *g, uint64_t id, const char *what, uint64_t value);
void node_wait_least(struct nodes *g, uint64_t id, const char *what, uint64_t value);
// Any node that leads and is ready. Waits.
uint64_t nodes_leader(struct nodes *g);

// These wait for the result; g->line holds its text.
enum cons_status node_propose(struct nodes *g, uint64_t id, const char *text);
// The same in two halves: any number may be under way.
void node_propose_begin(struct nodes *g, uint64_t id, const char *text);
// Waits until some node has said something. Returns: its id.
uint64_t nodes_await_any(struct nodes *g);
enum cons_status node_any_result(struct nodes *g, uint64_t id);
// Again while it says that it was not taken or that nobody knows: leadership may be moving.
void node_propose_until_done(struct nodes *g, uint64_t id, const char *text);
enum cons_status node_barrier(struct nodes *g, uint64_t id);
void node_barrier_until_done(struct nodes *g, uint64_t id);
enum cons_status node_change(
	struct nodes *g, uint64_t id, enum cons_change_op op, uint64_t target, const char *address);
enum cons_status node_join_result(struct nodes *g, uint64_t id);
// From now on this node says another history.
void node_lie(struct nodes *g, uint64_t id);

// Bootstraps node 1, joins 2..count, promotes the first `voters`.
void nodes_form(struct nodes *g, uint64_t count, uint64_t voters);
