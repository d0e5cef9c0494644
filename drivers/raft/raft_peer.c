/* SPDX-License-Identifier: BSD-3-Clause */
// The other members, seen from here: none is talked to but by the library itself. Context: the loop.
#include "raft_pvt.h"

int raft_peers_open(struct raft_cons *c)
{
	(void)c;
	return 0;
}

void raft_peers_discard(struct raft_cons *c)
{
	(void)c;
}

int raft_peers_start(struct raft_cons *c)
{
	(void)c;
	return 0;
}

void raft_peers_turn(struct raft_cons *c, uint64_t now_ns, bool changed, uint8_t *busy)
{
	(void)c;
	(void)now_ns;
	(void)changed;
	(void)busy;
}

enum cons_status raft_peers_propose(
	struct raft_cons *c, const uint8_t *data, uint32_t len, uint64_t token)
{
	(void)c;
	(void)data;
	(void)len;
	(void)token;
	return CONS_NOT_LEADER;
}

enum cons_status raft_peers_barrier(struct raft_cons *c, uint64_t token)
{
	(void)c;
	(void)token;
	return CONS_NOT_LEADER;
}

void raft_peers_members(struct raft_cons *c, struct cons_member *members, uint32_t count)
{
	(void)c;
	(void)members;
	(void)count;
}

bool raft_peers_ready(const struct raft_cons *c)
{
	(void)c;
	return false;
}

enum cons_status raft_member_change(
	struct raft_cons *c, const struct cons_change *change, uint64_t token)
{
	(void)change;
	core_answer(c, token, CONS_REFUSED, "members cannot be changed here");
	return CONS_OK;
}

enum raft_cons_refusal raft_member_join(
	struct raft_cons *c, const char *via, uint64_t token, const char **why)
{
	(void)token;
	return core_refuse(c, RAFT_REFUSED_FAULT, why, "%s cannot be asked from here", via);
}
