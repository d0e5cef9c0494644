/* SPDX-License-Identifier: BSD-3-Clause */
// One-node consensus: a bounded queue of batches that each turn commits in one go. Owns copies of the
// proposed bytes until their turn. Thread: meta loop.
#include "cons_local.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base_limits.h"

#define QUEUE_ITEMS 256u
#define QUEUE_BYTES (16u << 20)

struct item {
	uint64_t token;
	uint8_t *data;  // NULL: a barrier
	uint32_t len;
};

struct cons_local {
	uint64_t node_id, applied;
	const struct cons_events *events;
	void *ctx;
	int failed;  // errno of the consumer's fault, for good
	uint32_t count, bytes;
	// `queue` fills while `turn` is being answered, so that an answer may propose again.
	struct item *queue, *turn;
	struct cons_commit *commits;
};

struct cons_local *cons_local_create(
	uint64_t node_id, uint64_t applied_index, const struct cons_events *events, void *ctx)
{
	struct cons_local *c = calloc(1, sizeof(*c));

	if (c == NULL)
		return NULL;
	c->node_id = node_id;
	c->applied = applied_index;
	c->events = events;
	c->ctx = ctx;
	c->queue = calloc(QUEUE_ITEMS, sizeof(*c->queue));
	c->turn = calloc(QUEUE_ITEMS, sizeof(*c->turn));
	c->commits = calloc(QUEUE_ITEMS, sizeof(*c->commits));
	if (c->queue == NULL || c->turn == NULL || c->commits == NULL) {
		cons_local_destroy(c);
		return NULL;
	}
	return c;
}

void cons_local_destroy(struct cons_local *c)
{
	if (c == NULL)
		return;
	for (uint32_t i = 0; i < c->count; i++)
		free(c->queue[i].data);
	free(c->queue);
	free(c->turn);
	free(c->commits);
	free(c);
}

const char *cons_role_name(enum cons_role role)
{
	static const char *const name[] = {"voter", "standby", "spare"};

	return (uint32_t)role < sizeof(name) / sizeof(name[0]) ? name[role] : "unknown";
}

static enum cons_status propose(void *cons, const uint8_t *data, uint32_t len, uint64_t token)
{
	struct cons_local *c = cons;

	if (c->failed != 0)
		return CONS_FAILED;
	if (len > ENTRY_BYTES_MAX)
		return CONS_TOO_LARGE;
	if (c->count == QUEUE_ITEMS || len > QUEUE_BYTES - c->bytes)
		return CONS_BUSY;

	uint8_t *copy = malloc(len == 0 ? 1 : len);

	if (copy == NULL)
		return CONS_BUSY;
	if (len != 0)
		memcpy(copy, data, len);
	c->queue[c->count++] = (struct item){.token = token, .data = copy, .len = len};
	c->bytes += len;
	return CONS_OK;
}

static enum cons_status barrier(void *cons, uint64_t token)
{
	struct cons_local *c = cons;

	if (c->failed != 0)
		return CONS_FAILED;
	if (c->count == QUEUE_ITEMS)
		return CONS_BUSY;
	c->queue[c->count++] = (struct item){.token = token};
	return CONS_OK;
}

static void info(void *cons, struct cons_info *out)
{
	const struct cons_local *c = cons;

	*out = (struct cons_info){
		.node_id = c->node_id,
		.leader_id = c->node_id,
		.term = 1,
		.last_index = c->applied,
		.commit_index = c->applied,
		.applied_index = c->applied,
		.voters = 1,
		.is_leader = 1,
		.is_ready = c->failed == 0,
	};
}

static enum cons_status change(void *cons, const struct cons_change *what, uint64_t token)
{
	const struct cons_local *c = cons;

	(void)what;
	c->events->on_result(c->ctx, token, CONS_REFUSED, "a group of one node for good");
	return CONS_OK;
}

static uint32_t members(void *cons, struct cons_member *out, uint32_t max)
{
	const struct cons_local *c = cons;

	if (max == 0)
		return 0;
	*out = (struct cons_member){.id = c->node_id,
		.role = CONS_VOTER,
		.is_leader = 1,
		.connected = 1,
		.applied_index = c->applied};
	return 1;
}

static int turn(void *cons, uint64_t now_ns, uint8_t *busy)
{
	struct cons_local *c = cons;
	struct item *items = c->queue;
	const uint32_t count = c->count;
	uint32_t commits = 0, taken = 0;
	int rc = 0;

	(void)now_ns;
	(void)busy;
	if (c->failed != 0)
		return c->failed;
	if (count == 0)
		return 0;
	c->queue = c->turn;
	c->turn = items;
	c->count = 0;
	c->bytes = 0;
	for (uint32_t i = 0; i < count; i++)
		if (items[i].data != NULL) {
			c->commits[commits] = (struct cons_commit){
				.index = c->applied + commits + 1,
				.data = items[i].data,
				.len = items[i].len,
				.token = items[i].token,
			};
			commits++;
		}
	// A consumer may take less than it is offered; here nobody else waits for the loop.
	while (taken < commits && rc >= 0) {
		rc = c->events->on_commit(c->ctx, c->commits + taken, commits - taken);
		taken += rc > 0 ? (uint32_t)rc : 0;
	}
	rc = rc > 0 ? 0 : rc;
	if (rc == 0)
		c->applied += commits;
	else
		c->failed = rc;
	// After a fault nobody is answered: whether the batch is durable is not known.
	for (uint32_t i = 0; i < count; i++) {
		free(items[i].data);
		if (rc == 0)
			c->events->on_result(c->ctx, items[i].token, CONS_OK, "");
	}
	return rc;
}

const struct cons_ops cons_local_ops = {
	.propose = propose,
	.barrier = barrier,
	.change = change,
	.info = info,
	.members = members,
	.turn = turn,
};
