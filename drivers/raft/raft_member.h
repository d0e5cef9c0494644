/* SPDX-License-Identifier: BSD-3-Clause */
// A change of members as steps: what may be changed now, what the library is asked to do next, how it
// ended. Pure: a view of the group in, one step out; raft_change.c does it. Context: the loop, or a test.
//
// A change is refused unless every voter it leaves in place answers: a configuration that is cut off the
// log later costs the node that made it a restart.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cons.h"

#define MEMBER_TEXT_MAX 128u
#define MEMBER_BEHIND_MAX \
	4096u  // entries a standby may lack when it is promoted; the rest goes quickly
#define MEMBER_TRANSFER_NS UINT64_C(3000000000)  // until a new leader must be known

struct member_node {
	uint64_t id;
	uint8_t role;  // enum cons_role
	bool answers;  // heard of lately, and reached
	uint64_t match_index;  // what it holds of the leader's log
	const char *address;
};

struct member_view {
	uint64_t self_id, leader_id;  // leader 0: not known
	bool leads;  // this node leads and may propose
	bool library_busy;  // a change is in the log and not committed, or a transfer runs
	bool id_removed;  // of the change's id
	uint64_t last_index;
	uint32_t count;
	struct member_node node[CONS_MEMBERS_MAX + 1];
};

enum member_do {
	MEMBER_WAIT,  // nothing now
	MEMBER_ANSWER,  // it ended: status and why
	MEMBER_ADD,  // ask the library to...
	MEMBER_STANDBY,
	MEMBER_VOTER,
	MEMBER_REMOVE,
	MEMBER_TRANSFER,
	MEMBER_FORWARD,  // hand the change to the new leader
};

struct member_step {
	enum member_do what;
	uint64_t id;
	enum cons_status status;
	char why[MEMBER_TEXT_MAX];
};

enum member_state {
	MEMBER_IDLE,
	MEMBER_ASKED,  // the library works on `doing`
	MEMBER_MOVES,  // the library tried a transfer; who leads shows
	MEMBER_HANDED,  // at the new leader
};

struct member_machine {
	uint8_t state;  // enum member_state
	uint8_t doing;  // enum member_do
	struct cons_change change;
	uint64_t deadline_ns;
};

// A change at the leader. The answer may come at once (MEMBER_ANSWER); one while another goes on is
// refused and leaves that alone.
void member_begin(struct member_machine *m, const struct cons_change *change,
	const struct member_view *view, struct member_step *step);
// The library refused or ended what was asked. `error`: 0, or text of its error; `unknown`: it may still
// happen (leadership was lost).
void member_done(struct member_machine *m, const char *error, bool unknown,
	const struct member_view *view, uint64_t now_ns, struct member_step *step);
// Time passes.
void member_turn(struct member_machine *m, const struct member_view *view, uint64_t now_ns,
	struct member_step *step);
// The new leader answered, or could not be reached.
void member_handed(struct member_machine *m, enum cons_status status, const char *why,
	struct member_step *step);
