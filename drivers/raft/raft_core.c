/* SPDX-License-Identifier: BSD-3-Clause */
// Open tokens and their answers, entries and barriers on the leader. Owns the tokens from the call that
// brought them to the on_result that ends them. Context: the loop.
#include "raft_pvt.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base_limits.h"
#include "base_log.h"

#define ENTRY_FORMAT 1u

// --- words --------------------------------------------------------------------------------------------------

const char *core_error(int raft_error)
{
	static const char *const text[] = {
		[0] = "no error",
		[RAFT_NOMEM] = "out of memory",
		[RAFT_BADID] = "no such member, or not one for this",
		[RAFT_DUPLICATEID] = "a member has this id",
		[RAFT_DUPLICATEADDRESS] = "a member has this address",
		[RAFT_BADROLE] = "the member has this role already",
		[RAFT_MALFORMED] = "a file or message has a wrong form",
		[RAFT_NOTLEADER] = "this node does not lead",
		[RAFT_LEADERSHIPLOST] = "leadership was lost; the outcome is not known",
		[RAFT_SHUTDOWN] = "shutting down",
		[RAFT_CANTBOOTSTRAP] = "the folder holds a group already",
		[RAFT_CANTCHANGE] = "another change of members is going on",
		[RAFT_CORRUPT] = "damaged data",
		[RAFT_CANCELED] = "cancelled",
		[RAFT_NAMETOOLONG] = "the folder's name is too long",
		[RAFT_TOOBIG] = "too big",
		[RAFT_NOCONNECTION] = "no connection, or the member does not keep up",
		[RAFT_BUSY] = "busy",
		[RAFT_IOERR] = "input or output failed (a disk, or an address in use)",
		[RAFT_NOTFOUND] = "not found",
		[RAFT_INVALID] = "invalid argument",
		[RAFT_UNAUTHORIZED] = "no permission",
		[RAFT_NOSPACE] = "the disk is full",
		[RAFT_TOOMANY] = "a limit of the system is reached (fs.aio-max-nr?)",
	};

	if (raft_error < 0 || (size_t)raft_error >= sizeof(text) / sizeof(text[0]))
		return "unknown error";
	return text[raft_error];
}

enum raft_cons_refusal core_refuse(struct raft_cons *c, enum raft_cons_refusal refusal,
	const char **why, const char *format, ...)
{
	char text[sizeof(c->why)];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	memcpy(c->why, text, sizeof(c->why));
	*why = c->why;
	return refusal;
}

void core_exit(int code, const char *log_code, const char *format, ...)
{
	char text[512];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	LOG(LOG_ERROR, "raft", log_code, "%s; ending with %d", text, code);
	_exit(code);
}

// --- open tokens --------------------------------------------------------------------------------------------

struct core_open *core_open_new(struct raft_cons *c, uint64_t token, enum core_open_kind kind)
{
	struct core_open *open;

	if (c->open_count == RAFT_OPEN_MAX)
		return NULL;
	open = calloc(1, sizeof(*open));
	if (open == NULL)
		return NULL;
	open->token = token;
	open->kind = (uint8_t)kind;
	TAILQ_INSERT_TAIL(&c->opens, open, link);
	c->open_count++;
	return open;
}

void core_open_drop(struct raft_cons *c, struct core_open *open)
{
	TAILQ_REMOVE(&c->opens, open, link);
	c->open_count--;
	free(open);
}

struct core_open *core_find(struct raft_cons *c, uint64_t token, enum core_open_kind kind)
{
	struct core_open *open;

	TAILQ_FOREACH(open, &c->opens, link)
	if (open->token == token && open->kind == kind && open->state != OPEN_ANSWERED)
		return open;
	return NULL;
}

void core_answer(struct raft_cons *c, uint64_t token, enum cons_status status, const char *why)
{
	struct core_open *open;

	TAILQ_FOREACH(open, &c->opens, link)
	if (open->token == token && open->state != OPEN_ANSWERED)
		break;
	if (open == NULL)
		return;
	open->state = OPEN_ANSWERED;
	open->status = (uint8_t)status;
	snprintf(open->why, sizeof(open->why), "%s", why);
}

void core_barrier_at(struct raft_cons *c, uint64_t token, uint64_t index)
{
	struct core_open *open = core_find(c, token, OPEN_BARRIER);

	if (open == NULL)
		return;
	open->state = OPEN_INDEX;
	open->index = index;
}

static void give_answers(struct raft_cons *c)
{
	struct core_open *open, *next;
	struct core_opens answered;

	TAILQ_INIT(&answered);
	for (open = TAILQ_FIRST(&c->opens); open != NULL; open = next) {
		next = TAILQ_NEXT(open, link);
		if (open->state == OPEN_INDEX && fsm_reached(c, open->index))
			open->state = OPEN_ANSWERED;  // status is CONS_OK
		if (open->state != OPEN_ANSWERED)
			continue;
		TAILQ_REMOVE(&c->opens, open, link);
		c->open_count--;
		TAILQ_INSERT_TAIL(&answered, open, link);
	}
	while ((open = TAILQ_FIRST(&answered)) != NULL) {
		TAILQ_REMOVE(&answered, open, link);
		c->events->on_result(c->ctx, open->token, open->status, open->why);
		free(open);
	}
}

// --- entries ------------------------------------------------------------------------------------------------

bool core_leads(const struct raft_cons *c)
{
	return c->started && !c->stopping && guard_ready(&c->guard);
}

static void applied(struct raft_apply *req, int status, void *result)
{
	struct core_apply *apply = req->data;
	struct raft_cons *c = apply->c;

	(void)result;
	apply->used = false;
	// Success is told when the consumer has taken the entry; here it is in the queue.
	if (status != 0 && apply->origin.node_id == c->params.node_id &&
		apply->origin.life == c->life)
		core_answer(c, apply->origin.token, CONS_UNKNOWN, core_error(status));
}

enum cons_status core_lead_propose(
	struct raft_cons *c, const struct raft_origin *origin, const uint8_t *data, uint32_t len)
{
	struct core_apply *apply = NULL;
	struct raft_buffer buf;
	uint64_t header[RAFT_ENTRY_HEADER_BYTES / 8] = {
		origin->node_id, origin->life, origin->token, (uint64_t)len << 32 | ENTRY_FORMAT};
	int rc;

	if (len > ENTRY_BYTES_MAX)
		return CONS_TOO_LARGE;
	if (c->stopping)
		return CONS_FAILED;
	if (raft_state(&c->raft) != RAFT_LEADER)
		return CONS_NOT_LEADER;
	if (!core_leads(c) || c->in_library)
		return CONS_BUSY;
	for (uint32_t i = 0; i < RAFT_APPLIES_MAX && apply == NULL; i++)
		if (!c->apply[i].used)
			apply = &c->apply[i];
	if (apply == NULL)
		return CONS_BUSY;
	buf.len = (sizeof(header) + len + 7) & ~(size_t)7;
	buf.base = raft_calloc(1, buf.len);
	if (buf.base == NULL)
		return CONS_BUSY;
	memcpy(buf.base, header, sizeof(header));
	if (len != 0)
		memcpy((uint8_t *)buf.base + sizeof(header), data, len);
	*apply = (struct core_apply){.c = c, .used = true, .origin = *origin};
	apply->req.data = apply;
	rc = raft_apply(&c->raft, &apply->req, &buf, 1, applied);
	if (rc == 0)
		return CONS_OK;
	apply->used = false;
	raft_free(buf.base);
	return rc == RAFT_NOTLEADER ? CONS_NOT_LEADER : CONS_BUSY;
}

// --- barriers on the leader ---------------------------------------------------------------------------------

struct core_barrier {
	struct core_barrier *next;
	core_barrier_done done;
	uint64_t id;
};

enum cons_status core_lead_barrier(struct raft_cons *c, core_barrier_done done, uint64_t id)
{
	struct core_barrier *b;

	if (c->stopping)
		return CONS_FAILED;
	if (raft_state(&c->raft) != RAFT_LEADER)
		return CONS_NOT_LEADER;
	if (!core_leads(c) || c->waiting.count + c->flying.count == RAFT_BARRIERS_MAX)
		return CONS_BUSY;
	b = malloc(sizeof(*b));
	if (b == NULL)
		return CONS_BUSY;
	*b = (struct core_barrier){.next = c->waiting.first, .done = done, .id = id};
	c->waiting.first = b;
	c->waiting.count++;
	return CONS_OK;
}

static void end_barriers(
	struct raft_cons *c, struct core_barriers *barriers, int status, uint64_t index)
{
	struct core_barrier *b = barriers->first, *next;

	*barriers = (struct core_barriers){0};
	for (; b != NULL; b = next) {
		next = b->next;
		if (b->done != NULL)
			b->done(c, b->id, status, index);
		free(b);
	}
}

static void barrier_done(struct raft_barrier *req, int status)
{
	struct raft_cons *c = req->data;

	end_barriers(c, &c->flying, status, req->index);
}

// One entry for all barriers that came since the last one left.
static void start_barriers(struct raft_cons *c)
{
	int rc;

	if (c->flying.first != NULL || c->waiting.first == NULL)
		return;
	if (!core_leads(c)) {
		end_barriers(c, &c->waiting, RAFT_NOTLEADER, 0);
		return;
	}
	c->flying = c->waiting;
	c->waiting = (struct core_barriers){0};
	c->barrier.data = c;
	rc = raft_barrier(&c->raft, &c->barrier, barrier_done);
	if (rc != 0)
		end_barriers(c, &c->flying, rc, 0);
}

// --- life ---------------------------------------------------------------------------------------------------

void core_init(struct raft_cons *c)
{
	TAILQ_INIT(&c->opens);
}

static void forget(struct core_barriers *barriers)
{
	while (barriers->first != NULL) {
		struct core_barrier *next = barriers->first->next;

		free(barriers->first);
		barriers->first = next;
	}
}

void core_fini(struct raft_cons *c)
{
	while (!TAILQ_EMPTY(&c->opens))
		core_open_drop(c, TAILQ_FIRST(&c->opens));
	forget(&c->waiting);
	forget(&c->flying);
}

bool core_idle(const struct raft_cons *c)
{
	for (uint32_t i = 0; i < RAFT_APPLIES_MAX; i++)
		if (c->apply[i].used)
			return false;
	return c->flying.first == NULL && !guard_writing(&c->guard) && c->fsm.first == NULL;
}

// Followers hear what is committed, unless more entries are in flight: their own commits follow soon.
static void nudge_turn(struct raft_cons *c)
{
	if (!core_leads(c) || c->flying.first != NULL)
		return;
	for (uint32_t i = 0; i < RAFT_APPLIES_MAX; i++)
		if (c->apply[i].used)
			return;
	nudge_followers(&c->nudge, &c->raft);
}

void core_turn(struct raft_cons *c, uint8_t *busy)
{
	start_barriers(c);
	give_answers(c);
	// An answer may have asked for more.
	if (c->waiting.first != NULL && c->flying.first == NULL)
		*busy = 1;
	nudge_turn(c);
}
