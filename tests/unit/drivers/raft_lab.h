/* SPDX-License-Identifier: BSD-3-Clause */
// One node of a group over the real disk for tests: a folder of its own, a small consumer whose state is a
// mapped file and so outlives a kill, and a loop the test steps. What runs a group runs in a child process
// (lab_child), as a started one ends with its process.
#pragma once

#include "unit.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "raft_cons.h"

#define LAB_TOKENS 1000000u  // the first proposal's is one more, and so on

struct lab_state {
	uint64_t applied, count, chain;
	uint64_t bytes;
};

// Shared with the parent.
struct lab_report {
	uint64_t acknowledged, failed, unknown, replays, commits_seen, numbers[8];
	enum raft_cons_refusal refusal;
	char why[512];
};

struct lab {
	char dir[128];
	uv_loop_t loop;
	uv_timer_t wake;
	struct raft_cons *cons;
	enum raft_cons_state state;
	struct raft_cons_params params;
	struct lab_state *store;
	struct lab_report *report;
	uint64_t token;  // last given
	uint32_t in_flight;
	uint32_t take_max;  // commits taken at once; 0: all
	uint64_t last_token;
	enum cons_status last_status;
	uint8_t busy;
	// Snapshots.
	struct lab_state snapped;
	bool snapshot_busy;
	int encode_rc;
	bool snapshot_huge;
	uint64_t snapshot_pad;  // bytes added to each
	struct lab_state incoming;
	uint32_t restore_turns;
};

extern const struct cons_events lab_events;

// Makes an empty data folder; lab_remove at the end.
void lab_make(char dir[128]);
void lab_remove(const char *dir);
// Copies the folder of a group to a new place.
void lab_copy(const char *from, char to[128]);

// Runs `run` in a child with a lab over `dir`; reports through `report`.
// Returns: exit code, or 1000 + signal.
int lab_child(const char *dir, struct lab_report *report, void (*run)(struct lab *lab));
struct lab_report *lab_report_new(void);

// In the child. Each ends the child with 99 and a line when it does not come about in 10 s.
enum raft_cons_refusal lab_open(struct lab *lab);
enum raft_cons_refusal lab_start(struct lab *lab);  // open, bootstrap when empty, start
void lab_step(struct lab *lab);
void lab_until(struct lab *lab, bool (*done)(struct lab *lab), const char *what);
bool lab_ready(struct lab *lab);
// Proposes `count` entries of `len` bytes, two in flight, and waits for their answers.
void lab_propose(struct lab *lab, uint64_t count, uint32_t len);
// Listens on a free port of the loopback, said in `address`. Returns: the socket.
int lab_listen(char address[CONS_ADDRESS_MAX]);
uint64_t lab_chain(uint64_t chain, uint64_t index, const uint8_t *data, uint32_t len);
