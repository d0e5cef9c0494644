/* SPDX-License-Identifier: BSD-3-Clause */
// Tells followers at once what is committed. The library tells with the next entry or the next heartbeat,
// so that a follower applies the last entry of a burst up to a whole heartbeat late, and a proposal by way
// of it takes as long. This sends the very heartbeat the library would send then: no entries, our last
// entry as the one before, and the commit index. Owns nothing but what is on its way. Context: the loop.
#include "raft_pvt.h"

#include <stdlib.h>

#define PROGRESS_SNAPSHOT 2  // raft_progress.state: a snapshot is on its way there

static void on_sent(struct raft_io_send *request, int status)
{
	free(request);
}

static uint64_t last_term(const struct raft_log *log)
{
	if (log->front == log->back)
		return log->snapshot.last_term;
	return log->entries[(log->back + log->size - 1) % log->size].term;
}

static void nudge(struct raft_cons *c, unsigned i)
{
	const struct raft_server *server = &c->raft.configuration.servers[i];
	struct raft_io_send *request = calloc(1, sizeof(*request));
	struct raft_message message = {.type = RAFT_IO_APPEND_ENTRIES,
		.server_id = server->id,
		.server_address = server->address};

	if (request == NULL)
		return;
	message.append_entries = (struct raft_append_entries){.term = c->raft.current_term,
		.prev_log_index = raft_last_index(&c->raft),
		.prev_log_term = last_term(&c->raft.log),
		.leader_commit = c->raft.commit_index};
	if (c->guard.io.send(&c->guard.io, request, &message, on_sent) != 0)
		free(request);
	else
		c->stats.nudges++;
}

static bool entries_in_flight(const struct raft_cons *c)
{
	for (uint32_t i = 0; i < RAFT_APPLIES_MAX; i++)
		if (c->apply[i].used)
			return true;
	return c->flying.first != NULL;
}

// Was it told of this commit?
static bool told(struct raft_cons *c, unsigned i)
{
	if (c->nudged[i].id != c->raft.configuration.servers[i].id) {
		c->nudged[i].id = c->raft.configuration.servers[i].id;
		c->nudged[i].index = 0;
	}
	return c->nudged[i].index >= c->raft.commit_index;
}

void nudge_turn(struct raft_cons *c)
{
	const struct raft *raft = &c->raft;
	const uint64_t last = raft_last_index(&c->raft);

	// What is in flight went out with an older commit index; its own commit follows soon.
	if (!core_leads(c) || entries_in_flight(c))
		return;
	for (unsigned i = 0; i < raft->configuration.n && i < CONS_MEMBERS_MAX; i++) {
		const struct raft_progress *progress = &raft->leader_state.progress[i];

		if (raft->configuration.servers[i].id == raft->id ||
			raft->configuration.servers[i].role == RAFT_SPARE || told(c, i))
			continue;
		// Only whom the library itself has nothing more to send than a heartbeat, and who has the
		// entries on disk: it would not apply them before.
		if (progress->state == PROGRESS_SNAPSHOT || progress->next_index != last + 1 ||
			progress->match_index < raft->commit_index)
			continue;
		c->nudged[i].index = raft->commit_index;
		nudge(c, i);
	}
}
