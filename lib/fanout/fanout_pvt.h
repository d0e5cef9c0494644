/* SPDX-License-Identifier: BSD-3-Clause */
// The inside of the pipeline, for lib/fanout alone. Everything is owned by one worker.
//
//   fanout.c          create, destroy, message slots, the turn
//   fanout_admit.c    checks of a publish, idempotence, limits
//   fanout_small.c    small messages: expanded as they are admitted
//   fanout_resolve.c  tags: resolve, park, poll
//   fanout_expand.c   members to routes, in quanta
//   fanout_emit.c     open pushes: one per gateway
//   fanout_stage.c    frames too large for a datagram
//   fanout_retry.c    routes that come back
//   fanout_outcome.c  what the publisher is told, end of a message
#pragma once

#include "fanout.h"

#include "base_fault.h"
#include "base_rcu.h"
#include "tag_read.h"

#define FANOUT_NONE UINT32_MAX
#define FANOUT_AHEAD 32u  // route words prefetched ahead of the member expanded
#define FANOUT_ROUTES_BESIDE \
	64u  // routes a datagram should take beside the payload, or it is segmented
#define FANOUT_PUSH_ROUTES 192u  // routes of one datagram: what delivery keeps in a small record
// A push of no more bytes is full before it has as many records or routes as it may have.
#define FANOUT_TIGHT_BYTES (FANOUT_PUSH_ROUTES * WIRE_ROUTE_BYTES)
#define FANOUT_BULK_MEMBERS 1024u  // a message of more waits for gateways under pressure
#define FANOUT_PATIENCE_NS UINT64_C(200000000)  // and for each of them so long at most
#define FANOUT_BLOCK_ROUTES 64u  // routes of one staging block
#define FANOUT_BLOCKS 1024u  // staged routes at most: 64 Ki, half a megabyte
#define FANOUT_SPARES (FRAME_SEGMENTS_MAX + 2u * BURST)

#define FANOUT_GROUP_SHIFT 6u  // of the group in the place of a small message's member
#define FANOUT_COPY 32u  // record heads are copied in steps of this

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

enum fanout_state {
	FANOUT_FREE,
	FANOUT_PARKED,  // waits for a tag, in its channel's queue
	FANOUT_READY,  // tag pinned, fence and seq fixed; being expanded when at the head of its queue
	FANOUT_EXPANDED,  // off its queue; waits for its routes to end
};

// A message between admission and the end of its last route.
// The first line is all that ending a route touches, and all that a small message uses.
struct fanout_message {
	_Alignas(64) uint32_t next;  // in its queue, or in the free list
	uint32_t channel;  // index
	uint8_t state;
	uint8_t ack;
	uint32_t routes;  // pushed, first pushes only
	uint32_t open;  // of them not ended
	uint32_t acked, ended;
	uint32_t members;
	uint32_t chunk, at;  // next member: chunk number and position in it
	struct tag *tag;  // pinned while READY
	uint64_t deadline_ns;
	uint64_t message_id, seq, stamp, hash, request_id;
	struct id_view from_uid;
	struct wire_view payload;
	uint64_t sender_gateway, sender_boot;
	uint32_t sender_slot, sender_gen;
	struct net_addr from;
	uint64_t publisher_boot;
	struct fanout_body body;
	struct tag_fence fence;
	uint8_t pad
		[64];  // an odd number of lines, so that the first ones fall on all sets of a cache
};
_Static_assert(sizeof(struct fanout_message) / 64 % 2 == 1, "an odd number of lines");

// A channel with messages to expand. READY ones first, PARKED ones behind them.
struct fanout_queue {
	uint32_t channel, use;
	uint32_t head, tail;
	uint32_t parked_first, parked;
	uint32_t run_next, park_next;
	bool running, parking;  // on the list of runnable, parked queues
	uint64_t expire_ns;  // earliest deadline of a parked message
	uint64_t ask_ns;  // next time a tag is asked for
	uint64_t ask_wait_ns;
	uint64_t asked_smv;
};

// What stays of a channel when nothing is queued.
struct fanout_channel {
	uint64_t seq;  // last given
	uint32_t use;
	uint32_t queue;  // FANOUT_NONE
};

struct fanout_list {
	uint32_t head, tail, count;
};

// Where the next route of a gateway is written. tail == limit: ask fanout_make_room first. Entry 0 takes
// the writes of offline members: its tail never moves and never meets its limit.
struct fanout_cursor {
	uint8_t *tail, *limit;
};

// The open push of a gateway. The first line is what opening and closing a record touches.
struct fanout_push {
	_Alignas(64) struct dgram *dgram;  // NULL: none open
	uint8_t *end;  // of the body's room
	uint8_t *record;  // open record, NULL: none
	uint8_t *route;  // its first route
	struct delivery_span *span;
	uint64_t deadline_ns;  // earliest of its spans
	uint32_t room;  // body bytes
	union {
		struct {
			uint16_t routes;  // of closed records
			uint16_t spans;
		};
		uint32_t sums;  // both: routes | spans << 16
	};
	uint8_t acks;  // sums of its spans, as delivery wants them
	bool retried;
	bool roomy;  // so large that other limits than its bytes may be met first
	bool touched;  // on the list of the current message
	bool listed;  // on the list of open pushes
	bool staged;  // routes of the stage's owner are collected for it
	uint16_t stage_routes;
	uint32_t stage_use;  // incarnation they were staged for
	uint32_t block_first, block_last;
	uint64_t pressed_ns;  // since when it is found under pressure, 0: it is not
};

// Where the members of a small message stand: those of one gateway are a group.
struct fanout_small {
	uint64_t next;  // marks of the next message start here
	// By gateway: the place of its next member in the last message that had one there.
	uint64_t mark[GATEWAYS_MAX];
	uint32_t gateway[TAG_INLINE_UIDS];  // by group
	uint32_t count[TAG_INLINE_UIDS];
	uint64_t route[TAG_INLINE_UIDS << FANOUT_GROUP_SHIFT];  // entries, by place
	uint8_t live[TAG_INLINE_UIDS];  // groups that are written
};

// What a burst of small messages came to; counted once.
struct fanout_sums {
	uint32_t publishes, members, routed;
};

struct fanout_block {
	uint32_t next;
	uint32_t count;
	uint8_t route[FANOUT_BLOCK_ROUTES * WIRE_ROUTE_BYTES];
};

struct fanout {
	struct fanout_limits limits;
	struct fanout_io io;
	uint64_t now_ns;

	struct fanout_message *message;
	struct channel_key *key;  // by message
	uint32_t message_free, messages;
	struct fanout_queue *queue;
	uint32_t queue_free;
	struct fanout_channel *channel;  // by channel index
	struct fanout_list run, park;
	uint32_t parked;

	// emission
	struct fanout_cursor cursor[GATEWAYS_MAX];
	uint64_t sink;
	struct fanout_push *push;  // by gateway index
	struct delivery_span *spans;
	uint16_t *touched, *open;  // gateway indices
	uint32_t touched_count, open_count;
	uint32_t current;  // message whose records are open
	uint32_t current_routes_beside;
	uint32_t head_bytes;  // of its record before the routes
	uint8_t head[MTU_MAX + FANOUT_COPY];
	struct dgram *spare[FANOUT_SPARES];
	uint32_t spares;
	uint32_t buffers;  // what may still be taken this turn
	bool buffers_known;
	uint32_t
		small_left;  // members of small messages that may still be expanded this turn: half its budget
	struct fanout_small small;
	struct fanout_sums sums;
	// Whose members are fetched while those of another message are grouped, NULL: nobody's.
	const struct tag *ahead;

	// staging: of one large message at a time
	uint32_t stage_owner;
	bool stage_flushing;
	uint16_t *staged;
	uint32_t staged_count;
	struct fanout_block *block;
	uint32_t block_free;
	uint32_t frame_id;
	uint8_t *scratch[2];  // frame bodies being composed
	struct dgram *frame[FRAME_SEGMENTS_MAX];

	_Atomic uint32_t stat_messages, stat_parked, stat_runnable, stat_open_pushes;
	_Atomic uint32_t stat_parked_channel_most, stat_payload_most;
};

// --- messages and queues, fanout.c --------------------------------------------------------------------

uint32_t fanout_message_take(struct fanout *f) WORKER_ONLY;
void fanout_message_free(struct fanout *f, uint32_t slot) WORKER_ONLY;
void fanout_body_free(struct fanout *f, const struct fanout_body *body) WORKER_ONLY;
// The queue of a channel, made when it has none. There are as many queues as messages.
struct fanout_queue *fanout_queue_get(struct fanout *f, const struct channel *channel) WORKER_ONLY;
void fanout_queue_append(struct fanout *f, struct fanout_queue *queue, uint32_t slot) WORKER_ONLY;
// Gives an empty queue back when it is on no list.
void fanout_queue_settle(struct fanout *f, struct fanout_queue *queue) WORKER_ONLY;
void fanout_run_push(struct fanout *f, struct fanout_queue *queue) WORKER_ONLY;

// When a publish that wants to be delivered within `deadline_ms` (0: says nothing) expires.
uint64_t fanout_deadline(const struct fanout *f, uint32_t deadline_ms);

// --- resolve -----------------------------------------------------------------------------------------

// The tag a message may use now. Returns: NULL: none, counted why.
struct tag *fanout_usable_tag(struct fanout *f, struct channel *channel) WORKER_ONLY;
// The next seq of a channel.
static inline uint64_t fanout_seq(struct fanout *f, uint32_t channel)
{
	return ++f->channel[channel].seq;
}
// Fixes tag, fence and seq; tells the publisher unless it waits for clients. `record`: of the idempotence
// window when it is at hand, or NULL.
void fanout_resolve(
	struct fanout *f, uint32_t slot, struct tag *tag, struct idem_record *record) WORKER_ONLY;
void fanout_park(struct fanout *f, struct fanout_queue *queue, uint32_t slot) WORKER_ONLY;
// Asks for a tag when it is time to.
void fanout_ask(struct fanout *f, struct fanout_queue *queue, struct channel *channel) WORKER_ONLY;
uint32_t fanout_poll_parked(struct fanout *f) WORKER_ONLY;
// Ends every parked message of a queue.
void fanout_unpark_all(
	struct fanout *f, struct fanout_queue *queue, enum wire_status status) WORKER_ONLY;

// --- small messages ----------------------------------------------------------------------------------

// True when nothing of the channel is queued here.
static inline bool fanout_quiet(const struct fanout *f, const struct channel *channel)
{
	const struct fanout_channel *c = &f->channel[channel->index];

	return c->queue == FANOUT_NONE &&
	       c->use == atomic_load_explicit(&channel->use, memory_order_relaxed);
}
// Expands a publish of a quiet channel, when its tag and what is known of its members allow to. `slot` becomes
// its message, the body stays the caller's. Returns: false: nothing was done, it goes the way of all others.
bool fanout_small(struct fanout *f, const struct fanout_publish *p, const struct channel *channel,
	struct tag *tag, uint32_t slot, struct idem_record *record) WORKER_ONLY;
// Counts what the burst came to.
void fanout_small_count(struct fanout *f) WORKER_ONLY;

// --- expand ------------------------------------------------------------------------------------------

// Expands at most `max` members of the queue's first message. Returns: work in members; 0: stalled.
uint32_t fanout_expand(struct fanout *f, struct fanout_queue *queue, uint32_t max) WORKER_ONLY;
// Takes the first message off its queue: everything of it is in a push.
void fanout_expanded(struct fanout *f, struct fanout_queue *queue) WORKER_ONLY;

// The route word of the session that gets no echo; a value no word has when there is none.
uint64_t fanout_echo(
	const struct fanout *f, uint64_t gateway, uint64_t boot, uint32_t slot, uint32_t gen);

static inline bool fanout_alive(const struct fanout *f, uint32_t gateway)
{
	return atomic_load_explicit(&f->io.presence->gateway[gateway].alive, memory_order_acquire);
}

// --- emit --------------------------------------------------------------------------------------------

// Makes `slot` the message whose records are opened.
void fanout_begin(struct fanout *f, uint32_t slot) WORKER_ONLY;
// Closes the open records of the current message and counts their routes.
void fanout_close_records(struct fanout *f) WORKER_ONLY;
// Makes cursor[gateway] writable for the current message. Returns: false: not now (buffers, staging).
bool fanout_make_room(struct fanout *f, uint32_t gateway) WORKER_ONLY;
// True while further pushes of a large message should wait for this gateway.
bool fanout_pressed(struct fanout *f, uint32_t gateway, bool large) WORKER_ONLY;
// The same, only when the gateway's open push has room for a record; else nothing is done.
bool fanout_quick_room(struct fanout *f, uint32_t gateway) WORKER_ONLY;
void fanout_close_push(struct fanout *f, uint32_t gateway) WORKER_ONLY;
// Closes the gateway's push if there is one and opens another. Returns: false: no buffer.
bool fanout_reopen_push(struct fanout *f, uint32_t gateway) WORKER_ONLY;
// Reads how many buffers may be taken, once a turn.
void fanout_know_buffers(struct fanout *f) WORKER_ONLY;
struct dgram *fanout_dgram(struct fanout *f) WORKER_ONLY;
// True when `n` datagrams are at hand.
bool fanout_dgrams_ready(struct fanout *f, uint32_t n) WORKER_ONLY;
uint32_t fanout_body_room(const struct fanout *f, uint32_t gateway);
// Appends a whole record (routes included) of one message to the gateway's open push.
// Returns: false: no buffer.
bool fanout_append_record(struct fanout *f, uint32_t gateway, const struct delivery_span *span,
	const uint8_t *record, uint32_t bytes) WORKER_ONLY;
void fanout_record_of(const struct fanout *f, uint32_t slot, struct wire_record *record);
// Routes that were counted and never leave.
void fanout_end_routes(
	struct fanout *f, uint32_t slot, enum counter how, uint32_t count) WORKER_ONLY;

// Appends the span of a record just written; its routes stand behind those of the push so far.
static inline void fanout_add_span(struct fanout_push *p, uint32_t slot, uint32_t routes,
	uint8_t attempt, uint64_t deadline_ns, uint8_t ack)
{
	struct delivery_span *s = &p->span[p->spans++];

	s->message = slot;
	s->first = p->routes;
	s->count = (uint16_t)routes;
	s->ack = ack;
	s->attempt = attempt;
	s->deadline_ns = deadline_ns;
	p->routes = (uint16_t)(p->routes + routes);
	p->acks |= (uint8_t)(1u << ack);
	p->retried |= attempt > 1;
	if (deadline_ns < p->deadline_ns)
		p->deadline_ns = deadline_ns;
}

static inline uint64_t fanout_route_entry(uint64_t word)
{
	return (word & 0xffffffu) | (word << 8 & UINT64_C(0x00ffffff00000000));
}

// --- stage -------------------------------------------------------------------------------------------

bool fanout_stage_room(struct fanout *f, uint32_t gateway) WORKER_ONLY;
void fanout_stage_close(struct fanout *f, uint32_t gateway) WORKER_ONLY;
// Sends staged frames. Returns: work in members; *done: nothing is staged any more.
uint32_t fanout_stage_flush(struct fanout *f, uint32_t max, bool *done) WORKER_ONLY;
// Sends a push body as one datagram or in segments. Returns: false: no buffers, nothing was sent.
bool fanout_send_frame(struct fanout *f, uint32_t gateway, const struct delivery_span *span,
	const uint8_t *body, uint32_t bytes) WORKER_ONLY;

// --- retry and outcome -------------------------------------------------------------------------------

uint32_t fanout_retry(struct fanout *f, uint32_t max) WORKER_ONLY;
void fanout_answer(struct fanout *f, const struct fanout_publish *p, enum wire_status status,
	uint32_t retry_after_ms);
void fanout_answer_repeat(
	struct fanout *f, const struct fanout_publish *p, const struct idem_record *record);
// Tells the publisher and completes the idempotence record; a refusal is forgotten.
// `record`: as above.
void fanout_outcome(struct fanout *f, uint32_t slot, enum wire_status status,
	struct idem_record *record) WORKER_ONLY;
// The same for a publish that is about to be expanded without having been queued; the caller counts it.
void fanout_accepted(struct fanout *f, const struct fanout_publish *p, const struct tag *tag,
	uint64_t seq, struct idem_record *record) WORKER_ONLY;
// Ends a message whose last route ended.
void fanout_finish(struct fanout *f, uint32_t slot) WORKER_ONLY;
