/* SPDX-License-Identifier: BSD-3-Clause */
// The cost of a member route, all features on: admission, tag, presence gather, records, pushes, in-flight
// records, port, on net_null; against sending one packet of 170 bytes by bare bursts on the same device, and
// against a bare prefetched gather of route words. Members are drawn at random from a million users on 16
// gateways. Arguments: per cent online, part of the names of rows wanted.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_ethdev.h>

#include "bench.h"
#include "channel_table.h"
#include "fanout.h"
#include "port_pvt.h"
#include "presence.h"
#include "tag.h"
#include "topology.h"

#define USERS 1000000u
#define GATEWAYS 16u
#define PAYLOAD 128u
#define SMALL_CHANNELS 20000u
#define PACKET_BYTES 170u
#ifndef SMALL_TIMES
#define SMALL_TIMES 6000
#endif
#define SENT_MAX 65536u

struct sent {
	uint32_t push_id, push_gen;
	uint16_t routes, gateway;
};

static struct {
	struct rcu_retire retire;
	struct presence *presence;
	struct presence_view view;
	struct channel_table *channels;
	struct tag_space *tags;
	struct idem *idem;
	struct delivery *delivery;
	struct fanout *fanout;
	struct counters counters;
	struct wire_keys keys;
	struct wire_lane lane;
	struct port_queue *queue;
	struct dgram_ops ops;
	const struct dgram_ops *port_ops;
	struct sent sent[SENT_MAX];
	uint32_t sent_count;
	struct dgram *out[BURST];
	uint32_t out_count;
	uint64_t now_ns, message_id;
	uint32_t random;
} w;

static uint32_t draw(uint32_t below)
{
	w.random ^= w.random << 13;
	w.random ^= w.random >> 17;
	w.random ^= w.random << 5;
	return (uint32_t)((uint64_t)w.random * below >> 32);
}

static void must(bool ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "expand: %s\n", what);
	exit(1);
}

// --- what surrounds the pipeline ----------------------------------------------------------------------

static void flush_out(void)
{
	if (w.out_count != 0)
		w.port_ops->tx(w.queue, w.out, (uint16_t)w.out_count);
	w.out_count = 0;
}

// Collects to bursts, as a node does.
static void tx_collecting(void *queue, struct dgram **d, uint16_t n)
{
	(void)queue;
	for (uint16_t i = 0; i < n; i++) {
		w.out[w.out_count++] = d[i];
		if (w.out_count == BURST)
			flush_out();
	}
}

// Notes which pushes want an answer.
static void tx_noting(void *queue, struct dgram **d, uint16_t n)
{
	for (uint16_t i = 0; i < n && w.sent_count < SENT_MAX; i++) {
		const uint8_t *body = d[i]->data + WIRE_HEADER_BYTES;
		struct sent *s = &w.sent[w.sent_count++];

		memcpy(&s->push_id, body, 8);
		memcpy(&s->routes, body + WIRE_PUSH_RECORDS_OFFSET + 2, 2);
		s->gateway = (uint16_t)(d[i]->peer.ip - 0x0a000010u + 1);
	}
	tx_collecting(queue, d, n);
}

static void on_end(void *ctx, uint32_t message, enum counter how, uint32_t count) WORKER_ONLY;
static void on_end(void *ctx, uint32_t message, enum counter how, uint32_t count)
{
	(void)ctx;
	fanout_on_end(w.fanout, message, how, count);
}

static void on_spans(
	void *ctx, const struct delivery_span *span, uint32_t spans, enum counter how) WORKER_ONLY;
static void on_spans(void *ctx, const struct delivery_span *span, uint32_t spans, enum counter how)
{
	(void)ctx;
	fanout_on_spans(w.fanout, span, spans, how);
}

static bool want_tag(void *ctx, struct channel *channel)
{
	(void)ctx;
	(void)channel;
	return true;
}

static void outcome(
	void *ctx, struct net_addr to, uint64_t boot, const struct wire_publish_ack *ack)
{
	(void)ctx;
	(void)to;
	(void)boot;
	must(ack->status == WIRE_OK, "a publish was refused");
}

static void frame_done(void *ctx, uint32_t frame)
{
	(void)ctx;
	(void)frame;
}

// Users u0.. of whom `online` per cent have a session, spread over the gateways.
static void create_users(uint32_t online) CONTROL_ONLY;
static void create_users(uint32_t online)
{
	const struct presence_limits limits = {
		.uids = USERS,
		.gateways = GATEWAYS,
		.sessions_per_gateway = USERS,
		.uid_quarantine_ns = 1,
	};

	rcu_retire_init(&w.retire);
	w.presence = presence_create(&limits, &w.retire);
	must(w.presence != NULL, "no memory for users");
	presence_view(w.presence, &w.view);
	for (uint32_t g = 0; g < GATEWAYS; g++)
		presence_gateway_up(w.presence, g + 1, 1,
			(struct net_addr){.ip = 0x0a000010u + g, .port = 7500}, 1500, 1);
	for (uint32_t i = 0; i < USERS; i++) {
		char name[17];

		const int len = snprintf(name, sizeof(name), "user-%011u", i);
		const struct id_view uid = id_view_of(name, (uint8_t)len);

		presence_uid_hold(w.presence, uid);
		if (draw(100) < online)
			must(presence_session_open(
				     w.presence, 1 + draw(GATEWAYS), i, i % 16, uid, 1) == 0,
				"session");
	}
}

static void create_pipeline(void) WORKER_ONLY CONTROL_ONLY;
static void create_pipeline(void)
{
	const struct delivery_limits delivery_limits = {
		.inflight = 65536,
		.inflight_large = 64,
		.gateways = GATEWAYS,
		.window = 60000,
		.backlog = 60000,
		.attempts = 4,
		.resend_percent = 20,
		.push_timeout_ns = 50 * NS_PER_MS,
		.retry_max_ns = NS_PER_S,
		.receipt_timeout_ns = NS_PER_S,
		.seed = 1,
	};
	const struct fanout_limits limits = {
		.messages = 4096,
		.parked = 64,
		.parked_per_channel = 64,
		.quantum_members = 4096,
		.turn_members = 16384,
		.payload_bytes = PAYLOAD_MAX,
		.buffer_reserve = 256,
		.deadline_ns = 10 * NS_PER_S,
		.deadline_max_ns = 10 * NS_PER_S,
		.mtu = 1500,
	};

	w.port_ops = port_dgram_ops();
	w.ops = *w.port_ops;
	w.lane = (struct wire_lane){.sender = 1, .boot = 1, .keys = &w.keys};
	w.idem = idem_create(8192, 60 * NS_PER_S);
	const struct delivery_io delivery_io = {
		.dgram = &w.ops,
		.queue = w.queue,
		.lane = &w.lane,
		.presence = &w.view,
		.counters = &w.counters,
		.on_end = on_end,
		.on_spans = on_spans,
	};
	w.delivery = delivery_create(&delivery_limits, &delivery_io);
	const struct fanout_io io = {
		.dgram = &w.ops,
		.queue = w.queue,
		.channels = w.channels,
		.presence = &w.view,
		.delivery = w.delivery,
		.idem = w.idem,
		.lane = &w.lane,
		.counters = &w.counters,
		.local_port = 7400,
		.want_tag = want_tag,
		.outcome = outcome,
		.frame_done = frame_done,
	};
	must(w.idem != NULL && w.delivery != NULL, "no memory");
	w.fanout = fanout_create(&limits, &io);
	must(w.fanout != NULL, "no memory");
}

// A channel of `count` members drawn at random.
static struct channel_key create_channel(
	const char *kind, uint32_t number, uint32_t count) CONTROL_ONLY;
static struct channel_key create_channel(const char *kind, uint32_t number, uint32_t count)
{
	struct topology topology;
	static struct topology_ref ref;
	uint32_t *uid = malloc((count + 1) * sizeof(*uid));
	struct channel_key key;
	struct channel *channel;
	char name[32];

	topology_init(&topology, 256, 10, 1);
	topology_ref_begin(&ref, &topology);
	must(uid != NULL, "no memory");
	for (uint32_t i = 0; i < count; i++) {
		uid[i] = 1 + (count == USERS ? i : draw(USERS));
		presence_uid_ref(w.presence, uid[i]);
	}
	snprintf(name, sizeof(name), "%s%u", kind, number);
	channel_key_set(&key, CHANNEL_GROUP, name, (uint8_t)strlen(name));
	channel = channel_table_get(w.channels, &key);
	must(channel != NULL, "no room for a channel");
	atomic_store(&channel->smv, 1);
	rcu_publish(&channel->tag, tag_build(w.tags, uid, count, 1, &ref));
	must(atomic_load(&channel->tag) != NULL, "no memory for a tag");
	free(uid);
	return key;
}

// --- what is measured ---------------------------------------------------------------------------------

static double bare_packet(void)
{
	const uint32_t bursts = 10000;
	const uint64_t start = bench_ns();
	struct rte_mbuf *m[BURST];

	for (uint32_t i = 0; i < bursts; i++) {
		must(rte_pktmbuf_alloc_bulk(w.queue->pool, m, BURST) == 0, "no buffers");
		for (uint32_t k = 0; k < BURST; k++) {
			memset(rte_pktmbuf_mtod(m[k], void *), 0, 42);
			m[k]->data_len = PACKET_BYTES;
			m[k]->pkt_len = PACKET_BYTES;
		}
		const uint16_t sent =
			rte_eth_tx_burst(w.queue->port_id, w.queue->queue_id, m, BURST);

		if (sent < BURST)
			rte_pktmbuf_free_bulk(m + sent, BURST - sent);
	}
	return (double)(bench_ns() - start) / (bursts * BURST);
}

static double bare_gather(const struct tag *tag)
{
	const uint32_t times = 1 + 2000000 / tag->count;
	uint64_t sum = 0, start = bench_ns();

	for (uint32_t t = 0; t < times; t++)
		for (uint32_t c = 0; c < tag->chunks; c++) {
			const struct tag_chunk *chunk = tag->chunk[c];

			for (uint32_t i = 0; i < chunk->count; i++) {
				if (i + 32 < chunk->count)
					presence_prefetch(&w.view, TAG_UID(chunk->uid[i + 32]));
				sum += presence_route(&w.view, TAG_UID(chunk->uid[i]));
			}
		}
	start = bench_ns() - start;
	must(sum != 1, "");
	return (double)start / ((double)times * tag->count);
}

static void answer(void) WORKER_ONLY;
static void answer(void)
{
	for (uint32_t i = 0; i < w.sent_count; i++) {
		const struct sent *s = &w.sent[i];
		const struct wire_push_ack ack = {
			.push_id = s->push_id,
			.push_gen = s->push_gen,
			.accepted = s->routes,
		};

		delivery_on_ack(w.delivery, s->gateway, &ack, w.now_ns);
	}
	w.sent_count = 0;
}

static void turn(void) WORKER_ONLY;
static void turn(void)
{
	w.now_ns += 100 * NS_PER_US;
	delivery_tick(w.delivery, w.now_ns, 512);
	fanout_run(w.fanout, w.now_ns);
	fanout_flush(w.fanout, w.now_ns);
	flush_out();
	answer();
}

// A PUBLISH as it comes from the port: not measured, its parsing is.
static struct dgram *message(const struct channel_key *key, enum wire_ack_class ack)
{
	static const uint8_t payload[PAYLOAD] = {7};
	const struct wire_publish m = {
		.request_id = 1,
		.message_id = ++w.message_id,
		.ack = (uint8_t)ack,
		.channel = *key,
		.payload = {.p = payload, .len = PAYLOAD},
	};
	struct dgram *d;
	struct wire_buf out;

	must(w.ops.alloc(w.queue, &d, 1) == 1, "no buffers");
	out = (struct wire_buf){.p = d->data, .cap = d->room, .ok = true};
	must(wire_put_publish(&out, &m), "a publish that cannot be built");
	d->len = (uint16_t)out.len;
	return d;
}

// Parses and admits a burst.
static void admit(struct dgram **d, uint32_t count) WORKER_ONLY;
static void admit(struct dgram **d, uint32_t count)
{
	static struct fanout_publish burst[BURST];

	for (uint32_t i = 0; i < count; i++) {
		const struct wire_view body = {.p = d[i]->data, .len = d[i]->len};

		must(wire_get_publish(body, &burst[i].m) == 0, "a publish that cannot be parsed");
		burst[i].from = (struct net_addr){.ip = 0x0a000010u, .port = 7500};
		burst[i].publisher_boot = 1;
		burst[i].body.dgram = d[i];
	}
	fanout_admit(w.fanout, burst, count, w.now_ns);
}

// ns per route; *per_publish: of one publish.
static double publish(const struct channel_key *key, uint32_t keys, uint32_t times,
	uint32_t burst_size, enum wire_ack_class ack, double *per_publish) WORKER_ONLY;
static double publish(const struct channel_key *key, uint32_t keys, uint32_t times,
	uint32_t burst_size, enum wire_ack_class ack, double *per_publish)
{
	const uint64_t routes = counter_get(&w.counters, CTR_ROUTES);
	const uint32_t bursts = burst_size == 1 ? 1 : 4;  // of a turn
	uint64_t ns = 0;

	w.ops.tx = ack == WIRE_ACK_NONE ? tx_collecting : tx_noting;
	for (uint32_t t = 0; t < times; t += bursts) {
		struct dgram *d[4 * BURST];
		uint64_t start;

		for (uint32_t i = 0; i < bursts * burst_size; i++)
			d[i] = message(&key[draw(keys)], ack);
		start = bench_ns();
		for (uint32_t b = 0; b < bursts; b++)
			admit(&d[b * burst_size], burst_size);
		do
			turn();
		while (fanout_runnable(w.fanout));
		ns += bench_ns() - start;
	}
	*per_publish = (double)ns / ((double)times * burst_size);
	return (double)ns / (double)(counter_get(&w.counters, CTR_ROUTES) - routes);
}

struct row {
	const char *name;
	const struct channel_key *key;
	uint32_t keys, times, burst;
	enum wire_ack_class ack;
	struct bench_goal goal;  // against a packet
	double ns[BENCH_ROUNDS], per_publish[BENCH_ROUNDS];
};

static struct channel_key small[SMALL_CHANNELS], pair[SMALL_CHANNELS], nobody[SMALL_CHANNELS];
static struct channel_key large, thousand, million;
static struct row rows[] = {
	{"100k members, ack none", &large, 1, 20, 1, WIRE_ACK_NONE, BENCH_MOST(0.55), {0}, {0}},
	{"100k members, ack gateway", &large, 1, 20, 1, WIRE_ACK_GATEWAY, BENCH_MOST(0.55), {0},
		{0}},
	{"1k members, ack gateway", &thousand, 1, 1000, 1, WIRE_ACK_GATEWAY, BENCH_NONE, {0}, {0}},
	{"1M members, ack gateway", &million, 1, 2, 1, WIRE_ACK_GATEWAY, BENCH_MOST(0.55), {0},
		{0}},
	{"no members in bursts, ack gateway", nobody, SMALL_CHANNELS, SMALL_TIMES, BURST,
		WIRE_ACK_GATEWAY, BENCH_NONE, {0}, {0}},
	{"10 members in bursts, ack none", small, SMALL_CHANNELS, SMALL_TIMES, BURST, WIRE_ACK_NONE,
		BENCH_MOST(1.6), {0}, {0}},
	{"10 members in bursts, ack gateway", small, SMALL_CHANNELS, SMALL_TIMES, BURST,
		WIRE_ACK_GATEWAY, BENCH_MOST(1.6), {0}, {0}},
	{"2 members in bursts, ack gateway", pair, SMALL_CHANNELS, SMALL_TIMES, BURST,
		WIRE_ACK_GATEWAY, BENCH_NONE, {0}, {0}},
};
#define NOBODY 4
#define ROWS (sizeof(rows) / sizeof(rows[0]))

static void create_channels(void) WORKER_ONLY CONTROL_ONLY;
static void create_channels(void)
{
	w.channels = channel_table_create(4 * SMALL_CHANNELS, 1, &w.retire);
	w.tags = tag_space_create(1u << 30, 8, w.presence, &w.retire);
	must(w.channels != NULL && w.tags != NULL, "no memory for channels");
	large = create_channel("large", 0, 100000);
	thousand = create_channel("thousand", 0, 1000);
	million = create_channel("million", 0, USERS);
	for (uint32_t i = 0; i < SMALL_CHANNELS; i++) {
		small[i] = create_channel("small", i, 10);
		pair[i] = create_channel("pair", i, 2);
		nobody[i] = create_channel("nobody", i, 0);
	}
	create_pipeline();
}

// From the resolved message to the port: what a publish costs beyond one that has nobody to go to.
static void expansion_row(const struct row *r, const double *packet)
{
	double ns[BENCH_ROUNDS];

	for (uint32_t i = 0; i < BENCH_ROUNDS; i++)
		ns[i] = r->ns[i] * (1 - rows[NOBODY].per_publish[i] / r->per_publish[i]);
	bench_row("  expansion to port alone", ns, "170-byte tx packet", packet, r->goal);
}

static void measure(uint32_t online, const char *only) WORKER_ONLY CONTROL_ONLY;
static void measure(uint32_t online, const char *only)
{
	double packet[BENCH_ROUNDS], gather[BENCH_ROUNDS];
	char title[64];

	create_channels();
	const struct tag *tag =
		atomic_load(&channel_find(w.channels, &large, channel_key_hash(&large))->tag);

	for (uint32_t round = 0; round < BENCH_ROUNDS; round++) {
		packet[round] = bare_packet();
		gather[round] = bare_gather(tag);
		for (struct row *r = rows; r < rows + ROWS; r++)
			if (strstr(r->name, only) != NULL)
				r->ns[round] = publish(r->key, r->keys, r->times, r->burst, r->ack,
					&r->per_publish[round]);
	}
	snprintf(title, sizeof(title), "member route into net_null, %u %% online", online);
	bench_head(title);
	for (const struct row *r = rows; r < rows + ROWS; r++) {
		if (strstr(r->name, only) == NULL)
			continue;
		if (r->key == nobody) {
			bench_row(
				r->name, r->per_publish, "170-byte tx packet", packet, BENCH_NONE);
			continue;
		}
		bench_row(r->name, r->ns, "170-byte tx packet", packet, r->goal);
		bench_row("  the same", r->ns, "bare gather", gather, BENCH_NONE);
		bench_row("  one publish", r->per_publish, NULL, NULL, BENCH_NONE);
		if (r->key == small && rows[NOBODY].per_publish[0] != 0)
			expansion_row(r, packet);
	}
}

static struct conf conf_make(void)
{
	struct conf c = {.node.id = 1,
		.eal.memory_bytes = 256u << 20,
		.workers.count = 1,
		.port = {.ip = 0x0a000001u,
			.prefix_len = 24,
			.mtu = 1500,
			.udp_base = 7400,
			.rx_descriptors = 512,
			.tx_descriptors = 512,
			.buffers = 16384,
			.checksum = CONF_CHECKSUM_OFF,
			.neighbour_count = GATEWAYS,
			.neighbour_ttl_ns = 600 * NS_PER_S}};

	for (uint8_t i = 0; i < GATEWAYS; i++)
		c.port.neighbours[i] =
			(struct conf_neighbour){.ip = 0x0a000010u + i, .mac = {2, 0, 0, 0, 1, i}};
	strcpy(c.eal.lcores, "auto");
	strcpy(c.node.log_level, "warn");
	strcpy(c.eal.extra, "--no-telemetry");  // its socket would keep EAL's folder
	strcpy(c.port.device, "net_null0");
	snprintf(c.eal.file_prefix, sizeof(c.eal.file_prefix), "tc_bench_%d", getpid());
	return c;
}

int main(int argc, char **argv)
{
	const uint32_t online = argc > 1 ? (uint32_t)atoi(argv[1]) : 100;
	struct counters *all[] = {&w.counters};
	const struct conf conf = conf_make();
	const char *why = "";
	struct port *port;

	if (port_eal_start(&conf, &why) != 0 || port_open(&conf, all, &port, &why) != 0) {
		fprintf(stderr, "expand: %s\n", why);
		return 1;
	}
	w.queue = port_queue(port, 0);
	w.random = 2463534242u;
	w.now_ns = NS_PER_S;
	role_take_worker();
	role_take_control();
	create_users(online);
	measure(online, argc > 2 ? argv[2] : "");
	role_drop_control();
	role_drop_worker();
	rte_eth_dev_stop(w.queue->port_id);
	port_eal_stop();
	return 0;
}
