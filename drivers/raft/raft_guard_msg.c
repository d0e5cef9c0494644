/* SPDX-License-Identifier: BSD-3-Clause */
// The guard's half for messages: what is said with what is stored, what is believed, what is held back
// until it may be heard. Owns the copies it holds. Context: the loop.
#include "raft_guard_pvt.h"

#include <stdlib.h>
#include <string.h>

#define HELD_MAX 256u  // results; a leader's next heartbeat brings new ones
#define ADDRESS_BYTES 64u

struct guard_held {
	struct guard_held *next;
	struct raft_message message;
	char address[ADDRESS_BYTES];
};

// --- messages out -------------------------------------------------------------------------------------------

int guard_send(struct raft_io *io, struct raft_io_send *req, const struct raft_message *message,
	raft_io_send_cb cb)
{
	struct raft_guard *g = guard_of(io);
	struct raft_message copy = *message;
	struct raft_request_vote *vote = &copy.request_vote;
	struct raft_append_entries_result *result = &copy.append_entries_result;

	if (message->type == RAFT_IO_REQUEST_VOTE && guard_acts(g, GUARD_VOTES) &&
		vote->last_log_index > g->stored_index) {
		vote->last_log_index = g->stored_index;
		vote->last_log_term = g->stored_term;
		g->stats.clamped_votes++;
	}
	if (message->type == RAFT_IO_APPEND_ENTRIES_RESULT && guard_acts(g, GUARD_MATCH) &&
		result->rejected == 0) {
		uint64_t match = g->match_term == result->term ? g->match_index : 0;

		// The library may take for stored what is on its way (append_done).
		if (match > g->stored_index)
			match = g->stored_index;
		if (result->last_log_index > match) {
			result->last_log_index = match;
			g->stats.clamped_results++;
		}
	}
	return g->inner->send(g->inner, req, &copy, cb);
}

// --- messages in and ticks ----------------------------------------------------------------------------------

static struct guard_held *held_new(const struct raft_message *message)
{
	struct guard_held *held = calloc(1, sizeof(*held));

	if (held == NULL)
		return NULL;
	held->message = *message;
	if (message->server_address != NULL)
		strncpy(held->address, message->server_address, sizeof(held->address) - 1);
	held->message.server_address = held->address;
	return held;
}

static bool must_hold(const struct raft_guard *g, const struct raft_message *message)
{
	return message->type == RAFT_IO_APPEND_ENTRIES_RESULT && guard_acts(g, GUARD_HOLD) &&
	       message->append_entries_result.rejected == 0 && raft_state(g->raft) == RAFT_LEADER &&
	       g->stored_term < g->raft->current_term;
}

static void hold(struct raft_guard *g, const struct raft_message *message)
{
	struct guard_held **at = &g->held;

	if (g->held_count == HELD_MAX)
		return;
	while (*at != NULL)
		at = &(*at)->next;
	*at = held_new(message);
	if (*at == NULL)
		return;
	g->held_count++;
	g->stats.held_messages++;
}

static void take(struct raft_guard *g, struct raft_message *message);

void guard_deliver(struct raft_guard *g)
{
	if (g->timeout_now != NULL && !guard_writing(g)) {
		struct guard_held *held = g->timeout_now;

		g->timeout_now = NULL;
		take(g, &held->message);
		free(held);
	}
	if (g->held != NULL && raft_state(g->raft) == RAFT_LEADER &&
		g->stored_term < g->raft->current_term)
		return;
	while (g->held != NULL) {
		struct guard_held *held = g->held;

		g->held = held->next;
		g->held_count--;
		// The library looks at the term itself.
		take(g, &held->message);
		free(held);
	}
}

// The library rolls a configuration back by reading the entry of the one before, and falls over when a
// snapshot took that. What is on disk is sound: a start from it is the repair.
static void check_rollback(struct raft_guard *g, const struct raft_append_entries *args)
{
	const uint64_t uncommitted = g->raft->configuration_uncommitted_index;

	if (!guard_acts(g, GUARD_ROLLBACKS) || uncommitted == 0 ||
		g->raft->configuration_index > g->raft->log.offset ||
		args->term < g->raft->current_term)
		return;
	for (unsigned i = 0; i < args->n_entries; i++) {
		const uint64_t index = args->prev_log_index + 1 + i, term = guard_term_of(g, index);

		if (index > uncommitted)
			return;
		if (term != 0 && term != args->entries[i].term)
			g->hooks->fault(g->ctx, GUARD_ROLLBACK, 0,
				"a configuration is to be taken back behind a snapshot");
	}
}

// How far the log will agree with the sender's once the library has taken the message.
static void note_match(struct raft_guard *g, struct raft_message *message)
{
	struct raft_append_entries *args = &message->append_entries;
	uint64_t term = 0, index = 0;

	if (message->type == RAFT_IO_APPEND_ENTRIES) {
		const uint64_t last = args->prev_log_index + args->n_entries;

		check_rollback(g, args);
		if (guard_acts(g, GUARD_MATCH) && args->leader_commit > last)
			args->leader_commit = last;
		if (args->prev_log_index != 0 &&
			guard_term_of(g, args->prev_log_index) != args->prev_log_term)
			return;  // the library rejects it
		term = args->term;
		index = last;
	} else if (message->type == RAFT_IO_INSTALL_SNAPSHOT) {
		term = message->install_snapshot.term;
		index = message->install_snapshot.last_index;
	}
	if (term == 0 || term < g->raft->current_term || term < g->match_term)
		return;
	if (term > g->match_term || index > g->match_index)
		g->match_index = index;
	g->match_term = term;
}

static void take(struct raft_guard *g, struct raft_message *message)
{
	note_match(g, message);
	g->recv(&g->io, message);
	guard_look(g);
}

static void drop(struct raft_message *message)
{
	if (message->type == RAFT_IO_APPEND_ENTRIES && message->append_entries.n_entries > 0) {
		raft_free(message->append_entries.entries[0].batch);
		raft_free(message->append_entries.entries);
	} else if (message->type == RAFT_IO_INSTALL_SNAPSHOT) {
		raft_configuration_close(&message->install_snapshot.conf);
		raft_free(message->install_snapshot.data.base);
	}
}

void guard_recv(struct raft_io *inner, struct raft_message *message)
{
	struct raft_guard *g = inner->data;

	if (g->hooks->refuse != NULL && g->hooks->refuse(g->ctx, message)) {
		g->stats.refused_messages++;
		drop(message);
		return;
	}
	if (must_hold(g, message)) {
		hold(g, message);
		return;
	}
	if (message->type == RAFT_IO_TIMEOUT_NOW && guard_acts(g, GUARD_VOTES) &&
		guard_writing(g)) {
		// The newest counts.
		free(g->timeout_now);
		g->timeout_now = held_new(message);
		g->stats.held_timeouts++;
		return;
	}
	take(g, message);
}

void guard_drop(struct raft_guard *g)
{
	free(g->timeout_now);
	g->timeout_now = NULL;
	while (g->held != NULL) {
		struct guard_held *next = g->held->next;

		free(g->held);
		g->held = next;
	}
	g->held_count = 0;
}
