/* SPDX-License-Identifier: BSD-3-Clause */
// Small messages: a publish to few members, of which nothing special is known, is expanded as it is admitted,
// while everything it reads is still in the caches. It is the same as being queued and expanded later in the
// turn, without what that needs: no pin, no queue, no copy of the publish, no records left open.
//
// A message is small when its tag has its members inlined, nothing of its channel is queued, it waits for no
// client, it fits beside its routes in one datagram of any gateway, no member is denied, has several
// sessions or is the sender, and there are buffers for the worst case. All that is known before the first
// byte is written; any other message goes the way of fanout_expand.c, to the same end. Worker.
//
// Members are grouped by gateway first, so that each record is written once, whole, and into the push it
// fits in.
#include "fanout_pvt.h"

#include <assert.h>

#define ROOM_LINES 3u  // of a record of a usual size
#define ROUTES_AT_ONCE 3u  // copied without asking how many there are

#define TAIL_STEPS 5u  // names and payload of a usual size

typedef uint64_t wide __attribute__((vector_size(32), aligned(1), may_alias));

_Static_assert(TAG_INLINE_UIDS < 1u << FANOUT_GROUP_SHIFT, "a full group ends before the next");
_Static_assert(TAG_INLINE_UIDS <= FANOUT_SPARES, "buffers for the worst case can be at hand");
_Static_assert(offsetof(struct delivery_span, first) == 4, "a span is written by words");
_Static_assert(offsetof(struct delivery_span, count) == 6, "a span is written by words");
_Static_assert(offsetof(struct delivery_span, attempt) == offsetof(struct delivery_span, ack) + 1,
	"a span is written by words");

// Sorts the members into groups, without a branch: which members share a gateway cannot be guessed. A place is
// group << FANOUT_GROUP_SHIFT | number of members before it; a gateway's mark is the place of its next member.
// Returns: number of groups; *odd: some member needs a closer look.
static uint32_t group(struct fanout *f, const struct tag *tag, uint64_t echo, bool *odd)
{
	const _Atomic uint64_t *const words = f->io.presence->route;
	const uint32_t *const uid = tag->inlined;
	const uint32_t members = tag->count;
	const struct tag *const ahead =
		f->ahead != NULL && f->ahead->count <= members ? f->ahead : tag;
	const uint32_t *const fetch = ahead->inlined;
	const uint32_t fetches = ahead->count;
	struct fanout_small *const s = &f->small;
	const uint64_t base = s->next;
	uint64_t end = 0, any = 0;  // place of the next group's first
	uint32_t entries = 0;

	if (ahead != tag)
		f->ahead = NULL;
	s->next += (uint64_t)(TAG_INLINE_UIDS + 1) << FANOUT_GROUP_SHIFT;
	for (uint32_t i = 0; i < members; i++) {
		const uint64_t word =
			atomic_load_explicit(&words[TAG_UID(uid[i])], memory_order_acquire);
		const uint32_t gateway = route_gateway(word);
		const uint64_t mark = s->mark[gateway] - base;  // of an older message: huge
		const uint64_t place = mark < end ? mark : end;
		const uint64_t g = place >> FANOUT_GROUP_SHIFT;

		presence_prefetch(f->io.presence, TAG_UID(fetch[i < fetches ? i : 0]));
		entries |= uid[i];
		any |= word;
		s->mark[gateway] = base + place + 1;
		s->gateway[g] = gateway;
		s->count[g] = (uint32_t)(place - (g << FANOUT_GROUP_SHIFT)) + 1;
		s->route[place] = fanout_route_entry(word);
		end += (uint64_t)(place == end) << FANOUT_GROUP_SHIFT;
	}
	*odd = ((entries & TAG_DENIED) | (any & ROUTE_MORE)) != 0;
	if (unlikely(echo != UINT64_MAX))
		for (uint32_t i = 0; i < members; i++)
			*odd |= presence_route(f->io.presence, TAG_UID(uid[i])) == echo;
	return (uint32_t)(end >> FANOUT_GROUP_SHIFT);
}

// True when a record of `bytes` is no frame to be staged, whichever gateways it goes to.
static bool fits_all(const struct fanout *f, uint32_t groups, uint32_t bytes)
{
	if (WIRE_PUSH_BYTES + bytes <= wire_lane_body_room(f->io.lane, MTU_MIN - WIRE_UDP_OVERHEAD))
		return true;
	for (uint32_t g = 0; g < groups; g++)
		if (WIRE_PUSH_BYTES + bytes > fanout_body_room(f, f->small.gateway[g]))
			return false;
	return true;
}

// Finds the pushes that take the records of the groups, opening what is missing; a group whose gateway is dead
// is left out. Returns: groups that are left.
static uint32_t make_room(struct fanout *f, uint32_t groups, uint32_t head) WORKER_ONLY;
static uint32_t make_room(struct fanout *f, uint32_t groups, uint32_t head)
{
	struct fanout_small *const s = &f->small;
	uint32_t left = 0;

	for (uint32_t g = 0; g < groups; g++) {
		const uint32_t gateway = s->gateway[g], routes = s->count[g];
		const struct fanout_push *const p = &f->push[gateway];
		const uint8_t *const at = f->cursor[gateway].tail;

		if (unlikely(p->dgram == NULL ||
			     head + routes * WIRE_ROUTE_BYTES > (uint32_t)(p->end - at) ||
			     (p->roomy && (p->spans == DELIVERY_SPANS_MAX ||
						  p->routes + routes > FANOUT_PUSH_ROUTES)))) {
			bool opened;

			// Whether a gateway lives is looked at when a push is opened, which happens each turn.
			if (!fanout_alive(f, gateway))
				continue;
			opened = fanout_reopen_push(f, gateway);
			assert(opened && head + routes * WIRE_ROUTE_BYTES <=
						 (uint32_t)(p->end - f->cursor[gateway].tail));
			(void)opened;
		}
		s->live[left++] = (uint8_t)g;
	}
	return left;
}

static inline void copy_routes(uint8_t *to, const uint64_t *route, uint32_t routes, bool room)
{
	if (unlikely(!room || routes > ROUTES_AT_ONCE)) {
		for (uint32_t k = 0; k < routes; k++)
			memcpy(to + k * WIRE_ROUTE_BYTES, &route[k], WIRE_ROUTE_BYTES);
		return;
	}
	memcpy(to, &route[0], WIRE_ROUTE_BYTES);
	memcpy(to + WIRE_ROUTE_BYTES, &route[1], WIRE_ROUTE_BYTES);
	memcpy(to + 2 * WIRE_ROUTE_BYTES, &route[2], WIRE_ROUTE_BYTES);
}

// Where the next record will stand is fetched for writing: pushes fill side by side, too many for the
// hardware to see what comes.
static inline void fetch_room(const uint8_t *at)
{
	for (uint32_t line = 0; line < ROOM_LINES; line++)
		__builtin_prefetch(at + line * 64u, 1);
}

// What the spans of one message have in common.
struct common {
	uint64_t deadline_ns;
	uint32_t slot;
	uint16_t kind;  // class and first attempt, as they stand in a span
	uint8_t acks;
};

static inline void add_span(struct fanout_push *p, const struct common *all, uint32_t routes)
{
	const uint32_t sums = p->sums;  // its spans and routes so far
	struct delivery_span *const span = &p->span[sums >> 16];
	const uint64_t names = (uint64_t)routes << 48 | (uint64_t)(uint16_t)sums << 32 | all->slot;

	p->sums = sums + (1u << 16) + routes;
	memcpy(span, &names, sizeof(names));
	memcpy(&span->ack, &all->kind, sizeof(all->kind));
	span->deadline_ns = all->deadline_ns;
	if (unlikely(p->acks != all->acks))
		p->acks |= all->acks;
	if (unlikely(all->deadline_ns < p->deadline_ns))
		p->deadline_ns = all->deadline_ns;
}

// Names and payload of the usual size.
static inline bool usual(uint32_t bytes)
{
	return bytes >= sizeof(wide) && bytes <= TAIL_STEPS * sizeof(wide);
}

static inline wide read_wide(const uint8_t *p)
{
	return *(const wide *)p;
}

static inline void write_wide(uint8_t *p, wide w)
{
	*(wide *)p = w;
}

// Writes the records of the groups that are left; nothing is called on the way. Names and payload of the usual
// size stay in registers: whole steps, the last of which may lie over those before. Returns: routes written.
static inline __attribute__((always_inline)) uint32_t write_records(struct fanout *f,
	const struct wire_record_words *words, struct wire_view tail, const struct common *all,
	uint32_t left, bool steps)
{
	const struct fanout_small *const s = &f->small;
	const uint32_t head = WIRE_RECORD_BYTES + tail.len;
	const uint32_t last = steps ? tail.len - (uint32_t)sizeof(wide) : 0;
	const uint32_t at1 = last < 32 ? last : 32, at2 = last < 64 ? last : 64,
		       at3 = last < 96 ? last : 96;
	const wide none = {0};
	const wide step0 = steps ? read_wide(tail.p) : none;
	const wide step1 = steps ? read_wide(tail.p + at1) : none;
	const wide step2 = steps ? read_wide(tail.p + at2) : none;
	const wide step3 = steps ? read_wide(tail.p + at3) : none;
	const wide step4 = steps ? read_wide(tail.p + last) : none;
	uint32_t routed = 0;

	for (uint32_t l = 0; l < left; l++) {
		const uint32_t g = s->live[l];
		const uint32_t gateway = s->gateway[g], routes = s->count[g];
		struct fanout_push *const p = &f->push[gateway];
		struct fanout_cursor *const c = &f->cursor[gateway];
		uint8_t *const at = c->tail;
		uint8_t *const name = at + WIRE_RECORD_BYTES, *const route = at + head;

		wire_put_record_words(at, words, (uint16_t)routes);
		if (steps) {
			write_wide(name, step0);
			write_wide(name + at1, step1);
			write_wide(name + at2, step2);
			write_wide(name + at3, step3);
			write_wide(name + last, step4);
		} else {
			memcpy(name, tail.p, tail.len);
		}
		copy_routes(route, &s->route[g << FANOUT_GROUP_SHIFT], routes,
			ROUTES_AT_ONCE * WIRE_ROUTE_BYTES <= (uint32_t)(p->end - route));
		c->tail = c->limit = route + routes * WIRE_ROUTE_BYTES;
		fetch_room(c->tail);
		add_span(p, all, routes);
		routed += routes;
	}
	return routed;
}

// Returns: routes written.
static uint32_t emit(struct fanout *f, const struct fanout_publish *publish, uint32_t slot,
	uint64_t seq, uint32_t groups) WORKER_ONLY;
static uint32_t emit(struct fanout *f, const struct fanout_publish *publish, uint32_t slot,
	uint64_t seq, uint32_t groups)
{
	const struct wire_publish *const m = &publish->m;
	const struct wire_record record = {
		.message_id = m->message_id,
		.seq = seq,
		.stamp = m->stamp,
		.channel_type = m->channel.type,
		.channel = channel_key_id(&m->channel),
		.from_uid = m->from_uid,
		.payload = m->payload,
	};
	const struct common all = {
		.deadline_ns = fanout_deadline(f, m->deadline_ms),
		.slot = slot,
		.kind = (uint16_t)(1u << 8 | m->ack),
		.acks = (uint8_t)(1u << m->ack),
	};
	const uint32_t left = make_room(f, groups, WIRE_RECORD_BYTES + m->tail.len);
	struct wire_record_words words;

	wire_record_words(&record, &words);
	return likely(usual(m->tail.len)) ? write_records(f, &words, m->tail, &all, left, true)
					  : write_records(f, &words, m->tail, &all, left, false);
}

bool fanout_small(struct fanout *f, const struct fanout_publish *p, const struct channel *channel,
	struct tag *tag, uint32_t slot, struct idem_record *record)
{
	struct fanout_message *m = &f->message[slot];
	const uint32_t members = tag->count;
	uint32_t groups, bytes, routed;
	uint64_t echo, seq;
	bool odd;

	if (p->m.ack == WIRE_ACK_CLIENT || tag->inlined == NULL || members > f->small_left ||
		members > f->limits.quantum_members || fault_armed(FAULT_DROP1) ||
		fault_armed(FAULT_DUP1))
		return false;
	echo = fanout_echo(
		f, p->m.sender_gateway, p->m.sender_boot, p->m.sender_slot, p->m.sender_gen);
	groups = group(f, tag, echo, &odd);
	bytes = WIRE_RECORD_BYTES + p->m.tail.len + members * WIRE_ROUTE_BYTES;
	assert(p->m.tail.len == (uint32_t)p->m.channel.len + p->m.from_uid.len + p->m.payload.len);
	if (odd || !fits_all(f, groups, bytes))
		return false;
	if (f->spares < groups) {
		fanout_know_buffers(f);
		if (!fanout_dgrams_ready(f, groups))
			return false;
	}
	seq = fanout_seq(f, channel->index);
	atomic_store_explicit(&tag->used_ns, f->now_ns, memory_order_relaxed);
	fanout_accepted(f, p, tag, seq, record);
	routed = emit(f, p, slot, seq, groups);
	f->small_left -= members;
	f->sums.publishes++;
	f->sums.members += members;
	f->sums.routed += routed;
	m->state = FANOUT_EXPANDED;
	m->ack = p->m.ack;
	m->routes = m->open = routed;
	m->acked = m->ended = 0;
	if (routed == 0)
		fanout_finish(f, slot);
	return true;
}

void fanout_small_count(struct fanout *f)
{
	const struct fanout_sums s = f->sums;

	if (s.publishes == 0)
		return;
	counter_add(f->io.counters, CTR_TAG_HIT, s.publishes);
	counter_add(f->io.counters, CTR_PUB_OK, s.publishes);
	counter_add(f->io.counters, CTR_MEMBERS, s.members);
	counter_add(f->io.counters, CTR_ROUTES, s.routed);
	counter_add(f->io.counters, CTR_END_ROUTED, s.routed);
	counter_add(f->io.counters, CTR_END_OFFLINE, s.members - s.routed);
	f->sums = (struct fanout_sums){0};
}
