/* SPDX-License-Identifier: BSD-3-Clause */
// Between the two halves of the guard: raft_guard.c (writes, ticks, leadership) and raft_guard_msg.c.
// Context: the loop.
#pragma once

#include <stddef.h>

#include "raft_guard.h"

int guard_send(struct raft_io *io, struct raft_io_send *req, const struct raft_message *message,
	raft_io_send_cb cb);
void guard_recv(struct raft_io *inner, struct raft_message *message);
// After a write: what waited for it.
void guard_deliver(struct raft_guard *g);

static inline struct raft_guard *guard_of(struct raft_io *io)
{
	return (struct raft_guard *)((char *)io - offsetof(struct raft_guard, io));
}

static inline bool guard_acts(const struct raft_guard *g, uint32_t rule)
{
	return (g->rules & rule) != 0;
}

// Term of an entry in memory, as the library's own lookup: 0 when it has none there.
static inline uint64_t guard_term_of(const struct raft_guard *g, uint64_t index)
{
	const struct raft_log *log = &g->raft->log;
	const uint64_t count =
		log->size == 0 ? 0 : (log->back + log->size - log->front) % log->size;

	if (index != 0 && index == log->snapshot.last_index)
		return log->snapshot.last_term;
	if (index <= log->offset || index > log->offset + count)
		return 0;
	return log->entries[(log->front + (index - log->offset - 1)) % log->size].term;
}
