/* SPDX-License-Identifier: BSD-3-Clause */
// From members to routes, a quantum at a time: the hot loop of the product. Reads the tag pinned by the
// message and the route words under RCU; writes routes into the open records of fanout_emit.c. Worker.
//
// A member ends in exactly one of END_ROUTED, END_OFFLINE, END_DENIED, END_SENDER_ONLY, counted when it is
// expanded; a route ends in lib/delivery, or here when it cannot be pushed.
#include "fanout_pvt.h"

#include <assert.h>

#define ROUTE_STEP_SHIFT 58  // moves the "set" bit of a route word to 8, the bytes of an entry

_Static_assert(
	ROUTE_SET >> ROUTE_STEP_SHIFT == WIRE_ROUTE_BYTES, "a set word advances by one entry");

struct tally {
	uint32_t routed, offline, denied, sender_only, echo;
};

static void count_one(struct fanout *f, enum counter id, uint32_t n)
{
	if (n != 0)
		counter_add(f->io.counters, id, n);
}

static void count(struct fanout *f, const struct tally *t)
{
	count_one(f, CTR_END_ROUTED, t->routed);
	count_one(f, CTR_END_OFFLINE, t->offline);
	count_one(f, CTR_END_DENIED, t->denied);
	count_one(f, CTR_END_SENDER_ONLY, t->sender_only);
	count_one(f, CTR_ROUTE_ECHO, t->echo);
}

uint64_t fanout_echo(
	const struct fanout *f, uint64_t gateway, uint64_t boot, uint32_t slot, uint32_t gen)
{
	uint32_t index;

	if (gateway == 0)
		return UINT64_MAX;
	index = presence_gateway_of(f->io.presence, gateway, boot);
	return index == 0 ? UINT64_MAX : route_word(index, slot, gen);
}

static bool alive(const struct fanout *f, uint64_t word)
{
	const uint32_t gateway = route_gateway(word);

	return gateway < f->io.presence->gateways && fanout_alive(f, gateway);
}

// Live routes of a member without the sender's own. Returns: number; *echo: how many were left out.
static uint32_t routes_of(const struct fanout *f, uint32_t uid, uint64_t word, uint64_t echo,
	uint64_t route[SESSIONS_PER_UID_MAX], uint32_t *echoes)
{
	const struct presence_more *more =
		word & ROUTE_MORE ? presence_more_of(f->io.presence, uid) : NULL;
	const uint64_t *const routes = more != NULL ? more->route : &word;
	const uint32_t total = more != NULL ? more->count : word != 0;
	uint32_t n = 0;

	*echoes = 0;
	for (uint32_t i = 0; i < total; i++) {
		const uint64_t r = routes[i];

		if (route_session(r) == echo)
			++*echoes;
		else if (alive(f, r))
			route[n++] = route_session(r);
	}
	return n;
}

static void end_member(struct tally *t, uint32_t routes, uint32_t echoes)
{
	if (routes != 0)
		t->routed++;
	else if (echoes != 0)
		t->sender_only++;
	else
		t->offline++;
	t->echo += echoes;
}

#ifdef TAGCAST_TEST_HOOKS
#define FANOUT_PLANTED 1
// FAULT_DROP1: the route counts and ends as if it had gone well, and never leaves.
static bool planted_drop(struct fanout *f, uint32_t slot) WORKER_ONLY;
static bool planted_drop(struct fanout *f, uint32_t slot)
{
	const enum counter well[] = {CTR_ROUTE_SENT, CTR_ROUTE_ACCEPTED, CTR_ROUTE_ACKED};

	if (!fault_take(FAULT_DROP1))
		return false;
	fanout_end_routes(f, slot, well[f->message[slot].ack], 1);
	return true;
}
#else
#define FANOUT_PLANTED 0
static bool planted_drop(struct fanout *f, uint32_t slot)
{
	(void)f;
	(void)slot;
	return false;
}
#endif

// Makes room for every route of a member, so that it is taken whole or not at all: a member whose first
// routes are out cannot be taken back. Room made and not used costs nothing.
static bool room_for(struct fanout *f, const uint64_t *route, uint32_t n) WORKER_ONLY;
static bool room_for(struct fanout *f, const uint64_t *route, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		const uint32_t gateway = route_gateway(route[i]);
		const struct fanout_cursor *c = &f->cursor[gateway];
		uint32_t before = 0;

		for (uint32_t k = 0; k < i; k++)
			before += route_gateway(route[k]) == gateway;
		if (c->limit - c->tail <= (ptrdiff_t)(before * WIRE_ROUTE_BYTES) &&
			!fanout_make_room(f, gateway))
			return false;
	}
	return true;
}

// A member that is not just "offline" or "one route with room": denied, echo, several sessions, a record
// to open, a dead gateway. Returns: false: no room now, the member is untouched.
static bool expand_member(struct fanout *f, uint32_t slot, uint32_t entry, uint64_t word,
	uint64_t echo, struct tally *t) WORKER_ONLY;
static __attribute__((noinline)) bool expand_member(struct fanout *f, uint32_t slot, uint32_t entry,
	uint64_t word, uint64_t echo, struct tally *t)
{
	uint64_t route[SESSIONS_PER_UID_MAX];
	uint32_t n, echoes;

	if (entry & TAG_DENIED) {
		t->denied++;
		return true;
	}
	n = routes_of(f, TAG_UID(entry), word, echo, route, &echoes);
	if (!room_for(f, route, n))
		return false;
	for (uint32_t i = 0; i < n; i++) {
		struct fanout_cursor *c = &f->cursor[route_gateway(route[i])];
		const uint64_t out = fanout_route_entry(route[i]);

		if (planted_drop(f, slot))
			continue;
		// Only more sessions on one gateway than its record holds can find it full again.
		if (c->tail == c->limit && !fanout_make_room(f, route_gateway(route[i]))) {
			fanout_end_routes(f, slot, CTR_ROUTE_NO_BUFFER, 1);
			continue;
		}
		memcpy(c->tail, &out, sizeof(out));
		c->tail += sizeof(out);
	}
	end_member(t, n, echoes);
	return true;
}

// Expands uid[0..n). Returns: members done; fewer than n when there is no room now.
static uint32_t expand_run(struct fanout *f, uint32_t slot, const uint32_t *uid, uint32_t n,
	uint64_t echo, struct tally *t) WORKER_ONLY;
static uint32_t expand_run(struct fanout *f, uint32_t slot, const uint32_t *uid, uint32_t n,
	uint64_t echo, struct tally *t)
{
	const struct presence_view *const view = f->io.presence;
	const _Atomic uint64_t *const words = view->route;
	struct fanout_cursor *const cursor = f->cursor;
	uint32_t routed = 0, slow = 0, i;

	for (i = 0; i < n && i < FANOUT_AHEAD; i++)
		__builtin_prefetch((const void *)&words[TAG_UID(uid[i])]);
	for (i = 0; i < n; i++) {
		const uint32_t ahead = i + FANOUT_AHEAD < n ? i + FANOUT_AHEAD : n - 1;
		const uint32_t entry = uid[i];
		const uint64_t word =
			atomic_load_explicit(&words[TAG_UID(entry)], memory_order_acquire);
		struct fanout_cursor *const c = &cursor[route_gateway(word)];
		uint8_t *tail = c->tail;
		const uint64_t out = fanout_route_entry(word);
		const bool odd = (entry & TAG_DENIED) | (word & ROUTE_MORE) | (word == echo);

		__builtin_prefetch((const void *)&words[TAG_UID(uid[ahead])]);
		if (unlikely(odd | (tail == c->limit))) {
			if (odd || FANOUT_PLANTED || !fanout_quick_room(f, route_gateway(word))) {
				if (!expand_member(f, slot, entry, word, echo, t))
					break;
				slow++;
				continue;
			}
			tail = c->tail;
		}
		memcpy(tail, &out, sizeof(out));
		c->tail = tail + (word >> ROUTE_STEP_SHIFT & WIRE_ROUTE_BYTES);
		routed += (uint32_t)(word >> ROUTE_STEP_SHIFT & WIRE_ROUTE_BYTES);
	}
	routed /= WIRE_ROUTE_BYTES;
	t->routed += routed;
	t->offline += i - slow - routed;
	return i;
}

// The deadline passed before these members had their turn: their routes are counted and end at once.
static uint32_t expire_run(struct fanout *f, uint32_t slot, const uint32_t *uid, uint32_t n,
	uint64_t echo, struct tally *t) WORKER_ONLY;
static uint32_t expire_run(struct fanout *f, uint32_t slot, const uint32_t *uid, uint32_t n,
	uint64_t echo, struct tally *t)
{
	uint64_t route[SESSIONS_PER_UID_MAX];
	uint32_t routes = 0;

	for (uint32_t i = 0; i < n; i++) {
		const uint32_t index = TAG_UID(uid[i]);
		uint32_t echoes, k;

		if (uid[i] & TAG_DENIED) {
			t->denied++;
			continue;
		}
		k = routes_of(
			f, index, presence_route(f->io.presence, index), echo, route, &echoes);
		end_member(t, k, echoes);
		routes += k;
	}
	if (routes != 0)
		fanout_end_routes(f, slot, CTR_ROUTE_DEADLINE, routes);
	return n;
}

void fanout_expanded(struct fanout *f, struct fanout_queue *queue)
{
	const uint32_t slot = queue->head;
	struct fanout_message *m = &f->message[slot];

	fanout_close_records(f);
	f->current = FANOUT_NONE;
	queue->head = m->next;
	if (queue->head == FANOUT_NONE)
		queue->tail = FANOUT_NONE;
	fanout_body_free(f, &m->body);
	tag_unpin(m->tag);
	m->tag = NULL;
	m->state = FANOUT_EXPANDED;
	if (m->open == 0)
		fanout_finish(f, slot);
}

// Staged frames of this message that wait to be sent. Returns: work.
static uint32_t flush_staged(
	struct fanout *f, struct fanout_queue *queue, uint32_t max) WORKER_ONLY;
static uint32_t flush_staged(struct fanout *f, struct fanout_queue *queue, uint32_t max)
{
	const struct fanout_message *m = &f->message[queue->head];
	bool done;
	const uint32_t work = fanout_stage_flush(f, max, &done);

	if (!done)
		return work;
	f->stage_owner = FANOUT_NONE;
	f->stage_flushing = false;
	if (m->chunk != m->tag->chunks)
		return work;
	fanout_expanded(f, queue);
	return work + 1;
}

uint32_t fanout_expand(struct fanout *f, struct fanout_queue *queue, uint32_t max)
{
	const uint32_t slot = queue->head;
	struct fanout_message *m = &f->message[slot];
	const bool late = f->now_ns >= m->deadline_ns;
	struct tally t = {0};
	uint32_t done = 0;
	uint64_t echo;

	assert(m->state == FANOUT_READY);
	if (f->stage_owner == slot && f->stage_flushing)
		return flush_staged(f, queue, max);
	echo = fanout_echo(f, m->sender_gateway, m->sender_boot, m->sender_slot, m->sender_gen);
	fanout_begin(f, slot);
	while (m->chunk < m->tag->chunks && done < max) {
		const struct tag_chunk *chunk = m->tag->chunk[m->chunk];
		const uint32_t left = chunk->count - m->at;
		const uint32_t want = left < max - done ? left : max - done;
		const uint32_t got = late ? expire_run(f, slot, chunk->uid + m->at, want, echo, &t)
					  : expand_run(f, slot, chunk->uid + m->at, want, echo, &t);

		done += got;
		m->at += got;
		if (m->at == chunk->count) {
			m->chunk++;
			m->at = 0;
		}
		if (got < want)
			break;
	}
	count(f, &t);
	if (f->stage_owner == slot && m->chunk == m->tag->chunks)
		f->stage_flushing = true;
	if (f->stage_owner == slot && f->stage_flushing) {
		fanout_close_records(f);
		return done + flush_staged(f, queue, max);
	}
	if (m->chunk == m->tag->chunks) {
		fanout_expanded(f, queue);
		return done + 1;
	}
	return done;
}
