/* SPDX-License-Identifier: BSD-3-Clause */
// See fanout_world.h.
#include "fanout_world.h"

#include <stdio.h>
#include <stdlib.h>

#define ARRIVED_MAX (1u << 18)

void world_defaults(struct world *w)
{
	memset(w, 0, sizeof(*w));
	w->now_ns = WORLD_START_NS;
	w->limits = (struct fanout_limits){
		.messages = 64,
		.parked = 32,
		.parked_per_channel = 8,
		.quantum_members = 256,
		.turn_members = 4096,
		.payload_bytes = PAYLOAD_MAX,
		.buffer_reserve = 4,
		.deadline_ns = 5000 * MS,
		.deadline_max_ns = 10000 * MS,
		.mtu = 1500,
	};
	w->delivery_limits = (struct delivery_limits){
		.inflight = 1024,
		.inflight_large = 64,
		.gateways = 16,
		.window = 512,
		.backlog = 512,
		.attempts = 4,
		.resend_percent = 100,
		.push_timeout_ns = 50 * MS,
		.retry_max_ns = 500 * MS,
		.receipt_timeout_ns = 100 * MS,
		.seed = 7,
	};
}

static void ended(void *ctx, uint32_t message, enum counter how, uint32_t count) WORKER_ONLY;
static void ended(void *ctx, uint32_t message, enum counter how, uint32_t count)
{
	fanout_on_end(((struct world *)ctx)->fanout, message, how, count);
}

static void spans_ended(
	void *ctx, const struct delivery_span *span, uint32_t spans, enum counter how) WORKER_ONLY;
static void spans_ended(
	void *ctx, const struct delivery_span *span, uint32_t spans, enum counter how)
{
	fanout_on_spans(((struct world *)ctx)->fanout, span, spans, how);
}

static bool want_tag(void *ctx, struct channel *channel)
{
	struct world *w = ctx;

	(void)channel;
	w->wants++;
	return !w->want_refused;
}

static void outcome(
	void *ctx, struct net_addr to, uint64_t boot, const struct wire_publish_ack *ack)
{
	struct world *w = ctx;

	assert_true(w->told_count < sizeof(w->told) / sizeof(w->told[0]));
	w->told[w->told_count++] = (struct told){.to = to, .boot = boot, .ack = *ack};
}

static void frame_done(void *ctx, uint32_t frame)
{
	(void)frame;
	((struct world *)ctx)->frames_done++;
}

static void start_tables(struct world *w)
{
	const struct presence_limits limits = {
		.uids = 65536,
		.gateways = w->delivery_limits.gateways,
		.sessions_per_gateway = 1u << 20,
		.uid_quarantine_ns = MS,
	};

	rcu_retire_init(&w->retire);
	assert_int_equal(topology_init(&w->topology, 256, 10, 1), 0);
	topology_ref_begin(&w->ref, &w->topology);
	w->presence = presence_create(&limits, &w->retire);
	w->channels = channel_table_create(64, 1, &w->retire);
	atomic_store(&w->channels->complete, true);
	assert_non_null(w->presence);
	assert_non_null(w->channels);
	w->tags = tag_space_create(64u << 20, 8, w->presence, &w->retire);
	assert_non_null(w->tags);
	presence_view(w->presence, &w->view);
}

void world_start(struct world *w)
{
	fake_port_init(&w->port, 4096, 0);
	w->port.record_sent = true;
	start_tables(w);
	w->lane = (struct wire_lane){.sender = 77, .boot = 770, .keys = &w->keys};
	w->idem = idem_create(1024, 60000 * MS);
	w->frames = wire_reassembly_create(64, 1000 * MS);
	w->arrived = calloc(ARRIVED_MAX, sizeof(*w->arrived));
	assert_non_null(w->arrived);
	const struct delivery_io dio = {
		.dgram = w->port.ops,
		.queue = &w->port,
		.lane = &w->lane,
		.presence = &w->view,
		.counters = &w->counters,
		.on_end = ended,
		.on_spans = spans_ended,
		.ctx = w,
	};
	w->delivery = delivery_create(&w->delivery_limits, &dio);
	assert_non_null(w->delivery);
	const struct fanout_io io = {
		.dgram = w->port.ops,
		.queue = &w->port,
		.channels = w->channels,
		.presence = &w->view,
		.delivery = w->delivery,
		.idem = w->idem,
		.lane = &w->lane,
		.counters = &w->counters,
		.local_port = 9000,
		.ctx = w,
		.want_tag = want_tag,
		.outcome = outcome,
		.frame_done = frame_done,
	};
	w->fanout = fanout_create(&w->limits, &io);
	assert_non_null(w->fanout);
}

void world_end(struct world *w)
{
	uint32_t at = 0;
	struct channel *channel;

	fanout_destroy(w->fanout);
	delivery_destroy(w->delivery);
	idem_destroy(w->idem);
	while ((channel = channel_table_next(w->channels, &at)) != NULL) {
		struct tag *tag = atomic_exchange(&channel->tag, NULL);

		if (tag != NULL)
			tag_retire(w->tags, tag);
	}
	rcu_reclaim(&w->retire);
	tag_space_destroy(w->tags);
	channel_table_destroy(w->channels);
	presence_destroy(w->presence);
	wire_reassembly_destroy(w->frames);
	free(w->arrived);
	fake_port_fini(&w->port);
}

// --- tables -------------------------------------------------------------------------------------------

uint32_t world_gateway(struct world *w, uint64_t id, uint16_t mtu)
{
	const struct net_addr addr = {.ip = 0x0a000000u + (uint32_t)id, .port = 7000};
	const int index = presence_gateway_up(w->presence, id, id * 10, addr, mtu, w->now_ns);

	assert_true(index > 0);
	return (uint32_t)index;
}

static struct id_view uid_of(const char *uid)
{
	return id_view_of(uid, (uint8_t)strlen(uid));
}

void world_session(struct world *w, uint32_t gateway, uint32_t slot, uint32_t gen, const char *uid)
{
	assert_int_equal(
		presence_session_open(w->presence, gateway, slot, gen, uid_of(uid), w->now_ns), 0);
}

struct channel *world_channel(struct world *w, const char *name)
{
	struct channel_key key;
	struct channel *channel;

	assert_int_equal(channel_key_set(&key, CHANNEL_GROUP, name, (uint8_t)strlen(name)), 0);
	channel = channel_table_get(w->channels, &key);
	assert_non_null(channel);
	world_smv(channel, 1);
	return channel;
}

void world_smv(struct channel *channel, uint64_t smv)
{
	atomic_store_explicit(&channel->smv, smv, memory_order_release);
}

struct tag *world_tag(struct world *w, struct channel *channel, const char *prefix, uint32_t count)
{
	uint32_t *uid = calloc(count + 1, sizeof(*uid));
	struct tag *tag, *old;

	assert_non_null(uid);
	for (uint32_t i = 0; i < count; i++) {
		char name[32];

		snprintf(name, sizeof(name), "%s%u", prefix, i);
		uid[i] = presence_uid_hold(w->presence, uid_of(name));
		assert_true(uid[i] != 0);
	}
	tag = tag_build(w->tags, uid, count, atomic_load(&channel->smv), &w->ref);
	assert_non_null(tag);
	free(uid);
	old = atomic_load(&channel->tag);
	rcu_publish(&channel->tag, tag);
	if (old != NULL)
		tag_retire(w->tags, old);
	return tag;
}

void world_online(struct world *w, const char *prefix, uint32_t count, uint32_t gateways)
{
	for (uint32_t i = 0; i < count; i++) {
		char name[32];

		snprintf(name, sizeof(name), "%s%u", prefix, i);
		world_session(w, 1 + i % gateways, i, 1, name);
	}
}

// --- publishing ---------------------------------------------------------------------------------------

struct fanout_publish world_message(struct world *w, const char *channel, uint64_t message_id,
	enum wire_ack_class ack, uint32_t bytes)
{
	struct fanout_publish p = {
		.m =
			{
				.request_id = message_id + 1000,
				.message_id = message_id,
				.stamp = message_id + 2000,
				.ack = (uint8_t)ack,
			},
		.from = {.ip = 0x0a000064, .port = 4000},
		.publisher_boot = 4,
	};
	const uint32_t names = (uint32_t)strlen(channel);
	uint8_t *tail;

	assert_int_equal(channel_key_set(&p.m.channel, CHANNEL_GROUP, channel, (uint8_t)names), 0);
	if (names + bytes <= FAKE_DGRAM_ROOM) {
		assert_int_equal(w->port.ops->alloc(&w->port, &p.body.dgram, 1), 1);
		tail = p.body.dgram->data;
	} else {
		// As if it had been put together from segments; never freed before the test ends.
		static uint8_t frame[256][ID_LEN_MAX + PAYLOAD_MAX];

		p.body.frame = (uint8_t)message_id;
		tail = frame[(uint8_t)message_id];
	}
	memcpy(tail, channel, names);
	memset(tail + names, (int)(message_id & 0xff), bytes);
	p.m.payload = (struct wire_view){.p = tail + names, .len = bytes};
	p.m.tail = (struct wire_view){.p = tail, .len = names + bytes};
	return p;
}

void world_admit(struct world *w, struct fanout_publish *p)
{
	fanout_admit(w->fanout, p, 1, w->now_ns);
}

void world_publish(struct world *w, const char *channel, uint64_t message_id,
	enum wire_ack_class ack, uint32_t bytes)
{
	struct fanout_publish p = world_message(w, channel, message_id, ack, bytes);

	world_admit(w, &p);
}

// --- what arrives -------------------------------------------------------------------------------------

static void take_push(struct world *w, uint32_t gateway, struct wire_view body)
{
	struct wire_record record;
	struct wire_push push;
	uint16_t position = 0;

	assert_int_equal(wire_get_push(body, &push), 0);
	assert_int_equal(push.gateway_boot, w->view.gateway[gateway].boot);
	w->datagrams++;
	while (wire_push_next(&push.body, &record)) {
		for (uint32_t i = 0; i < record.payload.len; i++)
			assert_int_equal(record.payload.p[i], record.payload.p[0]);
		for (uint32_t i = 0; i < record.routes; i++) {
			struct arrived *a = &w->arrived[w->arrived_count++];

			assert_true(w->arrived_count < ARRIVED_MAX);
			*a = (struct arrived){
				.gateway = gateway,
				.datagram = w->datagrams,
				.message_id = record.message_id,
				.seq = record.seq,
				.stamp = record.stamp,
				.payload_len = record.payload.len,
				.payload_first = record.payload.len != 0 ? record.payload.p[0] : 0,
				.flags = record.flags,
				.need_ack = push.need_ack,
				.push_id = push.push_id,
				.push_gen = push.push_gen,
				.position = position++,
				.routes = push.routes,
			};
			wire_get_route(record.route + i * WIRE_ROUTE_BYTES, &a->slot, &a->gen);
		}
	}
}

static void take_datagram(struct world *w, const struct dgram *d)
{
	struct wire_header header;
	struct wire_segment segment;
	struct wire_view body, frame;
	uint32_t handle, gateway = 0;

	for (uint32_t g = 1; g < w->view.gateways; g++)
		if (net_addr_equal(w->view.gateway[g].addr, d->peer))
			gateway = g;
	assert_true(gateway != 0);
	assert_int_equal(d->local_port, 9000);
	assert_int_equal(wire_get_header(d->data, d->len, &header, &body), 0);
	if (d->len + WIRE_UDP_OVERHEAD > w->largest)
		w->largest = d->len + WIRE_UDP_OVERHEAD;
	if (header.type == WIRE_PUSH) {
		take_push(w, gateway, body);
		return;
	}
	assert_int_equal(header.type, WIRE_SEGMENT);
	assert_int_equal(wire_get_segment(body, &segment), 0);
	assert_int_equal(segment.type, WIRE_PUSH);
	header.lane = (uint8_t)gateway;  // every gateway has a reassembly of its own
	switch (wire_reassembly_add(w->frames, &header, &segment, w->now_ns, &frame, &handle)) {
	case WIRE_PART_COMPLETE:
		take_push(w, gateway, frame);
		wire_reassembly_release(w->frames, handle);
		break;
	case WIRE_PART_MORE:
	case WIRE_PART_REPEATED:
		break;
	default:
		fail_msg("bad segment");
	}
}

uint32_t world_turn(struct world *w)
{
	uint32_t work = delivery_tick(w->delivery, w->now_ns, 512);

	work += fanout_run(w->fanout, w->now_ns);
	fanout_flush(w->fanout, w->now_ns);
	for (; w->sent_seen < w->port.sent_count; w->sent_seen++)
		take_datagram(w, fake_port_sent(&w->port, w->sent_seen));
	return work;
}

void world_turns(struct world *w, uint32_t n)
{
	while (n-- != 0)
		world_turn(w);
}

void world_ack(struct world *w, uint32_t first)
{
	uint32_t last = 0;

	for (uint32_t i = first; i < w->arrived_count; i++) {
		const struct arrived *a = &w->arrived[i];
		const struct wire_push_ack ack = {
			.push_id = a->push_id,
			.push_gen = a->push_gen,
			.accepted = a->routes,
		};

		if (!a->need_ack || a->datagram == last)
			continue;
		last = a->datagram;
		delivery_on_ack(w->delivery, a->gateway, &ack, w->now_ns);
	}
}

uint64_t world_count(const struct world *w, enum counter id)
{
	return counter_get(&w->counters, id);
}

uint32_t world_arrivals(const struct world *w, uint64_t message_id)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < w->arrived_count; i++)
		n += w->arrived[i].message_id == message_id;
	return n;
}

const struct wire_publish_ack *world_last_told(const struct world *w)
{
	assert_true(w->told_count != 0);
	return &w->told[w->told_count - 1].ack;
}

static uint64_t sum(const struct world *w, enum counter first, enum counter last)
{
	uint64_t n = 0;

	for (int id = first; id <= (int)last; id++)
		n += world_count(w, (enum counter)id);
	return n;
}

void world_check_sums(const struct world *w)
{
	assert_int_equal(world_count(w, CTR_MEMBERS), sum(w, CTR_END_OFFLINE, CTR_END_SENDER_ONLY));
	assert_int_equal(world_count(w, CTR_ROUTES), sum(w, CTR_ROUTE_SENT, CTR_ROUTE_NO_BUFFER));
	assert_int_equal(world_count(w, CTR_PUBLISH), sum(w, CTR_PUB_OK, CTR_PUB_PENDING));
}
