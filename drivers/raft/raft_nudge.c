/* SPDX-License-Identifier: BSD-3-Clause */
// See raft_nudge.h. Owns the messages on their way. Context: the loop.
#include "raft_nudge.h"

#include <stdbool.h>
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

static bool nudge(struct raft *raft, const struct raft_server *server)
{
	struct raft_io_send *request = calloc(1, sizeof(*request));
	struct raft_message message = {.type = RAFT_IO_APPEND_ENTRIES,
		.server_id = server->id,
		.server_address = server->address};

	if (request == NULL)
		return false;
	message.append_entries = (struct raft_append_entries){.term = raft->current_term,
		.prev_log_index = raft_last_index(raft),
		.prev_log_term = last_term(&raft->log),
		.leader_commit = raft->commit_index};
	if (raft->io->send(raft->io, request, &message, on_sent) == 0)
		return true;
	free(request);
	return false;
}

// Was the server at this place told of this commit?
static bool was_told(struct raft_nudge *n, const struct raft *raft, unsigned i)
{
	if (n->told[i].id != raft->configuration.servers[i].id) {
		n->told[i].id = raft->configuration.servers[i].id;
		n->told[i].index = 0;
	}
	return n->told[i].index >= raft->commit_index;
}

void nudge_followers(struct raft_nudge *n, struct raft *raft)
{
	const uint64_t last = raft_last_index(raft);

	for (unsigned i = 0; i < raft->configuration.n && i < CONS_MEMBERS_MAX; i++) {
		const struct raft_server *server = &raft->configuration.servers[i];
		const struct raft_progress *progress = &raft->leader_state.progress[i];

		if (server->id == raft->id || server->role == RAFT_SPARE || was_told(n, raft, i))
			continue;
		// Only whom the library itself has nothing more to send than a heartbeat, and who has the
		// entries on disk: it would not apply them before.
		if (progress->state == PROGRESS_SNAPSHOT || progress->next_index != last + 1 ||
			progress->match_index < raft->commit_index)
			continue;
		n->told[i].index = raft->commit_index;
		n->sent += nudge(raft, server);
	}
}
